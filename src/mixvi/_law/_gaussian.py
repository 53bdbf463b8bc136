"""A Gaussian over flat, unbounded parameters: moments, draws and log densities on points."""

import dataclasses
import functools
import math
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
            self._refuse_large(self.dim)
            return np.full((self.dim, self.dim), np.nan)
        if _roots.is_structured(self.root) or _roots.is_diagonal(self.root):
            self._refuse_large(self.dim)
        return _roots.covariance(self.root)

    def cov_of(self, places: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some some"]:
        """Of the parameters at these places."""
        self._refuse_large(len(places))
        if not self.is_sound:
            return np.full((len(places), len(places)), np.nan)
        return _roots.covariance_of(self.root, places)

    def _refuse_large(self, n: int) -> None:
        if n > MOST_IN_COV:
            raise InputError(
                f"cov: the covariance of {n} parameters would be {8 * n**2 / 2**30:.1f} GiB. Ask "
                "for that of some of them, post.cov_of(names), for post.std, or for draws."
            )

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
        z = generator(key, SAMPLE).standard_normal((n, self.dim))
        return self.colour(z).astype(self.mean.dtype)

    def log_prob(self, points: Float[np.ndarray, "*n dim"]) -> Any:
        return normal_logpdf(self.whiten(points), self.log_det_root)


def normal_logpdf(z: Float[Any, "*batch dim"], log_det_root: float) -> Any:
    """`log N(mean + root z | mean, root root^T)`."""
    dim = z.shape[-1]
    return -0.5 * (z**2).sum(-1) - 0.5 * dim * math.log(2 * math.pi) - log_det_root
