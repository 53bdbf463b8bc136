"""The distribution of one number, tabulated: density, distribution function, quantiles."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from .._errors import InputError

# Levels at which intervals of highest density are first sought, and halvings of where they begin.
N_BEGINNINGS, N_HALVINGS = 201, 60

Table = Float[np.ndarray, " points"]


@dataclasses.dataclass(frozen=True, eq=False)
class Marginal:
    """The distribution of one parameter: `post.marginal(name)`.

    `grid`: values in ascending order, `densities` and `shares` (of the mass below) there; between
    them a cubic goes through both. `name`: of the parameter; `corrected`: whether weighted draws
    have corrected the Gaussian's own. `moments`: mean and standard deviation, where they are known
    from the law; else `mean` and `std`, like `expectation`, are of the grid alone, which for a
    parameter ends 5.5 standard deviations of the unbounded one away: of a heavy tail they say
    too little.

    >>> import mixvi
    >>> post = mixvi.laplace(lambda w: -0.5 * (w["a"] - 1.0) ** 2, {"a": 0.0})
    >>> a = post.marginal("a")
    >>> round(a.mean, 3), round(a.std, 3), a.quantiles([0.05, 0.95]).round(3).tolist()
    (1.0, 1.0, [-0.645, 2.645])
    >>> a.hdi(0.9).round(2).tolist(), round(float(a.density(1.0)), 3), round(float(a.cdf(1.0)), 3)
    ([-0.64, 2.64], 0.399, 0.5)
    """

    name: str
    grid: Table
    densities: Table
    shares: Table
    corrected: bool = False
    moments: tuple[float, float] | None = None

    @classmethod
    def of_density(
        cls, name: str, grid: Table, densities: Table, corrected: bool = False
    ) -> "Marginal":
        """Of an unnormalised density on a grid: integrated as a cubic spline."""
        from scipy.interpolate import CubicSpline  # 0.2 s, and few need it

        whole = CubicSpline(grid, densities).antiderivative()
        shares = whole(grid)
        rising = np.maximum.accumulate(shares / shares[-1])
        return cls(name, grid, densities / shares[-1], rising, corrected)

    @functools.cached_property
    def _smooth(self) -> Any:
        from scipy.interpolate import CubicHermiteSpline

        return CubicHermiteSpline(self.grid, self.shares, self.densities, extrapolate=False)

    def density(self, x: Any) -> Any:
        """At one value or several; zero beyond the grid."""
        x = np.asarray(x, np.float64)
        found = np.nan_to_num(self._smooth(x, 1), nan=0.0)
        return np.maximum(found, 0.0)

    def cdf(self, x: Any) -> Any:
        """The share of the mass below."""
        x = np.clip(np.asarray(x, np.float64), self.grid[0], self.grid[-1])
        return np.clip(self._smooth(x), 0.0, 1.0)

    def quantiles(self, probs: Any) -> Float[np.ndarray, "*probs"]:
        """The values below which these shares lie: one number or several between 0 and 1."""
        wanted = np.asarray(probs, np.float64)
        if not ((wanted > 0) & (wanted < 1)).all():
            raise InputError(f"quantiles: probs must lie between 0 and 1, got {probs!r}.")
        place = np.searchsorted(self.shares, wanted).clip(1, len(self.grid) - 1)
        low, high = self.grid[place - 1], self.grid[place]
        for _ in range(N_HALVINGS):
            middle = 0.5 * (low + high)
            below = self._smooth(middle) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(0.5 * (low + high))

    def hdi(self, prob: Any = 0.9) -> Float[np.ndarray, "2"]:
        """The shortest interval that holds so much of the mass."""
        try:
            sound = 0 < float(prob) < 1
        except (TypeError, ValueError):
            sound = False
        if not sound:
            raise InputError(
                f"hdi: prob must be one number between 0 and 1, got {prob!r}. Of several, ask for "
                "one interval at a time."
            )

        def ends(begin: np.ndarray) -> np.ndarray:
            return self.quantiles(np.stack([begin, begin + prob]))

        low, high = 1e-9, 1 - prob - 1e-9
        begin = np.linspace(low, high, N_BEGINNINGS)
        for _ in range(3):  # ever finer around the shortest
            at = int(np.argmin(np.diff(ends(begin), axis=0)[0]))
            begin = np.linspace(begin[max(at - 1, 0)], begin[min(at + 1, len(begin) - 1)], 41)
        at = int(np.argmin(np.diff(ends(begin), axis=0)[0]))
        return ends(begin[at : at + 1])[:, 0]

    def expectation(self, function: Callable) -> float:
        """Of a function of the value, by the grid's own masses."""
        middle = 0.5 * (self.grid[1:] + self.grid[:-1])
        masses = np.diff(self.shares)
        at = (function(self.grid[1:]) + 4 * function(middle) + function(self.grid[:-1])) / 6
        return float(at @ masses / masses.sum())

    @functools.cached_property
    def mean(self) -> float:
        return self.expectation(lambda x: x) if self.moments is None else self.moments[0]

    @functools.cached_property
    def std(self) -> float:
        if self.moments is not None:
            return self.moments[1]
        return self.expectation(lambda x: (x - self.mean) ** 2) ** 0.5

    def __repr__(self) -> str:
        return f"Marginal({self.name!r}, mean={self.mean:.4g}, std={self.std:.4g})"
