"""Runs experiments into a results folder, from where they stopped, and says how far they are."""

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import queue
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import jax

from .. import __version__
from .._errors import InputError, MixviError
from ..paper import data
from ._protocol import METHODS, Settings
from ._results import Key, Record, Results
from ._run import run_task
from ._task import Task

EXPERIMENTS = ("toy", "cauchy", "binary", "multiclass")
SETS = {
    "toy": ("mixture",),
    "cauchy": ("cauchy",),
    "binary": data.BINARY,
    "multiclass": data.MULTICLASS,
}
MOST_SPLITS = 100
PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "equinox")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to run; `sets`, `methods` and `splits` left out mean all. `n_splits` gives their number
    for some of the experiments."""

    experiments: tuple[str, ...]
    settings: Settings
    sets: tuple[str, ...] | None = None
    methods: tuple[str, ...] = METHODS
    splits: tuple[int, ...] | None = None
    n_splits: dict[str, int] = dataclasses.field(default_factory=dict)
    trend: bool = True

    def tasks(self, run: str) -> tuple[list[Task], list[str]]:
        """Tasks, and sentences about sets that are left out because their data are not here."""
        wanted = set(self.sets or ())
        known = {name for one in self.experiments for name in SETS[one]}
        if unknown := sorted(wanted - known):
            raise InputError(
                f"unknown set{'s' * (len(unknown) > 1)} {', '.join(unknown)}: choose from "
                f"{', '.join(sorted(known))}."
            )
        if unknown := [one for one in self.methods if one not in METHODS]:
            raise InputError(
                f"unknown method {', '.join(unknown)}: choose from {', '.join(METHODS)}."
            )
        tasks, missing, absent = [], [], []
        for experiment in self.experiments:
            for name in SETS[experiment]:
                if wanted and name not in wanted:
                    continue
                if experiment in ("binary", "multiclass"):
                    try:
                        data.load(name)
                    except MixviError:
                        if wanted:
                            raise
                        absent.append(name)
                        continue
                splits = self._splits(experiment, name)
                if not splits:
                    missing.append(f"{name} is left out: it has no such splits.")
                    continue
                tasks.append(
                    Task(experiment, name, splits, self.methods, self.settings, run, self.trend)
                )
        if absent:
            missing.append(
                f"Left out, because their data are not here or not whole: {', '.join(absent)}. "
                "`mixvi data get all` downloads them, or let MIXVI_DATA name their folder."
            )
        if not tasks:
            raise InputError("nothing to run. " + " ".join(missing))
        return tasks, missing

    def _splits(self, experiment: str, name: str) -> tuple[int, ...]:
        there = {"toy": 1, "cauchy": 100}.get(experiment) or data.n_splits(name)
        if self.splits is not None:
            return tuple(i for i in self.splits if i < there)
        return tuple(range(min(there, self.n_splits.get(experiment, there))))


class Counts(NamedTuple):
    """Rows that a plan asks for, and how many of them failed."""

    rows: int
    failed: int


def run(
    plan: Plan,
    folder: Path,
    *,
    jobs: int = 1,
    retry_failed: bool = False,
    command: str = "",
    progress: bool = True,
) -> Counts:
    """Everything of the plan that the folder does not hold yet, appended to it row by row.

    `jobs` processes work on as many sets at a time (on a CPU; an accelerator wants one).
    """
    if jobs < 1:
        raise InputError(f"jobs must be a positive number of processes, got {jobs}.")
    if jobs > 1 and jax.default_backend() != "cpu":
        raise InputError(
            "several jobs would share one accelerator: leave --jobs out, or set JAX_PLATFORMS=cpu."
        )
    about = _about(plan.settings, command)
    tasks, missing = plan.tasks(about["run"])
    with Results(folder) as results:
        results.check_settings(plan.settings.protocol.name, about["settings"])
        wanted = {key for task in tasks for key in task.row_keys()}
        if retry_failed:
            results.forget_failed(wanted)
        results.append("runs", [about])
        left = [task for task in tasks if any(key not in results.done for key in task.row_keys())]
        left = [dataclasses.replace(task, size=results.size(task.name)) for task in left]
        with Progress(len(wanted), len(wanted & results.done), progress) as display:
            for sentence in missing:
                display.say(sentence)

            turn = threading.Lock()

            def emit(kind: str, records: list[Record]) -> None:
                with turn:
                    before = len(results.done)
                    if kind == "jobs":  # jobs run side by side: the clock on the wall is apart
                        wall = {"session": about["started"], "elapsed": display.elapsed}
                        records = [record | wall for record in records]
                    results.append(kind, records)
                    if kind == "rows":
                        display.advance(len(results.done) - before, records)

            left = sorted(left, key=_cost, reverse=True)
            if jobs == 1:
                _in_threads(left, set(results.done), emit)
            else:
                _in_processes(left, set(results.done), emit, jobs)
        return Counts(len(wanted), results.n_failed(wanted))


def _about(settings: Settings, command: str) -> Record:
    """The full configuration of a run. Its id, a hash of all that matters, is in every row."""
    versions = {"python": platform.python_version(), "mixvi": __version__, "source": _source()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    device = jax.devices()[0]
    about = {
        "settings": settings.as_dict(),
        "versions": versions,
        "backend": jax.default_backend(),
        "device": device.device_kind,
        "n_cores": os.cpu_count(),
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"run": digest, "started": now, "command": command} | about


def _source() -> str:
    """A hash of this package's source: between two releases the version alone says little."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _cost(task: Task) -> int:
    """Roughly: rows times predictors, and tenfold where there are several."""
    if task.experiment in ("toy", "cauchy"):
        return len(task.splits)
    record = data.REGISTRY[task.set]
    rows = record.n_train * len(task.splits)
    return rows if record.n_classes == 2 else 10 * rows * record.n_classes


