"""The posterior of hyperparameters, explored from its mode: where it is to be asked, and with what
mass each answer counts.

    theta = theta* + B z,    B = V diag(lambda^-1/2)

with `V diag(lambda) V^T` minus the Hessian of the log evidence `E` at its mode `theta*`. Up to two
hyperparameters: a regular grid in z, walked outwards until `E` has fallen by `FALL` (the trapezoid
rule converges faster than any power of its step there). More: a central composite design of a
normal whose scales differ up and down each axis, with masses that correct for what `E` is:

    mass_i exp(E_i - E* + |z_i|^2 / 2)

Where the design of three says that `E` is far from its normal, a body-centred cubic lattice is
walked instead: in three dimensions it needs the fewest points for a smooth density, and its two
halves, cubic lattices both, tell what each alone would have said.
"""

import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from .._arrays._design import central_composite

# Nats below the mode at which a walk ends: 5e-5 of the mass of two hyperparameters lies beyond, and
# 3e-3 of three.
FALLS = {1: 10.0, 2: 10.0, 3: 7.0}
# Steps of the grid, in standard deviations (of the lattice: half the edge of a cube); and the nats
# by which the sums over every other point may differ before it is halved. The error of the whole is
# about the square of that; of a normal on the lattice they differ by 0.09.
STEPS = {1: 0.75, 2: 1.0, 3: 1.0}
HALVES_DIFFER, MOST_HALVINGS = {1: 0.05, 2: 0.05, 3: 0.25}, 2
# The evidence does not fall on a side where so many steps do not lead down.
MOST_ALONG, MOST_POINTS = 24, 400
MOST_ON_GRID = 2
# Of three: from so many nats (over a standard deviation) between a design and its normal on, the
# lattice is walked (`benchmarks/rough_designs.py`).
ON_LATTICE, ROUGH = 3, 0.25
# Of the first look at curvature, and of the second, in standard deviations.
FIRST_STEP, SECOND_STEP = 0.02, 0.5
LONGEST_SD = 4.0
# Standard deviations that the start may be from the mode, and how often it is moved there.
OFF_CENTRE, MOST_MOVES = 1e-3, 6
# A longer move asks for the curvature again.
FAR_MOVE = 0.5
SCALES = (0.25, 4.0)
# Places that hold this little together are not kept.
NEGLIGIBLE = 1e-4
# A place without a mode beside one that is so little below the best may hide mass; so much that
# the evidence counts as one that does not fall.
NEAR_BEST, AT_BEST = 6.0, 3.0

Hyper = Float[np.ndarray, " hyper"]


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """Hyperparameters, the log evidence there, its gradient, and what was found on the way."""

    theta: Hyper
    value: float
    gradient: Hyper
    found: Any


# The place at `theta`, sought from another; None where there is no mode.
Ask = Callable[[Hyper, Place | None], Place | None]


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """`theta = centre + basis (scale z)`, with `scales` below and above zero."""

    centre: Hyper
    basis: Float[np.ndarray, "hyper hyper"]
    scales: Float[np.ndarray, "2 hyper"]

    def theta(self, z: Float[np.ndarray, "*n hyper"]) -> Float[np.ndarray, "*n hyper"]:
        return self.centre + (self.stretched(z)) @ self.basis.T

    def stretched(self, z: Float[np.ndarray, "*n hyper"]) -> Float[np.ndarray, "*n hyper"]:
        return z * np.where(z > 0, self.scales[1], self.scales[0])

    @property
    def log_volume(self) -> float:
        """Of a unit of z, over both sides."""
        return float(np.linalg.slogdet(self.basis)[1] + np.log(self.scales.mean(0)).sum())


