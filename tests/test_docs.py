"""Every example in the documentation runs, and says what it says it says."""

import doctest
import importlib
import importlib.util
import pathlib
import re

import numpy as np
import pytest

from documents import run_blocks

ROOT = pathlib.Path(__file__).resolve().parents[1]


def needing(name: str, *libraries: str):
    """A page or a module that is skipped, with a word, where these are not installed."""
    missing = [one for one in libraries if importlib.util.find_spec(one) is None]
    skipped = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
    kinds = ("FutureWarning", "DeprecationWarning")  # theirs, not ours
    theirs = pytest.mark.filterwarnings(*(f"ignore::{kind}" for kind in kinds), "ignore:::pytensor")
    return pytest.param(name, marks=[skipped, theirs])


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/limits.md",
        "docs/constraints.md",
        "docs/hard.md",
        "docs/modes.md",
        "docs/models.md",
        "docs/data.md",
        "docs/numpyro.md",
        needing("docs/pymc.md", "pymc", "bambi"),
        "docs/pictures.md",
    ],
)
def test_examples_in_documents(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIXVI_DATA", raising=False)  # what is shown is what a stranger sees
    run_blocks(ROOT / name)


@pytest.mark.parametrize(
    "name",
    [
        "mixvi._density._numpy",
        "mixvi._density._protocol",
        "mixvi._fit._many",
        "mixvi._fit._screen",
        "mixvi._fit._public",
        "mixvi._density._linear_predictor",
        "mixvi.metrics",
        "mixvi.estimators._classifier",
        "mixvi.estimators._regressor",
        "mixvi.models._model",
        "mixvi.interop._numpyro_fit",
        "mixvi.interop._numpyro_guide",
        needing("mixvi.interop.pymc", "pymc"),
        needing("mixvi.interop.arviz", "arviz"),
        needing("mixvi.interop.pandas", "pandas"),
        "reproduction.data",
    ],
)
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner()
    found = [t for t in doctest.DocTestFinder().find(module) if t.examples]
    assert found
    for test in found:
        runner.run(test)
    assert runner.failures == 0


def test_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text
    for path in re.findall(r"\]\(((?:docs|CONTRIBUTING|CITATION)[^)]*)\)", text):
        assert (ROOT / path).exists(), path


def test_example_of_the_paper(tmp_path, monkeypatch, capsys):
    import two_dimensional_example as example

    monkeypatch.setattr("sys.argv", ["two_dimensional_example.py", "--out", str(tmp_path)])
    example.main()
    assert_a_picture(tmp_path / "figure1.png")
    kls = [float(value) for value in re.findall(r"KL (\d\.\d+)", capsys.readouterr().out)]
    assert len(kls) == 4
    assert kls == sorted(kls, reverse=True)  # the paper's order: laplace > mu > eig > lr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["robust_regression", "decision_surface", "calibration"])
def test_examples_leave_pictures(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MIXVI_DATA", str(tmp_path))  # no data sets: the fallback
    monkeypatch.setattr("sys.argv", [name, "--out", str(tmp_path)])
    importlib.import_module(name).main()
    assert_a_picture(tmp_path / f"{name}.png")


def test_example_of_pictures(tmp_path, monkeypatch):
    import pictures

    monkeypatch.setattr("sys.argv", ["pictures.py", "--out", str(tmp_path)])
    pictures.main()
    for name in ("pairs", "marginals", "path"):
        assert_a_picture(tmp_path / f"{name}.png")


def assert_a_picture(path):
    """Wide enough to look at, mostly background, with lines and areas of several colours."""
    from matplotlib import image

    pixels = image.imread(path)[..., :3]
    height, width, _ = pixels.shape
    assert min(height, width) > 200
    background = (pixels == pixels[0, 0]).all(-1).mean()
    assert 0.1 < background < 0.98
    assert len(np.unique((8 * pixels).astype(int).reshape(-1, 3), axis=0)) > 10
