"""Medians over splits and what can be said of their differences, as the paper measures them.

A larger number is better everywhere in this module: callers turn the sign of errors. Two methods
are paired by split, and resampled by the same resamples, because hard splits are hard for both.
"""

import functools
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

N_RESAMPLES = 10_000
SEED = 20190
LEVEL = 0.05


class Signs(NamedTuple):
    """On how many splits the first method was better, worse and equal; two-sided p of the rest."""

    wins: int
    losses: int
    ties: int
    p: float

    @property
    def verdict(self) -> int:
        """1 when the first is significantly better, -1 when worse, 0 when nothing is shown."""
        if self.p >= LEVEL:
            return 0
        return 1 if self.wins > self.losses else -1


class Interval(NamedTuple):
    low: float
    high: float


def sign_test(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"]) -> Signs:
    """Two-sided sign test of the pairs. Ties say nothing and are dropped; only ties: p = 1."""
    wins, losses = int((first > second).sum()), int((first < second).sum())
    p = scipy.stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    return Signs(wins, losses, len(first) - wins - losses, float(p))


def median_difference(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"]) -> Interval:
    """95% percentile bootstrap of median(first) - median(second), splits resampled in pairs."""
    medians = resampled_medians(np.stack([first, second], axis=1))
    return _interval(medians[:, 0] - medians[:, 1])


def median_error(values: Float[np.ndarray, " n"]) -> float:
    """Bootstrap standard error of the median; not a number for fewer than two values."""
    if len(values) < 2:
        return float("nan")
    return float(resampled_medians(values[:, None])[:, 0].std(ddof=1))


def significant(best: Float[np.ndarray, " n"], others: Float[np.ndarray, "n k"]) -> bool:
    """The paper's bullet: against EVERY other method the sign test rejects at 5%, and the 95%
    interval of the difference of medians leaves out 0; both in favour of `best`."""
    if not len(best) or not others.shape[1]:
        return False
    if any(sign_test(best, other).verdict != 1 for other in others.T):
        return False  # the cheap condition first
    medians = resampled_medians(np.column_stack([best, others]))
    differences = medians[:, :1] - medians[:, 1:]
    return all(_interval(difference).low > 0 for difference in differences.T)


def resampled_medians(values: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "resamples k"]:
    """The medians of every column in 10^4 resamples of the rows, the same ones for all columns."""
    n = len(values)
    index = _resamples(n)
    middle = ((n - 1) // 2, n // 2)
    medians = np.empty((len(index), values.shape[1]))
    for column, of_method in enumerate(values.T):
        chosen = of_method[index]
        # Only the middle has to be in its place: several times faster than np.median.
        chosen.partition(middle, axis=1)
        medians[:, column] = chosen[:, middle].mean(axis=1)
    return medians


@functools.lru_cache(maxsize=8)
def _resamples(n: int) -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, n, (N_RESAMPLES, n))


def _interval(differences: Float[np.ndarray, " resamples"]) -> Interval:
    low, high = np.quantile(differences, (LEVEL / 2, 1 - LEVEL / 2))
    return Interval(float(low), float(high))
