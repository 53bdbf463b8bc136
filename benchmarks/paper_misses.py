"""Why some cells of the paper's tables are missed: what changes when one choice changes.

1. Twonorm and ringnorm with 10 basis functions, all else as in protocol best. Rows are kept
   in `--out`, and the same command goes on where it stopped.
2. VI_diag with the hyperparameters held at those of Laplace, against learning them by its bound.

What protocol best gives, with 30 basis functions and all learnt, comes from `--rows`, a results
folder that has it.

Needs the data sets (MIXVI_DATA). About half an hour on 2 cores.
"""

import argparse
from pathlib import Path

import numpy as np

from mixvi import fit_many
from problems import machine
from reproduction.experiments import BEST, METHODS, Settings, Task, printed
from reproduction.fitting import prepared
from reproduction.rows import Rows, read
from reproduction.run import Plan, run
from reproduction.scores import Gaussians, scores

SMALLER = (10,)


def by_size(out: Path, n_splits: int, usual: Rows) -> None:
    print(f"Median joint LPD over the first {n_splits} splits, protocol best but for the basis.\n")
    print(f"| set | basis functions | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}")
    for name in ("twonorm", "ringnorm"):
        known = (f"{printed().value['binary', name, 'lpd', one]:.1f}" for one in METHODS)
        print(f"| {name} | printed (100 splits) | {' | '.join(known)} |")
        medians_of(usual, name, BEST.sizes[0], n_splits)
        for size in SMALLER:
            folder = out / f"basis{size}"
            settings, splits = Settings(BEST, n_basis=size), tuple(range(n_splits))
            run(Plan(("binary",), settings, (name,), METHODS, splits, trend=False), folder)
            medians_of(read(folder), name, size, n_splits)


def medians_of(rows: Rows, name: str, size: int, n_splits: int) -> None:
    medians = rows.paired("best", "binary", name, "lpd").loc[: n_splits - 1].median()
    print(f"| {name} | {size} | {' | '.join(f'{one:.1f}' for one in medians)} |", flush=True)


def held(name: str, n_splits: int, learnt: Rows) -> None:
    """One line for each way: bound, width, scores; medians over the same splits."""
    indices = tuple(range(n_splits))
    settings = Settings(BEST)
    task = Task("multiclass", name, indices, ("diag",), settings, "", trend=False)
    block = prepared(task, indices, lambda *_: None)
    made = block.problems
    posts = fit_many(
        lambda w, data: made.model.log_density(w, data["hyper"], data["rows"]),
        block.init,
        family="diag",
        data={"rows": made.data, "hyper": block.hyper},
        init_batched=True,
        diagnostics=False,
    )
    fitted = Gaussians(
        block.hyper,
        np.stack([post.flat_mean for post in posts]),
        np.stack([post.root for post in posts]),
    )
    found = scores(made, fitted, np.array(indices), (settings.n_predict,), settings.seed)
    converged = np.mean([post.converged for post in posts])
    held_numbers = (
        [post.elbo_fixed for post in posts],
        np.exp(block.hyper["log_width"]),
        found.lpd[:, 0],
        found.pointwise,
        found.error,
    )
    known = printed().value["multiclass", name, "lpd", "diag"]
    its = learnt.of("best", "multiclass", name)
    its = its[(its["method"] == "diag") & its["split"].isin(indices)]
    width = np.exp(its["hyper.log_width"])
    own = (its["elbo_fixed"], width, its["lpd"], its["pointwise"], its["error"])
    line(name, n_splits, known, "learnt by its own bound", own, its["converged"].mean())
    line(name, n_splits, known, "held at Laplace's", held_numbers, converged)


def line(name, n_splits, known, how, numbers, converged) -> None:
    medians = " | ".join(f"{np.median(one):.2f}" for one in numbers)
    print(
        f"| {name}, {n_splits} | {how} | {medians} | {known:.2f} | {100 * converged:.0f}% |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("report/misses"))
    parser.add_argument("--rows", type=Path, default=Path("report/paper"))
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--held-splits", type=int, default=20)
    options = parser.parse_args()
    print(f"{machine()}\n")
    usual = read(options.rows)
    by_size(options.out, options.splits, usual)
    print("\nVI_diag: medians over the first splits, with the hyperparameters learnt or held.\n")
    print("| set, splits | hyperparameters | bound | width | joint LPD | pointwise LPD | error % "
          "| printed LPD | converged |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for name in ("balance", "soybean", "vehicle"):
        held(name, options.held_splits, usual)


if __name__ == "__main__":
    main()
