"""A posterior that is known to be log-concave has one mode: itself, and no search for others."""

import numpy as np
import pytest

import mixvi
from mixvi import models

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 2))
Y = (RNG.random(60) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(float)


@pytest.mark.parametrize("learns", [True, False])
def test_the_mode_that_is_told_is_the_densitys(learns):
    density = models.Model(models.Linear(), models.Bernoulli()).density(X, Y)
    post = mixvi.fit(density, density.init, hyper=density.hyper if learns else None, family="eig")
    (mode,) = post.modes
    there = density.at(density.flat(post.hyper)) if learns else density
    np.testing.assert_allclose(there.gradients(mode.point[None])[1], 0, atol=1e-4)
    assert mode.log_density == pytest.approx(float(there.values(mode.point[None])[0]))
    assert mode.share == 1


def test_a_heavy_tail_is_not_log_concave():
    density = models.Model(models.Linear(), models.StudentT()).density(X, X[:, 0])
    assert not density.log_concave
    # Steps to the top of parabolas below rise, and end near a mode of the density itself.
    start = 5 * np.ones(density.dim)
    near = density.approached(start)
    assert density(near) > density(start) + 10
    assert density(near) >= density(mixvi.laplace(density, start).flat_mean) - 1
