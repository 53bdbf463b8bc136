"""Bayesian classification: logistic for two classes, softmax for more."""

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .._errors import InputError
from ..models import Bernoulli, Softmax
from ._base import MVIBase
from ._weights import weights_of


class MVIClassifier(ClassifierMixin, MVIBase):
    """Classification with probabilities that integrate a Gaussian posterior over the weights.

    A linear model on radial basis functions (or on the features, or on columns of your own), whose
    prior precision and basis width are learnt by the bound: nothing to tune, the same numbers every
    time.

    Parameters
    ----------
    family : str or family, default="auto"
        "auto" (as much as pays), "laplace", "mu", "eig", "lr", "full", "diag", or an instance such
        as `mixvi.LowRank(2)`.
    basis : {"rbf", "linear", "gp"} or callable, default="rbf"
        Radial basis functions, the features themselves, or a Gaussian process. A callable gets the
        standardised table and returns columns (n, m). A constant is added.
    n_basis : "auto", int or sequence of int, default="auto"
        Number of radial basis functions: as many as pay, or the best of several, by leave-one-out.
        Of a Gaussian process the number of inducing points ("auto": all rows up to 1000, otherwise
        300 centres; of K > 2 classes, 1000 / K of both).
    width_per_feature : "auto" or bool, default="auto"
        One width for each feature instead of one for all: "auto" where leave-one-out gains more by
        it than the luck of the rows (False for a Gaussian process).
    kernel : {"rbf", "matern12", "matern32", "matern52"}, default="rbf"
        Of a Gaussian process.
    standardise : bool, default=True
        Features to mean 0 and standard deviation 1 (of the training rows).
    classes : array-like, default=None
        All labels, where a training set may lack some of them.
    hyper_prior : {"weak", "flat"}, default="weak"
        Prior on the log hyperparameters.
    integrate_hyper : bool, default=False
        Integrates the hyperparameters over their posterior (`posterior_.hyper_posterior`):
        predictions average over a mixture whose components have their own. At most twelve.
    draws, optimiser, tol, max_steps, diagnostics
        As in `mixvi.fit`.
    random_state : int, RandomState or None, default=0
        Seeds K-means and draws. None is 0 too: results are always reproducible.

    Attributes
    ----------
    classes_ : ndarray
        The labels, in the order of `predict_proba`'s columns.
    posterior_ : mixvi.Posterior
        The Gaussian over the weights, with its verdict.
    log_evidence_ : float
        Its bound on the log evidence (Laplace's evidence for "laplace"), the weak log priors of
        the hyperparameters included.
    hyper_ : dict
        Learnt hyperparameters: `log_alpha` (prior precision), `log_width`; `log_amplitude` of a
        Gaussian process. With `integrate_hyper=True` their mode, where `loo_` is taken, too.
    loo_, loo_se_ : float
        Leave-one-out log predictive density of the training rows, in sum, and its standard error.
    choices_ : list of dict
        What was tried: number of basis functions, leave-one-out density a row, evidence.
    coef_, coef_sd_, intercept_, intercept_sd_
        Of `basis="linear"`: means and standard deviations in the units of the table.
    n_basis_, n_features_in_, feature_names_in_, n_iter_
        As usual.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixvi.estimators import MVIClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MVIClassifier(n_basis=10).fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        family="auto",
        *,
        basis="rbf",
        n_basis="auto",
        width_per_feature="auto",
        kernel="rbf",
        standardise=True,
        classes=None,
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
        self.basis = basis
        self.n_basis = n_basis
        self.width_per_feature = width_per_feature
        self.kernel = kernel
        self.standardise = standardise
        self.classes = classes
        self.hyper_prior = hyper_prior
        self.integrate_hyper = integrate_hyper
        self.draws = draws
        self.optimiser = optimiser
        self.tol = tol
        self.max_steps = max_steps
        self.diagnostics = diagnostics
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        """Fits the posterior to a table `X` and labels `y`."""
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        x, y, weight = weights_of(x, y, sample_weight)
        self.classes_ = self._classes_of(y)
        n = len(self.classes_)
        likelihood = Bernoulli() if n == 2 else Softmax(n)
        self._fit_weights(x, self._indices(y).astype(np.float64), weight, likelihood)
        return self

    def _classes_of(self, y: np.ndarray) -> np.ndarray:
        seen = np.unique(y)
        if self.classes is None:
            if len(seen) < 2:
                raise InputError(
                    f"the training set has one class only ({seen[0]}): a classifier needs at "
                    "least two. Where a fold lacks a class, name them all with classes=."
                )
            return seen
        known = np.unique(self.classes)
        if len(known) < 2:
            raise InputError(f"classes= must name at least two classes, got {self.classes!r}.")
        if len(unknown := np.setdiff1d(seen, known)):
            raise InputError(f"y holds labels that classes= does not name: {list(unknown)}.")
        return known

    def _indices(self, y: np.ndarray) -> np.ndarray:
        y = column_or_1d(y)
        index = np.searchsorted(self.classes_, y)
        found = np.minimum(index, len(self.classes_) - 1)
        wrong = self.classes_[found] != y
        if wrong.any():
            raise InputError(
                f"labels that training did not see: {list(np.unique(np.asarray(y)[wrong]))}; name "
                "them with classes= before fitting."
            )
        return found

    def _score_left_out(self) -> str:
        hit = self._loo.predicted == self._loo.y
        return f"accuracy {self._loo.weight @ hit / self._loo.weight.sum():.3f}"

    def _observed(self, y):
        return self.classes_[y.astype(int)]

    def predict_proba(self, X):
        """Class probabilities (n, classes), the posterior integrated out."""
        rows = self._rows(X)
        found = self._predictive.expectation(rows)
        return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found

    def predict(self, X):
        """The most probable class of each row."""
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(1)]

    def log_predictive_density(self, X, y, pointwise=False, n_draws=10_000, key=0):
        """Of labels `y`: joint over all rows (a number; over `n_draws` draws of the weights, as in
        the paper), or with `pointwise=True` of each row (by quadrature)."""
        check_is_fitted(self)
        return self._lpd(X, self._indices(y).astype(np.float64), pointwise, n_draws, key)
