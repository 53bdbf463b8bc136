"""`fit` of a NumPyro model: options apart from the model's arguments, starts, what cannot be."""

import collections
import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpyro.infer.initialization import init_to_feasible, init_to_median, init_to_uniform

from .._density._data import cast_leaves, is_series
from .._density._target import precision_scope
from .._errors import InputError, NonFiniteError
from .._fit._options import DEFAULTS
from .._fit._posterior import Posterior
from .._fit._public import fit as fit_density
from ._numpyro_fitted import Fitted
from ._numpyro_model import DOUBLE, Call, LogDensity, Sites, look, names_of_arguments

OPTIONS = {*DEFAULTS, "init", "throw", "progress", "callback", "on_interrupt"}
# Where a search begins when nothing is said: the prior's median, then what comes next.
STRATEGIES = (init_to_median, init_to_feasible, init_to_uniform)
MOST_LOOKS = 64
# The model asked for the value of an array that JAX traces.
NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def fit(model: Callable, *args: Any, **kwargs: Any) -> Fitted:
    """The posterior of a NumPyro model at these arguments, approximated by `mixvi.fit`.

    **Arguments:**

    - `model`: any NumPyro model, also under handlers (`handlers.reparam(model, ...)`).
    - `args`, `kwargs`: what the model is called with. Names of mixvi's options among the keywords
      go to mixvi, all others to the model; for an argument of the model that has the name of an
      option use `functools.partial(model, draws=...)`.
    - `init`: where to start: a dict of values of sites (others begin at the prior's median), one
      of NumPyro's strategies (`numpyro.infer.init_to_uniform`), or an earlier result.
    - `family`, `key`, `draws`, `n_restarts` and so on: as in `mixvi.fit`.

    Arrays among the arguments are data: new ones of the same shape compile nothing. Where a model
    needs their values (for a shape, say) they are constants, and it is compiled anew. Series of
    pandas are arrays, unless the model itself makes arrays of them.
    `numpyro.param` sites are learnt as hyperparameters. Discrete sites are summed out where NumPyro
    can, which takes funsor.

    **Returns:** a `Fitted`: draws as dicts of sites, and `post`, the `mixvi.Posterior`.

    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> def model(y):
    ...     rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    ...     numpyro.sample("y", dist.Poisson(rate), obs=y)
    >>> fitted = fit(model, np.array([4, 7, 3, 6]))
    >>> fitted.post.names, round(float(fitted.mean["rate"]), 1), fitted.sample(0, 5)["rate"].shape
    (('log rate',), 4.4, (5,))
    """
    if not callable(model):
        raise InputError(f"model must be a NumPyro model, a function, not {type(model).__name__}.")
    options = {name: kwargs.pop(name) for name in [*kwargs] if name in OPTIONS}
    _refuse_clashes(model, args, kwargs, options)
    try:
        return _fit(Call.of(model, args, kwargs), dict(options))
    except (*NEEDS_VALUES, InputError) as err:
        if not isinstance(err, NEEDS_VALUES) and not isinstance(err.__cause__, NEEDS_VALUES):
            raise
    plain = jax.tree.map(lambda leaf: leaf.to_numpy() if is_series(leaf) else leaf, (args, kwargs))
    if any(map(is_series, jax.tree.leaves((args, kwargs)))):  # which JAX cannot compute with
        return fit(model, *plain[0], **plain[1], **options)
    return _fit(Call.of(model, args, kwargs, is_traced=False), dict(options))


def _fit(call: Call, options: dict[str, Any]) -> Fitted:
    init = options.pop("init", None)
    with precision_scope(DOUBLE):
        data = cast_leaves(call.data, DOUBLE, "the model's arguments")
    if isinstance(init, Fitted | Posterior):
        sites, _ = _looked(call, data, init_to_median())
        starts = [(init.post if isinstance(init, Fitted) else init, None)]
    else:
        sites, starts = _starts(call, data, init)
    _refuse(sites)
    log_density = LogDensity(call, sites)
    error = None
    for w, hyper in starts:
        # A warm start keeps the constraints of its posterior.
        kinds = None if isinstance(w, Posterior) else sites.kinds or None
        try:
            post = fit_density(
                log_density, w, data, hyper=hyper or None, constraints=kinds, **options
            )
        except NonFiniteError as err:
            error = error or err
            continue
        return Fitted(post, call, data, log_density)
    assert error is not None
    raise error


