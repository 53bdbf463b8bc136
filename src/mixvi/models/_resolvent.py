"""What a Newton step and the evidence of a whole Gaussian process are made of, from `f ~ N(0, K)`
and the curvature `W` of minus the log likelihood:

    R = (K + W^-1)^-1,        Sigma = (K^-1 + W)^-1 = K - K R K,        log det(I + K W)

by Cholesky factors of `B = I + W^(1/2) K W^(1/2)` (Rasmussen and Williams 2006, section 3.4.3) and,
of several classes, section 3.5. Neither `K` nor `W` is ever inverted. Values of the function are
(outputs, points).
"""

import functools

import numpy as np
from jaxtyping import Float

Square = Float[np.ndarray, "n n"]
Values = Float[np.ndarray, "outputs n"]
# Of `1 - (B^-1)_ii`, what a row says of its own value: below, rounding has eaten the digits.
RESOLVED = 1e-6


class IndefiniteError(ArithmeticError):
    """`K^-1 + W` is not positive definite."""


def cholesky(matrix: Square) -> Square:
    """The lower factor, in the place of the matrix; above it is what was there."""
    from scipy.linalg import get_lapack_funcs

    (factorise,) = get_lapack_funcs(("potrf",), (matrix,))
    # LAPACK's columns are NumPy's rows.
    factor, failed = factorise(matrix.T, lower=0, clean=0, overwrite_a=1)
    if failed:
        raise IndefiniteError
    return factor.T


def inverse_of(factor: Square) -> Square:
    """Of the matrix with this lower factor, which is lost."""
    from scipy.linalg import get_lapack_funcs

    (invert,) = get_lapack_funcs(("potri",), (factor,))
    upper, _ = invert(factor.T, lower=0, overwrite_c=1)
    lower = np.tril(upper.T)
    whole = lower + lower.T
    whole[np.diag_indices(len(whole))] *= 0.5
    return whole


def solved(factor: Square, columns: np.ndarray) -> np.ndarray:
    """`(L L^T)^-1 X`."""
    from scipy.linalg import cho_solve

    return cho_solve((factor, True), columns, check_finite=False)


def forward(factor: Square, columns: np.ndarray) -> np.ndarray:
    """`L^-1 X`."""
    from scipy.linalg import solve_triangular

    return solve_triangular(factor, columns, lower=True, check_finite=False)


class Diagonal:
    """`W` of one predictor for each row. With `W = W+ - E D E^T`, `D` of the rows with negative
    curvature, and `Q = (I - R+ K) E D^(1/2)`,

        R = R+ - Q C^-1 Q^T,    C = I - D^(1/2) E^T K Q,    det(I + K W) = det B det C
    """

    def __init__(self, kernel: Square, w: Float[np.ndarray, " n"]):
        self.kernel, self.w = kernel, w
        self.root = np.sqrt(np.maximum(w, 0.0))
        self.factor = _one_plus(kernel, self.root)
        self.negative = np.flatnonzero(w < 0)
        if len(self.negative):
            depth = np.sqrt(-w[self.negative])
            across = kernel[:, self.negative]
            self.q = -self._positive(across)
            self.q[self.negative, np.arange(len(depth))] += 1.0
            self.q *= depth
            left = np.eye(len(depth)) - depth[:, None] * (across.T @ self.q)
            self.left = cholesky(0.5 * (left + left.T))

    def _positive(self, columns: np.ndarray) -> np.ndarray:
        """`R+ X`."""
        root = self.root[:, None]
        return root * solved(self.factor, root * columns)

    def resolvent(self, values: Values) -> Values:
        """`R x`."""
        if "matrix" in self.__dict__:
            return values @ self.matrix
        made = self._positive(values.T)
        if len(self.negative):
            made = made - self.q @ solved(self.left, self.q.T @ values.T)
        return made.T

    def curved(self, values: Values) -> Values:
        """`W x`."""
        return self.w * values

    @functools.cached_property
    def log_det(self) -> float:
        found = 2 * np.log(np.diagonal(self.factor)).sum()
        if len(self.negative):
            found += 2 * np.log(np.diagonal(self.left)).sum()
        return float(found)

    @functools.cached_property
    def matrix(self) -> Square:
        """`R` itself: asked for once, at the end, for the factor is lost."""
        _ = self.log_det
        inverse = inverse_of(self.factor)
        made = inverse * self.root * self.root[:, None]
        if len(self.negative):
            half = forward(self.left, self.q.T)
            made -= half.T @ half
        return made

    def trace_matrix(self) -> Square:
        """`sum_k R_kk`, over outputs."""
        return self.matrix

    def variances(self, third: Values) -> Float[np.ndarray, " n"]:
        """`Sigma_ii`, where it matters: `third` multiplies it. `W Sigma W = W - R`."""
        matrix, w = self.matrix, self.w
        seen = w - np.diagonal(matrix)
        safe = np.abs(seen) > RESOLVED * np.abs(w)
        found = np.where(safe, seen / np.where(safe, w, 1.0) ** 2, 0.0)
        top = np.diagonal(self.kernel)
        rest = np.flatnonzero(~safe & (np.abs(third[0]) * top > 1e-12))
        if len(rest):
            across = self.kernel[:, rest]
            found[rest] = top[rest] - (across * (matrix @ across)).sum(0)
        return found

    def flattest(self) -> tuple[np.ndarray, np.ndarray]:
        """Directions `d` of length one in `Sigma^-1` along which negative curvature makes `Sigma`
        wide, with `K^-1 d`: (n, directions) each."""
        if not len(self.negative):
            return np.zeros((len(self.w), 0)), np.zeros((len(self.w), 0))
        pulled = forward(self.left, self.q.T).T
        along = self.kernel @ pulled  # Sigma = Sigma+ + along along^T
        inner = (pulled * along).sum(0) + (self.w[:, None] * along**2).sum(0)
        length = np.sqrt(np.maximum(inner, 1e-300))
        return along / length, pulled / length


