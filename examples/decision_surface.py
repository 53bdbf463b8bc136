"""A decision surface with its uncertainty: banana, or two moons where that set is not at hand.

Left: the probability of one class with the posterior integrated out. Right: the standard deviation
of the linear predictor, large where no data are. Leaves report/decision_surface.png.
"""

import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from example_table import banana
from mixvi.estimators import MVIClassifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("report"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    name, x, y, x_test, y_test = banana()
    model = MVIClassifier().fit(x, y)
    low, high = x.min(0) - 1.5, x.max(0) + 1.5
    across, up = np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120))
    grid = np.stack([across.ravel(), up.ravel()], axis=1)
    proba = model.predict_proba(grid)[:, 1].reshape(across.shape)
    sd = model.predictor(grid)[1].reshape(across.shape)
    picture, panels = plt.subplots(1, 2, figsize=(11, 4.6), sharex=True, sharey=True)
    for axes, values, title, colours in (
        (panels[0], proba, "probability of the filled class", "RdBu_r"),
        (panels[1], sd, "standard deviation of the log odds", "viridis"),
    ):
        shade = axes.contourf(across, up, values, 20, cmap=colours)
        axes.contour(across, up, proba, [0.5], colors="black")
        axes.scatter(*x[y == 1].T, s=8, c="black")
        axes.scatter(*x[y == 0].T, s=8, facecolors="none", edgecolors="black", linewidths=0.6)
        axes.set_title(title)
        picture.colorbar(shade, ax=axes)
    error = 100 * np.mean(model.predict(x_test) != y_test)
    picture.suptitle(f"{name}: test error {error:.1f}%, log evidence {model.log_evidence_:.1f}")
    picture.tight_layout()
    path = options.out / "decision_surface.png"
    picture.savefig(path, dpi=110)
    print(f"{name}: error {error:.1f}%; {model.posterior_.verdict}")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
