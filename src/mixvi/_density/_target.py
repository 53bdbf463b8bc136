"""A user's function becomes a flat log density with names; all input checks live here."""

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable
from inspect import isfunction
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from .._errors import InputError, NonFiniteError
from ._linear_predictor import LinearPredictor

# What an argument's numbers are called where they have no name of their own.
_ROOTS = {"init": "w", "hyper": "theta"}
UNBOUNDED = (
    'say which parameters are bounded, with constraints={"sigma": "positive"} for example, or '
    "write them on an unbounded scale (log of a scale, logit of a share)"
)
FLOAT_TYPES = {"float64": np.dtype(np.float64), "float32": np.dtype(np.float32)}


def precision_scope(dtype: np.dtype):
    """Float64 inside, whatever the user's JAX flag is, and that flag as it was outside."""
    return jax.enable_x64(dtype == np.float64)


@dataclasses.dataclass(frozen=True)
class Structure:
    """The shape of the user's parameters: how a flat vector becomes their pytree, and back."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    paths: tuple[str, ...]

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    @functools.cached_property
    def size(self) -> int:
        return sum(self.sizes)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """One name for every scalar: `beta[3]`, `layer.w[0,1]`, `tau`."""
        return tuple(
            path + ("[" + ",".join(map(str, index)) + "]" if shape else "")
            for path, shape in zip(self.paths, self.shapes, strict=True)
            for index in np.ndindex(*shape)
        )

    def unravel(self, flat: Shaped[Any, "*batch dim"]) -> PyTree:
        """Axes before the last one are kept, so that a stack of draws is unravelled at once."""
        ends = np.cumsum(self.sizes)
        leaves = [
            flat[..., end - size : end].reshape(flat.shape[:-1] + shape)
            for end, size, shape in zip(ends, self.sizes, self.shapes, strict=True)
        ]
        return jtu.tree_unflatten(self.treedef, leaves)

    def ravel(self, tree: PyTree, what: str, batch: int = 0) -> np.ndarray:
        """The flat vector of a pytree that must be of this structure (`batch` leading axes)."""
        leaves, treedef = jtu.tree_flatten(tree)
        if treedef != self.treedef:
            raise InputError(f"{what} has the structure {treedef}, expected {self.treedef}.")
        try:
            arrays = [np.asarray(leaf, dtype=np.float64) for leaf in leaves]
        except (TypeError, ValueError) as err:
            raise InputError(f"{what} holds something that is not numbers: {err}") from err
        for path, array, shape in zip(self.paths, arrays, self.shapes, strict=True):
            if array.shape[batch:] != shape or array.ndim < batch:
                raise InputError(
                    f"{what}: {path} has shape {array.shape}, expected {'(n,) + ' * batch}{shape}."
                )
        lead = arrays[0].shape[:batch]
        if any(array.shape[:batch] != lead for array in arrays):
            raise InputError(f"{what}: the leaves differ in their leading axis.")
        flat = [a.reshape((*lead, n)) for a, n in zip(arrays, self.sizes, strict=True)]
        return np.concatenate(flat, axis=-1)


@functools.partial(
    jtu.register_dataclass,
    data_fields=("arrays", "data", "theta"),
    meta_fields=("function", "has_data", "structure", "hyper_structure", "constraints"),
)
@dataclasses.dataclass(frozen=True)
class Target:
    """`log p~(w | theta)` on flat vectors: the user's function with hyperparameters and data bound.

    A pytree whose arrays are data and hyperparameters `theta` (a vector, empty where there are
    none), so that new ones of the same shape reuse compiled code; the function and the structures
    are static and compared by identity and equality.
    """

    arrays: PyTree
    data: PyTree
    theta: Any
    function: tuple[tuple, Any]
    has_data: bool
    structure: Structure
    hyper_structure: Structure | None
    # Where parameters are bounded, how the flat vector becomes them (`_constraints.Constraints`).
    constraints: Any = None

    @property
    def callable(self) -> Any:
        return joined(self.arrays, self.function)

    @property
    def n_predictors(self) -> int:
        """Expectations are integrals over so many dimensions; 0 where nothing is known of them."""
        if not isinstance(self.callable, LinearPredictor):
            return 0
        shape = self.structure.shapes[0]
        return shape[0] if len(shape) == 2 else 1

    def at(self, theta: Float[Any, "*batch hyper"]) -> "Target":
        return dataclasses.replace(self, theta=theta)

    @property
    def extra(self) -> tuple:
        """What the user's function gets after the parameters."""
        hyper = self.hyper_structure
        return (
            *((hyper.unravel(self.theta),) if hyper is not None else ()),
            *((self.data,) if self.has_data else ()),
        )

    def __call__(self, flat: Float[Array, " dim"]) -> Float[Array, ""]:
        bound = self.constraints
        w = self.structure.unravel(flat) if bound is None else bound.constrain(flat)
        arguments = (w, *self.extra)
        try:
            value = self.callable(*arguments)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as err:
            raise InputError(
                "log_density cannot be traced by JAX: write it with jax.numpy instead of numpy, "
                "and with jnp.where instead of `if` on parameters or data. JAX says: "
                + str(err).splitlines()[0]
            ) from err
        except (
            TypeError,
            ValueError,
            IndexError,
            KeyError,
            AttributeError,
            ZeroDivisionError,
        ) as err:
            if isinstance(err, InputError):
                raise
            reason = str(err).splitlines()[0] if str(err) else repr(err)
            raise InputError(
                f"log_density raised {type(err).__name__} when called with "
                f"{self._described(arguments)}: {reason}"
            ) from err
        value = self._checked(value, flat.dtype)
        return value if bound is None else value + bound.log_det(flat)

    def shown(self, flat: Float[np.ndarray, " dim"]) -> list[str]:
        """Names and values as the user knows them: `sigma=1.5`."""
        structure, values = self.structure, flat
        if (bound := self.constraints) is not None:
            structure = bound.user
            values = structure.ravel(bound.constrained(flat), "w")
        return [f"{n}={v:.4g}" for n, v in zip(structure.names, values, strict=True)]

    def _checked(self, value: Any, dtype: np.dtype) -> Float[Array, ""]:
        if value is None or (not hasattr(value, "shape") and not isinstance(value, numbers.Real)):
            raise InputError(
                f"log_density returned {type(value).__name__}; it must return one real number. "
                "Is a `return` missing?"
            )
        value = jnp.asarray(value)
        if value.shape != ():
            raise InputError(
                f"log_density returned an array of shape {value.shape}; it must return one number. "
                "Sum over observations, for example with .sum()."
            )
        if jnp.issubdtype(value.dtype, jnp.complexfloating):
            raise InputError("log_density returned a complex number; it must return a real one.")
        return value.astype(dtype)

    def _described(self, arguments: tuple) -> str:
        shapes = [jtu.tree_map(lambda leaf: tuple(jnp.shape(leaf)), tree) for tree in arguments]
        given = ("hyperparameters", self.hyper_structure is not None), ("data", self.has_data)
        what = ["parameters", *(name for name, there in given if there)]
        return " and ".join(
            f"{name} of shapes {tree}" for name, tree in zip(what, shapes, strict=True)
        )


