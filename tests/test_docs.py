"""Every example in the documentation runs, and says what it says it says; links lead somewhere."""

import ast
import doctest
import importlib
import inspect
import pathlib
import re
import sys

import numpy as np
import pytest

from documents import run_blocks

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\S*).*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
# Of a page that is about other libraries: its code runs where these are installed.
NEEDS = {"docs/numpyro.md": ("numpyro",), "docs/pymc.md": ("pymc", "bambi")}
NEEDS |= {"docs/migrating/numpyro.md": ("numpyro",), "docs/migrating/pymc.md": ("pymc",)}
NEEDS |= {"docs/pieces.md": ("pyarrow",)}
LIBRARIES = ("arviz", "numpyro", "pandas", "pymc")
# Warnings of theirs, not of ours.
THEIRS = ("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:::pytensor")
# Blocks that are run, or that are no code; `py` is another library's.
KINDS = {"python", "text", "", "py", "sh", "bash", "console", "toml", "json", "yaml", "csv"}
KINDS |= {"{toctree}", "{include}", "{eval-rst}"}
# Run by a test of its own, with its commands.
ELSEWHERE = ("docs/tables.md",)
# Tables of measurements and the paper's report have no code.
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts]


def relative(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def with_code() -> list:
    """Pages with Python blocks; those that take seconds are marked."""
    found = []
    for path in PAGES:
        if "```python" in path.read_text(encoding="utf-8") and relative(path) not in ELSEWHERE:
            marks: list = [pytest.mark.slow] if path.parent.name == "cookbook" else []
            marks += [pytest.mark.filterwarnings(*THEIRS)] if relative(path) in NEEDS else []
            found.append(pytest.param(relative(path), marks=marks))
    return found


@pytest.mark.parametrize("name", with_code())
def test_examples_in_documents(name, tmp_path, monkeypatch):
    for needed in NEEDS.get(name, ()):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MIXVI_DATA", raising=False)  # what is shown is what a stranger sees
    run_blocks(ROOT / name)
    if plt := sys.modules.get("matplotlib.pyplot"):
        plt.close("all")
    text = (ROOT / name).read_text(encoding="utf-8")
    shown = {pathlib.Path(target).name for _, target in PICTURE.findall(text)}
    for picture in tmp_path.glob("*.png"):
        assert_a_picture(picture)
        assert picture.name in shown


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_pages_are_whole(path):
    """No broken link, no picture that is missing or empty, no cell that nothing runs."""
    text = path.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    for target in LINK.findall(prose):
        where, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", where):
            continue
        there = (path.parent / where).resolve() if where else path
        assert there.exists(), f"{target}: there is no such file"
        if anchor:
            assert anchor in anchors_of(there), f"{target}: there is no such heading"
    for about, target in PICTURE.findall(prose):
        assert about, f"{target}: say what the picture shows"
        assert_a_picture(path.parent / target)
    assert re.findall(r"^.*(?:~~~| ```).*$", FENCE.sub("", text), re.MULTILINE) == []
    for kind in FENCE.finditer(text):
        assert kind[1] in KINDS, f"{kind[1]}: nothing runs such a cell"
        plain = kind[0].startswith(f"```{kind[1]}\n") or kind[1].startswith("{")
        assert plain, f"{kind[0].splitlines()[0]}: more than a word, so that nothing runs it"
        # A cell is code or what it prints: a bare fence may hold no Python that nothing runs.
        assert kind[1] or not re.search(r"^(import|from) | = \w+\.\w+\(", kind[0], re.MULTILINE)
        if kind[1] == "py":  # another library's, or a machine's: it must at least be Python
            ast.parse(kind[0].removeprefix("```py").removesuffix("```"))


def anchors_of(path: pathlib.Path) -> set[str]:
    """As code hosts make them of headings."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_a_broken_page_is_seen(tmp_path):
    fences = (
        "```julia\n1\n```",
        "~~~python\n1\n~~~",
        "- ```python\n  1\n  ```",
        "```\nimport x\n```",
        "```python x\n1\n```",
    )
    for text in ("[x](nowhere.md)", "[x](#nowhere)", "![x](nowhere.png)", *fences):
        page = tmp_path / "page.md"
        page.write_text(f"# Page\n\n{text}\n")
        with pytest.raises((AssertionError, FileNotFoundError)):
            test_pages_are_whole(page)


def modules_with_examples() -> list:
    found = [pytest.param("reproduction.data")]
    for path in sorted((ROOT / "src").rglob("*.py")):
        if ">>>" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
            marks = [pytest.mark.filterwarnings(*THEIRS)] if "interop" in name else []
            found.append(pytest.param(name.removesuffix(".__init__"), marks=marks))
    return found


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings(name):
    for library in LIBRARIES:
        if name.startswith("mixvi.interop") and library in name:
            pytest.importorskip(library)
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner()
    found = [t for t in doctest.DocTestFinder().find(module) if t.examples]
    assert found
    for test in found:
        runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize(
    "name",
    [
        *("mixvi", "mixvi.estimators", "mixvi.models"),
        *("mixvi.metrics", "mixvi.plots", "mixvi.cluster"),
    ],
)
def test_every_public_name_is_in_the_reference_with_an_example(name):
    module = importlib.import_module(name)
    reference = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    parts = reference.split(".. currentmodule:: ")
    listed = "".join(part for part in parts if part.split("\n")[0] == name)
    names = public_names(module)
    assert names
    for public in names:
        assert ">>>" in (inspect.getdoc(getattr(module, public)) or ""), f"{public}: no example"
        entry = rf"^\.\. auto\w+:: {public}\b"
        assert re.search(entry, listed, re.MULTILINE), f"{public}: not in docs/api"


def public_names(module) -> list[str]:
    """What a package hands on, or a module defines itself."""
    is_package = hasattr(module, "__path__")
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and (is_package or value.__module__ == module.__name__)
    ]


def test_equations_name_functions_that_exist():
    text = (DOCS / "mathematics.md").read_text(encoding="utf-8")
    found = re.findall(r"\[`([\w.]+)`\]\(\.\./src/([\w/]+)\.py\)", text)
    assert len(found) > 30
    for name, path in found:
        place = importlib.import_module(path.replace("/", "."))
        for part in name.split("."):
            place = getattr(place, part)


def test_cookbook_shows_what_was_measured():
    import cookbook

    rows = cookbook.read()
    assert sorted(rows) == cookbook.names()
    index = (cookbook.PAGES / "index.md").read_text(encoding="utf-8")
    for name, some in rows.items():
        text = (cookbook.PAGES / f"{name}.md").read_text(encoding="utf-8")
        assert cookbook.with_table(text, some) == text
        assert all(f"{row['fit']} = mixvi.fit(" in text for row in some)
        assert len(some) == text.count("mixvi.fit(")
        line = next(line for line in index.splitlines() if f"]({name}.md)" in line)
        assert line.endswith(f"| {some[0]['trust']} | {some[-1]['trust']} |")
        assert f"| {', then '.join(str(row['dim']) for row in some)} |" in line


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


def assert_a_picture(path):
    """Wide enough to look at, mostly background, with lines and areas of several colours."""
    from matplotlib import image

    pixels = image.imread(path)[..., :3]
    height, width, _ = pixels.shape
    assert min(height, width) > 200
    background = (pixels == pixels[0, 0]).all(-1).mean()
    assert 0.1 < background < 0.98
    assert len(np.unique((8 * pixels).astype(int) @ np.array([1, 16, 256]))) > 10
