"""The adaptation, compiled: from a Laplace Gaussian and fixed draws to a better Gaussian.

Pure functions of arrays, so that one problem or a batch of them runs the same code.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._draws import Nodes
from .._errors import Code
from .._target import Target
from . import _families
from ._elbo import Bound, Expectation, Tilt, expectation, log_densities, nodes_error
from ._evidence import Tuned, tuned_laplace
from ._families import Family, Matrix
from ._flow import Core
from ._laplace import Laplace, Root, eigen_root
from ._look import Inspection, best_width, inspect, lost_to_rule, rough_start
from ._optimise import Minimum, bfgs, lbfgs, scaled_conjugate_gradients
from ._stein import Past, stein

Steps = int | Int[Array, ""]
Points = Float[Array, "draws dim"] | Nodes
# A dense inverse Hessian of more numbers than this squared is not worth its memory.
MOST_DENSE = 2000


class Adapted(eqx.Module):
    """Where the search over the bound ended, and the Gaussian that is there."""

    params: Float[Array, " free"]  # of a family; after Stein steps the hyperparameters' alone
    mean: Float[Array, " dim"]
    root: Matrix
    tilt: Tilt
    theta: Float[Array, " hyper"]
    theta_gradient: Float[Array, " hyper"]  # of the bound
    # the fields of AdaptedNumbers in one array: fetched at once
    numbers: Float[Array, " 6"]
    past: Past | None = None  # what Stein steps have learnt

    @property
    def told(self) -> "AdaptedNumbers":
        return AdaptedNumbers.fetched(self.numbers)

    def counted(self, more: int) -> "Adapted":
        """With passes that were made before."""
        numbers = jnp.asarray(self.numbers).at[2].add(more)
        return eqx.tree_at(lambda a: a.numbers, self, numbers)


class AdaptedNumbers(NamedTuple):
    """The bound on the fixed draws, its largest gradient, and what the search cost: passes (value
    and gradient), values alone, Hessian products."""

    elbo: float
    gradient: float
    n_passes: int
    n_values: int
    n_products: int
    code: Code

    @classmethod
    def fetched(cls, numbers: Float[Any, " 6"]) -> "AdaptedNumbers":
        elbo, gradient, *counts = np.asarray(numbers).tolist()
        n_passes, n_values, n_products, code = map(int, counts)
        return cls(elbo, gradient, n_passes, n_values, n_products, Code(code))


def climb(
    target: Target,
    start: Laplace,
    tuned: Tuned,
    points: Points,
    family: Family,
    optimiser: str,
    tol: float,
    max_steps: Steps,
    memory: int,
) -> Adapted:
    """From the Laplace Gaussian through the poorer families, each from where the last ended.

    A family contains its poorer one exactly on the same draws and no search ever goes down, so a
    richer family never ends below a poorer one.
    """
    over, root = expectation(target, points, memory), family.root(start)
    tilt = tilted(target, start, tuned, root, over)
    dim, dtype = start.mode.size, start.mode.dtype
    m, a, tau = jnp.zeros(dim, dtype), jnp.eye(dim, dtype=dtype), jnp.zeros_like(tilt.theta)
    n_passes, n_values, n_products = jnp.zeros((3,), int)
    bound, found = None, None
    for rung in ladder(family):
        bound = Bound(target, start.mode, root, tilt, over, rung)
        params, tried = _best_start(bound, rung, start, m, a, tau, found)
        found = minimise(bound, params, optimiser, tol, max_steps)
        n_passes = n_passes + found.n_passes + rung.start_is_stationary
        n_values, n_products = n_values + tried, n_products + found.n_products
        m, phi, tau = bound.parts(found.point)
        a = rung.after(jnp.eye(dim, dtype=dtype), phi)
    assert bound is not None
    assert found is not None
    return _gaussian(bound, found, n_passes, n_values, n_products)


def tilted(target: Target, start: Laplace, tuned: Tuned, root: Root, over: Expectation) -> Tilt:
    """Coordinates for the hyperparameters in which the bound curves by one at the start.

    No unit of them is more than one of the user's own.
    """
    n = tuned.theta.size
    tilt = Tilt(tuned.theta, jnp.eye(n, dtype=tuned.theta.dtype), tuned.drift)
    if n == 0:
        return tilt
    bound = Bound(target, start.mode, root, tilt, over, _families.MeanOnly())
    here = jnp.zeros(start.mode.size + n, start.mode.dtype)
    units = jnp.eye(n, here.size, start.mode.size, dtype=here.dtype)
    block = lax.map(lambda v: bound.loss_product(here, v)[-n:], units)
    block = jnp.where(jnp.isfinite(block).all(), block, jnp.eye(n, dtype=here.dtype))
    values, vectors = jnp.linalg.eigh(0.5 * (block + block.T))
    scale = vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), 1.0))
    return Tilt(tuned.theta, scale, tuned.drift @ scale)


def resume(
    target: Target,
    start: Laplace,
    tilt: Tilt,
    params: Float[Array, " free"],
    points: Points,
    family: Family,
    optimiser: str,
    tol: float,
    max_steps: Steps,
    memory: int,
) -> Adapted:
    """From parameters of the same family: more draws, or a warm start."""
    over = expectation(target, points, memory)
    bound = Bound(target, start.mode, family.root(start), tilt, over, family)
    found = minimise(bound, params, optimiser, tol, max_steps)
    return _gaussian(bound, found, found.n_passes, jnp.array(0), found.n_products)


def nearest(
    start: Laplace, family: Family, mean: Float[Array, " dim"], root: Matrix
) -> Float[Array, " free"]:
    """The parameters of `family` around `start` nearest to the Gaussian `(mean, root root^T)`."""
    around = family.root(start)
    dense = jnp.diag(root) if root.ndim == 1 else root
    m = around.unshift(mean - start.mode)
    if around.matrix.ndim == 1:
        a = dense / around.matrix[:, None]
    else:
        a = jnp.linalg.solve(around.matrix, dense)
    phi = family.starts(around, a, jnp.zeros_like(a))[0]
    return jnp.concatenate([m, phi])


def warm_start(
    target: Target,
    start: Laplace,
    tuned: Tuned,
    mean: Float[Array, " dim"],
    root: Matrix,
    points: Points,
    family: Family,
    memory: int,
) -> tuple[Tilt, Float[Array, " free"], Bool[Array, ""]]:
    """The parameters nearest to an earlier Gaussian, and whether they are a better start than the
    Laplace Gaussian: with other data they may be far worse."""
    over, around = expectation(target, points, memory), family.root(start)
    tilt = tilted(target, start, tuned, around, over)
    bound = Bound(target, start.mode, around, tilt, over, family)
    still = jnp.zeros_like(tilt.theta)
    params, of_laplace = (
        jnp.concatenate([nearest(start, family, *gaussian), still])
        for gaussian in ((mean, root), (start.mode, start.root.matrix))
    )
    return tilt, params, bound.elbo(params) > bound.elbo(of_laplace)


def ladder(family: Family) -> list[Family]:
    """The family and those it contains, the poorest first."""
    rungs = [family]
    while (poorer := rungs[0].poorer) is not None:
        rungs.insert(0, _families.NAMES[poorer]())
    return rungs


def minimise(
    bound: Bound, params: Float[Array, " free"], optimiser: str, tol: float, max_steps: Steps
) -> Minimum:
    if optimiser == "scg":
        return scaled_conjugate_gradients(
            bound.loss_and_grad, bound.loss_product, params, tol, max_steps
        )
    dense = optimiser != "lbfgs" and params.size <= MOST_DENSE
    return (bfgs if dense else lbfgs)(bound.loss_and_grad, params, tol, max_steps)


def _best_start(
    bound: Bound,
    family: Family,
    start: Laplace,
    m: Array,
    a: Array,
    tau: Array,
    poorer: Minimum | None,
) -> tuple[Array, Array]:
    """The candidate with the highest bound, and how many were evaluated.

    The first candidate is the poorer family's end. Others are tried where the search could not
    leave it, or where the Gaussian falls far short of its own evidence: for a Gaussian target the
    two are equal, for a Laplace covariance far too wide they are not.
    """
    gradient = bound.root_gradient(m, a, tau) if family.start_is_stationary else jnp.zeros_like(a)
    phis = family.starts(bound.root, a, gradient)
    first = jnp.concatenate([m, phis[0], tau])
    if phis.shape[0] == 1:
        return first, jnp.array(0)
    # A poorer search that went nowhere finite has nothing to hand on: its mean is the mode then.
    means = jnp.stack([m, jnp.zeros_like(m)]) if poorer is not None else m[None]
    grid = jnp.concatenate(
        [
            jnp.repeat(means, phis.shape[0], axis=0),
            jnp.tile(phis, (means.shape[0], 1)),
            jnp.tile(tau, (means.shape[0] * phis.shape[0], 1)),
        ],
        axis=1,
    )

    def try_all() -> tuple[Array, Array]:
        values = lax.map(bound.elbo, grid)
        best = jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf))
        return grid[best], jnp.array(len(grid))

    if family.start_is_stationary:
        return try_all()
    begin = -poorer.value if poorer is not None else bound.elbo(first)
    evidence = start.log_evidence - start.root.log_det + bound.root.log_det
    fine = evidence - begin < 0.5 + 0.1 * m.size  # false for a bound that is not a number
    return lax.cond(fine, lambda: (first, jnp.array(0)), try_all)


def _gaussian(
    bound: Bound, found: Minimum, n_passes: Array, n_values: Array, n_products: Array
) -> Adapted:
    numbers = (
        -found.value, jnp.abs(found.gradient).max(), n_passes, n_values, n_products, found.code
    )  # fmt: skip
    _, phi, _ = bound.parts(found.point)
    in_tau = -bound.parts(found.gradient)[2]
    return Adapted(
        params=found.point,
        mean=bound.mean(found.point),
        root=bound.family.after(bound.root.matrix, phi),
        tilt=bound.tilt,
        theta=bound.theta(found.point),
        theta_gradient=jnp.linalg.solve(bound.tilt.scale.T, in_tau) if in_tau.size else in_tau,
        numbers=jnp.stack([jnp.asarray(number, found.value.dtype) for number in numbers]),
    )


# --- Stein steps ------------------------------------------------------------------------------


def full_rank(
    target: Target,
    mean: Float[Array, " dim"],
    root: Float[Array, "dim dim"],
    tilt: Tilt,
    tau: Float[Array, " tau"],
    past: Past,
    points: Points,
    tol: float | Float[Array, ""],
    max_steps: Steps,
    paired: bool,
    memory: int,
) -> Adapted:
    """The best Gaussian of all, from the one given; with hyperparameters from `tau`."""
    over = expectation(target, points, memory, paired)
    steps = stein(target, tilt, (mean, root, tau), over, tol, max_steps, past)
    none = jnp.zeros_like(steps.n_passes)
    numbers = (steps.look.elbo, steps.error, steps.n_passes, none, none, steps.code)
    return Adapted(
        params=steps.tau,
        mean=steps.mean,
        root=steps.root,
        tilt=tilt,
        theta=tilt.at(steps.tau),
        theta_gradient=steps.look.slope if tau.size else jnp.zeros_like(tilt.theta),
        numbers=jnp.stack([jnp.asarray(number, mean.dtype) for number in numbers]),
        past=steps.past,
    )


def inspection(
    target: Target,
    mean: Float[Array, " dim"],
    root: Matrix,
    points: Points,
    paired: bool,
    memory: int,
) -> Inspection:
    return inspect(target, mean, root, expectation(target, points, memory, paired))


def inspection_of_laplace(
    target: Target, start: Laplace, points: Points, paired: bool, memory: int
) -> Inspection:
    """Widths are then those along the axes that "eig" scales."""
    root = eigen_root(start.root).matrix
    return inspection(target, start.mode, root, points, paired, memory)


def nodes_loss(
    target: Target,
    mean: Float[Array, " dim"],
    root: Matrix,
    nodes: Nodes,
    others: Nodes,
    memory: int,
) -> Float[Array, ""]:
    rules = (expectation(target, rule, memory) for rule in (nodes, others))
    return lost_to_rule(target, mean, root, *rules)


def start_without_mode(
    target: Target, start: Float[Array, " dim"], points: Points, paired: bool, memory: int
) -> Float[Array, "dim dim"]:
    """A root for the Gaussian around `start`."""
    return rough_start(target, start, expectation(target, points, memory, paired), memory)


def start_from_mode(
    target: Target, start: Laplace, points: Points, paired: bool, memory: int
) -> Float[Array, "dim dim"]:
    """Laplace's root, by the best of a few factors."""
    over = expectation(target, points, memory, paired)
    return best_width(target, start.mode, start.root.matrix, over)


