"""Minimisers against functions whose minimum is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mixvi._errors import Code
from mixvi._optimise import bfgs, lbfgs, newton, newton_cg, scaled_conjugate_gradients


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def quadratic(x):
    scales = jnp.geomspace(1, 30, x.size)
    return 0.5 * (scales * (x - 1) ** 2).sum()


def far_cauchy(x):
    """Not convex where it starts: the Hessian has the wrong sign beyond |x - 1| > 1."""
    return jnp.log1p((x - 1) ** 2).sum()


def second_order(function):
    return lambda x: (function(x), jax.grad(function)(x), jax.hessian(function)(x))


def product(function):
    return lambda x, v: jax.jvp(jax.grad(function), (x,), (v,))[1]


FUNCTIONS = {
    "quadratic": (quadratic, np.zeros(7)),
    "rosenbrock": (rosenbrock, np.array([-1.2, 1.0])),
    "far cauchy": (far_cauchy, np.array([30.0, -8.0, 1.5])),
}
BOUND_SEARCHES = {
    "bfgs": lambda f, x: bfgs(jax.value_and_grad(f), x, 1e-7, 2000),
    "lbfgs": lambda f, x: lbfgs(jax.value_and_grad(f), x, 1e-7, 2000),
    "scg": lambda f, x: scaled_conjugate_gradients(
        jax.value_and_grad(f), product(f), x, 1e-7, 5000
    ),
}


@pytest.mark.parametrize("search", BOUND_SEARCHES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_order_searches_find_the_minimum(search, name):
    function, start = FUNCTIONS[name]
    found = jax.jit(lambda x: BOUND_SEARCHES[search](function, x))(start)
    assert int(found.code) == Code.OK
    np.testing.assert_allclose(found.point, np.ones(len(start)), atol=1e-5)
    assert float(jnp.abs(found.gradient).max()) < 1e-6


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("patient", [True, False])
def test_newton_finds_the_minimum(name, patient):
    function, start = FUNCTIONS[name]
    search = jax.jit(lambda x: newton(second_order(function), x, 1e-9, 300, patient))
    found = search(start)
    assert int(found.code) == Code.OK
    np.testing.assert_allclose(found.here.point, np.ones(len(start)), atol=1e-8)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_newton_by_conjugate_gradients_finds_the_minimum(name):
    function, start = FUNCTIONS[name]
    value_and_grad = jax.value_and_grad(function)
    search = jax.jit(lambda x: newton_cg(value_and_grad, product(function), x, 1e-9, 300))
    point, n_steps = search(start)
    assert int(n_steps) > 0
    np.testing.assert_allclose(point, np.ones(len(start)), atol=1e-6)


def test_newton_is_one_step_on_a_quadratic_whatever_the_units():
    units = jnp.geomspace(1e-6, 1e6, 5)

    def function(x):
        return quadratic(x / units)

    found = newton(second_order(function), jnp.zeros(5), 1e-7, 300)
    assert int(found.n_steps) <= 2
    np.testing.assert_allclose(found.here.point, units, rtol=1e-9)


def test_newton_leaves_a_saddle():
    def function(x):
        return x[0] ** 4 / 4 - 2 * x[0] ** 2 + 0.5 * x[1] ** 2

    found = newton(second_order(function), jnp.zeros(2), 1e-7, 300)
    assert int(found.code) == Code.OK
    np.testing.assert_allclose(np.abs(found.here.point), [2.0, 0.0], atol=1e-7)
    impatient = newton(second_order(function), jnp.zeros(2), 1e-7, 300, patient=False)
    assert int(impatient.code) == Code.STUCK


def test_newton_does_not_call_an_exponential_tail_a_minimum():
    found = newton(second_order(lambda x: jnp.exp(-x[0])), jnp.zeros(1), 1e-7, 100)
    assert int(found.code) == Code.RAN_OUT_OF_STEPS


@pytest.mark.parametrize("search", BOUND_SEARCHES)
def test_searches_back_away_from_what_is_not_finite(search):
    """Minimum at 1, not a number beyond 1.5: a first step from 0 overshoots into it."""

    def function(x):
        return jnp.where(x[0] < 1.5, 4 * (x[0] - 1) ** 2, jnp.nan)

    found = BOUND_SEARCHES[search](function, jnp.zeros(1))
    assert int(found.code) == Code.OK
    np.testing.assert_allclose(found.point, [1.0], atol=1e-6)


@pytest.mark.parametrize("search", BOUND_SEARCHES)
def test_a_start_that_is_not_finite_is_a_code(search):
    found = BOUND_SEARCHES[search](lambda x: jnp.log(x).sum(), -jnp.ones(2))
    assert int(found.code) == Code.NON_FINITE_DRAWS


@pytest.mark.parametrize("search", ["bfgs", "lbfgs"])
def test_batched_searches_equal_single_ones(search):
    starts = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)))
    one = jax.jit(lambda x: BOUND_SEARCHES[search](rosenbrock, x).point)
    many = jax.jit(jax.vmap(lambda x: BOUND_SEARCHES[search](rosenbrock, x).point))
    np.testing.assert_allclose(many(starts), np.stack([one(x) for x in starts]), atol=1e-6)
