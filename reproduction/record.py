"""The record of the experiments: what there is, what failed, how long it took, how it was made."""

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from .experiments import ALL_METHODS, EXPERIMENTS, LABELS, METHODS, N_PREDICT, PROTOCOLS, tables
from .layout import Entry, Table, plural, set_label
from .rows import Rows

PARTS = ("prepare", "screen", "compile", "fit", "evaluate")


def duration(value: float) -> str:
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


# --- what there is ----------------------------------------------------------------------------


def complete(rows: Rows, protocol: str, experiment: str) -> bool:
    """Whether the paper's methods have all splits of all its sets."""
    return rows.has(protocol, experiment) and not _gaps(rows, protocol, experiment)


def missing(rows: Rows) -> list[str]:
    """What the paper has and these rows have not, in sentences."""
    said = []
    for protocol in PROTOCOLS:
        if protocol not in rows.protocols:
            said.append(f"Protocol `{protocol}`: nothing was run.")
            continue
        gaps = [] if rows.has(protocol, "toy") else ["the two-dimensional example"]
        counts = rows.counts(protocol, "toy", "mixture")
        absent = [LABELS[one] for one in METHODS if not counts[one]]
        if any(counts.values()) and absent:
            gaps.append(f"{', '.join(absent)} on the two-dimensional example")
        for one in tables():
            its = EXPERIMENTS[one]
            if (its.in_print and protocol in its.protocols) or rows.has(protocol, one):
                gaps += _gaps(rows, protocol, one)
        whole = f"Protocol `{protocol}`: complete, all of the paper's sets, methods and splits."
        said.append(f"Protocol `{protocol}` lacks {'; '.join(gaps)}." if gaps else whole)
        said += _fewer_beside(rows, protocol)
    return said


def _gaps(rows: Rows, protocol: str, experiment: str) -> list[str]:
    if not rows.has(protocol, experiment):
        return [f"everything {experiment}"]
    gone, methods, partial = [], {}, []
    its = [one for one in METHODS if one in EXPERIMENTS[experiment].methods]
    for name in EXPERIMENTS[experiment].sets:
        counts = rows.counts(protocol, experiment, name)
        there = [counts[one] for one in its if counts[one]]
        if not there:
            gone.append(set_label(name))
            continue
        if absent := tuple(LABELS[one] for one in its if not counts[one]):
            methods.setdefault(absent, []).append(set_label(name))
        expected = EXPERIMENTS[experiment].splits_of(name)
        if min(there) < expected:
            partial.append(f"{set_label(name)} {min(there)} of {expected}")
    gaps = [f"{experiment} sets without rows: {', '.join(gone)}"] if gone else []
    gaps += [f"{', '.join(what)} on {', '.join(on)}" for what, on in methods.items()]
    return gaps + ([f"splits ({experiment}): {', '.join(partial)}"] if partial else [])


def _fewer_beside(rows: Rows, protocol: str) -> Iterable[str]:
    """Where a method that the paper does not have ran on fewer splits than others did."""
    counts = {
        (one, name): rows.counts(protocol, one, name)
        for one in tables()
        for name in EXPERIMENTS[one].sets
    }
    for method in ALL_METHODS[len(METHODS) :]:
        short = []
        for (experiment, name), its in counts.items():
            if method not in EXPERIMENTS[experiment].methods:
                continue
            most = max(its[one] for one in METHODS)
            if its[method] < most:
                short.append(f"{set_label(name)} {its[method]} of {most}")
        if short and any(its[method] for its in counts.values()):
            yield f"`{method}` ran on fewer splits, protocol `{protocol}`: {', '.join(short)}."


def failures(rows: Rows) -> Table:
    """Failed fits by reason."""
    groups = rows.failed.groupby(["protocol", "experiment", "set", "method", "failed"])["split"]
    lines = [
        (
            Entry(f"{set_label(name)}, {LABELS.get(method, method)}", f"{experiment}, {protocol}"),
            Entry(str(len(splits))),
            Entry(spans([int(split) + 1 for split in splits])),  # as --splits counts them
            Entry(reason.replace("`", "'")),
        )
        for (protocol, experiment, name, method, reason), splits in groups
    ]
    return Table(("Fit", "failed", "splits", "reason"), lines, wordy=True)


def not_finite(rows: Rows) -> list[str]:
    """A test set that a posterior holds impossible has no finite score: medians leave it out."""
    lost = rows.fits[rows.fits.lpd.isna() & (rows.fits.experiment != "toy")]
    return [
        f"{set_label(name)}, {LABELS.get(method, method)}, protocol {protocol}: {plural(n, 'row')}"
        for (protocol, name, method), n in lost.groupby(["protocol", "set", "method"])
        .size()
        .items()
    ]


def spans(numbers: list[int]) -> str:
    """0, 1, 2, 5 as "0-2, 5"."""
    found: list[list[int]] = []
    for one in sorted(numbers):
        if found and one == found[-1][1] + 1:
            found[-1][1] = one
        else:
            found.append([one, one])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


# --- time -------------------------------------------------------------------------------------


