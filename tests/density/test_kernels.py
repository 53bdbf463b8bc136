"""What is the user's is traced once and compiled a few times; all else is plain array code."""

import contextlib
import dataclasses
import math
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._density import _jax
from mixvi._fit._threads import _controller, one_blas_thread
from targets import Counted, counts, logistic, logistic_data

FAMILIES = ["laplace", "mu", "eig", "lr", "full", "diag", "auto"]
SMALL = logistic_data(40)


class Watch:
    """Programs made of the user's function, and all that JAX has traced or compiled meanwhile."""

    def __init__(self):
        self.programs: list = []
        self.events: list[str] = []

    def hear(self, event, duration, **_):
        if "/compile/" in event:
            self.events.append(event)

    @contextlib.contextmanager
    def nothing_new(self, counted):
        self.wait()
        before = counted.n, len(self.programs), len(self.events)
        yield
        self.wait()
        assert (counted.n, len(self.programs), len(self.events)) == before

    @staticmethod
    def wait():
        """Some programs are compiled beside the search."""
        for thread in threading.enumerate():
            if thread.name == "mixvi-compile":
                thread.join()


@pytest.fixture
def watch(monkeypatch):
    seen, compiled = Watch(), _jax.Trace._compiled

    def watched(self, make, shapes):
        if make not in seen.programs:
            seen.programs.append(make)
        return compiled(self, make, shapes)

    monkeypatch.setattr(_jax.Trace, "_compiled", watched)
    jax.monitoring.register_event_duration_secs_listener(seen.hear)
    _jax.forget()
    yield seen
    seen.wait()
    jax.monitoring.unregister_event_duration_listener(seen.hear)


# --- how often it is traced and compiled ------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_first_fit_compiles_little(watch, family):
    counted = Counted(logistic)
    mixvi.fit(counted, np.zeros(8), data=SMALL, family=family)
    watch.wait()
    assert 1 <= counted.n <= 2
    assert 1 <= len(watch.programs) <= 4
    # Nothing else is compiled, either.
    assert sum("backend_compile" in event for event in watch.events) <= len(watch.programs)


def test_many_dimensions_compile_one_program_more(watch):
    """Products of the Hessian, by which the mode is found; a log density that is nearly Gaussian
    asks all the questions there are in little time."""
    counted, (x, sign) = Counted(logistic), logistic_data(100, 400)
    post = mixvi.fit(counted, np.zeros(400), data=(x / 20, sign))
    watch.wait()
    assert post.converged
    assert 1 <= counted.n <= 2
    assert len(watch.programs) <= 5


@pytest.mark.filterwarnings("ignore::mixvi.NotConvergedWarning")
def test_whatever_is_asked_next_compiles_nothing(watch):
    counted = Counted(logistic)
    mixvi.fit(counted, np.zeros(8), data=SMALL)
    other, key = logistic_data(40, seed=1), jax.random.key_data(jax.random.key(1))
    asked = [
        *({"family": family} for family in FAMILIES),
        {"family": mixvi.LowRank(rank=2)},
        {"draws": 3000},
        {"draws": mixvi.IID(77), "family": "eig"},
        {"key": 9},
        {"key": key},
        {"data": other},
        {"family": "eig", "anchor": "average", "optimiser": "scg"},
        {"family": "full", "optimiser": "bfgs", "tol": 1e-6},
        {"diagnostics": 5000},
        {"n_restarts": 2},
    ]
    warm = mixvi.fit(counted, np.ones(8), data=SMALL)
    for options in asked:
        with watch.nothing_new(counted):
            mixvi.fit(counted, np.ones(8), **({"data": SMALL} | options))
    with watch.nothing_new(counted):
        mixvi.fit(counted, warm, data=other)
        mixvi.laplace(counted, np.ones(8), data=other)
        for _ in range(3):
            mixvi.fit(counted, np.ones(8), data=SMALL, family="eig", throw=False, max_steps=2)


def test_new_shapes_are_traced_anew(watch):
    counted = Counted(logistic)
    mixvi.fit(counted, np.zeros(8), data=SMALL)
    seen = 0
    for dim, n in ((8, 41), (7, 40)):
        seen, programs = counted.n, len(watch.programs)
        mixvi.fit(counted, np.zeros(dim), data=logistic_data(n, dim))
        assert counted.n > seen
        assert len(watch.programs) > programs
    with watch.nothing_new(counted):
        mixvi.fit(counted, np.zeros(8), data=SMALL)


