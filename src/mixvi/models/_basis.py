"""Basis functions: how a table becomes a design matrix, with hyperparameters that may be learnt.

    Phi(theta) = [columns(theta), constant]

A basis says how a function of its columns changes with its hyperparameters, given the derivatives
in the columns (`pull_back`), and how products with the columns do (`tangents`). Those of the house
do so in closed form; one written with `jax.numpy` gets the first from JAX.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from .._arrays._namespace import namespace
from .._errors import InputError
from . import _by_jax
from ._derived import renew
from ._likelihoods import Hyper, normal_logpdf

Rows = dict[str, Any]
Shared = dict[str, Any]
Table = Float[np.ndarray, "n features"]
# The step of central differences, in hyperparameters, whose scale is one.
STEP = 1e-5
# K-means looks at so many rows for each centre, and at no fewer than this.
ROWS_PER_CENTRE, LEAST_ROWS = 50, 5000
# Numbers times centres from which on its threads pay.
MANY = 10**7


# What follows from what: a subclass that changes the first has the others from `Basis` again.
DERIVED = {"columns": ("pull_back", "tangents"), "log_prior": ("log_prior_slopes",)}


class Basis(abc.ABC):
    """What a basis must say. `columns` is a function of arrays (NumPy's or JAX's).

    >>> import numpy as np
    >>> from mixvi import models
    >>> x = np.linspace(-1, 1, 5)[:, None]
    >>> basis = models.Linear()
    >>> shared = basis.fit_shared(x, seed=0)
    >>> basis.design(basis.rows(x, shared), shared, {})[:2]  # the constant is the last column
    array([[-1. ,  1. ],
           [-0.5,  1. ]])
    """

    name: ClassVar[str]
    # The last column of the design.
    constant: ClassVar[float] = 1.0
    # Whether it has an amplitude of its own: the weights' prior precision is then one.
    has_amplitude: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        renew(cls, DERIVED)

    def start(self, shared: Shared) -> Hyper:
        """Where the search for its own hyperparameters begins."""
        del shared
        return {}

    def log_prior(self, hyper: Hyper, shared: Shared) -> Any:
        """A weak prior on them (inputs are on the scale of one)."""
        del hyper, shared
        return 0.0

    def log_prior_slopes(self, hyper: Hyper, shared: Shared) -> Hyper:
        """Of `log_prior` in each of them."""
        own = {name: hyper[name] for name in self.start(shared)}
        if not own or type(self).log_prior is Basis.log_prior:
            return {name: 0.0 * np.asarray(value) for name, value in own.items()}
        return _by_jax.evaluated(jax.grad(lambda h: self.log_prior(h, shared) + 0.0), own)

    @abc.abstractmethod
    def fit_shared(self, x: Table, seed: int, weight: np.ndarray | None = None) -> Shared:
        """What is learnt from training inputs and kept."""

    @abc.abstractmethod
    def rows(self, x: Table, shared: Shared) -> Rows:
        """What the columns of these rows are made of: arrays with the rows on the first axis."""

    @abc.abstractmethod
    def columns(self, rows: Rows, shared: Shared, hyper: Hyper) -> Float[Any, "n columns"]:
        """The basis functions at these rows."""

    def pull_back(
        self, rows: Rows, shared: Shared, hyper: Hyper, columns: Any, slopes: Any
    ) -> Hyper:
        """`sum_nm slopes_nm d columns_nm / d theta` for each hyperparameter of its own."""
        del columns
        own = {name: hyper[name] for name in self.start(shared)}
        if not own:
            return {}

        def made(own: Hyper, slopes: Any) -> Any:
            return (self.columns(rows, shared, hyper | own) * slopes).sum()

        return _by_jax.evaluated(jax.grad(made), own, slopes)

    def tangents(
        self, rows: Rows, shared: Shared, hyper: Hyper, columns: Any, w: Any, r: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """`d (columns w) / d theta` (n, outputs, hyper) and `d (columns^T r) / d theta` (m,
        outputs, hyper) for `w` (m, outputs) and `r` (n, outputs), in the order of the
        hyperparameters' names; by central differences."""
        along, across = [], []
        for name in sorted(self.start(shared)):
            for index in np.ndindex(np.shape(hyper[name])):
                ahead, behind = (
                    self._shifted(rows, shared, hyper, name, index, s) for s in (1, -1)
                )
                change = (ahead - behind) / (2 * STEP)
                along.append(change @ w)
                across.append(change.T @ r)
        if not along:
            return np.zeros((len(r), w.shape[1], 0)), np.zeros((*w.shape, 0))
        return np.stack(along, -1), np.stack(across, -1)

    @_by_jax.in_double
    def _shifted(
        self, rows: Rows, shared: Shared, hyper: Hyper, name: str, index: tuple, sign: int
    ) -> np.ndarray:
        moved = np.array(hyper[name], dtype=np.float64)
        moved[index] += sign * STEP
        return np.asarray(self.columns(rows, shared, hyper | {name: moved}))

    def leftover(self, rows: Rows, shared: Shared, hyper: Hyper, columns: Any) -> Any:
        """Variance of the predictor at these rows that no weight explains; None for none."""
        del rows, shared, hyper, columns

    def leftover_covariance(
        self, rows: Rows, shared: Shared, hyper: Hyper, columns: Any
    ) -> Float[np.ndarray, "n n"]:
        """The same between all pairs of these rows."""
        return np.diag(np.asarray(self.leftover(rows, shared, hyper, columns)))

    @_by_jax.in_double
    def design(self, rows: Rows, shared: Shared, hyper: Hyper) -> Float[Any, "n weights"]:
        columns = self.columns(rows, shared, hyper)
        xp = namespace(columns)
        ones = xp.full((columns.shape[0], 1), self.constant)
        return xp.concatenate([columns, ones], axis=1)

    def n_columns(self, shared: Shared) -> int:
        return int(shared["n_columns"])


