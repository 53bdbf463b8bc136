"""`mixvi fit`, `predict`, `explain`: what they leave, what they say, how they end."""

import csv
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from table_cases import FEATURES, changed, only, people, ran, written

import mixvi
import mixvi_cli
from mixvi import cli, tables


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# --- a way through ------------------------------------------------------------------------------


def test_fit_predict_explain(data, capsys, tmp_path):
    fit = ran(capsys, "fit", data / "did.csv", "--target", "did", "--basis", "linear")
    assert fit.code == 0
    assert not fit.err
    for said in (
        "60 rows",
        "2 classes: bought (",
        "guessed: its values are texts",
        "Wrote did.mvi",
    ):
        assert said in fit.out
    assert "always answering" in fit.out
    assert "\x1b" not in fit.out
    assert (tmp_path / "did-report.html").stat().st_size > 50_000

    predict = ran(capsys, "predict", "did.mvi", data / "new.csv", "-o", "out.csv")
    assert (predict.code, predict.err) == (0, "")
    rows = rows_of((tmp_path / "out.csv").read_text())
    assert len(rows) == 20
    assert list(rows[0]) == ["predicted", "p(bought)", "p(left)"]
    for row in rows:
        p = [float(row["p(bought)"]), float(row["p(left)"])]
        assert sum(p) == pytest.approx(1)
        assert row["predicted"] == ["bought", "left"][p[1] > p[0]]

    explain = ran(capsys, "explain", "did.mvi")
    assert explain.code == 0
    assert f"written by mixvi {mixvi.__version__}" in explain.out
    shown = [line for line in fit.out.splitlines() if line.startswith(("  ", "Target", "Model"))]
    assert set(shown) <= set(explain.out.splitlines())


def test_classes_that_are_told_apart_are_predicted(data, capsys):
    """What is learnt is what the table was made from: older people buy, Romans do not."""
    ran(capsys, "fit", data / "did.csv", "-t", "did", "--no-report", "--basis", "linear")
    table = {"age": ["75", "20"], "height": ["170"] * 2, "city": ["Oslo", "Rome"]}
    written(data / "two.csv", table | {"member": ["yes", "no"]})
    p = ran(capsys, "predict", "did.mvi", data / "two.csv", "--json").json["predictions"]
    assert p["predicted"] == ["bought", "left"]
    assert p["p(bought)"][0] > 0.65 > 0.35 > p["p(bought)"][1]


@pytest.mark.parametrize("target", ["spent", "visits"])
def test_numbers_have_means_and_intervals(saved, capsys, target):
    wide = ran(capsys, "predict", saved / f"{target}.mvi", saved / "new.csv")
    narrow = ran(capsys, "predict", saved / f"{target}.mvi", saved / "new.csv", "--interval", 0.5)
    for one, (low, high) in ((wide, ("5%", "95%")), (narrow, ("25%", "75%"))):
        assert one.code == 0
        rows = rows_of(one.out)
        assert list(rows[0]) == ["predicted", low, high]
        at = np.array([[float(row[name]) for name in (low, "predicted", high)] for row in rows])
        assert (at[:, 0] < at[:, 2]).all()
        if target == "spent":
            assert (at[:, 0] < at[:, 1]).all()
            assert (at[:, 1] < at[:, 2]).all()
        else:
            assert (at[:, [0, 2]] == np.round(at[:, [0, 2]])).all()
    spans = [
        np.mean([float(row[high]) - float(row[low]) for row in rows_of(one.out)])
        for one, low, high in ((wide, "5%", "95%"), (narrow, "25%", "75%"))
    ]
    assert spans[0] > 1.5 * spans[1]


def test_outputs_beside_inputs(saved, capsys, tmp_path):
    args = ("predict", saved / "did.mvi", saved / "new.csv", "--with-input")
    rows = rows_of(ran(capsys, *args).out)
    table = only(people(20, seed=1), *FEATURES)
    assert [row["age"] for row in rows] == table["age"]
    assert list(rows[0])[:5] == [*FEATURES, "predicted"]
    pq = pytest.importorskip("pyarrow.parquet")
    assert ran(capsys, *args, "-o", "out.parquet").code == 0
    back = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert back["p(left)"] == [float(row["p(left)"]) for row in rows]


