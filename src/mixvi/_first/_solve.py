"""One problem from its start to a Posterior: a flow that awaits the compiled cores.

a mode ........ Laplace, then the family around it
a poor start .. Stein steps find a Gaussian first, and the family adapts around that
no mode ....... the same, from the user's start
family "auto" . Laplace, and on only while there is something to gain
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._diagnostics import Elsewhere
from .._draws import Draws, Matched, Quadrature
from .._errors import Code
from .._posterior import Judged, Posterior
from .._target import Target
from . import _engine, _judge
from ._engine import Adapted
from ._enough import (
    ROUGH_TOL,
    enough_draws,
    enough_nodes,
    more_steps,
    most_draws,
    on_enough_draws,
    shown_of_draws,
)
from ._evidence import Tuned
from ._examine import diagnosed, fresh_elbo, inspected, is_poor, judge_one, over_rule
from ._families import EigenScale, Family, FullRank, MeanOnly
from ._laplace import Laplace, LaplaceNumbers
from ._options import FirstOptions
from ._outcome import NOTHING_FOUND, Case, Fitted, Outcome, Rule, failure, finish

# Nats: what is not worth another rung.
GAIN = 0.005
# Stein steps on the first, few draws go this many steps; then there are more draws.
ROUGH_STEPS = 100


async def solved(
    target: Target,
    start: np.ndarray,
    options: FirstOptions,
    fixed: Rule | None,
    warm: Posterior | None = None,
) -> Outcome:
    """One problem, from start to verdict. Never raises for what the data did."""
    found, tuned, numbers = await mode_of(target, start, options)
    case = Case(target.at(tuned.theta), start, options, found, tuned, numbers)
    if numbers.code is Code.OK:
        fitted = await _with_mode(case, fixed, warm)
    else:
        fitted = await _without_mode(case, fixed)
    if fitted is None:
        return failure(case)
    elsewhere = Elsewhere()
    if options.diagnostics:
        fitted, elsewhere = await diagnosed(case, fitted)
    return finish(case, fitted, elsewhere)


async def mode_of(
    target: Target, start: np.ndarray, options: FirstOptions
) -> tuple[Laplace, Tuned, LaplaceNumbers]:
    """Where many are searched at once both sides of every branch run, so rescue operations are
    left to a second try."""
    ask = _engine.LAPLACE(target, start, patient=not options.hasty, **options.mode_search)
    found, tuned, numbers = await ask
    numbers = LaplaceNumbers.fetched(numbers)
    if options.hasty and numbers.code is not Code.OK:
        patient = ask.shared | {"patient": True}
        found, tuned, numbers = await dataclasses.replace(ask, shared=patient, alone=True)
        numbers = LaplaceNumbers.fetched(numbers)
    return found, tuned, numbers


async def _with_mode(case: Case, fixed: Rule | None, warm: Posterior | None) -> Fitted:
    options, family = case.options, case.options.richest
    if family is None or fixed is None:
        return Fitted("laplace")
    if options.is_auto and options.anchor != "average":
        return await _climbing(case, fixed, warm)
    poor = options.anchor == "average"
    if options.anchor == "auto":
        poor = is_poor(case, await fresh_elbo(case.target, *case.laplace, options))
    if options.by_stein:
        return await _whole(case, fixed, poor, warm)
    return await _around(await _re_anchored(case, fixed) if poor else case, family, fixed, warm)


async def _without_mode(case: Case, fixed: Rule | None) -> Fitted | None:
    """From the user's start, by Stein steps; None where these find nothing either."""
    options, family = case.options, case.options.richest
    hopeless = case.numbers.code is Code.NON_FINITE_START or options.anchor == "mode"
    if family is None or fixed is None or hopeless or case.learns:
        return None
    if isinstance(family, FullRank):
        fitted = await _whole(case, fixed, poor=True)
    else:
        anchored = await _re_anchored(case, fixed)
        if anchored.anchor is None:
            return None
        fitted = await _around(anchored, family, fixed, None)
    assert fitted.adapted is not None
    # Without a mode, steps that do not end are those of an improper posterior, too.
    return fitted if fitted.adapted.told.code is Code.OK else None


