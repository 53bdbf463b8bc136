"""The whole covariance by Stein steps: where they begin, and how far they go."""

import dataclasses
import math
from typing import NamedTuple

from .._approximate._bound import highest_bound, inspect
from .._approximate._climb import Anchor, FamilyState
from .._approximate._families import SCALINGS, FullRank
from .._approximate._laplace import eigen_root
from .._approximate._profile import stein_learning
from .._approximate._search import Stop
from .._approximate._stein import SteinState, stein
from .._arrays._draws import Draws, Matched, Quadrature
from .._arrays._roots import dense
from .._density._protocol import Matrix, Rule
from .._errors import Code
from .._watch import keep
from ._case import NOTHING_FOUND, Case, Fitted, Spec, Vector
from ._enough import (
    DRAW_LOSS,
    ROUGH_GAIN,
    Searching,
    enough_for_root,
    enough_nodes,
    inspected_on_few,
    most_draws,
)
from ._events import Event, NoMode, ReAnchored, StartedElsewhere
from ._posterior import Posterior
from ._starts import Gaussian, starts_elsewhere

# Stein steps on the first, few draws go this many steps; then there are more draws.
ROUGH_STEPS = 100
# Of several starts those that have fallen behind are dropped, after one pass and after a few steps;
# and how many may go on.
FEW_STEPS, MOST_LEFT = 15, 4


def whole(case: Case, first: Spec, poor: bool, warm: Posterior | None = None) -> Fitted:
    """From Laplace's Gaussian; where that is `poor`, or there is none, also from elsewhere."""
    if case.learns:
        return _whole_with_hyper(case, first)
    if warm is not None and (kept := _kept(case, first, warm)) is not None:
        return polished(case, kept, first, (), _as_many(case, first, warm))
    state, events = rough_fit(case, first, poor, warm)
    return polished(case, state, first, events, first)


def whole_from(case: Case, poorer: FamilyState, spec: Spec) -> Fitted:
    """From the Gaussian (and the hyperparameters) of a poorer family."""
    at, rule = (case.density, poorer.mean, dense(poorer.root)), case.problem.rule(spec)
    stop = _rough(case.options.max_steps)
    if case.learns:
        state = stein_learning(*at, rule, stop, poorer.learnt)
    else:
        state = stein(*at, rule, stop)
    return polished(case, state, spec, (), spec)


def _whole_with_hyper(case: Case, first: Spec) -> Fitted:
    """From Laplace's Gaussian and hyperparameters."""
    centre, root, rule = case.anchor.centre, dense(case.anchor.root), case.problem.rule(first)
    stop = _rough(case.options.max_steps)
    state = stein_learning(case.density, centre, root, rule, stop, case.learnt)
    return polished(case, state, first, (), first)


def polished(
    case: Case, state: SteinState, first: Spec, events: tuple[Event, ...], spec: Spec
) -> Fitted:
    """On as many draws as are needed, `spec` or more, to the tolerance asked for; what they cost is
    told by the `first`, few ones."""
    searching, inspection = Searching(case, FullRank(), state), None
    if isinstance(first, Draws) and isinstance(spec, Draws) and case.options.draws is None:
        searching, spec = enough_for_root(searching, first, spec)
    else:
        if isinstance(begun := spec, Quadrature) and not searching.found_nothing:
            searching, spec, _ = enough_nodes(searching, spec)
        if spec == begun and not searching.found_nothing:  # otherwise it has been there
            searching = searching.on(spec, case.stop)
    if searching.found_nothing:
        return Fitted("full", searching.state, spec, events=events)
    if isinstance(spec, Quadrature):
        # Of the end, too: the first look was at a rough one.
        searching, spec, said = enough_nodes(searching, spec)
        events += said
    if isinstance(first, Draws) and isinstance(spec, Draws):
        inspection = inspected_on_few(searching, first, spec)
    return Fitted("full", searching.state, spec, inspection=inspection, events=events)


# --- where the steps begin --------------------------------------------------------------------


