"""The one place where fits are made: a task becomes rows.

Rows are handed on as soon as a method is done with a block of splits. What a block contains does
not depend on what is already there, so a run that was stopped ends with the same rows as one that
was not.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from mixvi import (
    MixviError,
    NotConvergedWarning,
    Posterior,
    Posteriors,
    fit,
    fit_many,
)

from . import toy
from .experiments import Key, Task
from .problems import GRID, Problems, families, options, problems, scaled, stacked
from .scores import Gaussians, Scores, curve, diagnoses, scores

Record = dict[str, Any]
Emit = Callable[[str, list[Record]], None]  # a kind ("rows" or "jobs") and its records

SCREENING_STEPS = 10
# The splits that choose the number of basis functions of a set: always these, whatever is asked.
CHOOSING = range(20)
# Joint LPD at more draws, on the first few splits: how far from converged it is.
TREND, TREND_SPLITS = (1_000, 10_000, 100_000), 3
# Splits in one batch: a CPU reports often, an accelerator likes to be full.
BLOCK_ON_CPU, BLOCK = 20, 100


def machine() -> dict[str, str]:
    """On what fits are computed."""
    return {"backend": jax.default_backend(), "device": jax.devices()[0].device_kind}


def run_task(task: Task, done: set[Key], emit: Emit) -> None:
    """Everything of the task that is not done."""
    if task.experiment == "toy":
        return _run_toy(task, done, emit)
    length = BLOCK_ON_CPU if jax.default_backend() == "cpu" else BLOCK
    blocks: dict[int, list[int]] = {}
    for split in task.splits:
        blocks.setdefault(split // length, []).append(split)
    for splits in blocks.values():
        methods = [
            method
            for method in task.methods
            if any(task.key(split, method) not in done for split in splits)
        ]
        if not methods:
            continue
        try:
            if not task.size:
                task = dataclasses.replace(task, size=chosen_size(task, emit))
            block = prepared(task, tuple(splits), emit)
        except Exception as err:
            emit("rows", [task.row(i, one, _reason(err)) for one in methods for i in splits])
            continue
        for method in methods:
            _run_method(block, method, emit)


def _reason(err: Exception) -> str:
    """What a failed row says. A mistake of ours must not stop a run of hours either."""
    return str(err) if isinstance(err, MixviError) else f"{type(err).__name__}: {err}"


# --- a block of splits ------------------------------------------------------------------------


class Block(NamedTuple):
    """Splits that run together, with what all methods share: the problems, and Laplace's posteriors
    with the hyperparameters and modes from which every family starts."""

    task: Task
    splits: tuple[int, ...]
    problems: Problems
    laplace: Posteriors
    laplace_seconds: float
    hyper: Any
    init: np.ndarray


class Screened(NamedTuple):
    """The best start of each split: hyperparameters, mode, evidence."""

    hyper: Any
    init: np.ndarray
    evidence: np.ndarray


def prepared(task: Task, splits: tuple[int, ...], emit: Emit) -> Block:
    """Screening, and Laplace from the best start of each split: what all families begin with."""
    clock, settings = Clock(), task.settings
    parts, n_classes = scaled(task.experiment, task.set, splits, settings)
    made = problems(parts, n_classes, settings, splits, task.size or settings.sizes[0])
    clock.lap("prepare")
    starts = screened(made)
    clock.lap("screen")
    emit("jobs", [_job(task, "screening", splits, clock)])
    found = fit_many(
        made.model.log_density,
        starts.init,
        family="laplace",
        data=made.data,
        hyper=starts.hyper,
        init_batched=True,
        hyper_batched=True,
        hyper_steps=settings.protocol.hyper_steps,
        diagnostics=False,
        progress=False,
    )
    # A problem that failed keeps what it was given; its families will say the same.
    hyper, init = stacked(post.hyper for post in found), np.stack([post.start for post in found])
    clock.lap("fit")
    return Block(task, splits, made, found, clock.seconds["fit"], hyper, init)


def screened(made: Problems) -> Screened:
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
    hyper, init = stacked(post.hyper for post in best), np.stack([post.start for post in best])
    return Screened(hyper, init, evidence.max(1))


def chosen_size(task: Task, emit: Emit) -> int:
    """The number of basis functions with the highest evidence in sum over the first splits."""
    settings, sizes = task.settings, task.settings.sizes
    if len(sizes) == 1:
        return sizes[0]
    clock = Clock()
    parts, n_classes = scaled(task.experiment, task.set, CHOOSING, settings)
    sums = {}
    for size in sizes:
        # Bases are filled up to one shape, which Laplace's evidence does not notice.
        made = problems(parts, n_classes, settings, CHOOSING, size, max(sizes))
        clock.lap("prepare")
        sums[size] = screened(made).evidence.sum()
        clock.lap("screen")
    size = max(sums, key=lambda one: sums[one])
    emit("jobs", [_job(task, "choosing", CHOOSING, clock) | {"size": size}])
    return size


def fitted(block: Block, family: Any) -> Posteriors:
    made = block.problems
    return fit_many(
        made.model.log_density,
        block.init,
        data=made.data,
        hyper=block.hyper,
        init_batched=True,
        hyper_batched=True,
        diagnostics=False,
        progress=False,
        hyper_steps=1,  # Laplace's search is done: its derivatives there are all that is wanted
        **options(block.task.settings, family, made.model.likelihood.n_outputs),
    )


# --- rows -------------------------------------------------------------------------------------


def _run_method(block: Block, method: str, emit: Emit) -> None:
    """Rows of one method, the better of its starts for each split."""
    task, splits, clock = block.task, block.splits, Clock()
    tried: dict[str, list[Record]] = {}
    for start, family in families(task.settings, method).items():
        try:
            if family == "laplace":
                posts = block.laplace
                clock.seconds["fit"] += block.laplace_seconds
            else:
                posts = fitted(block, family)
            clock.lap("fit")
            tried[start] = rows_of(block, method, posts)
        except Exception as err:
            tried[start] = [task.row(i, method, _reason(err)) for i in splits]
        clock.lap("evaluate")
    rows = []
    for k in range(len(splits)):
        row = better({start: its[k] for start, its in tried.items()}, method)
        each = {part: clock.seconds[part] / len(splits) for part in ("fit", "evaluate")}
        rows.append(row | {"seconds": each})
    emit("rows", rows)
    emit("jobs", [_job(task, method, splits, clock)])


def rows_of(block: Block, method: str, posts: Posteriors) -> list[Record]:
    """Scores of all; those of a failed problem are another one's and not used."""
    whole = [post for post in posts if np.isfinite(post.flat_mean).all()]
    if not whole:
        return [
            block.task.row(i, method, p.status) for i, p in zip(block.splits, posts, strict=True)
        ]
    fine = [post if np.isfinite(post.flat_mean).all() else whole[0] for post in posts]
    gaussians, settings, made = Gaussians.of(fine), block.task.settings, block.problems
    splits = np.array(block.splits)
    found = scores(made, gaussians, splits, (settings.n_predict,), settings.seed)
    seen = diagnoses(made, gaussians, settings.seed)
    few, trend = int((splits < TREND_SPLITS).sum()), np.empty((0, len(TREND)))
    if few and block.task.trend:
        some = jax.tree.map(lambda leaf: leaf[:few], gaussians)
        trend = scores(made.first(few), some, splits[:few], TREND, settings.seed).lpd
    rows = []
    for k, post in enumerate(posts):
        if post is not fine[k]:
            rows.append(block.task.row(block.splits[k], method, post.status))
            continue
        row = _row(block, method, k, post, found, seen[k].diagnosis)
        if k < len(trend):
            row["trend"] = {str(n): float(v) for n, v in zip(TREND, trend[k], strict=True)}
        if block.task.experiment == "cauchy" and block.splits[k] == 0:
            row["curve"] = _curve(block, post)
        rows.append(row)
    return rows


