"""`fit_many`: many problems of one shape, each solved as `fit` would solve it."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Unpack

import jax
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from .._constraints import constrained
from .._density._make import density_of, refuse_hyper
from .._density._memory import n_cores
from .._density._numpy import NumpyFunction
from .._density._protocol import Density
from .._draws import Draws, Quadrature
from .._errors import InputError, NonFiniteError
from .._posterior import Posterior
from .._posteriors import Posteriors
from .._progress import Progress
from .._target import Target, cast_leaves, flatten, precision_scope, prepare
from ._case import Problem
from ._options import (
    FitOptions,
    Options,
    checked,
    one_of,
    refuse_family_as_data,
    with_options,
)
from ._outcome import Outcome
from ._restarts import solve
from ._threads import one_blas_thread

STRATEGIES = ("auto", "loop", "map", "vmap")


@dataclasses.dataclass(frozen=True)
class Batch:
    """Problems of one shape: `target` holds the data (and hyperparameters) of all of them, on the
    host, with the problems on the first axis; `fixed` are the first draws or nodes of each."""

    log_density: Callable
    target: Target
    starts: np.ndarray
    options: Options
    fixed: Draws | Quadrature | None

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, index: int | np.ndarray) -> Target:
        data = jtu.tree_map(lambda leaf: leaf[index], self.target.data)
        return dataclasses.replace(self.target, data=data, theta=self.target.theta[index])


@with_options(FitOptions)
def fit_many(
    log_density: Callable,
    init: PyTree,
    data: PyTree = None,
    *,
    hyper: PyTree = None,
    constraints: Any = None,
    init_batched: bool = False,
    hyper_batched: bool = False,
    strategy: str = "auto",
    progress: bool | None = None,
    **options: Unpack[FitOptions],
) -> Posteriors:
    """Many problems of one shape in one call: problem i has `data[i]`, all share the rest.

    **Arguments:** those of `fit`, and

    - `data`: a pytree whose leaves have the problems on their first axis.
    - `init`: one start for all; with `init_batched=True` one for each, on the first axis.
    - `constraints`: the same for all.
    - `hyper`: likewise, with `hyper_batched=True`; every problem learns its own.
    - `strategy`: "vmap" runs a batch at once, "map" one problem on every core, "loop" one problem
      after the other. "auto": "vmap" on an accelerator, "map" on a CPU. Under "vmap" the search for
      a mode leaves out rescue operations unless it fails: with several modes it may end in another
      one than `fit` would.
    - `progress`: a line on stderr with the time left; by default when that is a terminal.

    **Returns:** `Posteriors`. A problem that fails says so in its own `status` and spoils no other.

    >>> import numpy as np
    >>> import mixvi
    >>> centres = np.array([[0.0, 1.0], [5.0, 2.0], [9.0, 9.0]])
    >>> posts = mixvi.fit_many(lambda w, c: -0.5 * ((w - c) ** 2).sum(), np.zeros(2), data=centres)
    >>> posts.mean.round(6).tolist()
    [[0.0, 1.0], [5.0, 2.0], [9.0, 9.0]]
    """
    one_of("strategy", strategy, STRATEGIES)
    refuse_family_as_data(data)
    asked = checked(options)
    target, starts = _prepare_batch(
        log_density, init, data, hyper, init_batched, hyper_batched, asked.dtype
    )
    target, starts = constrained(target, starts, constraints)
    asked = asked.within_reach(target.structure.size)
    batch = Batch(log_density, target, starts, asked, None)
    batch = dataclasses.replace(batch, fixed=asked.rule_for(batch.part(0)))
    is_numpy = isinstance(log_density, NumpyFunction)
    if hyper is not None:
        refuse_hyper(log_density)
    if is_numpy or strategy == "auto":
        strategy = "map" if is_numpy or jax.default_backend() == "cpu" else "vmap"
    with Progress(len(batch), progress) as report:
        n_threads = 1 if is_numpy or strategy == "loop" else n_cores()
        outcomes = _in_threads(batch, n_threads, report)
    return Posteriors(post for post, _ in outcomes)


def _in_threads(batch: Batch, n_threads: int, report: Callable[[int], None]) -> list[Outcome]:
    """The first problem compiles; the others find compiled code."""

    def one(i: int) -> Outcome:
        target, options = batch.part(i), batch.options
        density = density_of(batch.log_density, target, options.dtype, options.memory)
        start = batch.starts[i].astype(np.float64)
        try:
            outcome = solve(Problem(density, target, start, options, batch.fixed))
        except InputError as err:
            raise InputError(f"fit_many, problem {i}: {err}") from err
        report(1)
        return outcome

    with one_blas_thread(batch.target.structure.size):
        first = one(0)
        with ThreadPoolExecutor(n_threads, "mixvi-many") as pool:
            return [first, *pool.map(one, range(1, len(batch)))]


def _prepare_batch(
    log_density: Callable,
    init: PyTree,
    data: PyTree,
    hyper: PyTree,
    init_batched: bool,
    hyper_batched: bool,
    dtype: np.dtype,
) -> tuple[Target, np.ndarray]:
    """The target with all data, on the host so that problems are cheap to take, and the starts."""
    if isinstance(log_density, Density):
        raise InputError("fit_many: a Density is for fit, one problem at a time.")
    if isinstance(init, Posterior | Posteriors):
        raise InputError("fit_many: a warm start is for fit; give init=post.mean here.")
    with precision_scope(dtype):
        data = jtu.tree_map(np.asarray, cast_leaves(data, dtype, "data"))
    batched = (data, init if init_batched else None, hyper if hyper_batched else None)
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else None for leaf in jtu.tree_leaves(batched)}
    if not lengths:
        raise InputError("fit_many: give data= with the problems on the first axis of every leaf.")
    if len(lengths) > 1 or None in lengths or 0 in lengths:
        raise InputError(
            "fit_many: every leaf of data (and of a batched init or hyper) must have the same "
            "number of problems, at least one, on its first axis; the shapes are "
            f"{jtu.tree_map(np.shape, batched if init_batched or hyper_batched else data)}."
        )
    n = int(lengths.pop() or 0)

    def taken(tree: PyTree, i: int) -> PyTree:
        return jtu.tree_map(lambda leaf: np.asarray(leaf)[i], tree)

    first = taken(init, 0) if init_batched else init
    its_hyper = taken(hyper, 0) if hyper_batched else hyper
    target, start = prepare(log_density, first, taken(data, 0), dtype, its_hyper)
    starts, thetas = np.repeat(start[None], n, axis=0), np.repeat(target.theta[None], n, axis=0)
    if init_batched:
        starts = np.stack([_of_problem(taken(init, i), i, "init", dtype) for i in range(n)])
    if hyper_batched:
        thetas = np.stack([_of_problem(taken(hyper, i), i, "hyper", dtype) for i in range(n)])
    return dataclasses.replace(target, data=data, theta=thetas), starts


def _of_problem(tree: PyTree, index: int, what: str, dtype: np.dtype) -> np.ndarray:
    try:
        return flatten(tree, dtype, what)[1]
    except (InputError, NonFiniteError) as err:
        raise type(err)(f"fit_many, problem {index}: {err}") from err
