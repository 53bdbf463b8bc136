"""Threads of the linear algebra on the host."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

# Below this dimension matrices are small, and NumPy's threads only get into the way of XLA's: a
# pass and the algebra after it take turns, and idle threads of the one keep the other waiting.
MOST_ALONE = 500


@contextlib.contextmanager
def one_blas_thread(dim: int) -> Iterator[None]:
    if dim >= MOST_ALONE:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
