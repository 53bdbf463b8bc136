"""Predictions that integrate the posterior: by quadrature for one predictor, otherwise over draws.

Rows go in blocks, so that memory is bounded.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._arrays._draws import SAMPLE, Matched, Quadrature, generator
from .._arrays._roots import colour, is_diagonal
from .._errors import InputError
from .._fit._posterior import Posterior
from ..metrics import LPD
from ._basis import Rows, Shared
from ._by_jax import in_double
from ._density import slices
from ._integral import log_sum
from ._likelihoods import Hyper
from ._model import Model, checked_offset
from ._noise import RealLikelihood

# Numbers of an array that is made at once.
AT_ONCE = 2**20
NODES = 512
N_DRAWS = 2048
DRAWS_AT_ONCE = 1000
# Rows between which a kernel's leftover covariance is known.
MOST_TOGETHER = 2000


@dataclasses.dataclass(frozen=True)
class Predictive:
    """A model with a Gaussian over its weights. Functions take rows as `model.basis.rows` makes
    them, and with `offset` what is added to each linear predictor, as for `Model.density`.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> model = models.Model(models.Linear(), models.Poisson())
    >>> density = model.density(x, np.round(np.exp(x[:, 0])))
    >>> post = mixvi.fit(density, density.init)
    >>> predictive = models.Predictive.of(model, density.shared, post, density.hyper)
    >>> predictive.expectation(model.basis.rows([[0.0]], density.shared)).round()
    array([1.])
    """

    model: Model
    hyper: Hyper
    shared: Shared
    mean: np.ndarray
    root: np.ndarray

    @classmethod
    def of(
        cls, model: Model, shared: Shared, post: Posterior, hyper: Hyper | None = None
    ) -> "Predictive":
        """`hyper`: where the posterior has learnt none, those of the density that it is of."""
        known = (hyper or {}) | (post.hyper or {})
        if missing := sorted(set(model.hyper(shared)) - set(known)):
            raise InputError(
                f"the posterior has learnt no {', '.join(missing)}: pass hyper=density.hyper."
            )
        return cls(model, known, shared, post.flat_mean, post.root)

    @property
    def outputs(self) -> int:
        return self.model.likelihood.n_outputs

    # --- the linear predictor -----------------------------------------------------------------

    def predictor(self, rows: Rows, offset: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the linear predictor; of K, means (n, K) and covariances
        (n, K, K)."""
        both = self._both(rows, offset)
        mean, variance = self._in_blocks(self._moments, both, per_row=len(self.mean))
        return mean, np.sqrt(variance) if self.outputs == 1 else variance

    def _both(self, rows: Rows, offset: Any, **others: np.ndarray) -> dict[str, Any]:
        """What blocks are taken of."""
        n = len(next(_leaves(rows)))
        offset = checked_offset(offset, n, self.outputs)
        return {"rows": rows, **({} if offset is None else {"offset": offset}), **others}

    def _moments(self, both: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self._moments_without(both["rows"])
        return mean + both.get("offset", 0.0), variance

    def _moments_without(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        design, leftover = self._design(rows)
        if self.outputs == 1:
            spread = design * self.root if is_diagonal(self.root) else design @ self.root
            return design @ self.mean, (spread**2).sum(1) + leftover
        k = self.outputs
        mean = design @ self.mean.reshape(k, -1).T
        own = np.eye(k) * np.reshape(leftover, (-1, 1, 1))
        if is_diagonal(self.root):
            variances = design**2 @ (self.root**2).reshape(k, -1).T
            return mean, variances[:, :, None] * np.eye(k) + own
        rows_of_root = self.root.reshape(k, design.shape[1], -1)
        spread = np.stack([design @ part for part in rows_of_root], axis=1)
        return mean, spread @ spread.transpose(0, 2, 1) + own

    def _design(self, rows: Rows) -> tuple[np.ndarray, Any]:
        """And the variance that no weight explains."""
        basis = self.model.basis
        design = np.asarray(basis.design(rows, self.shared, self.hyper))
        leftover = basis.leftover(rows, self.shared, self.hyper, design[:, :-1])
        return design, 0.0 if leftover is None else np.asarray(leftover)

    def design_and_rest(self, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]:
        """The design, and a root of the covariance that a kernel leaves over between these rows;
        None where there is none. Of very many rows each is taken by itself: a vector."""
        design, leftover = self._design(rows)
        if not np.any(leftover):
            return design, None
        if len(design) > MOST_TOGETHER:
            return design, np.sqrt(leftover)
        covariance = self.model.basis.leftover_covariance(
            rows, self.shared, self.hyper, design[:, :-1]
        )
        values, vectors = np.linalg.eigh(covariance)
        return design, vectors * np.sqrt(np.maximum(values, 0.0))

    # --- what is predicted --------------------------------------------------------------------

    @in_double
    def expectation(self, rows: Rows, offset: Any = None) -> np.ndarray:
        """`E(y)` for each row; for several classes their probabilities."""
        both = self._both(rows, offset)
        if self.outputs == 1:
            return self._in_blocks(self._expected_mean, both, per_row=NODES)
        return self._in_blocks(self._mean_over_nodes, both, per_row=self.outputs * N_DRAWS)

    def _expected_mean(self, both: dict[str, Any]) -> np.ndarray:
        mean, variance = self._moments(both)
        rule = Quadrature(NODES).make(np.dtype(np.float64))
        at = mean[:, None] + np.sqrt(variance)[:, None] * rule.z
        return np.asarray(self.model.likelihood.mean(at, self.hyper)) @ rule.weights

    def _mean_over_nodes(self, both: dict[str, Any]) -> np.ndarray:
        mean, covariance = self._moments(both)
        eta = self._at_nodes(mean, covariance)
        return np.asarray(self.model.likelihood.mean(eta, self.hyper)).mean(1)

    def _at_nodes(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Of several predictors, matched points of their own Gaussian: (n, points, K)."""
        z = Matched(N_DRAWS).make(0, self.outputs, SAMPLE)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        return mean[:, None, :] + z @ root.transpose(0, 2, 1)

    @in_double
    def quantiles(self, rows: Rows, levels: np.ndarray, offset: Any = None) -> np.ndarray:
        """Quantiles of a new observation, noise included: (rows, levels)."""
        both = self._both(rows, offset)
        return self._in_blocks(lambda some: self._quantiles(some, levels), both, 64 * len(levels))

    def _quantiles(self, both: dict[str, Any], levels: np.ndarray) -> np.ndarray:
        """By bisection of the predictive distribution function, from a bracket that grows; of
        counts in `log(1 + y)`."""
        likelihood, hyper = self.model.likelihood, self.hyper
        assert isinstance(likelihood, RealLikelihood)
        mean, variance = self._moments(both)
        mean, sd = mean[:, None], np.sqrt(variance)[:, None]

        counts = likelihood.discrete

        def share(at: np.ndarray) -> np.ndarray:
            y = np.expm1(at) if counts else at
            return np.asarray(likelihood.predictive_cdf(y, mean, sd, hyper))

        centre = np.asarray(likelihood.mean(mean, hyper)) + 0 * levels
        width = sd + np.asarray(likelihood.spread(hyper)) + 0 * levels
        low, high = centre - width, centre + width
        if counts:  # nothing is below zero
            width = np.minimum(width, 1.0)
            low, high = np.full_like(width, -0.5), np.log1p(centre) + width
        while True:
            too_high, too_low = share(low) > levels, share(high) < levels
            grows = (too_high | too_low) & np.isfinite(width) & ~np.isnan(low + high)
            if not grows.any():
                break
            low = np.where(too_high & grows, low - width, low)
            high = np.where(too_low & grows, high + width, high)
            width = np.where(grows, 2 * width, width)
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = share(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if (high - low <= 1e-12 * (1 + np.abs(middle))).all():
                break
        return np.ceil(np.expm1(low)) + 0.0 if counts else 0.5 * (low + high)

    # --- draws --------------------------------------------------------------------------------

    def coloured(self, z: np.ndarray) -> np.ndarray:
        """Draws of the weights, (draws, weights) or (draws, outputs, weights)."""
        w = self.mean + colour(self.root, z)
        return w if self.outputs == 1 else w.reshape(len(w), self.outputs, -1)

    @in_double
    def sample(self, rows: Rows, n: int, key: Any, offset: Any = None) -> np.ndarray:
        """`n` new observations at every row, from one draw of the weights each: (n, rows)."""
        rng = generator(key, SAMPLE)
        w = self.coloured(rng.standard_normal((n, len(self.mean))))
        design, rest = self.design_and_rest(rows)
        eta = w @ design.T
        if rest is not None:
            n_others = eta.size // len(design)
            eta = eta + drawn(rest, rng, n_others).T.reshape(eta.shape)
        eta = eta if self.outputs == 1 else np.moveaxis(eta, 1, 2)
        eta = eta + self._both(rows, offset).get("offset", 0.0)
        return self.model.likelihood.sample(rng, eta, self.hyper)

    # --- log predictive densities -------------------------------------------------------------

    @in_double
    def lpd(self, rows: Rows, y: np.ndarray, w: np.ndarray, offset: Any = None) -> LPD:
        """Over the draws `w` of the weights (draws, weights), joint and pointwise."""
        design, rest = self.design_and_rest(rows)
        y, likelihood = np.asarray(y, dtype=np.float64), self.model.likelihood
        known = self._both(rows, offset).get("offset")
        rng, outputs = generator(0, SAMPLE), self.outputs
        over_draws, over_points = np.zeros(len(w)), np.full(len(y), -np.inf)
        for part in slices(len(w), DRAWS_AT_ONCE):
            n = len(w[part])
            other = None if rest is None else drawn(rest, rng, n * outputs)
            for some in slices(len(y), 512):
                eta = design[some] @ w[part].reshape(-1, design.shape[1]).T
                eta = eta if other is None else eta + other[some]
                eta = eta if outputs == 1 else eta.reshape(len(eta), -1, outputs)
                eta = eta if known is None else eta + known[some, None]
                labels = y[some, None]
                if outputs > 1:
                    labels = np.broadcast_to(labels, eta.shape[:2])
                value = np.asarray(likelihood.log_prob(labels, eta, self.hyper))
                over_draws[part] += value.sum(0)
                over_points[some] = np.logaddexp(over_points[some], log_sum(value.T))
        joint = float(log_sum(over_draws) - math.log(len(w)))
        return LPD(joint, over_points - math.log(len(w)))

    @in_double
    def pointwise_lpd(self, rows: Rows, y: np.ndarray, offset: Any = None) -> np.ndarray:
        """`log E p(y_n | eta_n)`: by quadrature, over matched points for several predictors."""
        both = self._both(rows, offset, y=np.asarray(y, dtype=np.float64))
        per_row = 2 * NODES if self.outputs == 1 else self.outputs * N_DRAWS
        return self._in_blocks(self._log_expected, both, per_row)

    def _log_expected(self, both: dict[str, Any]) -> np.ndarray:
        mean, variance = self._moments(both)
        likelihood, y = self.model.likelihood, both["y"]
        if self.outputs == 1:
            return likelihood.predictive_log_prob(y, mean, np.sqrt(variance), self.hyper)
        eta = self._at_nodes(mean, variance)
        labels = np.broadcast_to(y[:, None], eta.shape[:2])
        value = np.asarray(likelihood.log_prob(labels, eta, self.hyper))
        return log_sum(value.T) - math.log(value.shape[1])

    def _in_blocks(self, function: Callable, rows: Any, per_row: int) -> Any:
        """`per_row`: numbers that are made for each row on the way."""
        leaves = list(_leaves(rows))
        n, size = len(leaves[0]), max(16, AT_ONCE // max(per_row, 1))
        done = [function(_taken(rows, some)) for some in slices(max(n, 1), size)]
        if isinstance(done[0], tuple):
            return tuple(np.concatenate(parts) for parts in zip(*done, strict=True))
        return np.concatenate(done)


def drawn(rest: np.ndarray, rng: np.random.Generator, n: int) -> np.ndarray:
    """`n` draws of what a kernel leaves over, (rows, n)."""
    return colour(rest, rng.standard_normal((n, len(rest)))).T


def _leaves(rows: Any) -> Iterator[np.ndarray]:
    for one in rows.values():
        yield from _leaves(one) if isinstance(one, dict) else (one,)


def _taken(rows: Any, some: slice) -> Any:
    return {k: _taken(v, some) if isinstance(v, dict) else v[some] for k, v in rows.items()}
