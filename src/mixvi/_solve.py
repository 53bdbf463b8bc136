"""Room 10. One problem from its start to a Posterior: the compiled cores in order, on the host.

a mode ........ Laplace, then the family around it
a poor start .. Stein steps find a Gaussian first, and the family adapts around that
no mode ....... the same, from the user's start
family "auto" . Laplace, and on only while there is something to gain
"""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from . import _engine, _judge
from ._diagnostics import Elsewhere
from ._draws import Draws, Matched, Quadrature
from ._engine import Adapted, AdaptedNumbers
from ._errors import Code
from ._families import EigenScale, Family, FullRank, MeanOnly
from ._judge import Mode
from ._laplace import LaplaceNumbers
from ._options import Options
from ._outcome import Case, Fitted, Outcome, Rule, failure, finish
from ._posterior import Judged, Posterior
from ._target import Target, precision_scope

MOST_DOUBLINGS = 4
# Nats: what is not worth another rung, and what the choice of draws may cost.
GAIN, DRAW_LOSS = 0.005, 0.005
# Stein steps on the first, few draws go this far, and this many steps; then there are more draws.
ROUGH_TOL, ROUGH_STEPS = 0.03, 100
MOST_DRAWS = 2**15
NOTHING_FOUND = (Code.RAN_OFF, Code.NON_FINITE_DRAWS)


def solve(
    target: Target,
    start: np.ndarray,
    options: Options,
    fixed: Rule | None,
    warm: Posterior | None = None,
) -> Outcome:
    """One problem, from start to verdict. Never raises for what the data did."""
    _engine.forget_if_many()
    with precision_scope(options.dtype):
        found, tuned, numbers = _engine.laplace_one(target, start, **options.mode_search)
        numbers = LaplaceNumbers.fetched(numbers)
        case = Case(target.at(tuned.theta), start, options, found, tuned, numbers)
        if numbers.code is Code.OK:
            fitted = _with_mode(case, fixed, warm)
        else:
            fitted = _without_mode(case, fixed)
        if fitted is None:
            return failure(case)
        elsewhere = Elsewhere()
        if options.diagnostics:
            fitted, elsewhere = _diagnosed(case, fitted)
    return finish(case, fitted, elsewhere)


def _with_mode(case: Case, fixed: Rule | None, warm: Posterior | None) -> Fitted:
    options, family = case.options, case.options.family
    if family is None or fixed is None:
        return Fitted("laplace")
    if options.climbs and options.anchor != "average":
        return _climbing(case, fixed, warm)
    seen = None if options.anchor != "auto" else _judge_laplace(case)
    poor = options.anchor == "average" or (seen is not None and is_poor(case.numbers, seen))
    if options.by_stein:
        return _whole(case, fixed, poor, warm)
    return _around(_re_anchored(case, fixed, poor) if poor else case, family, fixed, warm)


def _without_mode(case: Case, fixed: Rule | None) -> Fitted | None:
    """From the user's start, by Stein steps; None where these find nothing either."""
    options, family = case.options, case.options.family
    hopeless = case.numbers.code is Code.NON_FINITE_START or options.anchor == "mode"
    if family is None or fixed is None or hopeless or case.target.theta.size:
        return None
    if isinstance(family, FullRank):
        fitted = _whole(case, fixed, poor=True)
    else:
        anchored = _re_anchored(case, fixed, poor=True)
        if anchored.anchor is None:
            return None
        fitted = _around(anchored, family, fixed, None)
    assert fitted.adapted is not None
    return fitted if _code(fitted.adapted) is Code.OK else None


# --- family "auto" ----------------------------------------------------------------------------


def _climbing(case: Case, fixed: Rule, warm: Posterior | None) -> Fitted:
    """Laplace, and the poorest family that leaves nothing to gain."""
    options = case.options
    seen = _judge_laplace(case)
    # Hyperparameters that Laplace's evidence did not settle are left to a family's bound.
    if seen.diagnosis.kl < GAIN and int(case.tuned.code) == Code.OK:
        return Fitted("laplace", seen=seen, choice=laplace_is_enough(seen))
    poor = is_poor(case.numbers, seen)
    rung, gain = FullRank(), math.inf
    # A search that Newton's own steps did not carry may have ended in a lesser mode.
    if not (poor or case.numbers.n_damped or case.target.theta.size):
        root = _engine.eigen_root_one(case.found.root).matrix
        shown = _inspect(case.target, case.found.mode, root, fixed, options)
        rung, gain = _judge.cheapest(shown, GAIN), shown.gain(GAIN)
        if rung is None:
            choice = f"Laplace leaves about {gain:.1g} nat to gain."
            return Fitted("laplace", seen=seen, choice=choice)
    elif case.target.theta.size:
        rung = EigenScale()
    if not isinstance(options.family, FullRank) and isinstance(rung, FullRank):
        rung = options.family
    if isinstance(rung, FullRank):
        over = "" if math.isinf(gain) else f", {gain:.2g} nat"
        whole = _whole(case, fixed, poor, warm)
        return dataclasses.replace(whole, choice=f"The whole covariance has to change{over}.")
    assert rung is not None
    return _checked_rung(case, rung, fixed, warm)


