"""Profiles: what no draw of a Gaussian sees of a funnel."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

import few_groups
import mixture_models
import mixvi
from mixvi._judge._diagnosis import Moments
from mixvi._judge._fresh import judged
from mixvi._judge._profile import (
    _interpolated,
    _with,
    effects_of,
    marginal,
    profiled,
    profiled_mixture,
    ruling,
)
from mixvi._law._gaussian import Gaussian
from mixvi._law._mixture import GaussianMixture

WIDTH = 1.3


class Funnel(mixvi.Density):
    """v ~ N(0, WIDTH^2) and, given v, x_i ~ N(0, e^v): the marginal of v is known."""

    dim = 6

    def gradients(self, points):
        v, x = points[:, 0], points[:, 1:]
        weight = np.exp(-v)
        squares = (x**2).sum(1)
        values = -0.5 * (v / WIDTH) ** 2 - 0.5 * weight * squares - 0.5 * x.shape[1] * v
        of_v = -v / WIDTH**2 + 0.5 * weight * squares - 0.5 * x.shape[1]
        return values, np.concatenate([of_v[:, None], -weight[:, None] * x], axis=1)


class Bell(mixvi.Density):
    dim = 4
    precision = np.diag([1.0, 4.0, 9.0, 2.0]) + 0.4

    def gradients(self, points):
        gradients = -(points - 1.0) @ self.precision
        return 0.5 * ((points - 1.0) * gradients).sum(1), gradients


@pytest.mark.parametrize(("at", "sd"), [(0.0, WIDTH), (0.4, 0.7), (-0.5, 1.0)])
def test_the_marginal_of_a_funnel_is_exact(at, sd):
    """Given v all else is Gaussian, so that a nested Laplace approximation is none."""
    mean = np.array([at, 0.1, 0.0, -0.1, 0.0, 0.2])
    root = np.diag([sd, *5 * [0.8]])
    root[1, 0] = 0.2
    centre, spread = marginal(Funnel(), mean, root, 0)
    assert centre == pytest.approx(-at / sd, abs=0.02)
    assert spread == pytest.approx(WIDTH / sd, rel=0.01)


def test_of_a_gaussian_it_is_the_gaussian():
    root = np.linalg.cholesky(np.linalg.inv(Bell.precision))
    for j in range(4):
        centre, spread = marginal(Bell(), np.ones(4), root, j)
        assert centre == pytest.approx(0, abs=1e-3)
        assert spread == pytest.approx(1, abs=1e-3)


def test_a_profile_that_is_cut_short_says_only_that_there_is_more():
    class Cliff(Bell):
        """No place for the others below 0: a Hessian that is not negative definite."""

        def curvature(self, point):
            value, gradient, hessian = super().curvature(point)
            return value, gradient, hessian * (1 if point[0] > 0 else -1)

    root = np.linalg.cholesky(np.linalg.inv(Bell.precision))
    wide, narrow = 3 * root, 0.3 * root
    assert marginal(Cliff(), np.ones(4), wide, 0) is None  # too few stops, or narrower
    assert marginal(Cliff(), np.ones(4), narrow, 0)[1] > 1.3  # what is seen is wider already


def test_the_parameter_that_rules_the_others_is_found():
    root = np.diag([0.6, *5 * [0.9]])
    fresh = judged(Funnel(), np.zeros(6), root, 0, 1000, all_of_them=True)
    effects, errors = effects_of(fresh, root)
    assert ruling(fresh, root) == 0
    assert np.abs(effects[1:]).max() < 4 * errors[1:].max()
    plain = judged(Bell(), np.ones(4), np.eye(4), 0, 1000, all_of_them=True)
    assert ruling(plain, np.eye(4)) is None


def test_draws_out_of_the_support_rule_nothing():
    fresh = judged(Funnel(), np.zeros(6), np.eye(6), 0, 200, all_of_them=True)
    log_p = np.where(np.arange(200) == 3, -np.inf, fresh.log_p)
    assert ruling(dataclasses.replace(fresh, log_p=log_p), np.eye(6)) is None


def test_heights_between_stops_are_those_of_a_parabola():
    at = np.linspace(0, 5, 77)
    found = _interpolated(-0.7 * (np.arange(6.0) - 2.2) ** 2, at)
    np.testing.assert_allclose(found, -0.7 * (at - 2.2) ** 2, atol=1e-12)


def test_the_worse_of_two_answers_counts():
    moments = Moments(0.5, 0.1, 0.2, 0.02, 3, 1.2, 0.02, 4, 0.0)
    assert _with(moments, 1, 0.1, 1.1) == moments
    rough = dataclasses.replace(moments, mean_off=0.0, sd_ratio=1.0)
    assert _with(rough, 1, 0.09, 1.09) == rough  # a profile is no better than that
    other = _with(moments, 1, -0.9, 0.5)
    assert (other.sd_ratio, other.sd_at, other.mean_at) == (2.0, 1, 1)
    assert other.mean_off == pytest.approx(1.8)


def test_what_is_not_profiled_is_left_alone():
    fresh = judged(Funnel(), np.zeros(6), np.eye(6), 0, 200, all_of_them=True)
    assert fresh.diagnosis.moments is None
    assert profiled(Funnel(), np.zeros(6), np.eye(6), fresh) is fresh


@pytest.mark.slow
def test_a_hierarchy_of_few_groups_is_no_longer_trusted():
    """Its Gaussian has less than a third of the spread of log tau, and no draw sees it."""
    centred, integrated = few_groups.densities(few_groups.PRIORS["half-normal"], 0.6, 4, 5)
    start = {**few_groups.START, "clinic": np.zeros(few_groups.K)}
    post = mixvi.fit(centred, start, constraints=few_groups.BOUNDS)
    exact = few_groups.exact(
        integrated, mixvi.fit(integrated, few_groups.START, constraints=few_groups.BOUNDS)
    )
    assert exact[1] > 2 * post.flat_std[post.names.index("log tau")]
    assert post.trust == "reject"
    assert "tau" in {reason.parameter for reason in post.reasons}


def test_a_hierarchy_that_is_nearly_gaussian_stays_trusted():
    rng = np.random.default_rng(0)
    y = rng.normal(0, 1.0, 40)[:, None] + 0.5 * rng.standard_normal((40, 8))

    def centred(w):
        groups = -0.5 * ((w["theta"] - w["mu"]) / jnp.exp(w["log_tau"])) ** 2 - w["log_tau"]
        rows = -0.5 * ((y - w["theta"][:, None]) / 0.5) ** 2
        return groups.sum() + rows.sum() - 0.5 * (w["mu"] ** 2 + w["log_tau"] ** 2)

    post = mixvi.fit(centred, {"mu": 0.0, "log_tau": 0.0, "theta": np.zeros(40)})
    assert post.trust == "trust"
    assert math.isfinite(post.khat)


@pytest.mark.parametrize("apart", [0.2, 0.6, 1.5])
def test_a_mixture_is_told_of_the_neck_that_it_leaves_out(apart):
    """Two Gaussians along v, `apart` from its mean: the variance of v is known on both sides. One
    that is too wide is left to the draws."""
    root = np.diag([0.6, *5 * [0.9]])
    its = judged(Funnel(), np.zeros(6), root, 0, 1000, all_of_them=True)
    one, means = Gaussian(np.zeros(6), root), np.zeros((2, 6))
    means[:, 0] = -apart, apart
    law = GaussianMixture(np.full(2, 0.5), tuple(Gaussian(mean, root) for mean in means))
    no_error = Moments(0.2, 0.05, 0.0, 0.01, 1, 1.0, 0.01, 1, 0.0)
    fresh = dataclasses.replace(its, diagnosis=dataclasses.replace(its.diagnosis, moments=no_error))
    told = profiled_mixture(Funnel(), law, fresh, one, lambda: its).diagnosis.moments
    ratio = WIDTH / math.hypot(0.6, apart)
    if ratio > 1.1:
        assert told.sd_ratio == pytest.approx(ratio, rel=0.02)
        assert told.sd_at == 0
        assert told.mean_off == 0
    else:
        assert told is no_error


def test_two_gaussians_on_a_centred_hierarchy_are_not_trusted():
    """Means and sds by quadrature. Draws alone see a sixth of the error in `log tau`."""
    _, make = mixture_models.SHAPES[
        "hierarchy: 6-D, centred, y (3.0, 1.0, -2.0, 0.0), se (2.0, 1.0, 2.0, 3.0)"
    ]
    shape = make()
    post = mixvi.fit(
        shape.log_density, shape.init, shape.data, family=mixvi.Mixture(2), key=1, throw=False
    )
    assert len(post.law.weights) == 2
    off = shape.sd[1] / post.flat_std[1]
    assert off > 1.5
    assert post.trust == "reject"
    told = next(one for one in post.reasons if one.test == "sd")
    assert told.parameter == post.names[1]
    assert 1 + 0.7 * (off - 1) < told.value < off
