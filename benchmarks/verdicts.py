"""The verdict against long NUTS runs: thresholds set and scored by leaving one posterior out.

Reads the rows of `hard.py`. A fit is bad where a mean is off by over 0.5 sd or an sd by over 1.5
times. Each posterior's fits are judged with the thresholds that do best on all other posteriors.
"""

import argparse
import collections
import itertools
import pathlib

from hard import ROWS, rows
from mixvi._judge._diagnosis import Diagnosis, Elsewhere, Estimate, Moments, OtherMode
from mixvi._judge._verdict import DEFAULT_THRESHOLDS, Subject, Thresholds, judge

GRID = [
    Thresholds(reject=(mean, sd), far=far, far_per_dimension=per_dimension)
    for mean, sd, far, per_dimension in itertools.product(
        (0.3, 0.4, 0.5, 0.6), (1.27, 1.3, 1.35, 1.4, 1.5, 1.7), (0.25, 0.5, 1.0), (0.01, 0.02, 0.04)
    )
]
WORDS = {"trust": "T", "weigh": "U", "reject": "D"}


def said(row: dict, limits: Thresholds) -> str:
    """T(rust), U(se with weights) or D(o not trust)."""
    told = dict(row["told"]["diagnosis"])
    elbo, moments = Estimate(**told.pop("elbo")), told.pop("moments")
    diagnosis = Diagnosis(elbo=elbo, moments=moments and Moments(**moments), **told)
    share = row["told"]["other_modes"]
    others = (OtherMode(10.0, share),) if share else ()
    elsewhere = Elsewhere(others, len(others), share)
    subject = Subject(("",) * row["dim"], row["family"], row["converged"])
    return WORDS[judge(subject, diagnosis, elsewhere, limits).level or "reject"]


def is_bad(row: dict) -> bool:
    return row["mean_off"] > 0.5 or row["sd_off"] > 1.5


def share(flags: list[bool]) -> float:
    return sum(flags) / max(1, len(flags))


def score(some: list[dict], limits: Thresholds) -> float:
    """Bad fits flagged minus false alarms, as shares; every posterior counts the same."""
    by_name = collections.defaultdict(list)
    for row in some:
        by_name[row["name"], is_bad(row)].append(said(row, limits) == "D")
    bad = [share(flags) for (_, wrong), flags in by_name.items() if wrong]
    good = [share(flags) for (_, wrong), flags in by_name.items() if not wrong]
    return sum(bad) / max(1, len(bad)) - sum(good) / max(1, len(good))


def chosen(some: list[dict]) -> Thresholds:
    """Of those within 0.005 of the best score, the nearest to what defines a bad fit: a handful of
    posteriors cannot tell more."""
    scored = [(score(some, limits), limits) for limits in GRID]
    best = max(value for value, _ in scored)

    def away(limits: Thresholds) -> tuple[float, float]:
        mean, sd = limits.reject
        return abs(mean - 0.5) + abs(sd - 1.5), -limits.far_per_dimension

    return min((limits for value, limits in scored if value > best - 0.005), key=away)


def table(title: str, words: list[tuple[dict, str]]) -> list[str]:
    lines = [
        f"| {title} | fits | Trust | Use with weights | Do not trust |",
        "|---|---|---|---|---|",
    ]
    for name, wrong in (("bad", True), ("not bad", False)):
        its = [word for row, word in words if is_bad(row) == wrong]
        counts = " | ".join(str(its.count(word)) for word in "TUD")
        lines.append(f"| {name} | {len(its)} | {counts} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS, help="where hard.py kept them")
    kept = rows(parser.parse_args().rows)
    some = [row for row in kept if row["told"] and row["method"] != "best"]
    names = list(dict.fromkeys(row["name"] for row in some))
    left_out, used = [], collections.Counter()
    for name in names:
        limits = chosen([row for row in some if row["name"] != name])
        used[limits] += 1
        left_out += [(row, said(row, limits)) for row in some if row["name"] == name]
    wrong = [word for row, word in left_out if is_bad(row)]
    right = [word for row, word in left_out if not is_bad(row)]
    print(f"{len(some)} fits of {len(names)} posteriors; on all of them the choice is")
    print(f"{chosen(some)}, in use {DEFAULT_THRESHOLDS}.\n")
    print("\n".join(table("thresholds from the other posteriors", left_out)), "\n")
    print(
        f'Bad fits flagged: {share([w != "T" for w in wrong]):.0%} (as "do not trust" '
        f'{share([w == "D" for w in wrong]):.0%}). False alarms: "do not trust" '
        f"{share([w == 'D' for w in right]):.0%}, weights asked for "
        f"{share([w == 'U' for w in right]):.0%}.\n"
    )
    print(
        "\n".join(
            table("thresholds in use", [(row, said(row, DEFAULT_THRESHOLDS)) for row in some])
        ),
        "\n",
    )
    print("Chosen when one is left out (times; reject: mean, sd; far: nats, per dimension):\n")
    for limits, times in used.most_common():
        print(f"- {times}: {limits.reject}; {limits.far}, {limits.far_per_dimension}")
    print("\nMissed, or alarmed in vain, with the thresholds in use:\n")
    for row in some:
        word = said(row, DEFAULT_THRESHOLDS)
        if (word == "D") != is_bad(row):
            print(
                f"- {row['name']}, {row['method']}: mean off {row['mean_off']:.2f} sd, sd off "
                f'{row["sd_off"]:.2f} times; "{row["verdict"].split(":")[0]}"'
            )


if __name__ == "__main__":
    main()
