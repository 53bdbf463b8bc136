"""Steps over few draws that stand for steps over many: against steps over the many themselves."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from mixvi._approximate import _levels
from mixvi._approximate._bound import Shape
from mixvi._approximate._levels import Corrected, lost_on_the_way, stein_on_many
from mixvi._approximate._search import Stop
from mixvi._approximate._stein import stein
from mixvi._density._counted import Counted
from mixvi._density._protocol import Points, coloured
from mixvi._errors import Code
from targets import density_of, points

DIM = 3
ROOT = np.array([[0.5, 0.0, 0.0], [0.1, 0.6, 0.0], [-0.2, 0.1, 0.4]])
MEAN = np.array([0.3, -0.5, 1.0])
FEW, MANY = points(64, DIM), points(2048, DIM)


def counts(w):
    """Counts with log-normal rates, correlated."""
    return (jnp.array([1.0, 0.0, 3.0]) * w - jnp.exp(w)).sum() - 0.5 * (w.sum() ** 2 + w @ w) / 4


def pairs(z) -> Points:
    """Matched, and otherwise independent."""
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / len(z)), z.T).T
    return Points(np.concatenate([z, -z]), paired=True)


def corrected(density):
    on_few, on_many = (density.expect(MEAN, ROOT, rule) for rule in (FEW, MANY))
    return Corrected(density, MEAN, ROOT, on_few, on_many)


def test_few_agree_with_many_where_both_were_asked():
    density = density_of(counts, DIM)
    one = Shape.of(corrected(density).expect(MEAN, ROOT, FEW), ROOT)
    two = Shape.of(density.expect(MEAN, ROOT, MANY), ROOT)
    assert one.elbo == pytest.approx(two.elbo, rel=1e-12)
    np.testing.assert_allclose(one.pull, two.pull, atol=1e-12)
    np.testing.assert_allclose(one.bend, two.bend, atol=1e-12)
    # And without the correction they do not.
    assert abs(Shape.of(density.expect(MEAN, ROOT, FEW), ROOT).bend - two.bend).max() > 1e-4


def test_the_corrected_slopes_are_those_of_the_corrected_bound():
    density, h = corrected(density_of(counts, DIM)), 1e-5
    mean, root = MEAN + 0.1, ROOT @ (np.eye(DIM) + 0.1)
    shape = Shape.of(density.expect(mean, root, FEW), root)

    def bound(mean, root):
        return Shape.of(density.expect(mean, root, FEW), root).elbo

    for i, unit in enumerate(h * np.eye(DIM)):
        up, down = bound(mean + root @ unit, root), bound(mean - root @ unit, root)
        assert shape.pull[i] == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-8)
    for i in range(DIM):
        for j in range(i + 1):
            turn = np.zeros((DIM, DIM))
            turn[i, j] = turn[j, i] = h
            up, down = (bound(mean, root @ (np.eye(DIM) + s * turn)) for s in (1, -1))
            slope = (np.eye(DIM) - shape.bend)[i, j] * (1 if i == j else 2)
            assert slope == pytest.approx((up - down) / (2 * h), rel=1e-4, abs=1e-6)


def test_the_end_is_that_of_steps_over_the_many_at_a_fraction_of_the_passes():
    density, stop = Counted(density_of(counts, DIM)), Stop(gain=1e-6)
    rough = stein(density, MEAN, ROOT, FEW, Stop(gain=0.01))
    before = density.n_gradients
    end = stein_on_many(density, rough, FEW, MANY, stop)
    by_levels = density.n_gradients - before
    alone = Counted(density.inner)
    told = stein(alone, rough.mean, rough.root, MANY, stop)
    assert end.code is Code.OK
    assert end.gain_left <= stop.gain
    exact = stein(density, end.mean, end.root, MANY, Stop(tol=1e-8))
    at_end = Shape.of(density.expect(end.mean, end.root, MANY), end.root)
    assert exact.elbo - at_end.elbo < 3 * stop.gain
    assert at_end.elbo == pytest.approx(told.elbo, abs=3 * stop.gain)
    assert by_levels < 0.7 * alone.n_gradients


@pytest.mark.parametrize("symmetric", [True, False])
def test_what_is_missed_is_what_other_draws_would_say(symmetric):
    """Against the true loss, over many sets of few draws. Of the even part matched draws also hold
    what is quadratic; that is not counted, so where there is an even part too much is told."""

    def quartic(w):
        return -0.5 * w @ w - (w**4).sum() / 6 - 0.5 * w.sum() ** 2

    density = density_of(quartic if symmetric else counts, DIM)
    shift = np.zeros(DIM) if symmetric else MEAN
    old, new = (shift, ROOT), (1.2 * shift, ROOT @ np.diag([1.2, 0.9, 1.1]))
    at_old, at_new = (density.expect(*where, points(2**14, DIM)) for where in (old, new))
    told, lost = [], []
    for key in range(100):
        few = pairs(np.random.default_rng([key, 5]).standard_normal((64, DIM)))
        by_few = Corrected(density, *old, density.expect(*old, few), at_old).expect(*new, few)
        one, two = (Shape.of(said, new[1]) for said in (by_few, at_new))
        pull, bend = one.pull - two.pull, one.bend - two.bend
        lost.append(0.5 * (pull**2).sum() + 0.25 * (bend**2).sum())
        h = [density.gradients(coloured(*where, few.z))[1] @ where[1] for where in (old, new)]
        told.append(lost_on_the_way(few, ROOT, h[0], new[1], h[1]))
    ratio = np.mean(told) / np.mean(lost)
    assert 0.75 < ratio < (1.33 if symmetric else 10)


def test_where_few_mislead_the_many_go_on(monkeypatch):
    """A bound for the noise that nothing meets: every step is made over the many."""
    monkeypatch.setattr(_levels, "MOST_NOISE", 0.0)
    density, stop = density_of(counts, DIM), Stop(gain=1e-9)
    rough = stein(density, MEAN, ROOT, FEW, Stop(gain=0.01))
    end = stein_on_many(density, rough, FEW, MANY, stop)
    exact = stein(density, rough.mean, rough.root, MANY, Stop(tol=1e-8))
    assert end.code is Code.OK
    assert end.elbo == pytest.approx(exact.elbo, abs=1e-6)


def test_a_way_that_leads_where_there_is_no_density():
    """The first comparison is finite, a later one not: steps over the many go on from the best."""
    few, many = points(16, DIM), points(2**12, DIM)

    def cut(w):
        return jnp.where(jnp.abs(w[0] - 0.3) > 3.5 * 0.5, -jnp.inf, counts(w))

    density = density_of(cut, DIM)
    start = stein(density, MEAN, 0.8 * ROOT, few, Stop(max_steps=1))
    end = stein_on_many(density, start, few, many, Stop())
    assert math.isfinite(
        Shape.of(density.expect(*end.evaluated_at, many), end.evaluated_at[1]).elbo
    )


@pytest.mark.parametrize("max_steps", [1, 2, 5])
def test_no_more_steps_than_allowed(max_steps):
    density = density_of(counts, DIM)
    rough = stein(density, MEAN, ROOT, FEW, Stop(gain=1.0))
    end = stein_on_many(density, rough, FEW, MANY, Stop(gain=1e-12, max_steps=max_steps))
    assert end.code is Code.BOUND_OUT_OF_STEPS


def test_many_draws_that_reach_where_there_is_no_density():
    def cut(w):
        return jnp.where(w[0] > 2.2, -jnp.inf, counts(w))

    density = density_of(cut, DIM)
    few = points(16, DIM)
    rough = stein(density_of(counts, DIM), MEAN, ROOT, few, Stop(gain=0.01))
    end = stein_on_many(density, rough, few, points(2**14, DIM), Stop())
    assert end.code is Code.NON_FINITE_DRAWS
