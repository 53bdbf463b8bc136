"""What a parameter can be bound to: the map `x = T(u)` from an unbounded space, back, its Jacobian.

The maps are written once over an array namespace: `jnp` in traced code, `np` on the host, where
their derivatives are written out.
"""

import abc
import dataclasses
import math
import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._errors import InputError
from ._structure import listed

ON_SIMPLEX = 1e-6


# Of JAX in traced code, of NumPy on the host (there in float64).
Numbers = Float[Any, "..."]


def _most_exp(dtype: Any) -> float:
    return 0.98 * math.log(np.finfo(dtype).max)


def _bounded_exp(u: Numbers, xp: Any) -> Numbers:
    """`exp` that neither overflows nor reaches zero, with a finite derivative everywhere."""
    most = _most_exp(u.dtype)
    return xp.exp(xp.clip(u, -most, most))


def _bounded_exp_slope(u: Numbers) -> Numbers:
    return np.where(np.abs(u) > _most_exp(np.float64), 0.0, _bounded_exp(u, np))


def _sigmoid(u: Numbers, xp: Any) -> Numbers:
    if xp is jnp:
        return jax.nn.sigmoid(u)
    small = np.exp(-np.abs(u))
    return np.where(u < 0, small, 1.0) / (1.0 + small)


def _log_sigmoid(u: Numbers, xp: Any) -> Numbers:
    return jax.nn.log_sigmoid(u) if xp is jnp else -np.logaddexp(0.0, -u)


def _times(slope: Numbers, g: Numbers) -> Numbers:
    """`slope g`; what does not move has no gradient, however steep the density (0 inf = 0)."""
    return np.where(slope == 0, 0.0, slope * g)


def _summed_after(g: Numbers) -> Numbers:
    """`sum_{k >= j} g_k` over the last axis."""
    return np.cumsum(g[..., ::-1], -1)[..., ::-1]


@dataclasses.dataclass(frozen=True)
class Kind(abc.ABC):
    """What one leaf is bound to. Axes before those of the leaf are kept everywhere."""

    def free_shape(self, shape: tuple[int, ...], path: str) -> tuple[int, ...]:
        """Of the unbounded numbers; refuses a leaf that cannot be of this kind."""
        del path
        return shape

    @abc.abstractmethod
    def free_path(self, path: str) -> str:
        """What the unbounded numbers are called."""

    @abc.abstractmethod
    def constrain(self, u: Numbers, xp: Any = jnp) -> Numbers: ...

    @abc.abstractmethod
    def log_det(self, u: Numbers, xp: Any = jnp) -> Numbers:
        """`log |det dT/du|` by entry, or by last axis where entries depend on each other."""

    # With `J = dT/du`, for any `g` over bounded and `v` over unbounded numbers:

    @abc.abstractmethod
    def push(self, u: Numbers, v: Numbers) -> Numbers:
        """`J v`."""

    @abc.abstractmethod
    def pull_back(self, u: Numbers, g: Numbers) -> Numbers:
        """`J^T g`."""

    @abc.abstractmethod
    def log_det_gradient(self, u: Numbers) -> Numbers: ...

    @abc.abstractmethod
    def bend(self, u: Numbers, g: Numbers, v: Numbers) -> Numbers:
        """What `J^T g + grad log|det J|` changes by along `v`, at the same `g`."""

    @abc.abstractmethod
    def unconstrain(self, x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]: ...

    @abc.abstractmethod
    def holds(self, x: Float[np.ndarray, "..."]) -> np.ndarray:
        """Whether it does, by entry or by last axis."""

    @abc.abstractmethod
    def remedy(self, name: str, x: Float[np.ndarray, "..."]) -> str:
        """A sentence for an entry, or a last axis, for which it does not."""


