"""Where the examples get their table: the banana set, or one like it where it is not at hand."""

import os
import pathlib

import numpy as np
from sklearn.datasets import make_moons


def banana() -> tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Its name, then training and test rows: the first published split of banana from the folder
    that MIXVI_DATA names, otherwise two moons."""
    beside = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    path = pathlib.Path(os.environ.get("MIXVI_DATA", beside)) / "raetsch_banana.npz"
    if path.exists():
        with np.load(path) as file:
            x, t, train, test = file["x"], file["t"], file["train"][0], file["test"][0]
        return "banana", x[train].astype(float), t[train], x[test].astype(float), t[test]
    x, t = make_moons(4400, noise=0.35, random_state=0)
    return "two moons", x[:400], t[:400], x[400:], t[400:]
