"""The first engine: hyperparameters, and many problems at once, still run on it."""

from typing import Any

import numpy as np

from .._errors import InputError
from .._fit._options import Options
from .._posterior import Posterior
from .._target import Target
from ._options import of_first_engine
from ._outcome import Outcome, Rule
from ._restarts import solve


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
