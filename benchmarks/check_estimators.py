"""scikit-learn's own checks on both estimators, for every family (a quarter of an hour)."""

import sys
import warnings

import jax
from sklearn.utils.estimator_checks import check_estimator

from mixvi.estimators import MVIClassifier, MVIRegressor


def main() -> None:
    failures = 0
    print("| estimator | family | passed | skipped | failed |\n|---|---|---|---|---|")
    for family in ("laplace", "mu", "eig", "lr", "full", "diag"):
        for kind in (MVIClassifier, MVIRegressor):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = check_estimator(kind(family, n_basis=15), on_skip=None, on_fail=None)
            status = [result["status"] for result in results]
            failed = [result["check_name"] for result in results if result["status"] == "failed"]
            failures += len(failed)
            counts = [status.count(word) for word in ("passed", "skipped")]
            print(
                f"| {kind.__name__} | {family} | {counts[0]} | {counts[1]} | {failed or 0} |",
                flush=True,
            )
            jax.clear_caches()
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
