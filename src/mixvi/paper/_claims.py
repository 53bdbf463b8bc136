"""Is a partly adapted posterior better than Laplace, and than a factorised one? Set by set."""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..paper import _statistics
from ._reading import TABLES, Rows
from ._statistics import Signs
from .printed import METHODS, printed, sets

MIXED = ("mu", "eig", "lr")
BEST = "best"  # the one of the three with the best median on the set
CONTENDERS = (BEST, *MIXED)
RIVALS = ("laplace", "diag")
FEWEST = 6  # splits: even if all agree, fewer have a two-sided p of at least 2 / 2^5 > 5%
FIELDS = ("lpd", "pointwise", "elbo")  # higher is better in all of them


class Comparison(NamedTuple):
    """One contender against one rival on one set; `method` is the contender by its own name."""

    table: str
    set: str
    contender: str
    method: str
    rival: str
    difference: float  # of the medians
    signs: Signs
    verdict: int  # 1: better by both of the paper's conditions, -1: worse by both, 0: neither

    @property
    def can_be_told(self) -> bool:
        return self.signs.wins + self.signs.losses + self.signs.ties >= FEWEST


class Tally(NamedTuple):
    """On how many sets better, not different and worse."""

    better: int
    same: int
    worse: int

    @property
    def total(self) -> int:
        return sum(self)


@functools.lru_cache(maxsize=64)  # the summary and the sentences ask for the same ones
def compare(
    rows: Rows, protocol: str, field: str, tables: tuple[str, ...] = TABLES
) -> tuple[Comparison, ...]:
    """Every contender against every rival on every set that has both."""
    found = []
    for table in tables:
        for name in sets(table):
            methods, values = rows.paired(protocol, table, name, METHODS, field)
            if len(values):
                columns = dict(zip(methods, values.T, strict=True))
                found += _on_one_set(table, name, columns)
    return tuple(found)


def _on_one_set(table: str, name: str, columns: dict[str, np.ndarray]) -> list[Comparison]:
    medians = {method: float(np.median(values)) for method, values in columns.items()}
    present = [method for method in MIXED if method in columns]
    found = []
    for contender in CONTENDERS if present else ():
        method = max(present, key=medians.__getitem__) if contender == BEST else contender
        for rival in RIVALS:
            if method in columns and rival in columns:
                signs = _statistics.sign_test(columns[method], columns[rival])
                difference = medians[method] - medians[rival]
                verdict = _verdict(columns[method], columns[rival])
                found.append(
                    Comparison(table, name, contender, method, rival, difference, signs, verdict)
                )
    return found


def _verdict(first: np.ndarray, second: np.ndarray) -> int:
    if _statistics.significant(first, second[:, None]):
        return 1
    return -1 if _statistics.significant(second, first[:, None]) else 0


def chosen(
    comparisons: Iterable[Comparison], contender: str, rival: str, tables: tuple[str, ...] = TABLES
) -> list[Comparison]:
    return [
        one
        for one in comparisons
        if (one.contender, one.rival) == (contender, rival) and one.table in tables
    ]


def significantly(comparisons: list[Comparison]) -> Tally:
    """As the paper means it: the sign test and the bootstrap agree. Sets on which no outcome could
    make the test reject are left out."""
    return _tally(one.verdict for one in comparisons if one.can_be_told)


def by_medians(comparisons: list[Comparison]) -> Tally:
    """What can be read off medians alone, without asking whether it is significant."""
    return _tally(int(np.sign(one.difference)) for one in comparisons)


def printed_medians(contender: str, rival: str, tables: tuple[str, ...] = TABLES) -> Tally:
    """The same count over the paper's printed median LPDs."""
    values = printed()
    verdicts = []
    for table in tables:
        for name in sets(table):
            ours = MIXED if contender == BEST else (contender,)
            top = max(values[table, name, "lpd", method].value for method in ours)
            verdicts.append(int(np.sign(top - values[table, name, "lpd", rival].value)))
    return _tally(verdicts)


def _tally(verdicts: Iterable[int]) -> Tally:
    verdicts = list(verdicts)
    return Tally(verdicts.count(1), verdicts.count(0), verdicts.count(-1))
