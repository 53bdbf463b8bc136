"""The data sets of the paper: found, checked, split, and honest when they are not there."""

import hashlib
import struct
import sys
import zipfile

import numpy as np
import pytest

from data_sets import (
    FOLDER,
    distinct,
    needs_folder,
    save_mat,
    save_npz,
    tiny_arrays,
    truncated,
)
from mixvi import MixviError
from reproduction import data, data_files, registry

# The sizes that the paper prints, but 253 for vehicle: it has 846 rows, so 293 is a slip.
PRINTED = {
    "banana": (2, 2, 400, 4900),
    "breast_cancer": (2, 9, 200, 77),
    "diabetis": (2, 8, 468, 300),
    "solar": (2, 9, 666, 400),
    "german": (2, 20, 700, 300),
    "heart": (2, 13, 170, 100),
    "image": (2, 18, 1300, 1010),
    "ringnorm": (2, 20, 400, 7000),
    "splice": (2, 60, 1000, 2175),
    "thyroid": (2, 5, 140, 75),
    "titanic": (2, 3, 150, 2051),
    "twonorm": (2, 20, 400, 7000),
    "waveform": (2, 21, 400, 4600),
    "ecoli": (8, 7, 236, 100),
    "crabs": (4, 5, 140, 60),
    "iris": (3, 4, 105, 45),
    "soybean": (4, 35, 33, 14),
    "wine": (3, 13, 125, 53),
    "glass": (6, 9, 150, 64),
    "vehicle": (4, 18, 593, 253),
    "balance": (3, 4, 438, 187),
}


pytestmark = pytest.mark.usefixtures("nothing_from_outside")


# --- the sets themselves ----------------------------------------------------------------------


def test_names_and_sizes_are_those_of_the_paper():
    assert tuple(PRINTED) == registry.BINARY + registry.MULTICLASS
    for name, sizes in PRINTED.items():
        record = registry.REGISTRY[name]
        assert (record.n_classes, record.features, record.n_train, record.n_test) == sizes
        assert record.n_splits == (20 if name in ("image", "splice") else 100)


@needs_folder
@pytest.mark.parametrize("name", registry.NAMES)
def test_every_set_of_the_folder_has_its_checksum(name):
    found = data.load(name, FOLDER)
    record = registry.REGISTRY[name]
    assert (found.name, found.n_classes) == (name, record.n_classes)
    assert found.x.shape == (record.rows, record.features)
    assert str(FOLDER) in found.source
    assert data.path(name, FOLDER) == str(FOLDER / record.file)
    split = data.splits(found, [record.n_splits - 1])[0]
    assert split.x.shape == (record.n_train, record.features)
    assert split.y_test.shape == (record.n_test,)


@needs_folder
@pytest.mark.parametrize("name", ["titanic", "splice"])
def test_published_splits_are_the_rows_of_the_file(name):
    """0-based, in the order of the file, though the rows are stored in another."""
    with np.load(FOLDER / registry.REGISTRY[name].file) as raw:
        raw = dict(raw)
    for split in data.splits(data.load(name, FOLDER), (0, 7)):
        i = split.index
        np.testing.assert_array_equal(split.x, raw["x"][raw["train"][i]])
        np.testing.assert_array_equal(split.y, raw["t"][raw["train"][i]])
        np.testing.assert_array_equal(split.x_test, raw["x"][raw["test"][i]])
        np.testing.assert_array_equal(split.y_test, raw["t"][raw["test"][i]])


@needs_folder
@pytest.mark.parametrize("name", ["balance", "iris", "wine"])
def test_sets_that_need_no_file_equal_those_of_the_folder(name):
    if name != "balance":
        pytest.importorskip("sklearn")
    built_in, stored = data.load(name), data.load(name, FOLDER)
    np.testing.assert_array_equal(built_in.x, stored.x)
    np.testing.assert_array_equal(built_in.y, stored.y)
    assert "npz" not in built_in.source
    assert "npz" in stored.source
    assert data.path(name) == built_in.source


