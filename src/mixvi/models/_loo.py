"""Leave-one-out log predictive densities from one Gaussian, without fitting again.

A row enters the Gaussian of the weights as a site: a slope `g_n = a E l'` and a curvature
`t_n = -a E l''` in its own predictor `eta_n ~ N(m, v)` (at the mode, for Laplace, without `E`).
Taking the site out leaves the cavity

    1 / v_ = 1 / v - t,        m_ = m - v_ g

and the row is predicted from that: `log of the integral of p(y_n | eta) N(eta | m_, v_)`, with the
variance that a kernel leaves over added to `v_`. For several predictors the same with matrices. `m`
and `v` are those of the Gaussian that the sites themselves make, `P = Lambda + Phi^T diag(t) Phi`:
near the best Gaussian they are its own, and sites of a rough one still go together. Hyperparameters
stay where they are. Rows that are equal leave together, so that a row of weight two is two rows.

Of Gaussian noise this is exact. Otherwise the sites of the other rows would move, the more the
larger the part `t v` is that a row has in what is known of its predictor (its share: below zero
where it curves upwards, above one where others do), and the further `(m_ - m) / sqrt(v)` its
predictor moves. The few rows of which one is large are left out by fitting the others again, from
the Gaussian that is known.
"""

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from .._approximate._laplace import laplace
from .._approximate._search import Stop
from .._approximate._stein import stein
from .._arrays._draws import SETS, Quadrature
from .._arrays._roots import is_diagonal
from .._errors import Code
from ._by_jax import in_double
from ._density import ModelDensity
from ._integral import log_sum
from ._noise import RealLikelihood, is_gaussian
from ._one import OnePredictor
from ._several import SeveralPredictors, row_roots

FLOAT64, TINY = np.dtype(np.float64), 1e-300
NODES, POINTS = 32, 128
# Rows with a larger share, or that move their predictors further, are left out by fitting again: at
# most so many (of several predictors fewer, which take long and whose cavities are never far off),
# and no more than this work (n D^2 each, of several predictors twenty times that).
LARGE_SHARE, FAR, MOST_REFITS, MOST_OF_SEVERAL, MOST_WORK = 0.5, 1.0, 20, 3, 2e8
# A cavity is made of no larger share; of Gaussian noise only rounding is in the way.
MOST_SHARE, NEARLY_ALL = 0.99, 1 - 1e-9
# Steps to the Gaussian without a row.
REFIT = Stop(gain=0.01, max_steps=12, last_step=True)


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
    """`pointwise`: of every row; `share`: of the information about its predictor that the row
    itself gives; where it is large, the value is that of a fit without it. `predicted`: each row
    from the others, its most probable class or its location. `centre` and `spread`: mean and
    standard deviation of its linear predictor given the others; of several predictors, means and a
    root of their covariance.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> density = models.Model(models.Linear(), models.Gaussian()).density(x, np.sin(x[:, 0]))
    >>> post = mixvi.laplace(density, density.init)
    >>> loo = models.leave_one_out(density, post.flat_mean, post.root, at_mode=True)
    >>> bool(np.isclose(loo.total, loo.pointwise.sum())), bool(loo.share.max() < 0.2)
    (True, True)
    """

    pointwise: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " n"]
    predicted: Float[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]
    share: Float[np.ndarray, " n"]
    centre: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    spread: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))

    @property
    def total(self) -> float:
        return float(self.weight @ self.pointwise)

    @property
    def mean(self) -> float:
        return self.total / float(self.weight.sum())

    @property
    def se(self) -> float:
        """Of the total, as rows vary."""
        return _se(self.pointwise, self.weight)

    def gain_over(self, other: "LeaveOneOut") -> tuple[float, float]:
        """Of the total, and its standard error."""
        gain = self.pointwise - other.pointwise
        return float(self.weight @ gain), _se(gain, self.weight)


def _se(values: np.ndarray, weight: np.ndarray) -> float:
    total = weight.sum()
    centred = values - (weight @ values) / total
    return float(np.sqrt(weight @ centred**2))


