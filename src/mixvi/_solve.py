"""Room 10. One problem from its start to a Posterior: a flow that awaits the compiled cores.

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

from . import _engine, _judge
from ._diagnostics import Elsewhere
from ._draws import Draws, Matched, Quadrature
from ._engine import Adapted, AdaptedNumbers
from ._errors import Code
from ._evidence import Tuned
from ._examine import diagnosed, inspected, is_poor, judge_laplace, judge_one, over_rule
from ._families import EigenScale, Family, FullRank, MeanOnly
from ._laplace import Laplace, LaplaceNumbers
from ._options import Options
from ._outcome import NOTHING_FOUND, Case, Fitted, Outcome, Rule, failure, finish
from ._posterior import Judged, Posterior
from ._target import Target

MOST_DOUBLINGS = 4
# Nats: what is not worth another rung, and what the choice of draws may cost.
GAIN, DRAW_LOSS = 0.005, 0.005
# Hyperparameters that are learnt are one point of many: what that neglects is far more.
DRAW_LOSS_LEARNING = 0.05
# Stein steps on the first, few draws go this far, and this many steps; then there are more draws.
ROUGH_TOL, ROUGH_STEPS = 0.03, 100
MOST_DRAWS = 2**15


async def solved(
    target: Target,
    start: np.ndarray,
    options: Options,
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
    target: Target, start: np.ndarray, options: Options
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
    options, family = case.options, case.options.family
    if family is None or fixed is None:
        return Fitted("laplace")
    if options.climbs and options.anchor != "average":
        return await _climbing(case, fixed, warm)
    seen = None if options.anchor != "auto" else await judge_laplace(case)
    poor = options.anchor == "average" or (seen is not None and is_poor(case.numbers, seen))
    if options.by_stein:
        return await _whole(case, fixed, poor, warm)
    return await _around(await _re_anchored(case, fixed) if poor else case, family, fixed, warm)


async def _without_mode(case: Case, fixed: Rule | None) -> Fitted | None:
    """From the user's start, by Stein steps; None where these find nothing either."""
    options, family = case.options, case.options.family
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
    return fitted if _code(fitted.adapted) is Code.OK else None


# --- family "auto" ----------------------------------------------------------------------------


async def _climbing(case: Case, fixed: Rule, warm: Posterior | None) -> Fitted:
    """Laplace, and the poorest family that leaves nothing to gain."""
    options = case.options
    seen = await judge_laplace(case)
    # Hyperparameters that Laplace's evidence did not settle are left to a family's bound.
    learnt = int(case.tuned.code) == Code.OK and (not case.learns or options.hyper_steps > 0)
    if seen.diagnosis.kl < GAIN and learnt:
        return Fitted("laplace", seen=seen, choice=_laplace_is_enough(seen))
    poor = is_poor(case.numbers, seen)
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
    if not isinstance(options.family, FullRank) and isinstance(rung, FullRank):
        rung = options.family
    assert rung is not None
    if isinstance(rung, FullRank):
        over = "" if math.isinf(gain) else f", {gain:.2g} nat"
        fitted = await _whole(case, fixed, poor, warm)
        choice = f"The whole covariance has to change{over}."
        fitted = dataclasses.replace(fitted, choice=choice)
    else:
        fitted = await _checked_rung(case, rung, fixed, warm)
    chosen_draws = isinstance(options.draws, Draws) and not case.learns
    if chosen_draws and await _fresh_elbo(case, fitted) < seen.diagnosis.elbo.value:
        choice = "Laplace: the draws given are too few for more."
        return Fitted("laplace", seen=seen, choice=choice)
    return fitted


def _laplace_is_enough(seen: Judged) -> str:
    # No Gaussian can gain more than what parts this one from the posterior where it has mass.
    return f"Laplace leaves at most {max(seen.diagnosis.kl, 1e-4):.1g} nat to gain nearby."


async def _checked_rung(case: Case, rung: Family, fixed: Rule, warm: Posterior | None) -> Fitted:
    """Fits `rung`, and goes on to the whole covariance where that turns out to pay."""
    fitted = await _around(case, rung, fixed, warm)
    assert fitted.adapted is not None
    adapted, rule = fitted.adapted, fitted.rule or fixed
    what = "means move" if isinstance(rung, MeanOnly) else "means and widths change"
    if _code(adapted) is not Code.OK:
        # Stein steps tell a bound that has no maximum from one that is hard to climb.
        whole_can = case.options.by_stein and not case.learns
        other = await _whole(case, fixed, poor=False) if whole_can else fitted
        named = "The whole covariance has to change." if whole_can else f"Only {what}."
        return dataclasses.replace(other, choice=named)
    here = case.target.at(adapted.theta)
    shown = await inspected(_engine.INSPECT, case, rule, here, adapted.mean, adapted.root)
    gain = shown.gain(GAIN)
    if gain < GAIN or not isinstance(case.options.family, FullRank):
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
    return dataclasses.replace(whole, choice=f"The whole covariance changes, {gain:.2g} nat.")


