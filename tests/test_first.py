"""The first engine, on which hyperparameters and many problems still run. Goes when it goes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._draws import Quadrature
from mixvi._errors import Code
from mixvi._first._elbo import Tilt, expectation
from mixvi._first._look import look
from mixvi._first._optimise import bfgs, lbfgs, newton
from mixvi._first._stein import Past, _cut, _Move, stein
from mixvi._target import prepare
from targets import DOUBLE

SEARCHES = {
    "bfgs": lambda f, x: bfgs(jax.value_and_grad(f), x, 1e-7, 2000),
    "lbfgs": lambda f, x: lbfgs(jax.value_and_grad(f), x, 1e-7, 2000),
}


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("rule", [mixvi.Matched(64), Quadrature(64)])
@pytest.mark.parametrize("memory", [2**30, 2**14])
def test_the_slope_is_the_derivative_in_the_hyperparameters(rule, memory):
    x = np.random.default_rng(1).standard_normal((6, 2))

    def log_lik(eta, hyper):
        return -jnp.cosh(eta * jnp.exp(hyper["scale"]))

    model = mixvi.LinearPredictor(x, log_lik, lambda hyper: jnp.exp(hyper["alpha"]))
    hyper = {"alpha": 0.3, "scale": -0.5}
    target, _ = prepare(model, np.zeros(2), None, DOUBLE, hyper)
    by_nodes = isinstance(rule, Quadrature)
    points = rule.make(DOUBLE) if by_nodes else jnp.asarray(rule.make(0, 2))
    its = expectation(target, points, memory, paired=not by_nodes)
    at = jnp.array([0.2, -0.1]), jnp.array([[0.5, 0.0], [0.2, 0.4]])

    def bound(theta):
        return float(look(target.at(jnp.asarray(theta)), *at, its).elbo)

    seen = look(target, *at, its, learns=True)
    theta, step = np.asarray(target.theta), 1e-5
    for k, unit in enumerate(step * np.eye(2)):
        difference = (bound(theta + unit) - bound(theta - unit)) / (2 * step)
        assert float(seen.slope[k]) == pytest.approx(difference, rel=1e-7)
    plain = look(target.at(jnp.asarray(theta)), *at, its)
    np.testing.assert_allclose(seen.pull, plain.pull, rtol=1e-12)
    np.testing.assert_allclose(seen.bend, plain.bend, rtol=1e-12)


@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_hyperparameters_of_a_conjugate_model(drift):
    """y ~ N(w, 1), w ~ N(0, v): the evidence is highest where 1 + v is the mean square of y."""
    y = np.array([1.0, -3.0, 2.0, 4.0, 0.5])

    def log_density(w, h):
        return (-0.5 * (y - w) ** 2 - 0.5 * w**2 * jnp.exp(-h) - 0.5 * h).sum()

    target, _ = prepare(log_density, np.zeros(5), None, DOUBLE, 0.0)
    target = target.at(jnp.zeros(1))
    over = expectation(target, jnp.asarray(mixvi.Matched(64).make(0, 5)), 2**30, paired=True)
    tilt = Tilt(jnp.zeros(1), jnp.eye(1), drift * jnp.ones((5, 1)))
    begin = jnp.zeros(5), jnp.eye(5), jnp.zeros(1)
    nothing = Past.of(5, 1, DOUBLE, 2**30)
    found = stein(target, tilt, begin, over, 1e-8, 300, nothing)
    assert int(found.code) == Code.OK
    v = np.mean(y**2) - 1
    assert float(found.tau[0]) == pytest.approx(np.log(v), abs=1e-6)
    np.testing.assert_allclose(found.mean, y * v / (1 + v), atol=1e-6)
    np.testing.assert_allclose(found.root @ found.root.T, v / (1 + v) * np.eye(5), atol=1e-6)


@pytest.mark.parametrize("whole", [True, False])
def test_a_step_is_cut_to_reach_in_proportion_where_its_parts_depend_on_each_other(whole):
    move = _Move(jnp.array([8.0, -2.0]), jnp.diag(jnp.array([1.0, -0.5])), jnp.array([0.25]))
    tilt = Tilt(jnp.zeros(1), jnp.eye(1), jnp.zeros((2, 1)))
    cut, factor, size = _cut(move, jnp.array(1.0), tilt, jnp.array(whole))
    # half of the mean's way, 4, is the longest part
    np.testing.assert_allclose(cut.mean, [2.0, -0.5])
    shrunk = 4.0 if whole else 1.0
    np.testing.assert_allclose(cut.tau, [0.25 / shrunk])
    np.testing.assert_allclose(factor, np.diag(np.exp([1.0 / shrunk, -0.5 / shrunk])))
    assert float(size) == pytest.approx(1.0)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("search", SEARCHES)
def test_batched_searches_equal_single_ones(search):
    starts = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)))
    one = jax.jit(lambda x: SEARCHES[search](rosenbrock, x).point)
    many = jax.jit(jax.vmap(lambda x: SEARCHES[search](rosenbrock, x).point))
    np.testing.assert_allclose(many(starts), np.stack([one(x) for x in starts]), atol=1e-6)


def test_an_impatient_search_stays_at_a_saddle():
    def function(x):
        return x[0] ** 4 / 4 - 2 * x[0] ** 2 + 0.5 * x[1] ** 2

    def at(x):
        return function(x), jax.grad(function)(x), jax.hessian(function)(x)

    assert int(newton(at, jnp.zeros(2), 1e-7, 300, patient=False).code) == Code.STUCK
    left = newton(at, jnp.zeros(2), 1e-7, 300)
    np.testing.assert_allclose(np.abs(left.here.point), [2.0, 0.0], atol=1e-7)
