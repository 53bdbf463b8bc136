"""Means and widths along some directions of a Gaussian over many parameters; the others stay.

With a root R and orthonormal rows V (eigenvectors of the curvature, or every parameter),

    w = centre + R (z + V^T (m + (e^rho - 1) V z)),      bound = E log p~(w) + sum rho + log|det R|
    d/dm = V R^T E g,      d/drho = e^rho V E[R^T g (V z)] + 1

over fixed pairs z, -z whose coordinates along V have unit covariance exactly.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._draws import FIXED, generator
from .._arrays._roots import Root, colour, log_det
from .._arrays._structured import LowRankRoot
from .._density._protocol import Density
from .._watch import tell
from ._low_rank import Directions
from ._search import Stop, Summit, quasi_newton

Vector = Float[np.ndarray, " dim"]
Rows = Float[np.ndarray, "n dim"]
Along = Float[np.ndarray, "n free"]
# Draws, and the share of memory that they may take.
MOST_DRAWS, FEWEST_DRAWS, SHARE = 256, 32, 0.25
# Draws for each direction that may change.
DRAWS_EACH = 4
# Numbers at which the density is asked at a time.
BLOCK = 2**23
# Nats that a search may leave: in all, and for each parameter that may change.
LEFT, LEFT_EACH = 1e-4, 1e-6
# rho = phi / sqrt 2: its Fisher information is then one, as that of m.
UNIT = math.sqrt(0.5)


class Subspace:
    """`n` draws around a Gaussian; `directions`: V is its leading ones, or every parameter."""

    def __init__(self, root: Root, directions: Directions | None, key: object, n: int):
        self.root, dim = root, len(root)
        self.columns: Any
        half = generator(key, FIXED).standard_normal((n // 2, dim))
        if directions is None:
            half /= np.sqrt((half**2).mean(0))
            self.along, self.columns, self.rows = half, root, None
            self.moved = half * root
            return
        self.rows = directions.leading(max(1, n // DRAWS_EACH))
        along = half @ self.rows.T
        values, vectors = np.linalg.eigh(along.T @ along / len(along))
        matched = along @ ((vectors / np.sqrt(values)) @ vectors.T)
        half += (matched - along) @ self.rows
        self.along, self.moved = matched, colour(root, half)
        self.columns = colour(root, self.rows)

    @property
    def size(self) -> int:
        return self.along.shape[1]

    @property
    def n_draws(self) -> int:
        return 2 * len(self.along)

    def steps(self, along: Along) -> Rows:
        """`R V^T x` for every row `x`."""
        return along * self.columns if self.rows is None else along @ self.columns

    def back(self, gradients: Rows) -> Along:
        """`V R^T g` for every row `g`."""
        return gradients * self.columns if self.rows is None else gradients @ self.columns.T

    def changed(self, rho: np.ndarray) -> Root:
        """`R (I + V^T (e^rho - 1) V)`."""
        if self.rows is None:
            return self.root * np.exp(rho)
        root = self.root
        assert isinstance(root, LowRankRoot)
        # V = X Q, with the root's own rows Q: (I + Q^T K Q) (I + Q^T Y Q).
        x = self.rows @ root.rows.T
        turn = (x.T * np.expm1(rho)) @ x
        inner = root.inner + turn + root.inner @ root.gram @ turn
        return dataclasses.replace(root, inner=inner)


def draws_for(dim: int, memory: int) -> int:
    affordable = int(SHARE * memory / (8 * dim)) // 2 * 2
    return max(FEWEST_DRAWS, min(MOST_DRAWS, affordable))


@dataclasses.dataclass(frozen=True)
class Part:
    """Which may change."""

    means: bool = True
    widths: bool = True


class SubspaceBound:
    """A function of `m`, `phi`, or both: value and gradient."""

    def __init__(self, density: Density, centre: Vector, space: Subspace, part: Part):
        self.density, self.centre, self.space, self.part = density, centre, space, part
        self.n_passes = 0
        self.constant = log_det(space.root) + 0.5 * len(centre) * (1 + math.log(2 * math.pi))

    def split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, zero = self.space.size, np.zeros(self.space.size)
        mean = x[:n] if self.part.means else zero
        return mean, UNIT * x[-n:] if self.part.widths else zero

    @property
    def start(self) -> np.ndarray:
        return np.zeros(self.space.size * (self.part.means + self.part.widths))

    def by_pair(self, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Values of pairs; means of `V R^T g`, of that times `V z`, and of the squares that tell
        their noise."""
        space, dim = self.space, len(self.centre)
        mean, rho = self.split(x)
        shift, values = space.steps(mean[None])[0], []
        sums = [np.zeros(space.size) for _ in range(4)]
        size = max(1, BLOCK // (2 * dim))
        for first in range(0, len(space.along), size):
            along = space.along[first : first + size]
            moved = space.moved[first : first + size] + space.steps(along * np.expm1(rho))
            centre = self.centre + shift
            points = np.concatenate([centre + moved, centre - moved])
            found, gradients = self.density.gradients(points)
            values.append(0.5 * (found[: len(along)] + found[len(along) :]))
            pulled = space.back(gradients)
            ahead, behind = pulled[: len(along)], pulled[len(along) :]
            means, widths = 0.5 * (ahead + behind), 0.5 * (ahead - behind) * along
            # A Gaussian's own noise is matched away: that of the rest.
            squares = means**2, (widths + along**2) ** 2
            for total, one in zip(sums, (means, widths, *squares), strict=True):
                total += one.sum(0)
        self.n_passes += 1
        return np.concatenate(values), [one / len(space.along) for one in sums]

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        rho = self.split(x)[1]
        values, (means, widths, _, _) = self.by_pair(x)
        value = float(values.mean()) + float(rho.sum()) + self.constant
        slopes = [means] if self.part.means else []
        if self.part.widths:
            slopes.append(UNIT * (np.exp(rho) * widths + 1))
        return value, np.concatenate(slopes)


@dataclasses.dataclass(frozen=True)
class Foreseen:
    """Nats to gain by means and by widths, beside what the noise of the draws would pretend."""

    means: float
    widths: float
    is_finite: bool


def foreseen(bound: SubspaceBound) -> Foreseen:
    n = len(bound.space.along)
    with np.errstate(all="ignore"):
        values, (means, widths, means2, widths2) = bound.by_pair(0 * bound.start)
        noise_of_means = (means2 - means**2) / n
        bend = np.maximum(-widths, 1e-6)
        noise_of_widths = np.minimum((widths2 - (widths + 1) ** 2) / n, 1.0)
        of_means = 0.5 * float((means**2 - noise_of_means).sum())
        of_widths = 0.5 * float((bend - 1 - np.log(bend) - 0.5 * noise_of_widths).sum())
    finite = bool(np.isfinite(values).all() and np.isfinite(of_means + of_widths))
    return Foreseen(of_means, of_widths, finite)


@dataclasses.dataclass(frozen=True)
class SubspaceState:
    """Where the search ended."""

    bound: SubspaceBound
    summit: Summit

    @functools.cached_property
    def mean(self) -> Vector:
        mean = self.bound.split(self.summit.point)[0]
        return self.bound.centre + self.bound.space.steps(mean[None])[0]

    @functools.cached_property
    def root(self) -> Root:
        return self.bound.space.changed(self.bound.split(self.summit.point)[1])


def best_in_subspace(bound: SubspaceBound, tol: float | None, max_steps: int) -> SubspaceState:
    size = len(bound.start)
    stop = Stop(max(LEFT, LEFT_EACH * size), tol, max_steps, last_step=False)
    n_draws = bound.space.n_draws

    def watched(so_far: Summit) -> None:
        tell(so_far.value, so_far.gain_left, n_draws)

    found = quasi_newton(
        bound, bound.start, stop, bound.density.resolution, dense=size <= 256, watched=watched
    )
    return SubspaceState(bound, found)
