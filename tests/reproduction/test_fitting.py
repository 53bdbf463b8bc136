"""The paper's runner against closed forms, the estimators, and itself."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import stats

from mixvi.estimators import MVIClassifier
from mixvi.models import RBF, Gaussian, Model, Predictive
from reproduction import fitting, scores
from reproduction.experiments import BEST, PAPER, Settings, Task
from reproduction.problems import LowRankFromNoise, Problems, Scaled, families, problems


def table(n, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, n_features)) * [1.0, 5.0, 0.1] + [0.0, 3.0, 0.0]
    share = 1 / (1 + np.exp(-3 * np.sin(2 * x[:, 0]) - x[:, 1] + 3))
    return x, (rng.random(n) < share).astype(int)


def two_splits(protocol, size=8, padded_to=0, n=60):
    parts = []
    for seed in range(2):
        (x, y), (x_test, y_test) = table(n, seed=seed), table(40, seed=seed + 10)
        centre, scale = x.mean(0), x.std(0)
        x, x_test = (x - centre) / scale, (x_test - centre) / scale
        parts.append(Scaled(x, y, x_test, y_test))
    return problems(parts, 2, Settings(protocol), (0, 1), size, padded_to)


# --- scores -----------------------------------------------------------------------------------


def gaussian_problem():
    """Two Gaussian posteriors over three weights and four test points, noise sd 0.5."""
    rng = np.random.default_rng(1)
    model = Model(RBF(2), Gaussian())
    shared = {"mask": np.ones((2, 2)), "usual_log_width": np.zeros(2)}
    test = {"square": rng.uniform(0, 4, (2, 4, 2))}
    made = Problems(
        model, np.zeros(3), None, [], shared, test, rng.standard_normal((2, 4)),
        np.zeros(2), np.array([1.0, 3.0]), None,
    )  # fmt: skip
    hyper = {name: np.zeros(2) for name in ("log_alpha", "log_width")}
    hyper["log_sigma"] = np.full(2, math.log(0.5))
    root = 0.3 * rng.standard_normal((2, 3, 3))
    return made, scores.Gaussians(hyper, rng.standard_normal((2, 3)), root)


def test_scores_of_a_gaussian_model_in_closed_form():
    """Joint and pointwise LPD are normal densities, and so is the loss of a draw."""
    made, fitted = gaussian_problem()
    n_draws = 200_000
    found = scores.scores(made, fitted, np.array([4, 9]), (1000, n_draws), 0)
    for k in range(2):
        bumps = np.exp(-0.5 * made.test["square"][k])
        design = np.concatenate([bumps, np.ones((4, 1))], axis=1)
        mean = design @ fitted.mean[k]
        spread = design @ fitted.root[k]
        cov = spread @ spread.T + 0.25 * np.eye(4)
        y, scale = made.y_test[k], made.y_scale[k]
        joint = stats.multivariate_normal.logpdf(y, mean, cov) / 4 - math.log(scale)
        single = stats.norm.logpdf(y, mean, np.sqrt(np.diag(cov))).mean() - math.log(scale)
        assert found.lpd[k, 1] == pytest.approx(joint, abs=0.01)
        assert found.pointwise[k] == pytest.approx(single, abs=0.01)
        square = (mean - y) ** 2
        assert found.error[k] == pytest.approx(square.mean() * scale**2, rel=0.03)
        loss = (square + (spread**2).sum(1)).mean() * scale**2
        assert found.error_draws[k] == pytest.approx(loss, rel=0.03)


def test_the_first_draws_of_many_are_the_same_draws():
    made, fitted = gaussian_problem()
    few = scores.scores(made, fitted, np.array([0, 1]), (1000,), 0)
    many = scores.scores(made, fitted, np.array([0, 1]), (1000, 5000), 0)
    np.testing.assert_allclose(few.lpd[:, 0], many.lpd[:, 0], rtol=1e-12)
    other = scores.scores(made, fitted, np.array([1, 0]), (1000,), 0)
    assert (other.lpd != few.lpd).all()  # each split has draws of its own


def test_diagonal_roots_score_like_their_matrices():
    made, fitted = gaussian_problem()
    diagonal = np.abs(fitted.root[:, 0])
    dense = np.stack([np.diag(one) for one in diagonal])
    a, b = (
        scores.scores(made, dataclasses.replace(fitted, root=root), np.array([0, 1]), (1000,), 0)
        for root in (diagonal, dense)
    )
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10)


# --- problems and screening -------------------------------------------------------------------


@pytest.fixture(scope="module")
def block():
    made = two_splits(BEST)
    task = Task("binary", "made", (0, 1), ("eig",), Settings(BEST), "run", trend=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "scaled", lambda *_: ([], 2))
        patch.setattr(fitting, "problems", lambda *_: made)
        return fitting.prepared(task, (0, 1), lambda *_: None), fitting.screened(made).evidence


def test_filled_up_rows_and_columns_change_no_evidence(block):
    """60 rows stand among 200, and 8 basis functions among 11."""
    wider = two_splits(BEST, padded_to=11)
    assert wider.data["rows"]["square"].shape == (2, 200, 11)
    np.testing.assert_allclose(fitting.screened(wider).evidence, block[1], atol=1e-6)


def test_protocol_best_is_the_estimators_default(block):
    """The batch and `MVIClassifier` find the same bound and the same predictions."""
    block, _ = block
    posts = fitting.fitted(block, "eig")
    rows = fitting.rows_of(block, "eig", posts)
    for k in range(2):
        (x, y), (x_test, y_test) = table(60, seed=k), table(40, seed=k + 10)
        model = MVIClassifier("eig", n_basis=8, diagnostics=False).fit(x, y)
        assert posts[k].elbo_fixed == pytest.approx(model.posterior_.elbo_fixed, abs=1e-4)
        single = model.log_predictive_density(x_test, y_test, pointwise=True).sum()
        assert rows[k]["pointwise"] == pytest.approx(single, abs=0.02)
        wrong = 100 * (model.predict(x_test) != y_test).mean()
        assert rows[k]["error"] == pytest.approx(wrong, abs=2.6)  # one draw-noisy label
        assert abs(rows[k]["gap"]) < 5 * rows[k]["elbo_se"] + 1e-6


def test_the_papers_rank_one_start_is_its_own():
    """In the paper's coordinates the root begins at C + U V^T with entries of sd 0.1."""
    matrix = np.diag([3.0, 0.01, 1.0, 2.0, 5.0]) + 0.001

    def start(seed):
        family, eye = LowRankFromNoise(seed=seed), np.eye(5)
        return family.starts(matrix, eye, eye, matrix)[0]

    phi = start(0)
    change = matrix @ np.outer(phi[:5], phi[5:])
    u, v = np.random.default_rng(0).normal(0.0, 0.1, (2, 5))
    np.testing.assert_allclose(change, np.outer(u, v), atol=1e-12)
    assert (start(1) != phi).all()
    assert LowRankFromNoise().poorer is None


