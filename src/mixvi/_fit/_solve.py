"""One problem, from its start to a Posterior.

a mode ........ Laplace, then the family around it
a poor start .. Stein steps find a Gaussian first, and the family adapts around that
family "mixture"  the best Gaussian of "auto", and components while they pay
no mode ....... the same, from the user's start
family "auto" . Laplace, and on only while there is something to gain
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from .._approximate._evidence import Tuned, tuned_laplace
from .._approximate._families import FullRank
from .._approximate._laplace import Laplace, laplace
from .._approximate._mixture import MixtureState
from .._arrays._draws import Draws
from .._errors import Code
from .._judge._diagnosis import Elsewhere
from .._judge._elsewhere import Setting, searched_elsewhere
from .._judge._fresh import first_look, fresh_elbo, judged
from .._judge._mixture import with_moments, with_moments_of_mixture
from .._judge._modes import Mode
from .._judge._profile import profiled, profiled_mixture
from .._judge._verdict import REJECT, is_sure, judge
from .._law._gaussian import Gaussian
from .._law._mixture import GaussianMixture
from .._watch import FAMILY, MODE, VERDICT, keep, stage
from ._around import around
from ._auto import climbing, is_poor
from ._case import Case, Fitted, Problem
from ._events import HigherModeFound
from ._mixed import mixed
from ._outcome import Outcome, failure, finish, subject_of
from ._posterior import Posterior
from ._whole import re_anchored, whole

# A mode that probes find counts as higher where its evidence is, by so many nats.
HIGHER = 1.0
MOST_MOVES = 2


def solved(problem: Problem, warm: Posterior | None = None, seen: Sequence[Mode] = ()) -> Outcome:
    """Never raises for what the data did. Where a higher mode is found, on from there. `seen`:
    modes that other searches have found."""
    case, fitted, elsewhere, modes = _fitted(problem, warm, seen)
    for _ in range(MOST_MOVES):
        if fitted is None or fitted.found_nothing or not modes or case.tuned is not None:
            break
        best, now = max(modes, key=lambda mode: mode.log_mass), _bound(case, fitted)
        if not best.log_mass > now + HIGHER:
            break
        there, moved, its_elsewhere, its_modes = _fitted(
            dataclasses.replace(problem, start=best.place), None, seen
        )
        if moved is None or not _bound(there, moved) > now:
            break
        events = (*moved.events, HigherModeFound())
        case, fitted = there, dataclasses.replace(moved, events=events)
        elsewhere, modes = its_elsewhere, its_modes
    if fitted is None:
        return failure(case)
    one = fitted
    if problem.options.mixture is not None and not fitted.found_nothing:
        fitted, elsewhere = mixed(case, fitted, elsewhere, [*modes, *seen], warm)
    return finish(case, _with_moments(case, fitted, elsewhere, one), elsewhere)


Solution = tuple[Case, Fitted | None, Elsewhere, list[Mode]]


def _fitted(problem: Problem, warm: Posterior | None, seen: Sequence[Mode]) -> Solution:
    case = mode_of(problem)
    found, problem = case.found, case.problem
    keep(case)
    fitted = with_mode(case, warm) if found.found else _without_mode(case)
    if fitted is None or fitted.found_nothing:
        return case, fitted, Elsewhere(), []
    keep(case, fitted)
    # Without a verdict probes are for searches that Newton's own steps did not carry: these may
    # have ended in a lesser mode.
    if not problem.options.diagnostics and (found.n_damped == 0 or problem.options.richest is None):
        return case, fitted, Elsewhere(), []
    return _diagnosed(case, fitted, seen)


@stage(MODE)
def mode_of(problem: Problem) -> Case:
    """Laplace, at the hyperparameters with the highest evidence where there are any."""
    options, target = problem.options, problem.target
    if target.hyper_structure is None:
        return Case(problem, laplace(problem.density, problem.start, options.on_indefinite))
    theta = np.asarray(target.theta, dtype=np.float64)
    found, tuned = tuned_laplace(
        problem.density, problem.start, theta, options.on_indefinite, options.hyper_steps
    )
    return tuned_case(problem, found, tuned)


def tuned_case(problem: Problem, found: Laplace, tuned: Tuned) -> Case:
    theta = tuned.theta
    bound = dict(density=problem.density.at(theta), target=problem.target.at(theta))
    return Case(dataclasses.replace(problem, **bound), found, tuned)


def _with_moments(case: Case, fitted: Fitted, elsewhere: Elsewhere, one: Fitted) -> Fitted:
    """From as many draws as a steady word takes. `one`: the Gaussian that a mixture came from."""
    fresh, options = fitted.judged, case.options
    if fresh is None or not options.diagnostics or fresh.diagnosis.n_non_finite:
        return fitted
    subject = subject_of(case, fitted)
    most = None if options.may_use_fewer else options.diagnostics
    if isinstance(fitted.state, MixtureState):
        law = fitted.state.at.law
        assert isinstance(law, GaussianMixture)
        around = (fitted.density(case), law, options.key, fresh, most)
        with stage(VERDICT):
            told = with_moments_of_mixture(*around, lambda said: is_sure(said, subject, elsewhere))
            if judge(subject, told.diagnosis, elsewhere).level != REJECT:
                its, more = one.gaussian(case.found), (options.key, options.n_fresh, one.judged)
                draws = functools.partial(judged, around[0], *its, *more, all_of_them=True)
                told = profiled_mixture(around[0], law, told, Gaussian(*its), draws)
        return dataclasses.replace(fitted, judged=told)
    with stage(VERDICT):
        told = with_moments(
            fitted.density(case),
            *fitted.gaussian(case.found),
            options.key,
            fresh,
            most,
            lambda said: is_sure(said, subject, elsewhere),
        )
        if judge(subject, told.diagnosis, elsewhere).level != REJECT:
            told = profiled(fitted.density(case), *fitted.gaussian(case.found), told)
    return dataclasses.replace(fitted, judged=told)


def _bound(case: Case, fitted: Fitted) -> float:
    """On fresh draws."""
    if fitted.found_nothing or fitted.judged is None:
        return -math.inf
    return fitted.judged.diagnosis.elbo.value


@stage(FAMILY)
def with_mode(case: Case, warm: Posterior | None) -> Fitted:
    options, family, first = case.options, case.options.richest, case.problem.fixed
    if family is None or first is None:
        return Fitted("laplace")
    if options.is_auto and options.anchor != "average":
        return climbing(case, first, warm)
    poor = options.anchor == "average"
    if options.anchor == "auto":
        poor = _is_poor(case)
    if options.by_stein:
        return whole(case, first, poor, warm)
    return around(re_anchored(case, first) if poor else case, family, first, warm)


def _is_poor(case: Case) -> bool:
    """As a few fresh draws tell or, where these are not sure, as many."""
    options, at_mode = case.options, (case.found.mode, case.found.root)
    elbo = first_look(case.density, *at_mode, options.key, options.n_fresh).diagnosis.elbo
    low, high = (is_poor(case, elbo.value + sign * 4 * elbo.se) for sign in (-1, 1))
    if low == high:
        return low
    return is_poor(case, fresh_elbo(case.density, *at_mode, options.key, options.n_fresh))


@stage(FAMILY)
def _without_mode(case: Case) -> Fitted | None:
    """From the user's start, by Stein steps; None where these find nothing either."""
    options, family, first = case.options, case.options.richest, case.problem.fixed
    hopeless = case.found.code is Code.NON_FINITE_START or options.anchor == "mode"
    if family is None or first is None or hopeless or case.learns:
        return None
    if isinstance(family, FullRank):
        fitted = whole(case, first, poor=True)
    else:
        anchored = re_anchored(case, first)
        if anchored.other_anchor is None:
            return None
        fitted = around(anchored, family, first, None)
    # Without a mode, steps that do not end are those of an improper posterior, too.
    return fitted if fitted.converged else None


