"""Stein steps over many draws, nearly all of them made over few.

The bound over many draws is that over few plus, nearly, what is linear in mean and covariance:

    ELBO_many(mu, Sigma) ~ ELBO_few(mu, Sigma) + c + s^T mu + (1/2) tr(C Sigma)

One pass over the many gives the `c`, `s` and `C` with which both sides have the same value and
slopes where they were compared; steps to the top of the right side then ask the few alone. What the
right side misses is the noise of a difference, small where the steps were short. It is estimated;
where it is too large, the two are compared anew.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from .._density._protocol import Density, Expectation, Points, Rule, coloured
from .._errors import Code
from ._bound import Shape
from ._search import Stop
from ._stein import Square, SteinState, Vector, stein, told

MOST_COMPARISONS = 4
# Over the few, between two comparisons.
MOST_STEPS = 4
# The share of a promised rise that may be noise.
MOST_NOISE = 0.3

ByDraw = Float[np.ndarray, "n dim"]


class Corrected(Density):
    """What few draws say, made to agree with many where both were asked, at mean and root."""

    def __init__(
        self, inner: Density, mean: Vector, root: Square, few: Expectation, many: Expectation
    ):
        self.inner, self.dim, self.resolution = inner, inner.dim, inner.resolution
        self.slope = many.gradient - few.gradient
        # Stein's identity: E[Hessian] = E[g z^T] root^-1.
        bent = np.linalg.solve(root.T, (many.cross - few.cross).T)
        self.bent = 0.5 * (bent + bent.T)
        self.constant = many.value - few.value - self._linear(mean, root)

    def _linear(self, mean: Vector, root: Square) -> float:
        return float(self.slope @ mean + 0.5 * (root * (self.bent @ root)).sum())

    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        return self.inner.gradients(points)

    def expect(self, mean: Vector, root: Square, rule: Rule) -> Expectation:
        expected = self.inner.expect(mean, root, rule)
        return Expectation(
            expected.value + self.constant + self._linear(mean, root),
            expected.gradient + self.slope,
            expected.cross + self.bent @ root,
        )


def stein_on_many(
    density: Density, start: SteinState, few: Points, many: Points, stop: Stop
) -> SteinState:
    """From where steps over the few have come to where the test of `stop` is met over the many.
    Where the few mislead, by steps over the many themselves."""
    mean, root, past = start.mean, start.root, start.past
    best, left = start, stop.max_steps
    for n_passes in range(1, MOST_COMPARISONS + 1):
        h = _slopes(density, mean, root, few)
        on_few, on_many = (density.expect(mean, root, rule) for rule in (few, many))
        shape = Shape.of(on_many, root)
        gain = shape.gain_mean + shape.gain_root if shape.finite else math.inf
        at = (density, start.learnt, mean, root, (mean, root))
        here = SteinState(*at, shape, past, gain, n_passes, Code.OK)
        if n_passes == 1 and not shape.finite:
            return dataclasses.replace(here, code=Code.NON_FINITE_DRAWS)
        if n_passes > 1 and not shape.elbo >= best.elbo:
            break
        best = here
        told(dataclasses.replace(here, code=Code.INTERRUPTED), many)
        corrected = Corrected(density, mean, root, on_few, on_many)
        short = dataclasses.replace(stop, max_steps=min(left, MOST_STEPS))
        new = stein(corrected, mean, root, few, short, past)
        left -= new.n_passes
        missed = lost_on_the_way(
            few, root, h, new.evaluated_at[1], _slopes(density, *new.evaluated_at, few)
        )
        if new.code is Code.OK and missed <= stop.gain:
            gain_left = max(new.gain_left, missed)
            return dataclasses.replace(new, density=density, gain_left=gain_left, n_passes=n_passes)
        if left <= 0:
            return dataclasses.replace(best, code=Code.BOUND_OUT_OF_STEPS)
        if not missed < MOST_NOISE * (new.elbo - shape.elbo):
            break
        mean, root = new.mean, new.root
    rest = dataclasses.replace(stop, max_steps=left)
    return stein(density, best.mean, best.root, many, rest, past)


def _slopes(density: Density, mean: Vector, root: Square, rule: Points) -> ByDraw:
    """`h = L^T g` at every draw."""
    return density.gradients(coloured(mean, root, rule.z))[1] @ root


def lost_on_the_way(
    draws: Points, old_root: Square, old_h: ByDraw, new_root: Square, new_h: ByDraw
) -> float:
    """Nats lost to what paired draws do not tell of the way from an old Gaussian to a new one.

    In the frame of the new root, `T = old_root^-1 new_root`, a pair's part in the change of the
    bend is `sym(a z^T - b c^T)` with `a` the odd part of the new `h`, `b` of the old one times `T`
    and `c = T^T z`. As in `inspect`, an error `e` of the pull costs `|e|^2 / 2` and `N` of the bend
    `|N|^2 / 4`.
    """
    n = len(draws.z) // 2
    z, turn = draws.z[:n], np.linalg.solve(old_root, new_root)
    (old_even, old_odd), (new_even, a) = _unmatched(old_h, z), _unmatched(new_h, z)
    even, b, c = new_even - old_even @ turn, old_odd @ turn, z @ turn
    # |sym N|^2 = (|N|^2 + tr N^2) / 2
    norm = _dot(a, a) * _dot(z, z) - 2 * _dot(a, b) * _dot(z, c) + _dot(b, b) * _dot(c, c)
    trace = _dot(a, z) ** 2 - 2 * _dot(z, b) * _dot(c, a) + _dot(b, c) ** 2
    return float((0.5 * (even**2).sum() + 0.125 * (norm + trace).sum()) / n**2)


def _unmatched(
    h: Float[np.ndarray, "n dim"], z: Float[np.ndarray, "pairs dim"]
) -> tuple[Float[np.ndarray, "pairs dim"], Float[np.ndarray, "pairs dim"]]:
    """What varies from pair to pair: the even part without its mean, and the odd part without what
    is linear in `z`, which matched draws hold exactly."""
    up, down = np.split(h, 2)
    even, odd = 0.5 * (up + down), 0.5 * (up - down)
    return even - even.mean(0), odd - z @ (z.T @ odd / len(z))


def _dot(x: ByDraw, y: ByDraw) -> Float[np.ndarray, " n"]:
    return (x * y).sum(1)
