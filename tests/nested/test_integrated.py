"""Hyperparameters integrated: against exact answers by quadrature and brute force."""

import math
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, interpolate, stats

import mixvi
from mixvi import models

rng = np.random.default_rng(0)
PROBS = [0.025, 0.25, 0.5, 0.75, 0.975]
GROUPS, EACH = 8, 3
Y = rng.standard_normal((GROUPS, EACH)) + 1.2 * rng.standard_normal((GROUPS, 1))


def normal(x, log_sd):
    return -0.5 * (x * jnp.exp(-log_sd)) ** 2 - log_sd - 0.5 * math.log(2 * math.pi)


def hierarchy(w, hyper, y):
    """y_ij ~ N(w_i, 1), w_i ~ N(0, tau^2)."""
    return normal(y - w[:, None], 0.0).sum() + normal(w, hyper["log_tau"]).sum()


def hierarchy_with_noise(w, hyper, y):
    noise = normal(y - w[:, None], hyper["log_sigma"])
    return noise.sum() + normal(w, hyper["log_tau"]).sum()


def prior(hyper):
    return sum(normal(one, 0.0) for one in hyper.values())


def marginal(y, log_tau, log_sigma=0.0):
    """Of all data with the effects integrated out, by the matrix determinant lemma."""
    noise, own = math.exp(2 * log_sigma), math.exp(2 * log_tau)
    n = y.shape[1]
    cov = noise * np.eye(n) + own
    return stats.multivariate_normal(np.zeros(n), cov).logpdf(y).sum()


class Exact:
    """One hyperparameter on a fine grid."""

    def __init__(self, log_density, low, high, n=1201):
        self.at = np.linspace(low, high, n)
        log_p = np.array([log_density(x) for x in self.at])
        self.log_integral = math.log(integrate.simpson(np.exp(log_p - log_p.max()), x=self.at))
        self.log_integral += log_p.max()
        self.p = np.exp(log_p - self.log_integral)

    def quantiles(self, probs):
        below = integrate.cumulative_simpson(self.p, x=self.at, initial=0)
        return np.interp(probs, below, self.at)

    def mean_of(self, function):
        return integrate.simpson(self.p * np.array([function(x) for x in self.at]), x=self.at)


@pytest.fixture(scope="module")
def exact():
    return Exact(lambda t: marginal(Y, t) + stats.norm.logpdf(t), -5, 4)


@pytest.fixture(scope="module")
def integrated():
    given = (hierarchy, np.zeros(GROUPS), Y)
    return mixvi.laplace(*given, hyper={"log_tau": 0.0}, hyper_posterior=True, hyper_prior=prior)


def conditional(t):
    """Mean and variance of every effect, given log tau."""
    precision = EACH + math.exp(-2 * t)
    return Y.sum(1) / precision, 1 / precision


def test_one_hyperparameter_exactly(exact, integrated):
    found = integrated.hyper_posterior
    sd = float(found.std["log_tau"])
    off = found.quantiles(PROBS)["log_tau"] - exact.quantiles(PROBS)
    assert np.abs(off).max() < 1e-3 * sd
    assert integrated.log_evidence == pytest.approx(exact.log_integral, abs=1e-4)
    assert found.mean["log_tau"] == pytest.approx(exact.mean_of(lambda t: t), abs=1e-3 * sd)
    assert found.design == "grid"
    assert found.names == ("log_tau",)
    assert not found.warnings
    assert integrated.trust == "trust"


def test_parameters_are_integrated_too(exact, integrated):
    mean = exact.mean_of(lambda t: conditional(t)[0][0])
    square = exact.mean_of(lambda t: conditional(t)[0][0] ** 2 + conditional(t)[1])
    assert integrated.mean[0] == pytest.approx(mean, abs=1e-4)
    assert integrated.std[0] == pytest.approx(math.sqrt(square - mean**2), abs=1e-4)
    at = integrated.quantiles(PROBS)[:, 0]

    def below(t, x):
        own, variance = conditional(t)
        return stats.norm.cdf(x, own[0], math.sqrt(variance))

    shares = [exact.mean_of(lambda t, x=x: below(t, x)) for x in at]
    np.testing.assert_allclose(shares, PROBS, atol=1e-4)


def test_a_mixture_has_the_sums_of_its_points(integrated):
    law, weights = integrated.law, integrated.hyper_posterior.weights
    np.testing.assert_allclose(law.weights, weights)
    np.testing.assert_allclose(integrated.flat_mean, weights @ law.means, atol=1e-12)
    inside = sum(w * one.cov for w, one in zip(weights, law.components, strict=True))
    apart = law.means - integrated.flat_mean
    np.testing.assert_allclose(integrated.cov, inside + (weights * apart.T) @ apart, atol=1e-12)


