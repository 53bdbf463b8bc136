"""A table's model: what predicts, and everything known about how well."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from .._errors import InputError
from .._fit._posterior import Posterior
from .._fit._threads import one_blas_thread
from ..models import RBF, Bernoulli, GaussianProcess, Linear, Model, Predictive, Softmax
from ..models._noise import REAL, StudentT
from ._columns import Columns
from ._effects import Effect
from ._read import Options, Raw, read
from ._scores import Score
from ._target import CLASSIFY, COUNT, Target

ROWS_AT_ONCE = 20_000
# How near to nothing, or to everything, an interval may come.
CLOSEST, MOST_PLACES = 1e-9, 13


@dataclasses.dataclass(frozen=True)
class Settings:
    """Basis and likelihood in words that a file can hold."""

    basis: str
    likelihood: str
    n_basis: int | None = None
    per_feature: bool = False
    kernel: str = "rbf"
    df: float | None = None

    @classmethod
    def of(cls, model: Model) -> "Settings":
        basis, likelihood = model.basis, model.likelihood
        own: dict[str, Any] = {}
        if isinstance(basis, RBF):
            own = {"n_basis": basis.n_centres, "per_feature": basis.per_feature}
        elif isinstance(basis, GaussianProcess):
            own = {"n_basis": basis.n_inducing, "per_feature": basis.per_feature}
            own |= {"kernel": basis.kernel}
        if isinstance(likelihood, StudentT):
            own |= {"df": likelihood.df}
        return cls(basis.name, likelihood.name, **own)

    def model(self, n_classes: int) -> Model:
        bases = {
            "linear": lambda: Linear(),
            "rbf": lambda: RBF(int(self.n_basis or 1), self.per_feature),
            "gp": lambda: GaussianProcess(self.kernel, self.n_basis, self.per_feature),
        }
        if self.likelihood == "student_t":
            likelihood: Any = StudentT(self.df)
        elif self.likelihood in REAL:
            likelihood = REAL[self.likelihood]()
        else:
            likelihood = Bernoulli() if n_classes == 2 else Softmax(n_classes)
        return Model(bases[self.basis](), likelihood)


@dataclasses.dataclass(frozen=True)
class Predicted:
    """`proba`: of every class; or `mean` and an interval that holds `level` of new observations."""

    target: Target
    proba: Float[np.ndarray, "n classes"] | None = None
    mean: Float[np.ndarray, " n"] | None = None
    low: Float[np.ndarray, " n"] | None = None
    high: Float[np.ndarray, " n"] | None = None
    level: float = 0.9

    def columns(self) -> dict[str, list[Any]]:
        """For a file: names and values."""
        if self.proba is not None:
            best = [self.target.classes[i] for i in self.proba.argmax(1)]
            each = zip(self.target.classes, self.proba.T, strict=True)
            return {"predicted": best} | {f"p({label})": p.tolist() for label, p in each}
        assert self.mean is not None
        assert self.low is not None
        assert self.high is not None
        lower, upper = percentages(self.level)
        return {
            "predicted": self.mean.tolist(),
            lower: self.low.tolist(),
            upper: self.high.tolist(),
        }


@dataclasses.dataclass(frozen=True, eq=False)
class TableModel:
    """A model of one column of a table by the others, made by `mixvi fit` or `tables.fit_table`,
    read back by `tables.load`."""

    target: Target
    columns: Columns
    settings: Settings
    posterior: Posterior
    hyper: dict[str, np.ndarray]
    shared: dict[str, Any]
    centre: Float[np.ndarray, " features"]
    scale: Float[np.ndarray, " features"]
    zero: float
    unit: float
    score: Score
    effects: tuple[Effect, ...]
    facts: dict[str, Any]

    @property
    def predictive(self) -> Predictive:
        """At the weights' Gaussian; of features that are standardised."""
        model = self.settings.model(len(self.target.classes))
        post = self.posterior
        return Predictive(model, self.hyper, self.shared, post.flat_mean, post.root)

    def rows(self, x: Float[np.ndarray, "n features"]) -> dict[str, Any]:
        return self.predictive.model.basis.rows((x - self.centre) / self.scale, self.shared)

    def predict(self, x: Float[np.ndarray, "n features"], level: float = 0.9) -> Predicted:
        """Of encoded rows. The posterior is integrated out; intervals include the noise."""
        return self._predict(x, level, lambda row: f"row {row + 1}")

    def _predict(
        self, x: Float[np.ndarray, "n features"], level: float, place: Callable[[int], str]
    ) -> Predicted:
        if not CLOSEST <= level <= 1 - CLOSEST:
            raise InputError(
                f"--interval must lie between 0 and 1, and not within {CLOSEST:g} of them; got "
                f"{level:.10g}."
            )
        starts = range(0, len(x), ROWS_AT_ONCE)
        # another number of threads would be other last digits
        with one_blas_thread(0), np.errstate(all="ignore"):
            parts = [self._predicted(x[i : i + ROWS_AT_ONCE], level) for i in starts]
        joined = {}
        for name in ("proba", "mean", "low", "high"):
            values = [getattr(part, name) for part in parts]
            joined[name] = None if values[0] is None else np.concatenate(values)
        self._refuse_endless(x, [one for one in joined.values() if one is not None], place)
        return Predicted(self.target, **joined, level=level)

    def _refuse_endless(
        self, x: np.ndarray, predicted: list[np.ndarray], place: Callable[[int], str]
    ) -> None:
        """Where a prediction overflows, the value farthest from what training has seen is named."""
        fine = np.all([np.isfinite(one.reshape(len(x), -1)).all(1) for one in predicted], axis=0)
        if fine.all():
            return
        row = int(np.flatnonzero(~fine)[0])
        with np.errstate(all="ignore"):
            far = np.nan_to_num(np.abs((x[row] - self.centre) / self.scale))
        feature, more = int(far.argmax()), int((~fine).sum()) - 1
        name = next(
            k for k, its in self.columns.slices().items() if its.start <= feature < its.stop
        )
        column = next(one for one in self.columns.used if one.name == name)
        raise InputError(
            f"column {name!r}, {place(row)}: {x[row, feature]:g} is too far from what training has "
            f"seen ({column.words}) to predict from; no finite number comes out"
            + (f" (nor in {more:,} rows more)." if more else ".")
        )

    def _predicted(self, x: Float[np.ndarray, "n features"], level: float) -> Predicted:
        predictive, rows = self.predictive, self.rows(x)
        if self.target.task == CLASSIFY:
            found = predictive.expectation(rows)
            proba = np.stack([1 - found, found], 1) if found.ndim == 1 else found
            return Predicted(self.target, proba)
        mean, _ = predictive.model.likelihood.mean_and_sd(*predictive.predictor(rows))
        levels = np.array([0.5 - level / 2, 0.5 + level / 2])
        low, high = predictive.quantiles(rows, levels).T
        if self.target.task == COUNT:
            return Predicted(self.target, None, mean, low, high, level)
        mean, low, high = (self.zero + self.unit * one for one in (mean, low, high))
        return Predicted(self.target, None, mean, low, high, level)

    def predict_file(
        self, path: str, options: Options | None = None, level: float = 0.9
    ) -> tuple[Raw, Predicted, list[str]]:
        """The file as read, its predictions, and what is to be said."""
        missing = self.columns.missing
        raw = read(path, dataclasses.replace(options or Options(), missing=missing))
        x, notes = self.columns.encoded(raw)
        return raw, self._predict(x, level, raw.place), [*raw.notes, *notes]


def percentages(level: float) -> tuple[str, str]:
    """`5%` and `95%`: of both ends of an interval, with the digits that tell them apart."""
    tail, places = 50 * (1 - level), 2
    while abs(round(tail, places) - tail) > 0.01 * min(tail, 50 - tail) and places < MOST_PLACES:
        places += 1
    low, high = (f"{one:.{places}f}".rstrip("0").rstrip(".") for one in (tail, 100 - tail))
    return f"{low}%", f"{high}%"
