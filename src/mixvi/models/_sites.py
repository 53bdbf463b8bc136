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

import collections
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._arrays._draws import Nodes
from .._arrays._roots import log_det
from .._density._protocol import BestGaussian

if TYPE_CHECKING:
    from ._density import ModelDensity

MOST_PASSES, PAIRS_KEPT = 60, 8
# Of the way to new sites: what a plain step takes, and the least.
SHARE, SHORTEST = 0.7, 1e-3
# A rise by so many times the gain that may be left is worth another step before that is told.
CLOSE = 3.0
# What is left is told by a Gaussian model, which may see less than there is.
SAFE = 0.3
# Nats by which a first Gaussian, which no sites need have made, may be better than its own make.
MOST_FALL = 1.0


class _Sites(NamedTuple):
    """`exp(linear eta - eta curvature eta / 2)` for every row, of predictors without offsets."""

    linear: np.ndarray
    curvature: np.ndarray

    def plus(self, factor: float, other: "_Sites") -> "_Sites":
        return _Sites(*(a + factor * b for a, b in zip(self, other, strict=True)))

    def flat(self, sd: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """In units of the predictors' standard deviations; a row of weight two is two rows."""
        n, each = len(sd), 1 / np.sqrt(np.where(weight > 0, weight, 1.0))[:, None]
        linear, curvature = self.linear.reshape(n, -1), self.curvature.reshape(n, -1)
        return np.concatenate([(sd * each * linear).ravel(), (sd**2 * each * curvature).ravel()])


class _Seen(NamedTuple):
    """A Gaussian, its bound, the sites that it would make, and the covariances of its rows."""

    mean: np.ndarray
    root: np.ndarray
    elbo: float
    gradient: np.ndarray
    sites: _Sites
    covariances: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Of the predictors of each row, (n, 1)."""
        own = self.covariances
        square = own if own.ndim == 1 else np.einsum("nkk->n", own) / own.shape[1]
        return np.sqrt(square)[:, None]


def best_gaussian(
    density: "ModelDensity", mean: np.ndarray, root: np.ndarray, rule: Nodes, gain: float
) -> BestGaussian | None:
    """From `N(mean, root root^T)` to where less than `gain` nats are left; None where steps do not
    rise from there."""
    begun = _begun(density, mean, root, rule)
    if begun is None:
        return None
    (here, of, rise), past, n_passes = begun, _Past(density.weight), 2
    off = here.sites.plus(-1.0, of)
    while n_passes < MOST_PASSES:
        if rise <= CLOSE * gain:
            there = density.of_sites(np.zeros_like(mean), *here.sites)
            left = math.inf if there is None else _left(here, of, *there)
            if there is not None and left <= SAFE * gain:
                at = here.mean, here.root
                return BestGaussian(*there, at, here.elbo, here.gradient, left, n_passes)
        for to in past.tried(here, of, off):
            new, n_passes = _made(density, to, rule), n_passes + 1
            if new is not None and new.elbo >= here.elbo - 1e-13 * abs(here.elbo):
                break
        else:
            return None
        new_off = new.sites.plus(-1.0, to)
        past.learn(to.plus(-1.0, of), new_off.plus(-1.0, off))
        here, of, off, rise = new, to, new_off, new.elbo - here.elbo
    return None


class _Past:
    """The last steps of the sites and how they changed what was still missing. Of their
    combinations the one that leaves least is the next step (Anderson 1965)."""

    def __init__(self, weight: np.ndarray) -> None:
        self.weight = weight
        self.pairs: collections.deque[tuple[_Sites, _Sites]] = collections.deque(maxlen=PAIRS_KEPT)

    def learn(self, step: _Sites, change: _Sites) -> None:
        self.pairs.append((step, change))

    def tried(self, here: _Seen, of: _Sites, off: _Sites) -> Iterator[_Sites]:
        """Sites to go on with, the boldest first."""
        if self.pairs:
            yield self._mixed(here, of, off)
            self.pairs.clear()
        share = SHARE
        while share > SHORTEST:
            yield of.plus(share, off)
            share *= 0.5

    def _mixed(self, here: _Seen, of: _Sites, off: _Sites) -> _Sites:
        unit = here.sd, self.weight
        changes = np.stack([change.flat(*unit) for _, change in self.pairs], 1)
        parts = np.linalg.lstsq(changes, off.flat(*unit), rcond=1e-10)[0]
        for part, (step, change) in zip(parts, self.pairs, strict=True):
            of, off = of.plus(-part, step), off.plus(-part, change)
        return of.plus(SHARE, off)


def _begun(
    density: "ModelDensity", mean: np.ndarray, root: np.ndarray, rule: Nodes
) -> tuple[_Seen, _Sites, float] | None:
    """The Gaussian that the sites of the first one make or, where that is far worse, those at its
    mean alone; and the rise."""
    first = _seen(density, mean, root, rule)
    if first is None:
        return None
    new = _made(density, first.sites, rule)
    if new is not None and new.elbo >= first.elbo - MOST_FALL:
        return new, first.sites, max(new.elbo - first.elbo, 0.0)
    alone = _Sites(*density.point_sites(mean))
    new = _made(density, alone, rule)
    return None if new is None else (new, alone, math.inf)


def _made(density: "ModelDensity", sites: _Sites, rule: Nodes) -> _Seen | None:
    there = density.of_sites(np.zeros(density.dim), *sites)
    return None if there is None else _seen(density, *there, rule)


def _seen(density: "ModelDensity", mean: np.ndarray, root: np.ndarray, rule: Nodes) -> _Seen | None:
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
