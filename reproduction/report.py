"""The report on the paper's experiments: one HTML page and its Markdown twin.

Everything is computed from rows: nothing is fitted here, and no number is written by hand.
"""

import itertools
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mixvi import InputError

from . import figures, record, tables
from .cells import Cells, Miss
from .claims import STATEMENTS, Claims
from .experiments import EXPERIMENTS, LABELS
from .layout import METRIC_LABELS, Figure, render
from .rows import COMPACT, Rows, read, write_compact

TITLE = "Mixed Variational Inference: the paper's experiments, run again"


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Writes report.html, report.md with figures/ and rows.csv.gz; the path of the first.

    `folder` holds rows.jsonl (or rows.csv.gz), jobs.jsonl and runs.jsonl, or some of it; `out` is
    where to write (the same folder when left out). What it then holds makes the same report again.
    """
    folder = Path(folder)
    out = folder if out is None else Path(out)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file, and a report needs a folder.")
    context = contents(read(folder))
    out.mkdir(parents=True, exist_ok=True)
    for figure in itertools.chain(*context["pictures"].values()):
        (out / "figures").mkdir(exist_ok=True)
        (out / "figures" / f"{figure.name}.png").write_bytes(figure.png)
    write_compact(context["rows"], out / COMPACT)
    for name in ("jobs.jsonl", "runs.jsonl"):
        if out != folder and (folder / name).exists():
            shutil.copy(folder / name, out / name)
    (out / "report.md").write_text(markdown(context), encoding="utf-8")
    (out / "report.html").write_text(page(context), encoding="utf-8")
    return out / "report.html"


def markdown(context: dict[str, Any]) -> str:
    return f"# {TITLE}\n\n{render('report.j2', 'markdown', **context)}"


def page(context: dict[str, Any]) -> str:
    body = render("report.j2", "html", **context)
    headings = re.findall(r'<h2 id="(.*?)">(.*?)</h2>', body)
    return render("page.j2", "html", title=TITLE, headings=headings, body=body)


def contents(rows: Rows) -> dict[str, Any]:
    """What the template works with: rows and what they say, and how it becomes tables."""
    if rows.all.empty:
        return {"rows": rows, "pictures": {}}
    cells = Cells(rows)
    misses = [miss for protocol in rows.protocols for miss in cells.misses(protocol)]
    found = {"rows": rows, "cells": cells, "claims": Claims(cells), "misses": misses}
    words = {"LABELS": LABELS, "METRIC_LABELS": METRIC_LABELS, "STATEMENTS": STATEMENTS}
    modules = {"tables": tables, "record": record, "EXPERIMENTS": EXPERIMENTS}
    return found | words | modules | {"pictures": _pictures(rows, misses)}


def _pictures(rows: Rows, misses: list[Miss]) -> dict[str, list[Figure]]:
    found = {name: [] for name in ("figure1", "figure2", "trend", "differences", "missed")}
    protocol, fits = _first(rows, ("toy", "mixture"), ("laplace", "mu", "eig", "lr"), "cov")
    if len(fits):
        found["figure1"].append(Figure("figure1", figures.two_dimensional(fits), protocol))
    protocol, fits = _first(rows, ("cauchy", "cauchy"), ("mu", "eig"), "curve.x")
    if len(fits):
        seeds = {run.get("run"): run["settings"].get("seed") for run in rows.runs}
        picture = figures.regression(fits, int(seeds.get(fits["run"].iloc[0]) or 0))
        found["figure2"].append(Figure("figure2", picture, protocol))
    for one in rows.protocols:
        if len(trends := tables.trends(rows, one)):
            found["trend"].append(Figure(f"trend_{one}", figures.trend(trends, one), one))
        for field in ("lpd", "pointwise"):
            if picture := figures.differences(rows, one, field):
                what = "Joint" if field == "lpd" else "Pointwise"
                name = f"differences_{field}_{one}"
                found["differences"].append(Figure(name, picture, one, what))
    if misses:
        found["missed"].append(Figure("missed", figures.missed(misses)))
    return found


def _first(rows: Rows, place: tuple[str, str], methods: Sequence[str], field: str) -> Any:
    """The first protocol whose split 0 has the field, with its rows in the order of the methods."""
    for protocol in rows.protocols:
        its = rows.of(protocol, *place)
        its = its[(its.split == 0) & its[field].notna() & its.method.isin(methods)]
        if len(its):
            return protocol, its.sort_values("method", key=lambda one: one.map(methods.index))
    return "", rows.fits[:0]
