"""What the numbers say: the summary, the paper's claims one by one, and the misses.

Every sentence is made from counts. Nothing here knows how the experiments came out.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..paper import _cells, _claims
from ._cells import ERROR, ERROR_OF_DRAWS, LPD, RULES
from ._claims import BEST, CONTENDERS, FIELDS, RIVALS, Comparison, Tally
from ._document import Block, Bullets, Entry, Paragraph, Table
from ._figures import LABELS, METRIC_LABELS, set_label
from ._protocol import N_PREDICT
from ._reading import TABLES, Rows
from ._record import PARTS, duration, plural, seconds, walls
from ._tables import MISSING, WORSE, decimals, text, without_gaps
from .printed import METHODS, printed, sets

NAMES = {BEST: "best of MVI_mu, MVI_eig, MVI_lr", **LABELS}
FIELD_LABELS = {"lpd": "joint LPD", "pointwise": "pointwise LPD", "elbo": "ELBO"}


# --- summary ----------------------------------------------------------------------------------


def summary(rows: Rows) -> list[Block]:
    """Cells no worse than printed, claims, and time."""
    lines = []
    for protocol in rows.protocols():
        for rule in RULES:
            if not _cells.applies(rows, protocol, rule):
                continue
            counts = [_cells.count(rows, protocol, rule, (table,)) for table in TABLES]
            counts.append(_cells.count(rows, protocol, rule))
            entries = [_counted(one) for one in counts]
            lines.append((Entry(f"{protocol}: {rule.title}"), *entries))
    totals = [_cells.count(rows, "none", LPD, (table,)).printed for table in TABLES]
    header = ["Protocol: measure"]
    header += [f"{table.capitalize()} ({n})" for table, n in zip(TABLES, totals, strict=True)]
    caption = "Cells no worse than printed, within tolerance (of those that have rows)."
    table = Table(caption, (*header, f"All ({sum(totals)})"), tuple(lines))
    said = [sentence for one in rows.protocols() for sentence in _in_short(rows, one)]
    return [table, Bullets((*said, _time(rows), *_not_as_usual(rows.runs)))]


def _counted(one: _cells.Count) -> Entry:
    if not one.present:
        return MISSING
    note = f"{one.printed - one.present} missing" if one.present < one.printed else ""
    return Entry(f"{one.no_worse} of {one.present}", note)


def _in_short(rows: Rows, protocol: str) -> Iterable[str]:
    for rival in RIVALS:
        parts, untold = [], 0
        for field in FIELDS:
            found = _claims.chosen(_claims.compare(rows, protocol, field), BEST, rival)
            tally = _claims.significantly(found)
            untold = len(found) - tally.total
            if tally.total:
                parts.append(
                    f"by {FIELD_LABELS[field]} on {tally.better} of {plural(tally.total, 'set')} "
                    f"(worse on {tally.worse})"
                )
        few = (
            f"{plural(untold, 'set')} with too few splits for a test ({_claims.FEWEST} are needed)"
        )
        if parts:
            rest = f", not counting {few}" if untold else ""
            yield (
                f"Protocol `{protocol}`: the {NAMES[BEST]} is significantly better than "
                f"{LABELS[rival]} {', '.join(parts)}{rest}."
            )
        elif untold:
            yield f"Protocol `{protocol}`, MVI against {LABELS[rival]}: {few}."


def _not_as_usual(runs: list[dict[str, Any]]) -> Iterable[str]:
    """Settings other than a protocol's own, and code that changed between runs."""
    said: dict[str, None] = {}  # in order, each once
    for run in runs:
        settings = run.get("settings") or {}
        protocol = settings.get("protocol") or {}
        changed = []
        if settings.get("n_draws"):
            changed.append(f"{settings['n_draws']} draws where draws are taken")
        if settings.get("n_basis"):
            changed.append(plural(settings["n_basis"], "basis function"))
        if len(protocol.get("diag_starts") or (1, 2)) == 1:
            changed.append("VI_diag from one start, so there is none to choose by test score")
        if settings.get("n_predict", N_PREDICT) != N_PREDICT:
            changed.append(f"scores at S' = {settings['n_predict']:,}, the paper's at 10,000")
        if changed:
            name = protocol.get("name", "–")
            said[f"Not the full settings of protocol `{name}`: {'; '.join(changed)}."] = None
    sources = {str((run.get("versions") or {}).get("source", "unknown")) for run in runs}
    if len(sources) > 1:
        said[
            f"The runs were made by {len(sources)} states of the source code, so rows may differ "
            "for that alone (versions: at the end)."
        ] = None
    return said


