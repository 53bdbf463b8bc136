"""A block of splits becomes one batch of problems of the same shape, with their test rows."""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from ..estimators._weights import centre_and_scale, standardiser
from ..models import RBF, Bernoulli, Cauchy, Model, Softmax, paper_starts, spread_starts
from ..paper import data
from ._protocol import Protocol, Settings

# Rows are filled up (with weight zero) to one of few lengths: sets then share compiled code.
TWO_CLASSES, MORE_CLASSES = (200, 480, 704, 1300), (128, 160, 240, 448, 608)
Table = Float[np.ndarray, "n features"]


@dataclasses.dataclass(frozen=True)
class Problems:
    """Stacked arrays: the splits are on the first axis of every leaf."""

    model: Model
    init: Any
    data: PyTree  # of the log density
    starts: list[PyTree]  # hyperparameters, one start of all splits at a time
    shared: PyTree  # what the basis learnt
    test: PyTree  # the basis's rows of the test set
    y_test: np.ndarray
    y_centre: np.ndarray  # zero and unit of the scaled target, in those of the data
    y_scale: np.ndarray
    grid: PyTree | None  # rows along the curve of Figure 2, first split only

    def __len__(self) -> int:
        return len(self.y_test)


class _Scaled(NamedTuple):
    """One split, standardised."""

    x: Table
    y: np.ndarray
    x_test: Table
    y_test: np.ndarray
    y_centre: float
    y_scale: float
    grid: Table


def splits_of(experiment: str, name: str, indices: Sequence[int], settings: Settings) -> list:
    """The splits as they come, not scaled."""
    if experiment == "cauchy":
        return [data.cauchy(i, seed=settings.seed) for i in indices]
    return data.splits(data.load(name), list(indices), seed=settings.seed)


def scaled(
    experiment: str, name: str, indices: Sequence[int], settings: Settings
) -> tuple[list[_Scaled], int]:
    """Standardised splits and the number of classes (1 for a regression)."""
    splits, by = splits_of(experiment, name, indices, settings), settings.protocol.scale_by
    grid = np.linspace(-10, 10, 200)[:, None]
    if experiment == "cauchy":
        return [_scaled_curve(split, by, grid) for split in splits], 1
    table = data.load(name)
    keep = np.ptp(table.x, axis=0) > 0
    out = []
    for split in splits:
        x, x_test = split.x[:, keep], split.x_test[:, keep]
        centre, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
        if by == "training":
            centre, scale = standardiser(x, np.ones(len(x)))
        elif experiment == "multiclass" or name in ("splice", "solar"):
            # Over all rows, training and test together, as the published files are.
            rows = np.concatenate([x, x_test])
            centre, scale = standardiser(rows, np.ones(len(rows)))
        some = ((part - centre) / scale for part in (x, x_test))
        x, x_test = some
        out.append(_Scaled(x, split.y, x_test, split.y_test, 0.0, 1.0, x_test[:1]))
    return out, table.n_classes


def _scaled_curve(split: Any, by: str, grid: Table) -> _Scaled:
    centre, scale, y_centre, y_scale = np.zeros(1), np.ones(1), 0.0, 1.0
    if by == "training":
        weight = np.ones(len(split.y))
        centre, scale = standardiser(split.x, weight)
        y_centre, y_scale = centre_and_scale(split.y, weight)
    x, x_test, line = ((part - centre) / scale for part in (split.x, split.x_test, grid))
    y, y_test = ((part - y_centre) / y_scale for part in (split.y, split.y_test))
    return _Scaled(x, y, x_test, y_test, y_centre, y_scale, line)


def problems(
    splits: list[_Scaled],
    n_classes: int,
    protocol: Protocol,
    settings: Settings,
    indices: Sequence[int],
    size: int,
    padded_to: int = 0,
) -> Problems:
    """The batch for one number of basis functions; `padded_to` fills the basis up."""
    likelihood = {1: Cauchy(), 2: Bernoulli()}.get(n_classes) or Softmax(n_classes)
    # Titanic has fewer distinct rows than basis functions, in some splits fewer than in others: all
    # are filled up to one size, so that no row depends on which others run with it.
    widest = padded_to or size
    basis = RBF(size, padded_to=widest)
    model = Model(RBF(widest), likelihood, protocol.weak_prior)
    with ThreadPoolExecutor() as pool:
        learnt = list(pool.map(lambda split: basis.fit_shared(split.x, settings.seed), splits))
    parts = [
        _one(model, basis, split, shared, protocol, np.random.default_rng([settings.seed, i, size]))
        for i, split, shared in zip(indices, splits, learnt, strict=True)
    ]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(part for part, _ in parts))
    starts = zip(*(its for _, its in parts), strict=True)
    return Problems(
        model=model,
        init=model.init(learnt[0]),
        starts=[jax.tree.map(lambda *leaves: np.stack(leaves), *one) for one in starts],
        y_centre=np.array([split.y_centre for split in splits]),
        y_scale=np.array([split.y_scale for split in splits]),
        grid=basis.rows(splits[0].grid, learnt[0]) if n_classes == 1 else None,
        **stacked,
    )


def _one(
    model: Model,
    basis: RBF,
    split: _Scaled,
    shared: dict[str, Any],
    protocol: Protocol,
    rng: np.random.Generator,
) -> tuple[dict[str, Any], list]:
    n = len(split.y)
    lengths = {"bernoulli": TWO_CLASSES, "softmax": MORE_CLASSES}.get(model.likelihood.name, ())
    length = next(length for length in (*lengths, n) if length >= n)
    take, weight = np.minimum(np.arange(length), n - 1), (np.arange(length) < n).astype(float)
    arrays = {
        "data": model.data(basis.rows(split.x[take], shared), shared, split.y[take], weight),
        "shared": model.basis.traced(shared),
        "test": basis.rows(split.x_test, shared),
        "y_test": np.asarray(split.y_test, dtype=np.float64),
    }
    if protocol.n_starts is None:
        return arrays, spread_starts(model, shared)
    return arrays, paper_starts(model, shared, protocol.n_starts, rng)
