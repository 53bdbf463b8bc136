"""`kill -9` while `mixvi fit` writes: what stood there stands there still, and is whole."""

import pickle
import signal
import subprocess
import sys

import pytest

import mixvi_cli
from mixvi import cli, tables
from mixvi.tables import _report

# `mixvi fit` with a fit and a page made before. Killed when the file `name` is half written, or at
# the moment at which it would be moved into place.
RUN = """
import builtins, io, os, pickle, signal, sys

name, point = sys.argv[1:]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Half(io.FileIO):
    def write(self, content):
        super().write(memoryview(content)[: len(content) // 2])
        die()


def opened(file, mode="r", *args, plain=builtins.open, **kwargs):
    if point == "half" and name in str(file) and mode == "wb":
        return io.BufferedWriter(Half(file, "w"))
    return plain(file, mode, *args, **kwargs)


def heard(event, args):
    if point == "moving" and event == "os.rename" and os.path.basename(args[1]) == name:
        die()


sys.addaudithook(heard)
builtins.open = io.open = opened

import mixvi_cli
from mixvi import cli
from mixvi.tables import _report

with open("made.pickle", "rb") as file:
    fitted, page = pickle.load(file)
cli.fit_table, _report.report = lambda *_: fitted, lambda *_: page
mixvi_cli.main(["fit", "did.csv", "-t", "did"])
"""
EARLIER = b"a whole file of an earlier run"
PAGE = "".join(f"<p>{i}</p>\n" for i in range(200))  # shorter than a buffer, the model is longer
MODEL, REPORT = "did.mvi", "did-report.html"


@pytest.mark.parametrize("point", ["half", "moving"])
@pytest.mark.parametrize("name", [MODEL, REPORT])
def test_a_killed_run_leaves_the_whole_file_of_an_earlier_one(
    fitted, tmp_path, monkeypatch, name, point
):
    made = fitted["did"]
    whole = {
        MODEL: tables.save(made.model, tmp_path / MODEL).read_bytes(),
        REPORT: PAGE.encode(),
    }
    (tmp_path / "made.pickle").write_bytes(pickle.dumps((made, PAGE)))
    for each in whole:
        (tmp_path / each).write_bytes(EARLIER)
    before = {path.name for path in tmp_path.iterdir()}

    done = subprocess.run([sys.executable, "-c", RUN, name, point], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    expected = {MODEL: whole[MODEL] if name == REPORT else EARLIER, REPORT: EARLIER}
    assert {each: (tmp_path / each).read_bytes() for each in whole} == expected
    # It was really killed at the point: what is aside is half or, before it is moved, whole.
    (aside,) = {path.name for path in tmp_path.iterdir()} - before
    n = len(whole[name])
    content = (tmp_path / aside).read_bytes()
    assert content == whole[name][: n // 2 if point == "half" else n]

    # And is in nobody's way: the next run leaves whole files and nothing aside.
    monkeypatch.setattr(cli, "fit_table", lambda *_: made)
    monkeypatch.setattr(_report, "report", lambda *_: PAGE)
    assert mixvi_cli.main(["fit", "did.csv", "-t", "did"]) == 0
    assert {each: (tmp_path / each).read_bytes() for each in whole} == whole
    assert {path.name for path in tmp_path.iterdir()} == before
