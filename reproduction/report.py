"""The report on the paper's experiments: one HTML page and its Markdown twin.

Everything is computed from rows: nothing is fitted here, and no number is written by hand.
"""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mixvi import InputError

from . import figures, record, tables
from .cells import ERROR, ERROR_OF_DRAWS, LPD, LPD_BY_TEST, Cells
from .claims import BEST, FIELDS, RIVALS, Claims, significantly
from .experiments import EXPERIMENTS, LABELS, in_print
from .layout import Figure, plural, render
from .rows import COMPACT, Rows, read, write_compact
from .statistics import FEWEST

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
    rows = read(folder)
    context = contents(rows)
    out.mkdir(parents=True, exist_ok=True)
    for figure in context["all_figures"]:
        (out / "figures").mkdir(exist_ok=True)
        (out / "figures" / f"{figure.name}.png").write_bytes(figure.png)
    write_compact(rows, out / COMPACT)
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
    """What the template asks for."""
    if rows.all.empty:
        return {"rows_exist": False, "all_figures": []}
    cells = Cells(rows)
    claims, protocols = Claims(cells), rows.protocols
    misses = [miss for protocol in protocols for miss in cells.misses(protocol)]
    pictures = {
        "figure1": list(_figure1(rows)),
        "figure2": list(_figure2(rows)),
        "differences": list(_differences(rows)),
        "missed": [Figure("missed", figures.missed(misses))] if misses else [],
    }
    trends = [(protocol, *_trend(rows, protocol)) for protocol in protocols]
    context = {
        "rows_exist": True,
        "everything": all(
            record.complete(rows, one, table) for one in protocols for table in in_print()
        ),
        "methods": set(rows.fits.method),
        "bullet": tables.BULLET,
        "worse": tables.WORSE,
        "fewest": FEWEST,
        "contender": tables.NAMES[BEST],
        "by_test": any(cells.applies(one, LPD_BY_TEST) for one in protocols),
        "experiments": EXPERIMENTS.values(),
        "absent_protocols": {
            name: [one for one in protocols if one in its.protocols and not rows.has(one, name)]
            for name, its in EXPERIMENTS.items()
        },
        "summary": tables.summary(cells),
        "in_short": [
            *(sentence for one in protocols for sentence in _in_short(claims, one)),
            record.time_in_short(rows),
            *record.not_as_usual(rows.runs),
        ],
        "missing": record.missing(rows),
        "beside_printed": {name: _tables_of(cells, name) for name in EXPERIMENTS},
        "pointwise": tables.pointwise(cells),
        "resolution": tables.error_resolution(rows),
        "nearness": tables.nearness(cells),
        "worst_fits": tables.worst_fits(cells),
        "errors_of_draws": {
            name: tables.beside_printed(cells, name, ERROR_OF_DRAWS) for name in EXPERIMENTS
        },
        "diagnostics": tables.diagnostics(cells),
        "trends": trends,
        "misses": tables.misses(misses),
        "n_misses": plural(len(misses), "missed cell"),
        "n_explained": sum(bool(miss.reasons) for miss in misses),
        "claims": tables.claims(claims),
        "statements": tables.statements(claims),
        "times": record.times(rows),
        "failures": record.failures(rows),
        "not_finite": record.not_finite(rows),
        "row_counts": record.row_counts(rows),
        "runs": record.runs(rows.runs),
        "run_records": record.run_records(rows.runs),
    }
    shown = [figure for some in pictures.values() for figure in some]
    shown += [figure for _, figure, _ in trends if figure]
    return context | pictures | {"all_figures": shown}


def _tables_of(cells: Cells, name: str) -> dict[str, list[tables.Table]]:
    """An experiment's own, by metric; the measures of a single set are lines of one table."""
    if name == "toy":
        return {"kl": tables.two_dimensional(cells.rows)}
    measures = {one: LPD if one == "lpd" else ERROR for one in EXPERIMENTS[name].metrics}
    if len(EXPERIMENTS[name].sets) == 1:
        return {"all": tables.beside_printed(cells, name, *measures.values())}
    return {one: tables.beside_printed(cells, name, its) for one, its in measures.items()}


def _in_short(claims: Claims, protocol: str) -> Iterable[str]:
    for rival in RIVALS:
        parts, untold = [], 0
        for field, label in FIELDS.items():
            found = claims.chosen(protocol, field, BEST, rival)
            tally = significantly(found)
            untold = len(found) - tally.total
            if tally.total:
                parts.append(
                    f"by {label} on {tally.better} of {plural(tally.total, 'set')} (worse on "
                    f"{tally.worse})"
                )
        few = f"{plural(untold, 'set')} with too few splits for a test ({FEWEST} are needed)"
        if parts:
            rest = f", not counting {few}" if untold else ""
            yield (
                f"Protocol `{protocol}`: the {tables.NAMES[BEST]} is significantly better than "
                f"{LABELS[rival]} {', '.join(parts)}{rest}."
            )
        elif untold:
            yield f"Protocol `{protocol}`, MVI against {LABELS[rival]}: {few}."


# --- figures ----------------------------------------------------------------------------------


def _first_with(rows: Rows, place: tuple[str, str], methods: tuple[str, ...], field: str) -> Any:
    """The first protocol whose split 0 has the field, with its rows in the order of the methods."""
    for protocol in rows.protocols:
        its = rows.of(protocol, *place)
        its = its[(its.split == 0) & its[field].notna() & its.method.isin(methods)]
        if len(its):
            return protocol, its.sort_values("method", key=lambda one: one.map(methods.index))
    return "", rows.fits[:0]


def _figure1(rows: Rows) -> Iterable[Figure]:
    protocol, fits = _first_with(rows, ("toy", "mixture"), ("laplace", "mu", "eig", "lr"), "cov")
    if len(fits):
        yield Figure("figure1", figures.two_dimensional(fits), protocol)


def _figure2(rows: Rows) -> Iterable[Figure]:
    protocol, fits = _first_with(rows, ("cauchy", "cauchy"), ("mu", "eig"), "curve.x")
    if len(fits):
        seeds = {run.get("run"): run["settings"].get("seed") for run in rows.runs}
        seed = int(seeds.get(fits["run"].iloc[0]) or 0)
        yield Figure("figure2", figures.regression(fits, seed), protocol)


def _trend(rows: Rows, protocol: str) -> tuple[Figure | None, tables.Table | None]:
    found = tables.trends(rows, protocol)
    if found.empty:
        return None, None
    figure = Figure(f"trend_{protocol}", figures.trend(found, protocol), protocol)
    return figure, tables.trend_table(found, protocol)


def _differences(rows: Rows) -> Iterable[Figure]:
    for protocol in rows.protocols:
        for field, what in (("lpd", "Joint"), ("pointwise", "Pointwise")):
            if picture := figures.differences(rows, protocol, field):
                yield Figure(f"differences_{field}_{protocol}", picture, protocol, what)
