"""Several linear predictors per observation: the same answers as integrals that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._density._linear_predictor import small_cholesky

rng = np.random.default_rng(3)
X = np.concatenate([rng.standard_normal((30, 2)), np.ones((30, 1))], axis=1)
LABEL = (X @ [1.5, -1.0, 0.3] + rng.logistic(size=30) > 0).astype(int)
Y3 = np.argmax(X @ rng.standard_normal((3, 3)) + rng.gumbel(size=(30, 3)), axis=1)


def of_class(label):
    def log_likelihood(eta):
        chosen = jnp.take_along_axis(eta, jnp.asarray(label)[:, None], axis=1)[:, 0]
        return chosen - jax.scipy.special.logsumexp(eta, axis=1)

    return log_likelihood


TWO = mixvi.LinearPredictor(X, of_class(LABEL), 0.5)
THREE = mixvi.LinearPredictor(X, of_class(Y3), np.array([0.3, 1.0, 2.0]))
# With two classes only w_1 - w_0 is seen, whose prior variance is twice as large.
DIFFERENCE = mixvi.LinearPredictor(
    X, lambda eta: jax.nn.log_sigmoid(jnp.asarray(2.0 * LABEL - 1) * eta), 0.25
)


def test_it_is_the_log_density_it_says():
    w, precision = rng.standard_normal((3, 3)), np.array([0.3, 1.0, 2.0])
    eta = X @ w.T
    by_hand = (eta[np.arange(30), Y3] - np.log(np.exp(eta).sum(1))).sum()
    by_hand += 0.5 * (np.log(precision / (2 * np.pi)) - precision * w**2).sum()
    with jax.enable_x64(True):
        assert float(THREE(jnp.asarray(w))) == pytest.approx(by_hand, abs=1e-10)


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_expectation_over_two_predictors_is_that_over_their_difference(diagonal):
    mean, root = rng.standard_normal(6), 0.6 * rng.standard_normal((6, 6))
    root = np.abs(root[0]) if diagonal else root
    dense = np.diag(root) if diagonal else root
    with jax.enable_x64(True):
        rule = mixvi.Quadrature(2**12).make(np.dtype(np.float64), 2)
        eta, spread = TWO.predictors(jnp.asarray(mean), jnp.asarray(root))
        # 4096 points in two dimensions against 256 exact nodes in one.
        exact = mixvi.Quadrature(256).make(np.dtype(np.float64))
        of_rows = np.stack([X @ dense[:3], X @ dense[3:]], axis=1)
        covariance = np.einsum("nkd,nld->nkl", of_rows, of_rows)
        np.testing.assert_allclose(spread @ np.swapaxes(spread, 1, 2), covariance, atol=1e-12)
        away = np.array([-1.0, 1.0])
        sd = np.sqrt(np.einsum("k,nkl,l->n", away, covariance, away))
        at = (eta @ away) + sd * exact.z[:, None]
        sign = 2.0 * LABEL - 1
        expected = (exact.weights @ np.asarray(jax.nn.log_sigmoid(sign * at))).sum()
        prior = 0.5 * (6 * np.log(0.5 / (2 * np.pi)) - 0.5 * (mean @ mean + (dense**2).sum()))
        z, weights = jnp.asarray(rule.z[None]), jnp.asarray(rule.weights[None])
        found = float(TWO.expected(jnp.asarray(mean), jnp.asarray(root), z, weights))
    assert found == pytest.approx(expected + prior, abs=1e-3)


def test_two_predictors_end_where_their_difference_does():
    options = {"family": "full", "tol": 1e-5}
    several = mixvi.fit(TWO, np.zeros((2, 3)), draws=mixvi.Quadrature(2**13), **options)
    single = mixvi.fit(DIFFERENCE, np.zeros(3), **options)
    assert several.elbo_fixed == pytest.approx(single.elbo_fixed, abs=1e-4)
    np.testing.assert_allclose(several.mean[1] - several.mean[0], single.mean, atol=1e-3)
    away = np.concatenate([-np.eye(3), np.eye(3)])
    np.testing.assert_allclose(away.T @ several.cov @ away, single.cov, atol=1e-3)
    # The sum of the two is left with its prior.
    np.testing.assert_allclose(several.mean.sum(0), 0, atol=1e-3)


@pytest.mark.parametrize("family", ["mu", "eig", "full", "auto"])
def test_by_default_nodes_are_as_many_as_the_loss_asks_for(family):
    """The loss is held below 0.005 nat, and is told where the user's nodes cost more."""
    post = mixvi.fit(THREE, np.zeros((3, 3)), family=family)
    assert post.stats.draws_kind == "quadrature"
    many = mixvi.fit(THREE, np.zeros((3, 3)), family=family, draws=mixvi.Quadrature(2**12))
    assert abs(post.elbo.value - many.elbo.value) < 0.005
    np.testing.assert_allclose(post.mean, many.mean, atol=0.05 * many.std.max())
    assert "nodes costs" not in post.status + many.status


