"""PyMC models through JAX and through PyTensor's own compiler: the first call and a warm one.

    python benchmarks/pymc_backends.py > docs/results/parts/pymc.md

Every measurement is a fresh process, and `fit` of `mixvi.interop.pymc` whole: start, fit, verdict,
draws, deterministics, log likelihoods. "kept" is PyTensor with the folder of code that it compiled
in an earlier process; "anew" with an empty one, as on a machine that has not seen the model.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np

WAYS = ("jax", "pytensor anew", "pytensor kept")


def scale():
    import pymc as pm

    y = np.random.default_rng(0).normal(1.0, 2.0, 50)
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 10), pm.HalfNormal("sigma", 5)
        pm.Normal("y", mu, sigma, observed=y)
    return model


def eight_schools():
    import pymc as pm

    y, sd = [28.0, 8, -3, 7, -1, 1, 18, 12], [15.0, 10, 16, 11, 9, 11, 10, 18]
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 5)
        z = pm.Normal("z", dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, sd, observed=y, dims="school")
    return model


def logistic():
    import pymc as pm

    rng = np.random.default_rng(0)
    x, beta = rng.standard_normal((1000, 20)), rng.standard_normal(20) / 2
    y = (rng.random(1000) < 1 / (1 + np.exp(-x @ beta))).astype(int)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 1, shape=20)
        pm.Bernoulli("y", logit_p=a + pm.math.dot(x, b), observed=y)
    return model


def process():
    """A latent Gaussian process of 60 counts."""
    import pymc as pm
    import pytensor.tensor as pt

    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0, 10, 60))
    y = rng.poisson(np.exp(1 + np.sin(x)))
    with pm.Model() as model:
        width, size = pm.InverseGamma("width", 5, 5), pm.LogNormal("size", 0, 0.5)
        z = pm.Normal("z", shape=60)
        k = size**2 * pm.math.exp(-((x[:, None] - x) ** 2) / (2 * width**2))
        f = pm.Deterministic("f", pt.linalg.cholesky(k + 1e-6 * np.eye(60)) @ z)
        pm.Poisson("y", pm.math.exp(f), observed=y)
    return model


def counties():
    """Slopes and intercepts of 85 groups, 919 rows."""
    import pymc as pm

    rng = np.random.default_rng(1)
    group, x = rng.integers(0, 85, 919), rng.integers(0, 2, 919).astype(float)
    effects = rng.normal([1.5, -0.7], 0.3, (85, 2))[group]
    y = effects[:, 0] + effects[:, 1] * x + 0.7 * rng.standard_normal(919)
    with pm.Model(coords={"county": np.arange(85)}) as model:
        mu, sd = pm.Normal("mu", 0, 5, shape=2), pm.HalfNormal("sd", 1, shape=2)
        a, b = pm.Normal("a", dims="county"), pm.Normal("b", dims="county")
        sigma = pm.HalfNormal("sigma", 1)
        mean = mu[0] + sd[0] * a[group] + (mu[1] + sd[1] * b[group]) * x
        pm.Normal("y", mean, sigma, observed=y)
    return model


MODELS = {one.__name__: one for one in (scale, eight_schools, logistic, process, counties)}


def measured(name: str, backend: str) -> dict:
    """In a process of its own."""
    warnings.filterwarnings("ignore")
    began = time.perf_counter()
    import pymc

    import mixvi.interop.pymc as adaptor

    imported = time.perf_counter() - began
    model = MODELS[name]()
    times = []
    for _ in range(2):
        began, cpu = time.perf_counter(), _cpu()
        data = adaptor.fit(model, backend=backend)
        times.append((time.perf_counter() - began, _cpu() - cpu))
    (first, first_cpu), (warm, warm_cpu) = times
    its = {"first": first, "first_cpu": first_cpu, "warm": warm, "warm_cpu": warm_cpu}
    dim = sum(np.size(one) for one in model.initial_point().values())
    bound = {"elbo": data.attrs["elbo"], "se": data.attrs["elbo_se"]}
    return {**its, **bound, "dim": dim, "imported": imported, "version": pymc.__version__}


def _cpu() -> float:
    """Of this process and of the compilers that it has started."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def asked(name: str, way: str, folder: str) -> dict:
    command = [sys.executable, __file__, "--child", name, way.split()[0]]
    flags = {"PYTENSOR_FLAGS": f"base_compiledir={folder}"}
    # Numba, the default of PyTensor 3, keeps its code there as well.
    flags["NUMBA_CACHE_DIR"] = folder
    done = subprocess.run(
        command, env=os.environ | flags, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(*options.child)))
        return
    rows = []
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            # In this order "kept" finds what "anew" has left.
            rows += [(name, way, asked(name, way, folder)) for way in WAYS]
            print(rows[-3:], file=sys.stderr)
    print(page(rows))


def page(rows: list[tuple[str, str, dict]]) -> str:
    version, python = rows[0][2]["version"], ".".join(map(str, sys.version_info[:2]))
    lines = [
        f"PyMC {version}, Python {python}: CPU seconds of `fit`, compilers included, "
        + "imports aside; in brackets beside JAX.",
        "",
        "| model | parameters | way | first call | warm | bound |",
        "|---|---|---|---|---|---|",
    ]
    by_jax = {name: row for name, way, row in rows if way == WAYS[0]}
    for name, way, row in rows:
        its = [(row[key], row[key] / by_jax[name][key]) for key in ("first_cpu", "warm_cpu")]
        first, warm = (f"{cpu:.2f}" + f" ({ratio:.1f})" * (way != WAYS[0]) for cpu, ratio in its)
        bound = f"{row['elbo']:.3f} ± {row['se']:.3f}"
        lines.append(f"| {name} | {row['dim']} | {way} | {first} | {warm} | {bound} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
