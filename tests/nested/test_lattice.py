"""Three hyperparameters on a lattice, and smooth functions through values and slopes: against theta
functions, quadrature, and densities that are known."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import mixvi
from mixvi._approximate import _explore
from mixvi._approximate._explore import Place, explored
from mixvi._fit._files import _hyper_posterior, _hyper_posterior_to
from mixvi._fit._nested import _signs
from mixvi._law._hermite import Hermite
from mixvi._law._surface import Surface

PROBS = np.array([0.025, 0.25, 0.5, 0.75, 0.975])


def found_of(log_density, slope, start):
    def ask(theta, near):
        del near
        return Place(theta, float(log_density(theta)), np.asarray(slope(theta)), None)

    return explored(ask, np.asarray(start, float))


def surface(found):
    names = tuple(f"t{j}" for j in range(found.z.shape[1]))
    frame = found.frame
    at = (names, frame.centre, frame.basis, frame.scales, found.z, found.values, found.slopes)
    return Surface(*at, step=found.step or 0.0)


@pytest.fixture
def always_on_lattice(monkeypatch):
    monkeypatch.setattr(_explore, "ROUGH", -1.0)


# --- through values and slopes ------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_a_quadratic_comes_back(k):
    rng = np.random.default_rng(k)
    points, at = rng.uniform(-2, 2, (20, k)), rng.uniform(-5, 5, (50, k))
    root, b = rng.standard_normal((k, k)), rng.standard_normal(k)
    curved = root + root.T

    def value(x):
        return 1.5 + x @ b + 0.5 * ((x @ curved) * x).sum(1)

    made = Hermite(points, value(points), b + points @ curved)
    np.testing.assert_allclose(made(at), value(at), atol=1e-8)


def test_it_has_the_values_and_slopes_that_it_was_given():
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (30, 3))
    values, slopes = rng.standard_normal(30), rng.standard_normal((30, 3))
    made = Hermite(points, values, slopes)
    np.testing.assert_allclose(made(points), values, atol=1e-9)
    for j, step in enumerate(1e-5 * np.eye(3)):
        found = (made(points + step) - made(points - step)) / 2e-5
        np.testing.assert_allclose(found, slopes[:, j], atol=1e-5)


def test_of_a_smooth_function_half_the_distance_is_a_tenth_of_the_error():
    """Of what lies between the points of a grid; values alone would miss it more."""

    def value(x):
        return np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.1 * x[:, 0] ** 3

    def slope(x):
        first = np.cos(x[:, 0]) * np.cos(x[:, 1]) + 0.3 * x[:, 0] ** 2
        return np.stack([first, -np.sin(x[:, 0]) * np.sin(x[:, 1])], 1)

    at = np.random.default_rng(1).uniform(-2, 2, (200, 2))
    errors = []
    for step in (1.5, 0.75):
        axis = step * np.arange(-2 * round(1.5 / step), 2 * round(1.5 / step) + 1)
        points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
        errors.append(np.abs(Hermite(points, value(points), slope(points))(at) - value(at)).max())
    assert errors[0] < 0.05
    assert errors[1] < 0.1 * errors[0]


# --- the lattice ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("always_on_lattice")
def test_a_normal_on_the_lattice():
    mix = np.array([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [-0.3, 0.2, 2.0]])
    back, mean = np.linalg.inv(mix), np.array([1.0, -2.0, 0.5])

    def log_density(theta):
        return -0.5 * ((back @ (theta - mean)) ** 2).sum()

    found = found_of(log_density, lambda theta: -back.T @ back @ (theta - mean), mean + 0.2)
    at = np.rint(found.z / found.step).astype(int)
    assert ((at - at[:, :1]) % 2 == 0).all()  # all even or all odd
    assert 55 < len(at) < 70
    exact = 1.5 * math.log(2 * math.pi) + np.linalg.slogdet(mix)[1]
    assert found.log_integral == pytest.approx(exact, abs=stats.chi2(3).sf(14.0))  # 7 nats down
    # Poisson's sum: each half is sum_m (+-1)^(m1+m2+m3) q^|m|^2.
    q = math.exp(-0.5 * math.pi**2)
    even, odd = (1 + 2 * q + 2 * q**4) ** 3, (1 - 2 * q + 2 * q**4) ** 3
    assert found.uneven == pytest.approx(math.log(even / odd), abs=6e-3)
    assert found.steep == pytest.approx(1.0, abs=0.03)
    made = surface(found)
    np.testing.assert_allclose(made.cov, mix @ mix.T, rtol=1e-2, atol=1e-2)
    for j in range(3):
        exact = stats.norm(mean[j], math.sqrt((mix @ mix.T)[j, j]))
        off = made.marginal(j).quantiles(PROBS) - exact.ppf(PROBS)
        assert np.abs(off).max() < 5e-3 * exact.std()


def skewed(x):
    """Logs of gammas: `a x - b exp(x)`."""
    return (2.0 * x - 2.0 * np.exp(x)).sum()


def skewed_slope(x):
    return 2.0 - 2.0 * np.exp(x)


OWN = stats.loggamma(2.0, loc=-math.log(2.0))
EXACT = math.lgamma(2.0) - 2 * math.log(2.0)


def test_a_skewed_correlated_density_goes_on_to_the_lattice():
    mix = np.array([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [0.0, 0.0, 0.7]])
    back = np.linalg.inv(mix)
    found = found_of(
        lambda theta: skewed(back @ theta),
        lambda theta: back.T @ skewed_slope(back @ theta),
        [0.1] * 3,
    )
    assert found.step is not None
    assert not found.open_axes
    assert found.log_integral == pytest.approx(3 * EXACT + math.log(0.35), abs=1e-2)
    made = surface(found)
    for j, length in ((0, 1.0), (2, 0.7)):
        off = made.marginal(j).quantiles(PROBS) - length * OWN.ppf(PROBS)
        assert np.abs(off).max() < 0.015 * length * OWN.std()

    def below(x):  # of 0.6 a + 0.5 b
        return integrate.quad(lambda a: OWN.pdf(a) * OWN.cdf((x - 0.6 * a) / 0.5), -12, 5)[0]

    at = made.marginal(1).quantiles(PROBS)
    np.testing.assert_allclose([below(x) for x in at], PROBS, atol=2e-3)
    np.testing.assert_allclose(made.cov, OWN.var() * mix @ mix.T, rtol=1e-2, atol=5e-3)


def test_what_is_normal_stays_a_design():
    found = found_of(lambda x: -0.5 * x @ x, lambda x: -x, [0.1, 0.0, -0.1])
    assert found.step is None
    assert len(found.places) == 15


@pytest.mark.usefixtures("always_on_lattice")
def test_a_density_too_narrow_for_its_steps_is_noticed():
    def banana(bend):
        def log_density(x):
            return -0.5 * x[0] ** 2 - 0.5 * (x[1] - bend * x[0] ** 2) ** 2 - 0.5 * x[2] ** 2

        def slope(x):
            apart = x[1] - bend * x[0] ** 2
            return np.array([2 * bend * x[0] * apart - x[0], -apart, -x[2]])

        # Turned, so that no axis of the lattice lies along it.
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
        return found_of(
            lambda t: log_density(turn @ t), lambda t: turn.T @ slope(turn @ t), [0.0] * 3
        )

    assert banana(0.3).steep < 1.3
    assert banana(4.0).steep > 3.0


# --- a design of more -----------------------------------------------------------------------------


def test_weights_correct_the_split_normal_of_a_design():
    found = found_of(skewed, skewed_slope, np.zeros(4))
    assert found.step is None
    made = surface(found)
    without = dataclasses.replace(made, slopes=None)
    for j in range(4):
        off, before = (
            np.abs(one.marginal(j).quantiles(PROBS) - OWN.ppf(PROBS)).max() / OWN.std()
            for one in (made, without)
        )
        assert before > 0.1
        assert off < 0.08
        assert off < 0.5 * before
        assert made.marginal(j).std == pytest.approx(OWN.std(), rel=0.05)
    np.testing.assert_allclose(made.cov, OWN.var() * np.eye(4), atol=0.05)


def test_tails_that_values_do_not_show_are_seen_by_slopes(monkeypatch):
    """Student's t falls as the split normal does where that was fitted, but not as steeply."""
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]

    def log_density(theta):
        return -3.5 * np.log1p((turn @ theta) ** 2 / 6).sum()

    def slope(theta):
        x = turn @ theta
        return turn.T @ (-7 * x / (6 + x**2))

    monkeypatch.setattr(_explore, "ROUGH", math.inf)
    design = found_of(log_density, slope, np.zeros(3))
    by_values = np.abs(design.values - design.values[0] + 0.5 * (design.z**2).sum(1)).max()
    assert by_values < 0.25
    assert design.ratio > 0.25
    monkeypatch.undo()
    assert found_of(log_density, slope, np.zeros(3)).step is not None