async def _fresh_elbo(case: Case, fitted: Fitted) -> float:
    """On fresh draws, the same for all; what found nothing has its own word to say."""
    adapted = fitted.adapted
    if adapted is None or _code(adapted) in NOTHING_FOUND:
        return math.inf
    target = case.target.at(adapted.theta)
    seen = await judge_one(target, adapted.mean, adapted.root, case.options)
    return seen.diagnosis.elbo.value


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
        while 2 * fixed.n <= min(n, _most_draws(case)):
            fixed = fixed.doubled()
    return fixed


async def _whole_with_hyper(case: Case, fixed: Rule) -> Fitted:
    """With hyperparameters the poorer family's are the start."""
    fitted = await _around(case, EigenScale(), fixed, None)
    assert fitted.adapted is not None
    if _code(fitted.adapted) is Code.NON_FINITE_DRAWS:
        return fitted
    return await _whole_from(case, fitted.adapted, fitted.rule or fixed)


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
    begin = _counted(await _more_steps(case, begin, rule, ROUGH_TOL), _passes(adapted))
    return await _polished(case, begin, rule, "", rule)


async def _polished(case: Case, adapted: Adapted, first: Rule, note: str, rule: Rule) -> Fitted:
    """On as many draws as are needed, `rule` or more, to the tolerance asked for; what they cost is
    told by the `first`, few ones."""
    options, shown = case.options, None
    if isinstance(first, Draws) and isinstance(rule, Draws) and options.draws is None:
        adapted, rule = await _on_enough_draws(case, adapted, first, rule)
    if _code(adapted) not in NOTHING_FOUND:
        more = await _more_steps(case, adapted, rule, options.tol)
        adapted = _counted(more, _passes(adapted))
    if _code(adapted) in NOTHING_FOUND:
        return Fitted("full", adapted, rule, note=note)
    if isinstance(rule, Quadrature):
        adapted, rule, said = await _enough_nodes(case, adapted, FullRank(), rule)
        note += said
    elif isinstance(first, Draws) and isinstance(rule, Draws):
        shown = await _shown_of_draws(case, adapted, first, rule)
    return Fitted("full", adapted, rule, shown=shown, note=note)


async def _on_enough_draws(
    case: Case, adapted: Adapted, first: Draws, rule: Draws
) -> tuple[Adapted, Draws]:
    """Roughly fitted on as many draws as keep their own cost low. A Gaussian fitted to few draws
    tells less of that cost than there is: hence a second round."""
    most_loss = DRAW_LOSS_LEARNING if case.learns else DRAW_LOSS
    # What was enough for an earlier fit is not given up for a little.
    for slack in (1, 2) if rule.n == first.n else (3,):
        if _code(adapted) in NOTHING_FOUND:
            break
        loss = (await _shown_of_draws(case, adapted, first, rule)).draw_loss
        if loss < slack * most_loss:
            break
        more = _judge.enough_draws(rule, loss, most_loss, _most_draws(case))
        if more.n == rule.n:
            break
        again = await _more_steps(case, adapted, more, ROUGH_TOL)
        if _code(again) is Code.NON_FINITE_DRAWS:
            # More draws reach further, to where there is no density: stay with these.
            break
        adapted, rule = _counted(again, _passes(adapted)), more
    return adapted, rule


async def _shown_of_draws(case: Case, adapted: Adapted, few: Draws, many: Draws) -> _judge.Shown:
    """What the `few` first draws show, for the `many` that the fit was made on: gains are the
    search's own, and noise falls with the number of draws."""
    target = case.target.at(adapted.theta)
    shown = await inspected(_engine.INSPECT, case, few, target, adapted.mean, adapted.root)
    share = few.n / many.n
    return shown._replace(
        gain_mean=0.0,
        gain_widths=0.0,
        gain_root=0.0,
        draw_loss=shown.draw_loss * share,
        mean_se=shown.mean_se * math.sqrt(share),
    )


async def _more_steps(case: Case, adapted: Adapted, rule: Rule, tol: float) -> Adapted:
    return await _engine.FULL_RANK(
        case.target, adapted.mean, adapted.root, adapted.tilt, adapted.params, adapted.past,
        tol=tol, max_steps=case.options.max_steps, **over_rule(case, rule),
    )  # fmt: skip


