"""Models from NumPyro's examples and PyMC's gallery, unchanged, through mixvi and its peers.

    python benchmarks/galleries.py --numpyro CHECKOUT --pymc CHECKOUT     goes on where it stopped
    python benchmarks/galleries.py --page                                 the page alone

The checkouts are those of the projects themselves (numpyro; pymc-examples). Their files are run up
to the first sampler (`captured.py`), and the model that was handed to it goes to every tool. Every
fit is a fresh process; its time is that of the processor for the first call, compilation included,
imports and the file's own work not. The bound is the mean of `log p - log q` over 2000 new draws,
Jacobians included, the same for all tools. Errors: largest difference of the means, and largest
ratio of the standard deviations, of latent sites as the model writes them, against NUTS (4 chains
of 1000 draws after 1000 steps of warm-up, in units of its standard deviations). Autoguides: Adam,
rate 0.01, 5000 steps for the mode, 20,000 for a covariance; ADVI: PyMC's defaults, 50,000 steps;
`fit_laplace`: defaults. Rows are kept in docs/results/parts/galleries_rows.jsonl.
"""

import math
import os
import pathlib
import platform
import warnings
from importlib import metadata
from typing import Any

import numpy as np

import captured
from first_call import (
    PARTS,
    clocks,
    failure,
    measure,
    middle,
    parser,
    print_row,
    read,
    select,
    shown,
    since,
    table,
)

ROWS = PARTS / "galleries_rows.jsonl"
NUMPYRO = (
    "ar2",
    "bnn",
    "funnel",
    "gp",
    "hmm",
    "holt_winters",
    "horseshoe_regression",
    "proportion_test",
    "sparse_regression",
    "var2",
)
# Pages, and which of their samplers is meant, counted from zero.
PYMC = {
    "case_studies/BEST": 0,
    "case_studies/GEV": 0,
    "case_studies/binning": 0,
    "case_studies/rugby_analytics": 0,
    "gaussian_processes/GP-Latent": 0,
    "gaussian_processes/GP-Marginal": 0,
    "generalized_linear_models/GLM-poisson-regression": 0,
    "generalized_linear_models/GLM-truncated-censored-regression": 0,
    "generalized_linear_models/multilevel_modeling": 2,
    "time_series/AR": 0,
}
OF_NUMPYRO = ("mixvi", "AutoLaplaceApproximation", "AutoMultivariateNormal", "NUTS")
OF_PYMC = ("mixvi", "fit_laplace", "ADVI", "NUTS")
LIBRARIES = ("jax", "numpyro", "pymc", "pymc-extras")
N_FRESH, N_SITES, SEED = 2000, 4000, 2026
LAPLACE_STEPS, STEPS, RATE, ADVI_STEPS = 5000, 20_000, 0.01, 50_000
WARMUP, DRAWS, CHAINS = 1000, 1000, 4
# Where NUTS's own chains disagree it is no reference.
MOST_RHAT = 1.05
# A ratio of standard deviations above it says no more than its order of magnitude.
LARGE = 1e4

INTRO = """\
Models of NumPyro's examples and PyMC's gallery, unchanged: their own files ran up to the first
sampler. The bound is over {fresh} new draws. Errors are those of latent sites against NUTS, where
its R-hat is below {rhat}. Times are CPU seconds of a first call, compilation included.

GEV begins where its density has no slope; the first run failed there, and the search for a mode was
mended. Its posterior ends at a wall: every Gaussian has draws beyond it, and no finite bound."""


def child(name: str, tool: str) -> dict:
    project, _, model = name.partition(": ")
    checkout = pathlib.Path(os.environ[f"CHECKOUT_{project.upper()}"])
    if project == "numpyro":
        import numpyro

        numpyro.enable_x64()
        its = captured.numpyro_model(checkout / "examples" / f"{model}.py")
        return OF_TOOL["numpyro", tool](its)
    page = checkout / "examples" / f"{model}.myst.md"
    return OF_TOOL["pymc", tool](captured.pymc_model(page, PYMC[model]))


def bound(log_p: Any, log_q: Any) -> dict:
    ratio = np.asarray(log_p) - np.asarray(log_q)
    se = float(ratio.std() / math.sqrt(len(ratio)))
    return {"elbo": float(ratio.mean()) if np.isfinite(ratio).all() else -math.inf, "se": se}


def moments(draws: dict[str, Any], names: Any = None) -> dict:
    """Of every latent site; `draws` with one leading axis."""
    wanted = sorted(draws if names is None else names)
    flat = {name: np.asarray(draws[name], dtype=float) for name in wanted}
    return {
        "mean": {name: one.mean(0).ravel().tolist() for name, one in flat.items()},
        "sd": {name: one.std(0).ravel().tolist() for name, one in flat.items()},
    }


