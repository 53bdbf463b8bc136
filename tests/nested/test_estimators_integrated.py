"""Estimators that integrate their hyperparameters: predictions against brute-force averages."""

import numpy as np
import pytest
from scipy import stats

import mixvi
from mixvi.estimators import MVIClassifier, MVIRegressor
from mixvi.models import Predictive

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (50, 1))
Y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(50)
NEW = np.linspace(-3, 3, 7)[:, None]


@pytest.fixture(scope="module")
def regressor():
    model = MVIRegressor(noise="gaussian", basis="linear", integrate_hyper=True)
    return model.fit(X, Y)


def parts(model):
    """Weights, and what every component predicts by itself."""
    post = model.posterior_
    found = post.hyper_posterior
    made = []
    for theta, one in zip(found.points, post.law.components, strict=True):
        own = model.hyper_ | dict(found.structure.unravel(theta))
        made.append(Predictive(model._model, own, model._shared, one.mean, one.root))
    return found.weights, made


def test_a_regression_is_a_mixture_of_normals(regressor):
    weights, made = parts(regressor)
    assert len(weights) > 10
    rows = regressor._rows(NEW)
    each = [one.predictor(rows) for one in made]
    noise = [np.exp(one.hyper["log_sigma"]) for one in made]
    zero, unit = regressor._target_zero, regressor._target_unit
    y = 0.3 * np.ones(7)
    p = np.zeros(7)
    for w, (mean, sd), own in zip(weights, each, noise, strict=True):
        p += w * stats.norm.pdf(y, zero + unit * mean, unit * np.hypot(sd, own))
    found = regressor.log_predictive_density(NEW, y, pointwise=True)
    np.testing.assert_allclose(found, np.log(p), atol=1e-6)
    quantiles = regressor.predict_quantiles(NEW, [0.1, 0.5, 0.9])
    for j, level in enumerate([0.1, 0.5, 0.9]):
        share = sum(
            w * stats.norm.cdf(quantiles[:, j], zero + unit * mean, unit * np.hypot(sd, own))
            for w, (mean, sd), own in zip(weights, each, noise, strict=True)
        )
        np.testing.assert_allclose(share, level, atol=1e-6)
    mean, sd = regressor.predict(NEW, return_std=True)
    exact = sum(w * one[0] for w, one in zip(weights, each, strict=True))
    np.testing.assert_allclose(mean, zero + unit * exact, atol=1e-12)
    square = sum(w * (one[1] ** 2 + one[0] ** 2) for w, one in zip(weights, each, strict=True))
    np.testing.assert_allclose(sd, unit * np.sqrt(square - exact**2), atol=1e-10)


def test_draws_and_the_joint_density(regressor):
    draws = regressor.sample_y(NEW, 4000, 0)
    mean = regressor.predict(NEW)
    np.testing.assert_allclose(draws.mean(1), mean, atol=5 * draws.std(1).max() / 60)
    pointwise = regressor.log_predictive_density(NEW[:1], [0.3], pointwise=True)
    joint = regressor.log_predictive_density(NEW[:1], [0.3], n_draws=20_000)
    assert joint == pytest.approx(pointwise[0], abs=0.03)


def test_what_it_says_of_itself(regressor):
    assert "integrated over" in regressor.summary()
    assert np.isfinite(regressor.loo_)
    assert regressor.coef_sd_[0] > 0
    plain = MVIRegressor(noise="gaussian", basis="linear").fit(X, Y)
    assert regressor.loo_ == pytest.approx(plain.loo_, abs=1.0)
    assert regressor.log_evidence_ > plain.log_evidence_ - 5


@pytest.mark.parametrize("basis", ["rbf", "gp"])
def test_a_classifier_averages_probabilities(basis):
    y = (Y + 0.3 * rng.standard_normal(50) > 0).astype(int)
    model = MVIClassifier(basis=basis, n_basis=8, integrate_hyper=True).fit(X, y)
    weights, made = parts(model)
    rows = model._rows(NEW)
    exact = sum(w * one.expectation(rows) for w, one in zip(weights, made, strict=True))
    np.testing.assert_allclose(model.predict_proba(NEW)[:, 1], exact, atol=1e-12)
    lpd = model.log_predictive_density(NEW, np.ones(7, int), pointwise=True)
    np.testing.assert_allclose(lpd, np.log(exact), atol=1e-6)
    again = MVIClassifier(basis=basis, n_basis=8, integrate_hyper=True).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(NEW), again.predict_proba(NEW))


def test_counts_have_whole_quantiles():
    y = rng.poisson(np.exp(0.5 + np.sin(X[:, 0]))).astype(float)
    model = MVIRegressor(noise="poisson", basis="linear", integrate_hyper=True).fit(X, y)
    levels = [0.05, 0.5, 0.95]
    found = model.predict_quantiles(NEW, levels)
    assert (found == np.round(found)).all()
    draws = model.sample_y(NEW, 20_000, 0)
    for j, level in enumerate(levels):
        at = found[:, j][:, None]
        assert ((draws <= at).mean(1) >= level - 0.02).all()
        assert ((draws < at).mean(1) <= level + 0.02).all()


def test_several_classes():
    y = np.digitize(Y, [-0.5, 0.5])
    model = MVIClassifier(basis="linear", integrate_hyper=True).fit(X, y)
    proba = model.predict_proba(NEW)
    np.testing.assert_allclose(proba.sum(1), 1, atol=1e-9)
    assert np.isfinite(model.log_predictive_density(X, y, n_draws=500))


def test_too_many_hyperparameters_are_refused():
    x = rng.standard_normal((40, 13))
    y = (x[:, 0] > 0).astype(int)
    model = MVIClassifier(n_basis=5, width_per_feature=True, integrate_hyper=True)
    with pytest.raises(mixvi.InputError, match="width_per_feature=False"):
        model.fit(x, y)
    with pytest.raises(mixvi.InputError, match="True or False"):
        MVIClassifier(integrate_hyper="yes").fit(x, y)
