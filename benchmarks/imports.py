"""What imports cost: mixvi over jax, and every adaptor over mixvi and the library it is for.

    python benchmarks/imports.py --repeats 5

Every measurement is a fresh process, with bytecode compiled and files read by a first one that does
not count. Seconds are of the processor. A library that is not installed has no row.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys

import jax

# What is imported, and the library that a user of it has imported already.
ADAPTORS = {
    "mixvi.interop.numpyro": "numpyro",
    "mixvi.interop.pymc": "pymc",
    "mixvi.interop.arviz": "arviz",
    "mixvi.interop.pandas": "pandas",
    "mixvi.interop.nuts": "blackjax",
    "mixvi.estimators": "sklearn.linear_model",
    "mixvi.plots": "matplotlib.pyplot",
    "mixvi.tables": "sklearn.linear_model",
    "mixvi.cluster": "distributed",
    "mixvi.models": None,
}
LIBRARIES = {
    *("arviz", "arviz_base", "bambi", "blackjax", "dask", "distributed", "funsor", "jinja2"),
    *("matplotlib", "numpyro", "nutpie", "pandas", "pooch", "pyarrow", "pymc", "pytensor"),
    *("sklearn", "xarray"),
}
CHILD = """
import importlib, json, sys, time
told = {"seconds": [], "loaded": []}
for name in sys.argv[1].split():
    before, began = set(sys.modules), time.process_time()
    importlib.import_module(name)
    told["seconds"].append(time.process_time() - began)
    told["loaded"].append(sorted({one.split(".")[0] for one in set(sys.modules) - before}))
print(json.dumps(told))
"""


def imported(*names: str) -> tuple[list[float], list[set[str]]]:
    """The seconds that each takes after those before it, and the libraries that it brings."""
    child = [sys.executable, "-c", CHILD, " ".join(names)]
    done = subprocess.run(child, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    return told["seconds"], [set(one) & LIBRARIES for one in told["loaded"]]


def measured(repeats: int, *names: str) -> tuple[list[float], list[set[str]]]:
    """Medians over the repeats, after a first process that reads files into memory."""
    loaded = imported(*names)[1]
    times = [imported(*names)[0] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)], loaded


def listed(libraries: set[str]) -> str:
    return ", ".join(f"`{one}`" for one in sorted(libraries)) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    version = ".".join(map(str, sys.version_info[:3]))
    (numpy, jax_too, ours), (_, _, brings) = measured(repeats, "numpy", "jax", "mixvi")
    (command,), _ = measured(repeats, "mixvi_cli")
    print(
        f"CPU seconds, the median of {repeats} fresh processes; Python {version}, "
        f"jax {jax.__version__}.\n\n"
        f"`import mixvi` takes {ours:.2f} s after `import jax` ({numpy + jax_too:.2f} s). Of the "
        f"libraries below it loads {listed(brings)}. The command's own module, `mixvi_cli`, takes "
        f"{command:.3f} s: `mixvi --help` answers without jax.\n\n"
        "| import | the library by itself | after it and mixvi | libraries that it loads itself |\n"
        "|---|---|---|---|"
    )
    for name, library in ADAPTORS.items():
        if library is not None and importlib.util.find_spec(library.split(".")[0]) is None:
            continue
        before = ["jax", *([library] if library else [])]
        seconds, _ = measured(repeats, *before, "mixvi", name)
        alone = imported("jax", "mixvi", name)[1][-1]
        other = f"`{library}` {seconds[1]:.2f}" if library else ""
        print(f"| `{name}` | {other} | {seconds[-1]:.3f} | {listed(alone)} |", flush=True)


if __name__ == "__main__":
    main()
