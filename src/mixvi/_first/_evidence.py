"""Hyperparameters by Laplace's evidence, with the exact gradient.

    E(theta) = l(w*, theta) + (D/2) log 2 pi - (1/2) log det P(w*, theta),    w* = w*(theta)

With `R R^T = P^-1` the last term's derivative is that of
`c(w, theta) = (1/2) sum_i d^2 l[r_i, r_i]` at fixed columns `r_i` of `R`. The mode moves by
`dw*/dtheta = P^-1 d^2 l / dw dtheta` (implicit function theorem), and the gradient of `l` in `w`
vanishes there, so

    dE/dtheta = dl/dtheta + dc/dtheta + (dw*/dtheta)^T dc/dw
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._density._memory import bytes_of, each
from .._errors import Code
from .._hyper import HyperReport
from .._target import Structure, Target
from ._laplace import Laplace, laplace
from ._optimise import bfgs_carrying

# Hyperparameters live on a log scale or one like it: a longer step is a leap in the dark.
LONGEST_STEP = 1.0
TOL = 1e-5
# A hyperparameter has run off when going on as far again would cost less evidence than this.
SLACK = 0.1
LEAST_TRAVEL = 2.0
UNSOLVED = -1
# Two standard deviations from the mode a Gaussian's log density has fallen by 2. Where the Hessian
# is nearly singular Laplace's evidence grows without bound while the density falls by thousands.
MOST_FALL = 4.0


class Tuned(eqx.Module):
    """Where the search over the hyperparameters ended (all empty where there are none)."""

    theta: Float[Array, " hyper"]
    gradient: Float[Array, " hyper"]  # of the log evidence
    drift: Float[Array, "dim hyper"]  # dw*/dtheta
    slack: Float[Array, " hyper"]  # evidence lost by travelling as far again
    at_edge: Bool[Array, ""]  # stopped where the evidence loses its meaning
    n_passes: Int[Array, ""]
    code: Int[Array, ""]


class _Last(eqx.Module):
    """The last point with evidence: the next one's mode is sought from its own."""

    theta: Float[Array, " hyper"]
    found: Laplace
    gradient: Float[Array, " hyper"]
    drift: Float[Array, "dim hyper"]
    fall: Float[Array, ""]


def hyper_report(
    structure: Structure, theta: Any, gradient: Any, tuned: Tuned, converged: bool
) -> HyperReport:
    loose = np.asarray(tuned.slack) < SLACK
    return HyperReport(
        values=structure.unravel(np.asarray(theta)),
        gradient=structure.unravel(np.asarray(gradient)),
        ran_off=tuple(n for n, runs in zip(structure.names, loose, strict=True) if runs),
        n_passes=int(tuned.n_passes),
        converged=converged,
        at_edge=bool(tuned.at_edge),
    )