@dataclasses.dataclass(frozen=True)
class Free(Kind):
    """Not bound at all."""

    def free_path(self, path: str) -> str:
        return path

    def constrain(self, u: Numbers, xp: Any = jnp) -> Numbers:
        return u

    def log_det(self, u: Numbers, xp: Any = jnp) -> Numbers:
        return xp.zeros_like(u)

    def push(self, u: Numbers, v: Numbers) -> Numbers:
        return v

    def pull_back(self, u: Numbers, g: Numbers) -> Numbers:
        return g

    def log_det_gradient(self, u: Numbers) -> Numbers:
        return np.zeros_like(u)

    def bend(self, u: Numbers, g: Numbers, v: Numbers) -> Numbers:
        return np.zeros_like(v)

    def unconstrain(self, x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        return x

    def holds(self, x: Float[np.ndarray, "..."]) -> np.ndarray:
        return np.ones(x.shape, bool)

    def remedy(self, name: str, x: Float[np.ndarray, "..."]) -> str:
        raise AssertionError(f"{name} is not bound")


@dataclasses.dataclass(frozen=True)
class Interval(Kind):
    """Every entry between `low` and `high`, of which one may be infinite:

        x = low + exp(u),   x = high - exp(u),   x = low + (high - low) sigmoid(u)

    For `constraints=`: `{"rho": mixvi.Interval(-1, 1)}`. "positive" is `Interval(0, inf)` and
    "unit" is `Interval(0, 1)`.

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> def correlation(w):  # 30 pairs whose products have the mean 0.5; a flat prior
    ...     rho = w["rho"]
    ...     return -15 * jnp.log1p(-(rho**2)) - 30 * (1 - 0.5 * rho) / (1 - rho**2)
    >>> bounds = {"rho": mixvi.Interval(-1, 1)}
    >>> post = mixvi.fit(correlation, {"rho": 0.0}, constraints=bounds)
    >>> low, high = post.quantiles([0.05, 0.95])["rho"]
    >>> bool(-1 < low < high < 1)
    True
    """

    low: Any
    high: Any

    def __post_init__(self):
        for end in (self.low, self.high):
            if isinstance(end, bool) or not isinstance(end, numbers.Real):
                raise InputError(f"Interval: the ends must be two numbers, got {end!r}.")
        low, high = float(self.low), float(self.high)
        if not low < high:
            raise InputError(
                f"Interval: low must be below high, got low={low:g} and high={high:g}."
            )
        if math.isinf(low) and math.isinf(high):
            raise InputError("Interval: no end is finite; leave an unbounded parameter out.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def is_two_sided(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def free_path(self, path: str) -> str:
        if self.is_two_sided:
            return f"logit {path}"
        end = self.low if math.isfinite(self.low) else self.high
        sign = "-" if end > 0 else "+"
        if math.isinf(self.high):
            return f"log {path}" if end == 0 else f"log({path} {sign} {abs(end):g})"
        return f"log -{path}" if end == 0 else f"log({end:g} - {path})"

    def _inner_ends(self, dtype: Any) -> tuple[float, float]:
        """Rounding must not put `x` on an end, where densities are infinite or zero."""
        real, tiny = dtype.type, np.finfo(dtype).tiny
        low, high = real(self.low), real(self.high)
        least = tiny if low == 0 else np.nextafter(low, high)
        most = -tiny if high == 0 else np.nextafter(high, low)
        return float(least), float(most)

    def _unclipped(self, u: Numbers, xp: Any) -> Numbers:
        if self.is_two_sided:
            # From the nearer end, which keeps all digits of the distance to it.
            share = (self.high - self.low) * _sigmoid(-xp.abs(u), xp)
            return xp.where(u < 0, self.low + share, self.high - share)
        away = _bounded_exp(u, xp)
        return self.low + away if math.isfinite(self.low) else self.high - away

    def constrain(self, u: Numbers, xp: Any = jnp) -> Numbers:
        x = self._unclipped(u, xp)
        return xp.clip(x, *self._inner_ends(x.dtype))

    def log_det(self, u: Numbers, xp: Any = jnp) -> Numbers:
        if not self.is_two_sided:
            return u
        both = _log_sigmoid(u, xp) + _log_sigmoid(-u, xp)
        return math.log(self.high - self.low) + both

    def _slope(self, u: Numbers) -> Numbers:
        """`dx/du`, zero where `x` is clipped."""
        if self.is_two_sided:
            slope = (self.high - self.low) * _sigmoid(u, np) * _sigmoid(-u, np)
        else:
            slope = _bounded_exp_slope(u) * (1 if math.isfinite(self.low) else -1)
        x = self._unclipped(u, np)
        least, most = self._inner_ends(x.dtype)
        return np.where((x < least) | (x > most), 0.0, slope)

    def push(self, u: Numbers, v: Numbers) -> Numbers:
        return self._slope(u) * v

    def pull_back(self, u: Numbers, g: Numbers) -> Numbers:
        return _times(self._slope(u), g)

    def log_det_gradient(self, u: Numbers) -> Numbers:
        return -np.tanh(0.5 * u) if self.is_two_sided else np.ones_like(u)

    def bend(self, u: Numbers, g: Numbers, v: Numbers) -> Numbers:
        """The logarithm of the slope has the slope of `log_det`."""
        bent = _times(self._slope(u) * self.log_det_gradient(u), g)
        if self.is_two_sided:
            bent = bent - 2 * _sigmoid(u, np) * _sigmoid(-u, np)
        return bent * v

    def unconstrain(self, x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        above = np.log(x - self.low) if math.isfinite(self.low) else 0.0
        below = np.log(self.high - x) if math.isfinite(self.high) else 0.0
        return np.asarray(above - below if self.is_two_sided else above + below)

    def holds(self, x: Float[np.ndarray, "..."]) -> np.ndarray:
        return np.asarray((self.low < x) & (x < self.high))

    def remedy(self, name: str, x: Float[np.ndarray, "..."]) -> str:
        return (
            f"{name} is {float(x):.6g}, which is not inside ({self.low:g}, {self.high:g}): "
            "start between the ends, or change its constraint."
        )


@dataclasses.dataclass(frozen=True)
class Simplex(Kind):
    """The last axis is positive and sums to one. K numbers are K - 1 sticks to break: entry k takes
    the share `sigmoid(u_k - log(K - k))` of what those before it left (k = 1, ..., K - 1), so that
    `u = 0` is the uniform point. Densities are with respect to the first K - 1 entries."""

    def free_shape(self, shape: tuple[int, ...], path: str) -> tuple[int, ...]:
        if not shape or shape[-1] < 2:
            raise InputError(
                f"constraints: {path} has shape {shape}, but a simplex needs at least two entries "
                'on its last axis. One share alone is "unit".'
            )
        return (*shape[:-1], shape[-1] - 1)

    def free_path(self, path: str) -> str:
        return f"sticks {path}"

    @staticmethod
    def centre(n: int) -> Float[np.ndarray, " n"]:
        return np.log(np.arange(n, 0, -1))

    def _log_shares(self, u: Float[Any, "... n"], xp: Any) -> tuple[Any, Any, Any]:
        """Logs of the share taken, of the share left, and of all that was there before."""
        t = u - self.centre(u.shape[-1]).astype(u.dtype)
        left = _log_sigmoid(-t, xp)
        before = xp.concatenate([xp.zeros_like(u[..., :1]), xp.cumsum(left, -1)], -1)
        return _log_sigmoid(t, xp), left, before

    def _log_entries(self, u: Float[Any, "... n"], xp: Any) -> Float[Any, "... n+1"]:
        taken, _, before = self._log_shares(u, xp)
        return before + xp.concatenate([taken, xp.zeros_like(u[..., :1])], -1)

    def constrain(self, u: Float[Any, "... n"], xp: Any = jnp) -> Float[Any, "... n+1"]:
        return _bounded_exp(self._log_entries(u, xp), xp)

    def log_det(self, u: Float[Any, "... n"], xp: Any = jnp) -> Numbers:
        taken, left, before = self._log_shares(u, xp)
        return (taken + left + before[..., :-1]).sum(-1)

    # With s = sigmoid(t) taken and r = sigmoid(-t) left, an entry has
    #     d log x_k = r_k v_k - sum_{j < k} s_j v_j        (k < K; the last one the sum alone)

    def _shares(self, u: Float[np.ndarray, "... n"]) -> tuple[np.ndarray, np.ndarray]:
        t = u - self.centre(u.shape[-1])
        return _sigmoid(t, np), _sigmoid(-t, np)

    def _relative_push(self, u: Numbers, v: Numbers) -> Numbers:
        """`d log x`."""
        taken, left = self._shares(u)
        before = np.cumsum(taken * v, -1)
        none = np.zeros_like(before[..., :1])
        return np.concatenate([left * v, none], -1) - np.concatenate([none, before], -1)

    def push(self, u: Numbers, v: Numbers) -> Numbers:
        return _bounded_exp_slope(self._log_entries(u, np)) * self._relative_push(u, v)

    def pull_back(self, u: Numbers, g: Numbers) -> Numbers:
        taken, left = self._shares(u)
        pulls = _times(_bounded_exp_slope(self._log_entries(u, np)), g)
        return left * pulls[..., :-1] - taken * _summed_after(pulls[..., 1:])

    def log_det_gradient(self, u: Numbers) -> Numbers:
        taken, left = self._shares(u)
        return left - np.arange(u.shape[-1], 0, -1) * taken

    def bend(self, u: Numbers, g: Numbers, v: Numbers) -> Numbers:
        """Of every factor in `pull_back` in turn; `d s = s r v`."""
        taken, left = self._shares(u)
        pulls = _times(_bounded_exp_slope(self._log_entries(u, np)), g)
        moved = pulls * self._relative_push(u, v)
        change = left * moved[..., :-1] - taken * _summed_after(moved[..., 1:])
        counts = np.arange(u.shape[-1] + 1, 1, -1)
        return change - taken * left * v * (_summed_after(pulls)[..., :-1] + counts)

    def unconstrain(self, x: Float[np.ndarray, "... k"]) -> Float[np.ndarray, "... k-1"]:
        after = np.cumsum(x[..., ::-1], -1)[..., ::-1][..., 1:]
        return np.log(x[..., :-1]) - np.log(after) + self.centre(x.shape[-1] - 1)

    def holds(self, x: Float[np.ndarray, "... k"]) -> np.ndarray:
        return np.asarray((x > 0).all(-1) & (np.abs(x.sum(-1) - 1) <= ON_SIMPLEX))

    def remedy(self, name: str, x: Float[np.ndarray, "..."]) -> str:
        return (
            f"{name} is {_shown(x)}, with sum {float(x.sum()):.6g}: on a simplex all "
            "entries must be positive and sum to one. Start from 1/K each, say."
        )


@dataclasses.dataclass(frozen=True)
class Ordered(Kind):
    """The last axis increases: `x_1 = u_1`, `x_k = x_{k-1} + exp(u_k)`."""

    def free_shape(self, shape: tuple[int, ...], path: str) -> tuple[int, ...]:
        if not shape:
            raise InputError(
                f'constraints: {path} is one number, which cannot be "ordered": that is for the '
                "entries of a vector."
            )
        return shape

    def free_path(self, path: str) -> str:
        return f"steps {path}"

    def constrain(self, u: Numbers, xp: Any = jnp) -> Numbers:
        return xp.cumsum(xp.concatenate([u[..., :1], _bounded_exp(u[..., 1:], xp)], -1), -1)

    def log_det(self, u: Numbers, xp: Any = jnp) -> Numbers:
        return u[..., 1:].sum(-1)

    @staticmethod
    def _slopes(u: Numbers, first: float) -> Numbers:
        return np.concatenate([np.full_like(u[..., :1], first), _bounded_exp_slope(u[..., 1:])], -1)

    def push(self, u: Numbers, v: Numbers) -> Numbers:
        return np.cumsum(self._slopes(u, 1.0) * v, -1)

    def pull_back(self, u: Numbers, g: Numbers) -> Numbers:
        return _times(self._slopes(u, 1.0), _summed_after(g))

    def log_det_gradient(self, u: Numbers) -> Numbers:
        return np.concatenate([np.zeros_like(u[..., :1]), np.ones_like(u[..., 1:])], -1)

    def bend(self, u: Numbers, g: Numbers, v: Numbers) -> Numbers:
        return _times(self._slopes(u, 0.0), _summed_after(g)) * v

    def unconstrain(self, x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        return np.concatenate([x[..., :1], np.log(np.diff(x, axis=-1))], -1)

    def holds(self, x: Float[np.ndarray, "..."]) -> np.ndarray:
        return np.asarray((np.diff(x, axis=-1) > 0).all(-1))

    def remedy(self, name: str, x: Float[np.ndarray, "..."]) -> str:
        return f"{name} is {_shown(x)}, which does not increase: start from increasing numbers."


NAMED: dict[str, Kind] = {
    "positive": Interval(0.0, math.inf),
    "unit": Interval(0.0, 1.0),
    "simplex": Simplex(),
    "ordered": Ordered(),
}


def _shown(x: Float[np.ndarray, " n"]) -> str:
    return "[" + listed([f"{value:.4g}" for value in x], 6) + "]"
