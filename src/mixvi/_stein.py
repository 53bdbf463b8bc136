"""Room 6. Stein steps: mean and whole covariance at once, from gradients alone.

`mu <- mu + L p`, `L <- L exp(E)`: with `pull` and `bend` of room `_look`, the step
`p = bend^-1 pull`, `E = -(1/2) log bend` is Newton's for a Gaussian target. Steps are cut to a
trusted length, the bound never falls, and what past steps taught about the curvature (limited-
memory BFGS, with that Newton step as its first guess) replaces the slow tail of plain Stein steps.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ._elbo import Expectation, OverNodes, Tilt
from ._errors import Code
from ._look import Look, look
from ._memory import each
from ._optimise import bfgs_carrying, resolution
from ._target import Target

RUNNING = -1
# Of a step: the log factor by which a width may change, and half the way of the mean in sds.
FIRST_REACH, LONGEST_REACH, SHORTEST_REACH = 1.0, 4.0, 1e-9
ACCEPT, POOR, GOOD = 0.01, 0.1, 0.5
PAIRS_KEPT = 10
# A root that has grown by this factor is on its way to infinity.
RAN_OFF = 1e10
# Hyperparameters live on a log scale or one like it.
LONGEST_HYPER_STEP = 1.0


class _Move(eqx.Module):
    """A step of the mean (in standard deviations) and of the symmetric log root."""

    mean: Float[Array, "*kept dim"]
    log_root: Float[Array, "*kept dim dim"]

    def dot(self, other: "_Move") -> Float[Array, ""]:
        return self.mean @ other.mean + (self.log_root * other.log_root).sum()

    def plus(self, factor: Array, other: "_Move") -> "_Move":
        return _Move(self.mean + factor * other.mean, self.log_root + factor * other.log_root)

    def size(self) -> Float[Array, ""]:
        return jnp.maximum(0.5 * jnp.abs(self.mean).max(), jnp.abs(self.log_root).max())


class Past(eqx.Module):
    """The last steps and what they did to the gradient, the newest last; `inverse` is
    `1 / <step, fall>`, zero where there is none."""

    steps: _Move
    falls: _Move
    inverse: Float[Array, " kept"]

    @classmethod
    def of(cls, dim: int, dtype, memory: int) -> "Past":
        """Nothing yet."""
        kept = max(2, min(PAIRS_KEPT, memory // (64 * dim**2)))
        many = _Move(jnp.zeros((kept, dim), dtype), jnp.zeros((kept, dim, dim), dtype))
        return cls(many, many, jnp.zeros(kept, dtype))

    def forget_if(self, lost: Array) -> "Past":
        return Past(self.steps, self.falls, jnp.where(lost, 0.0, self.inverse))

    def learn(self, step: _Move, fall: _Move) -> "Past":
        product = step.dot(fall)
        sound = product > 1e-8 * jnp.sqrt(step.dot(step) * fall.dot(fall))
        longer = Past(
            jax.tree.map(_pushed, self.steps, step),
            jax.tree.map(_pushed, self.falls, fall),
            _pushed(self.inverse, 1 / jnp.where(sound, product, 1.0)),
        )
        return jax.tree.map(lambda new, old: jnp.where(sound, new, old), longer, self)


def _pushed(many: Array, one: Array) -> Array:
    return jnp.concatenate([many[1:], one[None]])


class Steps(eqx.Module):
    """Where the steps ended."""

    mean: Float[Array, " dim"]
    root: Float[Array, "dim dim"]
    look: Look
    past: Past
    n_passes: Int[Array, ""]
    code: Int[Array, ""]


class _State(eqx.Module):
    mean: Float[Array, " dim"]
    root: Float[Array, "dim dim"]
    look: Look
    move: _Move  # the next one to try
    past: Past
    reach: Float[Array, ""]
    n_passes: Int[Array, ""]
    code: Int[Array, ""]


def stein(
    target: Target,
    mean: Float[Array, " dim"],
    root: Float[Array, "dim dim"],
    over: Expectation,
    tol: float | Float[Array, ""],
    max_steps: int | Int[Array, ""],
    memory: int,
    past: Past | None = None,
) -> Steps:
    """From `N(mean, root root^T)` to where `pull` and `I - bend`, and the step that they ask for,
    are below `tol` in posterior standard deviations. `past`: of steps over other draws."""
    dim, dtype = mean.size, mean.dtype
    past = Past.of(dim, dtype, memory) if past is None else past
    widest = RAN_OFF * jnp.abs(root).max()

    def settled(state: _State) -> Array:
        smallest = resolution(state.look.elbo, tol)
        return (state.look.error() <= smallest) & (state.move.size() <= smallest)

    def body(state: _State) -> _State:
        state = _advance(target, over, state)
        code = jnp.where(settled(state), int(Code.OK), state.code)
        lost = (state.reach < SHORTEST_REACH) & (code == RUNNING)
        code = jnp.where(lost, int(Code.BOUND_STUCK), code)
        far = jnp.abs(state.root).max() > widest
        code = jnp.where(far, int(Code.RAN_OFF), code)
        code = jnp.where(state.look.finite, code, int(Code.NON_FINITE_DRAWS))
        return eqx.tree_at(lambda s: s.code, state, code)

    # The first round only looks, so that the target is compiled once.
    nowhere = _Move(jnp.zeros_like(mean), jnp.zeros((dim, dim), dtype))
    unseen = Look(jnp.array(-jnp.inf, dtype), nowhere.mean, jnp.eye(dim, dtype=dtype))
    reach = jnp.array(FIRST_REACH, dtype)
    first = _State(mean, root, unseen, nowhere, past, reach, jnp.array(0), jnp.array(RUNNING))
    final = lax.while_loop(lambda s: (s.code == RUNNING) & (s.n_passes < max_steps), body, first)
    code = jnp.where(final.code == RUNNING, int(Code.BOUND_OUT_OF_STEPS), final.code)
    return Steps(final.mean, final.root, final.look, final.past, final.n_passes, code)


def _advance(target: Target, over: Expectation, state: _State) -> _State:
    """Tries the state's move; takes it where the bound rises as a quadratic would let it."""
    move, factor, longest = _cut(state.move, state.reach)
    rise = 0.5 * move.dot(_gradient(state.look))  # along a parabola whose top is the move's end
    mean, root = state.mean + state.root @ move.mean, state.root @ factor
    there = look(target, mean, root, over)
    noise = 8 * jnp.finfo(mean.dtype).eps * jnp.abs(state.look.elbo)
    ratio = (there.elbo - state.look.elbo + noise) / (rise + noise)
    rises = (there.elbo >= state.look.elbo - noise) & (rise > -noise)
    first = state.n_passes == 0
    accept = (there.finite & rises & (ratio > ACCEPT)) | first
    had_past = (state.past.inverse > 0).any()
    # A refused step is first put down to a misleading past, then to its length.
    shorter = jnp.minimum(state.reach, longest)
    reach = jnp.where(
        accept,
        jnp.where(
            (ratio > GOOD) & ~first,
            jnp.minimum(2 * state.reach, LONGEST_REACH),
            jnp.where((ratio < POOR) & ~first, 0.5 * shorter, state.reach),
        ),
        jnp.where(had_past, state.reach, 0.25 * shorter),
    )
    fall = _gradient(state.look).plus(-jnp.ones_like(rise), _gradient(there))
    learnt = state.past.learn(move, fall)
    past = jax.tree.map(
        lambda new, old: jnp.where(accept & ~first, new, old),
        learnt,
        state.past.forget_if(~accept),
    )
    mean, root, there = jax.tree.map(
        lambda new, old: jnp.where(accept, new, old),
        (mean, root, there),
        (state.mean, state.root, state.look),
    )
    following = _move(there, past, reach)
    return _State(mean, root, there, following, past, reach, state.n_passes + 1, state.code)


