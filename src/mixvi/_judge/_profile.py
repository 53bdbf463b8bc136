"""Funnels, which no draw of a Gaussian gets into: a scale near zero, and effects that must then be
near each other.

Where one parameter rules how wide the others are, its own marginal is told by going along it, and
taking the others for Gaussian at every stop (a nested Laplace approximation, as in INLA):

    log p(u_j) = max log p~(u) + (1/2) log det (2 pi Sigma_rest)  at u_j, up to a constant
"""

import dataclasses
import math
from collections.abc import Callable
from typing import TypeGuard

import numpy as np
from jaxtyping import Float

from .._arrays._roots import Root, dense
from .._density._protocol import Density
from .._law._gaussian import Gaussian
from .._law._mixture import GaussianMixture
from ._diagnosis import Moments
from ._fresh import Judged

Vector = Float[np.ndarray, " dim"]
Matrix = Float[np.ndarray, "dim dim"]

# Dimensions up to which some dozens of Hessians are worth their time.
MOST_PROFILED = 128
# What `log p~ - log q` must owe to one parameter that rules the widths of others, in nats, and in
# standard errors of that.
EFFECT, CLEARLY = 0.1, 4.0
# An outlier may say no more than this, in nats.
CLIPPED = 5.0
# Stops along the parameter, in its standard deviations; it ends where so many nats are lost. What
# lies beyond a loss of `ENOUGH` does not count.
FARTHEST, LOST, ENOUGH = 6, 8.0, 3.0
# At each, Newton's steps for the others, until the gain left is below this; halvings of a step.
STEPS, SMALL, HALVINGS = 8, 1e-4, 10
FEWEST, N_BETWEEN = 5, 2001
# The others are not quite Gaussian: a mean, in standard deviations, and a ratio are good to this.
GOOD_TO = (0.1, 1.1)


def profiled(density: Density, mean: Vector, root: Root, fresh: Judged) -> Judged:
    """`fresh`, with what the profile of a parameter that rules others adds to its moments."""
    if fresh.diagnosis.moments is None or len(fresh.z) != len(fresh.log_p):
        return fresh
    if not _is_apt(root, density):
        return fresh
    j = ruling(fresh, root)
    if j is None or (told := marginal(density, mean, root, j)) is None:
        return fresh
    return _and(fresh, j, *told)


def profiled_mixture(
    density: Density,
    law: GaussianMixture,
    fresh: Judged,
    one: Gaussian,
    draws: Callable[[], Judged],
) -> Judged:
    """The same of a mixture, along the parameter that rules as `draws` of the single Gaussian `one`
    before it show: draws of the mixture follow the widths as far as it goes. Given the parameter
    the rest need not be near a Gaussian, which moves the centre; a neck that the mixture leaves out
    makes the marginal wider, and only that counts."""
    if fresh.diagnosis.moments is None or not _is_apt(one.root, density):
        return fresh
    j = ruling(draws(), one.root)
    if j is None or (told := marginal(density, law.mean, dense(law.root), j)) is None:
        return fresh
    return _and(fresh, j, 0.0, max(told[1], 1.0))


def _is_apt(root: Root, density: Density) -> TypeGuard[np.ndarray]:
    if not isinstance(root, np.ndarray) or root.ndim != 2:
        return False
    return 1 < len(root) <= MOST_PROFILED and not (density.log_concave or density.in_pieces)


def _and(fresh: Judged, j: int, centre: float, sd: float) -> Judged:
    assert fresh.diagnosis.moments is not None
    worse = _with(fresh.diagnosis.moments, j, centre, sd)
    return dataclasses.replace(fresh, diagnosis=dataclasses.replace(fresh.diagnosis, moments=worse))


def ruling(fresh: Judged, root: Matrix) -> int | None:
    """The parameter along which the others widen or narrow, if there is one. Then `log p~ - log q`
    goes with `u_j (|z|^2 - u_j^2 - (D - 1))`, where `u_j` is the parameter in standard deviations
    and the rest is how far out the others are."""
    effects, errors = effects_of(fresh, root)
    j = int(np.argmax(np.abs(effects)))
    clear = abs(effects[j]) > max(EFFECT, CLEARLY * errors[j])
    return j if clear else None