def rough_fit(
    case: Case, first: Spec, poor: bool, warm: Posterior | None = None
) -> tuple[SteinState, tuple[Event, ...]]:
    """Stein steps on few draws, from Laplace's Gaussian and from an earlier one; where Laplace's is
    poor or there is none, from elsewhere too. Those that fall behind are dropped; the best end is
    taken."""
    found, rule = case.found.found, case.problem.rule(first)
    near: list[Gaussian] = []
    if found and case.density.has_best_gaussian:
        near.append((case.found.mode, case.found.root))
    elif found:
        centre, root = case.anchor.centre, case.anchor.root
        if poor:
            # Laplace's is far too wide for a Cauchy posterior, or one with scales at a boundary.
            scaled = [(centre, factor * root) for factor in SCALINGS]
            _, (_, root) = highest_bound(case.density, scaled, rule)
        near.append((centre, dense(root)))
    if warm is not None:
        near.append((warm.flat_mean, dense(warm.root)))
    far: list[Gaussian] = []
    if (poor and case.options.anchor != "mode") or not near:
        far = starts_elsewhere(case, rule)
    best, is_far = _best_end(case, near, far, rule)
    if not found:
        return best, (NoMode(case.found.code),)
    return best, (StartedElsewhere(),) if is_far else ()


def _best_end(
    case: Case, near: list[Gaussian], far: list[Gaussian], rule: Rule
) -> tuple[SteinState, bool]:
    """And whether it comes from a start that is `far` from the mode, and is clearly better."""
    most = min(ROUGH_STEPS, case.options.max_steps)
    tried = [_Tried(stein(case.density, *start, rule, _rough(1)), False) for start in near]
    tried += [_Tried(stein(case.density, *start, rule, _rough(1)), True) for start in far]
    for n_steps in (min(FEW_STEPS, most), most) if len(tried) > 1 else (most,):
        tried = [
            one._replace(state=_further(case, one.state, rule, n_steps)) for one in _leading(tried)
        ]
    best = max(tried, key=lambda one: one.elbo)
    others = max((one.elbo for one in tried if not one.is_far), default=-math.inf)
    return best.state, best.is_far and best.elbo > others + 1


class _Tried(NamedTuple):
    state: SteinState
    is_far: bool

    @property
    def elbo(self) -> float:
        return finite_elbo(self.state)


def _leading(tried: list[_Tried]) -> list[_Tried]:
    """The best few that, with what they still promise, may come to lead."""
    best = max(one.elbo for one in tried)
    ranked = sorted(tried, key=lambda one: -one.elbo)
    going = [one for one in ranked if one.elbo + max(one.state.gain_left, 0.0) >= best]
    return (going if math.isfinite(best) else ranked)[:MOST_LEFT]


def _further(case: Case, state: SteinState, rule: Rule, n_steps: int) -> SteinState:
    if state.code is not Code.BOUND_OUT_OF_STEPS:
        return state
    return stein(case.density, state.mean, state.root, rule, _rough(n_steps), state.past)


def _rough(max_steps: int) -> Stop:
    return Stop(gain=ROUGH_GAIN, max_steps=max_steps, last_step=False)


def _stepped(case: Case, mean: Vector, root: Matrix, spec: Spec, max_steps: int) -> SteinState:
    return stein(case.density, mean, dense(root), case.problem.rule(spec), _rough(max_steps))


def finite_elbo(state: SteinState) -> float:
    sound = math.isfinite(state.elbo) and state.code not in NOTHING_FOUND
    return state.elbo if sound else -math.inf


# --- warm starts ------------------------------------------------------------------------------


def _kept(case: Case, first: Spec, warm: Posterior) -> SteinState | None:
    """An earlier Gaussian, where it is as good here as these draws can tell."""
    mean, root = warm.flat_mean, dense(warm.root)
    inspection = inspect(case.density, mean, root, case.problem.rule(first))
    if not inspection.gain <= inspection.draw_loss + DRAW_LOSS:
        return None
    return _stepped(case, mean, root, first, 1)


def _as_many(case: Case, first: Spec, warm: Posterior) -> Spec:
    """The draws of an earlier fit: what was enough there is a good guess."""
    n = warm.stats.draws or 0
    if case.options.draws is None and isinstance(first, Matched):
        while 2 * first.n <= min(n, most_draws(case)):
            first = Matched(2 * first.n)
    return first


# --- another anchor ---------------------------------------------------------------------------


def re_anchored(case: Case, first: Spec) -> Case:
    """The case with the Gaussian of a few Stein steps in the place of Laplace's."""
    options, dim, spec = case.options, case.problem.dim, first
    if isinstance(first, Draws) and first.refusal(dim, updates_root=True) is not None:
        spec = Matched(max(256, 4 * dim))
    if isinstance(spec, Draws) and 8 * spec.n * dim > options.memory // 4:
        return case
    state, events = rough_fit(case, spec, poor=True)
    if not math.isfinite(finite_elbo(state)):
        return case
    anchor = Anchor(state.mean, eigen_root(state.root), state.elbo)
    case = dataclasses.replace(case, other_anchor=anchor, events=(*events, ReAnchored()))
    keep(case)  # what Stein steps came to is not of the family asked for
    return case
