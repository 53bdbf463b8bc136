"""What models know in closed form, against slower ways to the same numbers; and what it costs.

The evidence's gradient against central differences, quadrature against SciPy's adaptive one, the
expectation over a softmax against a million draws, weights against repeated rows.
"""

import argparse
import math
import time
from collections.abc import Iterator

import numpy as np
from scipy import integrate

import tables
from mixvi import models
from mixvi._approximate._evidence import Evidence, evidence_gradient, tuned_laplace
from mixvi._approximate._laplace import laplace
from mixvi._arrays._draws import Quadrature
from mixvi.estimators import MVIClassifier, MVIRegressor
from mixvi.models._loo import equal_rows

FLOAT64 = np.dtype(np.float64)
STEP, NODES = 2e-4, 32
BASES = {
    "linear": models.Linear(),
    "rbf": models.RBF(10),
    "rbf, widths": models.RBF(10, per_feature=True),
    "GP": models.GaussianProcess("rbf"),
    "GP, Matern 3/2": models.GaussianProcess("matern32"),
    "GP, Matern 5/2, 15 points": models.GaussianProcess("matern52", 15),
}
LIKELIHOODS = {
    "Bernoulli": models.Bernoulli(),
    "softmax": models.Softmax(3),
    "Gaussian": models.Gaussian(),
    "Student-t, df learnt": models.StudentT(None),
    "Cauchy": models.Cauchy(),
    "Poisson": models.Poisson(),
}


def problem(likelihood: models.Likelihood, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Rows with targets of the right kind."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 3))
    eta = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]
    if isinstance(likelihood, models.Bernoulli):
        return x, (rng.random(n) < 1 / (1 + np.exp(-2 * eta))).astype(float)
    if isinstance(likelihood, models.Softmax):
        return x, np.digitize(eta + 0.4 * rng.standard_normal(n), [-0.5, 0.5]).astype(float)
    if isinstance(likelihood, models.Poisson):
        return x, rng.poisson(np.exp(eta)).astype(float)
    return x, eta + 0.3 * rng.standard_t(4, n)


def table(title: str, *head: str) -> None:
    print(f"\n### {title}\n\n| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)


# --- the gradient of the evidence -----------------------------------------------------------------


def gradients() -> None:
    table("The evidence's gradient", "basis", *LIKELIHOODS)
    for called, basis in BASES.items():
        cells = [f"{gradient_error(basis, one):.0e}" for one in LIKELIHOODS.values()]
        print(f"| {called} | " + " | ".join(cells) + " |", flush=True)
    print("\nLargest difference from central differences (five points), relative to the largest")
    print("entry of the gradient; after four steps to higher evidence.")


def gradient_error(basis: models.Basis, likelihood: models.Likelihood) -> float:
    density = models.Model(basis, likelihood).density(*problem(likelihood))
    near = density.init.ravel()
    _, at = tuned_laplace(density, near, density.theta, "raise", 4, look_beyond=False)
    # Off the summit, where the gradient is not zero.
    theta = at.theta + 0.1
    here = density.at(theta)
    found = laplace(here, near)
    gradient, _ = evidence_gradient(here.evidence_slopes(found.mode, found.root), found.root)
    numeric = []
    for move in STEP * np.eye(len(theta)):
        values = [
            laplace(density.at(theta + k * move), found.mode).log_evidence for k in (-2, -1, 1, 2)
        ]
        numeric.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * STEP))
    return float(np.abs(gradient - numeric).max() / np.abs(numeric).max())


# --- expectations ---------------------------------------------------------------------------------


def adaptive(function, mean: float, sd: float, bends: np.ndarray) -> float:
    """`E function(eta)` for `eta ~ N(mean, sd^2)`."""

    def integrand(z: float) -> float:
        return function(mean + sd * z) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    points = np.unique(np.clip((bends - mean) / sd, -9, 9))
    return integrate.quad(integrand, -9, 9, points=points, limit=1000, epsabs=1e-13, epsrel=1e-13)[
        0
    ]


