"""What both estimators share: from a checked table to a posterior over the weights."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .._approximate._mixture import asked_for
from .._errors import InputError
from .._fit import fit
from .._fit._nested import MOST_HYPER
from .._fit._options import one_of
from .._fit._posterior import Posterior
from .._fit._threads import blas_for
from ..models import (
    Basis,
    Features,
    GaussianProcess,
    LeaveOneOut,
    Likelihood,
    Linear,
    Model,
    Predictive,
    leave_one_out,
)
from ..models._averaged import Averaged
from ..models._choose import Candidate, Choice, Data, candidate, chosen, tuned
from ..models._kernel import KERNELS
from ._summary import summary
from ._weights import standardiser

# A dense Hessian of more weights than this is not worth its time.
MOST_WEIGHTS = 3000
# Training rows that a Gaussian process takes as they are; inducing points, where there are more.
MOST_DENSE, INDUCING = 1000, 300
# Hyperparameters are learnt by the family's own bound up to so many weights and predictors. Beyond,
# Laplace's evidence alone decides: with so many rows the two hardly differ.
MOST_LEARNING, MANY_PREDICTORS = 300, 5000
# Of the constant beside features: how rare a class is, or how large counts are, says nothing of how
# much they vary with the features, which is what the prior precision of the slopes learns.
CONSTANT_PRECISION = 1 / 5.0**2
# Evaluations of the evidence of all rows, where some of them chose.
STEPS_ON_ALL = 15
Table = Float[np.ndarray, "n features"]
Vector = Float[np.ndarray, " n"]


class MVIBase(BaseEstimator):
    """Not for use by itself: `MVIClassifier` and `MVIRegressor` are."""

    # What their __init__ sets.
    family: Any
    basis: Any
    n_basis: Any
    width_per_feature: Any
    kernel: Any
    standardise: Any
    hyper_prior: Any
    integrate_hyper: Any
    draws: Any
    optimiser: Any
    tol: Any
    max_steps: Any
    diagnostics: Any
    random_state: Any

    # --- fitting ------------------------------------------------------------------------------

    def _fit_weights(self, x: Table, y: Vector, weight: Vector, likelihood: Likelihood) -> None:
        """Standardises, chooses the basis and fits."""
        self._check_settings()
        _tell_constant(x)
        self._standardise(x, weight)
        self._tell_rounding(x)
        data, seed = Data.of(self._scaled(x), y, weight), self._seed()
        with blas_for(len(y)), np.errstate(all="ignore"):
            choice = self._chosen(data, likelihood, seed)
        best = choice.best
        self._model, self._shared = best.model, best.density.shared
        self.n_basis_ = best.density.n_weights - 1
        density, mode = best.density, best.found.mode
        self._refuse_many_hyper(density.hyper)
        learns = density.dim <= MOST_LEARNING and len(y) * likelihood.n_outputs <= MANY_PREDICTORS
        if density.n_rows < len(y):  # chosen by some of the rows
            density = self._model.density(
                data.x, y, weight=weight, shared=self._shared, hyper=density.hyper
            )
            if not learns:
                with blas_for(len(y)), np.errstate(all="ignore"):
                    density, found = tuned(density, [density.hyper], mode, STEPS_ON_ALL)
                mode = found.mode
        if asked_for(self.family) is not None:
            raise InputError(
                'family="mixture" is for mixvi.fit: predictions here are those of one Gaussian.'
            )
        self.posterior_: Posterior = fit(
            density,
            mode.reshape(density.init.shape),
            family=self._family(learns),
            hyper=density.hyper if learns or self.integrate_hyper else None,
            hyper_posterior=bool(self.integrate_hyper),
            draws=self.draws,
            optimiser=self.optimiser,
            key=seed,
            tol=self.tol,
            max_steps=self.max_steps,
            diagnostics=self.diagnostics,
        )
        post = self.posterior_
        self.log_evidence_ = float(post.log_evidence)
        hyper = density.hyper if post.hyper is None else post.hyper
        self.hyper_ = {name: np.asarray(value) for name, value in hyper.items()}
        self.n_iter_ = int(post.stats.passes or post.stats.mode_steps)
        self._leave_one_out(density, data)
        single = len(choice.tried) == 1
        self.choices_ = [_told(one, self._loo if single else one.loo) for one in choice.tried]
        if isinstance(self._model.basis, Linear):
            self._name_coefficients()

    def _chosen(self, data: Data, likelihood: Likelihood, seed: int) -> Choice:
        weak = self.hyper_prior == "weak"
        widths = None if self.width_per_feature == "auto" else bool(self.width_per_feature)
        if self.basis == "rbf":
            sizes = self._sizes()
            self._refuse_many(max(sizes or [0]), likelihood, len(data.y))
            return chosen(likelihood, data, sizes, widths, weak, seed)
        basis = self._basis(data, widths, likelihood.n_outputs)
        self._refuse_many(self._n_columns(basis, data), likelihood, len(data.y))
        # Bumps make up a level between them; a slope cannot.
        model = Model(basis, likelihood, weak, CONSTANT_PRECISION)
        best = candidate(model, data, None, seed)
        return Choice(best, (best,))

    def _basis(self, data: Data, widths: bool | None, outputs: int) -> Basis:
        if callable(self.basis):
            return Features(self.basis)
        if self.basis == "linear":
            return Linear()
        sizes = self._sizes()
        most = MOST_DENSE // outputs
        n = sizes[0] if sizes else (None if len(data.y) <= most else min(INDUCING, most))
        return GaussianProcess(self.kernel, n, bool(widths))

    @staticmethod
    def _n_columns(basis: Basis, data: Data) -> int:
        if isinstance(basis, Linear):
            return data.x.shape[1]
        if isinstance(basis, GaussianProcess):
            return min(basis.n_inducing or len(data.y), len(data.y))
        return basis.n_columns(basis.fit_shared(data.x, 0))

    def _refuse_many(self, columns: int, likelihood: Likelihood, n_rows: int) -> None:
        if (n := (columns + 1) * likelihood.n_outputs) <= MOST_WEIGHTS:
            return
        name = "callable" if callable(self.basis) else self.basis
        raise InputError(
            f"the {name} basis has {n:,} weights for {n_rows} rows, more than {MOST_WEIGHTS:,}: "
            'use basis="rbf", fewer n_basis, or reduce the features first (PCA in a pipeline, say).'
        )

    def _family(self, learns: bool) -> Any:
        """Of very many weights Laplace's own evidence is integrated: a bound at every point of the
        hyperparameters would take too long."""
        is_auto = isinstance(self.family, str) and self.family == "auto"
        return "laplace" if self.integrate_hyper and is_auto and not learns else self.family

    def _refuse_many_hyper(self, hyper: Any) -> None:
        n = sum(np.size(value) for value in hyper.values())
        if self.integrate_hyper and n > MOST_HYPER:
            raise InputError(
                f"integrate_hyper=True is for at most {MOST_HYPER} hyperparameters; here are {n}: "
                "use width_per_feature=False."
            )

    def _leave_one_out(self, density: Any, data: Data) -> None:
        post, at = self.posterior_, density.at(density.flat(self.hyper_))
        law = post.law
        if (found := post.hyper_posterior) is not None:  # at the mode of the hyperparameters
            near = int(np.linalg.norm(found.points - found.surface.centre, axis=1).argmin())
            law, at = law.components[near], density.at(found.points[near])
        with blas_for(len(data.y), density.dim), np.errstate(all="ignore"):
            found = leave_one_out(at, law.mean, law.root, post.family == "laplace", data.same)
        self._loo: LeaveOneOut = found
        self.loo_, self.loo_se_ = found.total - self._log_scale * found.weight.sum(), found.se

    @property
    def _log_scale(self) -> float:
        """Of a scaled target: the density of `y` is that of the scaled one divided by the scale."""
        return 0.0

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, int | np.integer):
            return int(self.random_state or 0)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_settings(self) -> None:
        one_of("hyper_prior", self.hyper_prior, ("weak", "flat"))
        if not isinstance(self.integrate_hyper, bool | np.bool_):
            raise InputError(
                f"integrate_hyper must be True or False, got {self.integrate_hyper!r}."
            )
        if not callable(self.basis):
            one_of("basis", self.basis, ("rbf", "linear", "gp"))
        if self.width_per_feature not in (True, False, "auto"):
            raise InputError(
                f'width_per_feature must be True, False or "auto", got {self.width_per_feature!r}.'
            )
        one_of("kernel", self.kernel, tuple(KERNELS))

    def _sizes(self) -> list[int] | None:
        """The numbers of basis functions to choose from; None for as many as pay."""
        if isinstance(self.n_basis, str) and self.n_basis == "auto":
            return None
        sizes: list[Any] = [self.n_basis] if np.ndim(self.n_basis) == 0 else list(self.n_basis)
        whole = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
        if not (sizes and whole):
            raise InputError(
                f'n_basis must be "auto", a positive integer or several, got {self.n_basis!r}.'
            )
        return [int(size) for size in sizes]

    # --- coefficients -------------------------------------------------------------------------

    def _name_coefficients(self) -> None:
        """In the units of the table: of the standardised features the slope is `w / scale`."""
        post, outputs = self.posterior_, self._model.likelihood.n_outputs
        mean = post.flat_mean.reshape(outputs, -1)
        # The intercept is what is left at zero: b - sum_j w_j centre_j / scale_j
        size = mean.shape[1]
        back = np.zeros((size, size))
        back[np.arange(size - 1), np.arange(size - 1)] = 1 / self._scale
        back[-1] = np.append(-self._centre / self._scale, 1.0)
        unit = self._target_unit
        made = unit * mean @ back.T
        roots = np.asarray(post.root)
        roots = np.diag(roots) if roots.ndim == 1 else roots
        sd = unit * np.stack(
            [np.sqrt(((back @ part) ** 2).sum(1)) for part in roots.reshape(outputs, size, -1)]
        )
        made[:, -1] += self._target_zero
        one = outputs == 1
        self.coef_, self.coef_sd_ = (a[0, :-1] if one else a[:, :-1] for a in (made, sd))
        self.intercept_, self.intercept_sd_ = (
            float(a[0, -1]) if one else a[:, -1] for a in (made, sd)
        )

    # Zero and unit of a scaled target, in those of the data.
    _target_zero, _target_unit = 0.0, 1.0

    # --- inputs -------------------------------------------------------------------------------

    def _standardise(self, x: Table, weight: Vector) -> None:
        self._centre, self._scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
        if self.standardise:
            self._centre, self._scale = standardiser(x, weight)

    def _tell_rounding(self, x: Table) -> None:
        """A constant column teaches nothing, silently; of one that only seems to be, it is said."""
        lost = np.flatnonzero(np.isinf(self._scale) & (x != x[0]).any(0))
        if not len(lost):
            return
        names = getattr(self, "feature_names_in_", np.arange(x.shape[1]))
        shown = ", ".join(repr(name) for name in names[lost[:6]].tolist())
        several = (
            f"s {shown}{', ...' * (len(lost) > 6)} vary" if len(lost) > 1 else f" {shown} varies"
        )
        warnings.warn(
            f"the column{several} so little beside the size of its numbers that rounding hides it, "
            "and counts as constant: take away what all rows share before it becomes float64.",
            UserWarning,
            stacklevel=4,
        )

    def _scaled(self, x: Table) -> Table:
        return (x - self._centre) / self._scale

    def _rows(self, X: Any) -> dict[str, Any]:
        check_is_fitted(self)
        x: Any = validate_data(self, X, reset=False, dtype=np.float64)
        return self._model.basis.rows(self._scaled(x), self._shared)

    @property
    def _predictive(self) -> Predictive | Averaged:
        post = self.posterior_
        if post.hyper_posterior is not None:
            return Averaged.of(self._model, self._shared, post, self.hyper_)
        return Predictive(self._model, self.hyper_, self._shared, post.flat_mean, post.root)

    def _lpd(self, X: Any, y: Vector, pointwise: bool, n_draws: int, key: Any) -> float | Vector:
        rows, predictive = self._rows(X), self._predictive
        n = len(next(iter(rows.values())))
        if len(y) != n:
            raise InputError(f"X has {n} rows, y {len(y)}.")
        if pointwise:
            return predictive.pointwise_lpd(rows, y)
        if isinstance(predictive, Averaged):
            return predictive.lpd_drawn(rows, y, n_draws, key).joint
        sample = self.posterior_.sample(key, n_draws)
        return predictive.lpd(rows, y, np.asarray(sample)).joint

    def predictor(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation of the linear predictor (log odds for two classes;
        the location of a scaled target; the log rate of counts)."""
        rows = self._rows(X)
        if self._model.likelihood.n_outputs > 1:
            raise InputError("predictor: with several classes there is not one but several.")
        return self._predictive.predictor(rows)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int = 0) -> np.ndarray:
        """Draws of new observations at the rows of `X`, noise included: (rows, n_samples). Each
        column comes from one draw of the weights."""
        rows = self._rows(X)
        return self._observed(self._predictive.sample(rows, n_samples, random_state).T)

    def _observed(self, y: np.ndarray) -> np.ndarray:
        """From the model's own scale to the user's."""
        return y

    def summary(self) -> str:
        """The model, how well it predicts rows left out, then the posterior's own summary."""
        check_is_fitted(self)
        return summary(self)