def laplace_is_enough(seen: Judged | None) -> str:
    # No Gaussian can gain more than what parts this one from the posterior.
    kl = 0.0 if seen is None else seen.diagnosis.kl
    return f"Laplace leaves at most {max(kl, 1e-4):.1g} nat to gain."


def _checked_rung(case: Case, rung: Family, fixed: Rule, warm: Posterior | None) -> Fitted:
    """Fits `rung`, and goes on to the whole covariance where that turns out to pay."""
    fitted = _around(case, rung, fixed, warm)
    assert fitted.adapted is not None
    adapted, rule = fitted.adapted, fitted.rule or fixed
    what = "means move" if isinstance(rung, MeanOnly) else "means and widths change"
    if AdaptedNumbers.fetched(adapted.numbers).code is not Code.OK:
        return dataclasses.replace(fitted, choice=f"Only {what}.")
    here = case.target.at(adapted.theta)
    shown = _inspect(here, adapted.mean, adapted.root, rule, case.options)
    gain = shown.gain(GAIN)
    if gain < GAIN or not isinstance(case.options.family, FullRank):
        choice = f"Only {what}: more would gain about {gain:.1g} nat."
        return dataclasses.replace(fitted, shown=shown, choice=choice)
    stein = case.options.by_stein
    whole = _whole_from(case, adapted, rule) if stein else _whole(case, rule, poor=False)
    return dataclasses.replace(whole, choice=f"The whole covariance changes, {gain:.2g} nat.")


# --- the whole covariance, by Stein steps -----------------------------------------------------


def _whole(case: Case, fixed: Rule, poor: bool, warm: Posterior | None = None) -> Fitted:
    if case.numbers.code is Code.OK and not case.options.by_stein:
        return _around(case, FullRank(), fixed, warm)
    if case.target.theta.size:
        return _whole_with_hyper(case, fixed)
    return _polished(case, *_rough(case, fixed, poor, warm))


def _rough(
    case: Case, fixed: Rule, poor: bool, warm: Posterior | None = None
) -> tuple[Adapted, Rule, str]:
    """Stein steps on few draws, hyperparameters held. They start from Laplace's Gaussian; where
    that is poor, or the way to it was not Newton's own, also from around the user's start, and the
    better end is taken."""
    options, target = case.options, case.target
    points, paired = options.points(fixed, case.dim), isinstance(fixed, Matched)
    starts: list[tuple[Any, Any]] = []
    if warm is not None:
        root = np.diag(warm.root) if warm.root.ndim == 1 else warm.root
        starts.append((warm.flat_mean.astype(options.dtype), root.astype(options.dtype)))
    elif case.numbers.code is Code.OK:
        root = case.found.root.matrix
        if poor:
            root = _engine.start_from_mode_one(target, case.found, points, paired, options.memory)
        starts.append((case.found.mode, root))
    troubled = (poor or case.numbers.n_damped > 0) and options.anchor != "mode" and warm is None
    if troubled or not starts:
        root = _engine.start_without_mode_one(target, case.start, points, paired, options.memory)
        starts.append((case.start, root))
    # A warm start is only looked at: the polish begins there.
    steps = 1 if warm is not None else min(ROUGH_STEPS, options.max_steps)
    tried = [
        _engine.full_rank_one(
            target, mean, root, case.still, case.still.drift[0], points, case.no_past,
            ROUGH_TOL, steps, paired=paired, memory=options.memory,
        )
        for mean, root in starts
    ]  # fmt: skip
    best = max(tried, key=_finite_elbo)
    if warm is not None and not math.isfinite(_finite_elbo(best)):
        return _rough(case, fixed, poor)
    note = ""
    if case.numbers.code is not Code.OK:
        note = " There is no mode: started around init instead."
    elif len(tried) > 1 and best is tried[1] and _finite_elbo(best) > _finite_elbo(tried[0]) + 1:
        note = " Started around init: the mode leads to a lower bound."
    return best, fixed, note


