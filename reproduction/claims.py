"""Is a partly adapted posterior better than Laplace, and than a factorised one? Set by set, and
sentence by sentence as the paper concludes: its statements and the functions that judge them."""

import functools
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from .cells import ERROR, Cells
from .experiments import EXPERIMENTS, LABELS, METHODS, in_print, printed
from .layout import plural
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


class Marked(NamedTuple):
    """How often each method has the best median, and the bullet; on how many sets."""

    best: Counter[str]
    bullets: Counter[str]
    n_sets: int

    def most_often(self) -> tuple[str, ...]:
        top = max(self.best.values())
        return tuple(method for method in METHODS if self.best[method] == top)


class Claims:
    """Every contender against every rival on every set that has both."""

    def __init__(self, cells: Cells):
        self.cells, self.rows = cells, cells.rows
        self.compare = functools.cache(self._compare)

    def _compare(self, protocol: str, field: str) -> list[Comparison]:
        return [
            Comparison(*place[1:], *one)
            for place in self.rows.places(protocol, in_print())
            for one in _compared(self.rows.paired(*place, field))
        ]

    def chosen(
        self, protocol: str, field: str, contender: str, rival: str, experiment: str = ""
    ) -> list[Comparison]:
        found = self.compare(protocol, field)
        found = [one for one in found if (one.contender, one.rival) == (contender, rival)]
        return [one for one in found if experiment in ("", one.experiment)]

    def tallies(self, protocol: str, contender: str, rival: str) -> list[Tally]:
        """By the printed medians of the joint LPD, by ours, and significantly by every field."""
        its = {field: self.chosen(protocol, field, contender, rival) for field in FIELDS}
        ours = tally([int(np.sign(one.difference)) for one in its["lpd"]])
        return [printed_medians(contender, rival), ours, *map(significantly, its.values())]

    def marked(self, protocol: str, experiment: str, field: str) -> Marked | None:
        """None where a method is missing: it cannot be called the best, or not the best."""
        if not self.rows.counts(protocol, experiment)[list(METHODS)].any().all():
            return None
        sets = EXPERIMENTS[experiment].sets
        found = [self.cells.marks(protocol, experiment, name, field) for name in sets]
        found = [one for one in found if one.best]
        best = Counter(method for one in found for method in one.best)
        bullets = Counter(one.best[0] for one in found if one.bullet)
        return Marked(best, bullets, len(found)) if found else None


def _compared(paired: pd.DataFrame) -> list[tuple]:
    """On one set; `paired`: a line a split, a column a method."""
    medians, present = paired.median(), [one for one in MIXED if one in paired and len(paired)]
    found = []
    for contender in CONTENDERS if present else ():
        method = medians[present].idxmax() if contender == BEST else contender
        for rival in RIVALS:
            if method in paired and rival in paired:
                ours, theirs = paired[method].to_numpy(), paired[rival].to_numpy()
                verdict = int(significant(ours, theirs[:, None]))
                verdict = verdict or -int(significant(theirs, ours[:, None]))
                signs, difference = sign_test(ours, theirs), medians[method] - medians[rival]
                found.append((contender, rival, method, difference, signs, verdict))
    return found


def tally(verdicts: list[int]) -> Tally:
    return Tally(verdicts.count(1), verdicts.count(0), verdicts.count(-1))


def significantly(comparisons: list[Comparison]) -> Tally:
    """As the paper means it: the sign test and the bootstrap agree. Sets on which no outcome could
    make the test reject are left out."""
    return tally([one.verdict for one in comparisons if sum(one.signs[:3]) >= FEWEST])


def printed_medians(contender: str, rival: str, experiment: str = "") -> Tally:
    """What can be read off the paper's printed median LPDs."""
    values = printed()["value"].xs("lpd", level="metric").unstack()
    values = values.loc[[experiment] if experiment else list(in_print())]
    ours = values[list(MIXED) if contender == BEST else [contender]].max(axis=1)
    return tally(np.sign(ours - values[rival]).astype(int).tolist())


