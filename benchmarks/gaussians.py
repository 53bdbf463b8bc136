"""Gaussian targets with known answers: the largest error of mean, covariance and log evidence."""

import numpy as np

import mixvi

FAMILIES = ("laplace", "mu", "eig", "lr", "full")
DIMENSIONS, CONDITIONS = (1, 2, 20, 200), (1.0, 1e4, 1e8)


def target(dim: int, condition: float, diagonal: bool):
    rng = np.random.default_rng(dim)
    q = np.eye(dim) if diagonal else np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    values = np.geomspace(1, condition, dim) if dim > 1 else np.array([condition])
    mean = 5 * np.sqrt((q**2) @ values) * rng.standard_normal(dim)
    precision = (q / values) @ q.T
    return mean, 0.5 * (precision + precision.T), q * np.sqrt(values)


def log_density(w, data):
    mean, precision = data
    return -0.5 * (w - mean) @ precision @ (w - mean)


def error(family, dim: int, condition: float, diagonal: bool, tol: float) -> float:
    """In posterior standard deviations, relative variances, and nats relative to the evidence."""
    mean, precision, root = target(dim, condition, diagonal)
    post = mixvi.fit(log_density, np.zeros(dim), family=family, data=(mean, precision), tol=tol)
    half = np.linalg.solve(root, post.cov)
    log_z = 0.5 * dim * np.log(2 * np.pi) + np.log(np.linalg.norm(root, axis=0)).sum()
    return max(
        np.abs(np.linalg.solve(root, post.flat_mean - mean)).max(),
        np.abs(np.linalg.solve(root, half.T) - np.eye(dim)).max(),
        abs(post.log_evidence - log_z) / max(1.0, abs(log_z)),
    )


def main() -> None:
    cases = [(dim, condition) for dim in DIMENSIONS for condition in CONDITIONS]
    print("Largest error\n")
    print("| family | " + " | ".join(f"D={d}, cond {c:.0e}" for d, c in cases) + " |")
    print("|---|" + "---|" * len(cases))
    rows = [(name, name, False, 1e-5) for name in FAMILIES]
    rows += [("diag", "diag", True, 1e-5)]
    small = mixvi.MeanField(start="small")
    rows += [(f"diag from sd 1e-2, tol={tol:.0e}", small, True, tol) for tol in (1e-5, 1e-7)]
    for name, family, diagonal, tol in rows:
        cells = [f"{error(family, *case, diagonal, tol):.0e}" for case in cases]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
