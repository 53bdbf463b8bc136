"""What can rot beside the code: versions, extras, floors, what is handed out, what pages name."""

import ast
import pathlib
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest

import distribution
import environments
import imports
import mixvi
import tidy_files

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_in_one_place():
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    path = PYPROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{mixvi.__version__}"' in text(path)
    assert f"\nversion: {mixvi.__version__}\n" in text("CITATION.cff")
    newest = re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == mixvi.__version__


def test_extras_that_errors_and_pages_name_exist():
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "reproduction").rglob("*.py"), *PAGES]
    named = set()
    for path in sources:
        said = path.read_text(encoding="utf-8")
        named |= {(one, path.name) for one in re.findall(r"mixvi\[([\w,-]+)\]", said)}
        named |= {(one, path.name) for one in re.findall(r"['\"]\.\[([\w,-]+)\]", said)}
    assert len(named) >= 4
    for extras, where in named:
        assert set(extras.split(",")) <= set(EXTRAS), f"{where} names [{extras}]"


def test_every_dependency_is_imported():
    """Nothing is asked of users that the package does not use."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for needed in PROJECT["dependencies"]:
        name = re.split(r"[^\w-]", needed)[0]
        assert re.search(rf"^\s*(import|from) {name}\b", code, re.MULTILINE), name


def test_every_dependency_has_one_floor():
    held = environments.floors(PROJECT)
    assert "jax==0.10" in held
    assert all("==" in line for line in held)
    assert len({line.split("==")[0] for line in held}) == len(held)
    with pytest.raises(SystemExit, match="'jax<1' has no floor"):
        environments.floors({"dependencies": ["jax<1"]})
    with pytest.raises(SystemExit, match="jax two floors: jax==1 and jax==2"):
        environments.floors({"dependencies": ["jax>=1", "jax[cpu]>=2"]})


def test_pythons_that_are_tested_are_those_that_are_promised():
    assert PROJECT["requires-python"] == f">={environments.PYTHONS[0]}"
    promised = {one.split(" :: ")[-1] for one in PROJECT["classifiers"] if "Python :: 3." in one}
    assert promised == set(environments.PYTHONS)


def test_an_interpreter_is_one_that_answers(tmp_path, monkeypatch):
    """A shim of that name which knows no such version is passed over."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert environments.interpreter(this) == sys.executable
    shim = tmp_path / "python9.9"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(shim) in list(environments.candidates("9.9"))
    assert environments.interpreter("9.9") is None
    shim.write_text("#!/bin/sh\necho 9.9\n")
    assert environments.interpreter("9.9") == str(shim)


def test_the_sdist_holds_what_its_tests_need():
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in included if not (ROOT / name).exists()] == []
    settings = PYPROJECT["tool"]["pytest"]["ini_options"]
    needed = {*settings["testpaths"], *settings["pythonpath"]} - {"."}
    assert needed <= set(included)
    # Wherever there is code there is something to hand out.
    code = {path.parent.name for path in ROOT.glob("[!.]*/*.py")} - {"build", "dist", "report"}
    assert code <= set(included)


def test_what_imports_cost_is_shown_of_every_adaptor():
    page = text("docs/results/parts/imports.md")
    found = {f"mixvi.interop.{path.stem}" for path in (ROOT / "src/mixvi/interop").glob("[!_]*.py")}
    assert found <= set(imports.ADAPTORS)
    for name in imports.ADAPTORS:
        assert f"| `{name}` |" in page, name


def test_every_folder_of_tests_runs_alone():
    """pytest loads its conftest.py before jaxtyping can look at what that imports."""
    for path in (ROOT / "tests").rglob("conftest.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                said = ast.unparse(node)
                assert not re.search(r"\b(mixvi|reproduction)\b", said), f"{path}: {said}"


def test_targets_of_make_that_are_named_exist():
    makefile = text("Makefile")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == targets
    for page in PAGES:
        said = page.read_text(encoding="utf-8")
        for name in re.findall(r"(?:`|^)make ([\w-]+)", said, re.MULTILINE):
            assert name in targets, f"{page.name}: make {name}"


def tracked() -> list[str]:
    said = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if said.returncode or not said.stdout:
        pytest.skip("not a checkout")
    return [name for name in said.stdout.splitlines() if (ROOT / name).is_file()]


def wheel_of(path: pathlib.Path, names: list[str], readme: str) -> pathlib.Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name.removeprefix("src/"), "")
        head = f"Version: {mixvi.__version__}\nRequires-Python: >=3.11\n\n"
        file.writestr("mixvi-0.dist-info/METADATA", head + readme)
    return path


def test_a_wheel_that_is_not_whole_is_found(tmp_path):
    names, readme = [name for name in tracked() if name.startswith("src/mixvi/")], "# mixvi\n" * 999
    distribution.check_wheel(wheel_of(tmp_path / "whole", names, readme))
    without = [name for name in names if not name.endswith("py.typed")]
    with pytest.raises(SystemExit, match=r"the wheel lacks mixvi/py\.typed"):
        distribution.check_wheel(wheel_of(tmp_path / "less", without, readme))
    with pytest.raises(SystemExit, match="the wheel holds tests/conftest"):
        distribution.check_wheel(wheel_of(tmp_path / "more", [*names, "tests/conftest.py"], readme))
    dead = readme + "[limits](docs/limits.md)"
    with pytest.raises(SystemExit, match=r"lead nowhere on a package index: docs/limits\.md"):
        distribution.check_wheel(wheel_of(tmp_path / "dead", names, dead))


def test_what_is_committed_is_tidy():
    """No large files, no data sets, nothing that was built; lines and files end as they should."""
    names = tracked()
    assert [(name, *tidy_files.faults(name, (ROOT / name).read_bytes())) for name in names] == [
        (name,) for name in names
    ]


def test_what_is_not_tidy_is_mended_or_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("a.py").write_bytes(b"x = 1  \r\ny = 2\n\n\n")
    pathlib.Path("b.png").write_bytes(b"\0  \n\n")
    assert tidy_files.main(["a.py", "b.png", "gone.py"]) == 1
    assert pathlib.Path("a.py").read_bytes() == b"x = 1\ny = 2\n"
    assert pathlib.Path("b.png").read_bytes() == b"\0  \n\n"
    assert tidy_files.main(["a.py", "b.png"]) == 0
    capsys.readouterr()
    pathlib.Path("rows.csv").write_text("a,b\n")
    pathlib.Path("merged.md").write_bytes(b"a\n" + b"<" * 7 + b" ours\nb\n")
    pathlib.Path("big.md").write_text("a" * 500_001 + "\n")
    assert tidy_files.main(["rows.csv", "merged.md", "big.md"]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert "rows.csv: data sets are no part of the repository" in first
    assert second == "merged.md: an unfinished merge"
    assert third == "big.md: 0.5 MB, more than 0.5"


def test_no_two_files_of_tests_share_a_name():
    """Functions of tests travel to other processes by the names of their modules."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
