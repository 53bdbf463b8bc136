"""From a file to a model: read, understood, fitted, scored."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._fit._posterior import Posterior
from .._fit._threads import blas_for
from ..models import LeaveOneOut, Predictive, leave_one_out
from ..models._loo import equal_rows
from ._columns import Columns, Wishes, learnt
from ._effects import Setting, effects
from ._model import Settings, TableModel
from ._read import Options, Raw, read
from ._scores import LeftOut, left_out, score
from ._target import CLASSIFY, COUNT, Target, target_of

AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the user asks of a fit."""

    target: str
    task: str | None = None
    family: str = AUTO
    basis: str = AUTO
    noise: str = "student_t"
    seed: int = 0
    wishes: Wishes = dataclasses.field(default_factory=Wishes)
    options: Options = dataclasses.field(default_factory=Options)


class Fitted(NamedTuple):
    """The model, and what a report shows of the rows that it was fitted to."""

    model: TableModel
    raw: Raw
    left_out: LeftOut


def silent(stage: str) -> None:
    del stage


def fit_table(path: str | Path, asked: Asked, tell: Callable[[str], None] = silent) -> Fitted:
    """Reads the file and fits a model of the target; `tell` is told what is done."""
    tell("reading")
    raw = read(path, asked.options)
    target, y = target_of(raw, asked.target, asked.task)
    columns = learnt(raw, asked.target, asked.wishes, asked.options.missing)
    x, said = columns.encoded(raw)
    tell("fitting")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = _chosen(asked, target, x, y)
        tell("scoring")
        without = _without_columns(asked, target, y)
    notes = list(dict.fromkeys([*raw.notes, *said, *(str(one.message) for one in caught)]))
    with blas_for(len(y)):
        return _fitted(asked, raw, target, columns, x, chosen, without, notes)


class Scored(NamedTuple):
    estimator: Any
    loo: LeaveOneOut


def _chosen(asked: Asked, target: Target, x: np.ndarray, y: np.ndarray) -> Scored:
    """With a basis left open: radial basis functions, where these predict rows left out better
    than the columns themselves by more than luck."""
    if asked.basis != AUTO:
        return _scored(_estimator(asked, target, asked.basis), x, y)
    straight, curved = (
        _scored(_estimator(asked, target, basis), x, y) for basis in ("linear", "rbf")
    )
    gain, se = curved.loo.gain_over(straight.loo)
    return curved if gain > se else straight


def _without_columns(asked: Asked, target: Target, y: np.ndarray) -> Scored:
    """The same model of a constant alone."""

    def nothing(x: np.ndarray) -> np.ndarray:
        return np.zeros((len(x), 1))

    return _scored(_estimator(asked, target, nothing), np.arange(len(y))[:, None], y)


def _scored(estimator: Any, x: np.ndarray, y: np.ndarray) -> Scored:
    """Leaves out one row at a time. (The estimators leave out equal rows together, so that a row
    of weight two is two rows; but the rows of a file are observations, each its own.)"""
    estimator.fit(x, y)
    if equal_rows(x, y) is None:
        return Scored(estimator, estimator._loo)
    post = estimator.posterior_
    density = estimator._model.density(
        estimator._scaled(x),
        (y - zero_of(estimator)) / unit_of(estimator),
        shared=estimator._shared,
        hyper=estimator.hyper_,
    )
    at_mode = post.family == "laplace"
    return Scored(estimator, leave_one_out(density, post.flat_mean, post.root, at_mode))


def zero_of(estimator: Any) -> float:
    """Of a target that is scaled inside; of others, nothing."""
    return float(estimator._target_zero)


def unit_of(estimator: Any) -> float:
    return float(estimator._target_unit)


def _estimator(asked: Asked, target: Target, basis: Any) -> Any:
    try:
        from ..estimators import MVIClassifier, MVIRegressor
    except ImportError as err:
        raise ImportError("fitting tables needs scikit-learn: pip install 'mixvi[cli]'") from err

    shared = {"basis": basis, "random_state": asked.seed}
    if target.task == CLASSIFY:
        return MVIClassifier(asked.family, **shared)
    noise = "poisson" if target.task == COUNT else asked.noise
    return MVIRegressor(asked.family, noise=noise, **shared)


def _fitted(
    asked: Asked,
    raw: Raw,
    target: Target,
    columns: Columns,
    x: np.ndarray,
    chosen: Scored,
    without: Scored,
    notes: list[str],
) -> Fitted:
    estimator, loo = chosen
    post: Posterior = estimator.posterior_
    stats = dataclasses.replace(post.stats, seconds=None)  # another time, the same model
    zero, unit = zero_of(estimator), unit_of(estimator)
    predictive: Predictive = estimator._predictive
    rows = left_out(loo, predictive, target, zero, unit)
    outputs = target.classes if target.task == CLASSIFY else (target.name,)
    if len(outputs) == 2:
        outputs = outputs[1:]
    setting = Setting(columns, predictive, estimator._centre, estimator._scale, outputs, zero, unit)
    model = TableModel(
        target,
        columns,
        Settings.of(estimator._model),
        dataclasses.replace(post, stats=stats),
        {name: np.asarray(value) for name, value in estimator.hyper_.items()},
        {name: np.asarray(value) for name, value in estimator._shared.items()},
        estimator._centre,
        estimator._scale,
        zero,
        unit,
        score(loo, without.loo, rows, target, unit),
        tuple(effects(setting, x, asked.seed)),
        {
            "file": Path(raw.path).name,
            "rows": raw.n_rows,
            "how": raw.how,
            "seed": asked.seed,
            "notes": notes,
            "about": estimator.summary().split("\n", 1)[0],
        },
    )
    return Fitted(model, raw, rows)