def effects_of(fresh: Judged, root: Matrix) -> tuple[Vector, Vector]:
    """Of every parameter, with standard errors; zero where draws fall out of the support."""
    dim = fresh.z.shape[1]
    ratio = fresh.log_p - fresh.log_q
    if not np.isfinite(ratio).all():
        return np.zeros(dim), np.ones(dim)
    ratio = np.clip(ratio - np.median(ratio), -CLIPPED, CLIPPED)
    ratio = ratio - ratio.mean()
    u = fresh.z @ (root / np.sqrt((root**2).sum(1))[:, None]).T
    out = (fresh.z**2).sum(1)[:, None] - u**2 - (dim - 1)
    terms = ratio[:, None] * u * out / math.sqrt(2 * (dim - 1))
    return terms.mean(0), terms.std(0) / math.sqrt(len(terms))


def marginal(density: Density, mean: Vector, root: Matrix, j: int) -> tuple[float, float] | None:
    """Mean and standard deviation of parameter `j`, from the Gaussian's mean and in its standard
    deviations; None where there are too few stops to tell."""
    cov = root @ root.T
    sd = math.sqrt(cov[j, j])
    along = cov[:, j] / sd
    heights: dict[int, float] = {}
    for sign in (1, -1):
        point = mean.copy()
        for stop in range(FARTHEST + 1):
            if stop:
                point = point + sign * along
            found = _rest(density, point, j)
            if found is None:
                break
            point, heights[sign * stop] = found
            if heights[sign * stop] < max(heights.values()) - LOST:
                break
    if len(heights) < FEWEST:
        return None
    stops = sorted(heights)
    log_p = np.array([heights[stop] for stop in stops])
    between = np.linspace(stops[0], stops[-1], N_BETWEEN)
    p = np.exp(_interpolated(log_p - log_p.max(), between - stops[0]))
    p /= p.sum()
    centre = float(p @ between)
    spread = math.sqrt(float(p @ (between - centre) ** 2))
    # Where it could not go on, there may be more beyond: then it is at least as wide.
    is_whole = max(log_p[0], log_p[-1]) < log_p.max() - ENOUGH
    return (centre, spread) if is_whole or spread > 1 else None


def _interpolated(
    heights: Float[np.ndarray, " stops"], at: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Cubic pieces between heights at 0, 1, 2, ..., exact for a parabola."""
    slopes = np.gradient(heights, edge_order=2)
    k = np.minimum(at.astype(int), len(heights) - 2)
    t = at - k
    rise, left, right = heights[k + 1] - heights[k], slopes[k], slopes[k + 1]
    return heights[k] + t * (
        left + t * (3 * rise - 2 * left - right + t * (left + right - 2 * rise))
    )


def _rest(density: Density, point: Vector, j: int) -> tuple[Vector, float] | None:
    """The others at their best with `u_j` held, and the log of the mass there; None where they
    have no such place nearby."""
    rest = np.arange(len(point)) != j
    value, gradient, hessian = density.curvature(point)
    for _ in range(STEPS):
        if not (math.isfinite(value) and np.isfinite(hessian).all()):
            return None
        try:
            factor = np.linalg.cholesky(-hessian[np.ix_(rest, rest)])
        except np.linalg.LinAlgError:
            return None
        step = np.linalg.solve(factor.T, np.linalg.solve(factor, gradient[rest]))
        if gradient[rest] @ step < SMALL:
            return point, value - float(np.log(np.diag(factor)).sum())
        trials = point + np.zeros((HALVINGS, 1))
        trials[:, rest] += 0.5 ** np.arange(HALVINGS)[:, None] * step
        higher = np.flatnonzero(density.values(trials) > value)
        if not len(higher):
            return None
        point = trials[higher[0]]
        value, gradient, hessian = density.curvature(point)
    return None


def _with(moments: Moments, j: int, centre: float, sd: float) -> Moments:
    """The worse of the two answers, where a profile can tell."""
    off, ratio = abs(centre) / sd, max(sd, 1 / sd)
    if ratio > max(moments.sd_ratio, GOOD_TO[1]):
        moments = dataclasses.replace(moments, sd_ratio=ratio, sd_at=j)
    if off > max(moments.mean_off, GOOD_TO[0]):
        moments = dataclasses.replace(moments, mean_off=off, mean_at=j)
    return moments
