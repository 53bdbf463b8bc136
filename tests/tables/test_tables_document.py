"""docs/tables.md: every command runs, and prints what is shown."""

import contextlib
import io
import pathlib
import re
import shlex

import matplotlib
import pytest

import mixvi_cli
from documents import assert_alike

matplotlib.use("Agg")
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tables.md"
GAP = "…"
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


def shown_part(shown: str, printed: str) -> str:
    """The lines of `printed` that are shown; `…` is in the place of those that are not. Blank lines
    at the ends, and beside a gap, do not count."""
    lines, found, after, gap = printed.strip().splitlines(), [], 0, False
    for line in shown.strip().splitlines():
        if line == GAP:
            gap = True
            continue
        bare = _words(line)
        at = next(i for i in range(after, len(lines)) if _words(lines[i]) == bare)
        between = any(one.strip() for one in lines[after:at])
        assert gap == between, f"{GAP!r} where lines are left out and only there: {line!r}"
        found.append(lines[at])
        after, gap = at + 1, False
    assert gap == any(one.strip() for one in lines[after:]), f"{GAP!r} at the end, or none"
    return "\n".join(found)


def test_lines_that_are_left_out_are_marked():
    printed = "one\ntwo\n\nthree\n"
    for shown in ("one\ntwo\n\nthree\n", "…\ntwo\n…\n", "one\n…\nthree"):
        shown_part(shown, printed)
    for shown in ("two\n…", "one\nthree", "one\ntwo", "…\none\ntwo\n\nthree", "one\n…\ntwo\n…"):
        with pytest.raises(AssertionError, match="…"):
            shown_part(shown, printed)


def test_the_document_shows_what_is_printed():
    """Of a long output a part may be shown: whole lines, in order, `…` between them."""
    text = DOCUMENT.read_text(encoding="utf-8")
    pairs = ran_blocks(text)
    assert len(pairs) == 5
    for shown, printed in pairs:
        part = shown_part(shown, printed)
        assert part
        assert_alike(part, shown.replace(GAP, ""))
    commands = [block for kind, block in BLOCK.findall(text) if kind == "sh"]
    assert sum(line.startswith("mixvi") for block in commands for line in block.splitlines()) < 5


def _words(line: str) -> str:
    return " ".join(re.sub(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?", "#", line).split())
