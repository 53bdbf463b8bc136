"""What a NumPyro model is, seen from outside: its sites, and its log density by NumPyro's code.

Sites whose support is one of mixvi's own (positive, an interval with fixed ends, a simplex,
ordered) are parameters under `constraints=`, whose maps are NumPyro's. All others are parameters
over NumPyro's unbounded ones, and NumPyro adds their log-Jacobian.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import numpyro
from numpyro import handlers, primitives
from numpyro.distributions import Delta, biject_to, constraints
from numpyro.infer.util import constrain_fn, helpful_support_errors, potential_energy

from .._density._captured import _Captured, as_new
from .._density._kinds import NAMED, Free, Interval, Kind
from .._density._target import precision_scope, traced_in
from .._errors import InputError

SEED = 0
DOUBLE = np.dtype(np.float64)
# NumPyro's supports that are mixvi's kinds. Subclasses have other maps: named one by one.
_ABOVE = (constraints.greater_than, constraints.greater_than_eq)
_ABOVE += (type(constraints.positive), type(constraints.nonnegative))
_BELOW = (constraints.less_than, constraints.less_than_eq)
_BETWEEN = (constraints.interval, constraints.open_interval, type(constraints.unit_interval))


@dataclasses.dataclass(frozen=True)
class Site:
    """A latent site: what its parameters are called, how they are bound, and its axes."""

    name: str
    parameter: str  # the key among the parameters: of unbounded numbers where `kind` is None
    kind: Kind | None
    dims: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Sites:
    """Of one model at arguments of one shape."""

    latent: tuple[Site, ...]
    discrete: tuple[str, ...]
    unbounded_discrete: tuple[str, ...]  # which cannot be summed out
    params: tuple[tuple[str, str], ...]  # names of `numpyro.param` sites, and of the unbounded ones
    observed: tuple[str, ...]
    deterministic: tuple[str, ...]
    mutable: tuple[str, ...]
    dims: dict[str, tuple[str, ...]]
    plates: dict[str, int]
    nesting: int  # plates one inside the other

    @functools.cached_property
    def kinds(self) -> dict[str, Kind]:
        """For `constraints=`."""
        its = {site.parameter: site.kind for site in self.latent}
        return {name: k for name, k in its.items() if k is not None and not isinstance(k, Free)}

    @functools.cached_property
    def unnamed(self) -> tuple[Site, ...]:
        """Those over NumPyro's unbounded parameters."""
        return tuple(site for site in self.latent if site.kind is None)


# --- arguments --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Call:
    """A model with its arguments: arrays, which may be traced, apart from all the rest."""

    model: Callable
    arrays: tuple
    static: tuple
    tree: Any
    is_traced: bool = True

    @classmethod
    def of(cls, model: Callable, args: tuple, kwargs: dict, is_traced: bool = True) -> "Call":
        leaves, tree = jtu.tree_flatten((args, kwargs))
        is_array = [is_traced and _is_numbers(leaf) for leaf in leaves]
        arrays = tuple(x if yes else None for x, yes in zip(leaves, is_array, strict=True))
        static = tuple(None if yes else x for x, yes in zip(leaves, is_array, strict=True))
        return cls(model, arrays, static, tree, is_traced)

    @property
    def data(self) -> Any:
        """What goes to `fit` as data; None where nothing does."""
        its = tuple(array for array in self.arrays if array is not None)
        return its or None

    def arguments(self, data: Any) -> tuple[tuple, dict]:
        """With these arrays in their places."""
        left = iter(data or ())
        leaves = [
            s if a is None else next(left) for a, s in zip(self.arrays, self.static, strict=True)
        ]
        return jtu.tree_unflatten(self.tree, leaves)

    @property
    def bare(self) -> "Call":
        """Without the arrays themselves, so that what is kept does not keep them alive."""
        places = tuple(None if array is None else True for array in self.arrays)
        return dataclasses.replace(self, arrays=places)

    @functools.cached_property
    def key(self) -> Any:
        """Equal keys mean the same compiled code; of what cannot be compared, itself alone."""
        known = _functions_of(self.model)
        if known is None or getattr(primitives, "_PYRO_STACK", None):
            return object()
        static = tuple((type(leaf), leaf) for leaf in self.static)
        places = tuple(array is None for array in self.arrays)
        key = (_Same(self.model), tuple(map(_Captured.of, known)), static, places, self.tree)
        try:
            hash(key)
            return key
        except TypeError:
            return object()


