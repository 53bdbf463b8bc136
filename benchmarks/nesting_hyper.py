"""The paper's Cauchy regression, hyperparameters learnt with each family: bounds must not cross.

100 data sets of 50 points, 20 radial basis functions, the same 1000 matched draws for all families,
and by quadrature too. Plain starts are those without the poorer families and without scalings.
"""

import argparse
import warnings

import jax
import numpy as np

import mixvi
from evidence import curve
from mixvi import models
from mixvi._approximate import _climb, _families
from problems import machine

FAMILIES = ("mu", "eig", "lr", "full")
PAIRS = (("mu", "eig"), ("eig", "full"), ("mu", "lr"))


def problems(n: int):
    model = models.Model(models.RBF(20), models.Cauchy())
    data = []
    for seed in range(n):
        x, y = curve(50, seed)
        x, y = (x - x.mean(0)) / x.std(0), (y - np.median(y)) / y.std()
        shared = model.basis.fit_shared(x, 0)
        data.append(model.data(model.basis.rows(x, shared), shared, y))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *data)
    return model, stacked, model.init(shared), model.hyper(shared)


def bounds(n: int, draws) -> dict[str, np.ndarray]:
    model, data, init, hyper = problems(n)
    out = {}
    for family in FAMILIES:
        posts = mixvi.fit_many(
            model.log_density,
            init,
            family=family,
            data=data,
            hyper=hyper,
            draws=draws,
            diagnostics=False,
        )
        out[family] = np.array([post.elbo_fixed for post in posts])
        out[family + " converged"] = np.array([post.converged for post in posts])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100)
    n = parser.parse_args().sets
    warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
    ours = {"1000 matched draws": bounds(n, 1000), "quadrature": bounds(n, mixvi.Quadrature(128))}
    _climb._rungs = lambda family: [family]
    _families.SCALINGS = (1.0,)
    plain = bounds(n, 1000)
    print(f"{machine()}; {n} data sets\n")
    print("| pair | " + " | ".join(f"violated, {name}" for name in ours), end="")
    print(" | violated, plain starts (draws) | worst loss of plain starts, nats |")
    print("|---|---|---|---|---|")
    for poorer, richer in PAIRS:
        broken = [(b[richer] < b[poorer] - 1e-6).sum() for b in (*ours.values(), plain)]
        lost = np.nanmax(ours["1000 matched draws"][richer] - plain[richer])
        print(f"| {poorer} in {richer} | " + " | ".join(map(str, broken)) + f" | {lost:.2f} |")
    for name, found in ours.items():
        medians = ", ".join(f"{family} {np.nanmedian(found[family]):.2f}" for family in FAMILIES)
        converged = sum(int(found[f"{family} converged"].sum()) for family in FAMILIES)
        print(f"\n{name}: median bound {medians}; converged {converged} of {4 * n}.")


if __name__ == "__main__":
    main()
