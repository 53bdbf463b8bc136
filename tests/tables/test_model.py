"""The model behind the command: predictions, files, scores and effects against known answers."""

import contextlib
import io
import zipfile

import numpy as np
import pytest
from table_cases import FEATURES, only, people, written

import mixvi
from mixvi import tables
from mixvi.estimators import MVIClassifier, MVIRegressor
from mixvi.tables import _scores
from mixvi.tables._effects import Effect
from mixvi.tables._file import HEADER


def encoded(one):
    return one.model.columns.encoded(one.raw)[0]


def test_predictions_are_the_estimators(fitted):
    for target, estimator in (
        ("did", MVIClassifier(basis="linear")),
        ("spent", MVIRegressor(basis="linear")),
        ("visits", MVIRegressor(basis="linear", noise="poisson")),
    ):
        one = fitted[target]
        x, cells = encoded(one), one.raw.cells[target]
        found = one.model.predict(x, 0.8)
        if target == "did":
            estimator.fit(x, cells)
            np.testing.assert_allclose(found.proba, estimator.predict_proba(x), rtol=1e-12)
        else:
            estimator.fit(x, np.array(cells, dtype=float))
            np.testing.assert_allclose(found.mean, estimator.predict(x), rtol=1e-12)
            quantiles = estimator.predict_quantiles(x, (0.1, 0.9))
            np.testing.assert_allclose(np.stack([found.low, found.high], 1), quantiles, rtol=1e-9)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        ("did", {"basis": "rbf"}),
        ("did", {"basis": "gp"}),
        ("plan", {"basis": "rbf", "family": "laplace"}),
        ("spent", {"basis": "gp", "noise": "gaussian"}),
        ("spent", {"basis": "linear", "noise": "cauchy"}),
        ("visits", {"basis": "rbf"}),
    ],
)
def test_a_saved_model_is_the_model(data, tmp_path, target, settings):
    one = tables.fit_table(data / f"{target}.csv", tables.Asked(target, **settings))
    path = tables.save(one.model, tmp_path / "m.mvi")
    again = tables.load(path)
    new = only(people(20, seed=1), *FEATURES)
    raw = str(written(tmp_path / "n.csv", new))
    for x in (encoded(one), again.columns.encoded(tables._model.read(raw))[0]):
        ours, theirs = one.model.predict(x), again.predict(x)
        assert ours.columns() == theirs.columns()  # bit for bit
    assert again.posterior.verdict == one.model.posterior.verdict
    assert again.posterior.summary() == one.model.posterior.summary()
    assert (again.score, again.target, again.columns) == (
        one.model.score,
        one.model.target,
        one.model.columns,
    )
    for ours, theirs in zip(one.model.effects, again.effects, strict=True):
        assert ours.to_json() == theirs.to_json()


def test_loading_fits_nothing(saved, monkeypatch):
    monkeypatch.setattr("mixvi.tables._fit.fit_table", None)
    monkeypatch.setattr("mixvi.estimators._base.fit", None)
    model = tables.load(saved / "did.mvi")
    _, predicted, _ = model.predict_file(str(saved / "new.csv"))
    assert predicted.proba.shape == (20, 2)
    assert model.facts["version"] == mixvi.__version__


def test_a_file_holds_nothing_that_could_run(saved):
    with zipfile.ZipFile(saved / "did.mvi") as archive:
        assert sorted(archive.namelist()) == ["arrays.npz", HEADER, "posterior.npz"]
        for name in archive.namelist():
            if name.endswith(".npz"):
                with np.load(io.BytesIO(archive.read(name)), allow_pickle=False) as stored:
                    assert all(stored[key].dtype != object for key in stored.files)


def rewritten(path, to, **changes):
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(to, "w") as new:
        for name in archive.namelist():
            content = archive.read(name)
            for old, other in changes.get(name.split(".")[0], ()):
                content = content.replace(old, other)
            new.writestr(name, content)
    return to


