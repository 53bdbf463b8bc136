"""Data in pieces of one number of rows, read ahead, as often as they are asked for."""

import dataclasses
import math
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple

import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from .._errors import InputError
from ._sources import Arrays, Chunks, Source, ahead, named
from ._structure import as_array, listed
from ._table_files import Csv, Parquet

# Bytes of a piece: it stays in the processor's cache while many points are asked of it.
PIECE_BYTES, LEAST_ROWS, MOST_ROWS = 2**22, 32, 2**17
# Pieces and chunks that are read ahead.
AHEAD, CHUNKS_AHEAD = 4, 2
# What a device may share with an array without a copy begins at such an address.
ALIGNED = 64
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Piece(NamedTuple):
    """`rows`: a pytree of arrays of one number of rows. `n` of them count: the last one is repeated
    to fill the piece up. `is_first`: it comes with the prior."""

    rows: PyTree
    n: Any
    is_first: Any


class Form:
    """What all chunks must be like: that of the first one."""

    def __init__(self, tree: PyTree, where: str):
        paths, self.tree = jtu.tree_flatten_with_path(tree)
        self.names = [named(path) for path, _ in paths]
        if not paths:
            raise InputError(f"data: {where} holds no arrays.")
        # In the order of whoever made it; a pytree sorts the names of a dict.
        self.keys: list | None = None
        if isinstance(tree, dict):
            self.keys = list(tree)
        elif type(tree) in (tuple, list):
            self.keys = list(range(len(tree)))
        self.tails = [one.shape[1:] for one in self._arrays(tree, where)]

    def arrays(self, tree: PyTree, where: str) -> list[np.ndarray]:
        if jtu.tree_structure(tree) != self.tree:
            there = [named(path) for path, _ in jtu.tree_flatten_with_path(tree)[0]]
            raise InputError(
                f"data: {where} holds {listed(there, 8)}, where the first one holds "
                f"{listed(self.names, 8)}: all must hold the same."
            )
        arrays = self._arrays(tree, where)
        for name, tail, one in zip(self.names, self.tails, arrays, strict=True):
            if one.shape[1:] != tail:
                raise InputError(
                    f"data: {name} has rows of shape {one.shape[1:]} in {where}, and of shape "
                    f"{tail} in the first one."
                )
        return arrays

    def _arrays(self, tree: PyTree, where: str) -> list[np.ndarray]:
        leaves = jtu.tree_leaves(tree)
        both = zip(self.names, leaves, strict=True)
        arrays = [one if isinstance(one, np.ndarray) else as_array(one, n) for n, one in both]
        for name, one in zip(self.names, arrays, strict=True):
            if one.dtype.kind not in "fiub":
                as_array(one, f"data: {name} in {where}")  # says what it is instead
                raise InputError(f"data: {name} in {where} holds numbers of type {one.dtype}.")
        lengths = {one.shape[:1] for one in arrays}
        if () in lengths or len(lengths) > 1:
            said = [f"{n} {one.shape}" for n, one in zip(self.names, arrays, strict=True)]
            raise InputError(
                f"data: the arrays of {where} must have the same number of rows, not "
                f"{listed(said, 8)}."
            )
        return arrays


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the first reading found: rows of such shapes and types, so many of them."""

    form: Form
    dtypes: tuple[np.dtype, ...]
    n_rows: int

    @property
    def row_bytes(self) -> int:
        both = zip(self.form.tails, self.dtypes, strict=True)
        return sum(math.prod(tail) * dtype.itemsize for tail, dtype in both)

    def empty(self, size: int) -> list[np.ndarray]:
        both = zip(self.form.tails, self.dtypes, strict=True)
        return [aligned((size, *tail), dtype) for tail, dtype in both]

    def piece_rows(self) -> int:
        """As many as make a piece, so that all are nearly full; rounded up to the next of eight
        steps between powers of two, so that a few rows more or fewer make no other shape."""
        usual = max(LEAST_ROWS, min(MOST_ROWS, PIECE_BYTES // max(1, self.row_bytes)))
        usual = 2 ** int(math.log2(usual))
        each = math.ceil(self.n_rows / math.ceil(self.n_rows / usual))
        step = max(LEAST_ROWS, 2 ** math.ceil(math.log2(each)) // 8)
        return step * math.ceil(each / step)


class Pieces:
    """Data that are read in pieces, as often as a fit asks, and never held as a whole.

    Made by `Pieces.arrays`, `Pieces.parquet`, `Pieces.csv` or `Pieces.chunks`, and given as
    `data=` to `fit` or `laplace`, with a `mixvi.Additive`, a `mixvi.LinearPredictor` or, in closed
    form, to `mixvi.models.Model.density`. Values, gradients and Hessians of the pieces are summed:
    the answer is that of all rows at once. Pieces are read ahead and computed on all cores; sums
    are taken in the order of the rows. All pieces have one number of rows (the last one is filled
    up, and what fills it does not count), so one compiled program serves them, and usually also
    data with other numbers of rows.

    `rows`: of a piece, a multiple of 32; left out, some 4 MiB. `memory`: what was read from files or chunks stays in
    memory where it takes no more than this; otherwise it is read again for every pass.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import mixvi
    >>> model = mixvi.Additive(
    ...     lambda w: -0.5 * (w**2).sum(),
    ...     lambda w, rows: jax.scipy.stats.norm.logpdf(rows["y"], rows["x"] @ w),
    ... )
    >>> x = np.linspace(-1, 1, 999)[:, None] ** np.arange(3)
    >>> pieces = mixvi.Pieces.arrays({"x": x, "y": np.sin(x[:, 1])}, rows=128)
    >>> post = mixvi.fit(model, jnp.zeros(3), data=pieces)
    >>> pieces.n_rows, post.mean.shape
    (999, (3,))
    """

    def __init__(self, source: Source, rows: int | None, memory: int | str):
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise InputError(f"Pieces: rows must be a positive integer, got {rows!r}.")
        self._source, self._rows, self._memory = source, rows, _bytes(memory)
        self._layout: Layout | None = None
        self._kept: list[Piece] | None = None
        self._lock = threading.Lock()

    @classmethod
    def arrays(cls, tree: PyTree, *, rows: int | None = None) -> "Pieces":
        """Of a pytree of arrays, or memory maps, with the rows on the first axis of each.

        >>> import numpy as np
        >>> import mixvi
        >>> mixvi.Pieces.arrays((np.zeros((10, 2)), np.arange(10)))
        Pieces of 10 rows: data[0] (2,) float64, data[1] int64
        """
        return cls(Arrays(tree), rows, 0)

    @classmethod
    def parquet(
        cls,
        path: Any,
        columns: Any = None,
        *,
        rows: int | None = None,
        memory: int | str = "1GiB",
    ) -> "Pieces":
        """Of a Parquet file, a list of them, or all those in a folder in the order of their names.

        `columns`: names, or a mapping from names of your own to a column (a vector) or a list of
        them (a matrix); left out, every column by its name. All must hold numbers, without gaps.

        >>> import os, tempfile
        >>> import numpy as np
        >>> import pyarrow, pyarrow.parquet
        >>> import mixvi
        >>> table = pyarrow.table({"a": np.zeros(9), "b": np.ones(9), "label": np.arange(9) % 2})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "rows.parquet")
        ...     pyarrow.parquet.write_table(table, path)
        ...     mixvi.Pieces.parquet(path, {"x": ["a", "b"], "y": "label"})
        Pieces of 9 rows: data.x (2,) float64, data.y int64
        """
        return cls(Parquet(path, columns), rows, memory)

    @classmethod
    def csv(
        cls,
        path: Any,
        columns: Any = None,
        *,
        separator: str = ",",
        rows: int | None = None,
        memory: int | str = "1GiB",
    ) -> "Pieces":
        """Of CSV files whose first line names the columns; otherwise as `Pieces.parquet`.

        >>> import os, tempfile
        >>> import mixvi
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "rows.csv")
        ...     with open(path, "w") as file:
        ...         _ = file.write("a,b\\n1,2.5\\n3,4\\n")
        ...     mixvi.Pieces.csv(path)
        Pieces of 2 rows: data.a int64, data.b float64
        """
        return cls(Csv(path, columns, separator), rows, memory)

    @classmethod
    def chunks(
        cls, source: Any, *, rows: int | None = None, memory: int | str = "1GiB"
    ) -> "Pieces":
        """Of an iterable of chunks that can be gone through many times, or a function without
        arguments that makes one. A chunk is a pytree of arrays, or a frame, of any number of rows.

        >>> import numpy as np
        >>> import mixvi
        >>> def read():
        ...     for month in range(3):
        ...         yield {"x": np.full(5, month), "y": np.ones(5)}
        >>> mixvi.Pieces.chunks(read)
        Pieces of 15 rows: data.x int64, data.y float64
        """
        return cls(Chunks(source), rows, memory)

    @property
    def n_rows(self) -> int:
        """Of all data. Asked for the first time, they are read once."""
        return self.layout.n_rows

    @property
    def piece_rows(self) -> int:
        """Of every piece."""
        return self._size(self.layout)

    def _size(self, layout: Layout) -> int:
        """A multiple of 32: the sets of nodes of several predictors go round in it."""
        if self._rows is None:
            return layout.piece_rows()
        return LEAST_ROWS * math.ceil(min(self._rows, layout.n_rows) / LEAST_ROWS)

    @property
    def n_pieces(self) -> int:
        return math.ceil(self.n_rows / self.piece_rows)

    @property
    def layout(self) -> Layout:
        with self._lock:
            if self._layout is None:
                self._layout = self._surveyed()
            return self._layout

    def __repr__(self) -> str:
        layout = self.layout
        parts = [
            f"{name} {tail or ''}{' ' * bool(tail)}{dtype}"
            for name, tail, dtype in zip(
                layout.form.names, layout.form.tails, layout.dtypes, strict=True
            )
        ]
        return f"Pieces of {layout.n_rows:,} rows: {listed(parts, 8)}"

    def first(self) -> Piece:
        """The first one alone."""
        read = self.read()
        try:
            return next(read)
        finally:
            read.close()

    def read(self) -> Generator[Piece, None, None]:
        """All pieces in their order, read ahead. What is read belongs to the reader."""
        layout, size = self.layout, self.piece_rows
        if self._kept is not None:
            yield from self._kept
            return
        yield from ahead(self._cut(self._read(layout.form), layout, size), AHEAD)

    # --- the first reading --------------------------------------------------------------------

    def _surveyed(self) -> Layout:
        """Every number is looked at once. What fits into memory is kept there."""
        source = self._source
        form: Form | None = None
        types: list[np.dtype] = []
        kept: list[list[np.ndarray]] | None = [] if source.is_slow else None
        n_rows, held = 0, 0
        for k, tree in enumerate(ahead(source.chunks(True), CHUNKS_AHEAD)):
            form = Form(tree, source.chunk(k)) if form is None else form
            arrays = form.arrays(tree, source.chunk(k))
            _refuse_missing(source, form, arrays, k, n_rows)
            own = [_usual(one.dtype) for one in arrays]
            types = [np.promote_types(a, b) for a, b in zip(types or own, own, strict=True)]
            n_rows += len(arrays[0])
            if kept is not None:
                kept.append([np.array(one, t) for one, t in zip(arrays, own, strict=True)])
                held += sum(one.nbytes for one in kept[-1])
                kept = kept if held <= self._memory else None
        if form is None or not n_rows:
            raise InputError("data: there are no rows.")
        layout = Layout(form, tuple(types), n_rows)
        if kept is not None:
            self._kept = list(self._cut(_spent(kept), layout, self._size(layout)))
        return layout

    def _read(self, form: Form) -> Iterator[list[np.ndarray]]:
        for k, tree in enumerate(self._source.chunks(False)):
            yield form.arrays(tree, self._source.chunk(k))

    @staticmethod
    def _cut(chunks: Iterable[list[np.ndarray]], layout: Layout, size: int) -> Iterator[Piece]:
        """Chunks of any number of rows, cut anew."""
        made, filled, n_rows = layout.empty(size), 0, 0

        def piece() -> Piece:
            rows = jtu.tree_unflatten(layout.form.tree, made)
            return Piece(rows, np.int32(filled), np.bool_(n_rows <= size))

        for arrays in chunks:
            used, n = 0, len(arrays[0])
            while used < n:
                if filled == size:
                    yield piece()
                    made, filled = layout.empty(size), 0
                some = min(n - used, size - filled)
                for whole, one in zip(made, arrays, strict=True):
                    whole[filled : filled + some] = one[used : used + some]
                used, filled, n_rows = used + some, filled + some, n_rows + some
        if n_rows != layout.n_rows:
            raise InputError(
                f"data: there were {layout.n_rows:,} rows when they were first read, and now there "
                f"are {n_rows:,}: they must stay as they are while they are fitted."
            )
        for whole in made:
            whole[filled:] = whole[filled - 1]
        yield piece()


def _spent(chunks: list[list[np.ndarray]]) -> Iterator[list[np.ndarray]]:
    """Each is let go when it has been used."""
    chunks.reverse()
    while chunks:
        yield chunks.pop()


def _refuse_missing(
    source: Source, form: Form, arrays: list[np.ndarray], chunk: int, before: int
) -> None:
    for name, one in zip(form.names, arrays, strict=True):
        if one.dtype.kind != "f" or not np.isnan(one).any():
            continue
        place = tuple(int(i) for i in np.argwhere(np.isnan(one))[0])
        column = f", {list(place[1:])}" if place[1:] else ""
        raise InputError(
            f"data: {name} is NaN in {source.row(chunk, place[0], before)}{column}: drop or fill "
            "such rows."
        )


def _usual(dtype: np.dtype) -> np.dtype:
    """Differences of unsigned counts would wrap around."""
    return np.dtype({"b": np.bool_, "f": np.float64}.get(dtype.kind, np.int64))


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that a device may share without a copy."""
    n_bytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(n_bytes + ALIGNED, np.uint8)
    first = -raw.ctypes.data % ALIGNED
    return raw[first : first + n_bytes].view(dtype).reshape(shape)


def _bytes(memory: Any) -> int:
    try:
        if isinstance(memory, str):
            amount = float(memory.strip()[:-3]) * UNITS[memory.strip()[-3:]]
        else:
            amount = float(memory)
        if not 0 <= amount < 2**60:
            raise ValueError
    except (KeyError, ValueError, TypeError) as err:
        raise InputError(
            "Pieces: memory must be a number of bytes or text such as "
            f'"512MiB" or "2GiB", got {memory!r}.'
        ) from err
    return int(amount)
