"""What fresh draws tell of a Gaussian, as numbers: the bound, k-hat, errors of the moments.

Functions of one problem's arrays over a namespace `xp`: NumPy for one problem; `jax.numpy` under
`vmap` and `jit` for many. What is not a number stays one, and is put into words later.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._arrays._roots import colour, sds
from ._psis import smoothed_weights
from ._verdict import UNKNOWN, Diagnosis, Estimate, Moments


class FreshScalars(NamedTuple):
    """What fresh draws tell, as numbers: the fields of `Diagnosis`."""

    elbo: Any
    se: Any
    khat: Any
    kl: Any
    ess: Any
    mean_off: Any
    sd_ratio: Any
    n_non_finite: Any

    def diagnosis(self, n_draws: int) -> Diagnosis:
        if self.n_non_finite:
            lost = Estimate(-math.inf, math.nan)
            n_bad = int(self.n_non_finite)
            return Diagnosis(lost, math.inf, math.inf, 0.0, UNKNOWN, n_bad, n_draws)
        elbo, se, khat, kl, ess, mean_off, sd_ratio, _ = (float(one) for one in self)
        moments = Moments(khat, mean_off, sd_ratio)
        return Diagnosis(Estimate(elbo, se), khat, kl, ess, moments, 0, n_draws)


def diagnose(
    log_p: Float[np.ndarray, " n"],
    log_q: Float[np.ndarray, " n"],
    z: Float[np.ndarray, "n dim"],
    root: Any,
) -> Diagnosis:
    """What draws `root z` around the mean say of the Gaussian."""
    return fresh_scalars(log_p, log_q, z, root).diagnosis(len(z))


def fresh_scalars(
    log_p: Float[Any, " n"],
    log_q: Float[Any, " n"],
    z: Float[Any, "n dim"],
    root: Any,
    xp: Any = np,
) -> FreshScalars:
    """ELBO = mean(log p~ - log q): on a Gaussian target this has no noise at all."""
    log_ratio = log_p - log_q
    n = len(log_ratio)
    n_bad = (~xp.isfinite(log_ratio)).sum()
    # What is not finite is told by `n_bad` alone.
    log_ratio = xp.where(n_bad > 0, 0.0, log_ratio)
    elbo, se = log_ratio.mean(), log_ratio.std(ddof=1) / math.sqrt(n)
    weights, khat = smoothed_weights(log_ratio, xp)
    peak = log_ratio.max()
    kl = xp.maximum(peak + xp.log(xp.exp(log_ratio - peak).mean()) - elbo, 0.0)
    mean_off, sd_ratio = moments_off(z, weights, root, xp.full(n, 1 / n), xp)
    return FreshScalars(elbo, se, khat, kl, 1 / (weights**2).sum(), mean_off, sd_ratio, n_bad)


def wider_scalars(
    z: Float[Any, "n dim"], log_p: Float[Any, " n"], root: Any, xp: Any = np
) -> tuple[Any, Any, Any]:
    """k-hat and errors of the moments, from draws `root z` of the wider Gaussian, `z` of standard
    deviation `wider_by`; infinite where a density is not finite."""
    half = 0.5 * (z**2).sum(1)
    narrowed = half / wider_by(z.shape[1]) ** 2
    log_ratio = log_p + narrowed
    finite = xp.isfinite(log_ratio).all()
    own = xp.exp(narrowed - half)
    weights, khat = smoothed_weights(xp.where(finite, log_ratio, 0.0), xp)
    scalars = (khat, *moments_off(z, weights, root, own / own.sum(), xp))
    khat, mean_off, sd_ratio = (xp.where(finite, one, math.inf) for one in scalars)
    return khat, mean_off, sd_ratio


def moments_off(
    z: Float[Any, "n dim"], weights: Float[Any, " n"], root: Any, own: Float[Any, " n"], xp: Any
) -> tuple[Any, Any]:
    """The largest error of a mean (in sds) and of a standard deviation (as a ratio) of the weighted
    points `root z`, against mean 0 and covariance `root root^T`. With weights `own` the points
    stand for that Gaussian itself: what their moments miss then is luck, and is taken off."""
    steps = colour(root, z) / sds(root)
    shift, luck = weights @ steps, own @ steps
    square = weights @ (steps - shift) ** 2
    square = xp.maximum(square - (own @ (steps - luck) ** 2 - 1), 1e-4)
    ratio = xp.sqrt(square)
    return xp.abs(shift - luck).max(), xp.maximum(ratio, 1 / ratio).max()


def wider_by(dim: int) -> float:
    """How much wider that Gaussian is: as much as its weights can bear."""
    return 1 + 1 / math.sqrt(dim)