# --- starts -----------------------------------------------------------------------------------


def _starts(call: Call, data: Any, init: Any) -> tuple[Sites, Any]:
    """The sites, and the starts to try one after the other."""
    if init is None or isinstance(init, Mapping):
        strategies = tuple(one() for one in STRATEGIES)
        given = init or {}
    elif callable(init):
        strategies, given = (init if isinstance(init, functools.partial) else init(),), {}
    else:
        raise InputError(
            "init must be a dict of values of sites, one of NumPyro's init_to_... functions, or an "
            f"earlier result, not {type(init).__name__}."
        )
    sites, first = _looked(call, data, strategies[0])

    def each() -> Any:
        for i, strategy in enumerate(strategies):
            program = first if i == 0 else _looked(call, data, strategy)[1]
            w, hyper = program(data)
            yield {**w, **_given(sites, given, w)}, hyper

    return sites, each()


def _given(sites: Sites, given: Mapping, started: dict) -> dict[str, np.ndarray]:
    known = {site.name: site for site in sites.latent}
    made = {}
    for name, value in given.items():
        site, array = known.get(name), np.asarray(value)
        if site is None:
            raise InputError(
                f"init: there is no latent site {name!r}; there are {', '.join(known)}."
            )
        if site.kind is None:
            raise InputError(
                f"init: {name!r} has bounds that only NumPyro knows: give all values by "
                f"init=numpyro.infer.init_to_value(values={{{name!r}: ...}})."
            )
        wanted = started[site.parameter].shape
        if array.shape != wanted:
            raise InputError(f"init: {name!r} has shape {array.shape}, the site {wanted}.")
        made[site.parameter] = array.astype(float)
    return made


_looks: collections.OrderedDict[Any, Any] = collections.OrderedDict()


def _looked(call: Call, data: Any, strategy: Any) -> tuple[Sites, Callable]:
    """What is known of the model; from last time, where that is the same."""
    shapes = tuple((np.shape(x), np.dtype(x.dtype)) for x in data or ())
    values = tuple(sorted(strategy.keywords.items())) if not strategy.args else object()
    key = (call.key, shapes, strategy.func, values)
    try:
        known = _looks.get(key)
    except TypeError:  # values that cannot be hashed
        return look(call, data, strategy)
    if known is None:
        known = _looks[key] = look(call, data, strategy)
        while len(_looks) > MOST_LOOKS:
            _looks.popitem(last=False)
    return known


# --- what cannot be ---------------------------------------------------------------------------


def _refuse(sites: Sites) -> None:
    if sites.mutable:
        raise InputError(
            f"the site {sites.mutable[0]!r} is mutable: mixvi asks the model at many points at "
            "once, in no order. Fix what it holds with handlers.substitute."
        )
    if not sites.latent:
        what = "all its latent sites are discrete" if sites.discrete else "it has no latent sites"
        raise InputError(f"there is nothing to fit in this model: {what}.")
    if not sites.discrete:
        return
    names = ", ".join(map(repr, sites.discrete))
    if sites.unbounded_discrete:
        worst = ", ".join(map(repr, sites.unbounded_discrete))
        raise InputError(
            f"the model has discrete sites that cannot be summed out: {worst} (NumPyro enumerates "
            "finite supports alone). Sum them out by hand, or write a continuous distribution in "
            "their place."
        )
    try:
        import funsor  # noqa: F401
    except ImportError as err:
        raise InputError(
            f"the model has discrete sites, {names}: NumPyro sums them out with funsor, which is "
            "not installed (pip install funsor). Or sum them out by hand, for example with "
            "numpyro.distributions.MixtureSameFamily."
        ) from err


def _refuse_clashes(model: Callable, args: tuple, kwargs: dict, options: dict) -> None:
    names, takes_all = names_of_arguments(model)
    for name in options:
        if name in names:
            raise InputError(
                f"{name!r} is an option of mixvi and an argument of the model: bind the model's "
                f"with functools.partial(model, {name}=...), and give mixvi's by keyword."
            )
    unknown = [name for name in kwargs if name not in names] if not takes_all else []
    if unknown:
        close = difflib.get_close_matches(unknown[0], [*OPTIONS, *names], 1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"neither mixvi nor the model takes {unknown[0]!r}{meant}")
