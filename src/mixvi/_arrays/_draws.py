"""The fixed draws: iid (the paper), matched (the default), scrambled Sobol.

They are made on the host from the key alone, so they are the same on every backend.
"""

import abc
import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._errors import InputError
from ._sobol import MOST_DIMS, sobol_normal

# Independent streams from one key: what is adapted to must not be what judges it.
FIXED, FRESH, PROBES, SAMPLE, WIDER, RESTARTS, NODES, OTHER_NODES = range(8)
WEIGHED, WIDE_STARTS, DIRECTED, FAR, AXES, MIXED = range(8, 14)
# The last word of every seed of ours. NumPy ignores zeros at the end of a seed, so without it
# `default_rng([key, FIXED])` would be `default_rng(key)`: the generator of many users' own data.
OURS = 0x6D697876
# Of points for several predictors, at which observations take turns.
SETS = 32
MOST_SOBOL = 21201  # dimensions, SciPy's


def generator(key: Any, stream: int) -> np.random.Generator:
    return generator_of(key_words(key), stream)


def generator_of(words: tuple[int, ...], stream: int) -> np.random.Generator:
    return np.random.default_rng([*words, stream, OURS])


def key_words(key: Any) -> tuple[int, ...]:
    """An int or a JAX key (typed or raw) as non-negative integers."""
    if isinstance(key, bool) or not isinstance(key, int | np.integer | jax.Array | np.ndarray):
        raise InputError(f"key must be an integer or a JAX key, not {type(key).__name__}.")
    if isinstance(key, int | np.integer):
        if key < 0:
            raise InputError(f"key must not be negative, got {key}.")
        return (int(key),)
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    words = np.asarray(key)
    if words.dtype.kind not in "iu":
        raise InputError(f"key must be an integer or a JAX key, not an array of {words.dtype}.")
    return tuple(int(word) for word in words.reshape(-1))


