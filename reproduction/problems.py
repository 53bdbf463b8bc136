"""A block of splits becomes one batch of problems of the same shape, with their test rows; and what
a protocol fits to them."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from mixvi import IID, LowRank, Matched, MeanField
from mixvi.estimators._weights import centre_and_scale, standardiser
from mixvi.models import RBF, Bernoulli, Cauchy, Model, Softmax, paper_starts, spread_starts

from . import data
from .experiments import Settings

# Rows are filled up (with weight zero) to one of few lengths: sets then share compiled code.
LENGTHS = {"bernoulli": (200, 480, 704, 1300), "softmax": (128, 160, 240, 448, 608)}
GRID = np.linspace(-10, 10, 200)[:, None]  # along the curve of Figure 2


@dataclasses.dataclass(frozen=True)
class Problems:
    """Stacked arrays: the splits are on the first axis of every leaf."""

    model: Model
    init: Any
    data: Any  # of the log density
    starts: list[Any]  # hyperparameters, one start of all splits at a time
    shared: Any  # what the basis learnt
    test: Any  # the basis's rows of the test set
    y_test: np.ndarray
    y_centre: np.ndarray  # zero and unit of the scaled target, in those of the data
    y_scale: np.ndarray
    grid: Any = None  # the basis's rows of GRID, first split only

    def first(self, n: int) -> "Problems":
        """The first so many splits, as far as scores need them."""
        names = ("data", "shared", "test", "y_test", "y_scale")
        some = {name: jax.tree.map(lambda leaf: leaf[:n], getattr(self, name)) for name in names}
        return dataclasses.replace(self, **some)


class Scaled(NamedTuple):
    """One split, standardised."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    y_centre: float = 0.0
    y_scale: float = 1.0
    grid: np.ndarray | None = None


def stacked(trees: Iterable[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def scaled(
    experiment: str, name: str, indices: Sequence[int], settings: Settings
) -> tuple[list[Scaled], int]:
    """Standardised splits and the number of classes (1 for a regression)."""
    by = settings.protocol.scale_by
    if experiment == "cauchy":
        return [_scaled_curve(data.cauchy(i, seed=settings.seed), by) for i in indices], 1
    table = data.load(name)
    keep = np.ptp(table.x, axis=0) > 0
    # Over all rows, training and test together, as the published files are.
    over_all = experiment == "multiclass" or name in ("splice", "solar")
    out = []
    for split in data.splits(table, indices, seed=settings.seed):
        x, x_test = split.x[:, keep], split.x_test[:, keep]
        centre, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
        if by == "training" or over_all:
            rows = x if by == "training" else np.concatenate([x, x_test])
            centre, scale = standardiser(rows, np.ones(len(rows)))
        out.append(Scaled((x - centre) / scale, split.y, (x_test - centre) / scale, split.y_test))
    return out, table.n_classes


def _scaled_curve(split: data.Split, by: str) -> Scaled:
    centre, scale, y_centre, y_scale = np.zeros(1), np.ones(1), 0.0, 1.0
    if by == "training":
        weight = np.ones(len(split.y))
        centre, scale = standardiser(split.x, weight)
        y_centre, y_scale = centre_and_scale(split.y, weight)
    x, x_test, grid = ((part - centre) / scale for part in (split.x, split.x_test, GRID))
    y, y_test = ((part - y_centre) / y_scale for part in (split.y, split.y_test))
    return Scaled(x, y, x_test, y_test, y_centre, y_scale, grid)


def problems(
    splits: list[Scaled],
    n_classes: int,
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
    model = Model(RBF(widest), likelihood, settings.protocol.weak_prior)
    learnt = [basis.fit_shared(split.x, settings.seed) for split in splits]
    arrays = [_arrays(model, basis, *one) for one in zip(splits, learnt, strict=True)]
    starts = []
    for i, shared in zip(indices, learnt, strict=True):
        n_starts, rng = settings.protocol.n_starts, np.random.default_rng([settings.seed, i, size])
        starts.append(
            spread_starts(model, shared)
            if n_starts is None
            else paper_starts(model, shared, n_starts, rng)
        )
    return Problems(
        model=model,
        init=model.init(learnt[0]),
        starts=[stacked(one) for one in zip(*starts, strict=True)],
        y_centre=np.array([split.y_centre for split in splits]),
        y_scale=np.array([split.y_scale for split in splits]),
        grid=None if splits[0].grid is None else basis.rows(splits[0].grid, learnt[0]),
        **stacked(arrays),
    )


def _arrays(model: Model, basis: RBF, split: Scaled, shared: dict[str, Any]) -> dict[str, Any]:
    n = len(split.y)
    length = next(one for one in (*LENGTHS.get(model.likelihood.name, ()), n) if one >= n)
    take, weight = np.minimum(np.arange(length), n - 1), (np.arange(length) < n).astype(float)
    return {
        "data": model.data(basis.rows(split.x[take], shared), shared, split.y[take], weight),
        "shared": model.basis.traced(shared),
        "test": basis.rows(split.x_test, shared),
        "y_test": np.asarray(split.y_test, dtype=np.float64),
    }


# --- families ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LowRankFromNoise(LowRank):
    """MVI_lr from the paper's start: U, V ~ N(0, 0.01 I) in `L = C + U V^T`, so `U <- R^-1 U`."""

    seed: int = 0

    start_is_stationary: ClassVar[bool] = False

    @property
    def poorer(self):
        return None

    def starts(self, root, a, gradient, laplace_root):
        del gradient, laplace_root
        u, v = np.random.default_rng(self.seed).normal(0.0, 0.1, (2, a.shape[0]))
        return np.concatenate([np.linalg.solve(root, u), v])[None]


@dataclasses.dataclass(frozen=True)
class MeanFieldFromMarginal(MeanField):
    """VI_diag from the paper's first start: the variances of the Laplace covariance."""

    def starts(self, root, a, gradient, laplace_root):
        del a, gradient
        return self.marginal(root, laplace_root)[None]


def families(settings: Settings, method: str) -> dict[str, Any]:
    """What to fit for a method, by the name of its start; VI_diag has two."""
    as_paper = settings.protocol.name == "paper"
    if method == "diag":
        its: dict[str, Any] = {start: MeanField(start) for start in settings.protocol.diag_starts}
        return its | {"laplace": MeanFieldFromMarginal()} if as_paper else its
    if method == "lr" and as_paper:
        return {"random": LowRankFromNoise(seed=settings.seed)}
    return {"": method}


def options(settings: Settings, family: Any, n_outputs: int) -> dict[str, Any]:
    """How to go about it: the paper's families around the mode, "auto" as it likes; the paper's
    draws, or as `fit` does by default (quadrature over linear predictors, where there are any)."""
    protocol, n = settings.protocol, settings.n_draws
    draws = None if n is None or n_outputs == 1 else Matched(n)
    if protocol.iid_draws is not None:
        draws = IID(n or protocol.iid_draws)
    search = {"optimiser": protocol.optimiser, "anchor": "mode"}
    if family == "auto":
        search = {"optimiser": "auto", "anchor": "auto"}
    return {"family": family, "draws": draws, "key": settings.seed, **search}
