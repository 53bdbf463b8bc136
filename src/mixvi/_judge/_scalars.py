"""What draws tell of a Gaussian, as numbers: the bound, k-hat, errors of the moments.

Functions of one problem's arrays over a namespace `xp`: NumPy for one problem; `jax.numpy` under
`vmap` and `jit` for many. What is not a number stays one, and is put into words later.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._arrays._roots import colour, sds
from .._law._gaussian import normal_logpdf
from ._diagnosis import Diagnosis, Estimate, Moments
from ._probes import reach
from ._psis import smoothed_weights


class FreshScalars(NamedTuple):
    """What fresh draws tell: fields of `Diagnosis`."""

    elbo: Any
    se: Any
    khat: Any
    kl: Any
    ess: Any
    n_non_finite: Any

    def diagnosis(self, n_draws: int) -> Diagnosis:
        if self.n_non_finite:
            lost = Estimate(-math.inf, math.nan)
            n_bad = int(self.n_non_finite)
            return Diagnosis(lost, math.inf, math.inf, 0.0, n_bad, n_draws)
        elbo, se, khat, kl, ess, _ = (float(one) for one in self)
        return Diagnosis(Estimate(elbo, se), khat, kl, ess, 0, n_draws)


class MixedScalars(NamedTuple):
    """What draws from a mixture tell: fields of `Moments`."""

    khat: Any
    kl: Any
    mean_off: Any
    mean_se: Any
    mean_at: Any
    sd_ratio: Any
    sd_se: Any
    sd_at: Any
    tail_share: Any

    @property
    def moments(self) -> Moments:
        told = {name: float(one) for name, one in zip(self._fields, self, strict=True)}
        return Moments(**{**told, "mean_at": int(told["mean_at"]), "sd_at": int(told["sd_at"])})


def diagnose(log_p: Float[np.ndarray, " n"], log_q: Float[np.ndarray, " n"]) -> Diagnosis:
    """What draws of the Gaussian itself say of it."""
    return fresh_scalars(log_p, log_q).diagnosis(len(log_p))


def fresh_scalars(log_p: Float[Any, " n"], log_q: Float[Any, " n"], xp: Any = np) -> FreshScalars:
    """ELBO = mean(log p~ - log q): on a Gaussian target this has no noise at all."""
    log_ratio = log_p - log_q
    n = len(log_ratio)
    n_bad = (~xp.isfinite(log_ratio)).sum()
    # What is not finite is told by `n_bad` alone.
    log_ratio = xp.where(n_bad > 0, 0.0, log_ratio)
    elbo, se = log_ratio.mean(), log_ratio.std(ddof=1) / math.sqrt(n)
    weights, khat = smoothed_weights(log_ratio, xp)
    kl = xp.maximum(_log_mean_exp(log_ratio, xp) - elbo, 0.0)
    return FreshScalars(elbo, se, khat, kl, 1 / (weights**2).sum(), n_bad)


def mixed_scalars(
    z: Float[Any, "n dim"],
    log_p: Float[Any, " n"],
    log_mixture: Float[Any, " n"],
    root: Any,
    elbo: Any,
    log_det: Any,
    xp: Any = np,
    steps: Any = None,
    log_own: Any = None,
    reached: Any = None,
) -> MixedScalars:
    """From draws `root z` of a mixture that holds the Gaussian and others around it, with the log
    density `log_mixture` of `z`: k-hat, and how far weighted draws put the moments from the
    Gaussian's own. The worst of many moments is the worst by luck, too: so much is taken off.
    Where the log density is not finite there is no mass. `steps`: along the parameters, in standard
    deviations, where they are known. `log_own`: the density of what is judged, where that is not a
    standard normal; `reached`: the points that it reaches, but for 0.1% of its mass."""
    dim = z.shape[1]
    log_ratio = xp.where(xp.isfinite(log_p), log_p - log_mixture, -math.inf)
    weights, khat = smoothed_weights(log_ratio, xp)
    # The mean weight of the Gaussian itself would be one: what it misses is luck, of both.
    own = normal_logpdf(z, 0.0) if log_own is None else log_own
    luck = _log_mean_exp(own - log_mixture, xp)
    kl = xp.maximum(_log_mean_exp(log_ratio, xp) - luck + log_det - elbo, 0.0)
    steps = colour(root, z) / sds(root) if steps is None else steps
    errors = errors_of(steps, weights, own - log_mixture, xp)
    by_luck = 0.5 * math.sqrt(2 * math.log(2 * dim))
    mean_at, off, se = worst_of(errors.mean, errors.mean_se, by_luck, xp)
    sd_at, log_sd, sd_se = worst_of(errors.log_sd, errors.log_sd_se, by_luck, xp)
    far = (z**2).sum(1) > reach(dim) ** 2 if reached is None else ~reached
    tail = (weights * far).sum()
    return MixedScalars(khat, kl, off, se, mean_at, xp.exp(log_sd), sd_se, sd_at, tail)


class MomentErrors(NamedTuple):
    """Of every parameter: of its mean, in standard deviations, and of the log of its standard
    deviation, with standard errors."""

    mean: Any
    mean_se: Any
    log_sd: Any
    log_sd_se: Any


def moment_errors(
    z: Float[Any, "n dim"],
    log_p: Float[Any, " n"],
    log_mixture: Float[Any, " n"],
    root: Any,
    steps: Any = None,
    log_own: Any = None,
) -> MomentErrors:
    log_ratio = np.where(np.isfinite(log_p), log_p - log_mixture, -math.inf)
    steps = colour(root, z) / sds(root) if steps is None else steps
    own = (normal_logpdf(z, 0.0) if log_own is None else log_own) - log_mixture
    return errors_of(steps, smoothed_weights(log_ratio)[0], own, np)


def errors_of(
    steps: Float[Any, "n dim"],
    weights: Float[Any, " n"],
    log_own: Float[Any, " n"],
    xp: Any,
) -> MomentErrors:
    # With these weights the points stand for the Gaussian itself: what their moments miss then is
    # luck.
    own = xp.exp(log_own)
    own = own / own.sum()
    squares, differs = steps**2, (weights - own) ** 2
    shift, luck = weights @ steps, own @ steps
    square = weights @ squares - shift**2 - (own @ squares - luck**2 - 1)
    square = xp.maximum(square, 1e-4)
    return MomentErrors(
        xp.abs(shift - luck),
        xp.sqrt(differs @ squares),
        xp.abs(0.5 * xp.log(square)),
        0.5 * xp.sqrt(differs @ (squares - 1) ** 2) / square,
    )


def worst_of(off: Any, se: Any, by_luck: float, xp: Any) -> tuple[Any, Any, Any]:
    """Where, how much beyond luck, and its standard error."""
    beyond = xp.maximum(off - by_luck * se, 0.0)
    at = beyond.argmax()
    return at, beyond[at], se[at]


def _log_mean_exp(log_ratio: Float[Any, " n"], xp: Any) -> Any:
    peak = log_ratio.max()
    return peak + xp.log(xp.exp(log_ratio - peak).mean())


def wider_by(dim: int) -> float:
    """How much wider a Gaussian may be whose draws stand for this one's: its weights must bear
    it."""
    return 1 + 1 / math.sqrt(dim)
