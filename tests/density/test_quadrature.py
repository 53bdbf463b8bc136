"""Linear predictors: quadrature against adaptive integration, and the bound that it gives."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

import mixvi
from mixvi._density._quadrature import PredictorDensity
from mixvi._density._target import prepare
from mixvi._fit._enough import MOST_NODES, NODES_TOL
from targets import DOUBLE

rng = np.random.default_rng(1)
X = np.concatenate([rng.standard_normal((40, 3)), np.ones((40, 1))], axis=1)
SIGN = np.where(X @ [1.0, -2.0, 0.5, 0.3] + rng.logistic(size=40) > 0, 1.0, -1.0)
LIKELIHOODS = {
    "logistic": special.log_expit,
    "cauchy": lambda eta: -np.log1p(eta**2),
}


def log_sigmoid(eta):
    return jax.nn.log_sigmoid(jnp.asarray(SIGN) * eta)


LOGISTIC = mixvi.LinearPredictor(X, log_sigmoid, 0.5)


def by_hand(w):
    return log_sigmoid(X @ w).sum() - 0.25 * w @ w + 2 * math.log(0.5 / (2 * math.pi))


def adaptive(function, mean, sd):
    def integrand(z):
        return function(mean + sd * z) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    # The function bends within a few units of zero.
    bends = np.clip((np.array([-20, -5, -1, 0, 1, 5, 20]) - mean) / sd, -9, 9)
    options = {"points": np.unique(bends), "limit": 2000, "epsabs": 1e-12, "epsrel": 1e-12}
    return integrate.quad(integrand, -9, 9, **options)[0]


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("sd", [0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
def test_nodes_against_adaptive_integration(name, sd):
    function = LIKELIHOODS[name]
    means = [0.0, 0.7, 3.0, 0.5 * sd, 2 * sd, 5 * sd]
    exact = [adaptive(function, mean, sd) for mean in means]

    def by(rule):
        nodes = rule.make(np.dtype(np.float64))
        return np.array([nodes.weights @ function(mean + sd * nodes.z) for mean in means])

    def error(rule):
        return float(np.abs(by(rule) - by(rule.doubled())).max())

    rule = mixvi.Quadrature(32)
    while error(rule) > NODES_TOL and rule.n < MOST_NODES:
        rule = rule.doubled()
    np.testing.assert_allclose(by(rule), exact, atol=2e-5)


def test_it_is_the_log_density_it_says():
    w = jnp.array([0.3, -1.0, 0.2, 0.5])
    assert float(LOGISTIC(w)) == pytest.approx(float(by_hand(w)), rel=1e-6)
    lam = rng.standard_normal((4, 4))
    lam = lam @ lam.T + np.eye(4)
    dense = mixvi.LinearPredictor(X, log_sigmoid, lam)
    expected = log_sigmoid(X @ w).sum() - 0.5 * w @ lam @ w
    expected += 0.5 * np.linalg.slogdet(lam)[1] - 2 * math.log(2 * math.pi)
    assert float(dense(w)) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("precision", [0.5, np.array([0.1, 1.0, 2.0, 3.0]), np.eye(4) + 0.2])
@pytest.mark.parametrize("diagonal", [True, False])
def test_expectation_against_many_draws(precision, diagonal):
    model = mixvi.LinearPredictor(X, log_sigmoid, precision)
    mean = np.array([0.3, -1.0, 0.2, 0.5])
    root = np.array([0.5, 0.3, 0.8, 0.2]) if diagonal else 0.4 * rng.standard_normal((4, 4))
    with jax.enable_x64(True):
        nodes = mixvi.Quadrature(64).make(np.dtype(np.float64))
        rule = jnp.asarray(nodes.z[None, :, None, None]), jnp.asarray(nodes.weights[None])
        found = float(model.expected(jnp.asarray(mean), jnp.asarray(root), *rule))
        z = mixvi.Matched(2**15).make(0, 4)
        points = mean + (z * root if diagonal else z @ root.T)
        values = np.asarray(jax.vmap(model)(jnp.asarray(points)))
    noise = float(values.std()) / math.sqrt(len(values))
    assert found == pytest.approx(float(values.mean()), abs=4 * noise)
    assert noise < 0.1


def test_draws_tend_to_quadrature_and_all_families_agree():
    for family in ("eig", "lr"):
        exact = mixvi.fit(LOGISTIC, np.zeros(4), family=family)
        assert exact.stats.draws_kind == "quadrature"
        assert exact.gap == pytest.approx(0, abs=4 * exact.elbo.se + 1e-6)
        few, many = (
            mixvi.fit(LOGISTIC, np.zeros(4), family=family, draws=n, diagnostics=False)
            for n in (64, 8192)
        )
        assert abs(many.elbo_fixed - exact.elbo_fixed) < 2e-3
        assert abs(many.elbo_fixed - exact.elbo_fixed) < abs(few.elbo_fixed - exact.elbo_fixed)
        np.testing.assert_allclose(many.mean, exact.mean, atol=0.02)
        np.testing.assert_allclose(many.std, exact.std, rtol=0.03)


def test_a_gaussian_likelihood_is_exact():
    y = rng.standard_normal(40)

    def log_likelihood(eta):
        return -0.5 * (y - eta) ** 2 - 0.5 * math.log(2 * math.pi)

    model = mixvi.LinearPredictor(X, log_likelihood, 2.0)
    cov = np.linalg.inv(X.T @ X + 2 * np.eye(4))
    marginal = np.eye(40) + X @ X.T / 2
    evidence = -0.5 * y @ np.linalg.solve(marginal, y) - 0.5 * np.linalg.slogdet(marginal)[1]
    evidence -= 20 * math.log(2 * math.pi)
    for family in ("laplace", "eig", "full"):
        post = mixvi.fit(model, np.zeros(4), family=family)
        np.testing.assert_allclose(post.cov, cov, atol=1e-6)
        assert post.log_evidence == pytest.approx(evidence, abs=1e-8)


def test_nodes_are_refined_where_predictors_are_wide():
    """One observation and a nearly flat prior: the predictor's standard deviation is near 20."""
    model = mixvi.LinearPredictor(np.ones((1, 1)), jax.nn.log_sigmoid, 1 / 900)
    options = {"family": "eig", "tol": 1e-5}
    post = mixvi.fit(model, np.zeros(1), **options)
    assert post.stats.draws > 32
    many = mixvi.fit(model, np.zeros(1), draws=mixvi.Quadrature(2048), diagnostics=False, **options)
    assert post.elbo_fixed == pytest.approx(many.elbo_fixed, abs=1e-5)
    np.testing.assert_allclose(post.std, many.std, rtol=1e-4)