def test_the_bound_and_the_weights_of_an_exact_answer(integrated):
    assert integrated.elbo.value == pytest.approx(integrated.log_evidence, abs=1e-3)
    assert integrated.khat == 0
    weights = integrated.importance_weights()
    np.testing.assert_allclose(weights.weights, 1e-3, rtol=1e-6)
    new = integrated.importance_weights(500, hierarchy, Y, key=3)
    np.testing.assert_allclose(new.weights, 1 / 500, rtol=1e-6)


def test_two_hyperparameters_exactly():
    hyper = {"log_sigma": 0.0, "log_tau": 0.0}
    given = (hierarchy_with_noise, np.zeros(GROUPS), Y)
    post = mixvi.laplace(*given, hyper=hyper, hyper_posterior=True, hyper_prior=prior)
    found = post.hyper_posterior
    s, t = np.linspace(-1.2, 1.0, 121), np.linspace(-5, 3, 161)
    log_p = np.array([[marginal(Y, b, a) for b in t] for a in s])
    log_p += stats.norm.logpdf(s)[:, None] + stats.norm.logpdf(t)
    top = log_p.max()
    across = integrate.simpson(np.exp(log_p - top), x=t, axis=1)
    exact = math.log(integrate.simpson(across, x=s)) + top
    assert post.log_evidence == pytest.approx(exact, abs=2e-3)
    for name, own in (("log_sigma", across), ("log_tau", None)):
        x = s if own is not None else t
        p = own if own is not None else integrate.simpson(np.exp(log_p - top), x=s, axis=0)
        below = integrate.cumulative_simpson(p, x=x, initial=0)
        wanted = np.interp(PROBS, below / below[-1], x)
        off = found.quantiles(PROBS)[name] - wanted
        assert np.abs(off).max() < 5e-3 * float(found.std[name])
    assert found.correlation.shape == (2, 2)
    assert abs(found.correlation[0, 1]) < 0.5


def test_three_hyperparameters_on_a_lattice():
    def log_density(w, hyper, y):
        own = normal(w["effects"] - w["mu"], hyper["log_tau"]).sum()
        data = normal(y - w["effects"][:, None], hyper["log_sigma"]).sum()
        return data + own + normal(w["mu"], hyper["log_mu"])

    hyper = {"log_mu": 0.0, "log_sigma": 0.0, "log_tau": 0.0}
    start = {"mu": 0.0, "effects": np.zeros(GROUPS)}
    post = mixvi.laplace(
        log_density, start, Y, hyper=hyper, hyper_posterior=True, hyper_prior=prior
    )
    found = post.hyper_posterior
    assert found.design == "grid"
    assert 50 < len(found.points) < 150
    assert post.trust == "trust"
    assert found.halves_differ < 0.25
    assert 0.8 < found.steepness < 1.2

    def log_p(a, b, c):  # mu, sigma, tau
        n = Y.size
        same = np.repeat(np.arange(GROUPS), EACH)
        cov = math.exp(2 * a) + math.exp(2 * c) * (same[:, None] == same)
        cov = cov + math.exp(2 * b) * np.eye(n)
        _, log_det = np.linalg.slogdet(cov)
        y = Y.ravel()
        own = -0.5 * (y @ np.linalg.solve(cov, y) + log_det + n * math.log(2 * math.pi))
        return own + stats.norm.logpdf([a, b, c]).sum()

    axes = np.linspace(-4.5, 4.5, 24), np.linspace(-0.9, 1.0, 18), np.linspace(-5, 3, 36)
    values = np.array([[[log_p(a, b, c) for c in axes[2]] for b in axes[1]] for a in axes[0]])
    mass = np.exp(values - values.max())
    cell = math.prod(axis[1] - axis[0] for axis in axes)
    exact = math.log(mass.sum() * cell) + values.max()
    assert post.log_evidence == pytest.approx(exact, abs=5e-3)
    mass /= mass.sum()
    moments = []
    for j, name in enumerate(found.names):
        own = mass.sum(tuple(i for i in range(3) if i != j))
        mean = own @ axes[j]
        sd = math.sqrt(own @ (axes[j] - mean) ** 2)
        moments.append((mean, sd))
        assert found.mean[name] == pytest.approx(mean, abs=5e-3 * sd)
        assert found.std[name] == pytest.approx(sd, rel=1e-2)
        fine = np.linspace(axes[j][0], axes[j][-1], 4001)
        shares = interpolate.CubicSpline(axes[j], own).antiderivative()(fine)
        wanted = np.interp(PROBS, shares / shares[-1], fine)
        assert np.abs(found.quantiles(PROBS)[name] - wanted).max() < 0.015 * sd
    (mean, sd), (other, its) = moments[1:]
    shared = np.einsum("abc,b,c->", mass, axes[1] - mean, axes[2] - other) / (sd * its)
    assert found.correlation[1, 2] == pytest.approx(shared, abs=5e-3)


