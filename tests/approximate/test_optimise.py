"""Searches against functions whose highest point is known."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mixvi._approximate._laplace import laplace
from mixvi._approximate._newton import newton
from mixvi._approximate._newton_cg import newton_cg
from mixvi._approximate._search import Stop, quasi_newton, scaled_conjugate_gradients
from mixvi._errors import Code
from targets import density_of, logistic, logistic_data

EPS = float(np.finfo(np.float64).eps)
TIGHT = Stop(tol=1e-7, max_steps=5000)


def rosenbrock(x):
    return -(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def quadratic(x):
    scales = jnp.geomspace(1, 30, x.size)
    return -0.5 * (scales * (x - 1) ** 2).sum()


def far_cauchy(x):
    """Not concave where it starts: the Hessian has the wrong sign beyond |x - 1| > 1."""
    return -jnp.log1p((x - 1) ** 2).sum()


FUNCTIONS = {
    "quadratic": (quadratic, np.zeros(7)),
    "rosenbrock": (rosenbrock, np.array([-1.2, 1.0])),
    "long rosenbrock": (rosenbrock, np.array([0.5, -0.4, 0.3, -0.2, 0.1, 0.0])),
    "far cauchy": (far_cauchy, np.array([30.0, -8.0, 1.5])),
}
BOUND_SEARCHES = {
    "bfgs": lambda f, x, stop: quasi_newton(f, x, stop, EPS),
    "lbfgs": lambda f, x, stop: quasi_newton(f, x, stop, EPS, dense=False),
    "scg": lambda f, x, stop: scaled_conjugate_gradients(f, x, stop, EPS),
}


class Watched:
    """A function as searches want it; `values` are what it answered."""

    def __init__(self, function):
        self.both = jax.jit(jax.value_and_grad(function))
        self.values: list[float] = []

    def __call__(self, x):
        with jax.enable_x64(True):
            value, gradient = self.both(x)
        self.values.append(float(value))
        return float(value), np.asarray(gradient)


@pytest.mark.parametrize("search", BOUND_SEARCHES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_order_searches_find_the_summit(search, name):
    function, start = FUNCTIONS[name]
    watched = Watched(function)
    found = BOUND_SEARCHES[search](watched, start, TIGHT)
    assert found.code is Code.OK
    np.testing.assert_allclose(found.point, np.ones(len(start)), atol=1e-5)
    assert np.abs(found.gradient).max() < 1e-6
    assert found.n_passes == len(watched.values)


@pytest.mark.parametrize("search", BOUND_SEARCHES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_search_ends_below_what_it_has_seen(search, name):
    """However few steps it may make; its value is that of its point, and it says that it was
    stopped."""
    function, start = FUNCTIONS[name]
    for max_steps in (1, 2, 3, 5, 10, 30):
        watched = Watched(function)
        found = BOUND_SEARCHES[search](watched, start, Stop(tol=1e-9, max_steps=max_steps))
        assert len(watched.values) <= max_steps
        assert found.value >= watched.values[0]
        assert found.value == pytest.approx(watched(found.point)[0], rel=1e-12)
        if found.code is not Code.OK:
            assert found.code is Code.BOUND_OUT_OF_STEPS
    # The highest of what was seen, but for differences of gradients, which look ahead.
    if search != "scg":
        assert found.value >= max(watched.values) - 1e-12 * abs(found.value)


@pytest.mark.parametrize("search", BOUND_SEARCHES)
def test_a_search_stops_by_the_gain_left(search):
    """Of a parabola the gain left is known exactly, once it is known."""
    watched = Watched(quadratic)
    found = BOUND_SEARCHES[search](watched, np.zeros(7), Stop(gain=1e-4))
    assert found.code is Code.OK
    assert found.gain_left <= 1e-4
    assert -found.value < 1e-2
    assert watched(found.point + found.next_step)[0] >= found.value
    slow = BOUND_SEARCHES[search](watched, np.zeros(7), TIGHT)
    assert found.n_passes <= slow.n_passes
    assert not slow.next_step.any()


def test_a_known_hessian_is_one_step():
    """The inverse Hessian of a parabola as a first guess: the next look is the last."""
    watched, scales = Watched(quadratic), np.geomspace(1, 30, 7)
    for dense in (True, False):
        near = 0.9 * np.ones(7)
        found = quasi_newton(watched, near, TIGHT, EPS, lambda q: q / scales, dense=dense)
        assert found.n_passes == 2
        np.testing.assert_allclose(found.point, np.ones(7), atol=1e-9)


@pytest.mark.parametrize("search", BOUND_SEARCHES)
def test_searches_back_away_from_what_is_not_finite(search):
    """Highest at 1, not a number beyond 1.5: a first step from 0 overshoots into it."""

    def function(x):
        return jnp.where(x[0] < 1.5, -4 * (x[0] - 1) ** 2, jnp.nan)

    found = BOUND_SEARCHES[search](Watched(function), np.zeros(1), TIGHT)
    assert found.code is Code.OK
    np.testing.assert_allclose(found.point, [1.0], atol=1e-6)


@pytest.mark.parametrize("search", BOUND_SEARCHES)
def test_a_start_that_is_not_finite_is_a_code(search):
    found = BOUND_SEARCHES[search](Watched(lambda x: -jnp.log(x).sum()), -np.ones(2), TIGHT)
    assert found.code is Code.NON_FINITE_DRAWS


# --- the mode ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_newton_finds_the_mode(name):
    function, start = FUNCTIONS[name]
    found = newton(density_of(function, len(start)), start, 1e-9)
    assert found.code is Code.OK
    np.testing.assert_allclose(found.place.point, np.ones(len(start)), atol=1e-8)
    np.testing.assert_allclose(found.place.gradient, 0, atol=1e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_newton_by_conjugate_gradients_finds_the_mode(name):
    function, start = FUNCTIONS[name]
    density = density_of(function, len(start))
    point, n_steps = newton_cg(density, start, 1e-9)
    assert 0 < n_steps < 300
    assert density.n_hessians == 0
    np.testing.assert_allclose(point, np.ones(len(start)), atol=1e-6)


def test_conjugate_gradients_stay_at_a_mode():
    for start in (np.ones(7), np.zeros(7)):
        point, _ = newton_cg(density_of(quadratic, 7), start, 1e-9)
        np.testing.assert_allclose(point, 1, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_newton_step_costs_one_hessian(name):
    """The trial point's own: no other questions are asked, and none is asked twice."""
    function, start = FUNCTIONS[name]
    density = density_of(function, len(start))
    found = newton(density, start, 1e-9)
    assert density.n_hessians == found.n_steps + 1
    assert density.n_values == density.n_gradients == density.n_products == 0


