"""Mass and modes that a Gaussian does not reach.

    candidates ... images of the mode under symmetries that the model may have; starts spread widely
                   around the user's; draws stretched up to fifty times
    values ....... of all of them, in one call. A symmetry that the density has shows here
    rays ......... of the densest: a density that falls and rises again on the way promises a mode
    climbs ....... Newton's steps from those, for a quarter of the fit's gradients or two of them

A mode counts where it is a converged maximum with positive curvature, apart from the known ones,
and the density dips on the way to it. What is none of these is a tail.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .._approximate._laplace import Laplace
from .._arrays._draws import WIDE_STARTS, generator
from .._arrays._roots import across, dense, whiten
from .._density._constraints import Constraints
from .._density._counted import Counted
from .._density._protocol import Density, Matrix, coloured
from .._density._structure import Structure
from ._diagnosis import NO_MASS, Elsewhere, OtherMode, SymmetrySeen
from ._fresh import Judged
from ._modes import Mode, climbed, distinct, laplace_mass, weighed
from ._probes import (
    MOST_PROBED,
    N_PROBES,
    Along,
    Probes,
    along,
    in_sds,
    probes,
    rays,
    reach,
    surprising,
    tail_share,
)
from ._symmetry import LABELS, SIGN, Symmetries, Symmetry, leaves_of, orbit, remedy, symmetries

LEAST_PROBES = 47
# Above these dimensions rays see little, searches cost more than they find.
MANY_DIMENSIONS, MOST_CLIMBED = 40, 300
# Starts around the user's, and how wide.
N_WIDE, WIDE = 32, 3.0
# Nats above the Gaussian, and sds from it, that make an image or a start worth a closer look.
SURPRISE, NEAR = 3.0, 2.5
# The same of stretched draws, some of which are surprising in every heavy tail: nats, and sds
# squared beyond the number of dimensions.
GREAT_SURPRISE, BEYOND = 10.0, 20.0
# Candidates of each kind that are looked at more closely.
CLOSER_IMAGES, CLOSER_WIDE, CLOSER_PROBES = 6, 6, 4
# Climbs that are made whatever they cost; other modes after which no more are looked for, and
# climbs where there is one.
LEAST_CLIMBS, ENOUGH_MODES, ENOUGH_CLIMBS = 2, 3, 5
# Exact images whose way is looked at; images counted; modes listed; draws that check a symmetry.
LOOKED_AT, MOST_COUNTED, MOST_LISTED, CHECKS = 32, 1000, 24, 3
# Nats by which the density must fall on the way to another mode.
DIP = 0.2

Vector = Float[np.ndarray, " dim"]
Points = Float[np.ndarray, "n dim"]
Values = Float[np.ndarray, " n"]


class Setting(NamedTuple):
    """What is known of the parameters: their structure, their bounds, the user's start; and whether
    the density's gradients are compiled."""

    structure: Structure
    constraints: Constraints | None
    start: Vector
    gradients_compiled: bool = False

    @property
    def symmetries(self) -> Symmetries:
        return symmetries(leaves_of(self.structure, self.constraints))

    def user(self, points: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "*n user"]:
        return points if self.constraints is None else self.constraints.flat(points)

    def unbounded(self, x: Float[np.ndarray, "*n user"]) -> Float[np.ndarray, "*n dim"]:
        return x if self.constraints is None else self.constraints.unconstrain(x)

    def log_det(self, points: Float[np.ndarray, "*n dim"]) -> Any:
        """Of the map to the user's parameters, in which a symmetry keeps volumes."""
        return 0.0 if self.constraints is None else self.constraints.log_dets(points)


class Candidates(NamedTuple):
    """Points where another mode may be. `symmetries`: those that the images come from."""

    images: Points
    symmetries: tuple[Symmetry, ...]
    wide: Points
    probes: Probes

    def points(self, home: Mode) -> Points:
        """All of them; probes go out from home."""
        stretched = coloured(home.place, home.root, self.probes.z)
        return np.concatenate([self.images, self.wide, stretched])


