"""Stein steps: mean and whole covariance at once, from gradients alone.

`mu <- mu + L p`, `L <- L exp(E)`: with `pull` and `bend` the step `p = bend^-1 pull`,
`E = -(1/2) log bend` is Newton's for a Gaussian target. Steps are cut to a trusted length, the
bound never falls, and what past steps taught about the curvature (limited-memory BFGS, with that
Newton step as its first guess) replaces the slow tail of plain Stein steps. Hyperparameters that
are learnt take part in the same steps, in the coordinates of `Tilt`, in which the bound curves by
about one.
"""

import collections
import dataclasses
import math

import numpy as np
from jaxtyping import Float

from .._arrays._draws import Nodes
from .._density._protocol import NOTHING, BestGaussian, Density, Rule
from .._errors import Code
from .._watch import tell
from ._bound import Shape
from ._newton import resolved
from ._search import Stop
from ._tilt import Learnt, Tau, Tilt

# Of a step: the log factor by which a width may change, and half the way of the mean in sds.
FIRST_REACH, LONGEST_REACH, SHORTEST_REACH = 1.0, 4.0, 1e-9
# The rise that a parabola would make: enough to accept / to trust less / to trust more.
ACCEPT, POOR, GOOD = 0.01, 0.1, 0.5
# Ridges along which hyperparameters drag the Gaussian take more of them.
PAIRS_KEPT, PAIRS_LEARNING = 20, 40
# Hyperparameters live on a log scale or one like it: no step goes far on it.
LONGEST_HYPER_STEP = 1.0
# A root that has grown by this factor is on its way to infinity.
RAN_OFF = 1e10

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


@dataclasses.dataclass(frozen=True)
class Move:
    """A step of the mean (in standard deviations), of the symmetric log root, and of the
    hyperparameters."""

    mean: Vector
    log_root: Square
    tau: Tau = dataclasses.field(default_factory=lambda: NOTHING)

    def dot(self, other: "Move") -> float:
        of_gaussian = self.mean @ other.mean + (self.log_root * other.log_root).sum()
        return float(of_gaussian + self.tau @ other.tau)

    def plus(self, factor: float, other: "Move") -> "Move":
        return Move(
            self.mean + factor * other.mean,
            self.log_root + factor * other.log_root,
            self.tau + factor * other.tau,
        )

    def size(self) -> float:
        widths = max(0.5 * np.abs(self.mean).max(), np.abs(self.log_root).max())
        return float(max(widths, np.abs(self.tau).max(initial=0.0)))

    def largest(self) -> float:
        parts = (self.mean, self.log_root, self.tau)
        return float(max(np.abs(part).max(initial=0.0) for part in parts))


class Past:
    """The last steps and what they did to the gradient, the newest last."""

    def __init__(self, kept: int = PAIRS_KEPT):
        self.pairs: collections.deque[tuple[Move, Move, float]] = collections.deque(maxlen=kept)

    def learn(self, step: Move, fall: Move) -> None:
        product = step.dot(fall)
        if product > 1e-8 * math.sqrt(step.dot(step) * fall.dot(fall)):
            self.pairs.append((step, fall, 1 / product))

    def forget(self) -> None:
        self.pairs.clear()


@dataclasses.dataclass(frozen=True)
class SteinState:
    """A Gaussian on its way: `N(mean, root root^T)`, what one pass shows of it, what was learnt.

    `evaluated_at`: mean and root that the pass was made at; one step, which it has paid for, may
    lie between. `gain_left`: nats still to be had from there, as the pass and past steps foresee.
    `density`: with the hyperparameters that are there.
    """

    density: Density
    learnt: Learnt
    mean: Vector
    root: Square
    evaluated_at: tuple[Vector, Square]
    shape: Shape
    past: Past
    gain_left: float
    n_passes: int
    code: Code

    @property
    def elbo(self) -> float:
        return self.shape.elbo

    @property
    def gradient(self) -> float:
        """The largest, per standard deviation."""
        return _gradient(self.shape).largest()


