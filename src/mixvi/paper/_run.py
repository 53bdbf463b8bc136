"""One set of one experiment: its splits in blocks, every method on the same screened starts.

Rows are handed on as soon as a method is done with a block. What a block contains does not depend
on what is already there, so a run that was stopped ends with the same rows as one that was not.
"""

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .._fit._many import fit_many
from .._fit._posteriors import Posteriors
from ._evaluate import Gaussians, Scores, curve, diagnoses, scores
from ._figure1 import run_toy
from ._problems import Problems, problems, scaled
from ._results import Key, Record
from ._task import Clock, Emit, Task, job, reason

SCREENING_STEPS = 10
# The splits that choose the number of basis functions of a set: always these, whatever is asked.
CHOOSING = range(20)
# Joint LPD at more draws, on the first few splits: how far from converged it is.
TREND, TREND_SPLITS = (1_000, 10_000, 100_000), 3
# Splits in one batch: a CPU reports often, an accelerator likes to be full.
BLOCK_ON_CPU, BLOCK = 20, 100
# The longest first, so that no thread ends alone.
BY_COST = ("diag", "full", "auto", "lr", "eig", "mu", "laplace")


class _Block(NamedTuple):
    """Splits that run together, with what all methods share: the problems, and Laplace's posteriors
    with the hyperparameters and modes from which every family starts."""

    task: Task
    indices: tuple[int, ...]
    problems: Problems
    laplace: Posteriors
    laplace_clock: Clock
    hyper: PyTree
    init: np.ndarray


class _Attempt(NamedTuple):
    """One family from one start on a block: posteriors, their scores, and what it took."""

    posts: Posteriors
    judged: "_Judged | None"
    clock: Clock


