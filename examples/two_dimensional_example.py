"""The paper's 2-D example (its Figure 1): how far each family is from a posterior it cannot match.

Fits a mixture of two Gaussians with every family, measures KL(q || p) by quadrature, and leaves
report/figure1.png.
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

FAMILIES = {"laplace": "black", "mu": "tab:red", "eig": "tab:green", "lr": "tab:blue"}
PAPER = {"laplace": "Laplace", "mu": "MVI_mu", "eig": "MVI_eig", "lr": "MVI_lr"}


def log_density(w):
    """2/3 N(0, I) + 1/3 N((-1, -2), diag(3.5, 0.3))"""
    first = jnp.log(2 / 3) - 0.5 * (w @ w)
    away = (w - jnp.array([-1.0, -2.0])) / jnp.sqrt(jnp.array([3.5, 0.3]))
    second = jnp.log(1 / 3) - 0.5 * jnp.log(3.5 * 0.3) - 0.5 * (away @ away)
    return jnp.logaddexp(first, second) - jnp.log(2 * jnp.pi)


def kl(mean: np.ndarray, root: np.ndarray) -> float:
    """KL(q || p) of q = N(mean, root root^T), by Gauss-Hermite quadrature over z in
    w = mean + root z; log q(w) = -|z|^2 / 2 - log(2 pi) - log |det root|."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes)], axis=1)
    log_q = -0.5 * (z**2).sum(1) - np.log(2 * np.pi) - np.linalg.slogdet(root)[1]
    log_p = jnp.vectorize(log_density, signature="(d)->()")(mean + z @ root.T)
    return float(np.outer(weights, weights).ravel() / (2 * np.pi) @ (log_q - np.asarray(log_p)))


def figure(posts: dict[str, mixvi.Posterior], kls: dict[str, float]):
    picture, axes = plt.subplots(figsize=(6.4, 5.2))
    x, y = np.meshgrid(np.linspace(-4.6, 3.2, 160), np.linspace(-3.9, 2.9, 160))
    grid = np.stack([x.ravel(), y.ravel()], axis=1)
    density = np.exp(jnp.vectorize(log_density, signature="(d)->()")(grid)).reshape(x.shape)
    axes.contour(x, y, density, levels=10, colors="0.6", linewidths=0.8)
    for family, colour in FAMILIES.items():
        label = f"{PAPER[family]}   KL = {kls[family]:.3f}"
        ellipse(axes, posts[family].flat_mean, posts[family].cov, 0.7, colour, label, True)
    axes.legend(loc="upper left", frameon=False)
    axes.set(title="One posterior, four Gaussians (70% ellipses)", xlabel="w[0]", ylabel="w[1]")
    axes.set_aspect("equal")
    picture.tight_layout()
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("report"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    posts, kls = {}, {}
    for family in FAMILIES:
        posts[family] = mixvi.fit(log_density, np.zeros(2), family=family, draws=1000)
        kls[family] = kl(posts[family].flat_mean, posts[family].root)
        print(f"{PAPER[family]:<8} KL {kls[family]:.4f}   {posts[family].verdict}", flush=True)
    path = out / "figure1.png"
    figure(posts, kls).savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
