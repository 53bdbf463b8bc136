"""The structured matrices `A(phi)`: which part of the Laplace Gaussian may adapt.

A posterior is the law of `w = w* + R m + R A(phi) z`, `z ~ N(0, I)`. `m` is in posterior standard
deviations and `phi` is scaled so that the Fisher information at `A = I` is the identity (a log
scale has information 2, hence `rho = phi / sqrt 2`): a quasi-Newton search that starts from the
identity then starts from the right Hessian for a Gaussian target.

To add a family: one class with the members that `Family` asks for.
"""

import abc
import dataclasses
import math
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from .._arrays._roots import is_diagonal
from .._density._protocol import Matrix
from .._errors import InputError

Vector = Float[np.ndarray, " free"]
Square = Float[np.ndarray, "dim dim"]
SQRT2 = math.sqrt(2.0)
# Where the Laplace covariance is far too wide (a Cauchy posterior) or too narrow.
SCALINGS = (1.0, 0.5, 0.25, 0.125, 0.03, 2.0)


class Family(abc.ABC):
    """What a family must say; `phi` is a flat vector, `A` a matrix (dim, dim).

    An instance is passed to `fit(family=...)`. The search, the bound and the rest are common to
    all families: `N = R^T E[g z^T]` is what they get from one pass over the draws, and `A^-T` is
    the gradient of `log|det A|`.

    >>> import numpy as np
    >>> import mixvi
    >>> phi = np.zeros(2)  # where A is the identity
    >>> mixvi.EigenScale().right_multiply(np.eye(2), phi)
    array([[1., 0.],
           [0., 1.]])
    >>> mixvi.EigenScale().log_det(phi, dim=2)
    0.0
    """

    name: ClassVar[str]
    updates_root: ClassVar[bool]  # fixed draws must then outnumber the dimensions
    start_is_stationary: ClassVar[bool] = False  # the search could not leave the first of `starts`

    @property
    def poorer(self) -> "Family | None":
        """The family contained in this one: fitted first, so that it is never better."""
        return None

    def refusal(self, dim: int) -> str | None:
        """Why the family does not exist in `dim` dimensions, or None."""
        del dim
        return None

    def root(self, laplace_root: Square) -> Matrix:
        """`R`, the root that `A` multiplies: Laplace's own, or a diagonal one (a vector)."""
        return laplace_root

    @abc.abstractmethod
    def right_multiply(self, root: Matrix, phi: Vector) -> Matrix:
        """`R A(phi)`."""

    @abc.abstractmethod
    def log_det(self, phi: Vector, dim: int) -> float:
        """`log|det A(phi)|`."""

    @abc.abstractmethod
    def pull_back(self, n: Matrix, phi: Vector) -> Vector:
        """The gradient of the bound in `phi`: that of `<N, A(phi)> + log|det A(phi)|`, `N` held.
        Of a diagonal root only the diagonal of `N` is there (a vector)."""

    @abc.abstractmethod
    def starts(
        self, root: Matrix, a: Square, gradient: Square, laplace_root: Square
    ) -> Float[np.ndarray, "starts free"]:
        """Candidates for `phi`, the first one nearest to the matrix `a` (exactly `a` when it comes
        from the poorer family). `gradient`: of the bound with respect to `A` at `a`."""

    def first_curvature(self, bend: Square) -> Vector | None:
        """The bound's curvature in `phi` (its diagonal, negated) at `A = I`, for a start from the
        Gaussian with this `bend`; None for ones."""
        del bend
        return None


@dataclasses.dataclass(frozen=True)
class MeanOnly(Family):
    """The Laplace Gaussian with a free mean (MVI_mu): `A = I`.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import mixvi
    >>> def skewed(w):  # the mode is log 3 = 1.10; a Gaussian of Laplace's width belongs at 0.93
    ...     return (3 * w - jnp.exp(w)).sum()
    >>> mixvi.fit(skewed, np.zeros(2), family=mixvi.MeanOnly()).mean.round(2)
    array([0.93, 0.93])
    """

    name: ClassVar[str] = "mu"
    updates_root: ClassVar[bool] = False

    def right_multiply(self, root, phi):
        del phi
        return root

    def log_det(self, phi, dim):
        del phi, dim
        return 0.0

    def pull_back(self, n, phi):
        del n
        return np.zeros_like(phi)

    def starts(self, root, a, gradient, laplace_root):
        del root, a, gradient, laplace_root
        return np.zeros((1, 0))