def _check_number(n: Any, what: str, least: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise InputError(f"the number of {what} must be an integer, not {n!r}.")
    if n < least:
        raise InputError(f"the number of {what} must be at least {least}, got {n}.")


@dataclasses.dataclass(frozen=True)
class Draws(abc.ABC):
    """`n` points that stand for a standard normal in the bound.

    >>> import mixvi
    >>> mixvi.Matched(256).make(key=0, dim=3).shape  # the same points for the same key
    (256, 3)
    """

    n: int

    kind: ClassVar[str]

    def __post_init__(self):
        _check_number(self.n, "draws", least=2)

    @abc.abstractmethod
    def refusal(self, dim: int, updates_root: bool) -> str | None:
        """Why these draws cannot work in `dim` dimensions, or None."""

    @abc.abstractmethod
    def points(self, rng: np.random.Generator, dim: int) -> np.ndarray:
        """An array (n, dim)."""

    def doubled(self) -> "Draws":
        return type(self)(2 * self.n)

    def make(self, key: Any, dim: int, stream: int = FIXED, dtype: Any = np.float64) -> np.ndarray:
        """The same array for equal arguments."""
        return _cached(self, key_words(key), dim, stream, np.dtype(dtype))


@functools.lru_cache(maxsize=6)
def _cached(
    draws: Draws, words: tuple[int, ...], dim: int, stream: int, dtype: np.dtype
) -> np.ndarray:
    points = draws.points(generator_of(words, stream), dim)
    points = points.astype(dtype, copy=False)
    points.setflags(write=False)
    return points


def _null_space_refusal(kind: str, n: int, dim: int, updates_root: bool) -> str | None:
    # ELBO_S of a root update is unbounded when the centred draws miss a direction: widening
    # the root along it moves no draw and raises log|det A| for ever.
    if updates_root and n <= dim + 1:
        return (
            f"{n} {kind} draws cannot fix a family that changes the whole root in {dim} "
            f"dimensions: the bound has no maximum unless there are more than {dim + 1}. Use more "
            f'(draws={2 * dim + 2} or above), or family="eig".'
        )
    return None


class IID(Draws):
    """Independent standard normal draws, as in the paper (which uses 1000).

    >>> import mixvi
    >>> post = mixvi.fit(lambda w: -0.5 * w**2, 0.0, family="mu", draws=mixvi.IID(1000))
    >>> post.stats.draws_kind, post.stats.draws
    ('iid', 1000)
    """

    kind = "iid"

    def refusal(self, dim: int, updates_root: bool) -> str | None:
        return _null_space_refusal(self.kind, self.n, dim, updates_root)

    def points(self, rng: np.random.Generator, dim: int) -> np.ndarray:
        return rng.standard_normal((self.n, dim))


class Matched(Draws):
    """Pairs `z, -z` whose mean is 0 and whose covariance is I exactly.

    The bound is then exact for a quadratic target and hardly over-fits for others. In up to 50
    dimensions one of each pair comes from scrambled Sobol points, which stand for the rest of the
    normal far better than independent draws do (in two dimensions ten times); above, the points
    take long to make and gain nothing.

    >>> import numpy as np
    >>> import mixvi
    >>> z = mixvi.Matched(64).make(key=0, dim=4)
    >>> bool(np.allclose(z.mean(0), 0)), bool(np.allclose(z.T @ z / 64, np.eye(4)))
    (True, True)
    """

    kind = "matched"

    def refusal(self, dim: int, updates_root: bool) -> str | None:
        del updates_root
        if self.n % 2:
            return f"matched draws come in pairs: {self.n} is odd, take {self.n + 1}."
        if self.n // 2 <= dim:
            return (
                f"{self.n} matched draws are {self.n // 2} pairs, which cannot have unit "
                f"covariance in {dim} dimensions: take at least {2 * dim + 2}, or "
                f"mixvi.Sobol({self.n}) with the families mu, eig or diag."
            )
        return None

    def points(self, rng: np.random.Generator, dim: int) -> np.ndarray:
        n = self.n // 2
        few = dim <= MOST_DIMS
        half = sobol_normal(rng, n, dim) if few else rng.standard_normal((n, dim))
        values, vectors = np.linalg.eigh(half.T @ half / len(half))
        half = half @ (vectors / np.sqrt(values)) @ vectors.T
        return np.concatenate([half, -half])


class Sobol(Draws):
    """Scrambled Sobol points through the normal quantile: where pairs cannot be had.

    >>> import mixvi
    >>> z = mixvi.Sobol(64).make(key=0, dim=100)  # fewer points than dimensions
    >>> z.shape, bool(abs(z.mean()) < 0.05)
    ((64, 100), True)
    """

    kind = "Sobol"

    def refusal(self, dim: int, updates_root: bool) -> str | None:
        if dim > MOST_SOBOL:
            return f"Sobol points exist up to {MOST_SOBOL} dimensions, not {dim}: use mixvi.IID."
        return _null_space_refusal(self.kind, self.n, dim, updates_root)

    def points(self, rng: np.random.Generator, dim: int) -> np.ndarray:
        made = sobol_normal if dim <= MOST_DIMS else _many_sobol_normal
        return made(rng, self.n, dim)


class Nodes(NamedTuple):
    """A rule for N(0, 1): `E f(z)` is about `sum_i weights_i f(z_i)`; or several for N(0, I_K)."""

    z: Float[Any, " nodes"] | Float[Any, "nodes sets k"]
    weights: Float[Any, " nodes"]


@dataclasses.dataclass(frozen=True)
class Quadrature:
    """Integration over the predictors of a `LinearPredictor`: `n` nodes.

    One predictor: equally spaced nodes. The trapezoidal rule with Gaussian weights converges
    exponentially for analytic functions, at any width: its error is about `exp(-2 pi d / h)`, `d`
    the distance of the function's nearest singularity from the real line and `h` the spacing, both
    in standard deviations of the predictor. Gauss-Hermite with as many nodes is a hundred times
    less exact where that matters.

    K predictors: matched Sobol points in K dimensions, always the same ones. Observations take
    turns at 32 sets of them (`LinearPredictor(turns=...)`), so that the errors of many do not add
    up.

    >>> import jax
    >>> import numpy as np
    >>> import mixvi
    >>> label = np.array([1.0, 1.0, -1.0, 1.0])
    >>> def log_likelihood(eta):
    ...     return jax.nn.log_sigmoid(label * eta)
    >>> model = mixvi.LinearPredictor(np.ones((4, 1)), log_likelihood, 1.0)
    >>> post = mixvi.fit(model, np.zeros(1), draws=mixvi.Quadrature(64), family="eig")
    >>> post.stats.draws_kind, post.stats.draws
    ('quadrature', 64)
    """

    n: int

    kind: ClassVar[str] = "quadrature"

    def __post_init__(self):
        _check_number(self.n, "nodes", least=16)

    def doubled(self) -> "Quadrature":
        return Quadrature(2 * self.n)

    @functools.lru_cache(maxsize=32)  # noqa: B019
    def make(self, dtype: np.dtype, dim: int = 1, stream: int = NODES) -> Nodes:
        """Another `stream` makes other points for several predictors."""
        if dim > 1:
            points = Matched(self.n)
            if points.refusal(dim, updates_root=False) is not None:
                raise InputError(
                    f"{self.n} nodes cannot stand for {dim} predictors: take an even number of at "
                    f"least {2 * dim + 2}."
                )
            rngs = [generator_of((one,), stream) for one in range(SETS)]
            z = np.stack([points.points(rng, dim) for rng in rngs], axis=1)
            return Nodes(z.astype(dtype), np.full(self.n, 1 / self.n, dtype))
        # Beyond 7.5 standard deviations lies 6e-14 of the mass.
        z = np.linspace(-7.5, 7.5, self.n)
        weights = np.exp(-0.5 * z**2)
        return Nodes(z.astype(dtype), (weights / weights.sum()).astype(dtype))


def _many_sobol_normal(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    """SciPy's points, for more dimensions than ours have."""
    from scipy import special, stats  # takes 0.6 s, and few need it

    engine = stats.qmc.Sobol(dim, scramble=True, bits=52, rng=rng)
    # Whole powers of two are balanced; the first n of them are taken.
    uniform = engine.random_base2(math.ceil(math.log2(n)))[:n]
    tiny = 2.0**-53
    return special.ndtri(np.clip(uniform, tiny, 1 - tiny))


def default_draws(dim: int, updates_root: bool, memory: int) -> Draws:
    """Matched, starting at max(256, 4 D), where a power of two is balanced; Sobol where an array of
    that size breaks the budget."""
    n = max(256, 4 * dim)
    if 8 * n * dim <= memory // 4:
        return Matched(n)
    if updates_root:
        raise InputError(
            f"a family that changes the whole root needs more draws than dimensions: {n} draws in "
            f"{dim} dimensions are {8 * n * dim / 2**30:.1f} GiB, a quarter of memory= is "
            f'{memory / 2**32:.1f} GiB. Raise memory=, or use family="eig".'
        )
    # A power of two is balanced.
    return Sobol(2 ** int(np.clip(math.log2(max(1, memory // (32 * dim))), 5, 10)))
