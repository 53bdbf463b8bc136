"""Cases that once went wrong, each against what is known of it."""

import numpy as np
import pytest

import mixvi
from mixvi import models
from mixvi.estimators import MVIRegressor


@pytest.mark.parametrize("seed", range(4))
def test_a_gaussian_process_with_gaussian_noise_has_a_whole_covariance(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 2))
    y = x[:, 0] + 0.3 * rng.normal(size=30)
    density = models.Model(models.GaussianProcess(), models.Gaussian()).density(x, y)
    laplace = mixvi.fit(density, density.init, family="laplace", diagnostics=False)
    full = mixvi.fit(density, density.init, family="full", diagnostics=False)
    assert full.elbo_fixed == pytest.approx(laplace.log_evidence, abs=1e-6)


class Smaller(models.GaussianProcess):
    """A tenth of the columns: the same model with ten times the amplitude."""

    def columns(self, rows, shared, hyper):
        return 0.1 * super().columns(rows, shared, hyper)


def test_a_subclass_of_a_process_has_its_own_evidence():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.standard_t(3, 30)
    plain, smaller = (
        models.Model(basis, models.Gaussian(), weak_prior=False).density(x, y)
        for basis in (models.GaussianProcess(), Smaller())
    )
    assert plain.has_own_evidence
    assert not smaller.has_own_evidence
    ours, theirs = (
        mixvi.laplace(one, one.init, hyper=one.hyper, diagnostics=False) for one in (smaller, plain)
    )
    # ten times the amplitude makes up for a tenth of the columns
    difference = ours.hyper["log_amplitude"] - theirs.hyper["log_amplitude"]
    assert difference == pytest.approx(np.log(10), abs=0.01)
    assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=1e-3)


class Flat(models.Softmax):
    def log_prob(self, y, eta, hyper):
        return super().log_prob(y, 0.2 * eta, hyper)


def test_a_subclass_of_softmax_is_no_closed_form():
    x = np.random.default_rng(0).normal(size=(20, 2))
    density = models.Model(models.GaussianProcess(), Flat(3)).density(x, np.arange(20) % 3.0)
    assert not density.has_own_evidence


def test_quantiles_of_counts_are_counts_however_large():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(50, 1))
    model = MVIRegressor(noise="poisson", basis="linear").fit(x, rng.poisson(np.exp(x[:, 0])))
    levels = np.array([0.001, 0.05, 0.5, 0.95])
    near, far = (model.predict_quantiles([[at]], levels)[0] for at in (0.0, 100.0))
    assert (near == np.round(near)).all()
    assert (near >= 0).all()
    # Far away counts vary far less than their rate, whose logarithm is Gaussian; the predictive
    # distribution function, a sum over nodes, is coarse there.
    eta, sd = np.log(far[2]), np.log(far[3] / far[2]) / 1.6448536269514722
    assert np.log(far[0]) == pytest.approx(eta - 3.090232306167813 * sd, rel=0.02)
    assert np.log(far[1]) == pytest.approx(eta - 1.6448536269514722 * sd, rel=0.02)


def test_a_row_that_overflows_leaves_the_others_alone():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(50, 2))
    model = MVIRegressor(noise="gaussian", basis="linear")
    model.fit(x, x[:, 0] + 0.5 * rng.normal(size=50))
    levels = (0.001, 0.05, 0.95, 0.999)
    alone = model.predict_quantiles([[0.0, 0.0]], levels)[0]
    with np.errstate(all="ignore"):
        beside = model.predict_quantiles([[0.0, 0.0], [1e160, 0.0]], levels)[0]
    np.testing.assert_allclose(beside, alone, rtol=1e-9)
