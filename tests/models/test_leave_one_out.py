"""Leave-one-out by cavities, against fits without the row (hyperparameters held)."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

import mixvi
from mixvi import models
from mixvi._approximate._evidence import tuned_laplace
from mixvi._approximate._laplace import laplace
from mixvi.models._loo import LeaveOneOut, equal_rows

N = 60
SETS = {
    "bernoulli": (load_breast_cancer, models.Bernoulli()),
    "student_t": (load_diabetes, models.StudentT()),
    "gaussian": (load_diabetes, models.Gaussian()),
    "softmax": (load_iris, models.Softmax(3)),
}


def tuned(name, basis=None):
    """A density at the best hyperparameters, and Laplace there."""
    load, likelihood = SETS[name]
    x, y = load(return_X_y=True)
    taken = np.random.default_rng(0).permutation(len(y))[:N]
    x, y = x[taken], y[taken].astype(float)
    x = (x - x.mean(0)) / x.std(0)
    if not likelihood.discrete:
        y = (y - y.mean()) / y.std()
    model = models.Model(basis or models.RBF(12), likelihood)
    density = model.density(x, y)
    found, at = tuned_laplace(density, density.init.ravel(), density.theta, "raise", 100)
    density = density.at(at.theta)
    return model, density, laplace(density, found.mode)  # to the last digit


def without(model, density, n, mean, root):
    """Log predictive density of row `n` under a Gaussian of the others."""
    predictive = models.Predictive(model, density.hyper, density.shared, mean, root)
    row = {name: part[n : n + 1] for name, part in density.rows.items()}
    return predictive.pointwise_lpd(row, density.y[n : n + 1])[0]


def left_out(density, n):
    weight = np.ones(density.n_rows)
    weight[n] = 0
    model = models.Model(density.basis, density.likelihood)
    return model.density_of(density.rows, density.shared, density.y, weight, density.hyper)


@pytest.mark.parametrize("name", SETS)
def test_laplace_against_fits_without_each_row(name):
    model, density, found = tuned(name)
    loo = models.leave_one_out(density, found.mode, found.root, at_mode=True)
    brute = []
    for n in range(N):
        again = laplace(left_out(density, n), found.mode)
        brute.append(without(model, density, n, again.mode, again.root))
    brute = np.array(brute)
    within = np.array([without(model, density, n, found.mode, found.root) for n in range(N)])
    if name == "gaussian":  # exact
        np.testing.assert_allclose(loo.pointwise, brute, atol=1e-6)
        return
    assert loo.total == pytest.approx(brute.sum(), abs=0.3)
    assert np.abs(loo.pointwise - brute).max() < 0.2
    # The difference that matters: rows that were seen are predicted far better.
    assert within.sum() - brute.sum() > 5 * abs(loo.total - brute.sum())


@pytest.mark.parametrize("name", ["bernoulli", "student_t", "softmax"])
def test_a_variational_gaussian_against_fits_without_some_rows(name):
    model, density, _ = tuned(name)
    post = mixvi.fit(density, density.init, family="full", diagnostics=False)
    loo = models.leave_one_out(density, post.flat_mean, post.root, at_mode=False)
    rows = range(0, N, 8)
    brute = []
    for n in rows:
        left = left_out(density, n)
        again = mixvi.fit(left, left.init, family="full", diagnostics=False)
        brute.append(without(model, density, n, again.flat_mean, again.root))
    assert loo.pointwise[list(rows)].sum() == pytest.approx(sum(brute), abs=0.2)
    within = sum(without(model, density, n, post.flat_mean, post.root) for n in rows)
    assert abs(loo.pointwise[list(rows)].sum() - sum(brute)) < 0.4 * abs(within - sum(brute))


def test_of_a_gaussian_process_too():
    model, density, found = tuned("gaussian", models.GaussianProcess("matern32"))
    loo = models.leave_one_out(density, found.mode, found.root, at_mode=True)
    # In closed form: with C = K + s^2 I, sd^2 = 1 / C^-1_nn and mean = y_n - (C^-1 y)_n sd^2.
    phi = model.basis.design(density.rows, density.shared, density.hyper)
    inverse = np.linalg.inv(phi @ phi.T + np.exp(2 * density.hyper["log_sigma"]) * np.eye(N))
    variance = 1 / inverse.diagonal()
    away = variance * (inverse @ density.y)
    exact = -0.5 * (away**2 / variance + np.log(2 * np.pi * variance))
    np.testing.assert_allclose(loo.pointwise, exact, atol=1e-6)
    np.testing.assert_allclose(loo.predicted, density.y - away, atol=1e-6)


@pytest.mark.parametrize("name", ["bernoulli", "gaussian", "softmax"])
def test_with_inducing_points_what_these_leave_over_counts(name):
    """As in predictions: against fits without the row."""
    model, density, found = tuned(name, models.GaussianProcess("matern12", 8))
    assert density.leftover().max() > 0.1
    loo = models.leave_one_out(density, found.mode, found.root, at_mode=True)
    rows = range(0, N, 6)
    brute = []
    for n in rows:
        again = laplace(left_out(density, n), found.mode)
        brute.append(without(model, density, n, again.mode, again.root))
    tol = 1e-6 if name == "gaussian" else 0.05
    np.testing.assert_allclose(loo.pointwise[list(rows)], brute, atol=tol)


@pytest.mark.parametrize("name", ["bernoulli", "gaussian", "softmax"])
def test_equal_rows_leave_together(name):
    model, density, _ = tuned(name)
    order = np.r_[np.arange(N), 3, 3]
    rows = {key: part[order] for key, part in density.rows.items()}
    twice = model.density_of(
        rows, density.shared, density.y[order], np.ones(len(order)), density.hyper
    )
    found = laplace(twice, density.init.ravel())
    x = np.random.default_rng(0).standard_normal((N, 2))[order]
    same = equal_rows(x, density.y[order])
    loo = models.leave_one_out(twice, found.mode, found.root, True, same)
    np.testing.assert_allclose(loo.pointwise[[N, N + 1]], loo.pointwise[3], rtol=1e-10)
    alone = models.leave_one_out(twice, found.mode, found.root, True)
    left = laplace(left_out(density, 3), found.mode)
    exact = without(model, density, 3, left.mode, left.root)
    assert abs(loo.pointwise[3] - exact) < abs(alone.pointwise[3] - exact)
    assert loo.pointwise[3] == pytest.approx(exact, abs=1e-6 if name == "gaussian" else 0.05)


def test_which_rows_are_equal():
    x = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])
    same = equal_rows(x, np.array([0.0, 1.0, 0.0, 0.0]))
    assert same is not None
    assert same[0] == same[3]
    assert len({same[0], same[1], same[2]}) == 3
    assert equal_rows(x, np.arange(4.0)) is None


def test_totals_and_their_errors():
    rng = np.random.default_rng(0)
    weight = np.array([2.0, 1.0, 3.0])
    values = rng.standard_normal((2, 3))
    one, other = (LeaveOneOut(v, v, v, weight, 0 * v) for v in values)
    repeated = np.repeat(values[0], [2, 1, 3])
    assert one.total == pytest.approx(repeated.sum())
    assert one.mean == pytest.approx(repeated.mean())
    assert one.se == pytest.approx(repeated.std() * np.sqrt(6))
    gain, se = one.gain_over(other)
    assert gain == pytest.approx(one.total - other.total)
    assert se == pytest.approx(np.repeat(values[0] - values[1], [2, 1, 3]).std() * np.sqrt(6))


def test_what_a_row_knows_of_itself():
    """A share near one: the row alone fixes its own predictor. With Gaussian noise what is left
    without it is known exactly all the same."""
    x = np.r_[np.zeros((20, 1)), [[50.0]]]
    y = np.r_[np.random.default_rng(0).standard_normal(20) * 0.1, 1.0]
    model = models.Model(models.Linear(), models.Gaussian())
    density = model.density(x, y)
    density = density.at(density.flat(density.hyper | {"log_alpha": -5.0, "log_sigma": -2.0}))
    found = laplace(density, density.init)
    loo = models.leave_one_out(density, found.mode, found.root, True)
    phi, precision = np.r_[50.0, 1.0], np.exp(4.0)
    share = precision * (phi @ np.linalg.solve(found.precision, phi))
    assert share > 0.9999
    assert loo.share[-1] == pytest.approx(share, rel=1e-9)
    assert loo.share[:-1].max() < 0.1
    again = laplace(left_out(density, 20), found.mode)
    exact = without(model, density, 20, again.mode, again.root)
    assert loo.pointwise[-1] == pytest.approx(exact, abs=1e-6)


# --- rows with much influence -----------------------------------------------------------------


def few_rows(name, seed):
    rng = np.random.default_rng(seed)
    n = {"cauchy": 20, "student_t": 30, "bernoulli": 40, "poisson": 30, "softmax": 24}[name]
    x = rng.uniform(-2, 2, (n, 2 if name in ("bernoulli", "softmax") else 1))
    wave = np.sin(2 * x[:, 0])
    return {
        "cauchy": lambda: (models.Cauchy(), x, wave + 0.1 * rng.standard_cauchy(n)),
        "student_t": lambda: (models.StudentT(), x, wave + 0.1 * rng.standard_t(2, n)),
        "bernoulli": lambda: (models.Bernoulli(), x, (x[:, 0] > 0).astype(float)),  # separable
        "poisson": lambda: (models.Poisson(), x, rng.poisson(np.exp(1 + wave)).astype(float)),
        "softmax": lambda: (models.Softmax(3), x, np.digitize(x[:, 0], [-0.7, 0.7]).astype(float)),
    }[name]()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["cauchy", "student_t", "bernoulli", "poisson", "softmax"])
@pytest.mark.parametrize("at_mode", [True, False])
def test_few_rows_against_fits_without_each_of_them(name, seed, at_mode):
    """Where a cavity would fail: Cauchy noise and twenty rows, labels that can be separated."""
    likelihood, x, y = few_rows(name, seed)
    model = models.Model(models.RBF(12), likelihood)
    density = model.density(x, y)
    found, at = tuned_laplace(density, density.init.ravel(), density.theta, "raise", 100)
    density = density.at(at.theta)

    def gaussian(of, near):
        if at_mode:
            found = laplace(of, near)
            return found.mode, found.root
        post = mixvi.fit(of, near.reshape(of.init.shape), family="full", diagnostics=False)
        return post.flat_mean, post.root

    mean, root = gaussian(density, found.mode)
    loo = models.leave_one_out(density, mean, root, at_mode)
    rows = range(0, len(y), 1 if at_mode else 3)
    brute = [without(model, density, n, *gaussian(left_out(density, n), mean)) for n in rows]
    close = np.abs(loo.pointwise[list(rows)] - brute)
    assert np.median(close) < 0.05
    assert close.max() < 0.35
    assert abs(loo.pointwise[list(rows)].sum() - sum(brute)) < 0.7


def test_equal_rows_with_much_influence_leave_together():
    """Two are one that weighs twice."""
    likelihood, x, y = few_rows("cauchy", 1)
    model = models.Model(models.RBF(12), likelihood)
    weight = np.ones(20)
    once = model.density(x, y)
    found, at = tuned_laplace(once, once.init.ravel(), once.theta, "raise", 100)
    once = once.at(at.theta)
    share = models.leave_one_out(once, *gaussian_of(once, found.mode), True).share
    top = int(share.argmax())
    assert share[top] > 0.9
    weight[top] = 2.0
    heavy = model.density_of(once.rows, once.shared, y, weight, once.hyper)
    order = np.r_[np.arange(20), top]
    rows = {key: part[order] for key, part in once.rows.items()}
    twice = model.density_of(rows, once.shared, y[order], np.ones(21), once.hyper)
    same = equal_rows(x[order], y[order])
    ours = models.leave_one_out(twice, *gaussian_of(twice, found.mode), True, same)
    theirs = models.leave_one_out(heavy, *gaussian_of(heavy, found.mode), True)
    np.testing.assert_allclose(ours.pointwise[:20], theirs.pointwise, atol=1e-5)
    assert ours.pointwise[20] == pytest.approx(ours.pointwise[top])


def gaussian_of(density, near):
    found = laplace(density, near)
    return found.mode, found.root
