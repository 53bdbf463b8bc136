"""Whole Gaussian processes: evidence in the values of the function, best Gaussians by sites."""

import numpy as np
import pytest

from mixvi import models
from mixvi._approximate._bound import Shape
from mixvi._approximate._laplace import laplace
from mixvi._arrays._draws import Quadrature
from mixvi.estimators import MVIClassifier
from mixvi.models._density import ModelDensity
from mixvi.models._resolvent import Diagonal, IndefiniteError

FLOAT64 = np.dtype(np.float64)
TIGHT = 1e-9
LIKELIHOODS = {
    "bernoulli": models.Bernoulli(),
    "poisson": models.Poisson(),
    "gaussian": models.Gaussian(),
    "student_t": models.StudentT(None),
    "cauchy": models.Cauchy(),
    "softmax": models.Softmax(3),
}


def process(name, kernel="matern52", per_feature=False, repeated=False, offset=False):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((24, 2))
    f = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    if name in ("bernoulli", "softmax"):
        y = (f + 0.3 * rng.standard_normal(24) > 0).astype(float)
        y = y + (x[:, 1] > 0.8) if name == "softmax" else y
    elif name == "poisson":
        y = rng.poisson(np.exp(f)).astype(float)
    else:
        y = f + 0.1 * rng.standard_t(3, 24)
        y[5] += 3.0  # an outlier: its curvature is negative
    if repeated:
        x, y = np.r_[x, x[:6]], np.r_[y, y[:3], y[9:12]]
    weight = rng.uniform(0.5, 2.0, len(y))
    away = 0.3 * rng.standard_normal(len(y)) if offset else None
    model = models.Model(models.GaussianProcess(kernel, None, per_feature), LIKELIHOODS[name])
    return model.density(x, y, weight=weight, offset=away)


CASES = [
    ("bernoulli", "rbf", False, False, False),
    ("bernoulli", "matern32", True, True, True),
    ("poisson", "matern52", False, False, True),
    ("gaussian", "matern12", True, False, False),
    ("student_t", "matern52", False, True, False),
    ("cauchy", "rbf", False, False, True),
    ("softmax", "matern52", False, False, False),
    ("softmax", "rbf", True, True, False),
]


@pytest.mark.parametrize("case", CASES)
def test_its_own_evidence_is_that_of_the_weights(case):
    density = process(*case)
    assert density.has_own_evidence
    own = density.own_evidence(None, TIGHT)
    found = laplace(density, own.mode())
    assert own.value == pytest.approx(found.log_evidence, abs=1e-5 if case[3] else 1e-7)
    # Only where rows are repeated does the kernel's jitter part the two.
    np.testing.assert_allclose(own.mode(), found.mode, atol=1e-3 if case[3] else 1e-6)
    assert found.n_steps <= 1


@pytest.mark.parametrize("case", CASES)
def test_its_gradient_is_that_of_differences(case):
    density = process(*case)
    own, step = density.own_evidence(None, TIGHT), 1e-4

    def value(theta):
        return density.at(theta).own_evidence(own.near, TIGHT).value

    def difference(along):
        by = [value(density.theta + k * along) - value(density.theta - k * along) for k in (1, 2)]
        return (8 * by[0] - by[1]) / (12 * step)  # of fourth order

    expected = [difference(along) for along in step * np.eye(density.n_hyper)]
    np.testing.assert_allclose(own.gradient, expected, rtol=1e-6, atol=1e-6)


def test_the_resolvent_is_that_of_dense_algebra():
    rng = np.random.default_rng(0)
    half = rng.standard_normal((12, 12))
    kernel = half @ half.T + np.eye(12)
    w = rng.uniform(0.1, 1.0, 12)
    w[[2, 7]] = -0.01, -0.02
    w[4] = 0.0
    by = Diagonal(kernel.copy(), w)
    expected = w[:, None] * np.linalg.inv(np.eye(12) + kernel * w)
    x = rng.standard_normal((1, 12))
    np.testing.assert_allclose(by.resolvent(x)[0], expected @ x[0], atol=1e-10)
    assert by.log_det == pytest.approx(np.linalg.slogdet(np.eye(12) + kernel * w)[1])
    np.testing.assert_allclose(by.matrix, expected, atol=1e-10)
    np.testing.assert_allclose(by.resolvent(x)[0], expected @ x[0], atol=1e-10)
    sigma = kernel - kernel @ expected @ kernel
    np.testing.assert_allclose(by.variances(np.ones((1, 12))), np.diagonal(sigma), rtol=1e-6)
    along, pulled = by.flattest()
    np.testing.assert_allclose(kernel @ pulled, along, atol=1e-10)
    np.testing.assert_allclose(
        np.einsum("nd,nd->d", along, np.linalg.solve(sigma, along)), 1.0, rtol=1e-8
    )
    with pytest.raises(IndefiniteError):
        Diagonal(kernel.copy(), np.full(12, -5.0))


@pytest.mark.parametrize("case", CASES)
def test_of_the_gaussian_by_sites_nothing_is_left_to_gain(case):
    density = process(*case)
    assert density.has_best_gaussian
    found = laplace(density, density.init.ravel())
    rule = Quadrature(64).make(FLOAT64, density.n_predictors)
    best = density.best_gaussian(found.mode, found.root, rule, 1e-8)
    shape = Shape.of(density.expect(*best.evaluated_at, rule), best.evaluated_at[1])
    assert best.elbo == pytest.approx(shape.elbo, abs=1e-8)
    assert best.gain_left == pytest.approx(shape.gain_mean + shape.gain_root, abs=2e-9)
    # One step further on less is left.
    shape = Shape.of(density.expect(best.mean, best.root, rule), best.root)
    assert shape.gain_mean + shape.gain_root < 1e-8


def test_few_evaluations_are_made_on_all_rows(monkeypatch):
    x = np.random.default_rng(1).standard_normal((160, 3))
    asked, own = [], ModelDensity.own_evidence
    monkeypatch.setattr(
        ModelDensity,
        "own_evidence",
        lambda self, *args: asked.append(self.n_rows) or own(self, *args),
    )
    model = MVIClassifier(basis="gp", family="laplace", diagnostics=False)
    model.fit(x, np.sin(2 * x[:, 0]) + x[:, 1] > 0)
    assert set(asked) == {60, 160}
    assert asked.count(160) < 20
