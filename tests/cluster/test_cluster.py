"""Data on the workers of a real cluster of processes, one of which is killed on the way."""

import os
import signal
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi import models

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

from dask import delayed  # noqa: E402

from mixvi import cluster  # noqa: E402

N = 1500
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 3))
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(float)
ROWS = {"x": X, "y": Y}


def log_likelihood(w, rows):
    eta = rows["x"] @ w
    return rows["y"] * eta - jnp.logaddexp(0.0, eta)


MODEL = mixvi.Additive(lambda w: -0.5 * (w @ w), log_likelihood)
LEARNT = mixvi.Additive(
    lambda w, hyper: 1.5 * hyper - 0.5 * jnp.exp(hyper) * (w @ w) - 0.1 * hyper**2,
    lambda w, hyper, rows: log_likelihood(w, rows),
)


@pytest.fixture(scope="module")
def client():
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


def on_dask(chunks=400, columns=2):
    """The columns are cut as well: they come together again."""
    x = da.from_array(X, chunks=(chunks, columns))
    return {"x": x, "y": da.from_array(Y, chunks=chunks)}


def numbers(post):
    hyper = [] if post.hyper is None else np.ravel(post.hyper)
    return [post.flat_mean, post.cov, hyper, post.elbo.value]


def assert_same(one, other, tol=1e-10):
    for a, b in zip(numbers(one), numbers(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)
    assert one.verdict == other.verdict


@pytest.mark.slow
def test_a_cluster_says_what_one_process_says(client):
    data = cluster.dask(client, on_dask())
    assert (data.n_rows, data.n_pieces) == (N, 4)
    first = mixvi.fit(MODEL, np.zeros(3), data)
    assert_same(first, mixvi.fit(MODEL, np.zeros(3), ROWS))
    again = mixvi.fit(MODEL, np.zeros(3), cluster.dask(client, on_dask()))
    for a, b in zip(numbers(first), numbers(again), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_hyperparameters_and_other_partitions(client):
    parts = [delayed({"x": X[k : k + 700], "y": Y[k : k + 700]}) for k in (0, 700, 1400)]
    post = mixvi.fit(LEARNT, np.zeros(3), cluster.dask(client, parts), hyper=0.0, family="eig")
    assert_same(post, mixvi.fit(LEARNT, np.zeros(3), ROWS, hyper=0.0, family="eig"), 1e-8)


@pytest.mark.slow
def test_a_model_of_a_data_frame(client):
    frames = pytest.importorskip("dask.dataframe")
    import pandas as pd

    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y)
    data = cluster.dask(client, frames.from_pandas(table, npartitions=3))
    model = models.Model(models.Linear(), models.Bernoulli())
    there, here = model.density(data, "y"), model.density(X, Y)
    assert there.columns == ("a", "b", "c")
    posts = [mixvi.fit(one, one.init, hyper=one.hyper) for one in (there, here)]
    np.testing.assert_allclose(posts[0].mean, posts[1].mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(posts[0].cov, posts[1].cov, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_a_worker_that_dies_is_worked_around(client):
    """Its pieces are loaded again; the numbers are the same to the last bit."""
    data = cluster.dask(client, on_dask())
    unbroken = mixvi.fit(MODEL, np.zeros(3), data, family="full", optimiser="bfgs")
    pids = client.run(os.getpid)
    killed = []

    def kill(step):
        if step.passes >= 1 and not killed:
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    post = mixvi.fit(MODEL, np.zeros(3), data, family="full", optimiser="bfgs", callback=kill)
    assert killed
    for a, b in zip(numbers(post), numbers(unbroken), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_bad_data_are_named(client):
    spoilt = X.copy()
    spoilt[900, 1] = np.nan
    x, y = da.from_array(spoilt, chunks=(400, 3)), da.from_array(Y, chunks=400)
    with pytest.raises(mixvi.InputError, match="row 100 of partition 2"):
        cluster.dask(client, {"x": x, "y": y})
    with pytest.raises(mixvi.InputError, match=r"partition 1 holds data.x \(2,\).*partition 0"):
        cluster.dask(client, [delayed({"x": X[:5]}), delayed({"x": X[:5, :2]})])
    with pytest.raises(mixvi.InputError, match="cut alike along their first axis"):
        cluster.dask(client, {"x": x, "y": y.rechunk(300)})
    with pytest.raises(mixvi.InputError, match="compute_chunk_sizes"):
        cluster.dask(client, {"x": x[y > 0]})
    with pytest.raises(mixvi.InputError, match="not ndarray"):
        cluster.dask(client, ROWS)
    with pytest.raises(mixvi.InputError, match="there are no rows"):
        cluster.dask(client, [delayed({"x": X[:0]})])
    with pytest.raises(mixvi.InputError, match="not int"):
        cluster.dask(8786, on_dask())


def test_a_scheduler_that_is_not_there(monkeypatch):
    import functools

    quick = functools.partial(distributed.Client, timeout="1s")
    monkeypatch.setattr(distributed, "Client", lambda address, **_: quick(address))
    with pytest.raises(mixvi.InputError, match="no scheduler answers at"):
        cluster.dask("tcp://127.0.0.1:1", on_dask())


# --- many problems ------------------------------------------------------------------------------


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