def stein(
    density: Density,
    mean: Vector,
    root: Square,
    rule: Rule,
    stop: Stop,
    past: Past | None = None,
    learnt: Learnt | None = None,
) -> SteinState:
    """From `N(mean, root root^T)` to where the test of `stop` is met. `past`: of steps over other
    draws. `learnt`: hyperparameters that take part, from where they have come to."""
    tilt = Tilt.none(len(mean)) if learnt is None else learnt.tilt
    tau = tilt.start if learnt is None else learnt.tau
    past = past or Past(PAIRS_LEARNING if tilt.size else PAIRS_KEPT)
    widest = RAN_OFF * np.abs(root).max()

    if not tilt.size and density.has_best_gaussian and isinstance(rule, Nodes):
        best = density.best_gaussian(mean, root, rule, stop.gain)
        if best is not None and stop.tol is None:
            state = _known(density, best, past, tilt, stop)
            told(state, rule)
            return state
        mean, root = (mean, root) if best is None else best.evaluated_at

    def shape_at(mean: Vector, root: Square, tau: Tau) -> Shape:
        return Shape.of(tilt.bind(density, tau).expect(mean, root, rule), root, tilt)

    shape, reach, gain, n_passes, refused = (
        shape_at(mean, root, tau),
        FIRST_REACH,
        math.inf,
        1,
        False,
    )

    def ended(code: Code, move: Move | None = None) -> SteinState:
        there = (mean, root)
        # Where hyperparameters move, a step that is not looked at would part them from the density.
        if move is not None and not tilt.size:
            there = _moved(mean, root, *_cut(move, reach, tilt, in_proportion=False)[:2], tilt)
        evaluated_at = mean, root
        here, bound = Learnt(tilt, tau, shape.in_tau), tilt.bind(density, tau)
        return SteinState(bound, here, *there, evaluated_at, shape, past, gain, n_passes, code)

    if not shape.finite:
        return ended(Code.NON_FINITE_DRAWS)
    while True:
        gradient = _gradient(shape)
        move = _move(shape, gradient, past, reach)
        gain = _gain_left(shape, gradient, move)
        told(ended(Code.INTERRUPTED), rule)
        if _settled(shape, gradient, move, gain, stop, density.resolution):
            return ended(Code.OK, move if stop.takes_last_step else None)
        if reach < SHORTEST_REACH:
            return ended(Code.BOUND_STUCK)
        if n_passes >= stop.max_steps:
            return ended(Code.BOUND_OUT_OF_STEPS)
        on_ridge = tilt.size > 0
        cut, factor, length = _cut(move, reach, tilt, in_proportion=on_ridge and bool(past.pairs))
        rise = 0.5 * cut.dot(gradient)  # along a parabola whose top is the move's end
        new_mean, new_root = _moved(mean, root, cut, factor, tilt)
        new, n_passes = shape_at(new_mean, new_root, tau + cut.tau), n_passes + 1
        ratio = _ratio(shape, new, rise, density.resolution)
        if ratio > ACCEPT:
            past.learn(cut, gradient.plus(-1.0, _gradient(new)))
            mean, root, tau, shape, refused = new_mean, new_root, tau + cut.tau, new, False
            if ratio > GOOD:
                reach = min(2 * reach, LONGEST_REACH)
            elif ratio < POOR:
                reach = 0.5 * min(reach, length)
            if np.abs(root).max() > widest:
                return ended(Code.RAN_OFF)
            continue
        # A refused step is first put down to a misleading past, then to its length; along the
        # ridges of hyperparameters, where a past is dear, the other way round.
        if past.pairs and (refused or not on_ridge):
            past.forget()
        else:
            reach = 0.25 * min(reach, length)
        refused = True


def _known(density: Density, best: BestGaussian, past: Past, tilt: Tilt, stop: Stop) -> SteinState:
    """What the density itself has found. Its bend is one, as near as the gain left says."""
    at, left, n = best.evaluated_at, best.gain_left, best.n_passes
    shape = Shape(best.elbo, at[1].T @ best.gradient, np.eye(len(best.mean)))
    learnt = Learnt(tilt, tilt.start, tilt.start)
    there = (best.mean, best.root) if stop.takes_last_step else at
    return SteinState(density, learnt, *there, at, shape, past, left, n, Code.OK)


