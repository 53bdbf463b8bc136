"""Every family, `auto` and Laplace on the posteriors of `posteriors.py`, with NUTS as the judge.

    python benchmarks/hard.py [NAME ...] [--methods auto,laplace] [--rows FILE]
                                              goes on where it stopped; prints the page
    python benchmarks/hard.py --page          the page alone

Rows are kept in docs/results/parts/hard_rows.jsonl, one fit a line. The bound of every fit is taken
on fresh draws, a draw and its negative together, as many as bring its standard error to 0.003 (at
most 2^20); times are CPU time of this process, the first call with all compiled code thrown away,
warm the median of three further calls (of one where it takes more than five seconds). Gradients: in
one call, a Hessian counted as D of them. The rows kept were made one posterior a process, eight at
a time on sixteen cores (times in a run of their own); those of `best` are older.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import statistics
import sys
import time
import warnings

import jax
import numpy as np

import fresh
import mixvi
from mixvi._density import _jax
from posteriors import PROBLEMS, Problem

HERE = pathlib.Path(__file__).resolve().parent
ROWS = HERE.parent / "docs" / "results" / "parts" / "hard_rows.jsonl"
METHODS = ("laplace", "mu", "eig", "lr", "full", "diag", "auto", "best")
WARM, ENOUGH, MOST_FRESH, BLOCK = 3, 0.003, 2**20, 2**12


def reference(name: str) -> dict:
    return json.loads((HERE / "references" / f"{name}.json").read_text(encoding="utf-8"))


def fit(problem: Problem, method: str) -> mixvi.Posterior:
    """`best` is the whole covariance on 8 times the draws that it would take."""
    arguments = (problem.log_density, problem.init)
    if method == "laplace":
        return mixvi.laplace(*arguments, problem.data, throw=False)
    if method == "best":
        found = mixvi.fit(*arguments, problem.data, family="full", throw=False)
        n = min(2**16, 8 * (found.stats.draws or 2**13))
        return mixvi.fit(
            problem.log_density, found, family="full", data=problem.data, draws=n, throw=False
        )
    return mixvi.fit(*arguments, problem.data, family=method, throw=False)


def fresh_elbo(problem: Problem, post: mixvi.Posterior) -> tuple[float, float, int]:
    """Value, standard error, number of draws."""
    density = fresh.density(problem.log_density, problem.init, problem.data)
    gaussian = post.flat_mean, post.root
    return fresh.bound(density, *gaussian, lambda value: ENOUGH, MOST_FRESH, BLOCK)


def timed(problem: Problem, method: str) -> tuple[mixvi.Posterior, float, list[float]]:
    jax.clear_caches()
    _jax.forget()
    times = []
    for _ in range(1 + WARM):
        began = time.process_time()
        post = fit(problem, method)
        times.append(time.process_time() - began)
        if method == "best" or (len(times) > 1 and times[-1] > 5):
            break
    return post, times[0], times[1:]


def row(problem: Problem, method: str) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post, first, warm = timed(problem, method)
    truth = reference(problem.name)
    mean, sd = np.array(truth["mean"]), np.array(truth["sd"])
    elbo, se, n_fresh = fresh_elbo(problem, post)
    ratio = post.flat_std / sd
    return {
        "name": problem.name,
        "method": method,
        "family": post.family,
        "dim": post.dim,
        "elbo": elbo,
        "se": se,
        "n_fresh": n_fresh,
        "mean_off": float(np.abs((post.flat_mean - mean) / sd).max()),
        "sd_off": float(np.maximum(ratio, 1 / ratio).max()),
        "khat": post.khat,
        "passes": post.stats.passes or 0,
        "draws": post.stats.draws or 0,
        "gradients": post.stats.gradients,
        "draw_loss": post.stats.draw_loss,
        "gain_left": post.stats.gain_left,
        "first": first,
        "warm": statistics.median(warm or [math.nan]),
        "repeats": len(warm),
        "converged": post.converged,
        "status": post.status,
        "verdict": post.verdict,
        "trust": post.trust,
        "told": told(post),
    }


def told(post) -> dict | None:
    """The numbers that its verdict is made of."""
    if post.judged is None:
        return None
    judged = dataclasses.asdict(post.judged.diagnosis)
    return {"diagnosis": judged, "other_modes": post.elsewhere.share}


def rows(path: pathlib.Path = ROWS) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run(names: list[str], methods: list[str], path: pathlib.Path) -> None:
    done = {(one["name"], one["method"]) for one in rows(path)}
    for name in names:
        problem = PROBLEMS[name]()
        for method in methods:
            if (name, method) in done:
                continue
            one = row(problem, method)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
            print(
                f"{name} {method}: {one['elbo']:.4f}, {one['first']:.1f} s, warm "
                f"{one['warm']:.3f} s",
                file=sys.stderr,
                flush=True,
            )


# --- the page ---------------------------------------------------------------------------------


def number(value: float | None, digits: int = 2) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.3g}"


def judges() -> str:
    lines = ["| posterior | D | what it is | draws | R-hat | ESS mean | ESS sd | divergences |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name, make in PROBLEMS.items():
        truth = reference(name)
        lines.append(
            f"| {name} | {len(truth['mean'])} | {make().about} | {truth['n_draws']} | "
            f"{truth['rhat']:.4f} | {truth['ess']:.0f} | {truth['ess_of_squares']:.0f} | "
            f"{truth['divergences']} |"
        )
    return "\n".join(lines)


def best_of(some: list[dict]) -> float:
    return max(one["elbo"] for one in some if math.isfinite(one["elbo"]))


def table(name: str, some: list[dict]) -> str:
    laplace = next(one for one in some if one["method"] == "laplace")
    lines = [f"### {name}: {PROBLEMS[name]().about}, D = {some[0]['dim']}", ""]
    lines += [
        "| method | short of the best, nat | se | mean off, sd | sd off, times | k-hat | passes | "
        "draws | first, s | warm, x Laplace | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in some:
        called = one["method"]
        if called == "auto":
            called = f"**auto** ({one['family']})"
        elif called == "best":
            called = "full, 8 x draws"
        lines.append(
            f"| {called} | {number(best_of(some) - one['elbo'], 3)} | {number(one['se'], 4)} | "
            f"{number(one['mean_off'])} | {number(one['sd_off'])} | {number(one['khat'])} | "
            f"{one['passes'] or '-'} | {one['draws'] or '-'} | {number(one['first'], 1)} | "
            f"{number(one['warm'] / laplace['warm'], 1)} | {one['verdict'].split(':')[0]} |"
        )
    return "\n".join(lines)


def summary(by_name: dict[str, list[dict]]) -> str:
    lines = ["| posterior | D | Laplace short | auto chose | auto short | se | warm, x Laplace |"]
    lines += ["|---|---|---|---|---|---|---|"]
    within = 0
    for name, some in by_name.items():
        of = {one["method"]: one for one in some}
        best, auto, laplace = best_of(some), of["auto"], of["laplace"]
        short = best - auto["elbo"]
        within += short < 0.01 + 2 * auto["se"]
        lines.append(
            f"| {name} | {auto['dim']} | {number(best - laplace['elbo'], 3)} | {auto['family']} | "
            f"{short:.3f} | {auto['se']:.3f} | {number(auto['warm'] / laplace['warm'], 1)} |"
        )
    lines += ["", f"Within 0.01 nat of the best (and two standard errors): {within} of "]
    return "\n".join(lines) + f"{len(by_name)}."


def page(methods: list[str], path: pathlib.Path) -> str:
    """Of the posteriors that have a row for each of these methods; `best` may be missing."""
    by_name: dict[str, list[dict]] = {}
    for one in rows(path):
        by_name.setdefault(one["name"], []).append(one)
    wanted = {"laplace", "auto", *methods} - {"best"}
    there = {name: {one["method"] for one in some} for name, some in by_name.items()}
    whole = {name: by_name[name] for name in PROBLEMS if wanted <= there.get(name, set())}
    parts = ["### The judges: long runs of NUTS", judges()]
    parts += ["### `fit` with defaults against the best Gaussian that anything found"]
    parts += [summary(whole)]
    parts += [table(name, some) for name, some in whole.items()]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="posteriors; all when left out")
    parser.add_argument("--methods", default=",".join(METHODS), help="some of %(default)s")
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS, help="where rows are kept")
    parser.add_argument("--page", action="store_true", help="print the page, fit nothing")
    options = parser.parse_args()
    methods = options.methods.split(",")
    for given, known in ((options.names, PROBLEMS), (methods, METHODS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    if not options.page:
        run(options.names or list(PROBLEMS), methods, options.rows)
    print(page(methods, options.rows))


if __name__ == "__main__":
    main()
