"""The pictures of the report, each as the bytes of a PNG file.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart. Pictures are at most
seven inches wide, with few columns, so that a telephone shows them readably.
"""

import io
import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture  # not pyplot: no window system, no global state
from matplotlib.lines import Line2D
from PIL import Image  # matplotlib needs it too

from mixvi.plots import ellipse

from . import data, toy
from .cells import Miss
from .experiments import EXPERIMENTS, LABELS, METHODS
from .layout import METRIC_LABELS, set_label
from .rows import Rows

_HEX = ("#000000", "#D55E00", "#009E73", "#0072B2", "#CC79A7", "#8C6D00", "#56B4E9")
COLOURS = dict(zip(LABELS, _HEX, strict=True))
MOST_PANELS = 24


def two_dimensional(fits: pd.DataFrame) -> bytes:
    """Figure 1: a line for each method, with `mean`, `cov` and `kl`."""
    picture = Picture((6.4, 5.6), layout="constrained")
    axes = picture.subplots()
    x, y = np.meshgrid(np.linspace(-4.6, 3.2, 160), np.linspace(-3.9, 3.6, 160))
    density = np.exp(toy.log_density(np.stack([x, y], axis=-1), np))
    axes.contour(x, y, density, levels=10, colors="0.65", linewidths=0.8)
    for one in fits.itertuples():
        label = f"{LABELS[one.method]}, KL = {one.kl:.3f}"
        ellipse(axes, np.array(one.mean), np.array(one.cov), 0.7, COLOURS[one.method], label, True)
    axes.legend(loc="upper left", frameon=False, fontsize=10, ncols=2)
    axes.set(xlabel="$w_1$", ylabel="$w_2$", aspect="equal")
    axes.set_title("A posterior (grey) and Gaussians fitted to it")
    return _png(picture)


def regression(fits: pd.DataFrame, seed: int) -> bytes:
    """Figure 2: a line for each method, with the mean and sd of the location along x, on the first
    of the data sets drawn with the seed."""
    split = data.cauchy(0, seed=seed)
    picture = Picture((6.4, 3.3 * len(fits) + 0.4), layout="constrained")
    panels = picture.subplots(len(fits), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (_, one) in zip(panels, fits.iterrows(), strict=True):
        x, mean, sd = (np.array(one[f"curve.{part}"]) for part in ("x", "mean", "sd"))
        colour = COLOURS[one.method]
        axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=0.3, lw=0)
        axes.plot(x, mean, color=colour, label=f"{LABELS[one.method]}: mean, 2 sd")
        axes.plot(x, data.curve(x), color="black", lw=1, ls="--", label="true curve")
        axes.plot(split.x[:, 0], split.y, "o", color="black", ms=3.5, label="data")
        axes.legend(frameon=False, loc="lower center", ncols=3, fontsize=9)
        axes.set(ylabel="y")
        axes.margins(y=0.18)
    panels[0].set_title("Cauchy regression under uniform noise, first data set")
    panels[-1].set(xlabel="x")
    return _png(picture)


def differences(rows: Rows, protocol: str, field: str) -> bytes | None:
    """Box plots over splits of method minus Laplace, per test point; one panel for each table."""
    panels: dict[str, dict[str, pd.DataFrame]] = {}
    for place in rows.places(protocol):
        gaps = _gaps(rows.of(*place), field)
        if len(gaps.columns):
            panels.setdefault(place[1], {})[place[2]] = gaps
    if not panels:
        return None
    heights = [len(found) + 0.6 for found in panels.values()]
    picture = Picture((6.6, 0.62 * sum(heights) + 1.6), layout="constrained")
    grid = picture.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (experiment, found) in zip(grid, panels.items(), strict=True):
        for place, by_method in enumerate(found.values()):
            for at, method in enumerate(METHODS[1:]):
                if method in by_method:
                    values = by_method[method].dropna()
                    _box(axes, values, place + 0.2 * (at - 1.5), COLOURS[method])
        axes.axvline(0, color="0.3", lw=1)
        axes.set_yticks(range(len(found)), [set_label(name) for name in found])
        axes.set_ylim(len(found) - 0.4, -0.6)
        # Most differences are a thousandth of a nat and some are ten: linear near 0, log beyond.
        axes.set_xscale("symlog", linthresh=1e-3, linscale=0.7)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_title(f"{experiment.capitalize()}: right of 0 is better than Laplace", fontsize=10)
    grid[-1].set_xlabel(f"{METRIC_LABELS[field]} minus Laplace's, nats per test point")
    _legend_of(picture, METHODS[1:])
    return _png(picture)


