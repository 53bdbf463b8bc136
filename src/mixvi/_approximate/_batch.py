"""The steps that many problems take together: functions of one problem's arrays, under `vmap`.

This is the road that most problems take: Newton's own steps to the mode, then plain Stein steps,
which are damped where the bound falls and otherwise left as they are. Whoever leaves the road is
told so (`lost`) and goes alone, by the searches that `fit` uses.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

MEAN, WIDTHS, WHOLE = 0, 1, 2  # what may change: of "mu", "eig" and "full"
# A step shorter than this share of Newton's own has left the road.
SHORTEST = 1e-3
# Of a Stein step: the log factor by which a width may change, half the mean's way in sds.
REACH = 1.0
MISJUDGED = 2.0
# Whoever comes nearer by less than this a step is not near.
SLOWEST = 0.95


def side_by_side(function: Callable) -> Callable:
    """Of one problem's arrays, for many problems; `shared` ones come by name."""

    @functools.partial(jax.jit, static_argnames=("paired",))
    def many(*own: Any, **shared: Any) -> Any:
        if jax.default_backend() == "cpu":
            # A batch of matrix factorisations may hang there (see `_density._memory`).
            return lax.map(lambda one: function(*one, **shared), own)
        return jax.vmap(lambda *one: function(*one, **shared))(*own)

    return many


# --- the mode ---------------------------------------------------------------------------------


class NewtonState(NamedTuple):
    """Where a search for a mode is: `share` of Newton's step is tried next."""

    start: Float[Array, "*batch dim"]
    point: Float[Array, "*batch dim"]
    value: Float[Array, "*batch"]
    gradient: Float[Array, "*batch dim"]
    precision: Float[Array, "*batch dim dim"]
    step: Float[Array, "*batch dim"]
    decrement: Float[Array, "*batch"]
    share: Float[Array, "*batch"]
    n_steps: Int[Array, "*batch"]
    going: Bool[Array, "*batch"]
    lost: Bool[Array, "*batch"]

    @property
    def trial(self) -> Float[Array, "*batch dim"]:
        return self.point + self.share[..., None] * self.step


@side_by_side
def newton_begun(point, value, gradient, hessian):
    step, decrement = _newton_step(gradient, -hessian)
    lost = ~(jnp.isfinite(value) & jnp.isfinite(decrement))
    one, none = jnp.ones_like(value), jnp.zeros((), int)
    return NewtonState(
        point, point, value, gradient, -hessian, step, decrement, one, none, ~lost, lost
    )


@side_by_side
def newton_stepped(state, value, gradient, hessian, tol, rounding):
    """What becomes of the state once its trial point is known."""
    noise = 8 * rounding * jnp.abs(state.value)
    rise = 1e-4 * state.share * state.decrement**2
    finite = jnp.isfinite(value) & jnp.isfinite(gradient).all() & jnp.isfinite(hessian).all()
    accept = finite & (value >= state.value + rise - noise) & state.going
    step, decrement = _newton_step(gradient, -hessian)
    point = state.trial
    travelled = jnp.maximum(jnp.abs(point).max(), jnp.abs(point - state.start).max())
    small = jnp.abs(step).max() <= jnp.maximum(1e-6, 10 * rounding) * travelled
    fast = decrement <= 0.1 * state.decrement
    close = (decrement <= tol) & (small | fast)
    # As close as rounding allows: values cannot tell a smaller step from none.
    resolved = jnp.maximum(tol, jnp.sqrt(4 * rounding * jnp.abs(value)))
    arrived = close | ((decrement <= resolved) & small & ~fast)
    moved = NewtonState(
        state.start,
        point,
        value,
        gradient,
        -hessian,
        step,
        decrement,
        jnp.ones_like(state.share),
        state.n_steps + 1,
        ~arrived & jnp.isfinite(decrement),
        ~jnp.isfinite(decrement),
    )
    share = 0.25 * state.share
    refused = state._replace(
        share=jnp.where(state.going, share, state.share),
        n_steps=state.n_steps + state.going,
        going=state.going & (share >= SHORTEST),
        lost=state.lost | (state.going & (share < SHORTEST)),
    )
    return jax.tree.map(lambda new, old: jnp.where(accept, new, old), moved, refused)


def _newton_step(gradient, precision):
    """Not numbers where `P` is not positive definite."""
    factor = jnp.linalg.cholesky(precision)
    half = jax.scipy.linalg.solve_triangular(factor, gradient, lower=True)
    step = jax.scipy.linalg.solve_triangular(factor.T, half, lower=False)
    return step, jnp.sqrt(half @ half)