def quadratures() -> None:
    head = "sd of the predictor", f"E log p, {NODES} nodes", "128 nodes", "log E p"
    table("One predictor: largest relative error over 9 means", "likelihood", *head)
    for name in ("Bernoulli", "Student-t, df learnt", "Cauchy", "Poisson"):
        likelihood = LIKELIHOODS[name]
        for sd in (0.1, 0.5, 2.0):
            cells = [f"{error:.0e}" for error in quadrature_errors(likelihood, sd)]
            print(f"| {name} | {sd} | " + " | ".join(cells) + " |", flush=True)
    print("\nOf E log p the error is relative to the larger of it and one. Of heavy tails the")
    print("noise has scale 0.3.")


def quadrature_errors(likelihood: models.Likelihood, sd: float) -> Iterator[float]:
    hyper = {"log_sigma": math.log(0.3), "log_gamma": math.log(0.3), "log_df": math.log(4.0)}
    y, means = 1.0, np.linspace(-3, 3, 9)
    bends = np.array([-1.0, 0.0, 0.4, 0.7, 0.9, 1.0, 1.1, 1.3, 1.6, 3.0])

    def log_prob(eta: float) -> float:
        return float(likelihood.log_prob(np.float64(y), np.float64(eta), hyper))

    exact = np.array([adaptive(log_prob, mean, sd, bends) for mean in means])
    for n in (NODES, 128):
        rule = Quadrature(n).make(FLOAT64)
        eta = means[:, None] + sd * rule.z
        found = likelihood.log_prob(np.full((9, 1), y), eta, hyper) @ rule.weights
        yield float(np.max(np.abs(found - exact) / np.maximum(np.abs(exact), 1)))
    mass = [adaptive(lambda eta: math.exp(log_prob(eta)), mean, sd, bends) for mean in means]
    found = likelihood.predictive_log_prob(np.full(9, y), means, np.full(9, sd), hyper)
    yield float(np.max(np.abs(np.exp(found) / mass - 1)))


