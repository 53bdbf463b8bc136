"""The best Gaussian of a model, by what each row says of its own predictor.

A row enters as a site, a slope `g_n = a E l'` and a curvature `t_n = -a E l''` in its predictor (of
the discrete rule itself: `-a E[l' zeta] / s`). The bound is highest where the Gaussian is the one
that its own sites make,

    P = Lambda + Phi^T diag(t) Phi,        mean = P^-1 Phi^T (g + t (Phi mean))

(Opper and Archambeau 2009): Stein steps without a search over the root. A step makes all sites
anew; where the bound falls it is shortened, towards the sites from which it came. What is left to
gain is known as for Stein steps, `tr bend - D = sum_n (t'_n - t_n) v_n` and `log det bend` from the
two determinants.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._arrays._draws import Nodes
from .._density._protocol import BestGaussian

if TYPE_CHECKING:
    from ._density import ModelDensity

MOST_PASSES, SHORTEST = 60, 1e-3


class _Sites(NamedTuple):
    """`exp(linear eta - eta curvature eta / 2)` for every row, of predictors without offsets."""

    linear: np.ndarray
    curvature: np.ndarray

    def towards(self, other: "_Sites", share: float) -> "_Sites":
        return _Sites(*(a + share * (b - a) for a, b in zip(self, other, strict=True)))


class _Seen(NamedTuple):
    """A Gaussian, its bound, the sites that it would make, and the covariances of its rows."""

    mean: np.ndarray
    root: np.ndarray
    elbo: float
    gradient: np.ndarray
    sites: _Sites
    covariances: np.ndarray


def best_gaussian(
    density: "ModelDensity", mean: np.ndarray, root: np.ndarray, rule: Nodes, gain: float
) -> BestGaussian | None:
    """From `N(mean, root root^T)` to where less than `gain` nats are left; None where steps do not
    rise from there."""
    here, made_of, share, left = _seen(density, mean, root, rule), None, 1.0, math.inf
    if here is None:
        return None
    for n_passes in range(1, MOST_PASSES):
        to = here.sites if made_of is None else made_of.towards(here.sites, share)
        there = density.of_sites(np.zeros_like(mean), *to)
        if there is not None and share == 1.0 and made_of is not None:
            left = _left(here, made_of, *there)
            if left <= gain:
                return BestGaussian(here.mean, here.root, here.elbo, here.gradient, left, n_passes)
        new = None if there is None else _seen(density, *there, rule)
        noise = 1e-13 * abs(here.elbo)
        if new is not None and new.elbo >= here.elbo - noise:
            here, made_of, share = new, to, min(2 * share, 1.0)
        elif made_of is None or share < SHORTEST:
            return None
        else:
            share *= 0.5
    return None


def _seen(
    density: "ModelDensity", mean: np.ndarray, root: np.ndarray, rule: Nodes
) -> _Seen | None:
    centre, covariances = density.predictors(mean, root)
    values, slope, curvature = density.site_slopes(centre, covariances, rule)
    elbo, gradient = density.bound_of_sites(mean, root, values, slope)
    if not (math.isfinite(elbo) and np.isfinite(curvature).all()):
        return None
    eta = centre if density.offset is None else centre - density.offset
    linear = slope + (curvature * eta if eta.ndim == 1 else (curvature @ eta[:, :, None])[:, :, 0])
    return _Seen(mean, root, elbo, gradient, _Sites(linear, curvature), covariances)


def _left(here: _Seen, made_of: _Sites, mean: np.ndarray, root: np.ndarray) -> float:
    """Nats still to be had, were the target Gaussian, with the next Gaussian known."""
    of_mean = 0.5 * float(here.gradient @ (mean - here.mean))
    trace = float(((here.sites.curvature - made_of.curvature) * here.covariances).sum())
    return of_mean + 0.5 * (trace - 2 * (log_det(here.root) - log_det(root)))


def log_det(root: Any) -> float:
    """Of a triangular root."""
    return float(np.log(np.abs(np.diagonal(root))).sum())
