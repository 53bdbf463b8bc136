"""The report on made-up rows: what its pages say, and that both say the same."""

import csv
import gzip
import html.parser
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from mixvi.paper import _figures, _findings, _record
from mixvi.paper._document import Bullets, Code, Entry, Figure, Heading, Paragraph, Table
from mixvi.paper._html import page
from mixvi.paper._markdown import markdown
from mixvi.paper._report import report, write_report
from mixvi.paper.printed import METHODS, printed
from paper_rows import JOBS, RUNS, left, made_up, rows_of, two_dimensional


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two protocols, one of them partial; one set, one method and some splits are missing."""
    rows = two_dimensional("best")
    rows += made_up("best", "cauchy", "cauchy", 12)
    rows += made_up("best", "binary", "heart", 12)
    rows += made_up("best", "multiclass", "iris", 12, gain=-0.5)
    rows += made_up("paper", "binary", "heart", 3, ("laplace", "mu", "diag"), gain=-0.3)
    broken = {"protocol": "best", "experiment": "binary", "set": "banana", "run": "1f3a"}
    reason = "no mode: a < b | `c` & more"
    rows += [{**broken, "split": k, "method": "lr", "failed": reason} for k in (0, 1, 2, 5)]
    return left(tmp_path_factory.mktemp("results"), rows, JOBS, RUNS)


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    path = write_report(folder, tmp_path_factory.mktemp("out"))
    return path, path.read_text("utf-8"), path.with_suffix(".md").read_text("utf-8")


# --- the pages --------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Balance of tags, the text of every table's entries, images and addresses."""

    EMPTY = ("meta", "img", "br", "hr", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.images, self.addresses, self.ids = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.addresses += [attrs[name] for name in ("src", "href") if name in attrs]
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag == "img":
            self.images.append(attrs)
        if tag not in self.EMPTY:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        assert "script" not in self.open
        if any(tag in self.open for tag in ("td", "th")):
            self.tables[-1][-1][-1] += data


def markdown_tables(text):
    """The entries of every table, without the marks of bold and code."""
    found, before = [], ""
    for line in text.splitlines():
        if line.startswith("| "):
            if not before.startswith("| "):
                found.append([])
            entries = line[2:-2].replace("<br>", " ").replace("\\|", "\0").split(" | ")
            found[-1].append([entry.replace("\0", "|").replace("\\", "") for entry in entries])
        before = line
    return [table[:1] + table[2:] for table in found]


def words(tables):
    return [
        [["".join(c for c in entry if c not in "*`").strip() for entry in row] for row in table]
        for table in tables
    ]


def test_page_is_whole_and_self_contained(written):
    path, text, _ = written
    parsed = Page(text)
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert len(parsed.tables) > 20
    for table in parsed.tables:
        assert len(table) > 1
        assert len({len(row) for row in table}) == 1
    assert len(parsed.images) >= 6
    assert all(image["alt"] for image in parsed.images)
    for address in parsed.addresses:
        assert address.startswith("data:image/png;base64,") or address[1:] in parsed.ids
    assert 'name="viewport"' in text
    assert path.stat().st_size < 2_000_000


def test_markdown_says_the_same(written):
    path, text, twin = written
    assert words(Page(text).tables) == words(markdown_tables(twin))
    pictures = sorted((path.parent / "figures").glob("*.png"))
    assert len(pictures) == len(Page(text).images) == twin.count("](figures/")
    assert all(picture.stat().st_size < 200_000 for picture in pictures)
    assert not any(word in twin for word in (" nan", "(nan", "None"))


def test_page_names_what_is_missing_and_what_failed(written):
    _, _, twin = written
    assert "Protocol `paper` lacks the two-dimensional example; everything cauchy" in twin
    assert "MVI_eig, MVI_lr on Heart" in twin
    assert "Heart 12 of 100" in twin
    assert "12 of 100 splits" in twin
    assert "no mode: a \\< b \\| 'c' & more" in twin
    assert "1-3, 6" in twin  # counted from 1, as --splits does
    assert "4 failed" in twin
    assert "single posterior draws" in twin
    assert "mixvi paper all" in twin


def test_pictures_keep_the_colours_of_the_methods(written):
    """A small palette must not blur a rare colour: the legend has to match the lines."""
    picture = image.imread(written[0].parent / "figures" / "figure1.png")[..., :3]
    for method in ("laplace", "mu", "eig", "lr"):
        wanted = np.array(to_rgb(_figures.COLOURS[method]))
        assert np.abs(picture - wanted).max(-1).min() < 0.01


def test_all_rows_as_a_table(written, folder):
    with gzip.open(written[0].parent / "rows.csv.gz", "rt", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert len(table) == len(rows)
    assert {"lpd", "diag.lpd_best_test", "hyper.log_r", "seconds.fit"} <= set(table[0] | table[-1])
    assert float(table[6]["lpd"]) == rows[6]["lpd"]
    assert "unknown" not in table[6]
    assert sum(bool(row["failed"]) for row in table) == 4


def test_empty_folder(tmp_path):
    path = write_report(tmp_path / "nothing")
    text = path.read_text("utf-8")
    assert "no rows" in text
    assert Page(text).open == []
    assert sorted(one.name for one in path.parent.iterdir()) == [
        "report.html", "report.md", "rows.csv.gz"
    ]  # fmt: skip


def test_single_split_of_one_method_and_only_failures(tmp_path):
    rows = made_up("paper", "multiclass", "iris", 1, ("laplace",), gain=-0.5)
    rows[0].update(khat=None, gap=None, elbo=None, trend=None)
    document = report(rows_of(tmp_path / "one", rows))
    said = markdown(document)
    assert "1 of 100 splits" in said
    assert "Protocol `best`: nothing was run." in said
    assert Page(page(document)).open == []
    failed = [{**rows[0], "failed": "it broke"}]
    assert "it broke" in markdown(report(rows_of(tmp_path / "broken", failed)))


def test_scores_that_are_no_numbers_are_told(tmp_path):
    rows = made_up("best", "binary", "heart", 4, ("laplace", "mu"))
    rows[0]["lpd"] = None
    found = rows_of(tmp_path, rows)
    said = markdown(tuple(_record.failures(found)))
    assert "Heart, Laplace, protocol best: 1 row" in said
    assert found.paired("best", "binary", "heart", METHODS, "lpd").values.shape == (3, 2)


def test_other_settings_and_other_code_are_told(tmp_path):
    """A quick run is not the protocol it belongs to; rows of two versions do not mix unseen."""
    rows = made_up("best", "multiclass", "iris", 5)
    for row in rows:
        if row["method"] == "diag":
            row["diag"] = {"start": "laplace"}
    settings = {"protocol": {"name": "best", "diag_starts": ["laplace"]}, "n_draws": 256}
    runs = [{**RUNS[0], "settings": settings, "versions": {"source": code}} for code in "ab"]
    found = rows_of(tmp_path, rows, runs=runs)
    said = markdown(report(found))
    assert "256 draws where draws are taken; VI_diag from one start" in said
    assert "made by 2 states of the source code" in said
    assert "VI_diag by test score" not in said
    # The sign test cannot reject with five splits, so nothing that rests on it is judged.
    assert "cannot be told<br>5 splits; the test needs 6" in said
    assert "best on 0 of 1 set" in said or "best on 1 of 1 set" in said  # medians still are
    usual = markdown(report(rows_of(tmp_path / "usual", made_up("best", "multiclass", "iris", 6))))
    assert "Not the full settings" not in usual
    assert "states of the source" not in usual
    assert "cannot be told" not in usual
    assert "so far it" in usual
    # The summary does not call equal what cannot be told.
    assert "too few splits for a test (6 are needed)" in said
    assert "on 0 of" not in said.split("## What is missing")[0]


def test_methods_that_have_not_run_are_not_judged(tmp_path):
    rows = made_up("best", "multiclass", "iris", 8, ("laplace", "mu"))
    said = markdown(report(rows_of(tmp_path, rows)))
    (line,) = [one for one in said.splitlines() if "MVI_eig performs well" in one]
    assert line.endswith("| – |")
    (line,) = [one for one in said.splitlines() if "Multiclass: in general MVI" in one
               and "Laplace" in one]  # fmt: skip
    assert "so far it" in line


def test_figure_2_shows_the_data_that_were_fitted(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(_figures, "regression", lambda curves, seed: shown.append(seed) or b"png")
    rows = made_up("best", "cauchy", "cauchy", 2)
    settings = {"protocol": {"name": "best"}, "seed": 5}
    report(rows_of(tmp_path, rows, runs=[{**RUNS[0], "settings": settings}]))
    assert shown == [5]


def test_tables_have_no_empty_lines_or_columns(tmp_path):
    rows = made_up("best", "binary", "heart", 3, METHODS)
    rows += made_up("paper", "binary", "banana", 3, METHODS)
    for table in markdown_tables(markdown(report(rows_of(tmp_path, rows)))):
        if table[0][0] == "Data set":
            assert "full" not in table[0]
            assert not any(set(line[1:]) == {"–"} for line in table)


def test_both_kinds_of_error_are_held_against_the_printed_ones(tmp_path):
    rows = made_up("best", "multiclass", "iris", 3, METHODS)
    for row in rows:
        value = printed()["multiclass", "iris", "error", row["method"]].value
        row["error"], row["error_draws"] = value - 2.0, value + 1.0
    said = markdown(tuple(_findings.error_resolution(rows_of(tmp_path, rows))))
    (table,) = markdown_tables(said)
    by_name = {line[0]: line for line in table}
    assert len(table[0]) == 6  # no binary rows, no columns for them
    assert by_name["best: error"][1:] == ["-2.00 -2.0 to -2.0"] * 5
    assert by_name["best: error of single draws"][1:] == ["+1.00 +1.0 to +1.0"] * 5
    assert "by error 0 of 5 cells, the furthest Iris, Laplace (-2.0)" in said
    assert "by error of single draws 5 of 5 cells" in said


def test_time_on_the_wall_by_protocol():
    jobs = [
        {"protocol": protocol, "backend": "gpu", "session": session, "elapsed": elapsed}
        for protocol, session, elapsed in (
            ("best", "a", 5.0), ("best", "a", 7.0), ("best", "b", 1.0), ("paper", "c", 2.0)
        )
    ]  # fmt: skip
    assert _record.walls(jobs) == {("best", "gpu"): 8.0, ("paper", "gpu"): 2.0}


def test_nothing_missed_is_said():
    assert "No cell" in markdown(tuple(_findings.misses([])))


def test_renderers_escape():
    document = (
        Heading(1, "a < b"),
        Paragraph("`code | x` & *stars*"),
        Bullets(("one", "two")),
        Code("<b>"),
        Table("caption", ("x | y",), ((Entry("1", "note", True, True),),)),
        Figure("name", b"png", 'an "alt"', "below"),
    )
    text, twin = page(document), markdown(document)
    assert Page(text).tables == [[["x | y"], ["1 note"]]]
    assert Page(text).images[0]["alt"] == 'an "alt"'
    assert "<code>code | x</code> &amp; *stars*" in text
    assert "\\*stars\\*" in twin
    assert "| x \\| y |\n| --- |\n| **1**<br>note |" in twin


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'mixvi\[plots\]'"):
        _figures._figure(1.0, 1.0)


def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.mark.skipif(browser() is None, reason="no Chromium here: the narrow page was not looked at")
def test_nothing_overflows_a_telephone(written, tmp_path):
    """The page in a frame 390 wide: wide tables scroll in their own boxes, nothing else does."""
    frame = f"""<!doctype html><title>frame</title>
<iframe id="frame" style="width:390px;height:800px;border:0"
 srcdoc="{html.escape(written[1])}"></iframe><p id="found"></p><script>
document.getElementById("frame").onload = (event) => {{
  const root = event.target.contentDocument.documentElement;
  const boxes = [...root.querySelectorAll("main > *")].map(one => one.getBoundingClientRect());
  const found = {{width: root.scrollWidth, right: Math.max(...boxes.map(one => one.right)),
                  tables: root.querySelectorAll(".wide > table").length}};
  document.getElementById("found").textContent = JSON.stringify(found);
}};</script>"""
    (tmp_path / "frame.html").write_text(frame, encoding="utf-8")
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--window-size=800,900"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000"]
    command += ["--dump-dom", (tmp_path / "frame.html").as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(re.search('<p id="found">(.*?)</p>', ended.stdout)[1])
    assert found["tables"] == len(Page(written[1]).tables)
    assert found["width"] <= 390
    assert found["right"] <= 390
