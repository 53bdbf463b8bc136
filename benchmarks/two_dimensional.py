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

import mixvi
from mixvi import _families
from mixvi._laplace import laplace
from mixvi._target import prepare

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


def kl(mean, root):
    """KL(N(mean, root root^T) || p) by two-dimensional Gauss-Hermite quadrature."""
    points = mean + GRID @ root.T
    log_q = -0.5 * (GRID**2).sum(1) - math.log(2 * math.pi) - jnp.linalg.slogdet(root)[1]
    return GRID_WEIGHTS @ (log_q - jax.vmap(log_density)(points))


def best_kl(family: str) -> float:
    """The smallest KL in the family around the Laplace root, from several starts."""
    with jax.enable_x64(True):
        target, start = prepare(log_density, np.zeros(2), None, np.dtype(np.float64))
        found = laplace(target, jnp.asarray(start))
        if family == "laplace":
            return float(kl(found.mode, found.root.matrix))
        chosen = _families.NAMES[family]()
        root = chosen.root(found)
        around = jnp.diag(root.matrix) if root.matrix.ndim == 1 else root.matrix

        def objective(params):
            mean = found.mode + around @ params[:2]
            return kl(mean, chosen.after(around, params[2:]))

        first = chosen.starts(root, jnp.eye(2), -0.1 * jnp.eye(2))[-1 if family == "lr" else 0]
        value_and_grad = jax.jit(jax.value_and_grad(objective))
        rng = np.random.default_rng(0)
        ends = []
        for _ in range(8):
            begin = np.concatenate([np.zeros(2), first]) + 0.3 * rng.standard_normal(2 + first.size)
            ends.append(
                scipy.optimize.minimize(
                    lambda p: [np.asarray(part, float) for part in value_and_grad(p)],
                    begin,
                    jac=True,
                    method="BFGS",
                    options={"gtol": 1e-9},
                ).fun
            )
    return float(min(ends))


def fitted_kl(family: str, draws, key: int) -> float:
    post = mixvi.fit(log_density, np.zeros(2), family, draws=draws, key=key)
    root = np.diag(post.root) if post.root.ndim == 1 else post.root
    with jax.enable_x64(True):
        return float(kl(post.flat_mean, root))


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
