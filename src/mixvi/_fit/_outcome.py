"""The end of a fit: a Posterior, or an error that speaks."""

import dataclasses
import math
from itertools import compress

import numpy as np

from .._approximate._families import MeanOnly
from .._approximate._laplace import explain_indefinite, explain_no_mode, explain_sign
from .._approximate._mixture import MixtureState
from .._approximate._stein import SteinState
from .._arrays._draws import Quadrature
from .._density._target import UNBOUNDED, explain_non_finite
from .._errors import Code, IndefiniteHessianError, MixviError, NoModeError, NonFiniteError
from .._judge._diagnosis import Elsewhere
from .._judge._verdict import REJECT, Reason, Subject, Verdict, judge
from .._law._gaussian import Gaussian
from ._case import Case, Fitted
from ._events import HessianRepaired
from ._hyper import HyperReport
from ._options import AUTO
from ._posterior import Posterior
from ._stats import Stats

Outcome = tuple[Posterior, MixviError | None]


def finish(case: Case, fitted: Fitted, elsewhere: Elsewhere) -> Outcome:
    if fitted.found_nothing:
        return failure(case, fitted)
    found, state = case.found, fitted.state
    mode = found.mode if found.found else np.full_like(found.mode, np.nan)
    elbo_fixed = None if state is None else state.elbo
    fresh = fitted.judged if case.options.diagnostics else None
    diagnosis = None if fresh is None else fresh.diagnosis
    of_mean = None if fitted.inspection is None or _by_points(case, fitted) else fitted.inspection
    dtype = case.options.dtype
    hyper, subject = _hyper(case, fitted), subject_of(case, fitted)
    post = Posterior(
        structure=case.problem.target.structure,
        family=fitted.name,
        law=fitted.law(found, dtype),
        mode=mode.astype(dtype),
        log_evidence_laplace=found.log_evidence if found.found else math.nan,
        elbo_fixed=elbo_fixed,
        flat_mean_se=None if of_mean is None else of_mean.mean_se,
        judged=fresh,
        elsewhere=elsewhere,
        converged=subject.converged,
        hyper_report=hyper,
        status=_status(case, fitted, hyper),
        judgement=judge(subject, diagnosis, elsewhere),
        stats=_stats(case, fitted),
        hessian=(found.precision, found.gradient, found.n_repaired),
        constraints=case.problem.target.constraints,
    )
    return post, None


def subject_of(case: Case, fitted: Fitted) -> Subject:
    """What is to be judged."""
    hyper, target = _hyper(case, fitted), case.problem.target
    names = target.structure.names
    if target.constraints is not None:
        names = target.constraints.names_of_user
    is_mixed, asked = isinstance(fitted.state, MixtureState), case.options.mixture
    n_components = len(fitted.state.at) if isinstance(fitted.state, MixtureState) else 1
    return Subject(
        names=names,
        family=AUTO if case.options.is_auto and not is_mixed else fitted.name,
        converged=fitted.converged and (hyper is None or hyper.converged),
        elbo_fixed=None if fitted.state is None else fitted.state.elbo,
        ran_off=() if hyper is None else hyper.ran_off,
        accepts_images=case.options.symmetric == "accept",
        n_components=n_components,
        may_have_more=asked is not None and n_components >= asked.n_components,
    )


def _failed(status: str) -> Reason:
    return Reason("failed", REJECT, None, math.nan, math.nan, status)


def failure(case: Case, fitted: Fitted | None = None) -> Outcome:
    """A Posterior of NaNs whose status is the sentence of the error that goes with it."""
    found, dim, options = case.found, case.problem.dim, case.options
    error = _error(case, fitted)
    status = str(error)[0].upper() + str(error)[1:]
    post = Posterior(
        structure=case.problem.target.structure,
        family=options.family_name,
        law=Gaussian(*(np.full(dim, np.nan, options.dtype) for _ in range(2))),
        mode=found.mode.astype(options.dtype),
        log_evidence_laplace=math.nan,
        elbo_fixed=None if options.richest is None else math.nan,
        flat_mean_se=None,
        judged=None,
        elsewhere=Elsewhere(),
        converged=False,
        hyper_report=_unlearnt(case),
        status=status,
        judgement=Verdict(REJECT, (_failed(status),), f"No Gaussian: {status}"),
        stats=_stats(case, Fitted(options.family_name)),
        hessian=(found.precision, found.gradient, found.n_repaired),
        constraints=case.problem.target.constraints,
    )
    return post, error


def _hyper(case: Case, fitted: Fitted) -> HyperReport | None:
    tuned, state = case.tuned, fitted.state
    structure = case.problem.target.hyper_structure
    if tuned is None or structure is None:
        return None
    theta, gradient, code = tuned.theta, tuned.gradient, tuned.code
    if state is not None:
        theta, gradient, code = state.learnt.theta, state.learnt.theta_gradient, state.code
    dtype = case.options.dtype
    return HyperReport(
        values=structure.unravel(theta.astype(dtype)),
        gradient=structure.unravel(gradient.astype(dtype)),
        ran_off=tuple(compress(structure.names, tuned.ran_off)),
        n_passes=tuned.n_passes,
        converged=code is Code.OK,
        at_edge=tuned.at_edge,
    )


