"""The exact gradient of Laplace's evidence against central differences, on three models."""

import jax
import jax.numpy as jnp
import numpy as np

from mixvi import models
from mixvi._first._evidence import evidence_gradient
from mixvi._first._laplace import laplace
from mixvi._target import prepare
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
        with jax.enable_x64(True):
            target, start = prepare(
                model.log_density, model.init(shared), data, np.dtype(np.float64), hyper
            )
            start = jnp.asarray(start)
            find = jax.jit(lambda theta, start, t=target: laplace(t.at(theta), start))
            found = find(target.theta, start)
            slope = jax.jit(lambda found, t=target: evidence_gradient(t, found, 2**30)[0])
            gradient = np.asarray(slope(found))
            seconds = interleaved(
                {
                    "laplace": lambda f=find, t=target, s=start: jax.block_until_ready(
                        f(t.theta, s)
                    ),
                    "gradient": lambda f=slope, a=found: jax.block_until_ready(f(a)),
                },
                50,
            )
            step = 2e-4
            for j, label in enumerate(target.hyper_structure.names):
                move = step * np.eye(len(gradient))[j]
                values = [
                    float(find(target.theta + k * move, found.mode).log_evidence)
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
