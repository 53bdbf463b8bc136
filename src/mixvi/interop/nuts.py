"""NUTS that begins where a fit ended: a mass matrix, and a start for every chain.

    NUTS(model, **nuts.numpyro(fitted))                                     NumPyro
    blackjax.nuts(nuts.unbounded(post, f, data), **nuts.blackjax(post))     BlackJAX
    nutpie.sample(nuts.nutpie(post, f, data))                               nutpie

All are over the unbounded parameters of the posterior, in their order, and take its covariance for
the inverse mass matrix, which makes the Gaussian round. A `post` may also be what
`mixvi.interop.numpyro.fit` gave; it knows its log density and data.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PyTree

from .._density._data import cast_leaves
from .._density._target import precision_scope, traced_in
from .._errors import InputError
from .._fit._posterior import Posterior

DOUBLE = np.dtype(np.float64)


def numpyro(fitted: Any, *, dense: bool = True, adapt_mass_matrix: bool = False) -> dict[str, Any]:
    """Keywords for `numpyro.infer.NUTS(model, ...)`: every chain begins at a draw of the Gaussian,
    made with the chain's own key. A hundred steps of warm-up find the step size (25 are too few).

    The mass matrix stays as it is: adapting it would put an estimate from few draws in its place.
    With `adapt_mass_matrix=True` NumPyro does so in its windows, which takes a long warm-up.
    Of a `Posterior` (for `NUTS(potential_fn=...)`) there is no start here: that is
    `init_params=starts(post, n_chains)`.
    """
    post = _posterior(fitted)
    given: dict[str, Any] = {
        "inverse_mass_matrix": _inverse_mass(post, dense, _sites_in_order(fitted)),
        "dense_mass": dense,
        "adapt_mass_matrix": adapt_mass_matrix,
        "step_size": _first_step(post),
    }
    if fitted is not post:
        given["init_strategy"] = functools.partial(_Start(fitted))
    return given


def blackjax(post: Any, *, dense: bool = True) -> dict[str, Any]:
    """Keywords for `blackjax.nuts(logdensity, ...)`: the inverse mass matrix, and a careful first
    step size (BlackJAX's own warm-up finds a better one: `blackjax.window_adaptation` takes this
    matrix as `initial_inverse_mass_matrix`)."""
    post = _posterior(post)
    return {"inverse_mass_matrix": _inverse_mass(post, dense), "step_size": _first_step(post)}


def starts(post: Any, n_chains: int, key: Any = 0) -> PyTree:
    """Draws of the Gaussian over unbounded parameters, one a chain, on a leading axis."""
    post = _posterior(post)
    return post.structure.unravel(post.law.sample(key, n_chains))


def bounded(post: Any, positions: PyTree) -> PyTree:
    """The user's parameters, of unbounded ones as `starts` has them, with any leading axes."""
    post = _posterior(post)
    return post._tree(np.asarray(_flat(post, positions), dtype=np.float64))


def unbounded(post: Any, log_density: Callable | None = None, data: PyTree = None) -> Callable:
    """The log density over unbounded parameters, log-Jacobian included: a JAX function of one
    position, such as `starts` gives."""
    log_density, data = _model(post, log_density, data)
    post = _posterior(post)
    extra = [one for one in (post.hyper, data) if one is not None]
    bound = post.constraints

    def value(position: PyTree) -> Any:
        if bound is None:
            return log_density(position, *extra)
        flat = _flat(post, position)
        return log_density(bound.constrain(flat), *extra) + bound.log_det(flat)

    return value


