"""The shape of the user's parameters, their names, and what a start must be."""

import dataclasses
import functools
import math
from typing import Any

import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree, Shaped

from .._errors import InputError, NonFiniteError

# What an argument's numbers are called where they have no name of their own.
_ROOTS = {"init": "w", "hyper": "theta"}


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
    arrays = [as_array(leaf, f"{what}: {path}") for leaf, path in zip(leaves, paths, strict=True)]
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
    return tuple(path_name(path, root) for path, _ in jtu.tree_flatten_with_path(tree)[0])


@functools.lru_cache(maxsize=256)
def _structure(treedef: Any, shapes: tuple, root: str) -> Structure:
    """One object for one structure, so that its names are made once."""
    return Structure(treedef, shapes, _paths(treedef, root))


def as_array(leaf: Any, what: str) -> np.ndarray:
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
