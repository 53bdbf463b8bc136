"""`fit_many`: many problems of one shape, each solved as `fit` would solve it."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, Unpack

import jax
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from .._approximate._families import FullRank
from .._density._constraints import constrained
from .._density._data import cast_leaves
from .._density._make import density_of, refuse_hyper, refuse_wrong_gradient
from .._density._memory import n_cores
from .._density._numpy import NumpyFunction
from .._density._pieces import refuse_pieces
from .._density._protocol import Density
from .._density._structure import flatten, parameters
from .._density._target import Target, precision_scope, prepare
from .._errors import InputError, NonFiniteError
from ._batch import Batch, suits
from ._case import Problem
from ._options import (
    AUTO,
    DENSE,
    FitOptions,
    checked,
    one_of,
    refuse_family_as_data,
    with_options,
)
from ._outcome import Outcome
from ._posterior import Posterior
from ._posteriors import Posteriors
from ._progress import Progress
from ._restarts import solve
from ._threads import one_blas_thread
from ._together import Together, solved_together

STRATEGIES = ("auto", "loop", "map", "vmap")
# Problems that run together on one core: as many as stay in its cache; and from how many on.
BLOCK, MANY = 16, 400

T = TypeVar("T")


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
    throw: bool = False,
    **options: Unpack[FitOptions],
) -> Posteriors:
    """Many problems of one shape in one call: problem i has `data[i]`, all share the rest.

    **Arguments:** those of `fit`, and

    - `data`: a pytree whose leaves have the problems on their first axis.
    - `init`: one start for all; with `init_batched=True` one for each, on the first axis (of its
      parameters: constants are the same for all).
    - `constraints`: the same for all.
    - `hyper`: likewise, with `hyper_batched=True`; every problem learns its own.
    - `strategy`: "vmap" runs a batch at once, "map" a few problems on every core, "loop" one
      problem after the other. "auto": "vmap" on an accelerator, "map" on a CPU. Problems that run
      together take the plain road (Newton's own steps, then Stein steps); whoever leaves it is
      solved alone, as `fit` would. With several modes one may end in another than `fit` would.
    - `progress`: a line on stderr with the time left; by default when that is a terminal.
    - `throw`: not here: a problem that fails never raises.

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
    refuse_pieces(data, "fit_many")
    if throw:
        raise InputError(
            "fit_many: a problem that fails never raises, so leave throw= out; posts.converged and "
            "posts.status tell which failed and why."
        )
    asked = checked(options)
    if asked.mixture is not None:
        raise InputError(
            'fit_many: family="mixture" is for one problem at a time: call mixvi.fit for each.'
        )
    if asked.structure not in (AUTO, DENSE):
        raise InputError(
            f'fit_many: structure="{asked.structure}" is for one problem of many parameters: use '
            "mixvi.fit."
        )
    if asked.hyper_posterior or asked.hyper_prior is not None:
        raise InputError(
            "fit_many: hyper_posterior= and hyper_prior= are for one problem: use mixvi.fit for "
            "each, or write the prior into the log density."
        )
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
    if is_numpy:
        first = density_of(log_density, batch.part(0), asked.dtype, asked.memory)
        refuse_wrong_gradient(log_density, first, target, starts[0].astype(np.float64))
    if is_numpy or strategy == "auto":
        strategy = "map" if is_numpy or jax.default_backend() == "cpu" else "vmap"
    # On a CPU a whole covariance takes fewer passes alone; few problems are not worth compiling
    # their steps.
    in_blocks = strategy == "map" and not is_numpy and len(batch) >= MANY
    in_blocks = in_blocks and not isinstance(asked.richest, FullRank)
    n_threads = 1 if is_numpy or strategy == "loop" else n_cores()
    with Progress(len(batch), progress) as report:
        if (strategy == "vmap" or in_blocks) and suits(batch):
            return _side_by_side(batch, BLOCK if in_blocks else len(batch), n_threads, report)
        outcomes = _in_threads(batch, range(len(batch)), n_threads, report)
    return Posteriors(post for post, _ in outcomes)


def _side_by_side(
    batch: Batch, size: int, n_threads: int, report: Callable[[int], None]
) -> Posteriors:
    """In blocks of one size; whoever needs more than the others goes alone."""
    n = len(batch)
    size = min(size, n)

    def block(first: int) -> Together:
        # The last block is filled up with its last problem, so that all have one shape.
        numbers = np.minimum(np.arange(first, first + size), n - 1)
        done = solved_together(batch if size == n else batch.block(numbers))
        report(int(done.on_road[: n - first].sum()))
        return done

    blocks = list(_first_then_all(block, range(0, n, size), n_threads))
    alone = [i for i in range(n) if not blocks[i // size].on_road[i % size]]
    outcomes = _in_threads(batch, alone, n_threads, report) if alone else []
    posts = {i: post for i, (post, _) in zip(alone, outcomes, strict=True)}

    def made(i: int) -> Posterior:
        return posts[i] if i in posts else blocks[i // size].outcome(i % size)[0]

    return Posteriors.lazily(n, made)


def _in_threads(
    batch: Batch, numbers: Sequence[int], n_threads: int, report: Callable[[int], None]
) -> list[Outcome]:
    """Each by itself."""

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
        return list(_first_then_all(one, numbers, n_threads))


def _first_then_all(
    function: Callable[[int], T], numbers: Sequence[int], n_threads: int
) -> list[T]:
    """The first compiles; the others, in threads, find compiled code."""
    first = function(numbers[0])
    with ThreadPoolExecutor(n_threads, "mixvi-many") as pool:
        return [first, *pool.map(function, numbers[1:])]


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
        data = cast_leaves(data, dtype, "data")
    arrays = parameters(init) if init_batched else []
    own = [array for array in arrays if array is not None]
    batched = (data, own, hyper if hyper_batched else None)
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

    def start_of(i: int) -> PyTree:
        leaves, treedef = jtu.tree_flatten(init)
        pairs = zip(leaves, arrays, strict=True)
        return treedef.unflatten(leaf if array is None else array[i] for leaf, array in pairs)

    first = start_of(0) if init_batched else init
    its_hyper = taken(hyper, 0) if hyper_batched else hyper
    target, start = prepare(log_density, first, taken(data, 0), dtype, its_hyper)
    starts, thetas = np.repeat(start[None], n, axis=0), np.repeat(target.theta[None], n, axis=0)
    if init_batched:
        starts = np.stack([_of_problem(start_of(i), i, "init", dtype) for i in range(n)])
    if hyper_batched:
        thetas = np.stack([_of_problem(taken(hyper, i), i, "hyper", dtype) for i in range(n)])
    return dataclasses.replace(target, data=data, theta=thetas), starts


def _of_problem(tree: PyTree, index: int, what: str, dtype: np.dtype) -> np.ndarray:
    try:
        return flatten(tree, dtype, what)[1]
    except (InputError, NonFiniteError) as err:
        raise type(err)(f"fit_many, problem {index}: {err}") from err
