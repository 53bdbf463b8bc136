"""What comes back: a Gaussian (or several) with names, and all that is known of how good it is."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, PyTree

from .._approximate._laplace import CurvatureReport, curvature_report
from .._arrays._draws import Quadrature
from .._arrays._roots import Root
from .._density._constraints import Constraints
from .._density._protocol import Density
from .._density._target import Structure, listed
from .._errors import InputError
from .._judge._diagnosis import Elsewhere, Estimate
from .._judge._fresh import Judged
from .._judge._verdict import Reason, Verdict
from .._law._bounded_moments import bounded_moments
from .._law._curve import Marginal
from .._law._mixture import Law
from .._law._quantiles import quantiles
from . import _files
from ._hyper import HyperReport
from ._hyper_posterior import HyperPosterior
from ._marginals import marginal_of
from ._modes import PosteriorMode, modes_of
from ._stats import Stats
from ._summary import html_of, summary_of
from ._weights import ImportanceWeights, importance_weights


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """A Gaussian approximation `N(mean, root root^T)` of a posterior, or a mixture of Gaussians.

    Made by `fit`, `laplace` and `load`. `mean`, `std` and samples have the shape of `init`; all
    numbers are NumPy float64 (float32 with `dtype="float32"`). `law` is the distribution over the
    flat, unbounded parameters: `sample`, `log_prob`, `mean` and `cov` on points; of a mixture also
    `weights` and `components` (`cov` and `root` are then those of all of it).

    With `constraints=` the Gaussian is that of unbounded parameters: `law`, `flat_mean`,
    `flat_std`, `root`, `cov` and `names` are its own, and `unconstrained` is the Gaussian alone.
    `mean`, `std`, `quantiles`, `sample`, `log_prob`, `whiten` and `summary` speak of the user's
    parameters.

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> post = mixvi.fit(lambda w: 3 * w["rate"] - jnp.exp(w["rate"]), {"rate": 0.0})
    >>> post.names, post.trust, round(float(post.mean["rate"]), 1)
    (('rate',), 'trust', 0.9)
    >>> post.sample(0, 1000)["rate"].shape, post.cov.shape
    ((1000,), (1, 1))
    >>> low, high = post.quantiles([0.05, 0.95])["rate"]
    >>> bool(low < post.mean["rate"] < high)
    True
    """

    structure: Structure
    family: str
    law: Law
    mode: Float[np.ndarray, " dim"]
    log_evidence_laplace: float
    elbo_fixed: float | None
    flat_mean_se: Float[np.ndarray, " dim"] | None
    judged: Judged | None
    elsewhere: Elsewhere
    converged: bool
    hyper_report: HyperReport | None
    status: str
    judgement: Verdict
    stats: Stats
    # the negative Hessian and gradient at the mode, or the report that was made of them
    hessian: tuple[Any, Any, int] | CurvatureReport
    constraints: Constraints | None = None
    # where hyperparameters were integrated
    hyper_posterior: HyperPosterior | None = None

    # --- the Gaussian -------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """How many unbounded numbers the Gaussian is over."""
        return self.structure.size

    @property
    def names(self) -> tuple[str, ...]:
        """One name for every scalar parameter, in the order of `cov`."""
        return self.structure.names

    @property
    def flat_mean(self) -> Float[np.ndarray, " dim"]:
        """The Gaussian's mean, over the unbounded parameters."""
        return self.law.mean

    @property
    def root(self) -> Root:
        """A root of `cov`: a matrix, a vector where it is diagonal, or one with a structure."""
        return self.law.root

    @property
    def flat_std(self) -> Float[np.ndarray, " dim"]:
        """Standard deviations of the unbounded parameters."""
        return self.law.std

    @property
    def cov(self) -> Float[np.ndarray, "dim dim"]:
        """The covariance of the unbounded parameters, in the order of `names`. Of very many it is
        not made: see `cov_of`."""
        return self.law.cov

    def cov_of(self, names: Any) -> Float[np.ndarray, "some some"]:
        """The covariance of some of the unbounded parameters, in the order given: one name or
        several of `names`; a parameter's own name stands for all its numbers (`"w"` for `w[0]`,
        `w[1]`, ...)."""
        return self.law.cov_of(self._places(names))

    def _places(self, names: Any) -> np.ndarray:
        asked, structure, places = (
            [names] if isinstance(names, str) else list(names),
            self.structure,
            [],
        )
        ends = np.cumsum(structure.sizes)
        whole = {
            path: range(end - size, end)
            for path, size, end in zip(structure.paths, structure.sizes, ends, strict=True)
        }
        known = None
        for name in asked:
            if name in whole:
                places.extend(whole[name])
                continue
            if known is None:
                known = {one: i for i, one in enumerate(structure.names)}
            if name not in known:
                raise InputError(
                    f"cov_of: there is no parameter {name!r}; names are such as "
                    f"{listed(list(structure.names), 3)}."
                )
            places.append(known[name])
        return np.array(places, dtype=np.int64)

    @property
    def start(self) -> PyTree:
        """Where a fit warm-started from this one begins its search for the mode."""
        return self._tree(self.flat_start)

    @property
    def flat_start(self) -> Float[np.ndarray, " dim"]:
        return self.mode if np.isfinite(self.mode).all() else self.flat_mean

    @functools.cached_property
    def unconstrained(self) -> "Posterior":
        """The Gaussian alone, over unbounded parameters; itself where nothing is bounded."""
        return self if self.constraints is None else dataclasses.replace(self, constraints=None)

    @property
    def _shown(self) -> Structure:
        """The structure of the user's parameters."""
        return self.structure if self.constraints is None else self.constraints.user

    @functools.cached_property
    def _moments(self) -> tuple[Float[np.ndarray, " user"], Float[np.ndarray, " user"]]:
        """Means and standard deviations of the user's parameters."""
        if self.constraints is None:
            return self.flat_mean, self.flat_std
        made = bounded_moments(self.constraints, self.law)
        mean, std = (one.astype(self.flat_mean.dtype) for one in made)
        return mean, std

    def _tree(self, flat: Float[np.ndarray, "*batch dim"]) -> PyTree:
        bound = self.constraints
        return self.structure.unravel(flat) if bound is None else bound.constrained(flat)

    @property
    def mean(self) -> PyTree:
        """Posterior means, shaped like `init`."""
        return self._shown.unravel(self._moments[0].copy())

    @property
    def std(self) -> PyTree:
        """Posterior standard deviations, shaped like `init`."""
        return self._shown.unravel(self._moments[1].copy())

    def quantiles(self, probs: Any) -> PyTree:
        """Shaped like `mean`, of every parameter by itself; with a leading axis where `probs` are
        several: `post.quantiles([0.05, 0.95])`. Exact, but for a simplex and ordered parameters:
        there they are those of 16,384 fixed draws."""
        wanted = np.asarray(probs)
        numbers = wanted.dtype.kind in "fiu" and wanted.ndim <= 1
        if not numbers or not ((wanted > 0) & (wanted < 1)).all():
            raise InputError(
                f"quantiles: probs must be one number or several between 0 and 1, got {probs!r}."
            )
        found = self._quantiles(np.atleast_1d(wanted).astype(np.float64))
        return self._shown.unravel(found if wanted.ndim else found[0])

    def _quantiles(self, probs: Float[np.ndarray, " probs"]) -> Float[np.ndarray, "probs user"]:
        made = quantiles(self.law, self.constraints, probs)
        return made.astype(self.flat_mean.dtype)

    def marginal(self, name: str, *, weighted: Any = True) -> Marginal:
        """The distribution of one parameter (or hyperparameter, where these are integrated), in
        its own units: `density`, `cdf`, `quantiles`, `hdi`, `mean`, `std`. Where both have the
        name it is the parameter's; `post.hyper_posterior.marginal(name)` is the other's.

        Where the weights of draws can be believed and two halves of them agree, they correct the
        law's own: those of `post.importance_weights()`, none (`weighted=False`), or more that you
        have made (`weighted=post.importance_weights(10_000, log_density, data)`): of this very
        posterior, since draws of another law are refused. Entries of a simplex or of an ordered
        vector are not corrected.

        >>> import jax.numpy as jnp
        >>> import mixvi
        >>> def log_density(x):  # a gamma distribution
        ...     return 3 * jnp.log(x["rate"]) - 2 * x["rate"]
        >>> post = mixvi.fit(log_density, {"rate": 1.0}, constraints={"rate": "positive"})
        >>> rate = post.marginal("rate")
        >>> rate.hdi(0.9).round(1).tolist(), rate.quantiles([0.05, 0.95]).round(1).tolist()
        ([0.5, 3.5], [0.8, 4.0])
        """
        return marginal_of(self, name, weighted)

    @property
    def mean_se(self) -> PyTree:
        """By how much other fixed draws would have moved the mean: its standard error, not the
        posterior's. (Draws that are matched move it less.) None where no draws were used, or where
        a family other than "full" was asked for. Of the unbounded parameters, where some are
        bounded."""
        return None if self.flat_mean_se is None else self.structure.unravel(self.flat_mean_se)

    def whiten(self, w: PyTree) -> Float[np.ndarray, "*batch dim"]:
        """Where `w` stands in posterior standard deviations: `root^-1 (w - mean)`."""
        return self.law.whiten(self._flat(w))

    def _flat(self, w: PyTree) -> np.ndarray:
        """One point, or a stack of points with one leading axis on every leaf, unbounded; not
        numbers where a bounded parameter is out of bounds."""
        try:
            flat = self._shown.ravel(w, "w")
        except InputError:
            flat = self._shown.ravel(w, "w", batch=1)
        return flat if self.constraints is None else self.constraints.unconstrain(flat)

    def sample(self, key: Any, n: int) -> PyTree:
        """`n` draws as a pytree shaped like `init` with a leading axis of length `n`."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise InputError(f"sample: n must be a non-negative integer, got {n!r}.")
        return self._tree(self.law.sample(key, n))

    def log_prob(self, w: PyTree) -> float | Float[np.ndarray, " n"]:
        """The log density at `w`: one point, or a stack of them as `sample` gives. Minus infinity
        where a bounded parameter is out of bounds; over a simplex with respect to all entries but
        the last."""
        flat = self._flat(w)
        value = self.law.log_prob(flat)
        if self.constraints is not None and self.law.is_sound:
            value = np.where(np.isnan(value), -np.inf, value - self.constraints.log_dets(flat))
        return float(value) if value.ndim == 0 else value

    # --- how good it is -----------------------------------------------------------------------

    @property
    def elbo(self) -> Estimate | None:
        """The bound on fresh draws; None when diagnostics were switched off."""
        return self.judged.diagnosis.elbo if self.judged else None

    @property
    def gap(self) -> float | None:
        """The fixed-draw bound minus the fresh one: what was gained by fitting the draws."""
        if self.judged is None or self.elbo_fixed is None:
            return None
        return self.elbo_fixed - self.judged.diagnosis.elbo.value

    @property
    def khat(self) -> float | None:
        """Pareto's shape of the weights of fresh draws; above 0.7 they cannot be believed."""
        return self.judged.diagnosis.khat if self.judged else None

    @property
    def log_evidence(self) -> float:
        """Laplace's evidence for "laplace", otherwise the bound: by quadrature, or on fresh draws
        where it can be."""
        if self.elbo_fixed is None:
            return self.log_evidence_laplace
        exact = self.stats.draws_kind == Quadrature.kind
        return self.elbo_fixed if exact or self.elbo is None else self.elbo.value

    @property
    def verdict(self) -> str:
        """One sentence: trust it, weigh it or leave it; and why."""
        return self.judgement.sentence

    @property
    def trust(self) -> str | None:
        """The verdict for programs: "trust", "weigh" or "reject"; None where it was not judged."""
        return self.judgement.level

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What speaks against it, the worst first; nothing where it is to be trusted."""
        return self.judgement.reasons

    @functools.cached_property
    def modes(self) -> "tuple[PosteriorMode, ...]":
        """The mode that this Gaussian covers, and others that were seen. (Of many images of one
        another some are listed: `elsewhere.n_modes` is how many others there are.)"""
        return modes_of(self)

    @property
    def hyper(self) -> PyTree:
        """The learnt hyperparameters, shaped like `hyper=`; None where there were none. How the
        search for them ended is in `hyper_report`."""
        return None if self.hyper_report is None else self.hyper_report.values

    @functools.cached_property
    def curvature(self) -> CurvatureReport:
        """What the Hessian at the mode looks like: `min_eig`, `condition`, `gradient_norm`."""
        if isinstance(self.hessian, CurvatureReport):
            return self.hessian
        precision, gradient, n_repaired = self.hessian
        return curvature_report(np.asarray(precision), np.asarray(gradient), n_repaired)

    def importance_weights(
        self,
        n: int | None = None,
        log_density: Callable | Density | None = None,
        data: PyTree = None,
        *,
        key: Any = None,
    ) -> ImportanceWeights:
        """The fresh draws with Pareto-smoothed weights (they sum to one): weighted averages over
        `draws` estimate posterior expectations as long as `khat` is below 0.7.

        With `n`, so many new draws. These need the log density, and its data, which a posterior
        does not keep: it would keep the data alive, and could not be pickled. Compiled code is
        found again. `key` is the fit's own when left out: the same numbers every time.
        """
        return importance_weights(self, n, log_density, data, key)

    # --- what a person reads ------------------------------------------------------------------

    def summary(self, most: int = 12) -> str:
        """The verdict, the numbers behind it, and a table of parameters (means, standard
        deviations and quantiles), on one screen."""
        return summary_of(self, most)

    def _repr_html_(self) -> str:
        return html_of(self, most=12)

    def __repr__(self) -> str:
        return f"Posterior(family={self.family!r}, dim={self.dim}, verdict={self.verdict!r})"

    __str__ = summary

    def save(self, path: str | Path) -> Path:
        """Arrays and names in one `.npz` file; `mixvi.load` needs nothing else. Constants of `init`
        are not in it: they are None in what is loaded."""
        return _files.written(self, path)


def load(path: str | Path) -> Posterior:
    """A posterior that `save` wrote; the model is not needed.

    >>> import pathlib
    >>> import tempfile
    >>> import mixvi
    >>> post = mixvi.laplace(lambda w: -0.5 * w["a"] ** 2, {"a": 1.0})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = mixvi.load(post.save(pathlib.Path(folder) / "posterior"))
    >>> again.names, again.verdict == post.verdict
    (('a',), True)
    """
    return Posterior(**_files.read(path))