def test_balance_is_the_sign_of_the_torque():
    scale = data.load("balance")
    torque = scale.x[:, 0] * scale.x[:, 1] - scale.x[:, 2] * scale.x[:, 3]
    assert np.bincount(scale.y).tolist() == [288, 49, 288]
    assert (torque[scale.y == 0] > 0).all()
    assert (torque[scale.y == 1] == 0).all()
    assert scale.x[:2].tolist() == [[1, 1, 1, 1], [1, 1, 1, 2]]
    assert scale.train is None


def test_a_loaded_set_is_kept_and_cannot_be_changed():
    assert data.load("balance") is data.load("balance")
    with pytest.raises(ValueError, match="read-only"):
        data.load("balance").x[0, 0] = 7


# --- canonical form ---------------------------------------------------------------------------


def test_repeated_and_distinct_rows_and_the_matlab_file_become_the_same_arrays(tiny, tmp_path):
    raw = tiny_arrays()
    save_npz(tmp_path / "all", tiny, raw)
    save_npz(tmp_path / "distinct", tiny, distinct(raw))
    save_mat(tmp_path / "benchmarks.mat", "tiny", raw)
    assert len(distinct(raw).x) < len(raw.x)
    ways = [data.load("tiny", tmp_path / way) for way in ("all", "distinct")]
    ways.append(data_files.parse([tmp_path / "benchmarks.mat"], tiny, "here"))
    for way in ways:
        joint = np.column_stack([way.x, way.y])
        assert np.array_equal(joint, np.array(sorted(set(map(tuple, joint)))))
        assert way.train.dtype == way.test.dtype == way.y.dtype == np.int64
        np.testing.assert_array_equal(way.x[way.train], raw.x[raw.train])
        np.testing.assert_array_equal(way.y[way.test], raw.y[raw.test])
        np.testing.assert_array_equal(way.train, ways[0].train)


@needs_folder
@pytest.mark.parametrize("name", ["solar", "heart", "titanic"])
def test_a_matlab_file_of_all_rows_gives_a_published_set(name, tmp_path):
    """Rows repeated and out of order, as benchmarks.mat may hold them."""
    record = registry.REGISTRY[name]
    with np.load(FOLDER / record.file) as file:
        stored = dict(file)
    rng = np.random.default_rng(1)
    order = rng.permutation(np.repeat(np.arange(len(stored["x"])), 2))
    where = np.argsort(order, kind="stable").reshape(-1, 2)  # two places of every row
    pick = [
        where[stored[key], rng.integers(2, size=stored[key].shape)] for key in ("train", "test")
    ]
    raw = data_files.Arrays(stored["x"][order].astype(float), stored["t"][order].astype(int), *pick)
    variable = {"solar": "flare_solar"}.get(name, name)
    save_mat(tmp_path / "benchmarks.mat", variable, raw)
    arrays = data_files.parse([tmp_path / "benchmarks.mat"], record, "here")
    expected = data.load(name, FOLDER)
    for key in ("x", "y", "train", "test"):
        np.testing.assert_array_equal(getattr(arrays, key), getattr(expected, key))


def test_the_checksum_sees_numbers_and_shapes_but_not_the_machine():
    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    digest = data_files.checksum(data_files.Arrays(x, y))
    by_hand = (
        b"x <f8 3x2\n" + struct.pack("<6d", *range(6)) + b"y <i8 3\n" + struct.pack("<3q", 0, 1, 1)
    )
    assert digest == hashlib.sha256(by_hand).hexdigest()
    assert digest == data_files.checksum(
        data_files.Arrays(np.asfortranarray(x).astype(">f8"), y.astype(">i4"))
    )
    for other in (data_files.Arrays(x.reshape(2, 3), y), data_files.Arrays(x, y[::-1])):
        assert digest != data_files.checksum(other)
    assert digest != data_files.checksum(data_files.Arrays(np.nextafter(x, 9), y))


# --- files that are not what they should be ---------------------------------------------------


def no_archive(path, raw, record):
    path.write_text("<html>Not Found</html>")


def empty(path, raw, record):
    path.write_bytes(b"")


