"""What compiled code holds inside: functions and constants, compared so that none is stale."""

import dataclasses
from collections.abc import Callable
from inspect import isfunction
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np


def as_new(tree: Any) -> Any:
    """Its NumPy arrays as objects that JAX has not seen, over the same memory. An array that a
    program has captured in float32, that of a sampler, say, is float32 to JAX wherever it turns up
    as long as that program lives, also as an argument of another one."""
    return jtu.tree_map(lambda one: one.view() if isinstance(one, np.ndarray) else one, tree)


def joined(arrays: tuple, function: tuple[tuple, Any]) -> Any:
    """What `split` took apart."""
    leaves, treedef = function
    whole = [rest if array is None else array for array, rest in zip(arrays, leaves, strict=True)]
    return jtu.tree_unflatten(treedef, whole)


def split(function: Any) -> tuple[tuple, tuple[tuple, Any]]:
    """Arrays apart from what is static, of a function or any pytree. A plain function is one static
    leaf; a callable module or a `jax.tree_util.Partial` holds arrays, which stay dynamic."""
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

    def __reduce__(self) -> tuple:
        return _captured, (self.function,)

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


@dataclasses.dataclass(frozen=True)
class Kept:
    """A leaf of `init` that is not a parameter: its place among the leaves, its name, itself.

    `key` stands for it in comparisons: the bytes of an array, a function with what it captures. It
    cannot be hashed where the leaf cannot, so that nothing compiled is found for it again.
    """

    index: int
    path: str
    leaf: Any = dataclasses.field(compare=False)
    key: Any

    @classmethod
    def of(cls, index: int, path: str, leaf: Any) -> "Kept":
        if isinstance(leaf, np.ndarray):
            # A copy that nobody can write to: the user may write to the array given.
            leaf = leaf.copy()
            leaf.flags.writeable = False
        return cls(index, path, leaf, _key(leaf))

    def __reduce__(self) -> tuple:
        """Pickled without what its function captures."""
        return _kept, (self.index, self.path, self.leaf)


def _key(leaf: Any) -> Any:
    if isfunction(leaf):
        return _Captured.of(leaf)
    if _is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        array = np.asarray(leaf)
        return type(leaf), array.dtype, array.shape, array.tobytes()
    try:
        hash(leaf)
    except TypeError:
        return _Itself(leaf)
    return type(leaf), leaf


class _Itself:
    """Equal to itself alone."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, leaf: Any):
        self.leaf = leaf

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.leaf is other.leaf


# Functions by name: a method of a class travels as its code.


def _captured(function: Any) -> _Captured:
    return _Captured.of(function)


def _kept(index: int, path: str, leaf: Any) -> Kept:
    return Kept.of(index, path, leaf)
