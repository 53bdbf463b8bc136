"""Marginals in the user's units: against formulas and quadrature, corrected by weighted draws."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import integrate, stats

import mixvi
from mixvi import plots
from mixvi._judge._tilted import believed, hermite, log_tilt, tilt_at
from mixvi.interop import pandas as mixvi_pandas

PROBS = np.array([0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975])


def test_of_a_gaussian_it_is_the_normal_and_nothing_is_corrected():
    cov = np.array([[2.0, 0.7], [0.7, 1.0]])
    precision = np.linalg.inv(cov)
    post = mixvi.fit(lambda w: -0.5 * (w - 1) @ precision @ (w - 1), np.zeros(2))
    found = post.marginal(post.names[0])
    own = stats.norm(1, np.sqrt(2))
    assert not found.corrected
    np.testing.assert_allclose(found.quantiles(PROBS), own.ppf(PROBS), atol=1e-6)
    np.testing.assert_allclose(found.cdf(own.ppf(PROBS)), PROBS, atol=1e-7)
    at = np.linspace(-3, 5, 9)
    np.testing.assert_allclose(found.density(at), own.pdf(at), atol=1e-5)
    assert found.mean == pytest.approx(1, abs=1e-6)
    assert found.std == pytest.approx(np.sqrt(2), rel=1e-3)


def test_polynomials_are_orthonormal():
    u = np.linspace(-9, 9, 4001)
    mass = stats.norm.pdf(u) * (u[1] - u[0])
    basis = hermite(u)
    np.testing.assert_allclose((mass[:, None] * basis).T @ basis, np.eye(basis.shape[1]), atol=1e-9)


def tilt(u, log_ratio):
    weights = believed(log_ratio)
    return None if weights is None else log_tilt(u, weights)


def test_a_tilt_finds_a_shift_and_leaves_noise_alone():
    rng = np.random.default_rng(0)
    u = rng.standard_normal(4000)
    a = tilt(u, 0.3 * u)  # N(0.3, 1)
    at = np.linspace(-3, 3, 13)
    ratio = stats.norm.pdf(at, 0.3) / stats.norm.pdf(at)
    np.testing.assert_allclose(tilt_at(at, a), ratio, rtol=0.1)
    assert tilt(u, np.zeros(4000)) is None
    assert tilt(u, 0.3 * rng.standard_normal(4000)) is None
    assert tilt(u, 6 * rng.standard_normal(4000)) is None  # k-hat


def skewed(x):
    """Six successes of six with a rate on the log scale: skewed, with a normal's tails."""
    success = 6 * jax.nn.log_sigmoid(jnp.log(x["rate"]))
    return success - 0.5 * jnp.log(x["rate"]) ** 2 - jnp.log(x["rate"]) - 0.5 * x["b"] ** 2


class Exact:
    def __init__(self):
        v = np.linspace(-9, 9, 8001)
        p = np.exp(-6 * np.logaddexp(0, -v) - 0.5 * v**2)
        below = integrate.cumulative_simpson(p, x=v, initial=0)
        self.x, self.below, mass = np.exp(v), below / below[-1], p / p.sum()
        self.mean = mass @ self.x
        self.sd = np.sqrt(mass @ (self.x - self.mean) ** 2)

    def ppf(self, probs):
        return np.interp(probs, self.below, self.x)

    def cdf(self, x):
        return np.interp(x, self.x, self.below)


@pytest.mark.parametrize("family", ["laplace", "full"])
def test_a_skewed_posterior_is_nearer_when_corrected(family):
    given = (skewed, {"b": 0.0, "rate": 1.0})
    post = mixvi.fit(*given, family=family, constraints={"rate": "positive"})
    own, off = Exact(), {}
    many = post.importance_weights(10_000, skewed)
    for name, weighted in (("none", False), ("judged", True), ("many", many)):
        found = post.marginal("rate", weighted=weighted)
        off[name] = np.abs(np.log(found.quantiles(PROBS) / own.ppf(PROBS))).max()
    assert off["judged"] <= off["none"]
    assert off["many"] <= off["none"]
    corrected = post.marginal("rate", weighted=many)
    if family == "full":  # its weights vary too much
        return
    assert corrected.corrected
    assert off["many"] < 0.2 * off["none"]
    low, high = corrected.hdi(0.9)
    assert own.cdf(high) - own.cdf(low) == pytest.approx(0.9, abs=0.02)
    assert corrected.density(low) == pytest.approx(corrected.density(high), rel=0.02)


