"""Likelihoods: the log density `l(y, eta)` of one observation given its linear predictor(s).

Each is one small class: `log_prob`, the hyperparameters of its own with a start and a weak prior,
and how to predict. Those of the house know their derivatives in closed form, `log_prob` the first
of them; one written with `jax.numpy` gets them from small elementwise kernels (`_by_jax.py`). To
add one: a class with the members that `Likelihood` asks for. A subclass that changes `log_prob`
alone loses its parent's derivatives (`_derived.py`).
"""

import abc
import dataclasses
import math
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from .._arrays._namespace import namespace, special
from .._errors import InputError
from . import _by_jax
from ._derived import is_newer, renew, value_of
from ._integral import log_integral

Hyper = dict[str, Any]
# Sums of exponentials are taken as they are where so many times the smallest number are below them,
# and above them that many times the largest.
MARGIN = 1e10
# What the derivatives of a likelihood of one predictor are, of order 0, 1, ...
Derivatives = list[Any]


# What follows from what: a subclass that changes the first has the others from `Likelihood` again.
_OF_VALUES = ("hyper_slopes", "minorised", "log_concave", "predictive_log_prob")
DERIVED = {
    "log_prob": ("derivatives", "several", "several_hessians", "several_thirds", *_OF_VALUES),
    "derivatives": _OF_VALUES,
    "several": ("several_hessians", "several_thirds"),
    "sigma": ("hyper_slopes", "minorised", "predictive_log_prob", "predictive_cdf"),
    "log_prior": ("log_prior_slopes",),
    "cdf": ("predictive_cdf",),
}


def normal_logpdf(x: Any, mean: Any, sd: float) -> Any:
    return -0.5 * ((x - mean) / sd) ** 2 - math.log(sd * math.sqrt(2 * math.pi))


