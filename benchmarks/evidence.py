"""The exact gradient of Laplace's evidence against central differences, on three models."""

import numpy as np

from mixvi import models
from mixvi._approximate._evidence import evidence_gradient
from mixvi._approximate._laplace import laplace
from mixvi._density._make import density_of
from mixvi._density._target import prepare
from problems import interleaved, machine, splits


def curve(n: int = 50, seed: int = 0):
    """The paper's regression data."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10, 10, (n, 1))
    return x, 0.3 * x[:, 0] * np.sin(0.7 * x[:, 0]) - 0.03 * x[:, 0] ** 2 + rng.uniform(
        -0.5, 0.5, n
    )


def problems():
    (banana,), (glass,) = splits("banana", 1), splits("glass", 1)
    x, y = curve()
    yield "logistic, banana", models.Bernoulli(), banana.x, banana.y, 30
    yield (
        "softmax, glass",
        models.Softmax(6),
        glass.x,
        np.unique(glass.y, return_inverse=True)[1],
        10,
    )
    yield "Cauchy, the paper's curve", models.Cauchy(), x, y, 20


def main() -> None:
    print(f"{machine()}\n")
    print(
        "| model | D | hyperparameter | gradient | central differences | relative error |", end=""
    )
    print(" gradient / Laplace, time |\n|---|---|---|---|---|---|---|")
    for name, likelihood, x, y, size in problems():
        x, y = (x - x.mean(0)) / x.std(0), np.asarray(y, dtype=float)
        model = models.Model(models.RBF(size), likelihood)
        shared = model.basis.fit_shared(x, 0)
        data = model.data(model.basis.rows(x, shared), shared, y)
        hyper = model.hyper(shared)
        double = np.dtype(np.float64)
        target, start = prepare(model.log_density, model.init(shared), data, double, hyper)
        density = density_of(model.log_density, target, double, 2**30)
        theta, start = np.asarray(target.theta), np.asarray(start)
        found = laplace(density, start)

        def gradient_of(density=density, found=found):
            slopes = density.evidence_slopes(found.mode, found.root)
            return evidence_gradient(slopes, found.root)[0]

        gradient = gradient_of()
        seconds = interleaved(
            {
                "laplace": lambda density=density, start=start: laplace(density, start),
                "gradient": gradient_of,
            },
            50,
        )
        step = 2e-4
        for j, label in enumerate(target.hyper_structure.names):
            move = step * np.eye(len(gradient))[j]
            values = [
                laplace(density.at(theta + k * move), found.mode).log_evidence
                for k in (-2, -1, 1, 2)
            ]
            # Five points, so that the differences themselves are exact to about 1e-9.
            numeric = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
            error = abs(gradient[j] / numeric - 1)
            ratio = seconds["gradient"] / seconds["laplace"]
            print(
                f"| {name} | {start.size} | {label} | {gradient[j]:.8f} | {numeric:.8f} | "
                f"{error:.1e} | {ratio:.2f} |"
            )
    print("\n50 interleaved repeats for the times.")


if __name__ == "__main__":
    main()
