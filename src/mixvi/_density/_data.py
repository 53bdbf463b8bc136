"""What a user gives as data."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from ._structure import as_array, path_name


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
        leaf = as_array(leaf, _path_name_of(treedef, index, what))
    if leaf.dtype.kind == "u":
        # Differences of unsigned counts would wrap around.
        leaf = leaf.astype(np.int64 if dtype == np.float64 else np.int32)
    return leaf.astype(dtype, copy=False) if leaf.dtype.kind == "f" else leaf


def _path_name_of(treedef: Any, index: int, root: str) -> str:
    tree = jtu.tree_unflatten(treedef, list(range(treedef.num_leaves)))
    return path_name(jtu.tree_flatten_with_path(tree)[0][index][0], root, rooted=True)
