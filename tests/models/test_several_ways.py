"""Several predictors: the ways that are taken by size alone give the same numbers."""

import numpy as np
import pytest

import mixvi.models._likelihoods as likelihoods
import mixvi.models._several as several
from mixvi._arrays._draws import Quadrature
from mixvi.models import RBF, Model, Softmax

FLOAT64 = np.dtype(np.float64)


@pytest.fixture
def density():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((90, 2)), rng.integers(0, 3, 90).astype(float)
    return Model(RBF(6), Softmax(3)).density(x, y, weight=rng.uniform(0.5, 2, 90))


@pytest.fixture
def gaussian(density):
    rng = np.random.default_rng(1)
    root = np.tril(0.2 * rng.standard_normal((density.dim, density.dim)))
    return rng.standard_normal(density.dim), root + np.eye(density.dim)


def told(density, gaussian, rule) -> list[np.ndarray]:
    afresh = density.at(density.theta)
    mean, root = gaussian
    slopes = afresh.evidence_slopes(mean, root)
    return [
        *(np.asarray(one) for one in afresh.expect(mean, root, rule)),
        *(np.asarray(one) for one in (slopes.direct, slopes.mixed, slopes.in_w)),
        afresh.curvature(mean)[2],
        *afresh.predictors(mean, root),
    ]


def agree(ones, others):
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_products_of_columns_are_kept_or_not(density, gaussian, monkeypatch):
    rule = Quadrature(64).make(FLOAT64, 3)
    kept = told(density, gaussian, rule)
    monkeypatch.setattr(several, "PRODUCTS_KEPT", 0)
    agree(kept, told(density, gaussian, rule))


def test_rows_with_the_same_nodes_go_together_or_not(density, gaussian, monkeypatch):
    rule = Quadrature(64).make(FLOAT64, 3)
    apart = told(density, gaussian, rule)
    monkeypatch.setattr(several, "LARGE_SET", 0)
    together = told(density, gaussian, rule)
    agree(apart, together)
    monkeypatch.setattr(several, "SMALL", 64)
    agree(apart, told(density, gaussian, rule))


def test_exponentials_as_they_are_or_shifted(density, gaussian, monkeypatch):
    rule = Quadrature(64).make(FLOAT64, 3)
    plain = told(density, gaussian, rule)
    monkeypatch.setattr(likelihoods, "MARGIN", np.inf)
    agree(plain, told(density, gaussian, rule))


@pytest.mark.parametrize("size", [1.0, 299.0, 301.0, 1e5])
def test_predictors_of_any_size(size):
    eta = size * np.array([[[1.0, -1.0], [0.5, 0.0]]])
    value, slope = Softmax(2).several(np.zeros(1), eta, {})
    difference = eta[:, 1] - eta[:, 0]
    np.testing.assert_allclose(value, -np.logaddexp(0.0, difference), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(slope.sum(1), 0.0, atol=1e-13)
    np.testing.assert_allclose(
        slope[:, 1], -np.exp(difference - np.logaddexp(0, difference)), rtol=1e-9, atol=1e-13
    )


def test_sites_end_where_stein_steps_do(density):
    """The same bound, from another search."""
    import mixvi

    rule = Quadrature(64)
    best = {}
    for by_sites in (True, False):
        density.has_best_gaussian = by_sites
        best[by_sites] = mixvi.fit(
            density, density.init, family="full", draws=rule, diagnostics=False
        )
    np.testing.assert_allclose(best[True].flat_mean, best[False].flat_mean, atol=0.02)
    np.testing.assert_allclose(best[True].cov, best[False].cov, atol=0.02)
