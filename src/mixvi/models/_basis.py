"""Basis functions: how a table becomes a design matrix, with hyperparameters that may be learnt.

The last column is always the constant 1. Columns may be padded (a mask of zeros), so that bases of
different size share one shape and with it compiled code: a padded weight meets a column of zeros
and a N(0, 1) prior, which changes neither the evidence nor any other weight.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._errors import InputError
from ._likelihoods import Hyper, normal_logpdf

Rows = dict[str, Any]
Shared = dict[str, Any]
Table = Float[np.ndarray, "n features"]


class Basis(eqx.Module):
    """What a basis must say. `fit_shared` and `rows` run on the host, once; `design` is traced."""

    name: ClassVar[str]

    def start(self, shared: Shared) -> Hyper:
        """Where the search for its own hyperparameters begins."""
        del shared
        return {}

    def log_prior(self, hyper: Hyper, shared: Shared) -> Any:
        """A weak prior on them (inputs are on the scale of one)."""
        del hyper, shared
        return 0.0

    @abc.abstractmethod
    def fit_shared(self, x: Table, seed: int) -> Shared:
        """What is learnt from training inputs and kept; its `mask` marks true columns."""

    def traced(self, shared: Shared) -> Shared:
        """What of it `design` needs: compiled code then does not depend on the rest's shape."""
        return shared

    @abc.abstractmethod
    def rows(self, x: Table, shared: Shared) -> Rows:
        """What the design of these rows is made of: arrays with the rows on the first axis."""

    @abc.abstractmethod
    def columns(self, rows: Rows, shared: Shared, hyper: Hyper) -> Float[Array, "n columns"]:
        """The basis functions at these rows."""

    def design(self, rows: Rows, shared: Shared, hyper: Hyper) -> Float[Array, "n weights"]:
        columns = self.columns(rows, shared, hyper) * shared["mask"]
        return jnp.concatenate([columns, jnp.ones((columns.shape[0], 1), columns.dtype)], axis=1)


class Linear(Basis):
    """The features themselves."""

    name = "linear"

    def fit_shared(self, x, seed):
        del seed
        return {"mask": np.ones(x.shape[1])}

    def rows(self, x, shared):
        del shared
        return {"x": np.asarray(x, dtype=np.float64)}

    def columns(self, rows, shared, hyper):
        del shared, hyper
        return rows["x"]


class Features(Basis):
    """Columns made by a user's function of the table."""

    function: Callable = eqx.field(static=True)

    name = "callable"

    def fit_shared(self, x, seed):
        del seed
        return {"mask": np.ones(self._made(x).shape[1])}

    def rows(self, x, shared):
        made = self._made(x)
        if made.shape[1] != len(shared["mask"]):
            raise InputError(
                f"basis: the function made {len(shared['mask'])} columns in training and "
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


class RBF(Basis):
    """`exp(-|x - c_m|^2 / 2 r^2)`, centres `c_m` by K-means; `log_width` is `log r`.

    `per_feature=True` learns one width for each feature. `padded_to` pads the columns.
    """

    n_centres: int = eqx.field(static=True, default=30)
    per_feature: bool = eqx.field(static=True, default=False)
    padded_to: int = eqx.field(static=True, default=0)

    name = "rbf"

    def start(self, shared):
        width = np.float64(shared["usual_log_width"])
        n_features = shared["centres"].shape[1]
        return {"log_width": np.full(n_features, width) if self.per_feature else width}

    def log_prior(self, hyper, shared):
        return jnp.sum(normal_logpdf(hyper["log_width"], shared["usual_log_width"], 1.0))

    def fit_shared(self, x, seed):
        centres = kmeans(x, self.n_centres, seed)
        size = max(self.padded_to, len(centres))
        mask = (np.arange(size) < len(centres)).astype(np.float64)
        shared = {"mask": mask, "centres": np.resize(centres, (size, x.shape[1]))}
        # Standardised points are about sqrt(2 Q) apart.
        return shared | {"usual_log_width": np.float64(0.5 * math.log(x.shape[1]))}

    def traced(self, shared):
        kept = ("mask", "usual_log_width", *(("centres",) if self.per_feature else ()))
        return {name: shared[name] for name in kept}

    def rows(self, x, shared):
        if self.per_feature:
            return {"x": np.asarray(x, dtype=np.float64)}
        # With one width the distances are all that is needed, once.
        return {"square": _square_distances(x, shared["centres"])}

    def columns(self, rows, shared, hyper):
        if not self.per_feature:
            return jnp.exp(-0.5 * rows["square"] * jnp.exp(-2 * hyper["log_width"]))
        scale = jnp.exp(-hyper["log_width"])
        x, c = rows["x"] * scale, shared["centres"] * scale
        square = (x**2).sum(1)[:, None] + (c**2).sum(1) - 2 * x @ c.T
        return jnp.exp(-0.5 * jnp.maximum(square, 0.0))


def _square_distances(
    x: Table, centres: Float[np.ndarray, "centres features"]
) -> Float[np.ndarray, "n centres"]:
    square = np.zeros((len(x), len(centres)))
    for feature in range(x.shape[1]):  # without an array of rows x centres x features
        square += (x[:, feature, None] - centres[:, feature]) ** 2
    return square


def kmeans(x: Table, n_centres: int, seed: int) -> Float[np.ndarray, "centres features"]:
    """At most `n_centres` centres; the distinct rows themselves where there are no more."""
    try:
        from sklearn.cluster import KMeans
    except ImportError as err:
        raise ImportError("RBF centres need scikit-learn: pip install 'mixvi[sklearn]'") from err
    distinct = np.unique(x, axis=0)
    if len(distinct) <= n_centres:
        return distinct
    found = KMeans(n_centres, n_init=3, random_state=seed).fit(x)  # type: ignore[arg-type]
    return found.cluster_centers_