def test_damaged_truncated_and_foreign_files(saved, tmp_path):
    content = (saved / "did.mvi").read_bytes()
    path = tmp_path / "m.mvi"
    for share in (0.1, 0.5, 0.9, 0.999):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(mixvi.InputError, match=r"is damaged .*copy it again, or fit it again"):
            tables.load(path)
    for at in np.random.default_rng(0).integers(0, len(content), 60):
        path.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
        with contextlib.suppress(mixvi.InputError):
            tables.load(path)  # or a byte that says nothing, such as one of a date
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    for name, foreign in [("t.csv", b"a,b\n1,2\n"), ("e", b""), ("o", None)]:
        other = tmp_path / name
        other.write_bytes((tmp_path / "other.npz").read_bytes() if foreign is None else foreign)
        with pytest.raises(mixvi.InputError, match="is not a model saved by mixvi"):
            tables.load(other)
    newer = rewritten(saved / "did.mvi", path, model=[(b'"schema": 1', b'"schema": 9')])
    with pytest.raises(mixvi.InputError, match=r"written by mixvi 0.1.0 in another form"):
        tables.load(newer)
    broken = rewritten(
        saved / "did.mvi", path, model=[(b'"basis": "linear"', b'"bases": "linear"')]
    )
    with pytest.raises(mixvi.InputError, match="is damaged"):
        tables.load(broken)


def test_a_posterior_of_the_library_is_no_table_model(saved, tmp_path):
    path = tables.load(saved / "did.mvi").posterior.save(tmp_path / "post")
    with pytest.raises(mixvi.InputError, match="is not a model saved by mixvi"):
        tables.load(path)


# --- scores -------------------------------------------------------------------------------------


def test_rows_left_out_agree_with_refits(data):
    """Probabilities of the classes, three of them, each row by a fit without it."""
    table = only(people(40), "age", "height")
    eta = (np.array(table["age"], dtype=float) - 45) / 10
    eta = eta + np.random.default_rng(0).standard_normal(40)
    table["y"] = np.array(["lo", "mid", "up"])[np.digitize(eta, [-1, 1])].tolist()
    path = written(data / "three.csv", table)
    one = tables.fit_table(path, tables.Asked("y", basis="linear"))
    x = encoded(one)
    model, shared = one.model, one.model.shared
    worst = 0.0
    for row in (0, 7, 23):
        keep = np.arange(40) != row
        y = one.left_out.y[keep]
        scaled = (x - model.centre) / model.scale
        made = model.settings.model(3)
        density = made.density(scaled[keep], y, hyper=model.hyper, shared=shared)
        post = mixvi.fit(density, density.init)
        predictive = tables._model.Predictive(made, model.hyper, shared, post.flat_mean, post.root)
        refit = predictive.expectation(made.basis.rows(scaled[[row]], shared))[0]
        worst = max(worst, np.abs(refit - one.left_out.proba[row]).max())
    assert worst < 0.02


def test_the_baseline_knows_no_column(fitted):
    """For classes: frequencies; a prior that is weak moves them little."""
    score, loo_rows = fitted["did"].model.score, fitted["did"].left_out
    counts = np.array(fitted["did"].model.target.counts)
    n = counts.sum()
    own = np.where(loo_rows.y == 1, counts[1], counts[0])
    expected = np.log((own - 1 + 1) / (n - 1 + 2)).sum()  # a uniform prior on the share
    assert score.loo * n - score.gain == pytest.approx(expected, abs=0.5)
    assert score.hit_without == counts.max() / n
    assert score.hit == np.mean(loo_rows.proba.argmax(1) == loo_rows.y)


