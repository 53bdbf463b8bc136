"""Pictures of Gaussian posteriors, and of the way to one."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.lines import Line2D

from .._arrays._roots import covariance_of
from .._density._kinds import Free, Interval, Kind
from .._density._target import listed
from .._errors import InputError
from .._fit._marginals import corrected
from .._fit._posterior import Posterior
from .._fit._weights import ImportanceWeights
from .._law._mixture import Law
from .._watch import DRAWS, FAMILY, Step

# Where parameters hang together: as many draws as a small picture can hold.
N_DRAWS = 2000
# Densities are drawn so many standard deviations out, and seen so far of what is bounded, since its
# map may go far.
REACH, BOUND_REACH = 4.0, 2.6
MOST = 8
# Points along an axis on which the density of a mixture is asked for.
GRID = 300
# A negative level would be dashed.
EDGE = {"colors": "C0", "linewidths": 1.8, "linestyles": "solid"}

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


def pairs(
    post: Posterior,
    names: list[str] | None = None,
    level: float = 0.7,
    draws: int = 0,
    weighted: ImportanceWeights | bool = False,
) -> Any:
    """Every parameter's density, and the region of every pair that holds `level` of its mass: an
    ellipse, or of a mixture where the density is highest. At most eight parameters at a time, by
    the names and on the scales of `summary()`. Entries of a simplex or of an ordered vector, which
    hang together, are shown by draws. (`pairs(post.unconstrained)` shows the law itself where
    parameters are bounded.)

    **Arguments:** `names` chooses parameters by their names (the first eight when left out).
    `draws`: so many draws of the Gaussian as dots. `weighted`: draws that stand for the posterior
    itself, True for those of `post.importance_weights()`, or what that returned for new draws; the
    area of a dot is its weight, and the densities have weighted histograms beside them.

    **Returns:** the matplotlib axes as a square array; `axes[0, 0].figure` is the figure.

    >>> import matplotlib.pyplot as plt
    >>> import mixvi
    >>> from mixvi import plots
    >>> post = mixvi.laplace(lambda w: -0.5 * (w["a"] ** 2 + w["b"] ** 2), {"a": 0.0, "b": 0.0})
    >>> plots.pairs(post, ["a", "b"]).shape
    (2, 2)
    >>> plt.close()
    """
    names, indices = _chosen(post, names, "pairs")
    shown, n = [_shown(post, index) for index in indices], len(names)
    clouds = _clouds(post, indices, draws, weighted)
    figure, grid = plt.subplots(n, n, figsize=(1.9 * n + 0.6, 1.9 * n), squeeze=False)
    for i in range(n):
        for j in range(n):
            axes = grid[i, j]
            if j > i:
                axes.axis("off")
                continue
            if i == j:
                _density(axes, shown[i])
                axes.set_xlim(_view(shown[i]))
            else:
                _region(axes, post, shown[j], shown[i], level)
            for cloud in clouds:
                cloud.draw(axes, j, i)
            if i == n - 1:
                axes.set_xlabel(names[j])
            if j == 0 and i > 0:
                axes.set_ylabel(names[i])
    _share_limits(grid)
    figure.suptitle(f"{post.family}: {post.verdict.split(':')[0].lower()}")
    figure.tight_layout()
    if clouds:
        dots = [Line2D([], [], marker="o", ls="", color=c.colour) for c in clouds]
        figure.legend(dots, [cloud.label for cloud in clouds], loc="upper right", frameon=False)
    return grid


def _share_limits(grid: Any) -> None:
    """A parameter has one scale, down its column and along its row."""
    for k in range(len(grid)):
        column = [axes.get_xlim() for axes in grid[k:, k]]
        row = [axes.get_ylim() for axes in grid[k, :k]]
        lows, highs = zip(*column, *row, strict=True)
        for axes in grid[k:, k]:
            axes.set_xlim(min(lows), max(highs))
        for axes in grid[k, :k]:
            axes.set_ylim(min(lows), max(highs))


def _chosen(
    post: Posterior, names: Sequence[str] | None, asking: str
) -> tuple[list[str], list[int]]:
    """Names that this posterior has, the first ones where none are given; and where they are."""
    known = list(post._shown.names)
    names = known[:MOST] if names is None else list(names)
    if not 1 <= len(names) <= MOST or any(name not in known for name in names):
        hyper = () if post.hyper_posterior is None else post.hyper_posterior.names
        said = [f"post.marginal({name!r})" for name in names if name in hyper and name not in known]
        more = f" Hyperparameters are not drawn here: {listed(said, 3)} has them." if said else ""
        raise InputError(f"{asking}: give one to eight of {listed(known, 10)}, got {names}.{more}")
    if not post.law.is_sound:
        raise InputError(f"{asking}: there is no Gaussian to show. {post.status}")
    return names, [known.index(name) for name in names]


@dataclasses.dataclass(frozen=True)
class _Cloud:
    """Draws of the parameters that are shown; dots of one size where `weights` is None."""

    points: Float[np.ndarray, "n shown"]
    weights: Float[np.ndarray, " n"] | None
    colour: str
    label: str

    def draw(self, axes: Any, x: int, y: int) -> None:
        n = len(self.points)
        if x == y and self.weights is not None:
            kept = {"weights": self.weights, "density": True, "histtype": "step"}
            axes.hist(self.points[:, x], bins=30, color=self.colour, **kept)
        if x != y:
            areas = 2.0 if self.weights is None else 4.0 * n * self.weights
            look = {"c": self.colour, "alpha": 0.35, "linewidths": 0, "zorder": 1}
            axes.scatter(self.points[:, x], self.points[:, y], areas, **look)


def _clouds(
    post: Posterior, indices: list[int], draws: int, weighted: ImportanceWeights | bool
) -> list[_Cloud]:
    def flat(tree: Any) -> np.ndarray:
        return post._shown.ravel(tree, "draws", batch=1)[:, indices]

    clouds = []
    if draws:
        clouds += [_Cloud(flat(post.sample(0, draws)), None, "0.5", f"{draws} draws")]
    if weighted is not False:
        found = post.importance_weights() if weighted is True else weighted
        said = f"worth {found.ess:.0f}, k-hat {found.khat:.2f}"
        label = f"{len(found.weights)} weighted draws\n({said})"
        clouds += [_Cloud(flat(found.draws), found.weights, "C2", label)]
    return clouds


@dataclasses.dataclass(frozen=True)
class _Shown:
    """One of the user's numbers. `at`: where the one unbounded number stands that `kind` maps to
    it; None where it hangs on several. `law`: of that one. `draws`: always the same."""

    kind: Kind
    at: int | None
    mean: float
    centre: float  # of the unbounded number
    sd: float
    draws: Float[np.ndarray, " draws"]
    law: Law | None = None

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
    law = None if at is None else post.law.marginal(np.array([at]))
    mean = float(post._moments[0][index])
    return _Shown(kind, at, mean, float(centre), float(sd), draws, law)


def _density(axes: Any, one: _Shown, **look: Any) -> None:
    """The density of the transformed normals; a histogram where there is no formula for it."""
    if one.at is None or one.law is None:
        axes.hist(one.draws, bins=40, density=True, histtype="step", **look)
    else:
        z = np.linspace(-REACH, REACH, 400)
        u = one.centre + one.sd * z
        x = one.mapped(u)
        # p(x) = q(u) |du/dx|
        log_p = one.law.log_prob(u[:, None]) - one.kind.log_det(u, np)
        axes.plot(x, np.exp(log_p), **look)
    axes.set_yticks([])


def _view(one: _Shown, beside: _Shown | None = None) -> tuple[float, float]:
    """What of an axis is looked at; so much of what is beside as makes it twice as wide at most."""
    reach = REACH if isinstance(one.kind, Free) else BOUND_REACH
    ends = one.centre + one.sd * np.array([-reach, reach])
    seen = one.draws if one.at is None else one.mapped(ends)
    low, high = float(seen.min()), float(seen.max())
    if beside is None:
        return low, high
    other, half = _view(beside), (high - low) / 2
    return min(low, max(other[0], low - half)), max(high, min(other[1], high + half))


def _region(axes: Any, post: Posterior, x: _Shown, y: _Shown, level: float) -> None:
    """An ellipse, mapped where its parameters are; of a mixture its region of highest density; or
    draws."""
    colour = "C0"
    if x.at is None or y.at is None:
        axes.plot(x.draws, y.draws, ".", color=colour, ms=1.5, alpha=0.4)
        colour = "C1"  # to be seen among them
    elif len(post.law.weights) > 1:
        _highest(axes, post.law.marginal(np.array([x.at, y.at])), (x, y), level)
    else:
        own = covariance_of(post.root, np.array([x.at, y.at]))
        edge, _ = _edge(np.array([x.centre, y.centre]), own, level)
        axes.plot(x.mapped(edge[:, 0]), y.mapped(edge[:, 1]), color=colour, lw=1.8)
    axes.plot(x.mean, y.mean, "x", color=colour, ms=8, mew=2)


def _highest(axes: Any, law: Law, both: tuple[_Shown, _Shown], level: float) -> None:
    """Where the density of the unbounded numbers is higher than at all but `level` of the draws."""
    ends = [
        np.linspace(
            min(one.mean[i] - REACH * one.std[i] for one in law.components),
            max(one.mean[i] + REACH * one.std[i] for one in law.components),
            GRID,
        )
        for i in range(2)
    ]
    grid = np.stack(np.meshgrid(*ends, indexing="ij"), -1)
    cut = np.quantile(law.log_prob(law.sample(0, N_DRAWS)), 1 - level)
    places = (one.mapped(u) for one, u in zip(both, ends, strict=True))
    axes.contour(*places, law.log_prob(grid).T, levels=[cut], **EDGE)


# --- one parameter at a time, and the way there --------------------------------------------------


def marginals(
    post: Posterior, names: list[str] | None = None, beside: Posterior | None = None
) -> Any:
    """Every parameter's density, at most eight at a time, by the names and on the scales of
    `summary()`: a bounded parameter has the density of the transformed normal. Where weighted draws
    correct it, the corrected density is drawn (`post.marginal`), and the law's own is dotted.
    Entries of a simplex or of an ordered vector are shown by histograms of draws.

    **Arguments:** `names` chooses parameters (the first eight when left out). `beside` is another
    posterior of the same parameters, such as `mixvi.laplace(log_density, init)`; dashed.

    **Returns:** the matplotlib axes, one for each name; `axes[0].figure` is the figure.

    >>> import jax.numpy as jnp
    >>> import matplotlib.pyplot as plt
    >>> import mixvi
    >>> from mixvi import plots
    >>> gamma = lambda x: 3 * jnp.log(x) - x
    >>> post = mixvi.laplace(gamma, 1.0, constraints={"w": "positive"})
    >>> [axes.get_xlabel() for axes in plots.marginals(post)]
    ['w']
    >>> plt.close()
    """
    names, indices = _chosen(post, names, "marginals")
    others = [] if beside is None else _chosen(beside, names, "marginals, beside")[1]
    columns = min(len(names), 4)
    rows = math.ceil(len(names) / columns)
    size = (2.6 * columns + 0.4, 2.3 * rows + 0.4)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axes in grid.flat[len(names) :]:
        axes.axis("off")
    panels = grid.flat[: len(names)]
    by_weights = corrected(post, indices)
    for k, axes in enumerate(panels):
        shown = [_shown(post, indices[k])]
        if (weighted := by_weights.get(indices[k])) is None:
            _density(axes, shown[0], color="C0", label=post.family)
        else:
            axes.plot(weighted.grid, weighted.densities, color="C0", label="by weighted draws")
            _density(axes, shown[0], color="C0", ls=":", lw=1.2, label=post.family)
        if beside is not None:
            shown += [_shown(beside, others[k])]
            _density(axes, shown[1], color="C1", ls="--", label=beside.family)
        axes.set_xlim(_view(*shown))
        axes.set_ylim(bottom=0)
        axes.set_xlabel(names[k])
    explained = {0} if beside is not None else set()
    explained |= set([k for k in range(len(names)) if indices[k] in by_weights][:1])
    for k in explained:
        panels[k].legend(frameon=False, fontsize="small")
    figure.tight_layout()
    return panels


def path(steps: Sequence[Step], axes: Any = None) -> Any:
    """The way of a fit: the bound after every pass, and above it, shaded, what that pass foresaw to
    be had still, by the stages of `mixvi.Step`. Where draws were added ("draws") the bound is
    another one, and its line begins anew: lower by what fewer draws had promised too much.

    **Arguments:** `steps`: what `callback=` was called with. `axes` to draw on; new ones when left
    out.

    **Returns:** the matplotlib axes.

    >>> import jax.numpy as jnp
    >>> import matplotlib.pyplot as plt
    >>> import mixvi
    >>> from mixvi import plots
    >>> steps = []
    >>> post = mixvi.fit(lambda w: 3 * w - jnp.exp(w), 0.0, family="eig", callback=steps.append)
    >>> plots.path(steps).get_ylabel()
    'bound (nats)'
    >>> plt.close()
    """
    told: dict[int, tuple[str, float, float]] = {}
    for step in steps:
        if step.stage in (FAMILY, DRAWS) and step.bound is not None:
            # Where a stage begins the last pass is told once more: it was made in the one before.
            stage, *_ = told.get(step.passes, (step.stage,))
            told[step.passes] = stage, step.bound, step.gain_left or 0.0
    if not told:
        raise InputError(
            f"path: none of these {len(steps)} steps tells a bound. Collect them with "
            "mixvi.fit(..., callback=steps.append); mixvi.laplace searches for a mode alone."
        )
    if axes is None:
        _, axes = plt.subplots(figsize=(5, 3.4), layout="tight")
    for colour, stage in (("C0", FAMILY), ("C1", DRAWS)):
        rows = [(passes, *numbers) for passes, (made, *numbers) in told.items() if made == stage]
        if rows:
            passes, bound, gain_left = np.array(rows).T
            axes.plot(passes, bound, "o-", ms=4, color=colour, label=stage)
            axes.fill_between(passes, bound, bound + gain_left, color=colour, alpha=0.2, lw=0)
    axes.set_xlabel("passes")
    axes.set_ylabel("bound (nats)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False, loc="lower right")
    return axes
