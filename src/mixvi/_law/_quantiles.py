"""Quantiles of parameters whose unbounded ones are Gaussian, or a mixture of Gaussians."""

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float

from .._density._constraints import Constraints
from .._density._kinds import Free, Interval, Kind, Ordered
from ._bounded_moments import fixed_draws
from ._mixture import Law

Probs = Float[np.ndarray, " probs"]
Quantiles = Float[np.ndarray, "probs n"]
Unbounded = Float[np.ndarray, "probs dim"]


def quantiles(law: Law, bound: Constraints | None, probs: Probs) -> Quantiles:
    """Of every one of the user's parameters, in their order. Exact where a parameter is free or
    mapped by itself; otherwise (simplex, ordered) those of fixed draws."""
    if bound is None:
        return law.quantiles(probs)
    if not law.is_sound:
        return np.full((len(probs), bound.user.size), np.nan)
    places = jtu.tree_leaves(bound.free.unravel(np.arange(law.dim)))
    pairs = zip(bound.kinds, places, strict=True)
    both = law.quantiles(probs), law.quantiles(probs, upper=True)
    each = [_of_leaf(kind, np.atleast_1d(at), law, probs, *both) for kind, at in pairs]
    return np.concatenate(each, 1)


def _of_leaf(
    kind: Kind, at: np.ndarray, law: Law, probs: Probs, lower: Unbounded, upper: Unbounded
) -> Quantiles:
    """`at`: where the leaf's unbounded numbers stand; `lower`, `upper`: what has the shares below
    it, and above it, of all of them."""
    if isinstance(kind, Free | Interval):
        # Below an upper end alone, the map falls.
        own = upper if isinstance(kind, Interval) and np.isinf(kind.low) else lower
        return np.asarray(kind.constrain(own[:, at.ravel()], np))
    rows = at.reshape(-1, at.shape[-1])
    made = [_of_row(kind, row, law, probs) for row in rows]
    if isinstance(kind, Ordered):
        for found, row in zip(made, rows, strict=True):
            found[:, :1] = lower[:, row[:1]]  # the first one is free
    return np.concatenate(made, 1)


def _of_row(kind: Kind, row: np.ndarray, law: Law, probs: Probs) -> Quantiles:
    draws = [
        fixed_draws(one.mean[row].astype(np.float64), one.cov_of(row).astype(np.float64))
        for one in law.components
    ]
    with np.errstate(all="ignore"):
        mapped = [kind.constrain(one, np) for one in draws]
    return weighted_quantiles(mapped, law.weights, probs)


def weighted_quantiles(
    draws: list[Float[np.ndarray, "draws n"]], weights: Float[np.ndarray, " k"], probs: Probs
) -> Quantiles:
    """Of several lists of draws, every one with its own weight."""
    if len(draws) == 1:
        return np.quantile(draws[0], probs, axis=0)
    points = np.concatenate(draws)
    mass = np.concatenate(
        [np.full(len(one), w / len(one)) for one, w in zip(draws, weights, strict=True)]
    )
    order = np.argsort(points, axis=0, kind="stable")
    ranked, found = np.take_along_axis(points, order, axis=0), []
    for column, own in zip(ranked.T, order.T, strict=True):
        middle = np.cumsum(mass[own]) - 0.5 * mass[own]
        found.append(np.interp(probs, middle, column))
    return np.stack(found, axis=1)
