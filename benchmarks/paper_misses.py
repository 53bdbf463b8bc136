"""Why some cells of the paper's tables are missed: what changes when one choice changes.

1. Ringnorm and twonorm with 10, 20 and 30 basis functions, all else as in protocol best. Rows are
   kept in `--out`, and the same command goes on where it stopped.
2. VI_diag with the hyperparameters held at those of Laplace, against learning them by its own bound
   (those rows come from `--rows`, a results folder that has protocol best).

Needs the data sets (MIXVI_DATA). About half an hour on 2 cores.
"""

import argparse
from pathlib import Path

import numpy as np

from mixvi import fit_many
from mixvi.paper import _reading, _run, experiments
from mixvi.paper._evaluate import Gaussians, scores
from mixvi.paper._problems import problems, scaled
from mixvi.paper._protocol import BEST, Settings
from mixvi.paper._task import Task
from mixvi.paper.printed import METHODS, printed
from problems import machine

SIZES = (10, 20, 30)


def by_size(out: Path, n_splits: int) -> None:
    print(f"Median joint LPD over the first {n_splits} splits, protocol best but for the basis.\n")
    print(f"| set | basis functions | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}")
    for name in ("ringnorm", "twonorm"):
        known = (f"{printed()['binary', name, 'lpd', one].value:.1f}" for one in METHODS)
        print(f"| {name} | printed (100 splits) | {' | '.join(known)} |")
        for size in SIZES:
            folder = out / f"basis{size}"
            plan = experiments.Plan(
                ("binary",),
                Settings(BEST, n_basis=size),
                (name,),
                METHODS,
                tuple(range(n_splits)),
                trend=False,
            )
            experiments.run(plan, folder)
            rows = _reading.read(folder)
            medians = (
                np.median(rows.values(("best", "binary", name, one), "lpd")) for one in METHODS
            )
            print(
                f"| {name} | {size} | {' | '.join(f'{one:.1f}' for one in medians)} |", flush=True
            )


def held(name: str, n_splits: int, learnt: _reading.Rows) -> None:
    """One line for each way: bound, width, scores; medians over the same splits."""
    indices = tuple(range(n_splits))
    settings = Settings(BEST)
    task = Task("multiclass", name, indices, ("diag",), settings, "", trend=False)
    splits, n_classes = scaled("multiclass", name, indices, settings)
    made = problems(splits, n_classes, BEST, settings, indices, BEST.sizes[0])
    block = _run.shared_part(task, indices, made, _run.screened(made))
    posts = fit_many(
        lambda w, data: made.model.log_density(w, data["rows"], data["hyper"]),
        block.init,
        "diag",
        {"rows": made.data, "hyper": block.hyper},
        init_batched=True,
        draws=BEST.draws(n_classes, None),
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
    known = printed()["multiclass", name, "lpd", "diag"].value
    columns = [
        learnt.column(("best", "multiclass", name, "diag"), field)
        for field in ("elbo_fixed", "hyper.log_width", "lpd", "pointwise", "error", "converged")
    ]
    own = [np.array([column[split] for split in indices]) for column in columns]
    own[1] = np.exp(own[1])
    line(name, n_splits, known, "learnt by its own bound", own[:-1], own[-1].mean())
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
    by_size(options.out, options.splits)
    print("\nVI_diag: medians over the first splits, with the hyperparameters learnt or held.\n")
    print("| set, splits | hyperparameters | bound | width | joint LPD | pointwise LPD | error % "
          "| printed LPD | converged |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    learnt = _reading.read(options.rows)
    for name in ("balance", "soybean", "vehicle"):
        held(name, options.held_splits, learnt)


if __name__ == "__main__":
    main()
