"""PSIS against ArviZ and against a tail of known shape; the verdicts."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import mixvi
from mixvi._approximate._laplace import laplace
from mixvi._judge._fresh import first_look
from mixvi._judge._psis import psis
from mixvi._judge._scalars import diagnose
from mixvi._judge._verdict import Diagnosis, Elsewhere, Estimate, Moments, OtherMode, verdict
from targets import density_of


@pytest.mark.parametrize("n", [100, 1000, 5000])
@pytest.mark.parametrize("seed", range(4))
def test_psis_agrees_with_arviz(n, seed):
    stats = pytest.importorskip("arviz_stats.base").array_stats
    log_ratio = 1.5 * np.random.default_rng([n, seed]).standard_normal(n)
    log_weights, khat = stats.psislw(-log_ratio, r_eff=1.0)
    weights, ours = psis(log_ratio)
    assert ours == pytest.approx(float(khat), abs=0.02)
    theirs = np.exp(log_weights)
    assert np.abs(weights - theirs / theirs.sum()).sum() < 0.02


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_khat_finds_the_shape_of_a_pareto_tail(shape):
    """Ratios U^-shape have a Pareto tail of exactly that shape."""
    rng = np.random.default_rng(0)
    found = [psis(-shape * np.log(rng.random(20_000)))[1] for _ in range(5)]
    assert np.mean(found) == pytest.approx(shape, abs=0.06)


def test_constant_ratios():
    weights, khat = psis(np.full(500, 3.0))
    assert khat == 0.0
    np.testing.assert_allclose(weights, 1 / 500)


def test_one_ratio_above_all():
    log_ratio = np.zeros(1000)
    log_ratio[0] = 800.0
    weights, khat = psis(log_ratio)
    assert khat > 0.7
    assert np.isfinite(weights).all()


def test_elbo_and_its_error():
    rng = np.random.default_rng(1)
    log_p, log_q = rng.normal(2, 0.3, 400), rng.normal(1, 0.4, 400)
    d = diagnose(log_p, log_q, rng.standard_normal((400, 2)), np.eye(2))
    assert d.elbo.value == pytest.approx((log_p - log_q).mean())
    assert d.elbo.se == pytest.approx((log_p - log_q).std(ddof=1) / 20)


def test_kl_of_a_shifted_gaussian():
    """Log ratios of N(0, 1) draws against N(0.3, 1): KL = 0.3^2 / 2."""
    z = np.random.default_rng(2).standard_normal(100_000)
    d = diagnose(-0.5 * (z - 0.3) ** 2, -0.5 * z**2, z[:, None], np.eye(1))
    assert d.kl == pytest.approx(0.045, abs=0.004)
    assert d.moments.mean_off == pytest.approx(0.3, abs=0.02)
    assert d.moments.sd_ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("n", [48, 1000])
def test_moments_of_equal_weights_are_the_gaussians_own(n):
    """However the draws fell: 48 of them alone put one of twenty sds off by a quarter."""
    z = np.random.default_rng(3).standard_normal((n, 20))
    d = diagnose(np.zeros(n), np.zeros(n), z, np.diag(np.linspace(0.1, 3, 20)))
    assert d.moments.mean_off == pytest.approx(0, abs=1e-12)
    assert d.moments.sd_ratio == pytest.approx(1, abs=1e-12)


def test_moments_of_a_scaled_gaussian_from_few_draws():
    """N(0, 1.05^2) against N(0, 1): what luck does to 100 draws is taken off."""
    z = np.random.default_rng(4).standard_normal((100, 1))
    log_p = -0.5 * (z[:, 0] / 1.05) ** 2
    d = diagnose(log_p, -0.5 * z[:, 0] ** 2, z, np.eye(1))
    assert d.moments.sd_ratio == pytest.approx(1.05, abs=0.02)
    assert d.moments.mean_off < 0.03


class Slow(mixvi.Density):
    """A density whose points are answered one by one: skewed by so much."""

    dim = 3

    def __init__(self, skew):
        self.skew, self.asked = skew, 0

    def gradients(self, points):
        values = -0.5 * (points**2).sum(1) - self.skew * (np.exp(points) - points).sum(1)
        return values, -points - self.skew * (np.exp(points) - 1)

    def values(self, points):
        self.asked += len(points)
        return super().values(points)


@pytest.mark.parametrize(("skew", "least", "most"), [(0.001, 250, 400), (0.2, 2000, 3000)])
def test_a_posterior_that_is_nearly_gaussian_takes_few_fresh_draws(skew, least, most):
    """And few probes, where the fit itself took few steps."""
    density = Slow(skew)
    post = mixvi.laplace(density, np.zeros(3))
    assert post.verdict.startswith("Trust")
    assert post.elbo.se < 0.006 or skew > 0.1
    assert least <= density.asked <= most


def shoulder(share, place, width):
    """A standard normal with a narrow bump where few of its own draws fall."""

    def log_density(w):
        bump = jnp.log(share / width) - 0.5 * ((w[0] - place) / width) ** 2
        return jnp.logaddexp(jnp.log1p(-share) - 0.5 * w[0] ** 2, bump) - 0.5 * (w[1:] ** 2).sum()

    return log_density


@pytest.mark.parametrize("key", [0, 3, 5, 13, 16])
@pytest.mark.parametrize("function", [mixvi.fit, mixvi.laplace])
def test_mass_where_few_fresh_draws_fall(function, key):
    """48 fresh draws saw nothing of it, or one ratio that broke Pareto's fit; draws from further
    out do."""
    post = function(shoulder(0.25, 3.2, 0.2), np.zeros(1), key=key)
    assert post.verdict.startswith("Do not trust")


def test_a_pareto_tail_without_a_scale():
    """All ratios are equal to rounding but one: k-hat is infinite, and nothing is raised."""
    density = density_of(shoulder(0.25, 3.2, 0.2), 1)
    found = laplace(density, np.zeros(1))
    seen = first_look(density, found.mode, found.root, 0, 1000)
    assert np.ptp(np.sort(seen.log_p - seen.log_q)[:-1]) < 1e-6
    assert seen.diagnosis.khat == math.inf


@pytest.mark.parametrize("n", [100, 300, 5000])
def test_the_number_of_fresh_draws_that_a_user_asks_for(n):
    post = mixvi.laplace(lambda w: -0.5 * w @ w, np.zeros(2), diagnostics=n)
    assert len(post.importance_weights()[1]) == n


FINE, ODD, WRONG = Moments(0.1, 0.02, 1.02), Moments(0.1, 0.02, 1.3), Moments(0.1, 0.7, 1.02)


def said(converged=True, elsewhere=Elsewhere(), elbo_fixed=None, **changes):  # noqa: B008
    base = {"elbo": Estimate(-5.0, 0.01), "khat": 0.2, "kl": 0.05, "ess": 900.0, "moments": FINE}
    d = Diagnosis(**{**base, "n_non_finite": 0, "n_draws": 1000, **changes})
    return verdict(4, converged, d, elbo_fixed, elsewhere)


def test_verdicts():
    assert said().startswith("Trust: fresh draws agree")
    assert said(khat=0.6).startswith("Use with importance weights")
    assert said(khat=0.69).startswith("Do not trust: k-hat is 0.69")
    assert said(khat=1.9, wider=FINE).startswith("Trust: k-hat 1.90")
    assert said(moments=ODD).startswith("Use with importance weights")
    assert said(khat=0.69, wider=ODD).startswith("Use with importance weights")
    assert said(moments=WRONG).startswith("Do not trust: weighted draws agree")
    assert said(kl=0.8).startswith("Do not trust: k-hat 0.20, about 0.8 nat")
    assert said(n_non_finite=3).startswith("Do not trust: 3 of 1000")
    assert said(converged=False).startswith("Do not trust: the search")
    assert said(elbo_fixed=-4.0).startswith("Use with importance weights: fitted too closely")
    assert said(elsewhere=Elsewhere((OtherMode(20.0, 0.4),))).startswith("Do not trust: 1 other")
    assert said(elsewhere=Elsewhere((OtherMode(20.0, 1e-6),))).startswith("Trust")
    assert said(elsewhere=Elsewhere((), 0.1)).startswith("Do not trust: heavy tails")
    assert verdict(4, True, None, None, Elsewhere()).startswith("Not judged")


@pytest.mark.parametrize("a", [0.1, 0.2, 1.0, 5.0, 20.0, 500.0])
def test_verdict_against_the_exact_moments_of_a_log_gamma(a):
    """log of a Gamma(a) variable: mean digamma(a), variance trigamma(a). What is trusted is right,
    and what is nearly Gaussian is trusted."""
    post = mixvi.fit(lambda w, a: a * w - jnp.exp(w), 0.0, data=np.array(a))
    sd = polygamma(1, a) ** 0.5
    off = abs(float(post.mean) - digamma(a)) / sd
    ratio = max(sd / float(post.std), float(post.std) / sd)
    if post.verdict.startswith("Trust"):
        assert off < 0.5
        assert ratio < 1.5
    if a >= 5:
        assert post.verdict.startswith("Trust")


@pytest.mark.parametrize("width", [30.0, 1000.0])
def test_mass_in_flat_tails_is_seen(width):
    """A spike on a wide low shelf: most of the mass is on the shelf, and no fresh draw sees it."""

    def log_density(w):
        return jnp.log(jnp.exp(-0.5 * w**2) + 1e-2) - 0.5 * (w / width) ** 2

    assert mixvi.fit(log_density, 0.3).verdict.startswith("Do not trust")


def test_non_finite_draws_are_counted():
    d = diagnose(np.array([0.0, -np.inf, np.nan]), np.zeros(3), np.zeros((3, 1)), np.eye(1))
    assert d.n_non_finite == 2
    assert d.elbo.value == -math.inf


def test_importance_weights_correct_the_mean():
    """A skewed target: the Laplace mean is its mode; weighted, it is the true mean.
    w = log x for a Gamma(4) variable x has mean digamma(4)."""
    post = mixvi.laplace(lambda w: 4.0 * w - jnp.exp(w), 0.0, diagnostics=20_000)
    draws, weights, khat, ess = post.importance_weights()
    assert khat < 0.7
    assert weights.sum() == pytest.approx(1)
    assert abs(float(post.mean) - digamma(4)) > 0.1
    assert draws @ weights == pytest.approx(digamma(4), abs=0.02)
    assert 1 < ess < 20_000
