"""Evidence about a fitted Gaussian that it has not seen: fresh draws and far probes.

The arrays come from compiled code for one problem or a batch; what is made of them is here.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float
from scipy import stats

from .._diagnostics import Elsewhere, OtherMode, diagnose, wider_by, wider_moments
from .._draws import FRESH, IID, PROBES, WIDER, Draws, Quadrature, generator_of, key_words
from .._posterior import Judged, normal_logpdf
from ._families import EigenScale, Family, FullRank, MeanOnly
from ._laplace import LaplaceNumbers
from ._look import Inspection
from ._options import FirstOptions

# Draws are doubled while the bound on fresh draws is lower by more than this (in nats) and by
# more than its noise.
GAP = 0.01
# Largest error of quadrature for one observation, and the most nodes.
NODES_TOL, MOST_NODES = 1e-5, 1024
N_PROBES, MOST_CLIMBS, MOST_PROBED = 128, 4, 100
FRACTIONS = np.arange(1, 9) / 8

Matrix = Float[np.ndarray, "dim dim"]
Vector = Float[np.ndarray, " dim"]


class Mode(NamedTuple):
    place: Vector
    root: Matrix
    log_evidence: float

    def apart(self, other: "Mode") -> float:
        """In standard deviations of whichever of the two is wider."""
        away = self.place - other.place
        return float(min(_in_sds(self.root, away), _in_sds(other.root, away)))


def distinct(found: list[Mode]) -> list[Mode]:
    """Those more than one standard deviation from every one before them."""
    seen = found[:1]
    for one in found[1:]:
        if min(one.apart(known) for known in seen) > 1.0:
            seen.append(one)
    return seen


# --- what an inspection says ------------------------------------------------------------------


class Shown(NamedTuple):
    """An `Inspection` on the host."""

    elbo: float
    gain_mean: float
    gain_widths: float
    gain_root: float
    draw_loss: float
    mean_se: Vector

    @classmethod
    def fetched(cls, seen: Inspection) -> "Shown":
        fields = jax.device_get({name: getattr(seen, name) for name in cls._fields})
        mean_se = np.asarray(fields.pop("mean_se"))
        return cls(**{name: float(value) for name, value in fields.items()}, mean_se=mean_se)

    def gain(self, tol: float = 0.0) -> float:
        """By mean and whole root. What draws cost looks like a gain to be had; as much as `tol` is
        put down to that, no more, since in few dimensions Sobol points cost less than is told."""
        return max(0.0, self.gain_mean + self.gain_root - min(self.draw_loss, tol))


def cheapest(shown: Shown, tol: float) -> Family | None:
    """The poorest family that leaves less than `tol` nats to gain; None for Laplace itself."""
    noise = min(shown.draw_loss, tol)
    if shown.gain(tol) < tol:
        return None
    if shown.gain_root - noise < tol:
        return MeanOnly()
    if shown.gain_root - shown.gain_widths - noise < tol:
        return EigenScale()
    return FullRank()


D = TypeVar("D", Draws, Quadrature)


def enough_draws(draws: D, loss: float, tol: float, most: int, rate: float = 1.0) -> D:
    """What they cost falls as a power of their number: doubled until it is below `tol`."""
    while loss > tol and 2 * draws.n <= most:
        draws, loss = draws.doubled(), loss / 2**rate
    return draws


# --- fresh draws ------------------------------------------------------------------------------


def fresh_draws(options: FirstOptions, dim: int) -> Float[np.ndarray, "n dim"]:
    return IID(options.n_fresh).make(options.key, dim, FRESH, options.dtype)


def judged(
    z: Float[np.ndarray, "n dim"],
    log_p: Float[np.ndarray, " n"],
    root: Matrix | Vector,
) -> Judged:
    """`log p~` against `log q` at the points `mean + root z`."""
    z, log_p = z.astype(np.float64, copy=False), log_p.astype(np.float64, copy=False)
    log_q = _log_q(z, root)
    return Judged(diagnose(log_p, log_q, z, root.astype(np.float64)), z, log_p, log_q)


def mean_ratio(
    z: Float[np.ndarray, "n dim"], log_p: Float[np.ndarray, " n"], root: Matrix | Vector
) -> float:
    """The bound alone; -inf where a density is not finite."""
    ratio = log_p.astype(np.float64) - _log_q(z.astype(np.float64, copy=False), root)
    return float(ratio.mean()) if np.isfinite(ratio).all() else -math.inf


def _log_q(z: Float[np.ndarray, "n dim"], root: Matrix | Vector) -> Float[np.ndarray, " n"]:
    log_det = np.log(np.abs(root)).sum() if root.ndim == 1 else np.linalg.slogdet(root)[1]
    return normal_logpdf(z, float(log_det))


def wider_draws(options: FirstOptions, dim: int) -> Float[np.ndarray, "n dim"]:
    """From a wider Gaussian, for posteriors that are not quite Gaussian."""
    return _wider(key_words(options.key), options.n_fresh, dim, options.dtype)


@functools.lru_cache(maxsize=2)
def _wider(words: tuple[int, ...], n: int, dim: int, dtype: np.dtype) -> np.ndarray:
    z = generator_of(words, WIDER).standard_normal((n, dim))
    return (wider_by(dim) * z).astype(dtype, copy=False)


def with_wider(
    seen: Judged,
    z: Float[np.ndarray, "n dim"],
    log_p: Float[np.ndarray, " n"],
    root: Matrix | Vector,
) -> Judged:
    told = wider_moments(*(one.astype(np.float64) for one in (z, log_p, root)))
    return dataclasses.replace(seen, diagnosis=dataclasses.replace(seen.diagnosis, wider=told))


def wants_more_draws(elbo_fixed: float, n_fixed: int, seen: Judged) -> bool:
    """The fixed draws' own noise is at most that of as many fresh ones. A bound far below the fresh
    one is as bad a sign as one above: the fixed draws stand for another distribution."""
    elbo = seen.diagnosis.elbo
    noise = elbo.se * math.sqrt(1 + len(seen.log_p) / n_fixed)
    return math.isfinite(elbo.value) and abs(elbo_fixed - elbo.value) > max(GAP, 2 * noise)


def back_to_draws(error: float) -> str:
    return (
        f" Draws were used: quadrature with {MOST_NODES} nodes does not settle (off by {error:.0e} "
        "per observation)."
    )


# --- far probes: other modes, heavy tails -----------------------------------------------------

STRETCHES = np.geomspace(2, 50, 25)


def probes(options: FirstOptions, dim: int) -> Float[np.ndarray, "probes dim"] | None:
    """Standard normal draws stretched 2 to 50 times; None in many dimensions, where random probes
    would find nothing."""
    if dim > MOST_PROBED:
        return None
    return _stretched(key_words(options.key), dim, options.dtype)


@functools.lru_cache(maxsize=2)
def _stretched(words: tuple[int, ...], dim: int, dtype: np.dtype) -> np.ndarray:
    rng = generator_of(words, PROBES)
    stretch = rng.choice(STRETCHES, (N_PROBES, 1))
    return (stretch * rng.standard_normal((N_PROBES, dim))).astype(dtype)


def surprising(
    z: Float[np.ndarray, "probes dim"],
    log_p: Float[np.ndarray, " probes"],
    numbers: LaplaceNumbers,
) -> Float[np.ndarray, "some dim"]:
    """The densest probes at which the density is far above what the Laplace Gaussian has there."""
    r2 = (z.astype(np.float64) ** 2).sum(1)
    surprise = log_p - (numbers.log_density - 0.5 * r2)
    seen = np.isfinite(log_p) & (surprise > 10) & (r2 > z.shape[1] + 20)
    best_first = np.argsort(-np.where(seen, log_p, -np.inf), kind="stable")
    return z[best_first[: min(MOST_CLIMBS, seen.sum())]]


def rays(z: Float[np.ndarray, "some dim"]) -> Float[np.ndarray, "points dim"]:
    """Points on the way from the mode to each probe."""
    return (FRACTIONS[:, None] * z[:, None, :]).reshape(-1, z.shape[1]).astype(z.dtype)


def worth_climbing(
    z: Float[np.ndarray, "some dim"],
    log_p: Float[np.ndarray, " points"],
    numbers: LaplaceNumbers,
) -> Float[np.ndarray, "starts dim"]:
    """Those whose ray is not concave: where it is, as everywhere for a log-concave density, a
    search from the probe would only come back."""
    along = log_p.reshape(len(z), len(FRACTIONS))
    along = np.concatenate([np.full((len(z), 1), numbers.log_density), along], axis=1)
    with np.errstate(invalid="ignore"):
        bend = along[:, 2:] - 2 * along[:, 1:-1] + along[:, :-2]
        concave = (bend <= 1e-6 * (1 + np.abs(along[:, 1:-1]))).all(1)
    return z[~concave]


def elsewhere(
    z: Float[np.ndarray, "probes dim"],
    log_p: Float[np.ndarray, " probes"],
    modes: list[Mode],
    log_evidence: float,
    mean: Vector,
    root: Matrix | Vector,
) -> Elsewhere:
    """What the probes (around `modes[0]`) and the searches from them say of the mass that the
    Gaussian `(mean, root)`, whose evidence is `log_evidence`, does not reach."""
    reach = math.sqrt(stats.chi2.ppf(0.999, len(mean)))
    points = modes[0].place + z.astype(np.float64) @ modes[0].root.T
    far = _in_sds(root, points - mean) > reach
    # Importance sampling from the scale mixture that the probes come from.
    log_q = _log_scale_mixture(z.astype(np.float64)) - np.linalg.slogdet(modes[0].root)[1]
    with np.errstate(over="ignore"):
        weights = np.where(far & np.isfinite(log_p), np.exp(log_p - log_q - log_evidence), 0.0)
    # One probe alone is not evidence of mass: in many dimensions its weight is mostly luck.
    beyond = (weights.sum() - weights.max()) / len(z)
    return Elsewhere(_other_modes(modes, mean, root, reach), float(beyond / (1 + beyond)))


def _log_scale_mixture(z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
    dim, r2 = z.shape[1], (z**2).sum(1)[:, None]
    parts = -0.5 * r2 / STRETCHES**2 - dim * np.log(STRETCHES) - 0.5 * dim * math.log(2 * math.pi)
    return np.logaddexp.reduce(parts, axis=1) - math.log(len(STRETCHES))


def _other_modes(
    found: list[Mode], mean: Vector, root: Matrix | Vector, reach: float
) -> tuple[OtherMode, ...]:
    """Those of the modes found that are not the first and that the Gaussian does not reach. Modes
    that it does reach are no news: its own draws see them."""
    seen = distinct(found)
    evidence = np.array([one.log_evidence for one in seen])
    share = np.exp(evidence - np.logaddexp.reduce(evidence))
    others = [
        OtherMode(float(_in_sds(root, one.place - mean)), float(part))
        for one, part in zip(seen[1:], share[1:], strict=True)
    ]
    return tuple(other for other in others if other.distance > reach)


def _in_sds(root: Matrix | Vector, v: Float[np.ndarray, "*n dim"]) -> Any:
    """The length of one vector, or of each of a stack, in standard deviations."""
    whitened = v / root if root.ndim == 1 else np.linalg.solve(root, v.T).T
    return np.sqrt((whitened**2).sum(-1))
