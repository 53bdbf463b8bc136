"""Kill -9 at ten random moments: the rows of the resumed run against those of an unbroken one.

Cauchy regression on six data sets with three methods: a number of basis functions is
chosen, then come screening, fits and scores. Every killed run is started again with the same
command; the moments are random within the time that the unbroken run took.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from problems import machine
from reproduction.results import key, read

COMMAND = [sys.executable, "-m", "reproduction", "cauchy", "--splits", "6"]
COMMAND += ["--methods", "laplace", "mu", "eig", "--predict-draws", "1000"]


def rows(folder: Path) -> list[dict]:
    """Without what depends on the clock."""
    some = [{k: v for k, v in row.items() if k != "seconds"} for row in read(folder, "rows")]
    return sorted(some, key=key)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def start(out: Path) -> subprocess.Popen:
            return subprocess.Popen(
                [*COMMAND, "--out", out],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        began = time.monotonic()
        start(folder / "whole").wait()
        took = time.monotonic() - began
        whole = rows(folder / "whole")
        print(f"{machine()}; unbroken run {took:.0f} s, {len(whole)} rows\n")
        print("| kill | after, s | rows then | rows at the end | equal |\n|---|---|---|---|---|")
        equal = 0
        for number in range(1, options.kills + 1):
            out, after = folder / f"killed{number}", moments.uniform(0.2, 1.0) * took
            run = start(out)
            time.sleep(after)
            run.send_signal(signal.SIGKILL)
            run.wait()
            then = len(read(out, "rows"))
            start(out).wait()
            same = rows(out) == whole
            equal += same
            print(f"| {number} | {after:.1f} | {then} | {len(rows(out))} | {same} |", flush=True)
        print(f"\nEqual, bit for bit but for the clock: {equal} of {options.kills}.")


if __name__ == "__main__":
    main()
