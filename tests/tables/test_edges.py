"""What real files do: blank lines, thousands, spellings, sizes."""

import warnings

import numpy as np
import pytest
from table_cases import FEATURES, changed, only, people, ran, written

import mixvi
from mixvi import cli, tables
from mixvi.tables._columns import Wishes, figures, learnt
from mixvi.tables._model import percentages
from mixvi.tables._read import Options, read
from mixvi.tables._target import target_of

FIT = ("--basis", "linear", "--no-report")


def text_file(path, text: str | bytes):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def lines(n: int = 40, seed: int = 0, **columns) -> dict[str, list[str]]:
    """`x`, and `y` that goes with it; columns of one's own are functions of `x`."""
    x = np.random.default_rng(seed).standard_normal(n)
    y = x + 0.1 * np.random.default_rng(seed + 1).standard_normal(n)
    made = {name: [f"{one:.17g}" for one in of(x)] for name, of in columns.items()}
    return (made or {"x": [f"{one:.4f}" for one in x]}) | {"y": [f"{one:.4f}" for one in y]}


@pytest.fixture
def straight(tmp_path, capsys):
    """A model of `y` by `a` and `b` with medians for what is missing, `m.mvi`."""
    table = lines(a=lambda x: x, b=lambda x: np.cos(9 * x))
    written(tmp_path / "train.csv", table)
    args = ("fit", "train.csv", "-t", "y", "--impute", "median", "-o", "m.mvi", *FIT)
    assert ran(capsys, *args).code == 0


# --- rows ---------------------------------------------------------------------------------------


def test_a_row_of_separators_is_a_row(tmp_path, straight, capsys):
    text_file(tmp_path / "n.csv", "a,b\n1,1\n,\n2,2\n\n\n")
    result = ran(capsys, "predict", "m.mvi", "n.csv", "--with-input")
    assert result.code == 0
    rows = result.out.splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [["1", "1"], ["", ""], ["2", "2"]]
    assert "blank" not in result.err  # lines at the end are its end


def test_lines_that_are_skipped_are_named(tmp_path, straight, capsys):
    text_file(tmp_path / "n.csv", ",\na,b\n1,1\n\n  \n2,2\n")
    result = ran(capsys, "predict", "m.mvi", "n.csv", "--json")
    assert len(result.json["predictions"]["predicted"]) == result.json["rows"] == 2
    assert "note: 3 lines are blank and are no rows (lines 1, 4, 5)." in result.err
    raw = read(text_file(tmp_path / "n.csv", "a,b\n1,1\n\n2,2\n"))
    assert raw.notes == ("line 3 is blank and is no row.",)
    assert raw.place(1) == "row 2 (line 4)"


def test_blank_lines_of_one_column_are_missing_values(tmp_path):
    raw = read(text_file(tmp_path / "n.csv", 'a\n1\n\n""\n2\n\n\n'))
    assert raw.cells == {"a": ["1", "", "", "2"]}
    assert raw.notes == ("2 lines are blank and are no rows (lines 6, 7).",)
    assert read(text_file(tmp_path / "n.csv", 'a\n1\n""\n')).cells == {"a": ["1", ""]}


# --- numbers ------------------------------------------------------------------------------------


def of_cells(tmp_path, cells, **options):
    rows = "".join(f"{one};{'ab'[i % 2]}\n" for i, one in enumerate(cells))
    raw = read(text_file(tmp_path / "t.csv", "x;y\n" + rows), Options(";", **options))
    return raw, learnt(raw, "y", Wishes())


def test_points_between_thousands_are_no_decimals(tmp_path):
    cells = ["950,5", "12.345", "0,5", "1.234.567,25"] * 3
    with pytest.raises(mixvi.InputError, match=r"'x', row 2 \(line 3\): in '12.345' a point") as it:
        of_cells(tmp_path, cells, decimal=",")
    assert "--thousands ." in str(it.value)
    raw, columns = of_cells(tmp_path, cells, decimal=",", thousands=".")
    x, _ = columns.encoded(raw)
    np.testing.assert_array_equal(x[:4, 0], [950.5, 12345, 0.5, 1234567.25])
    raw, _ = of_cells(tmp_path, ["0.125", "1,5"] * 6, decimal=",")
    assert raw.cells["x"][:2] == ["0.125", "1.5"]


