"""Stein steps and inspections against exact answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._draws import Quadrature
from mixvi._first._elbo import Tilt, expectation
from mixvi._errors import Code
from mixvi._look import inspect, look, rough_start
from mixvi._memory import _factorises, each
from mixvi._stein import Past, _cut, _Move, stein
from mixvi._target import prepare
from targets import logistic_data

DIM = 4
RNG = np.random.default_rng(3)
A = RNG.standard_normal((DIM, DIM))
PRECISION = A @ A.T + 0.1 * np.eye(DIM)
CENTRE = np.array([3.0, -1.0, 0.5, 20.0])
ROOT = np.tril(RNG.standard_normal((DIM, DIM))) + 2 * np.eye(DIM)


def gaussian(w):
    return -0.5 * (w - CENTRE) @ PRECISION @ (w - CENTRE)


def skewed(w):
    """Counts with log-normal rates, correlated."""
    return (jnp.array([1.0, 0.0, 3.0]) * w - jnp.exp(w)).sum() - 0.5 * (w.sum() ** 2 + w @ w) / 4


def over(target, n=64, key=0, draws=mixvi.Matched):
    z = draws(n).make(key, target.structure.size)
    return expectation(target, jnp.asarray(z), 2**30, paired=draws is mixvi.Matched)


def target_of(function, dim, data=None):
    return prepare(function, np.zeros(dim), data, np.dtype(np.float64))[0]


def steps(target, mean, root, its, tol, max_steps):
    dim = len(mean)
    still = Tilt(jnp.zeros(0), jnp.zeros((0, 0)), jnp.zeros((dim, 0)))
    nothing = Past.of(dim, 0, np.dtype(np.float64), 2**30)
    return stein(target, still, (mean, root, jnp.zeros(0)), its, tol, max_steps, nothing)


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def test_pull_and_bend_of_a_gaussian_target_are_exact():
    target, mean = target_of(gaussian, DIM), np.arange(DIM, dtype=float)
    seen = look(target, jnp.asarray(mean), jnp.asarray(ROOT), over(target))
    np.testing.assert_allclose(seen.pull, -ROOT.T @ PRECISION @ (mean - CENTRE), rtol=1e-10)
    np.testing.assert_allclose(seen.bend, ROOT.T @ PRECISION @ ROOT, rtol=1e-10, atol=1e-10)


def test_the_gain_left_to_a_gaussian_target_is_its_divergence():
    target, mean = target_of(gaussian, DIM), CENTRE + 0.3
    cov = ROOT @ ROOT.T
    shown = inspect(target, jnp.asarray(mean), jnp.asarray(ROOT), over(target))
    product = PRECISION @ cov
    divergence = 0.5 * (
        np.trace(product)
        - DIM
        - np.linalg.slogdet(product)[1]
        + (mean - CENTRE) @ PRECISION @ (mean - CENTRE)
    )
    assert float(shown.gain_mean + shown.gain_root) == pytest.approx(divergence, rel=1e-10)
    assert float(shown.draw_loss) < 1e-20
    assert float(jnp.abs(shown.mean_se).max()) < 1e-10


@pytest.mark.parametrize("rule", [mixvi.Matched(64), Quadrature(64)])
@pytest.mark.parametrize("memory", [2**30, 2**14])
def test_the_slope_is_the_derivative_in_the_hyperparameters(rule, memory):
    x = np.random.default_rng(1).standard_normal((6, 2))

    def log_lik(eta, hyper):
        return -jnp.cosh(eta * jnp.exp(hyper["scale"]))

    model = mixvi.LinearPredictor(x, log_lik, lambda hyper: jnp.exp(hyper["alpha"]))
    hyper = {"alpha": 0.3, "scale": -0.5}
    target, _ = prepare(model, np.zeros(2), None, np.dtype(np.float64), hyper)
    by_nodes = isinstance(rule, Quadrature)
    points = rule.make(np.dtype(np.float64)) if by_nodes else jnp.asarray(rule.make(0, 2))
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

    target, _ = prepare(log_density, np.zeros(5), None, np.dtype(np.float64), 0.0)
    target = target.at(jnp.zeros(1))
    tilt = Tilt(jnp.zeros(1), jnp.eye(1), drift * jnp.ones((5, 1)))
    begin = jnp.zeros(5), jnp.eye(5), jnp.zeros(1)
    nothing = Past.of(5, 1, np.dtype(np.float64), 2**30)
    found = stein(target, tilt, begin, over(target), 1e-8, 300, nothing)
    assert int(found.code) == Code.OK
    v = np.mean(y**2) - 1
    assert float(found.tau[0]) == pytest.approx(np.log(v), abs=1e-6)
    np.testing.assert_allclose(found.mean, y * v / (1 + v), atol=1e-6)
    np.testing.assert_allclose(found.root @ found.root.T, v / (1 + v) * np.eye(5), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_a_gaussian_target_is_found_from_afar(scale):
    target = target_of(gaussian, DIM)
    found = steps(target, jnp.zeros(DIM), scale * jnp.eye(DIM), over(target), 1e-8, 100)
    assert int(found.code) == Code.OK
    np.testing.assert_allclose(found.mean, CENTRE, atol=1e-6)
    np.testing.assert_allclose(found.root @ found.root.T, np.linalg.inv(PRECISION), atol=1e-6)


def test_the_bound_never_falls_and_ends_where_both_gradients_vanish():
    target = target_of(skewed, 3)
    its, root = over(target, 256), rough_start(target, jnp.zeros(3), over(target, 256), 2**30)
    ends = [steps(target, jnp.zeros(3), root, its, 1e-6, n) for n in (*range(1, 12), 30)]
    bounds = np.array([float(one.look.elbo) for one in ends])
    assert (np.diff(bounds) >= -1e-12).all()
    assert int(ends[-1].code) == Code.OK
    assert float(ends[-1].error) < 1e-6


def test_the_end_is_that_of_bfgs_up_to_what_draws_cost():
    by_stein, by_bfgs = (
        mixvi.fit(skewed, np.zeros(3), "full", optimiser=name, draws=2**13, diagnostics=2**17)
        for name in ("stein", "bfgs")
    )
    assert by_stein.stats["optimiser"] == "stein"
    assert by_stein.stats["passes"] < by_bfgs.stats["passes"]
    assert by_stein.elbo.value > by_bfgs.elbo.value - 0.005
    np.testing.assert_allclose(by_stein.cov, by_bfgs.cov, atol=0.01)


def test_by_quadrature_as_by_many_draws():
    x, sign = logistic_data(40)[:2]
    model = mixvi.LinearPredictor(x, lambda eta: -jnp.logaddexp(0.0, -sign * eta), 1.0)
    exact = mixvi.fit(model, np.zeros(x.shape[1]), "full")
    drawn = mixvi.fit(model, np.zeros(x.shape[1]), "full", draws=2**14)
    assert exact.stats["draws_kind"] == Quadrature.kind
    assert exact.stats["optimiser"] == drawn.stats["optimiser"] == "stein"
    np.testing.assert_allclose(exact.flat_mean, drawn.flat_mean, atol=0.01)
    np.testing.assert_allclose(exact.cov, drawn.cov, atol=0.01)


def test_the_standard_error_of_the_mean_is_what_other_draws_do():
    """Independent draws, where nothing is matched: the sandwich against forty keys."""
    fits = [
        mixvi.fit(skewed, np.zeros(3), "full", draws=mixvi.IID(400), key=key, diagnostics=False)
        for key in range(40)
    ]
    spread = np.std([post.flat_mean for post in fits], axis=0)
    told = np.mean([post.flat_mean_se for post in fits], axis=0)
    assert (np.abs(np.log(told / spread)) < np.log(1.5)).all(), (told, spread)


def test_what_draws_cost_is_foreseen():
    """Matched draws, few of them: the bound lost on very many, averaged over keys."""
    best = mixvi.fit(skewed, np.zeros(3), "full", draws=2**15, diagnostics=2**17)
    lost, told = [], []
    for key in range(20):
        post = mixvi.fit(
            skewed, np.zeros(3), "full", draws=32, key=key, diagnostics=False, anchor="mode"
        )
        target = target_of(skewed, 3)
        at = jnp.asarray(post.flat_mean), jnp.asarray(post.root)
        many = look(target, *at, over(target, 2**14, key=99))
        top = look(
            target, jnp.asarray(best.flat_mean), jnp.asarray(best.root), over(target, 2**14, key=99)
        )
        lost.append(float(top.elbo - many.elbo))
        told.append(post.stats["draw_loss"])
    # Sobol points cost less in three dimensions than the scatter of their pairs tells.
    assert np.mean(lost) < np.mean(told) < 10 * np.mean(lost)


def test_a_flat_direction_runs_off_and_is_refused():
    target = target_of(lambda w: -0.5 * (w[0] + w[1]) ** 2, 2)
    found = steps(target, jnp.zeros(2), jnp.eye(2), over(target), 1e-6, 300)
    assert int(found.code) == Code.RAN_OFF
    with pytest.raises(mixvi.IndefiniteHessianError, match="carried by"):
        mixvi.fit(lambda w: -0.5 * (w[0] + w[1]) ** 2, np.zeros(2))


def test_stein_needs_the_whole_covariance():
    with pytest.raises(mixvi.InputError, match="whole covariance"):
        mixvi.fit(gaussian, np.zeros(DIM), "eig", optimiser="stein")


# --- rows of matrix factorisations ------------------------------------------------------------


def process(w):
    """A log density with two triangular solves, a batch of which could hang two cores."""
    kernel = jnp.exp(w[0] - 0.5 * (jnp.arange(3.0)[:, None] - jnp.arange(3.0)) ** 2) + jnp.eye(3)
    root = jnp.linalg.cholesky(kernel)
    return -0.5 * (jax.scipy.linalg.solve_triangular(root, w[1:], lower=True) ** 2).sum()


def test_factorisations_are_seen_wherever_they_stand():
    def inside(w):
        return jax.lax.scan(lambda total, _: (total + jax.jit(process)(w), None), 0.0, length=2)[0]

    at = jnp.zeros(4)
    assert _factorises(jax.make_jaxpr(process)(at).jaxpr)
    assert _factorises(jax.make_jaxpr(jax.grad(inside))(at).jaxpr)
    assert not _factorises(jax.make_jaxpr(lambda w: (w @ w) * jnp.exp(w).sum())(at).jaxpr)


def test_each_row_is_as_by_vmap():
    rows = jnp.asarray(RNG.standard_normal((7, 4)))
    np.testing.assert_allclose(each(process, rows), jax.vmap(process)(rows), rtol=1e-12)
    np.testing.assert_allclose(each(jnp.sum, rows, 2), rows.sum(1), rtol=1e-12)


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
