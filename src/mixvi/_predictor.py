"""Room 1. Log densities that see their parameters through one linear predictor per observation.

    log p~(w) = sum_n log p(y_n | eta_n) + log N(w | 0, Lambda^-1),     eta = Phi w

Under a Gaussian `w ~ N(mu, B B^T)` every `eta_n` is Gaussian too, so the expectation of the first
term is a sum of one-dimensional integrals and that of the second is closed:

    E log N(w | 0, Lambda^-1) = (log det Lambda - D log 2 pi - mu^T Lambda mu - tr B^T Lambda B) / 2
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ._errors import InputError

Matrix = Float[Array, "dim dim"] | Float[Array, " dim"]


class LinearPredictor(eqx.Module):
    """A log density with one linear predictor per observation and a Gaussian prior.

    Call it as any log density; `fit` sees what it is and integrates by quadrature instead of draws:
    no sampling noise and far less work.

    **Arguments:**

    - `design`: the matrix `Phi` of shape (n, dim), or a function that makes it.
    - `log_likelihood`: a function of the vector `eta` (n,) that gives the log density of each
      observation, (n,): entry n may depend on `eta[n]` only.
    - `prior_precision`: of `w`: a number, a vector (the diagonal), a matrix, or a function that
      makes one.
    - `log_hyper_prior`: a function that gives a number to be added, the log prior density of the
      hyperparameters; nothing when left out.

    Functions get what the log density gets after `w`: the hyperparameters when there are any, then
    the data when there are any (`log_likelihood` gets them after `eta`).

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> x = jnp.array([[-1.0, 1.0], [0.5, 1.0], [2.0, 1.0], [0.0, 1.0]])
    >>> sign = jnp.array([-1.0, 1.0, 1.0, -1.0])
    >>> model = mixvi.LinearPredictor(x, lambda eta: jax.nn.log_sigmoid(sign * eta), 1.0)
    >>> post = mixvi.fit(model, jnp.zeros(2))
    >>> post.stats["draws_kind"]
    'quadrature'
    """

    design: Any
    log_likelihood: Callable
    prior_precision: Any
    log_hyper_prior: Callable | None = None

    def __check_init__(self):
        given = self.prior_precision
        if callable(given):
            return
        try:
            values = np.asarray(given, dtype=np.float64)
        except jax.errors.TracerArrayConversionError:
            return  # made inside compiled code, where its numbers are not known
        square = values.ndim == 2 and values.shape[0] == values.shape[1]
        if square and np.isfinite(values).all():
            values = np.linalg.eigvalsh(values)
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise InputError("LinearPredictor: prior_precision must be positive (definite).")

    def __call__(self, w: Any, *extra: Any) -> Float[Array, ""]:
        design = self._design(w, extra)
        return self._likelihoods(design @ w, extra).sum() + self._prior(w, None, extra)

    def expected(
        self,
        mean: Float[Array, " dim"],
        root: Matrix,
        z: Float[Array, "chunks chunk"],
        weights: Float[Array, "chunks chunk"],
        *extra: Any,
    ) -> Float[Array, ""]:
        """`E log p~(w)` under `N(mean, root root^T)`, `z` and `weights` a rule for N(0, 1)."""
        eta, sd = self.predictors(mean, root, *extra)

        def chunk(nodes: Array, its_weights: Array) -> Array:
            at = eta + sd * nodes[:, None]
            return (its_weights @ jax.vmap(lambda e: self._likelihoods(e, extra))(at)).sum()

        if z.shape[0] == 1:
            return chunk(z[0], weights[0]) + self._prior(mean, root, extra)

        # One chunk's values live at a time, in the backward pass too.
        def add(total: Array, batch: tuple[Array, Array]) -> tuple[Array, None]:
            return total + jax.checkpoint(chunk)(*batch), None

        likelihood, _ = lax.scan(add, jnp.zeros((), mean.dtype), (z, weights))
        return likelihood + self._prior(mean, root, extra)

    def predictors(
        self, mean: Float[Array, " dim"], root: Matrix, *extra: Any
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Mean and standard deviation of every `eta_n`."""
        design = self._design(mean, extra)
        spread = design * root if root.ndim == 1 else design @ root
        variance = (spread**2).sum(1)
        # The root has no derivative at zero, where a row of the design is zero.
        sd = jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1.0)), 0.0)
        return design @ mean, sd

    def likelihoods(self, eta: Float[Array, " n"], *extra: Any) -> Float[Array, " n"]:
        return self._likelihoods(eta, extra)

    def _design(self, w: Any, extra: tuple) -> Float[Array, "n dim"]:
        design = jnp.asarray(self.design(*extra) if callable(self.design) else self.design)
        if not hasattr(w, "ndim"):
            raise InputError(
                "LinearPredictor: init must be one vector, not a container of several."
            )
        if w.ndim != 1 or design.ndim != 2 or design.shape[1] != w.shape[0]:
            raise InputError(
                f"LinearPredictor: the design has shape {design.shape} and the parameters "
                f"{w.shape}; they must be (n, dim) and (dim,)."
            )
        return design.astype(w.dtype)

    def _likelihoods(self, eta: Array, extra: tuple) -> Float[Array, " n"]:
        values = jnp.asarray(self.log_likelihood(eta, *extra))
        if values.shape != eta.shape:
            raise InputError(
                f"LinearPredictor: log_likelihood returned shape {values.shape} for predictors of "
                f"shape {eta.shape}: it must give one number per observation, not their sum."
            )
        return values

    def _prior(self, mean: Array, root: Array | None, extra: tuple) -> Float[Array, ""]:
        """`E log N(w | 0, Lambda^-1)`, at the point `mean` itself without a root; and the
        hyperparameters' own prior."""
        given = self.prior_precision
        precision = jnp.asarray(given(*extra) if callable(given) else given, mean.dtype)
        dim = mean.size
        if precision.ndim > 2 or any(length != dim for length in precision.shape):
            raise InputError(
                f"LinearPredictor: prior_precision has shape {precision.shape}; it must be a "
                f"number, a vector of length {dim} or a {dim} x {dim} matrix."
            )
        if precision.ndim < 2:
            # sum_ij B_ij^2 lambda_i
            square = mean**2
            if root is not None:
                square = square + (root**2 if root.ndim == 1 else (root**2).sum(1))
            form = (precision * square).sum()
            log_det = jnp.broadcast_to(jnp.log(precision), (dim,)).sum()
        else:
            form = mean @ precision @ mean
            if root is not None:
                dense = jnp.diag(root) if root.ndim == 1 else root
                form = form + (dense * (precision @ dense)).sum()
            log_det = 2 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(precision))).sum()
        value = 0.5 * (log_det - form - dim * math.log(2 * math.pi))
        return value if self.log_hyper_prior is None else value + self.log_hyper_prior(*extra)
