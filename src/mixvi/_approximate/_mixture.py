"""A mixture of Gaussians with the highest bound: all components improved together.

    q(w) = sum_k pi_k N(w; mu_k, L_k L_k^T),        w_ks = mu_k + L_k z_ks
    ELBO_S = sum_k pi_k mean_s h(w_ks),             h = log p~ - log q

Every component has fixed matched draws of its own. With `pull_k = L_k^T mean_s grad h(w_ks)` and
`bend_k = -sym L_k^T mean_s grad h(w_ks) z_ks^T`, which is `-L_k^T E_k[Hessian of h] L_k` by Stein's
identity, one step is

    L_k^-T L_k^-1 <- L_k^-T (I + rho bend_k) L_k^-1
    mu_k <- mu_k + rho L_k (I + rho bend_k)^-1 pull_k
    log pi_k <- log pi_k + rho mean_s h(w_ks)

the natural gradient of the bound (Lin, Khan and Schmidt 2019); of one component alone it is the
plain Stein step. `grad h` is taken with q held still. What the bound's own slope has besides, the
mean of `d log q / d(mu, L, pi)` at the draws, is zero in expectation, and on few draws nothing but
a way to fit them. Without it the slopes have no noise where q is the posterior itself. `rho` is
halved until the bound over the fixed draws rises, and where no step raises it the search is over.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._draws import FIXED, Draws, generator_of, key_words
from .._arrays._roots import dense
from .._density._protocol import Density
from .._errors import Code, InputError
from .._law._gaussian import Gaussian
from .._law._mixture import GaussianMixture

# Of one step: how far precisions may change, and how far logarithms of weights.
MOST_NARROWER, MOST_WIDER, MOST_WEIGHT = 4.0, 0.25, 1.0
SHORTEST = 1e-3
# Steps over which a search looks back: it ends where they together gained too little.
LOOKS_BACK = 4
# What a weight falls to where a component stands for nothing.
NO_WEIGHT = 1e-3

Vectors = Float[np.ndarray, "components dim"]
Squares = Float[np.ndarray, "components dim dim"]
Zs = Float[np.ndarray, "components n dim"]


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The family of mixtures: several Gaussians, as many as pay, at most `n_components`.

    The fit begins with the best single Gaussian. Modes that were seen become components, and where
    draws say that mass is missing components are added, as long as fresh draws gain. A posterior
    that is Gaussian keeps one.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import mixvi
    >>> def two(w):  # a quarter of the mass is at 0, the rest at 9
    ...     left, right = -0.5 * w["a"] ** 2, -0.5 * (w["a"] - 9.0) ** 2
    ...     return jnp.logaddexp(left, right + jnp.log(3.0))
    >>> post = mixvi.fit(two, {"a": 0.0}, family=mixvi.Mixture())
    >>> np.sort(post.law.weights).round(2), round(float(post.mean["a"]), 2), post.trust
    (array([0.25, 0.75]), 6.75, 'trust')
    """

    n_components: int = 16

    name = "mixture"

    def __post_init__(self):
        n = self.n_components
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"Mixture: n_components must be a positive integer, got {n!r}.")


def asked_for(family: object) -> Mixture | None:
    """The mixture that a user means; None where it is another family."""
    if family is Mixture or (isinstance(family, str) and family == Mixture.name):
        return Mixture()
    return family if isinstance(family, Mixture) else None


@dataclasses.dataclass(frozen=True)
class Components:
    """Logarithms of the weights, means and roots."""

    log_weights: Float[np.ndarray, " components"]
    means: Vectors
    roots: Squares

    def __len__(self) -> int:
        return len(self.log_weights)

    @classmethod
    def of(cls, weights: Float[np.ndarray, " components"], gaussians: list) -> "Components":
        """From pairs of a mean and a root."""
        means, roots = (np.stack([one[i] for one in gaussians]) for i in (0, 1))
        with np.errstate(divide="ignore"):
            return cls(_normal(np.log(weights)), means, roots)

    @property
    def weights(self) -> Float[np.ndarray, " components"]:
        return np.exp(self.log_weights)

    @property
    def law(self) -> GaussianMixture | Gaussian:
        parts = tuple(Gaussian(*one) for one in zip(self.means, self.roots, strict=True))
        return parts[0] if len(parts) == 1 else GaussianMixture(self.weights, parts)

    def and_also(self, weight: float, mean: np.ndarray, root: np.ndarray) -> "Components":
        """With one more, of this weight."""
        logs = np.append(self.log_weights + math.log1p(-weight), math.log(weight))
        means = np.concatenate([self.means, mean[None]])
        return Components(logs, means, np.concatenate([self.roots, root[None]]))

    def those(self, kept: np.ndarray) -> "Components":
        return Components(_normal(self.log_weights[kept]), self.means[kept], self.roots[kept])


