"""How a traced function may be run for many rows at once: in what memory, and how."""

import os
from typing import Any

import jax
import numpy as np

# Kernels of which jaxlib runs a batch on the CPU's thread pool and waits for it from inside that
# pool: as many of them at a time as there are threads wait for ever (seen with two triangular
# solves on two cores, jaxlib 0.10.2).
WAIT_IN_THE_POOL = frozenset(
    [
        *("cholesky", "triangular_solve", "lu", "eigh", "eig", "svd", "geqrf", "qr", "schur"),
        *("householder_product", "ormqr", "tridiagonal", "tridiagonal_solve", "hessenberg"),
    ]
)


def factorises(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name in WAIT_IN_THE_POOL or any(map(factorises, _inner(equation)))
        for equation in jaxpr.eqns
    )


def jaxpr_bytes(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        total += sum(_aval_bytes(variable.aval) for variable in equation.outvars)
        total += sum(map(jaxpr_bytes, _inner(equation)))
    return total


def _inner(equation: Any) -> list[Any]:
    """Bodies of loops, branches and inner jits, which stand among the parameters."""
    parameters = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
    return [getattr(one, "jaxpr", one) for one in parameters if _is_jaxpr(one)]


def _is_jaxpr(thing: Any) -> bool:
    return hasattr(thing, "eqns") or hasattr(getattr(thing, "jaxpr", None), "eqns")


def _aval_bytes(aval: Any) -> int:
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None:
        return 0
    return int(np.prod(shape, dtype=np.int64)) * getattr(dtype, "itemsize", 8)


def n_cores() -> int:
    """That this process may use."""
    mine = getattr(os, "sched_getaffinity", None)
    return len(mine(0)) if mine is not None else os.cpu_count() or 1
