"""NumPy for one problem, `jax.numpy` for a batch of them: the same function serves both."""

import sys
from typing import Any

import numpy as np


def namespace(*arrays: Any) -> Any:
    """`jax.numpy` where any of the arrays is JAX's (or traced), otherwise NumPy."""
    jax = sys.modules.get("jax")
    if jax is not None and any(isinstance(one, jax.Array) for one in arrays):
        import jax.numpy

        return jax.numpy
    return np


def special(*arrays: Any) -> Any:
    """The special functions that go with them."""
    if namespace(*arrays) is np:
        import scipy.special

        return scipy.special
    import jax.scipy.special

    return jax.scipy.special
