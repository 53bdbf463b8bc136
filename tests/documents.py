"""Runs the examples of a page. Needs nothing but the package: `tools/distribution.py`, too, runs
the README by it."""

import contextlib
import io
import pathlib
import re

import numpy as np

BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
EXTRA = re.compile(r"pip install 'mixvi\[(\w+)\]'")


def run_blocks(path: pathlib.Path, without_extras: bool = False) -> set[str]:
    """Python blocks in order in one namespace; a text block is what has been printed since.
    `without_extras`: a block may be refused by an ImportError that says which extra it needs; it
    and what it would have printed are passed over. The extras are returned."""
    namespace: dict = {}
    printed: str | None = ""
    missing = set()
    for kind, block in BLOCK.findall(path.read_text(encoding="utf-8")):
        if kind == "text":
            if printed is not None:
                assert_alike(printed, block)
            continue
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(block, path.name, "exec"), namespace)
        except ImportError as error:
            extra = EXTRA.search(str(error))
            if not without_extras or extra is None:
                raise
            missing.add(extra[1])
            printed = None
        else:
            printed = out.getvalue()
    return missing


def assert_alike(printed: str, shown: str) -> None:
    """The same words; numbers to a few per cent, since machines differ in rounding."""
    number = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")
    assert number.sub("#", printed).split() == number.sub("#", shown).split()
    ours, theirs = (np.array(number.findall(text), dtype=float) for text in (printed, shown))
    np.testing.assert_allclose(ours, theirs, rtol=0.2, atol=5e-3)
