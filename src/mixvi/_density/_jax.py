"""A function written with `jax.numpy`: traced once, and compiled question by question on first use.

The trace is a jaxpr; every program is made of that, so the user's function is not run again. What
it has captured (constants of the jaxpr), data and hyperparameters are arguments of the programs:
new data of the same shape find them compiled.
"""

import collections
import concurrent.futures
import contextlib
import copy
import dataclasses
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Float

from .._errors import InputError, MixviError
from .._watch import COMPILING, stage
from ._captured import as_new
from ._data import cast_leaves
from ._memory import factorises, jaxpr_bytes, n_cores
from ._protocol import Density, EvidenceSlopes
from ._target import Target, precision_scope, traced_in, with_own_constants

# Reverse differentiation keeps what the function makes on its way, and as much again coming back.
BACKWARD = 3
# Points that one call takes: on a CPU so many that what they need stays in its cache, and enough
# to be worth a call; on an accelerator many.
MOST_AT_ONCE, CACHE, LEAST_AT_ONCE, ACCELERATED = 256, 2**24, 16, 4096
# Vectors that a Hessian is multiplied with at a time.
PRODUCTS = 16
# Usual numbers of points are cut evenly: gradients at the first draws, values at fresh ones.
USUAL_VALUES = 1000
MOST_TRACES = 64
# XLA's newer code generator for CPUs takes about half as long again to compile and gains nothing
# here. The option may go away: it is dropped where it is not known.
OPTIONS: dict[str, dict[str, Any]] = {"cpu": {"xla_cpu_use_fusion_emitters": False}}


def whole_on(operands: list) -> NamedSharding | None:
    """Where the user has laid data out over a mesh of devices: all of an array on each of them.
    What is not data is there, and so are answers, which every process can then read."""
    for one in operands:
        laid_out = getattr(one, "sharding", None)
        if isinstance(laid_out, NamedSharding) and laid_out.mesh.size > 1:
            return NamedSharding(laid_out.mesh, PartitionSpec())
    return None


