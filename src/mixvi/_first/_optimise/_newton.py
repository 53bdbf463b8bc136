"""Damped Newton with dense Hessians, in coordinates scaled by their own curvature.

The step solves `(H + lam |diag H|) p = -g`: Levenberg and Marquardt's damping, which is blind to
the units of each coordinate. `lam = 0` is tried first, so that a well-behaved problem costs what
plain Newton costs.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..._errors import Code
from ._result import resolution

# The quadratic model's promise is kept well enough to accept / to trust more / to trust less.
ACCEPT, GOOD, POOR = 1e-4, 0.75, 0.25
LEAST_DAMPING = 1e-3
RUNNING = -1
MAX_ESCAPES = 5

SecondOrder = Callable[[Array], tuple[Array, Array, Array]]


class Here(eqx.Module):
    """A point and all that is known of the function there."""

    point: Float[Array, " n"]
    value: Float[Array, ""]
    gradient: Float[Array, " n"]
    hessian: Float[Array, "n n"]

    @property
    def finite(self) -> Bool[Array, ""]:
        return jnp.isfinite(self.value) & jnp.isfinite(self.gradient).all()


class _Step(eqx.Module):
    """`p`, its decrement `sqrt(g^T (H + lam |diag H|)^-1 g)`, and the damping that made it."""

    move: Float[Array, " n"]
    decrement: Float[Array, ""]
    damping: Float[Array, ""]


class _State(eqx.Module):
    here: Here
    step: _Step
    growth: Float[Array, ""]  # of the damping at the next refusal: 4, 8, 16, ... (Nielsen 1999)
    n_steps: Int[Array, ""]
    n_damped: Int[Array, ""]  # steps where the Hessian was indefinite or the model misled
    n_escapes: Int[Array, ""]
    code: Int[Array, ""]


class NewtonResult(eqx.Module):
    here: Here
    n_steps: Int[Array, ""]
    n_damped: Int[Array, ""]
    code: Int[Array, ""]


def newton(
    second_order: SecondOrder,
    start: Float[Array, " n"],
    tol: float,
    max_steps: int,
    patient: bool = True,
) -> NewtonResult:
    """Ends where the Newton decrement `sqrt(g^T H^-1 g)`, the distance to the minimum in units
    of the curvature, is below `tol` and still shrinking as Newton's method makes it shrink.

    `second_order` gives value, gradient and Hessian together: they share most of their work, and
    a trial point is seldom refused. `patient` finds the damping that an indefinite Hessian needs
    and ways out of saddles; without it the first is felt for and the second is `Code.STUCK`.
    """
    here = Here(start, *second_order(start))
    step = _step_from(here, jnp.zeros_like(here.value), patient)
    still = (jnp.abs(step.move).max() >= 0) & (step.decrement <= tol) & (step.damping == 0)
    code = jnp.where(still, int(Code.OK), RUNNING)
    code = jnp.where(here.finite, code, int(Code.NON_FINITE_START))
    none, growth = jnp.array(0), jnp.full_like(here.value, 4.0)
    init = _State(here, step, growth, none, none, none, code)

    def body(state: _State) -> _State:
        state = _advance(second_order, state, tol, start, patient)
        # At a saddle or a maximum the gradient vanishes but the curvature has the wrong sign.
        stationary = (
            (state.code == RUNNING) & (state.step.damping > 0) & (state.step.decrement <= tol)
        )
        if not patient:
            code = jnp.where(stationary, int(Code.STUCK), state.code)
            return eqx.tree_at(lambda s: s.code, state, code)
        return lax.cond(stationary, lambda s: _escape(second_order, s), lambda s: s, state)

    def unfinished(state: _State) -> Bool[Array, ""]:
        return (state.code == RUNNING) & (state.n_steps < max_steps)

    final = lax.while_loop(unfinished, body, init)
    code = jnp.where(final.code == RUNNING, int(Code.RAN_OUT_OF_STEPS), final.code)
    return NewtonResult(final.here, final.n_steps, final.n_damped, code)


def _squared_scales(hessian: Float[Array, "n n"]) -> Float[Array, " n"]:
    """`|diag H|`, kept away from zero."""
    diagonal = jnp.abs(jnp.diagonal(hessian))
    floor = jnp.finfo(hessian.dtype).eps * diagonal.max()
    return jnp.maximum(diagonal, jnp.where(floor > 0, floor, 1.0))


def _step_from(here: Here, damping: Float[Array, ""], patient: bool = True) -> _Step:
    """The damped step; where the Hessian is not positive definite, damped until it is."""
    step = _damped(here, damping)
    if not patient:
        return step

    def damp_more() -> _Step:
        scales = jnp.sqrt(_squared_scales(here.hessian))
        lowest = jnp.linalg.eigvalsh(here.hessian / scales / scales[:, None])[0]
        return _damped(here, jnp.maximum(damping, LEAST_DAMPING - 1.5 * jnp.minimum(lowest, 0.0)))

    return lax.cond(jnp.isfinite(step.decrement) | ~here.finite, lambda: step, damp_more)


def _damped(here: Here, damping: Float[Array, ""]) -> _Step:
    added = jnp.diag(damping * _squared_scales(here.hessian))
    factor = jnp.linalg.cholesky(here.hessian + added, symmetrize_input=False)
    half = jsl.solve_triangular(factor, here.gradient, lower=True)
    move = -jsl.solve_triangular(factor, half, lower=True, trans="T")
    return _Step(move, jnp.sqrt(half @ half), damping)


def _advance(
    second_order: SecondOrder, state: _State, tol: float, start: Array, patient: bool
) -> _State:
    old, step = state.here, state.step
    point = old.point + step.move
    new = Here(point, *second_order(point))
    # What the quadratic model promises: -g^T p - p^T H p / 2 for the damped step.
    damped = step.damping * (_squared_scales(old.hessian) * step.move**2).sum()
    predicted = 0.5 * (step.decrement**2 + damped)
    noise = 8 * jnp.finfo(old.value.dtype).eps * jnp.abs(old.value)
    ratio = (old.value - new.value + noise) / (predicted + noise)
    # A step that is not a number (no positive definite factor) is refused like any bad step.
    ratio = jnp.where(new.finite & jnp.isfinite(predicted), ratio, -jnp.inf)
    accept = ratio > ACCEPT
    here = jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old)
    damping = jnp.where(
        ratio < POOR,
        jnp.maximum(state.growth * step.damping, LEAST_DAMPING),
        jnp.where(ratio > GOOD, step.damping / 10, step.damping),
    )
    growth = jnp.where(accept, 4.0, jnp.minimum(2 * state.growth, 1e4))
    following = _step_from(here, jnp.where(damping < LEAST_DAMPING, 0.0, damping), patient)
    arrived = _arrived(here, following, step.decrement, tol, start)
    # In a flat tail the damping must outgrow a curvature of nearly zero by any factor: the search
    # is stuck only when its steps no longer move the point.
    unmoved = (here.point + following.move == here.point).all()
    stuck = unmoved & (following.damping > 0) & (following.decrement > tol)
    code = jnp.where(arrived, int(Code.OK), jnp.where(stuck, int(Code.STUCK), state.code))
    n_damped = state.n_damped + (step.damping > 0)
    return _State(here, following, growth, state.n_steps + 1, n_damped, state.n_escapes, code)


def _arrived(
    here: Here, step: _Step, last_decrement: Array, tol: float, start: Array
) -> Bool[Array, ""]:
    """Close, and by a step that is small in the user's units too or shrinking fast.

    In the tail of `exp(-x)` the decrement goes to zero while every step has length one: there is
    no mode there, so a small decrement alone proves nothing.
    """
    travelled = jnp.maximum(jnp.abs(here.point).max(), jnp.abs(here.point - start).max())
    small = jnp.abs(step.move).max() <= max(1e-6, 10 * jnp.finfo(start.dtype).eps) * travelled
    fast = step.decrement <= 0.1 * last_decrement
    close = (step.decrement <= tol) & (small | fast)
    # As close as rounding allows: values cannot tell a smaller step from none.
    worn = (step.decrement <= resolution(here.value, tol)) & small & ~fast
    return (step.damping == 0) & (close | worn)


def _escape(second_order: SecondOrder, state: _State) -> _State:
    """Along the direction of most negative curvature, both ways, as far as it pays."""
    here = state.here
    scales = jnp.sqrt(_squared_scales(here.hessian))
    _, vectors = jnp.linalg.eigh(here.hessian / scales / scales[:, None])
    direction = vectors[:, 0] / scales
    lengths = jnp.array([0.03, 0.1, 0.3, 1.0, 3.0], dtype=scales.dtype)
    candidates = here.point + jnp.concatenate([lengths, -lengths])[:, None] * direction
    values = lax.map(lambda point: second_order(point)[0], candidates)
    values = jnp.where(jnp.isfinite(values), values, jnp.inf)
    best = jnp.argmin(values)
    lower = (values[best] < here.value) & (state.n_escapes < MAX_ESCAPES)

    def move() -> _State:
        there = Here(candidates[best], *second_order(candidates[best]))
        step = _step_from(there, jnp.zeros_like(there.value))
        n_escapes = state.n_escapes + 1
        return _State(
            there, step, state.growth, state.n_steps, state.n_damped, n_escapes, state.code
        )

    def stay() -> _State:
        # Stationary, and flat or curved the wrong way: the caller judges the Hessian.
        return eqx.tree_at(lambda s: s.code, state, jnp.full_like(state.code, int(Code.OK)))

    return lax.cond(lower, move, stay)