def _tell_constant(x: Table) -> None:
    if len(x) > 1 and (x == x[0]).all():
        warnings.warn(
            f"all {len(x)} rows of X are the same: nothing but a constant can be fitted.",
            UserWarning,
            stacklevel=4,
        )


def _told(one: Candidate, loo: LeaveOneOut) -> dict[str, Any]:
    return {
        "n_basis": one.size,
        "width_per_feature": one.per_feature,
        "loo": loo.mean,
        "log_evidence": one.found.log_evidence,
        "hyper": dict(one.density.hyper),
    }


def shared_n_basis(models: Sequence[MVIBase]) -> int:
    """One number of basis functions for several data sets (the splits of one, say), from estimators
    fitted to each with `n_basis=(10, 20, 30)`: the one whose leave-one-out densities are highest
    in sum.

    >>> import numpy as np
    >>> from mixvi.estimators import MVIRegressor, shared_n_basis
    >>> rng = np.random.default_rng(0)
    >>> fits = []
    >>> for _ in range(2):
    ...     x = rng.uniform(-3, 3, (40, 1))
    ...     y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(40)
    ...     fits.append(MVIRegressor(noise="gaussian", n_basis=(3, 12)).fit(x, y))
    >>> shared_n_basis(fits)
    12
    """
    sums: dict[int, list[float]] = {}
    for model in models:
        check_is_fitted(model)
        best: dict[int, float] = {}
        for row in model.choices_:
            size = int(row["n_basis"])
            best[size] = max(row["loo"], best.get(size, -np.inf))
        for size, value in best.items():
            sums.setdefault(size, []).append(value)
    everywhere = {size: sum(its) for size, its in sums.items() if len(its) == len(models)}
    if len(everywhere) < 2:
        raise InputError("shared_n_basis: fit all with the same several values of n_basis first.")
    return max(everywhere, key=lambda size: everywhere[size])
