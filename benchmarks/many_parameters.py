"""Many parameters: 100,000 of them in mixed models, a random walk, and regressions with more
features than rows. Time and peak memory, each fit in a process of its own; lme4 and glmmTMB on the
same data; smaller cousins beside NUTS.

`--step NAME` measures one thing and keeps its row in docs/results/parts/many_parameters_rows.jsonl;
without it all that are not there are measured. The page is made of the rows. R is asked where it is
installed (Debian: r-cran-lme4, r-cran-glmmtmb)."""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

import mixvi
from mixed_models_in_r import COMMON, FAMILIES, NOISE, PEERS, TRUE, mixed_data, peer_step

PARTS = pathlib.Path(__file__).resolve().parent.parent / "docs/results/parts"
ROWS = PARTS / "many_parameters_rows.jsonl"


# --- models -----------------------------------------------------------------------------------


def mixed(kind: str, groups: int) -> tuple:
    of, x, y = mixed_data(kind, groups)
    own = sp.csr_array((np.ones(len(y)), (np.arange(len(y)), of)), shape=(len(y), groups))
    design = sp.hstack([sp.csr_array(x), own]).tocsr()

    def prior(hyper):
        common = jnp.full(COMMON, 0.1)
        return jnp.concatenate([common, jnp.exp(-2 * hyper["log_sd"]) * jnp.ones(groups)])

    hyper = {"log_sd": 0.3}
    if kind == "Gaussian":
        hyper = {**hyper, "log_noise": 0.0}

        def rows(eta, hyper):
            z = (y - eta) * jnp.exp(-hyper["log_noise"])
            return -0.5 * z**2 - hyper["log_noise"] - 0.5 * jnp.log(2 * jnp.pi)
    elif kind == "Poisson":

        def rows(eta, _):
            return y * eta - jnp.exp(eta)
    else:
        sign = 2 * y - 1

        def rows(eta, _):
            return jax.nn.log_sigmoid(sign * eta)

    return mixvi.LinearPredictor(design, rows, prior), np.zeros(groups + COMMON), None, hyper


def walk(dim: int) -> tuple:
    rng = np.random.default_rng(1)
    y = rng.poisson(np.exp(np.sin(np.cumsum(0.05 * rng.normal(size=dim))))).astype(float)
    ones = np.ones(dim - 1)
    steps = sp.diags_array([-ones, ones], offsets=[0, 1], shape=(dim - 1, dim))
    square, eye = (steps.T @ steps).tocsc(), 0.1 * sp.eye_array(dim)

    def prior(log_precision):
        return float(np.exp(log_precision)) * square + eye

    def rows(eta, _):
        return y * eta - jnp.exp(eta)

    model = mixvi.LinearPredictor(sp.eye_array(dim).tocsr(), rows, prior)
    return model, np.zeros(dim), None, 3.0


def wide_data(dim: int, rows: int) -> tuple:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(rows, dim))
    eta = 2 * x[:, :20].sum(1) / np.sqrt(20)
    return x, np.where(rng.random(rows) < 1 / (1 + np.exp(-eta)), 1.0, -1.0)


def wide(dim: int, rows: int) -> tuple:
    x, sign = wide_data(dim, rows)
    model = mixvi.LinearPredictor(x, lambda eta: jax.nn.log_sigmoid(sign * eta), dim / 10)
    return model, np.zeros(dim), None, None


def wide_of_any(dim: int, rows: int) -> tuple:
    """The same as a log density of which no more is known than its prior."""
    x, sign = wide_data(dim, rows)
    model = mixvi.Additive(
        lambda w: -0.5 * dim / 10 * (w**2).sum() + 0.5 * dim * jnp.log(dim / 20 / jnp.pi),
        lambda w, rows: jax.nn.log_sigmoid(rows["sign"] * (rows["x"] @ w)),
    )
    return model, np.zeros(dim), {"x": x, "sign": sign}, None


