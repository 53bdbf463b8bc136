"""Statistics, cells beside the printed ones and claims, on made-up rows and by hand."""

import math

import numpy as np
import pytest
import scipy.stats

from reproduction import claims, record, statistics, tables, toy
from reproduction.cells import ERROR, LPD, LPD_BY_TEST, Cells, n_printed
from reproduction.experiments import METHODS, printed
from reproduction.layout import plural
from reproduction.report import contents, markdown
from reproduction_rows import made_up, rows_of

# --- statistics -------------------------------------------------------------------------------


def test_sign_test_by_hand():
    first = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9])
    second = np.array([0.0, 1, 2, 3, 4, 5, 6, 9, 9])
    found = statistics.sign_test(first, second)
    # seven wins, one loss, one tie: 2 (C(8,0) + C(8,1)) / 2^8
    assert found[:3] == (7, 1, 1)
    assert found.p == pytest.approx(2 * 9 / 256)
    assert found.p == pytest.approx(scipy.stats.binomtest(7, 8).pvalue)
    assert found.verdict == 0
    assert statistics.sign_test(first, first - 1).verdict == 1
    assert statistics.sign_test(first - 1, first).verdict == -1
    assert statistics.sign_test(first, first) == (0, 0, 9, 1.0)


@pytest.mark.parametrize("n", [7, 10])
def test_bootstrap_is_the_slow_loop(n):
    rng = np.random.default_rng(1)
    first = rng.standard_normal(n)
    second = first + 0.3 * rng.standard_normal(n) - 0.1
    index = np.random.default_rng(statistics.SEED).integers(0, n, (statistics.N_RESAMPLES, n))
    loop = [np.median(first[chosen]) - np.median(second[chosen]) for chosen in index]
    found = statistics.median_difference(first, second)
    assert found == pytest.approx(tuple(np.percentile(loop, (2.5, 97.5))), abs=1e-12)
    alone = [np.median(first[chosen]) for chosen in index]
    assert statistics.median_error(first) == pytest.approx(np.std(alone, ddof=1))
    assert math.isnan(statistics.median_error(first[:1]))


def test_significant_needs_both_conditions_against_every_other():
    rng = np.random.default_rng(2)
    best = rng.standard_normal(40)
    clear, slight, wild = best - 0.5, best - 1e-3, best - 0.5
    # A small gain on every split is enough, because pairs are resampled together; a better median
    # with almost as many losses as wins is not: the sign test says no.
    wild[:18] += 1.0
    assert statistics.significant(best, np.stack([clear, slight], axis=1))
    assert not statistics.significant(best, np.stack([clear, wild], axis=1))
    assert not statistics.significant(clear, best[:, None])
    # Better on every split, yet the medians of resamples coincide: the bootstrap says no.
    two_valued = np.repeat([0.0, 1.0, 2.0], [12, 16, 12])
    shifted = two_valued - np.where(two_valued == 1.0, 0.0, 0.1)
    assert statistics.sign_test(two_valued, shifted).verdict == 1
    assert statistics.median_difference(two_valued, shifted)[0] == 0
    assert not statistics.significant(two_valued, shifted[:, None])
    assert not statistics.significant(best, np.empty((40, 0)))


# --- cells and claims -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "name", "metric", "allowed"),
    [
        ("binary", "banana", "lpd", 0.005 * 1238.76),
        ("binary", "heart", "lpd", 0.5),
        ("cauchy", "cauchy", "lpd", 0.005),
        ("cauchy", "cauchy", "mse", 0.02 * 0.155),
        ("binary", "heart", "error", 0.5),
    ],
)
def test_tolerance_edges(table, name, metric, allowed, tmp_path):
    value = printed().value[table, name, metric, "laplace"]
    worse = -1 if metric == "lpd" else 1
    field, measure = ("lpd", LPD) if metric == "lpd" else ("error", ERROR)
    for change, fine in ((0.999, True), (1.0, True), (1.001, False), (-50.0, True)):
        (row,) = made_up("best", table, name, 1, ("laplace",))
        row[field] = value + worse * change * allowed
        one = Cells(rows_of(tmp_path, [row])).get(measure, "best", table, name, "laplace")
        assert one.tolerance == pytest.approx(allowed)
        assert one.no_worse == fine
        assert one.shortfall == pytest.approx(change * allowed)


