"""The record of the experiments: what there is, what failed, how long it took, how it was made."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from .experiments import EXPERIMENTS, LABELS, METHODS, N_PREDICT, PROTOCOLS, in_print, tables
from .layout import Table, plural, set_label
from .rows import Rows

PARTS = ["prepare", "screen", "compile", "fit", "evaluate"]


def duration(value: float) -> str:
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def spans(numbers: Iterable[int]) -> str:
    """0, 1, 2, 5 as "0-2, 5"."""
    groups = itertools.groupby(enumerate(sorted(numbers)), lambda one: one[1] - one[0])
    runs = ([str(one) for _, one in group] for _, group in groups)
    return ", ".join(one[0] if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in runs)


# --- what there is ----------------------------------------------------------------------------


def complete(rows: Rows, protocol: str, experiment: str) -> bool:
    """Whether the paper's methods have all splits of all its sets."""
    return not _gaps(rows, protocol, experiment)


def everything(rows: Rows) -> bool:
    return all(complete(rows, protocol, one) for protocol in rows.protocols for one in in_print())


def missing(rows: Rows) -> list[str]:
    """What the paper has and these rows have not, in sentences."""
    said = []
    for protocol in PROTOCOLS:
        if protocol not in rows.protocols:
            said.append(f"Protocol `{protocol}`: nothing was run.")
            continue
        gaps = []
        for one, its in EXPERIMENTS.items():
            if (its.in_print and protocol in its.protocols) or protocol in rows.protocols_of(one):
                gaps += _gaps(rows, protocol, one)
        whole = f"Protocol `{protocol}`: complete, all of the paper's sets, methods and splits."
        said.append(f"Protocol `{protocol}` lacks {'; '.join(gaps)}." if gaps else whole)
        said += _fewer_beside(rows, protocol)
    return said


def _gaps(rows: Rows, protocol: str, experiment: str) -> list[str]:
    its, toy = EXPERIMENTS[experiment], "the two-dimensional example"
    if protocol not in rows.protocols_of(experiment):
        return [toy if experiment == "toy" else f"everything {experiment}"]
    counts = rows.counts(protocol, experiment)[[one for one in METHODS if one in its.methods]]
    gone, lacks, partial = [], {}, []
    for name, counted in counts.iterrows():
        label, n_splits = toy if experiment == "toy" else set_label(name), its.splits_of(name)
        if not counted.any():
            gone.append(label)
            continue
        if absent := ", ".join(LABELS[one] for one in counts if not counted[one]):
            lacks.setdefault(absent, []).append(label)
        if (fewest := counted[counted > 0].min()) < n_splits:
            partial.append(f"{label} {fewest} of {n_splits}")
    gaps = [f"{experiment} sets without rows: {', '.join(gone)}"] if gone else []
    gaps += [f"{methods} on {', '.join(sets)}" for methods, sets in lacks.items()]
    return gaps + ([f"splits ({experiment}): {', '.join(partial)}"] if partial else [])


def _fewer_beside(rows: Rows, protocol: str) -> Iterable[str]:
    """Where a method that the paper does not have ran on fewer splits than others did."""
    for method in [one for one in LABELS if one not in METHODS]:
        its = [one for one in tables() if method in EXPERIMENTS[one].methods]
        counts = pd.concat([rows.counts(protocol, one) for one in its])
        most = counts[list(METHODS)].max(axis=1)
        fewer = counts[method][counts[method] < most]
        if len(fewer) and counts[method].any():
            short = ", ".join(f"{set_label(name)} {n} of {most[name]}" for name, n in fewer.items())
            yield f"`{method}` ran on fewer splits, protocol `{protocol}`: {short}."


def failures(rows: Rows) -> Iterable[tuple[Any, list[int]]]:
    """Which splits failed, counted from 1 as --splits does, by method and reason."""
    by = ["protocol", "experiment", "set", "method", "failed"]
    groups = rows.failed.groupby(by)["split"]
    return [(place, [int(one) + 1 for one in splits]) for place, splits in groups]


