"""Made-up results folders, as the paper's experiments would leave them."""

import json

import numpy as np

from reproduction.experiments import METHODS, printed
from reproduction.rows import read

ALL = (*METHODS, "full")
N_TEST = {"banana": 4900, "heart": 100, "iris": 45, "cauchy": 1000}


def made_up(protocol, table, name, n_splits, methods=ALL, seed=0, gain=0.02):
    """Rows near the printed numbers: hard splits are hard for all methods."""
    rng = np.random.default_rng([seed, *name.encode()])
    per_item = table == "cauchy"
    n_test = N_TEST.get(name, 200)
    metric = "mse" if per_item else "error"
    hard = rng.standard_normal(n_splits)
    rows = []
    for method in methods:
        known = method if method != "full" else "lr"
        lpd, error = (printed().value[table, name, one, known] for one in ("lpd", metric))
        for split in range(n_splits):
            noise = 0.08 * hard[split] + 0.01 * rng.standard_normal()
            score = lpd + abs(lpd) * (gain + noise)
            row = {
                "protocol": protocol, "experiment": table, "set": name, "split": split,
                "method": method, "run": "1f3a", "failed": None, "lpd": score,
                "pointwise": score + 0.03 * abs(lpd), "error": error * (0.98 - noise),
                "error_draws": error * (1.02 - noise), "elbo": 1.4 * score, "elbo_se": 0.1,
                "elbo_fixed": 1.4 * score + 0.05, "gap": 0.05, "khat": 0.3 + 0.1 * rng.random(),
                "laplace_evidence": 1.4 * score, "converged": bool(rng.random() < 0.97),
                "n_passes": 30, "n_basis": 20, "n_train": 400, "n_test": n_test,
                "hyper": {"log_r": 0.3, "log_alpha": -1.0}, "unknown": [1, 2],
                "seconds": {"fit": 0.02, "evaluate": 0.01},
            }  # fmt: skip
            if split < 2:
                row["trend"] = {"1000": score * 1.02, "10000": score, "100000": score * 0.99}
            if method == "diag":
                better = {"lpd_best_test": score * 0.99, "error_best_test": row["error"] * 0.97}
                row["diag"] = {"start": "laplace", **better}
            if per_item and split == 0 and method in ("mu", "eig"):
                x = np.linspace(-10, 10, 50)
                mean = 0.3 * x * np.sin(0.7 * x) - 0.03 * x**2 + 0.05
                curve = {"x": x, "mean": mean, "sd": np.full(50, 0.2)}
                row["curve"] = {part: values.tolist() for part, values in curve.items()}
            rows.append(row)
    return rows


def two_dimensional(protocol):
    rows = []
    for method, kl in zip(ALL, (0.56, 0.32, 0.25, 0.21, 0.4, 0.2), strict=True):
        mean, cov = [-0.4, -0.6], [[1.5, 0.2], [0.2, 1.0]]
        rows.append({"protocol": protocol, "experiment": "toy", "set": "mixture", "split": 0,
                     "method": method, "run": "1f3a", "failed": None, "kl": kl, "elbo": -kl,
                     "khat": 0.4, "mean": mean, "cov": cov})  # fmt: skip
    return rows


JOBS = [
    {"protocol": "best", "experiment": "binary", "set": "heart", "method": method,
     "splits": [0, 12], "n_splits": 12, "backend": backend,
     "seconds": {"prepare": 0.1, "screen": 1.0, "compile": 5.0, "fit": 2.0, "evaluate": 0.5}}
    for method in ("screening", "mu", "lr") for backend in ("cpu", "gpu")
]  # fmt: skip
RUNS = [
    {"run": "1f3a", "settings": {"protocol": {"name": "best"}, "seed": 0, "n_draws": None},
     "versions": {"jax": "0.10"}, "device": "a processor", "n_cores": 2, "backend": "cpu",
     "started": "2020-01-01T00:00:00", "command": "python -m reproduction all"}
]  # fmt: skip


def left(folder, rows, jobs=(), runs=()):
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in (("rows", rows), ("jobs", jobs), ("runs", runs)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def rows_of(folder, rows, **others):
    """As the report reads them back."""
    return read(left(folder, rows, **others))
