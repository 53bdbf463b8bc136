"""The bound of a mixture: its slopes by finite differences, steps, and where mass is missing."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._approximate._missing import look, proposals
from mixvi._approximate._mixture import (
    Components,
    draws_for,
    improved,
    log_mixture,
    shape_of,
    stepped,
)
from targets import density_of

RNG = np.random.default_rng(0)
DIM = 3
AT = Components.of(
    np.array([0.3, 0.7]),
    [(RNG.standard_normal(DIM), np.eye(DIM) + 0.3 * RNG.random((DIM, DIM))) for _ in range(2)],
)
Z = draws_for(0, 2, mixvi.Matched(64), DIM)


def bent(w):
    return -0.5 * w[0] ** 2 - 0.5 * (w[1] - w[0] ** 2) ** 2 - 0.25 * w[2] ** 4


@pytest.fixture(scope="module")
def density():
    return density_of(bent, DIM)


def test_the_gradient_of_log_q_is_that_of_its_law():
    points, step = RNG.standard_normal((5, DIM)), 1e-6
    log_q, gradients = log_mixture(AT, points)
    np.testing.assert_allclose(log_q, AT.law.log_prob(points), rtol=1e-12)
    for i, shift in enumerate(step * np.eye(DIM)):
        both = [AT.law.log_prob(points + sign * shift) for sign in (1, -1)]
        np.testing.assert_allclose(gradients[:, i], (both[0] - both[1]) / (2 * step), rtol=1e-6)


def test_slopes_are_finite_differences_of_the_bound_with_q_held(density):
    """Moving the draws of a component while `log q` stays as it is."""

    def bound(at):
        points = (at.means[:, None] + Z @ at.roots.transpose(0, 2, 1)).reshape(-1, DIM)
        each = (density.values(points) - log_mixture(AT, points)[0]).reshape(2, -1).mean(1)
        return each

    shape, step = shape_of(density, AT, Z), 1e-5
    assert shape.elbo == pytest.approx(AT.weights @ bound(AT))
    np.testing.assert_allclose(shape.each, bound(AT))
    for k in range(2):
        for i in range(DIM):
            ends = []
            for sign in (1, -1):
                means = AT.means.copy()
                means[k] += sign * step * AT.roots[k][:, i]
                ends.append(bound(dataclasses.replace(AT, means=means))[k])
            slope = (ends[0] - ends[1]) / (2 * step)
            assert shape.pull[k, i] == pytest.approx(slope, rel=1e-5, abs=1e-8)
            for j in range(DIM):
                ends = []
                for sign in (1, -1):
                    roots, tilt = AT.roots.copy(), np.zeros((DIM, DIM))
                    tilt[i, j] += 0.5
                    tilt[j, i] += 0.5
                    roots[k] = roots[k] @ (np.eye(DIM) + sign * step * tilt)
                    ends.append(bound(dataclasses.replace(AT, roots=roots))[k])
                slope = (ends[0] - ends[1]) / (2 * step)
                assert -shape.bend[k, i, j] == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_one_step_finds_a_gaussian_and_stays_there():
    precision = np.array([[2.0, 0.9, 0.0], [0.9, 1.0, 0.3], [0.0, 0.3, 1.0]])
    target = density_of(lambda w: -0.5 * w @ precision @ w, DIM)
    one = Components.of(np.ones(1), [(0.3 * np.ones(DIM), 0.9 * np.eye(DIM))])
    z = draws_for(0, 1, mixvi.Matched(64), DIM)
    there = stepped(one, shape_of(target, one, z), 1.0)
    np.testing.assert_allclose(there.means[0], 0, atol=1e-10)
    found = there.roots[0] @ there.roots[0].T
    np.testing.assert_allclose(found, np.linalg.inv(precision), atol=1e-10)
    shape = shape_of(target, there, z)
    np.testing.assert_allclose(shape.bend, 0, atol=1e-9)
    log_z = 1.5 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    assert shape.elbo == pytest.approx(log_z, abs=1e-9)


def test_where_the_posterior_is_the_mixture_slopes_have_no_noise():
    law = AT.law

    def mixture(w):
        parts = [
            jnp.log(weight)
            - 0.5 * ((jnp.linalg.inv(one.root) @ (w - one.mean)) ** 2).sum()
            - one.log_det_root
            for weight, one in zip(law.weights, law.components, strict=True)
        ]
        return jnp.logaddexp(*parts) - 0.5 * DIM * jnp.log(2 * jnp.pi)

    target = density_of(mixture, DIM)
    shape = shape_of(target, AT, Z)
    assert shape.elbo == pytest.approx(0, abs=1e-10)
    np.testing.assert_allclose(shape.pull, 0, atol=1e-9)
    np.testing.assert_allclose(shape.bend, 0, atol=1e-9)
    moved = dataclasses.replace(AT, means=AT.means + 0.3, log_weights=np.log([0.5, 0.5]))
    found = improved(target, moved, Z, 1e-9, 400)
    assert found.elbo == pytest.approx(0, abs=1e-4)
    np.testing.assert_allclose(found.at.weights, AT.weights, atol=0.03)


def test_no_search_goes_down(density):
    before = shape_of(density, AT, Z).elbo
    bounds = [improved(density, AT, Z, 1e-6, n).elbo for n in range(6)]
    assert bounds[0] == before
    assert (np.diff(bounds) >= 0).all()


def test_a_look_tells_the_bound_and_the_distance():
    """Of N(0, 1) from `0.5 N(-1.5, 1) + 0.5 N(1.5, 1)`, by quadrature."""

    def two(w):
        return jnp.logaddexp(-0.5 * (w[0] - 1.5) ** 2, -0.5 * (w[0] + 1.5) ** 2)

    target = density_of(two, 1)
    one = Components.of(np.ones(1), [(np.zeros(1), np.eye(1))])
    seen = look(target, one, 0, 20_000)
    x = np.linspace(-12, 12, 20_001)
    log_q = -0.5 * x**2 - 0.5 * np.log(2 * np.pi)
    log_p = np.logaddexp(-0.5 * (x - 1.5) ** 2, -0.5 * (x + 1.5) ** 2)
    elbo = np.trapezoid(np.exp(log_q) * (log_p - log_q), x)
    log_z = np.log(2 * np.sqrt(2 * np.pi))
    assert seen.elbo == pytest.approx(elbo, abs=4 * seen.se)
    assert seen.kl == pytest.approx(log_z - elbo, abs=0.1)
    heavy, split = proposals(seen, shape_of(target, one, draws_for(0, 1, mixvi.Matched(256), 1)))
    assert abs(heavy.means[1, 0]) > 1
    np.testing.assert_allclose(np.sort(split.means[:, 0]), [-0.7, 0.7], atol=1e-12)
    z = draws_for(0, 2, mixvi.Matched(256), 1)
    better = [improved(target, at, z, 1e-6, 100).elbo for at in (heavy, split)]
    np.testing.assert_allclose(better, log_z, atol=1e-3)