def _time(rows: Rows) -> str:
    totals: dict[str, float] = {}
    for job in rows.jobs:
        backend = str(job.get("backend"))
        totals[backend] = totals.get(backend, 0.0) + sum(seconds(job, part) for part in PARTS)
    n_fits = sum(len(by_split) for by_split in rows.fits.values())
    done = f"{plural(n_fits, 'fit')} made it into the tables, {len(rows.failed):,} failed"
    if not totals:
        return f"{done}; there is no record of the time."
    spent = ", ".join(f"{duration(value)} on {name}" for name, value in sorted(totals.items()))
    on_the_wall = ", ".join(
        f"protocol {protocol} {duration(value)} on {backend}"
        for (protocol, backend), value in sorted(walls(rows.jobs).items())
    )
    clock = f" On the wall: {on_the_wall}." if on_the_wall else ""
    return f"{done}.{clock} All jobs added up, though many ran side by side: {spent}."


# --- claims -----------------------------------------------------------------------------------


def claims(rows: Rows) -> list[Block]:
    """For each protocol: the counts over sets, and then set by set."""
    found: list[Block] = []
    for protocol in rows.protocols():
        compared = {field: _claims.compare(rows, protocol, field) for field in FIELDS}
        if any(compared.values()):
            found += [_tallies(protocol, compared), _set_by_set(protocol, compared)]
    return found


def _tallies(protocol: str, compared: dict[str, tuple[Comparison, ...]]) -> Table:
    lines = []
    for contender in CONTENDERS:
        for rival in RIVALS:
            found = {one: _claims.chosen(compared[one], contender, rival) for one in FIELDS}
            tallies = [
                _claims.printed_medians(contender, rival),
                _claims.by_medians(found["lpd"]),
                *(_claims.significantly(found[field]) for field in FIELDS),
            ]
            entries = (Entry(_three(one)) if one.total else MISSING for one in tallies)
            lines.append((Entry(f"{NAMES[contender]} against {LABELS[rival]}"), *entries))
    header = ("", "paper's medians of joint LPD", "our medians of joint LPD")
    header += tuple(f"significantly, {FIELD_LABELS[field]}" for field in FIELDS)
    caption = (
        "On how many sets better / not different / worse: by medians alone, and significantly by "
        f"both of the paper's conditions, sign test and bootstrap, where there are at least "
        f"{_claims.FEWEST} splits. Protocol {protocol}."
    )
    return Table(caption, header, tuple(lines))


def _three(tally: Tally) -> str:
    return f"{tally.better} / {tally.same} / {tally.worse}"


def _set_by_set(protocol: str, compared: dict[str, tuple[Comparison, ...]]) -> Table:
    by_place = {
        (one.table, one.set, one.rival, field): one
        for field, found in compared.items()
        for one in found
        if one.contender == BEST
    }
    places = [(table, name) for table in TABLES for name in sets(table)]
    lines = []
    for place in places:
        entries = [
            _wins(by_place.get((*place, rival, field))) for rival in RIVALS for field in FIELDS
        ]
        if any(entry != MISSING for entry in entries):
            lines.append((Entry(set_label(place[1])), *entries))
    header = tuple(
        f"{LABELS[rival]}: {FIELD_LABELS[field]}" for rival in RIVALS for field in FIELDS
    )
    caption = (
        f"The {NAMES[BEST]} against each rival, splits won to lost; bold: significantly better, "
        f"{WORSE}: significantly worse. Protocol {protocol}."
    )
    return Table(caption, ("Data set", *header), tuple(lines))


def _wins(one: Comparison | None) -> Entry:
    if one is None:
        return MISSING
    signs = one.signs
    p = "p < 0.001" if signs.p < 0.001 else f"p = {signs.p:.3f}"
    note = f"{LABELS[one.method]}, {p}"
    worse = one.verdict == -1
    won = f"{signs.wins} to {signs.losses}" + (f" {WORSE}" if worse else "")
    return Entry(won, note, one.verdict == 1, worse)


# --- misses -----------------------------------------------------------------------------------


def misses(found: list[_cells.Miss]) -> list[Block]:
    """Each with how far, how sure, and what the numbers say of the reason."""
    if not found:
        return [Paragraph("No cell that has rows is worse than printed beyond tolerance.")]
    header = ("Cell", "ours (printed)", "worse by (tolerance)", "se of our median")
    header += ("splits", "what the numbers say")
    caption = "Cells worse than printed beyond tolerance, the worst in units of tolerance first."
    lines = tuple(_missed(miss) for miss in found)
    return [Table(caption, header, lines, wordy=True), _reasons_counted(found)]