def _gradient(seen: Look) -> _Move:
    return _Move(seen.pull, jnp.eye(seen.pull.size, dtype=seen.pull.dtype) - seen.bend)


def _move(seen: Look, past: Past, reach: Array) -> _Move:
    """The quasi-Newton step, or the plain Stein step where nothing is remembered or what is
    remembered points downhill."""
    values, vectors = jnp.linalg.eigh(seen.bend)
    floored = jnp.maximum(values, jnp.exp(-2 * jnp.minimum(reach, 1.0)))

    def newton(q: _Move) -> _Move:
        """With the Gaussian model's curvature: `bend` for the mean, `b_i + b_j` for the root."""
        turned = vectors.T @ q.log_root @ vectors / (floored[:, None] + floored)
        return _Move(vectors @ ((vectors.T @ q.mean) / floored), vectors @ turned @ vectors.T)

    gradient = _gradient(seen)
    # A width along a direction without curvature grows as far as is trusted.
    logs = jnp.where(values > 0, -0.5 * jnp.log(jnp.where(values > 0, values, 1.0)), jnp.inf)
    logs = jnp.clip(logs, -reach, reach)
    plain = _Move(newton(gradient).mean, (vectors * logs) @ vectors.T)

    def down(q: _Move, pair: tuple) -> tuple[_Move, Array]:
        step, fall, inverse = pair
        amount = inverse * step.dot(q)
        return q.plus(-amount, fall), amount

    def up(d: _Move, pair: tuple) -> tuple[_Move, None]:
        step, fall, inverse, amount = pair
        return d.plus(amount - inverse * fall.dot(d), step), None

    pairs = (past.steps, past.falls, past.inverse)
    q, amounts = lax.scan(down, gradient, pairs, reverse=True)
    informed, _ = lax.scan(up, newton(q), (*pairs, amounts))
    use = (past.inverse > 0).any() & (informed.dot(gradient) > 0)
    return jax.tree.map(lambda a, b: jnp.where(use, a, b), informed, plain)


