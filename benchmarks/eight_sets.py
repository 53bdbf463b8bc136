"""`MVIClassifier()` on the eight sets of the README: pointwise log predictive densities and errors,
medians over the first 20 splits, what was chosen, and seconds of a fit (without its verdict).

python benchmarks/eight_sets.py            # as it is
python benchmarks/eight_sets.py laplace    # another family
"""

import collections
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from mixvi.estimators import MVIClassifier
from reproduction import data

SETS = ("banana", "german", "heart", "thyroid", "titanic", "iris", "wine", "glass")
N_SPLITS = 20


class Fit(NamedTuple):
    lpd: float
    error: float
    n_basis: int
    seconds: float


def fitted(name: str, index: int, family: str) -> Fit:
    table = data.load(name)
    split = data.splits(table, [index], seed=0)[0]
    keep = np.ptp(table.x, axis=0) > 0
    classes = np.arange(table.n_classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model = MVIClassifier(family, classes=classes, diagnostics=False)
        model.fit(split.x[:, keep], split.y)
        seconds = time.perf_counter() - began
    x, y = split.x_test[:, keep], split.y_test
    lpd = model.log_predictive_density(x, y, pointwise=True).sum()
    return Fit(lpd, float((model.predict(x) != y).mean()), model.n_basis_, seconds)


def main(family: str = "auto") -> None:
    print(f"{family}: medians over {N_SPLITS} splits, two processes\n")
    print("| set | LPD | error % | basis functions (splits) | seconds of a fit |")
    print("|---|---|---|---|---|")
    for name in SETS:
        with ProcessPoolExecutor(2) as pool:
            jobs = [pool.submit(fitted, name, i, family) for i in range(N_SPLITS)]
            found = [job.result() for job in jobs]
        lpd, error, _, seconds = (np.median([one[k] for one in found]) for k in range(4))
        sizes = collections.Counter(one.n_basis for one in found)
        told = ", ".join(f"{size} ({n})" for size, n in sorted(sizes.items()))
        print(f"| {name} | {lpd:.1f} | {100 * error:.1f} | {told} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
