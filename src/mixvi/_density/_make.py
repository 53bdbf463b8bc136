"""The density that answers for what a user has given."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import PyTree

from .._errors import InputError
from ._bounded import Bounded
from ._counted import Counted
from ._differences import check_gradient
from ._jax import JaxDensity
from ._numpy import HYPER_REFUSED, NumpyDensity, NumpyFunction
from ._pieces import Pieces
from ._piecewise import PieceTarget, density_in_pieces, target_of_pieces
from ._protocol import Density
from ._quadrature import PredictorDensity
from ._target import Target, prepare


def prepared(
    log_density: Callable, init: PyTree, data: PyTree, dtype: np.dtype, hyper: PyTree = None
) -> tuple[Target, np.ndarray]:
    """The checked target and the flat start; `data` may be in pieces."""
    if not isinstance(data, Pieces):
        return prepare(log_density, init, data, dtype, hyper)
    if isinstance(log_density, Density):
        raise InputError(
            f"data= is for functions: a density such as {type(log_density).__name__} holds its own "
            "data."
        )
    target, start = prepare(log_density, init, None, dtype, hyper)
    return target_of_pieces(target, data), start


def refuse_hyper(log_density: Callable | Density) -> None:
    """Learning hyperparameters takes derivatives that only JAX gives."""
    if isinstance(log_density, NumpyFunction):
        raise InputError(HYPER_REFUSED)
    if isinstance(log_density, Density) and not log_density.n_hyper:
        raise InputError("hyper= needs a log density written with jax.numpy, not a Density.")


def refuse_wrong_gradient(
    log_density: Callable | Density, density: Counted, target: Target, start: np.ndarray
) -> None:
    """A gradient that the user gives is looked at before anything is built on it."""
    if isinstance(log_density, Density) and log_density.is_checked:
        return
    if isinstance(log_density, Density | NumpyFunction):
        by_hand = isinstance(log_density, NumpyFunction)
        whose = "from_numpy" if by_hand else f"{type(log_density).__name__}.gradients"
        # Not counted: what the fit itself asks is.
        check_gradient(density.inner, start, target.structure.names, whose)


def density_of(
    log_density: Callable | Density, target: Target, dtype: np.dtype, memory: int, data: Any = None
) -> Counted:
    """`target` has its structures, data and bounds; where `data` are in pieces, it is that of the
    first one."""
    if isinstance(log_density, Density | NumpyFunction):
        user = target.structure if target.constraints is None else target.constraints.user
        if isinstance(log_density, NumpyFunction):
            inner: Density = NumpyDensity(log_density, user, target.data, target.has_data)
        else:
            inner = log_density
            if target.has_data:
                raise InputError(
                    f"data= is for functions: a density such as {type(inner).__name__} holds its "
                    "own data."
                )
        if inner.dim != user.size:
            raise InputError(
                f"{type(inner).__name__} has {inner.dim} dimensions, but init has {user.size} "
                "numbers."
            )
        if target.hyper_structure is not None:
            if inner.n_hyper != target.hyper_structure.size:
                raise InputError(
                    f"{type(inner).__name__} has {inner.n_hyper} hyperparameters, but hyper has "
                    f"{target.hyper_structure.size} numbers."
                )
            inner = inner.at(np.asarray(target.theta, dtype=np.float64))
        bounds = target.constraints
        return Counted(inner if bounds is None else Bounded(inner, bounds))
    if isinstance(data, Pieces):
        assert isinstance(target, PieceTarget)
        return Counted(density_in_pieces(target, data, dtype, memory))
    kind = PredictorDensity if target.n_predictors else JaxDensity
    return Counted(kind(target, dtype, memory))
