"""Pictures of one posterior: eight schools, a hierarchy whose mode is unlike its bulk.

Leaves pairs.png, marginals.png and path.png in report/.
"""

import argparse
import pathlib

import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import numpy as np

import mixvi
from mixvi import plots

EFFECT = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERROR = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
START = {"mu": 0.0, "tau": 1.0, "z": np.zeros(8)}
BOUNDS = {"tau": "positive"}


def schools(w):
    """Effects `mu + tau z`; a half-Cauchy prior for their spread."""
    away = (EFFECT - w["mu"] - w["tau"] * w["z"]) / ERROR
    prior = 0.5 * (w["z"] ** 2).sum() + 0.5 * (w["mu"] / 5) ** 2 + jnp.log1p((w["tau"] / 5) ** 2)
    return -0.5 * (away**2).sum() - prior


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("report"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    steps: list[mixvi.Step] = []
    post = mixvi.fit(schools, START, constraints=BOUNDS, callback=steps.append)
    laplace = mixvi.laplace(schools, START, constraints=BOUNDS)
    names = ["mu", "tau", "z[0]"]
    pictures = {
        "pairs": plots.pairs(post, names, weighted=True)[0, 0],
        "marginals": plots.marginals(post, names, beside=laplace)[0],
        "path": plots.path(steps),
    }
    for name, axes in pictures.items():
        axes.figure.savefig(options.out / f"{name}.png", dpi=80)
        print(f"wrote {options.out / name}.png")


if __name__ == "__main__":
    main()
