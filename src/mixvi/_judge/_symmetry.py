"""Images of a point under what may be symmetries of a model: labels, signs, periods.

A mixture does not change when its components trade places, a factor model when loadings and scores
change sign together, a wave when its phase moves on by a turn. Which of these a density has is not
asked of the user: all that the shapes and names of the parameters suggest are tried. Each is a
signed permutation and a shift of the user's numbers,

    image(x) = sign * x[take] + shift.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._density._constraints import Constraints
from .._density._kinds import Free, Interval, Kind, Ordered
from .._density._structure import Structure, listed

# Entries of a vector that may be components and nothing else.
SHORT_VECTOR = 3
# Kinds of symmetry.
LABELS, SIGN, PERIOD = "labels", "sign", "period"
# Axes up to this length have all pairs of entries exchanged, longer ones neighbours only.
SHORT = 24
# Leaves that share an axis: all subsets of so many are tried.
FEW_LEAVES = 4
# Products of exchanges and signs that are tried; vectors that may hold a whole model.
FEW_PAIRS, LONG_VECTOR = 400, 30
# Coordinates that are shifted one by one; images in all.
FEW_ANGLES, MOST_IMAGES = 12, 1500
# Shifts that leave a wave as it is, and those that turn it upside down.
WHOLE_TURNS, HALF_TURNS = (2 * math.pi, 1.0), (math.pi, 0.5)

Vector = Float[np.ndarray, " user"]


class Leaf(NamedTuple):
    """One of the user's arrays: its place in the flat vector, and what it may be."""

    name: str
    shape: tuple[int, ...]
    first: int
    kind: Kind

    @property
    def at(self) -> Int[np.ndarray, "..."]:
        """Where its numbers stand."""
        return np.arange(self.first, self.first + math.prod(self.shape)).reshape(self.shape)

    @property
    def has_sign(self) -> bool:
        return isinstance(self.kind, Free)

    def is_like(self, other: "Leaf") -> bool:
        return self.shape == other.shape and self.kind == other.kind


@dataclasses.dataclass(frozen=True, eq=False)
class Symmetry:
    """One that a density may have. `names`: of the arrays that it changes."""

    kind: str
    names: tuple[str, ...]
    take: Int[np.ndarray, " user"]
    sign: Float[np.ndarray, " user"]
    shift: Float[np.ndarray, " user"]

    def __call__(self, x: Float[np.ndarray, "*n user"]) -> Float[np.ndarray, "*n user"]:
        return self.sign * x[..., self.take] + self.shift

    def then(self, other: "Symmetry") -> "Symmetry":
        """This one first."""
        return Symmetry(
            self.kind,
            tuple(dict.fromkeys((*self.names, *other.names))),
            self.take[other.take],
            other.sign * self.sign[other.take],
            other.sign * self.shift[other.take] + other.shift,
        )

    @property
    def is_plain(self) -> bool:
        """Numbers trade places and stay what they are."""
        return bool((self.sign > 0).all() and not self.shift.any())

    @property
    def key(self) -> bytes:
        return self.take.tobytes() + self.sign.tobytes() + self.shift.tobytes()


class Symmetries:
    """All that are tried for parameters of one structure, the likeliest first."""

    def __init__(self, some: Sequence[Symmetry], size: int):
        self.some = tuple(some)
        self._take = np.array([one.take for one in some], int).reshape(-1, size)
        self._sign = np.array([one.sign for one in some]).reshape(-1, size)
        self._shift = np.array([one.shift for one in some]).reshape(-1, size)

    def __len__(self) -> int:
        return len(self.some)

    def images(
        self, x: Float[np.ndarray, "*n user"], n: int
    ) -> Float[np.ndarray, "*n images user"]:
        """Under the first `n`."""
        return self._sign[:n] * x[..., self._take[:n]] + self._shift[:n]


@functools.lru_cache(maxsize=16)
def symmetries(leaves: tuple[Leaf, ...]) -> Symmetries:
    made: dict[bytes, Symmetry] = {}
    for one in itertools.islice(_likeliest_first(leaves), 4 * MOST_IMAGES):
        made.setdefault(one.key, one)
    size = sum(math.prod(leaf.shape) for leaf in leaves)
    return Symmetries(tuple(made.values())[:MOST_IMAGES], size)


