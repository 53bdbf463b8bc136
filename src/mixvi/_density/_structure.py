"""The shape of the user's parameters, their names, and what a start must be."""

import dataclasses
import functools
import math
import numbers
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree, Shaped

from .._errors import InputError, NonFiniteError
from ._captured import Kept

# What an argument's numbers are called where they have no name of their own.
_ROOTS = {"init": "w", "hyper": "theta"}


@dataclasses.dataclass(frozen=True)
class Structure:
    """The shape of the user's parameters: how a flat vector becomes their pytree, and back.
    `shapes` and `paths` are those of the leaves that vary; `kept` are the others."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    paths: tuple[str, ...]
    kept: tuple[Kept, ...] = ()

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

    def leaves(self, flat: Shaped[Any, "*batch dim"]) -> list[Any]:
        """The parameters, each in its shape. Axes before the last one are kept, so that a stack of
        draws is unravelled at once."""
        ends = np.cumsum(self.sizes)
        return [
            flat[..., end - size : end].reshape(flat.shape[:-1] + shape)
            for end, size, shape in zip(ends, self.sizes, self.shapes, strict=True)
        ]

    def tree(self, leaves: Iterable[Any]) -> PyTree:
        """The pytree of these parameters, with what is kept in its places."""
        whole = list(leaves)
        for kept in self.kept:  # in the order of their places
            whole.insert(kept.index, kept.leaf)
        return jtu.tree_unflatten(self.treedef, whole)

    def varying(self, leaves: Iterable[Any]) -> list[Any]:
        """Without those in the places of what is kept."""
        places = {kept.index for kept in self.kept}
        return [leaf for i, leaf in enumerate(leaves) if i not in places]

    def unravel(self, flat: Shaped[Any, "*batch dim"]) -> PyTree:
        return self.tree(self.leaves(flat))

    def stacked(self, trees: Iterable[PyTree]) -> PyTree:
        """One pytree of many of this structure: what varies on a first axis, what is kept once."""
        each = [self.varying(jtu.tree_leaves(tree)) for tree in trees]
        return self.tree(np.stack(leaves) for leaves in zip(*each, strict=True))

    def ravel(self, tree: PyTree, what: str, batch: int = 0) -> np.ndarray:
        """The flat vector of a pytree that must be of this structure (`batch` leading axes)."""
        leaves, treedef = jtu.tree_flatten(tree)
        if treedef != self.treedef:
            raise InputError(f"{what} has the structure {treedef}, expected {self.treedef}.")
        try:
            arrays = [np.asarray(leaf, dtype=np.float64) for leaf in self.varying(leaves)]
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


# --- from a start -----------------------------------------------------------------------------


def flatten(init: PyTree, dtype: np.dtype, what: str = "init") -> tuple[Structure, np.ndarray]:
    """The structure of `init` and its parameters (see `parameters`) in one vector."""
    leaves, paths, treedef = _read(init, what)
    arrays = _parameters(leaves, paths, treedef, what)
    its = [(path, array) for path, array in zip(paths, arrays, strict=True) if array is not None]
    structure = _structure(
        treedef,
        tuple(array.shape for _, array in its),
        tuple(path for path, _ in its),
        tuple(
            Kept.of(i, path, leaf)
            for i, (path, leaf) in enumerate(zip(paths, leaves, strict=True))
            if arrays[i] is None
        ),
    )
    if structure.size == 0:
        raise InputError(f"{what} has arrays but no numbers in them: every leaf is empty.")
    start = np.concatenate([array.reshape(-1).astype(dtype) for _, array in its])
    if not np.isfinite(start).all():
        bad = np.flatnonzero(~np.isfinite(start))
        raise NonFiniteError(
            f"{what} is not finite at {listed([structure.names[i] for i in bad])} "
            f"({start[bad[0]]}): start from finite numbers."
        )
    return structure, start


def parameters(init: PyTree, what: str = "init") -> list[np.ndarray | None]:
    """For every leaf of `init` its numbers where these are parameters, None where it is kept as it
    is.

    Real numbers are parameters. Booleans, text, functions and other objects never are. Integers
    are where nothing is real (`init=0`), and beside real numbers where they stand alone in dicts,
    lists and tuples (`{"a": 0, "b": 0.5}`); arrays of them, and those in fields of a class (an
    equinox module, a registered dataclass), are then constants. Hyperparameters are all numbers.
    """
    return _parameters(*_read(init, what), what)


def _parameters(
    leaves: list[Any], paths: list[str], treedef: Any, what: str
) -> list[np.ndarray | None]:
    arrays = [_numbers(leaf, f"{what}: {p}") for leaf, p in zip(leaves, paths, strict=True)]
    real = [array is not None and _is_real(array) for array in arrays]
    if any(real) and what == "init":
        fields = _in_fields(treedef)
        arrays = [
            array if yes or (array is not None and array.ndim == 0 and not in_field) else None
            for array, yes, in_field in zip(arrays, real, fields, strict=True)
        ]
    lost = [i for i, array in enumerate(arrays) if array is None]
    if len(lost) == len(leaves) or (lost and what != "init"):
        shown = listed([f"{paths[i]} is {type(leaves[i]).__name__}" for i in lost])
        some = ", or a pytree that holds some" if what == "init" else ""
        raise InputError(f"{what} must be real numbers{some}; {shown}.")
    return arrays


def _read(tree: PyTree, what: str) -> tuple[list[Any], list[str], Any]:
    """Leaves, their names, and the form of the tree."""
    try:
        found, treedef = jtu.tree_flatten_with_path(tree)
    except (TypeError, ValueError) as err:
        raise InputError(
            f"{what} is not a pytree that JAX can read (dict keys of one type?): {err}"
        ) from err
    if not found:
        raise InputError(
            f"{what} has no parameters ({tree!r}): give an array or a pytree of arrays."
        )
    paths = [path_name(path, _ROOTS[what]) for path, _ in found]
    return [leaf for _, leaf in found], paths, treedef


def _numbers(leaf: Any, what: str) -> np.ndarray | None:
    """A leaf of real numbers or integers as an array; None for what cannot be parameters."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return None
    _refuse_unregistered(leaf, what)
    array = _array(leaf, what)
    if array.dtype.kind == "O" and (array.ndim > 0 or isinstance(leaf, numbers.Number)):
        return as_array(leaf, what)  # refuses it
    if array.dtype.kind == "c":
        raise InputError(f"{what} has type {array.dtype}; parameters must be real numbers.")
    return array if _is_real(array) or array.dtype.kind in "iu" else None


