"""Data in pieces: the same answers as of all rows at once, in bounded memory, compiled once."""

import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi import models
from mixvi._density import _asked, _cut, _jax
from mixvi._density._make import density_of, prepared
from mixvi._density._protocol import Points
from mixvi._density._sources import ahead
from targets import Counted

DOUBLE = np.dtype(np.float64)
DIM = 4


def log_prior(w):
    return -0.5 * (w**2).sum()


def by_row(w, rows):
    return jax.nn.log_sigmoid((2 * rows["y"] - 1) * (rows["x"] @ w))


MODEL = mixvi.Additive(log_prior, by_row)


def rows_of(n=1003, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, DIM))
    return {"x": x, "y": (rng.random(n) < 1 / (1 + np.exp(-x @ np.ones(DIM)))).astype(np.int8)}


ROWS = rows_of()


def chunks(rows=ROWS, size=77):
    n = len(rows["y"])
    return [{k: one[i : i + size] for k, one in rows.items()} for i in range(0, n, size)]


def parquet(folder, rows=ROWS, groups=130):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {f"x{j}": rows["x"][:, j] for j in range(DIM)} | {"y": rows["y"]}
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=groups)
    return folder / "rows.parquet"


def csv(folder, rows=ROWS):
    pytest.importorskip("pyarrow")
    lines = [",".join([f"x{j}" for j in range(DIM)] + ["y"])]
    both = zip(rows["x"].tolist(), rows["y"], strict=True)
    lines += [",".join([*map(repr, x), str(y)]) for x, y in both]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    return folder / "rows.csv"


COLUMNS = {"x": [f"x{j}" for j in range(DIM)], "y": "y"}


def memory_map(folder):
    np.save(folder / "x.npy", ROWS["x"])
    return {"x": np.load(folder / "x.npy", mmap_mode="r"), "y": ROWS["y"]}


SOURCES = {
    "arrays": lambda folder: mixvi.Pieces.arrays(ROWS, rows=128),
    "one piece": lambda folder: mixvi.Pieces.arrays(ROWS),
    "memory map": lambda folder: mixvi.Pieces.arrays(memory_map(folder), rows=256),
    "parquet": lambda folder: mixvi.Pieces.parquet(parquet(folder), COLUMNS),
    "parquet, read again": lambda folder: mixvi.Pieces.parquet(
        parquet(folder), COLUMNS, rows=96, memory=0
    ),
    "csv": lambda folder: mixvi.Pieces.csv(csv(folder), COLUMNS, rows=128),
    "csv, read again": lambda folder: mixvi.Pieces.csv(csv(folder), COLUMNS, memory=0),
    "list": lambda folder: mixvi.Pieces.chunks(chunks(), rows=160),
    "function": lambda folder: mixvi.Pieces.chunks(lambda: iter(chunks()), rows=64, memory=0),
}


def density(data, model=MODEL, init=None, hyper=None):
    init = np.zeros(DIM) if init is None else init
    target, _ = prepared(model, init, data, DOUBLE, hyper)
    return density_of(model, target, DOUBLE, 2**30, data)


def close(one, other):
    """To ten digits of the largest number."""
    for a, b in zip(one, other, strict=True):
        scale = 1.0 + np.abs(b).max(initial=0.0)
        np.testing.assert_allclose(np.asarray(a) / scale, np.asarray(b) / scale, atol=1e-11, rtol=0)


def assert_alike(pieces, memory, atol=1e-10):
    np.testing.assert_allclose(pieces.flat_mean, memory.flat_mean, atol=atol, rtol=0)
    np.testing.assert_allclose(pieces.cov, memory.cov, atol=atol * np.abs(memory.cov).max(), rtol=0)


@pytest.fixture(scope="module")
def in_memory():
    return {
        family: mixvi.fit(MODEL, np.zeros(DIM), data=ROWS, family=family) for family in FAMILIES
    }


FAMILIES = ["laplace", "eig", "full"]


