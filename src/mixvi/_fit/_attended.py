"""Whether anybody attends to a fit: a person at a terminal, a callback, a hand on Ctrl-C."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from .._errors import InputError
from .._watch import Step, Watch, watched_by
from ._options import one_of
from ._progress import Line, is_shown

ON_INTERRUPT = ("raise", "return")


@dataclasses.dataclass(frozen=True)
class Attended:
    """`name`: of what was called; the rest as the user gave it."""

    name: str
    progress: bool | None
    callback: Callable[[Step], Any] | None
    on_interrupt: str

    def __post_init__(self):
        one_of("on_interrupt", self.on_interrupt, ON_INTERRUPT)
        if self.callback is not None and not callable(self.callback):
            kind = type(self.callback).__name__
            raise InputError(f"callback must be a function of one mixvi.Step, not {kind}.")

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watch | None]:
        """The watch of one fit, or None where nobody looks."""
        shows, keeps = is_shown(self.progress), self.on_interrupt == "return"
        looked_at = shows or keeps or self.callback is not None
        watch = Watch(self.callback, keeps) if looked_at else None
        line = contextlib.nullcontext()
        if watch is not None and shows:
            line = Line(self.name, watch)
        with watched_by(watch), line:
            yield watch
