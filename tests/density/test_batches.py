"""Mini-batches: rows drawn evenly and the same from everywhere, estimates without bias, and none of
the noise where the posterior is a Gaussian."""

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import mixvi
from mixvi import models
from mixvi._arrays._draws import Matched
from mixvi._density._batches import BatchSource, Parabola
from mixvi._density._make import density_of, prepared
from mixvi._density._protocol import Points
from mixvi._density._random_rows import RandomRows

DOUBLE = np.dtype(np.float64)
DIM, N = 4, 4001
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, DIM))
ROWS = {"x": X, "y": (RNG.random(N) < 1 / (1 + np.exp(-X @ np.ones(DIM)))).astype(np.int8)}


def logistic(w, rows):
    return jax.nn.log_sigmoid((2 * rows["y"] - 1) * (rows["x"] @ w))


# A prior that is not Gaussian.
MODEL = mixvi.Additive(lambda w: -2 * jnp.log1p(w**2).sum(), logistic)


def whole_of(pieces, model=MODEL):
    target, _ = prepared(model, np.zeros(DIM), pieces, DOUBLE)
    return density_of(model, target, DOUBLE, 2**30, pieces)


def closed(pieces, likelihood=None):
    likelihood = models.Bernoulli() if likelihood is None else likelihood
    return models.Model(models.Linear(), likelihood).density(pieces, "y")


def source_of(whole, pieces, rows=64, key=0):
    inner = getattr(whole, "inner", whole)
    return BatchSource(whole, RandomRows(pieces, rows, key), inner.part_for)


def chunks(rows=ROWS, size=77):
    n = len(rows["y"])
    return [{k: one[i : i + size] for k, one in rows.items()} for i in range(0, n, size)]


def parquet(folder, **options):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {f"x{j}": X[:, j] for j in range(DIM)} | {"y": ROWS["y"]}
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=130)
    names = {"x": [f"x{j}" for j in range(DIM)], "y": "y"}
    return mixvi.Pieces.parquet(folder / "rows.parquet", names, **options)


def memory_map(folder):
    np.save(folder / "x.npy", X)
    return mixvi.Pieces.arrays({"x": np.load(folder / "x.npy", mmap_mode="r"), "y": ROWS["y"]})


SOURCES = {
    "memory map": memory_map,
    "small pieces": lambda folder: mixvi.Pieces.arrays(ROWS, rows=96),
    "parquet": lambda folder: parquet(folder),
    "parquet, read again": lambda folder: parquet(folder, memory=0, rows=160),
    "chunks": lambda folder: mixvi.Pieces.chunks(chunks()),
    "chunks, read again": lambda folder: mixvi.Pieces.chunks(lambda: iter(chunks()), memory=0),
}


# --- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_rows_wherever_they_come_from(name, tmp_path):
    plain = RandomRows(mixvi.Pieces.arrays(ROWS), 96, 3)
    other = RandomRows(SOURCES[name](tmp_path), 96, 3)
    for n in (1, 3, 70):
        for one, its in zip(plain.batches(n), other.batches(n), strict=True):
            jtu.tree_map(np.testing.assert_array_equal, one, its)
    assert other.n_readings == (2 if "again" in name else 0)


def test_rows_are_drawn_evenly_and_none_twice_in_a_batch():
    n, times = 200, 600
    numbered = mixvi.Pieces.arrays({"row": np.arange(n)})
    batches = RandomRows(numbered, 32, 0).batches(times)
    rows = np.stack([one.rows["row"] for one in batches])
    assert all(len(set(one)) == 32 for one in rows)
    counts = np.bincount(rows.ravel(), minlength=n)
    share = 32 / n
    # The sum of n squared deviations, each of variance `times share (1 - share)`, about its mean.
    chi = ((counts - times * share) ** 2).sum() / (times * share * (1 - share))
    assert abs(chi - n) < 4 * np.sqrt(2 * n)
    # Neighbours come together no more often than any two rows.
    together = np.mean([(np.diff(one) == 1).sum() for one in rows])
    assert together == pytest.approx(31 * 32 / n, rel=0.05)


def test_rows_change_with_the_key_and_with_nothing_else():
    pieces = mixvi.Pieces.arrays(ROWS)
    one, two, other = (RandomRows(pieces, 64, key) for key in (0, 0, 1))
    together = one.batches(4)
    apart = [*two.batches(1), *two.batches(3)]
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_array_equal(a.rows["x"], b.rows["x"])
    assert not np.array_equal(together[0].rows["x"], other.batches(1)[0].rows["x"])


