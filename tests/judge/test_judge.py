"""PSIS against ArviZ and against a tail of known shape; the verdicts."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, polygamma

import mixvi
from mixvi._approximate._laplace import laplace
from mixvi._judge._diagnosis import (
    Diagnosis,
    Elsewhere,
    Estimate,
    Moments,
    OtherMode,
    SymmetrySeen,
)
from mixvi._judge._fresh import first_look, judged
from mixvi._judge._mixture import with_moments
from mixvi._judge._psis import psis
from mixvi._judge._scalars import diagnose, mixed_scalars, moment_errors
from mixvi._judge._verdict import DEFAULT_THRESHOLDS, Subject, is_sure, judge
from mixvi._law._gaussian import normal_logpdf
from targets import density_of


@pytest.mark.parametrize("n", [100, 1000, 5000])
@pytest.mark.parametrize("seed", range(4))
def test_psis_agrees_with_arviz(n, seed):
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    log_ratio = 1.5 * np.random.default_rng([n, seed]).standard_normal(n)
    log_weights, khat = array_stats.psislw(-log_ratio, r_eff=1.0)
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
    d = diagnose(log_p, log_q)
    assert d.elbo.value == pytest.approx((log_p - log_q).mean())
    assert d.elbo.se == pytest.approx((log_p - log_q).std(ddof=1) / 20)


def mixed(z, log_p, root, elbo=0.0):
    """Moments from draws of the Gaussian itself, a mixture of one part."""
    return mixed_scalars(z, log_p, normal_logpdf(z, 0.0), root, elbo, 0.0).moments


def test_kl_of_a_shifted_gaussian():
    """Draws of N(0, 1) against N(0.3, 1): KL = 0.3^2 / 2."""
    z = np.random.default_rng(2).standard_normal((100_000, 1))
    log_p = normal_logpdf(z - 0.3, 0.0)
    d = diagnose(log_p, normal_logpdf(z, 0.0))
    m = mixed(z, log_p, np.eye(1), d.elbo.value)
    assert d.kl == pytest.approx(0.045, abs=0.004)
    assert m.kl == pytest.approx(0.045, abs=0.004)
    assert m.mean_off == pytest.approx(0.3, abs=0.02)
    assert m.sd_ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("n", [48, 1000])
def test_moments_of_equal_weights_are_the_gaussians_own(n):
    """However the draws fell: 48 of them alone put one of twenty sds off by a quarter."""
    z = np.random.default_rng(3).standard_normal((n, 20))
    m = mixed(z, normal_logpdf(z, 0.0), np.diag(np.linspace(0.1, 3, 20)))
    assert m.mean_off == pytest.approx(0, abs=1e-12)
    assert m.sd_ratio == pytest.approx(1, abs=1e-12)


def test_moments_of_a_scaled_gaussian_from_few_draws():
    """N(0, 1.05^2) against N(0, 1): what luck does to 100 draws is taken off."""
    z = np.random.default_rng(4).standard_normal((100, 1))
    m = mixed(z, normal_logpdf(z / 1.05, math.log(1.05)), np.eye(1))
    assert m.sd_ratio == pytest.approx(1.05, abs=0.02)
    assert m.mean_off < 0.03


@pytest.mark.parametrize("dim", [2, 30, 300])
def test_standard_errors_of_moments_are_those_of_other_draws(dim):
    """The spread of the mean's error over forty sets of draws, against what one set says."""
    rng = np.random.default_rng(5)
    sd = np.ones(dim)
    sd[0] = 1.3
    off, told = [], []
    for _ in range(40):
        z = rng.standard_normal((500, dim))
        log_p = normal_logpdf(z / sd, math.log(1.3))
        log_p += 0.1 * z[:, -1]
        errors = moment_errors(z, log_p, normal_logpdf(z, 0.0), np.eye(dim))
        off.append(errors.mean[-1])
        told.append(errors.mean_se[-1])
    assert np.mean(told) == pytest.approx(np.std(off), rel=0.5)
    assert np.mean(off) == pytest.approx(0.1, abs=0.03)


