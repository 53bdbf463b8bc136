"""Tables of numbers as lines of text."""

from collections.abc import Sequence

import numpy as np

SHOWN = (0.05, 0.5, 0.95)
COLUMNS = ("mean", "std", *(f"{p:.0%}" for p in SHOWN))
Row = tuple[str, list[str]]
Table = tuple[Sequence[str], np.ndarray]


def table_of(head: str, names: Sequence[str], numbers: np.ndarray) -> list[str]:
    """A head, and a line for each of the names."""
    return lines_of(head, shortened((names, numbers), len(names))[0])


def lines_of(head: str, rows: list[Row]) -> list[str]:
    width = max([len(name) for name, _ in rows] + [len(head)])
    whole = [(head, list(COLUMNS)), *rows]
    return [f"{name:<{width}}" + "".join(f" {one:>10}" for one in cells) for name, cells in whole]


def n_shown(n: int, most: int) -> int:
    """Rows of a table that has `most` lines, one of which may have to say how many are left out."""
    return n if n <= most else most - 1


def shortened(table: Table, most: int) -> tuple[list[Row], str]:
    """As text, and a word on those that are left out."""
    names, columns = table
    shown = n_shown(len(names), most)
    rows = [(names[i], [f"{number:.4g}" for number in columns[i]]) for i in range(shown)]
    left = len(names) - shown
    return rows, f"... and {left} more: summary(most=...), .mean, .quantiles" if left else ""
