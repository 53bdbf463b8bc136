"""Where hyperparameters are asked, and with what mass: against normals and quadrature."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from mixvi._approximate._explore import Explored, Place, explored
from mixvi._arrays._design import central_composite, corners
from mixvi._law._curve import Marginal
from mixvi._law._surface import Surface

PROBS = np.array([0.025, 0.25, 0.5, 0.75, 0.975])


def asked(log_density, slope):
    """Of a log evidence that is known."""

    def ask(theta, near):
        del near
        return Place(theta, float(log_density(theta)), np.asarray(slope(theta)), None)

    return ask


def normal(k):
    rng = np.random.default_rng(k)
    root = rng.standard_normal((k, k)) + 2 * np.eye(k)
    mean, precision = rng.standard_normal(k), np.linalg.inv(root @ root.T)
    constant = -0.5 * k * math.log(2 * math.pi) - np.linalg.slogdet(root)[1]

    def log_density(theta):
        return 3.0 + constant - 0.5 * (theta - mean) @ precision @ (theta - mean)

    return mean, root @ root.T, asked(log_density, lambda theta: -precision @ (theta - mean))


def surface(found: Explored):
    names = tuple(f"t{j}" for j in range(found.z.shape[1]))
    frame = found.frame
    at = (names, frame.centre, frame.basis, frame.scales, found.z, found.values, found.slopes)
    return Surface(*at, step=found.step or 0.0)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 8])
def test_a_design_has_the_moments_of_a_normal(k):
    z, masses = central_composite(k)
    assert masses.sum() == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(masses @ z, 0, atol=1e-14)
    np.testing.assert_allclose((masses[:, None] * z).T @ z, np.eye(k), atol=1e-14)
    assert (z[1:] ** 2).sum(1) == pytest.approx(1.1**2 * k)
    assert not z[0].any()


@pytest.mark.parametrize(("k", "runs"), [(3, 8), (4, 16), (5, 16), (6, 32), (7, 64), (8, 64)])
def test_products_of_pairs_are_not_confounded(k, runs):
    signs = corners(k)
    assert signs.shape == (runs, k)
    first, second = np.triu_indices(k, 1)
    columns = np.concatenate([np.ones((runs, 1)), signs, signs[:, first] * signs[:, second]], 1)
    np.testing.assert_allclose(columns.T @ columns, runs * np.eye(columns.shape[1]), atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_a_normal_is_integrated_exactly(k):
    mean, cov, ask = normal(k)
    found = explored(ask, mean + 0.3)
    assert found is not None
    assert found.log_integral == pytest.approx(3.0, abs=2e-4)
    theta = np.stack([one.theta for one in found.places])
    np.testing.assert_allclose(found.weights @ theta, mean, atol=1e-3)
    apart = theta - mean
    np.testing.assert_allclose(
        (found.weights[:, None] * apart).T @ apart, cov, rtol=1e-3, atol=1e-3
    )
    assert not found.open_axes
    assert found.n_lost == 0
    assert found.ratio < 5e-3  # the centre is that near to the mode
    assert found.kept.sum() <= len(found.places)
    made = surface(found)
    np.testing.assert_allclose(made.cov, cov, rtol=2e-3, atol=2e-3)
    for j in range(k):
        exact = stats.norm(mean[j], math.sqrt(cov[j, j]))
        np.testing.assert_allclose(
            made.marginal(j).quantiles(PROBS), exact.ppf(PROBS), atol=2e-3 * exact.std()
        )


def skewed(theta):
    """A log gamma: `a theta - b exp(theta)`."""
    return (3.0 * theta - 2.0 * np.exp(theta)).sum()


def test_a_skewed_density_on_a_line_is_integrated_to_1e_4():
    ask = asked(skewed, lambda theta: 3.0 - 2.0 * np.exp(theta))
    found = explored(ask, np.zeros(1))
    assert found.log_integral == pytest.approx(math.lgamma(3.0) - 3 * math.log(2.0), abs=1e-4)
    exact = stats.loggamma(3.0, loc=-math.log(2.0))
    sd = exact.std()
    made = surface(found).marginal(0)
    np.testing.assert_allclose(made.quantiles(PROBS), exact.ppf(PROBS), atol=1e-3 * sd)
    assert made.mean == pytest.approx(exact.mean(), abs=1e-3 * sd)
    assert made.std == pytest.approx(sd, rel=1e-3)


def test_a_skewed_correlated_density_in_a_plane():
    mix = np.array([[1.0, 0.0], [0.6, 0.5]])
    back = np.linalg.inv(mix)
    ask = asked(
        lambda theta: skewed(back @ theta), lambda theta: back.T @ (3 - 2 * np.exp(back @ theta))
    )
    found = explored(ask, np.array([0.1, 0.3]))
    exact = 2 * (math.lgamma(3.0) - 3 * math.log(2.0)) + math.log(0.5)
    assert found.log_integral == pytest.approx(exact, abs=5e-4)
    made, own = surface(found), stats.loggamma(3.0, loc=-math.log(2.0))
    np.testing.assert_allclose(
        made.marginal(0).quantiles(PROBS), own.ppf(PROBS), atol=2e-3 * own.std()
    )
    np.testing.assert_allclose(made.cov, own.var() * mix @ mix.T, rtol=5e-3)

    def below(x):  # of 0.6 a + 0.5 b
        return integrate.quad(lambda a: own.pdf(a) * own.cdf((x - 0.6 * a) / 0.5), -12, 5)[0]

    at = made.marginal(1).quantiles(PROBS)
    np.testing.assert_allclose([below(x) for x in at], PROBS, atol=1e-3)


def test_a_design_of_a_skewed_density_says_so():
    ask = asked(skewed, lambda theta: 3.0 - 2.0 * np.exp(theta))
    found = explored(ask, np.zeros(4))
    own = stats.loggamma(3.0, loc=-math.log(2.0))
    exact = 4 * (math.lgamma(3.0) - 3 * math.log(2.0))
    assert found.log_integral == pytest.approx(exact, abs=0.1)
    assert 0.1 < found.ratio < 1.5
    made = surface(found)
    for j in range(4):
        off = made.marginal(j).quantiles(PROBS) - own.ppf(PROBS)
        assert np.abs(off).max() < 0.3 * own.std()  # its far tail


def test_evidence_that_does_not_fall_is_noticed():
    ask = asked(lambda t: -np.logaddexp(0, t).sum() * 2, lambda t: -2 / (1 + np.exp(-t)))
    found = explored(ask, np.array([-2.0]))
    assert found.open_axes == (0,)


def test_long_tails_end_the_walk_and_name_no_axis():
    """A t of two degrees of freedom in three dimensions, which is proper: it falls by 7 nats at 9
    standard deviations, and a ball of that radius has too many places."""
    ask = asked(lambda t: -2.5 * np.log1p(t @ t / 3), lambda t: -5 * t / (3 + t @ t))
    found = explored(ask, np.zeros(3))
    assert (found.step, len(found.places)) == (1.0, 400)
    assert found.ended_early
    assert found.open_axes == ()


@pytest.mark.parametrize("flat", [0, 1])
def test_of_two_the_one_that_is_flat_is_named(flat):
    """The other's tails are exponential: there are too many places beside it before the flat axis
    comes to its end."""

    def log_density(t):
        x = t[1 - flat]
        return 0.5 * x - 1.5 * np.log1p(np.exp(x))

    def slope(t):
        x = t[1 - flat]
        return np.eye(2)[1 - flat] * (0.5 - 1.5 / (1 + np.exp(-x)))

    found = explored(asked(log_density, slope), np.zeros(2))
    along = np.abs(found.frame.basis).argmax(0)
    assert found.ended_early
    assert [along[j] for j in found.open_axes] == [flat]


def test_places_without_a_mode_are_counted():
    def until(end):
        def ask(theta, near):
            del near
            if theta[0] < end:
                return None
            return Place(theta, float(-0.5 * theta @ theta), -theta, None)

        return explored(ask, np.zeros(1))

    assert (until(-1.0).n_lost, until(-1.0).open_axes) == (1, (0,))
    assert (until(-3.1).n_lost, until(-3.1).open_axes) == (1, ())
    assert (until(-4.0).n_lost, until(-4.0).open_axes) == (0, ())
    assert explored(lambda theta, near: None, np.zeros(1)) is None


def test_a_marginal_of_a_known_density():
    own = stats.gamma(2.5)
    grid = np.linspace(1e-9, 25, 2001)
    made = Marginal.of_density("x", grid, own.pdf(grid))
    np.testing.assert_allclose(made.quantiles(PROBS), own.ppf(PROBS), atol=1e-4)
    np.testing.assert_allclose(made.cdf(own.ppf(PROBS)), PROBS, atol=1e-4)
    np.testing.assert_allclose(made.density(own.ppf(PROBS)), own.pdf(own.ppf(PROBS)), atol=1e-4)
    assert made.mean == pytest.approx(2.5, abs=1e-4)
    assert made.std == pytest.approx(math.sqrt(2.5), abs=1e-4)
    low, high = made.hdi(0.8)
    assert own.cdf(high) - own.cdf(low) == pytest.approx(0.8, abs=1e-4)
    assert own.pdf(low) == pytest.approx(own.pdf(high), rel=2e-3)
    assert made.density(-1.0) == 0
    assert made.cdf(-1.0) == 0
    assert made.cdf(99.0) == 1