def _whole_with_hyper(case: Case, fixed: Rule) -> Fitted:
    """With hyperparameters the poorer family's are the start."""
    fitted = _around(case, EigenScale(), fixed, None)
    assert fitted.adapted is not None
    if AdaptedNumbers.fetched(fitted.adapted.numbers).code is Code.NON_FINITE_DRAWS:
        return fitted
    return _whole_from(case, fitted.adapted, fitted.rule or fixed)


def _whole_from(case: Case, adapted: Adapted, rule: Rule) -> Fitted:
    """From the Gaussian of a poorer family."""
    n = case.target.theta.size
    tau = adapted.params[len(adapted.params) - n :]
    root = jnp.diag(adapted.root) if adapted.root.ndim == 1 else adapted.root
    begin = dataclasses.replace(adapted, params=tau, root=root, past=case.no_past)
    return _polished(case, begin, rule, "")


def _polished(case: Case, adapted: Adapted, rule: Rule, note: str) -> Fitted:
    """On as many draws as keep their own cost below DRAW_LOSS, to the tolerance asked for."""
    options = case.options
    if _code(adapted) in NOTHING_FOUND:
        return Fitted("full", adapted, rule, note=note)
    first, may_grow = rule, options.draws is None
    shown = None
    for _ in range(2):
        if may_grow and isinstance(first, Draws) and isinstance(rule, Draws):
            shown = _shown_of_draws(case, adapted, first, rule)
            rule = _judge.enough_draws(rule, shown.draw_loss, DRAW_LOSS, _most_draws(case))
        spent = AdaptedNumbers.fetched(adapted.numbers).n_passes
        more = _more_steps(case, adapted, rule, options.tol)
        if _code(more) is Code.NON_FINITE_DRAWS and rule is not first:
            # More draws reach further, to where there is no density: stay with the first ones.
            rule, may_grow = first, False
            more = _more_steps(case, adapted, rule, options.tol)
        adapted = _counted(more, spent)
        if not (isinstance(first, Draws) and isinstance(rule, Draws)):
            break
        if _code(adapted) in NOTHING_FOUND:
            break
        shown = _shown_of_draws(case, adapted, first, rule)
        if not may_grow or shown.draw_loss < 2 * DRAW_LOSS or 2 * rule.n > _most_draws(case):
            break
    if isinstance(rule, Quadrature):
        adapted, rule, said = _enough_nodes(case, adapted, FullRank(), rule)
        note += said
    return Fitted("full", adapted, rule, shown=shown, note=note)


def _shown_of_draws(case: Case, adapted: Adapted, few: Draws, many: Draws) -> _judge.Shown:
    """What the `few` first draws show, for the `many` that the fit was made on: gains are the
    search's own, and noise falls with the number of draws."""
    target = case.target.at(adapted.theta)
    shown = _inspect(target, adapted.mean, adapted.root, few, case.options)
    share = few.n / many.n
    return shown._replace(
        gain_mean=0.0,
        gain_widths=0.0,
        gain_root=0.0,
        draw_loss=shown.draw_loss * share,
        mean_se=shown.mean_se * math.sqrt(share),
    )


def _more_steps(case: Case, adapted: Adapted, rule: Rule, tol: float) -> Adapted:
    options = case.options
    return _engine.full_rank_one(
        case.target, adapted.mean, adapted.root, adapted.tilt, adapted.params,
        options.points(rule, case.dim), adapted.past, tol, options.max_steps,
        paired=isinstance(rule, Matched), memory=options.memory,
    )  # fmt: skip


