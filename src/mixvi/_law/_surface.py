"""The density of hyperparameters between the points where it is known.

On a grid of up to three, the log density is `-|z|^2 / 2` and a smooth rest: a spline goes through
that of one, and through that of two or three a function that has its slopes, too. Of a design, a
normal with other scales below and above its mode, axis by axis, whose draws such a function weighs.
"""

import dataclasses
import functools
import math

import numpy as np
from jaxtyping import Float

from .._arrays._sobol import normal_quantile, sobol
from ._curve import Marginal
from ._hermite import Hermite

# Values at which a marginal is tabulated, and those across.
N_ALONG, N_ACROSS = 401, 201
# The same in space, where a density as smooth as a normal is summed with steps of so many steps
# of the grid.
N_ALONG_SPACE, FINER = 121, 0.6
# Steps of the grid from every point that is known at which a density counts as nothing: a walk has
# ended before.
BEYOND_PLANE, BEYOND_SPACE = 1.5, 2.0
# Of sums of split normals: points and how many standard deviations they reach.
N_CELLS, REACH = 4001, 8.0
# Of a design: draws of the split normal, how smooth their mean weight is, in standard deviations,
# and the least effective share of them at which weights count.
N_DRAWS, BANDWIDTH, LEAST_SHARE = 2**14, 0.08, 0.01
Matrix = Float[np.ndarray, "hyper hyper"]
Hyper = Float[np.ndarray, " hyper"]


