"""A density of bounded parameters over unbounded ones, in NumPy.

With `x = T(u)`, `J = dT/du` and `g`, `H` the derivatives of `log p` at `x`:

    value       log p(x) + log|det J|
    gradient    J^T g + grad log|det J|
    Hessian     J^T H J + d/du [J^T g + grad log|det J|]   at the same g
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ._constraints import Constraints
from ._numpy import NumpyDensity
from ._protocol import Density


class Bounded(Density):
    """`inner` is over the flat vector of the user's bounded parameters."""

    def __init__(self, inner: Density, constraints: Constraints):
        self.inner, self.constraints = inner, constraints
        self.dim, self.resolution = constraints.free.size, inner.resolution
        self.values_at_once = inner.values_at_once

    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        values, gradients = self.inner.gradients(self._x(points))
        return self._value(values, points), self._gradient(points, gradients)

    def values(self, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        return self._value(self.inner.values(self._x(points)), points)

    def curvature(
        self, point: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        # Differences are taken in u: steps in x could leave the bounds, and near one they are far
        # longer than what is left of the way to it.
        if not _has_own(self.inner, "curvature"):
            return super().curvature(point)
        value, slope, inner = self.inner.curvature(self._x(point))
        half = self._pull_back(point, inner)  # a row of it is J^T times a row of H
        hessian = self._pull_back(point, half.T) + self._bend(point, slope, np.eye(self.dim))
        hessian = 0.5 * (hessian + hessian.T)
        return self._value(value, point).item(), self._gradient(point, slope), hessian

    def product(
        self, point: Float[np.ndarray, " dim"], vector: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
        if not _has_own(self.inner, "product"):
            return super().product(point, vector)
        along = self._by_kind(lambda kind, u, v: kind.push(u, v), point, vector)
        value, slope, inner = self.inner.product(self._x(point), along)
        moved = self._pull_back(point, inner) + self._bend(point, slope, vector)
        return self._value(value, point).item(), self._gradient(point, slope), moved

    # --- the chain rule -----------------------------------------------------------------------

    def _x(self, u: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "*n user"]:
        return self._by_kind(lambda kind, u: kind.constrain(u, np), u)

    def _value(self, values: Any, u: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "*n"]:
        with np.errstate(all="ignore"):
            return np.asarray(values + self.constraints.log_dets(u))

    def _gradient(
        self, u: Float[np.ndarray, "*n dim"], g: Float[np.ndarray, "*n user"]
    ) -> Float[np.ndarray, "*n dim"]:
        of_log_det = self._by_kind(lambda kind, u: kind.log_det_gradient(u), u)
        with np.errstate(all="ignore"):
            return self._pull_back(u, g) + of_log_det

    def _pull_back(
        self, u: Float[np.ndarray, "... dim"], g: Float[np.ndarray, "*n user"]
    ) -> Float[np.ndarray, "*n dim"]:
        return self._by_kind(lambda kind, u, g: kind.pull_back(u, g), u, bounded=g)

    def _bend(
        self,
        u: Float[np.ndarray, " dim"],
        g: Float[np.ndarray, " user"],
        v: Float[np.ndarray, "*n dim"],
    ) -> Float[np.ndarray, "*n dim"]:
        return self._by_kind(lambda kind, u, v, g: kind.bend(u, g, v), u, v, bounded=g)

    def _by_kind(
        self, function: Callable, *free: np.ndarray, bounded: np.ndarray | None = None
    ) -> np.ndarray:
        """`function` of every leaf and its kind; of flat vectors, with axes before, made of them.

        Far out numbers overflow: what comes of it is infinite or not a number, without a warning.
        """
        given = [(self.constraints.free, one) for one in free]
        if bounded is not None:
            given.append((self.constraints.user, bounded))
        leaves = [its.leaves(np.asarray(one, float)) for its, one in given]
        lead = np.broadcast_shapes(*(one.shape[:-1] for _, one in given))
        with np.errstate(all="ignore"):
            made = [function(*one) for one in zip(self.constraints.kinds, *leaves, strict=True)]
        sizes = [math.prod(np.shape(part)[len(lead) :]) for part in made]
        whole = [np.reshape(part, (*lead, n)) for part, n in zip(made, sizes, strict=True)]
        return np.concatenate(whole, -1)


def _has_own(inner: Density, question: str) -> bool:
    """Whether the answer is not made of differences of gradients."""
    if isinstance(inner, NumpyDensity):
        return inner.has_hessian
    return getattr(type(inner), question) is not getattr(Density, question)