def test_a_linear_predictor_compiles_as_little(watch):
    x, sign = SMALL
    counted = Counted(lambda eta, sign: jax.nn.log_sigmoid(sign * eta))
    model = mixvi.LinearPredictor(x, lambda eta, sign: counted(eta, sign), 1.0)
    mixvi.fit(model, np.zeros(8), data=sign)
    watch.wait()
    assert 1 <= counted.n <= 2
    assert len(watch.programs) <= 4
    for family in ("laplace", "mu", "eig", "lr", "full"):
        with watch.nothing_new(counted):
            mixvi.fit(model, np.zeros(8), data=-sign, family=family)
    # The nodes of a root without correlations are another program; more nodes are not.
    mixvi.fit(model, np.zeros(8), data=sign, family="diag")
    with watch.nothing_new(counted):
        mixvi.fit(model, np.zeros(8), data=sign, family="diag", draws=mixvi.Quadrature(128))


def test_several_predictors_compile_as_little(watch):
    x, label = logistic_data(30, 2)[0], np.arange(30) % 3

    def of_class(eta, label):
        chosen = jnp.take_along_axis(eta, label[:, None], axis=1)[:, 0]
        return chosen - jax.scipy.special.logsumexp(eta, axis=1)

    counted = Counted(of_class)
    model = mixvi.LinearPredictor(x, lambda eta, label: counted(eta, label), 0.5)
    mixvi.fit(model, np.zeros((3, 2)), data=label)
    watch.wait()
    assert 1 <= counted.n <= 2
    assert len(watch.programs) <= 4
    with watch.nothing_new(counted):
        mixvi.fit(model, np.zeros((3, 2)), data=label[::-1].copy(), family="full", key=4)


def test_fits_from_several_threads_agree(watch):
    counted, posts = Counted(logistic), []

    def work():
        posts.append(mixvi.fit(counted, np.zeros(8), data=SMALL))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.wait()
    # Each may have traced before it could find the other's trace.
    assert counted.n <= 4 == len(posts)
    for post in posts[1:]:
        np.testing.assert_array_equal(post.flat_mean, posts[0].flat_mean)


def test_old_traces_are_let_go(monkeypatch):
    monkeypatch.setattr(_jax, "MOST_TRACES", 3)
    for scale in range(5):
        mixvi.laplace(lambda w, s=scale: -((w - s) ** 2), 0.0, diagnostics=False)
    assert len(_jax._traces) <= 3
    _jax.forget()
    assert not _jax._traces


# --- what is captured -------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["laplace", "eig", "auto"])
def test_captured_arrays_and_globals_are_not_stale(family):
    world = {"jnp": jnp, "centre": np.array([1.0, 2.0]), "scale": 2.0}
    exec(
        "def log_density(w):\n"
        "    u = (w - centre) / scale\n"
        "    return -0.5 * (u**2).sum() - 0.01 * (u**4).sum()",
        world,
    )
    widths = []
    for centre, scale in (([1.0, 2.0], 2.0), ([3.0, -1.0], 2.0), ([3.0, -1.0], 0.5)):
        world["centre"], world["scale"] = np.array(centre), scale
        post = mixvi.fit(world["log_density"], np.zeros(2), family=family)
        np.testing.assert_allclose(post.mean, centre, atol=1e-3)
        widths.append(post.std[0])
    assert widths[0] == pytest.approx(widths[1], rel=1e-6)
    assert widths[0] == pytest.approx(4 * widths[2], rel=1e-3)


def test_two_closures_of_one_function_are_two_densities():
    def around(centre):
        return lambda w: -0.5 * ((w - centre) ** 2).sum()

    posts = [mixvi.laplace(around(np.full(2, c)), np.zeros(2)) for c in (1.0, 4.0, 1.0)]
    for post, centre in zip(posts, (1.0, 4.0, 1.0), strict=True):
        np.testing.assert_allclose(post.mean, centre, atol=1e-9)


# --- threads ----------------------------------------------------------------------------------

FROM_TWO_THREADS = """
import threading
import jax, jax.numpy as jnp, numpy as np
import mixvi

x = np.linspace(0, 1, 12)
y = np.sin(6 * x)

def process(w):
    kernel = jnp.exp(w[0] - 0.5 * (x[:, None] - x) ** 2 * jnp.exp(-2 * w[1]))
    root = jnp.linalg.cholesky(kernel + jnp.exp(w[2]) * jnp.eye(12))
    half = jax.scipy.linalg.solve_triangular(root, y, lower=True)
    return -0.5 * half @ half - jnp.log(jnp.diagonal(root)).sum() - 0.1 * w @ w

means = []

def work():
    for key in range(6):
        post = mixvi.fit(process, np.array([0.0, -1.0, -2.0]), key=key, draws=1024, family="full")
        means.append(post.flat_mean)

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(means), np.ptp(means, axis=0).max() < 0.1)
"""


