"""A gradient that a user gives, held against differences of the log density.

It speaks only where it is sure: two steps agree with each other, neither shows a kink, and both are
far from what is given, by more than the rounding of single precision could do.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .._errors import InputError
from ._protocol import Density
from ._structure import listed

# Up to so many parameters each is looked at; of more, so many directions.
EACH, FEW = 20, 4
# In units of max(1, |w|).
STEPS = (1e-2, 1e-3)
ASIDE = 0.1
GROSS, AGREEING, ROUNDING = 1e-2, 0.1, 1e-6

Vector = Float[np.ndarray, " dim"]
Each = Float[np.ndarray, " n"]
Directions = Float[np.ndarray, "n dim"]


def check_gradient(density: Density, start: Vector, names: tuple[str, ...], whose: str) -> None:
    """Refuses a gradient that is not that of the log density, and names the parameter. Looks beside
    the start, where no derivative vanishes by symmetry, or at the start where it cannot."""
    aside = ASIDE * np.maximum(1.0, np.abs(start)) * np.cos(np.arange(start.size) ** 2 + 1.0)
    for point in (start + aside, start):
        try:
            with np.errstate(all="ignore"):
                is_looked_at, wrong = _looked_at(density, point)
        except Exception:  # outside of what the function can do: a fit that comes there says so
            continue
        if wrong is not None:
            raise InputError(_sentence(wrong, point, names, whose))
        if is_looked_at:
            return


class _Wrong(NamedTuple):
    place: int
    given: float
    quotient: float


def _looked_at(density: Density, point: Vector) -> tuple[bool, _Wrong | None]:
    """Whether the log density is finite here, and the parameter that is worst off."""
    values, gradients = density.gradients(point[None])
    value, scales = float(values[0]), np.maximum(1.0, np.abs(point))
    given = gradients[0] * scales
    if not (np.isfinite(value) and np.isfinite(given).all()):
        return False, None
    if point.size > EACH:
        turns = np.arange(1.0, point.size + 1) ** 2
        few = [np.sign(np.cos((k + 1) * turns)) / point.size**0.5 for k in range(FEW)]
        steepest = np.arange(point.size) == np.argmax(np.abs(given))
        some = np.stack([*few, steepest])
        sizes = np.linalg.norm(some * given, axis=1)
        wrong, _ = _contradicted(density, point, value, some @ given, sizes, some * scales)
        if not wrong.any():
            return True, None
    each = np.diag(scales)
    wrong, quotients = _contradicted(density, point, value, given, np.abs(given), each)
    if not wrong.any():
        return True, None
    off = np.abs(given - quotients) / (np.abs(given) + np.abs(quotients))
    worst = int(np.argmax(np.where(wrong, off, -np.inf)))
    own, its = (float(one[worst] / scales[worst]) for one in (given, quotients))
    return True, _Wrong(worst, own, its)


def _contradicted(
    density: Density, point: Vector, value: float, given: Each, sizes: Each, directions: Directions
) -> tuple[Bool[np.ndarray, " n"], Each]:
    """Along which directions the derivatives given are wrong, and what differences give there.
    `sizes`: what `given` is a sum of, in length."""
    wrong, quotients = np.full(len(given), True), np.full((len(STEPS), len(given)), np.nan)
    for step, of_step in zip(STEPS, quotients, strict=True):
        at = np.flatnonzero(wrong)
        shifts = step * directions[at]
        ahead, behind = np.split(
            density.values(np.concatenate([point + shifts, point - shifts])), 2
        )
        of_step[at] = quotient = (ahead - behind) / (2 * step)
        off = np.abs(given[at] - quotient)
        rounding = ROUNDING * np.maximum(np.abs(ahead), np.abs(behind)) / step
        gross = off > GROSS * np.maximum(sizes[at], np.abs(quotient)) + rounding
        moves = (ahead != value) | (behind != value)
        # At a kink the slopes on both sides differ by twice as much.
        smooth = np.abs(ahead + behind - 2 * value) / step < off
        wrong[at] = gross & moves & smooth
        if not wrong.any():
            return wrong, of_step
    some, others = quotients
    rounding = ROUNDING * abs(value) / STEPS[0]
    least = np.minimum(np.abs(others), np.abs(given - others))
    return wrong & (np.abs(some - others) <= AGREEING * least + rounding), others


def _sentence(wrong: _Wrong, point: Vector, names: tuple[str, ...], whose: str) -> str:
    shown = [f"{name}={value:.4g}" for name, value in zip(names, point, strict=True)]
    opposite = abs(wrong.given + wrong.quotient) < GROSS * abs(wrong.given)
    return (
        f"{whose}: the gradient is not that of the log density. In {names[wrong.place]} it is "
        f"{wrong.given:.6g} at {listed(shown, 4)}, but differences of the log density give "
        f"{wrong.quotient:.6g}{', the opposite' if opposite else ''}: correct it, or write the log "
        "density with jax.numpy, which needs none."
    )
