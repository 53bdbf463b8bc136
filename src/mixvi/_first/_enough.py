"""As many draws or nodes as a fit needs, and more steps on them."""

import math

from .._draws import OTHER_NODES, Draws, Quadrature
from .._errors import Code
from .._posterior import Judged
from . import _engine, _judge
from ._engine import Adapted
from ._examine import inspected, judge_one, over_rule
from ._families import Family
from ._judge import MOST_NODES, NODES_TOL
from ._outcome import NOTHING_FOUND, Case, Rule

MOST_DOUBLINGS = 4
# Nats that the choice of draws or nodes may cost.
DRAW_LOSS = 0.005
# Hyperparameters that are learnt are one point of many: what that neglects is far more.
DRAW_LOSS_LEARNING = 0.05
MOST_DRAWS = 2**15
# Of quadrature over several predictors: the most nodes, and how what they cost falls with them.
MOST_POINTS, POINTS_RATE = 2**12, 1.5
# Steps on few draws go this far.
ROUGH_TOL = 0.03


# --- Stein steps ------------------------------------------------------------------------------


async def on_enough_draws(
    case: Case, adapted: Adapted, first: Draws, rule: Draws
) -> tuple[Adapted, Draws]:
    """Roughly fitted on as many draws as keep their own cost low. A Gaussian fitted to few draws
    tells less of that cost than there is: hence a second round."""
    most_loss = _most_loss(case)
    # What was enough for an earlier fit is not given up for a little.
    for slack in (1, 2) if rule.n == first.n else (3,):
        if adapted.told.code in NOTHING_FOUND:
            break
        loss = (await shown_of_draws(case, adapted, first, rule)).draw_loss
        if loss < slack * most_loss:
            break
        more = _judge.enough_draws(rule, loss, most_loss, most_draws(case))
        if more.n == rule.n:
            break
        again = await more_steps(case, adapted, more, ROUGH_TOL)
        if again.told.code is Code.NON_FINITE_DRAWS:
            # More draws reach further, to where there is no density: stay with these.
            break
        adapted, rule = again.counted(adapted.told.n_passes), more
    return adapted, rule


async def shown_of_draws(case: Case, adapted: Adapted, few: Draws, many: Draws) -> _judge.Shown:
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


async def more_steps(case: Case, adapted: Adapted, rule: Rule, tol: float) -> Adapted:
    return await _engine.FULL_RANK(
        case.target, adapted.mean, adapted.root, adapted.tilt, adapted.params, adapted.past,
        tol=tol, max_steps=case.options.max_steps, **over_rule(case, rule),
    )  # fmt: skip


def _most_loss(case: Case) -> float:
    return DRAW_LOSS_LEARNING if case.learns else DRAW_LOSS


def most_draws(case: Case) -> int:
    return max(2, min(MOST_DRAWS, case.options.memory // 4 // (8 * case.dim)))


# --- a family ---------------------------------------------------------------------------------


async def enough_draws(
    case: Case, adapted: Adapted, family: Family, fixed: Draws
) -> tuple[Adapted, Draws, Judged | None]:
    """Doubles the draws while they do not stand for fresh ones."""
    options, target = case.options, case.target
    for _ in range(MOST_DOUBLINGS):
        numbers = adapted.told
        if numbers.code is not Code.OK:
            break
        seen = await judge_one(target.at(adapted.theta), adapted.mean, adapted.root, options)
        affordable = 16 * fixed.n * case.dim <= options.memory // 4
        if not (affordable and _judge.wants_more_draws(numbers.elbo, fixed.n, seen)):
            return adapted, fixed, seen
        more = fixed.doubled()
        again = await _again(case, adapted, family, more)
        if again.told.code is Code.NON_FINITE_DRAWS:
            return adapted, fixed, seen
        adapted, fixed = again, more
    return adapted, fixed, None


async def enough_nodes(
    case: Case, adapted: Adapted, family: Family, fixed: Quadrature
) -> tuple[Adapted, Rule, str]:
    """As many nodes as the integrals need where the fit ended."""
    if case.target.n_predictors > 1:
        return await _enough_points(case, adapted, family, fixed)
    options = case.options

    async def error(rule: Quadrature) -> float:
        fitted, fine = case.target.at(adapted.theta), rule.doubled()
        rules = {"coarse": rule.make(options.dtype), "fine": fine.make(options.dtype)}
        return float(await _engine.NODES_ERROR(fitted, adapted.mean, adapted.root, **rules))

    async def next_that_suffices(rule: Quadrature) -> Quadrature | None:
        while rule.n < MOST_NODES:
            rule = rule.doubled()
            if await error(rule) <= NODES_TOL:
                return rule
        return None

    while not (now := await error(fixed)) <= NODES_TOL:
        if options.draws is not None:
            return adapted, fixed, f" Quadrature is off by {now:.0e} per observation."
        enough = await next_that_suffices(fixed)
        if enough is None:
            draws = options.draws_for(case.dim)
            return await _afresh(case, adapted, family, draws), draws, _judge.back_to_draws(now)
        adapted, fixed = await _again(case, adapted, family, enough), enough
    return adapted, fixed, ""


async def _enough_points(
    case: Case, adapted: Adapted, family: Family, fixed: Quadrature
) -> tuple[Adapted, Rule, str]:
    """The same for several predictors, whose nodes have no exact rule: what their choice costs is
    told by other nodes."""
    options, most_loss, slack = case.options, _most_loss(case), 1
    while adapted.told.code not in NOTHING_FOUND:
        fitted = case.target.at(adapted.theta)
        others = fixed.make(options.dtype, fitted.n_predictors, OTHER_NODES)
        rules = {"nodes": options.points(fixed, fitted), "others": others}
        ask = _engine.NODES_LOSS(fitted, adapted.mean, adapted.root, **rules, memory=options.memory)
        loss = float(await ask)
        if loss <= slack * most_loss:
            break
        more = _judge.enough_draws(fixed, loss, most_loss, MOST_POINTS, POINTS_RATE)
        costs = f" Quadrature over {fixed.n} nodes costs about {loss:.1g} nat."
        if options.draws is not None or more.n == fixed.n:
            return adapted, fixed, costs
        again = await _again(case, adapted, family, more)
        if again.told.code is Code.NON_FINITE_DRAWS:
            # More nodes reach further, to where there is no density: stay with these.
            return adapted, fixed, costs
        adapted, fixed, slack = again, more, 2
    return adapted, fixed, ""


async def _afresh(case: Case, adapted: Adapted, family: Family, draws: Draws) -> Adapted:
    if adapted.past is not None:
        return await more_steps(case, adapted, draws, case.options.tol)
    points = case.options.points(draws, case.target)
    return await _engine.CLIMB(
        case.target, case.start_of_family, case.tuned, points=points, family=family,
        **case.options.bound_search,
    )  # fmt: skip


async def _again(case: Case, adapted: Adapted, family: Family, rule: Rule) -> Adapted:
    if adapted.past is not None:
        again = await more_steps(case, adapted, rule, case.options.tol)
    else:
        points = case.options.points(rule, case.target)
        again = await _engine.RESUME(
            case.target, case.start_of_family, adapted.tilt, adapted.params, points=points,
            family=family, **case.options.bound_search,
        )  # fmt: skip
    return again.counted(adapted.told.n_passes)
