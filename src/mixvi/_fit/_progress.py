"""A line for people who wait."""

import sys
import time


class Progress:
    """A line that says how far and how long still, after the first second."""

    def __init__(self, total: int, show: bool | None):
        self.total, self.done, self.began = total, 0, time.monotonic()
        self.show = sys.stderr.isatty() if show is None else show
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
