"""The report's tables: our medians beside the printed numbers, those that are ours alone, claims
and misses. Every number comes from rows."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from . import claims as _claims
from .cells import BY_TEST, ERROR, ERROR_OF_DRAWS, MEASURES, Cells, Miss, metric_of, n_printed
from .claims import BEST, CONTENDERS, FIELDS, RIVALS, Claims, Comparison
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
from .layout import METRIC_LABELS, MISSING, Entry, Table, number, plural, set_label, without_gaps
from .record import complete
from .rows import Rows
from .statements import STATEMENTS, Statement
from .statistics import FEWEST

WORSE, BULLET = "▼", "•"
NAMES = {BEST: "best of MVI_mu, MVI_eig, MVI_lr", **LABELS}


# --- medians ----------------------------------------------------------------------------------


def beside_printed(cells: Cells, experiment: str, *measures: str) -> list[Table]:
    """One table for each protocol that has rows; with several measures a set has a row for each."""
    found = []
    for protocol in cells.rows.protocols:
        lines = [
            _compared(cells, (protocol, experiment, name), measure, len(measures) > 1)
            for name in cells.rows.sets(protocol, experiment)
            for measure in measures
        ]
        by_test = ["VI_diag by test score"] if measures[0] in BY_TEST else []
        header = ["" if len(measures) > 1 else "Data set", *map(LABELS.get, METHODS), *by_test]
        found += without_gaps([*header, *BESIDE], lines, protocol)
    return found


def _compared(
    cells: Cells, place: tuple[str, str, str], measure: str, by_metric: bool
) -> tuple[Entry, ...]:
    kind, field, _ = MEASURES[measure]
    best = cells.marks(*place, field)
    metric = metric_of(place[1], kind).upper()
    head = Entry(metric if by_metric else set_label(place[2]), _splits(cells.rows, *place))
    ours = [
        _beside(cells.get(measure, *place, one), one in best.best, best.bullet) for one in METHODS
    ]
    if measure in BY_TEST:
        ours.append(_beside(cells.get(BY_TEST[measure], *place, "diag")))
    return (head, *ours, *(_beside(cells.get(measure, *place, one)) for one in BESIDE))


def _beside(one: Any | None, best: bool = False, bullet: bool = False) -> Entry:
    if one is None:
        return MISSING
    places = EXPERIMENTS[one.experiment].decimals
    ours = number(one.ours, places) + f" {BULLET}" * (best and bullet)
    if not np.isfinite(one.printed):
        return Entry(ours, strong=best)
    note = f"({number(one.printed, places)}) {number(one.difference, places, signed=True)}"
    return Entry(ours, note + f" {WORSE}" * (not one.no_worse), best, not one.no_worse)


def _splits(rows: Rows, protocol: str, experiment: str, name: str) -> str:
    counts = [n for n in rows.counts(protocol, experiment, name).values() if n]
    expected = EXPERIMENTS[experiment].splits_of(name)
    if min(counts) == max(counts) == expected:
        return f"{expected} splits"
    span = str(max(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f"{span} of {expected} splits"


def of_each_method(cells: Cells, entry: Any) -> list[Table]:
    """`entry(fits of the set and method, place, method)` for all of them, protocol by protocol."""
    found, rows = [], cells.rows
    for protocol in rows.protocols:
        lines = []
        for place in [
            (protocol, one, name) for one in tables() for name in rows.sets(protocol, one)
        ]:
            its = dict(tuple(rows.of(*place).groupby("method")))
            entries = (
                entry(its[one], place, one) if one in its else MISSING for one in ALL_METHODS
            )
            lines.append((Entry(set_label(place[2]), _splits(rows, *place)), *entries))
        header = ["Data set", *map(LABELS.get, ALL_METHODS)]
        found += without_gaps(header, lines, protocol)
    return found


def pointwise(cells: Cells) -> list[Table]:
    """Marked as in the paper."""

    def entry(its: pd.DataFrame, place: tuple[str, str, str], method: str) -> Entry:
        best = cells.marks(*place, "pointwise")
        strong = method in best.best
        shown = number(its.pointwise.median(), EXPERIMENTS[place[1]].decimals)
        return Entry(shown + f" {BULLET}" * (strong and best.bullet), strong=strong)

    return of_each_method(cells, entry)


def diagnostics(cells: Cells) -> list[Table]:
    """ELBO, and below it what says whether to trust it."""

    def entry(its: pd.DataFrame, *_: Any) -> Entry:
        gap, khat = number(its.gap.median(), 2), number(its.khat.median(), 2)
        share = its.converged.mean()
        note = f"gap {gap}, k {khat}, " + ("–" if np.isnan(share) else f"{100 * share:.0f}%")
        return Entry(number(its.elbo.median(), 2), note, warn=bool(share < 0.9))

    return of_each_method(cells, entry)


def two_dimensional(rows: Rows) -> list[Table]:
    """KL of every method, protocols side by side."""
    header, columns = ["Method"], []
    for protocol in rows.protocols:
        its = rows.of(protocol, "toy", "mixture").set_index("method")
        for field, what, places in (
            ("kl", "KL(q || p)", 4),
            ("elbo", "ELBO", 4),
            ("khat", "k-hat", 2),
        ):
            header.append(f"{what}, {protocol}")
            values = its[field].reindex(ALL_METHODS)
            columns.append([Entry(number(value, places)) for value in values])
    names = [Entry(LABELS[method]) for method in ALL_METHODS]
    return without_gaps(header, list(zip(names, *columns, strict=True)))


def trends(rows: Rows, protocol: str) -> pd.DataFrame:
    """Median joint LPD: a line for each experiment, set and method, a column a number of draws."""
    columns = {int(one[6:]): one for one in rows.fits if one.startswith("trend.")}
    fits = rows.fits[rows.fits.protocol == protocol]
    medians = fits.groupby(["experiment", "set", "method"])[list(columns.values())].median()
    medians = medians.rename(columns={name: n for n, name in columns.items()})
    order = [
        (one, name, method)
        for one in tables()
        for name in EXPERIMENTS[one].sets
        for method in ALL_METHODS
    ]
    return medians.reindex([place for place in order if place in medians.index]).dropna(how="all")


def trend_table(found: pd.DataFrame, protocol: str) -> Table:
    lines = [
        (
            Entry(set_label(name), LABELS[method]),
            *(Entry(number(value, EXPERIMENTS[experiment].decimals)) for value in values),
        )
        for (experiment, name, method), values in zip(found.index, found.to_numpy(), strict=True)
    ]
    header = ("Data set, method", *(f"{n:,} draws" for n in found.columns))
    return Table(header, lines, protocol)


# --- counts and claims ------------------------------------------------------------------------


def summary(cells: Cells) -> Table:
    """Cells no worse than printed. What the paper does not print stands apart, if it has rows."""
    beside = [one for one in tables() if one not in in_print() and _has_rows(cells.rows, one)]
    groups = [*((one,) for one in in_print()), in_print(), *((one,) for one in beside)]
    lines = []
    for protocol in cells.rows.protocols:
        for measure in MEASURES:
            if cells.applies(protocol, measure):
                entries = (_counted(cells, measure, protocol, group) for group in groups)
                lines.append((Entry(f"{protocol}: {measure}"), *entries))
    names = {one: f"{set_label(one)} ({n_printed('lpd', (one,))})" for one in tables()}
    header = ["Protocol: measure", *(names[one] for one in in_print()), f"All ({n_printed('lpd')})"]
    return Table((*header, *(f"Not printed: {names[one]}" for one in beside)), lines)


def _has_rows(rows: Rows, experiment: str) -> bool:
    return any(rows.has(protocol, experiment) for protocol in rows.protocols)


def _counted(cells: Cells, measure: str, protocol: str, experiments: Any) -> Entry:
    found = cells.of(measure, protocol, experiments)
    missing = n_printed(MEASURES[measure].kind, experiments) - len(found)
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
    for contender in CONTENDERS:
        for rival in RIVALS:
            its = {one: found.chosen(protocol, one, contender, rival) for one in FIELDS}
            tallies = [
                _claims.printed_medians(contender, rival),
                _claims.by_medians(its["lpd"]),
                *(_claims.significantly(its[field]) for field in FIELDS),
            ]
            entries = (
                Entry(f"{one.better} / {one.same} / {one.worse}") if one.total else MISSING
                for one in tallies
            )
            lines.append((Entry(f"{NAMES[contender]} against {LABELS[rival]}"), *entries))
    header = ("", "paper's medians of joint LPD", "our medians of joint LPD")
    header += tuple(f"significantly, {label}" for label in FIELDS.values())
    return Table(header, lines, protocol)


def _set_by_set(found: Claims, protocol: str) -> Table:
    pairs = [(rival, field) for rival in RIVALS for field in FIELDS]
    by_place = {
        (one.experiment, one.set, one.rival, field): one
        for field in FIELDS
        for one in found.compare(protocol, field)
        if one.contender == BEST
    }
    lines = [
        (Entry(set_label(name)), *(_wins(by_place.get((one, name, *pair))) for pair in pairs))
        for one in tables()
        for name in EXPERIMENTS[one].sets
        if any((one, name, *pair) in by_place for pair in pairs)
    ]
    header = ("Data set", *(f"{LABELS[rival]}: {FIELDS[field]}" for rival, field in pairs))
    return Table(header, lines, protocol)


def _wins(one: Comparison | None) -> Entry:
    if one is None:
        return MISSING
    signs, worse = one.signs, one.verdict == -1
    p = "p < 0.001" if signs.p < 0.001 else f"p = {signs.p:.3f}"
    won = f"{signs.wins} to {signs.losses}" + f" {WORSE}" * worse
    return Entry(won, f"{LABELS[one.method]}, {p}", one.verdict == 1, worse)


def statements(found: Claims) -> Table:
    """One line for each of the paper's sentences: what it says, the rule, its numbers, ours."""
    lines = [
        (
            Entry(f"{one.claim}.", f"Holds when {one.rule}."),
            Entry(one.printed),
            *(_verdict(found, one, protocol) for protocol in found.rows.protocols),
        )
        for one in STATEMENTS
    ]
    header = ("What the paper says", "the paper's numbers")
    header += tuple(f"protocol {one}" for one in found.rows.protocols)
    return Table(header, lines, wordy=True)


