"""docs/tables.md: every command runs, and prints what is shown."""

import contextlib
import io
import pathlib
import re
import shlex

import matplotlib

import mixvi_cli
from documents import assert_alike

matplotlib.use("Agg")
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tables.md"
BLOCK = re.compile(r"```(sh|python|text)\n(.*?)```", re.DOTALL)


def shell(line: str) -> None:
    program, *args = shlex.split(line)
    if program == "mixvi":
        assert mixvi_cli.main(args) == 0
    elif program == "cat":
        print(pathlib.Path(args[0]).read_text())
    else:
        assert program == "pip"


def ran_blocks(text: str) -> list[tuple[str, str]]:
    """Every text block as shown, and what was printed before it."""
    namespace: dict = {}
    printed, pairs = "", []
    for kind, block in BLOCK.findall(text):
        if kind == "text":
            pairs.append((block, printed))
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if kind == "python":
                exec(compile(block, "tables.md", "exec"), namespace)
            else:
                for line in block.strip().splitlines():
                    shell(line)
        printed = out.getvalue()
    return pairs


def test_the_document_shows_what_is_printed():
    """Of a long output a part may be shown: whole lines, in order."""
    text = DOCUMENT.read_text(encoding="utf-8")
    pairs = ran_blocks(text)
    assert len(pairs) == 5
    for shown, printed in pairs:
        assert shown.strip()
        lines, after = printed.splitlines(), 0
        found = []
        for line in shown.splitlines():
            bare = _words(line)
            at = next(i for i in range(after, len(lines)) if _words(lines[i]) == bare)
            found.append(lines[at])
            after = at + 1
        assert_alike("\n".join(found), shown)
    commands = [block for kind, block in BLOCK.findall(text) if kind == "sh"]
    assert sum(line.startswith("mixvi") for block in commands for line in block.splitlines()) < 5


def _words(line: str) -> str:
    return " ".join(re.sub(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?", "#", line).split())
