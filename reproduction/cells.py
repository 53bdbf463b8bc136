"""Our medians beside the printed ones, cell by cell, and whether they are no worse."""

import functools
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .experiments import EXPERIMENTS, METHODS, in_print, printed, tables
from .rows import Rows
from .statistics import Marks, marks, median_error


class Measure(NamedTuple):
    """Which field of a row stands for a printed number; VI_diag may have its own."""

    kind: str  # "lpd" or "error"
    field: str
    field_of_diag: str


MEASURES = {
    "joint LPD": Measure("lpd", "lpd", "lpd"),
    "joint LPD, VI_diag by test score": Measure("lpd", "lpd", "diag.lpd_best_test"),
    "error": Measure("error", "error", "error"),
    "error, VI_diag by test score": Measure("error", "error", "diag.error_best_test"),
    "error of single draws": Measure("error", "error_draws", "error_draws"),
}
LPD, LPD_BY_TEST, ERROR, ERROR_BY_TEST, ERROR_OF_DRAWS = MEASURES
BY_TEST = {LPD: LPD_BY_TEST, ERROR: ERROR_BY_TEST}
PLACE = ["protocol", "experiment", "set", "method"]


def metric_of(experiment: str, kind: str) -> str:
    return "lpd" if kind == "lpd" else EXPERIMENTS[experiment].second


def direction(field: str) -> int:
    """1 where higher is better."""
    return 1 if field in ("lpd", "pointwise", "elbo") else -1


def tolerance(experiment: str, metric: str, value: float) -> float:
    """What still counts as equal to a printed number: rounding and the noise of 10^4 draws."""
    if metric == "lpd":
        return 0.005 if EXPERIMENTS[experiment].per_point else max(0.005 * abs(value), 0.5)
    return 0.02 * abs(value) if metric == "mse" else 0.5


class Cells:
    """`table`: a line for each measure, protocol, experiment, set and method that has rows.
    `printed` is not a number where the paper has none; `shortfall` is how much worse."""

    def __init__(self, rows: Rows):
        self.rows = rows
        parts = [_of_measure(rows.fits, name, one) for name, one in MEASURES.items()]
        table = pd.concat(parts, ignore_index=True)
        known = printed()["value"].to_dict()
        names = zip(table.experiment, table.set, table.metric, table.method, strict=True)
        table["printed"] = [known.get(name, np.nan) for name in names]
        table["difference"] = table.ours - table.printed
        table["shortfall"] = [-direction(m) for m in table.metric] * table.difference
        allowed = zip(table.experiment, table.metric, table.printed, strict=True)
        table["tolerance"] = [tolerance(*one) for one in allowed]
        # Both numbers are decimals: a shortfall of exactly the tolerance must not fail by 1e-16.
        table["no_worse"] = table.shortfall <= table.tolerance * (1 + 1e-9) + 1e-12
        self.table = table
        self._by_place = {
            (one.measure, one.protocol, one.experiment, one.set, one.method): one
            for one in table.itertuples()
        }
        self.marks = functools.cache(self._marks)

    def get(self, measure: str, *place: str) -> Any | None:
        return self._by_place.get((measure, *place))

    def of(self, measure: str, protocol: str, experiments: Any = None) -> pd.DataFrame:
        """Those of the paper's cells that have rows."""
        table = self.table
        some = (table.measure == measure) & (table.protocol == protocol) & table.printed.notna()
        return table[some & table.experiment.isin(experiments or in_print())]

    def applies(self, protocol: str, measure: str) -> bool:
        """Whether any row has the measure's own field: one start leaves nothing to choose by its
        score."""
        one = MEASURES[measure]
        fits = self.rows.fits
        its = fits[fits.protocol == protocol]
        return one.field == one.field_of_diag or bool(its[one.field_of_diag].notna().any())

    def _marks(self, protocol: str, experiment: str, name: str, field: str) -> Marks:
        """Among the paper's methods, on the splits that all have."""
        return marks(self.rows.paired(protocol, experiment, name, field), direction(field))

    def marked(self, protocol: str, experiment: str, field: str) -> "Marked":
        found = [
            self.marks(protocol, experiment, name, field) for name in EXPERIMENTS[experiment].sets
        ]
        best = Counter(method for one in found for method in one.best)
        bullets = Counter(method for one in found if one.bullet for method in one.best)
        return Marked(best, bullets, sum(bool(one.best) for one in found))

    def misses(self, protocol: str) -> list["Miss"]:
        """Cells worse than printed, by our own rules, the worst in units of tolerance first."""
        found = pd.concat([self.of(measure, protocol, tables()) for measure in BY_TEST])
        found = found[~found.no_worse]
        found = found.iloc[np.argsort(-found.shortfall / found.tolerance, kind="stable")]
        return [_miss(self, one) for one in found.itertuples()]


def _of_measure(fits: pd.DataFrame, name: str, measure: Measure) -> pd.DataFrame:
    fits = fits[fits.experiment.isin(tables())]
    values = fits[measure.field].where(fits.method != "diag", fits[measure.field_of_diag])
    some = fits[PLACE].assign(value=values).dropna(subset="value")
    found = some.groupby(PLACE)["value"].agg(ours="median", n_splits="size").reset_index()
    metrics = [metric_of(one, measure.kind) for one in found.experiment]
    return found.assign(measure=name, metric=metrics)


