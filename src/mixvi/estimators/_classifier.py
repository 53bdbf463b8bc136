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
    basis : {"rbf", "linear"} or callable, default="rbf"
        A callable gets the standardised table and returns columns (n, m). A constant is added.
    n_basis : int or sequence of int, default=30
        Number of radial basis functions; several are screened, the highest bound wins.
    width_per_feature : bool, default=False
        One width of the radial basis functions for each feature instead of one for all.
    standardise : bool, default=True
        Features to mean 0 and standard deviation 1 (of the training rows).
    classes : array-like, default=None
        All labels, where a training set may lack some of them.
    hyper_prior : {"weak", "flat"}, default="weak"
        Prior on the log hyperparameters.
    starts : "spread" or int, default="spread"
        Starts for the hyperparameters: six spread over what is plausible, or that many random ones
        as in the paper.
    screen_by : str, default="laplace"
        Whose bound ranks the starts.
    screen_steps : int, default=10
        Steps from each start before they are ranked.
    draws, optimiser, tol, max_steps, diagnostics
        As in `mixvi.fit`.
    random_state : int, RandomState or None, default=0
        Seeds K-means, random starts and draws. None is 0 too: results are always reproducible.

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
        Learnt hyperparameters: `log_alpha` (prior precision), `log_width`.
    screening_ : list of dict
        Bound and hyperparameters that each start reached.
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
        n_basis=30,
        width_per_feature=False,
        standardise=True,
        classes=None,
        hyper_prior="weak",
        starts="spread",
        screen_by="laplace",
        screen_steps=10,
        draws=None,
        optimiser="auto",
        tol=1e-5,
        max_steps=1000,
        diagnostics=True,
        random_state=0,
    ):
        self.family = family
        self.basis = basis
        self.n_basis = n_basis
        self.width_per_feature = width_per_feature
        self.standardise = standardise
        self.classes = classes
        self.hyper_prior = hyper_prior
        self.starts = starts
        self.screen_by = screen_by
        self.screen_steps = screen_steps
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
        the paper), or with `pointwise=True` of each row (by quadrature for two classes)."""
        check_is_fitted(self)
        return self._lpd(X, self._indices(y).astype(np.float64), pointwise, n_draws, key)
