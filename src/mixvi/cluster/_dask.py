"""Data on Dask's workers: pieces stay there, questions go there, sums come back."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax.tree_util as jtu
import numpy as np

from .._density._asked import Asked
from .._density._cut import Layout
from .._density._pieces import Piece, Pieces
from .._errors import InputError
from . import _work
from ._client import client_of, made, result_of, spoken, submitted
from ._travel import packed

RECIPES_KEPT = 8


def dask(client: Any, data: Any, *, rows: int | None = None) -> "ClusterPieces":
    """Data for `fit` and `laplace` that stay where Dask has them.

    **Arguments:**

    - `client`: a `distributed.Client`, or the scheduler's address, `"tcp://10.0.0.1:8786"`.
    - `data`: a Dask data frame, a pytree (a dict, say) of Dask arrays cut alike along their first
      axis, or a list of `dask.delayed` values, each a pytree of arrays or a frame. They are loaded
      once and kept on the workers.
    - `rows`: of a piece; left out, some 4 MiB of them.

    **Returns:** what goes to `data=`, with a `mixvi.Additive` or a `mixvi.LinearPredictor`, and to
    `mixvi.models.Model.density`. The numbers are those of one process, to rounding, and the same
    from run to run whatever the order in which workers answer. A worker that dies is worked around:
    what it held is loaded again.

    >>> from distributed import Client
    >>> import dask.array as da
    >>> import numpy as np
    >>> from mixvi import cluster
    >>> x = da.from_array(np.linspace(-1, 1, 60), chunks=20)
    >>> with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
    ...     cluster.dask(client, {"x": x})
    Pieces of 60 rows: data.x float64
    """
    client = client_of(client)
    with spoken(client):
        return ClusterPieces(client, _partitions(client, data), rows)


class ClusterPieces(Pieces):
    """Pieces that workers hold, partition by partition."""

    gives_rows = False

    def __init__(self, client: Any, partitions: list[Any], rows: int | None):
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise InputError(f"cluster.dask: rows must be a positive integer, got {rows!r}.")
        self.client, self._rows, self._kept = client, rows, None
        numbers = range(len(partitions))
        surveys = self._submitted(_work.surveyed, made(client, partitions), numbers)
        layouts = [result_of(client, one) for one in surveys]
        there = [k for k, one in enumerate(layouts) if one is not None and one.n_rows]
        if not there:
            raise InputError("data: there are no rows.")
        self._whole = _together([layouts[k] for k in there], there)
        self.sizes = [layouts[k].n_rows for k in there]
        given = self._whole, self.piece_rows
        self.held = [
            submitted(client, _work.cut_up, partitions[k], k, *given, k == there[0]) for k in there
        ]
        self._recipes: dict[int, tuple[Any, Any]] = {}

    @property
    def layout(self) -> Layout:
        return self._whole

    @property
    def piece_rows(self) -> int:
        """A piece is of one partition: the largest one tells."""
        return self._size(dataclasses.replace(self._whole, n_rows=max(self.sizes)))

    @property
    def n_pieces(self) -> int:
        return sum(math.ceil(n / self.piece_rows) for n in self.sizes)

    def first(self) -> Piece:
        with spoken(self.client):
            return result_of(self.client, submitted(self.client, _work.first_of, self.held[0]))

    def read(self) -> Any:
        """All pieces, brought here a partition at a time."""
        with spoken(self.client):
            for one in self.held:
                yield from result_of(self.client, one)

    def each(self, look: Callable[[Piece, int], Any]) -> Iterator[Any]:
        before = np.concatenate([[0], np.cumsum(self.sizes[:-1])]).tolist()
        look_there = packed(look, "the model")
        with spoken(self.client):
            futures = self._submitted(
                _work.looked_at, self.held, submitted(self.client, _work.same, look_there), before
            )
            for one in futures:
                yield from result_of(self.client, one)

    def answers(self, asked: Asked) -> Iterator[tuple[Any, ...]]:
        return self._answered(_work.answered, asked)

    def by_row(self, asked: Asked) -> Iterator[Any]:
        return self._answered(_work.answered_by_row, asked)

    def _answered(self, work: Callable, asked: Asked) -> Iterator[Any]:
        """In the order of the partitions, whoever comes first."""
        with spoken(self.client):
            arguments = submitted(self.client, _work.same, asked.arguments)
            given = self._recipe(asked.recipe), asked.theta, asked.question, arguments
            for one in self._submitted(work, self.held, *given):
                yield result_of(self.client, one)

    def _recipe(self, recipe: Callable) -> Any:
        """On the workers, with a name by which they know what they have made of it."""
        known = self._recipes.get(id(recipe))
        if known is None:
            there = submitted(self.client, _work.same, packed(recipe, "the log density"))
            # The recipe is held, so that its number is not given again.
            known = self._recipes[id(recipe)] = recipe, there
            while len(self._recipes) > RECIPES_KEPT:
                self._recipes.pop(next(iter(self._recipes)))
        return known[1]

    def _submitted(self, work: Callable, over: Any, *given: Any) -> list[Any]:
        """A task for each; of what is given, lists and ranges go one by one."""
        return [
            submitted(
                self.client,
                work,
                one,
                *(part[k] if isinstance(part, list | range) else part for part in given),
            )
            for k, one in enumerate(over)
        ]


def _together(layouts: list[Layout], numbers: list[int]) -> Layout:
    """Of all partitions: all must hold the same, and what is not a whole number in one of them is
    a real one in all."""
    first = layouts[0]
    types = list(first.dtypes)
    for one, number in zip(layouts[1:], numbers[1:], strict=True):
        same = one.form.names == first.form.names and one.form.tails == first.form.tails
        if not same:
            raise InputError(
                f"data: partition {number} holds {_told(one)}, where partition {numbers[0]} holds "
                f"{_told(first)}: all must hold the same."
            )
        both = zip(types, one.dtypes, strict=True)
        types = [np.promote_types(a, b) for a, b in both]
    n_rows = sum(one.n_rows for one in layouts)
    return dataclasses.replace(first, dtypes=tuple(types), n_rows=n_rows)


def _told(layout: Layout) -> str:
    both = zip(layout.form.names, layout.form.tails, strict=True)
    return ", ".join(f"{name} {tail or ''}".rstrip() for name, tail in both)


# --- Dask -------------------------------------------------------------------------------------


def _partitions(client: Any, data: Any) -> list[Any]:
    """Futures of partitions, each a pytree of arrays or a frame."""
    if not _is_delayed(data) and hasattr(data, "npartitions") and hasattr(data, "columns"):
        return client.compute(data.to_delayed())
    if isinstance(data, list) and data and all(_is_delayed(one) for one in data):
        return client.compute(data)
    leaves, tree = jtu.tree_flatten(data)
    if not leaves or not all(_is_dask_array(one) for one in leaves):
        kinds = sorted({type(one).__name__ for one in leaves}) or [type(data).__name__]
        raise InputError(
            "cluster.dask: data are a Dask data frame, Dask arrays (in a dict, say) or a list of "
            f"dask.delayed values, not {', '.join(kinds)}. Data of this machine: mixvi.Pieces."
        )
    return client.compute(_delayed_trees(leaves, tree))


def _delayed_trees(leaves: list[Any], tree: Any) -> list[Any]:
    from dask.delayed import delayed

    cuts = {one.chunks[0] for one in leaves if one.ndim}
    if any(not one.ndim for one in leaves) or len(cuts) != 1:
        shown = ", ".join(str(one.chunks[:1]) for one in leaves)
        raise InputError(
            "cluster.dask: all arrays must be cut alike along their first axis, not "
            f"{shown}: use rechunk."
        )
    (cut,) = cuts
    if any(math.isnan(n) for n in cut):
        raise InputError(
            "cluster.dask: the sizes of the chunks are not known: call compute_chunk_sizes() first."
        )
    whole = [one.rechunk({k: -1 for k in range(1, one.ndim)}) for one in leaves]
    blocks = [np.ravel(one.to_delayed()) for one in whole]
    make = delayed(functools.partial(_tree_of, tree), pure=False)
    return [make(*each) for each in zip(*blocks, strict=True)]


def _tree_of(tree: Any, *leaves: Any) -> Any:
    return jtu.tree_unflatten(tree, leaves)


def _is_delayed(one: Any) -> bool:
    # A delayed value has every attribute that it is asked for.
    from dask.delayed import Delayed

    return isinstance(one, Delayed)


def _is_dask_array(one: Any) -> bool:
    return not _is_delayed(one) and hasattr(one, "to_delayed") and hasattr(one, "chunks")
