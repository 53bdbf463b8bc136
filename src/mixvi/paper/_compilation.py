"""How much of the time went into compiling, as JAX itself reports it."""

import threading
from typing import NamedTuple

import jax

BACKEND = "/jax/core/compile/backend_compile_duration"
PARTS = (
    BACKEND,
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)


class Compiled(NamedTuple):
    n: int
    seconds: float

    def since(self, before: "Compiled") -> "Compiled":
        return Compiled(self.n - before.n, self.seconds - before.seconds)


class _Counter(threading.local):
    """Each thread counts what it compiles itself."""

    def __init__(self):
        self.n, self.seconds = 0, 0.0


_counter = _Counter()
_listening = False


def _listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    del kwargs
    if event in PARTS:
        _counter.n += event == BACKEND
        _counter.seconds += duration_secs


def compiled() -> Compiled:
    """So far, in this thread."""
    global _listening
    if not _listening:
        jax.monitoring.register_event_duration_secs_listener(_listen)
        _listening = True
    return Compiled(_counter.n, _counter.seconds)