@in_double
def leave_one_out(
    density: ModelDensity,
    mean: np.ndarray,
    root: np.ndarray,
    at_mode: bool,
    same: np.ndarray | None = None,
    refit_several: bool = True,
) -> LeaveOneOut:
    """Of `N(mean, root root^T)`; `at_mode`: whether it is Laplace's. `same`: a number for each row;
    rows with the same one are equal and leave together. `refit_several`: whether fits without a row
    are made where there are several predictors, too: they take long, and change little.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> y = x[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(40)
    >>> density = models.Model(models.Linear(), models.Gaussian()).density(x, y)
    >>> post = mixvi.laplace(density, density.init)
    >>> straight = models.leave_one_out(density, post.flat_mean, post.root, at_mode=True)
    >>> density = models.Model(models.Features(np.abs), models.Gaussian()).density(x, y)
    >>> post = mixvi.laplace(density, density.init)
    >>> bent = models.leave_one_out(density, post.flat_mean, post.root, at_mode=True)
    >>> bent.total < straight.total
    True
    """
    if isinstance(density, OnePredictor):
        return _one(density, mean, root, at_mode, same)
    assert isinstance(density, SeveralPredictors)
    return _several(density, mean, root, at_mode, same, MOST_OF_SEVERAL if refit_several else 0)


def _one(
    density: OnePredictor, mean: np.ndarray, root: np.ndarray, at_mode: bool, same: Any
) -> LeaveOneOut:
    m, v = density.predictors(mean, root)
    likelihood, hyper, y, a = density.likelihood, density.hyper, density.y, density.weight
    if at_mode:
        _, slope, bend = likelihood.derivatives(y, m, hyper, 2)
    else:
        rule = Quadrature(NODES).make(FLOAT64)
        eta = m[:, None] + np.sqrt(v)[:, None] * rule.z
        slope, bend = (
            one @ rule.weights for one in likelihood.derivatives(y[:, None], eta, hyper, 2)[1:]
        )
    slope, curvature, at = a * slope, -a * bend, m
    whole = None if at_mode else density.of_sites(mean, slope, curvature)
    if whole is not None:
        m, v = density.predictors(*whole)
    slope, curvature = _together(slope, same), _together(curvature, same)
    share = curvature * v
    known = np.minimum(share, NEARLY_ALL if is_gaussian(likelihood) else MOST_SHARE)
    cavity = v / (1 - known)
    # m_ / v_ = m / v - (g + t m_site)
    centre = m - cavity * (slope + curvature * (at - m))
    moved = np.abs(centre - m) / np.sqrt(np.maximum(v, TINY))
    influence = np.maximum(np.abs(share) / LARGE_SHARE, moved / FAR)
    for rows, again in _refitted(
        density, whole or (mean, root), at_mode, influence, same, MOST_REFITS
    ):
        other, variance = density.predictors(*again)
        centre[rows], cavity[rows] = other[rows], variance[rows]
    sd = np.sqrt(cavity + density.leftover())
    value = likelihood.predictive_log_prob(y, centre, sd, hyper)
    is_class = likelihood.discrete and not isinstance(likelihood, RealLikelihood)
    predicted = centre > 0 if is_class else likelihood.mean_and_sd(centre, sd)[0]
    predicted = np.asarray(predicted, dtype=np.float64)
    return LeaveOneOut(value, y, predicted, a, np.clip(share, 0.0, 1.0), centre, sd)


