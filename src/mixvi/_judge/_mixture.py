"""Draws from a mixture of the Gaussian with wider ones: errors of its moments, to a steady word.

Fresh draws alone miss what lies outside; draws from a wider Gaussian alone are few where the mass
is. Together they are draws from one mixture (Owen and Zhou 2000),

    w_s = p~(x_s) / sum_k (n_k / n) q_k(x_s),

whose weights are bounded by those of each part. Where the answer is close to a limit there are more
draws, and parts that are wider along the parameters that look worst, or far wider altogether.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._arrays._draws import AXES, DIRECTED, FAR, WIDER, generator_of, key_words
from .._arrays._roots import dense, log_det
from .._density._protocol import Density, Matrix, coloured
from .._law._gaussian import normal_logpdf
from ._diagnosis import Diagnosis
from ._fresh import Judged, judged
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

Vector = Float[np.ndarray, " dim"]
Points = Float[np.ndarray, "n dim"]


LogDensity = Callable[[Points], Float[np.ndarray, " n"]]


class Part(NamedTuple):
    """Of the mixture: standard normal draws made wider, the log density at them, and the part's own
    at any others."""

    z: Points
    log_p: Float[np.ndarray, " n"]
    log_q: LogDensity


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Draws around one Gaussian, made and asked as they are wanted."""

    density: Density
    mean: Vector
    root: Matrix
    key: Any
    parts: tuple[Part, ...] = ()
    looks_far: bool = False

    def asked(self, n: int, draws: Callable[[int], Points], log_q: LogDensity) -> Part:
        z = draws(n)
        return Part(z, self.density.values(coloured(self.mean, self.root, z)), log_q)

    def of(self, fresh: Judged, n: int) -> "Mixture":
        """The fresh draws, and `n` of the wider Gaussian."""
        dim = len(self.mean)
        own = Part(fresh.z, fresh.log_p, functools.partial(normal_logpdf, log_det_root=0.0))
        wider = functools.partial(log_wider, by=wider_by(dim))
        parts = [own, self.asked(n, lambda n: wider_draws(self.key, n, dim), wider)]
        along = unit_rows(self.root)
        axes = functools.partial(log_along_axes, along=along)
        made = functools.partial(axis_draws, self.key, along=along)
        far = self.asked(max(n // AXES_SHARE, FEWEST_ON_AXES), made, axes)
        return dataclasses.replace(self, parts=(*parts, _no_higher(far, parts)))

    def with_more(self, n: int) -> "Mixture":
        """And draws that are wider along the parameters that look worst, or far wider."""
        dim, more = len(self.mean), []
        for place, along in enumerate(self.worst_directions()):
            log_q = functools.partial(log_directed, along=along)
            made = functools.partial(directed_draws, self.key, along=along, place=place)
            more.append(self.asked(n, made, log_q))
        if dim <= MOST_PROBED:
            made = functools.partial(far_draws, self.key, dim=dim)
            more.append(self.asked(n, made, log_scale_mixture))
        more = [_no_higher(part, self.parts) for part in more]
        return dataclasses.replace(self, parts=(*self.parts, *more), looks_far=dim <= MOST_PROBED)

    @property
    def n(self) -> int:
        return sum(len(part.z) for part in self.parts)

    @property
    def draws(self) -> tuple[Points, Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Points, the log density there, and the mixture's own."""
        z = np.concatenate([part.z for part in self.parts])
        log_p = np.concatenate([part.log_p for part in self.parts])
        each = [part.log_q(z) + math.log(len(part.z) / len(z)) for part in self.parts]
        return z, log_p, np.logaddexp.reduce(each)

    def told(self, fresh: Judged) -> Judged:
        elbo = fresh.diagnosis.elbo.value
        found = mixed_scalars(*self.draws, self.root, elbo, log_det(self.root)).moments
        said = dataclasses.replace(
            fresh.diagnosis, moments=found, n_mixed=self.n, looked_far=self.looks_far
        )
        return dataclasses.replace(fresh, diagnosis=said)

    def worst_directions(self) -> list[Vector]:
        """Of length one, each along a parameter."""
        errors = moment_errors(*self.draws, self.root)
        score = np.maximum(errors.mean / MEAN_UNIT, errors.log_sd / LOG_SD_UNIT)
        return list(unit_rows(self.root)[np.argsort(-score, kind="stable")[:N_DIRECTED]])


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
    around = Mixture(density, mean, root, key)
    for n, directed in ((len(fresh.log_p), False), (MORE, False), (MORE, True), (MOST, True)):
        n_fresh = n if most_fresh is None else min(n, most_fresh)
        if n_fresh > len(fresh.log_p):
            fresh = judged(density, mean, root, key, n_fresh, fresh, all_of_them=True)
        mixture = around.of(fresh, n)
        fresh = (mixture.with_more(n // 2) if directed else mixture).told(fresh)
        if is_sure(fresh.diagnosis):
            break
    return fresh


# --- draws ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def _normal(words: tuple[int, ...], stream: int, n: int, dim: int) -> Points:
    return generator_of(words, stream).standard_normal((n, dim))


def wider_draws(key: Any, n: int, dim: int) -> Points:
    return wider_by(dim) * _normal(key_words(key), WIDER, n, dim)


def log_wider(z: Points, by: float) -> Float[np.ndarray, " n"]:
    return normal_logpdf(z / by, z.shape[-1] * math.log(by))


def directed_draws(key: Any, n: int, along: Vector, place: int) -> Points:
    """As many of each width, to one or two."""
    z = generator_of((*key_words(key), place), DIRECTED).standard_normal((n, len(along)))
    by = DIRECTED_BY[np.arange(n) % len(DIRECTED_BY)]
    return z + np.outer((by - 1) * (z @ along), along)


def log_directed(z: Points, along: Vector) -> Float[np.ndarray, " n"]:
    narrower = 1 - 1 / DIRECTED_BY**2
    each = 0.5 * narrower * ((z @ along) ** 2)[:, None] - np.log(DIRECTED_BY)
    each = np.logaddexp.reduce(each, axis=1) - math.log(len(DIRECTED_BY))
    return normal_logpdf(z, 0.0) + each


def unit_rows(root: Matrix) -> Float[np.ndarray, "dim dim"]:
    """The direction of every parameter, in standard deviations."""
    rows = dense(root)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def axis_draws(key: Any, n: int, along: Float[np.ndarray, "dim dim"]) -> Points:
    """Each far out along one parameter, all parameters in turn: a long tail of one among many."""
    rng = generator_of(key_words(key), AXES)
    z, by = rng.standard_normal((n, len(along))), rng.choice(AXES_BY, n)
    rows = along[np.arange(n) % len(along)]
    return z + ((by - 1) * (z * rows).sum(1))[:, None] * rows


def log_along_axes(z: Points, along: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, " n"]:
    half = 0.5 * (z @ along.T) ** 2
    # The largest exponent is that of the widest along the longest; NumPy's own sum is slow.
    top = half.max(1) * (1 - 1 / max(AXES_BY) ** 2)
    parts = [np.exp(half * (1 - 1 / by**2) - top[:, None]).sum(1) / by for by in AXES_BY]
    whole = np.log(sum(parts)) + top
    return normal_logpdf(z, 0.0) + whole - math.log(len(AXES_BY) * len(along))


def far_draws(key: Any, n: int, dim: int) -> Points:
    return stretched(generator_of(key_words(key), FAR), n, dim)
