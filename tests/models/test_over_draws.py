"""Expectations over draws from the spread of the predictors: those of gradients at the draws."""

import math

import numpy as np
import pytest

import mixvi.models._one as one_predictor
import mixvi.models._several as several_predictors
from mixvi import IID, MeanField, fit, models
from mixvi._density._protocol import Density, Points

N = 60
X = np.random.default_rng(0).normal(size=(N, 3))
TARGETS = {
    "bernoulli": (models.Bernoulli(), (X[:, 0] > 0).astype(float)),
    "softmax": (models.Softmax(3), np.arange(N) % 3.0),
    "cauchy": (models.Cauchy(), X[:, 0] + 0.1),
}
BASES = [models.RBF(7), models.RBF(7, per_feature=True), models.Linear()]


def density_of(name, basis):
    """With weights and offsets."""
    likelihood, y = TARGETS[name]
    rng = np.random.default_rng(1)
    shape = (N, 3) if name == "softmax" else N
    weight, offset = rng.uniform(0.5, 2, N), 0.3 * rng.normal(size=shape)
    return models.Model(basis, likelihood).density(X, y, weight=weight, offset=offset)


def gaussian_of(density, kind):
    rng = np.random.default_rng(2)
    root = np.abs(rng.normal(size=density.dim))
    if kind == "dense":
        root = 0.3 * rng.normal(size=(density.dim, density.dim))
    return rng.normal(size=density.dim), root


def draws_of(density):
    """Neither centred nor of unit covariance."""
    return Points(np.random.default_rng(3).normal(size=(50, density.dim)), False)


def agree(found, expected, tol):
    for name, one, other in zip(expected._fields, found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tol, atol=tol, err_msg=name)


@pytest.mark.parametrize("kind", ["dense", "diagonal"])
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("name", TARGETS)
def test_an_expectation_over_draws_is_that_of_gradients_there(name, basis, kind, monkeypatch):
    density = density_of(name, basis)
    mean, root = gaussian_of(density, kind)
    rule = draws_of(density)
    expected = Density.expect(density, mean, root, rule)
    agree(density.expect(mean, root, rule), expected, 1e-10)
    for room in (one_predictor, several_predictors):  # a few rows at a time
        monkeypatch.setattr(room, "IN_CACHE", 400)
    agree(density.expect(mean, root, rule), expected, 1e-10)


@pytest.mark.parametrize("kind", ["dense", "diagonal"])
@pytest.mark.parametrize("name", TARGETS)
def test_in_single_only_the_last_digits_are_others(name, kind):
    density = density_of(name, models.RBF(7))
    mean, root = gaussian_of(density, kind)
    # Weights that are large and cancel: two basis functions that are nearly the same.
    density.rows["square"][:, 1] = density.rows["square"][:, 0] * (1 + 1e-9)
    for first in range(0, density.dim, density.n_weights):
        mean[first] += 1e4
        mean[first + 1] -= 1e4
    expected = density.expect(mean, root, draws_of(density))
    agree(density.in_single().expect(mean, root, draws_of(density)), expected, 2e-5)


def test_one_mean_field_in_either_precision():
    density = density_of("softmax", models.RBF(7))
    posts = [
        fit(one, one.init, family=MeanField(), draws=IID(200), optimiser="scg", diagnostics=False)
        for one in (density, density.in_single())
    ]
    bounds = [post.elbo_fixed for post in posts]
    assert abs(bounds[0] - bounds[1]) < 1e-3
    np.testing.assert_allclose(posts[0].std, posts[1].std, rtol=1e-2)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1e-3, 1.0, 80.0, 100.0, 700.0, 720.0, 1e5])
def test_two_classes_at_any_predictor(size, dtype, order):
    y, eta = np.array([[0.0], [1.0]]), np.array([[size, -size, 0.0]] * 2, dtype=dtype)
    found = models.Bernoulli().derivatives(y, eta, {}, order)
    assert len(found) == order + 1
    tol = 4 * np.finfo(dtype).eps
    signed = (2 * y - 1) * eta.astype(float)
    np.testing.assert_allclose(found[0], -np.logaddexp(0, -signed), rtol=tol, atol=tol)
    if order:
        log_slope = -np.logaddexp(0, signed)
        slope = (2 * y - 1) * np.vectorize(math.exp)(log_slope)
        np.testing.assert_allclose(found[1], slope, rtol=100 * tol, atol=tol)
