"""Room 1. How much memory a traced function needs, so that work can be cut to a budget."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def bytes_of(function: Callable, *arguments: Any) -> int:
    """An upper bound on the intermediate values of one call, from its jaxpr: nothing is run.

    XLA fuses and reuses buffers, so the truth is lower; a bound is what a budget wants.
    """
    return max(1, _jaxpr_bytes(jax.make_jaxpr(function)(*arguments).jaxpr))


def _jaxpr_bytes(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        total += sum(_aval_bytes(variable.aval) for variable in equation.outvars)
        # Bodies of loops, branches and inner jits stand among the parameters.
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(parameter):
                total += _jaxpr_bytes(getattr(parameter, "jaxpr", parameter))
    return total


def _is_jaxpr(thing: Any) -> bool:
    return hasattr(thing, "eqns") or hasattr(getattr(thing, "jaxpr", None), "eqns")


def _aval_bytes(aval: Any) -> int:
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None:
        return 0
    return int(np.prod(shape, dtype=np.int64)) * getattr(dtype, "itemsize", 8)
