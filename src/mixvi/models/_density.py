"""A model with its data as a density in closed form: nothing is traced or compiled.

    log p~(w | theta) = sum_n a_n l(y_n, eta_n; theta) + log N(w | 0, Lambda^-1) + log p(theta),
    eta = Phi(theta) w + offset,        Lambda = alpha Lambda_0, but for the constants' own

`a` are the rows' weights. Rows are taken in blocks: time is linear in their number, and beside the
table itself only a few blocks are in memory. Here is what one predictor per row and several have in
common: hyperparameters, blocks, the prior.
"""

import abc
import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._approximate._laplace import covariance_root
from .._arrays._draws import Nodes
from .._arrays._roots import Root, is_diagonal, log_det
from .._density._protocol import Density, Expectation, OwnEvidence, Points, averaged, coloured
from .._density._target import precision_scope
from ._accelerated import Accelerated
from ._basis import Basis, Rows, Shared
from ._likelihoods import Hyper, Likelihood, normal_logpdf
from ._precision import Precision
from ._process import points_of, process_of
from ._sites import best_gaussian

# Numbers of a design that a block has, and that are kept from one question to the next.
BLOCK, KEPT = 2**20, 2**26
# Predictors that are looked at together: they stay in the processor's cache. But at least so many
# points, or products with a design would read it once for each.
IN_CACHE, LEAST_POINTS = 2**16, 16
# Relative rounding of means over draws in float32.
SINGLE = 1e-8
# Predictors at all points that are asked for at once.
MOST_AT_ONCE = 2**19
ALPHA_SD = 3.0
LOG_2PI = math.log(2 * math.pi)

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


class Block(NamedTuple):
    """Some rows, and their design."""

    rows: Rows
    phi: Float[np.ndarray, "n weights"]
    y: Float[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]
    offset: Any
    which: slice


