"""Scores against closed forms and against draws, one by one, in float64."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, logsumexp

from mixvi.models import RBF, Bernoulli, Gaussian, Model, Softmax
from reproduction import scores
from reproduction.problems import Split


class Made:
    """A model with four basis functions and any Gaussian over its weights."""

    def __init__(self, likelihood, n_test=40, spread=0.4, y_scale=1.0, seed=0):
        rng = np.random.default_rng(seed)
        k, x, x_test = likelihood.n_outputs, *(rng.standard_normal((n, 2)) for n in (30, n_test))
        if isinstance(likelihood, Gaussian):
            y, y_test = rng.standard_normal(30), rng.standard_normal(n_test)
        else:
            y, y_test = (rng.integers(0, max(k, 2), n).astype(float) for n in (30, n_test))
        self.split = Split(x, y, x_test, y_test, likelihood, y_scale=y_scale)
        self.model = Model(RBF(4), likelihood)
        density = self.model.density(x, y)
        self.shared, self.hyper = density.shared, density.hyper
        mean, root = rng.standard_normal(5 * k), spread * rng.standard_normal((5 * k, 5 * k))
        self.post = SimpleNamespace(flat_mean=mean, root=root)
        rows = self.model.basis.rows(x_test, self.shared)
        self.design = np.asarray(self.model.basis.design(rows, self.shared, self.hyper))

    def scores(self, *numbers, key=(0, 0), root=None):
        post = self.post if root is None else SimpleNamespace(**vars(self.post) | {"root": root})
        split, model, shared, hyper = self.split, self.model, self.shared, self.hyper
        return scores.scores(split, model, shared, hyper, post, numbers, list(key))

    def predictors(self, n, key=(0, 0)):
        """Of the same draws, in float64: (draws, rows, outputs)."""
        rng = np.random.default_rng(list(key))
        z = rng.standard_normal((n, len(self.post.flat_mean)))
        w = self.post.flat_mean + z @ self.post.root.T
        return np.einsum("nm,skm->snk", self.design, w.reshape(n, -1, 5))


def log_mean(values, axis=0):
    return logsumexp(values, axis=axis) - math.log(values.shape[axis])


def test_a_gaussian_model_in_closed_form():
    """Joint and pointwise LPD are normal densities, and so is the loss of a draw."""
    made = Made(Gaussian(), n_test=4, spread=0.2, y_scale=3.0)
    found = made.scores(1000, 200_000)
    mean, spread = made.design @ made.post.flat_mean, made.design @ made.post.root
    noise = math.exp(2 * float(made.hyper["log_sigma"]))
    cov, y, scale = spread @ spread.T + noise * np.eye(4), made.split.y_test, 3.0
    joint = stats.multivariate_normal.logpdf(y, mean, cov) / 4 - math.log(scale)
    single = stats.norm.logpdf(y, mean, np.sqrt(np.diag(cov))).mean() - math.log(scale)
    assert found.lpd[200_000] == pytest.approx(joint, abs=0.01)
    assert found.pointwise == pytest.approx(single, abs=1e-6)
    square = (mean - y) ** 2
    assert found.error == pytest.approx(square.mean() * scale**2)
    assert found.error_draws == pytest.approx((square + (spread**2).sum(1)).mean() * scale**2)


@pytest.mark.parametrize("spread", [0.05, 0.4, 20.0])
def test_two_classes_by_products(spread):
    """700 rows are several products; with the widest predictors reach hundreds."""
    made, n = Made(Bernoulli(), n_test=700, spread=spread), 2000
    eta = made.predictors(n)[..., 0]
    y = made.split.y_test
    each = -np.logaddexp(0.0, -(2 * y - 1) * eta)
    found = made.scores(1000, n)
    for draws in (1000, n):
        assert found.lpd[draws] == pytest.approx(log_mean(each[:draws].sum(1)), abs=0.01)
    error = 100 * ((eta > 0) != y).mean()
    assert found.error_draws == pytest.approx(error, abs=0.5)
    mean = made.design @ made.post.flat_mean
    assert found.error == pytest.approx(100 * ((mean > 0) != y).mean())


def test_pointwise_by_quadrature_is_the_limit_of_draws():
    made = Made(Bernoulli(), spread=0.4)
    eta = made.predictors(100_000)[..., 0]
    each = -np.logaddexp(0.0, -(2 * made.split.y_test - 1) * eta)
    assert made.scores(1000).pointwise == pytest.approx(log_mean(each).sum(), abs=0.05)


def test_several_classes_by_draws():
    made, n = Made(Softmax(3), spread=0.4), 20_000
    eta, y = made.predictors(n), made.split.y_test.astype(int)
    each = np.take_along_axis(log_softmax(eta, -1), y[None, :, None], -1)[..., 0]
    found = made.scores(n)
    assert found.lpd[n] == pytest.approx(log_mean(each.sum(1)), abs=1e-6)
    assert found.pointwise == pytest.approx(log_mean(each).sum(), abs=0.2)
    wrong = eta.argmax(-1) != y
    assert found.error_draws == pytest.approx(100 * wrong.mean(), abs=1e-6)
    mean = np.exp(log_softmax(eta, -1)).mean(0)
    assert found.error == pytest.approx(100 * (mean.argmax(-1) != y).mean(), abs=2.6)


@pytest.mark.parametrize("likelihood", [Gaussian(), Bernoulli(), Softmax(3)])
def test_the_first_draws_of_many_are_the_same_draws(likelihood):
    made = Made(likelihood)
    few, many = made.scores(1000), made.scores(1000, 5000)
    assert few.lpd[1000] == pytest.approx(many.lpd[1000], rel=1e-12)
    assert made.scores(1000, key=(0, 1)).lpd != few.lpd  # each split has draws of its own


@pytest.mark.parametrize("likelihood", [Gaussian(), Bernoulli(), Softmax(3)])
def test_diagonal_roots_score_like_their_matrices(likelihood):
    made = Made(likelihood)
    diagonal = np.abs(made.post.root[0])
    one, other = made.scores(1000, root=diagonal), made.scores(1000, root=np.diag(diagonal))
    assert one.lpd[1000] == pytest.approx(other.lpd[1000], abs=1e-3)
    np.testing.assert_allclose(one[1:], other[1:], rtol=1e-8)
