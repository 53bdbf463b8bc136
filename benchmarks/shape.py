"""Size and shape of the engine: lines, modules that a fit passes through, functions, branches."""

import ast
import pathlib
import re
import sys

import jax.numpy as jnp
import numpy as np

import mixvi

HOUSE = pathlib.Path(mixvi.__file__).parent
OUTSIDE = ("estimators", "models")
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.BoolOp, ast.comprehension)


def engine() -> list[pathlib.Path]:
    """All but the models, the estimators, scores and pictures."""
    return [
        path for path in HOUSE.rglob("_*.py") if path.relative_to(HOUSE).parts[0] not in OUTSIDE
    ]


def functions(path: pathlib.Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body
            has_words = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
            first = body[1].lineno if has_words and len(body) > 1 else body[0].lineno
            branches = sum(isinstance(inner, BRANCHES) for inner in ast.walk(node))
            yield (node.end_lineno or 0) - first + 1, branches, f"{path.stem}.{node.name}"


def passed_through() -> set[str]:
    """Modules whose functions run in one `fit`."""
    seen: set[str] = set()

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(HOUSE)):
            seen.add(frame.f_code.co_filename)

    sys.setprofile(watch)
    mixvi.fit(lambda w: (3 * w - jnp.exp(w)).sum() - 0.1 * w[0] * w[1], np.zeros(2))
    sys.setprofile(None)
    return seen


def main() -> None:
    files = engine()
    lines = {path: len(path.read_text().splitlines()) for path in files}
    longest = sorted((one for path in files for one in functions(path)), reverse=True)
    branched = sorted(longest, key=lambda one: -one[1])
    any_ = sum(len(re.findall(r": Any\b", path.read_text())) for path in files)
    dicts = sum(path.read_text().count("dict[str, Any]") for path in files)
    name, most = max(lines.items(), key=lambda one: one[1])
    print("| what | number |\n|---|---|")
    print(f"| files of the engine | {len(files)} |")
    print(f"| lines | {sum(lines.values())} |")
    print(f"| longest file | {name.relative_to(HOUSE)}, {most} |")
    print(f"| modules that a fit passes through | {len(passed_through())} |")
    print(f"| longest function, without its docstring | {longest[0][2]}, {longest[0][0]} |")
    print(f"| most branches in a function | {branched[0][2]}, {branched[0][1]} |")
    print(f"| `: Any` | {any_}, and {dicts} of `dict[str, Any]` |")


if __name__ == "__main__":
    main()
