"""The report's tables: our medians beside the printed numbers, those that are ours alone, claims
and misses. Every number comes from rows."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .cells import (
    BY_TEST,
    ERROR,
    ERROR_OF_DRAWS,
    MEASURES,
    Cells,
    metric_of,
    n_printed,
)
from .claims import (
    BEST,
    CONTENDERS,
    FIELDS,
    RIVALS,
    Claims,
    Comparison,
    Statement,
    by_medians,
    printed_medians,
    significantly,
)
from .experiments import (
    ALL_METHODS,
    BESIDE,
    EXPERIMENTS,
    LABELS,
    METHODS,
    in_print,
    printed,
    tables,
)
from .layout import MISSING, Entry, Table, number, plural, set_label, without_gaps
from .record import complete
from .rows import Rows
from .statistics import FEWEST, Marks

WORSE, BULLET = "▼", "•"
NAMES = {BEST: "best of MVI_mu, MVI_eig, MVI_lr", **LABELS}
Place = tuple[str, str, str]  # protocol, experiment, set


# --- medians ----------------------------------------------------------------------------------


def medians(cells: Cells, experiments: Sequence[str], *measures: str) -> list[Table]:
    """Beside the printed ones. A table for each protocol that has rows; with several measures a set
    has a line for each."""
    by_test = ["VI_diag by test score"] if measures[0] in BY_TEST else []
    header = ["Data set" if len(measures) == 1 else "", *map(LABELS.get, METHODS), *by_test]
    found = []
    for protocol in cells.rows.protocols:
        lines = [
            _compared(cells, place, measure, len(measures) > 1)
            for place in cells.rows.places(protocol, experiments)
            for measure in measures
        ]
        found += without_gaps([*header, *BESIDE], lines, protocol)
    return found


def _compared(cells: Cells, place: Place, measure: str, by_metric: bool) -> list[str | Entry]:
    kind, field, _ = MEASURES[measure]
    label = metric_of(place[1], kind).upper() if by_metric else set_label(place[2])
    asked = [(measure, one) for one in ALL_METHODS]
    if measure in BY_TEST:
        asked.insert(len(METHODS), (BY_TEST[measure], "diag"))
    marks = {measure: cells.marks(*place, field)}
    return [
        Entry(label, _splits(cells.rows, place)),
        *(_beside(cells.get(one, *place, its), marks.get(one, Marks())) for one, its in asked),
    ]


def _beside(one: Any | None, marks: Marks) -> str | Entry:
    if one is None:
        return MISSING
    places, best = EXPERIMENTS[one.experiment].decimals, one.method in marks.best
    ours = number(one.ours, places) + f" {BULLET}" * (best and marks.bullet)
    if np.isnan(one.printed):
        return Entry(ours, strong=best)
    note = f"({number(one.printed, places)}) {number(one.difference, places, '+')}"
    return Entry(ours, note + f" {WORSE}" * (not one.no_worse), best, not one.no_worse)


def _splits(rows: Rows, place: Place) -> str:
    counts = set(rows.of(*place).method.value_counts())
    expected = EXPERIMENTS[place[1]].splits_of(place[2])
    if counts == {expected}:
        return f"{expected} splits"
    return f"{' to '.join(map(str, sorted({min(counts), max(counts)})))} of {expected} splits"


def diagnostics(rows: Rows) -> list[Table]:
    """ELBO, and below it what says whether to trust it."""
    found, how = [], {"elbo": "median", "gap": "median", "khat": "median", "converged": "mean"}
    for protocol in rows.protocols:
        lines = []
        for place in rows.places(protocol):
            its = rows.of(*place).groupby("method").agg(how)
            entries = [_trust(its.loc[one]) if one in its.index else MISSING for one in ALL_METHODS]
            lines.append([Entry(set_label(place[2]), _splits(rows, place)), *entries])
        found += without_gaps(["Data set", *LABELS.values()], lines, protocol)
    return found


def _trust(one: pd.Series) -> Entry:
    share = f"{100 * one.converged:.0f}%" if one.converged >= 0 else MISSING
    note = f"gap {number(one.gap, 2)}, k {number(one.khat, 2)}, {share}"
    return Entry(number(one.elbo, 2), note, warn=bool(one.converged < 0.9))


def two_dimensional(rows: Rows) -> list[Table]:
    """KL of every method, protocols side by side."""
    columns, fields = {}, (("kl", "KL(q || p)", 4), ("elbo", "ELBO", 4), ("khat", "k-hat", 2))
    for protocol in rows.protocols:
        its = rows.of(protocol, "toy", "mixture").set_index("method").reindex(ALL_METHODS)
        for field, what, places in fields:
            columns[f"{what}, {protocol}"] = [number(value, places) for value in its[field]]
    return without_gaps(["Method", *columns], zip(LABELS.values(), *columns.values(), strict=True))


def trends(rows: Rows, protocol: str) -> pd.DataFrame:
    """Median joint LPD: a line for each experiment, set and method, a column a number of draws."""
    columns = [one for one in rows.fits if one.startswith("trend.")]
    fits = rows.fits[rows.fits.protocol == protocol]
    found = fits.groupby(["experiment", "set", "method"])[columns].median()
    found = found.rename(columns=lambda one: int(one.removeprefix("trend.")))
    order = [(*place[1:], one) for place in rows.places(protocol) for one in ALL_METHODS]
    return found.reindex([place for place in order if place in found.index]).dropna(how="all")


# --- counts and claims ------------------------------------------------------------------------


def summary(cells: Cells) -> Table:
    """Cells no worse than printed. What the paper does not print stands apart, if it has rows."""
    beside = [one for one in tables() if one not in in_print()]
    beside = [
        one for one in beside if any(cells.rows.has(its, one) for its in cells.rows.protocols)
    ]
    groups = [*((one,) for one in in_print()), in_print(), *((one,) for one in beside)]
    lines = [
        [f"{protocol}: {measure}", *(_counted(cells, measure, protocol, one) for one in groups)]
        for protocol in cells.rows.protocols
        for measure in MEASURES
        if cells.applies(protocol, measure)
    ]
    names = {one: f"{set_label(one)} ({n_printed('lpd', (one,))})" for one in tables()}
    header = ["Protocol: measure", *(names[one] for one in in_print()), f"All ({n_printed('lpd')})"]
    return Table([*header, *(f"Not printed: {names[one]}" for one in beside)], lines)


def _counted(cells: Cells, measure: str, protocol: str, its: Sequence[str]) -> str | Entry:
    found = cells.of(measure, protocol, its)
    missing = n_printed(MEASURES[measure].kind, its) - len(found)
    note = f"{missing} missing" if missing else ""
    return Entry(f"{found.no_worse.sum()} of {len(found)}", note) if len(found) else MISSING


def claims(found: Claims) -> list[tuple[Table, Table]]:
    """For each protocol: the counts over sets, and then set by set."""
    return [
        (_tallies(found, protocol), _set_by_set(found, protocol))
        for protocol in found.rows.protocols
        if any(found.compare(protocol, field) for field in FIELDS)
    ]


def _tallies(found: Claims, protocol: str) -> Table:
    lines = []
    for contender, rival in [(one, other) for one in CONTENDERS for other in RIVALS]:
        its = {one: found.chosen(protocol, one, contender, rival) for one in FIELDS}
        tallies = [printed_medians(contender, rival), by_medians(its["lpd"])]
        tallies += [significantly(one) for one in its.values()]
        counts = [" / ".join(map(str, one)) if one.total else MISSING for one in tallies]
        lines.append([f"{NAMES[contender]} against {LABELS[rival]}", *counts])
    header = ["", "paper's medians of joint LPD", "our medians of joint LPD"]
    return Table([*header, *(f"significantly, {one}" for one in FIELDS.values())], lines, protocol)


def _set_by_set(found: Claims, protocol: str) -> Table:
    columns = [(rival, field) for rival in RIVALS for field in FIELDS]
    its = {
        (one.experiment, one.set, one.rival, field): _wins(one)
        for field in FIELDS
        for one in found.compare(protocol, field)
        if one.contender == BEST
    }
    lines = [
        [set_label(place[-1]), *(its.get((*place[1:], *column), MISSING) for column in columns)]
        for place in found.rows.places(protocol, in_print())
        if any((*place[1:], *column) in its for column in columns)
    ]
    names = [f"{LABELS[rival]}: {FIELDS[field]}" for rival, field in columns]
    return Table(["Data set", *names], lines, protocol)


def _wins(one: Comparison) -> Entry:
    signs, worse = one.signs, one.verdict == -1
    p = "p < 0.001" if signs.p < 0.001 else f"p = {signs.p:.3f}"
    won = f"{signs.wins} to {signs.losses}" + f" {WORSE}" * worse
    return Entry(won, f"{LABELS[one.method]}, {p}", one.verdict == 1, worse)


def in_short(found: Claims) -> list[str]:
    """The best of the three against each rival, in a sentence."""
    return [one for protocol in found.rows.protocols for one in _in_short(found, protocol)]


def _in_short(found: Claims, protocol: str) -> Iterable[str]:
    for rival in RIVALS:
        parts, untold = [], 0
        for field, label in FIELDS.items():
            its = found.chosen(protocol, field, BEST, rival)
            tally = significantly(its)
            untold = len(its) - tally.total
            on = f"on {tally.better} of {plural(tally.total, 'set')} (worse on {tally.worse})"
            parts += [f"by {label} {on}"] if tally.total else []
        few = f"{plural(untold, 'set')} with too few splits for a test ({FEWEST} are needed)"
        if parts:
            rest = f", not counting {few}" if untold else ""
            yield (
                f"Protocol `{protocol}`: the {NAMES[BEST]} is significantly better than "
                f"{LABELS[rival]} {', '.join(parts)}{rest}."
            )
        elif untold:
            yield f"Protocol `{protocol}`, MVI against {LABELS[rival]}: {few}."


def verdict(found: Claims, one: Statement, protocol: str) -> Entry:
    """A verdict on part of the rows says that it is one. One that rests on the sign test says
    nothing before there are enough splits for the test to reject at all."""
    if (judged := one.judged(found, protocol)) is None:
        return Entry(MISSING)
    holds, numbers = judged
    text = "holds" if holds else "does not hold"
    if one.experiment not in tables() or complete(found.rows, protocol, one.experiment):
        return Entry(text, numbers, holds, not holds)
    most = int(found.rows.counts(protocol, one.experiment).to_numpy().max())
    if one.by_test and most < FEWEST:
        return Entry("cannot be told", f"{plural(most, 'split')}; the test needs {FEWEST}")
    return Entry(f"so far it {text}", numbers, False, not holds)


# --- misses and errors ------------------------------------------------------------------------


class Resolution(NamedTuple):
    """How many printed errors on small test sets can be the median of an error rate."""

    checked: int
    possible: int
    example: str


def error_resolution(rows: Rows) -> Resolution:
    """Could the printed errors be medians of averaged predictions? Only small test sets can tell.

    With n test points an error is a multiple of 100/n percent, and a median of an even number of
    them a multiple of half that; printed numbers are rounded to 0.01.
    """
    sizes = rows.fits.groupby(["experiment", "set"])["n_test"].median()
    known = printed()["value"].xs("error", level="metric").reset_index()
    known = known.join(sizes, on=["experiment", "set"]).query("0 < n_test <= 500")
    step = 50 / known.n_test
    wrong = known[abs(known.value / step - round(known.value / step)) * step > 0.00501]
    example = ""
    for one in wrong[:1].itertuples():
        of = f"{one.value}% of {one.n_test:.0f} points"
        example = f"{set_label(one.set)}, {LABELS[one.method]}: {of}"
    return Resolution(len(known), len(known) - len(wrong), example)


def _rates() -> list[str]:
    return [one for one in tables() if EXPERIMENTS[one].second == "error"]


def nearness(cells: Cells) -> list[Table]:
    """How far both kinds of error are from the printed ones: an inference must show its weak side.
    A positive number: ours is larger, so worse."""
    columns = [(one, method) for one in _rates() for method in METHODS]
    lines = []
    for protocol in cells.rows.protocols:
        for measure in (ERROR, ERROR_OF_DRAWS):
            groups = cells.of(measure, protocol, _rates()).groupby(["experiment", "method"])
            its = {
                place: Entry(f"{one.median():+.2f}", f"{one.min():+.1f} to {one.max():+.1f}")
                for place, one in groups["difference"]
            }
            entries = (its.get(place, MISSING) for place in columns)
            lines.append([f"{protocol}: {measure}", *entries])
    names = [f"{one}: {LABELS[method]}" for one, method in columns]
    return without_gaps(["Protocol: measure", *names], lines)


def worst_fits(cells: Cells) -> list[str]:
    found = []
    for protocol in cells.rows.protocols:
        said = []
        for measure in (ERROR, ERROR_OF_DRAWS):
            its = cells.of(measure, protocol, _rates())
            if len(its):
                near = int((its.difference.abs() <= 1).sum())
                one = its.loc[its.difference.abs().idxmax()]
                said.append(
                    f"by {measure} {near} of {plural(len(its), 'cell')}, the furthest "
                    f"{set_label(one.set)}, {LABELS[one.method]} ({one.difference:+.1f})"
                )
        found.append(
            f"Protocol `{protocol}`, within one point of the printed number: {'; '.join(said)}."
        )
    return found
