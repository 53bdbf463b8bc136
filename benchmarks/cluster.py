"""A cluster of Dask workers on one machine, a driver that is killed, and several devices.

    python benchmarks/cluster.py                       goes on where it stopped; prints the page
    python benchmarks/cluster.py --page                the page alone
    python benchmarks/cluster.py --only "2 workers"    some of the runs

Every run is a process of its own; its row is kept in docs/results/parts/cluster_rows.jsonl, its
means and covariances in the system's folder for temporary files until all are compared.
"""

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
PARTS = HERE.parent / "docs" / "results" / "parts"
ROWS = PARTS / "cluster_rows.jsonl"
KEPT = pathlib.Path(tempfile.gettempdir()) / "mixvi_cluster"
FEATURES, PARTITIONS, ROWS_EACH = 50, 16, 8_000
PROBLEMS, OBSERVATIONS, BATCH = 100_000, 20, 1000
ALONE, CORES = "one process, one core", "one process, all cores"
KILLED = "2 workers, one killed"
FITS = (ALONE, CORES, "1 worker", "2 workers", "4 workers", KILLED)
WHOLE, BROKEN, DEVICES = "many problems, unbroken", "many problems, killed", "devices"
RUNS = (*FITS, WHOLE, BROKEN, DEVICES)


# --- rows on workers ----------------------------------------------------------------------------


def part(k: int) -> dict[str, np.ndarray]:
    slope = np.random.default_rng(99).standard_normal(FEATURES) * 0.2
    rng = np.random.default_rng([0, k])
    x = rng.standard_normal((ROWS_EACH, FEATURES))
    sign = np.where(rng.random(ROWS_EACH) < 1 / (1 + np.exp(-x @ slope)), 1.0, -1.0)
    return {"x": x, "sign": sign}


def model() -> Any:
    import jax

    import mixvi

    return mixvi.Additive(
        lambda w: -0.5 * (w @ w),
        lambda w, rows: jax.nn.log_sigmoid(rows["sign"] * (rows["x"] @ w)),
    )


@contextlib.contextmanager
def workers(n: int) -> Iterator[Any]:
    """Single-threaded, each on a core of its own as far as there are some."""
    import distributed

    class OnOneCore(distributed.WorkerPlugin):
        def setup(self, worker: Any) -> None:
            cores = sorted(os.sched_getaffinity(0))
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), {cores[int(worker.name) % len(cores)]})

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with (
        distributed.LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=60,
        ) as its,
        distributed.Client(its) as client,
    ):
        client.register_plugin(OnOneCore())
        yield client


def cpu_of(client: Any) -> dict[int, float]:
    """Seconds that each worker has computed."""
    if client is None:
        return {}
    return dict(client.run(lambda: (os.getpid(), time.process_time())).values())


def fitted(name: str) -> dict[str, Any]:
    """First fit and a warm one, the data being where they are computed."""
    import mixvi

    if name == ALONE:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with contextlib.ExitStack() as stack:
        began = time.perf_counter()
        client: Any = None
        if name in (ALONE, CORES):
            parts = [part(k) for k in range(PARTITIONS)]
            whole = {key: np.concatenate([one[key] for one in parts]) for key in parts[0]}
            del parts
            data: Any = mixvi.Pieces.arrays(whole)
            data.n_rows  # noqa: B018 - looked at once, as a cluster's are
        else:
            from dask import delayed

            from mixvi import cluster

            client = stack.enter_context(workers(int(name[0])))
            data = cluster.dask(client, [delayed(part)(k) for k in range(PARTITIONS)])
        loaded = time.perf_counter()
        density = model()
        mixvi.fit(density, np.zeros(FEATURES), data)
        first = time.perf_counter()
        killed: list[int] = []

        def kill(step: Any) -> None:
            if name == KILLED and not killed and step.passes >= 1:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        before, own = cpu_of(client), time.process_time()
        post = mixvi.fit(density, np.zeros(FEATURES), data, callback=kill)
        ended, own = time.perf_counter(), time.process_time() - own
        spent = [after - before.get(pid, 0.0) for pid, after in cpu_of(client).items()]
    KEPT.mkdir(exist_ok=True)
    np.savez(KEPT / f"{name}.npz", mean=post.flat_mean, cov=post.cov)
    return {
        "load": loaded - began,
        "first": first - loaded,
        "warm": ended - first,
        "cpu": own,
        "busiest": max(spent, default=own),
        "gradients": post.stats.gradients,
        "killed": len(killed),
        "verdict": post.verdict.split(":")[0],
    }


