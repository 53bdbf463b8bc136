"""Compiled work, asked for by flows: for one problem at a time, or for many together.

A flow takes one problem from its start to a Posterior. It is a coroutine, and what it awaits is the
work of compiled cores. `alone` does each piece where it is asked for. `together` runs the flows of
many problems side by side and does in one call what several of them ask for, so that one problem
and a batch of them take the same way, whatever branches each of them needs.
"""

import dataclasses
import functools
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Int, PyTree

from .._target import Target

MOST_COMPILED = 120
CORES: list["Core"] = []

T = TypeVar("T")
Flow = Coroutine["Ask", Any, T]


class Core(Generic[T]):
    """`function(target, *own, **shared)`, compiled: `own` is a problem's, `shared` is the same for
    all (draws, tolerances); those named `static` are compiled in."""

    def __init__(self, function: Callable[..., T], *static: str):
        self.one: Any = jax.jit(function, static_argnames=static)
        self.many: Any = jax.jit(
            functools.partial(_many, function), static_argnames=(*static, "how")
        )
        CORES.append(self)

    def __call__(self, target: Target, *own: Any, **shared: Any) -> "Ask[T]":
        return Ask(self, target, own, shared)


@dataclasses.dataclass(frozen=True)
class Ask(Generic[T]):
    """A piece of work to be awaited; `alone` where a batch is not worth compiling."""

    core: Core[T]
    target: Target
    own: tuple
    shared: dict[str, Any]
    alone: bool = False

    def __await__(self) -> Generator["Ask[T]", T, T]:
        return (yield self)

    def done(self) -> T:
        return self.core.one(self.target, *self.own, **self.shared)

    @functools.cached_property
    def kind(self) -> tuple:
        """Equal for pieces of work that one call can do."""
        leaves, tree = jtu.tree_flatten((self.target.theta, self.own))
        shapes = tuple((leaf.shape, leaf.dtype.name) for leaf in leaves)
        return (self.core, tree, shapes, *((name, _same(v)) for name, v in self.shared.items()))


def _same(value: PyTree) -> tuple:
    leaves, tree = jtu.tree_flatten(value)
    arrays = (np.ndarray, jax.Array)
    return tree, tuple(id(leaf) if isinstance(leaf, arrays) else leaf for leaf in leaves)


def alone(flow: Flow[T]) -> T:
    answer = None
    while True:
        try:
            ask = flow.send(answer)
        except StopIteration as end:
            return end.value
        answer = ask.done()


def together(
    flows: Sequence[Flow[T]], target: Target, size: int, how: str, report: Callable[[int], None]
) -> list[T]:
    """`target` has the data of `size` problems; there may be fewer flows (of a filled-up block).
    `how`: "vmap", everything at once, for an accelerator; "map", one after the other in one
    compiled loop, which a CPU does faster and with less memory."""
    results: list[Any] = [None] * len(flows)
    pending: dict[int, Ask] = {}
    answered = [0] * len(flows)

    def go_on(i: int, answer: Any) -> None:
        try:
            pending[i] = flows[i].send(answer)
            answered[i] += 1
        except StopIteration as end:
            results[i] = end.value
            del pending[i]
            report(1)

    for i, flow in enumerate(flows):
        pending[i] = flow.send(None)
    while pending:
        # Whoever is furthest behind goes first: others wait for it, and are then asked together.
        last = min(pending, key=lambda i: (answered[i], i))
        kind = pending[last].kind
        group = [i for i in pending if pending[i].kind == kind]
        asks = [pending[i] for i in group]
        if asks[0].alone:
            answers = [ask.done() for ask in asks]
        else:
            answers = _done_together(asks, group, target, size, how)
        for i, answer in zip(group, answers, strict=True):
            go_on(i, answer)
    return results


def _done_together(
    asks: list[Ask], index: list[int], target: Target, size: int, how: str
) -> list[Any]:
    core, shared, live = asks[0].core, asks[0].shared, len(asks)
    # Always the same shape: what is missing repeats the first, which takes vmap no longer.
    missing = size - live
    theta, own = jtu.tree_map(
        lambda *leaves: np.stack([*leaves, *leaves[:1] * missing]),
        *((ask.target.theta, ask.own) for ask in asks),
    )
    where = np.array(index + index[:1] * missing)
    out = core.many(target.at(theta), own, where, np.int32(live), how=how, **shared)
    out = jax.device_get(out)
    return [jtu.tree_map(lambda leaf: leaf[k], out) for k in range(live)]  # noqa: B023


def _many(
    function: Callable,
    target: Target,
    own: tuple,
    where: Int[Array, " problems"],
    live: Int[Array, ""],
    how: str,
    **shared: Any,
) -> Any:
    """Of problems `where[k]`, k below `live`."""

    def one(i: Array, theta: Array, own: tuple) -> Any:
        data = jtu.tree_map(lambda leaf: leaf[i], target.data)
        return function(dataclasses.replace(target, data=data, theta=theta), *own, **shared)

    rows = (where, target.theta, own)
    if how == "vmap":
        return jax.vmap(one)(*rows)

    def row(k: Array) -> tuple:
        return jtu.tree_map(lambda leaf: leaf[k], rows)

    shapes = jax.eval_shape(lambda: one(*row(jnp.array(0))))
    nothing = jtu.tree_map(lambda leaf: jnp.zeros((len(where), *leaf.shape), leaf.dtype), shapes)

    def write(k: Array, out: Any) -> Any:
        return jtu.tree_map(lambda many, its: many.at[k].set(its), out, one(*row(k)))

    return lax.fori_loop(0, live, write, nothing)


def forget_if_many() -> None:
    """Every executable holds some 200 memory maps, of which a process has 65,530: one that fits
    problems of very many shapes would end in a crash of the compiler."""
    compiled = [one for core in CORES for one in (core.one, core.many)]
    if sum(getattr(one, "_cache_size", int)() for one in compiled) > MOST_COMPILED:
        for one in compiled:
            one.clear_cache()
