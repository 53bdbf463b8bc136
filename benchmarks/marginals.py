"""`post.marginal`: the law's own quantiles and those that weighted draws have corrected.

    python benchmarks/marginals.py [NAME ...] > docs/results/parts/marginals.md

Of nineteen posteriors those parameters that 1000 fresh draws or fewer correct by default, as
`summary()` shows them: the errors of their 5, 50 and 95% quantiles in posterior standard
deviations, before and after. The quantiles are held to those of 200,000 other weighted draws, where
their weights can be believed (k-hat below 0.7; their own errors are then about 0.005). CPU: of
correcting what `summary()` shows, once what it imports is there.
"""

import sys
import time
import warnings

import numpy as np

import mixvi
from mixvi._fit._marginals import corrected
from posteriors import PROBLEMS, Problem
from problems import machine

SHOWN, N_DRAWS, SEED = 12, 200_000, 987
PROBS = np.array([0.05, 0.5, 0.95])


def truth(problem: Problem, post: mixvi.Posterior) -> np.ndarray | None:
    """Quantiles of every parameter."""
    found = post.importance_weights(N_DRAWS, problem.log_density, problem.data, key=SEED)
    if not found.khat < 0.7:
        return None
    points = post._flat(found.draws)
    order = np.argsort(points, axis=0)
    below = np.cumsum(found.weights[order], axis=0) - 0.5 * found.weights[order]
    sorted_ = np.take_along_axis(points, order, axis=0)
    columns = zip(below.T, sorted_.T, strict=True)
    return np.stack([np.interp(PROBS, share, x) for share, x in columns])


def row(name: str) -> str:
    problem = PROBLEMS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post = mixvi.fit(problem.log_density, problem.init, problem.data, throw=False)
    found = corrected(post, range(post.dim))
    began = time.process_time()
    corrected(post, range(min(SHOWN, post.dim)))
    took = time.process_time() - began
    cells = [name, post.trust, f"{post.khat:.2f}", f"{took:.3f}", f"{len(found)} of {post.dim}"]
    exact = truth(problem, post) if found else None
    if exact is None:
        cells += ["-"] * 2
    else:
        at = list(found)
        own = post._quantiles(PROBS).T[at]
        new = np.stack([one.quantiles(PROBS) for one in found.values()])
        off = [np.abs(one - exact[at]) / post.flat_std[at, None] for one in (own, new)]
        cells += [" → ".join(f"{how(one):.3f}" for one in off) for how in (np.max, np.mean)]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    print("| | trust | k-hat | CPU, s | corrected | largest error | average error |")
    print("|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or PROBLEMS:
        print(row(name), flush=True)
    print(
        "\nErrors of 5, 50 and 95% quantiles in posterior standard deviations, over the parameters "
        f"that are corrected: the law's own → corrected. One run, {machine()}."
    )


if __name__ == "__main__":
    main()
