"""Mass where few draws of the Gaussian fall: how often the verdict is "Trust", over keys.

A standard normal with a narrow bump three standard deviations out: Newton's method ends in the wide
part, nearly no fresh draw lands on the bump, and it is too near for far probes.
"""

import argparse
import collections
import warnings

import jax.numpy as jnp
import numpy as np

import mixvi
from problems import machine

# Share of the mass, place and width of the bump, dimensions.
SHOULDERS = (
    (0.25, 3.2, 0.2, 1),
    (0.3, 3.5, 0.3, 2),
    (0.3, 3.3, 0.25, 4),
    (0.2, 3.0, 0.2, 1),
    (0.2, 3.0, 0.2, 3),
)


def shoulder(share: float, place: float, width: float):
    def log_density(w):
        bump = jnp.log(share / width) - 0.5 * ((w[0] - place) / width) ** 2
        wide = jnp.log1p(-share) - 0.5 * w[0] ** 2
        return jnp.logaddexp(wide, bump) - 0.5 * (w[1:] ** 2).sum()

    return log_density


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=40)
    keys = parser.parse_args().keys
    warnings.simplefilter("ignore")
    print(f"{machine()}; keys 0 to {keys - 1}\n")
    print("| bump: share, place, width | D | call | Trust | Use with weights | Do not trust |")
    print("|---|---|---|---|---|---|")
    for *bump, dim in SHOULDERS:
        log_density, said = shoulder(*bump), ", ".join(map(str, bump))
        for call in (mixvi.fit, mixvi.laplace):
            posts = (call(log_density, np.zeros(dim), key=key) for key in range(keys))
            found = collections.Counter(post.verdict[0] for post in posts)
            counts = " | ".join(str(found[letter]) for letter in "TUD")
            print(f"| {said} | {dim} | {call.__name__} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
