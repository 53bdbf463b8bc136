"""Mini-batches as densities: unbiased estimates of a log density from some of its rows.

With `m` of `n` rows drawn at random, `(n / m) sum_batch l(w)` alone is as good as useless: its
noise grows with `n`. But of what varies from row to row most is known near a reference `w0`, where
one exact pass has summed values, gradients and Hessians of all rows. So of every row only what
parts it from its own parabola `q` at `w0` is left to chance,

    log p~(w)  ~=  Q(w) + (n / m) sum_batch (l(w) - q(w)),        Q = q summed over all rows,

which is unbiased, exact for a Gaussian posterior, and else off by what is of third order in
`w - w0`: the more rows, the narrower the posterior, and the smaller that is (control variates).
Since estimate and parabolas are sums, `Q - (n / m) sum_batch q` is one parabola for each batch.
"""

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._roots import dense
from ._asked import in_threads
from ._pieces import Piece
from ._protocol import Density, Expectation, Matrix, Rule
from ._random_rows import RandomRows

Vector = Float[np.ndarray, " dim"]


@dataclasses.dataclass(frozen=True)
class Parabola:
    """`value + gradient (w - point) + (w - point) hessian (w - point) / 2`."""

    point: Vector
    value: float
    gradient: Vector
    hessian: Float[np.ndarray, "dim dim"]

    @classmethod
    def of(cls, density: Density, point: Vector) -> "Parabola":
        """The one that touches a log density."""
        return cls(point, *density.curvature(point))

    def minus(self, other: "Parabola") -> "Parabola":
        """Both at the same point."""
        gradient, hessian = self.gradient - other.gradient, self.hessian - other.hessian
        return Parabola(self.point, self.value - other.value, gradient, hessian)

    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        away = points - self.point
        bent = away @ self.hessian
        values = self.value + away @ self.gradient + 0.5 * (away * bent).sum(1)
        return values, self.gradient + bent

    def expect(self, mean: Vector, root: Matrix) -> Expectation:
        (value,), (gradient,) = self.gradients(mean[None])
        cross = self.hessian @ dense(root)
        return Expectation(float(value + 0.5 * (dense(root) * cross).sum()), gradient, cross)


class Batch(Density):
    """The estimate of one batch. `inner`: with the weights of its rows; `control`: what the whole
    has more than the batch, as parabolas at the reference."""

    def __init__(self, inner: Density, n_rows: int, control: Parabola | None = None):
        self.inner, self.control, self.dim = inner, control, inner.dim
        self.n_rows = n_rows

    def controlled(self, whole: Parabola) -> "Batch":
        control = whole.minus(Parabola.of(self.inner, whole.point))
        return Batch(self.inner, self.n_rows, control)

    def values(self, points):
        values = self.inner.values(points)
        return values if self.control is None else values + self.control.gradients(points)[0]

    def gradients(self, points):
        values, gradients = self.inner.gradients(points)
        if self.control is None:
            return values, gradients
        more, steeper = self.control.gradients(points)
        return values + more, gradients + steeper

    def expect(self, mean: Vector, root: Matrix, rule: Rule) -> Expectation:
        """Of the parabola in closed form: draws must be matched, which integrate one exactly."""
        found = self.inner.expect(mean, root, rule)
        if self.control is None:
            return found
        more = self.control.expect(mean, root)
        cross = dense(found.cross) + more.cross
        return Expectation(found.value + more.value, found.gradient + more.gradient, cross)

    def curvature(self, point):
        value, gradient, hessian = self.inner.curvature(point)
        if self.control is None:
            return value, gradient, hessian
        (more,), (steeper,) = self.control.gradients(point[None])
        return value + float(more), gradient + steeper, hessian + self.control.hessian

    def product(self, point, vector):
        value, gradient, product = self.inner.product(point, vector)
        if self.control is None:
            return value, gradient, product
        (more,), (steeper,) = self.control.gradients(point[None])
        return value + float(more), gradient + steeper, product + self.control.hessian @ vector


class Batches(Density):
    """The mean of several estimates, each of which can be asked, too."""

    is_checked = True

    def __init__(self, batches: Sequence[Batch], whole: Density):
        self.batches, self.dim, self.resolution = batches, whole.dim, whole.resolution
        self.n_predictors, self.log_concave = whole.n_predictors, whole.log_concave
        self.mode_tol, self.dense_newton = whole.mode_tol, whole.dense_newton
        self.values_at_once = batches[0].inner.values_at_once

    def asked(self, question: Callable[..., Any], *others: Sequence) -> list[Any]:
        """Of every batch, on all cores; `others`: what else it is asked with."""
        each = _zipped(self.batches, *others)
        return list(in_threads(each, lambda given: question(*given)))

    def values(self, points):
        return np.mean(self.asked(lambda one: one.values(points)), axis=0)

    def gradients(self, points):
        return self._means(lambda one: one.gradients(points))

    def expect(self, mean: Vector, root: Matrix, rule: Rule) -> Expectation:
        made = self._means(lambda one: one.expect(mean, root, rule)[:3])
        return Expectation(float(made[0]), made[1], made[2])

    def curvature(self, point):
        value, gradient, hessian = self._means(lambda one: one.curvature(point))
        return float(value), gradient, hessian

    def product(self, point, vector):
        value, gradient, product = self._means(lambda one: one.product(point, vector))
        return float(value), gradient, product

    def _means(self, question: Callable[[Batch], tuple]) -> tuple[Any, ...]:
        return tuple(np.mean(each, axis=0) for each in zip(*self.asked(question), strict=True))


def _zipped(*sequences: Sequence) -> Generator[tuple, None, None]:
    yield from zip(*sequences, strict=True)


class BatchSource:
    """Fresh batches of a density in pieces, around a reference once there is one. `whole`: that
    density; `part_of`: makes of a batch what gives the densities of all of its shape."""

    def __init__(self, whole: Density, rows: RandomRows, part_of: Callable[[Piece], Any]):
        self.whole, self.rows, self.part_of = whole, rows, part_of
        self.n_batches = self.n_exact = 0
        self.reference: Parabola | None = None
        self._part: Any = None

    @property
    def n_rows(self) -> int:
        return self.rows.pieces.n_rows

    def refer_to(self, point: Vector) -> None:
        """One exact pass."""
        self.reference = Parabola.of(self.whole, point)
        self.n_exact += 1

    def fresh(self, n: int) -> Batches:
        """Rows that nothing has seen."""
        pieces = self.rows.batches(n)
        if self._part is None:
            self._part = self.part_of(pieces[0])
        each = [Batch(self._part.on(piece), self.rows.rows) for piece in pieces]
        made = Batches(each, self.whole)
        self.n_batches += n
        if self.reference is None:
            return made
        whole = self.reference
        return Batches(made.asked(lambda one: one.controlled(whole)), self.whole)
