"""The report's tables of medians: beside the printed numbers, and those that are ours alone."""

import math

import numpy as np

from ..paper import _cells
from ._cells import ERROR, ERROR_BY_TEST, LPD, LPD_BY_TEST, N_SPLITS, Cell, Rule
from ._document import Block, Entry, Paragraph, Table
from ._figures import LABELS, set_label
from ._reading import ALL_METHODS, TABLES, Rows, number
from .printed import METHODS

BESIDE = ("full", "auto")  # methods that the paper does not print
MISSING = Entry("–")
WORSE = "▼"
BULLET = "•"
# The titles of the paper's own tables.
TITLES = {
    ("cauchy", "lpd"): "LPD (higher is better) and MSE (lower is better) on test data for Cauchy "
    "regression",
    ("binary", "lpd"): "Median LPD on test data for logistic regression (higher is better)",
    ("binary", "error"): "Median error rate % on test data for logistic regression "
    "(lower is better)",
    ("multiclass", "lpd"): "Median LPD on test data for multiclass logistic regression "
    "(higher is better)",
    ("multiclass", "error"): "Median error rate % on test data for multiclass logistic regression "
    "(lower is better)",
}
BY_TEST = {LPD: LPD_BY_TEST, ERROR: ERROR_BY_TEST}


def decimals(table: str) -> int:
    return 3 if table == "cauchy" else 2


def text(value: float, places: int, signed: bool = False) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:+.{places}f}" if signed else f"{value:.{places}f}"


def beside_printed(rows: Rows, table: str, rules: tuple[Rule, ...], title: str) -> list[Block]:
    """One table for each protocol that has rows; with several rules a set has a row for each."""
    found: list[Block] = []
    for protocol in rows.protocols():
        if not rows.has(protocol, table):
            continue
        lines = [
            _compared(rows, protocol, table, name, rule, len(rules) > 1)
            for name in rows.sets(table)
            for rule in rules
        ]
        names = [LABELS[method] for method in METHODS]
        if rules[0] in BY_TEST:
            names.append("VI_diag by test score")
        header = ("Data set" if len(rules) == 1 else "", *names, *BESIDE)
        table_of_medians = without_gaps(f"{title}. Protocol {protocol}.", header, lines)
        found += [table_of_medians] if table_of_medians.rows else []
    return found


def without_gaps(caption: str, header: tuple[str, ...], lines: list[tuple[Entry, ...]]) -> Table:
    """Sets and columns without any number are left out: another section names what is missing."""
    lines = [line for line in lines if any(entry != MISSING for entry in line[1:])]
    keep = [k for k in range(len(header)) if k == 0 or any(line[k] != MISSING for line in lines)]
    some = tuple(tuple(line[k] for k in keep) for line in lines)
    return Table(caption, tuple(header[k] for k in keep), some)


def absent(rows: Rows, table: str) -> list[Block]:
    """A sentence on the protocols without rows of an experiment."""
    names = [f"`{one}`" for one in rows.protocols() if not rows.has(one, table)]
    if not names:
        return []
    return [Paragraph(f"No rows of this experiment: protocol {' and '.join(names)}.")]


def _compared(
    rows: Rows, protocol: str, table: str, name: str, rule: Rule, by_metric: bool
) -> tuple[Entry, ...]:
    direction = _cells.sign(_cells.metric_of(table, rule.kind))
    best = _cells.marks(rows, protocol, table, name, rule.field, direction)
    entries = [_head(rows, protocol, table, name, rule if by_metric else None)]
    for method in METHODS:
        one = _cells.cell(rows, protocol, table, name, method, rule)
        entries.append(_entry(one, method in best.best, best.bullet))
    if rule in BY_TEST:
        one = _cells.cell(rows, protocol, table, name, "diag", BY_TEST[rule])
        entries.append(_entry(one, False, False))
    for method in BESIDE:
        entries.append(_entry(_cells.cell(rows, protocol, table, name, method, rule), False, False))
    return tuple(entries)


def _entry(one: Cell | None, best: bool, bullet: bool) -> Entry:
    if one is None:
        return MISSING
    places = decimals(one.table)
    ours = text(one.median, places) + (f" {BULLET}" if best and bullet else "")
    if not math.isfinite(one.printed):
        return Entry(ours, strong=best)
    note = f"({text(one.printed, places)}) {text(one.difference, places, signed=True)}"
    worse = not one.no_worse
    return Entry(ours, f"{note} {WORSE}" if worse else note, best, worse)


def _head(rows: Rows, protocol: str, table: str, name: str, rule: Rule | None = None) -> Entry:
    """The name of a set and how many of its splits there are."""
    label = set_label(name) if rule is None else _cells.metric_of(table, rule.kind).upper()
    return Entry(label, splits(rows, protocol, table, name))