def test_a_family_goes_by_its_bound():
    """Counts: the bound is nearer to the truth than Laplace's evidence, and so are the weights."""
    counts = np.array([0, 1, 0, 5, 0, 2])

    def log_density(w, log_tau, y):
        return (y * w - jnp.exp(w)).sum() + normal(w, log_tau).sum()

    def one(y, t):
        return integrate.quad(
            lambda w: math.exp(y * w - math.exp(w)) * stats.norm.pdf(w, 0, math.exp(t)), -12, 6
        )[0]

    known = Exact(
        lambda t: sum(math.log(one(y, t)) for y in counts) + stats.norm.logpdf(t, 0, 0.7), -3, 3, 61
    )
    errors = {}
    for family in ("laplace", "full"):
        post = mixvi.fit(
            *(log_density, np.zeros(6), counts.astype(float)),
            family=family,
            hyper=0.0,
            hyper_posterior=True,
            hyper_prior=lambda t: -0.5 * (t / 0.7) ** 2 - math.log(0.7) - 0.5 * math.log(6.2831853),
        )
        found = post.hyper_posterior
        off = found.quantiles(PROBS) - known.quantiles(PROBS)
        errors[family] = np.abs(off).max() / float(found.std)
        if family == "full":
            assert post.elbo.value <= known.log_integral + 3 * post.elbo.se
            assert post.log_evidence == pytest.approx(known.log_integral, abs=0.2)
    assert errors["full"] < 0.15
    assert errors["laplace"] < 0.3


def flat_prior(hyper):
    return sum(normal(one, 0.5) for one in hyper.values())


def test_a_model_in_closed_form_whose_evidence_is_exact():
    x = rng.standard_normal((30, 3))
    y = x @ [1.0, 0.0, -0.5] + 0.5 * rng.standard_normal(30)
    model = models.Model(models.Linear(), models.Gaussian(), False)
    density = model.density(x, y)
    names = sorted(density.hyper)
    assert names == ["log_alpha", "log_sigma"]
    post = mixvi.laplace(
        *(density, density.init),
        hyper=density.hyper,
        hyper_posterior=True,
        hyper_prior=flat_prior,
    )
    design = np.column_stack([x, np.ones(30)])

    def log_p(a, s):
        cov = design @ design.T * math.exp(-a) + math.exp(2 * s) * np.eye(30)
        own = stats.multivariate_normal(np.zeros(30), cov).logpdf(y)
        return own + stats.norm.logpdf([a, s], 0, math.exp(0.5)).sum()

    axes = np.linspace(-4, 4.5, 60), np.linspace(-1.4, 0.2, 50)
    values = np.array([[log_p(a, s) for s in axes[1]] for a in axes[0]])
    mass = np.exp(values - values.max())
    total = integrate.simpson(integrate.simpson(mass, x=axes[1], axis=1), x=axes[0])
    assert post.log_evidence == pytest.approx(math.log(total) + values.max(), abs=1e-3)
    found = post.hyper_posterior
    for j, name in enumerate(names):
        own = integrate.simpson(mass, x=axes[1 - j], axis=1 - j)
        below = integrate.cumulative_simpson(own, x=axes[j], initial=0)
        fine = np.linspace(axes[j][0], axes[j][-1], 2000)
        shares = interpolate.CubicSpline(axes[j], below / below[-1])(fine)
        exact = np.interp(PROBS, shares, fine)
        assert np.abs(found.quantiles(PROBS)[name] - exact).max() < 5e-3 * found.std[name]


def test_a_gaussian_process_has_its_own_gaussian_at_every_point():
    x = np.linspace(-2, 2, 25)[:, None]
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.standard_normal(25)
    model = models.Model(models.GaussianProcess(), models.Gaussian(), False)
    density = model.density(x, y)
    assert density.has_own_evidence
    post = mixvi.laplace(
        *(density, density.init),
        hyper=density.hyper,
        hyper_posterior=True,
        hyper_prior=flat_prior,
    )
    found = post.hyper_posterior
    assert found.design == "grid"
    assert len(found.names) == 3
    for k in (0, len(found.points) - 1):
        alone = mixvi.laplace(density.at(found.points[k]), density.init, diagnostics=False)
        np.testing.assert_allclose(alone.flat_mean, post.law.means[k], atol=1e-5)
        # With Gaussian noise Laplace is exact.
        own = alone.log_evidence + found.log_prior[k]
        assert found.log_evidence[k] == pytest.approx(own, abs=1e-6)


