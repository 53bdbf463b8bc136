"""The record of the experiments: what there is, what failed, how long it took, how it was made."""

import json
import math
from typing import Any

from ._cells import N_SPLITS
from ._document import Block, Bullets, Code, Entry, Paragraph, Table
from ._figures import LABELS, set_label
from ._reading import ALL_METHODS, TABLES, Rows, number
from .printed import METHODS, sets

PARTS = ("prepare", "screen", "compile", "fit", "evaluate")


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def seconds(job: dict[str, Any], part: str) -> float:
    value = number(job, f"seconds.{part}")
    return value if math.isfinite(value) else 0.0


def duration(value: float) -> str:
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def complete(rows: Rows, protocol: str, table: str) -> bool:
    """Whether the paper's methods have all splits of all its sets."""
    return rows.has(protocol, table) and not _gaps(rows, protocol, table)


# --- what there is ----------------------------------------------------------------------------


def missing(rows: Rows) -> list[Block]:
    """What the paper has and these rows have not, in sentences."""
    said = []
    for protocol in ("best", "paper"):
        if protocol not in rows.protocols():
            said.append(f"Protocol `{protocol}`: nothing was run.")
            continue
        gaps = [] if rows.has(protocol, "toy") else ["the two-dimensional example"]
        there = {key[3] for key in rows.fits if key[:2] == (protocol, "toy")}
        if there and (absent := [LABELS[one] for one in METHODS if one not in there]):
            gaps.append(f"{', '.join(absent)} on the two-dimensional example")
        for table in TABLES:
            gaps += _gaps(rows, protocol, table)
        whole = f"Protocol `{protocol}`: complete, all of the paper's sets, methods and splits."
        said.append(f"Protocol `{protocol}` lacks {'; '.join(gaps)}." if gaps else whole)
        said += [text for one in ALL_METHODS if (text := _beside(rows, protocol, one))]
    return [Bullets(tuple(said))]


def _gaps(rows: Rows, protocol: str, table: str) -> list[str]:
    if not rows.has(protocol, table):
        return [f"everything {table}"]
    gone, methods, partial = [], {}, []
    for name in sets(table):
        counts = {one: len(rows.fits.get((protocol, table, name, one), {})) for one in METHODS}
        there = [n for n in counts.values() if n]
        if not there:
            gone.append(set_label(name))
            continue
        absent = tuple(LABELS[one] for one, n in counts.items() if not n)
        if absent:
            methods.setdefault(absent, []).append(set_label(name))
        expected = N_SPLITS.get(name, 100)
        if min(there) < expected:
            partial.append(f"{set_label(name)} {min(there)} of {expected}")
    gaps = [f"{table} sets without rows: {', '.join(gone)}"] if gone else []
    gaps += [f"{', '.join(what)} on {', '.join(on)}" for what, on in methods.items()]
    return gaps + ([f"splits ({table}): {', '.join(partial)}"] if partial else [])


def _beside(rows: Rows, protocol: str, method: str) -> str:
    """Where a method that the paper does not have ran on fewer splits than others did."""
    if method in METHODS:
        return ""

    def n(table: str, name: str, one: str) -> int:
        return len(rows.fits.get((protocol, table, name, one), {}))

    pairs = [(table, name) for table in TABLES for name in sets(table)]
    if not any(n(*pair, method) for pair in pairs):
        return ""
    most = {pair: max(n(*pair, one) for one in METHODS) for pair in pairs}
    short = [
        f"{set_label(pair[1])} {n(*pair, method)} of {most[pair]}"
        for pair in pairs
        if n(*pair, method) < most[pair]
    ]
    where = f"`{method}` ran on fewer splits, protocol `{protocol}`: {', '.join(short)}."
    return where if short else ""


def failures(rows: Rows) -> list[Block]:
    """Failed fits by reason, and rows whose score is not a finite number."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for row in rows.failed:
        names = (str(row[part]) for part in ("protocol", "experiment", "set", "method"))
        groups.setdefault((*names, str(row["failed"])), []).append(int(row["split"]))
    found: list[Block] = []
    if groups:
        lines = tuple(
            (
                Entry(f"{set_label(name)}, {LABELS.get(method, method)}", f"{table}, {protocol}"),
                Entry(str(len(splits))),
                Entry(_spans([split + 1 for split in splits])),  # as --splits counts them
                Entry(reason.replace("`", "'")),
            )
            for (protocol, table, name, method, reason), splits in sorted(groups.items())
        )
        header = ("Fit", "failed", "splits", "reason")
        found.append(Table("Fits that failed.", header, lines, wordy=True))
    else:
        found.append(Paragraph("No fit failed."))
    return found + _not_finite(rows)


def _not_finite(rows: Rows) -> list[Block]:
    """A test set that a posterior holds impossible has no finite score: medians leave it out."""
    lost = []
    for key, by_split in rows.fits.items():
        short = len(by_split) - len(rows.column(key, "lpd"))
        if short and key[1] != "toy":
            method = LABELS.get(key[3], key[3])
            lost.append(f"{set_label(key[2])}, {method}, protocol {key[0]}: {plural(short, 'row')}")
    if not lost:
        return []
    return [
        Paragraph("Rows whose joint LPD is not a finite number; the medians leave them out:"),
        Bullets(tuple(lost)),
    ]


def _spans(numbers: list[int]) -> str:
    """0, 1, 2, 5 as "0-2, 5"."""
    spans: list[list[int]] = []
    for one in sorted(numbers):
        if spans and one == spans[-1][1] + 1:
            spans[-1][1] = one
        else:
            spans.append([one, one])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


# --- time -------------------------------------------------------------------------------------


def times(rows: Rows) -> list[Block]:
    """Totals by backend, protocol and experiment; and what one fit costs, by method."""
    if not rows.jobs:
        return [Paragraph("There is no record of the time.")]
    text = (
        "Seconds summed over jobs; jobs that ran side by side count each. `compile` is the time "
        "that went into making programs, `fit` and `evaluate` what remained without it; "
        "`screen` looks for hyperparameters to start from, once for all methods. Laplace's fit "
        "from there is its own; the other methods begin at its end."
    )
    return [Paragraph(text), _totals(rows.jobs), _per_fit(rows.jobs)]


def walls(jobs: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Seconds on the wall by protocol and backend: every session up to its last finished job."""
    longest: dict[tuple[str, ...], float] = {}
    for job in jobs:
        if isinstance(job.get("elapsed"), int | float):
            session = tuple(str(job.get(part)) for part in ("protocol", "backend", "session"))
            longest[session] = max(longest.get(session, 0.0), float(job["elapsed"]))
    found: dict[tuple[str, str], float] = {}
    for (protocol, backend, _), value in longest.items():
        found[protocol, backend] = found.get((protocol, backend), 0.0) + value
    return found