def test_the_worst_of_many_moments_is_worst_by_luck_too():
    """Three hundred parameters, all right; weights that vary by one nat. What is said to be off is
    much less than the largest error."""
    rng = np.random.default_rng(6)
    z = rng.standard_normal((1000, 300))
    log_p = normal_logpdf(z, 0.0) + rng.normal(0, 1, 1000)
    errors = moment_errors(z, log_p, normal_logpdf(z, 0.0), np.eye(300))
    m = mixed(z, log_p, np.eye(300))
    assert errors.mean.max() > 0.1
    assert m.mean_off < 0.06
    assert m.sd_ratio < 1.06


@pytest.mark.parametrize("nu", [3.0, 4.0])
def test_moments_of_a_heavy_tail_by_a_mixture(nu):
    """Student's t has a standard deviation of sqrt(nu / (nu - 2)). Draws of N(0, 1) miss most of
    it; the mixture with draws further out does not."""
    shape = stats.t(nu)
    target = density_of(lambda w: -0.5 * (nu + 1) * jnp.log1p(w[0] ** 2 / nu) - 0.5 * w[1] ** 2, 2)
    root = np.diag([shape.std(), 1.0])
    fresh = judged(target, np.zeros(2), root, 0, 1000, all_of_them=True)
    told = with_moments(target, np.zeros(2), root, 0, fresh, None, lambda said: False)
    m = told.diagnosis.moments
    assert told.diagnosis.looked_far
    assert m.khat < 0.5
    assert m.sd_ratio < 1.1
    narrow = np.diag([1.0, 1.0])
    fresh = judged(target, np.zeros(2), narrow, 0, 1000, all_of_them=True)
    told = with_moments(target, np.zeros(2), narrow, 0, fresh, None, lambda said: False)
    assert told.diagnosis.moments.sd_ratio == pytest.approx(shape.std(), rel=0.08)
    assert told.diagnosis.moments.sd_at == 0


@pytest.mark.parametrize("dim", [3, 8, 20])
@pytest.mark.parametrize("key", range(3))
def test_one_heavy_tail_among_many_parameters(dim, key):
    """5% of one parameter is twenty times as wide: its standard deviation is 4.6. Fresh draws, and
    those that are wider in all directions, hardly see it."""

    def log_density(w):
        tail = jnp.log(0.05 / 20) - 0.5 * (w[0] / 20) ** 2
        return jnp.logaddexp(jnp.log(0.95) - 0.5 * w[0] ** 2, tail) - 0.5 * (w[1:] ** 2).sum()

    post = mixvi.fit(log_density, np.full(dim, 0.1), key=key)
    assert post.trust == "reject"
    assert {reason.parameter for reason in post.reasons if reason.test == "sd"} == {"w[0]"}


def test_numbers_too_large_far_out_are_no_mass():
    """A standard normal whose log density is garbage beyond fifteen standard deviations."""
    garbage = density_of(lambda w: jnp.where(jnp.abs(w[0]) > 15, 300.0, -0.5 * w @ w), 3)
    fresh = judged(garbage, np.zeros(3), np.eye(3), 0, 1000, all_of_them=True)
    told = with_moments(garbage, np.zeros(3), np.eye(3), 0, fresh, None, lambda said: False)
    assert told.diagnosis.looked_far
    assert told.diagnosis.moments.kl < 0.05
    assert told.diagnosis.moments.sd_ratio < 1.05


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


@pytest.mark.parametrize(("skew", "least", "most"), [(0.001, 250, 450), (0.2, 2000, 3500)])
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


NAMES = ("a", "b", "tau", "z")


