"""A mixture of Gaussians over flat, unbounded parameters: `post.law` where one is not enough.

    q(w) = sum_k pi_k N(w; mu_k, L_k L_k^T)

It answers what a Gaussian answers. What stands for all of it as if it were one Gaussian (`root`,
`whiten`, `colour`: units of its standard deviations, a mass matrix) is that of its own mean and
covariance.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._arrays import _roots
from .._arrays._draws import SAMPLE, generator
from .._errors import InputError
from ._gaussian import Gaussian, refuse_large

# Halvings of a bracket: more than the bits of a number.
N_HALVINGS = 80


@dataclasses.dataclass(frozen=True, eq=False)
class GaussianMixture:
    """`sum_k weights[k] N(components[k])`; the weights are positive and sum to one. Points have
    the parameters on their last axis."""

    weights: Float[np.ndarray, " components"]
    components: tuple[Gaussian, ...]

    def __post_init__(self):
        weights = np.asarray(self.weights, np.float64)
        if not self.components or len(weights) != len(self.components):
            raise InputError(
                f"GaussianMixture: {len(weights)} weights for {len(self.components)} components."
            )
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
            raise InputError(f"GaussianMixture: weights must not be negative, got {weights}.")
        if len({one.dim for one in self.components}) > 1:
            raise InputError("GaussianMixture: the components have different dimensions.")
        object.__setattr__(self, "weights", weights / weights.sum())
        object.__setattr__(self, "components", tuple(self.components))

    @property
    def dim(self) -> int:
        return self.components[0].dim

    @property
    def is_sound(self) -> bool:
        return all(one.is_sound for one in self.components)

    # --- moments ------------------------------------------------------------------------------

    @functools.cached_property
    def means(self) -> Float[np.ndarray, "components dim"]:
        return np.stack([one.mean for one in self.components])

    @functools.cached_property
    def stds(self) -> Float[np.ndarray, "components dim"]:
        return np.stack([one.std for one in self.components])

    @functools.cached_property
    def mean(self) -> Float[np.ndarray, " dim"]:
        return (self.weights @ self.means).astype(self.means.dtype)

    @functools.cached_property
    def std(self) -> Float[np.ndarray, " dim"]:
        """`Var = E[Var | k] + Var[E | k]`."""
        apart = self.means - self.mean
        return np.sqrt(self.weights @ (self.stds**2 + apart**2)).astype(self.means.dtype)

    @functools.cached_property
    def cov(self) -> Float[np.ndarray, "dim dim"]:
        return self.cov_of(np.arange(self.dim))

    def cov_of(self, places: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some some"]:
        """Of the parameters at these places."""
        refuse_large(len(places))
        within = sum(
            weight * one.cov_of(places)
            for weight, one in zip(self.weights, self.components, strict=True)
        )
        apart = (self.means - self.mean)[:, places]
        return (within + (self.weights[:, None] * apart).T @ apart).astype(self.means.dtype)

    # --- all of it as one Gaussian ------------------------------------------------------------

    @functools.cached_property
    def moments(self) -> Gaussian:
        """The Gaussian with its mean and covariance: of all Gaussians the nearest to it in
        `KL(q || N)`."""
        if not self.is_sound:
            return Gaussian(self.mean, np.full(self.dim, np.nan, self.means.dtype))
        root = np.linalg.cholesky(self.cov.astype(np.float64))
        return Gaussian(self.mean, root.astype(self.means.dtype))

    @property
    def root(self) -> _roots.Root:
        """A root of `cov`."""
        return self.moments.root

    @property
    def log_det_root(self) -> float:
        return self.moments.log_det_root

    def colour(self, z: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "*n dim"]:
        """`mean + root z`: from standard deviations to parameters. (Standard normal `z` do not
        become draws of the mixture.)"""
        return self.moments.colour(z)

    def whiten(self, points: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "*n dim"]:
        """`root^-1 (w - mean)`: where points stand, in standard deviations."""
        return self.moments.whiten(points)

    # --- draws and densities ------------------------------------------------------------------

    def sample(self, key: Any, n: int) -> Float[np.ndarray, "n dim"]:
        return self.drawn(generator(key, SAMPLE), n)[0].astype(self.means.dtype)

    def drawn(
        self, rng: np.random.Generator, n: int
    ) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
        """Independent draws, and the log density there."""
        z = rng.standard_normal((n, self.dim))
        ends = np.cumsum(self.weights)[:-1]
        own = np.searchsorted(ends, rng.random(n), side="right")
        points = np.empty_like(z)
        for k, one in enumerate(self.components):
            points[own == k] = one.colour(z[own == k])
        return points, np.atleast_1d(self.log_prob(points))

    def log_parts(self, points: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "..."]:
        """`log pi_k + log N(w; mu_k, L_k L_k^T)`, the components on the first axis."""
        with np.errstate(divide="ignore"):
            shares = np.log(self.weights)
        both = zip(shares, self.components, strict=True)
        return np.stack([share + one.log_prob(points) for share, one in both])

    def log_prob(self, points: Float[np.ndarray, "*n dim"]) -> Any:
        return np.logaddexp.reduce(self.log_parts(points), axis=0)

    # --- one parameter at a time --------------------------------------------------------------

    def marginal(self, places: Sequence[int] | np.ndarray) -> "GaussianMixture":
        """Of the parameters at these places."""
        kept = np.asarray(places)
        return GaussianMixture(self.weights, tuple(one.marginal(kept) for one in self.components))

    def cdf(self, values: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "*n dim"]:
        """Of every parameter by itself: `P(w_i <= values_i)`."""
        from scipy import special  # takes 0.1 s, and few need it

        z = (np.asarray(values)[..., None, :] - self.means) / self.stds
        return (self.weights[:, None] * special.ndtr(z)).sum(-2)

    def quantiles(
        self, probs: Float[np.ndarray, " probs"], upper: bool = False
    ) -> Float[np.ndarray, "probs dim"]:
        """Of every parameter by itself, by bisection: the quantile lies between those of the
        components. `upper`: the values above which these shares lie."""
        if not self.is_sound:
            return np.full((len(probs), self.dim), np.nan)
        if upper:
            return -self._reflected.quantiles(probs)
        each = np.stack([one.quantiles(probs) for one in self.components])
        low, high, wanted = each.min(0), each.max(0), np.asarray(probs)[:, None]
        for _ in range(N_HALVINGS):
            middle = 0.5 * (low + high)
            is_below = self.cdf(middle) < wanted
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return 0.5 * (low + high)

    @property
    def _reflected(self) -> "GaussianMixture":
        components = (dataclasses.replace(one, mean=-one.mean) for one in self.components)
        return GaussianMixture(self.weights, tuple(components))


Law = Gaussian | GaussianMixture
