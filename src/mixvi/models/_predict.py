"""Predictions that integrate the posterior: by quadrature for one predictor, otherwise over draws.

Rows go through compiled code in blocks of one size, so that memory is bounded and new tables do not
compile anew.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._arrays._draws import SAMPLE, Matched, Nodes, Quadrature
from .._arrays._roots import across, colour
from .._density._target import precision_scope
from .._fit._posterior import Posterior
from ..metrics import LPD, log_predictive_density
from ._basis import Rows, Shared
from ._likelihoods import Likelihood, RealLikelihood
from ._model import Model

BLOCK = 1024
NODES = 512
N_DRAWS = 2048
FLOAT64 = np.dtype(np.float64)


class Predictive(eqx.Module):
    """A model with its posterior. Functions take rows as `model.basis.rows` makes them."""

    model: Model
    hyper: Any
    shared: Shared
    mean: Any
    root: Any

    @classmethod
    def of(cls, model: Model, shared: Shared, post: Posterior) -> "Predictive":
        return cls(model, post.hyper, model.basis.traced(shared), post.flat_mean, post.root)

    # --- one predictor: eta_n ~ N(mean_n, sd_n^2) ---------------------------------------------

    def predictor(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the linear predictor."""
        return _in_blocks(_moments, self, rows)

    def expectation(self, rows: Rows) -> np.ndarray:
        """`E(y)` for each row; for several classes their probabilities."""
        if self.model.likelihood.n_outputs == 1:
            return _in_blocks(_expected_mean, self, rows)
        z = Matched(_even_draws(self.mean.size)).make(0, self.mean.size, SAMPLE)
        return _in_blocks(_mean_over_draws, self, rows, self.coloured(z))

    def quantiles(self, rows: Rows, levels: np.ndarray) -> np.ndarray:
        """Quantiles of a new observation, noise included: (rows, levels)."""
        return _in_blocks(_quantiles, self, rows, levels)

    def coloured(self, z: np.ndarray) -> np.ndarray:
        """Draws of the weights, (draws, weights) or (draws, outputs, weights)."""
        w = self.mean + colour(self.root, z)
        outputs = self.model.likelihood.n_outputs
        return w if outputs == 1 else w.reshape(len(w), outputs, -1)

    # --- log predictive densities -------------------------------------------------------------

    def lpd(self, rows: Rows, y: np.ndarray, w: np.ndarray) -> LPD:
        """Over the draws `w` of the weights, joint and pointwise."""
        design = _in_blocks(_design, self, rows)
        data = {"design": design, "y": np.asarray(y, dtype=np.float64)}
        scored = _Scored(self.model.likelihood, self.hyper)
        return log_predictive_density(scored, w, data)

    def pointwise_lpd(self, rows: Rows, y: np.ndarray) -> np.ndarray:
        """`log E p(y_n | eta_n)` by quadrature: for one predictor."""
        y = np.asarray(y, dtype=np.float64)
        return _in_blocks(_log_expected, self, {"rows": rows, "y": y})


class _Scored(eqx.Module):
    likelihood: Likelihood
    hyper: Any

    def __call__(self, w: Array, data: dict[str, Array]) -> Float[Array, " n"]:
        eta = data["design"] @ w if w.ndim == 1 else data["design"] @ w.T
        return self.likelihood.log_prob(data["y"], eta, self.hyper)


def _even_draws(dim: int) -> int:
    return max(N_DRAWS, 2 * dim + 2)


def _in_blocks(function: Callable, predictive: Predictive, rows: Any, *rest: Any) -> Any:
    n = len(jtu.tree_leaves(rows)[0])
    size = min(BLOCK, 1 << max(4, (n - 1).bit_length())) if n else 1
    done = []
    with precision_scope(FLOAT64):
        for first in range(0, n, size):
            # The last block is filled up, so that all have one shape.
            index = np.minimum(np.arange(first, first + size), n - 1)
            some = jtu.tree_map(lambda leaf: np.asarray(leaf)[index], rows)  # noqa: B023
            out = function(predictive, some, *rest)
            done.append(jtu.tree_map(lambda leaf: np.asarray(leaf)[: n - first], out))  # noqa: B023
    return jtu.tree_map(lambda *parts: np.concatenate(parts), *done)


