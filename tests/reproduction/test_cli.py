"""The command line as a stranger meets it."""

import pytest

from reproduction import data
from reproduction.cli import main
from reproduction.results import read


def test_a_run_and_its_report(tmp_path, capsys):
    out = str(tmp_path / "results")
    assert main(["toy", "--methods", "laplace", "mu", "--out", out]) == 0
    said = capsys.readouterr()
    assert "2 of 2 rows" in said.err
    assert f"python -m reproduction report --out {out}" in said.out
    rows = read(tmp_path / "results", "rows")
    assert [row["method"] for row in rows] == ["laplace", "mu"]
    assert rows[0]["kl"] > rows[1]["kl"] > 0
    (run,) = read(tmp_path / "results", "runs")
    assert run["command"].startswith("python -m reproduction toy")
    assert run["settings"]["protocol"]["name"] == "best"
    # Again: nothing is left to do, and the folder says so.
    assert main(["toy", "--methods", "laplace", "mu", "--out", out]) == 0
    assert "2 of 2 rows are there already" in capsys.readouterr().err
    assert read(tmp_path / "results", "rows") == rows
    assert main(["report", "--out", out]) == 0
    assert "report.html" in capsys.readouterr().out
    assert (tmp_path / "results" / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["binary", "--sets", "nile"], "unknown set nile"),
        (["toy", "--methods", "mcmc"], "unknown method mcmc"),
        (["cauchy", "--splits", "0"], "splits: '0'"),
        (["cauchy", "--splits", "3000000000"], "the most is 100"),
        (["toy", "--predict-draws", "10"], "multiple of 1000"),
        (["toy", "--jobs", "0"], "jobs must be"),
        (["toy", "--seed", "-1"], "seed must not"),
        (["binary", "--basis", "0"], "at least one basis function"),
        (["data", "path", "nile"], "no data set 'nile'"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_status_1(arguments, sentence, tmp_path, capsys):
    if arguments[0] != "data":
        arguments = [*arguments, "--out", str(tmp_path / "results")]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("reproduction: ")
    assert sentence in said
    assert not (tmp_path / "results").exists()


def test_a_set_that_is_not_here(tmp_path, capsys, monkeypatch):
    """Asked for by name it is an error that says how to get it; among all it is left out, and
    where nothing else is left that is an error too."""
    for variable in ("MIXVI_DATA", "MIXVI_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path))
    arguments = ["binary", "--out", str(tmp_path / "results")]
    assert main([*arguments, "--sets", "heart"]) == 1
    assert "reproduction data get heart" in capsys.readouterr().err
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "nothing to run" in said
    assert "heart" in said
    assert "reproduction data get all" in said
    assert read(tmp_path / "results", "rows") == []


def test_results_need_a_folder_and_one_set_of_settings(tmp_path, capsys):
    (tmp_path / "file").touch()
    toy = ["toy", "--methods", "laplace", "--out"]
    assert main([*toy, str(tmp_path / "file")]) == 1
    assert "is a file, and results need a folder" in capsys.readouterr().err
    assert main([*toy, str(tmp_path / "results")]) == 0
    assert main([*toy, str(tmp_path / "results"), "--seed", "1", "--draws", "64"]) == 1
    said = capsys.readouterr().err
    assert "--draws was the default, now 64; --seed was 0, now 1" in said


def test_a_run_in_which_everything_fails_exits_with_1(tmp_path, capsys, monkeypatch):
    def refuse(*_):
        raise ValueError("no such luck")

    monkeypatch.setattr("reproduction.fitting.split_of", refuse)
    out = ["--jobs", "1", "--out", str(tmp_path / "results")]
    assert main(["cauchy", "--splits", "2", "--methods", "laplace", *out]) == 1
    said = capsys.readouterr().err
    assert "2 of 2 rows failed" in said
    assert "--retry-failed" in said
    assert {row["failed"] for row in read(tmp_path / "results", "rows")} == {
        "no number of basis functions was chosen: ValueError: no such luck"
    }
    # With one number to take there is nothing to choose, and a split says so itself.
    out = ["--jobs", "1", "--out", str(tmp_path / "other"), "--basis", "5"]
    assert main(["cauchy", "--splits", "2", "--methods", "laplace", *out]) == 1
    failed = [row["failed"] for row in read(tmp_path / "other", "rows")]
    assert failed == ["ValueError: no such luck"] * 2


def test_getting_several_sets_goes_on_after_a_failure(tmp_path, capsys, monkeypatch):
    """What is here is not downloaded again; one that cannot be had stops no other."""
    asked = []

    def unreachable(record, force):
        asked.append(record.name)
        raise data.DataError(f"{record.name} could not be downloaded.")

    monkeypatch.setattr(data, "download", unreachable)
    for variable in ("MIXVI_DATA", "MIXVI_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path))
    assert main(["data", "get", "balance", "heart", "crabs"]) == 1
    said = capsys.readouterr()
    assert "balance: " in said.out
    assert asked == ["heart", "crabs"]
    assert "2 of 3 sets failed" in said.err


def test_a_damaged_file_that_hides_a_good_one_is_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "raetsch_heart.npz").write_bytes(b"not an archive")
    monkeypatch.setenv("MIXVI_DATA", str(tmp_path))
    monkeypatch.setattr(data, "get", lambda *_, **__: None)  # into the cache, all well
    assert main(["data", "get", "heart"]) == 1
    said = capsys.readouterr().err
    assert "raetsch_heart.npz is read before it and is damaged: remove that file" in said
    assert main(["data", "list"]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("heart")]
    assert line.endswith("(damaged)")


def test_a_row_that_failed_is_tried_again_on_request(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("no such luck")

    command = ["toy", "--methods", "laplace", "--jobs", "1", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr("reproduction.fitting.fit", refuse)
        assert main(command) == 1
    for arguments, status in ((command, 1), ([*command, "--retry-failed"], 0)):
        failed = [row["failed"] for row in read(tmp_path, "rows")]
        assert failed == ["ValueError: no such luck"]
        assert main(arguments) == status
    assert [row["failed"] for row in read(tmp_path, "rows")] == [None]


def test_a_folder_that_is_not_there_has_no_report(tmp_path, capsys):
    assert main(["report", "--out", str(tmp_path / "typo")]) == 1
    assert "there is no results folder" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_data_commands(capsys, monkeypatch):
    monkeypatch.delenv("MIXVI_DATA", raising=False)
    assert main(["data", "list"]) == 0
    assert "banana" in capsys.readouterr().out
    assert main(["data", "path", "balance"]) == 0
    assert "definition" in capsys.readouterr().out
