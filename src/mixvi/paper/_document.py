"""A page before it has a format: what the report says, once, for HTML and for Markdown.

Text is plain; `code` in backticks is the only markup, and each renderer escapes the rest.
"""

from typing import NamedTuple


class Heading(NamedTuple):
    level: int  # 1: the title; 2 are listed at the top
    text: str


class Paragraph(NamedTuple):
    text: str


class Bullets(NamedTuple):
    items: tuple[str, ...]


class Code(NamedTuple):
    text: str


class Entry(NamedTuple):
    """One entry of a table: a number or words, a smaller note below, and how it is marked."""

    text: str
    note: str = ""
    strong: bool = False
    warn: bool = False


class Table(NamedTuple):
    """`wordy` tables may break lines within an entry; tables of numbers scroll instead."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    wordy: bool = False


class Figure(NamedTuple):
    name: str  # of the file, without its ending
    png: bytes
    alt: str
    caption: str


Block = Heading | Paragraph | Bullets | Code | Table | Figure
Document = tuple[Block, ...]