class Roots(NamedTuple):
    """Of Laplace's covariance: `root`, and `axes`, the same Gaussian's root along its principal
    axes, which families adapt."""

    root: Float[Array, "*batch dim dim"]
    axes: Float[Array, "*batch dim dim"]
    log_det: Float[Array, "*batch"]


@side_by_side
def laplace_roots(precision, rounding):
    """As `covariance_root` and `eigen_root` make them; not numbers where there are none."""
    dim = len(precision)
    diagonal = jnp.abs(jnp.diagonal(precision))
    scales = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
    factor = jnp.linalg.cholesky(precision / scales / scales[:, None])
    eye = jnp.eye(dim, dtype=precision.dtype)
    inverse = jax.scipy.linalg.solve_triangular(factor, eye, lower=True)
    definite = 1 / (inverse**2).sum() > dim * rounding
    root = jnp.where(definite, inverse.T / scales[:, None], jnp.nan)
    log_det = jnp.log(jnp.diagonal(inverse)).sum() - jnp.log(scales).sum()
    odd = jnp.cos(jnp.arange(dim, dtype=precision.dtype) ** 2 + 1)
    uneven = 1 + math.sqrt(float(jnp.finfo(precision.dtype).eps)) * odd
    safe = jnp.where(definite, root, eye)
    columns = safe @ jnp.linalg.eigh(safe.T @ (safe * uneven[:, None]))[1]
    width = jnp.sqrt((columns**2).sum(1))
    axes = columns * jnp.where((odd / width) @ columns < 0, -1.0, 1.0)
    return Roots(root, axes, jnp.where(definite, log_det, jnp.nan))


# --- the bound --------------------------------------------------------------------------------


class SteinBatch(NamedTuple):
    """A Gaussian on its way, and what one pass shows of it. `kind`: what may change. `pull` and
    `bend`: see `Shape`; gains and `draw_loss`: see `Inspection`. `share`: of the next step."""

    kind: Int[Array, "*batch"]
    mean: Float[Array, "*batch dim"]
    root: Float[Array, "*batch dim dim"]
    elbo: Float[Array, "*batch"]
    pull: Float[Array, "*batch dim"]
    bend: Float[Array, "*batch dim dim"]
    gain_mean: Float[Array, "*batch"]
    gain_widths: Float[Array, "*batch"]
    gain_root: Float[Array, "*batch"]
    draw_loss: Float[Array, "*batch"]
    mean_se: Float[Array, "*batch dim"]
    gradient: Float[Array, "*batch"]
    share: Float[Array, "*batch"]
    n_passes: Int[Array, "*batch"]
    going: Bool[Array, "*batch"]
    lost: Bool[Array, "*batch"]

    @property
    def gain_left(self) -> Float[Array, "*batch"]:
        """By what may change."""
        return self.gain_mean + jnp.select(
            [self.kind == WIDTHS, self.kind == WHOLE], [self.gain_widths, self.gain_root], 0.0
        )

    @property
    def gain(self) -> Float[Array, "*batch"]:
        """By mean and whole root."""
        return self.gain_mean + self.gain_root

    def settled(self, gain, rounding) -> Bool[Array, "*batch"]:
        return self.gain_left <= jnp.maximum(gain, 4 * rounding * jnp.abs(self.elbo))


@side_by_side
def stein_begun(kind, mean, root, values, gradients, z, paired):
    """What the first pass over the draws `z` shows."""
    return _seen(kind, mean, root, values, gradients, z, paired)


@side_by_side
def stein_proposed(state):
    """Where the next step leads: a share of `p = bend^-1 pull` and of `E = -(1/2) log bend`."""
    move, factor = _step(state, state.share)
    return state.mean + state.root @ move, state.root @ factor


@side_by_side
def stein_stepped(state, mean, root, values, gradients, z, paired, gain, rounding):
    """What becomes of the state once the proposed Gaussian is known; `gain`: in nats, enough."""
    new = _seen(state.kind, mean, root, values, gradients, z, paired)
    noise = 8 * rounding * jnp.abs(state.elbo)
    accept = ~new.lost & (new.elbo >= state.elbo - noise) & state.going
    # A search that rises by more than it foresaw does not know its own curvature.
    foreseen = new.elbo - state.elbo <= jnp.maximum(MISJUDGED * state.gain_left, gain)
    # Errors that shrink by a rate `r` a step leave 1 / (1 - r)^2 times what one step gains.
    rate = jnp.sqrt(jnp.clip(new.gain_left / state.gain_left, 0.0, SLOWEST**2))
    slow = jnp.where(state.share == 1.0, 1 / (1 - rate) ** 2, 1.0)
    settled = new.settled(gain / slow, rounding) & foreseen
    n_passes = state.n_passes + state.going
    moved = new._replace(going=~settled, n_passes=n_passes)
    share = 0.25 * state.share
    too_short = state.going & (share < SHORTEST)
    refused = state._replace(
        share=jnp.where(state.going, share, state.share),
        n_passes=n_passes,
        going=state.going & ~too_short,
        lost=state.lost | too_short,
    )
    return jax.tree.map(lambda new, old: jnp.where(accept, new, old), moved, refused)


