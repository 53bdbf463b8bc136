"""Gradients at points from JAX, whatever the device: the same numbers as NumPy's."""

import numpy as np
import pytest

from mixvi import InputError, models

X = np.random.default_rng(0).normal(size=(40, 3))
TARGETS = {
    "bernoulli": (models.Bernoulli(), (X[:, 0] > 0).astype(float)),
    "softmax": (models.Softmax(3), np.arange(40) % 3.0),
    "cauchy": (models.Cauchy(), X[:, 0] + 0.1),
    "poisson": (models.Poisson(), np.arange(40) % 4.0),
}


BASES = [
    models.RBF(7),
    models.RBF(7, per_feature=True),
    models.Linear(),
]


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("name", TARGETS)
def test_gradients_on_an_accelerator_are_those_of_numpy(basis, name):
    likelihood, y = TARGETS[name]
    density = models.Model(basis, likelihood).density(X, y, weight=np.linspace(0.5, 2, 40))
    points = np.random.default_rng(1).normal(size=(17, density.dim))
    for theta in (density.theta, density.theta + 0.3):
        expected = density.at(theta).joint_gradients(points)
        found = density.on_accelerator().at(theta).joint_gradients(points)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_points_go_in_pieces(monkeypatch):
    likelihood, y = TARGETS["softmax"]
    density = models.Model(models.RBF(5), likelihood).density(X, y)
    points = np.random.default_rng(1).normal(size=(17, density.dim))
    whole = density.on_accelerator().joint_gradients(points)
    monkeypatch.setattr(models._accelerated, "MOST_PREDICTORS", 5 * 120)
    pieces = density.on_accelerator()
    assert pieces._accelerated.points_at_once == 5
    for one, other in zip(pieces.joint_gradients(points), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_offsets_and_gaussian_processes_stay_with_numpy():
    likelihood, y = TARGETS["poisson"]
    density = models.Model(models.Linear(), likelihood).density(X, y, offset=np.ones(40))
    with pytest.raises(InputError, match="offset"):
        density.on_accelerator()
    process = models.Model(models.GaussianProcess(), likelihood).density(X, y)
    with pytest.raises(InputError, match="Gaussian process"):
        process.on_accelerator()