# --- family "auto" ----------------------------------------------------------------------------


async def _climbing(case: Case, fixed: Rule, warm: Posterior | None) -> Fitted:
    """Laplace, and the poorest family that leaves nothing to gain."""
    options = case.options
    chosen_draws = isinstance(options.draws, Draws) and not case.learns
    seen = await judge_one(case.target, *case.laplace, options)
    # Hyperparameters that Laplace's evidence did not settle are left to a family's bound.
    learnt = int(case.tuned.code) == Code.OK and (not case.learns or options.hyper_steps > 0)
    if seen.diagnosis.kl < GAIN and learnt:
        return Fitted("laplace", seen=seen, choice=_laplace_is_enough(seen))
    poor = is_poor(case, seen.diagnosis.elbo.value)
    rung, gain = FullRank(), math.inf
    # A search that Newton's own steps did not carry may have ended in a lesser mode.
    if not (poor or case.numbers.n_damped or case.learns):
        shown = await inspected(_engine.INSPECT_LAPLACE, case, fixed, case.target, case.found)
        rung, gain = _judge.cheapest(shown, GAIN), shown.gain(GAIN)
        if rung is None:
            choice = f"Laplace leaves about {gain:.1g} nat to gain."
            return Fitted("laplace", seen=seen, choice=choice)
        if isinstance(rung, FullRank) and options.draws is not None and shown.draw_loss > GAIN:
            rung = EigenScale()  # on draws too few for a whole root, as they may be
    elif case.learns:
        rung = EigenScale()
    if not isinstance(options.richest, FullRank) and isinstance(rung, FullRank):
        rung = options.richest
    assert rung is not None
    if isinstance(rung, FullRank):
        over = "" if math.isinf(gain) else f", {gain:.2g} nat"
        fitted = await _whole(case, fixed, poor, warm)
        choice = f"The whole covariance has to change{over}."
        fitted = dataclasses.replace(fitted, choice=choice)
        if chosen_draws and fitted.shown is not None and fitted.shown.draw_loss > GAIN:
            fitted = await _or_widths(case, fitted, fixed, poor, warm)
    else:
        fitted = await _checked_rung(case, rung, fixed, warm)
    if chosen_draws and await _fresh_elbo(case, fitted) < seen.diagnosis.elbo.value:
        choice = "Laplace: the draws given are too few for more."
        return Fitted("laplace", seen=seen, choice=choice)
    return fitted


async def _or_widths(
    case: Case, whole: Fitted, fixed: Rule, poor: bool, warm: Posterior | None
) -> Fitted:
    """Widths alone, where the draws given lead the whole root astray."""
    start = await _re_anchored(case, fixed) if poor else case
    widths = await _around(start, EigenScale(), fixed, warm)
    assert widths.adapted is not None
    found = widths.adapted.told.code is Code.OK
    if found and await _fresh_elbo(case, widths) > await _fresh_elbo(case, whole):
        choice = "Only means and widths change: the draws given are too few for more."
        return dataclasses.replace(widths, choice=choice)
    return whole


def _laplace_is_enough(seen: Judged) -> str:
    # No Gaussian can gain more than what parts this one from the posterior where it has mass.
    return f"Laplace leaves at most {max(seen.diagnosis.kl, 1e-4):.1g} nat to gain nearby."


