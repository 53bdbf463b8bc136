"""Laplace's evidence of a whole Gaussian process, in the values `f ~ N(0, K)` at its points.

With the slopes `g` and curvatures `W` of the log likelihood at the mode, `f = K g`,

    E = sum l - (1/2) g^T f - (1/2) log det(I + K W) + log p(theta)
    dE = <(1/2) g g^T - (1/2) R + u g^T, dK> + ...,     u = s - R K s,     s = (1/2) l''' Sigma_ii

(Rasmussen and Williams 2006, algorithms 3.1, 3.3 and 5.1; `R` and `Sigma` of `_resolvent.py`). No
factor of `K` is made or differentiated, and a hyperparameter of the kernel costs n^2. The mode is
sought from the last one, `K g` at other hyperparameters.

Points are the distinct rows: rows that are repeated share a value, and their likelihoods are added.
"""

import abc
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._kernel import GaussianProcess
from ._likelihoods import Hyper, Likelihood
from ._likelihoods import Softmax as SoftmaxLikelihood
from ._resolvent import Diagonal, IndefiniteError, Softmax, Values

if TYPE_CHECKING:
    from ._density import ModelDensity

MOST_STEPS, MOST_HALVINGS = 100, 5
# Nats that a step on the way to a mode must gain to be followed by another before Newton's.
NEAR, MOST_APPROACHES = 0.1, 50


class Found(NamedTuple):
    """A mode `f = K a`, and a Newton step from it; `by`: the resolvent there."""

    a: Values
    f: Values
    value: float
    by: Any
    step: Values


class Last(NamedTuple):
    """What the next search for a mode begins from."""

    a: Values
    f: Values
    by: Any


class Told(NamedTuple):
    """Laplace's evidence without the prior of the hyperparameters, its slopes in parts, how far the
    density falls where it is flattest, and the slopes of the rows at the mode."""

    value: float
    slopes: list[Hyper]
    fall: float
    last: Last
    row_slopes: np.ndarray


