"""One posterior from many starts: does the Gaussian depend on where the search began?

`two_latent_gp` of `posteriors.py`, which has no mode near its start: from zeros, and from zeros
plus half a standard normal, one start a seed. Bounds are on the same fresh pairs of draws, as many
as bring the standard error of every difference from the first below 0.003 nat (at most 2^17).
Times are of one fit each; the first one compiles.
"""

import argparse
import time
import warnings

import jax
import numpy as np

import fresh
import mixvi
from posteriors import PROBLEMS, Problem
from problems import machine

SPREAD, ENOUGH, MOST = 0.5, 0.003, 2**17


def start(problem: Problem, seed: int | None):
    """`init` itself without a seed."""
    if seed is None:
        return problem.init
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: np.asarray(leaf, float) + SPREAD * rng.standard_normal(np.shape(leaf)),
        problem.init,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="two_latent_gp", choices=PROBLEMS)
    parser.add_argument("--seeds", type=int, default=10, help="perturbed starts: seeds 0, 1, ...")
    parser.add_argument("--restarts", type=int, default=0, help="n_restarts of every fit")
    options = parser.parse_args()
    problem, posts, times = PROBLEMS[options.name](), [], []
    seeds = [None, *range(options.seeds)]
    for seed in seeds:
        began = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
            post = mixvi.fit(
                problem.log_density,
                start(problem, seed),
                data=problem.data,
                n_restarts=options.restarts,
                throw=False,
            )
        times.append((time.perf_counter() - began[0], time.process_time() - began[1]))
        posts.append(post)
    found = [post for post in posts if np.isfinite(post.flat_mean).all()]
    density = fresh.density(problem.log_density, problem.init, problem.data)
    bounds = fresh.together(density, found, ENOUGH, MOST) if found else np.zeros((0, 0))
    best = bounds[int(np.argmax(bounds.mean(1)))] if found else None
    print(f"{machine()}; {problem.name}, n_restarts={options.restarts}\n")
    print("| start | family | bound | se | short of the best | se | passes | draws | s | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    by_post = dict(zip(map(id, found), bounds, strict=True))
    for seed, post, (wall, cpu) in zip(seeds, posts, times, strict=True):
        cells = ["zeros" if seed is None else f"seed {seed}", post.family]
        if id(post) in by_post:
            values = by_post[id(post)]
            for one in (values, best - values):
                cells += [f"{one.mean():.3f}", f"{fresh.error(one):.3f}"]
        else:
            cells += ["no Gaussian", "-", "-", "-"]
        cells += [str(getattr(post.stats, what) or "-") for what in ("passes", "draws")]
        print("| " + " | ".join([*cells, f"{wall:.1f}", f"{cpu:.1f}"]) + " |")
    if found:
        means = bounds.mean(1)
        print(
            f"\nSpread of the bound: {means.max() - means.min():.3f} nat, standard deviation "
            f"{means.std():.3f}; {2 * bounds.shape[1]} fresh draws. Within 0.05 nat of the best: "
            f"{int((means > means.max() - 0.05).sum())} of {len(posts)}. Time: median "
            f"{np.median([wall for wall, _ in times]):.1f} s, all {sum(w for w, _ in times):.0f} s."
        )


if __name__ == "__main__":
    main()
