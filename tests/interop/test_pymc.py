"""PyMC and Bambi models against known answers and against the same model in plain JAX."""

import warnings
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi.interop import pandas as frames

with warnings.catch_warnings():
    # ArviZ 0.2x speaks of its future once a day.
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")
    import pytensor

import mixvi.interop.pymc as adaptor
from mixvi.interop._pymc_graphs import graphs_of
from mixvi.interop._pymc_model import Reading

pytestmark = [
    # Of what PyTensor warns, its BLAS for one, nothing is ours.
    pytest.mark.filterwarnings("ignore:::pytensor"),
    pytest.mark.filterwarnings("ignore:::pymc"),
]

SMALL = np.array([0.5, -1.0, 0.2, 1.1, -0.4, 0.3, 2.0, -1.2])
GROUP = np.repeat(np.arange(6), 8)
Y = 1 + 0.8 * np.random.default_rng(3).standard_normal(6)[GROUP]
Y = Y + np.random.default_rng(4).standard_normal(48)


@pytest.fixture
def interpreted():
    """PyTensor without a C compiler, which would take most of the time."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        yield


def conjugate():
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 3.0)
        pm.Normal("y", mu, 2.0, observed=SMALL)
    return model


def half_normal():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 5.0)
        pm.Normal("y", 0.0, sigma, observed=SMALL)
    return model


@pytest.fixture(scope="module")
def groups():
    """Varying intercepts, with everything that a model can name."""
    with pm.Model(coords={"group": list("abcdef"), "row": np.arange(48)}) as model:
        index = pm.Data("index", GROUP, dims="row")
        intercept = pm.Normal("intercept", 0, 5)
        tau = pm.HalfNormal("tau", 2)
        z = pm.Normal("z", dims="group")
        effect = pm.Deterministic("effect", intercept + tau * z, dims="group")
        sigma = pm.HalfNormal("sigma", 2)
        pm.Deterministic("ratio", tau / sigma)
        pm.Normal("y", effect[index], sigma, observed=Y, dims="row")
    return model


@pytest.fixture(scope="module")
def made(groups):
    return adaptor.approximate(groups, key=5)


def by_jax(w):
    """The same in plain JAX, normalised as PyMC does it."""

    def normal(x, mean, sd):
        return (-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)).sum()

    prior = normal(w["intercept"], 0, 5) + normal(w["z"], 0, 1)
    prior += normal(w["tau"], 0, 2) + normal(w["sigma"], 0, 2) + 2 * jnp.log(2)
    return prior + normal(Y, w["intercept"] + w["tau"] * w["z"][GROUP], w["sigma"])


def assert_same(one, other):
    np.testing.assert_allclose(one.flat_mean, other.flat_mean, atol=1e-6)
    np.testing.assert_allclose(one.cov, other.cov, atol=1e-6)
    assert one.elbo.value == pytest.approx(other.elbo.value, abs=1e-6)
    np.testing.assert_allclose(one.law.sample(9, 50), other.law.sample(9, 50), atol=1e-5)


# --- known answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["jax", "pytensor"])
def test_a_conjugate_normal_is_exact(backend, interpreted):
    post = adaptor.approximate(conjugate(), backend=backend).post
    precision = 1 / 9 + len(SMALL) / 4
    mean = (1 / 9 + SMALL.sum() / 4) / precision
    cov = 4 * np.eye(len(SMALL)) + 9
    evidence = -0.5 * (SMALL - 1) @ np.linalg.solve(cov, SMALL - 1)
    evidence -= 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    assert float(post.mean["mu"]) == pytest.approx(mean, abs=1e-6)
    assert float(post.std["mu"]) == pytest.approx(precision**-0.5, abs=1e-6)
    assert post.elbo.value == pytest.approx(evidence, abs=1e-6)
    assert (post.trust, post.family) == ("trust", "laplace")


@pytest.mark.parametrize("backend", ["jax", "pytensor"])
def test_a_scale_has_its_log_jacobian(backend, interpreted):
    """By quadrature over log sigma; left out, E sigma would be 1.11 in place of 1.21."""
    made = adaptor.approximate(half_normal(), "laplace", backend=backend, diagnostics=False)
    u = np.linspace(-3, 4, 20001)
    sigma = np.exp(u)
    log_p = -0.5 * (sigma / 5) ** 2 + np.log(2 / 5) - 4.5 * np.log(2 * np.pi)
    log_p += -0.5 * (SMALL @ SMALL) / sigma**2 - 8 * u + u
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    assert made.post.names == ("log sigma",)
    assert made.post.flat_mean[0] == pytest.approx(u[log_p.argmax()], abs=1e-3)
    labelled = made.labelled(1000, 1)
    its_u = np.log(labelled.draws["sigma"])
    np.testing.assert_allclose(labelled.log_p, np.interp(its_u, u, log_p), atol=1e-4)
    ratios = np.exp(labelled.log_p - labelled.log_q)
    mean = ratios @ labelled.draws["sigma"] / ratios.sum()
    assert mean == pytest.approx(weight @ sigma, abs=0.05)


def test_a_hierarchical_model_is_the_same_in_plain_jax(made):
    start = {"intercept": 0.0, "sigma": 1.0, "tau": 1.0, "z": np.zeros(6)}
    bounds = {"sigma": "positive", "tau": "positive"}
    plain = mixvi.fit(by_jax, start, constraints=bounds, key=5)
    assert made.post.names == plain.names
    assert_same(made.post, plain)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # pandas
def test_a_formula_of_bambi_is_the_same_in_pymc():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bambi = pytest.importorskip("bambi")
    pd = pytest.importorskip("pandas")
    effect = bambi.Prior("Normal", mu=0, sigma=bambi.Prior("HalfNormal", sigma=2))
    priors = {
        "Intercept": bambi.Prior("Normal", mu=0, sigma=5),
        "1|g": effect,
        "sigma": bambi.Prior("HalfNormal", sigma=2),
    }
    frame = pd.DataFrame({"y": Y, "g": np.array(list("abcdef"))[GROUP]})
    formula = bambi.Model("y ~ 1 + (1|g)", frame, priors=priors)
    made = adaptor.approximate(formula, key=5)
    assert made.post.names[6:] == ("log 1|g_sigma", "Intercept", "log sigma")
    with pm.Model() as model:  # with names that come in the same order
        z, tau = pm.Normal("a", shape=6), pm.HalfNormal("b", 2)
        intercept, sigma = pm.Normal("c", 0, 5), pm.HalfNormal("d", 2)
        pm.Normal("y", intercept + tau * z[GROUP], sigma, observed=Y)
    assert_same(made.post, adaptor.approximate(model, key=5).post)
    assert made.labelled(5).draws["1|g"].shape == (5, 6)


def test_a_potential_is_a_factor():
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 3.0)
        pm.Potential("seen", -0.5 * ((SMALL - mu) ** 2).sum() / 4)
    its, other = (adaptor.approximate(one).post for one in (model, conjugate()))
    assert float(its.mean["mu"]) == pytest.approx(float(other.mean["mu"]), abs=1e-9)
    assert float(its.std["mu"]) == pytest.approx(float(other.std["mu"]), abs=1e-9)


def test_both_ways_are_one_density_whatever_the_transforms(interpreted):
    with pm.Model() as model:
        w, u = pm.Dirichlet("w", np.full(3, 4.0)), pm.Uniform("u", -1, 2)
        p, z = pm.Beta("p", 3, 3), pm.ZeroSumNormal("z", shape=3)
        cov = pm.math.stack([[1.0, u / 4], [u / 4, 1.0]])
        x = pm.MvNormal("x", np.zeros(2), cov=cov)
        pm.Normal("y", w[1] + z[2] + p * x[0], 1.0, observed=SMALL)
    reading = Reading(model)
    start = reading.start({"p": 0.25})
    assert start["logit p"] == pytest.approx(-np.log(3))
    jax_way, other = (graphs_of(reading, start, backend) for backend in ("jax", "pytensor"))
    flat = 0.3 * np.random.default_rng(0).standard_normal((5, other.dim))
    ends = np.cumsum([one.size for one in start.values()])
    points = OrderedDict(
        (name, flat[:, end - one.size : end].reshape(5, *one.shape))
        for end, (name, one) in zip(ends, start.items(), strict=True)
    )
    values, gradients = other.log_density.gradients(flat)
    with jax.enable_x64(True):
        found, slopes = jax.vmap(jax.value_and_grad(jax_way.log_density))(points)
        slopes = np.concatenate([np.reshape(one, (5, -1)) for one in slopes.values()], 1)
    np.testing.assert_allclose(found, values, rtol=1e-10)
    np.testing.assert_allclose(slopes, gradients, atol=1e-9)
    some, others = (one.evaluated("draws", reading.shown, points) for one in (jax_way, other))
    for name in ("w", "u", "p", "z", "x"):
        np.testing.assert_allclose(some[name], others[name], atol=1e-12)
    np.testing.assert_allclose(some["w"].sum(1), 1)
    np.testing.assert_allclose(some["z"].sum(1), 0, atol=1e-12)


# --- what comes back --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(made):
    return made.to_arviz(200, 2)


def test_dims_coords_and_data_come_through(data):
    its = data.posterior
    assert its["effect"].dims == its["z"].dims == ("chain", "draw", "group")
    assert list(its["group"].values) == list("abcdef")
    assert data.log_likelihood["y"].dims == ("chain", "draw", "row")
    np.testing.assert_array_equal(data.observed_data["y"].values, Y)
    np.testing.assert_array_equal(data.constant_data["index"].values, GROUP)
    assert set(its.data_vars) == {"intercept", "tau", "z", "effect", "sigma", "ratio"}


def test_deterministics_are_functions_of_the_draws(data):
    its = data.posterior
    effect = its["intercept"] + its["tau"] * its["z"]
    np.testing.assert_allclose(its["effect"].values, effect.values, rtol=1e-12)
    np.testing.assert_allclose(its["ratio"].values, (its["tau"] / its["sigma"]).values, rtol=1e-12)
    assert (its["tau"].values > 0).all()


def test_log_densities_are_those_of_pymc(data, groups, made, interpreted):
    few = data.posterior.isel(draw=slice(0, 4))
    values = few.to_dataset() if hasattr(few, "to_dataset") else few
    theirs = pm.compute_log_likelihood(
        data, model=groups, extend_inferencedata=False, progressbar=False
    )
    np.testing.assert_allclose(data.log_likelihood["y"].values, theirs["y"].values, rtol=1e-10)
    log_p = groups.compile_logp()
    for i in range(4):
        point = {name: values[name].values[0, i] for name in ("intercept", "z")}
        logs = {f"{name}_log__": np.log(values[name].values[0, i]) for name in ("tau", "sigma")}
        here = data.sample_stats["log_p"].values[0, i]
        assert here == pytest.approx(float(log_p({**point, **logs})), rel=1e-10)


def test_fit_gives_the_draws_of_approximate_and_says_the_verdict(groups, made):
    with pm.Model():
        pm.Cauchy("x", 0, 1)  # no Gaussian is this
        with pytest.warns(adaptor.NotTrustedWarning, match="^(Do not trust|Use with)"):
            found = adaptor.fit(n=10)
    assert found.attrs["trust"] in ("weigh", "reject")
    assert found.attrs["verdict"]
    with warnings.catch_warnings():
        if made.trust != "trust":
            warnings.simplefilter("ignore", adaptor.NotTrustedWarning)
        found = adaptor.fit(groups, n=10, key=5, log_likelihood=False)
    np.testing.assert_array_equal(found.posterior["z"].values[0], made.sample(5, 10)["z"])
    assert found.attrs["status"] == made.post.status
    assert not hasattr(found, "log_likelihood")


def test_the_summary_speaks_of_the_model(made):
    text = made.summary(20)
    assert text.startswith(made.verdict)
    assert "effect[a]" in text
    assert "log tau" not in text.split("parameter ")[1]
    frame = frames.summary(made)
    np.testing.assert_allclose(frame.loc["z[b]", "mean"], made.post.mean["z"][1], atol=0.1)
    assert "effect" in repr(made)
    assert "<table>" in made._repr_html_()


def test_a_second_fit_compiles_nothing_and_new_data_are_seen():
    with pm.Model() as model:
        y = pm.Data("y_data", SMALL)
        pm.Normal("obs", pm.Normal("mu", 1, 3), 2, observed=y)
    first = adaptor.approximate(model)
    assert adaptor.approximate(model, "mu").graphs is first.graphs
    with model:
        pm.set_data({"y_data": SMALL + 1})
    again = adaptor.approximate(model)
    assert again.graphs is not first.graphs
    assert float(again.post.mean["mu"] - first.post.mean["mu"]) == pytest.approx(2 / (1 / 9 + 2))


def test_a_start_without_a_slope_is_left():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)  # begins at zero, where |x|^1.5 / |x|^0.5 is 0 / 0
        pm.Potential("pull", -(pm.math.abs(x) ** 1.5) / pm.math.abs(x) ** 0.5 + x)
    post = adaptor.approximate(model, diagnostics=False).post
    assert abs(float(post.mean["x"])) < 2
    with pytest.raises(mixvi.NonFiniteError, match="at the start"):
        adaptor.approximate(model, init={"x": 0.0})


def test_a_start_is_a_start_used():
    with pm.Model() as model:
        x = pm.Flat("x")  # two modes; the one near the start is found
        pm.Potential("two", -8 * (x**2 - 1) ** 2)
    for at in (-0.9, 0.9):
        post = adaptor.approximate(model, "laplace", init={"x": at}, diagnostics=False).post
        assert np.sign(post.flat_mean[0]) == np.sign(at)


# --- what is refused --------------------------------------------------------------------------


def test_what_cannot_be_gets_a_sentence():
    with pm.Model() as discrete:
        pm.Normal("y", pm.Bernoulli("switch", 0.5), 1.0, observed=SMALL)
    with pm.Model() as minibatch:
        rows = pm.Minibatch(np.arange(100.0), batch_size=10)
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=rows, total_size=100)
    for model, words in [
        (
            discrete,
            r"discrete free variables: switch.*pymc_extras.marginalize\(model, \['switch'\]",
        ),
        (minibatch, "draws random numbers.*y a pm.Minibatch"),
        (pm.Model(), "no free variables"),
        (conjugate, "not function"),
        (None, "inside `with model:`"),
    ]:
        with pytest.raises(mixvi.InputError, match=words):
            adaptor.fit(model)
    model = conjugate()
    with pytest.raises(mixvi.InputError, match=r"no free variable 'm'\. There are mu"):
        adaptor.fit(model, init={"m": 1.0})
    with pytest.raises(mixvi.InputError, match="backend must be one of"):
        adaptor.fit(model, backend="numba")
    with pytest.raises(TypeError, match="did you mean 'draws'"):
        adaptor.fit(model, drawz=100)
