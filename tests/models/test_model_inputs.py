"""Weights are repeats, the order of rows is nothing, offsets shift, precisions agree; slips."""

import numpy as np
import pytest
import scipy.sparse

import mixvi
from mixvi import models
from mixvi.models._choose import Data, candidate, chosen
from model_cases import BASES, LIKELIHOODS, table

N = 24
LIKELY = {"bernoulli": models.Bernoulli(), "t": models.StudentT(), "softmax": models.Softmax(3)}


def targets(name, x):
    rng = np.random.default_rng(7)
    if name == "softmax":
        return np.digitize(x[:, 0] + 0.3 * rng.standard_normal(len(x)), [-0.4, 0.5]).astype(float)
    smooth = np.sin(2 * x[:, 0]) + 0.4 * rng.standard_normal(len(x))
    return (smooth > 0).astype(float) if name == "bernoulli" else smooth


def both_ways(name):
    """The same data with weights, and with rows repeated in another order."""
    x = table(N, 2)
    y, times = targets(name, x), np.random.default_rng(8).integers(1, 4, N)
    order = np.random.default_rng(9).permutation(np.repeat(np.arange(N), times))
    return (x, y, times.astype(float)), (x[order], y[order], np.ones(len(order))), order


@pytest.mark.parametrize("name", LIKELY)
@pytest.mark.parametrize(
    # Where the rows are the centres the jitter on the kernel's diagonal is in the design.
    ("basis", "tol"),
    [("rbf", 1e-8), ("gp rbf", 1e-8), ("gp matern52", 1e-5)],
)
def test_weights_are_repeats_in_any_order(name, basis, tol):
    *data, order = both_ways(name)
    model = models.Model(BASES[basis], LIKELY[name])
    shared = model.basis.fit_shared(data[0][0], 0, data[0][2])
    posts, loos = [], []
    for x, y, weight in data:
        density = model.density(x, y, weight=weight, shared=shared)
        post = mixvi.fit(density, density.init, family="full", diagnostics=False)
        same = Data.of(x, y, weight).same
        posts.append(post)
        loos.append(models.leave_one_out(density, post.flat_mean, post.root, False, same))
    ours, theirs = posts
    np.testing.assert_allclose(ours.flat_mean, theirs.flat_mean, atol=tol)
    np.testing.assert_allclose(ours.cov, theirs.cov, atol=tol)
    assert ours.elbo_fixed == pytest.approx(theirs.elbo_fixed, abs=tol)
    np.testing.assert_allclose(loos[0].pointwise[order], loos[1].pointwise, atol=10 * tol)
    assert loos[0].total == pytest.approx(loos[1].total, abs=100 * tol)
    assert loos[0].se == pytest.approx(loos[1].se, rel=1e-5)


@pytest.mark.parametrize("name", LIKELY)
def test_they_are_with_hyperparameters_and_centres_learnt(name):
    *data, order = both_ways(name)
    model = models.Model(models.RBF(6), LIKELY[name])
    one, other = (candidate(model, Data.of(*some), None, 0) for some in data)
    np.testing.assert_allclose(one.density.shared["centres"], other.density.shared["centres"])
    # Searches end where the next step would gain nothing: not at the same number to rounding.
    np.testing.assert_allclose(one.density.theta, other.density.theta, atol=1e-3)
    np.testing.assert_allclose(one.loo.pointwise[order], other.loo.pointwise, atol=1e-3)


@pytest.mark.parametrize("name", ["bernoulli", "t"])
def test_the_same_is_chosen(name):
    *data, _ = both_ways(name)
    one, other = (chosen(LIKELY[name], Data.of(*some), None, None, True, 0) for some in data)
    assert [c.size for c in one.tried] == [c.size for c in other.tried]
    assert one.best.size == other.best.size
    assert one.best.per_feature == other.best.per_feature
    for ours, theirs in zip(one.tried, other.tried, strict=True):
        assert ours.loo.total == pytest.approx(theirs.loo.total, abs=1e-3)


@pytest.mark.parametrize("name", LIKELY)
def test_rows_without_weight_change_nothing(name):
    x = table(N, 2)
    y = targets(name, x)
    model = models.Model(models.RBF(6), LIKELY[name])
    plain = model.density(x, y)
    more, weight = np.concatenate([x, 5 * x[:3]]), np.r_[np.ones(N), np.zeros(3)]
    padded = model.density(more, np.r_[y, y[:3]], weight=weight, shared=plain.shared)
    points = 0.3 * np.random.default_rng(0).standard_normal((2, plain.dim))
    for one, other in zip(
        plain.joint_gradients(points), padded.joint_gradients(points), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
    ours, theirs = (
        mixvi.laplace(density, density.init, hyper=density.hyper) for density in (plain, padded)
    )
    assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=1e-7)


