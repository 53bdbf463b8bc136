"""The warm-up that NUTS is spared when it begins where a fit ended: six NumPyro models.

    python benchmarks/handover.py [MODEL ...]     goes on where it stopped; prints the page

Four chains in float64. The standard: NumPyro's defaults (a diagonal mass matrix, adapted) and 1000
steps of warm-up. Beside it, shorter standard warm-ups, and `NUTS(model, **nuts.numpyro(fitted))`
with the dense mass matrix of the fit, which adapts the step size alone. A warm-up is long enough
where the smallest effective sample size a draw is at least 0.8 of the standard's and R-hat of all
parameters at most 1.02, over 500 draws a chain; gradients are leapfrog steps, of all chains.
Rows are kept in docs/results/parts/handover_rows.jsonl.
"""

import json
import pathlib
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

from mixvi.interop import numpyro as mvi
from mixvi.interop import nuts

ROWS = pathlib.Path(__file__).resolve().parent.parent / "docs/results/parts/handover_rows.jsonl"
CHAINS, DRAWS = 4, 500
STANDARD, OURS = (1000, 200), (100, 25)
SHARE, R_HAT = 0.8, 1.02


# --- the models -------------------------------------------------------------------------------


def eight_schools():
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    errors = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def model(errors, y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", 8):
            z = numpyro.sample("z", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(mu + tau * z, errors), obs=y)

    return model, (errors, y)


def correlated_logistic():
    rng = np.random.default_rng(0)
    x = 0.97 * rng.standard_normal((200, 1)) + 0.25 * rng.standard_normal((200, 10))
    y = (rng.random(200) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, 10)))).astype(int)

    def model(x, y):
        beta = numpyro.sample("beta", dist.Normal(0, 5).expand([10]).to_event(1))
        intercept = numpyro.sample("intercept", dist.Normal(0, 5))
        numpyro.sample("y", dist.BernoulliLogits(x @ beta + intercept), obs=y)

    return model, (x, y)


def hierarchical_linear():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(20), 10)
    x = rng.standard_normal(200)
    levels, slopes = 1 + 0.7 * rng.standard_normal(20), -0.5 + 0.3 * rng.standard_normal(20)
    y = levels[group] + slopes[group] * x + 0.8 * rng.standard_normal(200)

    def model(group, x, y):
        mean = numpyro.sample("mean", dist.Normal(0, 5).expand([2]).to_event(1))
        spread = numpyro.sample("spread", dist.HalfNormal(2).expand([2]).to_event(1))
        sd = numpyro.sample("sd", dist.HalfNormal(2))
        with numpyro.plate("group", 20):
            z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
        own = mean + spread * z
        numpyro.sample("y", dist.Normal(own[group, 0] + own[group, 1] * x, sd), obs=y)

    return model, (group, x, y)


def gaussian_process():
    rng = np.random.default_rng(2)
    x = np.linspace(0, 5, 20)
    y = rng.poisson(np.exp(1.0 + np.sin(x)))

    def model(x, y):
        width = numpyro.sample("width", dist.LogNormal(0, 0.5))
        height = numpyro.sample("height", dist.HalfNormal(1))
        level = numpyro.sample("level", dist.Normal(1, 1))
        kernel = jnp.exp(-0.5 * ((x[:, None] - x) / width) ** 2) + 1e-6 * jnp.eye(20)
        z = numpyro.sample("z", dist.Normal(0, 1).expand([20]).to_event(1))
        numpyro.sample(
            "y", dist.Poisson(jnp.exp(level + height * jnp.linalg.cholesky(kernel) @ z)), obs=y
        )

    return model, (x, y)


def autoregression():
    rng = np.random.default_rng(3)
    y = np.zeros(150)
    for t in range(2, 150):
        y[t] = 0.3 + 1.2 * y[t - 1] - 0.4 * y[t - 2] + 0.5 * rng.standard_normal()

    def model(y):
        level = numpyro.sample("level", dist.Normal(0, 2))
        phi = numpyro.sample("phi", dist.Normal(0, 1).expand([2]).to_event(1))
        sd = numpyro.sample("sd", dist.HalfNormal(2))
        mean = level + phi[0] * y[1:-1] + phi[1] * y[:-2]
        numpyro.sample("y", dist.Normal(mean, sd), obs=y[2:])

    return model, (y,)


def item_response():
    rng = np.random.default_rng(4)
    skill, hard = rng.standard_normal(40), 1.2 * rng.standard_normal(15)
    y = (rng.random((40, 15)) < 1 / (1 + np.exp(hard - skill[:, None]))).astype(int)

    def model(y):
        spread = numpyro.sample("spread", dist.HalfNormal(2))
        with numpyro.plate("person", 40):
            skill = numpyro.sample("skill", dist.Normal(0, 1))
        with numpyro.plate("item", 15):
            z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.BernoulliLogits(skill[:, None] - spread * z), obs=y)

    return model, (y,)


