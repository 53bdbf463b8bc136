"""Fresh draws: what a Gaussian is worth at points that it was not fitted to."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from .._density._protocol import Density, Matrix, coloured
from .._diagnostics import UNKNOWN, diagnose, moments, psis, wider_by
from .._draws import FRESH, IID, WIDER, generator_of, key_words
from .._posterior import Judged, normal_logpdf

Vector = Float[np.ndarray, " dim"]
# Draws are doubled while the bound on fresh draws is lower by more than this (in nats) and by
# more than its noise.
GAP = 0.01
# Where log ratios of so many draws vary by less than so many nats, more would say the same: the
# bound's standard error is below 0.003.
FIRST_LOOK, NEXT_TO_NOTHING = 250, 0.045
FEW = 64


def judged(density: Density, mean: Vector, root: Matrix, key: Any, n: int) -> Judged:
    """`log p~` against `log q` at `n` fresh points of `N(mean, root root^T)`; at the first of them
    alone where the two differ by next to nothing."""
    z = fresh_draws(key, n, density.dim)
    log_q, few = log_q_of(z, root), min(n, FIRST_LOOK)
    log_p = density.values(coloured(mean, root, z[:few]))
    ratio = log_p - log_q[:few]
    if not np.isfinite(ratio).all() or ratio.std() > NEXT_TO_NOTHING:
        log_p = np.concatenate([log_p, density.values(coloured(mean, root, z[few:]))])
    n = len(log_p)
    return Judged(diagnose(log_p, log_q[:n], z[:n], root), z[:n], log_p, log_q[:n])


def distance(density: Density, mean: Vector, root: Matrix, key: Any) -> float:
    """Nats from the posterior as a few fresh draws see it: half the variance of `log p~ - log q`,
    which is the divergence where that is small."""
    z = fresh_draws(key, FIRST_LOOK, density.dim)[:FEW]
    ratio = density.values(coloured(mean, root, z)) - log_q_of(z, root)
    return float(0.5 * ratio.var()) if np.isfinite(ratio).all() else math.inf


def fresh_elbo(density: Density, mean: Vector, root: Matrix, key: Any, n: int) -> float:
    """What `judged` says of the bound, without the rest; -inf where a density is not finite."""
    z = fresh_draws(key, n, density.dim)
    ratio = density.values(coloured(mean, root, z)) - log_q_of(z, root)
    return float(ratio.mean()) if np.isfinite(ratio).all() else -math.inf


def fresh_draws(key: Any, n: int, dim: int) -> Float[np.ndarray, "n dim"]:
    return IID(n).make(key, dim, FRESH)


def log_q_of(z: Float[np.ndarray, "n dim"], root: Matrix) -> Float[np.ndarray, " n"]:
    log_det = np.log(np.abs(root)).sum() if root.ndim == 1 else np.linalg.slogdet(root)[1]
    return normal_logpdf(z, float(log_det))


def with_wider_draws(
    density: Density, mean: Vector, root: Matrix, key: Any, seen: Judged
) -> Judged:
    """Draws of a wider Gaussian as well, for posteriors that are not quite Gaussian."""
    z = _wider(key_words(key), len(seen.z), density.dim)
    log_p = density.values(coloured(mean, root, z))
    log_ratio = log_p + 0.5 * (z**2).sum(1) / wider_by(density.dim) ** 2
    told = moments(z, *psis(log_ratio), root) if np.isfinite(log_ratio).all() else UNKNOWN
    return dataclasses.replace(seen, diagnosis=dataclasses.replace(seen.diagnosis, wider=told))


@functools.lru_cache(maxsize=2)
def _wider(words: tuple[int, ...], n: int, dim: int) -> np.ndarray:
    return wider_by(dim) * generator_of(words, WIDER).standard_normal((n, dim))


def wants_more_draws(elbo_fixed: float, n_fixed: int, seen: Judged) -> bool:
    """The fixed draws' own noise is at most that of as many fresh ones. A bound far below the fresh
    one is as bad a sign as one above: the fixed draws stand for another distribution."""
    elbo = seen.diagnosis.elbo
    noise = elbo.se * math.sqrt(1 + len(seen.log_p) / n_fixed)
    return math.isfinite(elbo.value) and abs(elbo_fixed - elbo.value) > max(GAP, 2 * noise)
