"""The paper's two-dimensional posterior (its Figure 1), and how far a Gaussian is from it."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._density._target import precision_scope

FLOAT64 = np.dtype(np.float64)


def log_density(w: Any) -> Any:
    """2/3 N(0, I) + 1/3 N((-1, -2), diag(3.5, 0.3)), which is normalised."""
    first = jnp.log(2 / 3) - 0.5 * (w @ w)
    away = (w - jnp.array([-1.0, -2.0])) / jnp.sqrt(jnp.array([3.5, 0.3]))
    second = jnp.log(1 / 3) - 0.5 * jnp.log(3.5 * 0.3) - 0.5 * (away @ away)
    return jnp.logaddexp(first, second) - jnp.log(2 * jnp.pi)


def log_densities(points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
    """`log_density` of every row, in double precision."""
    with precision_scope(FLOAT64):
        return np.asarray(jnp.vectorize(log_density, signature="(d)->()")(points))


def kl(mean: Float[np.ndarray, "2"], root: Float[np.ndarray, "2 2"]) -> float:
    """KL(q || p) of q = N(mean, root root^T), by Gauss-Hermite quadrature over z in
    w = mean + root z; log q(w) = -|z|^2 / 2 - log(2 pi) - log |det root|."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes)], axis=1)
    log_q = -0.5 * (z**2).sum(1) - np.log(2 * np.pi) - np.linalg.slogdet(root)[1]
    log_p = log_densities(mean + z @ root.T)
    return float(np.outer(weights, weights).ravel() / (2 * np.pi) @ (log_q - log_p))
