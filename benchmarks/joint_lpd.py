"""The joint LPD of two classes as `reproduction.scores` takes it (float32, a hundred factors before
a logarithm) beside the plain one (float64, a logarithm a row): the same draws, Laplace's posterior.

Needs the data sets (MIXVI_DATA).
"""

import math
import time

import numpy as np
from scipy.special import logsumexp

from mixvi._fit._threads import one_blas_thread
from mixvi.models import Predictive
from problems import machine
from reproduction.experiments import BEST, N_PREDICT, Settings
from reproduction.fitting import tuned
from reproduction.problems import Split, model_of, split_of, starts_of
from reproduction.scores import CHUNK, _log_mean, _over_draws

SETS = {"banana": 40, "twonorm": 10, "titanic": 10}  # basis functions, as protocol best takes them
N_SPLITS = 2


def posterior(name: str, index: int, settings: Settings) -> tuple[Predictive, dict, Split]:
    split = split_of("binary", name, index, settings)
    model = model_of(split, "binary", settings, SETS[name])
    density = model.density(split.x, split.y, seed=settings.seed)
    starts = starts_of(model, density.shared, settings, index, SETS[name])
    density, found = tuned(density, starts, settings.protocol.hyper_steps)
    predictive = Predictive(model, density.hyper, density.shared, found.mode, found.root)
    return predictive, model.basis.rows(split.x_test, density.shared), split


def plain(predictive: Predictive, rows: dict, y: np.ndarray, key: list) -> float:
    design, _ = predictive.design_and_rest(rows)
    rng, parts = np.random.default_rng(key), []
    for _ in range(N_PREDICT // CHUNK):
        w = predictive.coloured(rng.standard_normal((CHUNK, len(predictive.mean))))
        parts.append(-np.logaddexp(0.0, (1 - 2 * y)[:, None] * (design @ w.T)).sum(0))
    return float(logsumexp(np.concatenate(parts))) - math.log(N_PREDICT)


def main() -> None:
    settings = Settings(BEST)
    print(f"{machine()}; {N_PREDICT:,} draws\n")
    print(
        "| set, split | test rows | plain | by products | difference | plain, s | by products, s |"
    )
    print("|---|---|---|---|---|---|---|")
    gaps, ratios = [], []
    for name in SETS:
        for index in range(N_SPLITS):
            predictive, rows, split = posterior(name, index, settings)
            y, key = split.y_test, [settings.seed, index]
            began = time.perf_counter()
            exact = plain(predictive, rows, y, key)
            middle = time.perf_counter()
            ours = _log_mean(_over_draws(predictive, rows, y, N_PREDICT, key)[0])
            seconds = middle - began, time.perf_counter() - middle
            gaps.append(abs(ours - exact))
            ratios.append(seconds[0] / seconds[1])
            print(f"| {name}, {index + 1} | {len(y)} | {exact:.4f} | {ours:.4f} | "
                  f"{ours - exact:+.5f} | {seconds[0]:.2f} | {seconds[1]:.2f} |")  # fmt: skip
    print(f"\nLargest difference: {max(gaps):.5f} nat. Median ratio of times: "
          f"{np.median(ratios):.1f}.")  # fmt: skip


if __name__ == "__main__":
    with one_blas_thread(0):  # as rows are made: processes side by side
        main()
