"""Points far from a Gaussian, what they say of the mass out there, and which promise a mode."""

import functools
import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .._arrays._draws import PROBES, generator_of, key_words
from .._arrays._roots import whiten
from .._density._protocol import Matrix

# Above this dimension random probes find nothing.
MOST_PROBED, N_PROBES, LUCKY = 100, 250, 2
STRETCHES = np.geomspace(2, 50, 25)
FEWEST_ON_RAY, MOST_ON_RAY = 8, 50

Zs = Float[np.ndarray, "n dim"]


class Probes(NamedTuple):
    """Standard normal draws stretched 2 to 50 times; `log_q`: of the scale mixture that they come
    from."""

    z: Float[np.ndarray, "probes dim"]
    log_q: Float[np.ndarray, " probes"]

    def first(self, n: int) -> "Probes":
        return Probes(self.z[:n], self.log_q[:n])


def probes(key: Any, dim: int) -> Probes:
    return _probes(key_words(key), dim)


@functools.lru_cache(maxsize=2)
def _probes(words: tuple[int, ...], dim: int) -> Probes:
    z = stretched(generator_of(words, PROBES), N_PROBES, dim)
    return Probes(z, log_scale_mixture(z))


def stretched(rng: np.random.Generator, n: int, dim: int) -> Zs:
    """Standard normal draws, each by one of the stretches."""
    stretch = rng.choice(STRETCHES, (n, 1))
    return stretch * rng.standard_normal((n, dim))


def log_scale_mixture(z: Zs) -> Float[np.ndarray, " n"]:
    dim, r2 = z.shape[1], (z**2).sum(1)[:, None]
    parts = -0.5 * r2 / STRETCHES**2 - dim * np.log(STRETCHES) - 0.5 * dim * math.log(2 * math.pi)
    return np.logaddexp.reduce(parts, axis=1) - math.log(len(STRETCHES))


def tail_share(
    probed: Probes,
    log_p: Float[np.ndarray, " probes"],
    is_far: Bool[np.ndarray, " probes"],
    log_det: float,
    log_evidence: float,
) -> float:
    """Of the mass, at probes that are far: importance sampling from the scale mixture."""
    log_q = probed.log_q - log_det
    with np.errstate(over="ignore"):
        weights = np.where(is_far & np.isfinite(log_p), np.exp(log_p - log_q - log_evidence), 0.0)
    # One or two probes are not evidence of mass: in many dimensions their weight is mostly luck.
    tail = np.sort(weights)[:-LUCKY].sum() / len(weights)
    return float(tail / (1 + tail)) if math.isfinite(tail) else 1.0


def reach(dim: int) -> float:
    """The radius within which a standard normal has 99.9% of its mass: exact in one and two
    dimensions, otherwise to 0.3% (Wilson and Hilferty 1931). SciPy's takes long to import."""
    if dim == 1:
        return NormalDist().inv_cdf(0.9995)
    if dim == 2:
        return math.sqrt(-2 * math.log(0.001))
    spread = 2 / (9 * dim)
    return math.sqrt(dim * (1 - spread + NormalDist().inv_cdf(0.999) * math.sqrt(spread)) ** 3)


# --- which of them promise a mode -------------------------------------------------------------


def surprising(
    z: Zs, log_p: Float[np.ndarray, " n"], peak: float, by: float, beyond: float, most: int
) -> np.ndarray:
    """The densest points, at most `most`, further than `beyond` at which the density is more than
    `by` nats above what the Gaussian around a mode of height `peak` has there: their numbers."""
    r2 = (z**2).sum(1)
    is_far = np.isfinite(log_p) & (log_p - (peak - 0.5 * r2) > by) & (r2 > beyond**2)
    best_first = np.argsort(-np.where(is_far, log_p, -np.inf), kind="stable")
    return best_first[: min(most, int(is_far.sum()))]


def n_on_ray(dim: int) -> int:
    """Points on a ray. A Gaussian falls by `r^2 h^2` from one step `h` to the next, which hides a
    second one unless `h` shrinks like 1/dim: `r^2` is that of a point a few sds out."""
    return min(max(FEWEST_ON_RAY, math.ceil(dim / 2)), MOST_ON_RAY)


def rays(z: Zs) -> Float[np.ndarray, "points dim"]:
    """Points on the way from the centre to each of them."""
    dim = z.shape[1]
    n = n_on_ray(dim)
    fractions = np.arange(1, n + 1) / n
    return (fractions[:, None] * z[:, None, :]).reshape(-1, dim)


class Along(NamedTuple):
    """What the log density does on the way from a mode to each of some points: `rises` again after
    it fell; nowhere bends up (`concave`), as with a log-concave density, where a search from the
    point would only come back; `dip`: how far it falls below both ends."""

    rises: Bool[np.ndarray, " n"]
    concave: Bool[np.ndarray, " n"]
    dip: Float[np.ndarray, " n"]


def along(n: int, on_rays: Float[np.ndarray, " points"], peak: Any) -> Along:
    """Of `n` rays, from modes of height `peak`."""
    peaks = np.broadcast_to(peak, n)[:, None]
    ways = np.concatenate([peaks, on_rays.reshape(n, -1)], axis=1)
    ways = np.where(np.isnan(ways), -np.inf, ways)
    with np.errstate(invalid="ignore"):
        heights = ways[:, 1:-1]
        noise = 1e-6 * (1 + np.where(np.isfinite(heights), np.abs(heights), 0.0))
        concave = (ways[:, 2:] - 2 * ways[:, 1:-1] + ways[:, :-2] <= noise).all(1)
        rises = (ways[:, 2:] > ways[:, 1:-1] + noise).any(1)
        dip = np.minimum(ways[:, 0], ways[:, -1]) - ways[:, 1:-1].min(1)
    return Along(np.asarray(rises & ~concave), np.asarray(concave), dip)


def in_sds(root: Matrix, v: Float[np.ndarray, "*n dim"]) -> Any:
    """The length of one vector, or of each of a stack, in standard deviations."""
    return np.sqrt((whiten(root, v) ** 2).sum(-1))
