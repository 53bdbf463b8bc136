"""The pictures of the report, each as the bytes of a PNG file.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart. Pictures are at most
seven inches wide, with few columns, so that a telephone shows them readably.
"""

import io
import math
from typing import Any

import numpy as np

from ..paper import toy
from ._cells import Miss
from ._reading import TABLES, Rows, number
from .printed import METHODS

LABELS = {
    "laplace": "Laplace",
    "mu": "MVI_mu",
    "eig": "MVI_eig",
    "lr": "MVI_lr",
    "diag": "VI_diag",
    "full": "full",
    "auto": "auto",
}
COLOURS = {
    "laplace": "#000000",
    "mu": "#D55E00",
    "eig": "#009E73",
    "lr": "#0072B2",
    "diag": "#CC79A7",
    "full": "#8C6D00",
    "auto": "#56B4E9",
}
METRIC_LABELS = {"lpd": "LPD", "error": "error %", "mse": "MSE", "pointwise": "pointwise LPD"}
MOST_PANELS = 24


def set_label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def two_dimensional(posteriors: dict[str, dict[str, Any]]) -> bytes:
    """Figure 1. `posteriors`: by method the row of a fit, with `mean`, `cov` and `kl`."""
    picture = _figure(6.4, 5.6)
    from ..plots import ellipse

    axes = picture.subplots()
    x, y = np.meshgrid(np.linspace(-4.6, 3.2, 160), np.linspace(-3.9, 3.6, 160))
    grid = np.stack([x.ravel(), y.ravel()], axis=1)
    density = np.exp(toy.log_densities(grid)).reshape(x.shape)
    axes.contour(x, y, density, levels=10, colors="0.65", linewidths=0.8)
    for method, row in posteriors.items():
        mean, cov = np.asarray(row["mean"], float), np.asarray(row["cov"], float)
        label = f"{LABELS[method]}, KL = {number(row, 'kl'):.3f}"
        ellipse(axes, mean, cov, 0.7, COLOURS[method], label, True)
    axes.legend(loc="upper left", frameon=False, fontsize=10, ncols=2)
    axes.set(xlabel="$w_1$", ylabel="$w_2$")
    axes.set_title("A posterior (grey) and Gaussians fitted to it")
    axes.set_aspect("equal")
    return _png(picture)


def regression(curves: dict[str, dict[str, list[float]]], seed: int) -> bytes:
    """Figure 2. `curves`: by method the mean and sd of the location along x, on the first of the
    data sets drawn with the seed."""
    from ..paper import data

    split = data.cauchy(0, seed=seed)
    picture = _figure(6.4, 3.3 * len(curves) + 0.4)
    panels = picture.subplots(len(curves), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (method, curve) in zip(panels, curves.items(), strict=True):
        x, mean, sd = (np.asarray(curve[part], float).ravel() for part in ("x", "mean", "sd"))
        colour = COLOURS[method]
        axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=0.3, lw=0)
        axes.plot(x, mean, color=colour, label=f"{LABELS[method]}: mean, 2 sd")
        axes.plot(x, data.curve(x), color="black", lw=1, ls="--", label="true curve")
        axes.plot(np.ravel(split.x), np.ravel(split.y), "o", color="black", ms=3.5, label="data")
        axes.legend(frameon=False, loc="lower center", ncols=3, fontsize=9)
        axes.set(ylabel="y")
        axes.margins(y=0.18)
    panels[0].set_title("Cauchy regression under uniform noise, first data set")
    panels[-1].set(xlabel="x")
    return _png(picture)


def differences(rows: Rows, protocol: str, field: str) -> bytes | None:
    """Box plots over splits of method minus Laplace, per test point; one panel for each table."""
    methods = tuple(method for method in METHODS if method != "laplace")
    panels = {table: _differences_of(rows, protocol, table, field, methods) for table in TABLES}
    panels = {table: found for table, found in panels.items() if found}
    if not panels:
        return None
    heights = [len(found) + 0.6 for found in panels.values()]
    picture = _figure(6.6, 0.62 * sum(heights) + 1.6)
    grid = picture.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (table, found) in zip(grid, panels.items(), strict=True):
        for place, by_method in enumerate(found.values()):
            for at, method in enumerate(methods):
                if method in by_method:
                    _box(axes, by_method[method], place + 0.2 * (at - 1.5), COLOURS[method])
        axes.axvline(0, color="0.3", lw=1)
        axes.set_yticks(range(len(found)), [set_label(name) for name in found])
        axes.set_ylim(len(found) - 0.4, -0.6)
        # Most differences are a thousandth of a nat and some are ten: linear near 0, log beyond.
        axes.set_xscale("symlog", linthresh=1e-3, linscale=0.7)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_title(f"{table.capitalize()}: right of 0 is better than Laplace", fontsize=10)
    grid[-1].set_xlabel(f"{METRIC_LABELS.get(field, field)} minus Laplace's, nats per test point")
    _legend_of(picture, methods)
    return _png(picture)