def told(state: SteinState, rule: Rule) -> None:
    """Whoever watches is told where the search has come to."""
    tell(state.elbo, state.gain_left, len(rule.z), lambda: ("full", state))


def _ratio(old: Shape, new: Shape, rise: float, rounding: float) -> float:
    """The rise of the bound as a share of what the parabola promised."""
    noise = 8 * rounding * abs(old.elbo)
    if not new.finite or new.elbo < old.elbo - noise or rise <= -noise:
        return -math.inf
    return (new.elbo - old.elbo + noise) / (rise + noise)


def _settled(
    shape: Shape, gradient: Move, move: Move, gain: float, stop: Stop, rounding: float
) -> bool:
    if stop.tol is None:
        return gain <= max(stop.gain, 4 * rounding * abs(shape.elbo))
    smallest = resolved(shape.elbo, stop.tol, rounding)
    return gradient.largest() <= smallest and move.size() <= smallest


def _gain_left(shape: Shape, gradient: Move, move: Move) -> float:
    """By the Gaussian model, or by the parabola of the next move where past steps know of more."""
    of_hyper = 0.5 * float(shape.in_tau @ shape.in_tau)
    return max(shape.gain_mean + shape.gain_root + of_hyper, 0.5 * move.dot(gradient))


def _gradient(shape: Shape) -> Move:
    return Move(shape.pull, np.eye(len(shape.pull)) - shape.bend, shape.in_tau)


def _moved(
    mean: Vector, root: Square, move: Move, factor: Square, tilt: Tilt
) -> tuple[Vector, Square]:
    return mean + root @ move.mean + tilt.drift @ move.tau, root @ factor


def _move(shape: Shape, gradient: Move, past: Past, reach: float) -> Move:
    """The quasi-Newton step, or the plain Stein step where nothing is remembered or what is
    remembered points downhill."""
    values, vectors = shape.axes
    floored = np.maximum(values, math.exp(-2 * min(reach, 1.0)))

    def newton(q: Move) -> Move:
        """With the Gaussian model's curvature: `bend` for the mean, `b_i + b_j` for the root."""
        turned = vectors.T @ q.log_root @ vectors / (floored[:, None] + floored)
        along = (vectors.T @ q.mean) / floored
        return Move(vectors @ along, vectors @ turned @ vectors.T, q.tau)

    if past.pairs:
        q, amounts = gradient, []
        for step, fall, inverse in reversed(past.pairs):
            amounts.append(inverse * step.dot(q))
            q = q.plus(-amounts[-1], fall)
        informed = newton(q)
        for (step, fall, inverse), amount in zip(past.pairs, reversed(amounts), strict=True):
            informed = informed.plus(amount - inverse * fall.dot(informed), step)
        if informed.dot(gradient) > 0:
            return informed
    # A width along a direction without curvature grows as far as is trusted.
    logs = np.where(values > 0, -0.5 * np.log(np.where(values > 0, values, 1.0)), np.inf)
    logs = np.clip(logs, -reach, reach)
    return Move(newton(gradient).mean, (vectors * logs) @ vectors.T, gradient.tau)


def _cut(move: Move, reach: float, tilt: Tilt, in_proportion: bool) -> tuple[Move, Square, float]:
    """The move within reach, the exponential of its log root, and its size. Parts that depend on
    each other are cut in proportion."""
    values, vectors = np.linalg.eigh(move.log_root)
    hyper_step = np.abs(tilt.scale @ move.tau).max(initial=0.0)
    of_mean = max(0.5 * np.abs(move.mean).max() / reach, 1.0)
    of_hyper = max(hyper_step / min(reach, LONGEST_HYPER_STEP), 1.0)
    if in_proportion:
        of_mean = of_hyper = max(of_mean, of_hyper, np.abs(values).max() / reach)
        widths = values / of_mean
    else:
        widths = np.clip(values, -reach, reach)
    cut = Move(move.mean / of_mean, (vectors * widths) @ vectors.T, move.tau / of_hyper)
    size = max(np.abs(widths).max(), 0.5 * np.abs(cut.mean).max(), hyper_step / of_hyper)
    return cut, (vectors * np.exp(widths)) @ vectors.T, float(size)
