"""Predictions with hyperparameters integrated against point estimates: eight of the paper's sets.

    python benchmarks/nested_predictions.py [SET ...] [--splits 10]     goes on where it stopped
    python benchmarks/nested_predictions.py --page                      the page alone

`MVIClassifier(basis, integrate_hyper=...)`, split by split, the same basis for both: pointwise log
predictive densities of the test rows, in sum. Rows are kept in
docs/results/parts/nested_predictions_rows.jsonl.
"""

import argparse
import json
import math
import pathlib
import sys
import time
import warnings

import numpy as np

from mixvi.estimators import MVIClassifier
from problems import data_set, machine
from reproduction import data

ROWS = pathlib.Path(__file__).resolve().parents[1]
ROWS = ROWS / "docs/results/parts/nested_predictions_rows.jsonl"
SETS = ("thyroid", "heart", "breast_cancer", "titanic", "iris", "wine", "glass", "banana")
N_BASIS = 10


def row(name: str, index: int) -> dict:
    table = data_set(name)
    split = data.splits(table, [index], seed=0)[0]
    keep = np.ptp(table.x, axis=0) > 0
    made: dict = {"set": name, "split": index, "n_test": len(split.y_test)}
    for way in ("point", "integrated"):
        model = MVIClassifier(
            n_basis=N_BASIS,
            width_per_feature=False,
            classes=np.arange(table.n_classes),
            integrate_hyper=way == "integrated",
            diagnostics=False,
        )
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(split.x[:, keep], split.y)
        seconds = time.process_time() - began
        x, y = split.x_test[:, keep], split.y_test
        lpd = model.log_predictive_density(x, y, pointwise=True).sum()
        error = float((model.predict(x) != y).mean())
        found = model.posterior_.hyper_posterior
        made[way] = {
            "lpd": float(lpd),
            "error": error,
            "seconds": seconds,
            "points": 1 if found is None else len(found.points),
            "warnings": [] if found is None else list(found.warnings),
        }
    return made


def rows() -> list[dict]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run(names: list[str], n_splits: int) -> None:
    done = {(one["set"], one["split"]) for one in rows()}
    for index in range(n_splits):
        for name in names or SETS:
            if (name, index) in done:
                continue
            made = row(name, index)
            with ROWS.open("a") as file:
                file.write(json.dumps(made) + "\n")
            print(name, index, file=sys.stderr)


def sign_test(gains: np.ndarray) -> float:
    """Two-sided, ties dropped."""
    up, down = int((gains > 0).sum()), int((gains < 0).sum())
    n, most = up + down, max(up, down)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n) if n else 1.0


def page() -> str:
    lines = [
        f"`MVIClassifier(n_basis={N_BASIS}, width_per_feature=False)` with and without "
        "`integrate_hyper=True`: log predictive densities of the test rows, each by itself, in sum "
        "(medians over splits); what integrating gains, split by split.",
        "",
        "| set | splits | test rows | LPD at the mode | LPD integrated | gain (median; least, "
        "most) | better in | sign test | error % at the mode, integrated | points | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    all_gains, said = [], 0
    for name in SETS:
        some = [one for one in rows() if one["set"] == name]
        if not some:
            continue
        point, whole = ([one[way] for one in some] for way in ("point", "integrated"))
        gains = np.array([b["lpd"] - a["lpd"] for a, b in zip(point, whole, strict=True)])
        all_gains += [gains]
        said += sum(bool(one["warnings"]) for one in whole)
        lpds = [np.median([one["lpd"] for one in ways]) for ways in (point, whole)]
        errors = [100 * np.mean([one["error"] for one in ways]) for ways in (point, whole)]
        seconds = [np.median([one["seconds"] for one in ways]) for ways in (point, whole)]
        lines.append(
            f"| {name} | {len(some)} | {some[0]['n_test']} | {lpds[0]:.2f} | {lpds[1]:.2f} "
            f"| {np.median(gains):+.3f}; {gains.min():+.2f}, {gains.max():+.2f} "
            f"| {(gains > 0).sum()} of {len(gains)} | {sign_test(gains):.2f} "
            f"| {errors[0]:.1f}, {errors[1]:.1f} "
            f"| {np.median([one['points'] for one in whole]):.0f} "
            f"| {seconds[0]:.2f}, {seconds[1]:.2f} |"
        )
    whole = np.concatenate(all_gains) if all_gains else np.zeros(0)
    lines += [
        "",
        f"Of {len(whole)} splits in all integrating is better in {(whole > 0).sum()}, worse in "
        f"{(whole < 0).sum()}; signs against the design were given in {said}. One fit of each, CPU "
        "times of a shared machine.",
        "",
        f"Made by `benchmarks/nested_predictions.py` on {machine()}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page:
        run(arguments.sets, arguments.splits)
    (ROWS.parent / "nested_predictions.md").write_text(page())
    print(page())


if __name__ == "__main__":
    main()
