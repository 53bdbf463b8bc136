"""How good predictions are: log predictive densities in bounded memory, errors, calibration."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PyTree

from ._density._captured import as_new, joined, split
from ._density._data import cast_leaves, unframed
from ._density._target import precision_scope
from ._errors import InputError

FLOAT64 = np.dtype(np.float64)


class LPD(NamedTuple):
    """`joint = log mean_s prod_n p(y_n | w_s)`; `pointwise_n = log mean_s p(y_n | w_s)`.

    >>> import numpy as np
    >>> from mixvi import metrics
    >>> found = metrics.LPD(joint=-3.2, pointwise=np.array([-1.0, -2.0]))
    >>> found.pointwise.sum()
    np.float64(-3.0)
    """

    joint: float
    pointwise: Float[np.ndarray, " n"]


def log_predictive_density(
    log_likelihood: Callable, draws: PyTree, data: PyTree, *, memory: int = 2**27
) -> LPD:
    """The log predictive density of test data, over draws from a posterior.

    **Arguments:**

    - `log_likelihood`: `log_likelihood(w, data)`: the log density of every observation, an array
      (n,), for one draw; written with `jax.numpy`.
    - `draws`: a pytree with the draws on the first axis, as `post.sample(key, n)` gives.
    - `data`: a pytree with the observations on the first axis.
    - `memory`: about how many bytes the values of one block may take: 10,000 draws times 7,000
      observations are never held at once.

    **Returns:** both log predictive densities. The joint one, the paper's, is what the data would
    be worth in a bet on all of them together; its estimate needs many more draws than the pointwise
    one, whose sum is the usual headline.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> from mixvi import metrics
    >>> w = np.random.default_rng(0).standard_normal(100_000)
    >>> found = metrics.log_predictive_density(
    ...     lambda w, y: -0.5 * (y - w) ** 2 - 0.5 * jnp.log(2 * jnp.pi), w, np.array([0.0]))
    >>> bool(abs(found.joint + 0.5 * np.log(2 * np.pi * 2)) < 0.01)  # y ~ N(0, 2)
    True
    """
    # What is not arrays is the same for all.
    draws, form = split(jtu.tree_map(_as_array, unframed(draws, "draws")))
    n_draws, n = (_length(tree, what) for tree, what in ((draws, "draws"), (data, "data")))
    # Blocks of equal size, the last ones filled up, so that they compile once.
    wide = min(n, max(1, int(math.sqrt(memory / 32))))
    tall = min(n_draws, max(1, int(memory / 32) // wide))
    over_draws = np.zeros(n_draws)
    over_points = np.full(n, -np.inf)
    with precision_scope(FLOAT64):
        draws, data = cast_leaves(draws, FLOAT64, "draws"), cast_leaves(data, FLOAT64, "data")
        # Compiled for the function together with what it captures: no stale globals.
        arrays, function = split(log_likelihood)
        for first in range(0, n, wide):
            points = np.minimum(np.arange(first, first + wide), n - 1)
            real = np.arange(first, first + wide) < n
            some = jtu.tree_map(lambda leaf: leaf[points], data)  # noqa: B023
            for begin in range(0, n_draws, tall):
                index = np.minimum(np.arange(begin, begin + tall), n_draws - 1)
                counted = np.arange(begin, begin + tall) < n_draws
                w = jtu.tree_map(lambda leaf: leaf[index], draws)  # noqa: B023
                sums, peaks = _block(as_new(arrays), function, w, form, some, real, counted)
                over_draws[index[counted]] += np.asarray(sums)[counted]
                where = points[real]
                over_points[where] = np.logaddexp(over_points[where], np.asarray(peaks)[real])
    top = over_draws.max()
    joint = top + np.log(np.exp(over_draws - top).mean()) if np.isfinite(top) else top
    return LPD(float(joint), over_points - math.log(n_draws))


@functools.partial(jax.jit, static_argnames=("function", "form"))
def _block(
    arrays: PyTree,
    function: tuple,
    w: PyTree,
    form: tuple,
    data: PyTree,
    real: Any,
    counted: Any,
) -> tuple[Float[Array, " draws"], Float[Array, " points"]]:
    """For each draw the sum over points, for each point the log of the sum over draws."""
    log_likelihood = joined(arrays, function)
    values = jax.vmap(lambda one: jnp.asarray(log_likelihood(joined(one, form), data)))(w)
    if values.shape[1:] != real.shape:
        raise InputError(
            f"log_likelihood returned shape {values.shape[1:]} for {real.shape[0]} observations: "
            "it must give one number for each, not their sum."
        )
    sums = jnp.where(real, values, 0.0).sum(1)
    return sums, logsumexp(jnp.where(counted[:, None], values, -jnp.inf), axis=0)


def _as_array(leaf: Any) -> Any:
    return np.asarray(leaf) if hasattr(leaf, "__array__") else leaf


def _length(tree: PyTree, what: str) -> int:
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jtu.tree_leaves(tree)}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(f"{what}: all arrays must have the same first axis, at least one long.")
    return lengths.pop()


# --- classes ----------------------------------------------------------------------------------


def error_rate(y: Any, predicted: Any) -> float:
    """The share of labels that are wrong.

    >>> from mixvi import metrics
    >>> metrics.error_rate([0, 1, 1, 0], [0, 1, 0, 0])
    0.25
    """
    y, predicted = _vector(y), _vector(predicted)
    _same_length(y, predicted)
    return float(np.mean(y != predicted))


def brier_score(y: Any, proba: Any) -> float:
    """Mean over observations of `sum_k (p_k - [y = k])^2`: 0 is perfect, 2 the worst.

    >>> from mixvi import metrics
    >>> metrics.brier_score([0, 1], [0.0, 0.5])  # a vector holds the probabilities of class 1
    0.25
    """
    y, proba = _classes(y, proba)
    hit = np.zeros_like(proba)
    hit[np.arange(len(y)), y] = 1.0
    return float(((proba - hit) ** 2).sum(1).mean())


class Reliability(NamedTuple):
    """Bins of predicted probability: its mean, how often the class came true, how many fell in.

    >>> from mixvi import metrics
    >>> curve = metrics.reliability_curve([0, 0, 1, 1], [0.2, 0.2, 0.2, 0.9])
    >>> curve.count
    array([3, 1])
    """

    predicted: Float[np.ndarray, " bins"]
    observed: Float[np.ndarray, " bins"]
    count: Any


def reliability_curve(y: Any, proba: Any, n_bins: int = 10) -> Reliability:
    """For two classes the probability of class 1 against its frequency; for more, that of the
    predicted class against how often it was right. Empty bins are left out.

    >>> from mixvi import metrics
    >>> curve = metrics.reliability_curve([0, 0, 1, 1], [0.2, 0.2, 0.2, 0.9])
    >>> curve.predicted.round(2), curve.observed.round(2)
    (array([0.2, 0.9]), array([0.33, 1.  ]))
    """
    y, proba = _classes(y, proba)
    if proba.shape[1] == 2:
        confidence, hit = proba[:, 1], y == 1
    else:
        confidence, hit = proba.max(1), y == proba.argmax(1)
    return _binned(confidence, hit, n_bins)


def expected_calibration_error(y: Any, proba: Any, n_bins: int = 15) -> float:
    """ECE: mean over observations of |confidence - accuracy| in equal bins of the confidence, the
    probability of the predicted class.

    >>> from mixvi import metrics
    >>> round(metrics.expected_calibration_error([1, 1, 0, 1], [0.75, 0.75, 0.75, 0.75]), 6)
    0.0
    """
    y, proba = _classes(y, proba)
    bins = _binned(proba.max(1), y == proba.argmax(1), n_bins)
    return float(np.abs(bins.predicted - bins.observed) @ bins.count / len(y))


def _binned(confidence: np.ndarray, hit: np.ndarray, n_bins: int) -> Reliability:
    which = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    count = np.bincount(which, minlength=n_bins)
    filled = count > 0

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(which, weights=values, minlength=n_bins)[filled] / count[filled]

    return Reliability(mean(confidence), mean(hit.astype(float)), count[filled])


def _classes(y: Any, proba: Any) -> tuple[np.ndarray, np.ndarray]:
    """Class indices and a matrix of probabilities; a vector is the probability of class 1."""
    y, proba = _vector(y), np.asarray(proba, dtype=np.float64)
    if proba.ndim == 1:
        proba = np.stack([1 - proba, proba], axis=1)
    _same_length(y, proba)
    if y.dtype.kind not in "iubf" or not (y == np.round(y)).all():
        raise InputError("y must hold class indices 0, 1, ...: columns of the probabilities.")
    y = y.astype(int)
    if len(y) and not (y.min() >= 0 and y.max() < proba.shape[1]):
        raise InputError(
            f"y holds classes {y.min()} to {y.max()}, the probabilities have {proba.shape[1]} "
            "columns."
        )
    proper = np.isfinite(proba).all() and (proba >= 0).all()
    if not (proper and np.abs(proba.sum(1) - 1).max() < 1e-6):
        raise InputError("the probabilities must be finite, not negative, and sum to one.")
    return y, proba


# --- numbers ----------------------------------------------------------------------------------


def mean_squared_error(y: Any, predicted: Any) -> float:
    """The mean of the squared differences.

    >>> from mixvi import metrics
    >>> metrics.mean_squared_error([1.0, 2.0], [1.0, 4.0])
    2.0
    """
    y, predicted = _vector(y).astype(np.float64), _vector(predicted).astype(np.float64)
    _same_length(y, predicted)
    return float(((y - predicted) ** 2).mean())


def _vector(values: Any) -> np.ndarray:
    """One number for each observation; a column is one too."""
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"expected one value for each observation, got shape {array.shape}.")
    return array


def _same_length(y: np.ndarray, other: np.ndarray) -> None:
    if len(y) != len(other) or len(y) == 0:
        raise InputError(f"{len(y)} targets but {len(other)} predictions; at least one of each.")
