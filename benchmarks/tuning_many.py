"""Hyperparameters of many data sets at once: splits times starts in one batched search.

Banana, the first splits, ten random starts of the paper each and 30 basis functions: ten steps of
the evidence search from every start, then the best of each split with the family eig.
"""

import argparse
import time

import jax
import numpy as np

import mixvi
from mixvi import models
from problems import machine, splits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=100)
    n = parser.parse_args().splits
    model = models.Model(models.RBF(30), models.Bernoulli())
    data, starts, owner = [], [], []
    for i, split in enumerate(splits("banana", n)):
        x = (split.x - split.x.mean(0)) / split.x.std(0)
        shared = model.basis.fit_shared(x, 0)
        one = model.data(model.basis.rows(x, shared), shared, split.y)
        for start in models.paper_starts(model, shared, 10, np.random.default_rng(i)):
            data.append(one)
            starts.append(start)
            owner.append(i)
    init = model.init(shared)
    print(f"{machine()}; {n} splits, {len(starts)} starts\n")
    print("| step | first, s | again, s |\n|---|---|---|")
    batch, hyper = (
        jax.tree.map(lambda *leaves: np.stack(leaves), *some) for some in (data, starts)
    )

    def timed(call):
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            result = call()
            seconds.append(time.perf_counter() - began)
        return result, seconds

    options = {"hyper_batched": True, "diagnostics": False}
    screened, seconds = timed(
        lambda: mixvi.fit_many(
            model.log_density,
            init,
            family="laplace",
            data=batch,
            hyper=hyper,
            hyper_steps=10,
            **options,
        )
    )
    print(f"| ten steps from every start | {seconds[0]:.1f} | {seconds[1]:.1f} |")
    scores = screened.log_evidence.reshape(n, -1)
    best = np.arange(n) * scores.shape[1] + np.nanargmax(scores, axis=1)
    chosen = jax.tree.map(lambda leaf: leaf[best], batch)
    hypers = jax.tree.map(lambda *leaves: np.stack(leaves), *(screened[i].hyper for i in best))
    posts, seconds = timed(
        lambda: mixvi.fit_many(
            model.log_density, init, family="eig", data=chosen, hyper=hypers, **options
        )
    )
    print(f"| the best of each split, eig | {seconds[0]:.1f} | {seconds[1]:.1f} |")
    print(
        f"\nConverged {int(posts.converged.sum())} of {n}; median bound "
        f"{np.median(posts.log_evidence):.2f}; starts within 0.01 nat of their split's best: "
        f"{int((scores > scores.max(1, keepdims=True) - 0.01).sum())} of {scores.size}."
    )


if __name__ == "__main__":
    main()
