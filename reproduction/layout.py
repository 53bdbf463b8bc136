"""What a page is made of, and how templates make HTML and Markdown of it.

Text is plain; `code` in backticks is the only markup, and the filter `inline` escapes the rest.
"""

import base64
import html
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np

METRIC_LABELS = {"lpd": "LPD", "error": "error %", "mse": "MSE", "pointwise": "pointwise LPD"}


class Entry(NamedTuple):
    """One entry of a table: a number or words, a smaller note below, and how it is marked."""

    text: str
    note: str = ""
    strong: bool = False
    warn: bool = False


class Table(NamedTuple):
    """`wordy` tables may break lines within an entry; tables of numbers scroll instead."""

    header: tuple[str, ...]
    rows: list[tuple[Entry, ...]]
    protocol: str = ""
    wordy: bool = False


MISSING = Entry("–")


def set_label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def number(value: float, places: int, signed: bool = False) -> str:
    if not np.isfinite(value):
        return "–"
    return f"{value:+.{places}f}" if signed else f"{value:.{places}f}"


def without_gaps(
    header: Iterable[str], lines: list[tuple[Entry, ...]], protocol: str = ""
) -> list[Table]:
    """Sets and columns without any number are left out: another section names what is missing."""
    header = tuple(header)
    lines = [line for line in lines if any(entry != MISSING for entry in line[1:])]
    keep = [k for k in range(len(header)) if k == 0 or any(line[k] != MISSING for line in lines)]
    some = [tuple(line[k] for k in keep) for line in lines]
    return [Table(tuple(header[k] for k in keep), some, protocol)] if some else []


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


class Figure(NamedTuple):
    name: str  # of the file, without its ending
    png: bytes
    protocol: str = ""
    field: str = ""

    @property
    def base64(self) -> str:
        return base64.b64encode(self.png).decode()


# --- templates --------------------------------------------------------------------------------


def html_inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def markdown_inline(text: str) -> str:
    """Code in backticks stays as it is, but for the table's bar."""
    parts = re.split(r"(`[^`]+`)", text)
    escaped = (
        part.replace("|", "\\|")
        if part.startswith("`")
        else re.sub(r"([\\*<>|\[\]])", r"\\\1", part)
        for part in parts
    )
    return "".join(escaped).replace("\n", " ")


INLINE = {"html": html_inline, "markdown": markdown_inline}


def render(template: str, form: str, **context: Any) -> str:
    """A template of the folder, whose macros are those of the form, "html" or "markdown"."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    env = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    env.filters["inline"] = INLINE[form]
    env.filters["plain"] = html.escape if form == "html" else str
    env.filters["on_one_line"] = lambda text: " ".join(text.split())
    env.filters["slug"] = lambda text: re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    text = env.get_template(template).render(form=f"{form}.j2", **context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
