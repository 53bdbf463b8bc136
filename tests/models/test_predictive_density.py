"""`log E p(y | eta)`, `eta ~ N(m, s^2)`, against adaptive integration: near rows and far ones."""

import itertools

import numpy as np
import pytest
from scipy import integrate, optimize

from mixvi import models
from mixvi.models import _integral

TOL = 1e-8
REAL = {
    "gaussian": (models.Gaussian(), {"log_sigma": -1.0}),
    "cauchy": (models.Cauchy(), {"log_gamma": -2.0}),
    "t": (models.StudentT(4.0), {"log_sigma": -1.0}),
    "t, hardly a moment": (models.StudentT(0.5), {"log_sigma": -1.0}),
    "t, nearly normal": (models.StudentT(300.0), {"log_sigma": -1.0}),
    "t, df learnt": (models.StudentT(None), {"log_sigma": 0.2, "log_df": np.log(60.0)}),
}


def exact(log_prob, mean, sd, centre, width):
    """By `quad` between neighbouring points of a grid that sees the Gaussian, the likelihood and
    what lies between, wherever the integrand is within 45 nats of its highest value."""

    def log_integrand(eta):
        with np.errstate(over="ignore"):
            return np.asarray(log_prob(eta)) - 0.5 * ((eta - mean) / sd) ** 2

    grid = np.r_[
        mean + sd * np.linspace(-40, 40, 4001),
        centre + width * np.sinh(np.linspace(-12, 12, 2001)),
        np.linspace(mean, centre, 4001),
    ]
    grid = np.unique(grid)
    values = log_integrand(grid)
    best = values.argmax()
    bounds = tuple(grid[np.clip([best - 1, best + 1], 0, len(grid) - 1)])
    finer = optimize.minimize_scalar(
        lambda eta: -float(log_integrand(eta)), bounds=bounds, method="bounded"
    )
    top = max(values[best], -finer.fun)
    (live,) = np.nonzero(values > top - 45)
    live = np.r_[max(live[0] - 1, 0), live, min(live[-1] + 1, len(grid) - 1)]
    step = max(1, len(live) // 80)
    edges = np.unique(np.r_[grid[live[::step]], grid[live[-1]], finer.x])
    total = sum(
        integrate.quad(
            lambda eta: np.exp(log_integrand(eta) - top), a, b, epsabs=1e-13, epsrel=1e-11
        )[0]
        for a, b in itertools.pairwise(edges)
    )
    return np.log(total) + top - np.log(sd * np.sqrt(2 * np.pi))


def against(likelihood, hyper, y, mean, sd, width, tol=TOL):
    """All rows at once: they take different numbers of nodes."""
    y, mean, sd = (np.asarray(one, dtype=float) for one in (y, mean, sd))
    expected = []
    for target, m, s in zip(y, mean, sd, strict=True):
        centre = likelihood.bump(np.float64(target), hyper)[0]

        def log_prob(eta, target=target):
            return likelihood.log_prob(target, np.asarray(eta, dtype=float), hyper)

        expected.append(exact(log_prob, m, s, float(centre), width))
    found = likelihood.predictive_log_prob(y, mean, sd, hyper)
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)


def product(*axes):
    return (part.ravel() for part in np.meshgrid(*axes, indexing="ij"))


@pytest.mark.parametrize("count", [0, 1, 30, 10_000])
def test_of_counts(count):
    away, sd = product([-3.0, 0.0, 2.0], [0.01, 0.3, 3.0])
    mean = np.log(count + 0.5) + away
    against(models.Poisson(), {}, np.full(9, count), mean, sd, 1 / np.sqrt(count + 1))


def test_of_counts_very_far_away():
    """Laplace is exact where the mode is as narrow as it is far: `e^eta = (m - eta) / s^2`."""
    mean, sd = 100.0, 0.01
    eta = optimize.brentq(lambda e: (mean - e) / sd**2 - np.exp(e), 0, 50)
    rate = np.exp(eta)
    laplace = -rate - 0.5 * ((eta - mean) / sd) ** 2 - 0.5 * np.log1p(sd**2 * rate)
    args = (np.zeros(1), np.array([mean]), np.array([sd]))
    found = models.Poisson().predictive_log_prob(*args, {})
    np.testing.assert_allclose(found, laplace, rtol=1e-9)


@pytest.mark.parametrize("sd", [0.01, 2.9, 5.0, 12.0, 30.0])
def test_of_two_classes(sd):
    label, mean = product([0.0, 1.0], [0.0, -1.5, 60.0, -60.0])
    against(models.Bernoulli(), {}, label, mean, np.full(8, sd), 1.0)


def test_of_two_classes_very_far_away():
    """There the sigmoid is an exponential: `m + s^2 / 2`."""
    mean, sd = np.array([-1000.0, -1000.0, -800.0]), np.array([0.01, 8.0, 20.0])
    found = models.Bernoulli().predictive_log_prob(np.ones(3), mean, sd, {})
    np.testing.assert_allclose(found, mean + 0.5 * sd**2, rtol=1e-12)
    # A predictor of which hardly anything is known is half below zero.
    half = models.Bernoulli().predictive_log_prob(np.ones(1), np.zeros(1), np.array([1e6]), {})
    np.testing.assert_allclose(half, np.log(0.5), rtol=1e-9)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("sd", [1e-3, 1.0, 30.0])
def test_of_noise(name, sd):
    likelihood, hyper = REAL[name]
    width = float(likelihood.spread(hyper))
    y = np.r_[0.0, sd, 9 * sd, 7 * width, 40 * width, 100 * sd]
    against(likelihood, hyper, y, np.zeros(6), np.full(6, sd), width)


@pytest.mark.parametrize("name", ["gaussian", "cauchy", "t"])
@pytest.mark.parametrize("sd", [1e-3, 1.0, 30.0])
def test_where_nothing_but_log_prob_is_known(name, sd):
    """The general rule, against what is special for noise."""
    likelihood, hyper = REAL[name]
    width = float(likelihood.spread(hyper))
    y = np.r_[0.0, sd, 4 * sd, 7 * width]
    at = (y, np.zeros(4), np.full(4, sd), hyper)
    found = _integral.log_integral(likelihood, *at)
    np.testing.assert_allclose(found, likelihood.predictive_log_prob(*at), rtol=TOL, atol=TOL)


def test_a_predictor_that_is_known():
    y, eta = np.array([0.0, 3.0]), np.array([0.2, 1.0])
    found = models.Poisson().predictive_log_prob(y, eta, np.zeros(2), {})
    np.testing.assert_allclose(found, models.Poisson().log_prob(y, eta, {}), atol=1e-9)
