"""Softmax posteriors: integrals over the predictors of a row against draws of all weights.

The same log density is fitted as a `LinearPredictor` and as a plain function, which draws stand
for; hyperparameters start where `MVIClassifier` found them and are learnt. The bound of both is
taken on the same 2^16 fresh draws of the standard normal, each at its own hyperparameters.
"""

import time
import warnings

import numpy as np
from sklearn.datasets import load_iris, load_wine

import fresh
import mixvi
from mixvi.estimators import MVIClassifier
from problems import machine

N_FRESH = 2**16


def problem(load) -> tuple:
    """Log density, start, data and hyperparameters of the default classifier."""
    seen = {}
    original = mixvi.estimators._base.fit

    def caught(log_density, init, family, data, hyper, **rest):
        seen.update(arguments=(log_density, init, data, hyper))
        return original(log_density, init, "laplace", data, hyper, diagnostics=False)

    mixvi.estimators._base.fit = caught
    try:
        MVIClassifier().fit(*load(return_X_y=True))
    finally:
        mixvi.estimators._base.fit = original
    return seen["arguments"]


def bound(log_density, init, data, post) -> tuple[float, float]:
    z = np.random.default_rng(0).standard_normal((N_FRESH, post.dim))
    density = fresh.density(log_density, init, data, post.hyper)
    ratio = fresh.log_ratios(density, post.flat_mean, post.root, z)
    return float(ratio.mean()), fresh.error(ratio)


def main() -> None:
    warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
    print(f"{machine()}; one warm-up, then one run\n")
    print("| table | family | by | nodes or draws | passes | warm, s | bound | se |")
    print("|---|---|---|---|---|---|---|---|")
    for name, load in {"iris": load_iris, "wine": load_wine}.items():
        log_density, init, data, hyper = problem(load)

        def plain(w, hyper, data, model=log_density):
            return model(w, hyper, data)

        for family in ("eig", "auto"):
            for by, function in {"predictors": log_density, "draws": plain}.items():
                for _ in range(2):
                    began = time.perf_counter()
                    post = mixvi.fit(function, init, family=family, data=data, hyper=hyper)
                    seconds = time.perf_counter() - began
                value, se = bound(log_density, init, data, post)
                print(
                    f"| {name} | {family} | {by} | {post.stats.draws} | "
                    f"{post.stats.passes} | {seconds:.2f} | {value:.3f} | {se:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
