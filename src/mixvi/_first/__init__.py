"""The first engine: hyperparameters, and many problems at once, still run on it."""

import numpy as np

from .._fit._options import Options
from .._posterior import Posterior
from .._target import Target
from ._options import of_first_engine
from ._outcome import Outcome, Rule
from ._restarts import solve


def solved_with_hyper(
    target: Target,
    start: np.ndarray,
    options: Options,
    fixed: Rule | None,
    warm: Posterior | None,
) -> Outcome:
    return solve(target, start, of_first_engine(options), fixed, warm)
