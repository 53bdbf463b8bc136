"""Time and memory against the number of rows; and tables in which few of the features matter.

    python benchmarks/rows.py            goes on where it stopped; prints the page
    python benchmarks/rows.py --page     the page alone

Every measurement is a fresh process. Memory: the peak of the process less what it held just before
the fit (imports and the data). Rows are kept in docs/results/parts/rows_rows.jsonl.
"""

import math
import pathlib
import resource
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

ROWS = PARTS / "rows_rows.jsonl"
SIZES = {"1,000": 10**3, "10,000": 10**4, "100,000": 10**5, "1,000,000": 10**6}
FEATURES, TEST, BLOCK = 20, 20_000, 50_000
# Rows, features, and how many of these matter.
SPARSE = {"regression, 8 features": (20_000, 8, 3), "classes, 10 features": (20_000, 10, 2)}
TOOLS = ("mixvi linear", "mixvi", "logistic", "boosting")


# --- in the child -----------------------------------------------------------------------------


def many(n: int, seed: int) -> tuple[Any, Any]:
    """A logistic model with a few terms that are not linear. In blocks: nothing but the table is
    large."""
    import numpy as np

    rng = np.random.default_rng(seed)
    slope = np.random.default_rng(99).standard_normal(FEATURES) * 0.4
    x, y = np.empty((n, FEATURES)), np.empty(n, dtype=np.int8)
    for first in range(0, n, BLOCK):
        some = x[first : first + BLOCK]
        rng.standard_normal(out=some)
        eta = some @ slope + 1.5 * np.sin(2 * some[:, 0]) + some[:, 1] * some[:, 2]
        eta += 0.5 * (some[:, 3] ** 2 - 1)
        y[first : first + BLOCK] = rng.random(len(some)) < 1 / (1 + np.exp(-eta))
    return x, y


def sparse(name: str, seed: int, n: int) -> tuple[Any, Any]:
    """Friedman's first function with three of its features, or two classes by two features."""
    import numpy as np

    rng = np.random.default_rng(seed)
    _, features, _ = SPARSE[name]
    x = rng.random((n, features))
    if name.startswith("regression"):
        y = 10 * np.sin(math.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
        return x, y + rng.standard_normal(n)
    eta = 6 * np.sin(2 * math.pi * x[:, 0]) * np.cos(math.pi * x[:, 1])
    return x, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)


def held() -> float:
    """MiB in memory now."""
    said = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(s.split()[1]) for s in said.splitlines() if s.startswith("VmRSS")) / 2**10


def child(name: str, method: str) -> dict:
    began = time.process_time()
    sklearn_peers.imported(method)
    import_cpu = time.process_time() - began
    import tables

    if name in SIZES:
        split = tables.Split(*many(SIZES[name], 0), *many(TEST, 1))
    else:
        split = tables.Split(*sparse(name, 0, SPARSE[name][0]), *sparse(name, 1, TEST))
    classifies = not name.startswith("regression")
    model = sklearn_peers.made(method, split.x.shape[1], classifies)
    before = held()
    began = time.process_time()
    model.fit(split.x, split.y)
    first = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    began = time.process_time()
    sklearn_peers.predicted(model, split.x_test, classifies)
    row = {
        "import_cpu": import_cpu,
        "first_cpu": first,
        "predict_cpu": time.process_time() - began,
        "data": split.x.nbytes / 2**20,
        "memory": peak - before,
        **sklearn_peers.scores(method, model, split, classifies),
    }
    return row | (own(model) if method.startswith("mixvi") else {})


def own(model: Any) -> dict:
    import numpy as np

    width = model.hyper_.get("log_width")
    made = {} if width is None else {"width": np.exp(np.atleast_1d(width)).round(2).tolist()}
    return sklearn_peers.told(model) | made


# --- the page ---------------------------------------------------------------------------------


