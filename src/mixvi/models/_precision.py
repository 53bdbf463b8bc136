"""The prior precision of the weights, `Lambda = alpha Lambda_0`: one number, a diagonal, a dense or
a sparse matrix. Every linear predictor has weights with the same prior.

The constant, the last weight, may have a precision of its own that `alpha` leaves alone: how far
predictors are from zero on average says nothing of how much they vary.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from .._errors import InputError


@dataclasses.dataclass(frozen=True)
class Precision:
    """`Lambda_0` for `size` weights: a vector (its diagonal), a matrix, or a SciPy sparse one.
    `constant`: the last weight's own precision; None where it is one of the others."""

    matrix: Any
    log_det: float
    constant: float | None = None

    @classmethod
    def of(cls, given: Any, size: int, constant: float | None = None) -> "Precision":
        """Checked; None is the identity."""
        if given is None and constant is not None:
            return cls(np.append(np.ones(size - 1), constant), math.log(constant), constant)
        if given is None:
            return cls(np.ones(size), 0.0)
        if hasattr(given, "tocsc"):
            return _sparse(given, size)
        array = np.asarray(given, dtype=np.float64)
        if array.shape in ((), (size,)):
            array = np.broadcast_to(array, (size,)).copy()
            _refuse(not (np.isfinite(array).all() and (array > 0).all()))
            return cls(array, float(np.log(array).sum()))
        _refuse_shape(array.shape, size)
        _refuse(not (np.isfinite(array).all() and np.allclose(array, array.T)))
        try:
            factor = np.linalg.cholesky(array)
        except np.linalg.LinAlgError:
            _refuse(True)
            raise
        return cls(array, 2 * float(np.log(np.diagonal(factor)).sum()))

    @property
    def size(self) -> int:
        return self.matrix.shape[0]

    @property
    def is_diagonal(self) -> bool:
        return self.matrix.ndim == 1

    @property
    def is_one(self) -> bool:
        return self.is_diagonal and bool((self.matrix == 1.0).all())

    @property
    def n_scaled(self) -> int:
        """Weights whose precision grows with `alpha`."""
        return self.size - (self.constant is not None)

    def log_det_at(self, alpha: float) -> float:
        return self.log_det + self.n_scaled * math.log(alpha)

    def times(self, columns: np.ndarray, alpha: float) -> np.ndarray:
        """`Lambda X` for `X` (size, ...)."""
        if self.is_diagonal:
            return (self.diagonal_at(alpha) * columns.T).T
        return alpha * (self.matrix @ columns)

    def taken_from(self, hessian: np.ndarray, alpha: float) -> np.ndarray:
        """`hessian - Lambda`, in place."""
        if self.is_diagonal:
            hessian[np.diag_indices(self.size)] -= self.diagonal_at(alpha)
        elif hasattr(self.matrix, "tocoo"):
            coo = self.matrix.tocoo()
            hessian[coo.row, coo.col] -= alpha * coo.data
        else:
            hessian -= alpha * self.matrix
        return hessian

    def diagonal_at(self, alpha: float) -> np.ndarray:
        diagonal = alpha * (self.matrix if self.is_diagonal else self.matrix.diagonal())
        if self.constant is not None:
            diagonal[-1] = self.constant
        return diagonal


def _sparse(given: Any, size: int) -> Precision:
    from scipy.sparse import csc_matrix
    from scipy.sparse.linalg import splu

    matrix = csc_matrix(given, dtype=np.float64)
    _refuse_shape(tuple(matrix.shape or ()), size)
    matrix.sum_duplicates()
    _refuse(not np.isfinite(matrix.data).all() or abs(matrix - matrix.T).max() > 1e-8)
    try:
        factor = splu(matrix, diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:  # singular
        _refuse(True)
        raise
    pivots = factor.U.diagonal()
    _refuse(not (pivots > 0).all())
    return Precision(matrix, float(np.log(pivots).sum()))


def _refuse_shape(shape: tuple, size: int) -> None:
    if shape != (size, size):
        raise InputError(
            f"prior_precision has shape {shape}; it must be a number, a vector of length {size} "
            f"or a matrix ({size}, {size}): one row for each weight, the constant's last."
        )


def _refuse(bad: Any) -> None:
    if bad:
        raise InputError("prior_precision must be finite, symmetric and positive (definite).")
