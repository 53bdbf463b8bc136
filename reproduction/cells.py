"""Our medians beside the printed ones, cell by cell, and whether they are no worse."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .experiments import EXPERIMENTS, in_print, printed, tables
from .rows import Rows
from .statistics import Marks, marks, median_error


class Measure(NamedTuple):
    """Which field of a row stands for a printed number; VI_diag may have its own."""

    kind: str  # "lpd", "error" or "pointwise", which the paper does not have
    field: str
    field_of_diag: str


MEASURES = {
    "joint LPD": Measure("lpd", "lpd", "lpd"),
    "joint LPD, VI_diag by test score": Measure("lpd", "lpd", "diag.lpd_best_test"),
    "error": Measure("error", "error", "error"),
    "error, VI_diag by test score": Measure("error", "error", "diag.error_best_test"),
    "error of single draws": Measure("error", "error_draws", "error_draws"),
    "pointwise LPD": Measure("pointwise", "pointwise", "pointwise"),
}
LPD, LPD_BY_TEST, ERROR, ERROR_BY_TEST, ERROR_OF_DRAWS, POINTWISE = MEASURES
BY_TEST = {LPD: LPD_BY_TEST, ERROR: ERROR_BY_TEST}
PLACE = ["protocol", "experiment", "set", "method"]


def metric_of(experiment: str, kind: str) -> str:
    return EXPERIMENTS[experiment].second if kind == "error" else kind


def tolerance(experiment: str, metric: str, value: float) -> float:
    """What still counts as equal to a printed number: rounding and the noise of 10^4 draws."""
    if metric == "lpd":
        return 0.005 if EXPERIMENTS[experiment].per_point else max(0.005 * abs(value), 0.5)
    return 0.02 * abs(value) if metric == "mse" else 0.5


class Miss(NamedTuple):
    """A cell worse than printed beyond tolerance, with its splits and what may explain it."""

    cell: Any
    values: np.ndarray
    se: float  # of our median
    converged: float  # share of the splits on which the fit met its own test
    reasons: list[str]


class Cells:
    """`table`: a line for each measure, protocol, experiment, set and method that has rows.
    `printed` is not a number where the paper has none; `shortfall` is how much worse."""

    def __init__(self, rows: Rows):
        self.rows = rows
        table = pd.concat([_medians(rows.fits, name) for name in MEASURES], ignore_index=True)
        known = printed()["value"].rename("printed")
        table = table.join(known, on=["experiment", "set", "metric", "method"])
        table["difference"] = table.ours - table.printed
        table["shortfall"] = np.where(table.metric == "lpd", -1, 1) * table.difference
        allowed = zip(table.experiment, table.metric, table.printed, strict=True)
        table["tolerance"] = [tolerance(*one) for one in allowed]
        # Both numbers are decimals: a shortfall of exactly the tolerance must not fail by 1e-16.
        table["no_worse"] = table.shortfall <= table.tolerance * (1 + 1e-9) + 1e-12
        self.table = table
        by_place = table.set_index(["measure", *PLACE], drop=False)
        self._by_place = dict(zip(by_place.index, table.itertuples(), strict=True))
        self.marks = functools.cache(self._marks)

    def get(self, measure: str, *place: str) -> Any | None:
        return self._by_place.get((measure, *place))

    def of(self, measure: str, protocol: str, experiments: Sequence[str] = ()) -> pd.DataFrame:
        """Those of the paper's cells that have rows."""
        table = self.table
        some = (table.measure == measure) & (table.protocol == protocol) & table.printed.notna()
        return table[some & table.experiment.isin(experiments or in_print())]

    def applies(self, protocol: str, measure: str) -> bool:
        """Whether there is something to count: the paper has no pointwise LPD, and one start of
        VI_diag leaves nothing to choose by its score."""
        kind, field, field_of_diag = MEASURES[measure]
        fits = self.rows.fits
        its = fits.loc[fits.protocol == protocol, field_of_diag]
        return kind != "pointwise" and (field == field_of_diag or bool(its.notna().any()))

    def _marks(self, protocol: str, experiment: str, name: str, field: str) -> Marks:
        """Among the paper's methods, on the splits that all have."""
        direction = -1 if field.startswith("error") else 1
        return marks(self.rows.paired(protocol, experiment, name, field), direction)

    def misses(self, protocol: str) -> list[Miss]:
        """Cells worse than printed, by our own rules, the worst in units of tolerance first."""
        found = pd.concat([self.of(measure, protocol, tables()) for measure in BY_TEST])
        found = found[~found.no_worse]
        found = found.iloc[np.argsort(-found.shortfall / found.tolerance, kind="stable")]
        return [self._miss(one) for one in found.itertuples()]

    def _miss(self, one: Any) -> Miss:
        its = self.rows.of(one.protocol, one.experiment, one.set, one.method)
        values = its[MEASURES[one.measure].field].dropna().to_numpy()
        se, converged = median_error(values), float(its.converged.mean())
        reasons = list(_reasons(self, one, se, converged))
        return Miss(one, values, se, converged, reasons)