def _verdict(found: Claims, one: Statement, protocol: str) -> Entry:
    """A verdict on part of the rows says that it is one. One that rests on the sign test says
    nothing before there are enough splits for the test to reject at all."""
    verdict = one.verdict(found, protocol)
    if verdict is None:
        return MISSING
    holds, numbers = verdict
    text = "holds" if holds else "does not hold"
    if one.experiment not in tables() or complete(found.rows, protocol, one.experiment):
        return Entry(text, numbers, holds, not holds)
    fits = found.rows.fits
    its = fits[(fits.protocol == protocol) & (fits.experiment == one.experiment)]
    most = int(its.groupby(["set", "method"]).size().max())
    if one.by_test and most < FEWEST:
        return Entry("cannot be told", f"{plural(most, 'split')}; the test needs {FEWEST}")
    return Entry(f"so far it {text}", numbers, False, not holds)


# --- misses and errors ------------------------------------------------------------------------


def misses(found: list[Miss]) -> Table:
    """Each with how far, how sure, and what the numbers say of the reason."""
    lines = []
    for one, _, se, converged, reasons in found:
        experiment = EXPERIMENTS[one.experiment]
        ours, known, worse, allowed, error = (
            number(value, experiment.decimals)
            for value in (one.ours, one.printed, one.shortfall, one.tolerance, se)
        )
        share = f"{100 * converged:.0f}% converged" if np.isfinite(converged) else ""
        entries = (
            Entry(
                f"{set_label(one.set)}, {LABELS[one.method]}",
                f"{METRIC_LABELS[one.metric]}, {one.protocol}",
            ),
            Entry(ours, f"({known})"),
            Entry(worse, f"({allowed})"),
            Entry(error),
            Entry(f"{one.n_splits} of {experiment.splits_of(one.set)}", share),
            Entry("; ".join(reasons) or "nothing"),
        )
        lines.append(entries)
    header = ("Cell", "ours (printed)", "worse by (tolerance)", "se of our median")
    header += ("splits", "what the numbers say")
    return Table(header, lines, wordy=True)


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
    possible, checked, example = 0, 0, ""
    for (experiment, name, metric, method), value in printed()["value"].items():
        n_test = sizes.get((experiment, name), np.nan)
        if metric == "error" and 0 < n_test <= 500:
            step = 50 / n_test
            checked += 1
            fits = abs(value / step - round(value / step)) * step <= 0.00501
            possible += fits
            if not fits and not example:
                example = f"{set_label(name)}, {LABELS[method]}: {value}% of {n_test:.0f} points"
    return Resolution(checked, possible, example)


