"""The paper's runner against closed forms, the estimators, and itself."""

import dataclasses
import math

import numpy as np
import pytest

from mixvi.estimators import MVIClassifier
from mixvi.models import Bernoulli, StudentT
from reproduction import fitting
from reproduction.experiments import BEST, PAPER, Settings, Task
from reproduction.problems import LowRankFromNoise, Split, families

SIZE = 8


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3)) * [1.0, 5.0, 0.1] + [0.0, 3.0, 0.0]
    share = 1 / (1 + np.exp(-3 * np.sin(2 * x[:, 0]) - x[:, 1] + 3))
    return x, (rng.random(n) < share).astype(float)


def made_split(experiment, name, index, settings):
    """Sixty rows of two classes, or twenty numbers."""
    del name, settings
    (x, y), (x_test, y_test) = table(60, seed=index), table(40, seed=index + 10)
    centre, scale = x.mean(0), x.std(0)
    x, x_test = (x - centre) / scale, (x_test - centre) / scale
    if experiment == "robust_gp":
        return Split(x[:20], x[:20, 0] + y[:20], x_test, x_test[:, 0] + y_test, StudentT(4.0))
    return Split(x, y, x_test, y_test, Bernoulli())


def task_of(methods, protocol=BEST, experiment="binary", splits=(0,), **others):
    settings = Settings(protocol, n_predict=1000, **others)
    return Task(experiment, "made", splits, methods, settings, "run", trend=False)


def made(task, monkeypatch=None):
    """Its rows by split and method."""
    rows = []
    with pytest.MonkeyPatch.context() as patch:
        if monkeypatch is None:
            patch.setattr(fitting, "split_of", made_split)
        fitting.run_task(task, set(), lambda kind, new: kind == "rows" and rows.extend(new))
    return {(row["split"], row["method"]): row for row in rows}


@pytest.fixture(scope="module")
def best():
    return made(task_of(("laplace", "eig", "diag"), n_basis=SIZE, splits=(0, 1)))


# --- fits -------------------------------------------------------------------------------------


def test_protocol_best_is_the_estimators_default(best):
    """The runner and `MVIClassifier` find the same bound and the same predictions."""
    for k in range(2):
        (x, y), (x_test, y_test) = table(60, seed=k), table(40, seed=k + 10)
        model = MVIClassifier("eig", n_basis=SIZE, diagnostics=False).fit(x, y)
        row = best[k, "eig"]
        assert row["elbo_fixed"] == pytest.approx(model.posterior_.elbo_fixed, abs=0.02)
        single = model.log_predictive_density(x_test, y_test, pointwise=True).sum()
        assert row["pointwise"] == pytest.approx(single, abs=0.05)
        wrong = 100 * (model.predict(x_test) != y_test).mean()
        assert row["error"] == pytest.approx(wrong, abs=2.6)  # a label at the border
        assert abs(row["gap"]) < 5 * row["elbo_se"] + 1e-6
        assert row["n_basis"] == SIZE


def test_a_mean_field_keeps_laplaces_hyperparameters_in_protocol_best(best):
    for k in range(2):
        assert best[k, "diag"]["hyper"] == best[k, "laplace"]["hyper"]
        assert best[k, "eig"]["hyper"] != best[k, "laplace"]["hyper"]


def test_a_mean_field_learns_its_own_in_protocol_paper():
    few = dataclasses.replace(PAPER, n_starts=2, iid_draws=100, diag_starts=("laplace",))
    rows = made(task_of(("laplace", "diag"), few, n_basis=SIZE))
    assert rows[0, "diag"]["hyper"] != rows[0, "laplace"]["hyper"]
    held = dataclasses.replace(few, hold_mean_field=True)
    bound = made(task_of(("diag",), held, n_basis=SIZE))[0, "diag"]["elbo_fixed"]
    assert rows[0, "diag"]["elbo_fixed"] > bound


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


def test_robust_gaussian_processes_have_a_weight_for_every_row():
    rows = made(task_of(("laplace", "mu"), experiment="robust_gp"))
    assert [row["failed"] for row in rows.values()] == [None, None]
    for row in rows.values():
        assert row["n_basis"] == row["n_train"] == 20
        assert row["lpd"] > -3  # per test point
        assert row["error_draws"] > row["error"] > 0
    assert rows[0, "mu"]["elbo"] > rows[0, "laplace"]["elbo"] - 0.1


