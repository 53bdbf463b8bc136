"""A Gaussian over flat, unbounded parameters: moments, draws and log densities on points."""

import dataclasses
import functools
import math
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._arrays import _roots
from .._arrays._draws import SAMPLE, generator
from .._arrays._roots import Root
from .._errors import InputError

# Parameters whose covariance is shown where the root has a structure.
MOST_IN_COV = 5000


@dataclasses.dataclass(frozen=True, eq=False)
class Gaussian:
    """`N(mean, root root^T)`; a vector is a diagonal root. Points have the parameters on their last
    axis. All is not a number where there is no Gaussian."""

    mean: Float[np.ndarray, " dim"]
    root: Root

    @property
    def dim(self) -> int:
        return len(self.mean)

    @property
    def is_sound(self) -> bool:
        return _roots.is_sound(self.root)

    @functools.cached_property
    def std(self) -> Float[np.ndarray, " dim"]:
        return _roots.sds(self.root)

    @functools.cached_property
    def cov(self) -> Float[np.ndarray, "dim dim"]:
        if not self.is_sound:
            refuse_large(self.dim)
            return np.full((self.dim, self.dim), np.nan)
        if _roots.is_structured(self.root) or _roots.is_diagonal(self.root):
            refuse_large(self.dim)
        return _roots.covariance(self.root)

    def cov_of(self, places: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some some"]:
        """Of the parameters at these places."""
        refuse_large(len(places))
        if not self.is_sound:
            return np.full((len(places), len(places)), np.nan)
        return _roots.covariance_of(self.root, places)

    @functools.cached_property
    def log_det_root(self) -> float:
        return _roots.log_det(self.root) if self.is_sound else math.nan

    def colour(self, z: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "*n dim"]:
        """`mean + root z`: where standard normal points come to lie."""
        return self.mean + _roots.colour(self.root, z)

    def whiten(self, points: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "*n dim"]:
        """`root^-1 (w - mean)`: where points stand, in standard deviations."""
        steps = points - self.mean
        return _roots.whiten(self.root, steps) if self.is_sound else np.full(steps.shape, np.nan)

    def sample(self, key: Any, n: int) -> Float[np.ndarray, "n dim"]:
        return self.drawn(generator(key, SAMPLE), n)[0].astype(self.mean.dtype)

    def drawn(
        self, rng: np.random.Generator, n: int
    ) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
        """Independent draws, and the log density there."""
        z = rng.standard_normal((n, self.dim))
        return self.colour(z), normal_logpdf(z, self.log_det_root)

    def log_prob(self, points: Float[np.ndarray, "*n dim"]) -> Any:
        return normal_logpdf(self.whiten(points), self.log_det_root)

    # --- as a mixture of one ------------------------------------------------------------------

    @property
    def weights(self) -> Float[np.ndarray, "1"]:
        return np.ones(1)

    @property
    def components(self) -> "tuple[Gaussian, ...]":
        return (self,)

    # --- one parameter at a time --------------------------------------------------------------

    def marginal(self, places: Int[np.ndarray, " some"]) -> "Gaussian":
        """Of the parameters at these places."""
        if len(places) == 1 or _roots.is_diagonal(self.root):
            return Gaussian(self.mean[places], self.std[places])
        own = np.linalg.cholesky(self.cov_of(places).astype(np.float64))
        return Gaussian(self.mean[places], own.astype(self.mean.dtype))

    def quantiles(
        self, probs: Float[np.ndarray, " probs"], upper: bool = False
    ) -> Float[np.ndarray, "probs dim"]:
        """Of every parameter by itself. `upper`: the values above which these shares lie."""
        z = np.array([NormalDist().inv_cdf(p) for p in probs])[:, None]
        z = -z if upper else z
        return self.mean.astype(np.float64) + z * self.std.astype(np.float64)


def refuse_large(n: int) -> None:
    """A covariance that would not fit."""
    if n > MOST_IN_COV:
        raise InputError(
            f"cov: the covariance of {n} parameters would be {8 * n**2 / 2**30:.1f} GiB. Ask for "
            "that of some of them, post.cov_of(names), for post.std, or for draws."
        )


def normal_logpdf(z: Float[Any, "*batch dim"], log_det_root: float) -> Any:
    """`log N(mean + root z | mean, root root^T)`."""
    dim = z.shape[-1]
    return -0.5 * (z**2).sum(-1) - 0.5 * dim * math.log(2 * math.pi) - log_det_root
