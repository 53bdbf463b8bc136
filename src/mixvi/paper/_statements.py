"""The sentences in which the paper draws its conclusions, each held against the numbers.

A verdict follows a rule that stands beside the sentence; it is computed, never written by hand.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from ..paper import _cells, _claims
from ._cells import ERROR, LPD, Rule
from ._claims import BEST, FEWEST
from ._document import Block, Entry, Table
from ._figures import LABELS
from ._reading import TABLES, Rows, number
from ._record import complete, plural
from ._statistics import sign_test
from ._tables import MISSING
from .printed import METHODS, printed, sets


class Marked(NamedTuple):
    """How often each method has the best median, and the bullet; on how many sets."""

    best: Counter[str]
    bullets: Counter[str]
    n_sets: int

    def most_often(self) -> tuple[str, ...]:
        top = max(self.best.values(), default=0)
        return tuple(method for method in METHODS if top and self.best[method] == top)

    def sentence(self, method: str) -> str:
        return (
            f"best on {self.best[method]} of {plural(self.n_sets, 'set')}, "
            f"significantly on {self.bullets[method]}"
        )


def statements(rows: Rows) -> list[Block]:
    """One line for each sentence: what it says, the rule, the paper's numbers, ours."""
    lines = []
    by_test = (_cauchy_significance, *_BETTER, _errors)
    for line in (_order_of_kl, _cauchy_best, _cauchy_significance, *_BETTER, _lr, _errors, _eig,
                 _crabs):  # fmt: skip
        claim, rule, theirs, ours = line(rows)
        table = claim.split(":")[0].lower()  # sentences begin with the experiment
        entries = (
            _so_far(ours.get(protocol, MISSING), rows, protocol, table, line in by_test)
            for protocol in rows.protocols()
        )
        lines.append((Entry(f"{claim}.", f"Holds when {rule}."), Entry(theirs), *entries))
    header = ("What the paper says", "the paper's numbers")
    header += tuple(f"protocol {one}" for one in rows.protocols())
    return [Table("The paper's conclusions, one by one.", header, tuple(lines), wordy=True)]


Line = tuple[str, str, str, dict[str, Entry]]


def _verdict(holds: bool, numbers: str) -> Entry:
    return Entry("holds" if holds else "does not hold", numbers, holds, not holds)


def _so_far(entry: Entry, rows: Rows, protocol: str, table: str, by_test: bool) -> Entry:
    """A verdict on part of the rows says that it is one. One that rests on the sign test says
    nothing before there are enough splits for the test to reject at all."""
    if entry == MISSING or table not in TABLES or complete(rows, protocol, table):
        return entry
    most = max(len(by) for key, by in rows.fits.items() if key[:2] == (protocol, table))
    if by_test and most < FEWEST:
        return Entry("cannot be told", f"{plural(most, 'split')}; the test needs {FEWEST}")
    return entry._replace(text=f"so far it {entry.text}", strong=False)


def _order_of_kl(rows: Rows) -> Line:
    order = ("laplace", "mu", "eig", "lr")
    ours = {}
    for protocol in rows.protocols():
        fits = [rows.fits.get((protocol, "toy", "mixture", one), {}).get(0, {}) for one in order]
        kls = np.array([number(row, "kl") for row in fits])
        if np.isfinite(kls).all():
            ours[protocol] = _verdict(
                bool((np.diff(kls) < 0).all()), ", ".join(f"{kl:.3f}" for kl in kls)
            )
    claim = "2-D example: the distance falls from Laplace to MVI_mu, MVI_eig and MVI_lr"
    return claim, "KL falls at each step", "in its Figure 1", ours


def _cauchy_best(rows: Rows) -> Line:
    theirs = ", ".join(_best_printed("cauchy", "cauchy", metric) for metric in ("lpd", "mse"))
    ours = {}
    for protocol in rows.protocols():
        found = [marked(rows, protocol, "cauchy", rule).most_often() for rule in (LPD, ERROR)]
        if all(found) and _all_methods(rows, protocol, "cauchy"):
            numbers = [" and ".join(LABELS[one] for one in best) for best in found]
            holds = "eig" in found[0] and "lr" in found[1]
            ours[protocol] = _verdict(holds, f"LPD: {numbers[0]}, MSE: {numbers[1]}")
    claim = "Cauchy: MVI_eig has the best LPD, MVI_lr the best MSE"
    return claim, "both have the best median", theirs, ours


def _cauchy_significance(rows: Rows) -> Line:
    ours = {}
    for protocol in rows.protocols():
        methods, values = rows.paired(protocol, "cauchy", "cauchy", METHODS, "lpd")
        if len(methods) < len(METHODS) or not len(values):
            continue
        columns = dict(zip(methods, values.T, strict=True))
        signs = {one: sign_test(columns["eig"], columns[one]) for one in METHODS if one != "eig"}
        won = ", ".join(f"{LABELS[one]} {its.wins} to {its.losses}" for one, its in signs.items())
        holds = all((its.verdict == 1) == (one != "lr") for one, its in signs.items())
        ours[protocol] = _verdict(holds, f"splits won: {won}")
    others = "Laplace, MVI_mu and VI_diag, not MVI_lr"
    claim = f"Cauchy: by LPD MVI_eig is significantly better than {others}"
    return claim, "the sign test says so of these three only", "in its text", ours


