"""The report on made-up rows: what its pages say, and that both say the same."""

import csv
import gzip
import html.parser
import json
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from reproduction import figures, record, tables
from reproduction.cells import Cells
from reproduction.experiments import METHODS, printed
from reproduction.layout import html_inline, markdown_inline
from reproduction.report import contents, markdown, page, write_report
from reproduction.rows import read
from reproduction_rows import JOBS, RUNS, left, made_up, rows_of, two_dimensional


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
    assert "python -m reproduction all" in twin


def test_pictures_keep_the_colours_of_the_methods(written):
    """A small palette must not blur a rare colour: the legend has to match the lines."""
    picture = image.imread(written[0].parent / "figures" / "figure1.png")[..., :3]
    for method in ("laplace", "mu", "eig", "lr"):
        wanted = np.array(to_rgb(figures.COLOURS[method]))
        assert np.abs(picture - wanted).max(-1).min() < 0.01


def test_all_rows_as_a_table(written, folder):
    with gzip.open(written[0].parent / "rows.csv.gz", "rt", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert len(table) == len(rows)
    assert {"lpd", "diag.lpd_best_test", "hyper.log_r", "seconds.fit"} <= set(table[0] | table[-1])
    assert float(table[6]["lpd"]) == rows[6]["lpd"]
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
    document = contents(rows_of(tmp_path / "one", rows))
    said = markdown(document)
    assert "1 of 100 splits" in said
    assert "Protocol `best`: nothing was run." in said
    assert Page(page(document)).open == []
    failed = [{**rows[0], "failed": "it broke"}]
    assert "it broke" in markdown(contents(rows_of(tmp_path / "broken", failed)))


def test_scores_that_are_no_numbers_are_told(tmp_path):
    rows = made_up("best", "binary", "heart", 4, ("laplace", "mu"))
    rows[0]["lpd"] = None
    found = rows_of(tmp_path, rows)
    assert list(record.not_finite(found)) == ["Heart, Laplace, protocol best: 1 row"]
    assert found.paired("best", "binary", "heart", "lpd").shape == (3, 2)


def test_other_settings_and_other_code_are_told(tmp_path):
    """A quick run is not the protocol it belongs to; rows of two versions do not mix unseen."""
    rows = made_up("best", "multiclass", "iris", 5)
    for row in rows:
        if row["method"] == "diag":
            row["diag"] = {"start": "laplace"}
    settings = {"protocol": {"name": "best", "diag_starts": ["laplace"]}, "n_draws": 256}
    runs = [{**RUNS[0], "settings": settings, "versions": {"source": code}} for code in "ab"]
    found = rows_of(tmp_path, rows, runs=runs)
    said = markdown(contents(found))
    assert "256 draws where draws are taken; VI_diag from one start" in said
    assert "made by 2 states of the source code" in said
    assert "VI_diag by test score" not in said
    # The sign test cannot reject with five splits, so nothing that rests on it is judged.
    assert "cannot be told<br>5 splits; the test needs 6" in said
    assert "best on 0 of 1 set" in said or "best on 1 of 1 set" in said  # medians still are
    usual = markdown(
        contents(rows_of(tmp_path / "usual", made_up("best", "multiclass", "iris", 6)))
    )
    assert "Not the full settings" not in usual
    assert "states of the source" not in usual
    assert "cannot be told" not in usual
    assert "so far it" in usual
    # The summary does not call equal what cannot be told.
    assert "too few splits for a test (6 are needed)" in said
    assert "on 0 of" not in said.split("## What is missing")[0]


def test_methods_that_have_not_run_are_not_judged(tmp_path):
    rows = made_up("best", "multiclass", "iris", 8, ("laplace", "mu"))
    said = markdown(contents(rows_of(tmp_path, rows)))
    (line,) = [one for one in said.splitlines() if "MVI_eig performs well" in one]
    assert line.endswith("| – |")
    (line,) = [one for one in said.splitlines() if "Multiclass: in general MVI" in one
               and "Laplace" in one]  # fmt: skip
    assert "so far it" in line


def test_figure_2_shows_the_data_that_were_fitted(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "regression", lambda fits, seed: shown.append(seed) or b"png")
    rows = made_up("best", "cauchy", "cauchy", 2)
    settings = {"protocol": {"name": "best"}, "seed": 5}
    contents(rows_of(tmp_path, rows, runs=[{**RUNS[0], "settings": settings}]))
    assert shown == [5]


def test_tables_have_no_empty_lines_or_columns(tmp_path):
    rows = made_up("best", "binary", "heart", 3, METHODS)
    rows += made_up("paper", "binary", "banana", 3, METHODS)
    for table in markdown_tables(markdown(contents(rows_of(tmp_path, rows)))):
        if table[0][0] == "Data set":
            assert "full" not in table[0]
            assert not any(set(line[1:]) == {"–"} for line in table)


def test_both_kinds_of_error_are_held_against_the_printed_ones(tmp_path):
    rows = made_up("best", "multiclass", "iris", 3, METHODS)
    for row in rows:
        value = printed().value["multiclass", "iris", "error", row["method"]]
        row["error"], row["error_draws"] = value - 2.0, value + 1.0
    found = Cells(rows_of(tmp_path, rows))
    (table,) = tables.nearness(found)
    by_name = {line[0]: [(one.text, one.note) for one in line[1:]] for line in table.rows}
    assert len(table.header) == 6  # no binary rows, no columns for them
    assert by_name["best: error"] == [("-2.00", "-2.0 to -2.0")] * 5
    assert by_name["best: error of single draws"] == [("+1.00", "+1.0 to +1.0")] * 5
    (said,) = tables.worst_fits(found)
    assert "by error 0 of 5 cells, the furthest Iris" in said
    assert "by error of single draws 5 of 5 cells" in said
    # An error on iris's 45 test points is a multiple of 100/45: few of the printed ones are.
    checked, possible, example = tables.error_resolution(found.rows)
    assert (checked, possible) == (5, 0)
    assert example.endswith("% of 45 points")


def test_time_on_the_wall_by_protocol():
    jobs = [
        {"protocol": protocol, "backend": "gpu", "session": session, "elapsed": elapsed}
        for protocol, session, elapsed in (
            ("best", "a", 5.0), ("best", "a", 7.0), ("best", "b", 1.0), ("paper", "c", 2.0)
        )
    ]  # fmt: skip
    assert record.walls(pd.DataFrame(jobs)) == {("best", "gpu"): 8.0, ("paper", "gpu"): 2.0}


def test_nothing_missed_is_said(tmp_path):
    said = markdown(contents(rows_of(tmp_path, made_up("best", "binary", "heart", 3, METHODS))))
    assert "No cell that has rows is worse" in said


def test_text_is_escaped_in_both_forms():
    assert html_inline("`code | x` & *a* <b>") == "<code>code | x</code> &amp; *a* &lt;b&gt;"
    assert markdown_inline("`code | x` & *a* <b> [c] |") == (
        "`code \\| x` & \\*a\\* \\<b\\> \\[c\\] \\|"
    )


def test_a_folder_of_a_report_makes_the_same_report(written, tmp_path):
    """From rows.csv.gz, without the results that it was made of."""
    again = write_report(written[0].parent, tmp_path)
    for name in ("report.html", "report.md", "rows.csv.gz", "figures/figure2.png"):
        assert (again.parent / name).read_bytes() == (written[0].parent / name).read_bytes(), name


def test_the_committed_rows_make_the_committed_counts():
    """The summary of docs/results/paper/report.md, from the rows beside it."""
    folder = pathlib.Path(__file__).parents[2] / "docs" / "results" / "paper"
    if not (folder / "rows.csv.gz").exists():
        pytest.skip("the rows are in the repository, not in the source distribution")
    table = tables.summary(Cells(read(folder)))
    texts = [[getattr(entry, "text", entry) for entry in line] for line in table.rows]
    lines = ["| " + " | ".join(line) for line in texts]
    text = re.sub("<br>[^|]*", "", (folder / "report.md").read_text("utf-8")).replace(" |\n", "\n")
    assert len(lines) == 10
    assert all(line in text for line in lines)


def test_what_the_paper_does_not_print_has_a_section_apart(tmp_path):
    """The table that its source holds: errors without printed ones, and no part of the 110."""
    rows = [
        row | {"experiment": "robust_gp", "set": name, "lpd": -0.3}
        for name in ("boston", "concrete")
        for row in made_up("best", "binary", "heart", 3, ("laplace", "mu", "eig", "lr"))
    ]
    said = markdown(contents(rows_of(tmp_path, rows)))
    assert "## Robust Gaussian processes" in said
    assert "had to be guessed: a Student-t likelihood with 4 degrees of freedom" in said
    assert "median mean squared error on test data" in said
    assert "Boston 3 of 20, Concrete 3 of 20" in said
    assert not any(word in said for word in (" nan", "(nan", "VI_diag on Boston"))
    (line,) = [
        line for line in said.splitlines() if line.startswith("| Boston") and "-0.35" in line
    ]
    assert "(-0.35) +0.05" in line
    assert "(-0.21) -0.09" in line
    assert "| All (110) | Not printed: Robust gp (8) |" in said
    (line,) = [line for line in said.splitlines() if line.startswith("| best: joint LPD |")]
    assert line.endswith("| – | 6 of 8 |")
    claims = said.split("conclusions hold up")[1].split("## Time")[0]
    assert "Boston" not in claims


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
