"""Stein steps and inspections against exact answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._approximate._bound import Shape, bound_at, inspect, lost_to_rule
from mixvi._approximate._search import Stop
from mixvi._approximate._stein import Move, Past, stein, within_reach
from mixvi._arrays._draws import Quadrature
from mixvi._errors import Code
from targets import DOUBLE, density_of, logistic_data, points

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


def seen_from(density, mean, root, rule) -> Shape:
    return Shape.of(density.expect(mean, root, rule), root)


def test_pull_and_bend_of_a_gaussian_target_are_exact():
    density, mean = density_of(gaussian, DIM), np.arange(DIM, dtype=float)
    shape = seen_from(density, mean, ROOT, points(64, DIM))
    np.testing.assert_allclose(shape.pull, -ROOT.T @ PRECISION @ (mean - CENTRE), rtol=1e-10)
    np.testing.assert_allclose(shape.bend, ROOT.T @ PRECISION @ ROOT, rtol=1e-10, atol=1e-10)
    expected = -0.5 * (mean - CENTRE) @ PRECISION @ (mean - CENTRE)
    expected += -0.5 * np.trace(PRECISION @ ROOT @ ROOT.T)
    entropy = np.linalg.slogdet(ROOT)[1] + 0.5 * DIM * np.log(2 * np.pi * np.e)
    assert shape.elbo == pytest.approx(expected + entropy, rel=1e-12)


def test_pull_and_bend_are_the_slopes_of_the_bound():
    """In the mean, and in a symmetric log factor of the root, of which `I - bend` is the slope."""
    density, rule = density_of(skewed, 3), points(64, 3)
    mean, root, h = np.array([0.2, -0.4, 0.6]), 0.4 * np.eye(3) + 0.1 * A[:3, :3], 1e-5
    shape = seen_from(density, mean, root, rule)
    for i, unit in enumerate(h * np.eye(3)):
        up, down = (bound_at(density, mean + s * root @ unit, root, rule) for s in (1, -1))
        assert shape.pull[i] == pytest.approx((up - down) / (2 * h), rel=1e-6)
    for i in range(3):
        for j in range(i + 1):
            turn = np.zeros((3, 3))
            turn[i, j] = turn[j, i] = h
            up, down = (
                bound_at(density, mean, root @ (np.eye(3) + s * turn), rule) for s in (1, -1)
            )
            slope = ((np.eye(3) - shape.bend) * turn).sum() / h
            assert slope == pytest.approx((up - down) / (2 * h), rel=1e-6)


def test_the_gain_left_to_a_gaussian_target_is_its_divergence():
    mean = CENTRE + 0.3
    cov = ROOT @ ROOT.T
    shown = inspect(density_of(gaussian, DIM), mean, ROOT, points(64, DIM))
    product = PRECISION @ cov
    divergence = 0.5 * (
        np.trace(product)
        - DIM
        - np.linalg.slogdet(product)[1]
        + (mean - CENTRE) @ PRECISION @ (mean - CENTRE)
    )
    assert shown.gain_mean + shown.gain_root == pytest.approx(divergence, rel=1e-10)
    assert shown.gain == pytest.approx(divergence, rel=1e-10)
    assert 0 < shown.gain_widths < shown.gain_root
    assert shown.draw_loss < 1e-20
    assert np.abs(shown.mean_se).max() < 1e-10


def test_the_gain_of_widths_is_what_widths_can_gain():
    """Along the root's own columns: all of it for a diagonal target, nothing for a rotated one."""
    widths = np.array([0.5, 1.0, 3.0])
    density = density_of(lambda w: -0.5 * (w**2).sum(), 3)
    shown = inspect(density, np.zeros(3), np.diag(widths), points(64, 3))
    assert shown.gain_widths == pytest.approx(shown.gain_root, rel=1e-10)
    assert shown.gain_root == pytest.approx(0.5 * (widths**2 - 1 - 2 * np.log(widths)).sum())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_a_gaussian_target_is_found_from_afar(scale):
    density, stop = density_of(gaussian, DIM), Stop(tol=1e-8, max_steps=100)
    found = stein(density, np.zeros(DIM), scale * np.eye(DIM), points(64, DIM), stop)
    assert found.code is Code.OK
    np.testing.assert_allclose(found.mean, CENTRE, atol=1e-6)
    np.testing.assert_allclose(found.root @ found.root.T, np.linalg.inv(PRECISION), atol=1e-6)