class Heights(NamedTuple):
    """Log densities at candidates."""

    images: Float[np.ndarray, " images"]
    wide: Float[np.ndarray, " wide"]
    probes: Float[np.ndarray, " probes"]

    @classmethod
    def cut(cls, values: Values, candidates: Candidates) -> "Heights":
        """From one vector."""
        n_images = len(candidates.images)
        return cls(*np.split(values, [n_images, n_images + len(candidates.wide)]))


@dataclasses.dataclass(frozen=True)
class Around:
    """A Gaussian that was fitted, and what is known of its surroundings. `known`: the modes of its
    own bulk; the search goes out from the first, which may be the Gaussian itself."""

    density: Density
    setting: Setting
    mean: Vector
    root: Matrix
    fresh: Judged
    key: Any
    known: tuple[Mode, ...] = ()

    @property
    def home(self) -> Mode:
        return self.known[0]

    @property
    def mode(self) -> Mode:
        """Of the Gaussian's own bulk; itself where there is none."""
        return self.known[-1]

    @property
    def spent(self) -> int:
        """Gradients, by the fit and since."""
        return self.density.cost if isinstance(self.density, Counted) else 2 * N_PROBES

    @property
    def itself(self) -> Mode:
        """The Gaussian, with the mass of its neighbourhood by its fresh draws."""
        said = self.fresh.diagnosis
        value = float(self.density.values(self.mean[None])[0])
        return Mode(self.mean, dense(self.root), value, said.elbo.value + said.kl)

    def from_home(self, points: Points) -> Points:
        return whiten(self.home.root, points - self.home.place)

    def on_the_way(self, z: Points) -> Along:
        """From home to points in its standard deviations."""
        values = self.density.values(coloured(self.home.place, self.home.root, rays(z)))
        return along(len(z), values, self.home.log_density)

    @property
    def may_ask_gradients(self) -> bool:
        """In so many dimensions that rays see little, and where they are compiled anyway."""
        return self.setting.gradients_compiled and len(self.mean) > MANY_DIMENSIONS

    def stepped(self, z: Points) -> Points:
        """One Newton step from each point with the curvature of home: it leads to the mode of
        another Gaussian of the same shape, from wherever."""
        points = coloured(self.home.place, self.home.root, z)
        return z + across(self.density.gradients(points)[1], self.home.root)

    def dips(self, one: Mode) -> bool:
        return bool(self.on_the_way(self.from_home(one.place[None])).dip[0] > DIP)

    def away(self, points: Float[np.ndarray, "*n dim"]) -> Any:
        """In standard deviations of the Gaussian that was fitted."""
        return in_sds(self.root, points - self.mean)


def searched_elsewhere(
    density: Density,
    found: Laplace | None,
    mean: Vector,
    root: Matrix,
    fresh: Judged,
    setting: Setting,
    key: Any,
    around_mean: bool,
    seen: Sequence[Mode] = (),
    goes_on: bool = False,
) -> tuple[Elsewhere, list[Mode]]:
    """What `N(mean, root root^T)` does not reach, and other modes. The search goes out from the
    mode (`found`, where it is this density's) or, `around_mean`, from the Gaussian's own centre:
    Stein steps may have left the mode far behind, or had none. `seen`: modes known already;
    `goes_on`: to look for as many besides as if there were none."""
    here = Around(density, setting, mean, root, fresh, key)
    itself = here.itself
    here, others = with_home(here, itself, found, around_mean)
    # A Hessian, counted as so many gradients as there are dimensions, takes longer than these.
    most = here.spent + here.spent // 4
    candidates = candidates_of(setting, here.home, key, affordable(density))
    heights = Heights.cut(density.values(candidates.points(here.home)), candidates)
    exact = _exact(here, candidates, heights.images)
    others = distinct([*here.known, *others, *seen])[len(distinct(here.known)) :]
    enough = ENOUGH_MODES + (len(others) if goes_on else 0)
    starts = _worth_climbing(here, candidates, heights, bool(exact))
    for n_climbs, (start, hint) in enumerate(starts):
        is_enough = here.spent > most or len(others) >= enough
        if n_climbs >= LEAST_CLIMBS and (is_enough or (others and n_climbs >= ENOUGH_CLIMBS)):
            break
        other = climbed(density, start, [*here.known, *others])
        if other is not None:
            near = in_sds(other.root, start - other.place) < NEAR
            others.append(other._replace(hint=hint if near else None))
    others = [one for one in (weighed(density, o, key) for o in _others(here, others)) if one]
    tail = _tail(here, candidates.probes, heights.probes)
    return told(here, itself, exact, others, tail), others


