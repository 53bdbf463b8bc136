"""A split of a data set becomes a model with its data and test rows; and what a protocol fits."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from mixvi import IID, LowRank, Matched, MeanField
from mixvi.estimators._weights import centre_and_scale, standardiser
from mixvi.models import (
    RBF,
    Basis,
    Bernoulli,
    Cauchy,
    GaussianProcess,
    Likelihood,
    Model,
    Softmax,
    StudentT,
)
from mixvi.models._choose import Data, spread_starts

from . import data
from .experiments import Settings

GRID = np.linspace(-10, 10, 200)[:, None]  # along the curve of Figure 2
DF = 4.0  # degrees of freedom of the robust Gaussian processes: the paper does not say


@dataclasses.dataclass(frozen=True)
class Split:
    """One split, standardised. `y_centre`, `y_scale`: zero and unit of a scaled target, in those of
    the data, in which scores are (but for the unprinted table, whose targets are standardised)."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    likelihood: Likelihood
    y_centre: float = 0.0
    y_scale: float = 1.0
    grid: np.ndarray | None = None

    @property
    def data(self) -> Data:
        return Data.of(self.x, self.y, np.ones(len(self.y)))


def split_of(experiment: str, name: str, index: int, settings: Settings) -> Split:
    by = settings.protocol.scale_by
    if experiment == "cauchy":
        return _curve(data.cauchy(index, seed=settings.seed), by)
    table = data.load(name)
    one = data.splits(table, [index], seed=settings.seed)[0]
    keep = np.ptp(table.x, axis=0) > 0
    x, x_test = one.x[:, keep], one.x_test[:, keep]
    centre, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    # Over all rows, training and test together, as the published files are.
    over_all = experiment != "binary" or name in ("splice", "solar")
    if by == "training" or over_all:
        rows = x if by == "training" else np.concatenate([x, x_test])
        centre, scale = standardiser(rows, np.ones(len(rows)))
    x, x_test = (x - centre) / scale, (x_test - centre) / scale
    if experiment == "robust_gp":
        middle, unit = one.y.mean(), one.y.std()
        y, y_test = (one.y - middle) / unit, (one.y_test - middle) / unit
        return Split(x, y, x_test, y_test, StudentT(DF))
    y, y_test = (np.asarray(part, dtype=np.float64) for part in (one.y, one.y_test))
    likelihood = Bernoulli() if table.n_classes == 2 else Softmax(table.n_classes)
    return Split(x, y, x_test, y_test, likelihood)


def _curve(split: data.Split, by: str) -> Split:
    centre, scale, y_centre, y_scale = np.zeros(1), np.ones(1), 0.0, 1.0
    if by == "training":
        weight = np.ones(len(split.y))
        centre, scale = standardiser(split.x, weight)
        y_centre, y_scale = centre_and_scale(split.y, weight)
    x, x_test, grid = ((part - centre) / scale for part in (split.x, split.x_test, GRID))
    y, y_test = ((part - y_centre) / y_scale for part in (split.y, split.y_test))
    return Split(x, y, x_test, y_test, Cauchy(), y_centre, y_scale, grid)


def model_of(split: Split, experiment: str, settings: Settings, size: int) -> Model:
    basis: Basis = GaussianProcess() if experiment == "robust_gp" else RBF(size)
    return Model(basis, split.likelihood, settings.protocol.weak_prior)


def starts_of(
    model: Model, shared: dict[str, Any], settings: Settings, index: int, size: int
) -> Sequence[dict[str, Any]]:
    """Spread ones or, as in the paper, `r, alpha ~ U(0, 1)` for each."""
    n, base = settings.protocol.n_starts, model.hyper(shared)
    if n is None or "log_alpha" not in base:
        return spread_starts(model, shared)
    drawn = np.random.default_rng([settings.seed, index, size]).uniform(1e-3, 1.0, (n, 2))
    return [
        base | {"log_width": np.float64(np.log(r)), "log_alpha": np.float64(np.log(alpha))}
        for r, alpha in drawn
    ]


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
    if family == "full":  # beside the paper: Stein steps, in both protocols
        search = {"optimiser": "auto", "anchor": "mode"}
    if family == "auto":
        search = {"optimiser": "auto", "anchor": "auto"}
    return {"family": family, "draws": draws, "key": settings.seed, **search}
