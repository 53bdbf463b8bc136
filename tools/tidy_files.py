"""What a commit may hold: `python tools/tidy_files.py FILE...`; pre-commit calls it.

Text ends with one newline and its lines without blanks, which is mended; large files, data sets and
marks of an unfinished merge are refused. Ends with 1 where anything was wrong.
"""

import fnmatch
import pathlib
import re
import sys

MOST_BYTES = 500_000
# Rows behind committed tables, larger by leave.
LARGE = ("docs/results/paper/rows.csv.gz",)
DATA = ("*.npz", "*.npy", "*.parquet", "*.pkl", "*.h5", "*.arff", "*.csv", "*.csv.gz", "*.zip")
# The paper's printed numbers, rows behind committed tables, and a file of an older version.
NO_DATA_SETS = ("reproduction/printed.csv", "docs/results/*", "tests/*/written_by_*.npz")
# What a program wrote stays as it is.
AS_MADE = ("docs/results/*", "*.csv", "*.json")
MERGE = re.compile(rb"^(<<<<<<< |>>>>>>> |=======$)", re.MULTILINE)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def faults(name: str, content: bytes) -> list[str]:
    """What nobody can mend but the author."""
    found = []
    if len(content) > MOST_BYTES and not matches(name, LARGE):
        found += [f"{len(content) / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.1f}"]
    if matches(name, DATA) and not matches(name, NO_DATA_SETS):
        found += ["data sets are no part of the repository: docs/data.md"]
    if b"\0" not in content and MERGE.search(content):
        found += ["an unfinished merge"]
    return found


def tidied(content: bytes) -> bytes:
    """The same text with its ends of lines and of the file in order; what is no text as it is."""
    if b"\0" in content or not content.strip():
        return content
    lines = content.replace(b"\r\n", b"\n").split(b"\n")
    return b"\n".join(line.rstrip(b" \t") for line in lines).rstrip(b"\n") + b"\n"


def main(names: list[str]) -> int:
    wrong = False
    for name in names:
        path = pathlib.Path(name)
        if not path.is_file():
            continue
        content = path.read_bytes()
        for fault in faults(path.as_posix(), content):
            print(f"{name}: {fault}")
            wrong = True
        tidy = content if matches(path.as_posix(), AS_MADE) else tidied(content)
        if tidy != content:
            path.write_bytes(tidy)
            print(f"{name}: ends of lines or of the file, mended")
            wrong = True
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
