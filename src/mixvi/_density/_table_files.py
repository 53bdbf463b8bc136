"""Chunks of tables in files: Parquet and CSV, by pyarrow, which is imported when it is needed."""

import difflib
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import InputError
from ._sources import CHUNK, Source, stamp
from ._structure import listed

# Bytes that are read from a column at a time: a group of rows may be as large as the file.
BUFFER = 2**20
IN_COLUMN = re.compile(r"In CSV column #(\d+)(?:: Row #(\d+))?: (.*)", re.DOTALL)


def arrow(module: str) -> Any:
    try:
        import importlib

        return importlib.import_module(module)
    except ImportError as err:
        raise ImportError(
            "reading files in pieces needs pyarrow: pip install 'mixvi[parquet]'"
        ) from err


class TableFiles(Source):
    """`columns`: None for all, a list of names, or a mapping from names of one's own to a column,
    or to several, which make a matrix."""

    endings: tuple[str, ...]
    kind: str

    def __init__(self, path: Any, columns: Any):
        self.arrow = arrow("pyarrow")
        self.paths = _files(path, self.endings, self.kind)
        self.stamps = {one: stamp(one) for one in self.paths}
        self.names, self.wanted = self.columns_of(self.paths[0]), columns
        _unique(self.paths[0], self.names)
        self.made = self._wanted(columns)
        self.read = list(dict.fromkeys(n for some in self.made.values() for n in _listed(some)))

    def columns_of(self, path: str) -> list[str]:
        raise NotImplementedError

    def _wanted(self, columns: Any) -> dict[str, str | list[str]]:
        if columns is None:
            return {name: name for name in self.names}
        if isinstance(columns, str):
            columns = [columns]
        if not isinstance(columns, Mapping):
            columns = {name: name for name in columns}
        made = {key: some if isinstance(some, str) else list(some) for key, some in columns.items()}
        if not made or [] in made.values():
            raise InputError("Pieces: columns names no column.")
        for name in (name for some in made.values() for name in _listed(some)):
            if name not in self.names:
                raise InputError(
                    f"{_quoted(self.paths[0])} has no column {name!r}{nearest(name, self.names)}: "
                    f"it has {listed([repr(one) for one in self.names], 8)}."
                )
        return made

    # --- reading ------------------------------------------------------------------------------

    def batches(self, path: str, is_first: bool) -> Iterator[tuple[int, Any]]:
        """Record batches of the columns that are read, and how many rows come before each."""
        raise NotImplementedError

    def chunks(self, is_first):
        for path in self.paths:
            if stamp(path) != self.stamps[path]:
                raise InputError(
                    f"{_quoted(path)} has changed since it was first looked at: data must stay as "
                    "they are while they are fitted."
                )
            for before, batch in self.batches(path, is_first):
                if batch.num_rows:
                    names = batch.schema.names
                    known = {
                        name: self._numbers(path, name, column, before, is_first)
                        for name, column in zip(names, batch.columns, strict=True)
                    }
                    yield {key: _put_together(known, some) for key, some in self.made.items()}

    def row(self, chunk, row, before):
        return f"row {before + row}"

    def chunk(self, chunk):
        return "the files"

    def _numbers(self, path: str, name: str, column: Any, before: int, looks: bool) -> np.ndarray:
        types = self.arrow.types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if types.is_decimal(column.type):
            column = column.cast(self.arrow.float64())
        if looks and column.null_count:
            row = column.is_null().to_numpy(zero_copy_only=False).argmax()
            raise _missing(path, name, before + int(row), "empty")
        numbers = column.to_numpy(zero_copy_only=False)
        if looks and numbers.dtype.kind == "f" and (bad := np.isnan(numbers)).any():
            raise _missing(path, name, before + int(bad.argmax()), "NaN")
        return numbers

    def check(self, path: str, name: str, kind: Any) -> None:
        """Refuses a column that does not hold numbers."""
        types = self.arrow.types
        value = kind.value_type if types.is_dictionary(kind) else kind
        known = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        if any(is_it(value) for is_it in known):
            return
        what, remedy = f"values of type {kind}", "leave it out"
        if types.is_string(value) or types.is_large_string(value):
            what, remedy = "text", "write it as integers, or leave it out"
        elif types.is_temporal(value):
            what, remedy = "dates or times", "write them as real numbers, or leave them out"
        elif types.is_null(value):
            what = "nothing at all"
        raise InputError(
            f"{_quoted(path)}: column {name!r} holds {what}, not numbers: {remedy} (columns= says "
            "which are read)."
        )