def nearness(cells: Cells) -> list[Table]:
    """How far both kinds of error are from the printed ones: an inference must show its weak side.
    A positive number: ours is larger, so worse."""
    rates = [one for one in tables() if EXPERIMENTS[one].second == "error"]
    columns = [(one, method) for one in rates for method in METHODS]
    lines = []
    for protocol in cells.rows.protocols:
        for measure in (ERROR, ERROR_OF_DRAWS):
            found = cells.of(measure, protocol, rates).groupby(["experiment", "method"])
            by_place = dict(tuple(found["difference"]))
            entries = (
                Entry(f"{its.median():+.2f}", f"{its.min():+.1f} to {its.max():+.1f}")
                if (its := by_place.get(place)) is not None
                else MISSING
                for place in columns
            )
            lines.append((Entry(f"{protocol}: {measure}"), *entries))
    header = ["Protocol: measure", *(f"{one}: {LABELS[method]}" for one, method in columns)]
    return without_gaps(header, lines)


def worst_fits(cells: Cells) -> list[str]:
    rates = [one for one in tables() if EXPERIMENTS[one].second == "error"]
    found = []
    for protocol in cells.rows.protocols:
        said = []
        for measure in (ERROR, ERROR_OF_DRAWS):
            its = cells.of(measure, protocol, rates)
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