# --- NumPyro ----------------------------------------------------------------------------------


def numpyro_by_mixvi(its: captured.NumPyroModel) -> dict:
    import mixvi.interop.numpyro as adaptor

    began = clocks()
    fitted = adaptor.fit(its.model, *its.arguments, **its.keywords)
    wall, cpu = since(began)
    fresh = fitted.labelled(N_FRESH, SEED)
    return {
        "first_wall": wall,
        "first_cpu": cpu,
        "dim": fitted.post.dim,
        "family": fitted.post.family,
        "verdict": fitted.verdict.split(":")[0].split(".")[0],
        **bound(fresh.log_p, fresh.log_q),
        **moments(fitted.sample(SEED, N_SITES), [site.name for site in fitted.sites.latent]),
    }


def numpyro_by_guide(its: captured.NumPyroModel, guide_name: str, steps: int) -> dict:
    import jax
    from numpyro import optim
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    model = enumerable(its)
    guide = getattr(autoguide, guide_name)(model)
    began = clocks()
    loss = Trace_ELBO()
    if model is not its.model:
        from numpyro.infer import TraceEnum_ELBO

        loss = TraceEnum_ELBO()
    svi = SVI(model, guide, optim.Adam(RATE), loss)
    key = jax.random.key(SEED)
    run = svi.run(key, steps, *its.arguments, progress_bar=False, **its.keywords)
    gaussian = guide.get_posterior(run.params)
    draws = jax.block_until_ready(gaussian.sample(key, (N_FRESH,)))
    wall, cpu = since(began)
    potential = guide._potential_fn if hasattr(guide, "_potential_fn") else None
    log_p = jax.lax.map(lambda w: -potential(guide._unpack_latent(w)), draws)
    sites = guide.sample_posterior(key, run.params, sample_shape=(N_SITES,))
    latent = [name for name in guide._init_locs]
    return {
        "first_wall": wall,
        "first_cpu": cpu,
        "dim": int(draws.shape[1]),
        **bound(log_p, gaussian.log_prob(draws)),
        **moments(sites, latent),
    }


def enumerable(its: captured.NumPyroModel) -> Any:
    """With its discrete sites marked, where it has any: as autoguides want them."""
    import jax
    from numpyro import handlers
    from numpyro.contrib.funsor import config_enumerate

    trace = handlers.trace(handlers.seed(its.model, jax.random.key(0)))
    sites = trace.get_trace(*its.arguments, **its.keywords).values()
    discrete = any(
        one["type"] == "sample" and not one["is_observed"] and one["fn"].support.is_discrete
        for one in sites
    )
    return config_enumerate(its.model) if discrete else its.model


def numpyro_by_nuts(its: captured.NumPyroModel) -> dict:
    import jax
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    began = clocks()
    mcmc = MCMC(
        NUTS(its.model),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(SEED), *its.arguments, **its.keywords)
    states = jax.block_until_ready(mcmc._states["z"])  # latent sites, deterministic ones apart
    wall, cpu = since(began)
    grouped = mcmc.get_samples(group_by_chain=True)
    latent = {name: np.asarray(grouped[name]) for name in states if name in grouped}
    rhat = max(float(np.nanmax(one["r_hat"])) for one in summary(latent).values())
    flat = {name: one.reshape(-1, *one.shape[2:]) for name, one in latent.items()}
    return {"first_wall": wall, "first_cpu": cpu, "rhat": rhat, **moments(flat)}


# --- PyMC -------------------------------------------------------------------------------------


def pymc_by_mixvi(model: Any) -> dict:
    import mixvi.interop.pymc as adaptor

    began = clocks()
    fitted = adaptor.approximate(model)
    wall, cpu = since(began)
    fresh = fitted.labelled(N_FRESH, SEED)
    return {
        "first_wall": wall,
        "first_cpu": cpu,
        "dim": fitted.post.dim,
        "family": fitted.post.family,
        "verdict": fitted.post.verdict.split(":")[0].split(".")[0],
        **bound(fresh.log_p, fresh.log_q),
        **moments(fitted.labelled(N_SITES, SEED).draws, [one.name for one in model.free_RVs]),
    }