MODELS = (
    eight_schools,
    correlated_logistic,
    hierarchical_linear,
    gaussian_process,
    autoregression,
    item_response,
)


# --- one run ----------------------------------------------------------------------------------


def run(kernel: NUTS, args: tuple, n_warmup: int) -> dict:
    mcmc = MCMC(
        kernel,
        num_warmup=n_warmup,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.warmup(jax.random.key(n_warmup), *args, extra_fields=("num_steps",), collect_warmup=True)
    warmup = int(mcmc.get_extra_fields()["num_steps"].sum())
    mcmc.run(mcmc.post_warmup_state.rng_key, *args, extra_fields=("num_steps",))
    draws = mcmc.get_samples(group_by_chain=True).values()
    n_eff = min(float(np.min(effective_sample_size(np.asarray(x)))) for x in draws)
    r_hat = max(float(np.max(split_gelman_rubin(np.asarray(x)))) for x in draws)
    steps = int(mcmc.get_extra_fields()["num_steps"].sum())
    return {
        "warmup": warmup,
        "ess": n_eff / (CHAINS * DRAWS),
        "per_gradient": n_eff / steps,
        "r_hat": r_hat,
    }


def enough(runs: dict[str, dict], standard: dict) -> str | None:
    """The shortest warm-up that is; none that is shorter than one that is not."""
    found = None
    for n, one in runs.items():  # from long to short
        if one["ess"] < SHARE * standard["ess"] or one["r_hat"] > R_HAT:
            break
        found = n
    return found


def measure(make) -> dict:
    model, args = make()
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = mvi.fit(model, *args)
    seconds = time.process_time() - began
    return {
        "name": make.__name__,
        "dim": fitted.post.dim,
        "trust": fitted.trust,
        "seconds": seconds,
        "standard": {n: run(NUTS(model), args, n) for n in STANDARD},
        "ours": {n: run(NUTS(model, **nuts.numpyro(fitted)), args, n) for n in OURS},
    }


def kept() -> dict[str, dict]:
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


# --- the page ---------------------------------------------------------------------------------


def line(row: dict) -> tuple[str, list[float]]:
    standard, ours = row["standard"], row["ours"]
    full = standard[str(STANDARD[0])]
    short, least = enough(standard, full), enough(ours, full)
    cells = [row["name"], row["dim"], row["trust"], f"{row['seconds']:.1f}", f"{full['warmup']:,}"]
    cells += [short or "-", least or "-"]
    if least is None:
        return "| " + " | ".join(map(str, [*cells, "-", "-", "-", "-"])) + " |", [np.nan] * 3
    own = ours[least]
    numbers = [one["warmup"] / own["warmup"] for one in (full, standard[short or str(STANDARD[0])])]
    numbers.append(own["per_gradient"] / full["per_gradient"])
    cells += [f"{own['warmup']:,}", *(f"{number:.1f}" for number in numbers)]
    return "| " + " | ".join(map(str, cells)) + " |", numbers


def details(row: dict) -> list[str]:
    return [
        f"| {row['name']} | {kind} {n} | {one['warmup']:,} | {one['ess']:.2f} | "
        f"{one['per_gradient']:.3f} | {one['r_hat']:.3f} |"
        for kind, runs in (("standard", row["standard"]), ("hand-over", row["ours"]))
        for n, one in runs.items()
    ]


def page(rows: list[dict]) -> None:
    print(
        "| model | D | trust | fit, CPU s | gradients of 1000 standard steps | "
        "standard steps enough | hand-over steps enough | their gradients | "
        "gradients saved, x, against 1000 | against enough | ESS a gradient, x |"
    )
    print("|---" * 11 + "|")
    made = [line(row) for row in rows]
    print("\n".join(text for text, _ in made))
    middle = np.nanmedian(np.array([numbers for _, numbers in made]), axis=0)
    print(
        f"\nMedian: {middle[0]:.0f} times fewer gradients in the warm-up than 1000 standard steps, "
        f"{middle[1]:.0f} times fewer than the shortest standard one that is enough (of "
        f"{', '.join(map(str, STANDARD))}; ours of {', '.join(map(str, OURS))}); afterwards "
        f"{middle[2]:.1f} times the effective draws a gradient.\n"
    )
    print("| model | warm-up | its gradients | ESS a draw | ESS a gradient | R-hat |")
    print("|---" * 6 + "|")
    print("\n".join(text for row in rows for text in details(row)))


def main() -> None:
    numpyro.enable_x64()
    wanted = sys.argv[1:] or [make.__name__ for make in MODELS]
    for make in MODELS:
        if make.__name__ in wanted and make.__name__ not in kept():
            row = measure(make)
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
    rows = kept()
    page([rows[make.__name__] for make in MODELS if make.__name__ in rows])


if __name__ == "__main__":
    main()
