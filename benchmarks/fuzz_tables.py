"""A table whose bytes are changed at random, 1,000 times, given to `mixvi fit` and `mixvi predict`:
each ends with a result or with one sentence, never with a traceback. Printed by itself.

    python benchmarks/fuzz_tables.py > docs/results/parts/fuzz_tables.md
"""

import collections
import contextlib
import io
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np

import mixvi_cli

N, ROWS = 1000, 40
# What breaks readers of tables.
TOKENS = (
    b'"', b'""', b",", b";", b"\t", b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\xef\xbb\xbf",
    b"\xc3", b"NA", b"nan", b"inf", b"-inf", b"1e999", b"-0", b"0x1f", b"1_000", b"1,5",
    b"9" * 30, b"1e-320", b"true", b"2024-01-02", b"10:30", b"\xc2\xa0", b" ", b"'", b"\\",
    b"=1+1", b"#", b"\x1a", b"id", "é".encode(), "٣".encode(), "²".encode(), b"-", b"+", b".",
    b"e", b"did", b"a" * 5000,
)  # fmt: skip


def table(seed: int = 0, target: bool = True) -> bytes:
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 80, ROWS)
    city = rng.choice(["Rome", "Paris", "Oslo"], ROWS)
    member = rng.choice(["yes", "no"], ROWS)
    eta = (age - 50) / 15 + (city == "Oslo") + rng.logistic(size=ROWS)
    lines = ["age,height,city,member" + ",did" * target]
    for i in range(ROWS):
        line = f'{age[i]},{rng.normal(170, 9):.1f},"{city[i]}",{member[i]}'
        lines.append(line + f",{'ab'[int(eta[i] > 0)]}" * target)
    return ("\n".join(lines) + "\n").encode()


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """One to four changes: bytes, tokens, cells, lines, the end."""
    for _ in range(rng.integers(1, 5)):
        content = KINDS[rng.integers(len(KINDS))](content, rng)
    return content


def _byte(content: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(content) + 1))
    return content[:at] + bytes([rng.integers(256)]) + content[at + 1 :]


def _token(content: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(content) + 1))
    return content[:at] + TOKENS[rng.integers(len(TOKENS))] + content[at:]


def _cell(content: bytes, rng: np.random.Generator) -> bytes:
    """A whole cell becomes another."""
    parts = re.split(rb"([,\n])", content)
    at = 2 * int(rng.integers((len(parts) + 1) // 2))
    parts[at] = TOKENS[rng.integers(len(TOKENS))]
    return b"".join(parts)


def _column(content: bytes, rng: np.random.Generator) -> bytes:
    """One token in place of all cells of a column."""
    lines = [line.split(b",") for line in content.split(b"\n")]
    at, token = int(rng.integers(5)), TOKENS[rng.integers(len(TOKENS))]
    for line in lines[1:]:
        if at < len(line):
            line[at] = token
    return b"\n".join(b",".join(line) for line in lines)


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    low, high = np.sort(rng.integers(len(content) + 1, size=2))
    return content[:low] + content[high:] if rng.random() < 0.5 else content[:high]


def _lines(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.split(b"\n")
    i, j = rng.integers(len(lines), size=2)
    if rng.random() < 0.5:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines.insert(int(i), lines[j])
    return b"\n".join(lines)


def _replaced(content: bytes, rng: np.random.Generator) -> bytes:
    """One byte by another, everywhere."""
    old, new = (TOKENS[i][:1] for i in rng.integers(len(TOKENS), size=2))
    return content.replace(old, new)


KINDS = (_byte, _token, _token, _cell, _cell, _column, _cut, _lines, _replaced)


class Outcome(NamedTuple):
    code: int
    said: str
    content: bytes


def outcome(args: list[str]) -> tuple[int, str]:
    """Exit code and last line on stderr; 4 and the traceback where one came out."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = mixvi_cli.main(args)
        except BaseException:
            return 4, traceback.format_exc()
    if code == 1 and err.getvalue().count("\n") != 1:
        return 4, f"not one sentence: {err.getvalue()}"
    return code, err.getvalue().strip().rsplit("\n", 1)[-1]


def fuzzed(folder: Path, n: int, seed: int = 0, reports: bool = True) -> dict[str, list[Outcome]]:
    """`n` mutations, one half for each command; every tenth fit draws a report, too."""
    rng = np.random.default_rng(seed)
    good, bad, model = folder / "good.csv", folder / "bad.csv", str(folder / "good.mvi")
    good.write_bytes(table())
    quick = ["--basis", "linear", "--family", "laplace"]
    fit = ["-t", "did", *quick, "-o"]
    assert outcome(["fit", str(good), *fit, model, "--no-report"])[0] == 0
    found: dict[str, list[Outcome]] = {"fit": [], "predict": []}
    for i in range(n):
        command = ("fit", "predict")[i % 2]
        content = mutated(table(target=command == "fit"), rng)
        bad.write_bytes(content)
        if command == "fit":
            shown = ["--report", str(folder / "bad.html")] if reports and i % 20 == 0 else []
            impute = ["--impute", "median"] if i % 4 == 0 else []
            args = [str(bad), *fit, str(folder / "bad.mvi"), *impute, *(shown or ["--no-report"])]
        else:
            args = [model, str(bad)]
        found[command].append(Outcome(*outcome([command, *args]), content))
    return found


def _kind(sentence: str) -> str:
    """What a sentence says, without the names in it."""
    sentence = re.sub(r"^mixvi \w+: ", "", sentence)
    sentence = re.sub(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"", "…", sentence)
    return re.sub(r"\d[\d,.]*", "#", sentence)[:60]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = fuzzed(Path(folder), N)
    bad = [one for its in found.values() for one in its if one.code not in (0, 1, 3)]
    print(f"{N:,} mutations of a table of {ROWS} rows; tracebacks or bugs: {len(bad)}.\n")
    print("| command | mutations | a result | one sentence | sentences of different kinds |")
    print("|---|---|---|---|---|")
    for command, its in found.items():
        codes = collections.Counter(one.code for one in its)
        kinds = {_kind(one.said) for one in its if one.code == 1}
        counts = (len(its), codes[0] + codes[3], codes[1], len(kinds))
        print(f"| `mixvi {command}` | {' | '.join(map(str, counts))} |")
    for one in bad:
        print(f"\n{one.code}: {one.said}\n{one.content!r}", file=sys.stderr)


if __name__ == "__main__":
    main()
