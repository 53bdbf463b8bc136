"""A piece of work and its record: which rows are wanted, and what they took."""

import dataclasses
import time
from collections.abc import Callable, Iterable

import jax

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

    def key(self, split: int, method: str) -> Key:
        return self.settings.protocol.name, self.experiment, self.set, split, method

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
    """Seconds of each part of a job; compiling counts apart."""

    def __init__(self):
        self.seconds = {"prepare": 0.0, "screen": 0.0, "compile": 0.0, "fit": 0.0, "evaluate": 0.0}
        self._last = time.perf_counter()

    def lap(self, part: str, of_compiling: float = 0.0) -> None:
        now = time.perf_counter()
        elapsed, self._last = now - self._last, now
        of_compiling = min(of_compiling, elapsed)
        self.seconds["compile"] += of_compiling
        self.seconds[part] += elapsed - of_compiling

    @staticmethod
    def total(clocks: "Iterable[Clock]") -> dict[str, float]:
        some = [clock.seconds for clock in clocks]
        return {part: sum(one[part] for one in some) for part in some[0]}


def job(
    task: Task, method: str, indices: Iterable[int], seconds: dict[str, float], n_compiled: int
) -> Record:
    some = list(indices)
    return {
        "run": task.run,
        "protocol": task.settings.protocol.name,
        "experiment": task.experiment,
        "set": task.set,
        "method": method,
        "splits": [some[0], some[-1] + 1],
        "seconds": {part: round(value, 4) for part, value in seconds.items()},
        "n_compiled": n_compiled,
        "backend": jax.default_backend(),
    }
