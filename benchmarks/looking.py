"""What looking for other modes costs, as a share of the fit, in 5 to 300 dimensions.

Three kinds of posterior with one mode: log-concave (logistic regression), not log-concave (robust
regression, Student-t noise), and hierarchical (non-centred groups). Warm fits, process time, median
of five; a value counts as a third of a gradient.
"""

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import mixvi
from mixvi._fit import _solve

DIMS, REPEATS = (5, 20, 100, 300), 5


def logistic(dim: int) -> tuple[Callable, Any, Any]:
    rng = np.random.default_rng(dim)
    x = rng.standard_normal((10 * dim, dim)) / np.sqrt(dim)
    y = (rng.random(10 * dim) < 1 / (1 + np.exp(-x @ rng.normal(0, 2, dim)))).astype(float)

    def log_density(w, data):
        eta = data["x"] @ w
        return (data["y"] * eta - jnp.logaddexp(0.0, eta)).sum() - 0.5 * w @ w / 4

    return log_density, np.zeros(dim), {"x": x, "y": y}


def robust(dim: int) -> tuple[Callable, Any, Any]:
    rng = np.random.default_rng(dim)
    x = rng.standard_normal((10 * dim, dim - 1)) / np.sqrt(dim)
    y = x @ rng.normal(0, 2, dim - 1) + 0.5 * rng.standard_t(4, 10 * dim)

    def log_density(w, data):
        away = (data["y"] - data["x"] @ w["beta"]) / jnp.exp(w["log_sd"])
        fit = (-2.5 * jnp.log1p(away**2 / 4) - w["log_sd"]).sum()
        return fit - 0.5 * (w["beta"] @ w["beta"] / 4 + w["log_sd"] ** 2)

    return log_density, {"beta": np.zeros(dim - 1), "log_sd": 0.0}, {"x": x, "y": y}


def groups(dim: int) -> tuple[Callable, Any, Any]:
    rng = np.random.default_rng(dim)
    y = rng.normal(1.0, 0.7, (dim - 2, 1)) + rng.standard_normal((dim - 2, 5))

    def log_density(w, y):
        theta = w["mu"] + jnp.exp(w["log_tau"]) * w["z"]
        prior = w["mu"] ** 2 / 9 + w["log_tau"] ** 2 + w["z"] @ w["z"]
        return -0.5 * (prior + ((y - theta[:, None]) ** 2).sum())

    return log_density, {"mu": 0.0, "log_tau": 0.0, "z": np.zeros(dim - 2)}, y


class Spent:
    """Process time, gradients and values in one function of the engine."""

    def __init__(self, name: str):
        self.inner, self.name = getattr(_solve, name), name
        self.seconds, self.gradients, self.values = 0.0, 0, 0
        setattr(_solve, name, self)

    def __call__(self, density: Any, *args: Any, **more: Any) -> Any:
        began, cost, values = time.process_time(), density.cost, density.n_values
        found = self.inner(density, *args, **more)
        self.seconds += time.process_time() - began
        self.gradients += density.cost - cost
        self.values += density.n_values - values
        return found


def main() -> None:
    warnings.simplefilter("ignore")
    looking, judging = Spent("searched_elsewhere"), Spent("with_moments")
    head = ("posterior", "D", "fit, ms", "looking, of the rest", "gradients", "values", "judging")
    print(f"| {' | '.join(head)} |")
    print("|---|---|---|---|---|---|---|")
    for make in (logistic, robust, groups):
        for dim in DIMS:
            problem = make(dim)
            mixvi.fit(*problem)
            rows = []
            for _ in range(REPEATS):
                looking.seconds = judging.seconds = 0.0
                looking.gradients = looking.values = judging.values = 0
                began = time.process_time()
                post = mixvi.fit(*problem)
                whole = time.process_time() - began
                rows.append(
                    (whole, looking.seconds / (whole - looking.seconds), judging.seconds / whole)
                )
            whole, looks, judges = (statistics.median(column) for column in zip(*rows, strict=True))
            others = f" ({len(post.modes) - 1} other modes!)" if len(post.modes) > 1 else ""
            print(
                f"| {make.__name__}{others} | {dim} | {1e3 * whole:.1f} | {looks:.0%} | "
                f"{looking.gradients} of {post.stats.gradients} | {looking.values} of "
                f"{post.stats.values} | {judges:.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
