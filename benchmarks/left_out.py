"""Leave-one-out by cavities, from one Gaussian, against fitting again without every row.

Hyperparameters are those with the highest evidence of all rows, and stay there.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

import mixvi
import tables
from mixvi import models
from mixvi._approximate._evidence import tuned_laplace
from mixvi._approximate._laplace import laplace
from mixvi.models import Predictive, leave_one_out

STEPS, REPEATS = 200, 11


def problems(n: int) -> Iterator[tuple[str, models.Likelihood, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)

    def some(name: str) -> tuple[np.ndarray, np.ndarray]:
        x, y = tables.whole(name)
        taken = rng.permutation(len(y))[:n]
        return tables.standardised(x[taken]), y[taken].astype(float)

    yield "Bernoulli, breast cancer", models.Bernoulli(), *some("breast_cancer")
    x, y = some("diabetes")
    y = tables.standardised(y)
    yield "Student-t, diabetes", models.StudentT(), x, y
    yield "Cauchy, diabetes", models.Cauchy(), x, y
    yield "Poisson, counts drawn at diabetes", models.Poisson(), x, rng.poisson(np.exp(1 + 0.6 * y))
    yield "softmax, wine", models.Softmax(3), *some("wine")
    yield "softmax, iris", models.Softmax(3), *some("iris")


def by_laplace(density, near) -> tuple[np.ndarray, np.ndarray]:
    found = laplace(density, near)
    return found.mode, found.root


def by_full(density, near) -> tuple[np.ndarray, np.ndarray]:
    start = near.reshape(density.init.shape)
    post = mixvi.fit(density, start, family="full", diagnostics=False)
    return post.flat_mean, post.root


def again(model, density, near, fitted: Callable) -> np.ndarray:
    """Of every row, predicted by a fit without it."""
    found = np.empty(density.n_rows)
    for n in range(density.n_rows):
        weight = np.ones(density.n_rows)
        weight[n] = 0.0
        less = model.density_of(density.rows, density.shared, density.y, weight, density.hyper)
        predictive = Predictive(model, density.hyper, density.shared, *fitted(less, near))
        row = {name: one[n : n + 1] for name, one in density.rows.items()}
        found[n] = predictive.pointwise_lpd(row, density.y[n : n + 1])[0]
    return found


def timed(function: Callable, *arguments):
    began = time.perf_counter()
    found = function(*arguments)
    return time.perf_counter() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--basis", type=int, default=15, help="radial basis functions")
    options = parser.parse_args()
    print(f"{tables.machine()}; {options.rows} rows, {options.basis} radial basis functions\n")
    print("In-sample: the same Gaussian on its own training rows. Share: the largest part of the")
    print("information about its own predictor that one row has. Times of cavities: medians of")
    print(f"{REPEATS}; the fits once.\n")
    head = ["model", "Gaussian", "cavities", "fits without", "in-sample", "largest of a row"]
    head += ["median of a row", "share", "cavities, ms", "all fits, s", "ratio"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
    for name, likelihood, x, y in problems(options.rows):
        model = models.Model(models.RBF(options.basis), likelihood)
        density = model.density(x, y)
        found, at = tuned_laplace(density, density.init.ravel(), density.theta, "raise", STEPS)
        density = density.at(at.theta)
        for called, fitted in (("Laplace", by_laplace), ("full", by_full)):
            mean, root = fitted(density, found.mode)
            at_mode = called == "Laplace"
            runs = [timed(leave_one_out, density, mean, root, at_mode) for _ in range(REPEATS)]
            fast, left = np.median([seconds for seconds, _ in runs]), runs[0][1]
            slow, brute = timed(again, model, density, found.mode, fitted)
            predictive = Predictive(model, density.hyper, density.shared, mean, root)
            inside = predictive.pointwise_lpd(density.rows, density.y).sum()
            away = np.abs(left.pointwise - brute)
            cells = [name, called, f"{left.total:.3f}", f"{brute.sum():.3f}", f"{inside:.3f}"]
            cells += [f"{away.max():.4f}", f"{np.median(away):.5f}", f"{left.share.max():.2f}"]
            cells += [f"{1e3 * fast:.2f}", f"{slow:.2f}", f"{slow / fast:.0f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
