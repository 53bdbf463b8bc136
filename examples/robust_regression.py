"""The paper's robust regression (its Figure 2): a curve under uniform noise, Cauchy likelihood.

Fits 50 points with two families, draws the posterior means with bands of two standard deviations
and the 90% predictive interval, and leaves report/robust_regression.png.
"""

import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from mixvi import metrics
from mixvi.estimators import MVIRegressor


def curve(x: np.ndarray) -> np.ndarray:
    return 0.3 * x * np.sin(0.7 * x) - 0.03 * x**2


def sample(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10, 10, n)
    return x[:, None], curve(x) + rng.uniform(-0.5, 0.5, n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("report"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    x, y = sample(50, options.seed)
    x_test, y_test = sample(1000, options.seed + 10_000)
    grid = np.linspace(-10, 10, 400)[:, None]
    picture, panels = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axes, family, colour in zip(panels, ("mu", "eig"), ("tab:red", "tab:green"), strict=True):
        model = MVIRegressor(family, noise="cauchy", n_basis=20).fit(x, y)
        mean, sd = model.predict(grid, return_std=True)
        low, high = model.predict_quantiles(grid, (0.05, 0.95)).T
        line = grid[:, 0]
        axes.fill_between(line, low, high, color="0.9", label="90% of new points")
        axes.fill_between(line, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=0.35)
        axes.plot(line, mean, color=colour, label=f"MVI_{family}: mean and 2 sd")
        axes.plot(line, curve(line), color="black", lw=0.8, ls="--", label="truth")
        axes.plot(x[:, 0], y, "o", color="black", ms=3)
        axes.legend(frameon=False, loc="lower center")
        mse = metrics.mean_squared_error(y_test, model.predict(x_test))
        lpd = model.log_predictive_density(x_test, y_test) / len(y_test)
        axes.set_title(f"MVI_{family}: test MSE {mse:.3f}, LPD {lpd:.3f} per point")
        print(f"{family}: MSE {mse:.3f}, LPD {lpd:.3f} per point; {model.posterior_.status}")
    picture.tight_layout()
    path = options.out / "robust_regression.png"
    picture.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
