"""Where pieces of data come from: arrays, or whatever gives chunks of them again and again."""

import abc
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from .._errors import InputError
from ._data import unframed
from ._structure import as_array, path_name

T = TypeVar("T")
# Bytes that a source gives at a time.
CHUNK = 2**23
# Seconds after which a reader looks whether anybody still wants what it has read.
PATIENCE = 0.1


class Source(abc.ABC):
    """`is_slow`: reading takes work, so that what fits into memory is kept there."""

    is_slow: bool = True

    @abc.abstractmethod
    def chunks(self, is_first: bool) -> Iterator[PyTree]:
        """All rows in their order, a chunk at a time. The first reading looks at every number."""

    @abc.abstractmethod
    def row(self, chunk: int, row: int, before: int) -> str:
        """Words for a row of a chunk, before which there are so many."""

    @abc.abstractmethod
    def chunk(self, chunk: int) -> str:
        """Words for a chunk."""


class Arrays(Source):
    is_slow = False

    def __init__(self, tree: PyTree):
        tree = unframed(tree, "data")
        # A pytree sorts the names of a dict; columns stay in the order of whoever made it.
        self.order = list(tree) if type(tree) is dict else None
        paths, self.tree = jtu.tree_flatten_with_path(tree)
        if not paths:
            raise InputError("Pieces.arrays: there is no array in it.")
        # A map of a file stays one: nothing is read here.
        self.leaves = [
            leaf if isinstance(leaf, np.ndarray) else as_array(leaf, named(path))
            for path, leaf in paths
        ]
        both = zip(paths, self.leaves, strict=True)
        lengths = {named(path): one.shape[:1] for (path, _), one in both}
        if () in lengths.values() or len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} {shape or 'none'}" for name, shape in lengths.items())
            raise InputError(
                f"Pieces.arrays: all arrays must have the same number of rows, not {said}."
            )

    def chunks(self, is_first):
        bytes_a_row = sum(one.nbytes for one in self.leaves) // max(1, len(self.leaves[0]))
        size = max(1, CHUNK // max(1, bytes_a_row))
        for first in range(0, len(self.leaves[0]), size):
            some = [one[first : first + size] for one in self.leaves]
            tree = jtu.tree_unflatten(self.tree, some)
            yield tree if self.order is None else {key: tree[key] for key in self.order}

    def at(self, places: np.ndarray) -> list[np.ndarray]:
        """Rows of every array."""
        return [np.asarray(one[places]) for one in self.leaves]

    def row(self, chunk, row, before):
        return f"row {before + row}"

    def chunk(self, chunk: int) -> str:
        return "the arrays"


class Chunks(Source):
    """Of an iterable that can be gone through again, or of a function that makes one."""

    def __init__(self, made: Any):
        self.made: Callable[[], Iterable[PyTree]] = made
        if callable(made):
            return
        try:
            is_spent = iter(made) is made
        except TypeError:
            raise InputError(
                "Pieces.chunks: give an iterable of chunks, or a function that makes one, not "
                f"{type(made).__name__}."
            ) from None
        if is_spent:
            raise InputError(
                "Pieces.chunks: data are read many times, and a generator can be read once. Give "
                "the function that makes it: Pieces.chunks(read) instead of Pieces.chunks(read())."
            )
        self.made = lambda: made

    def chunks(self, is_first):
        for chunk in self.made():
            yield unframed(chunk, "data")

    def row(self, chunk, row, before):
        return f"row {row} of {self.chunk(chunk)}"

    def chunk(self, chunk):
        return f"chunk {chunk}"


def named(path: tuple) -> str:
    return path_name(path, "data", rooted=True)


def stamp(path: str) -> tuple[int, int]:
    """What changes when a file does."""
    its = os.stat(path)
    return its.st_size, its.st_mtime_ns


# --- reading ahead ----------------------------------------------------------------------------


def ahead(made: Iterator[T], depth: int) -> Iterator[T]:
    """The same things, made in a thread of their own, at most `depth` of them ahead."""
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
    is_over = threading.Event()

    def put(word: str, thing: Any) -> bool:
        while not is_over.is_set():
            try:
                waiting.put((word, thing), timeout=PATIENCE)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for one in made:
                if not put("one", one):
                    return
            put("end", None)
        except BaseException as err:  # raised where it is waited for
            put("error", err)

    threading.Thread(target=read, name="mixvi-reader", daemon=True).start()
    try:
        while True:
            word, thing = waiting.get()
            if word == "error":
                raise thing
            if word == "end":
                return
            yield thing
    finally:
        is_over.set()
