"""A results folder holds finished rows and nothing else, whatever happens to the run."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import mixvi
from reproduction import fitting
from reproduction import run as driver
from reproduction import workers as at_work
from reproduction.experiments import BEST, PAPER, Settings, Task
from reproduction.results import Results, key, read


def row(split=0, method="mu", **more):
    names = {"protocol": "best", "experiment": "binary", "set": "heart"}
    return names | {"split": split, "method": method, "failed": None} | more


def test_rows_are_appended_once_and_read_back(tmp_path):
    with Results(tmp_path) as results:
        results.append("rows", [row(0, lpd=-1.5), row(1, lpd=float("nan"))])
        results.append("rows", [row(1, lpd=7.0), row(2, lpd=float("inf"))])
    found = read(tmp_path, "rows")
    assert [one["split"] for one in found] == [0, 1, 2]
    assert [one["lpd"] for one in found] == [-1.5, None, None]
    with Results(tmp_path) as again:
        assert again.done == {key(one) for one in found}


def test_a_write_that_fails_leaves_whole_rows(tmp_path, monkeypatch):
    """A full disk: what was half written is taken back, and the rows are not counted as done."""

    def full(_):
        raise OSError(28, "No space left on device")

    with Results(tmp_path) as results:
        results.append("rows", [row(0)])
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(mixvi.InputError, match="No space"):
            results.append("rows", [row(1)])
        monkeypatch.undo()
        assert results.done == {key(row(0))}
        assert [one["split"] for one in read(tmp_path, "rows")] == [0]
        results.append("rows", [row(1)])
    assert [one["split"] for one in read(tmp_path, "rows")] == [0, 1]


def test_an_unfinished_line_is_not_a_row_and_is_cut_off(tmp_path):
    with Results(tmp_path) as results:
        results.append("rows", [row(0), row(1)])
    path = tmp_path / "rows.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    assert [one["split"] for one in read(tmp_path, "rows")] == [0]
    with Results(tmp_path) as results:
        assert len(results.done) == 1
        results.append("rows", [row(1)])
    assert path.read_bytes() == whole


@pytest.mark.parametrize("kind", ["rows", "jobs", "runs"])
@pytest.mark.parametrize("line", ["nonsense", "{}", "[1, 2]", '"text"', "null"])
def test_a_line_that_is_no_record_is_named(tmp_path, kind, line):
    fine = {"rows": row(0), "jobs": row(0), "runs": {"settings": {"protocol": {"name": "best"}}}}
    (tmp_path / f"{kind}.jsonl").write_text(json.dumps(fine[kind]) + f"\n{line}\n")
    with pytest.raises(mixvi.InputError, match=rf"{kind}\.jsonl, line 2"):
        read(tmp_path, kind)


def test_a_chosen_number_of_basis_functions_is_remembered(tmp_path):
    job = {"protocol": "paper", "experiment": "binary", "set": "heart", "method": "choosing"}
    with Results(tmp_path) as results:
        results.append("jobs", [job | {"method": "mu"}, job | {"size": 20}])
        assert results.size(("paper", "binary", "heart")) == 20
        assert results.size(("paper", "binary", "banana")) is None


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    hold = (
        "import sys, pathlib\nfrom reproduction.results import Results\n"
        "with Results(pathlib.Path(sys.argv[1])):\n    print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(mixvi.InputError, match="another run is writing"):
            Results(tmp_path)
        other.send_signal(signal.SIGKILL)
    with Results(tmp_path):  # a killed run leaves no lock behind
        pass


def test_other_settings_need_another_folder(tmp_path):
    settings = dataclasses.asdict(Settings(BEST))
    with Results(tmp_path) as results:
        results.append("runs", [{"run": "a", "settings": settings}])
        results.check_settings(settings)
        results.check_settings(dataclasses.asdict(Settings(PAPER, seed=3)))
        with pytest.raises(mixvi.InputError, match="seed"):
            results.check_settings(dataclasses.asdict(Settings(BEST, seed=1)))


def test_failed_rows_are_tried_again_only_on_request(tmp_path):
    with Results(tmp_path) as results:
        results.append("rows", [row(0), row(1) | {"failed": "no mode"}])
        assert len(results.done) == 2
        results.forget_failed({key(row(1))})
        assert results.done == {key(row(0))}
        results.append("rows", [row(1)])
    assert [one["failed"] for one in read(tmp_path, "rows")] == [None, None]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(mixvi.InputError, match="cannot write results"):
        Results(tmp_path / "file" / "folder")


# --- plans ------------------------------------------------------------------------------------


def test_splits_are_numbers_and_ranges():
    assert list(driver.parse_splits("3")) == [0, 1, 2]
    assert driver.parse_splits("7-7,2-3,3-3") == (1, 2, 6)  # in order and once each
    for wrong in ("x", "0", "3-2", ""):
        with pytest.raises(mixvi.InputError, match="splits"):
            list(driver.parse_splits(wrong))


def test_unknown_names_are_told(tmp_path):
    settings = Settings(BEST)
    for plan, word in (
        (driver.Plan(("binary",), settings, ("nile",)), "nile"),
        (driver.Plan(("toy",), settings, methods=("mcmc",)), "mcmc"),
    ):
        with pytest.raises(mixvi.InputError, match=word):
            plan.tasks("run")
    with pytest.raises(mixvi.InputError, match="multiple of 1000"):
        Settings(BEST, n_predict=1500)


# --- stopped runs -----------------------------------------------------------------------------

METHODS = ("laplace", "mu", "eig")


def without_time(rows):
    kept = [{k: v for k, v in one.items() if k != "seconds"} for one in rows]
    return sorted(kept, key=key)


def test_a_killed_run_goes_on_to_the_same_rows(tmp_path):
    """Killed at once after its first row; the same command then ends with the rows of an unbroken
    run, bit for bit."""
    command = [sys.executable, "-m", "reproduction", "toy", "--methods", *METHODS]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run = subprocess.Popen([*command, "--out", broken], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not read(broken, "rows") and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert 0 < len(read(broken, "rows")) < len(METHODS)
    with (broken / "rows.jsonl").open("ab") as file:
        file.write(b'{"protocol": "be')  # and in the middle of a line
    for folder in (broken, whole):
        subprocess.run([*command, "--out", folder], check=True, capture_output=True)
    rows = without_time(read(broken, "rows"))
    assert len(rows) == len(METHODS)
    assert rows == without_time(read(whole, "rows"))
    lines = (broken / "rows.jsonl").read_text().splitlines()
    assert all(json.loads(line)["run"] for line in lines)


SMALL = dataclasses.replace(BEST, sizes=(2, 4))
# In a process of its own: here every array would be checked, at five times the time.
RUN = """
import dataclasses, json, sys
from pathlib import Path
from reproduction import run
from reproduction.experiments import BEST, Settings
folder, jobs, parts = sys.argv[1:]
settings = Settings(dataclasses.replace(BEST, sizes=(2, 4)), n_predict=1000)
for splits, methods in json.loads(parts):
    plan = run.Plan(("cauchy",), settings, None, tuple(methods), tuple(splits), trend=False)
    assert run.run(plan, Path(folder), jobs=int(jobs), progress=False).failed == 0
