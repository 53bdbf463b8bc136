"""Parquet and CSV files as chunks: what is read, and what is refused in which words."""

import subprocess
import sys

import numpy as np
import pytest

import mixvi
from mixvi._density import _sources, _table_files

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TABLE = {"b": np.arange(5.0), "a": np.arange(5), "c": np.array([True, False, True, True, False])}


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return path


def text(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(pieces):
    """As read, without what fills them up."""
    read = list(pieces.read())
    assert [bool(one.is_first) for one in read] == [True] + [False] * (len(read) - 1)
    return {key: np.concatenate([one.rows[key][: one.n] for one in read]) for key in read[0].rows}


def refused(make, *words):
    with pytest.raises(mixvi.InputError) as caught:
        repr(make())
    for word in words:
        assert word in str(caught.value)


# --- what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, "1MiB"])
def test_columns_by_name_by_choice_and_in_matrices(tmp_path, memory):
    path = write(tmp_path / "t.parquet", TABLE)
    every = rows(mixvi.Pieces.parquet(path, memory=memory))
    for name, column in TABLE.items():
        np.testing.assert_array_equal(every[name], column)
    assert {key: one.dtype.kind for key, one in every.items()} == {"a": "i", "b": "f", "c": "b"}
    assert set(rows(mixvi.Pieces.parquet(path, ["c", "a"], memory=memory))) == {"a", "c"}
    assert set(rows(mixvi.Pieces.parquet(path, "c", memory=memory))) == {"c"}
    own = rows(mixvi.Pieces.parquet(path, {"x": ["c", "b"], "y": "a"}, memory=memory))
    np.testing.assert_array_equal(own["x"], np.stack([TABLE["c"], TABLE["b"]], 1))
    np.testing.assert_array_equal(own["y"], TABLE["a"])


@pytest.mark.parametrize("memory", [0, "1MiB"])
def test_several_files_and_folders_in_the_order_of_their_names(tmp_path, memory):
    for k, kind in enumerate([np.int8, np.float32, np.int64]):
        write(tmp_path / f"part-{k}.parquet", {"a": np.arange(40, dtype=kind) + 100 * k})
    text(tmp_path / "_SUCCESS", "")
    write(tmp_path / ".hidden.parquet", {"other": np.zeros(3)})
    write(tmp_path / "_set_aside.parquet", {"other": np.zeros(3)})
    expected = np.concatenate([np.arange(40.0) + 100 * k for k in range(3)])
    found = rows(mixvi.Pieces.parquet(tmp_path, memory=memory, rows=32))
    np.testing.assert_array_equal(found["a"], expected)
    paths = [str(tmp_path / f"part-{k}.parquet") for k in (2, 0)]
    found = rows(mixvi.Pieces.parquet(paths, memory=memory))
    np.testing.assert_array_equal(found["a"], np.r_[expected[80:], expected[:40]])


def test_small_batches_and_types_that_arrow_knows(tmp_path, monkeypatch):
    monkeypatch.setattr(_table_files, "CHUNK", 8 * 7)
    table = {
        "half": pa.array(np.arange(50, dtype=np.float16)),
        "dictionary": pa.array(np.arange(50) % 3).dictionary_encode(),
        "decimal": pa.array(np.arange(50)).cast(pa.decimal128(21, 2)),
        "unsigned": pa.array(np.arange(50, dtype=np.uint32)),
    }
    found = rows(mixvi.Pieces.parquet(write(tmp_path / "t.parquet", table), rows=32))
    for name, period in {"half": 50, "dictionary": 3, "decimal": 50, "unsigned": 50}.items():
        np.testing.assert_array_equal(found[name], np.arange(50) % period)
    assert found["unsigned"].dtype == np.int64
    assert found["decimal"].dtype == np.float64


def test_csv(tmp_path):
    path = text(tmp_path / "t.csv", "a,b,c,name", "1,0.5,true,x", "2,1,false,y", "3,1e3,true,z")
    found = rows(mixvi.Pieces.csv(path, ["c", "b", "a"]))
    assert {key: one.tolist() for key, one in found.items()} == {
        "a": [1, 2, 3],
        "b": [0.5, 1.0, 1000.0],
        "c": [True, False, True],
    }
    other = text(tmp_path / "t2.csv", "a;b", "1;2", "2;3")
    assert rows(mixvi.Pieces.csv(other, separator=";"))["b"].tolist() == [2, 3]


def test_a_column_of_csv_may_go_on_with_real_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(_table_files, "CHUNK", 2000)
    lines = ["a,b,c"] + ["1,2,3"] * 2000 + ["1,2.5,3"]
    path = text(tmp_path / "t.csv", *lines)
    for memory in (0, "1MiB"):
        pieces = mixvi.Pieces.csv(path, ["c", "b"], memory=memory)
        found = rows(pieces)
        assert found["b"][-2:].tolist() == [2.0, 2.5]
        assert found["c"].dtype == np.int64
        assert pieces.n_rows == 2001


# --- what is refused --------------------------------------------------------------------------


def test_parquet_that_cannot_be(tmp_path):
    path = write(tmp_path / "rows.parquet", TABLE)
    pieces = mixvi.Pieces.parquet
    refused(lambda: pieces(tmp_path / "row.parquet"), "there is no file", "'rows.parquet'?")
    refused(lambda: pieces(path, ["aa"]), "no column 'aa'", "did you mean 'a'?", "'b', 'a', 'c'")
    refused(lambda: pieces(path, []), "columns names no column")
    refused(lambda: pieces(3), "not int")
    refused(lambda: pieces([]), "empty")
    (tmp_path / "none").mkdir()
    refused(lambda: pieces(tmp_path / "none"), "holds no Parquet file")
    (tmp_path / "cut.parquet").write_bytes(path.read_bytes()[:-20])
    refused(lambda: pieces(tmp_path / "cut.parquet"), "cut.parquet", "cut short")
    strange = {
        "name": (["x", "y"], "holds text"),
        "day": (np.array(["2020-01-01", "2020-01-02"], "M8[D]"), "dates or times"),
        "list": ([[1.0], [2.0]], "values of type list"),
        "nothing": (pa.nulls(2), "nothing at all"),
    }
    for name, (column, said) in strange.items():
        bad = write(tmp_path / "bad.parquet", {"a": [1, 2], name: column})
        refused(lambda bad=bad: pieces(bad), "bad.parquet", f"column {name!r}", said)
        assert pieces(bad, "a").n_rows == 2
    gap = write(tmp_path / "gap.parquet", {"a": pa.array([1, 2, None, 4])})
    refused(lambda: pieces(gap), "gap.parquet", "'a' is empty in row 2")
    nan = write(tmp_path / "nan.parquet", {"a": [0.0] * 9 + [np.nan]}, row_group_size=4)
    refused(lambda: pieces(nan), "nan.parquet", "'a' is NaN in row 9")
    refused(lambda: pieces(write(tmp_path / "no.parquet", {"a": np.zeros(0)})), "no rows")
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    refused(lambda: pieces(tmp_path / "twice.parquet"), "two columns named 'a'")


def test_files_that_do_not_go_together(tmp_path):
    one = write(tmp_path / "1.parquet", TABLE)
    fewer = write(tmp_path / "2.parquet", {"a": [1.0]})
    more = write(tmp_path / "3.parquet", TABLE | {"z": np.zeros(5)})
    refused(lambda: mixvi.Pieces.parquet([one, fewer]), "2.parquet", "has no column 'b'")
    refused(lambda: mixvi.Pieces.parquet([one, more]), "3.parquet", "has a column 'z'")
    assert mixvi.Pieces.parquet([one, more], ["a"]).n_rows == 10
    first = text(tmp_path / "1.csv", "a,b", "1,2")
    second = text(tmp_path / "2.csv", "b,c", "1,2")
    refused(lambda: mixvi.Pieces.csv([first, second]), "2.csv", "has no column 'a'")


def test_csv_that_cannot_be(tmp_path, monkeypatch):
    monkeypatch.setattr(_table_files, "CHUNK", 2000)
    many = ["a,b"] + ["1,2"] * 1000
    cases = {
        ("a,b", "1,x"): ["column 'b' holds text"],
        ("a,b", "1,2020-01-01"): ["column 'b' holds dates"],
        (*many, "1,x"): ["column 'b' does not hold numbers in line 1002", "'x'"],
        (*many, "1"): ["Expected 2 columns, got 1", "cut short"],
        (*many, "1,"): ["column 'b' is empty in row 1000"],
        ("a,b",): ["no rows"],
        ("a,a", "1,2"): ["two columns named 'a'"],
    }
    for lines, words in cases.items():
        path = text(tmp_path / "t.csv", *lines)
        refused(lambda path=path: mixvi.Pieces.csv(path), "", *words)
    (tmp_path / "t.csv").write_text("")
    refused(lambda: mixvi.Pieces.csv(tmp_path / "t.csv"), "Empty CSV file")


def test_pyarrow_is_imported_when_it_is_needed():
    code = "import mixvi, sys; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pyarrow_that_is_not_there(tmp_path, monkeypatch):
    path = write(tmp_path / "t.parquet", TABLE)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'mixvi\[parquet\]'"):
        mixvi.Pieces.parquet(path)


def test_a_slow_reader_is_waited_for(monkeypatch):
    monkeypatch.setattr(_sources, "PATIENCE", 0.001)
    assert list(_sources.ahead(iter(range(200)), 1)) == list(range(200))