def test_cells_counts_and_rules(tmp_path):
    rows = made_up("best", "binary", "heart", 5, METHODS, gain=0.0)
    for row in rows:
        value = printed().value["binary", "heart", "lpd", row["method"]]
        row["lpd"] = value - (2.0 if row["method"] in ("diag", "mu") else 0.0)
        if row["method"] == "diag":
            row["diag"]["lpd_best_test"] = value
    found = Cells(rows_of(tmp_path, rows))
    for measure, n in ((LPD, 3), (LPD_BY_TEST, 4)):
        assert len(found.of(measure, "best")) == 5
        assert found.of(measure, "best").no_worse.sum() == n
    assert len(found.of(LPD, "paper")) == len(found.of(LPD, "best", ("multiclass",))) == 0
    assert n_printed("lpd") == n_printed("error") == 110
    assert n_printed("lpd", ("multiclass",)) == 40
    assert tables.summary(found).rows[0][2] == ("3 of 5", "60 missing", False, False)
    missed = [miss for miss in found.misses("best") if miss.cell.metric == "lpd"]
    by_method = {miss.cell.method: " ".join(miss.reasons) for miss in missed}
    assert set(by_method) == {"diag", "mu"}
    assert "rule for VI_diag" in by_method["diag"]
    assert by_method["mu"] == ""  # few splits are no explanation
    assert missed[0].cell.shortfall == pytest.approx(2.0)
    said = markdown(contents(found.rows)).split("## Cells worse than printed")[1].splitlines()
    (line,) = [one for one in said if one.startswith("| Heart, MVI_mu")]
    assert "| 2.00<br>(0.50) |" in line
    assert "| 5 of 100<br>" in line
    assert line.endswith("| nothing |")


def test_a_miss_is_compared_with_the_other_protocol(tmp_path):
    rows = [
        row | {"lpd": printed().value["binary", "heart", "lpd", "mu"] + gain, "n_basis": size}
        for protocol, gain, size in (("best", -5.0, 30), ("paper", 1.0, 10))
        for row in made_up(protocol, "binary", "heart", 3, ("mu",))
    ]
    found = Cells(rows_of(tmp_path, rows)).misses("best")
    (miss,) = [one for one in found if one.cell.metric == "lpd"]
    said = "protocol paper reaches -37.97 with 10 basis functions instead of 30"
    assert said in miss.reasons


def test_a_miss_says_where_the_hyperparameters_went(tmp_path):
    """A mean field whose bound is higher, whose basis is narrower and whose score is worse; and a
    fit that says no more than a coin."""
    value = printed().value["binary", "heart", "lpd", "diag"]
    rows = made_up("best", "binary", "heart", 3, ("laplace", "mu", "diag"))
    rows += made_up("paper", "binary", "heart", 3, ("diag",))
    for row in rows:
        poor = row["protocol"] == "best" and row["method"] == "diag"
        row["lpd"] = value - 5 if poor else value
        row["elbo_fixed"] = -100.0 if poor else -130.0
        row["hyper"] = {"log_width": 0.0 if poor else math.log(3.0)}
        if row["method"] == "mu":
            row["lpd"], row["hyper"] = -100 * math.log(2) - 0.1, {"log_width": math.log(0.25)}
    missed = {
        miss.cell.method: "; ".join(miss.reasons)
        for miss in Cells(rows_of(tmp_path, rows)).misses("best")
        if miss.cell.metric == "lpd"
    }
    assert "3.0 times narrower" in missed["diag"]
    assert f"protocol paper reaches {value:.2f} at a bound lower by 30.0" in missed["diag"]
    assert "no more than chance (-69.3), with basis functions of width 0.25" in missed["mu"]
    assert "chance" not in missed["diag"]


def test_pairs_need_the_split_of_every_method(tmp_path):
    rows = made_up("best", "binary", "heart", 6, METHODS)
    rows = [row for row in rows if row["method"] != "diag" or row["split"] in (1, 4)]
    again = {**rows[1], "lpd": 1.0}  # the same fit once more: the later row counts
    found = rows_of(tmp_path, [*rows, again])
    paired = found.paired("best", "binary", "heart", "lpd")
    assert tuple(paired.columns) == METHODS
    assert paired.index.tolist() == [1, 4]
    assert paired["laplace"][1] == 1.0
    assert found.counts("best", "binary").laplace["heart"] == 6
    assert len(found.paired("best", "binary", "banana", "lpd")) == 0