async def _checked_rung(case: Case, rung: Family, fixed: Rule, warm: Posterior | None) -> Fitted:
    """Fits `rung`, and goes on to the whole covariance where that turns out to pay."""
    adapted = await _searched(case, rung, fixed, warm)
    if isinstance(fixed, Quadrature) and case.options.by_stein:
        # Few nodes already tell: a gain that is theirs alone costs time, nothing else.
        gain = await _left_to_gain(case, adapted, fixed)
        if gain >= GAIN:
            whole = await _whole_from(case, adapted, fixed)
            return dataclasses.replace(whole, choice=_whole_gains(gain))
    fitted = await _refined(case, adapted, rung, fixed)
    assert fitted.adapted is not None
    adapted, rule = fitted.adapted, fitted.rule or fixed
    what = "means move" if isinstance(rung, MeanOnly) else "means and widths change"
    if adapted.told.code is not Code.OK:
        # Stein steps tell a bound that has no maximum from one that is hard to climb.
        whole_can = case.options.by_stein and not case.learns
        other = await _whole(case, fixed, poor=False) if whole_can else fitted
        named = "The whole covariance has to change." if whole_can else f"Only {what}."
        return dataclasses.replace(other, choice=named)
    here = case.target.at(adapted.theta)
    shown = await inspected(_engine.INSPECT, case, rule, here, adapted.mean, adapted.root)
    gain = shown.gain(GAIN)
    if gain < GAIN or not isinstance(case.options.richest, FullRank):
        choice = f"Only {what}: more would gain about {gain:.1g} nat."
        return dataclasses.replace(fitted, shown=shown, choice=choice)
    stein = case.options.by_stein
    whole = (
        await _whole_from(case, adapted, rule) if stein else await _whole(case, rule, poor=False)
    )
    chosen_draws = isinstance(case.options.draws, Draws)
    if chosen_draws and not await _fresh_elbo(case, whole) > await _fresh_elbo(case, fitted):
        choice = f"Only {what}: the draws given are too few for more."
        return dataclasses.replace(fitted, shown=shown, choice=choice)
    return dataclasses.replace(whole, choice=_whole_gains(gain))


async def _left_to_gain(case: Case, adapted: Adapted, rule: Rule) -> float:
    if adapted.told.code is not Code.OK:
        return 0.0
    here = case.target.at(adapted.theta)
    shown = await inspected(_engine.INSPECT, case, rule, here, adapted.mean, adapted.root)
    return shown.gain(GAIN)


def _whole_gains(gain: float) -> str:
    return f"The whole covariance changes, {gain:.2g} nat."


async def _fresh_elbo(case: Case, fitted: Fitted) -> float:
    """On fresh draws, the same for all; what found nothing has its own word to say."""
    adapted = fitted.adapted
    if adapted is None or adapted.told.code in NOTHING_FOUND:
        return math.inf
    target = case.target.at(adapted.theta)
    return await fresh_elbo(target, adapted.mean, adapted.root, case.options)


# --- the whole covariance, by Stein steps -----------------------------------------------------


async def _whole(case: Case, fixed: Rule, poor: bool, warm: Posterior | None = None) -> Fitted:
    if case.numbers.code is Code.OK and not case.options.by_stein:
        return await _around(case, FullRank(), fixed, warm)
    if case.learns:
        return await _whole_with_hyper(case, fixed)
    if warm is not None and (kept := await _kept(case, fixed, warm)) is not None:
        return await _polished(case, kept, fixed, "", _as_many(case, fixed, warm))
    adapted, note = await _rough(case, fixed, poor, warm)
    return await _polished(case, adapted, fixed, note, fixed)


async def _kept(case: Case, fixed: Rule, warm: Posterior) -> Adapted | None:
    """An earlier Gaussian, where it is as good here as these draws can tell."""
    gaussian = _gaussian_of(warm, case)
    shown = await inspected(_engine.INSPECT, case, fixed, case.target, *gaussian)
    if not shown.gain() <= shown.draw_loss + GAIN:
        return None
    return await _stepped(case, gaussian, fixed, 1)


