"""The posterior of hyperparameters: what comes back of it."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, PyTree

from .._density._structure import Structure, listed
from .._errors import InputError
from .._law._curve import Marginal
from .._law._surface import Surface
from ._lines import SHOWN, table_of

# A point that holds so much stands for nearly everything.
NEARLY_ALL = 0.9
# Where care begins and trust ends, by errors of quantiles of densities that are known
# (`benchmarks/rough_designs.py`). Nats by which a design's points (or over a standard deviation its
# slopes) may differ from a normal: errors are up to 0.16 sd below the first, and beyond the second
# more than one.
ROUGH = 1.0, 2.0
# Nats by which the two halves of a grid may differ: the whole is wrong by about the square of that.
UNEVEN = 0.25, 1.0
# The mean square slope over a grid: errors are up to 0.03 sd below the first, and 0.3 to 3 beyond
# the second.
STEEP = 2.0, 3.0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HyperPosterior:
    """The posterior of the hyperparameters, explored from its mode: `post.hyper_posterior`.

    `points`: where the Gaussian of the parameters is part of the mixture, flat, in the order of
    `names`; `weights`: of its components; `log_evidence`: there, with the prior. `mode`: where
    the exploration began. `design`: "grid" (up to two hyperparameters, or three that are far from
    normal) or "ccd" (a central composite design). `n_evaluations`: of the evidence. `log_prior`:
    `hyper_prior` at the points, `log_mass`: the volume that each stands for.

    Signs that it is not to be relied on: `open_names`: hyperparameters along which the evidence
    does not fall, so that a prior is wanted; `ended_early`: a grid had as many points as it may
    before the evidence had fallen; `n_lost`: points where mass may be, without a mode;
    `largest_weight`: of one point; `largest_ratio`: nats by which a design's points, or over
    a standard deviation its slopes, differ from a normal; `halves_differ`: nats between the two
    halves of a grid; `steepness`: the mean square slope over a grid, one for a normal.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import mixvi
    >>> def log_density(w, log_tau, y):  # y ~ N(w, 1), w ~ N(0, tau^2)
    ...     return (-0.5 * (y - w) ** 2 - 0.5 * w**2 * jnp.exp(-2 * log_tau) - log_tau).sum()
    >>> y = np.array([2.0, -1.0, 3.0, 0.5, -2.5, 4.0])
    >>> post = mixvi.laplace(
    ...     log_density, np.zeros(6), y, hyper=0.0, hyper_posterior=True,
    ...     hyper_prior=lambda log_tau: -0.5 * log_tau**2,
    ... )
    >>> found = post.hyper_posterior
    >>> found.names, found.design, round(float(found.mean), 1), round(float(found.std), 1)
    (('theta',), 'grid', 0.7, 0.3)
    >>> low, high = found.quantiles([0.05, 0.95])
    >>> bool(low < found.mean < high)
    True
    """

    structure: Structure
    surface: Surface
    points: Float[np.ndarray, "n hyper"]
    weights: Float[np.ndarray, " n"]
    log_evidence: Float[np.ndarray, " n"]
    log_mass: Float[np.ndarray, " n"]
    log_prior: Float[np.ndarray, " n"]
    open_names: tuple[str, ...]
    n_lost: int
    n_evaluations: int
    largest_ratio: float
    halves_differ: float = 0.0
    steepness: float = 0.0
    ended_early: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.structure.names

    @property
    def design(self) -> str:
        return "grid" if self.surface.step else "ccd"

    @property
    def mode(self) -> PyTree:
        return self.structure.unravel(self.surface.centre.copy())

    @property
    def mean(self) -> PyTree:
        """Shaped like `hyper`."""
        return self.structure.unravel(np.array([one.mean for one in self._marginals]))

    @property
    def std(self) -> PyTree:
        """Shaped like `hyper`."""
        return self.structure.unravel(np.array([one.std for one in self._marginals]))

    def quantiles(self, probs: Any) -> PyTree:
        """Shaped like `hyper`, with a leading axis where `probs` are several."""
        found = np.stack([one.quantiles(probs) for one in self._marginals], axis=-1)
        return self.structure.unravel(found)

    @property
    def cov(self) -> Float[np.ndarray, "hyper hyper"]:
        return self.surface.cov

    @property
    def correlation(self) -> Float[np.ndarray, "hyper hyper"]:
        """In the order of `names`."""
        sds = np.sqrt(np.diag(self.cov))
        return self.cov / np.outer(sds, sds)

    def marginal(self, name: str) -> Marginal:
        """The distribution of one of them: density, quantiles, interval of highest density."""
        if name not in self.names:
            raise InputError(
                f"marginal: there is no hyperparameter {name!r}; names are "
                f"{listed(list(self.names), 3)}."
            )
        return self.surface.marginal(self.names.index(name))

    @property
    def _marginals(self) -> list[Marginal]:
        return [self.surface.marginal(j) for j in range(len(self.names))]

    # --- signs --------------------------------------------------------------------------------

    @property
    def largest_weight(self) -> float:
        return float(self.weights.max())

    @property
    def is_coarse(self) -> bool:
        """One of several points holds nearly everything."""
        return self.largest_weight > NEARLY_ALL

    @property
    def is_rough(self) -> bool:
        """A design of a density that is far from its normal."""
        return self.largest_ratio > ROUGH[0]

    @property
    def is_uneven(self) -> bool:
        """A grid whose two halves do not say the same."""
        return self.halves_differ > UNEVEN[0]

    @property
    def is_steep(self) -> bool:
        """A density too narrow for the steps of its grid."""
        return self.steepness > STEEP[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against it, in words; nothing where all is well."""
        said = []
        if self.open_names:
            said.append(
                "the evidence does not fall (or has no modes where it should) along "
                f"{listed(list(self.open_names))}, so its posterior may be improper, or reach "
                "farther than the design: give it a prior (hyper_prior=)"
            )
        if self.ended_early:
            said.append(
                f"the walk ended at {len(self.surface.z)} points before the evidence had fallen on "
                "every side, so mass is missing: give a tighter hyper_prior=, or fewer "
                "hyperparameters"
            )
        if self.n_lost:
            points = "one point" if self.n_lost == 1 else f"{self.n_lost} points"
            said.append(f"at {points} where mass may be there is no mode")
        if self.is_coarse:
            said.append(f"one point holds {self.largest_weight:.0%} of the mass: it is too coarse")
        if self.is_rough:
            said.append(
                f"the design's points differ by up to {self.largest_ratio:.1f} nat from a normal: "
                f"its weights are {'wrong' if self.largest_ratio > ROUGH[1] else 'rough'}"
            )
        if self.is_uneven:
            said.append(
                f"the two halves of the grid differ by {self.halves_differ:.1f} nat: "
                "it is too coarse"
            )
        if self.is_steep:
            said.append(
                f"the density is {self.steepness:.1f} times as steep as a normal is on its grid: "
                "part of it may have been missed"
            )
        return tuple(said)

    # --- what a person reads ------------------------------------------------------------------

    @property
    def rows(self) -> tuple[tuple[str, ...], Float[np.ndarray, "hyper columns"]]:
        """Names, with mean, standard deviation and quantiles."""
        numbers = [[one.mean, one.std, *one.quantiles(SHOWN)] for one in self._marginals]
        return self.names, np.array(numbers)

    def summary(self) -> str:
        """The points, what speaks against them, and a table."""
        kind = {"grid": "a grid", "ccd": "a central composite design"}[self.design]
        lines = [
            f"{len(self.points)} points of {kind}, {self.n_evaluations} evaluations of the evidence"
        ]
        lines += [f"warning: {one}" for one in self.warnings]
        return "\n".join([*lines, "", *table_of("hyperparameter", *self.rows)])

    def __repr__(self) -> str:
        return f"HyperPosterior({listed(list(self.names))}; {len(self.points)} points)"

    __str__ = summary
