"""Mass and modes that a Gaussian does not reach: far probes, and searches from them."""

import functools
import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._approximate._laplace import Laplace, laplace
from .._arrays._draws import PROBES, generator_of, key_words
from .._arrays._roots import dense, whiten
from .._density._counted import Counted
from .._density._protocol import Density, Matrix, coloured
from ._verdict import Elsewhere, OtherMode

LEAST_PROBES, N_PROBES, LUCKY, MOST_CLIMBS, MOST_PROBED = 47, 250, 2, 4, 100
STRETCHES = np.geomspace(2, 50, 25)
FRACTIONS = np.arange(1, 9) / 8

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


class Mode(NamedTuple):
    place: Vector
    root: Square
    log_evidence: float

    def apart(self, other: "Mode") -> float:
        """In standard deviations of whichever of the two is wider."""
        away = self.place - other.place
        return float(min(in_sds(self.root, away), in_sds(other.root, away)))


def distinct(found: list[Mode]) -> list[Mode]:
    """Those more than one standard deviation from every one before them."""
    kept = found[:1]
    for one in found[1:]:
        if min(one.apart(known) for known in kept) > 1.0:
            kept.append(one)
    return kept


def searched_elsewhere(
    density: Density,
    found: Laplace | None,
    mean: Vector,
    root: Matrix,
    elbo: float,
    key: Any,
    around_mean: bool,
) -> tuple[Elsewhere, list[Mode]]:
    """What `N(mean, root root^T)`, whose bound is `elbo`, does not reach, and the modes that were
    climbed. Probes go out from the mode (`found`, where it is this density's) or, `around_mean`,
    from the Gaussian's own centre: Stein steps may have left the mode far behind, or had none. None
    in many dimensions, where random probes would find nothing."""
    dim = len(mean)
    if dim > MOST_PROBED:
        return Elsewhere(), []
    some = probes(key, dim).first(affordable(density))
    z = some.z
    modes = known_modes(found, mean, root, elbo, around_mean)
    centre, spread, _ = modes[0]
    known = len(modes)
    values = density.values(np.concatenate([centre[None], coloured(centre, spread, z)]))
    peak, log_p = float(values[0]), values[1:]
    far = surprising(z, log_p, peak)
    if len(far) == 0:
        return without_climbs(some, log_p, modes, elbo, mean, root), []
    for probe in _worth_climbing(density, centre, spread, far, peak):
        other = laplace(density, centre + spread @ probe)
        if other.found:
            modes.append(Mode(other.mode, other.root, other.log_evidence))
    return _elsewhere(some, log_p, modes, elbo, mean, root), modes[known:]


def known_modes(
    found: Laplace | None, mean: Vector, root: Matrix, elbo: float, around_mean: bool
) -> list[Mode]:
    """The one that probes go out from first."""
    here = Mode(mean, dense(root), elbo)
    if found is None:
        return [here]
    its_mode = Mode(found.mode, found.root, found.log_evidence)
    if not around_mean:
        return [its_mode]
    return [here, *([its_mode] if found.found else [])]


def without_climbs(
    probed: "Probes",
    log_p: Float[np.ndarray, " probes"],
    modes: list[Mode],
    elbo: float,
    mean: Vector,
    root: Matrix,
) -> Elsewhere:
    """Where no probe is surprising, a second mode that is known may still be out of reach."""
    return Elsewhere() if len(modes) == 1 else _elsewhere(probed, log_p, modes, elbo, mean, root)


