"""Precisions `P = Lambda + Phi^T diag(w) Phi` of three structures: what Newton's method, Laplace's
evidence and the best Gaussian need of them, without a matrix dim x dim.

sparse      Phi and Lambda are sparse: a Cholesky factor, entries of the inverse on its pattern
low rank    few rows, Lambda diagonal: with A = Phi Lambda^-1/2, G = A A^T = Q Q^T and
            M = I + Q^T diag(w) Q everything is n x n; exact
diagonal    the diagonal of P alone: parameters independent of each other
"""

import abc
import functools
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from .._arrays._roots import Root
from .._arrays._sparse import Cholesky, cholesky, order_of
from .._arrays._structured import LowRankRoot, SparseRoot, column_blocks, dense_columns, gram_of
from .._density._rows import Prior, RowsDensity
from .._errors import InputError

# Pairs of nonzeros in the rows of a sparse design: some 80 bytes each for a while.
MOST_PAIRS = 3 * 10**7
# Rows of a low-rank precision: an n x n eigenproblem has to be solved.
MOST_ROWS = 5000

Vector = Float[np.ndarray, " dim"]
PerRow = Float[np.ndarray, " n"]


class RowCurvature(abc.ABC):
    """`P` with these `weights` of the rows, factorised."""

    weights: PerRow
    log_det: float  # of P

    @property
    @abc.abstractmethod
    def root(self) -> Root:
        """Of the covariance."""

    @property
    @abc.abstractmethod
    def row_variances(self) -> PerRow:
        """`phi_n^T P^-1 phi_n`."""

    @abc.abstractmethod
    def trace(self, data: np.ndarray) -> float:
        """`tr(M P^-1)`, M with these numbers at the places of the prior."""

    @abc.abstractmethod
    def solve(self, x: Vector) -> Vector:
        """`P^-1 x`."""

    def gain_to(self, better: "RowCurvature", row_variances: PerRow) -> float:
        """`(1/2) (tr P_new P^-1 - D - log det P_new P^-1)`, the prior's part being the same."""
        bent = float((better.weights - self.weights) @ row_variances)
        return max(0.5 * (bent - better.log_det + self.log_det), 0.0)


class RowShape(abc.ABC):
    """Which structure; made once for a design, whatever the hyperparameters."""

    name: ClassVar[str]

    @abc.abstractmethod
    def curved(self, prior: Prior, weights: PerRow) -> RowCurvature | None:
        """None where `P` is not definite."""


# --- sparse -----------------------------------------------------------------------------------


