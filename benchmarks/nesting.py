"""Cauchy regression posteriors of the paper's kind (D = 21, not log-concave): bounds by family, and
what plain starts, without the poorer families and without scalings, would have given.

By quasi-Newton from the mode: Stein steps nest on fresh draws alone.
"""

import argparse
import warnings

import jax.numpy as jnp
import numpy as np

import mixvi
from mixvi._approximate import _climb, _families
from problems import machine


def log_density(w, data):
    design, y = data
    return -jnp.log1p(((y - design @ w) / 0.2) ** 2).sum() - 0.05 * w @ w


def problem(seed: int):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10, 10, 50)
    y = 0.3 * x * np.sin(0.7 * x) - 0.03 * x**2 + rng.uniform(-0.5, 0.5, 50)
    basis = np.exp(-0.5 * (x[:, None] - np.linspace(-10, 10, 20)) ** 2)
    return np.concatenate([basis, np.ones((50, 1))], axis=1), y


def bounds(problems) -> dict[str, np.ndarray]:
    options = {"draws": 1000, "optimiser": "bfgs", "anchor": "mode", "diagnostics": False}

    def bound(family: str, data) -> float:
        start = np.zeros(21)
        return mixvi.fit(
            log_density, start, family=family, data=data, throw=False, **options
        ).elbo_fixed

    families = ("mu", "eig", "lr", "full")
    return {family: np.array([bound(family, data) for data in problems]) for family in families}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100)
    n = parser.parse_args().sets
    problems = [problem(seed) for seed in range(n)]
    warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
    ours = bounds(problems)
    _climb._rungs = lambda family: [family]
    _families.SCALINGS = (1.0,)
    plain = bounds(problems)
    print(f"{machine()}; {n} data sets, 1000 matched draws\n")
    print(
        "| pair | violated, mixvi | violated, plain starts | largest loss of plain starts, nats |"
    )
    print("|---|---|---|---|")
    for poorer, richer in (("mu", "eig"), ("eig", "full"), ("mu", "lr")):
        with np.errstate(invalid="ignore"):
            broken = [(b[richer] < b[poorer] - 1e-6).sum() for b in (ours, plain)]
        lost = np.nanmax(ours[richer] - plain[richer])
        print(f"| {poorer} in {richer} | {broken[0]} | {broken[1]} | {lost:.1f} |")
    failed = sum(int(np.isnan(value).sum()) for value in ours.values())
    medians = ", ".join(f"{family} {np.nanmedian(value):.2f}" for family, value in ours.items())
    print(f"\nMedian bound: {medians}; fits without a result: {failed}")


if __name__ == "__main__":
    main()
