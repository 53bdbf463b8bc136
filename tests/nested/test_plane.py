"""Two hyperparameters far from normal: marginals between the points of a grid, and moments."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mixvi

PROBS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def integrated(log_density, start, data=None):
    return mixvi.laplace(
        lambda w, hyper, data: log_density(hyper, data) - 0.5 * (w**2).sum(),
        np.zeros(2),
        data,
        hyper=start,
        hyper_posterior=True,
    ).hyper_posterior


def banana(hyper, bend):
    a, b = hyper["a"], hyper["b"]
    return -0.5 * a**2 - 0.5 * (b - bend * (a**2 - 1)) ** 2


@pytest.mark.parametrize("bend", [0.5, 1.0, 1.3])
def test_a_banana_has_its_marginals_and_moments(bend):
    found = integrated(banana, {"a": 0.1, "b": -0.5}, bend)
    # b = bend (a^2 - 1) + e: its distribution function is an integral over a
    a = np.linspace(-8, 8, 4001)
    mass = stats.norm.pdf(a) * (a[1] - a[0])
    sd = np.sqrt(1 + 2 * bend**2)
    of_b = found.marginal("b")
    shares = [mass @ stats.norm.cdf(q - bend * (a**2 - 1)) for q in of_b.quantiles(PROBS)]
    np.testing.assert_allclose(shares, PROBS, atol=0.01)
    np.testing.assert_allclose(
        found.marginal("a").quantiles(PROBS), stats.norm.ppf(PROBS), atol=0.02
    )
    assert found.mean["a"] == pytest.approx(0, abs=0.01)
    assert found.mean["b"] == pytest.approx(0, abs=0.02 * sd)
    assert found.std["a"] == pytest.approx(1, rel=0.01)
    assert found.std["b"] == pytest.approx(sd, rel=0.02)
    # The mixture's own points say the same.
    np.testing.assert_allclose(found.weights @ found.points, [0, 0], atol=0.05)


@pytest.mark.parametrize("n", [5, 10])
def test_mean_and_scale_of_a_normal_sample(n):
    """Under a flat prior the mean is a Student-t."""

    def sample(hyper, n):
        scale = hyper["log_sigma"]
        return -n * scale - 0.5 * n * (1 + hyper["mu"] ** 2) * jnp.exp(-2 * scale)

    found = integrated(sample, {"mu": 0.1, "log_sigma": 0.1}, float(n))
    exact = stats.t(n - 1, scale=1 / np.sqrt(n - 1))
    shares = exact.cdf(found.marginal("mu").quantiles(PROBS))
    np.testing.assert_allclose(shares, PROBS, atol=0.003)
    assert found.mean["mu"] == pytest.approx(0, abs=0.01)
    assert found.marginal("mu").hdi(0.9).sum() == pytest.approx(0, abs=0.02)


def test_without_slopes_nothing_is_made_up_where_no_point_is_near():
    """Files of earlier versions have none: a spline, less exact."""
    found = integrated(banana, {"a": 0.1, "b": -0.5}, 0.7)
    older = dataclasses.replace(found.surface, slopes=None)
    np.testing.assert_allclose(
        older.marginal(1).quantiles(PROBS), found.marginal("b").quantiles(PROBS), atol=0.2
    )
