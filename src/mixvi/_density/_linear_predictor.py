"""Log densities that see their parameters through a few linear predictors per observation.

    log p~(w) = sum_n log p(y_n | eta_n) + log N(w | 0, Lambda^-1),     eta = Phi w

Under a Gaussian `w ~ N(mu, B B^T)` every `eta_n` is Gaussian too, so the expectation of the first
term is a sum of integrals over one dimension (K of them, where each of K predictors has weights of
its own: `eta_nk = phi_n^T w_k`) and that of the second is closed:

    E log N(w | 0, Lambda^-1) = (log det Lambda - D log 2 pi - mu^T Lambda mu - tr B^T Lambda B) / 2
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from .._arrays._roots import is_diagonal, sds
from .._arrays._sparse import cholesky
from .._errors import InputError

Matrix = Float[Array, "dim dim"] | Float[Array, " dim"]


@jtu.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True, eq=False)
class LinearPredictor:
    """A log density with linear predictors and a Gaussian prior.

    Call it as any log density; `fit` sees what it is and integrates by quadrature instead of draws:
    no sampling noise and far less work. The shape of `init` says how many predictors an observation
    has: one for a vector (dim,), K for a matrix (K, dim), a row of weights for each.

    **Arguments:**

    - `design`: the matrix `Phi` of shape (n, dim), which may be one of SciPy's sparse ones, or a
      function that makes it.
    - `log_likelihood`: a function of `eta` (n,), or (n, K), that gives the log density of each
      observation, (n,): entry n may depend on `eta[n]` only.
    - `prior_precision`: of `w`: a number, a vector (dim,) (the diagonal, the same for all rows of
      weights), a matrix (dim, dim) for one predictor (SciPy's sparse ones, too), or an array (K,
      dim) for several; or a function that makes one.
    - `log_hyper_prior`: a function that gives a number to be added, the log prior density of the
      hyperparameters; nothing when left out.
    - `node_groups`: of K predictors: whole numbers (n,), or a function that makes them.
      Observations with the same one (modulo 32) share their quadrature nodes; 0, 1, 2, ... when
      left out. Give the same one to the same row, and the order of rows matters no more than
      rounding does.

    Functions get what the log density gets after `w`: the hyperparameters when there are any, then
    the data when there are any (`log_likelihood` gets them after `eta`).

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> x = jnp.array([[-1.0, 1.0], [0.5, 1.0], [2.0, 1.0], [0.0, 1.0]])
    >>> sign = jnp.array([-1.0, 1.0, 1.0, -1.0])
    >>> model = mixvi.LinearPredictor(x, lambda eta: jax.nn.log_sigmoid(sign * eta), 1.0)
    >>> post = mixvi.fit(model, jnp.zeros(2))
    >>> post.stats.draws_kind
    'quadrature'
    """

    design: Any
    log_likelihood: Callable
    prior_precision: Any
    log_hyper_prior: Callable | None = None
    node_groups: Any = None

    def __post_init__(self):
        given = self.prior_precision
        if hasattr(given, "tocsc"):
            _check_sparse_prior(given)
            return
        if callable(given):
            return
        try:
            values = np.asarray(given, dtype=np.float64)
        except jax.errors.TracerArrayConversionError:
            return  # made inside compiled code, where its numbers are not known
        sound = np.isfinite(values).all()
        positive = bool(sound and (values > 0).all())
        if sound and not positive and values.ndim == 2 and values.shape[0] == values.shape[1]:
            positive = np.allclose(values, values.T) and (np.linalg.eigvalsh(values) > 0).all()
        if not positive:
            raise InputError("LinearPredictor: prior_precision must be positive (definite).")

    # A pytree whose leaves are arrays and functions: arrays go into compiled code as arguments.

    def tree_flatten_with_keys(self) -> tuple[tuple, None]:
        names = [field.name for field in dataclasses.fields(self)]
        return tuple((jtu.GetAttrKey(name), getattr(self, name)) for name in names), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple) -> "LinearPredictor":
        made = object.__new__(cls)  # its leaves may be anything here
        for field, child in zip(dataclasses.fields(cls), children, strict=True):
            object.__setattr__(made, field.name, child)
        return made

    def __call__(self, w: Any, *extra: Any) -> Float[Array, ""]:
        return self.by_row(w, *extra).sum() + self.prior(w, *extra)

    def by_row(self, w: Any, *extra: Any) -> Float[Array, " n"]:
        """The log likelihood of every row."""
        if getattr(w, "ndim", 0) not in (1, 2) or (w.ndim == 2 and w.shape[0] < 2):
            raise InputError(
                "LinearPredictor: init must be one vector, or a matrix with a row of weights for "
                "each of two or more predictors, not "
                + (f"of shape {w.shape}." if hasattr(w, "shape") else "a container of several.")
            )
        if self.is_sparse and w.ndim != 1:
            raise InputError(
                "LinearPredictor: sparse arrays go with one predictor per observation."
            )
        if hasattr(self.design, "tocoo"):
            return self._likelihoods(self._sparse_predictor(w), extra)
        design = self._design(w.dtype, extra)
        if w.shape[-1] != design.shape[1]:
            raise InputError(
                f"LinearPredictor: the design has shape {design.shape} and the parameters "
                f"{w.shape}; they must be (n, dim) and (dim,) or (K, dim)."
            )
        return self._likelihoods(design @ w.T, extra)

    def prior(self, w: Any, *extra: Any) -> Float[Array, ""]:
        if hasattr(self.prior_precision, "tocoo"):
            return self._sparse_prior(w, extra)
        return self._prior(w.ravel(), None, 1 if w.ndim == 1 else w.shape[0], extra)

    @property
    def is_sparse(self) -> bool:
        """Whether an array of it is one of SciPy's sparse ones."""
        return any(hasattr(one, "tocsr") for one in (self.design, self.prior_precision))

    def _sparse_predictor(self, w: Any) -> Float[Array, " n"]:
        """`Phi w` at one point, by the nonzeros of the design."""
        coo = self.design.tocoo()
        return jnp.zeros(coo.shape[0], w.dtype).at[coo.row].add(coo.data * w[coo.col])

    def _sparse_prior(self, w: Any, extra: tuple) -> Float[Array, ""]:
        """`log N(w; 0, Lambda^-1)` at one point, by the nonzeros of Lambda."""
        coo, factor = self.prior_precision.tocoo(), cholesky(self.prior_precision.tocsc())
        form = ((coo.data * w[coo.row]) * w[coo.col]).sum()
        log_det = math.nan if factor is None else factor.log_det
        own = 0.5 * (log_det - form - w.size * math.log(2 * math.pi))
        return own if self.log_hyper_prior is None else own + self.log_hyper_prior(*extra)

    def expected_by_row(
        self,
        mean: Float[Array, " weights"],
        root: Matrix,
        z: Float[Array, "nodes sets k"],
        weights: Float[Array, " nodes"],
        *extra: Any,
    ) -> Float[Array, " n"]:
        """`E log p(y_n | eta_n)` under `N(mean, root root^T)`, `z` and `weights` rules for
        N(0, I_K): the observations take turns at its sets."""
        eta, spread = self.predictors(mean, root, *extra)
        several = z.shape[1] > 1
        group = self._node_groups(eta.shape[0], extra) % z.shape[1] if several else None

        def values(node: Float[Array, "sets k"]) -> Float[Array, " n"]:
            own = node[group] if several else node
            return self.likelihoods(eta + (spread @ own[:, :, None])[:, :, 0], *extra)

        return weights @ jax.vmap(values)(z)

    def expected_prior(
        self, mean: Float[Array, " weights"], root: Matrix, *extra: Any
    ) -> Float[Array, ""]:
        k = mean.size // self._design(mean.dtype, extra).shape[1]
        return self._prior(mean, root, k, extra)

    def expected(
        self,
        mean: Float[Array, " weights"],
        root: Matrix,
        z: Float[Array, "chunks chunk sets k"],
        weights: Float[Array, "chunks chunk"],
        *extra: Any,
    ) -> Float[Array, ""]:
        """`E log p~(w)`; one chunk's values live at a time, in the backward pass too."""

        def chunk(nodes: Array, its_weights: Array) -> Array:
            return self.expected_by_row(mean, root, nodes, its_weights, *extra).sum()

        prior = self.expected_prior(mean, root, *extra)
        if z.shape[0] == 1:
            return chunk(z[0], weights[0]) + prior

        def add(total: Array, batch: tuple[Array, Array]) -> tuple[Array, None]:
            return total + jax.checkpoint(chunk)(*batch), None

        return lax.scan(add, jnp.zeros((), mean.dtype), (z, weights))[0] + prior

    def predictors(
        self, mean: Float[Array, " weights"], root: Matrix, *extra: Any
    ) -> tuple[Float[Array, "n k"], Float[Array, "n k k"]]:
        """Mean and root of the covariance of every `eta_n`; `mean` and `root` of flat weights."""
        design = self._design(mean.dtype, extra)
        by_row = (-1, design.shape[1])
        eta = design @ mean.reshape(by_row).T
        k = eta.shape[1]
        if is_diagonal(root):
            variance = design**2 @ (root**2).reshape(by_row).T
            return eta, small_cholesky(variance[:, :, None] * jnp.eye(k, dtype=mean.dtype))

        def block(columns: Float[Array, "weights some"]) -> Float[Array, "n k k"]:
            rows = jnp.einsum("nd,kdc->nkc", design, columns.reshape(k, design.shape[1], -1))
            return jnp.einsum("nkc,nlc->nkl", rows, rows)

        if k == 1:
            return eta, small_cholesky(block(root))
        # As many columns of the root at a time as one predictor has weights.
        blocks = jnp.moveaxis(root.reshape(root.shape[0], k, -1), 1, 0)
        add = jax.checkpoint(lambda total, columns: total + block(columns))
        start = jnp.zeros((eta.shape[0], k, k), mean.dtype)
        covariance = lax.scan(lambda total, c: (add(total, c), None), start, blocks)[0]
        return eta, small_cholesky(covariance)

    def likelihoods(self, eta: Float[Array, "n k"], *extra: Any) -> Float[Array, " n"]:
        return self._likelihoods(eta[:, 0] if eta.shape[1] == 1 else eta, extra)

    def _design(self, dtype: Any, extra: tuple) -> Float[Array, "n dim"]:
        design = jnp.asarray(self.design(*extra) if callable(self.design) else self.design)
        if design.ndim != 2:
            raise InputError(
                f"LinearPredictor: the design has shape {design.shape}; it must be (n, dim)."
            )
        return design.astype(dtype)

    def _node_groups(self, n: int, extra: tuple) -> Int[Array, " n"]:
        given = self.node_groups(*extra) if callable(self.node_groups) else self.node_groups
        node_groups = jnp.arange(n) if given is None else jnp.asarray(given)
        if node_groups.shape != (n,) or not jnp.issubdtype(node_groups.dtype, jnp.integer):
            raise InputError(
                f"LinearPredictor: node_groups has shape {node_groups.shape} and dtype "
                f"{node_groups.dtype}; it must be whole numbers of shape ({n},)."
            )
        return node_groups

    def _likelihoods(self, eta: Array, extra: tuple) -> Float[Array, " n"]:
        return checked_rows(self.log_likelihood, eta, extra)

    def _prior(self, mean: Array, root: Array | None, k: int, extra: tuple) -> Float[Array, ""]:
        """`E log N(w | 0, Lambda^-1)`, at the point `mean` itself without a root; and the
        hyperparameters' own prior."""
        given = self.prior_precision
        precision = jnp.asarray(given(*extra) if callable(given) else given, mean.dtype)
        dim, columns = mean.size, mean.size // k
        whole = (dim, dim) if k == 1 else (k, columns)
        if precision.shape not in ((), (columns,), whole):
            raise InputError(
                f"LinearPredictor: prior_precision has shape {precision.shape}; it must be a "
                f"number, a vector of length {columns} or an array of shape {whole}."
            )
        if k == columns and k > 1 and precision.ndim == 2:
            raise InputError(
                f"LinearPredictor: with {k} predictors of {k} weights each, a prior_precision of "
                f"shape {whole} could be meant by rows or as a matrix: give a number or a vector."
            )
        if k > 1:
            precision = jnp.broadcast_to(precision, whole).ravel()
        if precision.ndim < 2:
            # sum_ij B_ij^2 lambda_i
            square = mean**2
            if root is not None:
                square = square + sds(root) ** 2
            form = (precision * square).sum()
            log_det = jnp.broadcast_to(jnp.log(precision), (dim,)).sum()
        else:
            form = mean @ precision @ mean
            if root is not None:
                whole = jnp.diag(root) if is_diagonal(root) else root
                form = form + (whole * (precision @ whole)).sum()
            log_det = 2 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(precision))).sum()
        value = 0.5 * (log_det - form - dim * math.log(2 * math.pi))
        return value if self.log_hyper_prior is None else value + self.log_hyper_prior(*extra)