def anchored(
    target: Target,
    mean: Float[Array, " dim"],
    root: Float[Array, "dim dim"],
    elbo: Float[Array, ""],
    start: Laplace,
) -> Laplace:
    """The Gaussian in the place of Laplace's, for a family to adapt: its bound is its evidence."""
    del target
    log_det = jnp.linalg.slogdet(root)[1]
    density = elbo - 0.5 * mean.size * jnp.log(2 * jnp.pi) - log_det
    return dataclasses.replace(start, mode=mean, root=Root(root, log_det), log_density=density)


# --- compiled: what flows ask for -------------------------------------------------------------


def laplace_and_numbers(
    target: Target, start: Float[Array, " dim"], **options: Any
) -> tuple[Laplace, Tuned, Float[Array, " 6"]]:
    found, tuned = tuned_laplace(target, start, **options)
    return found, tuned, found.numbers()


# Limits of steps are not among the static arguments: other limits do not compile anew.
BOUND_SEARCH = ("optimiser", "tol", "memory")
STEIN = ("paired", "memory")

LAPLACE = Core(laplace_and_numbers, "on_indefinite", "memory", "tune", "patient")
CLIMB = Core(climb, *BOUND_SEARCH)
RESUME = Core(resume, *BOUND_SEARCH)
WARM_START = Core(warm_start, "memory")
LOG_DENSITIES = Core(log_densities, "memory")
NODES_ERROR = Core(nodes_error)
NODES_LOSS = Core(nodes_loss, "memory")
FULL_RANK = Core(full_rank, *STEIN)
INSPECT = Core(inspection, *STEIN)
INSPECT_LAPLACE = Core(inspection_of_laplace, *STEIN)
START_WITHOUT_MODE = Core(start_without_mode, *STEIN)
START_FROM_MODE = Core(start_from_mode, *STEIN)
ANCHORED = Core(anchored)