@side_by_side
def stein_ended(state):
    """One more step, which the last pass has paid for, where it is short."""
    move, factor = _step(state, jnp.ones_like(state.share))
    short = (jnp.abs(move).max() < 0.1) & (jnp.abs(factor - jnp.eye(len(move))).max() < 0.1)
    short = short & ~state.lost
    mean = jnp.where(short, state.mean + state.root @ move, state.mean)
    return mean, jnp.where(short, state.root @ factor, state.root)


def _seen(kind, mean, root, values, gradients, z, paired) -> SteinBatch:
    n, dim = z.shape
    h = gradients @ root
    pull, cross = h.mean(0), h.T @ z / n
    bend = -0.5 * (cross + cross.T)
    log_det = jnp.linalg.slogdet(root)[1]
    elbo = values.mean() + log_det + 0.5 * dim * (1 + math.log(2 * math.pi))
    finite = jnp.isfinite(elbo) & jnp.isfinite(pull).all() & jnp.isfinite(bend).all()
    eye = jnp.eye(dim, dtype=root.dtype)
    b, vectors = jnp.linalg.eigh(jnp.where(finite, bend, eye))
    along = vectors.T @ pull
    off = jnp.abs(eye - bend)
    steep = jnp.stack([jnp.zeros_like(elbo), jnp.diagonal(off).max(), off.max()])[kind]
    draw_loss, mean_se = _noise(root, z, h, pull, bend, b, vectors, paired)
    gain_root = _gain_of_widths(b)
    return SteinBatch(
        kind=kind,
        mean=mean,
        root=root,
        elbo=elbo,
        pull=pull,
        bend=bend,
        gain_mean=jnp.where(b[0] > 0, (0.5 * along**2 / b).sum(), jnp.inf),
        gain_widths=jnp.minimum(_gain_of_widths(jnp.diagonal(bend)), gain_root),
        gain_root=gain_root,
        draw_loss=draw_loss,
        mean_se=mean_se,
        gradient=jnp.maximum(jnp.abs(pull).max(), steep),
        share=jnp.ones_like(elbo),
        n_passes=jnp.ones_like(kind),
        going=finite & (b[0] > 0),
        # Where the averaged curvature has the wrong sign no plain step is safe.
        lost=~finite | (b[0] <= 0),
    )


def _gain_of_widths(b):
    safe = jnp.where(b > 0, b, 1.0)
    return jnp.where(b.min() > 0, (0.5 * (safe - 1 - jnp.log(safe))).sum(), jnp.inf)


def _step(state, share):
    dim = len(state.pull)
    b, vectors = jnp.linalg.eigh(state.bend)
    floored = jnp.maximum(b, math.exp(-2 * REACH))
    move = vectors @ ((vectors.T @ state.pull) / floored)
    move = share * move / jnp.maximum(0.5 * jnp.abs(move).max() / REACH, 1.0)

    def factors(b):
        logs = -0.5 * jnp.log(jnp.where(b > 0, b, 1.0))
        return jnp.exp(share * jnp.clip(logs, -REACH, REACH))

    eye = jnp.eye(dim, dtype=state.root.dtype)
    by_axes = jnp.diag(factors(jnp.diagonal(state.bend)))
    whole = (vectors * factors(b)) @ vectors.T
    return move, jnp.stack([eye, by_axes, whole])[state.kind]


def _noise(root, z, h, pull, bend, b, vectors, paired):
    """As in `_bound`: nats lost to the choice of draws, and the mean's standard error from it."""
    n = len(z)
    if paired:
        n //= 2
        up, down, z = h[:n], h[n:], z[:n]
        even, odd = 0.5 * (up + down) - pull, 0.5 * (up - down) + z @ bend
    else:
        even, odd = h - pull, h
    square = 0.5 * ((z**2).sum(1) * (odd**2).sum(1) + (z * odd).sum(1) ** 2)
    if not paired:
        square = jnp.maximum(square - (bend**2).sum(), 0.0)
    lost = (0.5 * (even**2).sum() + 0.25 * square.sum()) / n**2
    back = (root @ vectors) / jnp.maximum(jnp.abs(b), 1e-3)
    return lost, jnp.sqrt((((even @ vectors) @ back.T) ** 2).sum(0)) / n
