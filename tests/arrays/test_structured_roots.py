"""Roots with a structure against dense ones: exact, and nothing dim x dim is made."""

import numpy as np
import pytest
import scipy.sparse as sp

from mixvi._arrays import _roots, _sparse
from mixvi._arrays._sparse import cholesky
from mixvi._arrays._structured import KINDS, LowRankRoot, SparseRoot, gram_of


def random_precision(dim, density, seed):
    rng = np.random.default_rng(seed)
    half = sp.random_array((dim, dim), density=density, rng=rng)
    return (half @ half.T + sp.diags_array(0.1 + rng.random(dim))).tocsc()


def arrow(groups, seed=0):
    """Of a mixed model: three full rows, the rest diagonal."""
    rng = np.random.default_rng(seed)
    border = sp.csc_array(rng.normal(size=(3, groups)))
    corner = sp.csc_array((border @ border.T).toarray() + np.eye(3))
    return sp.block_array([[corner, border], [border.T, sp.eye_array(groups) * 2.0]]).tocsc()


def chain(dim):
    ones = np.ones(dim - 1)
    return sp.diags_array([-ones, np.full(dim, 2.1), -ones], offsets=[-1, 0, 1]).tocsc()


def grid(side):
    one = sp.diags_array([np.full(side, 2.2)], offsets=[0]) - sp.diags_array(
        [np.ones(side - 1), np.ones(side - 1)], offsets=[-1, 1]
    )
    eye = sp.eye_array(side)
    return (sp.kron(eye, one) + sp.kron(one, eye)).tocsc()