def _cut(move: _Move, reach: Array) -> tuple[_Move, Float[Array, "dim dim"], Float[Array, ""]]:
    """The move within reach, the exponential of its log root, and its size."""
    values, vectors = jnp.linalg.eigh(move.log_root)
    clipped = jnp.clip(values, -reach, reach)
    longest = jnp.abs(move.mean).max()
    mean = move.mean * jnp.where(longest > 2 * reach, 2 * reach / longest, 1.0)
    size = jnp.maximum(jnp.abs(clipped).max(), 0.5 * jnp.abs(mean).max())
    cut = _Move(mean, (vectors * clipped) @ vectors.T)
    return cut, (vectors * jnp.exp(clipped)) @ vectors.T, size


# --- with hyperparameters ---------------------------------------------------------------------


class Tuned(eqx.Module):
    """Where the steps ended with hyperparameters at `tau`."""

    steps: Steps
    tau: Float[Array, " hyper"]
    theta_gradient: Float[Array, " hyper"]  # of the bound
    n_passes: Int[Array, ""]
    code: Int[Array, ""]


class _Carried(eqx.Module):
    """The last Gaussian: the next hyperparameters' search starts there."""

    mean: Float[Array, " dim"]
    root: Float[Array, "dim dim"]
    past: Past
    tau: Float[Array, " hyper"]
    n_passes: Int[Array, ""]


def stein_tuned(
    target: Target,
    tilt: Tilt,
    begin: tuple[Float[Array, " dim"], Float[Array, "dim dim"], Float[Array, " hyper"]],
    over: Expectation,
    tol: float | Float[Array, ""],
    max_steps: int | Int[Array, ""],
    memory: int,
) -> Tuned:
    """The bound's maximum over the Gaussian as a function of the hyperparameters, climbed by BFGS:
    where the Gaussian is at its best only the direct derivative is left."""

    def at(tau: Array, last: _Carried) -> Steps:
        mean = last.mean + tilt.drift @ (tau - last.tau)
        return stein(
            target.at(tilt.at(tau)), mean, last.root, over, tol, max_steps, memory, last.past
        )

    def evaluate(tau: Array, last: _Carried) -> tuple[Array, Array, _Carried]:
        steps = at(tau, last)
        slope = tilt.scale.T @ hyper_gradient(target.at(tilt.at(tau)), steps, over)
        here = _Carried(steps.mean, steps.root, steps.past, tau, last.n_passes + steps.n_passes)
        fine = steps.look.finite
        after = jax.tree.map(lambda new, old: jnp.where(fine, new, old), here, last)
        return jnp.where(fine, -steps.look.elbo, jnp.inf), -slope, after

    mean, root, tau = begin
    first = _Carried(mean, root, Past.of(mean.size, mean.dtype, memory), tau, jnp.array(0))
    found, last = bfgs_carrying(evaluate, tau, first, tol, max_steps, LONGEST_HYPER_STEP)
    steps = at(found.point, last)
    gradient = hyper_gradient(target.at(tilt.at(found.point)), steps, over)
    code = jnp.where(found.code == int(Code.OK), steps.code, found.code)
    return Tuned(steps, found.point, gradient, last.n_passes + steps.n_passes, code)


def hyper_gradient(target: Target, steps: Steps, over: Expectation) -> Float[Array, " hyper"]:
    """`E d log p~ / d theta` at a fixed Gaussian."""
    mean, root = steps.mean, steps.root

    def expected(theta: Array) -> Array:
        its = target.at(theta)
        if isinstance(over, OverNodes):
            return its.callable.expected(mean, root, over.z, over.weights, *its.extra)
        return _sum(lambda z, weights: weights @ each(its, mean + z @ root.T))

    def _sum(chunk) -> Array:
        zero = jnp.zeros((), mean.dtype)
        add = lambda total, batch: (total + jax.checkpoint(chunk)(*batch), None)  # noqa: E731
        return lax.scan(add, zero, (over.z, over.weights))[0]

    return jax.grad(expected)(target.theta)