@stage(VERDICT)
def _diagnosed(case: Case, fitted: Fitted, seen: Sequence[Mode]) -> Solution:
    density, key, n = fitted.density(case), case.options.key, case.options.n_fresh
    mean, root = fitted.gaussian(case.found)
    exactly = not case.options.may_use_fewer
    fresh = judged(density, mean, root, key, n, fitted.judged, all_of_them=exactly)
    fitted = dataclasses.replace(fitted, judged=fresh)
    if fresh.diagnosis.n_non_finite:
        return case, fitted, Elsewhere(), []
    # The mode is that of the hyperparameters of Laplace's evidence; a family has others.
    found = None if case.learns and fitted.state is not None else case.found
    if density.log_concave:  # it has one mode: no other is looked for
        mode = laplace(density, mean) if found is None else found
        return case, fitted, Elsewhere(log_density=mode.log_density, point=mode.mode), []
    target = case.problem.target
    compiled = isinstance(case.problem.fixed, Draws)
    setting = Setting(target.structure, target.constraints, case.problem.start, compiled)
    by_stein = fitted.name == "full"
    elsewhere, modes = searched_elsewhere(
        density, found, mean, root, fresh, setting, key, around_mean=by_stein, seen=seen
    )
    return case, fitted, elsewhere, modes
