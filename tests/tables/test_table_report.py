"""The report: everything on one page, nothing from outside, pictures that show something."""

import base64
import re

import numpy as np
import pytest
from table_cases import ran, written

from mixvi import plots, tables
from mixvi.plots._predictions import _wilson
from mixvi.tables import _report, _words

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

PICTURE = re.compile(r'src="data:image/png;base64,([^"]+)"')


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def pages(fitted):
    return {target: _report.report(one, "m.mvi") for target, one in fitted.items()}


def pixels(encoded: str, tmp_path) -> np.ndarray:
    path = tmp_path / "one.png"
    path.write_bytes(base64.b64decode(encoded))
    return plt.imread(path)[..., :3]


def ink(picture: np.ndarray) -> int:
    """Pixels in colour: axes, grids and letters are grey."""
    return int((picture.max(-1) - picture.min(-1) > 0.25).sum())


@pytest.mark.parametrize("target", ["did", "spent", "visits"])
def test_no_picture_is_empty(pages, target, tmp_path):
    found = PICTURE.findall(pages[target])
    assert len(found) == 2 + 4  # two checks, four columns
    for one in found:
        picture = pixels(one, tmp_path)
        assert min(picture.shape[:2]) > 200
        assert ink(picture) > 200
        assert (picture == 1).all(-1).mean() > 0.1


def test_an_empty_picture_would_be_seen(tmp_path):
    empty = _report._picture((4.0, 3.0), lambda axes: axes.set(xlabel="age", ylabel="probability"))
    assert ink(pixels(empty.split(",")[1], tmp_path)) < 10


def test_nothing_is_asked_of_the_network(pages):
    for page in pages.values():
        bare = PICTURE.sub("", page)
        assert "http" not in bare
        assert "<script" not in bare
        assert "url(" not in bare
        assert not re.search(r"<(link|iframe|object|embed)\b", bare)


def test_parts(pages, fitted):
    page, model = pages["did"], fitted["did"].model
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads == [
        "How it does on rows that it has not seen",
        "What each column does",
        "The data, as understood",
        "How to predict",
    ]
    for words in (
        _words.judgement(model).title,
        f"{100 * model.score.hit:.0f}%",
        "mixvi predict m.mvi new.csv -o predictions.csv",
        "age,height,city,member",
        "log evidence",
        "prefers-color-scheme: dark",
        "width=device-width",
    ):
        assert words in page
    for column in model.columns.used:
        assert f'<th scope="row">{column.name}</th>' in page
    assert re.findall(r"<h3>(.*?)</h3>", page)[2:] == [one.column for one in model.effects]
    assert page.count("<section") == page.count("</section>") == 1
    alt = re.findall(r'<img [^>]*alt="([^"]*)"', page)
    assert len(alt) == 6
    assert all(alt)


def test_names_are_not_markup(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(30)
    table = {
        "<b>bold</b> & $x^2": [f"{one:.3f}" for one in x],
        "y": np.where(x + 0.5 * rng.standard_normal(30) > 0, "<i>", "$no").tolist(),
    }
    written(tmp_path / "t.csv", table)
    result = ran(capsys, "fit", "t.csv", "-t", "y", "--basis", "linear")
    assert result.code == 0
    page = (tmp_path / "t-report.html").read_text()
    assert "<b>bold" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; $x^2" in page


def test_many_columns_and_classes(tmp_path, capsys):
    """Twelve pictures at most; the rest in words. Thirteen classes are shown, too."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 14))
    table = {f"c{i}": [f"{one:.3f}" for one in x[:, i]] for i in range(14)}
    table["y"] = [f"{one:.3f}" for one in x[:, 0] + 0.1 * rng.standard_normal(80)]
    written(tmp_path / "t.csv", table)
    assert ran(capsys, "fit", "t.csv", "-t", "y", "--basis", "linear").code == 0
    page = (tmp_path / "t-report.html").read_text()
    assert len(PICTURE.findall(page)) == 2 + 12
    assert "The other columns matter less" in page


# --- the pictures themselves --------------------------------------------------------------------


def test_calibration_shows_shares():
    proba = np.repeat([0.15, 0.85], 50)
    y = np.r_[np.arange(50) < 10, np.arange(50) < 40].astype(int)
    axes = plots.calibration(y, proba)
    (dots,) = [one for one in axes.collections if hasattr(one, "get_sizes")]
    np.testing.assert_allclose(dots.get_offsets(), [[0.15, 0.2], [0.85, 0.8]])
    low, high = _wilson(np.array([0.2]), np.array([50]))
    assert 0.11 < low[0] < 0.14
    assert 0.29 < high[0] < 0.32


def test_confusion_counts():
    proba = np.eye(3)[[0, 0, 1, 2, 2, 2]]
    axes = plots.confusion([0, 1, 1, 2, 2, 0], proba, ["a", "b", "c"])
    shown = {one.get_position(): one.get_text() for one in axes.texts}
    assert shown == {(0, 0): "1", (0, 1): "1", (1, 1): "1", (2, 2): "2", (2, 0): "1"}


def test_residuals_and_coverage():
    axes = plots.residuals([1.0, 2.0, 3.0], [1.1, 2.1, 2.9])
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1.1, 1], [2.1, 2], [2.9, 3]])
    uniform = (np.arange(1000) + 0.5) / 1000
    line = plots.coverage(uniform).lines[1].get_xydata()
    np.testing.assert_allclose(line[:, 0], line[:, 1], atol=0.002)
    narrow = plots.coverage(np.repeat([0.01, 0.5, 0.99], 10)).lines[1].get_xydata()
    assert narrow[40, 1] == pytest.approx(1 / 3)


def test_effects_are_lines_and_dots():
    axes = plots.effects([0.0, 1.0, 2.0], [1, 2, 3], [0, 1, 2], [2, 3, 4], share=[0.2, 0.5, 0.3])
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0, 1], [1, 2], [2, 3]])
    axes = plots.effects(
        ["a", "b"], [[1, 2], [3, 4]], [[0, 1], [2, 3]], [[2, 3], [4, 5]], ["one", "two"]
    )
    assert [one.get_text() for one in axes.get_yticklabels()] == ["a", "b"]
    assert [one.get_text() for one in axes.get_legend().get_texts()] == ["one", "two"]
    assert [line.get_xdata().tolist() for line in axes.lines] == [[1, 2], [3, 4]]


def test_the_page_is_in_the_package():
    from importlib.resources import files

    assert (files(tables) / "report.html.j2").is_file()
