"""Pictures of Gaussian posteriors. Needs matplotlib: `pip install 'mixvi[plots]'`."""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from ._arrays._roots import covariance
from ._density._kinds import Free, Interval, Kind
from ._density._target import listed
from ._errors import InputError
from ._fit._posterior import Posterior

try:
    import matplotlib.pyplot as plt
except ImportError as error:
    raise ImportError("mixvi.plots needs matplotlib: pip install 'mixvi[plots]'") from error

# Where parameters hang together: as many draws as a small picture can hold.
N_DRAWS = 2000
# Densities are drawn so many standard deviations out; the map of a bounded parameter may go far.
FREE_REACH, BOUND_REACH = 3.5, 2.6

Pair = Float[np.ndarray, "2"]
Square = Float[np.ndarray, "2 2"]


def ellipse(
    axes: Any,
    mean: Pair,
    cov: Square,
    level: float = 0.7,
    colour: str = "C0",
    label: str | None = None,
    with_axes: bool = False,
) -> None:
    """The mean as a cross and the ellipse that holds `level` of a two-dimensional Gaussian's mass;
    `with_axes` draws its axes as dashed lines.

    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from mixvi import plots
    >>> figure, axes = plt.subplots()
    >>> plots.ellipse(axes, np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> len(axes.lines)  # the edge, and a cross at the mean
    2
    >>> plt.close(figure)
    """
    edge, spokes = _edge(mean, cov, level)
    axes.plot(*edge.T, color=colour, lw=1.8, label=label)
    axes.plot(*mean, "x", color=colour, ms=8, mew=2)
    if with_axes:
        for spoke in spokes.T:
            axes.plot(*np.stack([mean - spoke, mean + spoke]).T, "--", color=colour, lw=0.9)


def _edge(mean: Pair, cov: Square, level: float) -> tuple[Float[np.ndarray, "n 2"], Square]:
    """Of the ellipse that holds `level` of the mass; and its half axes, as columns."""
    values, vectors = np.linalg.eigh(cov)
    # |z|^2 is exponential with mean 2, so |z| <= radius has probability 1 - exp(-radius^2 / 2).
    radius = math.sqrt(-2 * math.log1p(-level))
    spokes = vectors * np.sqrt(np.maximum(values, 0)) * radius
    turn = np.linspace(0, 2 * np.pi, 200)
    return mean + np.stack([np.cos(turn), np.sin(turn)], axis=1) @ spokes.T, spokes


def pairs(post: Posterior, names: list[str] | None = None, level: float = 0.7) -> Any:
    """Every parameter's density, and the region of every pair that holds `level` of its mass; at
    most eight parameters at a time, by the names and on the scales of `summary()`. Entries of a
    simplex or of an ordered vector, which hang together, are shown by draws.
    (`pairs(post.unconstrained)` shows the Gaussian itself where parameters are bounded.)

    **Arguments:** `names` chooses parameters by their names (the first eight when left out).

    **Returns:** the matplotlib figure.

    >>> import matplotlib.pyplot as plt
    >>> import mixvi
    >>> from mixvi import plots
    >>> post = mixvi.laplace(lambda w: -0.5 * (w["a"] ** 2 + w["b"] ** 2), {"a": 0.0, "b": 0.0})
    >>> figure = plots.pairs(post, ["a", "b"])
    >>> len(figure.axes)
    4
    >>> plt.close(figure)
    """
    known = list(post._shown.names)
    names = known[:8] if names is None else list(names)
    unknown = [name for name in names if name not in known]
    if unknown or not 1 <= len(names) <= 8:
        raise InputError(f"pairs: give one to eight of {listed(known, 10)}, got {names}.")
    if not post.law.is_sound:
        raise InputError(f"pairs: there is no Gaussian to show. {post.status}")
    shown, n = [_shown(post, known.index(name)) for name in names], len(names)
    figure, grid = plt.subplots(n, n, figsize=(1.9 * n + 0.6, 1.9 * n), squeeze=False)
    for i in range(n):
        for j in range(n):
            axes = grid[i, j]
            if j > i:
                axes.axis("off")
            elif i == j:
                _density(axes, shown[i])
            else:
                _region(axes, post, shown[j], shown[i], level)
            if i == n - 1:
                axes.set_xlabel(names[j])
            if j == 0 and i > 0:
                axes.set_ylabel(names[i])
    figure.suptitle(f"{post.family}: {post.verdict.split(':')[0].lower()}")
    figure.tight_layout()
    return figure


@dataclasses.dataclass(frozen=True)
class _Shown:
    """One of the user's numbers. `at`: where the one unbounded number stands that `kind` maps to
    it; None where it hangs on several. `draws`: always the same."""

    kind: Kind
    at: int | None
    mean: float
    centre: float  # of the unbounded number
    sd: float
    draws: Float[np.ndarray, " draws"]

    def mapped(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(self.kind.constrain(u, np))


def _shown(post: Posterior, index: int) -> _Shown:
    kind, at = Free(), index
    if (bound := post.constraints) is not None:
        ends = np.cumsum(bound.user.sizes)
        leaf = int(np.searchsorted(ends, index, side="right"))
        kind, from_end = bound.kinds[leaf], index - int(ends[leaf])
        alone = isinstance(kind, Free | Interval)
        at = int(np.cumsum(bound.free.sizes)[leaf]) + from_end if alone else None
    draws = post._shown.ravel(post.sample(0, N_DRAWS), "draws", batch=1)[:, index]
    centre, sd = (math.nan,) * 2 if at is None else (post.flat_mean[at], post.flat_std[at])
    return _Shown(kind, at, float(post._moments[0][index]), float(centre), float(sd), draws)


def _density(axes: Any, one: _Shown) -> None:
    if one.at is None:
        axes.hist(one.draws, bins=40, density=True, histtype="step")
    else:
        reach = FREE_REACH if isinstance(one.kind, Free) else BOUND_REACH
        z = np.linspace(-reach, reach, 200)
        x = one.mapped(one.centre + one.sd * z)
        # p(x) = N(u) |du/dx|
        axes.plot(x, np.exp(-0.5 * z**2) / np.abs(np.gradient(x, z)) / math.sqrt(2 * math.pi))
    axes.set_yticks([])


def _region(axes: Any, post: Posterior, x: _Shown, y: _Shown, level: float) -> None:
    """An ellipse, mapped where its parameters are; or draws."""
    colour = "C0"
    if x.at is None or y.at is None:
        axes.plot(x.draws, y.draws, ".", color=colour, ms=1.5, alpha=0.4)
        colour = "C1"  # to be seen among them
    else:
        rows = post.root[[x.at, y.at]]
        edge, _ = _edge(np.array([x.centre, y.centre]), covariance(rows), level)
        axes.plot(x.mapped(edge[:, 0]), y.mapped(edge[:, 1]), color=colour, lw=1.8)
    axes.plot(x.mean, y.mean, "x", color=colour, ms=8, mew=2)