# --- the same answers -------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_a_fit_is_that_of_all_rows_at_once(source, tmp_path, in_memory):
    pieces = SOURCES[source](tmp_path)
    assert pieces.n_rows == 1003
    for family, post in in_memory.items():
        found = mixvi.fit(MODEL, np.zeros(DIM), data=pieces, family=family)
        assert_alike(found, post)
        assert found.elbo.value == pytest.approx(post.elbo.value, abs=1e-8)
        assert found.stats.gradients == post.stats.gradients


@pytest.mark.parametrize("n", [1, 31, 127, 128, 129, 256, 1003])
def test_every_question_is_a_sum(n):
    rows = rows_of(n, seed=n)
    pieces = mixvi.Pieces.arrays(rows, rows=128)
    one, other = density(pieces), density(rows)
    rng = np.random.default_rng(1)
    points, vector = rng.standard_normal((9, DIM)), rng.standard_normal(DIM)
    close([one.values(points)], [other.values(points)])
    close(one.gradients(points), other.gradients(points))
    close(one.curvature(points[0]), other.curvature(points[0]))
    close(one.product(points[0], vector), other.product(points[0], vector))
    root = np.tril(rng.standard_normal((DIM, DIM)))
    rule = Points(rng.standard_normal((50, DIM)), False)
    close(one.expect(vector, root, rule), other.expect(vector, root, rule))


def test_a_prior_is_counted_once_and_a_bound_too():
    """Also its log-Jacobian."""
    model = mixvi.Additive(
        lambda w: -w["scale"],
        lambda w, rows: -0.5 * (rows["y"] / w["scale"]) ** 2 - jnp.log(w["scale"]),
    )
    rows = {"y": np.random.default_rng(0).standard_normal(500)}
    posts = [
        mixvi.fit(model, {"scale": 2.0}, data=data, constraints={"scale": "positive"})
        for data in (rows, mixvi.Pieces.arrays(rows, rows=32))
    ]
    assert_alike(posts[1], posts[0])
    assert posts[1].elbo.value == pytest.approx(posts[0].elbo.value, abs=1e-9)


def test_hyperparameters_are_learnt_alike():
    model = mixvi.Additive(
        lambda w, h: -0.5 * jnp.exp(h["log_alpha"]) * (w**2).sum() + 0.5 * DIM * h["log_alpha"],
        lambda w, h, rows: (
            -0.5 * ((rows["t"] - rows["x"] @ w) * jnp.exp(-h["log_sigma"])) ** 2 - h["log_sigma"]
        ),
    )
    rng = np.random.default_rng(2)
    rows = {
        "x": ROWS["x"],
        "t": ROWS["x"] @ [1.0, -0.5, 0.2, 0.0] + 0.3 * rng.standard_normal(1003),
    }
    hyper = {"log_alpha": 0.0, "log_sigma": 0.0}
    pieces = mixvi.Pieces.arrays(rows, rows=128)
    one, other = (density(data, model, hyper=hyper) for data in (pieces, rows))
    points, root = rng.standard_normal((5, DIM)), np.tril(rng.standard_normal((DIM, DIM)))
    theta = np.array([0.3, -0.7])
    close(one.joint_gradients(points), other.joint_gradients(points))
    close(one.at(theta).joint_gradients(points), other.at(theta).joint_gradients(points))
    close(one.evidence_slopes(points[0], root), other.evidence_slopes(points[0], root))
    posts = [mixvi.fit(model, np.zeros(DIM), data=data, hyper=hyper) for data in (rows, pieces)]
    assert_alike(posts[1], posts[0], 1e-8)
    for name in hyper:
        assert posts[1].hyper[name] == pytest.approx(posts[0].hyper[name], abs=1e-7)