def run_task(task: Task, done: set[Key], emit: Emit, threads: int) -> None:
    """Everything of the task that is not done. Families compile side by side in `threads`."""
    if task.experiment == "toy":
        return run_toy(task, done, emit)
    length = BLOCK_ON_CPU if jax.default_backend() == "cpu" else BLOCK
    blocks: dict[int, list[int]] = {}
    for split in task.splits:
        blocks.setdefault(split // length, []).append(split)
    todo = {
        tuple(indices): [
            method
            for method in task.methods
            if any(task.key(split, method) not in done for split in indices)
        ]
        for indices in blocks.values()
    }
    try:
        size = chosen_size(task, emit)
    except Exception as err:
        for indices, methods in todo.items():
            emit("rows", [task.failed(i, one, reason(err)) for one in methods for i in indices])
        return
    for indices, methods in todo.items():
        if methods:
            _run_block(task, indices, methods, size, emit, threads)


def _run_block(
    task: Task, indices: tuple[int, ...], methods: list[str], size: int, emit: Emit, threads: int
) -> None:
    clock = Clock()
    try:
        splits, n_classes = scaled(task.experiment, task.set, indices, task.settings)
        made = problems(splits, n_classes, task.settings.protocol, task.settings, indices, size)
        clock.lap("prepare")
        starts = screened(made)
        clock.lap("screen")
        emit("jobs", [job(task, "screening", indices, clock)])
        block = shared_part(task, indices, made, starts)
    except Exception as err:
        emit("rows", [task.failed(i, method, reason(err)) for method in methods for i in indices])
        return
    todo = {method: task.settings.families(method) for method in sorted(methods, key=BY_COST.index)}
    with ThreadPoolExecutor(threads) as pool:
        begun = {
            pool.submit(_attempt, block, family): (method, start)
            for method, its in todo.items()
            for start, family in its.items()
        }
        ended: dict[str, dict[str, _Attempt | str]] = {method: {} for method in todo}
        for future in as_completed(begun):
            method, start = begun[future]
            ended[method][start] = future.result()
            if len(ended[method]) == len(todo[method]):
                _hand_on(block, method, ended[method], emit)


def shared_part(
    task: Task, indices: tuple[int, ...], made: Problems, starts: "_Screened"
) -> _Block:
    """Laplace from the best start of each split: what all families begin with."""
    clock = Clock()
    found = fit_many(
        made.model.log_density,
        starts.init,
        family="laplace",
        data=made.data,
        hyper=starts.hyper,
        init_batched=True,
        hyper_batched=True,
        hyper_steps=task.settings.protocol.hyper_steps,
        diagnostics=False,
        progress=False,
    )
    # A problem that failed keeps what it was given; its families will say the same.
    hyper = jax.tree.map(lambda *leaves: np.stack(leaves), *(post.hyper for post in found))
    init = np.stack([post.start for post in found])
    clock.lap("fit")
    return _Block(task, indices, made, found, clock, hyper, init)


def _attempt(block: _Block, family: Any) -> _Attempt | str:
    """Or the reason why there is none: one method must not stop a run of hours."""
    clock = Clock()
    try:
        if family == "laplace":
            posts = block.laplace
            clock.add(block.laplace_clock)
        else:
            posts = _fitted(block, family)
            clock.lap("fit")
        judged = _judged(block, posts)
        clock.lap("evaluate")
        return _Attempt(posts, judged, clock)
    except Exception as err:
        return reason(err)


def _hand_on(block: _Block, method: str, attempts: dict[str, _Attempt | str], emit: Emit) -> None:
    """Rows of one method, the better of its starts for each split."""
    task, indices = block.task, block.indices
    # In the order of the protocol, not in that in which they happened to end: ties go to the first.
    in_order = {start: attempts[start] for start in task.settings.families(method)}
    whole = {start: one for start, one in in_order.items() if isinstance(one, _Attempt)}
    if not whole:
        why = next(str(one) for one in attempts.values())
        emit("rows", [task.failed(i, method, why) for i in indices])
        return
    clock = Clock()
    for one in whole.values():
        clock.add(one.clock)
    rows = []
    for k, split in enumerate(indices):
        tried = {start: _row(block, method, k, one) for start, one in whole.items()}
        start, row = _better(tried, method)
        row["seconds"] = {part: clock.seconds[part] / len(indices) for part in ("fit", "evaluate")}
        if task.experiment == "cauchy" and split == 0 and not row["failed"]:
            row["curve"] = _curve(block, whole[start].posts)
        rows.append(row)
    emit("rows", rows)
    emit("jobs", [job(task, method, indices, clock)])


def _fitted(block: _Block, family: Any) -> Posteriors:
    settings, made = block.task.settings, block.problems
    outputs = made.model.likelihood.n_outputs
    draws = settings.protocol.draws(outputs, settings.n_draws)
    return fit_many(
        made.model.log_density,
        block.init,
        family=family,
        data=made.data,
        hyper=block.hyper,
        init_batched=True,
        hyper_batched=True,
        draws=draws,
        **settings.protocol.search(family),
        key=settings.seed,
        diagnostics=False,
        progress=False,
        hyper_steps=1,  # Laplace's search is done: its derivatives there are all that is wanted
    )


# --- screening --------------------------------------------------------------------------------


class _Screened(NamedTuple):
    """The best start of each split: hyperparameters, mode, evidence."""

    hyper: PyTree
    init: np.ndarray
    evidence: np.ndarray


def screened(made: Problems) -> _Screened:
    """Ten steps from every start."""
    tried = [
        fit_many(
            made.model.log_density,
            made.init,
            family="laplace",
            data=made.data,
            hyper=start,
            hyper_batched=True,
            hyper_steps=SCREENING_STEPS,
            diagnostics=False,
            progress=False,
        )
        for start in made.starts
    ]
    evidence = np.stack([posts.log_evidence for posts in tried], axis=1)
    evidence = np.where(np.isfinite(evidence), evidence, -np.inf)
    best = [tried[k][i] for i, k in enumerate(evidence.argmax(1))]
    hyper = jax.tree.map(lambda *leaves: np.stack(leaves), *(post.hyper for post in best))
    return _Screened(hyper, np.stack([post.start for post in best]), evidence.max(1))


def chosen_size(task: Task, emit: Emit) -> int:
    """The number of basis functions with the highest evidence in sum over the first splits."""
    sizes = task.settings.sizes
    if task.size or len(sizes) == 1:
        return task.size or sizes[0]
    clock = Clock()
    splits, n_classes = scaled(task.experiment, task.set, CHOOSING, task.settings)
    sums = {}
    for size in sizes:
        # Bases are filled up to one shape, which Laplace's evidence does not notice.
        made = problems(
            splits, n_classes, task.settings.protocol, task.settings, CHOOSING, size, max(sizes)
        )
        clock.lap("prepare")
        sums[size] = screened(made).evidence.sum()
        clock.lap("screen")
    size = max(sums, key=lambda one: sums[one])
    emit("jobs", [job(task, "choosing", CHOOSING, clock) | {"size": size}])
    return size


# --- rows -------------------------------------------------------------------------------------


class _Judged(NamedTuple):
    scores: Scores
    diagnoses: list
    trend: np.ndarray | None


def _judged(block: _Block, posts: Posteriors) -> _Judged | None:
    """Scores of all; those of a failed problem are another one's and not used."""
    whole = [post for post in posts if np.isfinite(post.flat_mean).all()]
    if not whole:
        return None
    stand_ins = Posteriors(
        post if np.isfinite(post.flat_mean).all() else whole[0] for post in posts
    )
    fitted, settings = Gaussians.of(stand_ins), block.task.settings
    splits = np.array(block.indices)
    found = scores(block.problems, fitted, splits, (settings.n_predict,), settings.seed)
    trend, few = None, int((splits < TREND_SPLITS).sum())
    if few and block.task.trend:
        first = dataclasses.replace(
            block.problems,
            **{
                name: jax.tree.map(lambda leaf: leaf[:few], getattr(block.problems, name))
                for name in ("data", "shared", "test", "y_test", "y_scale")
            },
        )
        some = jax.tree.map(lambda leaf: leaf[:few], fitted)
        trend = scores(first, some, splits[:few], TREND, settings.seed).lpd
    return _Judged(found, diagnoses(block.problems, fitted, settings.seed), trend)


def _row(block: _Block, method: str, k: int, attempt: _Attempt) -> Record:
    task, split = block.task, block.indices[k]
    post, judged = attempt.posts[k], attempt.judged
    if judged is None or not np.isfinite(post.flat_mean).all():
        return task.failed(split, method, post.status)
    seen = judged.diagnoses[k].diagnosis
    row = task.row(split, method) | {
        "lpd": float(judged.scores.lpd[k, 0]),
        "pointwise": float(judged.scores.pointwise[k]),
        "error": float(judged.scores.error[k]),
        "error_draws": float(judged.scores.error_draws[k]),
        "elbo": seen.elbo.value,
        "elbo_se": seen.elbo.se,
        "elbo_fixed": math.nan if post.elbo_fixed is None else float(post.elbo_fixed),
        "khat": float(seen.khat),
        "laplace_evidence": float(post.log_evidence_laplace),
        "converged": bool(post.converged),
        "n_passes": int(post.stats.passes or post.stats.mode_steps),
        "n_basis": int(block.problems.shared["mask"][k].sum()),
        "n_train": int((block.problems.data["weight"][k] > 0).sum()),
        "n_test": int(block.problems.y_test.shape[1]),
        "hyper": {name: float(value) for name, value in post.hyper.items()},
        "status": post.status,
    }
    row["gap"] = row["elbo_fixed"] - row["elbo"]
    if judged.trend is not None and k < len(judged.trend):
        row["trend"] = {str(n): float(v) for n, v in zip(TREND, judged.trend[k], strict=True)}
    return row


def _better(tried: dict[str, Record], method: str) -> tuple[str, Record]:
    """The start with the higher bound and its row, which says beside it what the paper's rule, the
    better test score, would report."""
    fine = {start: row for start, row in tried.items() if not row["failed"]}
    if not fine:
        return next(iter(tried.items()))
    start = max(fine, key=lambda name: _bound(fine[name]))
    row = fine[start]
    if method == "diag":
        row["diag"] = {"start": start}
        if len(tried) > 1:
            by_test = max(fine.values(), key=lambda one: one["lpd"])
            row["diag"] |= {f"{name}_best_test": by_test[name] for name in ("lpd", "error")}
    return start, row


def _bound(row: Record) -> float:
    return row["elbo_fixed"] if math.isfinite(row["elbo_fixed"]) else -math.inf


def _curve(block: _Block, posts: Posteriors) -> Record:
    """For Figure 2."""
    split = block.problems
    mean, sd = curve(split, Gaussians.of(Posteriors([posts[0]])))
    grid = np.linspace(-10, 10, 200)
    scale, centre = float(split.y_scale[0]), float(split.y_centre[0])
    return {
        name: [round(float(v), 5) for v in values]
        for name, values in (("x", grid), ("mean", centre + scale * mean), ("sd", scale * sd))
    }
