"""The one place where fits are made: a task becomes rows, one split at a time.

Rows are handed on as soon as a split is done. What a split gives does not depend on what is already
there, so a run that was stopped ends with the same rows as one that was not.
"""

import dataclasses
import functools
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mixvi import InputError, MeanField, MixviError, NotConvergedWarning, Posterior, fit
from mixvi._approximate._evidence import is_usable, tuned_laplace
from mixvi._approximate._laplace import Laplace
from mixvi._fit._threads import one_blas_thread
from mixvi.models import Model, ModelDensity
from mixvi.models._choose import candidate

from . import toy
from .experiments import EXPERIMENTS, Key, Task
from .problems import Split, families, model_of, options, split_of, starts_of
from .scores import curve, diagnosis, scores

Record = dict[str, Any]
Emit = Callable[[str, list[Record]], None]  # a kind ("rows" or "jobs") and its records

SCREENING_STEPS = 10
# The splits that choose the number of basis functions of a set: always these, whatever is asked.
CHOOSING = 20
# Nats by which two bounds of one Gaussian may differ, found from two starts.
SAME_BOUND = 1e-3
# Joint LPD at more draws, on the first few splits: how far from converged it is.
TREND, TREND_SPLITS = (1_000, 10_000, 100_000), 3


def machine() -> dict[str, str]:
    """On what fits are computed."""
    return {"backend": "numpy", "device": f"{platform.machine()}, {os.cpu_count()} cores"}


def run_task(task: Task, done: set[Key], emit: Emit) -> None:
    """Everything of the task that is not done. Its number of basis functions is chosen."""
    with one_blas_thread(0), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # rows say so themselves
        if task.experiment == "toy":
            return _run_toy(task, done, emit)
        for split in task.splits:
            methods = [one for one in task.methods if task.key(split, one) not in done]
            if methods:
                _run_split(task, split, methods, emit)


def _reason(err: Exception) -> str:
    """What a failed row says. A mistake of ours must not stop a run of hours either."""
    return str(err) if isinstance(err, MixviError) else f"{type(err).__name__}: {err}"


