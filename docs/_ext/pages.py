"""Small things that pages and docstrings need to become a site."""

import pathlib
import re

from sphinx.ext.napoleon import Config, NumpyDocstring

CODE = re.compile(r"``[^`]+``|`[^`]+`", re.DOTALL)
NAME = re.compile(r"[A-Za-z_][\w.]*(\(\))?")
# Measurements that are parts of pages: pages of their own where something links to them.
PARTS = "results/parts/"
# Files beside the pages, which the site has as pages.
BESIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
BESIDE["CHANGELOG.md"] = "changelog.md"
OUTSIDE = re.compile(rf"\]\(((?:\.\./)*)\.\./({'|'.join(BESIDE)})")
TOCTREE = re.compile(r"```\{toctree\}\n.*?```\n*", re.DOTALL)


def complete(app, docname: str, source: list[str]) -> None:
    source[0] = OUTSIDE.sub(lambda found: f"]({found[1]}{BESIDE[found[2]]}", source[0])
    if docname == "index":
        folder = pathlib.Path(app.srcdir)
        source[0] = source[0].replace("\n*\n", f"\n{unnamed(source[0], folder)}")
        source[0] = TOCTREE.sub(lambda found: present(found[0], folder), source[0])
    if docname.startswith("results/") and not source[0].startswith("# "):
        title = docname.rpartition("/")[2].replace("_", " ").capitalize()
        source[0] = f"# {title}\n\n{source[0]}"
    if docname.startswith(PARTS):
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"


def entry(line: str) -> str:
    """Of a table of contents: `limits`, or `Limits <limits>`."""
    return re.sub(r".*<(.*)>", r"\1", line)


def unnamed(text: str, folder: pathlib.Path) -> str:
    """Pages beside this one that none of its lists has: they come under its last heading."""
    lines = [line for toctree in TOCTREE.findall(text) for line in toctree.splitlines()]
    patterns = [line for line in lines if re.fullmatch(r"[\w/]+\*", line)]
    named = {entry(line) for line in lines} | {"index"}
    named |= {path.stem for line in patterns for path in folder.glob(f"{line}.md")}
    return "".join(
        f"{path.stem}\n" for path in sorted(folder.glob("*.md")) if path.stem not in named
    )


def present(toctree: str, folder: pathlib.Path) -> str:
    """Without patterns that add nothing: pages of adaptors come with the adaptors."""
    listed = {entry(line) for line in toctree.splitlines()}

    def adds(line: str) -> bool:
        found = (path.relative_to(folder) for path in pathlib.Path(folder).glob(f"{line}.md"))
        return not {path.with_suffix("").as_posix() for path in found} <= listed

    lines = [line for line in toctree.splitlines() if not line.endswith("*") or adds(line)]
    entries = [line for line in lines if line and not line.startswith((":", "`"))]
    return "\n".join(lines) + "\n\n" if entries else ""


def as_rst(app, what, name, obj, options, lines: list[str]) -> None:
    """Docstrings are Markdown; Sphinx reads reStructuredText."""
    text = "\n".join(lines)
    text = "\n\n".join(map(paragraph, text.split("\n\n")))
    if "\n---" in text:  # sections of an estimator
        config = Config(napoleon_custom_sections=[("Attributes", "params_style")])
        text = str(NumpyDocstring(text, config, app, what, name, obj))
    lines[:] = text.split("\n")


def paragraph(text: str) -> str:
    if text.lstrip().startswith(">>>"):
        return text
    if text.strip() and all(line.startswith("    ") for line in text.splitlines() if line):
        return f"::\n\n{text}"  # an equation
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [escaped(text[end : code.start()]), literal(code[0], text[code.end() :][:1])]
        end = code.end()
    return "".join([*parts, escaped(text[end:])])


def escaped(text: str) -> str:
    """What is not code: only `**bold**` and lists mean something."""
    text = re.sub(r"(?<=\w)_(?!\w)", r"\\_", text)
    return re.sub(r"(?<!\*)\*(?!\*)|\|", r"\\\g<0>", text)


def literal(code: str, after: str) -> str:
    """A link where it is a name of ours; otherwise code."""
    inside = " ".join(code.strip("`").split())
    made = f"`{inside}`" if NAME.fullmatch(inside) else f"``{inside}``"
    return made + "\\ " * (after.isalnum())


def skip(app, what, name, obj, skipped, options) -> bool | None:
    """scikit-learn's own, for metadata that is passed on."""
    return True if re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def setup(app) -> dict:
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
