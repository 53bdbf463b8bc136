"""Logistic regression on ten thousand to ten million rows of a Parquet file, read in pieces.

    python benchmarks/pieces.py            goes on where it stopped; prints the page
    python benchmarks/pieces.py --page     the page alone
    python benchmarks/pieces.py --only 10,000 100,000
    python benchmarks/pieces.py --keep     leaves the files where they are

Every measurement is a fresh process that begins with the file; imports are not counted. Memory: the
peak of the process less what it held after its imports. Rows are kept in
docs/results/parts/pieces_rows.jsonl. Files are made beside them in the system's folder for
temporary files, 4 GB for ten million rows, and removed in the end.
"""

import os
import pathlib
import resource
import tempfile
from typing import Any

from first_call import (
    PARTS,
    cases,
    clocks,
    failure,
    measure,
    middle,
    parser,
    print_row,
    read,
    select,
    shown,
    since,
    table,
)
from rows import held

ROWS = PARTS / "pieces_rows.jsonl"
SIZES = {"10,000": 10**4, "100,000": 10**5, "1,000,000": 10**6, "10,000,000": 10**7}
FEATURES, TEST, GROUP = 50, 20_000, 100_000
NAMES = [f"x{j}" for j in range(FEATURES)]
EPOCHS = 5
TOLD = {
    "model": "mixvi, closed form",
    "additive": "mixvi, `Additive` by JAX",
    "logistic": "LogisticRegression, in memory",
    "sgd": f"SGDClassifier, {EPOCHS} passes",
}
TOOLS = tuple(TOLD)


# --- data -------------------------------------------------------------------------------------


def some(n: int, seed: list[int]) -> tuple[Any, Any]:
    import numpy as np

    slope = np.random.default_rng(99).standard_normal(FEATURES) * 0.2
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, FEATURES))
    return x, (rng.random(n) < 1 / (1 + np.exp(-(x @ slope + 0.3)))).astype(np.int8)


def path_of(n: int) -> pathlib.Path:
    return pathlib.Path(tempfile.gettempdir()) / f"mixvi_pieces_{n}.parquet"


