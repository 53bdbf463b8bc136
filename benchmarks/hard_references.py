"""Long runs of NUTS (NumPyro) on every posterior of `posteriors.py`: the judge of `hard.py`.

    python benchmarks/hard_references.py NAME ...      writes benchmarks/references/NAME.json

NumPyro is needed here alone; the stored moments are what `hard.py` reads.
"""

import json
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.flatten_util import ravel_pytree
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

from posteriors import PROBLEMS, Problem

KEPT = pathlib.Path(__file__).resolve().parent / "references"
N_CHAINS, N_WARMUP, N_DRAWS, ACCEPT = 8, 1500, 2500, 0.95


def reference(problem: Problem) -> dict:
    log_density, init, back = problem.judge or (problem.log_density, problem.init, lambda w: w)
    data = jax.tree.map(jnp.asarray, problem.data)
    flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, init))
    # A dense metric where warm-up can learn one.
    kernel = NUTS(
        potential_fn=lambda w: -log_density(unravel(w), data),
        dense_mass=flat.size <= 150,
        target_accept_prob=ACCEPT,
    )
    mcmc = MCMC(
        kernel,
        num_warmup=N_WARMUP,
        num_samples=N_DRAWS,
        num_chains=N_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    rng = np.random.default_rng(0)
    starts = flat + 0.1 * rng.standard_normal((N_CHAINS, flat.size))
    began = time.monotonic()
    mcmc.run(jax.random.key(0), init_params=starts, extra_fields=("diverging", "num_steps"))
    draws = jax.vmap(jax.vmap(lambda w: ravel_pytree(back(unravel(w)))[0]))(
        mcmc.get_samples(group_by_chain=True)
    )
    draws, extra = np.asarray(draws), mcmc.get_extra_fields()
    ess = effective_sample_size(draws)
    of_squares = effective_sample_size((draws - draws.mean((0, 1))) ** 2)
    return {
        "name": problem.name,
        "mean": draws.mean((0, 1)).tolist(),
        "sd": draws.std((0, 1)).tolist(),
        "n_draws": N_CHAINS * N_DRAWS,
        "n_chains": N_CHAINS,
        "rhat": float(split_gelman_rubin(draws).max()),
        "ess": float(ess.min()),
        "ess_of_squares": float(of_squares.min()),
        "divergences": int(extra["diverging"].sum()),
        "steps_per_draw": float(np.mean(extra["num_steps"])),
        "seconds": round(time.monotonic() - began),
        "numpyro": numpyro.__version__,
    }


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    KEPT.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PROBLEMS:
        found = reference(PROBLEMS[name]())
        path = KEPT / f"{name}.json"
        path.write_text(json.dumps(found) + "\n", encoding="utf-8")
        print(name, {k: v for k, v in found.items() if k not in ("mean", "sd")}, flush=True)


if __name__ == "__main__":
    main()