Verdict = tuple[bool, str] | None  # whether it holds, and our numbers; or rows are missing


class Statement(NamedTuple):
    """As statements.toml explains it."""

    experiment: str
    claim: str
    rule: str
    printed: str
    verdict: str
    method: str = ""
    by_test: bool = False

    def judged(self, claims: Claims, protocol: str) -> Verdict:
        return VERDICTS[self.verdict](self, claims, protocol)


def order_of_kl(_: Statement, claims: Claims, protocol: str) -> Verdict:
    kls = claims.rows.of(protocol, "toy", "mixture").set_index("method")["kl"]
    kls = kls.reindex(["laplace", *MIXED]).to_numpy()
    if np.isnan(kls).any():
        return None
    return bool((np.diff(kls) < 0).all()), ", ".join(f"{kl:.3f}" for kl in kls)


def best_twice(one: Statement, claims: Claims, protocol: str) -> Verdict:
    lpd, mse = (claims.marked(protocol, one.experiment, field) for field in ("lpd", "error"))
    if not (lpd and mse):
        return None
    said = [" and ".join(map(LABELS.get, its.most_often())) for its in (lpd, mse)]
    holds = "eig" in lpd.most_often() and "lr" in mse.most_often()
    return holds, f"LPD: {said[0]}, MSE: {said[1]}"


def better_than_three(_: Statement, claims: Claims, protocol: str) -> Verdict:
    paired = claims.rows.paired(protocol, "cauchy", "cauchy", "lpd")
    if len(paired.columns) < len(METHODS) or not len(paired):
        return None
    signs = {one: sign_test(paired["eig"], paired[one]) for one in METHODS if one != "eig"}
    won = ", ".join(f"{LABELS[one]} {its.wins} to {its.losses}" for one, its in signs.items())
    holds = all((its.verdict == 1) == (one != "lr") for one, its in signs.items())
    return holds, f"splits won: {won}"


def beats(one: Statement, claims: Claims, protocol: str) -> Verdict:
    place = (BEST, one.method, one.experiment)
    found = [claims.chosen(protocol, field, *place) for field in ("lpd", "pointwise")]
    joint, pointwise = map(significantly, found)
    numbers = (
        f"significantly better on {joint.better} of {plural(joint.total, 'set')}, worse on "
        f"{joint.worse}; pointwise: {pointwise.better} and {pointwise.worse}"
    )
    return (joint.better > joint.total / 2, numbers) if found[0] else None


def leads(one: Statement, claims: Claims, protocol: str) -> Verdict:
    if (found := claims.marked(protocol, one.experiment, "lpd")) is None:
        return None
    on = f"best on {found.best[one.method]} of {plural(found.n_sets, 'set')}"
    numbers = f"{on}, significantly on {found.bullets[one.method]}"
    return one.method in found.most_often(), numbers


def no_bullets(one: Statement, claims: Claims, protocol: str) -> Verdict:
    if (found := claims.marked(protocol, one.experiment, "error")) is None:
        return None
    n = found.bullets.total()
    return n == 0, f"a significantly best error on {n} of {plural(found.n_sets, 'set')}"


def poor_on_crabs(_: Statement, claims: Claims, protocol: str) -> Verdict:
    found = claims.cells.of(ERROR, protocol)
    best = found.ours[found.set == "crabs"].min()
    return (bool(best > 40), f"best error {best:.2f}%") if np.isfinite(best) else None


_ALL = (order_of_kl, best_twice, better_than_three, beats, leads, no_bullets, poor_on_crabs)
VERDICTS = {one.__name__: one for one in _ALL}
_TEXT = (Path(__file__).parent / "statements.toml").read_text("utf-8")
STATEMENTS = [Statement(**one) for one in tomllib.loads(_TEXT)["statement"]]
