"""The bound and its derivatives: over fixed draws in bounded memory, or by quadrature.

    ELBO(m, phi, theta) = E log p~(w | theta) + log|det R| + log|det A| + (D/2) log 2 pi e
    w = w* + R m + R A(phi) z,       E: mean over fixed draws z_s, or exact up to quadrature

Parameters travel as one flat vector `(m, phi, tau)`, where `theta = theta_LA + T tau`; `loss` is
minus the bound, what minimisers see.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._density._memory import bytes_of, each
from .._draws import Nodes
from .._target import Target
from ._families import Family
from ._laplace import Root


class Tilt(eqx.Module):
    """Hyperparameters in the coordinates of the search: `theta = theta_LA + T tau`.

    The mean follows as the mode would, by `drift tau = (dw*/dtheta) T tau`: the same family, but
    hyperparameters and mean then hardly pull at each other. Empty where there are none.
    """

    theta: Float[Array, " hyper"]
    scale: Float[Array, "hyper tau"]
    drift: Float[Array, "dim tau"]

    def at(self, tau: Float[Array, " tau"]) -> Float[Array, " hyper"]:
        return self.theta + self.scale @ tau


class OverDraws(eqx.Module):
    """Fixed draws, cut so that one chunk's pass fits the budget, and their weights."""

    z: Float[Array, "chunks chunk dim"]
    weights: Float[Array, "chunks chunk"]
    # so many pairs: the first n draws, then their negatives; 0 where there are none
    paired: int = eqx.field(static=True, default=0)


class OverNodes(eqx.Module):
    """The nodes of a rule for N(0, I_K), for targets with K linear predictors per observation."""

    z: Float[Array, "chunks chunk sets k"]
    weights: Float[Array, "chunks chunk"]


Expectation = OverDraws | OverNodes


class Bound(eqx.Module):
    """The bound of one family around one Laplace root."""

    target: Target
    anchor: Float[Array, " dim"]
    root: Root
    tilt: Tilt
    over: Expectation
    family: Family

    def parts(self, params: Float[Array, " free"]) -> tuple[Array, Array, Array]:
        """`m, phi, tau`."""
        dim, end = self.anchor.size, params.size - self.tilt.theta.size
        return params[:dim], params[dim:end], params[end:]

    def theta(self, params: Float[Array, " free"]) -> Float[Array, " hyper"]:
        return self.tilt.at(self.parts(params)[2])

    def mean(self, params: Float[Array, " free"]) -> Float[Array, " dim"]:
        m, _, tau = self.parts(params)
        return self.anchor + self.root.shift(m) + self.tilt.drift @ tau

    def entropy(self, params: Float[Array, " free"]) -> Float[Array, ""]:
        dim = self.anchor.size
        log_det = self.root.log_det + self.family.log_det(self.parts(params)[1], dim)
        return log_det + 0.5 * dim * (1 + math.log(2 * math.pi))

    def _chunk(self, params: Array, z: Array, weights: Array) -> Float[Array, ""]:
        """The chunk's share of `E log p~`."""
        target, mean = self.target.at(self.theta(params)), self.mean(params)
        phi = self.parts(params)[1]
        steps = jax.vmap(lambda one: self.root.apply(self.family.apply(phi, one)))(z)
        return weights @ each(target, mean + steps)

    def _by_nodes(self, params: Array, over: OverNodes) -> Float[Array, ""]:
        target = self.target.at(self.theta(params))
        root = self.family.after(self.root.matrix, self.parts(params)[1])
        return target.callable.expected(
            self.mean(params), root, over.z, over.weights, *target.extra
        )

    def elbo(self, params: Float[Array, " free"]) -> Float[Array, ""]:
        if isinstance(self.over, OverNodes):
            return self._by_nodes(params, self.over) + self.entropy(params)
        return _summed(self.over, lambda *c: self._chunk(params, *c)) + self.entropy(params)

    def loss_and_grad(
        self, params: Float[Array, " free"]
    ) -> tuple[Float[Array, ""], Float[Array, " free"]]:
        """One pass. Differentiated chunk by chunk, so that one chunk's values live at a time."""
        if isinstance(self.over, OverNodes):
            return jax.value_and_grad(lambda p: -self.elbo(p))(params)

        def chunk(z: Array, weights: Array) -> tuple[Array, Array]:
            return jax.value_and_grad(lambda p: -self._chunk(p, z, weights))(params)

        rest = jax.value_and_grad(lambda p: -self.entropy(p))(params)
        return jax.tree.map(jnp.add, _summed(self.over, chunk), rest)

    def loss_product(
        self, params: Float[Array, " free"], v: Float[Array, " free"]
    ) -> Float[Array, " free"]:
        """The loss's Hessian times `v`, forward over reverse: nothing is kept between chunks."""
        return jax.jvp(lambda p: self.loss_and_grad(p)[1], (params,), (v,))[1]

    def root_gradient(
        self, m: Float[Array, " dim"], a: Float[Array, "dim dim"], tau: Float[Array, " hyper"]
    ) -> Float[Array, "dim dim"]:
        """The gradient with respect to a dense `A` at `a`: `E h z^T + a^-T`, with
        `h = R^T grad log p~` the whitened gradient."""
        target = self.target.at(self.tilt.at(tau))
        mean = self.anchor + self.root.shift(m) + self.tilt.drift @ tau
        if isinstance(self.over, OverNodes):
            over, matrix = self.over, self.root.matrix
            dense = jnp.diag(matrix) if matrix.ndim == 1 else matrix

            def expected(change: Array) -> Array:
                return target.callable.expected(
                    mean, dense @ change, over.z, over.weights, *target.extra
                )

            return jax.grad(expected)(a) + jnp.linalg.inv(a).T

        def chunk(z: Array, weights: Array) -> Array:
            def mean_log_density(steps: Array) -> Array:
                return weights @ each(target, mean + jax.vmap(self.root.apply)(steps))

            return jax.grad(mean_log_density)(z @ a.T).T @ z

        return _summed(self.over, chunk) + jnp.linalg.inv(a).T