async def _rough(
    case: Case, fixed: Rule, poor: bool, warm: Posterior | None = None
) -> tuple[Adapted, str]:
    """Stein steps on few draws, hyperparameters held. They start from Laplace's Gaussian; where
    that is poor, or the way to it was not Newton's own, also from around the user's start; and from
    an earlier Gaussian. The best end is taken."""
    options, target, found = case.options, case.target, case.numbers.code is Code.OK
    over = over_rule(case, fixed)
    starts: list[tuple[str, Any, Any]] = []
    if found:
        root = case.found.root.matrix
        if poor:
            root = await _engine.START_FROM_MODE(target, case.found, **over)
        starts.append(("", case.found.mode, root))
    if warm is not None:
        starts.append(("", *_gaussian_of(warm, case)))
    troubled = (poor or case.numbers.n_damped > 0) and options.anchor != "mode"
    if troubled or not starts:
        root = await _engine.START_WITHOUT_MODE(target, case.start, **over)
        note = " Started around init: the mode leads to a lower bound."
        starts.append((note if found else "", case.start, root))
    steps = min(ROUGH_STEPS, options.max_steps)
    tried = [(note, await _stepped(case, at, fixed, steps)) for note, *at in starts]
    note, best = max(tried, key=lambda one: _finite_elbo(one[1]))
    if note and not _finite_elbo(best) > _finite_elbo(tried[0][1]) + 1:
        note = ""
    return best, note if found else _why_no_mode(case.numbers.code)


def _why_no_mode(code: Code) -> str:
    why = {
        Code.INDEFINITE: "The Hessian at the mode is singular or indefinite",
        Code.STUCK: "No smooth mode was found",
    }.get(code, "There is no mode")
    return f" {why}: started around init instead."


def _gaussian_of(warm: Posterior, case: Case) -> tuple[np.ndarray, np.ndarray]:
    root, dtype = np.diag(warm.root) if warm.root.ndim == 1 else warm.root, case.options.dtype
    return warm.flat_mean.astype(dtype), root.astype(dtype)


async def _stepped(case: Case, gaussian: Any, fixed: Rule, max_steps: int) -> Adapted:
    mean, root = gaussian
    return await _engine.FULL_RANK(
        case.target, mean, root, case.still, case.still.drift[0], case.no_past(0),
        tol=ROUGH_TOL, max_steps=max_steps, **over_rule(case, fixed),
    )  # fmt: skip


def _as_many(case: Case, fixed: Rule, warm: Posterior) -> Rule:
    """The draws of an earlier fit: what was enough there is a good guess."""
    n = warm.stats.get("draws", 0)
    if case.options.draws is None and isinstance(fixed, Matched):
        while 2 * fixed.n <= min(n, most_draws(case)):
            fixed = fixed.doubled()
    return fixed


def _finite_elbo(adapted: Adapted) -> float:
    elbo, code = adapted.told.elbo, adapted.told.code
    return elbo if math.isfinite(elbo) and code not in NOTHING_FOUND else -math.inf


async def _whole_with_hyper(case: Case, fixed: Rule) -> Fitted:
    """With hyperparameters the poorer family's are the start."""
    adapted = await _searched(case, EigenScale(), fixed, None)
    if adapted.told.code is Code.NON_FINITE_DRAWS:
        return Fitted("eig", adapted, fixed, note=case.note)
    return await _whole_from(case, adapted, fixed)


async def _whole_from(case: Case, adapted: Adapted, rule: Rule) -> Fitted:
    """From the Gaussian of a poorer family."""
    n = case.target.theta.size
    tau = adapted.params[len(adapted.params) - n :]
    root = jnp.diag(adapted.root) if adapted.root.ndim == 1 else adapted.root
    begin = eqx.tree_at(
        lambda a: (a.params, a.root, a.past),
        adapted,
        (tau, root, case.no_past(n)),
        is_leaf=lambda leaf: leaf is None,
    )
    begin = await more_steps(case, begin, rule, ROUGH_TOL)
    begin = begin.counted(adapted.told.n_passes)
    return await _polished(case, begin, rule, "", rule)


