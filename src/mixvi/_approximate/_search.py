"""Searches over the bound of a family: quasi-Newton (BFGS) and scaled conjugate gradients.

Both climb; a point brings its own gradient; no search ever ends below its start.
"""

import collections
import dataclasses
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from .._errors import Code
from ._newton import resolved

# The coordinates are posterior standard deviations, so a longer step leaves what the quadratic
# model can know about.
LONGEST_STEP = 2.0
SHORTEST_BACKTRACK = 1e-7
MOST_RESTARTS = 3
SLOPE = 1e-4  # Armijo's
MISJUDGED = 2.0
# A dense inverse Hessian of more numbers than this squared is not worth its memory.
MOST_DENSE = 2000
PAIRS_KEPT = 20
# Steps in a row that rise by less than the noise of their values.
MOST_LEVEL = 3
# Of scaled conjugate gradients: the length of the difference that gives a curvature; the root of
# the gradients' rounding, where that is longer.
DIFFERENCE = 1e-5

Vector = Float[np.ndarray, " free"]
ValueAndGradient = Callable[[Vector], tuple[float, Vector]]


@dataclasses.dataclass(frozen=True)
class Stop:
    """When a search has converged: where less than `gain` nats are left or, with `tol`, where the
    gradient and the next step are below it, in posterior standard deviations. `last_step`: whether
    one more step is taken then, which the last pass has paid for."""

    gain: float = 1e-4
    tol: float | None = None
    max_steps: int = 1000
    last_step: bool = True

    @property
    def takes_last_step(self) -> bool:
        return self.last_step and self.tol is None


@dataclasses.dataclass(frozen=True)
class Summit:
    """The highest point found, and how the search ended. `next_step`: one that the last pass has
    paid for, where the gain left was the test."""

    point: Vector
    value: float
    gradient: Vector
    next_step: Vector
    gain_left: float
    n_passes: int
    code: Code


Watched = Callable[[Summit], None]


def unwatched(so_far: Summit) -> None:
    del so_far


class _InverseHessian:
    """Of the negative bound: dense below `MOST_DENSE` numbers, otherwise by pairs."""

    def __init__(self, size: int, first: Callable[[Vector], Vector] | None, dense: bool):
        self.size, self.first, self.dense = size, first, dense and size <= MOST_DENSE
        self.matrix: np.ndarray | None = None
        self.pairs: collections.deque[tuple[Vector, Vector]] = collections.deque(maxlen=PAIRS_KEPT)

    def times(self, gradient: Vector) -> Vector:
        if self.matrix is not None:
            return self.matrix @ gradient
        q, amounts = gradient, []
        for step, fall in reversed(self.pairs):
            amounts.append((step @ q) / (step @ fall))
            q = q - amounts[-1] * fall
        q = q if self.first is None else self.first(q)
        for (step, fall), amount in zip(self.pairs, reversed(amounts), strict=True):
            q = q + (amount - (fall @ q) / (step @ fall)) * step
        return q

    def learn(self, step: Vector, fall: Vector) -> None:
        product = float(step @ fall)
        if not product > 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(fall)):
            return
        if not self.dense:
            self.pairs.append((step, fall))
            return
        if self.matrix is None:
            eye = np.eye(self.size)
            self.matrix = eye if self.first is None else np.apply_along_axis(self.first, 0, eye)
        along = self.matrix @ fall
        scale = (1 + (fall @ along) / product) / product
        cross = np.outer(step, along) / product
        self.matrix = self.matrix + scale * np.outer(step, step) - cross - cross.T

    def forget(self) -> None:
        self.matrix, self.first = None, None
        self.pairs.clear()


def quasi_newton(
    evaluate: ValueAndGradient,
    start: Vector,
    stop: Stop,
    rounding: float,
    first: Callable[[Vector], Vector] | None = None,
    dense: bool = True,
    longest_step: float = LONGEST_STEP,
    watched: Watched = unwatched,
    noise: float = 0.0,
) -> Summit:
    """`first`: the inverse Hessian of the negative bound at the start, times a vector; the identity
    when left out. `noise`: of a value, beside rounding. `watched` is told at every pass where the
    search has come to."""
    point, (value, gradient) = start, evaluate(start)
    inverse = _InverseHessian(start.size, first, dense)
    n_passes, n_restarts, n_level, gain, misjudged = 1, 0, 0, math.inf, False

    def ended(code: Code, paid: Vector | None = None) -> Summit:
        paid = np.zeros_like(start) if paid is None else paid
        return Summit(point, value, gradient, paid, gain, n_passes, code)

    if not math.isfinite(value) or not np.isfinite(gradient).all():
        return ended(Code.NON_FINITE_DRAWS)
    while True:
        step = _capped(inverse.times(gradient), longest_step)
        if not float(step @ gradient) > 0:
            inverse.forget()
            step = _capped(gradient, longest_step)
        gain = 0.5 * float(step @ gradient)
        watched(ended(Code.INTERRUPTED))
        if not misjudged and _settled(value, gradient, step, gain, stop, rounding):
            return ended(Code.OK, step if stop.takes_last_step else None)
        if n_level > MOST_LEVEL:
            return ended(Code.BOUND_STUCK)
        share = 1.0
        while True:
            if n_passes >= stop.max_steps:
                return ended(Code.BOUND_OUT_OF_STEPS)
            there = point + share * step
            new_value, new_gradient = evaluate(there)
            n_passes += 1
            finite = math.isfinite(new_value) and bool(np.isfinite(new_gradient).all())
            least = value + SLOPE * share * 2 * gain - noise - 8 * rounding * abs(value)
            if finite and new_value >= least:
                inverse.learn(share * step, gradient - new_gradient)
                # A search that rises by more than it foresaw does not know its own curvature.
                rise = new_value - value
                misjudged = stop.tol is None and rise > max(MISJUDGED * gain, stop.gain)
                n_level = n_level + 1 if rise < noise else 0
                point, value, gradient = there, max(new_value, value), new_gradient
                break
            share *= 0.5 if not finite else _shortened(value, new_value, share, 2 * gain)
            if share < SHORTEST_BACKTRACK:
                # A search that has backtracked to nothing starts again along the gradient.
                n_restarts += 1
                if n_restarts > MOST_RESTARTS or inverse.first is inverse.matrix is None:
                    return ended(Code.BOUND_STUCK)
                inverse.forget()
                break
            watched(ended(Code.INTERRUPTED))