FITS = {
    "Gaussian mixed model": (lambda: mixed("Gaussian", 100_000), {}),
    "logistic mixed model, laplace": (
        lambda: mixed("logistic", 100_000),
        {"family": "laplace"},
    ),
    "logistic mixed model": (lambda: mixed("logistic", 100_000), {}),
    "Poisson mixed model": (lambda: mixed("Poisson", 100_000), {}),
    "random walk, Poisson counts": (lambda: walk(100_000), {}),
    "logistic, 1,000 rows, 20,000 features": (lambda: wide(20_000, 1000), {}),
    "logistic, 1,000 rows, 100,000 features, laplace": (
        lambda: wide(100_000, 1000),
        {"family": "laplace"},
    ),
    "logistic, 1,000 rows, 100,000 features": (lambda: wide(100_000, 1000), {}),
    "any log density, 1,000 rows, 20,000 features": (lambda: wide_of_any(20_000, 1000), {}),
    "any log density, 300 rows, 100,000 features": (lambda: wide_of_any(100_000, 300), {}),
}
COUSINS = {
    "Gaussian mixed model": lambda: mixed("Gaussian", 150),
    "logistic mixed model": lambda: mixed("logistic", 150),
    "Poisson mixed model": lambda: mixed("Poisson", 150),
    "random walk, Poisson counts": lambda: walk(150),
    "logistic, 60 rows": lambda: wide(300, 60),
    "any log density, 60 rows": lambda: wide_of_any(300, 60),
}


# --- fits -------------------------------------------------------------------------------------


def fit_step(name: str) -> dict:
    make, options = FITS[name]
    model, start, data, hyper = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    began, cpu = time.perf_counter(), time.process_time()
    post = mixvi.fit(model, start, data, hyper=hyper, **options)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert np.isfinite(post.std).all()
    found = {
        "wall": wall,
        "cpu": cpu,
        "before": before,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "dim": post.dim,
        "family": post.family,
        "trust": post.trust,
        "verdict": post.verdict,
        "status": post.status,
        "versions": f"mixvi {mixvi.__version__}, JAX {jax.__version__}, NumPy {np.__version__}",
    }
    if "mixed" in name:
        learnt = {key: float(np.exp(value)) for key, value in post.hyper.items()}
        found |= {"fixed": post.mean[:COMMON].tolist(), "se": post.std[:COMMON].tolist()}
        found |= {"sd": learnt["log_sd"], "noise": learnt.get("log_noise")}
    return found


# --- smaller cousins beside NUTS --------------------------------------------------------------


def cousin_step(name: str, draws: int = 20_000, warm_up: int = 500) -> dict:
    """At the hyperparameters that the fit has learnt; NUTS is whitened by the fit, whose errors it
    does not share. Errors of NUTS by batch means."""
    import blackjax

    jax.config.update("jax_enable_x64", True)
    model, start, data, hyper = COUSINS[name]()
    sparse = sp.issparse(getattr(model, "design", None))
    structure = "sparse" if sparse else "low_rank"
    post = mixvi.fit(model, start, data, hyper=hyper, structure=structure)
    root = jnp.asarray(post.law.colour(np.eye(post.dim)) - post.flat_mean)
    extra = tuple(one for one in (post.hyper, data) if one is not None)

    def log_density(z):
        return model(jnp.asarray(post.flat_mean) + z @ root, *extra)

    if sparse:  # constants of the prior would be factorised under the tracer
        design, own = model.design.toarray(), model.prior_precision(post.hyper)
        own = own.toarray() if sp.issparse(own) else np.diag(np.asarray(own))

        def log_density(z):
            w = jnp.asarray(post.flat_mean) + z @ root
            return model.log_likelihood(design @ w, *extra).sum() - 0.5 * w @ own @ w

    def chain(key):
        kernel = blackjax.nuts(log_density, 0.4, jnp.ones(post.dim))

        def one(state, k):
            return (lambda s: (s, s.position))(kernel.step(k, state)[0])

        keys = jax.random.split(key, draws + warm_up)
        return jax.lax.scan(one, kernel.init(jnp.zeros(post.dim)), keys)[1]

    w = post.flat_mean + np.asarray(jax.jit(chain)(jax.random.key(0)))[warm_up:] @ np.asarray(root)
    mean, sd = w.mean(0), w.std(0)
    batches = w.reshape(50, -1, post.dim)
    mean_se = batches.mean(1).std(0, ddof=1) / np.sqrt(50) / sd
    squares = ((w - mean) / sd).reshape(50, -1, post.dim) ** 2
    sd_se = 0.5 * squares.mean(1).std(0, ddof=1) / np.sqrt(50)
    off, ratio = np.abs(post.flat_mean - mean) / sd, np.abs(post.flat_std / sd - 1)
    return {
        "dim": post.dim,
        "family": post.family,
        "trust": post.trust,
        "mean": [float(np.median(off)), float(off.max()), float(mean_se.mean())],
        "sd": [float(np.median(ratio)), float(ratio.max()), float(sd_se.mean())],
        "versions": f"BlackJAX {blackjax.__version__}",
    }