def of_gaussian(model: Any, places: dict[str, slice], mean: Any, root: Any) -> dict:
    """Bound and moments of `N(mean, root root^T)` over PyMC's own unbounded variables; `places`:
    where each of them stands in a flat point."""
    rng = np.random.default_rng(SEED)
    z = rng.standard_normal((N_FRESH, len(mean)))
    flat = mean + (z * root if root.ndim == 1 else z @ root.T)
    diagonal = np.abs(root if root.ndim == 1 else np.diag(root))
    log_q = -0.5 * (z * z).sum(1) - 0.5 * len(mean) * math.log(2 * math.pi)
    log_q -= np.log(diagonal).sum()
    shapes = {name: np.shape(value) for name, value in model.initial_point().items()}
    names = list(shapes)
    log_p = model.compile_logp()
    transformed = [model.rvs_to_values[one] for one in model.free_RVs]
    back = model.compile_fn(
        model.replace_rvs_by_values(model.free_RVs), inputs=transformed, point_fn=True
    )
    values, sites = [], {one.name: [] for one in model.free_RVs}
    for w in flat:
        point = {name: w[places[name]].reshape(shapes[name]) for name in names}
        values.append(float(log_p(point)))
        for rv, value in zip(model.free_RVs, back(point), strict=True):
            sites[rv.name].append(value)
    return {
        "dim": len(mean),
        **bound(values, log_q),
        **moments({name: np.array(one) for name, one in sites.items()}),
    }


def pymc_by_advi(model: Any) -> dict:
    import pymc as pm

    began = clocks()
    with model:
        approx = pm.fit(ADVI_STEPS, method="advi", random_seed=SEED, progressbar=False)
    mean, sd = approx.mean.eval(), approx.std.eval()
    wall, cpu = since(began)
    places = {name: one[1] for name, one in approx.groups[0].ordering.items()}
    return {"first_wall": wall, "first_cpu": cpu} | of_gaussian(model, places, mean, sd)


def pymc_by_laplace(model: Any) -> dict:
    import pymc_extras as pmx

    began = clocks()
    with model:
        data = pmx.fit_laplace(progressbar=False, random_seed=SEED)
    wall, cpu = since(began)
    mean = np.asarray(data.fit["mean_vector"])
    covariance = np.asarray(data.fit["covariance_matrix"])
    least = np.linalg.eigvalsh(covariance).min()
    if not least > 0:
        raise RuntimeError(f"the covariance that came back has the eigenvalue {least:.2g}")
    root = np.linalg.cholesky(covariance)
    # Labels are `beta[3]` or `beta`; variables come in no order that is told otherwise.
    labels = [str(label).partition("[")[0] for label in data.fit["rows"].values]
    sizes = {name: labels.count(name) for name in dict.fromkeys(labels)}
    assert set(sizes) == set(model.initial_point()), labels
    places, first = {}, 0
    for name, size in sizes.items():
        places[name] = slice(first, first + size)
        first += size
    return {"first_wall": wall, "first_cpu": cpu} | of_gaussian(model, places, mean, root)


def pymc_by_nuts(model: Any) -> dict:
    import arviz
    import pymc as pm

    began = clocks()
    with model:
        data = pm.sample(
            DRAWS, tune=WARMUP, chains=CHAINS, cores=1, random_seed=SEED, progressbar=False
        )
    wall, cpu = since(began)
    names = [one.name for one in model.free_RVs]
    rhat = arviz.rhat(data, var_names=names)
    draws = data.posterior.stack(draw_=("chain", "draw")).transpose("draw_", ...)
    return {
        "first_wall": wall,
        "first_cpu": cpu,
        "rhat": max(float(np.nanmax(rhat[name])) for name in names),
        **moments({name: draws[name].values for name in names}),
    }


OF_TOOL = {
    ("numpyro", "mixvi"): numpyro_by_mixvi,
    ("numpyro", "AutoLaplaceApproximation"): lambda its: numpyro_by_guide(
        its, "AutoLaplaceApproximation", LAPLACE_STEPS
    ),
    ("numpyro", "AutoMultivariateNormal"): lambda its: numpyro_by_guide(
        its, "AutoMultivariateNormal", STEPS
    ),
    ("numpyro", "NUTS"): numpyro_by_nuts,
    ("pymc", "mixvi"): pymc_by_mixvi,
    ("pymc", "fit_laplace"): pymc_by_laplace,
    ("pymc", "ADVI"): pymc_by_advi,
    ("pymc", "NUTS"): pymc_by_nuts,
}


# --- the page ---------------------------------------------------------------------------------