def test_a_claim_needs_both_conditions(tmp_path):
    """Nine splits won of ten by a hair, but the medians hardly move: the sign test rejects, the
    bootstrap does not."""
    rows = made_up("best", "binary", "heart", 10, ("laplace", "mu"))
    for row in rows:
        gain = -30.0 if row["split"] == 4 else 1e-9
        row["lpd"] = -40.0 - 10 * row["split"] + (gain if row["method"] == "mu" else 0.0)
    found = claims.Claims(Cells(rows_of(tmp_path, rows)))
    (one,) = found.chosen("best", "lpd", "mu", "laplace")
    assert (one.signs.wins, one.signs.losses, one.signs.verdict) == (9, 1, 1)
    assert one.verdict == 0


def test_claims_by_hand(tmp_path):
    rows = made_up("best", "binary", "heart", 8, METHODS)
    score = {"laplace": -40.0, "mu": -39.0, "eig": -41.0, "lr": -39.5, "diag": -39.0}
    for row in rows:
        row["lpd"] = score[row["method"]] + row["split"]
    found = claims.Claims(Cells(rows_of(tmp_path, rows)))
    tallies = {
        contender: [
            claims.significantly(found.chosen("best", "lpd", contender, rival))
            for rival in claims.RIVALS
        ]
        for contender in claims.CONTENDERS
    }
    assert tallies == {
        "best": [(1, 0, 0), (0, 1, 0)],
        "mu": [(1, 0, 0), (0, 1, 0)],
        "eig": [(0, 0, 1), (0, 0, 1)],
        "lr": [(1, 0, 0), (0, 0, 1)],
    }
    assert found.chosen("best", "lpd", "best", "laplace")[0].method == "mu"
    # Laplace is printed as the best on titanic; VI_diag on image.
    assert claims.printed_medians("best", "laplace", "binary") == (12, 0, 1)
    assert claims.printed_medians("best", "diag", "binary") == (12, 0, 1)
    assert claims.printed_medians("mu", "laplace").total == 22


def test_the_papers_own_numbers_are_those_of_its_tables():
    """What statements.toml says of them, counted again."""
    known, said = printed().reset_index(), [one.printed for one in claims.STATEMENTS]

    def best(experiment, metric, mark="best", name=None):
        its = known[(known.experiment == experiment) & (known.metric == metric) & known[mark]]
        return its if name is None else its[its.set == name].iloc[0]

    assert said[0] == "in its Figure 1"
    lpd, mse = (best("cauchy", metric, name="cauchy") for metric in ("lpd", "mse"))
    assert (lpd.method, mse.method) == ("eig", "lr")
    assert said[1] == f"LPD: MVI_eig {lpd.value}, MSE: MVI_lr {mse.value}"
    for one in claims.STATEMENTS:
        if one.verdict == "beats":
            counted = claims.printed_medians("best", one.method, one.experiment)
            assert one.printed == f"higher median on {counted.better} of {counted.total}"
        if one.verdict == "leads":
            its, bullets = (
                (best(one.experiment, "lpd", mark).method == one.method).sum()
                for mark in ("best", "significant")
            )
            n = known.set[known.experiment == one.experiment].nunique()
            assert one.printed == f"best on {its} of {n} sets, significantly on {bullets}"
    assert len(best("binary", "error", "significant")) == 0
    assert said[8] == "a significantly best error on 0 of 13 sets"
    assert said[10] == f"best error {best('multiclass', 'error', name='crabs').value}%"


def test_marks_as_in_the_paper(tmp_path):
    rows = made_up("best", "binary", "heart", 20, METHODS)
    for row in rows:
        row["error"] = 10.0 + row["split"] + (row["method"] in ("laplace", "diag"))
        row["lpd"] = row["split"] + (row["method"] == "eig")
    found = Cells(rows_of(tmp_path, rows))
    assert found.marks("best", "binary", "heart", "lpd") == (("eig",), True)
    ties = found.marks("best", "binary", "heart", "error")
    assert ties == (("mu", "eig", "lr"), False)
    assert found.marks("best", "binary", "banana", "lpd") == ((), False)


def test_distance_from_the_two_dimensional_posterior():
    mean, root = np.array([0.3, -0.2]), np.array([[1.0, 0.0], [0.4, 0.8]])
    draws = mean + np.random.default_rng(0).standard_normal((200_000, 2)) @ root.T
    log_q = scipy.stats.multivariate_normal(mean, root @ root.T).logpdf(draws)
    ratio = log_q - toy.log_density(draws, np)
    assert toy.kl(mean, root) == pytest.approx(ratio.mean(), abs=5 * ratio.std() / 200_000**0.5)


def test_small_words():
    assert record.spans([5, 0, 1, 2]) == "0-2, 5"
    assert plural(1, "set") == "1 set"
    assert record.duration(7200.0) == "2.0 h"
