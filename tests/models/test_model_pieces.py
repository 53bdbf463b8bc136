"""Models over data in pieces: the closed forms of all rows at once, to rounding."""

import numpy as np
import pytest

import mixvi
from mixvi import models
from mixvi._density._protocol import Points

DOUBLE = np.dtype(np.float64)
RNG = np.random.default_rng(0)
N = 1003
X = RNG.standard_normal((N, 3))
ETA = X @ [0.8, -0.4, 0.1]
WEIGHT, OFFSET = RNG.integers(0, 3, N).astype(float), 0.2 * RNG.standard_normal(N)
BINARY = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(np.int64)
TARGETS = {
    "bernoulli": (models.Bernoulli(), BINARY),
    "poisson": (models.Poisson(), RNG.poisson(np.exp(ETA))),
    "student": (models.StudentT(), ETA + 0.3 * RNG.standard_t(3, N)),
    "softmax": (models.Softmax(3), (ETA > -0.5).astype(int) + (ETA > 0.5)),
}
BASES = {
    "linear": models.Linear(),
    "rbf": models.RBF(5),
    "features": models.Features(lambda x: np.c_[x, x[:, :1] ** 2]),
}


def both(likelihood, y, basis=BASES["linear"], weighted=False, rows=128):
    """Of pieces, and in memory."""
    model = models.Model(basis, likelihood)
    data = {"y": y, "c": X[:, :1], "a": X[:, 1], "b": X[:, 2]}
    names, options = {}, {}
    if weighted:
        data |= {"w": WEIGHT, "o": OFFSET}
        names, options = {"weight": "w", "offset": "o"}, {"weight": WEIGHT, "offset": OFFSET}
    pieces = mixvi.Pieces.arrays(data, rows=rows)
    return model.density(pieces, "y", **names), model.density(X, y, **options)


def close(one, other):
    for a, b in zip(one, other, strict=True):
        scale = 1.0 + np.abs(b).max(initial=0.0)
        np.testing.assert_allclose(np.asarray(a) / scale, np.asarray(b) / scale, atol=1e-11, rtol=0)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("name", TARGETS)
def test_every_question_is_a_sum(name, basis):
    one, other = both(*TARGETS[name], BASES[basis], weighted=name != "softmax")
    theta = other.theta + 0.1
    one, other = one.at(theta), other.at(theta)
    rng = np.random.default_rng(1)
    points, vector = 0.5 * rng.standard_normal((5, other.dim)), rng.standard_normal(other.dim)
    root = 0.3 * np.tril(rng.standard_normal((other.dim, other.dim)))
    close([one.values(points)], [other.values(points)])
    close(one.gradients(points), other.gradients(points))
    close(one.joint_gradients(points), other.joint_gradients(points))
    close(one.curvature(points[0]), other.curvature(points[0]))
    close(one.product(points[0], vector), other.product(points[0], vector))
    close(one.evidence_slopes(points[0], root), other.evidence_slopes(points[0], root))
    draws = Points(rng.standard_normal((60, other.dim)), False)
    close(one.expect(points[0], root, draws), other.expect(points[0], root, draws))
    diagonal = np.abs(np.diag(root))
    close(one.expect(points[0], diagonal, draws), other.expect(points[0], diagonal, draws))
    if name != "softmax":  # whose rows take the sets of nodes in another order
        nodes = mixvi.Quadrature(32).make(DOUBLE, 1)
        for root_like in (root, diagonal):
            close(
                one.expect(points[0], root_like, nodes), other.expect(points[0], root_like, nodes)
            )
        close(
            [one.expected_by_row(points[0], root, nodes)],
            [other.expected_by_row(points[0], root, nodes)],
        )
    close([one.approached(points[0])], [other.approached(points[0])])


@pytest.mark.parametrize("family", ["auto", "full"])
@pytest.mark.parametrize("name", ["bernoulli", "student"])
def test_fits_agree(name, family):
    posts = []
    for density in both(*TARGETS[name]):
        posts.append(mixvi.fit(density, density.init, family=family))
    np.testing.assert_allclose(posts[0].flat_mean, posts[1].flat_mean, atol=1e-10)
    np.testing.assert_allclose(posts[0].cov, posts[1].cov, atol=1e-12)
    assert posts[0].status == posts[1].status