@dataclasses.dataclass(frozen=True, eq=False)
class Explored:
    """`places` at `z`, with the logs of the volumes `log_mass` that they stand for: the integral of
    `exp E` is the sum of `exp(value + log_mass)`. `step`: of the grid in z; None for a design.
    `open_axes`: along which the evidence does not fall; `ended_early`: the walk came to as many
    places as there may be before it had fallen; `n_lost`: places without a mode where mass may
    be; `n_asked`: evaluations in all; `ratio`: of a design, the largest |r_i| and |grad r_i|
    of `r(z) = E - E* + |z|^2/2`, which is nought for a normal; `uneven`: nats by which the two
    halves of a grid differ; `steep`: the mean square slope of `E` over it, along where it is
    largest: one for a normal, more where a density is so narrow that a walk may lose it."""

    frame: Frame
    z: Float[np.ndarray, "n hyper"]
    places: tuple[Place, ...]
    log_mass: Float[np.ndarray, " n"]
    step: float | None
    open_axes: tuple[int, ...]
    n_lost: int
    n_asked: int
    ratio: float = 0.0
    uneven: float = 0.0
    steep: float = 0.0
    ended_early: bool = False

    @property
    def slopes(self) -> Float[np.ndarray, "n hyper"]:
        """Of the evidence, along the columns of the frame's basis."""
        return np.stack([one.gradient for one in self.places]) @ self.frame.basis

    @property
    def values(self) -> Float[np.ndarray, " n"]:
        return np.array([one.value for one in self.places])

    @property
    def log_integral(self) -> float:
        return float(np.logaddexp.reduce(self.values + self.log_mass))

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        return np.exp(self.values + self.log_mass - self.log_integral)

    @property
    def kept(self) -> Bool[np.ndarray, " n"]:
        """All but those that hold next to nothing together."""
        order = np.argsort(self.weights, kind="stable")
        kept = np.ones(len(order), bool)
        kept[order[np.cumsum(self.weights[order]) < NEGLIGIBLE]] = False
        return kept


class _Counting:
    def __init__(self, ask: Ask):
        self.ask, self.n, self.n_lost = ask, 0, 0

    def __call__(self, theta: Hyper, near: Place | None) -> Place | None:
        self.n += 1
        found = self.ask(theta, near)
        return None if found is None or not math.isfinite(found.value) else found


def explored(ask: Ask, theta: Hyper) -> Explored | None:
    """From `theta`, which is near the mode; None where nothing can be asked there."""
    asked = _Counting(ask)
    centre = asked(theta, None)
    if centre is None:
        return None
    centre, basis = _centred(asked, centre)
    scales = _scales(asked, centre, basis)
    if len(theta) > MOST_ON_GRID:
        design = _designed(asked, centre, Frame(centre.theta, basis, scales))
        is_rough = design.ratio > ROUGH or design.n_lost > 0
        if len(theta) != ON_LATTICE or design.open_axes or not is_rough:
            return design
    even = basis * np.sqrt(scales.prod(0))  # a grid is regular: one scale for both sides
    return _on_grid(asked, centre, Frame(centre.theta, even, np.ones_like(scales)))


# --- the mode and its curvature -----------------------------------------------------------------


def _centred(asked: _Counting, centre: Place) -> tuple[Place, np.ndarray]:
    """The mode, by Newton steps with the curvature of differences, and `V diag(lambda^-1/2)`."""
    basis = FIRST_STEP / SECOND_STEP * np.eye(len(centre.theta))
    for _ in range(2):
        basis = _axes(asked, centre, basis)
    for _ in range(MOST_MOVES):
        move = basis.T @ centre.gradient  # in standard deviations
        length = float(np.linalg.norm(move))
        if not length > OFF_CENTRE:
            break
        move = move / max(1.0, length)
        there = asked(centre.theta + basis @ move, centre)
        if there is None or not there.value > centre.value:
            break
        centre = there
        if length > FAR_MOVE:
            basis = _axes(asked, centre, basis)
    return centre, basis


