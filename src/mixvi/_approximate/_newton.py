"""The search for a mode: damped Newton with exact Hessians.

With gradient `g` and negative Hessian `P` of the log density the step solves
`(P + lam |diag P|) p = g`: Levenberg and Marquardt's damping, which is blind to the units of each
coordinate. `lam = 0` is tried first, so that a well-behaved problem costs what plain Newton costs.
A trial point brings its own gradient and Hessian: it is seldom refused.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from .._arrays._triangular import solve_lower
from .._density._protocol import Density
from .._errors import Code
from .._watch import tell_newton

# The quadratic model's promise is kept well enough to accept / to trust more / to trust less.
ACCEPT, GOOD, POOR = 1e-4, 0.75, 0.25
LEAST_DAMPING = 1e-3
MOST_ESCAPES = 5
PATH_KEPT = 50
ESCAPES = np.array([0.03, 0.1, 0.3, 1.0, 3.0])

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


@dataclasses.dataclass(frozen=True)
class Place:
    """A point and all that is known of the log density there."""

    point: Vector
    value: float
    gradient: Vector
    precision: Square  # the negative Hessian

    @classmethod
    def at(cls, density: Density, point: Vector) -> "Place":
        value, gradient, hessian = density.curvature(point)
        return cls(point, value, gradient, -hessian)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.value) and bool(np.isfinite(self.gradient).all())


@dataclasses.dataclass(frozen=True)
class NewtonStep:
    """`p`, its decrement `sqrt(g^T (P + lam |diag P|)^-1 g)`, and the damping that made it."""

    move: Vector
    decrement: float
    damping: float


@dataclasses.dataclass(frozen=True)
class ModeSearch:
    """Where the search ended. `n_damped`: steps that were not Newton's own. `path`: where it came
    by, the first places."""

    place: Place
    n_steps: int
    n_damped: int
    code: Code
    path: tuple[Place, ...]


def newton(
    density: Density,
    start: Vector,
    tol: float,
    max_steps: int = 300,
    until: Callable[[Place], bool] | None = None,
) -> ModeSearch:
    """Ends where the decrement `sqrt(g^T P^-1 g)`, the distance to the mode in units of the
    curvature, is below `tol` and still shrinking as Newton's method makes it shrink; or at a place
    of which `until` is true."""
    here = Place.at(density, start)
    path, growth, n_steps, n_damped, n_escapes = [here], 4.0, 0, 0, 0

    def ended(code: Code) -> ModeSearch:
        return ModeSearch(here, n_steps, n_damped, code, tuple(path))

    if not here.finite:
        return ended(Code.NON_FINITE_START)
    step = newton_step(here, 0.0)
    if step.decrement <= tol and step.damping == 0:
        return ended(Code.OK)
    while n_steps < max_steps:
        n_steps, n_damped, last = n_steps + 1, n_damped + (step.damping > 0), step.decrement
        new, damping, growth = _tried(density, here, step, growth)
        tell_newton()
        if new is not here and len(path) < PATH_KEPT:
            path.append(new)
        here, step = new, newton_step(new, damping)
        if _arrived(here, step, last, tol, start, density.resolution):
            return ended(Code.OK)
        if until is not None and until(here):
            return ended(Code.RAN_OUT_OF_STEPS)
        # In a flat tail the damping must outgrow a curvature of nearly zero by any factor: the
        # search is stuck only when its steps no longer move the point.
        unmoved = bool((here.point + step.move == here.point).all())
        if unmoved and step.damping > 0 and step.decrement > tol:
            return ended(Code.STUCK)
        if step.damping > 0 and step.decrement <= tol:
            # At a saddle or a minimum the gradient vanishes but the curvature has the wrong sign.
            there = _escaped(density, here) if n_escapes < MOST_ESCAPES else None
            if there is None:
                # Stationary, and flat or curved the wrong way: the caller judges the Hessian.
                return ended(Code.OK)
            here, step, n_escapes = there, newton_step(there, 0.0), n_escapes + 1
    return ended(Code.RAN_OUT_OF_STEPS)


def newton_step(here: Place, damping: float) -> NewtonStep:
    """The damped step; where `P` is not positive definite, damped until it is."""
    step = _damped(here, damping)
    if math.isfinite(step.decrement):
        return step
    if not np.isfinite(here.precision).all():
        return NewtonStep(np.zeros_like(here.point), math.nan, max(damping, LEAST_DAMPING))
    scales = np.sqrt(_squared_scales(here.precision))
    lowest = float(np.linalg.eigvalsh(here.precision / scales / scales[:, None])[0])
    return _damped(here, max(damping, LEAST_DAMPING - 1.5 * min(lowest, 0.0)))


def _damped(here: Place, damping: float) -> NewtonStep:
    curved = here.precision + np.diag(damping * _squared_scales(here.precision))
    try:
        factor = np.linalg.cholesky(curved)
        half = solve_lower(factor, here.gradient)
        move = solve_lower(factor, half, transposed=True)
    except np.linalg.LinAlgError:
        return NewtonStep(np.zeros_like(here.point), math.nan, damping)
    decrement = float(np.sqrt(half @ half))
    return NewtonStep(move, decrement if np.isfinite(move).all() else math.nan, damping)


def _squared_scales(precision: Square) -> Vector:
    """`|diag P|`, kept away from zero."""
    diagonal = np.abs(np.diagonal(precision))
    floor = np.finfo(np.float64).eps * diagonal.max()
    return np.maximum(diagonal, floor if floor > 0 else 1.0)


def _tried(
    density: Density, old: Place, step: NewtonStep, growth: float
) -> tuple[Place, float, float]:
    """The place after a step, or the old one, and the damping that follows. `growth`: of the
    damping at the next refusal: 4, 8, 16, ... (Nielsen 1999)."""
    ratio = -math.inf
    new = old
    if math.isfinite(step.decrement):
        new = Place.at(density, old.point + step.move)
        # What the quadratic model promises: g^T p - p^T P p / 2 for the damped step.
        damped = step.damping * float((_squared_scales(old.precision) * step.move**2).sum())
        predicted = 0.5 * (step.decrement**2 + damped)
        noise = 8 * density.resolution * abs(old.value)
        if new.finite and predicted + noise > 0:
            ratio = (new.value - old.value + noise) / (predicted + noise)
    if ratio < POOR:
        damping = max(growth * step.damping, LEAST_DAMPING)
    else:
        damping = step.damping / 10 if ratio > GOOD else step.damping
    if ratio > ACCEPT:
        old, growth = new, 4.0
    else:
        growth = min(2 * growth, 1e4)
    return old, damping if damping >= LEAST_DAMPING else 0.0, growth


def _arrived(
    here: Place, step: NewtonStep, last: float, tol: float, start: Vector, rounding: float
) -> bool:
    """Close, and by a step that is small in the user's units too or shrinking fast.

    In the tail of `exp(-x)` the decrement goes to zero while every step has length one: there is
    no mode there, so a small decrement alone proves nothing.
    """
    if step.damping > 0:
        return False
    travelled = max(np.abs(here.point).max(), np.abs(here.point - start).max())
    small = bool(np.abs(step.move).max() <= max(1e-6, 10 * rounding) * travelled)
    fast = step.decrement <= 0.1 * last
    close = step.decrement <= tol and (small or fast)
    # As close as rounding allows: values cannot tell a smaller step from none.
    worn = step.decrement <= resolved(here.value, tol, rounding) and small and not fast
    return close or worn


def resolved(value: float, tol: float, rounding: float) -> float:
    """The smallest gradient that values can still tell from zero: a step of length |g| along g
    changes the value by |g|^2/2, which drowns in rounding below eps |value|."""
    return max(tol, math.sqrt(4 * rounding * abs(value)))


def _escaped(density: Density, here: Place) -> Place | None:
    """Along the direction of most negative curvature, both ways, as far as it pays."""
    scales = np.sqrt(_squared_scales(here.precision))
    _, vectors = np.linalg.eigh(here.precision / scales / scales[:, None])
    direction = vectors[:, 0] / scales
    candidates = here.point + np.concatenate([ESCAPES, -ESCAPES])[:, None] * direction
    values = density.values(candidates)
    values = np.where(np.isfinite(values), values, -np.inf)
    best = int(np.argmax(values))
    return Place.at(density, candidates[best]) if values[best] > here.value else None