def _row(
    block: Block, method: str, k: int, post: Posterior, found: Scores, diagnosis: Any
) -> Record:
    made, fixed = block.problems, post.elbo_fixed
    elbo_fixed = math.nan if fixed is None else float(fixed)
    return block.task.row(block.splits[k], method) | {
        "lpd": float(found.lpd[k, 0]),
        "pointwise": float(found.pointwise[k]),
        "error": float(found.error[k]),
        "error_draws": float(found.error_draws[k]),
        "elbo": diagnosis.elbo.value,
        "elbo_se": diagnosis.elbo.se,
        "elbo_fixed": elbo_fixed,
        "khat": float(diagnosis.khat),
        "laplace_evidence": float(post.log_evidence_laplace),
        "converged": bool(post.converged),
        "n_passes": int(post.stats.passes or post.stats.mode_steps),
        "n_basis": int(made.shared["mask"][k].sum()),
        "n_train": int((made.data["weight"][k] > 0).sum()),
        "n_test": int(made.y_test.shape[1]),
        "hyper": {name: float(value) for name, value in post.hyper.items()},
        "status": post.status,
        "gap": elbo_fixed - diagnosis.elbo.value,
    }


def better(tried: dict[str, Record], method: str) -> Record:
    """The start with the higher bound, the first of equals; its row says beside it what the paper's
    rule, the better test score, would report."""
    fine = {start: row for start, row in tried.items() if not row["failed"]}
    if not fine:
        return next(iter(tried.values()))
    bounds = {start: row["elbo_fixed"] for start, row in fine.items()}
    start = max(bounds, key=lambda one: bounds[one] if math.isfinite(bounds[one]) else -math.inf)
    row = fine[start]
    if method == "diag":
        row["diag"] = {"start": start}
        if len(tried) > 1:
            by_test = max(fine.values(), key=lambda one: one["lpd"])
            row["diag"] |= {f"{name}_best_test": by_test[name] for name in ("lpd", "error")}
    return row


