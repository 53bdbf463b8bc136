"""Mini-batches against exact passes: logistic regression on 10^5 to 10^7 rows of a Parquet file.

    python benchmarks/minibatch.py            goes on where it stopped; prints the page
    python benchmarks/minibatch.py --page     the page alone
    python benchmarks/minibatch.py --keep     leaves the files where they are

The data are those of `pieces.py`. Every measurement is a fresh process that begins with the file;
imports are not counted. Time runs until the Gaussian is there, and until it is judged, too. How
good it is, is told afterwards by all rows: its bound by quadrature, the same for all Gaussians.
Rows are kept in docs/results/parts/minibatch_rows.jsonl.
"""

import os
import resource
from collections.abc import Callable
from typing import Any

import pieces
from first_call import (
    PARTS,
    cases,
    clocks,
    failure,
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

ROWS = PARTS / "minibatch_rows.jsonl"
SIZES = {"100,000": 10**5, "1,000,000": 10**6, "10,000,000": 10**7}
CLOSE = 0.1
TOLD: dict[str, tuple[str, Callable, int | None]] = {
    "model": ("closed form, exact passes", pieces.model, None),
    "model 1024": ("closed form, batches of 1,024", pieces.model, 1024),
    "model 4096": ("closed form, batches of 4,096", pieces.model, 4096),
    "additive": ("`Additive` by JAX, exact passes", pieces.additive, None),
    "additive 4096": ("`Additive` by JAX, batches of 4,096", pieces.additive, 4096),
}
TOOLS = tuple(TOLD)


# --- in the child -----------------------------------------------------------------------------


class Work:
    """Rows that any question was asked of, a row of a batch like every other; and readings of all
    data."""

    def __init__(self):
        from mixvi._density import _asked
        from mixvi._density._batches import Batches
        from mixvi._density._pieces import Pieces

        self.rows = self.readings = 0
        answer, asked, chunks = _asked.answer_of, Batches.asked, Pieces._read

        def answered(part: Any, piece: Any, *others: Any) -> Any:
            self.rows += int(piece.n)
            return answer(part, piece, *others)

        def asked_of(batches: Any, *others: Any) -> Any:
            self.rows += sum(one.n_rows for one in batches.batches)
            return asked(batches, *others)

        def read(its: Any, layout: Any) -> Any:
            self.readings += 1
            return chunks(its, layout)

        _asked.answer_of, Batches.asked, Pieces._read = answered, asked_of, read


def child(name: str, tool: str) -> dict:
    import numpy as np
    import pyarrow.parquet  # noqa: F401

    import mixvi
    from mixvi import models
    from mixvi._fit._threads import one_blas_thread

    _, fit, batch = TOLD[tool]
    n, path, work, found = SIZES[name], str(pieces.path_of(SIZES[name])), Work(), {}
    began = 0.0, 0.0

    def step(one: mixvi.Step) -> None:
        if one.stage == "verdict" and not found:
            wall, cpu = since(began)
            found.update(wall=wall, cpu=cpu, rows=work.rows, readings=work.readings)

    run = fit(n, path, callback=step, **({} if batch is None else {"minibatch": batch}))
    before, began = held(), clocks()
    post = run()
    wall, cpu = since(began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    told = {
        "first_wall": wall,
        "first_cpu": cpu,
        "memory": peak - before,
        "all_rows": work.rows,
        "all_readings": work.readings,
        **{f"found_{key}": value for key, value in found.items()},
        "elbo": [post.elbo.value, post.elbo.se],
        "family": post.family,
        "status": post.status,
        "verdict": post.verdict,
        "data": pieces.path_of(n).stat().st_size / 2**20,
        **pieces.scored(post.flat_mean),
        "batches": post.stats.batches,
        "exact_passes": post.stats.exact_passes,
        "row_noise": post.stats.row_noise,
    }
    exact = models.Model(models.Linear(), models.Bernoulli())
    density = exact.density(mixvi.Pieces.parquet(path), "label")
    nodes = mixvi.Quadrature(32).make(np.dtype(np.float64))
    with one_blas_thread(0):  # each core has pieces of its own
        expected = density.expect(post.flat_mean, post.root, nodes)
    entropy = np.linalg.slogdet(post.root)[1] + 0.5 * post.dim * (1 + np.log(2 * np.pi))
    return told | {"bound": expected.value + float(entropy)}


# --- the page ---------------------------------------------------------------------------------


def page() -> str:
    import tables

    rows, lines = read(ROWS), []
    for name, n in SIZES.items():
        exact = middle(select(rows, name=name, tool="model"), "bound")
        for tool, (words, _, _) in TOLD.items():
            mine = select(rows, name=name, tool=tool)
            if bad := failure(mine):
                lines.append([name, words, bad, *[""] * 9])
            elif mine:
                first = mine[0]
                lines.append(
                    [
                        name,
                        words,
                        shown(middle(mine, "found_wall")),
                        shown(middle(mine, "found_cpu")),
                        shown(middle(mine, "found_rows") / n),
                        shown(exact - middle(mine, "bound"), 4),
                        shown(middle(mine, "first_wall")),
                        shown(middle(mine, "first_cpu")),
                        shown(middle(mine, "all_rows") / n),
                        first["exact_passes"] or "",
                        "" if first["row_noise"] is None else f"{first['row_noise']:.1g}",
                        first["verdict"].split(":")[0],
                    ]
                )
    head = ["rows", "method", "wall, s", "CPU, s", "rows asked / rows", "short of the best, nat"]
    head += [
        "judged: wall, s",
        "CPU, s",
        "rows asked / rows",
        "exact passes",
        "noise, nat",
        "verdict",
    ]
    about = (
        f"Logistic regression with {pieces.FEATURES} features and a constant, from a Parquet file; "
        "fresh processes; the first reading is counted, imports are not. First until the Gaussian "
        "is there, then until it is judged. Short of the best: by how much its bound, over all "
        "rows by quadrature, is below that of exact passes in closed form. Rows asked: of every "
        "question (values or gradients at all points, expectations, Hessians) the rows that it "
        "went to, as a share of all. Noise: of the bound, as the fit reports it. The machine did "
        "other work: CPU times are to be compared, not those of the clock."
    )
    return "\n\n".join([tables.machine(), about, table(head, lines), *sentences(rows)])


def sentences(rows: list[dict]) -> list[str]:
    said = []
    for kind, words in (("model", "closed form"), ("additive", "JAX")):
        parts = []
        for name in SIZES:
            one, other = (select(rows, name=name, tool=tool) for tool in (kind, f"{kind} 4096"))
            if not one or not other or failure(one) or failure(other):
                continue
            wall, cpu = (
                middle(one, field) / middle(other, field) for field in ("found_wall", "found_cpu")
            )
            short = middle(one, "bound") - middle(other, "bound")
            close = "within" if short < CLOSE else "NOT within"
            parts.append(f"at {name} rows {shown(wall, 1)} ({shown(cpu, 1)} of CPU), {close}")
        if parts:
            said.append(
                f"Time of exact passes over that of batches of 4,096, {words}, to a Gaussian "
                f"within {CLOSE} nat: {'; '.join(parts)}."
            )
    return said


def main() -> None:
    made = parser(__doc__, TOOLS, repeats=1)
    made.add_argument("--keep", action="store_true", help="leave the files where they are")
    options = made.parse_args()
    if options.child:
        name, tool, _ = options.child
        print_row(lambda: child(name, tool))
        return
    if not options.page:
        # All cores for each of them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, options.cores_per_job)))
        pieces.over_files(__file__, ROWS, cases(SIZES, TOOLS, options), options, SIZES)
    print(page())


if __name__ == "__main__":
    main()