def test_too_few_nodes_are_told():
    wide = mixvi.LinearPredictor(20 * X[:12], of_class(Y3[:12]), 0.01)
    post = mixvi.fit(wide, np.zeros((3, 3)), family="full", draws=mixvi.Quadrature(16))
    assert "Quadrature over 16 nodes costs about" in post.status


def test_a_gaussian_likelihood_is_exact():
    """Two targets with correlated noise: eta_n ~ N(y_n, C)."""
    y, noise = rng.standard_normal((30, 2)), np.array([[1.0, 0.6], [0.6, 2.0]])

    def log_likelihood(eta):
        away = y - eta
        return -0.5 * jnp.einsum("nk,kl,nl->n", away, np.linalg.inv(noise), away)

    cov = np.linalg.inv(np.kron(np.linalg.inv(noise), X.T @ X) + 2 * np.eye(6))
    mean = cov @ np.einsum("kl,nl,nd->kd", np.linalg.inv(noise), y, X).ravel()
    for family in ("laplace", "eig", "full"):
        post = mixvi.fit(
            mixvi.LinearPredictor(X, log_likelihood, 2.0), np.zeros((2, 3)), family=family
        )
        np.testing.assert_allclose(post.cov, cov, atol=1e-6)
        np.testing.assert_allclose(post.mean.ravel(), mean, atol=1e-6)


def test_a_batch_is_the_same_as_one_at_a_time():
    model = mixvi.LinearPredictor(lambda data: data["x"], lambda eta, _: of_class(Y3)(eta), 1.0)
    data = {"x": np.array([1.0, 20.0])[:, None, None] * X}  # the second needs more nodes
    options = {"family": "auto", "tol": 1e-5}
    posts = mixvi.fit_many(model, np.zeros((3, 3)), data=data, strategy="vmap", **options)
    for x, post in zip(data["x"], posts, strict=True):
        alone = mixvi.fit(model, np.zeros((3, 3)), data={"x": x}, **options)
        assert alone.elbo_fixed == pytest.approx(post.elbo_fixed, abs=1e-6)
        assert alone.stats.draws == post.stats.draws


def test_bounded_memory_changes_nothing():
    x = np.tile(X, (40, 1))
    model = mixvi.LinearPredictor(x, of_class(np.tile(Y3, 40)), 1.0)
    whole, cut = (
        mixvi.fit(model, np.zeros((3, 3)), family="eig", diagnostics=False, memory=memory)
        for memory in (None, "1MiB")
    )
    assert cut.elbo_fixed == pytest.approx(whole.elbo_fixed, rel=1e-10)