def test_outputs_do_not_hide_inputs(saved, capsys, tmp_path):
    table = only(people(20, seed=1), *FEATURES) | {"predicted": ["mine"] * 20}
    args = ("predict", saved / "did.mvi", written(tmp_path / "t.csv", table), "-o", "out.csv")
    both = ran(capsys, *args, "--with-input")
    assert both.code == 1
    assert "the file has a column 'predicted' already: rename it" in both.err
    assert not (tmp_path / "out.csv").exists()
    assert ran(capsys, *args).code == 0


def test_a_formula_for_scripts(data, capsys):
    fit = ran(capsys, "fit", data / "spent.csv", "-t", "spent", "--json", "--basis", "linear")
    assert fit.code == 0
    assert not fit.err
    assert fit.out.count("\n") == 1
    said = fit.json
    assert said["model"] == "spent.mvi"
    assert said["target"]["task"] == "regress"
    assert said["effects"][0]["column"] == "age"
    assert said["verdict"]["level"] == "good"
    assert said["score"]["hit"] < said["score"]["hit_without"]
    explain = ran(capsys, "explain", "spent.mvi", "--json")
    assert explain.json == {"version": mixvi.__version__} | {
        key: value for key, value in said.items() if key not in ("model", "report")
    }
    predict = ran(capsys, "predict", "spent.mvi", data / "new.csv", "--json", "-o", "out.csv")
    assert predict.json["output"] == "out.csv"
    assert predict.json["rows"] == 20


def test_the_same_seed_gives_the_same_bytes(data, capsys, tmp_path):
    for name in ("a", "b"):
        args = ("fit", data / "did.csv", "-t", "did", "--basis", "linear", "--no-report")
        assert ran(capsys, *args, "-o", f"{name}.mvi").code == 0
    assert (tmp_path / "a.mvi").read_bytes() == (tmp_path / "b.mvi").read_bytes()


# --- choices ------------------------------------------------------------------------------------


def test_a_basis_is_chosen_by_rows_left_out(tmp_path, capsys):
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, 120)
    for name, curve in (("straight", 2 * x), ("curved", 3 * np.sin(2 * x))):
        y = curve + 0.3 * rng.standard_normal(120)
        table = {"x": [f"{one:.4f}" for one in x], "y": [f"{one:.4f}" for one in y]}
        written(tmp_path / f"{name}.csv", table)
        fit = ran(capsys, "fit", f"{name}.csv", "-t", "y", "--json", "--no-report")
        expected = {"straight": "linear", "curved": "rbf"}[name]
        assert expected in fit.json["posterior"]["about"]


def test_equal_rows_are_left_out_one_by_one(tmp_path, capsys):
    """Each is an observation. Left out together, as weights would be, every row of a table of two
    categories would be predicted from the other class alone."""
    table = {"x": ["a"] * 50 + ["b"] * 50, "y": (["in"] * 8 + ["out"] * 2) * 5}
    table["y"][50:] = ["in"] * 10 + ["out"] * 40
    written(tmp_path / "t.csv", table)
    score = ran(capsys, "fit", "t.csv", "-t", "y", "--json", "--basis", "linear").json["score"]
    assert score["hit"] == pytest.approx(0.8)
    assert score["hit_without"] == pytest.approx(0.5)
    # Bernoulli entropies: log 2 without the column, that of 0.8 with it
    entropy = -(0.8 * np.log(0.8) + 0.2 * np.log(0.2))
    assert score["gain"] / 100 == pytest.approx(np.log(2) - entropy, abs=0.03)


