"""Family "mixture" from end to end: shapes with known distances, modes with known masses."""

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._errors import InputError
from mixvi._law._mixture import GaussianMixture

S = 0.25
LOG_Z_BANANA = np.log(2 * np.pi * S)


def banana(w):
    return -0.5 * w[0] ** 2 - 0.5 * ((w[1] - w[0] ** 2) / S) ** 2


@pytest.fixture(scope="module")
def bent():
    return mixvi.fit(banana, np.zeros(2), family="mixture")


def far_modes(centres, masses, widths):
    """Of normal densities with these masses."""

    def log_density(w):
        z = (w["x"] - centres) / widths[:, None]
        return jnp.logaddexp.reduce(
            jnp.log(masses) - 0.5 * (z**2).sum(1) - 2 * jnp.log(widths) - jnp.log(2 * jnp.pi)
        )

    return log_density


def test_a_banana_is_covered(bent):
    one = mixvi.fit(banana, np.zeros(2))
    assert LOG_Z_BANANA - one.elbo.value > 0.8
    assert bent.elbo.value > LOG_Z_BANANA - 0.03
    assert bent.elbo.value < LOG_Z_BANANA + 4 * bent.elbo.se
    assert isinstance(bent.law, GaussianMixture)
    assert bent.family == "mixture"
    assert bent.stats.components == len(bent.law.weights)
    assert f"{bent.stats.components} components" in bent.status
    assert bent.trust != "reject"
    # w1 = w0^2 + S e: mean 1, variance 2 + S^2
    np.testing.assert_allclose(bent.mean, [0, 1], atol=0.1)
    np.testing.assert_allclose(bent.std, [1, np.sqrt(2 + S**2)], rtol=0.15)


def test_its_distance_is_that_of_quadrature(bent):
    x, y = np.linspace(-5, 5, 1001), np.linspace(-3, 20, 2301)
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)
    log_q = bent.log_prob(grid)
    log_p = -0.5 * grid[:, 0] ** 2 - 0.5 * ((grid[:, 1] - grid[:, 0] ** 2) / S) ** 2
    area = (x[1] - x[0]) * (y[1] - y[0])
    away = (np.exp(log_q) * (log_q - log_p + LOG_Z_BANANA)).sum() * area
    assert away == pytest.approx(LOG_Z_BANANA - bent.elbo.value, abs=5 * bent.elbo.se)


def test_a_gaussian_stays_one_and_costs_next_to_nothing():
    def gaussian(w):
        return -0.5 * ((w["a"] - 3) ** 2 + (w["b"] - w["a"]) ** 2 / 0.3).sum()

    init = {"a": np.zeros(2), "b": np.zeros(2)}
    one, several = (mixvi.fit(gaussian, init, family=f) for f in ("auto", "mixture"))
    np.testing.assert_array_equal(several.flat_mean, one.flat_mean)
    np.testing.assert_array_equal(several.cov, one.cov)
    assert several.stats.gradients == one.stats.gradients
    assert several.stats.values == one.stats.values
    assert "one Gaussian is as good" in several.status
    assert several.trust == "trust"


def test_where_no_mixture_was_tried_the_status_says_why():
    def wall(w):  # which the Gaussian crosses
        return jnp.where(w[0] > -1.0, -0.5 * w @ w, -jnp.inf)

    with pytest.warns(mixvi.NotConvergedWarning, match="Stuck"):
        beyond = mixvi.fit(wall, np.array([1.0, 0.0]), family="mixture")
    assert beyond.trust == "reject"
    assert "the log density is not finite at fresh draws" in beyond.status
    single = mixvi.fit(banana, np.zeros(2), family=mixvi.Mixture(1))
    assert "A mixture of one component was asked for: that is one Gaussian." in single.status
    for post in (beyond, single):
        assert "is as good" not in post.status


def test_a_nearly_gaussian_posterior_stays_one():
    def skewed(w):  # 40 counts
        return (40 * w - jnp.exp(w)).sum()

    post = mixvi.fit(skewed, np.zeros(2), family="mixture")
    assert post.stats.components is None
    assert post.elbo.value > mixvi.fit(skewed, np.zeros(2)).elbo.value - 1e-9


def test_two_far_modes_get_their_masses():
    centres, widths = np.array([[0.0, 0.0], [12.0, -8.0]]), np.array([1.0, 0.3])
    density = far_modes(centres, np.array([0.35, 0.65]), widths)
    post = mixvi.fit(density, {"x": np.zeros(2)}, family="mixture")
    order = np.argsort(post.law.means[:, 0])
    np.testing.assert_allclose(post.law.weights[order], [0.35, 0.65], atol=0.01)
    assert post.elbo.value == pytest.approx(0, abs=1e-3)
    assert post.trust == "trust"
    assert "mixture" in post.verdict
    np.testing.assert_allclose(post.mean["x"], 0.65 * centres[1], atol=0.1)


