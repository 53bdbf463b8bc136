"""What a column of text holds: numbers, categories, dates, names of rows."""

import enum
import math
import re
from typing import NamedTuple

import numpy as np

from .._errors import InputError
from ._read import DECIMAL_COMMA, NUMBER, Raw

MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "?"))
INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
LEADING_ZERO = re.compile(r"[+-]?0\d+", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ].*)?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{2}|\d{4})(?: .*)?"
    rf"|\d{{1,2}}[ -](?:{MONTH})[a-z]*[ -,]+\d{{2,4}}"
    rf"|(?:{MONTH})[a-z]* \d{{1,2}},? \d{{4}}"
    r"|\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?",
    re.IGNORECASE | re.ASCII,
)
TRUTHS = (("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"))
# Where so many of the cells are numbers, or dates, the column is meant to be of these.
MOSTLY = 0.8
# Whole numbers beyond are not told apart by a double.
MOST_WHOLE = 2**53


class Kind(enum.StrEnum):
    NUMBER = "number"
    CATEGORY = "category"
    TRUTH = "yes/no"
    EMPTY = "empty"


class Found(NamedTuple):
    kind: Kind
    missing: list[int]  # rows


def is_missing(text: str) -> bool:
    return text.casefold() in MISSING


def is_number(text: str) -> bool:
    if LEADING_ZERO.fullmatch(text):
        return False  # a code
    return bool(NUMBER.fullmatch(text) or INFINITE.fullmatch(text))


def found(raw: Raw, name: str, as_category: bool = False) -> Found:
    """The kind of a column, or a sentence that says what is wrong with it."""
    cells, typed = raw.cells[name], raw.typed.get(name)
    missing = [row for row, text in enumerate(cells) if is_missing(text)]
    present = [row for row, text in enumerate(cells) if not is_missing(text)]
    if not present:
        return Found(Kind.EMPTY, missing)
    if typed not in (None, "text") and not as_category:
        _refuse_type(raw, name, typed, present[0])
    distinct = {cells[row] for row in present}
    if as_category:
        return Found(Kind.CATEGORY, missing)
    if truths_of(distinct) is not None:
        return Found(Kind.TRUTH, missing)
    if typed != "text":
        numeric = [row for row in present if is_number(cells[row])]
        if len(numeric) == len(present):
            return Found(Kind.NUMBER, missing)
        if len(numeric) >= MOSTLY * len(present):
            _refuse_mixed(raw, name, present, len(numeric))
        _refuse_decimals(raw, name, present)
    dates = [row for row in present if DATE.fullmatch(cells[row])]
    if len(dates) >= MOSTLY * len(present):
        _refuse_dates(raw, name, dates[0])
    return Found(Kind.CATEGORY, missing)


def truths_of(distinct: set[str]) -> tuple[str, str] | None:
    """`("no", "yes")`, where these are all that there is, in whatever case."""
    folded = {text.casefold() for text in distinct}
    return next((pair for pair in TRUTHS if folded and folded <= set(pair)), None)


def numbers(raw: Raw, name: str, known: str = "") -> np.ndarray:
    """As float64, NaN where missing. `known`: what the column held in training, in words."""
    values = np.empty(raw.n_rows)
    for row, text in enumerate(raw.cells[name]):
        if is_missing(text):
            values[row] = math.nan
            continue
        if not is_number(text):
            raise InputError(
                f"column {name!r}, {raw.place(row)}: {shortened(text)} is not a number{known}."
                + _about_comma(text)
            )
        value = float(text)
        if not math.isfinite(value):
            what = "is not finite" if INFINITE.fullmatch(text) else "is too large for a number"
            raise InputError(
                f"column {name!r}, {raw.place(row)}: {shortened(text)} {what}. Put in what is "
                "meant, leave the cell empty where nothing is known, or leave the row out."
            )
        if abs(value) > MOST_WHOLE and WHOLE.fullmatch(text):
            raise InputError(
                f"column {name!r}, {raw.place(row)}: {shortened(text)} has more digits than a "
                "number keeps. If it names something, leave the column out or read it as "
                f"categories (--drop or --category {quoted(name)}); otherwise divide it by a unit."
            )
        values[row] = value
    return values


# --- refusals ---------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """As a shell takes it."""
    import shlex

    return shlex.quote(name)


def shortened(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def _about_comma(text: str) -> str:
    return " (Decimal commas are read with --decimal ,)" if DECIMAL_COMMA.fullmatch(text) else ""


def _refuse_type(raw: Raw, name: str, typed: str | None, row: int) -> None:
    if typed == "date":
        _refuse_dates(raw, name, row)
    raise InputError(
        f"column {name!r} holds {typed}, which are neither numbers nor categories: leave it out "
        f"(--drop {quoted(name)}), or make columns of it."
    )


def _refuse_dates(raw: Raw, name: str, row: int) -> None:
    text = raw.cells[name][row]
    raise InputError(
        f"column {name!r} holds dates or times ({shortened(text)} in {raw.place(row)}), which are "
        f"not read. Leave it out (--drop {quoted(name)}), or put numbers in its place (days since "
        "a start, say), or the month as a category."
    )


def _refuse_mixed(raw: Raw, name: str, present: list[int], n_numbers: int) -> None:
    cells = raw.cells[name]
    row = next(row for row in present if not is_number(cells[row]))
    raise InputError(
        f"column {name!r}, {raw.place(row)}: {shortened(cells[row])} is not a number, and "
        f"{n_numbers} of {len(present)} are.{_about_comma(cells[row])} Correct it, leave it empty, "
        f"or read the column as categories (--category {quoted(name)})."
    )


def _refuse_decimals(raw: Raw, name: str, present: list[int]) -> None:
    cells = raw.cells[name]
    with_comma = [row for row in present if DECIMAL_COMMA.fullmatch(cells[row])]
    others = sum(is_number(cells[row]) for row in present)
    if with_comma and len(with_comma) + others == len(present):
        row = with_comma[0]
        raise InputError(
            f"column {name!r} has decimal commas ({cells[row]!r} in {raw.place(row)}): read the "
            "file with --decimal , (where the comma parts thousands, take it out)."
        )