# --- signs, refusals, files ---------------------------------------------------------------------


def test_evidence_that_does_not_fall_names_the_hyperparameter():
    flat = np.zeros((GROUPS, EACH)) + 0.1 * Y  # nothing speaks for any tau above zero
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
        post = mixvi.laplace(
            hierarchy, np.zeros(GROUPS), flat, hyper={"log_tau": -1.0}, hyper_posterior=True
        )
    assert post.hyper_posterior.open_names == ("log_tau",)
    assert post.trust == "reject"
    assert "hyper_prior" in post.status
    assert {reason.test for reason in post.reasons} >= {"hyper"}


def test_a_hyperparameter_that_is_in_no_density_is_named_alone():
    def log_density(w, hyper, y):
        return hierarchy(w, hyper, y) - 0.5 * (hyper["log_tau"] / 1.5) ** 2

    hyper = {"log_tau": 0.0, "b": 0.0}
    post = mixvi.laplace(log_density, np.zeros(GROUPS), Y, hyper=hyper, hyper_posterior=True)
    assert post.hyper_posterior.open_names == ("b",)
    assert post.trust == "reject"


def test_long_tails_that_are_proper_are_not_told_that_they_may_be_improper(tmp_path):
    def log_density(w, hyper):
        return -0.5 * (w**2).sum() - 2.5 * jnp.log1p((hyper**2).sum() / 3)

    post = mixvi.laplace(log_density, np.zeros(2), hyper=np.zeros(3), hyper_posterior=True)
    found = post.hyper_posterior
    assert (found.open_names, found.ended_early) == ((), True)
    assert post.trust == "reject"
    assert [one.test for one in post.reasons] == ["hyper_ended"]
    assert "The walk ended at 400 points before the evidence had fallen" in post.status
    assert "improper" not in post.summary()
    again = mixvi.load(post.save(tmp_path / "tails"))
    assert again.hyper_posterior.ended_early
    assert again.summary() == post.summary()


def test_what_cannot_be_integrated_is_refused():
    start = np.zeros(GROUPS)
    with pytest.raises(mixvi.InputError, match="give their start"):
        mixvi.laplace(lambda w: -0.5 * (w**2).sum(), start, hyper_posterior=True)
    with pytest.raises(mixvi.InputError, match="hyper_prior= is a prior"):
        mixvi.laplace(lambda w: -0.5 * (w**2).sum(), start, hyper_prior=prior)
    with pytest.raises(mixvi.InputError, match="fit_many"):
        mixvi.fit_many(
            hierarchy, start, np.stack([Y, Y]), hyper={"log_tau": 0.0}, hyper_posterior=True
        )
    given = dict(hyper={"log_tau": 0.0}, hyper_posterior=True)
    with pytest.raises(mixvi.InputError, match="True or False"):
        mixvi.laplace(hierarchy, start, Y, hyper={"log_tau": 0.0}, hyper_posterior="yes")
    with pytest.raises(mixvi.InputError, match="hyper_steps"):
        mixvi.laplace(hierarchy, start, Y, hyper_steps=0, **given)
    with pytest.raises(mixvi.InputError, match="leave one out"):
        mixvi.fit(hierarchy, start, Y, family="mixture", **given)
    with pytest.raises(mixvi.InputError, match="checkpoint"):
        mixvi.laplace(hierarchy, start, Y, checkpoint="x", **given)
    with pytest.raises(mixvi.InputError, match="must be a function"):
        mixvi.laplace(hierarchy, start, Y, hyper_prior=3.0, **given)
    with pytest.raises(mixvi.InputError, match="not finite"):
        mixvi.laplace(
            hierarchy, start, Y, hyper_prior=lambda hyper: jnp.log(hyper["log_tau"]), **given
        )


def test_it_travels_through_a_file(integrated, tmp_path):
    again = mixvi.load(integrated.save(tmp_path / "nested"))
    assert again.summary() == integrated.summary()
    found, before = again.hyper_posterior, integrated.hyper_posterior
    assert found.summary() == before.summary()
    np.testing.assert_array_equal(found.points, before.points)
    assert again.log_evidence == integrated.log_evidence
    weights = again.importance_weights(100, hierarchy, Y)
    np.testing.assert_allclose(weights.weights, 0.01, rtol=1e-6)


