"""Modes: one that a search ends in, whether it is another one, and how much mass it has."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._approximate._laplace import covariance_root
from .._approximate._newton import Place, newton
from .._density._protocol import Density, coloured
from .._errors import Code
from .._law._gaussian import normal_logpdf
from ._fresh import fresh_draws
from ._probes import in_sds
from ._symmetry import Symmetry

# A mode is another one further than this from the known ones, in its own standard deviations or
# theirs, whichever are wider.
APART = 1.0
# Newton's steps from a candidate; their tolerance; draws that weigh a mode.
MOST_STEPS, TOL, WEIGHED = 25, 1e-3, 64
# After so many steps a climb must have come within so many nats of the first mode's height, and so
# many more per dimension: what is lower has no mass to speak of.
FEW_STEPS, BELOW, BELOW_PER_DIMENSION = 8, 20.0, 2.0
# Nats (and one more per dimension) between the mass by curvature and by draws that are not like a
# mode.
UNLIKE = 10.0

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


class Mode(NamedTuple):
    """A converged maximum with positive curvature. `log_mass`: of its Gaussian neighbourhood;
    `hint`: the symmetry that led to it, if one did."""

    place: Vector
    root: Square
    log_density: float
    log_mass: float
    hint: Symmetry | None = None

    def apart(self, other: "Mode") -> float:
        """In standard deviations of whichever of the two is wider."""
        away = self.place - other.place
        return float(min(in_sds(self.root, away), in_sds(other.root, away)))

    def is_image_of(self, other: "Mode") -> bool:
        """The same height and the same curvature."""
        heights = abs(self.log_density - other.log_density)
        log_dets = [np.linalg.slogdet(one.root)[1] for one in (self, other)]
        return bool(
            heights <= 1e-5 * (1 + abs(other.log_density)) and abs(log_dets[0] - log_dets[1]) < 1e-3
        )


def distinct(found: Sequence[Mode]) -> list[Mode]:
    """Those that are not one of those before them."""
    kept = list(found[:1])
    for one in found[1:]:
        if min(one.apart(known) for known in kept) > APART:
            kept.append(one)
    return kept


def climbed(density: Density, start: Vector, known: Sequence[Mode]) -> Mode | None:
    """The mode that a few of Newton's steps lead to; None where they come home, or to none."""
    n_steps, least = 0, known[0].log_density - BELOW - BELOW_PER_DIMENSION * density.dim

    def is_home(place: Place) -> bool:
        return any(in_sds(one.root, place.point - one.place) < 0.5 * APART for one in known)

    def is_enough(place: Place) -> bool:
        nonlocal n_steps
        n_steps += 1
        return is_home(place) or (n_steps >= FEW_STEPS and place.value < least)

    search = newton(density, start, TOL, MOST_STEPS, until=is_enough)
    if search.code is not Code.OK or is_home(search.place):
        return None
    root, log_det, _ = covariance_root(search.place.precision, "raise", density.resolution)
    if not math.isfinite(log_det):
        return None
    point, value = search.place.point, search.place.value
    return Mode(point, root, value, laplace_mass(value, len(point), log_det))


def laplace_mass(log_density: float, dim: int, log_det: float) -> float:
    return log_density + 0.5 * dim * math.log(2 * math.pi) + log_det


def weighed(density: Density, mode: Mode, key: Any) -> Mode | None:
    """With its mass by importance sampling; None where draws around it see nothing like a mode:
    what is left of numbers too large may look like one."""
    z = fresh_draws(key, WEIGHED, density.dim)
    log_q = normal_logpdf(z, float(np.linalg.slogdet(mode.root)[1]))
    ratio = density.values(coloured(mode.place, mode.root, z)) - log_q
    ratio = np.where(np.isfinite(ratio), ratio, -np.inf)
    mass = float(np.logaddexp.reduce(ratio) - math.log(WEIGHED))
    if not abs(mass - mode.log_mass) < UNLIKE + density.dim:
        return None
    return mode._replace(log_mass=mass)
