"""The density of hyperparameters between the points where it is known.

On a grid of one or two, the log density is `-|z|^2 / 2` and a smooth rest, which splines go
through. Of a design of more, a normal with other scales below and above its mode, axis by axis.
"""

import dataclasses
import functools
import math

import numpy as np
from jaxtyping import Float

from ._curve import Marginal

# Values at which a marginal is tabulated, and those across.
N_ALONG, N_ACROSS = 401, 201
# Of sums of split normals: points and how many standard deviations they reach.
N_CELLS, REACH = 4001, 8.0
Matrix = Float[np.ndarray, "hyper hyper"]
Hyper = Float[np.ndarray, " hyper"]


@dataclasses.dataclass(frozen=True, eq=False)
class Surface:
    """`theta = centre + basis (scale z)`; `values`: the log density at `z`. `step`: of the grid;
    0 where it is a design."""

    names: tuple[str, ...]
    centre: Hyper
    basis: Matrix
    scales: Float[np.ndarray, "2 hyper"]
    z: Float[np.ndarray, "n hyper"]
    values: Float[np.ndarray, " n"]
    step: float

    @property
    def k(self) -> int:
        return len(self.centre)

    def marginal(self, j: int) -> Marginal:
        return self._marginals[j]

    @functools.cached_property
    def _marginals(self) -> tuple[Marginal, ...]:
        if self.step == 0:
            return tuple(self._of_design(j) for j in range(self.k))
        if self.k == 1:
            return (self._of_line(),)
        return tuple(self._of_plane(j)[0] for j in range(2))

    @functools.cached_property
    def cov(self) -> Matrix:
        """Of all of them."""
        if self.step == 0:
            apart = np.diff(self.scales, axis=0)[0]
            variances = (1 - 2 / math.pi) * apart**2 + self.scales.prod(0)
            return (self.basis * variances) @ self.basis.T
        sds = np.array([one.std for one in self._marginals])
        if self.k == 1:
            return np.diag(sds**2)
        shared = self._of_plane(0)[1]
        return np.array([[sds[0] ** 2, shared], [shared, sds[1] ** 2]])

    def _of_line(self) -> Marginal:
        from scipy.interpolate import CubicSpline

        order = np.argsort(self.z[:, 0])
        z, values = self.z[order, 0], self.values[order]
        fine = np.linspace(z[0], z[-1], N_ALONG)
        rest = CubicSpline(z, values + 0.5 * z**2)(fine) if len(z) > 3 else 0.0
        log_density = rest - 0.5 * fine**2
        theta = self.centre[0] + self.basis[0, 0] * fine
        way = 1 if self.basis[0, 0] > 0 else -1
        densities = np.exp(log_density - log_density.max())
        return Marginal.of_density(self.names[0], theta[::way], densities[::way])

    def _of_plane(self, j: int) -> tuple[Marginal, float]:
        """Integrated along the lines on which hyperparameter `j` stands still, and the covariance
        with the other one. With `n` the direction in z along which it changes, `z = a n + t p`."""
        length = float(np.linalg.norm(self.basis[j]))
        along = self.basis[j] / length
        across = np.array([-along[1], along[0]])
        ends = [(min(x), max(x)) for x in (self.z @ along, self.z @ across)]
        a, t = (np.linspace(*end, n) for end, n in zip(ends, (N_ALONG, N_ACROSS), strict=True))
        at = a[:, None, None] * along + t[:, None] * across
        log_density = self._between(at.reshape(-1, 2)).reshape(len(a), len(t))
        mass = np.exp(log_density - log_density.max())
        made = Marginal.of_density(self.names[j], self.centre[j] + length * a, mass.sum(1))
        mass = mass / mass.sum()
        first, second = a[:, None] + 0 * t, 0 * a[:, None] + t
        both = np.stack([first, second], -1) @ np.stack([along, across])  # back to z
        steps = both @ self.basis.T
        mean = np.einsum("at,atk->k", mass, steps)
        shared = np.einsum("at,at,at->", mass, steps[..., 0] - mean[0], steps[..., 1] - mean[1])
        return made, float(shared)

    def _between(self, at: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, " m"]:
        """By a spline through the rest; where the grid has no point the nearest one's stands."""
        from scipy.interpolate import RectBivariateSpline

        places = np.rint(self.z / self.step).astype(int)
        low = places.min(0)
        shape = places.max(0) - low + 1
        rest = np.full(shape, np.nan)
        rest[tuple((places - low).T)] = self.values + 0.5 * (self.z**2).sum(1)
        empty = np.argwhere(np.isnan(rest))
        if len(empty):
            away = ((empty[:, None] - (places - low)) ** 2).sum(-1)
            nearest = (places - low)[away.argmin(1)]
            rest[tuple(empty.T)] = rest[tuple(nearest.T)]
        axes = [self.step * (low[i] + np.arange(shape[i])) for i in range(2)]
        degree = [min(3, n - 1) for n in shape]
        spline = RectBivariateSpline(
            axes[0], axes[1], rest, kx=max(degree[0], 1), ky=max(degree[1], 1)
        )
        inside = np.clip(at, [axis[0] for axis in axes], [axis[-1] for axis in axes])
        found = spline(inside[:, 0], inside[:, 1], grid=False)
        return found - 0.5 * (at**2).sum(1)

    def _of_design(self, j: int) -> Marginal:
        """A sum of independent split normals: their masses on one grid, convolved."""
        from scipy.special import ndtr

        sd = math.sqrt(self.cov[j, j])
        width = 2 * REACH * sd / (N_CELLS - 1)
        cells = width * (np.arange(N_CELLS) - N_CELLS // 2)
        total = np.zeros(N_CELLS)
        total[N_CELLS // 2] = 1.0
        for b, (below, above) in zip(self.basis[j], self.scales.T, strict=True):
            low, high = (below, above) if b > 0 else (above, below)
            low, high = abs(b) * low, abs(b) * high
            if max(low, high) < width:
                continue  # nothing beside the others
            edges = np.append(cells - 0.5 * width, cells[-1] + 0.5 * width)
            under = 2 * low * ndtr(np.minimum(edges, 0) / low)
            over = 2 * high * (ndtr(np.maximum(edges, 0) / high) - 0.5)
            total = np.convolve(total, np.diff((under + over) / (low + high)), "same")
        return Marginal.of_density(self.names[j], self.centre[j] + cells, np.maximum(total, 0))
