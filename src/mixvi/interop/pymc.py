"""PyMC and Bambi models as they are: the Gaussian approximation, and draws of what they name.

>>> import pymc as pm
>>> import mixvi.interop.pymc
>>> with pm.Model() as model:
...     sigma = pm.HalfNormal("sigma", 1.0)
...     y = pm.Normal("y", 0.0, sigma, observed=[0.5, -1.0, 0.2, 1.1, -0.4, 0.3])
>>> data = mixvi.interop.pymc.fit(model)
>>> data.attrs["trust"], data.posterior["sigma"].sizes["draw"]
('trust', 1000)
"""

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._errors import NonFiniteError
from .._fit._posterior import Posterior
from .._fit._public import fit as fit_density
from .._fit._summary import html_of, summary_of
from .._fit._weights import log_density_at
from .._judge._verdict import TRUST
from ._labelled import Labelled, WithPosterior, flat_columns, numbers_of
from ._pymc_graphs import Graphs, graphs_of
from ._pymc_model import Reading, model_of
from .arviz import to_arviz

__all__ = ["Approximation", "NotTrustedWarning", "approximate", "fit"]

# Draws behind the table of a summary.
N_SHOWN = 4000
# PyMC's start may be just where a density has no slope (a shape of zero), which its samplers leave
# by a random step; here all unbounded variables move by this.
NUDGE = 0.1


class NotTrustedWarning(UserWarning):
    """The verdict on an approximation is not "trust"; the sentence says why."""


def fit(
    model: Any = None,
    family: Any = "auto",
    n: int = 1000,
    key: Any = 0,
    *,
    init: Mapping[str, Any] | None = None,
    backend: str = "auto",
    log_likelihood: bool = True,
    resampled: bool | str = False,
    **options: Any,
) -> Any:
    """The posterior of a PyMC or Bambi model as ArviZ data, in the place of `pm.sample()`.

    **Arguments:**

    - `model`: a `pymc.Model`, or a `bambi.Model`, which is built where it is not yet; left out,
      that of the `with` block. Free variables must be continuous.
    - `family`, `key` and `options` are those of `mixvi.fit`; `n`: how many draws.
    - `init`: where to begin, by name and on the model's own scales, as `initvals` of `pm.sample`.
    - `backend`: who computes the log density: "jax", "pytensor" (the C or Numba code that PyMC
      compiles), or "auto", which is JAX unless the model has an operation that JAX does not know.
    - `log_likelihood`: whether the group of that name is made, for `arviz.loo`.
    - `resampled`: as in `mixvi.interop.arviz.to_arviz`.

    **Returns:** `InferenceData` (ArviZ 0.2x) or `DataTree` (ArviZ 1.x): draws of all variables and
    deterministics with their dims and coords, `sample_stats` with `log_p` and `log_q`, observed
    and constant data; the attributes hold `verdict`, `trust`, `status`, `khat` and the bound. A
    verdict other than "trust" is a `NotTrustedWarning` besides.
    """
    made = approximate(model, family, key, init=init, backend=backend, **options)
    if made.trust not in (TRUST, None):
        warnings.warn(made.verdict, NotTrustedWarning, stacklevel=2)
    made = dataclasses.replace(made, with_log_likelihood=log_likelihood)
    return to_arviz(made, n, key, resampled=resampled)


def approximate(
    model: Any = None,
    family: Any = "auto",
    key: Any = 0,
    *,
    init: Mapping[str, Any] | None = None,
    backend: str = "auto",
    **options: Any,
) -> "Approximation":
    """The Gaussian approximation of a PyMC or Bambi model; the arguments are those of `fit`."""
    reading = Reading(model_of(model))
    reading.refuse()
    at = reading.start(init)
    graphs = graphs_of(reading, at, backend)
    try:
        post = fit_density(graphs.log_density, at, family=family, key=key, **options)
    except NonFiniteError:
        if init is not None:  # a start given is a start used
            raise
        moved = {name: value + NUDGE for name, value in at.items()}
        post = fit_density(graphs.log_density, moved, family=family, key=key, **options)
    return Approximation(post, reading, graphs)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Approximation(WithPosterior):
    """A PyMC model and the Gaussian that approximates its posterior.

    `post` is the `mixvi.Posterior` over the unbounded variables in which PyMC samples: `log tau`
    where PyMC writes `tau_log__`. All else here speaks of the model's own variables.
    """

    post: Posterior
    reading: Reading
    graphs: Graphs
    with_log_likelihood: bool = True

    @property
    def model(self) -> Any:
        return self.reading.model

    @property
    def backend(self) -> str:
        return self.graphs.name

    def sample(self, key: Any, n: int) -> dict[str, np.ndarray]:
        """`n` draws of every variable and deterministic, a dict of arrays with a leading axis."""
        return self._drawn(self.post.sample(key, n))

    def _drawn(self, unbounded: Any) -> dict[str, np.ndarray]:
        return self.graphs.evaluated("draws", self.reading.shown, unbounded)

    def labelled(self, n: int = 1000, key: Any = 0) -> Labelled:
        """Draws with the names of their axes, log densities, log likelihoods and data."""
        post, reading = self.post, self.reading
        points = np.asarray(post.law.sample(key, n))
        unbounded = post.structure.unravel(points)
        log_likelihood: dict[str, np.ndarray] = {}
        if self.with_log_likelihood and reading.log_likelihood:
            graphs = reading.log_likelihood
            log_likelihood = self.graphs.evaluated("log likelihood", graphs, unbounded)
        return Labelled(
            draws=self._drawn(unbounded),
            log_q=np.asarray(post.law.log_prob(points), np.float64),
            log_p=log_density_at(post, points, self.graphs.log_density, None),
            dims=reading.dims,
            coords=reading.coords,
            log_likelihood=log_likelihood,
            observed_data=reading.observed_data,
            constant_data=reading.constant_data,
        )

    def to_arviz(self, n: int = 1000, key: Any = 0, **options: Any) -> Any:
        """As `mixvi.interop.arviz.to_arviz`."""
        return to_arviz(self, n, key, **options)

    @functools.cached_property
    def _table(self) -> tuple[list[str], np.ndarray]:
        draws = self.sample(0, N_SHOWN)
        labelled = Labelled(
            draws, np.zeros(N_SHOWN), dims=self.reading.dims, coords=self.reading.coords
        )
        names, columns = flat_columns(labelled)
        return names, numbers_of(columns)

    def summary(self, most: int = 12) -> str:
        """The verdict, the numbers behind it, and a table of the model's variables, by 4000
        draws."""
        return summary_of(self.post, most, self._table)

    def _repr_html_(self) -> str:
        return html_of(self.post, 12, self._table)

    def __repr__(self) -> str:
        names = ", ".join(self.reading.shown)
        return (
            f"Approximation(variables={names!r}, family={self.post.family!r}, "
            f"verdict={self.verdict!r})"
        )

    __str__ = summary