def _capped(step: Vector, longest_step: float) -> Vector:
    longest = np.abs(step).max(initial=0.0)
    return step * (longest_step / longest) if longest > longest_step else step


def _shortened(value: float, new_value: float, share: float, slope: float) -> float:
    """Where the parabola through what is known has its top, as a factor of the last share."""
    fall = value + share * slope - new_value
    best = 0.5 * share * slope / fall if fall > 0 else 0.5
    return float(np.clip(best, 0.1, 0.5))


def _settled(
    value: float, gradient: Vector, step: Vector, gain: float, stop: Stop, rounding: float
) -> bool:
    if stop.tol is None:
        return gain <= max(stop.gain, 4 * rounding * abs(value))
    smallest = resolved(value, stop.tol, rounding)
    return bool(
        np.abs(gradient).max(initial=0.0) <= smallest and np.abs(step).max(initial=0.0) <= smallest
    )


def scaled_conjugate_gradients(
    evaluate: ValueAndGradient,
    start: Vector,
    stop: Stop,
    rounding: float,
    watched: Watched = unwatched,
) -> Summit:
    """Moller (1993), the paper's optimiser, with his names in the comments. His difference of
    gradients costs a pass for every new direction."""
    point, (value, gradient) = start, evaluate(start)
    nowhere, n_passes, since_restart, accepted = np.zeros_like(start), 1, 0, True
    direction, product, damping = gradient, nowhere, 1e-6  # p, s = H p, lambda
    difference = max(DIFFERENCE, math.sqrt(rounding))
    if not math.isfinite(value) or not np.isfinite(gradient).all():
        return Summit(point, value, gradient, nowhere, math.inf, 1, Code.NON_FINITE_DRAWS)

    def ended(code: Code) -> Summit:
        return Summit(
            point, value, gradient, nowhere, 0.5 * float(gradient @ gradient), n_passes, code
        )

    while True:
        watched(ended(Code.INTERRUPTED))
        # A conjugate step says little of the distance left: the gradient stands in for both.
        if _settled(value, gradient, gradient, 0.5 * float(gradient @ gradient), stop, rounding):
            return ended(Code.OK)
        if damping >= 1e20:
            return ended(Code.BOUND_STUCK)
        if n_passes + 2 > stop.max_steps:
            return ended(Code.BOUND_OUT_OF_STEPS)
        square = float(direction @ direction)
        if accepted:
            # Step 2, second-order information: only for a new direction.
            sigma = difference / math.sqrt(square)
            product = (gradient - evaluate(point + sigma * direction)[1]) / sigma
            n_passes += 1
        # Steps 3 and 4: delta = p^T s + lambda |p|^2, made positive where it is not.
        delta = float(direction @ product) + damping * square
        if delta <= 0:
            raised = 2 * (damping - delta / square)
            delta, damping = -delta + damping * square, raised
        # Steps 5 and 6: step size and comparison parameter Delta.
        slope = float(gradient @ direction)  # mu
        there = point + (slope / delta) * direction
        new_value, new_gradient = evaluate(there)
        n_passes += 1
        finite = math.isfinite(new_value) and bool(np.isfinite(new_gradient).all())
        comparison = 2 * delta * (new_value - value) / slope**2 if finite else -math.inf
        # Step 8: lambda by how well the quadratic model held (a guard keeps it from overflowing).
        if comparison >= 0.75:
            damping /= 4
        elif comparison < 0.25:
            growth = delta * (1 - comparison) / square if finite else 3 * damping
            damping += growth
        damping = float(np.clip(damping, 1e-15, 1e20))
        accepted = comparison >= 0
        if accepted:
            # Step 7: a new conjugate direction, restarted every n steps.
            restart = since_restart + 1 >= start.size
            beta = float(new_gradient @ new_gradient - new_gradient @ gradient) / slope
            following = new_gradient + (0.0 if restart else beta) * direction
            downhill = float(following @ new_gradient) <= 0
            direction = new_gradient if downhill else following
            since_restart = 0 if restart or downhill else since_restart + 1
            point, value, gradient = there, new_value, new_gradient