def test_an_offset_shifts_the_target():
    x = table(N, 2)
    y, offset = targets("t", x), np.random.default_rng(1).standard_normal(N)
    for likelihood in (models.Gaussian(), models.StudentT(), models.Cauchy()):
        model = models.Model(models.RBF(6), likelihood)
        shifted = model.density(x, y + offset, offset=offset)
        plain = model.density(x, y)
        points = 0.3 * np.random.default_rng(0).standard_normal((2, plain.dim))
        np.testing.assert_allclose(shifted.values(points), plain.values(points), rtol=1e-12)
        ours, theirs = (mixvi.laplace(one, one.init) for one in (shifted, plain))
        np.testing.assert_allclose(ours.flat_mean, theirs.flat_mean, atol=1e-7)


def test_an_offset_for_every_class():
    x = table(N, 2)
    model = models.Model(models.Linear(), models.Softmax(3))
    y = targets("softmax", x)
    w = np.random.default_rng(0).standard_normal((3, 3))
    # Offsets that are linear in the features are a shift of the weights.
    offset = np.c_[x, np.ones(N)] @ w.T
    flat = w.ravel()
    plain, shifted = model.density(x, y), model.density(x, y, offset=offset)
    prior = -0.5 * flat @ flat
    assert shifted(0 * flat) + prior == pytest.approx(plain(flat), rel=1e-12)


@pytest.mark.parametrize(
    "likelihood", [models.Poisson(), models.StudentT(), models.Bernoulli(), models.Softmax(3)]
)
def test_every_prediction_takes_an_offset(likelihood, monkeypatch):
    """One that is linear in the features is a shift of the weights."""
    monkeypatch.setattr("mixvi.models._predict.AT_ONCE", 2**14)  # in blocks
    rng, outputs = np.random.default_rng(0), likelihood.n_outputs
    x, model = table(N, 2), models.Model(models.Linear(), likelihood)
    rows, shared = {"x": x}, {"n_columns": 2}
    mean, moved = 0.3 * rng.standard_normal((2, outputs, 3))
    offset = (np.c_[x, np.ones(N)] @ moved.T).squeeze()
    root = 0.2 * rng.standard_normal((3 * outputs, 3 * outputs))
    hyper = model.hyper(shared)
    plain = models.Predictive(model, hyper, shared, mean.ravel(), root)
    shifted = models.Predictive(model, hyper, shared, (mean + moved).ravel(), root)
    y = np.minimum(rng.poisson(1.0, N), 1).astype(float)
    w = plain.coloured(rng.standard_normal((50, 3 * outputs)))
    added = w + (moved if outputs > 1 else moved[0])
    pairs = [
        *zip(plain.predictor(rows, offset), shifted.predictor(rows), strict=True),
        (plain.expectation(rows, offset=offset), shifted.expectation(rows)),
        (plain.pointwise_lpd(rows, y, offset), shifted.pointwise_lpd(rows, y)),
        (plain.sample(rows, 9, 1, offset), shifted.sample(rows, 9, 1)),
        (plain.lpd(rows, y, w, offset).pointwise, shifted.lpd(rows, y, added).pointwise),
    ]
    if isinstance(likelihood, models.RealLikelihood):
        levels = np.array([0.1, 0.8])
        pairs.append((plain.quantiles(rows, levels, offset), shifted.quantiles(rows, levels)))
    for with_offset, expected in pairs:
        np.testing.assert_allclose(with_offset, expected, rtol=1e-8, atol=1e-8)
    with pytest.raises(mixvi.InputError, match="offset has shape"):
        plain.expectation(rows, offset[:-1])


def test_a_rate_is_that_of_the_exposure():
    """Rows seen for twice as long count twice as much."""
    x = table(N, 2)
    model = models.Model(models.Linear(), models.Poisson())
    offset = np.random.default_rng(0).uniform(-1, 2, N)
    density = model.density(x, np.random.default_rng(1).poisson(np.exp(offset)), offset=offset)
    post = mixvi.fit(density, density.init)
    predictive = models.Predictive.of(model, density.shared, post, density.hyper)
    rate = predictive.expectation(density.rows)
    np.testing.assert_allclose(
        predictive.expectation(density.rows, offset), np.exp(offset) * rate, rtol=1e-9
    )
    mean, variance = density.predictors(post.flat_mean, post.root)
    found = predictive.predictor(density.rows, offset)
    np.testing.assert_allclose(found, (mean, np.sqrt(variance)), rtol=1e-9)


