"""Pictures of predictions: each draws into `axes`, or into new ones, and returns them."""

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from ..metrics import reliability_curve

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b5b5b", "#a0522d")
MOST_SHOWN, MOST_NUMBERED = 5000, 12


def calibration(y: Any, proba: Any, axes: Any = None, n_bins: int = 10) -> Any:
    """Predicted probabilities against how often it happened, with the bars that luck would draw: of
    two classes that of the second, of more that of the predicted one. (`y`: class indices.)

    **Returns:** the matplotlib axes.

    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from mixvi import plots
    >>> rng = np.random.default_rng(0)
    >>> share = rng.random(1000)
    >>> y = (rng.random(1000) < share).astype(int)
    >>> plots.calibration(y, np.stack([1 - share, share], 1)).get_xlabel()
    'predicted probability'
    >>> plt.close()
    """
    axes, bins = axes or plt.subplots(figsize=(4.6, 4.2))[1], reliability_curve(y, proba, n_bins)
    axes.plot([0, 1], [0, 1], "--", color=GREY, lw=1, zorder=1)
    low, high = _wilson(bins.observed, bins.count)
    bars = np.maximum([bins.observed - low, high - bins.observed], 0.0)
    axes.errorbar(bins.predicted, bins.observed, bars, fmt="none", color=BLUE, lw=1.6, alpha=0.5)
    sizes = 30 + 170 * bins.count / bins.count.max()
    axes.scatter(bins.predicted, bins.observed, sizes, color=BLUE, zorder=3, clip_on=False)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set(xlabel="predicted probability", ylabel="how often it happened")
    return axes


def _wilson(share: np.ndarray, n: Any) -> tuple[np.ndarray, np.ndarray]:
    """The 90% interval of a share; never empty."""
    z2 = 1.645**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    return middle - half, middle + half


def confusion(y: Any, proba: Any, labels: Any, axes: Any = None) -> Any:
    """How often each class (a line) was predicted to be each (a column): numbers of observations,
    darker where they are a larger share of their line. (`y`: class indices.)

    **Returns:** the matplotlib axes.

    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from mixvi import plots
    >>> proba = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> axes = plots.confusion([0, 1, 1], proba, ["no", "yes"])
    >>> [text.get_text() for text in axes.texts]
    ['1', '1', '1']
    >>> plt.close()
    """
    axes = axes or plt.subplots(figsize=(4.6, 4.2))[1]
    y, proba = np.asarray(y).astype(int), np.asarray(proba, dtype=np.float64)
    k = len(labels)
    counts = np.bincount(y * k + proba.argmax(1), minlength=k * k).reshape(k, k)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1.15)
    for i, j in np.ndindex(k, k):
        if counts[i, j] and k <= MOST_NUMBERED:
            colour = "white" if share[i, j] > 0.6 else "black"
            axes.text(j, i, f"{counts[i, j]:,}", ha="center", va="center", color=colour)
    names = [_short(str(one), 10) for one in labels]
    axes.set_xticks(range(k), names, rotation=90 if k > 4 else 0)
    axes.set_yticks(range(k), names)
    axes.grid(False)
    axes.set(xlabel="predicted", ylabel="observed")
    return axes


