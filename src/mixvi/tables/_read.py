"""Files as text: names and cells, before anything is made of them. Every refusal says where."""

import codecs
import csv
import dataclasses
import difflib
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .._errors import InputError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Bytes and records that tell the separator.
SNIFFED, SNIFFED_RECORDS = 65_536, 50
MOST_COLUMNS = 2000
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?", re.ASCII)
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# What files begin with that are no tables of text.
MAGIC = {
    b"PK\x03\x04": "a workbook or an archive, not CSV: save the table as CSV first",
    b"\xd0\xcf\x11\xe0": "an old workbook, not CSV: save the table as CSV first",
    b"\x1f\x8b": "compressed: unpack it first",
    b"BZh": "compressed: unpack it first",
    b"\xfd7zXZ": "compressed: unpack it first",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """How a file is to be read, where it does not say so itself."""

    separator: str | None = None
    decimal: str = "."
    encoding: str | None = None


@dataclasses.dataclass(frozen=True)
class Raw:
    """Cells column by column, as text without blanks around it. `typed`: what a file that knows
    types says of a column, "text" or "date"; `lines`: where every row begins in a file that has
    lines."""

    path: str
    names: tuple[str, ...]
    cells: dict[str, list[str]]
    n_rows: int
    how: str
    lines: Sequence[int] | None = None
    typed: dict[str, str] = dataclasses.field(default_factory=dict)

    def place(self, row: int) -> str:
        """Rows are counted from 1, without the header."""
        return f"row {row + 1}" + (f" (line {self.lines[row]})" if self.lines else "")


def read(path: str | Path, options: Options | None = None) -> Raw:
    options, path = options or Options(), Path(path)
    content = _bytes(path)
    if content[:4] == b"PAR1" or path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path)
    for magic, what in MAGIC.items():
        if content.startswith(magic):
            raise InputError(f"{_quoted(path)} is {what}.")
    return _csv(path, _text(content, path, options), options)


def nearest(name: str, known: Iterable[str]) -> str:
    """`: did you mean 'age'?`, or nothing."""
    folded = {one.casefold(): one for one in known}
    found = difflib.get_close_matches(name.casefold(), list(folded), 1, cutoff=0.6)
    return f": did you mean {folded[found[0]]!r}?" if found else ""


def _quoted(path: Path) -> str:
    return repr(str(path))


def _bytes(path: Path) -> bytes:
    if os.path.isdir(path):  # `Path.is_dir` raises where a name is too long
        raise InputError(f"{_quoted(path)} is a folder, not a file.")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        folder = path.parent
        others = os.listdir(folder) if folder.is_dir() else []
        raise InputError(
            f"there is no file {_quoted(path)}{nearest(path.name, others) or '.'}"
        ) from None
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise InputError(f"{_quoted(path)} cannot be read: {reason}.") from err
    if not content.strip():
        raise InputError(f"{_quoted(path)} is empty.")
    return content


# --- text -------------------------------------------------------------------------------------


def _text(content: bytes, path: Path, options: Options) -> str:
    encoding = options.encoding
    if encoding is None:
        wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding = "utf-16" if wide else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except LookupError:
        raise InputError(f"--encoding: {encoding!r} is no encoding that Python knows.") from None
    except UnicodeDecodeError as err:
        line = content.count(b"\n", 0, err.start) + 1
        known = "UTF-8" if options.encoding is None else encoding
        raise InputError(
            f"{_quoted(path)}, line {line}: byte 0x{content[err.start]:02x} is not {known}. Many "
            "older programs write latin-1 (--encoding latin-1) or cp1252: save the file as UTF-8, "
            "or name its encoding."
        ) from None
    except UnicodeError as err:
        raise InputError(f"{_quoted(path)} is not {encoding}: {err}.") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(
            f"{_quoted(path)}, line {line}, holds a zero byte: this is not a table of text (or one "
            "in another encoding: name it with --encoding)."
        )
    return text