class Linear(Basis):
    """The features themselves.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> density = models.Model(models.Linear(), models.Gaussian()).density(x, 1 + 2 * x[:, 0])
    >>> post = mixvi.laplace(density, density.init)
    >>> post.mean.round(1)
    array([2., 1.])
    """

    name = "linear"

    def fit_shared(self, x, seed, weight=None):
        del seed, weight
        return {"n_columns": x.shape[1]}

    def rows(self, x, shared):
        del shared
        return {"x": np.asarray(x, dtype=np.float64)}

    def columns(self, rows, shared, hyper):
        del shared, hyper
        return rows["x"]


@dataclasses.dataclass(frozen=True)
class Features(Basis):
    """Columns made by a user's function of the table.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> basis = models.Features(lambda x: np.c_[x, x**2])
    >>> density = models.Model(basis, models.Gaussian()).density(x, x[:, 0] ** 2)
    >>> mixvi.laplace(density, density.init).mean.shape  # x, x^2 and the constant
    (3,)
    """

    function: Callable

    name = "callable"

    def fit_shared(self, x, seed, weight=None):
        del seed, weight
        return {"n_columns": self._made(x).shape[1]}

    def rows(self, x, shared):
        made = self._made(x)
        if made.shape[1] != shared["n_columns"]:
            raise InputError(
                f"basis: the function made {shared['n_columns']} columns in training and "
                f"{made.shape[1]} now."
            )
        return {"x": made}

    def _made(self, x) -> np.ndarray:
        made = np.asarray(self.function(x), dtype=np.float64)
        if made.ndim != 2 or len(made) != len(x):
            raise InputError(
                f"basis: the function made shape {made.shape} of {len(x)} rows; it must be "
                "(rows, columns)."
            )
        if not np.isfinite(made).all():
            raise InputError("basis: the function made numbers that are not finite.")
        return made

    def columns(self, rows, shared, hyper):
        del shared, hyper
        return rows["x"]


