"""The sentences in which the paper draws its conclusions, each held against the numbers.

A verdict follows a rule that stands beside the sentence; it is computed, never written by hand.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .cells import ERROR, Marked, printed_marks
from .claims import BEST, RIVALS, Claims, printed_medians, significantly
from .experiments import LABELS, METHODS, printed
from .layout import plural
from .statistics import sign_test


class Verdict(NamedTuple):
    holds: bool
    numbers: str


class Statement(NamedTuple):
    """`verdict` of a protocol is None where rows for it are missing."""

    experiment: str
    claim: str
    rule: str
    printed: str
    verdict: Callable[[Claims, str], Verdict | None]
    by_test: bool = False  # whether it rests on the sign test


def _best_printed(experiment: str, name: str, metric: str) -> str:
    values = printed().xs((experiment, name, metric), level=(0, 1, 2))
    best = values.best.idxmax()
    return f"{metric.upper()}: {LABELS[best]} {values.value[best]:g}"


def _best_on(found: Marked, method: str) -> str:
    return (
        f"best on {found.best[method]} of {plural(found.n_sets, 'set')}, "
        f"significantly on {found.bullets[method]}"
    )


def _bullets(found: Marked) -> str:
    return f"a significantly best error on {found.bullets.total()} of {plural(found.n_sets, 'set')}"


def _all_methods(claims: Claims, protocol: str, experiment: str) -> bool:
    """A method cannot be called the best, or not the best, before it has run."""
    fits = claims.rows.fits
    its = fits.method[(fits.protocol == protocol) & (fits.experiment == experiment)]
    return set(METHODS) <= set(its)


def _order_of_kl(claims: Claims, protocol: str) -> Verdict | None:
    kls = claims.rows.of(protocol, "toy", "mixture").set_index("method")["kl"]
    kls = kls.reindex(["laplace", "mu", "eig", "lr"]).to_numpy()
    if np.isnan(kls).any():
        return None
    return Verdict(bool((np.diff(kls) < 0).all()), ", ".join(f"{kl:.3f}" for kl in kls))


def _cauchy_best(claims: Claims, protocol: str) -> Verdict | None:
    marked = [claims.cells.marked(protocol, "cauchy", field) for field in ("lpd", "error")]
    lpd, mse = (one.most_often() for one in marked)
    if not (lpd and mse and _all_methods(claims, protocol, "cauchy")):
        return None
    said = [" and ".join(LABELS[one] for one in best) for best in (lpd, mse)]
    return Verdict("eig" in lpd and "lr" in mse, f"LPD: {said[0]}, MSE: {said[1]}")


def _cauchy_signs(claims: Claims, protocol: str) -> Verdict | None:
    paired = claims.rows.paired(protocol, "cauchy", "cauchy", "lpd")
    if len(paired.columns) < len(METHODS) or not len(paired):
        return None
    others = [one for one in METHODS if one != "eig"]
    signs = {one: sign_test(paired["eig"].to_numpy(), paired[one].to_numpy()) for one in others}
    won = ", ".join(f"{LABELS[one]} {its.wins} to {its.losses}" for one, its in signs.items())
    holds = all((its.verdict == 1) == (one != "lr") for one, its in signs.items())
    return Verdict(holds, f"splits won: {won}")


def _beats(experiment: str, rival: str, claims: Claims, protocol: str) -> Verdict | None:
    found = [
        claims.chosen(protocol, field, BEST, rival, experiment) for field in ("lpd", "pointwise")
    ]
    joint, pointwise = map(significantly, found)
    numbers = (
        f"significantly better on {joint.better} of {plural(joint.total, 'set')}, worse on "
        f"{joint.worse}; pointwise: {pointwise.better} and {pointwise.worse}"
    )
    return Verdict(joint.better > joint.total / 2, numbers) if found[0] else None


def _leads(experiment: str, method: str, claims: Claims, protocol: str) -> Verdict | None:
    found = claims.cells.marked(protocol, experiment, "lpd")
    if not found.n_sets or not _all_methods(claims, protocol, experiment):
        return None
    return Verdict(method in found.most_often(), _best_on(found, method))


def _no_bullets(claims: Claims, protocol: str) -> Verdict | None:
    found = claims.cells.marked(protocol, "binary", "error")
    if not found.n_sets or not _all_methods(claims, protocol, "binary"):
        return None
    return Verdict(found.bullets.total() == 0, _bullets(found))


def _crabs(claims: Claims, protocol: str) -> Verdict | None:
    found = claims.cells.of(ERROR, protocol)
    best = found.ours[found.set == "crabs"].min()
    return Verdict(bool(best > 40), f"best error {best:.2f}%") if np.isfinite(best) else None


def _better_than(experiment: str, rival: str) -> Statement:
    theirs = printed_medians(BEST, rival, experiment)
    return Statement(
        experiment,
        f"{experiment.capitalize()}: in general MVI has a better LPD than {LABELS[rival]}",
        "the best of the three is significantly better on more than half of the sets",
        f"higher median on {theirs.better} of {theirs.total}",
        functools.partial(_beats, experiment, rival),
        by_test=True,
    )


def _leading(experiment: str, method: str, claim: str) -> Statement:
    return Statement(
        experiment,
        claim,
        f"no other method has the best median on more sets than {LABELS[method]}",
        _best_on(printed_marks(experiment, "lpd"), method),
        functools.partial(_leads, experiment, method),
    )


STATEMENTS = (
    Statement(
        "toy",
        "2-D example: the distance falls from Laplace to MVI_mu, MVI_eig and MVI_lr",
        "KL falls at each step",
        "in its Figure 1",
        _order_of_kl,
    ),
    Statement(
        "cauchy",
        "Cauchy: MVI_eig has the best LPD, MVI_lr the best MSE",
        "both have the best median",
        ", ".join(_best_printed("cauchy", "cauchy", metric) for metric in ("lpd", "mse")),
        _cauchy_best,
    ),
    Statement(
        "cauchy",
        "Cauchy: by LPD MVI_eig is significantly better than Laplace, MVI_mu and VI_diag, not "
        "MVI_lr",
        "the sign test says so of these three only",
        "in its text",
        _cauchy_signs,
        by_test=True,
    ),
    *(_better_than(one, rival) for one in ("binary", "multiclass") for rival in RIVALS),
    _leading("binary", "lr", "Binary: MVI_lr scores best in LPD on a number of sets"),
    Statement(
        "binary",
        "Binary: no method has a significantly better error rate",
        "no set has a bullet in the table of errors",
        _bullets(printed_marks("binary", "error")),
        _no_bullets,
        by_test=True,
    ),
    _leading("multiclass", "eig", "Multiclass: MVI_eig performs well in terms of LPD"),
    Statement(
        "multiclass",
        "Multiclass: all methods do poorly on crabs, perhaps for the choice of the basis functions",
        "the best median error is still above 40%",
        f"best error {_best_printed('multiclass', 'crabs', 'error').split()[-1]}%",
        _crabs,
    ),
)