def _csv(path: Path, text: str, options: Options) -> Raw:
    separator = options.separator or _sniffed(text)
    records, lines = _records(path, text, separator)
    if not records:
        raise InputError(f"{_quoted(path)} is empty.")
    names = _names(path, records[0], separator)
    if len(records) == 1:
        raise InputError(f"{_quoted(path)} has a header and no rows.")
    for record, line in zip(records[1:], lines[1:], strict=True):
        if len(record) != len(names):
            raise InputError(
                f"{_quoted(path)}, line {line}: {len(record)} cells where the header has "
                f"{len(names)} names. Is there a separator ({separator!r}) in a text that stands "
                "in no quotes, or a line cut short?"
            )
    columns = [list(column) for column in zip(*records[1:], strict=True)]
    if options.decimal == ",":
        columns = [[_with_point(text) for text in column] for column in columns]
    how = f"CSV, separated by {SEPARATORS.get(separator, repr(separator))}"
    cells = dict(zip(names, columns, strict=True))
    return Raw(str(path), names, cells, len(records) - 1, how, lines[1:])


def _with_point(text: str) -> str:
    return text.replace(",", ".") if DECIMAL_COMMA.fullmatch(text) else text


def _sniffed(text: str) -> str:
    """The separator that gives most lines as many cells as the header."""

    def score(separator: str) -> tuple[float, int]:
        reader = csv.reader(io.StringIO(text[:SNIFFED], newline=""), delimiter=separator)
        widths: list[int] = []
        try:
            for record in reader:
                if record:
                    widths.append(len(record))
                if len(widths) == SNIFFED_RECORDS:
                    break
        except csv.Error:
            pass
        widths = widths[:-1] if len(widths) > 2 and len(text) > SNIFFED else widths
        if not widths or widths[0] == 1:
            return 0.0, 0
        return sum(width == widths[0] for width in widths) / len(widths), widths[0]

    return max(SEPARATORS, key=score)


def _records(path: Path, text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """Those that are not blank, and the line on which each begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    records: list[list[str]] = []
    lines: list[int] = []
    last = 0
    try:
        for record in reader:
            begins, last = last + 1, reader.line_num
            record = [cell.strip() for cell in record]
            if any(record):
                records.append(record)
                lines.append(begins)
    except csv.Error as err:
        what = str(err)
        if "unexpected end" in what:
            what = "a quote is opened and never closed"
        elif "field larger" in what:
            what = "a cell is longer than 131,072 characters; is a quote opened and never closed?"
        elif "expected after" in what:
            what = "after the quote that closes a cell there is more text (a quote inside a quoted "
            what += 'cell is written twice: "")'
        raise InputError(f"{_quoted(path)}, line {last + 1}: {what}.") from None
    return records, lines


def _names(path: Path, header: list[str], separator: str) -> tuple[str, ...]:
    if len(header) > MOST_COLUMNS:
        raise InputError(
            f"{_quoted(path)} has {len(header):,} columns, more than {MOST_COLUMNS:,}: keep those "
            "that matter, or reduce them first."
        )
    if all(NUMBER.fullmatch(name) for name in header):
        raise InputError(
            f"{_quoted(path)}: the first line ({', '.join(header[:3])}, ...) holds numbers, not "
            "names: give the file a line with the names of its columns."
        )
    names = tuple(name or f"column {i + 1}" for i, name in enumerate(header))
    return _unique(path, names)


def _unique(path: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    for i, name in enumerate(names):
        if name in names[:i]:
            first = names.index(name) + 1
            raise InputError(
                f"{_quoted(path)} has two columns named {name!r} (columns {first} and {i + 1}): "
                "rename one of them."
            )
    return names


# --- Parquet ----------------------------------------------------------------------------------


def _parquet(path: Path) -> Raw:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as err:
        raise ImportError("Parquet files need pyarrow: pip install 'mixvi[cli]'") from err
    try:
        table: Any = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as err:
        raise InputError(
            f"{_quoted(path)} is not a Parquet file that can be read: "
            f"{str(err).splitlines()[0].rstrip('.')}."
        ) from err
    names = tuple(str(name) for name in table.column_names)
    if not names or not table.num_rows:
        raise InputError(f"{_quoted(path)} has {len(names)} columns and {table.num_rows} rows.")
    _unique(path, names)
    cells, typed = {}, {}
    for name, column in zip(names, table.columns, strict=True):
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_temporal(kind):
            typed[name] = "date"
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            typed[name] = "text"
        elif not (_is_number(pa, kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            typed[name] = f"values of type {kind}"
        cells[name] = [_as_text(value) for value in column.to_pylist()]
    return Raw(str(path), names, cells, table.num_rows, "Parquet", None, typed)


def _is_number(pa: Any, kind: Any) -> bool:
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in known)


def _as_text(value: Any) -> str:
    return "" if value is None else str(value).strip()