def _differences_of(
    rows: Rows, protocol: str, table: str, field: str, methods: tuple[str, ...]
) -> dict[str, dict[str, np.ndarray]]:
    """By set and method; Cauchy's numbers are per test point already."""
    found = {}
    for name in rows.sets(table):
        base = rows.column((protocol, table, name, "laplace"), field)
        by_method = {}
        for method in methods:
            other = rows.column((protocol, table, name, method), field)
            size = rows.column((protocol, table, name, method), "n_test")
            shared = [split for split in other if split in base and (split in size)]
            scale = [1.0 if table == "cauchy" else size[split] for split in shared]
            if shared:
                pairs = np.array([other[split] - base[split] for split in shared])
                by_method[method] = pairs / np.array(scale)
        if by_method:
            found[name] = by_method
    return found


def trend(rows: Rows, protocol: str) -> bytes | None:
    """Joint LPD against the number of draws, medians over the splits that have it."""
    found = trends(rows, protocol)
    if not found:
        return None
    names = list(found)[:MOST_PANELS]
    picture, grid = _panels(len(names), 2, 2.4)
    for axes, place in zip(grid, names, strict=False):
        for method, values in found[place].items():
            numbers = sorted(values)
            medians = [values[n] for n in numbers]
            axes.plot(numbers, medians, "o-", ms=4, color=COLOURS[method], lw=1.4)
        axes.set_xscale("log")
        axes.set_title(set_label(place[1]), fontsize=10)
        axes.tick_params(labelsize=8)
        axes.grid(color="0.92")
    shown = [one for one in LABELS if any(one in by_method for by_method in found.values())]
    picture.suptitle(f"Joint LPD against the number of draws (protocol {protocol})", fontsize=11)
    _legend_of(picture, tuple(shown))
    return _png(picture)


def trends(rows: Rows, protocol: str) -> dict[tuple[str, str], dict[str, dict[int, float]]]:
    """By table and set, by method: the median joint LPD by number of draws."""
    found: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    places = [(table, name) for table in TABLES for name in rows.sets(table)]
    for table, name, method in [(*place, method) for place in places for method in LABELS]:
        by_split = rows.fits.get((protocol, table, name, method), {})
        collected: dict[int, list[float]] = {}
        for row in by_split.values():
            for n in row.get("trend") or {}:
                value = number(row, f"trend.{n}")
                if math.isfinite(value):
                    collected.setdefault(int(n), []).append(value)
        if collected:
            medians = {n: float(np.median(values)) for n, values in collected.items()}
            found.setdefault((table, name), {})[method] = medians
    return found


def missed(misses: list[Miss]) -> bytes:
    """Every missed cell over its splits, with our median and the printed number."""
    shown = misses[:MOST_PANELS]
    picture, grid = _panels(len(shown), 3 if len(shown) > 2 else 2, 1.75)
    rng = np.random.default_rng(0)
    for axes, miss in zip(grid, shown, strict=False):
        one = miss.cell
        colour = COLOURS[one.method]
        height = rng.uniform(-0.35, 0.35, one.n_splits)
        axes.plot(one.values, height, "o", ms=3, alpha=0.6, color=colour, mew=0)
        axes.plot([one.median] * 2, [-0.5, 0.5], color=colour, lw=2.2)
        axes.plot([one.printed] * 2, [-0.5, 0.5], color="black", lw=1.6, ls="--")
        axes.set(ylim=(-0.6, 0.6), yticks=[])
        axes.tick_params(labelsize=8)
        axes.locator_params(axis="x", nbins=3)
        label = METRIC_LABELS[one.metric]
        axes.set_title(f"{set_label(one.set)}, {LABELS[one.method]}\n{label}, {one.protocol}",
                       fontsize=8.5)  # fmt: skip
    rest = f" (worst {len(shown)} of {len(misses)})" if len(shown) < len(misses) else ""
    title = f"Missed cells{rest}: splits as dots, our median, the printed number dashed"
    picture.suptitle(title, fontsize=10)
    return _png(picture)


# --- what they share --------------------------------------------------------------------------


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure  # not pyplot: no window system, no global state
    except ImportError as error:
        raise ImportError("the report needs matplotlib: pip install 'mixvi[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def _panels(n: int, columns: int, height: float) -> tuple[Any, list[Any]]:
    """At least `n` panels in a grid; those left over are switched off."""
    n_rows = max(1, math.ceil(n / columns))
    picture = _figure(6.8, height * n_rows + 0.7)
    grid = list(picture.subplots(n_rows, columns, squeeze=False).ravel())
    for axes in grid[n:]:
        axes.axis("off")
    return picture, grid


def _box(axes: Any, values: np.ndarray, place: float, colour: str) -> None:
    """Quartiles as a bar, 5% to 95% as a line, the median as a tick."""
    low, first, middle, third, high = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))
    axes.plot([low, high], [place, place], color=colour, lw=1)
    axes.barh(place, third - first, left=first, height=0.15, color=colour, alpha=0.55, lw=0)
    axes.plot([middle] * 2, [place - 0.09, place + 0.09], color=colour, lw=2.4)


def _legend_of(picture: Any, methods: tuple[str, ...]) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=COLOURS[one], lw=3, label=LABELS[one]) for one in methods]
    picture.legend(handles=lines, loc="outside lower center", ncols=min(6, len(lines)),
                   frameon=False, fontsize=9)  # fmt: skip


def _png(picture: Any) -> bytes:
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=110)
    # A palette makes the file three times smaller; this way of choosing it keeps rare colours.
    from PIL import Image  # matplotlib needs it too

    small = io.BytesIO()
    few = Image.open(buffer).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    few.save(small, "png", optimize=True)
    return small.getvalue()