def jobs_with_parts(jobs: pd.DataFrame) -> pd.DataFrame:
    """A column for each part of the work, whether or not a job has it."""
    parts = {part: jobs.get(f"seconds.{part}", pd.Series(0.0, jobs.index)) for part in PARTS}
    return jobs.assign(**{part: its.astype(float).fillna(0.0) for part, its in parts.items()})


def times(rows: Rows) -> list[Table]:
    """Totals by backend, protocol and experiment; and what one fit costs, by method."""
    if rows.jobs.empty:
        return []
    jobs = jobs_with_parts(rows.jobs)
    parts = [part for part in PARTS if part != "compile" or jobs.compile.any()]
    groups = dict(tuple(jobs.groupby(["backend", "protocol", "experiment"])))
    lines = []
    for group, its in {**groups, ("all",): jobs}.items():
        sums = [its[part].sum() for part in parts]
        entries = [Entry(duration(value)) for value in (*sums, sum(sums))]
        lines.append((Entry(", ".join(group)), *entries, Entry(str(len(its)))))
    header = ("Backend, protocol, experiment", *parts, "together", "jobs")
    totals = Table(header, lines)
    fits = jobs[jobs.method.isin(ALL_METHODS) & (jobs.experiment != "toy")]
    sums = fits.groupby(["backend", "protocol", "method"])[["n_splits", "fit", "evaluate"]].sum()
    lines = [
        (
            Entry(f"{backend}, {protocol}, {LABELS[method]}"),
            Entry(f"{int(n):,}"),
            *(Entry(f"{1000 * value / n:,.1f} ms") for value in seconds),
        )
        for (backend, protocol, method), (n, *seconds) in zip(
            sums.index, sums.to_numpy(), strict=True
        )
    ]
    header = ("Backend, protocol, method", "fits", "fit, each", "evaluation, each")
    return [totals, Table(header, lines)]


def walls(jobs: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Seconds on the wall by protocol and backend: every session up to its last finished job."""
    if "elapsed" not in jobs:
        return {}
    sessions = jobs.groupby(["protocol", "backend", "session"])["elapsed"].max()
    return sessions.groupby(["protocol", "backend"]).sum().to_dict()


def time_in_short(rows: Rows) -> str:
    done = f"{plural(len(rows.fits), 'fit')} made it into the tables, {len(rows.failed):,} failed"
    if rows.jobs.empty:
        return f"{done}; there is no record of the time."
    sums = jobs_with_parts(rows.jobs).groupby("backend")[list(PARTS)].sum().sum(axis=1)
    spent = ", ".join(f"{duration(value)} on {name}" for name, value in sums.items())
    on_the_wall = ", ".join(
        f"protocol {protocol} {duration(value)} on {backend}"
        for (protocol, backend), value in walls(rows.jobs).items()
    )
    clock = f" On the wall: {on_the_wall}." if on_the_wall else ""
    return f"{done}.{clock} All jobs added up, though many ran side by side: {spent}."


# --- how it was made --------------------------------------------------------------------------


def not_as_usual(runs: list[dict[str, Any]]) -> list[str]:
    """Settings other than a protocol's own, and code that changed between runs."""
    said: dict[str, None] = {}  # in order, each once
    for run in runs:
        settings = run["settings"]
        protocol = settings["protocol"]
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
            name = protocol["name"]
            said[f"Not the full settings of protocol `{name}`: {'; '.join(changed)}."] = None
    sources = {str((run.get("versions") or {}).get("source", "unknown")) for run in runs}
    if len(sources) > 1:
        said[
            f"The runs were made by {len(sources)} states of the source code, so rows may differ "
            "for that alone (versions: at the end)."
        ] = None
    return list(said)


def row_counts(rows: Rows) -> Table:
    lines = []
    for protocol in rows.protocols:
        for experiment in EXPERIMENTS:
            fits, failed = (
                its[(its.protocol == protocol) & (its.experiment == experiment)]
                for its in (rows.fits, rows.failed)
            )
            by_method = [int((fits.method == one).sum()) for one in ALL_METHODS]
            counts = (Entry(f"{n:,}") for n in (*by_method, sum(by_method), len(failed)))
            lines.append((Entry(f"{protocol}, {experiment}"), *counts))
    header = ("Protocol, experiment", *(LABELS[one] for one in ALL_METHODS), "together", "failed")
    return Table(header, lines)


def runs(records: list[dict[str, Any]]) -> Table:
    lines = [
        (
            Entry(str(run.get("run", "–"))[:10]),
            Entry(f"`{run.get('command', '–')}`"),
            Entry(str(run.get("started", "–"))),
            Entry(str(run.get("device", "–")), f"{run.get('backend')}, {run.get('n_cores')} cores"),
        )
        for run in records
    ]
    return Table(("Run", "command", "started", "device"), lines, wordy=True)


def run_records(records: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Settings and versions; equal ones once, with the runs that have them."""
    found: dict[tuple[str, str], list[str]] = {}
    for part in ("settings", "versions"):
        for run in records:
            if run.get(part):
                text = json.dumps(run[part], indent=1, sort_keys=True)
                found.setdefault((part.capitalize(), text), []).append(str(run.get("run"))[:10])
    return [(part, ", ".join(dict.fromkeys(its)), text) for (part, text), its in found.items()]
