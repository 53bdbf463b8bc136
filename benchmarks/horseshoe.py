"""The posterior that the default misses: what more draws gain on the horseshoe of `posteriors.py`.

Each fit goes on from the last. Bounds are on up to 2^22 fresh draws, in pairs. For an accelerator:

    python benchmarks/horseshoe.py > docs/results/parts/horseshoe.md
"""

import time
import warnings

import hard
import mixvi
from posteriors import PROBLEMS
from problems import machine


def main() -> None:
    warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
    hard.MOST_FRESH, hard.BLOCK = 2**22, 2**16
    problem = PROBLEMS["horseshoe"]()
    print(f"{machine()}; one run, compilation included\n")
    print("| draws | bound | se | draw_loss told | passes | converged | s |")
    print("|---|---|---|---|---|---|---|")
    at = problem.init
    for draws in (None, 2**16, 2**18, 2**20):
        began = time.perf_counter()
        post = mixvi.fit(
            problem.log_density, at, family="full", data=problem.data, draws=draws, throw=False,
            diagnostics=False, memory=None if draws is None else 2**34,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        elbo, se, _ = hard.fresh_elbo(problem, post)
        print(
            f"| {post.stats.draws}{' (default)' if draws is None else ''} | {elbo:.3f} | "
            f"{se:.3f} | {post.stats.draw_loss:.3f} | {post.stats.passes} | "
            f"{post.converged} | {seconds:.1f} |",
            flush=True,
        )
        at = post


if __name__ == "__main__":
    main()
