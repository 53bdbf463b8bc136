"""Many parameters of any log density, from its gradients and products with its Hessian.

the mode ......... Newton's method by conjugate gradients
the curvature .... a diagonal and a few directions, or the diagonal alone
auto ............. Laplace, or means and widths along the directions
judged ........... by fresh draws
"""

import dataclasses
import functools
import math

import numpy as np
from jaxtyping import Float

from .._approximate._laplace import explain_no_mode
from .._approximate._low_rank import LOG_2PI, Curvature, Directions, positive
from .._approximate._newton_cg import newton_cg
from .._approximate._subspace import (
    Foreseen,
    Part,
    Subspace,
    SubspaceBound,
    SubspaceState,
    best_in_subspace,
    draws_for,
    foreseen,
)
from .._arrays._draws import PROBES, generator
from .._arrays._roots import Root, across, log_det
from .._density._declared import declared_precision
from .._density._protocol import Density
from .._density._structure import listed
from .._density._target import Target, explain_non_finite
from .._errors import Code, IndefiniteHessianError, MixviError, NoModeError, NonFiniteError
from .._judge._fresh import Judged
from .._judge._many_parameters import CHEAP, DRAWS, MORE, judged_many, looked_at
from .._judge._verdict import Subject
from .._law._gaussian import Gaussian
from .._watch import FAMILY, MODE, VERDICT, stage
from ._events import DirectionsLeaveOut, Event, LaplaceLeaves, OnlyPart
from ._many_ended import ended_posterior, failed_posterior
from ._options import DIAGONAL, Options
from ._outcome import Outcome
from ._stats import Stats
from ._structure import Choice

MODE_TOL, ENOUGH = 1e-8, 1e-3
# Nats that are not worth another family.
GAIN = 0.002
# Directions that are kept at most, and the share of memory that they may take.
MOST_DIRECTIONS, SHARE = 1200, 0.5
PARTS = {
    "mu": Part(widths=False),
    "eig": Part(),
    "diag": Part(),
}

Vector = Float[np.ndarray, " dim"]


@dataclasses.dataclass(frozen=True)
class Begun:
    """A problem with its mode and the curvature there; `error`: what stands in the way."""

    target: Target
    density: Density
    options: Options
    choice: Choice
    mode: Vector
    log_density: float
    base: Vector
    directions: Directions | None
    root: Root | None
    decrement: float
    n_steps: int
    n_products: int
    error: MixviError | None = None

    @property
    def log_evidence(self) -> float:
        assert self.root is not None
        return self.log_density + log_det(self.root) + 0.5 * len(self.mode) * LOG_2PI


def solved_by_products(
    target: Target, density: Density, start: np.ndarray, options: Options, choice: Choice
) -> Outcome:
    with np.errstate(all="ignore"):
        begun = _begun(target, density, start, options, choice)
        if begun.error is not None:
            at = (begun.mode, begun.decrement, begun.error)
            return failed_posterior(target, options, *at, n_steps=begun.n_steps)
        family, state, events = _fitted(begun)
        return _finished(begun, family, state, events)


# --- the mode and the curvature there ---------------------------------------------------------


class _Scaled(Density):
    """In units in which the prior, or the diagonal, is the same for all."""

    def __init__(self, inner: Density, scale: Vector):
        self.inner, self.scale, self.dim = inner, scale, inner.dim
        self.resolution = inner.resolution

    def gradients(self, points):
        values, gradients = self.inner.gradients(points * self.scale)
        return values, gradients * self.scale

    def product(self, point, vector):
        found = self.inner.product(point * self.scale, vector * self.scale)
        return found[0], found[1] * self.scale, found[2] * self.scale


