"""Posteriors of hyperparameters that are far from normal, with known answers: how wrong the
quantiles of a design and of a lattice are, beside the signs that they give.

    python benchmarks/rough_designs.py     prints the page and writes it

No model: the log density of k hyperparameters and its gradient stand for the evidence. Every one is
that of `theta = M T(n)` with `n` standard normal; its quantiles are those of 2^17 Sobol normals
through the same map. An error is that of a quantile (5, 25, 50, 75, 95%), in standard deviations,
the largest of all hyperparameters.
"""

import contextlib
import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from mixvi._approximate import _explore
from mixvi._approximate._explore import Explored, Place, explored
from mixvi._fit._hyper_posterior import STEEP, UNEVEN
from mixvi._law._surface import Surface
from problems import machine

jax.config.update("jax_enable_x64", True)
PROBS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
N_SOBOL = 2**17
PARTS = pathlib.Path(__file__).resolve().parents[1] / "docs/results/parts"
SIZES = (3, 4, 5, 6, 8)
# Of `largest_ratio`, and what the verdict says there.
EDGES = {
    (0.0, 0.25): "trust",
    (0.25, 0.5): "trust",
    (0.5, 1.0): "trust",
    (1.0, 2.0): "weigh",
    (2.0, 4.0): "reject",
    (4.0, math.inf): "reject",
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """`log_density(theta)` and draws of it; `amount`: how far from normal."""

    kind: str
    amount: float
    k: int
    log_density: Callable
    draws: Callable  # of a table of standard normals


def mixed(kind: str, amount: float, k: int, log_density: Callable, draws: Callable) -> Shape:
    """Correlated: `theta = M x`."""
    rng = np.random.default_rng(k)
    mix = np.linalg.qr(rng.standard_normal((k, k)))[0] @ np.diag(np.linspace(0.5, 1.5, k))
    mix = mix @ np.linalg.qr(rng.standard_normal((k, k)))[0]
    back = np.linalg.inv(mix)
    return Shape(kind, amount, k, lambda t: log_density(back @ t), lambda n: draws(n) @ mix.T)


def skewed(shape: float, k: int) -> Shape:
    """Logs of gammas: precisions, with `shape` half the degrees of freedom."""
    scale = 1 / math.sqrt(special.polygamma(1, shape))

    def log_density(x):
        x = x / scale
        return (shape * x - shape * jnp.exp(x)).sum()

    def draws(n):
        return scale * np.log(special.gammaincinv(shape, special.ndtr(n)) / shape)

    return mixed("logs of gammas", shape, k, log_density, draws)


def one_tail(slope: float, k: int) -> Shape:
    """A scale that may be zero: its log has an exponential tail to the left."""

    def one(x):  # log of a half-normal whose log has slope `slope` to the left
        return slope * x - 0.5 * jnp.exp(2 * x)

    def draws(n):
        u = special.ndtr(n[:, 0])
        first = 0.5 * np.log(2 * special.gammaincinv(slope / 2, u))
        return np.column_stack([first, n[:, 1:]])

    return mixed("one exponential tail", slope, k, lambda x: one(x[0]) - 0.5 * x[1:] @ x[1:], draws)


def bent(bend: float, k: int) -> Shape:
    def log_density(x):
        return -0.5 * x[0] ** 2 - 0.5 * (x[1] - bend * x[0] ** 2) ** 2 - 0.5 * x[2:] @ x[2:]

    def draws(n):
        return np.column_stack([n[:, 0], n[:, 1] + bend * n[:, 0] ** 2, n[:, 2:]])

    return mixed("bananas", bend, k, log_density, draws)


def funnel(spread: float, k: int) -> Shape:
    def log_density(x):
        rest = jnp.exp(-spread * x[0]) * (x[1:] @ x[1:])
        return -0.5 * x[0] ** 2 - 0.5 * rest - 0.5 * (k - 1) * spread * x[0]

    def draws(n):
        return np.column_stack([n[:, 0], np.exp(0.5 * spread * n[:, :1]) * n[:, 1:]])

    return mixed("funnels", spread, k, log_density, draws)


def bumps(width: float, k: int) -> Shape:
    """Two of the same mass, four standard deviations of the wider one apart."""

    def log_density(x):
        second = x.at[0].add(-4.0) / width
        return jnp.logaddexp(-0.5 * x @ x, -0.5 * second @ second - k * math.log(width))

    def draws(n):
        # Every other point of a Sobol sequence lies in one half of the cube.
        is_second = np.random.default_rng(0).permutation(len(n)) % 2 == 1
        return np.where(is_second[:, None], width * n + 4.0 * np.eye(k)[0], n)

    return mixed("two bumps", width, k, log_density, draws)


def heavy(freedom: float, k: int) -> Shape:
    def log_density(x):
        return -0.5 * (freedom + 1) * jnp.log1p(x**2 / freedom).sum()

    def draws(n):
        return stats.t(freedom).ppf(special.ndtr(n))

    return mixed("Student's t", freedom, k, log_density, draws)


def shapes(k: int) -> list[Shape]:
    made = [skewed(a, k) for a in (50.0, 20.0, 10.0, 5.0, 3.0, 2.0, 1.0, 0.5)]
    made += [one_tail(a, k) for a in (8.0, 4.0, 2.0, 1.0)]
    made += [bent(a, k) for a in (0.1, 0.2, 0.3, 0.5, 0.8)]
    made += [funnel(a, k) for a in (0.2, 0.4, 0.7, 1.0)]
    made += [heavy(a, k) for a in (40.0, 20.0, 10.0, 6.0)]
    if k == _explore.ON_LATTICE:  # to see where that ends
        made += [one_tail(0.4, k), *(bent(a, k) for a in (1.2, 1.6, 2.0, 2.5, 4.0))]
        made += [funnel(1.5, k), heavy(3.0, k), *(bumps(a, k) for a in (1.0, 0.5, 0.3))]
    return made


@functools.cache
def normals(k: int) -> np.ndarray:
    cube = stats.qmc.Sobol(k, seed=0).random(N_SOBOL)
    return special.ndtri(np.clip(cube, 1e-12, 1 - 1e-12))


def asked(shape: Shape) -> Callable:
    both = jax.jit(jax.value_and_grad(shape.log_density))

    def ask(theta, near):
        del near
        value, slope = both(theta)
        return Place(theta, float(value), np.asarray(slope), None)

    return ask


def surface(found: Explored) -> Surface:
    names = tuple(f"t{j}" for j in range(found.z.shape[1]))
    frame = found.frame
    at = (names, frame.centre, frame.basis, frame.scales, found.z, found.values, found.slopes)
    return Surface(*at, step=found.step or 0.0)


def largest_error(shape: Shape, found: Explored, way: str = "weighted") -> float:
    truth, made = shape.draws(normals(shape.k)), surface(found)
    errors = []
    for j, one in enumerate(truth.T):
        marginal = made._of_split_normal(j) if way == "split" else made.marginal(j)
        off = marginal.quantiles(PROBS) - np.quantile(one, PROBS)
        errors.append(np.abs(off).max() / one.std())
    return float(max(errors))


@contextlib.contextmanager
def lattice_from(ratio: float) -> Iterator[None]:
    before, _explore.ROUGH = _explore.ROUGH, ratio
    yield
    _explore.ROUGH = before


def measured(k: int) -> Iterator[dict[str, Any]]:
    for shape in shapes(k):
        with lattice_from(math.inf):
            design = explored(asked(shape), np.zeros(k))
        assert design is not None
        made = {"kind": shape.kind, "amount": shape.amount, "k": k, "ratio": design.ratio}
        made |= {"fits": design.n_asked, "split": largest_error(shape, design, "split")}
        made |= {"weighted": largest_error(shape, design)}
        if k == _explore.ON_LATTICE:
            with lattice_from(-1.0):
                lattice = explored(asked(shape), np.zeros(k))
            assert lattice is not None
            made |= {"lattice": largest_error(shape, lattice), "uneven": lattice.uneven}
            made |= {"points": len(lattice.places), "lattice_fits": lattice.n_asked}
            made |= {"steep": lattice.steep, "verdict": verdict(design, lattice)}
        yield made


def verdict(design: Explored, lattice: Explored) -> str:
    """Of what a fit would take."""
    if not design.ratio > _explore.ROUGH:
        return "trust (the design)"
    signs = ((lattice.uneven, UNEVEN), (lattice.steep, STEEP))
    is_cut = bool(lattice.open_axes) or lattice.ended_early
    if is_cut or any(value > limits[1] for value, limits in signs):
        return "reject"
    return "weigh" if any(value > limits[0] for value, limits in signs) else "trust"


def page() -> str:
    rows = [one for k in SIZES for one in measured(k)]
    lines = [
        "Largest error of a quantile (5 to 95%) of a hyperparameter, in its standard deviations, "
        "by `largest_ratio`: nats by which a design's points, or over a standard deviation its "
        f"slopes, differ from a normal. {len(rows)} densities of {listed(SIZES)} hyperparameters "
        "whose quantiles are known. Median, and the largest.",
        "",
        "| `largest_ratio` | three: densities | split normal | design | lattice | four to eight: "
        "densities | split normal | design | verdict of four and more |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (low, high), verdict in EDGES.items():
        some = [one for one in rows if low < one["ratio"] <= high]
        three, more = (
            [one for one in some if (one["k"] == 3) is is_three] for is_three in (True, False)
        )
        cells = [f"{low:g} to {high:g}" if high < math.inf else f"above {low:g}", str(len(three))]
        cells += [spread(three, way) for way in ("split", "weighted", "lattice")]
        cells += [str(len(more)), *(spread(more, way) for way in ("split", "weighted")), verdict]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        f"Three hyperparameters go on to the lattice above {_explore.ROUGH:g} nat.",
        "",
        "| three hyperparameters | `largest_ratio` | fits | split normal | design | lattice: fits "
        "| points | halves differ by, nat | steepness | error | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        if one["k"] == 3:
            lines.append(
                f"| {one['kind']}, {one['amount']:g} | {one['ratio']:.2f} | {one['fits']} "
                f"| {one['split']:.3f} | {one['weighted']:.3f} | {one['lattice_fits']} "
                f"| {one['points']} | {one['uneven']:.2f} | {one['steep']:.2f} "
                f"| {one['lattice']:.3f} | {one['verdict']} |"
            )
    lines += [
        "",
        "Logs of gammas by their shape; bananas by their bend; funnels by how much a standard "
        "normal moves the log variance of the others; an exponential tail by its slope; Student's "
        "t by its degrees of freedom; two bumps, four standard deviations apart, by the second "
        'one\'s width; the coordinates mixed by one matrix. "Split normal": the marginals of '
        'other scales up and down each axis, which the weights of "design" correct. Steepness: '
        "the mean square slope over the lattice, one for a normal. A second mode that the design "
        "does not meet (two bumps, 0.5 and 0.3) is not seen: these are trusted and wrong, and "
        "nothing else is.",
        "",
        f"Made by `benchmarks/rough_designs.py` on {machine()}.",
    ]
    return "\n".join(lines) + "\n"


def spread(rows: list[dict[str, Any]], way: str) -> str:
    errors = [one[way] for one in rows]
    return f"{np.median(errors):.2f}, {max(errors):.2f}" if errors else "-"


def listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes[:-1])) + f" and {sizes[-1]}"


def main() -> None:
    made = page()
    (PARTS / "rough_designs.md").write_text(made, encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
