"""What is asked of pieces of data: in threads on this machine, or wherever the pieces are."""

import collections
import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from ._memory import n_cores

T = TypeVar("T")
# Answers of so many pieces are made at the same time, at most, each in its share of the memory.
AT_ONCE = 16


@dataclasses.dataclass(frozen=True)
class Asked:
    """A question about every piece. `part`: the density of one; elsewhere it is made by `recipe`
    and taken `at` the hyperparameters `theta`, where there are any."""

    part: Any
    recipe: Callable[[], Any]
    theta: np.ndarray | None
    question: str
    arguments: tuple

    def of(self, piece: Any) -> tuple[Any, ...]:
        return answer_of(self.part, piece, self.question, self.arguments)


def answer_of(part: Any, piece: Any, question: str, arguments: tuple) -> tuple[Any, ...]:
    answer = getattr(part.on(piece), question)(*arguments)
    return tuple(answer) if isinstance(answer, tuple) else (answer,)


def in_threads(read: Generator[Any, None, None], answer: Callable[[Any], T]) -> Iterator[T]:
    """Answers in the order of the pieces. A few pieces are in memory at a time."""
    at_once = min(n_cores(), AT_ONCE)
    pending: collections.deque[concurrent.futures.Future] = collections.deque()
    try:
        for piece in read:
            if len(pending) > at_once:
                yield pending.popleft().result()
            pending.append(_threads().submit(answer, piece))
        while pending:
            yield pending.popleft().result()
    finally:
        for one in pending:
            one.cancel()
        read.close()


def summed(answers: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """In pairs, pairs of pairs and so on: rounding grows with the logarithm of their number, and
    the order is always the same."""
    partial: list[tuple[int, tuple[Any, ...]]] = []
    for answer in answers:
        size, total = 1, answer
        while partial and partial[-1][0] == size:
            _, before = partial.pop()
            size, total = 2 * size, _added(before, total)
        partial.append((size, total))
    total = partial.pop()[1]
    while partial:
        total = _added(partial.pop()[1], total)
    return total


def _added(some: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one + other for one, other in zip(some, others, strict=True))


@functools.cache
def _threads() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(min(n_cores(), AT_ONCE), "mixvi-pieces")


if hasattr(os, "register_at_fork"):
    # Threads do not live on in a child.
    os.register_at_fork(after_in_child=_threads.cache_clear)
