"""Hyperparameters: the exact gradient of Laplace's evidence; joint optima with known answers."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import mixvi
from mixvi._approximate._evidence import Evidence, _place, evidence_gradient
from mixvi._approximate._laplace import covariance_root, laplace
from mixvi._approximate._profile import Profile, carried, stein_learning
from mixvi._approximate._search import Stop
from mixvi._approximate._tilt import Learnt, tilted
from mixvi._errors import Code
from targets import DOUBLE, cauchy_data, density_with_hyper, points

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
    density, start, theta = density_with_hyper(log_density, init, data, hyper)
    found = laplace(density, start)
    assert found.found
    slopes = density.evidence_slopes(found.mode, found.root)
    gradient, drift = evidence_gradient(slopes, found.root)
    few_at_once, _, _ = density_with_hyper(log_density, init, data, hyper, memory=2**18)
    in_parts = few_at_once.evidence_slopes(found.mode, found.root)
    for whole, summed in zip(slopes, in_parts, strict=True):
        np.testing.assert_allclose(whole, summed, rtol=1e-10, atol=1e-12)
    step = 1e-4
    for j, unit in enumerate(np.eye(len(hyper))):
        # Five points: the error of the differences is far below the tolerance.
        near, far = (
            [laplace(density.at(theta + sign * k * step * unit), found.mode) for sign in (1, -1)]
            for k in (1, 2)
        )

        def slope(of, near=near, far=far):
            return (8 * (of(near[0]) - of(near[1])) - of(far[0]) + of(far[1])) / (12 * step)

        expected = float(slope(lambda one: one.log_evidence))
        assert float(gradient[j]) == pytest.approx(expected, rel=1e-6)
        np.testing.assert_allclose(drift[:, j], slope(lambda one: one.mode), rtol=1e-5, atol=1e-7)


def test_the_evidence_of_the_mode_does_not_hang_on_how_close_the_search_came():
    """A place off the mode: the first-order correction gives the evidence of the mode itself."""
    log_density, init, data, hyper = MODELS["logistic"]
    density, start, theta = density_with_hyper(log_density, init, data, hyper)
    found = laplace(density, start)
    away = found.mode + found.root @ np.full(10, 1e-4)
    value, gradient, hessian = density.curvature(away)
    root, log_det, _ = covariance_root(-hessian, "raise")
    near = dataclasses.replace(
        found, mode=away, log_density=value, gradient=gradient, root=root, log_det_root=log_det
    )
    exact = _place(density, theta, found).evidence
    assert abs(near.log_evidence - exact) > 1e-6
    assert _place(density, theta, near).evidence == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("rule", [mixvi.Matched(64), mixvi.Quadrature(64)])
@pytest.mark.parametrize("memory", [2**30, 2**13])
def test_the_slope_of_the_bound_is_the_derivative_in_the_hyperparameters(rule, memory):
    x = np.random.default_rng(1).standard_normal((6, 2))

    def log_lik(eta, hyper):
        return -jnp.cosh(eta * jnp.exp(hyper["scale"]))

    model = mixvi.LinearPredictor(x, log_lik, lambda hyper: jnp.exp(hyper["alpha"]))
    hyper = {"alpha": 0.3, "scale": -0.5}
    density, _, theta = density_with_hyper(model, np.zeros(2), None, hyper, memory)
    over = rule.make(DOUBLE) if isinstance(rule, mixvi.Quadrature) else points(rule.n, 2)
    at = np.array([0.2, -0.1]), np.array([[0.5, 0.0], [0.2, 0.4]])
    slope, step = density.expect(*at, over).hyper, 1e-5
    for k, unit in enumerate(step * np.eye(2)):
        ahead, behind = (density.at(theta + s * unit).expect(*at, over).value for s in (1, -1))
        assert slope[k] == pytest.approx((ahead - behind) / (2 * step), rel=1e-7)


def test_a_density_that_factorises_has_the_same_slope():
    """Point by point, not all at once: the sum must not count what fills a call up."""

    def log_density(w, log_scale):
        factor = jnp.linalg.cholesky(jnp.eye(2) * jnp.exp(2 * log_scale) + 0.1)
        half = jax.scipy.linalg.solve_triangular(factor, w, lower=True)
        return -0.5 * (half**2).sum() - jnp.log(jnp.diagonal(factor)).sum()

    density, _, theta = density_with_hyper(log_density, np.zeros(2), None, 0.3)
    z = np.random.default_rng(0).standard_normal((37, 2))
    values, gradients, slope = density.joint_gradients(z)
    ahead, behind = (density.at(theta + step).values(z).mean() for step in (1e-5, -1e-5))
    assert slope[0] == pytest.approx((ahead - behind) / 2e-5, rel=1e-7)
    precision = np.linalg.inv(np.eye(2) * math.exp(0.6) + 0.1)
    np.testing.assert_allclose(gradients, -z @ precision, rtol=1e-10)
    np.testing.assert_allclose(values, density.values(z), rtol=1e-12)


@pytest.mark.parametrize("begin", [0.0, -3.0])
@pytest.mark.parametrize("has_laplace", [True, False])
def test_the_whole_covariance_learns_the_hyperparameter_of_a_conjugate_model(
    begin, has_laplace, monkeypatch
):
    """y ~ N(w, 1), w ~ N(0, v): the evidence is highest where 1 + v is the mean square of y. Also
    where there is no Laplace Gaussian to be carried along with."""
    if not has_laplace:
        monkeypatch.setattr(Evidence, "at", lambda self, theta: None)
    y = np.array([1.0, -3.0, 2.0, 4.0, 0.5])

    def log_density(w, h):
        return (-0.5 * (y - w) ** 2 - 0.5 * w**2 * jnp.exp(-h) - 0.5 * h).sum()

    density, _, _ = density_with_hyper(log_density, np.zeros(5), None, 0.0)
    learnt = Learnt.at(np.array([begin]), np.zeros((5, 1)), np.zeros(1))
    stop = Stop(tol=1e-8, max_steps=300)
    found = stein_learning(density, np.zeros(5), np.eye(5), points(64, 5), stop, learnt)
    assert found.code is Code.OK
    v = np.mean(y**2) - 1
    assert found.learnt.theta[0] == pytest.approx(np.log(v), abs=1e-6)
    np.testing.assert_allclose(found.mean, y * v / (1 + v), atol=1e-6)
    np.testing.assert_allclose(found.root @ found.root.T, v / (1 + v) * np.eye(5), atol=1e-6)


def test_the_slope_of_the_best_bound_is_that_of_differences():
    """The envelope theorem, with the mean following the mode."""
    log_density, init, data, hyper = MODELS["logistic"]
    density, start, theta = density_with_hyper(log_density, init, data, hyper)
    found, rule = laplace(density, start), points(64, 10)
    at = (Evidence(density, start, "raise"), rule)
    profile = Profile(density, *at, Stop(tol=1e-9), found.mode, found.root, None)
    _, gradient = profile(theta)
    for i, step in enumerate(1e-4 * np.eye(len(theta))):
        ahead, behind = profile(theta + step)[0], profile(theta - step)[0]
        assert gradient[i] == pytest.approx((ahead - behind) / 2e-4, rel=1e-4)
    # of a Gaussian that is not the best one yet, along the way that it is carried
    rough = Profile(density, *at, Stop(gain=0.1), found.mode, found.root, None)
    _, nearly = rough(theta)
    partial = rough.best.shape.in_theta
    np.testing.assert_allclose(nearly, gradient, rtol=0.01)
    assert np.abs(partial - gradient).max() > 3 * np.abs(nearly - gradient).max()


def test_a_gaussian_is_carried_along_with_laplaces():
    """As it is to the old one, so it is to the new one; for the old one itself that is known."""
    log_density, init, data, hyper = MODELS["logistic"]
    density, start, theta = density_with_hyper(log_density, init, data, hyper)
    evidence = Evidence(density, start, "raise")
    old, new = evidence.solved(theta, start), evidence.solved(theta + 0.3, start)
    itself, other = (np.zeros(10), np.eye(10)), (np.arange(10) / 10, np.diag(np.arange(1, 11.0)))
    for m, a in (itself, other):
        root = old.root @ a
        mean, factor = carried(old.mode + old.root @ m, root, old, new)
        np.testing.assert_allclose(mean, new.mode + new.root @ m, atol=1e-10)
        wanted, found = new.root @ a, root @ factor
        np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=1e-10)
        np.testing.assert_allclose(factor, factor.T, atol=1e-12)


def test_in_tilted_coordinates_the_bound_curves_by_one():
    log_density, init, data, hyper = MODELS["logistic"]
    density, start, theta = density_with_hyper(log_density, init, data, hyper)
    found = laplace(density, start)
    _, drift = evidence_gradient(density.evidence_slopes(found.mode, found.root), found.root)
    rule = points(64, 10)
    tilt = tilted(density, theta, drift, found.mode, found.root, rule)

    def slope(tau):
        mean = found.mode + tilt.drift @ tau
        return tilt.slope(tilt.bind(density, tau).expect(mean, found.root, rule))

    step = 1e-3 * np.eye(2)
    curvature = np.stack([(slope(-one) - slope(one)) / 2e-3 for one in step])
    units = np.abs(tilt.scale).max(0) < 1  # no unit is more than one of the user's own
    assert units.any()
    expected = np.eye(2)[np.ix_(units, units)]
    np.testing.assert_allclose(np.abs(curvature[np.ix_(units, units)]), expected, atol=0.01)


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
    assert again.stats.passes <= post.stats.passes


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
        (True, mixvi.InputError, "hyper must be real numbers; theta is bool"),
        ({"a": np.nan}, mixvi.NonFiniteError, "hyper is not finite at a"),
        ({}, mixvi.InputError, "hyper has no parameters"),
    ],
)
def test_bad_hyperparameters(hyper, error, says):
    with pytest.raises(error, match=says):
        mixvi.laplace(shrinkage, np.zeros(5), data=Y, hyper=hyper)


@pytest.mark.parametrize("hyper_steps", [200, 0])
def test_other_modes_are_looked_for_at_the_hyperparameters_learnt(hyper_steps):
    """At h = 3, where all of them end, there are two equal modes; at the start there is one."""

    def two(w, h):
        second = -0.5 * (w - 12) ** 2 - 50 * (h - 3) ** 2
        return jnp.logaddexp(-0.5 * w**2, second) - 0.5 * (h - 3) ** 2

    post = mixvi.fit(two, 0.0, hyper=0.0, hyper_steps=hyper_steps)
    assert float(post.hyper) == pytest.approx(3.0, abs=1e-3)
    assert post.verdict.startswith("Do not trust: 1 other mode seen, with about 50%")


@pytest.mark.parametrize("hyper_steps", [200, 1, 0])
def test_the_verdict_is_that_of_the_hyperparameters_learnt(hyper_steps):
    """Student noise ten times smaller than the start says: heavy tails there, not at the end."""
    x = np.linspace(-2, 2, 40)
    y = 1 + 2 * x + 0.1 * np.random.default_rng(2).standard_t(4, 40)

    def student(w, h):
        scaled = (y - w[0] - w[1] * x) * jnp.exp(-h)
        return (-2.5 * jnp.log1p(scaled**2 / 4) - h).sum() - 0.5 * w @ w / 1e4

    options = {"hyper": 0.0, "family": "full", "hyper_steps": hyper_steps}
    assert mixvi.fit(student, np.zeros(2), **options).verdict.startswith("Trust")


@pytest.mark.parametrize("start", [3.0, 0.0, -1.0])
def test_what_runs_off_is_named_where_nothing_can_be_found_beyond(start):
    """Centred schools: log tau goes to minus infinity, and further on there is no mode."""
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    se = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def schools(w, h):
        groups = -0.5 * ((w["t"] - w["m"]) * jnp.exp(-h)) ** 2 - h - 0.5 * jnp.log(2 * jnp.pi)
        return (-0.5 * ((y - w["t"]) / se) ** 2 + groups).sum() - 0.5 * w["m"] ** 2 / 400

    post = mixvi.laplace(schools, {"t": np.zeros(8), "m": 0.0}, hyper=start)
    assert post.hyper_report.ran_off == ("theta",)
    assert "Ran off: theta" in post.status


def test_sentences_about_hyperparameters():
    log_density, init, data, hyper = MODELS["logistic"]
    ask = {"data": data, "hyper": hyper}
    still = mixvi.laplace(log_density, init, **ask, hyper_steps=0)
    assert still.status.startswith("Hyperparameters left as they were.")
    with pytest.warns(mixvi.NotConvergedWarning):
        once = mixvi.laplace(log_density, init, **ask, hyper_steps=1)
    assert "found in 1 evaluation of the evidence" in once.status
    assert "stopped before it converged" in once.status
    with pytest.raises(mixvi.NonFiniteError, match="theta=-1"):
        mixvi.fit(lambda w, h: -(w**2) + jnp.log(h), 0.0, hyper=-1.0)
