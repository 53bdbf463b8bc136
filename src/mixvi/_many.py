"""Room 12. `fit_many`: the same cores over a batch of problems, whatever is fastest here."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from . import _engine, _judge
from ._constraints import constrained
from ._diagnostics import Elsewhere
from ._draws import Draws, Quadrature
from ._engine import Adapted, AdaptedNumbers
from ._errors import Code, InputError, NonFiniteError
from ._evidence import Tuned
from ._families import Family
from ._judge import Mode
from ._laplace import Laplace, LaplaceNumbers
from ._numpy import relayed
from ._options import Options, checked, one_of
from ._outcome import Case, Fitted, Outcome, Rule, failure, finish
from ._posterior import Judged
from ._posteriors import Posteriors
from ._progress import Progress
from ._restarts import solve
from ._solve import GAIN, MOST_DOUBLINGS, is_poor, laplace_is_enough
from ._target import Target, cast_leaves, flatten, precision_scope, prepare

STRATEGIES = ("auto", "loop", "map", "vmap")
BLOCK = 32


def fit_many(
    log_density: Callable,
    init: PyTree,
    family: str | Family = "auto",
    data: PyTree = None,
    hyper: PyTree = None,
    *,
    constraints: Any = None,
    draws: int | Draws | Quadrature | None = None,
    optimiser: str = "auto",
    anchor: str = "auto",
    n_restarts: int = 0,
    key: Any = 0,
    init_batched: bool = False,
    hyper_batched: bool = False,
    strategy: str = "auto",
    progress: bool | None = None,
    tol: float = 1e-5,
    max_steps: int = 1000,
    diagnostics: bool | int = True,
    on_indefinite: str = "raise",
    hyper_steps: int = 200,
    memory: int | str | None = None,
    dtype: str = "float64",
) -> Posteriors:
    """Many problems of one shape in one call: problem i has `data[i]`, all share the rest.

    **Arguments:** those of `fit`, and

    - `data`: a pytree whose leaves have the problems on their first axis.
    - `init`: one start for all; with `init_batched=True` one for each, on the first axis.
    - `constraints`: the same for all.
    - `hyper`: likewise, with `hyper_batched=True`; every problem learns its own.
    - `strategy`: "vmap" runs a batch at once, "map" one problem after the other in compiled loops
      on all cores, "loop" one call of `fit` after the other. "auto": "vmap" on an accelerator,
      "map" on a CPU. Whatever needs Stein steps ("full", "auto" where Laplace is not enough, a poor
      or missing mode) is solved problem by problem.
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
    options = checked(
        family=family,
        draws=draws,
        optimiser=optimiser,
        anchor=anchor,
        n_restarts=n_restarts,
        key=key,
        tol=tol,
        max_steps=max_steps,
        diagnostics=diagnostics,
        on_indefinite=on_indefinite,
        memory=memory,
        dtype=dtype,
        hyper_steps=hyper_steps,
    )
    target, starts = _prepare_batch(
        log_density, init, data, hyper, init_batched, hyper_batched, options.dtype
    )
    target, starts = constrained(target, starts, constraints)
    options = options.within_reach(target.structure.size)
    fixed = options.rule_for(_problem(target, 0))
    if strategy == "auto":
        strategy = "map" if jax.default_backend() == "cpu" else "vmap"
    with relayed(log_density), Progress(len(starts), progress) as report:
        if strategy == "loop":
            outcomes = []
            for i, start in enumerate(starts):
                outcomes.append(solve(_problem(target, i), start, options, fixed))
                report(1)
        else:
            outcomes = _in_blocks(target, starts, options, fixed, strategy, report)
    return Posteriors(post for post, _ in outcomes)


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


def _problem(target: Target, index: int | np.ndarray) -> Target:
    data = jtu.tree_map(lambda leaf: leaf[index], target.data)
    return dataclasses.replace(target, data=data, theta=target.theta[index])


