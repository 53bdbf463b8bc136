"""What a person reads of a posterior, on one screen."""

from typing import Any

import numpy as np

from .._arrays._draws import Quadrature
from .._density._target import flatten, listed


def summary_of(post: Any, most: int) -> str:
    lines = [f"{post.verdict}", f"{post.status}", ""]
    facts = [("family", f"{post.family}, {post.dim} parameter{'s' * (post.dim > 1)}")]
    if post.elbo is not None:
        rule = post.stats.draws_kind
        over = rule if rule == Quadrature.kind else "fixed draws"
        gap = "" if post.gap is None else f"   ({over} {post.gap:+.4f})"
        facts += [("ELBO", f"{post.elbo}{gap}")]
        facts += [("k-hat", f"{post.khat:.2f}   ({post.judged.diagnosis.n_draws} fresh draws)")]  # type: ignore[union-attr]
    facts += [
        ("log evidence", f"{post.log_evidence:.4f}   (Laplace {post.log_evidence_laplace:.4f})")
    ]
    if post.hyper_report is not None:
        structure, values = flatten(post.hyper, np.dtype(np.float64), "hyper")
        pairs = zip(structure.names, values, strict=True)
        facts += [("hyper", listed([f"{name} {value:.4g}" for name, value in pairs]))]
    # Where there is no mode the Hessian is that of a point on the way to infinity.
    c = post.curvature if np.isfinite(post.mode).all() else None
    if c is not None:
        repaired = f", {c.n_repaired} eigenvalues repaired" if c.n_repaired else ""
        shape = f"condition {c.condition:.2g}, smallest eigenvalue {c.min_eig:.2g}{repaired}"
        facts += [("curvature", shape)]
    lines += [f"{name:<13} {text}" for name, text in facts]
    names, (means, sds) = post._shown.names, post._moments
    shown = list(range(len(names))) if len(names) <= most else list(range(most - 1))
    width = max([len(names[i]) for i in shown] + [9])
    lines += ["", f"{'parameter':<{width}} {'mean':>11} {'std':>11}"]
    lines += [f"{names[i]:<{width}} {means[i]:>11.4g} {sds[i]:>11.4g}" for i in shown]
    if len(shown) < len(names):
        lines += [f"... and {len(names) - len(shown)} more: summary(most=...), .mean, .std"]
    return "\n".join(lines)
