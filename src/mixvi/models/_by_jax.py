"""Derivatives of functions that a user has written with `jax.numpy`: small elementwise kernels.

A likelihood of one predictor is a function of two numbers and its hyperparameters, one of several a
function of a number and a vector. Nothing else is compiled: no design, no search.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._density._captured import as_new
from .._density._target import precision_scope

FLOAT64 = np.dtype(np.float64)


def evaluated(function: Callable, *arguments: Any) -> Any:
    """In float64, as NumPy arrays."""
    with precision_scope(FLOAT64):
        arguments = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), as_new(arguments))
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), function(*arguments))


def in_double(function: Callable) -> Callable:
    """Inside it a user's `jax.numpy` works in float64, whatever the JAX flag says."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        with precision_scope(FLOAT64):
            return function(*arguments, **options)

    return call


def derivatives(likelihood: Any, y: Any, eta: Any, hyper: Any, order: int) -> list[np.ndarray]:
    """Of `log_prob` in `eta`, elementwise: of order 0 to `order`."""
    return list(evaluated(_in_eta(likelihood, order), y, eta, hyper))


def hyper_slopes(
    likelihood: Any, y: Any, eta: Any, hyper: Any, order: int
) -> dict[str, list[np.ndarray]]:
    """Of the same in each hyperparameter of the likelihood's own."""
    if not likelihood.start():
        return {}
    own = {name: hyper[name] for name in likelihood.start()}
    found = evaluated(_in_hyper(likelihood, order), y, eta, own)
    return {name: [one[name] for one in found] for name in own}


@functools.lru_cache(maxsize=64)
def _in_eta(likelihood: Any, order: int) -> Callable:
    return jax.jit(_elementwise(_chain(likelihood, order)))


@functools.lru_cache(maxsize=64)
def _in_hyper(likelihood: Any, order: int) -> Callable:
    chain = _chain(likelihood, order)
    return jax.jit(_elementwise(jax.jacfwd(chain, argnums=2)))


def _chain(likelihood: Any, order: int) -> Callable:
    """`(l, l', l'', ...)` of one observation."""
    functions = [lambda y, eta, hyper: likelihood.log_prob(y, eta, hyper)]
    for _ in range(order):
        functions.append(jax.grad(functions[-1], argnums=1))
    return lambda y, eta, hyper: [one(y, eta, hyper) for one in functions]


def _elementwise(function: Callable) -> Callable:
    def call(y: Any, eta: Any, hyper: Any) -> Any:
        y, eta = jnp.broadcast_arrays(y, eta)
        found = jax.vmap(function, (0, 0, None))(y.ravel(), eta.ravel(), hyper)
        return jax.tree.map(lambda leaf: leaf.reshape(eta.shape), found)

    return call


# --- several predictors: eta is (n, K, points) ------------------------------------------------


def several(likelihood: Any, y: Any, eta: Any, hyper: Any) -> tuple[np.ndarray, np.ndarray]:
    """Values (n, points) and gradients (n, K, points)."""
    return evaluated(_several(likelihood, "gradient"), y, eta, hyper)


def several_hessians(likelihood: Any, y: Any, eta: Any, hyper: Any) -> np.ndarray:
    """(n, K, K) at `eta` (n, K)."""
    return evaluated(_several(likelihood, "hessian"), y, eta, hyper)


def several_thirds(likelihood: Any, y: Any, eta: Any, hyper: Any, matrix: Any) -> np.ndarray:
    """`sum_ij d^3 l / d eta_i d eta_j d eta_k  S_ij`, (n, K)."""
    return evaluated(_several(likelihood, "third"), y, eta, hyper, matrix)


@functools.lru_cache(maxsize=64)
def _several(likelihood: Any, what: str) -> Callable:
    def one(eta: Any, y: Any, hyper: Any) -> Any:
        return likelihood.log_prob(y, eta, hyper)

    if what == "gradient":
        over_points = jax.vmap(jax.value_and_grad(one), (1, None, None), (0, 1))
        over_rows = jax.vmap(over_points, (0, 0, None))
        return jax.jit(lambda y, eta, hyper: over_rows(eta, y, hyper))
    if what == "hessian":
        hessian = jax.vmap(jax.hessian(one), (0, 0, None))
        return jax.jit(lambda y, eta, hyper: hessian(eta, y, hyper))

    def curved(eta: Any, y: Any, hyper: Any, matrix: Any) -> Any:
        return (jax.hessian(one)(eta, y, hyper) * matrix).sum()

    third = jax.vmap(jax.grad(curved), (0, 0, None, 0))
    return jax.jit(lambda y, eta, hyper, matrix: third(eta, y, hyper, matrix))
