"""Our medians beside the printed ones, cell by cell, and whether they are no worse."""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..paper import _statistics
from ._reading import TABLES, Rows
from .printed import METHODS, METRICS, printed

N_SPLITS = {"image": 20, "splice": 20}  # every other set has 100


class Rule(NamedTuple):
    """Which field of a row stands for a printed number; VI_diag may have its own."""

    title: str
    kind: str  # "lpd" or "error"
    field: str
    field_of_diag: str


LPD = Rule("joint LPD", "lpd", "lpd", "lpd")
LPD_BY_TEST = Rule("joint LPD, VI_diag by test score", "lpd", "lpd", "diag.lpd_best_test")
ERROR = Rule("error", "error", "error", "error")
ERROR_BY_TEST = Rule("error, VI_diag by test score", "error", "error", "diag.error_best_test")
ERROR_OF_DRAWS = Rule("error of single draws", "error", "error_draws", "error_draws")
RULES = (LPD, LPD_BY_TEST, ERROR, ERROR_BY_TEST, ERROR_OF_DRAWS)


class Cell(NamedTuple):
    """One method on one set: our numbers over splits, and what the paper prints."""

    protocol: str
    table: str
    set: str
    metric: str
    method: str
    values: Float[np.ndarray, " n"]
    printed: float

    @property
    def n_splits(self) -> int:
        return len(self.values)

    @property
    def median(self) -> float:
        return float(np.median(self.values))

    @property
    def se(self) -> float:
        """Bootstrap standard error of our median over the splits."""
        return _statistics.median_error(self.values)

    @property
    def difference(self) -> float:
        return self.median - self.printed

    @property
    def shortfall(self) -> float:
        """How much worse than printed: LPD is better when higher, errors when lower."""
        return -sign(self.metric) * self.difference

    @property
    def tolerance(self) -> float:
        return tolerance(self.table, self.metric, self.printed)

    @property
    def no_worse(self) -> bool:
        # Both numbers are decimals: a shortfall of exactly the tolerance must not fail by 1e-16.
        return self.shortfall <= self.tolerance * (1 + 1e-9) + 1e-12


class Count(NamedTuple):
    """Cells no worse than printed, cells that we have, cells that the paper prints."""

    no_worse: int
    present: int
    printed: int


class Miss(NamedTuple):
    """A cell worse than printed beyond tolerance, with what may explain it."""

    cell: Cell
    converged: float  # share of the splits on which the fit met its own test
    by_test: Cell | None  # VI_diag by the paper's rule
    of_draws: Cell | None  # errors of single draws
    elsewhere: str  # what another protocol reaches that does not miss
    hyperparameters: list[str]  # what their search may have to do with it


def sign(metric: str) -> int:
    """1 where higher is better."""
    return 1 if metric in ("lpd", "pointwise", "elbo") else -1


def tolerance(table: str, metric: str, value: float) -> float:
    """What still counts as equal to a printed number: rounding and the noise of 10^4 draws."""
    if metric == "lpd":
        return 0.005 if table == "cauchy" else max(0.005 * abs(value), 0.5)
    return 0.02 * abs(value) if metric == "mse" else 0.5


def metric_of(table: str, kind: str) -> str:
    """Where classifiers have an error rate, the regression has a mean squared error."""
    return METRICS[table][0 if kind == "lpd" else 1]


def cell(rows: Rows, protocol: str, table: str, name: str, method: str, rule: Rule) -> Cell | None:
    """None where there are no rows. `printed` is not a number where the paper has none."""
    field = rule.field_of_diag if method == "diag" else rule.field
    values = rows.values((protocol, table, name, method), field)
    if not len(values):
        return None
    metric = metric_of(table, rule.kind)
    known = printed().get((table, name, metric, method))
    value = known.value if known else float("nan")
    return Cell(protocol, table, name, metric, method, values, value)


def cells(rows: Rows, protocol: str, rule: Rule, tables: tuple[str, ...] = TABLES) -> list[Cell]:
    """All cells that the paper prints and that we have."""
    found = (cell(rows, protocol, *place, rule) for place in _places(rule.kind, tables))
    return [one for one in found if one is not None]


def applies(rows: Rows, protocol: str, rule: Rule) -> bool:
    """Whether any row has the rule's own field: one start leaves nothing to choose by its score."""
    return rule.field == rule.field_of_diag or any(
        len(rows.values(key, rule.field_of_diag)) for key in rows.fits if key[0] == protocol
    )


def count(rows: Rows, protocol: str, rule: Rule, tables: tuple[str, ...] = TABLES) -> Count:
    ours = cells(rows, protocol, rule, tables)
    expected = len(_places(rule.kind, tables))
    return Count(sum(one.no_worse for one in ours), len(ours), expected)