# --- from the user's arguments to a Target ----------------------------------------------------


def prepare(
    log_density: Callable, init: PyTree, data: PyTree, dtype: np.dtype, hyper: PyTree = None
) -> tuple[Target, np.ndarray]:
    """The checked target and the flat start, both in `dtype`."""
    if not callable(log_density):
        raise InputError(
            f"log_density must be a function of the parameters, not {type(log_density).__name__}."
        )
    structure, start = flatten(init, dtype)
    hyper_structure, theta = (None, np.zeros(0, dtype))
    if hyper is not None:
        hyper_structure, theta = flatten(hyper, dtype, "hyper")
    with precision_scope(dtype):
        arrays, function = split(log_density)
        target = Target(
            arrays=cast_leaves(arrays, dtype, "log_density"),
            data=cast_leaves(data, dtype, "data"),
            theta=theta,
            function=function,
            has_data=data is not None,
            structure=structure,
            hyper_structure=hyper_structure,
        )
    return target, start


def joined(arrays: tuple, function: tuple[tuple, Any]) -> Any:
    """What `split` took apart."""
    leaves, treedef = function
    whole = [rest if array is None else array for array, rest in zip(arrays, leaves, strict=True)]
    return jtu.tree_unflatten(treedef, whole)


def split(function: Callable) -> tuple[tuple, tuple[tuple, Any]]:
    """Arrays apart from what is static. A plain function is one static leaf; a callable module or
    a `jax.tree_util.Partial` holds arrays, which stay dynamic."""
    if isfunction(function):
        leaves, treedef = [function], jtu.tree_structure(0)
    else:
        leaves, treedef = jtu.tree_flatten(function)
    arrays = tuple(leaf if _is_array(leaf) else None for leaf in leaves)
    static = tuple(
        None if _is_array(leaf) else _Captured.of(leaf) if isfunction(leaf) else leaf
        for leaf in leaves
    )
    return arrays, (static, treedef)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


