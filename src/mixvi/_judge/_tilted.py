"""One marginal corrected by weighted draws, where these agree with themselves.

Over `u = Phi^-1(F_q(x))` the marginal of q is a standard normal, and that of the posterior is
`phi(u) r(u)` with `r(u) = E_q[w | u]`. We take

    log r(u) = sum_k a_k h_k(u) - log Z

over normalised Hermite polynomials, of which the density nearest to the normal has moments within
their errors of what the draws say:

    m_k = sum_s (w_s - 1/n) h_k(u_s),    s_k^2 = sum_s (w_s - 1/n)^2 h_k(u_s)^2
    |E_r h_k - m_k| <= s_k

and nothing is corrected unless one of them is beyond what is luck, `|m_k| > c s_k`: c is 3 for one
parameter, and more where several are looked at (Bonferroni). The same draws without weights are
taken off, so that equal weights say nothing at all: a Gaussian target is not touched. The dual is a
convex function of `a` with the penalty `sum_k s_k |a_k|`.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ._diagnosis import WEIGHTS_WORK
from ._psis import CONSTANT, psis

# Polynomials, and as far out as they are used.
DEGREE, REACH = 6, 5.0
N_POINTS = 1001
# Effective draws below which nothing is corrected.
FEWEST = 100.0
# A normal's mass beyond three standard deviations to one side.
BEYOND = 0.5 * math.erfc(3.0 / math.sqrt(2.0))
# The largest difference of the shares below any value that two halves of the draws may show.
HALVES_DIFFER = 0.05

Table = Float[np.ndarray, " points"]
Draws = Float[np.ndarray, " n"]
Coefficients = Float[np.ndarray, " degree"]


def by_luck(among: int) -> float:
    """Standard errors that one of so many goes beyond as seldom as one alone goes beyond three."""
    from scipy.special import ndtri  # takes 0.1 s, and few need it

    return float(-ndtri(BEYOND / among))


class Weights(NamedTuple):
    """Smoothed weights of draws that can be believed; and of two halves of them. Draws that come in
    order, component by component, are dealt out in turn."""

    whole: Draws
    halves: tuple[Draws, Draws]


def believed(log_ratio: Draws, rounding: float = 0.0) -> Weights | None:
    """None where they vary too much, or by no more than `rounding` alone makes them."""
    if not np.isfinite(log_ratio).all() or np.ptp(log_ratio) < max(CONSTANT, rounding):
        return None
    whole, khat = psis(log_ratio)
    if not khat < WEIGHTS_WORK or not 1 / (whole**2).sum() >= FEWEST:
        return None
    return Weights(whole, (psis(log_ratio[0::2])[0], psis(log_ratio[1::2])[0]))


def log_tilt(u: Draws, weights: Weights, among: int = 1) -> Coefficients | None:
    """The coefficients; None where the draws say nothing or do not agree with themselves. `among`:
    parameters that are looked at."""
    wanted, error = _moments(u, weights.whole)
    if (np.abs(wanted) <= by_luck(among) * error).all():
        return None
    found = _fitted(wanted, error)
    halves = [_moments(u[first::2], half) for first, half in enumerate(weights.halves)]
    shares = [_shares(_fitted(*one)) for one in halves]
    return None if np.abs(shares[0] - shares[1]).max() > HALVES_DIFFER else found


def tilt_at(u: Float[np.ndarray, " m"], a: Coefficients) -> Float[np.ndarray, " m"]:
    """`r(u)`; beyond the reach that of its end."""
    log_r = hermite(np.clip(u, -REACH, REACH)) @ a
    return np.exp(log_r - _log_total(a))


def hermite(u: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m degree"]:
    """Polynomials of degree one and more that are orthonormal under a standard normal."""
    columns = [np.ones_like(u), u]
    for k in range(1, DEGREE):
        columns.append((u * columns[k] - math.sqrt(k) * columns[k - 1]) / math.sqrt(k + 1))
    return np.stack(columns[1:], axis=-1)


_GRID = np.linspace(-REACH, REACH, N_POINTS)
_NORMAL = np.exp(-0.5 * _GRID**2)
_NORMAL /= _NORMAL.sum()
_BASIS = hermite(_GRID)


def _log_total(a: Coefficients) -> float:
    log_r = _BASIS @ a
    peak = log_r.max()
    return float(peak + np.log(_NORMAL @ np.exp(log_r - peak)))


def _shares(a: Coefficients) -> Table:
    mass = _NORMAL * np.exp(_BASIS @ a - _log_total(a))
    return np.cumsum(mass)


def _moments(u: Draws, weights: Draws) -> tuple[Coefficients, Coefficients]:
    """Of the weighted draws, and their standard errors."""
    at = hermite(np.clip(u, -REACH, REACH))
    differs = weights - 1 / len(u)
    return differs @ at, np.sqrt(differs**2 @ at**2)


def _fitted(wanted: Coefficients, slack: Coefficients) -> Coefficients:
    from scipy.optimize import minimize  # 0.3 s, and few need it

    def dual(both: np.ndarray) -> tuple[float, np.ndarray]:
        a = both[:DEGREE] - both[DEGREE:]
        total = _log_total(a)
        mean = (_NORMAL * np.exp(_BASIS @ a - total)) @ _BASIS
        slope = mean - wanted
        value = total - a @ wanted + slack @ (both[:DEGREE] + both[DEGREE:])
        return float(value), np.concatenate([slope + slack, slack - slope])

    begin = np.zeros(2 * DEGREE)
    found = minimize(dual, begin, jac=True, method="L-BFGS-B", bounds=[(0, 20)] * len(begin))
    return found.x[:DEGREE] - found.x[DEGREE:]