@functools.cache
def _places(kind: str, tables: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Table, set and method of every printed cell; the same 110 for either kind."""
    return [
        (table, name, method)
        for table, name, metric, method in printed()
        if table in tables and metric == metric_of(table, kind) and method in METHODS
    ]


def misses(rows: Rows, protocol: str) -> list[Miss]:
    """Cells worse than printed, by our own rules, the worst in units of tolerance first."""
    found = []
    for rule, other in ((LPD, LPD_BY_TEST), (ERROR, ERROR_BY_TEST)):
        for one in cells(rows, protocol, rule):
            if one.no_worse:
                continue
            place = (protocol, one.table, one.set, one.method)
            converged = rows.values(place, "converged")
            share = float(converged.mean()) if len(converged) else float("nan")
            by_test = cell(rows, *place, other) if one.method == "diag" else None
            of_draws = cell(rows, *place, ERROR_OF_DRAWS) if rule is ERROR else None
            elsewhere = _elsewhere(rows, one, rule)
            learnt = _hyperparameters(rows, place)
            found.append(Miss(one, share, by_test, of_draws, elsewhere, learnt))
    return sorted(found, key=lambda miss: -miss.cell.shortfall / miss.cell.tolerance)


def _elsewhere(rows: Rows, one: Cell, rule: Rule) -> str:
    """Another protocol that does not miss this cell, and how its basis differs."""
    for protocol in rows.protocols():
        other = cell(rows, protocol, one.table, one.set, one.method, rule)
        if protocol == one.protocol or other is None or not other.no_worse:
            continue
        theirs, ours = (
            rows.values((name, one.table, one.set, one.method), "n_basis")
            for name in (protocol, one.protocol)
        )
        basis = ""
        if len(theirs) and len(ours) and np.median(theirs) != np.median(ours):
            basis = (
                f" with {np.median(theirs):.0f} basis functions instead of {np.median(ours):.0f}"
            )
        return f"protocol {protocol} reaches {other.median:.2f}{basis}{_bounds(rows, one, other)}"
    return ""


def _bounds(rows: Rows, one: Cell, other: Cell) -> str:
    """That the better score has a much lower bound: then it is the bound that misleads. (The
    protocols differ by the priors of two hyperparameters, a few nats; on Cauchy data by the scale
    of y as well.)"""
    ours, theirs = (
        rows.values((cell.protocol, cell.table, cell.set, cell.method), "elbo_fixed")
        for cell in (one, other)
    )
    far = 10
    if one.table == "cauchy" or not len(ours) or not len(theirs):
        return ""
    if np.median(ours) - np.median(theirs) < far:
        return ""
    return f" at a bound lower by {np.median(ours) - np.median(theirs):.1f}"


def _hyperparameters(rows: Rows, place: tuple[str, str, str, str]) -> list[str]:
    """Where the search for hyperparameters went, if that may explain a miss; medians over splits.

    Two equally likely classes give a joint LPD of `-n log 2`: a fit that says no more has learnt
    nothing from its inputs. And the bound of a mean field pays for every correlation: narrow basis
    functions have fewer, so it may prefer them where the evidence does not.
    """
    said = []
    lpd, n_test, width, laplaces = (
        float(np.median(values)) if len(values) else float("nan")
        for values in (
            rows.values(place, "lpd"),
            rows.values(place, "n_test"),
            rows.values(place, "hyper.log_width"),
            rows.values((*place[:3], "laplace"), "hyper.log_width"),
        )
    )
    chance = -n_test * np.log(2)
    if place[1] == "binary" and abs(lpd - chance) < 0.005 * abs(chance):
        said.append(
            f"no more than chance ({chance:.1f}), with basis functions of width {np.exp(width):.2g}"
        )
    if place[3] == "diag" and laplaces - width > np.log(2):
        said.append(
            f"its bound makes the basis functions {np.exp(laplaces - width):.1f} times narrower "
            "than Laplace's evidence does"
        )
    return said


def reasons(miss: Miss) -> list[str]:
    """What the numbers say of a miss; empty when they say nothing."""
    one, said = miss.cell, []
    expected = N_SPLITS.get(one.set, 100)
    # The binary sets have published splits: with all of them, their noise is the paper's noise.
    other_splits = one.table != "binary" or one.n_splits < expected
    if other_splits and one.n_splits > 1 and one.shortfall - one.tolerance <= 2 * one.se:
        said.append("short by less than tolerance plus two standard errors of our median")
    if miss.by_test is not None and miss.by_test.no_worse:
        said.append("no miss by the paper's rule for VI_diag (start with the better test score)")
    if miss.of_draws is not None and miss.of_draws.no_worse:
        said.append("no miss when single draws are scored, as the paper seems to")
    said += miss.hyperparameters
    if miss.converged < 0.9:
        said.append(f"converged on {100 * miss.converged:.0f}% of the splits only")
    return [*said, miss.elsewhere] if miss.elsewhere else said


# --- bold and bullet --------------------------------------------------------------------------


class Marks(NamedTuple):
    """The methods with the best median (several when they tie), and whether it is significant."""

    best: tuple[str, ...]
    bullet: bool


@functools.lru_cache(maxsize=1024)  # tables and claims ask for the same ones
def marks(rows: Rows, protocol: str, table: str, name: str, field: str, direction: int) -> Marks:
    """As the paper marks its tables: among its five methods, on the splits that all have."""
    methods, values = rows.paired(protocol, table, name, METHODS, field)
    if len(methods) < 2 or not len(values):
        return Marks((), False)
    values = direction * values
    medians = np.median(values, axis=0)
    top = np.flatnonzero(medians == medians.max())
    bullet = False
    if len(top) == 1:
        others = np.delete(values, top[0], axis=1)
        bullet = _statistics.significant(values[:, top[0]], others)
    return Marks(tuple(methods[place] for place in top), bullet)
