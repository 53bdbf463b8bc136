"""Medians over splits and what can be said of their differences, as the paper measures them.

A larger number is better everywhere in this module: callers turn the sign of errors. Two methods
are paired by split, and resampled by the same resamples, because hard splits are hard for both.
"""

import functools
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.stats

N_RESAMPLES = 10_000
SEED = 20190
LEVEL = 0.05
FEWEST = 6  # splits: even if all agree, fewer have a two-sided p of at least 2 / 2^5 > 5%


class Signs(NamedTuple):
    """On how many splits the first method was better, worse and equal; two-sided p of the rest."""

    wins: int
    losses: int
    ties: int
    p: float

    @property
    def verdict(self) -> int:
        """1 when the first is significantly better, -1 when worse, 0 when nothing is shown."""
        return int(np.sign(self.wins - self.losses)) if self.p < LEVEL else 0


def sign_test(first: np.ndarray, second: np.ndarray) -> Signs:
    """Two-sided sign test of the pairs. Ties say nothing and are dropped; only ties: p = 1."""
    wins, losses = int((first > second).sum()), int((first < second).sum())
    p = scipy.stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    return Signs(wins, losses, len(first) - wins - losses, float(p))


@functools.lru_cache(maxsize=8)
def _resamples(n: int) -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, n, (N_RESAMPLES, n))


def resampled_medians(values: np.ndarray) -> np.ndarray:
    """In 10^4 resamples, the same ones for all values of that number."""
    chosen, middle = values[_resamples(len(values))], [(len(values) - 1) // 2, len(values) // 2]
    # Only the middle has to be in its place: several times faster than np.median.
    chosen.partition(middle, axis=1)
    return chosen[:, middle].mean(axis=1)


def median_difference(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """95% percentile bootstrap of median(first) - median(second), splits resampled in pairs."""
    differences = resampled_medians(first) - resampled_medians(second)
    low, high = np.quantile(differences, (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high)


def median_error(values: np.ndarray) -> float:
    """Bootstrap standard error of the median; not a number for fewer than two values."""
    return float(resampled_medians(values).std(ddof=1)) if len(values) > 1 else np.nan


def significant(best: np.ndarray, others: np.ndarray) -> bool:
    """The paper's bullet: against EVERY other method (a column each) the sign test rejects at 5%,
    and the 95% interval of the difference of medians leaves out 0; both in favour of `best`."""
    if not len(best) or not others.shape[1]:
        return False
    if any(sign_test(best, other).verdict != 1 for other in others.T):
        return False  # the cheap condition first
    return all(median_difference(best, other)[0] > 0 for other in others.T)


class Marks(NamedTuple):
    """The methods with the best median (several when they tie), and whether it is significant."""

    best: tuple[str, ...] = ()
    bullet: bool = False


def marks(paired: pd.DataFrame, direction: int) -> Marks:
    """As the paper marks its tables. `paired`: a line a split, a column a method."""
    if paired.shape[1] < 2 or not len(paired):
        return Marks()
    values = direction * paired.to_numpy()
    medians = np.median(values, axis=0)
    top = np.flatnonzero(medians == medians.max())
    others = np.delete(values, top[0], axis=1)
    bullet = len(top) == 1 and significant(values[:, top[0]], others)
    return Marks(tuple(paired.columns[top]), bullet)
