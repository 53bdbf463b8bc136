"""What a person reads of a posterior, on one screen or in a notebook."""

from html import escape
from typing import Any

import numpy as np

from .._arrays._draws import Quadrature
from .._density._target import flatten, listed
from ._lines import COLUMNS as COLUMNS
from ._lines import SHOWN as SHOWN
from ._lines import Table, lines_of, shortened, table_of


def summary_of(post: Any, most: int, shown: Table | None = None) -> str:
    """`shown`: names, and means, standard deviations and quantiles, of what an adaptor shows in
    place of the parameters."""
    lines = [f"{post.verdict}", f"{post.status}", ""]
    lines += [f"{name:<13} {text}" for name, text in _facts(post)]
    rows, more = shortened(shown or _parameters(post), most)
    lines += ["", *lines_of("parameter", rows)]
    lines += [more] if more else []
    if (hyper := post.hyper_posterior) is not None:
        lines += ["", *table_of("hyperparameter", *hyper.rows)]
    return "\n".join(lines)


def html_of(post: Any, most: int, shown: Table | None = None) -> str:
    """For notebooks: nothing in it but text and tables."""
    rows, more = shortened(shown or _parameters(post), most)
    return (
        f"<div><p><b>{escape(post.verdict)}</b><br/>{escape(post.status)}</p>"
        + table([([name], [text]) for name, text in _facts(post)])
        + table([(["parameter", *COLUMNS], []), *(([name], cells) for name, cells in rows)])
        + (f"<p>{escape(more)}</p>" if more else "")
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


def _parameters(post: Any) -> Table:
    """The user's."""
    return post._shown.names, np.stack([*post._moments, *post._quantiles(np.array(SHOWN))], 1)
