"""Bounds on the host: the maps and the chain rule in NumPy, held to JAX's automatic ones."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._density._bounded import Bounded
from mixvi._density._constraints import parsed
from mixvi._density._kinds import NAMED, Free, Ordered, Simplex
from mixvi._density._numpy import NumpyDensity
from mixvi._density._protocol import Density
from mixvi._density._structure import flatten

INF = np.inf
KINDS = {
    "free": (Free(), np.zeros(3)),
    "positive": (NAMED["positive"], np.ones(3)),
    "unit": (NAMED["unit"], np.full((2, 2), 0.5)),
    "above": (mixvi.Interval(2, INF), np.full(3, 3.0)),
    "below": (mixvi.Interval(-INF, -1), np.full(3, -3.0)),
    "negative": (mixvi.Interval(-INF, 0), -1.0),
    "interval": (mixvi.Interval(-1, 3), np.ones(3)),
    "simplex": (Simplex(), np.full((2, 4), 0.25)),
    "pair": (Simplex(), np.full(2, 0.5)),
    "ordered": (Ordered(), np.array([[-2.0, 0.5, 0.6], [1.0, 2.0, 9.0]])),
    "one ordered": (Ordered(), np.zeros(1)),
}
MIXED = {
    "a": NAMED["positive"], "b": NAMED["unit"], "c": Simplex(), "d": Ordered(), "e": Free(),
    "f": mixvi.Interval(-1, 3),
}  # fmt: skip
MIXED_INIT = {
    "a": 1.0,
    "b": np.full(2, 0.5),
    "c": np.full((2, 3), 1 / 3),
    "d": np.arange(3.0),
    "e": 0.0,
    "f": np.ones((1, 2)),
}
NAMES = [*KINDS, "mixed"]


def bound(name):
    kinds, init = (
        (MIXED, MIXED_INIT) if name == "mixed" else ({"w": KINDS[name][0]}, KINDS[name][1])
    )
    return parsed(kinds, flatten(init, np.dtype(np.float64))[0])


def points_of(constraints):
    """Ordinary ones, zero, and |u| of up to 30."""
    dim, rng = constraints.free.size, np.random.default_rng(0)
    u = rng.standard_normal((3, dim))
    far = 30.0 * np.array([np.ones(dim), -np.ones(dim), (-1.0) ** np.arange(dim)])
    return np.concatenate([u, 4 * u, np.zeros((1, dim)), far])


def flat_of(tree):
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


@contextlib.contextmanager
def nothing_traced_or_compiled():
    seen = []

    def listen(event, duration, **_):
        if "/compile/" in event:
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert seen == []


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


# --- the maps ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_maps_are_those_of_traced_code(name):
    constraints = bound(name)
    points = points_of(constraints)
    traced = jax.jit(lambda u: (constraints.constrain(u), constraints.log_det(u)))
    for u in (points, points[0], points.reshape(2, 5, -1)):
        ours, (theirs, exact) = constraints.constrained(u), traced(u)
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert isinstance(one, np.ndarray)
            np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-300)
        np.testing.assert_allclose(constraints.log_dets(u), exact, rtol=1e-14, atol=1e-14)


def test_the_maps_do_not_compile():
    constraints = bound("mixed")
    with nothing_traced_or_compiled():
        # Shapes that no other test has.
        constraints.constrained(np.zeros((17, constraints.free.size)))
        constraints.log_dets(np.zeros((19, constraints.free.size)))


def test_single_precision_goes_through_double():
    constraints = bound("mixed")
    u = points_of(constraints)[0]
    for one, other in zip(
        jax.tree.leaves(constraints.constrained(u.astype(np.float32))),
        jax.tree.leaves(constraints.constrained(u)),
        strict=True,
    ):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_derivatives_of_the_maps(name):
    """`J v`, `J^T g`, `grad log|det J|` and how the last two change along `v`."""
    constraints = bound(name)
    kind, rng = constraints.kinds[0], np.random.default_rng(1)
    flat = points_of(constraints)
    u = flat.reshape(len(flat), *constraints.free.shapes[0])
    v = rng.standard_normal(u.shape)
    g = rng.standard_normal((len(u), *constraints.user.shapes[0]))

    def pulled(u, g):
        return jax.vjp(kind.constrain, u)[1](g)[0]

    def slope(u):
        return jax.grad(lambda u: kind.log_det(u).sum())(u)

    @jax.jit
    @jax.vmap
    def exact(u, g, v):
        push = jax.jvp(kind.constrain, (u,), (v,))[1]
        bend = jax.jvp(lambda u: pulled(u, g) + slope(u), (u,), (v,))[1]
        return push, pulled(u, g), slope(u), bend

    with np.errstate(all="raise", under="ignore"):
        ours = kind.push(u, v), kind.pull_back(u, g), kind.log_det_gradient(u), kind.bend(u, g, v)
    for one, other in zip(ours, exact(u, g, v), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-14)


# --- densities --------------------------------------------------------------------------------


class Gradients(Density):
    """`log p(x) = -(x - 1)^T A (x - 1) / 2 + sum sin x`, with its gradient alone."""

    def __init__(self, dim):
        self.dim = dim
        half = np.random.default_rng(2).standard_normal((dim, dim)) / np.sqrt(dim)
        self.a = half @ half.T + np.eye(dim)

    def traced(self, x):
        return -0.5 * (x - 1) @ self.a @ (x - 1) + jnp.sin(x).sum()

    def gradients(self, points):
        away = points - 1
        values = -0.5 * ((away @ self.a) * away).sum(1) + np.sin(points).sum(1)
        return values, -away @ self.a + np.cos(points)


class Whole(Gradients):
    """And with its Hessian."""

    resolution = 1e-12

    def curvature(self, point):
        values, gradients = self.gradients(point[None])
        return float(values[0]), gradients[0], -self.a - np.diag(np.sin(point))

    def product(self, point, vector):
        value, gradient, hessian = self.curvature(point)
        return value, gradient, hessian @ vector


def both(name, make):
    """The density on the host; value, gradient and Hessian in JAX of it as it is written."""
    constraints = bound(name)
    inner = make(constraints.user.size)

    def traced(u):
        return inner.traced(flat_of(constraints.constrain(u))) + constraints.log_det(u)

    exact = jax.jit(jax.vmap(lambda u: (traced(u), jax.grad(traced)(u), jax.hessian(traced)(u))))
    return Bounded(inner, constraints), exact


def close(ours, theirs, tol):
    theirs = np.asarray(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=tol, atol=tol * max(1.0, np.abs(theirs).max()))


@pytest.mark.parametrize("name", NAMES)
def test_value_gradient_and_hessian(name):
    density, traced = both(name, Whole)
    points = points_of(density.constraints)
    values, gradients = density.gradients(points)
    close(density.values(points), values, 1e-15)
    v = np.cos(np.arange(density.dim))
    for u, *ours, value, slope, exact in zip(
        points, values, gradients, *traced(points), strict=True
    ):
        value_there, gradient, hessian = density.curvature(u)
        # Each point at its own scale: those far out are of 1e26.
        for one in (ours[0], value_there):
            close(one, value, 1e-12)
        for one in (ours[1], gradient):
            close(one, slope, 1e-11)
        close(hessian, exact, 1e-10)
        value_there, gradient, product = density.product(u, v)
        close(value_there, value, 1e-12)
        close(gradient, slope, 1e-11)
        close(product, exact @ v, 1e-10)
    assert density.resolution == Whole.resolution


@pytest.mark.parametrize("name", NAMES)
def test_without_a_hessian_differences_are_taken_in_u(name):
    density, traced = both(name, Gradients)
    points, v = points_of(density.constraints)[:4], np.cos(np.arange(density.dim))
    for u, exact in zip(points, traced(points)[2], strict=True):
        close(density.curvature(u)[2], exact, 3e-8)
        close(density.product(u, v)[2], exact @ v, 3e-8)


def gamma(x):
    return (2 * np.log(x) - 3 * x).sum(), 2 / x - 3


def test_close_to_a_bound():
    """The Hessian of `3 u - 3 e^u` is `-3 e^u`, however small `x = e^u`: steps in x would leave the
    bound."""
    structure = flatten(np.ones(2), np.dtype(np.float64))[0]
    inner = NumpyDensity(mixvi.from_numpy(gamma), structure, None, False)
    density = Bounded(inner, parsed({"w": "positive"}, structure))
    value, gradient, hessian = density.curvature(np.full(2, -20.0))
    assert value == pytest.approx(2 * (-60 - 3 * np.exp(-20)), rel=1e-14)
    np.testing.assert_allclose(gradient, 3 - 3 * np.exp(-20), rtol=1e-14)
    np.testing.assert_allclose(hessian, 0.0, atol=1e-8)


def test_a_hessian_of_the_users_is_taken_through_the_bounds():
    structure = flatten(np.ones(2), np.dtype(np.float64))[0]
    function = mixvi.from_numpy(gamma, lambda x: np.diag(-2 / x**2))
    inner = NumpyDensity(function, structure, None, False)
    density = Bounded(inner, parsed({"w": "positive"}, structure))
    u = np.array([-8.0, 1.0])
    np.testing.assert_allclose(density.curvature(u)[2], np.diag(-3 * np.exp(u)), atol=1e-13)
    np.testing.assert_allclose(density.product(u, u)[2], -3 * np.exp(u) * u, atol=1e-13)


class Steep(Density):
    """`-x^2`, which is minus infinity where `x^2` overflows."""

    def __init__(self, dim):
        self.dim = dim

    def traced(self, x):
        return -(x**2).sum()

    def gradients(self, points):
        with np.errstate(over="ignore"):
            return -(points**2).sum(1), -2 * points


@pytest.mark.parametrize("name", NAMES)
def test_far_out_as_in_jax_and_without_warnings(name):
    """Warnings are errors here."""
    density, traced = both(name, Steep)
    far = np.array([-1e4, -800.0, -50.0, 50.0, 800.0, 1e4])
    points = np.repeat(far[:, None], density.dim, 1)
    values, gradients = density.gradients(points)
    exact, slopes, _ = traced(points)
    np.testing.assert_allclose(values, exact, rtol=1e-12)
    assert not np.isnan(gradients).any()
    # Where the map is flat JAX multiplies an overflow by zero.
    gradients = np.where(np.isnan(slopes), np.nan, gradients)
    np.testing.assert_allclose(gradients, slopes, rtol=1e-11, atol=1e-13)


def test_what_is_not_a_number_stays_so_without_warnings():
    density, _ = both("mixed", Whole)
    values, gradients = density.gradients(np.full((1, density.dim), np.nan))
    assert np.isnan(values).all()
    assert np.isnan(gradients).any()
    assert np.isnan(density.constraints.log_dets(np.full(density.dim, np.nan)))


def test_no_points_are_no_answers():
    density, _ = both("mixed", Whole)
    values, gradients = density.gradients(np.zeros((0, density.dim)))
    assert values.shape == (0,)
    assert gradients.shape == (0, density.dim)


# --- fits -------------------------------------------------------------------------------------

COUNTS = np.array([3.0, 5.0, 8.0])
# Kind, the density in NumPy with its gradient, in JAX, a start.
BOUND = {
    "unit": (
        "unit",
        lambda p: (3 * np.log(p) + 2 * np.log1p(-p), 3 / p - 2 / (1 - p)),
        lambda p: 3 * jnp.log(p) + 2 * jnp.log1p(-p),
        0.5,
    ),
    "below": (
        mixvi.Interval(-np.inf, 1),
        lambda x: (2 * np.log(1 - x) - 3 * (1 - x), 3 - 2 / (1 - x)),
        lambda x: 2 * jnp.log(1 - x) - 3 * (1 - x),
        0.0,
    ),
    "interval": (
        mixvi.Interval(-1, 1),
        lambda r: (2 * np.log1p(-r) + 4 * np.log1p(r), 4 / (1 + r) - 2 / (1 - r)),
        lambda r: 2 * jnp.log1p(-r) + 4 * jnp.log1p(r),
        0.0,
    ),
    "simplex": (
        "simplex",
        lambda x: ((COUNTS * np.log(x)).sum(), COUNTS / x),
        lambda x: (COUNTS * jnp.log(x)).sum(),
        np.full(3, 1 / 3),
    ),
    "ordered": (
        "ordered",
        lambda c: (-0.5 * ((c - COUNTS) ** 2).sum(), COUNTS - c),
        lambda c: -0.5 * ((c - COUNTS) ** 2).sum(),
        np.arange(3.0),
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_bounds_of_every_kind_as_in_jax(name):
    kind, plain, traced, start = BOUND[name]
    options = {"constraints": {"w": kind}, "tol": 1e-9, "draws": 512}
    ours = mixvi.fit(mixvi.from_numpy(plain), start, family="full", **options)
    theirs = mixvi.fit(traced, start, family="full", **options)
    assert ours.names == theirs.names
    np.testing.assert_allclose(ours.mode, theirs.mode, atol=1e-7)
    np.testing.assert_allclose(ours.flat_mean, theirs.flat_mean, atol=1e-6)
    np.testing.assert_allclose(ours.cov, theirs.cov, atol=1e-6)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-6)
    assert ours.elbo.value == pytest.approx(theirs.elbo.value, abs=1e-6)
    assert ours.verdict == theirs.verdict
