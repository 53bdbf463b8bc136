"""Stein steps: mean and whole covariance at once, from gradients alone.

`mu <- mu + L p`, `L <- L exp(E)`: with `pull` and `bend` the step `p = bend^-1 pull`,
`E = -(1/2) log bend` is Newton's for a Gaussian target. Steps are cut to a trusted length, the
bound never falls, and what past steps taught about the curvature (limited-memory BFGS, with that
Newton step as its first guess) replaces the slow tail of plain Stein steps.
"""

import collections
import dataclasses
import math

import numpy as np
from jaxtyping import Float

from .._arrays._draws import Nodes
from .._density._protocol import BestGaussian, Density, Rule
from .._errors import Code
from .._watch import tell
from ._bound import Shape
from ._newton import resolved
from ._search import Stop
from ._tilt import Learnt

# Of a step: the log factor by which a width may change, and half the way of the mean in sds.
FIRST_REACH, LONGEST_REACH, SHORTEST_REACH = 1.0, 4.0, 1e-9
# The rise that a parabola would make: enough to accept / to trust less / to trust more.
ACCEPT, POOR, GOOD = 0.01, 0.1, 0.5
PAIRS_KEPT = 20
# A root that has grown by this factor is on its way to infinity.
RAN_OFF = 1e10

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


@dataclasses.dataclass(frozen=True)
class Move:
    """A step of the mean (in standard deviations) and of the symmetric log root."""

    mean: Vector
    log_root: Square

    def dot(self, other: "Move") -> float:
        return float(self.mean @ other.mean + (self.log_root * other.log_root).sum())

    def plus(self, factor: float, other: "Move") -> "Move":
        return Move(self.mean + factor * other.mean, self.log_root + factor * other.log_root)

    def size(self) -> float:
        return float(max(0.5 * np.abs(self.mean).max(), np.abs(self.log_root).max()))

    def largest(self) -> float:
        return float(max(np.abs(self.mean).max(), np.abs(self.log_root).max()))


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

    def copy(self) -> "Past":
        other = Past()
        other.pairs.extend(self.pairs)
        return other


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
        return shape_gradient(self.shape).largest()


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
    draws. `learnt`: hyperparameters that are learnt, at which the density is taken."""
    learnt = Learnt.nothing(len(mean)) if learnt is None else learnt
    past, widest = past or Past(), RAN_OFF * np.abs(root).max()

    if density.has_best_gaussian and isinstance(rule, Nodes):
        best = density.best_gaussian(mean, root, rule, stop.gain)
        if best is not None and stop.tol is None:
            state = _known(density, best, past, learnt, rule, stop)
            told(state, rule)
            return state
        mean, root = (mean, root) if best is None else best.evaluated_at

    def shape_at(mean: Vector, root: Square) -> Shape:
        return Shape.of(density.expect(mean, root, rule), root)

    shape, reach, gain, n_passes = shape_at(mean, root), FIRST_REACH, math.inf, 1

    def ended(code: Code, move: Move | None = None) -> SteinState:
        at = there = (mean, root)
        if move is not None:
            there = moved(mean, root, *within_reach(move, reach)[:2])
        return SteinState(density, learnt, *there, at, shape, past, gain, n_passes, code)

    if not shape.finite:
        return ended(Code.NON_FINITE_DRAWS)
    while True:
        gradient = shape_gradient(shape)
        move = best_move(shape, gradient, past, reach)
        gain = _gain_left(shape, gradient, move)
        told(ended(Code.INTERRUPTED), rule)
        if _settled(shape, gradient, move, gain, stop, density.resolution):
            return ended(Code.OK, move if stop.takes_last_step else None)
        if reach < SHORTEST_REACH:
            return ended(Code.BOUND_STUCK)
        if n_passes >= stop.max_steps:
            return ended(Code.BOUND_OUT_OF_STEPS)
        cut, factor, length = within_reach(move, reach)
        rise = 0.5 * cut.dot(gradient)  # along a parabola whose top is the move's end
        new_mean, new_root = moved(mean, root, cut, factor)
        new, n_passes = shape_at(new_mean, new_root), n_passes + 1
        ratio = _ratio(shape, new, rise, density.resolution)
        if ratio > ACCEPT:
            past.learn(cut, gradient.plus(-1.0, shape_gradient(new)))
            mean, root, shape = new_mean, new_root, new
            if ratio > GOOD:
                reach = min(2 * reach, LONGEST_REACH)
            elif ratio < POOR:
                reach = 0.5 * min(reach, length)
            if np.abs(root).max() > widest:
                return ended(Code.RAN_OFF)
            continue
        # A refused step is first put down to a misleading past, then to its length.
        if past.pairs:
            past.forget()
        else:
            reach = 0.25 * min(reach, length)


def _known(
    density: Density, best: BestGaussian, past: Past, learnt: Learnt, rule: Rule, stop: Stop
) -> SteinState:
    """What the density itself has found. Its bend is one, as near as the gain left says."""
    at, left, n = best.evaluated_at, best.gain_left, best.n_passes
    shape = Shape(best.elbo, at[1].T @ best.gradient, np.eye(len(best.mean)))
    if learnt.tilt.size:  # the slope in the hyperparameters is wanted, too
        shape = Shape.of(density.expect(*at, rule), at[1])
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
    return max(shape.gain_mean + shape.gain_root, 0.5 * move.dot(gradient))


def shape_gradient(shape: Shape) -> Move:
    return Move(shape.pull, np.eye(len(shape.pull)) - shape.bend)


def moved(mean: Vector, root: Square, move: Move, factor: Square) -> tuple[Vector, Square]:
    return mean + root @ move.mean, root @ factor


def best_move(shape: Shape, gradient: Move, past: Past, reach: float) -> Move:
    """The quasi-Newton step, or the plain Stein step where nothing is remembered or what is
    remembered points downhill."""
    values, vectors = shape.axes
    floored = np.maximum(values, math.exp(-2 * min(reach, 1.0)))

    def newton(q: Move) -> Move:
        """With the Gaussian model's curvature: `bend` for the mean, `b_i + b_j` for the root."""
        turned = vectors.T @ q.log_root @ vectors / (floored[:, None] + floored)
        along = (vectors.T @ q.mean) / floored
        return Move(vectors @ along, vectors @ turned @ vectors.T)

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
    return Move(newton(gradient).mean, (vectors * logs) @ vectors.T)


def within_reach(move: Move, reach: float) -> tuple[Move, Square, float]:
    """The move within reach, the exponential of its log root, and its size."""
    values, vectors = np.linalg.eigh(move.log_root)
    of_mean = max(0.5 * np.abs(move.mean).max() / reach, 1.0)
    widths = np.clip(values, -reach, reach)
    cut = Move(move.mean / of_mean, (vectors * widths) @ vectors.T)
    size = max(np.abs(widths).max(), 0.5 * np.abs(cut.mean).max())
    return cut, (vectors * np.exp(widths)) @ vectors.T, float(size)
