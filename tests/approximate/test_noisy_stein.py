"""Rounds of noisy batches: gains without bias, honest errors, and steps that end where noise is
cheap."""

import numpy as np
import pytest

from mixvi._approximate._noisy_stein import Asker, Round, noisy_stein
from mixvi._arrays._draws import Matched
from mixvi._density._batches import Batch, Batches, BatchSource
from mixvi._density._protocol import Density
from mixvi._errors import Code

DIM = 3


class Bowl(Density):
    """`-|w - centre|^2 / 2 - steep sum (w - centre)^4`, and one batch's error in slope and
    curvature."""

    dim = DIM

    def __init__(self, slope=0.0, bend=None, steep=0.0):
        self.slope, self.steep = np.broadcast_to(slope, DIM), steep
        self.bend = np.zeros((DIM, DIM)) if bend is None else bend

    def gradients(self, points):
        away = points - 1.0
        values = -0.5 * (away**2).sum(1) - self.steep * (away**4).sum(1)
        values += away @ self.slope + 0.5 * ((away @ self.bend) * away).sum(1)
        return values, -away - 4 * self.steep * away**3 + self.slope + away @ self.bend


class Noisy(BatchSource):
    """Of batches whose errors in slope and curvature are independent."""

    def __init__(self, noise, seed, steep):
        self.noise, self.steep, self.whole = noise, steep, Bowl(steep=steep)
        self.rng = np.random.default_rng(seed)

    def fresh(self, n):
        made = []
        for _ in range(n):
            half = self.noise * self.rng.standard_normal((DIM, DIM))
            slope = self.noise * self.rng.standard_normal(DIM)
            made.append(Batch(Bowl(slope, half + half.T, self.steep), 1))
        return Batches(made, self.whole)


def source(noise, seed=0, steep=0.0):
    return Noisy(noise, seed, steep)


def rounds(mean, root, noise, n, times, steep=0.0):
    asker = Asker(source(noise, steep=steep), Matched(16), 0)
    return [asker.round(mean, root, n) for _ in range(times)]


def test_the_gain_has_no_bias_and_its_error_is_honest():
    mean, root = np.array([1.3, 0.9, 1.0]), np.eye(DIM)
    true = 0.5 * ((mean - 1) ** 2).sum()
    told = rounds(mean, root, 0.2, 12, 400)
    gains = np.array([one.gain for one in told])
    assert gains.mean() == pytest.approx(true, abs=4 * gains.std() / 20)
    # What noise feigns is taken off: without that it is off by far.
    feigned = np.mean([one.gain_and_noise for one in told])
    assert feigned > true + 10 * gains.std() / 20
    off = (gains - true) / np.array([one.gain_se for one in told])
    assert 0.5 < np.sqrt(np.mean(off**2)) < 1.3


def test_noise_is_what_a_step_by_it_costs():
    """At the best Gaussian, to second order: (1/2) |e|^2 + (1/4) |N|^2."""
    mean, root, noise, n = np.ones(DIM), np.eye(DIM), 0.03, 10
    told = rounds(mean, root, noise, n, 300)
    of_mean = 0.5 * DIM * noise**2 / n
    # A symmetric sum has twice the variance off the diagonal, four times on it.
    of_root = 0.25 * noise**2 * (2 * DIM * (DIM - 1) + 4 * DIM) / n
    assert np.mean([one.noise for one in told]) == pytest.approx(of_mean + of_root, rel=0.05)
    lost = [
        0.5 * (one.shape.pull**2).sum() + 0.25 * np.sum((one.shape.bend - root) ** 2)
        for one in told
    ]
    assert np.mean(lost) == pytest.approx(of_mean + of_root, rel=0.1)


def test_batches_are_added_until_noise_is_cheap():
    for noise in (0.0, 0.3):
        asker = Asker(source(noise), Matched(16), 0)
        ended = noisy_stein(asker, np.zeros(DIM), 2 * np.eye(DIM), 1e-3, 10**5)
        mean, cov = ended.state.mean, ended.state.root @ ended.state.root.T
        kl = 0.5 * (np.trace(cov) - DIM - np.linalg.slogdet(cov)[1] + ((mean - 1) ** 2).sum())
        assert ended.state.code is Code.OK
        assert kl < (8e-3 if noise else 1e-10)
        assert (ended.n_batches > 200) == bool(noise)


def test_steps_that_overshoot_are_shortened():
    """Steep walls: the whole step by the averaged curvature goes to and fro."""
    asker = Asker(source(0.02, steep=2.0), Matched(64), 0)
    ended = noisy_stein(asker, np.full(DIM, 3.0), np.eye(DIM), 1e-3, 5000)
    assert ended.state.code is Code.OK
    assert ended.n_batches < 90  # 108 with whole steps
    np.testing.assert_allclose(ended.state.mean, 1.0, atol=0.05)


def test_means_alone():
    asker = Asker(source(0.05), Matched(16), 0)
    root = 0.5 * np.eye(DIM)
    ended = noisy_stein(asker, np.zeros(DIM), root, 1e-3, 10**4, mean_only=True)
    assert ended.state.code is Code.OK
    np.testing.assert_array_equal(ended.state.root, root)
    np.testing.assert_allclose(ended.state.mean, 1.0, atol=0.1)


def test_when_batches_are_used_up_the_state_says_so():
    asker = Asker(source(1.0), Matched(16), 0)
    ended = noisy_stein(asker, np.ones(DIM), np.eye(DIM), 1e-6, 40)
    assert ended.state.code is Code.BOUND_OUT_OF_STEPS
    assert ended.n_batches <= 40 + 8


def test_more_batches_are_pooled():
    told = rounds(np.ones(DIM), np.eye(DIM), 0.1, 4, 2)
    both = told[0].and_more(told[1])
    assert isinstance(both, Round)
    assert both.n == 8
    middle = 0.5 * (told[0].shape.pull + told[1].shape.pull)
    np.testing.assert_allclose(both.shape.pull, middle, rtol=1e-12)
