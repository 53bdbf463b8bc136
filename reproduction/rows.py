"""The rows that the experiments left, read back from their folder.

Fields inside others have dotted names ("diag.lpd_best_test"). Should a fit have two rows, the later
one counts.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from . import results
from .experiments import ALL_METHODS, EXPERIMENTS, KEY, METHODS, PROTOCOLS, tables

TEXTS = (*(name for name in KEY if name != "split"), "run", "failed", "status", "diag.start")
LISTS = ("mean", "cov", "curve.x", "curve.mean", "curve.sd")
# What the report asks for: columns of their own even where no row has them.
NUMBERS = ("lpd", "pointwise", "error", "error_draws", "elbo", "elbo_fixed", "gap", "khat", "kl")
NUMBERS += ("converged", "n_basis", "n_test", "hyper.log_width")
NUMBERS += ("diag.lpd_best_test", "diag.error_best_test")
COMPACT = "rows.csv.gz"
Place = tuple[str, str, str]  # protocol, experiment, set


class Rows:
    """`fits` and `failed` have a line a row, `jobs` one a job; `runs` are records as they are."""

    def __init__(self, rows: pd.DataFrame, jobs: list[dict[str, Any]], runs: list[dict[str, Any]]):
        rows = rows.reindex(columns=list(dict.fromkeys([*KEY, "failed", *rows, *NUMBERS, *LISTS])))
        rows = rows.drop_duplicates(list(KEY), keep="last", ignore_index=True)
        for name in ("split", *NUMBERS, *(one for one in rows if one.startswith("trend."))):
            rows[name] = pd.to_numeric(rows[name], errors="coerce").astype(float)
        self.all, whole = rows, rows["failed"].isna()
        self.fits, self.failed = rows[whole], rows[~whole]
        self.jobs, self.runs = pd.json_normalize(jobs), runs
        self._by_set = dict(tuple(self.fits.groupby(["protocol", "experiment", "set"])))
        present = set(rows["protocol"])
        self.protocols = (
            *(one for one in PROTOCOLS if one in present),
            *sorted(present - set(PROTOCOLS)),
        )

    def places(self, protocol: str, experiments: Sequence[str] = ()) -> list[Place]:
        """Sets that have fits, in the paper's order, each after its protocol and experiment."""
        its = experiments or tables()
        some = [(protocol, one, name) for one in its for name in EXPERIMENTS[one].sets]
        return [place for place in some if place in self._by_set]

    def protocols_of(self, experiment: str) -> list[str]:
        """Those that have fits of the experiment."""
        return [one for one in self.protocols if self.places(one, (experiment,))]

    def of(self, protocol: str, experiment: str, name: str, method: str = "") -> pd.DataFrame:
        """The fits of one set, by one method or by all."""
        found = self._by_set.get((protocol, experiment, name), self.fits[:0])
        return found[found.method == method] if method else found

    def counts(self, protocol: str, experiment: str) -> pd.DataFrame:
        """How many splits there are: a line a set, a column a method."""
        fits = self.fits[(self.fits.protocol == protocol) & (self.fits.experiment == experiment)]
        found = fits.groupby(["set", "method"]).size().unstack(fill_value=0)
        sets = list(EXPERIMENTS[experiment].sets)
        return found.reindex(index=sets, columns=list(ALL_METHODS), fill_value=0).astype(int)

    def paired(self, protocol: str, experiment: str, name: str, field: str) -> pd.DataFrame:
        """A column for each of the paper's methods that has any numbers, a line for each split that
        all of them have."""
        found = self.of(protocol, experiment, name)
        wide = found.pivot(index="split", columns="method", values=field)
        wide = wide.dropna(axis=1, how="all")
        return wide[[method for method in METHODS if method in wide]].dropna()


def read(folder: Path) -> Rows:
    """Everything in a results folder; or in that of a report, whose rows are one table."""
    if not (folder / "rows.jsonl").exists() and (folder / COMPACT).exists():
        # To the last digit: pandas 2 rounds some unless it is told not to; 3.1 needs no telling.
        old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
        exactly = {"float_precision": "round_trip"} if old else {}
        texts = dict.fromkeys(TEXTS, str)
        table = pd.read_csv(folder / COMPACT, dtype=texts, low_memory=False, **exactly)
        for name in set(LISTS) & set(table):
            table[name] = table[name].map(json.loads, na_action="ignore")
    else:
        table = pd.json_normalize(results.read(folder, "rows"))
    return Rows(table, results.read(folder, "jobs"), results.read(folder, "runs"))


def write_compact(rows: Rows, path: Path) -> None:
    """All rows as gzipped CSV, lists as JSON."""
    table = rows.all.dropna(axis=1, how="all").map(
        lambda one: json.dumps(one) if isinstance(one, list) else one
    )
    table.to_csv(path, index=False, lineterminator="\n", compression={"method": "gzip", "mtime": 0})