def test_the_bound_never_falls_and_ends_where_both_gradients_vanish():
    density, rule = density_of(skewed, 3), points(256, 3)
    stops = [Stop(tol=1e-6, max_steps=n) for n in (*range(1, 12), 30)]
    ends = [stein(density, np.zeros(3), np.eye(3), rule, stop) for stop in stops]
    bounds = np.array([one.elbo for one in ends])
    assert (np.diff(bounds) >= -1e-12).all()
    assert ends[0].code is Code.BOUND_OUT_OF_STEPS
    assert ends[-1].code is Code.OK
    assert ends[-1].gradient < 1e-6
    for one in ends:
        assert one.elbo == pytest.approx(bound_at(density, *one.evaluated_at, rule), rel=1e-12)


def test_steps_end_where_little_is_left_to_gain():
    """What more steps find is not more than that, and the last step, paid for, loses nothing."""
    density, rule = density_of(skewed, 3), points(256, 3)
    begin = (density, np.zeros(3), np.eye(3), rule)
    soon, late = (stein(*begin, stop) for stop in (Stop(), Stop(tol=1e-8)))
    assert soon.code is late.code is Code.OK
    assert soon.n_passes < late.n_passes
    assert soon.gain_left < 1e-4
    assert late.elbo - 3e-4 < soon.elbo <= late.elbo + 1e-12
    ends = bound_at(density, soon.mean, soon.root, rule)
    assert max(soon.elbo, late.elbo - 1e-4) <= ends <= late.elbo + 1e-12
    stays = stein(*begin, Stop(last_step=False))
    np.testing.assert_array_equal(stays.mean, stays.evaluated_at[0])
    assert bound_at(density, stays.mean, stays.root, rule) == pytest.approx(stays.elbo, rel=1e-12)


def test_the_end_is_that_of_bfgs_up_to_what_draws_cost():
    options = {"family": "full", "draws": 2**13, "diagnostics": 2**17, "tol": 1e-5}
    by_stein, by_bfgs = (
        mixvi.fit(skewed, np.zeros(3), optimiser=name, **options) for name in ("stein", "bfgs")
    )
    assert by_stein.stats.optimiser == "stein"
    assert by_stein.stats.passes < by_bfgs.stats.passes
    assert by_stein.elbo.value > by_bfgs.elbo.value - 0.005
    np.testing.assert_allclose(by_stein.cov, by_bfgs.cov, atol=0.01)


def test_by_quadrature_as_by_many_draws():
    x, sign = logistic_data(40)[:2]
    model = mixvi.LinearPredictor(x, lambda eta: -jnp.logaddexp(0.0, -sign * eta), 1.0)
    start = np.zeros(x.shape[1])
    exact = mixvi.fit(model, start, family="full")
    drawn = mixvi.fit(model, start, family="full", draws=2**14)
    assert exact.stats.draws_kind == Quadrature.kind
    assert exact.stats.optimiser == drawn.stats.optimiser == "stein"
    np.testing.assert_allclose(exact.flat_mean, drawn.flat_mean, atol=0.01)
    np.testing.assert_allclose(exact.cov, drawn.cov, atol=0.01)


def test_the_standard_error_of_the_mean_is_what_other_draws_do():
    """Independent draws, where nothing is matched: the sandwich against forty keys."""
    options = {"family": "full", "draws": mixvi.IID(400), "diagnostics": False}
    fits = [mixvi.fit(skewed, np.zeros(3), key=key, **options) for key in range(40)]
    spread = np.std([post.flat_mean for post in fits], axis=0)
    told = np.mean([post.flat_mean_se for post in fits], axis=0)
    assert (np.abs(np.log(told / spread)) < np.log(1.5)).all(), (told, spread)