def affordable(density: Density) -> int:
    """Values for at most half of what the fit has cost; as many as one call answers anyway."""
    spent = density.cost if isinstance(density, Counted) else 2 * N_PROBES
    return max(spent, density.values_at_once - 1, LEAST_PROBES)


def candidates_of(setting: Setting, home: Mode, key: Any, most: int) -> Candidates:
    """`most`: images, and probes."""
    dim, some = len(home.place), setting.symmetries
    n = min(len(some), most)
    images = setting.unbounded(some.images(setting.user(home.place), n))
    if dim > MOST_PROBED:
        nothing = np.zeros((0, dim))
        return Candidates(images, some.some[:n], nothing, Probes(nothing, np.zeros(0)))
    spread = WIDE * generator(key, WIDE_STARTS).standard_normal((N_WIDE, dim))
    # By turns in units of one, and of the start where that is larger.
    spread[1::2] *= np.maximum(1.0, np.abs(setting.start))
    wide = setting.start + spread
    return Candidates(images, some.some[:n], wide, probes(key, dim).first(min(most, N_PROBES)))


def with_home(
    here: Around, itself: Mode, found: Laplace | None, around_mean: bool
) -> tuple[Around, list[Mode]]:
    """With the modes of the Gaussian's own bulk, and the one that was found where it is another."""
    if found is None or not found.found:
        return dataclasses.replace(here, known=(itself,)), []
    mass = laplace_mass(found.log_density, len(found.mode), found.log_det_root)
    its_mode = Mode(found.mode, found.root, found.log_density, mass)
    if not around_mean and here.away(found.mode) < NEAR:
        return dataclasses.replace(here, known=(its_mode,)), []
    here = dataclasses.replace(here, known=(itself,))
    if here.away(found.mode) > NEAR and here.dips(its_mode):
        # Two modes, unless the way up from the Gaussian's centre leads to this one after all.
        own = climbed(here.density, here.mean, [its_mode])
        if own is not None:
            return dataclasses.replace(here, known=(itself, own)), [its_mode]
    return dataclasses.replace(here, known=(itself, its_mode)), []


# --- symmetries that the density has ----------------------------------------------------------


def _exact(here: Around, candidates: Candidates, log_p: Values) -> list[Symmetry]:
    """Those that lead to an image out of reach, on whose way the density dips, and that change the
    density at no draw."""
    images = candidates.images
    same = as_high(here.setting, here.home, images, log_p, here.density.resolution)
    some = [(candidates.symmetries[i], images[i]) for i in np.flatnonzero(same)]
    if some:
        hold = _change_nothing(here, [one for one, _ in some])
        some = [pair for pair, holds in zip(some, hold, strict=True) if holds]
    if not some:
        return []
    dips = here.on_the_way(here.from_home(np.stack([image for _, image in some[:LOOKED_AT]]))).dip
    return [one for (one, _), dip in zip(some[:LOOKED_AT], dips, strict=True) if dip > DIP]


def as_high(
    setting: Setting, home: Mode, images: Points, log_p: Values, resolution: float
) -> Bool[np.ndarray, " n"]:
    """Images out of reach where the density of the user's parameters is the same as at home."""
    height = home.log_density - setting.log_det(home.place)
    with np.errstate(invalid="ignore"):
        same = np.abs(log_p - setting.log_det(images) - height) <= rounding(resolution, height)
        return same & (in_sds(home.root, images - home.place) > NEAR)


def rounding(resolution: float, height: Any) -> Any:
    return max(1e-9, 1e3 * resolution) * (1 + abs(height))


