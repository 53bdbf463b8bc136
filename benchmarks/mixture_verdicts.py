"""The verdict for mixtures against exact answers and NUTS: thresholds learnt and scored as for one
Gaussian (`verdicts.py`), by leaving out one posterior, and a whole family of shapes.

    python benchmarks/mixture_verdicts.py [NAME ...]    goes on where it stopped; prints the page
    python benchmarks/mixture_verdicts.py --page        the page alone

Mixtures of at most 2, 4, 8 and 16 components, from two keys, are fitted to the shapes of
`mixture_shapes.py`, `mixture_models.py` and `mixtures.py` and to posteriors that NUTS has judged.
Where fewer components come back than were allowed, more would be the same fit, and are left away.
Bad: a mean is off by over 0.5 sd or an sd by over 1.5 times. Good: by less than 0.2 and 1.15.
"""

import argparse
import collections
import itertools
import json
import pathlib
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

import mixtures
import mixvi
from hard import told
from mixture_models import SHAPES
from mixtures import Shape
from mixvi._judge._verdict import MIXTURE_THRESHOLDS, Thresholds
from verdicts import is_bad, said, share

ROWS = pathlib.Path(__file__).resolve().parent.parent
ROWS = ROWS / "docs/results/parts/mixture_verdicts_rows.jsonl"
COMPONENTS, KEYS = (2, 4, 8, 16), (0, 1)
KINDS = {
    "banana": "banana",
    "funnel, 3-D": "funnel",
    "funnel, 10-D": "funnel",
    "two far modes": "modes",
    "five far modes": "modes",
    "ring": "ring",
    "skewed pair": "skewed",
}
# Of those that NUTS has judged: what several Gaussians fit better than one, and at what cost.
NUTS = {
    "schools": "hierarchy",
    "schools_centred": "hierarchy",
    "groups_centred": "hierarchy",
    "raw_units": "raw_units",
    "heavy_tails": "heavy_tails",
    "negative_binomial": "negative_binomial",
    "garch": "garch",
    "predator_prey": "predator_prey",
    "poisson_gp_centred": "poisson_gp",
    "poisson_gp": "poisson_gp",
}
# Fits of these take a minute with 16 components.
SLOW = ("poisson_gp_centred", "poisson_gp")


def targets() -> dict[str, tuple[str, Callable[[], Shape]]]:
    first = {name: (KINDS[name], make) for name, make in mixtures.SHAPES.items()}
    hard = {name: (kind, lambda name=name: mixtures.posterior(name)) for name, kind in NUTS.items()}
    return {**first, **SHAPES, **hard}


def row(name: str, kind: str, shape: Shape, n: int, key: int) -> dict:
    given, family = (shape.log_density, shape.init, shape.data), mixvi.Mixture(n)
    began = time.process_time()
    post = mixvi.fit(*given, family=family, key=key, throw=False, **shape.options)
    seconds = time.process_time() - began
    ratio = post.flat_std / shape.sd
    return {
        "name": name,
        "kind": kind,
        "allowed": n,
        "key": key,
        "components": len(post.law.weights),
        "family": post.family,
        "dim": post.dim,
        "converged": post.converged,
        "mean_off": float(np.abs((post.flat_mean - shape.mean) / shape.sd).max()),
        "sd_off": float(np.maximum(ratio, 1 / ratio).max()),
        "told": told(post),
        "word": post.verdict.split(":")[0],
        "seconds": round(seconds, 3),
    }


def short(one):
    """Five digits are enough: all rows are to stay below half a megabyte."""
    if isinstance(one, dict):
        return {key: short(value) for key, value in one.items()}
    return float(f"{one:.5g}") if isinstance(one, float) else one


def rows() -> list[dict]:
    if not ROWS.exists():
        return []
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]


def collect(names: list[str]) -> None:
    done = {(one["name"], one["key"]): one for one in rows()}  # the last of them
    for name, (kind, make) in targets().items():
        if names and name not in names:
            continue
        keys, most = (KEYS[:1], 8) if name in SLOW else (KEYS, max(COMPONENTS))
        shape = None
        for key in keys:
            last = done.get((name, key))
            for n in COMPONENTS:
                if n > most or (
                    last and (last["components"] < last["allowed"] or n <= last["allowed"])
                ):
                    continue
                shape = make() if shape is None else shape
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    last = row(name, kind, shape, n, key)
                with ROWS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(short(last), separators=(",", ":")) + "\n")
                off = f"{last['mean_off']:.2f} {last['sd_off']:.2f}"
                print(name, key, n, last["components"], off, last["word"], file=sys.stderr)


