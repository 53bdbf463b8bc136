"""How many draws or nodes are enough, and more steps on them. Decided here and nowhere else."""

import dataclasses
import math
from typing import TypeGuard, TypeVar

import numpy as np

from .._approximate._bound import Inspection, inspect, lost_to_rule
from .._approximate._climb import FamilyState, climb, resume
from .._approximate._families import Family
from .._approximate._levels import stein_on_many
from .._approximate._profile import stein_learning
from .._approximate._search import Stop
from .._approximate._stein import SteinState, stein
from .._arrays._draws import OTHER_NODES, Draws, Quadrature
from .._density._protocol import Points, Rule
from .._errors import Code
from .._judge._fresh import Judged, judged, wants_more_draws
from .._watch import DRAWS, stage
from ._case import NOTHING_FOUND, Case, Spec
from ._events import BackToDraws, Event, QuadratureCosts, QuadratureOff

MOST_DOUBLINGS = 4
# Nats that the choice of draws or nodes may cost.
DRAW_LOSS = 0.005
# Hyperparameters that are learnt are one point of many: what that neglects is far more.
DRAW_LOSS_LEARNING = 0.05
MOST_DRAWS = 2**15
# Draws grow by at most this factor at a time.
STAGE, NODES_STAGE = 8, 4
# Of quadrature with one predictor: the largest error for one observation, and the most nodes.
NODES_TOL, MOST_NODES = 1e-5, 1024
# Of quadrature over several predictors: the most nodes, and how what they cost falls with them.
MOST_POINTS, MOST_POINTS_LEARNING, POINTS_RATE = 2**12, 2**10, 1.5
# Steps on few draws go this far, in nats; then there are more draws.
ROUGH_GAIN = 0.01
# Of what the draws cost: not worth another pass over them.
SMALL_PART = 0.2


@dataclasses.dataclass(frozen=True)
class Searching:
    """A search that can go on over other draws or nodes, from where it is."""

    case: Case
    family: Family
    state: FamilyState | SteinState

    @stage(DRAWS)
    def on(self, spec: Spec, stop: Stop, few: Draws | None = None) -> "Searching":
        """`few`: draws that may stand for those of `spec`, which are many, in Stein steps."""
        case, state, rule = self.case, self.state, self.case.problem.rule(spec)
        may_use_few = few is not None and stop.tol is None and not case.learns
        coarse = case.problem.rule(few) if few is not None and may_use_few else None
        if isinstance(state, SteinState) and _paired(coarse) and _paired(rule):
            state = stein_on_many(case.density, state, coarse, rule, stop)
        elif isinstance(state, SteinState):
            at = (case.density, state.mean, state.root, rule, stop)
            if case.learns:
                state = stein_learning(*at, state.learnt, state.past)
            else:
                state = stein(*at, state.past)
        else:
            around = (case.density, case.anchor, self.family, rule, state.params)
            state = resume(*around, stop, case.options.optimiser, state.learnt.tilt)
        return dataclasses.replace(self, state=state)

    def afresh(self, spec: Spec) -> "Searching":
        """Stein steps know no other start than where they are."""
        case = self.case
        if isinstance(self.state, SteinState):
            return self.on(spec, case.stop)
        rule, optimiser = case.problem.rule(spec), case.options.optimiser
        tilt = case.tilt(self.family.root(case.anchor.root), rule)
        state = climb(case.density, case.anchor, self.family, rule, case.stop, optimiser, tilt)
        return dataclasses.replace(self, state=state)

    @property
    def found_nothing(self) -> bool:
        return self.state.code in NOTHING_FOUND


def _paired(rule: Rule | None) -> TypeGuard[Points]:
    return isinstance(rule, Points) and rule.paired


def settled(case: Case) -> Stop:
    """Over draws that cost nats themselves another pass must gain more than a part of these."""
    return dataclasses.replace(case.stop, gain=max(case.stop.gain, SMALL_PART * DRAW_LOSS))


def rough(case: Case) -> Stop:
    return Stop(gain=ROUGH_GAIN, max_steps=case.options.max_steps, last_step=False)


def enough_for_root(searching: Searching, first: Draws, spec: Draws) -> tuple[Searching, Draws]:
    """Fitted on as many draws as keep their own cost low. A Gaussian fitted to few draws tells less
    of that cost than there is, and is not near the end: more draws come in stages."""
    case, tried, most = searching.case, [first], most_draws(searching.case)
    most_loss = _most_loss(case)
    # What was enough for an earlier fit is not given up for a little.
    slack = 1.0 if spec.n == first.n else 3.0
    is_settled = False
    while not searching.found_nothing:
        loss, more = inspected_on_few(searching, first, spec).draw_loss, spec
        if loss >= slack * most_loss:
            more = more_draws(spec, loss, most_loss, min(most, STAGE * spec.n))
        if more.n == spec.n and is_settled:
            break
        is_last = more.n == spec.n or 2 * more.n > most or loss * spec.n <= most_loss * more.n
        again = searching.on(more, *_how(case, tried, more, is_last))
        if again.state.code is Code.NON_FINITE_DRAWS and more.n > spec.n:
            # More draws reach further, to where there is no density: stay with these.
            again, more, is_last = searching.on(spec, *_how(case, tried, spec, True)), spec, True
            most = spec.n
        if more.n > spec.n:
            slack = max(slack, 1.2)
            tried.append(more)
        searching, spec, is_settled = again, more, is_last
    return searching, spec