# --- estimates --------------------------------------------------------------------------------


def asked(batch, points, mean, root, rule):
    """All that batches are asked, in one vector."""
    expected = batch.expect(mean, root, rule)
    value, gradient, hessian = batch.curvature(points[0])
    parts = [batch.values(points), *batch.gradients(points), *expected[:3], value, gradient]
    parts += [hessian, *batch.product(points[0], points[1])]
    return np.concatenate([np.ravel(one) for one in parts])


def gaussian(rng, width=0.1):
    mean = 1 + width * rng.standard_normal(DIM)
    return mean, width * (np.eye(DIM) + 0.1 * np.tri(DIM))


@pytest.mark.parametrize("kind", ["additive", "model"])
@pytest.mark.parametrize("controlled", [True, False])
def test_estimates_have_no_bias(kind, controlled):
    pieces = mixvi.Pieces.arrays(ROWS)
    whole = whole_of(pieces) if kind == "additive" else closed(pieces)
    rng = np.random.default_rng(1)
    dim = whole.dim
    mean, root = np.full(dim, 0.9), 0.1 * (np.eye(dim) + 0.1 * np.tri(dim))
    points, rule = (
        mean + 0.1 * rng.standard_normal((3, dim)),
        Points(Matched(32).make(0, dim), True),
    )
    source = source_of(whole, pieces)
    if controlled:
        source.refer_to(np.full(dim, 1.0))
    batches = source.fresh(400)
    each = np.stack(batches.asked(lambda one: asked(one, points, mean, root, rule)))
    exact = asked(whole, points, mean, root, rule)
    se = each.std(0, ddof=1) / np.sqrt(len(each))
    assert (np.abs(each.mean(0) - exact) < 4.5 * se + 1e-9 * np.abs(exact)).all()
    # And the spread is what the noise is: of some hundred numbers not all are well within it.
    assert (np.abs(each.mean(0) - exact) > 0.5 * se).any()
    np.testing.assert_allclose(asked(batches, points, mean, root, rule), each.mean(0), rtol=1e-10)


def test_the_control_takes_nearly_all_of_the_noise():
    pieces = mixvi.Pieces.arrays(ROWS)
    whole = whole_of(pieces)
    point = np.ones((1, DIM)) + 0.02
    noise = []
    for refers in (False, True):
        source = source_of(whole, pieces)
        if refers:
            source.refer_to(np.ones(DIM))
        noise.append(np.std(source.fresh(60).asked(lambda one: one.values(point)[0])))
    assert noise[1] < 1e-4 * noise[0]


def test_a_gaussian_posterior_has_no_noise_at_all():
    rng = np.random.default_rng(2)
    rows = {"x": X, "y": X @ np.arange(DIM) + 0.3 * rng.standard_normal(N)}
    model = mixvi.Additive(
        lambda w: -0.5 * (w**2).sum(), lambda w, r: -0.5 * ((r["y"] - r["x"] @ w) / 0.3) ** 2
    )
    pieces = mixvi.Pieces.arrays(rows)
    whole = whole_of(pieces, model)
    source = source_of(whole, pieces, rows=32)
    source.refer_to(np.arange(DIM) + 5.0)  # however far away
    points, (mean, root) = rng.standard_normal((3, DIM)), gaussian(rng)
    rule = Points(Matched(32).make(0, DIM), True)
    exact = asked(whole, points, mean, root, rule)
    each = source.fresh(5).asked(lambda one: asked(one, points, mean, root, rule))
    np.testing.assert_allclose(each, np.broadcast_to(exact, np.shape(each)), rtol=1e-8, atol=1e-6)


def test_a_parabola_is_what_it_says():
    rng = np.random.default_rng(3)
    half = rng.standard_normal((DIM, DIM))
    bowl = Parabola(rng.standard_normal(DIM), 1.5, rng.standard_normal(DIM), -half @ half.T)
    mean, root = gaussian(rng, 0.7)
    z = Matched(64).make(0, DIM)
    values, gradients = bowl.gradients(mean + z @ root.T)
    found = bowl.expect(mean, root)
    assert found.value == pytest.approx(values.mean(), rel=1e-12)
    np.testing.assert_allclose(found.gradient, gradients.mean(0), atol=1e-12)
    np.testing.assert_allclose(found.cross, gradients.T @ z / len(z), atol=1e-12)
    slopes = jax.grad(lambda w: jnp.asarray(bowl.value) + (w - bowl.point) @ bowl.gradient)(mean)
    np.testing.assert_allclose(bowl.gradients(bowl.point[None])[1][0], slopes, rtol=1e-6)
