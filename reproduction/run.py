"""Runs experiments into a results folder, from where they stopped, and says how far they are."""

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import mixvi
from mixvi import InputError

from . import data, fitting, workers
from .experiments import ALL_METHODS, EXPERIMENTS, Settings, Task
from .registry import REGISTRY
from .results import Record, Results

MOST_SPLITS = 100
PIECE = 5  # splits that a process takes at a time; on a cluster one, so that little is lost
PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn")


# --- what to run ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to run; `sets` and `splits` left out mean all, `methods` those of the protocol.
    `n_splits` gives the number of splits for some of the experiments."""

    experiments: tuple[str, ...]
    settings: Settings
    sets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    splits: tuple[int, ...] | None = None
    n_splits: dict[str, int] = dataclasses.field(default_factory=dict)
    trend: bool = True

    def tasks(self, run: str) -> tuple[list[Task], list[str]]:
        """Tasks, and sentences about sets that are left out because their data are not here."""
        name = self.settings.protocol.name
        its = [EXPERIMENTS[one] for one in self.experiments if name in EXPERIMENTS[one].protocols]
        pairs = [(one.name, name) for one in its for name in one.sets]
        _check_known("set", self.sets or (), sorted(name for _, name in pairs))
        asked = self.methods or self.settings.protocol.methods
        _check_known("method", asked, ALL_METHODS)
        tasks, missing, absent = [], [], []
        for experiment, name in pairs:
            if self.sets and name not in self.sets:
                continue
            if name in REGISTRY and not data.is_here(name):
                if self.sets:
                    data.load(name)  # says what is wrong
                absent.append(name)
            elif splits := self._splits(experiment, name):
                methods = tuple(m for m in asked if m in EXPERIMENTS[experiment].methods)
                tasks.append(
                    Task(experiment, name, splits, methods, self.settings, run, self.trend)
                )
            else:
                missing.append(f"{name} is left out: it has no such splits.")
        if absent:
            missing.append(
                f"Left out, because their data are not here or not whole: {', '.join(absent)}. "
                "`python -m reproduction data get all` downloads them, or let MIXVI_DATA name "
                "their folder."
            )
        if not tasks:
            raise InputError("nothing to run. " + " ".join(missing))
        return tasks, missing

    def _splits(self, experiment: str, name: str) -> tuple[int, ...]:
        there = EXPERIMENTS[experiment].splits_of(name)
        if self.splits is not None:
            return tuple(i for i in self.splits if i < there)
        return tuple(range(min(there, self.n_splits.get(experiment, there))))


def _check_known(what: str, names: Any, known: Any) -> None:
    if unknown := [name for name in names if name not in known]:
        plural = "s" * (len(unknown) > 1)
        raise InputError(
            f"unknown {what}{plural} {', '.join(unknown)}: choose from {', '.join(known)}."
        )


def parse_splits(text: str) -> tuple[int, ...]:
    """`5` is the first five; `3-7` are the third to the seventh; several go with commas."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            low, high = (int(first), int(last)) if dash else (1, int(first))
        except ValueError:
            raise InputError(
                f"splits: {part!r} is neither a number nor a range like 3-7."
            ) from None
        if not 1 <= low <= high:
            raise InputError(f"splits: {part!r} is not a range of positive numbers.")
        if high > MOST_SPLITS:
            raise InputError(f"splits: no set has as many as {high}; the most is {MOST_SPLITS}.")
        found |= set(range(low - 1, high))
    return tuple(sorted(found))


# --- running it -------------------------------------------------------------------------------


class Counts(NamedTuple):
    """Rows that a plan asks for, and how many of them failed."""

    rows: int
    failed: int