class Parquet(TableFiles):
    endings, kind = (".parquet", ".pq"), "Parquet"

    def columns_of(self, path):
        with self._opened(path) as file:
            return list(file.schema_arrow.names)

    def batches(self, path, is_first):
        with self._opened(path) as file:
            schema, before = file.schema_arrow, 0
            if is_first:
                self._check_schema(path, schema)
            size = max(1, CHUNK // (8 * len(self.read)))
            try:
                for batch in file.iter_batches(batch_size=size, columns=self.read):
                    yield before, batch
                    before += batch.num_rows
            except (self.arrow.ArrowException, OSError) as err:
                raise _cut_short(path, err) from err

    def _check_schema(self, path: str, schema: Any) -> None:
        if missing := [name for name in self.read if name not in schema.names]:
            raise InputError(
                f"{_quoted(path)} has no column {missing[0]!r}, which {_quoted(self.paths[0])} "
                "has: all files must have the same columns."
            )
        if self.wanted is None and (more := [n for n in schema.names if n not in self.names]):
            raise InputError(
                f"{_quoted(path)} has a column {more[0]!r}, which {_quoted(self.paths[0])} has "
                "not: name those that are wanted, with columns=."
            )
        for name in self.read:
            self.check(path, name, schema.field(name).type)

    def _opened(self, path: str) -> Any:
        try:
            # Buffered ahead, all that has been read would stay in memory until the file is closed.
            return arrow("pyarrow.parquet").ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
        except (self.arrow.ArrowException, OSError) as err:
            raise _cut_short(path, err) from err


class Csv(TableFiles):
    endings, kind = (".csv",), "CSV"

    def __init__(self, path: Any, columns: Any, separator: str):
        self.separator = separator
        self.types: dict[str, Any] = {}
        super().__init__(path, columns)

    def columns_of(self, path):
        with self._reader(path, None) as reader:
            return list(reader.schema.names)

    def batches(self, path, is_first):
        if is_first:
            self._find_types(path)
        before = 0
        try:
            with self._reader(path, self.types) as reader:
                for batch in reader:
                    yield before, batch
                    before += batch.num_rows
        except self.arrow.ArrowInvalid as err:
            raise self._refused(path, err) from err

    def _find_types(self, path: str) -> None:
        """Of every column, from the first block on: a column of whole numbers that goes on with
        others is one of real numbers."""
        names = self.columns_of(path)
        if missing := [name for name in self.read if name not in names]:
            raise InputError(
                f"{_quoted(path)} has no column {missing[0]!r}, which {_quoted(self.paths[0])} "
                "has: all files must have the same columns."
            )
        while True:
            try:
                with self._reader(path, self.types) as reader:
                    for name in self.read:
                        kind = reader.schema.field(name).type
                        if self.arrow.types.is_null(kind):  # empty so far
                            kind = self.arrow.float64()
                        self.check(path, name, kind)
                        self.types.setdefault(name, kind)
                    for _ in reader:
                        pass
                return
            except self.arrow.ArrowInvalid as err:
                name = _column(names, str(err))
                if name is None or not self.arrow.types.is_integer(
                    self.types.get(name, self.arrow.null())
                ):
                    raise self._refused(path, err) from err
                self.types[name] = self.arrow.float64()

    def _refused(self, path: str, err: Exception) -> InputError:
        message = str(err).strip()
        if found := IN_COLUMN.match(message):
            name, line = _column(self.columns_of(path), message), found[2]
            said = f" in line {line}" if line else ""
            what = found[3].splitlines()[0].rstrip(".")
            return InputError(
                f"{_quoted(path)}: column {name!r} does not hold numbers{said}: {what}."
            )
        return InputError(
            f"{_quoted(path)} cannot be read as CSV: {message.splitlines()[0].rstrip('.')}. Was it "
            "cut short, or is the separator another one (separator=)?"
        )

    def _reader(self, path: str, types: dict | None) -> Any:
        csv = arrow("pyarrow.csv")
        convert: dict[str, Any] = {}
        if types is not None:
            convert = {"include_columns": self.read, "column_types": types}
        try:
            return csv.open_csv(
                path,
                # One thread: only then do its errors tell the line.
                read_options=csv.ReadOptions(block_size=CHUNK // 2, use_threads=False),
                parse_options=csv.ParseOptions(delimiter=self.separator),
                convert_options=csv.ConvertOptions(**convert),
            )
        except self.arrow.ArrowInvalid as err:
            raise self._refused(path, err) from err


def _column(names: list[str], message: str) -> str | None:
    """Which one pyarrow's message is about."""
    found = IN_COLUMN.match(message)
    return names[int(found[1])] if found else None


# --- paths and names --------------------------------------------------------------------------


def _files(path: Any, endings: tuple[str, ...], kind: str) -> list[str]:
    """A file, a list of them, or those in a folder in the order of their names."""
    if isinstance(path, Sequence) and not isinstance(path, str):
        found = [one for each in path for one in _files(each, endings, kind)]
        if not found:
            raise InputError(f"Pieces: the list of {kind} files is empty.")
        return found
    try:
        path = os.fspath(path)
    except TypeError:
        raise InputError(
            f"Pieces: give the path of a {kind} file or folder, or a list of them, not "
            f"{type(path).__name__}."
        ) from None
    if os.path.isdir(path):
        inside = sorted(glob.glob(os.path.join(path, "**", "*"), recursive=True))
        found = [one for one in inside if one.lower().endswith(endings) and _is_plain(one, path)]
        if not found:
            raise InputError(f"the folder {_quoted(path)} holds no {kind} file.")
        return found
    if not os.path.exists(path):
        folder = os.path.dirname(path) or "."
        others = os.listdir(folder) if os.path.isdir(folder) else []
        raise InputError(
            f"there is no file {_quoted(path)}{nearest(os.path.basename(path), others)}."
        )
    return [path]


def _is_plain(path: str, folder: str) -> bool:
    """Neither hidden nor set aside, as programs write them beside the data."""
    parts = os.path.relpath(path, folder).split(os.sep)
    return not any(part.startswith((".", "_")) for part in parts)


def nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _unique(path: str, names: list[str]) -> None:
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"{_quoted(path)} has two columns named {twice[0]!r}: rename one of them.")


def _put_together(known: dict[str, np.ndarray], some: str | list[str]) -> np.ndarray:
    if isinstance(some, str):
        return known[some]
    # Column by column in memory, as they were read.
    kind = np.result_type(*(known[name].dtype for name in some))
    made = np.empty((len(some), len(known[some[0]])), kind)
    for row, name in zip(made, some, strict=True):
        row[:] = known[name]
    return made.T


def _listed(some: str | list[str]) -> list[str]:
    return [some] if isinstance(some, str) else some


def _missing(path: str, name: str, row: int, what: str) -> InputError:
    return InputError(
        f"{_quoted(path)}: column {name!r} is {what} in row {row} (counted from 0): drop or fill "
        "such rows."
    )


def _cut_short(path: str, err: Exception) -> InputError:
    said = str(err).splitlines()[0].rstrip(".")
    return InputError(
        f"{_quoted(path)} cannot be read as Parquet: {said}. Was it cut short while it was written "
        "or copied?"
    )


def _quoted(path: str) -> str:
    return repr(str(path))