def _is_real(array: np.ndarray) -> bool:
    return bool(jnp.issubdtype(array.dtype, np.floating))


def _refuse_unregistered(leaf: Any, what: str) -> None:
    """A dataclass that JAX takes for one leaf would hide its numbers."""
    if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
        return
    held = [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]
    if any(isinstance(one, float | np.ndarray | jax.Array) for one in held):
        name = type(leaf).__name__
        raise InputError(
            f"{what} is a dataclass that JAX does not know, so that its numbers cannot vary: "
            f"decorate {name} with @jax.tree_util.register_dataclass, or make it an "
            "equinox.Module."
        )


def _in_fields(treedef: Any, inside: bool = False) -> Iterator[bool]:
    """For every leaf, whether it stands in a field of a class, and not in dicts, lists and tuples
    alone."""
    if (node := treedef.node_data()) is None:
        yield inside
        return
    inside = inside or not issubclass(node[0], dict | list | tuple)
    for child in treedef.children():
        yield from _in_fields(child, inside)


def _structure(treedef: Any, shapes: tuple, paths: tuple, kept: tuple) -> Structure:
    try:
        return _interned(treedef, shapes, paths, kept)
    except (TypeError, ValueError):  # something in it cannot be hashed or compared
        return Structure(treedef, shapes, paths, kept)


@functools.lru_cache(maxsize=256)
def _interned(treedef: Any, shapes: tuple, paths: tuple, kept: tuple) -> Structure:
    """One object for one structure, so that its names are made once."""
    return Structure(treedef, shapes, paths, kept)


def _array(leaf: Any, what: str) -> np.ndarray:
    if np.ma.isMaskedArray(leaf):
        raise InputError(f"{what} is a masked array: fill or drop its masked entries first.")
    try:
        return np.asarray(leaf)
    except Exception as err:
        raise InputError(f"{what} cannot be read as an array: {err}") from err


def as_array(leaf: Any, what: str) -> np.ndarray:
    """Refuses what is not numbers."""
    array = _array(leaf, what)
    if array.dtype.kind not in "fiubc":
        raise InputError(
            f"{what} is {type(leaf).__name__} (array type {array.dtype}), not numbers: "
            "encode text as integers and dates as real numbers first."
        )
    return array


# --- names ------------------------------------------------------------------------------------


def path_name(path: tuple, root: str, rooted: bool = False) -> str:
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
