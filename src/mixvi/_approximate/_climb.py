"""A family around an anchor: the search over its bound, through the families that it contains.

w = c + W m + drift tau + R A(phi) z    c, W: centre and root of the anchor;  R: W, or a diagonal

d/dm = W^T E g,      d/dphi: the family's pull-back of N = R^T E[g z^T],      d/dtau: see `_tilt`
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from .._arrays._roots import dense, is_diagonal, transposed_times, whiten
from .._density._protocol import NOTHING, Density, Matrix, Points, Rule
from .._errors import Code
from .._watch import tell
from ._bound import Shape, bound_at, entropy
from ._families import Family
from ._search import Stop, Summit, quasi_newton, scaled_conjugate_gradients
from ._tilt import Learnt, Tau, Tilt

Vector = Float[np.ndarray, " dim"]
Params = Float[np.ndarray, " free"]
Phi = Float[np.ndarray, " phi"]
Square = Float[np.ndarray, "dim dim"]
# A last step that is not looked at any more must be small.
SAFE_STEP = 0.1
# What the first pass says of a flat direction is not believed.
LEAST_CURVATURE = 0.5


@dataclasses.dataclass(frozen=True)
class Anchor:
    """The Gaussian that a family adapts. `log_evidence`: what its bound would be, were the target
    Gaussian."""

    centre: Vector
    root: Square
    log_evidence: float


@dataclasses.dataclass(frozen=True)
class FamilyState:
    """Where the search over a family's bound ended, and the Gaussian that is there. `density`: with
    the hyperparameters that are there."""

    density: Density
    learnt: Learnt
    params: Params
    mean: Vector
    root: Matrix
    elbo: float
    gradient: float  # the largest, per standard deviation
    gain_left: float
    n_passes: int
    code: Code


class FamilyBound:
    """The bound of one family around one anchor, over flat parameters `(m, phi, tau)`."""

    def __init__(
        self,
        density: Density,
        anchor: Anchor,
        family: Family,
        rule: Rule,
        tilt: Tilt | None = None,
    ):
        self.density, self.anchor, self.family, self.rule = density, anchor, family, rule
        self.dim = len(anchor.centre)
        self.tilt = Tilt.none(self.dim) if tilt is None else tilt
        self.root = family.root(anchor.root)
        self.entropy = entropy(self.root)

    def parts(self, params: Params) -> tuple[Vector, Phi, Tau]:
        """`m`, `phi` and `tau`."""
        end = len(params) - self.tilt.size
        return params[: self.dim], params[self.dim : end], params[end:]

    def density_at(self, params: Params) -> Density:
        return self.tilt.bind(self.density, self.parts(params)[2])

    def gaussian(self, params: Params) -> tuple[Vector, Matrix]:
        m, phi, tau = self.parts(params)
        return self._mean(m, tau), self.family.right_multiply(self.root, phi)

    def _mean(self, m: Vector, tau: Tau) -> Vector:
        return self.anchor.centre + self.anchor.root @ m + self.tilt.drift @ tau

    def __call__(self, params: Params) -> tuple[float, Params]:
        """The bound and its gradient: one pass."""
        phi = self.parts(params)[1]
        expected = self.density_at(params).expect(*self.gaussian(params), self.rule)
        value = expected.value + self.entropy + float(self.family.log_det(phi, self.dim))
        cross = expected.cross
        n = transposed_times(self.root, cross)
        in_m = self.anchor.root.T @ expected.gradient
        in_phi = self.family.pull_back(n, phi)
        return value, np.concatenate([in_m, in_phi, self.tilt.slope(expected)])

    def value(self, params: Params) -> float:
        return bound_at(self.density_at(params), *self.gaussian(params), self.rule)

    def root_gradient(self, m: Vector, a: Square, tau: Tau = NOTHING) -> Square:
        """The gradient with respect to a dense `A` at `a`: `R^T E[g z^T] + a^-T`."""
        around, density = dense(self.root), self.tilt.bind(self.density, tau)
        expected = density.expect(self._mean(m, tau), around @ a, self.rule)
        return around.T @ dense(expected.cross) + np.linalg.inv(a).T


def climb(
    density: Density,
    anchor: Anchor,
    family: Family,
    rule: Rule,
    stop: Stop,
    optimiser: str,
    tilt: Tilt | None = None,
    poorer_first: bool = True,
) -> FamilyState:
    """From the anchor through the poorer families, each from where the last ended.

    A family contains its poorer one exactly on the same draws and no search ever goes down, so a
    richer family never ends below a poorer one.
    """
    m, a, found = np.zeros_like(anchor.centre), np.eye(len(anchor.centre)), None
    tau, n_passes, bound = NOTHING if tilt is None else tilt.start, 0, None
    for rung in _rungs(family) if poorer_first else [family]:
        bound = FamilyBound(density, anchor, rung, rule, tilt)
        params = _best_start(bound, rung, m, a, tau, found)
        found = maximise(bound, params, stop, optimiser)
        n_passes += found.n_passes + rung.start_is_stationary
        m, phi, tau = bound.parts(found.point)
        a = dense(rung.right_multiply(np.eye(bound.dim), phi))
    assert bound is not None
    assert found is not None
    return _ended(bound, found, n_passes)


def resume(
    density: Density,
    anchor: Anchor,
    family: Family,
    rule: Rule,
    params: Params,
    stop: Stop,
    optimiser: str,
    tilt: Tilt | None = None,
) -> FamilyState:
    """From parameters of the same family: more draws, or a warm start."""
    bound = FamilyBound(density, anchor, family, rule, tilt)
    found = maximise(bound, params, stop, optimiser)
    return _ended(bound, found, found.n_passes)


def nearest(
    anchor: Anchor, family: Family, mean: Vector, root: Matrix, tau: Tau = NOTHING
) -> Params:
    """The parameters of `family` around `anchor` nearest to the Gaussian `(mean, root root^T)`."""
    around = family.root(anchor.root)
    a = whiten(around, dense(root).T).T
    m = np.linalg.solve(anchor.root, mean - anchor.centre)
    phi = family.starts(around, a, np.zeros_like(a), anchor.root)[0]
    return np.concatenate([m, phi, tau])


def maximise(bound: FamilyBound, params: Params, stop: Stop, optimiser: str) -> Summit:
    rounding = bound.density.resolution
    if isinstance(bound.rule, Points):
        rounding = bound.density.resolution_over_draws or rounding
    if bound.family.start_is_stationary:
        # Its coordinates have no scale of their own: what the search foresees is too little.
        stop = dataclasses.replace(stop, gain=0.01 * stop.gain)

    def watched(found: Summit) -> None:
        def state() -> tuple[str, FamilyState]:
            return bound.family.name, _ended(bound, found, found.n_passes)

        tell(found.value, found.gain_left, len(bound.rule.z), state)

    if optimiser == "scg":
        return scaled_conjugate_gradients(bound, params, stop, rounding, watched)
    dense_hessian = optimiser != "lbfgs"
    first = _first_hessian(bound, params)
    return quasi_newton(bound, params, stop, rounding, first, dense_hessian, watched=watched)


def _first_hessian(bound: FamilyBound, params: Params):
    """Of a Gaussian target: `bend` for the mean, the family's own for `phi`; where the search
    begins at the anchor itself. (The density remembers this pass: the search asks for it again.)"""
    if params.any() or is_diagonal(bound.root):
        return None
    root = bound.root
    shape = Shape.of(bound.density.expect(bound.anchor.centre, root, bound.rule), root)
    if not shape.finite:
        return None
    values, vectors = shape.axes
    floored = np.maximum(values, LEAST_CURVATURE)
    of_phi = bound.family.first_curvature(shape.bend)

    def inverse(q: Params) -> Params:
        m, phi, tau = bound.parts(q)
        m = vectors @ ((vectors.T @ m) / floored)
        return np.concatenate([m, phi if of_phi is None else phi / of_phi, tau])

    return inverse


def _rungs(family: Family) -> list[Family]:
    """The family and those it contains, the poorest first."""
    rungs = [family]
    while (poorer := rungs[0].poorer) is not None:
        rungs.insert(0, poorer)
    return rungs


def _best_start(
    bound: FamilyBound, family: Family, m: Vector, a: Square, tau: Tau, poorer: Summit | None
) -> Params:
    """The candidate with the highest bound.

    The first candidate is the poorer family's end. Others are tried where the search could not
    leave it, or where the Gaussian falls far short of its own evidence: for a Gaussian target the
    two are equal, for a Laplace covariance far too wide they are not.
    """
    stationary = family.start_is_stationary
    gradient = bound.root_gradient(m, a, tau) if stationary else np.zeros_like(a)
    gradient = gradient if np.isfinite(gradient).all() else np.zeros_like(a)
    phis = family.starts(bound.root, a, gradient, bound.anchor.root)
    first = np.concatenate([m, phis[0], tau])
    if len(phis) == 1:
        return first
    if not stationary:
        begin = bound.value(first) if poorer is None else poorer.value
        log_det = bound.entropy - 0.5 * bound.dim * (1 + math.log(2 * math.pi))
        own = np.linalg.slogdet(bound.anchor.root)[1]
        evidence = bound.anchor.log_evidence - own + log_det
        if evidence - begin < 0.5 + 0.1 * bound.dim:  # false for a bound that is not a number
            return first
    # A poorer search that went nowhere finite has nothing to hand on: its mean is the centre then.
    means = [m] if poorer is None else [m, np.zeros_like(m)]
    grid = [np.concatenate([mean, phi, tau]) for mean in means for phi in phis]
    values = np.array([bound.value(params) for params in grid])
    return grid[int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))]


def _ended(bound: FamilyBound, found: Summit, n_passes: int) -> FamilyState:
    params = found.point
    if np.abs(found.next_step).max(initial=0.0) < SAFE_STEP:
        params = params + found.next_step
    mean, root = bound.gaussian(params)
    gradient = float(np.abs(found.gradient).max(initial=0.0))
    return FamilyState(
        density=bound.density_at(params),
        learnt=Learnt(bound.tilt, bound.parts(params)[2], bound.parts(found.gradient)[2]),
        params=params,
        mean=mean,
        root=root,
        elbo=found.value,
        gradient=gradient,
        gain_left=found.gain_left,
        n_passes=n_passes,
        code=found.code,
    )
