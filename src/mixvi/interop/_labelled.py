"""What an adaptor hands on to ArviZ and pandas: draws under the names that people gave."""

import dataclasses
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from .._fit._posterior import Posterior
from .._fit._summary import SHOWN


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Draws of everything that has a name in a model; every array begins with the axis of draws.

    `dims` names the other axes of a variable, `coords` gives labels along them. `log_p` and `log_q`
    are the log densities of the posterior, unnormalised, and of the Gaussian at the draws, both
    over the unbounded parameters; `log_p` is None where the model is not at hand.
    """

    draws: dict[str, np.ndarray]
    log_q: Float[np.ndarray, " n"]
    log_p: Float[np.ndarray, " n"] | None = None
    dims: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    coords: dict[str, Any] = dataclasses.field(default_factory=dict)
    log_likelihood: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    observed_data: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    constant_data: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


class WithPosterior:
    """What is known of `post`, passed through."""

    post: Posterior

    @property
    def verdict(self) -> str:
        return self.post.verdict

    @property
    def trust(self) -> str | None:
        return self.post.trust

    @property
    def reasons(self) -> tuple:
        return self.post.reasons

    @property
    def converged(self) -> bool:
        return self.post.converged

    @property
    def status(self) -> str:
        return self.post.status

    @property
    def elbo(self) -> Any:
        return self.post.elbo

    @property
    def khat(self) -> float | None:
        return self.post.khat

    @property
    def log_evidence(self) -> float:
        return self.post.log_evidence


class OfModel(Protocol):
    """What an adaptor's `fit` makes: the Gaussian over a model's unbounded parameters, and draws of
    the model's own variables."""

    @property
    def post(self) -> Posterior: ...

    def labelled(self, n: int, key: Any = 0) -> Labelled: ...


def flat_columns(labelled: Labelled) -> tuple[list[str], Float[np.ndarray, "n columns"]]:
    """Every number of every variable as a column, named by its labels: `theta[Choate]`."""
    names, columns = [], []
    for name, array in labelled.draws.items():
        dims = labelled.dims.get(name) or (None,) * (array.ndim - 1)
        each = [
            list(labelled.coords.get(dim or "", range(size)))
            for dim, size in zip(dims, array.shape[1:], strict=True)
        ]
        for place in np.ndindex(*array.shape[1:]):
            labels = ",".join(str(one[i]) for one, i in zip(each, place, strict=True))
            names.append(f"{name}[{labels}]" if labels else name)
        columns.append(array.reshape(len(array), -1))
    return names, np.concatenate(columns, 1).astype(np.float64)


def numbers_of(columns: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, "columns numbers"]:
    """Mean, standard deviation and quantiles, as `summary` shows them."""
    quantiles = np.quantile(columns, SHOWN, axis=0).T
    return np.column_stack([columns.mean(0), columns.std(0), quantiles])