def test_factorisations_from_two_threads_do_not_hang():
    command = [sys.executable, "-c", FROM_TWO_THREADS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.split() == ["12", "True"]


# --- the same numbers -------------------------------------------------------------------------


def bits(family, **options):
    post = mixvi.fit(logistic, np.zeros(8), data=SMALL, family=family, key=5, **options)
    numbers = (post.flat_mean, post.root, post.mode, np.array([post.elbo.value, post.khat]))
    return b"".join(one.tobytes() for one in numbers)


@pytest.mark.parametrize("family", FAMILIES)
def test_same_bits_whatever_was_fitted_before(family):
    _jax.forget()
    first = bits(family)
    assert bits(family) == first
    _jax.forget()
    mixvi.fit(logistic, np.ones(8), data=logistic_data(40, seed=3), draws=3000, key=2)
    mixvi.fit(logistic, np.zeros(5), data=logistic_data(30, 5), family="full")
    mixvi.fit(logistic, np.zeros(8), data=SMALL, dtype="float32")
    mixvi.fit(logistic, np.zeros(8), data=SMALL, memory="1MiB")
    assert bits(family) == first


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_is_near_float64(family):
    exact, rough = (
        mixvi.fit(logistic, np.zeros(8), data=SMALL, family=family, dtype=dtype)
        for dtype in ("float64", "float32")
    )
    assert rough.flat_mean.dtype == rough.root.dtype == np.float32
    assert exact.flat_mean.dtype == exact.root.dtype == np.float64
    assert rough.converged
    assert rough.family == exact.family
    assert np.abs((rough.flat_mean - exact.flat_mean) / exact.flat_std).max() < 0.02
    np.testing.assert_allclose(rough.flat_std, exact.flat_std, rtol=0.02)
    assert rough.elbo.value == pytest.approx(exact.elbo.value, abs=0.01)


def test_float32_by_quadrature():
    x, sign = SMALL

    def log_likelihood(eta):
        return jax.nn.log_sigmoid(jnp.asarray(sign, eta.dtype) * eta)

    model = mixvi.LinearPredictor(x, log_likelihood, 1.0)
    exact, rough = (mixvi.fit(model, np.zeros(8), dtype=one) for one in ("float64", "float32"))
    assert rough.flat_mean.dtype == np.float32
    assert rough.converged
    np.testing.assert_allclose(rough.flat_mean, exact.flat_mean, atol=2e-3)
    np.testing.assert_allclose(rough.flat_std, exact.flat_std, rtol=2e-3)


# --- densities and families of the user's own -------------------------------------------------


class Skewed(mixvi.Density):
    """`counts` of the targets, without JAX."""

    dim = 3
    y = np.array([1.0, 0.0, 3.0])

    def gradients(self, points):
        total, rate = points.sum(1), np.exp(points)
        values = (self.y * points - rate).sum(1) - 0.125 * (total**2 + (points**2).sum(1))
        return values, self.y - rate - 0.25 * (total[:, None] + points)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_density_of_ones_own(family):
    ours, theirs = (
        mixvi.fit(density, np.zeros(3), family=family, tol=1e-6) for density in (Skewed(), counts)
    )
    assert ours.family == theirs.family
    np.testing.assert_allclose(ours.flat_mean, theirs.flat_mean, atol=1e-5)
    np.testing.assert_allclose(ours.cov, theirs.cov, atol=1e-5)
    assert ours.elbo.value == pytest.approx(theirs.elbo.value, abs=1e-4)
    assert ours.stats.gradients > 0


def test_a_density_of_ones_own_by_name_and_with_bounds():
    post = mixvi.laplace(Skewed(), {"a": 0.0, "b": np.zeros(2)})
    assert post.names == ("a", "b[0]", "b[1]")
    assert set(post.mean) == {"a", "b"}
    bounds = {"w": mixvi.Interval(-9, 9)}
    ours, theirs = (
        mixvi.fit(density, np.full(3, 0.1), constraints=bounds) for density in (Skewed(), counts)
    )
    np.testing.assert_allclose(ours.flat_mean, theirs.flat_mean, atol=1e-4)


def test_a_density_of_ones_own_is_checked():
    for call in (mixvi.fit, mixvi.laplace):
        with pytest.raises(mixvi.InputError, match=r"Skewed has 3 dimensions.* 4 numbers"):
            call(Skewed(), np.zeros(4))
    with pytest.raises(mixvi.InputError, match="hyper= needs"):
        mixvi.fit(Skewed(), np.zeros(3), hyper=0.0)
    with pytest.raises(mixvi.InputError, match="data= is for functions"):
        mixvi.fit(Skewed(), np.zeros(3), data=np.ones(2))


class CommonScale(mixvi.Family):
    """One scale for all directions: `A = exp(phi) I`."""

    name = "common"
    updates_root = False

    @property
    def poorer(self):
        return mixvi.MeanOnly()

    def right_multiply(self, root, phi):
        return root * math.exp(phi[0])

    def log_det(self, phi, dim):
        return dim * float(phi[0])

    def pull_back(self, n, phi):
        return np.array([math.exp(phi[0]) * np.trace(n) + len(n)])

    def starts(self, root, a, gradient, laplace_root):
        return np.array([[0.5 * math.log((a**2).sum() / len(a))]])


def test_a_family_of_ones_own_between_those_it_lies_between():
    options = {"data": SMALL, "draws": 512, "tol": 1e-6, "anchor": "mode"}
    bounds = [
        mixvi.fit(logistic, np.zeros(8), family=family, **options)
        for family in ("mu", CommonScale(), "eig")
    ]
    assert bounds[1].family == "common"
    assert bounds[1].converged
    assert bounds[0].elbo_fixed + 1e-3 < bounds[1].elbo_fixed < bounds[2].elbo_fixed - 1e-4
    ratio = np.linalg.solve(bounds[0].cov, bounds[1].cov)
    np.testing.assert_allclose(ratio, ratio[0, 0] * np.eye(8), atol=1e-8)


def test_a_family_of_ones_own_finds_the_exact_answer():
    """Two independent log-gammas: every direction wants the same scale, and no other."""
    options = {"family": CommonScale(), "draws": 4000, "tol": 1e-5}
    post = mixvi.fit(lambda w: (3 * w - jnp.exp(w)).sum(), np.zeros(2), **options)
    np.testing.assert_allclose(post.mean, math.log(3) - 1 / 6, atol=2e-3)
    np.testing.assert_allclose(post.std, 3**-0.5, atol=2e-3)
    assert "common" in post.summary()


def test_blas_threads_are_given_back_whichever_fit_ends_first():
    def threads():
        found = _controller().select(user_api="blas").info()
        return [one["num_threads"] for one in found]

    before = threads()
    first, second = one_blas_thread(3), one_blas_thread(3)
    first.__enter__()
    second.__enter__()
    assert set(threads()) == {1}
    first.__exit__(None, None, None)
    assert set(threads()) == {1}
    second.__exit__(None, None, None)
    assert threads() == before


def test_a_blas_that_is_loaded_later_is_held_too():
    code = """
import sys
from mixvi._fit._threads import one_blas_thread
with one_blas_thread(3):
    early = "scipy.linalg" in sys.modules
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits
with threadpool_limits(2):
    with one_blas_thread(3):
        print(early, {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"})
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "{1}"]


def test_globals_named_in_inner_functions_are_seen_when_they_change():
    world = {"jax": jax}
    source = "def f(w):\n    return jax.vmap(lambda r: -0.5 * (r - y) ** 2)(w).sum()"
    exec(source, world)
    for y in (1.0, 5.0):
        world["y"] = y
        np.testing.assert_allclose(mixvi.laplace(world["f"], np.zeros(2)).mean, y)


def test_a_density_may_use_its_arrays_again():
    class Quartic(mixvi.Density):
        dim = 3
        kept = np.zeros((0, 3))

        def gradients(self, points):
            if len(self.kept) != len(points):
                self.kept = np.zeros_like(points)
            self.kept[:] = 1 - points**3
            return (points - points**4 / 4).sum(1), self.kept

    post = mixvi.fit(Quartic(), np.ones(3), family="mu")
    np.testing.assert_allclose(post.std, 3**-0.5, rtol=1e-6)


def test_a_density_that_answers_in_another_shape_is_told_so():
    class Column(mixvi.Density):
        dim = 2

        def gradients(self, points):
            return -0.5 * (points**2).sum(1, keepdims=True), -points

    with pytest.raises(mixvi.InputError, match=r"Column.gradients returned arrays of shapes"):
        mixvi.laplace(Column(), np.zeros(2))


def test_what_jax_cannot_differentiate_is_said():
    def log_density(w):
        return jax.lax.while_loop(lambda v: v > 1.0, lambda v: 0.5 * v, -0.5 * (w**2).sum())

    with pytest.raises(mixvi.InputError, match="cannot differentiate"):
        mixvi.laplace(log_density, np.ones(2))


def test_small_unsigned_data_do_not_wrap_around():
    data = jnp.array([[1], [3]], jnp.uint8)
    post = mixvi.laplace(lambda w, d: -0.5 * ((d[0] - d[1] - w) ** 2).sum(), 0.0, data=data)
    assert float(post.mean) == pytest.approx(-2)


def test_results_are_copies():
    post = mixvi.laplace(lambda w: -0.5 * (w**2).sum(), np.ones(2))
    mean = post.mean
    mean += 5
    np.testing.assert_allclose(post.mean, 0, atol=1e-12)


def test_a_callable_that_cannot_be_hashed():
    @dataclasses.dataclass
    class Model:
        centre: float

        def __call__(self, w):
            return -0.5 * ((w - self.centre) ** 2).sum()

    np.testing.assert_allclose(mixvi.laplace(Model(2.0), np.zeros(2)).mean, 2)
