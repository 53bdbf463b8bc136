"""The log likelihood at many points on an accelerator: the same functions over `jax.numpy`.

Bases and likelihoods are written for arrays of any namespace. Given JAX's they are compiled once
for a shape of table, whatever the data, and rows stay on the device; points go there and values and
gradients come back. The prior, the searches and all else stay with NumPy.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._density._captured import as_new
from .._density._target import precision_scope
from .._errors import InputError
from ._basis import Basis
from ._by_jax import FLOAT64
from ._likelihoods import Hyper, Likelihood

# Predictors at a time: an array of them takes 512 MiB.
MOST_PREDICTORS = 2**26


class Accelerated:
    """Answers for one density, at any of its hyperparameters, what the rows say at points."""

    def __init__(self, density: Any):
        basis, likelihood = density.basis, density.likelihood
        if density.offset is not None or basis.has_amplitude:
            what = "a Gaussian process" if basis.has_amplitude else "a density with an offset"
            raise InputError(f"on_accelerator: {what} stays with NumPy.")
        self.program = _program(basis, likelihood, density.n_weights)
        at_once = MOST_PREDICTORS // (density.n_rows * density.n_predictors)
        self.points_at_once = max(1, at_once)
        with precision_scope(FLOAT64):
            table = (density.rows, density.shared, density.y, density.weight)
            self.table = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)), as_new(table))

    def __call__(self, points: np.ndarray, hyper: Hyper) -> tuple[np.ndarray, np.ndarray, Hyper]:
        """Values and gradients at every point, and the summed slopes in the hyperparameters."""
        found = []
        with precision_scope(FLOAT64):
            for first in range(0, len(points), self.points_at_once):
                some = points[first : first + self.points_at_once]
                found.append(jax.device_get(self.program(some, hyper, self.table)))
        values, gradients, slopes = zip(*found, strict=True)
        summed = {name: sum(one[name] for one in slopes) for name in slopes[0]}
        return np.concatenate(values), np.concatenate(gradients), summed


@functools.lru_cache(maxsize=64)
def _program(basis: Basis, likelihood: Likelihood, n_weights: int) -> Any:
    def of_rows(points: Any, hyper: Any, table: Any) -> tuple[Any, Any]:
        rows, shared, y, weight = table
        phi = basis.design(rows, shared, hyper)
        w = points.reshape(len(points), -1, n_weights)
        eta = jnp.einsum("nm,skm->nsk", phi, w)
        eta = eta[..., 0] if likelihood.n_outputs == 1 else eta
        values = weight @ likelihood.log_prob(
            jnp.broadcast_to(y[:, None], eta.shape[:2]), eta, hyper
        )
        return values.sum(), values

    def answers(points: Any, hyper: Any, table: Any) -> tuple[Any, Any, Any]:
        slopes, values = jax.grad(of_rows, argnums=(0, 1), has_aux=True)(points, hyper, table)
        return values, *slopes

    return jax.jit(answers)
