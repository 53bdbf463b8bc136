"""Rows of data in pieces, drawn at random: mini-batches.

Every batch is a simple random sample of all rows, without replacement, and the batches are
independent of one another: `(n / m) sum over a batch of l(row; w)` has the sum over all rows for
its mean, and the spread between batches tells its noise. Rows that lie together in a file are often
alike, so no batch is ever made of neighbours. Where a row cannot be had without reading those
before it, one reading of the files gathers many batches.
"""

from typing import Any

import jax.tree_util as jtu
import numpy as np

from .._arrays._draws import ROWS, generator_of, key_words
from ._cut import LEAST_ROWS
from ._pieces import Piece, Pieces

# Bytes of the batches that one reading of files gathers, and how many batches at most.
GATHERED, MOST_GATHERED = 2**28, 64


class RandomRows:
    """Batch after batch, the same ones for the same key, wherever the rows come from."""

    def __init__(self, pieces: Pieces, rows: int, key: Any):
        self.pieces, self.words = pieces, key_words(key)
        self.rows = LEAST_ROWS * -(-rows // LEAST_ROWS)
        self.n_made = 0
        self.n_readings = 0
        self._waiting: list[Piece] = []

    @property
    def weight(self) -> float:
        """Rows that a row of a batch stands for."""
        return self.pieces.n_rows / self.rows

    def batches(self, n: int) -> list[Piece]:
        """The next `n`."""
        while len(self._waiting) < n:
            self._waiting += self._gathered(n - len(self._waiting))
        taken, self._waiting = self._waiting[:n], self._waiting[n:]
        return taken

    def _gathered(self, least: int) -> list[Piece]:
        pieces, n = self.pieces, least
        if not pieces.is_at_hand:
            affordable = GATHERED // (self.rows * pieces.layout.row_bytes)
            n = max(least, min(affordable, MOST_GATHERED))
            self.n_readings += 1
        chosen = [self._places(self.n_made + k) for k in range(n)]
        self.n_made += n
        if pieces.is_at_hand:
            return [self._batch(pieces.taken(places)) for places in chosen]
        every, where = np.unique(np.concatenate(chosen), return_inverse=True)
        rows = pieces.taken(every)
        return [
            self._batch(jtu.tree_map(lambda leaf, own=own: leaf[own], rows))
            for own in np.split(where, n)
        ]

    def _places(self, number: int) -> np.ndarray:
        rng = generator_of((*self.words, number), ROWS)
        return np.sort(rng.choice(self.pieces.n_rows, self.rows, replace=False, shuffle=False))

    def _batch(self, rows: Any) -> Piece:
        return Piece(rows, np.int32(self.rows), np.bool_(True), np.float64(self.weight))
