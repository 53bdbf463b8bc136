"""The Gaussian itself: its density against SciPy's, its draws, and one algebra for both roots."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import mixvi
from mixvi._arrays import _roots
from mixvi._law._gaussian import Gaussian

RNG = np.random.default_rng(0)
LAWS = {
    "dense": Gaussian(np.array([1.0, -2.0, 0.5]), RNG.standard_normal((3, 3))),
    "diagonal": Gaussian(np.array([1.0, -2.0, 0.5]), np.array([0.5, 2.0, 3.0])),
}


@pytest.mark.parametrize("name", LAWS)
def test_density_moments_and_draws_are_of_one_law(name):
    law = LAWS[name]
    points = RNG.standard_normal((5, 3))
    exact = stats.multivariate_normal(law.mean, law.cov)
    np.testing.assert_allclose(law.log_prob(points), exact.logpdf(points), rtol=1e-10)
    assert law.log_prob(points[0]) == pytest.approx(exact.logpdf(points[0]), rel=1e-10)
    np.testing.assert_allclose(law.std, np.sqrt(np.diag(law.cov)), rtol=1e-12)
    np.testing.assert_allclose(law.whiten(law.colour(points)), points, rtol=1e-9)
    draws = law.sample(0, 40_000)
    noise = 4 / np.sqrt(len(draws))
    np.testing.assert_allclose(draws.mean(0), law.mean, atol=noise * law.std.max())
    np.testing.assert_allclose(np.cov(draws.T), law.cov, atol=2 * noise * law.std.max() ** 2)


def test_where_there_is_no_gaussian_nothing_is_a_number():
    law = Gaussian(np.full(2, np.nan), np.full(2, np.nan))
    assert np.isnan(law.cov).all()
    assert np.isnan(law.log_prob(np.zeros((3, 2)))).all()
    assert np.isnan(law.whiten(np.zeros(2))).all()


numbers = st.floats(-5, 5).filter(lambda x: abs(x) > 1e-3)


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(
    hnp.arrays(float, 3, elements=numbers), hnp.arrays(float, (4, 3), elements=st.floats(-5, 5))
)
def test_a_diagonal_root_is_the_dense_one_of_its_diagonal(root, rows):
    matrix = np.diag(root)
    np.testing.assert_allclose(_roots.colour(root, rows), _roots.colour(matrix, rows))
    np.testing.assert_allclose(_roots.whiten(root, rows), _roots.whiten(matrix, rows))
    np.testing.assert_allclose(_roots.across(rows, root), _roots.across(rows, matrix))
    np.testing.assert_allclose(_roots.sds(root), _roots.sds(matrix))
    np.testing.assert_allclose(_roots.covariance(root), _roots.covariance(matrix))
    assert _roots.log_det(root) == pytest.approx(_roots.log_det(matrix))
    np.testing.assert_allclose(_roots.dense(root), matrix)
    whole = _roots.outer(matrix, rows, rows[::-1])
    np.testing.assert_allclose(_roots.outer(root, rows, rows[::-1]), np.diag(whole), atol=1e-12)


def test_a_posterior_holds_its_law():
    post = mixvi.laplace(lambda x: 3 * np.log(2) * 0 - 0.5 * ((x - 2) / 3) ** 2, 0.0)
    assert post.law.mean[0] == pytest.approx(2.0)
    assert post.law.cov[0, 0] == pytest.approx(9.0)
    assert post.law.log_prob(np.array([5.0])) == pytest.approx(post.log_prob(5.0))
    np.testing.assert_array_equal(post.law.sample(3, 4)[:, 0], post.sample(3, 4))
