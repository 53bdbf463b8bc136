"""Eight models with hyperparameters: normal effects given these, any likelihood of both.

`log_density(w, hyper)` for mixvi; for NUTS the same with `w = root(hyper) v`, `v ~ N(0, I)`, in
which it mixes well.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LOG_2PI = math.log(2 * math.pi)
JITTER = 1e-6


@dataclasses.dataclass(frozen=True)
class Nested:
    name: str
    dim: int
    hyper: dict[str, float]
    root: Callable  # of the prior covariance of w, given hyper: a vector or a lower triangle
    log_likelihood: Callable  # (w, hyper)
    hyper_prior: Callable
    effects: tuple[int, ...]

    def log_density(self, w: Any, hyper: Any) -> Any:
        root = self.root(hyper)
        if root.ndim == 1:
            v, log_det = w / root, jnp.log(root).sum()
        else:
            v = jax.scipy.linalg.solve_triangular(root, w, lower=True)
            log_det = jnp.log(jnp.diagonal(root)).sum()
        prior = -0.5 * v @ v - log_det - 0.5 * self.dim * LOG_2PI
        return prior + self.log_likelihood(w, hyper)

    def coloured(self, v: Any, hyper: Any) -> Any:
        root = self.root(hyper)
        return root * v if root.ndim == 1 else root @ v

    def potential(self, both: dict[str, Any]) -> Any:
        """Of `v` and the hyperparameters, for NUTS."""
        v, hyper = both["v"], both["hyper"]
        likelihood = self.log_likelihood(self.coloured(v, hyper), hyper)
        return 0.5 * v @ v - likelihood - self.hyper_prior(hyper)


def half_normal(log_scale: Any, sd: float = 1.0) -> Any:
    """Of `exp(log_scale)`, over its log."""
    tau = jnp.exp(log_scale) / sd
    return math.log(2 / sd) - 0.5 * LOG_2PI - 0.5 * tau**2 + log_scale


def normal(x: Any, mean: float = 0.0, sd: float = 1.0) -> Any:
    return -0.5 * ((x - mean) / sd) ** 2 - math.log(sd) - 0.5 * LOG_2PI


def squared_exponential(x: np.ndarray, hyper: Any) -> Any:
    square = (x[:, None] - x) ** 2
    k = jnp.exp(2 * hyper["log_amplitude"] - 0.5 * square * jnp.exp(-2 * hyper["log_length"]))
    return jnp.linalg.cholesky(
        k + JITTER * (1 + jnp.exp(2 * hyper["log_amplitude"])) * np.eye(len(x))
    )


def process_prior(hyper: Any) -> Any:
    return half_normal(hyper["log_amplitude"], 2.0) + normal(hyper["log_length"], 0.0, 0.7)


def logistic_mixed() -> Nested:
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(15), 8)
    x = np.stack([np.ones(120), rng.standard_normal(120)], 1)
    effect = 0.9 * rng.standard_normal(15)
    y = rng.random(120) < 1 / (1 + np.exp(-(x @ [0.3, 0.8] + effect[groups])))
    sign = np.where(y, 1.0, -1.0)

    def root(hyper):
        return jnp.concatenate([jnp.full(2, 2.5), jnp.full(15, jnp.exp(hyper["log_tau"]))])

    def log_likelihood(w, hyper):
        return jax.nn.log_sigmoid(sign * (x @ w[:2] + w[2:][groups])).sum()

    def prior(hyper):
        return half_normal(hyper["log_tau"])

    return Nested(
        "logistic mixed", 17, {"log_tau": 0.0}, root, log_likelihood, prior, (0, 1, 2, 3, 4)
    )


def poisson_mixed() -> Nested:
    rng = np.random.default_rng(2)
    rows, columns = (a.ravel() for a in np.meshgrid(np.arange(8), np.arange(6), indexing="ij"))
    eta = 0.5 + 0.6 * rng.standard_normal(8)[rows] + 0.3 * rng.standard_normal(6)[columns]
    y = rng.poisson(np.exp(eta)).astype(float)

    def root(hyper):
        parts = [jnp.full(1, 2.5), jnp.full(8, jnp.exp(hyper["log_rows"]))]
        return jnp.concatenate([*parts, jnp.full(6, jnp.exp(hyper["log_columns"]))])

    def log_likelihood(w, hyper):
        eta = w[0] + w[1:9][rows] + w[9:][columns]
        return (y * eta - jnp.exp(eta)).sum()

    def prior(hyper):
        return half_normal(hyper["log_rows"]) + half_normal(hyper["log_columns"])

    start = {"log_columns": -0.5, "log_rows": -0.5}
    return Nested("Poisson mixed", 15, start, root, log_likelihood, prior, (0, 1, 2, 9, 10))


def robust_regression() -> Nested:
    rng = np.random.default_rng(3)
    x = np.concatenate([np.ones((40, 1)), rng.standard_normal((40, 4))], 1)
    y = x @ [1.0, 0.8, -0.5, 0.0, 0.2] + 0.5 * rng.standard_t(3, 40)

    def root(hyper):
        slopes = jnp.full(4, jnp.exp(hyper["log_tau"]))
        return jnp.concatenate([jnp.full(1, 3.0), slopes])

    def log_likelihood(w, hyper):
        z = (y - x @ w) * jnp.exp(-hyper["log_sigma"])
        return (-2.5 * jnp.log1p(z**2 / 4) - hyper["log_sigma"]).sum()

    def prior(hyper):
        return half_normal(hyper["log_sigma"]) + half_normal(hyper["log_tau"])

    start = {"log_sigma": -0.5, "log_tau": -0.5}
    return Nested("robust regression", 5, start, root, log_likelihood, prior, (0, 1, 2, 3, 4))


def poisson_process() -> Nested:
    rng = np.random.default_rng(4)
    x = np.linspace(-2, 2, 25)
    y = rng.poisson(np.exp(1 + np.sin(2 * x))).astype(float)

    def log_likelihood(w, hyper):
        eta = 1.0 + w
        return (y * eta - jnp.exp(eta)).sum()

    def root(hyper):
        return squared_exponential(x, hyper)

    start = {"log_amplitude": 0.0, "log_length": -0.3}
    return Nested("Poisson GP", 25, start, root, log_likelihood, process_prior, (0, 6, 12, 18, 24))


def process_classification() -> Nested:
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(-2, 2, 30))
    sign = np.where(rng.random(30) < 1 / (1 + np.exp(-3 * np.sin(2 * x))), 1.0, -1.0)

    def log_likelihood(w, hyper):
        return jax.nn.log_sigmoid(sign * w).sum()

    def root(hyper):
        return squared_exponential(x, hyper)

    start = {"log_amplitude": 0.3, "log_length": -0.3}
    return Nested(
        "GP classification", 30, start, root, log_likelihood, process_prior, (0, 7, 15, 22, 29)
    )


def stochastic_volatility() -> Nested:
    rng = np.random.default_rng(6)
    n, phi, sigma = 60, 0.9, 0.4
    h = np.zeros(n)
    h[0] = sigma / math.sqrt(1 - phi**2) * rng.standard_normal()
    for t in range(1, n):
        h[t] = phi * h[t - 1] + sigma * rng.standard_normal()
    y = np.exp(0.5 * (h - 0.5)) * rng.standard_normal(n)
    away = np.tril(np.arange(n)[:, None] - np.arange(n))

    def root(hyper):
        phi = jax.nn.sigmoid(hyper["logit_phi"])
        # Of an autoregression from its stationary law the factor is known.
        first = jnp.where(np.arange(n) == 0, 1 / jnp.sqrt(1 - phi**2), 1.0)
        return jnp.tril(jnp.exp(hyper["log_sigma"]) * phi**away * first)

    def log_likelihood(w, hyper):
        level = hyper["mu"] + w
        return (-0.5 * level - 0.5 * y**2 * jnp.exp(-level)).sum()

    def prior(hyper):
        own = normal(hyper["logit_phi"], 2.0, 1.0) + normal(hyper["mu"], 0.0, 1.0)
        return own + half_normal(hyper["log_sigma"])

    start = {"log_sigma": -1.0, "logit_phi": 2.0, "mu": 0.0}
    at = (0, 15, 30, 45, 59)
    return Nested("stochastic volatility", n, start, root, log_likelihood, prior, at)


def rbf_logistic() -> Nested:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((60, 2))
    sign = np.where(x[:, 0] * x[:, 1] + 0.4 * rng.standard_normal(60) > 0, 1.0, -1.0)
    square = ((x[:, None] - x[:12]) ** 2).sum(-1)

    def root(hyper):
        return jnp.full(13, jnp.exp(-0.5 * hyper["log_alpha"]))

    def log_likelihood(w, hyper):
        basis = jnp.exp(-0.5 * square * jnp.exp(-2 * hyper["log_width"]))
        return jax.nn.log_sigmoid(sign * (basis @ w[:12] + w[12])).sum()

    def prior(hyper):
        return normal(hyper["log_alpha"], 0.0, 1.5) + normal(hyper["log_width"], 0.0, 0.7)

    start = {"log_alpha": -0.5, "log_width": 0.0}
    return Nested("RBF logistic", 13, start, root, log_likelihood, prior, (0, 3, 6, 9, 12))


def eight_schools() -> Nested:
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def root(hyper):
        return jnp.concatenate([jnp.full(1, 10.0), jnp.full(8, jnp.exp(hyper["log_tau"]))])

    def log_likelihood(w, hyper):
        return (-0.5 * ((y - w[0] - w[1:]) / sd) ** 2).sum()

    def prior(hyper):
        return half_normal(hyper["log_tau"], 10.0)

    return Nested(
        "eight schools", 9, {"log_tau": 1.5}, root, log_likelihood, prior, (0, 1, 2, 3, 8)
    )


MODELS = {
    one.name: one
    for one in (
        logistic_mixed(),
        poisson_mixed(),
        robust_regression(),
        poisson_process(),
        process_classification(),
        stochastic_volatility(),
        rbf_logistic(),
        eight_schools(),
    )
}