def test_laplace_costs_no_hessian_more_than_newton():
    density = density_of(logistic, 8, logistic_data())
    found = laplace(density, np.zeros(8))
    assert found.found
    assert density.n_hessians == found.n_steps + 1 <= 8
    assert density.n_values == density.n_gradients == density.n_products == 0


def test_newton_is_one_step_on_a_quadratic_whatever_the_units():
    units = np.geomspace(1e-6, 1e6, 5)
    found = newton(density_of(lambda x: quadratic(x / units), 5), np.zeros(5), 1e-7)
    assert found.n_steps <= 2
    assert found.n_damped == 0
    np.testing.assert_allclose(found.place.point, units, rtol=1e-9)


def test_newton_leaves_a_saddle():
    def function(x):
        return -(x[0] ** 4) / 4 + 2 * x[0] ** 2 - 0.5 * x[1] ** 2

    found = newton(density_of(function, 2), np.zeros(2), 1e-7)
    assert found.code is Code.OK
    assert found.n_damped > 0
    np.testing.assert_allclose(np.abs(found.place.point), [2.0, 0.0], atol=1e-7)


def test_newton_leaves_a_minimum():
    found = newton(density_of(lambda x: -((x**2 - 4) ** 2).sum(), 3), np.zeros(3), 1e-7)
    assert found.code is Code.OK
    np.testing.assert_allclose(np.abs(found.place.point), 2.0, atol=1e-7)


TAILS = {
    "exponential": lambda x: -jnp.exp(-x[0]),
    "logistic": lambda x: -jnp.logaddexp(0.0, -x[0]),
    "power": lambda x: -1 / (1 + jnp.maximum(x[0], 0.0)),
    "a mode across": lambda x: -jnp.exp(-x[0]) - 0.5 * (x[1] - 1) ** 2,
}


@pytest.mark.parametrize("name", TAILS)
def test_newton_does_not_call_a_tail_a_mode(name):
    dim = 2 if name == "a mode across" else 1
    with np.errstate(all="ignore"):
        found = newton(density_of(TAILS[name], dim), np.zeros(dim), 1e-7, 100)
    assert found.code in (Code.RAN_OUT_OF_STEPS, Code.STUCK)
    assert found.place.point[0] > 5


def test_newton_runs_out_of_steps_in_an_exponential_tail():
    found = newton(density_of(TAILS["exponential"], 1), np.zeros(1), 1e-7, 100)
    assert found.code is Code.RAN_OUT_OF_STEPS
    assert found.n_steps == 100


def test_a_start_without_density_is_a_code():
    found = newton(density_of(lambda x: jnp.log(x).sum(), 2), -np.ones(2), 1e-7)
    assert found.code is Code.NON_FINITE_START
    assert found.n_steps == 0


def test_newton_backs_away_from_what_is_not_finite():
    """Newton's own first step leaves the half line on which the density is."""

    def function(x):
        return 2 * jnp.log(x[0]) - x[0]

    found = newton(density_of(function, 1), np.array([9.0]), 1e-9)
    assert found.code is Code.OK
    assert found.n_damped > 0
    assert math.isclose(found.place.point[0], 2.0, rel_tol=1e-8)


def test_a_search_that_rises_by_no_more_than_noise_gives_up():
    """A gradient that promises a rise which values never show."""
    passes = []

    def level(point):
        passes.append(point)
        return 0.0, np.ones(2)

    found = quasi_newton(level, np.zeros(2), Stop(gain=1e-6), 1e-16, noise=10.0)
    assert found.code is Code.BOUND_STUCK
    assert len(passes) < 10
