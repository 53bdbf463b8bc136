"""The data sets of the paper: found, checked, split. Nothing is scaled here.

A set is looked for in the `folder` argument, in the folder that MIXVI_DATA names, in installed
packages and exact definitions, and in the cache, where `get` puts downloads. Wherever it comes
from, its arrays have the same checksum.
"""

import dataclasses
import functools
import importlib.util
import math
import operator
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from .._errors import InputError
from ._download import CACHE_VARIABLE, cache_folder, download
from ._parsers import Arrays, balance, from_package, read_npz
from ._sources import (
    BINARY,
    MULTICLASS,
    REGISTRY,
    REGRESSION,
    DataError,
    Kind,
    Record,
    training_size,
)

__all__ = ["BINARY", "GENERATED", "MULTICLASS", "NAMES", "REGRESSION"]
__all__ += ["DataError", "Dataset", "Split"]
__all__ += ["cauchy", "curve", "describe", "generated", "get", "load", "n_splits", "path", "splits"]

FOLDER_VARIABLE = "MIXVI_DATA"
NAMES = BINARY + MULTICLASS + REGRESSION
GENERATED = ("twonorm-generated", "ringnorm-generated", "waveform-generated")

Targets = Int64[np.ndarray, " n"] | Float64[np.ndarray, " n"]
TestTargets = Int64[np.ndarray, " n_test"] | Float64[np.ndarray, " n_test"]


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Read-only arrays. `y` holds class indices from 0, or numbers for regression; `train` and
    `test` the published splits, one row of indices into `x` each, or None where there are none."""

    name: str
    kind: Kind
    x: Float64[np.ndarray, "n features"] = dataclasses.field(repr=False)
    y: Targets = dataclasses.field(repr=False)
    n_classes: int
    train: Int64[np.ndarray, "splits n_train"] | None = dataclasses.field(repr=False)
    test: Int64[np.ndarray, "splits n_test"] | None = dataclasses.field(repr=False)
    source: str


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Data to learn from and data to be judged by."""

    x: Float64[np.ndarray, "n features"] = dataclasses.field(repr=False)
    y: Targets = dataclasses.field(repr=False)
    x_test: Float64[np.ndarray, "n_test features"] = dataclasses.field(repr=False)
    y_test: TestTargets = dataclasses.field(repr=False)
    index: int


# --- finding and loading ----------------------------------------------------------------------


class _Place(NamedTuple):
    """A file, or no file where the set comes with a package or is generated."""

    file: Path | None
    label: str
    sentence: str


def load(name: str, folder: str | os.PathLike | None = None) -> Dataset:
    """A data set of the paper, checked against its checksum.

    **Arguments:**

    - `name`: one of `BINARY`, `MULTICLASS` or `REGRESSION`.
    - `folder`: a folder to look in first.

    **Returns:** the data set; the same object when it is asked for again.

    >>> from mixvi.paper import data
    >>> scale = data.load("balance")
    >>> scale.x.shape, scale.n_classes
    ((625, 4), 3)
    """
    record = _record(name)
    place = _found(record, folder)
    if place.file is None:
        return _load(record, None, place.sentence, ())
    status = place.file.stat()  # a file that was replaced is read again
    return _load(record, place.file, place.sentence, (status.st_mtime_ns, status.st_size))


@functools.lru_cache(maxsize=64)
def _load(record: Record, file: Path | None, sentence: str, stamp: tuple[int, ...]) -> Dataset:
    if file is not None:
        arrays: Arrays = read_npz(file, record)
    elif record.generated:
        arrays = balance(record)
    else:
        arrays = from_package(record)
    return Dataset(
        name=record.name,
        kind=record.kind,
        x=arrays.x,
        y=arrays.y,
        n_classes=record.n_classes,
        train=arrays.train,
        test=arrays.test,
        source=sentence,
    )


def path(name: str, folder: str | os.PathLike | None = None) -> str:
    """The file that `load` would read, or a sentence where it needs none."""
    place = _found(_record(name), folder)
    return place.sentence if place.file is None else str(place.file)


def is_here(name: str) -> bool:
    """Whether `load` would succeed."""
    _record(name)
    try:
        load(name)
    except DataError:
        return False
    return True


def get(
    names: str | Iterable[str],
    force: bool = False,
    registry: Mapping[str, Record] | None = None,
) -> dict[str, str]:
    """Download data sets into the cache; what is there and good, or needs no file, stays.

    **Arguments:**

    - `names`: a name, several, or "all".
    - `force`: download even so.
    - `registry`: other records to go by, for tests.

    **Returns:** for each name the file, or a sentence where none is needed. Needs `pooch`.
    """
    known = REGISTRY if registry is None else registry
    if isinstance(names, str):
        names = tuple(known) if names == "all" else (names,)
    places = {}
    for record in [_record(name, known) for name in names]:
        built_in = _built_in(record)
        if built_in is not None and not (force and record.sources):
            places[record.name] = built_in.sentence
        else:
            places[record.name] = str(download(record, force))
    return places


def _record(name: str, registry: Mapping[str, Record] = REGISTRY) -> Record:
    if name in GENERATED:
        raise InputError(
            f"{name} is drawn afresh and not a published data set: "
            f'mixvi.paper.data.generated("{name}", index) gives a draw.'
        )
    if name not in registry:
        raise InputError(f"There is no data set {name!r}; there are {', '.join(registry)}.")
    return registry[name]


