"""What a user gives as data: arrays, and tables by their columns."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from .._errors import InputError
from ._structure import as_array, listed, path_name


def cast_leaves(tree: PyTree, dtype: np.dtype, what: str) -> PyTree:
    """Real leaves in `dtype`; integers and booleans as they are; tables as `unframed` has them;
    nothing else is data."""
    leaves, treedef = jtu.tree_flatten(unframed(tree, what))
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
        leaf = as_array(leaf, _path_name_of(treedef, index, what))
    if leaf.dtype.kind == "u":
        # Differences of unsigned counts would wrap around.
        leaf = leaf.astype(np.int64 if dtype == np.float64 else np.int32)
    return leaf.astype(dtype, copy=False) if leaf.dtype.kind == "f" else leaf


def _path_name_of(treedef: Any, index: int, root: str) -> str:
    tree = jtu.tree_unflatten(treedef, list(range(treedef.num_leaves)))
    return path_name(jtu.tree_flatten_with_path(tree)[0][index][0], root, rooted=True)


# --- tables -----------------------------------------------------------------------------------


def unframed(tree: PyTree, what: str) -> PyTree:
    """Frames (of pandas, polars or pyarrow) as dicts from column names to arrays, series as arrays.
    They are known by what they can do, so that none of these libraries is imported here."""
    if not any(_is_frame(leaf) or is_series(leaf) for leaf in jtu.tree_leaves(tree)):
        return tree

    def plain(path: tuple, leaf: Any) -> Any:
        if _is_frame(leaf):
            return _columns(leaf, path_name(path, what, rooted=True))
        return leaf.to_numpy() if is_series(leaf) else leaf

    return jtu.tree_map_with_path(plain, tree)


def _is_frame(leaf: Any) -> bool:
    return hasattr(leaf, "columns") and any(
        hasattr(leaf, name) for name in ("to_numpy", "__dataframe__")
    )


def is_series(leaf: Any) -> bool:
    return hasattr(leaf, "to_numpy") and not _is_frame(leaf)


def _columns(frame: Any, where: str) -> dict[Any, np.ndarray]:
    names = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"{where} has more than one column {twice[0]!r}: give each its own name.")
    if len({isinstance(name, str) for name in names}) > 1:
        raise InputError(
            f"{where} has columns named by text and others that are not: name all by text, with "
            "frame.columns = frame.columns.map(str)."
        )
    columns = {name: np.asarray(frame[name].to_numpy()) for name in names}
    other = [name for name, column in columns.items() if column.dtype.kind not in "fiub"]
    if other:
        shown = listed([repr(name) for name in other])
        raise InputError(
            f"{where}: not numbers in the column{'s' * (len(other) > 1)} {shown}: encode "
            'text as integers (frame["x"].astype("category").cat.codes), dates as real numbers, '
            'fill what is missing, or drop them (frame.drop(columns="x")).'
        )
    return columns