def _in_threads(tasks: list[Task], done: set[Key], emit: Any) -> None:
    """Two sets side by side: one is compiled or prepared while the other computes."""
    if not tasks:
        return
    on_cpu = jax.default_backend() == "cpu"
    side_by_side = min(2, len(tasks), len(_available_cores()))
    threads = max(1, 2 // side_by_side) if on_cpu else 7
    pool = ThreadPoolExecutor(side_by_side)
    try:
        for future in [pool.submit(run_task, task, done, emit, threads) for task in tasks]:
            future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


# --- several processes ------------------------------------------------------------------------

_outbox: Any = None


def _open_worker(outbox: Any, cores: Any) -> None:
    global _outbox
    _outbox = outbox
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores.get())


def _end_with_parent(parent: int) -> None:
    """A parent that was killed cannot tell its workers, and nobody would read their rows."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _work(task: Task, done: set[Key]) -> None:
    run_task(task, done, lambda kind, records: _outbox.put((kind, records)), threads=2)


def _in_processes(tasks: list[Task], done: set[Key], emit: Any, jobs: int) -> None:
    """One set per process at a time; this process alone writes."""
    context = multiprocessing.get_context("spawn")
    outbox, cores = context.Queue(), context.Queue()
    all_cores = sorted(_available_cores())
    for k in range(jobs):
        cores.put(set(all_cores[k::jobs] or all_cores[k % len(all_cores) :][:1]))
    pool = ProcessPoolExecutor(jobs, context, _open_worker, (outbox, cores))
    with pool:
        pending = [pool.submit(_work, task, done) for task in tasks]
        try:
            while pending:
                with contextlib.suppress(queue.Empty):
                    emit(*outbox.get(timeout=0.2))
                for future in [one for one in pending if one.done()]:
                    future.result()
                    pending.remove(future)
            while True:
                emit(*outbox.get(timeout=0.2))
        except queue.Empty:
            pass
        except BrokenProcessPool as err:
            raise InputError(
                "a worker process was killed (out of memory?): what was finished is saved; the "
                "same command goes on, perhaps with fewer --jobs."
            ) from err
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _available_cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


# --- progress ---------------------------------------------------------------------------------


class Progress:
    """Rows done, what is being done, time left: one line on a terminal, elsewhere one per job."""

    def __init__(self, total: int, done: int, show: bool = True):
        self.total, self.done, self.show = total, done, show
        self._began, self._at_start = time.monotonic(), done
        self._live = show and sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        if self.show and self.done:
            self.say(f"{self.done} of {self.total} rows are there already.")
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live:
            print(file=sys.stderr)

    def say(self, sentence: str) -> None:
        if self.show:
            print(("\r\x1b[K" if self._live else "") + sentence, file=sys.stderr, flush=True)

    @property
    def elapsed(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def advance(self, n: int, records: Sequence[Record]) -> None:
        self.done += n
        if not self.show or not records:
            return
        elapsed = self.elapsed
        made = self.done - self._at_start
        left = elapsed / made * (self.total - self.done) if made else float("nan")
        row = records[0]
        failed = sum(bool(one["failed"]) for one in records)
        text = (
            f"{self.done:>6} of {self.total} rows  {_clock(elapsed)} gone, about {_clock(left)} "
            f"left  {row['protocol']} {row['set']} {row['method']}"
        )
        text += f"  ({failed} failed)" if failed else ""
        end = "" if self._live else "\n"
        print(("\r\x1b[K" if self._live else "") + text, end=end, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    if seconds != seconds:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
