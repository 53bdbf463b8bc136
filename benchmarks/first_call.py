"""The first call and a warm one: `laplace` and `fit` beside a Laplace driven by SciPy.

    python benchmarks/first_call.py --label after      goes on where it stopped; prints the page
    python benchmarks/first_call.py --page             the page alone

Every measurement is a fresh process: imports are timed apart, then the first call with all its
compilation, then warm calls. Rows are kept in docs/results/parts/first_call_rows.jsonl; the median
over `--repeats` processes is what the page shows. A measurement that failed is a row as well, and
is not taken again.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
PARTS = HERE.parent / "docs" / "results" / "parts"
ROWS = PARTS / "first_call_rows.jsonl"
TOOLS = ("scipy", "laplace", "fit")
SMALL = ("linear_regression", "logistic_regression", "six_groups", "survival", "michaelis_menten")
KEY = ("label", "name", "tool", "repeat")
WARM, SLOW = 5, 5.0
STEPS, DECREMENT, HALVINGS = 20, 1e-7, 30


# --- in the child -----------------------------------------------------------------------------


def laplace_by_scipy(log_density: Callable, init: Any, data: Any) -> Callable[[], tuple]:
    """L-BFGS-B, Newton steps with the exact Hessian, and its inverse, all in float64: the record,
    the last point, and the covariance or None."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import scipy.linalg
    import scipy.optimize
    from jax.flatten_util import ravel_pytree

    start, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), init))
    start = np.asarray(start)

    def loss(w, data):
        return -log_density(unravel(w), data)

    value_and_gradient = jax.jit(jax.value_and_grad(loss))
    hessian = jax.jit(jax.hessian(loss))

    def run() -> tuple:
        on_device = jax.tree.map(jnp.asarray, data)
        gradients = 0

        def both(w):
            nonlocal gradients
            gradients += 1
            value, gradient = value_and_gradient(w, on_device)
            return float(value), np.asarray(gradient)

        found = scipy.optimize.minimize(
            both,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-8},
        )
        w, (value, gradient) = found.x, both(found.x)
        factor, ended = None, f"{STEPS} Newton steps"
        for step in range(STEPS + 1):
            gradients += w.size
            try:
                factor = scipy.linalg.cho_factor(np.asarray(hessian(w, on_device)), lower=True)
                newton = scipy.linalg.cho_solve(factor, gradient)
            except (scipy.linalg.LinAlgError, ValueError):  # ValueError: not finite
                factor, ended = None, "the Hessian is not positive definite"
                break
            squared = float(gradient @ newton)
            if math.sqrt(squared) < DECREMENT:
                ended = "converged"
                break
            if step == STEPS:
                break
            size, slack = 1.0, 1e-12 * abs(value)  # what rounding leaves of a decrease
            for _ in range(HALVINGS):
                new_value, new_gradient = both(w - size * newton)
                if new_value <= value - 1e-4 * size * squared + slack:
                    break
                size /= 2
            else:
                ended = "no step goes down"
                break
            w, value, gradient = w - size * newton, new_value, new_gradient
        cov = None if factor is None else scipy.linalg.cho_solve(factor, np.eye(w.size))
        record = {
            "gradients": gradients,
            "converged": ended == "converged",
            "status": ended,
            "dim": w.size,
            "answer": cov is not None,
        }
        return record, w, cov

    return run


def by_scipy(log_density: Callable, init: Any, data: Any) -> Callable[[], dict]:
    run = laplace_by_scipy(log_density, init, data)
    return lambda: run()[0]