def off(row: dict, reference: dict) -> tuple[float, float]:
    """Largest error of a mean in sds of the reference, largest ratio of sds."""
    means, ratios = [], []
    for name, centre in reference["mean"].items():
        sd = np.array(reference["sd"][name])
        if name not in row["mean"] or not (sd > 0).all():
            continue
        means.append(np.abs(np.array(row["mean"][name]) - centre) / sd)
        ratio = np.array(row["sd"][name]) / sd
        ratios.append(np.maximum(ratio, 1 / np.maximum(ratio, 1e-300)))
    return float(np.concatenate(means).max()), float(np.concatenate(ratios).max())


def page() -> str:
    rows = read(ROWS)
    said = [INTRO.format(fresh=N_FRESH, rhat=MOST_RHAT), "", made_on(), ""]
    for project, tools in (("numpyro", OF_NUMPYRO), ("pymc", OF_PYMC)):
        lines = []
        every = dict.fromkeys(row["name"] for row in rows)
        names = [name for name in every if name.startswith(project)]
        for name in names:
            references = [row for row in select(rows, name=name, tool="NUTS") if "mean" in row]
            reference = references[0] if references else None
            for tool in tools:
                lines += [line(row, reference) for row in select(rows, name=name, tool=tool)]
        head = ["model", "parameters", "tool", "bound", "means off, sd", "sds off, x"]
        said += [f"### {project}", "", table([*head, "first call, CPU s", "said"], lines), ""]
        said += [in_short(rows, names, tools), ""]
    return "\n".join(said)


def line(row: dict, reference: dict | None) -> list:
    name, tool = row["name"].partition(": ")[2], row["tool"]
    if "failed" in row:
        return [name, "", tool, failure([row]), "", "", "", ""]
    told = row.get("verdict", "")
    if "rhat" in row:
        told = f"R-hat {row['rhat']:.3f}"
    sound = reference is not None and reference["rhat"] < MOST_RHAT and tool != "NUTS"
    errors = [in_brief(one) for one in off(row, reference)] if sound and reference else ["", ""]
    its_bound = f"{row['elbo']:.2f} ± {row['se']:.2f}" if "elbo" in row else ""
    return [name, row.get("dim", ""), tool, its_bound, *errors, shown(row["first_cpu"]), told]


def in_brief(error: float) -> str:
    return f"{error:.0e}" if error > LARGE else shown(error)


def made_on() -> str:
    libraries = [f"{name} {metadata.version(name)}" for name in LIBRARIES]
    system = f"{os.cpu_count()} CPU cores, shared, Python {platform.python_version()}"
    return ", ".join([system, *libraries])


def in_short(rows: list[dict], names: list[str], tools: tuple[str, ...]) -> str:
    """Medians over the models, and how often each bound is the best within two standard errors."""
    lines = []
    for tool in (one for one in tools if one != "NUTS"):
        best = ended = 0
        for name in names:
            its = [row for row in rows if row["name"] == name and "elbo" in row]
            own = [row for row in its if row["tool"] == tool]
            if not own:
                continue
            ended += 1
            top = max(its, key=lambda row: row["elbo"])
            least = top["elbo"] - 2 * math.hypot(top["se"], own[0]["se"]) - 0.01
            best += own[0]["elbo"] >= least
        of_tool = [row for name in names for row in select(rows, name=name, tool=tool)]
        first = middle(of_tool, "first_cpu")
        lines.append([tool, f"{ended} of {len(names)}", best, shown(first)])
    head = ["tool", "came to an end", "bound as good as any", "first call, CPU s, median"]
    return table(head, lines)


def main() -> None:
    its = parser(__doc__, ("mixvi", "peers"), 1)
    its.add_argument("--numpyro", type=pathlib.Path, help="a checkout of numpyro")
    its.add_argument("--pymc", type=pathlib.Path, help="a checkout of pymc-examples")
    options = its.parse_args()
    if options.child:
        warnings.simplefilter("ignore")
        name, tool, _ = options.child
        return print_row(lambda: child(name, tool))
    wanted = []
    for project, names, tools in (
        ("numpyro", NUMPYRO, OF_NUMPYRO),
        ("pymc", PYMC, OF_PYMC),
    ):
        checkout = getattr(options, project)
        if checkout is None:
            continue
        os.environ[f"CHECKOUT_{project.upper()}"] = str(checkout.resolve())
        wanted += [
            {"label": options.label, "name": f"{project}: {name}", "tool": tool, "repeat": 0}
            for name in names
            for tool in tools
            if not options.only or name in options.only
        ]
    if not options.page:
        os.environ.setdefault("MPLBACKEND", "agg")
        measure(__file__, ROWS, wanted, options)
    print(page())


if __name__ == "__main__":
    main()
