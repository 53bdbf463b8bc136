"""How to choose the hyperparameters, judged by validation inside training sets only.

Every variant is fitted to 70% of each of the first training sets and scored on the other 30%: the
mean log predictive density of one observation. No test row is touched. Rows are saved as they come
and a second run goes on where the first one stopped.
"""

import argparse
import itertools
import json
import pathlib
import warnings

import numpy as np

import mixvi
from mixvi.estimators import MVIClassifier
from problems import data_set, machine, splits

SETS = ("banana", "german", "heart", "ringnorm", "thyroid", "titanic", "twonorm", "iris", "glass")
SIZES, PRIORS, STARTS = (10, 20, 30), ("flat", "weak"), ("spread", 10)


def fits(name: str, n_splits: int, family: str):
    labels = np.arange(data_set(name).n_classes)
    for i, split in enumerate(splits(name, n_splits)):
        order = np.random.default_rng(i).permutation(len(split.y))
        fit, held = np.split(order, [int(0.7 * len(order))])
        for size, prior, starts in itertools.product(SIZES, PRIORS, STARTS):
            model = MVIClassifier(
                family,
                n_basis=size,
                hyper_prior=prior,
                starts=starts,
                classes=labels,
                diagnostics=False,
            ).fit(split.x[fit], split.y[fit])
            lpd = model.log_predictive_density(split.x[held], split.y[held], True, 2000).mean()
            yield {
                "set": name,
                "split": i,
                "size": size,
                "prior": prior,
                "starts": str(starts),
                "laplace": model.posterior_.log_evidence_laplace,
                "elbo": model.posterior_.elbo_fixed,
                "lpd": float(lpd),
                "ran_off": list(model.posterior_.hyper_report.ran_off),
            }


def chosen(rows: list[dict], by: str | None, once: bool) -> list[float]:
    """Scores when the size is chosen: fixed (`by` None is not called), per fit, or once a set."""
    groups: dict[tuple, dict[int, dict]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["split"]), {})[row["size"]] = row
    scores = []
    for (name, _), sizes in groups.items():
        if once:
            sums = {
                size: sum(g[size][by] for (other, _), g in groups.items() if other == name)
                for size in SIZES
            }
            size = max(sums, key=lambda s: sums[s])
        else:
            size = max(sizes, key=lambda s: sizes[s][by])
        scores.append(sizes[size]["lpd"])
    return scores


def table(rows: list[dict], sets: tuple[str, ...]) -> None:
    variants = []
    for prior, starts in itertools.product(PRIORS, map(str, STARTS)):
        some = [row for row in rows if row["prior"] == prior and row["starts"] == starts]
        for size in SIZES:
            picked = [row for row in some if row["size"] == size]
            variants.append((prior, starts, f"{size}", picked, [row["lpd"] for row in picked]))
        for by in ("laplace", "elbo"):
            for once in (False, True):
                how = f"{'once a set' if once else 'per fit'} by {by}"
                picked = [row for row in some if row["size"] == SIZES[0]]
                variants.append((prior, starts, how, picked, chosen(some, by, once)))
    print("| prior | starts | n_basis | " + " | ".join(sets) + " | mean |")
    print("|---|---|---|" + "---|" * (len(sets) + 1))
    for prior, starts, how, picked, scores in variants:
        by_set = [
            np.mean([s for row, s in zip(picked, scores, strict=True) if row["set"] == name])
            for name in sets
        ]
        cells = " | ".join(f"{value:.4f}" for value in [*by_set, np.mean(by_set)])
        print(f"| {prior} | {starts} | {how} | {cells} |")
    off = sum(bool(row["ran_off"]) for row in rows)
    flat = sum(bool(row["ran_off"]) for row in rows if row["prior"] == "flat")
    print(
        f"\nFits in which a hyperparameter ran off: {off} of {len(rows)}, {flat} of them with flat"
    )
    print("priors.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--family", default="eig")
    parser.add_argument("--rows", type=pathlib.Path, default=pathlib.Path("report/screening.jsonl"))
    parser.add_argument("--sets", nargs="*", default=SETS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    if options.rows.exists():
        rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    done = {row["set"] for row in rows}
    for name in options.sets:
        if name in done:
            continue
        new = list(fits(name, options.splits, options.family))
        with options.rows.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in new)
        rows += new
    print(f"{machine()}; family {options.family}, {options.splits} training sets each\n")
    table(rows, tuple(options.sets))


if __name__ == "__main__":
    main()
