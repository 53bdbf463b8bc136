"""How far the rows of two results folders agree, fit by fit: two machines, or two versions.

PYTHONPATH=. python benchmarks/paper_agreement.py ONE OTHER
"""

import argparse
from pathlib import Path

from reproduction.experiments import KEY
from reproduction.rows import read

FIELDS = ("elbo_fixed", "lpd", "pointwise", "error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    options = parser.parse_args()
    one, other = (read(folder) for folder in (options.one, options.other))
    for rows in (one, other):
        devices = {(run["device"], run["versions"]["jax"]) for run in rows.runs}
        print("; ".join(f"{device}, jax {version}" for device, version in sorted(devices)))
    print("\nDifferences of the fits that both have: median, 95% and largest.\n")
    print(f"| set, method | fits | {' | '.join(FIELDS)} |\n|---|---|{'---|' * len(FIELDS)}")
    left, right = (rows.fits.set_index(list(KEY))[list(FIELDS)] for rows in (one, other))
    differences = (left - right).abs().loc[left.index.intersection(right.index)]
    for (protocol, name, method), gaps in differences.groupby(["protocol", "set", "method"]):
        entries = [
            f"{its.median():.1e}, {its.quantile(0.95):.1e}, {its.max():.1e}"
            if its.notna().any()
            else "–"
            for _, its in gaps.items()
        ]
        print(f"| {protocol} {name}, {method} | {len(gaps)} | {' | '.join(entries)} |")


if __name__ == "__main__":
    main()
