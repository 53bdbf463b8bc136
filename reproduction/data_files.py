"""From files to arrays in canonical form, and back; nothing gets past here unchecked."""

import contextlib
import hashlib
import itertools
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .registry import DataError, Record

CACHE_VARIABLE = "MIXVI_CACHE"


class Arrays(NamedTuple):
    """A data set as arrays; `train` and `test` are the published splits, a row of indices each."""

    x: np.ndarray
    y: np.ndarray
    train: np.ndarray | None = None
    test: np.ndarray | None = None


def checked(raw: Arrays, record: Record, where: str, remedy: str = "") -> Arrays:
    """The arrays in canonical form, read-only, if they are those the registry knows."""
    try:
        arrays = canonical(raw, record)
    except (TypeError, ValueError, IndexError):  # no numbers, or splits that point nowhere
        arrays = None
    if arrays is None or checksum(arrays) != record.checksum:
        shapes = [f"{name} {one.shape}" for name, one in raw._asdict().items() if one is not None]
        raise DataError(
            f"{where} cannot be used as {record.name}: its numbers are not the expected ones (the "
            f"checksum of the arrays differs; they are {', '.join(shapes)}).{remedy}"
        )
    for array in arrays:
        if array is not None:
            array.flags.writeable = False
    return arrays


def canonical(raw: Arrays, record: Record) -> Arrays:
    """Fixed types. Sets with published splits hold each distinct row of (x, y) once, sorted, with
    the indices to match: some files store all rows, others only the distinct ones."""
    x = np.ascontiguousarray(raw.x, dtype=np.float64) + 0.0  # one zero, not two
    if raw.train is None or raw.test is None:
        return Arrays(x, np.array(raw.y, dtype=np.int64 if record.n_classes else np.float64))
    rows, inverse = np.unique(np.column_stack([x, raw.y]), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1).astype(np.int64)
    x, y = np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64)
    return Arrays(x, y, inverse[raw.train], inverse[raw.test])


def checksum(arrays: Arrays) -> str:
    """SHA-256 of the numbers with their names and shapes, the same on every platform."""
    digest = hashlib.sha256()
    for name, array in zip(Arrays._fields, arrays, strict=True):
        if array is not None:
            kind = "<f8" if array.dtype.kind == "f" else "<i8"
            digest.update(f"{name} {kind} {'x'.join(map(str, array.shape))}\n".encode())
            digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
    return digest.hexdigest()


def _keys(record: Record) -> tuple[str, ...]:
    """How a file calls the arrays."""
    return ("x", "t" if record.n_classes else "y", *(("train", "test") * record.published))


def read_npz(path: Path, record: Record) -> Arrays:
    """A file of the data folder or of the cache."""
    remedy = " Remove that file: the set is generated when there is none."
    if record.sources:
        remedy = f" Remove that file; `python -m reproduction data get {record.name}` gets it anew."
    try:
        with path.open("rb") as file, np.load(file) as archive:
            found = {key: archive[key] for key in _keys(record) if key in archive.files}
        if not all(isinstance(array, np.ndarray) for array in found.values()):
            raise ValueError("its members are not arrays")
    except Exception as error:  # damaged bytes can fail in any way
        raise DataError(
            f"{path} cannot be read as {record.name}: it is damaged or no npz file "
            f"({type(error).__name__}: {error}).{remedy}"
        ) from error
    if lacks := " and ".join(key for key in _keys(record) if key not in found):
        raise DataError(
            f"{path} cannot be used as {record.name}: it lacks the array {lacks}.{remedy}"
        )
    return checked(Arrays(*found.values()), record, str(path), remedy)


