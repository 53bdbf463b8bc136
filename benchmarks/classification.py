"""The estimators on published splits: every method beside the paper's medians and scikit-learn.

Rows are saved as they come (one file, JSON lines); a second run goes on where the first stopped.
`--workers` runs that many sets and methods at once, each in a process of its own.
"""

import argparse
import json
import multiprocessing
import pathlib
import time
import warnings

import numpy as np

from problems import data_set, machine, splits
from reproduction.experiments import printed

BINARY = ("banana", "heart", "thyroid", "titanic", "german")
SEVERAL = ("iris", "wine", "glass")
OURS = ("laplace", "mu", "eig", "lr", "diag", "auto")
PEERS = ("gp", "logistic", "svc")


def ours(method: str, labels):
    import mixvi
    from mixvi.estimators import MVIClassifier

    def make(family):
        return MVIClassifier(family, classes=labels)

    if method != "diag":
        return lambda x, y: make(method).fit(x, y)

    def better_of_two(x, y):
        """Mean field has two starts, as in the paper; here the higher bound wins."""
        both = [make(mixvi.MeanField(start)).fit(x, y) for start in ("laplace", "small")]
        return max(both, key=lambda model: model.posterior_.elbo_fixed)

    return better_of_two


def peer(method: str):
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    def fit(x, y):
        if method == "gp":
            kernel = ConstantKernel(1.0) * RBF(np.sqrt(x.shape[1]))
            model = GaussianProcessClassifier(kernel, random_state=0)
        elif method == "logistic":
            model = LogisticRegression(max_iter=1000)
        else:
            gammas = [g / x.shape[1] for g in (0.1, 0.3, 1.0, 3.0)]
            grid = {"C": [0.3, 1.0, 10.0, 100.0], "gamma": gammas}
            model = CalibratedClassifierCV(GridSearchCV(SVC(), grid, cv=3), cv=3)
        return make_pipeline(StandardScaler(), model).fit(x, y)

    return fit


def score(name: str, i: int, method: str, split, labels) -> dict:
    from mixvi import metrics

    fit = ours(method, labels) if method in OURS else peer(method)
    began = time.perf_counter()
    model = fit(split.x, split.y)
    seconds = time.perf_counter() - began
    proba = np.zeros((len(split.x_test), len(labels)))
    proba[:, np.searchsorted(labels, model.classes_)] = model.predict_proba(split.x_test)
    y = np.searchsorted(labels, split.y_test)
    row = {
        "set": name,
        "split": i,
        "method": method,
        "seconds": seconds,
        "pointwise": float(np.log(np.maximum(proba[np.arange(len(y)), y], 1e-12)).sum()),
        "error": 100 * metrics.error_rate(y, proba.argmax(1)),
        "ece": metrics.expected_calibration_error(y, proba),
        "n_test": len(y),
    }
    if method in OURS:
        post = model.posterior_
        row["joint"] = float(model.log_predictive_density(split.x_test, split.y_test))
        row["elbo"] = post.log_evidence
        row["converged"] = bool(post.converged)
        row["trust"] = post.verdict.split(":")[0]
    return row


def one_job(job: tuple) -> None:
    name, method, n, rows, done = job
    warnings.simplefilter("ignore")
    labels = np.arange(data_set(name).n_classes)
    for i, split in enumerate(splits(name, n)):
        if (name, i, method) not in done:
            row = score(name, i, method, split, labels)
            with rows.open("a") as file:
                file.write(json.dumps(row) + "\n")


def table(rows: list[dict], sets, n: int) -> None:
    paper = {names[1:]: value for names, value in printed()["value"].items()}

    def median(name, method, what):
        values = [r[what] for r in rows if (r["set"], r["method"]) == (name, method)]
        return float(np.median(values)) if values else np.nan

    print(f"### Medians over the first {n} splits; the paper's, over 100, in brackets\n")
    print(
        "| set | method | joint LPD | (paper) | pointwise LPD | error % | (paper) | ECE | fit, s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in sets:
        for method in (*OURS, *PEERS):
            value = {k: median(name, method, k) for k in ("pointwise", "error", "ece", "seconds")}
            joint = median(name, method, "joint") if method in OURS else np.nan
            lpd, error = (paper.get((name, k, method), np.nan) for k in ("lpd", "error"))
            cells = (
                f"{joint:.2f}",
                f"({lpd:.2f})",
                f"{value['pointwise']:.2f}",
                f"{value['error']:.2f}",
                f"({error:.2f})",
                f"{value['ece']:.3f}",
                f"{value['seconds']:.2f}",
            )
            print(f"| {name} | {method} | " + " | ".join(cells).replace("nan", "-") + " |")
    compared = [
        (name, method) for name in sets for method in OURS if (name, "lpd", method) in paper
    ]
    better = 0
    for name, method in compared:
        theirs = paper[name, "lpd", method]
        better += median(name, method, "joint") >= theirs - max(0.005 * abs(theirs), 0.5)
    print(f"\nJoint LPD no worse than the paper's (0.5% or 0.5 nat): {better} of {len(compared)}.")
    own = [row for row in rows if row["method"] in OURS]
    print(f"Fits: {len(own)}; converged {sum(r['converged'] for r in own)}; verdicts:", end=" ")
    words = [row["trust"] for row in own]
    print(", ".join(f"{word} {words.count(word)}" for word in sorted(set(words))) + ".")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--sets", nargs="*", default=[*BINARY, *SEVERAL])
    parser.add_argument("--methods", nargs="*", default=[*OURS, *PEERS])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rows", type=pathlib.Path, default=pathlib.Path("report/classes.jsonl"))
    options = parser.parse_args()
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    read = lambda: [json.loads(x) for x in options.rows.read_text().splitlines()]  # noqa: E731
    done = {(r["set"], r["split"], r["method"]) for r in read()} if options.rows.exists() else set()
    jobs = [
        (name, method, options.splits, options.rows, done)
        for name in options.sets
        for method in options.methods
    ]
    if options.workers == 1:
        list(map(one_job, jobs))
    else:
        with multiprocessing.get_context("spawn").Pool(options.workers, maxtasksperchild=1) as pool:
            pool.map(one_job, jobs, chunksize=1)
    print(f"{machine()}; {options.workers} processes at once, which the fit times feel\n")
    table([r for r in read() if r["split"] < options.splits], options.sets, options.splits)


if __name__ == "__main__":
    main()
