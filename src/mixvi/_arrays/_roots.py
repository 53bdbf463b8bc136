"""Roots of covariances, `root root^T`: a matrix is a dense root, a vector a diagonal one.

The one place that tells the two apart. Arrays may be NumPy's or JAX's.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from ._triangular import is_triangular

Root = Float[Any, "dim dim"] | Float[Any, " dim"]
# Of some parameters: the rows that belong to them.
RowsOfRoot = Float[Any, "some dim"] | Float[Any, " some"]
Vector = Float[Any, " some"]
Rows = Float[Any, "*n dim"]


def is_diagonal(root: Any) -> bool:
    return root.ndim == 1


def dense(root: Root) -> Float[np.ndarray, "dim dim"]:
    return np.diag(root) if is_diagonal(root) else root


def colour(root: Root, z: Rows) -> Rows:
    """`root z` for every row of `z`."""
    return z * root if is_diagonal(root) else z @ root.T


def whiten(root: Root, steps: Rows) -> Rows:
    """`root^-1 v` for every row `v`."""
    if is_diagonal(root):
        return steps / root
    columns = steps.reshape(-1, steps.shape[-1]).T
    return np.linalg.solve(root, columns).T.reshape(steps.shape)


def across(rows: Float[Any, "n dim"], root: Root) -> Float[Any, "n dim"]:
    """`root^T x` for every row `x`."""
    return rows * root if is_diagonal(root) else rows @ root


def transposed_times(root: Root, cross: Root) -> Root:
    """`root^T M`; of a diagonal root `M` is a diagonal, too."""
    return root * cross if is_diagonal(root) else root.T @ cross


def outer(root: Root, gradients: Rows, z: Rows) -> Root:
    """`sum g z^T`; of a diagonal root the diagonal alone."""
    return (gradients * z).sum(0) if is_diagonal(root) else gradients.T @ z


def log_det(root: Root) -> float:
    """`log |det root|`."""
    if is_diagonal(root):
        return float(np.log(np.abs(root)).sum())
    if is_triangular(root):
        return float(np.log(np.abs(np.diagonal(root))).sum())
    return float(np.linalg.slogdet(root)[1])


def sds(root: RowsOfRoot) -> Vector:
    """Standard deviations."""
    return abs(root) if is_diagonal(root) else (root**2).sum(-1) ** 0.5


def covariance(root: RowsOfRoot) -> Float[np.ndarray, "some some"]:
    return np.diag(root**2) if is_diagonal(root) else root @ root.T
