"""`_elsewhere` for many problems of one shape: who needs a search of their own.

The same candidates, values and rays as for one problem, with the problems on the first axis.
Whoever has an image as high as home, a ray that is not concave or mass in a tail goes alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .._arrays._draws import WIDE_STARTS, generator
from ._elsewhere import BEYOND, GREAT_SURPRISE, N_WIDE, NEAR, SURPRISE, WIDE, Setting, rounding
from ._probes import LUCKY, Probes, along, probes, rays, reach
from ._verdict import TAIL_SUSPECTED

# Candidates of each kind whose ray is looked at.
FIRST = 2

Points = Float[np.ndarray, "problems n dim"]
ValuesAt = Callable[[np.ndarray, Points], Float[np.ndarray, "problems n"]]


class Many(NamedTuple):
    """Where the searches go out from (the modes or, of whole covariances, the Gaussians), and the
    Gaussians with their bounds."""

    place: Float[np.ndarray, "problems dim"]
    home_root: Float[np.ndarray, "problems dim dim"]
    height: Float[np.ndarray, " problems"]
    mean: Float[np.ndarray, "problems dim"]
    root: Float[np.ndarray, "problems dim dim"]
    elbo: Float[np.ndarray, " problems"]


def need_a_search(
    many: Many,
    setting: Setting,
    starts: Float[np.ndarray, "problems dim"],
    values_at: ValuesAt,
    values_from_home: Callable[[np.ndarray], np.ndarray],
    key: Any,
    resolution: float,
) -> Bool[np.ndarray, " problems"]:
    """`values_at`: log densities of some problems, by their numbers, at points of their own;
    `values_from_home`: of all, at the same standard deviations from home."""
    dim, everyone = many.place.shape[1], np.arange(len(many.place))
    probed = probes(key, dim)
    of_probes = values_from_home(probed.z)
    images, wide = _images(many, setting), _wide(starts, key)
    log_p = values_at(everyone, np.concatenate([images, wide], axis=1))
    of_images, of_wide = np.split(log_p, [images.shape[1]], axis=1)
    inverse = np.linalg.inv(many.home_root)
    z_images, z_wide = (_whitened(inverse, some - many.place[:, None]) for some in (images, wide))
    needed = _as_high(many, setting, images, z_images, of_images, resolution).any(1)
    needed |= _tails(many, probed, of_probes) > TAIL_SUSPECTED
    z_probes = np.broadcast_to(probed.z, (len(everyone), *probed.z.shape))
    beyond = (dim + BEYOND) ** 0.5
    kinds = (
        (z_images, of_images, SURPRISE, NEAR),
        (z_wide, of_wide, SURPRISE, NEAR),
        (z_probes, of_probes, GREAT_SURPRISE, beyond),
    )
    for z, its, by, away in kinds:
        needed |= _bends_up(many, z, its, by, away, values_at)
    return needed


def _images(many: Many, setting: Setting) -> Points:
    some = setting.symmetries
    return setting.unbounded(some.images(setting.user(many.place), len(some)))


def _wide(starts: Float[np.ndarray, "problems dim"], key: Any) -> Points:
    """As `_elsewhere.candidates_of`."""
    spread = WIDE * generator(key, WIDE_STARTS).standard_normal((N_WIDE, starts.shape[1]))
    unit = np.ones((len(starts), N_WIDE, starts.shape[1]))
    unit[:, 1::2] = np.maximum(1.0, np.abs(starts))[:, None]
    return starts[:, None] + unit * spread


def _whitened(inverse: Float[np.ndarray, "problems dim dim"], steps: Any) -> Points:
    return steps @ inverse.transpose(0, 2, 1)


def _as_high(
    many: Many, setting: Setting, images: Points, z: Points, log_p: np.ndarray, resolution: float
) -> Bool[np.ndarray, "problems n"]:
    height = many.height - setting.log_det(many.place)
    with np.errstate(invalid="ignore"):
        off = np.abs(log_p - setting.log_det(images) - height[:, None])
        return (off <= rounding(resolution, height)[:, None]) & ((z**2).sum(-1) > NEAR**2)


def _tails(many: Many, probed: Probes, log_p: np.ndarray) -> Float[np.ndarray, " problems"]:
    """As `_probes.tail_share`."""
    inverse = np.linalg.inv(many.root)
    shift = np.einsum("pij,pj->pi", inverse, many.place - many.mean)
    away = shift[:, None] + _whitened(inverse @ many.home_root, probed.z)
    is_far = (away**2).sum(-1) > reach(probed.z.shape[-1]) ** 2
    log_q = probed.log_q - np.linalg.slogdet(many.home_root)[1][:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(log_p - log_q - many.elbo[:, None])
    weights = np.where(is_far & np.isfinite(log_p), weights, 0.0)
    tail = np.sort(weights, axis=1)[:, :-LUCKY].sum(1) / weights.shape[1]
    return tail / (1 + tail)


def _bends_up(
    many: Many, z: Points, log_p: np.ndarray, by: float, away: float, values_at: ValuesAt
) -> Bool[np.ndarray, " problems"]:
    """Whether the way to one of the densest surprising points is not concave."""
    r2 = np.einsum("pnd,pnd->pn", z, z)
    with np.errstate(invalid="ignore"):
        surprises = log_p - (many.height[:, None] - 0.5 * r2) > by
    surprises &= np.isfinite(log_p) & (r2 > away**2)
    best = np.argsort(-np.where(surprises, log_p, -np.inf), axis=1, kind="stable")[:, :FIRST]
    some = np.flatnonzero(surprises.any(1))
    bends = np.zeros(len(z), bool)
    if len(some) == 0:
        return bends
    # Where there is one only, it stands for both.
    second = np.take_along_axis(surprises, best[:, -1:], 1)
    best = np.where(second, best, best[:, :1])
    chosen = np.take_along_axis(z, best[..., None], 1)[some]
    n, dim = chosen.shape[1:]
    on_rays = rays(chosen.reshape(-1, dim)).reshape(len(some), -1, dim)
    points = many.place[some][:, None] + on_rays @ many.home_root[some].transpose(0, 2, 1)
    peaks = np.repeat(many.height[some], n)
    way = along(len(peaks), values_at(some, points).ravel(), peaks)
    bends[some] = ~way.concave.reshape(-1, n).all(1)
    return bends
