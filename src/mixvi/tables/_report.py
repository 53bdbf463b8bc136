"""One page that holds everything: no file beside it, nothing asked of the network."""

import base64
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from .. import __version__
from . import _words
from ._columns import Category, figure
from ._effects import Effect
from ._fit import Fitted
from ._model import TableModel
from ._scores import LEVEL, LeftOut
from ._target import CLASSIFY

MOST_PICTURES, MOST_OUTPUTS, MOST_DOTS = 12, 6, 14
DPI = 144
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.labelcolor": "#333333",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}


def report(fitted: Fitted, model_path: str) -> str:
    """The page, as HTML."""
    try:
        import jinja2

        from .. import plots
    except ImportError as err:
        raise ImportError(f"the report needs more ({err}): pip install 'mixvi[cli]'") from err
    model = fitted.model
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    env = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return env.get_template("report.html.j2").render(
        model=model,
        target=model.target,
        facts=model.facts,
        said=_words.judgement(model),
        tiles=_tiles(model),
        checks=_checks(plots, model, fitted.left_out),
        effects=_effects(plots, model),
        rest=[(one.column, _words.swing(one, model)) for one in model.effects[MOST_PICTURES:]],
        columns=_columns(model),
        about=_words.about(model),
        details=model.posterior.summary(),
        example=_example(fitted),
        model_path=model_path,
        version=__version__,
        level=f"{100 * LEVEL:.0f}",
        is_classes=model.target.task == CLASSIFY,
    )


# --- what is in it ----------------------------------------------------------------------------


def _tiles(model: TableModel) -> list[tuple[str, str, str]]:
    """Numbers worth a glance: what, how much, and beside what."""
    score = model.score
    if model.target.task == CLASSIFY:
        first = ("right on rows it has not seen", f"{100 * score.hit:.0f}%")
        made = [(*first, f"always one answer: {100 * score.hit_without:.0f}%")]
        off = (f"{100 * score.off:.1f} points", f"luck alone: up to {100 * score.luck:.1f}")
        made += [("probabilities off by", *off)]
    else:
        first = ("typical miss on rows it has not seen", figure(score.hit))
        made = [(*first, f"always the median: {figure(score.hit_without)}")]
        made += [
            ("of the spread explained", f"{100 * max(score.explained, 0):.0f}%", "0%: nothing")
        ]
    n_used, n_out = len(model.columns.used), len(model.columns.left_out)
    beside = f"{n_used} columns used" + (f", {n_out} left out" if n_out else "")
    return [*made, ("rows learnt from", f"{model.facts['rows']:,}", beside)]


def _checks(plots: Any, model: TableModel, rows: LeftOut) -> list[dict[str, str]]:
    if rows.proba is not None:
        two = len(model.target.classes) == 2
        what = f"“{model.target.classes[1]}”" if two else "the predicted class"
        caption = (
            f"Probability of {what} for rows that the model has not seen, against how often it "
            "happened. Dots on the dashed line are probabilities that can be taken at their word; "
            "bars are what luck allows in so few rows; larger dots stand for more rows."
        )
        seen = _picture((4.6, 4.4), lambda axes: plots.calibration(rows.y, rows.proba, axes))
        made = [{"title": "Do its probabilities hold?", "src": seen, "caption": caption}]
        caption = (
            "Rows that the model has not seen: each line is a class as it was, each column a class "
            "as predicted. Numbers on the diagonal were right."
        )
        labels = model.target.classes
        err = _picture((4.6, 4.4), lambda axes: plots.confusion(rows.y, rows.proba, labels, axes))
        return [*made, {"title": "Where does it err?", "src": err, "caption": caption}]
    caption = (
        f"Every dot is a row: {model.target.name} as predicted from the other rows, and as it was. "
        "The nearer to the dashed line, the better."
    )
    seen = _picture((4.6, 4.2), lambda axes: plots.residuals(rows.y, rows.location, axes))
    made = [{"title": "How near does it come?", "src": seen, "caption": caption}]
    assert rows.within is not None
    caption = (
        f"Intervals that should hold {100 * LEVEL:.0f}% of the rows held "
        f"{100 * float(rows.within.mean()):.1f}% of those that the model had not seen. A line "
        "within the grey band is what luck allows; above it intervals are wider than they need be, "
        "below it too narrow."
    )
    held = _picture((4.6, 4.4), lambda axes: plots.coverage(rows.below, axes))
    return [*made, {"title": "Do its intervals hold?", "src": held, "caption": caption}]


def _effects(plots: Any, model: TableModel) -> list[dict[str, Any]]:
    shown = model.effects[:MOST_PICTURES]
    low = min(float(one.low.min()) for one in shown)
    high = max(float(one.high.max()) for one in shown)
    room = 0.04 * (high - low)
    made = []
    for one in shown:
        picture = _effect_picture(plots, model, one, (low - room, high + room))
        words = _words.swing(one, model)
        made.append({"column": one.column, "src": picture, "words": words[0].upper() + words[1:]})
    return made


def _effect_picture(plots: Any, model: TableModel, one: Effect, ends: tuple[float, float]) -> str:
    spread = one.mean.max(1) - one.mean.min(1)
    outputs = np.sort(np.argsort(-spread, kind="stable")[:MOST_OUTPUTS])
    points = np.sort(np.argsort(-one.share, kind="stable")[:MOST_DOTS])
    points = np.arange(len(one.at)) if one.is_number else points
    pick = np.ix_(outputs, points)
    what = _what(model, one)

    def draw(axes: Any) -> None:
        at, labels = [one.at[i] for i in points], [one.outputs[i] for i in outputs]
        lines = (one.mean[pick], one.low[pick], one.high[pick])
        plots.effects(at, *lines, labels, one.share[points], axes)
        if one.is_number:
            axes.set(xlabel=one.column, ylabel=what, ylim=ends)
        else:
            axes.set(xlabel=what, xlim=ends)

    height = 3.1 if one.is_number else min(0.9 + 0.42 * max(len(points), 4), 5.5)
    return _picture((4.4, height), draw)


def _what(model: TableModel, one: Effect) -> str:
    if model.target.task != CLASSIFY:
        return model.target.name
    several = len(one.outputs) > 1
    return "probability" if several else f"probability of {one.outputs[-1]}"


def _columns(model: TableModel) -> list[dict[str, str]]:
    made = []
    for column in model.columns.used:
        enters = (
            f"{len(column.features)} of 0 and 1" if isinstance(column, Category) else "as it is"
        )
        words = column.words + _words.filled(column)
        made.append({"name": column.name, "kind": column.kind, "words": words, "enters": enters})
    return made


def _example(fitted: Fitted) -> str:
    """Lines of a file to predict: the first rows, without the target."""
    used = [column.name for column in fitted.model.columns.used]
    first = [[fitted.raw.cells[name][row] for name in used] for row in range(2)]
    return "\n".join(",".join(_cell(text) for text in line) for line in [used, *first])


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text


def _picture(size: tuple[float, float], draw: Callable[[Any], Any]) -> str:
    """A PNG within the page itself."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(cast(Any, STYLE)), warnings.catch_warnings():
        # The page has every name in letters; a picture may lack some.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        figure = Figure(figsize=size, dpi=DPI)
        FigureCanvasAgg(figure)
        draw(figure.subplots())
        content = io.BytesIO()
        figure.savefig(content, format="png", facecolor="white", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