def _unlearnt(case: Case) -> HyperReport | None:
    """The hyperparameters as they were when nothing came of them."""
    if case.tuned is None or (structure := case.problem.target.hyper_structure) is None:
        return None
    nothing = structure.unravel(np.full_like(case.tuned.theta, np.nan))
    return HyperReport(structure.unravel(case.tuned.theta), nothing, (), 0, False, False)


def _error(case: Case, fitted: Fitted | None) -> MixviError:
    target, start, found = case.problem.target, case.problem.start, case.found
    structure, code = target.structure, None
    if fitted is not None and fitted.state is not None and found.found:
        code = fitted.state.code
    if code is Code.RAN_OFF:
        return NoModeError(
            "the bound has no maximum: Stein steps widened the Gaussian without end, so the "
            "posterior is improper or has no variance. Give every parameter a proper prior."
        )
    if code is not None:
        whose = (
            'at draws of the Laplace Gaussian, whose width the family "mu" cannot change'
            if case.options.richest == MeanOnly()
            else "at some of the fixed draws, however narrow the Gaussian is made"
        )
        return NonFiniteError(
            f'the log density is not finite {whose}: {UNBOUNDED}; or use family="eig".'
        )
    if found.code is Code.NON_FINITE_START:
        said = explain_non_finite(target, start, found.log_density, found.gradient)
        return NonFiniteError(said)
    sign = explain_sign(case.density.curvature(start)[2])
    if found.code is Code.INDEFINITE:
        return IndefiniteHessianError(explain_indefinite(structure, found.precision) + sign)
    before = float(case.density.values(start[None])[0])
    said = explain_no_mode(
        structure,
        start,
        found.mode,
        found.gradient,
        found.code is Code.STUCK,
        found.n_steps,
        (before, found.log_density),
    )
    return NoModeError(said + sign)


def _status(case: Case, fitted: Fitted, hyper: HyperReport | None) -> str:
    found, state, spec = case.found, fitted.state, fitted.spec
    events = [HessianRepaired(found.n_repaired)] if found.n_repaired else []
    told = [*events, *fitted.events, *([fitted.choice] if fitted.choice else [])]
    note = "".join(f" {event.sentence}" for event in told)
    note = (hyper.sentence if hyper is not None else "") + note
    if fitted.interrupted is not None:
        return f"{fitted.interrupted.sentence}{note}"
    if hyper is not None and state is None:
        if hyper.n_passes == 0:
            return f"Hyperparameters left as they were.{note}"
        times = f"{hyper.n_passes} evaluation{'s' * (hyper.n_passes > 1)}"
        return f"Hyperparameters found in {times} of the evidence.{note}"
    if state is None or spec is None:
        return f"Mode found in {found.n_steps} Newton steps.{note}"
    ended = {
        Code.OK: "Converged",
        Code.BOUND_OUT_OF_STEPS: "Stopped by max_steps, not converged,",
        Code.BOUND_STUCK: "Stuck (no step raises the bound: is the log density smooth and finite "
        "everywhere, the posterior proper?)",
    }[state.code]
    over = f"{spec.n} {spec.kind} {'nodes' if isinstance(spec, Quadrature) else 'draws'}"
    if isinstance(state, MixtureState):
        over += " of each component"
    left = (
        f"about {max(state.gain_left, 1e-12):.1g} nat left"
        if case.options.tol is None
        else f"largest gradient {state.gradient:.1e} per standard deviation"
    )
    return f"{ended} after {case.density.n_passes} passes, the last over {over}; {left}.{note}"


def _searched_by(state: object) -> str | None:
    """Steps of a kind of their own."""
    if isinstance(state, MixtureState):
        return "natural"
    return "stein" if isinstance(state, SteinState) else None


def _by_points(case: Case, fitted: Fitted) -> bool:
    """Nodes over several predictors are not exact, and an inspection does not see by how much."""
    return isinstance(fitted.spec, Quadrature) and case.problem.target.n_predictors > 1


def _stats(case: Case, fitted: Fitted) -> Stats:
    options, spec, state, density = case.options, fitted.spec, fitted.state, case.density
    inspection = fitted.inspection
    stats = Stats(
        mode_steps=case.found.n_steps,
        key=options.key if isinstance(options.key, int) else str(options.key),
        dtype=options.dtype.name,
        gradients=density.cost,
        values=density.n_values,
        gain_left=None if inspection is None else inspection.gain,
        draw_loss=None if inspection is None or _by_points(case, fitted) else inspection.draw_loss,
    )
    if state is None or spec is None:
        return stats
    optimiser = "bfgs" if options.optimiser == AUTO else options.optimiser
    return dataclasses.replace(
        stats,
        draws=spec.n,
        draws_kind=spec.kind,
        optimiser=_searched_by(state) or optimiser,
        components=len(state.at) if isinstance(state, MixtureState) else None,
        passes=density.n_passes,
        products=density.n_products,
        gradient=state.gradient,
    )
