"""A document as Markdown, with its figures as files beside it."""

import re

from ._document import Block, Bullets, Code, Document, Entry, Figure, Heading, Paragraph, Table

FIGURES = "figures"  # folder of the pictures, beside the Markdown file


def markdown(document: Document) -> str:
    return "\n\n".join(_block(one) for one in document) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {_inline(text)}"
        case Paragraph(text):
            return _inline(text)
        case Bullets(items):
            return "\n".join(f"- {_inline(item)}" for item in items)
        case Code(text):
            return f"```\n{text}\n```"
        case Table(caption, header, rows):
            lines = [_row(_inline(text) for text in header), _row("---" for _ in header)]
            lines += [_row(_entry(entry) for entry in row) for row in rows]
            return f"**{_inline(caption)}**\n\n" + "\n".join(lines)
        case Figure(name, _, alt, caption):
            return f"![{_inline(alt)}]({FIGURES}/{name}.png)\n\n{_inline(caption)}"


def _row(entries) -> str:
    return "| " + " | ".join(entries) + " |"


def _entry(entry: Entry) -> str:
    text = _inline(entry.text)
    if entry.strong:
        text = f"**{text}**"
    return f"{text}<br>{_inline(entry.note)}" if entry.note else text


def _inline(text: str) -> str:
    """Escapes what would be markup; code in backticks stays as it is, but for the table's bar."""
    parts = re.split(r"(`[^`]+`)", text)
    escaped = (
        part.replace("|", "\\|")
        if part.startswith("`")
        else re.sub(r"([\\*<>|\[\]])", r"\\\1", part)
        for part in parts
    )
    return "".join(escaped).replace("\n", " ")