def checked_rows(log_likelihood: Callable, eta: Array, extra: tuple) -> Float[Array, " n"]:
    values = jnp.asarray(log_likelihood(eta, *extra))
    if values.shape != eta.shape[:1]:
        raise InputError(
            f"LinearPredictor: log_likelihood returned shape {values.shape} for predictors of "
            f"shape {eta.shape}: it must give one number per observation, not their sum."
        )
    return values


def _check_sparse_prior(given: Any) -> None:
    matrix = given.tocsc()
    square = matrix.shape[0] == matrix.shape[1]
    if not (square and np.isfinite(matrix.data).all() and (matrix.diagonal() > 0).all()):
        raise InputError("LinearPredictor: prior_precision must be positive (definite).")
    refuse_not_symmetric(matrix)


def refuse_not_symmetric(matrix: Any) -> None:
    """Of a square sparse matrix the lower half alone would be seen."""
    off = (matrix - matrix.T).tocoo()
    largest = np.abs(matrix.data).max(initial=0.0)
    if off.nnz and (worst := int(np.argmax(np.abs(off.data)))) >= 0:
        if abs(off.data[worst]) <= 1e-8 * largest:
            return
        i, j = sorted((int(off.row[worst]), int(off.col[worst])))
        raise InputError(
            f"LinearPredictor: prior_precision is not symmetric: [{i}, {j}] is {matrix[i, j]:.6g} "
            f"and [{j}, {i}] is {matrix[j, i]:.6g}; give both halves."
        )


def small_cholesky(covariance: Float[Array, "n k k"]) -> Float[Array, "n k k"]:
    """Lower roots of many small matrices at once, column by column. A direction without variance
    gets a column of zeros, where the root has no derivative."""
    k, left = covariance.shape[-1], covariance
    rounding = 8 * jnp.finfo(covariance.dtype).eps
    columns = []
    for i in range(k):
        pivot = left[:, i, i]
        sound = pivot > rounding * covariance[:, i, i]
        scale = jnp.where(sound, jax.lax.rsqrt(jnp.where(sound, pivot, 1.0)), 0.0)
        below = jnp.where(jnp.arange(k) < i, 0.0, left[:, :, i])
        column = below * scale[:, None]
        left = left - column[:, :, None] * column[:, None, :]
        columns.append(column)
    return jnp.stack(columns, axis=-1)
