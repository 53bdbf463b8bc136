"""Figure 1: one known density in two dimensions, every method, KL by quadrature."""

import math
import warnings

import numpy as np

from .._errors import NotConvergedWarning
from .._fit import fit
from .._fit._posterior import Posterior
from ..paper import toy
from ._results import Key, Record
from ._task import Clock, Emit, Task, job, reason


def run_toy(task: Task, done: set[Key], emit: Emit) -> None:
    """Every method that is not done; of the two starts of VI_diag the one that ends closer."""
    settings = task.settings
    draws = settings.protocol.draws(1, settings.n_draws)
    for method in task.methods:
        if task.key(0, method) in done:
            continue
        clock, tried = Clock(), {}
        for start, family in settings.families(method).items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", NotConvergedWarning)  # rows say so themselves
                    post = fit(
                        toy.log_density,
                        np.zeros(2),
                        family=family,
                        draws=draws,
                        **settings.protocol.search(family),
                        key=settings.seed,
                        throw=False,
                    )
                tried[start] = _toy_row(task, method, post)
            except Exception as err:
                tried[start] = task.failed(0, method, reason(err))
        clock.lap("fit")
        row = max(tried.values(), key=lambda one: -one.get("kl", math.inf))
        emit("rows", [row | {"seconds": {"fit": clock.seconds["fit"], "evaluate": 0.0}}])
        emit("jobs", [job(task, method, (0,), clock)])


def _toy_row(task: Task, method: str, post: Posterior) -> Record:
    if post.elbo is None or not np.isfinite(post.flat_mean).all():
        return task.failed(0, method, post.status)
    root = np.diag(post.root) if post.root.ndim == 1 else post.root
    return task.row(0, method) | {
        "kl": float(toy.kl(post.flat_mean, root)),
        "mean": post.flat_mean.tolist(),
        "cov": post.cov.tolist(),
        "elbo": post.elbo.value,
        "elbo_se": post.elbo.se,
        "elbo_fixed": math.nan if post.elbo_fixed is None else float(post.elbo_fixed),
        "gap": math.nan if post.gap is None else float(post.gap),
        "khat": math.nan if post.khat is None else float(post.khat),
        "converged": bool(post.converged),
        "n_passes": int(post.stats.passes or 0),
        "status": post.status,
    }
