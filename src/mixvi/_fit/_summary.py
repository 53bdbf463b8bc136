"""What a person reads of a posterior, on one screen or in a notebook."""

from html import escape
from typing import Any

import numpy as np

from .._arrays._draws import Quadrature
from .._density._target import flatten, listed
from ._lines import COLUMNS as COLUMNS
from ._lines import SHOWN as SHOWN
from ._lines import Table, lines_of, n_shown, shortened, table_of
from ._marginals import corrected


def summary_of(post: Any, most: int, shown: Table | None = None) -> str:
    """`shown`: names, and means, standard deviations and quantiles, of what an adaptor shows in
    place of the parameters."""
    lines = [f"{post.verdict}", f"{post.status}", ""]
    lines += [f"{name:<13} {text}" for name, text in _facts(post)]
    numbers, note = (shown, "") if shown else _parameters(post, most)
    rows, more = shortened(numbers, most)
    lines += ["", *lines_of("parameter", rows)]
    lines += [one for one in (more, note) if one]
    if (hyper := post.hyper_posterior) is not None:
        lines += ["", *table_of("hyperparameter", *hyper.rows)]
    return "\n".join(lines)


def html_of(post: Any, most: int, shown: Table | None = None) -> str:
    """For notebooks: nothing in it but text and tables."""
    numbers, note = (shown, "") if shown else _parameters(post, most)
    rows, more = shortened(numbers, most)
    return (
        f"<div><p><b>{escape(post.verdict)}</b><br/>{escape(post.status)}</p>"
        + table([([name], [text]) for name, text in _facts(post)])
        + table([(["parameter", *COLUMNS], []), *(([name], cells) for name, cells in rows)])
        + "".join(f"<p>{escape(one)}</p>" for one in (more, note) if one)
        + _html_of_hyper(post)
        + "</div>"
    )


def _html_of_hyper(post: Any) -> str:
    if (hyper := post.hyper_posterior) is None:
        return ""
    rows, _ = shortened(hyper.rows, len(hyper.names))
    return table([(["hyperparameter", *COLUMNS], []), *(([name], cells) for name, cells in rows)])


def table(rows: list[tuple[list[str], list[str]]]) -> str:
    """Heads and cells of every row, escaped."""

    def cells(tag: str, texts: list[str]) -> str:
        return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)

    made = (f"<tr>{cells('th', heads)}{cells('td', texts)}</tr>" for heads, texts in rows)
    return f"<table>{''.join(made)}</table>"


def _facts(post: Any) -> list[tuple[str, str]]:
    facts = [("family", f"{post.family}, {post.dim} parameter{'s' * (post.dim > 1)}")]
    if len(weights := post.law.weights) > 1:
        shares = listed([f"{weight:.0%}" for weight in sorted(weights, reverse=True)], 8)
        facts += [("components", f"{len(weights)}   ({shares})")]
    if post.elbo is not None:
        rule = post.stats.draws_kind
        over = rule if rule == Quadrature.kind else "fixed draws"
        gap = "" if post.gap is None else f"   ({over} {post.gap:+.4f})"
        facts += [("ELBO", f"{post.elbo}{gap}")]
        facts += [("k-hat", f"{post.khat:.2f}   ({post.judged.diagnosis.n_draws} fresh draws)")]  # type: ignore[union-attr]
    if (stats := post.stats).batches is not None:
        noise = (
            "" if stats.row_noise is None else f"   (noise of the bound ± {stats.row_noise:.2g})"
        )
        exact = f"{stats.exact_passes} exact pass{'es' * (stats.exact_passes != 1)}"
        batches = f"{stats.batches} of {stats.batch_rows:,} rows, {exact}{noise}"
        facts += [("mini-batches", batches)]
    facts += [
        ("log evidence", f"{post.log_evidence:.4f}   (Laplace {post.log_evidence_laplace:.4f})")
    ]
    if (hyper := post.hyper_posterior) is not None:
        rule = "a grid" if hyper.design == "grid" else "a central composite design"
        facts += [("hyper", f"integrated over {len(hyper.points)} points of {rule}")]
    elif post.hyper_report is not None:
        structure, values = flatten(post.hyper, np.dtype(np.float64), "hyper")
        pairs = zip(structure.names, values, strict=True)
        facts += [("hyper", listed([f"{name} {value:.4g}" for name, value in pairs]))]
    # Where there is no mode the Hessian is that of a point on the way to infinity.
    c = post.curvature if np.isfinite(post.mode).all() else None
    if c is not None:
        repaired = f", {c.n_repaired} eigenvalues repaired" if c.n_repaired else ""
        shape = f"condition {c.condition:.2g}, smallest eigenvalue {c.min_eig:.2g}{repaired}"
        # Of a structured root neither is known.
        facts += [] if np.isnan(c.condition) else [("curvature", shape)]
    return facts


def _parameters(post: Any, most: int) -> tuple[Table, str]:
    """The user's; and a word on the quantiles that weighted draws have corrected."""
    names = list(post._shown.names)
    columns, made = numbers_of(post, n_shown(len(names), most))
    for index in made:
        names[index] += " *"
    whose = "the Gaussian's" if len(post.law.weights) == 1 else "the mixture's"
    note = f"* quantiles corrected by weighted draws; mean and std are {whose}"
    return (names, columns), note if made else ""


def numbers_of(post: Any, n_corrected: int) -> tuple[np.ndarray, list[int]]:
    """A row for every parameter: its mean, standard deviation and quantiles. And which of the first
    `n_corrected` have quantiles that weighted draws have corrected."""
    columns = np.stack([*post._moments, *post._quantiles(np.array(SHOWN))], 1)
    made = corrected(post, range(n_corrected))
    for index, marginal in made.items():
        columns[index, -len(SHOWN) :] = marginal.quantiles(SHOWN)
    return columns, list(made)
