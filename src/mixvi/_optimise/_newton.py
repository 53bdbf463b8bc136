"""Damped Newton with dense Hessians, in coordinates scaled by their own curvature.

With `s = sqrt|diag H|` the step solves `(H^ + lam I) (s p) = -g / s`, `H^ = H / (s s^T)`:
Levenberg and Marquardt's damping, which is blind to the units of each coordinate. `lam = 0`
is tried first, so that a well-behaved problem costs what plain Newton costs.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._errors import Code

# The quadratic model's promise is kept well enough to accept / to trust more / to trust less.
ACCEPT, GOOD, POOR = 1e-4, 0.75, 0.25
LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e14
RUNNING = -1
MAX_ESCAPES = 5


class NewtonResult(eqx.Module):
    point: Float[Array, " n"]
    value: Float[Array, ""]
    gradient: Float[Array, " n"]
    hessian: Float[Array, "n n"]
    n_steps: Int[Array, ""]
    code: Int[Array, ""]


class _State(eqx.Module):
    point: Float[Array, " n"]
    value: Float[Array, ""]
    gradient: Float[Array, " n"]
    hessian: Float[Array, "n n"]
    damping: Float[Array, ""]
    decrement: Float[Array, ""]
    n_steps: Int[Array, ""]
    n_escapes: Int[Array, ""]
    code: Int[Array, ""]


def newton(
    value_and_grad: Callable[[Array], tuple[Array, Array]],
    hessian: Callable[[Array], Array],
    start: Float[Array, " n"],
    tol: float,
    max_steps: int,
) -> NewtonResult:
    """Ends where the Newton decrement `sqrt(g^T H^-1 g)`, the distance to the minimum in units
    of the curvature, is below `tol` and still shrinking as Newton's method makes it shrink."""
    value, gradient = value_and_grad(start)
    finite = jnp.isfinite(value) & jnp.isfinite(gradient).all()
    init = _State(
        point=start,
        value=value,
        gradient=gradient,
        hessian=hessian(start),
        damping=jnp.zeros_like(value),
        decrement=jnp.full_like(value, jnp.inf),
        n_steps=jnp.array(0),
        n_escapes=jnp.array(0),
        code=jnp.where(finite, RUNNING, int(Code.NON_FINITE_START)),
    )

    def body(state: _State) -> _State:
        step, decrement, definite = _damped_step(state)
        arrived = _arrived(state, step, decrement, tol, start)
        # At a saddle or a maximum the gradient vanishes but the curvature has the wrong sign.
        stationary = definite & (state.damping > 0) & (decrement <= tol)

        def done(state: _State) -> _State:
            return eqx.tree_at(lambda s: s.code, state, jnp.full_like(state.code, int(Code.OK)))

        def damp(state: _State) -> _State:
            return _with_damping(state, jnp.maximum(10 * state.damping, LEAST_DAMPING))

        def escape(state: _State) -> _State:
            return _escape(value_and_grad, hessian, state)

        def advance(state: _State) -> _State:
            return _advance(value_and_grad, hessian, state, step, decrement, tol, start)

        case = jnp.where(
            ~definite, 1, jnp.where(arrived & definite, 0, jnp.where(stationary, 2, 3))
        )
        state = lax.switch(case, [done, damp, escape, advance], state)
        return eqx.tree_at(lambda s: s.n_steps, state, state.n_steps + 1)

    def unfinished(state: _State) -> Bool[Array, ""]:
        return (state.code == RUNNING) & (state.n_steps < max_steps)

    final = lax.while_loop(unfinished, body, init)
    return NewtonResult(
        point=final.point,
        value=final.value,
        gradient=final.gradient,
        hessian=final.hessian,
        n_steps=final.n_steps,
        code=jnp.where(final.code == RUNNING, int(Code.RAN_OUT_OF_STEPS), final.code),
    )


def _scales(hessian: Float[Array, "n n"]) -> Float[Array, " n"]:
    diagonal = jnp.abs(jnp.diagonal(hessian))
    floor = jnp.finfo(hessian.dtype).eps * diagonal.max()
    return jnp.sqrt(jnp.where(diagonal > floor, diagonal, jnp.where(floor > 0, floor, 1.0)))


