"""Likelihoods of numbers: noise around a location, and counts. They also know their quantiles.

Of noise around a location, `l = g((y - eta) / sigma) - log sigma`, every derivative in `log sigma`
follows from those in `eta`:

    d l^(k) / d log sigma = (y - eta) l^(k+1) - k l^(k) - [k = 0]
"""

import abc
import dataclasses
import math
from typing import Any, ClassVar

import numpy as np

from .._arrays._draws import Quadrature
from .._arrays._namespace import namespace, special
from .._errors import InputError
from ._integral import log_sum
from ._likelihoods import Derivatives, Hyper, Likelihood, normal_logpdf

CDF_NODES, MOST_NODES = 256, 2048
LOG_FLOOR, STEEP = math.log(1e-3), 8.0


class RealLikelihood(Likelihood):
    """For a real target: also a distribution function, from which quantiles come.

    >>> import numpy as np
    >>> from mixvi import models
    >>> models.StudentT().cdf(np.array([0.0]), np.array([0.0]), {"log_sigma": 0.0}).round(2)
    array([0.5])
    """

    @abc.abstractmethod
    def cdf(self, y: Any, eta: Any, hyper: Hyper) -> Any:
        """`P(Y <= y | eta)`."""

    def predictive_cdf(self, y: Any, mean: Any, sd: Any, hyper: Hyper) -> np.ndarray:
        """`P(Y <= y)` for `eta ~ N(mean, sd^2)`."""
        rule = Quadrature(CDF_NODES).make(np.dtype(np.float64))
        total = np.zeros(np.broadcast_shapes(np.shape(y), np.shape(mean)))
        for z, weight in zip(rule.z, rule.weights, strict=True):
            total += weight * np.asarray(self.cdf(y, mean + sd * z, hyper))
        return total

    @abc.abstractmethod
    def spread(self, hyper: Hyper) -> Any:
        """A width of the noise, where the search for quantiles begins."""

    def bump(self, y, hyper):
        return y, self.spread(hyper) + 0 * y

    def mean(self, eta, hyper):
        del hyper
        return eta


class LocationScale(RealLikelihood):
    """`y = eta + sigma e`; `scale` names `log sigma` among the hyperparameters, `usual` is where
    one would look for it.

    >>> from mixvi import models
    >>> isinstance(models.Cauchy(), models.LocationScale), models.Cauchy().start()
    (True, {'log_gamma': -2.0})
    """

    scale: ClassVar[str] = "log_sigma"
    usual: ClassVar[float] = -1.0

    def start(self):
        return {self.scale: self.usual}

    def log_prior(self, hyper):
        """Weak, with a floor near a thousandth of the target's scale: rows that a basis can
        interpolate would otherwise be explained by no noise at all, with unbounded evidence. It is
        steep, since n rows push against it with n nats for every e-fold."""
        log_scale = hyper[self.scale]
        floor = 0.5 * namespace(log_scale).exp(-STEEP * (log_scale - LOG_FLOOR))
        return normal_logpdf(log_scale, self.usual, 2.0) - floor

    def log_prior_slopes(self, hyper):
        log_scale = hyper[self.scale]
        return {
            self.scale: (self.usual - log_scale) / 4.0
            + 0.5 * STEEP * namespace(log_scale).exp(-STEEP * (log_scale - LOG_FLOOR))
        }

    def sigma(self, hyper: Hyper) -> Any:
        return namespace(hyper[self.scale]).exp(hyper[self.scale])

    def spread(self, hyper):
        return self.sigma(hyper)

    def hyper_slopes(self, y, eta, hyper, order, known):
        away = y - eta
        own = [away * known[k + 1] - k * known[k] for k in range(order + 1)]
        own[0] = own[0] - 1
        return {self.scale: own}


class Gaussian(LocationScale):
    """`y = eta + sigma e`, `e` normal: the posterior is Gaussian, and every family finds it.

    >>> import numpy as np
    >>> from mixvi import models
    >>> zero = np.zeros(1)
    >>> models.Gaussian().log_prob(zero, zero, {"log_sigma": 0.0}).round(4)  # -log sqrt(2 pi)
    array([-0.9189])
    """

    name = "gaussian"
    log_concave = True

    def derivatives(self, y, eta, hyper, order):
        precision = 1 / self.sigma(hyper) ** 2
        slope = (y - eta) * precision
        value = -0.5 * (y - eta) * slope - hyper[self.scale] - 0.5 * math.log(2 * math.pi)
        return [value, slope, 0 * slope - precision, 0 * slope][: order + 1]

    def cdf(self, y, eta, hyper):
        return special(eta).ndtr((y - eta) / self.sigma(hyper))

    def predictive_cdf(self, y, mean, sd, hyper):
        return special(mean).ndtr((y - mean) / (sd**2 + self.sigma(hyper) ** 2) ** 0.5)

    def predictive_log_prob(self, y, mean, sd, hyper):
        return _normal(y - mean, sd**2 + self.sigma(hyper) ** 2)

    def sample(self, rng, eta, hyper):
        return eta + self.sigma(hyper) * rng.standard_normal(eta.shape)


