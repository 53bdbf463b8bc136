"""The first engine: hyperparameters, and many problems at once, still run on it."""

import dataclasses
from typing import Any

import numpy as np

from .._errors import InputError
from .._fit._options import Options
from .._posterior import Posterior
from .._target import Target
from . import _families
from ._outcome import Outcome, Rule
from ._restarts import solve

TOL = 1e-5


def of_first_engine(options: Options) -> Options:
    """The same options with this engine's own families and tolerance."""
    family: Any = options.family
    if family is not None:
        twin = getattr(_families, type(family).__name__, None)
        if twin is None:
            raise InputError(
                f"a family of your own ({type(family).__name__}) can be fitted by fit without "
                "hyper= alone, for now."
            )
        family = twin(**{f.name: getattr(family, f.name) for f in dataclasses.fields(family)})
    tol = TOL if options.tol is None else options.tol
    return dataclasses.replace(options, family=family, tol=tol)


def solved_with_hyper(
    log_density: Any,
    target: Target,
    start: np.ndarray,
    options: Options,
    fixed: Rule | None,
    warm: Posterior | None,
) -> Outcome:
    from .._density._numpy import HYPER_REFUSED, NumpyFunction
    from .._density._protocol import Density

    if isinstance(log_density, NumpyFunction):
        raise InputError(HYPER_REFUSED)
    if isinstance(log_density, Density):
        raise InputError("hyper= needs a log density written with jax.numpy, not a Density.")
    return solve(target, start, of_first_engine(options), fixed, warm)