def _summed(over: OverDraws, chunk: Callable):
    if over.z.shape[0] == 1:
        return chunk(over.z[0], over.weights[0])
    zero = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(chunk, over.z[0], over.weights[0]),
    )

    def add(total, batch):
        return jax.tree.map(jnp.add, total, chunk(*batch)), None

    return lax.scan(add, zero, (over.z, over.weights))[0]


def expectation(
    target: Target,
    points: Float[Array, "draws dim"] | Nodes,
    memory: int,
    paired: bool = False,
) -> Expectation:
    """The rule, cut into chunks whose pass fits `memory` bytes. `paired`: draws `z`, then `-z`."""
    if isinstance(points, Nodes):
        n = points.weights.size
        nodes = points.z.reshape(n, *(points.z.shape[1:] or (1, 1)))
        mean = jnp.zeros(target.structure.size, points.z.dtype)

        def one(z: Array) -> Array:
            weight = jnp.ones((1, 1), z.dtype)
            return target.callable.expected(mean, mean, z[None, None], weight, *target.extra)

        n_chunks, size = _cut(n, bytes_of(jax.grad(one), nodes[0]), memory)
        fill = (0, n_chunks * size - n)
        z = jnp.pad(nodes, (fill, (0, 0), (0, 0))).reshape(n_chunks, size, *nodes.shape[1:])
        return OverNodes(z, jnp.pad(points.weights, fill).reshape(n_chunks, size))
    n, dim = points.shape
    n_chunks, size = _cut(n, bytes_of(jax.value_and_grad(target), points[0]), memory)
    # The last chunk is filled up with draws that weigh nothing.
    filled = jnp.concatenate([points, points[: n_chunks * size - n]])
    weights = jnp.where(jnp.arange(n_chunks * size) < n, 1.0 / n, 0.0).astype(points.dtype)
    z = filled.reshape(n_chunks, size, dim)
    return OverDraws(z, weights.reshape(n_chunks, size), n // 2 if paired else 0)


def _cut(n: int, one: int, memory: int) -> tuple[int, int]:
    """How many chunks, and the size of one."""
    size = math.ceil(n / min(n, math.ceil(n * one / memory)))
    return math.ceil(n / size), size


def nodes_error(
    target: Target,
    mean: Float[Array, " dim"],
    root: Float[Array, "dim dim"] | Float[Array, " dim"],
    coarse: Nodes,
    fine: Nodes,
) -> Float[Array, ""]:
    """The largest difference that finer nodes make to the expectation of one observation, which has
    one predictor."""
    model, extra = target.callable, target.extra
    eta, spread = model.predictors(mean, root, *extra)

    def expected(rule: Nodes) -> Array:
        def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
            z, weight = node
            return total + weight * model.likelihoods(eta + spread[:, :, 0] * z, *extra), None

        return lax.scan(add, jnp.zeros_like(eta[:, 0]), (rule.z, rule.weights))[0]

    return jnp.abs(expected(coarse) - expected(fine)).max(initial=0.0)


def log_densities(
    target: Target,
    mean: Float[Array, " dim"],
    root: Float[Array, "dim dim"] | Float[Array, " dim"],
    z: Float[Array, "draws dim"],
    memory: int,
) -> Float[Array, " draws"]:
    """`log p~(mean + root z_s)` for many `z_s`, in chunks."""
    apply = Root(root, jnp.zeros((), z.dtype)).apply
    return each(lambda one: target(mean + apply(one)), z, memory // bytes_of(target, mean))