def test_columns_that_say_nothing(tmp_path, capsys):
    table = only(people(), "height", "did")
    fit = ran(capsys, "fit", written(tmp_path / "t.csv", table), "-t", "did", "--no-report")
    assert fit.code == 0
    assert "No better than a guess" in fit.out
    assert "makes no difference that luck would not make" in fit.out
    assert "no difference that can be told" in fit.out


def test_a_verdict_that_is_bad_has_a_code_of_its_own(saved, capsys, monkeypatch):
    monkeypatch.setattr(mixvi.Posterior, "trust", property(lambda self: "reject"))
    explain = ran(capsys, "explain", saved / "did.mvi")
    assert explain.code == 3
    assert "Do not trust this model" in explain.out


def test_classes_that_are_all_but_separated(tmp_path, capsys):
    """The posterior is lopsided and its Gaussian rejected, but classes of rows left out are right,
    and their probabilities hold: that is no model to be thrown away."""
    rng = np.random.default_rng(0)
    kind = np.repeat(["a", "b", "c"], 30)
    x = np.repeat([0.0, 4.0, 8.0], 30) + rng.standard_normal(90)
    z = np.repeat([0.0, 3.0, 0.0], 30) + rng.standard_normal(90)
    table = {"x": [f"{one:.3f}" for one in x], "z": [f"{one:.3f}" for one in z], "kind": [*kind]}
    written(tmp_path / "t.csv", table)
    fit = ran(capsys, "fit", "t.csv", "-t", "kind", "--basis", "linear", "--no-report")
    assert ran(capsys, "explain", "t.mvi", "--json").json["posterior"]["trust"] == "reject"
    assert fit.code == 0
    assert "Take its classes, but not its bands" in fit.out
    assert "not its bands or small probabilities" in fit.out


def test_intervals_that_do_not_hold_say_how_many_they_hold(tmp_path, capsys):
    rng = np.random.default_rng(0)  # Gaussian noise is assumed, and this has no tails at all
    table = {"x": [f"{one:.3f}" for one in rng.random(200)]}
    table["y"] = [f"{one:.3f}" for one in rng.random(200)]
    written(tmp_path / "t.csv", table)
    args = ("fit", "t.csv", "-t", "y", "--basis", "linear", "--noise", "gaussian", "--no-report")
    fit = ran(capsys, *args)
    assert re.search(r"90% intervals hold (9[5-9]|100)% of the rows that it has not seen", fit.out)


def test_filling_is_remembered(tmp_path, capsys):
    table = changed(only(people(), *FEATURES, "did"), "height", 4, "NA")
    written(tmp_path / "t.csv", table)
    refused = ran(capsys, "fit", "t.csv", "-t", "did")
    assert refused.code == 1
    assert "--impute median" in refused.err
    args = ("fit", "t.csv", "-t", "did", "--impute", "median", "--basis", "linear")
    fit = ran(capsys, *args, "--no-report")
    known = [float(one) for i, one in enumerate(table["height"]) if i != 4]
    assert f"1 missing value filled with {np.median(known):.4g}" in fit.out
    new = only(people(2, seed=3), *FEATURES)
    written(tmp_path / "a.csv", changed(new, "height", 0, ""))
    written(tmp_path / "b.csv", changed(new, "height", 0, repr(float(np.median(known)))))
    a, b = (ran(capsys, "predict", "t.mvi", name) for name in ("a.csv", "b.csv"))
    assert a.code == 0
    assert a.out == b.out


# --- new files ----------------------------------------------------------------------------------