class Trace:
    """One function at arguments of one shape, and the programs made of it so far."""

    def __init__(self, target: Target, dtype: np.dtype):
        operands, tree = jtu.tree_flatten((target.arrays, target.data, target.theta))

        def log_density(flat: Any, *leaves: Any) -> Any:
            arrays, data, theta = jtu.tree_unflatten(tree, leaves)
            return dataclasses.replace(target, arrays=arrays, data=data, theta=theta)(flat)

        self.dim, self.dtype = target.structure.size, dtype
        self.whole = whole_on(operands)
        point = jax.ShapeDtypeStruct((self.dim,), dtype)
        with stage(COMPILING):
            self.jaxpr, self.consts = traced_in(
                dtype, jax.make_jaxpr, log_density, (point, *operands), self._on_device
            )
        self.shapes = [self.shape(np.shape(one), one.dtype, one) for one in operands]
        self.backend = jax.default_backend()
        # On a CPU a batch of matrix factorisations may hang, and is no faster: one by one.
        self.one_by_one = self.backend == "cpu" and factorises(self.jaxpr)
        self.bytes = max(1, jaxpr_bytes(self.jaxpr))
        self._programs: dict[Any, Callable] = {}
        self._compiling: dict[Any, threading.Lock] = {}
        self._lock = threading.Lock()
        self.is_warm = False
        # Programs for many problems at once, by question.
        self.batched: dict[Any, Callable] = {}

    def _on_device(self, closed: Any) -> tuple[Any, list]:
        jaxpr, consts = with_own_constants(closed)
        return jaxpr, self.put(consts)

    def put(self, arrays: Any) -> Any:
        """On the device, or the mesh; what is laid out there stays as it is."""
        arrays = as_new(arrays)
        if self.whole is None:
            return jax.device_put(arrays)
        return jtu.tree_map(
            lambda one: one if _is_laid_out(one) else jax.device_put(one, self.whole), arrays
        )

    def shape(self, shape: tuple, dtype: Any, leaf: Any = None) -> jax.ShapeDtypeStruct:
        with precision_scope(self.dtype):  # as JAX will take it
            dtype = jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
        if self.whole is None:
            return jax.ShapeDtypeStruct(shape, dtype)
        laid_out = leaf.sharding if _is_laid_out(leaf) else self.whole
        return jax.ShapeDtypeStruct(shape, dtype, sharding=laid_out)

    def function(self, consts: list, operands: list) -> Callable:
        """The log density of one flat vector."""
        whole = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, consts))
        return lambda flat: whole(flat, *operands)[0]

    def program(self, name: Any, make: Callable, *shapes: Any) -> Callable:
        """`make(consts, operands, *arguments)`, compiled for arguments of these shapes; once. Who
        comes meanwhile waits, and compiles it where that was interrupted."""
        if (known := self._programs.get(name)) is not None:
            return known
        with self._lock:
            compiling = self._compiling.setdefault(name, threading.Lock())
        with stage(COMPILING), compiling, precision_scope(self.dtype):
            if name not in self._programs:
                self._programs[name] = self._compiled(make, shapes)
            return self._programs[name]

    def _compiled(self, make: Callable, shapes: tuple) -> Callable:
        consts = [self.shape(np.shape(one), one.dtype, one) for one in self.consts]
        shapes = tuple(self.shape(one.shape, one.dtype) for one in shapes)
        try:
            lowered = jax.jit(make, out_shardings=self.whole).lower(consts, self.shapes, *shapes)
        except (TypeError, ValueError, NotImplementedError) as err:
            if isinstance(err, MixviError):
                raise
            raise InputError(
                "JAX cannot differentiate log_density twice: write loops with jax.lax.scan instead "
                "of while_loop, and without callbacks; or give value and gradient with "
                f"mixvi.from_numpy. JAX says: {str(err).splitlines()[0]}"
            ) from err
        if (options := OPTIONS.get(self.backend)) is not None:
            try:
                return lowered.compile(compiler_options=options)
            except jax.errors.JaxRuntimeError as err:
                if "option" not in str(err).lower():
                    raise
                OPTIONS.pop(self.backend, None)
        return lowered.compile()


def _is_laid_out(leaf: Any) -> bool:
    return isinstance(getattr(leaf, "sharding", None), NamedSharding)


