"""Hyperparameters: the exact gradient of Laplace's evidence; joint optima with known answers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import mixvi
from mixvi._first._evidence import evidence_gradient
from mixvi._first._laplace import laplace
from mixvi._target import prepare
from targets import cauchy_data

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 2))
CENTRES = X[:9]


def design(x, log_width):
    square = ((x[:, None] - CENTRES) ** 2).sum(-1)
    basis = jnp.exp(-0.5 * square * jnp.exp(-2 * log_width))
    return jnp.concatenate([basis, jnp.ones((len(x), 1))], 1)


def prior(w, log_alpha):
    return 0.5 * (log_alpha - jnp.exp(log_alpha) * w**2 - math.log(2 * math.pi)).sum()


def logistic(w, hyper, y):
    eta = design(X, hyper["log_width"]) @ w
    return jax.nn.log_sigmoid(y * eta).sum() + prior(w, hyper["log_alpha"])


def softmax(w, hyper, y):
    eta = design(X, hyper["log_width"]) @ w.T
    chosen = jnp.take_along_axis(eta, y[:, None], 1)[:, 0]
    return (chosen - jax.nn.logsumexp(eta, axis=1)).sum() + prior(w, hyper["log_alpha"])


def cauchy(w, hyper, y):
    scaled = (y - design(X, hyper["log_width"]) @ w) * jnp.exp(-hyper["log_gamma"])
    constant = hyper["log_gamma"] + math.log(math.pi)
    return -(jnp.log1p(scaled**2) + constant).sum() + prior(w, hyper["log_alpha"])


SIGNS = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(60) > 0, 1.0, -1.0)
CLASSES = np.digitize(X[:, 0] + 0.3 * rng.standard_normal(60), [-0.5, 0.5])
CURVE = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_cauchy(60)
START = {"log_alpha": -0.5, "log_width": -0.2}
MODELS = {
    "logistic": (logistic, np.zeros(10), SIGNS, START),
    "softmax": (softmax, np.zeros((3, 10)), CLASSES, START),
    "cauchy": (cauchy, np.zeros(10), CURVE, START | {"log_gamma": -1.0}),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradient_of_the_evidence_against_central_differences(name):
    log_density, init, data, hyper = MODELS[name]
    with jax.enable_x64(True):
        target, start = prepare(log_density, init, data, np.dtype(np.float64), hyper)
        start = jnp.asarray(start)
        found = jax.jit(laplace)(target, start)
        assert int(found.code) == 0
        gradient, drift = evidence_gradient(target, found, 2**30)
        in_parts, _ = evidence_gradient(target, found, 2**18)
        np.testing.assert_allclose(gradient, in_parts, rtol=1e-10)
        solve = jax.jit(lambda theta: laplace(target.at(theta), found.mode))
        step = 1e-4
        for j, unit in enumerate(np.eye(len(hyper))):
            # Five points: the error of the differences is far below the tolerance.
            near, far = (
                [solve(target.theta + sign * k * step * unit) for sign in (1, -1)] for k in (1, 2)
            )

            def slope(of, near=near, far=far):
                return (8 * (of(near[0]) - of(near[1])) - of(far[0]) + of(far[1])) / (12 * step)

            expected = float(slope(lambda one: one.log_evidence))
            assert float(gradient[j]) == pytest.approx(expected, rel=1e-6)
            np.testing.assert_allclose(
                drift[:, j], slope(lambda one: one.mode), rtol=1e-5, atol=1e-7
            )


def shrinkage(w, log_alpha, y):
    """y ~ N(w, 1), w ~ N(0, 1/alpha): the evidence is highest at 1/alpha = mean y^2 - 1."""
    return (-0.5 * (y - w) ** 2).sum() + prior(w, log_alpha) - 0.5 * y.size * math.log(2 * math.pi)


Y = np.array([2.0, -1.5, 3.0, 0.5, -2.2])


@pytest.mark.parametrize("family", ["laplace", "eig", "lr"])
def test_conjugate_model_has_the_evidence_and_hyperparameter_in_closed_form(family):
    post = mixvi.fit(shrinkage, np.zeros(5), family=family, data=Y, hyper=1.0)
    variance = (Y**2).mean() - 1
    assert post.hyper.shape == ()
    assert float(post.hyper) == pytest.approx(-math.log(variance), abs=1e-4)
    total = variance + 1
    evidence = -0.5 * (Y**2).sum() / total - 2.5 * math.log(2 * math.pi * total)
    assert post.log_evidence == pytest.approx(evidence, abs=1e-7)
    np.testing.assert_allclose(post.mean, Y * variance / total, atol=1e-4)
    assert abs(float(post.hyper_report.gradient)) < 1e-4
    assert post.hyper_report.ran_off == ()
    assert "theta" in post.summary()


def test_joint_optimum_of_a_family_against_brute_force():
    """One weight: mean, width and hyperparameter of the best Gaussian by quadrature and scipy."""
    x = np.array([0.5, 1.0, 2.0, -1.0, -0.3])
    sign = np.array([1.0, 1.0, -1.0, -1.0, 1.0])
    z = np.linspace(-9, 9, 4001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()

    def hyper_prior(log_alpha):
        return -0.5 * (log_alpha - 1.0) ** 2

    def elbo(point):
        mean, log_sd, log_alpha = point
        w = mean + np.exp(log_sd) * z
        value = -np.logaddexp(0, -sign[:, None] * x[:, None] * w).sum(0)
        value += 0.5 * (log_alpha - np.exp(log_alpha) * w**2 - math.log(2 * math.pi))
        return (
            weights @ value + hyper_prior(log_alpha) + log_sd + 0.5 * math.log(2 * math.pi * math.e)
        )

    best = optimize.minimize(lambda p: -elbo(p), np.zeros(3), tol=1e-12)
    model = mixvi.LinearPredictor(
        x[:, None],
        lambda eta, log_alpha: jax.nn.log_sigmoid(jnp.asarray(sign) * eta),
        lambda log_alpha: jnp.exp(log_alpha),
        lambda log_alpha: hyper_prior(log_alpha),
    )
    post = mixvi.fit(model, np.zeros(1), family="eig", hyper=0.0, tol=1e-7)
    found = [post.mean[0], math.log(post.std[0]), float(post.hyper)]
    np.testing.assert_allclose(found, best.x, atol=1e-5)
    assert post.log_evidence == pytest.approx(-best.fun, abs=1e-9)


def test_richer_families_end_higher_with_hyperparameters_too():
    log_density, init, data, hyper = MODELS["cauchy"]
    bounds = {
        family: mixvi.fit(
            log_density, init, family=family, data=data, hyper=hyper, draws=256, diagnostics=False
        ).elbo_fixed
        for family in ("mu", "eig", "lr", "full")
    }
    assert bounds["mu"] <= bounds["eig"] + 1e-9 <= bounds["full"] + 2e-9
    assert bounds["mu"] <= bounds["lr"] + 1e-9


def test_a_hyperparameter_that_the_data_do_not_bound_is_named():
    post = mixvi.laplace(
        shrinkage, np.zeros(5), data=0.1 * Y, hyper=0.0
    )  # less variance than the noise
    assert post.hyper_report.ran_off == ("theta",)
    assert "Ran off: theta" in post.status
    assert "theta ran off" in post.verdict
    bounded = mixvi.laplace(
        lambda w, h, y: shrinkage(w, h, y) - 0.5 * h**2, np.zeros(5), data=0.1 * Y, hyper=0.0
    )
    assert bounded.hyper_report.ran_off == ()
    assert bounded.converged


def robust(w, hyper, data):
    basis, y, *_ = data
    scaled = (y - basis @ w) * jnp.exp(-hyper["log_gamma"])
    return -(jnp.log1p(scaled**2) + hyper["log_gamma"]).sum() + prior(w, hyper["log_alpha"])


@pytest.mark.filterwarnings("ignore::mixvi.NotConvergedWarning")
@pytest.mark.parametrize("seed", range(3))
def test_evidence_does_not_run_into_a_singular_hessian(seed):
    """For Cauchy noise Laplace's evidence is unbounded; the Gaussian found must still make sense:
    its bound lies within a few nats of its evidence, not thousands below."""
    start = {"log_alpha": 0.0, "log_gamma": -1.0}
    post = mixvi.laplace(robust, np.zeros(21), data=cauchy_data(seed), hyper=start)
    assert post.log_evidence - post.elbo.value < 10
    if not post.converged:
        assert post.hyper_report.at_edge
        assert "nearly singular" in post.status
    adapted = mixvi.fit(robust, np.zeros(21), family="eig", data=cauchy_data(seed), hyper=start)
    assert adapted.converged
    assert adapted.elbo.value > post.elbo.value


def test_fixed_hyperparameters_and_warm_starts():
    log_density, init, data, hyper = MODELS["logistic"]
    still = mixvi.laplace(log_density, init, data=data, hyper=hyper, hyper_steps=0)
    assert still.hyper == hyper
    post = mixvi.fit(log_density, init, family="eig", data=data, hyper=hyper, tol=1e-6)
    again = mixvi.fit(log_density, post, family="eig", data=data, tol=1e-6)
    assert again.elbo_fixed == pytest.approx(post.elbo_fixed, abs=1e-6)
    assert again.stats["passes"] <= post.stats["passes"]


def test_many_problems_learn_their_own():
    scales = np.array([1.0, 2.0, 4.0])
    data = scales[:, None] * np.repeat(Y[None], 3, 0)
    starts = np.array([0.0, -1.0, 1.0])
    for strategy in ("map", "vmap"):
        posts = mixvi.fit_many(
            shrinkage,
            np.zeros(5),
            family="eig",
            data=data,
            hyper=starts,
            hyper_batched=True,
            strategy=strategy,
        )
        found = [float(post.hyper) for post in posts]
        np.testing.assert_allclose(found, -np.log(scales**2 * (Y**2).mean() - 1), atol=1e-4)


def test_saved_and_loaded(tmp_path):
    log_density, init, data, hyper = MODELS["logistic"]
    post = mixvi.fit(log_density, init, family="mu", data=data, hyper=hyper)
    back = mixvi.load(post.save(tmp_path / "post"))
    assert back.hyper == post.hyper
    assert back.hyper_report == post.hyper_report
    assert back.summary() == post.summary()


def test_failures_keep_their_hyperparameters():
    def no_mode(w, h, y):
        return w.sum() + 0.0 * h * y.sum()

    post = mixvi.laplace(no_mode, np.zeros(2), data=Y, hyper=0.5, throw=False)
    assert not post.converged
    assert float(post.hyper) == 0.5
    batch = {"hyper": np.array([0.0, np.nan]), "hyper_batched": True}
    with pytest.raises(mixvi.NonFiniteError, match="problem 1"):
        mixvi.fit_many(shrinkage, np.zeros(5), family="laplace", data=np.stack([Y, Y]), **batch)


@pytest.mark.parametrize(
    ("hyper", "error", "says"),
    [
        (1, mixvi.InputError, "hyper: theta is of integer type"),
        ({"a": np.nan}, mixvi.NonFiniteError, "hyper is not finite at a"),
        ({}, mixvi.InputError, "hyper has no parameters"),
    ],
)
def test_bad_hyperparameters(hyper, error, says):
    with pytest.raises(error, match=says):
        mixvi.laplace(shrinkage, np.zeros(5), data=Y, hyper=hyper)