def not_finite(rows: Rows) -> Iterable[str]:
    """A test set that a posterior holds impossible has no finite score: medians leave it out."""
    lost = rows.fits[rows.fits.lpd.isna() & (rows.fits.experiment != "toy")]
    for (protocol, name, method), its in lost.groupby(["protocol", "set", "method"]):
        fit = f"{set_label(name)}, {LABELS.get(method, method)}, protocol {protocol}"
        yield f"{fit}: {plural(len(its), 'row')}"


# --- time -------------------------------------------------------------------------------------


def with_parts(jobs: pd.DataFrame) -> pd.DataFrame:
    """A column for each part of the work, whether or not a job has it."""
    parts = jobs.reindex(columns=[f"seconds.{part}" for part in PARTS]).astype(float).fillna(0.0)
    return jobs.join(parts.set_axis(PARTS, axis=1))


def times(rows: Rows) -> list[Table]:
    """Totals by backend, protocol and experiment; and what one fit costs, by method."""
    if rows.jobs.empty:
        return []
    jobs = with_parts(rows.jobs)
    parts = [part for part in PARTS if part != "compile" or jobs.compile.any()]
    groups = dict(tuple(jobs.groupby(["backend", "protocol", "experiment"])))
    lines = []
    for group, its in {**groups, ("all",): jobs}.items():
        sums = its[parts].sum()
        lines.append([", ".join(group), *map(duration, (*sums, sums.sum())), str(len(its))])
    totals = Table(["Backend, protocol, experiment", *parts, "together", "jobs"], lines)
    fits = jobs[jobs.method.isin(list(LABELS)) & (jobs.experiment != "toy")]
    sums = fits.groupby(["backend", "protocol", "method"])[["n_splits", "fit", "evaluate"]].sum()
    lines = [
        [
            f"{backend}, {protocol}, {LABELS[method]}",
            f"{n:,.0f}",
            *(f"{1000 * value / n:,.1f} ms" for value in seconds),
        ]
        for (backend, protocol, method), (n, *seconds) in sums.iterrows()
    ]
    header = ["Backend, protocol, method", "fits", "fit, each", "evaluation, each"]
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
    sums = with_parts(rows.jobs).groupby("backend")[PARTS].sum().sum(axis=1)
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
    said = []
    for settings in (run["settings"] for run in runs):
        protocol, n_predict = settings["protocol"], settings.get("n_predict", N_PREDICT)
        n_draws, n_basis = settings.get("n_draws"), settings.get("n_basis")
        one_start = len(protocol.get("diag_starts") or (1, 2)) == 1
        changed = {
            f"{n_draws} draws where draws are taken": n_draws,
            plural(n_basis or 0, "basis function"): n_basis,
            "VI_diag from one start, so there is none to choose by test score": one_start,
            f"scores at S' = {n_predict:,}, the paper's at 10,000": n_predict != N_PREDICT,
        }
        if words := "; ".join(text for text, is_so in changed.items() if is_so):
            said.append(f"Not the full settings of protocol `{protocol['name']}`: {words}.")
    sources = {str((run.get("versions") or {}).get("source", "unknown")) for run in runs}
    if len(sources) > 1:
        said.append(
            f"The runs were made by {len(sources)} states of the source code, so rows may differ "
            "for that alone (versions: at the end)."
        )
    return list(dict.fromkeys(said))


def row_counts(rows: Rows) -> Table:
    lines = []
    for protocol, experiment in itertools.product(rows.protocols, EXPERIMENTS):
        by_method = rows.counts(protocol, experiment).sum()
        failed = rows.failed.query("protocol == @protocol and experiment == @experiment")
        counts = (*by_method, by_method.sum(), len(failed))
        lines.append([f"{protocol}, {experiment}", *(f"{n:,}" for n in counts)])
    return Table(["Protocol, experiment", *LABELS.values(), "together", "failed"], lines)


def run_records(records: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Settings and versions; equal ones once, with the runs that have them."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for part, run in itertools.product(("settings", "versions"), records):
        if run.get(part):
            text = json.dumps(run[part], indent=1, sort_keys=True)
            found.setdefault((part.capitalize(), text), {})[str(run.get("run"))[:10]] = None
    return [(part, ", ".join(names), text) for (part, text), names in found.items()]
