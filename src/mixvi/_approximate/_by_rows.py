"""From rows to a Gaussian, for many parameters: the mode, and the Gaussian with the highest bound.

The covariance of the best Gaussian has the structure of Laplace's (Opper and Archambeau 2009),

    P = Lambda + Phi^T diag(w) Phi,        w_n = -E l''(eta_n),    eta_n ~ N(phi_n^T mu, v_n)

so a step of the natural gradient is one factorisation: from `w` towards its new value, and
`mu <- mu + P^-1 E g` (Khan and Rue 2023). Of the mean alone `P` stays Laplace's.
"""

import dataclasses
import functools
import math

import numpy as np
from jaxtyping import Float

from .._arrays._draws import Nodes
from .._arrays._roots import Root
from .._density._rows import LOG_2PI, RowsDensity, Slopes
from .._errors import Code
from .._watch import tell, tell_newton
from ._row_curvature import RowCurvature, RowShape

Vector = Float[np.ndarray, " dim"]
PerRow = Float[np.ndarray, " n"]
MOST_HALVINGS = 40
SLOPE = 1e-4  # Armijo's


@dataclasses.dataclass(frozen=True)
class RowMode:
    """A mode, or where the search for one ended: `code` says which. `decrement`: the gradient in
    standard deviations. `log_evidence`: Laplace's."""

    point: Vector
    log_density: float
    gradient: Vector
    decrement: float
    slopes: Slopes
    curved: RowCurvature | None
    n_steps: int
    n_damped: int
    code: Code

    @property
    def found(self) -> bool:
        return self.code is Code.OK

    @property
    def log_evidence(self) -> float:
        if self.curved is None:
            return math.nan
        return self.log_density + 0.5 * (len(self.point) * LOG_2PI - self.curved.log_det)


class _Place:
    """A point with its rows."""

    def __init__(self, density: RowsDensity, point: Vector):
        self.point = point
        self.slopes = density.rows.slopes(density.predictors(point), density.theta)
        self.pulled = density.prior.times(point)
        self.value = float(self.slopes.value.sum() + density.log_prior(point))
        self.gradient = density.pulled(self.slopes.first) - self.pulled
        # What rounding leaves of the value.
        size = abs(self.value) + float(np.abs(self.slopes.value).sum())
        self.noise = 8 * density.resolution * size

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.value) and bool(np.isfinite(self.gradient).all())


def mode_by_rows(
    density: RowsDensity, shape: RowShape, start: Vector, tol: float, max_steps: int = 300
) -> RowMode:
    """Newton's method. Where the precision is not definite, that of the rows that curve downwards
    leads the way."""
    place, n_damped = _Place(density, start), 0

    def ended(code: Code, curved: RowCurvature | None, decrement: float, n: int) -> RowMode:
        parts = (place.point, place.value, place.gradient, decrement, place.slopes)
        return RowMode(*parts, curved, n, n_damped, code)

    if not (place.is_finite and np.isfinite(place.slopes.second).all()):
        return ended(Code.NON_FINITE_START, None, math.inf, 0)
    own, decrement = None, math.inf
    for n in range(max_steps):
        weights = -place.slopes.second
        own = shape.curved(density.prior, weights)
        lead = own
        if lead is None:
            lead = shape.curved(density.prior, np.maximum(weights, 0.0))
            n_damped += 1
        if lead is None:
            return ended(Code.INDEFINITE, None, math.inf, n)
        step = lead.solve(place.gradient)
        decrement = math.sqrt(max(float(step @ place.gradient), 0.0))
        if decrement <= tol:
            return ended(Code.OK if own is not None else Code.INDEFINITE, own, decrement, n)
        there, share = _Place(density, place.point + step), 1.0
        tell_newton()
        while not _rises(place, there, share * decrement**2):
            share *= 0.5
            if share < 0.5**MOST_HALVINGS:
                return ended(Code.STUCK, own, decrement, n)
            there = _Place(density, place.point + share * step)
        n_damped += share < 1 and own is not None
        place = there
    return ended(Code.RAN_OUT_OF_STEPS, own, decrement, max_steps)


def _rises(here: _Place, there: _Place, foreseen: float) -> bool:
    finite = there.is_finite and np.isfinite(there.slopes.second).all()
    return bool(finite and there.value >= here.value + SLOPE * foreseen - here.noise)


