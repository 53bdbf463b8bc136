"""Is a partly adapted posterior better than Laplace, and than a factorised one? Set by set."""

import functools
from typing import NamedTuple

import numpy as np
import pandas as pd

from .cells import Cells
from .experiments import in_print, printed
from .statistics import FEWEST, Signs, sign_test, significant

MIXED = ("mu", "eig", "lr")
BEST = "best"  # the one of the three with the best median on the set
CONTENDERS = (BEST, *MIXED)
RIVALS = ("laplace", "diag")
FIELDS = {"lpd": "joint LPD", "pointwise": "pointwise LPD", "elbo": "ELBO"}  # higher is better


class Comparison(NamedTuple):
    """One contender against one rival on one set; `method` is the contender by its own name."""

    experiment: str
    set: str
    contender: str
    rival: str
    method: str
    difference: float  # of the medians
    signs: Signs
    verdict: int  # 1: better by both of the paper's conditions, -1: worse by both, 0: neither


class Tally(NamedTuple):
    """On how many sets better, not different and worse."""

    better: int
    same: int
    worse: int

    @property
    def total(self) -> int:
        return sum(self)


def tally(verdicts: list[int]) -> Tally:
    return Tally(verdicts.count(1), verdicts.count(0), verdicts.count(-1))


class Claims:
    """Every contender against every rival on every set that has both."""

    def __init__(self, cells: Cells):
        self.cells, self.rows = cells, cells.rows
        self.compare = functools.cache(self._compare)

    def _compare(self, protocol: str, field: str) -> list[Comparison]:
        found = []
        for experiment in in_print():
            for name in self.rows.sets(protocol, experiment):
                paired = self.rows.paired(protocol, experiment, name, field)
                found += [one._replace(experiment=experiment, set=name) for one in compared(paired)]
        return found

    def chosen(
        self, protocol: str, field: str, contender: str, rival: str, experiment: str = ""
    ) -> list[Comparison]:
        return [
            one
            for one in self.compare(protocol, field)
            if (one.contender, one.rival) == (contender, rival)
            and experiment in ("", one.experiment)
        ]


def compared(paired: pd.DataFrame) -> list[Comparison]:
    """On one set; `paired`: a line a split, a column a method."""
    medians, columns = paired.median(), {name: its.to_numpy() for name, its in paired.items()}
    present = [method for method in MIXED if method in columns and len(paired)]
    found = []
    for contender in CONTENDERS if present else ():
        method = medians[present].idxmax() if contender == BEST else contender
        for rival in RIVALS:
            if method in columns and rival in columns:
                ours, theirs = columns[method], columns[rival]
                verdict = int(significant(ours, theirs[:, None]))
                verdict = verdict or -int(significant(theirs, ours[:, None]))
                difference, signs = medians[method] - medians[rival], sign_test(ours, theirs)
                found.append(
                    Comparison("", "", contender, rival, method, difference, signs, verdict)
                )
    return found


def significantly(comparisons: list[Comparison]) -> Tally:
    """As the paper means it: the sign test and the bootstrap agree. Sets on which no outcome could
    make the test reject are left out."""
    return tally([one.verdict for one in comparisons if sum(one.signs[:3]) >= FEWEST])


def by_medians(comparisons: list[Comparison]) -> Tally:
    """What can be read off medians alone, without asking whether it is significant."""
    return tally([int(np.sign(one.difference)) for one in comparisons])


def printed_medians(contender: str, rival: str, experiment: str = "") -> Tally:
    """The same count over the paper's printed median LPDs."""
    verdicts = []
    for table in (experiment,) if experiment else in_print():
        values = printed()["value"].xs((table, "lpd"), level=(0, 2)).unstack()
        ours = values[list(MIXED) if contender == BEST else [contender]].max(axis=1)
        verdicts += np.sign(ours - values[rival]).astype(int).tolist() if rival in values else []
    return tally(verdicts)
