"""A piece of work and its record: which rows are wanted, and what they took."""

import dataclasses
import time
from collections.abc import Callable, Iterable

import jax

from .._errors import MixviError
from ._compilation import compiled
from ._protocol import Settings
from ._results import Key, Record

Emit = Callable[[str, list[Record]], None]


@dataclasses.dataclass(frozen=True)
class Task:
    """Some splits of one set, with some methods."""

    experiment: str
    set: str
    splits: tuple[int, ...]
    methods: tuple[str, ...]
    settings: Settings
    run: str
    trend: bool = True
    size: int | None = None  # basis functions, where an earlier session has chosen them

    def key(self, split: int, method: str) -> Key:
        return *self.name, split, method

    @property
    def name(self) -> tuple[str, str, str]:
        return self.settings.protocol.name, self.experiment, self.set

    def row_keys(self) -> list[Key]:
        return [self.key(split, method) for split in self.splits for method in self.methods]

    def row(self, split: int, method: str) -> Record:
        """Its name, and that nothing has failed yet."""
        names = ("protocol", "experiment", "set", "split", "method")
        return dict(zip(names, self.key(split, method), strict=True)) | {
            "run": self.run,
            "failed": None,
        }

    def failed(self, split: int, method: str, reason: str) -> Record:
        return self.row(split, method) | {"failed": reason}


class Clock:
    """Seconds of each part of a job, as its thread sees them; compiling counts apart."""

    def __init__(self):
        self.seconds = {"prepare": 0.0, "screen": 0.0, "compile": 0.0, "fit": 0.0, "evaluate": 0.0}
        self.n_compiled = 0
        self._last, self._compiled = time.perf_counter(), compiled()

    def lap(self, part: str) -> None:
        """What has passed since the last lap went into this part."""
        now, so_far = time.perf_counter(), compiled()
        elapsed, new = now - self._last, so_far.since(self._compiled)
        self._last, self._compiled = now, so_far
        of_compiling = min(new.seconds, elapsed)
        self.n_compiled += new.n
        self.seconds["compile"] += of_compiling
        self.seconds[part] += elapsed - of_compiling

    def add(self, other: "Clock") -> "Clock":
        self.seconds = {part: self.seconds[part] + other.seconds[part] for part in self.seconds}
        self.n_compiled += other.n_compiled
        return self


def reason(err: Exception) -> str:
    """What a failed row says. A mistake of ours must not stop a run of hours either."""
    return str(err) if isinstance(err, MixviError) else f"{type(err).__name__}: {err}"


def job(task: Task, method: str, indices: Iterable[int], clock: Clock) -> Record:
    """What some splits of a method took."""
    some = list(indices)
    return {
        "run": task.run,
        "protocol": task.settings.protocol.name,
        "experiment": task.experiment,
        "set": task.set,
        "method": method,
        "splits": [some[0], some[-1] + 1],
        "n_splits": len(some),
        "seconds": {part: round(value, 4) for part, value in clock.seconds.items()},
        "n_compiled": clock.n_compiled,
        "backend": jax.default_backend(),
    }
