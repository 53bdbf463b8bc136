"""Files as they come: separators, encodings, quotes; and a sentence for what cannot be read."""

import numpy as np
import pytest
from table_cases import FEATURES, changed, only, people, written

import mixvi
from mixvi.tables._columns import Category, Number, Wishes, learnt
from mixvi.tables._read import Options, read
from mixvi.tables._target import target_of


def of_text(tmp_path, text: str | bytes, **options):
    path = tmp_path / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path, Options(**options))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_found(tmp_path, separator):
    raw = read(written(tmp_path / "t.csv", {"a b": ["1", "x,y"], "c": ["2;3", "4"]}, separator))
    assert raw.names == ("a b", "c")
    assert raw.cells == {"a b": ["1", "x,y"], "c": ["2;3", "4"]}


def test_a_comma_in_texts_does_not_win_over_the_separator(tmp_path):
    raw = of_text(tmp_path, "name;note\na;one, two, three\nb;four\n")
    assert raw.names == ("name", "note")


def test_marks_blank_lines_and_line_ends(tmp_path):
    raw = of_text(tmp_path, b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n 3 ,4\r\n")
    assert raw.names == ("a", "b")
    assert raw.cells["a"] == ["1", "3"]
    assert raw.place(1) == "row 2 (line 4)"
    assert of_text(tmp_path, "a,b\n1,é\n".encode("utf-16")).cells["b"] == ["é"]


def test_lines_are_those_of_an_editor(tmp_path):
    raw = of_text(tmp_path, 'a,b\n1,"two\nlines"\n3,4\n')
    assert raw.place(1) == "row 2 (line 4)"
    assert raw.cells["b"][0] == "two\nlines"


def test_decimal_commas_and_encodings_that_are_named(tmp_path):
    raw = of_text(tmp_path, "a;b\n1,5;x\n-,25;y\n1,2,3;z\n", decimal=",")
    assert raw.cells["a"] == ["1.5", "-.25", "1,2,3"]
    latin = "a,b\n1,ü\n".encode("latin-1")
    assert of_text(tmp_path, latin, encoding="latin-1").cells["b"] == ["ü"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("a,b\n", "has a header and no rows"),
        ("a,b,a\n1,2,3\n", r"two columns named 'a' \(columns 1 and 3\)"),
        ("1,2\n3,4\n", "first line .* holds numbers, not names"),
        ("a,b\n1,2\n1,2,3\n", "line 3: 3 cells where the header has 2 names"),
        ('a,b\n1,2\n3,"4\n5,6\n', "line 3: a quote is opened and never closed"),
        ('a,b\n1,"2"x\n', "line 2: after the quote that closes a cell there is more text"),
        (b"a,b\n1,\xfc\n", "line 2: byte 0xfc is not UTF-8.*--encoding latin-1"),
        (b"a,b\n1,\x00\n", "line 2, holds a zero byte"),
        (b"PK\x03\x04....", "a workbook or an archive"),
        (b"\x1f\x8b....", "compressed: unpack it"),
        (b"PAR1....", "is not a Parquet file that can be read"),
        ("a,b\n" + "x" * 200_000 + ",1\n", "longer than 131,072 characters"),
        (",".join(f"c{i}" for i in range(2001)) + "\n", "2,001 columns, more than 2,000"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, content, sentence):
    with pytest.raises(mixvi.InputError, match=sentence):
        of_text(tmp_path, content)


def test_files_that_are_not_there(tmp_path):
    written(tmp_path / "sales.csv", {"a": ["1"]})
    with pytest.raises(mixvi.InputError, match=r"no file .*did you mean 'sales.csv'\?"):
        read(tmp_path / "sale.csv")
    with pytest.raises(mixvi.InputError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(mixvi.InputError, match="no encoding that Python knows"):
        read(tmp_path / "sales.csv", Options(encoding="latin-99"))


# --- what columns hold --------------------------------------------------------------------------


def columns_of(tmp_path, table, target="did", **wishes):
    raw = read(written(tmp_path / "t.csv", table))
    return raw, learnt(raw, target, Wishes(**wishes))


def test_kinds_ranges_and_features(tmp_path):
    table = only(people(), *FEATURES, "did")
    raw, columns = columns_of(tmp_path, table)
    age, height, city, member = columns.used
    assert isinstance(age, Number)
    assert (age.low, age.high) == (min(map(int, table["age"])), max(map(int, table["age"])))
    assert isinstance(height, Number)
    assert isinstance(city, Category)
    assert city.levels == ("Oslo", "Paris", "Rome")
    assert isinstance(member, Category)
    assert (member.kind, member.levels) == ("yes/no", ("no", "yes"))
    assert columns.features[2:] == ["city = Oslo", "city = Paris", "city = Rome", "member = yes"]
    x, notes = columns.encoded(raw)
    assert not notes
    np.testing.assert_array_equal(x[:, 0], np.array(table["age"], dtype=float))
    np.testing.assert_array_equal(x[:, 4], np.array(table["city"]) == "Rome")
    np.testing.assert_array_equal(x[:, 5], np.array(table["member"]) == "yes")


def test_truths_in_any_case_and_numbers_read_as_categories(tmp_path):
    table = only(people(4), "age", "did") | {"t": ["TRUE", "False", "true", "FALSE"]}
    table["zone"] = ["1", "2", "1.0", "2"]
    _, columns = columns_of(tmp_path, table, category=("zone",))
    assert columns.used[1].levels == ("false", "true")
    assert columns.used[2].levels == ("1", "2")


def test_columns_that_are_left_out_and_why(tmp_path):
    table = only(people(), "age", "did")
    table |= {"": [str(i) for i in range(60)], "id": [str(7 * i % 61) for i in range(60)]}
    table |= {"name": [f"no {i}" for i in range(60)], "note": [f"x{i // 2 * 2}" for i in range(60)]}
    table |= {"same": ["7"] * 60, "one": ["word"] * 60, "nothing": ["NA"] * 60}
    _, columns = columns_of(tmp_path, table, drop=("note",))
    assert [one.name for one in columns.used] == ["age"]
    reasons = columns.left_out
    assert "counts the rows" in reasons["column 3"]
    assert "name rows" in reasons["id"]
    assert "every value is another text" in reasons["name"]
    assert reasons["same"] == "it is 7 in every row"
    assert reasons["one"] == "it is 'word' in every row"
    assert (
        reasons["nothing"] == "it is empty but for 'NA' in 60 cells, taken for no value (--missing)"
    )
    assert "--drop" in reasons["note"]
    table["note"] = [f"x{min(i, 44)}" for i in range(60)]
    _, columns = columns_of(tmp_path, table, keep=("id",))
    assert [one.name for one in columns.used] == ["age", "id"]
    assert "45 different texts in 60 rows" in columns.left_out["note"]


def test_missing_values_are_filled_where_that_is_wanted(tmp_path):
    table = changed(only(people(), *FEATURES, "did"), "age", 3, "NA")
    table = changed(table, "city", 5, "")
    with pytest.raises(mixvi.InputError, match=r"'age', row 4 \(line 5\): the value is missing"):
        columns_of(tmp_path, table)
    raw, columns = columns_of(tmp_path, table, impute=True)
    x, _ = columns.encoded(raw)
    known = [float(one) for i, one in enumerate(table["age"]) if i != 3]
    assert x[3, 0] == np.median(known)
    cities = [one for one in table["city"] if one]
    usual = max(sorted(set(cities)), key=cities.count)
    assert x[5, columns.features.index(f"city = {usual}")] == 1
    assert [one.n_missing for one in columns.used] == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("age", "old", r"'age', row 3 \(line 4\): 'old' is not a number, and 59 of 60 are"),
        ("age", "inf", r"row 3 \(line 4\): 'inf' is not finite"),
        ("age", "1e999", "'1e999' is too large for a number"),
        ("age", "12345678901234567890", "more digits than a number keeps"),
        ("height", "170,5", "Decimal commas are read with --decimal ,"),
        ("age", "007", "'007' is not a number.*--category age"),
    ],
)
def test_cells_that_cannot_be(tmp_path, name, text, sentence):
    table = changed(only(people(), *FEATURES, "did"), name, 2, text)
    with pytest.raises(mixvi.InputError, match=sentence):
        columns_of(tmp_path, table)


@pytest.mark.parametrize(
    "dates",
    [
        "2024-01-02",
        "2024-1-2 10:30:00",
        "02/01/2024",
        "2.1.24",
        "3 Jan 2024",
        "Jan 3, 2024",
        "10:30",
    ],
)
def test_dates_are_named(tmp_path, dates):
    table = only(people(), "age", "did") | {"when": [dates] * 60}
    with pytest.raises(mixvi.InputError, match=r"'when' holds dates or times .*--drop when"):
        columns_of(tmp_path, table)
    _, columns = columns_of(tmp_path, table, drop=("when",))
    assert len(columns.used) == 1


def test_other_columns_that_are_refused(tmp_path):
    table = only(people(), "age", "did")
    commas = table | {"price": ["1,5", "2"] * 30}
    with pytest.raises(mixvi.InputError, match=r"'price' has decimal commas .*--decimal ,"):
        columns_of(tmp_path, commas)
    many = {"x": [f"v{i % 130}" for i in range(400)], "did": ["a", "b"] * 200}
    with pytest.raises(mixvi.InputError, match="130 different values, more than the 100"):
        columns_of(tmp_path, many)
    with pytest.raises(mixvi.InputError, match=r"no column is left .*'x': it is 1 in every row"):
        columns_of(tmp_path, {"x": ["1"] * 9, "did": ["a", "b", "c"] * 3})
    with pytest.raises(mixvi.InputError, match=r"--drop: .*no column 'agee': did you mean 'age'"):
        columns_of(tmp_path, table, drop=("agee",))
    with pytest.raises(mixvi.InputError, match="--drop: 'did' is the target"):
        columns_of(tmp_path, table, drop=("did",))


# --- targets ------------------------------------------------------------------------------------


def target_in(tmp_path, cells, task=None, name="y"):
    table = {"x": [str(i) for i in range(len(cells))], "y": cells}
    return target_of(read(written(tmp_path / "t.csv", table)), name, task)


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["a", "b", "c"] * 10, "classify"),
        (["true", "false"] * 10, "classify"),
        (["0", "1"] * 10, "classify"),
        (["1", "2", "3"] * 10, "classify"),
        (["0", "1", "2", "3", "9"] * 10, "count"),
        (["0.5", "1.5", "2.5"] * 10, "regress"),
        (["1990", "2000", "2010"] * 10, "regress"),
        (["-1", "0", "1"] * 10, "regress"),
    ],
)
def test_guesses(tmp_path, cells, task):
    target, _ = target_in(tmp_path, cells)
    assert target.task == task
    assert target.guess


