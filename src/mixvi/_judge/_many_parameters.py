"""What may be said of a Gaussian over many parameters: fresh draws, some parameters one by one.

Draws go in blocks and are not kept: a key makes them again. Where weights of draws can be believed,
they check means and standard deviations of some parameters. In very many dimensions they cannot,
however near the Gaussian is in each: then half the variance of `log p~ - log q` tells how many nats
it is away (a sum over many parameters is nearly normal), and the word is no better than "care".
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._arrays._draws import FRESH, generator
from .._arrays._roots import Root, colour, log_det, sds
from .._density._protocol import Density
from ._diagnosis import Diagnosis, Moments
from ._fresh import Judged
from ._psis import smoothed_weights
from ._scalars import errors_of, fresh_scalars, worst_of
from ._verdict import (
    DEFAULT_THRESHOLDS,
    REJECT,
    SEVERITY,
    TRUST,
    WEIGH,
    Reason,
    Subject,
    Verdict,
    of_draws,
    of_fixed_draws,
    of_hyperparameters,
    of_the_search,
)

Vector = Float[np.ndarray, " dim"]
# Parameters that are looked at one by one: those that the data say most of, and some evenly.
LEARNT, EVENLY = 16, 48
# Numbers in a block of draws; draws that judge where the user names no number.
BLOCK, DRAWS = 2**23, 256
# More where these leave the word open and are cheap: up to so many parameters.
MORE, CHEAP = 1000, 20_000
# Standard errors with which weighted draws say nothing of means and standard deviations: few draws
# make k-hat look better than it is.
MEAN_SE, SD_SE = 0.1, 0.08


class JudgedMany(NamedTuple):
    """`places`: of the parameters that were looked at."""

    judged: Judged
    places: Int[np.ndarray, " some"]


def looked_at(root: Root, prior_variances: Vector) -> Int[np.ndarray, " some"]:
    dim = len(prior_variances)
    most = np.argsort(sds(root) ** 2 / prior_variances, kind="stable")[:LEARNT]
    evenly = np.linspace(0, dim - 1, min(EVENLY, dim)).astype(np.int64)
    return np.unique(np.concatenate([most, evenly]))


def judged_many(
    density: Density, mean: Vector, root: Root, key: Any, n: int, places: Int[np.ndarray, " some"]
) -> JudgedMany:
    dim, rng = len(mean), generator(key, FRESH)
    log_p, square, steps = [], [], []
    scale, size = sds(root)[places], max(1, min(n, BLOCK // dim))
    for first in range(0, n, size):
        z = rng.standard_normal((min(size, n - first), dim))
        moved = colour(root, z)
        log_p.append(density.values(mean + moved))
        square.append((z**2).sum(1))
        steps.append(moved[:, places] / scale)
    # Of the squares alone: the draws themselves are gone.
    log_q = -0.5 * np.concatenate(square) - 0.5 * dim * math.log(2 * math.pi) - log_det(root)
    ps = np.concatenate(log_p)
    diagnosis = _diagnosed(ps, log_q, np.concatenate(steps))
    return JudgedMany(Judged(diagnosis, np.zeros((0, dim)), ps, log_q), places)


def _diagnosed(log_p: np.ndarray, log_q: np.ndarray, steps: np.ndarray) -> Diagnosis:
    found = fresh_scalars(log_p, log_q).diagnosis(len(log_p))
    if found.n_non_finite:
        return found
    ratio = log_p - log_q
    away = 0.5 * float(ratio.var(ddof=1))
    if found.khat > found.khat_limit:
        return dataclasses.replace(found, kl=away)
    # Weighted draws of the Gaussian itself; without weights they show what is luck.
    weights = smoothed_weights(ratio)[0]
    errors = errors_of(steps, weights, np.zeros(len(ratio)), np)
    by_luck = 0.5 * math.sqrt(2 * math.log(2 * steps.shape[1]))
    mean_at, mean_off, mean_se = worst_of(errors.mean, errors.mean_se, by_luck, np)
    sd_at, log_sd, sd_se = worst_of(errors.log_sd, errors.log_sd_se, by_luck, np)
    moments = Moments(
        khat=found.khat,
        kl=found.kl,
        mean_off=float(mean_off),
        mean_se=float(mean_se),
        mean_at=int(mean_at),
        sd_ratio=float(np.exp(log_sd)),
        sd_se=float(sd_se),
        sd_at=int(sd_at),
        tail_share=0.0,
    )
    if mean_se > MEAN_SE or sd_se > SD_SE:
        return dataclasses.replace(found, kl=max(away, found.kl))
    return dataclasses.replace(found, moments=moments)


def judge_many(subject: Subject, dim: int, diagnosis: Diagnosis | None, one_mode: bool) -> Verdict:
    """`subject`: with the names of the parameters that were looked at. `one_mode`: whether there
    can be no other."""
    reasons = of_the_search(subject)
    if diagnosis is not None:
        reasons += _of_draws(subject, dim, diagnosis)
        reasons += of_fixed_draws(subject, diagnosis)
    reasons += of_hyperparameters(subject)
    reasons.sort(key=lambda one: -SEVERITY.index(one.level))
    if diagnosis is None and not reasons:
        return Verdict(None, (), "Not judged: diagnostics were switched off.")
    level = reasons[0].level if reasons else TRUST
    return Verdict(
        level, tuple(reasons), _sentence(level, reasons, subject, dim, diagnosis, one_mode)
    )


def _of_draws(subject: Subject, dim: int, d: Diagnosis) -> list[Reason]:
    limits = DEFAULT_THRESHOLDS
    far = max(limits.far, limits.far_per_dimension * dim)
    if d.n_non_finite or d.moments is not None:
        return of_draws(subject, d, dataclasses.replace(limits, far=far))
    if d.kl > far:
        said = (
            f"it is about {d.kl:.2g} nat from the posterior (limit {far:.2g}), {d.kl / dim:.1g} "
            "for each parameter; write it in other parameters"
        )
        return [Reason("distance", REJECT, None, d.kl, far, said)]
    said = (
        f"draws of {dim} parameters at once cannot check single means and standard deviations "
        f"(k-hat {d.khat:.2f}, {d.ess:.0f} effective draws of {d.n_draws}); what they do tell is "
        "that it is about "
        f"{d.kl:.2g} nat from the posterior, {d.kl / dim:.1g} for each parameter"
    )
    return [Reason("khat", WEIGH, None, d.khat, d.khat_limit, said)]


def _sentence(
    level: str,
    reasons: list[Reason],
    subject: Subject,
    dim: int,
    d: Diagnosis | None,
    one_mode: bool,
) -> str:
    modes = "" if one_mode else " Other modes were not looked for."
    if level == TRUST:
        assert d is not None
        assert d.moments is not None
        return (
            f"Trust: fresh draws agree with the Gaussian (k-hat {d.khat:.2f}, about {d.kl:.2g} nat "
            f"from the posterior, {d.moments} at {len(subject.names)} of {dim} parameters).{modes}"
        )
    worst = [one for one in reasons if one.level == level]
    said = worst[0].sentence.rstrip(".")
    if len(worst) > 1 and worst[0].test != "finite":
        said = f"{said}; also, {worst[1].sentence.rstrip('.')}"
    word = "Do not trust" if level == REJECT else "Use with care"
    return f"{word}: {said}.{modes}"