def test_small_roots():
    half = rng.standard_normal((7, 4, 4))
    half[3] = 0.0  # an observation without predictors
    half[5, 2] = half[5, 1]  # two predictors that are one
    covariance = half @ np.swapaxes(half, 1, 2)
    with jax.enable_x64(True):
        root = np.asarray(small_cholesky(jnp.asarray(covariance)))
        gradient = jax.grad(lambda c: small_cholesky(c).sum())(jnp.asarray(covariance))
    np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2), covariance, atol=1e-12)
    np.testing.assert_allclose(root[0], np.linalg.cholesky(covariance[0]), atol=1e-12)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("model", "init", "says"),
    [
        (THREE, np.zeros((1, 3)), r"two or more predictors, not of shape \(1, 3\)"),
        (THREE, np.zeros((3, 3, 1)), "init must be one vector, or a matrix"),
        (THREE, np.zeros((3, 4)), r"the design has shape \(30, 3\)"),
        (THREE, {"w": np.zeros((3, 3))}, "a container of several"),
        (mixvi.LinearPredictor(X, lambda eta: eta, 1.0), np.zeros((3, 3)), "one number per"),
        (mixvi.LinearPredictor(X, of_class(LABEL), np.ones(6)), np.zeros((2, 3)), r"\(2, 3\)"),
    ],
)
def test_wrong_shapes(model, init, says):
    with pytest.raises(mixvi.InputError, match=says):
        mixvi.fit(model, init)


def test_odd_or_too_few_nodes_are_refused():
    with pytest.raises(mixvi.InputError, match="33 nodes cannot stand for 3 predictors"):
        mixvi.fit(THREE, np.zeros((3, 3)), draws=mixvi.Quadrature(33))
    with pytest.raises(mixvi.InputError, match="even number of at least 20"):
        mixvi.Quadrature(16).make(np.dtype(np.float64), 9)


def test_prior_precisions_that_are_not_what_they_seem():
    half = rng.standard_normal((6, 6))
    almost_symmetric = np.linalg.inv(half @ half.T + np.eye(6))
    almost_symmetric[0, 1] *= 1 + 1e-15
    mixvi.LinearPredictor(np.eye(6), lambda eta: eta, almost_symmetric)
    by_rows = mixvi.LinearPredictor(X[:, :2], of_class(LABEL), np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(mixvi.InputError, match="by rows or as a matrix"):
        mixvi.fit(by_rows, np.zeros((2, 2)))
    with pytest.raises(mixvi.InputError, match="positive"):
        mixvi.LinearPredictor(X, of_class(LABEL), np.array([[1.0, -5.0], [-5.0, 1.0]]))


def test_a_warm_start_takes_the_nodes_that_a_cold_one_takes():
    x, label = X[:25], Y3[:25]
    make = lambda precision: mixvi.LinearPredictor(x, of_class(label), precision)  # noqa: E731
    before = mixvi.fit(make(0.003), np.zeros((3, 3)), family="full", diagnostics=False)
    warm, cold = (
        mixvi.fit(make(0.00306), init, family="full", diagnostics=False)
        for init in (before, np.zeros((3, 3)))
    )
    assert "nodes cost" not in warm.status
    assert warm.stats.draws >= cold.stats.draws
    assert warm.elbo_fixed == pytest.approx(cold.elbo_fixed, abs=0.02)


def test_rows_with_groups_of_their_own_may_come_in_any_order():
    order, groups = rng.permutation(30), rng.integers(0, 100, 30)
    mean, root = rng.standard_normal(9), 0.6 * rng.standard_normal((9, 9))
    precision = np.array([0.3, 1.0, 2.0])
    rule = mixvi.Quadrature(16).make(np.dtype(np.float64), 3)

    def expected(take, groups):
        model = mixvi.LinearPredictor(X[take], of_class(Y3[take]), precision, node_groups=groups)
        with jax.enable_x64(True):
            parts = map(jnp.asarray, (mean, root, rule.z[None], rule.weights[None]))
            return float(model.expected(*parts))

    here = expected(np.arange(30), groups)
    assert expected(order, lambda: groups[order]) == pytest.approx(here, abs=1e-12)
    assert abs(expected(order, None) - expected(np.arange(30), None)) > 1e-4


@pytest.mark.parametrize("node_groups", [np.arange(29), np.arange(30.0)])
def test_node_groups_are_checked(node_groups):
    model = mixvi.LinearPredictor(X, of_class(Y3), 1.0, node_groups=node_groups)
    with pytest.raises(mixvi.InputError, match=r"node_groups has shape .* of shape \(30,\)"):
        mixvi.fit(model, np.zeros((3, 3)), family="mu")