def test_one_number_of_basis_functions_for_a_set(monkeypatch):
    """The size with the highest evidence in sum over the first splits, whatever is asked for."""
    small = dataclasses.replace(PAPER, sizes=(2, 6), n_starts=2)
    made = {size: two_splits(small, size, 6) for size in small.sizes}
    asked = []

    def problems(splits, n_classes, settings, indices, size, padded_to=0):
        asked.append((tuple(indices), size, padded_to))
        return made[size]

    monkeypatch.setattr(fitting, "scaled", lambda *_: ([], 2))
    monkeypatch.setattr(fitting, "problems", problems)
    task = Task("binary", "made", (7,), ("mu",), Settings(small), "run")
    jobs = []
    size = fitting.chosen_size(task, lambda kind, new: jobs.extend(new))
    sums = {one: fitting.screened(made[one]).evidence.sum() for one in small.sizes}
    assert size == max(sums, key=lambda one: sums[one])
    assert asked == [(tuple(range(20)), 2, 6), (tuple(range(20)), 6, 6)]
    assert [job["size"] for job in jobs] == [size]


def rows_of(block, method):
    rows = []
    fitting._run_method(block, method, lambda kind, new: kind == "rows" and rows.extend(new))
    return rows


def test_a_size_that_was_chosen_is_not_chosen_again(monkeypatch):
    def refuse(*_):
        raise AssertionError("asked again")

    def prepared(task, splits, emit):
        assert task.size == 4
        raise ValueError("far enough")

    monkeypatch.setattr(fitting, "chosen_size", refuse)
    monkeypatch.setattr(fitting, "prepared", prepared)
    task = Task("binary", "made", (7,), ("mu",), Settings(PAPER), "run", size=4)
    rows = []
    fitting.run_task(task, set(), lambda kind, new: rows.extend(new))
    assert [row["failed"] for row in rows] == ["ValueError: far enough"]


