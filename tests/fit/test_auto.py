"""One call: `auto`, anchors, densities without a mode, several modes."""

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._approximate._bound import Inspection
from mixvi._fit._auto import cheapest
from mixvi._fit._enough import more_draws
from targets import logistic, logistic_data

SCHOOLS = (
    np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
)
SCHOOLS_START = {"mu": 0.0, "log_tau": 0.0, "theta": np.zeros(8)}


def schools_centred(w, data):
    effect, se = data
    tau = jnp.exp(w["log_tau"])
    prior = -0.5 * (w["mu"] / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + w["log_tau"]
    groups = (-0.5 * ((w["theta"] - w["mu"]) / tau) ** 2 - w["log_tau"]).sum()
    return prior + groups - 0.5 * (((effect - w["theta"]) / se) ** 2).sum()


def two_modes(w):
    """30% in a narrow mode at -4, 70% in a wide one at 4 (in two dimensions)."""
    narrow = jnp.log(0.3) - 0.5 * ((w + 4) ** 2).sum() / 0.25 - 2 * jnp.log(0.5)
    return jnp.logaddexp(narrow, jnp.log(0.7) - 0.5 * ((w - 4) ** 2).sum())


def test_the_cheapest_family_that_leaves_nothing():
    def gains(mean, widths, root):
        return Inspection(0.0, mean, widths, root, 0.5, np.zeros(1))

    assert cheapest(gains(0.001, 0.001, 0.002), 0.005) is None
    assert cheapest(gains(1.0, 0.001, 0.002), 0.005) == mixvi.MeanOnly()
    assert cheapest(gains(1.0, 0.5, 0.503), 0.005) == mixvi.EigenScale()
    assert cheapest(gains(0.0, 0.1, 0.5), 0.005) == mixvi.FullRank()
    assert cheapest(gains(np.inf, np.inf, np.inf), 0.005) == mixvi.FullRank()


def test_draws_too_few_for_a_whole_root_are_not_fitted_with_one():
    """40 independent draws in 8 dimensions: on fresh ones the whole root is worse than widths."""
    data = logistic_data(40)
    few, eig, full = (
        mixvi.fit(
            logistic, np.zeros(8), family=family, data=data, draws=mixvi.IID(40), diagnostics=10_000
        )
        for family in ("auto", "eig", "full")
    )
    assert full.elbo.value < eig.elbo.value - 0.1
    assert few.family in ("laplace", "eig")
    assert "the draws given are too few for more" in few.status
    assert few.elbo.value >= eig.elbo.value


def test_between_widths_and_a_whole_root_fresh_draws_decide():
    """Twelve independent counts: widths are all there is to find, and 32 draws lead a whole root
    astray, though it stays above Laplace."""
    count = np.array([1.0, 2.0, 1.0, 3.0, 2.0, 1.0, 4.0, 1.0, 2.0, 1.0, 3.0, 1.0])

    def poisson(w):
        return (count * w - jnp.exp(w) - 0.05 * w**2).sum()

    laplace, eig, full, auto = (
        mixvi.fit(poisson, np.zeros(12), family=family, draws=mixvi.Matched(32), diagnostics=10_000)
        for family in ("laplace", "eig", "full", "auto")
    )
    assert laplace.elbo.value < full.elbo.value < eig.elbo.value - 0.01
    assert auto.family == "eig"
    assert "the draws given are too few for more" in auto.status
    assert auto.elbo.value == pytest.approx(eig.elbo.value, abs=0.01)


def test_draws_are_doubled_until_they_cost_little():
    assert more_draws(mixvi.Matched(256), 0.004, 0.005, 2**15).n == 256
    assert more_draws(mixvi.Matched(256), 0.02, 0.005, 2**15).n == 1024
    assert more_draws(mixvi.Matched(256), 1e9, 0.005, 1000).n == 512


def test_a_gaussian_stops_at_laplace():
    post = mixvi.fit(lambda w: -0.5 * ((w - 3.0) ** 2).sum(), np.zeros(3))
    assert post.family == "laplace"
    assert "Laplace leaves about 0.0001 nat to gain" in post.status
    assert post.stats.passes is None


@pytest.mark.parametrize("n", [40, 400])
def test_no_family_beats_auto(n):
    data = logistic_data(n)
    auto = mixvi.fit(logistic, np.zeros(8), data=data, diagnostics=20_000)
    others = [
        mixvi.fit(logistic, np.zeros(8), family=family, data=data, diagnostics=20_000)
        for family in ("laplace", "mu", "eig", "full")
    ]
    # All see the same fresh draws.
    assert auto.elbo.value > max(one.elbo.value for one in others) - 0.01
    assert auto.family in ("mu", "eig", "full")
    assert any(word in auto.status for word in ("Only means", "whole covariance"))


def test_auto_keeps_to_the_optimiser_it_is_given():
    post = mixvi.fit(logistic, np.zeros(8), data=logistic_data(40), optimiser="bfgs")
    assert post.family == "full"
    assert post.stats.optimiser == "bfgs"


def test_in_one_dimension_widths_are_all_there_is():
    """ELBO = 3 m - exp(m + s^2 / 2) + log s + ...: highest at s^2 = 1/3 and m = log 3 - 1/6."""
    post = mixvi.fit(lambda w: 3 * w - jnp.exp(w), 0.0, tol=1e-6)
    assert post.family == "eig"
    assert float(post.std) == pytest.approx(3**-0.5, rel=0.005)
    assert float(post.mean) == pytest.approx(np.log(3) - 1 / 6, abs=0.002)


def test_without_a_mode_fit_goes_on_and_says_so():
    with pytest.raises(mixvi.NoModeError):
        mixvi.laplace(schools_centred, SCHOOLS_START, data=SCHOOLS)
    with pytest.raises(mixvi.NoModeError):
        mixvi.fit(schools_centred, SCHOOLS_START, data=SCHOOLS, anchor="mode")
    post = mixvi.fit(schools_centred, SCHOOLS_START, data=SCHOOLS, diagnostics=20_000)
    assert post.converged
    assert post.family == "full"
    assert "There is no mode" in post.status
    assert post.verdict.startswith("Do not trust")
    assert np.isnan(post.log_evidence_laplace)
    # A long NUTS run in non-centred parameters has mu at 4.4 +- 3.3.
    assert post.mean["mu"] == pytest.approx(4.4, abs=0.3)
    again = mixvi.fit(
        schools_centred, SCHOOLS_START, family="eig", data=SCHOOLS, diagnostics=20_000
    )
    assert "Anchored at a Gaussian that Stein steps found" in again.status
    assert again.elbo.value < post.elbo.value + 0.01
    assert again.elbo.value > post.elbo.value - 1.0


def test_a_saved_posterior_without_a_mode(tmp_path):
    post = mixvi.fit(schools_centred, SCHOOLS_START, data=SCHOOLS)
    loaded = mixvi.load(post.save(tmp_path / "schools.npz"))
    np.testing.assert_array_equal(loaded.flat_mean_se, post.flat_mean_se)
    assert set(loaded.mean_se) == {"mu", "log_tau", "theta"}
    assert "Do not trust" in loaded.summary()
    assert "curvature" not in loaded.summary()  # there is no mode whose curvature it would be


def test_an_average_anchor_gives_what_the_whole_covariance_gives():
    data = logistic_data(40)
    whole = mixvi.fit(logistic, np.zeros(8), family="full", data=data, diagnostics=20_000)
    fits = {
        anchor: mixvi.fit(
            logistic, np.zeros(8), family="eig", data=data, anchor=anchor, diagnostics=20_000
        )
        for anchor in ("mode", "average")
    }
    assert fits["average"].elbo.value == pytest.approx(whole.elbo.value, abs=0.01)
    assert fits["mode"].elbo.value < whole.elbo.value + 0.005


def test_restarts_see_both_modes_and_take_the_heavier():
    post = mixvi.fit(two_modes, np.full(2, -3.0), n_restarts=8)
    np.testing.assert_allclose(post.mean, 4.0, atol=1e-3)
    assert "2 modes were seen from 9 starts" in post.status
    assert "70% of their mass" in post.status
    assert post.stats.modes == 2
    assert post.stats.share == pytest.approx(0.7, abs=0.01)
    alone = mixvi.fit(two_modes, np.full(2, -3.0))
    np.testing.assert_allclose(alone.mean, -4.0, atol=1e-3)
    assert alone.verdict.startswith("Do not trust: 1 other mode")


def test_hyperparameters_are_learnt_with_the_whole_covariance():
    """Counts with rates around a common level: the bound's maximum over the level's precision, by
    auto and by a grid of fits with it held."""
    y = np.array([0.0, 1.0, 4.0, 12.0, 2.0])

    def log_density(w, log_alpha, y):
        prior = (0.5 * log_alpha - 0.5 * jnp.exp(log_alpha) * w**2).sum()
        return prior + (y * w - jnp.exp(w)).sum()

    options = {"family": "full", "draws": 2048, "tol": 1e-6}
    post = mixvi.fit(log_density, np.zeros(5), data=y, hyper=0.0, **options)
    assert post.converged
    assert post.stats.optimiser == "stein"

    def held(shift):
        level = float(post.hyper) + shift
        return mixvi.fit(lambda w, y: log_density(w, level, y), np.zeros(5), y, **options)

    bounds = [held(shift).elbo_fixed for shift in (-0.3, -0.1, 0.0, 0.1, 0.3)]
    assert post.elbo_fixed == pytest.approx(bounds[2], abs=1e-6)
    assert bounds[0] < bounds[1] < bounds[2] > bounds[3] > bounds[4]
    assert abs(float(post.hyper_report.gradient)) < 1e-4


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"anchor": "median"}, 'anchor must be one of "auto", "mode", "average"'),
        ({"n_restarts": -1}, "n_restarts must be a non-negative integer"),
    ],
)
def test_options_are_checked(option, words):
    with pytest.raises(mixvi.InputError, match=words):
        mixvi.fit(lambda w: -(w**2), 0.0, **option)