class _Scales(Family):
    """`A = diag(exp rho)`."""

    updates_root: ClassVar[bool] = False

    def right_multiply(self, root, phi):
        return root * np.exp(phi / SQRT2)

    def log_det(self, phi, dim):
        del dim
        return float(phi.sum()) / SQRT2

    def pull_back(self, n, phi):
        diagonal = n if is_diagonal(n) else np.diagonal(n)
        return (np.exp(phi / SQRT2) * diagonal + 1) / SQRT2


@dataclasses.dataclass(frozen=True)
class EigenScale(_Scales):
    """Free mean and free scales along the Laplace axes (MVI_eig): `A = diag(exp rho)`.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import mixvi
    >>> def tailed(w):  # Student's t: wider than its curvature at the mode says
    ...     return -2.5 * jnp.log1p(w**2 / 4).sum()
    >>> narrow = mixvi.fit(tailed, np.zeros(2), family="mu")
    >>> wide = mixvi.fit(tailed, np.zeros(2), family=mixvi.EigenScale())
    >>> bool((wide.std > 1.05 * narrow.std).all())
    True
    """

    name: ClassVar[str] = "eig"

    @property
    def poorer(self) -> Family | None:
        return MeanOnly()

    def starts(self, root, a, gradient, laplace_root):
        del root, gradient, laplace_root
        return _log_scales(a) + SQRT2 * np.log(SCALINGS)[:, None]

    def first_curvature(self, bend):
        # ELBO = -b_i exp(2 rho_i) / 2 + rho_i + ..., and rho = phi / sqrt 2
        return np.maximum(np.diagonal(bend), 0.5)


@dataclasses.dataclass(frozen=True)
class LowRank(Family):
    """Free mean and a rank-k change of the root (MVI_lr): `A = I + U V^T`.

    >>> import numpy as np
    >>> import mixvi
    >>> precision = np.array([[2.0, 0.9, 0.0], [0.9, 1.0, 0.3], [0.0, 0.3, 1.0]])
    >>> two = mixvi.LowRank(rank=2)
    >>> post = mixvi.fit(lambda w: -0.5 * w @ precision @ w, np.ones(3), family=two)
    >>> bool(np.allclose(post.cov, np.linalg.inv(precision)))  # it contains Laplace's Gaussian
    True
    """

    rank: int = 1

    name: ClassVar[str] = "lr"
    updates_root: ClassVar[bool] = True
    start_is_stationary: ClassVar[bool] = True

    def __post_init__(self):
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise InputError(f"LowRank: rank must be a positive integer, got {self.rank!r}.")

    @property
    def poorer(self) -> Family | None:
        return MeanOnly()

    def refusal(self, dim):
        if self.rank > dim:
            return f"LowRank: rank {self.rank} exceeds the {dim} dimensions of the problem."
        return None

    def _uv(self, phi):
        u, v = np.split(phi, 2)
        return u.reshape(-1, self.rank), v.reshape(-1, self.rank)

    def right_multiply(self, root, phi):
        u, v = self._uv(phi)
        return root + (root @ u) @ v.T

    def log_det(self, phi, dim):
        del dim
        u, v = self._uv(phi)
        return float(np.linalg.slogdet(np.eye(self.rank) + v.T @ u)[1])

    def pull_back(self, n, phi):
        u, v = self._uv(phi)
        # A^-T = I - V (I + U^T V)^-1 U^T; with it, A^-T V = V (I + U^T V)^-1.
        inner = np.linalg.inv(np.eye(self.rank) + u.T @ v)
        of_u = n @ v + v @ inner
        of_v = n.T @ u + u @ inner.T
        return np.concatenate([of_u.ravel(), of_v.ravel()])

    def starts(self, root, a, gradient, laplace_root):
        del root, laplace_root
        # U = V = 0 is stationary, so the change begins with the leading singular pairs of a
        # gradient step, of several lengths.
        eye = np.eye(len(a))
        return np.stack([self._leading(a - eye + t * gradient) for t in (0.0, 0.5, 0.1, 0.01)])

    def _leading(self, change):
        u, s, vt = np.linalg.svd(change)
        half = np.sqrt(s[: self.rank])
        return np.concatenate(
            [(u[:, : self.rank] * half).ravel(), (vt[: self.rank].T * half).ravel()]
        )