def test_what_draws_cost_is_foreseen():
    """Matched draws, few of them: the bound lost on very many, averaged over keys."""
    best = mixvi.fit(skewed, np.zeros(3), family="full", draws=2**15, diagnostics=False, tol=1e-5)
    density, many = density_of(skewed, 3), points(2**14, 3, key=99)
    top = bound_at(density, best.flat_mean, best.root, many)
    options = {"family": "full", "draws": 32, "diagnostics": False, "anchor": "mode", "tol": 1e-5}
    lost, told = [], []
    for key in range(20):
        post = mixvi.fit(skewed, np.zeros(3), key=key, **options)
        lost.append(top - bound_at(density, post.flat_mean, post.root, many))
        told.append(post.stats.draw_loss)
    # Sobol points cost less in three dimensions than the scatter of their pairs tells.
    assert np.mean(lost) < np.mean(told) < 10 * np.mean(lost)


def test_what_nodes_cost_is_told_by_other_nodes():
    """Twice as many of them cost less; a Gaussian likelihood costs nothing."""
    x, label = logistic_data(30, 3)[0], RNG.integers(0, 3, 30)

    def of_class(eta):
        chosen = jnp.take_along_axis(eta, jnp.asarray(label)[:, None], axis=1)[:, 0]
        return chosen - jax.scipy.special.logsumexp(eta, axis=1)

    def square(eta):
        return -0.5 * (eta**2).sum(1)

    losses = []
    for likelihood in (of_class, square):
        density = density_of(mixvi.LinearPredictor(x, likelihood, 0.1), (3, 3))
        for n in (16, 64, 256):
            one, two = (Quadrature(n).make(DOUBLE, 3, stream) for stream in (6, 7))
            losses.append(lost_to_rule(density, np.zeros(9), np.eye(9), one, two))
    assert losses[0] > 3 * losses[1] > 9 * losses[2] > 0
    assert max(losses[3:]) < 1e-20


def test_a_flat_direction_runs_off_and_is_refused():
    density = density_of(lambda w: -0.5 * (w[0] + w[1]) ** 2, 2)
    stop = Stop(tol=1e-6, max_steps=300)
    found = stein(density, np.zeros(2), np.eye(2), points(64, 2), stop)
    assert found.code is Code.RAN_OFF
    with pytest.raises(mixvi.IndefiniteHessianError, match="carried by"):
        mixvi.fit(lambda w: -0.5 * (w[0] + w[1]) ** 2, np.zeros(2))


def test_draws_without_density_are_a_code():
    density = density_of(lambda w: jnp.log(w).sum(), 2)
    found = stein(density, np.ones(2), np.eye(2), points(64, 2), Stop())
    assert found.code is Code.NON_FINITE_DRAWS
    assert found.n_passes == 1


def test_stein_needs_the_whole_covariance():
    with pytest.raises(mixvi.InputError, match="whole covariance"):
        mixvi.fit(gaussian, np.zeros(DIM), family="eig", optimiser="stein")


def test_a_step_is_cut_to_reach():
    """The mean's way in proportion, half of it in reach; every width on its own."""
    move = Move(np.array([8.0, -2.0]), np.diag([3.0, -0.5]))
    cut, factor, size = within_reach(move, 1.0)
    np.testing.assert_allclose(cut.mean, [2.0, -0.5])
    np.testing.assert_allclose(cut.log_root, np.diag([1.0, -0.5]))
    np.testing.assert_allclose(factor, np.diag(np.exp([1.0, -0.5])))
    assert size == pytest.approx(1.0)
    small = Move(np.array([0.1, 0.0]), np.diag([0.02, -0.03]))
    cut, _, size = within_reach(small, 1.0)
    np.testing.assert_allclose(cut.mean, small.mean)
    np.testing.assert_allclose(cut.log_root, small.log_root)
    assert size == pytest.approx(0.05)


def test_what_is_remembered_is_only_what_curves_downwards():
    past, step = Past(kept=2), Move(np.ones(2), np.eye(2))
    past.learn(step, Move(-np.ones(2), np.zeros((2, 2))))
    assert not past.pairs
    for _ in range(3):
        past.learn(step, Move(np.ones(2), np.eye(2)))
    assert len(past.pairs) == 2
