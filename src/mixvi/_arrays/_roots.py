"""Roots of covariances, `root root^T`: a matrix is a dense root, a vector a diagonal one, and there
are those with a structure (`_structured`: sparse, low rank).

The one place that tells them apart. Arrays may be NumPy's or JAX's.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from ._structured import StructuredRoot
from ._triangular import is_triangular

if TYPE_CHECKING:  # which of the three a root is depends on the problem, not on the code
    Root = Any
    RowsOfRoot = Any
else:
    Root = Float[Any, "dim dim"] | Float[Any, " dim"] | StructuredRoot
    # Of some parameters: the rows that belong to them.
    RowsOfRoot = Float[Any, "some dim"] | Float[Any, " some"] | StructuredRoot
Vector = Float[Any, " some"]
Rows = Float[Any, "*n dim"]


def is_diagonal(root: Any) -> bool:
    return root.ndim == 1


def is_structured(root: Any) -> bool:
    return isinstance(root, StructuredRoot)


def is_sound(root: Root) -> bool:
    """All its numbers are finite."""
    return root.is_sound if isinstance(root, StructuredRoot) else bool(np.isfinite(root).all())


def dense(root: Root) -> Float[np.ndarray, "dim dim"]:
    if isinstance(root, StructuredRoot):
        raise TypeError(f"a {root.kind} root is never made dense")
    return np.diag(root) if is_diagonal(root) else root


def colour(root: Root, z: Rows) -> Rows:
    """`root z` for every row of `z`."""
    if isinstance(root, StructuredRoot):
        return root.colour(z)
    return z * root if is_diagonal(root) else z @ root.T


def whiten(root: Root, steps: Rows) -> Rows:
    """`root^-1 v` for every row `v`."""
    if isinstance(root, StructuredRoot):
        return root.whiten(steps)
    if is_diagonal(root):
        return steps / root
    columns = steps.reshape(-1, steps.shape[-1]).T
    return np.linalg.solve(root, columns).T.reshape(steps.shape)


def across(rows: Float[Any, "n dim"], root: Root) -> Float[Any, "n dim"]:
    """`root^T x` for every row `x`."""
    if isinstance(root, StructuredRoot):
        return root.across(rows)
    return rows * root if is_diagonal(root) else rows @ root


def transposed_times(root: Root, cross: Root) -> Root:
    """`root^T M`; of a diagonal root `M` is a diagonal, too."""
    return root * cross if is_diagonal(root) else root.T @ cross


def outer(root: Root, gradients: Rows, z: Rows) -> Root:
    """`sum g z^T`; of a diagonal root the diagonal alone."""
    return (gradients * z).sum(0) if is_diagonal(root) else gradients.T @ z


def log_det(root: Root) -> float:
    """`log |det root|`."""
    if isinstance(root, StructuredRoot):
        return root.log_det
    if is_diagonal(root):
        return float(np.log(np.abs(root)).sum())
    if is_triangular(root):
        return float(np.log(np.abs(np.diagonal(root))).sum())
    return float(np.linalg.slogdet(root)[1])


def sds(root: RowsOfRoot) -> Vector:
    """Standard deviations."""
    if isinstance(root, StructuredRoot):
        return root.sds
    return abs(root) if is_diagonal(root) else (root**2).sum(-1) ** 0.5


def covariance(root: RowsOfRoot) -> Float[np.ndarray, "some some"]:
    if isinstance(root, StructuredRoot):
        return root.covariance_of(np.arange(root.dim))
    return np.diag(root**2) if is_diagonal(root) else root @ root.T


def covariance_of(root: Root, places: Int[np.ndarray, " some"]) -> Float[np.ndarray, "some some"]:
    """Of the parameters at these places."""
    if isinstance(root, StructuredRoot):
        return root.covariance_of(places)
    return covariance(root[places])
