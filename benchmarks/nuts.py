"""The first `fit` beside NUTS (NumPyro) on the ten models of `small_models.py`.

    python benchmarks/nuts.py --label after      goes on where it stopped; prints the page
    python benchmarks/nuts.py --page             the page alone

Every measurement is a fresh process; its time is the wall time from after the imports to the
answer, compilation included. NUTS runs one chain in float64, 500 draws of warm-up and 1000 kept,
with another seed in every repeat; `fit` is called with defaults. Rows are kept in
docs/results/parts/nuts_rows.jsonl.
"""

import math
import statistics

from first_call import (
    PARTS,
    cases,
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

ROWS = PARTS / "nuts_rows.jsonl"
TOOLS = ("fit", "nuts")
N_WARMUP, N_DRAWS = 500, 1000


def by_fit(problem) -> dict:
    import mixvi

    began = clocks()
    post = mixvi.fit(problem.log_density, problem.init, data=problem.data)
    wall, cpu = since(began)
    return {
        "first_wall": wall,
        "first_cpu": cpu,
        "dim": post.dim,
        "mean": post.flat_mean.tolist(),
        "sd": post.flat_std.tolist(),
        "family": post.family,
        "verdict": post.verdict,
    }


def by_nuts(problem, seed: int) -> dict:
    import jax
    import numpy as np
    import numpyro
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    from small_models import unbounded

    numpyro.enable_x64()
    began = clocks()
    mcmc = MCMC(
        NUTS(problem.numpyro_model),
        num_warmup=N_WARMUP,
        num_samples=N_DRAWS,
        num_chains=1,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), problem.data)
    sites = jax.block_until_ready(mcmc.get_samples())
    wall, cpu = since(began)
    leaves = jax.tree.leaves(unbounded(sites, problem.init))  # in the order of `flat_mean`
    draws = np.concatenate([np.asarray(leaf).reshape(N_DRAWS, -1) for leaf in leaves], axis=1)
    return {
        "first_wall": wall,
        "first_cpu": cpu,
        "dim": draws.shape[1],
        "mean": draws.mean(0).tolist(),
        "sd": draws.std(0).tolist(),
        "ess": float(np.min(effective_sample_size(draws[None]))),
        "divergences": int(mcmc.get_extra_fields()["diverging"].sum()),
    }


def child(name: str, tool: str, repeat: int) -> dict:
    from small_models import MODELS

    problem = MODELS[name]()
    return by_fit(problem) if tool == "fit" else by_nuts(problem, repeat)


# --- the page ---------------------------------------------------------------------------------


def moments(rows: list[dict]):
    """Mean and standard deviation of the draws of all repeats together."""
    import numpy as np

    means = np.array([row["mean"] for row in rows])
    sds = np.array([row["sd"] for row in rows])
    return means.mean(0), np.sqrt((sds**2).mean(0) + means.var(0))


def apart(fits: list[dict], nuts: list[dict]) -> tuple[float, float]:
    """The largest difference of means, in standard deviations of NUTS, and the ratio of standard
    deviations that is farthest from one."""
    import numpy as np

    fits, nuts = ([row for row in some if "mean" in row] for some in (fits, nuts))
    if not fits or not nuts:
        return math.nan, math.nan
    (mean, sd), (true_mean, true_sd) = moments(fits), moments(nuts)
    ratio = sd / true_sd
    worst = np.argmax(np.abs(np.log(ratio)))
    return float(np.abs((mean - true_mean) / true_sd).max()), float(ratio[worst])


def of_label(rows: list[dict]) -> str:
    lines, ratios = [], []
    for name in dict.fromkeys(row["name"] for row in rows):
        fits, nuts = (select(rows, name=name, tool=tool) for tool in TOOLS)
        seconds = [middle(some, "first_wall") for some in (fits, nuts)]
        ratios.append(seconds[1] / seconds[0])
        mean_off, sd_ratio = apart(fits, nuts)
        line = [name, shown(middle(fits + nuts, "dim"), 0)]
        line += [failure(some) or shown(s) for some, s in zip((fits, nuts), seconds, strict=True)]
        line += [shown(ratios[-1]), shown(mean_off), shown(sd_ratio)]
        line += [shown(middle(nuts, "ess"), 0), shown(middle(nuts, "divergences"), 0)]
        verdicts = [row["verdict"].split(":")[0] for row in fits if "verdict" in row]
        lines.append([*line, verdicts[0] if verdicts else "-"])
    seen = sorted(value for value in ratios if not math.isnan(value))
    head = ["model", "D", "fit, s", "NUTS, s", "NUTS / fit", "mean off, sd", "sd, x NUTS"]
    text = table([*head, "ESS of NUTS", "divergences", "verdict of fit"], lines)
    if not seen:
        return text
    faster = sum(value > 1 for value in seen)
    least, half = shown(seen[0]), shown(statistics.median(seen))
    return text + (
        f"\n\nNUTS / fit: median {half}, least {least}; `fit` is first on {faster} of {len(seen)}."
    )


def page() -> str:
    rows, parts = read(ROWS), []
    for label in dict.fromkeys(row["label"] for row in rows):
        parts += [f"### {label}", of_label(select(rows, label=label))]
    return "\n\n".join(parts)


def main() -> None:
    options = parser(__doc__, TOOLS, repeats=3).parse_args()
    if options.child:
        name, tool, repeat = options.child
        print_row(lambda: child(name, tool, int(repeat)))
        return
    if not options.page:
        from small_models import MODELS

        measure(__file__, ROWS, cases(MODELS, TOOLS, options), options)
    print(page())


if __name__ == "__main__":
    main()