class Process(abc.ABC):
    """A model's density with all its rows as points of a kernel. `which`: the point of each row."""

    def __init__(self, density: "ModelDensity", which: Any):
        self.density, self.which = density, which
        basis: Any = density.basis
        self.kernel, self.pulled_back = basis.covariance(density.shared, density.hyper)

    # --- rows and points ----------------------------------------------------------------------

    def at_points(self, rows: np.ndarray) -> np.ndarray:
        """Sums over the rows of each point: (..., rows) to (..., points)."""
        if self.which is ALL:
            return rows
        size = len(self.kernel)
        flat = rows.reshape(-1, rows.shape[-1])
        made = np.stack([np.bincount(self.which, one, size) for one in flat])
        return made.reshape(*rows.shape[:-1], size)

    def at_rows(self, points: np.ndarray) -> np.ndarray:
        return points if self.which is ALL else points[..., self.which]

    @abc.abstractmethod
    def slopes(self, f: Values) -> tuple[float, Values]:
        """The log likelihood and its slopes at the points."""

    @abc.abstractmethod
    def row_slopes(self, f: Values) -> np.ndarray:
        """The same of every row: what the weights at the mode are made of."""

    @abc.abstractmethod
    def resolvent(self, f: Values) -> Any: ...

    def approaching(self, f: Values) -> Any:
        """The resolvent of parabolas below the log likelihood, which always rise; None for none."""
        del f

    @abc.abstractmethod
    def moved(self, found: Found) -> tuple[Values, Hyper]:
        """`s`, the slope of `-(1/2) log det` in `f`, and what the likelihood's own hyperparameters
        change while `f` stays."""

    def by_moving(self, found: Found, u: Values) -> Hyper:
        """What these change by moving the mode."""
        del found, u
        return {}

    def fall(self, found: Found) -> float:
        """How far the density falls two standard deviations from the mode, where curvature is
        negative; 0 where it is not."""
        del found
        return 0.0

    # --- the mode -----------------------------------------------------------------------------

    def value(self, a: Values, f: Values) -> float:
        return self.slopes(f)[0] - 0.5 * float((a * f).sum())

    def begin(self, last: Last | None) -> tuple[Values, Values]:
        """The best of nothing, the last mode, and where that would have moved."""
        zero = np.zeros((self.density.n_predictors, len(self.kernel)))
        starts = [(zero, zero)]
        if last is not None:
            f = last.a @ self.kernel
            # da = -R dK a
            a = last.a - last.by.resolvent(f - last.f)
            starts += [(last.a, f), (a, a @ self.kernel)]
        return max(starts, key=lambda one: _finite(self.value(*one)))

    def approached(self, a: Values, f: Values) -> tuple[Values, Values]:
        last = -math.inf
        for _ in range(MOST_APPROACHES):
            value, g = self.slopes(f)
            value -= 0.5 * float((a * f).sum())
            by = self.approaching(f) if value > last + NEAR else None
            if by is None:
                break
            last, (a, f) = value, self._stepped(by, f, g)
        return a, f

    def _stepped(self, by: Any, f: Values, g: Values) -> tuple[Values, Values]:
        b = by.curved(f) + g
        a = b - by.resolvent(b @ self.kernel)
        return a, a @ self.kernel

    def mode(self, last: Last | None, tol: float) -> Found | None:
        """By Newton's steps, shortened where they do not rise; None where they do not end."""
        a, f = self.begin(last)
        if last is None and not self.density.log_concave:
            a, f = self.approached(a, f)
        for _ in range(MOST_STEPS):
            likelihood, g = self.slopes(f)
            value = likelihood - 0.5 * float((a * f).sum())
            if not math.isfinite(value):
                return None
            try:
                by = self.resolvent(f)
            except IndefiniteError:
                by, there = None, None
            else:
                there = self._stepped(by, f, g)
                step = there[1] - f
                decrement = float(((g - a) * step).sum())
                if decrement <= tol**2:
                    return Found(a, f, value, by, step)
            there = self._risen((a, f), there, value) or self._around(f, g, value)
            if there is None:
                return None
            a, f = there
        return None

    def _risen(self, here: Any, there: Any, value: float) -> tuple[Values, Values] | None:
        if there is None:
            return None
        share, noise = 1.0, 1e-12 * abs(value)
        for _ in range(MOST_HALVINGS):
            a, f = (old + share * (new - old) for old, new in zip(here, there, strict=True))
            if self.value(a, f) >= value - noise:
                return a, f
            share *= 0.5
        return None

    def _around(self, f: Values, g: Values, value: float) -> tuple[Values, Values] | None:
        by = self.approaching(f)
        if by is None:
            return None
        a, f = self._stepped(by, f, g)
        return (a, f) if self.value(a, f) > value else None

    # --- the evidence -------------------------------------------------------------------------

    def evidence(self, last: Last | None, tol: float) -> Told | None:
        """None where no mode was found."""
        found = self.mode(last, tol)
        if found is None:
            return None
        by, a = found.by, found.a
        s, own = self.moved(found)
        # To first order log det alone knows how far from the mode Newton stopped.
        value = found.value - 0.5 * by.log_det + float((s * found.step).sum())
        u = s - by.resolvent(s @ self.kernel)
        outer = (0.5 * a + u).T @ a
        slopes = 0.5 * (outer + outer.T - by.trace_matrix())
        parts = [self.pulled_back(slopes), own, self.by_moving(found, u)]
        return Told(value, parts, self.fall(found), Last(a, found.f, by), self.row_slopes(found.f))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