@dataclasses.dataclass(frozen=True, eq=False)
class Surface:
    """`theta = centre + basis (scale z)`; `values`: the log density at `z`, and `slopes` along the
    columns of `basis` (None in files of earlier versions). `step`: of the grid; 0 where it is a
    design."""

    names: tuple[str, ...]
    centre: Hyper
    basis: Matrix
    scales: Float[np.ndarray, "2 hyper"]
    z: Float[np.ndarray, "n hyper"]
    values: Float[np.ndarray, " n"]
    slopes: Float[np.ndarray, "n hyper"] | None
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
        if self.k == 3:
            return tuple(self._of_space(j)[0] for j in range(3))
        return tuple(self._of_plane(j)[0] for j in range(2))

    @functools.cached_property
    def cov(self) -> Matrix:
        """Of all of them."""
        if self.step == 0:
            return self._design_cov
        if self.k == 3:
            return self._of_space(0)[1]
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
        beyond = BEYOND_PLANE * self.step
        ends = [(min(x) - beyond, max(x) + beyond) for x in (self.z @ along, self.z @ across)]
        a, t = (np.linspace(*end, n) for end, n in zip(ends, (N_ALONG, N_ACROSS), strict=True))
        at = (a[:, None, None] * along + t[:, None] * across).reshape(-1, 2)
        mass = self._mass(at, beyond).reshape(len(a), len(t))
        made = Marginal.of_density(self.names[j], self.centre[j] + length * a, mass.sum(1))
        mass = mass / mass.sum()
        first, second = a[:, None] + 0 * t, 0 * a[:, None] + t
        both = np.stack([first, second], -1) @ np.stack([along, across])  # back to z
        steps = both @ self.basis.T
        mean = np.einsum("at,atk->k", mass, steps)
        shared = np.einsum("at,at,at->", mass, steps[..., 0] - mean[0], steps[..., 1] - mean[1])
        return made, float(shared)

    def _mass(self, at: Float[np.ndarray, "m k"], beyond: float) -> Float[np.ndarray, " m"]:
        """The density, in some unit; nothing where no point that is known is near."""
        from scipy.spatial import KDTree

        is_near = np.isfinite(KDTree(self.z).query(at, distance_upper_bound=beyond)[0])
        near = at[is_near]
        rest = self._between(near) if self.slopes is None else self._rest(near)
        log_density = rest - 0.5 * (near**2).sum(1)
        mass = np.zeros(len(at))
        mass[is_near] = np.exp(log_density - log_density.max())
        return mass

    def _between(self, at: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, " m"]:
        """The rest by a spline, where slopes are not known; where the grid has no point the nearest
        one's stands."""
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
        return spline(inside[:, 0], inside[:, 1], grid=False)

    def _of_space(self, j: int) -> tuple[Marginal, Matrix]:
        """Integrated over the planes on which hyperparameter `j` stands still, and the covariance
        of all three."""
        length = float(np.linalg.norm(self.basis[j]))
        # The first axis is that along which it changes.
        turn = np.linalg.qr(np.column_stack([self.basis[j], np.eye(3)]))[0]
        turn[:, 0] = self.basis[j] / length
        turned, beyond = self.z @ turn, BEYOND_SPACE * self.step
        low, high = turned.min(0) - beyond, turned.max(0) + beyond
        axes = [np.linspace(low[0], high[0], N_ALONG_SPACE)]
        axes += [np.arange(low[i], high[i], FINER * self.step) for i in (1, 2)]
        at = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3) @ turn.T
        mass = self._mass(at, beyond)
        own = mass.reshape(N_ALONG_SPACE, -1).sum(1)
        made = Marginal.of_density(self.names[j], self.centre[j] + length * axes[0], own)
        mass = mass / mass.sum()
        apart = (at - mass @ at) @ self.basis.T
        return made, (mass[:, None] * apart).T @ apart

    @functools.cached_property
    def _rest(self) -> Hermite:
        """Of the log density, once a normal's is taken off. Along the columns of `basis`: across
        the mode other scales would break its slopes."""
        at = self.z * np.where(self.z > 0, self.scales[1], self.scales[0])
        assert self.slopes is not None
        return Hermite(at, self.values + 0.5 * (at**2).sum(1), self.slopes + at)

    # --- a design -----------------------------------------------------------------------------

    def _of_design(self, j: int) -> Marginal:
        """That of the split normal, times the mean weight of its draws where hyperparameter `j` has
        this value: a regression on it, as smooth as `BANDWIDTH` of its standard deviations."""
        split = self._of_split_normal(j)
        draws, weights = self._weighted
        own, sd = draws @ self.basis[j] + self.centre[j], math.sqrt(self._split_cov[j, j])
        cells = np.linspace(own.min(), own.max(), N_CELLS)
        width = cells[1] - cells[0]
        reach = math.ceil(5 * BANDWIDTH * sd / width)
        kernel = np.exp(-0.5 * (width * np.arange(-reach, reach + 1) / (BANDWIDTH * sd)) ** 2)
        at = np.rint((own - cells[0]) / width).astype(int)
        sums = (np.bincount(at, of, N_CELLS) for of in (weights, np.ones_like(weights)))
        top, bottom = (np.convolve(one, kernel, "same") for one in sums)
        among = bottom > 1e-3  # draws
        mean_weight = np.interp(split.grid, cells[among], top[among] / bottom[among])
        densities = split.densities * mean_weight
        return Marginal.of_density(self.names[j], split.grid, densities)

    @functools.cached_property
    def _weighted(self) -> tuple[Float[np.ndarray, "draws hyper"], Float[np.ndarray, " draws"]]:
        """Draws of the split normal, along the columns of `basis`, and their weights under the
        smooth function through what is known; all equal where these say nothing."""
        below = self.scales[0] / self.scales.sum(0)  # the share of its mass below the mode
        share = sobol(np.random.default_rng(0), N_DRAWS, self.k)
        is_low = share < below
        tail = np.where(is_low, 0.5 * share / below, 0.5 * (1 - share) / (1 - below))
        z = np.where(is_low, 1.0, -1.0) * normal_quantile(tail)
        draws = z * np.where(is_low, self.scales[0], self.scales[1])
        if self.slopes is None:
            return draws, np.ones(N_DRAWS)
        with np.errstate(all="ignore"):
            log_weights = self._rest(draws) - 0.5 * (draws**2).sum(1) + 0.5 * (z**2).sum(1)
            weights = np.exp(log_weights - log_weights.max())
            weights = weights / weights.mean()
            if not 1 / (weights**2).mean() > LEAST_SHARE:
                weights = np.ones(N_DRAWS)
        return draws, weights

    @functools.cached_property
    def _split_cov(self) -> Matrix:
        apart = np.diff(self.scales, axis=0)[0]
        variances = (1 - 2 / math.pi) * apart**2 + self.scales.prod(0)
        return (self.basis * variances) @ self.basis.T

    @functools.cached_property
    def _design_cov(self) -> Matrix:
        """Of the split normal, and by how much the weights change that of its draws."""
        draws, weights = self._weighted
        changed = np.cov(draws.T, aweights=weights, ddof=0) - np.cov(draws.T, ddof=0)
        return self._split_cov + self.basis @ changed @ self.basis.T

    def _of_split_normal(self, j: int) -> Marginal:
        """A sum of independent split normals: their masses on one grid, convolved."""
        from scipy.special import ndtr

        sd = math.sqrt(self._split_cov[j, j])
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