class Likelihood(abc.ABC):
    """What a likelihood must say. `hyper` holds at least the entries of its own `start`.

    >>> import numpy as np
    >>> from mixvi import models
    >>> value, slope = models.Poisson().derivatives(np.array([2.0]), np.array([0.0]), {}, order=1)
    >>> slope  # y - exp(eta)
    array([1.])
    """

    name: ClassVar[str]
    discrete: ClassVar[bool] = False
    # Log-concave in eta for every y: the posterior of the weights then has one mode.
    log_concave: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        known = cls.log_prob is Likelihood.log_prob or getattr(cls.log_prob, "follows", False)
        if known and is_newer(cls, "derivatives", "log_prob"):
            cls.log_prob = value_of(cls.derivatives)
        renew(cls, {name: its for name, its in DERIVED.items() if hasattr(cls, name)})

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

    def log_prior_slopes(self, hyper: Hyper) -> Hyper:
        """Of `log_prior` in each of them."""
        own = {name: hyper[name] for name in self.start()}
        if not own or type(self).log_prior is Likelihood.log_prior:
            return {name: 0.0 for name in own}
        return _by_jax.evaluated(jax.grad(lambda h: self.log_prior(h) + 0.0), own)

    def log_prob(self, y: Any, eta: Any, hyper: Hyper) -> Any:
        """`log p(y | eta)`; of several predictors these are on the last axis of `eta`. A class that
        gives `derivatives` need not give it."""
        raise InputError(f"{self.name}: a likelihood must have log_prob or derivatives.")

    # --- derivatives, one predictor: elementwise ----------------------------------------------

    def derivatives(self, y: Any, eta: Any, hyper: Hyper, order: int) -> Derivatives:
        """`[l, l', l'', l''']`, up to `order`."""
        return _by_jax.derivatives(self, y, eta, hyper, order)

    def minorised(self, y: Any, eta: Any, hyper: Hyper) -> Any:
        """The curvature of a parabola that touches `l` at `eta` and lies below it everywhere, where
        `l` is not concave; None where none is known."""
        del y, eta, hyper

    def hyper_slopes(
        self, y: Any, eta: Any, hyper: Hyper, order: int, known: Derivatives
    ) -> dict[str, Derivatives]:
        """Of `[l, l', l'']`, up to `order`, in each hyperparameter of its own. `known`: the
        derivatives in `eta` of one order more."""
        del known
        return _by_jax.hyper_slopes(self, y, eta, hyper, order)

    # --- derivatives, K predictors: eta is (n, K, points) -------------------------------------

    def several(self, y: Any, eta: Any, hyper: Hyper, order: int = 1) -> tuple[Any, ...]:
        """Values (n, points) and, unless of order 0, gradients (n, K, points)."""
        return _by_jax.several(self, y, eta, hyper)[: order + 1]

    def several_hessians(self, y: Any, eta: Float[Any, "n k"], hyper: Hyper) -> Any:
        """(n, K, K)."""
        return _by_jax.several_hessians(self, y, eta, hyper)

    def several_thirds(self, y: Any, eta: Float[Any, "n k"], hyper: Hyper, matrix: Any) -> Any:
        """`sum_ij l'''_ijk S_ij` for symmetric matrices `S` (n, K, K): (n, K)."""
        return _by_jax.several_thirds(self, y, eta, hyper, matrix)

    # --- predictions --------------------------------------------------------------------------

    @abc.abstractmethod
    def mean(self, eta: Any, hyper: Hyper) -> Any:
        """`E(y | eta)`, or the location where that does not exist."""

    def mean_and_sd(self, mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of `mean(eta)`, what is predicted, for `eta ~ N(mean, sd^2)`."""
        return mean, sd

    def sample(self, rng: np.random.Generator, eta: np.ndarray, hyper: Hyper) -> np.ndarray:
        """New observations, one for each `eta`."""
        raise InputError(f"{self.name}: this likelihood does not say how to draw observations.")

    def check(self, y: np.ndarray) -> None:  # noqa: B027
        """Raises an `InputError` where a target cannot be."""

    def bump(self, y: Any, hyper: Hyper) -> tuple[Any, Any]:
        """Where in `eta` the likelihood of `y` bends, and how sharply: a centre and a width."""
        del hyper
        return 0 * y, 0 * y + 1.0

    def predictive_log_prob(self, y: Any, mean: Any, sd: Any, hyper: Hyper) -> np.ndarray:
        """`log E p(y | eta)` for `eta ~ N(mean, sd^2)`, one predictor."""
        return log_integral(self, y, mean, sd, hyper)


class Bernoulli(Likelihood):
    """Two classes, `p(y = 1) = sigmoid(eta)`; `y` is 0 or 1.

    >>> import numpy as np
    >>> from mixvi import models
    >>> models.Bernoulli().log_prob(np.array([1.0]), np.array([0.0]), {}).round(4)  # log 1/2
    array([-0.6931])
    """

    name = "bernoulli"
    discrete = True
    log_concave = True

    def derivatives(self, y, eta, hyper, order):
        # With e = exp(-|eta|) and r = 1 / (1 + e) nothing overflows, from one exponential:
        # sigmoid(|eta|) = r, and p (1 - p) = e r^2.
        del hyper
        xp = namespace(eta)
        if xp is np and order < 2 and (found := _logistic_unshifted(y, eta, order)) is not None:
            return found
        e = xp.exp(-abs(eta))
        found = [xp.minimum((2 * y - 1) * eta, 0.0) - xp.log1p(e)]
        if order > 0:
            r = 1 / (1 + e)
            p = xp.where(eta >= 0, r, e * r)
            found.append(y - p)
            if order > 1:
                found.append(-e * r * r)
            if order > 2:
                found.append(found[2] * (1 - 2 * p))
        return found

    def hyper_slopes(self, y, eta, hyper, order, known):
        return {}

    def mean(self, eta, hyper):
        del hyper
        return special(eta).expit(eta)

    def bump(self, y, hyper):
        return 0 * y, 0 * y + math.pi  # the sigmoid's poles are pi from the real line

    def check(self, y):
        if not np.isin(y, (0, 1)).all():
            raise InputError("bernoulli: targets must be 0 or 1.")

    def sample(self, rng, eta, hyper):
        return (rng.random(eta.shape) < self.mean(eta, hyper)).astype(np.float64)


@dataclasses.dataclass(frozen=True)
class Softmax(Likelihood):
    """K classes, one predictor for each (the last axis of `eta`); `y` is 0, ..., K - 1.

    >>> import numpy as np
    >>> from mixvi import models
    >>> models.Softmax(3).mean(np.zeros((1, 3)), {}).round(2)
    array([[0.33, 0.33, 0.33]])
    """

    n_classes: int

    name = "softmax"
    discrete = True
    log_concave = True

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def log_prob(self, y, eta, hyper):
        del hyper
        xp = namespace(eta)
        chosen = xp.take_along_axis(eta, y.astype(int)[..., None], axis=-1)[..., 0]
        return chosen - special(eta).logsumexp(eta, axis=-1)

    def several(self, y, eta, hyper, order=1):
        del hyper
        xp = namespace(eta)
        if xp is np and (found := _several_unshifted(y, eta, order)) is not None:
            return found
        top = eta.max(1, keepdims=True)
        e = xp.exp(eta - top)
        total = e.sum(1, keepdims=True)
        # The chosen class's own exponential may underflow: its predictor is taken as it is.
        chosen = eta[xp.arange(len(y)), y.astype(int)]
        value = chosen - top[:, 0] - xp.log(total[:, 0])
        if order == 0:
            return (value,)
        hit = (y[:, None] == xp.arange(eta.shape[1]))[:, :, None]
        return value, hit - e / total

    def several_hessians(self, y, eta, hyper):
        p = _shares(eta)
        return p[:, :, None] * p[:, None, :] - p[:, :, None] * namespace(p).eye(p.shape[1])

    def several_thirds(self, y, eta, hyper, matrix):
        # -d/d eta_k (sum_i p_i S_ii - p^T S p) at fixed S, with d p_i / d eta_k = p_i (1_ik - p_k)
        xp, p = namespace(eta), _shares(eta)
        diagonal = xp.einsum("nii->ni", matrix)
        along = xp.einsum("nij,nj->ni", matrix, p)
        inner = (p * (diagonal - 2 * along)).sum(1, keepdims=True)
        return p * (inner - diagonal + 2 * along)

    def mean(self, eta, hyper):
        """The probabilities of all classes, on the last axis."""
        del hyper
        return _shares(eta)

    def check(self, y):
        if not np.isin(y, np.arange(self.n_classes)).all():
            raise InputError(f"softmax: targets must be 0, ..., {self.n_classes - 1}.")

    def sample(self, rng, eta, hyper):
        edges = np.cumsum(self.mean(eta, hyper), axis=-1)
        u = rng.random(eta.shape[:-1])
        return np.minimum((u[..., None] > edges).sum(-1), self.n_classes - 1).astype(np.float64)


def _shares(eta: Any) -> Any:
    e = namespace(eta).exp(eta - eta.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _logistic_unshifted(y: Any, eta: Any, order: int) -> Derivatives | None:
    """In fewer passes, and two arrays, where no exponential overflows: with `s = 1 - 2 y`,
    `l = -log(1 + exp(s eta))` and `l' = -s exp(s eta) / (1 + exp(s eta))`."""
    if np.ndim(eta) == 0 or np.shape(eta) != np.broadcast_shapes(np.shape(y), np.shape(eta)):
        return None
    s = (1.0 - 2.0 * np.asarray(y)).astype(eta.dtype)
    e = s * eta
    with np.errstate(over="ignore"):
        np.exp(e, out=e)
    one = e + 1.0
    value = np.log(one)
    if not value.max(initial=0.0) < np.inf:
        return None
    np.negative(value, out=value)
    if order == 0:
        return [value]
    e /= one
    e *= -s
    return [value, e]


def _several_unshifted(y: np.ndarray, eta: np.ndarray, order: int) -> tuple[Any, ...] | None:
    """In fewer passes, and one array, where no exponential overflows and never all of them
    vanish."""
    n, classes = np.arange(len(y)), y.astype(int)
    with np.errstate(over="ignore"):
        e = np.exp(eta)
        total = e.sum(1)
    least = MARGIN * float(np.finfo(total.dtype).tiny)
    if not (total.min(initial=1.0) > least and total.max(initial=1.0) < 1 / least):
        return None
    value = eta[n, classes] - np.log(total)
    if order == 0:
        return (value,)
    e *= (-1 / total)[:, None]
    e[n, classes] += 1
    return value, e
