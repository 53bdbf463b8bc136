"""Quantiles of parameters whose unbounded ones are Gaussian."""

from statistics import NormalDist

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float

from .._arrays._roots import covariance, sds
from .._density._constraints import Constraints
from .._density._kinds import Free, Interval, Kind, Ordered
from ._bounded_moments import fixed_draws
from ._gaussian import Gaussian

Probs = Float[np.ndarray, " probs"]
Quantiles = Float[np.ndarray, "probs n"]


def quantiles(law: Gaussian, bound: Constraints | None, probs: Probs) -> Quantiles:
    """Of every one of the user's parameters, in their order. Exact where a parameter is free or
    mapped by itself; otherwise (simplex, ordered) those of fixed draws."""
    mean, z = (
        law.mean.astype(np.float64),
        np.array([NormalDist().inv_cdf(p) for p in probs])[:, None],
    )
    if bound is None:
        return mean + z * law.std.astype(np.float64)
    if not law.is_sound:
        return np.full((len(probs), bound.user.size), np.nan)
    root = law.root.astype(np.float64)
    places = jtu.tree_leaves(bound.free.unravel(np.arange(law.dim)))
    pairs = zip(bound.kinds, places, strict=True)
    each = [_of_leaf(kind, np.atleast_1d(at), mean, root, probs, z) for kind, at in pairs]
    return np.concatenate(each, 1)


def _of_leaf(
    kind: Kind,
    at: np.ndarray,
    mean: Float[np.ndarray, " dim"],
    root: np.ndarray,
    probs: Probs,
    z: Float[np.ndarray, "probs 1"],
) -> Quantiles:
    """`at`: where the leaf's unbounded numbers stand."""
    if isinstance(kind, Free | Interval):
        at = at.ravel()
        # Below an upper end alone, the map falls.
        z = -z if isinstance(kind, Interval) and np.isinf(kind.low) else z
        return np.asarray(kind.constrain(mean[at] + z * sds(root)[at], np))
    rows = at.reshape(-1, at.shape[-1])
    return np.concatenate([_of_row(kind, row, mean, root, probs, z) for row in rows], 1)


def _of_row(
    kind: Kind, row: np.ndarray, mean: np.ndarray, root: np.ndarray, probs: Probs, z: np.ndarray
) -> Quantiles:
    draws = fixed_draws(mean[row], covariance(root[row]))
    with np.errstate(all="ignore"):
        found = np.quantile(kind.constrain(draws, np), probs, axis=0)
    if isinstance(kind, Ordered):
        found[:, :1] = mean[row[:1]] + z * sds(root)[row[:1]]  # the first one is free
    return found