def test_five_far_modes_get_their_masses():
    angle = 2 * np.pi * np.arange(5) / 5
    centres = 15 * np.stack([np.cos(angle), np.sin(angle)], 1)
    masses, widths = np.array([0.1, 0.15, 0.2, 0.25, 0.3]), np.array([1.0, 0.5, 2.0, 0.7, 1.3])
    density = far_modes(centres, masses, widths)
    init = {"x": centres[0]}
    post = mixvi.fit(density, init, family="mixture", n_restarts=20)
    assert len(post.law.weights) == 5
    nearest = np.argmin(np.linalg.norm(post.law.means[:, None] - centres, axis=2), axis=1)
    np.testing.assert_allclose(post.law.weights, masses[nearest], atol=0.01)
    assert post.trust == "trust"


def test_at_most_as_many_as_asked():
    post = mixvi.fit(banana, np.zeros(2), family=mixvi.Mixture(2))
    assert len(post.law.weights) == 2
    one = mixvi.fit(banana, np.zeros(2), family=mixvi.Mixture(n_components=1))
    np.testing.assert_array_equal(one.cov, mixvi.fit(banana, np.zeros(2)).cov)
    for wrong in (0, True):
        with pytest.raises(InputError, match="n_components"):
            mixvi.Mixture(wrong)


def test_draws_of_ones_own_are_kept():
    post = mixvi.fit(banana, np.zeros(2), family="mixture", draws=mixvi.Matched(128))
    assert post.stats.draws == 128
    assert post.stats.components > 1


def test_images_are_components_unless_one_of_equals_is_accepted():
    def mirrored(w):
        return jnp.logaddexp(-0.5 * (w["a"] - 9) ** 2, -0.5 * (w["a"] + 9) ** 2)

    post = mixvi.fit(mirrored, {"a": 5.0}, family="mixture")
    np.testing.assert_allclose(post.law.weights, 0.5, atol=0.01)
    one = mixvi.fit(mirrored, {"a": 5.0}, family="mixture", symmetric="accept")
    assert one.stats.components is None
    alone = mixvi.fit(mirrored, {"a": 5.0}, symmetric="accept")
    np.testing.assert_array_equal(one.cov, alone.cov)
    assert one.verdict == alone.verdict


def test_the_same_numbers_every_time(bent):
    again = mixvi.fit(banana, np.zeros(2), family=mixvi.Mixture)
    np.testing.assert_array_equal(again.law.means, bent.law.means)
    np.testing.assert_array_equal(again.law.weights, bent.law.weights)


def test_a_warm_start_begins_from_the_components(bent):
    again = mixvi.fit(banana, bent, family="mixture")
    assert again.elbo.value > bent.elbo.value - 0.01
    single = mixvi.fit(banana, bent)
    assert single.law.dim == 2


def test_everything_that_takes_a_posterior_takes_it(bent, tmp_path):
    again = mixvi.load(bent.save(tmp_path / "bent"))
    assert again.summary() == bent.summary()
    np.testing.assert_array_equal(again.law.means, bent.law.means)
    assert again.stats == bent.stats
    found = bent.importance_weights()
    assert found.khat < 0.7
    np.testing.assert_allclose(found.weights @ found.draws, [0, 1], atol=0.15)
    assert bent.importance_weights(2000, banana).khat < 0.7
    compared = mixvi.compare({"one": mixvi.fit(banana, np.zeros(2)), "several": bent})
    assert compared.best == "several"
    assert "components" in bent.summary()
    assert bent.quantiles([0.05, 0.95]).shape == (2, 2)
    assert bent.modes[0].point.shape == (2,)


def test_bounds_and_hyperparameters():
    def gamma(w):  # a Gamma(1/2) variable: skewed on the log scale
        return -0.5 * jnp.log(w["x"]) - w["x"]

    post = mixvi.fit(gamma, {"x": 1.0}, constraints={"x": "positive"}, family="mixture")
    assert post.mean["x"] == pytest.approx(0.5, rel=0.05)
    # log x has the mean digamma(1/2) and the variance trigamma(1/2)
    assert post.flat_mean[0] == pytest.approx(-np.euler_gamma - 2 * np.log(2), abs=0.1)
    assert post.flat_std[0] == pytest.approx(np.pi / np.sqrt(2), rel=0.1)
    assert post.elbo.value == pytest.approx(np.log(np.sqrt(np.pi)), abs=0.02)

    def learns(w, hyper):
        prior = -0.5 * (w**2).sum() * jnp.exp(hyper) + 0.5 * w.size * hyper
        return prior + (jnp.array([1.0, 4.0, 2.0]) * w - jnp.exp(w)).sum()

    post = mixvi.fit(learns, np.zeros(3), hyper=0.0, family="mixture")
    assert np.isfinite(post.hyper)


def test_where_it_does_not_serve_it_says_so():
    with pytest.raises(InputError, match="fit_many"):
        mixvi.fit_many(lambda w, d: -0.5 * (w - d) ** 2, 0.0, np.zeros(3), family="mixture")
    with pytest.raises(InputError, match="family="):
        mixvi.fit(banana, np.zeros(2), "mixture")


def test_the_verdict_names_it_where_it_helps(bent):
    one = mixvi.fit(banana, np.zeros(2))
    assert one.trust == "reject"
    assert 'family="mixture"' in one.verdict
    assert 'family="mixture"' not in bent.verdict