class ModelDensity(Density):
    """What `Model.density` makes. `hyper` are the hyperparameters at which it is taken; `fit` may
    learn them (`fit(density, density.init, hyper=density.hyper)`).

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> model = models.Model(models.Linear(), models.Bernoulli(), weak_prior=False)
    >>> density = model.density(x, x[:, 0] > 0)
    >>> values, gradients = density.gradients(np.zeros((1, 2)))
    >>> bool(np.isclose(values[0], 40 * np.log(0.5) - np.log(2 * np.pi))), gradients.shape
    (True, (1, 2))
    """

    is_checked = True
    dense_newton = 3000
    # Wide basis functions are nearly the same: closer, rounding moves the weights about.
    mode_tol = 1e-6
    # Of rows in pieces the first one has the prior.
    has_prior = True
    # Which rows share their quadrature nodes, where there are several predictors.
    groups: Any = None
    # In which expectations over draws are computed.
    _over_draws: Any = np.float64
    _accelerated: Any = None

    def __init__(
        self,
        basis: Basis,
        likelihood: Likelihood,
        shared: Shared,
        rows: Rows,
        y: Float[np.ndarray, " n"],
        weight: Float[np.ndarray, " n"],
        hyper: Hyper,
        offset: np.ndarray | None = None,
        prior_precision: Any = None,
        weak_prior: bool = True,
        constant_precision: float | None = None,
    ):
        self.basis, self.likelihood, self.shared = basis, likelihood, shared
        self.rows, self.y, self.weight, self.offset = rows, y, weight, offset
        self.weak_prior, self.n_rows = weak_prior, len(y)
        self.log_concave = likelihood.log_concave
        self.n_weights, self.n_predictors = basis.n_columns(shared) + 1, likelihood.n_outputs
        self.dim = self.n_weights * self.n_predictors
        self.precision = Precision.of(prior_precision, self.n_weights, constant_precision)
        self.names = sorted(hyper)
        self.shapes = {name: np.shape(hyper[name]) for name in self.names}
        self.n_hyper = sum(math.prod(shape) for shape in self.shapes.values())
        self.values_at_once = max(1, MOST_AT_ONCE // max(1, len(y) * self.n_predictors))
        self._points = points_of(self)
        self.has_own_evidence = self._points is not None
        self.has_best_gaussian = basis.has_amplitude or self.n_predictors > 1
        self._bind(hyper)

    # --- hyperparameters ----------------------------------------------------------------------

    def _bind(self, hyper: Hyper) -> None:
        self.hyper = {name: np.asarray(hyper[name], dtype=np.float64) for name in self.names}
        self._designs: list[np.ndarray] | None = None
        self._known_prior: float | None = None

    @property
    def init(self) -> np.ndarray:
        """Zero weights: where the search for the mode begins."""
        several = self.n_predictors > 1
        return np.zeros((self.n_predictors, self.n_weights) if several else self.n_weights)

    @property
    def theta(self) -> Float[np.ndarray, " hyper"]:
        return self.flat(self.hyper)

    def at(self, theta: Float[np.ndarray, " hyper"]) -> "ModelDensity":
        other, first, hyper = copy.copy(self), 0, {}
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            hyper[name] = np.asarray(theta[first : first + size]).reshape(shape)
            first += size
        other._bind(hyper)
        return other

    def with_rows(
        self, rows: Rows, y: np.ndarray, weight: np.ndarray, offset: Any, has_prior: bool
    ) -> "ModelDensity":
        """The same of other rows."""
        other = copy.copy(self)
        other.rows, other.y, other.weight, other.offset = rows, y, weight, offset
        other.n_rows, other.has_prior = len(y), has_prior
        other.groups = np.arange(len(y), dtype=np.int32)
        other._bind(self.hyper)
        return other

    def flat(self, slopes: Hyper) -> Float[np.ndarray, " hyper"]:
        """In the order of the names; zero where there is none."""
        parts = [
            np.broadcast_to(slopes.get(name, 0.0), shape).ravel()
            for name, shape in self.shapes.items()
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _place(self, name: str) -> slice:
        """Of a hyperparameter among the numbers of theta."""
        first = 0
        for known, shape in self.shapes.items():
            size = math.prod(shape)
            if known == name:
                return slice(first, first + size)
            first += size
        raise KeyError(name)

    @property
    def _basis_places(self) -> list[int]:
        """Of the basis's hyperparameters, in the order of their names."""
        places = (self._place(name) for name in sorted(self.basis.start(self.shared)))
        return [i for place in places for i in range(place.start, place.stop)]

    def _sum_slopes(self, *parts: Hyper) -> Float[np.ndarray, " hyper"]:
        total: Hyper = {}
        for part in parts:
            for name, slope in part.items():
                total[name] = total.get(name, 0.0) + np.asarray(slope)
        return self.flat(total)

    # --- rows ---------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        n, size = self.n_rows, self._rows_at_once
        keep = n * self.n_weights <= KEPT
        known = self._designs
        made: list[np.ndarray] = []
        for k, first in enumerate(range(0, n, size)):
            index = slice(first, first + size)
            whole = size >= n
            rows = self.rows if whole else {name: one[index] for name, one in self.rows.items()}
            phi = (
                np.asarray(self.basis.design(rows, self.shared, self.hyper))
                if known is None
                else known[k]
            )
            if keep and known is None:
                made.append(phi)
            offset = 0.0 if self.offset is None else self.offset[index]
            yield Block(rows, phi, self.y[index], self.weight[index], offset, index)
        if keep and known is None:
            self._designs = made

    @property
    def _rows_at_once(self) -> int:
        if self.basis.has_amplitude:  # a kernel's columns depend on all rows
            return max(1, self.n_rows)
        return max(64, BLOCK // self.n_weights)

    def leftover(self) -> Float[np.ndarray, " n"]:
        """Variance of every row's predictors that no weight explains: predictions add it."""
        found = np.zeros(self.n_rows)
        for block in self.blocks():
            own = self.basis.leftover(block.rows, self.shared, self.hyper, block.phi[:, :-1])
            found[block.which] = 0.0 if own is None else np.asarray(own)
        return found

    def _basis_slopes(self, block: Block, slopes: np.ndarray) -> Hyper:
        """What derivatives in the design of a block are in the basis's hyperparameters."""
        phi = block.phi[:, :-1]
        return self.basis.pull_back(block.rows, self.shared, self.hyper, phi, slopes[:, :-1])

    # --- the prior ----------------------------------------------------------------------------

    @property
    def alpha(self) -> float:
        return float(np.exp(self.hyper["log_alpha"])) if "log_alpha" in self.hyper else 1.0

    def _by_output(self, w: np.ndarray) -> np.ndarray:
        """Flat weights (..., dim) as (weights, outputs, ...)."""
        shaped = w.reshape(*w.shape[:-1], self.n_predictors, self.n_weights)
        return np.moveaxis(shaped, (-1, -2), (0, 1))

    def _prior_times(self, columns: np.ndarray) -> np.ndarray:
        """`Lambda X` for `X` (dim, ...)."""
        if not self.has_prior:
            return np.zeros_like(columns)
        k, shape = self.n_predictors, columns.shape
        if k == 1:
            return self.precision.times(columns, self.alpha)
        parts = columns.reshape(k, self.n_weights, -1)
        return np.stack([self.precision.times(part, self.alpha) for part in parts]).reshape(shape)

    def _changed_prior_times(self, columns: np.ndarray) -> np.ndarray:
        """`dLambda / d log alpha X`: `Lambda X` without the constants that have their own."""
        made = self._prior_times(columns)
        made[self._held] = 0.0
        return made

    @property
    def _held(self) -> slice:
        """Constants whose precision is their own, among the weights."""
        last = self.n_weights - 1
        none = self.precision.constant is None
        return slice(0) if none else slice(last, None, self.n_weights)

    def _held_square(self, w: Any, root: Any = None) -> float:
        """The part of `E w^T Lambda w` that `alpha` leaves alone: a mean over points (points, dim)
        or under `N(w, root root^T)`."""
        if self.precision.constant is None:
            return 0.0
        square = float((w[..., self._held] ** 2).sum(-1).mean())
        if root is not None:
            square += float((root[self._held] ** 2).sum())
        return self.precision.constant * square

    def _log_prior(self, square: Any) -> Any:
        """`log N(w | 0, Lambda^-1) + log p(theta)` with `square = w^T Lambda w`."""
        if not self.has_prior:
            return 0.0 * square
        log_det = self.n_predictors * self.precision.log_det_at(self.alpha)
        return 0.5 * (log_det - self.dim * LOG_2PI - square) + self._log_hyper_prior

    @property
    def _log_hyper_prior(self) -> float:
        if not self.weak_prior:
            return 0.0
        if self._known_prior is not None:
            return self._known_prior
        with precision_scope(np.dtype(np.float64)):  # a user's may be written with JAX
            own = self.basis.log_prior(self.hyper, self.shared)
            value = own + self.likelihood.log_prior(self.hyper)
        if "log_alpha" in self.hyper:
            value = value + normal_logpdf(self.hyper["log_alpha"], 0.0, ALPHA_SD)
        self._known_prior = float(value)
        return self._known_prior

    def _prior_slopes(self, square: float) -> Hyper:
        """In the hyperparameters, of `_log_prior`; `square` without that of the constants that have
        a precision of their own."""
        slopes: Hyper = {}
        if not self.has_prior:
            return slopes
        if self.weak_prior:
            own = self.basis.log_prior_slopes(self.hyper, self.shared)
            slopes = own | self.likelihood.log_prior_slopes(self.hyper)
        if "log_alpha" in self.hyper:
            weak = -self.hyper["log_alpha"] / ALPHA_SD**2 if self.weak_prior else 0.0
            n_scaled = self.n_predictors * self.precision.n_scaled
            slopes = slopes | {"log_alpha": weak + 0.5 * (n_scaled - square)}
        return slopes

    def _minus_prior(self, hessian: Square) -> Square:
        if not self.has_prior:
            return hessian
        k, size = self.n_predictors, self.n_weights
        for one in range(k):
            own = slice(one * size, (one + 1) * size)
            hessian[own, own] = self.precision.taken_from(hessian[own, own], self.alpha)
        return hessian

    def _expected_prior(self, mean: Vector, root: Root) -> tuple[float, Vector, Any, Hyper]:
        """Under `N(mean, root root^T)`: value, the expected gradient, its product with `z^T` (the
        diagonal of it for a diagonal root) and the slopes in the hyperparameters."""
        pulled = self._prior_times(mean)
        if is_diagonal(root) and self.has_prior:
            scale = np.tile(self.precision.diagonal_at(self.alpha), self.n_predictors)
            bent = scale * root
        else:
            bent = self._prior_times(root)
        square = float(mean @ pulled + (root * bent).sum())
        slopes = self._prior_slopes(square - self._held_square(mean, root))
        return float(self._log_prior(square)), -pulled, -bent, slopes

    # --- questions ----------------------------------------------------------------------------

    def gradients(self, points):
        values, gradients, _ = self._at_points(points, learns=False)
        return values, gradients

    def joint_gradients(self, points):
        if self._accelerated is None:
            return self._at_points(points, learns=True)
        square, pulled = self._prior_at_points(points)
        values, gradients, slopes = self._accelerated(points, self.hyper)
        of_rows = {name: slope / len(points) for name, slope in slopes.items()}
        slope = self._sum_slopes(self._prior_slopes_over(points, square), of_rows)
        return self._log_prior(square) + values, gradients - pulled, slope

    def on_accelerator(self) -> "ModelDensity":
        """The same, with gradients at many points (fixed draws) from JAX's default device: worth
        its compilation where that is an accelerator and there are many passes over many draws."""
        other = copy.copy(self)
        other._accelerated = Accelerated(self)
        return other

    def in_single(self) -> "ModelDensity":
        """The same, with expectations over draws in float32 wherever rounding is averaged out:
        from spreads of the predictors, not from weights, which may be large and cancel."""
        other = copy.copy(self)
        other._over_draws, other.resolution_over_draws = np.float32, SINGLE
        return other

    def expects_over_draws(self, root):
        if self._accelerated is not None:
            return False
        in_single = self._over_draws is np.float32
        return self.n_predictors == 1 or is_diagonal(root) or in_single

    def _prior_over_draws(
        self, mean: Vector, root: Root, rule: Points
    ) -> tuple[Expectation, Hyper]:
        """And the slopes in the hyperparameters."""
        w = coloured(mean, root, rule.z)
        square, pulled = self._prior_at_points(w)
        found = averaged(self._log_prior(square), -pulled, root, rule)
        return found, self._prior_slopes_over(w, square)

    def _prior_slopes_over(self, points: np.ndarray, square: np.ndarray) -> Hyper:
        """Their mean over points, with `w^T Lambda w` of each."""
        return self._prior_slopes(float(square.mean()) - self._held_square(points))

    def _draws_and_one(self, z: np.ndarray) -> np.ndarray:
        """`(z, 1)`."""
        return np.concatenate([z, np.ones_like(z[..., :1])], axis=-1).astype(self._over_draws)

    @abc.abstractmethod
    def _at_points(
        self, points: Float[np.ndarray, "points dim"], learns: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, gradients, and where it `learns` the mean gradient in the hyperparameters."""

    @abc.abstractmethod
    def expected_by_row(self, mean: Vector, root: Root, rule: Any) -> Float[np.ndarray, " n"]:
        """`E l(y_n, eta_n)` for every row, unweighted."""

    @abc.abstractmethod
    def predictors(self, mean: Vector, root: Root) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of every `eta_n`, (n,) each; of K predictors (n, K) and (n, K, K)."""

    @abc.abstractmethod
    def of_sites(
        self, mean: Vector, slope: np.ndarray, curvature: np.ndarray
    ) -> tuple[Vector, Square] | None:
        """The Gaussian whose rows have these slopes and curvatures at the predictors of `mean`: its
        mean and a root of its covariance; None where it has none."""

    def own_evidence(self, near, tol):
        told = process_of(self, self._points).evidence(near, tol)
        if told is None:
            return None
        gradient = self._sum_slopes(self._prior_slopes(0.0), *told.slopes)

        def mode() -> Vector:
            """`w = Phi^T g`, with the slopes of the rows."""
            (block,) = self.blocks()
            return (told.row_slopes @ block.phi).ravel()

        return OwnEvidence(told.value + self._log_hyper_prior, gradient, told.fall, told.last, mode)

    def best_gaussian(self, mean, root, rule, gain):
        return best_gaussian(self, mean, root, rule, gain)

    @abc.abstractmethod
    def site_slopes(
        self, centre: np.ndarray, covariances: np.ndarray, rule: Nodes
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every row with such a predictor: `E l`, and its weighted slope and curvature, minus
        the second derivative, in the mean."""

    @abc.abstractmethod
    def point_sites(self, mean: Vector) -> tuple[np.ndarray, np.ndarray]:
        """At the predictors of one point: `g + t (Phi mean)` and the curvatures `t`."""

    def bound_of_sites(
        self, mean: Vector, root: Square, values: np.ndarray, slope: np.ndarray
    ) -> tuple[float, Vector]:
        """The bound of a Gaussian with a triangular root, and its gradient in the mean, from what
        the rows say."""
        square = float(mean @ (pulled := self._prior_times(mean))) + self._prior_trace(root)
        value = float(self.weight @ values) + float(self._log_prior(square))
        for block in self.blocks():
            pulled = pulled - (slope[block.which].T @ block.phi).ravel()
        return value + log_det(root) + 0.5 * self.dim * (1 + LOG_2PI), -pulled

    def _prior_trace(self, root: Square) -> float:
        """`tr R^T Lambda R`."""
        return float((root * self._prior_times(root)).sum())

    def _changed_prior_trace(self, root: Square) -> float:
        """Its derivative in `log alpha`."""
        return float((root * self._changed_prior_times(root)).sum())

    def _prior_at_points(
        self, points: Float[np.ndarray, "points dim"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """`w^T Lambda w` and `Lambda w` for many points."""
        pulled = self._prior_times(np.ascontiguousarray(points.T)).T
        return (pulled * points).sum(1), pulled


def gaussian_at(point: Vector, gradient: Vector, hessian: Square) -> tuple[Vector, Square] | None:
    """Mean and root of the Gaussian whose log density has these; None where there is none."""
    root, log_det, _ = covariance_root(-hessian, "raise")
    return (point + root @ (root.T @ gradient), root) if math.isfinite(log_det) else None


def some_points(n: int, n_predictors: int) -> Iterator[slice]:
    """`n` points, as many at a time as have their predictors in the cache."""
    return slices(n, max(LEAST_POINTS, IN_CACHE // max(1, n_predictors)))


def slices(n: int, size: int) -> Iterator[slice]:
    """`n` things, at most `size` at a time."""
    size = max(1, size)
    return (slice(first, min(first + size, n)) for first in range(0, n, size))
