"""Posteriors for ArviZ: `InferenceData` of ArviZ 0.2x, `DataTree` of ArviZ 1.x."""

import dataclasses
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from .._arrays._draws import generator
from .._density._protocol import Density
from .._density._structure import listed
from .._density._target import FLOAT_TYPES, precision_scope
from .._errors import InputError
from .._fit._posterior import Posterior
from .._fit._weights import judging, log_density_at
from .._judge._psis import psis
from ._labelled import Labelled

# Of the random numbers that choose draws by their weights.
CHOSEN = 20
# Draws to choose from without replacement, for one that is chosen.
POOL = 5
CHAIN = ("chain", "draw")
RESAMPLED = (False, True, "with", "without")
UNKNOWN = "to_arviz: {} is for a plain Posterior; what an adaptor has made knows its own."
Groups = dict[str, dict[str, np.ndarray]]


def to_arviz(
    post: Any,
    n: int | None = 1000,
    key: Any = 0,
    *,
    log_density: Callable | Density | None = None,
    data: PyTree = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    resampled: bool | str = False,
    unconstrained: bool = False,
    log_likelihood: Any = None,
    posterior_predictive: Any = None,
    observed_data: Mapping[str, Any] | None = None,
    constant_data: Mapping[str, Any] | None = None,
) -> Any:
    """A posterior as ArviZ data: one chain of `n` draws, under the names of the parameters.

    **Arguments:**

    - `post`: a `Posterior`, or what `mixvi.interop.pymc.approximate` or an adaptor like it makes.
    - `n`, `key`: so many draws, those of `post.sample(key, n)`. `n=None`: the fresh draws that
      judged the fit, whose log densities are known.
    - `log_density`, `data`: as they were fitted; with them `sample_stats` has `log_p`, which
      `arviz.loo_approximate_posterior` asks for, beside `log_q`. An adaptor knows its model.
    - `dims`, `coords`: names of the axes of a parameter, and labels along them.
    - `resampled`: draws chosen by their Pareto-smoothed importance weights, so that they stand for
      the posterior and not for the Gaussian: `True` or `"with"` replacement, from as many draws
      (systematically: a draw of weight `w` comes `n w` times, rounded up or down), or
      `"without"`, from five times as many. `log_q` is left out then: `arviz.loo` is right for
      them.
    - `unconstrained`: whether to add the group `unconstrained_posterior`, the Gaussian's own draws.
    - `log_likelihood`, `posterior_predictive`: for a plain `Posterior`, what these groups hold: a
      dict of arrays that begin with the axis of draws, or a function of one point, written with
      `jax.numpy`, that returns a dict of arrays.
    - `observed_data`, `constant_data`: dicts of arrays.

    **Returns:** `InferenceData` where ArviZ is older than 1.0, otherwise a `DataTree`. Its
    attributes hold family, verdict, trust, status, k-hat and bound.

    >>> import numpy as np
    >>> import mixvi
    >>> from mixvi.interop.arviz import to_arviz
    >>> post = mixvi.fit(lambda w: -0.5 * (w["beta"] ** 2).sum(), {"beta": np.zeros(2)})
    >>> tree = to_arviz(post, dims={"beta": ["column"]}, coords={"column": ["age", "dose"]})
    >>> tree.posterior["beta"].dims, tree.attrs["trust"]
    (('chain', 'draw', 'column'), 'trust')
    """
    if resampled not in RESAMPLED:
        raise InputError(
            f'to_arviz: resampled must be False, "with" or "without", not {resampled!r}.'
        )
    source = _Source(post, log_density, data)
    if source.is_plain:
        drawn = source.drawn(_pool_size(n, resampled), key)
    else:
        given = {"log_likelihood": log_likelihood, "posterior_predictive": posterior_predictive}
        for name, one in {"log_density": log_density, "data": data, **given}.items():
            if one is not None:
                raise InputError(UNKNOWN.format(name))
        drawn = source.drawn(_pool_size(n or 1000, resampled), key)
    attrs = _attributes(source.post)
    if resampled:
        drawn, khat = _chosen(drawn, n, resampled == "without", key)
        attrs |= {
            "resampled": "without" if resampled == "without" else "with",
            "khat_resampled": khat,
        }
    labelled = drawn.labelled
    groups: Groups = {"posterior": labelled.draws}
    if unconstrained:
        groups["unconstrained_posterior"] = source.unbounded(drawn.points)
    stats = {"log_p": labelled.log_p, "log_q": None if resampled else labelled.log_q}
    groups["sample_stats"] = {name: one for name, one in stats.items() if one is not None}
    groups["log_likelihood"] = labelled.log_likelihood or source.made(log_likelihood, drawn.points)
    groups["posterior_predictive"] = source.made(posterior_predictive, drawn.points)
    groups["observed_data"] = _arrays(observed_data, labelled.observed_data)
    groups["constant_data"] = _arrays(constant_data, labelled.constant_data)
    _refuse_unknown(dims, groups)
    all_dims = {**labelled.dims, **{name: tuple(one) for name, one in (dims or {}).items()}}
    return _wrapped(groups, all_dims, {**labelled.coords, **(coords or {})}, attrs)


