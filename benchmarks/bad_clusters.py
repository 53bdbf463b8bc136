"""What goes wrong on a cluster: cases for bad_pieces.py."""

import contextlib
import functools
import logging
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

import mixvi
from bad_cases import (
    LONG,
    MODEL,
    Found,
    W,
    X,
    Y,
    alike,
    case,
    disk_full_at,
    log_likelihood,
    once,
    part,
    said,
    spoilt,
)
from mixvi import cluster

HERE = pathlib.Path(__file__).resolve().parent

# --- a cluster ----------------------------------------------------------------------------------


@contextlib.contextmanager
def workers(n: int = 2, **how: Any) -> Iterator[Any]:
    import distributed

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 60} | how
    with (
        distributed.LocalCluster(n_workers=n, **settings) as its,
        distributed.Client(its) as client,
    ):
        yield client


@functools.cache
def client() -> Any:
    """Two workers, for all cases that leave them alive."""
    return everything.enter_context(workers())


everything = contextlib.ExitStack()


def on_cluster(made: Callable[[int], Any] = part, at: Any = None) -> Any:
    from dask import delayed

    return cluster.dask(at or client(), [delayed(made)(k) for k in range(8)])


@functools.cache
def unbroken() -> mixvi.Posterior:
    return mixvi.fit(MODEL, W, on_cluster(), **LONG)


@case("a partition with another column", "partition 7 holds .*data.z, where partition 0 holds")
def _(_):
    return Found(
        said(lambda: on_cluster(lambda k: part(k, names=("x", "z")) if k == 7 else part(k)))
    )


@case("NaN in partition 7", r"data.x is NaN in row 42 of partition 7, \[1\]: drop or fill")
def _(_):
    return Found(said(lambda: on_cluster(spoilt)))


@case("partition 7 with a row less in one array", "partition 7: .*same number of rows")
def _(_):
    return Found(said(lambda: on_cluster(lambda k: part(k) | ({"y": Y[:99]} if k == 7 else {}))))


@case(
    "a categorical column in a Dask data frame", "partition 0: .*not numbers in the column 'kind'"
)
def _(_):
    import dask.dataframe
    import pandas as pd

    frame = pd.DataFrame({"a": X[:, 0], "kind": pd.Categorical(np.where(Y > 0, "u", "v"))})
    data = dask.dataframe.from_pandas(frame, npartitions=2)
    return Found(said(lambda: cluster.dask(client(), data)))


@case("arrays cut in different places", "cut alike along their first axis.*rechunk")
def _(_):
    import dask.array as da

    rows = {"x": da.from_array(X, chunks=(100, 3)), "y": da.from_array(Y, chunks=300)}
    return Found(said(lambda: cluster.dask(client(), rows)))


@case("a function that holds an open file", "cannot be sent to the workers: .*Open files, locks")
def _(folder):
    with open(folder / "log.txt", "w") as log:

        def prior(w):
            log.write("asked\n")
            return -0.5 * (w @ w)

        model = mixvi.Additive(prior, log_likelihood)
        return Found(said(lambda: mixvi.fit(model, W, on_cluster())))


@case("a function of a module that the workers do not have", "a worker cannot make .*upload_file")
def _(folder):
    (folder / "only_here.py").write_text("def prior(w):\n    return -0.5 * (w @ w)\n")
    data = on_cluster()
    sys.path.insert(0, str(folder))
    try:
        import only_here  # type: ignore[import-not-found]

        model = mixvi.Additive(only_here.prior, log_likelihood)
        return Found(said(lambda: mixvi.fit(model, W, data)))
    finally:
        sys.path.remove(str(folder))


@case("no scheduler at the address", "no scheduler answers at 'tcp://127.0.0.1:")
def _(_):
    from mixvi.cluster import _client

    _client.CONNECTING = "1s"
    return Found(said(lambda: cluster.dask("tcp://127.0.0.1:9", [])))


@case("the client is closed in the middle", "the client was closed.*checkpoint=path")
def _(folder):
    from distributed import Client

    own, path = Client(client().scheduler.address, set_as_default=False), folder / "fit"
    data = on_cluster(at=own)
    words = said(
        lambda: mixvi.fit(MODEL, W, data, callback=once(own.close), checkpoint=path, **LONG)
    )
    post = mixvi.fit(MODEL, W, on_cluster(), checkpoint=path, **LONG)
    return Found(words, *alike("goes on from its checkpoint with another client", post, unbroken()))


@case("a worker killed in the middle", "nothing is said")
def _(_):
    with workers() as its:
        data = on_cluster(at=its)
        pid = next(iter(its.run(os.getpid).values()))
        kill = once(lambda: os.kill(pid, signal.SIGKILL))
        posts: list[mixvi.Posterior] = []
        words = said(lambda: posts.append(mixvi.fit(MODEL, W, data, callback=kill, **LONG)))
        return Found(words, *alike("the fit ends without it", posts[0], unbroken()))


