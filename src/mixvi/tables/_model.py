"""A table's model: what predicts, and everything known about how well."""

import dataclasses
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
        tail = 50 * (1 - self.level)
        lower, upper = f"{tail:.4g}%", f"{100 - tail:.4g}%"
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
        if not 0 < level < 1:
            raise InputError(f"--interval must lie between 0 and 1, got {level:g}.")
        starts = range(0, len(x), ROWS_AT_ONCE)
        with one_blas_thread(0):  # another number of threads would be other last digits
            parts = [self._predicted(x[i : i + ROWS_AT_ONCE], level) for i in starts]
        joined = {}
        for name in ("proba", "mean", "low", "high"):
            values = [getattr(part, name) for part in parts]
            joined[name] = None if values[0] is None else np.concatenate(values)
        return Predicted(self.target, **joined, level=level)

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
        raw = read(path, options)
        x, notes = self.columns.encoded(raw)
        return raw, self.predict(x, level), notes
