"""What the whole of a protocol would take here, from a run of its first few splits.

    JAX_PLATFORMS=cpu python -m reproduction all --splits 2 --out FOLDER
    PYTHONPATH=. python benchmarks/paper_time.py FOLDER

Compiling, where it is recorded, is counted as it was; fits are proportional to the number of
splits, because on a CPU one is computed after the other, and evaluation to the number of draws (the
first splits have more, for the trend). Sets run side by side, so sums are not wall time: the last
line scales them by the ratio of the wall to the sum in that run.
"""

import argparse
from pathlib import Path

import pandas as pd

from problems import machine
from reproduction.experiments import EXPERIMENTS, N_PREDICT
from reproduction.fitting import TREND, TREND_SPLITS
from reproduction.record import duration, jobs_with_parts, walls
from reproduction.results import read

PARTS = ("prepare", "screen", "fit", "evaluate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    jobs = pd.json_normalize(read(parser.parse_args().folder, "jobs"))
    jobs = jobs_with_parts(jobs)
    sets = jobs["set"][jobs["method"] != "screening"].unique()
    print(f"{machine()}; sets: {', '.join(sets)}\n")
    header = ("protocol, experiment", "compile", *PARTS, "all splits, sum")
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    measured = total = 0.0
    for group, its in jobs.groupby(["protocol", "experiment"]):
        sums = [its[part].sum() for part in ("compile", *PARTS)]
        whole = sums[0] + sum(times(job, p) * job[p] for _, job in its.iterrows() for p in PARTS)
        measured, total = measured + sum(sums), total + whole
        entries = [", ".join(group), *(duration(value) for value in (*sums, whole))]
        print(f"| {' | '.join(entries)} |")
    wall = sum(walls(jobs).values())
    print(f"\nMeasured: {duration(wall)} on the wall, {duration(measured)} summed over jobs.")
    print(f"All splits, by that ratio: about {duration(total * wall / measured)} on the wall.")


def times(job: pd.Series, part: str) -> float:
    """How many times the work of this job makes that of all splits of its set."""
    if job["experiment"] == "toy" or job["method"] == "choosing":
        return 1.0
    some, every = job["n_splits"], EXPERIMENTS[job["experiment"]].splits_of(job["set"])
    return draws(every) / draws(some) if part == "evaluate" else every / some


def draws(n_splits: int) -> int:
    return n_splits * N_PREDICT + min(n_splits, TREND_SPLITS) * max(TREND)


if __name__ == "__main__":
    main()