def test_what_luck_explains():
    """Of probabilities that are true it is exceeded in one table of twenty."""
    rng = np.random.default_rng(0)
    beyond = 0
    for _ in range(40):
        p = rng.beta(2, 2, 80)
        y = (rng.random(80) < p).astype(float)
        off, luck = _scores._calibration(y, np.stack([1 - p, p], 1))
        beyond += off > luck
    assert beyond <= 7
    p = np.clip(1.8 * p - 0.4, 0.01, 0.99)  # too sure of itself
    y = (rng.random(80) < 0.5).astype(float)
    off, luck = _scores._calibration(y, np.stack([1 - p, p], 1))
    assert off > luck


def test_intervals_hold_what_they_say(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, 400)
    y = x + 0.5 * rng.standard_normal(400)
    table = {"x": [f"{one:.5f}" for one in x], "y": [f"{one:.5f}" for one in y]}
    asked = tables.Asked("y", basis="linear", noise="gaussian")
    one = tables.fit_table(written(tmp_path / "t.csv", table), asked)
    assert one.left_out.within.mean() == pytest.approx(0.9, abs=0.035)
    # The share below is uniform.
    at = np.sort(one.left_out.below)
    assert np.abs(at - (np.arange(400) + 0.5) / 400).max() < 1.63 / np.sqrt(400)
    residual = np.median(np.abs(y - x))
    assert one.model.score.hit == pytest.approx(residual, rel=0.05)
    assert one.model.score.explained == pytest.approx(1 - 0.25 / (4 / 3 + 0.25), abs=0.04)


# --- effects ------------------------------------------------------------------------------------


def by_name(one) -> dict[str, Effect]:
    return {effect.column: effect for effect in one.model.effects}


def test_effects_of_straight_lines_are_the_coefficients(fitted):
    one = fitted["spent"]
    x = encoded(one)
    straight = MVIRegressor(basis="linear").fit(x, np.array(one.raw.cells["spent"], dtype=float))
    effect = by_name(one)["age"]
    at, mean = np.array(effect.at), effect.mean[0]
    slopes = np.diff(mean) / np.diff(at)
    np.testing.assert_allclose(slopes, straight.coef_[0], rtol=1e-6)
    # The band: the standard deviation of the line, over the rows' averages of the others.
    rng = np.random.default_rng([0, len(x)])
    few = np.sort(rng.choice(len(x), min(len(x), 120), replace=False))
    average = x[few].mean(0)
    average[0] = at[0]
    _, sd = straight.predictor(average[None])
    width = effect.high[0, 0] - effect.low[0, 0]
    assert width == pytest.approx(2 * 1.645 * sd[0] * straight._target_unit, rel=0.1)
    cities = by_name(one)["city"]
    assert cities.at == ("Oslo", "Paris", "Rome")
    levels = straight.coef_[2:5]
    np.testing.assert_allclose(np.diff(cities.mean[0]), np.diff(levels), rtol=1e-5)


def test_effects_rank_columns_by_what_they_do(fitted):
    names = [effect.column for effect in fitted["spent"].model.effects]
    assert names[0] == "age"
    assert names[-1] == "height"
    for effect in fitted["did"].model.effects:
        assert effect.outputs == ("left",)
        assert (effect.low <= effect.mean).all()
        assert (effect.mean <= effect.high).all()
        assert ((effect.mean > 0) & (effect.mean < 1)).all()
        assert effect.share.sum() == pytest.approx(1)
        assert effect.size_low <= effect.size_high


def test_bands_of_a_process_know_where_there_are_no_rows(tmp_path):
    """Between two clumps of rows no weight knows the function: what is left over counts, too."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1, 0, 40), rng.uniform(9, 10, 40)])
    y = np.sin(3 * x) + 0.05 * rng.standard_normal(80)
    table = {"x": [f"{one:.5f}" for one in x], "y": [f"{one:.5f}" for one in y]}
    asked = tables.Asked("y", basis="gp", noise="gaussian")
    effect = tables.fit_table(written(tmp_path / "t.csv", table), asked).model.effects[0]
    width = (effect.high - effect.low)[0]
    assert width[12] > 4 * max(width[1], width[-2])
