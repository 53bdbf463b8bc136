"""Stein steps: mean and whole covariance at once, from gradients alone.

`mu <- mu + L p`, `L <- L exp(E)`: with `pull` and `bend` of room `_look`, the step
`p = bend^-1 pull`, `E = -(1/2) log bend` is Newton's for a Gaussian target. Steps are cut to a
trusted length, the bound never falls, and what past steps taught about the curvature (limited-
memory BFGS, with that Newton step as its first guess) replaces the slow tail of plain Stein steps.
Hyperparameters that are learnt take part in the same steps, in the coordinates of `Tilt`, in which
the bound curves by about one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._errors import Code
from .._target import Target
from ._elbo import Expectation, Tilt
from ._look import Look, look
from ._optimise import resolution

RUNNING = -1
# Of a step: the log factor by which a width may change, and half the way of the mean in sds.
FIRST_REACH, LONGEST_REACH, SHORTEST_REACH = 1.0, 4.0, 1e-9
ACCEPT, POOR, GOOD = 0.01, 0.1, 0.5
# Ridges along which hyperparameters drag the Gaussian take more of them.
PAIRS_KEPT, PAIRS_LEARNING = 10, 40
# A root that has grown by this factor is on its way to infinity.
RAN_OFF = 1e10
LONGEST_HYPER_STEP = 1.0


class _Move(eqx.Module):
    """A step of the mean (in standard deviations), of the symmetric log root, and of the
    hyperparameters."""

    mean: Float[Array, "*kept dim"]
    log_root: Float[Array, "*kept dim dim"]
    tau: Float[Array, "*kept tau"]

    @classmethod
    def none(cls, dim: int, n_tau: int, dtype, *kept: int) -> "_Move":
        shapes = ((*kept, dim), (*kept, dim, dim), (*kept, n_tau))
        return cls(*(jnp.zeros(shape, dtype) for shape in shapes))

    def dot(self, other: "_Move") -> Float[Array, ""]:
        return (
            self.mean @ other.mean + (self.log_root * other.log_root).sum() + self.tau @ other.tau
        )

    def plus(self, factor: Array, other: "_Move") -> "_Move":
        return jax.tree.map(lambda own, its: own + factor * its, self, other)

    def size(self) -> Float[Array, ""]:
        widths = jnp.maximum(0.5 * jnp.abs(self.mean).max(), jnp.abs(self.log_root).max())
        return jnp.maximum(widths, jnp.abs(self.tau).max(initial=0.0))


class Past(eqx.Module):
    """The last steps and what they did to the gradient, the newest last; `inverse` is
    `1 / <step, fall>`, zero where there is none."""

    steps: _Move
    falls: _Move
    inverse: Float[Array, " kept"]

    @classmethod
    def of(cls, dim: int, n_tau: int, dtype, memory: int) -> "Past":
        """Nothing yet."""
        kept = max(2, min(PAIRS_LEARNING if n_tau else PAIRS_KEPT, memory // (64 * dim**2)))
        many = _Move.none(dim, n_tau, dtype, kept)
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
    tau: Float[Array, " tau"]
    look: Look
    past: Past
    error: Float[Array, ""]  # the largest gradient, in posterior standard deviations
    n_passes: Int[Array, ""]
    code: Int[Array, ""]


class _State(eqx.Module):
    mean: Float[Array, " dim"]
    root: Float[Array, "dim dim"]
    tau: Float[Array, " tau"]
    look: Look
    gradient: _Move
    move: _Move  # the next one to try
    past: Past
    reach: Float[Array, ""]
    refused: Bool[Array, ""]  # the last one
    n_passes: Int[Array, ""]
    code: Int[Array, ""]


def stein(
    target: Target,
    tilt: Tilt,
    begin: tuple[Float[Array, " dim"], Float[Array, "dim dim"], Float[Array, " tau"]],
    over: Expectation,
    tol: float | Float[Array, ""],
    max_steps: int | Int[Array, ""],
    past: Past,
) -> Steps:
    """From `N(mean, root root^T)` at hyperparameters `tau` (empty where they stay) to where the
    bound's gradient, and the step that it asks for, are below `tol` in posterior standard
    deviations. `past`: of steps over other draws."""
    mean, root, tau = begin
    dim, dtype = mean.size, mean.dtype
    widest = RAN_OFF * jnp.abs(root).max()

    def settled(state: _State) -> Array:
        smallest = resolution(state.look.elbo, tol)
        return (_largest(state.gradient) <= smallest) & (state.move.size() <= smallest)

    def body(state: _State) -> _State:
        state = _advance(target, tilt, over, state)
        code = jnp.where(settled(state), int(Code.OK), state.code)
        lost = (state.reach < SHORTEST_REACH) & (code == RUNNING)
        code = jnp.where(lost, int(Code.BOUND_STUCK), code)
        far = jnp.abs(state.root).max() > widest
        code = jnp.where(far, int(Code.RAN_OFF), code)
        code = jnp.where(state.look.finite, code, int(Code.NON_FINITE_DRAWS))
        return eqx.tree_at(lambda s: s.code, state, code)

    # The first round only looks, so that the target is compiled once.
    nowhere = _Move.none(dim, tau.size, dtype)
    slope = jnp.zeros(target.theta.size if tau.size else 0, dtype)
    unseen = Look(jnp.array(-jnp.inf, dtype), nowhere.mean, jnp.eye(dim, dtype=dtype), slope)
    reach, none, running = jnp.array(FIRST_REACH, dtype), jnp.array(0), jnp.array(RUNNING)
    first = _State(
        mean, root, tau, unseen, nowhere, nowhere, past, reach, jnp.array(False), none, running
    )
    end = lax.while_loop(lambda s: (s.code == RUNNING) & (s.n_passes < max_steps), body, first)
    code = jnp.where(end.code == RUNNING, int(Code.BOUND_OUT_OF_STEPS), end.code)
    error = _largest(end.gradient)
    return Steps(end.mean, end.root, end.tau, end.look, end.past, error, end.n_passes, code)


def _largest(gradient: _Move) -> Float[Array, ""]:
    parts = jax.tree.leaves(gradient)
    return jnp.stack([jnp.abs(part).max(initial=0.0) for part in parts]).max()


def _advance(target: Target, tilt: Tilt, over: Expectation, state: _State) -> _State:
    """Tries the state's move; takes it where the bound rises as a quadratic would let it."""
    had_past = (state.past.inverse > 0).any()
    on_ridge = state.tau.size > 0
    move, factor, longest = _cut(state.move, state.reach, tilt, had_past & on_ridge)
    rise = 0.5 * move.dot(state.gradient)  # along a parabola whose top is the move's end
    tau, root = state.tau + move.tau, state.root @ factor
    mean = state.mean + state.root @ move.mean + tilt.drift @ move.tau
    there = look(target.at(tilt.at(tau)), mean, root, over, learns=tau.size > 0)
    gradient = _gradient(there, root, tilt)
    noise = 8 * jnp.finfo(mean.dtype).eps * jnp.abs(state.look.elbo)
    ratio = (there.elbo - state.look.elbo + noise) / (rise + noise)
    rises = (there.elbo >= state.look.elbo - noise) & (rise > -noise)
    first = state.n_passes == 0
    accept = (there.finite & rises & (ratio > ACCEPT)) | first
    # A refused step is first put down to a misleading past, then to its length; along the ridges of
    # hyperparameters, where a past is dear, the other way round.
    misled = ~accept & (state.refused | (not on_ridge))
    shorter = jnp.minimum(state.reach, longest)
    reach = jnp.where(
        accept,
        jnp.where(
            (ratio > GOOD) & ~first,
            jnp.minimum(2 * state.reach, LONGEST_REACH),
            jnp.where((ratio < POOR) & ~first, 0.5 * shorter, state.reach),
        ),
        jnp.where(had_past & misled, state.reach, 0.25 * shorter),
    )
    fall = state.gradient.plus(-jnp.ones_like(rise), gradient)
    learnt = state.past.learn(move, fall)
    past = jax.tree.map(
        lambda new, old: jnp.where(accept & ~first, new, old),
        learnt,
        state.past.forget_if(misled),
    )
    mean, root, tau, there, gradient = jax.tree.map(
        lambda new, old: jnp.where(accept, new, old),
        (mean, root, tau, there, gradient),
        (state.mean, state.root, state.tau, state.look, state.gradient),
    )
    following = _move(there, gradient, past, reach)
    n_passes = state.n_passes + 1
    return _State(
        mean, root, tau, there, gradient, following, past, reach, ~accept, n_passes, state.code
    )