@stage(MODE)
def _begun(
    target: Target, density: Density, start: np.ndarray, options: Options, choice: Choice
) -> Begun:
    dim, nothing = len(start), np.zeros(len(start))
    value, gradient, _ = density.product(start, nothing)
    parts = (target, density, options, choice)

    def failed(error: MixviError, point: Vector, value: float, size: float, n: int) -> Begun:
        return Begun(*parts, point, value, nothing, None, None, size, n, 0, error)

    if not (math.isfinite(value) and np.isfinite(gradient).all()):
        said = explain_non_finite(target, start, value, gradient)
        return failed(NonFiniteError(said), start, value, math.inf, 0)
    declared = declared_precision(target, start)
    scale = np.ones(dim) if declared is None else 1 / np.sqrt(declared)
    found, n_steps = newton_cg(_Scaled(density, scale), start / scale, MODE_TOL)
    mode = found * scale
    before, (value, gradient, _) = value, density.product(mode, nothing)
    curvature = Curvature(density, mode, generator(options.key, PROBES))
    directions, root, decrement, base = None, None, math.inf, nothing
    if math.isfinite(value) and np.isfinite(gradient).all():
        base = declared_precision(target, mode)
        base = np.ones(dim) if base is None else base
        if choice.name == DIAGONAL:
            base = curvature.diagonal()
            root = 1 / np.sqrt(positive(base)) if (base > 0).mean() > 0.99 else None
        else:
            affordable = int(SHARE * options.memory / (8 * dim))
            most = max(1, min(MOST_DIRECTIONS, affordable, dim))
            directions = curvature.directions(base, most)
            root = directions.root if directions.is_definite else None
        if root is not None:
            decrement = float(np.linalg.norm(across(gradient[None], root)))
        elif float(np.linalg.norm(gradient * scale)) <= ENOUGH:
            error = _indefinite(target, directions, base)
            return failed(error, mode, value, decrement, n_steps)
    if not decrement <= ENOUGH:
        at = (target.structure, start, mode, gradient, True, n_steps, (before, value))
        return failed(NoModeError(explain_no_mode(*at)), mode, value, decrement, n_steps)
    made = (mode, value, base, directions, root, decrement, n_steps, curvature.n_products)
    return Begun(*parts, *made)


def _indefinite(target: Target, directions: Directions | None, base: Vector) -> MixviError:
    names, at = target.structure.names, int(np.argmin(base))
    value, weight = float(base[at]), np.where(np.arange(len(base)) == at, 1.0, 0.0)
    if directions is not None:
        value, direction = directions.steepest()
        weight = np.abs(direction)
    worst = [
        names[i] for i in np.argsort(-weight, kind="stable")[:5] if weight[i] > 0.1 * weight.max()
    ]
    return IndefiniteHessianError(
        "the log density curves upwards, or not at all, along a direction at the point where its "
        f"gradient vanishes: the smallest eigenvalue of the negative Hessian is about {value:.3g}, "
        f"carried by {listed(worst)}. Give these parameters a tighter prior, or start elsewhere."
    )


# --- the family -------------------------------------------------------------------------------


@stage(FAMILY)
def _fitted(begun: Begun) -> tuple[str, SubspaceState | None, tuple[Event, ...]]:
    options = begun.options
    if options.richest is None:
        return "laplace", None, ()
    space = Subspace(begun.root, begun.directions, options.key, _n_draws(begun))
    whole = "diag" if begun.directions is None else "eig"
    searched = functools.partial(_searched, begun, space)
    if not options.is_auto:
        return options.family_name, searched(options.family_name), ()
    gain = foreseen(SubspaceBound(begun.density, begun.mode, space, PARTS[whole]))
    if gain.is_finite and gain.means + gain.widths < GAIN:
        return "laplace", None, (LaplaceLeaves(max(gain.means + gain.widths, 0.0)),)
    family = "mu" if gain.is_finite and gain.widths < GAIN else whole
    state = searched(family)
    if state.summit.code is Code.NON_FINITE_DRAWS:
        return "laplace", None, ()
    return family, state, (_why(family, gain),) if family != "diag" else ()


def _why(family: str, gain: Foreseen) -> Event:
    return OnlyPart(family, max(gain.widths, 0.0)) if family == "mu" else OnlyPart(family)