def test_hyperparameters_are_learnt_alike():
    posts = []
    y = np.exp(-0.3 * (X**2).sum(1)) + 0.1 * RNG.standard_t(3, N)
    for density in both(models.StudentT(), y, BASES["rbf"]):
        posts.append(mixvi.laplace(density, density.init, hyper=density.hyper))
    assert posts[0].log_evidence == pytest.approx(posts[1].log_evidence, abs=1e-6)
    for name, value in posts[1].hyper.items():
        assert posts[0].hyper[name] == pytest.approx(value, abs=1e-4)


def test_several_predictors_agree_to_their_quadrature():
    posts = []
    for density in both(*TARGETS["softmax"]):
        posts.append(mixvi.fit(density, density.init, family="full"))
    sd = np.sqrt(np.diag(posts[1].cov))
    assert np.abs((posts[0].flat_mean - posts[1].flat_mean) / sd).max() < 1e-2
    assert posts[0].elbo.value == pytest.approx(posts[1].elbo.value, abs=2e-2)


def test_columns_are_in_the_order_of_the_data_and_predictions_follow():
    density, other = both(*TARGETS["bernoulli"])
    assert density.columns == ("c[0]", "a", "b")
    model = models.Model(models.Linear(), models.Bernoulli())
    predicted = []
    for one in (density, other):
        post = mixvi.laplace(one, one.init)
        predictive = models.Predictive.of(model, one.shared, post, one.hyper)
        predicted.append(predictive.expectation(model.basis.rows(X[:5], one.shared)))
    np.testing.assert_allclose(predicted[0], predicted[1], atol=1e-10)


def test_a_tuple_of_arrays_has_numbers_for_names():
    model = models.Model(models.Linear(), models.Bernoulli())
    density = model.density(mixvi.Pieces.arrays((X, BINARY), rows=256), 1)
    other = model.density(X, BINARY)
    assert density.columns == ("0[0]", "0[1]", "0[2]")
    close([density.values(np.ones((1, 4)))], [other.values(np.ones((1, 4)))])


def test_centres_are_those_of_a_table_in_memory(monkeypatch):
    from mixvi.models import _basis, _pieces

    for module in (_basis, _pieces):
        monkeypatch.setattr(module, "LEAST_ROWS", 100)
        monkeypatch.setattr(module, "ROWS_PER_CENTRE", 10)
    one, other = both(*TARGETS["bernoulli"], BASES["rbf"])
    np.testing.assert_array_equal(one.shared["centres"], other.shared["centres"])


def test_nothing_is_compiled():
    import jax

    seen = []

    def hear(event, duration, **_):
        seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        density, _ = both(*TARGETS["poisson"])
        mixvi.fit(density, density.init)
    finally:
        jax.monitoring.unregister_event_duration_listener(hear)
    assert not [event for event in seen if "backend_compile" in event]


def refused(make, *words):
    with pytest.raises(mixvi.InputError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_what_cannot_be():
    model = models.Model(models.Linear(), models.Bernoulli())

    def density(data, y="y", model=model, **names):
        return lambda: model.density(mixvi.Pieces.arrays(data, rows=128), y, **names)

    data = {"x": X, "y": BINARY}
    refused(density(data, "z"), "y='z'", "'x', 'y'")
    refused(density(data, BINARY), "y=ndarray", "one of the names")
    refused(density(data, weight="w"), "weight='w'")
    refused(density({"y": BINARY}), "some must be left for the table")
    refused(density(data, weight="y"), "each once")
    refused(density(X), "rows by name")
    wrong = BINARY.copy()
    wrong[700] = 2
    refused(density(data | {"y": wrong}), "targets must be 0 or 1", "rows 640 to 767")
    endless = X.copy()
    endless[200, 1] = np.inf
    refused(density(data | {"x": endless}), "data.x is infinite in rows 128 to 255")
    refused(density(data | {"w": WEIGHT - 1}, weight="w"), "not negative", "rows 0 to 127")
    refused(density(data | {"y": X}), "one number for every row")
    process = models.Model(models.GaussianProcess(), models.Bernoulli())
    refused(density(data, model=process), "depend on all rows")
    refused(density(data, hyper={"log_beta": 0.0}), "log_beta")
