"""1,000 logistic posteriors (N=400, D=31) through `fit_many`, against a Python loop of `fit`."""

import argparse
import time

import jax
import numpy as np

import mixvi
from problems import logistic, machine, synthetic


def batch(n: int):
    problems = [synthetic(seed=seed) for seed in range(n)]
    return tuple(np.stack([np.asarray(one[k]) for one in problems]) for k in range(3))


def timed(function) -> tuple[float, object]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--family", default="eig")
    parser.add_argument("--looped", type=int, default=100, help="problems in the loop of fit")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    n, looped = options.problems, options.looped
    data, w0 = batch(n), np.zeros(31)
    print(
        f"{machine()}; {n} problems, {options.family}, draws=200, data on the device; one warm-up, "
        f"then the median of {options.repeats}. Results are made when looked at: the second time "
        "is with the verdicts of all.\n"
    )
    print(
        "| diagnostics | loop of fit, ms each | strategy | first call, s | again, s "
        "| with all verdicts, s | speed-up | largest difference, sd |"
    )
    print("|---|---|---|---|---|---|---|---|")
    on_device = data
    if jax.default_backend() != "cpu":
        with jax.enable_x64(True):
            on_device = jax.device_put(data)
    strategies = ("map",) if jax.default_backend() == "cpu" else ("vmap",)
    for diagnostics in (False, True):
        settings = {"draws": 200, "diagnostics": diagnostics}

        def loop(settings=settings):
            return [
                mixvi.fit(
                    logistic,
                    w0,
                    family=options.family,
                    data=tuple(leaf[i] for leaf in data),
                    **settings,
                )
                for i in range(looped)
            ]

        loop()
        seconds, posts = timed(loop)
        each = 1e3 * seconds / looped
        for strategy in strategies:

            def many(settings=settings, strategy=strategy):
                return mixvi.fit_many(
                    logistic,
                    w0,
                    family=options.family,
                    data=on_device,
                    strategy=strategy,
                    **settings,
                )

            first, _ = timed(many)
            times, found = [], None
            for _ in range(options.repeats):
                again, found = timed(many)
                times.append((again, again + timed(lambda found=found: found.verdict)[0]))
            again, with_all = np.median(times, axis=0)
            apart = max(
                np.abs((a.flat_mean - b.flat_mean) / b.flat_std).max()
                for a, b in zip(found, posts, strict=False)
            )
            its = 1e3 * with_all / n
            print(
                f"| {diagnostics} | {each:.1f} | {strategy} | {first:.1f} | {again:.2f} "
                f"| {with_all:.2f} | {each / its:.1f} | {apart:.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