@case("all workers gone", "has no workers: this waits until there are some")
def _(_):
    from mixvi.cluster import _client

    _client.PATIENCE = 1.0
    with workers(1) as its:
        data, posts = on_cluster(at=its), []

        def gone() -> None:
            import threading

            its.cluster.scale(0)
            threading.Timer(5.0, its.cluster.scale, [1]).start()

        call = once(gone)
        words = said(lambda: posts.append(mixvi.fit(MODEL, W, data, callback=call, **LONG)))
        return Found(words, *alike("one comes, and the fit ends", posts[0], unbroken()))


@case("a partition that kills whoever loads it", r"a partition ended every worker that took it")
def _(_):
    import dask

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), workers() as its:
        return Found(said(lambda: on_cluster(_ends_itself, at=its)))


def _ends_itself(k: int) -> Any:
    if k == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return part(k)


@case("the scheduler is killed in the middle", "the scheduler at tcp.* went away.*checkpoint=path")
def _(folder):
    from distributed import Client

    path, address = folder / "fit", "tcp://127.0.0.1:"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    port = str(free_port())
    here = {"PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), *sys.path]))}
    quiet["env"] = os.environ | here
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    scheduler = subprocess.Popen([*command, "--port", port], **quiet)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address + port]
    command += ["--nthreads", "1", "--no-nanny"]
    worker = subprocess.Popen(command, **quiet)
    try:
        with Client(address + port, timeout="30s", set_as_default=False) as own:
            own.wait_for_workers(1)
            own._timeout = 2  # seconds in which it may come again
            data = on_cluster(at=own)
            kill = once(scheduler.kill)
            words = said(lambda: mixvi.fit(MODEL, W, data, callback=kill, checkpoint=path, **LONG))
    finally:
        for one in (scheduler, worker):
            one.kill()
            one.wait()
    post = mixvi.fit(MODEL, W, on_cluster(), checkpoint=path, **LONG)
    return Found(words, *alike("goes on from its checkpoint elsewhere", post, unbroken()))


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# --- many problems ------------------------------------------------------------------------------


def counts(w, data):
    return (data * w - jnp.exp(w)).sum() - 0.5 * w @ w


PROBLEMS = np.random.default_rng(1).poisson(3.0, (40, 4, 2)).astype(float)


def many(folder: pathlib.Path, problems: Any = PROBLEMS, density: Any = counts, **how: Any) -> Any:
    return cluster.fit_many(client(), density, np.zeros(2), problems, folder, batch=8, **how)


@functools.cache
def many_unbroken() -> Any:
    return many(pathlib.Path(everything.enter_context(tempfile.TemporaryDirectory())) / "whole")


def gone_on(folder: pathlib.Path) -> tuple[str, bool]:
    there = len(list(folder.glob("batch-*.npz")))
    made: list[int] = []
    found = many(folder, progress=lambda done, n: made.append(done))
    words, is_same = alike(f"{there} of 5 batches were there; called again", found, many_unbroken())
    return words, is_same and len(made) == 5


@case("NaN in problem 7 of 40", "nothing is said")
def _(folder):
    problems = PROBLEMS.copy()
    problems[7, 0, 0] = np.nan
    found: list[Any] = []
    words = said(lambda: found.append(many(folder, problems)))
    others = np.arange(40) != 7
    is_same = np.array_equal(found[0].mean[others], many_unbroken().mean[others])
    status = found[0].status[7]
    return Found(words, f"the other 39 the same; its row: {status}", is_same and "nan" in status)


@case("results of other data in the folder", "holds results of other data: give another folder")
def _(folder):
    many(folder)
    words = said(lambda: many(folder, PROBLEMS + 1))
    return Found(words, *gone_on(folder))


@case("results of another log density in the folder", "holds results of another log density")
def _(folder):
    many(folder)
    words = said(lambda: many(folder, density=lambda w, data: counts(w, data) - w @ w))
    return Found(words, *gone_on(folder))


@case("two processes write into one folder", "another process is writing into")
def _(folder):
    words: list[str] = []

    def again(done: int, n: int) -> None:
        if not words:
            words.append(said(lambda: many(folder)))

    found = many(folder, progress=again)
    return Found(words[0], *alike("the first one ends", found, many_unbroken()))


@case("a full disk under the results of many problems", "cannot be written .*the same call goes on")
def _(folder):
    unbroken = many_unbroken()
    seen: list[int] = []

    def full(done: int, n: int) -> None:
        seen.append(done)
        if len(seen) == 2:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))

    with disk_full_at(2**40):
        words = said(lambda: many(folder, progress=full))
    kept, is_sound = gone_on(folder)
    return Found(words, kept, is_sound and len(unbroken) == 40)


@case("a batch of results cut short", "nothing is said")
def _(folder):
    many(folder)
    path = folder / "batch-000002.npz"
    path.write_bytes(path.read_bytes()[:-40])
    words = said(lambda: many(folder))
    found = cluster.Results.read(folder)
    return Found(words, *alike("it is made again", found, many_unbroken()))


@case("Ctrl-C in the middle of many problems", "KeyboardInterrupt")
def _(folder):
    def stop(done: int, n: int) -> None:
        if done == 16:
            signal.raise_signal(signal.SIGINT)

    try:
        many(folder, progress=stop)
        words = "nothing is said"
    except KeyboardInterrupt:
        words = "KeyboardInterrupt"
    return Found(words, *gone_on(folder))