def _change_nothing(here: Around, some: list[Symmetry]) -> Bool[np.ndarray, " symmetries"]:
    """At a few of the fresh draws, in one call."""
    setting, log_p = here.setting, here.fresh.log_p[:CHECKS]
    points = coloured(here.mean, here.root, here.fresh.z[:CHECKS])
    x = setting.user(points)
    images = setting.unbounded(np.concatenate([one(x) for one in some]))
    there = (here.density.values(images) - setting.log_det(images)).reshape(len(some), -1)
    gain = there - (log_p - setting.log_det(points))
    return (np.abs(gain) <= rounding(here.density.resolution, np.abs(log_p).max())).all(1)


# --- searches ---------------------------------------------------------------------------------


def _labels_and_others(candidates: Candidates, z: Points, log_p: Values, peak: float) -> list[int]:
    """As many images that trade labels and do nothing else as others: the first promise more than
    their values say."""
    is_label = np.array([one.kind == LABELS and one.is_plain for one in candidates.symmetries])
    is_label = is_label.astype(bool)
    chosen: list[int] = []
    for wanted in (is_label, ~is_label):
        its = np.where(wanted, log_p, -np.inf)
        chosen += [int(i) for i in surprising(z, its, peak, SURPRISE, NEAR, CLOSER_IMAGES // 2)]
    return chosen


class Closer(NamedTuple):
    """Candidates worth a closer look, in standard deviations from home, and the symmetry that
    led to each. `first`: the numbers of the densest of every kind."""

    z: Points
    hints: list[Symmetry | None]
    first: list[int]


def closer_look(home: Mode, candidates: Candidates, heights: Heights, images_too: bool) -> Closer:
    """The densest of each kind at which the density is surprisingly high."""
    images, wide, probed = heights
    z_images, z_wide = (
        whiten(home.root, points - home.place) for points in (candidates.images, candidates.wide)
    )
    peak, beyond = home.log_density, math.sqrt(len(home.place) + BEYOND)
    some = _labels_and_others(candidates, z_images, images, peak) if images_too else []
    starts = surprising(z_wide, wide, peak, SURPRISE, NEAR, CLOSER_WIDE)
    z = candidates.probes.z
    far = surprising(z, probed, peak, GREAT_SURPRISE, beyond, CLOSER_PROBES)
    hints = [*(candidates.symmetries[i] for i in some), *([None] * (len(starts) + len(far)))]
    firsts = np.cumsum([0, len(some), len(starts)])
    counts = [min(len(kind), 2) for kind in (some, starts, far)]
    first = [int(at) + i for at, n in zip(firsts, counts, strict=True) for i in range(n)]
    return Closer(np.concatenate([z_images[some], z_wide[starts], z[far]]), hints, first)


def _worth_climbing(
    here: Around, candidates: Candidates, heights: Heights, has_images: bool
) -> Iterator[tuple[Vector, Symmetry | None]]:
    """Candidates on whose way the density rises again, of each kind in turn; then the densest whose
    way is not concave at least. With the symmetry that led to each."""
    if len(here.mean) > MOST_CLIMBED:
        return
    z, hints, first = closer_look(here.home, candidates, heights, not has_images)
    # Where the way to the first of every kind is concave, the density is log-concave, or seems so.
    if len(z) == 0 or here.on_the_way(z[first]).concave.all():
        if len(z) == 0 or not here.may_ask_gradients:
            return
        z, hints = here.stepped(z[first]), [None] * len(first)
    way = here.on_the_way(z)
    n_images = sum(hint is not None for hint in hints)
    tails = np.flatnonzero(~way.rises & ~way.concave)[:1]
    starts = coloured(here.home.place, here.home.root, z)
    for i in (*_in_turn(np.flatnonzero(way.rises), n_images), *tails):
        yield starts[i], hints[i]


def _in_turn(promising: np.ndarray, n_images: int) -> list[int]:
    """Images and others by turns."""
    images, others = promising[promising < n_images], promising[promising >= n_images]
    turns = np.concatenate([2 * np.arange(len(images)), 2 * np.arange(len(others)) + 1])
    return [int(i) for i in np.concatenate([images, others])[np.argsort(turns, kind="stable")]]


def _others(here: Around, found: list[Mode]) -> list[Mode]:
    """Distinct ones that the Gaussian does not reach, with a dip on the way."""
    new = distinct([*here.known, *found])[len(distinct(here.known)) :]
    return [one for one in new if here.away(one.place) > NEAR and here.dips(one)]


def _tail(here: Around, probed: Probes, log_p: Values) -> float:
    """The share of the mass that probes around home see where the Gaussian does not reach."""
    if len(log_p) == 0:
        return 0.0
    home, elbo = here.home, here.fresh.diagnosis.elbo.value
    is_far = here.away(coloured(home.place, home.root, probed.z)) > reach(len(here.mean))
    return tail_share(probed, log_p, is_far, float(np.linalg.slogdet(home.root)[1]), elbo)


# --- what is told of them ---------------------------------------------------------------------


def told(
    here: Around, itself: Mode, exact: list[Symmetry], others: list[Mode], tail: float
) -> Elsewhere:
    """Every mode with its share of the mass of all. An image has the mass of what it is an image
    of; the modes that were climbed have images, too."""
    setting = here.setting
    images = _images(here, exact)
    if exact:
        # What looks like an image is one of those.
        others = [one for one in others if not any(one.is_image_of(own) for own in here.known)]
    counts = [
        1 + len(images),
        *(len(orbit(setting.user(o.place), exact, MOST_COUNTED)) for o in others),
    ]
    log_mass = np.array([itself.log_mass, *(one.log_mass for one in others)])
    log_total = np.logaddexp.reduce(log_mass + np.log(counts))
    share = np.exp(log_mass - log_total)
    listed = [
        OtherMode(
            float(here.away(point)),
            float(share[0]),
            point,
            here.mode.log_density,
            True,
            tuple(sorted(kinds)),
        )
        for point, kinds in images[:MOST_LISTED]
    ]
    seen = [_seen(here, one, True) for one in exact]
    for one, part in zip(others, share[1:], strict=True):
        is_image = any(one.is_image_of(own) for own in here.known)
        # A prior may tell labels apart. A turn or a sign that led to a mode of another height or
        # width is no symmetry, and no remedy.
        hints = () if one.hint is None else (one.hint,)
        hints = [hint for hint in hints if hint.kind == LABELS or (is_image and hint.kind != SIGN)]
        away, relation = float(here.away(one.place)), tuple(hint.kind for hint in hints)
        listed.append(OtherMode(away, float(part), one.place, one.log_density, is_image, relation))
        seen += [_seen(here, hint, False) for hint in hints]
    return Elsewhere(
        modes=tuple(listed),
        n_modes=sum(n for n, part in zip(counts, share, strict=True) if part > NO_MASS) - 1,
        share=float(1 - share[0]),
        tail_share=tail,
        log_density=here.mode.log_density,
        point=here.mode.place,
        symmetries=tuple(dict.fromkeys(seen)),
    )


def _seen(here: Around, one: Symmetry, exact: bool) -> SymmetrySeen:
    setting, home = here.setting, here.home
    x = setting.user(home.place)
    drawn = setting.user(coloured(here.mean, here.root, here.fresh.z))
    moves = np.abs(one(x) - x) / np.maximum(drawn.std(0), 1e-300)
    leaves = leaves_of(setting.structure, setting.constraints)
    return SymmetrySeen(one.kind, one.names, remedy(one, leaves, moves), exact)


def _images(here: Around, exact: list[Symmetry]) -> list[tuple[Vector, frozenset[str]]]:
    """Of the mode, under all that the symmetries generate; the nearest first."""
    if not exact:
        return []
    setting = here.setting
    _, *found = orbit(setting.user(here.mode.place), exact, MOST_COUNTED)
    points = [(setting.unbounded(x), kinds) for x, kinds in found]
    far = [(here.away(point), point, kinds) for point, kinds in points]
    far = sorted((one for one in far if one[0] > NEAR), key=lambda one: one[0])
    return [(point, kinds) for _, point, kinds in far]
