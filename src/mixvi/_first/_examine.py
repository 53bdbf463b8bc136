"""What is asked of a fitted Gaussian: fresh draws, wider ones, far probes, other modes."""

import dataclasses
from typing import Any

import numpy as np

from .._diagnostics import Elsewhere
from .._draws import Matched
from .._errors import Code
from .._posterior import Judged
from .._target import Target
from . import _engine, _judge
from ._flow import Core
from ._judge import Mode
from ._laplace import LaplaceNumbers
from ._look import Inspection
from ._options import FirstOptions
from ._outcome import Case, Fitted, Rule


async def inspected(
    core: Core[Inspection], case: Case, rule: Rule, target: Target, *gaussian: Any
) -> _judge.Shown:
    return _judge.Shown.fetched(await core(target, *gaussian, **over_rule(case, rule)))


def over_rule(case: Case, rule: Rule) -> dict[str, Any]:
    points, paired = case.options.points(rule, case.target), isinstance(rule, Matched)
    return {"points": points, "paired": paired, "memory": case.options.memory}


def is_poor(case: Case, elbo: float) -> bool:
    """Laplace's Gaussian, with this bound on fresh draws, falls far short of its own evidence, or
    stands on a mended Hessian."""
    short = case.numbers.log_evidence - elbo
    return not short < max(1.0, 0.1 * case.dim) or case.numbers.n_repaired > 0


async def judge_one(target: Target, mean: Any, root: Any, options: FirstOptions) -> Judged:
    return _judge.judged(*await _seen_afresh(target, mean, root, options))


async def fresh_elbo(target: Target, mean: Any, root: Any, options: FirstOptions) -> float:
    """What `judge_one` says of the bound, without the rest."""
    return _judge.mean_ratio(*await _seen_afresh(target, mean, root, options))


async def _seen_afresh(
    target: Target, mean: Any, root: Any, options: FirstOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    z = _judge.fresh_draws(options, target.structure.size)
    log_p = await _engine.LOG_DENSITIES(target, mean, root, z=z, memory=options.memory)
    return z, np.asarray(log_p), np.asarray(root)


async def diagnosed(case: Case, fitted: Fitted) -> tuple[Fitted, Elsewhere]:
    options, adapted = case.options, fitted.adapted
    target, (mean, root) = case.target, case.laplace
    if adapted is not None:
        target, mean, root = target.at(adapted.theta), adapted.mean, adapted.root
    seen = fitted.seen or await judge_one(target, mean, root, options)
    if seen.diagnosis.wants_wider:
        seen = await _look_wider(target, mean, root, seen, options)
    return dataclasses.replace(fitted, seen=seen), await _look_around(
        case, fitted, mean, root, seen
    )


async def _look_wider(
    target: Target, mean: Any, root: Any, seen: Judged, options: FirstOptions
) -> Judged:
    z = _judge.wider_draws(options, target.structure.size)
    log_p = await _engine.LOG_DENSITIES(target, mean, root, z=z, memory=options.memory)
    return _judge.with_wider(seen, z, np.asarray(log_p), np.asarray(root))


async def _look_around(case: Case, fitted: Fitted, mean: Any, root: Any, seen: Judged) -> Elsewhere:
    """Mass and modes that the Gaussian `(mean, root)` does not reach."""
    target, options, numbers = case.target, case.options, case.numbers
    z = _judge.probes(options, case.dim)
    if z is None or seen.diagnosis.n_non_finite:
        return Elsewhere()
    mode, matrix = np.asarray(case.found.mode), np.asarray(case.found.root.matrix)
    elbo = seen.diagnosis.elbo.value

    async def log_p(*own: np.ndarray, **shared: np.ndarray) -> np.ndarray:
        ask = _engine.LOG_DENSITIES(target, mode, matrix, *own, **shared, memory=options.memory)
        return np.asarray(await ask, dtype=np.float64)

    others: list[Mode] = []
    if fitted.name == "full" and target.theta.size == 0:
        # Stein steps may have left the mode far behind, or had none: probes go out from their end.
        if numbers.code is Code.OK:
            others.append(Mode(mode, matrix, numbers.log_evidence))
        mode, matrix = np.asarray(mean), np.asarray(root)
        peak = float((await log_p(np.zeros_like(z[:1])))[0])
        numbers = numbers._replace(log_density=peak, log_evidence=elbo)
    at_probes = await log_p(z=z)
    far = _judge.surprising(z, at_probes, numbers)
    modes = [Mode(mode, matrix, numbers.log_evidence), *others]
    if len(far) == 0:
        return _judge.elsewhere(z, at_probes, modes, elbo, mode, matrix) if others else Elsewhere()
    # Always as many rays, so that they are compiled once.
    filled = np.resize(far, (_judge.MOST_CLIMBS, far.shape[1]))
    along = (await log_p(_judge.rays(filled)))[: len(far) * len(_judge.FRACTIONS)]
    for probe in _judge.worth_climbing(far, along, numbers):
        other, _, its_numbers = await _engine.LAPLACE(
            target, mode + matrix @ probe, patient=not options.hasty, **options.other_modes
        )
        its_numbers = LaplaceNumbers.fetched(its_numbers)
        if its_numbers.code is Code.OK:
            place, its_root = np.asarray(other.mode), np.asarray(other.root.matrix)
            modes.append(Mode(place, its_root, its_numbers.log_evidence))
    # A bound at other hyperparameters is not this target's.
    evidence = elbo if target.theta.size == 0 else numbers.log_evidence
    return _judge.elsewhere(z, at_probes, modes, evidence, np.asarray(mean), np.asarray(root))