# --- what is said ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def integrated():
    def log_density(w, hyper, y):
        scales = jnp.stack([hyper["a"], hyper["b"], hyper["c"]])
        return (-0.5 * (y - w) ** 2 - 0.5 * w**2 * jnp.exp(-2 * scales) - scales).sum()

    def prior(hyper):
        return -0.5 * (hyper["a"] ** 2 + hyper["b"] ** 2 + hyper["c"] ** 2)

    hyper = {"a": 0.0, "b": 0.0, "c": 0.0}
    y = np.array([2.0, -1.0, 0.5])
    return mixvi.laplace(
        *(log_density, np.zeros(3), y), hyper=hyper, hyper_prior=prior, hyper_posterior=True
    )


def test_exact_marginals_of_independent_hyperparameters(integrated):
    """y ~ N(0, 1 + tau^2), log tau ~ N(0, 1), one by one."""
    found = integrated.hyper_posterior
    assert found.design == "grid"
    assert integrated.trust == "trust"
    t = np.linspace(-6, 6, 4001)
    for name, y in zip("abc", (2.0, -1.0, 0.5), strict=True):
        density = stats.norm.pdf(y, 0, np.sqrt(1 + np.exp(2 * t))) * stats.norm.pdf(t)
        below = integrate.cumulative_simpson(density, x=t, initial=0)
        exact = np.interp(PROBS, below / below[-1], t)
        off = found.marginal(name).quantiles(PROBS) - exact
        assert np.abs(off).max() < 0.01 * float(found.std[name])


