"""Laplace's evidence of models: its gradient; where the posterior is Gaussian, the closed form."""

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import mixvi
from mixvi import models
from mixvi._approximate._evidence import Evidence
from mixvi.models._kernel import JITTER
from model_cases import BASES, LIKELIHOODS, density_of, differences, table

PAIRS = [(basis, "student_t, df learnt") for basis in BASES]
PAIRS += [("rbf", likelihood) for likelihood in LIKELIHOODS if likelihood != "student_t, df learnt"]
PAIRS += [("rbf per feature", "softmax"), ("gp matern52", "softmax")]
PAIRS += [("linear, own constant", "poisson"), ("rbf, own constant", "softmax")]
KERNELS = {
    "rbf": RBF,
    "matern12": lambda width: Matern(width, nu=0.5),
    "matern32": lambda width: Matern(width, nu=1.5),
    "matern52": lambda width: Matern(width, nu=2.5),
}


@pytest.mark.parametrize(("basis", "likelihood"), PAIRS)
def test_its_gradient(basis, likelihood):
    density = density_of(basis, likelihood)
    start = density.init.ravel()

    def evidence(theta):
        return Evidence(density, start, "raise").solved(theta, start).log_evidence

    value, gradient = Evidence(density, start, "raise")(density.theta)
    assert value == pytest.approx(evidence(density.theta), abs=1e-6)
    np.testing.assert_allclose(gradient, differences(evidence, density.theta, 1e-4), atol=2e-6)


def regression(basis, **options):
    """A Gaussian model without weak priors, its targets and its noise."""
    x = table(25, 2)
    y = np.sin(2 * x[:, 0]) + 0.3 * np.random.default_rng(0).standard_normal(25)
    model = models.Model(basis, models.Gaussian(), weak_prior=False)
    density = model.density(x, y, **options)
    hyper = {name: value - 0.3 for name, value in density.hyper.items()}
    return model.density(x, y, hyper=hyper, **options)


@pytest.mark.parametrize("weighted", [False, True])
def test_of_gaussian_noise_it_is_the_marginal_likelihood(weighted):
    weight = np.random.default_rng(1).uniform(0.5, 3, 25) if weighted else np.ones(25)
    density = regression(models.RBF(6), weight=weight)
    post = mixvi.laplace(density, density.init)
    phi = density.basis.design(density.rows, density.shared, density.hyper)
    alpha, sigma = np.exp(density.hyper["log_alpha"]), np.exp(density.hyper["log_sigma"])
    # A row of weight a is one with noise sigma^2 / a, but for a factor that has no w.
    covariance = phi @ phi.T / alpha + np.diag(sigma**2 / weight)
    exact = stats.multivariate_normal(np.zeros(25), covariance).logpdf(density.y)
    factor = 0.5 * ((1 - weight) * np.log(2 * np.pi * sigma**2) - np.log(weight)).sum()
    assert post.log_evidence == pytest.approx(exact + factor, abs=1e-8)
    precision = phi.T @ (weight[:, None] * phi) / sigma**2 + alpha * np.eye(7)
    np.testing.assert_allclose(post.cov, np.linalg.inv(precision), rtol=1e-7, atol=1e-12)
    mean = np.linalg.solve(precision, phi.T @ (weight * density.y)) / sigma**2
    np.testing.assert_allclose(post.flat_mean, mean, atol=1e-8)
    # The bound is exact, too.
    full = mixvi.fit(density, density.init, family="full", diagnostics=False)
    assert full.elbo_fixed == pytest.approx(post.log_evidence, abs=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("per_feature", [False, True])
def test_of_a_gaussian_process_it_is_scikit_learns(kernel, per_feature):
    density = regression(models.GaussianProcess(kernel, None, per_feature))
    hyper = density.hyper
    variance = np.exp(2 * hyper["log_amplitude"])
    # The constant has a standard normal prior: one more in every entry.
    theirs = ConstantKernel(variance) * KERNELS[kernel](np.exp(hyper["log_width"]))
    noise = np.exp(2 * hyper["log_sigma"]) + JITTER * variance
    theirs = theirs + ConstantKernel(1.0) + WhiteKernel(noise)
    x = density.shared["centres"]
    reference = GaussianProcessRegressor(theirs, alpha=0.0, optimizer=None).fit(x, density.y)
    post = mixvi.laplace(density, density.init)
    assert post.log_evidence == pytest.approx(reference.log_marginal_likelihood_value_, abs=1e-6)
    fresh = table(9, 2, seed=5)
    predictive = models.Predictive.of(
        models.Model(density.basis, density.likelihood), density.shared, post, density.hyper
    )
    mean, sd = predictive.predictor(density.basis.rows(fresh, density.shared))
    expected, theirs = reference.predict(fresh, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-5)
    np.testing.assert_allclose(sd**2 + noise, theirs**2, atol=1e-5)


def test_learnt_hyperparameters_have_no_slope_left():
    density = regression(models.RBF(6))
    post = mixvi.laplace(density, density.init, hyper=density.hyper)
    at = density.flat(post.hyper)
    gradient = Evidence(density, density.init, "raise")(at)[1]
    assert np.abs(gradient).max() < 1e-3
    further = np.random.default_rng(0).standard_normal((5, len(at)))
    for shift in 0.2 * further:
        other = Evidence(density, density.init, "raise")(at + shift)[0]
        assert other < post.log_evidence
