"""Hyperparameters of many parameters' linear predictors: Laplace's evidence, then the bound of the
best Gaussian, each with its exact gradient.

With `v_n = phi_n^T P^-1 phi_n`, and everything held but what is named,

    in w        c_w     = (1/2) Phi^T (l''' v)
    in theta    c_theta = (1/2) sum_n d_theta l''_n v_n - (1/2) tr(d_theta Lambda P^-1)
    evidence    dE      = sum_n d_theta l_n + d_theta log N(w* | 0, Lambda^-1) + c_theta
                          + c_w^T P^-1 (Phi^T d_theta l' - d_theta Lambda w*)

The bound's gradient at the best Gaussian is its derivative with the Gaussian held (an envelope).
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from .._arrays._draws import Nodes
from .._density._rows import RowsDensity
from .._errors import Code
from ._by_rows import RowBound, RowMode, RowState, best_by_rows, mode_by_rows
from ._evidence import DIFFERENCE, LEAST_TRAVEL, LONGEST_STEP, SHARES, SLACK
from ._row_curvature import RowCurvature, RowShape
from ._search import Stop, Summit, quasi_newton

Theta = Float[np.ndarray, " hyper"]
# Nats that the search over hyperparameters may leave.
GAIN = 1e-8
MOST_LOOKED_BEYOND = 8


@dataclasses.dataclass(frozen=True)
class RowsTuned:
    """Where the search over the hyperparameters ended."""

    theta: Theta
    gradient: Theta
    ran_off: tuple[bool, ...]
    n_passes: int
    code: Code


class RowEvidence:
    """Laplace's log evidence; the last mode is where the next is sought from."""

    def __init__(self, density: RowsDensity, shape: RowShape, start: np.ndarray, tol: float):
        self.density, self.shape, self.start, self.tol = density, shape, start, tol
        self.last: tuple[Theta, RowMode] | None = None

    def mode(self, theta: Theta) -> RowMode:
        near = self.start if self.last is None else self.last[1].point
        density = self.density.at(theta)
        found = mode_by_rows(density, self.shape, near, self.tol)
        if found.found or self.last is None:
            self.last = theta, found
        return found

    def __call__(self, theta: Theta) -> tuple[float, Theta]:
        if not np.isfinite(theta).all():
            return -math.inf, 0 * theta
        found = self.mode(theta)
        if not found.found or not math.isfinite(found.log_evidence):
            return -math.inf, 0 * theta
        return found.log_evidence, evidence_gradient(self.density.at(theta), found)

    def ended(self, theta: Theta) -> RowMode:
        if self.last is not None and np.array_equal(self.last[0], theta):
            return self.last[1]
        return self.mode(theta)


def evidence_gradient(density: RowsDensity, found: RowMode) -> Theta:
    curved, w = found.curved, found.point
    assert curved is not None
    v, eta = curved.row_variances, density.predictors(w)
    of_rows, of_slopes, of_bends = density.rows.in_theta(eta, density.theta)
    in_w = curved.solve(0.5 * density.pulled(found.slopes.third * v))
    in_w_rows = density.predictors(in_w)
    slopes = density.hyper_prior_slopes + of_rows.sum(1) + 0.5 * of_bends @ v
    slopes = slopes + of_slopes @ in_w_rows
    rows, columns = density.prior.places
    for i, change in enumerate(density.prior_slopes):
        drift = float((change * w[rows]) @ in_w[columns])
        slopes[i] += _of_prior(density, change, w, curved) - drift
    return slopes


def _of_prior(
    density: RowsDensity, change: np.ndarray, mean: np.ndarray, curved: RowCurvature
) -> float:
    """The derivative of `E log N(w | 0, Lambda^-1)` over a Gaussian, for a change of Lambda. At a
    mode that of its density, with that of `-(1/2) log det P`."""
    prior = density.prior
    log_det = float(change @ prior.inverse)
    return 0.5 * (log_det - prior.form(change, mean) - curved.trace(change))


