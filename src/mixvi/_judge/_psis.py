"""Pareto-smoothed importance sampling (Vehtari et al. 2024).

Functions of one problem's arrays over a namespace `xp`: NumPy for one problem; `jax.numpy` under
`vmap` and `jit` for many.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

# Log ratios that differ by less than this are the same: a Gaussian target.
CONSTANT = 1e-6


def psis(log_ratio: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], float]:
    """Pareto-smoothed importance weights (normalised) and the shape k-hat (Vehtari et al. 2024).

    k-hat is 0 when the weights do not vary.

    >>> import numpy as np
    >>> import mixvi
    >>> x = np.random.default_rng(0).standard_normal(2000)  # draws of N(0, 1) stand for N(0.3, 1)
    >>> weights, khat = mixvi.psis(0.3 * x)
    >>> bool(abs(weights @ x - 0.3) < 0.05), bool(khat < 0.7)
    (True, True)
    """
    weights, khat = smoothed_weights(np.asarray(log_ratio, dtype=np.float64))
    return weights, float(khat)


def smoothed_weights(log_ratio: Float[Any, " n"], xp: Any = np) -> tuple[Float[Any, " n"], Any]:
    """`psis` of one problem or, under `vmap`, of many."""
    n = len(log_ratio)
    n_tail = int(min(n / 5, 3 * math.sqrt(n)))
    shifted = log_ratio - xp.max(log_ratio)
    varies = shifted.min() < -CONSTANT
    if n_tail <= 4:
        weights = xp.exp(shifted)
        return weights / weights.sum(), xp.where(varies, math.inf, 0.0)
    order = xp.argsort(shifted, kind="stable") if xp is np else xp.argsort(shifted)
    ranked = shifted[order]
    body, tail = ranked[:-n_tail], ranked[-n_tail:]
    cutoff = xp.exp(xp.maximum(body[-1], math.log(np.finfo(np.float64).tiny)))
    over = xp.exp(tail) - cutoff
    with np.errstate(all="ignore"):
        khat, scale = _generalised_pareto(over, xp)
        # A quarter of the tail no larger than the cut-off: one or few weights hold everything.
        khat = xp.where((over[n_tail // 4] > 0) & xp.isfinite(khat), khat, math.inf)
        khat = xp.where(varies, khat, 0.0)
        quantiles = (xp.arange(n_tail) + 0.5) / n_tail
        smooth = xp.log(_pareto_quantile(quantiles, khat, scale, xp) + cutoff)
        # No smoothed weight is larger than the largest raw one.
        smooth = xp.minimum(smooth, 0.0)
    tail = xp.where(varies & xp.isfinite(khat), smooth, tail)
    weights = xp.exp(xp.concatenate([body, tail])[xp.argsort(order)])
    return weights / weights.sum(), khat


def _generalised_pareto(over: Float[Any, " tail"], xp: Any) -> tuple[Any, Any]:
    """Shape and scale of exceedances in ascending order (Zhang and Stephens 2009), the shape
    drawn towards 1/2 with the weight of ten observations; infinite where one exceedance is all
    there is."""
    n = len(over)
    n_grid = 30 + math.isqrt(n)
    grid = 1 - xp.sqrt(n_grid / (xp.arange(1, n_grid + 1) - 0.5))
    grid = grid / (3 * over[int(n / 4 + 0.5) - 1]) + 1 / over[-1]
    shapes = xp.log1p(-grid[:, None] * over).mean(1)
    log_likelihood = n * (xp.log(-(grid / shapes)) - shapes - 1)
    weights = xp.exp(log_likelihood - log_likelihood.max())
    weights = weights / weights.sum()
    weights = xp.where(weights >= 10 * np.finfo(float).eps, weights, 0.0)
    theta = (grid * weights).sum() / weights.sum()
    shape = xp.log1p(-theta * over).mean()
    khat = (n * shape + 10 * 0.5) / (n + 10)
    return xp.where((theta == 0) | ~xp.isfinite(theta), math.inf, khat), -shape / theta


def _pareto_quantile(
    p: Float[Any, " tail"], shape: Any, scale: Any, xp: Any
) -> Float[Any, " tail"]:
    straight = xp.abs(shape) < np.finfo(float).eps
    safe = xp.where(straight, 1.0, shape)
    bent = scale * xp.expm1(-safe * xp.log1p(-p)) / safe
    return xp.where(straight, -scale * xp.log1p(-p), bent)