@pytest.mark.parametrize(
    ("field", "test", "limits"),
    [
        ("largest_ratio", "hyper_rough", (1.0, 2.0)),
        ("halves_differ", "hyper_uneven", (0.25, 1.0)),
        ("steepness", "hyper_steep", (2.0, 3.0)),
    ],
)
def test_two_levels_of_care(integrated, field, test, limits):
    found = integrated.hyper_posterior
    assert _signs(found) == {}
    for level, limit in zip(("weigh", "reject"), limits, strict=True):
        worse = dataclasses.replace(found, **{field: 1.01 * limit})
        assert _signs(worse) == {test: (level, None, 1.01 * limit, limit)}
        assert len(worse.warnings) == 1
        assert worse.warnings[0] in worse.summary()


def test_a_walk_that_ended_early_says_so(integrated):
    worse = dataclasses.replace(integrated.hyper_posterior, ended_early=True)
    n = len(worse.surface.z)
    assert _signs(worse) == {"hyper_ended": ("reject", None, float(n), 400.0)}
    (said,) = worse.warnings
    assert said.startswith(f"the walk ended at {n} points before the evidence had fallen")
    assert "improper" not in said


@pytest.mark.parametrize(("n", "where"), [(1, "one point"), (2, "2 points")])
def test_places_without_a_mode_are_counted_in_words(integrated, n, where):
    found = dataclasses.replace(integrated.hyper_posterior, n_lost=n)
    assert found.warnings == (f"at {where} where mass may be there is no mode",)


def test_files_know_of_a_walk_that_ended_early_and_older_ones_do_not(integrated):
    found = dataclasses.replace(integrated.hyper_posterior, ended_early=True)
    stored, arrays = _hyper_posterior_to(found)
    assert _hyper_posterior({"hyper_posterior": stored}, arrays).ended_early
    del stored["ended_early"]
    assert not _hyper_posterior({"hyper_posterior": stored}, arrays).ended_early


def test_slopes_travel_through_a_file(integrated, tmp_path):
    again = mixvi.load(integrated.save(tmp_path / "three")).hyper_posterior
    found = integrated.hyper_posterior
    np.testing.assert_array_equal(again.surface.slopes, found.surface.slopes)
    assert again.summary() == found.summary()
    assert (again.halves_differ, again.steepness) == (found.halves_differ, found.steepness)
