"""Files as text: names and cells, before anything is made of them. Every refusal says where."""

import codecs
import csv
import dataclasses
import difflib
import io
import math
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
# What stands for no value, in any case; an empty cell always does.
MISSING = ("NA", "N/A", "#N/A", "NaN", "null", "?")
BLANKS = " \u00a0\u2009\u202f"
MOST_LINES = 5
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
    thousands: str | None = None
    missing: tuple[str, ...] = MISSING


@dataclasses.dataclass(frozen=True)
class Raw:
    """Cells column by column, as text without blanks around it. `typed`: what a file that knows
    types says of a column, "text" or "date"; `table`: such a file as it is; `lines`: where every
    row begins in a file that has lines; `grouped`: of columns with cells like `1,234.5`, the first
    such row and its text; `missing`: texts that stand for no value, folded; `notes`: what is to be
    said of the file."""

    path: str
    names: tuple[str, ...]
    cells: dict[str, list[str]]
    n_rows: int
    how: str
    lines: Sequence[int] | None = None
    typed: dict[str, str] = dataclasses.field(default_factory=dict)
    table: Any = None
    grouped: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    decimal: str = "."
    missing: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def is_missing(self, text: str) -> bool:
        return not text or text.casefold() in self.missing

    def place(self, row: int) -> str:
        """Rows are counted from 1, without the header."""
        return f"row {row + 1}" + (f" (line {self.lines[row]})" if self.lines else "")


def read(path: str | Path, options: Options | None = None) -> Raw:
    options, path = options or Options(), Path(path)
    content = _bytes(path)
    if content[:4] == b"PAR1" or path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path, options)
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
        encoding = "utf-16" if wide else "utf-8"
    content = content.removeprefix(codecs.BOM_UTF8)  # whatever encoding is named: it is no text
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
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
    records, lines, notes = _records(path, text, separator)
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
    cells = dict(zip(names, map(list, zip(*records[1:], strict=True)), strict=True))
    cells = _without_thousands(cells, options)
    grouped = _grouped_in(cells, options.decimal)
    if options.decimal == ",":
        cells = {name: [_with_point(text) for text in column] for name, column in cells.items()}
    how = f"CSV, separated by {SEPARATORS.get(separator, repr(separator))}"
    return Raw(
        str(path),
        names,
        cells,
        len(records) - 1,
        how,
        lines[1:],
        grouped=grouped,
        decimal=options.decimal,
        missing=_folded(options),
        notes=tuple(notes),
    )


def _folded(options: Options) -> frozenset[str]:
    return frozenset(text.strip().casefold() for text in options.missing)


def _with_point(text: str) -> str:
    return text.replace(",", ".") if DECIMAL_COMMA.fullmatch(text) else text


def in_groups(sign: str, decimal: str) -> re.Pattern[str]:
    """Numbers whose digits are in groups of three, `sign` (one of some) between them."""
    point = re.escape(decimal)
    return re.compile(
        rf"[+-]?[1-9]\d{{0,2}}(?:[{re.escape(sign)}]\d{{3}})+(?:{point}\d*)?", re.ASCII
    )


def _grouped_in(cells: dict[str, list[str]], decimal: str) -> dict[str, tuple[int, str]]:
    """Cells like `1,234.5`, or where decimals have commas like `1.234`, which is 1234 there and
    would be read as 1.234."""
    sign = other_sign(decimal)
    pattern = in_groups(sign, decimal)
    found = {}
    for name, column in cells.items():
        for row, text in enumerate(column):
            if sign in text and pattern.fullmatch(text):
                found[name] = row, text
                break
    return found


def other_sign(decimal: str) -> str:
    return "," if decimal == "." else "."


def _without_thousands(cells: dict[str, list[str]], options: Options) -> dict[str, list[str]]:
    sign = options.thousands
    if sign is None:
        return cells
    if sign == options.decimal:
        raise InputError(
            f"--thousands {sign}: that is the decimal sign already: "
            f"add --decimal {other_sign(sign)}"
        )
    signs = BLANKS if sign == " " else sign
    pattern, nothing = in_groups(signs, options.decimal), dict.fromkeys(map(ord, signs))
    return {
        name: [text.translate(nothing) if pattern.fullmatch(text) else text for text in column]
        for name, column in cells.items()
    }


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


def _records(path: Path, text: str, separator: str) -> tuple[list[list[str]], list[int], list[str]]:
    """The header and the rows, the line on which each begins, and what is to be said of others.
    Separators alone are a row, in which all is missing. A line without anything is none, but among
    the rows of a table of one column, where a missing value looks like that."""
    records, lines = _split(path, text, separator)
    first = next((i for i, record in enumerate(records) if any(record)), len(records))
    last = max((i for i, record in enumerate(records) if record), default=-1)
    single = first < len(records) and len(records[first]) == 1
    kept, skipped = [], lines[:first]
    for i in range(first, last + 1):
        if records[i] or single:
            kept.append(i)
        else:
            skipped.append(lines[i])
    if single:
        skipped += lines[last + 1 :]  # who wrote them may have meant missing values
    notes = [_skipped(skipped)] if skipped else []
    return [records[i] or [""] for i in kept], [lines[i] for i in kept], notes


def _skipped(lines: list[int]) -> str:
    shown = ", ".join(map(str, lines[:MOST_LINES])) + (", ..." if len(lines) > MOST_LINES else "")
    if len(lines) == 1:
        return f"line {shown} is blank and is no row."
    return f"{len(lines):,} lines are blank and are no rows (lines {shown})."


def _split(path: Path, text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """Every line or, where quotes hold some together, lines; none has a cell where it is blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    records: list[list[str]] = []
    lines: list[int] = []
    last = 0
    try:
        for record in reader:
            begins, last = last + 1, reader.line_num
            blank = len(record) == 1 and record[0] and not record[0].strip()
            records.append([] if blank else [cell.strip() for cell in record])
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


def _parquet(path: Path, options: Options) -> Raw:
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
    return Raw(
        str(path),
        names,
        cells,
        table.num_rows,
        "Parquet",
        typed=typed,
        table=table,
        missing=_folded(options),
    )


def _is_number(pa: Any, kind: Any) -> bool:
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in known)


def _as_text(value: Any) -> str:
    nothing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if nothing else str(value).strip()
