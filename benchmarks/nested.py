"""Hyperparameters integrated, against long NUTS runs: eight models of `nested_models.py`.

    python benchmarks/nested.py [MODEL ...]    goes on where it stopped
    python benchmarks/nested.py --page         the page alone

Rows are kept in docs/results/parts/nested_rows.jsonl, one model and way a line. An error is that of
a quantile (5, 25, 50, 75, 95%), in posterior standard deviations of the reference, the largest of
them; "effects" are five of the parameters. Times are CPU times (the machine was shared): the first
call (compiling included) and the second; of NUTS (NumPyro, with normal parameters in the place of
effects) all of a run of 4 chains of 1000 steps after 1000 of warm-up, compiling included. The
reference is a run of its own, of 4 longer chains.
"""

import argparse
import json
import math
import pathlib
import sys
import time
import warnings
from typing import Any

import jax
import numpy as np

import mixvi
from nested_models import MODELS, Nested
from problems import machine

ROWS = pathlib.Path(__file__).resolve().parents[1] / "docs/results/parts/nested_rows.jsonl"
PROBS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
CHAINS, WARM_UP, SHORT, LONG = 4, 1000, 1000, 5000
WAYS = ("nuts", "laplace", "auto", "point")
# Of a 5% quantile of a normal: p (1 - p) / density^2 is its variance, by the number of draws.
LUCK = 4.5


def by_nuts(model: Nested) -> dict[str, Any]:
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    start = {"v": np.zeros(model.dim), "hyper": {k: float(v) for k, v in model.hyper.items()}}
    start = jax.tree.map(lambda one: np.tile(one, (CHAINS,) + (1,) * np.ndim(one)), start)

    def run(n: int, key: int, warm_up: int = WARM_UP) -> Any:
        kernel = NUTS(potential_fn=model.potential, target_accept_prob=0.9)
        chains = MCMC(
            kernel,
            num_warmup=warm_up,
            num_samples=n,
            num_chains=CHAINS,
            chain_method="vectorized",
            progress_bar=False,
        )
        began = time.process_time()
        chains.run(jax.random.key(key), init_params=start)
        found = jax.block_until_ready(chains.get_samples(group_by_chain=True))
        return found, time.process_time() - began

    with jax.enable_x64(True):
        _, first = run(SHORT, 1)
        found, long = run(LONG, 0)
        w = jax.vmap(jax.vmap(model.coloured))(found["v"], found["hyper"])
    names = sorted(model.hyper)
    columns = [np.asarray(found["hyper"][name]) for name in names]
    columns += [np.asarray(w)[..., at] for at in model.effects]
    draws = np.stack(columns, -1)
    quantiles = np.quantile(draws.reshape(-1, draws.shape[-1]), PROBS, axis=0)
    flat = draws.reshape(-1, draws.shape[-1])
    return {
        "quantiles": quantiles.T.tolist(),
        "mean": flat.mean(0).tolist(),
        "sd": flat.std(0).tolist(),
        "ess": min(float(effective_sample_size(one)) for one in np.moveaxis(draws, -1, 0)),
        "rhat": max(float(split_gelman_rubin(one)) for one in np.moveaxis(draws, -1, 0)),
        "seconds": first,
        "seconds_long": long,
    }


def by_mixvi(model: Nested, way: str) -> dict[str, Any]:
    times = []
    options: dict[str, Any] = {"hyper": model.hyper, "hyper_prior": model.hyper_prior}
    if way != "point":
        options["hyper_posterior"] = True
    function = mixvi.laplace if way == "laplace" else mixvi.fit
    for _ in range(2):
        began = time.process_time()
        post = function(model.log_density, np.zeros(model.dim), **options)
        times.append(time.process_time() - began)
    effects = [post.marginal(post.names[at], weighted=False) for at in model.effects]
    weighted = [post.marginal(post.names[at]) for at in model.effects]
    hyper = post.hyper_posterior
    quantiles = (
        [] if hyper is None else [hyper.marginal(name).quantiles(PROBS) for name in hyper.names]
    )
    return {
        "quantiles": [one.tolist() for one in quantiles]
        + [one.quantiles(PROBS).tolist() for one in effects],
        "corrected": [one.quantiles(PROBS).tolist() for one in weighted],
        "n_corrected": sum(one.corrected for one in weighted),
        "mode": [float(post.hyper[name]) for name in sorted(model.hyper)],
        "points": 1 if hyper is None else len(hyper.points),
        "fits": 1 if hyper is None else hyper.n_evaluations,
        "warnings": [] if hyper is None else list(hyper.warnings),
        "family": post.family,
        "trust": post.trust,
        "khat": post.khat,
        "log_evidence": post.log_evidence,
        "first": times[0],
        "second": times[1],
    }


