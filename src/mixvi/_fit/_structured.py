"""Many parameters: one problem of linear predictors with a structure, from start to Posterior.

the mode ......... Newton's method with the structure's own factor; hyperparameters by evidence
auto ............. Laplace, means alone, or the whole covariance, which keeps its structure
enough nodes? .... more, until the integrals stand still
judged ........... by fresh draws
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from .._approximate._by_rows import RowBound, RowMode, RowState, best_by_rows, mode_by_rows
from .._approximate._laplace import explain_no_mode
from .._approximate._row_curvature import SHAPES, RowShape
from .._approximate._row_evidence import RowProfile, RowsTuned, searched, tuned_by_rows
from .._arrays._draws import Nodes, Quadrature
from .._density._rows import RowsDensity
from .._density._structure import listed
from .._density._target import Target, explain_non_finite
from .._errors import (
    Code,
    IndefiniteHessianError,
    InputError,
    MixviError,
    NoModeError,
    NonFiniteError,
)
from .._judge._fresh import Judged
from .._judge._many_parameters import CHEAP, DRAWS, MORE, judged_many, looked_at
from .._judge._verdict import Subject
from .._law._gaussian import Gaussian
from .._watch import FAMILY, MODE, VERDICT, stage
from ._events import Event, LaplaceLeaves, OnlyPart, QuadratureOff, WholeChanges
from ._hyper import HyperReport
from ._many_ended import ended_posterior, failed_posterior
from ._options import DIAGONAL, Options
from ._outcome import Outcome
from ._stats import Stats
from ._structure import Choice

MODE_TOL = 1e-7
# Nats: what is not worth another rung, what a search may leave, what hyperparameters need.
GAIN, LEFT, LEFT_LEARNING = 0.002, 1e-5, 1e-7
# Nats, by twice as many nodes, of all rows together; of one row, which the status speaks of.
NODES_OFF, ROW_OFF, MOST_NODES = 1e-5, 1e-4, 1024
# Predictors at which rows are asked whether they curve downwards: so many standard deviations.
REACH, ASKED = 30.0, 25


@dataclasses.dataclass(frozen=True)
class Begun:
    """A problem with its mode. `density`: with the hyperparameters that the evidence has put."""

    target: Target
    start: np.ndarray
    options: Options
    choice: Choice
    density: RowsDensity
    shape: RowShape
    found: RowMode
    tuned: RowsTuned | None


@dataclasses.dataclass(frozen=True)
class Done:
    """What came of it; `density` with the hyperparameters that are there."""

    family: str
    density: RowsDensity
    spec: Quadrature
    state: RowState | None = None
    theta_gradient: np.ndarray | None = None
    events: tuple[Event, ...] = ()
    n_passes: int = 0


def solved_by_rows(target: Target, start: np.ndarray, options: Options, choice: Choice) -> Outcome:
    with np.errstate(all="ignore"):
        begun = _begun(target, start, options, choice)
        if not begun.found.found:
            return _failure(begun)
        done = _fitted(begun)
        if done.state is not None and done.state.code is Code.NON_FINITE_DRAWS:
            return _failure(begun, done)
        return _finished(begun, done)


@stage(MODE)
def _begun(target: Target, start: np.ndarray, options: Options, choice: Choice) -> Begun:
    density = RowsDensity(target)
    if not math.isfinite(density.prior.log_det):
        raise InputError(
            "LinearPredictor: prior_precision must be positive (definite): where it is singular "
            "(an intrinsic field), add a small number to its diagonal."
        )
    shape, tuned = SHAPES[choice.name](density), None
    if target.hyper_structure is None:
        found = mode_by_rows(density, shape, start, MODE_TOL)
    else:
        at = (density, shape, start, MODE_TOL, options.hyper_steps)
        found, tuned = tuned_by_rows(*at)
        density = density.at(tuned.theta)
    return Begun(target, start, options, choice, density, shape, found, tuned)


# --- the family -------------------------------------------------------------------------------


@stage(FAMILY)
def _fitted(begun: Begun) -> Done:
    options = begun.options
    given = options.draws
    spec = given if isinstance(given, Quadrature) else Quadrature(32)
    if options.richest is None:
        return Done("laplace", begun.density, spec)
    whole = "diag" if begun.choice.name == DIAGONAL else "full"
    if not options.is_auto:
        return _refined(begun, spec, options.family_name)
    curved = begun.found.curved
    assert curved is not None
    bound = RowBound(begun.density, begun.found.point, curved, _rule(spec))
    aim = begun.shape.curved(begun.density.prior, bound.wanted) if bound.is_finite else None
    of_mean = math.inf if aim is None else bound.gain_mean(aim)
    of_widths = math.inf if aim is None else bound.gain_widths(aim)
    if of_mean + of_widths < GAIN:
        choice = LaplaceLeaves(of_mean + of_widths)
        return Done("laplace", begun.density, spec, events=(choice,))
    if of_widths < GAIN and begun.tuned is None:
        done = _refined(begun, spec, "mu")
        return dataclasses.replace(done, events=(*done.events, OnlyPart("mu", of_widths)))
    done = _refined(begun, spec, whole)
    nats = of_mean + of_widths
    choice = WholeChanges(nats if math.isfinite(nats) else None, at_once=True)
    return done if whole == "diag" else dataclasses.replace(done, events=(*done.events, choice))


def _rule(spec: Quadrature) -> Nodes:
    return spec.make(np.dtype(np.float64), 1)


def _refined(begun: Begun, spec: Quadrature, family: str) -> Done:
    """With as many nodes as it takes."""
    done = _searched(begun, spec, family, None)
    while done.state is not None and done.state.code is Code.OK:
        off = _nodes_off(done.density, done.state, spec)
        if off.sum() <= NODES_OFF:
            break
        if begun.options.draws is not None or spec.n >= MOST_NODES:
            worst = float(off.max())
            events = (QuadratureOff(worst),) if worst > ROW_OFF else ()
            return dataclasses.replace(done, events=events)
        spec = spec.doubled()
        done = _searched(begun, spec, family, done)
    return done


def _nodes_off(density: RowsDensity, state: RowState, spec: Quadrature) -> np.ndarray:
    """Of every row."""
    one, two = (
        RowBound(density, state.mean, state.curved, _rule(each)).rows.value
        for each in (spec, spec.doubled())
    )
    return np.abs(one - two)


def _searched(begun: Begun, spec: Quadrature, family: str, so_far: Done | None) -> Done:
    density, found, options = begun.density, begun.found, begun.options
    assert found.curved is not None
    start, n_before = (found.point, found.curved), 0
    if so_far is not None and so_far.state is not None:
        start, n_before = (so_far.state.mean, so_far.state.curved), so_far.n_passes
        density = so_far.density
    rule, mean_only = _rule(spec), family == "mu"
    if mean_only:
        start = start[0], found.curved
    left = LEFT if options.tol is None else min(LEFT, options.tol**2)
    if begun.tuned is None or mean_only or options.hyper_steps == 0:
        at = (density, begun.shape, start, rule, left, options.max_steps)
        state = best_by_rows(*at, mean_only=mean_only)
        return Done(family, density, spec, state, n_passes=n_before + state.n_passes)
    at = (density, begun.shape, start, rule, LEFT_LEARNING, options.max_steps)
    profile = RowProfile(*at)
    best = searched(profile, density.theta, options.max_steps, density.resolution)
    state = profile.ended(best.point)
    assert state is not None
    if best.code is not Code.OK and state.code is Code.OK:
        state = dataclasses.replace(state, code=best.code)
    n_passes = n_before + profile.n_passes
    return Done(family, density.at(best.point), spec, state, best.gradient, n_passes=n_passes)


# --- the verdict ------------------------------------------------------------------------------


@stage(VERDICT)
def _judged(
    begun: Begun, done: Done, gaussian: Gaussian
) -> tuple[Judged | None, tuple[str, ...], bool]:
    """And the names of the parameters that were looked at; whether there can be but one mode."""
    options = begun.options
    if not options.diagnostics:
        return None, (), True
    prior_variances = 1 / done.density.prior.diagonal()
    places = looked_at(gaussian.root, prior_variances)
    n = DRAWS if options.may_use_fewer else options.diagnostics
    at = (done.density, gaussian.mean, gaussian.root, options.key)
    told = judged_many(*at, n, places)
    said = told.judged.diagnosis
    is_open = said.moments is None and not said.n_non_finite
    if is_open and options.may_use_fewer and gaussian.dim <= CHEAP:
        told = judged_many(*at, MORE, places)
    names = begun.target.structure.names
    return told.judged, tuple(names[i] for i in places), _curves_downwards(begun, done)


def _curves_downwards(begun: Begun, done: Done) -> bool:
    """Every row wherever it was asked, so that there is one mode."""
    curved = begun.found.curved
    assert curved is not None
    eta = done.density.predictors(begun.found.point)
    sd = np.maximum(1.0, np.sqrt(np.maximum(curved.row_variances, 0.0)))
    for by in np.linspace(-REACH, REACH, ASKED):
        bends = done.density.rows.slopes(eta + by * sd, done.density.theta).second
        if not (bends <= 1e-12 * (1 + np.abs(bends).max(initial=0.0))).all():
            return False
    return True


# --- the end ----------------------------------------------------------------------------------


def _finished(begun: Begun, done: Done) -> Outcome:
    found, state = begun.found, done.state
    mean = found.point if state is None else state.mean
    curved = found.curved if state is None else state.curved
    assert curved is not None
    gaussian = Gaussian(mean, curved.root)
    judged, names, one_mode = _judged(begun, done, gaussian)
    hyper = _hyper(begun, done)
    converged = (state is None or state.code is Code.OK) and (hyper is None or hyper.converged)
    elbo = None if state is None else state.elbo
    ran_off = () if hyper is None else hyper.ran_off
    subject = Subject(names, done.family, converged, elbo, ran_off)
    post = ended_posterior(
        begun.target,
        gaussian,
        subject,
        judged,
        one_mode,
        _status(begun, done, hyper),
        _stats(begun, done),
        mode=found.point,
        log_density=found.log_density,
        log_evidence_laplace=found.log_evidence,
        decrement=found.decrement,
        hyper_report=hyper,
    )
    return post, None


def _hyper(begun: Begun, done: Done) -> HyperReport | None:
    tuned, structure = begun.tuned, begun.target.hyper_structure
    if tuned is None or structure is None:
        return None
    theta, gradient, code = tuned.theta, tuned.gradient, tuned.code
    if done.state is not None and done.theta_gradient is not None:
        theta, gradient, code = done.density.theta, done.theta_gradient, done.state.code
    return HyperReport(
        values=structure.unravel(theta),
        gradient=structure.unravel(gradient),
        ran_off=tuple(
            name for name, off in zip(structure.names, tuned.ran_off, strict=True) if off
        ),
        n_passes=tuned.n_passes,
        converged=code is Code.OK,
        at_edge=False,
    )


def _status(begun: Begun, done: Done, hyper: HyperReport | None) -> str:
    state, events = done.state, done.events
    if begun.choice.event is not None:
        events = (*events, begun.choice.event)
    note = "" if hyper is None else hyper.sentence
    note += "".join(f" {event.sentence}" for event in events)
    if state is None:
        if hyper is not None and hyper.n_passes:
            return f"Hyperparameters found in {hyper.n_passes} evaluations of the evidence.{note}"
        return f"Mode found in {begun.found.n_steps} Newton steps.{note}"
    ended = {
        Code.BOUND_OUT_OF_STEPS: "Stopped by max_steps, not converged,",
        Code.BOUND_STUCK: "Stuck (no step raises the bound: is the log likelihood smooth?)",
    }.get(state.code, "Converged")
    return (
        f"{ended} after {done.n_passes} passes, the last over {done.spec.n} quadrature nodes; "
        f"about {max(state.gain_left, 1e-12):.1g} nat left.{note}"
    )


def _stats(begun: Begun, done: Done) -> Stats:
    key, state = begun.options.key, done.state
    stats = Stats(begun.found.n_steps, key if isinstance(key, int) else str(key))
    if state is None:
        return stats
    return dataclasses.replace(
        stats,
        draws=done.spec.n,
        draws_kind=done.spec.kind,
        optimiser="stein",
        passes=done.n_passes,
        gradient=state.gradient,
        gain_left=state.gain_left,
    )


# --- failures ---------------------------------------------------------------------------------


def _failure(begun: Begun, done: Done | None = None) -> Outcome:
    return failed_posterior(
        begun.target,
        begun.options,
        begun.found.point,
        begun.found.decrement,
        _error(begun, done),
        _unlearnt(begun),
        begun.found.n_steps,
    )


def _unlearnt(begun: Begun) -> HyperReport | None:
    structure = begun.target.hyper_structure
    if structure is None or begun.tuned is None:
        return None
    theta = begun.tuned.theta
    nothing = structure.unravel(np.full_like(theta, np.nan))
    return HyperReport(structure.unravel(theta), nothing, (), 0, False, False)


def _error(begun: Begun, done: Done | None) -> MixviError:
    found, target = begun.found, begun.target
    if done is not None:
        return NonFiniteError(
            "the log likelihood is not finite at predictors within 7.5 standard deviations of the "
            "Laplace Gaussian: write it for all real predictors (a log link for a rate, say)."
        )
    if found.code is Code.NON_FINITE_START:
        said = explain_non_finite(target, begun.start, found.log_density, found.gradient)
        return NonFiniteError(said)
    if found.code is Code.INDEFINITE:
        return IndefiniteHessianError(_explain_indefinite(begun))
    at_start = mode_by_rows(begun.density, begun.shape, begun.start, math.inf, 1)
    ends = (at_start.log_density, found.log_density)
    stuck = found.code is Code.STUCK
    at = (target.structure, begun.start, found.point, found.gradient, stuck, found.n_steps, ends)
    return NoModeError(explain_no_mode(*at))


def _explain_indefinite(begun: Begun) -> str:
    """Names the parameters that carry the direction along which it curves upwards most."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    density, point = begun.density, begun.found.point
    dim, names = density.dim, begun.target.structure.names
    times = functools.partial(_minus_product, density, point)
    operator: Any = LinearOperator  # whose stubs leave out that a function will do
    whole = operator((dim, dim), matvec=times, dtype=np.float64)
    start = np.cos(np.arange(dim, dtype=np.float64) ** 2 + 1)
    try:
        if dim < 3:
            raise ValueError("too small for Lanczos")
        values, vectors = eigsh(whole, k=1, which="SA", v0=start, tol=1e-3, maxiter=300)  # pyright: ignore[reportArgumentType]
    except (ArpackError, ValueError):
        values, vectors = np.array([np.nan]), np.zeros((dim, 1))
    weight = np.abs(vectors[:, 0])
    carriers = [names[i] for i in np.argsort(-weight)[:5] if weight[i] > 0.1 * weight.max()]
    carried = f", carried by {listed(carriers)}" if carriers else ""
    return (
        "the log density curves upwards along a direction at the point where its gradient "
        f"vanishes: the smallest eigenvalue of the negative Hessian is {values[0]:.3g}{carried}. "
        "Give these parameters a tighter prior, or start elsewhere."
    )


def _minus_product(density: RowsDensity, point: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return -density.product(point, vector.ravel())[2]