@pytest.mark.parametrize("k", [1, 3])
def test_linear_predictors_know_without_being_told(k):
    rows = ROWS if k == 1 else {"x": ROWS["x"], "y": np.arange(1003) % 3}

    def log_likelihood(eta, rows):
        if k == 1:
            return jax.nn.log_sigmoid((2 * rows["y"] - 1) * eta)
        return jnp.take_along_axis(jax.nn.log_softmax(eta), rows["y"][:, None], 1)[:, 0]

    model = mixvi.LinearPredictor(lambda rows: rows["x"], log_likelihood, 2.0)
    init = np.zeros(DIM) if k == 1 else np.zeros((k, DIM))
    pieces = mixvi.Pieces.arrays(rows, rows=96)
    posts = [mixvi.fit(model, init, data=data, family="full") for data in (rows, pieces)]
    assert posts[1].stats.draws_kind == "quadrature"
    assert_alike(posts[1], posts[0], 1e-9)
    one, other = (density(data, model, init) for data in (pieces, rows))
    rule = mixvi.Quadrature(32).make(DOUBLE, k)
    mean, root = np.zeros(k * DIM), 0.1 * np.eye(k * DIM)
    both = [each.expected_by_row(mean, root, rule) for each in (one, other)]
    close(*([each] for each in both))


def test_float32_on_request():
    post = mixvi.laplace(MODEL, np.zeros(DIM), data=ROWS)
    single = mixvi.laplace(
        MODEL, np.zeros(DIM), data=mixvi.Pieces.arrays(ROWS, rows=128), dtype="float32"
    )
    np.testing.assert_allclose(single.flat_mean, post.flat_mean, atol=1e-5)


def test_arrays_that_modules_hold_are_arguments():
    """Other ones of the same shape are not those that were compiled."""

    @jax.tree_util.register_pytree_node_class
    class Prior:
        def __init__(self, mean):
            self.mean = mean

        def __call__(self, w):
            return -50.0 * ((w - self.mean) ** 2).sum()

        def tree_flatten(self):
            return (self.mean,), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(*leaves)

    for mean in (np.zeros(DIM), np.full(DIM, 3.0)):
        model = mixvi.Additive(Prior(mean), by_row)
        posts = [
            mixvi.laplace(model, np.zeros(DIM), data=data)
            for data in (ROWS, mixvi.Pieces.arrays(ROWS, rows=256))
        ]
        assert_alike(posts[1], posts[0])


def test_new_weights_of_draws_may_be_asked_for():
    pieces = mixvi.Pieces.arrays(ROWS, rows=128)
    post = mixvi.fit(MODEL, np.zeros(DIM), data=pieces)
    both = [post.importance_weights(200, MODEL, data) for data in (ROWS, pieces)]
    np.testing.assert_allclose(both[0].weights, both[1].weights, rtol=1e-8)


# --- compiled once ----------------------------------------------------------------------------


def test_a_row_more_or_fewer_compiles_nothing():
    counted = Counted(by_row)
    model = mixvi.Additive(log_prior, counted)
    _jax.forget()
    programs = []
    compiled = _jax.Trace._compiled

    def watched(self, make, shapes):
        programs.append(make)
        return compiled(self, make, shapes)

    def finish():
        for thread in threading.enumerate():
            if thread.name == "mixvi-compile":
                thread.join()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_jax.Trace, "_compiled", watched)
        mixvi.fit(model, np.zeros(DIM), data=mixvi.Pieces.arrays(rows_of(1000), rows=128))
        finish()
        traced, made = counted.n, len(programs)
        assert traced <= 2
        assert 1 <= made <= 4
        for n in (999, 1001, 2345):
            mixvi.fit(model, np.zeros(DIM), data=mixvi.Pieces.arrays(rows_of(n), rows=128))
        finish()
        assert (counted.n, len(programs)) == (traced, made)


