"""Pieces, clusters and checkpoints that go wrong: the sentence each gets, and whether anything was
lost. Prints the page; the tests run the same cases.

    python benchmarks/bad_pieces.py          the page
    python benchmarks/bad_pieces.py --json   what was said and found, by name
    python benchmarks/bad_pieces.py NAME...  some cases

A disk that is full is a limit on the size of files here. "The same" always means to the last bit.
"""

import contextlib
import functools
import json
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import bad_clusters
import mixvi
from bad_cases import (
    CASES,
    MODEL,
    Found,
    W,
    X,
    Y,
    alike,
    case,
    disk_full_at,
    once,
    part,
    said,
    spoilt,
)
from mixvi import models

# --- pieces on one machine ----------------------------------------------------------------------


def fit_chunks(made: Callable[[int], Any]) -> str:
    chunks = mixvi.Pieces.chunks(lambda: map(made, range(8)))
    return said(lambda: mixvi.fit(MODEL, W, chunks))


@case("a chunk with another column", "chunk 7 holds data.x, data.z, where the first one holds")
def _(_):
    return Found(fit_chunks(lambda k: part(k, names=("x", "z")) if k == 7 else part(k)))


@case("NaN in chunk 7", r"data.x is NaN in row 42 of chunk 7, \[1\]: drop or fill")
def _(_):
    return Found(fit_chunks(spoilt))


@case("chunk 7 with a row less in one array", "arrays of chunk 7 must have the same number of rows")
def _(_):
    return Found(fit_chunks(lambda k: part(k) | ({"y": Y[:99]} if k == 7 else {})))


def parquet(folder: pathlib.Path) -> pathlib.Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "rows.parquet"
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y}), path, row_group_size=100)
    return path


@case("a Parquet file cut short", r"rows.parquet.*(cut short|not whole|damaged|cannot be read)")
def _(folder):
    path = parquet(folder)
    path.write_bytes(path.read_bytes()[:-500])
    return Found(said(lambda: mixvi.Pieces.parquet(path).n_rows))


@case("a CSV file cut short in the middle of a line", r"rows.csv.*Was it cut short")
def _(folder):
    path = folder / "rows.csv"
    path.write_text("a,b,y\n" + "".join(f"{a},{b},1\n" for a, b, _ in X))
    path.write_bytes(path.read_bytes()[:-30])
    return Found(said(lambda: mixvi.Pieces.csv(path).n_rows))


@case("a file that changes between two passes", "changed|now there are")
def _(folder):
    path, model = parquet(folder), models.Model(models.Linear(), models.Bernoulli())
    rows = mixvi.Pieces.parquet(path, memory=0)
    density = model.density(rows, "y")
    path.write_bytes(parquet(folder).read_bytes()[:-500])
    return Found(said(lambda: mixvi.fit(density, density.init, hyper=density.hyper)))


# --- checkpoints --------------------------------------------------------------------------------


class Slow(mixvi.Density):
    """`-sum cosh(w - centre)`; it takes its time, so that its answers are worth a file."""

    dim = 2

    def __init__(self, centre: float = 0.0, scale: float = 1.0):
        self.centre, self.scale = centre, scale

    def gradients(self, points):
        time.sleep(0.011)
        off = points - self.centre
        return self.scale * (2 - np.cosh(off).sum(1)), -self.scale * np.sinh(off)


def slow(path: Any = None, density: mixvi.Density | None = None, **how: Any) -> mixvi.Posterior:
    return mixvi.fit(density or Slow(), np.ones(2), checkpoint=path, **how)


class Stopped(Exception):
    pass


def stopped(path: pathlib.Path) -> pathlib.Path:
    """A checkpoint that a fit has left in the middle."""

    def stop() -> None:
        raise Stopped

    with contextlib.suppress(Stopped):
        slow(path, callback=once(stop))
    return path


@functools.cache
def slow_unbroken() -> mixvi.Posterior:
    return slow()


@case("a full disk at a checkpoint", "cannot be written any more.*The fit goes on")
def _(folder):
    path, posts = folder / "fit", []
    with disk_full_at(1500):
        words = said(lambda: posts.append(slow(path)))
    return Found(words, *alike("the fit ends", posts[0], slow_unbroken()))


@case("a full disk when a checkpoint is begun", "fit' cannot be written")
def _(folder):
    with disk_full_at(20):
        words = said(lambda: slow(folder / "fit"))
    return Found(words, *alike("begun again with room", slow(folder / "fit"), slow_unbroken()))


@case("a checkpoint cut short", "nothing is said")
def _(folder):
    path = stopped(folder / "fit")
    path.write_bytes(path.read_bytes()[:-7])
    posts: list[mixvi.Posterior] = []
    words = said(lambda: posts.append(slow(path)))
    return Found(words, *alike("its last answer is asked again", posts[0], slow_unbroken()))


def refused(folder: pathlib.Path, **other: Any) -> Found:
    """Another fit with a checkpoint of this one, which goes on from it afterwards."""
    path = stopped(folder / "fit")
    before = path.read_bytes()
    words = said(lambda: slow(path, **other))
    untouched = path.read_bytes() == before
    kept, is_same = alike("the file is as it was, and its fit goes on", slow(path), slow_unbroken())
    return Found(words, kept, is_same and untouched)


@case("a checkpoint of other data", r"another log density or other data \(.* at the start, now")
def _(folder):
    return refused(folder, density=Slow(centre=3.0))


@case("a checkpoint of a log density that is the same at the start", "another log density or")
def _(folder):
    class Narrow(Slow):
        def gradients(self, points):
            values, gradients = super().gradients(points)
            off = points - 1.0  # the start
            return values - 50 * (off**2).sum(1), gradients - 100 * off

    return refused(folder, density=Narrow())


@case("a checkpoint that another fit is writing", "another fit is writing")
def _(folder):
    path, words = folder / "fit", []
    post = slow(path, callback=once(lambda: words.append(said(lambda: slow(path)))))
    return Found(words[0], *alike("the first one ends", post, slow_unbroken()))


@case("a checkpoint that is a table", "is no checkpoint of mixvi: name another file")
def _(folder):
    path = folder / "rows.csv"
    path.write_text("x,y\n1,2\n")
    words = said(lambda: slow(path))
    is_sound = path.read_text() == "x,y\n1,2\n"
    return Found(words, "the table is as it was" if is_sound else "the table is NOT", is_sound)


# --- all of them --------------------------------------------------------------------------------


def outcomes(names: list[str]) -> Iterator[tuple[str, Found]]:
    with bad_clusters.everything:
        for name, one in CASES.items():
            if names and name not in names:
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found = one.run(pathlib.Path(folder))
                except Exception as err:
                    found = Found(f"{type(err).__name__}: {err}", "the case did not end", False)
                words = found.words.replace(folder, "...")
                words = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8786", " ".join(words.split()))
                yield name, found._replace(words=words)


def main() -> None:
    names = [one for one in sys.argv[1:] if one != "--json"]
    if "--json" in sys.argv:
        print(json.dumps({name: list(found) for name, found in outcomes(names)}))
        return
    print("| what goes wrong | what is said | what is kept |\n|---|---|---|")
    for name, found in outcomes(names):
        words = found.words.replace("|", "\\|")
        print(f"| {name} | {words} | {found.kept or 'nothing was begun'} |", flush=True)


if __name__ == "__main__":
    main()