# --- the bound --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RowBound:
    """The bound of `N(mean, P^-1)` by quadrature, and what it says of a better one: `pull` is
    `E g`, `wanted` the weights `-E l''` (by Stein's identity, exact for the rule itself)."""

    density: RowsDensity
    mean: Vector
    curved: RowCurvature
    rule: Nodes

    @functools.cached_property
    def spread(self) -> tuple[PerRow, PerRow]:
        """Mean and standard deviation of every row's predictor."""
        sd = np.sqrt(np.maximum(self.curved.row_variances, 0.0))
        return self.density.predictors(self.mean), sd

    @functools.cached_property
    def rows(self):
        return self.density.rows.expected(*self.spread, self.density.theta, self.rule)

    @functools.cached_property
    def elbo(self) -> float:
        prior, dim = self.density.prior, self.density.dim
        form = float(self.mean @ prior.times(self.mean)) + self.curved.trace(prior.data)
        own = self.density.prior_constant - 0.5 * form
        entropy = 0.5 * (dim * (1 + LOG_2PI) - self.curved.log_det)
        return float(self.rows.value.sum()) + own + entropy

    @functools.cached_property
    def pull(self) -> Vector:
        return self.density.pulled(self.rows.in_mean) - self.density.prior.times(self.mean)

    @functools.cached_property
    def wanted(self) -> PerRow:
        sd = self.spread[1]
        safe = np.where(sd > 0, sd, 1.0)
        return np.where(sd > 0, -self.rows.in_sd / safe, self.curved.weights)

    @property
    def is_finite(self) -> bool:
        finite = math.isfinite(self.elbo) and np.isfinite(self.pull).all()
        return bool(finite and np.isfinite(self.wanted).all())

    def gain_mean(self, better: RowCurvature) -> float:
        """`(1/2) E g^T P_new^-1 E g`, in nats."""
        return 0.5 * float(self.pull @ better.solve(self.pull))

    def gain_widths(self, better: RowCurvature) -> float:
        """`(1/2) (tr P_new P^-1 - D - log det P_new P^-1)`, of a precision with other weights."""
        return self.curved.gain_to(better, self.spread[1] ** 2)


@dataclasses.dataclass(frozen=True)
class RowState:
    """Where the search over the bound ended."""

    mean: Vector
    curved: RowCurvature
    elbo: float
    gain_left: float
    gradient: float  # in standard deviations
    n_passes: int
    code: Code

    @property
    def root(self) -> Root:
        return self.curved.root


def best_by_rows(
    density: RowsDensity,
    shape: RowShape,
    start: tuple[Vector, RowCurvature],
    rule: Nodes,
    gain: float,
    max_steps: int,
    mean_only: bool = False,
) -> RowState:
    """From a Gaussian to the one with the highest bound, or to the best mean: damped steps of the
    natural gradient, none of them down, until less than `gain` nats are left."""
    here, n_passes = RowBound(density, *start, rule), 1
    if not here.is_finite:
        return RowState(*start, math.nan, math.inf, math.inf, 1, Code.NON_FINITE_DRAWS)
    while True:
        aim = shape.curved(density.prior, here.wanted)
        lead = aim
        if lead is None:
            lead = shape.curved(density.prior, np.maximum(here.wanted, 0.0))
        assert lead is not None
        of_mean = here.gain_mean(lead)
        left = of_mean if mean_only else of_mean + here.gain_widths(lead)
        left = math.inf if aim is None else left
        slope = math.sqrt(2 * max(of_mean, 0.0))

        def ended(code: Code) -> RowState:
            parts = (here.mean, here.curved, here.elbo, left, slope, n_passes)  # noqa: B023
            return RowState(*parts, code)

        tell(here.elbo, left, len(rule.weights), lambda: ended(Code.INTERRUPTED))
        if left <= max(gain, 16 * density.resolution * abs(here.elbo)):
            return ended(Code.OK)
        share, there = 1.0, None
        while there is None:
            if n_passes >= max_steps:
                return ended(Code.BOUND_OUT_OF_STEPS)
            there = _moved(here, shape, lead, share, mean_only)
            n_passes += 1
            noise = 64 * density.resolution * (1 + abs(here.elbo))
            if there is None or not there.is_finite or there.elbo < here.elbo - noise:
                there, share = None, 0.5 * share
                if share < 0.5**MOST_HALVINGS:
                    return ended(Code.BOUND_STUCK)
        here = there


def _moved(
    here: RowBound, shape: RowShape, lead: RowCurvature, share: float, mean_only: bool
) -> RowBound | None:
    density = here.density
    if mean_only:
        return dataclasses.replace(here, mean=here.mean + share * lead.solve(here.pull))
    curved: RowCurvature | None = lead
    if share < 1:
        weights = here.curved.weights + share * (lead.weights - here.curved.weights)
        curved = shape.curved(density.prior, weights)
    if curved is None:
        return None
    mean = here.mean + share * curved.solve(here.pull)
    return dataclasses.replace(here, mean=mean, curved=curved)
