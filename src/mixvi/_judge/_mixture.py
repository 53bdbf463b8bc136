"""Draws from a mixture of the law with wider ones: errors of its moments, to a steady word.

Fresh draws alone miss what lies outside; draws from a wider Gaussian alone are few where the mass
is. Together they are draws from one mixture (Owen and Zhou 2000),

    w_s = p~(x_s) / sum_k (n_k / n) q_k(x_s),

whose weights are bounded by those of each part. Where the answer is close to a limit there are more
draws, and parts that are wider along the parameters that look worst, or far wider altogether.

All are in standard deviations of the law. Of a mixture of Gaussians these are those of its own mean
and covariance, and the wider part widens every component.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._arrays._draws import AXES, DIRECTED, FAR, WIDER, generator_of, key_words
from .._arrays._roots import colour, dense, log_det, sds
from .._density._protocol import Density, Matrix
from .._law._gaussian import Gaussian, normal_logpdf
from .._law._mixture import GaussianMixture
from ._diagnosis import Diagnosis
from ._fresh import Judged, judged, judged_mixture
from ._probes import MOST_PROBED, log_scale_mixture, stretched
from ._scalars import mixed_scalars, moment_errors, wider_by

# Parameters along which draws are wider, and by how much, in turn.
N_DIRECTED, DIRECTED_BY = 4, np.array([2.0, 4.0, 8.0])
# How far draws along one parameter reach; one such draw for so many fresh ones, and the fewest.
AXES_BY, AXES_SHARE, FEWEST_ON_AXES = (3.0, 10.0, 30.0), 4, 48
# An error of a mean is as bad as one of the log of a standard deviation.
MEAN_UNIT, LOG_SD_UNIT = 0.25, 0.2
# Fresh draws where the word is not sure.
MORE, MOST = 1000, 4000

# Without other modes or heavy tails to be found, many dimensions are not worth the most draws.
MOST_FOLLOWED = 300

Vector = Float[np.ndarray, " dim"]
Zs = Float[np.ndarray, "n dim"]


class Points(NamedTuple):
    """Standard normal draws, made wider; how far each goes along every parameter, in standard
    deviations; and the squares of their lengths."""

    z: Zs
    steps: Zs
    square: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, z: Zs, root: Matrix) -> "Points":
        return cls(z, colour(root, z) / sds(root), np.einsum("nd,nd->n", z, z))

    def and_more(self, others: "Sequence[Points]") -> "Points":
        return Points(*(np.concatenate(parts) for parts in zip(self, *others, strict=True)))

    def beyond(self, n: int) -> "Points":
        return Points(*(part[n:] for part in self))


LogDensity = Callable[[Points], Float[np.ndarray, " n"]]


class Part(NamedTuple):
    """Of the mixture: its draws, the log density at them, and the part's own at any others."""

    at: Points
    log_p: Float[np.ndarray, " n"]
    log_q: LogDensity


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Draws around one Gaussian, or around a `law` with this mean and root, made and asked as they
    are wanted. `fewer`: the mixture that has the first of the parts."""

    density: Density
    mean: Vector
    root: Matrix
    key: Any
    parts: tuple[Part, ...] = ()
    looks_far: bool = False
    fewer: "Mixture | None" = None
    law: GaussianMixture | None = None

    @classmethod
    def around(cls, density: Density, law: GaussianMixture, key: Any) -> "Mixture":
        return cls(density, law.mean, law.root, key, law=law)

    def _log_own(self, at: Points) -> Float[np.ndarray, " n"]:
        return log_normal(at) if self.law is None else log_of_law(at, self.law)

    def _wider(self, n: int) -> Part:
        dim = len(self.mean)
        if self.law is None:
            wider = functools.partial(log_wider_at, by=wider_by(dim))
            return self.asked(n, lambda n: wider_draws(self.key, n, dim), wider)
        law, rng = widened(self.law, wider_by(dim)), generator_of(key_words(self.key), WIDER)
        made = self.law.whiten(law.drawn(rng, n)[0])
        units = functools.partial(log_of_law, law=law, units=self.law)
        return self.asked(n, lambda n: made, units)

    def judged(self, n: int, fresh: Judged) -> Judged:
        """By `n` fresh draws of the law."""
        if self.law is not None:
            return judged_mixture(self.density, self.law, self.key, n)
        at = self.density, self.mean, self.root
        return judged(*at, self.key, n, fresh, all_of_them=True)

    def asked(self, n: int, draws: Callable[[int], Zs], log_q: LogDensity) -> Part:
        at = Points.of(draws(n), self.root)
        return Part(at, self.density.values(self.mean + at.steps * sds(self.root)), log_q)

    def of(self, fresh: Judged, n: int) -> "Mixture":
        """The fresh draws, and `n` of the wider Gaussian."""
        own = Part(Points.of(fresh.z, self.root), fresh.log_p, self._log_own)
        parts = [own, self._wider(n)]
        made = functools.partial(axis_draws, self.key, along=unit_rows(self.root))
        far = self.asked(max(n // AXES_SHARE, FEWEST_ON_AXES), made, log_along_axes)
        return dataclasses.replace(self, parts=(*parts, _no_higher(far, parts)))

    def with_more(self, n: int) -> "Mixture":
        """And draws that are wider along the parameters that look worst, or far wider."""
        dim, more, rows = len(self.mean), [], unit_rows(self.root)
        for place, worst in enumerate(self.worst_parameters()):
            log_q = functools.partial(log_directed, parameter=worst)
            made = functools.partial(directed_draws, self.key, along=rows[worst], place=place)
            more.append(self.asked(n, made, log_q))
        looks_far = dim <= MOST_PROBED
        if looks_far:
            made = functools.partial(far_draws, self.key, dim=dim)
            more.append(self.asked(n, made, lambda at: log_scale_mixture(at.z)))
        more = [_no_higher(part, self.parts) for part in more]
        parts = (*self.parts, *more)
        return dataclasses.replace(self, parts=parts, looks_far=looks_far, fewer=self)

    @property
    def n(self) -> int:
        return sum(len(part.log_p) for part in self.parts)

    @functools.cached_property
    def at(self) -> Points:
        first, *others = (part.at for part in self.parts)
        return first.and_more(others)

    @functools.cached_property
    def log_p(self) -> Float[np.ndarray, " n"]:
        return np.concatenate([part.log_p for part in self.parts])

    @functools.cached_property
    def each_log_q(self) -> Float[np.ndarray, "parts n"]:
        """Of every part at all draws."""
        if self.fewer is None:
            return np.stack([part.log_q(self.at) for part in self.parts])
        known, rest = self.fewer.each_log_q, self.at.beyond(self.fewer.n)
        first, more = self.parts[: len(known)], self.parts[len(known) :]
        old = np.concatenate([known, np.stack([part.log_q(rest) for part in first])], axis=1)
        return np.concatenate([old, np.stack([part.log_q(self.at) for part in more])])

    @functools.cached_property
    def log_mixture(self) -> Float[np.ndarray, " n"]:
        shares = np.array([len(part.log_p) / self.n for part in self.parts])
        return np.logaddexp.reduce(self.each_log_q + np.log(shares)[:, None])

    def told(self, fresh: Judged) -> Judged:
        elbo, at = fresh.diagnosis.elbo.value, (self.at.z, self.log_p, self.log_mixture)
        own, reached = self.each_log_q[0], None
        if self.law is not None:
            # Outside lie the points that are less dense than all but 0.1% of the law's own draws.
            reached = own >= np.quantile(own[: len(fresh.log_p)], 0.001)
        found = mixed_scalars(
            *at,
            self.root,
            elbo,
            log_det(self.root),
            steps=self.at.steps,
            log_own=own,
            reached=reached,
        )
        said = dataclasses.replace(
            fresh.diagnosis, moments=found.moments, n_mixed=self.n, looked_far=self.looks_far
        )
        return dataclasses.replace(fresh, diagnosis=said)

    def worst_parameters(self) -> list[int]:
        at = self.at.z, self.log_p, self.log_mixture
        own = self.each_log_q[0]
        errors = moment_errors(*at, self.root, steps=self.at.steps, log_own=own)
        score = np.maximum(errors.mean / MEAN_UNIT, errors.log_sd / LOG_SD_UNIT)
        return [int(i) for i in np.argsort(-score, kind="stable")[:N_DIRECTED]]


def _no_higher(far: Part, near: Sequence[Part]) -> Part:
    """A density above all that was seen is another mode, which is not looked for here, or what is
    left of numbers too large."""
    highest = max(part.log_p.max() for part in near)
    return far._replace(log_p=np.where(far.log_p > highest, -np.inf, far.log_p))


def with_moments(
    density: Density,
    mean: Vector,
    root: Matrix,
    key: Any,
    fresh: Judged,
    most_fresh: int | None,
    is_sure: Callable[[Diagnosis], bool],
) -> Judged:
    """On more and more draws, until `is_sure`. `most_fresh`: what the user has set, if anything."""
    return _until_sure(Mixture(density, mean, root, key), fresh, most_fresh, is_sure)


def with_moments_of_mixture(
    density: Density,
    law: GaussianMixture,
    key: Any,
    fresh: Judged,
    most_fresh: int | None,
    is_sure: Callable[[Diagnosis], bool],
) -> Judged:
    """The same of a mixture of Gaussians."""
    return _until_sure(Mixture.around(density, law, key), fresh, most_fresh, is_sure)


def _until_sure(
    around: Mixture,
    fresh: Judged,
    most_fresh: int | None,
    is_sure: Callable[[Diagnosis], bool],
) -> Judged:
    density, mixture, last = around.density, None, 0
    stages = [(len(fresh.log_p), False), (MORE, False), (MORE, True)]
    if not (density.log_concave and len(around.mean) > MOST_FOLLOWED):
        stages.append((MOST, True))
    for n, directed in stages:
        if n == last and not directed:
            continue
        n_fresh = n if most_fresh is None else min(n, most_fresh)
        if n_fresh > len(fresh.log_p):
            fresh = around.judged(n_fresh, fresh)
        if mixture is None or n != last:
            mixture, last = around.of(fresh, n), n
        fresh = (mixture.with_more(n // 2) if directed else mixture).told(fresh)
        # A bound over several Gaussians leaves tails out: these are always looked for.
        has_looked = around.law is None or directed
        if has_looked and is_sure(fresh.diagnosis):
            break
    return fresh


# --- draws ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def _normal(words: tuple[int, ...], stream: int, n: int, dim: int) -> Zs:
    return generator_of(words, stream).standard_normal((n, dim))


def wider_draws(key: Any, n: int, dim: int) -> Zs:
    return wider_by(dim) * _normal(key_words(key), WIDER, n, dim)


def log_wider(z: Zs, by: float) -> Float[np.ndarray, " n"]:
    return normal_logpdf(z / by, z.shape[-1] * math.log(by))


def log_normal(at: Points) -> Float[np.ndarray, " n"]:
    return -0.5 * at.square - 0.5 * at.z.shape[1] * math.log(2 * math.pi)


def widened(law: GaussianMixture, by: float) -> GaussianMixture:
    parts = (Gaussian(one.mean, by * dense(one.root)) for one in law.components)
    return GaussianMixture(law.weights, tuple(parts))


def log_of_law(
    at: Points, law: GaussianMixture, units: GaussianMixture | None = None
) -> Float[np.ndarray, " n"]:
    """Of points in standard deviations of `units`, or of the law itself."""
    units = law if units is None else units
    return law.log_prob(units.colour(at.z)) + units.log_det_root


def log_wider_at(at: Points, by: float) -> Float[np.ndarray, " n"]:
    dim = at.z.shape[1]
    return -0.5 * at.square / by**2 - dim * (math.log(by) + 0.5 * math.log(2 * math.pi))


def directed_draws(key: Any, n: int, along: Vector, place: int) -> Zs:
    """As many of each width, to one or two."""
    z = generator_of((*key_words(key), place), DIRECTED).standard_normal((n, len(along)))
    by = DIRECTED_BY[np.arange(n) % len(DIRECTED_BY)]
    return z + np.outer((by - 1) * (z @ along), along)


def log_directed(at: Points, parameter: int) -> Float[np.ndarray, " n"]:
    narrower = 1 - 1 / DIRECTED_BY**2
    each = 0.5 * narrower * (at.steps[:, parameter] ** 2)[:, None] - np.log(DIRECTED_BY)
    each = np.logaddexp.reduce(each, axis=1) - math.log(len(DIRECTED_BY))
    return log_normal(at) + each


def unit_rows(root: Matrix) -> Float[np.ndarray, "dim dim"]:
    """The direction of every parameter, in standard deviations."""
    rows = dense(root)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def axis_draws(key: Any, n: int, along: Float[np.ndarray, "dim dim"]) -> Zs:
    """Each far out along one parameter, all parameters in turn: a long tail of one among many."""
    rng = generator_of(key_words(key), AXES)
    z, by = rng.standard_normal((n, len(along))), rng.choice(AXES_BY, n)
    rows = along[np.arange(n) % len(along)]
    return z + ((by - 1) * (z * rows).sum(1))[:, None] * rows


def log_along_axes(at: Points) -> Float[np.ndarray, " n"]:
    half = 0.5 * at.steps**2
    # The largest exponent is that of the widest along the longest; NumPy's own sum is slow.
    top = half.max(1) * (1 - 1 / max(AXES_BY) ** 2)
    parts = [np.exp(half * (1 - 1 / by**2) - top[:, None]).sum(1) / by for by in AXES_BY]
    whole = np.log(sum(parts)) + top
    return log_normal(at) + whole - math.log(len(AXES_BY) * half.shape[1])


def far_draws(key: Any, n: int, dim: int) -> Zs:
    return stretched(generator_of(key_words(key), FAR), n, dim)
