"""The rows that the experiments left, read back from their folder.

Fields inside others have dotted names ("diag.lpd_best_test"). Should a fit have two rows, the later
one counts.
"""

import functools
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd

from . import results
from .experiments import ALL_METHODS, EXPERIMENTS, KEY, METHODS, PROTOCOLS

TEXTS = (*(name for name in KEY if name != "split"), "run", "failed", "status", "diag.start")
LISTS = ("mean", "cov", "curve.x", "curve.mean", "curve.sd")
# What the report asks for: columns of their own even where no row has them.
NUMBERS = ("lpd", "pointwise", "error", "error_draws", "elbo", "elbo_fixed", "gap", "khat", "kl")
NUMBERS += ("converged", "n_basis", "n_test", "hyper.log_width")
NUMBERS += ("diag.lpd_best_test", "diag.error_best_test")
COMPACT = "rows.csv.gz"


class Rows:
    """`fits` and `failed` have a line a row, `jobs` one a job; `runs` are records as they are."""

    def __init__(self, rows: pd.DataFrame, jobs: list[dict[str, Any]], runs: list[dict[str, Any]]):
        rows = rows.reindex(columns=list(dict.fromkeys([*KEY, "failed", *rows, *NUMBERS, *LISTS])))
        rows = rows.drop_duplicates(list(KEY), keep="last").reset_index(drop=True)
        trends = [name for name in rows if name.startswith("trend.")]
        for name in ("split", *NUMBERS, *trends):
            rows[name] = pd.to_numeric(rows[name], errors="coerce").astype(float)
        self.all = rows
        whole = rows["failed"].isna()
        self.fits, self.failed = rows[whole], rows[~whole]
        self.jobs, self.runs = pd.json_normalize(jobs), runs
        self._by_set = dict(tuple(self.fits.groupby(["protocol", "experiment", "set"])))

    @functools.cached_property
    def protocols(self) -> tuple[str, ...]:
        present = set(self.all["protocol"])
        return (*(one for one in PROTOCOLS if one in present), *sorted(present - set(PROTOCOLS)))

    def has(self, protocol: str, experiment: str) -> bool:
        return any(key[:2] == (protocol, experiment) for key in self._by_set)

    def of(self, protocol: str, experiment: str, name: str) -> pd.DataFrame:
        """The fits of one set."""
        return self._by_set.get((protocol, experiment, name), self.fits[:0])

    def counts(self, protocol: str, experiment: str, name: str) -> dict[str, int]:
        """How many splits each method has."""
        found = self.of(protocol, experiment, name)["method"].value_counts()
        return {method: int(found.get(method, 0)) for method in ALL_METHODS}

    def sets(self, protocol: str, experiment: str) -> list[str]:
        """Those that have fits, in the paper's order."""
        names = EXPERIMENTS[experiment].sets
        return [name for name in names if (protocol, experiment, name) in self._by_set]

    def paired(
        self, protocol: str, experiment: str, name: str, field: str, methods=METHODS
    ) -> pd.DataFrame:
        """A column for each method that has any numbers, a line for each split that all of them
        have."""
        found = self.of(protocol, experiment, name)
        wide = found.pivot(index="split", columns="method", values=field)
        wide = wide.dropna(axis=1, how="all")
        return wide[[method for method in methods if method in wide]].dropna()


def read(folder: Path) -> Rows:
    """Everything in a results folder; or in that of a report, whose rows are one table."""
    if not (folder / "rows.jsonl").exists() and (folder / COMPACT).exists():
        texts = dict.fromkeys(TEXTS, str)
        table = pd.read_csv(folder / COMPACT, dtype=texts, low_memory=False)
        for name in set(LISTS) & set(table):
            table[name] = [json.loads(one) if isinstance(one, str) else None for one in table[name]]
    else:
        table = pd.json_normalize(results.read(folder, "rows"))
    return Rows(table, results.read(folder, "jobs"), results.read(folder, "runs"))


def write_compact(rows: Rows, path: Path) -> None:
    """All rows as gzipped CSV, lists as JSON."""
    table = rows.all.dropna(axis=1, how="all").copy()
    for name in table:
        if table[name].map(lambda one: isinstance(one, list)).any():
            table[name] = [json.dumps(v) if isinstance(v, list) else "" for v in table[name]]
    text = io.StringIO()
    table.to_csv(text, index=False, lineterminator="\n")
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