# --- draws ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Drawn:
    """Labelled draws and the unbounded points that they are."""

    points: Float[np.ndarray, "n dim"]
    labelled: Labelled

    def at(self, places: np.ndarray) -> "_Drawn":
        its = self.labelled

        def each(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {name: array[places] for name, array in arrays.items()}

        log_p = None if its.log_p is None else its.log_p[places]
        labelled = dataclasses.replace(
            its,
            draws=each(its.draws),
            log_q=its.log_q[places],
            log_p=log_p,
            log_likelihood=each(its.log_likelihood),
        )
        return _Drawn(self.points[places], labelled)


@dataclasses.dataclass(frozen=True)
class _Source:
    """Where draws come from: a posterior alone, or with its model."""

    given: Any
    log_density: Callable | Density | None
    data: PyTree

    @property
    def is_plain(self) -> bool:
        return isinstance(self.given, Posterior)

    @property
    def post(self) -> Posterior:
        if not self.is_plain and not callable(getattr(self.given, "labelled", None)):
            raise InputError(
                "to_arviz: post must be a Posterior or what an adaptor such as "
                f"mixvi.interop.pymc.approximate makes, not {type(self.given).__name__}."
            )
        post = self.given if self.is_plain else self.given.post
        if not post.law.is_sound:
            raise InputError(f"to_arviz: this fit failed. {post.status}")
        return post

    def drawn(self, n: int | None, key: Any) -> _Drawn:
        post = self.post
        if n is not None:
            points = np.asarray(post.law.sample(key, n))
            if not self.is_plain:
                return _Drawn(points, self.given.labelled(n, key))
            log_q = np.asarray(post.law.log_prob(points), float)
            log_p = None
            if self.log_density is not None:
                log_p = log_density_at(post, points, self.log_density, self.data)
            return _Drawn(points, self._labelled(points, log_q, log_p))
        if post.judged is None:
            raise InputError(
                "to_arviz: the fresh draws that judge a fit are made with diagnostics=True; ask "
                "for new ones, with n=1000."
            )
        points = post.law.colour(judging(post))
        return _Drawn(points, self._labelled(points, post.judged.log_q, post.judged.log_p))

    def _labelled(
        self, points: np.ndarray, log_q: np.ndarray, log_p: np.ndarray | None
    ) -> Labelled:
        post = self.post
        bound, shown = post.constraints, post._shown
        leaves = (
            post.structure.leaves(points) if bound is None else shown.leaves(bound.flat(points))
        )
        draws = {path: leaf for path, leaf in zip(shown.paths, leaves, strict=True)}
        return Labelled(draws, log_q, log_p)

    def unbounded(self, points: np.ndarray) -> dict[str, np.ndarray]:
        structure = self.post.structure
        return dict(zip(structure.paths, structure.leaves(points), strict=True))

    def made(self, given: Any, points: np.ndarray) -> dict[str, np.ndarray]:
        """A group that the user gives as arrays, or as a function of one point."""
        if given is None:
            return {}
        if callable(given):
            with precision_scope(FLOAT_TYPES["float64"]):
                # One by one: factorisations under `vmap` may hang on a CPU.
                given = jax.lax.map(given, self.post._tree(points))
        if not isinstance(given, Mapping):
            raise InputError(
                "to_arviz: log_likelihood and posterior_predictive must be dicts of arrays, such "
                f'as {{"y": ...}}, or functions that return one, not {type(given).__name__}.'
            )
        made = {name: np.asarray(one) for name, one in given.items()}
        for name, one in made.items():
            if one.shape[:1] != (len(points),):
                raise InputError(
                    f"to_arviz: {name} has shape {one.shape}; the first axis must be that of the "
                    f"{len(points)} draws."
                )
        return made


def _pool_size(n: int | None, resampled: bool | str) -> int | None:
    whole = isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0
    if n is not None and not whole:
        raise InputError(f"to_arviz: n must be a positive integer or None, got {n!r}.")
    return n if n is None or resampled != "without" else POOL * int(n)


def _chosen(drawn: _Drawn, n: int | None, without: bool, key: Any) -> tuple[_Drawn, float]:
    """Draws by their weights, and the k-hat of these."""
    labelled = drawn.labelled
    if labelled.log_p is None:
        raise InputError(
            "to_arviz: weights need the log density, which a posterior does not keep: "
            "to_arviz(post, log_density=..., data=..., resampled=True), or n=None for the fresh "
            "draws that judged it."
        )
    ratios = labelled.log_p - labelled.log_q
    if n_bad := int((~np.isfinite(ratios)).sum()):
        raise InputError(
            f"to_arviz: the log density is not finite at {n_bad} of the draws, so they have no "
            "weights."
        )
    weights, khat = psis(ratios)
    rng, size = generator(key, CHOSEN), len(weights)
    if without:
        wanted = size // POOL if n is None else n
        # The largest of log weights with Gumbel noise: one after another without replacement.
        with np.errstate(divide="ignore"):
            order = np.argsort(-(np.log(weights) + rng.gumbel(size=size)), kind="stable")
        return drawn.at(order[:wanted]), float(khat)
    wanted = size if n is None else n
    at = (np.arange(wanted) + rng.random()) / wanted
    places = np.searchsorted(np.cumsum(weights)[:-1], at)
    return drawn.at(rng.permutation(places)), float(khat)


# --- what ArviZ takes -------------------------------------------------------------------------


def _attributes(post: Posterior) -> dict[str, Any]:
    """Text and numbers, which any file format holds."""
    its: dict[str, Any] = {
        "inference_library": "mixvi",
        "inference_library_version": importlib.metadata.version("mixvi"),
        "family": post.family,
        "verdict": post.verdict,
        "trust": post.trust,
        "status": post.status,
        "converged": int(post.converged),
        "khat": post.khat,
        "log_evidence": post.log_evidence,
    }
    if post.elbo is not None:
        its |= {"elbo": post.elbo.value, "elbo_se": post.elbo.se}
    return {name: one for name, one in its.items() if one is not None}


def _refuse_unknown(dims: Mapping[str, Any] | None, groups: Groups) -> None:
    known = dict.fromkeys(name for arrays in groups.values() for name in arrays)
    for name in dims or {}:
        if name not in known:
            raise InputError(
                f"to_arviz: dims names {name!r}, which is not there. There are "
                f"{listed(list(known), 10)}."
            )


def _arrays(given: Mapping[str, Any] | None, known: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**known, **{name: np.asarray(one) for name, one in (given or {}).items()}}


def _wrapped(
    groups: Groups, dims: Mapping[str, Any], coords: Mapping[str, Any], attrs: dict[str, Any]
) -> Any:
    try:
        import xarray
    except ImportError as err:
        raise ImportError("to_arviz needs ArviZ: pip install 'mixvi[arviz]'") from err
    made = {
        name: _dataset(xarray, arrays, dims, coords, () if name.endswith("_data") else CHAIN)
        for name, arrays in groups.items()
        if arrays
    }
    for one in made.values():
        one.attrs.update(attrs)
    if not _is_old():
        tree = xarray.DataTree.from_dict(made)
        tree.attrs.update(attrs)
        return tree
    from arviz import InferenceData

    return InferenceData(**made, attrs=attrs)


def _is_old() -> bool:
    try:
        return int(importlib.metadata.version("arviz").split(".")[0]) < 1
    except importlib.metadata.PackageNotFoundError:
        return False  # arviz-base alone


def _dataset(
    xarray: Any,
    arrays: dict[str, np.ndarray],
    dims: Mapping[str, Any],
    coords: Mapping[str, Any],
    lead: tuple[str, ...],
) -> Any:
    variables, its_coords = {}, {}
    for name, array in arrays.items():
        whole = np.asarray(array)[None] if lead else np.asarray(array)
        named = tuple(dims.get(name, ()))
        rest = whole.shape[len(lead) :]
        if named and len(named) != len(rest):
            raise InputError(
                f"to_arviz: dims gives {name} {len(named)} names, {list(named)}, but it has "
                f"{len(rest)} axes."
            )
        named = named or (None,) * len(rest)
        named = [one or f"{name}_dim_{i}" for i, one in enumerate(named)]
        variables[name] = ((*lead, *named), whole)
        for dim, size in zip(named, rest, strict=True):
            labels = np.asarray(coords.get(dim, np.arange(size)))
            if len(labels) != size:
                raise InputError(
                    f"to_arviz: coords has {len(labels)} labels for {dim}, but {name} has {size} "
                    "entries along it."
                )
            its_coords[dim] = labels
    if lead:
        n = next(iter(arrays.values())).shape[0]
        its_coords |= {"chain": np.arange(1), "draw": np.arange(n)}
    return xarray.Dataset(variables, coords=its_coords)
