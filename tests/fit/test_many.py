"""Many problems in one call: equal to one at a time, and one bad one spoils no other."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_auto import SCHOOLS, SCHOOLS_START, schools_centred

import mixvi
from mixvi._fit._batch import Batch
from mixvi._fit._many import _prepare_batch
from mixvi._fit._options import checked
from mixvi._fit._together import solved_together
from mixvi._judge._scalars import fresh_scalars, mixed_scalars
from targets import (
    DOUBLE,
    Counted,
    GaussianTarget,
    cauchy,
    cauchy_data,
    logistic,
    logistic_data,
)

STRATEGIES = ["loop", "map", "vmap"]


def batch(n: int = 5):
    stacked = [logistic_data(seed=seed) for seed in range(n)]
    return np.stack([x for x, _ in stacked]), np.stack([sign for _, sign in stacked])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("family", ["laplace", "eig", "diag"])
def test_equal_to_one_at_a_time(strategy, family):
    data = batch()
    posts = mixvi.fit_many(
        logistic, np.zeros(8), family=family, data=data, strategy=strategy, tol=1e-7
    )
    for i, post in enumerate(posts):
        one = mixvi.fit(
            logistic, np.zeros(8), family=family, data=(data[0][i], data[1][i]), tol=1e-7
        )
        assert np.abs((post.flat_mean - one.flat_mean) / one.flat_std).max() < 1e-6
        np.testing.assert_allclose(post.cov, one.cov, rtol=1e-5, atol=1e-8)
        assert post.verdict.split(":")[0] == one.verdict.split(":")[0]
        assert post.elbo.value == pytest.approx(one.elbo.value, abs=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_bad_problem_reports_itself(strategy):
    x, sign = batch()
    x[2, 7, 1] = np.nan
    posts = mixvi.fit_many(logistic, np.zeros(8), family="eig", data=(x, sign), strategy=strategy)
    assert posts.converged.tolist() == [True, True, False, True, True]
    assert "data[0] has 1 non-finite number, the first at [7, 1]" in posts.status[2]
    assert posts[2].verdict.startswith("No Gaussian")
    assert np.isnan(posts.mean[2]).all()
    assert np.isfinite(np.delete(posts.mean, 2, axis=0)).all()
    good = mixvi.fit_many(
        logistic, np.zeros(8), family="eig", data=(x[:2], sign[:2]), strategy=strategy
    )
    np.testing.assert_allclose(posts.mean[:2], good.mean, atol=1e-9)
    assert "[2] No Gaussian" in posts.summary()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hard_problems_among_easy_ones(strategy):
    """A saddle start, an unbounded density and a second mode, each with its own word."""

    def log_density(w, kind):
        quartic = -(w[0] ** 4) / 4 + 2 * w[0] ** 2
        first = kind[0] * (-0.5 * w[0] ** 2) + kind[1] * quartic + kind[2] * w[0]
        return first - 0.5 * w[1] ** 2

    kinds = np.eye(3)
    posts = mixvi.fit_many(log_density, np.zeros(2), family="eig", data=kinds, strategy=strategy)
    assert posts.verdict[0].startswith("Trust")
    assert abs(posts.mean[1][0]) == pytest.approx(2, abs=0.2)
    assert "other mode" in posts.verdict[1]
    assert "w[0] went from 0" in posts.status[2]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_growing_draws(strategy):
    """Draws are doubled for the problems that want it, with the same result as alone."""
    problems = [cauchy_data(seed) for seed in (0, 1)]
    data = tuple(np.stack([np.asarray(p[k]) for p in problems]) for k in range(4))
    posts = mixvi.fit_many(cauchy, np.zeros(21), family="mu", data=data, strategy=strategy)
    for i, post in enumerate(posts):
        one = mixvi.fit(cauchy, np.zeros(21), family="mu", data=problems[i])
        assert post.stats.draws == one.stats.draws
        assert post.elbo.value == pytest.approx(one.elbo.value, abs=1e-4)


def test_a_function_that_raises_names_its_problem():
    def fun_and_grad(w, data):
        if data > 5:
            raise RuntimeError("boom")
        return -0.5 * float((w - data) @ (w - data)), data - w

    function = mixvi.from_numpy(fun_and_grad)
    with pytest.raises(mixvi.InputError, match=r"fit_many, problem 2: .*raised RuntimeError"):
        mixvi.fit_many(function, np.zeros(2), np.array([1.0, 2.0, 6.0]))


def test_stacked_numbers_and_indexing():
    data = batch()
    posts = mixvi.fit_many(
        lambda w, d: logistic(w["beta"], d), {"beta": np.zeros(8)}, family="eig", data=data
    )
    assert len(posts) == 5
    assert posts.mean["beta"].shape == (5, 8)
    assert posts.std["beta"].shape == (5, 8)
    assert posts.cov.shape == (5, 8, 8)
    for numbers in (posts.elbo, posts.khat, posts.log_evidence, posts.gap, posts.converged):
        assert numbers.shape == (5,)
    assert isinstance(posts[1], mixvi.Posterior)
    assert isinstance(posts[1:3], mixvi.Posteriors)
    np.testing.assert_array_equal(posts[1:3].mean["beta"], posts.mean["beta"][1:3])
    assert posts.sample(0, 3)["beta"].shape == (5, 3, 8)
    again = mixvi.Posteriors([posts[3], posts[0]])
    np.testing.assert_array_equal(again.elbo, posts.elbo[[3, 0]])
    assert "5 posteriors of 8 parameters" in posts.summary()
    assert posts.names[0] == "beta[0]"


def test_a_start_for_each():
    targets = [GaussianTarget.make(2, 5.0, seed=seed) for seed in range(3)]
    data = jax.tree.map(lambda *leaves: np.stack(leaves), *(t.data for t in targets))
    starts = np.arange(6.0).reshape(3, 2)
    posts = mixvi.fit_many(
        GaussianTarget.log_density, starts, family="eig", data=data, init_batched=True
    )
    np.testing.assert_allclose(posts.mean, np.stack([t.mean for t in targets]), atol=1e-6)


def test_blocks_of_any_number_of_problems():
    """More problems than a block, not a multiple of it: padding is dropped."""
    centres = np.random.default_rng(0).standard_normal((71, 2))
    posts = mixvi.fit_many(lambda w, c: -0.5 * ((w - c) ** 2).sum(), np.zeros(2), data=centres)
    np.testing.assert_allclose(posts.mean, centres, atol=1e-8)


def test_new_data_compile_nothing():
    counted = Counted(logistic)
    x, sign = batch()
    mixvi.fit_many(counted, np.zeros(8), family="eig", data=(x, sign), draws=200, strategy="map")
    traced = counted.n
    mixvi.fit_many(
        counted, np.zeros(8), family="eig", data=(x[::-1], sign[::-1]), draws=200, strategy="map"
    )
    assert counted.n == traced


def test_progress_is_a_line_on_stderr(capsys):
    from mixvi._fit._progress import Progress

    with Progress(10, True) as report:
        report.began -= 5
        report(4)
        report(6)
    assert "10/10 problems" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "problems on the first axis"),
        ((np.zeros((3, 2)), np.zeros(4)), "same number of problems"),
        (np.float64(1.0), "same number of problems"),
        (np.zeros((0, 2)), "at least one"),
    ],
)
def test_bad_batches(data, message):
    with pytest.raises(mixvi.InputError, match=message):
        mixvi.fit_many(lambda w, d: -0.5 * w @ w, np.zeros(2), data=data)


def test_a_warm_start_is_not_for_many():
    post = mixvi.laplace(lambda w: -0.5 * w @ w, np.zeros(2))
    with pytest.raises(mixvi.InputError, match=r"init=post\.mean"):
        mixvi.fit_many(lambda w, d: -0.5 * w @ w, post, data=np.zeros(3))


def test_posteriors_must_match():
    one = mixvi.laplace(lambda w: -0.5 * w @ w, np.zeros(2))
    other = mixvi.laplace(lambda w: -0.5 * w @ w, np.zeros(3))
    with pytest.raises(mixvi.InputError, match="different structure"):
        mixvi.Posteriors([one, other])
    with pytest.raises(mixvi.InputError, match="at least one"):
        mixvi.Posteriors([])


def bent(w, data):
    """The log of a gamma variable with `shape`, and a normal one around a parabola of it."""
    shape, bend = data
    return shape * w[0] - jnp.exp(w[0]) - 0.5 * (w[1] - bend * w[0] ** 2) ** 2


@pytest.mark.parametrize("strategy", ["map", "vmap"])
def test_auto_of_many_is_auto_of_each(strategy):
    """Laplace is right, only means and widths change, all changes: each goes as far as alone."""
    data = (np.array([400.0, 3.0, 3.0]), np.array([0.0, 0.0, 0.5]))
    posts = mixvi.fit_many(bent, np.array([1.0, 0.0]), data=data, strategy=strategy)
    assert len({post.family for post in posts}) == 3
    for i, post in enumerate(posts):
        one = mixvi.fit(bent, np.array([1.0, 0.0]), data=(data[0][i], data[1][i]))
        assert post.family == one.family
        assert post.elbo.value == pytest.approx(one.elbo.value, abs=0.01)
        np.testing.assert_allclose(post.std, one.std, rtol=0.02)
        assert post.verdict.split(":")[0] == one.verdict.split(":")[0]


def test_no_mode_in_a_batch():
    effect, se = SCHOOLS
    data = (np.stack([effect, effect]), np.stack([se, 0.2 * se]))
    options = {"draws": 256, "diagnostics": False}
    posts = mixvi.fit_many(schools_centred, SCHOOLS_START, data=data, strategy="vmap", **options)
    one = mixvi.fit(schools_centred, SCHOOLS_START, data=(effect, se), **options)
    assert "There is no mode" in posts[0].status
    assert posts[0].elbo_fixed == pytest.approx(one.elbo_fixed, abs=1e-6)


@pytest.mark.parametrize("family", ["mu", "eig", "full"])
def test_whoever_keeps_to_the_road_ends_where_fit_does(family):
    """With a tolerance both end at the same optimum; nobody of these problems goes alone."""
    data = batch(6)
    options = {"family": family, "draws": 256, "tol": 1e-5, "diagnostics": False}
    target, starts = _prepare_batch(logistic, np.zeros(8), data, None, False, False, DOUBLE)
    asked = checked(options)
    together = solved_together(Batch(logistic, target, starts, asked, asked.draws))
    assert together.on_road.all()
    for i in range(6):
        one = mixvi.fit(logistic, np.zeros(8), tuple(leaf[i] for leaf in data), **options)
        post = together.outcome(i)[0]
        np.testing.assert_allclose(post.flat_mean, one.flat_mean, atol=1e-4)
        np.testing.assert_allclose(post.cov, one.cov, rtol=1e-3, atol=1e-5)
        assert post.elbo_fixed == pytest.approx(one.elbo_fixed, abs=1e-6)


def test_who_leaves_the_road_is_marked():
    """A saddle at the start, no mode, a Laplace Gaussian that is far off."""

    def log_density(w, kind):
        normal = -0.5 * (w**2).sum()
        saddle = -0.25 * (w[0] ** 2 - 4.0) ** 2 - 0.5 * w[1] ** 2
        tail = w[0] - 0.5 * w[1] ** 2
        narrow = -jnp.log1p(1e4 * (w**2).sum())
        return jnp.stack([normal, saddle, tail, narrow])[kind]

    target, starts = _prepare_batch(
        log_density, np.zeros(2), np.arange(4), None, False, False, DOUBLE
    )
    asked = checked({"family": "eig", "diagnostics": False})
    together = solved_together(Batch(log_density, target, starts, asked, mixvi.Matched(256)))
    assert together.on_road.tolist() == [True, False, False, False]


def test_lazy_results_can_be_pickled():
    posts = mixvi.fit_many(
        GaussianTarget.log_density,
        np.zeros(2),
        tuple(np.stack([part] * 3) for part in GaussianTarget.make(2, 3.0).data),
        family="eig",
        strategy="vmap",
    )
    again = pickle.loads(pickle.dumps(posts))
    np.testing.assert_array_equal(again.mean, posts.mean)
    assert again.verdict == posts.verdict


def test_slow_steps_do_not_stop_early():
    """A Cauchy density: plain steps come nearer by a constant rate, and each promises little."""
    centres = np.random.default_rng(0).standard_normal((3, 1))

    def log_density(w, c):
        return -jnp.log1p((w - c) ** 2).sum()

    options = {"family": "eig", "draws": 256, "anchor": "mode", "diagnostics": False}
    posts = mixvi.fit_many(log_density, np.zeros(1), centres, strategy="vmap", **options)
    for post, centre in zip(posts, centres, strict=True):
        exact = mixvi.fit(log_density, np.zeros(1), centre, tol=1e-7, **options)
        assert float(post.std[0]) == pytest.approx(float(exact.std[0]), rel=0.01)


def test_what_fresh_draws_tell_is_the_same_for_one_and_for_many():
    rng = np.random.default_rng(0)
    z, root = rng.standard_normal((400, 3)), rng.standard_normal((5, 3, 3))
    log_q = rng.standard_normal((5, 400))
    log_p = log_q + np.array([0.0, 0.1, 1.0, 3.0, 1e-9])[:, None] * rng.standard_t(3, (5, 400))
    with jax.enable_x64(True):
        many = jax.jit(jax.vmap(lambda *one: fresh_scalars(*one, jnp)))
        mixed = jax.jit(jax.vmap(lambda *one: mixed_scalars(z, *one, -1.0, 0.5, jnp)))
        told, weighed = many(log_p, log_q), mixed(log_p, log_q, root)
    for i in range(5):
        np.testing.assert_allclose(
            [one[i] for one in told],
            fresh_scalars(log_p[i], log_q[i]),
            rtol=1e-8,
            atol=1e-10,
        )
        alone = mixed_scalars(z, log_p[i], log_q[i], root[i], -1.0, 0.5)
        np.testing.assert_allclose([one[i] for one in weighed], alone, rtol=1e-7, atol=1e-9)
