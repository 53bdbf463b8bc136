"""What each column does, the others averaged over the rows: partial dependence with bands.

For a value v of a column and a draw w of the weights

    effect(v, w) = mean over rows i of E(y | w, row i with v in that column)

whose mean and quantiles over draws of the posterior are what is shown. A column matters as much as
its effect varies over the values that it takes in the table.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._draws import IID, SAMPLE, Draws, Matched
from ..models import Predictive
from ..models._predict import drawn
from ._columns import Category, Column, Columns, Number

N_DRAWS, N_ROWS, N_POINTS = 256, 120, 25
BAND = (0.05, 0.95)
# Where a column ends: few rows are beyond.
ENDS = (0.01, 0.99)


@dataclasses.dataclass(frozen=True)
class Effect:
    """`at`: values of the column, with the share of rows near each; `mean`, `low`, `high` of every
    output (the probability of a class, or the mean) there, (outputs, points); `size`: the standard
    deviation of the effect over the rows, of the output where it is largest, with its own band."""

    column: str
    at: tuple[Any, ...]
    share: Float[np.ndarray, " points"]
    outputs: tuple[str, ...]
    mean: Float[np.ndarray, "outputs points"]
    low: Float[np.ndarray, "outputs points"]
    high: Float[np.ndarray, "outputs points"]
    size: float
    size_low: float
    size_high: float

    @property
    def is_number(self) -> bool:
        return not isinstance(self.at[0], str)

    @property
    def main(self) -> int:
        """The output that changes most."""
        return int((self.mean.max(1) - self.mean.min(1)).argmax())

    @property
    def ends(self) -> tuple[int, int]:
        """The points where the main output is lowest and highest."""
        line = self.mean[self.main]
        return int(line.argmin()), int(line.argmax())

    @property
    def apart(self) -> bool:
        """Whether the bands are apart where the effect is lowest and where it is highest."""
        low, high = self.ends
        return bool(self.high[self.main, low] < self.low[self.main, high])

    def to_json(self) -> dict[str, Any]:
        made = dataclasses.asdict(self)
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in made.items()}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Effect":
        arrays = {n: np.array(stored[n]) for n in ("share", "mean", "low", "high")}
        lists = {n: tuple(stored[n]) for n in ("at", "outputs")}
        return cls(**{**stored, **arrays, **lists})


@dataclasses.dataclass(frozen=True)
class Setting:
    """What effects are made of: encoded rows, how features are scaled, and how a prediction goes
    back to the units of the table."""

    columns: Columns
    predictive: Predictive
    centre: np.ndarray
    scale: np.ndarray
    outputs: tuple[str, ...]
    zero: float = 0.0
    unit: float = 1.0


def effects(setting: Setting, x: Float[np.ndarray, "n features"], seed: int) -> list[Effect]:
    """Of every column: first those whose effect can be told, the largest first."""
    rng = np.random.default_rng([seed, len(x)])
    few = np.sort(rng.choice(len(x), min(len(x), N_ROWS), replace=False))
    weights = setting.predictive.coloured(_draws(len(setting.predictive.mean)))
    made = []
    for column in setting.columns.used:
        where = setting.columns.slices()[column.name]
        made.append(_effect(setting, column, where, x, x[few], weights))
    return sorted(made, key=lambda one: (not one.apart, -one.size))


def _draws(dim: int) -> np.ndarray:
    kind: Draws = Matched(N_DRAWS) if dim < N_DRAWS // 2 else IID(N_DRAWS)
    return kind.make(0, dim, SAMPLE)


def _effect(
    setting: Setting, column: Column, where: slice, x: np.ndarray, few: np.ndarray, w: np.ndarray
) -> Effect:
    at, share = _points(column, x[:, where])
    features = column.points(at)
    found = []
    for point in features:
        moved = few.copy()
        moved[:, where] = point
        found.append(_averaged(setting, moved, w))
    values = np.stack(found, -1)  # (draws, outputs, points)
    mean = values.mean(0)
    low, high = np.quantile(values, BAND, axis=0)
    centred = values - (values @ share)[..., None]
    sizes = np.sqrt((centred**2) @ share).max(1)
    overall = np.sqrt(((mean - (mean @ share)[:, None]) ** 2) @ share).max()
    bounds = np.quantile(sizes, BAND)
    shown = tuple(at) if isinstance(column, Category) else tuple(float(one) for one in at)
    return Effect(
        column.name,
        shown,
        share,
        setting.outputs,
        mean,
        low,
        high,
        float(overall),
        *bounds.tolist(),
    )


def _points(column: Column, values: np.ndarray) -> tuple[Any, Float[np.ndarray, " points"]]:
    """Where the effect is looked at, and the share of rows near each."""
    if isinstance(column, Category):
        counts = np.array(column.counts, dtype=np.float64)
        return column.levels, counts / counts.sum()
    assert isinstance(column, Number)
    distinct, counts = np.unique(values[:, 0], return_counts=True)
    if len(distinct) <= N_POINTS:
        return distinct, counts / counts.sum()
    low, high = np.quantile(values, ENDS)
    if not low < high:
        low, high = distinct[0], distinct[-1]
    at = np.linspace(low, high, N_POINTS)
    if (distinct == np.round(distinct)).all():
        at = np.unique(np.round(at))
    nearest = np.abs(values - at).argmin(1)
    counts = np.bincount(nearest, minlength=len(at))
    return at, counts / counts.sum()


def _averaged(setting: Setting, x: np.ndarray, w: np.ndarray) -> Float[np.ndarray, "draws out"]:
    """`E(y | w)` over these rows, for every draw."""
    predictive = setting.predictive
    rows = predictive.model.basis.rows((x - setting.centre) / setting.scale, predictive.shared)
    design, rest = predictive.design_and_rest(rows)
    eta = w @ design.T  # (draws, n) or (draws, outputs, n)
    if rest is not None:
        rng = np.random.default_rng(0)
        eta = eta + drawn(rest, rng, eta.size // len(design)).T.reshape(eta.shape)
    if predictive.outputs > 1:
        eta = np.moveaxis(eta, 1, 2)
    value = np.asarray(predictive.model.likelihood.mean(eta, predictive.hyper))
    value = value.mean(1)
    return setting.zero + setting.unit * (value if value.ndim == 2 else value[:, None])
