"""Hyperparameters by Laplace's evidence, with the exact gradient.

    E(theta) = l(w*, theta) + (D/2) log 2 pi - (1/2) log det P(w*, theta),    w* = w*(theta)

With `R R^T = P^-1` the last term's derivative is that of
`c(w, theta) = (1/2) sum_i d^2 l[r_i, r_i]` at fixed columns `r_i` of `R`. The mode moves by
`dw*/dtheta = P^-1 d^2 l / dw dtheta` (implicit function theorem), and the gradient of `l` in `w`
vanishes there, so

    dE/dtheta = dl/dtheta + dc/dtheta + (dw*/dtheta)^T dc/dw
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from .._density._protocol import Density, EvidenceSlopes, OwnEvidence
from .._errors import Code
from .._watch import tell
from ._laplace import Laplace, laplace
from ._search import Stop, Summit, quasi_newton

# Hyperparameters live on a log scale or one like it: a longer step is a leap in the dark.
LONGEST_STEP = 1.0
TOL = 1e-5
# Of hyperparameters, for differences of gradients at rough modes.
DIFFERENCE = 0.02
ROUGH_MODE = 1e-4
# Rows of a table for each weight that leave no direction open.
ROWS_EACH = 10
# A hyperparameter has run off when going on as far again would cost less evidence than this.
SLACK = 0.1
LEAST_TRAVEL = 2.0
# More hyperparameters are not followed one by one.
MOST_LOOKED_BEYOND = 8
# Of that way, where there is no evidence at its end.
SHARES = (1.0, 0.5, 0.25, 0.125)
# Two standard deviations from the mode a Gaussian's log density has fallen by 2. Where the Hessian
# is nearly singular Laplace's evidence grows without bound while the density falls by thousands.
MOST_FALL = 4.0

Vector = Float[np.ndarray, " dim"]
Hyper = Float[np.ndarray, " hyper"]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """Where the search over the hyperparameters ended. `slack`: evidence lost by travelling as far
    again; `at_edge`: stopped where the evidence loses its meaning."""

    theta: Hyper
    gradient: Hyper  # of the log evidence
    drift: Float[np.ndarray, "dim hyper"]  # dw*/dtheta
    slack: Hyper
    at_edge: bool
    n_passes: int
    code: Code

    @property
    def ran_off(self) -> tuple[bool, ...]:
        return tuple(bool(slack < SLACK) for slack in self.slack)


@dataclasses.dataclass(frozen=True)
class LaplaceAt:
    """Hyperparameters, the Laplace approximation there, and how its evidence changes.

    `evidence`: of the mode itself, from which the place found is as far as its Newton step. That
    matters to first order in `log det P` alone, whose slope is known.
    """

    theta: Hyper
    found: Laplace
    evidence: float
    gradient: Hyper
    drift: Float[np.ndarray, "dim hyper"]
    fall: float


class Evidence:
    """Laplace's log evidence and its gradient. The last place with an evidence is kept: the next
    mode is sought from there; and the highest, where a search may end."""

    def __init__(self, density: Density, start: Vector, on_indefinite: str, is_rough: bool = False):
        self.density, self.start, self.on_indefinite = density, start, on_indefinite
        self.is_rough = is_rough
        self.last: LaplaceAt | None = None
        self.highest: LaplaceAt | None = None

    def solved(self, theta: Hyper, near: Vector) -> Laplace:
        return laplace(self.density.at(theta), near, self.on_indefinite)

    def __call__(self, theta: Hyper) -> tuple[float, Hyper]:
        density, last = self.density.at(theta), self.last
        near = self.start if last is None else _near(density, theta, last)
        # How far from the mode Newton stopped is corrected for: in the evidence, not in its slope.
        tol = ROUGH_MODE if self.is_rough and density.log_concave else None
        here = _place(density, theta, laplace(density, near, self.on_indefinite, mode_tol=tol))
        # A first place may be bad; from there on it must not get worse.
        honest = last is None or here.fall <= max(MOST_FALL, last.fall)
        sound = is_usable(here.found) and bool(np.isfinite(here.gradient).all()) and honest
        if sound or last is None:
            # A first place without evidence is kept: its code says what is wrong.
            self.last = here
            if self.highest is None or here.evidence > self.highest.evidence:
                self.highest = here
        return (here.evidence, here.gradient) if sound else (-math.inf, 0 * theta)

    def at(self, theta: Hyper) -> LaplaceAt | None:
        """The place itself, where it has an evidence."""
        value, _ = self(theta)
        return self.last if math.isfinite(value) else None

    def ended(self, theta: Hyper, with_drift: bool) -> LaplaceAt:
        """What is known at `theta`, where the search ended."""
        del with_drift
        last, highest = self.last, self.highest
        assert last is not None
        assert highest is not None
        if np.array_equal(highest.theta, theta):
            return highest
        if np.array_equal(last.theta, theta):
            return last
        # The last point that was tried was not the best.
        return _place(self.density.at(theta), theta, self.solved(theta, last.found.mode))


class EvidenceItself:
    """The same of a density that answers it by a way of its own. Laplace's approximation is made
    where a search ends, and nowhere else."""

    def __init__(self, density: Density, start: Vector, on_indefinite: str, is_rough: bool = False):
        self.density, self.start, self.on_indefinite = density, start, on_indefinite
        self.tol = ROUGH_MODE if is_rough and density.log_concave else density.mode_tol
        self.last: tuple[Hyper, OwnEvidence] | None = None
        self.highest: tuple[Hyper, OwnEvidence] | None = None

    def __call__(self, theta: Hyper) -> tuple[float, Hyper]:
        last = None if self.last is None else self.last[1]
        here = self.density.at(theta).own_evidence(None if last is None else last.near, self.tol)
        if here is None or not math.isfinite(here.value) or not np.isfinite(here.gradient).all():
            return -math.inf, 0 * theta
        if last is not None and here.fall > max(MOST_FALL, last.fall):
            return -math.inf, 0 * theta
        self.last = theta, here
        if self.highest is None or here.value > self.highest[1].value:
            self.highest = self.last
        return here.value, here.gradient

    def solved(self, theta: Hyper, near: Vector) -> Laplace:
        return laplace(self.density.at(theta), near, self.on_indefinite)

    def ended(self, theta: Hyper, with_drift: bool) -> LaplaceAt:
        known = [one for one in (self.highest, self.last) if one is not None]
        near = next((one for at, one in known if np.array_equal(at, theta)), None)
        density = self.density.at(theta)
        found = self.solved(theta, self.start if near is None else near.mode())
        if with_drift or near is None:
            return _place(density, theta, found)
        unknown = np.full((found.mode.size, theta.size), np.nan)
        return LaplaceAt(theta, found, near.value, near.gradient, unknown, near.fall)


def tuned_laplace(
    density: Density,
    start: Vector,
    theta: Hyper,
    on_indefinite: str,
    max_steps: int,
    look_beyond: bool = True,
    gain: float | None = None,
    first: Callable[[Hyper], Hyper] | None = None,
) -> tuple[Laplace, Tuned]:
    """Laplace at the hyperparameters with the highest evidence, from `theta`; at `theta` itself
    where no step is allowed. `look_beyond`: whether to ask how far they could run off. `gain`:
    nats that may be left; otherwise the gradient must vanish. `first`: as of `quasi_newton`."""
    kind = EvidenceItself if density.has_own_evidence else Evidence
    evidence = kind(density, start, on_indefinite, is_rough=gain is not None)
    if max_steps == 0:
        unknown = np.full_like(theta, np.nan)
        still = np.zeros((start.size, theta.size))
        tuned = Tuned(theta, unknown, still, unknown, at_edge=False, n_passes=0, code=Code.OK)
        return evidence.solved(theta, start), tuned

    def watched(found: Summit) -> None:
        tell(found.value, found.gain_left, state=lambda: _so_far(evidence, found))

    stop = Stop(tol=TOL, max_steps=max_steps)
    if gain is not None:
        stop = Stop(gain=gain, max_steps=max_steps, last_step=False)
    best = quasi_newton(
        evidence, theta, stop, density.resolution, first, longest_step=LONGEST_STEP, watched=watched
    )
    last = evidence.ended(best.point, with_drift=look_beyond)
    look_beyond = look_beyond and theta.size <= MOST_LOOKED_BEYOND
    tuned = Tuned(
        theta=last.theta,
        gradient=last.gradient,
        drift=last.drift,
        slack=_slack(evidence, last, theta) if look_beyond else np.full_like(theta, np.inf),
        at_edge=best.code is not Code.OK and last.fall > 0.75 * MOST_FALL,
        n_passes=best.n_passes,
        code=best.code,
    )
    return last.found, tuned


def highest_evidence(density: Density, theta: Hyper, max_steps: int, gain: float) -> Summit:
    """Where a density answers its evidence itself: the hyperparameters alone."""
    evidence = EvidenceItself(density, np.zeros(density.dim), "raise", is_rough=True)
    stop = Stop(gain=gain, max_steps=max_steps, last_step=False)
    return quasi_newton(evidence, theta, stop, density.resolution, longest_step=LONGEST_STEP)


def evidence_scale(density: Density, theta: Hyper, share: float) -> Callable[[Hyper], Hyper] | None:
    """The inverse Hessian of minus the evidence, by differences, where the data are `share` of
    those of another density; None where there is none."""
    evidence = EvidenceItself(density, np.zeros(density.dim), "raise", is_rough=True)
    found = evidence_curvature(evidence, theta, DIFFERENCE)
    if found is None:
        return None
    values, vectors = found
    inverse = (vectors * (share / np.maximum(np.abs(values), share))) @ vectors.T
    return lambda gradient: inverse @ gradient


def evidence_curvature(
    evidence: Evidence | EvidenceItself, theta: Hyper, difference: float
) -> tuple[Hyper, Float[np.ndarray, "hyper hyper"]] | None:
    """Eigenvalues and eigenvectors of minus the evidence's Hessian, by differences of its gradient;
    None where an evidence is missing."""
    seen = [evidence(theta)] + [evidence(theta + e) for e in difference * np.eye(len(theta))]
    if not all(math.isfinite(value) for value, _ in seen):
        return None
    here, *there = (gradient for _, gradient in seen)
    block = np.stack([(here - one) / difference for one in there])
    values, vectors = np.linalg.eigh(0.5 * (block + block.T))
    return values, vectors


def _so_far(evidence: Evidence | EvidenceItself, found: Summit) -> tuple[Laplace, Tuned]:
    """What an interrupted search leaves: how far the hyperparameters could go on is not asked."""
    last = evidence.ended(found.point, with_drift=True)
    endless = np.full_like(last.theta, math.inf)
    at = (last.theta, last.gradient, last.drift, endless)
    return last.found, Tuned(*at, at_edge=False, n_passes=found.n_passes, code=found.code)


def _near(density: Density, theta: Hyper, last: LaplaceAt) -> Vector:
    """Where the last mode would have moved to, if that is better than where it is."""
    moved = last.found.mode + last.drift @ (theta - last.theta)
    at_moved, at_last = density.values(np.stack([moved, last.found.mode]))
    return moved if at_moved > at_last else last.found.mode


def _place(density: Density, theta: Hyper, found: Laplace) -> LaplaceAt:
    slopes = density.evidence_slopes(found.mode, found.root)
    gradient, drift = evidence_gradient(slopes, found.root)
    newton_step = found.root @ (found.root.T @ found.gradient)
    evidence = found.log_evidence + float(slopes.in_w @ newton_step)
    return LaplaceAt(theta, found, evidence, gradient, drift, steepest_fall(density, found))


def _slack(evidence: Evidence | EvidenceItself, last: LaplaceAt, begin: Hyper) -> Hyper:
    """Evidence lost by going as far again, one hyperparameter at a time."""
    travel = last.theta - begin
    beyond = np.where(travel < 0, -1.0, 1.0) * np.maximum(np.abs(travel), LEAST_TRAVEL)
    lost = np.full_like(begin, np.inf)
    if not is_usable(last.found):
        return lost
    for i, step in enumerate(np.diag(beyond)):
        for share in SHARES:
            further = evidence.solved(last.theta + share * step, last.found.mode)
            if is_usable(further):
                lost[i] = last.found.log_evidence - further.log_evidence
                break
    return lost


def is_usable(found: Laplace) -> bool:
    return found.found and found.n_repaired == 0 and math.isfinite(found.log_evidence)


def steepest_fall(density: Density, found: Laplace) -> float:
    """How far the log density falls two standard deviations from the mode, to the better side (the
    other may well be steep: a skewed posterior), along the column of the root where it falls most.
    """
    if density.log_concave or density.n_rows > ROWS_EACH * found.mode.size:
        return 0.0  # no Hessian is nearly singular there by accident
    columns = 2 * found.root.T
    sides = density.values(np.concatenate([found.mode + columns, found.mode - columns]))
    return float((found.log_density - np.maximum(*np.split(sides, 2))).max())


def evidence_gradient(
    slopes: EvidenceSlopes, root: Float[np.ndarray, "dim dim"]
) -> tuple[Hyper, Float[np.ndarray, "dim hyper"]]:
    """`dE/dtheta` and `dw*/dtheta` at a mode with this root of its covariance."""
    drift = root @ (root.T @ slopes.mixed)
    return slopes.direct + slopes.in_theta + drift.T @ slopes.in_w, drift