# --- many problems ------------------------------------------------------------------------------


def counts(w, data):
    import jax.numpy as jnp

    eta = data["x"] @ w
    return (data["y"] * eta - jnp.exp(eta)).sum() - 0.5 * w @ w


def drive(address: str, folder: str) -> None:
    """Says how far it is."""
    from mixvi import cluster

    rng = np.random.default_rng(0)
    x = rng.standard_normal((PROBLEMS, OBSERVATIONS, 3)) * 0.5
    y = rng.poisson(np.exp(x @ [0.5, -0.5, 1.0])).astype(float)
    cluster.fit_many(
        address,
        counts,
        np.zeros(3),
        {"x": x, "y": y},
        folder,
        batch=BATCH,
        family="mu",
        diagnostics=False,
        progress=lambda done, n: print(done, flush=True),
    )


@contextlib.contextmanager
def scheduler() -> Iterator[str]:
    """With a worker for each core, in processes of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, quiet = f"tcp://127.0.0.1:{port}", {"stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    its = [subprocess.Popen([*command, "--port", str(port)], **quiet)]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    for _ in os.sched_getaffinity(0):
        its.append(subprocess.Popen([*command, "--no-nanny", "--no-dashboard"], **quiet))
    try:
        import distributed

        with distributed.Client(address, timeout="60s") as client:
            client.wait_for_workers(len(its) - 1)
        yield address
    finally:
        for one in its:
            one.kill()
            one.wait()


def driven(address: str, folder: pathlib.Path, until: int | None = None) -> float:
    """Seconds of a driving process, which is killed when so many problems are written."""
    began = time.perf_counter()
    command = [sys.executable, __file__, "--drive", address, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if until is not None and int(line) >= until:
            process.kill()
            break
    process.wait()
    return time.perf_counter() - began


def many(name: str) -> dict[str, Any]:
    from mixvi import cluster

    folder = KEPT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    with scheduler() as address:
        if name == WHOLE:
            seconds = driven(address, folder)
            found = cluster.Results.read(folder)
            return {"seconds": seconds, "converged": int(found.converged.sum())}
        seconds = driven(address, folder, PROBLEMS // 2)
        there = len(list(folder.glob("batch-*.npz"))) * BATCH
        seconds += driven(address, folder)
    whole, killed = (cluster.Results.read(KEPT / one) for one in (WHOLE, BROKEN))
    equal = np.ones(PROBLEMS, dtype=bool)
    for field in dataclasses.fields(whole):
        if field.name not in ("folder", "names"):
            a, b = getattr(whole, field.name), getattr(killed, field.name)
            equal &= ((a == b) | ((a != a) & (b != b))).reshape(PROBLEMS, -1).all(1)
    return {"seconds": seconds, "there": there, "equal": int(equal.sum())}


# --- several devices ----------------------------------------------------------------------------

DEVICE_ROWS, DEVICE_FEATURES = 20_000, 5


def on_devices(how: str, number: int, port: str) -> None:
    """Prints numbers of three fits."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import mixvi

    if how == "processes":
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((DEVICE_ROWS, DEVICE_FEATURES))
    y = (rng.random(DEVICE_ROWS) < 1 / (1 + np.exp(-x @ np.full(DEVICE_FEATURES, 0.3)))).astype(
        float
    )
    data: Any = {"x": x, "y": y}
    if how != "one":
        rows = NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))
        if how == "mesh":
            data = {name: jax.device_put(one, rows) for name, one in data.items()}
        else:
            own = np.split(np.arange(DEVICE_ROWS), 2)[number]
            make = jax.make_array_from_process_local_data
            data = {name: make(rows, one[own]) for name, one in data.items()}

    def learnt(w, hyper, data):
        eta = data["x"] @ w
        prior = 0.5 * DEVICE_FEATURES * hyper - 0.5 * jnp.exp(hyper) * (w @ w) - 0.05 * hyper**2
        return (data["y"] * eta - jnp.logaddexp(0.0, eta)).sum() + prior

    def fixed(w, data):
        return learnt(w, 0.0, data)

    start = np.zeros(DEVICE_FEATURES)
    began = time.perf_counter()
    posts = [
        mixvi.fit(fixed, start, data),
        mixvi.fit(fixed, start, data, family="full", optimiser="bfgs"),
        mixvi.fit(learnt, start, data, hyper=0.0, family="eig"),
    ]
    told = [[post.flat_mean.tolist(), post.cov.tolist(), float(post.elbo.value)] for post in posts]
    print(json.dumps([len(jax.devices()), time.perf_counter() - began, told]))