def _axes(asked: _Counting, centre: Place, basis: np.ndarray) -> np.ndarray:
    """By central differences along the columns of `basis`; one side alone where the other has no
    mode."""
    k = len(centre.theta)
    slopes = np.empty((k, k))
    for j, column in enumerate(basis.T):
        step = SECOND_STEP * column
        ends = [(sign, asked(centre.theta + sign * step, centre)) for sign in (-1, 1)]
        known = [(sign, one.gradient) for sign, one in ends if one is not None]
        known += [(0, centre.gradient)] * (len(known) == 1)
        if len(known) < 2:
            slopes[j] = -basis[:, j] @ np.linalg.pinv(basis @ basis.T)
            continue
        (first, low), (last, high) = sorted(known, key=lambda one: one[0])[:: len(known) - 1]
        slopes[j] = (high - low) / ((last - first) * SECOND_STEP)
    inverse = np.linalg.inv(basis)
    curved = -0.5 * (slopes.T @ inverse + (slopes.T @ inverse).T)
    values, vectors = np.linalg.eigh(curved)
    largest = np.abs(vectors).argmax(0)
    vectors = vectors * np.sign(vectors[largest, np.arange(k)])  # rounding must not matter
    return vectors / np.sqrt(np.maximum(np.abs(values), LONGEST_SD**-2))


def _scales(asked: _Counting, centre: Place, basis: np.ndarray) -> np.ndarray:
    """Standard deviations below and above the mode, of a normal that falls as `E` does two units
    away."""
    scales = np.ones((2, len(centre.theta)))
    for j, column in enumerate(basis.T):
        for side, sign in enumerate((-1, 1)):
            for far in (2.0, 1.0):
                there = asked(centre.theta + sign * far * column, centre)
                if there is not None:
                    fall = max(centre.value - there.value, 1e-9)
                    scales[side, j] = np.clip(far / math.sqrt(2 * fall), *SCALES)
                    break
    return scales


# --- a grid -------------------------------------------------------------------------------------


def _on_grid(asked: _Counting, centre: Place, frame: Frame) -> Explored:
    k = len(centre.theta)
    step, known = STEPS[k], {(0,) * k: centre}
    walked = _walk(asked, frame, step, known)
    for _ in range(MOST_HALVINGS):
        too_many = len(known) > MOST_POINTS // 2**k
        if walked.open_axes or too_many or _uneven(known) <= HALVES_DIFFER[k]:
            break
        step, known = step / 2, {tuple(2 * i for i in at): one for at, one in known.items()}
        walked = _walk(asked, frame, step, known)
    z = step * np.array(list(known), dtype=float)
    cell = 4 * step**3 if k == ON_LATTICE else step**k
    log_mass = np.full(len(known), math.log(cell) + frame.log_volume)
    made = Explored(
        *(frame, z, tuple(known.values()), log_mass, step),
        *(walked.open_axes, walked.n_lost, asked.n),
        uneven=_uneven(known),
        ended_early=walked.ended_early,
    )
    slopes = step / STEPS[k] * made.slopes
    information = (made.weights[:, None] * slopes).T @ slopes
    return dataclasses.replace(made, steep=float(np.linalg.eigvalsh(information)[-1]))


Lattice = dict[tuple[int, ...], Place]


def _neighbours(k: int) -> list[tuple[int, ...]]:
    """Along the axes; of the lattice, whose coordinates are all even or all odd, to the corners of
    a cube."""
    if k == ON_LATTICE:
        return list(itertools.product((-1, 1), repeat=k))
    return [tuple(sign * (i == j) for i in range(k)) for j in range(k) for sign in (-1, 1)]


def _half(at: tuple[int, ...]) -> int:
    return (at[0] if len(at) == ON_LATTICE else sum(at)) % 2


@dataclasses.dataclass(frozen=True)
class _Walked:
    """Along which axes the evidence does not end, how many places near the best had no mode, and
    whether there were more to ask than may be."""

    open_axes: tuple[int, ...]
    n_lost: int
    ended_early: bool