def write_npz(path: Path, arrays: Arrays, record: Record) -> None:
    """All of it or nothing: written beside, then moved into place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}-{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            some = [array for array in arrays if array is not None]
            named = dict(zip(_keys(record), some, strict=True))
            np.savez_compressed(file, allow_pickle=False, **named)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def parse(paths: Sequence[Path], record: Record, where: str) -> Arrays:
    """The files of one source."""
    try:
        if record.published:
            raw = _benchmark(paths[0], record)
        else:
            raw = _text("\n".join(path.read_text("utf-8") for path in paths), record)
    except Exception as error:  # whatever a server sends instead of the data
        raise DataError(
            f"{where} cannot be read as {record.name}: it is not laid out as expected "
            f"({type(error).__name__}: {error})."
        ) from error
    return checked(raw, record, where)


def _benchmark(path: Path, record: Record) -> Arrays:
    """One structure of benchmarks.mat: x, t of -1 and 1, splits as rows of indices from 1."""
    import scipy.io

    variable = record.file.removeprefix("raetsch_").removesuffix(".npz")
    fields = scipy.io.loadmat(path, variable_names=[variable])[variable][0, 0]
    t = fields["t"].reshape(-1)
    if not np.isin(t, (-1, 1)).all():
        raise ValueError("t must hold -1 and 1")
    train, test = (fields[name].astype(np.int64) - 1 for name in ("train", "test"))
    return Arrays(fields["x"], (t > 0).astype(np.int64), train, test)


def _text(text: str, record: Record) -> Arrays:
    """Rows of numbers and a label, between commas or blanks."""
    lines = [line.strip().replace('"', "") for line in text.splitlines() if line.strip()]
    cells = [re.split(r"\s*,\s*|\s+", line) for line in lines]
    cells = cells[int(record.columns.get("header", False)) :]
    features = slice(*(*record.columns["features"], None)[:2])
    x = np.array([row[features] for row in cells], dtype=np.float64)
    labels = ["".join(row[column] for column in record.columns["label"]) for row in cells]
    if not record.n_classes:
        return Arrays(x, np.array(labels, dtype=np.float64))
    return Arrays(x, np.array([record.class_names.index(label) for label in labels]))


def from_package(record: Record) -> Arrays:
    """The copies in scikit-learn."""
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{record.name}")()
    return checked(Arrays(bunch.data, bunch.target), record, f"scikit-learn's {record.name}")


def balance(record: Record) -> Arrays:
    """Every combination of two weights and two distances from 1 to 5: a scale tips to the left
    (0), balances (1) or tips to the right (2)."""
    x = np.array(list(itertools.product(range(1, 6), repeat=4)))
    y = 1 - np.sign(x[:, 0] * x[:, 1] - x[:, 2] * x[:, 3])
    return checked(Arrays(x, y), record, "the generated set")


def cache_folder() -> Path:
    """MIXVI_CACHE, or where pooch keeps things for the user."""
    import pooch

    return Path(os.environ.get(CACHE_VARIABLE) or pooch.os_cache("mixvi")).expanduser()


def download(record: Record, force: bool) -> Path:
    """The file in the cache, from there if it is good, otherwise from the first source that gives
    the right arrays."""
    path = cache_folder() / record.file
    if path.is_file() and not force:
        with contextlib.suppress(DataError):  # damaged: got anew
            read_npz(path, record)
            return path
    failures = []
    for urls in record.sources:
        try:
            write_npz(path, _fetched(urls, record), record)
            return path
        except DataError as error:
            failures.append(str(error))
    raise DataError(
        f"{record.name} could not be downloaded. {' '.join(failures)} Look at the connection and "
        f"try again, or put {record.file} into a folder and name it in MIXVI_DATA."
    )


def _fetched(urls: Sequence[str], record: Record) -> Arrays:
    """Of one source. Files with a known hash stay: benchmarks.mat holds thirteen sets."""
    import pooch

    # Without its advice to pin the hash of each file: the arrays are what is pinned.
    pooch.get_logger().setLevel(logging.WARNING)
    folder = cache_folder() / "downloads"
    paths = [folder / pooch.utils.unique_file_name(url) for url in urls]
    try:
        for url, path in zip(urls, paths, strict=True):
            try:
                pooch.retrieve(url, record.sha256, fname=path.name, path=folder)
            except (OSError, ValueError) as error:  # no connection, no such file; another hash
                raise DataError(f"{url}: {_first_sentence(error)}.") from error
        return parse(paths, record, urls[0])
    finally:
        for path in paths if record.sha256 is None else ():
            path.unlink(missing_ok=True)  # what was wrong must not be taken for good next time


def _first_sentence(error: Exception) -> str:
    if "Max retries exceeded" in str(error):  # a page of text from below says no more than this
        return "the server cannot be reached"
    return " ".join(str(error).split()).split(". ")[0].rstrip(".")[:300] or type(error).__name__
