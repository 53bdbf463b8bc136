"""Screening of starts: a few steps from each, and the best one goes on.

The paper's way to its hyperparameters: ten iterations from many starts, the highest bound wins.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PyTree

from .._approximate._families import Family
from .._density._data import unframed
from .._density._pieces import refuse_pieces
from .._errors import InputError
from ._many import fit_many


@dataclasses.dataclass(frozen=True)
class Screening:
    """What `screen` found: for every start its bound (`scores`, minus infinity where it failed),
    the hyperparameters reached (`hypers`) and the mode there (`modes`); `best` is the index of the
    highest bound.

    >>> import numpy as np
    >>> import mixvi
    >>> found = mixvi.Screening(np.array([-3.0, -1.0]), hypers=[0.2, 0.9], modes=[0.0, 0.5], best=1)
    >>> found.hyper, found.mode
    (0.9, 0.5)
    """

    scores: Float[np.ndarray, " starts"]
    hypers: list[PyTree]
    modes: list[PyTree]
    best: int

    @property
    def hyper(self) -> PyTree:
        """The hyperparameters that the best start reached."""
        return self.hypers[self.best]

    @property
    def mode(self) -> PyTree:
        """The mode there: where a fit that goes on should begin."""
        return self.modes[self.best]


def best_together(
    screenings: Sequence[Screening], groups: Sequence[Hashable] | None = None
) -> Hashable:
    """One choice for several data sets (splits of one, say): the start, or the group of starts,
    whose bounds are highest in sum. Choosing anew for each suffers from luck.

    **Arguments:** `screenings`, of the same starts for every data set; `groups`, a label for each
    start (its number of basis functions, say), of which the best start counts; left out, every
    start is a group by itself, labelled by its index.

    **Returns:** the label.

    >>> import numpy as np
    >>> import mixvi
    >>> def screened(*scores):
    ...     return mixvi.Screening(np.array(scores), [0.0] * 3, [0.0] * 3, int(np.argmax(scores)))
    >>> mixvi.best_together([screened(-3.0, -1.0, -9.0), screened(-2.0, -1.5, 0.0)])
    1
    """
    scores = np.stack([one.scores for one in screenings])
    labels = list(range(scores.shape[1]) if groups is None else groups)
    if len(labels) != scores.shape[1]:
        raise InputError(f"best_together: {len(labels)} groups for {scores.shape[1]} starts.")
    sums = {
        label: scores[:, [one == label for one in labels]].max(1).sum()
        for label in dict.fromkeys(labels)
    }
    return max(sums, key=lambda label: sums[label])


def screen(
    log_density: Callable,
    init: PyTree,
    starts: Sequence[PyTree],
    data: PyTree = None,
    *,
    data_of_start: Sequence[PyTree] | None = None,
    family: str | Family = "laplace",
    steps: int = 10,
    **options: Any,
) -> Screening:
    """Runs a few steps from every start of the hyperparameters and ranks what they reach.

    **Arguments:**

    - `log_density`, `init`: as for `fit`.
    - `starts`: a list of hyperparameters to start from.
    - `data`: the same for all starts, or `data_of_start`, one for each (another basis, say). Starts
      of the same shapes run together in compiled code.
    - `family`: whose bound decides: "laplace" for its evidence, or any family for its ELBO.
    - `steps`: evaluations of the evidence from every start, and passes of the family's own search.
    - further options are those of `fit_many`.

    **Returns:** a `Screening`.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import mixvi
    >>> def log_density(w, log_alpha, y):  # y ~ N(w, 1), w ~ N(0, 1/alpha)
    ...     return (-0.5 * (y - w) ** 2 - 0.5 * jnp.exp(log_alpha) * w**2 + 0.5 * log_alpha).sum()
    >>> y = np.array([2.0, -1.0, 3.0, 0.5])
    >>> found = mixvi.screen(log_density, np.zeros(4), [-6.0, 0.0, 6.0], y, steps=30)
    >>> bool(abs(np.exp(-found.hyper) - ((y**2).mean() - 1)) < 1e-3)  # 1/alpha, in closed form
    True
    """
    if isinstance(starts, dict | str):
        raise InputError(f"screen: starts must be a list of hyperparameters, not {starts!r}.")
    starts = list(starts)
    if not starts:
        raise InputError("screen: give at least one start.")
    if data_of_start is not None and len(data_of_start) != len(starts):
        raise InputError(
            f"screen: {len(starts)} starts but {len(data_of_start)} entries of data_of_start."
        )
    given = [data] * len(starts) if data_of_start is None else data_of_start
    for one in given:
        refuse_pieces(one, "screen")
    each = [unframed(one, "data") for one in given]
    groups: dict[Any, list[int]] = {}
    for i, problem in enumerate(zip(starts, each, strict=True)):
        leaves, treedef = jtu.tree_flatten(problem)
        groups.setdefault((treedef, tuple(map(np.shape, leaves))), []).append(i)
    said = ""
    scores, hypers = np.full(len(starts), -np.inf), list(starts)
    modes: list[PyTree] = [init] * len(starts)
    options = {"diagnostics": False, "max_steps": max(steps, 1)} | options
    for members in groups.values():
        hyper, its_data = (
            jtu.tree_map(lambda *leaves: np.stack(leaves), *(some[i] for i in members))
            for some in (starts, each)
        )
        posts = fit_many(
            log_density,
            init,
            its_data,
            family=family,
            hyper=hyper,
            hyper_batched=True,
            hyper_steps=steps,
            **options,
        )
        for i, post in zip(members, posts, strict=True):
            said = said or post.status
            if np.isfinite(post.log_evidence):
                scores[i], hypers[i], modes[i] = post.log_evidence, post.hyper, post.start
    if not np.isfinite(scores).any():
        raise InputError(f"screen: no start has a bound; the first says: {said}")
    return Screening(scores, hypers, modes, int(np.argmax(scores)))
