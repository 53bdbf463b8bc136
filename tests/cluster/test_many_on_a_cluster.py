"""Many problems over a cluster: files as they come, and nothing mixed up."""

import functools
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi

pytest.importorskip("distributed")

from mixvi import cluster


def counts(w, data):
    return (data * w - jnp.exp(w)).sum() - 0.5 * w @ w


def problems(n=30):
    return np.random.default_rng(1).poisson(3.0, (n, 4, 2)).astype(float)


@pytest.mark.slow
def test_many_problems_are_those_of_one_process(client, tmp_path):
    seen = []
    found = cluster.fit_many(
        client,
        counts,
        np.zeros(2),
        problems(),
        tmp_path,
        batch=8,
        progress=lambda done, n: seen.append((done, n)),
    )
    here = mixvi.fit_many(counts, np.zeros(2), problems())
    np.testing.assert_allclose(found.mean, [post.flat_mean for post in here], atol=1e-10)
    np.testing.assert_allclose(found.std, [post.law.std for post in here], rtol=1e-10)
    assert found.trust.tolist() == [post.trust for post in here]
    assert found.names == here.names
    assert (len(found), seen[-1], len(seen)) == (30, (30, 30), 4)
    (tmp_path / "batch-000002.npz").unlink()
    again = cluster.fit_many(client, counts, np.zeros(2), problems(), tmp_path, batch=8)
    np.testing.assert_array_equal(again.mean, found.mean)
    with pytest.raises(mixvi.InputError, match="results of other data"):
        cluster.fit_many(client, counts, np.zeros(2), problems() + 1, tmp_path, batch=8)
    with pytest.raises(mixvi.InputError, match="another init or other options"):
        cluster.fit_many(client, counts, np.zeros(2), problems(), tmp_path, batch=8, key=3)
    with pytest.raises(mixvi.InputError, match="of 30 problems, not 20"):
        cluster.fit_many(client, counts, np.zeros(2), problems(20), tmp_path, batch=8)


DRIVER = """
import sys
import jax.numpy as jnp
import numpy as np
from distributed import Client, LocalCluster
from mixvi import cluster

def counts(w, data):
    return (data * w - jnp.exp(w)).sum() - 0.5 * w @ w

if __name__ == "__main__":
    data = np.random.default_rng(1).poisson(3.0, (30, 4, 2)).astype(float)
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False,
                      dashboard_address=":0") as workers, Client(workers) as client:
        def told(done, n):
            print(done, flush=True)
        cluster.fit_many(client, counts, np.zeros(2), data, sys.argv[1], batch=5, progress=told)
"""


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on(client, tmp_path):
    whole = cluster.fit_many(client, counts, np.zeros(2), problems(), tmp_path / "whole", batch=5)
    folder = tmp_path / "killed"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, folder], stdout=subprocess.PIPE)
    assert driver.stdout is not None
    for line in driver.stdout:
        if int(line) >= 10:
            break
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    there = {path: path.stat().st_mtime_ns for path in folder.glob("batch-*.npz")}
    assert 2 <= len(there) < 6
    found = cluster.fit_many(client, counts, np.zeros(2), problems(), folder, batch=5)
    assert all(path.stat().st_mtime_ns == then for path, then in there.items())
    for name in ("mean", "std", "elbo", "converged", "trust", "status"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


def learnt(w, hyper, data):
    return counts(w, data) - 0.5 * jnp.exp(hyper) * w @ w + hyper - 0.1 * hyper**2


@pytest.mark.slow
def test_every_problem_its_own_start_and_hyperparameters(client, tmp_path):
    given = {
        "data": problems(12),
        "init": {"w": np.linspace(0, 1, 24).reshape(12, 2)},
        "hyper": np.linspace(-1, 1, 12),
        "init_batched": True,
        "hyper_batched": True,
    }

    def density(w, hyper, data):
        return learnt(w["w"], hyper, data)

    found = cluster.fit_many(client, density, folder=tmp_path, batch=5, **given)
    here = mixvi.fit_many(density, **given)
    np.testing.assert_allclose(found.mean, [post.flat_mean for post in here], atol=1e-10)


@pytest.mark.slow
def test_options_are_known_again(client, tmp_path):
    """By what they are, not by where in memory they lie."""
    how = {"family": mixvi.LowRank(1), "draws": mixvi.IID(64), "key": jax.random.key(1)}

    def again(**other):
        return cluster.fit_many(
            client, counts, np.zeros(2), problems(6), tmp_path, batch=3, **(how | other)
        )

    first = again()
    how = {"family": mixvi.LowRank(1), "draws": mixvi.IID(64), "key": jax.random.key(1)}
    np.testing.assert_array_equal(again().mean, first.mean)
    for other in ({"family": mixvi.LowRank(2)}, {"draws": 64}, {"key": jax.random.key(2)}):
        with pytest.raises(mixvi.InputError, match="another init or other options"):
            again(**other)


def scaled(scale, w, data):
    return counts(w, data) - 0.5 * scale * w @ w


@pytest.mark.slow
def test_another_prior_is_seen_where_it_says_the_same(client, tmp_path):
    """At zeros priors without their constants do not differ."""

    def fit(scale):
        density = functools.partial(scaled, scale)
        return cluster.fit_many(client, density, np.zeros(2), problems(6), tmp_path, batch=3)

    fit(1.0)
    with pytest.raises(mixvi.InputError, match="of another log density"):
        fit(2.0)


@pytest.mark.slow
def test_what_cannot_be_fitted_is_told_with_its_numbers(client, tmp_path):
    def fit(data, **how):
        return cluster.fit_many(client, counts, np.zeros(2), data, tmp_path / "new", **how)

    for data in (np.zeros((0, 4, 2)), {"a": np.zeros((3, 2)), "b": np.zeros((4, 2))}, 3.0):
        with pytest.raises(mixvi.InputError, match="the problems on its first axis"):
            fit(data)
    with pytest.raises(mixvi.InputError, match="batch must be a positive integer"):
        fit(problems(), batch=0)
    with pytest.raises(mixvi.InputError, match='"auto"'):
        fit(problems(), optimiser="adam")
    assert not (tmp_path / "new").exists()
    with pytest.raises(mixvi.InputError, match="there are no results"):
        cluster.Results.read(tmp_path / "new")
    (tmp_path / "file").write_text("")
    with pytest.raises(mixvi.InputError, match="cannot be written"):
        cluster.fit_many(client, counts, np.zeros(2), problems(6), tmp_path / "file")
