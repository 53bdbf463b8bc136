"""Derivatives of the likelihoods in closed form, against JAX's and against differences."""

import numpy as np
import pytest

from mixvi import models
from mixvi.models import _by_jax

ETA = np.array([[-30.0, -2.0, -0.3, 0.0, 0.2, 1.5, 9.0], [0.1, -0.7, 0.4, 3.0, -5.0, 0.9, 2.0]])
REAL = np.array([[0.5], [-3.0]])
ONE = {
    "bernoulli": (models.Bernoulli(), {}, np.array([[0.0], [1.0]])),
    "gaussian": (models.Gaussian(), {"log_sigma": -0.4}, REAL),
    "student_t": (models.StudentT(3.0), {"log_sigma": 0.3}, REAL),
    "df learnt": (models.StudentT(None), {"log_sigma": -0.2, "log_df": 0.9}, REAL),
    "cauchy": (models.Cauchy(), {"log_gamma": -0.5}, REAL),
    "poisson": (models.Poisson(), {}, np.array([[0.0], [4.0]])),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_in_the_predictor(name, order):
    likelihood, hyper, y = ONE[name]
    eta = ETA + 1e-3  # at zero itself JAX sees the kink of |eta|, which cancels
    found = likelihood.derivatives(y, eta, hyper, order)
    assert len(found) == order + 1
    expected = _by_jax.derivatives(likelihood, y, eta, hyper, order)
    for ours, jaxs in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.broadcast_to(ours, ETA.shape), jaxs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ONE)
def test_in_the_predictor_by_differences(name):
    likelihood, hyper, y = ONE[name]
    eta, h = ETA[:, 1:], 1e-5
    found = likelihood.derivatives(y, eta, hyper, 3)
    ahead, behind = (likelihood.derivatives(y, eta + s * h, hyper, 2) for s in (1, -1))
    for k in range(3):
        slope = np.broadcast_to(ahead[k] - behind[k], eta.shape) / (2 * h)
        np.testing.assert_allclose(found[k + 1] + 0 * eta, slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in ONE if ONE[name][1]])
@pytest.mark.parametrize("order", [0, 2])
def test_in_its_own_hyperparameters(name, order):
    likelihood, hyper, y = ONE[name]
    known = likelihood.derivatives(y, ETA, hyper, order + 1)
    found = likelihood.hyper_slopes(y, ETA, hyper, order, known)
    assert set(found) == set(hyper)
    expected = _by_jax.hyper_slopes(likelihood, y, ETA, hyper, order)
    for one in hyper:
        h = 1e-5
        ahead, behind = (
            likelihood.derivatives(y, ETA, hyper | {one: hyper[one] + s * h}, order)
            for s in (1, -1)
        )
        for k in range(order + 1):
            ours = np.broadcast_to(found[one][k], ETA.shape)
            np.testing.assert_allclose(ours, expected[one][k], rtol=1e-9, atol=1e-11)
            slope = np.broadcast_to(ahead[k] - behind[k], ETA.shape) / (2 * h)
            np.testing.assert_allclose(ours, slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_without_hyperparameters_there_are_no_slopes(name):
    likelihood, _, y = ONE[name]
    assert likelihood.hyper_slopes(y, ETA, {}, 0, []) == {}
    assert _by_jax.hyper_slopes(likelihood, y, ETA, {}, 0) == {}


@pytest.mark.parametrize("name", [name for name in ONE if ONE[name][1]])
def test_slopes_of_the_weak_priors(name):
    likelihood, hyper, _ = ONE[name]
    found = likelihood.log_prior_slopes(hyper)
    for one, value in hyper.items():
        up, down = (likelihood.log_prior(hyper | {one: value + s * 1e-6}) for s in (1, -1))
        assert float(found[one]) == pytest.approx((up - down) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_of_several_predictors(classes):
    rng = np.random.default_rng(0)
    softmax = models.Softmax(classes)
    y = np.arange(6.0) % classes
    eta = 3 * rng.standard_normal((6, classes, 4))
    eta[0, 0] = 800.0  # whose exponential overflows
    value, slope = softmax.several(y, eta, {})
    expected = _by_jax.several(softmax, y, eta, {})
    np.testing.assert_allclose(value, expected[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, expected[1], atol=1e-12)
    np.testing.assert_array_equal(softmax.several(y, eta, {}, order=0)[0], value)
    at = eta[:, :, 0]
    hessian = softmax.several_hessians(y, at, {})
    np.testing.assert_allclose(hessian, _by_jax.several_hessians(softmax, y, at, {}), atol=1e-12)
    matrix = rng.standard_normal((6, classes, classes))
    matrix = matrix + matrix.transpose(0, 2, 1)
    third = softmax.several_thirds(y, at, {}, matrix)
    expected = _by_jax.several_thirds(softmax, y, at, {}, matrix)
    np.testing.assert_allclose(third, expected, atol=1e-12)
    for k in range(classes):
        shift = np.zeros(classes)
        shift[k] = 1e-5
        ahead, behind = (softmax.several_hessians(y, at + s * shift, {}) for s in (1, -1))
        slopes = ((ahead - behind) * matrix).sum((1, 2)) / 2e-5
        np.testing.assert_allclose(third[:, k], slopes, atol=1e-8)
