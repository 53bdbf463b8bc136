"""One Gaussian against a mixture: seven shapes with exact answers, nineteen posteriors with NUTS.

    python benchmarks/mixtures.py [NAME ...]    goes on where it stopped; prints the page
    python benchmarks/mixtures.py --page        the page alone

Rows are kept in docs/results/parts/mixtures_rows.jsonl, a posterior a line. Distance: log evidence
less the bound, over 20,000 fresh draws that neither fit has seen. The log evidence is exact for the
shapes; of the posteriors it is what weighted draws of the mixture say, and with a k-hat above 0.7
that is too low. Errors of means in standard deviations, of standard deviations as a ratio, at the
worst parameter, against exact answers or long runs of NUTS. Times: warm, CPU, one Gaussian and the
mixture by turns, the median of three (of one where a fit takes more than five seconds).
"""

import argparse
import dataclasses
import json
import math
import pathlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import fresh
import mixvi
from hard import reference, told
from mixvi._judge._psis import psis
from posteriors import PROBLEMS
from problems import machine

ROWS = pathlib.Path(__file__).resolve().parent.parent / "docs/results/parts/mixtures_rows.jsonl"
N_FRESH, BLOCK, ENOUGH = 20_000, 4000, 5.0
BEND = 0.25
MASSES = {2: np.array([0.35, 0.65]), 5: np.array([0.1, 0.15, 0.2, 0.25, 0.3])}
WIDTHS = {2: np.array([1.0, 0.3]), 5: np.array([1.0, 0.5, 2.0, 0.7, 1.3])}


@dataclasses.dataclass(frozen=True)
class Shape:
    """`mean`, `sd`: exact, or those of NUTS; `masses`: of far modes, at `centres`."""

    log_density: Callable
    init: Any
    data: Any = None
    log_evidence: float | None = None
    mean: Any = None
    sd: Any = None
    centres: Any = None
    masses: Any = None
    options: dict = dataclasses.field(default_factory=dict)


def banana(w):
    return -0.5 * w[0] ** 2 - 0.5 * ((w[1] - w[0] ** 2) / BEND) ** 2


def funnel(w):
    v, x = w[0], w[1:]
    return -0.5 * (v / 3) ** 2 - 0.5 * (x**2).sum() * jnp.exp(-v) - 0.5 * len(x) * v


def ring(w):
    return -0.5 * ((jnp.sqrt((w**2).sum() + 1e-12) - 3) / 0.3) ** 2


TURN = np.array([[0.8, -0.6], [0.6, 0.8]])


def skewed(w):
    """Logs of two Gamma(1/2) variables, turned."""
    u = TURN @ w
    return (0.5 * u - jnp.exp(u)).sum()


def far(centres, n):
    masses, widths = MASSES[n], WIDTHS[n]

    def log_density(w):
        z = (w - centres) / widths[:, None]
        scale = 2 * jnp.log(widths) + jnp.log(2 * jnp.pi)
        return jnp.logaddexp.reduce(jnp.log(masses) - 0.5 * (z**2).sum(1) - scale)

    return log_density


def far_modes(n, **options):
    if n == 2:
        centres = np.array([[0.0, 0.0], [12.0, -8.0]])
    else:
        turn = 2 * np.pi * np.arange(n) / n
        centres = 15 * np.stack([np.cos(turn), np.sin(turn)], 1)
    masses, widths = MASSES[n], WIDTHS[n]
    mean = masses @ centres
    sd = np.sqrt(masses @ (widths[:, None] ** 2 + (centres - mean) ** 2))
    log_density = far(centres, n)
    return Shape(log_density, centres[0], None, 0.0, mean, sd, centres, masses, options)


def funnel_of(dim):
    sd = np.full(dim, math.exp(9 / 4))
    sd[0] = 3.0
    log_z = 0.5 * dim * math.log(2 * math.pi) + math.log(3)
    return Shape(funnel, np.zeros(dim), None, log_z, np.zeros(dim), sd)


def ring_shape():
    r = np.linspace(0, 6, 200_001)
    mass = r * np.exp(-0.5 * ((r - 3) / 0.3) ** 2)
    log_z = math.log(2 * math.pi * mass.sum() * (r[1] - r[0]))
    sd = math.sqrt(0.5 * (mass @ r**2) / mass.sum())
    return Shape(ring, np.array([1.0, 2.0]), None, log_z, np.zeros(2), np.full(2, sd))


def skewed_pair():
    mean = TURN.T @ np.full(2, -np.euler_gamma - 2 * math.log(2))  # digamma(1/2)
    sd = np.full(2, math.pi / math.sqrt(2))  # trigamma(1/2) is pi^2 / 2
    return Shape(skewed, np.zeros(2), None, math.log(math.pi), mean, sd)


SHAPES: dict[str, Callable[[], Shape]] = {
    "banana": lambda: Shape(
        banana,
        np.zeros(2),
        None,
        math.log(2 * math.pi * BEND),
        np.array([0.0, 1.0]),
        np.array([1.0, math.sqrt(2 + BEND**2)]),
    ),
    "funnel, 3-D": lambda: funnel_of(3),
    "funnel, 10-D": lambda: funnel_of(10),
    "two far modes": lambda: far_modes(2),
    "five far modes": lambda: far_modes(5, n_restarts=20),
    "ring": ring_shape,
    "skewed pair": skewed_pair,
}


def posterior(name: str) -> Shape:
    one, truth = PROBLEMS[name](), reference(name)
    mean, sd = np.array(truth["mean"]), np.array(truth["sd"])
    return Shape(one.log_density, one.init, one.data, None, mean, sd)


def fit(shape: Shape, family: str) -> mixvi.Posterior:
    given = shape.log_density, shape.init, shape.data
    return mixvi.fit(*given, family=family, throw=False, **shape.options)


