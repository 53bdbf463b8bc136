"""Who makes rows: this process, others beside it, or the workers of a Dask cluster.

This process alone writes them, as they come.
"""

import contextlib
import functools
import hashlib
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import mixvi
from mixvi import InputError

from . import data, fitting
from .experiments import Task
from .registry import REGISTRY


def opened(jobs: int, cluster: str | None) -> "contextlib.AbstractContextManager[Any]":
    return Processes(jobs) if cluster is None else Cluster(cluster)


@functools.cache
def source() -> str:
    """A hash of the source: between two releases the version alone says little."""
    digest = hashlib.sha256()
    for package in (Path(mixvi.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


# --- processes ----------------------------------------------------------------------------------

_outbox: Any = None
# glibc gives large arrays that are freed back to the system at once, and the next operation pays
# for the same pages again: passes over 1000 draws then take 1.7 times as long. Read at its start by
# a process that is spawned; unknown elsewhere.
KEEP_FREED = {"MALLOC_TRIM_THRESHOLD_": str(2**28), "MALLOC_MMAP_THRESHOLD_": str(2**25)}


def _open_worker(outbox: Any) -> None:
    global _outbox
    _outbox = outbox
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()


def end_with_parent(parent: int) -> None:
    """A parent that was killed cannot tell its workers, and nobody would read their rows."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _work(function: Callable, task: Task, *rest: Any) -> None:
    function(task, *rest, lambda kind, records: _outbox.put((kind, records)))


class Processes:
    """Processes that make rows; this process alone writes them. One job needs no other process."""

    def __init__(self, jobs: int):
        self.pool, self.outbox = None, None
        if jobs > 1:
            for name, value in KEEP_FREED.items():
                os.environ.setdefault(name, value)
            context = multiprocessing.get_context("spawn")
            self.outbox = context.Queue()
            self.pool = ProcessPoolExecutor(jobs, context, _open_worker, (self.outbox,))

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.pool is None:
            return
        self.pool.shutdown(wait=kind is None, cancel_futures=True)
        for process in multiprocessing.active_children() if kind is not None else ():
            process.terminate()

    def run(self, work: list[tuple], emit: fitting.Emit) -> None:
        """`work`: a function, a task and what else it takes; all get `emit` last."""
        if self.pool is None:
            for function, *arguments in work:
                function(*arguments, emit)
            return
        assert self.outbox is not None
        pending = [self.pool.submit(_work, *one) for one in work]
        try:
            while pending:
                with contextlib.suppress(queue.Empty):
                    emit(*self.outbox.get(timeout=0.2))
                for future in [one for one in pending if one.done()]:
                    future.result()
                    pending.remove(future)
            while True:
                emit(*self.outbox.get(timeout=0.2))
        except queue.Empty:
            pass
        except BrokenProcessPool as err:
            raise InputError(
                "a worker process was killed (out of memory?): what was finished is saved; the "
                "same command goes on, perhaps with fewer --jobs."
            ) from err


# --- a cluster ----------------------------------------------------------------------------------

PIECE = "a piece of the paper", "start them with more memory"


class Cluster:
    """Dask's workers. A piece whose worker dies is made again by another one; what it had made is
    not there twice, since rows come with the answer."""

    def __init__(self, address: str):
        from mixvi.cluster import _client

        self._connected = _client.connected(address)

    def __enter__(self) -> "Cluster":
        self.client = self._connected.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._connected.__exit__(*error)

    def run(self, work: list[tuple], emit: fitting.Emit) -> None:
        """As `Processes.run`."""
        from mixvi.cluster import _client, _travel

        def tasks() -> Iterator[tuple[None, Callable, tuple]]:
            for function, *arguments in work:
                one = functools.partial(made_there, source(), function, *arguments)
                yield None, _travel.called, (_travel.packed(one, "a task"),)

        with _client.spoken(self.client, PIECE):
            for _, made in _client.as_they_come(self.client, tasks()):
                for kind, records in made:
                    emit(kind, records)


def made_there(
    expected: str, function: Callable, task: Task, *rest: Any
) -> list[tuple[str, list[dict[str, Any]]]]:
    """On a worker: what `function` would emit. Its source and data must be those of whoever
    writes the rows."""
    if source() != expected:
        raise InputError(
            "a worker has another source of mixvi or of reproduction than this process: install "
            "the same checkout on all machines, and start the workers again."
        )
    if task.set in REGISTRY and not data.is_here(task.set):
        raise InputError(
            f"a worker does not have the data of {task.set}: let MIXVI_DATA name a folder there "
            "that has them, or run `python -m reproduction data get all` on its machine."
        )
    found: list[tuple[str, list[dict[str, Any]]]] = []
    function(task, *rest, lambda kind, records: found.append((kind, records)))
    return found