def test_new_rows_with_thousands_are_refused_too(tmp_path, straight, capsys):
    text_file(tmp_path / "n.csv", "a;b\n1,5;1\n12.345;2\n")
    result = ran(capsys, "predict", "m.mvi", "n.csv", "--decimal", ",")
    assert result.code == 1
    assert "column 'a', row 2 (line 3): in '12.345' a point seems to part thousands" in result.err
    fine = ran(capsys, "predict", "m.mvi", "n.csv", "--decimal", ",", "--thousands", ".")
    assert fine.code == 0
    assert "outside what training has seen" in fine.err


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (["1,234.50", "999.25"] * 6, r"'1,234.50' a comma seems to part thousands.*--thousands ,"),
        (["1,234", "999"] * 6, r"'1,234' a comma .*--thousands , \(or, .* with --decimal ,\)"),
        (["1,234", "1,5"] * 6, "has decimal commas"),
        (["$1,234.50", "$99.00"] * 6, r"'\$1,234.50' looks like a number.*'\$' out.*--thousands ,"),
        (["12 %", "7 %"] * 6, r"'12 %' looks like a number.*'%' out of the cells"),
        (["1.234,50 €", "9,00 €"] * 6, "'1.234,50 €' .*--decimal , --thousands ."),
        (["12"] * 11 + ["1,234"], r"in '1,234' a comma seems to part thousands"),
    ],
)
def test_numbers_for_people_get_a_sentence(tmp_path, cells, sentence):
    with pytest.raises(mixvi.InputError, match=sentence):
        of_cells(tmp_path, cells)


def test_thousands_that_are_named(tmp_path):
    for sign, cell in ((",", "1,234.5"), ("'", "1'234.5"), (" ", "1\u00a0234.5"), (" ", "1 234.5")):
        raw, _ = of_cells(tmp_path, [cell, "-12"] * 6, thousands=sign)
        assert raw.cells["x"][:2] == ["1234.5", "-12"]
    with pytest.raises(mixvi.InputError, match="the decimal sign already: add --decimal ,"):
        of_cells(tmp_path, ["1", "2"], thousands=".")
    texts = ["1,234 km", "12,345 km"] * 6
    assert of_cells(tmp_path, texts, thousands=",")[0].cells["x"] == texts


def test_figures_have_the_digits_that_tell_them_apart():
    assert figures(18.0, 42.2) == ["18", "42.2"]
    assert figures(25.0, 346.0, 140.5) == ["25", "346", "140.5"]
    assert figures(1e10 - 1, 1e10 + 1) == ["9,999,999,999.0", "10,000,000,001.0"]
    assert figures(1234.56, 1234.78) == ["1,234.56", "1,234.78"]
    assert figures(1.00001e-9, 1.00002e-9) == ["1.00001e-09", "1.00002e-09"]
    assert figures(5.0, 5.0) == ["5", "5"]


def test_columns_far_from_zero(tmp_path, capsys):
    written(tmp_path / "t.csv", lines(x=lambda x: x + 1e11))
    fit = ran(capsys, "fit", "t.csv", "-t", "y", *FIT)
    assert "explains 9" in fit.out
    assert "1e+11" not in fit.out
    table = lines(far=lambda x: 1e15 * (1 + 2**-50 * (x > 0)), x=lambda x: x)
    written(tmp_path / "t.csv", table | {"far": [f"{float(one):.1f}" for one in table["far"]]})
    fit = ran(capsys, "fit", "t.csv", "-t", "y", *FIT)
    assert "Left out 'far': it is 1e+15 in every row, but for rounding." in fit.out


