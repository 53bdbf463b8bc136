"""What both estimators share: from a checked table to a posterior over the weights."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .._errors import InputError
from .._fit import fit
from .._fit._options import one_of
from .._fit._posterior import Posterior
from .._fit._screen import screen
from ..models import (
    RBF,
    Basis,
    Features,
    Likelihood,
    Linear,
    Model,
    Predictive,
    paper_starts,
    spread_starts,
)
from ._weights import standardiser

# A dense Hessian of more weights than this is not worth its time.
MOST_WEIGHTS = 3000
# A model, what its basis learnt, and the data of its log density.
Candidate = tuple[Model, dict[str, Any], dict[str, Any]]
Table = Float[np.ndarray, "n features"]
Vector = Float[np.ndarray, " n"]


class MVIBase(BaseEstimator):
    """Not for use by itself: `MVIClassifier` and `MVIRegressor` are."""

    # What their __init__ sets.
    family: Any
    basis: Any
    n_basis: Any
    width_per_feature: Any
    standardise: Any
    hyper_prior: Any
    starts: Any
    screen_by: Any
    screen_steps: Any
    draws: Any
    optimiser: Any
    tol: Any
    max_steps: Any
    diagnostics: Any
    random_state: Any

    # --- fitting ------------------------------------------------------------------------------

    def _fit_weights(self, x: Table, y: Vector, weight: Vector, likelihood: Likelihood) -> None:
        """Standardises, builds the basis, screens the starts and fits."""
        self._check_settings()
        self._standardise(x, weight)
        x = self._scaled(x)
        seed = self._seed()
        sizes = self._sizes()
        # No more columns than there are centres to be had.
        widest = min(max(sizes), len(np.unique(x, axis=0)))
        candidates = [
            self._candidate(x, y, weight, likelihood, size, widest, seed) for size in sizes
        ]
        chosen, hyper, init = self._screened(candidates, sizes, seed)
        model, shared, data = candidates[chosen]
        self._model, self._shared = model, shared
        self.n_basis_ = int(shared["mask"].sum())
        self.posterior_: Posterior = fit(
            model.log_density,
            init,
            data,
            family=self.family,
            hyper=hyper,
            draws=self.draws,
            optimiser=self.optimiser,
            key=seed,
            tol=self.tol,
            max_steps=self.max_steps,
            diagnostics=self.diagnostics,
        )
        self.log_evidence_ = float(self.posterior_.log_evidence)
        self.hyper_ = {name: np.asarray(v) for name, v in self.posterior_.hyper.items()}
        self.n_iter_ = int(self.posterior_.stats.passes or self.posterior_.stats.mode_steps)

    def _screened(
        self, candidates: list[Candidate], sizes: list[int], seed: int
    ) -> tuple[int, dict[str, Any], Any]:
        """Which candidate to take, with its hyperparameters and the mode there."""
        starts, owner = [], []
        for k, (model, shared, _) in enumerate(candidates):
            its = self._starts(model, shared, seed)
            starts += its
            owner += [k] * len(its)
        model, shared, _ = candidates[0]
        init, self.screening_ = model.init(shared), []
        if len(starts) == 1:
            return 0, starts[0], init
        found = screen(
            model.log_density,
            init,
            starts,
            data_of_start=[candidates[k][2] for k in owner],
            family=self.screen_by,
            steps=self.screen_steps,
            key=seed,
        )
        self.screening_ = [
            {"n_basis": sizes[k] if sizes[0] else None, "bound": float(score), "hyper": hyper}
            for k, score, hyper in zip(owner, found.scores, found.hypers, strict=True)
        ]
        return owner[found.best], found.hyper, found.mode

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, int | np.integer):
            return int(self.random_state or 0)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_settings(self) -> None:
        one_of("hyper_prior", self.hyper_prior, ("weak", "flat"))
        if not callable(self.basis):
            one_of("basis", self.basis, ("rbf", "linear"))
        if not (isinstance(self.starts, int | np.integer) and self.starts > 0):
            one_of("starts", self.starts, ("spread",))

    def _sizes(self) -> list[int]:
        """The numbers of basis functions to choose from; one zero for a basis without."""
        if self.basis != "rbf":
            return [0]
        sizes: list[Any] = [self.n_basis] if np.ndim(self.n_basis) == 0 else list(self.n_basis)
        whole = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
        if not (sizes and whole):
            raise InputError(
                f"n_basis must be a positive integer or several, got {self.n_basis!r}."
            )
        return [int(size) for size in sizes]

    def _candidate(
        self,
        x: Table,
        y: Vector,
        weight: Vector,
        likelihood: Likelihood,
        size: int,
        widest: int,
        seed: int,
    ) -> Candidate:
        basis = self._basis(size, widest)
        shared = basis.fit_shared(x, seed)
        if (n := (len(shared["mask"]) + 1) * likelihood.n_outputs) > MOST_WEIGHTS:
            raise InputError(
                f"the {basis.name} basis has {n:,} weights for {len(x)} rows, more than "
                f'{MOST_WEIGHTS:,}: use basis="rbf", or reduce the features first (PCA in a '
                "pipeline, say)."
            )
        # One model for all sizes: they differ in their padding, which is data.
        model = Model(self._basis(widest, widest), likelihood, self.hyper_prior == "weak")
        rows = basis.rows(x, shared)
        take, kept = padding(len(x))
        padded = {name: part[take] for name, part in rows.items()}
        data = model.data(padded, shared, y[take], np.where(kept, weight[take], 0.0))
        return model, shared, data

    def _basis(self, size: int, widest: int) -> Basis:
        if callable(self.basis):
            return Features(self.basis)
        if self.basis == "linear":
            return Linear()
        return RBF(size, self.width_per_feature, widest)

    def _starts(self, model: Model, shared: dict[str, Any], seed: int) -> list[dict[str, Any]]:
        if self.starts == "spread":
            return spread_starts(model, shared)
        return paper_starts(model, shared, int(self.starts), np.random.default_rng(seed))

    # --- inputs -------------------------------------------------------------------------------

    def _standardise(self, x: Table, weight: Vector) -> None:
        self._centre, self._scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
        if self.standardise:
            self._centre, self._scale = standardiser(x, weight)

    def _scaled(self, x: Table) -> Table:
        return (x - self._centre) / self._scale

    def _rows(self, X: Any) -> dict[str, Any]:
        check_is_fitted(self)
        x: Any = validate_data(self, X, reset=False, dtype=np.float64)
        return self._model.basis.rows(self._scaled(x), self._shared)

    @property
    def _predictive(self) -> Predictive:
        return Predictive.of(self._model, self._shared, self.posterior_)

    def _lpd(self, X: Any, y: Vector, pointwise: bool, n_draws: int, key: Any) -> float | Vector:
        rows, predictive = self._rows(X), self._predictive
        if len(y) != len(next(iter(rows.values()))):
            raise InputError(f"X has {len(next(iter(rows.values())))} rows, y {len(y)}.")
        if pointwise and self._model.likelihood.n_outputs == 1:
            return predictive.pointwise_lpd(rows, y)
        sample = self.posterior_.sample(key, n_draws)
        found = predictive.lpd(rows, y, np.asarray(sample))
        return found.pointwise if pointwise else found.joint

    def predictor(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation of the linear predictor (log odds for two classes;
        the location of a scaled target; the log rate of counts)."""
        rows = self._rows(X)
        if self._model.likelihood.n_outputs > 1:
            raise InputError("predictor: with several classes there is not one but several.")
        return self._predictive.predictor(rows)

    def summary(self) -> str:
        """The model in a line, then the posterior's own summary."""
        check_is_fitted(self)
        model = self._model
        about = f"{self.n_basis_} {model.basis.name} basis functions and a constant"
        return f"{model.likelihood.name} on {about}\n{self.posterior_.summary()}"


def shared_n_basis(models: Sequence[MVIBase]) -> int:
    """One number of basis functions for several data sets (the splits of one, say), from estimators
    fitted to each with `n_basis=(10, 20, 30)`: the one with the highest bounds in sum."""
    sums: dict[int, float] = {}
    for model in models:
        check_is_fitted(model)
        best: dict[int, float] = {}
        for row in model.screening_:
            best[row["n_basis"]] = max(row["bound"], best.get(row["n_basis"], -math.inf))
        for size, bound in best.items():
            sums[size] = sums.get(size, 0.0) + bound
    if not sums or None in sums:
        raise InputError("shared_n_basis: fit with several values of n_basis first.")
    return max(sums, key=lambda size: sums[size])


def padding(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row indices filled up to one of few lengths, and which are true: tables of nearly the same
    length (folds of a cross-validation) then share compiled code. Small tables are filled up to 64
    or 128, others by a quarter at most."""
    step = 64 if n <= 128 else 1 << ((n - 1).bit_length() - 3)
    length = math.ceil(n / step) * step
    index = np.arange(length)
    return np.minimum(index, n - 1), index < n