def residuals(y: Any, predicted: Any, axes: Any = None) -> Any:
    """What was predicted against what was observed; the dashed line is where both agree.

    **Returns:** the matplotlib axes.

    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from mixvi import plots
    >>> axes = plots.residuals(np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.5]))
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('predicted', 'observed')
    >>> plt.close()
    """
    y, predicted = np.asarray(y, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    axes = axes or plt.subplots(figsize=(4.6, 4.2))[1]
    if len(y) > MOST_SHOWN:
        some = np.random.default_rng(0).choice(len(y), MOST_SHOWN, replace=False)
        y, predicted = y[some], predicted[some]
    shade = float(np.clip(60 / math.sqrt(len(y)) / 6, 0.15, 0.7))
    axes.plot(predicted, y, "o", color=BLUE, ms=4, alpha=shade, mew=0)
    ends = [max(predicted.min(), y.min()), min(predicted.max(), y.max())]
    ends = ends if ends[0] < ends[1] else [min(predicted.min(), y.min()), y.max()]
    axes.plot(ends, ends, "--", color=ORANGE, lw=1.4)
    axes.set(xlabel="predicted", ylabel="observed")
    return axes


def coverage(below: Any, axes: Any = None) -> Any:
    """Of intervals that should hold a share of new observations, the share that they did hold.
    `below`: of every observation, the probability that was given to what lies below it.

    **Returns:** the matplotlib axes.

    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from mixvi import plots
    >>> axes = plots.coverage(np.random.default_rng(0).random(500))
    >>> _, held = axes.lines[-1].get_data()
    >>> bool((np.diff(held) >= 0).all())
    True
    >>> plt.close()
    """
    axes = axes or plt.subplots(figsize=(4.6, 4.2))[1]
    width = np.abs(2 * np.asarray(below, dtype=np.float64) - 1)  # of the interval that reaches it
    asked = np.linspace(0.02, 0.98, 49)
    held = (width[:, None] <= asked).mean(0)
    luck = 1.645 * np.sqrt(asked * (1 - asked) / len(width))
    axes.fill_between(
        asked,
        np.clip(asked - luck, 0, 1),
        np.clip(asked + luck, 0, 1),
        color=GREY,
        alpha=0.25,
        lw=0,
    )
    axes.plot([0, 1], [0, 1], "--", color=GREY, lw=1)
    axes.plot(asked, held, color=BLUE, lw=2)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="share that the interval should hold", ylabel="share that it held")
    return axes


def effects(
    at: Any,
    mean: Any,
    low: Any,
    high: Any,
    labels: Any = ("",),
    share: Any = None,
    axes: Any = None,
) -> Any:
    """The effect of one column on a prediction, with bands: lines along numbers, dots for
    categories. `mean`, `low` and `high` are (outputs, points), `labels` names the outputs, `share`
    tells how many rows are near each point.

    **Returns:** the matplotlib axes.

    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from mixvi import plots
    >>> age = np.linspace(20, 80, 5)
    >>> axes = plots.effects(age, age / 100, age / 100 - 0.1, age / 100 + 0.1)
    >>> len(axes.lines)
    1
    >>> plt.close()
    """
    axes = axes or plt.subplots(figsize=(4.2, 3.1))[1]
    parts = [np.atleast_2d(np.asarray(part, dtype=np.float64)) for part in (mean, low, high)]
    categories = isinstance(at[0], str)
    for i, (label, *lines) in enumerate(zip(labels, *parts, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        if categories:
            _dots(axes, lines, colour, label, (i - (len(labels) - 1) / 2) * 0.7 / len(labels))
        else:
            x = np.asarray(at, dtype=np.float64)
            axes.fill_between(x, lines[1], lines[2], color=colour, alpha=0.2, lw=0)
            axes.plot(x, lines[0], color=colour, lw=2, label=label)
    if categories:
        axes.set_yticks(range(len(at)), [_short(one) for one in at])
        axes.set_ylim(len(at) - 0.5, -0.5)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(_tick)
    if share is not None and not categories:
        _where_rows_are(axes, np.asarray(at, dtype=np.float64), np.asarray(share))
    if len(labels) > 1:
        axes.legend(fontsize="small", frameon=False)
    return axes


def _dots(axes: Any, lines: Any, colour: str, label: str, shift: float) -> None:
    mean, low, high = lines
    y = np.arange(len(mean)) + shift
    bars = np.maximum([mean - low, high - mean], 0.0)
    axes.errorbar(mean, y, xerr=bars, fmt="o", color=colour, lw=1.8, ms=6, label=label)


def _where_rows_are(axes: Any, x: np.ndarray, share: np.ndarray) -> None:
    """Along the lower edge: darker where there are more rows."""
    shown = np.sqrt(share / share.max())
    width = float(np.diff(x).min()) if len(x) > 1 else 1.0
    below = axes.get_xaxis_transform()
    for at, dark in zip(x, shown, strict=True):
        left = [at - width / 2, at + width / 2]
        axes.fill_between(left, 0, 0.035, transform=below, color="k", alpha=0.55 * dark, lw=0)


def _tick(value: float, _: Any = None) -> str:
    """Without offsets, and with thousands told apart."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.6g}"


def _short(text: str, most: int = 16) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
