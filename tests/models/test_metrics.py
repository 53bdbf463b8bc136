"""Metrics against by-hand numbers, scikit-learn, and themselves in smaller blocks."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as reference

import mixvi
from mixvi import metrics

rng = np.random.default_rng(0)


def log_likelihood(w, data):
    return -0.5 * (data["y"] - data["x"] @ w["b"]) ** 2


@pytest.mark.parametrize("memory", [2**27, 3_000])
def test_log_predictive_density_in_any_blocks(memory):
    draws = {"b": rng.standard_normal((53, 2))}
    data = {"x": rng.standard_normal((31, 2)), "y": rng.standard_normal(31)}
    values = -0.5 * (data["y"] - draws["b"] @ data["x"].T) ** 2
    found = metrics.log_predictive_density(log_likelihood, draws, data, memory=memory)
    joint = np.logaddexp.reduce(values.sum(1)) - np.log(53)
    assert found.joint == pytest.approx(joint, rel=1e-12)
    np.testing.assert_allclose(
        found.pointwise, np.logaddexp.reduce(values, 0) - np.log(53), rtol=1e-12
    )


def test_conjugate_predictive():
    """w ~ N(0, 1), y_n ~ N(w, 1): jointly normal with covariance I + 1 1^T."""
    y = np.array([0.3, -0.5, 1.0])
    draws = rng.standard_normal(400_000)
    found = metrics.log_predictive_density(
        lambda w, y: -0.5 * (y - w) ** 2 - 0.5 * jnp.log(2 * jnp.pi), draws, y
    )
    cov = np.eye(3) + 1
    exact = -0.5 * y @ np.linalg.solve(cov, y) - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    assert found.joint == pytest.approx(exact, abs=0.01)
    np.testing.assert_allclose(found.pointwise, -0.25 * y**2 - 0.5 * np.log(4 * np.pi), atol=0.01)


def test_errors_and_brier():
    y, p = np.array([0, 1, 1, 0]), np.array([0.2, 0.9, 0.4, 0.6])
    assert metrics.error_rate(y, p > 0.5) == 0.5
    assert metrics.brier_score(y, p) == pytest.approx(2 * reference.brier_score_loss(y, p))
    assert metrics.mean_squared_error(y, p) == pytest.approx(((y - p) ** 2).mean())


def test_calibration_by_hand():
    y = np.array([1, 0, 1, 1, 0])
    p = np.array([0.9, 0.8, 0.95, 0.3, 0.1])
    curve = metrics.reliability_curve(y, p, n_bins=2)
    np.testing.assert_allclose(curve.predicted, [0.2, np.mean([0.9, 0.8, 0.95])])
    np.testing.assert_allclose(curve.observed, [0.5, 2 / 3])
    assert curve.count.tolist() == [2, 3]
    # Confidences 0.9 (right), 0.8 (wrong), 0.95 (right), 0.7 (wrong), 0.9 (right): one bin.
    ece = metrics.expected_calibration_error(y, p, n_bins=1)
    assert ece == pytest.approx(abs(np.mean([0.9, 0.8, 0.95, 0.7, 0.9]) - 0.6))
    draws = rng.uniform(size=50_000)
    honest = metrics.expected_calibration_error(
        (rng.uniform(size=50_000) < draws).astype(int), draws
    )
    assert honest < 0.02
    three = metrics.reliability_curve(
        np.array([0, 2]), np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
    )
    assert three.observed.tolist() == [0.0, 1.0]


def test_a_global_that_changed_is_noticed():
    globals()["SCALE"] = 1.0

    def scaled(w, y):
        return -0.5 * ((y - w) / SCALE) ** 2  # noqa: F821

    first = metrics.log_predictive_density(scaled, np.zeros(3), np.ones(1)).joint
    globals()["SCALE"] = 0.1
    second = metrics.log_predictive_density(scaled, np.zeros(3), np.ones(1)).joint
    assert (first, second) == (pytest.approx(-0.5), pytest.approx(-50.0))


def test_columns_are_vectors():
    assert metrics.error_rate([0, 1, 1], [[0], [1], [1]]) == 0
    assert metrics.brier_score([[1], [0]], [0.9, 0.1]) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: metrics.brier_score([0, 2], [0.1, 0.5]), "classes 0 to 2"),
        (lambda: metrics.brier_score([0, 1], [[0.1, 0.5], [0.5, 0.5]]), "sum to one"),
        (lambda: metrics.brier_score([0.5, 1], [0.1, 0.5]), "class indices"),
        (lambda: metrics.brier_score(["a", "b"], [0.1, 0.5]), "class indices"),
        (lambda: metrics.brier_score([0, 1], [[1.5, -0.5], [0.5, 0.5]]), "not negative"),
        (lambda: metrics.error_rate([0, 1], [0]), "2 targets but 1"),
        (lambda: metrics.error_rate([0, 1], np.zeros((2, 2))), "one value for each"),
        (
            lambda: metrics.log_predictive_density(
                lambda w, y: (w * y).sum(), np.ones(2), np.ones(3)
            ),
            "not their sum",
        ),
        (lambda: metrics.log_predictive_density(log_likelihood, {"b": 1.0}, {"y": [1.0]}), "first"),
    ],
)
def test_bad_arguments(call, says):
    with pytest.raises(mixvi.InputError, match=says):
        call()