class _Captured:
    """A function together with the objects that it captures: its closure and the globals it names.

    Compiled code has their values inside. A notebook cell that assigns `y` anew and fits again with
    the same function must not get the old `y`, so two are equal only if all captured objects are
    the same objects. (What is changed in place, or captured by functions that this one calls, is
    not seen: pass what changes through `data=`.)
    """

    def __init__(self, function: Callable, captured: tuple):
        self.function, self.captured = function, captured

    @classmethod
    def of(cls, function: Any) -> "_Captured":
        cells = tuple(_contents(cell) for cell in function.__closure__ or ())
        world = function.__globals__
        named = tuple(world[name] for name in _names_in(function.__code__) if name in world)
        defaults = (function.__defaults__ or (), *(function.__kwdefaults__ or {}).values())
        return cls(function, (*cells, *named, *defaults))

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __hash__(self) -> int:
        return hash((self.function, tuple(map(id, self.captured))))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Captured)
            and self.function == other.function
            and len(self.captured) == len(other.captured)
            and all(a is b for a, b in zip(self.captured, other.captured, strict=True))
        )


def _names_in(code: CodeType) -> list[str]:
    """Of globals and attributes, in the functions written inside as well."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    names = [*code.co_names, *(name for one in inner for name in _names_in(one))]
    return list(dict.fromkeys(names))


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def flatten(init: PyTree, dtype: np.dtype, what: str = "init") -> tuple[Structure, np.ndarray]:
    """The structure of `init` and its numbers in one vector; refuses what is not real numbers."""
    try:
        leaves, treedef = jtu.tree_flatten(init)
    except (TypeError, ValueError) as err:
        raise InputError(
            f"{what} is not a pytree that JAX can read (dict keys of one type?): {err}"
        ) from err
    if not leaves:
        raise InputError(
            f"{what} has no parameters ({init!r}): give an array or a pytree of arrays."
        )
    paths = _paths(treedef, _ROOTS[what])
    arrays = [_as_array(leaf, f"{what}: {path}") for leaf, path in zip(leaves, paths, strict=True)]
    for array, path in zip(arrays, paths, strict=True):
        if array.dtype.kind in "iub":
            raise InputError(
                f"{what}: {path} is of integer type {array.dtype}; parameters must be real "
                "numbers. Write 0.0 instead of 0, or pass what is not a parameter through data=."
            )
        if array.dtype.kind != "f":
            raise InputError(
                f"{what}: {path} has type {array.dtype}; parameters must be real numbers."
            )
    structure = _structure(treedef, tuple(array.shape for array in arrays), _ROOTS[what])
    if structure.size == 0:
        raise InputError(f"{what} has arrays but no numbers in them: every leaf is empty.")
    start = np.concatenate([array.reshape(-1) for array in arrays]).astype(dtype)
    if not np.isfinite(start).all():
        bad = np.flatnonzero(~np.isfinite(start))
        raise NonFiniteError(
            f"{what} is not finite at {listed([structure.names[i] for i in bad])} "
            f"({start[bad[0]]}): start from finite numbers."
        )
    return structure, start


@functools.lru_cache(maxsize=256)
def _paths(treedef: Any, root: str) -> tuple[str, ...]:
    tree = jtu.tree_unflatten(treedef, [0] * treedef.num_leaves)
    return tuple(_path_name(path, root) for path, _ in jtu.tree_flatten_with_path(tree)[0])


@functools.lru_cache(maxsize=256)
def _structure(treedef: Any, shapes: tuple, root: str) -> Structure:
    """One object for one structure, so that its names are made once."""
    return Structure(treedef, shapes, _paths(treedef, root))


def cast_leaves(tree: PyTree, dtype: np.dtype, what: str) -> PyTree:
    """Real leaves in `dtype`; integers and booleans as they are; nothing else is data."""
    leaves, treedef = jtu.tree_flatten(tree)
    return jtu.tree_unflatten(
        treedef, [_cast(leaf, dtype, treedef, i, what) for i, leaf in enumerate(leaves)]
    )


def _cast(leaf: Any, dtype: np.dtype, treedef: Any, index: int, what: str) -> Any:
    if isinstance(leaf, jax.Array):
        if leaf.dtype in (jnp.uint8, jnp.uint16):
            # Differences of unsigned counts would wrap around.
            return leaf.astype(jnp.int32)
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if floating and leaf.dtype != dtype else leaf
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fiub" or np.ma.isarray(leaf):
        leaf = _as_array(leaf, _path_name_of(treedef, index, what))
    if leaf.dtype.kind == "u":
        # Differences of unsigned counts would wrap around.
        leaf = leaf.astype(np.int64 if dtype == np.float64 else np.int32)
    return leaf.astype(dtype, copy=False) if leaf.dtype.kind == "f" else leaf


def _path_name_of(treedef: Any, index: int, root: str) -> str:
    tree = jtu.tree_unflatten(treedef, list(range(treedef.num_leaves)))
    return _path_name(jtu.tree_flatten_with_path(tree)[0][index][0], root, rooted=True)


def _as_array(leaf: Any, what: str) -> np.ndarray:
    if np.ma.isMaskedArray(leaf):
        raise InputError(f"{what} is a masked array: fill or drop its masked entries first.")
    try:
        array = np.asarray(leaf)
    except Exception as err:
        raise InputError(f"{what} cannot be read as an array: {err}") from err
    if array.dtype.kind not in "fiubc":
        raise InputError(
            f"{what} is {type(leaf).__name__} (array type {array.dtype}), not numbers: "
            "encode text as integers and dates as real numbers first."
        )
    return array


def explain_non_finite(
    target: Target, start: np.ndarray, value: float, gradient: np.ndarray
) -> str:
    """Why the log density cannot be used at the start: names data, then parameters."""
    for path, leaf in jtu.tree_flatten_with_path(target.data)[0]:
        array = np.asarray(leaf)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            count = int((~np.isfinite(array)).sum())
            name = _path_name(path, "data", rooted=True)
            return (
                f"the log density is {value} at the start because {name} has {count} non-finite "
                f"number{'s' * (count > 1)}, the first at {list(where)}: drop or fill those rows."
            )
    if not np.isfinite(value):
        shown = target.shown(start)
        if (hyper := target.hyper_structure) is not None:
            pairs = zip(hyper.names, np.asarray(target.theta), strict=True)
            shown = [*shown, *(f"{name}={number:.4g}" for name, number in pairs)]
        return (
            f"the log density is {value} at the start ({listed(shown, 4)}): start where it is "
            f"finite, and {UNBOUNDED}."
        )
    bad = [target.structure.names[i] for i in np.flatnonzero(~np.isfinite(gradient))]
    return (
        f"the gradient of the log density is not finite at the start, in {listed(bad)}: "
        "look there for sqrt, log or a division at zero, or move the start."
    )


# --- names ------------------------------------------------------------------------------------


def _path_name(path: tuple, root: str, rooted: bool = False) -> str:
    """`layer.w`, `beta`, `w[0]`: the way a person would write where the leaf stands."""
    text = root if rooted else ""
    for entry in path:
        if isinstance(entry, jtu.SequenceKey | jtu.FlattenedIndexKey):
            index = entry.idx if isinstance(entry, jtu.SequenceKey) else entry.key
            text = f"{text or root}[{index}]"
        else:
            part = str(
                entry.name if isinstance(entry, jtu.GetAttrKey) else getattr(entry, "key", entry)
            )
            text = f"{text}.{part}" if text else part
    return text or root


def listed(items: list[str], most: int = 5) -> str:
    """`a, b, c and 12 more`."""
    head = ", ".join(items[:most])
    return head if len(items) <= most else f"{head} and {len(items) - most} more"
