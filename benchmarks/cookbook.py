"""The cookbook's pages, run as they stand, with NUTS beside every fit that they make.

    python benchmarks/cookbook.py                 runs all pages: rows, tables and pictures
    python benchmarks/cookbook.py survival ode    runs these
    python benchmarks/cookbook.py --tables        writes the tables of the pages anew, from the rows

A page's Python blocks are run in a process of their own, and every call of `mixvi.fit` is kept.
NUTS (NumPyro) then samples the log density of each call in float64: four chains one after the
other, 1000 draws of warm-up and 1000 kept; learnt hyperparameters are held. Bounds are NumPyro's
own transforms, not mixvi's. Times are CPU seconds, compilation included, imports not. Rows are in
docs/cookbook/nuts.json; the pictures that a page saves go to docs/figures/cookbook.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "cookbook"
ROWS = PAGES / "nuts.json"
PICTURES = ROOT / "docs" / "figures" / "cookbook"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
TABLE = re.compile(r"(<!-- nuts -->\n).*?(<!-- end -->)", re.DOTALL)
N_CHAINS, N_WARMUP, N_DRAWS = 4, 1000, 1000
HEAD = ("fit", "says", "means off by", "sds, times NUTS", "CPU seconds", "NUTS", "NUTS: ESS")


def names() -> list[str]:
    return sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "index")


# --- in a process of its own ------------------------------------------------------------------


def run_page(name: str) -> list[dict]:
    """The rows of its fits; pictures are left in the current folder."""
    import mixvi

    calls, fit = [], mixvi.fit

    def kept(log_density, init, data=None, **options):
        began = time.process_time()
        post = fit(log_density, init, data, **options)
        calls.append((log_density, init, data, options, post, time.process_time() - began))
        return post

    mixvi.fit = kept
    namespace: dict = {}
    for block in PYTHON.findall((PAGES / f"{name}.md").read_text(encoding="utf-8")):
        exec(compile(block, name, "exec"), namespace)
    return [beside(*call, name_of(call[4], namespace)) for call in calls]


def name_of(post, namespace: dict) -> str:
    return next(name for name, value in namespace.items() if value is post)


def beside(log_density, init, data, options: dict, post, seconds: float, name: str) -> dict:
    import jax
    import numpy as np

    ends = () if data is None else (data,)
    if post.hyper is not None:
        ends = (post.hyper, *ends)
    draws, told = nuts(lambda w: log_density(w, *ends), init, options.get("constraints") or {})
    mean, sd = (jax.tree.map(lambda x, f=f: f(x, axis=(0, 1)), draws) for f in (np.mean, np.std))
    parameters = post._shown.names
    flat = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(t)]) for t in (mean, sd)]
    ours = [
        np.concatenate([np.ravel(x) for x in jax.tree.leaves(t)]) for t in (post.mean, post.std)
    ]
    off, ratio = np.abs(ours[0] - flat[0]) / flat[1], ours[1] / flat[1]
    return {
        "fit": name,
        "dim": post.dim,
        "trust": post.trust,
        "seconds": round(seconds, 2),
        "mean_off": round(float(off.max()), 4),
        "mean_off_at": parameters[int(off.argmax())],
        "sd_ratio": [round(float(ratio.min()), 4), round(float(ratio.max()), 4)],
        "sd_ratio_at": [parameters[int(ratio.argmin())], parameters[int(ratio.argmax())]],
        **told,
    }


def nuts(log_density, init, bounds: dict) -> tuple[dict, dict]:
    """Draws of the user's parameters, with chains and draws in front; and how it went."""
    import jax
    import numpy as np
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    transforms = {leaf: transform_of(bound) for leaf, bound in bounds.items()}
    init = {name: np.asarray(value, np.float64) for name, value in init.items()}

    def potential(u):
        w = {name: transforms[name](x) if name in transforms else x for name, x in u.items()}
        log_dets = [t.log_abs_det_jacobian(u[k], w[k]).sum() for k, t in transforms.items()]
        return -(log_density(w) + sum(log_dets))

    rng = np.random.default_rng(0)
    start = {k: np.asarray(transforms[k].inv(x)) if k in transforms else x for k, x in init.items()}
    spread = {k: x + rng.uniform(-0.3, 0.3, (N_CHAINS, *x.shape)) for k, x in start.items()}
    began = time.process_time()
    mcmc = MCMC(
        NUTS(potential_fn=potential),
        num_warmup=N_WARMUP,
        num_samples=N_DRAWS,
        num_chains=N_CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), init_params=spread, extra_fields=("diverging",))
    draws = {k: np.asarray(x) for k, x in mcmc.get_samples(group_by_chain=True).items()}
    seconds = time.process_time() - began
    told = {
        "nuts_seconds": round(seconds, 1),
        "ess": int(min(np.min(effective_sample_size(x)) for x in draws.values())),
        "rhat": round(float(max(np.max(split_gelman_rubin(x)) for x in draws.values())), 3),
        "divergences": int(np.sum(mcmc.get_extra_fields()["diverging"])),
    }
    draws = {k: np.asarray(transforms[k](x)) if k in transforms else x for k, x in draws.items()}
    return {name: draws[name] for name in sorted(init)}, told


def transform_of(bound):
    from numpyro.distributions import biject_to, constraints

    kinds = {
        "positive": constraints.positive,
        "unit": constraints.unit_interval,
        "ordered": constraints.ordered_vector,
        "simplex": constraints.simplex,
    }
    return biject_to(kinds[bound])


# --- what the pages show ----------------------------------------------------------------------


def table(rows: list[dict]) -> str:
    """One line for every fit of a page."""
    lines = [HEAD, ["---"] * len(HEAD)]
    for row in rows:
        (low, high), (low_at, high_at) = row["sd_ratio"], row["sd_ratio_at"]
        divergent = f", {row['divergences']} divergent" if row["divergences"] else ""
        lines.append(
            [
                f"`{row['fit']}`, {row['dim']} parameters",
                row["trust"],
                f"{row['mean_off']:.2f} sd (`{row['mean_off_at']}`)",
                f"{low:.2f} (`{low_at}`) to {high:.2f} (`{high_at}`)",
                f"{row['seconds']:.1f}",
                f"{row['nuts_seconds']:.0f}",
                f"{row['ess']}{divergent}",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_table(text: str, rows: list[dict]) -> str:
    return TABLE.sub(lambda found: f"{found[1]}\n{table(rows)}\n\n{found[2]}", text)


def read() -> dict[str, list[dict]]:
    return json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}


def written(rows: dict[str, list[dict]]) -> None:
    ROWS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for name, some in rows.items():
        path = PAGES / f"{name}.md"
        path.write_text(with_table(path.read_text(encoding="utf-8"), some), encoding="utf-8")


def measured(name: str) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", name]
        environment = {**os.environ, "MPLBACKEND": "Agg"}
        done = subprocess.run(
            command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        for picture in pathlib.Path(folder).glob("*.png"):
            shutil.copy(picture, PICTURES)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="pages; all when left out")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_page(options.child)))
        return
    rows = read()
    for name in [] if options.tables else options.names or names():
        rows[name] = measured(name)
        written(rows)
        print(f"{name}\n{table(rows[name])}\n", flush=True)
    written(rows)


if __name__ == "__main__":
    main()
