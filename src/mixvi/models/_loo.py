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
"""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._draws import SETS, Quadrature
from ._by_jax import in_double
from ._density import ModelDensity
from ._integral import log_sum
from ._noise import RealLikelihood
from ._one import OnePredictor
from ._several import SeveralPredictors, row_roots

FLOAT64 = np.dtype(np.float64)
NODES, POINTS = 32, 128
# A row may hold this share of the information about its own predictor; where it would hold more,
# what is left without it cannot be told.
MOST_SHARE = 0.99


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
    """`pointwise`: of every row; `share`: of the information about its predictor that the row
    itself gives. Near one, the value is rough. `predicted`: each row from the others, its most
    probable class or its location."""

    pointwise: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " n"]
    predicted: Float[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]
    share: Float[np.ndarray, " n"]

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
) -> LeaveOneOut:
    """Of `N(mean, root root^T)`; `at_mode`: whether it is Laplace's. `same`: a number for each row;
    rows with the same one are equal and leave together."""
    if isinstance(density, OnePredictor):
        return _one(density, mean, root, at_mode, same)
    assert isinstance(density, SeveralPredictors)
    return _several(density, mean, root, at_mode, same)


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
    if not at_mode and (whole := density.of_sites(mean, slope, curvature)) is not None:
        m, v = density.predictors(*whole)
    slope, curvature = _together(slope, same), _together(curvature, same)
    share = np.minimum(curvature * v, MOST_SHARE)
    cavity = v / (1 - share)
    # m_ / v_ = m / v - (g + t m_site)
    centre = m - cavity * (slope + curvature * (at - m))
    sd = np.sqrt(cavity + density.leftover())
    value = likelihood.predictive_log_prob(y, centre, sd, hyper)
    is_class = likelihood.discrete and not isinstance(likelihood, RealLikelihood)
    predicted = centre > 0 if is_class else likelihood.mean_and_sd(centre, sd)[0]
    predicted = np.asarray(predicted, dtype=np.float64)
    return LeaveOneOut(value, y, predicted, a, np.maximum(share, 0.0))


def _several(
    density: SeveralPredictors, mean: np.ndarray, root: np.ndarray, at_mode: bool, same: Any
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
    if not at_mode and (whole := density.of_sites(mean, slope, curvature)) is not None:
        m, covariance = density.predictors(*whole)
    factor = row_roots(covariance)
    slope, curvature = _together(slope, same), _together(curvature, same)
    slope = slope + (curvature @ (at - m)[:, :, None])[:, :, 0]
    # S_ = L (I - L^T T L)^-1 L^T
    values, vectors = np.linalg.eigh(factor.transpose(0, 2, 1) @ curvature @ factor)
    share = np.minimum(values, MOST_SHARE)
    wider = factor @ (vectors / np.sqrt(1 - share)[:, None, :])
    centre = m - (wider @ (wider.transpose(0, 2, 1) @ slope[:, :, None]))[:, :, 0]
    # A triangular root: the signs of eigenvectors would decide where the points lie.
    own = density.leftover()[:, None, None] * np.eye(k)
    cavity_root = row_roots(wider @ wider.transpose(0, 2, 1) + own)
    (value,) = likelihood.several(y, centre[:, :, None] + cavity_root @ z, hyper, order=0)
    pointwise = log_sum(value.T) - math.log(value.shape[1])
    predicted = centre.argmax(1).astype(np.float64)
    return LeaveOneOut(pointwise, y, predicted, a, np.maximum(share.max(1), 0.0))


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
