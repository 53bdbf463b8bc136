"""Triangular matrices: LAPACK's own where they are large, a sixth of a general solver's work.

Small ones are left to NumPy: SciPy's are not worth their import there.
"""

import numpy as np
from jaxtyping import Float

Square = Float[np.ndarray, "dim dim"]
LARGE = 100


def inverse_of_lower(factor: Square) -> Square:
    if len(factor) < LARGE:
        return np.tril(np.linalg.inv(factor))
    from scipy.linalg import get_lapack_funcs

    (invert,) = get_lapack_funcs(("trtri",), (factor,))
    # LAPACK's columns are NumPy's rows.
    inverse, failed = invert(factor.T, lower=0)
    if failed:
        raise np.linalg.LinAlgError("singular")
    return np.tril(inverse.T)


def solve_lower(factor: Square, columns: np.ndarray, transposed: bool = False) -> np.ndarray:
    """`L^-1 X`, or `L^-T X`."""
    if len(factor) < LARGE:
        return np.linalg.solve(factor.T if transposed else factor, columns)
    from scipy.linalg import solve_triangular

    return solve_triangular(factor, columns, int(transposed), lower=True, check_finite=False)


def is_triangular(matrix: Square) -> bool:
    """Of large ones, where that saves more than a look costs."""
    return len(matrix) >= LARGE and not (np.tril(matrix, -1).any() and np.triu(matrix, 1).any())
