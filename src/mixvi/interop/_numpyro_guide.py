"""A guide for NumPyro that needs no training: its parameters are those of a fit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.infer import init_to_median
from numpyro.infer.autoguide import AutoMultivariateNormal
from numpyro.util import not_jax_tracer

from .._errors import InputError
from ._numpyro_fit import fit
from ._numpyro_fitted import Fitted


class AutoMVI(AutoMultivariateNormal):
    """An automatic guide whose Gaussian is fitted by mixvi, once, instead of trained.

    Usable where `numpyro.infer.autoguide.AutoMultivariateNormal` is: its parameters are
    `auto_loc` and `auto_scale_tril`, and begin where mixvi ends. `fit` returns them; without it the
    first call with concrete data fits (`svi.init`, `svi.run`), and steps of SVI train further.

    **Arguments:** the model, `family`, `prefix`, `init_loc_fn`, and mixvi's options by keyword.

    Not for models with discrete sites or with `numpyro.param` sites: `mixvi.interop.numpyro.fit`
    takes these.

    >>> import jax
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> def model(y):
    ...     rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    ...     numpyro.sample("y", dist.Poisson(rate), obs=y)
    >>> guide = AutoMVI(model)
    >>> params = guide.fit(jax.random.key(0), np.array([4, 7, 3, 6]))
    >>> round(float(guide.median(params)["rate"]), 1)
    4.3
    """

    def __init__(
        self,
        model: Callable,
        family: Any = "auto",
        *,
        prefix: str = "auto",
        init_loc_fn: Any = init_to_median,
        **options: Any,
    ):
        self.options = {"family": family, "init": init_loc_fn, **options}
        self.fitted: Fitted | None = None
        self._mean: Any = None
        super().__init__(model, prefix=prefix, init_loc_fn=init_loc_fn)

    @property
    def _init_latent(self) -> Any:
        """NumPyro's name for where the latent vector begins."""
        if self._mean is None:
            raise InputError("AutoMVI is not fitted yet: call guide.fit(key, ...) with the data.")
        return self._mean

    @_init_latent.setter
    def _init_latent(self, mean: Any) -> None:
        self._mean = mean

    def fit(self, rng_key: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Fits, anew where it has been fitted, and returns the parameters."""
        self.options["key"] = rng_key
        self.prototype_trace = None
        with handlers.block(), handlers.seed(rng_seed=rng_key):
            self._setup_prototype(*args, **kwargs)
        prefix = self.prefix
        return {f"{prefix}_loc": self._init_latent, f"{prefix}_scale_tril": self._init_tril}

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        leaves = jax.tree.leaves((args, kwargs))
        if any(not not_jax_tracer(leaf) for leaf in leaves):
            raise InputError(
                "AutoMVI fits on its first call, which needs the data themselves: call "
                "guide.fit(key, ...) before jax.jit or vmap."
            )
        super()._setup_prototype(*args, **kwargs)
        self._refuse(self.prototype_trace)
        with handlers.block():
            self.fitted = fit(self.model, *args, **self.options, **kwargs)
        places = self.fitted.unconstrained_places(list(self._init_locs))
        law = self.fitted.post.law
        if len(law.weights) > 1:
            raise InputError(
                "AutoMVI is a guide of one Gaussian; a mixture is what mixvi.interop.numpyro.fit "
                'gives with family="mixture".'
            )
        cov = law.cov[np.ix_(places, places)]
        self._init_latent = jnp.asarray(law.mean[places])
        self._init_tril = jnp.asarray(np.linalg.cholesky(cov))

    def _refuse(self, trace: Any) -> None:
        sites = trace.values()
        if params := [site["name"] for site in sites if site["type"] == "param"]:
            raise InputError(
                f"the model has the numpyro.param site {params[0]!r}, which a guide cannot learn: "
                "use mixvi.interop.numpyro.fit, or give it a prior."
            )
        if not any(site["type"] == "sample" and site["is_observed"] for site in sites):
            raise InputError(
                "AutoMVI fits on its first call, and this one has no data: call "
                "guide.fit(key, ...) with them first."
            )

    def _get_posterior(self) -> Any:
        loc = numpyro.param(f"{self.prefix}_loc", self._init_latent)
        scale_tril = numpyro.param(
            f"{self.prefix}_scale_tril", self._init_tril, constraint=self.scale_tril_constraint
        )
        return numpyro.distributions.MultivariateNormal(loc, scale_tril=scale_tril)