@pytest.mark.parametrize("n", [70, 990, 5001, 10**5, 10**6, 123_456_789])
def test_pieces_are_nearly_full_and_of_few_sizes(n):
    form = _cut.Form({"x": np.zeros((1, 50)), "y": np.zeros(1)}, "it")

    def size(n):
        return _cut.Layout(form, (DOUBLE, DOUBLE), n).piece_rows()

    assert size(n) * 408 <= _cut.PIECE_BYTES
    filled = -(-n // size(n)) * size(n)
    assert filled <= max(1.3 * n, n + 32) if n > 200 else filled <= n + 64
    assert size(n) % 32 == 0
    assert size(n) == size(n + 1) == size(n - 1)


# --- the same numbers, in bounded memory ------------------------------------------------------


def test_the_same_numbers_whatever_the_threads(monkeypatch):
    found = []
    for cores in (1, 2, 5, 2):
        monkeypatch.setattr(_asked, "n_cores", lambda cores=cores: cores)
        _asked._threads.cache_clear()
        pieces = mixvi.Pieces.arrays(ROWS, rows=64)
        post = mixvi.fit(MODEL, np.zeros(DIM), data=pieces, family="full")
        found.append((post.flat_mean, post.cov, post.elbo.value))
    _asked._threads.cache_clear()
    for each in found[1:]:
        for a, b in zip(each, found[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_sums_are_in_pairs_and_in_order():
    assert _asked.summed([(1.0,)]) == (1.0,)
    order = [(f"{i}",) for i in range(7)]
    assert _asked.summed(iter(order)) == ("0123456",)
    many = [(np.float64(0.1),)] * 100_000
    assert abs(_asked.summed(many)[0] - 10_000) < 1e-9


def test_reading_ahead_stops_where_nobody_reads():
    made = []

    def endless():
        while True:
            made.append(None)
            yield len(made)

    read = ahead(endless(), 3)
    assert [next(read), next(read)] == [1, 2]
    read.close()
    before = {thread for thread in threading.enumerate() if thread.name == "mixvi-reader"}
    for thread in before:
        thread.join(5)
        assert not thread.is_alive()
    assert len(made) <= 7


def test_what_goes_wrong_while_reading_is_raised_here():
    def read():
        yield {"x": np.zeros((5, 2))}
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        mixvi.Pieces.chunks(read).layout  # noqa: B018


BOUNDED = """
import resource, sys
import jax, jax.numpy as jnp, numpy as np, mixvi

pieces = mixvi.Pieces.parquet(sys.argv[1], {"x": [f"x{j}" for j in range(20)], "y": "y"}, memory=0)
model = mixvi.Additive(
    lambda w: -0.5 * (w**2).sum(), lambda w, rows: -0.5 * (rows["y"] - rows["x"] @ w) ** 2
)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

small = np.zeros((64, 20))
mixvi.laplace(model, np.zeros(20), data=mixvi.Pieces.chunks([{"x": small, "y": small[:, 0]}]))
before = peak()
post = mixvi.laplace(model, np.zeros(20), data=pieces, diagnostics=False)
print(peak() - before, abs(post.mean - 1.0).max())
"""


@pytest.mark.slow
def test_memory_is_bounded(tmp_path):
    """Of 240 MB in one group of rows, of which a tenth is in memory at a time."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    n = 1_500_000
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, n))
    columns = {f"x{j}": one for j, one in enumerate(x)} | {"y": x.sum(0)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", compression=None, row_group_size=n)
    del x, columns
    told = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(tmp_path / "rows.parquet")],
        capture_output=True,
        text=True,
        check=True,
    )
    added, error = map(float, told.stdout.split())
    assert added < 120
    assert error < 1e-3


# --- what cannot be ---------------------------------------------------------------------------


def refused(make, *words):
    with pytest.raises(mixvi.InputError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def fitted(pieces, model=MODEL, **options):
    return lambda: mixvi.laplace(model, np.zeros(DIM), data=pieces, **options)


def test_log_densities_that_do_not_come_apart():
    pieces = mixvi.Pieces.arrays(ROWS)
    refused(fitted(pieces, lambda w, rows: 0.0), "mixvi.Additive(log_prior, log_likelihood)")
    summed = mixvi.Additive(log_prior, lambda w, rows: by_row(w, rows).sum())
    refused(fitted(pieces, summed), "one number for every row, not their sum", "shape ()")
    refused(fitted(ROWS, summed), "one number for every row")
    two = mixvi.Additive(log_prior, lambda w, rows: by_row(w, rows)[:, None])
    refused(fitted(pieces, two), "log_likelihood returned shape")
    vector = mixvi.Additive(lambda w: w, by_row)
    refused(fitted(pieces, vector), "log_prior returned an array of shape (4,)")
    whole = mixvi.LinearPredictor(ROWS["x"], lambda eta, rows: -(eta**2), 1.0)
    refused(fitted(mixvi.Pieces.arrays(ROWS, rows=128), whole), "make the design from the data")
    refused(lambda: mixvi.laplace(MODEL, np.zeros(DIM)), "give them by data=")
    refused(lambda: mixvi.Additive(1.0, by_row), "log_prior must be a function")
    refused(lambda: mixvi.fit_many(MODEL, np.zeros(DIM), data=pieces), "one problem at a time")
    broken = mixvi.Additive(log_prior, lambda w, rows: rows["z"] * w[0])
    refused(fitted(pieces, broken), "log_likelihood raised KeyError")
    density = models.Model(models.Linear(), models.Bernoulli()).density(ROWS["x"], ROWS["y"])
    refused(lambda: mixvi.laplace(density, density.init, data=pieces), "holds its own data")


def test_arrays_and_chunks_that_are_refused():
    pieces = mixvi.Pieces
    refused(lambda: pieces.arrays({"x": np.zeros(3), "y": np.zeros(4)}), "data.y (4,)")
    refused(lambda: pieces.arrays({}), "no array")
    refused(lambda: pieces.arrays(ROWS, rows=0), "rows must be a positive integer")
    refused(lambda: pieces.chunks([], memory="much"), "memory must be")
    refused(lambda: pieces.chunks([]).n_rows, "there are no rows")
    refused(lambda: pieces.chunks(one for one in chunks()), "can be read once")
    refused(lambda: pieces.chunks(3.0), "not float")
    missing = chunks({name: one.copy() for name, one in ROWS.items()})
    missing[7]["x"][3, 2] = np.nan
    refused(lambda: pieces.chunks(missing).n_rows, "data.x is NaN in row 3 of chunk 7, [2]")
    x = ROWS["x"].copy()
    x[900, 1] = np.nan
    refused(lambda: pieces.arrays({"x": x}).n_rows, "data.x is NaN in row 900, [1]")
    other = chunks()
    other[2] = {"x": other[2]["x"], "z": other[2]["y"]}
    refused(lambda: pieces.chunks(other).n_rows, "chunk 2", "data.z", "data.y")
    narrow = [{"x": np.zeros((3, 2))}, {"x": np.zeros((3, 1))}]
    refused(lambda: pieces.chunks(narrow).n_rows, "shape (1,) in chunk 1")
    ragged = [{"x": np.zeros((3, 2)), "y": np.zeros(2)}]
    refused(lambda: pieces.chunks(ragged).n_rows, "same number of rows", "chunk 0")
    text = [{"x": np.array(["a", "b"])}]
    refused(lambda: pieces.chunks(text).n_rows, "data.x", "not numbers")


def test_data_that_change_while_they_are_fitted(tmp_path):
    grows = []

    def read():
        grows.append(None)
        yield from chunks()[: 3 + len(grows)]

    refused(fitted(mixvi.Pieces.chunks(read, memory=0)), "when they were first read")
    path = parquet(tmp_path)
    pieces = mixvi.Pieces.parquet(path, COLUMNS, memory=0)
    assert pieces.n_rows == 1003
    parquet(tmp_path, rows_of(900))
    refused(fitted(pieces), "rows.parquet", "has changed")


def test_types_of_chunks_are_the_widest():
    parts = [{"a": np.array([True]), "b": np.array([1], np.uint8)}]
    parts += [{"a": np.array([3], np.int16), "b": np.array([0.5], np.float32)}]
    pieces = mixvi.Pieces.chunks(parts)
    assert [one.str for one in pieces.layout.dtypes] == ["<i8", "<f8"]
    rows = pieces.first().rows
    assert rows["a"][:2].tolist() == [1, 3]
    assert rows["b"][:2].tolist() == [1.0, 0.5]