# --- with and without CHOLMOD -----------------------------------------------------------------


def grid_field(side: int) -> tuple:
    """Counts on a grid with a Gaussian Markov random field."""
    rng = np.random.default_rng(3)
    ones = np.ones(side - 1)
    steps = sp.diags_array([-ones, ones], offsets=[0, 1], shape=(side - 1, side))
    line, eye = steps.T @ steps, sp.eye_array(side)
    field = (4.0 * (sp.kron(line, eye) + sp.kron(eye, line)) + 0.2 * sp.eye_array(side**2)).tocsc()
    y = rng.poisson(1.0, side**2).astype(float)
    model = mixvi.LinearPredictor(
        sp.eye_array(side**2).tocsr(), lambda eta: y * eta - jnp.exp(eta), field
    )
    return model, np.zeros(side**2)


def cholesky_step(name: str) -> dict:
    from mixvi._arrays import _sparse

    if name == "SciPy":
        _sparse._cholmod = lambda: None
    else:
        assert _sparse._cholmod() is not None, "scikit-sparse is not installed"
    model, start = grid_field(300)
    began, cpu = time.perf_counter(), time.process_time()
    post = mixvi.fit(model, start)
    found = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    found |= {"dim": post.dim, "family": post.family, "elbo": post.elbo_fixed}
    places = np.linspace(0, post.dim - 1, 50).astype(int)
    return found | {"mean": post.mean[places].tolist(), "sd": post.std[places].tolist()}


# --- rows and page ----------------------------------------------------------------------------

STEPS = {
    **{f"fit: {name}": fit_step for name in FITS},
    **{f"peer: {name}": peer_step for name in PEERS},
    **{f"cousin: {name}": cousin_step for name in COUSINS},
    **{f"cholesky: {name}": cholesky_step for name in ("CHOLMOD", "SciPy")},
}


