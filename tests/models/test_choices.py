"""What the estimators choose by leave-one-out: how many basis functions, and which widths."""

import numpy as np
import pytest

import mixvi
from mixvi.estimators import MVIClassifier, MVIRegressor
from mixvi.models import Bernoulli, Gaussian, _choose
from mixvi.models._choose import Data, chosen

OPTIONS = {"noise": "gaussian", "diagnostics": False}


def noisy(signal, seed, noise=0.2):
    return signal + noise * np.random.default_rng(seed).standard_normal(len(signal))


def test_more_functions_for_a_wiggly_target():
    x = np.random.default_rng(0).uniform(-3, 3, (500, 2))
    wiggly = MVIRegressor(**OPTIONS).fit(x, noisy(np.sin(3 * x).prod(1), 1))
    straight = MVIRegressor(**OPTIONS).fit(x, noisy(x.sum(1), 1))
    assert wiggly.n_basis_ >= 80
    assert straight.n_basis_ <= 40
    assert wiggly.choices_[-1]["loo"] > wiggly.choices_[0]["loo"] + 0.5
    fresh = np.random.default_rng(2).uniform(-2.5, 2.5, (300, 2))
    assert np.abs(wiggly.predict(fresh) - np.sin(3 * fresh).prod(1)).mean() < 0.15


def test_what_few_functions_take_for_noise_more_may_follow():
    x = np.random.default_rng(0).uniform(-3, 3, (200, 1))
    model = MVIRegressor(**OPTIONS).fit(x, noisy(np.sin(6 * x[:, 0]), 1, 0.1))
    by_size = {row["n_basis"]: row["loo"] for row in model.choices_}
    assert by_size[10] < -0.9
    assert by_size[20] > 0.5
    assert model.predict([[0.25], [-0.25]]) == pytest.approx(np.sin([1.5, -1.5]), abs=0.1)


@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_widths_where_one_feature_of_eight_matters(kind):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 8))
    signal = np.sin(2 * x[:, 0])
    if kind == "regression":
        model = MVIRegressor(**OPTIONS).fit(x, noisy(signal, 1))
    else:
        model = MVIClassifier(diagnostics=False).fit(
            x, rng.random(200) < 1 / (1 + np.exp(-6 * signal))
        )
    width = model.hyper_["log_width"]
    assert width.shape == (8,)
    assert width[0] < width[1:].min() - 1
    one = [row["loo"] for row in model.choices_ if not row["width_per_feature"]]
    each = [row["loo"] for row in model.choices_ if row["width_per_feature"]]
    assert max(each) > max(one) + 0.1
    assert "a width for each feature" in model.summary()


def test_one_width_where_all_matter_equally():
    x = np.random.default_rng(0).standard_normal((200, 8))
    model = MVIRegressor(**OPTIONS).fit(x, noisy(x.sum(1) / np.sqrt(8), 1, 0.3))
    assert model.hyper_["log_width"].shape == ()
    assert any(row["width_per_feature"] for row in model.choices_)  # they were tried
    held = MVIRegressor(**OPTIONS, width_per_feature=True, n_basis=10).fit(x, noisy(x[:, 0], 2))
    assert held.hyper_["log_width"].shape == (8,)
    assert [row["width_per_feature"] for row in held.choices_] == [True]


def test_no_widths_where_rows_are_few():
    x = np.random.default_rng(0).standard_normal((30, 8))
    model = MVIRegressor(**OPTIONS).fit(x, noisy(np.sin(2 * x[:, 0]), 1))
    assert not any(row["width_per_feature"] for row in model.choices_)


def test_a_candidate_without_a_mode_is_passed_over(monkeypatch):
    tuned = _choose.tuned

    def refuses(density, *others):
        if density.basis.per_feature or density.n_weights > 11:
            raise _choose.NoCandidateError("no mode here")
        return tuned(density, *others)

    monkeypatch.setattr(_choose, "tuned", refuses)
    x = np.random.default_rng(0).standard_normal((60, 2))
    data = Data.of(x, noisy(np.sin(2 * x[:, 0]), 1), np.ones(60))
    found = chosen(Gaussian(), data, None, None, True, 0)
    assert [one.size for one in found.tried] == [10]
    with pytest.raises(mixvi.InputError, match="no mode here"):
        chosen(Gaussian(), data, None, True, True, 0)


def test_sizes_stop_at_half_the_distinct_rows():
    x = np.random.default_rng(0).standard_normal((30, 1))
    y = noisy(np.sin(6 * x[:, 0]), 1)
    data = Data.of(np.repeat(x, 5, 0), np.repeat(y, 5), np.ones(150))
    sizes = [one.size for one in chosen(Gaussian(), data, None, False, True, 0).tried]
    assert sizes == [10]


def test_many_rows_choose_by_some_and_fit_by_all():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (3000, 1))
    y = (rng.random(3000) < 1 / (1 + np.exp(-4 * np.sin(2 * x[:, 0])))).astype(float)
    best = chosen(Bernoulli(), Data.of(x, y, np.ones(3000)), [10], False, True, 0).best
    assert best.density.n_rows == 2000
    model = MVIClassifier(n_basis=10, diagnostics=False).fit(x, y)
    assert len(model._loo.pointwise) == 3000
    grid = np.linspace(-1.5, 1.5, 20)[:, None]
    exact = 1 / (1 + np.exp(-4 * np.sin(2 * grid[:, 0])))
    np.testing.assert_allclose(model.predict_proba(grid)[:, 1], exact, atol=0.1)