# --- failures and starts ----------------------------------------------------------------------


def test_a_split_that_fails_is_rows_with_a_reason(monkeypatch):
    """A mistake stops neither the next split nor the run."""

    def broken(experiment, name, index, settings):
        split = made_split(experiment, name, index, settings)
        return dataclasses.replace(split, x=split.x * np.nan) if index == 0 else split

    monkeypatch.setattr(fitting, "split_of", broken)
    rows = made(task_of(("laplace", "mu"), n_basis=4, splits=(0, 1)), monkeypatch)
    assert [bool(row["failed"]) for row in rows.values()] == [True, True, False, False]
    assert math.isfinite(rows[1, "mu"]["lpd"])


def test_what_is_done_is_not_done_again(monkeypatch):
    monkeypatch.setattr(fitting, "split_of", made_split)
    task, rows = task_of(("laplace", "mu"), n_basis=4), []
    done = {task.key(0, "laplace")}
    fitting.run_task(task, done, lambda kind, new: kind == "rows" and rows.extend(new))
    assert [row["method"] for row in rows] == ["mu"]


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


def test_mean_field_reports_both_rules(best):
    for k in range(2):
        row = best[k, "diag"]
        assert row["diag"]["start"] in ("laplace", "small")
        assert row["diag"]["lpd_best_test"] >= row["lpd"]
        if row["diag"]["lpd_best_test"] == row["lpd"]:  # both numbers come from one start
            assert row["diag"]["error_best_test"] == row["error"]


# --- the number of basis functions ------------------------------------------------------------


def chosen(protocol, monkeypatch, splits=(7,)):
    monkeypatch.setattr(fitting, "split_of", made_split)
    jobs = []
    task = dataclasses.replace(task_of(("mu",), protocol, splits=splits), set="heart")
    fitting.choose(task, lambda kind, new: kind == "jobs" and jobs.extend(new))
    (job,) = jobs
    assert job["method"] == "choosing"
    return job


def test_the_evidence_of_the_first_splits_chooses_in_protocol_paper(monkeypatch):
    """Always the same splits, whatever is asked for."""
    small, asked = dataclasses.replace(PAPER, sizes=(2, 6), n_starts=2), []
    monkeypatch.setattr(fitting, "CHOOSING", 2)
    real = fitting._by_evidence

    def noted(task, split, index):
        gains, ses = real(task, split, index)
        asked.append((index, gains[1, 0]))
        return gains, ses

    monkeypatch.setattr(fitting, "_by_evidence", noted)
    job = chosen(small, monkeypatch)
    assert [index for index, _ in asked] == [0, 1]
    gain = np.mean([one for _, one in asked])
    assert job["gains"] == pytest.approx({"2": 0.0, "6": gain})
    assert job["size"] == (6 if gain > 0 else 2)


@pytest.mark.parametrize(
    ("worth", "se", "size"),
    [
        ((0.0, 3.0, 6.0), 2.0, 40),
        ((0.0, 1.0, 1.5), 2.0, 10),
        ((0.0, 3.0, 4.0), 2.0, 20),  # 40 must beat 20, not 10
        ((0.0, -1.0, 2.5), 2.0, 40),
    ],
)
def test_a_larger_number_must_gain_more_than_its_standard_error(monkeypatch, worth, se, size):
    gains = np.subtract.outer(worth, worth)
    found = (gains, np.full_like(gains, se))
    monkeypatch.setattr(fitting, "_by_left_out", lambda *_: found)
    assert chosen(BEST, monkeypatch)["size"] == size


def test_leave_one_out_is_asked_in_protocol_best(monkeypatch):
    """A sine needs more than one bump."""
    monkeypatch.setattr(fitting, "CHOOSING", 1)
    job = chosen(dataclasses.replace(BEST, sizes=(1, 12)), monkeypatch)
    assert job["size"] == 12
    assert job["gains"]["12"] > 0