class Softmax:
    """`W` of several classes with probabilities `p` (classes, n) at points of weight `a`: with
    `D_k = diag(a p_k)`, `E_k = D_k^(1/2) B_k^-1 D_k^(1/2)` and `M = sum_k E_k`,

        W_kl = [k = l] D_k - D_k D_l / a,        R_kl = [k = l] E_k - E_k M^-1 E_l,
        det(I + K W) = prod_k det B_k det M / prod a
    """

    def __init__(self, kernel: Square, p: Values, a: Float[np.ndarray, " n"]):
        self.kernel, self.p, self.a = kernel, p, a
        self.blocks, self.half_log_det, whole = [], 0.0, np.zeros_like(kernel)
        for one in a * p:
            root = np.sqrt(one)
            factor = _one_plus(kernel, root)
            self.half_log_det += float(np.log(np.diagonal(factor)).sum())
            self.blocks.append(root[:, None] * inverse_of(factor) * root)
            whole += self.blocks[-1]
        self.factor = cholesky(whole)

    def resolvent(self, values: Values) -> Values:
        each = np.stack([block @ one for block, one in zip(self.blocks, values, strict=True)])
        common = solved(self.factor, each.sum(0))
        return each - np.stack([block @ common for block in self.blocks])

    def curved(self, values: Values) -> Values:
        return self.a * self.p * (values - (self.p * values).sum(0))

    @property
    def log_det(self) -> float:
        both = self.half_log_det + np.log(np.diagonal(self.factor)).sum()
        return float(2 * both - np.log(self.a).sum())

    @functools.cached_property
    def _halves(self) -> list[np.ndarray]:
        """`L_M^-1 E_k`."""
        return [forward(self.factor, block) for block in self.blocks]

    def trace_matrix(self) -> Square:
        found = np.sum(self.blocks, axis=0)
        for half in self._halves:
            found -= half.T @ half
        return found

    def covariances(self) -> Float[np.ndarray, "n classes classes"]:
        """Of the classes' values at every point: the diagonals of `Sigma_kl`."""
        k, n = self.p.shape
        across = [self.kernel @ half.T for half in self._halves]
        made = np.empty((n, k, k))
        for i in range(k):
            for j in range(i + 1):
                made[:, i, j] = made[:, j, i] = (across[i] * across[j]).sum(1)
            own = (self.kernel * (self.kernel @ self.blocks[i])).sum(1)
            made[:, i, i] += np.diagonal(self.kernel) - own
        return made


def _one_plus(kernel: Square, root: Float[np.ndarray, " n"]) -> Square:
    """The factor of `I + W^(1/2) K W^(1/2)`."""
    whole = kernel * root
    whole *= root[:, None]
    whole[np.diag_indices(len(whole))] += 1.0
    return cholesky(whole)
