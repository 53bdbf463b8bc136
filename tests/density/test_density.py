"""The questions that a density answers, against differences and automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._density._counted import Counted
from mixvi._density._jax import JaxDensity
from mixvi._density._memory import factorises
from mixvi._density._protocol import Density, Points
from mixvi._density._quadrature import PredictorDensity
from targets import DOUBLE, counts, density_of, logistic, logistic_data, points

DIM = 6
RNG = np.random.default_rng(7)
X = RNG.standard_normal((20, DIM))
Y = RNG.integers(0, 3, 20)
MEAN = 0.3 * RNG.standard_normal(DIM)
ROOTS = {
    "dense": 0.5 * np.eye(DIM) + 0.2 * RNG.standard_normal((DIM, DIM)),
    "diagonal": np.linspace(0.3, 0.9, DIM),
}
PRIOR = np.linspace(0.5, 2.0, DIM)


def log_likelihood(eta):
    return -jnp.log1p((eta - 0.5 * jnp.asarray(Y)) ** 2)


def of_class(eta):
    chosen = jnp.take_along_axis(eta, jnp.asarray(Y)[:, None], axis=1)[:, 0]
    return chosen - jax.scipy.special.logsumexp(eta, axis=1)


ONE = mixvi.LinearPredictor(X, log_likelihood, PRIOR)
SEVERAL = mixvi.LinearPredictor(X[:, :2], of_class, PRIOR[:2])


class ByGradients(Density):
    """Everything but the gradients is the protocol's own answer."""

    def __init__(self, inner: Density):
        self.inner, self.dim = inner, inner.dim

    def gradients(self, points):
        return self.inner.gradients(points)


def nodes(n, n_predictors=1):
    return mixvi.Quadrature(n).make(DOUBLE, n_predictors)


# A density and a rule over which it averages.
EXPECTED = {
    "a JAX function": lambda: (density_of(counts, DIM), points(64, DIM)),
    "a JAX function, single draws": lambda: (
        density_of(counts, DIM),
        points(50, DIM, draws=mixvi.IID),
    ),
    "by gradients alone": lambda: (ByGradients(density_of(counts, DIM)), points(64, DIM)),
    "one predictor by nodes": lambda: (density_of(ONE, DIM), nodes(48)),
    "one predictor by draws": lambda: (density_of(ONE, DIM), points(64, DIM)),
    "several predictors by nodes": lambda: (density_of(SEVERAL, (3, 2)), nodes(32, 3)),
    "several predictors by draws": lambda: (density_of(SEVERAL, (3, 2)), points(64, DIM)),
}


def central(function, at, h=1e-5):
    """The gradient of a function of an array, of fourth order."""
    found = np.empty(at.size)
    for i, unit in enumerate(h * np.eye(at.size)):
        e = unit.reshape(at.shape)
        once, twice = (function(at + k * e) - function(at - k * e) for k in (1, 2))
        found[i] = (8 * once - twice) / (12 * h)
    return found.reshape(at.shape)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("shape", ROOTS)
