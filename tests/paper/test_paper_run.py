"""The paper's runner against closed forms, the estimators, and itself."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import stats

from mixvi.estimators import MVIClassifier
from mixvi.models import RBF, Gaussian, Model, Predictive
from mixvi.paper import _evaluate, _problems, _run
from mixvi.paper._protocol import BEST, PAPER, LowRankFromNoise, Settings
from mixvi.paper._task import Task


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
        parts.append(_problems._Scaled(x, y, x_test, y_test, 0.0, 1.0, x_test[:1]))
    return _problems.problems(parts, 2, protocol, Settings(protocol), (0, 1), size, padded_to)


# --- scores -----------------------------------------------------------------------------------


def gaussian_problem():
    """Two Gaussian posteriors over three weights and four test points, noise sd 0.5."""
    rng = np.random.default_rng(1)
    model = Model(RBF(2), Gaussian())
    shared = {"mask": np.ones((2, 2)), "usual_log_width": np.zeros(2)}
    test = {"square": rng.uniform(0, 4, (2, 4, 2))}
    made = _problems.Problems(
        model, np.zeros(3), None, [], shared, test, rng.standard_normal((2, 4)),
        np.zeros(2), np.array([1.0, 3.0]), None,
    )  # fmt: skip
    hyper = {name: np.zeros(2) for name in ("log_alpha", "log_width")}
    hyper["log_sigma"] = np.full(2, math.log(0.5))
    root = 0.3 * rng.standard_normal((2, 3, 3))
    return made, _evaluate.Gaussians(hyper, rng.standard_normal((2, 3)), root)


def test_scores_of_a_gaussian_model_in_closed_form():
    """Joint and pointwise LPD are normal densities, and so is the loss of a draw."""
    made, fitted = gaussian_problem()
    n_draws = 200_000
    found = _evaluate.scores(made, fitted, np.array([4, 9]), (1000, n_draws), 0)
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
    few = _evaluate.scores(made, fitted, np.array([0, 1]), (1000,), 0)
    many = _evaluate.scores(made, fitted, np.array([0, 1]), (1000, 5000), 0)
    np.testing.assert_allclose(few.lpd[:, 0], many.lpd[:, 0], rtol=1e-12)
    other = _evaluate.scores(made, fitted, np.array([1, 0]), (1000,), 0)
    assert (other.lpd != few.lpd).all()  # each split has draws of its own


def test_diagonal_roots_score_like_their_matrices():
    made, fitted = gaussian_problem()
    diagonal = np.abs(fitted.root[:, 0])
    dense = np.stack([np.diag(one) for one in diagonal])
    a, b = (
        _evaluate.scores(made, dataclasses.replace(fitted, root=root), np.array([0, 1]), (1000,), 0)
        for root in (diagonal, dense)
    )
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10)


# --- problems and screening -------------------------------------------------------------------


@pytest.fixture(scope="module")
def block():
    made = two_splits(BEST)
    task = Task("binary", "made", (0, 1), ("eig",), Settings(BEST), "run", trend=False)
    starts = _run.screened(made)
    return _run.shared_part(task, (0, 1), made, starts), starts.evidence


def test_filled_up_rows_and_columns_change_no_evidence(block):
    """60 rows stand among 200, and 8 basis functions among 11."""
    wider = two_splits(BEST, padded_to=11)
    assert wider.data["rows"]["square"].shape == (2, 200, 11)
    np.testing.assert_allclose(_run.screened(wider).evidence, block[1], atol=1e-6)


def test_protocol_best_is_the_estimators_default(block):
    """The batch and `MVIClassifier` find the same bound and the same predictions."""
    block, _ = block
    posts = _run._fitted(block, "eig")
    for k in range(2):
        (x, y), (x_test, y_test) = table(60, seed=k), table(40, seed=k + 10)
        model = MVIClassifier("eig", n_basis=8, diagnostics=False).fit(x, y)
        assert posts[k].elbo_fixed == pytest.approx(model.posterior_.elbo_fixed, abs=1e-4)
        single = model.log_predictive_density(x_test, y_test, pointwise=True).sum()
        judged = _run._judged(block, posts)
        assert judged is not None
        assert judged.scores.pointwise[k] == pytest.approx(single, abs=0.02)
        wrong = 100 * (model.predict(x_test) != y_test).mean()
        assert judged.scores.error[k] == pytest.approx(wrong, abs=2.6)  # one draw-noisy label
        elbo = judged.diagnoses[k].diagnosis.elbo
        assert abs(elbo.value - posts[k].elbo_fixed) < 5 * elbo.se + 1e-6


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

    def problems(splits, n_classes, protocol, settings, indices, size, padded_to=0):
        asked.append((tuple(indices), size, padded_to))
        return made[size]

    monkeypatch.setattr(_run, "scaled", lambda *_: ([], 2))
    monkeypatch.setattr(_run, "problems", problems)
    task = Task("binary", "made", (7,), ("mu",), Settings(small), "run")
    jobs = []
    size = _run.chosen_size(task, lambda kind, new: jobs.extend(new))
    sums = {one: _run.screened(made[one]).evidence.sum() for one in small.sizes}
    assert size == max(sums, key=lambda one: sums[one])
    assert asked == [(tuple(range(20)), 2, 6), (tuple(range(20)), 6, 6)]
    assert [job["size"] for job in jobs] == [size]
    # A later session takes it from there.
    known = dataclasses.replace(task, size=4)
    assert _run.chosen_size(known, lambda *_: None) == 4
    assert len(asked) == 2


def rows_of(block, method):
    rows = []
    attempts = {
        start: _run._attempt(block, family)
        for start, family in block.task.settings.families(method).items()
    }
    _run._hand_on(block, method, attempts, lambda kind, new: kind == "rows" and rows.extend(new))
    return rows


def test_a_problem_that_fails_is_a_row_with_a_reason(block):
    block, _ = block
    data = jax.tree.map(np.copy, block.problems.data)
    data["rows"]["square"][1] = np.nan
    broken = block._replace(problems=dataclasses.replace(block.problems, data=data))
    rows = rows_of(broken, "eig")
    assert [bool(row["failed"]) for row in rows] == [False, True]
    assert "not finite" in rows[1]["failed"].lower() or "nan" in rows[1]["failed"].lower()
    assert math.isfinite(rows[0]["lpd"])


def test_rows_do_not_depend_on_which_start_ends_first(block):
    block, _ = block
    families = block.task.settings.families("diag")
    attempts = {start: _run._attempt(block, family) for start, family in families.items()}
    # The same posteriors from both: a tie goes to the first of the protocol, whichever came first.
    tie = {start: attempts["laplace"] for start in reversed(attempts)}
    found = []
    _run._hand_on(block, "diag", tie, lambda kind, new: kind == "rows" and found.extend(new))
    assert [row["diag"]["start"] for row in found] == ["laplace", "laplace"]


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
    fitted = _evaluate.Gaussians.of(posts)
    found = _evaluate.scores(block.problems, fitted, np.array([0, 1]), (100_000,), 0)
    for k in range(2):
        shared = jax.tree.map(lambda leaf: leaf[k], block.problems.shared)  # noqa: B023
        rows = jax.tree.map(lambda leaf: leaf[k], block.problems.test)  # noqa: B023
        exact = Predictive.of(block.problems.model, shared, posts[k])
        lpd = exact.pointwise_lpd(rows, block.problems.y_test[k]).sum()
        assert found.pointwise[k] == pytest.approx(lpd, abs=0.01)
