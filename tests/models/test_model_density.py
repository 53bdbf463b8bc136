"""A model as a density: every answer against central differences, for every basis and likelihood;
expectations against adaptive integration and against many draws."""

import numpy as np
import pytest
from scipy import integrate, stats
from threadpoolctl import threadpool_limits

from mixvi import models
from mixvi._arrays._draws import Quadrature
from mixvi._density._protocol import Points
from mixvi.models import _density
from model_cases import BASES, LIKELIHOODS, density_of, differences, table

FLOAT64 = np.dtype(np.float64)
# Of the kernels, which are slower, not every likelihood.
WITH_KERNELS = ("bernoulli", "student_t, df learnt", "softmax")
ALL = [
    (basis, likelihood)
    for basis in BASES
    for likelihood in (WITH_KERNELS if basis.startswith("gp") else LIKELIHOODS)
]
ALL += [("linear, own constant", "poisson"), ("rbf, own constant", "bernoulli")]
ALL += [("rbf, own constant", "softmax"), ("linear, own constant", "student_t")]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Matrices are tiny here; threads would wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture(params=ALL, ids=[" ".join(both) for both in ALL])
def density(request):
    return density_of(*request.param)


def weights(density, n=1):
    return 0.3 * np.random.default_rng(3).standard_normal((n, density.dim))


def dense_root(density):
    rng = np.random.default_rng(4)
    return 0.4 * np.eye(density.dim) + 0.03 * rng.standard_normal((density.dim, density.dim))


def close(found, expected, tol=1e-6):
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)


def test_the_log_density_is_what_it_says(density):
    """From the design, the likelihood and the prior, by hand."""
    w = weights(density)[0]
    design = density.basis.design(density.rows, density.shared, density.hyper)
    alpha = np.exp(density.hyper.get("log_alpha", 0.0))
    eta = (design @ w.reshape(density.n_predictors, -1).T).squeeze() + density.offset
    rows = density.likelihood.log_prob(density.y, eta, density.hyper)
    precision = np.full((density.n_predictors, density.n_weights), alpha)
    precision[:, -1] = density.precision.constant or alpha
    prior = stats.norm(0, precision.ravel() ** -0.5).logpdf(w).sum()
    weak = density.basis.log_prior(density.hyper, density.shared)
    weak += density.likelihood.log_prior(density.hyper)
    if "log_alpha" in density.hyper:
        weak += stats.norm(0, 3).logpdf(density.hyper["log_alpha"])
    close(density.values(w[None])[0], density.weight @ rows + prior + weak, 1e-12)


def test_in_the_weights(density):
    w = weights(density)[0]

    def value(w):
        return density.values(w[None])[0]

    def gradient(w):
        return density.gradients(w[None])[1][0]

    found, slope, hessian = density.curvature(w)
    assert found == pytest.approx(value(w), rel=1e-12)
    close(slope, gradient(w), 1e-11)
    close(slope, differences(value, w))
    close(hessian, differences(gradient, w))
    vector = np.random.default_rng(5).standard_normal(density.dim)
    again = density.product(w, vector)
    assert again[0] == pytest.approx(found, rel=1e-12)
    close(again[1], slope, 1e-11)
    close(again[2], hessian @ vector, 1e-10)
    many = weights(density, 3)
    values, gradients = density.gradients(many)
    close(values, density.values(many), 1e-12)
    close(gradients[2], gradient(many[2]), 1e-11)


def test_in_the_hyperparameters(density):
    points = weights(density, 3)
    values, gradients, slope = density.joint_gradients(points)
    close(values, density.values(points), 1e-12)
    close(gradients, density.gradients(points)[1], 1e-12)
    close(slope, differences(lambda theta: density.at(theta).values(points).mean(), density.theta))


def test_what_the_gradient_of_the_evidence_is_made_of(density):
    w, root, theta = weights(density)[0], dense_root(density), density.theta
    slopes = density.evidence_slopes(w, root)

    def bent(theta, w):
        value, _, hessian = density.at(theta).curvature(w)
        return value, 0.5 * np.trace(root.T @ hessian @ root)

    close(slopes.direct + slopes.in_theta, differences(lambda t: sum(bent(t, w)), theta))
    close(slopes.in_w, differences(lambda w: bent(theta, w)[1], w), 3e-6)
    mixed = differences(lambda t: density.at(t).gradients(w[None])[1][0], theta)
    close(slopes.mixed, mixed.T)


