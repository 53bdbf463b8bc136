"""Room 5. The bound over fixed draws, in bounded memory, with exact derivatives.

    ELBO_S(m, phi) = mean_s log p~(w* + R m + R A z_s) + log|det R| + log|det A| + (D/2) log 2 pi e

Parameters travel as one flat vector `(m, phi)`. `loss = -ELBO_S` is what minimisers see.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ._families import Family
from ._laplace import Root
from ._memory import bytes_of
from ._target import Target


class Bound(eqx.Module):
    """The fixed-draw bound of one family around one Laplace root."""

    target: Target
    anchor: Float[Array, " dim"]
    root: Root
    draws: Float[Array, "chunks chunk dim"]
    weights: Float[Array, "chunks chunk"]
    family: Family

    def points(self, params: Array, z: Float[Array, "chunk dim"]) -> Float[Array, "chunk dim"]:
        m, phi = params[: self.anchor.size], params[self.anchor.size :]
        whitened = jax.vmap(lambda one: m + self.family.apply(phi, one))(z)
        return self.anchor + jax.vmap(self.root.apply)(whitened)

    def constant(self, params: Array) -> Float[Array, ""]:
        """The entropy: everything but the mean log density."""
        dim = self.anchor.size
        phi = params[dim:]
        return (
            self.root.log_det
            + self.family.log_det(phi, dim)
            + 0.5 * dim * (1 + math.log(2 * math.pi))
        )

    def elbo(self, params: Float[Array, " free"]) -> Float[Array, ""]:
        def chunk(z: Array, weights: Array) -> Array:
            return weights @ jax.vmap(self.target)(self.points(params, z))

        return self._summed(chunk) + self.constant(params)

    def loss_and_grad(
        self, params: Float[Array, " free"]
    ) -> tuple[Float[Array, ""], Float[Array, " free"]]:
        """One pass. Differentiated chunk by chunk, so that one chunk's values live at a time."""

        def chunk(z: Array, weights: Array) -> tuple[Array, Array]:
            def loss(p: Array) -> Array:
                return -(weights @ jax.vmap(self.target)(self.points(p, z)))

            return jax.value_and_grad(loss)(params)

        rest = jax.value_and_grad(lambda p: -self.constant(p))(params)
        return jax.tree.map(jnp.add, self._summed(chunk), rest)

    def loss_product(
        self, params: Float[Array, " free"], v: Float[Array, " free"]
    ) -> Float[Array, " free"]:
        """The loss's Hessian times `v`, forward over reverse: nothing is kept between chunks."""
        return jax.jvp(lambda p: self.loss_and_grad(p)[1], (params,), (v,))[1]

    def root_gradient(
        self, params: Float[Array, " free"], a: Float[Array, "dim dim"]
    ) -> Float[Array, "dim dim"]:
        """The gradient with respect to a dense `A` at `a`: `mean_s h_s z_s^T + a^-T`, with
        `h_s = R^T grad log p~` the whitened gradient."""
        m = params[: self.anchor.size]

        def chunk(z: Array, weights: Array) -> Array:
            def mean_log_density(whitened: Array) -> Array:
                points = self.anchor + jax.vmap(self.root.apply)(whitened)
                return weights @ jax.vmap(self.target)(points)

            return jax.grad(mean_log_density)(m + z @ a.T).T @ z

        return self._summed(chunk) + jnp.linalg.inv(a).T

    def _summed(self, chunk: Callable):
        if self.draws.shape[0] == 1:
            return chunk(self.draws[0], self.weights[0])
        zero = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(chunk, self.draws[0], self.weights[0]),
        )

        def add(total, batch):
            return jax.tree.map(jnp.add, total, chunk(*batch)), None

        return lax.scan(add, zero, (self.draws, self.weights))[0]


def in_chunks(
    target: Target, z: Float[Array, "draws dim"], memory: int
) -> tuple[Float[Array, "chunks chunk dim"], Float[Array, "chunks chunk"]]:
    """The draws cut so that one chunk's pass fits `memory` bytes, and their weights 1/S.

    The last chunk is filled up with draws that weigh nothing.
    """
    n, dim = z.shape
    one_pass = bytes_of(jax.value_and_grad(target), z[0])
    n_chunks = min(n, math.ceil(n * one_pass / memory))
    size = math.ceil(n / n_chunks)
    n_chunks = math.ceil(n / size)
    filled = jnp.concatenate([z, z[: n_chunks * size - n]])
    weights = jnp.where(jnp.arange(n_chunks * size) < n, 1.0 / n, 0.0).astype(z.dtype)
    return filled.reshape(n_chunks, size, dim), weights.reshape(n_chunks, size)


def log_densities(
    target: Target,
    mean: Float[Array, " dim"],
    root: Float[Array, "dim dim"] | Float[Array, " dim"],
    z: Float[Array, "draws dim"],
    memory: int,
) -> Float[Array, " draws"]:
    """`log p~(mean + root z_s)` for many `z_s`, in chunks."""
    apply = Root(root, jnp.zeros((), z.dtype)).apply
    at_once = max(1, memory // bytes_of(target, mean))
    function = lambda one: target(mean + apply(one))  # noqa: E731
    if at_once >= z.shape[0]:
        return jax.vmap(function)(z)
    return lax.map(function, z, batch_size=int(at_once))
