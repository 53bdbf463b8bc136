"""Evaluations to convergence: the paper's coordinates against Laplace-whitened ones.

The same families, draws (1000 iid, as in the paper) and searches; hyperparameters fixed where a
grid search finds the highest Laplace evidence. Converged means: the bound is within 1e-4 nat of the
best value that either search ever reaches in those coordinates (the two coordinate systems turn the
same draws differently, so their optima differ by a little noise). A pass of gradients over all
draws counts as one evaluation (a Hessian product of SCG is a difference, one more pass), and so
does a pass of values alone. "whitened" starts at the Laplace Gaussian as the paper's run does;
"fit" also climbs through the poorer families, which is what buys the guarantee that a richer family
never ends below a poorer one.
"""

import math

import numpy as np

import fresh
import mixvi
from mixvi._approximate import _climb, _search
from mixvi._approximate._climb import Anchor, FamilyBound
from mixvi._approximate._families import NAMES
from mixvi._approximate._laplace import eigen_root, laplace
from mixvi._approximate._search import Stop, quasi_newton, scaled_conjugate_gradients
from mixvi._density._counted import Counted
from mixvi._density._protocol import Points
from problems import logistic, machine, raetsch

WITHIN, MOST = 1e-4, 5000
STOP = Stop(tol=1e-7, max_steps=MOST)
OPTIMISERS = ("scg", "bfgs")


class Trace:
    """What a search saw, in order: (evaluations so far, bound)."""

    def __init__(self, density: Counted, rule: Points):
        self.density, self.rule = density, rule
        self.events: list[tuple[float, float]] = []
        self.before = self.asked()

    def asked(self) -> float:
        return self.density.n_passes + self.density.n_values / len(self.rule.z)

    def saw(self, bound: float) -> None:
        self.events.append((self.asked() - self.before, bound))

    @property
    def best(self) -> float:
        return max(bound for _, bound in self.events if math.isfinite(bound))

    def evaluations(self, best: float) -> int | None:
        """Up to the first bound within reach of the best."""
        return next((round(n) for n, bound in self.events if bound >= best - WITHIN), None)