def test_summary_and_status(integrated):
    text = integrated.summary()
    n = len(integrated.hyper_posterior.points)
    assert f"integrated over {n} points of a grid" in text
    assert "hyperparameter" in text
    assert "log_tau" in integrated._repr_html_()
    assert "with hyper_prior" in integrated.status


def test_a_warm_start_begins_at_the_mode(integrated):
    post = mixvi.laplace(hierarchy, integrated, Y, hyper_prior=prior)
    assert post.hyper["log_tau"] == pytest.approx(float(integrated.hyper["log_tau"]), abs=1e-4)
    assert post.hyper_posterior is None


def test_a_prior_alone_moves_the_mode():
    given = (hierarchy, np.zeros(GROUPS), Y)
    at = {}
    for sd in (0.05, 1.0):
        post = mixvi.laplace(
            *given,
            hyper={"log_tau": 0.0},
            hyper_prior=lambda h, sd=sd: normal(h["log_tau"] / sd, 0),
        )
        at[sd] = float(post.hyper["log_tau"])
    assert abs(at[0.05]) < 0.02 < abs(at[1.0])


def test_the_same_numbers_every_time(integrated):
    given = (hierarchy, np.zeros(GROUPS), Y)
    again = mixvi.laplace(*given, hyper={"log_tau": 0.0}, hyper_posterior=True, hyper_prior=prior)
    np.testing.assert_array_equal(again.law.means, integrated.law.means)
    assert again.elbo == integrated.elbo


def test_a_linear_predictor_gives_what_a_function_gives():
    x = rng.standard_normal((40, 3))
    y = np.where(x @ [1.0, -1.0, 0.0] + rng.logistic(size=40) > 0, 1.0, -1.0)

    def log_likelihood(eta, hyper, y):
        del hyper
        return -jnp.logaddexp(0.0, -y * eta)

    def precision(hyper, y):
        del y
        return jnp.exp(hyper) * jnp.ones(3)

    def log_density(w, hyper, y):
        return log_likelihood(x @ w, hyper, y).sum() + normal(w, -0.5 * hyper).sum()

    predictor = mixvi.LinearPredictor(x, log_likelihood, precision)
    given = dict(hyper=0.0, hyper_posterior=True, hyper_prior=lambda a: normal(a, 0.0))
    one = mixvi.laplace(predictor, np.zeros(3), y, **given)
    other = mixvi.laplace(log_density, np.zeros(3), y, **given)
    np.testing.assert_allclose(one.flat_mean, other.flat_mean, atol=1e-5)
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-5)
    # By quadrature the family's bound is no more than the evidence of any point.
    full = mixvi.fit(predictor, np.zeros(3), y, family="full", **given)
    assert full.stats.draws_kind == "quadrature"
    assert full.log_evidence == pytest.approx(one.log_evidence, abs=0.2)
    assert full.elbo.value == pytest.approx(full.log_evidence, abs=0.02)


def test_bounded_parameters_are_integrated_in_their_own_units():
    def log_density(x, hyper):
        return normal(jnp.log(x["rate"]), hyper["log_tau"]) - jnp.log(x["rate"])

    post = mixvi.laplace(
        *(log_density, {"rate": 1.0}),
        hyper={"log_tau": 0.0},
        constraints={"rate": "positive"},
        hyper_posterior=True,
        hyper_prior=lambda hyper: -0.5 * (hyper["log_tau"] / 0.2) ** 2,
        diagnostics=False,
    )
    # Scales mixed by a log-normal: E rate^2 is infinite, the median is one.
    assert post.quantiles(0.5)["rate"] == pytest.approx(1.0, abs=1e-6)
    assert post.marginal("rate").cdf(1.0) == pytest.approx(0.5, abs=1e-6)
    at = np.linspace(-1, 1, 2001)
    weights = stats.norm.pdf(at, 0, 0.2)
    share = weights @ stats.norm.cdf(1.5 / np.exp(at)) / weights.sum()
    assert post.marginal("rate").cdf(math.exp(1.5)) == pytest.approx(share, abs=1e-3)


def test_ctrl_c_gives_back_the_mode():
    def interrupt(step):
        if step.stage == "hyper":
            raise KeyboardInterrupt

    given = dict(hyper={"log_tau": 0.0}, hyper_posterior=True, hyper_prior=prior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
        post = mixvi.laplace(
            *(hierarchy, np.zeros(GROUPS), Y),
            callback=interrupt,
            on_interrupt="return",
            **given,
        )
    assert "before the hyperparameters were integrated" in post.status
    assert not post.converged
    assert post.hyper_posterior is None