def _medians(fits: pd.DataFrame, name: str) -> pd.DataFrame:
    kind, field, field_of_diag = MEASURES[name]
    fits = fits[fits.experiment.isin(tables())]
    values = fits[field].where(fits.method != "diag", fits[field_of_diag])
    some = fits[PLACE].assign(value=values).dropna(subset="value")
    found = some.groupby(PLACE)["value"].agg(ours="median", n_splits="size").reset_index()
    return found.assign(measure=name, metric=[metric_of(one, kind) for one in found.experiment])


def n_printed(kind: str, experiments: Sequence[str] = ()) -> int:
    """How many cells there are to compare with; the paper prints 110 of either kind."""
    wanted = {(one, metric_of(one, kind)) for one in experiments or in_print()}
    return sum((experiment, metric) in wanted for experiment, _, metric, _ in printed().index)


def _reasons(cells: Cells, one: Any, se: float, converged: float) -> Iterable[str]:
    place = (one.protocol, one.experiment, one.set, one.method)
    # The binary sets have published splits: with all of them, their noise is the paper's noise.
    all_of_them = one.n_splits == EXPERIMENTS[one.experiment].splits_of(one.set)
    noise = not (one.experiment == "binary" and all_of_them) and one.n_splits > 1
    if noise and one.shortfall - one.tolerance <= 2 * se:
        yield "short by less than tolerance plus two standard errors of our median"
    by_test = cells.get(BY_TEST[one.measure], *place) if one.method == "diag" else None
    if by_test is not None and by_test.no_worse:
        yield "no miss by the paper's rule for VI_diag (start with the better test score)"
    of_draws = cells.get(ERROR_OF_DRAWS, *place) if one.measure == ERROR else None
    if of_draws is not None and of_draws.no_worse:
        yield "no miss when single draws are scored, as the paper seems to"
    yield from _hyperparameters(cells.rows, *place)
    if converged < 0.9:
        yield f"converged on {100 * converged:.0f}% of the splits only"
    yield from _elsewhere(cells, one)


def _hyperparameters(rows: Rows, *place: str) -> Iterable[str]:
    """Where the search for hyperparameters went, if that may explain a miss; medians over splits.

    Two equally likely classes give a joint LPD of `-n log 2`: a fit that says no more has learnt
    nothing from its inputs. And the bound of a mean field pays for every correlation: narrow basis
    functions have fewer, so it may prefer them where the evidence does not.
    """
    *of_set, method = place
    ours = rows.of(*place).median(numeric_only=True)
    width, chance = ours["hyper.log_width"], -ours.n_test * np.log(2)
    if place[1] == "binary" and abs(ours.lpd - chance) < 0.005 * abs(chance):
        wide = f"with basis functions of width {np.exp(width):.2g}"
        yield f"no more than chance ({chance:.1f}), {wide}"
    # pandas before 3 warns of the median of a column without numbers.
    narrower = rows.of(*of_set, "laplace")["hyper.log_width"].dropna().median() - width
    if method == "diag" and narrower > np.log(2):
        yield (
            f"its bound makes the basis functions {np.exp(narrower):.1f} times narrower than "
            "Laplace's evidence does"
        )


def _elsewhere(cells: Cells, one: Any) -> Iterable[str]:
    """Another protocol that does not miss this cell, how its basis differs, and whether the better
    score has a much lower bound: then it is the bound that misleads. (The protocols differ by the
    priors of two hyperparameters, a few nats; on Cauchy data by the scale of y as well.)"""
    place, far = (one.experiment, one.set, one.method), 10
    ours = cells.rows.of(one.protocol, *place).median(numeric_only=True)
    for protocol in cells.rows.protocols:
        other = cells.get(one.measure, protocol, *place)
        if protocol != one.protocol and other is not None and other.no_worse:
            theirs = cells.rows.of(protocol, *place).median(numeric_only=True)
            said = f"protocol {protocol} reaches {other.ours:.2f}"
            if abs(theirs.n_basis - ours.n_basis) > 0:
                said += f" with {theirs.n_basis:.0f} basis functions instead of {ours.n_basis:.0f}"
            lower = ours.elbo_fixed - theirs.elbo_fixed
            if one.experiment != "cauchy" and lower >= far:
                said += f" at a bound lower by {lower:.1f}"
            yield said
            return