def devices() -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def started(how: str, number: int = 0, **env: str) -> subprocess.Popen:
        command = [sys.executable, __file__, "--devices", how, str(number), port]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | env)

    def told(process: subprocess.Popen) -> list:
        out, _ = process.communicate()
        assert process.returncode == 0
        return json.loads(out.splitlines()[-1])

    one = told(started("one"))
    mesh = told(started("mesh", XLA_FLAGS="--xla_force_host_platform_device_count=4"))
    first, second = (told(each) for each in [started("processes", k) for k in (0, 1)])

    def apart(some: list) -> float:
        return max(
            float(np.max(np.abs(np.subtract(a, b)) / np.maximum(1, np.abs(b))))
            for ours, theirs in zip(some[2], one[2], strict=True)
            for a, b in zip(ours, theirs, strict=True)
        )

    return {
        "n": [one[0], mesh[0], first[0]],
        "seconds": [one[1], mesh[1], first[1]],
        "mesh": apart(mesh),
        "processes": apart(first),
        "both": first[2] == second[2],
    }


# --- the page -----------------------------------------------------------------------------------


def read() -> dict[str, dict]:
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    return {row["run"]: row for row in map(json.loads, lines)}


def compared(row: dict[str, Any], name: str) -> dict[str, Any]:
    """With the largest differences from one process, in standard deviations and of correlations,
    and whether a killed run has the bits of the unbroken one."""
    with np.load(KEPT / f"{name}.npz") as own, np.load(KEPT / f"{ALONE}.npz") as base:
        sd = np.sqrt(np.diag(base["cov"]))
        row["mean_apart"] = float(np.max(np.abs(own["mean"] - base["mean"]) / sd))
        row["cov_apart"] = float(np.max(np.abs(own["cov"] - base["cov"]) / np.outer(sd, sd)))
    if name == KILLED:
        with np.load(KEPT / f"{name}.npz") as own, np.load(KEPT / "2 workers.npz") as other:
            row["same"] = all(bool(np.array_equal(own[one], other[one])) for one in own)
    return row