def _how(case: Case, tried: list[Draws], spec: Draws, is_last: bool) -> tuple[Stop, Draws | None]:
    """How far steps over the draws of `spec` go, and the few that may stand for them."""
    if spec.n == tried[0].n:
        return case.stop, None
    return settled(case) if is_last else rough(case), _coarse(tried, spec)


def _coarse(tried: list[Draws], many: Draws) -> Draws:
    """The most draws that are few beside the many."""
    few = [one for one in tried if 4 * one.n <= many.n]
    return max(few, default=tried[0], key=lambda one: one.n)


def inspected_on_few(searching: Searching, few: Draws, many: Draws) -> Inspection:
    """What the `few` first draws show, for the `many` that the fit was made on: gains are the
    search's own, and noise falls with the number of draws."""
    state, density = searching.state, searching.state.density
    at = state.evaluated_at if isinstance(state, SteinState) else (state.mean, state.root)
    inspection = inspect(density, *at, searching.case.problem.rule(few))
    share = few.n / many.n
    return dataclasses.replace(
        inspection,
        gain_mean=state.gain_left,
        gain_widths=0.0,
        gain_root=0.0,
        draw_loss=inspection.draw_loss * share,
        mean_se=inspection.mean_se * math.sqrt(share),
    )


def enough_draws(searching: Searching, spec: Draws) -> tuple[Searching, Draws, Judged | None]:
    """For a family: doubles the draws while they do not stand for fresh ones."""
    case, options = searching.case, searching.case.options
    for _ in range(MOST_DOUBLINGS):
        state = searching.state
        if state.code is not Code.OK:
            break
        fresh = judged(state.density, state.mean, state.root, options.key, options.n_fresh)
        affordable = 16 * spec.n * case.problem.dim <= options.memory // 4
        if not (affordable and wants_more_draws(state.elbo, spec.n, fresh)):
            return searching, spec, fresh
        more = spec.doubled()
        again = searching.on(more, case.stop)
        if again.state.code is Code.NON_FINITE_DRAWS:
            return searching, spec, fresh
        searching, spec = again, more
    return searching, spec, None


def enough_nodes(
    searching: Searching, spec: Quadrature
) -> tuple[Searching, Spec, tuple[Event, ...]]:
    """As many nodes as the integrals need where the fit ended, and an event where there are too
    few."""
    if searching.case.problem.target.n_predictors > 1:
        return _enough_for_several(searching, spec)
    options = searching.case.options

    def error(spec: Quadrature) -> float:
        state, density = searching.state, searching.state.density
        coarse, fine = (
            density.expected_by_row(state.mean, state.root, one.make(np.dtype(np.float64)))
            for one in (spec, spec.doubled())
        )
        return float(np.abs(coarse - fine).max(initial=0.0))

    def next_that_suffices(spec: Quadrature) -> Quadrature | None:
        while spec.n < MOST_NODES:
            spec = spec.doubled()
            if error(spec) <= NODES_TOL:
                return spec
        return None

    while not searching.found_nothing and not (now := error(spec)) <= NODES_TOL:
        if options.draws is not None:
            return searching, spec, (QuadratureOff(now),)
        enough = next_that_suffices(spec)
        if enough is None:
            draws = options.draws_for(searching.case.problem.dim)
            return searching.afresh(draws), draws, (BackToDraws(MOST_NODES, now),)
        searching, spec = searching.on(enough, searching.case.stop), enough
    return searching, spec, ()


def _enough_for_several(
    searching: Searching, spec: Quadrature
) -> tuple[Searching, Spec, tuple[Event, ...]]:
    """The same for several predictors, whose nodes have no exact rule: what their choice costs is
    told by other nodes."""
    case, most_loss, slack = searching.case, _most_loss(searching.case), 1
    while not searching.found_nothing:
        state, n_predictors = searching.state, case.problem.target.n_predictors
        others = spec.make(np.dtype(np.float64), n_predictors, OTHER_NODES)
        rule = case.problem.rule(spec)
        loss = lost_to_rule(state.density, state.mean, state.root, rule, others)
        if loss <= slack * most_loss:
            break
        most = MOST_POINTS_LEARNING if case.learns else MOST_POINTS
        more = more_draws(spec, loss, most_loss, most, POINTS_RATE)
        costs = (QuadratureCosts(spec.n, loss),)
        if case.options.draws is not None or more.n == spec.n:
            return searching, spec, costs
        again = _on_more_nodes(searching, spec, more)
        if again.state.code is Code.NON_FINITE_DRAWS:
            # More nodes reach further, to where there is no density: stay with these.
            return searching, spec, costs
        searching, spec, slack = again, more, 2
    return searching, spec, ()


def _on_more_nodes(searching: Searching, spec: Quadrature, more: Quadrature) -> Searching:
    """By way of some, where there are many more: these cost little, and most steps."""
    case, n = searching.case, spec.n * NODES_STAGE
    while n < more.n and not (case.learns or searching.found_nothing):
        searching, n = searching.on(Quadrature(n), rough(case)), n * NODES_STAGE
    return searching.on(more, case.stop)


D = TypeVar("D", Draws, Quadrature)


def more_draws(spec: D, loss: float, tol: float, most: int, rate: float = 1.0) -> D:
    """What they cost falls as a power of their number: doubled until it is below `tol`."""
    while loss > tol and 2 * spec.n <= most:
        spec, loss = spec.doubled(), loss / 2**rate
    return spec


def _most_loss(case: Case) -> float:
    return DRAW_LOSS_LEARNING if case.learns else DRAW_LOSS


def most_draws(case: Case) -> int:
    return max(2, min(MOST_DRAWS, case.options.memory // 4 // (8 * case.problem.dim)))