def test_summary_and_picture_show_the_corrected_ones():
    """Laplace's Gaussian over log(rate) is too narrow to the left; b is a normal, and stays."""
    start = {"b": 0.0, "rate": 1.0}
    post = mixvi.laplace(skewed, start, constraints={"rate": "positive"}, diagnostics=4000)
    rate, own = post.marginal("rate"), Exact()
    assert rate.corrected
    assert not post.marginal("b").corrected
    lines = {line.split()[0]: line.split() for line in post.summary().splitlines() if line}
    shown = np.array(lines["rate"][-3:], float)
    np.testing.assert_allclose(shown, rate.quantiles([0.05, 0.5, 0.95]), rtol=1e-3)
    off = np.abs(np.log(shown / own.ppf([0.05, 0.5, 0.95])))
    assert off.max() < np.abs(np.log(post.quantiles(0.05)["rate"] / own.ppf(0.05)))
    assert lines["rate"][1] == "*"
    assert lines["*"][1:3] == ["quantiles", "corrected"]
    assert lines["b"][1] != "*"
    assert "quantiles corrected" in post._repr_html_()
    axes = plots.marginals(post)
    assert [len(one.lines) for one in axes] == [1, 2]
    at, density = axes[1].lines[0].get_data()
    np.testing.assert_allclose(density, rate.density(at), atol=1e-6)
    plt.close()
    frame = mixvi_pandas.summary(post)
    np.testing.assert_allclose(frame.loc["rate"].iloc[-3:], rate.quantiles([0.05, 0.5, 0.95]))


def test_bounded_parameters_have_their_own_units():
    post = mixvi.laplace(
        lambda x: 2 * jnp.log(x["p"]) + jnp.log1p(-x["p"]) + 2 * jnp.log(-x["n"]) + x["n"],
        {"p": 0.5, "n": -1.0},
        constraints={"p": "unit", "n": mixvi.Interval(-np.inf, 0.0)},
        diagnostics=False,
    )
    for name in ("p", "n"):
        found = post.marginal(name)
        np.testing.assert_allclose(
            found.quantiles(PROBS), post.quantiles(PROBS)[name], rtol=1e-5, atol=1e-6
        )
        assert found.mean == pytest.approx(float(post.mean[name]), rel=1e-3)
        middle = float(found.quantiles(0.5))
        slope = (found.cdf(middle + 1e-4) - found.cdf(middle - 1e-4)) / 2e-4
        assert found.density(middle) == pytest.approx(slope, rel=1e-4)


def test_entries_of_a_simplex_go_by_draws():
    post = mixvi.laplace(
        lambda x: (np.array([3.0, 2.0, 4.0]) * jnp.log(x["w"])).sum(),
        {"w": np.ones(3) / 3},
        constraints={"w": "simplex"},
        diagnostics=False,
    )
    name = post._shown.names[1]
    found = post.marginal(name)
    np.testing.assert_allclose(
        found.quantiles([0.1, 0.5]), np.asarray(post.quantiles([0.1, 0.5])["w"])[:, 1], atol=2e-3
    )


def test_of_a_mixture_it_is_the_sum():
    law = mixvi._law._mixture.GaussianMixture(
        np.array([0.3, 0.7]),
        (
            mixvi._law._gaussian.Gaussian(np.array([-2.0]), np.array([0.5])),
            mixvi._law._gaussian.Gaussian(np.array([3.0]), np.array([1.5])),
        ),
    )
    post = mixvi.laplace(lambda w: -0.5 * (w["a"] ** 2), {"a": 0.0}, diagnostics=False)
    import dataclasses

    found = dataclasses.replace(post, law=law).marginal("a")
    exact = law.quantiles(PROBS)[:, 0]
    np.testing.assert_allclose(found.quantiles(PROBS), exact, atol=1e-4)
    assert found.mean == pytest.approx(0.3 * -2 + 0.7 * 3, abs=1e-4)


def test_what_there_is_not_is_refused():
    post = mixvi.laplace(lambda w: -0.5 * (w["a"] ** 2), {"a": 0.0})
    with pytest.raises(mixvi.InputError, match="no parameter 'b'"):
        post.marginal("b")
    with pytest.raises(mixvi.InputError, match="weighted must be"):
        post.marginal("a", weighted=3)
    with pytest.raises(mixvi.InputError, match="between 0 and 1"):
        post.marginal("a").quantiles(1.5)
    with pytest.raises(mixvi.InputError, match="between 0 and 1"):
        post.marginal("a").hdi(1.5)


def nearly_normal(w):
    return -0.5 * ((w - 0.5) ** 2).sum() - 0.02 * jnp.tanh(w).sum() ** 2


