"""Stein steps from mini-batches: rounds at one Gaussian, as long as noise is not in the way.

A round asks `K` fresh batches, each over draws of its own, for the bound, `pull` and `bend` at one
Gaussian (`_stein.py`). Their means are unbiased and their spread tells the noise, all of it: of the
rows and of the draws. To second order around the best Gaussian an error `e` of the pull and `N` of
the bend cost

    (1/2) e^T bend^-1 e + (1/2) sum_ij N_ij^2 / (b_i + b_j)        (b: eigenvalues of the bend)

nats. By so much noise alone makes the gain left look larger than it is, which is taken off. A gain
that stands out of the noise is worth a step: a share of it where steps overshoot. One that does
not asks for more batches at the same
Gaussian, until noise costs less than the tolerance: averages grow, in the place of steps that fall.
The last step then has the noise of all the batches of its round.
"""

import dataclasses
import functools
import math

import numpy as np
from jaxtyping import Float

from .._arrays._draws import BATCHES, Draws, Nodes, generator_of, key_words
from .._density._batches import Batch, BatchSource
from .._density._protocol import Points, Rule
from .._errors import Code
from .._watch import tell
from ._bound import Shape
from ._stein import (
    FIRST_REACH,
    Move,
    Past,
    SteinState,
    best_move,
    moved,
    shape_gradient,
    within_reach,
)
from ._tilt import Learnt

# Batches of the first round; by how much a round grows; most standard errors that pass for noise.
FIRST, GROWTH, LUCK = 8, 4, 2.0
# Steps are halved where such a part of the slope comes back with the other sign; the shortest ones.
BACK, LEAST_SHARE = 0.25, 1 / 64

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


