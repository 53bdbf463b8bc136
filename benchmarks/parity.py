"""Two states of the package on the same posteriors: what `fit` with defaults gives, and gives up.

    PYTHONPATH=.before/src python benchmarks/parity.py save /tmp/before [NAME ...] [--jobs 2]
    PYTHONPATH=src python benchmarks/parity.py save /tmp/after [NAME ...] [--jobs 2]
    python benchmarks/parity.py compare /tmp/before /tmp/after

`save` fits every posterior in a fresh process and keeps the Gaussian and a few numbers beside it;
it needs nothing of the package that is not public. `compare` takes the bounds of both Gaussians on
the same fresh pairs of draws, as many as bring the standard error of their difference below 0.001
nat (at most 2^20).
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

from first_call import HERE, clocks, since, slots
from posteriors import PROBLEMS

ENOUGH = 0.001


# --- one state --------------------------------------------------------------------------------


def child(name: str, folder: pathlib.Path) -> None:
    import mixvi

    problem, times = PROBLEMS[name](), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            began = clocks()
            post = mixvi.fit(problem.log_density, problem.init, data=problem.data, throw=False)
            times.append(since(began))
    post.save(folder / f"{name}.npz")
    # Of this version or of the one before, whose record was a dictionary.
    stats = post.stats if isinstance(post.stats, dict) else vars(post.stats)
    told = {
        "name": name,
        "dim": post.dim,
        "family": post.family,
        "passes": stats.get("passes") or 0,
        "draws": stats.get("draws") or 0,
        "gradients": stats["gradients"],
        "converged": bool(post.converged),
        "status": post.status,
        "verdict": post.verdict,
        "first_wall": times[0][0],
        "first_cpu": times[0][1],
        "warm_wall": times[1][0],
        "warm_cpu": times[1][1],
    }
    (folder / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def in_fresh_process(name: str, folder: pathlib.Path, cores: list[int], limit: float) -> str:
    """What to tell of it: its first line, or why there is none."""
    command = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    command += [sys.executable, __file__, "child", str(folder), name]
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as cache:
        # Nothing compiled by an earlier process is found again.
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        env["XDG_CACHE_HOME"] = cache
        env.pop("JAX_COMPILATION_CACHE_DIR", None)
        env.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return f"failed: over {limit:.0f} s"
    if done.returncode:
        return f"failed: {(done.stderr.strip().splitlines() or ['no word'])[-1][:200]}"
    told = read(folder, name)
    return f"{told['family']}, {told['first_wall']:.1f} s, warm {told['warm_wall']:.2f} s"


def save(folder: pathlib.Path, names: list[str], options: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:  # nothing of an earlier run is left where this one fails
        for kind in ("json", "npz"):
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
    free: queue.Queue[list[int]] = queue.Queue()
    for cores in slots(options.jobs, options.cores_per_job):
        free.put(cores)

    def one(name: str) -> None:
        cores = free.get()
        try:
            told = in_fresh_process(name, folder, cores, options.limit)
        finally:
            free.put(cores)
        print(f"{name}  {told}", file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, names))


def read(folder: pathlib.Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


# --- two states -------------------------------------------------------------------------------


def cells(name: str, folders: list[pathlib.Path]) -> list[str]:
    import fresh
    import mixvi

    told = [read(folder, name) for folder in folders]
    posts = [mixvi.load(folder / f"{name}.npz") for folder in folders]
    row = [name, str(posts[0].dim)]
    for one in told:
        row += [one["family"], str(one["passes"] or "-"), str(one["draws"] or "-")]
    finite = [bool(np.isfinite(post.flat_mean).all()) for post in posts]
    if all(finite):
        problem = PROBLEMS[name]()
        density = fresh.density(problem.log_density, problem.init, problem.data)
        bounds = fresh.together(density, posts, ENOUGH)
        for values in (*bounds, bounds[1] - bounds[0]):
            row += [f"{values.mean():.4f}", f"{fresh.error(values):.4f}"]
        row[-2] = f"{bounds[1].mean() - bounds[0].mean():+.4f}"
        row.append(str(2 * bounds.shape[1]))
    else:
        row += ["-" if there else "no Gaussian" for there in finite for _ in range(2)]
        row += ["-", "-", "-"]
    return row + [one["verdict"].split(":")[0] for one in told]


def compare(folders: list[pathlib.Path], names: list[str]) -> None:
    head = ["posterior", "D"]
    for state in ("before", "after"):
        head += [f"{state}: family", "passes", "draws"]
    head += ["bound before", "se", "bound after", "se", "after - before", "se", "fresh draws"]
    head += ["verdict before", "verdict after"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    there = [n for n in names if all((folder / f"{n}.json").exists() for folder in folders)]
    for name in there:
        began = time.perf_counter()
        print("| " + " | ".join(cells(name, folders)) + " |", flush=True)
        print(f"{name}  {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    if missing := [name for name in names if name not in there]:
        print(f"\nNot in both: {', '.join(missing)}.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = parser.add_subparsers(dest="way", required=True)
    saving = ways.add_parser("save", help="fit and keep")
    saving.add_argument("folder", type=pathlib.Path, metavar="DIR")
    saving.add_argument("names", nargs="*", metavar="NAME", help="posteriors; all when left out")
    saving.add_argument("--jobs", type=int, default=1, help="processes at a time")
    saving.add_argument("--cores-per-job", type=int, default=1, help="0: not pinned")
    saving.add_argument("--limit", type=float, default=3600.0, help="seconds for one process")
    comparing = ways.add_parser("compare", help="bounds of two folders, on the same draws")
    comparing.add_argument("folders", nargs=2, type=pathlib.Path, metavar="DIR")
    comparing.add_argument("--only", nargs="+", default=[], metavar="NAME")
    alone = ways.add_parser("child")
    alone.add_argument("folder", type=pathlib.Path)
    alone.add_argument("name")
    options = parser.parse_args()
    if options.way == "child":
        child(options.name, options.folder)
        return
    names = options.names if options.way == "save" else options.only
    if unknown := set(names) - set(PROBLEMS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PROBLEMS)}")
    if options.way == "save":
        save(options.folder, names or list(PROBLEMS), options)
    else:
        compare(options.folders, names or list(PROBLEMS))


if __name__ == "__main__":
    main()
