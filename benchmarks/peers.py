"""What others make of the posteriors of `hard.py`: one density, one judge, one clock.

    python benchmarks/peers.py [--only NAME ...] [--tools TOOL ...]     goes on where it stopped
    python benchmarks/peers.py --defects      the minimal cases of `peer_defects.py`, again
    python benchmarks/peers.py --page         the page and the picture alone, from the rows

Needs `pip install 'mixvi[bench]'`. Every fit is a process of its own on one core, forked from one
that has imported but computed nothing; its CPU seconds are counted, those of its children included,
and a limit ends it. The bound is taken in another process on the fresh draws of `hard.py`. Rows
are kept in docs/results/parts/peers_rows.jsonl, one fit a line; one that failed is a row, too.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import resource
import signal
import sys
import warnings
from typing import Any

import numpy as np
import threadpoolctl

import peer_jax  # noqa: F401
import peer_others  # noqa: F401
from peer_tools import TOOLS, Draws, Flow, Gaussian, gaussian
from posteriors import PROBLEMS

HERE = pathlib.Path(__file__).resolve().parent
PARTS = HERE.parent / "docs" / "results" / "parts"
ROWS, PAGE = PARTS / "peers_rows.jsonl", PARTS / "peers.md"
# CPU seconds for a fit; a warm call is made where the first one took less than `SLOW`;
# wall seconds without any CPU time after which a fit hangs.
LIMIT, SLOW, HANGS = 60.0, 12.0, 60.0
# Standard error of a bound, or this share of what the bound is known to fall short by.
ENOUGH, SHARE, MOST = 0.003, 0.01, 2**18
CONTEXT = multiprocessing.get_context("fork")
# Small ones first, easy and hard in turns.
TARGETS = ("known_noise", "schools", "raw_units", "garch", "schools_centred", "heavy_tails")
TARGETS += ("poisson_gp", "groups_centred", "negative_binomial", "item_response", "ar5")
TARGETS += ("poisson_gp_centred", "predator_prey", "large_logistic", "two_latent_gp", "softmax")
TARGETS += ("hierarchical_logistic", "horseshoe", "logistic")


def rows(path: pathlib.Path = ROWS) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- the fit, in a process of its own -------------------------------------------------------------


def seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def on_one_core() -> None:
    """XLA has as many threads as it sees cores, and BLAS as many as it is told."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    threadpoolctl.threadpool_limits(1)


def quiet() -> None:
    """What libraries print goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")


def fitted(pipe: Any, name: str, tool: str, limit: float) -> None:
    """Sends the first result with its time, then the time of a warm call."""
    quiet()
    on_one_core()
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 5))
    try:
        import jax

        # Ours take float64 by themselves.
        jax.config.update("jax_enable_x64", not tool.startswith("mixvi"))
        fit, judged = TOOLS[tool](PROBLEMS[name]())
        began = seconds()
        found = fit()
        first = seconds() - began
        pipe.send({"first": first, "found": judged(found)})
        if first < SLOW:
            began = seconds()
            fit()
            pipe.send({"warm": seconds() - began})
    except Exception as error:
        said = " ".join(str(error).split())[:160]
        pipe.send({"failed": f"{type(error).__name__}: {said}" if said else type(error).__name__})
    finally:
        pipe.close()


def in_its_own_process(name: str, tool: str, limit: float) -> dict:
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=fitted, args=(theirs, name, tool, limit))
    process.start()
    theirs.close()
    told: dict = {}
    spent, hangs = 0.0, False
    try:
        while not hangs:
            if ours.poll(HANGS):
                told |= ours.recv()
            else:
                hangs, spent = spent_by(process.pid) == spent, spent_by(process.pid)
    except EOFError:
        pass
    if hangs:
        process.kill()
    process.join()
    if not told:
        reasons = {
            -signal.SIGXCPU: f"over {limit:.0f} s",
            -signal.SIGKILL: "hangs: no CPU time used",
        }
        told["failed"] = reasons.get(process.exitcode, f"ended with status {process.exitcode}")
    return told


def spent_by(pid: int) -> float:
    """CPU time until now, in ticks; of a process that has ended, the same for ever."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()
    except OSError:
        return 0.0
    return float(fields[13]) + float(fields[14])


# --- the judge ------------------------------------------------------------------------------------


def kept_best(name: str) -> tuple[float, float]:
    """The highest bound of `hard_rows.jsonl`, with its error."""
    kept = [row for row in rows(PARTS / "hard_rows.jsonl") if row["name"] == name]
    kept = [(row["elbo"], row["se"]) for row in kept if math.isfinite(row["elbo"])]
    return max(kept, default=(math.nan, math.nan))


