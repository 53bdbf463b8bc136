"""Scores of a posterior on a test set.

    lpd       = log mean_s prod_n p(y_n | w_s)      joint, the paper's, over 10^4 draws
    pointwise = sum_n log E p(y_n | eta_n)          by quadrature

All methods of a split see the same standard normals, and the first 10^4 of 10^5 draws are the same
10^4. For two classes the joint LPD is most of a run's time: with `t = -|eta|`,

    log p(y | eta) = min(s eta, 0) - log(1 + e^t),        s = 1 or -1,

so a hundred factors `1 + e^t`, each at most two, are multiplied before one logarithm is taken, in
float32; so are exponentials of several classes, from predictors in float64, whose weights may be
large and cancel (benchmarks/joint_lpd.py: it changes a joint LPD by less than 0.01 nat).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from mixvi import Posterior
from mixvi._arrays._draws import FRESH, generator
from mixvi._arrays._roots import is_diagonal
from mixvi._judge._fresh import Judged, compared
from mixvi.models import Bernoulli, Model, ModelDensity, Predictive, RealLikelihood
from mixvi.models._density import slices
from mixvi.models._predict import drawn

from .problems import GRID, Split

CHUNK = 1000
N_FRESH = 1000
# Rows whose factors are multiplied: 2^120 is a float32.
FACTORS = 120
# Predictors that stay in the processor's cache.
IN_CACHE = 2**17


class Scores(NamedTuple):
    """`lpd` at the numbers of draws asked for."""

    lpd: dict[int, float]
    pointwise: float
    error: float
    error_draws: float


def scores(
    split: Split,
    model: Model,
    shared: dict,
    hyper: dict,
    post: Posterior,
    numbers: tuple[int, ...],
    key: list,
) -> Scores:
    """With `max(numbers)` draws; `numbers` are multiples of 1000."""
    predictive = Predictive(model, hyper, shared, post.flat_mean, post.root)
    rows = model.basis.rows(split.x_test, shared)
    of_draws, loss = _over_draws(predictive, rows, split.y_test, max(numbers), key)
    lpd = {n: _log_mean(of_draws[:n]) for n in numbers}
    pointwise = float(predictive.pointwise_lpd(rows, split.y_test).sum())
    mean, spread = predictive.predictor(rows)
    y, n_test = split.y_test, len(split.y_test)
    if isinstance(model.likelihood, RealLikelihood):
        # Densities and squares in the data's own units; the paper's table is per test point.
        unit = float(np.log(split.y_scale))
        return Scores(
            {n: one / n_test - unit for n, one in lpd.items()},
            pointwise / n_test - unit,
            float(((mean - y) ** 2).mean()) * split.y_scale**2,
            float(((mean - y) ** 2 + spread**2).mean()) * split.y_scale**2,
        )
    if isinstance(model.likelihood, Bernoulli):
        wrong = ndtr((1 - 2 * y) * mean / spread)
        return Scores(lpd, pointwise, 100 * float(((mean > 0) != y).mean()), 100 * wrong.mean())
    predicted = predictive.expectation(rows).argmax(1)
    return Scores(lpd, pointwise, 100 * float((predicted != y).mean()), 100 * loss)


def _log_mean(log_values: np.ndarray) -> float:
    top = log_values.max()
    return float(top + np.log(np.exp(log_values - top).mean()))


def _over_draws(
    predictive: Predictive, rows: dict, y: np.ndarray, n: int, key: list
) -> tuple[np.ndarray, float]:
    """The log likelihood of all test rows under each draw; and, of several classes, how many labels
    a single draw gets wrong."""
    design, rest = predictive.design_and_rest(rows)
    rng = np.random.default_rng(key)
    of_draws, wrong = np.zeros(n), 0.0
    likelihood, outputs = predictive.model.likelihood, predictive.outputs
    for first in range(0, n, CHUNK):
        z = rng.standard_normal((CHUNK, len(predictive.mean)))
        w = predictive.coloured(z).reshape(CHUNK * outputs, -1)
        some = slice(first, first + CHUNK)
        if isinstance(likelihood, Bernoulli):
            of_draws[some] = _two_classes(design, y, w)
        elif outputs > 1:
            of_draws[some], missed = _several_classes(design, y.astype(int), w, outputs)
            wrong += missed * CHUNK / n
        else:
            eta = design @ w.T
            if rest is not None:  # what a kernel leaves over at new rows
                eta = eta + drawn(rest, rng, CHUNK)
            of_draws[some] = likelihood.log_prob(y[:, None], eta, predictive.hyper).sum(0)
    return of_draws, wrong


def _two_classes(design: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    signed = (design * (2 * y - 1)[:, None]).astype(np.float32)
    columns = np.ascontiguousarray(w.T, dtype=np.float32)
    total = np.zeros(len(w))
    for first in range(0, len(y), FACTORS):
        eta = signed[first : first + FACTORS] @ columns
        total += np.minimum(eta, 0).sum(0)
        np.abs(eta, out=eta)
        np.negative(eta, out=eta)
        np.exp(eta, out=eta)
        eta += 1
        total -= np.log(np.multiply.reduce(eta, axis=0))
    return total


def _several_classes(
    design: np.ndarray, y: np.ndarray, w: np.ndarray, outputs: int
) -> tuple[np.ndarray, float]:
    """And the share of labels that a single draw gets wrong."""
    columns = np.ascontiguousarray(w.reshape(-1, outputs, w.shape[1]).transpose(1, 2, 0))
    total, right = np.zeros(columns.shape[2]), 0
    for rows in slices(len(y), IN_CACHE // columns[:, 0].size):
        eta = (design[rows] @ columns).astype(np.float32)  # (classes, rows, draws)
        chosen = eta[y[rows], np.arange(len(y[rows]))]
        top = eta.max(0)
        right += int((chosen >= top).sum())
        eta -= top
        np.exp(eta, out=eta)
        total += (chosen - top - np.log(eta.sum(0))).sum(0)
    return total, 1 - right / (len(y) * len(total))


# --- the posterior itself ---------------------------------------------------------------------


def diagnosis(density: ModelDensity, post: Posterior, seed: int) -> Judged:
    """ELBO and k-hat on fresh draws."""
    z = generator(seed, FRESH).standard_normal((N_FRESH, density.dim))
    spread = z * post.root if is_diagonal(post.root) else z @ post.root.T
    return compared(density.values(post.flat_mean + spread), z, post.root)


def curve(
    split: Split, model: Model, shared: dict, hyper: dict, post: Posterior
) -> dict[str, np.ndarray]:
    """Mean and standard deviation of the predictor along the grid of Figure 2."""
    assert split.grid is not None
    rows = model.basis.rows(split.grid, shared)
    mean, sd = Predictive(model, hyper, shared, post.flat_mean, post.root).predictor(rows)
    return {
        "x": GRID[:, 0],
        "mean": split.y_centre + split.y_scale * mean,
        "sd": split.y_scale * sd,
    }
