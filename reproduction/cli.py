"""`python -m reproduction ...` reruns the paper's experiments, `... data` gets their data sets."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mixvi import InputError, MixviError

from . import data
from .experiments import ALL_METHODS, EXPERIMENTS, METHODS, PROTOCOLS, QUICK, Settings
from .registry import NAMES
from .run import Plan, parse_splits, run

PROGRAM = "python -m reproduction"
RESULTS = Path("mixvi-paper")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 after an error that was said in a sentence."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(arguments)
    options.command = " ".join([PROGRAM, *arguments])
    try:
        return options.call(options) or 0
    except BrokenPipeError:  # the reader of a pipe has seen enough
        return 0
    except (MixviError, OSError) as err:
        print(f"reproduction: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr, flush=True)
        # Threads inside compiled code cannot be stopped; every finished row is on the disk.
        os._exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    topics: Any = parser.add_subparsers(required=True, metavar="experiment | report | data")
    about = {name: one.about for name, one in EXPERIMENTS.items()} | {"all": "all of these"}
    about["quick"] = "a small part of all, nothing to download, and its report"
    for name, text in about.items():
        one = topics.add_parser(name, help=text, description=f"Runs {text}, into a results folder.")
        one.set_defaults(call=_quick if name == "quick" else _experiments, experiment=name)
        _run_options(one, name == "quick")
    report = topics.add_parser("report", help="write report.html and report.md from a folder")
    report.add_argument("--out", type=Path, default=RESULTS, help="the results folder")
    report.add_argument("--to", type=Path, help="where the report goes, if elsewhere")
    report.set_defaults(call=lambda options: _report(options.out, options.to))
    topics = topics.add_parser("data", help="the paper's data sets").add_subparsers(
        required=True, metavar="list | get | path"
    )
    whole = topics.add_parser("list", help="all sets, and which are here")
    whole.set_defaults(call=lambda _: print(data.describe()))
    get = topics.add_parser("get", help="download sets into the cache")
    get.add_argument("names", nargs="+", metavar="SET", help="names as in the paper, or all")
    get.add_argument("--force", action="store_true", help="download again")
    get.set_defaults(call=_get)
    path = topics.add_parser("path", help="where a set comes from")
    path.add_argument("name", metavar="SET")
    path.set_defaults(call=lambda options: print(data.path(options.name)))
    return parser


def _run_options(parser: argparse.ArgumentParser, quick: bool) -> None:
    add = parser.add_argument
    folder = Path(f"{RESULTS}-quick") if quick else RESULTS
    add("--out", type=Path, default=folder, help="results folder (default: %(default)s)")
    add("--jobs", type=int, metavar="N", help="processes, one set each (CPU)")
    about = "a Dask scheduler, tcp://host:8786: its workers instead of processes"
    add("--cluster", metavar="ADDRESS", help=about)
    add("--seed", type=int, default=0, help="of splits, starts and draws (default: 0)")
    add("--retry-failed", action="store_true", help="try rows again that failed")
    if not quick:
        about = "our defaults, or the paper's draws, optimiser, screening and starts"
        add("--protocol", choices=(*PROTOCOLS, "both"), default="best", help=about)
        add("--sets", nargs="+", metavar="SET", help="only these sets")
        add("--methods", nargs="+", metavar="METHOD", help=", ".join(ALL_METHODS))
        add("--splits", metavar="N", help="the first N splits, or a range such as 3-7")
        add("--basis", type=int, metavar="M", help="basis functions (default: the protocol's)")
        add("--draws", type=int, metavar="S", help="fixed draws, where draws are taken")
        add("--predict-draws", type=int, default=10_000, metavar="S'", help="draws for predictions")


def _experiments(options: argparse.Namespace) -> int:
    chosen = tuple(EXPERIMENTS) if options.experiment == "all" else (options.experiment,)
    sets = tuple(options.sets) if options.sets else None
    methods = tuple(options.methods) if options.methods else None
    splits = parse_splits(options.splits) if options.splits else None
    numbers = (options.draws, options.predict_draws, options.seed, options.basis)
    names = tuple(PROTOCOLS) if options.protocol == "both" else (options.protocol,)
    settings = [Settings(PROTOCOLS[name], *numbers) for name in names]
    status = _run(options, *(Plan(chosen, one, sets, methods, splits) for one in settings))
    print(f"rows are in {options.out}; now: {PROGRAM} report --out {options.out}")
    return status


def _quick(options: argparse.Namespace) -> int:
    plan = Plan(
        ("toy", "cauchy", "multiclass"),
        Settings(QUICK, seed=options.seed),
        ("mixture", "cauchy", "iris", "wine"),
        METHODS,
        n_splits={"cauchy": 10, "multiclass": 5},
        trend=False,
    )
    status = _run(options, plan)
    _report(options.out, None)
    return status


def _run(options: argparse.Namespace, *plans: Plan) -> int:
    """1 when nothing came out: scripts look at that, people at the sentence."""
    how = {"jobs": options.jobs, "cluster": options.cluster}
    how |= {"retry_failed": options.retry_failed, "command": options.command}
    counts = [run(plan, options.out, **how) for plan in plans]
    rows, failed = map(sum, zip(*counts, strict=True))
    if failed:
        print(
            f"{failed} of {rows} rows failed: the report gives their reasons, --retry-failed tries "
            "them again",
            file=sys.stderr,
        )
    return int(failed == rows)


def _report(folder: Path, to: Path | None) -> None:
    from .report import write_report  # matplotlib and templates only when they are needed

    if not folder.is_dir():
        raise InputError(f"there is no results folder {folder}: name it with --out.")
    print(f"wrote {write_report(folder, to)}")


def _get(options: argparse.Namespace) -> int:
    """What MIXVI_DATA or the cache hold already stays; one set that fails stops no other."""
    names = NAMES if "all" in options.names else options.names
    failed = 0
    for name in names:
        try:
            if options.force or not data.is_here(name):
                data.get(name, force=options.force)
            if not data.is_here(name):
                raise InputError(
                    f"{name} was downloaded, but {data.path(name)} is read before it and is "
                    "damaged: remove that file."
                )
            print(f"{name}: {data.path(name)}")
        except MixviError as err:
            failed += 1
            print(f"reproduction: {err}", file=sys.stderr)
    if failed and len(names) > 1:
        print(f"reproduction: {failed} of {len(names)} sets failed", file=sys.stderr)
    return int(failed > 0)