def new_file(tmp_path, **changes):
    table = only(people(5, seed=2), *FEATURES)
    for name, (row, text) in changes.items():
        table = changed(table, name, row, text)
    return written(tmp_path / "n.csv", table)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"age": (1, "old")}, "'age', row 2 (line 3): 'old' is not a number; in training this"),
        ({"city": (2, "Rom")}, "'city', row 3 (line 4): 'Rom' was not in the training data, which"),
        ({"city": (2, "Rom")}, "had Oslo, Paris, Rome. Did you mean 'Rome'?"),
        ({"member": (0, "maybe")}, "'maybe' was not in the training data, which had no, yes"),
        ({"age": (0, "")}, "'age', row 1 (line 2): the value is missing"),
        ({"city": (0, "NA")}, "'city', row 1 (line 2): the value is missing"),
        ({"age": (0, "inf")}, "'inf' is not finite"),
    ],
)
def test_cells_that_the_model_does_not_know(saved, tmp_path, capsys, changes, sentence):
    predict = ran(capsys, "predict", saved / "did.mvi", new_file(tmp_path, **changes))
    assert predict.code == 1
    assert not predict.out
    assert sentence in predict.err
    assert predict.err.count("\n") == 1


def test_columns_that_are_missing_or_more(saved, tmp_path, capsys):
    table = only(people(5, seed=2), *FEATURES)
    lacking = {name.replace("age", "Age"): cells for name, cells in table.items()}
    predict = ran(capsys, "predict", saved / "did.mvi", written(tmp_path / "a.csv", lacking))
    assert predict.code == 1
    assert "lacks the column 'age', which the model needs: did you mean 'Age'?" in predict.err
    more = table | {"colour": ["red"] * 5, "did": ["bought"] * 5}
    predict = ran(capsys, "predict", saved / "did.mvi", written(tmp_path / "b.csv", more))
    plain = ran(capsys, "predict", saved / "did.mvi", written(tmp_path / "c.csv", table))
    assert predict.code == 0
    assert "note: the model does not know the column 'colour': it makes no" in predict.err
    assert "'did'" not in predict.err
    assert predict.out == plain.out


def test_columns_in_another_order_and_values_far_away(saved, tmp_path, capsys):
    table = only(people(5, seed=2), *FEATURES)
    plain = ran(capsys, "predict", saved / "did.mvi", written(tmp_path / "a.csv", table))
    turned = only(table, *reversed(FEATURES))
    other = ran(capsys, "predict", saved / "did.mvi", written(tmp_path / "b.csv", turned))
    assert plain.out == other.out
    far = new_file(tmp_path, age=(0, "200"))
    predict = ran(capsys, "predict", saved / "did.mvi", far)
    assert predict.code == 0
    assert "column 'age': 1 row outside what training has seen (20 to 75)" in predict.err


# --- arguments ----------------------------------------------------------------------------------

LONG = "long" * 99  # no file can have this name


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        ((), 2, "say what to do: fit, predict or explain"),
        (("fitt", "x.csv"), 2, "invalid choice: 'fitt'"),
        (("fit", "did.csv"), 2, "the following arguments are required: -t/--target"),
        (("fit", "did.csv", "-t", "did", "--task", "guess"), 2, "invalid choice: 'guess'"),
        (("fit", "did.csv", "-t", "did", "--seed", "-1"), 2, "--seed"),
        (("fit", "did.csv", "-t", "did", "--separator", ",,"), 2, "one character (or 'tab')"),
        (("fit", "did.csv", "-t", "did", "-o", "did.csv"), 1, "'did.csv' is the table: write to"),
        (("fit", "did.csv", "-t", "did", "-o", "x", "--report", "x"), 1, "is the model"),
        (("fit", "did.csv", "-t", "did", "-o", "no/m.mvi"), 1, "there is no folder 'no'"),
        (("fit", "did.csv", "-t", "did", "-o", "."), 1, "is a folder: name a file"),
        (("fit", "dib.csv", "-t", "did"), 1, "no file 'dib.csv': did you mean 'did.csv'?"),
        (("fit", "did.csv", "-t", "dig"), 1, "no column 'dig': did you mean 'did'?"),
        (("fit", "did.csv", "-t", "did", "--task", "regress"), 1, "holds text"),
        (("predict", "did.mvi", "new.csv", "--interval", "90"), 2, "between 0 and 1"),
        (("predict", "did.mvi", "new.csv", "-o", "new.csv"), 1, "is the file to predict"),
        (("predict", "did.mvi", "new.csv", "-o", "did.mvi"), 1, "is the model"),
        (("predict", "none.mvi", "new.csv"), 1, "the model 'none.mvi' does not exist"),
        (("predict", "did.csv", "new.csv"), 1, "is not a model saved by mixvi"),
        (("explain", "."), 1, "is a folder, not a model"),
        (("explain", LONG), 1, "cannot be read: File name too long"),
        (("predict", "did.mvi", LONG), 1, "cannot be read: File name too long"),
        (("predict", "did.mvi", "new.csv", "-o", LONG), 1, "cannot be written: File name too long"),
        (("fit", "did.csv", "-t", "did", "-o", LONG), 1, "cannot be written: File name too long"),
    ],
)
def test_bad_command_lines(saved, capsys, monkeypatch, args, code, sentence):
    monkeypatch.chdir(saved)
    before = {path: path.read_bytes() for path in saved.iterdir()}
    result = ran(capsys, *args)
    assert result.code == code
    assert sentence in result.err
    assert not result.out
    assert {path: path.read_bytes() for path in saved.iterdir()} == before