def nutpie(post: Any, log_density: Callable | None = None, data: PyTree = None) -> Any:
    """A compiled model for `nutpie.sample`, over standard deviations of the Gaussian.

    nutpie takes starts but no mass matrix: it always begins with its own and adapts it. So it gets
    the density of `z`, with `w = mean + root z`, for which the identity is the right one, and
    starts at draws of the Gaussian. What it gives back are the user's parameters by name.
    """
    try:
        from nutpie.compiled_pyfunc import from_pyfunc  # pyright: ignore
    except ImportError as err:
        raise ImportError("this takes nutpie: pip install nutpie") from err
    log_density, data = _model(post, log_density, data)
    post = _posterior(post)
    with precision_scope(DOUBLE):
        data = jax.device_put(cast_leaves(data, DOUBLE, "data"))
    value = unbounded(post, log_density, data)
    law, shown = post.law, post._shown
    mean, root = law.mean.astype(float), law.colour(np.eye(post.dim)).astype(float) - law.mean

    def of_z(z: Any) -> Any:
        return value(post.structure.unravel(mean + z @ root))

    # Here and now: nutpie calls from many threads, and NumPyro traces in one alone.
    both, start = jax.value_and_grad(of_z), np.zeros(post.dim)
    program = traced_in(
        DOUBLE, lambda f: jax.jit(f).trace, both, (start,), lambda one: one.lower().compile()
    )

    def slope(z: np.ndarray) -> tuple[float, np.ndarray]:
        with precision_scope(DOUBLE):
            log_p, gradient = program(z)
            return float(log_p), np.array(gradient, dtype=np.float64)

    def expanded(z: np.ndarray) -> dict[str, np.ndarray]:
        leaves = shown.varying(jtu.tree_leaves(post._tree(law.colour(np.asarray(z)))))
        made = zip(shown.paths, leaves, strict=True)
        return {path: np.array(leaf, dtype=np.float64) for path, leaf in made}

    return from_pyfunc(
        post.dim,
        lambda: slope,
        lambda *_: expanded,
        [DOUBLE] * len(shown.paths),
        list(shown.shapes),
        list(shown.paths),
        make_initial_point_fn=lambda seed: np.random.default_rng(seed).standard_normal(post.dim),
    )


# --- of what ----------------------------------------------------------------------------------


def _posterior(post: Any) -> Posterior:
    own = post if isinstance(post, Posterior) else getattr(post, "post", None)
    if not isinstance(own, Posterior):
        raise InputError(
            f"a hand-over takes a mixvi.Posterior or a fitted model, not {type(post).__name__}."
        )
    if not own.law.is_sound:
        raise InputError(f"there is no Gaussian to hand over: this fit failed. {own.status}")
    return own


def _model(post: Any, log_density: Callable | None, data: PyTree) -> tuple[Callable, PyTree]:
    if log_density is not None:
        return log_density, data
    if isinstance(post, Posterior) or not hasattr(post, "log_density"):
        raise InputError(
            "a Posterior does not keep its log density: give it, and its data, as to mixvi.fit."
        )
    return post.log_density, post.data


def _sites_in_order(fitted: Any) -> np.ndarray | None:
    """NumPyro takes its sites in the order of their names."""
    if not hasattr(fitted, "unconstrained_places"):
        return None
    return fitted.unconstrained_places(sorted(site.name for site in fitted.sites.latent))


def _inverse_mass(
    post: Posterior, dense: bool, places: np.ndarray | None = None
) -> Float[np.ndarray, "dim dim"] | Float[np.ndarray, " dim"]:
    places = np.arange(post.dim) if places is None else places
    return post.cov[np.ix_(places, places)] if dense else post.flat_std[places] ** 2


def _first_step(post: Posterior) -> float:
    """For a standard normal of so many dimensions, a little shorter than what NUTS settles at."""
    return float(post.dim**-0.25)


def _flat(post: Posterior, position: PyTree) -> Any:
    leaves = post.structure.varying(jtu.tree_leaves(position))
    its = list(zip(leaves, post.structure.shapes, strict=True))
    lead = jnp.shape(its[0][0])[: jnp.ndim(its[0][0]) - len(its[0][1])]
    return jnp.concatenate([jnp.reshape(leaf, (*lead, -1)) for leaf, _ in its], -1)


class _Start:
    """An `init_strategy` for NumPyro: all sites from one draw of the Gaussian.

    NumPyro asks site by site, each with a key of its own; the key of the first one makes the draw
    that serves the others until the model begins anew.
    """

    def __init__(self, fitted: Any):
        self.fitted, self.law = fitted, _posterior(fitted).law
        self.names = {site.name for site in fitted.sites.latent}
        self.first: str | None = None
        self.draw: Any = None

    def __call__(self, site: dict | None = None) -> Any:
        if site is None:
            return functools.partial(self)
        if site["type"] != "sample" or site["is_observed"] or site["name"] not in self.names:
            return None
        if self.first in (None, site["name"]):
            self.first = site["name"]
            z = jax.random.normal(site["kwargs"]["rng_key"], (self.law.dim,))
            root = self.law.colour(np.eye(self.law.dim)) - self.law.mean
            self.draw = jnp.asarray(self.law.mean) + z @ jnp.asarray(root)
        return self.fitted.constrain(site, self.draw)