# --- a split ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """What all methods of a split share: Laplace at the hyperparameters with the highest evidence.
    `density` is taken there."""

    task: Task
    index: int
    split: Split
    model: Model
    density: ModelDensity
    found: Laplace
    seconds: float


def _run_split(task: Task, index: int, methods: Sequence[str], emit: Emit) -> None:
    clock = Clock()
    try:
        split = split_of(task.experiment, task.set, index, task.settings)
        size = task.size or task.settings.sizes[0]
        model, density = _density(task, split, size)
        clock.lap("prepare")
        starts = starts_of(model, density.shared, task.settings, index, size)
        density, found = tuned(density, starts, task.settings.protocol.hyper_steps)
        clock.lap("screen")
    except Exception as err:
        emit("rows", [task.row(index, one, _reason(err)) for one in methods])
        return
    case = Case(task, index, split, model, density, found, clock.seconds["screen"])
    jobs, rows = [_job(task, "screening", index, clock)], []
    for method in methods:
        clock = Clock()
        rows.append(_method(case, method, clock))
        jobs.append(_job(task, method, index, clock))
    emit("rows", rows)
    emit("jobs", jobs)


def _density(task: Task, split: Split, size: int) -> tuple[Model, ModelDensity]:
    model = model_of(split, task.experiment, task.settings, size)
    density = model.density(split.x, split.y, seed=task.settings.seed)
    if task.settings.protocol.iid_draws is not None:
        density = density.on_accelerator() if has_accelerator() else density.in_single()
    return model, density


@functools.cache
def has_accelerator() -> bool:
    import jax

    return jax.default_backend() != "cpu"


def tuned(
    density: ModelDensity, starts: Sequence[dict[str, Any]], steps: int
) -> tuple[ModelDensity, Laplace]:
    """Ten steps from every start, then on from the best."""
    near, best = density.init.ravel(), None
    for start in starts:
        theta = density.flat(density.hyper | start)
        end = tuned_laplace(density, near, theta, "raise", SCREENING_STEPS, look_beyond=False)
        if is_usable(end[0]) and (best is None or end[0].log_evidence > best[0].log_evidence):
            best = end
    if best is None:
        raise InputError("no start of the hyperparameters has a mode.")
    found, at = best
    found, at = tuned_laplace(density, found.mode, at.theta, "raise", steps, look_beyond=False)
    return density.at(at.theta), found


def has_sizes(task: Task) -> bool:
    """Whether a number of basis functions has to be chosen."""
    return task.experiment not in ("toy", "robust_gp") and len(task.settings.sizes) > 1


def choose(task: Task, emit: Emit) -> None:
    """One number of basis functions for all splits of a set, by the training rows of the first: by
    leave-one-out log predictive density or, as in the paper, by evidence. Where that fails, so have
    all its rows."""
    try:
        emit("jobs", [_chosen(task)])
    except Exception as err:
        why = f"no number of basis functions was chosen: {_reason(err)}"
        pairs = [(split, one) for split in task.splits for one in task.methods]
        emit("rows", [task.row(split, one, why) for split, one in pairs])


def _chosen(task: Task) -> Record:
    clock, settings = Clock(), task.settings
    worth = _by_left_out if settings.protocol.choose_by == "loo" else _by_evidence
    found = []
    with one_blas_thread(0):
        for index in range(min(CHOOSING, EXPERIMENTS[task.experiment].splits_of(task.set))):
            split = split_of(task.experiment, task.set, index, settings)
            clock.lap("prepare")
            found.append(worth(task, split, index))
            clock.lap("screen")
    # Gains of every size over every other one, and their standard errors: means over the splits.
    gains, ses = (np.mean(one, axis=0) for one in zip(*found, strict=True))
    best = 0
    for k in range(1, len(settings.sizes)):
        if gains[k, best] > ses[k, best]:
            best = k
    size = settings.sizes[best]
    told = {str(n): float(gain) for n, gain in zip(settings.sizes, gains[:, 0], strict=True)}
    return _job(task, "choosing", 0, clock) | {"size": size, "gains": told}


def _by_left_out(task: Task, split: Split, index: int) -> tuple[np.ndarray, np.ndarray]:
    """A larger number must gain more than one standard error of a training set."""
    del index
    settings = task.settings
    its = [
        candidate(model_of(split, task.experiment, settings, size), split.data, None, settings.seed)
        for size in settings.sizes
    ]
    pairs = np.array([[one.loo.gain_over(other.loo) for other in its] for one in its])
    return pairs[..., 0], pairs[..., 1]


def _by_evidence(task: Task, split: Split, index: int) -> tuple[np.ndarray, np.ndarray]:
    evidence = []
    for size in task.settings.sizes:
        model, density = _density(task, split, size)
        starts = starts_of(model, density.shared, task.settings, index, size)
        evidence.append(tuned(density, starts, SCREENING_STEPS)[1].log_evidence)
    gains = np.subtract.outer(evidence, evidence)
    return gains, np.zeros_like(gains)


# --- rows -------------------------------------------------------------------------------------


def _method(case: Case, method: str, clock: "Clock") -> Record:
    """The row of one method, of the better of its starts. Starts that end at the same bound have
    found the same Gaussian, and are scored once."""
    tried: dict[str, Record] = {}
    ends: list[tuple[float, Record]] = []
    for start, family in families(case.task.settings, method).items():
        try:
            post = _fitted(case, family)
            clock.lap("fit")
            bound = math.nan if post.elbo_fixed is None else post.elbo_fixed
            known = [row for other, row in ends if abs(other - bound) < SAME_BOUND]
            tried[start] = known[0] | {"elbo_fixed": bound} if known else _row(case, method, post)
            ends.append((bound, tried[start]))
        except Exception as err:
            tried[start] = case.task.row(case.index, method, _reason(err))
        clock.lap("evaluate")
    if method == "laplace":
        clock.seconds["fit"] += case.seconds
    each = {part: round(clock.seconds[part], 4) for part in ("fit", "evaluate")}
    return better(tried, method) | {"seconds": each}


def _fitted(case: Case, family: Any) -> Posterior:
    """Hyperparameters are learnt by the family's own bound, from Laplace's on. In protocol `best`
    those of a mean field stay: its bound pays for every correlation that it lacks, falls short of
    the evidence by tens of nats, and would choose hyperparameters by what it cannot say."""
    density, settings = case.density, case.task.settings
    held = settings.protocol.hold_mean_field and isinstance(family, MeanField)
    return fit(
        density,
        case.found.mode.reshape(density.init.shape),
        hyper=None if held else density.hyper,
        diagnostics=False,
        throw=False,
        progress=False,
        hyper_steps=1,  # Laplace's search is done: its derivatives there are all that is wanted
        **options(settings, family, density.n_predictors),
    )


def _row(case: Case, method: str, post: Posterior) -> Record:
    task, settings, density = case.task, case.task.settings, case.density
    if not np.isfinite(post.flat_mean).all():
        return task.row(case.index, method, post.status)
    hyper = density.hyper if post.hyper is None else post.hyper
    density = density.at(density.flat(hyper))
    numbers = (settings.n_predict,)
    if task.trend and case.index < TREND_SPLITS:
        numbers = tuple(sorted({*numbers, *TREND}))
    key = [settings.seed, case.index]
    found = scores(case.split, case.model, density.shared, hyper, post, numbers, key)
    seen, fixed = diagnosis(density, post, settings.seed).diagnosis, post.elbo_fixed
    elbo_fixed = math.nan if fixed is None else float(fixed)
    row = task.row(case.index, method) | {
        "lpd": found.lpd[settings.n_predict],
        "pointwise": found.pointwise,
        "error": found.error,
        "error_draws": found.error_draws,
        "elbo": seen.elbo.value,
        "elbo_se": seen.elbo.se,
        "elbo_fixed": elbo_fixed,
        "khat": float(seen.khat),
        "laplace_evidence": float(case.found.log_evidence),
        "converged": bool(post.converged),
        "n_passes": int(post.stats.passes or post.stats.mode_steps),
        "n_basis": density.n_weights - 1,
        "n_train": len(case.split.y),
        "n_test": len(case.split.y_test),
        "hyper": {name: np.asarray(value).tolist() for name, value in hyper.items()},
        "status": post.status,
        "gap": elbo_fixed - seen.elbo.value,
    }
    if len(numbers) > 1:
        row["trend"] = {str(n): found.lpd[n] for n in TREND}
    if task.experiment == "cauchy" and case.index == 0:
        along = curve(case.split, case.model, density.shared, hyper, post)
        row["curve"] = {name: [round(float(v), 5) for v in one] for name, one in along.items()}
    return row


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


# --- the two-dimensional example --------------------------------------------------------------


def _run_toy(task: Task, done: set[Key], emit: Emit) -> None:
    """Every method that is not done; of the two starts of VI_diag the one that ends closer."""
    for method in task.methods:
        if task.key(0, method) in done:
            continue
        clock, tried = Clock(), []
        for family in families(task.settings, method).values():
            try:
                how = options(task.settings, family, 1)
                post = fit(toy.log_density, np.zeros(2), throw=False, **how)
                tried.append(_toy_row(task, method, post))
            except Exception as err:
                tried.append(task.row(0, method, _reason(err)))
        clock.lap("fit")
        row = min(tried, key=lambda one: one.get("kl", math.inf))
        emit("rows", [row | {"seconds": {"fit": clock.seconds["fit"], "evaluate": 0.0}}])
        emit("jobs", [_job(task, method, 0, clock)])


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
    """Seconds of each part of a job: of this process, whatever else the machine does meanwhile.
    Where an accelerator works for it, on the wall."""

    def __init__(self):
        self.seconds = {"prepare": 0.0, "screen": 0.0, "fit": 0.0, "evaluate": 0.0}
        self._now = time.perf_counter if has_accelerator() else time.process_time
        self._last = self._now()

    def lap(self, part: str) -> None:
        """What has passed since the last lap went into this part."""
        now = self._now()
        self.seconds[part] += now - self._last
        self._last = now


def _job(task: Task, method: str, split: int, clock: Clock) -> Record:
    """What a method took on a split."""
    names = dict(zip(("protocol", "experiment", "set"), task.name, strict=True))
    seconds = {part: round(value, 4) for part, value in clock.seconds.items()}
    about = {"method": method, "split": split, "n_splits": 1, "backend": "numpy"}
    return {"run": task.run, **names, **about, "seconds": seconds}
