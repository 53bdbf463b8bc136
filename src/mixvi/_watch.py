"""Who watches a fit: a line on a terminal, a callback, and Ctrl-C, which wants what there is.

Searches tell where they are; where nobody watches, nothing happens. A watch is one fit's own, in a
context variable: fits in other threads have others, or none.
"""

import collections
import contextlib
import contextvars
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

COMPILING, MODE, FAMILY, DRAWS, VERDICT = "compiling", "mode", "family", "draws", "verdict"
# Hyperparameters on their way to being integrated.
HYPER = "hyper"
# Data in pieces, looked at for the first time.
READING = "reading"


@dataclasses.dataclass(frozen=True)
class Step:
    """Where a fit is: what `callback=` is called with.

    `stage`: "mode", "family" (its search over the first draws), "draws" (the search over more of
    them), "verdict", or "hyper" (hyperparameters being integrated). `passes`: over draws or nodes
    so far; in the stage "mode" Newton's steps. `bound`: the ELBO reached or, while hyperparameters
    are sought by it, Laplace's evidence. `gain_left`: nats still to be had, as the
    last pass foresees. `seconds`: since the fit began.

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> steps = []
    >>> post = mixvi.fit(lambda w: 3 * w - jnp.exp(w), 0.0, callback=steps.append)
    >>> steps[0].stage, steps[-1].stage, steps[-1].bound is not None
    ('mode', 'verdict', True)
    """

    stage: str
    passes: int
    bound: float | None
    gain_left: float | None
    seconds: float


class Watch:
    """Of one fit. `finished`: what it has come to, with all starts; `case` and `reached`: what it
    is at, and the best Gaussian of that so far. They are kept for an interruption alone."""

    def __init__(self, callback: Callable[[Step], Any] | None = None, keeps: bool = False):
        self.callback, self.keeps, self.began = callback, keeps, time.perf_counter()
        self.counts: collections.Counter[str] = collections.Counter()  # soon those of the density
        self.stage, self.n_newton = COMPILING, 0
        self.bound: float | None = None
        self.gain_left: float | None = None
        self.case: Any = None
        self.finished: list[tuple[Any, Any]] = []
        self.reached: Any = None
        self._rank = (0, -math.inf)

    @property
    def step(self) -> Step:
        passes = self.n_newton if self.stage == MODE else self.counts["passes"]
        seconds = time.perf_counter() - self.began
        return Step(self.stage, passes, self.bound, self.gain_left, seconds)

    def told(self) -> None:
        if self.callback is not None:
            self.callback(self.step)

    def at(self, case: Any) -> None:
        self.case, self.reached, self._rank = case, None, (0, -math.inf)

    def has_reached(self, n_points: int, bound: float, state: Callable[[], Any]) -> None:
        """A bound over few draws is no better than one over more."""
        if self.keeps and math.isfinite(bound) and (n_points, bound) > self._rank:
            self.reached, self._rank = state(), (n_points, bound)


_watch: contextvars.ContextVar[Watch | None] = contextvars.ContextVar("mixvi_watch", default=None)


@contextlib.contextmanager
def watched_by(watch: Watch | None) -> Iterator[None]:
    before = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(before)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """What is being done from here on; an exception leaves it as it is, which tells where."""
    watch = _watch.get()
    if watch is None:
        yield
        return
    before, watch.stage = watch.stage, name
    if name == MODE:
        watch.bound = watch.gain_left = None
    # What a callback raises must not pass for an error of the function that is compiled.
    if name not in (COMPILING, READING):
        watch.told()
    yield
    watch.stage = before


def tell_newton() -> None:
    """A step on the way to a mode."""
    if (watch := _watch.get()) is not None:
        watch.n_newton += 1
        watch.told()


def tell(
    bound: float, gain_left: float, n_points: int = 0, state: Callable[[], Any] | None = None
) -> None:
    """A pass over so many points, the bound that is reached, and all of that."""
    if (watch := _watch.get()) is not None:
        watch.bound, watch.gain_left = bound, gain_left
        if state is not None:
            watch.has_reached(n_points, bound, state)
        watch.told()


def keep(case: Any, fitted: Any = None) -> None:
    """A case that is begun, or what has come of it."""
    if (watch := _watch.get()) is not None and watch.keeps:
        if fitted is None:
            watch.at(case)
        else:
            watch.finished.append((case, fitted))
