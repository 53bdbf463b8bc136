"""Quasi-Newton by optimistix, driven by our own loop: our test decides when it has converged."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..._errors import Code
from ._result import Minimum, settled

# The coordinates are posterior standard deviations, so a longer step leaves what the quadratic
# model can know about.
LONGEST_STEP = 2.0
SHORTEST_BACKTRACK = 1e-7
MAX_RESTARTS = 3
NONE_TOO = {"is_leaf": lambda leaf: leaf is None}


class _CappedNewtonDescent(optx.AbstractDescent):
    """optimistix's Newton step, no coordinate of it longer than `longest_step`."""

    longest_step: float
    newton: optx.NewtonDescent = optx.NewtonDescent(linear_solver=lx.Cholesky())

    def init(self, y: Any, f_info_struct: Any) -> Any:
        return self.newton.init(y, f_info_struct)

    def query(self, y: Any, f_info: Any, state: Any) -> Any:
        return self.newton.query(y, f_info, state)

    def step(self, step_size: Any, state: Any) -> Any:
        full, result = self.newton.step(jnp.ones_like(step_size), state)
        longest = jnp.abs(full).max()
        cap = jnp.where(longest > self.longest_step, self.longest_step / longest, 1.0)
        return step_size * cap * full, result


class _BFGS(optx.AbstractBFGS):
    descent: Any
    rtol: float = 0.0
    atol: float = 0.0
    norm: Callable = optx.max_norm
    use_inverse: bool = True
    search: Any = optx.BacktrackingArmijo(slope=1e-4)
    verbose: Callable = lambda **_: None


class _LBFGS(optx.AbstractLBFGS):
    descent: Any
    rtol: float = 0.0
    atol: float = 0.0
    norm: Callable = optx.max_norm
    use_inverse: bool = True
    search: Any = optx.BacktrackingArmijo(slope=1e-4)
    history_length: int = 20
    verbose: Callable = lambda **_: None


def bfgs(
    value_and_grad: Callable,
    start: Float[Array, " n"],
    tol: float | Float[Array, ""],
    max_steps: int | Int[Array, ""],
    longest_step: float = LONGEST_STEP,
) -> Minimum:
    solver = _BFGS(descent=_CappedNewtonDescent(longest_step))
    return _minimise(solver, _plain(value_and_grad), start, None, tol, max_steps)[0]


def bfgs_carrying(
    evaluate: Callable,
    start: Float[Array, " n"],
    carried: PyTree,
    tol: float | Float[Array, ""],
    max_steps: int | Int[Array, ""],
    longest_step: float = LONGEST_STEP,
) -> tuple[Minimum, PyTree]:
    """For a function whose evaluation at one point helps at the next (an inner search's start).

    `evaluate(point, carried)` gives value, gradient and what the next point gets as `carried`.
    """
    solver = _BFGS(descent=_CappedNewtonDescent(longest_step))
    return _minimise(solver, evaluate, start, carried, tol, max_steps)


def lbfgs(
    value_and_grad: Callable,
    start: Float[Array, " n"],
    tol: float | Float[Array, ""],
    max_steps: int | Int[Array, ""],
    longest_step: float = LONGEST_STEP,
) -> Minimum:
    solver = _LBFGS(descent=_CappedNewtonDescent(longest_step))
    return _minimise(solver, _plain(value_and_grad), start, None, tol, max_steps)[0]


def _plain(value_and_grad: Callable) -> Callable:
    return lambda point, _: (*value_and_grad(point), None)


def with_cheap_gradient(evaluate: Callable) -> Callable:
    """A function whose derivative is the gradient computed beside its value.

    optimistix linearises the function it is given; differentiating through the loop over chunks of
    draws would keep every chunk's intermediate values. The gradient is the only residual here.
    """

    @jax.custom_vjp
    def function(point: Array, carried: PyTree) -> tuple[Array, PyTree]:
        value, _, after = evaluate(point, carried)
        return value, after

    def forward(point: Array, carried: PyTree) -> tuple[tuple[Array, PyTree], tuple]:
        value, gradient, after = evaluate(point, carried)
        return (value, after), (gradient, jax.tree.map(jnp.zeros_like, carried))

    def backward(residual: tuple, cotangent: tuple) -> tuple[Array, PyTree]:
        gradient, nothing = residual
        return cotangent[0] * gradient, nothing

    function.defvjp(forward, backward)
    return function


class _Carry(eqx.Module):
    point: Float[Array, " n"]
    value: Float[Array, ""]
    gradient: Float[Array, " n"]
    step: Float[Array, " n"]
    solver: Any
    n_passes: Int[Array, ""]
    n_restarts: Int[Array, ""]


def _minimise(
    solver: Any,
    evaluate: Callable,
    start: Array,
    carried: PyTree,
    tol: float | Float[Array, ""],
    max_steps: int | Int[Array, ""],
) -> tuple[Minimum, PyTree]:
    function = with_cheap_gradient(evaluate)
    struct = jax.ShapeDtypeStruct((), start.dtype)
    aux = jax.eval_shape(lambda: carried)
    begin = solver.init(function, start, carried, {}, struct, aux, frozenset())
    begin = eqx.tree_at(lambda s: s.aux, begin, carried, **NONE_TOO)
    fresh, static = eqx.partition(begin, eqx.is_array)

    def advance(carry: _Carry) -> _Carry:
        state = eqx.combine(carry.solver, static)
        point, state, _ = solver.step(function, carry.point, state.aux, {}, state, frozenset())
        dynamic, _ = eqx.partition(state, eqx.is_array)
        # A search that has backtracked to nothing starts again along the gradient.
        lost = state.search_state.step_size < SHORTEST_BACKTRACK
        anew = eqx.tree_at(lambda s: (s.y_eval, s.aux), fresh, (point, dynamic.aux), **NONE_TOO)
        return _Carry(
            point=point,
            value=state.f_info.f,
            gradient=state.f_info.grad,
            step=state.y_eval - point,
            solver=jax.tree.map(lambda new, old: jnp.where(lost, new, old), anew, dynamic),
            n_passes=carry.n_passes + 1,
            n_restarts=carry.n_restarts + lost,
        )

    def converged(carry: _Carry) -> Bool[Array, ""]:
        return settled(carry.value, carry.gradient, carry.step, tol)

    def unfinished(carry: _Carry) -> Bool[Array, ""]:
        lost = carry.n_restarts > MAX_RESTARTS
        hopeless = lost | ~jnp.isfinite(carry.value)
        return ~converged(carry) & ~hopeless & (carry.n_passes < max_steps)

    # The solver's first step only evaluates the start.
    none = jnp.full_like(start, jnp.inf)
    init = _Carry(start, jnp.zeros_like(start[0]), none, none, fresh, jnp.array(0), jnp.array(0))
    final = lax.while_loop(unfinished, advance, init)
    code = jnp.where(
        converged(final),
        int(Code.OK),
        jnp.where(final.n_passes >= max_steps, int(Code.BOUND_OUT_OF_STEPS), int(Code.BOUND_STUCK)),
    )
    code = jnp.where(jnp.isfinite(final.value), code, int(Code.NON_FINITE_DRAWS))
    n_products = jnp.zeros_like(final.n_passes)
    found = Minimum(final.point, final.value, final.gradient, final.n_passes, n_products, code)
    return found, final.solver.aux