def _in_blocks(
    target: Target,
    starts: np.ndarray,
    options: Options,
    fixed: Rule | None,
    how: str,
    report: Callable[[int], None],
) -> list[Outcome]:
    """All at once on an accelerator; on a CPU blocks of equal size, a thread for each core."""
    n = len(starts)
    workers = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    size = n if how == "vmap" else min(BLOCK, math.ceil(n / workers))
    if how == "vmap":
        options = dataclasses.replace(options, memory=max(2**20, options.memory // n))

    def one_block(first: int) -> list[Outcome]:
        # The last block is filled up with its last problem, so that all have one shape.
        index = np.minimum(np.arange(first, first + size), n - 1)
        outcomes = _solve_block(_problem(target, index), starts[index], options, fixed, how)
        kept = outcomes[: n - first]
        report(len(kept))
        return kept

    firsts = list(range(0, n, size))
    # The first block compiles; the others find compiled code.
    done = [one_block(firsts[0])]
    with ThreadPoolExecutor(workers) as pool:
        done += pool.map(one_block, firsts[1:])
    return [outcome for block in done for outcome in block]


def _solve_block(
    target: Target, starts: np.ndarray, options: Options, fixed: Rule | None, how: str
) -> list[Outcome]:
    """`solve` for a batch: the same steps in the same order, on stacked arrays."""
    _engine.forget_if_many()
    n, begin = len(starts), target.theta
    with precision_scope(options.dtype):
        target = dataclasses.replace(target, data=jax.device_put(target.data))
        found, tuned, numbers = _engine.laplace_batch(
            target, starts, how=how, **options.mode_search
        )
        target = target.at(tuned.theta)
        laplace_numbers = [LaplaceNumbers.fetched(row) for row in np.asarray(numbers)]
        ok = np.array([one.code is Code.OK for one in laplace_numbers])
        adapted, again = None, ~ok
        seen: list[Judged | None] = [None] * n
        fixed_of, name = [fixed] * n, options.family_name
        if options.family is not None and fixed is not None:
            settled = np.asarray(tuned.code) == Code.OK
            again, seen = _alone(target, found, laplace_numbers, ok, settled, options, how)
            if options.climbs or options.by_stein:
                name, fixed_of = "laplace", [None] * n
            else:
                seen = [None] * n
                adapted, fixed_of, seen, unsolved = _adapt_block(
                    target, found, tuned, ok & ~again, options, options.family, fixed, how
                )
                again = again | unsolved
        elsewhere = [Elsewhere()] * n
        if options.diagnostics:
            fitted, mean, root = target, found.mode, found.root.matrix
            if adapted is not None:
                fitted, mean, root = target.at(adapted.theta), adapted.mean, adapted.root
            seen = [None if gone else one for gone, one in zip(again, seen, strict=True)]
            unseen = ~again & [one is None for one in seen]
            if unseen.any():
                judged = _judge_block(fitted, mean, root, unseen, options, how)
                seen = [old or new for old, new in zip(seen, judged, strict=True)]
            seen = _look_wider_block(fitted, mean, root, seen, options, how)
            elsewhere = _look_around_block(
                target, found, laplace_numbers, mean, root, seen, options, how
            )
        found, tuned, adapted, data = jax.device_get((found, tuned, adapted, target.data))
    target = dataclasses.replace(target, data=data, theta=tuned.theta)
    outcomes = []
    for i in range(n):
        its = jtu.tree_map(lambda leaf: leaf[i], (found, tuned, adapted))  # noqa: B023
        case = Case(_problem(target, i), starts[i], options, its[0], its[1], laplace_numbers[i])
        if not again[i]:
            choice = laplace_is_enough(seen[i]) if options.climbs else ""
            fitted = Fitted(name, its[2], fixed_of[i], seen[i], choice=choice)
            outcomes.append(finish(case, fitted, elsewhere[i]))
        elif how == "vmap" or ok[i] or options.family is not None:
            # The batch leaves rescue operations out: what they would have saved is tried alone.
            outcomes.append(solve(case.target.at(begin[i]), starts[i], options, fixed))
        else:
            outcomes.append(failure(case))
    return outcomes


def _alone(
    target: Target,
    found: Laplace,
    numbers: list[LaplaceNumbers],
    ok: np.ndarray,
    settled: np.ndarray,
    options: Options,
    how: str,
) -> tuple[np.ndarray, list[Judged | None]]:
    """Which problems need more than a family around their mode (Stein steps, several starts), and
    what fresh draws say of their Laplace Gaussians where that decides it."""
    n = len(ok)
    if options.n_restarts or options.anchor == "average":
        return np.ones(n, bool), [None] * n
    if not options.climbs and (options.by_stein or options.anchor == "mode"):
        return np.full(n, options.by_stein) | ~ok, [None] * n
    seen = _judge_block(target, found.mode, found.root.matrix, ok, options, how)
    want = [
        one is None
        or (
            one.diagnosis.kl >= GAIN or not settled[i]
            if options.climbs
            else is_poor(numbers[i], one)
        )
        for i, one in enumerate(seen)
    ]
    return np.array(want), seen


def _adapt_block(
    target: Target,
    found: Laplace,
    tuned: Tuned,
    ok: np.ndarray,
    options: Options,
    family: Family,
    fixed: Rule,
    how: str,
) -> tuple[Any, list[Rule], list[Judged | None], np.ndarray]:
    """`_fit._adapt` for a batch; while there are more draws or nodes for some, the others wait.
    The last array says which problems want to be solved alone."""
    n, dim = len(ok), target.structure.size
    points = options.points(fixed, dim)
    adapted = _engine.climb_batch(
        target, found, tuned, points, family, how=how, **options.bound_search
    )
    active = ok & (options.draws is None)
    if isinstance(fixed, Quadrature):
        return _enough_nodes_block(target, found, adapted, active, options, family, fixed, how)
    enough = _enough_draws_block(target, found, adapted, active, options, family, fixed, how)
    return *enough, np.zeros(n, bool)


def _enough_nodes_block(
    target: Target,
    found: Laplace,
    adapted: Adapted,
    active: np.ndarray,
    options: Options,
    family: Family,
    fixed: Quadrature,
    how: str,
) -> tuple[Adapted, list[Rule], list[Judged | None], np.ndarray]:
    """`_fit._enough_nodes` for a batch; what returns to draws is solved alone."""
    n = len(active)
    fixed_of: list[Rule] = [fixed] * n
    while True:
        rules = (one.make(options.dtype) for one in (fixed, fixed.doubled()))
        fitted = target.at(adapted.theta)
        errors = _engine.nodes_error_batch(fitted, adapted.mean, adapted.root, *rules, how=how)
        active = active & ~(np.asarray(errors) <= _judge.NODES_TOL)
        if not active.any() or fixed.n >= _judge.MOST_NODES:
            return adapted, fixed_of, [None] * n, active
        fixed = fixed.doubled()
        adapted = _engine.resume_batch(
            target,
            found,
            options.points(fixed, target.structure.size),
            family,
            adapted,
            active,
            how=how,
            **options.bound_search,
        )
        for i in np.flatnonzero(active):
            fixed_of[i] = fixed


def _enough_draws_block(
    target: Target,
    found: Laplace,
    adapted: Adapted,
    active: np.ndarray,
    options: Options,
    family: Family,
    fixed: Draws,
    how: str,
) -> tuple[Adapted, list[Rule], list[Judged | None]]:
    """`_fit._enough_draws` for a batch."""
    n, dim = len(active), target.structure.size
    fixed_of: list[Rule] = [fixed] * n
    seen: list[Judged | None] = [None] * n
    for _ in range(MOST_DOUBLINGS):
        numbers = [AdaptedNumbers.fetched(row) for row in np.asarray(adapted.numbers)]
        active &= [one.code is Code.OK for one in numbers]
        if not active.any():
            break
        fitted = target.at(adapted.theta)
        judged = _judge_block(fitted, adapted.mean, adapted.root, active, options, how)
        for i in np.flatnonzero(active):
            seen[i] = its = judged[i]
            active[i] = its is not None and _judge.wants_more_draws(numbers[i].elbo, fixed.n, its)
        if not active.any() or 16 * fixed.n * dim > options.memory // 4:
            break
        fixed = fixed.doubled()
        again = _engine.resume_batch(
            target,
            found,
            options.points(fixed, dim),
            family,
            adapted,
            active,
            how=how,
            **options.bound_search,
        )
        codes = np.asarray(again.numbers)[:, -1].astype(int)
        active &= codes != Code.NON_FINITE_DRAWS
        adapted = jax.tree.map(functools.partial(_chosen, active), again, adapted)
        for i in np.flatnonzero(active):
            fixed_of[i], seen[i] = fixed, None
    return adapted, fixed_of, seen


def _chosen(take: np.ndarray, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(take.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)


def _judge_block(
    target: Target, mean: Any, root: Any, wanted: np.ndarray, options: Options, how: str
) -> list[Judged | None]:
    z = _judge.fresh_draws(options, target.structure.size)
    log_p = _engine.log_densities_batch(target, mean, root, z, memory=options.memory, how=how)
    rows = zip(wanted, np.asarray(log_p), np.asarray(root), strict=True)
    return [_judge.judged(z, *arrays) if judge else None for judge, *arrays in rows]


def _look_wider_block(
    target: Target, mean: Any, root: Any, seen: list[Judged | None], options: Options, how: str
) -> list[Judged | None]:
    """`_fit._look_wider` for a batch."""
    wanted = [one is not None and one.diagnosis.wants_wider for one in seen]
    if not any(wanted):
        return seen
    z = _judge.wider_draws(options, target.structure.size)
    log_p = _engine.log_densities_batch(target, mean, root, z, memory=options.memory, how=how)
    rows = zip(seen, wanted, np.asarray(log_p), np.asarray(root), strict=True)
    return [
        _judge.with_wider(one, z, *arrays) if one is not None and wants else one
        for one, wants, *arrays in rows
    ]


def _look_around_block(
    target: Target,
    found: Laplace,
    numbers: list[LaplaceNumbers],
    mean: Any,
    root: Any,
    judged: list[Judged | None],
    options: Options,
    how: str,
) -> list[Elsewhere]:
    """`_fit._look_around` for a batch: round k climbs from every problem's k-th probe."""
    n, z = len(judged), _judge.probes(options, target.structure.size)
    if z is None:
        return [Elsewhere()] * n
    ok = [one is not None and not one.diagnosis.n_non_finite for one in judged]

    def log_p(at: np.ndarray) -> np.ndarray:
        values = _engine.log_densities_batch(
            target, found.mode, found.root.matrix, at, memory=options.memory, how=how
        )
        return np.asarray(values, dtype=np.float64)

    seen = log_p(z)
    far = [_judge.surprising(z, seen[i], numbers[i]) if ok[i] else z[:0] for i in range(n)]
    if not any(map(len, far)):
        return [Elsewhere()] * n
    filled = [np.resize(one, (_judge.MOST_CLIMBS, z.shape[1])) for one in far]
    along = log_p(np.stack([_judge.rays(one) for one in filled]))
    climbs = [
        _judge.worth_climbing(one, row[: len(one) * len(_judge.FRACTIONS)], its_numbers)
        for one, row, its_numbers in zip(far, along, numbers, strict=True)
    ]

    def evidence(one: Judged, its_numbers: LaplaceNumbers) -> float:
        return one.diagnosis.elbo.value if target.theta.size == 0 else its_numbers.log_evidence

    mode, matrix = np.asarray(found.mode), np.asarray(found.root.matrix)
    modes = [
        [Mode(mode[i], matrix[i], numbers[i].log_evidence)] if len(far[i]) else [] for i in range(n)
    ]
    for k in range(max(map(len, climbs))):
        starts = mode.copy()
        going = [i for i in range(n) if k < len(climbs[i])]
        for i in going:
            starts[i] += matrix[i] @ climbs[i][k]
        other, _, rows = _engine.laplace_batch(target, starts, how=how, **options.other_modes)
        place, its_root, rows = (np.asarray(part) for part in (other.mode, other.root.matrix, rows))
        for i in going:
            its_numbers = LaplaceNumbers.fetched(rows[i])
            if its_numbers.code is Code.OK:
                modes[i].append(Mode(place[i], its_root[i], its_numbers.log_evidence))
    return [
        _judge.elsewhere(z, row, its_modes, evidence(one, its_numbers), m, r)
        if its_modes and one is not None
        else Elsewhere()
        for row, its_modes, one, its_numbers, m, r in zip(
            seen, modes, judged, numbers, np.asarray(mean), np.asarray(root), strict=True
        )
    ]
