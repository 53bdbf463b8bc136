"""Likelihoods: the log density of one observation given its linear predictor(s).

Each is one small class: `log_prob` of one observation, the hyperparameters of its own with a start
and a weak prior, and how to predict. All functions work elementwise on arrays, with `jax.numpy`.
To add one: a class here with the members that `Likelihood` asks for.
"""

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import jax.scipy.stats as jst
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._arrays._draws import Quadrature
from .._errors import InputError

Hyper = dict[str, Any]
NODES, CDF_NODES = 512, 256
LOG_FLOOR = math.log(1e-3)


def normal_logpdf(x: Any, mean: Any, sd: float) -> Any:
    """A prior that only says which values are odd."""
    return -0.5 * ((x - mean) / sd) ** 2 - math.log(sd * math.sqrt(2 * math.pi))


def noise_prior(log_scale: Any, usual: float) -> Any:
    """Weak, with a floor near a thousandth of the target's scale: rows that a basis can interpolate
    would otherwise be explained by no noise at all, with unbounded evidence."""
    return normal_logpdf(log_scale, usual, 2.0) - 0.5 * jnp.exp(-2 * (log_scale - LOG_FLOOR))


class Likelihood(eqx.Module):
    """What a likelihood must say. `hyper` holds at least the entries of its own `start`."""

    name: ClassVar[str]
    discrete: ClassVar[bool] = False

    @property
    def n_outputs(self) -> int:
        """Linear predictors per observation."""
        return 1

    def start(self) -> Hyper:
        """Where the search for its own hyperparameters begins, on unbounded scales."""
        return {}

    def log_prior(self, hyper: Hyper) -> Any:
        """A weak prior on them (targets are on the scale of one)."""
        del hyper
        return 0.0

    @abc.abstractmethod
    def log_prob(self, y: Array, eta: Array, hyper: Hyper) -> Array:
        """`log p(y | eta)`."""

    @abc.abstractmethod
    def mean(self, eta: Array, hyper: Hyper) -> Array:
        """`E(y | eta)`, or the location where that does not exist."""

    def mean_and_sd(self, mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of `mean(eta)`, what is predicted, for `eta ~ N(mean, sd^2)`."""
        return mean, sd

    def check(self, y: np.ndarray) -> None:
        """Raises an `InputError` where a target cannot be."""

    def bump(self, y: Array, hyper: Hyper) -> tuple[Array, Array]:
        """Where in `eta` the likelihood of `y` bends, and how sharply: a centre and a width."""
        del hyper
        return jnp.zeros_like(y), jnp.ones_like(y)

    def predictive_log_prob(self, y: Array, mean: Array, sd: Array, hyper: Hyper) -> Array:
        """`log E p(y | eta)` for `eta ~ N(mean, sd^2)`, one predictor: trapezoids over nodes that
        follow the Gaussian and nodes that follow the likelihood, whichever is narrower."""
        centre, width = self.bump(y, hyper)
        ours = jnp.linspace(-8.0, 8.0, NODES)[:, None]
        theirs = jnp.sinh(jnp.linspace(-12.0, 12.0, NODES))[:, None]
        spread = jnp.maximum(sd, 1e-12 * (1 + jnp.abs(mean)))
        low, high = mean - 38 * spread, mean + 38 * spread  # the normal density underflows there
        nodes = [mean + spread * ours, jnp.clip(centre + width * theirs, low, high)]
        eta = jnp.sort(jnp.concatenate(nodes), axis=0)
        z = (eta - mean) / spread
        value = self.log_prob(y, eta, hyper) - 0.5 * z**2 - 0.5 * math.log(2 * math.pi)
        step = jnp.diff(z, axis=0)
        both = jnp.logaddexp(value[1:], value[:-1]) + jnp.log(0.5 * step)
        return jsp.logsumexp(jnp.where(step > 0, both, -jnp.inf), axis=0)


# Student's t is normal with variance sigma^2 / g, g ~ Gamma(df / 2, df / 2), and Cauchy is its
# df = 1: a normal predictor plus such noise is normal given g. One integral, over u = log g, is
# exact however narrow the noise is.


def _mixture(df: Any) -> tuple[Array, Array]:
    """Values of `g` and the logarithms of their weights."""
    wide = 10 * jnp.sqrt(2 / df)
    u = jnp.linspace(-60 / df - wide, jnp.log1p(wide + 80 / df), NODES)
    log_weight = 0.5 * df * (u - jnp.exp(u))
    return jnp.exp(u), log_weight - jsp.logsumexp(log_weight)


def t_cdf(df: Any, sigma: Array, y: Array, mean: Array, sd: Array) -> Array:
    def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        g, log_share = node
        scale = jnp.sqrt(sd**2 + sigma**2 / g)
        return total + jnp.exp(log_share) * jsp.ndtr((y - mean) / scale), None

    return lax.scan(add, jnp.zeros(jnp.broadcast_shapes(y.shape, mean.shape)), _mixture(df))[0]


def t_log_prob(df: Any, sigma: Array, y: Array, mean: Array, sd: Array) -> Array:
    g, log_share = (part[:, None] for part in _mixture(df))
    scale = jnp.sqrt(sd**2 + sigma**2 / g)
    return jsp.logsumexp(log_share + jst.norm.logpdf(y, mean, scale), axis=0)


class RealLikelihood(Likelihood):
    """For a real target: also a distribution function, from which quantiles come."""

    @abc.abstractmethod
    def cdf(self, y: Array, eta: Array, hyper: Hyper) -> Array:
        """`P(Y <= y | eta)`."""

    def predictive_cdf(self, y: Array, mean: Array, sd: Array, hyper: Hyper) -> Array:
        """`P(Y <= y)` for `eta ~ N(mean, sd^2)`."""
        rule = Quadrature(CDF_NODES).make(np.dtype(np.float64))

        def add(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
            z, weight = node
            return total + weight * self.cdf(y, mean + sd * z, hyper), None

        return lax.scan(add, jnp.zeros_like(y), (rule.z, rule.weights))[0]

    @abc.abstractmethod
    def spread(self, hyper: Hyper) -> Array:
        """A width of the noise, where the search for quantiles begins."""

    def bump(self, y, hyper):
        return y, self.spread(hyper) * jnp.ones_like(y)

    def mean(self, eta, hyper):
        del hyper
        return eta


class Bernoulli(Likelihood):
    """Two classes, `p(y = 1) = sigmoid(eta)`; `y` is 0 or 1."""

    name = "bernoulli"
    discrete = True

    def log_prob(self, y, eta, hyper):
        del hyper
        return jax.nn.log_sigmoid((2 * y - 1) * eta)

    def mean(self, eta, hyper):
        del hyper
        return jax.nn.sigmoid(eta)


class Softmax(Likelihood):
    """K classes, one predictor for each (the last axis of `eta`); `y` is 0, ..., K - 1."""

    n_classes: int = eqx.field(static=True)

    name = "softmax"
    discrete = True

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def log_prob(self, y, eta, hyper):
        del hyper
        chosen = jnp.take_along_axis(eta, y.astype(int)[..., None], axis=-1)[..., 0]
        return chosen - jsp.logsumexp(eta, axis=-1)

    def mean(self, eta, hyper):
        """The probabilities of all classes, on the last axis."""
        del hyper
        return jax.nn.softmax(eta, axis=-1)


class Gaussian(RealLikelihood):
    """`y = eta + sigma e`, `e` normal: the posterior is Gaussian, and every family finds it."""

    name = "gaussian"

    def start(self):
        return {"log_sigma": -1.0}

    def log_prior(self, hyper):
        return noise_prior(hyper["log_sigma"], -1.0)

    def log_prob(self, y, eta, hyper):
        log_sigma = hyper["log_sigma"]
        return (
            -0.5 * ((y - eta) * jnp.exp(-log_sigma)) ** 2 - log_sigma - 0.5 * math.log(2 * math.pi)
        )

    def cdf(self, y, eta, hyper):
        return jsp.ndtr((y - eta) * jnp.exp(-hyper["log_sigma"]))

    def predictive_cdf(self, y, mean, sd, hyper):
        return jsp.ndtr((y - mean) / jnp.sqrt(sd**2 + jnp.exp(2 * hyper["log_sigma"])))

    def predictive_log_prob(self, y, mean, sd, hyper):
        return jst.norm.logpdf(y, mean, jnp.sqrt(sd**2 + jnp.exp(2 * hyper["log_sigma"])))

    def spread(self, hyper):
        return jnp.exp(hyper["log_sigma"])


class Cauchy(RealLikelihood):
    """`y = eta + gamma e`, `e` Cauchy: outliers hardly matter, and no moment exists."""

    name = "cauchy"

    def start(self):
        return {"log_gamma": -2.0}

    def log_prior(self, hyper):
        return noise_prior(hyper["log_gamma"], -2.0)

    def log_prob(self, y, eta, hyper):
        log_gamma = hyper["log_gamma"]
        return -jnp.log1p(((y - eta) * jnp.exp(-log_gamma)) ** 2) - log_gamma - math.log(math.pi)

    def cdf(self, y, eta, hyper):
        return 0.5 + jnp.arctan((y - eta) * jnp.exp(-hyper["log_gamma"])) / math.pi

    def predictive_cdf(self, y, mean, sd, hyper):
        return t_cdf(1.0, jnp.exp(hyper["log_gamma"]), y, mean, sd)

    def predictive_log_prob(self, y, mean, sd, hyper):
        return t_log_prob(1.0, jnp.exp(hyper["log_gamma"]), y, mean, sd)

    def spread(self, hyper):
        return jnp.exp(hyper["log_gamma"])


class StudentT(RealLikelihood):
    """`y = eta + sigma e`, `e` Student-t with `df` degrees of freedom (learnt when None)."""

    df: float | None = eqx.field(static=True, default=4.0)

    name = "student_t"

    def start(self):
        own = {"log_sigma": -1.5}
        return own if self.df is not None else own | {"log_df": math.log(4.0)}

    def log_prior(self, hyper):
        value = noise_prior(hyper["log_sigma"], -1.5)
        return value if self.df is not None else value + normal_logpdf(hyper["log_df"], 1.5, 1.0)

    def _df(self, hyper) -> Float[Array, ""] | float:
        return jnp.exp(hyper["log_df"]) if self.df is None else self.df

    def log_prob(self, y, eta, hyper):
        df, log_sigma = self._df(hyper), hyper["log_sigma"]
        constant = jsp.gammaln((df + 1) / 2) - jsp.gammaln(df / 2) - 0.5 * jnp.log(df * math.pi)
        square = ((y - eta) * jnp.exp(-log_sigma)) ** 2
        return constant - log_sigma - 0.5 * (df + 1) * jnp.log1p(square / df)

    def cdf(self, y, eta, hyper):
        df, t = self._df(hyper), (y - eta) * jnp.exp(-hyper["log_sigma"])
        tail = 0.5 * jsp.betainc(0.5 * df, 0.5, df / (df + t**2))
        return jnp.where(t > 0, 1 - tail, tail)

    def predictive_cdf(self, y, mean, sd, hyper):
        return t_cdf(self._df(hyper), jnp.exp(hyper["log_sigma"]), y, mean, sd)

    def predictive_log_prob(self, y, mean, sd, hyper):
        return t_log_prob(self._df(hyper), jnp.exp(hyper["log_sigma"]), y, mean, sd)

    def spread(self, hyper):
        return jnp.exp(hyper["log_sigma"])


class Poisson(RealLikelihood):
    """Counts with rate `exp(eta)`."""

    name = "poisson"
    discrete = True

    def log_prob(self, y, eta, hyper):
        del hyper
        return y * eta - jnp.exp(eta) - jsp.gammaln(y + 1)

    def mean(self, eta, hyper):
        del hyper
        return jnp.exp(eta)

    def cdf(self, y, eta, hyper):
        del hyper
        count = jnp.floor(jnp.maximum(y, 0.0))
        return jnp.where(y < 0, 0.0, jsp.gammaincc(count + 1, jnp.exp(eta)))

    def spread(self, hyper):
        del hyper
        return jnp.ones(())

    def bump(self, y, hyper):
        del hyper
        return jnp.log(y + 0.5), 1 / jnp.sqrt(y + 1)

    def check(self, y):
        if (y < 0).any() or (y != np.round(y)).any():
            raise InputError('noise="poisson" needs counts: whole numbers that are not negative.')

    def mean_and_sd(self, mean, sd):
        # A log-normal rate.
        rate = np.exp(mean + 0.5 * sd**2)
        return rate, rate * np.sqrt(np.expm1(sd**2))


REAL: dict[str, type[RealLikelihood]] = {
    one.name: one for one in (Gaussian, StudentT, Cauchy, Poisson)
}
