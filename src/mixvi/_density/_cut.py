"""Chunks of rows as they come, looked at once and cut anew."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from .._errors import InputError
from ._sources import Source, ahead, named
from ._structure import as_array, listed

# Bytes of a piece: it stays in the processor's cache while many points are asked of it.
PIECE_BYTES, LEAST_ROWS, MOST_ROWS = 2**22, 32, 2**17
# Chunks that are read ahead, the first time.
CHUNKS_AHEAD = 2
# What a device may share with an array without a copy begins at such an address.
ALIGNED = 64


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

    @property
    def usual_rows(self) -> int:
        usual = max(LEAST_ROWS, min(MOST_ROWS, PIECE_BYTES // max(1, self.row_bytes)))
        return 2 ** int(math.log2(usual))

    def piece_rows(self) -> int:
        """As many as make all pieces nearly full; rounded up to the next of eight steps between
        powers of two, so that a few rows more or fewer make no other shape."""
        each = math.ceil(self.n_rows / math.ceil(self.n_rows / self.usual_rows))
        step = max(LEAST_ROWS, 2 ** math.ceil(math.log2(each)) // 8)
        return step * math.ceil(each / step)


class Survey:
    """The first reading: every number is looked at once."""

    def __init__(self, source: Source):
        self.source = source
        self.layout: Layout | None = None

    def chunks(self) -> Iterator[list[np.ndarray]]:
        source = self.source
        for k, tree in enumerate(ahead(source.chunks(True), CHUNKS_AHEAD)):
            last = self.layout
            form = Form(tree, source.chunk(k)) if last is None else last.form
            arrays = form.arrays(tree, source.chunk(k))
            before = 0 if last is None else last.n_rows
            _refuse_missing(source, form, arrays, k, before)
            types = tuple(_usual(one.dtype) for one in arrays)
            if last is not None:
                both = zip(last.dtypes, types, strict=True)
                types = tuple(np.promote_types(one, other) for one, other in both)
            self.layout = Layout(form, types, before + len(arrays[0]))
            yield arrays

    def blocks(self) -> Generator[list[np.ndarray], None, None]:
        """Of the usual number of rows, the last one of fewer."""
        chunks = self.chunks()
        first = next(chunks, None)
        if first is not None and self.layout is not None:
            size = self.layout.usual_rows
            yield from cut(itertools.chain([first], chunks), lambda: self.layout, size)


def cut(
    chunks: Iterable[list[np.ndarray]], layout: Callable[[], Any], size: int
) -> Iterator[list[np.ndarray]]:
    """Chunks of any number of rows, cut anew; the last one has what is left. Each is an array of
    its own, of the types that are known by then."""
    made: list[np.ndarray] = []
    filled = 0
    for arrays in chunks:
        its, used, n = layout(), 0, len(arrays[0])
        if filled and [one.dtype for one in made] != list(its.dtypes):
            made = [one.astype(dtype) for one, dtype in zip(made, its.dtypes, strict=True)]
        while used < n:
            if filled == 0:
                both = zip(its.form.tails, its.dtypes, strict=True)
                made = [aligned((size, *tail), dtype) for tail, dtype in both]
            some = min(n - used, size - filled)
            for whole, one in zip(made, arrays, strict=True):
                whole[filled : filled + some] = one[used : used + some]
            used, filled = used + some, filled + some
            if filled == size:
                yield made
                filled = 0
    if filled:
        yield [one[:filled] for one in made]


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