@dataclasses.dataclass(frozen=True)
class RBF(Basis):
    """`exp(-|x - c_m|^2 / 2 r^2)`, centres `c_m` by K-means; `log_width` is `log r`.

    `per_feature=True` learns one width for each feature.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> density = models.Model(models.RBF(8), models.Gaussian()).density(x, np.sin(2 * x[:, 0]))
    >>> density.dim, sorted(density.hyper)
    (9, ['log_alpha', 'log_sigma', 'log_width'])
    """

    n_centres: int = 30
    per_feature: bool = False

    name = "rbf"

    def start(self, shared):
        width = np.float64(shared["usual_log_width"])
        n_features = shared["centres"].shape[1]
        return {"log_width": np.full(n_features, width) if self.per_feature else width}

    def log_prior(self, hyper, shared):
        return width_prior(hyper["log_width"], shared["usual_log_width"])[0]

    def log_prior_slopes(self, hyper, shared):
        return {"log_width": width_prior(hyper["log_width"], shared["usual_log_width"])[1]}

    def fit_shared(self, x, seed, weight=None):
        centres = kmeans(x, self.n_centres, seed, weight)
        return {
            "n_columns": len(centres),
            "centres": centres,
            "usual_log_width": usual_log_width(x.shape[1]),
        }

    def rows(self, x, shared):
        if self.per_feature:
            return {"x": np.asarray(x, dtype=np.float64)}
        # With one width the distances are all that is needed, once.
        return {"square": square_distances(x, shared["centres"])}

    def columns(self, rows, shared, hyper):
        if not self.per_feature:
            xp = namespace(rows["square"], hyper["log_width"])
            return xp.exp(rows["square"] * (-0.5 * xp.exp(-2 * hyper["log_width"])))
        scale = namespace(hyper["log_width"]).exp(-hyper["log_width"])
        square = scaled_distances(rows["x"] * scale, shared["centres"] * scale)
        return namespace(square).exp(-0.5 * square)

    def pull_back(self, rows, shared, hyper, columns, slopes):
        by_columns = slopes * columns
        xp = namespace(by_columns)
        inverse = xp.exp(-2 * hyper["log_width"])
        if not self.per_feature:
            return {"log_width": inverse * (by_columns * rows["square"]).sum()}
        return {"log_width": inverse * spread_of(by_columns, rows["x"], shared["centres"])}

    def tangents(self, rows, shared, hyper, columns, w, r):
        inverse = np.exp(-2 * hyper["log_width"])
        if not self.per_feature:
            change = columns * rows["square"] * inverse
            return (change @ w)[..., None], (change.T @ r)[..., None]
        # |x_q - c_q|^2 = x_q^2 - 2 x_q c_q + c_q^2: products of matrices, no array (n, m, q).
        x, c = rows["x"], shared["centres"]
        along, across = [], []
        for one, other in zip(w.T, r.T, strict=True):
            weighted = columns * one
            along.append(x**2 * weighted.sum(1)[:, None] - 2 * x * (weighted @ c) + weighted @ c**2)
            weighted = columns.T @ np.concatenate([other[:, None] * p for p in (x**2, x)], axis=1)
            whole = (columns.T @ other)[:, None]
            squares, products = np.split(weighted, 2, axis=1)
            across.append(squares - 2 * c * products + whole * c**2)
        return np.stack(along, 1) * inverse, np.stack(across, 1) * inverse


def usual_log_width(n_features: int) -> np.float64:
    """Standardised points are about `sqrt(2 features)` apart."""
    return np.float64(0.5 * math.log(n_features))


def width_prior(log_width: Any, usual: Any) -> tuple[Any, Any]:
    """`log_width ~ N(usual, 1)`, each: the log density and its slope."""
    value = normal_logpdf(log_width, usual, 1.0)
    return namespace(value).sum(value), usual - log_width


def spread_of(slopes: Any, x: Any, c: Any) -> Any:
    """`sum_nm slopes_nm (x_nq - c_mq)^2` for every feature q."""
    by_row, by_column = slopes.sum(1), slopes.sum(0)
    return by_row @ x**2 + by_column @ c**2 - 2 * (x * (slopes @ c)).sum(0)


def scaled_distances(x: Any, c: Any) -> Any:
    """Squared distances of rows; features may be scaled."""
    square = (x**2).sum(1)[:, None] + (c**2).sum(1) - 2 * x @ c.T
    return namespace(square).maximum(square, 0.0)


def square_distances(
    x: Table, centres: Float[np.ndarray, "centres features"]
) -> Float[np.ndarray, "n centres"]:
    """Without the cancellation that a product of matrices has for near points."""
    square = np.zeros((len(x), len(centres)))
    for feature in range(x.shape[1]):  # without an array of rows x centres x features
        square += (x[:, feature, None] - centres[:, feature]) ** 2
    return square


def kmeans(
    x: Table, n_centres: int, seed: int, weight: np.ndarray | None = None
) -> Float[np.ndarray, "centres features"]:
    """At most `n_centres` centres; the distinct rows themselves where there are no more. A row that
    is repeated is one that weighs more. Of very many rows some are taken."""
    try:
        from sklearn.cluster import KMeans
    except ImportError as err:
        raise ImportError("RBF centres need scikit-learn: pip install 'mixvi[sklearn]'") from err
    weight = np.ones(len(x)) if weight is None else weight
    if len(x) > (most := max(LEAST_ROWS, ROWS_PER_CENTRE * n_centres)):
        taken = np.sort(np.random.default_rng([seed, len(x)]).choice(len(x), most, replace=False))
        x, weight = x[taken], weight[taken]
    distinct, which = np.unique(x, axis=0, return_inverse=True)
    if len(distinct) <= n_centres:
        return distinct
    total = np.bincount(which.ravel(), weight, len(distinct))
    once: Any = 1  # of another type in scikit-learn's own hints
    found = KMeans(n_centres, n_init=once, max_iter=30, random_state=seed)
    # Its threads wait for each other by spinning: on a busy machine a hundred times as long.
    with _openmp().limit(limits=1 if distinct.size * n_centres < MANY else None):
        return found.fit(distinct, sample_weight=total).cluster_centers_


@functools.cache
def _openmp() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="openmp")