def by_mixvi(tool: str, log_density: Callable, init: Any, data: Any) -> Callable[[], dict]:
    import mixvi

    call = {"laplace": mixvi.laplace, "fit": mixvi.fit}[tool]

    def run() -> dict:
        post = call(log_density, init, data=data, throw=False)
        # Of this version or of the one before, whose record was a dictionary.
        stats = post.stats if isinstance(post.stats, dict) else vars(post.stats)
        passes = (stats.get("passes") or 0) * (stats.get("draws") or 0)
        gradients = stats.get("gradients", passes + stats.get("mode_steps", 0) * post.dim)
        return {
            "gradients": int(gradients),
            "converged": bool(post.converged),
            "status": post.status,
            "verdict": post.verdict,
            "family": post.family,
            "dim": post.dim,
        }

    return run


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(began: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = clocks()
    return wall - began[0], cpu - began[1]


def child(name: str, tool: str) -> dict:
    began = clocks()
    import jax

    import_jax, _ = since(began)
    began = clocks()
    if tool == "scipy":
        import scipy.linalg
        import scipy.optimize  # noqa: F401

        jax.config.update("jax_enable_x64", True)
    else:
        import mixvi  # noqa: F401
    import_tool, _ = since(began)

    problem = everything()[name]()
    arguments = problem.log_density, problem.init, problem.data
    began = clocks()
    run = by_scipy(*arguments) if tool == "scipy" else by_mixvi(tool, *arguments)
    found = run()
    first = since(began)
    warm = []
    while len(warm) < WARM and not (warm and warm[0][0] > SLOW):
        began = clocks()
        run()
        warm.append(since(began))
    return {
        "import_jax": import_jax,
        "import_tool": import_tool,
        "first_wall": first[0],
        "first_cpu": first[1],
        "warm_wall": statistics.median(wall for wall, _ in warm),
        "warm_cpu": statistics.median(cpu for _, cpu in warm),
        "warm_calls": len(warm),
    } | found


def everything() -> dict[str, Callable]:
    from posteriors import PROBLEMS
    from small_models import MODELS

    return PROBLEMS | {name: MODELS[name] for name in SMALL}


# --- fresh processes, shared with `nuts.py` -----------------------------------------------------


def parser(about: str | None, tools: tuple[str, ...], repeats: int) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--label", default="now", help="the state measured: before, after, ...")
    made.add_argument("--only", nargs="+", metavar="NAME", help="these posteriors alone")
    made.add_argument("--tools", default=",".join(tools), help="some of %(default)s")
    made.add_argument("--repeats", type=int, default=repeats, help="fresh processes for each")
    made.add_argument("--jobs", type=int, default=1, help="processes at a time")
    made.add_argument("--cores-per-job", type=int, default=2, help="0: not pinned")
    made.add_argument("--limit", type=float, default=900.0, help="seconds for one process")
    made.add_argument("--page", action="store_true", help="print the page, measure nothing")
    made.add_argument(
        "--child", nargs=3, metavar=("NAME", "TOOL", "REPEAT"), help=argparse.SUPPRESS
    )
    return made


def read(path: pathlib.Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def slots(jobs: int, each: int) -> list[list[int]]:
    """The cores of every job; none where they are not pinned."""
    if each == 0 or shutil.which("taskset") is None:
        return [[]] * jobs
    cores = sorted(os.sched_getaffinity(0))
    if jobs > 1 and jobs * each > len(cores):
        raise SystemExit(f"{jobs} jobs on {each} cores each need more than {len(cores)} cores.")
    return [cores[k * each : (k + 1) * each] for k in range(jobs)]


def measured(script: str, case: dict, cores: list[int], limit: float) -> dict:
    """The row of a case, by a fresh process that prints it as its last line."""
    command = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    command += [sys.executable, script, "--child", case["name"], case["tool"], str(case["repeat"])]
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as cache:
        # Nothing compiled by an earlier process is found again.
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        env["XDG_CACHE_HOME"] = cache
        env.pop("JAX_COMPILATION_CACHE_DIR", None)
        # Idle threads of OpenBLAS spin, and so double the CPU time of short calls.
        env.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return case | {"failed": f"over {limit:.0f} s"}
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return case | {"failed": said[-1][:200]}
    return case | {"cores": len(cores)} | json.loads(done.stdout.splitlines()[-1])


def measure(script: str, path: pathlib.Path, cases: Iterable[dict], options: Any) -> None:
    """Appends the rows of all cases that have none yet."""
    done = {tuple(row[k] for k in KEY) for row in read(path)}
    left = [case for case in cases if tuple(case[k] for k in KEY) not in done]
    free: queue.Queue[list[int]] = queue.Queue()
    for cores in slots(options.jobs, options.cores_per_job):
        free.put(cores)
    writing = threading.Lock()
    path.parent.mkdir(parents=True, exist_ok=True)

    def one(case: dict) -> None:
        cores = free.get()
        try:
            row = measured(script, case, cores, options.limit)
        finally:
            free.put(cores)
        told = row.get("failed") or f"{row.get('first_wall', row.get('first_cpu')):.2f} s"
        with writing:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(*(case[k] for k in KEY), told, sep="  ", file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(one, case) for case in left]:
            future.result()


def cases(names: Iterable[str], tools: tuple[str, ...], options: Any) -> list[dict]:
    names, wanted = list(names), options.tools.split(",")
    for given, known in ((options.only or [], names), (wanted, tools)):
        if unknown := set(given) - set(known):
            raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return [
        {"label": options.label, "name": name, "tool": tool, "repeat": repeat}
        for repeat in range(options.repeats)
        for name in names
        if name in (options.only or names)
        for tool in wanted
    ]


def print_row(row: Callable[[], dict]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(json.dumps(row()))


# --- the page ---------------------------------------------------------------------------------


def middle(rows: list[dict], field: str) -> float:
    """The median over the processes that came to an end."""
    seen = [row[field] for row in rows if field in row]
    return statistics.median(seen) if seen else math.nan


def failure(rows: list[dict]) -> str:
    reasons = [row["failed"] for row in rows if "failed" in row]
    return f"failed: {reasons[0]}".replace("|", "/") if reasons else ""


def shown(value: float, digits: int = 2) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def table(head: list[str], lines: list[list[Any]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def select(rows: list[dict], **wanted: str) -> list[dict]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def ratio(rows: list[dict], name: str, tool: str, field: str) -> float:
    under = middle(select(rows, name=name, tool="scipy"), field)
    return middle(select(rows, name=name, tool=tool), field) / under


RATIOS = [(tool, field) for field in ("first_wall", "warm_cpu") for tool in ("laplace", "fit")]


def of_label(rows: list[dict]) -> str:
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        of = {tool: select(rows, name=name, tool=tool) for tool in TOOLS}
        line = [name, shown(middle(select(rows, name=name), "dim"), 0)]
        lost = " (no Gaussian)" * any(row.get("answer") is False for row in of["scipy"])
        line += [failure(of["scipy"]) or shown(middle(of["scipy"], "first_wall")) + lost]
        for tool, field in RATIOS:
            reason = failure(of[tool]) if field == "first_wall" else ""
            line.append(reason or shown(ratio(rows, name, tool, field)))
        lines.append(line + [shown(middle(of[tool], "gradients"), 0) for tool in TOOLS])
    head = ["posterior", "D", "SciPy first, s", "laplace first, x", "fit first, x"]
    head += ["laplace warm CPU, x", "fit warm CPU, x"]
    return table(head + [f"gradients, {tool}" for tool in ("SciPy", "laplace", "fit")], lines)


def of_all(rows: list[dict]) -> str:
    lines = []
    for label in dict.fromkeys(row["label"] for row in rows):
        for called, small in (("hard", False), ("small", True)):
            some = [r for r in select(rows, label=label) if (r["name"] in SMALL) == small]
            names = list(dict.fromkeys(row["name"] for row in some))
            if not names:
                continue
            cells = [label, called, len(names)]
            for tool, field in RATIOS:
                seen = [ratio(some, name, tool, field) for name in names]
                seen = [value for value in seen if not math.isnan(value)]
                both = (statistics.median(seen), max(seen)) if seen else (math.nan, math.nan)
                cells.append(" / ".join(map(shown, both)))
            lines.append([*cells, sum("failed" in row for row in some)])
    head = ["label", "posteriors", "number", "laplace first, x", "fit first, x"]
    return table([*head, "laplace warm CPU, x", "fit warm CPU, x", "failed"], lines)


def of_imports(rows: list[dict]) -> str:
    lines = []
    for label in dict.fromkeys(row["label"] for row in rows):
        some = select(rows, label=label)
        mine = [row for row in some if row["tool"] != "scipy"]
        parts = (some, "import_jax"), (select(some, tool="scipy"), "import_tool")
        parts += ((mine, "import_tool"),)
        lines.append([label, *(shown(middle(*part)) for part in parts)])
    return table(["label", "jax, s", "SciPy on top, s", "mixvi on top, s"], lines)


def page() -> str:
    rows = read(ROWS)
    parts = [
        "First: wall time of the first call in a fresh process, compilation included, imports not. "
        "Warm: CPU time. Both as a ratio to SciPy's on the same machine. Gradients: evaluations of "
        "the gradient in one call, a Hessian counted as D of them."
    ]
    # SciPy's times know nothing of the state measured: "before" and "after" share a machine.
    labels = dict.fromkeys(row["label"] for row in rows)
    scipy = [row for row in select(rows, tool="scipy") if row["label"] == "after"]
    for label in labels:
        if not select(rows, tool="scipy", label=label):
            rows += [row | {"label": label} for row in scipy]
    for label in dict.fromkeys(row["label"] for row in rows):
        parts += [f"### {label}", of_label(select(rows, label=label))]
    parts += ["### Median / worst", of_all(rows)]
    parts += ["### Imports", of_imports(rows)]
    return "\n\n".join(parts)


def main() -> None:
    options = parser(__doc__, TOOLS, repeats=1).parse_args()
    if options.child:
        name, tool, _ = options.child
        print_row(lambda: child(name, tool))
        return
    if not options.page:
        measure(__file__, ROWS, cases(everything(), TOOLS, options), options)
    print(page())


if __name__ == "__main__":
    main()