@dataclasses.dataclass(frozen=True)
class FullRank(Family):
    """Free mean and covariance: `A` lower triangular, its diagonal on the log scale.

    >>> import numpy as np
    >>> import mixvi
    >>> def bent(w):
    ...     return -0.5 * (w[0] ** 2 + (w[1] - 0.5 * w[0] ** 2) ** 2)
    >>> eig, full = (mixvi.fit(bent, np.zeros(2), family=f) for f in ("eig", mixvi.FullRank()))
    >>> full.elbo.value >= eig.elbo.value - 0.01
    True
    """

    name: ClassVar[str] = "full"
    updates_root: ClassVar[bool] = True

    @property
    def poorer(self) -> Family | None:
        return EigenScale()

    @staticmethod
    def triangle(phi: Vector, dim: int) -> Square:
        a = np.zeros((dim, dim))
        a[np.tril_indices(dim, -1)] = phi[dim:]
        a[np.diag_indices(dim)] = np.exp(phi[:dim] / SQRT2)
        return a

    def right_multiply(self, root, phi):
        return root @ self.triangle(phi, root.shape[-1])

    def log_det(self, phi, dim):
        return float(phi[:dim].sum()) / SQRT2

    def pull_back(self, n, phi):
        dim = len(n)
        widths = (np.exp(phi[:dim] / SQRT2) * np.diagonal(n) + 1) / SQRT2
        return np.concatenate([widths, n[np.tril_indices(dim, -1)]])

    def starts(self, root, a, gradient, laplace_root):
        del root, gradient, laplace_root
        # The poorer family has been through the scalings.
        factor = np.linalg.cholesky(a @ a.T)
        below = factor[np.tril_indices(len(a), -1)]
        return np.concatenate([SQRT2 * np.log(np.diagonal(factor)), below])[None]


@dataclasses.dataclass(frozen=True)
class MeanField(_Scales):
    """Free mean and standard deviations, no correlations (VI_diag).

    Scales are in units of the Laplace standard deviation of each parameter given all others, the
    best there is for a Gaussian target. `start="laplace"` begins there or, where the bound is
    higher, at the marginal ones; `start="small"` at 1e-2. (The paper's are marginal and 1e-2.)

    >>> import numpy as np
    >>> import mixvi
    >>> precision = np.array([[2.0, 0.9], [0.9, 1.0]])
    >>> post = mixvi.fit(lambda w: -0.5 * w @ precision @ w, np.ones(2), family=mixvi.MeanField())
    >>> (1 / post.std**2).round(3)  # those of each parameter given the other
    array([2., 1.])
    """

    start: str = "laplace"

    name: ClassVar[str] = "diag"

    def __post_init__(self):
        if self.start not in ("laplace", "small"):
            raise InputError(f'MeanField: start must be "laplace" or "small", got {self.start!r}.')

    def root(self, laplace_root):
        # The precision is R^-T R^-1.
        return 1 / np.sqrt((np.linalg.inv(laplace_root) ** 2).sum(0))

    def starts(self, root, a, gradient, laplace_root):
        del gradient
        if self.start == "small":
            return SQRT2 * np.log(1e-2 / root)[None]
        phis = _log_scales(a) + SQRT2 * np.log(SCALINGS)[:, None]
        return np.concatenate([phis, self.marginal(root, laplace_root)[None]])

    @staticmethod
    def marginal(root: Vector, laplace_root: Square) -> Vector:
        """The Laplace Gaussian's own standard deviations."""
        return SQRT2 * np.log(np.sqrt((laplace_root**2).sum(1)) / root)


def _log_scales(a: Square) -> Vector:
    """`phi` of the diagonal matrix with the variances of `a a^T`."""
    return np.log((a**2).sum(1)) / SQRT2


NAMES: dict[str, type[Family]] = {
    family.name: family for family in (MeanOnly, EigenScale, LowRank, FullRank, MeanField)
}


def named(family: "str | Family") -> Family | None:
    """The family that a user means; None for "laplace", no adaptation."""
    if isinstance(family, Family):
        return family
    if isinstance(family, type) and issubclass(family, Family):
        return family()
    if not isinstance(family, str):
        raise InputError(f"family must be a name or an instance, not {type(family).__name__}.")
    if family == "laplace":
        return None
    if family not in NAMES:
        known = ", ".join(f'"{name}"' for name in ("auto", "laplace", *NAMES, "mixture"))
        raise InputError(
            f"unknown family {family!r}: choose one of {known}, or an instance such as "
            "mixvi.LowRank(rank=2)."
        )
    return NAMES[family]()