@pytest.mark.parametrize("text", ["1e140", "1e149", "1e300", "-1e300"])
@pytest.mark.parametrize("how", [(), ("--json",)])
def test_values_too_large_to_predict_from_are_named(tmp_path, straight, capsys, text, how):
    text_file(tmp_path / "n.csv", f"a,b\n1,1\n{text},1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ran(capsys, "predict", "m.mvi", "n.csv", *how)
    if abs(float(text)) < 1e150:
        assert result.code == 0
        assert "nan" not in result.out
        return
    assert result.code == 1
    assert "column 'a', row 2 (line 3)" in result.err
    assert "too large" in result.err


def test_counts_that_overflow_are_named(tmp_path, saved, capsys):
    table = changed(only(people(5, seed=2), *FEATURES), "age", 3, "1e6")
    written(tmp_path / "n.csv", table)
    for how in ((), ("--json",)):
        result = ran(capsys, "predict", saved / "visits.mvi", "n.csv", *how)
        assert result.code == 1
        assert "column 'age', row 4 (line 5): 1e+06 is too far from what training" in result.err
    model = tables.load(saved / "visits.mvi")
    x, _ = model.columns.encoded(read("n.csv"))
    with pytest.raises(mixvi.InputError, match="'age', row 4: 1e\\+06 is too far"):
        model.predict(x)


def test_targets_of_any_size(tmp_path, capsys):
    scores = []
    for size in (1, 1e140, 1e-250):
        table = lines()
        table["y"] = [repr(float(one) * size) for one in table["y"]]
        written(tmp_path / "t.csv", table)
        fit = ran(capsys, "fit", "t.csv", "-t", "y", "--json", *FIT)
        assert (fit.code, fit.err) == (0, "")
        scores.append(fit.json["score"])
        assert scores[-1]["hit"] / size == pytest.approx(scores[0]["hit"], rel=1e-6)
        assert scores[-1]["explained"] == pytest.approx(scores[0]["explained"], rel=1e-6)
    table["y"][3] = "1e305"
    written(tmp_path / "t.csv", table)
    fit = ran(capsys, "fit", "t.csv", "-t", "y", "--json", "-o", "huge.mvi", *FIT)
    assert fit.code == 1
    assert "column 'y', row 4 (line 5): '1e305' is too large to reckon with" in fit.err
    assert not (tmp_path / "huge.mvi").exists()


def test_json_has_null_for_what_is_not_finite():
    assert cli._as_json({"a": [float("nan"), 1.5], "b": float("-inf")}) == (
        '{"a": [null, 1.5], "b": null}'
    )


@pytest.mark.parametrize(
    ("level", "names"),
    [
        (0.9, ("5%", "95%")),
        (0.8, ("10%", "90%")),
        (0.95, ("2.5%", "97.5%")),
        (0.6827, ("15.87%", "84.14%")),
        (0.999, ("0.05%", "99.95%")),
        (0.00001, ("49.9995%", "50.0005%")),
        (0.9999999, ("0.000005%", "99.999995%")),
    ],
)
def test_the_ends_of_an_interval_have_names_of_their_own(level, names):
    if level != 0.6827:  # halfway between two names
        assert percentages(level) == names
    for one in (level, 1e-9, 1 - 1e-9):
        low, high = (float(name[:-1]) for name in percentages(one))
        assert 0 < low < 50 < high < 100
        assert low + high == pytest.approx(100, abs=1e-13)


def test_intervals_that_hold_nothing_or_everything(saved, capsys):
    args = ("predict", saved / "spent.mvi", saved / "new.csv", "--interval")
    assert len(ran(capsys, *args, "0.00001").out.splitlines()[0].split(",")) == 3
    for share in ("1e-12", "0.9999999999999"):
        result = ran(capsys, *args, share)
        assert result.code == 1
        assert "between 0 and 1, and not within 1e-09 of them" in result.err


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["Yes", "No", "Yes"] * 5, ("No", "Yes")),
        (["TRUE", "FALSE", "True", "TRUE"] * 5, ("FALSE", "TRUE")),
        (["1.0", "0.0", "1"] * 5, ("0.0", "1.0")),
        (["b", "A"] * 5, ("A", "b")),
    ],
)
def test_classes_are_spelt_as_in_the_file(tmp_path, cells, classes):
    written(tmp_path / "t.csv", {"x": [str(i) for i in range(len(cells))], "y": cells})
    target, y = target_of(read(tmp_path / "t.csv"), "y", None)
    assert target.classes == classes
    assert [classes[int(i)].casefold()[:1] for i in y] == [one.casefold()[:1] for one in cells]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_a_byte_order_mark_is_no_letter(tmp_path, encoding):
    content = "\ufeffa,b\n1,2\n".encode("utf-8" if encoding == "latin-1" else encoding)
    assert read(text_file(tmp_path / "t.csv", content), Options(encoding=encoding)).names == (
        "a",
        "b",
    )


