"""Trust-region Newton by conjugate gradients (Steihaug 1983): no Hessian is formed.

For dimensions in which a dense Hessian at every step would dominate. It brings the search near
the minimum; `newton` finishes it.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


class _Outer(eqx.Module):
    point: Float[Array, " n"]
    value: Float[Array, ""]
    gradient: Float[Array, " n"]
    radius: Float[Array, ""]
    decrement: Float[Array, ""]
    n_steps: Int[Array, ""]
    n_rejected: Int[Array, ""]


class _Inner(eqx.Module):
    step: Float[Array, " n"]
    residual: Float[Array, " n"]
    direction: Float[Array, " n"]
    product: Float[Array, " n"]
    k: Int[Array, ""]
    on_boundary: Bool[Array, ""]


def newton_cg(
    value_and_grad: Callable[[Array], tuple[Array, Array]],
    hessian_product: Callable[[Array, Array], Array],
    start: Float[Array, " n"],
    tol: float,
    max_steps: int,
) -> tuple[Float[Array, " n"], Int[Array, ""]]:
    """The best point found and the number of steps; stops when the decrement of an interior step
    is below `tol`."""
    value, gradient = value_and_grad(start)
    init = _Outer(
        point=start,
        value=value,
        gradient=gradient,
        radius=1.0 + jnp.sqrt(start @ start),
        decrement=jnp.full_like(value, jnp.inf),
        n_steps=jnp.array(0),
        n_rejected=jnp.array(0),
    )

    def body(state: _Outer) -> _Outer:
        inner = _steihaug(lambda v: hessian_product(state.point, v), state.gradient, state.radius)
        curvature = inner.product @ inner.step
        predicted = -(state.gradient @ inner.step) - 0.5 * curvature
        point = state.point + inner.step
        value, gradient = value_and_grad(point)
        finite = jnp.isfinite(value) & jnp.isfinite(gradient).all()
        noise = 8 * jnp.finfo(value.dtype).eps * jnp.abs(state.value)
        ratio = jnp.where(finite, (state.value - value + noise) / (predicted + noise), -jnp.inf)
        accept = ratio > 1e-4
        length = jnp.sqrt(inner.step @ inner.step)
        radius = jnp.where(
            ratio < 0.25,
            0.25 * length,
            jnp.where((ratio > 0.75) & inner.on_boundary, 2 * state.radius, state.radius),
        )
        decrement = jnp.sqrt(jnp.maximum(-state.gradient @ inner.step, 0.0))
        return _Outer(
            point=jnp.where(accept, point, state.point),
            value=jnp.where(accept, value, state.value),
            gradient=jnp.where(accept, gradient, state.gradient),
            radius=radius,
            decrement=jnp.where(inner.on_boundary, jnp.inf, decrement),
            n_steps=state.n_steps + 1,
            n_rejected=jnp.where(accept, 0, state.n_rejected + 1),
        )

    def unfinished(state: _Outer) -> Bool[Array, ""]:
        return (state.decrement > tol) & (state.n_steps < max_steps) & (state.n_rejected < 20)

    final = lax.while_loop(unfinished, body, init)
    return final.point, final.n_steps


def _steihaug(
    product: Callable[[Array], Array], gradient: Float[Array, " n"], radius: Float[Array, ""]
) -> _Inner:
    """Minimises `g^T p + p^T H p / 2` over `|p| <= radius`, the more precisely the smaller |g|."""
    size = jnp.sqrt(gradient @ gradient)
    target = jnp.minimum(0.1, jnp.sqrt(size)) * size
    zero = jnp.zeros_like(gradient)
    init = _Inner(zero, gradient, -gradient, zero, jnp.array(0), jnp.array(False))

    def body(state: _Inner) -> _Inner:
        along = product(state.direction)
        curvature = state.direction @ along
        square = state.residual @ state.residual
        alpha = square / jnp.where(curvature > 0, curvature, 1.0)
        trial = state.step + alpha * state.direction
        leaves = (curvature <= 0) | (trial @ trial >= radius**2)
        to_edge = _to_boundary(state.step, state.direction, radius)
        length = jnp.where(leaves, to_edge, alpha)
        residual = state.residual + length * along
        beta = residual @ residual / square
        return _Inner(
            step=state.step + length * state.direction,
            residual=residual,
            direction=-residual + beta * state.direction,
            product=state.product + length * along,
            k=state.k + 1,
            on_boundary=leaves,
        )

    def unfinished(state: _Inner) -> Bool[Array, ""]:
        small = jnp.sqrt(state.residual @ state.residual) <= target
        return ~state.on_boundary & ~small & (state.k < 10 * gradient.size)

    return lax.while_loop(unfinished, body, init)


def _to_boundary(step: Array, direction: Array, radius: Array) -> Float[Array, ""]:
    """The positive root of `|step + t direction| = radius`."""
    a, b, c = direction @ direction, step @ direction, step @ step - radius**2
    return (-b + jnp.sqrt(jnp.maximum(b**2 - a * c, 0.0))) / jnp.where(a > 0, a, 1.0)