def _gradient(seen: Look, root: Float[Array, "dim dim"], tilt: Tilt) -> _Move:
    """Of the bound, in the coordinates of a move: the mean drifts with the hyperparameters."""
    in_tau = jnp.zeros(0, seen.pull.dtype)
    if tilt.drift.shape[1]:
        in_tau = tilt.scale.T @ seen.slope + jnp.linalg.solve(root, tilt.drift).T @ seen.pull
    eye = jnp.eye(seen.pull.size, dtype=seen.pull.dtype)
    return _Move(seen.pull, eye - seen.bend, in_tau)


def _move(seen: Look, gradient: _Move, past: Past, reach: Array) -> _Move:
    """The quasi-Newton step, or the plain Stein step where nothing is remembered or what is
    remembered points downhill."""
    values, vectors = jnp.linalg.eigh(seen.bend)
    floored = jnp.maximum(values, jnp.exp(-2 * jnp.minimum(reach, 1.0)))

    def newton(q: _Move) -> _Move:
        """With the Gaussian model's curvature: `bend` for the mean, `b_i + b_j` for the root."""
        turned = vectors.T @ q.log_root @ vectors / (floored[:, None] + floored)
        along = (vectors.T @ q.mean) / floored
        return _Move(vectors @ along, vectors @ turned @ vectors.T, q.tau)

    # A width along a direction without curvature grows as far as is trusted.
    logs = jnp.where(values > 0, -0.5 * jnp.log(jnp.where(values > 0, values, 1.0)), jnp.inf)
    logs = jnp.clip(logs, -reach, reach)
    plain = _Move(newton(gradient).mean, (vectors * logs) @ vectors.T, gradient.tau)

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


