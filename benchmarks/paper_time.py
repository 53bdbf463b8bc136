"""What the whole of a protocol would take here, from a run of its first few splits.

    JAX_PLATFORMS=cpu mixvi paper all --splits 2 --out FOLDER
    python benchmarks/paper_time.py FOLDER

Compiling is counted as it was; fits are proportional to the number of splits, because on a CPU one
is computed after the other, and evaluation to the number of draws (the first splits have more, for
the trend). Sets run two at a time, so sums are not wall time: the last line scales them by the
ratio of the wall to the sum in that run.
"""

import argparse
from pathlib import Path

from mixvi.paper._cells import N_SPLITS
from mixvi.paper._protocol import N_PREDICT
from mixvi.paper._record import duration, seconds, walls
from mixvi.paper._results import read
from mixvi.paper._run import TREND, TREND_SPLITS
from problems import machine

PARTS = ("prepare", "screen", "fit", "evaluate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    jobs = read(parser.parse_args().folder, "jobs")
    sets = dict.fromkeys(job["set"] for job in jobs if job["method"] != "screening")
    print(f"{machine()}; sets: {', '.join(sets)}\n")
    header = ("protocol, experiment", "compilations", "compile", *PARTS, "all splits, sum")
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    measured = total = 0.0
    for group in sorted({(job["protocol"], job["experiment"]) for job in jobs}):
        its = [job for job in jobs if (job["protocol"], job["experiment"]) == group]
        compiling = sum(seconds(job, "compile") for job in its)
        sums = [sum(seconds(job, part) for job in its) for part in PARTS]
        whole = compiling + sum(times(job, p) * seconds(job, p) for job in its for p in PARTS)
        measured, total = measured + compiling + sum(sums), total + whole
        entries = [", ".join(group), str(sum(job["n_compiled"] for job in its))]
        entries += [duration(value) for value in (compiling, *sums, whole)]
        print(f"| {' | '.join(entries)} |")
    wall = sum(walls(jobs).values())
    print(f"\nMeasured: {duration(wall)} on the wall, {duration(measured)} summed over jobs.")
    print(f"All splits, by that ratio: about {duration(total * wall / measured)} on the wall.")


def times(job: dict, part: str) -> float:
    """How many times the work of this job makes that of all splits of its set."""
    if job["experiment"] == "toy" or job["method"] == "choosing":
        return 1.0
    some, every = job["n_splits"], N_SPLITS.get(job["set"], 100)
    return draws(every) / draws(some) if part == "evaluate" else every / some


def draws(n_splits: int) -> int:
    return n_splits * N_PREDICT + min(n_splits, TREND_SPLITS) * max(TREND)


if __name__ == "__main__":
    main()