def _gaps(fits: pd.DataFrame, field: str) -> pd.DataFrame:
    """Those of one set, a column a method. Scores of regressions are per test point already."""
    per_point = EXPERIMENTS[fits.experiment.iloc[0]].per_point
    values = fits[field] / (1.0 if per_point else fits.n_test)
    wide = fits.assign(value=values).pivot(index="split", columns="method", values="value")
    gaps = wide.sub(wide.get("laplace", np.nan), axis=0).reindex(columns=METHODS[1:])
    return gaps.dropna(axis=1, how="all")


def trend(found: pd.DataFrame, protocol: str) -> bytes:
    """Joint LPD against the number of draws (columns); a line for each experiment, set, method."""
    by_set = dict(tuple(found.groupby(["experiment", "set"], sort=False)))
    picture, grid = _panels(min(len(by_set), MOST_PANELS), 2, 2.4)
    for axes, ((_, name), lines) in zip(grid, by_set.items(), strict=False):
        for place, values in lines.iterrows():
            axes.plot(values.index, values, "o-", ms=4, color=COLOURS[place[2]], lw=1.4)
        axes.set_xscale("log")
        axes.set_title(set_label(name), fontsize=10)
        axes.tick_params(labelsize=8)
        axes.grid(color="0.92")
    shown = [one for one in LABELS if one in found.index.get_level_values("method")]
    picture.suptitle(f"Joint LPD against the number of draws (protocol {protocol})", fontsize=11)
    _legend_of(picture, shown)
    return _png(picture)


def missed(misses: list[Miss]) -> bytes:
    """Every missed cell over its splits, with our median and the printed number."""
    shown = misses[:MOST_PANELS]
    picture, grid = _panels(len(shown), 3 if len(shown) > 2 else 2, 1.75)
    rng = np.random.default_rng(0)
    for axes, miss in zip(grid, shown, strict=False):
        one, colour = miss.cell, COLOURS[miss.cell.method]
        height = rng.uniform(-0.35, 0.35, len(miss.values))
        axes.plot(miss.values, height, "o", ms=3, alpha=0.6, color=colour, mew=0)
        axes.plot([one.ours] * 2, [-0.5, 0.5], color=colour, lw=2.2)
        axes.plot([one.printed] * 2, [-0.5, 0.5], color="black", lw=1.6, ls="--")
        axes.set(ylim=(-0.6, 0.6), yticks=[])
        axes.tick_params(labelsize=8)
        axes.locator_params(axis="x", nbins=3)
        name = f"{set_label(one.set)}, {LABELS[one.method]}"
        axes.set_title(f"{name}\n{METRIC_LABELS[one.metric]}, {one.protocol}", fontsize=8.5)
    rest = f" (worst {len(shown)} of {len(misses)})" if len(shown) < len(misses) else ""
    title = f"Missed cells{rest}: splits as dots, our median, the printed number dashed"
    picture.suptitle(title, fontsize=10)
    return _png(picture)


def _panels(n: int, columns: int, height: float) -> tuple[Picture, list[Any]]:
    """At least `n` panels in a grid; those left over are switched off."""
    n_rows = max(1, math.ceil(n / columns))
    picture = Picture((6.8, height * n_rows + 0.7), layout="constrained")
    grid = list(picture.subplots(n_rows, columns, squeeze=False).ravel())
    for axes in grid[n:]:
        axes.axis("off")
    return picture, grid


def _box(axes: Any, values: pd.Series, place: float, colour: str) -> None:
    """Quartiles as a bar, 5% to 95% as a line, the median as a tick."""
    low, first, middle, third, high = values.quantile([0.05, 0.25, 0.5, 0.75, 0.95])
    axes.plot([low, high], [place, place], color=colour, lw=1)
    axes.barh(place, third - first, left=first, height=0.15, color=colour, alpha=0.55, lw=0)
    axes.plot([middle] * 2, [place - 0.09, place + 0.09], color=colour, lw=2.4)


def _legend_of(picture: Picture, methods: Any) -> None:
    lines = [Line2D([], [], color=COLOURS[one], lw=3, label=LABELS[one]) for one in methods]
    how = {"ncols": min(6, len(lines)), "frameon": False, "fontsize": 9}
    picture.legend(handles=lines, loc="outside lower center", **how)


def _png(picture: Picture) -> bytes:
    buffer, small = io.BytesIO(), io.BytesIO()
    picture.savefig(buffer, format="png", dpi=110)
    # A palette makes the file three times smaller; this way of choosing it keeps rare colours.
    few = Image.open(buffer).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    few.save(small, "png", optimize=True)
    return small.getvalue()