class _One(Process):
    def _derivatives(self, f: Values, order: int) -> list[np.ndarray]:
        """Of the rows, weighted."""
        density, eta = self.density, self._eta(f)
        found = density.likelihood.derivatives(density.y, eta, density.hyper, order)
        return [density.weight * one for one in found]

    def _eta(self, f: Values) -> np.ndarray:
        """The predictors of the rows; of several functions, (functions, rows)."""
        eta = self.at_rows(f if len(f) > 1 else f[0])
        return eta if self.density.offset is None else eta + self.density.offset

    def slopes(self, f):
        value, slope = self._derivatives(f, 1)
        return float(value.sum()), self.at_points(slope)[None]

    def row_slopes(self, f):
        return self._derivatives(f, 1)[1]

    def resolvent(self, f):
        return Diagonal(self.kernel, -self.at_points(self._derivatives(f, 2)[2]))

    def approaching(self, f):
        density, eta = self.density, self._eta(f)
        found = density.likelihood.minorised(density.y, eta, density.hyper)
        return (
            None if found is None else Diagonal(self.kernel, self.at_points(density.weight * found))
        )

    def moved(self, found):
        density, by = self.density, found.by
        third = self.at_points(self._derivatives(found.f, 3)[3])[None]
        variances = by.variances(third)
        own = {
            name: density.weight @ np.broadcast_to(one[0], density.y.shape)
            + 0.5
            * (density.weight * self.at_rows(variances))
            @ np.broadcast_to(one[2], density.y.shape)
            for name, one in self._own(found.f).items()
        }
        return 0.5 * third * variances, own

    def _own(self, f: Values) -> dict[str, Any]:
        density, eta = self.density, self._eta(f)
        known = density.likelihood.derivatives(density.y, eta, density.hyper, 3)
        return density.likelihood.hyper_slopes(density.y, eta, density.hyper, 2, known)

    def by_moving(self, found, u):
        along = u[0] @ self.kernel
        own = self._own(found.f)
        return {
            name: self.at_rows(along) @ (self.density.weight * one[1]) for name, one in own.items()
        }

    def fall(self, found):
        along, pulled = found.by.flattest()
        if not along.shape[1]:
            return 0.0
        here, sides = self._derivatives(found.f, 0)[0].sum(), []
        for sign in (2.0, -2.0):
            there = self._derivatives(found.f + sign * along.T, 0)[0].sum(-1)
            prior = sign * found.a[0] @ along + 0.5 * sign**2 * (pulled * along).sum(0)
            sides.append(there - here - prior)
        return float(-np.maximum(*sides).min())


class _Several(Process):
    def __init__(self, density, which):
        super().__init__(density, which)
        hit = density.y == np.arange(density.n_predictors)[:, None]
        self.hits, self.a = self.at_points(density.weight * hit), self.at_points(density.weight)

    def _p(self, f: Values) -> Values:
        e = np.exp(f - f.max(0))
        return e / e.sum(0)

    def slopes(self, f):
        top = f.max(0)
        log_sum = top + np.log(np.exp(f - top).sum(0))
        return float((self.hits * f).sum() - self.a @ log_sum), self.hits - self.a * self._p(f)

    def row_slopes(self, f):
        density = self.density
        hit = density.y == np.arange(density.n_predictors)[:, None]
        return density.weight * (hit - self.at_rows(self._p(f)))

    def resolvent(self, f):
        return Softmax(self.kernel, self._p(f), self.a)

    def moved(self, found):
        likelihood, density = self.density.likelihood, self.density
        y = np.zeros(len(self.a))  # curvatures of a softmax do not know the class
        third = likelihood.several_thirds(y, found.f.T, density.hyper, found.by.covariances())
        return 0.5 * self.a * third.T, {}


ALL = "all"


def points_of(density: "ModelDensity") -> Any:
    """The point of every row, `ALL` where each row is one; None where this is another model."""
    basis, likelihood = density.basis, density.likelihood
    # A subclass may say other things of its columns or classes than these closed forms know.
    if type(basis) is not GaussianProcess or not density.precision.is_one:
        return None
    if density.n_predictors > 1:
        if type(likelihood) is not SoftmaxLikelihood or density.offset is not None:
            return None
        if not (density.weight > 0).all():
            return None
    elif not (likelihood.log_concave or type(likelihood).minorised is not Likelihood.minorised):
        return None
    x, centres = density.rows["x"], density.shared["centres"]
    if x is centres:
        return ALL
    if len(centres) > len(x):
        return None
    distinct, which = np.unique(x, axis=0, return_inverse=True)
    same = distinct.shape == centres.shape and bool((distinct == centres).all())
    return which.ravel() if same else None


def process_of(density: "ModelDensity", which: Any) -> Process:
    """At the hyperparameters of the density; `which` as `points_of` says."""
    return (_One if density.n_predictors == 1 else _Several)(density, which)
