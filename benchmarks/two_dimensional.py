"""The paper's 2-D example: KL(q || p) by quadrature, against the best each family can reach.

Both sides are exact: the fitted Gaussian's KL is integrated on a grid, and the best of a family is
found by maximising the quadrature itself over the family's own parameters.
"""

import argparse
import math

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import fresh
import mixvi
from mixvi._approximate._bound import dense
from mixvi._approximate._families import NAMES
from mixvi._approximate._laplace import eigen_root, laplace

FAMILIES = ("laplace", "mu", "eig", "lr", "full", "diag")
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
GRID = np.stack([axis.ravel() for axis in np.meshgrid(NODES, NODES)], axis=1)
GRID_WEIGHTS = np.outer(WEIGHTS, WEIGHTS).ravel() / (2 * math.pi)


def log_density(w):
    """Two thirds N(0, I) and one third N((-1, -2), diag(3.5, 0.3)): normalised, so log Z = 0."""
    first = jnp.log(2 / 3) - 0.5 * (w**2).sum()
    precision = jnp.array([1 / 3.5, 1 / 0.3])
    second = jnp.log(1 / 3) - 0.5 * jnp.log(3.5 * 0.3)
    second = second - 0.5 * (precision * (w - jnp.array([-1.0, -2.0])) ** 2).sum()
    return jnp.logaddexp(first, second) - jnp.log(2 * jnp.pi)


@jax.jit
def on_grid(points):
    return GRID_WEIGHTS @ jax.vmap(log_density)(points)


def kl(mean, root) -> float:
    """KL(N(mean, root root^T) || p) by two-dimensional Gauss-Hermite quadrature."""
    negative_entropy = -1 - math.log(2 * math.pi) - np.linalg.slogdet(root)[1]
    with jax.enable_x64(True):
        return float(negative_entropy - on_grid(mean + GRID @ root.T))


def best_kl(family: str) -> float:
    """The smallest KL in the family around the Laplace root, from several starts."""
    found = laplace(fresh.density(log_density, np.zeros(2)), np.zeros(2))
    if family == "laplace":
        return kl(found.mode, found.root)
    chosen, whole = NAMES[family](), eigen_root(found.root)
    root = chosen.root(whole)

    def objective(params):
        mean = found.mode + whole @ params[:2]
        return kl(mean, dense(chosen.right_multiply(root, params[2:])))

    candidates = chosen.starts(root, np.eye(2), -0.1 * np.eye(2), whole)
    first = np.concatenate([np.zeros(2), candidates[-1 if family == "lr" else 0]])
    rng = np.random.default_rng(0)
    begins = [first + 0.3 * rng.standard_normal(first.size) for _ in range(8)]
    options = {"gtol": 1e-8}
    return min(
        scipy.optimize.minimize(objective, begin, jac="3-point", method="BFGS", options=options).fun
        for begin in begins
    )


def fitted_kl(family: str, draws, key: int) -> float:
    post = mixvi.fit(log_density, np.zeros(2), family=family, draws=draws, key=key)
    return kl(post.flat_mean, dense(post.root))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=20)
    keys = range(parser.parse_args().keys)
    choices = {
        "matched 1000": 1000,
        "iid 1000": mixvi.IID(1000),
        "matched 200": 200,
        "default": None,
    }
    print(f"KL(q || p) by quadrature; shortfall: median and largest over {len(keys)} keys\n")
    print("| family | best | " + " | ".join(f"{name}: median, worst" for name in choices) + " |")
    print("|---|---|" + "---|" * len(choices))
    for family in FAMILIES:
        best = best_kl(family)
        cells = []
        for draws in choices.values():
            short = [fitted_kl(family, draws, key) - best for key in keys]
            cells.append(f"{np.median(short):+.5f}, {max(short):+.5f}")
        print(f"| {family} | {best:.5f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
