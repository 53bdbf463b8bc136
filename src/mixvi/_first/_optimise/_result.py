"""What every minimiser returns, and the one test of convergence that they share."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Minimum(eqx.Module):
    """The best point seen and how the search ended (`code` is an `_errors.Code`)."""

    point: Float[Array, " n"]
    value: Float[Array, ""]
    gradient: Float[Array, " n"]
    n_passes: Int[Array, ""]
    n_products: Int[Array, ""]
    code: Int[Array, ""]


def resolution(value: Float[Array, ""], tol: float | Float[Array, ""]) -> Float[Array, ""]:
    """The smallest gradient that values can still tell from zero: a step of length |g| along -g
    changes the value by |g|^2/2, which drowns in rounding below eps |value|."""
    eps = jnp.finfo(value.dtype).eps
    return jnp.maximum(tol, jnp.sqrt(4 * eps * jnp.abs(value)))


def settled(
    value: Float[Array, ""],
    gradient: Float[Array, " n"],
    step: Float[Array, " n"],
    tol: float | Float[Array, ""],
) -> Bool[Array, ""]:
    """Gradient and proposed step both below `tol` in the units of the coordinates."""
    smallest = resolution(value, tol)
    return (jnp.abs(gradient).max() <= smallest) & (jnp.abs(step).max() <= smallest)
