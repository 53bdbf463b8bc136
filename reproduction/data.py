"""The data sets of the paper: found, checked, split. Nothing is scaled here.

A set is looked for in the `folder` argument, in the folder that MIXVI_DATA names, in installed
packages and exact definitions, and in the cache, where `get` puts downloads. Wherever it comes
from, its arrays have the same checksum.
"""

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from mixvi import InputError

from .data_files import CACHE_VARIABLE, balance, cache_folder, download, from_package, read_npz
from .registry import REGISTRY, DataError, Record, training_size

FOLDER_VARIABLE = "MIXVI_DATA"
Folder = str | os.PathLike | None


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Read-only arrays. `y` holds class indices from 0, or numbers for regression; `train` and
    `test` the published splits, one row of indices into `x` each, or None where there are none."""

    name: str
    x: np.ndarray
    y: np.ndarray
    train: np.ndarray | None
    test: np.ndarray | None
    n_classes: int
    source: str


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Data to learn from and data to be judged by."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    index: int


class _Place(NamedTuple):
    """A file, or no file where the set comes with a package or is generated."""

    file: Path | None
    label: str
    sentence: str


def load(name: str, folder: Folder = None) -> Dataset:
    """A data set of the paper, checked against its checksum; the same object when it is asked for
    again. `folder` is looked in first.

    >>> from reproduction import data
    >>> scale = data.load("balance")
    >>> scale.x.shape, scale.n_classes
    ((625, 4), 3)
    """
    place = _found(_record(name), folder)
    status = place.file.stat() if place.file else None  # a file that was replaced is read again
    return _load(_record(name), place, status and (status.st_mtime_ns, status.st_size))


@functools.lru_cache(maxsize=64)
def _load(record: Record, place: _Place, _stamp: Any) -> Dataset:
    if place.file is not None:
        arrays = read_npz(place.file, record)
    else:
        arrays = balance(record) if record.generated else from_package(record)
    return Dataset(record.name, *arrays, n_classes=record.n_classes, source=place.sentence)


def path(name: str, folder: Folder = None) -> str:
    """The file that `load` would read, or a sentence where it needs none."""
    place = _found(_record(name), folder)
    return str(place.file or place.sentence)


def is_here(name: str) -> bool:
    """Whether `load` would succeed."""
    try:
        load(name)
    except DataError:
        return False
    return True


def get(name: str, force: bool = False) -> str:
    """Download a set into the cache, and the file there. What is there and good stays, but for
    `force`; where no file is needed it is a sentence."""
    record = _record(name)
    built_in = _built_in(record)
    if built_in is not None and not (force and record.sources):
        return built_in.sentence
    return str(download(record, force))


def _record(name: str) -> Record:
    if name not in REGISTRY:
        raise InputError(f"There is no data set {name!r}; there are {', '.join(REGISTRY)}.")
    return REGISTRY[name]


def _found(record: Record, folder: Folder) -> _Place:
    """Where the set is; an error that names every place looked at if it is nowhere."""
    place, looked = _search(record, folder)
    if place is None:
        raise DataError(
            f"The data set {record.name} is not here: {'; '.join(looked)}. `python -m reproduction "
            f"data get {record.name}` downloads it, or let {FOLDER_VARIABLE} name a folder that "
            f"holds {record.file}."
        )
    return place


def _search(record: Record, folder: Folder = None) -> tuple[_Place | None, list[str]]:
    """The first place that has it, and the places before that have not."""
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise InputError(f"folder={str(folder)!r} is not a folder: give one that holds data sets.")
    named, looked = os.environ.get(FOLDER_VARIABLE), []
    for where, label in ((folder, "folder"), (named, FOLDER_VARIABLE)):
        if where:
            file = Path(where).expanduser() / record.file
            if file.is_file():
                return _Place(file, label, f"the file {file} ({label})"), looked
            fault = f"has no {record.file}" if file.parent.is_dir() else "is not a folder"
            looked.append(f"{label} {where} {fault}")
    if not named:
        looked.append(f"{FOLDER_VARIABLE} is not set")
    if (place := _built_in(record)) is not None:
        return place, looked
    file = cache_folder() / record.file
    if file.is_file():
        return _Place(file, "cache", f"the file {file} (downloaded)"), looked
    return None, [*looked, f"the cache {file.parent} has no {record.file}"]


def _built_in(record: Record) -> _Place | None:
    if record.generated:
        return _Place(None, "generated", f"{record.name} is generated from its definition")
    if record.package and importlib.util.find_spec(record.package) is not None:
        return _Place(None, "scikit-learn", f"{record.name} comes with scikit-learn")
    return None


def describe() -> str:
    """All sets with where they are now, as a table."""
    lines = [f"{'name':<14}{'rows':>5} {'features':>8} {'classes':>7} {'splits':>20}  where"]
    for one in REGISTRY.values():
        place, _ = _search(one)
        where = place.label + " (damaged)" * (not is_here(one.name)) if place else "not here"
        lines.append(
            f"{one.name:<14}{one.n_train + one.n_test:>5} {one.features:>8} "
            f"{one.n_classes or '-':>7} {f'{one.n_splits} of {one.n_train} + {one.n_test}':>20}  "
            f"{where}"
        )
    lines.append("`python -m reproduction data get SET` downloads a set, or `get all` all of them.")
    if named := os.environ.get(FOLDER_VARIABLE):
        lines.append(f"{FOLDER_VARIABLE}: {named}")
    return "\n".join([*lines, f"cache ({CACHE_VARIABLE} for another): {cache_folder()}"])


def splits(dataset: Dataset, indices: Iterable[Any], seed: int = 0) -> list[Split]:
    """Training and test data, not scaled, of the splits with these numbers, counted from 0.

    Published ones where there are any; otherwise 70% of the rows (rounded up) for training, each
    split drawn from its own seed, so that it is the same whichever others are asked for.
    """
    return [_split(dataset, index, seed) for index in indices]


def _split(dataset: Dataset, index: Any, seed: int) -> Split:
    if not isinstance(index, SupportsIndex) or index.__index__() < 0:
        raise InputError(f"A split is named by a whole number from 0, not {index!r}.")
    x, y, index = dataset.x, dataset.y, index.__index__()
    if dataset.train is None or dataset.test is None:
        order = np.random.default_rng([seed, index, len(y)]).permutation(len(y))
        train, test = np.split(order, [training_size(len(y))])
    elif index < len(dataset.train):
        train, test = dataset.train[index], dataset.test[index]
    else:
        raise InputError(
            f"{dataset.name} has {len(dataset.train)} published splits, 0 to "
            f"{len(dataset.train) - 1}: there is no split {index}."
        )
    return Split(x[train], y[train], x[test], y[test], index)


def curve(x: Any) -> Any:
    """The function behind the paper's regression data."""
    x = np.asarray(x, dtype=np.float64)
    return 0.3 * x * np.sin(0.7 * x) - 0.03 * x**2


def cauchy(index: int, n: int = 50, seed: int = 0) -> Split:
    """The paper's regression data: inputs uniform in [-10, 10], the curve, and noise uniform in
    [-0.5, 0.5], to which Cauchy noise is fitted; 1,000 test points."""
    rng = np.random.default_rng([seed, index, 50])

    def draw(size: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.uniform(-10, 10, size)
        return x[:, None], curve(x) + rng.uniform(-0.5, 0.5, size)

    return Split(*draw(n), *draw(1000), index)
