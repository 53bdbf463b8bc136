"""Asking Dask's scheduler: tasks go out, answers come back, and what can go wrong is a sentence."""

import contextlib
import queue
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .._errors import InputError, MixviError

Tag = TypeVar("Tag")
# Tasks that are on the way for each thread of the cluster: one works, one waits.
AHEAD = 2
# Seconds of waiting after which one looks whether there is anybody to wait for.
PATIENCE = 10.0
# Seconds in which a scheduler must answer.
CONNECTING = "10s"
LOST = (
    "cluster: data were lost with the workers that held them ({}). Data that Dask itself reads "
    "(read_parquet, delayed functions) are read again; those that were scattered are not."
)
# What a task is called, and what makes it smaller.
PARTITION = "a partition", "cut the data into more partitions"


def client_of(client: Any) -> Any:
    """The client itself, or one for the scheduler's address."""
    distributed = _distributed()
    if isinstance(client, str):
        try:
            return distributed.Client(client, timeout=CONNECTING, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as err:
            raise InputError(f"cluster: no scheduler answers at {client!r} ({err}).") from err
    if not isinstance(client, distributed.Client):
        raise InputError(
            "cluster: the first argument is a distributed.Client or the scheduler's address, not "
            f"{type(client).__name__}."
        )
    if client.asynchronous:
        raise InputError("cluster: the client must not be asynchronous.")
    if client.status != "running":
        raise InputError("cluster: the client is closed: open another one.")
    return client


@contextlib.contextmanager
def connected(client: Any) -> Iterator[Any]:
    """The same; one that was made for an address is closed."""
    made = client_of(client)
    try:
        yield made
    finally:
        if made is not client:
            made.close()


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as err:
        raise ImportError("a cluster needs Dask: pip install 'mixvi[cluster]'") from err
    return distributed


def submitted(client: Any, work: Callable, *given: Any) -> Any:
    """A future of `work(*given)`, done again where the worker that has it dies."""
    from dask.config import set as settings

    # What is sent is no larger than it must be: Dask's advice to load it elsewhere does not help.
    with settings({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return client.submit(work, *given, pure=False)


def made(client: Any, futures: list[Any]) -> list[Any]:
    """The same, when all are there: a scheduler under load may take up what is sent later before
    what it is made of, and calls that lost."""
    for one in futures:
        _wait_for(client, one)
        if one.status != "finished":
            one.result()  # raises
    return futures


def result_of(client: Any, future: Any) -> Any:
    """What it comes to, however long that takes; told once if there is no worker."""
    _wait_for(client, future)
    return future.result()


def _wait_for(client: Any, future: Any) -> None:
    if not future.done():
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        future.add_done_callback(done.put)
        _next(client, done)


def as_they_come(
    client: Any, tasks: Iterator[tuple[Tag, Callable, tuple]]
) -> Iterator[tuple[Tag, Any]]:
    """Answers of tasks (a tag, a function, its arguments) with their tags, whoever comes first. So
    many are sent that no worker waits, and no more."""
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    tags: dict[Any, Tag] = {}
    left = iter(tasks)
    while True:
        room = AHEAD * max(1, sum(_threads(client).values()))
        while len(tags) < room and (task := next(left, None)) is not None:
            tag, work, given = task
            future = submitted(client, work, *given)
            tags[future] = tag
            future.add_done_callback(done.put)
        if not tags:
            return
        future = _next(client, done)
        yield tags.pop(future), future.result()


def _next(client: Any, done: "queue.SimpleQueue[Any]") -> Any:
    told = False
    while True:
        try:
            return done.get(timeout=PATIENCE)
        except queue.Empty:
            if client.status == "closed":
                raise InputError(_gone(client)) from None
            if not told and client.status == "running" and not _threads(client):
                told = True
                warnings.warn(
                    f"cluster: the scheduler{_address(client)} has no workers: this waits until "
                    "there are some.",
                    RuntimeWarning,
                    stacklevel=2,
                )


def _threads(client: Any) -> dict[str, int]:
    """Of each worker."""
    try:
        return client.nthreads()
    except OSError as err:
        raise InputError(_gone(client)) from err


@contextlib.contextmanager
def spoken(client: Any, task: tuple[str, str] = PARTITION) -> Iterator[None]:
    """What can happen to a cluster, in a sentence."""
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    try:
        yield
    except MixviError:
        raise
    except KilledWorker as err:
        what, remedy = task
        raise InputError(
            f"cluster: {what} ended every worker that took it, {err.allowed_failures + 1} by now "
            f"(the last was {getattr(err.last_worker, 'address', 'unknown')}). Where workers run "
            f"out of memory, {remedy}; their own logs say more."
        ) from err
    except CancelledError as err:
        lost_it = getattr(err, "reason", "") == "scheduler-connection-lost"
        if client.status != "running" or lost_it:
            raise InputError(_gone(client)) from err
        raise InputError(LOST.format(getattr(err, "reason", "") or err)) from err
    except Exception as err:  # a closed client raises more than one kind
        if isinstance(err, RuntimeError) and "deserialization of the task graph" in str(err):
            raise InputError(
                "cluster: the scheduler cannot read what it was sent. mixvi, and the modules of "
                "your own that Dask's data are made with, must be importable there as well as on "
                f"the workers ({str(err.__cause__ or err).strip().splitlines()[0]})."
            ) from err
        if client.status == "running" and not isinstance(err, CommClosedError):
            raise
        raise InputError(_gone(client)) from err


def _gone(client: Any) -> str:
    return (
        f"cluster: the scheduler{_address(client)} went away, or the client was closed. Start "
        "both and make the same call again: a fit with checkpoint=path, and fit_many with its "
        "folder, go on where they were."
    )


def _address(client: Any) -> str:
    return "" if client.scheduler is None else f" at {client.scheduler.address}"
