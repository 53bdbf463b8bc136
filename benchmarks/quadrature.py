"""Quadrature of one observation against adaptive integration; draws tend to it; its time."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, special

import fresh
import mixvi
from mixvi._approximate._climb import Anchor, FamilyBound, nearest
from mixvi._approximate._laplace import eigen_root, laplace
from mixvi._density._protocol import Points
from mixvi._fit._enough import MOST_NODES, NODES_TOL
from problems import interleaved, machine, synthetic

FUNCTIONS = {"logistic": special.log_expit, "Cauchy": lambda eta: -np.log1p(eta**2)}
WIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


def adaptive(function, mean, sd):
    def integrand(z):
        return function(mean + sd * z) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    bends = np.clip((np.array([-20, -5, -1, 0, 1, 5, 20]) - mean) / sd, -9, 9)
    options = {"points": np.unique(bends), "limit": 2000, "epsabs": 1e-13, "epsrel": 1e-13}
    return integrate.quad(integrand, -9, 9, **options)[0]


def gauss_hermite(function, mean, sd, n=32):
    z, w = np.polynomial.hermite_e.hermegauss(n)
    return w @ function(mean + sd * z) / w.sum()


def accuracy() -> None:
    print("### Largest error for one observation, over means 0 to 6 sd\n")
    print("| likelihood | sd (sd / gamma) | nodes taken | error | Gauss-Hermite, 32 nodes |")
    print("|---|---|---|---|---|")
    for name, function in FUNCTIONS.items():
        for sd in WIDTHS:
            means = np.unique(np.r_[np.linspace(0, 6, 13) * sd, 0.3, 1.0, 3.0])
            exact = np.array([adaptive(function, mean, sd) for mean in means])

            def by(rule, function=function, means=means, sd=sd):
                nodes = rule.make(np.dtype(np.float64))
                return np.array([nodes.weights @ function(m + sd * nodes.z) for m in means])

            def error(rule, by=by):
                return float(np.abs(by(rule) - by(rule.doubled())).max())

            rule = mixvi.Quadrature(32)
            while error(rule) > NODES_TOL and rule.n < MOST_NODES:
                rule = rule.doubled()
            if error(rule) > NODES_TOL:
                print(f"| {name} | {sd} | draws | - | - |")
                continue
            plain = np.array([gauss_hermite(function, mean, sd) for mean in means])
            ours, theirs = (np.abs(values - exact).max() for values in (by(rule), plain))
            print(f"| {name} | {sd} | {rule.n} | {ours:.1e} | {theirs:.1e} |")


def logistic_model(x, sign, alpha):
    return mixvi.LinearPredictor(x, lambda eta: jax.nn.log_sigmoid(jnp.asarray(sign) * eta), alpha)


def convergence() -> None:
    x, sign, _ = synthetic(100, 11)
    model = logistic_model(x, sign, 1.0)
    print("\n### The bound over S draws, minus the bound by quadrature, nats (N = 100, D = 11)\n")
    print("| family | draws | S = 100 | S = 1,000 | S = 10,000 |\n|---|---|---|---|---|")
    for family in ("mu", "eig", "full"):
        exact = mixvi.fit(model, np.zeros(11), family=family, diagnostics=False).elbo_fixed
        for kind in (mixvi.IID, mixvi.Matched):
            gaps = [
                mixvi.fit(
                    model, np.zeros(11), family=family, draws=kind(n), diagnostics=False
                ).elbo_fixed
                - exact
                for n in (100, 1000, 10_000)
            ]
            cells = " | ".join(f"{gap:+.5f}" for gap in gaps)
            print(f"| {family} | {kind.__name__} | {cells} |")


def times() -> None:
    n, dim = 400, 31
    x, sign, alpha = synthetic(n, dim)
    print(f"\n### One value and gradient, N = {n}, D = {dim}, ms (median of 100, interleaved)\n")
    print(
        "| family | 1000 draws | 32 nodes | ratio | 128 nodes | ratio |\n|---|---|---|---|---|---|"
    )
    # Not the counted one, which remembers its last answer.
    density = fresh.density(logistic_model(x, sign, alpha), np.zeros(dim)).inner
    found = laplace(density, np.zeros(dim))
    anchor = Anchor(found.mode, eigen_root(found.root), found.log_evidence)
    rules = {
        "draws": Points(mixvi.Matched(1000).make(0, dim), paired=True),
        "32": mixvi.Quadrature(32).make(np.dtype(np.float64)),
        "128": mixvi.Quadrature(128).make(np.dtype(np.float64)),
    }
    for family in (mixvi.MeanOnly(), mixvi.EigenScale(), mixvi.LowRank(), mixvi.FullRank()):
        params = nearest(anchor, family, anchor.centre, anchor.root)
        calls = {
            name: functools.partial(FamilyBound(density, anchor, family, rule), params)
            for name, rule in rules.items()
        }
        ms = {name: 1e3 * value for name, value in interleaved(calls, 100).items()}
        print(
            f"| {family.name} | {ms['draws']:.2f} | {ms['32']:.3f} | "
            f"{ms['draws'] / ms['32']:.0f} | {ms['128']:.3f} | {ms['draws'] / ms['128']:.0f} |"
        )


if __name__ == "__main__":
    print(f"{machine()}\n")
    accuracy()
    convergence()
    times()
