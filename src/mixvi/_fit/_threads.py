"""Threads of the linear algebra on the host."""

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

# Below this dimension matrices are small, and NumPy's threads only get into the way of XLA's: a
# pass and the algebra after it take turns, and idle threads of the one keep the other waiting.
MOST_ALONE = 500
# Rows of a table from which on a second thread pays.
MANY_ROWS = 5000
# And dimensions, the same.
LARGE = 1500


class _Limit:
    """The limit is the process's: the first fit sets it and the last one to end lifts it. A fit
    that is interrupted while it enters leaves nothing behind."""

    def __init__(self):
        self.lock, self.fits, self.limiter = threading.Lock(), set[object](), None

    def enter(self, fit: object) -> None:
        with self.lock:
            if not self.fits:
                self.limiter = _controller().limit(limits=1, user_api="blas")
            self.fits.add(fit)

    def leave(self, fit: object) -> None:
        with self.lock:
            self.fits.discard(fit)
            if not self.fits and self.limiter is not None:
                self.limiter.restore_original_limits()
                self.limiter = None


_limit = _Limit()


@contextlib.contextmanager
def one_blas_thread(dim: int) -> Iterator[None]:
    if dim >= MOST_ALONE:
        yield
        return
    fit = object()
    try:
        _limit.enter(fit)
        yield
    finally:
        _limit.leave(fit)


def blas_for(rows: int, dim: int = 0) -> contextlib.AbstractContextManager[None]:
    """Of closed forms over a table, where XLA has no part: all threads where the products of
    matrices are large."""
    large = rows >= MANY_ROWS or dim >= LARGE
    return contextlib.nullcontext() if large else one_blas_thread(0)


def _controller() -> Any:
    """Of NumPy's BLAS and, once it is loaded, SciPy's."""
    return _controller_of_loaded("scipy.linalg" in sys.modules)


@functools.cache
def _controller_of_loaded(with_scipy: bool) -> Any:
    del with_scipy
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