def _walk(asked: _Counting, frame: Frame, step: float, known: Lattice) -> _Walked:
    """Fills `known` as far as the evidence reaches, each place from a neighbour."""
    k = len(frame.centre)
    queue, open_axes = deque(sorted(known, key=_far)), set[int]()
    lost: dict[tuple[int, ...], tuple[float, int]] = {}
    best, ended_early = max(one.value for one in known.values()), False
    while queue:
        at = queue.popleft()
        own = known[at]
        if own.value < best - FALLS[k]:
            continue
        for way in _neighbours(k):
            there = tuple(i + by for i, by in zip(at, way, strict=True))
            if there in known or there in lost:
                continue
            # Along which it goes furthest, of those along which it goes.
            j = max((j for j in range(k) if way[j]), key=lambda j: abs(there[j]))
            if abs(there[j]) * step > MOST_ALONG * STEPS[k]:
                open_axes.add(j)
                continue
            theta = frame.theta(step * np.array(there, dtype=float))
            if k == ON_LATTICE and _tangent(own, theta) < best - FALLS[k]:
                continue
            if len(known) >= MOST_POINTS:
                ended_early = True
                continue
            found = asked(theta, own)
            if found is None:
                lost[there] = own.value, j
                continue
            known[there] = found
            best = max(best, found.value)
            queue.append(there)
    open_axes |= {j for value, j in lost.values() if value > best - AT_BEST}
    if ended_early:  # at a place that is nobody's fault: the axes are asked one by one
        open_axes |= {j for j in range(k) if _is_open(asked, frame, step, known, j, best)}
    n_lost = sum(value > best - NEAR_BEST for value, _ in lost.values())
    return _Walked(tuple(sorted(open_axes)), n_lost, ended_early)


def _is_open(
    asked: _Counting, frame: Frame, step: float, known: Lattice, j: int, best: float
) -> bool:
    """Whether the evidence has not fallen at the end of a straight line from the mode along an
    axis."""
    k = len(frame.centre)
    by = 2 if k == ON_LATTICE else 1
    last = math.floor(MOST_ALONG * STEPS[k] / step)
    for sign in (-1, 1):
        own, reach = known[(0,) * k], by
        while own.value >= best - FALLS[k]:
            if reach > last:
                return True
            at = tuple(sign * reach * (i == j) for i in range(k))
            found = known.get(at) or asked(frame.theta(step * np.array(at, dtype=float)), own)
            if found is None:
                if own.value > best - AT_BEST:
                    return True
                break
            own, reach = found, reach + by
    return False


def _tangent(own: Place, theta: Hyper) -> float:
    """What a neighbour expects at `theta`: more than there is, where the evidence is concave."""
    return own.value + float(own.gradient @ (theta - own.theta))


def _far(at: tuple[int, ...]) -> int:
    return sum(map(abs, at))


def _uneven(known: Lattice) -> float:
    """Nats by which every other point says something else than the rest."""
    halves = [[one.value for at, one in known.items() if _half(at) == odd] for odd in (0, 1)]
    if not all(halves):
        return math.inf
    even, odd = (np.logaddexp.reduce(np.array(half)) for half in halves)
    return float(abs(even - odd))


# --- a design -----------------------------------------------------------------------------------


def _designed(asked: _Counting, centre: Place, frame: Frame) -> Explored:
    z, masses = central_composite(len(centre.theta))
    places: list[Place | None] = [centre]
    places += [asked(theta, centre) for theta in frame.theta(z[1:])]
    there = np.array([one is not None for one in places])
    found = tuple(one for one in places if one is not None)
    z, masses, n_lost = z[there], masses[there], int((~there).sum())
    # A unit of z is longer where the scale is.
    sides = np.where(z > 0, frame.scales[1], np.where(z < 0, frame.scales[0], frame.scales.mean(0)))
    log_jacobian = np.log(sides / frame.scales.mean(0)).sum(1)
    half_square = 0.5 * (z**2).sum(1)
    log_mass = np.log(masses) + half_square + log_jacobian
    log_mass += 0.5 * z.shape[1] * math.log(2 * math.pi) + frame.log_volume
    values = np.array([one.value for one in found])
    slopes = np.stack([one.gradient for one in found]) @ frame.basis * sides
    off = np.abs(values - centre.value + half_square), np.linalg.norm(slopes + z, axis=1)
    ratio = float(np.max(off))
    open_axes = tuple(int(j) for j in np.flatnonzero((frame.scales >= SCALES[1]).any(0)))
    return Explored(frame, z, found, log_mass, None, open_axes, n_lost, asked.n, ratio=ratio)
