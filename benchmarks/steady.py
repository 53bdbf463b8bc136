"""Does the word depend on the key? Thirty fits, ten keys each.

    python benchmarks/steady.py [NAME ...] [--rows FILE] [--keys 10]   goes on where it stopped
    python benchmarks/steady.py --page                                 the page alone

A change is a key whose level differs from the commonest one of its posterior.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np

PARTS = pathlib.Path(__file__).resolve().parents[1] / "docs" / "results" / "parts"
ROWS = PARTS / "steady_rows.jsonl"


def wide_logistic() -> tuple[Any, Any, Any]:
    """2000 rows, 300 columns."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2000, 300)) / np.sqrt(300)
    y = (rng.random(2000) < 1 / (1 + np.exp(-x @ rng.normal(0, 2, 300)))).astype(float)

    def log_density(w, data):
        x, y = data
        eta = x @ w
        return (y * eta - jnp.logaddexp(0.0, eta)).sum() - 0.5 * (w**2).sum()

    return log_density, np.zeros(300), (x, y)


def all_fits() -> dict[str, Any]:
    """Name to a function that makes log density, start and data."""
    from posteriors import PROBLEMS
    from small_models import MODELS

    def of(make: Any) -> Any:
        def parts() -> tuple[Any, Any, Any]:
            one = make()
            return one.log_density, one.init, one.data

        return parts

    fits = {name: of(make) for name, make in [*PROBLEMS.items(), *MODELS.items()]}
    return {**fits, "wide_logistic": wide_logistic}


def kept(rows: pathlib.Path) -> list[dict]:
    text = rows.read_text(encoding="utf-8") if rows.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def run(name: str, n_keys: int, rows: pathlib.Path) -> None:
    import mixvi

    warnings.simplefilter("ignore")
    log_density, init, data = all_fits()[name]()
    done = {(row["name"], row["key"]) for row in kept(rows)}
    for key in range(n_keys):
        if (name, key) in done:
            continue
        post = mixvi.fit(log_density, init, data=data, key=key)
        said = post.judged.diagnosis
        row = {
            "name": name,
            "key": key,
            "dim": post.dim,
            "family": post.family,
            "level": post.trust,
            "verdict": post.verdict,
            "elbo": post.elbo.value,
            "khat": post.khat,
            "kl": said.kl,
            "n_fresh": said.n_draws,
            "moments": said.moments and dataclasses.asdict(said.moments),
            "n_mixed": said.n_mixed,
            "other_modes": post.elsewhere.share,
            "gradients": post.stats.gradients,
            "values": post.stats.values,
            "seconds": post.stats.seconds,
        }
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")


def page(rows: pathlib.Path) -> str:
    by_name = collections.defaultdict(list)
    for row in kept(rows):
        by_name[row["name"]].append(row)
    n_changed, n_all = 0, 0
    lines = [
        "| posterior | D | trust | weigh | reject | keys that change the word | bound, range |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, some in by_name.items():
        counts = collections.Counter(row["level"] for row in some)
        changed = len(some) - max(counts.values())
        n_changed, n_all = n_changed + changed, n_all + len(some)
        bounds = [row["elbo"] for row in some]
        told = " | ".join(str(counts[word]) for word in ("trust", "weigh", "reject"))
        lines += [f"| {name} | {some[0]['dim']} | {told} | {changed} | {np.ptp(bounds):.3f} |"]
    head = f"{n_changed} of {n_all} verdicts ({n_changed / n_all:.1%}) differ from the commonest "
    return head + f"of their posterior; {len(by_name)} posteriors.\n\n" + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="posteriors; all when left out")
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS, help="where rows are kept")
    parser.add_argument("--keys", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    names = args.names or list(all_fits())
    if args.page or len(names) == 1:
        if not args.page:
            run(names[0], args.keys, args.rows)
        print(page(args.rows))
        return

    def alone(name: str) -> None:
        command = [sys.executable, __file__, name, "--rows", args.rows, "--keys", str(args.keys)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(alone, names))
    print(page(args.rows))


if __name__ == "__main__":
    main()