def tuned_laplace(
    target: Target,
    start: Float[Array, " dim"],
    on_indefinite: str = "raise",
    memory: int = 2**30,
    patient: bool = True,
    tune: bool = True,
    hyper_steps: int | Int[Array, ""] = 200,
) -> tuple[Laplace, Tuned]:
    """Laplace at the hyperparameters with the highest evidence, from those bound to `target`;
    without `tune` at those themselves."""
    begin = target.theta
    if begin.size == 0 or not tune:
        found = laplace(target, start, on_indefinite, memory=memory, patient=patient)
        drift = jnp.zeros((start.size, begin.size), start.dtype)
        unknown, ok = jnp.full_like(begin, jnp.nan), jnp.array(int(Code.OK))
        return found, Tuned(begin, unknown, drift, unknown, jnp.array(False), jnp.array(0), ok)

    def solved(theta: Array, near: Array, patient: bool) -> Laplace:
        return laplace(target.at(theta), near, on_indefinite, memory=memory, patient=patient)

    def usable(found: Laplace) -> Bool[Array, ""]:
        whole = (found.code == int(Code.OK)) & (found.n_repaired == 0)
        return whole & jnp.isfinite(found.log_evidence)

    def evaluate(theta: Array, last: _Last) -> tuple[Array, Array, _Last]:
        """Minus the evidence and its gradient, from where the last mode would have moved to."""
        moved = last.found.mode + last.drift @ (theta - last.theta)
        there = target.at(theta)
        closer = there(moved) > there(last.found.mode)
        found = solved(theta, jnp.where(closer, moved, last.found.mode), patient)
        gradient, drift = evidence_gradient(there, found, memory)
        fall = steepest_fall(there, found, memory)
        # A first point may be bad; from there on it must not get worse.
        honest = fall <= jnp.maximum(MOST_FALL, last.fall)
        ok = usable(found) & jnp.isfinite(gradient).all() & honest
        # A first point without evidence is kept: its code says what is wrong.
        keep = ok | (last.found.code == UNSOLVED)
        here = _Last(theta, found, gradient, drift, fall)
        here = jax.tree.map(lambda new, old: jnp.where(keep, new, old), here, last)
        value = jnp.where(ok, -found.log_evidence, jnp.inf)
        return value, jnp.where(ok, -gradient, 0.0), here

    shapes = jax.eval_shape(lambda: solved(begin, start, patient))
    unsolved = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    unsolved = eqx.tree_at(
        lambda f: (f.mode, f.code), unsolved, (start, jnp.full_like(unsolved.code, UNSOLVED))
    )
    still = jnp.zeros((start.size, begin.size), start.dtype)
    best, last = bfgs_carrying(
        evaluate,
        begin,
        _Last(begin, unsolved, jnp.zeros_like(begin), still, jnp.full_like(begin[0], jnp.inf)),
        TOL,
        hyper_steps,
        longest_step=LONGEST_STEP,
    )
    travel = last.theta - begin
    beyond = jnp.where(travel < 0, -1.0, 1.0) * jnp.maximum(jnp.abs(travel), LEAST_TRAVEL)

    def lost(step: Array) -> Array:
        further = solved(last.theta + step, last.found.mode, False)
        return jnp.where(usable(further), last.found.log_evidence - further.log_evidence, jnp.inf)

    slack = lax.map(lost, jnp.diag(beyond))
    edge = (best.code != int(Code.OK)) & (last.fall > 0.5 * MOST_FALL)
    tuned = Tuned(last.theta, last.gradient, last.drift, slack, edge, best.n_passes, best.code)
    return last.found, tuned


def steepest_fall(target: Target, found: Laplace, memory: int) -> Float[Array, ""]:
    """How far the log density falls two standard deviations from the mode, to the better side (the
    other may well be steep: a skewed posterior), along the column of the root where it falls most.
    """
    columns = 2 * found.root.matrix.T

    def fall(r: Array) -> Array:
        return found.log_density - jnp.maximum(target(found.mode + r), target(found.mode - r))

    return each(fall, columns, memory // (2 * bytes_of(target, found.mode))).max()


def evidence_gradient(
    target: Target, found: Laplace, memory: int
) -> tuple[Float[Array, " hyper"], Float[Array, "dim hyper"]]:
    """`dE/dtheta` and `dw*/dtheta` at the mode that was found."""
    mode, columns = found.mode, found.root.matrix.T

    def log_density(w: Array, theta: Array) -> Array:
        return target.at(theta)(w)

    def second(w: Array, theta: Array, r: Array) -> Array:
        def slope(u: Array) -> Array:
            return jax.jvp(lambda v: log_density(v, theta), (u,), (r,))[1]

        return jax.jvp(slope, (w,), (r,))[1]

    def curvature(w: Array, theta: Array, some: Array) -> Array:
        return 0.5 * each(lambda r: second(w, theta, r), some).sum()

    # As many columns at a time as the budget allows, their gradients added up.
    at = (mode, target.theta)
    one = bytes_of(lambda r: jax.grad(second, (0, 1))(*at, r), columns[0])
    n_chunks = min(len(columns), math.ceil(len(columns) * one / memory))
    size = math.ceil(len(columns) / n_chunks)
    filled = jnp.zeros((n_chunks * size, mode.size), mode.dtype).at[: len(columns)].set(columns)

    def add(total: tuple, some: Array) -> tuple[tuple, None]:
        return jax.tree.map(jnp.add, total, jax.grad(curvature, (0, 1))(*at, some)), None

    zero = jax.tree.map(jnp.zeros_like, at)
    chunks = filled.reshape(n_chunks, size, mode.size)
    (in_w, in_theta), _ = lax.scan(add, zero, chunks)
    direct = jax.grad(log_density, 1)(*at)
    mixed = jax.jacfwd(lambda theta: jax.grad(log_density)(mode, theta))(target.theta)
    drift = columns.T @ (columns @ mixed)
    return direct + in_theta + drift.T @ in_w, drift
