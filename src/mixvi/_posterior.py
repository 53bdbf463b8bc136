"""What comes back: a Gaussian with names, and everything known about how good it is."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, PyTree

from . import _store
from ._approximate._laplace import CurvatureReport, curvature_report
from ._constraints import Constraints, kinds_from, kinds_to
from ._diagnostics import Diagnosis, Elsewhere, Estimate, Moments, OtherMode, psis
from ._draws import SAMPLE, Quadrature, generator
from ._errors import InputError
from ._hyper import HyperReport
from ._moments import bounded_moments
from ._target import Structure, flatten, listed


class ImportanceWeights(NamedTuple):
    """Draws from the Gaussian and the weights that make them stand for the posterior."""

    draws: PyTree
    weights: Float[np.ndarray, " n"]
    khat: float
    ess: float


@dataclasses.dataclass(frozen=True)
class Judged:
    """The fresh draws that judged the Gaussian (standard normal `z`) and what they said."""

    diagnosis: Diagnosis
    z: Float[np.ndarray, "n dim"]
    log_p: Float[np.ndarray, " n"]
    log_q: Float[np.ndarray, " n"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """A Gaussian approximation `N(mean, root root^T)` of a posterior.

    Made by `fit`, `laplace` and `load`. `mean`, `std` and samples have the shape of `init`; all
    numbers are NumPy float64 (float32 with `dtype="float32"`).

    With `constraints=` the Gaussian is that of unbounded parameters: `flat_mean`, `flat_std`,
    `root`, `cov` and `names` are its own, and `unconstrained` is the Gaussian alone. `mean`, `std`,
    `sample`, `log_prob`, `whiten` and `summary` speak of the user's parameters.
    """

    structure: Structure
    family: str
    flat_mean: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"] | Float[np.ndarray, " dim"]
    mode: Float[np.ndarray, " dim"]
    log_evidence_laplace: float
    elbo_fixed: float | None
    flat_mean_se: Float[np.ndarray, " dim"] | None
    judged: Judged | None
    elsewhere: Elsewhere
    converged: bool
    hyper_report: HyperReport | None
    status: str
    verdict: str
    stats: dict[str, Any]
    # the negative Hessian and gradient at the mode, or the report that was made of them
    hessian: tuple[Any, Any, int] | CurvatureReport
    constraints: Constraints | None = None

    # --- the Gaussian -------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        return self.structure.size

    @property
    def names(self) -> tuple[str, ...]:
        """One name for every scalar parameter, in the order of `cov`."""
        return self.structure.names

    @property
    def start(self) -> PyTree:
        """Where a fit warm-started from this one begins its search for the mode."""
        return self._tree(self.flat_start)

    @property
    def flat_start(self) -> Float[np.ndarray, " dim"]:
        return self.mode if np.isfinite(self.mode).all() else self.flat_mean

    @functools.cached_property
    def unconstrained(self) -> "Posterior":
        """The Gaussian alone, over unbounded parameters; itself where nothing is bounded."""
        return self if self.constraints is None else dataclasses.replace(self, constraints=None)

    @property
    def _shown(self) -> Structure:
        """The structure of the user's parameters."""
        return self.structure if self.constraints is None else self.constraints.user

    @functools.cached_property
    def _moments(self) -> tuple[Float[np.ndarray, " user"], Float[np.ndarray, " user"]]:
        """Means and standard deviations of the user's parameters."""
        if self.constraints is None:
            return self.flat_mean, self.flat_std
        made = bounded_moments(self.constraints, self.flat_mean, self.root)
        mean, std = (one.astype(self.flat_mean.dtype) for one in made)
        return mean, std

    def _tree(self, flat: Float[np.ndarray, "*batch dim"]) -> PyTree:
        bound = self.constraints
        return self.structure.unravel(flat) if bound is None else bound.constrained(flat)

    @property
    def mean(self) -> PyTree:
        return self._shown.unravel(self._moments[0].copy())

    @functools.cached_property
    def flat_std(self) -> Float[np.ndarray, " dim"]:
        return np.abs(self.root) if self.root.ndim == 1 else np.sqrt((self.root**2).sum(1))

    @property
    def std(self) -> PyTree:
        return self._shown.unravel(self._moments[1].copy())

    @property
    def mean_se(self) -> PyTree:
        """By how much other fixed draws would have moved the mean: its standard error, not the
        posterior's. (Draws that are matched move it less.) None where no draws were used, or where
        a family other than "full" was asked for. Of the unbounded parameters, where some are
        bounded."""
        return None if self.flat_mean_se is None else self.structure.unravel(self.flat_mean_se)

    @functools.cached_property
    def cov(self) -> Float[np.ndarray, "dim dim"]:
        return np.diag(self.root**2) if self.root.ndim == 1 else self.root @ self.root.T

    @functools.cached_property
    def log_det_root(self) -> float:
        if not np.isfinite(self.root).all():
            return math.nan
        if self.root.ndim == 1:
            return float(np.log(np.abs(self.root)).sum())
        return float(np.linalg.slogdet(self.root)[1])

    def _colour(self, z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        return self.flat_mean + (z * self.root if self.root.ndim == 1 else z @ self.root.T)

    def whiten(self, w: PyTree) -> Float[np.ndarray, "*batch dim"]:
        """Where `w` stands in posterior standard deviations: `root^-1 (w - mean)`."""
        return self._whitened(self._flat(w))

    def _whitened(self, flat: Float[np.ndarray, "*batch dim"]) -> Float[np.ndarray, "*batch dim"]:
        flat = flat - self.flat_mean
        if not np.isfinite(self.root).all():
            return np.full(flat.shape, np.nan)
        if self.root.ndim == 1:
            return flat / self.root
        columns = flat.reshape(-1, self.dim).T
        return np.linalg.solve(self.root, columns).T.reshape(flat.shape)

    def _flat(self, w: PyTree) -> np.ndarray:
        """One point, or a stack of points with one leading axis on every leaf, unbounded; not
        numbers where a bounded parameter is out of bounds."""
        try:
            flat = self._shown.ravel(w, "w")
        except InputError:
            flat = self._shown.ravel(w, "w", batch=1)
        return flat if self.constraints is None else self.constraints.unconstrain(flat)

    def sample(self, key: Any, n: int) -> PyTree:
        """`n` draws as a pytree shaped like `init` with a leading axis of length `n`."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise InputError(f"sample: n must be a non-negative integer, got {n!r}.")
        z = generator(key, SAMPLE).standard_normal((n, self.dim))
        return self._tree(self._colour(z).astype(self.flat_mean.dtype))

    def log_prob(self, w: PyTree) -> float | Float[np.ndarray, " n"]:
        """The log density at `w`: one point, or a stack of them as `sample` gives. Minus infinity
        where a bounded parameter is out of bounds; over a simplex with respect to all entries but
        the last."""
        flat = self._flat(w)
        value = normal_logpdf(self._whitened(flat), self.log_det_root)
        if self.constraints is not None and np.isfinite(self.root).all():
            value = np.where(np.isnan(value), -np.inf, value - self.constraints.log_dets(flat))
        return float(value) if value.ndim == 0 else value

    # --- how good it is -----------------------------------------------------------------------

    @property
    def elbo(self) -> Estimate | None:
        """The bound on fresh draws; None when diagnostics were switched off."""
        return self.judged.diagnosis.elbo if self.judged else None

    @property
    def gap(self) -> float | None:
        """The fixed-draw bound minus the fresh one: what was gained by fitting the draws."""
        if self.judged is None or self.elbo_fixed is None:
            return None
        return self.elbo_fixed - self.judged.diagnosis.elbo.value

    @property
    def khat(self) -> float | None:
        return self.judged.diagnosis.khat if self.judged else None

    @property
    def log_evidence(self) -> float:
        """Laplace's evidence for "laplace", otherwise the bound: by quadrature, or on fresh draws
        where it can be."""
        if self.elbo_fixed is None:
            return self.log_evidence_laplace
        exact = self.stats.get("draws_kind") == Quadrature.kind
        return self.elbo_fixed if exact or self.elbo is None else self.elbo.value

    @property
    def hyper(self) -> PyTree:
        """The learnt hyperparameters, shaped like `hyper=`; None where there were none. How the
        search for them ended is in `hyper_report`."""
        return None if self.hyper_report is None else self.hyper_report.values

    @functools.cached_property
    def curvature(self) -> CurvatureReport:
        if isinstance(self.hessian, CurvatureReport):
            return self.hessian
        precision, gradient, n_repaired = self.hessian
        return curvature_report(np.asarray(precision), np.asarray(gradient), n_repaired)

    def importance_weights(self) -> ImportanceWeights:
        """The fresh draws with Pareto-smoothed weights (they sum to one): weighted averages over
        `draws` estimate posterior expectations as long as `khat` is below 0.7."""
        if self.judged is None:
            raise InputError(
                "importance_weights: fit with diagnostics=True, which makes the draws."
            )
        if self.judged.diagnosis.n_non_finite:
            raise InputError(
                f"importance_weights: the log density is not finite at "
                f"{self.judged.diagnosis.n_non_finite} of the draws, so they have no weights."
            )
        weights, khat = psis(self.judged.log_p - self.judged.log_q)
        draws = self._tree(self._colour(self.judged.z))
        return ImportanceWeights(draws, weights, khat, float(1 / (weights**2).sum()))

    # --- what a person reads ------------------------------------------------------------------

    def summary(self, most: int = 12) -> str:
        """The verdict, the numbers behind it, and a table of parameters, on one screen."""
        return _summary(self, most)

    def __repr__(self) -> str:
        return f"Posterior(family={self.family!r}, dim={self.dim}, verdict={self.verdict!r})"

    __str__ = summary

    def save(self, path: str | Path) -> Path:
        """Arrays and names in one `.npz` file; `mixvi.load` needs nothing else."""
        return _store.write(path, *_to_store(self))


def normal_logpdf(z: Float[np.ndarray, "*batch dim"], log_det_root: float) -> Any:
    """`log N(mean + root z | mean, root root^T)`."""
    dim = z.shape[-1]
    return -0.5 * (z**2).sum(-1) - 0.5 * dim * math.log(2 * math.pi) - log_det_root


def load(path: str | Path) -> Posterior:
    """A posterior that `save` wrote; the model is not needed."""
    header, arrays = _store.read(path)
    judged = None
    if header["diagnosis"] is not None:
        fields = dict(header["diagnosis"])
        elbo, seen, wider = (fields.pop(name) for name in ("elbo", "moments", "wider"))
        diagnosis = Diagnosis(
            elbo=Estimate(**elbo),
            moments=Moments(**seen),
            wider=wider and Moments(**wider),
            **fields,
        )
        judged = Judged(diagnosis, arrays["z"], arrays["log_p"], arrays["log_q"])
    plain = (
        "family",
        "log_evidence_laplace",
        "elbo_fixed",
        "converged",
        "status",
        "verdict",
        "stats",
    )
    hyper = None
    if (fields := header["hyper"]) is not None:
        structure = _store.structure_from(fields.pop("structure"))
        parts = (structure.unravel(arrays[name]) for name in ("hyper", "hyper_gradient"))
        hyper = HyperReport(*parts, ran_off=tuple(fields.pop("ran_off")), **fields)
    structure, constraints = _store.structure_from(header["structure"]), None
    if (kinds := header.get("constraints")) is not None:
        constraints = kinds_from(structure, kinds)
        structure = constraints.free
    return Posterior(
        hyper_report=hyper,
        structure=structure,
        constraints=constraints,
        flat_mean=arrays["mean"],
        root=arrays["root"],
        mode=arrays["mode"],
        flat_mean_se=arrays.get("mean_se"),
        judged=judged,
        elsewhere=Elsewhere(tuple(OtherMode(**m) for m in header["modes"]), header["beyond"]),
        hessian=CurvatureReport(**header["curvature"]),
        **{name: header[name] for name in plain},
    )


def _to_store(post: Posterior) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header = {
        "family": post.family,
        "log_evidence_laplace": post.log_evidence_laplace,
        "elbo_fixed": post.elbo_fixed,
        "converged": post.converged,
        "status": post.status,
        "verdict": post.verdict,
        "stats": dict(post.stats),
        "curvature": dataclasses.asdict(post.curvature),
        "modes": [dataclasses.asdict(mode) for mode in post.elsewhere.modes],
        "beyond": post.elsewhere.beyond,
        "diagnosis": dataclasses.asdict(post.judged.diagnosis) if post.judged else None,
        "structure": _store.structure_to(post._shown),
        "constraints": post.constraints and kinds_to(post.constraints),
        "hyper": None,
    }
    arrays = {"mean": post.flat_mean, "root": post.root, "mode": post.mode}
    if post.flat_mean_se is not None:
        arrays["mean_se"] = post.flat_mean_se
    if (report := post.hyper_report) is not None:
        structure, values = flatten(report.values, np.dtype(np.float64), "hyper")
        gradient = structure.ravel(report.gradient, "gradient")
        arrays |= {"hyper": values, "hyper_gradient": gradient}
        header["hyper"] = {
            "structure": _store.structure_to(structure),
            "ran_off": report.ran_off,
            "n_passes": report.n_passes,
            "converged": report.converged,
            "at_edge": report.at_edge,
        }
    if post.judged:
        arrays |= {"z": post.judged.z, "log_p": post.judged.log_p, "log_q": post.judged.log_q}
    return header, arrays


def _summary(post: Posterior, most: int) -> str:
    lines = [f"{post.verdict}", f"{post.status}", ""]
    facts = [("family", f"{post.family}, {post.dim} parameter{'s' * (post.dim > 1)}")]
    if post.elbo is not None:
        rule = post.stats.get("draws_kind")
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
