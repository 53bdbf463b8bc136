"""What is to be predicted: classes, numbers or counts."""

import dataclasses
from collections import Counter
from typing import Any

import numpy as np

from .._errors import InputError
from ._columns import canonical, figures, in_order, no_value, plural
from ._kinds import Kind, found, is_number, numbers, shortened, truths_of
from ._read import Raw, nearest

CLASSIFY, REGRESS, COUNT = "classify", "regress", "count"
TASKS = (CLASSIFY, REGRESS, COUNT)
LEAST_ROWS, MOST_CLASSES = 5, 30
# Whole numbers that begin so low, and are as small as this in the middle, are taken for counts.
LOW, SMALL = 2, 20
# And so many, one after the other, for codes of classes.
MOST_CODES = 4


@dataclasses.dataclass(frozen=True)
class Target:
    """`classes`: the labels, for classification alone; `guess`: why the task is what it is, where
    the user did not say."""

    name: str
    task: str
    classes: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    low: float = 0.0
    high: float = 0.0
    median: float = 0.0
    guess: str = ""

    @property
    def words(self) -> str:
        if self.task != CLASSIFY:
            what = "counts" if self.task == COUNT else "numbers"
            low, high, median = figures(self.low, self.high, self.median)
            return f"{what} from {low} to {high}, median {median}"
        total = sum(self.counts)
        pairs = list(zip(self.classes, self.counts, strict=True))
        shown = ", ".join(f"{name} ({100 * n / total:.0f}%)" for name, n in pairs[:8])
        more = f" and {len(pairs) - 8} more" if len(pairs) > 8 else ""
        return f"{len(pairs)} classes: {shown}{more}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Target":
        lists = {name: tuple(stored[name]) for name in ("classes", "counts")}
        return cls(**{**stored, **lists})


def target_of(raw: Raw, name: str, task: str | None) -> tuple[Target, np.ndarray]:
    """The target and its values: indices of classes, or numbers."""
    if name not in raw.names:
        hint = nearest(name, raw.names) or f": it has {', '.join(raw.names[:12])}."
        if any(is_number(one) for one in raw.names):
            hint += " (Does the first line hold the names of the columns?)"
        raise InputError(f"--target: {raw.path!r} has no column {name!r}{hint}")
    if raw.n_rows < LEAST_ROWS:
        raise InputError(
            f"{raw.path!r} has {plural(raw.n_rows, 'row')}: too few to learn from (at least "
            f"{LEAST_ROWS} are needed, and some dozens to learn much)."
        )
    kind, missing = found(raw, name, as_category=task == CLASSIFY)
    if missing:
        _refuse_missing(raw, name, missing)
    values = numbers(raw, name) if kind == Kind.NUMBER else None
    guess = ""
    if task is None:
        task, guess = _guessed(kind, values, raw, name)
    if task == CLASSIFY:
        return _classes(raw, name, guess)
    if values is None:
        row = next(row for row, text in enumerate(raw.cells[name]) if text)
        raise InputError(
            f"--task {task}: the target {name!r} holds text ({shortened(raw.cells[name][row])} in "
            f"{raw.place(row)}), not numbers. For classes leave --task out, or say --task classify."
        )
    if (values == values[0]).all():
        raise InputError(
            f"the target {name!r} is {values[0]:.6g} in every row: there is nothing to predict."
        )
    if task == COUNT:
        _check_counts(raw, name, values)
    low, high, median = float(values.min()), float(values.max()), float(np.median(values))
    return Target(name, task, low=low, high=high, median=median, guess=guess), values


def _refuse_missing(raw: Raw, name: str, missing: list[int]) -> None:
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    if len(missing) == raw.n_rows:
        raise InputError(f"the target {name!r} is empty.{no_value(raw, name)}")
    raise InputError(
        f"the target {name!r} is missing in {raw.place(missing[0])}{more}: leave these rows out. "
        "(A row without it teaches nothing, and --impute does not invent it.)" + no_value(raw, name)
    )


def _guessed(kind: Kind, values: np.ndarray | None, raw: Raw, name: str) -> tuple[str, str]:
    if values is None:
        return CLASSIFY, "its values are " + ("yes or no" if kind == Kind.TRUTH else "texts")
    distinct = np.unique(values)
    if len(distinct) <= 2:
        return CLASSIFY, "it has two different values"
    whole = bool((distinct == np.round(distinct)).all())
    codes = whole and distinct[0] in (0, 1) and (np.diff(distinct) == 1).all()
    if codes and len(distinct) <= MOST_CODES:
        return CLASSIFY, f"it has {len(distinct)} different values, small and whole"
    if whole and 0 <= distinct[0] <= LOW and np.median(values) <= SMALL:
        return COUNT, "its values are whole, none negative, most of them small"
    return REGRESS, "its values are numbers" + (", not small counts" if whole else "")


def _classes(raw: Raw, name: str, guess: str) -> tuple[Target, np.ndarray]:
    cells = raw.cells[name]
    truths = truths_of(set(cells))
    kind = Kind.TRUTH if truths else Kind.CATEGORY
    texts = [canonical(text, kind) for text in cells]
    counts = Counter(texts)
    classes = tuple(truths or sorted(counts, key=in_order))
    if len(counts) == 1:
        raise InputError(
            f"the target {name!r} is {shortened(cells[0])} in every row: there is one class only, "
            "and nothing to tell apart."
        )
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"the target {name!r} has {len(classes)} different values, too many for classes (at "
            f"most {MOST_CLASSES}): say --task regress if they are numbers, or put them in groups."
        )
    number = {label: i for i, label in enumerate(classes)}
    spelt = _as_spelt(cells, texts)
    labels, numbers_of = tuple(spelt[one] for one in classes), tuple(counts[one] for one in classes)
    made = Target(name, CLASSIFY, labels, numbers_of, guess=guess)
    return made, np.array([number[text] for text in texts], dtype=np.float64)


def _as_spelt(cells: list[str], classes: list[str]) -> dict[str, str]:
    """Of every class the text that stands for it in the file, most often or else first."""
    found: dict[str, str] = {}
    for (spelling, one), _ in Counter(zip(cells, classes, strict=True)).most_common():
        found.setdefault(one, spelling)
    return found


def _check_counts(raw: Raw, name: str, values: np.ndarray) -> None:
    wrong = np.flatnonzero((values < 0) | (values != np.round(values)))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"--task count: the target {name!r}, {raw.place(row)}, is {raw.cells[name][row]}, "
            "which is no count: counts are whole and not negative. Say --task regress for others."
        )
