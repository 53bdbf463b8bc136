"""Bounds on fresh draws, for several benchmarks: pairs `z, -z` from one seed, in blocks."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mixvi
from mixvi._density._counted import Counted
from mixvi._density._make import density_of
from mixvi._density._protocol import coloured
from mixvi._density._target import prepare

MEMORY = 2**30
# Pairs in a block, and the most draws in all.
BLOCK, MOST = 2**12, 2**20


def density(log_density: Any, init: Any, data: Any = None, hyper: Any = None) -> Counted:
    """What a fit of these arguments asks, in float64."""
    dtype = np.dtype(np.float64)
    target, _ = prepare(log_density, init, data, dtype, hyper)
    return density_of(log_density, target, dtype, MEMORY)


def log_ratios(its: Counted, mean: np.ndarray, root: np.ndarray, z: np.ndarray) -> np.ndarray:
    """`log p~ - log q` at `mean + root z`."""
    log_det = np.log(np.abs(root)).sum() if root.ndim == 1 else np.linalg.slogdet(root)[1]
    log_q = -0.5 * (z**2).sum(1) - 0.5 * len(mean) * math.log(2 * math.pi) - log_det
    return its.values(coloured(mean, root, z)) - log_q


def pairs(dim: int, block: int, seed: int = 2024) -> Iterator[np.ndarray]:
    """Blocks without end: the second half of each is minus the first."""
    rng = np.random.default_rng(seed)
    while True:
        half = rng.standard_normal((block, dim))
        yield np.concatenate([half, -half])


def triangular(root: np.ndarray) -> np.ndarray:
    """The lower triangular root of the same covariance: one draw then stands for nearly the same
    point of two Gaussians that are nearly the same."""
    if root.ndim == 1:
        return np.diag(np.abs(root))
    upper = np.linalg.qr(root.T, mode="r")
    return (upper * np.where(np.diagonal(upper) < 0, -1.0, 1.0)[:, None]).T


def together(
    its: Counted, posts: list[mixvi.Posterior], enough: float, most: int = MOST
) -> np.ndarray:
    """Bounds by pair, (posteriors, pairs), all on the same draws: as many as bring the standard
    error of every difference from the first below `enough`."""
    gaussians = [(post.flat_mean, triangular(post.root)) for post in posts]
    blocks: list[np.ndarray] = []
    for z in pairs(posts[0].dim, BLOCK):
        seen = [log_ratios(its, *gaussian, z).reshape(2, BLOCK).mean(0) for gaussian in gaussians]
        blocks.append(np.stack(seen))
        all_of_them = np.concatenate(blocks, axis=1)
        worst = max((error(one - all_of_them[0]) for one in all_of_them[1:]), default=0.0)
        # A bound that is not finite never settles.
        if worst < enough or not math.isfinite(worst) or 2 * all_of_them.shape[1] >= most:
            return all_of_them
    raise AssertionError


def bound(
    its: Counted,
    mean: np.ndarray,
    root: np.ndarray,
    enough: Callable[[float], float],
    most: int = MOST,
    block: int = BLOCK,
) -> tuple[float, float, int]:
    """The bound of one Gaussian: value, standard error, number of draws. They are as many as bring
    the error below `enough(value)`; not a number where the Gaussian is none."""
    if not (np.isfinite(mean).all() and np.isfinite(root).all()):
        return math.nan, math.nan, 0
    means: list[np.ndarray] = []
    for z in pairs(len(mean), block):
        means.append(log_ratios(its, mean, root, z).reshape(2, block).mean(0))
        seen = np.concatenate(means)
        value, spread = float(seen.mean()), float(seen.std())
        wanted = (spread / enough(value)) ** 2 if math.isfinite(spread) else 0
        if len(seen) >= min(most // 2, wanted):
            return value, spread / math.sqrt(len(seen)), 2 * len(seen)
    raise AssertionError


def error(values: np.ndarray) -> float:
    """The standard error of their mean."""
    with np.errstate(invalid="ignore"):
        return float(values.std() / math.sqrt(len(values)))