def test_an_improper_posterior_with_a_mode_says_what_is_wrong():
    """`(1 + w^2)^-0.4` has a mode and no integral: the wider the Gaussian, the higher the bound."""

    def improper(w):
        return -0.4 * jnp.log1p(w**2).sum()

    assert np.isfinite(mixvi.laplace(improper, np.array([0.3, 0.3])).log_evidence)
    with pytest.raises(mixvi.NoModeError, match=r"bound has no maximum.*proper prior"):
        mixvi.fit(improper, np.array([0.3, 0.3]))
    post = mixvi.fit(improper, np.array([0.3, 0.3]), family="full", throw=False)
    assert not post.converged
    assert "widened the Gaussian without end" in post.status


def student(w, data):
    scaled = (data - w[0]) * jnp.exp(-w[1])
    return (-2.5 * jnp.log1p(scaled**2 / 4) - w[1]).sum() - 0.01 * w[1] ** 2


def test_a_warm_start_from_other_data_is_not_held_on_to():
    """Data a thousand standard deviations away: the end is that of a cold start."""
    rng = np.random.default_rng(0)
    near, far = rng.standard_t(4, 30), 1000 + 50 * rng.standard_t(4, 30)
    before = mixvi.fit(student, np.array([near.mean(), 0.0]), family="full", data=near, draws=256)
    again = mixvi.fit(student, before, family="full", data=near, draws=256)
    assert again.stats.passes <= 2
    warm = mixvi.fit(student, before, family="full", data=far, draws=256)
    cold = mixvi.fit(student, before.mode, family="full", data=far, draws=256)
    assert warm.converged
    np.testing.assert_allclose(warm.flat_mean, cold.flat_mean, atol=1e-3)