class RowProfile:
    """The bound of the best Gaussian at every theta."""

    def __init__(
        self,
        density: RowsDensity,
        shape: RowShape,
        start: tuple[np.ndarray, RowCurvature],
        rule: Nodes,
        gain: float,
        max_steps: int,
    ):
        self.density, self.shape, self.rule = density, shape, rule
        self.gain, self.max_steps = gain, max_steps
        self.start = start
        self.last: tuple[Theta, RowState] | None = None
        self.n_passes = 0

    def state(self, theta: Theta) -> RowState | None:
        density = self.density.at(theta)
        mean, weights = self.start[0], self.start[1].weights
        if self.last is not None:
            mean, weights = self.last[1].mean, self.last[1].curved.weights
        curved = self.shape.curved(density.prior, weights)
        if curved is None:
            return None
        at = (density, self.shape, (mean, curved), self.rule, self.gain, self.max_steps)
        found = best_by_rows(*at)
        self.n_passes += found.n_passes
        if found.code is Code.OK:
            self.last = theta, found
        return found

    def __call__(self, theta: Theta) -> tuple[float, Theta]:
        if not np.isfinite(theta).all():
            return -math.inf, 0 * theta
        found = self.state(theta)
        if found is None or found.code is not Code.OK:
            return -math.inf, 0 * theta
        density = self.density.at(theta)
        bound = RowBound(density, found.mean, found.curved, self.rule)
        slopes = density.rows.expected_in_theta(*bound.spread, theta, self.rule)
        slopes = slopes + density.hyper_prior_slopes
        changes = density.prior_slopes
        more = [_of_prior(density, one, found.mean, found.curved) for one in changes]
        return found.elbo, slopes + np.array(more)

    def ended(self, theta: Theta) -> RowState | None:
        if self.last is not None and np.array_equal(self.last[0], theta):
            return self.last[1]
        return self.state(theta)


def tuned_by_rows(
    density: RowsDensity, shape: RowShape, start: np.ndarray, tol: float, max_steps: int
) -> tuple[RowMode, RowsTuned]:
    """The mode at the hyperparameters with the highest evidence; at those given where no step is
    allowed."""
    evidence, theta = RowEvidence(density, shape, start, tol), density.theta
    if max_steps == 0:
        still = np.full_like(theta, np.nan)
        return evidence.mode(theta), RowsTuned(theta, still, (False,) * len(theta), 0, Code.OK)
    best = searched(evidence, theta, max_steps, density.resolution)
    found = evidence.ended(best.point)
    ran_off = _ran_off(evidence, found, best.point, theta)
    return found, RowsTuned(best.point, best.gradient, ran_off, best.n_passes, best.code)


def searched(
    evaluate: Callable[[Theta], tuple[float, Theta]],
    theta: Theta,
    max_steps: int,
    resolution: float,
) -> Summit:
    """From the curvature that differences of the gradient show."""
    first = None
    if len(theta) <= MOST_LOOKED_BEYOND:
        first = _first_scale(evaluate, theta)
    stop = Stop(gain=GAIN, max_steps=max_steps, last_step=False)
    return quasi_newton(evaluate, theta, stop, resolution, first, longest_step=LONGEST_STEP)


def _first_scale(
    evaluate: Callable[[Theta], tuple[float, Theta]], theta: Theta
) -> Callable[[Theta], Theta] | None:
    seen = [evaluate(theta + step) for step in DIFFERENCE * np.eye(len(theta))]
    here = evaluate(theta)
    if not all(math.isfinite(value) for value, _ in (*seen, here)):
        return None
    block = np.stack([(here[1] - one[1]) / DIFFERENCE for one in seen])
    values, vectors = np.linalg.eigh(0.5 * (block + block.T))
    values = np.maximum(np.abs(values), 1e-3 * np.abs(values).max(initial=1e-3))
    return lambda gradient: vectors @ ((vectors.T @ gradient) / values)


def _ran_off(evidence: RowEvidence, found: RowMode, theta: Theta, begin: Theta) -> tuple[bool, ...]:
    """Whether going on as far again would cost next to nothing, one by one."""
    if not found.found or len(theta) > MOST_LOOKED_BEYOND:
        return (False,) * len(theta)
    travel, said = theta - begin, []
    beyond = np.where(travel < 0, -1.0, 1.0) * np.maximum(np.abs(travel), LEAST_TRAVEL)
    for step in np.diag(beyond):
        lost = math.inf
        for share in SHARES:
            density = evidence.density.at(theta + share * step)
            there = mode_by_rows(density, evidence.shape, found.point, evidence.tol)
            if there.found and math.isfinite(there.log_evidence):
                lost = found.log_evidence - there.log_evidence
                break
        said.append(lost < SLACK)
    return tuple(said)
