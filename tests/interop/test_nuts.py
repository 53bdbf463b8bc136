"""What NUTS is handed: matrices and starts in the order and on the scale of each library."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS

import mixvi
from mixvi.interop import numpyro as mvi
from mixvi.interop import nuts

COV = np.array([[4.0, 1.2, 0.0], [1.2, 1.0, 0.3], [0.0, 0.3, 0.25]])


def gaussian():
    """Sites in an order that is not that of their names."""
    z = numpyro.sample("z", dist.MultivariateNormal(jnp.array([1.0, -1.0, 0.5]), COV))
    numpyro.sample("a", dist.LogNormal(0.3 + z[0], 0.1))


@pytest.fixture(scope="module")
def fitted():
    return mvi.fit(gaussian, family="laplace")


def test_numpyro(fitted):
    handed = nuts.numpyro(fitted)
    # log a = 0.3 + z_0 + 0.1 e
    full = np.block([[COV[:1, :1] + 0.01, COV[:1]], [COV[:, :1], COV]])
    np.testing.assert_allclose(handed["inverse_mass_matrix"], full, rtol=1e-6, atol=1e-9)
    diagonal = nuts.numpyro(fitted, dense=False)
    np.testing.assert_allclose(diagonal["inverse_mass_matrix"], np.diag(full), rtol=1e-6)
    assert diagonal["dense_mass"] is False

    kernel = NUTS(gaussian, **handed)
    mcmc = MCMC(
        kernel,
        num_warmup=30,
        num_samples=500,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), extra_fields=("num_steps",))
    (kept,) = mcmc.last_state.adapt_state.inverse_mass_matrix.values()
    np.testing.assert_allclose(kept[0], full, rtol=1e-5, atol=1e-6)
    # a round target takes few steps: NUTS from the identity takes over 50
    assert mcmc.get_extra_fields()["num_steps"].mean() < 10
    np.testing.assert_allclose(mcmc.get_samples()["z"].mean(0), [1, -1, 0.5], atol=0.2)


def test_starts_of_chains_are_draws(fitted):
    """Each chain has its own, with the correlations of the Gaussian."""
    kernel = NUTS(gaussian, **nuts.numpyro(fitted))
    keys = jax.random.split(jax.random.key(0), 2000)
    state = kernel.init(keys, 0, None, (), {})
    z = np.asarray(state.z["z"])
    np.testing.assert_allclose(np.cov(z.T), COV, atol=0.3)
    np.testing.assert_allclose(np.std(np.asarray(state.z["a"]) - z[:, 0] - 0.3), 0.1, rtol=0.1)


def test_blackjax():
    blackjax = pytest.importorskip("blackjax")

    def log_density(w, data):
        r = (data - w["loc"]) / w["sd"]
        return (-0.5 * r**2 - jnp.log(w["sd"])).sum() - w["sd"]

    data = np.random.default_rng(0).normal(3.0, 2.0, 50).astype(np.float32)
    post = mixvi.fit(log_density, {"loc": 0.0, "sd": 1.0}, data, constraints={"sd": "positive"})
    value = nuts.unbounded(post, log_density, data)
    starts = nuts.starts(post, 3, key=1)
    u = post.law.sample(1, 3)
    np.testing.assert_allclose(starts["sd"], u[:, 1])
    np.testing.assert_allclose(nuts.bounded(post, starts)["sd"], np.exp(u[:, 1]))
    at = {"loc": jnp.float32(1.0), "sd": jnp.float32(0.3)}
    want = log_density({"loc": 1.0, "sd": np.exp(0.3)}, data) + 0.3
    np.testing.assert_allclose(value(at), want, rtol=1e-5)

    kernel = blackjax.nuts(value, **nuts.blackjax(post))
    state = kernel.init({name: jnp.float32(x[0]) for name, x in starts.items()})

    @jax.jit
    def chain(key, state):
        def step(state, key):
            state, info = kernel.step(key, state)
            return state, (state.position, info.acceptance_rate)

        return jax.lax.scan(step, state, jax.random.split(key, 1000))[1]

    positions, accepted = chain(jax.random.key(0), state)
    assert accepted.mean() > 0.7
    draws = nuts.bounded(post, positions)
    np.testing.assert_allclose(draws["loc"].mean(), post.mean["loc"], atol=0.1)
    np.testing.assert_allclose(draws["sd"].mean(), post.mean["sd"], atol=0.1)
    np.testing.assert_allclose(
        nuts.blackjax(post, dense=False)["inverse_mass_matrix"], post.flat_std**2
    )


def test_nutpie(fitted):
    nutpie = pytest.importorskip("nutpie")
    compiled = nuts.nutpie(fitted)
    trace = nutpie.sample(
        compiled, draws=500, tune=100, chains=2, cores=1, seed=1, progress_bar=False
    )
    z = trace.posterior["z"].values
    assert z.shape == (2, 500, 3)
    np.testing.assert_allclose(np.cov(z.reshape(-1, 3).T), COV, atol=0.8)
    np.testing.assert_allclose(trace.posterior["z"].mean(("chain", "draw")), [1, -1, 0.5], atol=0.4)


def test_refusals(fitted):
    with pytest.raises(mixvi.InputError, match=r"takes a mixvi\.Posterior or a fitted model"):
        nuts.blackjax(3)
    with pytest.raises(mixvi.InputError, match="does not keep its log density"):
        nuts.unbounded(fitted.post)
