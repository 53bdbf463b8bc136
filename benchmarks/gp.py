"""Gaussian processes: classification and regression with heavy tails, beside scikit-learn's.

    python benchmarks/gp.py            goes on where it stopped; prints the page
    python benchmarks/gp.py --page     the page alone

Every set, method and split is a fresh process; at most 500 training rows, 400 of banana. Rows are
kept in docs/results/parts/gp_rows.jsonl.
"""

import statistics
import time
from typing import Any

import sklearn_peers
from first_call import (
    PARTS,
    cases,
    failure,
    measure,
    middle,
    parser,
    print_row,
    read,
    select,
    shown,
    table,
)

ROWS = PARTS / "gp_rows.jsonl"
CLASSES, NUMBERS = ("heart", "thyroid", "banana"), ("boston", "concrete", "diabetes")
CLASSIFIERS = ("gp", "gp matern52", "mixvi gp", "mixvi gp matern52")
REGRESSORS = ("gp", "gp matern52", "mixvi gp", "mixvi gp matern52", "mixvi gp gaussian")
MOST_ROWS, SPLITS = 500, 3


def child(name: str, method: str, i: int) -> dict:
    sklearn_peers.imported(method)
    import tables

    split, classifies = tables.split(name, i).first(MOST_ROWS), name in CLASSES
    began = time.process_time()
    model = sklearn_peers.made(method, split.x.shape[1], classifies).fit(split.x, split.y)
    first = time.process_time() - began
    began = time.process_time()
    sklearn_peers.predicted(model, split.x_test, classifies)
    row = {"first_cpu": first, "predict_cpu": time.process_time() - began, "rows": len(split.y)}
    row |= sklearn_peers.scores(method, model, split, classifies)
    return row | (sklearn_peers.told(model) if method.startswith("mixvi") else {})


def verdicts(rows: list[dict]) -> str:
    said = [row["verdict"] for row in rows if "verdict" in row]
    return ", ".join(f"{said.count(one)} {one}" for one in dict.fromkeys(said))


def ahead(rows: list[dict], name: str, tool: str) -> float:
    """Median gain in LPD over scikit-learn's process with the squared exponential kernel, by
    split."""
    both = [
        {row["repeat"]: row["lpd"] for row in select(rows, name=name, tool=one) if "lpd" in row}
        for one in (tool, "gp")
    ]
    gains = [both[0][i] - both[1][i] for i in both[0] if i in both[1]]
    return statistics.median(gains) if gains else float("nan")


def of_label(rows: list[dict]) -> str:
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        base = middle(select(rows, name=name, tool="gp"), "first_cpu")
        for tool in dict.fromkeys(row["tool"] for row in select(rows, name=name)):
            some = select(rows, name=name, tool=tool)
            line: list[Any] = [name, shown(middle(some, "rows"), 0), sklearn_peers.TOLD[tool]]
            wall = middle(some, "first_cpu")
            error = shown(100 * middle(some, "error"), 1)
            square = shown(middle(some, "mse")) if name in NUMBERS else ""
            line += [shown(middle(some, "lpd"), 4), shown(ahead(rows, name, tool), 4), error]
            line += [square, shown(wall, 3), shown(wall / base, 1)]
            lines.append([*line, failure(some) or verdicts(some)])
    head = ["set", "rows", "method", "LPD a row", "gain on sklearn GP", "error %", "MSE"]
    return table([*head, "fit, s", "x sklearn GP", "verdicts"], lines)


def page() -> str:
    import tables

    rows = read(ROWS)
    parts = [
        tables.machine(),
        f"Medians over {SPLITS} splits, each fitted once in a fresh process, imports not counted; "
        "CPU seconds of one thread. MVI's noise is Student-t with four degrees of freedom unless "
        "said. The gain in LPD: median over the splits. Error of numbers: mean square over the "
        "variance of the test targets. scikit-learn: one width, an amplitude and, for numbers, "
        "noise (WhiteKernel, normalised targets), from one start.",
    ]
    for label in dict.fromkeys(row["label"] for row in rows):
        parts += [f"### {label}", of_label(select(rows, label=label))]
    return "\n\n".join(parts)


def main() -> None:
    options = parser(__doc__, REGRESSORS, repeats=SPLITS).parse_args()
    if options.child:
        name, tool, repeat = options.child
        print_row(lambda: child(name, tool, int(repeat)))
        return
    if not options.page:
        sklearn_peers.one_thread()
        wanted = [
            case
            for case in cases((*CLASSES, *NUMBERS), REGRESSORS, options)
            if case["name"] in NUMBERS or case["tool"] in CLASSIFIERS
        ]
        measure(__file__, ROWS, wanted, options)
    print(page())


if __name__ == "__main__":
    main()