def n_printed(kind: str, experiments: Any = None) -> int:
    """How many cells there are to compare with; the paper prints 110 of either kind."""
    wanted = {(one, metric_of(one, kind)) for one in experiments or in_print()}
    return sum(key[::2][:2] in wanted for key in printed().index)


class Marked(NamedTuple):
    """How often each method has the best median, and the bullet; on how many sets."""

    best: Counter[str]
    bullets: Counter[str]
    n_sets: int

    def most_often(self) -> tuple[str, ...]:
        top = max(self.best.values(), default=0)
        return tuple(method for method in METHODS if top and self.best[method] == top)


def printed_marks(experiment: str, kind: str) -> Marked:
    """The same, as printed."""
    found = printed().xs((experiment, metric_of(experiment, kind)), level=(0, 2)).reset_index()
    best, bullets = (Counter(found.method[found[one]]) for one in ("best", "significant"))
    return Marked(best, bullets, found.set.nunique())


# --- misses -----------------------------------------------------------------------------------


class Miss(NamedTuple):
    """A cell worse than printed beyond tolerance, with its splits and what may explain it."""

    cell: Any
    values: np.ndarray
    se: float  # of our median
    converged: float  # share of the splits on which the fit met its own test
    reasons: list[str]


def _miss(cells: Cells, one: Any) -> Miss:
    place = (one.protocol, one.experiment, one.set, one.method)
    its = _fits(cells, *place)
    values = its[MEASURES[one.measure].field].dropna().to_numpy()
    se, converged = median_error(values), float(its.converged.mean())
    said = []
    # The binary sets have published splits: with all of them, their noise is the paper's noise.
    all_of_them = one.n_splits == EXPERIMENTS[one.experiment].splits_of(one.set)
    noise = not (one.experiment == "binary" and all_of_them) and one.n_splits > 1
    if noise and one.shortfall - one.tolerance <= 2 * se:
        said.append("short by less than tolerance plus two standard errors of our median")
    by_test = cells.get(BY_TEST[one.measure], *place) if one.method == "diag" else None
    if by_test is not None and by_test.no_worse:
        said.append("no miss by the paper's rule for VI_diag (start with the better test score)")
    of_draws = cells.get(ERROR_OF_DRAWS, *place) if one.measure == ERROR else None
    if of_draws is not None and of_draws.no_worse:
        said.append("no miss when single draws are scored, as the paper seems to")
    said += _hyperparameters(cells, place)
    if converged < 0.9:
        said.append(f"converged on {100 * converged:.0f}% of the splits only")
    return Miss(one, values, se, converged, [*said, *_elsewhere(cells, one)])


def _fits(cells: Cells, protocol: str, experiment: str, name: str, method: str) -> pd.DataFrame:
    found = cells.rows.of(protocol, experiment, name)
    return found[found.method == method]


def _elsewhere(cells: Cells, one: Any) -> list[str]:
    """Another protocol that does not miss this cell, how its basis differs, and whether the better
    score has a much lower bound: then it is the bound that misleads. (The protocols differ by the
    priors of two hyperparameters, a few nats; on Cauchy data by the scale of y as well.)"""
    place = (one.experiment, one.set, one.method)
    ours = _fits(cells, one.protocol, *place).median(numeric_only=True)
    for protocol in cells.rows.protocols:
        other = cells.get(one.measure, protocol, *place)
        if protocol == one.protocol or other is None or not other.no_worse:
            continue
        theirs = _fits(cells, protocol, *place).median(numeric_only=True)
        said, far = f"protocol {protocol} reaches {other.ours:.2f}", 10
        if abs(theirs.n_basis - ours.n_basis) > 0:
            said += f" with {theirs.n_basis:.0f} basis functions instead of {ours.n_basis:.0f}"
        lower = ours.elbo_fixed - theirs.elbo_fixed
        if one.experiment != "cauchy" and lower >= far:
            said += f" at a bound lower by {lower:.1f}"
        return [said]
    return []


def _hyperparameters(cells: Cells, place: tuple[str, str, str, str]) -> list[str]:
    """Where the search for hyperparameters went, if that may explain a miss; medians over splits.

    Two equally likely classes give a joint LPD of `-n log 2`: a fit that says no more has learnt
    nothing from its inputs. And the bound of a mean field pays for every correlation: narrow basis
    functions have fewer, so it may prefer them where the evidence does not.
    """
    said, ours = [], _fits(cells, *place).median(numeric_only=True)
    width, chance = ours["hyper.log_width"], -ours.n_test * np.log(2)
    if place[1] == "binary" and abs(ours.lpd - chance) < 0.005 * abs(chance):
        said.append(
            f"no more than chance ({chance:.1f}), with basis functions of width {np.exp(width):.2g}"
        )
    narrower = _fits(cells, *place[:3], "laplace")["hyper.log_width"].median() - width
    if place[3] == "diag" and narrower > np.log(2):
        said.append(
            f"its bound makes the basis functions {np.exp(narrower):.1f} times narrower than "
            "Laplace's evidence does"
        )
    return said