def damaged(path, raw, record):
    content = bytearray(path.read_bytes())
    content[200:240] = bytes(40)
    path.write_bytes(bytes(content))


def not_an_array(path, raw, record):
    with zipfile.ZipFile(path, "w") as archive:
        for key in ("x", "t", "train", "test"):
            archive.writestr(f"{key}.npy", "nothing")


def with_arrays(**changes):
    def change(path, raw, record):
        save_npz(path.parent, record, raw, **changes)

    return change


WRONG = {
    "truncated": (truncated, "damaged or no npz file"),
    "no archive": (no_archive, "damaged or no npz file"),
    "empty": (empty, "damaged or no npz file"),
    "damaged": (damaged, "damaged or no npz file"),
    "no arrays in it": (not_an_array, "damaged or no npz file"),
    "no splits": (with_arrays(train=None), "lacks the array train"),
    "too many features": (with_arrays(x=np.zeros((10, 3))), "checksum"),
    "targets too short": (with_arrays(t=np.array([0, 1])), "checksum"),
    "not finite": (with_arrays(x=np.full((10, 2), np.nan)), "checksum"),
    "text": (with_arrays(x=np.full((10, 2), "a")), "checksum"),
    "three classes": (with_arrays(t=np.arange(10) % 3), "checksum"),
    "one split": (with_arrays(train=np.zeros((1, 6), int)), "checksum"),
    "index beyond": (with_arrays(test=np.full((3, 4), 10)), "checksum"),
    "index below": (with_arrays(test=np.full((3, 4), -1)), "checksum"),
    "more rows": (with_arrays(x=np.arange(20.0).reshape(10, 2)), "checksum"),
    "other numbers": (with_arrays(x=tiny_arrays().x * 2), "checksum"),
    "other splits": (with_arrays(train=tiny_arrays().train[::-1]), "checksum"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_named_with_fault_and_remedy(case, tiny, tmp_path, monkeypatch):
    change, fault = WRONG[case]
    raw = tiny_arrays()
    path = save_npz(tmp_path / "folder", tiny, raw)
    monkeypatch.setenv("MIXVI_DATA", str(path.parent))
    data.load("tiny")
    change(path, raw, tiny)
    with pytest.raises(registry.DataError) as caught:
        data.load("tiny")
    message = str(caught.value)
    assert fault in message
    assert str(path) in message
    assert "reproduction data get tiny" in message
    assert isinstance(caught.value, MixviError)


@needs_folder
def test_one_bit_in_a_published_set_is_noticed(tmp_path):
    record = registry.REGISTRY["heart"]
    with np.load(FOLDER / record.file) as file:
        stored = dict(file)
    stored["x"][5, 5] = np.nextafter(stored["x"][5, 5], np.inf)
    np.savez(tmp_path / record.file, **stored)
    with pytest.raises(registry.DataError, match="checksum"):
        data.load("heart", tmp_path)


# --- where it is looked for -------------------------------------------------------------------


def test_the_order_of_the_places(tiny, tmp_path, monkeypatch):
    raw = tiny_arrays()
    for folder in ("argument", "variable", "cache"):
        save_npz(tmp_path / folder, tiny, raw)
    monkeypatch.setenv("MIXVI_DATA", str(tmp_path / "variable"))
    assert data.path("tiny", tmp_path / "argument") == str(tmp_path / "argument" / tiny.file)
    assert data.path("tiny") == str(tmp_path / "variable" / tiny.file)
    (tmp_path / "variable" / tiny.file).unlink()
    assert data.path("tiny") == str(tmp_path / "cache" / tiny.file)
    monkeypatch.setenv("MIXVI_DATA", str(tmp_path / "nowhere"))
    assert data.load("tiny").source == f"the file {tmp_path / 'cache' / tiny.file} (downloaded)"
    assert data.load("balance").source == "balance is generated from its definition"


def test_a_set_that_is_nowhere_says_how_to_get_it(monkeypatch, tmp_path):
    with pytest.raises(registry.DataError, match="MIXVI_DATA is not set") as caught:
        data.load("banana")
    assert "`python -m reproduction data get banana`" in str(caught.value)
    assert "raetsch_banana.npz" in str(caught.value)
    monkeypatch.setenv("MIXVI_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(registry.DataError, match="nowhere is not a folder"):
        data.load("banana")
    monkeypatch.setenv("MIXVI_DATA", str(tmp_path))
    with pytest.raises(registry.DataError, match=r"has no raetsch_flare_solar\.npz"):
        data.path("solar")
    with pytest.raises(data.InputError, match="is not a folder"):
        data.load("banana", tmp_path / "nowhere")


def test_unknown_names():
    with pytest.raises(data.InputError, match="no data set 'bananas'; there are banana, breast"):
        data.load("bananas")


def test_without_scikit_learn_iris_is_a_download(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(registry.DataError, match="reproduction data get iris"):
        data.load("iris")
    (line,) = [one for one in data.describe().splitlines() if one.startswith("iris")]
    assert line.endswith("not here")


def test_the_list_says_where_everything_is(tiny, tmp_path, monkeypatch):
    save_npz(tmp_path / "folder", tiny, tiny_arrays())
    monkeypatch.setenv("MIXVI_DATA", str(tmp_path / "folder"))
    rows = {line.split()[0]: line for line in data.describe().splitlines()}
    assert set(registry.NAMES) < set(rows)
    assert rows["tiny"].endswith(" MIXVI_DATA")
    assert rows["balance"].endswith(" generated")
    assert rows["vehicle"].split()[1:8] == ["846", "18", "4", "100", "of", "593", "+"]
    assert rows["image"].endswith("20 of 1300 + 1010  not here")


# --- splits and draws -------------------------------------------------------------------------


def test_drawn_splits_do_not_depend_on_which_are_asked_for():
    scale = data.load("balance")
    several, single = data.splits(scale, [3, 5, 8]), data.splits(scale, np.array([5]))
    assert [split.index for split in several] == [3, 5, 8]
    assert single[0].index == 5
    order = np.random.default_rng([0, 5, 625]).permutation(625)
    for split in (several[1], single[0]):
        np.testing.assert_array_equal(split.x, scale.x[order[:438]])
        np.testing.assert_array_equal(split.y_test, scale.y[order[438:]])
    both = np.concatenate([several[0].x, several[0].x_test])
    assert np.array_equal(np.unique(both, axis=0), scale.x)
    assert not np.array_equal(several[0].x, several[1].x)
    assert not np.array_equal(single[0].x, data.splits(scale, [5], seed=1)[0].x)


def test_split_numbers_that_do_not_exist(tiny, tmp_path):
    save_npz(tmp_path / "cache", tiny, tiny_arrays())
    found = data.load("tiny")
    assert len(data.splits(found, range(3))) == 3
    with pytest.raises(data.InputError, match="tiny has 3 published splits, 0 to 2"):
        data.splits(found, [3])
    for bad in (-1, 0.5):
        with pytest.raises(data.InputError, match="whole number from 0"):
            data.splits(data.load("balance"), [bad])


def test_cauchy_is_the_curve_with_uniform_noise():
    split = data.cauchy(4)
    assert split.x.shape == (50, 1)
    assert split.x_test.shape == (1000, 1)
    x = 2.0
    assert data.curve(x) == pytest.approx(0.6 * np.sin(1.4) - 0.12, abs=1e-15)
    noise = split.y_test - data.curve(split.x_test[:, 0])
    assert abs(noise).max() <= 0.5
    assert noise.std() == pytest.approx(np.sqrt(1 / 12), rel=0.05)
    assert abs(split.x_test).max() <= 10
    assert split.x_test.std() == pytest.approx(20 / np.sqrt(12), rel=0.05)
    assert np.array_equal(split.y, data.cauchy(4).y)
    assert not np.array_equal(split.y, data.cauchy(5).y)
    np.testing.assert_array_equal(
        split.x[:, 0], np.random.default_rng([0, 4, 50]).uniform(-10, 10, 50)
    )