def leaves_of(structure: Structure, constraints: Constraints | None) -> tuple[Leaf, ...]:
    user = structure if constraints is None else constraints.user
    kinds = [Free()] * len(user.shapes) if constraints is None else constraints.kinds
    firsts = [sum(user.sizes[:i]) for i in range(len(user.sizes))]
    return tuple(Leaf(*one) for one in zip(user.paths, user.shapes, firsts, kinds, strict=True))


def orbit(x: Vector, exact: Sequence[Symmetry], most: int) -> list[tuple[Vector, frozenset[str]]]:
    """`x` and all its images under what the symmetries generate, with the kinds that led there;
    `most` of them at most."""
    found: dict[bytes, tuple[Vector, frozenset[str]]] = {_rounded(x): (x, frozenset())}
    going = [(x, frozenset[str]())]
    while going and len(found) < most:
        fresh = []
        for (point, kinds), one in itertools.product(going, exact):
            image = one(point)
            if (key := _rounded(image)) not in found and len(found) < most:
                # A period would lead on for ever.
                reached = (image, kinds | {one.kind})
                found[key] = reached
                if one.kind != PERIOD:
                    fresh.append(reached)
        going = fresh
    return list(found.values())


def _rounded(x: Vector) -> bytes:
    # Adding zero makes a negative zero positive.
    return (np.round(x, 6) + 0.0).tobytes()


def remedy(one: Symmetry, leaves: tuple[Leaf, ...], moves: Vector) -> str:
    """How it may be broken, in the parameters that it changes. `moves`: how far it moves each
    number, in standard deviations."""
    changed = {leaf.name: leaf for leaf in leaves if leaf.name in one.names}
    names = listed(list(one.names))
    moved = one.take != np.arange(len(one.take))
    if one.kind == LABELS:
        # By what tells the components best apart, of what has one number for each.
        free = [leaf for leaf in changed.values() if isinstance(leaf.kind, Free)]
        free = [
            leaf for leaf in free if leaf.shape == () or moved[leaf.at].sum() <= 2 or leaf.shape[1:]
        ]
        if len(leaves) == 1 and leaves[0].shape[:1] > (SHORT_VECTOR,):
            free = []  # a model in one vector has more than components in it
        best = max(free, key=lambda leaf: np.max(moves[leaf.at], initial=0.0), default=None)
        if best is None:
            return (
                f"labels switch ({names}): put the components in order of one of their parameters"
            )
        if len(best.shape) == 1:
            put = f'constraints={{"{best.name}": "ordered"}}'
            return f"labels switch ({names}): put them in order, {put}"
        if best.shape == ():
            return f'labels switch ({names}): write them as one vector whose entries are "ordered"'
        return f"labels switch ({names}): put the rows of {best.name} in order of one entry"
    if one.kind == SIGN:
        scalar = next(
            (leaf for leaf in changed.values() if leaf.shape == () and leaf.has_sign), None
        )
        if scalar is not None:
            return f'a sign flips ({names}): fix it, constraints={{"{scalar.name}": "positive"}}'
        return f"a sign flips ({names}): fix it, by making one entry positive"
    positive = f", and {listed(list(one.names[1:]))} positive" if one.names[1:] else ""
    return f"periodic ({names}): keep {one.names[0]} within one period, by an Interval{positive}"


# --- what shapes and names suggest ------------------------------------------------------------


def _likeliest_first(leaves: tuple[Leaf, ...]) -> Iterator[Symmetry]:
    size = sum(math.prod(leaf.shape) for leaf in leaves)
    still = Symmetry(LABELS, (), np.arange(size), np.ones(size), np.zeros(size))
    exchanges = [*_exchanges_along_axes(leaves, still), *_exchanges_of_leaves(leaves, still)]
    turns = [*_reflections(leaves, still), *_sign_changes_of_leaves(leaves, still)]
    yield from exchanges
    yield from turns
    yield from _sign_changes_along_axes(leaves, still)
    # The weight of the first of two components is one minus that of the second; a gate between them
    # changes its sign.
    gates = [one for one in turns if len(one.names) == 1]
    if len(exchanges) * len(gates) < FEW_PAIRS:
        yield from (one.then(other) for one in exchanges for other in gates)
    yield from _exchanges_within_vectors(leaves, still)
    yield from _sign_changes_of_numbers(leaves, still)
    yield from _periods(leaves, still, turns)


Members = tuple[tuple[Leaf, int], ...]


