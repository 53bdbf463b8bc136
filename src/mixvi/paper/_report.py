"""The report on the paper's experiments: one HTML page and its Markdown twin.

Everything is computed from rows: nothing is fitted here, and no number is written by hand.
"""

import csv
import gzip
import io
from pathlib import Path
from typing import Any

from .._errors import InputError
from ..paper import (
    _cells,
    _claims,
    _figures,
    _findings,
    _html,
    _markdown,
    _record,
    _statements,
    _tables,
)
from ._cells import ERROR, ERROR_OF_DRAWS, LPD
from ._document import Block, Document, Figure, Heading, Paragraph
from ._reading import TABLES, Rows, read
from ._tables import TITLES


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Writes report.html, report.md with figures/ and rows.csv.gz; the path of the first.

    **Arguments:** `folder` holds rows.jsonl, jobs.jsonl and runs.jsonl, or some of it; `out` is
    where to write (the same folder when left out).
    """
    folder = Path(folder)
    out = folder if out is None else Path(out)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file, and a report needs a folder.")
    rows = read(folder)
    document = report(rows)
    out.mkdir(parents=True, exist_ok=True)
    figures = [block for block in document if isinstance(block, Figure)]
    if figures:
        (out / _markdown.FIGURES).mkdir(exist_ok=True)
    for figure in figures:
        (out / _markdown.FIGURES / f"{figure.name}.png").write_bytes(figure.png)
    (out / "report.md").write_text(_markdown.markdown(document), encoding="utf-8")
    (out / "rows.csv.gz").write_bytes(_compact(rows))
    path = out / "report.html"
    path.write_text(_html.page(document), encoding="utf-8")
    return path


def report(rows: Rows) -> Document:
    """What both pages say."""
    title = Heading(1, "Mixed Variational Inference: the paper's experiments, run again")
    if not rows.fits and not rows.failed:
        said = "There are no rows in this folder yet: run `mixvi paper all`, then ask again."
        return title, Paragraph(said)
    misses = [miss for protocol in rows.protocols() for miss in _cells.misses(rows, protocol)]
    return (
        title,
        *_opening(rows),
        *_experiments(rows),
        *_own_measures(rows),
        *_draws_and_boxes(rows),
        Heading(2, "Cells worse than printed"),
        *_findings.misses(misses),
        *_missed_figure(misses),
        Heading(2, "Which of the paper's conclusions hold up"),
        Paragraph(
            "The three MVI posteriors against Laplace and VI_diag, split by split. The best of the "
            "three is chosen by its median over the same splits, which flatters it a little. The "
            "ELBO judges the approximation itself, and there the three can hardly lose to Laplace: "
            "they start at its Gaussian and climb. The predictive densities judge what it is for. "
            f"With fewer than {_claims.FEWEST} splits the sign test cannot reject: such sets do "
            "not count."
        ),
        *_findings.claims(rows),
        *_statements.statements(rows),
        Heading(2, "Time"),
        *_record.times(rows),
        Heading(2, "Failed fits"),
        *_record.failures(rows),
        Heading(2, "How it was made"),
        *_record.made(rows),
    )


def _opening(rows: Rows) -> list[Block]:
    everything = all(
        _record.complete(rows, protocol, table) for protocol in rows.protocols() for table in TABLES
    )
    extent = "Every table and figure" if everything else "Tables and figures"
    beside = "; `full`, a Gaussian without constraints, stands beside them" * rows.any_of("full")
    beside += "; so does `auto`, which is what `fit` chooses by itself" * rows.any_of("auto")
    what = (
        f"{extent} of Mixed Variational Inference (Gianniotis 2019), computed again "
        "with `mixvi`. Laplace, three ways to adapt it partly (MVI_mu: its mean; MVI_eig: also "
        "its scales along its axes; MVI_lr: also a rank-one change of its root), and a factorised "
        "Gaussian (VI_diag) are compared by their log predictive density (LPD) and error on test "
        f"data{beside}. Protocol `paper` "
        "follows the paper's choices, protocol `best` those of this package; the settings are at "
        "the end. A number in brackets is the printed one, and after it stands our difference."
    )
    both = any(_cells.applies(rows, one, _cells.LPD_BY_TEST) for one in rows.protocols())
    by_test = ", and show the paper's rule in a column of its own" * both
    marks = (
        f"How to read the tables: medians over splits; bold: best of the paper's five methods; "
        f"{_tables.BULLET}: significantly, as the paper means it (against every other method the "
        "sign test rejects at 5%, and the bootstrap's 95% interval of the difference of medians "
        "leaves out 0), both on the splits that all of these methods have; "
        f"{_tables.WORSE}: worse than printed beyond tolerance. Tolerances: LPD 0.5% or 0.5 nat, "
        "whichever is larger (Cauchy 0.005 per test point), error 0.5 points, MSE 2%. The paper "
        "reports VI_diag from that of two starts which scores better on the TEST set; we take the "
        f"one with the higher ELBO{by_test}."
    )
    return [
        Paragraph(what),
        Heading(2, "Summary"),
        *_findings.summary(rows),
        Paragraph(marks),
        Heading(2, "What is missing"),
        *_record.missing(rows),
    ]


def _experiments(rows: Rows) -> list[Block]:
    """The paper's own figures and tables, in its order."""
    found: list[Block] = [Heading(2, "Two-dimensional posterior (Figure 1)")]
    found += [*_tables.absent(rows, "toy"), *_figure1(rows), *_tables.two_dimensional(rows)]
    found += [Heading(2, "Robust regression (Cauchy)"), *_tables.absent(rows, "cauchy")]
    found += _tables.beside_printed(rows, "cauchy", (LPD, ERROR), TITLES["cauchy", "lpd"])
    found += _figure2(rows)
    for table, title in (
        ("binary", "Logistic regression"),
        ("multiclass", "Multiclass logistic regression"),
    ):
        found += [Heading(2, title), *_tables.absent(rows, table)]
        for rule in (LPD, ERROR):
            found += _tables.beside_printed(rows, table, (rule,), TITLES[table, rule.kind])
    return found


