"""Roots of covariances with a structure: what a dense one can do, and never a matrix dim x dim.

sparse      root = order^-1 L^-T D^-1/2           of a sparse precision's Cholesky factor
low rank    root = diag(c) (I + A^T K A),         A = rows diag(t), a few rows
"""

import abc
import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from ._sparse import Cholesky

Vector = Float[np.ndarray, " dim"]
# Numbers in a block of columns of a design.
BLOCK = 2**22


class StructuredRoot(abc.ABC):
    """`root root^T` is a covariance; points are rows."""

    kind: ClassVar[str]
    ndim: ClassVar[int] = 2

    @property
    @abc.abstractmethod
    def dim(self) -> int: ...

    def __len__(self) -> int:
        return self.dim

    @property
    @abc.abstractmethod
    def is_sound(self) -> bool:
        """All its numbers are finite."""

    @functools.cached_property
    @abc.abstractmethod
    def log_det(self) -> float:
        """`log |det root|`."""

    @abc.abstractmethod
    def colour(self, z: np.ndarray) -> np.ndarray:
        """`root z` for every row of `z`."""

    @abc.abstractmethod
    def whiten(self, steps: np.ndarray) -> np.ndarray:
        """`root^-1 v` for every row `v`."""

    @abc.abstractmethod
    def across(self, rows: np.ndarray) -> np.ndarray:
        """`root^T x` for every row `x`."""

    @functools.cached_property
    @abc.abstractmethod
    def sds(self) -> Vector:
        """Standard deviations."""

    def covariance_of(self, places: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some some"]:
        """Of the parameters at these places."""
        units = np.zeros((len(places), self.dim))
        units[np.arange(len(places)), places] = 1.0
        rows = self.across(units)
        return rows @ rows.T

    @abc.abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """What it is made of, for a file."""

    @classmethod
    @abc.abstractmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> "StructuredRoot": ...


@dataclasses.dataclass(frozen=True, eq=False)
class SparseRoot(StructuredRoot):
    """Of the inverse of a sparse precision, by its Cholesky factor."""

    factor: Cholesky

    kind: ClassVar[str] = "sparse"

    @property
    def dim(self) -> int:
        return self.factor.dim

    @property
    def is_sound(self) -> bool:
        return True  # a factor that is not has none of these

    @functools.cached_property
    def log_det(self) -> float:
        return -0.5 * self.factor.log_det

    def colour(self, z):
        return self.factor.colour(z)

    def whiten(self, steps):
        return self.factor.whiten(steps)

    def across(self, rows):
        return self.factor.across(rows)

    @functools.cached_property
    def sds(self) -> Vector:
        return np.sqrt(self.factor.variances)

    def arrays(self):
        lower = self.factor.lower
        parts = {"data": lower.data, "indices": lower.indices, "indptr": lower.indptr}
        return {**parts, "pivots": self.factor.pivots, "order": self.factor.order}

    @classmethod
    def of_arrays(cls, arrays):
        from scipy.sparse import csc_array

        dim = len(arrays["order"])
        parts = tuple(arrays[name] for name in ("data", "indices", "indptr"))
        lower = csc_array(parts, shape=(dim, dim))
        return cls(Cholesky(lower, arrays["pivots"], arrays["order"]))


@dataclasses.dataclass(frozen=True, eq=False)
class LowRankRoot(StructuredRoot):
    """`diag(scale) (I + A^T inner A)` with `A = rows diag(stretch)`: `rows` (few, dim) may be a
    design, dense or sparse, which is then not copied; `inner` is symmetric; `gram = A A^T`."""

    scale: Vector
    rows: Any
    stretch: Vector
    inner: Float[np.ndarray, "few few"]
    gram: Float[np.ndarray, "few few"]

    kind: ClassVar[str] = "low_rank"

    @property
    def dim(self) -> int:
        return len(self.scale)

    @property
    def is_sound(self) -> bool:
        return bool(np.isfinite(self.inner).all() and np.isfinite(self.scale).all())

    @functools.cached_property
    def _inverse_inner(self) -> Float[np.ndarray, "few few"]:
        """`(I + A^T K A)^-1 = I - A^T (I + K G)^-1 K A`."""
        return -np.linalg.solve(np.eye(len(self.inner)) + self.inner @ self.gram, self.inner)

    @functools.cached_property
    def log_det(self) -> float:
        found = np.linalg.slogdet(np.eye(len(self.inner)) + self.inner @ self.gram)[1]
        return float(np.log(np.abs(self.scale)).sum() + found)

    def _changed(self, points: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """`(I + A^T inner A) x` for every row `x`."""
        flat = points.reshape(-1, self.dim)
        inside = (self.rows @ (flat * self.stretch).T).T @ inner.T
        made = flat + (self.rows.T @ inside.T).T * self.stretch
        return made.reshape(points.shape)

    def colour(self, z):
        return self._changed(z, self.inner) * self.scale

    def whiten(self, steps):
        return self._changed(steps / self.scale, self._inverse_inner)

    def across(self, rows):
        return self._changed(rows * self.scale, self.inner.T)

    @functools.cached_property
    def sds(self) -> Vector:
        # diag (I + A^T K A)^2 = 1 + a_i^T (2 K + K G K) a_i
        middle, found = 2 * self.inner + self.inner @ self.gram @ self.inner, np.empty(self.dim)
        for some in column_blocks(*self.rows.shape):
            part = dense_columns(self.rows, some) * self.stretch[some]
            found[some] = np.einsum("kd,kd->d", part, middle @ part)
        return self.scale * np.sqrt(np.maximum(1 + found, 0.0))

    def arrays(self):
        names = ("scale", "stretch", "inner", "gram")
        own = {name: getattr(self, name) for name in names}
        if not hasattr(self.rows, "tocsr"):
            return {**own, "rows": np.asarray(self.rows)}
        rows = self.rows.tocsr()
        parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
        return own | {f"rows_{name}": part for name, part in parts.items()}

    @classmethod
    def of_arrays(cls, arrays):
        from scipy.sparse import csr_array

        rows = arrays.get("rows")
        if rows is None:
            parts = tuple(arrays[f"rows_{name}"] for name in ("data", "indices", "indptr"))
            rows = csr_array(parts, shape=(len(arrays["inner"]), len(arrays["scale"])))
        return cls(arrays["scale"], rows, arrays["stretch"], arrays["inner"], arrays["gram"])


KINDS: dict[str, type[StructuredRoot]] = {one.kind: one for one in (SparseRoot, LowRankRoot)}


def column_blocks(n: int, dim: int) -> list[slice]:
    """Of a matrix (n, dim), some columns at a time."""
    some = max(1, BLOCK // max(1, n))
    return [slice(first, min(first + some, dim)) for first in range(0, dim, some)]


def dense_columns(rows: Any, some: slice) -> Float[np.ndarray, "n some"]:
    part = rows[:, some]
    return part.toarray() if hasattr(part, "toarray") else np.asarray(part, dtype=np.float64)


def gram_of(rows: Any, weights: Vector) -> Float[np.ndarray, "n n"]:
    """`rows diag(weights) rows^T`."""
    if hasattr(rows, "tocsr"):
        from scipy.sparse import diags_array

        found = (rows @ diags_array(weights) @ rows.T).toarray()
        return 0.5 * (found + found.T)
    found = np.zeros((rows.shape[0],) * 2)
    for some in column_blocks(*rows.shape):
        part = dense_columns(rows, some)
        found += (part * weights[some]) @ part.T
    return 0.5 * (found + found.T)
