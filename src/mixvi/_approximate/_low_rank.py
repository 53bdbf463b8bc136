"""The curvature of any log density of many parameters, from products with its Hessian alone: a
diagonal and a few directions, nothing dim x dim.

With a diagonal `d` (the prior's precision, say) and orthonormal rows Q of a block Krylov space,

    -H  ~  d^1/2 (c (I - Q^T Q) + Q^T T Q) d^1/2,        T = Q M Q^T,   M = d^-1/2 (-H) d^-1/2

M is the Hessian that the prior preconditions; the leading eigenpairs of both ends are those of T
(Lanczos, in blocks, with full reorthogonalisation). What is left out, `E = P^-1/2 M P^-1/2 - I`
with P the matrix above, costs about `|E|^2 / 4` nats, which a few random signs tell (Hutchinson).
Where that is much, the diagonal of what Q leaves is a better `d`.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from .._arrays._structured import LowRankRoot
from .._density._protocol import Density

Vector = Float[np.ndarray, " dim"]
Rows = Float[np.ndarray, "n dim"]
# Directions at a time, random signs, and directions after which a diagonal is judged.
BLOCK, SIGNS, FIRST = 16, 8, 64
# Nats that may be left out before more directions are taken, in all or for each parameter (a third
# of a per cent of its standard deviation); below so many for each, more must halve what is left.
LEFT_OUT, LEFT_OUT_EACH, MUST_HALVE = 0.01, 1e-5, 1e-3
# Diagonals that are tried.
MOST_ROUNDS = 5
# A direction that is shorter than this, once the others are taken out of it, is none.
SHORTEST = 1e-9
# Up to so many parameters the diagonal of a Hessian is exact; above, by so many random signs.
EXACT_DIAGONAL, DIAGONAL_SIGNS = 5000, 256
LOG_2PI = float(np.log(2 * np.pi))


@dataclasses.dataclass(frozen=True, eq=False)
class Directions:
    """`rows` of Q, eigenvalues and eigenvectors of T, the bulk's `c`, nats left out; which
    parameters have no curvature at all."""

    base: Vector
    rows: Float[np.ndarray, "k dim"]
    values: Float[np.ndarray, " k"]
    vectors: Float[np.ndarray, "k k"]
    bulk: float
    left_out: float
    better_base: Vector
    flat: np.ndarray

    @property
    def is_definite(self) -> bool:
        return not self._is_flat and bool((self.values > 1e-10 * self._largest).all())

    @property
    def _largest(self) -> float:
        return float(self.values.max(initial=max(self.bulk, 0.0)))

    @property
    def _is_flat(self) -> bool:
        """In most directions."""
        return not self.bulk > 1e-10 * self._largest

    @functools.cached_property
    def root(self) -> LowRankRoot:
        """`d^-1/2 P^-1/2`."""
        scale = 1 / np.sqrt(self.base * self.bulk)
        inner = self._function(lambda x: np.sqrt(self.bulk / x) - 1)
        ones, eye = np.ones(len(scale)), np.eye(len(self.rows))
        return LowRankRoot(scale, self.rows, ones, inner, eye)

    def _function(self, f: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return (self.vectors * f(self.values)) @ self.vectors.T

    def white(self, points: Rows) -> Rows:
        """`P^-1/2 x` for every row `x`."""
        inner = self._function(lambda x: 1 / np.sqrt(x) - 1 / np.sqrt(self.bulk))
        return points / np.sqrt(self.bulk) + ((points @ self.rows.T) @ inner) @ self.rows

    def steepest(self) -> tuple[float, Vector]:
        """The smallest eigenvalue, and its direction in the parameters; where the bulk is flat, the
        parameters that are."""
        if self._is_flat:
            return self.bulk, self.flat.astype(float)
        at = int(np.argmin(self.values))
        return float(self.values[at]), (self.vectors[:, at] @ self.rows) / np.sqrt(self.base)

    def leading(self, most: int) -> Float[np.ndarray, "some dim"]:
        """Eigenvectors of P, those that differ most from the bulk."""
        far = np.abs(np.log(self.values / self.bulk))
        chosen = np.argsort(-far, kind="stable")[:most]
        return self.vectors[:, chosen].T @ self.rows


class Curvature:
    """`-H` at one point."""

    def __init__(self, density: Density, point: Vector, rng: np.random.Generator):
        self.density, self.point, self.rng, self.dim = density, point, rng, len(point)
        self.n_products = 0

    def times(self, vectors: Rows) -> Rows:
        self.n_products += len(vectors)
        return -self.density.products(self.point, vectors)

    def signs(self, n: int) -> Rows:
        return self.rng.choice([-1.0, 1.0], size=(n, self.dim))

    def diagonal(self) -> Vector:
        if self.dim > EXACT_DIAGONAL:
            return self.sampled_diagonal(DIAGONAL_SIGNS)
        found = np.empty(self.dim)
        for first in range(0, self.dim, 256):
            some = np.arange(first, min(first + 256, self.dim))
            units = np.zeros((len(some), self.dim))
            units[np.arange(len(some)), some] = 1.0
            found[some] = self.times(units)[np.arange(len(some)), some]
        return found

    def sampled_diagonal(self, n: int) -> Vector:
        """Its error in one entry is the root of the sum of squares beside it, over `sqrt(n)`."""
        total, done = np.zeros(self.dim), 0
        while done < n:
            signs = self.signs(min(BLOCK, n - done))
            total += (signs * self.times(signs)).sum(0)
            done += len(signs)
        return total / n

    # --- a diagonal and a few directions ------------------------------------------------------

    @property
    def enough(self) -> float:
        return max(LEFT_OUT, LEFT_OUT_EACH * self.dim)

    def directions(self, base: Vector, most: int) -> Directions:
        """As many as leave out next to nothing, at most `most`; first over the diagonal that leaves
        out least, then over the one that was given."""
        first = self._grown(positive(base), min(FIRST, most))
        best = self._better(first)
        if self._will_do(best) or most <= FIRST:
            return best
        grown = self._better(self._grown(first.base, most))
        if best.base is first.base or self._will_do(grown):
            return grown
        other = self._grown(best.base, most)
        return other if other.is_definite and other.left_out < grown.left_out else grown

    def _better(self, best: Directions) -> Directions:
        """With as many directions over the diagonals of what they leave, while that pays."""
        for _ in range(MOST_ROUNDS):
            if self._will_do(best):
                return best
            found = self._grown(positive(best.better_base), len(best.rows))
            if not found.is_definite or found.left_out > 0.5 * best.left_out:
                return best
            best = found
        return best

    def _will_do(self, found: Directions) -> bool:
        return found.left_out <= self.enough or not found.is_definite

    def _grown(self, base: Vector, most: int) -> Directions:
        scale = 1 / np.sqrt(base)

        def times(rows: Rows) -> Rows:
            return self.times(rows * scale) * scale

        signs = self.signs(SIGNS)
        seen, krylov = times(signs), _Krylov(times, self.signs(BLOCK), most)
        target, before = min(2 * BLOCK, most), np.inf
        while True:
            krylov.grow(target)
            found = _directions(base, krylov, signs, seen)
            if found.is_definite:
                white = found.white(signs)
                beyond = found.white(times(white)) - signs
                left_out = 0.25 * float((beyond**2).sum(1).mean())
                found = dataclasses.replace(found, left_out=left_out)
            left = found.left_out
            pays = left > MUST_HALVE * self.dim or left < 0.5 * before
            if self._will_do(found) or krylov.is_whole or krylov.size >= most or not pays:
                return found
            target, before = min(2 * target, most), left


def positive(base: Vector) -> Vector:
    """What random signs have made negative, or nearly so, is as the others are."""
    sound = np.isfinite(base) & (base > 0)
    if not sound.any():
        return np.ones_like(base)
    usual = float(np.median(base[sound]))
    return np.where(sound & (base > 0.01 * usual), base, usual)


def _directions(base: Vector, krylov: "_Krylov", signs: Rows, seen: Rows) -> Directions:
    rows = krylov.rows
    values, vectors = np.linalg.eigh(krylov.small)
    across = signs @ rows.T
    outside = signs - across @ rows
    bulk = float((outside * seen).sum() / max((outside**2).sum(), 1e-300))
    if len(rows) == len(base):
        bulk = float(np.exp(np.log(np.maximum(values, 1e-300)).mean()))
    # The diagonal of what the directions leave.
    inside = (across @ (krylov.small - bulk * np.eye(len(rows)))) @ rows
    rest = (signs * (seen - inside)).mean(0)
    curved = np.abs(seen).max(0)
    flat = curved <= 1e-8 * curved.max(initial=0.0)
    return Directions(base, rows, values, vectors, bulk, np.inf, base * rest, flat)


class _Krylov:
    """Orthonormal rows of `span{X, X M, X M^2, ...}` and `M` between them."""

    def __init__(self, times: Callable[[Rows], Rows], start: Rows, most: int):
        self.times, self.most = times, most
        self.kept, self.next = np.zeros((0, start.shape[1])), _orthonormal(start, 0.0)
        self.size, self.small = 0, np.zeros((0, 0))
        self.is_whole = False

    @property
    def rows(self) -> Rows:
        return self.kept[: self.size]

    def grow(self, target: int) -> None:
        if target > len(self.kept):
            more = np.empty((target - len(self.kept), self.kept.shape[1]))
            self.kept = np.concatenate([self.kept, more])
        while self.size < target and not self.is_whole:
            block = self.next[: target - self.size]
            begin, end = self.size, self.size + len(block)
            self.kept[begin:end], self.size = block, end
            product = self.times(block)
            small = np.zeros((end, end))
            small[:begin, :begin] = self.small
            small[:, begin:] = self.rows @ product.T
            small[begin:, :begin] = small[:begin, begin:].T
            small[begin:, begin:] = 0.5 * (small[begin:, begin:] + small[begin:, begin:].T)
            self.small = small
            size = float(np.abs(small[begin:, begin:]).max())
            for _ in range(2):
                product -= (product @ self.rows.T) @ self.rows
            self.next = _orthonormal(product, SHORTEST * size)
            # Once more against the others: a short rest has lost its digits.
            self.next = self.next - (self.next @ self.rows.T) @ self.rows
            self.next = _orthonormal(self.next, 0.5)
            self.is_whole = len(self.next) == 0 or end == len(block.T)


def _orthonormal(rows: Rows, shortest: float) -> Float[np.ndarray, "some dim"]:
    """Of the same span, without those that are shorter once the ones before are taken out."""
    if not len(rows):
        return rows
    made, left = np.linalg.qr(rows.T)
    return np.ascontiguousarray(made.T[np.abs(np.diagonal(left)) > shortest])
