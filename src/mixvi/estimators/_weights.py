"""Sample weights, and robust centres and scales under them."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from .._arrays._scale import mean_and_sd
from .._errors import InputError


def weights_of(x: Any, y: Any, sample_weight: Any) -> tuple:
    """Rows that count, and how much."""
    if sample_weight is None:
        return x, y, np.ones(len(x))
    weight = np.asarray(sample_weight, dtype=np.float64)
    weight = np.full(len(x), weight) if weight.ndim == 0 else column_or_1d(weight)
    check_consistent_length(x, weight)
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise InputError("sample_weight must be finite and not negative.")
    counts = weight > 0
    if not counts.any():
        raise InputError("sample_weight is zero for every row: nothing is left to fit.")
    return x[counts], y[counts], weight[counts]


def weighted_median(values: np.ndarray, weight: np.ndarray) -> float:
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order]) / weight.sum()
    return float(values[order][np.searchsorted(share, 0.5 * (1 - 1e-12))])


def centre_and_scale(y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Median and scaled median absolute deviation; the standard deviation where that is zero."""
    centre = weighted_median(y, weight)
    scale = 1.4826 * weighted_median(np.abs(y - centre), weight)
    if not scale > 0:
        scale = float(mean_and_sd(y[:, None], weight / weight.sum())[1][0])
    return centre, scale if scale > 0 else 1.0


def standardiser(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature; a constant one is divided by infinity."""
    centre, scale = mean_and_sd(x, weight / weight.sum())
    return centre, np.where(scale > 0, scale, np.inf)