def _several(
    density: SeveralPredictors,
    mean: np.ndarray,
    root: np.ndarray,
    at_mode: bool,
    same: Any,
    most: int,
) -> LeaveOneOut:
    m, covariance = density.predictors(mean, root)
    likelihood, hyper, y = density.likelihood, density.hyper, density.y
    k, a = density.n_predictors, density.weight
    rule = Quadrature(max(POINTS, 2 * k + 2)).make(FLOAT64, k)
    z = rule.z.transpose(1, 2, 0)[density.groups % SETS]
    if at_mode:
        _, slope = likelihood.several(y, m[:, :, None], hyper)
        slope, bend = slope[:, :, 0], likelihood.several_hessians(y, m, hyper)
    else:
        slope, bend = _averaged(density, m[:, :, None] + row_roots(covariance) @ z)
    slope, curvature, at = a[:, None] * slope, -a[:, None, None] * bend, m
    whole = None if at_mode else density.of_sites(mean, slope, curvature)
    if whole is not None:
        m, covariance = density.predictors(*whole)
    factor = row_roots(covariance)
    slope, curvature = _together(slope, same), _together(curvature, same)
    slope = slope + (curvature @ (at - m)[:, :, None])[:, :, 0]
    # S_ = L (I - L^T T L)^-1 L^T
    values, vectors = np.linalg.eigh(factor.transpose(0, 2, 1) @ curvature @ factor)
    share = values.max(1)
    wider = factor @ (vectors / np.sqrt(1 - np.minimum(values, MOST_SHARE))[:, None, :])
    cavity = wider @ wider.transpose(0, 2, 1)
    centre = m - (cavity @ slope[:, :, None])[:, :, 0]
    moved = np.linalg.solve(factor, (centre - m)[:, :, None])[:, :, 0]
    far = np.sqrt((moved * moved).sum(1))
    influence = np.maximum(np.abs(values).max(1) / LARGE_SHARE, far / FAR)
    for rows, again in _refitted(density, whole or (mean, root), at_mode, influence, same, most):
        other, covariance = density.predictors(*again)
        centre[rows], cavity[rows] = other[rows], covariance[rows]
    # A triangular root: the signs of eigenvectors would decide where the points lie.
    own = density.leftover()[:, None, None] * np.eye(k)
    cavity_root = row_roots(cavity + own)
    (value,) = likelihood.several(y, centre[:, :, None] + cavity_root @ z, hyper, order=0)
    pointwise = log_sum(value.T) - math.log(value.shape[1])
    predicted = centre.argmax(1).astype(np.float64)
    share = np.clip(share, 0.0, 1.0)
    return LeaveOneOut(pointwise, y, predicted, a, share, centre, cavity_root)


def _refitted(
    density: Any,
    start: Any,
    at_mode: bool,
    influence: np.ndarray,
    same: np.ndarray | None,
    most: int,
) -> Iterator[tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]]:
    """Rows with much influence, the most first, and the Gaussian of all others; equal rows
    together. Where no Gaussian is found the cavity stands."""
    if is_gaussian(density.likelihood) or is_diagonal(start[1]):
        return
    which = np.arange(len(influence)) if same is None else same
    order = np.argsort(-influence, kind="stable")
    groups = dict.fromkeys(which[order[influence[order] > 1]].tolist())
    work = (1 if density.n_predictors == 1 else 20) * density.n_rows * density.dim**2
    most = min(most, int(MOST_WORK / work))
    for group in list(groups)[:most]:
        rows = np.flatnonzero(which == group)
        left = copy.copy(density)
        left.weight = density.weight.copy()
        left.weight[rows] = 0.0
        again = _fitted(left, start[0], start[1], at_mode)
        if again is not None:
            yield rows, again


def _fitted(
    density: Any, mean: np.ndarray, root: np.ndarray, at_mode: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    if at_mode:
        found = laplace(density, mean)
        sound = found.code is Code.OK and bool(np.isfinite(found.root).all())
        return (found.mode, found.root) if sound else None
    k = density.n_predictors
    rule = Quadrature(NODES if k == 1 else max(POINTS, 2 * k + 2)).make(FLOAT64, k)
    state = stein(density, mean, root, rule, REFIT)
    sound = state.code in (Code.OK, Code.BOUND_OUT_OF_STEPS) and np.isfinite(state.root).all()
    return (state.mean, state.root) if sound else None


def _averaged(density: SeveralPredictors, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and Hessians over the points (n, K, points)."""
    likelihood, hyper, y = density.likelihood, density.hyper, density.y
    slope = likelihood.several(y, eta, hyper)[1].mean(2)
    n_points = eta.shape[2]
    bend = sum(likelihood.several_hessians(y, eta[:, :, i], hyper) for i in range(n_points))
    return slope, np.asarray(bend) / n_points


def _together(values: np.ndarray, same: np.ndarray | None) -> np.ndarray:
    """Sums over equal rows, at each of them."""
    if same is None:
        return values
    total = np.zeros((int(same.max()) + 1, *values.shape[1:]))
    np.add.at(total, same, values)
    return total[same]


def equal_rows(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """A number for each row, the same for equal ones; None where no two are equal."""
    # A random combination tells rows apart; features in turn, so that equal rows round equally.
    mark = np.asarray(y, dtype=np.float64) * math.pi
    mixing = np.random.default_rng(x.shape[1]).standard_normal(x.shape[1])
    for feature, by in zip(x.T, mixing, strict=True):
        mark = mark + by * feature
    distinct, which = np.unique(mark, return_inverse=True)
    return None if len(distinct) == len(x) else which.ravel()