class _Same:
    """Equal where it is the same object."""

    def __init__(self, of: Any):
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.of is other.of


def _is_numbers(leaf: Any) -> bool:
    if isinstance(leaf, jax.Array):
        return not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    plain = isinstance(leaf, np.ndarray) and not np.ma.isMaskedArray(leaf)
    return plain and leaf.dtype.kind in "fiubc"


def _inner(model: Any) -> Iterator[Any]:
    """The model, what it wraps, what that wraps, ..."""
    while model is not None:
        yield model
        if isinstance(model, functools.partial):
            model = model.func
        else:
            model = getattr(model, "fn", None) if isinstance(model, primitives.Messenger) else None


def _functions_of(model: Any) -> list[Callable] | None:
    """The plain functions under handlers and partials; None where something else is called."""
    *_, last = _inner(model)
    return [last] if inspect.isfunction(last) else None


def names_of_arguments(model: Any) -> tuple[set[str], bool]:
    """By which it can be given some, without those that are bound; and whether it takes any."""
    bound = {
        name for one in _inner(model) if isinstance(one, functools.partial) for name in one.keywords
    }
    *_, last = _inner(model)
    try:
        its = inspect.signature(last).parameters.values()
    except (TypeError, ValueError):
        return set(), True
    named = {p.name for p in its if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named - bound, any(p.kind is p.VAR_KEYWORD for p in its)


# --- looking at a model -----------------------------------------------------------------------


def look(call: Call, data: Any, strategy: Callable) -> tuple[Sites, Callable]:
    """The sites of a model, and a program from data to a start: parameters and hyperparameters."""
    seen: list[Sites] = []
    call = call.bare

    def start(data: Any) -> tuple[dict, dict]:
        args, kwargs = call.arguments(data)
        model = handlers.substitute(handlers.seed(call.model, SEED), substitute_fn=strategy)
        trace = handlers.trace(model).get_trace(*args, **kwargs)
        sites = _sites(trace)
        seen.append(sites)
        w = {site.parameter: _started(trace[site.name], site.kind) for site in sites.latent}
        hyper = {label: _unbounded(trace[name]) for name, label in sites.params}
        return w, hyper

    program = compiled(start, data)
    return seen[-1], program


def compiled(function: Callable, *arguments: Any) -> Callable:
    """In float64, whatever JAX's flag says."""
    program = traced_in(
        DOUBLE, lambda f: jax.jit(f).trace, function, arguments, lambda one: one.lower().compile()
    )

    def call(*arguments: Any) -> Any:
        with precision_scope(DOUBLE):
            return jax.tree.map(np.asarray, program(*as_new(arguments)))

    return call


def _started(site: dict, kind: Kind | None) -> Any:
    transform = biject_to(site["fn"].support)
    free = transform.inv(jnp.asarray(site["value"], jnp.float64))
    return free if kind is None else transform(free)


def _unbounded(site: dict) -> Any:
    transform = biject_to(site["kwargs"].get("constraint", constraints.real))
    return jax.tree.map(lambda x: transform.inv(jnp.asarray(x, jnp.float64)), site["value"])


def _sites(trace: dict) -> Sites:
    by_type = {
        kind: [name for name, site in trace.items() if site["type"] == kind]
        for kind in ("sample", "param", "deterministic", "plate", "mutable")
    }
    _refuse_subsampling([trace[name] for name in by_type["plate"]])
    _refuse_half_observed(trace)
    sampled = [name for name in by_type["sample"] if not trace[name]["is_observed"]]
    discrete = [name for name in sampled if trace[name]["fn"].support.is_discrete]
    continuous = [name for name in sampled if name not in discrete]
    frames = [f for name in by_type["sample"] for f in trace[name]["cond_indep_stack"]]
    named = [*sampled, *by_type["deterministic"]]
    named += [name for name in by_type["sample"] if name not in sampled]
    return Sites(
        latent=tuple(_site(trace[name]) for name in continuous),
        discrete=tuple(discrete),
        unbounded_discrete=tuple(n for n in discrete if not trace[n]["fn"].has_enumerate_support),
        params=tuple((name, _label_of_param(trace[name])) for name in by_type["param"]),
        observed=tuple(name for name in by_type["sample"] if _is_data(trace[name])),
        deterministic=tuple(by_type["deterministic"]),
        mutable=tuple(by_type["mutable"]),
        dims={name: _dims(trace[name]) for name in named},
        plates={frame.name: frame.size for frame in frames},
        nesting=-min([frame.dim for frame in frames if frame.dim is not None], default=0),
    )


def _is_data(site: dict) -> bool:
    """Observed, and not a mere factor."""
    return site["is_observed"] and not isinstance(site["fn"], numpyro.distributions.Unit)


def _refuse_subsampling(plates: list[dict]) -> None:
    few = [site["name"] for site in plates if site["args"][1] not in (None, site["args"][0])]
    if few:
        raise InputError(
            f"the plate {few[0]!r} takes a subsample: mixvi's bound is over fixed draws and needs "
            "all of the data. Leave subsample_size= out; memory= bounds what a pass takes."
        )


def _refuse_half_observed(trace: dict) -> None:
    """`obs_mask=` makes two sites, and neither says anything of the other's entries."""
    for name in trace:
        if {f"{name}_observed", f"{name}_unobserved"} <= set(trace):
            raise InputError(
                f"the site {name!r} has an obs_mask: NumPyro then has a latent number for every "
                "entry, also for those that are observed, which nothing holds anywhere. Say with "
                "numpyro.handlers.mask(mask=...) around it which entries count, and draw what is "
                "missing by predictive()."
            )


def _site(site: dict) -> Site:
    name, support = site["name"], site["fn"].support
    if isinstance(site["fn"], Delta):
        raise InputError(
            f"the latent site {name!r} has a Delta distribution, which has no density: write "
            f"numpyro.deterministic({name!r}, value) instead."
        )
    try:
        with helpful_support_errors(site):
            biject_to(support)
    except (NotImplementedError, ValueError) as err:
        raise InputError(f"the latent site {name!r} cannot be made unbounded: {err}") from err
    kind, label = kind_of(support)
    return Site(name, name if kind is not None else f"{label} {name}", kind, _dims(site))


def kind_of(support: Any) -> tuple[Kind | None, str]:
    """mixvi's own kind for a support of NumPyro's, where it has one; what the unbounded numbers are
    called."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    which, reals = type(support), ("_Real", "_RealVector", "_RealMatrix")
    kind, label = None, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", which.__name__.strip("_")).lower()
    if which.__name__ in reals:
        kind = Free()
    elif which in _ABOVE:
        kind, label = _interval(support.lower_bound, math.inf), "log"
    elif which in _BELOW:
        kind, label = _interval(-math.inf, support.upper_bound), "log"
    elif which in _BETWEEN:
        kind, label = _interval(support.lower_bound, support.upper_bound), "logit"
    elif support is constraints.simplex:
        kind = NAMED["simplex"]
    elif support is constraints.ordered_vector:
        kind = NAMED["ordered"]
    return kind, label


def _interval(low: Any, high: Any) -> Interval | None:
    """Where the ends are plain numbers; others may depend on other sites, or on data."""
    plain = all(isinstance(end, numbers.Real) and not isinstance(end, bool) for end in (low, high))
    return Interval(low, high) if plain else None


def _label_of_param(site: dict) -> str:
    constraint = site["kwargs"].get("constraint", constraints.real)
    if jtu.tree_structure(site["value"]) != jtu.tree_structure(0):
        raise InputError(
            f"the site {site['name']!r} holds the parameters of a whole module: mixvi learns "
            "numpyro.param sites of plain arrays. Give the module's weights priors "
            "(numpyro.contrib.module.random_flax_module), or fix them (handlers.substitute)."
        )
    kind, label = kind_of(constraint)
    if kind is not None:
        return kind.free_path(site["name"])
    return f"{label} {site['name']}"


def _dims(site: dict) -> tuple[str, ...]:
    """A name for every axis: plates, `infer={"event_dims": ...}`, and `theta_dim_0` for others."""
    shape, name = np.shape(site["value"]), site["name"]
    n_event = site["fn"].event_dim if site["type"] == "sample" else 0
    dims = [f"{name}_dim_{i}" for i in range(len(shape))]
    for frame in site.get("cond_indep_stack", ()):
        at = len(shape) - n_event + frame.dim
        if 0 <= at < len(shape) and shape[at] == frame.size:
            dims[at] = frame.name
    own = list(site.get("infer", {}).get("event_dims", ()))
    if own and len(own) <= len(shape):
        dims[len(shape) - len(own) :] = own
    return tuple(dims)


# --- the log density --------------------------------------------------------------------------


class _DefaultKey(primitives.Messenger):
    """For models that ask for a key (`numpyro.prng_key()`): always the same."""

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "prng_key" and msg["value"] is None:
            msg["value"] = jax.random.key(SEED)


class LogDensity:
    """`log p(data, w)` of a model over the parameters of its `Sites`; compared by what it holds, so
    that compiled code is found again."""

    def __init__(self, call: Call, sites: Sites):
        self.sites, self.key, self.call = sites, call.key, call.bare

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogDensity) and self.key == other.key

    def __call__(self, w: dict, *rest: Any) -> Any:
        left = list(rest)
        hyper = left.pop(0) if self.sites.params else {}
        args, kwargs = self.call.arguments(left[0] if left else None)
        named, unnamed = self._split(w)
        model = _DefaultKey(self._with_params(self.call.model, hyper))
        enum = bool(self.sites.discrete)
        if enum:
            from numpyro.contrib.funsor import config_enumerate
            from numpyro.contrib.funsor import enum as enumerated

            model = enumerated(config_enumerate(model), -self.sites.nesting - 1)
        model = handlers.substitute(model, data=named)
        return -potential_energy(model, args, kwargs, unnamed, enum=enum)

    def _split(self, w: dict) -> tuple[dict, dict]:
        """Values of sites, and NumPyro's unbounded parameters of the others."""
        named = {
            site.name: w[site.parameter] for site in self.sites.latent if site.kind is not None
        }
        return named, {site.name: w[site.parameter] for site in self.sites.unnamed}

    def _with_params(self, model: Callable, hyper: dict) -> Callable:
        if not self.sites.params:
            return model
        return handlers.substitute(
            model, substitute_fn=functools.partial(_param, self.sites, hyper)
        )

    def replay(self, w: dict, data: Any, hyper: Any, seed: Any = SEED) -> tuple[dict, dict]:
        """What the model makes of one point: values of the sites over unbounded parameters, and of
        deterministic ones."""
        args, kwargs = self.call.arguments(data)
        named, unnamed = self._split(w)
        model = handlers.seed(self._with_params(self.call.model, hyper or {}), seed)
        model = handlers.substitute(model, data=named)
        made = constrain_fn(model, args, kwargs, unnamed, return_deterministic=True)
        made = {name: value for name, value in made.items() if name in self.sites.dims}
        return {k: v for k, v in made.items() if k in unnamed}, {
            k: v for k, v in made.items() if k in self.sites.deterministic
        }

    def observed(self, data: Any) -> dict:
        args, kwargs = self.call.arguments(data)
        trace = handlers.trace(handlers.seed(self.call.model, SEED)).get_trace(*args, **kwargs)
        return {name: trace[name]["value"] for name in self.sites.observed}

    def params(self, hyper: Any, data: Any) -> dict:
        """Values of `numpyro.param` sites."""
        args, kwargs = self.call.arguments(data)
        model = handlers.seed(self._with_params(self.call.model, hyper or {}), SEED)
        trace = handlers.trace(model).get_trace(*args, **kwargs)
        return {name: trace[name]["value"] for name, _ in self.sites.params}


def _param(sites: Sites, hyper: dict, site: dict) -> Any:
    label = dict(sites.params).get(site["name"])
    if label is None or label not in hyper:
        return None
    return biject_to(site["kwargs"].get("constraint", constraints.real))(hyper[label])