def _better_than(table: str, rival: str):
    def line(rows: Rows) -> Line:
        tables = (table,)
        theirs = _claims.printed_medians(BEST, rival, tables)
        ours = {}
        for protocol in rows.protocols():
            found = [
                _claims.chosen(_claims.compare(rows, protocol, field, tables), BEST, rival)
                for field in ("lpd", "pointwise")
            ]
            joint, pointwise = (_claims.significantly(one) for one in found)
            if found[0]:
                numbers = (
                    f"significantly better on {joint.better} of {plural(joint.total, 'set')}, "
                    f"worse on {joint.worse}; pointwise: {pointwise.better} and {pointwise.worse}"
                )
                ours[protocol] = _verdict(joint.better > joint.total / 2, numbers)
        claim = f"{table.capitalize()}: in general MVI has a better LPD than {LABELS[rival]}"
        rule = "the best of the three is significantly better on more than half of the sets"
        return claim, rule, f"higher median on {theirs.better} of {theirs.total}", ours

    return line


_BETTER = tuple(
    _better_than(table, rival) for table in ("binary", "multiclass") for rival in _claims.RIVALS
)


def _lr(rows: Rows) -> Line:
    claim = "Binary: MVI_lr scores best in LPD on a number of sets"
    return _leads(rows, claim, "binary", "lr")


def _eig(rows: Rows) -> Line:
    claim = "Multiclass: MVI_eig performs well in terms of LPD"
    return _leads(rows, claim, "multiclass", "eig")


def _leads(rows: Rows, claim: str, table: str, method: str) -> Line:
    ours = {}
    for protocol in rows.protocols():
        found = marked(rows, protocol, table, LPD)
        if found.n_sets and _all_methods(rows, protocol, table):
            ours[protocol] = _verdict(method in found.most_often(), found.sentence(method))
    rule = f"no other method has the best median on more sets than {LABELS[method]}"
    return claim, rule, printed_marks(table, "lpd").sentence(method), ours


def _errors(rows: Rows) -> Line:
    ours = {}
    for protocol in rows.protocols():
        found = marked(rows, protocol, "binary", ERROR)
        if found.n_sets and _all_methods(rows, protocol, "binary"):
            n = found.bullets.total()
            numbers = f"a significantly best error on {n} of {plural(found.n_sets, 'set')}"
            ours[protocol] = _verdict(n == 0, numbers)
    claim = "Binary: no method has a significantly better error rate"
    theirs = printed_marks("binary", "error")
    numbers = f"a significantly best error on {theirs.bullets.total()} of {theirs.n_sets} sets"
    return claim, "no set has a bullet in the table of errors", numbers, ours


def _crabs(rows: Rows) -> Line:
    ours = {}
    for protocol in rows.protocols():
        found = [_cells.cell(rows, protocol, "multiclass", "crabs", one, ERROR) for one in METHODS]
        medians = [one.median for one in found if one is not None]
        if medians:
            numbers = f"best error {min(medians):.2f}%"
            ours[protocol] = _verdict(min(medians) > 40, numbers)
    claim = (
        "Multiclass: all methods do poorly on crabs, perhaps for the choice of the basis functions"
    )
    theirs = f"best error {_best_printed('multiclass', 'crabs', 'error').split()[-1]}%"
    return claim, "the best median error is still above 40%", theirs, ours


def _all_methods(rows: Rows, protocol: str, table: str) -> bool:
    """A method cannot be called the best, or not the best, before it has run."""
    return set(METHODS) <= {key[3] for key in rows.fits if key[:2] == (protocol, table)}


def marked(rows: Rows, protocol: str, table: str, rule: Rule) -> Marked:
    best, bullets, n_sets = Counter[str](), Counter[str](), 0
    direction = _cells.sign(_cells.metric_of(table, rule.kind))
    for name in sets(table):
        found = _cells.marks(rows, protocol, table, name, rule.field, direction)
        n_sets += bool(found.best)
        best.update(found.best)
        bullets.update(found.best if found.bullet else ())
    return Marked(best, bullets, n_sets)


def printed_marks(table: str, kind: str) -> Marked:
    """The same, as printed."""
    best, bullets = Counter[str](), Counter[str]()
    for name in sets(table):
        for method in METHODS:
            one = printed()[table, name, _cells.metric_of(table, kind), method]
            best[method] += one.best
            bullets[method] += one.significant
    return Marked(best, bullets, len(sets(table)))


def _best_printed(table: str, name: str, metric: str) -> str:
    for method in METHODS:
        one = printed()[table, name, metric, method]
        if one.best:
            return f"{metric.upper()}: {LABELS[method]} {one.value:g}"
    return "–"
