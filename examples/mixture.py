"""A banana, the best Gaussian and a mixture: 70% of the mass of each.

Leaves mixture.png in report/.
"""

import argparse
import pathlib

import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import mixvi
from mixvi.plots import ellipse


def banana(w):
    return -0.5 * w["x"] ** 2 - 8 * (w["y"] - w["x"] ** 2) ** 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("report"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    start = {"x": 0.0, "y": 0.0}
    one = mixvi.fit(banana, start)
    several = mixvi.fit(banana, start, family="mixture")
    x, y = np.linspace(-2.8, 2.8, 281), np.linspace(-1.2, 6.5, 386)
    grid = {"x": np.repeat(x, len(y)), "y": np.tile(y, len(x))}
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.8), sharey=True, layout="tight")
    names = {0: f"one Gaussian: {one.trust}", 1: f"{several.stats.components} components"}
    levels = [0.02, 0.1, 0.3, 0.6]
    heights = np.exp(
        np.asarray(jnp.vectorize(lambda a, b: banana({"x": a, "y": b}))(*grid.values()))
    )
    for k, panel in enumerate(axes):
        panel.contourf(x, y, heights.reshape(len(x), -1).T, [*levels, 1.0], cmap="Greys", alpha=0.5)
        panel.set_title(names[k])
        panel.set_xlabel("x")
    axes[0].set_ylabel("y")
    ellipse(axes[0], one.flat_mean, one.cov)
    density = np.exp(several.log_prob(grid)).reshape(len(x), -1).T
    axes[1].contour(x, y, density / density.max(), levels, colors="C0", linewidths=1)
    for part in several.law.components:
        ellipse(axes[1], part.mean, part.cov, level=0.3, colour="C1")
    figure.savefig(options.out / "mixture.png", dpi=80)
    print(f"wrote {options.out / 'mixture.png'}: {one.elbo} against {several.elbo}")


if __name__ == "__main__":
    main()
