"""Checks what would be handed out: `make test-dist`, after `make dist` has built it into dist/.

- the sdist holds what it should and no data sets, the wheel the package and nothing else;
- the metadata are sound and the README renders, without links that lead nowhere;
- the wheel, installed bare, runs the README: what needs an extra is refused by a sentence naming
  it, and runs once the extra is there;
- the tests run from the unpacked sdist. What else is said goes to pytest: `-m "not slow"`.
"""

import argparse
import email
import fnmatch
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
MOST_BYTES = {"the sdist": 4_000_000, "a file of it": 1_000_000}
DATA = ("*.npz", "*.csv.gz", "*.parquet", "*.pkl", "*.pyc")
# Written by an older version: what a test loads.
KEPT = "tests/*/written_by_*.npz"
SOME_TESTS = ["tests/test_project.py", "tests/test_docs.py", "tests/law", "-m", "not slow"]
README = """
import pathlib, documents
print(*documents.run_blocks(pathlib.Path("README.md"), without_extras={bare}))
"""


def tracked(*under: str) -> set[str]:
    said = subprocess.run(["git", "ls-files", *under], cwd=ROOT, capture_output=True, check=True)
    return set(said.stdout.decode().splitlines())


def check(holds: bool, sentence: str) -> None:
    if not holds:
        sys.exit(f"test-dist: {sentence}")


def listed(names: set[str]) -> str:
    return ", ".join(sorted(names)[:10])


def check_sdist(path: pathlib.Path) -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    target = hatch["targets"]["sdist"]
    with tarfile.open(path) as file:
        sizes = {m.name.split("/", 1)[1]: m.size for m in file.getmembers() if m.isfile()}
    wanted = {
        name
        for name in tracked(*target["include"])
        if not any(fnmatch.fnmatch(name, pattern) for pattern in target["exclude"])
    } | {"pyproject.toml", "LICENSE"}
    own = {"PKG-INFO", ".gitignore"}
    missing, more = wanted - set(sizes), set(sizes) - wanted - own
    check(not missing, f"the sdist lacks {listed(missing)}")
    check(not more, f"the sdist holds what git does not: {listed(more)}")
    data = {n for n in sizes if any(fnmatch.fnmatch(n, p) for p in DATA)}
    data -= {n for n in data if fnmatch.fnmatch(n, KEPT)}
    check(not data, f"the sdist holds data or what was built: {listed(data)}")
    large = {n for n, size in sizes.items() if size > MOST_BYTES["a file of it"]}
    check(not large, f"files of the sdist are large: {listed(large)}")
    check(path.stat().st_size < MOST_BYTES["the sdist"], f"the sdist is {path.stat().st_size} B")
    print(f"sdist: {len(sizes)} files, {path.stat().st_size / 1e6:.1f} MB")


def check_wheel(path: pathlib.Path) -> None:
    with zipfile.ZipFile(path) as file:
        names = set(file.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        said = email.message_from_string(file.read(metadata).decode())
    package = {name.removeprefix("src/") for name in tracked("src/mixvi")}
    inside = {name for name in names if ".dist-info/" not in name}
    check(not package - inside, f"the wheel lacks {listed(package - inside)}")
    check(not inside - package, f"the wheel holds {listed(inside - package)}")
    check("mixvi/py.typed" in inside, "the wheel lacks py.typed")
    source = (ROOT / "src/mixvi/__init__.py").read_text()
    check(f'"{said["Version"]}"' in source, f"the wheel's version, {said['Version']}, is another")
    text = str(said.get_payload())
    check(len(text) > 5000, "the wheel has no README")
    dead = {one for one in re.findall(r"\]\(([^)]*)\)", text) if not one.startswith(("http", "#"))}
    check(not dead, f"links of the README lead nowhere on a package index: {listed(dead)}")
    print(f"wheel: {len(inside)} files, version {said['Version']}, needs {said['Requires-Python']}")


def new_python(folder: pathlib.Path, *wanted: str) -> pathlib.Path:
    """An environment's interpreter; packages are installed into it, or more of them."""
    inside = folder / "bin" / "python"
    if not inside.exists():
        venv.create(folder, with_pip=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([inside, "-m", "pip", "install", *quiet, *wanted], check=True)
    subprocess.run([inside, "-m", "pip", "check"], check=True)
    return inside


def check_readme(wheel: pathlib.Path, scratch: pathlib.Path) -> None:
    """Run where no file of the checkout is at hand but the README and what runs it."""
    for name in ("README.md", "tests/documents.py"):
        (scratch / pathlib.Path(name).name).write_text((ROOT / name).read_text(encoding="utf-8"))
    for extras, bare in (("", True), ("[plots,sklearn]", False)):
        python = new_python(scratch / "bare", f"{wheel}{extras}")
        code = README.format(bare=bare)
        ran = subprocess.run([python, "-c", code], cwd=scratch, stdout=subprocess.PIPE, text=True)
        check(ran.returncode == 0, f"the README does not run with mixvi{extras}")
        missing = ran.stdout.strip()
        print(
            f"README with mixvi{extras}: runs"
            + (f", but for what needs [{missing}]" if missing else "")
        )


def check_tests_of_sdist(sdist: pathlib.Path, scratch: pathlib.Path, arguments: list[str]) -> None:
    with tarfile.open(sdist) as file:
        file.extractall(scratch, filter="data")
    folder = scratch / sdist.name.removesuffix(".tar.gz")
    python = new_python(scratch / "of-sdist", f"{folder}[plots,test]")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or SOME_TESTS)]
    check(subprocess.run(command, cwd=folder).returncode == 0, "tests of the sdist fail")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _, arguments = parser.parse_known_args()
    sdists, wheels = sorted(DIST.glob("mixvi-*.tar.gz")), sorted(DIST.glob("mixvi-*.whl"))
    check(len(sdists) == len(wheels) == 1, "dist/ must hold one sdist and one wheel: make dist")
    check_sdist(sdists[0])
    check_wheel(wheels[0])
    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *sdists, *wheels], check=True
    )
    with tempfile.TemporaryDirectory() as scratch:
        check_readme(wheels[0], pathlib.Path(scratch))
        check_tests_of_sdist(sdists[0], pathlib.Path(scratch), arguments)
    print("test-dist: all is well")


if __name__ == "__main__":
    main()
