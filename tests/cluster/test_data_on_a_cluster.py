"""Data on the workers of a real cluster of processes, one of which is killed on the way."""

import os
import signal

import jax
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


def test_a_client_that_is_none(monkeypatch):
    with distributed.Client(processes=False, n_workers=1, dashboard_address=":0") as alone:
        pass
    with pytest.raises(mixvi.InputError, match="the client is closed"):
        cluster.dask(alone, on_dask())


def programs():
    from mixvi._density import _jax

    return sum(len(one._programs) for one in _jax._traces.values())


@pytest.mark.slow
def test_a_row_more_compiles_nothing():
    """Nor does the same function again, which travels every time."""
    with distributed.Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as alone:

        def again(n):
            x, y = np.resize(X, (n, 3)), np.resize(Y, n)
            cut = (n - 800, 500, 300)
            rows = {"x": da.from_array(x, chunks=(cut, 3)), "y": da.from_array(y, chunks=(cut,))}
            mixvi.fit(MODEL, np.zeros(3), cluster.dask(alone, rows))
            (made,) = alone.run(programs).values()
            return made

        made = again(1500)
        assert made > 0
        assert [again(n) for n in (1501, 1499, 1500)] == [made] * 3


def test_a_piece_is_of_one_partition():
    """However many rows there are: small partitions are not filled up to the usual number."""
    with distributed.Client(processes=False, n_workers=1, dashboard_address=":0") as alone:
        x = da.from_array(np.zeros((4000, 3)), chunks=(40, 3))
        data = cluster.dask(alone, {"x": x})
        assert (data.n_rows, data.n_pieces, data.piece_rows) == (4000, 100, 64)
        assert cluster.dask(alone, {"x": x}, rows=32).n_pieces == 200
        # The address is enough, and leaves the user's own default client alone.
        assert cluster.dask(alone.scheduler.address, {"x": x}).n_rows == 4000
        assert distributed.default_client() is alone


@pytest.mark.slow
def test_functions_that_hold_things(client):
    """Arrays, objects by their methods, jitted functions: the same numbers."""

    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        def prior(self, w):
            return -0.5 * self.scale * (w @ w)

        def by_row(self, w, rows):
            return self.scale * log_likelihood(w, rows)

    ones, expected = np.ones(3), mixvi.laplace(MODEL, np.zeros(3), ROWS)
    its = Scaled(1.0)
    for model in (
        mixvi.Additive(lambda w: -0.5 * (ones * w) @ w, log_likelihood),
        mixvi.Additive(its.prior, its.by_row),
        mixvi.Additive(jax.jit(lambda w: -0.5 * (w @ w)), jax.jit(log_likelihood)),
    ):
        post = mixvi.laplace(model, np.zeros(3), cluster.dask(client, on_dask()))
        np.testing.assert_allclose(post.mean, expected.mean, atol=1e-10)


@pytest.mark.slow
def test_partitions_of_other_types_and_none(client):
    """Whole numbers in one, single precision in another, none in the third."""
    parts = [
        {"x": X[:500], "y": Y[:500].astype(int)},
        {"x": X[:0], "y": Y[:0]},
        {"y": Y[500:].astype("f4"), "x": X[500:]},
    ]
    data = cluster.dask(client, [delayed(one) for one in parts])
    assert repr(data) == "Pieces of 1,500 rows: data.x (3,) float64, data.y float64"
    assert_same(mixvi.fit(MODEL, np.zeros(3), data), mixvi.fit(MODEL, np.zeros(3), ROWS))