def _found(record: Record, folder: str | os.PathLike | None) -> _Place:
    """Where the set is; an error that names every place looked at if it is nowhere."""
    place, looked = _search(record, folder)
    if place is None:
        remedy = f"`mixvi data get {record.name}` downloads it"
        if record.package:
            remedy += ", pip install 'mixvi[sklearn]' brings it"
        raise DataError(
            f"The data set {record.name} is not here: {'; '.join(looked)}. {remedy}, or let "
            f"{FOLDER_VARIABLE} name a folder that holds {record.file}."
        )
    return place


def _search(
    record: Record, folder: str | os.PathLike | None = None
) -> tuple[_Place | None, list[str]]:
    """The first place that has it, and the places before that have not."""
    looked: list[str] = []
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise InputError(f"folder={str(folder)!r} is not a folder: give one that holds data sets.")
    named = os.environ.get(FOLDER_VARIABLE)
    for where, label in ((folder, "folder"), (named, FOLDER_VARIABLE)):
        if not where:
            continue
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
    """All sets with where they are now, as a table of at most 100 columns."""
    lines = [f"{'name':<14}{'rows':>5} {'features':>8} {'classes':>7} {'splits':>20}  where"]
    labels = set()
    for record in REGISTRY.values():
        place, _ = _search(record)
        labels.add(place.label if place else None)
        where = place.label if place else f"not here: mixvi data get {record.name}"
        if place and not is_here(record.name):
            where += " (damaged)"
        division = f"{record.n_splits} of {record.n_train} + {record.n_test}"
        lines.append(
            f"{record.name:<14}{record.n_train + record.n_test:>5} {record.features:>8} "
            f"{record.n_classes or '-':>7} {division:>20}  {where}"
        )
    if FOLDER_VARIABLE in labels:
        lines.append(_shortened(f"{FOLDER_VARIABLE}: {os.environ[FOLDER_VARIABLE]}"))
    lines.append(_shortened(f"cache ({CACHE_VARIABLE} for another): {cache_folder()}"))
    lines.append(f"Drawn, not stored: cauchy, {', '.join(GENERATED)}.")
    return "\n".join(lines)


def _shortened(line: str, width: int = 100) -> str:
    """The end of a path says more than its middle."""
    return line if len(line) <= width else f"{line[: width // 2 - 3]}...{line[-width // 2 :]}"


# --- splits -----------------------------------------------------------------------------------


def n_splits(name: str) -> int:
    """How many splits the paper uses: 100, but 20 of image and splice."""
    return _record(name).n_splits


def splits(dataset: Dataset, indices: Iterable[Any], seed: int = 0) -> list[Split]:
    """Training and test data, not scaled.

    **Arguments:**

    - `dataset`: as `load` gives it.
    - `indices`: which splits, counted from 0. Published ones where there are any; otherwise drawn,
      70% (rounded up) for training, each from its own seed, so that a split is the same whichever
      others are asked for.
    - `seed`: for drawn splits; published ones are what they are.
    """
    return [_split(dataset, _index(index, dataset), seed) for index in indices]


def _split(dataset: Dataset, index: int, seed: int) -> Split:
    if dataset.train is not None and dataset.test is not None:
        train, test = dataset.train[index], dataset.test[index]
    else:
        n = len(dataset.y)
        order = np.random.default_rng([seed, index, n]).permutation(n)
        train, test = np.split(order, [training_size(n)])
    x, y = dataset.x, dataset.y
    return Split(x[train], y[train], x[test], y[test], index)


def _index(index: Any, dataset: Dataset) -> int:
    try:
        index = operator.index(index)
    except TypeError as error:
        raise InputError(f"A split is named by a whole number from 0, not {index!r}.") from error
    if index < 0:
        raise InputError(f"A split is named by a whole number from 0, not {index}.")
    if dataset.train is not None and index >= len(dataset.train):
        raise InputError(
            f"{dataset.name} has {len(dataset.train)} published splits, 0 to "
            f"{len(dataset.train) - 1}: there is no split {index}."
        )
    return index


# --- draws ------------------------------------------------------------------------------------


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


def generated(name: str, index: int = 0, seed: int = 0) -> Split:
    """A fresh draw of twonorm, ringnorm or waveform by Breiman's definitions, on their own scale,
    as large as the published splits and with their classes, but other data: the published sets are
    one draw, standardised as a whole."""
    if name not in GENERATED:
        raise InputError(f"{name!r} cannot be drawn: give one of {', '.join(GENERATED)}.")
    rng = np.random.default_rng([seed, index, GENERATED.index(name)])
    n_test = 4600 if name.startswith("waveform") else 7000
    x, y = _waveform(rng, 400 + n_test) if n_test == 4600 else _norm(rng, 400 + n_test, name)
    return Split(x[:400], y[:400], x[400:], y[400:], index)


def _norm(rng: np.random.Generator, n: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two Gaussians in 20 dimensions: at a and -a, or a wide one at 0 and a narrow one at a."""
    y = rng.integers(2, size=n)
    z = rng.standard_normal((n, 20))
    a = 2 / math.sqrt(20)
    one = y[:, None] == 1
    if name.startswith("twonorm"):
        return np.where(one, z + a, z - a), y
    return np.where(one, 2 * z, z + a), y


def _waveform(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Mixtures of two of three triangles with noise; class 1 is the pair of the first and third."""
    where = np.arange(1, 22)
    peaks = np.array([11, 15, 7])
    triangles = np.maximum(6 - np.abs(where - peaks[:, None]), 0)
    pair = np.array([(0, 1), (0, 2), (1, 2)])[which := rng.integers(3, size=n)]
    share = rng.uniform(size=(n, 1))
    mixture = share * triangles[pair[:, 0]] + (1 - share) * triangles[pair[:, 1]]
    return mixture + rng.standard_normal((n, 21)), (which == 1).astype(np.int64)
