"""Family "auto": rungs of a ladder, each dearer than the last, and one rule.

    laplace   nothing changes            mu     means move
    eig       means and widths change    full   the whole covariance changes

A few fresh draws tell whether Laplace's Gaussian is as good as the posterior itself. If not, one
pass over the fixed draws tells what each rung would gain; the first that leaves less than `GAIN`
nats is taken. What it really leaves is seen at its end, and where that is more, the whole
covariance goes on from there. On draws of the user's own, which may be too few, fresh draws decide
between the rungs instead.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from .._approximate._bound import Inspection, inspect
from .._approximate._climb import FamilyState
from .._approximate._families import EigenScale, Family, FullRank, MeanOnly
from .._arrays._draws import Quadrature
from .._errors import Code
from .._judge._fresh import distance, first_look, fresh_elbo, judged
from ._around import refined, searched
from ._case import Case, Fitted, Spec
from ._events import LaplaceLeaves, OnlyLaplace, OnlyPart, WholeChanges
from ._posterior import Posterior
from ._whole import re_anchored, whole, whole_from

# Nats: what is not worth another rung.
GAIN = 0.002


def climbing(case: Case, first: Spec, warm: Posterior | None) -> Fitted:
    """Laplace, or the poorest family that leaves nothing to gain."""
    richest, options = case.options.richest, case.options
    at_mode = case.found.mode, case.found.root
    fresh = first_look(case.density, *at_mode, options.key, options.n_fresh)
    if distance(fresh) < 0.5 * GAIN and case.found.n_repaired == 0 and case.is_settled:
        fresh = judged(case.density, *at_mode, options.key, options.n_fresh, fresh)
        if (away := distance(fresh)) < 0.5 * GAIN:
            # No Gaussian can gain more than what parts this one from the posterior where it has
            # mass.
            return Fitted("laplace", judged=fresh, choice=LaplaceLeaves(away))
    if _finds_best(case, first):
        # What the density itself knows of the best Gaussian costs less than a look at this one.
        poor = not case.density.log_concave and is_poor(case, fresh.diagnosis.elbo.value)
        choice = WholeChanges(at_once=True)
        return dataclasses.replace(whole(case, first, poor, warm), choice=choice)
    anchor = case.anchor
    inspection = inspect(case.density, anchor.centre, anchor.root, case.problem.rule(first))
    poor = is_poor(case, inspection.elbo)
    rung: Family | None = FullRank() if poor else cheapest(inspection, GAIN)
    if case.learns and not (poor or (rung is None and case.is_settled)):
        rung = EigenScale()  # what hyperparameters gain is not foreseen
    if isinstance(rung, FullRank) and not isinstance(richest, FullRank):
        rung = richest  # no memory for more draws than dimensions
    if rung is None:
        return Fitted("laplace", choice=LaplaceLeaves(inspection.gain))
    if case.problem.draws_given and not case.learns:
        return _by_fresh_draws(case, first, poor, rung, warm)
    if isinstance(rung, FullRank):
        choice = WholeChanges(None if poor else inspection.gain, at_once=True)
        return dataclasses.replace(_whole(case, first, poor, warm), choice=choice)
    return _checked(case, rung, first, warm)


def _finds_best(case: Case, first: Spec) -> bool:
    may = isinstance(case.options.richest, FullRank) and case.options.by_stein and not case.learns
    return may and case.density.has_best_gaussian and isinstance(first, Quadrature)


def cheapest(inspection: Inspection, tol: float) -> Family | None:
    """The poorest family that leaves less than `tol` nats to gain; None for Laplace itself."""
    if inspection.gain < tol:
        return None
    if inspection.gain_root < tol:
        return MeanOnly()
    if inspection.gain_root - inspection.gain_widths < tol:
        return EigenScale()
    return FullRank()


def is_poor(case: Case, elbo: float) -> bool:
    """Laplace's Gaussian, with this bound, falls far short of its own evidence, or stands on a
    mended Hessian."""
    short = case.found.log_evidence - elbo
    return bool(far_short(short, case.problem.dim)) or case.found.n_repaired > 0


def far_short(nats: Any, dim: int) -> Any:
    """Of one evidence or of many; true of what is not a number."""
    return ~np.less(nats, max(1.0, 0.1 * dim))


def _whole(case: Case, first: Spec, poor: bool, warm: Posterior | None) -> Fitted:
    if case.options.by_stein:
        return whole(case, first, poor, warm)
    return refined(case, FullRank(), first, searched(case, FullRank(), first, warm))


def _checked(case: Case, rung: Family, first: Spec, warm: Posterior | None) -> Fitted:
    """Fits `rung`, and goes on to the whole covariance where that turns out to pay."""
    state, options = searched(case, rung, first, warm, poorer_first=False), case.options
    may_go_on = isinstance(options.richest, FullRank)
    if may_go_on and options.by_stein and state.code is Code.OK:
        # The first draws or nodes already tell: a gain that is theirs alone costs time, nothing
        # else.
        left = inspect(state.density, state.mean, state.root, case.problem.rule(first)).gain
        if left >= GAIN:
            whole_root = whole_from(case, state, first)
            return dataclasses.replace(whole_root, choice=WholeChanges(left))
    fitted = refined(case, rung, first, state)
    assert fitted.spec is not None
    if not fitted.converged:
        if not options.by_stein or case.learns:
            return dataclasses.replace(fitted, choice=OnlyPart(rung.name))
        # Stein steps tell a bound that has no maximum from one that is hard to climb.
        choice = WholeChanges(at_once=True)
        return dataclasses.replace(whole(case, first, poor=False), choice=choice)
    state = fitted.state
    assert isinstance(state, FamilyState)
    rule = case.problem.rule(fitted.spec)
    inspection = inspect(state.density, state.mean, state.root, rule)
    left = inspection.gain
    if left < GAIN or not may_go_on:
        choice = OnlyPart(rung.name, left)
        return dataclasses.replace(fitted, inspection=inspection, choice=choice)
    if options.by_stein:
        whole_root = whole_from(case, state, fitted.spec)
    else:
        whole_root = _whole(case, fitted.spec, False, None)
    return dataclasses.replace(whole_root, choice=WholeChanges(left))


def _by_fresh_draws(
    case: Case, first: Spec, poor: bool, rung: Family, warm: Posterior | None
) -> Fitted:
    """Laplace, widths and the whole root on the draws given: the best on fresh ones. What they say
    of the gain may be their own noise."""
    laplace = Fitted("laplace", choice=OnlyLaplace())
    start = re_anchored(case, first) if poor else case
    if isinstance(rung, FullRank):
        full = _whole(case, first, poor, warm)
        full = dataclasses.replace(full, choice=WholeChanges(at_once=True))
        if full.found_nothing:
            return full
        rung, rungs = EigenScale(), [full]
        if full.inspection is not None and full.inspection.draw_loss <= GAIN:
            return _best_on_fresh_draws(case, [*rungs, laplace])
    else:
        rungs = []
    state = searched(start, rung, first, warm)
    poorer = refined(start, rung, first, state)
    if poorer.found_nothing and not rungs:
        return dataclasses.replace(poorer, choice=OnlyPart(rung.name))
    if not poorer.found_nothing:
        inspection = inspect(case.density, state.mean, state.root, case.problem.rule(first))
        left, more = inspection.gain, isinstance(case.options.richest, FullRank)
        choice = OnlyPart(rung.name, left, too_few_draws=bool(rungs) or left >= GAIN)
        poorer = dataclasses.replace(poorer, inspection=inspection, choice=choice)
        if not rungs and left >= GAIN and more and poorer.converged:
            stein = case.options.by_stein
            full = whole_from(case, state, first) if stein else _whole(case, first, False, None)
            rungs = [dataclasses.replace(full, choice=WholeChanges(left))]
        rungs.append(poorer)
    return _best_on_fresh_draws(case, [*rungs, laplace])


def _best_on_fresh_draws(case: Case, tried: list[Fitted]) -> Fitted:
    options = case.options

    def bound(fitted: Fitted) -> float:
        if fitted.found_nothing:
            return -math.inf
        return fresh_elbo(case.density, *fitted.gaussian(case.found), options.key, options.n_fresh)

    return max(tried, key=bound)
