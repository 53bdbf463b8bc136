"""How well rows left out are predicted, beside a model that knows no column."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from .._arrays._draws import SAMPLE, Matched
from ..metrics import expected_calibration_error
from ..models import LeaveOneOut, RealLikelihood
from ..models._predict import Predictive
from ._target import CLASSIFY, COUNT, Target

POINTS, MOST_ROWS, N_BINS = 512, 5000, 15
# Tables drawn from the probabilities; of many rows fewer, so that these are numbers in all.
N_LUCK, LEAST_LUCK, MOST_LUCK = 400, 60, 2 * 10**6
LEVEL = 0.9
# Standard errors of the gain that luck does not reach.
CLEARLY = 2.0


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Every row, predicted from all others: probabilities of the classes; or locations, and the
    share of the predictive distribution below what was observed."""

    y: Float[np.ndarray, " n"]
    proba: Float[np.ndarray, "n classes"] | None = None
    location: Float[np.ndarray, " n"] | None = None
    below: Float[np.ndarray, " n"] | None = None
    within: Float[np.ndarray, " n"] | None = None  # whether an interval of LEVEL holds the row


@dataclasses.dataclass(frozen=True)
class Score:
    """`hit` and `hit_without`: of rows left out, the share of classes that are right, or the
    typical miss; by the model, and without any column. `gain`: nats by which rows left out are
    more probable, with its standard error. `off`: of probabilities, the mean distance from how
    often it happens; of intervals, how far from LEVEL of the rows they hold; `luck`: what luck
    alone stays below, 19 times in 20. `held`: the share of rows that intervals of LEVEL hold."""

    hit: float
    hit_without: float
    explained: float
    gain: float
    gain_se: float
    off: float
    luck: float
    loo: float
    n: int
    held: float | None = None

    @property
    def better(self) -> bool:
        return self.gain > CLEARLY * self.gain_se

    @property
    def calibrated(self) -> bool:
        return self.off <= self.luck

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"better": self.better, "calibrated": self.calibrated}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Score":
        names = [one.name for one in dataclasses.fields(cls) if one.name != "held"]
        return cls(**{name: stored[name] for name in names}, held=stored.get("held"))


def left_out(
    loo: LeaveOneOut, predictive: Predictive, target: Target, zero: float, unit: float
) -> LeftOut:
    if target.task == CLASSIFY:
        return LeftOut(loo.y, _proba(loo, len(target.classes)))
    likelihood, hyper = predictive.model.likelihood, predictive.hyper
    assert isinstance(likelihood, RealLikelihood)
    tail = (1 - LEVEL) / 2

    def cdf(y: np.ndarray) -> np.ndarray:
        return np.asarray(likelihood.predictive_cdf(y, loo.centre, loo.spread, hyper))

    at = under = cdf(loo.y)
    if target.task == COUNT:
        under = cdf(loo.y - 1)
    within = ((at >= tail) & (under <= 1 - tail)).astype(np.float64)
    y, location = zero + unit * loo.y, zero + unit * loo.predicted
    return LeftOut(y, None, location, 0.5 * (at + under), within)


def _proba(loo: LeaveOneOut, n_classes: int) -> Float[np.ndarray, "n classes"]:
    own = np.exp(loo.pointwise)
    if n_classes == 2:
        second = np.where(loo.y == 1, own, 1 - own)
        return np.stack([1 - second, second], 1)
    z = Matched(POINTS).make(0, n_classes, SAMPLE)
    proba = []
    for i in range(0, len(loo.y), MOST_ROWS):
        some = slice(i, i + MOST_ROWS)
        eta = loo.centre[some, None] + z @ loo.spread[some].transpose(0, 2, 1)
        proba.append(softmax(eta, axis=2).mean(1))
    found = np.concatenate(proba)
    return found / found.sum(1, keepdims=True)


def score(
    loo: LeaveOneOut, without: LeaveOneOut, rows: LeftOut, target: Target, unit: float = 1.0
) -> Score:
    """`unit`: of a target that was scaled."""
    gain, se = loo.gain_over(without)
    shared = {"gain": gain, "gain_se": se, "loo": loo.mean, "n": len(loo.y)}
    if rows.proba is not None:
        right = float((rows.proba.argmax(1) == rows.y).mean())
        usual = max(target.counts) / sum(target.counts)
        off, luck = _calibration(rows.y, rows.proba)
        return Score(right, usual, 0.0, off=off, luck=luck, **shared)
    assert rows.within is not None
    # In the model's own unit, whose squares neither over- nor underflow.
    y, away = loo.y, loo.y - loo.predicted
    miss = unit * float(np.median(np.abs(away)))
    usual = unit * float(np.median(np.abs(y - np.median(y))))
    explained = 1 - (away**2).sum() / ((y - y.mean()) ** 2).sum()
    held, luck = float(rows.within.mean()), 2 * np.sqrt(LEVEL * (1 - LEVEL) / len(rows.y))
    off = held - LEVEL
    if target.task == COUNT and off > 0:
        off = 0.0  # counts are coarse: an interval of them holds more
    how = {"off": abs(off), "luck": float(luck), "held": held}
    return Score(miss, usual, float(explained), **how, **shared)


def _calibration(y: np.ndarray, proba: np.ndarray) -> tuple[float, float]:
    """The calibration error, and what it stays below, 19 times in 20, where the probabilities are
    true: then the predicted class is right with its own probability."""
    rng = np.random.default_rng(len(y))
    off = expected_calibration_error(y, proba, N_BINS)
    confidence = proba.max(1)
    which = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    away = []
    for _ in range(max(MOST_LUCK // len(y), LEAST_LUCK) if len(y) > MOST_ROWS else N_LUCK):
        hits = rng.random(len(y)) < confidence
        away.append(np.abs(np.bincount(which, hits - confidence)).sum() / len(y))
    return off, float(np.quantile(away, 0.95))
