"""From the columns of a file to features, the same way for training and for every later file."""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from .._arrays._scale import told_from_constant
from .._errors import InputError
from ._kinds import WHOLE, Kind, found, is_number, numbers, quoted, shortened, truths_of
from ._read import MISSING, Raw, nearest

MOST_LEVELS, MANY_LEVELS = 100, 20
LEAST_ROW_NUMBERS = 10
# Names of columns whose whole numbers, all of them different, name rows.
ID_NAME = re.compile(r"(?:.*[_ .-])?(?:id|index|uuid|key)|.*Id|column 1|unnamed.*", re.ASCII)
TO_IMPUTE = "let it be filled (--impute median)"


@dataclasses.dataclass(frozen=True)
class Number:
    """`fill`: the median, which takes the place of missing values where that is wanted."""

    name: str
    low: float
    high: float
    fill: float
    n_missing: int = 0

    kind: ClassVar[str] = "number"

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def words(self) -> str:
        return " to ".join(figures(self.low, self.high))

    def encoded(self, raw: Raw, impute: bool) -> Float[np.ndarray, "n features"]:
        values = numbers(raw, self.name, f"; in training this column held numbers ({self.words})")
        missing = np.flatnonzero(np.isnan(values))
        if len(missing) and not impute:
            refuse_missing(raw, self.name, missing)
        values[missing] = self.fill
        return values[:, None]

    def points(self, values: Sequence[float] | np.ndarray) -> Float[np.ndarray, "n features"]:
        return np.asarray(values, dtype=np.float64)[:, None]

    def outside(self, encoded: np.ndarray) -> int:
        """Rows beyond what training has seen."""
        return int(((encoded[:, 0] < self.low) | (encoded[:, 0] > self.high)).sum())


@dataclasses.dataclass(frozen=True)
class Category:
    """One column of zeros and ones for each level; of two levels, for the second alone. `fill`:
    the most frequent."""

    name: str
    kind: str
    levels: tuple[str, ...]
    counts: tuple[int, ...]
    fill: str
    n_missing: int = 0

    @property
    def features(self) -> tuple[str, ...]:
        shown = self.levels[1:] if len(self.levels) == 2 else self.levels
        return tuple(f"{self.name} = {level}" for level in shown)

    @property
    def words(self) -> str:
        pairs = sorted(zip(self.counts, self.levels, strict=True), key=lambda one: -one[0])
        shown = [f"{level} ({count})" for count, level in pairs[:6]]
        more = len(pairs) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")

    def encoded(self, raw: Raw, impute: bool) -> Float[np.ndarray, "n features"]:
        cells = raw.cells[self.name]
        absent = [raw.is_missing(text) for text in cells]
        missing = [row for row, one in enumerate(absent) if one]
        if missing and not impute:
            refuse_missing(raw, self.name, missing)
        pairs = zip(cells, absent, strict=True)
        texts = [self.fill if one else canonical(text, self.kind) for text, one in pairs]
        known = set(self.levels)
        unknown = [row for row, text in enumerate(texts) if text not in known]
        if unknown:
            others = {cells[row] for row in unknown} - {cells[unknown[0]]}
            shown = ", ".join(self.levels[:12]) + (", ..." if len(self.levels) > 12 else "")
            raise InputError(
                f"column {self.name!r}, {raw.place(unknown[0])}: {shortened(cells[unknown[0]])} "
                f"was not in the training data, which had {shown}."
                + (f" ({len(others)} more unknown values in this column.)" if others else "")
                + nearest_level(cells[unknown[0]], self.levels)
            )
        return self.points(texts)

    def points(self, values: Sequence[str]) -> Float[np.ndarray, "n features"]:
        number = {level: i for i, level in enumerate(self.levels)}
        at = np.array([number[value] for value in values], dtype=int)
        made = np.eye(len(self.levels))[at]
        return made[:, 1:] if len(self.levels) == 2 else made

    def outside(self, encoded: np.ndarray) -> int:
        del encoded
        return 0


Column = Number | Category