def ratios(shape: Shape, post: mixvi.Posterior) -> np.ndarray:
    """`log p~ - log q` at fresh draws."""
    density = fresh.density(shape.log_density, shape.init, shape.data)
    points = np.asarray(post.law.sample(12345, N_FRESH), dtype=np.float64)
    log_p = [density.values(points[i : i + BLOCK]) for i in range(0, N_FRESH, BLOCK)]
    return np.concatenate(log_p) - post.law.log_prob(points)


def of_fit(shape: Shape, post: mixvi.Posterior, log_ratio: np.ndarray, log_z: float) -> dict:
    ratio = post.flat_std / shape.sd
    found = {
        "family": post.family,
        "components": len(post.law.weights),
        "distance": float(log_z - log_ratio.mean()),
        "se": float(log_ratio.std() / math.sqrt(len(log_ratio))),
        "mean_off": float(np.abs((post.flat_mean - shape.mean) / shape.sd).max()),
        "sd_off": float(np.maximum(ratio, 1 / ratio).max()),
        "khat": float(psis(log_ratio)[1]),
        "trust": post.trust,
        "gradients": post.stats.gradients,
        "verdict": post.verdict,
        "told": told(post),
    }
    if shape.masses is not None:
        means = np.stack([one.mean for one in post.law.components])
        nearest = np.argmin(np.linalg.norm(means[:, None] - shape.centres, axis=2), axis=1)
        weights = np.bincount(nearest, post.law.weights, len(shape.masses))
        found["weights_off"] = float(np.abs(weights - shape.masses).max())
    return found


def row(name: str) -> dict:
    shape = SHAPES[name]() if name in SHAPES else posterior(name)
    times: dict[str, list[float]] = {"auto": [], "mixture": []}
    posts = {"auto": fit(shape, "auto")}  # compiled
    for _ in range(3):
        for family, its in times.items():
            began = time.process_time()
            posts[family] = fit(shape, family)
            its.append(time.process_time() - began)
        if max(times["mixture"]) > ENOUGH:
            break
    log_ratio = {family: ratios(shape, post) for family, post in posts.items()}
    log_z = shape.log_evidence
    if log_z is None:
        log_z = max(
            float(np.logaddexp.reduce(one) - math.log(len(one))) for one in log_ratio.values()
        )
    made = {family: of_fit(shape, posts[family], log_ratio[family], log_z) for family in posts}
    middle = {family: statistics.median(its) for family, its in times.items()}
    dim = posts["auto"].dim
    return {"name": name, "dim": dim, "seconds": middle, "repeats": len(times["auto"]), **made}


def rows() -> list[dict]:
    if not ROWS.exists():
        return []
    return [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]


WORDS = {"trust": "Trust", "weigh": "Use with", "reject": "Do not trust", None: "-"}


def table(some: list[dict], exact: bool) -> str:
    lines = [
        "| | D | components | distance | mean off, sd | sd off, ratio | k-hat | verdict | time, x |"
        + " weights off |" * exact,
        "|---|---|---|---|---|---|---|---|---|" + "---|" * exact,
    ]
    for one in some:
        a, b = one["auto"], one["mixture"]
        cells = [one["name"], one["dim"], b["components"]]
        cells += [f"{a['distance']:.3f} → {b['distance']:.3f}"]
        for key, digits in (("mean_off", 2), ("sd_off", 2), ("khat", 2)):
            cells += [f"{a[key]:.{digits}f} → {b[key]:.{digits}f}"]
        cells += [f"{WORDS[a['trust']]} → {WORDS[b['trust']]}"]
        cells += [f"{one['seconds']['mixture'] / one['seconds']['auto']:.1f}"]
        if exact:
            cells += [f"{b['weights_off']:.4f}" if "weights_off" in b else "-"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def is_bad(fit: dict) -> bool:
    return fit["mean_off"] > 0.5 or fit["sd_off"] > 1.5


def page() -> str:
    kept = {one["name"]: one for one in rows()}
    shapes = [kept[name] for name in SHAPES if name in kept]
    hard = [kept[name] for name in PROBLEMS if name in kept]
    told = [one for one in hard if one["auto"]["trust"] == "reject"]
    mended = [one for one in told if one["mixture"]["trust"] != "reject"]
    wrong = [
        one["name"]
        for one in [*shapes, *hard]
        if one["mixture"]["trust"] != "reject" and is_bad(one["mixture"])
    ]
    lines = [
        'Every cell: the best Gaussian (`fit` with defaults) → `family="mixture"`. Distances in '
        "nats over 20,000 fresh draws.",
        "",
        "### Shapes with exact answers",
        "",
        table(shapes, True),
        "",
        "### Posteriors that NUTS has judged",
        "",
        table(hard, False),
        "",
        f'Of {len(told)} posteriors whose best Gaussian is "Do not trust", {len(mended)} are '
        '"Trust" or "Use with" as mixtures. Mixtures that are wrong (a mean off by over 0.5 sd or '
        f'an sd by over 1.5 times) and not "Do not trust": {", ".join(wrong) or "none"}.',
        "",
        f"{len(kept)} rows; times {machine()}.",
    ]
    if missing := [name for name in PROBLEMS if name not in kept]:
        lines += ["", f"Not measured yet: {', '.join(missing)}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--page", action="store_true", help="the page alone")
    asked = parser.parse_args()
    done = {one["name"] for one in rows()}
    wanted = [] if asked.page else asked.names or [*SHAPES, *PROBLEMS]
    for name in wanted:
        if name in done:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = row(name)
        with ROWS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
        print(name, one["auto"]["distance"], one["mixture"]["distance"], file=sys.stderr)
    print(page())


if __name__ == "__main__":
    main()
