"""A few values by which a log density is known again, in another process."""

import contextlib

import numpy as np
from jaxtyping import Float

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
    """At the start and near it, with other hyperparameters as well; None where it says nothing."""
    direction = np.cos(np.arange(1, len(start) + 1)) * np.maximum(1.0, np.abs(start))
    points = np.stack([start + shift * direction for shift in SHIFTS])
    nothing = np.full(len(points) - 1, np.nan)
    try:
        found = [np.asarray(density.values(points))]
    except Exception:  # beside the start it may be undefined; where it is not even there, raised
        found = [np.asarray(density.values(points[:1])), nothing]
    if density.n_hyper:
        with contextlib.suppress(Exception):
            other = density.at(np.asarray(theta, dtype=np.float64) + SHIFTS[1])
            found.append(np.asarray(other.values(points)))
    return [float(one) if np.isfinite(one) else None for one in np.concatenate(found)]


def same(was: Values, now: Values) -> bool:
    """As far as both say something."""
    known = (pair for pair in zip(was, now, strict=False) if None not in pair)
    return all(abs(b - a) <= SAME * max(1.0, abs(a)) for a, b in known)  # type: ignore[arg-type]
