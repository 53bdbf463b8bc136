"""Bad tables and command lines given to `mixvi`, and what it says; printed by itself."""

import contextlib
import io
import os
import shlex
import tempfile
from pathlib import Path

import mixvi_cli

GOOD = "age,city,did\n" + "".join(
    f"{20 + 7 * i % 50},{('Rome', 'Oslo', 'Bonn')[i % 3]},{'ab'[i * i % 5 > 1]}\n"
    for i in range(40)
)
FIT = "fit t.csv --target did"


def cell(old: str, new: str) -> str:
    """The good table with its first such cell changed."""
    return GOOD.replace(old, new, 1)


def column(name: str, cells: list[str]) -> str:
    lines = GOOD.splitlines()
    whole = [name, *(cells[i % len(cells)] for i in range(len(lines) - 1))]
    return "".join(f"{one},{line}\n" for one, line in zip(whole, lines, strict=True))


def decimals() -> str:
    """As a spreadsheet writes it where decimals have commas."""
    table = column("price", ["1.5", "2.25", "3"])
    return table.replace(",", ";").replace(".", ",")


TEXTS = [f"customer {i}" for i in range(100)]
POINTS = column("price", ["950", "1.250"]).replace(",", ";")
NEW = "predict good.mvi t.csv"

# What is wrong, the content of t.csv, and the command line.
CASES: list[tuple[str, str | bytes | None, str]] = [
    ("no command", GOOD, ""),
    ("no target", GOOD, "fit t.csv"),
    ("a target that is not there", GOOD, "fit t.csv --target Did"),
    ("no such file", GOOD, "fit tt.csv --target did"),
    ("an empty file", "", FIT),
    ("a header and no rows", "age,city,did\n", FIT),
    ("no header", GOOD.split("\n", 1)[1].replace("Rome", "1"), FIT),
    ("two columns of one name", GOOD.replace("city", "age"), FIT),
    ("a line cut short", cell("27,Oslo,", "27,Oslo"), FIT),
    ("a quote that is never closed", cell("Oslo", '"Oslo'), FIT),
    ("latin-1", cell("Oslo", "Köln").encode("latin-1"), FIT),
    ("a workbook", b"PK\x03\x04\x14\x00", FIT),
    ("a missing value", cell("27,", ","), FIT),
    ("a word among numbers", cell("27,", "unknown,"), FIT),
    ("infinity", cell("27,", "inf,"), FIT),
    ("a huge integer", cell("27,", "123456789012345678901234567890,"), FIT),
    ("decimal commas", decimals(), FIT),
    ("points between thousands", POINTS, f"{FIT} --decimal ,"),
    ("commas between thousands", column("price", ['"1,250.50"', "950"]), FIT),
    ("a currency", column("price", ["$950", "$870"]), FIT),
    ("a text that stands for no value", column("region", ["EU", "NA"]), FIT),
    ("a number beyond all others", cell("27,", "1e300,"), FIT),
    ("dates", column("when", ["2026-01-02", "2026-02-03"]), FIT),
    ("one class", GOOD.replace(",b\n", ",a\n"), FIT),
    ("text where numbers are asked for", GOOD, f"{FIT} --task regress"),
    ("counts that are negative", column("n", ["1", "-2", "5"]), "fit t.csv -t n --task count"),
    ("nothing to predict from", column("x", ["1"]), f"{FIT} --drop age city"),
    ("only names of rows", column("name", TEXTS), f"{FIT} --drop age city"),
    ("the table as output", GOOD, f"{FIT} -o t.csv"),
    ("an unknown category", cell("Oslo", "Olso"), NEW),
    ("another type", cell("27,", "old,"), NEW),
    ("a column that is missing", GOOD.replace("city", "town"), NEW),
    ("no share", GOOD, f"{NEW} --interval 90"),
    ("a table for a model", GOOD, "predict t.csv t.csv"),
    ("a model cut short", None, "explain cut.mvi"),
]  # fmt: skip


def said(args: list[str]) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = mixvi_cli.main(args)
    lines = [one for one in err.getvalue().splitlines() if "usage:" not in one[:8]]
    return code, " ".join(lines[:1] if code == 1 else [one for one in lines if one[:1] != " "])


def outcomes(folder: Path) -> list[tuple[str, str, int, str]]:
    (folder / "good.csv").write_text(GOOD)
    assert said(["fit", "good.csv", "-t", "did", "--no-report", "--basis", "linear"])[0] == 0
    (folder / "cut.mvi").write_bytes((folder / "good.mvi").read_bytes()[:3000])
    found = []
    for what, content, line in CASES:
        if content is not None:
            raw = content if isinstance(content, bytes) else content.encode()
            (folder / "t.csv").write_bytes(raw)
        found.append((what, line, *said(shlex.split(line))))
    return found


def main() -> None:
    print("| what is wrong | `mixvi ...` | code | what it says |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for what, line, code, sentence in outcomes(Path(folder)):
            sentence = sentence.replace("|", "\\|").replace("<", "&lt;")
            print(f"| {what} | `{line}` | {code} | {sentence} |")


if __name__ == "__main__":
    main()