"""
WHOLE = (range(6), ("laplace", "mu"))


def run(folder, *parts, jobs=1):
    """Each part: splits and methods."""
    text = json.dumps([(list(splits), methods) for splits, methods in parts])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", RUN, folder, str(jobs), text]
    subprocess.run(command, check=True, env=environment)
    return without_time(read(folder, "rows"))


def choices(folder):
    return [job["size"] for job in read(folder, "jobs") if job["method"] == "choosing"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Six splits in one go: more than a process takes at a time."""
    folder = tmp_path_factory.mktemp("whole")
    return run(folder, WHOLE), folder


def test_two_processes_make_the_rows_of_one(whole, tmp_path):
    """Numbers of basis functions are chosen first; the parent alone writes."""
    rows, folder = whole
    assert [(row["split"], row["method"]) for row in rows] == [
        (split, method) for split in range(6) for method in ("laplace", "mu")
    ]
    assert run(tmp_path, WHOLE, jobs=2) == rows
    assert choices(tmp_path) == choices(folder)


def test_a_run_in_parts_ends_with_the_same_rows(whole, tmp_path):
    """And its number of basis functions is chosen once."""
    rows, folder = whole
    assert run(tmp_path, ((4, 5), ("mu",)), ((0, 5), ("laplace", "mu")), WHOLE) == rows
    assert len(choices(tmp_path)) == 1
    assert choices(tmp_path) == choices(folder)
    assert {row["n_basis"] for row in rows} == set(choices(folder))


def test_only_sets_without_a_size_choose_one():
    task = Task("cauchy", "cauchy", (0,), ("mu",), Settings(SMALL), "run")
    assert [one for _, one in driver.sized([task])] == [task]
    assert driver.sized([dataclasses.replace(task, size=3)]) == []
    assert driver.sized([dataclasses.replace(task, settings=Settings(SMALL, n_basis=4))]) == []
    for name in ("toy", "robust_gp"):
        assert driver.sized([dataclasses.replace(task, experiment=name)]) == []


def test_pieces_hold_every_split_once():
    task = Task("cauchy", "cauchy", tuple(range(12)), ("mu",), Settings(BEST), "run")
    found = driver.pieces([task])
    assert sorted(split for one in found for split in one.splits) == list(range(12))
    assert max(len(one.splits) for one in found) == driver.PIECE


def test_a_worker_does_not_outlive_its_run():
    """Killed, a run cannot tell its workers: they see it themselves."""
    worker = (
        "import os, threading, time\nfrom reproduction.workers import end_with_parent\n"
        "threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()\n"
        "print('works', flush=True); time.sleep(600)"
    )
    run = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {worker!r}], stdout=sys.stdout)"
    )
    with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"works\n"
        parent.kill()
        parent.communicate(timeout=120)  # ends when the worker, too, has let go of the pipe


def test_a_killed_worker_is_told(monkeypatch):
    monkeypatch.setattr(at_work, "_work", _die)
    task = Task("toy", "mixture", (0,), ("laplace",), Settings(BEST), "run")
    with at_work.Processes(2) as found, pytest.raises(mixvi.InputError, match="was killed"):
        found.run([(fitting.run_task, task, set())] * 2, lambda *_: None)


def _die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
