"""The end of a fit: arrays and codes become a Posterior, or an error that speaks."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._approximate._laplace import explain_indefinite, explain_no_mode
from .._diagnostics import Elsewhere, verdict
from .._draws import Draws, Quadrature
from .._errors import Code, IndefiniteHessianError, MixviError, NoModeError, NonFiniteError
from .._fit._options import AUTO
from .._hyper import HyperReport
from .._posterior import Judged, Posterior
from .._target import UNBOUNDED, Target, explain_non_finite, precision_scope
from ._elbo import Tilt
from ._engine import Adapted, AdaptedNumbers
from ._evidence import Tuned, hyper_report
from ._families import MeanOnly
from ._judge import Shown
from ._laplace import Laplace, LaplaceNumbers
from ._options import FirstOptions
from ._stein import Past

Rule = Draws | Quadrature
NOTHING_FOUND = (Code.RAN_OFF, Code.NON_FINITE_DRAWS)
Outcome = tuple[Posterior, MixviError | None]


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem with the mode found for it. `target` stands at Laplace's hyperparameters; `anchor`
    is a Gaussian that families adapt instead of Laplace's."""

    target: Target
    start: np.ndarray
    options: FirstOptions
    found: Laplace
    tuned: Tuned
    numbers: LaplaceNumbers
    anchor: Laplace | None = None
    note: str = ""

    @property
    def dim(self) -> int:
        return self.target.structure.size

    @property
    def learns(self) -> bool:
        """Whether there are hyperparameters."""
        return self.target.theta.size > 0

    @property
    def laplace(self) -> tuple[Any, Any]:
        """Mean and root of its Gaussian."""
        return self.found.mode, self.found.root.matrix

    @property
    def start_of_family(self) -> Laplace:
        return self.found if self.anchor is None else self.anchor

    @property
    def still(self) -> Tilt:
        """Hyperparameters that stay where they are."""
        theta = jnp.asarray(self.target.theta)
        nothing = jnp.zeros((theta.size, 0), theta.dtype)
        return Tilt(theta, nothing, jnp.zeros((self.dim, 0), theta.dtype))

    def no_past(self, n_tau: int) -> Past:
        return Past.of(self.dim, n_tau, self.options.dtype, self.options.memory)


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What came of a case: the family that was fitted, over which rule, and what was seen of it."""

    name: str
    adapted: Adapted | None = None
    rule: Rule | None = None
    seen: Judged | None = None
    shown: Shown | None = None
    note: str = ""
    choice: str = ""


def finish(case: Case, fitted: Fitted, elsewhere: Elsewhere) -> Outcome:
    """From arrays on the device to what the user holds."""
    options, found, numbers, adapted = case.options, case.found, case.numbers, fitted.adapted
    search = None if adapted is None else AdaptedNumbers.fetched(adapted.numbers)
    mode = np.asarray(found.mode)
    if search is not None and search.code in NOTHING_FOUND:
        return failure(case, search)
    if numbers.code is not Code.OK:
        mode = np.full_like(mode, np.nan)
    hyper = _hyper(case.target, case.tuned, adapted, search)
    converged = search is None or search.code is Code.OK
    if search is None and hyper is not None:
        converged = hyper.converged
    elbo_fixed = None if search is None else search.elbo
    seen = fitted.seen if options.diagnostics else None
    diagnosis = None if seen is None else seen.diagnosis
    shown = fitted.shown
    post = Posterior(
        structure=case.target.structure,
        family=fitted.name,
        flat_mean=mode if adapted is None else np.asarray(adapted.mean),
        root=np.asarray(found.root.matrix if adapted is None else adapted.root),
        mode=mode,
        log_evidence_laplace=numbers.log_evidence if numbers.code is Code.OK else math.nan,
        elbo_fixed=elbo_fixed,
        flat_mean_se=None if shown is None or _by_points(case, fitted) else shown.mean_se,
        judged=seen,
        elsewhere=elsewhere,
        converged=converged,
        hyper_report=hyper,
        status=_status(case, fitted, search, hyper),
        verdict=verdict(mode.size, converged, diagnosis, elbo_fixed, elsewhere)
        + (hyper.warning if hyper is not None else ""),
        stats=_stats(case, fitted, search),
        hessian=(found.precision, found.gradient, numbers.n_repaired),
        constraints=case.target.constraints,
    )
    return post, None


def failure(case: Case, search: AdaptedNumbers | None = None) -> Outcome:
    """A Posterior of NaNs whose status is the sentence of the error that goes with it."""
    found = jax.device_get(case.found)
    error = _error(case, found, search)
    dim = case.dim
    status = str(error)[0].upper() + str(error)[1:]
    post = Posterior(
        structure=case.target.structure,
        family=case.options.family_name,
        flat_mean=np.full(dim, np.nan),
        root=np.full((dim, dim), np.nan),
        mode=np.asarray(found.mode),
        log_evidence_laplace=math.nan,
        elbo_fixed=None if case.options.richest is None else math.nan,
        flat_mean_se=None,
        judged=None,
        elsewhere=Elsewhere(),
        converged=False,
        hyper_report=_unlearnt(case.target),
        status=status,
        verdict=f"No Gaussian: {status}",
        stats=_stats(case, Fitted(case.options.family_name), None),
        hessian=(found.precision, found.gradient, case.numbers.n_repaired),
        constraints=case.target.constraints,
    )
    return post, error


def _unlearnt(target: Target) -> HyperReport | None:
    """The hyperparameters as they were when nothing came of them."""
    if (structure := target.hyper_structure) is None:
        return None
    theta = np.asarray(target.theta)
    nothing = structure.unravel(np.full_like(theta, np.nan))
    return HyperReport(structure.unravel(theta), nothing, (), 0, False, False)


def _hyper(
    target: Target, tuned: Tuned, adapted: Adapted | None, search: AdaptedNumbers | None
) -> HyperReport | None:
    if target.hyper_structure is None:
        return None
    tuned = jax.device_get(tuned)
    if adapted is None or search is None:
        theta, gradient, ok = tuned.theta, tuned.gradient, int(tuned.code) == Code.OK
    else:
        theta, gradient, ok = adapted.theta, adapted.theta_gradient, search.code is Code.OK
    return hyper_report(target.hyper_structure, theta, gradient, tuned, ok)


def _error(case: Case, found: Laplace, search: AdaptedNumbers | None) -> MixviError:
    target, start, options, numbers = case.target, case.start, case.options, case.numbers
    structure = target.structure
    if search is not None and search.code is Code.RAN_OFF and numbers.code is Code.OK:
        return NoModeError(
            "the bound has no maximum: Stein steps widened the Gaussian without end, so the "
            "posterior is improper or has no variance. Give every parameter a proper prior."
        )
    if search is not None and numbers.code is Code.OK:
        whose = (
            'at draws of the Laplace Gaussian, whose width the family "mu" cannot change'
            if options.richest == MeanOnly()
            else "at some of the fixed draws, however narrow the Gaussian is made"
        )
        return NonFiniteError(
            f'the log density is not finite {whose}: {UNBOUNDED}; or use family="eig".'
        )
    if numbers.code is Code.INDEFINITE:
        return IndefiniteHessianError(explain_indefinite(structure, np.asarray(found.precision)))
    gradient = np.asarray(found.gradient)
    if numbers.code is Code.NON_FINITE_START:
        return NonFiniteError(explain_non_finite(target, start, numbers.log_density, gradient))
    with precision_scope(options.dtype):
        before = float(jax.jit(Target.__call__)(target, start))
    mode = np.asarray(found.mode)
    return NoModeError(
        explain_no_mode(
            structure,
            start,
            mode,
            gradient,
            numbers.code is Code.STUCK,
            numbers.n_steps,
            (before, numbers.log_density),
        )
    )


def _status(
    case: Case, fitted: Fitted, search: AdaptedNumbers | None, hyper: HyperReport | None
) -> str:
    numbers, fixed = case.numbers, fitted.rule
    repaired = numbers.n_repaired
    note = f" The Hessian was repaired ({repaired} eigenvalues)." if repaired else ""
    note += hyper.sentence if hyper is not None else ""
    note += fitted.note + (f" {fitted.choice}" if fitted.choice else "")
    if search is None or fixed is None:
        if hyper is not None:
            return f"Hyperparameters found in {hyper.n_passes} evaluations of the evidence.{note}"
        return f"Mode found in {numbers.n_steps} Newton steps.{note}"
    ended = {
        Code.OK: "Converged",
        Code.BOUND_OUT_OF_STEPS: "Stopped by max_steps, not converged,",
        Code.BOUND_STUCK: "Stuck (no step raises the bound: is the log density smooth and finite "
        "everywhere, the posterior proper?)",
    }[search.code]
    over = f"{fixed.n} {fixed.kind} {'nodes' if isinstance(fixed, Quadrature) else 'draws'}"
    return (
        f"{ended} after {search.n_passes} passes over {over}; largest "
        f"gradient {search.gradient:.1e} per standard deviation.{note}"
    )


def _by_points(case: Case, fitted: Fitted) -> bool:
    """Nodes over several predictors are not exact, and an inspection does not see by how much."""
    return isinstance(fitted.rule, Quadrature) and case.target.n_predictors > 1


def _stats(case: Case, fitted: Fitted, search: AdaptedNumbers | None) -> dict[str, Any]:
    options, fixed = case.options, fitted.rule
    key = options.key if isinstance(options.key, int) else str(options.key)
    stats = {"mode_steps": case.numbers.n_steps, "key": key, "dtype": options.dtype.name}
    if fitted.shown is not None:
        stats["gain_left"] = fitted.shown.gain()
        if not _by_points(case, fitted):
            stats["draw_loss"] = fitted.shown.draw_loss
    if search is None or fixed is None:
        return stats
    by_stein = fitted.adapted is not None and fitted.adapted.past is not None
    optimiser = "bfgs" if options.optimiser == AUTO else options.optimiser
    return stats | {
        "draws": fixed.n,
        "draws_kind": fixed.kind,
        "optimiser": "stein" if by_stein else optimiser,
        "passes": search.n_passes,
        "values": search.n_values,
        "products": search.n_products,
        "gradient": search.gradient,
    }
