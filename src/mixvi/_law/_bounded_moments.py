"""Means and standard deviations of bounded parameters whose unbounded ones are Gaussian, or a
mixture of Gaussians."""

import functools
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._draws import FIXED, Sobol
from .._arrays._roots import covariance, sds
from .._density._constraints import Constraints
from .._density._kinds import Free, Interval, Kind, Simplex
from ._mixture import Law

# For what has no closed form: always the same draws.
N_FIXED = 2**14
# Beyond nine standard deviations lies 2e-19 of the mass; beyond 40 a sigmoid is zero or one.
REACH, SATURATED = 9.0, 40.0

Vector = Float[np.ndarray, "..."]


def bounded_moments(
    constraints: Constraints, law: Law
) -> tuple[Float[np.ndarray, " user"], Float[np.ndarray, " user"]]:
    """Means and standard deviations of `T(u)`, `u` from the law, in the user's order."""
    each = [_of_gaussian(constraints, one.mean, one.root) for one in law.components]
    if len(each) == 1:
        return each[0]
    means, sds = (np.stack([one[i] for one in each]) for i in (0, 1))
    mean = law.weights @ means
    return mean, np.sqrt(law.weights @ (sds**2 + (means - mean) ** 2))


def _of_gaussian(
    constraints: Constraints,
    mean: Float[np.ndarray, " dim"],
    root: Any,
) -> tuple[Float[np.ndarray, " user"], Float[np.ndarray, " user"]]:
    mean, root = mean.astype(np.float64), root.astype(np.float64)
    places = constraints.free.leaves(np.arange(mean.size))
    if not (np.isfinite(mean).all() and np.isfinite(root).all()):
        unknown = np.full(constraints.user.size, np.nan)
        return unknown, unknown
    both = [
        _of_leaf(kind, at, mean, root) for kind, at in zip(constraints.kinds, places, strict=True)
    ]
    means, sds = (np.concatenate([np.ravel(one[i]) for one in both]) for i in (0, 1))
    return means, sds


def _of_leaf(kind: Kind, at: np.ndarray, mean: np.ndarray, root: np.ndarray) -> tuple:
    """`at`: where the leaf's unbounded numbers stand."""
    at = np.atleast_1d(at)
    sd = sds(root)[at]
    if isinstance(kind, Free):
        return mean[at], sd
    if isinstance(kind, Interval):
        return _of_interval(kind, mean[at], sd)
    of_row = _of_simplex if isinstance(kind, Simplex) else _of_ordered
    rows = at.reshape(-1, at.shape[-1])
    each = [of_row(mean[row], covariance(root[row])) for row in rows]
    return np.stack([m for m, _ in each]), np.stack([s for _, s in each])


def _of_interval(kind: Interval, mean: Vector, sd: Vector) -> tuple[Vector, Vector]:
    if not kind.is_two_sided:
        scale, spread = _lognormal_moments(mean, sd**2)
        return (kind.low + scale if np.isfinite(kind.low) else kind.high - scale), spread
    share, spread = _logit_normal(mean, sd)
    width = kind.high - kind.low
    return kind.low + width * share, width * spread


def _lognormal_moments(mean: Vector, variance: Vector) -> tuple[Vector, Vector]:
    with np.errstate(over="ignore"):
        centre = np.exp(mean + 0.5 * variance)
        return centre, centre * np.sqrt(np.expm1(variance))


@functools.cache
def _panel() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(12)


def _logit_normal(mean: Vector, sd: Vector) -> tuple[Vector, Vector]:
    """Of `sigmoid(u)`, for any width: panels of half a standard deviation, cut further wherever
    the sigmoid bends, two units of `u` at a time, with Gauss-Legendre on each."""
    from scipy import special  # takes 0.1 s, and few need it

    m, s = (np.ravel(part)[:, None] for part in (mean, sd))
    with np.errstate(divide="ignore", invalid="ignore"):
        bends = (np.linspace(-SATURATED, SATURATED, 41) - m) / s
    grid = np.broadcast_to(np.linspace(-REACH, REACH, 37), (len(m), 37))
    bends = np.clip(np.nan_to_num(bends), -REACH, REACH)
    cuts = np.sort(np.concatenate([grid, bends], 1), 1)
    middle, half = 0.5 * (cuts[:, 1:] + cuts[:, :-1]), 0.5 * (cuts[:, 1:] - cuts[:, :-1])
    nodes, weights = _panel()
    z = (middle[..., None] + half[..., None] * nodes).reshape(len(m), -1)
    density = (half[..., None] * weights).reshape(len(m), -1) * np.exp(-0.5 * z**2)
    density /= density.sum(1, keepdims=True)
    share = special.expit(m + s * z)
    centre = (density * share).sum(1, keepdims=True)
    spread = np.sqrt((density * (share - centre) ** 2).sum(1))
    return centre.reshape(np.shape(mean)), spread.reshape(np.shape(mean))


def fixed_draws(mean: Vector, cov: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "draws n"]:
    """Of `N(mean, cov)`."""
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0))
    return mean + Sobol(N_FIXED).make(0, len(mean), FIXED) @ root.T


def _of_simplex(mean: Vector, cov: Float[np.ndarray, "n n"]) -> tuple[Vector, Vector]:
    from scipy import special

    t = fixed_draws(mean, cov) - Simplex.centre(len(mean))
    left = np.cumprod(special.expit(-t), 1)
    x = special.expit(t) * np.concatenate([np.ones((len(t), 1)), left[:, :-1]], 1)
    x = np.concatenate([x, left[:, -1:]], 1)
    return x.mean(0), x.std(0)


def _of_ordered(mean: Vector, cov: Float[np.ndarray, "n n"]) -> tuple[Vector, Vector]:
    """Sums of a normal and of log-normals:
    `Cov(e^u_i, e^u_j) = mu_i mu_j expm1(C_ij)`, `Cov(u_1, e^u_j) = C_1j mu_j`."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.exp(mean[1:] + 0.5 * np.diagonal(cov)[1:])
        spread = cov.copy()
        spread[1:, 1:] = steps[:, None] * steps * np.expm1(cov[1:, 1:])
        spread[0, 1:] = spread[1:, 0] = cov[0, 1:] * steps
        variance = np.diagonal(spread.cumsum(0).cumsum(1))
        centre = np.cumsum(np.concatenate([mean[:1], steps]))
    return centre, np.sqrt(np.maximum(variance, 0))