def is_gaussian(likelihood: Likelihood) -> bool:
    """Whether Laplace's Gaussian is the posterior itself (a subclass may have other values)."""
    return type(likelihood).log_prob is Gaussian.log_prob


@dataclasses.dataclass(frozen=True)
class StudentT(LocationScale):
    """`y = eta + sigma e`, `e` Student-t with `df` degrees of freedom (learnt when None).

    >>> import numpy as np
    >>> from mixvi import models
    >>> far = np.array([10.0])  # an outlier that costs a normal 51 nats
    >>> models.StudentT().log_prob(far, 0 * far, {"log_sigma": 0.0}).round(1)
    array([-9.1])
    """

    df: float | None = 4.0

    name = "student_t"
    usual = -1.5

    def start(self):
        own = super().start()
        return own if self.df is not None else own | {"log_df": math.log(4.0)}

    def log_prior(self, hyper):
        value = super().log_prior(hyper)
        return value if self.df is not None else value + normal_logpdf(hyper["log_df"], 1.5, 1.0)

    def log_prior_slopes(self, hyper):
        slopes = super().log_prior_slopes(hyper)
        return slopes if self.df is not None else slopes | {"log_df": 1.5 - hyper["log_df"]}

    def _df(self, hyper: Hyper) -> Any:
        return namespace(hyper["log_df"]).exp(hyper["log_df"]) if self.df is None else self.df

    def derivatives(self, y, eta, hyper, order):
        xp, df, sigma = namespace(eta), self._df(hyper), self.sigma(hyper)
        u = (y - eta) / sigma
        whole = df + u * u
        found = [self._constant(df) - hyper[self.scale] - 0.5 * (df + 1) * xp.log1p(u * u / df)]
        if order > 0:
            found.append((df + 1) / sigma * u / whole)
        if order > 1:
            found.append((df + 1) / sigma**2 * (u * u - df) / whole**2)
        if order > 2:
            found.append((df + 1) / sigma**3 * 2 * u * (u * u - 3 * df) / whole**3)
        return found

    def minorised(self, y, eta, hyper):
        # log(1 + u^2 / df) is concave in u^2: the EM algorithm of a mixture of normals.
        df, sigma = self._df(hyper), self.sigma(hyper)
        return (df + 1) / (sigma**2 * df + (y - eta) ** 2)

    @staticmethod
    def _constant(df: Any) -> Any:
        gammaln, xp = special(df).gammaln, namespace(df)
        return gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * xp.log(df * math.pi)

    def hyper_slopes(self, y, eta, hyper, order, known):
        slopes = super().hyper_slopes(y, eta, hyper, order, known)
        return slopes if self.df is not None else slopes | {"log_df": self._in_df(y, eta, hyper)}

    def _in_df(self, y: Any, eta: Any, hyper: Hyper) -> Derivatives:
        xp, df, sigma = namespace(eta), self._df(hyper), self.sigma(hyper)
        digamma = special(df).digamma
        square = ((y - eta) / sigma) ** 2
        u, whole = (y - eta) / sigma, df + square
        constant = 0.5 * (digamma((df + 1) / 2) - digamma(df / 2) - 1 / df)
        tail = -0.5 * xp.log1p(square / df) + 0.5 * (df + 1) * square / (df * whole)
        bent = (2 * df + 1 - square) * whole - 2 * (df + 1) * (df - square)
        return [
            df * (constant + tail),
            df * u * (square - 1) / (sigma * whole**2),
            -df * bent / (sigma**2 * whole**3),
        ]

    def cdf(self, y, eta, hyper):
        df, t = self._df(hyper), (y - eta) / self.sigma(hyper)
        tail = 0.5 * special(t).betainc(0.5 * df, 0.5, df / (df + t**2))
        return namespace(t).where(t > 0, 1 - tail, tail)

    def predictive_cdf(self, y, mean, sd, hyper):
        return _t_cdf(self._df(hyper), self.sigma(hyper), y, mean, sd)

    def predictive_log_prob(self, y, mean, sd, hyper):
        return _t_log_prob(self._df(hyper), self.sigma(hyper), y, mean, sd)

    def sample(self, rng, eta, hyper):
        return eta + self.sigma(hyper) * rng.standard_t(self._df(hyper), eta.shape)