def _missed(miss: _cells.Miss) -> tuple[Entry, ...]:
    one = miss.cell
    ours, known, worse, allowed, se = (
        text(value, decimals(one.table))
        for value in (one.median, one.printed, one.shortfall, one.tolerance, one.se)
    )
    share = f"{100 * miss.converged:.0f}% converged" if math.isfinite(miss.converged) else ""
    return (
        Entry(f"{set_label(one.set)}, {LABELS[one.method]}",
              f"{METRIC_LABELS[one.metric]}, {one.protocol}"),
        Entry(ours, f"({known})"),
        Entry(worse, f"({allowed})"),
        Entry(se),
        Entry(f"{one.n_splits} of {_cells.N_SPLITS.get(one.set, 100)}", share),
        Entry("; ".join(_cells.reasons(miss)) or "nothing"),
    )  # fmt: skip


def _reasons_counted(found: list[_cells.Miss]) -> Paragraph:
    explained = sum(bool(_cells.reasons(miss)) for miss in found)
    return Paragraph(
        f"Of {plural(len(found), 'missed cell')}, {explained} have something said of them in the "
        "last column: a number that was checked, not a proof of the cause. The noise of the splits "
        "can be a reason where they are not the paper's own. The binary sets come with their "
        "published splits: with all of them, that noise is the paper's too and explains nothing."
    )


# --- how the paper counted errors -------------------------------------------------------------


def error_resolution(rows: Rows) -> list[Block]:
    """Could the printed errors be medians of averaged predictions? Only small test sets can tell.

    With n test points an error is a multiple of 100/n percent, and a median of an even number of
    them a multiple of half that; printed numbers are rounded to 0.01.
    """
    possible, checked, example = 0, 0, ""
    for (table, name, metric, method), one in printed().items():
        n_test = _n_test(rows, table, name)
        if metric == "error" and 0 < n_test <= 500:
            step = 50 / n_test
            checked += 1
            fits = abs(one.value / step - round(one.value / step)) * step <= 0.00501
            possible += fits
            if not fits and not example:
                example = f"{set_label(name)}, {LABELS[method]}: {one.value}% of {n_test} points"
    if possible > checked / 2 or not checked:
        return []
    said = (
        f"A label is right or wrong, so few numbers can be the median of an error rate on a small "
        f"test set. Of the {checked} printed ones on test sets of at most 500 points, {possible} "
        f"can be; {checked - possible} cannot ({example}, for one). So the paper likely scores "
        "single posterior draws and averages over them. This is an inference, the paper does not "
        "say it; both kinds are shown, and here is how near each comes."
    )
    return [Paragraph(said), *_nearness(rows)]


def _nearness(rows: Rows) -> list[Block]:
    """How far both kinds of error are from the printed ones: an inference must show its weak side.
    A positive number: ours is larger, so worse."""
    lines = []
    for protocol in rows.protocols():
        for rule in (ERROR, ERROR_OF_DRAWS):
            entries = []
            for table in ("binary", "multiclass"):
                by_method = {one: [] for one in METHODS}
                for cell in _cells.cells(rows, protocol, rule, (table,)):
                    by_method[cell.method].append(cell.difference)
                entries += [
                    Entry(f"{np.median(found):+.2f}", f"{min(found):+.1f} to {max(found):+.1f}")
                    if (found := by_method[method])
                    else MISSING
                    for method in METHODS
                ]
            if any(entry != MISSING for entry in entries):
                lines.append((Entry(f"{protocol}: {rule.title}"), *entries))
    if not lines:
        return []
    header = tuple(
        f"{table}: {LABELS[one]}" for table in ("binary", "multiclass") for one in METHODS
    )
    caption = (
        "Our median error minus the printed one, in points: the median over sets, and below it the "
        "range. The kind of error that the paper means should be near 0 for every method."
    )
    found = without_gaps(caption, ("Protocol: measure", *header), lines)
    return [found, Bullets(tuple(_worst_fit(rows, one) for one in rows.protocols()))]


def _worst_fit(rows: Rows, protocol: str) -> str:
    said = []
    for rule in (ERROR, ERROR_OF_DRAWS):
        found = _cells.cells(rows, protocol, rule, ("binary", "multiclass"))
        if found:
            near = sum(abs(one.difference) <= 1 for one in found)
            furthest = max(found, key=lambda one: abs(one.difference))
            said.append(
                f"by {rule.title} {near} of {plural(len(found), 'cell')}, the furthest "
                f"{set_label(furthest.set)}, {LABELS[furthest.method]} ({furthest.difference:+.1f})"
            )
    return f"Protocol `{protocol}`, within one point of the printed number: {'; '.join(said)}."


def _n_test(rows: Rows, table: str, name: str) -> int:
    for key in rows.fits:
        if key[1:3] == (table, name) and len(values := rows.values(key, "n_test")):
            return int(np.median(values))
    return 0
