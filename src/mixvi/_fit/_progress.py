"""Lines for people who wait."""

import sys
import threading
import time
from types import TracebackType

from .._watch import MODE, Step, Watch

# Seconds before a fit says what it is doing, and between two lines.
PATIENCE, EVERY = 3.0, 0.2


def is_shown(show: bool | None) -> bool:
    """By default to people alone, and of what runs in threads nothing: one line is for one fit."""
    if show is not None:
        return show
    alone = threading.current_thread() is threading.main_thread()
    return alone and sys.stderr is not None and sys.stderr.isatty()


class Progress:
    """A line that says how far and how long still, after the first second."""

    def __init__(self, total: int, show: bool | None):
        self.total, self.done, self.began = total, 0, time.monotonic()
        self.show = is_shown(show)
        self.written = False

    def __enter__(self) -> "Progress":
        return self

    def __call__(self, more: int) -> None:
        self.done += more
        spent = time.monotonic() - self.began
        if self.show and spent > 1:
            left = spent * (self.total - self.done) / self.done
            text = f"\rfit_many: {self.done}/{self.total} problems, {left:.0f} s left   "
            print(text, end="", file=sys.stderr, flush=True)
            self.written = True

    def __exit__(self, *_: object) -> None:
        if self.written:
            print(file=sys.stderr)


class Line:
    """What a fit is doing: one line that is rewritten, and gone at the end. A thread of its own
    writes it, since a fit that compiles, or waits for a slow function, says nothing."""

    def __init__(self, name: str, watch: Watch):
        self.name, self.watch, self.width = name, watch, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._write, name="mixvi-line", daemon=True)

    def __enter__(self) -> "Line":
        self.thread.start()
        return self

    def _write(self) -> None:
        wait = PATIENCE
        while not self.ended.wait(wait):
            text, wait = worded(self.name, self.watch.step), EVERY
            self.width = max(self.width, len(text))
            self._put(f"\r{text:<{self.width}}")

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        self.ended.set()
        self.thread.join()
        if self.width:
            self._put(f"\r{' ' * self.width}\r")

    @staticmethod
    def _put(text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


def worded(name: str, step: Step) -> str:
    """`fit: family, pass 12, bound -123.4567, 0.03 nat to gain, 7 s`."""
    said = [f"{name}: {step.stage}"]
    if step.passes:
        said += [f"{'step' if step.stage == MODE else 'pass'} {step.passes}"]
    if step.bound is not None:
        said += [f"bound {step.bound:.4f}"]
    if step.gain_left is not None:
        said += [f"{step.gain_left:.1g} nat to gain"]
    return ", ".join([*said, f"{step.seconds:.0f} s"])
