"""The rows that the experiments left, read back from their folder.

Should a fit have two rows, the later one counts. Keys that are not known here are passed over.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..paper import _results
from .printed import METHODS, sets

# the paper's five, and what stands beside them: the whole covariance, and what `fit` chooses
ALL_METHODS = (*METHODS, "full", "auto")
TABLES = ("cauchy", "binary", "multiclass")
PROTOCOLS = ("best", "paper")

Key = tuple[str, str, str, str]  # protocol, experiment, set, method


class Paired(NamedTuple):
    """Numbers on the splits that all these methods have: one row a split, one column a method."""

    methods: tuple[str, ...]
    values: Float[np.ndarray, "n k"]


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """By protocol, experiment, set and method, and then by split; failed fits apart."""

    fits: dict[Key, dict[int, dict[str, Any]]]
    failed: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    runs: list[dict[str, Any]]

    def protocols(self) -> tuple[str, ...]:
        present = {key[0] for key in self.fits} | {str(row["protocol"]) for row in self.failed}
        known = tuple(name for name in PROTOCOLS if name in present)
        return known + tuple(sorted(present - set(PROTOCOLS)))

    def sets(self, table: str) -> tuple[str, ...]:
        """The paper's sets in its order, then any others that have rows."""
        printed = sets(table)
        present = {key[2] for key in self.fits if key[1] == table}
        return printed + tuple(sorted(present - set(printed)))

    def has(self, protocol: str, table: str) -> bool:
        return any(key[:2] == (protocol, table) for key in self.fits)

    def any_of(self, method: str) -> bool:
        return any(key[3] == method for key in self.fits)

    def seed(self, row: dict[str, Any]) -> int:
        """That of the run which made a row; 0 where there is no record of it."""
        by_id = {run.get("run"): run.get("settings") or {} for run in self.runs}
        return int(by_id.get(row.get("run"), {}).get("seed") or 0)

    def column(self, key: Key, field: str) -> dict[int, float]:
        """A field's numbers by split; what is no finite number is left out."""
        found = {split: number(row, field) for split, row in self.fits.get(key, {}).items()}
        return {split: value for split, value in sorted(found.items()) if math.isfinite(value)}

    def values(self, key: Key, field: str) -> Float[np.ndarray, " n"]:
        return np.array(list(self.column(key, field).values()), dtype=float)

    def paired(
        self, protocol: str, table: str, name: str, methods: tuple[str, ...], field: str
    ) -> Paired:
        """The methods that have any numbers, on the splits that all of these have."""
        columns = {one: self.column((protocol, table, name, one), field) for one in methods}
        columns = {one: column for one, column in columns.items() if column}
        shared = sorted(set.intersection(*map(set, columns.values()))) if columns else []
        values = np.empty((len(shared), len(columns)))
        for place, column in enumerate(columns.values()):
            values[:, place] = [column[split] for split in shared]
        return Paired(tuple(columns), values)


def read(folder: Path) -> Rows:
    """Everything in a results folder; files that are not there count as empty."""
    latest = {_results.key(row): row for row in _results.read(folder, "rows")}
    fits: dict[Key, dict[int, dict[str, Any]]] = {}
    for (protocol, experiment, name, split, method), row in latest.items():
        if not row.get("failed"):
            fits.setdefault((protocol, experiment, name, method), {})[split] = row
    failed = [row for row in latest.values() if row.get("failed")]
    return Rows(fits, failed, _results.read(folder, "jobs"), _results.read(folder, "runs"))


def number(row: dict[str, Any], field: str) -> float:
    """A field, or one inside another ("diag.lpd_best_test"); not a number where there is none."""
    value: Any = row
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan
