"""The tests on every Python that the package is for, and on the oldest dependencies it allows.

    python tools/environments.py pythons   # those of 3.11, 3.12 and 3.13 that are on this machine
    python tools/environments.py oldest    # every dependency at its floor, on the oldest Python

What else is said goes to pytest: `... oldest -m "not slow" -n 1`. Each environment is a folder in
.venvs, made once and made anew when the dependencies change. Ends with 1 where a test failed, or
where there was nothing to run.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
VENVS = ROOT / ".venvs"
PYTHONS = ("3.11", "3.12", "3.13")
INSTALLED = ".[plots,test]"
ASK = "import sys; print('%d.%d' % sys.version_info[:2])"


def candidates(version: str) -> Iterator[str]:
    """What may be Python `version`: this one, those on the PATH, and pyenv's."""
    yield sys.executable
    for folder in os.get_exec_path():
        if found := shutil.which(f"python{version}", path=folder):
            yield found
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    for folder in sorted(pyenv.glob(f"versions/{version}.*"), reverse=True):
        yield str(folder / "bin" / "python")


def interpreter(version: str) -> str | None:
    """One that answers with this version: a shim of pyenv's on the PATH need not."""
    for path in candidates(version):
        try:
            said = subprocess.run([path, "-c", ASK], capture_output=True, text=True)
        except OSError:
            continue
        if said.returncode == 0 and said.stdout.strip() == version:
            return path
    return None


# A name, perhaps with extras; its floor; perhaps a ceiling and a marker.
FLOOR = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*>=\s*([\w.]+)(?:,\s*<[\w.]+)?(?:\s*;.*)?")


def floors(project: dict) -> list[str]:
    """Every requirement, as a constraint to its floor; ceilings and markers are passed over."""
    extras = project.get("optional-dependencies", {}).values()
    wanted = [*project["dependencies"], *(one for extra in extras for one in extra)]
    held: dict[str, str] = {}
    for text in wanted:
        match = FLOOR.fullmatch(text)
        if match is None:
            sys.exit(f"pyproject.toml: {text!r} has no floor that could be tested.")
        name, floor = match.groups()
        line = f"{name}=={floor}"
        if held.setdefault(name, line) != line:
            sys.exit(f"pyproject.toml gives {name} two floors: {held[name]} and {line}.")
    return sorted(held.values())


def prepared(name: str, python: str, project: dict, constraints: list[str]) -> pathlib.Path:
    """The interpreter of an environment with the package and what its tests need."""
    said = [project["dependencies"], project.get("optional-dependencies"), python, constraints]
    stamp, folder = hashlib.sha256(repr(said).encode()).hexdigest(), VENVS / name
    inside, mark = folder / "bin" / "python", folder / "made-for"
    if mark.exists() and mark.read_text() == stamp:
        return inside
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    held = folder / "constraints.txt"
    held.write_text("\n".join(constraints) + "\n")
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", held, "--editable", INSTALLED], cwd=ROOT, check=True)
    mark.write_text(stamp)
    return inside


def ran(name: str, python: str, project: dict, oldest: bool, arguments: list[str]) -> str:
    """'passed' or what else came of it, in a line of the table."""
    print(f"== {name} ({python})", flush=True)
    try:
        inside = prepared(name, python, project, floors(project) if oldest else [])
    except subprocess.CalledProcessError:
        return "could not be installed"
    began = time.perf_counter()
    # Compiled code of another JAX is of no use here.
    cache = {"JAX_COMPILATION_CACHE_DIR": str(VENVS / name / "compiled"), "PYTHONPATH": str(ROOT)}
    command = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    code = subprocess.run(command, cwd=ROOT, env=os.environ | cache).returncode
    took = f"{(time.perf_counter() - began) / 60:.1f} min"
    return f"passed, {took}" if code == 0 else f"FAILED (pytest ended with {code}), {took}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pythons", "oldest"))
    parser.add_argument("--only", metavar="VERSION", help="one Python, such as 3.12")
    options, arguments = parser.parse_known_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = options.what == "oldest"
    versions = PYTHONS[:1] if oldest else PYTHONS
    if options.only:
        versions = (options.only,)
    outcome = {}
    for version in versions:
        python = interpreter(version)
        name = f"oldest-{version}" if oldest else version
        if python is None:
            outcome[name] = "not on this machine"
            continue
        outcome[name] = ran(name, python, project, oldest, arguments)
    print("\n" + "\n".join(f"{name:<14} {said}" for name, said in outcome.items()))
    bad = any("passed" not in said and "machine" not in said for said in outcome.values())
    return int(bad or not any("passed" in said for said in outcome.values()))


if __name__ == "__main__":
    sys.exit(main())
