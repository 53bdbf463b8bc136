"""Small sets in the layout of the published ones, and where the published ones are looked for."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from reproduction import data_files, registry

HERE = os.environ.get("MIXVI_DATA")
FOLDER = Path(HERE) if HERE else Path(__file__).parents[2] / "shared" / "data"
needs_folder = pytest.mark.skipif(
    not (FOLDER / "raetsch_banana.npz").is_file(),
    reason=f"no data sets in {FOLDER}: set MIXVI_DATA to their folder",
)


def tiny_record(name="tiny", **changes):
    """A two-class set of the benchmarks' layout, small enough to be made here."""
    arrays = data_files.canonical(tiny_arrays(), registry.REGISTRY["banana"])
    record = dataclasses.replace(
        registry.REGISTRY["banana"],
        name=name,
        file=f"raetsch_{name}.npz",
        rows=len(arrays.x),
        features=2,
        n_train=6,
        n_test=4,
        n_splits=3,
        checksum=data_files.checksum(arrays),
    )
    return dataclasses.replace(record, **changes)


def tiny_arrays():
    """Ten rows, some of them equal, one of them with both labels."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (10, 2)) - 0.5
    y = np.array([0, 1, 0, 1, 0, 1, 1, 1, 0, 0])
    order = np.array([rng.permutation(10) for _ in range(3)])
    return data_files.Arrays(x, y, order[:, :6], order[:, 6:])


def distinct(raw):
    """Each distinct row once, in the order of its first appearance, not sorted."""
    joint = np.column_stack([raw.x, raw.y])
    seen = {row: number for number, row in enumerate(dict.fromkeys(map(tuple, joint)))}
    place = np.array([seen[tuple(row)] for row in joint])
    rows = np.array(list(seen))
    return data_files.Arrays(
        rows[:, :-1], rows[:, -1].astype(int), place[raw.train], place[raw.test]
    )


def save_npz(folder, record, raw, **changes):
    folder.mkdir(exist_ok=True, parents=True)
    named = {"x": raw.x, "t": raw.y, "train": raw.train, "test": raw.test} | changes
    path = folder / record.file
    np.savez(path, **{name: array for name, array in named.items() if array is not None})
    return path


def save_mat(file, variable, raw):
    fields = {
        "x": raw.x,
        "t": 2.0 * raw.y[:, None] - 1,
        "train": raw.train + 1.0,
        "test": raw.test + 1.0,
    }
    scipy.io.savemat(file, {variable: fields}, do_compression=True)


def truncated(path, raw, record):
    path.write_bytes(path.read_bytes()[:-200])