def _most_draws(case: Case) -> int:
    return max(2, min(MOST_DRAWS, case.options.memory // 4 // (8 * case.dim)))


def _code(adapted: Adapted) -> Code:
    return AdaptedNumbers.fetched(adapted.numbers).code


def _finite_elbo(adapted: Adapted) -> float:
    elbo = AdaptedNumbers.fetched(adapted.numbers).elbo
    return elbo if math.isfinite(elbo) and _code(adapted) not in NOTHING_FOUND else -math.inf


def _passes(adapted: Adapted) -> int:
    return AdaptedNumbers.fetched(adapted.numbers).n_passes


def _counted(adapted: Adapted, more: int) -> Adapted:
    return eqx.tree_at(lambda a: a.numbers, adapted, jnp.asarray(adapted.numbers).at[2].add(more))


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
    """Fits, and goes on with more draws or nodes (each time from where the last fit ended) while
    there are too few. A number that the user chose is left as it is."""
    options, target, found, tuned = case.options, case.target, case.start_of_family, case.tuned
    points = options.points(fixed, case.dim)
    tilt, params, search = None, None, {"family": family, **options.bound_search}
    # A search that could not leave its first start is better begun from the Laplace Gaussian.
    if warm is not None and not family.start_is_stationary:
        mean, root = warm.flat_mean.astype(options.dtype), warm.root.astype(options.dtype)
        tilt, params, is_better = await _engine.WARM_START(
            target, found, tuned, mean, root, points=points, family=family, memory=options.memory
        )
        params = params if bool(is_better) else None
    if params is None:
        adapted = await _engine.CLIMB(target, found, tuned, points=points, **search)
    else:
        adapted = await _engine.RESUME(target, found, tilt, params, points=points, **search)
    note, rule, seen = case.note, fixed, None
    if isinstance(rule, Quadrature):
        adapted, rule, more = await _enough_nodes(case, adapted, family, rule)
        note += more
    if isinstance(rule, Draws) and options.draws is None:
        adapted, rule, seen = await _enough_draws(case, adapted, family, rule)
    return Fitted(family.name, adapted, rule, seen, note=note)


async def _enough_draws(
    case: Case, adapted: Adapted, family: Family, fixed: Draws
) -> tuple[Adapted, Draws, Judged | None]:
    """Doubles the draws while they do not stand for fresh ones."""
    options, target = case.options, case.target
    for _ in range(MOST_DOUBLINGS):
        numbers = AdaptedNumbers.fetched(adapted.numbers)
        if numbers.code is not Code.OK:
            break
        seen = await judge_one(target.at(adapted.theta), adapted.mean, adapted.root, options)
        affordable = 16 * fixed.n * case.dim <= options.memory // 4
        if not (affordable and _judge.wants_more_draws(numbers.elbo, fixed.n, seen)):
            return adapted, fixed, seen
        more = fixed.doubled()
        again = await _again(case, adapted, family, more)
        if _code(again) is Code.NON_FINITE_DRAWS:
            return adapted, fixed, seen
        adapted, fixed = again, more
    return adapted, fixed, None


async def _enough_nodes(
    case: Case, adapted: Adapted, family: Family, fixed: Quadrature
) -> tuple[Adapted, Rule, str]:
    """Takes as many nodes as the integrals need where the fit ended; draws where none suffice."""
    options, target = case.options, case.target

    async def error(rule: Quadrature) -> float:
        fitted, fine = target.at(adapted.theta), rule.doubled()
        rules = {"coarse": rule.make(options.dtype), "fine": fine.make(options.dtype)}
        return float(await _engine.NODES_ERROR(fitted, adapted.mean, adapted.root, **rules))

    async def next_that_suffices(rule: Quadrature) -> Quadrature | None:
        while rule.n < _judge.MOST_NODES:
            rule = rule.doubled()
            if await error(rule) <= _judge.NODES_TOL:
                return rule
        return None

    if options.draws is not None:
        return adapted, fixed, _judge.nodes_note(await error(fixed))
    while not (now := await error(fixed)) <= _judge.NODES_TOL:
        enough = await next_that_suffices(fixed)
        if enough is None or _code(adapted) is not Code.OK:
            draws = options.draws_for(case.dim)
            return await _afresh(case, adapted, family, draws), draws, _judge.back_to_draws(now)
        adapted, fixed = await _again(case, adapted, family, enough), enough
    return adapted, fixed, ""


async def _afresh(case: Case, adapted: Adapted, family: Family, draws: Draws) -> Adapted:
    if adapted.past is not None:
        return await _more_steps(case, adapted, draws, case.options.tol)
    points = case.options.points(draws, case.dim)
    return await _engine.CLIMB(
        case.target, case.start_of_family, case.tuned, points=points, family=family,
        **case.options.bound_search,
    )  # fmt: skip


async def _again(case: Case, adapted: Adapted, family: Family, rule: Rule) -> Adapted:
    if adapted.past is not None:
        return await _more_steps(case, adapted, rule, case.options.tol)
    points = case.options.points(rule, case.dim)
    return await _engine.RESUME(
        case.target, case.start_of_family, adapted.tilt, adapted.params, points=points,
        family=family, **case.options.bound_search,
    )  # fmt: skip
