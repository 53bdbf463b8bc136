"""Bases, likelihoods and predictions against scipy, quadrature and each other."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import mixvi
from mixvi import models
from mixvi.models._choose import spread_starts
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
        found = likelihood.predictive_cdf(np.array(y), np.array(0.4), np.array(sd), hyper)
        assert float(found) == pytest.approx(exact, abs=2e-6)


def test_discrete_likelihoods():
    counts = np.arange(6)
    law = stats.poisson(np.exp(0.7))
    poisson = models.Poisson()
    np.testing.assert_allclose(poisson.log_prob(counts, 0.7, {}), law.logpmf(counts), rtol=1e-9)
    np.testing.assert_allclose(poisson.cdf(counts, 0.7, {}), law.cdf(counts), rtol=1e-9)
    assert float(poisson.cdf(np.array(-0.5), 0.7, {})) == 0
    both = models.Bernoulli().log_prob(np.array([0.0, 1.0]), 0.7, {})
    assert float(np.exp(both).sum()) == pytest.approx(1)
    eta = np.array([[0.1, 2.0, -1.0]] * 3)
    softmax = models.Softmax(3)
    found = softmax.log_prob(np.arange(3.0), eta, {})
    np.testing.assert_allclose(np.exp(found), softmax.mean(eta[0], {}), rtol=1e-12)
    # With two classes it is the Bernoulli of the difference.
    two = models.Softmax(2).log_prob(np.array([1.0]), np.array([[0.5, 1.2]]), {})
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


@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
def test_a_gaussian_process_is_its_kernel(kernel, per_feature):
    from sklearn.gaussian_process.kernels import RBF, Matern

    x, _ = table()
    nu = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    width = np.array([0.8, 1.7]) if per_feature else np.float64(1.1)
    hyper = {"log_amplitude": np.float64(0.3), "log_width": np.log(width)}
    exact = RBF(width) if kernel == "rbf" else Matern(width, nu=nu[kernel])
    basis = models.GaussianProcess(kernel, None, per_feature)
    shared = basis.fit_shared(x, 0)
    phi = basis.columns(basis.rows(x, shared), shared, hyper)
    np.testing.assert_allclose(phi @ phi.T, np.exp(0.6) * exact(x), atol=1e-7)
    # Elsewhere: what the rows know, and what is left over.
    fresh, _ = table(10, seed=1)
    fresh[0] = 500.0
    rows = basis.rows(fresh, shared)
    new = basis.columns(rows, shared, hyper)
    np.testing.assert_allclose(new @ phi.T, np.exp(0.6) * exact(fresh, x), atol=1e-6)
    leftover = basis.leftover(rows, shared, hyper, new)
    np.testing.assert_allclose(leftover, np.exp(0.6) - (new**2).sum(1), atol=1e-12)
    assert leftover[0] == pytest.approx(np.exp(0.6))
    assert basis.leftover({}, shared, hyper, phi).max() < 1e-6


def test_inducing_points():
    x, _ = table(60)
    few = models.GaussianProcess("rbf", 12).fit_shared(x, 0)
    assert few["centres"].shape == (12, 2)
    np.testing.assert_array_equal(models.GaussianProcess("rbf", 60).fit_shared(x, 0)["centres"], x)
    twice = models.GaussianProcess("rbf").fit_shared(np.r_[x, x], 0)["centres"]
    np.testing.assert_array_equal(twice, np.unique(x, axis=0))


def test_few_distinct_rows_are_their_own_centres():
    x = np.repeat(np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]), 5, axis=0)
    shared = models.RBF(10).fit_shared(x, 0)
    np.testing.assert_array_equal(shared["centres"], np.unique(x, axis=0))


def fitted(likelihood, y, x, family="eig", basis=None):
    model = models.Model(basis or models.RBF(6), likelihood)
    density = model.density(x, y)
    post = mixvi.fit(density, density.init, family=family, hyper=density.hyper)
    return models.Predictive.of(model, density.shared, post), density.rows, post


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


@pytest.mark.parametrize("classes", [2, 3])
def test_what_a_kernel_leaves_over_is_in_every_prediction(classes):
    """Far from the rows only the kernel's own variance and the constant's are left."""
    x, y = table()
    y = y if classes == 2 else np.digitize(x[:, 0], [-0.5, 0.5]).astype(float)
    likelihood = models.Bernoulli() if classes == 2 else models.Softmax(3)
    basis = models.GaussianProcess("rbf", 10)
    predictive, _, post = fitted(likelihood, y, x, basis=basis)
    far = basis.rows(np.full((3, 2), 100.0), predictive.shared)
    variance = np.exp(2 * post.hyper["log_amplitude"])
    if classes == 2:
        constant = post.cov[-1, -1]
        np.testing.assert_allclose(predictive.predictor(far)[1] ** 2, variance + constant)
    w = predictive.coloured(np.random.default_rng(0).standard_normal((40_000, post.dim)))
    labels = np.arange(3.0) % classes
    lpd = predictive.lpd(far, labels, w)
    exact = predictive.pointwise_lpd(far, labels)
    np.testing.assert_allclose(lpd.pointwise, exact, atol=0.03)
    drawn = predictive.sample(far, 40_000, 1)
    shares = predictive.expectation(far)
    for label in range(classes):
        share = shares[:, label] if classes > 2 else (shares if label else 1 - shares)
        np.testing.assert_allclose((drawn == label).mean(0), share, atol=0.015)


@pytest.mark.parametrize("likelihood", [models.Cauchy(), models.StudentT(4.0), models.Gaussian()])
def test_quantiles_invert_the_predictive_distribution(likelihood):
    x, _ = table()
    y = np.sin(x[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(len(x))
    predictive, rows, post = fitted(likelihood, y, x)
    levels = np.array([0.01, 0.5, 0.975])
    found = predictive.quantiles(rows, levels)
    mean, sd = (part[:, None] for part in predictive.predictor(rows))
    shares = likelihood.predictive_cdf(found, mean, sd, post.hyper)
    np.testing.assert_allclose(shares, np.broadcast_to(levels, shares.shape), atol=1e-8)


def test_starts():
    model = models.Model(models.RBF(5), models.Cauchy())
    shared = model.basis.fit_shared(table()[0], 0)
    spread = spread_starts(model, shared)
    assert len({float(start["log_width"]) for start in spread}) == len(spread) == 3
    assert all(set(start) == {"log_alpha", "log_width", "log_gamma"} for start in spread)
    linear = models.Model(models.Linear(), models.Cauchy())
    assert len(spread_starts(linear, {"n_columns": 2})) == 1


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
