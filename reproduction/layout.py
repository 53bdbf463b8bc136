"""What a page is made of, and how templates make HTML and Markdown of it.

Text is plain; `code` in backticks is the only markup, and the filter `inline` escapes the rest.
"""

import base64
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np

METRIC_LABELS = {"lpd": "LPD", "error": "error %", "mse": "MSE", "pointwise": "pointwise LPD"}


class Entry(NamedTuple):
    """One entry of a table: a number or words, a smaller note below, and how it is marked. Where it
    is text alone a string will do."""

    text: str
    note: str = ""
    strong: bool = False
    warn: bool = False


class Table(NamedTuple):
    header: Sequence[str]
    rows: Sequence[Sequence[str | Entry]]
    protocol: str = ""


class Figure(NamedTuple):
    name: str  # of the file, without its ending
    png: bytes
    protocol: str = ""
    field: str = ""

    @property
    def base64(self) -> str:
        return base64.b64encode(self.png).decode()


MISSING = "–"


def laid_out(
    corner: str, entries: dict[Any, Any], columns: Iterable[str], protocol: str = "", gaps=False
) -> list[Table]:
    """Entries by line and column. Columns without any are left out, but for `gaps`, and so is a
    table: another section names what is missing."""
    lines, present = dict.fromkeys(line for line, _ in entries), {column for _, column in entries}
    names = [one for one in columns if gaps or one in present]
    rows = [[line, *(entries.get((line, one), MISSING) for one in names)] for line in lines]
    return [Table([corner, *names], rows, protocol)] if rows else []


def set_label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def number(value: float, places: int, sign: str = "") -> str:
    return f"{value:{sign}.{places}f}" if np.isfinite(value) else MISSING


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def html_inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def markdown_inline(text: str) -> str:
    """Code in backticks stays as it is, but for the table's bar."""

    def escaped(one: re.Match) -> str:
        return one[1].replace("|", "\\|") if one[1] else f"\\{one[2]}"

    return re.sub(r"(`[^`]+`)|([\\*<>|\[\]])", escaped, text).replace("\n", " ")


def render(template: str, form: str, **context: Any) -> str:
    """A template of the folder, whose macros are those of the form, "html" or "markdown"."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    env = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    env.filters["inline"] = html_inline if form == "html" else markdown_inline
    env.filters["plain"] = html.escape if form == "html" else str
    env.filters["on_one_line"] = lambda text: " ".join(text.split())
    env.filters["slug"] = lambda text: re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    env.globals |= {"plural": plural, "set_label": set_label}
    env.globals["numbers"] = lambda values, places: [number(one, places) for one in values]
    env.globals["each"] = lambda text, values: [text.format(one) for one in values]
    text = env.get_template(template).render(form=f"{form}.j2", **context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