def test_a_likelihood_that_nodes_cannot_follow_returns_to_draws_and_says_so():
    def kinked(eta):
        return -0.5 * eta**2 - 50 * jax.nn.relu(eta - 0.5)

    model = mixvi.LinearPredictor(np.ones((1, 1)), kinked, 0.01)
    post = mixvi.fit(model, np.zeros(1), family="mu")
    assert post.stats.draws_kind == "matched"
    assert "Draws were used: quadrature with 1024 nodes does not settle" in post.status


def test_bounded_memory_changes_nothing():
    """Few nodes at a time: the sum over the pieces counts every node and the prior once."""
    target, _ = prepare(LOGISTIC, np.zeros(4), None, DOUBLE, None)
    whole, cut = (PredictorDensity(target, DOUBLE, memory) for memory in (2**30, 2**15))
    assert 1 < cut._nodes_at_once(1) < 12
    assert whole._nodes_at_once(1) == 32
    rule = mixvi.Quadrature(64).make(DOUBLE)
    at = np.array([0.3, -0.2, 0.1, 0.0]), 0.4 * np.eye(4)
    for one, other in zip(whole.expect(*at, rule), cut.expect(*at, rule), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_a_batch_is_the_same_as_one_at_a_time():
    def likelihood(eta, data):
        return jax.nn.log_sigmoid(data["sign"] * eta)

    model = mixvi.LinearPredictor(lambda data: data["x"], likelihood, 1.0)
    scales = np.array([1.0, 40.0])  # the second needs more nodes
    data = {"x": scales[:, None, None] * X[:6], "sign": np.repeat(SIGN[None, :6], 2, 0)}
    # Two engines, whose other anchors differ.
    options = {"family": "eig", "tol": 1e-5, "anchor": "mode"}
    posts = mixvi.fit_many(model, np.zeros(4), data=data, strategy="vmap", **options)
    for i, post in enumerate(posts):
        its = {name: array[i] for name, array in data.items()}
        alone = mixvi.fit(model, np.zeros(4), data=its, **options)
        assert alone.elbo_fixed == pytest.approx(post.elbo_fixed, abs=1e-4)
        assert alone.stats.draws_kind == post.stats.draws_kind


@pytest.mark.parametrize(
    ("model", "init", "says"),
    [
        (mixvi.LinearPredictor(X, lambda eta: eta.sum(), 1.0), np.zeros(4), "not their sum"),
        (mixvi.LinearPredictor(X, log_sigmoid, 1.0), np.zeros(5), "the design has shape"),
        (mixvi.LinearPredictor(X, log_sigmoid, np.ones(3)), np.zeros(4), "prior_precision has"),
        (mixvi.LinearPredictor(X, log_sigmoid, 1.0), {"w": np.zeros(4)}, "one vector"),
    ],
)
def test_wrong_shapes(model, init, says):
    with pytest.raises(mixvi.InputError, match=says):
        mixvi.fit(model, init)


def test_no_rows_leave_the_prior():
    post = mixvi.fit(mixvi.LinearPredictor(X[:0], lambda eta: eta, 4.0), np.ones(4))
    np.testing.assert_allclose(post.std, 0.5, atol=1e-6)
    with pytest.raises(mixvi.InputError, match="must be positive"):
        mixvi.LinearPredictor(X, log_sigmoid, -1.0)


def test_quadrature_needs_a_linear_predictor():
    with pytest.raises(mixvi.InputError, match="quadrature needs linear predictors"):
        mixvi.fit(lambda w: -(w @ w), np.zeros(2), draws=mixvi.Quadrature(64))
    with pytest.raises(mixvi.InputError, match="number of nodes"):
        mixvi.Quadrature(4)
