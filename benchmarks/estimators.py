"""The estimators beside scikit-learn's: first fit, warm fit, predictions and how good they are.

    python benchmarks/estimators.py            goes on where it stopped; prints the page
    python benchmarks/estimators.py --page     the page alone

Every set and method is a fresh process: imports are timed apart, then the first fit, then warm ones
(median of 3; fewer where that would take long) and predictions of the test rows, all of the first
split; then the scores of up to 5 splits. A first fit of more than 60 s is given up. Rows are kept
in docs/results/parts/estimators_rows.jsonl.
"""

import signal
import statistics
import time
from typing import Any

import sklearn_peers
from first_call import (
    PARTS,
    cases,
    failure,
    measure,
    parser,
    print_row,
    read,
    select,
    shown,
    table,
)

ROWS = PARTS / "estimators_rows.jsonl"
WARM, SPLITS = 3, 5
# Seconds: of a first fit, and of a process after which nothing is repeated.
MOST, ENOUGH = 60, 40.0
SLOW = 2.0


# --- in the child -----------------------------------------------------------------------------


def timed(function: Any, *arguments: Any) -> tuple[float, Any]:
    began = time.process_time()
    found = function(*arguments)
    return time.process_time() - began, found


def given_up(*_: Any) -> None:
    raise TimeoutError(f"the first fit takes over {MOST} s")


def child(name: str, method: str) -> dict:
    import_cpu, _ = timed(sklearn_peers.imported, method)
    import tables

    classifies = name not in tables.REGRESSION
    split = tables.split(name)

    def fitted(split: tables.Split) -> Any:
        return sklearn_peers.made(method, split.x.shape[1], classifies).fit(split.x, split.y)

    began = time.process_time()
    signal.signal(signal.SIGALRM, given_up)
    signal.alarm(MOST)
    first, model = timed(fitted, split)
    signal.alarm(0)
    row = {"rows": len(split.y), "features": split.x.shape[1], "import_cpu": import_cpu}
    row |= {"first_cpu": first} | (sklearn_peers.told(model) if method.startswith("mixvi") else {})

    def goes_on(done: list, most: int) -> bool:
        return len(done) < most and (not done or time.process_time() - began < ENOUGH)

    warm: list[float] = []
    while goes_on(warm, WARM) and first < MOST / 2:
        warm.append(timed(fitted, split)[0])
    predicts = [
        timed(sklearn_peers.predicted, model, split.x_test, classifies)[0] for _ in range(WARM)
    ]
    scores = [sklearn_peers.scores(method, model, split, classifies)]
    while goes_on(scores, SPLITS):
        split = tables.split(name, len(scores))
        scores.append(sklearn_peers.scores(method, fitted(split), split, classifies))
    for what in ("lpd", "error"):
        row[what] = statistics.median(one[what] for one in scores)
    row["lpds"] = [one["lpd"] for one in scores]
    return row | {
        "warm_cpu": statistics.median(warm) if warm else first,
        "predict_cpu": statistics.median(predicts),
        "warm_calls": len(warm),
        "splits": len(scores),
    }


# --- the page ---------------------------------------------------------------------------------


def line(row: dict, base: dict) -> list[str]:
    shown_first = "first_cpu", "warm_cpu"
    ratios = [shown(row[what] / base[what]) if base else "-" for what in shown_first]
    said = f"{row['verdict']} ({row['family']}, {row['n_basis']})" if "verdict" in row else ""
    return [
        shown(row["import_cpu"]),
        shown(row["first_cpu"], 3),
        ratios[0],
        shown(row["warm_cpu"], 3),
        ratios[1],
        shown(1e3 * row["predict_cpu"], 1),
        shown(row["lpd"], 3),
        shown(100 * row["error"], 1),
        str(row["splits"]),
        said,
    ]


def of_label(rows: list[dict]) -> str:
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        some = select(rows, name=name)
        base = next((row for row in select(some, tool="gp") if "failed" not in row), {})
        for row in some:
            start = [name, sklearn_peers.TOLD[row["tool"]]]
            if "failed" in row:
                lines.append(start + [failure([row])] + [""] * 9)
            else:
                lines.append(start + line(row, base))
    head = ["set", "method", "import, s", "first fit, s", "x sklearn GP", "warm fit, s"]
    head += ["x sklearn GP", "predict, ms", "LPD a row", "error %", "splits", "verdict"]
    return table(head, lines)


def below(row: dict, peer: list[dict]) -> float:
    """How far the LPD is below a peer's, median over the splits that both have."""
    others = peer[0].get("lpds", []) if peer else []
    lost = [other - own for own, other in zip(row["lpds"], others, strict=False)]
    return statistics.median(lost) if lost else 0.0


def odd(rows: list[dict]) -> str:
    """Where one of ours is slow, worse than scikit-learn's GP, or not to be trusted."""
    said = []
    for row in rows:
        who = f"{sklearn_peers.TOLD[row['tool']]} on {row['name']}"
        if not row["tool"].startswith("mixvi"):
            continue
        if "failed" in row:
            said.append(f"{who}: {row['failed']}")
            continue
        lost = below(row, select(rows, name=row["name"], tool="gp"))
        if row["first_cpu"] > SLOW:
            said.append(f"{who}: a first fit of {row['first_cpu']:.1f} s")
        if lost > 0.005:
            said.append(f"{who}: LPD {lost:.3f} below that of scikit-learn's GP")
        if row["verdict"].startswith("Do not") or not row["converged"]:
            said.append(f"{who}: {row['verdict']}, converged {row['converged']}")
    return "\n".join(f"- {one}" for one in said) or "None."


def page() -> str:
    import tables

    rows = read(ROWS)
    parts = [
        tables.machine(),
        "First fit: CPU seconds in a fresh process, after the imports, which stand beside it; warm "
        f"fit and predictions (of all test rows): medians of {WARM} in the same process, fewer "
        f"where a process would take over {ENOUGH:.0f} s. LPD: log predictive density of a test "
        f"row, median over the first splits (at most {SPLITS}). Error: rows classified wrongly; of "
        "diabetes the mean square over the variance. A density of gradient boosting on diabetes is "
        "a normal with the standard deviation of residuals in a five-fold cross-validation. One "
        "thread of BLAS and of OpenMP for all, so that CPU seconds are those of a quiet machine.",
    ]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    for label in labels:
        some = select(rows, label=label)
        parts += [f"### {label}"] * (len(labels) > 1) + [of_label(some)]
        parts += [
            f"Slower than {SLOW:.0f} s, over 0.005 below scikit-learn's GP, not to be trusted, or "
            "raised:",
            odd(some),
        ]
    return "\n\n".join(parts)


def main() -> None:
    tools = tuple(dict.fromkeys((*sklearn_peers.CLASSIFIERS, *sklearn_peers.REGRESSORS)))
    options = parser(__doc__, tools, repeats=1).parse_args()
    if options.child:
        name, tool, _ = options.child
        print_row(lambda: child(name, tool))
        return
    if not options.page:
        import tables

        sklearn_peers.one_thread()
        wanted = [
            case
            for case in cases(tables.ALL, tools, options)
            if case["tool"]
            in (
                sklearn_peers.REGRESSORS
                if case["name"] == "diabetes"
                else sklearn_peers.CLASSIFIERS
            )
        ]
        measure(__file__, ROWS, wanted, options)
    print(page())


if __name__ == "__main__":
    main()
