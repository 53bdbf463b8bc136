"""Cholesky factors of sparse precisions, and the entries of the inverse that a pattern asks for.

    P[order][:, order] = L D L^T,        L unit lower triangular

CHOLMOD factorises where scikit-sparse is installed, otherwise SciPy's SuperLU, without pivoting;
the numbers differ by rounding. Entries of the inverse on the pattern of L follow from
L itself (Takahashi, Fagan and Chen 1973): with the columns J of a supernode, the rows S below them
and Y = L_SJ L_JJ^-1,

    Sigma_SJ = -Sigma_SS Y,        Sigma_JJ = L_JJ^-T D_J^-1 L_JJ^-1 - Y^T Sigma_SJ

from the last supernode to the first. Supernodes of one depth in the elimination tree know nothing
of each other: those of one shape go together, and Sigma_SS is part of their parent's own block.
"""

import dataclasses
import functools
import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Int

# A row with more entries than this many times sqrt(dim) is ordered last: minimum degree would take
# long to find that out.
DENSE_ROW = 10.0
# Numbers in the blocks of supernodes that go together.
AT_ONCE = 2**22
# A matrix with a band so narrow, and so many times as long, is cut in halves: minimum degree would
# go along it one by one.
NARROW, LONG = 32, 32

Vector = Float[np.ndarray, " dim"]
Order = Int[np.ndarray, " dim"]


@dataclasses.dataclass(frozen=True, eq=False)
class Cholesky:
    """`P[order][:, order] = L D L^T`: `lower` is L (SciPy, by columns, rows sorted), `pivots` the
    diagonal of D."""

    lower: Any
    pivots: Vector
    order: Order

    @property
    def dim(self) -> int:
        return len(self.order)

    @property
    def log_det(self) -> float:
        """Of P."""
        return float(np.log(self.pivots).sum())

    @functools.cached_property
    def _upper(self) -> Any:
        return self.lower.T.tocsc()

    @functools.cached_property
    def _scales(self) -> Vector:
        return np.sqrt(self.pivots)

    # The root of P^-1 is `order^-1 L^-T D^-1/2`; points are rows.

    def colour(self, z: np.ndarray) -> np.ndarray:
        found = _triangular(self._upper, _columns(z) / self._scales[:, None], lower=False)
        made = np.empty_like(found)
        made[self.order] = found
        return made.T.reshape(z.shape)

    def across(self, rows: np.ndarray) -> np.ndarray:
        found = _triangular(self.lower, _columns(rows)[self.order], lower=True)
        return (found / self._scales[:, None]).T.reshape(rows.shape)

    def whiten(self, steps: np.ndarray) -> np.ndarray:
        found = self._scales[:, None] * (self._upper @ _columns(steps)[self.order])
        return found.T.reshape(steps.shape)

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """`P^-1 x` for every row `x`."""
        return self.colour(self.across(rows))

    def inverse_at(self, rows: np.ndarray, columns: np.ndarray) -> Float[np.ndarray, " some"]:
        """Entries of `P^-1`: cheap where they lie on the pattern of `P`."""
        place = np.empty_like(self.order)
        place[self.order] = np.arange(self.dim)
        one, other = place[rows], place[columns]
        return _inverse_at(self, np.maximum(one, other), np.minimum(one, other))

    @functools.cached_property
    def variances(self) -> Vector:
        every = np.arange(self.dim)
        return self.inverse_at(every, every)


