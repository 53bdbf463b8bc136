"""Posteriors as data frames."""

from typing import Any

import numpy as np

from .._errors import InputError
from .._fit._posterior import Posterior
from .._fit._summary import COLUMNS
from .._fit._summary import numbers_of as numbers_of_posterior
from ._labelled import flat_columns, numbers_of

# Draws behind a summary of a model's variables.
N_SUMMARY = 4000
# Parameters whose quantiles weighted draws may correct: each takes a millisecond.
MOST_CORRECTED = 1000


def draws(post: Any, n: int = 1000, key: Any = 0) -> Any:
    """A data frame with a row for every draw and a column for every number, named as in
    `summary()`; of a model's variables, by their labels: `theta[Choate]`.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi.interop import pandas
    >>> post = mixvi.fit(lambda w: -0.5 * (w["beta"] ** 2).sum(), {"beta": np.zeros(2)})
    >>> frame = pandas.draws(post)
    >>> list(frame.columns), len(frame)
    (['beta[0]', 'beta[1]'], 1000)
    """
    names, columns = _flat(post, n, key)
    return _pandas().DataFrame(columns, columns=names).rename_axis("draw")


def summary(post: Any) -> Any:
    """A data frame with the numbers of `summary()`: a row for every parameter, its mean, standard
    deviation and quantiles (of the first 1000 corrected by weighted draws, where these agree). Of a
    model's variables by 4000 draws."""
    if isinstance(post, Posterior):
        names = list(post._shown.names)
        columns, _ = numbers_of_posterior(post, min(len(names), MOST_CORRECTED))
    else:
        names, numbers = _flat(post, N_SUMMARY, 0)
        columns = numbers_of(numbers)
    index = _pandas().Index(names, name="parameter")
    return _pandas().DataFrame(columns, columns=list(COLUMNS), index=index)


def _flat(post: Any, n: int, key: Any) -> tuple[list[str], np.ndarray]:
    if isinstance(post, Posterior):
        points = np.asarray(post.law.sample(key, n))
        bound = post.constraints
        return list(post._shown.names), points if bound is None else bound.flat(points)
    if not callable(getattr(post, "labelled", None)):
        raise InputError(
            "mixvi.interop.pandas takes a Posterior or what an adaptor such as "
            f"mixvi.interop.pymc.approximate makes, not {type(post).__name__}."
        )
    return flat_columns(post.labelled(n, key))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as err:
        raise ImportError("mixvi.interop.pandas needs pandas: pip install 'mixvi[pandas]'") from err
    return pandas