@dataclasses.dataclass(frozen=True)
class MixtureShape:
    """What one pass over the draws shows of a mixture. `each`: the mean of `h` over the draws of
    every component; `pull`, `bend`: of every component, in its own standard deviations; `steep`:
    `L_k^T mean_s [grad h grad h^T] L_k`, along whose axes `h` changes most. `log_p`, `gradients`:
    of the density, which components that do not move keep."""

    elbo: float
    each: Float[np.ndarray, " components"]
    pull: Vectors
    bend: Squares
    steep: Squares
    log_ratio: Float[np.ndarray, "components n"]
    at: Components
    log_p: Float[np.ndarray, "components n"]
    gradients: Zs

    def holds(self, at: Components, n: int) -> np.ndarray:
        """Which components stand where they stood, over as many draws."""
        both = min(len(at), len(self.at)) if n == self.log_p.shape[1] else 0
        same = np.zeros(len(at), bool)
        for k in range(both):
            same[k] = np.array_equal(at.means[k], self.at.means[k]) and np.array_equal(
                at.roots[k], self.at.roots[k]
            )
        return same

    @property
    def finite(self) -> bool:
        return math.isfinite(self.elbo) and bool(np.isfinite(self.bend).all())


def shape_of(
    density: Density, at: Components, z: Zs, before: MixtureShape | None = None
) -> MixtureShape:
    """`before`: of components some of which are the same, over the same draws: the density is asked
    at the draws of the others alone."""
    n_components, n, dim = z.shape
    points = at.means[:, None] + z @ at.roots.transpose(0, 2, 1)
    log_p, gradients = np.empty((n_components, n)), np.empty(z.shape)
    same = np.zeros(n_components, bool) if before is None else before.holds(at, n)
    if before is not None:
        kept = np.flatnonzero(same)
        log_p[kept], gradients[kept] = before.log_p[kept], before.gradients[kept]
    if not same.all():
        values, slopes = density.gradients(points[~same].reshape(-1, dim))
        log_p[~same], gradients[~same] = values.reshape(-1, n), slopes.reshape(-1, n, dim)
    log_q, own_gradients = log_mixture(at, points.reshape(-1, dim))
    log_ratio = log_p - log_q.reshape(n_components, n)
    slopes = (gradients - own_gradients.reshape(z.shape)) @ at.roots
    each = log_ratio.mean(1)
    cross = slopes.transpose(0, 2, 1) @ z / n
    return MixtureShape(
        elbo=float(at.weights @ each) if np.isfinite(log_ratio).all() else -math.inf,
        each=each,
        pull=slopes.mean(1),
        bend=-0.5 * (cross + cross.transpose(0, 2, 1)),
        steep=slopes.transpose(0, 2, 1) @ slopes / n,
        log_ratio=log_ratio,
        at=at,
        log_p=log_p,
        gradients=gradients,
    )


