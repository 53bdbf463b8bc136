"""Targets whose answers are known, for products of families and targets."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import mixvi
from mixvi._density import _make
from mixvi._density._counted import Counted as CountedDensity
from mixvi._density._protocol import Points
from mixvi._density._target import prepare

DOUBLE = np.dtype(np.float64)


@dataclasses.dataclass(frozen=True)
class GaussianTarget:
    """`log_density(w, data)` whose posterior is N(mean, cov) and whose evidence is `log_z`."""

    mean: np.ndarray
    cov: np.ndarray
    precision: np.ndarray
    log_z: float
    data: Any = None

    @staticmethod
    def log_density(w, data):
        mean, precision, constant = data
        return constant - 0.5 * (w - mean) @ precision @ (w - mean)

    @classmethod
    def make(cls, dim: int, condition: float, diagonal: bool = False, seed: int = 0):
        """Eigenvalues of the covariance spread evenly in log from 1 to `condition`."""
        rng = np.random.default_rng([seed, dim])
        q = np.eye(dim) if diagonal else np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        eigenvalues = np.geomspace(1, condition, dim) if dim > 1 else np.array([condition])
        cov, precision = (q * eigenvalues) @ q.T, (q / eigenvalues) @ q.T
        mean = 5 * np.sqrt(np.diag(cov)) * rng.standard_normal(dim)
        constant = 1.25
        log_z = constant + 0.5 * dim * math.log(2 * math.pi) + 0.5 * np.log(eigenvalues).sum()
        data = (mean, 0.5 * (precision + precision.T), np.float64(constant))
        return cls(mean, cov, precision, float(log_z), data)


def logistic(w, data):
    x, sign = data
    return -jnp.logaddexp(0.0, -sign * (x @ w)).sum() - 0.5 * w @ w


def logistic_data(n: int = 200, dim: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, dim))
    sign = np.where(rng.random(n) < 1 / (1 + np.exp(-x @ rng.standard_normal(dim))), 1.0, -1.0)
    return x, sign


def cauchy(w, data):
    """The paper's robust regression, hyperparameters fixed: not log-concave."""
    design, y, log_gamma, log_alpha = data
    residual = (y - design @ w) / jnp.exp(log_gamma)
    prior = -0.5 * jnp.exp(log_alpha) * w @ w
    return -jnp.log1p(residual**2).sum() + prior


def cauchy_data(seed: int, n: int = 50, n_basis: int = 20) -> tuple:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10, 10, n)
    y = 0.3 * x * np.sin(0.7 * x) - 0.03 * x**2 + rng.uniform(-0.5, 0.5, n)
    centres = np.linspace(-10, 10, n_basis)
    basis = np.exp(-0.5 * (x[:, None] - centres) ** 2)
    design = np.concatenate([basis, np.ones((n, 1))], axis=1)
    return design, y, np.log(0.2), np.log(0.1)


def counts(w):
    """Counts with log-normal rates, correlated, in any dimension: skewed, and log-concave."""
    y = jnp.resize(jnp.array([1.0, 0.0, 3.0]), w.size)
    return (y * w - jnp.exp(w)).sum() - 0.125 * (w.sum() ** 2 + w @ w)


def one_dimensional(w):
    """A skewed density: the log of a gamma variable."""
    return 3.0 * w - jnp.exp(w)


@dataclasses.dataclass
class Counted:
    """Counts how often a function is traced."""

    function: Callable
    n: int = 0

    def __call__(self, *arguments):
        self.n += 1
        return self.function(*arguments)

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


def density_of(log_density, dim, data=None, memory=2**30, dtype=DOUBLE) -> CountedDensity:
    """What `fit` asks its questions of; `dim` may be a shape."""
    target, _ = prepare(log_density, np.zeros(dim), data, dtype)
    return _make.density_of(log_density, target, dtype, memory)


def points(n: int, dim: int, key: int = 0, draws=mixvi.Matched) -> Points:
    return Points(draws(n).make(key, dim), draws is mixvi.Matched)


def density_with_hyper(
    log_density: Callable, init: Any, data: Any, hyper: Any, memory: int = 2**30
) -> tuple[CountedDensity, np.ndarray, np.ndarray]:
    """The density at `hyper`, the flat start and the flat hyperparameters."""
    target, start = prepare(log_density, init, data, DOUBLE, hyper)
    density = _make.density_of(log_density, target, DOUBLE, memory)
    return density, np.asarray(start), np.asarray(target.theta)
