"""Many problems of one shape, asked together. Answers stay on the device.

The function is traced for one problem; `vmap` over the data of all of them makes the batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ._captured import as_new
from ._jax import BACKWARD, Trace, traced
from ._target import Target, precision_scope

Index = Int[np.ndarray, " asked"]
# Questions whose last argument is the same for all problems.
SHARED_DRAWS = ("values", "gradients")


class BatchDensity:
    """`target` holds the data of all problems on the first axis, `first` those of one. A question
    is put to the problems `asked`, an array of their numbers."""

    def __init__(self, target: Target, first: Target, dtype: np.dtype, memory: int):
        self.dim, self.dtype, self.memory = target.structure.size, dtype, memory
        self.resolution = float(np.finfo(dtype).eps)
        self.trace: Trace = traced(first, dtype)
        with precision_scope(dtype):
            self.shared = jax.device_put(as_new(jtu.tree_leaves(target.arrays)))
            self.own = jax.device_put(as_new(jtu.tree_leaves((target.data, target.theta))))

    def values(self, asked: Index, mean: Any, root: Any, z: Any) -> Float[Array, "asked n"]:
        """Log densities at `mean + root z` for the rows of `z`, which all problems share."""
        return self._called("values", _values, asked, mean, root, z)

    def values_at(self, asked: Index, points: Any) -> Float[Array, "asked n"]:
        """Log densities at points of each problem's own."""
        return self._called("values_at", _each_value, asked, points)

    def gradients(
        self, asked: Index, mean: Any, root: Any, z: Any
    ) -> tuple[Float[Array, "asked n"], Float[Array, "asked n dim"]]:
        return self._called("gradients", _gradients, asked, mean, root, z)

    def curvature(
        self, asked: Index, points: Any
    ) -> tuple[Float[Array, " asked"], Float[Array, "asked dim"], Float[Array, "asked dim dim"]]:
        return self._called("curvature", _curvature, asked, points)

    def _called(self, name: str, question: Callable, asked: Index, *arguments: Any) -> Any:
        with precision_scope(self.dtype):
            cast = [jnp.asarray(one, self.dtype) for one in arguments]
            at_once = max(1, self.memory // (2 * BACKWARD * self.trace.bytes * len(asked)))
            program = self._program(name, question, at_once)
            return program(self.trace.consts, self.shared, self.own, jnp.asarray(asked), *cast)

    def _program(self, name: str, question: Callable, at_once: int) -> Callable:
        trace, kept = self.trace, self.trace.batched
        key = (name, at_once)
        if key not in kept:

            def program(consts: list, shared: list, own: list, asked: Any, *arguments: Any) -> Any:
                def one(mine: list, *its: Any) -> Any:
                    return question(trace, trace.function(consts, [*shared, *mine]), at_once, *its)

                mine = [leaf[asked] for leaf in own]
                # Draws are the same for all problems; what comes before them is a problem's own.
                if trace.one_by_one:
                    n_own = len(arguments) - (name in SHARED_DRAWS)
                    rest = arguments[n_own:]
                    rows = (mine, arguments[:n_own])
                    return lax.map(lambda row: one(row[0], *row[1], *rest), rows)
                axes = (0, *(0 for _ in arguments))
                axes = (*axes[:-1], None) if name in SHARED_DRAWS else axes
                return jax.vmap(one, in_axes=axes)(mine, *arguments)

            kept[key] = jax.jit(program)
        return kept[key]


def _values(trace: Trace, log_density: Callable, at_once: int, mean: Any, root: Any, z: Any) -> Any:
    return _each(trace, log_density, mean + z @ root.T, at_once)


def _each_value(trace: Trace, log_density: Callable, at_once: int, points: Any) -> Any:
    return _each(trace, log_density, points, at_once)


def _gradients(
    trace: Trace, log_density: Callable, at_once: int, mean: Any, root: Any, z: Any
) -> Any:
    return _each(trace, jax.value_and_grad(log_density), mean + z @ root.T, at_once)


def _curvature(trace: Trace, log_density: Callable, at_once: int, point: Any) -> Any:
    (value, gradient), along = jax.linearize(jax.value_and_grad(log_density), point)
    units = jnp.eye(trace.dim, dtype=point.dtype)
    hessian = _each(trace, lambda v: along(v)[1], units, at_once)
    return value, gradient, 0.5 * (hessian + hessian.T)


def _each(trace: Trace, function: Callable, rows: Any, at_once: int) -> Any:
    if trace.one_by_one:
        return lax.map(function, rows)
    if at_once >= len(rows):
        return jax.vmap(function)(rows)
    return lax.map(function, rows, batch_size=at_once)
