"""Data in pieces of one number of rows, read ahead, as often as they are asked for."""

import collections
import math
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, Int, PyTree

from .._errors import InputError
from .._watch import READING, stage
from ._asked import Asked, in_threads
from ._cut import LEAST_ROWS, Layout, Survey, cut
from ._sources import Arrays, Chunks, Source, ahead
from ._structure import listed
from ._table_files import Csv, Parquet

T = TypeVar("T")
# Pieces that are read ahead.
AHEAD = 4
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Piece(NamedTuple):
    """`rows`: a pytree of arrays of one number of rows. `n` of them count: the last one is repeated
    to fill the piece up. `is_first`: it comes with the prior. `weight`: of each row, where rows
    drawn at random stand for all."""

    rows: PyTree
    n: Any
    is_first: Any
    weight: Any = np.float64(1.0)


class Pieces:
    """Data that are read in pieces, as often as a fit asks, and never held as a whole.

    Made by `Pieces.arrays`, `Pieces.parquet`, `Pieces.csv` or `Pieces.chunks`, and given as
    `data=` to `fit` or `laplace`, with a `mixvi.Additive`, a `mixvi.LinearPredictor` or, in closed
    form, to `mixvi.models.Model.density`. Values, gradients and Hessians of the pieces are summed:
    the answer is that of all rows at once. Pieces are read ahead and computed on all cores; sums
    are taken in the order of the rows. All pieces have one number of rows (the last one is filled
    up, and what fills it does not count), so one compiled program serves them, and usually also
    data with other numbers of rows.

    `rows`: of a piece, a multiple of 32; left out, some 4 MiB. `memory`: what was read from files
    or chunks stays in memory where it takes no more than this; otherwise it is read again for every
    pass.

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

    # Whether rows can be drawn from them on this machine.
    gives_rows = True

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
                with stage(READING):
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
        layout = self.layout
        if self._kept is not None:
            yield from self._kept
            return
        yield from ahead(self._read(layout), AHEAD)

    # --- questions ----------------------------------------------------------------------------

    def answers(self, asked: Asked) -> Iterator[tuple[Any, ...]]:
        """Of all pieces, in their order; of some pieces together their sum."""
        return in_threads(self.read(), asked.of)

    def by_row(self, asked: Asked) -> Iterator[Float[np.ndarray, " some"]]:
        """What rows say, one after the other; not those that fill a piece up."""
        return in_threads(self.read(), lambda piece: asked.of(piece)[0][: piece.n])

    def each(self, look: Callable[[Piece, int], T]) -> Iterator[T]:
        """`look` at every piece, with the number of rows before it, in their order."""
        before = 0
        for piece in self.read():
            yield look(piece, before)
            before += int(piece.n)

    @property
    def is_at_hand(self) -> bool:
        """Any row can be had without reading those before it."""
        looked_at = self.layout  # which keeps what fits into memory
        return not self._source.is_slow or (looked_at is not None and self._kept is not None)

    def taken(self, places: Int[np.ndarray, " some"]) -> PyTree:
        """The rows at these places, which go up; of files by reading them once."""
        layout, size = self.layout, self.piece_rows
        parts: list[list[np.ndarray]] = []
        if isinstance(self._source, Arrays):
            parts = [self._source.at(places)]
        elif self._kept is not None:
            pieces, first = np.unique(places // size, return_index=True)
            both = zip(pieces, np.split(places % size, first[1:]), strict=True)
            parts = [_rows_of(self._kept[k], mine) for k, mine in both]
        else:
            for mine in self.each(lambda piece, before: _within(piece, places, before)):
                parts += mine
        columns = zip(layout.dtypes, zip(*parts, strict=True), strict=True)
        leaves = [np.concatenate(some).astype(dtype, copy=False) for dtype, some in columns]
        return jtu.tree_unflatten(layout.form.tree, leaves)

    # --- the first reading --------------------------------------------------------------------

    def _surveyed(self) -> Layout:
        """What fits into memory is kept there."""
        survey, kept, held = Survey(self._source), [], 0
        if self._source.is_slow:
            for block in (blocks := survey.blocks()):
                kept.append(block)
                held += sum(one.nbytes for one in block)
                if held > self._memory:
                    blocks.close()
                    kept, survey = [], Survey(self._source)
                    break
        if not kept:
            collections.deque(survey.chunks(), maxlen=0)
        if (layout := survey.layout) is None or not layout.n_rows:
            raise InputError("data: there are no rows.")
        if kept:
            size, dtypes = self._size(layout), list(layout.dtypes)
            sound = size == layout.usual_rows and all(
                [one.dtype for one in block] == dtypes for block in kept
            )
            blocks = kept if sound else cut(_spent(kept), lambda: layout, size)
            self._kept = list(self._filled(blocks, layout, size))
        return layout

    def _read(self, layout: Layout) -> Iterator[Piece]:
        def chunks() -> Iterator[list[np.ndarray]]:
            for k, tree in enumerate(self._source.chunks(False)):
                yield layout.form.arrays(tree, self._source.chunk(k))

        size = self._size(layout)
        return self._filled(cut(chunks(), lambda: layout, size), layout, size)

    @staticmethod
    def _filled(blocks: Iterable[list[np.ndarray]], layout: Layout, size: int) -> Iterator[Piece]:
        """Pieces of one size: the last row is repeated."""
        n_rows = 0
        for block in blocks:
            n, is_first = len(block[0]), n_rows == 0
            n_rows += n
            if n < size:
                lack = size - n
                block = [np.concatenate([one, np.repeat(one[-1:], lack, 0)]) for one in block]
            rows = jtu.tree_unflatten(layout.form.tree, block)
            yield Piece(rows, np.int32(n), np.bool_(is_first))
        if n_rows != layout.n_rows:
            raise InputError(
                f"data: there were {layout.n_rows:,} rows when they were first read, and now there "
                f"are {n_rows:,}: they must stay as they are while they are fitted."
            )


def _rows_of(piece: Piece, places: np.ndarray) -> list[np.ndarray]:
    return [one[places] for one in jtu.tree_leaves(piece.rows)]


def _within(piece: Piece, places: np.ndarray, before: int) -> list[list[np.ndarray]]:
    first, last = np.searchsorted(places, [before, before + int(piece.n)])
    return [_rows_of(piece, places[first:last] - before)] if first < last else []


def refuse_pieces(data: Any, whose: str) -> None:
    """Of several problems, or several starts, each would read all data for itself."""
    if isinstance(data, Pieces):
        raise InputError(
            f"{whose}: data in pieces are for fit and laplace, one problem at a time; give arrays."
        )


def _spent(chunks: list[list[np.ndarray]]) -> Iterator[list[np.ndarray]]:
    """Each is let go when it has been used."""
    chunks.reverse()
    while chunks:
        yield chunks.pop()


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
