"""Curvature: exact, in bounded memory, judged without units, repaired only by name."""

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi import Density
from mixvi._approximate._laplace import covariance_root, eigen_root
from targets import logistic, logistic_data


def test_root_is_that_of_the_covariance_with_orthogonal_columns():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((12, 6))
    precision = a.T @ a
    root, log_det, n_repaired = covariance_root(precision, "raise")
    matrix = eigen_root(root)
    assert n_repaired == 0
    for one in (root, matrix):
        np.testing.assert_allclose(one @ one.T, np.linalg.inv(precision), rtol=1e-9)
    gram = matrix.T @ matrix
    # Orthogonal but for the breath of difference that sets an order among equal eigenvalues.
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=2e-8 * gram.max())
    assert (np.diff(np.diag(gram)) > 0).all()
    assert log_det == pytest.approx(-0.5 * np.linalg.slogdet(precision)[1])
    assert np.linalg.slogdet(matrix)[1] == pytest.approx(log_det)


def test_axes_of_equal_width_do_not_hang_on_rounding():
    """Any rotation of a root is one; families adapt the same columns whichever it was."""
    rng = np.random.default_rng(1)
    widths = np.array([1.0, 1.0, 1.0, 2.0])
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    first, second = (eigen_root(np.diag(widths) @ one) for one in (np.eye(4), turn))
    np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_definiteness_has_no_units(scale):
    units = np.diag(np.geomspace(1, scale, 3))
    good = units @ (np.eye(3) + 0.5) @ units
    bad = units @ (np.eye(3) - 0.4) @ units
    assert np.isfinite(covariance_root(good, "raise")[1])
    root, log_det, _ = covariance_root(bad, "raise")
    assert np.isnan(root).all()
    assert np.isnan(log_det)


def indefinite(w):
    """Stationary at 0 with curvatures -1 and +1/2, whichever way one goes the density is odd."""
    return -0.5 * w["a"] ** 2 + 0.25 * w["b"] ** 2


def flat(w):
    return -0.5 * (w["a"] + w["b"] - 1) ** 2


def test_indefinite_hessian_names_eigenvalue_and_parameters():
    with pytest.raises(
        mixvi.IndefiniteHessianError, match=r"eigenvalue .*carried by .*a .*b"
    ) as info:
        mixvi.laplace(flat, {"a": 0.0, "b": 0.0})
    assert "on_indefinite" in str(info.value)


@pytest.mark.parametrize(("policy", "n"), [("absolute", 1), ("damp", 2)])
def test_named_repairs_are_reported(policy, n):
    post = mixvi.laplace(flat, {"a": 0.0, "b": 0.0}, on_indefinite=policy)
    assert post.curvature.n_repaired == n
    assert "repaired" in post.status
    assert "repaired" in post.summary()
    # The direction that the density does fix keeps its variance up to what damping added.
    across = np.array([1.0, 1.0]) / np.sqrt(2)
    assert across @ post.cov @ across == pytest.approx(0.5, rel=2e-3)


def test_unbounded_density_has_no_mode():
    with pytest.raises(mixvi.NoModeError, match="b went from"):
        mixvi.laplace(indefinite, {"a": 1.0, "b": 1.0})


def test_throw_false_returns_the_status():
    post = mixvi.laplace(flat, {"a": 0.0, "b": 0.0}, throw=False)
    assert not post.converged
    assert "eigenvalue" in post.status
    assert np.isnan(post.flat_mean).all()
    assert post.verdict.startswith("No Gaussian")
    assert "No Gaussian" in post.summary()


def test_curvature_report_of_a_known_hessian():
    def log_density(w):
        return -0.5 * (4.0 * w[0] ** 2 + 2 * 1.0 * w[0] * w[1] + 1.0 * w[1] ** 2)

    report = mixvi.laplace(log_density, np.array([0.3, -2.0])).curvature
    precision = np.array([[4.0, 1.0], [1.0, 1.0]])
    assert report.min_eig == pytest.approx(np.linalg.eigvalsh(precision)[0])
    assert report.condition == pytest.approx(1.5 / 0.5)  # unit diagonal, correlation 1/2
    assert report.gradient_norm < 1e-9
    assert report.n_repaired == 0


def test_evidence_of_laplace():
    """log of a Gamma(3) integral: Laplace in w = log x has mode log 3 and curvature 3."""
    post = mixvi.laplace(lambda w: 3.0 * w - jnp.exp(w), 0.0)
    assert float(post.mean) == pytest.approx(np.log(3), abs=1e-9)
    assert float(post.std) == pytest.approx(3**-0.5, abs=1e-9)
    expected = 3 * np.log(3) - 3 + 0.5 * np.log(2 * np.pi / 3)
    assert post.log_evidence == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("start", [-40.0, -5.0, 8.0, 25.0])
def test_mode_from_far_starts(start):
    post = mixvi.laplace(lambda w: 3.0 * w - jnp.exp(w), start, diagnostics=False)
    assert float(post.mean) == pytest.approx(np.log(3), abs=1e-9)


def test_mode_in_many_dimensions_goes_by_conjugate_gradients():
    dim = 400
    x, sign = logistic_data(200, dim, seed=4)
    post = mixvi.laplace(logistic, np.zeros(dim), data=(x, sign), diagnostics=False)
    gradient = -post.flat_mean + x.T @ (sign / (1 + np.exp(sign * (x @ post.flat_mean))))
    assert np.abs(gradient).max() < 1e-7
    # One Hessian at the mode and, where that is not quite it, one more.
    n_hessians = (post.stats.gradients - (post.stats.products or 0)) // dim
    assert n_hessians <= 3


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_a_start_at_the_mode_of_many_dimensions(start):
    """Its gradient is nothing at all, and so is the log density."""
    dim = Density.dense_newton + 1
    post = mixvi.laplace(lambda w: -0.5 * w @ w, np.full(dim, start), diagnostics=False)
    np.testing.assert_allclose(post.flat_mean, 0, atol=1e-12)
    np.testing.assert_allclose(post.std, 1, atol=1e-12)
