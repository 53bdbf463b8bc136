"""The judge of `benchmarks/peers.py`, on a Gaussian whose evidence and divergences are known."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import fresh
import peer_page
import peers
from peer_tools import Draws, Flow, Gaussian, gaussian

MEAN = np.array([1.0, -2.0, 0.5])
ROOT = np.array([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [-0.3, 0.2, 2.0]])
COV = ROOT @ ROOT.T
LOG_EVIDENCE = 1.7


@pytest.fixture(scope="module")
def target():
    precision = np.linalg.inv(COV)
    constant = LOG_EVIDENCE - 0.5 * np.linalg.slogdet(2 * math.pi * COV)[1]

    def log_density(w):
        return constant - 0.5 * (w - MEAN) @ jnp.asarray(precision) @ (w - MEAN)

    return fresh.density(log_density, np.zeros(3))


def divergence(mean, cov):
    """KL(N(mean, cov) || N(MEAN, COV))."""
    precision, off = np.linalg.inv(COV), mean - MEAN
    trace = np.trace(precision @ cov) - 3 + off @ precision @ off
    return 0.5 * (trace - np.linalg.slogdet(precision @ cov)[1])


def test_the_exact_gaussian_falls_short_by_nothing(target):
    value, se, _ = peers.bound(target, Gaussian(MEAN, ROOT), LOG_EVIDENCE)
    assert value == pytest.approx(LOG_EVIDENCE, abs=1e-10)
    assert se < 1e-10


@pytest.mark.parametrize("root", [0.7 * ROOT, np.array([1.0, 0.4, 1.5])], ids=["dense", "diagonal"])
def test_a_wrong_gaussian_falls_short_by_its_divergence(target, root):
    mean = MEAN + np.array([0.1, 0.2, -0.3])
    cov = root @ root.T if root.ndim == 2 else np.diag(root**2)
    value, se, n = peers.bound(target, Gaussian(mean, root), LOG_EVIDENCE)
    short = divergence(mean, cov)
    assert LOG_EVIDENCE - value == pytest.approx(short, abs=4 * se)
    assert 0 < se <= 1.01 * max(peers.ENOUGH, peers.SHARE * short)
    assert n <= peers.MOST


def test_draws_are_judged_by_their_gaussian_and_exact_ones_not_at_all(target):
    draws = MEAN + 0.7 * np.random.default_rng(0).standard_normal((4000, 3)) @ ROOT.T
    value, se, _ = peers.bound(target, Draws(draws), LOG_EVIDENCE)
    short = divergence(draws.mean(0), np.cov(draws.T))
    assert LOG_EVIDENCE - value == pytest.approx(short, abs=4 * se)
    assert math.isnan(peers.bound(target, Draws(draws, exact=True), LOG_EVIDENCE)[0])


def test_a_flow_is_judged_by_its_own_density(target):
    z = np.random.default_rng(1).standard_normal((20_000, 3))
    root = 1.2 * ROOT
    log_q = -0.5 * (z**2).sum(1) - 0.5 * np.linalg.slogdet(2 * math.pi * root @ root.T)[1]
    value, se, _ = peers.bound(target, Flow(MEAN + z @ root.T, log_q), LOG_EVIDENCE)
    assert LOG_EVIDENCE - value == pytest.approx(divergence(MEAN, root @ root.T), abs=4 * se)


def test_what_is_no_gaussian_has_no_bound(target):
    flat = gaussian(MEAN, np.diag([1.0, 0.0, 1.0]))
    assert flat.root is None
    assert math.isnan(peers.bound(target, flat, LOG_EVIDENCE)[0])
    broken = Gaussian(np.array([np.nan, 0.0, 0.0]), ROOT)
    assert math.isnan(peers.bound(target, broken, LOG_EVIDENCE)[0])


def test_moments_of_every_kind():
    sd = np.sqrt(np.diag(COV))
    np.testing.assert_allclose(peers.moments(Gaussian(MEAN, ROOT))[1], sd)
    np.testing.assert_allclose(peers.moments(Gaussian(MEAN, -sd))[1], sd)
    assert np.isnan(peers.moments(Gaussian(MEAN, None))[1]).all()


def test_as_good_is_within_two_errors_of_the_best(monkeypatch):
    monkeypatch.setattr(peers, "kept_best", lambda name: (math.nan, math.nan))
    kinds = {"kind": "Gaussian", "first": 2.0, "warm": 1.0, "name": "a"}
    found = [
        {"tool": "SciPy Laplace", "elbo": -1.0, "se": 0.003},
        {"tool": "near", "elbo": -1.008, "se": 0.004},
        {"tool": "far", "elbo": -1.02, "se": 0.004},
        {"tool": "none", "elbo": None, "se": None},
        {"tool": "unsettled", "elbo": -900.0, "se": 800.0},
    ]
    found = [kinds | one for one in found]
    found.append(kinds | {"tool": "flow", "kind": "Flow", "elbo": -0.5, "se": 0.003})
    seen = peer_page.compared(found)
    assert [one["good"] for one in seen] == [True, True, False, False, False, True]
    assert seen[1]["short"] == pytest.approx(0.008)
    assert seen[3]["short"] == math.inf
    assert seen[2]["first_x"] == 1.0
