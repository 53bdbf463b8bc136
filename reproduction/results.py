"""A results folder: JSON lines that are only ever appended to, by one process at a time.

A line is written at once and flushed to the disk; a line that a killed run left unfinished is cut
off by the next one. So at any moment a folder holds finished rows and nothing else.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mixvi import InputError

from .experiments import KEY, Key

Record = dict[str, Any]
# What other code relies on, looked up so that a record without it is refused where it stands.
NEEDED = {
    "rows": lambda record: (key(record), record["failed"]),
    "jobs": lambda record: [record[part] for part in ("protocol", "experiment", "set", "method")],
    "runs": lambda record: record["settings"]["protocol"]["name"],
}
# How the command line calls the settings.
OPTIONS = {"n_draws": "draws", "n_predict": "predict-draws", "seed": "seed", "n_basis": "basis"}


def key(row: Record) -> Key:
    """What a row is about. There is one row of each."""
    protocol, experiment, name, split, method = (row[part] for part in KEY)
    return protocol, experiment, name, int(split), method


def read(folder: Path, kind: str) -> list[Record]:
    """All finished records. A last line without its end belongs to a run that was killed."""
    path = folder / f"{kind}.jsonl"
    records = []
    *lines, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
            NEEDED[kind](records[-1])
        except (ValueError, KeyError, TypeError) as err:
            raise InputError(
                f"{path}, line {number}: not a record ({err!r}). The file was changed by something "
                "else; delete that line (its experiment runs again) or take another folder."
            ) from err
    return records


class Results:
    """The folder opened for writing. Raises if another process has it open."""

    def __init__(self, folder: Path):
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file, and results need a folder: name one with --out.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / ".lock").open("a+")
        except OSError as err:
            raise InputError(f"cannot write results to {folder}: {err}.") from err
        try:
            _lock_or_raise(self._lock)
        except OSError as err:
            self._lock.close()
            raise InputError(
                f"another run is writing to {folder}: wait for it, or name another folder with "
                "--out."
            ) from err
        for kind in NEEDED:
            _cut_unfinished(folder / f"{kind}.jsonl")
        self.done = {key(row) for row in read(folder, "rows")}

    def __enter__(self) -> "Results":
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.close()

    def append(self, kind: str, records: Iterable[Record]) -> None:
        """At once and for good. Rows that are there already are left as they are."""
        if kind == "rows":
            records = [row for row in records if key(row) not in self.done]
        text = "".join(json.dumps(_finite(record)) + "\n" for record in records)
        path = self.folder / f"{kind}.jsonl"
        length = path.stat().st_size if path.exists() else 0
        try:
            with path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as err:
            os.truncate(path, length)  # a full disk may have taken half of it
            raise InputError(
                f"cannot write to {path}: {err}. Earlier rows are safe; the same command goes on."
            ) from err
        if kind == "rows":
            self.done |= set(map(key, records))

    def check_settings(self, settings: Record) -> None:
        """One folder, one set of settings for each protocol: medians must not mix them."""
        wanted = json.loads(json.dumps(settings))
        protocol = wanted["protocol"]["name"]
        for old in (run["settings"] for run in read(self.folder, "runs")):
            if old["protocol"]["name"] != protocol or old == wanted:
                continue
            differs = [_difference(name, old.get(name), new) for name, new in wanted.items()]
            raise InputError(
                f"{self.folder} holds rows of protocol {protocol} made with other settings "
                f"({'; '.join(filter(None, differs))}): use the same ones, or another folder with "
                "--out."
            )

    def size(self, name: tuple[str, str, str]) -> int | None:
        """The number of basis functions that an earlier session chose for a set."""
        for job in read(self.folder, "jobs"):
            if (job["protocol"], job["experiment"], job["set"]) == name and job.get("size"):
                return job["size"]
        return None

    def n_failed(self, wanted: set[Key]) -> int:
        rows = read(self.folder, "rows")
        return sum(bool(row["failed"]) for row in rows if key(row) in wanted)

    def forget_failed(self, wanted: set[Key]) -> None:
        """Takes failed rows out, so that they are tried again."""
        path, rows = self.folder / "rows.jsonl", read(self.folder, "rows")
        kept = [row for row in rows if not (row["failed"] and key(row) in wanted)]
        if len(kept) < len(rows):
            new = path.with_suffix(".new")
            new.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
            os.replace(new, path)
        self.done = set(map(key, kept))


def _difference(name: str, old: Any, new: Any) -> str:
    if old == new:
        return ""
    if name == "protocol":
        return "the protocol is not the same: of `quick`, or of another version"
    was, now = ("the default" if value is None else value for value in (old, new))
    return f"--{OPTIONS.get(name, name)} was {was}, now {now}"


def _finite(record: Record) -> Record:
    """NaN and infinities are not JSON."""
    return json.loads(json.dumps(record), parse_constant=lambda _: None)


def _cut_unfinished(path: Path) -> None:
    if path.exists():
        with path.open("rb+") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def _lock_or_raise(file: Any) -> None:
    """Held until the file is closed or the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