def _columns(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(-1, rows.shape[-1]).T


def _triangular(matrix: Any, columns: np.ndarray, lower: bool) -> np.ndarray:
    from scipy.sparse.linalg import spsolve_triangular

    return spsolve_triangular(matrix, columns, lower=lower, unit_diagonal=True)


# --- factorising ------------------------------------------------------------------------------


def order_of(matrix: Any) -> Order:
    """One that fills little in, by minimum degree; rows that are nearly full last."""
    from scipy.sparse import csc_array, eye_array

    dim = matrix.shape[0]
    degrees = np.diff(matrix.indptr)
    full = degrees > max(16.0, DENSE_ROW * np.sqrt(dim))
    rest = np.flatnonzero(~full)
    part = matrix[rest][:, rest] if full.any() else matrix
    # Any definite matrix of the pattern will do.
    pattern = csc_array((np.ones_like(part.data), part.indices, part.indptr), shape=part.shape)
    definite = (pattern + (2.0 * degrees.max(initial=1)) * eye_array(len(rest))).tocsc()
    found = _banded_order(definite)
    if found is None:
        found = _little_fill(definite)
    return np.concatenate([rest[found], np.flatnonzero(full)])


def _little_fill(matrix: Any) -> Order:
    if (cholmod := _cholmod()) is not None:
        return np.asarray(cholmod.analyze(matrix).P(), dtype=np.int64)
    found = _splu(matrix, "MMD_AT_PLUS_A")
    assert found is not None
    return np.argsort(found.perm_c)


def _banded_order(matrix: Any) -> Order | None:
    """Of a narrow band (a chain, a spline): halves before what separates them, and so on, so that
    the elimination tree is as deep as a logarithm."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    dim = matrix.shape[0]
    if dim < LONG or matrix.nnz > (2 * NARROW + 1) * dim:
        return None
    along = np.asarray(reverse_cuthill_mckee(matrix.tocsr(), symmetric_mode=True), dtype=np.int64)
    place = np.empty(dim, dtype=np.int64)
    place[along] = np.arange(dim)
    columns = place.repeat(np.diff(matrix.indptr))
    width = int(np.abs(place[matrix.indices] - columns).max(initial=0))
    if not 0 < width <= NARROW or dim < LONG * width:
        return None
    # A separator is `width` places that are next to each other; the last ones cut the whole.
    begin, end, parts = np.array([0]), np.array([dim]), []
    while len(begin):
        leaf = end - begin <= 3 * width
        parts.append(_places(begin[leaf], end[leaf]))
        begin, end = begin[~leaf], end[~leaf]
        middle = (begin + end - width) // 2
        parts.append(_places(middle, middle + width))
        begin, end = np.concatenate([begin, middle + width]), np.concatenate([middle, end])
    return along[np.concatenate(parts[::-1])]


def _places(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    sizes = end - begin
    return begin.repeat(sizes) + _counted(sizes) if len(sizes) else begin


@functools.cache
def _cholmod() -> Any:
    """SuiteSparse's, by scikit-sparse; None where that is not installed."""
    try:
        from sksparse import cholmod  # pyright: ignore
    except ImportError:
        return None
    return cholmod if hasattr(cholmod, "analyze") else None


def cholesky(matrix: Any, order: Order | None = None) -> Cholesky | None:
    """None where the matrix is not definite. `order`: one that an equal pattern has had."""
    if not np.isfinite(matrix.data).all():
        return None
    order = order_of(matrix) if order is None else order
    found = _factors(matrix[order][:, order].tocsc())
    if found is None:
        return None
    lower, pivots, more = found
    if not (pivots > len(pivots) * np.finfo(float).eps * matrix.diagonal()[order]).all():
        return None
    lower.sort_indices()
    return Cholesky(lower, pivots, order[more])


def _factors(matrix: Any) -> tuple[Any, Vector, Order] | None:
    """L, the diagonal of D, and an order of the factor's own."""
    from scipy.sparse import csc_array

    if (cholmod := _cholmod()) is not None:
        try:
            lower, pivots = cholmod.cholesky(matrix, ordering_method="natural").L_D()
        except cholmod.CholmodNotPositiveDefiniteError:
            return None
        same = np.arange(matrix.shape[0])
        return csc_array(lower), np.array(pivots.diagonal()), same
    found = _splu(matrix, "NATURAL")
    if found is None or not np.array_equal(found.perm_r, found.perm_c):
        return None
    return found.L.tocsc(), found.U.diagonal(), np.argsort(found.perm_c)


def _splu(matrix: Any, ordering: str) -> Any:
    from scipy.sparse.linalg import splu

    options = {"SymmetricMode": True}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a singular matrix is an answer
            return splu(matrix, permc_spec=ordering, diag_pivot_thresh=0.0, options=options)
    except RuntimeError:
        return None


# --- the selected inverse ---------------------------------------------------------------------


class _Tree:
    """Supernodes of a factor: columns with the same rows below them. `rows` are those of a
    supernode's own block, its columns' first."""

    def __init__(self, factor: Cholesky, rows: np.ndarray, columns: np.ndarray):
        self.dim, lower = factor.dim, _closed(factor.lower, rows, columns)
        self.indptr, self.indices = lower.indptr.astype(np.int64), lower.indices.astype(np.int64)
        self.data = lower.data
        count, parent = np.diff(self.indptr), _parents(self.indptr, self.indices)
        same = (parent[:-1] == np.arange(1, self.dim)) & (count[:-1] == count[1:] + 1)
        self.of_column = np.concatenate([[0], np.cumsum(~same)])
        self.first = np.flatnonzero(np.concatenate([[True], ~same]))
        last = np.concatenate([self.first[1:] - 1, [self.dim - 1]])
        self.width, self.size = last - self.first + 1, count[self.first]
        above = parent[last]
        self.parent = np.where(above < 0, -1, self.of_column[above])
        self.depth = self._depths()
        self.start = np.concatenate([[0], np.cumsum(self.size)])
        places = self.indptr[self.first].repeat(self.size) + _counted(self.size)
        self.rows = self.indices[places]
        self.keys = np.arange(len(self.size)).repeat(self.size) * self.dim + self.rows

    def _depths(self) -> np.ndarray:
        depths, parents = [0] * len(self.parent), self.parent.tolist()
        for one in range(len(parents) - 1, -1, -1):
            if parents[one] >= 0:
                depths[one] = depths[parents[one]] + 1
        return np.array(depths)

    def place(self, nodes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Where rows stand in the blocks of their supernodes."""
        return np.searchsorted(self.keys, nodes * self.dim + rows) - self.start[nodes]

    def below(self, nodes: np.ndarray) -> np.ndarray:
        """S of supernodes of one shape, (nodes, |S|)."""
        first, width, size = self.start[nodes], self.width[nodes[0]], self.size[nodes[0]]
        return self.rows[first[:, None] + np.arange(int(width), int(size))]

    def columns(self, nodes: np.ndarray) -> np.ndarray:
        """Of L, (nodes, |J| + |S|, |J|)."""
        width, size = int(self.width[nodes[0]]), int(self.size[nodes[0]])
        made = np.zeros((len(nodes), size, width))
        for t in range(width):
            begin = self.indptr[self.first[nodes] + t]
            made[:, t:, t] = self.data[begin[:, None] + np.arange(size - t)]
        return made


def _counted(sizes: np.ndarray) -> np.ndarray:
    """0, 1, ..., size - 1 for every size."""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1]) - (ends - sizes).repeat(sizes)


def _parents(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    has_more = np.diff(indptr) > 1
    next_row = indices[np.minimum(indptr[:-1] + 1, len(indices) - 1)]
    return np.where(has_more, next_row, -1)


def _closed(lower: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    """L with zeros where its pattern lacks them: at the places asked for, and what cancellation has
    left out (below a column's first row, its other rows are rows of that column, too)."""
    from scipy.sparse import csc_array

    dim = lower.shape[0]
    indptr, indices = lower.indptr.astype(np.int64), lower.indices.astype(np.int64)
    keys = columns * dim + rows
    while True:
        of = np.arange(dim).repeat(np.diff(indptr))
        parents, known = _parents(indptr, indices)[of], of * dim + indices
        wanted = (parents >= 0) & (indices > parents)
        keys = np.concatenate([keys, parents[wanted] * dim + indices[wanted]])
        missing = np.unique(keys[~_among(keys, known)])
        if not len(missing):
            return lower
        both = np.concatenate([known, missing])
        order = np.argsort(both, kind="stable")
        data = np.concatenate([lower.data, np.zeros(len(missing))])[order]
        indices = both[order] % dim
        indptr = np.concatenate([[0], np.cumsum(np.bincount(both // dim, minlength=dim))])
        keys = keys[:0]
        lower = csc_array((data, indices, indptr), shape=(dim, dim))


def _among(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether they are among the others, which are sorted."""
    at = np.minimum(np.searchsorted(others, some), len(others) - 1)
    return others[at] == some


def _inverse_at(factor: Cholesky, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """`rows >= columns`, both in the factor's order."""
    tree, found = _Tree(factor, rows, columns), np.empty(len(rows))
    # What is asked of every supernode.
    nodes = tree.of_column[columns]
    asked = np.argsort(nodes, kind="stable")
    ends = np.searchsorted(nodes[asked], np.arange(len(tree.size) + 1))
    row, column = tree.place(nodes, rows), columns - tree.first[nodes]
    has_children = np.zeros(len(tree.size), dtype=bool)
    has_children[tree.parent[tree.parent >= 0]] = True
    kept, offset = np.zeros(0), np.zeros(len(tree.size), dtype=np.int64)
    shapes = np.stack([tree.depth, tree.width, tree.size])
    by_shape = np.lexsort(shapes[::-1])
    cuts = np.flatnonzero((np.diff(shapes[:, by_shape]) != 0).any(0)) + 1
    depth, at_depth = 0, []
    for group in np.split(by_shape, cuts):
        if tree.depth[group[0]] != depth:
            kept, offset = _kept(at_depth, tree, offset)
            depth, at_depth = tree.depth[group[0]], []
        most = max(1, AT_ONCE // int(tree.size[group[0]]) ** 2)
        for begin in range(0, len(group), most):
            some = group[begin : begin + most]
            blocks = _blocks(factor, tree, some, kept, offset)
            per = ends[some + 1] - ends[some]
            wanted = asked[ends[some].repeat(per) + _counted(per)] if per.any() else asked[:0]
            which = np.arange(len(some)).repeat(per)
            found[wanted] = blocks[which, row[wanted], column[wanted]]
            parents = has_children[some]
            at_depth.append((some[parents], blocks[parents]))
    return found


def _kept(
    at_depth: list[tuple[np.ndarray, np.ndarray]], tree: _Tree, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The blocks of one depth, one after the other, and where each begins."""
    nodes = np.concatenate([some for some, _ in at_depth])
    offset[nodes] = np.cumsum(tree.size[nodes] ** 2) - tree.size[nodes] ** 2
    return np.concatenate([blocks.ravel() for _, blocks in at_depth]), offset


def _blocks(
    factor: Cholesky, tree: _Tree, nodes: np.ndarray, kept: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """Sigma over J and S of supernodes of one shape."""
    width, size = int(tree.width[nodes[0]]), int(tree.size[nodes[0]])
    columns = tree.columns(nodes)
    inverse = np.linalg.inv(columns[:, :width])
    pivots = factor.pivots[tree.first[nodes][:, None] + np.arange(width)]
    own = np.swapaxes(inverse, 1, 2) @ (inverse / pivots[:, :, None])
    if size == width:
        return own
    parent, y = tree.parent[nodes], columns[:, width:] @ inverse
    place = tree.place(parent[:, None], tree.below(nodes))
    at = offset[parent][:, None] + place * tree.size[parent][:, None]
    above = kept[at[:, :, None] + place[:, None, :]]
    made = np.empty((len(nodes), size, size))
    made[:, width:, width:] = above
    made[:, width:, :width] = -above @ y
    made[:, :width, width:] = np.swapaxes(made[:, width:, :width], 1, 2)
    made[:, :width, :width] = own - np.swapaxes(y, 1, 2) @ made[:, width:, :width]
    return made
