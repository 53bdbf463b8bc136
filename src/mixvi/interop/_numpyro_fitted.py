"""What `fit` of a NumPyro model gives back: the Gaussian, and draws of the model's own sites."""

import dataclasses
import functools
import inspect
from typing import Any

import jax
import numpy as np
from jax import lax
from numpyro.distributions import biject_to
from numpyro.infer import Predictive, log_likelihood

from .._fit._posterior import Posterior
from .._fit._summary import SHOWN, html_of, summary_of
from .._fit._weights import ImportanceWeights, log_density_at
from ._labelled import Labelled, WithPosterior
from ._numpyro_model import SEED, Call, LogDensity, Sites, compiled

# Draws for what has no closed form; points that one call of a replay takes.
N_SHOWN, AT_ONCE = 4000, 256


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Fitted(WithPosterior):
    """A NumPyro model and the Gaussian that approximates its posterior.

    `post` is the `mixvi.Posterior` over the parameters: its Gaussian (`post.cov`, `post.names`)
    is over the unbounded ones. What is here speaks of the model's sites, deterministic ones
    included, in NumPy float64.
    """

    post: Posterior
    call: Call
    data: Any
    log_density: LogDensity

    @property
    def sites(self) -> Sites:
        return self.log_density.sites

    @functools.cached_property
    def params(self) -> dict[str, np.ndarray]:
        """Learnt values of `numpyro.param` sites."""
        if not self.sites.params:
            return {}
        return compiled(self.log_density.params, self.post.hyper, self.data)(
            self.post.hyper, self.data
        )

    # --- draws --------------------------------------------------------------------------------

    def sample(self, key: Any, n: int) -> dict[str, np.ndarray]:
        """`n` draws of every latent and deterministic site, as MCMC gives them: a dict by name,
        draws on the first axis, plates on the next ones."""
        return self._of_parameters(self.post.sample(key, n), n)

    def importance_weights(self, n: int | None = None, *, key: Any = None) -> ImportanceWeights:
        """As `Posterior.importance_weights`, with draws of the sites: those that judged the fit,
        or `n` new ones."""
        if n is None:
            found = self.post.importance_weights(key=key)
        else:
            found = self.post.importance_weights(n, self.log_density, self.data, key=key)
        return found._replace(draws=self._of_parameters(found.draws, len(found.weights)))

    def _of_parameters(self, w: dict, n: int) -> dict[str, np.ndarray]:
        made = self._replayed(w, n)
        named = {s.name: w[s.parameter] for s in self.sites.latent if s.kind is not None}
        names = [site.name for site in self.sites.latent] + list(self.shown_deterministic)
        return {name: np.asarray({**named, **made}[name]) for name in names}

    def _replayed(self, w: dict, n: int) -> dict[str, np.ndarray]:
        """What takes the model: sites over NumPyro's unbounded parameters, deterministic ones."""
        if not (self.sites.unnamed or self.sites.deterministic):
            return {}
        parts = []
        for first in range(0, max(n, 1), AT_ONCE):
            some = {name: x[first : first + AT_ONCE] for name, x in w.items()}
            size = min(AT_ONCE, n - first)
            filled = {name: _filled(x, AT_ONCE) for name, x in some.items()}
            made = self._replay(filled, self.data, self.post.hyper)
            parts.append({name: x[:size] for name, x in made.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    @functools.cached_property
    def _replay(self) -> Any:
        """Point by point: factorisations under `vmap` may hang on a CPU."""

        def replay(w: dict, data: Any, hyper: Any) -> dict:
            def one(w: dict) -> dict:
                unnamed, deterministic = self.log_density.replay(w, data, hyper)
                return {**unnamed, **deterministic}

            return lax.map(one, w)

        zeros = self.post._tree(np.zeros((AT_ONCE, self.post.dim)))
        return compiled(replay, zeros, self.data, self.post.hyper)

    @functools.cached_property
    def shown_deterministic(self) -> tuple[str, ...]:
        """Those that do not depend on discrete sites, which are summed out and have no draws."""
        if not (self.sites.discrete and self.sites.deterministic):
            return self.sites.deterministic
        given = (self.post.mean, self.data, self.post.hyper)

        def replay(seed: Any, w: dict, data: Any, hyper: Any) -> dict:
            return self.log_density.replay(w, data, hyper, seed)[1]

        keys = [jax.random.key(SEED + i) for i in range(4)]
        program = compiled(replay, keys[0], *given)
        first, *others = [program(key, *given) for key in keys]
        return tuple(
            name
            for name in self.sites.deterministic
            if all(np.array_equal(first[name], one[name], equal_nan=True) for one in others)
        )

    def predictive(self, key: Any, n: int, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """`n` draws of what the model predicts for these arguments: its sites without data (pass
        `None` for the data of those wanted), and deterministic ones."""
        made = Predictive(self.call.model, self.sample(key, n), params=self.params or None)
        return made(_jax_key(key), *args, **kwargs)

    # --- NumPyro's own unbounded parameters ---------------------------------------------------

    def unconstrained_places(self, names: list[str]) -> np.ndarray:
        """Where those of these sites, one site after the other, stand in `post.cov`."""
        structure = self.post.structure
        its = structure.unravel(np.arange(structure.size))
        parameter = {site.name: site.parameter for site in self.sites.latent}
        return np.concatenate([np.ravel(its[parameter[name]]) for name in names])

    def constrain(self, site: dict, flat: Any) -> Any:
        """The value of a site of a trace, of one flat point."""
        structure = self.post.structure
        (parameter,) = (one.parameter for one in self.sites.latent if one.name == site["name"])
        return biject_to(site["fn"].support)(structure.unravel(flat)[parameter])

    # --- numbers ------------------------------------------------------------------------------

    @functools.cached_property
    def _by_draws(self) -> dict[str, np.ndarray]:
        """Draws of the sites whose numbers have no closed form."""
        if not (self.sites.unnamed or self.shown_deterministic):
            return {}
        known = {site.name for site in self.sites.latent if site.kind is not None}
        return {k: v for k, v in self.sample(SEED, N_SHOWN).items() if k not in known}

    def _each(self, closed: dict, of_draws: Any) -> dict[str, np.ndarray]:
        its = {s.name: closed[s.parameter] for s in self.sites.latent if s.kind is not None}
        its |= {name: of_draws(x) for name, x in self._by_draws.items()}
        names = [site.name for site in self.sites.latent] + list(self.shown_deterministic)
        return {name: np.asarray(its[name]) for name in names}

    @property
    def mean(self) -> dict[str, np.ndarray]:
        """Of every site. Exact for the Gaussian where `post` knows the site's bounds; of 4000
        draws for other sites and for deterministic ones."""
        return self._each(self.post.mean, lambda x: x.mean(0))

    @property
    def std(self) -> dict[str, np.ndarray]:
        return self._each(self.post.std, lambda x: x.std(0))

    def quantiles(self, probs: Any) -> dict[str, np.ndarray]:
        """With a leading axis where `probs` are several."""
        return self._each(self.post.quantiles(probs), lambda x: np.quantile(x, probs, axis=0))

    @functools.cached_property
    def _table(self) -> tuple[list[str], np.ndarray]:
        both, found = (self.mean, self.std), self.quantiles(list(SHOWN))
        names, columns = [], []
        for name, mean in both[0].items():
            places = list(np.ndindex(*mean.shape))
            names += [name + (f"[{','.join(map(str, at))}]" if at else "") for at in places]
            columns += [
                [*(one[name][at] for one in both), *(q[at] for q in found[name])] for at in places
            ]
        return names, np.array(columns, dtype=float)

    def summary(self, most: int = 12) -> str:
        """The verdict, the numbers behind it, and a table of the sites, on one screen."""
        return summary_of(self.post, most, self._table)

    def _repr_html_(self) -> str:
        return html_of(self.post, 12, self._table)

    def __repr__(self) -> str:
        names = ", ".join(site.name for site in self.sites.latent)
        return f"Fitted(sites={names!r}, family={self.post.family!r}, verdict={self.verdict!r})"

    __str__ = summary

    # --- with labels --------------------------------------------------------------------------

    def labelled(self, n: int = 1000, key: Any = 0) -> Labelled:
        """Draws with the names of their axes, log densities, log likelihoods and data, for ArviZ.
        Where discrete sites are summed out there are no log likelihoods by observation."""
        law, post = self.post.law, self.post
        points = law.sample(key, n)
        draws = self._of_parameters(post._tree(points), n)
        observed = self._observed()
        return Labelled(
            draws=draws,
            log_q=np.asarray(law.log_prob(points), float),
            log_p=log_density_at(post, points, self.log_density, self.data),
            dims={name: self.sites.dims[name] for name in (*draws, *observed)},
            coords={name: np.arange(size) for name, size in self.sites.plates.items()},
            log_likelihood={} if self.sites.discrete else self._log_likelihood(draws),
            observed_data=observed,
            constant_data=self._constant(observed),
        )

    def _log_likelihood(self, draws: dict) -> dict[str, np.ndarray]:
        if not self.sites.observed:
            return {}
        n = len(next(iter(draws.values())))
        its = {name: np.stack([value] * n) for name, value in self.params.items()}

        def of_draws(its: dict, data: Any) -> dict:
            args, kwargs = self.log_density.call.arguments(data)
            return log_likelihood(self.call.model, its, *args, **kwargs)

        made = compiled(of_draws, {**draws, **its}, self.data)({**draws, **its}, self.data)
        return {name: made[name] for name in self.sites.observed}

    def _observed(self) -> dict[str, np.ndarray]:
        return compiled(self.log_density.observed, self.data)(self.data)

    def _constant(self, observed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays among the arguments that are not what was observed."""
        args, kwargs = self.call.arguments(self.data)
        try:
            named = inspect.signature(self.call.model).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):
            return {}
        arrays = {
            k: np.asarray(v) for k, v in named.items() if isinstance(v, np.ndarray | jax.Array)
        }
        seen = list(observed.values())
        return {k: v for k, v in arrays.items() if not any(np.array_equal(v, y) for y in seen)}


def _filled(x: np.ndarray, size: int) -> np.ndarray:
    """With its last row again, up to `size`."""
    short = size - len(x)
    if not short:
        return x
    row = x[-1:] if len(x) else np.ones((1, *x.shape[1:]))
    return np.concatenate([x, np.repeat(row, short, axis=0)])


def _jax_key(key: Any) -> Any:
    return jax.random.key(key) if isinstance(key, int | np.integer) else key