def test_weights_of_another_posterior_are_refused():
    other = mixvi.laplace(nearly_normal, np.zeros(2))
    weights = other.importance_weights(5000, nearly_normal)
    same_shape = mixvi.fit(lambda w: -0.5 * w @ w, np.zeros(2))
    wider = mixvi.laplace(lambda w: -0.1 * ((w - other.mean) ** 2).sum(), np.zeros(2))
    for post in (same_shape, wider):  # of another mean, of another spread
        with pytest.raises(mixvi.InputError, match="another posterior: its draws are not of this"):
            post.marginal("w[0]", weighted=weights)
    other_shape = mixvi.fit(lambda w: -0.5 * w @ w, np.zeros(3))
    unbelieved = weights._replace(weights=np.eye(1, 5000)[0])
    for given in (weights, unbelieved):  # before k-hat is looked at
        with pytest.raises(mixvi.InputError, match=r"another posterior: .*shape \(5000, 2\)"):
            other_shape.marginal("w[0]", weighted=given)
    with pytest.raises(mixvi.InputError, match="5000 draws and 4999 weights"):
        other.marginal("w[0]", weighted=weights._replace(weights=weights.weights[1:]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_own_weights_are_taken(dtype):
    def rates(x):
        return (3 * jnp.log(x["rate"]) - 2 * x["rate"]).sum() + nearly_normal(x["w"])

    start = {"rate": np.ones(2), "w": np.zeros(3)}
    post = mixvi.laplace(rates, start, constraints={"rate": "positive"}, dtype=dtype)
    for key in range(5):
        weights = post.importance_weights(2000, rates, key=key)
        assert post.marginal("rate[0]", weighted=weights).corrected
    post.marginal("rate[0]", weighted=post.importance_weights())


def test_own_weights_of_a_mixture_are_taken():
    def two(w):
        return jnp.logaddexp(-0.5 * (w["a"] + 4) ** 2, -0.5 * (w["a"] - 4) ** 2 - 1.0)

    post = mixvi.fit(two, {"a": 0.0}, family="mixture", n_restarts=4)
    assert len(post.law.components) > 1
    post.marginal("a", weighted=post.importance_weights(2000, two))


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_rounding_in_single_precision_corrects_nothing(scale):
    root = np.random.default_rng(3).normal(size=(8, 8))
    precision, mean = scale * (root @ root.T + np.eye(8)), np.arange(8.0) * 3
    post = mixvi.fit(
        lambda w: -0.5 * (w - mean) @ precision @ (w - mean), np.zeros(8), dtype="float32"
    )
    assert not any(post.marginal(name).corrected for name in post.names)
    assert "corrected" not in post.summary()


def test_what_is_more_than_rounding_corrects_in_single_precision():
    start = {"b": 0.0, "rate": 1.0}
    options = {"constraints": {"rate": "positive"}, "diagnostics": 4000, "dtype": "float32"}
    assert mixvi.laplace(skewed, start, **options).marginal("rate").corrected


def test_moments_of_a_heavy_tail_are_exact_where_nothing_is_corrected():
    sd = 3.0
    post = mixvi.fit(
        lambda x: -0.5 * (jnp.log(x["t"]) / sd) ** 2 - jnp.log(x["t"]),
        {"t": 1.0},
        constraints={"t": "positive"},
    )
    found, exact = post.marginal("t"), stats.lognorm(sd)
    assert not found.corrected
    assert found.mean == pytest.approx(exact.mean(), rel=1e-4)
    assert found.std == pytest.approx(exact.std(), rel=1e-4)


def test_intervals_of_highest_density_are_asked_for_one_by_one():
    post = mixvi.laplace(lambda w: -0.5 * (w["a"] ** 2), {"a": 0.0}, diagnostics=False)
    for prob in ([0.5, 0.9], np.array([0.5, 0.9]), None, "much"):
        with pytest.raises(mixvi.InputError, match="one number between 0 and 1"):
            post.marginal("a").hdi(prob)


def test_names_of_hyperparameters():
    """`a` is a parameter, a normal around the hyperparameter `a`; `b` is a hyperparameter alone."""
    post = mixvi.laplace(
        lambda w, h: -0.5 * (w["a"] - h["a"]) ** 2 - 0.5 * h["a"] ** 2 / 4 - 0.5 * h["b"] ** 2,
        {"a": 0.0},
        hyper={"a": 1.0, "b": 0.0},
        hyper_posterior=True,
    )
    assert post.marginal("a").std == pytest.approx(np.sqrt(5), rel=0.05)
    assert post.hyper_posterior is not None
    assert post.hyper_posterior.marginal("a").std == pytest.approx(2, rel=0.05)
    for picture in (plots.marginals, plots.pairs):
        with pytest.raises(mixvi.InputError, match=r"not drawn here: post\.marginal\('b'\)"):
            picture(post, ["a", "b"])