def splits(rows: Rows, protocol: str, table: str, name: str) -> str:
    counts = [len(rows.fits.get((protocol, table, name, one), {})) for one in ALL_METHODS]
    counts = [n for n in counts if n]
    if not counts:
        return "no rows"
    expected = N_SPLITS.get(name, 100)
    if min(counts) == max(counts) == expected:
        return f"{expected} splits"
    span = str(max(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f"{span} of {expected} splits"


def ours_alone(rows: Rows, field: str, title: str) -> list[Block]:
    """Medians over splits of a field that the paper does not have; marked as in the paper."""
    found: list[Block] = []
    for protocol in rows.protocols():
        lines = []
        for table, name in _present(rows, protocol):
            best = _cells.marks(rows, protocol, table, name, field, _cells.sign(field))
            entries = [_head(rows, protocol, table, name)]
            for method in ALL_METHODS:
                values = rows.values((protocol, table, name, method), field)
                strong = method in best.best
                mark = f" {BULLET}" if strong and best.bullet else ""
                shown = text(float(np.median(values)), decimals(table)) if len(values) else "–"
                entries.append(Entry(shown + mark, strong=strong))
            lines.append(tuple(entries))
        if lines:
            header = ("Data set", *(LABELS[method] for method in ALL_METHODS))
            found.append(without_gaps(f"{title}. Protocol {protocol}.", header, lines))
    return found


def diagnostics(rows: Rows) -> list[Block]:
    """ELBO, and below it what says whether to trust it."""
    found: list[Block] = []
    for protocol in rows.protocols():
        lines = [
            (
                _head(rows, protocol, table, name),
                *(_diagnosed(rows, (protocol, table, name, one)) for one in ALL_METHODS),
            )
            for table, name in _present(rows, protocol)
        ]
        if lines:
            header = ("Data set", *(LABELS[method] for method in ALL_METHODS))
            caption = (
                "Median ELBO on fresh draws; below it the median gap of the fixed draws to fresh "
                f"ones, the median k-hat and the share of converged fits. Protocol {protocol}."
            )
            found.append(without_gaps(caption, header, lines))
    return found


def _diagnosed(rows: Rows, key: tuple[str, str, str, str]) -> Entry:
    if key not in rows.fits:
        return MISSING

    def middle(field: str) -> float:
        values = rows.values(key, field)
        return float(np.median(values)) if len(values) else math.nan

    converged = rows.values(key, "converged")
    share = f"{100 * converged.mean():.0f}%" if len(converged) else "–"
    note = f"gap {text(middle('gap'), 2)}, k {text(middle('khat'), 2)}, {share}"
    return Entry(
        text(middle("elbo"), 2), note, warn=bool(len(converged)) and converged.mean() < 0.9
    )


def two_dimensional(rows: Rows) -> list[Block]:
    """KL of every method, protocols side by side."""
    protocols = [one for one in rows.protocols() if rows.has(one, "toy")]
    if not protocols:
        return []
    header = ["Method"]
    for protocol in protocols:
        header += [f"KL(q || p), {protocol}", f"ELBO, {protocol}", f"k-hat, {protocol}"]
    lines = []
    for method in ALL_METHODS:
        entries = [Entry(LABELS[method])]
        for protocol in protocols:
            row = rows.fits.get((protocol, "toy", "mixture", method), {}).get(0, {})
            parts = (("kl", 4), ("elbo", 4), ("khat", 2))
            entries += [Entry(text(number(row, field), places)) for field, places in parts]
        lines.append(tuple(entries))
    caption = (
        "Distance of each Gaussian from the two-dimensional posterior. The log evidence is 0, so "
        "the ELBO is -KL up to the noise of its fresh draws, which is large where k-hat is: their "
        "mean then hangs on a few."
    )
    return [without_gaps(caption, tuple(header), lines)]


def trends(found: dict[tuple[str, str], dict[str, dict[int, float]]], protocol: str) -> Table:
    """Joint LPD by number of draws."""
    numbers = sorted({n for by in found.values() for values in by.values() for n in values})
    lines = [
        (
            Entry(set_label(name), LABELS.get(method, method)),
            *(Entry(text(values.get(n, math.nan), decimals(table))) for n in numbers),
        )
        for (table, name), by_method in found.items()
        for method, values in by_method.items()
    ]
    header = ("Data set, method", *(f"{n:,} draws" for n in numbers))
    caption = f"Median joint LPD by number of draws. Protocol {protocol}."
    return Table(caption, header, tuple(lines))


def _present(rows: Rows, protocol: str) -> list[tuple[str, str]]:
    there = {key[1:3] for key in rows.fits if key[0] == protocol}
    return [
        (table, name) for table in TABLES for name in rows.sets(table) if (table, name) in there
    ]