def softmax(n_draws: int) -> None:
    head = "nodes", "E log p, sum over rows", "by draws", "relative error", "in its standard errors"
    table(f"Softmax: against {n_draws:,} draws", *head)
    likelihood = models.Softmax(3)
    density = models.Model(models.RBF(10), likelihood).density(*problem(likelihood))
    near = density.init.ravel()
    found, at = tuned_laplace(density, near, density.theta, "raise", 50, look_beyond=False)
    density, rng = density.at(at.theta), np.random.default_rng(0)
    totals, size = [], 20_000
    for _ in range(max(1, n_draws // size)):
        z = rng.standard_normal((min(size, n_draws), density.dim))
        eta = next(iter(density.blocks())).phi @ density._by_output(
            found.mode + z @ found.root.T
        ).reshape(density.n_weights, -1)
        eta = eta.reshape(density.n_rows, 3, -1)
        totals.append(likelihood.several(density.y, eta, density.hyper, order=0)[0].sum(0))
    total = np.concatenate(totals)
    mean, se = total.mean(), total.std() / math.sqrt(len(total))
    for n in (64, 128, 512, 2048):
        rule = Quadrature(n).make(FLOAT64, 3)
        value = density.expected_by_row(found.mode, found.root, rule).sum()
        away = value - mean
        print(f"| {n} | {value:.4f} | {mean:.4f} | {abs(away / mean):.0e} | {away / se:+.1f} |")


# --- weights --------------------------------------------------------------------------------------


def weights() -> None:
    head = "value", "gradient", "curvature", "evidence's gradient", "bound", "left out"
    table("Rows of weight two and zero against rows repeated and dropped", "likelihood", *head)
    for name, likelihood in LIKELIHOODS.items():
        cells = [f"{error:.0e}" for error in weight_errors(likelihood)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print("\nLargest relative difference, radial basis functions with the same centres.\n")
    for kind, likelihood in (
        (MVIClassifier, models.Bernoulli()),
        (MVIClassifier, models.Softmax(3)),
        (MVIRegressor, models.StudentT()),
    ):
        x, y = problem(likelihood, 90)
        weight = np.arange(90) % 3
        many = np.repeat(np.arange(90), weight)
        one = kind().fit(x, y, sample_weight=weight)
        other = kind().fit(x[many], y[many])
        by = [_said(model, x) for model in (one, other)]
        print(
            f"{kind.__name__}() with {likelihood.name}: predictions differ by at most "
            f"{np.abs(by[0] - by[1]).max():.0e}, left out by "
            f"{abs(one.loo_ / other.loo_ - 1):.0e} (relative).",
            flush=True,
        )


def _said(model, x: np.ndarray) -> np.ndarray:
    return model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x)


def weight_errors(likelihood: models.Likelihood) -> list[float]:
    x, y = problem(likelihood)
    weight = (np.arange(len(y)) % 3).astype(float)
    many = np.repeat(np.arange(len(y)), weight.astype(int))
    model = models.Model(models.RBF(10), likelihood)
    once = model.density(x, y, weight=weight)
    twice = model.density(x[many], y[many], shared=once.shared)
    found = laplace(twice, once.init.ravel())
    point = found.mode + 0.1
    rule = Quadrature(64).make(FLOAT64, likelihood.n_outputs)
    answers = []
    for density, data in ((once, (x, y)), (twice, (x[many], y[many]))):
        value, gradient, curvature = density.curvature(point)
        slopes = density.evidence_slopes(found.mode, found.root)
        bound = density.expect(point, found.root, rule)
        same = equal_rows(*data)
        left = models.leave_one_out(density, found.mode, found.root, True, same).total
        slope = evidence_gradient(slopes, found.root)[0]
        answers.append([value, gradient, curvature, slope, bound.cross, left])
    return [
        float(np.abs(np.subtract(a, b)).max() / np.abs(b).max())
        for a, b in zip(*answers, strict=True)
    ]


# --- times ----------------------------------------------------------------------------------------


def times(repeats: int) -> None:
    head = "model", "N", "D", "one evidence with gradient, ms", "whole search, ms", "evidences"
    title = f"Time of the evidence (medians of {repeats}; of the search {max(3, repeats // 10)})"
    table(title, *head)
    x, y = tables.whole("breast_cancer")
    taken = np.random.default_rng(0).permutation(len(y))[:426]
    x, y = tables.standardised(x[taken]), y[taken].astype(float)
    cases = {"logistic, 30 rbf": models.RBF(30), "logistic, linear": models.Linear()}
    cases["logistic, 30 rbf, widths"] = models.RBF(30, per_feature=True)
    for name, basis in cases.items():
        density = models.Model(basis, models.Bernoulli()).density(x, y)
        start, theta = density.init.ravel(), density.theta
        rng = np.random.default_rng(0)
        evidence = Evidence(density, start, "raise")
        evidence(theta)
        each, whole, passes = [], [], 0
        for _ in range(repeats):  # a step away from the last, as a search makes them
            there = theta + 0.1 * rng.standard_normal(len(theta))
            began = time.perf_counter()
            evidence(there)
            each.append(time.perf_counter() - began)
        for _ in range(max(3, repeats // 10)):
            began = time.perf_counter()
            _, at = tuned_laplace(density, start, theta, "raise", 200, look_beyond=False)
            whole.append(time.perf_counter() - began)
            passes = at.n_passes
        ms = 1e3 * np.median(each), 1e3 * np.median(whole)
        print(f"| {name} | {len(y)} | {density.dim} | {ms[0]:.2f} | {ms[1]:.1f} | {passes} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    print(tables.machine())
    gradients()
    quadratures()
    softmax(options.draws)
    weights()
    times(options.repeats)


if __name__ == "__main__":
    main()
