"""Gaussian processes as a basis: `f(x) = phi(x)^T u`, `u ~ N(0, I)`.

With inducing points Z and `K_zz = L L^T` the columns are `phi(x) = L^-1 k(Z, x)`: then
`phi(x)^T phi(x')` is the kernel itself at Z, and of a function with that kernel what Z knows of it
elsewhere. What Z does not know, `k(x, x) - |phi(x)|^2`, is the leftover variance, which predictions
add. Where Z are all training rows nothing is left over in training, and this is the whole Gaussian
process; with fewer points training neglects what is left over (the projected process).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .._arrays._namespace import namespace
from .._errors import InputError
from ._basis import (
    Basis,
    Shared,
    kmeans,
    scaled_distances,
    spread_of,
    usual_log_width,
    width_prior,
)
from ._likelihoods import Hyper, normal_logpdf

# Of the kernel's variance: keeps its matrix definite where rows are near each other.
JITTER = 1e-8
SQRT3, SQRT5 = math.sqrt(3), math.sqrt(5)


def _gaussian(square: Any) -> tuple[Any, Any]:
    value = namespace(square).exp(-0.5 * square)
    return value, value


def _exponential(square: Any) -> tuple[Any, Any]:
    xp = namespace(square)
    r = xp.sqrt(square)
    value = xp.exp(-r)
    # The slope is infinite at r = 0, where the distance that it multiplies is zero.
    return value, value / xp.where(r > 0, r, 1.0)


def _matern32(square: Any) -> tuple[Any, Any]:
    xp = namespace(square)
    r = SQRT3 * xp.sqrt(square)
    decay = xp.exp(-r)
    return (1 + r) * decay, 3 * decay


def _matern52(square: Any) -> tuple[Any, Any]:
    xp = namespace(square)
    r = SQRT5 * xp.sqrt(square)
    decay = xp.exp(-r)
    return (1 + r + r * r / 3) * decay, (5 / 3) * (1 + r) * decay


# For squared scaled distances r^2: k(r), and -k'(r) / r, from which slopes in the widths come.
KERNELS = {
    "rbf": _gaussian,
    "matern12": _exponential,
    "matern32": _matern32,
    "matern52": _matern52,
}


@dataclasses.dataclass(frozen=True)
class GaussianProcess(Basis):
    """A function with a stationary kernel, `a^2 k(|x - x'| / r)`; `log_amplitude` is `log a`,
    `log_width` is `log r`, one for all features or, `per_feature`, one for each.

    `n_inducing`: all training rows when left out, otherwise that many centres by K-means.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> process = models.Model(models.GaussianProcess(), models.Gaussian())
    >>> density = process.density(x, np.sin(2 * x[:, 0]))
    >>> density.dim, sorted(density.hyper)
    (41, ['log_amplitude', 'log_sigma', 'log_width'])
    """

    kernel: str = "rbf"
    n_inducing: int | None = None
    per_feature: bool = False

    name: ClassVar[str] = "gp"
    has_amplitude: ClassVar[bool] = True

    def start(self, shared):
        width = np.float64(shared["usual_log_width"])
        n_features = shared["centres"].shape[1]
        return {
            "log_amplitude": np.float64(0.0),
            "log_width": np.full(n_features, width) if self.per_feature else width,
        }

    def log_prior(self, hyper, shared):
        widths = width_prior(hyper["log_width"], shared["usual_log_width"])[0]
        return widths + normal_logpdf(hyper["log_amplitude"], 0.0, 1.5)

    def log_prior_slopes(self, hyper, shared):
        return {
            "log_width": width_prior(hyper["log_width"], shared["usual_log_width"])[1],
            "log_amplitude": -hyper["log_amplitude"] / 1.5**2,
        }

    def fit_shared(self, x, seed, weight=None):
        if self.kernel not in KERNELS:
            raise InputError(f"kernel must be one of {', '.join(KERNELS)}, got {self.kernel!r}.")
        distinct = np.unique(x, axis=0)
        if self.n_inducing is not None and self.n_inducing < len(distinct):
            centres = kmeans(x, self.n_inducing, seed, weight)
        else:
            centres = x if len(distinct) == len(x) else distinct
        return {
            "n_columns": len(centres),
            "centres": centres,
            "usual_log_width": usual_log_width(x.shape[1]),
        }

    def rows(self, x, shared):
        x, centres = np.asarray(x, dtype=np.float64), shared["centres"]
        # Of the training rows themselves the columns are the factor, which is known.
        return {"x": centres if x.shape == centres.shape and (x == centres).all() else x}

    def columns(self, rows, shared, hyper):
        x, z = rows["x"], shared["centres"]
        factor = self._factor(z, hyper)
        if x is z:
            return factor
        across = self._kernel(x, z, hyper)[0]
        return _solve(factor, across.T).T

    def _kernel(self, x: Any, z: Any, hyper: Hyper) -> tuple[Any, Any]:
        xp = namespace(hyper["log_width"])
        scale = xp.exp(-hyper["log_width"])
        square = scaled_distances(x * scale, z * scale)
        if x is z:  # rounding would be taken for a distance, of whose root it is a large part
            square = square * (1 - xp.eye(len(z)))
        value, slope = KERNELS[self.kernel](square)
        variance = xp.exp(2 * hyper["log_amplitude"])
        return variance * value, variance * slope

    def covariance(self, shared: Shared, hyper: Hyper) -> tuple[Any, Callable[[Any], Hyper]]:
        """Between all centres, the constant's share included, and how derivatives in it become
        those in the hyperparameters."""
        z = shared["centres"]
        value, slope = self._kernel(z, z, hyper)
        whole = value + self.constant**2
        whole[np.diag_indices(len(z))] += JITTER * np.exp(2 * hyper["log_amplitude"])
        return whole, lambda slopes: self._slopes_of((value, slope), z, z, hyper, slopes)

    def _factor(self, z: Any, hyper: Hyper) -> Any:
        xp = namespace(hyper["log_width"])
        own = self._kernel(z, z, hyper)[0]
        jitter = JITTER * xp.exp(2 * hyper["log_amplitude"])
        return xp.linalg.cholesky(own + jitter * xp.eye(len(z)))

    def pull_back(self, rows, shared, hyper, columns, slopes):
        x, z = rows["x"], shared["centres"]
        if x is z:
            return self._kernel_slopes(z, z, hyper, _through_cholesky(columns, np.tril(slopes)))
        factor = self._factor(z, hyper)
        # Phi L^T = K: with T = slopes L^-1, in K it is T, in L it is -tril(T^T Phi).
        in_kernel = _solve(factor.T, slopes.T, lower=False).T
        in_factor = -np.tril(in_kernel.T @ columns)
        own = self._kernel_slopes(z, z, hyper, _through_cholesky(factor, in_factor))
        across = self._kernel_slopes(x, z, hyper, in_kernel)
        return {name: own[name] + across[name] for name in own}

    def _kernel_slopes(self, x: Any, z: Any, hyper: Hyper, slopes: Any) -> Hyper:
        return self._slopes_of(self._kernel(x, z, hyper), x, z, hyper, slopes)

    def _slopes_of(self, kernel: Any, x: Any, z: Any, hyper: Hyper, slopes: Any) -> Hyper:
        value, slope = kernel
        inverse = np.exp(-2 * hyper["log_width"])
        by_feature = inverse * spread_of(slopes * slope, x, z)
        own = by_feature if self.per_feature else by_feature.sum()
        jitter = np.trace(slopes) * JITTER * np.exp(2 * hyper["log_amplitude"]) if x is z else 0.0
        return {"log_width": own, "log_amplitude": 2 * ((slopes * value).sum() + jitter)}

    def leftover(self, rows, shared, hyper, columns):
        del rows, shared
        variance = np.exp(2 * hyper["log_amplitude"])
        return np.maximum(variance - (columns**2).sum(1), 0.0)

    def leftover_covariance(self, rows, shared, hyper, columns):
        del shared
        return self._kernel(rows["x"], rows["x"], hyper)[0] - columns @ columns.T


def _solve(factor: Any, columns: Any, lower: bool = True) -> Any:
    """`L^-1 X`, or `L^-T X` for the transposed factor."""
    if namespace(factor) is np:
        from scipy.linalg import solve_triangular

        return solve_triangular(factor, columns, lower=lower, check_finite=False)
    from jax.scipy.linalg import solve_triangular

    return solve_triangular(factor, columns, lower=lower)


def _through_cholesky(factor: np.ndarray, in_factor: np.ndarray) -> np.ndarray:
    """The derivative in `K = L L^T`, symmetric, of what has the derivative `in_factor` in `L`."""
    lower = np.tril(factor.T @ in_factor)
    lower[np.diag_indices(len(lower))] *= 0.5
    both = 0.5 * (lower + lower.T)
    half = _solve(factor.T, both, lower=False)
    return _solve(factor.T, half.T, lower=False)