def run(
    plan: Plan,
    folder: Path,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    command: str = "",
    progress: bool = True,
) -> Counts:
    """Everything of the plan that the folder does not hold yet, appended to it row by row.

    `jobs` processes work on pieces of a set at a time; None: one for each core. `cluster`: the
    address of a Dask scheduler, whose workers do that instead.
    """
    if cluster is not None and jobs is not None:
        raise InputError("--jobs counts processes of this machine: leave it out with --cluster.")
    about = _about(plan.settings, command)
    jobs = _checked_jobs(jobs)
    tasks, missing = plan.tasks(about["run"])
    with Results(folder) as results:
        results.check_settings(about["settings"])
        wanted = {key for task in tasks for key in task.row_keys()}
        if retry_failed:
            results.forget_failed(wanted)
        results.append("runs", [about])
        left = [task for task in tasks if any(key not in results.done for key in task.row_keys())]
        left = [dataclasses.replace(task, size=results.size(task.name)) for task in left]
        display = Progress(len(wanted), len(wanted & results.done), progress)
        for sentence in missing:
            display.say(sentence)

        def emit(kind: str, records: list[Record]) -> None:
            before = len(results.done)
            if kind == "jobs":  # jobs run side by side: the clock on the wall is apart
                wall = {"session": about["started"], "elapsed": display.elapsed}
                records = [record | wall for record in records]
            results.append(kind, records)
            if kind == "rows":
                display.advance(len(results.done) - before, records)

        each = PIECE if cluster is None else 1
        with workers.opened(min(jobs, len(pieces(left, each))), cluster) as at_work:
            at_work.run(sized(left), emit)
            left = [dataclasses.replace(task, size=results.size(task.name)) for task in left]
            work = [
                (fitting.run_task, piece, results.done & set(piece.row_keys()))
                for piece in pieces(left, each)
            ]
            at_work.run(work, emit)
        display.end()
        return Counts(len(wanted), results.n_failed(wanted))


def _checked_jobs(jobs: int | None) -> int:
    if jobs is None:
        some = hasattr(os, "sched_getaffinity")
        return len(os.sched_getaffinity(0)) if some else os.cpu_count() or 1
    if jobs < 1:
        raise InputError(f"jobs must be a positive number of processes, got {jobs}.")
    return jobs


def sized(tasks: list[Task]) -> list[tuple]:
    """Work that chooses a number of basis functions, for tasks that have none yet."""
    several = [task for task in tasks if task.size is None and fitting.has_sizes(task)]
    return [(fitting.choose, task) for task in sorted(several, key=_cost, reverse=True)]


def pieces(tasks: list[Task], each: int = PIECE) -> list[Task]:
    """A few splits each, the longest first, so that no process ends alone."""
    found = [
        dataclasses.replace(task, splits=task.splits[first : first + each])
        for task in tasks
        for first in range(0, len(task.splits), each)
    ]
    return sorted(found, key=_cost, reverse=True)


def _about(settings: Settings, command: str) -> Record:
    """The full configuration of a run. Its id, a hash of all that matters, is in every row."""
    versions = {"python": platform.python_version(), "mixvi": mixvi.__version__}
    versions["source"] = workers.source()
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    about = {"settings": dataclasses.asdict(settings), "versions": versions}
    about |= {**fitting.machine(), "n_cores": os.cpu_count()}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"run": digest, "started": now, "command": command} | about


def _cost(task: Task) -> int:
    """Roughly: rows times predictors, and tenfold where there are several. A Gaussian process has
    as many weights as rows."""
    record = REGISTRY.get(task.set)
    if record is None:
        return len(task.splits)
    rows = record.n_train * len(task.splits)
    if task.experiment == "robust_gp":
        return rows * record.n_train
    return rows if record.n_classes <= 2 else 10 * rows * record.n_classes


# --- progress ---------------------------------------------------------------------------------


class Progress:
    """Rows done, what is being done, time left: one line on a terminal, elsewhere one per job."""

    def __init__(self, total: int, done: int, show: bool = True):
        self.total, self.done, self.show = total, done, show
        self._began, self._at_start = time.monotonic(), done
        self._live = show and sys.stderr.isatty()
        if done:
            self.say(f"{done} of {total} rows are there already.")

    def say(self, sentence: str, end: str = "\n") -> None:
        if self.show:
            print("\r\x1b[K" * self._live + sentence, end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print(file=sys.stderr)

    @property
    def elapsed(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def advance(self, n: int, records: list[Record]) -> None:
        self.done += n
        made = self.done - self._at_start
        left = _clock(self.elapsed / made * (self.total - self.done)) if made else "?"
        failed = sum(bool(one["failed"]) for one in records)
        row = records[0]
        text = (
            f"{self.done:>6} of {self.total} rows  {_clock(self.elapsed)} gone, about {left} left  "
            f"{row['protocol']} {row['set']} {row['method']}"
        )
        text += f"  ({failed} failed)" if failed else ""
        self.say(text, end="" if self._live else "\n")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
