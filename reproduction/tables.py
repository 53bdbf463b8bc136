"""The report's tables: our medians beside the printed numbers, those that are ours alone, claims
and misses. Every number comes from rows."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .cells import BY_TEST, ERROR, ERROR_OF_DRAWS, MEASURES, Cells, metric_of, n_printed
from .claims import BEST, CONTENDERS, FIELDS, RIVALS, Claims, Comparison, Statement, significantly
from .experiments import ALL_METHODS, EXPERIMENTS, LABELS, METHODS, in_print, printed, tables
from .layout import MISSING, Entry, Table, laid_out, number, plural, set_label
from .record import complete
from .rows import Place, Rows
from .statistics import FEWEST, Marks

WORSE, BULLET = "▼", "•"
NAMES = {BEST: "best of MVI_mu, MVI_eig, MVI_lr", **LABELS}


def medians(cells: Cells, experiments: Sequence[str], *measures: str) -> list[Table]:
    """Beside the printed ones: a table for each protocol that has rows; with several measures a set
    has a line for each."""
    asked, by_test = dict(zip(LABELS.values(), ALL_METHODS, strict=True)), "VI_diag by test score"
    columns, found = list(asked), []
    columns.insert(len(METHODS), by_test)
    for protocol in cells.rows.protocols:
        entries = {}
        for place, measure in itertools.product(cells.rows.places(protocol, experiments), measures):
            kind, field, _ = MEASURES[measure]
            label = set_label(place[2]) if len(measures) == 1 else metric_of(place[1], kind).upper()
            line, marks = _head(cells.rows, place, label), cells.marks(*place, field)
            for column, method in asked.items():
                if one := cells.get(measure, *place, method):
                    entries[line, column] = _beside(one, marks)
            if one := cells.get(BY_TEST.get(measure, ""), *place, "diag"):
                entries[line, by_test] = _beside(one, Marks())
        corner = "Data set" if len(measures) == 1 else ""
        found += laid_out(corner, entries, columns, protocol)
    return found


def _head(rows: Rows, place: Place, label: str) -> Entry:
    """With how many splits there are, of how many."""
    counts = rows.of(*place).method.value_counts()
    expected = EXPERIMENTS[place[1]].splits_of(place[2])
    some = " to ".join(map(str, sorted({counts.min(), counts.max()})))
    return Entry(
        label, f"{some} splits" if some == str(expected) else f"{some} of {expected} splits"
    )


def _beside(one: Any, marks: Marks) -> Entry:
    places, best = EXPERIMENTS[one.experiment].decimals, one.method in marks.best
    ours = number(one.ours, places) + f" {BULLET}" * (best and marks.bullet)
    if np.isnan(one.printed):
        return Entry(ours, strong=best)
    note = f"({number(one.printed, places)}) {number(one.difference, places, '+')}"
    return Entry(ours, note + f" {WORSE}" * (not one.no_worse), best, not one.no_worse)


def diagnostics(rows: Rows) -> list[Table]:
    """ELBO, and below it what says whether to trust it."""
    found, how = [], {"elbo": "median", "gap": "median", "khat": "median", "converged": "mean"}
    for protocol in rows.protocols:
        entries = {
            (_head(rows, place, set_label(place[2])), LABELS[method]): _trust(one)
            for place in rows.places(protocol)
            for method, one in rows.of(*place).groupby("method").agg(how).iterrows()
        }
        found += laid_out("Data set", entries, LABELS.values(), protocol)
    return found


def _trust(one: pd.Series) -> Entry:
    share = f"{100 * one.converged:.0f}%" if one.converged >= 0 else MISSING
    note = f"gap {number(one.gap, 2)}, k {number(one.khat, 2)}, {share}"
    return Entry(number(one.elbo, 2), note, warn=bool(one.converged < 0.9))


def two_dimensional(rows: Rows) -> list[Table]:
    """KL of every method, protocols side by side."""
    columns, entries = [], {}
    for protocol in rows.protocols:
        its = rows.of(protocol, "toy", "mixture").set_index("method").reindex(ALL_METHODS)
        for field, what, places in (
            ("kl", "KL(q || p)", 4),
            ("elbo", "ELBO", 4),
            ("khat", "k-hat", 2),
        ):
            columns.append(f"{what}, {protocol}")
            for method, value in its[field].dropna().items():
                entries[LABELS[method], columns[-1]] = number(value, places)
    return laid_out("Method", entries, columns)


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
    apart = [one for one in tables() if one in set(cells.rows.fits.experiment) - set(in_print())]
    groups = [*((one,) for one in in_print()), in_print(), *((one,) for one in apart)]
    lines = [
        [f"{protocol}: {measure}", *(_counted(cells, measure, protocol, one) for one in groups)]
        for protocol in cells.rows.protocols
        for measure in MEASURES
        if cells.applies(protocol, measure)
    ]
    names = {one: f"{set_label(one)} ({n_printed('lpd', (one,))})" for one in tables()}
    header = ["Protocol: measure", *(names[one] for one in in_print()), f"All ({n_printed('lpd')})"]
    return Table([*header, *(f"Not printed: {names[one]}" for one in apart)], lines)


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
    for contender, rival in itertools.product(CONTENDERS, RIVALS):
        tallies = found.tallies(protocol, contender, rival)
        counts = [" / ".join(map(str, one)) if one.total else MISSING for one in tallies]
        lines.append([f"{NAMES[contender]} against {LABELS[rival]}", *counts])
    header = ["", "paper's medians of joint LPD", "our medians of joint LPD"]
    return Table([*header, *(f"significantly, {one}" for one in FIELDS.values())], lines, protocol)


def _set_by_set(found: Claims, protocol: str) -> Table:
    entries = {
        (set_label(one.set), f"{LABELS[one.rival]}: {label}"): _wins(one)
        for field, label in FIELDS.items()
        for one in found.compare(protocol, field)
        if one.contender == BEST
    }
    columns = [f"{LABELS[rival]}: {label}" for rival in RIVALS for label in FIELDS.values()]
    return laid_out("Data set", entries, columns, protocol, gaps=True)[0]


def _wins(one: Comparison) -> Entry:
    signs, worse = one.signs, one.verdict == -1
    p = "p < 0.001" if signs.p < 0.001 else f"p = {signs.p:.3f}"
    won = f"{signs.wins} to {signs.losses}" + f" {WORSE}" * worse
    return Entry(won, f"{LABELS[one.method]}, {p}", one.verdict == 1, worse)


def in_short(found: Claims) -> Iterable[str]:
    """The best of the three against each rival, in a sentence."""
    for protocol, rival in itertools.product(found.rows.protocols, RIVALS):
        parts, untold = [], 0
        for field, label in FIELDS.items():
            its = found.chosen(protocol, field, BEST, rival)
            tally = significantly(its)
            untold = len(its) - tally.total
            on = f"on {tally.better} of {plural(tally.total, 'set')} (worse on {tally.worse})"
            parts += [f"by {label} {on}"] if tally.total else []
        few = f"{plural(untold, 'set')} with too few splits for a test ({FEWEST} are needed)"
        if parts:
            better = f"the {NAMES[BEST]} is significantly better than {LABELS[rival]}"
            rest = f", not counting {few}" if untold else ""
            yield f"Protocol `{protocol}`: {better} {', '.join(parts)}{rest}."
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
    entries = {}
    for protocol, measure in itertools.product(cells.rows.protocols, (ERROR, ERROR_OF_DRAWS)):
        groups = cells.of(measure, protocol, _rates()).groupby(["experiment", "method"])
        for (experiment, method), one in groups["difference"]:
            entry = Entry(f"{one.median():+.2f}", f"{one.min():+.1f} to {one.max():+.1f}")
            entries[f"{protocol}: {measure}", f"{experiment}: {LABELS[method]}"] = entry
    columns = [f"{one}: {LABELS[method]}" for one in _rates() for method in METHODS]
    return laid_out("Protocol: measure", entries, columns)


def worst_fits(cells: Cells) -> Iterable[str]:
    for protocol in cells.rows.protocols:
        said = []
        for measure in (ERROR, ERROR_OF_DRAWS):
            its = cells.of(measure, protocol, _rates())
            if len(its):
                near = f"{(its.difference.abs() <= 1).sum()} of {plural(len(its), 'cell')}"
                one = its.loc[its.difference.abs().idxmax()]
                furthest = f"{set_label(one.set)}, {LABELS[one.method]} ({one.difference:+.1f})"
                said.append(f"by {measure} {near}, the furthest {furthest}")
        within = "within one point of the printed number"
        yield f"Protocol `{protocol}`, {within}: {'; '.join(said)}."
