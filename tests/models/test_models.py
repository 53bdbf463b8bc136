"""Bases, likelihoods and predictions against scipy, quadrature and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import mixvi
from mixvi import models
from mixvi.models._model import ranks

REAL = {
    "gaussian": (models.Gaussian(), {"log_sigma": -0.3}, stats.norm(0.4, np.exp(-0.3))),
    "cauchy": (models.Cauchy(), {"log_gamma": -0.7}, stats.cauchy(0.4, np.exp(-0.7))),
    "t": (models.StudentT(3.0), {"log_sigma": 0.2}, stats.t(3.0, 0.4, np.exp(0.2))),
    "t, df learnt": (
        models.StudentT(None),
        {"log_sigma": 0.2, "log_df": np.log(2.5)},
        stats.t(2.5, 0.4, np.exp(0.2)),
    ),
}


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", REAL)
def test_real_likelihoods_are_scipys(name):
    likelihood, hyper, law = REAL[name]
    y = np.array([-7.0, -1.0, 0.3, 0.41, 2.0, 30.0])
    np.testing.assert_allclose(likelihood.log_prob(y, 0.4, hyper), law.logpdf(y), rtol=1e-9)
    np.testing.assert_allclose(likelihood.cdf(y, 0.4, hyper), law.cdf(y), rtol=1e-7)
    assert set(likelihood.start()) == set(hyper)
    assert np.isfinite(likelihood.log_prior(hyper))


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("sd", [0.2, 3.0])
def test_predictive_distribution_function_against_adaptive_integration(name, sd):
    likelihood, hyper, law = REAL[name]
    for y in (-2.0, 0.4, 1.5):

        def integrand(e, y=y):
            return law.cdf(y - e) * stats.norm(0, sd).pdf(e)

        exact = integrate.quad(integrand, -9 * sd, 9 * sd, limit=500)[0]
        found = likelihood.predictive_cdf(jnp.array(y), jnp.array(0.4), jnp.array(sd), hyper)
        assert float(found) == pytest.approx(exact, abs=2e-6)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("sd", [1e-3, 0.5, 3000.0])
def test_predictive_density_however_narrow_the_noise(name, sd):
    likelihood, hyper, law = REAL[name]
    for y in (0.4, 0.4 + 0.7 * sd, 0.4 + 9 * sd):
        at = (jnp.array([y]), jnp.array([0.4]), jnp.array([sd]), hyper)
        near = np.sinh(np.linspace(-25, 25, 40_001))
        exact = convolved(lambda e, y=y: law.logpdf(y - e), sd, y - 0.4 + near)
        assert float(likelihood.predictive_log_prob(*at)[0]) == pytest.approx(exact, abs=2e-5)
        general = models.Likelihood.predictive_log_prob(likelihood, *at)
        assert float(general[0]) == pytest.approx(exact, abs=5e-3)


def convolved(log_likelihood, sd, near):
    """`log E exp(log_likelihood(e))`, `e ~ N(0, sd^2)`, by trapezoids on a very fine grid."""
    e = np.unique(np.r_[sd * np.linspace(-12, 12, 40_001), near[np.abs(near) < 38 * sd]])
    values = log_likelihood(e) + stats.norm(0, sd).logpdf(e)
    return np.log(np.trapezoid(np.exp(values - values.max()), e)) + values.max()


@pytest.mark.parametrize(
    ("count", "mean", "sd"), [(0, 0.5, 1.0), (7, 1.0, 0.1), (10**6, 12.0, 2.0)]
)
def test_predictive_density_of_counts(count, mean, sd):
    near = np.log(count + 0.5) - mean + np.linspace(-1, 1, 40_001)
    exact = convolved(lambda e: stats.poisson(np.exp(mean + e)).logpmf(count), sd, near)
    at = (jnp.array([float(count)]), jnp.array([mean]), jnp.array([sd]), {})
    found = float(models.Poisson().predictive_log_prob(*at)[0])
    assert found == pytest.approx(exact, abs=2e-3)


def test_discrete_likelihoods():
    counts = np.arange(6)
    law = stats.poisson(np.exp(0.7))
    poisson = models.Poisson()
    np.testing.assert_allclose(poisson.log_prob(counts, 0.7, {}), law.logpmf(counts), rtol=1e-9)
    np.testing.assert_allclose(poisson.cdf(counts, 0.7, {}), law.cdf(counts), rtol=1e-9)
    assert float(poisson.cdf(jnp.array(-0.5), 0.7, {})) == 0
    both = models.Bernoulli().log_prob(np.array([0.0, 1.0]), 0.7, {})
    assert float(jnp.exp(both).sum()) == pytest.approx(1)
    eta = np.array([[0.1, 2.0, -1.0]] * 3)
    softmax = models.Softmax(3)
    found = softmax.log_prob(jnp.arange(3.0), jnp.asarray(eta), {})
    np.testing.assert_allclose(np.exp(found), softmax.mean(jnp.asarray(eta[0]), {}), rtol=1e-12)
    # With two classes it is the Bernoulli of the difference.
    two = models.Softmax(2).log_prob(jnp.array([1.0]), jnp.array([[0.5, 1.2]]), {})
    assert float(two[0]) == pytest.approx(float(both[1]))


def table(n=40, features=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, features))
    return x, (x[:, 0] ** 2 + 0.5 * x[:, 1] + 0.3 * rng.standard_normal(n) > 0.7).astype(float)


def test_basis_functions():
    x, _ = table()
    for basis in (models.RBF(7), models.RBF(7, per_feature=True)):
        shared = basis.fit_shared(x, 0)
        hyper = basis.start(shared)
        made = basis.design(basis.rows(x, shared), shared, hyper)
        square = ((x[:, None] - shared["centres"]) ** 2).sum(-1)
        width = np.exp(np.ravel(hyper["log_width"])[0])
        np.testing.assert_allclose(made[:, :-1], np.exp(-square / (2 * width**2)), atol=1e-12)
        np.testing.assert_array_equal(made[:, -1], 1)
    linear = models.Linear()
    shared = linear.fit_shared(x, 0)
    np.testing.assert_allclose(linear.design(linear.rows(x, shared), shared, {})[:, :2], x)
    own = models.Features(lambda x: x**2)
    shared = own.fit_shared(x, 0)
    np.testing.assert_allclose(own.design(own.rows(x, shared), shared, {})[:, :2], x**2)
    with pytest.raises(mixvi.InputError, match=r"must be \(rows, columns\)"):
        models.Features(lambda x: x[:, 0]).fit_shared(x, 0)


def test_few_distinct_rows_are_their_own_centres():
    x = np.repeat(np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]), 5, axis=0)
    shared = models.RBF(10).fit_shared(x, 0)
    np.testing.assert_array_equal(shared["centres"], np.unique(x, axis=0))


@pytest.mark.parametrize("family", ["laplace", "eig"])
def test_padded_columns_change_nothing(family):
    x, y = table()
    found = []
    for padded_to in (0, 9):
        basis = models.RBF(6, padded_to=padded_to)
        model = models.Model(basis, models.Bernoulli())
        shared = basis.fit_shared(x, 0)
        data = model.data(basis.rows(x, shared), shared, y)
        post = mixvi.fit(
            model.log_density,
            model.init(shared),
            family=family,
            data=data,
            hyper=model.hyper(shared),
        )
        found.append(post)
    plain, padded = found
    assert padded.dim == plain.dim + 3
    assert padded.log_evidence == pytest.approx(plain.log_evidence, abs=1e-6)
    kept = [*range(6), 9]
    np.testing.assert_allclose(padded.flat_mean[kept], plain.flat_mean, atol=1e-4)
    np.testing.assert_allclose(padded.flat_std[kept], plain.flat_std, atol=1e-4)
    np.testing.assert_allclose(padded.flat_std[6:9], 1, atol=1e-4)


def test_rows_without_weight_change_nothing():
    x, y = table()
    basis = models.RBF(6)
    model = models.Model(basis, models.Bernoulli())
    shared = basis.fit_shared(x, 0)
    init, hyper = model.init(shared), model.hyper(shared)
    plain = mixvi.laplace(
        model.log_density, init, data=model.data(basis.rows(x, shared), shared, y), hyper=hyper
    )
    more = np.concatenate([x, 5 * x[:3]])
    weight = np.r_[np.ones(len(x)), np.zeros(3)]
    data = model.data(basis.rows(more, shared), shared, np.r_[y, np.ones(3)], weight)
    post = mixvi.laplace(model.log_density, init, data=data, hyper=hyper)
    assert post.log_evidence == pytest.approx(plain.log_evidence, abs=1e-7)


def fitted(likelihood, y, x, family="eig"):
    basis = models.RBF(6)
    model = models.Model(basis, likelihood)
    shared = basis.fit_shared(x, 0)
    data = model.data(basis.rows(x, shared), shared, y)
    post = mixvi.fit(
        model.log_density, model.init(shared), family=family, data=data, hyper=model.hyper(shared)
    )
    return models.Predictive.of(model, shared, post), basis.rows(x, shared), post


def test_predictions_against_draws():
    x, y = table()
    predictive, rows, post = fitted(models.Bernoulli(), y, x)
    w = predictive.coloured(np.random.default_rng(0).standard_normal((40_000, post.dim)))
    design = np.asarray(predictive.model.basis.design(rows, predictive.shared, post.hyper))
    eta = w @ design.T
    proba = 1 / (1 + np.exp(-eta))
    np.testing.assert_allclose(predictive.expectation(rows), proba.mean(0), atol=0.01)
    mean, sd = predictive.predictor(rows)
    np.testing.assert_allclose(mean, eta.mean(0), atol=0.05 * sd.max())
    np.testing.assert_allclose(sd, eta.std(0), rtol=0.03)
    lpd = predictive.lpd(rows, y, w)
    pointwise = np.log(np.where(y > 0, proba, 1 - proba).mean(0))
    np.testing.assert_allclose(lpd.pointwise, pointwise, rtol=1e-9)
    np.testing.assert_allclose(predictive.pointwise_lpd(rows, y), pointwise, atol=0.03)
    joint = np.where(y > 0, np.log(proba), np.log1p(-proba)).sum(1)
    assert lpd.joint == pytest.approx(np.logaddexp.reduce(joint) - np.log(len(joint)), rel=1e-9)


def test_softmax_with_two_classes_predicts_like_the_logistic():
    """Softmax weights are two vectors with prior 1/alpha each; their difference has 2/alpha."""
    x, y = table()
    logistic, rows, _ = fitted(models.Bernoulli(), y, x)
    softmax, _, _ = fitted(models.Softmax(2), y, x)
    found = softmax.expectation(rows)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(found[:, 1], logistic.expectation(rows), atol=0.03)


@pytest.mark.parametrize("likelihood", [models.Cauchy(), models.StudentT(4.0), models.Gaussian()])
def test_quantiles_invert_the_predictive_distribution(likelihood):
    x, _ = table()
    y = np.sin(x[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(len(x))
    predictive, rows, post = fitted(likelihood, y, x)
    levels = np.array([0.01, 0.5, 0.975])
    found = predictive.quantiles(rows, levels)
    mean, sd = (jnp.asarray(part)[:, None] for part in predictive.predictor(rows))
    shares = likelihood.predictive_cdf(jnp.asarray(found), mean, sd, post.hyper)
    np.testing.assert_allclose(shares, np.broadcast_to(levels, shares.shape), atol=1e-8)


def test_starts():
    model = models.Model(models.RBF(5), models.Cauchy())
    shared = model.basis.fit_shared(table()[0], 0)
    spread = models.spread_starts(model, shared)
    assert len(spread) == 6
    drawn = models.paper_starts(model, shared, 10, np.random.default_rng(0))
    assert all(-7 < start["log_width"] < 0 and -7 < start["log_alpha"] < 0 for start in drawn)
    assert all(set(start) == {"log_alpha", "log_width", "log_gamma"} for start in spread + drawn)


def test_screening_ranks_and_groups_shapes():
    def log_density(w, log_alpha, y):
        prior = 0.5 * (log_alpha - jnp.exp(log_alpha) * w**2).sum()
        return (-0.5 * (y - w) ** 2).sum() + prior

    y = np.array([2.0, -1.5, 3.0])
    found = mixvi.screen(log_density, np.zeros(3), [-4.0, 0.0], y, steps=1)
    # One evaluation goes nowhere: the scores are the evidences of the starts, in closed form.
    for start, score in zip([-4.0, 0.0], found.scores, strict=True):
        total = 1 + np.exp(-start)
        expected = -0.5 * (y**2).sum() / total - 1.5 * np.log(total) + 1.5 * np.log(2 * np.pi)
        assert score == pytest.approx(expected)
    assert found.best == 1
    by_bound = mixvi.screen(log_density, np.zeros(3), [-4.0, 0.0], y, steps=30, family="eig")
    assert float(by_bound.hyper) == pytest.approx(-np.log((y**2).mean() - 1), abs=1e-3)
    several = mixvi.screen(
        lambda w, h, d: log_density(w, h["a"], d["y"]) - 10.0 * d["x"].size,
        np.zeros(3),
        [{"a": 0.0}] * 3,
        data_of_start=[{"y": y, "x": np.zeros(k)} for k in (2, 1, 2)],
    )
    assert several.best == 1
    assert several.scores[0] == several.scores[2]
    together = [
        mixvi.Screening(np.array(s), [], [], 0) for s in ([0.0, -1.0, -5.0], [-9.0, -2.0, -1.0])
    ]
    assert mixvi.best_together(together) == 1
    assert mixvi.best_together(together, ["a", "b", "a"]) == "a"
    with pytest.raises(mixvi.InputError, match="at least one start"):
        mixvi.screen(log_density, np.zeros(3), [], y)


def test_ranks_are_those_of_distinct_rows_that_weigh_anything():
    x = np.array([[2.0, 0.0], [1.0, 5.0], [9.0, 9.0], [2.0, 0.0], [1.0, 4.0]])
    weight = np.array([1.0, 2.0, 0.0, 0.5, 1.0])
    np.testing.assert_array_equal(ranks({"x": x}, weight)[[0, 1, 3, 4]], [2, 1, 2, 0])