def test_classes_in_order(tmp_path):
    target, y = target_in(tmp_path, ["10", "9", "10", "9.0", "10"])
    assert target.classes == ("9", "10")
    assert y.tolist() == [1, 0, 1, 0, 1]
    target, y = target_in(tmp_path, ["Yes", "no", "YES", "No", "yes"])
    assert target.classes == ("no", "Yes")
    assert target.counts == (2, 3)


@pytest.mark.parametrize(
    ("cells", "task", "sentence"),
    [
        (["a"] * 9, None, "is 'a' in every row: there is one class only"),
        (["4.2"] * 9, "regress", "is 4.2 in every row"),
        (["1", "2", "x"] * 9, "regress", r"holds text \('1' in row 1|holds text"),
        (["1", "2", "-3"] * 9, "count", r"row 3 \(line 4\), is -3, which is no count"),
        (["1", "2", "2.5"] * 9, "count", "is 2.5, which is no count"),
        (["1", "2", ""] * 9, None, r"missing in row 3 \(line 4\) \(and 8 more\)"),
        ([str(i) for i in range(40)], "classify", "40 different values, too many for classes"),
        (["1", "2"], None, "has 2 rows: too few"),
        (["?"] * 9, None, "'y' is empty"),
        (["2024-01-01", "2024-01-02", "2024-02-01"] * 3, None, "holds dates"),
    ],
)
def test_targets_that_cannot_be(tmp_path, cells, task, sentence):
    with pytest.raises(mixvi.InputError, match=sentence):
        target_in(tmp_path, cells, task)


