"""The paper's experiments over the workers of a cluster: the rows of one machine."""

import dataclasses
import os
import signal
import sys
import threading
import time

import pytest

import mixvi
from reproduction import run, workers
from reproduction.cli import main
from reproduction.experiments import BEST, Settings, Task
from reproduction.results import key, read

distributed = pytest.importorskip("distributed")

SETTINGS = Settings(dataclasses.replace(BEST, sizes=(2, 4)), n_predict=1000)
PLAN = run.Plan(("cauchy",), SETTINGS, None, ("laplace", "mu"), tuple(range(6)), trend=False)


@pytest.fixture(scope="module")
def client():
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as its,
        distributed.Client(its) as client,
    ):
        yield client


def rows(folder):
    """Without what depends on the clock."""
    found = [{k: v for k, v in row.items() if k != "seconds"} for row in read(folder, "rows")]
    return sorted(found, key=key)


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_makes_the_rows_of_processes(client, tmp_path):
    run.run(PLAN, tmp_path / "processes", jobs=2, progress=False)
    folder, address = tmp_path / "cluster", client.scheduler.address
    pid = next(iter(client.run(os.getpid).values()))

    def kill():
        while not (folder / "rows.jsonl").exists():
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    counts = run.run(PLAN, folder, cluster=address, progress=False)
    killing.join()
    assert (counts.rows, counts.failed) == (12, 0)
    assert rows(folder) == rows(tmp_path / "processes")
    sizes = [[job["size"] for job in read(one, "jobs") if job["method"] == "choosing"]
             for one in (folder, tmp_path / "processes")]  # fmt: skip
    assert sizes[0] == sizes[1] != []
    # Again: nothing is left to do.
    assert run.run(PLAN, folder, cluster=address, progress=False) == counts
    assert len(read(folder, "rows")) == 12


@pytest.mark.slow
def test_a_worker_must_have_the_same_source_and_the_data(client, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "source", lambda: "another")
    with pytest.raises(mixvi.InputError, match="another source of mixvi or of reproduction"):
        run.run(PLAN, tmp_path, cluster=client.scheduler.address, progress=False)
    assert read(tmp_path, "rows") == []
    monkeypatch.undo()
    monkeypatch.setenv("MIXVI_DATA", str(tmp_path))
    monkeypatch.setenv("MIXVI_CACHE", str(tmp_path))
    task = Task("binary", "banana", (0,), ("mu",), SETTINGS, "run")
    with pytest.raises(mixvi.InputError, match="does not have the data of banana"):
        workers.made_there(workers.source(), lambda *_: None, task)


def test_of_the_command_line(tmp_path, capsys, monkeypatch):
    from mixvi.cluster import _client

    monkeypatch.setattr(_client, "CONNECTING", "1s")
    out = ["--out", str(tmp_path / "results")]
    assert main(["toy", "--cluster", "tcp://127.0.0.1:1", *out]) == 1
    assert "no scheduler answers at 'tcp://127.0.0.1:1'" in capsys.readouterr().err
    assert main(["toy", "--cluster", "tcp://127.0.0.1:1", "--jobs", "2", *out]) == 1
    assert "leave it out with --cluster" in capsys.readouterr().err
