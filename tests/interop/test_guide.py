"""`AutoMVI` wherever a guide of NumPyro's is."""

import functools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import SVI, Predictive, Trace_ELBO, TraceMeanField_ELBO

import mixvi
from mixvi.interop import numpyro as mvi

X = np.linspace(-1, 1, 30)
Y = 0.5 + 2 * X + 0.3 * np.random.default_rng(0).standard_normal(30)


def line(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 3))
    level = numpyro.sample("level", dist.Normal(0, 3))
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    mean = numpyro.deterministic("mean", level + slope * x)
    numpyro.sample("y", dist.Normal(mean, sd), obs=y)


@functools.cache
def fitted():
    guide = mvi.AutoMVI(line)
    return guide, guide.fit(jax.random.key(0), X, Y)


def test_numbers_of_the_fit():
    guide, params = fitted()
    post = guide.fitted
    assert post.trust == "trust"
    draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(4000,))
    assert draws["mean"].shape == (4000, 30)
    for name in ("slope", "level", "sd"):
        np.testing.assert_allclose(draws[name].mean(), post.mean[name], atol=0.02)
        np.testing.assert_allclose(draws[name].std(), post.std[name], rtol=0.06)
    np.testing.assert_allclose(guide.median(params)["sd"], post.quantiles(0.5)["sd"], rtol=1e-5)
    low, high = guide.quantiles(params, [0.05, 0.95])["slope"]
    np.testing.assert_allclose([low, high], post.quantiles([0.05, 0.95])["slope"], rtol=1e-5)
    # NumPyro's order, which is not ours
    names = list(guide._init_locs)
    places = post.unconstrained_places(names)
    theirs = guide.get_posterior(params)
    cov = post.post.cov[np.ix_(places, places)]
    np.testing.assert_allclose(theirs.covariance_matrix, cov, rtol=1e-4, atol=1e-7)


def test_predictive():
    guide, params = fitted()
    predictive = Predictive(line, guide=guide, params=params, num_samples=200)
    made = predictive(jax.random.key(0), np.array([0.0, 1.0]))
    assert made["y"].shape == (200, 2)
    np.testing.assert_allclose(made["y"].mean(0), [0.5, 2.5], atol=0.2)


def test_inside_svi():
    """Begins at the best bound, which steps do not lift."""
    with pytest.raises(mixvi.InputError, match="not fitted yet"):
        mvi.AutoMVI(line).sample_posterior(jax.random.key(0), {})
    guide = mvi.AutoMVI(line)
    svi = SVI(line, guide, numpyro.optim.Adam(1e-4), Trace_ELBO(num_particles=200))
    state = svi.init(jax.random.key(0), X, Y)
    bound = -svi.evaluate(state, X, Y)
    np.testing.assert_allclose(bound, guide.fitted.elbo.value, atol=0.1)
    result = svi.run(jax.random.key(1), 3, X, Y, progress_bar=False, init_state=state)
    np.testing.assert_allclose(
        result.params["auto_loc"], svi.get_params(state)["auto_loc"], atol=1e-3
    )


def test_options():
    guide = mvi.AutoMVI(line, "laplace", prefix="mine", diagnostics=False)
    params = guide.fit(0, X, Y)
    assert set(params) == {"mine_loc", "mine_scale_tril"}
    assert guide.fitted.post.family == "laplace"


def with_param(y):
    sd = numpyro.param("sd", 1.0, constraint=dist.constraints.positive)
    numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0, 1)), sd), obs=y)


def test_refusals():
    with pytest.raises(mixvi.InputError, match="this one has no data"):
        Predictive(line, guide=mvi.AutoMVI(line), params={}, num_samples=2)(jax.random.key(0), X)
    with pytest.raises(mixvi.InputError, match="param site 'sd'"):
        mvi.AutoMVI(with_param).fit(0, Y)
    with pytest.raises(mixvi.InputError, match="not fitted yet"):
        mvi.AutoMVI(line).sample_posterior(jax.random.key(0), {})
    guide = mvi.AutoMVI(line)
    svi = SVI(line, guide, numpyro.optim.Adam(1e-3), TraceMeanField_ELBO())
    with pytest.raises(mixvi.InputError, match=r"before jax\.jit"):
        jax.jit(svi.init)(jax.random.key(0), X, Y)