def affordable(density: Density) -> int:
    """Probes for at most half of what the fit has cost; as many as one call answers anyway."""
    spent = density.cost if isinstance(density, Counted) else 2 * N_PROBES
    return min(max(spent // 2, density.values_at_once - 1, LEAST_PROBES), N_PROBES)


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
    rng = generator_of(words, PROBES)
    stretch = rng.choice(STRETCHES, (N_PROBES, 1))
    z = stretch * rng.standard_normal((N_PROBES, dim))
    return Probes(z, _log_scale_mixture(z))


def surprising(
    z: Float[np.ndarray, "probes dim"], log_p: Float[np.ndarray, " probes"], peak: float
) -> Float[np.ndarray, "some dim"]:
    """The densest probes at which the density is far above what the Gaussian has there."""
    r2 = (z**2).sum(1)
    surprise = log_p - (peak - 0.5 * r2)
    is_far = np.isfinite(log_p) & (surprise > 10) & (r2 > z.shape[1] + 20)
    best_first = np.argsort(-np.where(is_far, log_p, -np.inf), kind="stable")
    return z[best_first[: min(MOST_CLIMBS, is_far.sum())]]


def _worth_climbing(
    density: Density, centre: Vector, root: Square, z: Float[np.ndarray, "some dim"], peak: float
) -> Float[np.ndarray, "starts dim"]:
    """Those on whose way from the centre the density rises again; and the densest of those whose
    ray is not concave at least. Where it is, as everywhere for a log-concave density, a search from
    the probe would only come back."""
    if len(z) == 0:
        return z
    return rising(z, density.values(coloured(centre, root, rays(z))), peak)


def rays(z: Float[np.ndarray, "some dim"]) -> Float[np.ndarray, "points dim"]:
    """Points on the way from the centre to each probe."""
    return (FRACTIONS[:, None] * z[:, None, :]).reshape(-1, z.shape[1])


def rising(
    z: Float[np.ndarray, "some dim"], on_rays: Float[np.ndarray, " points"], peak: float
) -> Float[np.ndarray, "starts dim"]:
    """The probes worth climbing from, by the log density on their rays."""
    along = on_rays.reshape(len(z), len(FRACTIONS))
    along = np.concatenate([np.full((len(z), 1), peak), along], axis=1)
    with np.errstate(invalid="ignore"):
        noise = 1e-6 * (1 + np.abs(along[:, 1:-1]))
        concave = (along[:, 2:] - 2 * along[:, 1:-1] + along[:, :-2] <= noise).all(1)
        rises = (along[:, 2:] > along[:, 1:-1] + noise).any(1)
    tail = ~concave & ~rises
    first_of_tail = np.cumsum(tail) == 1
    return z[(~concave & rises) | (tail & first_of_tail)]


def _elsewhere(
    probed: Probes,
    log_p: Float[np.ndarray, " probes"],
    modes: list[Mode],
    log_evidence: float,
    mean: Vector,
    root: Matrix,
) -> Elsewhere:
    """What the probes (around `modes[0]`) and the searches from them say of the mass that the
    Gaussian `(mean, root)`, whose evidence is `log_evidence`, does not reach."""
    reach = _reach(len(mean))
    points = coloured(modes[0].place, modes[0].root, probed.z)
    far = in_sds(root, points - mean) > reach
    # Importance sampling from the scale mixture that the probes come from.
    log_q = probed.log_q - np.linalg.slogdet(modes[0].root)[1]
    with np.errstate(over="ignore"):
        weights = np.where(far & np.isfinite(log_p), np.exp(log_p - log_q - log_evidence), 0.0)
    # One or two probes are not evidence of mass: in many dimensions their weight is mostly luck.
    tail = np.sort(weights)[:-LUCKY].sum() / len(weights)
    return Elsewhere(_other_modes(modes, mean, root, reach), float(tail / (1 + tail)))


def _reach(dim: int) -> float:
    """The radius within which a standard normal has 99.9% of its mass: exact in one and two
    dimensions, otherwise to 0.3% (Wilson and Hilferty 1931). SciPy's takes long to import."""
    if dim == 1:
        return NormalDist().inv_cdf(0.9995)
    if dim == 2:
        return math.sqrt(-2 * math.log(0.001))
    spread = 2 / (9 * dim)
    return math.sqrt(dim * (1 - spread + NormalDist().inv_cdf(0.999) * math.sqrt(spread)) ** 3)


def _log_scale_mixture(z: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
    dim, r2 = z.shape[1], (z**2).sum(1)[:, None]
    parts = -0.5 * r2 / STRETCHES**2 - dim * np.log(STRETCHES) - 0.5 * dim * math.log(2 * math.pi)
    return np.logaddexp.reduce(parts, axis=1) - math.log(len(STRETCHES))


def _other_modes(
    found: list[Mode], mean: Vector, root: Matrix, reach: float
) -> tuple[OtherMode, ...]:
    """Those of the modes found that are not the first and that the Gaussian does not reach. Modes
    that it does reach are no news: its own draws see them."""
    modes = distinct(found)
    evidence = np.array([one.log_evidence for one in modes])
    share = np.exp(evidence - np.logaddexp.reduce(evidence))
    others = [
        OtherMode(float(in_sds(root, one.place - mean)), float(part))
        for one, part in zip(modes[1:], share[1:], strict=True)
    ]
    return tuple(other for other in others if other.distance > reach)


def in_sds(root: Matrix, v: Float[np.ndarray, "*n dim"]) -> Any:
    """The length of one vector, or of each of a stack, in standard deviations."""
    return np.sqrt((whiten(root, v) ** 2).sum(-1))