@dataclasses.dataclass(frozen=True)
class Columns:
    """What was learnt of the columns, and which are left out, with the reason. `missing`: texts
    that stand for no value, here and in every later file."""

    used: tuple[Column, ...]
    left_out: dict[str, str]
    target: str
    impute: bool
    missing: tuple[str, ...] = MISSING

    @property
    def features(self) -> list[str]:
        return [name for column in self.used for name in column.features]

    def slices(self) -> dict[str, slice]:
        """Where the features of every column stand."""
        ends = np.cumsum([len(column.features) for column in self.used])
        pairs = zip(self.used, ends, strict=True)
        return {one.name: slice(int(end) - len(one.features), int(end)) for one, end in pairs}

    def encoded(self, raw: Raw) -> tuple[Float[np.ndarray, "n features"], list[str]]:
        """The features of a file, and what is to be said of it."""
        self._refuse_absent(raw)
        parts = [column.encoded(raw, self.impute) for column in self.used]
        notes = [
            f"column {column.name!r}: {texts}, taken for no value (--missing when fitting says "
            "which texts are)."
            for column in self.used
            if (texts := _texts_for_none(raw, column.name))
        ]
        for column, part in zip(self.used, parts, strict=True):
            if n := column.outside(part):
                notes.append(
                    f"column {column.name!r}: {plural(n, 'row')} outside what training has seen "
                    f"({column.words}); predictions there are guesses from afar."
                )
        known = {column.name for column in self.used} | set(self.left_out) | {self.target}
        if extra := [name for name in raw.names if name not in known]:
            notes.append(
                f"the model does not know {listed_names(extra)}: it makes no difference here."
            )
        return np.concatenate(parts, axis=1), notes

    def _refuse_absent(self, raw: Raw) -> None:
        absent = [column.name for column in self.used if column.name not in raw.names]
        if absent:
            known = {column.name for column in self.used}
            hint = nearest(absent[0], [name for name in raw.names if name not in known])
            raise InputError(
                f"{raw.path!r} lacks {listed_names(absent)}, which the model needs{hint or '.'} It "
                f"has {', '.join(raw.names[:12])}{', ...' if len(raw.names) > 12 else ''}."
            )

    # --- files --------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "used": [{"kind": one.kind, **dataclasses.asdict(one)} for one in self.used],
            "left_out": self.left_out,
            "target": self.target,
            "impute": self.impute,
            "missing": list(self.missing),
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Columns":
        used = []
        for one in stored["used"]:
            fields = dict(one)
            if fields["kind"] == Number.kind:
                del fields["kind"]
                used.append(Number(**fields))
            else:
                fields |= {"levels": tuple(fields["levels"]), "counts": tuple(fields["counts"])}
                used.append(Category(**fields))
        missing = tuple(stored.get("missing", MISSING))
        left_out = dict(stored["left_out"])
        return cls(tuple(used), left_out, stored["target"], stored["impute"], missing)


def figure(value: float) -> str:
    """Few digits, and no powers of ten where people write none."""
    if 1e4 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1 else f"{value:.3g}"


def figures(*values: float) -> list[str]:
    """The same of several, with as many more digits as it takes to tell them apart."""
    shown, span = [figure(value) for value in values], max(values) - min(values)
    off = (
        abs(float(one.replace(",", "")) - value) for one, value in zip(shown, values, strict=True)
    )
    if span == 0 or all(one <= span / 20 for one in off):
        return shown
    largest = max(map(abs, values))
    digits = math.ceil(math.log10(largest / span)) + 2
    if not 1e-4 <= largest < 1e16:
        return [f"{value:.{digits}g}" for value in values]
    places = max(0, 1 - math.floor(math.log10(span)))
    return [f"{value:,.{places}f}" for value in values]


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}" + ("" if n == 1 else "s")


