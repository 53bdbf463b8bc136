"""The precision of a prior that the user has declared apart, by `Additive`: its diagonal."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ._additive import Additive
from ._target import Target, precision_scope

# What rounding may make of a diagonal.
AGREES = 1e-8

Vector = Float[np.ndarray, " dim"]


def declared_precision(target: Target, point: Vector) -> Vector | None:
    """The diagonal of `-d^2 log prior` at a point; None where no prior is declared, or one that is
    not diagonal or not log-concave there."""
    model, unravel = target.callable, target.structure.unravel
    if not isinstance(model, Additive) or target.hyper_structure is not None:
        return None

    def log_prior(flat: Any) -> Any:
        return jnp.asarray(model.log_prior(unravel(flat)))

    signs = np.where(np.arange(len(point)) % 3 == 1, -1.0, 1.0)
    signs[::7] *= -1
    with precision_scope(np.dtype(np.float64)):

        @jax.jit
        def bent(at: Any, vectors: Any) -> Any:
            return jax.vmap(jax.linearize(jax.grad(log_prior), at)[1])(vectors)

        try:
            found = -np.asarray(bent(point, np.stack([np.ones_like(signs), signs])))
        except Exception:  # what is wrong with it is said where it is needed
            return None
    diagonal, turned = found
    size = np.abs(diagonal).max(initial=0.0)
    is_diagonal = np.abs(turned - signs * diagonal).max(initial=0.0) <= AGREES * size
    if not (is_diagonal and np.isfinite(diagonal).all() and (diagonal > 0).all()):
        return None
    return np.array(diagonal)