def _groups(leaves: tuple[Leaf, ...]) -> list[tuple[int, list[Members]]]:
    """Lengths of axes, and which arrays may share one of that length: all of them, some, one."""
    by_length: dict[int, list[tuple[Leaf, int]]] = {}
    for leaf in leaves:
        for axis, length in enumerate(leaf.shape):
            if length > 1 and not (isinstance(leaf.kind, Ordered) and axis == len(leaf.shape) - 1):
                by_length.setdefault(length, []).append((leaf, axis))
    # What most arrays share first.
    groups = sorted(by_length.items(), key=lambda group: (-len(group[1]), group[0]))
    return [(length, _subsets(members)) for length, members in groups]


def _subsets(members: list[tuple[Leaf, int]]) -> list[Members]:
    everyone = tuple(members)
    names = list(dict.fromkeys(leaf.name for leaf, _ in members))
    # A square array has the axis twice: both of them, its rows, its columns.
    is_square = {n for n in names if sum(leaf.name == n for leaf, _ in members) > 1}
    views = [everyone]
    for axis in (0, 1) if is_square else ():
        views.append(
            tuple(one for one in members if one[0].name not in is_square or one[1] == axis)
        )
    some: list[Members] = []
    for view in views:
        some.append(view)
        if len(names) <= FEW_LEAVES:
            picks = itertools.chain.from_iterable(
                itertools.combinations(names, n) for n in range(len(names) - 1, 0, -1)
            )
        else:
            picks = iter([*((n,) for n in names), *(tuple(set(names) - {n}) for n in names)])
        some += [tuple(one for one in view if one[0].name in pick) for pick in picks]
    return list(dict.fromkeys(one for one in some if one))


def _exchanges_along_axes(leaves: tuple[Leaf, ...], still: Symmetry) -> Iterator[Symmetry]:
    for length, subsets in _groups(leaves):
        pairs = [(i, i + 1) for i in range(length - 1)]
        if length <= SHORT:
            pairs = list(itertools.combinations(range(length), 2))
        for members, (i, j) in itertools.product(subsets, pairs):
            take = still.take
            for leaf, axis in members:
                order = np.arange(length)
                order[[i, j]] = j, i
                moved = still.take.copy()
                moved[leaf.at] = np.take(leaf.at, order, axis)
                take = take[moved]
            yield dataclasses.replace(still, names=_names(members), take=take)


def _names(members: Members) -> tuple[str, ...]:
    return tuple(dict.fromkeys(leaf.name for leaf, _ in members))