@pytest.mark.parametrize("name", LIKELY)
def test_forms_of_the_prior_precision_agree(name):
    x = table(N, 2)
    y = targets(name, x)
    model = models.Model(models.Linear(), LIKELY[name])
    forms = [2.5, np.full(3, 2.5), 2.5 * np.eye(3), scipy.sparse.csr_matrix(2.5 * np.eye(3))]
    found = [posterior(model.density(x, y, prior_precision=form)) for form in forms]
    for post in found[1:]:
        np.testing.assert_allclose(post.cov, found[0].cov, atol=1e-9)
        assert post.log_evidence == pytest.approx(found[0].log_evidence, abs=1e-8)
    # One with correlations, dense and sparse; `alpha` takes the place of a number.
    matrix = np.array([[2.0, 0.7, 0.0], [0.7, 1.0, 0.2], [0.0, 0.2, 3.0]])
    sparse = scipy.sparse.csc_array(matrix)
    dense, other = (posterior(model.density(x, y, prior_precision=p)) for p in (matrix, sparse))
    np.testing.assert_allclose(dense.flat_mean, other.flat_mean, atol=1e-9)
    assert dense.log_evidence == pytest.approx(other.log_evidence, abs=1e-8)
    twice = model.density(x, y, prior_precision=matrix, hyper={"log_alpha": np.log(2.0)})
    once = model.density(x, y, prior_precision=2 * matrix)
    point = np.random.default_rng(0).standard_normal(once.dim)
    weak = -0.5 * (np.log(2.0) / 3) ** 2
    assert twice(point) - weak == pytest.approx(once(point), rel=1e-12)


def posterior(density):
    return mixvi.fit(density, density.init, family="full", diagnostics=False)


def test_the_prior_is_normal_with_that_precision():
    """Of no data but a row at zero weight the density is the prior."""
    from scipy import stats

    matrix = np.array([[2.0, 0.7, 0.0], [0.7, 1.0, 0.2], [0.0, 0.2, 3.0]])
    model = models.Model(models.Linear(), models.Bernoulli(), weak_prior=False)
    density = model.density(table(2, 2), np.zeros(2), weight=np.zeros(2), prior_precision=matrix)
    point = np.array([0.3, -1.0, 0.4])
    exact = stats.multivariate_normal(np.zeros(3), np.linalg.inv(matrix)).logpdf(point)
    assert density(point) == pytest.approx(exact, rel=1e-12)


WRONG = {
    "negative": -1.0,
    "not symmetric": np.array([[1.0, 0.5, 0], [0, 1, 0], [0, 0, 1]]),
    "not definite": np.array([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]]),
    "not finite": np.diag([1.0, np.nan, 1]),
    "sparse, singular": scipy.sparse.diags([1.0, 0.0, 1.0]).tocsc(),
    "sparse, not definite": scipy.sparse.csc_matrix([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]]),
    "sparse, not symmetric": scipy.sparse.csc_matrix([[1.0, 0.5, 0], [0, 1, 0], [0, 0, 1]]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_precision_that_is_none(name):
    model = models.Model(models.Linear(), models.Bernoulli())
    with pytest.raises(mixvi.InputError, match=r"symmetric and positive \(definite\)"):
        model.density(table(N, 2), targets("bernoulli", table(N, 2)), prior_precision=WRONG[name])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"prior_precision": np.ones(5)}, "a vector of length 3"),
        ({"prior_precision": scipy.sparse.eye(4)}, r"has shape \(4, 4\)"),
        ({"offset": np.zeros(3)}, r"offset has shape \(3,\); it must be \(24,\)"),
        ({"weight": -np.ones(N)}, "not negative"),
        ({"weight": np.ones(3)}, "weight must be 24"),
        ({"hyper": {"log_wdith": 0.0}}, "holds log_wdith, .* it has log_alpha"),
        ({"y": np.full(N, 2.0)}, "must be 0 or 1"),
        ({"y": np.zeros(3)}, r"got \(24, 2\) and \(3,\)"),
        ({"x": np.full((N, 2), np.nan)}, "finite"),
    ],
)
def test_sentences(given, says):
    x = table(N, 2)
    all_of_it = {"x": x, "y": targets("bernoulli", x)} | given
    with pytest.raises(mixvi.InputError, match=says):
        models.Model(models.Linear(), models.Bernoulli()).density(**all_of_it)


def test_other_sentences():
    x = table(N, 2)
    with pytest.raises(mixvi.InputError, match=r"must be 0, \.\.\., 2"):
        models.Model(models.Linear(), models.Softmax(3)).density(x, np.full(N, 3.0))
    with pytest.raises(mixvi.InputError, match="kernel must be one of rbf"):
        models.GaussianProcess("linear").fit_shared(x, 0)
    density = models.Model(models.RBF(5), models.Gaussian()).density(x, x[:, 0])
    post = mixvi.laplace(density, density.init)
    model = models.Model(density.basis, density.likelihood)
    with pytest.raises(mixvi.InputError, match="learnt no log_alpha, log_sigma, log_width: pass"):
        models.Predictive.of(model, density.shared, post)
    held = models.Predictive.of(model, density.shared, post, density.hyper)
    assert np.isfinite(held.expectation(density.rows)).all()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_start_has_a_mode(name):
    likelihood, y = LIKELIHOODS[name]
    density = models.Model(models.RBF(4), likelihood).density(table(len(y)), y)
    post = mixvi.fit(density, density.init, hyper=density.hyper, diagnostics=False)
    assert post.converged
    assert set(post.hyper) == set(density.hyper)