def rows() -> list[dict]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run(names: list[str], ways: tuple[str, ...]) -> None:
    done = {(row["model"], row["way"]) for row in rows()}
    for name in names or list(MODELS):
        for way in ways:
            if (name, way) in done:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = by_nuts(MODELS[name]) if way == "nuts" else by_mixvi(MODELS[name], way)
            with ROWS.open("a") as file:
                file.write(json.dumps({"model": name, "way": way, **made}) + "\n")
            print(name, way, file=sys.stderr)


def errors(model: Nested, truth: dict, made: dict) -> tuple[float, float, float]:
    """The largest of the hyperparameters, of the effects, and of these corrected by weights."""
    k, exact = len(model.hyper), np.array(truth["quantiles"])
    sds = np.array(truth["sd"])[:, None]
    if made["way"] == "point":
        at = np.tile(np.array(made["mode"])[:, None], (1, len(PROBS)))
    else:
        at = np.array(made["quantiles"][:k])
    own = np.abs(at - exact[:k]) / sds[:k]
    effects = np.abs(np.array(made["quantiles"][-5:]) - exact[k:]) / sds[k:]
    corrected = np.abs(np.array(made["corrected"]) - exact[k:]) / sds[k:]
    return float(own.max()), float(effects.max()), float(corrected.max())


LABEL = {
    "laplace": "Laplace, integrated",
    "auto": "`fit`, integrated",
    "point": "`fit`, at the mode",
}


def page() -> str:
    kept = {(row["model"], row["way"]): row for row in rows()}
    lines = [
        "Largest error of a quantile (5 to 95%), in posterior standard deviations.",
        "",
        "| model | parameters, hyperparameters | way | points (fits) | hyperparameters | effects "
        "| effects, weighted | trust | first call, CPU s | second | NUTS |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    wrong, by_way = [], {way: [] for way in LABEL}
    for name, model in MODELS.items():
        truth = kept.get((name, "nuts"))
        if truth is None:
            continue
        for way, label in LABEL.items():
            made = kept.get((name, way))
            if made is None:
                continue
            own, effects, corrected = errors(model, truth, made)
            by_way[way].append((own, effects, corrected))
            shown = "at one value" if way == "point" else f"{own:.2f}"
            lines.append(
                f"| {name} | {model.dim}, {len(model.hyper)} | {label} | {made['points']} "
                f"({made['fits']}) | {shown} | {effects:.2f} | {corrected:.2f} | {made['trust']} "
                f"| {made['first']:.1f} | {made['second']:.2f} | {truth['seconds']:.1f} |"
            )
        luck = math.sqrt(LUCK / truth["ess"])
        wrong.append(f"{name} {truth['ess']:,.0f} ({truth['rhat']:.3f}; {luck:.2f})")
    lines += ["", "Medians over the models (hyperparameters, effects, effects weighted):", ""]
    for way, found in by_way.items():
        if found:
            a, b, c = np.median(np.array(found), axis=0)
            first = "-" if way == "point" else f"{a:.2f}"
            lines.append(f"- {LABEL[way]}: {first}, {b:.2f}, {c:.2f}")
    said = [
        f"{row['model']} ({LABEL[row['way']]}): {one}"
        for row in kept.values()
        for one in row.get("warnings", [])
    ]
    lines += ["", "Warning signs given: " + ("; ".join(said) or "none") + "."]
    lines += [
        "",
        f"Reference: {CHAINS} chains of {LONG:,} steps; smallest effective sample size (largest "
        "R-hat; the standard error of a 5% quantile, in sds): " + "; ".join(wrong) + ". "
        f'"NUTS": a run of '
        f"{CHAINS} chains of {SHORT} steps after {WARM_UP}, compiling included. "
        '"weighted": `post.marginal`, corrected where draws allow it. One run of each.',
        "",
        f"Made by `benchmarks/nested.py` on {machine()}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page:
        run(arguments.models, tuple(arguments.ways.split(",")))
    (ROWS.parent / "nested.md").write_text(page())
    print(page())


if __name__ == "__main__":
    main()
