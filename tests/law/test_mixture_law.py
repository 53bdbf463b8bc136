"""Mixtures of Gaussians as laws: against explicit sums, quadrature, draws, and through files."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mixvi
from mixvi._errors import InputError
from mixvi._law._gaussian import Gaussian
from mixvi._law._mixture import GaussianMixture

RNG = np.random.default_rng(0)
WEIGHTS = np.array([0.2, 0.5, 0.3])
COMPONENTS = (
    Gaussian(np.array([1.0, -2.0]), np.array([[1.0, 0.0], [0.7, 0.4]])),
    Gaussian(np.array([-3.0, 0.5]), np.array([0.5, 2.0])),
    Gaussian(np.array([4.0, 4.0]), RNG.standard_normal((2, 2))),
)
LAW = GaussianMixture(WEIGHTS, COMPONENTS)
PROBS = np.array([0.001, 0.1, 0.5, 0.9, 0.999])


def test_the_density_is_the_weighted_sum():
    points = 4 * RNG.standard_normal((7, 2))
    exact = [stats.multivariate_normal(one.mean, one.cov).pdf(points) for one in COMPONENTS]
    np.testing.assert_allclose(np.exp(LAW.log_prob(points)), WEIGHTS @ exact, rtol=1e-10)
    assert LAW.log_prob(points[0]) == pytest.approx(LAW.log_prob(points)[0])


def test_moments_are_those_of_the_density_on_a_grid():
    x = np.linspace(-16, 16, 1201)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    mass = np.exp(LAW.log_prob(grid))
    mass /= mass.sum()
    mean = mass @ grid
    cov = (mass[:, None] * (grid - mean)).T @ (grid - mean)
    np.testing.assert_allclose(LAW.mean, mean, atol=1e-6)
    np.testing.assert_allclose(LAW.cov, cov, atol=1e-5)
    np.testing.assert_allclose(LAW.std, np.sqrt(np.diag(LAW.cov)), rtol=1e-12)
    np.testing.assert_allclose(LAW.root @ LAW.root.T, LAW.cov, atol=1e-12)
    np.testing.assert_allclose(LAW.whiten(LAW.colour(grid[:5])), grid[:5], atol=1e-9)
    np.testing.assert_allclose(LAW.cov_of(np.array([1])), LAW.cov[1:, 1:])


def test_draws_are_of_the_density():
    draws = LAW.sample(0, 40_000)
    np.testing.assert_allclose(draws.mean(0), LAW.mean, atol=5 * LAW.std.max() / 200)
    np.testing.assert_allclose(np.cov(draws.T), LAW.cov, atol=0.4)
    np.testing.assert_array_equal(draws[:5], LAW.sample(0, 40_000)[:5])
    points, log_q = LAW.drawn(np.random.default_rng(1), 4)
    np.testing.assert_allclose(log_q, LAW.log_prob(points))
    for i in range(2):
        assert stats.kstest(LAW.cdf(draws)[:, i], "uniform").pvalue > 1e-3


def test_quantiles_are_roots_of_the_distribution_function():
    found = LAW.quantiles(PROBS)
    exact = sum(
        w * stats.norm.cdf(found, one.mean, one.std)
        for w, one in zip(WEIGHTS, COMPONENTS, strict=True)
    )
    np.testing.assert_allclose(exact, np.broadcast_to(PROBS[:, None], found.shape), atol=1e-12)
    np.testing.assert_allclose(LAW.quantiles(1 - PROBS, upper=True), found, atol=1e-9)
    one = GaussianMixture(np.ones(1), COMPONENTS[:1])
    np.testing.assert_allclose(one.quantiles(PROBS), COMPONENTS[0].quantiles(PROBS), atol=1e-12)


def test_marginals_are_integrals():
    x = np.linspace(-16, 16, 4001)
    grid = np.stack([np.full_like(x, 0.7), x], -1)
    by_hand = np.exp(LAW.log_prob(grid)).sum() * (x[1] - x[0])
    assert np.exp(LAW.marginal([0]).log_prob(np.array([0.7]))) == pytest.approx(by_hand, rel=1e-6)
    whole = LAW.marginal([1, 0])
    np.testing.assert_allclose(whole.log_prob(grid[:3, ::-1]), LAW.log_prob(grid[:3]))


def test_what_is_no_mixture_is_refused():
    with pytest.raises(InputError, match="2 weights for 3"):
        GaussianMixture(np.ones(2), COMPONENTS)
    with pytest.raises(InputError, match="negative"):
        GaussianMixture(np.array([1.0, -1.0, 1.0]), COMPONENTS)
    with pytest.raises(InputError, match="dimensions"):
        GaussianMixture(np.ones(2), (COMPONENTS[0], Gaussian(np.zeros(3), np.ones(3))))


# --- held by a posterior ----------------------------------------------------------------------


def bounded():
    """All kinds of bounds; the log density does not matter here."""
    init = {"free": 0.0, "pos": 1.0, "low": -1.0, "unit": 0.5, "mix": np.full(3, 1 / 3)}
    init["cuts"] = np.array([0.0, 1.0])
    kinds = {"pos": "positive", "low": mixvi.Interval(-np.inf, 0.0), "unit": "unit"}
    kinds |= {"mix": "simplex", "cuts": "ordered"}

    def log_density(w):
        return -0.5 * sum((np.asarray(1.0) * x**2).sum() for x in w.values())

    post = mixvi.fit(log_density, init, constraints=kinds, family="laplace", diagnostics=False)
    rng, dim = np.random.default_rng(3), post.dim
    parts = [
        Gaussian(0.5 * rng.standard_normal(dim), 0.4 * np.eye(dim) + 0.1 * rng.random((dim, dim)))
        for _ in range(2)
    ]
    return dataclasses.replace(post, law=GaussianMixture(np.array([0.3, 0.7]), tuple(parts)))


@pytest.fixture(scope="module")
def held():
    return bounded()


def test_bounded_parameters_have_the_moments_and_quantiles_of_draws(held):
    n = 200_000
    draws, probs = held.sample(1, n), [0.1, 0.5, 0.9]
    for name, x in draws.items():
        noise = 6 * x.std(0) / np.sqrt(n)
        assert (np.abs(held.mean[name] - x.mean(0)) < noise + 1e-3).all(), name
        np.testing.assert_allclose(held.std[name], x.std(0), rtol=0.02)
        quantiles = held.quantiles(probs)[name]
        np.testing.assert_allclose(quantiles, np.quantile(x, probs, axis=0), atol=0.02)


def test_a_file_holds_it(held, tmp_path):
    again = mixvi.load(held.save(tmp_path / "mixture"))
    assert isinstance(again.law, GaussianMixture)
    np.testing.assert_array_equal(again.law.weights, held.law.weights)
    w = held.sample(0, 3)
    np.testing.assert_array_equal(again.log_prob(w), held.log_prob(w))
    assert again.summary() == held.summary()


def test_a_posterior_answers_with_it(held):
    w = held.sample(0, 5)
    assert held.log_prob(w).shape == (5,)
    flat = held.constraints.unconstrain(held._shown.ravel(w, "w", batch=1))
    jacobian = held.constraints.log_dets(flat)
    np.testing.assert_allclose(held.log_prob(w), held.law.log_prob(flat) - jacobian, rtol=1e-6)
    np.testing.assert_allclose(held.cov, held.law.cov)
    assert held.cov_of("log pos").shape == (1, 1)
    assert held.whiten(w).shape == (5, held.dim)


def test_weights_make_its_draws_stand_for_the_posterior():
    def density(w):
        return jnp.logaddexp(-0.5 * w**2 + jnp.log(0.25), -0.5 * (w - 9.0) ** 2 + jnp.log(0.75))

    post = mixvi.laplace(density, 0.0, diagnostics=False)
    parts = (Gaussian(np.zeros(1), np.ones(1)), Gaussian(np.full(1, 9.0), np.ones(1)))
    post = dataclasses.replace(post, law=GaussianMixture(np.array([0.5, 0.5]), parts))
    found = post.importance_weights(4000, density)
    assert found.weights @ found.draws == pytest.approx(6.75, abs=0.1)
