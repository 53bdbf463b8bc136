"""Room 9. The end of a fit: arrays and codes become a Posterior, or an error that speaks."""

import math
from typing import Any

import jax
import numpy as np

from ._diagnostics import Elsewhere, verdict
from ._draws import Draws, Quadrature
from ._engine import Adapted, AdaptedNumbers
from ._errors import Code, IndefiniteHessianError, MixviError, NoModeError, NonFiniteError
from ._evidence import HyperReport, Tuned, hyper_report
from ._families import MeanOnly
from ._laplace import Laplace, LaplaceNumbers, explain_indefinite, explain_no_mode
from ._options import Options
from ._posterior import Judged, Posterior
from ._target import Target, explain_non_finite, precision_scope

Rule = Draws | Quadrature
Outcome = tuple[Posterior, MixviError | None]


def finish(
    target: Target,
    options: Options,
    found: Laplace,
    tuned: Tuned,
    numbers: LaplaceNumbers,
    adapted: Adapted | None,
    fixed: Rule | None,
    seen: Judged | None,
    elsewhere: Elsewhere,
    note: str = "",
) -> Outcome:
    """From arrays on the device to what the user holds."""
    search = None if adapted is None else AdaptedNumbers.fetched(adapted.numbers)
    mode = np.asarray(found.mode)
    if search is not None and search.code is Code.NON_FINITE_DRAWS:
        return failure(target, mode, options, found, numbers, search)
    hyper = _hyper(target, tuned, adapted, search)
    converged = search is None or search.code is Code.OK
    if search is None and hyper is not None:
        converged = hyper.converged
    elbo_fixed = None if search is None else search.elbo
    seen = seen if options.diagnostics else None
    diagnosis = None if seen is None else seen.diagnosis
    post = Posterior(
        structure=target.structure,
        family=options.family_name,
        flat_mean=mode if adapted is None else np.asarray(adapted.mean),
        root=np.asarray(found.root.matrix if adapted is None else adapted.root),
        mode=mode,
        log_evidence_laplace=numbers.log_evidence,
        elbo_fixed=elbo_fixed,
        judged=seen,
        elsewhere=elsewhere,
        converged=converged,
        hyper_report=hyper,
        status=_status(numbers, search, fixed, hyper) + note,
        verdict=verdict(mode.size, converged, diagnosis, elbo_fixed, elsewhere)
        + (hyper.warning if hyper is not None else ""),
        stats=_stats(options, numbers, search, fixed),
        hessian=(found.precision, found.gradient, numbers.n_repaired),
    )
    return post, None


def failure(
    target: Target,
    start: np.ndarray,
    options: Options,
    found: Laplace,
    numbers: LaplaceNumbers,
    search: AdaptedNumbers | None = None,
) -> Outcome:
    """A Posterior of NaNs whose status is the sentence of the error that goes with it."""
    found = jax.device_get(found)
    error = _error(target, start, options, found, numbers, search)
    dim = target.structure.size
    status = str(error)[0].upper() + str(error)[1:]
    post = Posterior(
        structure=target.structure,
        family=options.family_name,
        flat_mean=np.full(dim, np.nan),
        root=np.full((dim, dim), np.nan),
        mode=np.asarray(found.mode),
        log_evidence_laplace=math.nan,
        elbo_fixed=None if options.family is None else math.nan,
        judged=None,
        elsewhere=Elsewhere(),
        converged=False,
        hyper_report=_unlearnt(target),
        status=status,
        verdict=f"No Gaussian: {status}",
        stats=_stats(options, numbers, None, None),
        hessian=(found.precision, found.gradient, numbers.n_repaired),
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


def _error(
    target: Target,
    start: np.ndarray,
    options: Options,
    found: Laplace,
    numbers: LaplaceNumbers,
    search: AdaptedNumbers | None,
) -> MixviError:
    structure = target.structure
    if search is not None:
        whose = (
            'at draws of the Laplace Gaussian, whose width the family "mu" cannot change'
            if options.family == MeanOnly()
            else "at some of the fixed draws, however narrow the Gaussian is made"
        )
        return NonFiniteError(
            f"the log density is not finite {whose}: write constrained parameters on an unbounded "
            'scale (log of a scale, logit of a share), or use family="eig".'
        )
    if numbers.code is Code.INDEFINITE:
        return IndefiniteHessianError(explain_indefinite(structure, np.asarray(found.precision)))
    gradient = np.asarray(found.gradient)
    if numbers.code is Code.NON_FINITE_START:
        return NonFiniteError(
            explain_non_finite(structure, start, numbers.log_density, gradient, target.data)
        )
    with precision_scope(options.dtype):
        before = float(jax.jit(Target.__call__)(target, start))
    mode = np.asarray(found.mode)
    return NoModeError(explain_no_mode(structure, start, mode, gradient, numbers, before))


def _status(
    numbers: LaplaceNumbers,
    search: AdaptedNumbers | None,
    fixed: Rule | None,
    hyper: HyperReport | None,
) -> str:
    repaired = numbers.n_repaired
    note = f" The Hessian was repaired ({repaired} eigenvalues)." if repaired else ""
    note += hyper.sentence if hyper is not None else ""
    if search is None or fixed is None:
        if hyper is not None:
            return f"Hyperparameters found in {hyper.n_passes} evaluations of the evidence.{note}"
        return f"Mode found in {numbers.n_steps} Newton steps.{note}"
    ended = {
        Code.OK: "Converged",
        Code.BOUND_OUT_OF_STEPS: "Stopped by max_steps, not converged,",
        Code.BOUND_STUCK: "Stuck (no step raises the bound; is the log density smooth?)",
    }[search.code]
    over = f"{fixed.n} {fixed.kind} {'nodes' if isinstance(fixed, Quadrature) else 'draws'}"
    return (
        f"{ended} after {search.n_passes} passes over {over}; largest "
        f"gradient {search.gradient:.1e} per standard deviation.{note}"
    )


def _stats(
    options: Options, numbers: LaplaceNumbers, search: AdaptedNumbers | None, fixed: Rule | None
) -> dict[str, Any]:
    key = options.key if isinstance(options.key, int) else str(options.key)
    stats = {"mode_steps": numbers.n_steps, "key": key, "dtype": options.dtype.name}
    if search is None or fixed is None:
        return stats
    return stats | {
        "draws": fixed.n,
        "draws_kind": fixed.kind,
        "optimiser": options.optimiser,
        "passes": search.n_passes,
        "values": search.n_values,
        "products": search.n_products,
        "gradient": search.gradient,
    }
