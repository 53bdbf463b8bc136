"""What a fitted estimator tells: coefficients, draws, a summary; kernels; no compiler."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression

import mixvi
from mixvi.estimators import MVIClassifier, MVIRegressor

rng = np.random.default_rng(0)
UNITS, CENTRES = np.array([1.0, 10.0, 0.1, 3.0]), np.array([5.0, 0.0, 2.0, -1.0])
X = CENTRES + UNITS * rng.standard_normal((300, 4))
SLOPES = np.array([1.0, -0.2, 30.0, 0.0])
Y = 100 + X @ SLOPES + 2 * rng.standard_normal(300)
LABELS = (np.median(X @ SLOPES) + 2 * rng.logistic(size=300) < X @ SLOPES).astype(int)


# --- coefficients -----------------------------------------------------------------------------


def test_coefficients_are_in_the_units_of_the_table():
    model = MVIRegressor(noise="gaussian", basis="linear").fit(X, Y)
    ridge = BayesianRidge().fit((X - CENTRES) / UNITS, Y)
    np.testing.assert_allclose(model.coef_, ridge.coef_ / UNITS, rtol=0.02, atol=0.002)
    sd = np.sqrt(ridge.sigma_.diagonal()) / UNITS
    np.testing.assert_allclose(model.coef_sd_, sd, rtol=0.03)
    assert model.intercept_ == pytest.approx(
        ridge.intercept_ - ridge.coef_ / UNITS @ CENTRES, abs=0.3
    )
    # Predictions are what they say: the mean at the origin of the table is the intercept.
    mean, spread = model.predict(np.zeros((1, 4)), return_std=True)
    assert mean[0] == pytest.approx(model.intercept_)
    assert spread[0] == pytest.approx(model.intercept_sd_)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)


@pytest.mark.parametrize("family", ["auto", "diag"])
def test_coefficients_of_two_classes(family):
    model = MVIClassifier(family, basis="linear").fit(X, LABELS)
    scaled = (X - X.mean(0)) / X.std(0)
    # The penalty that is the prior, but for the constant's.
    penalty = 1 / np.exp(float(model.hyper_["log_alpha"]))
    logistic = LogisticRegression(C=penalty, tol=1e-10).fit(scaled, LABELS)
    sd = model.coef_sd_
    # Means lie a little further out than the mode.
    assert np.abs((model.coef_ - logistic.coef_[0] / X.std(0)) / sd).max() < 0.3
    np.testing.assert_allclose(model.predictor(X)[0], X @ model.coef_ + model.intercept_, atol=1e-9)


def test_coefficients_of_several_classes_and_of_no_linear_basis():
    labels = np.digitize(X[:, 0], [4.5, 5.5])
    model = MVIClassifier(basis="linear", diagnostics=False).fit(X, labels)
    assert model.coef_.shape == model.coef_sd_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    scores = X @ model.coef_.T + model.intercept_
    assert (scores.argmax(1) == model.predict(X)).mean() > 0.97
    assert not hasattr(MVIClassifier(n_basis=5, diagnostics=False).fit(X, LABELS), "coef_")


# --- words ------------------------------------------------------------------------------------


def test_the_summary_shows_rows_left_out_and_coefficients():
    frame = pd.DataFrame(X, columns=["age", "dose", "ratio", "idle"])
    model = MVIRegressor(noise="gaussian", basis="linear").fit(frame, Y)
    lines = model.summary().splitlines()
    assert lines[0] == "gaussian on 4 linear basis functions and a constant"
    assert lines[1].startswith("prediction    rows left out: ")
    each = model.loo_ / 300
    assert f"{each:.3f} ± {model.loo_se_ / 300:.3f} nats each, R^2 0." in lines[1]
    named = {line.split()[0]: line.split()[1:] for line in lines[2:10] if len(line.split()) == 3}
    assert {"age", "dose", "ratio", "idle", "intercept"} <= set(named)
    assert float(named["ratio"][0]) == pytest.approx(model.coef_[2], rel=1e-3)
    # In the units of y: the density of a least-squares fit without each row.
    design = np.c_[X, np.ones(300)]
    hat = (design * np.linalg.pinv(design).T).sum(1)
    away = (Y - design @ np.linalg.lstsq(design, Y)[0]) / (1 - hat)
    sd = np.sqrt((away**2).mean())
    exact = -0.5 * (away / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))
    assert each == pytest.approx(exact.mean(), abs=0.01)


def test_the_accuracy_is_that_of_rows_left_out():
    # Labels of pure chance: what is fitted to them does not predict.
    x = np.random.default_rng(3).standard_normal((60, 2))
    y = np.arange(60) % 2
    model = MVIClassifier("eig", n_basis=20, diagnostics=False).fit(x, y)
    line = model.summary().splitlines()[1]
    accuracy = float(line.split("accuracy ")[1])
    assert accuracy == pytest.approx((model._loo.predicted == y).mean(), abs=1e-3)
    assert accuracy < 0.65
    assert model.loo_ < 60 * np.log(0.5) + 1


def test_many_coefficients_are_not_all_shown():
    x = np.random.default_rng(0).standard_normal((80, 30))
    model = MVIRegressor(noise="gaussian", basis="linear", diagnostics=False).fit(x, 3 * x[:, 7])
    text = model.summary()
    assert "the 20 of 30 that are furthest from zero" in text
    assert "\nx7 " in text


# --- draws ------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "student_t", "cauchy"])
def test_draws_have_the_predicted_quantiles(noise):
    model = MVIRegressor(noise=noise, n_basis=8, diagnostics=False).fit(X[:80, :1], Y[:80])
    rows, levels = X[:4, :1], (0.1, 0.5, 0.8)
    draws = model.sample_y(rows, 20_000)
    assert draws.shape == (4, 20_000)
    expected = model.predict_quantiles(rows, levels)
    shares = (draws[:, :, None] <= expected[:, None, :]).mean(1)
    np.testing.assert_allclose(shares, np.broadcast_to(levels, (4, 3)), atol=0.015)
    np.testing.assert_array_equal(draws, model.sample_y(rows, 20_000))
    assert (model.sample_y(rows, 3, random_state=1) != draws[:, :3]).all()


def test_draws_of_labels_and_counts():
    noisy = X[:, 0] + np.random.default_rng(1).standard_normal(300)
    labels = np.array(["low", "mid", "top"])[np.digitize(noisy, [4.5, 5.5])]
    model = MVIClassifier(n_basis=8, diagnostics=False).fit(X[:, :1], labels)
    draws = model.sample_y(X[:5, :1], 20_000)
    shares = np.stack([(draws == label).mean(1) for label in model.classes_], 1)
    np.testing.assert_allclose(shares, model.predict_proba(X[:5, :1]), atol=0.015)
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, 0]))
    model = MVIRegressor(noise="poisson", n_basis=8, diagnostics=False).fit(X[:, :1], counts)
    draws = model.sample_y(X[:5, :1], 20_000)
    np.testing.assert_allclose(draws.mean(1), model.predict(X[:5, :1]), rtol=0.03)


def test_one_draw_of_the_weights_for_every_column():
    """So that a column is one curve: neighbouring rows move together."""
    x = np.linspace(-2, 2, 40)[:, None]
    model = MVIRegressor(noise="gaussian", n_basis=8, diagnostics=False).fit(x, 0.01 * x[:, 0] ** 2)
    far = np.array([[8.0], [8.01]])
    one, other = model.sample_y(far, 4000)
    assert np.corrcoef(one, other)[0, 1] > 0.95


# --- Gaussian processes -----------------------------------------------------------------------

CURVE = np.random.default_rng(5).uniform(-3, 3, (60, 1))
HEIGHT = np.sin(2 * CURVE[:, 0]) + 0.1 * np.random.default_rng(6).standard_normal(60)


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
def test_a_gaussian_process_predicts_like_scikit_learns(kernel):
    model = MVIRegressor(
        noise="gaussian", basis="gp", kernel=kernel, standardise=False, hyper_prior="flat"
    ).fit(CURVE, HEIGHT)
    shape = RBF(1.0) if kernel == "rbf" else Matern(1.0, nu=1.5)
    theirs = ConstantKernel(1.0) * shape + ConstantKernel(1.0, "fixed") + WhiteKernel(0.1)
    reference = GaussianProcessRegressor(theirs, alpha=1e-9).fit(CURVE, HEIGHT)
    # The same hyperparameters maximise the same evidence.
    assert model.log_evidence_ == pytest.approx(reference.log_marginal_likelihood_value_, abs=0.01)
    kernel = reference.kernel_.k1.k1
    assert float(model.hyper_["log_width"]) == pytest.approx(
        np.log(kernel.k2.length_scale), abs=0.05
    )
    fresh = np.linspace(-4, 4, 50)[:, None]
    mean, sd = model.predict(fresh, return_std=True)
    expected, spread = reference.predict(fresh, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=0.02)
    total = np.sqrt(sd**2 + np.exp(2 * model.hyper_["log_sigma"]))
    np.testing.assert_allclose(total, spread, rtol=0.03)
    assert model.n_basis_ == 60


def test_a_gaussian_process_of_labels_and_with_few_points():
    labels = HEIGHT > 0
    whole = MVIClassifier(basis="gp").fit(CURVE, labels)
    few = MVIClassifier(basis="gp", n_basis=15).fit(CURVE, labels)
    assert whole.n_basis_ == 60
    assert few.n_basis_ == 15
    grid = np.linspace(-3, 3, 40)[:, None]
    np.testing.assert_allclose(few.predict_proba(grid), whole.predict_proba(grid), atol=0.05)
    assert "gp basis functions" in whole.summary()
    assert set(whole.hyper_) == {"log_amplitude", "log_width"}
    several = MVIClassifier(basis="gp", n_basis=12, diagnostics=False).fit(
        CURVE, np.digitize(HEIGHT, [-0.5, 0.5])
    )
    assert several.score(CURVE, np.digitize(HEIGHT, [-0.5, 0.5])) > 0.85
    assert np.isfinite(several.log_predictive_density(grid, np.arange(40) % 3))


def test_too_many_weights_are_refused():
    x = np.random.default_rng(0).standard_normal((1200, 1))
    with pytest.raises(mixvi.InputError, match="gp basis has 3,303 weights for 1200 rows"):
        MVIClassifier(basis="gp", n_basis=1100).fit(x, np.arange(1200) % 3)


# --- no compiler ------------------------------------------------------------------------------

NOTHING_COMPILED = """
import jax
import numpy as np
from mixvi.estimators import MVIClassifier, MVIRegressor

compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name) if "compile" in name or "trace" in name else None
)
rng = np.random.default_rng(0)
x = rng.standard_normal((40, 2))
y = x[:, 0] + 0.3 * rng.standard_normal(40)
MVIClassifier().fit(x, x[:, 0] > 0).predict_proba(x)
MVIClassifier(n_basis=5).fit(x, np.digitize(x[:, 0], [-0.5, 0.5])).predict(x)
MVIClassifier(basis="gp").fit(x, x[:, 0] > 0).summary()
for noise in ("student_t", "cauchy", "gaussian"):
    model = MVIRegressor(noise=noise, n_basis=5).fit(x, y)
    model.predict_quantiles(x), model.sample_y(x), model.log_predictive_density(x, y)
MVIRegressor(noise="poisson", n_basis=5).fit(x, rng.poisson(2, 40)).predict(x)
assert not compiled, compiled
jax.jit(lambda x: x + 1)(1.0)  # the listener listens
assert compiled
"""


def test_nothing_is_traced_or_compiled():
    ended = subprocess.run([sys.executable, "-c", NOTHING_COMPILED], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