def listed_names(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    more = len(names) - most
    word = "column" if len(names) == 1 else "columns"
    return f"the {word} {shown}" + (f" and {more} more" if more > 0 else "")


def nearest_level(text: str, levels: Sequence[str]) -> str:
    hint = nearest(text, levels)
    return f" D{hint[3:]}" if hint else ""


def canonical(text: str, kind: str) -> str:
    """`1.0` is `1`, and `TRUE` is `true` in a column of truths."""
    if kind == Kind.TRUTH:
        return text.casefold()
    if is_number(text):
        if WHOLE.fullmatch(text):
            return text.lstrip("+")
        value = float(text)
        return str(int(value)) if value.is_integer() else repr(value)
    return text


def refuse_missing(raw: Raw, name: str, rows: Sequence[int] | np.ndarray) -> None:
    more = f" (and in {len(rows) - 1} more)" if len(rows) > 1 else ""
    raise InputError(
        f"column {name!r}, {raw.place(int(rows[0]))}: the value is missing{more}. Fill it in, "
        f"leave the rows or the column out (--drop {quoted(name)} when fitting), or {TO_IMPUTE}."
        + no_value(raw, name)
    )


def no_value(raw: Raw, name: str) -> str:
    """Which texts were taken for none, after a blank; of empty cells there is nothing to say."""
    texts = _texts_for_none(raw, name)
    return (
        f" (Taken for no value: {texts}; --missing when fitting says which are.)" if texts else ""
    )


def _texts_for_none(raw: Raw, name: str) -> str:
    """`'NA' in 3 cells`."""
    texts = Counter(text for text in raw.cells[name] if text and raw.is_missing(text))
    return ", ".join(f"{text!r} in {plural(n, 'cell')}" for text, n in texts.most_common(3))


# --- learning ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What the user says of columns."""

    drop: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    impute: bool = False


def learnt(raw: Raw, target: str, wishes: Wishes, missing: tuple[str, ...] = MISSING) -> Columns:
    _check_wishes(raw, target, wishes)
    used: list[Column] = []
    left_out = dict.fromkeys(wishes.drop, "you said so (--drop)")
    for name in raw.names:
        if name == target or name in wishes.drop:
            continue
        one = _column(raw, name, wishes)
        if isinstance(one, str):
            left_out[name] = one
        else:
            used.append(one)
    if not used:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise InputError(
            f"{raw.path!r}: no column is left to predict {target!r} from"
            + (f" ({reasons})." if reasons else ".")
        )
    return Columns(tuple(used), left_out, target, wishes.impute, missing)


def _check_wishes(raw: Raw, target: str, wishes: Wishes) -> None:
    for option in ("drop", "category", "keep"):
        for name in getattr(wishes, option):
            if name not in raw.names:
                hint = nearest(name, raw.names) or f": it has {', '.join(raw.names[:12])}."
                raise InputError(f"--{option}: {raw.path!r} has no column {name!r}{hint}")
            if name == target and option == "drop":
                raise InputError(f"--drop: {name!r} is the target.")


def _column(raw: Raw, name: str, wishes: Wishes) -> Column | str:
    """The column, or why it is left out."""
    as_category = name in wishes.category
    kind, missing = found(raw, name, as_category)
    if kind == Kind.EMPTY:
        texts = _texts_for_none(raw, name)
        return (
            f"it is empty but for {texts}, taken for no value (--missing)"
            if texts
            else "it is empty"
        )
    if missing and not wishes.impute:
        refuse_missing(raw, name, missing)
    kept = as_category or name in wishes.keep
    if kind == Kind.NUMBER:
        return _number(raw, name, kept, len(missing))
    return _category(raw, name, kind, kept, len(missing))


def _number(raw: Raw, name: str, kept: bool, n_missing: int) -> Number | str:
    values = numbers(raw, name)
    values = values[~np.isnan(values)]
    low, high = float(values.min()), float(values.max())
    if low == high:
        return f"it is {low:.6g} in every row"
    if not told_from_constant(values[:, None])[0]:
        return f"it is {low:.6g} in every row, but for rounding"
    if not kept and (reason := _names_rows(values, name)):
        return reason
    return Number(name, low, high, float(np.median(values)), n_missing)


def _names_rows(values: np.ndarray, name: str) -> str:
    n = len(values)
    if n < LEAST_ROW_NUMBERS or not (values == np.round(values)).all():
        return ""
    if values[0] in (0, 1) and (np.diff(values) == 1).all():
        return f"it counts the rows (--keep {quoted(name)} takes it in)"
    if ID_NAME.fullmatch(name.strip()) and len(np.unique(values)) == n:
        return f"its numbers are all different and name rows (--keep {quoted(name)} takes it in)"
    return ""


def _category(raw: Raw, name: str, kind: Kind, kept: bool, n_missing: int) -> Category | str:
    texts = [canonical(text, kind) for text in raw.cells[name] if not raw.is_missing(text)]
    counts = Counter(texts)
    n, levels = len(texts), sorted(counts, key=in_order)
    if kind == Kind.TRUTH:
        levels = [level for level in truths_of(set(levels)) or () if level in counts]
    if len(levels) == 1:
        return f"it is {shortened(levels[0])} in every row"
    if not kept and len(levels) == n and n > 2:
        return "every value is another text: it names rows"
    if not kept and len(levels) > max(MANY_LEVELS, n / 2):
        return f"it has {len(levels)} different texts in {n} rows: nothing can be learnt from them"
    if len(levels) > MOST_LEVELS:
        raise InputError(
            f"column {name!r} has {len(levels)} different values, more than the {MOST_LEVELS} "
            f"that are made columns: leave it out (--drop {quoted(name)}) or put them in groups."
        )
    counted = tuple(counts[level] for level in levels)
    return Category(name, kind, tuple(levels), counted, counts.most_common(1)[0][0], n_missing)


def in_order(text: str) -> tuple[int, float, str]:
    """Numbers by their size, then texts."""
    return (0, float(text), text) if is_number(text) else (1, 0.0, text)
