"""Bayesian regression with noise that may be heavy-tailed."""

import math
from numbers import Real

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .._errors import InputError
from .._fit._options import one_of
from ..models import LeaveOneOut, RealLikelihood, StudentT
from ..models._averaged import Averaged
from ..models._noise import REAL
from ._base import MVIBase
from ._weights import centre_and_scale, weights_of


def _mean(loo: LeaveOneOut) -> float:
    return float(loo.weight @ loo.y / loo.weight.sum())


class MVIRegressor(RegressorMixin, MVIBase):
    """Regression with a Gaussian posterior over the weights and noise of your choice.

    A linear model on radial basis functions (or on the features, or on columns of your own), whose
    prior precision, basis width and noise are learnt by the bound.

    Parameters
    ----------
    family : str or family, default="auto"
        "auto" (as much as pays), "laplace", "mu", "eig", "lr", "full", "diag", or an instance such
        as `mixvi.LowRank(2)`.
    noise : {"student_t", "cauchy", "gaussian", "poisson"} or RealLikelihood, default="student_t"
        The distribution of `y` around the predictor; "poisson" is for counts, with a log link.
    df : float or None, default=4.0
        Degrees of freedom of "student_t"; None learns them.
    basis, n_basis, width_per_feature, kernel, standardise, hyper_prior, integrate_hyper
        As for `MVIClassifier`. `standardise` also centres and scales `y` inside (not counts).
    draws, optimiser, tol, max_steps, diagnostics, random_state
        As for `MVIClassifier`.

    Attributes
    ----------
    posterior_, log_evidence_, hyper_, loo_, loo_se_, choices_, coef_, coef_sd_, intercept_,
    intercept_sd_, n_basis_, n_features_in_, feature_names_in_
        As for `MVIClassifier`. Evidence and hyperparameters are those of the scaled target.

    Examples
    --------
    >>> import numpy as np
    >>> from mixvi.estimators import MVIRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, (80, 1))
    >>> y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_t(2, 80)
    >>> model = MVIRegressor(noise="cauchy", n_basis=15).fit(x, y)
    >>> mean, sd = model.predict([[0.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.15)
    True
    """

    def __init__(
        self,
        family="auto",
        *,
        noise="student_t",
        df=4.0,
        basis="rbf",
        n_basis="auto",
        width_per_feature="auto",
        kernel="rbf",
        standardise=True,
        hyper_prior="weak",
        integrate_hyper=False,
        draws=None,
        optimiser="auto",
        tol=None,
        max_steps=1000,
        diagnostics=True,
        random_state=0,
    ):
        self.family = family
        self.noise = noise
        self.df = df
        self.basis = basis
        self.n_basis = n_basis
        self.width_per_feature = width_per_feature
        self.kernel = kernel
        self.standardise = standardise
        self.hyper_prior = hyper_prior
        self.integrate_hyper = integrate_hyper
        self.draws = draws
        self.optimiser = optimiser
        self.tol = tol
        self.max_steps = max_steps
        self.diagnostics = diagnostics
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        """Fits the posterior to a table `X` and targets `y`."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = column_or_1d(y, warn=True).astype(np.float64)
        x, y, weight = weights_of(x, y, sample_weight)
        likelihood = self._likelihood(y)
        self._target_zero, self._target_unit = 0.0, 1.0
        if self.standardise and not likelihood.discrete:
            self._target_zero, self._target_unit = centre_and_scale(y, weight)
        self._fit_weights(x, (y - self._target_zero) / self._target_unit, weight, likelihood)
        return self

    @property
    def _log_scale(self) -> float:
        return math.log(self._target_unit)

    def _observed(self, y):
        return self._target_zero + self._target_unit * y

    def _score_left_out(self) -> str:
        loo = self._loo
        away, spread = (loo.weight @ (loo.y - one) ** 2 for one in (loo.predicted, _mean(loo)))
        return f"R^2 {1 - away / spread:.3f}" if spread > 0 else "a target without spread"

    def _likelihood(self, y: np.ndarray) -> RealLikelihood:
        likelihood = self.noise if isinstance(self.noise, RealLikelihood) else self._named()
        likelihood.check(y)
        return likelihood

    def _named(self) -> RealLikelihood:
        one_of("noise", self.noise, tuple(REAL))
        if self.noise != "student_t":
            return REAL[self.noise]()
        if self.df is not None and not (isinstance(self.df, Real) and self.df > 0):
            raise InputError(f"df must be a positive number or None, got {self.df!r}.")
        return StudentT(None if self.df is None else float(self.df))

    def predict(self, X, return_std=False):
        """The posterior mean of the location (of the rate for counts); with `return_std=True` also
        its standard deviation (noise not included: `predict_quantiles` includes it)."""
        check_is_fitted(self)
        rows, predictive = self._rows(X), self._predictive
        if isinstance(predictive, Averaged):
            mean, sd = predictive.location(rows)
        else:
            mean, sd = self._model.likelihood.mean_and_sd(*predictive.predictor(rows))
        mean, sd = self._target_zero + self._target_unit * mean, self._target_unit * sd
        return (mean, sd) if return_std else mean

    def predict_quantiles(self, X, quantiles=(0.05, 0.5, 0.95)):
        """Quantiles of a new observation, noise included: (n, quantiles)."""
        check_is_fitted(self)
        levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
        if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
            raise InputError(f"quantiles must lie between 0 and 1, got {quantiles!r}.")
        found = self._predictive.quantiles(self._rows(X), levels)
        return self._target_zero + self._target_unit * found

    def log_predictive_density(self, X, y, pointwise=False, n_draws=10_000, key=0):
        """Of targets `y`: joint over all rows (a number; over `n_draws` draws of the weights, as in
        the paper), or with `pointwise=True` of each row (by quadrature)."""
        check_is_fitted(self)
        y = column_or_1d(np.asarray(y, dtype=np.float64))
        self._model.likelihood.check(y)
        found = self._lpd(X, (y - self._target_zero) / self._target_unit, pointwise, n_draws, key)
        # The density of y is that of the scaled target divided by the scale.
        return found - math.log(self._target_unit) * (1 if pointwise else len(y))
