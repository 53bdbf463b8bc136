"""Posteriors of hyperparameters that are far from normal, with known answers: how wrong the quantiles
of a design and of a lattice are, beside the signs that they give.

    python benchmarks/rough_designs.py     prints the page and writes it

No model: the log density of k hyperparameters and its gradient stand for the evidence. Every one is
that of `theta = a + M T(n)` with `n` standard normal and `T` a map of known determinant; its quantiles
are those of 2^17 Sobol normals through the same map. An error is that of a quantile (5, 25, 50, 75,
95%), in standard deviations, the largest of all hyperparameters.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from mixvi._approximate import _explore
from mixvi._approximate._explore import Explored, Place, explored
from mixvi._law._surface import Surface

jax.config.update("jax_enable_x64", True)
PROBS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
N_SOBOL = 2**17


@dataclasses.dataclass(frozen=True)
class Shape:
    """`log_density(theta)` and draws of it; `amount`: how far from normal."""

    kind: str
    amount: float
    k: int
    log_density: Callable
    draws: Callable  # of a table of standard normals


def mixed(kind: str, amount: float, k: int, log_density: Callable, draws: Callable) -> Shape:
    """Correlated: `theta = M x`."""
    rng = np.random.default_rng(k)
    mix = np.linalg.qr(rng.standard_normal((k, k)))[0] @ np.diag(np.linspace(0.5, 1.5, k))
    mix = mix @ np.linalg.qr(rng.standard_normal((k, k)))[0]
    back = np.linalg.inv(mix)
    return Shape(kind, amount, k, lambda t: log_density(back @ t), lambda n: draws(n) @ mix.T)


def skewed(shape: float, k: int) -> Shape:
    """Logs of gammas: precisions, with `shape` half the degrees of freedom."""
    scale = 1 / math.sqrt(special.polygamma(1, shape))

    def log_density(x):
        x = x / scale
        return (shape * x - shape * jnp.exp(x)).sum()

    def draws(n):
        return scale * np.log(special.gammaincinv(shape, special.ndtr(n)) / shape)

    return mixed("logs of gammas", shape, k, log_density, draws)


def one_tail(slope: float, k: int) -> Shape:
    """Scales that may be zero: exponential to the left, half-normal to the right, of one of them."""

    def one(x):  # log of a half-normal whose log has slope `slope` to the left
        return slope * x - 0.5 * jnp.exp(2 * x)

    def draws(n):
        u = special.ndtr(n[:, 0])
        first = 0.5 * np.log(2 * special.gammaincinv(slope / 2, u))
        return np.column_stack([first, n[:, 1:]])

    return mixed("one exponential tail", slope, k, lambda x: one(x[0]) - 0.5 * x[1:] @ x[1:], draws)


def bent(bend: float, k: int) -> Shape:
    def log_density(x):
        return -0.5 * x[0] ** 2 - 0.5 * (x[1] - bend * x[0] ** 2) ** 2 - 0.5 * x[2:] @ x[2:]

    def draws(n):
        return np.column_stack([n[:, 0], n[:, 1] + bend * n[:, 0] ** 2, n[:, 2:]])

    return mixed("bananas", bend, k, log_density, draws)


def funnel(spread: float, k: int) -> Shape:
    def log_density(x):
        rest = jnp.exp(-spread * x[0]) * (x[1:] @ x[1:])
        return -0.5 * x[0] ** 2 - 0.5 * rest - 0.5 * (k - 1) * spread * x[0]

    def draws(n):
        return np.column_stack([n[:, 0], np.exp(0.5 * spread * n[:, :1]) * n[:, 1:]])

    return mixed("funnels", spread, k, log_density, draws)


def heavy(freedom: float, k: int) -> Shape:
    def log_density(x):
        return -0.5 * (freedom + 1) * jnp.log1p(x**2 / freedom).sum()

    def draws(n):
        return stats.t(freedom).ppf(special.ndtr(n))

    return mixed("Student's t", freedom, k, log_density, draws)


def shapes(k: int) -> list[Shape]:
    made = [skewed(a, k) for a in (50.0, 20.0, 10.0, 5.0, 3.0, 2.0, 1.0, 0.5)]
    made += [one_tail(a, k) for a in (8.0, 4.0, 2.0, 1.0)]
    made += [bent(a, k) for a in (0.1, 0.2, 0.3, 0.5, 0.8)]
    made += [funnel(a, k) for a in (0.2, 0.4, 0.7, 1.0)]
    return made + [heavy(a, k) for a in (40.0, 20.0, 10.0, 6.0)]


@functools.cache
def normals(k: int) -> np.ndarray:
    cube = stats.qmc.Sobol(k, seed=0).random(N_SOBOL)
    return special.ndtri(np.clip(cube, 1e-12, 1 - 1e-12))


def asked(shape: Shape) -> Callable:
    both = jax.jit(jax.value_and_grad(shape.log_density))

    def ask(theta, near):
        del near
        value, slope = both(theta)
        return Place(theta, float(value), np.asarray(slope), None)

    return ask


def surface(found: Explored) -> Surface:
    names = tuple(f"t{j}" for j in range(found.z.shape[1]))
    frame = found.frame
    at = (names, frame.centre, frame.basis, frame.scales, found.z, found.values, found.slopes)
    return Surface(*at, step=found.step or 0.0)


def largest_error(shape: Shape, found: Explored) -> float:
    truth = shape.draws(normals(shape.k))
    made = surface(found)
    errors = [
        np.abs(made.marginal(j).quantiles(PROBS) - np.quantile(one, PROBS)).max() / one.std()
        for j, one in enumerate(truth.T)
    ]
    return float(max(errors))


if __name__ == "__main__":
    for k in map(int, sys.argv[1:]):
        for shape in shapes(k):
            out = []
            for rough in (0.0, math.inf):
                _explore.ROUGH = rough
                found = explored(asked(shape), np.zeros(k))
                out.append((round(found.ratio, 2), round(found.uneven, 3), len(found.places), found.n_asked, found.open_axes, round(largest_error(shape, found), 3)))
            print(shape.kind, shape.amount, *out, flush=True)
