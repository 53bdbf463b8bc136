"""Scores of a batch of posteriors on their test sets, over draws made as they are needed.

    lpd       = log mean_s prod_n p(y_n | w_s)      joint, the paper's
    pointwise = sum_n log mean_s p(y_n | w_s)

Draws come in chunks of one size, each with a key of its own: the first 10^4 of 10^5 draws are then
the same 10^4, and all methods see the same standard normals.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PyTree

from mixvi import Posterior
from mixvi._arrays._draws import FRESH, generator
from mixvi._density._target import precision_scope
from mixvi._judge._fresh import Judged, compared
from mixvi.models import Model, RealLikelihood

from .problems import Problems

CHUNK = 1000
N_FRESH = 1000
FLOAT64 = np.dtype(np.float64)


class Scores(NamedTuple):
    """Of every problem: `lpd` at the numbers of draws asked for, (problems, numbers)."""

    lpd: np.ndarray
    pointwise: np.ndarray
    error: np.ndarray
    error_draws: np.ndarray


class Gaussians(eqx.Module):
    """Fitted posteriors, stacked."""

    hyper: PyTree
    mean: Float[Any, "batch dim"]
    root: Any

    @classmethod
    def of(cls, posts: Sequence[Posterior]) -> "Gaussians":
        hyper = jax.tree.map(lambda *leaves: np.stack(leaves), *(post.hyper for post in posts))
        mean, root = (np.stack([getattr(p, name) for p in posts]) for name in ("flat_mean", "root"))
        return cls(hyper, mean, root)


def scores(
    problems: Problems, fitted: Gaussians, splits: np.ndarray, numbers: tuple[int, ...], seed: int
) -> Scores:
    """With `max(numbers)` draws; `numbers` are multiples of 1000."""
    with precision_scope(FLOAT64):
        keys = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(seed)))(splits)
        found = _scores(
            problems.model, fitted, problems.shared, problems.test, problems.y_test, keys,
            max(numbers) // CHUNK,
        )  # fmt: skip
        of_draws, of_points, predicted, losses = map(np.asarray, found)
    n_test = problems.y_test.shape[1]
    lpd = np.stack([_log_mean(of_draws[:, :n]) for n in numbers], axis=1)
    error, error_draws = _errors(problems, predicted), losses / max(numbers)
    scale = problems.y_scale
    if isinstance(problems.model.likelihood, RealLikelihood):
        # Densities and squares in the data's own units; the paper's table is per test point.
        lpd = lpd / n_test - np.log(scale)[:, None]
        of_points = of_points / n_test - np.log(scale)
        return Scores(lpd, of_points, error * scale**2, error_draws * scale**2)
    return Scores(lpd, of_points, 100 * error, 100 * error_draws)


def _log_mean(log_values: Float[np.ndarray, "batch draws"]) -> Float[np.ndarray, " batch"]:
    top = log_values.max(1, keepdims=True)
    return top[:, 0] + np.log(np.exp(log_values - top).mean(1))


def _errors(problems: Problems, predicted: np.ndarray) -> Float[np.ndarray, " batch"]:
    y = problems.y_test
    if isinstance(problems.model.likelihood, RealLikelihood):
        return ((predicted - y) ** 2).mean(1)
    labels = predicted > 0.5 if predicted.ndim == 2 else predicted.argmax(-1)
    return (labels != y).mean(1)


@functools.partial(jax.jit, static_argnames="n_chunks")
def _scores(
    model: Model, fitted: Gaussians, shared: PyTree, test: PyTree, y: Any, keys: Any, n_chunks: int
) -> tuple[Array, Array, Array, Array]:
    """For every problem: log likelihood of each draw, pointwise LPD, averaged prediction, and the
    loss of single draws summed over them."""
    likelihood = model.likelihood

    def one(problem: tuple) -> tuple[Array, Array, Array, Array]:
        its, its_shared, rows, labels, its_key = problem
        design = model.basis.design(rows, its_shared, its.hyper)

        def chunk(carry: tuple, index: Array) -> tuple[tuple, Array]:
            points, predicted, loss = carry
            z = jax.random.normal(jax.random.fold_in(its_key, index), (CHUNK, its.mean.size))
            w = its.mean + (z * its.root if its.root.ndim == 1 else z @ its.root.T)
            eta = _predictors(w, design, likelihood.n_outputs)
            values = jax.vmap(lambda e: likelihood.log_prob(labels, e, its.hyper))(eta)
            points = jnp.logaddexp(points, logsumexp(values, axis=0))
            predicted = predicted + likelihood.mean(eta, its.hyper).sum(0)
            return (points, predicted, loss + _loss(model, eta, labels)), values.sum(1)

        shape = labels.shape + ((likelihood.n_outputs,) if likelihood.n_outputs > 1 else ())
        begin = (jnp.full(labels.shape, -jnp.inf), jnp.zeros(shape), jnp.zeros(()))
        (points, predicted, loss), of_draws = lax.scan(chunk, begin, jnp.arange(n_chunks))
        n = n_chunks * CHUNK
        return of_draws.ravel(), (points - jnp.log(n)).sum(), predicted / n, loss

    return lax.map(one, (fitted, shared, test, jnp.asarray(y), keys))


def _predictors(w: Array, design: Array, n_outputs: int) -> Array:
    """`eta` of all draws: (draws, n), or (draws, n, outputs)."""
    if n_outputs == 1:
        return w @ design.T
    weights = w.reshape(len(w), n_outputs, -1)
    return jnp.einsum("skd,nd->snk", weights, design)


def _loss(model: Model, eta: Array, y: Array) -> Array:
    """Wrong labels, or squared errors: mean over the test set, summed over draws."""
    if isinstance(model.likelihood, RealLikelihood):
        return ((eta - y) ** 2).mean(1).sum()
    labels = eta > 0 if eta.ndim == 2 else eta.argmax(-1)
    return (labels != y).mean(1).sum()


# --- the posterior itself ---------------------------------------------------------------------


def diagnoses(problems: Problems, fitted: Gaussians, seed: int) -> list[Judged]:
    """ELBO and k-hat of each on fresh draws."""
    z = generator(seed, FRESH).standard_normal((N_FRESH, fitted.mean.shape[1]))
    with precision_scope(FLOAT64):
        log_p = np.asarray(_log_densities(problems.model, fitted, problems.data, z))
    return [compared(values, z, root) for values, root in zip(log_p, fitted.root, strict=True)]


@jax.jit
def _log_densities(
    model: Model, fitted: Gaussians, data: PyTree, z: Any
) -> Float[Array, "batch draws"]:
    outputs = model.likelihood.n_outputs

    def one(problem: tuple) -> Array:
        its, its_data = problem

        def log_density(z_s: Array) -> Array:
            w = its.mean + (z_s * its.root if its.root.ndim == 1 else its.root @ z_s)
            w = w if outputs == 1 else w.reshape(outputs, -1)
            return model.log_density(w, its.hyper, its_data)

        return lax.map(log_density, z, batch_size=250)

    return lax.map(one, (fitted, data))


def curve(problems: Problems, fitted: Gaussians) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the predictor along the grid, first problem."""
    assert problems.grid is not None
    first = jax.tree.map(lambda leaf: leaf[0], (fitted, problems.shared))
    with precision_scope(FLOAT64):
        its, shared = first
        design = np.asarray(problems.model.basis.design(problems.grid, shared, its.hyper))
    spread = design * its.root if its.root.ndim == 1 else design @ its.root
    return design @ its.mean, np.sqrt((spread**2).sum(1))
