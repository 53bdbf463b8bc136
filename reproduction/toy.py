"""The paper's two-dimensional posterior (its Figure 1), and how far a Gaussian is from it."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def log_density(w: Any, xp: Any = jnp) -> Any:
    """2/3 N(0, I) + 1/3 N((-1, -2), diag(3.5, 0.3)), which is normalised; `w` is (..., 2)."""
    first = xp.log(2 / 3) - 0.5 * (w**2).sum(-1)
    away = (w - xp.array([-1.0, -2.0])) / xp.sqrt(xp.array([3.5, 0.3]))
    second = xp.log(1 / 3) - 0.5 * xp.log(3.5 * 0.3) - 0.5 * (away**2).sum(-1)
    return xp.logaddexp(first, second) - xp.log(2 * xp.pi)


def kl(mean: np.ndarray, root: np.ndarray) -> float:
    """KL(q || p) of q = N(mean, root root^T), by Gauss-Hermite quadrature over z in
    w = mean + root z; log q(w) = -|z|^2 / 2 - log(2 pi) - log |det root|."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes)], axis=1)
    log_q = -0.5 * (z**2).sum(1) - np.log(2 * np.pi) - np.linalg.slogdet(root)[1]
    log_p = log_density(mean + z @ root.T, np)
    return float(np.outer(weights, weights).ravel() / (2 * np.pi) @ (log_q - log_p))