def test_expectations_against_differences(name, shape):
    """`E g` is the slope in the mean, `E g z^T` that in the root: of the very same discrete sum."""
    (density, rule), root = EXPECTED[name](), ROOTS[shape]
    found = density.expect(MEAN, root, rule)
    assert found.cross.shape == root.shape
    by_mean = central(lambda mean: density.expect(mean, root, rule).value, MEAN, 1e-3)
    by_root = central(lambda root: density.expect(MEAN, root, rule).value, root, 1e-3)
    np.testing.assert_allclose(found.gradient, by_mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.cross, by_root, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", ROOTS)
@pytest.mark.parametrize("name", ["a JAX function", "by gradients alone"])
def test_expectations_against_automatic_differentiation(name, shape):
    (density, rule), root = EXPECTED[name](), ROOTS[shape]

    def expected(mean, root):
        at = mean + (rule.z * root if root.ndim == 1 else rule.z @ root.T)
        return jax.vmap(counts)(at).mean()

    with jax.enable_x64(True):
        both = jax.value_and_grad(expected, (0, 1))
        value, (of_mean, of_root) = both(jnp.asarray(MEAN), jnp.asarray(root))
    found = density.expect(MEAN, root, rule)
    assert found.value == pytest.approx(float(value), rel=1e-12)
    np.testing.assert_allclose(found.gradient, of_mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.cross, of_root, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", ROOTS)
def test_quadrature_against_very_many_draws(shape):
    root = 0.5 * ROOTS[shape]
    for model, dim, k in ((ONE, DIM, 1), (SEVERAL, (3, 2), 3)):
        density = density_of(model, dim)
        exact = density.expect(MEAN, root, nodes(2**9, k))
        drawn = density.expect(MEAN, root, points(2**15, DIM))
        assert exact.value == pytest.approx(drawn.value, abs=0.02)
        np.testing.assert_allclose(exact.gradient, drawn.gradient, atol=0.05)
        np.testing.assert_allclose(exact.cross, drawn.cross, atol=0.1)


def test_a_rule_of_nodes_needs_a_predictor():
    with pytest.raises(NotImplementedError, match="linear predictor"):
        density_of(counts, DIM).expect(MEAN, ROOTS["dense"], nodes(32))


# --- in bounded memory ------------------------------------------------------------------------


def test_hessian_in_chunks_is_the_hessian():
    data = logistic_data(50, 9)
    w = np.linspace(-1, 1, 9)
    with jax.enable_x64(True):
        exact = jax.hessian(lambda u: logistic(u, data))(jnp.asarray(w))
    for memory in (1, 10_000, 2**30):
        value, gradient, hessian = density_of(logistic, 9, data, memory).curvature(w)
        np.testing.assert_allclose(hessian, exact, rtol=1e-12)
        np.testing.assert_array_equal(hessian, hessian.T)
        alone = density_of(logistic, 9, data).gradients(w[None])
        np.testing.assert_allclose(value, alone[0][0], rtol=1e-13)
        np.testing.assert_allclose(gradient, alone[1][0], rtol=1e-12)


@pytest.mark.parametrize("memory", [1, 50_000, 2**30])
@pytest.mark.parametrize("n", [1, 7, 256, 300])
def test_answers_do_not_depend_on_how_points_are_cut(n, memory):
    data = logistic_data(50, 5)
    density = density_of(logistic, 5, data, memory)
    at = np.random.default_rng(0).standard_normal((n, 5))
    x, sign = data
    margin = sign * (at @ x.T)
    values = -np.logaddexp(0, -margin).sum(1) - 0.5 * (at**2).sum(1)
    gradients = (sign / (1 + np.exp(margin))) @ x - at
    np.testing.assert_allclose(density.values(at), values, rtol=1e-12)
    found = density.gradients(at)
    np.testing.assert_allclose(found[0], values, rtol=1e-12)
    np.testing.assert_allclose(found[1], gradients, rtol=1e-11, atol=1e-12)


def test_one_call_stays_within_the_memory_given():
    data = logistic_data(1000, 5)
    for memory in (2**20, 2**24):
        density = density_of(logistic, 5, data, memory).inner
        assert isinstance(density, JaxDensity)
        assert 1 <= density.values_at_once * density.trace.bytes <= memory
        assert density.chunk * 3 * density.trace.bytes <= memory
    assert density_of(logistic, 5, data, 1).inner.chunk == 1


@pytest.mark.parametrize("shape", ROOTS)
@pytest.mark.parametrize(("model", "dim", "k"), [(ONE, DIM, 1), (SEVERAL, (3, 2), 3)])
def test_nodes_in_parts_are_all_of_them(model, dim, k, shape):
    whole, parts = (density_of(model, dim, memory=memory) for memory in (2**30, 10_000))
    rule, root = nodes(300, k), ROOTS[shape]
    for a, b in zip(*(one.expect(MEAN, root, rule) for one in (whole, parts)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    assert isinstance(whole.inner, PredictorDensity)
    rows = whole.inner.expected_by_row(MEAN, root, rule)
    np.testing.assert_allclose(rows, parts.inner.expected_by_row(MEAN, root, rule), rtol=1e-10)
    prior = whole.expect(MEAN, root, rule).value - rows.sum()
    dense = np.diag(root) if root.ndim == 1 else root
    precision = PRIOR if k == 1 else np.tile(PRIOR[:2], 3)
    square = MEAN**2 + (dense**2).sum(1)
    exact = 0.5 * (np.log(precision / (2 * np.pi)) - precision * square).sum()
    assert prior == pytest.approx(exact, rel=1e-10)


# --- what is made of gradients ----------------------------------------------------------------


def test_second_derivatives_by_differences():
    exact = density_of(counts, DIM)
    ours, vector = ByGradients(exact), np.linspace(-1, 2, DIM)
    for a, b in zip(ours.curvature(MEAN), exact.curvature(MEAN), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)
    for a, b in zip(ours.product(MEAN, vector), exact.product(MEAN, vector), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(exact.product(MEAN, vector)[2], exact.curvature(MEAN)[2] @ vector)
    assert not ours.product(MEAN, np.zeros(DIM))[2].any()
    np.testing.assert_array_equal(ours.values(MEAN[None]), exact.gradients(MEAN[None])[0])


# --- what is asked is counted -----------------------------------------------------------------


def test_the_same_pass_is_made_once():
    for name in ("a JAX function", "one predictor by nodes"):
        density, rule = EXPECTED[name]()
        assert isinstance(density, Counted)
        n = len(rule.z)
        first = density.expect(MEAN, ROOTS["dense"], rule)
        again = density.expect(MEAN.copy(), ROOTS["dense"].copy(), rule)
        np.testing.assert_array_equal(first.cross, again.cross)
        assert (density.n_passes, density.n_gradients) == (1, n)
        other = density.expect(MEAN + 1, ROOTS["dense"], rule)
        assert other.value != first.value
        assert (density.n_passes, density.n_gradients) == (2, 2 * n)


def test_other_draws_are_another_pass():
    density, rule = EXPECTED["a JAX function"]()
    values = [
        density.expect(MEAN, ROOTS["dense"], one).value
        for one in (rule, points(64, DIM, key=1), Points(rule.z[:32], False))
    ]
    assert len(set(values)) == density.n_passes == 3


# --- rows of matrix factorisations ------------------------------------------------------------


def process(w):
    """A log density with two triangular solves, a batch of which could hang two cores."""
    kernel = jnp.exp(w[0] - 0.5 * (jnp.arange(3.0)[:, None] - jnp.arange(3.0)) ** 2) + jnp.eye(3)
    root = jnp.linalg.cholesky(kernel)
    return -0.5 * (jax.scipy.linalg.solve_triangular(root, w[1:], lower=True) ** 2).sum()


def test_factorisations_are_seen_wherever_they_stand():
    def inside(w):
        return jax.lax.scan(lambda total, _: (total + jax.jit(process)(w), None), 0.0, length=2)[0]

    at = jnp.zeros(4)
    assert factorises(jax.make_jaxpr(process)(at).jaxpr)
    assert factorises(jax.make_jaxpr(jax.grad(inside))(at).jaxpr)
    assert not factorises(jax.make_jaxpr(lambda w: (w @ w) * jnp.exp(w).sum())(at).jaxpr)
    assert density_of(process, 4).inner.trace.one_by_one
    assert density_of(lambda w: process(w) + w @ w, 4).inner.trace.one_by_one
    assert not density_of(counts, 4).inner.trace.one_by_one


def test_each_row_is_as_by_vmap():
    with jax.enable_x64(True):
        rows = jnp.asarray(RNG.standard_normal((7, 4)))
        both = jax.vmap(jax.value_and_grad(process))(rows)
        hessian = jax.hessian(process)(rows[0])
    density = density_of(process, 4)
    for ours, theirs in zip(density.gradients(np.asarray(rows)), both, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(density.curvature(np.asarray(rows[0]))[2], hessian, atol=1e-10)
