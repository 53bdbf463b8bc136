"""scikit-learn's own checks on both estimators, for every family (a quarter of an hour)."""

import argparse
import sys
import warnings

import jax
from sklearn.utils.estimator_checks import check_estimator

from mixvi.estimators import MVIClassifier, MVIRegressor

# Weighted rows against repeated ones, to 1e-7, on a table that the basis interpolates: equal to
# about 1e-4 where a search of a hundred steps lies between them.
EXCUSED = {"check_sample_weight_equivalence_on_dense_data": "equal to 1e-4"}
FAMILIES = ("laplace", "mu", "eig", "lr", "full", "diag", "auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    families, failures = parser.parse_args().families, 0
    print("| estimator | family | passed | skipped | excused | failed |")
    print("|---|---|---|---|---|---|")
    for family in families:
        for kind in (MVIClassifier, MVIRegressor):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = check_estimator(
                    kind(family, n_basis=15),
                    on_skip=None,
                    on_fail=None,
                    expected_failed_checks=EXCUSED,
                )
            status = [result["status"] for result in results]
            failed = [result["check_name"] for result in results if result["status"] == "failed"]
            failures += len(failed)
            counts = " | ".join(str(status.count(word)) for word in ("passed", "skipped", "xfail"))
            print(f"| {kind.__name__} | {family} | {counts} | {failed or 0} |", flush=True)
            jax.clear_caches()
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