def moments(**changes):
    fine = dict(khat=0.1, kl=0.05, mean_off=0.02, mean_se=0.01, mean_at=1)
    fine |= dict(sd_ratio=1.02, sd_se=0.01, sd_at=2, tail_share=0.001)
    return Moments(**{**fine, **changes})


BASE = Diagnosis(Estimate(-5.0, 0.01), 0.2, 0.05, 900.0, 0, 1000, n_mixed=2000, looked_far=True)


def said(elsewhere=Elsewhere(), subject=None, looked_far=True, **changes):  # noqa: B008
    fields = {f.name for f in dataclasses.fields(Moments)}
    own = {name: changes.pop(name) for name in list(changes) if name in fields}
    base = {"elbo": Estimate(-5.0, 0.01), "khat": 0.2, "kl": 0.05, "ess": 900.0}
    base |= {"n_non_finite": 0, "n_draws": 1000, "n_mixed": 2000, "looked_far": looked_far}
    d = Diagnosis(**{**base, "moments": moments(**own), **changes})
    return judge(subject or Subject(NAMES, "full"), d, elsewhere)


def test_verdicts():
    assert said().sentence.startswith("Trust: fresh draws agree")
    assert said().level == "trust"
    assert said().reasons == ()
    heavy = Subject(NAMES, "full"), Elsewhere()
    told = judge(heavy[0], dataclasses.replace(BASE, khat=0.9, moments=moments()), heavy[1])
    assert told.sentence.startswith("Trust: fresh and wider draws agree")
    assert "little hangs on the tails" in told.sentence
    (reason,) = said(sd_ratio=1.28).reasons
    assert (reason.test, reason.level, reason.parameter) == ("sd", "weigh", "tau")
    assert (reason.value, reason.limit) == (1.28, DEFAULT_THRESHOLDS.weigh[1])
    told = said(sd_ratio=1.28).sentence
    assert told.startswith("Use with importance weights: the standard deviation of tau is off by")
    assert said(sd_ratio=1.28, subject=None).level == "weigh"
    (reason,) = said(mean_off=0.7).reasons
    assert (reason.test, reason.level, reason.parameter) == ("mean", "reject", "b")
    assert said(mean_off=0.7).sentence.startswith("Do not trust: the mean of b is off by 0.7")
    assert said(khat=0.9, looked_far=False).level == "reject"
    assert said(khat=0.9).sentence.startswith("Use with care: the weights of draws vary")
    assert said(kl=0.8).reasons[0].test == "distance"
    assert said(tail_share=0.05).level == "weigh"
    assert said(tail_share=0.2).level == "reject"
    assert said(tail_share=0.2, looked_far=False).level == "trust"
    (reason,) = said(n_non_finite=3).reasons
    assert (reason.test, reason.value) == ("finite", 3)


def test_what_the_search_says_of_itself():
    stopped = Subject(NAMES, "eig", converged=False)
    assert said(subject=stopped).sentence.startswith("Do not trust: the search stopped")
    close = Subject(NAMES, "eig", elbo_fixed=-4.0)
    assert said(subject=close).sentence.startswith("Use with care: fitted too closely")
    off = Subject(NAMES, "eig", ran_off=("log_alpha",))
    assert said(subject=off).reasons[0].test == "hyper"
    assert "log_alpha ran off" in said(subject=off).sentence
    assert judge(Subject(NAMES, "eig"), None, Elsewhere()).level is None
    assert judge(stopped, None, Elsewhere()).level == "reject"


@pytest.mark.parametrize("family", ["auto", "full", "eig", "laplace"])
def test_no_richer_family_than_the_richest_is_advised(family):
    told = said(kl=3.0, subject=Subject(NAMES, family)).sentence
    assert ('family="full"' in told) is (family in ("eig", "laplace"))
    assert ('family="mixture"' in told) is (family in ("auto", "full"))


def elsewhere(share, is_image=False, **more):
    mode = OtherMode(20.0, share, np.zeros(4), -3.0, is_image)
    return Elsewhere((mode,), 1, share, **more)


