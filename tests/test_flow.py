"""Flows of many problems side by side: the same answers as alone, in as few calls as can be."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._first._flow import Core, alone, together
from mixvi._target import precision_scope, prepare
from targets import cauchy, cauchy_data
from test_auto import SCHOOLS, SCHOOLS_START, schools_centred

DOUBLE = np.dtype("float64")


def scaled(target, w, factor):
    return target(w) * factor


class Watched:
    """A core that keeps how many problems each of its calls had."""

    def __init__(self):
        self.core = Core(scaled)
        self.live: list[int] = []
        many = self.core.many

        def counted(target, own, where, live, **shared):
            self.live.append(int(live))
            return many(target, own, where, live, **shared)

        self.core.many = counted

    async def flow(self, target, n_times):
        total = 0.0
        for _ in range(n_times):
            total += float(await self.core(target, np.ones(2), factor=2.0))
        return total


def problems(n):
    data = np.arange(1.0, n + 1)
    target, _ = prepare(lambda w, c: c * w.sum(), np.zeros(2), data[0], DOUBLE)

    def one(index):
        return dataclasses.replace(target, data=data[index])

    return [one(i) for i in range(n)], one(np.arange(n))


@pytest.mark.parametrize("how", ["map", "vmap"])
def test_whoever_asks_for_the_same_is_answered_together(how):
    watched, (each, all_of_them), times = Watched(), problems(3), [1, 3, 2]
    reports = []
    with precision_scope(DOUBLE):
        flows = [watched.flow(one, n) for one, n in zip(each, times, strict=True)]
        totals = together(flows, all_of_them, 3, how, reports.append)
        singly = [alone(watched.flow(one, n)) for one, n in zip(each, times, strict=True)]
    # problem i has the density (i + 1) (w_0 + w_1), doubled, as often as it asks
    assert totals == singly == [4.0, 24.0, 24.0]
    assert watched.live == [3, 2, 1]
    assert reports == [1, 1, 1]


def test_whoever_is_behind_is_waited_for():
    """One needs a step more before the last: both take the last one together."""
    watched, last, (each, all_of_them) = Watched(), Watched(), problems(2)

    async def flow(i):
        await watched.flow(each[i], 2 - i)
        return await last.flow(each[i], 1)

    with precision_scope(DOUBLE):
        together([flow(0), flow(1)], all_of_them, 2, "map", lambda _: None)
    assert watched.live == [2, 1]
    assert last.live == [2]


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
        its = (data[0][i : i + 1], data[1][i : i + 1])
        one = mixvi.fit_many(bent, np.array([1.0, 0.0]), data=its, strategy=strategy)[0]
        assert post.family == one.family
        assert post.stats.get("passes") == one.stats.get("passes")
        assert post.elbo.value == pytest.approx(one.elbo.value, abs=1e-6)
        np.testing.assert_allclose(post.cov, one.cov, rtol=1e-4, atol=1e-8)
        # Another engine, which stops earlier and turns the root otherwise.
        near = mixvi.fit(bent, np.array([1.0, 0.0]), data=(data[0][i], data[1][i]))
        assert post.family == near.family
        assert post.elbo.value == pytest.approx(near.elbo.value, abs=0.01)


def test_no_mode_in_a_batch():
    effect, se = SCHOOLS
    data = (np.stack([effect, effect]), np.stack([se, 0.2 * se]))
    options = {"draws": 256, "strategy": "vmap", "diagnostics": False}
    posts = mixvi.fit_many(schools_centred, SCHOOLS_START, data=data, **options)
    alone = (effect[None], se[None])
    one = mixvi.fit_many(schools_centred, SCHOOLS_START, data=alone, **options)[0]
    assert "There is no mode" in posts[0].status
    assert posts[0].elbo_fixed == pytest.approx(one.elbo_fixed, abs=1e-6)


def test_hyperparameters_by_auto_in_a_batch():
    design, y, _, _ = cauchy_data(0)

    def log_density(w, hyper, data):
        log_alpha = -0.5 * hyper["a"] ** 2
        size = 0.5 * len(w) * hyper["a"]
        return cauchy(w, (*data, np.log(0.5), hyper["a"])) + size + log_alpha

    data = (np.stack([design[:, ::4]] * 2), np.stack([y, 2 * y]))
    posts = mixvi.fit_many(
        log_density, np.zeros(6), data=data, hyper={"a": 0.0}, strategy="vmap", diagnostics=False
    )
    for i, post in enumerate(posts):
        its = (data[0][i], data[1][i])
        one = mixvi.fit(log_density, np.zeros(6), data=its, hyper={"a": 0.0}, diagnostics=False)
        assert post.family == one.family
        assert post.hyper["a"] == pytest.approx(float(one.hyper["a"]), abs=1e-5)