def _nodes() -> Nodes:
    return Quadrature(NODES).make(FLOAT64)


@eqx.filter_jit
def _design(predictive: Predictive, rows: Rows) -> Float[Array, "n weights"]:
    return predictive.model.basis.design(rows, predictive.shared, predictive.hyper)


@eqx.filter_jit
def _moments(predictive: Predictive, rows: Rows) -> tuple[Array, Array]:
    design = predictive.model.basis.design(rows, predictive.shared, predictive.hyper)
    root = jnp.asarray(predictive.root)
    spread = across(design, root)
    return design @ predictive.mean, jnp.sqrt((spread**2).sum(1))


@eqx.filter_jit
def _expected_mean(predictive: Predictive, rows: Rows) -> Float[Array, " n"]:
    mean, sd = _moments(predictive, rows)
    rule = _nodes()
    at = mean + sd * rule.z[:, None]
    return rule.weights @ predictive.model.likelihood.mean(at, predictive.hyper)


@eqx.filter_jit
def _mean_over_draws(predictive: Predictive, rows: Rows, w: Array) -> Float[Array, "n outputs"]:
    design = predictive.model.basis.design(rows, predictive.shared, predictive.hyper)

    def one(weights: Array) -> Array:
        return predictive.model.likelihood.mean(design @ weights.T, predictive.hyper)

    def add(total: Array, weights: Array) -> tuple[Array, None]:
        return total + one(weights), None

    zero = jnp.zeros((design.shape[0], w.shape[1]), design.dtype)
    return lax.scan(add, zero, w)[0] / w.shape[0]


@eqx.filter_jit
def _log_expected(predictive: Predictive, block: dict[str, Any]) -> Float[Array, " n"]:
    mean, sd = _moments(predictive, block["rows"])
    return predictive.model.likelihood.predictive_log_prob(block["y"], mean, sd, predictive.hyper)


@eqx.filter_jit
def _quantiles(
    predictive: Predictive, rows: Rows, levels: Float[Array, " levels"]
) -> Float[Array, "n levels"]:
    """By bisection of the predictive distribution function, from a bracket that grows."""
    likelihood = predictive.model.likelihood
    assert isinstance(likelihood, RealLikelihood)
    mean, sd = _moments(predictive, rows)

    def share(y: Float[Array, "n levels"]) -> Float[Array, "n levels"]:
        return likelihood.predictive_cdf(y, mean[:, None], sd[:, None], predictive.hyper)

    centre = likelihood.mean(mean, predictive.hyper)[:, None] + jnp.zeros_like(levels)
    width = (sd[:, None] + likelihood.spread(predictive.hyper)) + jnp.zeros_like(levels)

    def grow(bracket: tuple) -> tuple:
        low, high, width = bracket
        low = jnp.where(share(low) > levels, low - width, low)
        high = jnp.where(share(high) < levels, high + width, high)
        return low, high, 2 * width

    def too_small(bracket: tuple) -> Array:
        low, high, width = bracket
        outside = (share(low) > levels) | (share(high) < levels)
        return outside.any() & jnp.isfinite(width).all()

    low, high, _ = lax.while_loop(too_small, grow, (centre - width, centre + width, width))

    def halve(_: Any, bracket: tuple) -> tuple:
        low, high = bracket
        middle = 0.5 * (low + high)
        below = share(middle) < levels
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = lax.fori_loop(0, 60, halve, (low, high))
    return jnp.ceil(low) + 0.0 if likelihood.discrete else 0.5 * (low + high)