def _most_draws(case: Case) -> int:
    return max(2, min(MOST_DRAWS, case.options.memory // 4 // (8 * case.dim)))


def _code(adapted: Adapted) -> Code:
    return AdaptedNumbers.fetched(adapted.numbers).code


def _finite_elbo(adapted: Adapted) -> float:
    elbo = AdaptedNumbers.fetched(adapted.numbers).elbo
    return elbo if math.isfinite(elbo) and _code(adapted) not in NOTHING_FOUND else -math.inf


def _counted(adapted: Adapted, more: int) -> Adapted:
    return dataclasses.replace(adapted, numbers=adapted.numbers.at[2].add(more))


# --- a family around an anchor ----------------------------------------------------------------


def _re_anchored(case: Case, fixed: Rule, poor: bool) -> Case:
    """The case with the Gaussian of a few Stein steps in the place of Laplace's. Hyperparameters
    stay where Laplace's evidence put them meanwhile."""
    options, rule = case.options, fixed
    if isinstance(fixed, Draws) and fixed.refusal(case.dim, updates_root=True) is not None:
        rule = Matched(max(256, 4 * case.dim))
    if isinstance(rule, Draws) and 8 * rule.n * case.dim > options.memory // 4:
        return case
    adapted, _, note = _rough(case, rule, poor)
    if not math.isfinite(_finite_elbo(adapted)):
        return case
    start = _engine.anchored_one(adapted.mean, adapted.root, adapted.numbers[0], case.found)
    note += " Anchored at a Gaussian that Stein steps found, not at a mode."
    return dataclasses.replace(case, anchor=start, note=note)


def _around(case: Case, family: Family, fixed: Rule, warm: Posterior | None) -> Fitted:
    """Fits, and goes on with more draws or nodes (each time from where the last fit ended) while
    there are too few. A number that the user chose is left as it is."""
    options, target, found, tuned = case.options, case.target, case.start_of_family, case.tuned
    points = options.points(fixed, case.dim)
    tilt, params = None, None
    # A search that could not leave its first start is better begun from the Laplace Gaussian.
    if warm is not None and not family.start_is_stationary:
        mean, root = warm.flat_mean.astype(options.dtype), warm.root.astype(options.dtype)
        tilt, params, is_better = _engine.warm_one(
            target, found, tuned, points, family, mean, root, options.memory
        )
        params = params if bool(is_better) else None
    if params is None:
        adapted = _engine.climb_one(target, found, tuned, points, family, **options.bound_search)
    else:
        adapted = _engine.resume_one(
            target, found, tilt, points, family, params, **options.bound_search
        )
    note, rule, seen = case.note, fixed, None
    if isinstance(rule, Quadrature):
        adapted, rule, more = _enough_nodes(case, adapted, family, rule)
        note += more
    if isinstance(rule, Draws) and options.draws is None:
        adapted, rule, seen = _enough_draws(case, adapted, family, rule)
    return Fitted(family.name, adapted, rule, seen, note=note)


def _enough_draws(
    case: Case, adapted: Adapted, family: Family, fixed: Draws
) -> tuple[Adapted, Draws, Judged | None]:
    """Doubles the draws while they do not stand for fresh ones."""
    options, target = case.options, case.target
    for _ in range(MOST_DOUBLINGS):
        numbers = AdaptedNumbers.fetched(adapted.numbers)
        if numbers.code is not Code.OK:
            break
        seen = _judge_one(target.at(adapted.theta), adapted.mean, adapted.root, options)
        affordable = 16 * fixed.n * case.dim <= options.memory // 4
        if not (affordable and _judge.wants_more_draws(numbers.elbo, fixed.n, seen)):
            return adapted, fixed, seen
        more = fixed.doubled()
        again = _again(case, adapted, family, more)
        if _code(again) is Code.NON_FINITE_DRAWS:
            return adapted, fixed, seen
        adapted, fixed = again, more
    return adapted, fixed, None


def _enough_nodes(
    case: Case, adapted: Adapted, family: Family, fixed: Quadrature
) -> tuple[Adapted, Rule, str]:
    """Takes as many nodes as the integrals need where the fit ended; draws where none suffice."""
    options, target = case.options, case.target

    def error(rule: Quadrature) -> float:
        fitted = target.at(adapted.theta)
        rules = (one.make(options.dtype) for one in (rule, rule.doubled()))
        return float(_engine.nodes_error_one(fitted, adapted.mean, adapted.root, *rules))

    if options.draws is not None:
        return adapted, fixed, _judge.nodes_note(error(fixed))
    while not (now := error(fixed)) <= _judge.NODES_TOL:
        enough = _judge.enough_nodes(fixed, error)
        if enough is None or _code(adapted) is not Code.OK:
            draws = options.draws_for(case.dim)
            return _afresh(case, adapted, family, draws), draws, _judge.back_to_draws(now)
        adapted, fixed = _again(case, adapted, family, enough), enough
    return adapted, fixed, ""


def _afresh(case: Case, adapted: Adapted, family: Family, draws: Draws) -> Adapted:
    if adapted.past is not None:
        return _more_steps(case, adapted, draws, case.options.tol)
    points = case.options.points(draws, case.dim)
    return _engine.climb_one(
        case.target, case.start_of_family, case.tuned, points, family, **case.options.bound_search
    )


def _again(case: Case, adapted: Adapted, family: Family, rule: Rule) -> Adapted:
    if adapted.past is not None:
        return _more_steps(case, adapted, rule, case.options.tol)
    points = case.options.points(rule, case.dim)
    return _engine.resume_one(
        case.target, case.start_of_family, adapted.tilt, points, family, adapted.params,
        **case.options.bound_search,
    )  # fmt: skip


# --- what fresh draws say ---------------------------------------------------------------------


def _inspect(target: Target, mean: Any, root: Any, rule: Rule, options: Options) -> _judge.Shown:
    points = options.points(rule, target.structure.size)
    paired = isinstance(rule, Matched)
    seen = _engine.inspect_one(target, mean, root, points, paired=paired, memory=options.memory)
    return _judge.Shown.fetched(seen)


def _judge_laplace(case: Case) -> Judged:
    return _judge_one(case.target, case.found.mode, case.found.root.matrix, case.options)


def is_poor(numbers: LaplaceNumbers, seen: Judged) -> bool:
    """Laplace's Gaussian falls far short of its own evidence, or stands on a mended Hessian."""
    short = numbers.log_evidence - seen.diagnosis.elbo.value
    return not short < max(1.0, 0.1 * seen.z.shape[1]) or numbers.n_repaired > 0


def _judge_one(target: Target, mean: Any, root: Any, options: Options) -> Judged:
    z = _judge.fresh_draws(options, target.structure.size)
    log_p = _engine.log_densities_one(target, mean, root, z, memory=options.memory)
    return _judge.judged(z, np.asarray(log_p), np.asarray(root))


def _diagnosed(case: Case, fitted: Fitted) -> tuple[Fitted, Elsewhere]:
    options, adapted = case.options, fitted.adapted
    target, mean, root = case.target, case.found.mode, case.found.root.matrix
    if adapted is not None:
        target, mean, root = target.at(adapted.theta), adapted.mean, adapted.root
    seen = fitted.seen or _judge_one(target, mean, root, options)
    if seen.diagnosis.wants_wider:
        seen = _look_wider(target, mean, root, seen, options)
    return dataclasses.replace(fitted, seen=seen), _look_around(case, fitted, mean, root, seen)


def _look_wider(target: Target, mean: Any, root: Any, seen: Judged, options: Options) -> Judged:
    z = _judge.wider_draws(options, target.structure.size)
    log_p = _engine.log_densities_one(target, mean, root, z, memory=options.memory)
    return _judge.with_wider(seen, z, np.asarray(log_p), np.asarray(root))


def _look_around(case: Case, fitted: Fitted, mean: Any, root: Any, seen: Judged) -> Elsewhere:
    """Mass and modes that the Gaussian `(mean, root)` does not reach."""
    target, options, numbers = case.target, case.options, case.numbers
    z = _judge.probes(options, case.dim)
    if z is None or seen.diagnosis.n_non_finite:
        return Elsewhere()
    mode, matrix = np.asarray(case.found.mode), np.asarray(case.found.root.matrix)
    elbo = seen.diagnosis.elbo.value

    def log_p(at: np.ndarray) -> np.ndarray:
        values = _engine.log_densities_one(target, mode, matrix, at, memory=options.memory)
        return np.asarray(values, dtype=np.float64)

    others: list[Mode] = []
    if fitted.name == "full" and target.theta.size == 0:
        # Stein steps may have left the mode far behind, or had none: probes go out from their end.
        if numbers.code is Code.OK:
            others.append(Mode(mode, matrix, numbers.log_evidence))
        mode, matrix = np.asarray(mean), np.asarray(root)
        peak = float(log_p(np.zeros_like(z[:1]))[0])
        numbers = numbers._replace(log_density=peak, log_evidence=elbo)
    at_probes = log_p(z)
    far = _judge.surprising(z, at_probes, numbers)
    modes = [Mode(mode, matrix, numbers.log_evidence), *others]
    if len(far) == 0:
        return _judge.elsewhere(z, at_probes, modes, elbo, mode, matrix) if others else Elsewhere()
    # Always as many rays, so that they are compiled once.
    filled = np.resize(far, (_judge.MOST_CLIMBS, far.shape[1]))
    along = log_p(_judge.rays(filled))[: len(far) * len(_judge.FRACTIONS)]
    for probe in _judge.worth_climbing(far, along, numbers):
        other, _, its_numbers = _engine.laplace_one(
            target, mode + matrix @ probe, **options.other_modes
        )
        its_numbers = LaplaceNumbers.fetched(its_numbers)
        if its_numbers.code is Code.OK:
            place, its_root = np.asarray(other.mode), np.asarray(other.root.matrix)
            modes.append(Mode(place, its_root, its_numbers.log_evidence))
    # A bound at other hyperparameters is not this target's.
    evidence = elbo if target.theta.size == 0 else numbers.log_evidence
    return _judge.elsewhere(z, at_probes, modes, evidence, np.asarray(mean), np.asarray(root))
