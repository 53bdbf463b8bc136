"""The engine as a user meets it."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import imports
import mixvi
from targets import (
    Counted,
    GaussianTarget,
    cauchy,
    cauchy_data,
    logistic,
    logistic_data,
    one_dimensional,
)

FAMILIES = ["laplace", "mu", "eig", "lr", "full", "diag"]


def one_dimensional_elbo(mean: float, sd: float) -> float:
    """The exact bound of N(mean, sd^2) by adaptive quadrature."""

    def integrand(z):
        w = mean + sd * z
        return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * (3.0 * w - np.exp(w))

    expected = integrate.quad(integrand, -12, 12, epsabs=1e-12)[0]
    return expected + np.log(sd) + 0.5 * np.log(2 * np.pi * np.e)


def test_one_dimension_against_the_exact_optimum():
    """E[3w - e^w] + log sd is maximal at mean = log 3 - 1/6 and sd^2 = 1/3 (by hand)."""
    best_mean, best_sd = np.log(3) - 1 / 6, 3**-0.5
    post = mixvi.fit(one_dimensional, 0.0, family="full", draws=4000)
    assert float(post.mean) == pytest.approx(best_mean, abs=2e-3)
    assert float(post.std) == pytest.approx(best_sd, abs=2e-3)
    exact = one_dimensional_elbo(float(post.mean), float(post.std))
    assert post.elbo.value == pytest.approx(exact, abs=4 * post.elbo.se)
    assert exact == pytest.approx(one_dimensional_elbo(best_mean, best_sd), abs=1e-5)


def test_mean_only_against_the_exact_optimum():
    """With sd fixed at the Laplace value 1/sqrt 3 the best mean is log 3 - 1/6 as well."""
    post = mixvi.fit(one_dimensional, 0.0, family="mu", draws=4000)
    assert float(post.mean) == pytest.approx(np.log(3) - 1 / 6, abs=2e-3)
    assert float(post.std) == pytest.approx(3**-0.5, abs=1e-9)


@pytest.mark.parametrize("optimiser", ["bfgs", "lbfgs", "scg"])
def test_optimisers_agree(optimiser):
    data = logistic_data()
    search = {"draws": 200, "optimiser": optimiser, "tol": 1e-5}
    post = mixvi.fit(logistic, np.zeros(8), family="eig", data=data, **search)
    reference = mixvi.fit(logistic, np.zeros(8), family="eig", data=data, draws=200, tol=1e-8)
    assert post.converged
    assert np.abs((post.flat_mean - reference.flat_mean) / reference.flat_std).max() < 1e-4
    np.testing.assert_allclose(post.flat_std, reference.flat_std, rtol=1e-4)
    assert post.stats.optimiser == optimiser


@pytest.mark.parametrize("family", FAMILIES)
def test_same_inputs_same_bits(family):
    data = logistic_data()
    a, b = (mixvi.fit(logistic, np.zeros(8), family=family, data=data, key=5) for _ in range(2))
    np.testing.assert_array_equal(a.flat_mean, b.flat_mean)
    np.testing.assert_array_equal(a.root, b.root)
    assert a.elbo == b.elbo
    assert a.summary() == b.summary()


def test_same_bits_in_another_process():
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from targets import logistic, logistic_data; import numpy as np, mixvi\n"
        "post = mixvi.fit(logistic, np.zeros(8), logistic_data(), family='eig', key=5)\n"
        "print(post.flat_mean.tobytes().hex(), post.root.tobytes().hex())"
    )
    a, b = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert a.stdout == b.stdout
    assert len(a.stdout) > 100


def test_keys_matter_but_little():
    data = logistic_data()
    a, b = (
        mixvi.fit(logistic, np.zeros(8), family="eig", data=data, key=k)
        for k in (0, jax.random.key(1))
    )
    assert not np.array_equal(a.flat_mean, b.flat_mean)
    assert np.abs((a.flat_mean - b.flat_mean) / a.flat_std).max() < 0.05


@pytest.mark.parametrize("family", FAMILIES)
def test_new_data_of_the_same_shape_compile_nothing(family):
    counted = Counted(logistic)
    mixvi.fit(
        counted, np.zeros(8), family=family, data=logistic_data(seed=0), draws=200, anchor="mode"
    )
    traced = counted.n
    assert traced > 0
    mixvi.fit(
        counted,
        np.ones(8),
        family=family,
        data=logistic_data(seed=1),
        draws=200,
        anchor="mode",
        key=9,
    )
    assert counted.n == traced
    mixvi.fit(
        counted,
        np.ones(8),
        family=family,
        data=logistic_data(n=150, seed=1),
        draws=200,
        anchor="mode",
    )
    assert counted.n > traced


def test_the_flag_of_jax_is_left_alone():
    assert not jax.config.jax_enable_x64
    post = mixvi.fit(
        logistic, jnp.zeros(8), family="eig", data=tuple(map(jnp.asarray, logistic_data()))
    )
    assert not jax.config.jax_enable_x64
    assert jnp.ones(2).dtype == jnp.float32
    assert post.flat_mean.dtype == np.float64
    reference = mixvi.fit(logistic, np.zeros(8), family="eig", data=logistic_data())
    assert np.abs((post.flat_mean - reference.flat_mean) / reference.flat_std).max() < 1e-4


def test_the_flag_may_also_be_on():
    with jax.enable_x64(True):
        a = mixvi.fit(logistic, jnp.zeros(8), family="eig", data=logistic_data())
        assert jnp.ones(2).dtype == jnp.float64
    b = mixvi.fit(logistic, np.zeros(8), family="eig", data=logistic_data())
    np.testing.assert_array_equal(a.flat_mean, b.flat_mean)


@pytest.mark.parametrize("family", ["laplace", "eig"])
def test_float32_on_request(family):
    data = logistic_data()
    post = mixvi.fit(logistic, np.zeros(8), family=family, data=data, dtype="float32")
    reference = mixvi.fit(logistic, np.zeros(8), family=family, data=data)
    assert post.flat_mean.dtype == np.float32
    assert post.converged
    assert np.abs((post.flat_mean - reference.flat_mean) / reference.flat_std).max() < 0.02
    np.testing.assert_allclose(post.flat_std, reference.flat_std, rtol=0.02)


def test_draws_grow_until_the_gap_closes():
    """A Cauchy posterior in 21 dimensions, far from Gaussian: 80 draws of a full root (252 free
    numbers) are too few and more are taken; draws that the user chose are left alone."""
    data = cauchy_data(2)
    chosen = mixvi.fit(cauchy, np.zeros(21), family="full", data=data, draws=80)
    assert chosen.stats.draws == 80
    assert chosen.gap > 0.5
    grown = mixvi.fit(cauchy, np.zeros(21), family="full", data=data)
    assert grown.stats.draws > 256
    assert grown.gap < 0.3 * chosen.gap
    assert grown.elbo.value > chosen.elbo.value


def test_warm_start_needs_fewer_passes():
    data = logistic_data()
    cold = mixvi.fit(logistic, np.zeros(8), family="eig", data=data, draws=200)
    warm = mixvi.fit(logistic, cold, family="eig", data=data, draws=200)
    assert warm.stats.passes <= 2
    np.testing.assert_allclose(warm.flat_mean, cold.flat_mean, atol=1e-4)
    for family in ("mu", "lr", "full", "diag"):
        options = {"family": family, "data": data, "draws": 200, "tol": 1e-6}
        other, alone = (mixvi.fit(logistic, start, **options) for start in (cold, np.zeros(8)))
        assert other.elbo_fixed == pytest.approx(alone.elbo_fixed, abs=1e-3)
        np.testing.assert_allclose(other.mean, alone.mean, atol=0.02)


def test_callables_that_hold_arrays():
    """Arrays inside an equinox module or a Partial are data, not constants: no new compilation."""
    x, sign = logistic_data()
    counted = Counted(logistic)

    def bound(x, sign, w):
        return counted(w, (x, sign))

    for seed in (0, 1):
        x, sign = logistic_data(seed=seed)
        post = mixvi.fit(
            jax.tree_util.Partial(bound, jnp.asarray(x), jnp.asarray(sign)), np.zeros(8)
        )
        before = counted.n if seed == 0 else before  # noqa: F821
    assert counted.n == before
    assert post.converged


def test_what_a_function_captures_is_not_stale():
    """The notebook case: a global or a closure is assigned anew and the same function fitted."""
    world = {"centre": 2.0}
    exec("def log_density(w): return -0.5 * ((w - centre) ** 2).sum()", world)
    assert mixvi.laplace(world["log_density"], np.zeros(1)).mean == pytest.approx(2.0)
    world["centre"] = 5.0
    assert mixvi.laplace(world["log_density"], np.zeros(1)).mean == pytest.approx(5.0)
    centre = 1.0

    def closed(w):
        return -0.5 * ((w - centre) ** 2).sum()

    assert mixvi.laplace(closed, np.zeros(1)).mean == pytest.approx(1.0)
    centre = -3.0
    assert mixvi.laplace(closed, np.zeros(1)).mean == pytest.approx(-3.0)


def test_a_warm_start_from_other_data_is_no_worse_than_a_cold_one():
    def poisson(w, counts):
        return (counts * w - jnp.exp(w)).sum() - 0.5 * (w / 20) ** 2

    before = mixvi.fit(poisson, 0.0, data=np.full(20, 3.0))
    warm = mixvi.fit(poisson, before, data=np.full(20, 3e6))
    cold = mixvi.fit(poisson, 0.0, data=np.full(20, 3e6))
    assert warm.converged
    assert float(warm.mean) == pytest.approx(float(cold.mean), abs=1e-6)


def test_unsigned_data_do_not_wrap():
    post = mixvi.laplace(
        lambda w, d: -0.5 * (w - (d[0] - d[1])) ** 2, 0.0, data=np.array([100, 200], dtype=np.uint8)
    )
    assert float(post.mean) == pytest.approx(-100)


def test_memory_budget_changes_nothing():
    data = logistic_data()
    a = mixvi.fit(logistic, np.zeros(8), family="eig", data=data, memory="1MiB")
    b = mixvi.fit(logistic, np.zeros(8), family="eig", data=data, memory=2**30)
    np.testing.assert_allclose(a.flat_mean, b.flat_mean, atol=1e-5)


def test_running_out_of_steps_is_said():
    data = logistic_data()
    with pytest.warns(mixvi.NotConvergedWarning, match="max_steps"):
        post = mixvi.fit(logistic, np.zeros(8), family="eig", data=data, max_steps=2)
    assert not post.converged
    assert post.verdict.startswith("Do not trust")
    assert np.isfinite(post.flat_mean).all()


def test_fresh_elbo_of_a_gaussian_target_is_its_evidence():
    target = GaussianTarget.make(3, 10.0)
    post = mixvi.fit(target.log_density, np.zeros(3), family="eig", data=target.data)
    assert post.elbo.value == pytest.approx(target.log_z, abs=1e-8)
    assert post.log_evidence == post.elbo.value


def test_imports_are_light():
    code = "import sys, mixvi; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in out.stdout.split()}
    assert "jax" in loaded
    assert not loaded & imports.LIBRARIES
