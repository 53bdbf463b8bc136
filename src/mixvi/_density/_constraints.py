"""Bounded parameters: a kind for every leaf, and the density over the unbounded space.

The user writes a density `p(x)` of bounded parameters; the Gaussian lives over `u`, whose density
is

    log p(T(u)) + log |det dT/du|
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree, Shaped

from .._errors import InputError
from ._kinds import NAMED, Free, Interval, Kind
from ._structure import Structure, listed
from ._target import Target


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
            self.user.kept,
        )

    @functools.cached_property
    def names_of_user(self) -> tuple[str, ...]:
        """For every unbounded number the user's name of it, or of the array that it belongs to."""
        user, free = self.user, self.free
        names = []
        firsts = np.cumsum([0, *user.sizes])
        for first, size, n, path in zip(firsts, user.sizes, free.sizes, user.paths, strict=False):
            names += user.names[first : first + size] if n == size else [path] * n
        return tuple(names)

    def constrain(self, flat: Shaped[Any, "*batch dim"], xp: Any = jnp) -> PyTree:
        """The user's parameters."""
        return self.user.tree(self._constrain(flat, xp))

    def _constrain(self, flat: Shaped[Any, "*batch dim"], xp: Any) -> list[Any]:
        leaves = self.free.leaves(flat)
        return [kind.constrain(u, xp) for kind, u in zip(self.kinds, leaves, strict=True)]

    def log_det(self, flat: Shaped[Any, "*batch dim"], xp: Any = jnp) -> Float[Any, "*batch"]:
        batch = flat.ndim - 1
        leaves = self.free.leaves(flat)
        each = [kind.log_det(u, xp) for kind, u in zip(self.kinds, leaves, strict=True)]
        return xp.stack([one.sum(tuple(range(batch, one.ndim))) for one in each]).sum(0)

    # --- on the host, in NumPy float64 --------------------------------------------------------

    def constrained(self, flat: Shaped[np.ndarray, "*batch dim"]) -> PyTree:
        """The user's parameters, of the type that `flat` has."""
        with np.errstate(all="ignore"):
            made = self._constrain(np.asarray(flat, np.float64), np)
            return self.user.tree(np.asarray(leaf).astype(flat.dtype) for leaf in made)

    def flat(self, flat: Shaped[np.ndarray, "*batch dim"]) -> Shaped[np.ndarray, "*batch user"]:
        """The user's parameters in one vector."""
        lead = flat.shape[:-1]
        with np.errstate(all="ignore"):
            leaves = self._constrain(np.asarray(flat, np.float64), np)
        sized = zip(leaves, self.user.sizes, strict=True)
        return np.concatenate([np.reshape(leaf, (*lead, size)) for leaf, size in sized], -1)

    def log_dets(self, flat: Shaped[np.ndarray, "*batch dim"]) -> Float[np.ndarray, "*batch"]:
        with np.errstate(all="ignore"):
            return np.asarray(self.log_det(np.asarray(flat, np.float64), np))

    def unconstrain(self, flat: Shaped[np.ndarray, "*batch user"]) -> np.ndarray:
        """The unbounded numbers of the user's, in one vector; not numbers where there are none."""
        lead, leaves = flat.shape[:-1], self.user.leaves(np.asarray(flat, float))
        with np.errstate(divide="ignore", invalid="ignore"):
            made = [kind.unconstrain(x) for kind, x in zip(self.kinds, leaves, strict=True)]
        sizes = self.free.sizes
        whole = [u.reshape((*lead, size)) for u, size in zip(made, sizes, strict=True)]
        return np.where(self.hold(flat)[..., None], np.concatenate(whole, -1), np.nan)

    def hold(self, flat: Shaped[np.ndarray, "*batch user"]) -> np.ndarray:
        """Whether all of them do, for every point."""
        batch, leaves = flat.ndim - 1, self.user.leaves(np.asarray(flat))
        with np.errstate(invalid="ignore"):
            each = [kind.holds(x) for kind, x in zip(self.kinds, leaves, strict=True)]
        whole = [one.all(tuple(range(batch, one.ndim))) for one in each]
        return np.asarray(np.stack(whole).all(0))

    def check(self, flat: Float[np.ndarray, " user"], what: str) -> None:
        """Refuses a point for which they do not hold, and names the first culprit."""
        leaves = self.user.leaves(flat)
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
        constant = unknown[0] in [kept.path for kept in user.kept]
        raise InputError(
            f"constraints: there is no parameter {unknown[0]!r}. The parameters are "
            f"{listed(list(user.paths), 10)}."
            + f" ({unknown[0]} is a constant: only real numbers vary.)"
            * constant
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