def test_a_problem_that_fails_is_a_row_with_a_reason(block):
    block, _ = block
    data = jax.tree.map(np.copy, block.problems.data)
    data["rows"]["square"][1] = np.nan
    broken = block._replace(problems=dataclasses.replace(block.problems, data=data))
    rows = rows_of(broken, "eig")
    assert [bool(row["failed"]) for row in rows] == [False, True]
    assert "not finite" in rows[1]["failed"].lower() or "nan" in rows[1]["failed"].lower()
    assert math.isfinite(rows[0]["lpd"])


def test_a_tie_goes_to_the_first_start():
    row = {"failed": None, "elbo_fixed": -1.0, "lpd": -2.0, "error": 3.0}
    tried = {"laplace": row, "small": dict(row)}
    assert list(families(Settings(BEST), "diag")) == list(tried)
    assert fitting.better(tried, "diag")["diag"]["start"] == "laplace"


def test_the_start_with_the_higher_bound_counts():
    """What the better test score would give stands beside it."""
    poor = {"failed": None, "elbo_fixed": -9.0, "lpd": -2.0, "error": 3.0}
    good = {"failed": None, "elbo_fixed": -1.0, "lpd": -5.0, "error": 7.0}
    row = fitting.better({"laplace": poor, "small": good}, "diag")
    assert row["lpd"] == -5.0
    assert row["diag"] == {"start": "small", "lpd_best_test": -2.0, "error_best_test": 3.0}
    broken = {"failed": "no mode"}
    assert fitting.better({"laplace": broken, "small": good}, "mu")["lpd"] == -5.0


def test_mean_field_reports_both_rules(block):
    block, _ = block
    for row in rows_of(block, "diag"):
        assert row["diag"]["start"] in ("laplace", "small")
        assert row["diag"]["lpd_best_test"] >= row["lpd"]
        if row["diag"]["lpd_best_test"] == row["lpd"]:  # both numbers come from one start
            assert row["diag"]["error_best_test"] == row["error"]


def test_predictive_agrees_with_the_batch(block):
    block, _ = block
    posts = block.laplace
    fitted = scores.Gaussians.of(posts)
    found = scores.scores(block.problems, fitted, np.array([0, 1]), (100_000,), 0)
    for k in range(2):
        shared = jax.tree.map(lambda leaf: leaf[k], block.problems.shared)  # noqa: B023
        rows = jax.tree.map(lambda leaf: leaf[k], block.problems.test)  # noqa: B023
        exact = Predictive.of(block.problems.model, shared, posts[k])
        lpd = exact.pointwise_lpd(rows, block.problems.y_test[k]).sum()
        assert found.pointwise[k] == pytest.approx(lpd, abs=0.01)
