"""One hierarchical model in plain JAX, NumPyro, PyMC and Bambi: one posterior, with one key.

Flat parameters are ordered by their names, and draws go with that order: all four have Bambi's.
"""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi

numpyro = pytest.importorskip("numpyro")
pm = pytest.importorskip("pymc")
pd = pytest.importorskip("pandas")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    bambi = pytest.importorskip("bambi")

import mixvi.interop.numpyro as of_numpyro  # noqa: E402
import mixvi.interop.pymc as of_pymc  # noqa: E402

dist = numpyro.distributions
N_GROUPS, KEY = 6, 5
GROUP = np.repeat(np.arange(N_GROUPS), 5)
rng = np.random.default_rng(3)
Y = 1.0 + rng.standard_normal(N_GROUPS)[GROUP] + 0.7 * rng.standard_normal(len(GROUP))
Z, TAU, CENTRE, NOISE = "1|g_offset", "1|g_sigma", "Intercept", "sigma"
START = {Z: np.full(N_GROUPS, 0.1), TAU: 0.8, CENTRE: 0.9, NOISE: 0.75}


def normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)


def by_jax(w):
    prior = normal(w[Z], 0.0, 1.0).sum() + normal(w[CENTRE], 0.0, 5.0)
    prior += normal(w[TAU], 0.0, 2.0) + normal(w[NOISE], 0.0, 2.0) + 2 * jnp.log(2.0)
    return prior + normal(Y, w[CENTRE] + w[TAU] * w[Z][GROUP], w[NOISE]).sum()


def in_numpyro():
    with numpyro.plate("group", N_GROUPS):
        z = numpyro.sample(Z, dist.Normal(0, 1))
    tau = numpyro.sample(TAU, dist.HalfNormal(2))
    centre = numpyro.sample(CENTRE, dist.Normal(0, 5))
    noise = numpyro.sample(NOISE, dist.HalfNormal(2))
    numpyro.sample("y", dist.Normal(centre + tau * z[GROUP], noise), obs=Y)


def in_pymc():
    with pm.Model() as model:
        z, tau = pm.Normal(Z, shape=N_GROUPS), pm.HalfNormal(TAU, 2)
        centre, noise = pm.Normal(CENTRE, 0, 5), pm.HalfNormal(NOISE, 2)
        pm.Normal("y", centre + tau * z[GROUP], noise, observed=Y)
    return model


def in_bambi():
    effect = bambi.Prior("Normal", mu=0, sigma=bambi.Prior("HalfNormal", sigma=2))
    priors = {CENTRE: bambi.Prior("Normal", mu=0, sigma=5), "1|g": effect}
    priors[NOISE] = bambi.Prior("HalfNormal", sigma=2)
    frame = pd.DataFrame({"y": Y, "g": np.array(list("abcdef"))[GROUP]})
    return bambi.Model("y ~ 1 + (1|g)", frame, priors=priors)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # pandas
def test_one_posterior():
    bounds = {TAU: "positive", NOISE: "positive"}
    posts = {
        "JAX": mixvi.fit(by_jax, START, constraints=bounds, key=KEY),
        "NumPyro": of_numpyro.fit(in_numpyro, init=START, key=KEY).post,
        "PyMC": of_pymc.approximate(in_pymc(), init=START, key=KEY).post,
        "Bambi": of_pymc.approximate(in_bambi(), init=START, key=KEY).post,
    }
    first = posts["JAX"]
    assert len(first.names) == N_GROUPS + 3
    for name, post in posts.items():
        np.testing.assert_allclose(post.flat_mean, first.flat_mean, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(post.cov, first.cov, atol=1e-6, err_msg=name)
        assert post.elbo.value == pytest.approx(first.elbo.value, abs=1e-6), name
        assert (post.family, post.trust) == (first.family, first.trust), name