def log_mixture(
    at: Components, points: Float[np.ndarray, "n dim"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
    """`log q` and its gradient, `-sum_k r_k(w) L_k^-T L_k^-1 (w - mu_k)` with `r_k` the share of
    component k in `q(w)`."""
    dim = points.shape[1]
    inverse = np.linalg.inv(at.roots)
    log_dets = np.linalg.slogdet(at.roots)[1]
    z = np.stack([(points - at.means[k]) @ inverse[k].T for k in range(len(at))])
    level = at.log_weights - log_dets - 0.5 * dim * math.log(2 * math.pi)
    parts = level[:, None] - 0.5 * np.einsum("knd,knd->kn", z, z)
    log_q = np.logaddexp.reduce(parts, axis=0)
    shares = np.exp(parts - log_q)
    pulled = (-(shares[k][:, None] * z[k]) @ inverse[k] for k in range(len(at)))
    return log_q, sum(pulled, np.zeros_like(points))


@dataclasses.dataclass(frozen=True)
class MixtureState:
    """A mixture on its way, and how the search over these draws ended."""

    density: Density
    at: Components
    shape: MixtureShape
    n_draws: int
    gain_left: float
    code: Code
    # hyperparameters that an earlier search has learnt, at which the density is taken
    learnt: Any = None

    @property
    def mean(self) -> Float[np.ndarray, " dim"]:
        return self.at.law.mean

    @property
    def root(self) -> Float[np.ndarray, "dim dim"]:
        """Of its own covariance."""
        return dense(self.at.law.root)

    @property
    def elbo(self) -> float:
        return self.shape.elbo

    @property
    def gradient(self) -> float:
        """The largest, per standard deviation."""
        return float(max(np.abs(self.shape.pull).max(), np.abs(self.shape.bend).max()))


def draws_for(key: object, n_components: int, spec: Draws, dim: int) -> Zs:
    """Others for every component."""
    words = key_words(key)
    made = (spec.points(generator_of((*words, k), FIXED), dim) for k in range(n_components))
    return np.stack(list(made))


def improved(
    density: Density,
    at: Components,
    z: Zs,
    gain: float,
    most_steps: int,
    before: MixtureShape | None = None,
    moving: np.ndarray | None = None,
) -> MixtureState:
    """Natural steps until the last few together gain less than `gain` nats. `moving`: the means and
    roots that take part; weights all do."""
    shape, rho = shape_of(density, at, z, before), 1.0
    bounds, code, left = [shape.elbo], Code.BOUND_OUT_OF_STEPS, math.inf
    for _ in range(most_steps):
        at_next, shape_next, rho = _risen(density, at, z, shape, rho, moving)
        if shape_next is None:
            code, left = Code.OK, 0.0
            break
        at, shape = at_next, shape_next
        bounds.append(shape.elbo)
        if len(bounds) > LOOKS_BACK:
            left = bounds[-1] - bounds[-1 - LOOKS_BACK]
            if left < gain:
                code = Code.OK
                break
        rho = min(1.0, 2 * rho)
    return MixtureState(density, at, shape, z.shape[1], left, code)


def _risen(
    density: Density,
    at: Components,
    z: Zs,
    shape: MixtureShape,
    rho: float,
    moving: np.ndarray | None,
) -> tuple[Components, MixtureShape | None, float]:
    """The next components, over which the bound is higher; no shape where no step finds any."""
    while rho >= SHORTEST:
        there = stepped(at, shape, rho, moving)
        found = shape_of(density, there, z, shape)
        if found.finite and found.elbo > shape.elbo:
            return there, found, rho
        rho *= 0.5
    return at, None, rho


def stepped(
    at: Components, shape: MixtureShape, rho: float, moving: np.ndarray | None = None
) -> Components:
    eye = np.eye(at.means.shape[1])
    values, vectors = np.linalg.eigh(eye + rho * shape.bend)
    values = np.clip(values, MOST_WIDER, MOST_NARROWER)[:, None, :]
    turned = vectors.transpose(0, 2, 1)
    shift = (vectors / values) @ (turned @ shape.pull[..., None])
    means = at.means + rho * (at.roots @ shift)[..., 0]
    roots = at.roots @ ((vectors / np.sqrt(values)) @ turned)
    if moving is not None:
        means = np.where(moving[:, None], means, at.means)
        roots = np.where(moving[:, None, None], roots, at.roots)
    more = np.clip(rho * (shape.each - at.weights @ shape.each), -MOST_WEIGHT, MOST_WEIGHT)
    return Components(_normal(at.log_weights + more), means, roots)


def _normal(log_weights: Float[np.ndarray, " components"]) -> Float[np.ndarray, " components"]:
    return log_weights - np.logaddexp.reduce(log_weights)
