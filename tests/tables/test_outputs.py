"""Files, links, devices and pipes that are written to."""

import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest
from table_cases import ran

import mixvi
from mixvi import cli


def test_links_stay_and_what_they_lead_to_is_replaced(tmp_path, saved, capsys):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "out.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    assert ran(capsys, "predict", saved / "did.mvi", saved / "new.csv", "-o", link).code == 0
    assert link.is_symlink()
    assert real.read_text().startswith("predicted,")
    assert [one.name for one in real.parent.iterdir()] == ["out.csv"]


def device_of(path, minor: int):
    """A device of our own, since a mistake would be the end of the machine's."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        path.open("wb").close()
    except (OSError, AttributeError):
        pytest.skip("no right to make devices here")
    return path


def test_devices_stay(tmp_path, data, capsys):
    device = device_of(tmp_path / "nul", 3)
    args = ("fit", data / "did.csv", "-t", "did", "--basis", "linear", "-o", device)
    assert ran(capsys, *args, "--report", device).code == 0
    assert stat.S_ISCHR(device.stat().st_mode)
    assert mixvi.fit(lambda w: -0.5 * (w @ w), np.zeros(2)).save(device) == device
    assert stat.S_ISCHR(device.stat().st_mode)


def test_pipes_are_written_to(tmp_path, saved, capsys):
    pipe, said = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: said.append(pipe.read_text()), daemon=True)
    reader.start()
    assert ran(capsys, "predict", saved / "did.mvi", saved / "new.csv", "-o", pipe).code == 0
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(10)
    assert said[0].startswith("predicted,")


def test_a_place_that_cannot_be_written_to_is_told_before_the_fit(data, capsys, monkeypatch):
    def long(*args):
        raise AssertionError("fitted")

    monkeypatch.setattr(cli, "fit_table", long)
    monkeypatch.setattr(cli, "load", long)
    args = ("fit", data / "did.csv", "-t", "did")
    for option in ("-o", "--report"):
        result = ran(capsys, *args, option, "m" * 300)
        assert result.code == 1
        assert "cannot be written: File name too long" in result.err
    result = ran(capsys, "predict", "m.mvi", data / "new.csv", "-o", "m" * 300)
    assert "cannot be written: File name too long" in result.err


@pytest.mark.parametrize("how", [(), ("--json",), ("-o", "full")])
def test_a_disk_that_is_full(tmp_path, saved, how):
    device = device_of(tmp_path / "full", 7)
    args = [sys.executable, "-m", "mixvi", "predict", saved / "did.mvi", saved / "new.csv", *how]
    with open(device, "w") as full:
        done = subprocess.run(args, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "cannot be written: No space left on device." in done.stderr
    assert done.stderr.count("\n") == 1