def _n_draws(begun: Begun) -> int:
    given = begun.options.draws
    return draws_for(len(begun.mode), begun.options.memory) if given is None else given.n


def _searched(begun: Begun, space: Subspace, family: str) -> SubspaceState:
    bound = SubspaceBound(begun.density, begun.mode, space, PARTS[family])
    return best_in_subspace(bound, begun.options.tol, begun.options.max_steps)


# --- the verdict and the end ------------------------------------------------------------------


@stage(VERDICT)
def _judged(begun: Begun, gaussian: Gaussian) -> tuple[Judged | None, tuple[str, ...]]:
    options = begun.options
    if not options.diagnostics:
        return None, ()
    base = begun.base if begun.directions is None else begun.directions.base
    places = looked_at(gaussian.root, 1 / positive(base))
    at = (begun.density, gaussian.mean, gaussian.root, options.key)
    told = judged_many(*at, DRAWS if options.may_use_fewer else options.diagnostics, places)
    said = told.judged.diagnosis
    is_open = said.moments is None and not said.n_non_finite
    if is_open and options.may_use_fewer and gaussian.dim <= CHEAP:
        told = judged_many(*at, MORE, places)
    names = begun.target.structure.names
    return told.judged, tuple(names[i] for i in places)


def _finished(
    begun: Begun, family: str, state: SubspaceState | None, events: tuple[Event, ...]
) -> Outcome:
    if state is not None and state.summit.code is Code.NON_FINITE_DRAWS:
        error = NonFiniteError(
            "the log density is not finite at draws from the Laplace Gaussian: "
            'family="laplace" does not ask there, or write it for all real parameters.'
        )
        return failed_posterior(begun.target, begun.options, begun.mode, begun.decrement, error)
    mean, root = (begun.mode, begun.root) if state is None else (state.mean, state.root)
    gaussian = Gaussian(mean, root)
    judged, names = _judged(begun, gaussian)
    converged = state is None or state.summit.code is Code.OK
    elbo = None if state is None else state.summit.value
    post = ended_posterior(
        begun.target,
        gaussian,
        Subject(names, family, converged, elbo),
        judged,
        begun.density.log_concave,
        _status(begun, state, events),
        _stats(begun, state),
        mode=begun.mode,
        log_density=begun.log_density,
        log_evidence_laplace=begun.log_evidence,
        decrement=begun.decrement,
    )
    return post, None


def _status(begun: Begun, state: SubspaceState | None, events: tuple[Event, ...]) -> str:
    if begun.choice.event is not None:
        events = (*events, begun.choice.event)
    if begun.directions is not None:
        found = begun.directions
        events = (*events, DirectionsLeaveOut(len(found.rows), len(begun.mode), found.left_out))
    note = "".join(f" {event.sentence}" for event in events)
    if state is None:
        return f"Mode found in {begun.n_steps} Newton steps.{note}"
    ended = {
        Code.BOUND_OUT_OF_STEPS: "Stopped by max_steps, not converged,",
        Code.BOUND_STUCK: "Stuck (no step raises the bound: is the log density smooth?)",
    }.get(state.summit.code, "Converged")
    bound = state.bound
    return (
        f"{ended} after {bound.n_passes} passes over {bound.space.n_draws} draws; about "
        f"{max(state.summit.gain_left, 1e-12):.1g} nat left along {bound.space.size} "
        f"directions.{note}"
    )


def _stats(begun: Begun, state: SubspaceState | None) -> Stats:
    key = begun.options.key
    stats = Stats(
        begun.n_steps, key if isinstance(key, int) else str(key), products=begun.n_products
    )
    if state is None:
        return stats
    bound, found = state.bound, state.summit
    return dataclasses.replace(
        stats,
        draws=bound.space.n_draws,
        draws_kind="matched",
        optimiser="bfgs",
        passes=bound.n_passes,
        gradients=bound.n_passes * bound.space.n_draws,
        gradient=float(np.abs(found.gradient).max(initial=0.0)),
        gain_left=found.gain_left,
    )