class PaperBound:
    """The bound over mu and r or U, V themselves: `w = mu + C z` with `C` the Cholesky factor of
    the Laplace covariance (mu), its axes times r (eig), or the factor plus U V^T (lr)."""

    def __init__(self, family: str, density: Counted, cov: np.ndarray, rule: Points):
        self.family, self.density, self.rule, self.dim = family, density, rule, len(cov)
        self.cholesky = np.linalg.cholesky(cov)
        self.variances, self.axes = np.linalg.eigh(cov)
        self.trace = Trace(density, rule)

    def start(self, mode: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(0)
        of_root = {
            "mu": np.zeros(0),
            "eig": np.sqrt(self.variances),
            "lr": 0.1 * rng.standard_normal(2 * self.dim),
        }
        return np.concatenate([mode, of_root[self.family]])

    def root(self, phi: np.ndarray) -> np.ndarray:
        if self.family == "mu":
            return self.cholesky
        if self.family == "eig":
            return self.axes * phi
        return self.cholesky + np.outer(phi[: self.dim], phi[self.dim :])

    def pull_back(self, of_root: np.ndarray, phi: np.ndarray) -> np.ndarray:
        if self.family == "mu":
            return np.zeros(0)
        if self.family == "eig":
            return (self.axes * of_root).sum(0)
        return np.concatenate([of_root @ phi[self.dim :], phi[: self.dim] @ of_root])

    def __call__(self, params: np.ndarray) -> tuple[float, np.ndarray]:
        mean, phi = params[: self.dim], params[self.dim :]
        root = self.root(phi)
        expected = self.density.expect(mean, root, self.rule)
        entropy = np.linalg.slogdet(root)[1] + 0.5 * self.dim * (1 + math.log(2 * math.pi))
        value = expected.value + float(entropy)
        of_phi = self.pull_back(expected.cross + np.linalg.inv(root).T, phi)
        self.trace.saw(value)
        return value, np.concatenate([expected.gradient, of_phi])


def paper_coordinates(
    family: str, density: Counted, anchor: Anchor, rule: Points, optimiser: str
) -> Trace:
    """From the paper's starts, with steps of any length: these have no unit."""
    bound = PaperBound(family, density, anchor.root @ anchor.root.T, rule)
    start, longest, rounding = bound.start(anchor.centre), _search.LONGEST_STEP, density.resolution
    _search.LONGEST_STEP = math.inf
    try:
        if optimiser == "scg":
            scaled_conjugate_gradients(bound, start, STOP, rounding)
        else:
            quasi_newton(bound, start, STOP, rounding)
    finally:
        _search.LONGEST_STEP = longest
    return bound.trace


def whitened(family: str, density: Counted, anchor: Anchor, rule: Points, optimiser: str) -> Trace:
    """From the Laplace Gaussian, without the poorer families."""
    return _whitened(family, density, anchor, rule, optimiser, climbing=False)


def fit(family: str, density: Counted, anchor: Anchor, rule: Points, optimiser: str) -> Trace:
    """What `mixvi.fit` does: the whole ladder."""
    return _whitened(family, density, anchor, rule, optimiser, climbing=True)


def _whitened(
    family: str, density: Counted, anchor: Anchor, rule: Points, optimiser: str, climbing: bool
) -> Trace:
    trace = Trace(density, rule)

    class Watched(FamilyBound):
        def __call__(self, params):
            value, gradient = super().__call__(params)
            trace.saw(value)
            return value, gradient

        def value(self, params):
            value = super().value(params)
            trace.saw(value)
            return value

    _climb.FamilyBound = Watched
    try:
        _climb.climb(density, anchor, NAMES[family](), rule, STOP, optimiser, climbing)
    finally:
        _climb.FamilyBound = FamilyBound
    return trace


WAYS = (paper_coordinates, whitened, fit)


def cells(family: str, data: tuple) -> list[str]:
    density = fresh.density(logistic, np.zeros(31), data)
    found = laplace(density, np.zeros(31))
    anchor = Anchor(found.mode, eigen_root(found.root), found.log_evidence)
    rule = Points(mixvi.IID(1000).make(0, 31), paired=False)
    traces = {
        (o, how): how(family, density, anchor, rule, o) for o in OPTIMISERS for how in WAYS
    }  # fmt: skip
    row = []
    for o in OPTIMISERS:
        counts = []
        for how in WAYS:
            best = max(traces[other, how].best for other in OPTIMISERS)
            counts.append(traces[o, how].evaluations(best))
        there, here, _ = counts
        ratio = "-" if here is None else f"> {MOST / here:.0f}"
        if there is not None and here is not None:
            ratio = f"{there / here:.1f}"
        shown = [f"> {MOST}" if count is None else str(count) for count in counts]
        row += [shown[0], shown[1], ratio, shown[2]]
    return row


def best_hyperparameters(name: str):
    """The basis width and prior precision with the highest Laplace evidence on a grid."""
    grid = [
        raetsch(name, alpha=alpha, width=width)
        for width in (0.5, 1.0, 2.0)
        for alpha in np.geomspace(1e-3, 10, 9)
    ]
    posts = [mixvi.laplace(logistic, np.zeros(31), data=one, diagnostics=False) for one in grid]
    return grid[int(np.nanargmax([post.log_evidence for post in posts]))]


def main() -> None:
    print(f"{machine()}; evaluations until within {WITHIN} nat of the best\n")
    titles = [f"{o} {h}" for o in ("SCG", "BFGS") for h in ("paper", "whitened", "ratio", "fit")]
    print("| problem | condition | family | " + " | ".join(titles) + " |")
    print("|---|---|---|" + "---|" * len(titles))
    for name in ("banana", "heart", "thyroid"):
        data = best_hyperparameters(name)
        post = mixvi.laplace(logistic, np.zeros(31), data=data, diagnostics=False)
        condition = np.linalg.cond(post.cov)
        for family in ("mu", "eig", "lr"):
            row = " | ".join(cells(family, data))
            print(f"| {name} | {condition:.1e} | {family} | {row} |", flush=True)


if __name__ == "__main__":
    main()