def _damped_step(
    state: _State,
) -> tuple[Float[Array, " n"], Float[Array, ""], Bool[Array, ""]]:
    """The step, its decrement, and whether the damped Hessian is positive definite."""
    scales = _scales(state.hessian)
    scaled = state.hessian / scales / scales[:, None]
    factor = jnp.linalg.cholesky(scaled + state.damping * jnp.eye(scales.size, dtype=scales.dtype))
    definite = jnp.isfinite(factor).all()
    safe = jnp.where(definite, factor, jnp.eye(scales.size, dtype=scales.dtype))
    half = jsl.solve_triangular(safe, state.gradient / scales, lower=True)
    step = -jsl.solve_triangular(safe, half, lower=True, trans="T") / scales
    return step, jnp.sqrt(half @ half), definite


def _arrived(
    state: _State, step: Array, decrement: Array, tol: float, start: Array
) -> Bool[Array, ""]:
    """Close, and by a step that is small in the user's units too or shrinking fast.

    In the tail of `exp(-x)` the decrement goes to zero while every step has length one: there is
    no mode there, so a small decrement alone proves nothing.
    """
    travelled = jnp.maximum(jnp.abs(state.point).max(), jnp.abs(state.point - start).max())
    small = jnp.abs(step).max() <= 1e-6 * travelled
    fast = (decrement <= 0.1 * state.decrement) | (state.n_steps == 0)
    return (state.damping == 0) & (decrement <= tol) & (small | fast)


def _advance(
    value_and_grad: Callable,
    hessian: Callable,
    state: _State,
    step: Array,
    decrement: Array,
    tol: float,
    start: Array,
) -> _State:
    point = state.point + step
    value, gradient = value_and_grad(point)
    # -g^T p - p^T H p / 2 for the damped step
    predicted = -state.gradient @ step - 0.5 * step @ (state.hessian @ step)
    noise = 8 * jnp.finfo(value.dtype).eps * jnp.abs(state.value)
    finite = jnp.isfinite(value) & jnp.isfinite(gradient).all()
    ratio = jnp.where(finite, (state.value - value + noise) / (predicted + noise), -jnp.inf)
    accept = ratio > ACCEPT
    damping = jnp.where(
        ratio < POOR,
        jnp.maximum(4 * state.damping, LEAST_DAMPING),
        jnp.where(ratio > GOOD, state.damping / 10, state.damping),
    )
    damping = jnp.where(damping < LEAST_DAMPING, 0.0, damping)
    small = jnp.abs(step).max() <= 1e-6 * jnp.maximum(
        jnp.abs(point).max(), jnp.abs(point - start).max()
    )
    stuck = damping > MOST_DAMPING
    code = jnp.where(
        stuck, jnp.where((decrement <= tol) & small, int(Code.OK), int(Code.STUCK)), state.code
    )

    def move(_: Any) -> _State:
        return _State(
            point, value, gradient, hessian(point), damping, decrement,
            state.n_steps, state.n_escapes, code,
        )  # fmt: skip

    def stay(_: Any) -> _State:
        return eqx.tree_at(lambda s: (s.damping, s.code), state, (damping, code))

    return lax.cond(accept, move, stay, None)


def _with_damping(state: _State, damping: Array) -> _State:
    code = jnp.where(damping > MOST_DAMPING, int(Code.STUCK), state.code)
    return eqx.tree_at(lambda s: (s.damping, s.code), state, (damping, code))


def _escape(value_and_grad: Callable, hessian: Callable, state: _State) -> _State:
    """Along the direction of most negative curvature, both ways, as far as it pays."""
    scales = _scales(state.hessian)
    _, vectors = jnp.linalg.eigh(state.hessian / scales / scales[:, None])
    direction = vectors[:, 0] / scales
    lengths = jnp.array([0.03, 0.1, 0.3, 1.0, 3.0], dtype=scales.dtype)
    candidates = state.point + jnp.concatenate([lengths, -lengths])[:, None] * direction
    values = lax.map(lambda point: value_and_grad(point)[0], candidates)
    values = jnp.where(jnp.isfinite(values), values, jnp.inf)
    best = jnp.argmin(values)
    lower = (values[best] < state.value) & (state.n_escapes < MAX_ESCAPES)

    def move(_: Any) -> _State:
        value, gradient = value_and_grad(candidates[best])
        return _State(
            candidates[best], value, gradient, hessian(candidates[best]),
            jnp.zeros_like(state.damping), jnp.full_like(value, jnp.inf),
            state.n_steps, state.n_escapes + 1, state.code,
        )  # fmt: skip

    def stay(_: Any) -> _State:
        # Stationary, and flat or curved the wrong way: the caller judges the Hessian.
        return eqx.tree_at(lambda s: s.code, state, jnp.full_like(state.code, int(Code.OK)))

    return lax.cond(lower, move, stay, None)
