"""Room 2. Bounded parameters: `x = T(u)` from an unbounded space, back, and its Jacobian.

The user writes a density `p(x)` of bounded parameters; the Gaussian lives over `u`, whose density
is

    log p(T(u)) + log |det dT/du|
"""

import abc
import dataclasses
import functools
import math
import numbers
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from ._errors import InputError
from ._target import Structure, Target, listed, precision_scope

ON_SIMPLEX = 1e-6


def _bounded_exp(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """`exp` that neither overflows nor reaches zero, with a finite derivative everywhere."""
    most = 0.98 * math.log(np.finfo(u.dtype).max)
    return jnp.exp(jnp.clip(u, -most, most))


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
    def constrain(self, u: Float[Array, "..."]) -> Float[Array, "..."]: ...

    @abc.abstractmethod
    def log_det(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """`log |det dT/du|` by entry, or by last axis where entries depend on each other."""

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

    def constrain(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        return u

    def log_det(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.zeros_like(u)

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

    def _clipped(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Rounding must not put `x` on an end, where densities are infinite or zero."""
        real, tiny = x.dtype.type, np.finfo(x.dtype).tiny
        low, high = real(self.low), real(self.high)
        least = tiny if low == 0 else np.nextafter(low, high)
        most = -tiny if high == 0 else np.nextafter(high, low)
        return jnp.clip(x, float(least), float(most))

    def constrain(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        if self.is_two_sided:
            # From the nearer end, which keeps all digits of the distance to it.
            share = (self.high - self.low) * jax.nn.sigmoid(-jnp.abs(u))
            return self._clipped(jnp.where(u < 0, self.low + share, self.high - share))
        if math.isfinite(self.low):
            return self._clipped(self.low + _bounded_exp(u))
        return self._clipped(self.high - _bounded_exp(u))

    def log_det(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        if not self.is_two_sided:
            return u
        return math.log(self.high - self.low) + jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u)

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

    def _log_shares(self, u: Float[Array, "... n"]) -> tuple[Array, Array, Array]:
        """Logs of the share taken, of the share left, and of all that was there before."""
        t = u - self.centre(u.shape[-1]).astype(u.dtype)
        left = jax.nn.log_sigmoid(-t)
        before = jnp.concatenate([jnp.zeros_like(u[..., :1]), jnp.cumsum(left, -1)], -1)
        return jax.nn.log_sigmoid(t), left, before

    def constrain(self, u: Float[Array, "... n"]) -> Float[Array, "... n+1"]:
        taken, _, before = self._log_shares(u)
        return _bounded_exp(before + jnp.concatenate([taken, jnp.zeros_like(u[..., :1])], -1))

    def log_det(self, u: Float[Array, "... n"]) -> Float[Array, "..."]:
        taken, left, before = self._log_shares(u)
        return (taken + left + before[..., :-1]).sum(-1)

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

    def constrain(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.cumsum(jnp.concatenate([u[..., :1], _bounded_exp(u[..., 1:])], -1), -1)

    def log_det(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        return u[..., 1:].sum(-1)

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


@dataclasses.dataclass(frozen=True)
class Constraints:
    """One kind for every leaf of the user's parameters. Static: compiled code holds it."""

    user: Structure
    kinds: tuple[Kind, ...]

    @functools.cached_property
    def free(self) -> Structure:
        """The structure of the unbounded numbers: the same tree, other names, fewer entries."""
        its = tuple(zip(self.kinds, self.user.shapes, self.user.paths, strict=True))
        return Structure(
            self.user.treedef,
            tuple(kind.free_shape(shape, path) for kind, shape, path in its),
            tuple(kind.free_path(path) for kind, _, path in its),
        )

    def constrain(self, flat: Shaped[Array, "*batch dim"]) -> PyTree:
        """The user's parameters."""
        leaves = jtu.tree_leaves(self.free.unravel(flat))
        made = [kind.constrain(u) for kind, u in zip(self.kinds, leaves, strict=True)]
        return jtu.tree_unflatten(self.user.treedef, made)

    def log_det(self, flat: Shaped[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        batch = flat.ndim - 1
        leaves = jtu.tree_leaves(self.free.unravel(flat))
        each = [kind.log_det(u) for kind, u in zip(self.kinds, leaves, strict=True)]
        return jnp.stack([one.sum(tuple(range(batch, one.ndim))) for one in each]).sum(0)

    # --- on the host, in NumPy float64 --------------------------------------------------------

    def constrained(self, flat: Shaped[np.ndarray, "*batch dim"]) -> PyTree:
        """The user's parameters, of the type that `flat` has."""
        with precision_scope(np.dtype(np.float64)):
            made = self.constrain(jnp.asarray(flat, np.float64))
            return jtu.tree_map(lambda leaf: np.asarray(leaf).astype(flat.dtype), made)

    def log_dets(self, flat: Shaped[np.ndarray, "*batch dim"]) -> Float[np.ndarray, "*batch"]:
        with precision_scope(np.dtype(np.float64)):
            return np.asarray(self.log_det(jnp.asarray(flat, np.float64)))

    def unconstrain(self, flat: Shaped[np.ndarray, "*batch user"]) -> np.ndarray:
        """The unbounded numbers of the user's, in one vector; not numbers where there are none."""
        lead, leaves = flat.shape[:-1], jtu.tree_leaves(self.user.unravel(np.asarray(flat, float)))
        with np.errstate(divide="ignore", invalid="ignore"):
            made = [kind.unconstrain(x) for kind, x in zip(self.kinds, leaves, strict=True)]
        sizes = self.free.sizes
        whole = [u.reshape((*lead, size)) for u, size in zip(made, sizes, strict=True)]
        return np.where(self.hold(flat)[..., None], np.concatenate(whole, -1), np.nan)

    def hold(self, flat: Shaped[np.ndarray, "*batch user"]) -> np.ndarray:
        """Whether all of them do, for every point."""
        batch, leaves = flat.ndim - 1, jtu.tree_leaves(self.user.unravel(np.asarray(flat)))
        with np.errstate(invalid="ignore"):
            each = [kind.holds(x) for kind, x in zip(self.kinds, leaves, strict=True)]
        whole = [one.all(tuple(range(batch, one.ndim))) for one in each]
        return np.asarray(np.stack(whole).all(0))

    def check(self, flat: Float[np.ndarray, " user"], what: str) -> None:
        """Refuses a point for which they do not hold, and names the first culprit."""
        leaves = jtu.tree_leaves(self.user.unravel(flat))
        for kind, x, path in zip(self.kinds, leaves, self.user.paths, strict=True):
            holds = kind.holds(x)
            if not holds.all():
                where = tuple(int(i) for i in np.argwhere(~holds)[0]) if holds.ndim else ()
                name = path + (f"[{','.join(map(str, where))}]" if where else "")
                raise InputError(f"{what}: {kind.remedy(name, np.asarray(x[where]))}")


def parsed(given: Any, user: Structure) -> Constraints:
    """From names and kinds as the user gave them."""
    if not isinstance(given, Mapping):
        raise InputError(
            'constraints must be a dict from names to kinds, such as {"sigma": "positive"}, not '
            f"{type(given).__name__}."
        )
    unknown = [name for name in given if name not in user.paths]
    if unknown:
        raise InputError(
            f"constraints: there is no parameter {unknown[0]!r}. The parameters are "
            f"{listed(list(user.paths), 10)}."
        )
    return Constraints(user, tuple(_kind(path, given.get(path, Free())) for path in user.paths))


def _kind(path: str, kind: Any) -> Kind:
    if isinstance(kind, Kind):
        return kind
    if isinstance(kind, str) and kind in NAMED:
        return NAMED[kind]
    known = ", ".join(f'"{name}"' for name in NAMED)
    raise InputError(
        f"constraints: {path} is given {kind!r}; known are {known} and mixvi.Interval(low, high)."
    )


def constrained(
    target: Target,
    starts: Float[np.ndarray, "*batch user"],
    given: Any,
    warm: tuple[Constraints | None, np.ndarray] | None = None,
) -> tuple[Target, np.ndarray]:
    """The target over unbounded numbers, and the starts there; both as they were where nothing is
    bound. `warm`: the constraints and the unbounded start of a Posterior, which are kept."""
    if warm is not None:
        if given is not None:
            raise InputError(
                "constraints: a warm start keeps those of its Posterior; leave constraints= out, "
                "or start from numbers (init=post.mean)."
            )
        constraints, at = warm
        if constraints is None:
            return target, starts
    elif not given and (given is None or isinstance(given, Mapping)):
        return target, starts
    else:
        constraints, at = parsed(given, target.structure), None
    if target.n_predictors:
        raise InputError(
            "constraints: a LinearPredictor has a Gaussian prior over unbounded parameters; write "
            "the log density as a function to bind them."
        )
    free = constraints.free  # refuses leaves of the wrong shape
    if at is None:
        for i, row in enumerate(starts.reshape(-1, starts.shape[-1])):
            constraints.check(row, "init" if starts.ndim == 1 else f"fit_many, problem {i}: init")
        at = constraints.unconstrain(starts)
    bound = dataclasses.replace(target, structure=free, constraints=constraints)
    return bound, at.astype(starts.dtype)


# --- in a file --------------------------------------------------------------------------------


def kinds_to(constraints: Constraints) -> list[Any]:
    """Names, or the two ends of an interval; None for a free leaf."""
    names = {kind: name for name, kind in NAMED.items()}

    def stored(kind: Kind) -> Any:
        if isinstance(kind, Interval) and kind not in names:
            return [kind.low, kind.high]
        return names.get(kind)

    return [stored(kind) for kind in constraints.kinds]


def kinds_from(user: Structure, stored: list[Any]) -> Constraints:
    def made(one: Any) -> Kind:
        if one is None:
            return Free()
        return NAMED[one] if isinstance(one, str) else Interval(*one)

    return Constraints(user, tuple(map(made, stored)))


def _shown(x: Float[np.ndarray, " n"]) -> str:
    return "[" + listed([f"{value:.4g}" for value in x], 6) + "]"
