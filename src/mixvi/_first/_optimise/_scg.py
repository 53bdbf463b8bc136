"""Scaled conjugate gradients (Moller 1993), the paper's optimiser, with exact curvature products.

Moller estimates `H p` by a difference of gradients; here it is exact, by automatic
differentiation. The rest is his algorithm, with his names in the comments.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..._errors import Code
from ._result import Minimum, settled


class _State(eqx.Module):
    point: Float[Array, " n"]
    value: Float[Array, ""]
    gradient: Float[Array, " n"]
    direction: Float[Array, " n"]  # p
    product: Float[Array, " n"]  # s = H p
    damping: Float[Array, ""]  # lambda
    accepted: Bool[Array, ""]
    since_restart: Int[Array, ""]
    n_passes: Int[Array, ""]
    n_products: Int[Array, ""]
    step: Float[Array, " n"]


def scaled_conjugate_gradients(
    value_and_grad: Callable[[Array], tuple[Array, Array]],
    hessian_product: Callable[[Array, Array], Array],
    start: Float[Array, " n"],
    tol: float,
    max_steps: int | Int[Array, ""],
) -> Minimum:
    value, gradient = value_and_grad(start)
    init = _State(
        point=start,
        value=value,
        gradient=gradient,
        direction=-gradient,
        product=jnp.zeros_like(gradient),
        damping=jnp.full_like(value, 1e-6),
        accepted=jnp.array(True),
        since_restart=jnp.array(0),
        n_passes=jnp.array(1),
        n_products=jnp.array(0),
        step=gradient,
    )

    def body(state: _State) -> _State:
        # Step 2, second-order information: only for a new direction.
        product = lax.cond(
            state.accepted,
            lambda: hessian_product(state.point, state.direction),
            lambda: state.product,
        )
        square = state.direction @ state.direction
        # Steps 3 and 4: delta = p^T s + lambda |p|^2, made positive where it is not.
        delta = state.direction @ product + state.damping * square
        raised = 2 * (state.damping - delta / square)
        indefinite = delta <= 0
        damping = jnp.where(indefinite, raised, state.damping)
        delta = jnp.where(indefinite, -delta + state.damping * square, delta)
        # Step 5 and 6: step size and comparison parameter Delta.
        slope = -state.gradient @ state.direction  # mu
        step = (slope / delta) * state.direction
        point = state.point + step
        value, gradient = value_and_grad(point)
        finite = jnp.isfinite(value) & jnp.isfinite(gradient).all()
        comparison = jnp.where(finite, 2 * delta * (state.value - value) / slope**2, -jnp.inf)
        accept = comparison >= 0
        # Step 8: lambda by how well the quadratic model held (a guard keeps it from overflowing).
        damping = jnp.where(comparison >= 0.75, damping / 4, damping)
        growth = jnp.where(jnp.isfinite(comparison), delta * (1 - comparison) / square, 3 * damping)
        damping = jnp.where(comparison < 0.25, damping + growth, damping)
        damping = jnp.clip(damping, 1e-15, 1e20)
        # Step 7: a new conjugate direction, restarted every n steps.
        restart = state.since_restart + 1 >= start.size
        beta = (gradient @ gradient - gradient @ state.gradient) / slope
        direction = -gradient + jnp.where(restart, 0.0, beta) * state.direction
        uphill = direction @ gradient >= 0
        direction = jnp.where(uphill, -gradient, direction)
        return _State(
            point=jnp.where(accept, point, state.point),
            value=jnp.where(accept, value, state.value),
            gradient=jnp.where(accept, gradient, state.gradient),
            direction=jnp.where(accept, direction, state.direction),
            product=product,
            damping=damping,
            accepted=accept,
            since_restart=jnp.where(
                accept, jnp.where(restart | uphill, 0, state.since_restart + 1), state.since_restart
            ),
            n_passes=state.n_passes + 1,
            n_products=state.n_products + state.accepted,
            step=jnp.where(accept, step, state.step),
        )

    def converged(state: _State) -> Bool[Array, ""]:
        # A conjugate step says little of the distance left: the gradient stands in for both.
        return settled(state.value, state.gradient, state.gradient, tol)

    def unfinished(state: _State) -> Bool[Array, ""]:
        finite = jnp.isfinite(state.value)
        stuck = state.damping >= 1e20
        return finite & ~converged(state) & ~stuck & (state.n_passes < max_steps)

    final = lax.while_loop(unfinished, body, init)
    code = jnp.where(
        converged(final),
        int(Code.OK),
        jnp.where(final.n_passes >= max_steps, int(Code.BOUND_OUT_OF_STEPS), int(Code.BOUND_STUCK)),
    )
    code = jnp.where(jnp.isfinite(final.value), code, int(Code.NON_FINITE_DRAWS))
    return Minimum(final.point, final.value, final.gradient, final.n_passes, final.n_products, code)
