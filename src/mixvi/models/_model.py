"""A basis and a likelihood make a log density with hyperparameters, and predictions from it.

w ~ N(0, Lambda^-1),     eta_n = w^T phi(x_n; r) + offset_n,     y_n ~ p(y | eta_n)
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Int

from .._density._pieces import Pieces
from .._errors import InputError
from ._basis import Basis, Rows, Shared
from ._density import ModelDensity
from ._likelihoods import Hyper, Likelihood
from ._one import OnePredictor
from ._pieces import in_pieces
from ._several import SeveralPredictors


@dataclasses.dataclass(frozen=True)
class Model:
    """`weak_prior` adds weak priors on the log hyperparameters; without it they are flat.
    `constant_precision`: of the constant's prior; None for that of the other weights, `alpha`.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi import models
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> density = models.Model(models.RBF(8), models.StudentT()).density(x, np.sin(2 * x[:, 0]))
    >>> post = mixvi.fit(density, density.init, hyper=density.hyper)
    >>> sorted(post.hyper)
    ['log_alpha', 'log_sigma', 'log_width']
    """

    basis: Basis
    likelihood: Likelihood
    weak_prior: bool = True
    constant_precision: float | None = None

    def density(
        self,
        x: Any,
        y: Any,
        *,
        weight: Any = None,
        offset: Any = None,
        prior_precision: Any = None,
        hyper: Hyper | None = None,
        shared: Shared | None = None,
        seed: int = 0,
    ) -> Any:
        """The log density of the weights and hyperparameters, in closed form.

        **Arguments:** a table `x` (n, features) on the scale of one and targets `y` (n,); `weight`
        of every row; `offset` of every linear predictor; `prior_precision`, `Lambda_0` of the
        weights, the constant's last (a number, a vector, a dense or a SciPy sparse matrix; the
        identity when left out); `hyper`, where to take it, and where a search starts; `shared`,
        what the basis has learnt before; `seed` of K-means.

        Of data in pieces (`mixvi.Pieces`) `y`, `weight` and `offset` are names among those of the
        data; all others make the table, and `density.columns` says in which order.

        **Returns:** a `Density` for `mixvi.fit(density, density.init, hyper=density.hyper)`.
        """
        if isinstance(x, Pieces):
            names = {"y": y, "weight": weight, "offset": offset}
            return in_pieces(self, x, names, prior_precision, hyper, shared, seed)
        x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if x.ndim != 2 or y.shape != x.shape[:1] or not len(y):
            raise InputError(
                f"a model needs a table (n, features) and targets (n,), got {x.shape} and "
                f"{y.shape}."
            )
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise InputError("a model needs finite numbers: table or targets hold NaN or infinity.")
        self.likelihood.check(y)
        weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
        if weight.shape != y.shape or not ((weight >= 0) & np.isfinite(weight)).all():
            raise InputError(f"weight must be {len(y)} finite numbers that are not negative.")
        shared = self.basis.fit_shared(x, seed, weight) if shared is None else shared
        at, rows = self.taken_at(hyper, shared), self.basis.rows(x, shared)
        return self.density_of(rows, shared, y, weight, at, offset, prior_precision)

    def taken_at(self, hyper: Hyper | None, shared: Shared) -> Hyper:
        """All hyperparameters: those given, and the start of the others."""
        start = self.hyper(shared)
        if unknown := sorted(set(hyper or {}) - set(start)):
            raise InputError(
                f"hyper holds {', '.join(unknown)}, which this model does not have: it has "
                f"{', '.join(sorted(start))}."
            )
        return start | (hyper or {})

    def density_of(
        self,
        rows: Rows,
        shared: Shared,
        y: np.ndarray,
        weight: np.ndarray,
        hyper: Hyper,
        offset: Any = None,
        prior_precision: Any = None,
    ) -> ModelDensity:
        """The same of rows as the basis makes them."""
        several = self.likelihood.n_outputs > 1
        if several and self.likelihood.start():
            raise InputError(
                f"{self.likelihood.name}: a likelihood of several predictors cannot have "
                "hyperparameters of its own."
            )
        offset = checked_offset(offset, len(y), self.likelihood.n_outputs)
        kind = SeveralPredictors if several else OnePredictor
        made = kind(
            self.basis,
            self.likelihood,
            shared,
            rows,
            y,
            weight,
            hyper,
            offset,
            prior_precision,
            self.weak_prior,
            self._own_constant(prior_precision),
        )
        if several:
            made.groups = ranks(rows, weight)
        return made

    def _own_constant(self, prior_precision: Any) -> float | None:
        """A precision that is given, and the kernel of a process, have their own for it."""
        given = prior_precision is not None or self.basis.has_amplitude
        return None if given else self.constant_precision

    def hyper(self, shared: Shared) -> Hyper:
        """A start for all hyperparameters."""
        return {
            **({} if self.basis.has_amplitude else {"log_alpha": np.float64(0.0)}),
            **self.basis.start(shared),
            **{name: np.float64(value) for name, value in self.likelihood.start().items()},
        }


def checked_offset(offset: Any, n: int, outputs: int) -> np.ndarray | None:
    """A number for every linear predictor: (n,), or (n, outputs) of several."""
    if offset is None:
        return None
    offset, shape = np.asarray(offset, dtype=np.float64), (n, outputs) if outputs > 1 else (n,)
    if offset.shape != shape:
        raise InputError(f"offset has shape {offset.shape}; it must be {shape}.")
    if not np.isfinite(offset).all():
        raise InputError("offset must be finite: it holds NaN or infinity.")
    return offset


def ranks(rows: Rows, weight: np.ndarray) -> Int[np.ndarray, " n"]:
    """Of every row among the distinct ones that weigh anything: neither the order of rows nor
    whether a row is repeated or weighs more makes a difference."""
    table = np.concatenate([part.reshape(len(weight), -1) for part in rows.values()], axis=1)
    weighs = weight > 0
    own = np.zeros(len(weight), dtype=np.int32)
    _, inverse = np.unique(table[weighs], axis=0, return_inverse=True)
    own[weighs] = inverse.ravel()  # one NumPy version gives it another shape
    return own
