"""Peak memory: a fit with N=100,000, D=50, S=1000, and a Hessian at D=3,000. One process each."""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

import mixvi
from problems import logistic, synthetic

CASES = ("fit N=100,000 D=50 S=1000", "laplace D=3,000 N=2,000", "import only")


def run(case: str) -> None:
    began = time.perf_counter()
    if case == CASES[0]:
        post = mixvi.fit(
            logistic, np.zeros(50), family="eig", data=synthetic(100_000, 50), draws=1000
        )
        print(f"{post.status} {post.verdict[:20]}", file=sys.stderr)
    elif case == CASES[1]:
        post = mixvi.laplace(
            logistic, np.zeros(3000), data=synthetic(2000, 3000), diagnostics=False
        )
        print(post.status, file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"| {case} | {peak:.2f} | {time.perf_counter() - began:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES)
    case = parser.parse_args().case
    if case is not None:
        run(case)
        return
    print(
        "| case | peak of the process, GiB | seconds with compilation |\n|---|---|---|", flush=True
    )
    for name in CASES:
        subprocess.run([sys.executable, __file__, "--case", name], check=True)


if __name__ == "__main__":
    main()