def test_a_warm_start_goes_on_with_the_draws_that_were_enough():
    """On the few first draws alone an end on many looks as if more could be gained."""

    def counts(w):
        return (w - jnp.exp(w)).sum() - 0.02 * (w.sum() ** 2 + w @ w)

    options = {"diagnostics": False, "tol": 1e-5}
    cold = mixvi.fit(counts, np.zeros(20), family="full", **options)
    again = mixvi.fit(counts, cold, family="full", **options)
    first = mixvi.fit(counts, np.zeros(20), family="eig", **options).stats.draws
    assert cold.stats.draws > first
    assert again.stats.draws == cold.stats.draws
    assert again.stats.passes <= 3
    np.testing.assert_allclose(again.flat_mean, cold.flat_mean, atol=1e-4)


def test_hyperparameters_that_laplace_was_not_to_learn_are_learnt_by_auto():
    y = np.array([1.0, -3.0, 2.0, 4.0, 0.5])

    def log_density(w, log_variance):
        prior = -0.5 * w**2 * jnp.exp(-log_variance) - 0.5 * log_variance
        return (-0.5 * (y - w) ** 2 + prior).sum()

    post = mixvi.fit(log_density, np.zeros(5), hyper=0.0, hyper_steps=0, diagnostics=False)
    # y ~ N(0, 1 + v): the evidence is highest where 1 + v is the mean square
    assert float(post.hyper) == pytest.approx(np.log(np.mean(y**2) - 1), abs=1e-4)


@pytest.mark.parametrize("constraint", ["positive", None])
def test_the_share_of_the_mode_taken(constraint):
    """80% at 3 and 20% at -3, in the log of the parameter or in itself."""

    def log_density(w):
        u = jnp.log(w) if constraint else w
        jacobian = -u if constraint else 0.0
        low, high = (-0.5 * ((u - at) / 0.3) ** 2 for at in (-3.0, 3.0))
        return jnp.logaddexp(jnp.log(0.2) + low, jnp.log(0.8) + high) + jacobian

    bounds = {"w": constraint} if constraint else None
    post = mixvi.fit(log_density, 1.5, family="laplace", constraints=bounds, n_restarts=10)
    assert post.flat_mean[0] == pytest.approx(3, abs=1e-6)
    assert post.stats.share == pytest.approx(0.8, abs=1e-6)


def test_what_kept_the_search_from_a_mode_is_named():
    flat = mixvi.fit(lambda w: -(w**4).sum(), np.zeros(2), draws=256, diagnostics=False)
    assert "The Hessian at the mode is singular or indefinite: started" in flat.status


def test_draws_far_too_few_leave_laplace():
    def funnel(w):
        narrow = -0.5 * w[1] ** 2 * jnp.exp(-w[0]) - 0.5 * w[0]
        return -0.5 * (w[0] / 1.5) ** 2 + narrow - 0.5 * (w[1] - 1) ** 2

    post = mixvi.fit(funnel, np.array([0.0, 0.5]), draws=mixvi.IID(4))
    assert post.family == "laplace"
    assert "the draws given are too few" in post.status