def kept() -> dict[str, dict]:
    if not ROWS.exists():
        return {}
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    return {row["step"]: row for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--busy", action="store_true", help="other work runs beside, which is told")
    parser.add_argument("--page", action="store_true", help="of the rows that there are")
    asked = parser.parse_args()
    if asked.step is not None:
        row = {"step": asked.step, **STEPS[asked.step](asked.step.split(": ", 1)[1])}
        row |= {"busy": True} if asked.busy else {}
        rows = {**kept(), asked.step: row}
        ROWS.write_text("".join(json.dumps(one) + "\n" for one in rows.values()))
        return
    for name in () if asked.page else STEPS:
        if name not in kept():
            subprocess.run([sys.executable, __file__, "--step", name], check=True)
    (PARTS / "many_parameters.md").write_text(page(kept()))


def page(rows: dict[str, dict]) -> str:
    fits = {name[5:]: row for name, row in rows.items() if name.startswith("fit: ")}
    lines = [
        "One run of each on two cores. Seconds with a star were taken while other work had most of "
        "the machine, and say little; CPU seconds say more. A fit with its defaults (verdict "
        "included, hyperparameters learnt) unless the family is named, the first in a process of "
        "its own, so compilation is in it. Peak memory is the process's; what it had before the "
        "fit (libraries and data) is beside it.\n",
        "| model | parameters | family | seconds | CPU seconds | GiB before | peak GiB | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in FITS:
        if (row := fits.get(name)) is not None:
            lines.append(
                f"| {name} | {row['dim']:,} | {row['family']} | {_wall(row)} | "
                f"{row['cpu']:.0f} | {row['before']:.2f} | {row['peak']:.2f} | {row['trust']} |"
            )
    lines += ["", *_peer_lines(rows, fits), "", *_cousin_lines(rows), "", *_cholesky_lines(rows)]
    versions = sorted({row["versions"] for row in rows.values() if "versions" in row})
    if any("sign" in row for row in rows.values()):
        lines += ["", "†: an earlier state, which took directions by another rule."]
    if missing := [name for name in STEPS if name not in rows]:
        lines += ["", f"Not measured yet: {'; '.join(missing)}."]
    return "\n".join([*lines, "", "Versions: " + "; ".join(versions) + "."]).rstrip() + "\n"


def _wall(row: dict) -> str:
    return f"{row['wall']:.0f}{'*' if 'busy' in row else ''}{row.get('sign', '')}"


def _peer_lines(rows: dict[str, dict], fits: dict[str, dict]) -> list[str]:
    lines = [
        "The same data in R, 500,000 rows in 100,000 groups (data made with fixed effects "
        f"{', '.join(str(one) for one in TRUE)}, a standard deviation of 1 between groups, noise "
        f"{NOISE}). mixvi's fixed effects have a prior, N(0, 10), and belong to the parameters "
        "over which Laplace's evidence and the bound integrate; lme4 and glmmTMB maximise over "
        "them (nAGQ=0: together with the groups' effects, which is nearest to mixvi's laplace).\n",
        "| model | by | seconds | CPU seconds | peak GiB | fixed effects (standard error) | "
        "sd of groups | noise |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in FAMILIES:
        own = [(f"mixvi, {row['family']}", row) for name, row in fits.items() if kind in name]
        own = [one for one in own if "sd" in one[1]]
        others = [(name[6:], row) for name, row in rows.items() if name.startswith("peer: ")]
        others = [one for one in others if f", {kind}, " in one[0]]
        for by, row in own + others:
            by = by.replace(f", {kind}", "")
            if "wall" not in row:
                what = f"stopped after {row['stopped']} s" if "stopped" in row else "failed"
                lines.append(f"| {kind} | {by} | {what} | | | | | |")
                continue
            pairs = zip(row["fixed"], row["se"], strict=True)
            fixed = ", ".join(f"{one:.5f} ({se:.5f})" for one, se in pairs)
            noise = "" if row["noise"] is None else f"{row['noise']:.5f}"
            lines.append(
                f"| {kind} | {by} | {_wall(row)} | {row['cpu']:.0f} | {row['peak']:.2f} | "
                f"{fixed} | {row['sd']:.5f} | {noise} |"
            )
    return lines


def _cousin_lines(rows: dict[str, dict]) -> list[str]:
    lines = [
        "Smaller cousins beside 20,000 draws of NUTS at the same hyperparameters: means off, in "
        "standard deviations, and standard deviations off; beside each NUTS's own error of one "
        "parameter.\n",
        "| model | parameters | family | mean, median | worst | NUTS | sd, median | worst | NUTS | "
        "verdict |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if name.startswith("cousin: "):
            mean = " | ".join(f"{one:.3f}" for one in row["mean"])
            sd = " | ".join(f"{one:.1%}" for one in row["sd"])
            lines.append(
                f"| {name[8:]} | {row['dim']} | {row['family']} | {mean} | {sd} | {row['trust']} |"
            )
    return lines


def _cholesky_lines(rows: dict[str, dict]) -> list[str]:
    one, other = (rows.get(f"cholesky: {name}") for name in ("CHOLMOD", "SciPy"))
    if one is None or other is None:
        return []
    off = max(
        float(np.max(np.abs(np.subtract(one[key], other[key])) / np.asarray(other["sd"])))
        for key in ("mean", "sd")
    )
    return [
        f"Counts on a grid of 300 x 300 with a Gaussian Markov random field ({one['dim']:,} "
        f"parameters): {_wall(one)} s ({one['cpu']:.0f} CPU) with CHOLMOD, "
        f"{_wall(other)} s ({other['cpu']:.0f} CPU) with SciPy's SuperLU; means and standard "
        f"deviations of 50 parameters differ by {off:.0e} standard deviations at most."
    ]


if __name__ == "__main__":
    main()