def made(n: int) -> None:
    """The file, unless it is there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if (path := path_of(n)).exists():
        return
    kinds = [(name, pa.float64()) for name in NAMES] + [("label", pa.int8())]
    begun = path.with_suffix(".part")
    with pq.ParquetWriter(begun, pa.schema(kinds), use_dictionary=False, compression="none") as out:
        for k, first in enumerate(range(0, n, GROUP)):
            x, y = some(min(GROUP, n - first), [0, k])
            out.write_table(pa.table([*x.T.copy(), y], schema=pa.schema(kinds)))
    begun.rename(path)


# --- in the child -----------------------------------------------------------------------------


def child(name: str, tool: str) -> dict:
    import numpy as np
    import pyarrow.parquet  # noqa: F401

    fit = {"model": model, "additive": additive, "logistic": logistic, "sgd": sgd}[tool]
    run = fit(SIZES[name], str(path_of(SIZES[name])))
    before, began = held(), clocks()
    found = run()
    wall, cpu = since(began)
    weights, told = found if isinstance(found, tuple) else said(found)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    x, y = some(TEST, [1])
    eta = x @ weights[:-1] + weights[-1]
    return {
        "first_wall": wall,
        "first_cpu": cpu,
        "memory": peak - before,
        "data": path_of(SIZES[name]).stat().st_size / 2**20,
        "lpd": float(-np.logaddexp(0, -(2.0 * y - 1) * eta).mean()),
        "weights": [float(one) for one in weights],
        **told,
    }


def model(n: int, path: str, **options: Any) -> Any:
    import mixvi
    from mixvi import models

    def run() -> Any:
        rows = mixvi.Pieces.parquet(path)
        density = models.Model(models.Linear(), models.Bernoulli()).density(rows, "label")
        return mixvi.fit(density, density.init, **options)

    return run


def additive(n: int, path: str, **options: Any) -> Any:
    import jax
    import numpy as np

    import mixvi

    density = mixvi.Additive(
        lambda w: -0.5 * (w**2).sum(),
        lambda w, rows: jax.nn.log_sigmoid((2 * rows["y"] - 1) * (rows["x"] @ w[:-1] + w[-1])),
    )

    def run() -> Any:
        rows = mixvi.Pieces.parquet(path, {"x": NAMES, "y": "label"})
        return mixvi.fit(density, np.zeros(FEATURES + 1), data=rows, **options)

    return run


def said(post: Any) -> tuple[Any, dict]:
    told = {"verdict": post.verdict.split(":")[0], "status": post.status}
    return post.mean, told | {"sd": post.std.tolist()}


def logistic(n: int, path: str) -> Any:
    import numpy as np
    import pyarrow.parquet as pq
    from sklearn.linear_model import LogisticRegression

    def run() -> tuple[Any, dict]:
        whole = pq.read_table(path)
        x = np.stack([whole[name].to_numpy() for name in NAMES], axis=1)
        y = whole["label"].to_numpy()
        del whole
        found = LogisticRegression(max_iter=1000, tol=1e-6).fit(x, y)
        return np.r_[found.coef_[0], found.intercept_], {}

    return run


def sgd(n: int, path: str) -> Any:
    """Its own step sizes and penalty; the average of all passes but the first."""
    import numpy as np
    import pyarrow.parquet as pq
    from sklearn.linear_model import SGDClassifier

    def run() -> tuple[Any, dict]:
        found = SGDClassifier(loss="log_loss", average=n, random_state=0)
        for _ in range(EPOCHS):
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
                for batch in file.iter_batches(batch_size=20_000):
                    x = np.stack([batch[name].to_numpy() for name in NAMES], axis=1)
                    found.partial_fit(x, batch["label"].to_numpy(), classes=[0, 1])
        return np.r_[found.coef_[0], found.intercept_], {}

    return run


# --- the page ---------------------------------------------------------------------------------


def distance(rows: list[dict], ours: list[dict]) -> str:
    """Of the weights from the posterior mean, in posterior standard deviations: the largest."""
    if not rows or not ours or "weights" not in rows[0] or "sd" not in ours[0]:
        return ""
    parts = zip(rows[0]["weights"], ours[0]["weights"], ours[0]["sd"], strict=True)
    return shown(max(abs(one - other) / sd for one, other, sd in parts), 4)


def page() -> str:
    import tables

    rows, lines = read(ROWS), []
    for name in SIZES:
        ours = select(rows, name=name, tool="model")
        for tool, words in TOLD.items():
            mine = select(rows, name=name, tool=tool)
            if bad := failure(mine):
                lines.append([name, words, bad, *[""] * 6])
            elif mine:
                lines.append(
                    [
                        name,
                        words,
                        shown(middle(mine, "first_wall")),
                        shown(middle(mine, "first_cpu")),
                        shown(middle(mine, "memory"), 0),
                        shown(middle(mine, "data"), 0),
                        shown(middle(mine, "lpd"), 5),
                        distance(mine, ours),
                        mine[0].get("verdict", ""),
                    ]
                )
    head = ["rows", "method", "wall, s", "CPU, s", "memory, MiB", "file, MiB", "LPD a row"]
    head += ["from the posterior mean, sd", "verdict"]
    about = (
        f"Logistic regression with {FEATURES} features and a constant, from a Parquet file; fresh "
        "processes; reading and the verdict are counted, imports are not. mixvi keeps in memory "
        f"what takes no more than 1 GiB. LPD of {TEST:,} other rows. On a "
        "machine that does other work the clock counts that, too."
    )
    return "\n\n".join([tables.machine(), about, table(head, lines)])


def main() -> None:
    asked = parser(__doc__, TOOLS, repeats=1)
    asked.add_argument("--keep", action="store_true", help="leave the files where they are")
    options = asked.parse_args()
    if options.child:
        name, tool, _ = options.child
        print_row(lambda: child(name, tool))
        return
    if not options.page:
        # All cores for each of them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, options.cores_per_job)))
        over_files(__file__, ROWS, cases(SIZES, TOOLS, options), options, SIZES)
    print(page())


def over_files(
    script: str, path: pathlib.Path, wanted: list[dict], options: Any, sizes: dict[str, int]
) -> None:
    """The cases that have no row yet, size by size, each with its file."""
    done = {(row["label"], row["name"], row["tool"], row["repeat"]) for row in read(path)}
    left = [one for one in wanted if tuple(one.values()) not in done]
    for name in dict.fromkeys(one["name"] for one in left):
        made(sizes[name])
        try:
            measure(script, path, [one for one in left if one["name"] == name], options)
        finally:
            if not options.keep:
                path_of(sizes[name]).unlink()


if __name__ == "__main__":
    main()
