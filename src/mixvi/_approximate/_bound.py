"""What one pass of gradients shows of a Gaussian: the bound, its slopes, and what is left to gain.

    ELBO = E log p~(w) + log|det L| + (D/2) log 2 pi e,        w = mu + L z

With `g = grad log p~(w)`, `E g` and `M = E g z^T` of the density,

    pull = L^T E g,        bend = -sym L^T M        (Stein's identity: bend = -L^T E[Hessian] L)

are the bound's gradient in the mean and, as `I - bend`, in the log of a symmetric factor of the
root. Both vanish at the best Gaussian.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .._arrays._roots import dense, log_det
from .._density._protocol import (
    NOTHING,
    Density,
    Expectation,
    Matrix,
    Points,
    Rule,
    averaged,
    coloured,
)

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


def entropy(root: Matrix) -> float:
    """Of `N(., root root^T)`."""
    return log_det(root) + 0.5 * len(root) * (1 + math.log(2 * math.pi))


@dataclasses.dataclass(frozen=True)
class Shape:
    """The bound of `N(mean, root root^T)` with its slopes; `in_theta`: in the hyperparameters, the
    Gaussian held."""

    elbo: float
    pull: Vector
    bend: Square
    in_theta: Float[np.ndarray, " hyper"] = dataclasses.field(default_factory=lambda: NOTHING)

    @classmethod
    def of(cls, expected: Expectation, root: Square) -> "Shape":
        bent = root.T @ dense(expected.cross)
        bound = expected.value + entropy(root)
        pull = root.T @ expected.gradient
        return cls(bound, pull, -0.5 * (bent + bent.T), expected.hyper)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.elbo) and bool(
            np.isfinite(self.pull).all()
            and np.isfinite(self.bend).all()
            and np.isfinite(self.in_theta).all()
        )

    @functools.cached_property
    def axes(self) -> tuple[Vector, Square]:
        """Eigenvalues and eigenvectors of the bend."""
        return np.linalg.eigh(self.bend)

    # Nats still to be had, were the target Gaussian; infinite where the averaged curvature has the
    # wrong sign.

    @property
    def gain_mean(self) -> float:
        """`(1/2) pull^T bend^-1 pull`."""
        b, vectors = self.axes
        if b[0] <= 0:
            return math.inf
        return float((0.5 * (vectors.T @ self.pull) ** 2 / b).sum())

    @property
    def gain_root(self) -> float:
        """`(1/2) (tr bend - D - log det bend)`."""
        return _gain_of_widths(self.axes[0])

    @property
    def gain_widths(self) -> float:
        """By widths along the root's own columns."""
        return min(_gain_of_widths(np.diagonal(self.bend)), self.gain_root)


def _gain_of_widths(b: Vector) -> float:
    return float((0.5 * (b - 1 - np.log(b))).sum()) if b.min() > 0 else math.inf


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What is left to gain, by the mean, by widths along the root's own columns, by the whole root;
    and what the choice of draws did: `draw_loss`, nats that a Gaussian fitted to these draws loses
    on fresh ones; `mean_se`, the standard error of the mean that other draws would have shown."""

    elbo: float
    gain_mean: float
    gain_widths: float
    gain_root: float
    draw_loss: float
    mean_se: Vector

    @property
    def gain(self) -> float:
        """By mean and whole root. What draws cost looks like a gain to be had."""
        return self.gain_mean + self.gain_root


def inspect(density: Density, mean: Vector, root: Matrix, rule: Rule) -> Inspection:
    root = dense(root)
    if isinstance(rule, Points):
        values, gradients = density.gradients(coloured(mean, root, rule.z))
        shape = Shape.of(averaged(values, gradients, root, rule), root)
        draw_loss, mean_se = _noise(root, rule, gradients @ root, shape)
    else:
        shape = Shape.of(density.expect(mean, root, rule), root)
        draw_loss, mean_se = 0.0, np.zeros_like(mean)
    if not shape.finite:
        nothing = (math.nan, math.inf, math.inf, math.inf)
        return Inspection(*nothing, math.inf, np.full_like(mean, np.nan))
    gains = (shape.gain_mean, shape.gain_widths, shape.gain_root)
    return Inspection(shape.elbo, *gains, draw_loss, mean_se)


def _noise(
    root: Square, rule: Points, h: Float[np.ndarray, "n dim"], shape: Shape
) -> tuple[float, Vector]:
    """Nats lost to the choice of draws, and the mean's standard error from it.

    Matched draws hold the part of `h = L^T g` that is linear in `z` exactly, and pairs the even
    part of `h z^T`: what is left varies from pair to pair. In the metric of the bound an error `e`
    of the pull costs `|e|^2 / 2`, an error `N` of the bend `|N|^2 / 4`; and the mean moves by
    `L bend^-1 e` (the sandwich).
    """
    if not shape.finite:
        return math.inf, np.full(len(root), np.nan)
    z, n = rule.z, len(rule.z)
    if rule.paired:
        n //= 2
        up, down, z = h[:n], h[n:], z[:n]
        even, odd = 0.5 * (up + down) - shape.pull, 0.5 * (up - down) + z @ shape.bend
    else:
        even, odd = h - shape.pull, h
    # |sym(z r^T)|^2 = (|z|^2 |r|^2 + (z r)^2) / 2
    square = 0.5 * ((z**2).sum(1) * (odd**2).sum(1) + (z * odd).sum(1) ** 2)
    if not rule.paired:
        square = np.maximum(square - (shape.bend**2).sum(), 0.0)
    lost = (0.5 * (even**2).sum() + 0.25 * square.sum()) / n**2
    b, vectors = shape.axes
    back = (root @ vectors) / np.maximum(np.abs(b), 1e-3)
    return float(lost), np.sqrt((((even @ vectors) @ back.T) ** 2).sum(0)) / n


def lost_to_rule(density: Density, mean: Vector, root: Matrix, rule: Rule, other: Rule) -> float:
    """Nats that a Gaussian fitted by `rule` loses: an error `e` of the pull costs `|e|^2 / 2`, an
    error `N` of the bend `|N|^2 / 4`, and two rules of a kind differ by twice their square."""
    root = dense(root)
    one, two = (Shape.of(density.expect(mean, root, over), root) for over in (rule, other))
    pull, bend = one.pull - two.pull, one.bend - two.bend
    return float(0.25 * pull @ pull + 0.125 * (bend**2).sum())


def bound_at(density: Density, mean: Vector, root: Matrix, rule: Rule) -> float:
    """The bound alone; not a number or minus infinity where the density is not finite."""
    if isinstance(rule, Points):
        value = float(density.values(coloured(mean, root, rule.z)).mean())
    else:
        value = density.expect(mean, root, rule).value
    return value + entropy(root)


def highest_bound(
    density: Density, gaussians: Sequence[tuple[Vector, Matrix]], rule: Rule
) -> tuple[float, tuple[Vector, Matrix]]:
    """The Gaussian, of several, with the highest bound, and that bound; minus infinity where no
    bound is finite. All points are asked for at once."""
    if isinstance(rule, Points):
        points = [coloured(mean, root, rule.z) for mean, root in gaussians]
        values = density.values(np.concatenate(points)).reshape(len(gaussians), -1).mean(1)
        bounds = values + np.array([entropy(root) for _, root in gaussians])
    else:
        bounds = np.array([bound_at(density, *one, rule) for one in gaussians])
    bounds = np.where(np.isfinite(bounds), bounds, -np.inf)
    best = int(np.argmax(bounds))
    return float(bounds[best]), gaussians[best]