# --- thresholds -------------------------------------------------------------------------------

MEANS, SDS, FARS = (
    (0.1, 0.15, 0.2, 0.25, 0.3),
    (1.05, 1.1, 1.15, 1.2, 1.25, 1.3),
    (0.1, 0.25, 0.5, 1.0),
)
TRUST_GRID = [
    Thresholds(weigh=(mean, sd), reject=MIXTURE_THRESHOLDS.reject, far=far)
    for mean, sd, far in itertools.product(MEANS, SDS, FARS)
]
REJECT_GRID = tuple(itertools.product((0.3, 0.4, 0.5, 0.6), (1.2, 1.25, 1.3, 1.35, 1.4, 1.5)))
NEAR = 0.005  # a share of the posteriors: a handful cannot tell more


def is_good(row: dict) -> bool:
    return row["mean_off"] < 0.2 and row["sd_off"] < 1.15


def label(row: dict) -> str:
    return "bad" if is_bad(row) else "good" if is_good(row) else "between"


class Learner:
    """Words of every row by every threshold, once; then what is best on some of the rows."""

    def __init__(self, some: list[dict]):
        self.rows, self.bad = some, np.array([is_bad(row) for row in some])
        alike = collections.Counter((row["name"], is_bad(row)) for row in some)
        # Every posterior counts the same.
        self.weight = np.array([1 / alike[row["name"], is_bad(row)] for row in some])
        self.trusted = np.array([[said(row, one) == "T" for row in some] for one in TRUST_GRID])
        self.rejected = {
            far: np.array(
                [
                    [said(row, Thresholds((0.0, 1.0), reject, far)) == "D" for row in some]
                    for reject in REJECT_GRID
                ]
            )
            for far in FARS
        }

    def shares(self, flags: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of bad fits and of others, the mean over posteriors."""
        made = []
        for these in (kept & self.bad, kept & ~self.bad):
            made.append(flags[:, these] @ self.weight[these] / max(1e-9, self.weight[these].sum()))
        return made[0], made[1]

    def chosen(self, kept: np.ndarray) -> Thresholds:
        """Where trust ends: fewest bad fits trusted, then most others (the strictest of equals).
        Where "do not trust" begins: as `verdicts.py` has it, the looser of equals."""
        wrong, right = self.shares(self.trusted, kept)
        safe = wrong < wrong.min() + 1e-9
        best = right[safe].max()
        equals = [
            one for one, s, r in zip(TRUST_GRID, safe, right, strict=True) if s and r > best - NEAR
        ]
        trust = min(equals, key=lambda one: (one.weigh[::-1], one.far))
        flagged, in_vain = self.shares(self.rejected[trust.far], kept)
        score = flagged - in_vain
        pairs = zip(REJECT_GRID, score, strict=True)
        equals = [one for one, value in pairs if value > score.max() - NEAR]
        reject = min(equals, key=lambda one: abs(one[0] - 0.5) + abs(one[1] - 1.5))
        return Thresholds(trust.weigh, reject, trust.far)

    def left_out(self, by: str) -> tuple[list[str], collections.Counter]:
        """The word of every row by thresholds that saw nothing of its posterior (or kind)."""
        words, used = [""] * len(self.rows), collections.Counter()
        groups = np.array([row[by] for row in self.rows])
        for group in dict.fromkeys(groups):
            limits = self.chosen(groups != group)
            used[limits] += 1
            for at in np.flatnonzero(groups == group):
                words[at] = said(self.rows[at], limits)
        return words, used


# --- the page ---------------------------------------------------------------------------------


def table(title: str, labels: list[str], words: list[str]) -> str:
    lines = [f"| {title} | fits | Trust | Use with | Do not trust |", "|---|---|---|---|---|"]
    for name in ("bad", "between", "good"):
        its = [word for its, word in zip(labels, words, strict=True) if its == name]
        lines.append(f"| {name} | {len(its)} | {' | '.join(str(its.count(w)) for w in 'TUD')} |")
    return "\n".join(lines)


def in_short(limits: Thresholds) -> str:
    (a, b), (c, d) = limits.weigh, limits.reject
    return f"weigh {a} sd, {b} times; reject {c} sd, {d} times; {limits.far} nat"


def line_of(row: dict) -> str:
    m = row["told"]["diagnosis"]["moments"]
    seen = f" (told {m['mean_off']:.2f} and {m['sd_ratio']:.2f})" if m else ""
    return (
        f"- {row['name']}, {row['components']} components, key {row['key']}: mean off "
        f"{row['mean_off']:.2f} sd, sd off {row['sd_off']:.2f} times{seen}; "
        f'"{row["word"]}"'
    )


def same_fit(row: dict) -> tuple:
    """More components allowed in vain is the same fit again."""
    return tuple(row[name] for name in ("name", "key", "components", "mean_off", "sd_off"))


def by_kind(some: list[dict], words: list[str]) -> str:
    lines = [
        "| family of shapes | posteriors | bad: Trust, Use, Do not | between | good |",
        "|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(row["kind"] for row in some):
        its = [(row, word) for row, word in zip(some, words, strict=True) if row["kind"] == kind]
        cells = [kind, len({row["name"] for row, _ in its})]
        for name in ("bad", "between", "good"):
            told_of = [word for row, word in its if label(row) == name]
            cells.append(", ".join(str(told_of.count(w)) for w in "TUD"))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def page() -> str:
    kept = [*{same_fit(row): row for row in rows()}.values()]
    some = [row for row in kept if row["components"] > 1 and row["told"]]
    learner, labels = Learner(some), [label(row) for row in some]
    everything = np.ones(len(some), bool)
    now = [said(row, MIXTURE_THRESHOLDS) for row in some]
    alone, of_one = learner.left_out("name")
    kinds, of_kind = learner.left_out("kind")
    names, n_kinds = {row["name"] for row in some}, len({row["kind"] for row in some})
    said_of = lambda wanted, words: share(  # noqa: E731
        [word == "T" for its, word in zip(labels, words, strict=True) if its in wanted]
    )
    missed = [row for row, word in zip(some, now, strict=True) if is_bad(row) and word != "D"]
    in_vain = [row for row, word in zip(some, now, strict=True) if is_good(row) and word == "D"]
    lines = [
        f"{len(some)} mixtures of 2 to 16 Gaussians on {len(names)} posteriors of {n_kinds} "
        f"families ({len(kept) - len(some)} more fits stayed one Gaussian, and are judged so). "
        "Bad: a mean off by over 0.5 sd or an sd by over 1.5 times; good: by less than 0.2 sd and "
        "1.15 times.",
        "",
        f"Best on all of them: {in_short(learner.chosen(everything))}.",
        f"In use: {in_short(MIXTURE_THRESHOLDS)}.",
        "",
        table("thresholds from the other posteriors", labels, alone),
        "",
        table("thresholds from the other families", labels, kinds),
        "",
        table("thresholds in use", labels, now),
        "",
        "Trusted: of the bad "
        + ", ".join(f"{said_of(('bad',), words):.1%}" for words in (alone, kinds, now))
        + "; of the good "
        + ", ".join(f"{said_of(('good',), words):.0%}" for words in (alone, kinds, now))
        + " (from other posteriors, from other families, in use).",
        "",
        "By family, with the thresholds in use:",
        "",
        by_kind(some, now),
        "",
        "Chosen when a posterior is left out:",
        "",
        *(f"- {times}: {in_short(one)}" for one, times in of_one.most_common()),
        "",
        "Chosen when a family is left out:",
        "",
        *(f"- {times}: {in_short(one)}" for one, times in of_kind.most_common()),
        "",
        'Bad and not "Do not trust", with the thresholds in use:',
        "",
        *([line_of(row) for row in missed] or ["none"]),
        "",
        'Good, but "Do not trust":',
        "",
        *([line_of(row) for row in in_vain] or ["none"]),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--page", action="store_true", help="the page alone")
    asked = parser.parse_args()
    if not asked.page:
        collect(asked.names)
    print(page())


if __name__ == "__main__":
    main()
