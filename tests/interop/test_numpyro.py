"""NumPyro models through `mixvi.interop.numpyro`, held to known answers."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import Predictive, init_to_value
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density

import mixvi
from mixvi.interop import numpyro as mvi

Y = np.array([2.1, -0.4, 1.7, 0.9, 1.1])
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def conjugate(y, sd=2.0):
    mu = numpyro.sample("mu", dist.Normal(1.0, 3.0))
    numpyro.sample("y", dist.Normal(mu, sd), obs=y)


def scale(y):
    s = numpyro.sample("s", dist.HalfNormal(1.5))
    numpyro.sample("y", dist.Normal(0.0, s), obs=y)


def schools(errors, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(5))
    with numpyro.plate("school", len(errors)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.deterministic("twice", 2 * theta + tau)
        numpyro.sample("y", dist.Normal(theta, errors), obs=y)


@functools.cache
def of_schools():
    return mvi.fit(
        handlers.reparam(schools, config={"theta": LocScaleReparam(0)}), ERRORS, y=SCHOOLS
    )


# --- known answers ----------------------------------------------------------------------------


def test_a_conjugate_model():
    fitted = mvi.fit(conjugate, Y)
    precision = 1 / 9 + len(Y) / 4
    assert fitted.post.names == ("mu",)
    np.testing.assert_allclose(fitted.mean["mu"], (1 / 9 + Y.sum() / 4) / precision, rtol=1e-7)
    np.testing.assert_allclose(fitted.std["mu"], precision**-0.5, rtol=1e-7)
    cov = 4 * np.eye(5) + 9
    r = Y - 1.0
    evidence = -0.5 * (r @ np.linalg.solve(cov, r) + np.linalg.slogdet(2 * np.pi * cov)[1])
    np.testing.assert_allclose(fitted.log_evidence, evidence, atol=1e-7)
    assert fitted.trust == "trust"


@pytest.mark.parametrize("prior", [dist.HalfNormal(1.5), dist.LogNormal(0.2, 1.0)])
def test_the_jacobian_of_a_scale(prior):
    """The best Gaussian in log s, by quadrature of the density with its Jacobian."""

    def model(y):
        numpyro.sample("y", dist.Normal(0.0, numpyro.sample("s", prior)), obs=y)

    fitted = mvi.fit(model, Y)
    u = np.linspace(-4, 5, 20_001)
    log_prior = np.array(prior.log_prob(np.exp(u)), dtype=float)
    log_p = log_prior + u - len(Y) * (u + 0.5 * np.log(2 * np.pi)) - 0.5 * (Y @ Y) * np.exp(-2 * u)
    mass = np.exp(log_p).sum() * (u[1] - u[0])
    # what the bound loses is the divergence, which is small here
    assert 0 <= np.log(mass) - fitted.log_evidence < 0.05
    wrong = log_p - u
    assert abs(np.log(np.exp(wrong).sum() * (u[1] - u[0])) - fitted.log_evidence) > 0.1
    points = fitted.post.law.sample(1, 50)
    labelled = fitted.labelled(50, 1)
    np.testing.assert_allclose(labelled.log_p, np.interp(points[:, 0], u, log_p), atol=1e-4)
    np.testing.assert_allclose(labelled.log_q, fitted.post.law.log_prob(points))
    np.testing.assert_allclose(np.log(labelled.draws["s"]), points[:, 0])


def test_as_plain_jax():
    """The same posterior as `mixvi.fit` of the density written out, with the same key."""

    def log_p(w, data):
        errors, y = data
        mu, tau, z = w["mu"], w["tau"], w["theta_decentered"]
        total = -0.5 * (mu / 5) ** 2 - jnp.log(5.0) - 0.5 * jnp.log(2 * jnp.pi)
        total += -0.5 * (tau / 5) ** 2 - jnp.log(5.0) + 0.5 * jnp.log(2 / jnp.pi)
        total += (-0.5 * z**2 - 0.5 * jnp.log(2 * jnp.pi)).sum()
        r = (y - mu - tau * z) / errors
        return total + (-0.5 * r**2 - jnp.log(errors) - 0.5 * jnp.log(2 * jnp.pi)).sum()

    start = {"mu": 0.5, "tau": 4.0, "theta_decentered": np.full(8, 0.1)}
    model = handlers.reparam(schools, config={"theta": LocScaleReparam(0)})
    ours = mvi.fit(model, ERRORS, y=SCHOOLS, init=start, key=3)
    plain = mixvi.fit(log_p, start, data=(ERRORS, SCHOOLS), constraints={"tau": "positive"}, key=3)
    assert ours.post.names == plain.names
    np.testing.assert_allclose(ours.post.flat_mean, plain.flat_mean, atol=1e-6)
    np.testing.assert_allclose(ours.post.cov, plain.cov, atol=1e-6)
    np.testing.assert_allclose(ours.elbo.value, plain.elbo.value, atol=1e-6)


def exotic(n=3):
    numpyro.sample("free", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample(
        "cuts",
        dist.TransformedDistribution(
            dist.Normal(0, 1).expand([3]).to_event(1), dist.transforms.OrderedTransform()
        ),
    )
    numpyro.sample("root", dist.LKJCholesky(n, 2.0))
    numpyro.sample("part", dist.Uniform(-1.0, 3.0))
    low = numpyro.sample("low", dist.Uniform(0, 2))
    numpyro.sample("above", dist.TruncatedNormal(0.0, 1.0, low=low))
    numpyro.sample("below", dist.Uniform(low - 3.0, low))
    numpyro.sample("circle", dist.VonMises(0.3, 4.0))


@pytest.mark.filterwarnings("ignore:Continuous inference poorly handles circular")
def test_every_support_has_its_jacobian_and_its_place():
    """At draws: NumPyro's own potential over its own unbounded parameters. That holds only if maps,
    Jacobians and places agree."""
    from numpyro.infer.util import initialize_model

    fitted = mvi.fit(
        exotic, family="laplace", on_indefinite="absolute", throw=False, diagnostics=False
    )
    names = [site.name for site in fitted.sites.latent]
    flat = np.random.default_rng(0).normal(size=(4, fitted.post.dim))
    values = fitted._of_parameters(fitted.post._tree(flat), 4)
    assert len(fitted.sites.unnamed) == 4
    assert len(fitted.sites.kinds) == 4
    with jax.enable_x64(True):
        info = initialize_model(jax.random.key(0), exotic)
        for i, point in enumerate(flat):
            z = {
                n: point[fitted.unconstrained_places([n])].reshape(np.shape(info.param_info.z[n]))
                for n in names
            }
            ours = mixvi._fit._weights.log_density_at(
                fitted.post, flat[i : i + 1], fitted.log_density, None
            )
            np.testing.assert_allclose(ours[0], -info.potential_fn(z), rtol=1e-9)
            theirs = info.postprocess_fn(z)
            for name in names:
                np.testing.assert_allclose(values[name][i], theirs[name], rtol=1e-7, atol=1e-9)
    assert {"logit low", "logit part", "sticks share[0]"} <= set(fitted.post.names)
    assert "corr_cholesky root[0]" in fitted.post.names


def test_shares_of_a_dirichlet():
    counts = np.array([30, 50, 20])

    def model(counts):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("n", dist.Multinomial(100, p), obs=counts)

    fitted = mvi.fit(model, counts)
    np.testing.assert_allclose(fitted.mean["p"], (counts + 1) / 103, atol=2e-3)
    np.testing.assert_allclose(fitted.sample(0, 10)["p"].sum(1), 1.0)


# --- sites and draws --------------------------------------------------------------------------


def test_draws_are_of_sites_with_their_plates():
    fitted = of_schools()
    draws = fitted.sample(0, 300)
    assert {k: v.shape for k, v in draws.items()} == {
        "mu": (300,),
        "tau": (300,),
        "theta_decentered": (300, 8),
        "theta": (300, 8),
        "twice": (300, 8),
    }
    assert all(x.dtype == np.float64 for x in draws.values())
    theta = draws["mu"][:, None] + draws["tau"][:, None] * draws["theta_decentered"]
    np.testing.assert_allclose(draws["theta"], theta, rtol=1e-12)
    np.testing.assert_allclose(draws["twice"], 2 * theta + draws["tau"][:, None], rtol=1e-12)
    again = fitted.sample(0, 300)
    assert all(np.array_equal(draws[k], again[k]) for k in draws)
    np.testing.assert_allclose(
        fitted.mean["tau"], fitted.sample(1, 20_000)["tau"].mean(), rtol=0.03
    )
    assert fitted.quantiles([0.1, 0.9])["theta"].shape == (2, 8)
    assert "twice[0]" in fitted.summary(most=40)
    assert "log tau" not in fitted.summary(most=40)
    weighted = fitted.importance_weights(500)
    assert weighted.draws["theta"].shape == (500, 8)


def test_labels():
    labelled = of_schools().labelled(40, key=2)
    assert labelled.dims["theta"] == ("school",) == labelled.dims["twice"]
    assert labelled.dims["tau"] == ()
    np.testing.assert_array_equal(labelled.coords["school"], np.arange(8))
    np.testing.assert_array_equal(labelled.observed_data["y"], SCHOOLS)
    np.testing.assert_array_equal(labelled.constant_data["errors"], ERRORS)
    r = (SCHOOLS - labelled.draws["theta"]) / ERRORS
    want = -0.5 * r**2 - np.log(ERRORS) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(labelled.log_likelihood["y"], want, rtol=1e-10)
    assert np.isfinite(labelled.log_p).all()


def test_predictive():
    fitted = of_schools()
    model = fitted.call.model
    theirs = Predictive(model, posterior_samples=fitted.sample(0, 50))(jax.random.key(0), ERRORS)
    ours = fitted.predictive(0, 50, ERRORS)
    np.testing.assert_allclose(ours["y"], theirs["y"])
    assert ours["y"].shape == (50, 8)


def test_axes_of_plates_and_events():
    def model(x):
        with numpyro.plate("row", 4, dim=-2), numpyro.plate("column", 3, dim=-1):
            numpyro.sample(
                "w", dist.Normal(0, 1).expand([2]).to_event(1), infer={"event_dims": ["part"]}
            )
        with numpyro.plate("row", 4, dim=-1):
            numpyro.sample("v", dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))

    labelled = mvi.fit(model, 0.0, diagnostics=False).labelled(3)
    assert labelled.dims == {"w": ("row", "column", "part"), "v": ("row", "v_dim_1")}
    assert labelled.draws["w"].shape == (3, 4, 3, 2)


def test_a_chain_written_with_scan():
    from numpyro.contrib.control_flow import scan

    def model(y):
        sd = numpyro.sample("sd", dist.HalfNormal(1.0))

        def step(x, y_now):
            x = numpyro.sample("x", dist.Normal(0.8 * x, sd))
            numpyro.sample("y", dist.Normal(x, 0.5), obs=y_now)
            return x, None

        scan(step, 0.0, y)

    fitted = mvi.fit(model, Y)
    draws = fitted.sample(0, 20)
    assert draws["x"].shape == (20, 5)
    with jax.enable_x64(True):
        one = {name: jnp.asarray(x[0]) for name, x in draws.items()}
        want = log_density(model, (Y,), {}, one)[0] + jnp.log(one["sd"])
    np.testing.assert_allclose(fitted.labelled(20).log_p[0], want, rtol=1e-9)


# --- arguments --------------------------------------------------------------------------------


def test_new_data_compile_nothing():
    traces = []

    def model(y):
        traces.append(1)
        conjugate(y)

    a = mvi.fit(model, Y, diagnostics=False)
    n = len(traces)
    b = mvi.fit(model, Y + 1, diagnostics=False)
    assert len(traces) == n
    assert b.mean["mu"] > a.mean["mu"] + 0.5


def test_what_a_model_captures_is_seen_anew():
    world = {}

    def made(y):
        def model():
            conjugate(y)

        return model

    world = [mvi.fit(made(y), diagnostics=False).mean["mu"] for y in (Y, Y + 1)]
    assert world[1] > world[0] + 0.5


def test_a_model_that_needs_values():
    def model(group, y):
        n = int(group.max()) + 1
        m = numpyro.sample("m", dist.Normal(0, 1).expand([n]))
        numpyro.sample("y", dist.Normal(m[group], 1.0), obs=y[group >= 0])

    fitted = mvi.fit(model, np.array([0, 1, 1, 0, 2]), Y, diagnostics=False)
    assert fitted.mean["m"].shape == (3,)
    np.testing.assert_allclose(fitted.mean["m"][2], Y[4] / 2, rtol=1e-6)


def test_float64_with_float32_data():
    """Whatever the flag and the arrays say."""
    y = jnp.asarray(Y, jnp.float32)
    fitted = mvi.fit(conjugate, y)
    exact = np.asarray(y, np.float64)
    want = (1 / 9 + exact.sum() / 4) / (1 / 9 + 5 / 4)
    np.testing.assert_allclose(fitted.mean["mu"], want, rtol=1e-12)
    assert fitted.sample(0, 2)["mu"].dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_float64_after_float32():
    """JAX keeps constants of captured arrays: they neither stay float32 nor break what follows."""
    y = Y / 3

    def model():
        conjugate(y)

    def value(mu):
        return log_density(model, (), {}, {"mu": mu})[0] / jnp.exp(jnp.asarray(y)).sum()

    before = jax.jit(jax.grad(value))(1.0)
    fitted = mvi.fit(model)
    want = (1 / 9 + y.sum() / 4) / (1 / 9 + 5 / 4)
    np.testing.assert_allclose(fitted.mean["mu"], want, rtol=1e-12)
    assert jax.jit(jax.grad(value))(1.0) == before


def test_options_and_arguments():
    def model(y, draws):
        conjugate(y, draws)

    bound = functools.partial(model, draws=2.0)
    np.testing.assert_allclose(
        mvi.fit(bound, Y, draws=512, diagnostics=False).mean["mu"],
        mvi.fit(conjugate, Y, diagnostics=False).mean["mu"],
    )
    with pytest.raises(mixvi.InputError, match=r"'draws' is an option .* functools.partial"):
        mvi.fit(model, Y, draws=2.0)
    with pytest.raises(mixvi.InputError, match="'familly'; did you mean 'family'"):
        mvi.fit(conjugate, Y, familly="mu")


def test_starts():
    at = mvi.fit(scale, Y, init={"s": 3.0}, diagnostics=False)
    by = mvi.fit(scale, Y, init=init_to_value(values={"s": 0.4}), diagnostics=False)
    warm = mvi.fit(scale, Y + 0.1, init=at, diagnostics=False)
    np.testing.assert_allclose(at.mean["s"], by.mean["s"], rtol=1e-2)
    np.testing.assert_allclose(warm.mean["s"], by.mean["s"], rtol=0.2)
    with pytest.raises(mixvi.InputError, match="no latent site 'sigma'; there are s"):
        mvi.fit(scale, Y, init={"sigma": 3.0})
    with pytest.raises(mixvi.InputError, match=r"'s' has shape \(2,\), the site \(\)"):
        mvi.fit(scale, Y, init={"s": np.ones(2)})


# --- params, discrete sites, refusals ---------------------------------------------------------


def test_params_are_learnt():
    """Type-II likelihood: y_i ~ N(0, sd^2 + 1), whose maximum is known."""
    y = 2.5 * np.random.default_rng(0).standard_normal(200)

    def model(y):
        sd = numpyro.param("sd", 1.0, constraint=dist.constraints.positive)
        with numpyro.plate("row", len(y)):
            z = numpyro.sample("z", dist.Normal(0, sd))
            numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    fitted = mvi.fit(model, y, diagnostics=False)
    np.testing.assert_allclose(fitted.params["sd"], np.sqrt((y @ y) / 200 - 1), rtol=1e-3)
    assert list(fitted.post.hyper) == ["log sd"]
    assert fitted.labelled(5).log_likelihood["y"].shape == (5, 200)


def mixture(y):
    means = numpyro.sample("means", dist.Normal(jnp.array([-3.0, 3.0]), 1.0).to_event(1))
    with numpyro.plate("row", len(y)):
        k = numpyro.sample("k", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        numpyro.deterministic("own", means[k])
        numpyro.sample("y", dist.Normal(means[k], 1.0), obs=y)
    numpyro.deterministic("gap", means[1] - means[0])


def test_discrete_sites_are_summed_out():
    pytest.importorskip("funsor")
    rng = np.random.default_rng(0)
    y = np.where(rng.random(40) < 0.3, 3.0, -3.0) + rng.standard_normal(40)

    def by_hand(y):
        means = numpyro.sample("means", dist.Normal(jnp.array([-3.0, 3.0]), 1.0).to_event(1))
        parts = dist.MixtureSameFamily(
            dist.Categorical(jnp.array([0.7, 0.3])), dist.Normal(means, 1.0)
        )
        numpyro.sample("y", parts.expand([len(y)]), obs=y)

    ours, hand = mvi.fit(mixture, y), mvi.fit(by_hand, y)
    np.testing.assert_allclose(ours.mean["means"], hand.mean["means"], atol=1e-6)
    np.testing.assert_allclose(ours.elbo.value, hand.elbo.value, atol=1e-5)
    # what depends on a site that has no draws has none either
    assert set(ours.sample(0, 3)) == {"means", "gap"}
    assert ours.labelled(3).log_likelihood == {}


def test_funsor_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "funsor", None)
    with pytest.raises(mixvi.InputError, match=r"discrete sites, 'k': .*pip install funsor"):
        mvi.fit(mixture, Y)


def refused_by_poisson(y):
    rate = numpyro.sample("rate", dist.Gamma(1.0, 1.0))
    numpyro.sample("count", dist.Poisson(rate))


def refused_by_subsample(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", 5, subsample_size=2):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y[:2])


def refused_by_delta(y):
    numpyro.sample("point", dist.Delta(1.0))


def refused_by_discrete(y):
    numpyro.sample("k", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (refused_by_poisson, "cannot be summed out: 'count'"),
        (refused_by_subsample, "the plate 'rows' takes a subsample"),
        (refused_by_delta, "numpyro.deterministic"),
        (refused_by_discrete, "nothing to fit in this model: all its latent sites are discrete"),
        (lambda y: None, "it has no latent sites"),
    ],
)
def test_refusals(model, says):
    with pytest.raises(mixvi.InputError, match=says):
        mvi.fit(model, Y)


def test_series_are_arrays():
    pandas = pytest.importorskip("pandas")

    def model(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)

    x = np.linspace(-1, 1, 20)
    plain = mvi.fit(model, x, y=2 * x, key=1)
    framed = pandas.DataFrame({"x": x, "y": 2 * x})
    found = mvi.fit(model, framed["x"], y=framed["y"], key=1)
    np.testing.assert_array_equal(found.post.flat_mean, plain.post.flat_mean)

    def with_values(x, y=None):  # a model that knows that they are series
        model(x.to_numpy(), y.to_numpy())

    found = mvi.fit(with_values, framed["x"], y=framed["y"], key=1)
    np.testing.assert_allclose(found.post.flat_mean, plain.post.flat_mean, rtol=1e-10)


# --- imports ----------------------------------------------------------------------------------


def test_imports_are_lazy():
    code = (
        "import sys, mixvi, mixvi.interop; "
        "assert not {'numpyro', 'blackjax', 'funsor', 'nutpie'} & set(sys.modules); "
        "import mixvi.interop.nuts; "
        "assert not {'numpyro', 'blackjax', 'nutpie'} & set(sys.modules); "
        "import time, numpyro, numpyro.infer.autoguide; began = time.process_time(); "
        "import mixvi.interop.numpyro; took = time.process_time() - began; "
        "assert 'funsor' not in sys.modules; assert took < 2, took"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numpyro_is_missing():
    code = (
        "import sys; sys.modules['numpyro'] = None\n"
        "try:\n    import mixvi.interop.numpyro\n"
        "except ImportError as err:\n    assert \"pip install 'mixvi[numpyro]'\" in str(err)\n"
        "else:\n    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_after_nuts_a_fit_goes_on():
    """NUTS keeps programs in float32 that hold the same array."""
    y = np.random.default_rng(0).normal(size=50)

    def model(y):
        numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0, 5)), 1), obs=y)

    fitted = mvi.fit(model, y)
    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model), num_warmup=20, num_samples=20, progress_bar=False
    )
    sampler.run(jax.random.key(0), y)
    assert fitted.labelled(50) is not None
    again = mvi.fit(model, y)
    np.testing.assert_array_equal(again.mean["mu"], fitted.mean["mu"])


def test_half_observed_sites_are_named():
    def model(y, here):
        numpyro.sample(
            "y", dist.Normal(numpyro.sample("m", dist.Normal(0, 1)), 1), y, obs_mask=here
        )

    with pytest.raises(mixvi.InputError, match="site 'y' has an obs_mask"):
        mvi.fit(model, Y, Y > 0)