PRECISIONS = {
    "one": sp.csc_array(np.array([[4.0]])),
    "diagonal": sp.diags_array(np.arange(1.0, 8)).tocsc(),
    "arrow": arrow(60),
    "chain": chain(50),
    "grid": grid(9),
    "full": sp.csc_array(np.eye(12) + np.ones((12, 12))),
    **{f"random {i}": random_precision(40, 0.02 * (1 + i), i) for i in range(6)},
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_sparse_root_is_the_dense_one(name):
    precision = PRECISIONS[name]
    covariance = np.linalg.inv(precision.toarray())
    factor = cholesky(precision)
    assert factor is not None
    root = SparseRoot(factor)
    check(root, covariance)
    rows, columns = precision.nonzero()
    found = factor.inverse_at(rows, columns)
    np.testing.assert_allclose(found, covariance[rows, columns], rtol=1e-9, atol=1e-12)


def test_places_outside_of_the_pattern():
    precision = PRECISIONS["chain"]
    factor, covariance = cholesky(precision), np.linalg.inv(precision.toarray())
    assert factor is not None
    rows, columns = np.array([0, 7, 49]), np.array([30, 2, 0])
    np.testing.assert_allclose(factor.inverse_at(rows, columns), covariance[rows, columns])


def test_an_entry_that_cancels_is_still_in_the_pattern():
    # L_31 vanishes by cancellation: (3, 1) is -1/2 + 1/2.
    matrix = np.array([[2.0, 1, 1, 0], [1, 2, 0.5, 0.3], [1, 0.5, 2, 0], [0, 0.3, 0, 1]])
    factor = cholesky(sp.csc_array(matrix))
    assert factor is not None
    rows, columns = np.nonzero(np.ones((4, 4)))
    found = factor.inverse_at(rows, columns).reshape(4, 4)
    np.testing.assert_allclose(found, np.linalg.inv(matrix))


@pytest.mark.parametrize("matrix", [np.diag([1.0, -1, 1]), np.array([[1, 2.0], [2, 1]])])
def test_what_is_not_definite_has_no_factor(matrix):
    assert cholesky(sp.csc_array(matrix)) is None
    assert cholesky(sp.csc_array(matrix * np.nan)) is None


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dim", [5, 40])
def test_a_low_rank_root_is_the_dense_one(sparse, dim):
    rng = np.random.default_rng(dim)
    scale, rows = 0.5 + rng.random(dim), rng.normal(size=(7, dim))
    inner = -np.diag(rng.random(7)) / 50
    held = sp.csr_array(rows) if sparse else rows
    root = LowRankRoot(scale, held, scale, inner, gram_of(held, scale**2))
    a = rows * scale
    dense = scale[:, None] * (np.eye(dim) + a.T @ inner @ a)
    np.testing.assert_allclose(root.colour(np.eye(dim)), dense.T, atol=1e-12)
    check(root, dense @ dense.T)


def check(root, covariance):
    """By what a root is asked, and again after a file."""
    dim, rng = len(covariance), np.random.default_rng(1)
    points = rng.normal(size=(3, dim))
    for one in (root, KINDS[root.kind].of_arrays(root.arrays())):
        made = _roots.colour(one, np.eye(dim)).T
        np.testing.assert_allclose(made @ made.T, covariance, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(_roots.colour(one, points), points @ made.T, atol=1e-10)
        np.testing.assert_allclose(_roots.colour(one, points[0]), made @ points[0], atol=1e-10)
        np.testing.assert_allclose(_roots.whiten(one, points @ made.T), points, atol=1e-8)
        np.testing.assert_allclose(_roots.across(points, one), points @ made, atol=1e-10)
        np.testing.assert_allclose(_roots.sds(one), np.sqrt(np.diagonal(covariance)), rtol=1e-9)
        np.testing.assert_allclose(_roots.log_det(one), np.linalg.slogdet(made)[1], rtol=1e-10)
        some = np.array([0, dim - 1])
        found = _roots.covariance_of(one, some)
        np.testing.assert_allclose(found, covariance[np.ix_(some, some)], rtol=1e-8, atol=1e-12)
        assert one.is_sound
        assert len(one) == one.dim == dim


def test_a_structured_root_is_never_made_dense():
    factor = cholesky(PRECISIONS["grid"])
    assert factor is not None
    with pytest.raises(TypeError, match="never made dense"):
        _roots.dense(SparseRoot(factor))


@pytest.mark.parametrize("name", ["arrow", "chain", "grid", "full", "random 3"])
def test_the_same_numbers_with_and_without_cholmod(name, monkeypatch):
    if _sparse._cholmod() is None:
        pytest.skip("scikit-sparse is not installed")
    precision = PRECISIONS[name]
    with_it = cholesky(precision)
    indefinite = (precision - 50 * sp.eye_array(precision.shape[0])).tocsc()
    assert cholesky(indefinite) is None
    monkeypatch.setattr(_sparse, "_cholmod", lambda: None)
    without = cholesky(precision)
    assert with_it is not None
    assert without is not None
    assert with_it.log_det == pytest.approx(without.log_det, rel=1e-12)
    np.testing.assert_allclose(with_it.variances, without.variances, rtol=1e-10)
    z = np.random.default_rng(0).normal(size=(3, with_it.dim))
    np.testing.assert_allclose(with_it.solve(z), without.solve(z), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("without", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_band_is_cut_in_halves(width, without, monkeypatch):
    if without:
        monkeypatch.setattr(_sparse, "_cholmod", lambda: None)
    dim, rng = 700, np.random.default_rng(width)
    band = sp.diags_array(
        [rng.normal(size=dim - k) for k in range(width + 1)], offsets=range(width + 1)
    )
    precision = (band @ band.T + sp.eye_array(dim)).tocsc()
    shuffled = rng.permutation(dim)
    precision = precision[shuffled][:, shuffled].tocsc()
    factor = cholesky(precision)
    assert factor is not None
    covariance = np.linalg.inv(precision.toarray())
    np.testing.assert_allclose(factor.variances, np.diagonal(covariance), rtol=1e-9)
    every = np.arange(dim)
    assert _sparse._Tree(factor, every, every).depth.max() < 40
    assert np.array_equal(np.sort(factor.order), every)
