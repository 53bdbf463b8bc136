"""A document as one self-contained HTML page: nothing is loaded from anywhere."""

import base64
import html
import re

from ._document import Block, Bullets, Code, Document, Entry, Figure, Heading, Paragraph, Table

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 64rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.3rem; margin-top: 2.6rem;
  border-bottom: 2px solid #0072b2; padding-bottom: .2rem; } h3 { font-size: 1.08rem; }
p, li { max-width: 46rem; }
nav ol { columns: 17rem; padding-left: 1.4rem; font-size: .95rem; }
a { color: #0060a0; }
code { font-size: .92em; background: #f2f2f2; padding: 0 .2em; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .85rem; }
pre code { background: none; padding: 0; }
.caption { margin: 1.4rem 0 .4rem; font-weight: 600; font-size: .95rem; }
.wide { overflow-x: auto; width: fit-content; max-width: 100%;
  border: 1px solid #ddd; border-radius: 4px; }
table { border-collapse: separate; border-spacing: 0; font-size: .88rem; line-height: 1.35; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid #e4e4e4; text-align: right;
  vertical-align: top; white-space: nowrap; overflow-wrap: normal;
  font-variant-numeric: tabular-nums; }
thead th { background: #f3f6f9; vertical-align: bottom; white-space: normal; min-width: 4.5rem; }
tr > :first-child { position: sticky; left: 0; background: #fff; text-align: left;
  white-space: normal; min-width: 6rem; max-width: 10rem; border-right: 1px solid #ddd; }
thead tr > :first-child { background: #f3f6f9; z-index: 1; }
tbody th { font-weight: 500; }
.wordy th, .wordy td { text-align: left; }
.wordy td { white-space: normal; max-width: 24rem; }
.wordy td:last-child { min-width: 11rem; }
.note { display: block; color: #595959; font-size: .85em; font-weight: 400; }
.warn { background: #fdebdc; }
figure { margin: 1.4rem 0; } img { max-width: 100%; height: auto; display: block; }
figcaption { font-size: .92rem; color: #444; max-width: 46rem; }
@media (max-width: 40rem) {
  table { font-size: .8rem; } th, td { padding: .3rem .4rem; }
  thead th { min-width: 3.6rem; } tr > :first-child { min-width: 5rem; max-width: 7.5rem; }
  .wordy tr > :first-child { min-width: 8rem; max-width: 8.5rem; }
}
"""


def page(document: Document) -> str:
    """The whole page. The first heading of level 1 is its title."""
    title = next(one.text for one in document if isinstance(one, Heading) and one.level == 1)
    body = "\n".join(_block(one, place) for place, one in enumerate(document))
    body = body.replace("</h1>", "</h1>\n" + _contents(document), 1)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _contents(document: Document) -> str:
    links = [
        f'<li><a href="#part-{place}">{_inline(one.text)}</a></li>'
        for place, one in enumerate(document)
        if isinstance(one, Heading) and one.level == 2
    ]
    return f'<nav aria-label="Contents"><ol>{"".join(links)}</ol></nav>' if links else ""


def _block(block: Block, place: int) -> str:
    match block:
        case Heading(level, text):
            return f'<h{level} id="part-{place}">{_inline(text)}</h{level}>'
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Code(text):
            return f'<pre tabindex="0"><code>{html.escape(text)}</code></pre>'
        case Table():
            return _table(block, place)
        case Figure(_, png, alt, caption):
            data = base64.b64encode(png).decode()
            return (
                f'<figure><img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'
                f"<figcaption>{_inline(caption)}</figcaption></figure>"
            )


def _table(table: Table, place: int) -> str:
    head = "".join(f'<th scope="col">{_inline(text)}</th>' for text in table.header)
    body = "\n".join(
        "<tr>" + "".join(_entry(entry, first=not at) for at, entry in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    kind = "wordy" if table.wordy else "numbers"
    # The caption stays outside what scrolls, so that a narrow screen shows all of it.
    return (
        f'<p class="caption" id="caption-{place}">{_inline(table.caption)}</p>\n'
        f'<div class="wide" role="region" aria-labelledby="caption-{place}" tabindex="0">'
        f'<table class="{kind}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>'
        "</table></div>"
    )


def _entry(entry: Entry, first: bool) -> str:
    text = _inline(entry.text)
    if entry.strong:
        text = f"<strong>{text}</strong>"
    if entry.note:
        text += f' <span class="note">{_inline(entry.note)}</span>'
    style = ' class="warn"' if entry.warn else ""
    return f'<th scope="row"{style}>{text}</th>' if first else f"<td{style}>{text}</td>"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