def slope(sizes: list[int], values: list[float]) -> float:
    """Of log time against log rows, by least squares."""
    if len(sizes) < 2:
        return math.nan
    a, b = [math.log(size) for size in sizes], [math.log(value) for value in values]
    centre = sum(a) / len(a)
    return sum((u - centre) * v for u, v in zip(a, b, strict=True)) / sum(
        (u - centre) ** 2 for u in a
    )


def of_rows(rows: list[dict]) -> str:
    lines, slopes = [], []
    for tool in dict.fromkeys(row["tool"] for row in rows):
        sizes, seconds = [], []
        for name, n in SIZES.items():
            some = select(rows, tool=tool, name=name)
            if not some:
                continue
            base = middle(select(rows, tool="logistic", name=name), "first_cpu")
            if bad := failure(some):
                lines.append([name, sklearn_peers.TOLD[tool], bad, *[""] * 7])
                continue
            wall = middle(some, "first_cpu")
            sizes.append(n)
            seconds.append(wall)
            said = some[0]
            choice = f"{said['family']}, {said['n_basis']}" if "family" in said else ""
            lines.append(
                [
                    name,
                    sklearn_peers.TOLD[tool],
                    shown(wall),
                    shown(wall / base, 1),
                    shown(middle(some, "memory"), 0),
                    shown(middle(some, "data"), 1),
                    shown(middle(some, "lpd"), 4),
                    shown(100 * middle(some, "error"), 1),
                    choice,
                    said.get("verdict", ""),
                ]
            )
        late = [slope(some, seconds[-len(some) :]) for some in (sizes, sizes[-2:])]
        slopes.append([sklearn_peers.TOLD[tool], *map(shown, late)])
    head = ["rows", "method", "fit, s", "x LogisticRegression", "memory, MiB", "data, MiB"]
    head += ["LPD a row", "error %", "family, basis", "verdict"]
    both = ["method", "slope, all sizes", "slope, the last two"]
    return table(head, lines) + "\n\n" + table(both, slopes)


def of_sparse(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        start = [row["name"], sklearn_peers.TOLD[row["tool"]]]
        if "failed" in row:
            lines.append([*start, failure([row]), *[""] * 6])
            continue
        good = 1 - row["error"]
        width = ", ".join(f"{one:.3g}" for one in row.get("width", []))
        basis, verdict = str(row.get("n_basis", "")), row.get("verdict", "")
        numbers = [shown(row["first_cpu"]), shown(good, 4), shown(row["lpd"], 4)]
        lines.append([*start, *numbers, shown(row["memory"], 0), basis, width, verdict])
    head = ["table", "method", "fit, s", "R^2 or accuracy", "LPD a row", "memory, MiB"]
    return table([*head, "basis functions", "widths", "verdict"], lines)


def page() -> str:
    import tables

    rows = read(ROWS)
    parts = [
        tables.machine(),
        "Fits in fresh processes, imports not counted, CPU seconds of one thread; "
        f"{FEATURES} features; scores on "
        f"{TEST:,} other rows. One repeat unless said.",
    ]
    for label in dict.fromkeys(row["label"] for row in rows):
        some = select(rows, label=label)
        parts += [f"### {label}", of_rows([row for row in some if row["name"] in SIZES])]
        parts += ["20,000 rows of which few features matter, uniform on (0, 1):"]
        parts += [of_sparse([row for row in some if row["name"] in SPARSE])]
    return "\n\n".join(parts)


def main() -> None:
    options = parser(__doc__, TOOLS, repeats=1).parse_args()
    if options.child:
        name, tool, _ = options.child
        print_row(lambda: child(name, tool))
        return
    if not options.page:
        sklearn_peers.one_thread()
        wanted = [
            case
            for case in cases((*SIZES, *SPARSE), TOOLS, options)
            if case["name"] in SIZES or case["tool"] in ("mixvi", "boosting")
        ]
        measure(__file__, ROWS, wanted, options)
    print(page())


if __name__ == "__main__":
    main()
