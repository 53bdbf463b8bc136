"""The numbers that the paper prints."""

import csv
import functools
import importlib.resources
from typing import NamedTuple

METHODS = ("laplace", "mu", "eig", "lr", "diag")
METRICS = {"cauchy": ("lpd", "mse"), "binary": ("lpd", "error"), "multiclass": ("lpd", "error")}


class Printed(NamedTuple):
    """One cell: its value, whether it is bold (best of its row) and bulleted (significantly)."""

    value: float
    best: bool
    significant: bool


@functools.cache
def printed() -> dict[tuple[str, str, str, str], Printed]:
    """By table, set, metric and method. The table `robust_gp` is in the paper's source only."""
    text = importlib.resources.files("mixvi.paper").joinpath("printed.csv").read_text("utf-8")
    return {
        (row["table"], row["dataset"], row["metric"], row["method"]): Printed(
            float(row["value"]), row["best"] == "1", row["significant"] == "1"
        )
        for row in csv.DictReader(text.splitlines())
    }


def sets(table: str) -> tuple[str, ...]:
    """The names in the order of a table."""
    return tuple(dict.fromkeys(name for its, name, _, _ in printed() if its == table))
