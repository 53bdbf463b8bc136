"""Predictions averaged over hyperparameters: every component of the mixture has its own, and a
Gaussian over weights that mean what they mean there.

    p(y* | y) = sum_k pi_k p(y* | theta_k, y)
"""

import dataclasses
import math
from typing import Any

import numpy as np

from .._arrays._draws import SAMPLE, generator
from .._fit._posterior import Posterior
from .._judge._joint import shares_of
from ..metrics import LPD
from ._basis import Rows, Shared
from ._by_jax import in_double
from ._integral import log_sum
from ._likelihoods import Hyper
from ._model import Model
from ._noise import RealLikelihood
from ._predict import Predictive

N_HALVINGS = 60


@dataclasses.dataclass(frozen=True)
class Averaged:
    """What `Predictive` answers, of several with `weights` that sum to one."""

    parts: tuple[Predictive, ...]
    weights: np.ndarray

    @classmethod
    def of(cls, model: Model, shared: Shared, post: Posterior, hyper: Hyper) -> "Averaged":
        """Of a posterior whose hyperparameters were integrated. `hyper`: one start of all."""
        found = post.hyper_posterior
        assert found is not None
        parts = []
        for theta, one in zip(found.points, post.law.components, strict=True):
            own = hyper | dict(found.structure.unravel(theta))
            parts.append(Predictive(model, own, shared, one.mean, np.asarray(one.root)))
        return cls(tuple(parts), found.weights)

    @property
    def model(self) -> Model:
        return self.parts[0].model

    def _mean(self, each: list[np.ndarray]) -> np.ndarray:
        return np.tensordot(self.weights, np.stack(each), 1)

    def predictor(self, rows: Rows, offset: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the linear predictor; of K, covariances."""
        each = [one.predictor(rows, offset) for one in self.parts]
        mean = self._mean([one[0] for one in each])
        apart = [one[0] - mean for one in each]
        if self.parts[0].outputs == 1:
            squares = [one[1] ** 2 + off**2 for one, off in zip(each, apart, strict=True)]
            return mean, np.sqrt(self._mean(squares))
        outer = [off[..., :, None] * off[..., None, :] for off in apart]
        return mean, self._mean([one[1] + o for one, o in zip(each, outer, strict=True)])

    def location(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Of a regression: mean and standard deviation of the location."""
        likelihood = self.model.likelihood
        assert isinstance(likelihood, RealLikelihood)
        each = [likelihood.mean_and_sd(*one.predictor(rows)) for one in self.parts]
        mean = self._mean([one[0] for one in each])
        squares = [one[1] ** 2 + (one[0] - mean) ** 2 for one in each]
        return mean, np.sqrt(self._mean(squares))

    def expectation(self, rows: Rows, offset: Any = None) -> np.ndarray:
        return self._mean([one.expectation(rows, offset) for one in self.parts])

    def pointwise_lpd(self, rows: Rows, y: np.ndarray, offset: Any = None) -> np.ndarray:
        each = np.stack([one.pointwise_lpd(rows, y, offset) for one in self.parts])
        return np.logaddexp.reduce(each + np.log(self.weights)[:, None], axis=0)

    @in_double
    def quantiles(self, rows: Rows, levels: np.ndarray, offset: Any = None) -> np.ndarray:
        """Of a new observation: between those of the components, by bisection."""
        each = np.stack([one.quantiles(rows, levels, offset) for one in self.parts])
        low, high = each.min(0), each.max(0)
        moments = [one.predictor(rows, offset) for one in self.parts]
        likelihood = self.model.likelihood
        assert isinstance(likelihood, RealLikelihood)

        def share(y: np.ndarray) -> np.ndarray:
            found = [
                np.asarray(likelihood.predictive_cdf(y, mean[:, None], sd[:, None], one.hyper))
                for one, (mean, sd) in zip(self.parts, moments, strict=True)
            ]
            return self._mean(found)

        if likelihood.discrete:
            low = low - 1
        for _ in range(N_HALVINGS):
            middle = 0.5 * (low + high)
            middle = np.floor(middle) if likelihood.discrete else middle
            below = share(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if (high - low <= (1.0 if likelihood.discrete else 0.0)).all():
                break
        return high if likelihood.discrete else 0.5 * (low + high)

    # --- draws --------------------------------------------------------------------------------

    def _counts(self, rng: np.random.Generator, n: int) -> list[tuple[Predictive, int]]:
        counts = shares_of(self.weights, n, float(rng.random()))
        pairs = zip(self.parts, counts, strict=True)
        return [(one, int(count)) for one, count in pairs if count]

    def sample(self, rows: Rows, n: int, key: Any, offset: Any = None) -> np.ndarray:
        """`n` new observations at every row, each from one draw of hyperparameters and weights."""
        rng = generator(key, SAMPLE)
        each = [
            one.sample(rows, count, int(rng.integers(2**31)), offset)
            for one, count in self._counts(rng, n)
        ]
        return rng.permutation(np.concatenate(each), axis=0)

    def lpd_drawn(self, rows: Rows, y: np.ndarray, n: int, key: Any) -> LPD:
        """Joint and pointwise, over `n` draws of hyperparameters and weights."""
        rng, found, shares = generator(key, SAMPLE), [], []
        for one, count in self._counts(rng, n):
            w = one.coloured(rng.standard_normal((count, len(one.mean))))
            found.append(one.lpd(rows, y, w.reshape(count, -1)))
            shares.append(math.log(count / n))
        joint = log_sum(np.array([one.joint for one in found]) + np.array(shares))
        each = np.stack([one.pointwise for one in found]) + np.array(shares)[:, None]
        return LPD(float(joint), np.logaddexp.reduce(each, axis=0))
