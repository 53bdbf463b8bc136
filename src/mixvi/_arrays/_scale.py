"""Means and standard deviations of columns, also of those that lie far from zero."""

import numpy as np
from jaxtyping import Bool, Float

# In units of the largest entry: what rounding alone can make of a column that is constant.
ROUNDING = 16 * np.finfo(np.float64).eps


def mean_and_sd(
    x: Float[np.ndarray, "n features"], share: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]:
    """`share`: of every row, one in sum. The standard deviation of a column that cannot be told
    from a constant is zero."""
    # In units of a power of two, which round nothing and whose square neither over- nor underflows.
    unit = np.exp2(np.frexp(np.abs(x).max(0))[1] - 1.0)
    scaled = x / unit
    mean = share @ scaled
    mean = mean + share @ (scaled - mean)  # twice: the sum of large numbers was rounded
    sd = np.sqrt(share @ (scaled - mean) ** 2)
    return mean * unit, np.where(sd > ROUNDING, sd, 0.0) * unit


def told_from_constant(x: Float[np.ndarray, "n features"]) -> Bool[np.ndarray, " features"]:
    return mean_and_sd(x, np.full(len(x), 1 / len(x)))[1] > 0