class JaxDensity(Density):
    """The density that `fit` makes of a JAX function; `memory` bounds the bytes of one call."""

    def __init__(self, target: Target, dtype: np.dtype, memory: int):
        self.dim, self.dtype = target.structure.size, dtype
        self.resolution = float(np.finfo(dtype).eps)
        self.memory, self.n_hyper = memory, len(target.theta)
        self.trace = traced(target, dtype)
        with precision_scope(dtype):
            operands = jtu.tree_leaves((target.arrays, target.data, target.theta))
            self.operands = self.trace.put(operands)
        self.values_at_once = self._at_once(USUAL_VALUES, self.trace.bytes)

    @property
    def chunk(self) -> int:
        """Points at a time. It depends on nothing but the problem: another number would round
        otherwise."""
        return self._at_once(max(256, 4 * self.dim), BACKWARD * self.trace.bytes)

    def _at_once(self, usual: int, one: int) -> int:
        most = max(ACCELERATED, usual)
        if self.trace.backend == "cpu":
            in_cache = CACHE // self.trace.bytes
            most = min(max(in_cache, LEAST_AT_ONCE), max(MOST_AT_ONCE, usual))
            most = math.ceil(usual / math.ceil(usual / most))
        return self._affordable(most, one)

    def _affordable(self, wanted: int, one: int) -> int:
        return max(1, min(wanted, self.memory // one))

    # --- the questions ------------------------------------------------------------------------

    def values(self, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        return self._in_chunks(self._values(), points, self.values_at_once)[0]

    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        return self.joint_gradients(points)[:2]

    def joint_gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"], Float[np.ndarray, " hyper"]]:
        if not self.n_hyper:
            values, gradients = self._in_chunks(self._gradients(), points, self.chunk)
            return values, gradients, np.zeros(0)
        program = self._joint_gradients()
        values, gradients, sums = self._in_chunks(program, points, self.chunk, tells_how_many=True)
        return values, gradients, sums.sum(0) / len(points)

    def curvature(
        self, point: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        value, gradient, hessian = self._called(self._curvature(), point)
        return float(value), gradient, 0.5 * (hessian + hessian.T)

    def product(
        self, point: Float[np.ndarray, " dim"], vector: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
        value, gradient, product = self._called(self._product(), point, vector)
        return float(value), gradient, product

    def products(
        self, point: Float[np.ndarray, " dim"], vectors: Float[np.ndarray, "n dim"]
    ) -> Float[np.ndarray, "n dim"]:
        size = self._affordable(PRODUCTS, 2 * BACKWARD * self.trace.bytes)
        program, parts = self._products(size), [np.zeros((0, self.dim))]
        for part, n in self._cut(vectors, size):
            parts.append(self._called(program, point, part)[0][:n])
        return np.concatenate(parts)[: len(vectors)]

    def at(self, theta: Float[np.ndarray, " hyper"]) -> "JaxDensity":
        other = copy.copy(self)
        with precision_scope(self.dtype):
            # Hyperparameters are the last of the arguments.
            bound = self.trace.put(theta.astype(self.dtype, copy=False))
        other.operands = [*self.operands[:-1], bound]
        return other

    def on(self, data: Any) -> "JaxDensity":
        """The same of other data of the same shapes."""
        other, leaves = copy.copy(self), jtu.tree_leaves(cast_leaves(data, self.dtype, "data"))
        with precision_scope(self.dtype):
            # Between captured arrays and hyperparameters.
            arrays, theta = self.operands[: -1 - len(leaves)], self.operands[-1]
            other.operands = [*arrays, *self.trace.put(leaves), theta]
        return other

    def evidence_slopes(
        self, mode: Float[np.ndarray, " dim"], root: Float[np.ndarray, "dim dim"]
    ) -> EvidenceSlopes:
        return EvidenceSlopes(*self._called(self._evidence_slopes(), mode, root.T))

    def prepare(self) -> None:
        """Compiles what a fit asks for after the mode, while the mode is searched."""

        def compile_all() -> None:
            # What goes wrong here goes wrong again where the answer is wanted.
            with contextlib.suppress(Exception):
                for program in self._wanted():
                    # A process that ends, interrupted perhaps, waits for one program at most.
                    if threading.main_thread().is_alive():
                        program()

        if not self.trace.is_warm:
            self.trace.is_warm = True
            threading.Thread(target=compile_all, name="mixvi-compile").start()

    def _wanted(self) -> list[Callable]:
        return [self._joint_gradients if self.n_hyper else self._gradients, self._values]

    # --- programs -----------------------------------------------------------------------------

    def _values(self) -> Callable:
        trace, n = self.trace, self.values_at_once

        def make(consts: list, operands: list, points: Any) -> Any:
            return [self._each(trace.function(consts, operands), points)]

        return trace.program(("values", n), make, self._shape(n, self.dim))

    def _gradients(self) -> Callable:
        trace, n = self.trace, self.chunk

        def make(consts: list, operands: list, points: Any) -> Any:
            return self._each(jax.value_and_grad(trace.function(consts, operands)), points)

        return trace.program(("gradients", n), make, self._shape(n, self.dim))

    def _joint_gradients(self) -> Callable:
        """Values, gradients, and the sum of the gradients in theta over the first points: one
        backward pass, in which what depends on theta alone is differentiated once."""
        trace, n = self.trace, self.chunk

        def make(consts: list, operands: list, points: Any, n_points: Any) -> Any:
            *others, theta = operands

            def log_density(point: Any, theta: Any) -> Any:
                return trace.function(consts, [*others, theta])(point)

            weights = (jnp.arange(n) < n_points).astype(points.dtype)
            if trace.one_by_one:
                both = jax.value_and_grad(log_density, (0, 1))
                values, (gradients, slopes) = lax.map(lambda point: both(point, theta), points)
                return values, gradients, (weights @ slopes)[None]
            over_points = jax.vmap(log_density, (0, None))
            values, pull_back = jax.vjp(over_points, points, theta)
            gradients, slope = pull_back(weights)
            return values, gradients, slope[None]

        shapes = self._shape(n, self.dim), jax.ShapeDtypeStruct((), np.int32)
        return trace.program(("joint gradients", n), make, *shapes)

    def _curvature(self) -> Callable:
        trace, dim = self.trace, self.dim
        at_once = self._affordable(dim, 2 * BACKWARD * trace.bytes)

        def make(consts: list, operands: list, point: Any) -> Any:
            both = jax.value_and_grad(trace.function(consts, operands))
            (value, gradient), along = jax.linearize(both, point)
            units = jnp.eye(dim, dtype=point.dtype)
            return value, gradient, self._each(lambda v: along(v)[1], units, at_once)

        return trace.program(("curvature", at_once), make, self._shape(dim))

    def _product(self) -> Callable:
        trace, dim = self.trace, self.dim

        def make(consts: list, operands: list, point: Any, vector: Any) -> Any:
            both = jax.value_and_grad(trace.function(consts, operands))
            (value, gradient), (_, product) = jax.jvp(both, (point,), (vector,))
            return value, gradient, product

        return trace.program("product", make, self._shape(dim), self._shape(dim))

    def _products(self, n: int) -> Callable:
        trace, dim = self.trace, self.dim

        def make(consts: list, operands: list, point: Any, vectors: Any) -> Any:
            slope = jax.grad(trace.function(consts, operands))
            return [self._each(jax.linearize(slope, point)[1], vectors)]

        return trace.program(("products", n), make, self._shape(dim), self._shape(n, dim))

    def _evidence_slopes(self) -> Callable:
        trace, dim = self.trace, self.dim
        at_once = self._affordable(dim, 4 * BACKWARD * trace.bytes)
        n_chunks = math.ceil(dim / at_once)
        at_once = math.ceil(dim / n_chunks)

        def make(consts: list, operands: list, mode: Any, columns: Any) -> Any:
            *others, theta = operands

            def log_density(w: Any, theta: Any) -> Any:
                return trace.function(consts, [*others, theta])(w)

            def second(w: Any, theta: Any, r: Any) -> Any:
                """`d2l[r, r]`."""

                def slope(u: Any) -> Any:
                    return jax.jvp(lambda v: log_density(v, theta), (u,), (r,))[1]

                return jax.jvp(slope, (w,), (r,))[1]

            def half_sum(w: Any, theta: Any, some: Any) -> Any:
                return 0.5 * self._each(lambda r: second(w, theta, r), some).sum()

            def add(total: Any, some: Any) -> Any:
                slopes = jax.grad(half_sum, (0, 1))(mode, theta, some)
                return jax.tree.map(jnp.add, total, slopes), None

            # A column of zeros adds nothing.
            filled = jnp.zeros((n_chunks * at_once, dim), mode.dtype).at[:dim].set(columns)
            zero = (jnp.zeros_like(mode), jnp.zeros_like(theta))
            sums, _ = lax.scan(add, zero, filled.reshape(n_chunks, at_once, dim))
            direct = jax.grad(log_density, 1)(mode, theta)
            mixed = jax.jacfwd(lambda theta: jax.grad(log_density)(mode, theta))(theta)
            return direct, mixed, *sums

        shapes = self._shape(dim), self._shape(dim, dim)
        return trace.program(("evidence_slopes", at_once), make, *shapes)

    def _shape(self, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, self.dtype)

    def _each(self, function: Callable, rows: Any, at_once: int | None = None) -> Any:
        if self.trace.one_by_one:
            return lax.map(function, rows)
        if at_once is None or at_once >= len(rows):
            return jax.vmap(function)(rows)
        return lax.map(function, rows, batch_size=at_once)

    # --- calls --------------------------------------------------------------------------------

    def _called(self, program: Callable, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
        with precision_scope(self.dtype):
            cast = [one.astype(self.dtype, copy=False) for one in arguments]
            answers = program(self.trace.consts, self.operands, *cast)
            return tuple(np.asarray(one, dtype=np.float64) for one in answers)

    def _in_chunks(
        self,
        program: Callable,
        points: Float[np.ndarray, "n dim"],
        size: int,
        tells_how_many: bool = False,
    ) -> tuple[np.ndarray, ...]:
        """`tells_how_many`: the program is told how many points of a piece are not filling."""
        pieces = list(self._cut(points.astype(self.dtype, copy=False), size))
        asks = pieces if tells_how_many else [piece[:1] for piece in pieces]

        def asked(ask: tuple) -> Any:
            with precision_scope(self.dtype):
                return program(self.trace.consts, self.operands, *ask)

        def fetched(answer: Any) -> list[np.ndarray]:
            return [np.asarray(one, dtype=np.float64) for one in answer]

        if self.trace.one_by_one and len(asks) > 1 and self.trace.whole is None:
            # A program that goes point by point keeps one core busy. Over a mesh the devices must
            # all come to the same program at the same time.
            parts = list(_threads().map(lambda ask: fetched(asked(ask)), asks))
        elif self.trace.whole is not None:
            # One after the other: sums over devices of several calls at once can wait for each
            # other for ever, where there are fewer threads than devices.
            parts = [fetched(asked(ask)) for ask in asks]
        else:
            parts = [fetched(answer) for answer in [asked(ask) for ask in asks]]
        if len(parts) == 1:
            return tuple(one[: len(points)] for one in parts[0])
        return tuple(np.concatenate(each)[: len(points)] for each in zip(*parts, strict=True))

    def _cut(self, points: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.int32]]:
        """Pieces of one size, and how many points each has; the last one is filled up with its
        first point."""
        for first in range(0, max(1, len(points)), size):
            part = points[first : first + size]
            n = np.int32(len(part))
            if n < size:
                filler = part[:1] if n else np.zeros((1, self.dim), self.dtype)
                part = np.concatenate([part, np.repeat(filler, size - n, axis=0)])
            yield part, n


@functools.cache
def _threads() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(n_cores(), "mixvi-points")


if hasattr(os, "register_at_fork"):
    # Threads do not live on in a child.
    os.register_at_fork(after_in_child=_threads.cache_clear)


# --- traces are kept --------------------------------------------------------------------------

_traces: collections.OrderedDict[Any, Trace] = collections.OrderedDict()
_traces_lock = threading.Lock()


def traced(target: Target, dtype: np.dtype) -> Trace:
    """The trace of this function at these shapes, made on first use; the last ones are kept."""
    leaves, tree = jtu.tree_flatten((target.arrays, target.data, target.theta))
    laid_out = [leaf.sharding if _is_laid_out(leaf) else None for leaf in leaves]
    shapes = tuple((np.shape(leaf), np.dtype(leaf.dtype)) for leaf in leaves)
    static = (target.function, target.has_data, target.structure, target.hyper_structure)
    device = getattr(jax.config, "jax_default_device", None) or jax.default_backend()
    key = (*static, target.constraints, tree, shapes, *laid_out, dtype, str(device))
    try:
        with _traces_lock:
            if key in _traces:
                _traces.move_to_end(key)
                return _traces[key]
    except (TypeError, ValueError):  # what cannot be hashed or compared is traced anew every time
        return Trace(target, dtype)
    made = Trace(target, dtype)
    with _traces_lock:
        _traces[key] = made
        while len(_traces) > MOST_TRACES:
            _traces.popitem(last=False)
    return made


def forget() -> None:
    """Lets go of all traces and programs."""
    with _traces_lock:
        _traces.clear()