def _exchanges_of_leaves(leaves: tuple[Leaf, ...], still: Symmetry) -> Iterator[Symmetry]:
    """`m1` and `m2`, alone and with all others whose names differ in the same way."""
    together: dict[tuple[str, str], list[tuple[Leaf, Leaf]]] = {}
    alike = [pair for pair in itertools.combinations(leaves, 2) if pair[0].is_like(pair[1])]
    for one, other in alike:
        if (parts := _differing_parts(one.name, other.name)) is not None:
            together.setdefault(parts, []).append((one, other))
    for pairs in together.values():
        yield _exchange(pairs, still)
    for pair in alike[: SHORT * (SHORT - 1) // 2]:
        yield _exchange([pair], still)


def _exchange(pairs: Sequence[tuple[Leaf, Leaf]], still: Symmetry) -> Symmetry:
    take = still.take.copy()
    for one, other in pairs:
        take[one.at], take[other.at] = other.at, one.at
    names = tuple(leaf.name for pair in pairs for leaf in pair)
    return dataclasses.replace(still, names=names, take=take)


def _differing_parts(one: str, other: str) -> tuple[str, str] | None:
    """The one word or number in which two names differ: ("1", "2") of `m1` and `m2`."""
    parts = [re.findall(r"[A-Za-z]+|\d+", name) for name in (one, other)]
    if len(parts[0]) != len(parts[1]):
        return None
    differing = [pair for pair in zip(*parts, strict=True) if pair[0] != pair[1]]
    return differing[0] if len(differing) == 1 else None


def _exchanges_within_vectors(leaves: tuple[Leaf, ...], still: Symmetry) -> Iterator[Symmetry]:
    """Of a model whose parameters are one vector: components in blocks of it, or entry by entry;
    what is left over stays, or changes its sign as the logit of a share does."""
    for leaf in leaves:
        if len(leaf.shape) != 1 or not leaf.has_sign or not 4 <= leaf.shape[0] <= LONG_VECTOR:
            continue
        for first, k in itertools.product((0, 1), (2, 3, 4)):
            for m in range(2, (leaf.shape[0] - first) // k + 1):
                at = leaf.at[first : first + k * m]
                rest = np.setdiff1d(leaf.at, at)
                for table in (at.reshape(m, k).T, at.reshape(k, m)):
                    for i, j in itertools.combinations(range(k), 2):
                        take = still.take.copy()
                        take[table[i]], take[table[j]] = table[j], table[i]
                        one = dataclasses.replace(still, names=(leaf.name,), take=take)
                        yield one
                        if 0 < len(rest) <= 2:
                            yield one.then(_negated(still, (leaf.name,), rest))


def _reflections(leaves: tuple[Leaf, ...], still: Symmetry) -> Iterator[Symmetry]:
    """Of numbers between two bounds: a share becomes one minus itself."""
    inside = [leaf for leaf in leaves if isinstance(leaf.kind, Interval) and leaf.kind.is_two_sided]
    for some in [inside, *([leaf] for leaf in inside)] if len(inside) > 1 else [inside]:
        if some:
            sign, shift = still.sign.copy(), still.shift.copy()
            for leaf in some:
                assert isinstance(leaf.kind, Interval)
                sign[leaf.at], shift[leaf.at] = -1, leaf.kind.low + leaf.kind.high
            names = tuple(leaf.name for leaf in some)
            yield dataclasses.replace(still, kind=SIGN, names=names, sign=sign, shift=shift)


def _negated(still: Symmetry, names: tuple[str, ...], at: np.ndarray) -> Symmetry:
    sign = still.sign.copy()
    sign[at] = -1
    return dataclasses.replace(still, kind=SIGN, names=names, sign=sign)


def _sign_changes_of_leaves(leaves: tuple[Leaf, ...], still: Symmetry) -> Iterator[Symmetry]:
    """One, two, all."""
    free = [leaf for leaf in leaves if leaf.has_sign]
    picks = itertools.chain.from_iterable(itertools.combinations(free, n) for n in (1, 2))
    for some in [*picks, tuple(free)]:
        if some:
            at = np.concatenate([leaf.at.ravel() for leaf in some])
            yield _negated(still, tuple(leaf.name for leaf in some), at)


def _sign_changes_along_axes(leaves: tuple[Leaf, ...], still: Symmetry) -> Iterator[Symmetry]:
    """A row, a column, or all that belongs to one entry of an axis that arrays share; for two such
    entries the two changes follow one another."""
    free = tuple(leaf for leaf in leaves if leaf.has_sign)
    for length, subsets in _groups(free):
        for members, k in itertools.product(subsets, range(length)):
            at = np.zeros(len(still.take), bool)
            for leaf, axis in members:
                at[np.take(leaf.at, k, axis)] ^= True
            yield _negated(still, _names(members), np.flatnonzero(at))


def _sign_changes_of_numbers(leaves: tuple[Leaf, ...], still: Symmetry) -> Iterator[Symmetry]:
    for leaf in leaves:
        if leaf.has_sign:
            yield from (_negated(still, (leaf.name,), np.array([i])) for i in leaf.at.ravel())


def _periods(
    leaves: tuple[Leaf, ...], still: Symmetry, turns: Sequence[Symmetry]
) -> Iterator[Symmetry]:
    """By a turn, in radians or as a share of it; by half a turn, alone and with a sign."""
    angles = [(leaf, i) for leaf in leaves if leaf.has_sign for i in leaf.at.ravel()]
    few = angles[:FEW_ANGLES] if len(angles) <= 2 * FEW_ANGLES else []
    signs = [one for one in turns if not one.shift.any()][:FEW_ANGLES]
    free = [leaf for leaf in leaves if leaf.has_sign]
    for (leaf, i), by in itertools.product(few, (*WHOLE_TURNS, *HALF_TURNS)):
        # The amplitude that goes with this phase.
        like = [one for one in free if one.shape == leaf.shape and one is not leaf]
        own = [_negated(still, (one.name,), np.array([one.first + i - leaf.first])) for one in like]
        for way in (by, -by):
            shift = still.shift.copy()
            shift[i] = way
            moved = dataclasses.replace(still, kind=PERIOD, names=(leaf.name,), shift=shift)
            yield moved
            if by in HALF_TURNS:
                same = [one for one in (*own, *signs) if one.sign[i] > 0]
                yield from (moved.then(one) for one in same)