class SparseShape(RowShape):
    """Everything lives on the lower triangle of P's pattern: `pairs @ x` sums over the pairs of
    nonzeros of every row what `x` says of them."""

    name = "sparse"

    def __init__(self, density: RowsDensity):
        from scipy.sparse import csr_array

        design, dim = csr_array(density.design), density.dim
        self.n_rows, self.dim = density.design.shape[0], dim
        counts = np.diff(design.indptr).astype(np.int64)
        if (n_pairs := int((counts * (counts + 1) // 2).sum())) > MOST_PAIRS:
            raise InputError(
                f'structure="sparse": the rows of the design have {n_pairs:.1e} pairs of nonzeros '
                f"(at most {MOST_PAIRS:.0e}): the precision would not be sparse. Use "
                'structure="low_rank" where there are few rows, or "diagonal".'
            )
        row, one, other = _pairs(counts)
        begin = design.indptr[:-1].astype(np.int64)[row]
        one, other = begin + one, begin + other
        values = design.data[one] * design.data[other]
        low, high = (design.indices[at].astype(np.int64) for at in (one, other))
        keys = np.minimum(low, high) * dim + np.maximum(low, high)
        prior_rows, prior_columns = density.prior.places
        below = prior_rows >= prior_columns
        own = prior_columns * dim + prior_rows
        self.keys = np.unique(np.concatenate([keys, own[below], np.arange(dim) * (dim + 1)]))
        at = np.searchsorted(self.keys, keys)
        shape = (self.n_rows, len(self.keys))
        self.pairs = csr_array((values, (row, at)), shape=shape)
        self.columns, self.rows = np.divmod(self.keys, dim)
        # Entries below the diagonal stand for two.
        self.times = np.where(self.rows == self.columns, 1.0, 2.0)
        self.order: Any = None

    def places_of(self, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
        """Which of the prior's numbers are below its diagonal, and where in the pattern."""
        rows, columns = prior.places
        below = np.flatnonzero(rows >= columns)
        return below, np.searchsorted(self.keys, columns[below] * self.dim + rows[below])

    def curved(self, prior, weights):
        from scipy.sparse import csc_array

        below, places = self.places_of(prior)
        data = np.asarray(self.pairs.T @ weights)
        np.add.at(data, places, prior.data[below])
        lower = csc_array((data, (self.rows, self.columns)), shape=(self.dim, self.dim))
        off = self.rows != self.columns
        upper = csc_array((data[off], (self.columns[off], self.rows[off])), shape=lower.shape)
        whole = (lower + upper).tocsc()
        if self.order is None:
            self.order = order_of(whole)
        factor = cholesky(whole, self.order)
        return None if factor is None else SparseCurvature(self, prior, weights, factor)


def _pairs(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every row, all pairs `i >= j` of its entries: the row, i and j."""
    parts = []
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        i, j = np.tril_indices(count)
        parts.append((rows.repeat(len(i)), np.tile(i, len(rows)), np.tile(j, len(rows))))
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing
    row, i, j = (np.concatenate(each) for each in zip(*parts, strict=True))
    return row, i, j


class SparseCurvature(RowCurvature):
    def __init__(self, shape: SparseShape, prior: Prior, weights: PerRow, factor: Cholesky):
        self.shape, self.prior, self.weights, self.factor = shape, prior, weights, factor
        self.log_det = factor.log_det
        self._inverse: np.ndarray | None = None

    @property
    def inverse(self) -> np.ndarray:
        """Of P, on the lower triangle of its pattern."""
        if self._inverse is None:
            self._inverse = self.factor.inverse_at(self.shape.rows, self.shape.columns)
        return self._inverse

    @property
    def root(self):
        return SparseRoot(self.factor)

    @property
    def row_variances(self):
        return np.asarray(self.shape.pairs @ (self.shape.times * self.inverse))

    def trace(self, data):
        below, places = self.shape.places_of(self.prior)
        return float(data[below] @ (self.shape.times * self.inverse)[places])

    def solve(self, x):
        return self.factor.solve(x)


# --- low rank ---------------------------------------------------------------------------------


class LowRankShape(RowShape):
    name = "low_rank"

    def __init__(self, density: RowsDensity):
        self.design, self.n_rows, self.dim = density.design, density.n_rows, density.dim
        if self.n_rows > MOST_ROWS:
            raise InputError(
                f'structure="low_rank": {self.n_rows} rows; the rank of their precision is no '
                f'lower, and {MOST_ROWS} are the most. Use structure="sparse" (a sparse design) or '
                '"diagonal".'
            )
        if not density.prior.is_diagonal:
            raise InputError(
                'structure="low_rank": prior_precision must be a number or a vector, the diagonal.'
            )
        self._known: tuple[Vector, np.ndarray, np.ndarray] | None = None

    def grams(self, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
        """`G = Phi Lambda^-1 Phi^T` and `Q` with `Q Q^T = G`."""
        if self._known is not None:
            precision, gram, half = self._known
            ratio = precision / prior.matrix
            if np.ptp(ratio) <= 1e-14 * ratio[0]:  # one number scales all of them
                return gram * ratio[0], half * np.sqrt(ratio[0])
        gram = gram_of(self.design, 1 / prior.matrix)
        values, vectors = np.linalg.eigh(gram)
        kept = values > len(values) * np.finfo(float).eps * values[-1]
        half = vectors[:, kept] * np.sqrt(values[kept])
        self._known = np.array(prior.matrix), gram, half
        return gram, half

    def curved(self, prior, weights):
        gram, half = self.grams(prior)
        bend = (half.T * weights) @ half
        try:
            lower = np.linalg.cholesky(np.eye(len(bend)) + bend)
        except np.linalg.LinAlgError:
            return None
        return LowRankCurvature(self, prior, weights, (gram, half), bend, lower)


class LowRankCurvature(RowCurvature):
    def __init__(
        self,
        shape: LowRankShape,
        prior: Prior,
        weights: PerRow,
        grams: tuple[np.ndarray, np.ndarray],
        bend: np.ndarray,
        lower: np.ndarray,
    ):
        self.shape, self.prior, self.weights = shape, prior, weights
        (self.gram, half), self.bend = grams, bend
        self.log_det = prior.log_det + 2 * float(np.log(np.diagonal(lower)).sum())
        self.half, self.lower = half, lower

    @functools.cached_property
    def _columns(self) -> np.ndarray:
        return _forward(self.lower, self.half.T)

    @functools.cached_property
    def inside(self) -> np.ndarray:
        """`Q M^-1 Q^T`."""
        return self._columns.T @ self._columns

    @property
    def removed(self) -> np.ndarray:
        """`Z` with `(I + A^T W A)^-1 = I - A^T Z A` (Woodbury)."""
        w = self.weights
        return np.diag(w) - w[:, None] * self.inside * w

    @property
    def root(self):
        # (I + A^T W A)^-1/2 = I + A^T K A,  K = -W / 2 + W Q k(Q^T W Q) Q^T W, with
        # k(x) = ((1 + x)^-1/2 - 1 + x / 2) / x^2: no division by small eigenvalues of G
        values, vectors = np.linalg.eigh(self.bend)
        turned = self.weights[:, None] * (self.half @ vectors)
        inner = (turned * _beyond_linear(values)) @ turned.T
        inner[np.diag_indices(len(inner))] -= 0.5 * self.weights
        scale = 1 / np.sqrt(self.prior.matrix)
        return LowRankRoot(scale, self.shape.design, scale, inner, self.gram)

    @property
    def row_variances(self):
        return np.einsum("in,in->n", self._columns, self._columns)

    def trace(self, data):
        # of Lambda^-1 M first, then what the rows take away
        share = data / self.prior.matrix
        if np.ptp(share) <= 1e-14 * np.abs(share).max(initial=0.0):
            taken = share[0] * self.gram
        else:
            taken = gram_of(self.shape.design, share / self.prior.matrix)
        return float(share.sum() - (self.removed * taken).sum())

    def solve(self, x):
        scaled = x / self.prior.matrix
        across = self.weights * np.asarray(self.shape.design @ scaled)
        within = _forward(self.lower, self.half.T @ across)
        within = self.half @ _forward(self.lower, within, transposed=True)
        inside = across - self.weights * within
        return scaled - np.asarray(self.shape.design.T @ inside) / self.prior.matrix


def _forward(lower: np.ndarray, columns: np.ndarray, transposed: bool = False) -> np.ndarray:
    from scipy.linalg import solve_triangular

    return solve_triangular(lower, columns, trans=int(transposed), lower=True, check_finite=False)


def _beyond_linear(x: np.ndarray) -> np.ndarray:
    small = np.abs(x) < 1e-3
    safe = np.where(small, 1.0, x)
    # (1 + x)^-1/2 - 1 = -x / (s (1 + s)), s = (1 + x)^1/2; and 1/2 - 1 / (s (1 + s)) without
    # cancellation: s^2 + s - 2 = x + (s - 1) = x (1 + 1 / (1 + s))
    s = np.sqrt(1 + safe)
    whole = (1 + 1 / (1 + s)) / (2 * s * (1 + s))
    series = 0.375 - 0.3125 * x + 0.2734375 * x**2 - 0.24609375 * x**3
    return np.where(small, series, whole)


# --- diagonal ---------------------------------------------------------------------------------


class DiagonalShape(RowShape):
    name = "diagonal"

    def __init__(self, density: RowsDensity):
        self.design, self.n_rows, self.dim = density.design, density.n_rows, density.dim

    def squares_across(self, weights: PerRow) -> Vector:
        """`sum_n w_n phi_nd^2`."""
        if hasattr(self.design, "tocsr"):
            return np.asarray(self.design.power(2).T @ weights)
        parts = (dense_columns(self.design, some) for some in column_blocks(*self.design.shape))
        return np.concatenate([np.einsum("nd,nd,n->d", part, part, weights) for part in parts])

    def squares_along(self, variances: Vector) -> PerRow:
        """`sum_d phi_nd^2 v_d`."""
        if hasattr(self.design, "tocsr"):
            return np.asarray(self.design.power(2) @ variances)
        found = np.zeros(self.n_rows)
        for some in column_blocks(*self.design.shape):
            part = dense_columns(self.design, some)
            found += np.einsum("nd,nd,d->n", part, part, variances[some])
        return found

    def curved(self, prior, weights):
        precision = prior.diagonal() + self.squares_across(weights)
        if not (precision > 0).all():
            return None
        return DiagonalCurvature(self, prior, weights, precision)


class DiagonalCurvature(RowCurvature):
    def __init__(self, shape: DiagonalShape, prior: Prior, weights: PerRow, precision: Vector):
        self.shape, self.prior, self.weights, self.precision = shape, prior, weights, precision
        self.log_det = float(np.log(precision).sum())

    @property
    def root(self):
        return 1 / np.sqrt(self.precision)

    @property
    def row_variances(self):
        return self.shape.squares_along(1 / self.precision)

    def trace(self, data):
        rows, columns = self.prior.places
        on = rows == columns
        return float(data[on] @ (1 / self.precision[rows[on]]))

    def solve(self, x):
        """Of the whole precision, by conjugate gradients with the diagonal."""
        from scipy.sparse.linalg import LinearOperator, cg

        def times(v: np.ndarray) -> np.ndarray:
            inside = self.weights * np.asarray(self.shape.design @ v.ravel())
            return np.asarray(self.shape.design.T @ inside) + self.prior.times(v.ravel())

        dim = (self.shape.dim,) * 2
        operator: Any = LinearOperator  # whose stubs leave out that functions will do
        whole = operator(dim, matvec=times, dtype=np.float64)
        near = operator(dim, matvec=lambda v: v.ravel() / self.precision, dtype=np.float64)
        return cg(whole, x, rtol=1e-10, maxiter=500, M=near)[0]


SHAPES: dict[str, type[Any]] = {one.name: one for one in (SparseShape, LowRankShape, DiagonalShape)}