def test_errors_in_json(capsys):
    result = ran(capsys, "explain", "none.mvi", "--json")
    assert result.code == 1
    assert result.json == {"error": "the model 'none.mvi' does not exist.", "code": 1}


def test_a_bug_is_one_sentence_too(saved, capsys, monkeypatch):
    def broken(path):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(cli, "load", broken)
    result = ran(capsys, "explain", saved / "did.mvi")
    assert result.code == 4
    assert "this is a bug in mixvi (ZeroDivisionError: by zero)" in result.err
    monkeypatch.setattr(cli, "load", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    assert ran(capsys, "explain", saved / "did.mvi").code == 130


def test_what_is_not_installed_is_named(data, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = ran(capsys, "fit", data / "did.csv", "-t", "did")
    assert result.code == 1
    assert "pip install 'mixvi[cli]', or --no-report" in result.err
    monkeypatch.setitem(sys.modules, "mixvi.estimators", None)
    result = ran(capsys, "fit", data / "did.csv", "-t", "did", "--no-report")
    assert "needs scikit-learn: pip install 'mixvi[cli]'" in result.err


def test_versions_and_help(capsys):
    assert ran(capsys, "--version").out == f"mixvi {mixvi.__version__}\n"
    top = ran(capsys, "--help")
    assert top.code == 0
    assert "exit codes" in top.out
    for command in ("fit", "predict", "explain"):
        assert ran(capsys, command, "--help").code == 0


def test_help_and_versions_load_nothing():
    code = "import sys, mixvi_cli; mixvi_cli.main(['--version']); mixvi_cli.main(['fit'])\n"
    code += "print([m for m in ('mixvi', 'jax', 'numpy', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    code = "import sys, mixvi\nprint([m for m in ('jinja2', 'pyarrow', 'pandas', 'mixvi.tables')"
    code += " if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- terminals ----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_and_stages_on_a_terminal_alone(data, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    args = ["fit", str(data / "did.csv"), "-t", "did", "--basis", "linear", "--no-report"]
    assert mixvi_cli.main(args) == 0
    assert "\x1b[3" in out.getvalue()
    stages = [part.split(" ...")[0] for part in err.getvalue().split("\x1b[K")]
    assert stages[1:4] == ["reading", "fitting", "scoring"]
    assert err.getvalue().endswith("\r\x1b[K")
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.painted("words", "bold") == "words"


def test_another_process_predicts_the_same_bits(saved, tmp_path):
    """Through the module's own door, piped: no colour, and every digit as here."""
    model = tables.load(saved / "spent.mvi")
    _, predicted, _ = model.predict_file(str(saved / "new.csv"))
    args = [sys.executable, "-m", "mixvi", "predict", str(saved / "spent.mvi")]
    env = os.environ | {"TERM": "xterm"}
    done = subprocess.run(
        [*args, str(saved / "new.csv"), "--json"], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert json.loads(done.stdout)["predictions"] == predicted.columns()