def test_letters_that_a_font_lacks(tmp_path, capsys):
    table = lines()
    written(tmp_path / "t.csv", {"年齢": table["x"], "y": table["y"]})
    fit = ran(capsys, "fit", "t.csv", "-t", "y", "--basis", "linear")
    assert (fit.code, fit.err) == (0, "")
    assert "年齢" in (tmp_path / "t-report.html").read_text()


def test_types_are_kept_beside_predictions(tmp_path, straight, capsys):
    pa = pytest.importorskip("pyarrow")
    import datetime

    import pyarrow.parquet as pq

    day = datetime.date(2024, 1, 2)
    given = pa.table({"a": [1.5, None], "b": pa.array([1, 2], pa.int8()), "c": [day] * 2})
    pq.write_table(given, tmp_path / "n.parquet")
    args = ("--with-input", "-o", "out.parquet")
    assert ran(capsys, "predict", "m.mvi", "n.parquet", *args).code == 0
    back = pq.read_table(tmp_path / "out.parquet")
    assert back.select(["a", "b", "c"]) == given
    assert back.schema.field("predicted").type == pa.float64()
    text_file(tmp_path / "n.csv", "a,b,code,city\n1.5,1,007,Rome\nNA,2,008,\n")
    assert ran(capsys, "predict", "m.mvi", "n.csv", *args).code == 0
    back = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert (back["a"], back["b"]) == ([1.5, None], [1, 2])
    assert (back["code"], back["city"]) == (["007", "008"], ["Rome", ""])


# --- missing values -----------------------------------------------------------------------------


def test_which_texts_stand_for_no_value(tmp_path, capsys):
    """NA is a country; -9 is none."""
    table = only(people(), "age", "did")
    table["country"] = (["NA", "DE", "FR"] * 20)[:60]
    table["age"][4:6] = ["-9", ""]
    written(tmp_path / "t.csv", table)
    args = ("fit", "t.csv", "-t", "did", "--impute", "median", *FIT)
    plain = ran(capsys, *args)
    assert "Note: column 'country': 'NA' in 20 cells, taken for no value (--missing" in plain.out
    refused = ran(capsys, "fit", "t.csv", "-t", "did", "--drop", "age", *FIT)
    assert "the value is missing (and in 19 more)" in refused.err
    assert "(Taken for no value: 'NA' in 20 cells; --missing when fitting says" in refused.err
    fit = ran(capsys, *args, "--missing", "-9", "--json")
    age, country = fit.json["columns"]
    assert (age["n_missing"], age["low"]) == (2, 20)
    assert country["levels"] == ["DE", "FR", "NA"]
    # The model remembers.
    new = {"age": ["-9", "30"], "country": ["NA", "DE"]}
    written(tmp_path / "n.csv", new)
    predict = ran(capsys, "predict", "t.mvi", "n.csv")
    assert predict.code == 0
    assert "column 'age': '-9' in 1 cell, taken for no value" in predict.err
    nothing = ran(capsys, *args, "--missing", "--json").json["columns"]
    assert (nothing[0]["n_missing"], nothing[0]["low"]) == (1, -9)


def test_what_is_no_file_of_ours_is_said_in_our_words(tmp_path):
    (tmp_path / "bad.npz").write_text("a,b\n1,2\n")
    with pytest.raises(mixvi.InputError, match="is not a posterior saved by mixvi") as it:
        mixvi.load(tmp_path / "bad.npz")
    assert "pickle" not in str(it.value)
    np.savez(tmp_path / "objects.npz", header=np.array([{}], dtype=object))
    with pytest.raises(mixvi.InputError, match="is not a posterior saved by mixvi") as it:
        mixvi.load(tmp_path / "objects.npz")
    assert "pickle" not in str(it.value)
