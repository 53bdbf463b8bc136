"""Threads of the linear algebra on the host."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

# Below this dimension matrices are small, and NumPy's threads only get into the way of XLA's: a
# pass and the algebra after it take turns, and idle threads of the one keep the other waiting.
MOST_ALONE = 500


class _Limit:
    """The limit is the process's: the first fit sets it and the last one to end lifts it."""

    def __init__(self):
        self.lock, self.n_fits, self.limiter = threading.Lock(), 0, None

    def enter(self) -> None:
        with self.lock:
            if self.n_fits == 0:
                self.limiter = _controller().limit(limits=1, user_api="blas")
            self.n_fits += 1

    def leave(self) -> None:
        with self.lock:
            self.n_fits -= 1
            if self.n_fits == 0 and self.limiter is not None:
                self.limiter.restore_original_limits()


_limit = _Limit()


@contextlib.contextmanager
def one_blas_thread(dim: int) -> Iterator[None]:
    if dim >= MOST_ALONE:
        yield
        return
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
