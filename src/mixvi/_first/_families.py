"""The structured matrices `A(phi)`: which part of the Laplace Gaussian may adapt.

A posterior is the law of `w = w* + R m + R A(phi) z`, `z ~ N(0, I)`. `m` is in posterior standard
deviations and `phi` is scaled so that the Fisher information at `A = I` is the identity (a log
scale has information 2, hence `rho = phi / sqrt 2`): a quasi-Newton search that starts from the
identity then starts from the right Hessian for a Gaussian target.

To add a family: one class here with the members that `Family` asks for.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import InputError
from ._laplace import Laplace, Root, eigen_root

Matrix = Float[Array, "dim dim"] | Float[Array, " dim"]
SQRT2 = math.sqrt(2.0)
# Where the Laplace covariance is far too wide (a Cauchy posterior) or too narrow.
SCALINGS = (1.0, 0.5, 0.25, 0.125, 0.03, 2.0)


class Family(eqx.Module):
    """What a family must say. `A` is (dim, dim), `phi` a flat vector."""

    name: ClassVar[str]
    updates_root: ClassVar[bool]  # fixed draws must then outnumber the dimensions
    start_is_stationary: ClassVar[bool] = False  # the search could not leave the first of `starts`
    poorer: ClassVar[str | None]  # contained in this one; fitted first, so never beaten by it

    def refusal(self, dim: int) -> str | None:
        """Why the family does not exist in `dim` dimensions, or None."""
        del dim
        return None

    @abc.abstractmethod
    def root(self, laplace: Laplace) -> Root:
        """The root `R` that `A` multiplies."""

    @abc.abstractmethod
    def apply(self, phi: Float[Array, " free"], z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """`A z` for one `z`."""

    @abc.abstractmethod
    def log_det(self, phi: Float[Array, " free"], dim: int) -> Float[Array, ""]:
        """`log|det A|`."""

    @abc.abstractmethod
    def after(self, matrix: Matrix, phi: Float[Array, " free"]) -> Matrix:
        """`matrix A` (a vector stands for a diagonal matrix)."""

    @abc.abstractmethod
    def starts(
        self, root: Root, a: Float[Array, "dim dim"], gradient: Float[Array, "dim dim"]
    ) -> Float[Array, "starts free"]:
        """Candidates for `phi`, the first one nearest to the matrix `a` (exactly `a` when it comes
        from the poorer family). `gradient` is that of the bound with respect to `A` at `a`."""


class MeanOnly(Family):
    """The Laplace Gaussian with a free mean (MVI_mu): `A = I`."""

    name = "mu"
    updates_root = False
    poorer = None

    def root(self, laplace: Laplace) -> Root:
        return eigen_root(laplace.root)

    def apply(self, phi, z):
        del phi
        return z

    def log_det(self, phi, dim):
        del dim
        return jnp.zeros((), phi.dtype)

    def after(self, matrix, phi):
        del phi
        return matrix

    def starts(self, root, a, gradient):
        del root, gradient
        return jnp.zeros((1, 0), a.dtype)


class EigenScale(Family):
    """Free mean and free scales along the Laplace axes (MVI_eig): `A = diag(exp rho)`."""

    name = "eig"
    updates_root = False
    poorer = "mu"

    def root(self, laplace: Laplace) -> Root:
        return eigen_root(laplace.root)

    def apply(self, phi, z):
        return jnp.exp(phi / SQRT2) * z

    def log_det(self, phi, dim):
        del dim
        return phi.sum() / SQRT2

    def after(self, matrix, phi):
        return matrix * jnp.exp(phi / SQRT2)

    def starts(self, root, a, gradient):
        del root, gradient
        return _log_scales(a) + SQRT2 * jnp.log(jnp.array(SCALINGS, a.dtype))[:, None]


class LowRank(Family):
    """Free mean and a rank-k change of the root (MVI_lr): `A = I + U V^T`."""

    rank: int = eqx.field(static=True, default=1)

    name = "lr"
    updates_root = True
    start_is_stationary = True
    poorer = "mu"

    def __check_init__(self):
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise InputError(f"LowRank: rank must be a positive integer, got {self.rank!r}.")

    def refusal(self, dim):
        if self.rank > dim:
            return f"LowRank: rank {self.rank} exceeds the {dim} dimensions of the problem."
        return None

    def _uv(self, phi):
        u, v = jnp.split(phi, 2)
        return u.reshape(-1, self.rank), v.reshape(-1, self.rank)

    def root(self, laplace: Laplace) -> Root:
        return eigen_root(laplace.root)

    def apply(self, phi, z):
        u, v = self._uv(phi)
        return z + u @ (v.T @ z)

    def log_det(self, phi, dim):
        del dim
        u, v = self._uv(phi)
        return jnp.linalg.slogdet(jnp.eye(self.rank, dtype=phi.dtype) + v.T @ u)[1]

    def after(self, matrix, phi):
        u, v = self._uv(phi)
        return matrix + (matrix @ u) @ v.T

    def starts(self, root, a, gradient):
        del root
        # U = V = 0 is stationary, so the change begins with the leading singular pairs of a
        # gradient step, of several lengths.
        eye = jnp.eye(a.shape[0], dtype=a.dtype)
        return jnp.stack([self._leading(a - eye + t * gradient) for t in (0.0, 0.5, 0.1, 0.01)])

    def _leading(self, change):
        u, s, vt = jnp.linalg.svd(change)
        half = jnp.sqrt(s[: self.rank])
        return jnp.concatenate(
            [(u[:, : self.rank] * half).ravel(), (vt[: self.rank].T * half).ravel()]
        )


class FullRank(Family):
    """Free mean and covariance: `A` lower triangular, its diagonal on the log scale."""

    name = "full"
    updates_root = True
    poorer = "eig"

    def root(self, laplace: Laplace) -> Root:
        return eigen_root(laplace.root)

    def _triangle(self, phi, dim):
        below = jnp.zeros((dim, dim), phi.dtype).at[np.tril_indices(dim, -1)].set(phi[dim:])
        return below + jnp.diag(jnp.exp(phi[:dim] / SQRT2))

    def apply(self, phi, z):
        return self._triangle(phi, z.size) @ z

    def log_det(self, phi, dim):
        return phi[:dim].sum() / SQRT2

    def after(self, matrix, phi):
        return matrix @ self._triangle(phi, matrix.shape[-1])

    def starts(self, root, a, gradient):
        del root, gradient
        # The poorer family has been through the scalings.
        factor = jnp.linalg.cholesky(a @ a.T)
        below = factor[np.tril_indices(a.shape[0], -1)]
        return jnp.concatenate([SQRT2 * jnp.log(jnp.diagonal(factor)), below])[None]


class MeanField(Family):
    """Free mean and standard deviations, no correlations (VI_diag).

    Scales are in units of the Laplace standard deviation of each parameter given all others, the
    best there is for a Gaussian target. `start="laplace"` begins there or, where the bound is
    higher, at the marginal ones; `start="small"` at 1e-2. (The paper's are marginal and 1e-2.)
    """

    start: str = eqx.field(static=True, default="laplace")

    name = "diag"
    updates_root = False
    poorer = None

    def __check_init__(self):
        if self.start not in ("laplace", "small"):
            raise InputError(f'MeanField: start must be "laplace" or "small", got {self.start!r}.')

    def root(self, laplace: Laplace) -> Root:
        whitener = eigen_root(laplace.root).matrix
        # The precision is W^-T W^-1.
        scale = 1 / jnp.sqrt((jnp.linalg.inv(whitener) ** 2).sum(0))
        return Root(scale, jnp.log(scale).sum(), whitener)

    def apply(self, phi, z):
        return jnp.exp(phi / SQRT2) * z

    def log_det(self, phi, dim):
        del dim
        return phi.sum() / SQRT2

    def after(self, matrix, phi):
        return matrix * jnp.exp(phi / SQRT2)

    def starts(self, root, a, gradient):
        del gradient
        if self.start == "small":
            return SQRT2 * jnp.log(1e-2 / root.matrix)[None]
        phis = _log_scales(a) + SQRT2 * jnp.log(jnp.array(SCALINGS, a.dtype))[:, None]
        return jnp.concatenate([phis, self.marginal(root)[None]])

    @staticmethod
    def marginal(root: Root) -> Float[Array, " dim"]:
        """The Laplace Gaussian's own standard deviations."""
        assert root.whitener is not None
        return SQRT2 * jnp.log(jnp.sqrt((root.whitener**2).sum(1)) / root.matrix)


def _log_scales(a: Float[Array, "dim dim"]) -> Float[Array, " dim"]:
    """`phi` of the diagonal matrix with the variances of `a a^T`."""
    return jnp.log((a**2).sum(1)) / SQRT2


class LowRankFromNoise(LowRank):
    """The paper's start: U, V ~ N(0, 0.01 I) in `L = C + U V^T`, so `U <- R^-1 U`."""

    seed: int = eqx.field(static=True, default=0)

    start_is_stationary = False
    poorer = None

    def starts(self, root, a, gradient):
        del gradient
        u, v = np.random.default_rng(self.seed).normal(0.0, 0.1, (2, a.shape[0]))
        return jnp.concatenate([jnp.linalg.solve(root.matrix, u), jnp.asarray(v, a.dtype)])[None]


class MeanFieldFromMarginal(MeanField):
    """The paper's first start: the variances of the Laplace covariance."""

    def starts(self, root, a, gradient):
        del a, gradient
        return self.marginal(root)[None]


NAMES: dict[str, type[Family]] = {
    family.name: family for family in (MeanOnly, EigenScale, LowRank, FullRank, MeanField)
}
