"""The whole covariance with hyperparameters that are learnt: at each of them the best Gaussian.

    F(theta) = max_q ELBO(q, theta),        dF/dtheta = E_q dl/dtheta        (envelope theorem)

A joint search creeps: where basis functions overlap, a little more width moves and turns the whole
Gaussian by many standard deviations. Here the Gaussian is carried along with Laplace's,

    mean = w*(theta) + R(theta) m,        covariance = R(theta) A A^T R(theta)^T,

whose `m` and `A` hardly change; a few Stein steps put them right.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from .._density._protocol import Density, Rule
from .._errors import Code
from ._evidence import LONGEST_STEP, Evidence, LaplaceAt, evidence_curvature, is_usable
from ._laplace import Laplace
from ._search import Stop, quasi_newton
from ._stein import Past, Square, SteinState, Vector, stein
from ._tilt import Learnt

Hyper = Float[np.ndarray, " hyper"]
# Nats that the hyperparameters may leave; and of these (or of a tolerance that is asked for) the
# share that the Gaussian at each of them may leave, as it decides on them.
OUTER_GAIN, INNER = 1e-4, 0.1
# Of hyperparameters, for differences.
DIFFERENCE = 1e-3
# More hyperparameters are not followed one by one.
MOST_FOLLOWED = 8


def stein_learning(
    density: Density,
    mean: Vector,
    root: Square,
    rule: Rule,
    stop: Stop,
    learnt: Learnt,
    past: Past | None = None,
) -> SteinState:
    """From `N(mean, root root^T)` at the hyperparameters `learnt` to the best of both: the Gaussian
    by the test of `stop`."""
    theta, stop = learnt.theta, dataclasses.replace(stop, gain=max(stop.gain, OUTER_GAIN))
    evidence = Evidence(density, mean, "raise")
    information = _information(evidence, theta)
    profile = Profile(density, evidence, rule, stop, mean, root, past)
    found = quasi_newton(
        profile,
        theta,
        stop,
        density.resolution,
        lambda gradient: np.linalg.solve(information, gradient),
        longest_step=LONGEST_STEP,
        noise=INNER * stop.gain if stop.tol is None else 0.0,
    )
    best, code = profile.best, found.code
    assert best is not None
    if best.code is not Code.OK and code is Code.NON_FINITE_DRAWS:
        code = best.code
    if profile.n_passes >= stop.max_steps:
        code = Code.BOUND_OUT_OF_STEPS
    gain = found.gain_left + best.gain_left
    return dataclasses.replace(best, gain_left=gain, n_passes=profile.n_passes, code=code)


class Profile:
    """`F` and its gradient. The best Gaussian so far is kept: the next one begins there."""

    def __init__(
        self,
        density: Density,
        evidence: Evidence,
        rule: Rule,
        stop: Stop,
        mean: Vector,
        root: Square,
        past: Past | None,
    ):
        self.density, self.evidence, self.rule, self.stop = density, evidence, rule, stop
        self.begin, self.past = (mean, root), past
        self.best: SteinState | None = None
        self.frame: LaplaceAt | None = None
        self.n_passes = 0

    def __call__(self, theta: Hyper) -> tuple[float, Hyper]:
        nowhere = -math.inf, np.zeros_like(theta)
        frame = self.evidence.at(theta)
        # Where Laplace's Gaussian is lost on the way, so is the sense of the step; where there was
        # none from the start, the Gaussian goes on from where it was.
        is_lost = frame is None and self.frame is not None
        if self.best is not None and (is_lost or self.n_passes >= self.stop.max_steps):
            return nowhere
        state = self._solved(theta, frame)
        self.n_passes += state.n_passes
        if self.best is None or (state.code is Code.OK and state.elbo > self.best.elbo):
            self.best, self.frame = state, frame
        if state.code not in (Code.OK, Code.BOUND_OUT_OF_STEPS):
            return nowhere
        return state.elbo, state.learnt.gradient

    def _solved(self, theta: Hyper, frame: LaplaceAt | None) -> SteinState:
        """The best Gaussian at `theta`."""
        drift = np.zeros((self.density.dim, len(theta))) if frame is None else frame.drift
        mean, root, past = *self.begin, self.past
        if self.best is not None:
            mean, root = self.best.mean, self.best.root
            past = self.best.past.copy()
            if frame is not None and self.frame is not None:
                mean, factor = carried(mean, root, self.frame.found, frame.found)
                root = root @ factor
        gain, tol = INNER * self.stop.gain, self.stop.tol
        left = max(1, self.stop.max_steps - self.n_passes)
        stop = Stop(gain, None if tol is None else INNER * tol, left, last_step=False)
        learnt = Learnt.at(theta, drift, np.full_like(theta, np.nan))
        state = stein(self.density.at(theta), mean, root, self.rule, stop, past, learnt)
        gradient = state.shape.in_theta
        if frame is not None:
            gradient = gradient + self._left_on_the_way(frame, state)
        return dataclasses.replace(state, learnt=dataclasses.replace(learnt, gradient=gradient))

    def _left_on_the_way(self, frame: LaplaceAt, state: SteinState) -> Hyper:
        """What is left of the slopes in mean and root, along the way that these are carried.
        Without that an error of the Gaussian is one of the gradient; with it, its square is."""
        pull, root_slope = state.shape.pull, np.eye(len(state.mean)) - state.shape.bend
        slopes = frame.drift.T @ np.linalg.solve(state.root.T, pull)
        steps = DIFFERENCE * np.eye(len(slopes))
        for i, step in enumerate(steps if len(steps) <= MOST_FOLLOWED else ()):
            near = frame.found.mode + frame.drift @ step
            there = self.evidence.solved(frame.theta + step, near)
            if is_usable(there):
                mean, factor = carried(state.mean, state.root, frame.found, there)
                in_sds = np.linalg.solve(state.root, mean - state.mean)
                turned = (root_slope * factor).sum() - np.trace(root_slope)
                slopes[i] = (pull @ in_sds + turned) / DIFFERENCE
        return slopes


def carried(mean: Vector, root: Square, old: Laplace, new: Laplace) -> tuple[Vector, Square]:
    """What is to the `new` Laplace Gaussian as `N(mean, root root^T)` is to the `old` one: its
    mean, and the symmetric factor of the root. (Another root of it would turn the draws.)"""
    both = np.column_stack([mean - old.mode, root])
    moved = new.root @ np.linalg.solve(old.root, both)
    factor = np.linalg.solve(root, moved[:, 1:])
    values, vectors = np.linalg.eigh(factor @ factor.T)
    symmetric = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return new.mode + moved[:, 0], symmetric


def _information(evidence: Evidence, theta: Hyper) -> Float[np.ndarray, "hyper hyper"]:
    """Minus the curvature of Laplace's evidence, nearly that of `F`; positive, and no unit of it is
    more than one of the user's own."""
    found = evidence_curvature(evidence, theta, DIFFERENCE)
    if found is None:
        return np.eye(len(theta))
    values, vectors = found
    return (vectors * np.maximum(np.abs(values), 1.0)) @ vectors.T