def page() -> str:
    import tables

    rows = read()
    parts = [tables.machine()]
    parts.append(
        f"Logistic regression, {PARTITIONS * ROWS_EACH:,} rows x {FEATURES}, `mixvi.Additive` by "
        "JAX, default family, verdict counted. Workers are processes of one thread, each kept on "
        "one core (four share two); data are loaded before the clock starts, a first fit compiles, "
        "and the columns after it are of a warm one. One run each; on a machine that does other "
        "work the clock counts that, too, which is why CPU seconds stand beside it. Differences "
        "from one process on one core, of means and covariances, in posterior standard deviations."
    )
    lines = ["| | first fit, s | warm, s | busiest worker, CPU s | driver, CPU s | speed-up |"]
    lines[0] += " mean apart | cov apart | verdict |"
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name in FITS:
        if (row := rows.get(name)) is None:
            continue
        alone = name in (ALONE, CORES)
        faster, one = "", rows.get("1 worker")
        if one is not None and not alone and name != KILLED:
            faster = f"{one['busiest'] / row['busiest']:.2f}"
        busiest = "" if alone or name == KILLED else f"{row['busiest']:.1f}"
        lines.append(
            f"| {name} | {row['first']:.1f} | {row['warm']:.1f} | {busiest} | {row['cpu']:.1f} | "
            f"{faster} | {row['mean_apart']:.1e} | {row['cov_apart']:.1e} | {row['verdict']} |"
        )
    parts.append("\n".join(lines))
    told = "Speed-up: the CPU seconds of one worker over those of the busiest of several."
    if KILLED in rows:
        row = rows[KILLED]
        told += (
            f" Workers killed on the way: {row['killed']}; that run ends with the bits of the "
            f"unbroken one: **{row.get('same')}**. Its seconds hold the new worker's start, its "
            "data and its compilation."
        )
    parts.append(told)
    if WHOLE in rows and BROKEN in rows:
        whole, killed = rows[WHOLE], rows[BROKEN]
        parts.append(
            f"**{PROBLEMS:,} small problems** (Poisson regression, {OBSERVATIONS} rows, 3 "
            f"coefficients, family `mu` without diagnostics) by `cluster.fit_many` in batches of "
            f"{BATCH:,}, on a scheduler with one worker for each core: {whole['seconds']:.0f} s, "
            f"{whole['converged']:,} converged. Its driving process killed (`kill -9`) when "
            f"{killed['there']:,} were written, and called again: {killed['seconds']:.0f} s "
            "together. Rows equal bit for bit in every column: "
            f"**{killed['equal']:,} of {PROBLEMS:,}**."
        )
    if (row := rows.get(DEVICES)) is not None:
        parts.append(
            f"**Several devices**: {DEVICE_ROWS:,} rows x {DEVICE_FEATURES}, three fits (default; "
            "`full` by BFGS; a learnt hyperparameter with `eig`), with compilation. Differences "
            "are the largest of all means, covariances and bounds, relative where a number is "
            "above one.\n\n"
            "| | devices | s | largest difference from one device |\n|---|---|---|---|\n"
            f"| one process | {row['n'][0]} | {row['seconds'][0]:.1f} | |\n"
            f"| a mesh of CPU devices | {row['n'][1]} | {row['seconds'][1]:.1f} | "
            f"{row['mesh']:.1e} |\n"
            f"| two processes, `jax.distributed` | {row['n'][2]} | {row['seconds'][2]:.1f} | "
            f"{row['processes']:.1e} |\n\n"
            f"Both processes end with the same bits: {row['both']}."
        )
    if missing := [name for name in RUNS if name not in rows]:
        parts.append(f"Not measured yet: {'; '.join(missing)}.")
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", nargs="*", default=RUNS, choices=RUNS)
    parser.add_argument("--child")
    parser.add_argument("--drive", nargs=2)
    parser.add_argument("--devices", nargs=3)
    options = parser.parse_args()
    if options.drive:
        return drive(*options.drive)
    if options.devices:
        how, number, port = options.devices
        return on_devices(how, int(number), port)
    if options.child:
        name = options.child
        many_or_few = many if name in (WHOLE, BROKEN) else fitted
        print(json.dumps(devices() if name == DEVICES else many_or_few(name)))
        return None
    for name in () if options.page else options.only:
        if name in read():
            continue
        command = [sys.executable, __file__, "--child", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        row = compared(row, name) if name in FITS else row
        with ROWS.open("a") as file:
            file.write(json.dumps({"run": name, **row}) + "\n")
    print(page())


if __name__ == "__main__":
    main()