async def _polished(case: Case, adapted: Adapted, first: Rule, note: str, rule: Rule) -> Fitted:
    """On as many draws as are needed, `rule` or more, to the tolerance asked for; what they cost is
    told by the `first`, few ones."""
    options, shown = case.options, None
    if isinstance(first, Draws) and isinstance(rule, Draws) and options.draws is None:
        adapted, rule = await on_enough_draws(case, adapted, first, rule)
    elif isinstance(rule, Quadrature) and adapted.told.code not in NOTHING_FOUND:
        adapted, rule, _ = await enough_nodes(case, adapted, FullRank(), rule)
    if adapted.told.code not in NOTHING_FOUND:
        more = await more_steps(case, adapted, rule, options.tol)
        adapted = more.counted(adapted.told.n_passes)
    if adapted.told.code in NOTHING_FOUND:
        return Fitted("full", adapted, rule, note=note)
    if isinstance(rule, Quadrature):
        # Of the end, too: the first look was at a rough one.
        adapted, rule, said = await enough_nodes(case, adapted, FullRank(), rule)
        note += said
    if isinstance(first, Draws) and isinstance(rule, Draws):
        shown = await shown_of_draws(case, adapted, first, rule)
    return Fitted("full", adapted, rule, shown=shown, note=note)


# --- a family around an anchor ----------------------------------------------------------------


async def _re_anchored(case: Case, fixed: Rule) -> Case:
    """The case with the Gaussian of a few Stein steps in the place of Laplace's. Hyperparameters
    stay where Laplace's evidence put them meanwhile."""
    options, target, rule = case.options, case.target, fixed
    if isinstance(fixed, Draws) and fixed.refusal(case.dim, updates_root=True) is not None:
        rule = Matched(max(256, 4 * case.dim))
    if isinstance(rule, Draws) and 8 * rule.n * case.dim > options.memory // 4:
        return case
    adapted, note = await _rough(case, rule, poor=True)
    if not math.isfinite(_finite_elbo(adapted)):
        return case
    elbo = adapted.numbers[0]
    start = await _engine.ANCHORED(target, adapted.mean, adapted.root, elbo, case.found)
    note += " Anchored at a Gaussian that Stein steps found, not at a mode."
    return dataclasses.replace(case, anchor=start, note=note)


async def _around(case: Case, family: Family, fixed: Rule, warm: Posterior | None) -> Fitted:
    return await _refined(case, await _searched(case, family, fixed, warm), family, fixed)


async def _searched(case: Case, family: Family, fixed: Rule, warm: Posterior | None) -> Adapted:
    """The family on the first draws or nodes."""
    options, target, found, tuned = case.options, case.target, case.start_of_family, case.tuned
    points = options.points(fixed, case.target)
    tilt, params, search = None, None, {"family": family, **options.bound_search}
    # A search that could not leave its first start is better begun from the Laplace Gaussian.
    if warm is not None and not family.start_is_stationary:
        mean, root = warm.flat_mean.astype(options.dtype), warm.root.astype(options.dtype)
        tilt, params, is_better = await _engine.WARM_START(
            target, found, tuned, mean, root, points=points, family=family, memory=options.memory
        )
        params = params if bool(is_better) else None
    if params is None:
        return await _engine.CLIMB(target, found, tuned, points=points, **search)
    return await _engine.RESUME(target, found, tilt, params, points=points, **search)


async def _refined(case: Case, adapted: Adapted, family: Family, fixed: Rule) -> Fitted:
    """Goes on with more draws or nodes (each time from where the last fit ended) while there are
    too few. A number that the user chose is left as it is."""
    note, rule, seen = case.note, fixed, None
    if isinstance(rule, Quadrature):
        adapted, rule, more = await enough_nodes(case, adapted, family, rule)
        note += more
    if isinstance(rule, Draws) and case.options.draws is None:
        adapted, rule, seen = await enough_draws(case, adapted, family, rule)
    return Fitted(family.name, adapted, rule, seen, note=note)