@pytest.mark.parametrize("kind", ["dense", "diagonal"])
def test_under_a_gaussian(density, kind):
    mean, root, theta = weights(density)[0], dense_root(density), density.theta
    root = root if kind == "dense" else np.abs(root.diagonal())
    several = density.n_predictors > 1
    rule = Quadrature(24).make(FLOAT64, density.n_predictors)
    found = density.expect(mean, root, rule)

    def value(density, mean, root):
        return density.expect(mean, root, rule).value

    close(found.gradient, differences(lambda m: value(density, m, root), mean))
    some = np.random.default_rng(6).permutation(root.size)[:12]  # entries of the root

    def at_entries(entries):
        moved = root.copy()
        moved.flat[some] = entries
        return value(density, mean, moved)

    # Of a row's several predictors the rule goes along a triangular root, whatever that of the
    # weights is: the derivative is exact for both.
    close(found.cross.flat[some], differences(at_entries, root.flat[some]))
    close(found.hyper, differences(lambda t: value(density.at(t), mean, root), theta))
    by_row = density.expected_by_row(mean, root, rule)
    prior = density._expected_prior(mean, root)[0]
    assert density.weight @ by_row + prior == pytest.approx(found.value, rel=1e-12)
    m, v = density.predictors(mean, root)
    design = density.basis.design(density.rows, density.shared, density.hyper)
    if not several:
        close(m, design @ mean + density.offset, 1e-12)
        covariance = root @ root.T if kind == "dense" else np.diag(root**2)
        close(v, np.diagonal(design @ covariance @ design.T), 1e-11)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_rows_against_adaptive_integration_or_many_draws(likelihood):
    density = density_of("rbf", likelihood)
    mean, root = weights(density)[0], dense_root(density)
    m, v = density.predictors(mean, root)
    rows = (0, 5, 9)
    if density.n_predictors == 1:
        found = density.expected_by_row(mean, root, Quadrature(64).make(FLOAT64))
        for n in rows:
            law = stats.norm(m[n], np.sqrt(v[n]))

            def integrand(eta, n=n, law=law):
                value = density.likelihood.log_prob(density.y[n], np.float64(eta), density.hyper)
                return value * law.pdf(eta)

            ends = m[n] + 10 * np.sqrt(v[n]) * np.array([-1, 1])
            exact = integrate.quad(integrand, *ends, epsabs=1e-10, limit=200)[0]
            assert found[n] == pytest.approx(exact, abs=1e-6)
        return
    found = density.expected_by_row(mean, root, Quadrature(512).make(FLOAT64, 4))
    z = np.random.default_rng(0).standard_normal((200_000, 4))
    for n in rows:
        eta = m[n] + z @ np.linalg.cholesky(v[n]).T
        y = np.full(len(z), density.y[n])
        values = density.likelihood.log_prob(y, eta, {})
        assert found[n] == pytest.approx(values.mean(), abs=4 * values.std() / np.sqrt(len(z)))


@pytest.mark.parametrize("likelihood", ["student_t", "softmax"])
def test_draws_and_nodes_agree(likelihood):
    """Draws go by `gradients`, nodes by quadrature."""
    density = density_of("rbf", likelihood)
    mean, root = weights(density)[0], dense_root(density)
    half = np.random.default_rng(0).standard_normal((20_000, density.dim))
    draws = density.expect(mean, root, Points(np.concatenate([half, -half]), paired=True))
    rule = Quadrature(256).make(FLOAT64, density.n_predictors)
    nodes = density.expect(mean, root, rule)
    assert draws.value == pytest.approx(nodes.value, abs=0.1)
    np.testing.assert_allclose(draws.gradient, nodes.gradient, atol=0.1)
    np.testing.assert_allclose(draws.cross, nodes.cross, atol=0.3)
    np.testing.assert_allclose(draws.hyper, nodes.hyper, atol=0.2)


# --- blocks -----------------------------------------------------------------------------------


def answers(density):
    w, root = weights(density, 3), dense_root(density)
    rule = Quadrature(16).make(FLOAT64, density.n_predictors)
    yield from density.joint_gradients(w)
    yield density.values(w)
    yield from density.curvature(w[0])
    yield from density.product(w[0], w[1])
    yield from density.evidence_slopes(w[0], root)
    yield from density.expect(w[0], root, rule)
    yield from density.expect(w[0], np.abs(root.diagonal()), rule)
    yield density.expected_by_row(w[0], root, rule)
    yield from density.predictors(w[0], root)


@pytest.mark.parametrize("basis", ["linear", "rbf", "rbf per feature"])
@pytest.mark.parametrize("likelihood", ["bernoulli", "student_t, df learnt", "softmax"])
def test_small_blocks_change_nothing(basis, likelihood, monkeypatch):
    whole = list(answers(density_of(basis, likelihood)))
    monkeypatch.setattr(_density, "KEPT", 0)
    monkeypatch.setattr(_density.ModelDensity, "_rows_at_once", 3)
    monkeypatch.setattr(models._several.SeveralPredictors, "_rows_at_once", 3)
    monkeypatch.setattr(_density, "IN_CACHE", 4)
    monkeypatch.setattr(_density, "LEAST_POINTS", 1)
    density = density_of(basis, likelihood)
    sizes = [len(block.y) for block in density.blocks()]
    assert sizes == [3, 3, 3, 2]
    assert density._designs is None
    for one, other in zip(whole, answers(density), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-10)


def test_the_number_of_rows_at_once(monkeypatch):
    density = density_of("rbf", "bernoulli")
    assert density._rows_at_once == _density.BLOCK // 5
    monkeypatch.setattr(_density, "BLOCK", 1)
    assert density._rows_at_once == 64
    softmax = models.Model(models.Linear(), models.Softmax(4)).density(
        table(100), np.arange(100.0) % 4
    )
    assert softmax._rows_at_once == 64
    # A kernel's columns are made of all rows.
    assert density_of("gp matern52", "bernoulli")._rows_at_once == 11
