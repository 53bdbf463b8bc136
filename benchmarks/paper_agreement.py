"""How far the rows of two results folders agree, fit by fit: two machines, or two versions.

python benchmarks/paper_agreement.py ONE OTHER
"""

import argparse
from pathlib import Path

import numpy as np

from mixvi.paper import _reading

FIELDS = ("elbo_fixed", "lpd", "pointwise", "error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    options = parser.parse_args()
    one, other = (_reading.read(folder) for folder in (options.one, options.other))
    for rows in (one, other):
        devices = {(run["device"], run["versions"]["jax"]) for run in rows.runs}
        print("; ".join(f"{device}, jax {version}" for device, version in sorted(devices)))
    print("\nDifferences of the fits that both have: median, 95% and largest.\n")
    print(f"| set, method | fits | {' | '.join(FIELDS)} |\n|---|---|{'---|' * len(FIELDS)}")
    shared = sorted(set(one.fits) & set(other.fits))
    for key in shared:
        splits = sorted(set(one.fits[key]) & set(other.fits[key]))
        entries = []
        for field in FIELDS:
            left, right = (rows.column(key, field) for rows in (one, other))
            both = [split for split in splits if split in left and split in right]
            gaps = np.array([abs(left[split] - right[split]) for split in both])
            entries.append(
                f"{np.median(gaps):.1e}, {np.percentile(gaps, 95):.1e}, {gaps.max():.1e}"
                if len(gaps)
                else "–"
            )
        print(f"| {key[0]} {key[2]}, {key[3]} | {len(splits)} | {' | '.join(entries)} |")


if __name__ == "__main__":
    main()
