"""A few values by which a log density is known again, in another process."""

import numpy as np
from jaxtyping import Float

from .._errors import MixviError
from ._protocol import Density

# A log density rounds otherwise on another CPU.
SAME = 1e-9
# How far from the start, where it is near zero. At the start alone, zeros say, priors of other
# widths without their constants would look the same.
SHIFTS = (0.0, 0.1, -0.23)

Values = list[float | None]


def probed(
    density: Density, start: Float[np.ndarray, " dim"], theta: Float[np.ndarray, " hyper"]
) -> Values:
    """At the start and near it, with other hyperparameters as well; None where it is not finite."""
    direction = np.cos(np.arange(1, len(start) + 1)) * np.maximum(1.0, np.abs(start))
    points = np.stack([start + shift * direction for shift in SHIFTS])
    found = [_values(density, points)]
    if density.n_hyper:
        found.append(_values(density.at(np.asarray(theta, dtype=np.float64) + SHIFTS[1]), points))
    return [float(one) if np.isfinite(one) else None for one in np.concatenate(found)]


def _values(density: Density, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
    try:
        return np.asarray(density.values(points), dtype=np.float64)
    except MixviError:  # beside the start it may be undefined
        return np.array([*density.values(points[:1]), *np.full(len(points) - 1, np.nan)])


def same(was: Values, now: Values) -> bool:
    return len(was) == len(now) and all(map(_same, was, now))


def _same(was: float | None, now: float | None) -> bool:
    if was is None or now is None:
        return was is now
    return abs(now - was) <= SAME * max(1.0, abs(was))
