"""Fits of one posterior side by side: which form of a model a Gaussian serves best."""

import dataclasses
import html
import math
from collections.abc import Mapping
from typing import Any

from .._errors import InputError
from .._judge._diagnosis import Estimate
from .._judge._verdict import Reason
from ._posterior import Posterior


@dataclasses.dataclass(frozen=True)
class Compared:
    """One line of a comparison. `elbo`: the bound on fresh draws; `behind`: how far below the
    highest, with the error of the difference. `trust`: the verdict's level; `why`: its first
    reason, the test and the parameter."""

    name: str
    dim: int
    family: str
    elbo: Estimate
    behind: Estimate
    trust: str | None
    why: str


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The highest bound first.

    >>> import mixvi
    >>> wide, narrow = (mixvi.fit(lambda w, s=s: -0.5 * (w / s) ** 2, 0.0) for s in (2.0, 1.0))
    >>> found = mixvi.compare({"wide": wide, "narrow": narrow})
    >>> found.best, [row.name for row in found.rows]
    ('wide', ['wide', 'narrow'])
    """

    rows: tuple[Compared, ...]

    @property
    def best(self) -> str:
        """The name of the first one."""
        return self.rows[0].name

    def _cells(self) -> list[tuple[str, ...]]:
        head = ("", "family", "D", "bound", "behind", "verdict", "because of")
        return [head] + [
            (
                row.name,
                row.family,
                str(row.dim),
                f"{row.elbo.value:.2f} ± {row.elbo.se:.2f}",
                f"{row.behind.value:.2f} ± {row.behind.se:.2f}",
                row.trust or "not judged",
                row.why,
            )
            for row in self.rows
        ]

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(len(line[k]) for line in cells) for k in range(len(cells[0]))]
        lines = [zip(line, widths, strict=True) for line in cells]
        return "\n".join("  ".join(f"{text:<{w}}" for text, w in line).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        rows = [
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>"
            for line in self._cells()
        ]
        return f"<table>{''.join(rows)}</table>"


def compare(posts: Any) -> Comparison:
    """Fits of one posterior in several forms, or by several families: bounds and verdicts, a line
    each, the highest bound first.

    Every bound is below the same log evidence, so the highest is the closest Gaussian. That holds
    where all log densities are of the same data and normalised alike: a centred and a non-centred
    hierarchy, parameters with and without `constraints=`, families of one model.

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> def log_gamma(w):  # log of a Gamma(2) variable
    ...     return 2 * w - jnp.exp(w)
    >>> fits = {name: mixvi.fit(log_gamma, 0.0, family=name) for name in ("laplace", "eig")}
    >>> mixvi.compare(fits).best
    'eig'
    """
    if not isinstance(posts, Mapping) or not posts:
        raise InputError('compare: give fits by name, such as {"centred": a, "non-centred": b}.')
    for name, post in posts.items():
        if not isinstance(post, Posterior):
            raise InputError(f"compare: {name!r} is {type(post).__name__}, not a Posterior.")
        if post.elbo is None:
            raise InputError(f"compare: {name!r} was fitted without diagnostics or has failed.")
    elbos = {name: post.elbo for name, post in posts.items() if post.elbo is not None}
    order = sorted(posts, key=lambda name: -_finite(elbos[name].value))
    best = elbos[order[0]]
    rows = []
    for name in order:
        post, elbo = posts[name], elbos[name]
        error = 0.0 if name == order[0] else math.hypot(best.se, elbo.se)
        behind = Estimate(best.value - elbo.value, error)
        why = ", ".join(_said(reason) for reason in post.reasons[:1])
        rows.append(Compared(name, post.dim, post.family, elbo, behind, post.trust, why))
    return Comparison(tuple(rows))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _said(reason: Reason) -> str:
    return reason.test if reason.parameter is None else f"{reason.test} of {reason.parameter}"
