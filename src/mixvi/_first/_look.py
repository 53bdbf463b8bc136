"""What one pass of gradients shows of a Gaussian, and what it would still gain.

With `w = mu + L z`, `h = L^T grad log p~(w)` and the bound's own expectation E,

    pull = E h,        bend = -sym E h z^T        (Stein's identity: bend = -L^T E[Hessian] L)

are the bound's gradient in the mean and, as `I - bend`, in the log of a symmetric factor of the
root. Both vanish at the best Gaussian; where hyperparameters are learnt, so does

    slope = E d log p~ / d theta
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._density._memory import each
from .._target import Target
from ._elbo import Expectation, OverDraws, OverNodes
from ._families import SCALINGS, Matrix
from ._laplace import covariance_root, dense_hessian

# Widths to try where no mode gives one.
WIDTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3)


class Look(eqx.Module):
    """What one pass shows of a Gaussian."""

    elbo: Float[Array, ""]
    pull: Float[Array, " dim"]
    bend: Float[Array, "dim dim"]
    slope: Float[Array, " hyper"]  # empty where hyperparameters stay

    @property
    def finite(self) -> Bool[Array, ""]:
        shown = (self.elbo, self.pull, self.bend, self.slope)
        return jnp.stack([jnp.isfinite(part).all() for part in shown]).all()


class Inspection(eqx.Module):
    """A pass that asks what is left to gain, and what the choice of draws did.

    `gain_mean`, `gain_widths`, `gain_root`: nats still to be had, were the target Gaussian, by the
    mean, by widths along the root's own columns, by the whole root; infinite where the averaged
    curvature has the wrong sign. `draw_loss`: nats that a Gaussian fitted to these draws loses on
    fresh ones. `mean_se`: the standard error of the mean that other draws would have shown.
    """

    elbo: Float[Array, ""]
    gain_mean: Float[Array, ""]
    gain_widths: Float[Array, ""]
    gain_root: Float[Array, ""]
    draw_loss: Float[Array, ""]
    mean_se: Float[Array, " dim"]


def look(
    target: Target,
    mean: Float[Array, " dim"],
    root: Float[Array, "dim dim"],
    over: Expectation,
    learns: bool = False,
) -> Look:
    """`learns`: whether hyperparameters are to be learnt."""
    if isinstance(over, OverNodes):
        return _look_by_nodes(target, mean, root, over, learns)
    return _look_by_draws(target, mean, root, over, learns)


def inspect(
    target: Target, mean: Float[Array, " dim"], root: Matrix, over: Expectation
) -> Inspection:
    root = jnp.diag(root) if root.ndim == 1 else root
    draw_loss, mean_se = jnp.zeros((), mean.dtype), jnp.zeros_like(mean)
    if isinstance(over, OverNodes):
        seen = _look_by_nodes(target, mean, root, over)
    else:
        values, h = _gradients(target, mean, root, over)
        z, weights = over.z.reshape(h.shape), over.weights.reshape(-1)
        h_z = (h * weights[:, None]).T @ z
        elbo, bend = weights @ values + _entropy(root), -0.5 * (h_z + h_z.T)
        seen = Look(elbo, weights @ h, bend, jnp.zeros(0, mean.dtype))
        draw_loss, mean_se = _noise(root, over, h, seen)
    b, vectors = jnp.linalg.eigh(seen.bend)
    along = vectors.T @ seen.pull
    # (1/2) pull^T bend^-1 pull,   (1/2) (tr bend - D - log det bend)
    gain_mean = jnp.where(b > 0, 0.5 * along**2 / jnp.where(b > 0, b, 1.0), jnp.inf).sum()
    gain_root = _gain(b)
    gain_widths = jnp.minimum(_gain(jnp.diagonal(seen.bend)), gain_root)
    return Inspection(seen.elbo, gain_mean, gain_widths, gain_root, draw_loss, mean_se)


def lost_to_rule(
    target: Target, mean: Float[Array, " dim"], root: Matrix, rule: Expectation, other: Expectation
) -> Float[Array, ""]:
    """Nats that a Gaussian fitted by `rule` loses: an error `e` of the pull costs `|e|^2 / 2`, an
    error `N` of the bend `|N|^2 / 4`, and two rules of a kind differ by twice their square."""
    root = jnp.diag(root) if root.ndim == 1 else root
    one, two = (look(target, mean, root, over) for over in (rule, other))
    pull, bend = one.pull - two.pull, one.bend - two.bend
    return 0.25 * pull @ pull + 0.125 * (bend**2).sum()


def _gain(b: Float[Array, " dim"]) -> Float[Array, ""]:
    of_each = 0.5 * (b - 1 - jnp.log(jnp.where(b > 0, b, 1.0)))
    return jnp.where(b > 0, of_each, jnp.inf).sum()


def _entropy(root: Float[Array, "dim dim"]) -> Float[Array, ""]:
    return jnp.linalg.slogdet(root)[1] + 0.5 * root.shape[0] * (1 + math.log(2 * math.pi))


def _look_by_nodes(
    target: Target, mean: Array, root: Array, over: OverNodes, learns: bool = False
) -> Look:
    def expected(shift: Array, change: Array, theta: Array) -> Array:
        return target.callable.expected(
            mean + root @ shift, root @ change, over.z, over.weights, *target.at(theta).extra
        )

    here = (jnp.zeros_like(mean), jnp.eye(mean.size, dtype=mean.dtype), target.theta)
    of = (0, 1, 2) if learns else (0, 1)
    value, (pull, h_z, *rest) = jax.value_and_grad(expected, of)(*here)
    slope = rest[0] if learns else jnp.zeros(0, mean.dtype)
    return Look(value + _entropy(root), pull, -0.5 * (h_z + h_z.T), slope)


def _look_by_draws(target: Target, mean: Array, root: Array, over: OverDraws, learns: bool) -> Look:
    def chunk(part: tuple[Array, Array]) -> tuple[Array, Array, Array, Array]:
        z, weights = part
        points = mean + z @ root.T
        if learns:
            # Backwards from the sum: a gradient in theta for each draw would cost a basis for each.
            function = lambda w, theta: each(target.at(theta), w)  # noqa: E731
            values, back = jax.vjp(function, points, target.theta)
            gradients, slope = back(weights)
        else:
            values, gradients = each(jax.value_and_grad(target), points)
            gradients, slope = weights[:, None] * gradients, jnp.zeros(0, mean.dtype)
        h = gradients @ root
        return weights @ values, h.sum(0), h.T @ z, slope

    if over.z.shape[0] == 1:
        value, pull, h_z, slope = chunk((over.z[0], over.weights[0]))
    else:
        sums = lax.map(chunk, (over.z, over.weights))
        value, pull, h_z, slope = jax.tree.map(lambda part: part.sum(0), sums)
    return Look(value + _entropy(root), pull, -0.5 * (h_z + h_z.T), slope)


def _gradients(
    target: Target, mean: Array, root: Array, over: OverDraws
) -> tuple[Float[Array, " draws"], Float[Array, "draws dim"]]:
    """`log p~` and `h` at every draw."""

    def chunk(z: Array) -> tuple[Array, Array]:
        values, gradients = each(jax.value_and_grad(target), mean + z @ root.T)
        return values, gradients @ root

    values, h = chunk(over.z[0]) if over.z.shape[0] == 1 else lax.map(chunk, over.z)
    return values.reshape(-1), h.reshape(-1, mean.size)


def _noise(
    root: Array, over: OverDraws, h: Array, seen: Look
) -> tuple[Float[Array, ""], Float[Array, " dim"]]:
    """Nats lost to the choice of draws, and the mean's standard error from it.

    Matched draws hold the part of `h` that is linear in `z` exactly, and pairs the even part of
    `h z^T`: what is left varies from pair to pair. In the metric of the bound an error `e` of the
    pull costs `|e|^2 / 2`, an error `N` of the bend `|N|^2 / 4`; and the mean moves by
    `L bend^-1 e` (the sandwich).
    """
    z, weights = over.z.reshape(h.shape), over.weights.reshape(-1)
    if over.paired:
        n = over.paired
        up, down = h[:n], h[n : 2 * n]
        z, weights = z[:n], 2 * weights[:n]
        even, odd = 0.5 * (up + down) - seen.pull, 0.5 * (up - down) + z @ seen.bend
    else:
        even, odd = h - seen.pull, h
    share = weights**2
    # |sym(z r^T)|^2 = (|z|^2 |r|^2 + (z r)^2) / 2
    square = 0.5 * ((z**2).sum(1) * (odd**2).sum(1) + (z * odd).sum(1) ** 2)
    if not over.paired:
        square = jnp.maximum(square - (seen.bend**2).sum(), 0.0)
    lost = 0.5 * share @ (even**2).sum(1) + 0.25 * share @ square
    b, vectors = jnp.linalg.eigh(seen.bend)
    back = (root @ vectors) / jnp.maximum(jnp.abs(b), 1e-3)
    return lost, jnp.sqrt(share @ ((even @ vectors) @ back.T) ** 2)


def rough_start(
    target: Target, start: Float[Array, " dim"], over: Expectation, memory: int
) -> Float[Array, "dim dim"]:
    """The root of a Gaussian around `start` where there is no mode to build one on: as wide as the
    curvature there says, or equally wide in all directions, by several factors; the best."""

    def gradient(w: Array) -> Array:
        return jax.grad(target)(w)

    def product(w: Array, v: Array) -> Array:
        return -jax.jvp(gradient, (w,), (v,))[1]

    curved, _, definite = covariance_root(dense_hessian(product, start, memory), "absolute")
    eye = jnp.eye(start.size, dtype=start.dtype)
    shapes = jnp.stack([jnp.where(definite, curved.matrix, eye), eye])
    roots = jnp.concatenate([width * shapes for width in WIDTHS])
    values = lax.map(lambda root: _bound_at(target, start, root, over), roots)
    values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
    return roots[jnp.argmax(values)]


def best_width(
    target: Target, mean: Float[Array, " dim"], root: Float[Array, "dim dim"], over: Expectation
) -> Float[Array, "dim dim"]:
    """The root by the factor at which the bound is highest: Laplace's is far too wide for a Cauchy
    posterior, or for one whose scales are at a boundary."""
    factors = jnp.array(SCALINGS, root.dtype)
    values = lax.map(lambda factor: _bound_at(target, mean, factor * root, over), factors)
    return factors[jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf))] * root


def _bound_at(target: Target, mean: Array, root: Array, over: Expectation) -> Float[Array, ""]:
    if isinstance(over, OverNodes):
        expected = target.callable.expected(mean, root, over.z, over.weights, *target.extra)
        return expected + _entropy(root)
    values = lax.map(lambda z: each(target, mean + z @ root.T), over.z)
    return (over.weights * values).sum() + _entropy(root)
