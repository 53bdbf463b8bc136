"""What a column of text holds: numbers, categories, dates, names of rows."""

import enum
import math
import re
from typing import Any, NamedTuple

import numpy as np

from .._errors import InputError
from ._read import DECIMAL_COMMA, NUMBER, Raw, in_groups, other_sign

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
# `$1,234.50`, `12 %`: a number for people.
AMOUNT = re.compile(r"[+-]?(?:[$€£¥]\s?[+-]?\d[\d.,']*|\d[\d.,']*\s?[$€£¥%])")
SIGN = re.compile(r"[$€£¥%]")
TRUTHS = (("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"))
# Where so many of the cells are numbers, or dates, the column is meant to be of these.
MOSTLY = 0.8
# Whole numbers beyond are not told apart by a double.
MOST_WHOLE = 2**53
# The square of a larger number, summed over rows, may be none.
LARGEST = 1e150


class Kind(enum.StrEnum):
    NUMBER = "number"
    CATEGORY = "category"
    TRUTH = "yes/no"
    EMPTY = "empty"


class Found(NamedTuple):
    kind: Kind
    missing: list[int]  # rows


def is_number(text: str) -> bool:
    if LEADING_ZERO.fullmatch(text):
        return False  # a code
    return bool(NUMBER.fullmatch(text) or INFINITE.fullmatch(text))


def found(raw: Raw, name: str, as_category: bool = False) -> Found:
    """The kind of a column, or a sentence that says what is wrong with it."""
    cells, typed = raw.cells[name], raw.typed.get(name)
    absent = [raw.is_missing(text) for text in cells]
    missing = [row for row, one in enumerate(absent) if one]
    present = [row for row, one in enumerate(absent) if not one]
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
        _refuse_grouped(raw, name)
        numeric = [row for row in present if is_number(cells[row])]
        if len(numeric) == len(present):
            return Found(Kind.NUMBER, missing)
        if len(numeric) >= MOSTLY * len(present):
            _refuse_mixed(raw, name, present, len(numeric))
        _refuse_decimals(raw, name, present)
        _refuse_amounts(raw, name, present)
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
    _refuse_grouped(raw, name, 0.0)
    values = np.empty(raw.n_rows)
    for row, text in enumerate(raw.cells[name]):
        if raw.is_missing(text):
            values[row] = math.nan
            continue
        if not is_number(text):
            raise InputError(
                f"column {name!r}, {raw.place(row)}: {shortened(text)} is not a number{known}."
                + _about_sign(text)
            )
        value = float(text)
        if math.isfinite(value) and abs(value) > LARGEST:
            raise InputError(
                f"column {name!r}, {raw.place(row)}: {shortened(text)} is too large to reckon "
                "with: divide the column by a unit, or put in what is meant."
            )
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


def typed(raw: Raw, name: str) -> list[Any]:
    """Numbers as numbers, None where these are missing; all else as the text that it is."""
    cells = raw.cells[name]
    present = [text for text in cells if not raw.is_missing(text)]
    if not present or name in raw.grouped or not all(map(is_number, present)):
        return list(cells)
    whole = all(map(WHOLE.fullmatch, present))
    if whole and max(abs(int(text)) for text in present) >= 2**63:
        return list(cells)
    kind = int if whole else float
    return [None if raw.is_missing(text) else kind(text) for text in cells]


# --- refusals ---------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """As a shell takes it."""
    import shlex

    return shlex.quote(name)


def shortened(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def _about_sign(text: str) -> str:
    if in_groups(",", ".").fullmatch(text):
        either = " Decimal commas are read with --decimal ,." * bool(DECIMAL_COMMA.fullmatch(text))
        return f" (Commas that part thousands are taken out with --thousands ,.{either})"
    if DECIMAL_COMMA.fullmatch(text):
        return " (Decimal commas are read with --decimal ,)"
    return f" ({_about_amount(text)})" if AMOUNT.fullmatch(text) else ""


def _about_amount(text: str) -> str:
    found = SIGN.search(text)
    what = f"Take {found[0]!r} out of the cells" if found else "Take out what is no digit"
    bare = SIGN.sub("", text).strip()
    if in_groups(",", ".").fullmatch(bare):
        return what + " and the commas, too, or say --thousands ,."
    if in_groups(".", ",").fullmatch(bare):
        return what + " and say --decimal , --thousands . for the rest."
    return what + "."


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
        "not read. Put numbers in its place (days since a start, say) or the month as a category; "
        f"a column that is not the target can be left out (--drop {quoted(name)})."
    )


def _refuse_mixed(raw: Raw, name: str, present: list[int], n_numbers: int) -> None:
    cells = raw.cells[name]
    row = next(row for row in present if not is_number(cells[row]))
    raise InputError(
        f"column {name!r}, {raw.place(row)}: {shortened(cells[row])} is not a number, and "
        f"{n_numbers} of {len(present)} are.{_about_sign(cells[row])} Correct it, leave it empty, "
        f"or read the column as categories (--category {quoted(name)})."
    )


def _refuse_grouped(raw: Raw, name: str, share: float = MOSTLY) -> None:
    """`1.234` beside `--decimal ,`, or `1,234.5`: a column of numbers that would become others.
    `share`: of cells that look like numbers, from which on they are meant to be."""
    if name not in raw.grouped:
        return
    sign, cells = other_sign(raw.decimal), [one for one in raw.cells[name] if one]
    pattern = in_groups(sign, raw.decimal)
    like = sum(is_number(one) or bool(pattern.fullmatch(one)) for one in cells)
    with_comma = [one for one in cells if DECIMAL_COMMA.fullmatch(one)]
    if like < share * len(cells) or not all(map(pattern.fullmatch, with_comma)):
        return  # texts; or decimal commas, some of them with three digits behind
    row, text = raw.grouped[name]
    what, other = ("comma", "with") if sign == "," else ("point", "without")
    either = (
        "" if raw.decimal in text else f" (or, where it is the decimal sign, {other} --decimal ,)"
    )
    raise InputError(
        f"column {name!r}, {raw.place(row)}: in {shortened(text)} a {what} seems to part "
        f"thousands: read the file with --thousands {sign}{either}."
    )


def _refuse_amounts(raw: Raw, name: str, present: list[int]) -> None:
    """A price with its currency is no name of a row."""
    cells = raw.cells[name]
    amounts = [row for row in present if AMOUNT.fullmatch(cells[row])]
    others = sum(is_number(cells[row]) for row in present)
    if amounts and len(amounts) + others >= MOSTLY * len(present):
        row = amounts[0]
        raise InputError(
            f"column {name!r}, {raw.place(row)}: {shortened(cells[row])} looks like a number, but "
            f"is read as text. {_about_amount(cells[row])} (--category {quoted(name)} reads the "
            f"column as categories, --drop {quoted(name)} leaves it out.)"
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