@dataclasses.dataclass(frozen=True)
class Round:
    """What some batches say of `N(mean, root root^T)`. `mean_only`: what the root lacks is not
    asked."""

    mean: Vector
    root: Square
    shapes: tuple[Shape, ...]
    mean_only: bool = False

    @property
    def n(self) -> int:
        return len(self.shapes)

    @functools.cached_property
    def shape(self) -> Shape:
        """The mean of all batches."""
        elbo = float(np.mean([one.elbo for one in self.shapes]))
        pull = np.mean([one.pull for one in self.shapes], axis=0)
        return Shape(elbo, pull, np.mean([one.bend for one in self.shapes], axis=0))

    @property
    def elbo_se(self) -> float:
        return float(np.std([one.elbo for one in self.shapes], ddof=1) / math.sqrt(self.n))

    @functools.cached_property
    def _along(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Along the axes of the bend: errors of pull and bend in every batch, and the curvatures of
        the bound in mean and log root."""
        values, vectors = self.shape.axes
        b = np.maximum(np.abs(values), 1e-3)
        pulls = np.stack([vectors.T @ (one.pull - self.shape.pull) for one in self.shapes])
        bends = [vectors.T @ (one.bend - self.shape.bend) @ vectors for one in self.shapes]
        return pulls, np.stack(bends), b, b[:, None] + b

    @functools.cached_property
    def noise(self) -> float:
        """Nats that it costs to step by these means."""
        pulls, bends, b, both = self._along
        cost = (0.5 * pulls**2 / b).sum()
        if not self.mean_only:
            cost += (0.5 * bends**2 / both).sum()
        return float(cost / (self.n * (self.n - 1)))

    @property
    def gain_and_noise(self) -> float:
        shape = self.shape
        return shape.gain_mean if self.mean_only else shape.gain_mean + shape.gain_root

    @property
    def gain(self) -> float:
        """Nats still to be had, without those that noise feigns: as likely too high as too low."""
        return self.gain_and_noise - self.noise

    @functools.cached_property
    def gain_se(self) -> float:
        """From how the gain varies with every batch, and what it has of squared noise."""
        pulls, bends, b, both = self._along
        values, vectors = self.shape.axes
        steepest = pulls @ ((vectors.T @ self.shape.pull) / b)
        if not self.mean_only:
            lack = np.diag(1 - values)
            steepest = steepest - (bends * lack / both).sum((1, 2))
        return math.hypot(steepest.std(ddof=1) / math.sqrt(self.n), math.sqrt(2) * self.noise)

    def stands_out(self, tol: float) -> bool:
        """The gain, above the noise and worth a step."""
        return self.gain > max(tol, LUCK * self.gain_se)

    def and_more(self, other: "Round") -> "Round":
        return dataclasses.replace(self, shapes=(*self.shapes, *other.shapes))


class Asker:
    """Asks fresh batches for rounds, over fresh draws or the same nodes."""

    def __init__(self, source: BatchSource, spec: Draws | Nodes, key: object):
        self.source, self.spec, self.words, self.n_asked = source, spec, key_words(key), 0

    def round(self, mean: Vector, root: Square, n: int, mean_only: bool = False) -> Round:
        def shape(batch: Batch, rule: Rule) -> Shape:
            return Shape.of(batch.expect(mean, root, rule), root)

        rules = [self._rule() for _ in range(n)]
        shapes = self.source.fresh(n).asked(shape, rules)
        return Round(mean, root, tuple(shapes), mean_only)

    def _rule(self) -> Rule:
        self.n_asked += 1
        if isinstance(self.spec, Nodes):
            return self.spec
        rng = generator_of((*self.words, self.n_asked), BATCHES)
        return Points(self.spec.points(rng, self.source.whole.dim), paired=True)


@dataclasses.dataclass(frozen=True)
class NoisyState:
    """Where the steps have ended, and the round that they ended with."""

    state: SteinState
    last: Round
    n_batches: int


def noisy_stein(
    asker: Asker,
    mean: Vector,
    root: Square,
    tol: float,
    most: int,
    mean_only: bool = False,
    first: Round | None = None,
) -> NoisyState:
    """Ends where less than `tol` nats are left to gain and noise costs less than that, or after
    `most` batches. `first`: a round that was asked there."""
    now = asker.round(mean, root, FIRST, mean_only) if first is None else first
    n_batches, share, name = now.n, 1.0, "mu" if mean_only else "full"
    before: Round | None = None
    step: Move | None = None

    def ended(code: Code) -> NoisyState:
        at = there = (now.mean, now.root)
        if code is Code.OK:
            there = _stepped(now, _step(now, share))
        learnt = Learnt.nothing(len(now.mean))
        left = max(now.gain, 0.0) if code is not Code.OK else now.noise
        state = SteinState(
            asker.source.whole, learnt, *there, at, now.shape, Past(), left, n_batches, code
        )
        return NoisyState(state, now, n_batches)

    if not now.shape.finite:
        return ended(Code.NON_FINITE_DRAWS)
    while True:
        left = max(now.gain, 0.0)
        tell(now.shape.elbo, left, now.n, lambda: (name, ended(Code.INTERRUPTED).state))
        if before is not None and _fell(before, now, tol):
            now, before, share = before, None, 0.25 * share
            if share < LEAST_SHARE:
                return ended(Code.BOUND_STUCK)
        elif not now.stands_out(tol):
            if now.noise <= tol:
                return ended(Code.OK)
            if n_batches >= most:
                return ended(Code.BOUND_OUT_OF_STEPS)
            wanted = math.ceil(now.n * now.noise / tol)
            more = min(max(wanted - now.n, 1), (GROWTH - 1) * now.n, most - n_batches)
            now = now.and_more(asker.round(now.mean, now.root, more, mean_only))
            n_batches += more
            continue
        elif before is not None and step is not None:
            share *= 0.5 if _overshot(before, now, step) else 1.5
            share = min(max(share, LEAST_SHARE), 1.0)
        if n_batches >= most:
            return ended(Code.BOUND_OUT_OF_STEPS)
        step = _step(now, share)
        new = asker.round(*_stepped(now, step), _enough_for(now), mean_only)
        n_batches += new.n
        if not new.shape.finite:
            share *= 0.25
            if share < LEAST_SHARE:
                return ended(Code.NON_FINITE_DRAWS)
            continue
        before, now = now, new


def _enough_for(now: Round) -> int:
    """Batches of the next round: as many as show a gain a quarter as large above the noise."""
    gain = max(now.gain, now.noise)
    wanted = math.ceil(4 * now.n * now.noise / gain) if math.isfinite(gain) else FIRST
    return max(FIRST, min(wanted, now.n))


def _fell(before: Round, now: Round, tol: float) -> bool:
    """The bound, by more than noise explains."""
    noise = math.hypot(before.elbo_se, now.elbo_se)
    return now.shape.elbo < before.shape.elbo - max(tol, 2 * LUCK * noise)


def _overshot(before: Round, now: Round, step: Move) -> bool:
    """Along the last step the bound falls again, and not by little."""
    was, left = (step.dot(shape_gradient(one.shape)) for one in (before, now))
    return left < -BACK * was


def _step(now: Round, share: float) -> Move:
    """A share of the step that the Gaussian model foresees, no longer than is trusted."""
    move = best_move(now.shape, shape_gradient(now.shape), Past(), FIRST_REACH)
    log_root = 0 * move.log_root if now.mean_only else share * move.log_root
    return within_reach(Move(share * move.mean, log_root), FIRST_REACH)[0]


def _stepped(now: Round, step: Move) -> tuple[Vector, Square]:
    if now.mean_only:
        return now.mean + now.root @ step.mean, now.root
    return moved(now.mean, now.root, *within_reach(step, FIRST_REACH)[:2])
