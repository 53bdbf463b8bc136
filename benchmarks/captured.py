"""Models of other projects, unchanged: their own files are run up to the first sampler, and the
model that was handed to it is kept.

    numpyro_model(checkout / "examples" / "ar2.py")           a script that calls `MCMC.run`
    pymc_model(checkout / "examples" / ... / "GLM-robust.myst.md")    a page that calls `pm.sample`

Nothing of a checkout is copied: models and data live in this process alone.
"""

import contextlib
import io
import os
import pathlib
import runpy
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np


class NumPyroModel(NamedTuple):
    model: Callable
    arguments: tuple
    keywords: dict[str, Any]


class _Captured(Exception):
    """Carries what a sampler was given."""


@contextlib.contextmanager
def _inside(folder: pathlib.Path, arguments: list[str]) -> Iterator[None]:
    """In the file's own folder, with its own arguments; what it prints goes nowhere. NumPy's global
    generator is seeded, so that a file that draws its data makes the same data for every tool."""
    before, argv = pathlib.Path.cwd(), sys.argv
    os.chdir(folder)
    sys.argv = arguments
    sys.path.insert(0, str(folder))
    np.random.seed(0)  # noqa: NPY002
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.path.remove(str(folder))
        sys.argv = argv
        os.chdir(before)


def numpyro_model(script: pathlib.Path) -> NumPyroModel:
    import numpyro
    from numpyro.infer import MCMC

    def run(self: Any, key: Any, *arguments: Any, **keywords: Any) -> None:
        keywords.pop("extra_fields", None)
        keywords.pop("init_params", None)
        raise _Captured(NumPyroModel(self.sampler.model, arguments, keywords))

    original, MCMC.run = MCMC.run, run
    # Scripts ask for the release they were written for.
    version, numpyro.__version__ = numpyro.__version__, _asked_version(script, numpyro.__version__)
    try:
        with _inside(script.parent, [script.name]):
            runpy.run_path(str(script), run_name="__main__")
    except _Captured as one:
        return one.args[0]
    finally:
        MCMC.run = original
        numpyro.__version__ = version
    raise RuntimeError(f"{script.name} ran to its end without a sampler")


def _asked_version(script: pathlib.Path, otherwise: str) -> str:
    for line in script.read_text(encoding="utf-8").splitlines():
        if "numpyro.__version__.startswith" in line:
            return line.split("startswith(")[1].split(")")[0].strip("\"'")
    return otherwise


def pymc_model(page: pathlib.Path, which: int = 0) -> Any:
    """The model of the sampler that is called as number `which`, counted from zero; those before it
    are passed over, and so is every cell that then fails."""
    import pymc as pm

    calls = 0

    def sample(*arguments: Any, **keywords: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > which:
            raise _Captured(pm.modelcontext(keywords.get("model")))

    patched = {name: getattr(pm, name) for name in ("sample", "sample_prior_predictive")}
    patched |= {"model_to_graphviz": pm.model_to_graphviz}
    pm.sample = sample
    pm.sample_prior_predictive = pm.model_to_graphviz = lambda *a, **k: None
    names: dict[str, Any] = {"__name__": "__main__"}
    failed = None
    try:
        with _inside(page.parent, [page.name]):
            for cell in _cells(page):
                try:
                    exec(compile(cell, page.name, "exec"), names)
                except _Captured:
                    raise
                except Exception as err:
                    failed = failed or err
    except _Captured as one:
        return one.args[0]
    finally:
        for name, function in patched.items():
            setattr(pm, name, function)
    raise RuntimeError(f"{page.name} ran to its end without a sampler") from failed


def _cells(page: pathlib.Path) -> Iterator[str]:
    """Code cells of a page, without the lines that are a notebook's own."""
    inside, lines = False, []
    for line in page.read_text(encoding="utf-8").splitlines():
        if not inside and line.startswith("```{code-cell}"):
            inside, lines = True, []
        elif inside and line.startswith("```"):
            inside = False
            yield "\n".join(_python(lines))
        elif inside:
            lines.append(line)


def _python(lines: list[str]) -> Iterator[str]:
    options = False
    for number, line in enumerate(lines):
        if line.strip() == "---" and (number == 0 or options):
            options = not options
        elif not options and not line.lstrip().startswith((":", "%", "!")):
            yield line
