"""A basis and a likelihood make a log density with hyperparameters, and predictions from it.

w ~ N(0, I / alpha),     eta_n = w^T phi(x_n; r),     y_n ~ p(y | eta_n)
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._density._linear_predictor import LinearPredictor
from ._basis import RBF, Basis, Rows, Shared
from ._likelihoods import Hyper, Likelihood, normal_logpdf

Data = dict[str, Any]


class Model(eqx.Module):
    """`weak_prior` adds weak priors on the log hyperparameters; without it they are flat."""

    basis: Basis
    likelihood: Likelihood
    weak_prior: bool = eqx.field(static=True, default=True)

    # --- the log density ----------------------------------------------------------------------

    @property
    def log_density(self) -> LinearPredictor:
        """For `fit(model.log_density, model.init(shared), data=..., hyper=...)`."""
        parts = (_Design(self), _LogLikelihood(self), _Precision(self), _HyperPrior(self))
        return LinearPredictor(*parts, _node_groups if self.likelihood.n_outputs > 1 else None)

    def data(
        self, rows: Rows, shared: Shared, y: np.ndarray, weight: np.ndarray | None = None
    ) -> Data:
        """Targets and weights beside the rows; what `log_density` takes as `data`."""
        y = np.asarray(y, dtype=np.float64)
        weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        data = {"rows": rows, "shared": self.basis.traced(shared), "y": y, "weight": weight}
        return data | (
            {"node_groups": ranks(rows, weight)} if self.likelihood.n_outputs > 1 else {}
        )

    def hyper(self, shared: Shared) -> Hyper:
        """A start for all hyperparameters."""
        return {
            "log_alpha": np.float64(0.0),
            **self.basis.start(shared),
            **{name: np.float64(value) for name, value in self.likelihood.start().items()},
        }

    def init(self, shared: Shared) -> np.ndarray:
        """Zero weights: where the search for the mode begins."""
        weights, outputs = len(shared["mask"]) + 1, self.likelihood.n_outputs
        return np.zeros(weights if outputs == 1 else (outputs, weights))

    def design(self, hyper: Hyper, data: Data) -> Float[Array, "n weights"]:
        return self.basis.design(data["rows"], data["shared"], hyper)

    def precision(self, hyper: Hyper, data: Data) -> Float[Array, " weights"]:
        """`alpha`; one for padded weights."""
        mask = jnp.concatenate([data["shared"]["mask"], jnp.ones(1)])
        return jnp.where(mask > 0, jnp.exp(hyper["log_alpha"]), 1.0)

    def log_likelihoods(self, eta: Array, hyper: Hyper, data: Data) -> Float[Array, " n"]:
        return data["weight"] * self.likelihood.log_prob(data["y"], eta, hyper)

    def log_hyper_prior(self, hyper: Hyper, data: Data) -> Any:
        if not self.weak_prior:
            return 0.0
        own = self.basis.log_prior(hyper, data["shared"]) + self.likelihood.log_prior(hyper)
        return own + normal_logpdf(hyper["log_alpha"], 0.0, 3.0)


class _Design(eqx.Module):
    model: Model

    def __call__(self, hyper: Hyper, data: Data) -> Array:
        return self.model.design(hyper, data)


class _LogLikelihood(eqx.Module):
    model: Model

    def __call__(self, eta: Array, hyper: Hyper, data: Data) -> Array:
        return self.model.log_likelihoods(eta, hyper, data)


class _Precision(eqx.Module):
    model: Model

    def __call__(self, hyper: Hyper, data: Data) -> Array:
        return self.model.precision(hyper, data)


class _HyperPrior(eqx.Module):
    model: Model

    def __call__(self, hyper: Hyper, data: Data) -> Any:
        return self.model.log_hyper_prior(hyper, data)


def _node_groups(hyper: Hyper, data: Data) -> Array:
    del hyper
    return data["node_groups"]


def ranks(rows: Rows, weight: np.ndarray) -> Int[np.ndarray, " n"]:
    """Of every row among the distinct ones that weigh anything: neither the order of rows nor
    whether a row is repeated or weighs more makes a difference."""
    table = np.concatenate([part.reshape(len(weight), -1) for part in rows.values()], axis=1)
    weighs = weight > 0
    own = np.zeros(len(weight), dtype=np.int32)
    _, inverse = np.unique(table[weighs], axis=0, return_inverse=True)
    own[weighs] = inverse.ravel()  # one NumPy version gives it another shape
    return own


# --- starts -----------------------------------------------------------------------------------


def paper_starts(model: Model, shared: Shared, n: int, rng: np.random.Generator) -> list[Hyper]:
    """The paper's: `r, alpha ~ U(0, 1)`; other hyperparameters where they begin anyway."""
    starts = []
    for _ in range(n):
        r, alpha = rng.uniform(1e-3, 1.0, 2)
        start = model.hyper(shared) | {"log_alpha": np.float64(np.log(alpha))}
        if isinstance(model.basis, RBF):
            start["log_width"] = np.full_like(start["log_width"], np.log(r))
        starts.append(start)
    return starts


def spread_starts(model: Model, shared: Shared) -> list[Hyper]:
    """A few starts spread over what is plausible for standardised inputs; nothing is random."""
    base = model.hyper(shared)
    widths = [-0.7, 0.0, 0.7] if isinstance(model.basis, RBF) else [0.0]
    starts = []
    for shift in widths:
        for log_alpha in (-3.0, 0.0):
            start = base | {"log_alpha": np.float64(log_alpha)}
            if isinstance(model.basis, RBF):
                start["log_width"] = base["log_width"] + shift
            starts.append(start)
    return starts
