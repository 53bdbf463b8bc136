"""Problems of one shape that are solved in one call, and which of them can go side by side."""

import dataclasses
import functools
from collections.abc import Callable

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Int, PyTree

from .._approximate._batch import MEAN, WHOLE, WIDTHS
from .._approximate._families import EigenScale, Family, FullRank, MeanOnly
from .._arrays._draws import Draws, Quadrature
from .._density._target import Target
from ._options import AUTO, Options

KINDS: dict[type[Family], int] = {MeanOnly: MEAN, EigenScale: WIDTHS, FullRank: WHOLE}

Index = Int[np.ndarray, " asked"]


@dataclasses.dataclass(frozen=True)
class Batch:
    """Problems of one shape: `target` holds the data (and hyperparameters) of all of them, with the
    problems on the first axis; `fixed` are the first draws or nodes of each."""

    log_density: Callable
    target: Target
    starts: np.ndarray
    options: Options
    fixed: Draws | Quadrature | None

    def __len__(self) -> int:
        return len(self.starts)

    @functools.cached_property
    def _on_host(self) -> PyTree:
        """Where one problem's part is cheap to take."""
        return jtu.tree_map(np.asarray, self.target.data)

    def block(self, numbers: Index) -> "Batch":
        data = jtu.tree_map(lambda leaf: leaf[numbers], self._on_host)
        target = dataclasses.replace(self.target, data=data, theta=self.target.theta[numbers])
        return dataclasses.replace(self, target=target, starts=self.starts[numbers])

    def part(self, index: int) -> Target:
        data = jtu.tree_map(lambda leaf: leaf[index], self._on_host)
        return dataclasses.replace(self.target, data=data, theta=self.target.theta[index])


def suits(batch: Batch) -> bool:
    """Whether the road leads where this batch wants to go."""
    options, family = batch.options, batch.options.richest
    if batch.target.hyper_structure is not None or options.n_restarts:
        return False
    if family is None:
        return True
    if type(family) not in KINDS or not isinstance(batch.fixed, Draws):
        return False
    by_steps = options.optimiser in (AUTO, "stein") and options.anchor != "average"
    # Draws of the user's own may be too few for what "auto" would do.
    return by_steps and not (options.is_auto and options.draws is not None)
