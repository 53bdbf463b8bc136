"""Pictures of Gaussian posteriors. Needs matplotlib: `pip install 'mixvi[plots]'`."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from ._errors import InputError
from ._fit._posterior import Posterior

try:
    import matplotlib.pyplot as plt
except ImportError as error:
    raise ImportError("mixvi.plots needs matplotlib: pip install 'mixvi[plots]'") from error


def ellipse(
    axes: Any,
    mean: Float[np.ndarray, "2"],
    cov: Float[np.ndarray, "2 2"],
    level: float = 0.7,
    colour: str = "C0",
    label: str | None = None,
    with_axes: bool = False,
) -> None:
    """The mean as a cross and the ellipse that holds `level` of a two-dimensional Gaussian's mass;
    `with_axes` draws its axes as dashed lines."""
    values, vectors = np.linalg.eigh(cov)
    # |z|^2 is exponential with mean 2, so |z| <= radius has probability 1 - exp(-radius^2 / 2).
    radius = math.sqrt(-2 * math.log1p(-level))
    spokes = vectors * np.sqrt(np.maximum(values, 0)) * radius
    turn = np.linspace(0, 2 * np.pi, 200)
    edge = mean + np.stack([np.cos(turn), np.sin(turn)], axis=1) @ spokes.T
    axes.plot(*edge.T, color=colour, lw=1.8, label=label)
    axes.plot(*mean, "x", color=colour, ms=8, mew=2)
    if with_axes:
        for spoke in spokes.T:
            axes.plot(*np.stack([mean - spoke, mean + spoke]).T, "--", color=colour, lw=0.9)


def pairs(post: Posterior, names: list[str] | None = None, level: float = 0.7) -> Any:
    """Every parameter's density, and every pair's ellipse; at most eight at a time.

    **Arguments:** `names` chooses parameters by their names (the first eight when left out).

    **Returns:** the matplotlib figure.
    """
    if names is None:
        names = list(post.names[:8])
    unknown = [name for name in names if name not in post.names]
    if unknown or not 1 <= len(names) <= 8:
        raise InputError(f"pairs: give one to eight of {list(post.names)}, got {names}.")
    index = [post.names.index(name) for name in names]
    mean, cov = post.flat_mean[index], post.cov[np.ix_(index, index)]
    n = len(index)
    figure, grid = plt.subplots(n, n, figsize=(1.9 * n + 0.6, 1.9 * n), squeeze=False)
    for i in range(n):
        for j in range(n):
            axes = grid[i, j]
            if j > i:
                axes.axis("off")
            elif i == j:
                sd = math.sqrt(cov[i, i])
                x = mean[i] + sd * np.linspace(-3.5, 3.5, 200)
                axes.plot(x, np.exp(-0.5 * ((x - mean[i]) / sd) ** 2))
                axes.set_yticks([])
            else:
                ellipse(axes, mean[[j, i]], cov[np.ix_([j, i], [j, i])], level)
            if i == n - 1:
                axes.set_xlabel(names[j])
            if j == 0 and i > 0:
                axes.set_ylabel(names[i])
    figure.suptitle(f"{post.family}: {post.verdict.split(':')[0].lower()}")
    figure.tight_layout()
    return figure