def _figure1(rows: Rows) -> list[Block]:
    protocol, fits = _first_with(rows, "toy", "mixture", ("laplace", "mu", "eig", "lr"), "cov")
    if not fits:
        return []
    caption = (
        "Contours of the posterior; means as crosses, ellipses that hold 70% of each Gaussian, "
        f"their axes dashed; KL(q || p) in the legend. Protocol {protocol}."
    )
    alt = "Contours of a density with two bumps, and the ellipses of Gaussians fitted to it"
    return [Figure("figure1", _figures.two_dimensional(fits), alt, caption)]


def _figure2(rows: Rows) -> list[Block]:
    protocol, fits = _first_with(rows, "cauchy", "cauchy", ("mu", "eig"), "curve")
    if not fits:
        return []
    caption = (
        "Figure 2 of the paper: the true curve, the training points of the first data set, and the "
        f"posterior mean with two standard deviations. Protocol {protocol}."
    )
    alt = "Two fits of a wavy curve to 50 noisy points, with bands of two deviations"
    curves = {method: row["curve"] for method, row in fits.items()}
    seed = rows.seed(next(iter(fits.values())))
    return [Figure("figure2", _figures.regression(curves, seed), alt, caption)]


def _first_with(
    rows: Rows, experiment: str, name: str, methods: tuple[str, ...], field: str
) -> tuple[str, dict[str, Any]]:
    """The first protocol whose split 0 has the field, and its rows by method."""
    for protocol in rows.protocols():
        fits = {
            method: rows.fits.get((protocol, experiment, name, method), {}).get(0, {})
            for method in methods
        }
        if fits := {method: row for method, row in fits.items() if row.get(field)}:
            return protocol, fits
    return "", {}


def _own_measures(rows: Rows) -> list[Block]:
    """Pointwise LPD, errors of draws, ELBO and whether to trust it."""
    pointwise = (
        "The joint LPD above is the log of a mean over draws of a product over all test points. "
        "With thousands of test points a few draws carry that mean, and its estimate is too low, "
        "the more so the fewer the draws. The pointwise LPD, the sum over test points of the log "
        "of the mean, is estimated well by the same draws: our own conclusions rest on it. The two "
        "are different quantities: where a posterior is wide and the test set small, a few draws "
        "may fit all its points at once, and the joint LPD is then far above the pointwise one."
    )
    found: list[Block] = [Heading(2, "Pointwise LPD: our headline"), Paragraph(pointwise)]
    title = "Median pointwise LPD on test data (higher is better; Cauchy: per test point)"
    found += _tables.ours_alone(rows, "pointwise", title)
    found += [Heading(2, "Errors of single draws"), *_findings.error_resolution(rows)]
    for table, what in (
        ("cauchy", "Median MSE of single posterior draws, Cauchy regression"),
        ("binary", "Median error % of single posterior draws, logistic regression"),
        ("multiclass", "Median error % of single posterior draws, multiclass"),
    ):
        found += _tables.beside_printed(rows, table, (ERROR_OF_DRAWS,), what)
    found += [Heading(2, "ELBO, gap, k-hat, convergence"), *_tables.diagnostics(rows)]
    return found


def _draws_and_boxes(rows: Rows) -> list[Block]:
    found: list[Block] = [Heading(2, "Joint LPD against the number of draws")]
    for protocol in rows.protocols():
        picture = _figures.trend(rows, protocol)
        if picture is None:
            found.append(
                Paragraph(f"Protocol `{protocol}` has no rows with other numbers of draws.")
            )
            continue
        caption = f"Medians over the splits that have it. Protocol {protocol}."
        alt = "Lines of joint LPD against the number of draws, one panel for each data set"
        found.append(Figure(f"trend_{protocol}", picture, alt, caption))
        found.append(_tables.trends(_figures.trends(rows, protocol), protocol))
    found.append(Heading(2, "Differences from Laplace, split by split"))
    for protocol in rows.protocols():
        for field, what in (("lpd", "Joint"), ("pointwise", "Pointwise")):
            picture = _figures.differences(rows, protocol, field)
            if picture is None:
                continue
            caption = (
                f"{what} LPD minus that of Laplace on the same split, per test point: median, "
                f"middle half (bar) and 5% to 95% (line) of the splits. Protocol {protocol}."
            )
            alt = f"Box plots of {what.lower()} LPD minus that of Laplace for every data set"
            found.append(Figure(f"differences_{field}_{protocol}", picture, alt, caption))
    return found


def _missed_figure(misses: list[_cells.Miss]) -> list[Block]:
    if not misses:
        return []
    alt = "Dots for the splits of each missed cell, with our median and the printed number"
    caption = "Each dot is a split, the solid line our median, the dashed line the printed median."
    return [Figure("missed", _figures.missed(misses), alt, caption)]


# --- all rows as one table --------------------------------------------------------------------


def _compact(rows: Rows) -> bytes:
    """The scalar fields of all rows as gzipped CSV; those inside others have dotted names."""
    flat = [_flat(row) for by_split in rows.fits.values() for row in by_split.values()]
    flat += [_flat(row) for row in rows.failed]
    names = list(dict.fromkeys(name for row in flat for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return gzip.compress(text.getvalue().encode(), mtime=0)


def _flat(record: dict[str, Any], before: str = "") -> dict[str, Any]:
    found = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{name}.")
        elif not isinstance(value, list):
            found[before + name] = "" if value is None else value
    return found