def _totals(jobs: list[dict[str, Any]]) -> Table:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for job in jobs:
        group = tuple(str(job.get(part)) for part in ("backend", "protocol", "experiment"))
        groups.setdefault(group, []).append(job)
    everything = {**dict(sorted(groups.items())), ("all",): jobs}
    lines = []
    for group, its in everything.items():
        sums = [sum(seconds(job, part) for job in its) for part in PARTS]
        n_compiled = sum(int(job.get("n_compiled") or 0) for job in its)
        entries = [Entry(duration(value)) for value in (*sums, sum(sums))]
        lines.append(
            (Entry(", ".join(group)), *entries, Entry(str(n_compiled)), Entry(str(len(its))))
        )
    header = ("Backend, protocol, experiment", *PARTS, "together", "compilations", "jobs")
    return Table("Time by backend, protocol and experiment.", header, tuple(lines))


def _per_fit(jobs: list[dict[str, Any]]) -> Table:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for job in jobs:
        if (
            job.get("method") in ALL_METHODS
            and job.get("splits")
            and job.get("experiment") != "toy"
        ):
            group = (str(job.get("backend")), str(job.get("protocol")), str(job["method"]))
            groups.setdefault(group, []).append(job)
    lines = []
    for (backend, protocol, method), its in sorted(groups.items()):
        n = sum(int(job.get("n_splits") or job["splits"][1] - job["splits"][0]) for job in its)
        each = (sum(seconds(job, part) for job in its) for part in ("fit", "evaluate"))
        entries = [Entry(f"{1000 * value / max(n, 1):,.1f} ms") for value in each]
        name = f"{backend}, {protocol}, {LABELS[method]}"
        lines.append((Entry(name), Entry(f"{n:,}"), *entries))
    header = ("Backend, protocol, method", "fits", "fit, each", "evaluation, each")
    return Table(
        "Time of one fit and of its evaluation, compilation and the 2-D example aside.",
        header,
        tuple(lines),
    )


# --- how it was made --------------------------------------------------------------------------


def made(rows: Rows) -> list[Block]:
    """Commands, settings, seeds and versions as the runs recorded them, and counts of rows."""
    found: list[Block] = [_row_counts(rows)]
    if not rows.runs:
        return [*found, Paragraph("There is no record of the runs.")]
    lines = tuple(
        (
            Entry(str(run.get("run", "–"))[:10]),
            Entry(f"`{run.get('command', '–')}`"),
            Entry(str(run.get("started", "–"))),
            Entry(str(run.get("device", "–")), f"{run.get('backend')}, {run.get('n_cores')} cores"),
        )
        for run in rows.runs
    )
    header = ("Run", "command", "started", "device")
    found.append(Table("Runs.", header, lines, wordy=True))
    for title in ("settings", "versions"):
        for record, names in _distinct(rows.runs, title).items():
            of_runs = ", ".join(dict.fromkeys(names))
            found += [Paragraph(f"{title.capitalize()} of {of_runs}:"), Code(record)]
    return found


def _distinct(runs: list[dict[str, Any]], part: str) -> dict[str, list[str]]:
    """Equal records once, with the runs that have them."""
    found: dict[str, list[str]] = {}
    for run in runs:
        if run.get(part):
            record = json.dumps(run[part], indent=1, sort_keys=True)
            found.setdefault(record, []).append(str(run.get("run", "–"))[:10])
    return found


def _row_counts(rows: Rows) -> Table:
    lines = []
    for protocol in rows.protocols():
        for experiment in ("toy", *TABLES):
            entries = [
                sum(len(by) for key, by in rows.fits.items() if key == (*key[:3], method)
                    and key[:2] == (protocol, experiment))
                for method in ALL_METHODS
            ]  # fmt: skip
            failed = sum(
                (row["protocol"], row["experiment"]) == (protocol, experiment)
                for row in rows.failed
            )
            counts = (Entry(f"{n:,}") for n in (*entries, sum(entries), failed))
            lines.append((Entry(f"{protocol}, {experiment}"), *counts))
    header = ("Protocol, experiment", *(LABELS[one] for one in ALL_METHODS), "together", "failed")
    return Table("How many rows there are.", header, tuple(lines))