def test_a_target_that_is_not_there(tmp_path):
    with pytest.raises(mixvi.InputError, match=r"--target: .* no column 'Y': did you mean 'y'\?"):
        target_in(tmp_path, ["1", "2"] * 9, name="Y")


# --- Parquet ------------------------------------------------------------------------------------


def test_parquet_says_what_csv_says(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = only(people(), *FEATURES, "did")
    typed = pa.table(
        {
            "age": [int(one) for one in table["age"]],
            "height": [float(one) for one in table["height"]],
            "city": pa.array(table["city"]).dictionary_encode(),
            "member": [one == "yes" for one in table["member"]],
            "did": table["did"],
        }
    )
    pq.write_table(typed, tmp_path / "t.parquet")
    of_text = columns_of(tmp_path, table)
    raw = read(tmp_path / "t.parquet")
    of_types = learnt(raw, "did", Wishes())
    assert of_types.used[:3] == of_text[1].used[:3]
    np.testing.assert_array_equal(of_types.encoded(raw)[0], of_text[1].encoded(of_text[0])[0])
    assert raw.place(2) == "row 3"


def test_parquet_columns_that_are_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import datetime

    import pyarrow.parquet as pq

    day = datetime.date(2024, 1, 2)
    base = {"age": [1.5, 2.5, None], "y": ["a", "b", "a"]}
    for extra, sentence in [
        ({"when": [day] * 3}, "'when' holds dates or times"),
        ({"list": [[1], [2], [3]]}, "'list' holds values of type list.*neither numbers nor"),
        ({}, r"'age', row 3: the value is missing"),
    ]:
        pq.write_table(pa.table(base | extra), tmp_path / "t.parquet")
        wishes = Wishes(impute=bool(extra))
        with pytest.raises(mixvi.InputError, match=sentence):
            learnt(read(tmp_path / "t.parquet"), "y", wishes)


def test_digits_that_are_typed_as_text_are_categories(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    codes = pa.table({"zip": ["01234", "99", "01234"], "y": [1, 2, 3]})
    pq.write_table(codes, tmp_path / "t.parquet")
    (column,) = learnt(read(tmp_path / "t.parquet"), "y", Wishes()).used
    assert isinstance(column, Category)