def _cut(
    move: _Move, reach: Array, tilt: Tilt, whole: Array
) -> tuple[_Move, Float[Array, "dim dim"], Float[Array, ""]]:
    """The move within reach, the exponential of its log root, and its size. Parts of a `whole`,
    which depend on each other, keep their proportions."""
    values, vectors = jnp.linalg.eigh(move.log_root)
    # Hyperparameters live on a log scale or one like it: no step goes far on it.
    lengths = jnp.stack(
        [
            0.5 * jnp.abs(move.mean).max() / reach,
            jnp.abs(values).max() / reach,
            jnp.abs(tilt.scale @ move.tau).max(initial=0.0)
            / jnp.minimum(reach, LONGEST_HYPER_STEP),
        ]
    )
    lengths = jnp.maximum(jnp.where(whole, lengths.max(), lengths), 1.0)
    widths = jnp.where(whole, values / lengths[1], jnp.clip(values, -reach, reach))
    cut = _Move(move.mean / lengths[0], (vectors * widths) @ vectors.T, move.tau / lengths[2])
    size = jnp.maximum(jnp.abs(widths).max(), 0.5 * jnp.abs(cut.mean).max())
    size = jnp.maximum(size, jnp.abs(tilt.scale @ cut.tau).max(initial=0.0))
    return cut, (vectors * jnp.exp(widths)) @ vectors.T, size