def _curve(block: Block, post: Posterior) -> Record:
    """For Figure 2."""
    made = block.problems
    mean, sd = curve(made, Gaussians.of([post]))
    scale, centre = float(made.y_scale[0]), float(made.y_centre[0])
    parts = {"x": GRID[:, 0], "mean": centre + scale * mean, "sd": scale * sd}
    return {name: [round(float(v), 5) for v in values] for name, values in parts.items()}


# --- the two-dimensional example --------------------------------------------------------------


def _run_toy(task: Task, done: set[Key], emit: Emit) -> None:
    """Every method that is not done; of the two starts of VI_diag the one that ends closer."""
    for method in task.methods:
        if task.key(0, method) in done:
            continue
        clock, tried = Clock(), []
        for family in families(task.settings, method).values():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", NotConvergedWarning)  # rows say so themselves
                    how = options(task.settings, family, 1)
                    post = fit(toy.log_density, np.zeros(2), throw=False, **how)
                tried.append(_toy_row(task, method, post))
            except Exception as err:
                tried.append(task.row(0, method, _reason(err)))
        clock.lap("fit")
        row = min(tried, key=lambda one: one.get("kl", math.inf))
        emit("rows", [row | {"seconds": {"fit": clock.seconds["fit"], "evaluate": 0.0}}])
        emit("jobs", [_job(task, method, (0,), clock)])


def _toy_row(task: Task, method: str, post: Posterior) -> Record:
    if post.elbo is None or not np.isfinite(post.flat_mean).all():
        return task.row(0, method, post.status)
    numbers = {"elbo_fixed": post.elbo_fixed, "gap": post.gap, "khat": post.khat}
    root = np.diag(post.root) if post.root.ndim == 1 else post.root
    return task.row(0, method) | {
        "kl": toy.kl(post.flat_mean, root),
        "mean": post.flat_mean.tolist(),
        "cov": post.cov.tolist(),
        "elbo": post.elbo.value,
        "elbo_se": post.elbo.se,
        **{name: math.nan if one is None else float(one) for name, one in numbers.items()},
        "converged": bool(post.converged),
        "n_passes": int(post.stats.passes or 0),
        "status": post.status,
    }


# --- time -------------------------------------------------------------------------------------


class Clock:
    """Seconds of each part of a job."""

    def __init__(self):
        self.seconds = {"prepare": 0.0, "screen": 0.0, "fit": 0.0, "evaluate": 0.0}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """What has passed since the last lap went into this part."""
        now = time.perf_counter()
        self.seconds[part] += now - self._last
        self._last = now


def _job(task: Task, method: str, splits: Sequence[int], clock: Clock) -> Record:
    """What some splits of a method took."""
    names = dict(zip(("protocol", "experiment", "set"), task.name, strict=True))
    return {
        "run": task.run,
        **names,
        "method": method,
        "splits": [splits[0], splits[-1] + 1],
        "n_splits": len(splits),
        "seconds": {part: round(value, 4) for part, value in clock.seconds.items()},
        "backend": jax.default_backend(),
    }
