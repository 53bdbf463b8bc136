"""Source files that pages link to are pages of their own, with functions where they stand."""

import ast
import functools
import importlib
import inspect
import os
import pathlib
from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes

ROOT = pathlib.Path(__file__).resolve().parents[2]


def page_of(path: pathlib.Path) -> str:
    return f"source/{path.relative_to(ROOT).as_posix()}"


@functools.cache
def lines_of(path: pathlib.Path) -> dict[str, int]:
    """Where functions and classes begin, by name: `climb`, `EigenScale.pull_back`."""
    found: dict[str, int] = {}

    def walk(body: list[ast.stmt], before: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[before + node.name] = node.lineno
                walk(node.body, f"{before}{node.name}.")

    walk(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def place_of(module: str, name: str) -> str | None:
    """Of a documented object, as seen from a page one folder down."""
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    found = getattr(found, "fget", None) or getattr(found, "func", None) or found
    try:
        found = inspect.unwrap(found)
        path = pathlib.Path(inspect.getsourcefile(found) or "")
        line = inspect.getsourcelines(found)[1]
    except TypeError:
        return None
    return f"../{page_of(path)}.html#L-{line}" if ROOT / "src" in path.parents else None


def mend(app, doctree: nodes.document) -> None:
    docname = app.env.current_document.docname
    up = "../" * docname.count("/")
    for node in list(doctree.findall(addnodes.download_reference)):
        target = node["reftarget"].split("#")[0]
        path = pathlib.Path(os.path.normpath(app.srcdir / pathlib.Path(docname).parent / target))
        if path.suffix != ".py" or ROOT not in path.parents:
            continue
        line = lines_of(path).get(node.astext().removesuffix("()"))
        place = f"{page_of(path)}.html" + (f"#L-{line}" if line else "")
        node.replace_self(nodes.reference("", "", *node.children, refuri=up + place, internal=True))


def source_pages(app) -> Iterator[tuple[str, dict, str]]:
    """All of the package, and whatever else the pages link to."""
    text = "".join(path.read_text() for path in pathlib.Path(app.srcdir).rglob("*.md"))
    folders = ("src", "benchmarks", "examples", "reproduction")
    for path in sorted(one for folder in folders for one in (ROOT / folder).rglob("*.py")):
        relative = path.relative_to(ROOT).as_posix()
        if relative.startswith("src/") or relative in text:
            code = app.builder.highlighter.highlight_block(
                path.read_text(encoding="utf-8"), "python", lineanchors="L"
            )
            body = f"<h1>{relative}</h1>\n{code}"
            yield page_of(path), {"title": relative, "body": body}, "page.html"


def setup(app) -> dict:
    app.connect("doctree-read", mend, priority=100)  # before downloads are collected
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
