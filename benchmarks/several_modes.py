"""Does `fit` notice mass in other modes? Posteriors with several modes, and posteriors with one.

On the first collection "Trust" is wrong where over 5% of the mass is outside the mode that the
Gaussian covers. On the second, any word of another mode is wrong. Neither collection was chosen by
what `fit` says (see `modes_collection.py`, `one_mode_collection.py` and `modes_truth.py`).

`--rows FILE` keeps a row for every fit and goes on where it stopped; `--page` prints the tables.
"""

import argparse
import collections
import json
import pathlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import mixvi
import modes_collection
import modes_collection_more  # noqa: F401  (registers its half)
import one_mode_collection
from modes_collection import Case
from modes_truth import elsewhere, truth
from problems import machine

ROWS = pathlib.Path(__file__).resolve().parents[1] / "docs/results/parts/several_modes_rows.jsonl"
COLLECTIONS = {"several": modes_collection, "one": one_mode_collection}
WORDS = ("Trust", "Use", "Do")
TOO_MUCH = 0.05


def fitted(case: Case, key: int) -> tuple[Any, str, float]:
    """The posterior or None, what went wrong, and the seconds of a second fit."""

    def one() -> Any:
        return mixvi.fit(
            case.log_density, case.init, case.data, constraints=case.constraints, key=key
        )

    try:
        one()
        began = time.perf_counter()
        return one(), "", time.perf_counter() - began
    except mixvi.MixviError as error:
        return None, f"{type(error).__name__}: {error}", 0.0


def said(post: Any) -> dict[str, Any]:
    """What the user is told. The first of `post.modes` is the fitted one; without that list, what
    the verdict speaks of."""
    if hasattr(post, "modes"):
        others = tuple(post.modes)[1:]
    elif "other mode" in post.verdict:
        others = tuple(post.elsewhere.modes)
    else:
        others = ()
    return {
        "verdict": post.verdict,
        "trust": str(getattr(post, "trust", post.verdict.split()[0].rstrip(":"))),
        "others": len(others),
        "others_share": float(sum(mode.share for mode in others)),
        "dim": post.dim,
        "converged": bool(post.converged),
        "gradients": post.stats.gradients,
        "values": post.stats.values,
    }


def row_of(case: Case, which: str, kept: dict[str, Any], key: int) -> dict[str, Any]:
    post, error, seconds = fitted(case, key)
    row = {"name": case.name, "kind": case.kind, "collection": which, "key": key, "error": error}
    if post is None:
        return row
    row |= said(post) | {"seconds": round(seconds, 4)}
    if which == "several":
        row |= elsewhere(case, kept, post)
    return row


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measure(options: argparse.Namespace) -> None:
    path, kept = options.rows, truth()
    done = {(row["name"], row["key"]) for row in read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for which, collection in COLLECTIONS.items():
        if options.only not in (None, which):
            continue
        for case in collection.cases():
            if (case.name, options.key) in done or options.kind not in (None, case.kind):
                continue
            if case.name not in kept:
                print(f"{case.name}: left out, modes_truth.py has not been run for it", flush=True)
                continue
            row = row_of(case, which, kept[case.name], options.key)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{case.name}: {row.get('verdict') or row['error']}"[:140], flush=True)


# --- the page ---------------------------------------------------------------------------------


def trusted(row: dict[str, Any]) -> bool:
    return row.get("trust", "").lower().startswith("trust")


def wrongly_trusted(row: dict[str, Any]) -> bool:
    return trusted(row) and row["elsewhere"] > TOO_MUCH


def verdict_counts(rows: list[dict[str, Any]]) -> str:
    found = collections.Counter(row.get("verdict", "failed").split()[0].rstrip(":") for row in rows)
    return " | ".join(str(found[word]) for word in (*WORDS, "failed"))


def by_kind(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    kinds: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    return {**kinds, "**all**": rows}


def table(rows: list[dict[str, Any]], heads: dict[str, Callable]) -> list[str]:
    """A line for every kind: its counts of `heads`, the verdicts, the median seconds."""
    lines = [
        f"| kind | cases | {' | '.join(heads)} | Trust | Use with weights | Do not trust | failed "
        "| median s |",
        "|---" * (len(heads) + 7) + "|",
    ]
    for kind, its in by_kind(rows).items():
        counts = " | ".join(str(sum(map(bool, map(count, its)))) for count in heads.values())
        seconds = sorted(row.get("seconds", 0.0) for row in its)[len(its) // 2]
        lines.append(f"| {kind} | {len(its)} | {counts} | {verdict_counts(its)} | {seconds:.3f} |")
    return lines


def listed(title: str, rows: list[dict[str, Any]], about: Callable) -> list[str]:
    return [f"\n{title}: {len(rows)}\n", *(f"- {row['name']}: {about(row)}" for row in rows)]


def page(rows: list[dict[str, Any]]) -> list[str]:
    several = [row for row in rows if row["collection"] == "several"]
    one = [row for row in rows if row["collection"] == "one"]
    told = {"told of another mode": lambda row: row.get("others")}
    lines = [f"{machine()}; {len(rows)} fits", ""]
    if several:
        wrong = {f'"Trust", over {TOO_MUCH:.0%} elsewhere': wrongly_trusted}
        lines += ["### Several modes", "", *table(several, wrong | told)]
        missed = [row for row in several if wrongly_trusted(row)]
        lines += listed("Trusted wrongly", missed, lambda row: f"{row['elsewhere']:.0%} elsewhere")
    if one:
        lines += ["", "### One mode", "", *table(one, told)]
        wrong_claims = [row for row in one if row.get("others")]
        lines += listed("Wrongly told of another mode", wrong_claims, lambda row: row["verdict"])
    failed = [row for row in rows if row["error"]]
    return lines + listed("Failed", failed, lambda row: row["error"][:160])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind")
    parser.add_argument("--only", choices=COLLECTIONS)
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS)
    parser.add_argument("--page", action="store_true", help="print the tables of the rows kept")
    options = parser.parse_args()
    if options.page:
        print("\n".join(page([row for row in read(options.rows) if row["key"] == options.key])))
    else:
        measure(options)


if __name__ == "__main__":
    main()
