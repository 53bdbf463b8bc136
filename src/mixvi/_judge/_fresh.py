"""Fresh draws: what a Gaussian is worth at points that it was not fitted to."""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._draws import FRESH, IID, generator
from .._arrays._roots import log_det
from .._density._protocol import Density, Matrix, coloured
from .._law._gaussian import normal_logpdf
from .._law._mixture import GaussianMixture
from ._diagnosis import AS_IT_IS, Diagnosis
from ._scalars import diagnose

Vector = Float[np.ndarray, " dim"]


@dataclasses.dataclass(frozen=True)
class Judged:
    """The fresh draws that judged the Gaussian (standard normal `z`; of many parameters they are
    not kept) and what they said."""

    diagnosis: Diagnosis
    z: Float[np.ndarray, "kept dim"]
    log_p: Float[np.ndarray, " n"]
    log_q: Float[np.ndarray, " n"]


# Draws are doubled while the bound on fresh draws is lower by more than this (in nats) and by
# more than its noise.
GAP = 0.01
# More draws are asked for until the bound is known this well, in nats, and k-hat is no alarm.
KNOWN = 0.006
# Draws of a first look, which decides nothing but what to try next; draws that may be enough for a
# verdict, where as many from further out agree.
FIRST_LOOK, FEWEST = 48, 128


def judged(
    density: Density,
    mean: Vector,
    root: Matrix,
    key: Any,
    n: int,
    fresh: Judged | None = None,
    all_of_them: bool = False,
) -> Judged:
    """`log p~` against `log q` at fresh points of `N(mean, root root^T)`: at `n` of them or, unless
    `all_of_them` are wanted, at fewer where the two differ by next to nothing. `fresh`: known at
    the first ones. How many points one call answers decides how many are asked, never how many
    count."""
    z = fresh_draws(key, n, density.dim)
    log_p = np.empty(0) if fresh is None else fresh.log_p
    for enough in [n] if all_of_them else sorted({min(FEWEST, n), n}):
        if (known := len(log_p)) < enough:
            asked = max(enough, min(known + density.values_at_once, n))
            more = density.values(coloured(mean, root, z[known:asked]))
            log_p = np.concatenate([log_p, more])
        fresh = compared(log_p[:enough], z[:enough], root)
        if _known(fresh):
            break
    assert fresh is not None
    return fresh


def judged_mixture(density: Density, law: GaussianMixture, key: Any, n: int) -> Judged:
    """The same of a mixture of Gaussians, at `n` fresh points; `z` in its standard deviations."""
    points, log_q = law.drawn(generator(key, FRESH), n)
    log_p = density.values(points)
    return Judged(diagnose(log_p, log_q), law.whiten(points), log_p, log_q)


def first_look(density: Density, mean: Vector, root: Matrix, key: Any, n: int) -> Judged:
    """At a few of the `n` fresh points."""
    z = fresh_draws(key, n, density.dim)[:FIRST_LOOK]
    return compared(density.values(coloured(mean, root, z)), z, root)


def compared(log_p: Float[np.ndarray, " n"], z: Float[np.ndarray, "n dim"], root: Matrix) -> Judged:
    log_q = log_q_of(z, root)
    return Judged(diagnose(log_p, log_q), z, log_p, log_q)


def _known(fresh: Judged) -> bool:
    said = fresh.diagnosis
    return said.elbo.se < KNOWN and said.khat < min(said.khat_limit, AS_IT_IS)


def distance(fresh: Judged) -> float:
    """Nats from the posterior as fresh draws see it: half the variance of `log p~ - log q`, which
    is the divergence where that is small."""
    ratio = fresh.log_p - fresh.log_q
    return float(0.5 * ratio.var()) if np.isfinite(ratio).all() else math.inf


def fresh_elbo(density: Density, mean: Vector, root: Matrix, key: Any, n: int) -> float:
    """What `judged` says of the bound, without the rest; -inf where a density is not finite."""
    z = fresh_draws(key, n, density.dim)
    ratio = density.values(coloured(mean, root, z)) - log_q_of(z, root)
    return float(ratio.mean()) if np.isfinite(ratio).all() else -math.inf


def fresh_draws(key: Any, n: int, dim: int) -> Float[np.ndarray, "n dim"]:
    return IID(n).make(key, dim, FRESH)


def log_q_of(z: Float[np.ndarray, "n dim"], root: Matrix) -> Float[np.ndarray, " n"]:
    return normal_logpdf(z, log_det(root))


def wants_more_draws(elbo_fixed: float, n_fixed: int, fresh: Judged) -> bool:
    """The fixed draws' own noise is at most that of as many fresh ones. A bound far below the fresh
    one is as bad a sign as one above: the fixed draws stand for another distribution."""
    elbo = fresh.diagnosis.elbo
    noise = elbo.se * math.sqrt(1 + len(fresh.log_p) / n_fixed)
    return math.isfinite(elbo.value) and abs(elbo_fixed - elbo.value) > max(GAP, 2 * noise)
