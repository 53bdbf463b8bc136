"""Stein steps against quasi-Newton (BFGS, L-BFGS above 2000 free numbers) for the whole covariance.

Logistic regressions with three rows a dimension and prior N(0, I), from the mode, on the same 4 D
matched draws (256 at least), to the same tolerance. Warm CPU time of one fit after one that
compiled, without diagnostics; the bound on fresh draws with its standard error.
"""

import sys
import time
import warnings

import jax.numpy as jnp
import numpy as np

import mixvi


def log_density(w, data):
    x, sign = data
    return -jnp.logaddexp(0.0, -sign * (x @ w)).sum() - 0.5 * w @ w


def problem(dim: int):
    rng = np.random.default_rng(dim)
    x = rng.standard_normal((3 * dim, dim)) / np.sqrt(dim) * 3
    sign = np.where(
        rng.random(3 * dim) < 1 / (1 + np.exp(-x @ rng.standard_normal(dim))), 1.0, -1.0
    )
    return x, sign


def row(dim: int, optimiser: str) -> str:
    data, draws = problem(dim), max(256, 4 * dim)
    options = {"optimiser": optimiser, "draws": draws, "anchor": "mode"}
    mixvi.fit(log_density, np.zeros(dim), family="full", data=data, diagnostics=False, **options)
    began = time.process_time()
    mixvi.fit(log_density, np.zeros(dim), family="full", data=data, diagnostics=False, **options)
    spent = time.process_time() - began
    post = mixvi.fit(
        log_density, np.zeros(dim), family="full", data=data, diagnostics=20_000, **options
    )
    ended = "" if post.converged else " (not converged)"
    return (
        f"| {dim} | {optimiser} | {post.stats.passes}{ended} | {spent:.2f} | {post.elbo} | "
        f"{post.elbo_fixed - post.elbo.value:+.3f} |"
    )


def main() -> None:
    warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
    print(
        "Logistic regressions, 3 D rows, from the mode, 4 D matched draws (256 at least), to the "
        "same tolerance; CPU time of one warm fit.\n"
    )
    print("| D | optimiser | passes | CPU s | ELBO on fresh draws | fixed minus fresh |")
    print("|---|---|---|---|---|---|")
    for dim in map(int, sys.argv[1:] or ("10", "100", "250", "1000")):
        for optimiser in ("stein", "bfgs"):
            print(row(dim, optimiser), flush=True)


if __name__ == "__main__":
    main()
