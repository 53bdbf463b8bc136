"""The modes that were seen, in the user's parameters."""

import dataclasses
from typing import Any

from jaxtyping import PyTree


@dataclasses.dataclass(frozen=True)
class PosteriorMode:
    """One of the modes of a posterior.

    `point`: in the user's parameters, of the shape of `init`. `log_density`: of the unbounded
    parameters, there. `share`: of the mass of all modes seen. `distance`: from the Gaussian's mean,
    in its standard deviations. `is_image`: as high and as curved as the one that the Gaussian
    covers. `relation`: the symmetries that lead there, such as ("labels",) or ("sign",).

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> def two(w):
    ...     return jnp.logaddexp(jnp.log(0.7) - 0.5 * w**2, jnp.log(0.3) - 0.5 * (w - 9.0) ** 2)
    >>> for mode in mixvi.fit(two, 0.0).modes:
    ...     print(f"{mode.point:.0f} {mode.share:.0%}")
    0 70%
    9 30%
    """

    point: PyTree
    log_density: float
    share: float
    distance: float
    is_image: bool
    relation: tuple[str, ...]


def modes_of(post: Any) -> tuple[PosteriorMode, ...]:
    """The Gaussian's own first: its mean stands for it where there is no mode."""
    seen = post.elsewhere.point
    own = post._tree(post.flat_start if seen is None else seen)
    height = post.elsewhere.log_density
    found = [PosteriorMode(own, height, 1 - post.elsewhere.share, 0.0, True, ())]
    for one in post.elsewhere.modes:
        point = None if one.point is None else post._tree(one.point)
        told = (one.log_density, one.share, one.distance, one.is_image, one.relation)
        found.append(PosteriorMode(point, *told))
    return tuple(found)
