"""What workers do. These functions travel by name: mixvi must be installed where they run."""

import collections
import dataclasses
from typing import Any

import numpy as np

from .._density._asked import answer_of, summed
from .._density._cut import Layout, Survey
from .._density._pieces import Piece, Pieces
from .._density._sources import Arrays
from .._errors import InputError
from .._fit._threads import one_blas_thread
from ._travel import Kept, Packed, unpacked

PARTS_KEPT = 8


class Partition(Arrays):
    """The arrays of one partition."""

    def __init__(self, tree: Any, number: int):
        super().__init__(tree)
        self.number = number

    def row(self, chunk, row, before):
        return f"row {before + row} of {self.chunk(chunk)}"

    def chunk(self, chunk):
        return f"partition {self.number}"


class Own(Pieces):
    """Of one partition; the first one of all comes with the prior. `layout`: that of all data."""

    def __init__(self, tree: Any, number: int, layout: Layout, size: int):
        source = Partition(tree, number)
        super().__init__(source, size, 0)
        self._layout = dataclasses.replace(layout, n_rows=len(source.leaves[0]))
        self._size_of_all = size

    def _size(self, layout):
        return self._size_of_all


def surveyed(tree: Any, number: int) -> Layout | None:
    """What a partition is like, None where it has no rows; every number is looked at."""
    where = f"partition {number}"
    try:
        survey = Survey(Partition(tree, number))
        collections.deque(survey.chunks(), maxlen=0)
    except InputError as err:
        words = str(err).removeprefix("Pieces.arrays: ").removeprefix("data: ")
        if where in words:
            raise  # not `from err`: Dask goes in circles over an error that is its own cause
        raise InputError(f"data: {where}: {words}") from err
    return survey.layout


def cut_up(tree: Any, number: int, layout: Layout, size: int, has_prior: bool) -> list[Piece]:
    pieces = list(Own(tree, number, layout, size).read())
    return [one._replace(is_first=one.is_first & has_prior) for one in pieces]


def answered(
    pieces: list[Piece], recipe: Packed, theta: Any, question: str, arguments: tuple
) -> tuple[Any, ...]:
    """The sum over the pieces."""
    part = _part(recipe, theta)
    with one_blas_thread(0):
        return summed(answer_of(part, piece, question, arguments) for piece in pieces)


def answered_by_row(
    pieces: list[Piece], recipe: Packed, theta: Any, question: str, arguments: tuple
) -> np.ndarray:
    part = _part(recipe, theta)
    with one_blas_thread(0):
        each = [answer_of(part, piece, question, arguments)[0][: piece.n] for piece in pieces]
    return np.concatenate(each)


def looked_at(pieces: list[Piece], packed: Packed, before: int) -> list[Any]:
    look, found = unpacked(packed), []
    for piece in pieces:
        found.append(look(piece, before))
        before += int(piece.n)
    return found


def first_of(pieces: list[Piece]) -> Piece:
    return pieces[0]


def same(one: Any) -> Any:
    """A value that the scheduler can make again where the worker that held it is gone."""
    return one


# --- the density of a piece, made once on each worker -------------------------------------------

_parts = Kept(PARTS_KEPT)


def _part(recipe: Packed, theta: Any) -> Any:
    part = _parts.get(recipe.name, lambda: unpacked(recipe)())
    return part if theta is None else part.at(theta)