def bound(density: Any, found: Any, best: float) -> tuple[float, float, int]:
    """Of a Gaussian, of the one with the draws' mean and covariance, or of a flow."""
    import fresh

    if isinstance(found, Flow):
        ratios = density.values(found.points) - found.log_q
        return float(ratios.mean()), fresh.error(ratios), len(ratios)
    if isinstance(found, Draws):
        if found.exact:
            return math.nan, math.nan, 0
        found = gaussian(found.points.mean(0), np.cov(found.points.T))
    if found.root is None:
        return math.nan, math.nan, 0

    def enough(value: float) -> float:
        # A bound that is far off need not be known to the third digit.
        return max(ENOUGH, SHARE * (best - value)) if math.isfinite(best - value) else ENOUGH

    return fresh.bound(density, found.mean, found.root, enough, MOST)


def moments(found: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(found, Gaussian):
        return found.points.mean(0), found.points.std(0)
    root = np.nan if found.root is None else found.root
    if np.ndim(root) == 2:
        return found.mean, np.sqrt((root**2).sum(1))
    return found.mean, np.abs(root) * np.ones(len(found.mean))


def judge(pipe: Any, name: str) -> None:
    """A process that has compiled the density once for all fits of a posterior."""
    import fresh
    import hard

    on_one_core()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    problem = PROBLEMS[name]()
    density = fresh.density(problem.log_density, problem.init, problem.data)
    truth = hard.reference(name)
    best = kept_best(name)[0]
    mean, sd = np.array(truth["mean"]), np.array(truth["sd"])
    while (found := pipe.recv()) is not None:
        elbo, se, n_fresh = bound(density, found, best)
        its_mean, its_sd = moments(found)
        ratio = its_sd / sd
        mean_off = np.abs((its_mean - mean) / sd).max()
        told = {"elbo": elbo, "se": se, "mean_off": mean_off}
        told["sd_off"] = np.maximum(ratio, 1 / ratio).max()
        finite = {key: float(x) if math.isfinite(x) else None for key, x in told.items()}
        pipe.send({"kind": type(found).__name__, "n_fresh": n_fresh} | finite)


def row(name: str, tool: str, limit: float, judging: Any) -> dict:
    told = in_its_own_process(name, tool, limit)
    found = told.pop("found", None)
    one = {"name": name, "tool": tool} | told
    if found is None:
        return one
    judging.send(found)
    told = judging.recv()
    return one | {"dim": len(moments(found)[0])} | told


def imported() -> None:
    """What takes long and starts nothing; BlackJAX would start JAX, which cannot be forked."""
    import nutpie  # noqa: F401
    import pymc  # noqa: F401
    import pymc_extras.inference  # noqa: F401
    import scipy.optimize  # noqa: F401

    import fresh  # noqa: F401
    import hard  # noqa: F401


def run(names: list[str], tools: list[str], limit: float, path: pathlib.Path) -> None:
    done = {(one["name"], one["tool"]) for one in rows(path)}
    for name in names:
        left = [tool for tool in tools if (name, tool) not in done]
        if not left:
            continue
        ours, theirs = CONTEXT.Pipe()
        judging = CONTEXT.Process(target=judge, args=(theirs, name))
        judging.start()
        theirs.close()
        for tool in left:
            one = row(name, tool, limit, ours)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
            said = one.get("failed") or f"{one['elbo']}, first {one['first']:.1f} s"
            print(f"{name}  {tool}  {said}", file=sys.stderr, flush=True)
        ours.send(None)
        judging.join()


def main() -> None:
    from peer_page import page

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=TARGETS)
    parser.add_argument("--tools", nargs="+", metavar="TOOL", default=list(TOOLS))
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds for one fit")
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS)
    parser.add_argument("--defects", action="store_true", help="the minimal cases alone")
    parser.add_argument("--page", action="store_true", help="the page and the picture alone")
    options = parser.parse_args()
    for given, known in ((options.only, TARGETS), (options.tools, TOOLS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    if options.defects:
        import peer_defects

        others = [one for one in rows(options.rows) if one["name"] != "defect"]
        text = "".join(json.dumps(one) + "\n" for one in others + peer_defects.shown())
        options.rows.write_text(text, encoding="utf-8")
    elif not options.page:
        imported()
        run(list(options.only), list(options.tools), options.limit, options.rows)
    print(page(rows(options.rows)))


if __name__ == "__main__":
    main()
