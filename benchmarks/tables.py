"""The data sets of the paper as (training, test) tables, for benchmarks."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from problems import data_folder

MULTICLASS = ("iris", "wine", "glass", "balance_scale", "crabs", "ecoli", "soybean_small")
MULTICLASS += ("vehicle",)


class Split(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def splits(name: str, n: int) -> Iterator[Split]:
    """The first `n` splits: the published ones, or 70% drawn at random for the multiclass sets."""
    prefix = "" if name in MULTICLASS else "raetsch_"
    with np.load(data_folder() / f"{prefix}{name}.npz") as file:
        x, t = file["x"].astype(float), file["t"].astype(int)
        published = (file["train"], file["test"]) if prefix else None
    for i in range(n):
        if published is not None:
            train, test = published[0][i], published[1][i]
        else:
            order = np.random.default_rng([i, len(t)]).permutation(len(t))
            train, test = np.split(order, [int(np.ceil(0.7 * len(t)))])
        yield Split(x[train], t[train], x[test], t[test])


def classes(name: str) -> np.ndarray:
    prefix = "" if name in MULTICLASS else "raetsch_"
    with np.load(data_folder() / f"{prefix}{name}.npz") as file:
        return np.unique(file["t"].astype(int))