@dataclasses.dataclass(frozen=True)
class Cauchy(StudentT):
    """`y = eta + gamma e`, `e` Cauchy: outliers hardly matter, and no moment exists.

    >>> import numpy as np
    >>> from mixvi import models
    >>> one = np.ones(1)
    >>> models.Cauchy().cdf(one, 0 * one, {"log_gamma": 0.0}).round(2)
    array([0.75])
    """

    name = "cauchy"
    scale = "log_gamma"
    usual = -2.0

    df: float | None = 1.0

    predictive_cdf = StudentT.predictive_cdf

    def cdf(self, y, eta, hyper):
        return 0.5 + namespace(eta).arctan((y - eta) / self.sigma(hyper)) / math.pi


# Student's t is normal with variance sigma^2 / g, g ~ Gamma(df / 2, df / 2), and Cauchy is its
# df = 1: a normal predictor plus such noise is normal given g. One integral, over u = log g, is
# exact however narrow the noise is.


def _mixture(df: Any, away: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Values of `g` and the logarithms of their weights; far away, at so many `sigma`, much smaller
    values matter."""
    df = float(df)
    wide = 10 * math.sqrt(2 / df)
    low = -60 / df - wide - math.log1p(away**2 / df)
    high = math.log1p(wide + 80 / df)
    # exp(-(df / 2) exp(u)) decays up to i pi / 2 from the real line, and has its own width.
    step = min(0.25, 0.5 * math.sqrt(2 / df))
    u = np.linspace(low, high, min(math.ceil((high - low) / step), MOST_NODES))
    log_weight = 0.5 * df * (u - np.exp(u))
    return np.exp(u), log_weight - log_sum(log_weight)


def _t_cdf(df: Any, sigma: Any, y: Any, mean: Any, sd: Any) -> np.ndarray:
    from scipy.special import ndtr

    total = np.zeros(np.broadcast_shapes(np.shape(y), np.shape(mean)))
    for g, log_share in zip(*_mixture(df), strict=True):
        total += math.exp(log_share) * ndtr((y - mean) / np.sqrt(sd**2 + sigma**2 / g))
    return total


def _t_log_prob(df: Any, sigma: Any, y: Any, mean: Any, sd: Any) -> np.ndarray:
    away = float(np.max(np.abs(y - mean) / sigma, initial=0.0))
    g, log_share = (part[:, None] for part in _mixture(df, away))
    return log_sum(log_share + _normal(y - mean, sd**2 + sigma**2 / g))


def _normal(away: Any, variance: Any) -> Any:
    return -0.5 * (away**2 / variance + np.log(2 * math.pi * variance))


class Poisson(RealLikelihood):
    """Counts with rate `exp(eta)`.

    >>> import numpy as np
    >>> from mixvi import models
    >>> models.Poisson().mean(np.array([0.0, 1.0]), {}).round(2)
    array([1.  , 2.72])
    """

    name = "poisson"
    discrete = True
    log_concave = True

    def derivatives(self, y, eta, hyper, order):
        del hyper
        with np.errstate(over="ignore"):  # far from the mode, where a search only looks
            rate = namespace(eta).exp(eta)
        value = y * eta - rate - special(eta).gammaln(y + 1)
        return [value, y - rate, -rate, -rate][: order + 1]

    def hyper_slopes(self, y, eta, hyper, order, known):
        return {}

    def mean(self, eta, hyper):
        del hyper
        return namespace(eta).exp(eta)

    def cdf(self, y, eta, hyper):
        del hyper
        xp = namespace(eta)
        count = xp.floor(xp.maximum(y, 0.0))
        return xp.where(y < 0, 0.0, special(eta).gammaincc(count + 1, xp.exp(eta)))

    def spread(self, hyper):
        del hyper
        return 1.0

    def bump(self, y, hyper):
        del hyper
        return np.log(y + 0.5), 0 * y + 0.5 * math.pi  # exp(-exp(eta)) grows beyond i pi / 2

    def check(self, y):
        if (y < 0).any() or (y != np.round(y)).any():
            raise InputError('noise="poisson" needs counts: whole numbers that are not negative.')

    def mean_and_sd(self, mean, sd):
        # A log-normal rate.
        rate = np.exp(mean + 0.5 * sd**2)
        return rate, rate * np.sqrt(np.expm1(sd**2))

    def sample(self, rng, eta, hyper):
        return rng.poisson(np.minimum(self.mean(eta, hyper), 1e15)).astype(np.float64)


REAL: dict[str, type[RealLikelihood]] = {
    one.name: one for one in (Gaussian, StudentT, Cauchy, Poisson)
}
