"""On a Gaussian target every family that contains the answer gives it, to 1e-6 sds."""

import numpy as np
import pytest

import mixvi
from targets import GaussianTarget

CASES = [(1, 1.0), (1, 1e8), (2, 1.0), (2, 1e8), (20, 1e4), (20, 1e8), (200, 1e2), (200, 1e8)]
CORRELATED = ["laplace", "mu", "eig", "lr", "full", mixvi.LowRank(rank=2)]
DIAGONAL = ["diag", mixvi.MeanField(start="small")]


def errors(post: mixvi.Posterior, target: GaussianTarget) -> tuple[float, float, float]:
    """Mean in posterior sds, covariance relative to the sds, log evidence in nats."""
    scaled = np.linalg.cholesky(target.cov)
    mean = np.linalg.norm(np.linalg.solve(scaled, post.flat_mean - target.mean))
    half = np.linalg.solve(scaled, post.cov)
    cov = np.abs(np.linalg.solve(scaled, half.T) - np.eye(len(target.mean))).max()
    return mean, cov, abs(post.log_evidence - target.log_z) / max(1.0, abs(target.log_z))


@pytest.mark.parametrize(
    ("family", "dim", "condition"),
    [(f, *case) for f in CORRELATED for case in CASES if getattr(f, "rank", 1) <= case[0]],
    ids=str,
)
def test_correlated(family, dim, condition):
    target = GaussianTarget.make(dim, condition)
    post = mixvi.fit(target.log_density, np.zeros(dim), family=family, data=target.data)
    assert post.converged
    assert max(errors(post, target)) < 1e-6
    assert post.verdict.startswith("Trust")


@pytest.mark.parametrize("family", DIAGONAL, ids=str)
@pytest.mark.parametrize(("dim", "condition"), CASES)
def test_diagonal(family, dim, condition):
    target = GaussianTarget.make(dim, condition, diagonal=True)
    post = mixvi.fit(target.log_density, np.zeros(dim), family=family, data=target.data, tol=1e-7)
    assert post.converged
    assert max(errors(post, target)) < 1e-6
    assert post.root.ndim == 1


def test_elbo_on_fresh_draws_has_no_noise():
    target = GaussianTarget.make(20, 1e4)
    post = mixvi.fit(target.log_density, np.zeros(20), family="eig", data=target.data)
    assert post.elbo.se < 1e-9
    assert post.khat == 0.0
    assert abs(post.gap) < 1e-8


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_badly_scaled_units(scale):
    """Units that differ by twelve orders of magnitude: the curvature test does not see them."""
    target = GaussianTarget.make(6, 10.0)
    units = np.geomspace(1 / scale, scale, 6)

    def log_density(w, data):
        return target.log_density(w / units, data)

    post = mixvi.fit(log_density, np.zeros(6), family="eig", data=target.data)
    np.testing.assert_allclose(post.flat_mean / units, target.mean, atol=1e-6 * 10)
    np.testing.assert_allclose(
        post.cov / np.outer(units, units), target.cov, atol=1e-6 * np.diag(target.cov).max()
    )
    assert post.curvature.condition < 100


@pytest.mark.parametrize("start", ["laplace", "small"])
def test_mean_field_on_a_correlated_gaussian_has_the_known_optimum(start):
    """The best factorised Gaussian has the true mean and the variances 1 / P_ii, where it starts;
    however strong the correlations, the mean moves in whitened coordinates."""
    target = GaussianTarget.make(20, 1e6)
    family = mixvi.MeanField(start)
    post = mixvi.fit(target.log_density, np.zeros(20), family=family, data=target.data, tol=1e-7)
    sd = np.sqrt(np.diag(target.cov))
    np.testing.assert_allclose((post.flat_mean - target.mean) / sd, 0, atol=1e-5)
    np.testing.assert_allclose(post.flat_std**2, 1 / np.diag(target.precision), rtol=1e-5)
    assert post.stats.passes <= (3 if start == "laplace" else 30)


def test_conjugate_regression_with_known_evidence():
    """Bayesian linear regression: the marginal likelihood is a Gaussian density of y."""
    rng = np.random.default_rng(3)
    x, noise = rng.standard_normal((30, 4)), 0.5
    y = x @ rng.standard_normal(4) + noise * rng.standard_normal(30)

    def log_density(w, data):
        x, y = data
        likelihood = -0.5 * (((y - x @ w) / noise) ** 2).sum() - 30 * np.log(noise)
        return likelihood - 17 * np.log(2 * np.pi) - 0.5 * (w @ w)

    cov_y = x @ x.T + noise**2 * np.eye(30)
    sign, log_det = np.linalg.slogdet(2 * np.pi * cov_y)
    expected = -0.5 * log_det - 0.5 * y @ np.linalg.solve(cov_y, y)
    assert sign == 1
    for family in ("laplace", "eig", "full"):
        post = mixvi.fit(log_density, np.zeros(4), family=family, data=(x, y))
        assert post.log_evidence == pytest.approx(expected, abs=1e-8)
