"""The peers of `peers.py`, each used as its authors advise, on one log density.

`TOOLS[name](problem)` imports, sets up, and gives two functions: the fit, which is timed, and what
turns its result into a `Gaussian`, `Draws` or a `Flow`, which is not. Everyone gets the same JAX
function of a flat vector, in float64, and the start that the posterior comes with; where a library
starts at zero whatever it is told, the function is shifted. The peers are in `peer_jax.py` and
`peer_others.py`. Rates and numbers of steps are those of
the libraries' own pages, or their defaults; Adam's rate falls by the factor 100 on the way, as
Pyro's tutorial (SVI part IV) advises, which helps wherever it was tried.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

STEPS, RATE, FALL = 10_000, 0.02, 0.01


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """`root` is None where the peer found none."""

    mean: np.ndarray
    root: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class Draws:
    """Judged by the Gaussian with their mean and covariance; not at all where they are `exact`."""

    points: np.ndarray
    exact: bool = False


@dataclasses.dataclass(frozen=True)
class Flow:
    """Fresh draws of a density that is no Gaussian, and its log there."""

    points: np.ndarray
    log_q: np.ndarray


Fit = tuple[Callable[[], Any], Callable[[Any], Gaussian | Draws | Flow]]
TOOLS: dict[str, Callable[[Any], Fit]] = {}


def tool(name: str) -> Callable:
    def named(make: Callable) -> Callable:
        TOOLS[name] = make
        return make

    return named


def flat(problem: Any) -> tuple[Callable, np.ndarray]:
    """The log density of a flat vector, and the start."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    start, unravel = ravel_pytree(jax.tree.map(lambda x: jnp.asarray(x, float), problem.init))
    data = jax.tree.map(jnp.asarray, problem.data)
    return lambda w: problem.log_density(unravel(w), data), np.asarray(start)


def gaussian(mean: Any, cov: Any) -> Gaussian:
    """Of a covariance; None where it is not positive definite."""
    mean, cov = np.asarray(mean, float), np.asarray(cov, float)
    try:
        return Gaussian(mean, np.linalg.cholesky(cov))
    except np.linalg.LinAlgError:
        return Gaussian(mean, None)


# --- ourselves, and the yardstick ---------------------------------------------------------------


@tool("SciPy Laplace")
def scipy_laplace(problem: Any) -> Fit:
    import scipy.linalg
    import scipy.optimize  # noqa: F401

    from first_call import laplace_by_scipy

    def judged(found):
        _, mean, cov = found
        return Gaussian(mean, None) if cov is None else gaussian(mean, cov)

    arguments = problem.log_density, problem.init, problem.data
    # Set up at every first call, as in `first_call.py`: the programs are made there.
    made: list = []

    def fit():
        made or made.append(laplace_by_scipy(*arguments))
        return made[0]()

    return fit, judged


def by_mixvi(call: str) -> Callable[[Any], Fit]:
    def make(problem: Any) -> Fit:
        import mixvi

        def judged(post):
            return Gaussian(post.flat_mean, post.root)

        arguments = problem.log_density, problem.init, problem.data
        return lambda: getattr(mixvi, call)(*arguments, throw=False), judged

    return make


tool("mixvi laplace")(by_mixvi("laplace"))
tool("mixvi fit")(by_mixvi("fit"))