def test_other_modes_in_the_verdict():
    told = said(elsewhere(0.4))
    assert told.sentence.startswith("Do not trust: 1 other mode seen, with about 40%")
    assert "mix the fits by their shares" in told.sentence
    assert "init=post.modes[1].point" in said(elsewhere(0.8)).sentence
    assert (told.reasons[0].test, told.reasons[0].value) == ("modes", 0.4)
    assert said(elsewhere(1e-6)).level == "trust"
    labels = (SymmetrySeen("labels", ("m",), "labels switch"),)
    image = elsewhere(0.5, is_image=True, symmetries=labels)
    assert 'symmetric="accept"' in said(image).sentence
    accepts = Subject(NAMES, "full", accepts_images=True)
    assert said(image, accepts).level == "trust"
    assert "one of 2 that are images" in said(image, accepts).sentence
    # What is no image is not accepted.
    assert said(elsewhere(0.5), accepts).level == "reject"


def test_a_mixture_has_limits_of_its_own():
    """Those of `benchmarks/mixture_verdicts.py`: draws see less of what a mixture leaves out."""
    several = Subject(NAMES, "mixture", n_components=4)
    for changes, alone, together in (
        ({"sd_ratio": 1.14}, "trust", "trust"),
        ({"sd_ratio": 1.16}, "trust", "weigh"),
        ({"sd_ratio": 1.26}, "weigh", "reject"),
        ({"mean_off": 0.19}, "trust", "trust"),
        ({"mean_off": 0.21}, "trust", "weigh"),
        ({"mean_off": 0.41}, "weigh", "reject"),
    ):
        assert said(**changes).level == alone
        assert said(subject=several, **changes).level == together
    (reason,) = said(subject=several, sd_ratio=1.2).reasons
    assert (reason.test, reason.limit) == ("sd", 1.15)
    assert "agree with the mixture" in said(subject=several).sentence


def test_modes_of_which_none_is_listed_are_counted():
    """A mixture that covers all that are listed, of many images."""
    told = said(Elsewhere((), 14, 0.6), Subject(NAMES, "mixture", n_components=2))
    assert told.sentence.startswith(
        "Do not trust: 14 other modes seen, with about 60% of the mass;"
    )
    assert "does not reach them" in told.sentence
    assert "nan" not in told.sentence


def test_near_a_limit_the_word_is_not_sure():
    limit = DEFAULT_THRESHOLDS.weigh[1]
    subject, nowhere = Subject(NAMES, "full"), Elsewhere()

    def sure(tail=nowhere, **changes):
        base = Diagnosis(Estimate(-5.0, 0.01), 0.2, 0.05, 900.0, 0, 1000, n_mixed=2000)
        told = dataclasses.replace(base, moments=moments(**changes))
        return is_sure(told, subject, tail)

    assert sure()
    assert not sure(sd_ratio=limit * 1.01, sd_se=0.02)
    assert not sure(sd_ratio=limit / 1.01, sd_se=0.02)
    assert sure(sd_ratio=limit / 1.01, sd_se=0.002)
    assert sure(sd_ratio=2.0, sd_se=0.1)
    assert not sure(khat=0.69)
    # A tail that probes suspect has to be looked at.
    assert not sure(Elsewhere(tail_share=0.03))
    # What nothing can change is sure.
    assert sure(elsewhere(0.5), sd_ratio=limit * 1.01)


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


def test_a_hessian_that_is_almost_flat_has_a_verdict():
    # The fourth power: Newton ends where the curvature is 1e-9, and weights say nothing of the sd.
    post = mixvi.laplace(lambda w: -0.5 * w["a"] ** 2 - w["b"] ** 4, {"a": 1.0, "b": 1.0})
    assert post.trust == "reject"


def test_non_finite_draws_are_counted():
    d = diagnose(np.array([0.0, -np.inf, np.nan]), np.zeros(3))
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
