"""The integral of `p(y | eta) N(eta | m, s^2)`, in logarithms: what one predictor says of a row.

Where `log p` is concave, so is the logarithm `f` of the whole, with `f'' <= -1 / s^2`. Trapezoids
between the points where `f` has fallen by `FALL` from its mode then converge exponentially: with a
spacing `h` and a mode of width `w` the error is about `exp(-2 pi^2 w^2 / h^2)`, or
`exp(-2 pi d / h)` where `p` is analytic and bounded up to `d` from the real line. Otherwise
Gauss-Legendre on panels that follow the Gaussian and panels that follow the likelihood.
"""

import math
from typing import Any

import numpy as np

FALL = 37.0
# Spacings of the nodes: of the mode's width, and of the width over which the likelihood bends.
OF_MODE, OF_BEND = 0.6, 1 / 6
FEWEST, MOST = 32, 2048
MOST_STEPS = 200
# Standard deviations at which the normal density underflows.
VANISHES = 38.0
LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
PANEL = np.polynomial.legendre.leggauss(8)


def log_sum(values: np.ndarray) -> Any:
    """`log sum exp` over the first axis."""
    top = values.max(0)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return top + np.log(np.exp(values - top).sum(0))


def log_integral(likelihood: Any, y: Any, mean: Any, sd: Any, hyper: Any) -> np.ndarray:
    """Of a likelihood, for each row of `y`, `mean` and `sd`."""
    rows = np.broadcast_arrays(*(np.asarray(one, np.float64) for one in (y, mean, sd)))
    shape = rows[0].shape
    y, mean, sd = (one.ravel() for one in rows)
    # Narrower, nodes would be moved by rounding and l changes by l'' sd^2 / 2, nothing.
    sd = np.maximum(sd, 1e-8 * (1 + np.abs(mean)))
    found = np.empty(len(y))
    left = np.ones(len(y), dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        if likelihood.log_concave:
            for some, low, high, n in _located(likelihood, y, mean, sd, hyper):
                at = low + (high - low) * np.linspace(0.0, 1.0, n)[:, None]
                value = _log_integrand(likelihood, y[some], at, mean[some], sd[some], hyper)
                found[some] = log_sum(value) + np.log((high - low) / ((n - 1) * sd[some]))
                left[some] = False
        if left.any():
            found[left] = _by_panels(likelihood, y[left], mean[left], sd[left], hyper)
    return found.reshape(shape)


def _log_integrand(likelihood, y, eta, mean, sd, hyper) -> np.ndarray:
    """Times `sd`."""
    value = np.asarray(likelihood.log_prob(y, eta, hyper))
    return value - 0.5 * ((eta - mean) / sd) ** 2 - LOG_ROOT_2PI


def _located(likelihood, y, mean, sd, hyper):
    """Rows that take the same number of nodes, the ends between which these lie, and the number;
    rows that would take too many are left out."""
    mode, width = _mode(likelihood, y, mean, sd, hyper)
    top = _log_integrand(likelihood, y, mode, mean, sd, hyper)
    low, high = (_end(likelihood, y, mean, sd, hyper, mode, top, sign) for sign in (-1, 1))
    bend = np.broadcast_to(likelihood.bump(y, hyper)[1], y.shape)
    needed = (high - low) / np.minimum(OF_MODE * width, OF_BEND * bend)
    n = FEWEST
    taken = np.isnan(needed)
    while n <= MOST and not taken.all():
        some = ~taken & (needed < n)
        if some.any():
            yield some, low[some], high[some], n
        taken |= some
        n *= 2


def _mode(likelihood, y, mean, sd, hyper) -> tuple[np.ndarray, np.ndarray]:
    """Of the integrand, to a hundredth of its width, and that: Newton's steps between two points
    that close in, and halfway between them where such steps do not shrink."""

    def pull(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, slope, bend = likelihood.derivatives(y, at, hyper, 2)
        return slope - (at - mean) / sd**2, 1 / sd**2 - bend

    at, step = mean, sd
    slope, precision = pull(at)
    up = np.sign(slope)
    far = at + up * step
    for _ in range(MOST_STEPS):  # until the slope changes its sign between them
        beyond = up * pull(far)[0] > 0
        if not beyond.any():
            break
        step = np.where(beyond, 2 * step, step)
        at, far = np.where(beyond, far, at), np.where(beyond, far + up * step, far)
    low, high = np.minimum(at, far), np.maximum(at, far)
    last = high - low
    for _ in range(MOST_STEPS):
        slope, precision = pull(at)
        low, high = np.where(slope > 0, at, low), np.where(slope < 0, at, high)
        newton = slope / precision
        there = at + newton
        good = (there >= low) & (there <= high) & (np.abs(newton) <= 0.5 * last)
        last = np.where(good, np.abs(newton), 0.5 * (high - low))
        near = np.abs(newton) * np.sqrt(precision) < 0.01
        if near.all():
            break
        at = np.where(near, at, np.where(good, there, 0.5 * (low + high)))
    return at, 1 / np.sqrt(precision)


def _end(likelihood, y, mean, sd, hyper, mode, top, sign) -> np.ndarray:
    """Where the integrand has fallen by `FALL`, within a factor of two: from where a Gaussian has,
    halved while it may be."""
    reach = math.sqrt(2 * FALL) * sd
    for _ in range(MOST_STEPS):
        half = mode + 0.5 * sign * reach
        fallen = top - _log_integrand(likelihood, y, half, mean, sd, hyper) >= FALL
        if not fallen.any():
            break
        reach = np.where(fallen, 0.5 * reach, reach)
    return mode + sign * reach


def _by_panels(likelihood, y, mean, sd, hyper) -> np.ndarray:
    centre, width = (np.asarray(one) for one in likelihood.bump(y, hyper))
    ours = np.linspace(-8.0, 8.0, 33)[:, None]
    theirs = np.sinh(np.linspace(-12.0, 12.0, 49))[:, None]
    low, high = mean - VANISHES * sd, mean + VANISHES * sd
    edges = np.concatenate([mean + sd * ours, np.clip(centre + width * theirs, low, high)])
    edges = np.sort(edges, axis=0)
    nodes, weights = (one[:, None, None] for one in PANEL)
    half = 0.5 * np.diff(edges, axis=0)
    eta = (edges[:-1] + half) + half * nodes
    value = _log_integrand(likelihood, y, eta.reshape(-1, len(y)), mean, sd, hyper)
    with np.errstate(divide="ignore"):
        value = value + np.log(weights * half).reshape(-1, len(y))
    return log_sum(value) - np.log(sd)
