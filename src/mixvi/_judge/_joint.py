"""A mixture over points of the hyperparameters judged as one law of pairs (point, parameters).

    q(k, w) = pi_k N_k(w)        p(k, w) ~ mass_k p~(w, theta_k)

The bound over pairs, and weights that correct at once the Gaussians and what was taken for the
evidence at each point.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._arrays._draws import FRESH, generator
from .._density._protocol import Density
from .._law._mixture import GaussianMixture
from ._diagnosis import Moments
from ._fresh import Judged
from ._probes import reach
from ._psis import smoothed_weights
from ._scalars import diagnose, errors_of, worst_of


def judged_together(
    densities: Sequence[Density],
    law: GaussianMixture,
    log_mass: Float[np.ndarray, " k"],
    key: Any,
    n: int,
) -> Judged:
    """On `n` fresh draws, each component's share of them. `densities`: at the points, with the
    volumes `log_mass` that they stand for."""
    points, own, log_q = pairs_drawn(law, generator(key, FRESH), n)
    log_p = pair_log_density(densities, log_mass, points, own)
    said = diagnose(log_p, log_q)
    if not said.n_non_finite:
        moments = _moments(points, law, log_p - log_q, said.kl, said.khat)
        said = dataclasses.replace(said, moments=moments, n_mixed=n)
    return Judged(said, law.whiten(points), log_p, log_q)


def pairs_drawn(
    law: GaussianMixture, rng: np.random.Generator, n: int
) -> tuple[Float[np.ndarray, "n dim"], Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Draws, the components that they are of, and the log density of the pairs."""
    counts = shares_of(law.weights, n, float(rng.random()))
    z, own = rng.standard_normal((n, law.dim)), np.repeat(np.arange(len(counts)), counts)
    points, log_q = np.empty_like(z), np.empty(n)
    for k in np.flatnonzero(counts):
        here, one = own == k, law.components[k]
        points[here] = one.colour(z[here])
        log_q[here] = one.log_prob(points[here]) + math.log(law.weights[k])
    return points, own, log_q


def pair_log_density(
    densities: Sequence[Density],
    log_mass: Float[np.ndarray, " k"],
    points: Float[np.ndarray, "n dim"],
    own: Int[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    log_p = np.empty(len(points))
    for k in np.unique(own):
        here = own == k
        log_p[here] = densities[k].values(points[here]) + log_mass[k]
    return log_p


def shares_of(weights: Float[np.ndarray, " k"], n: int, begin: float) -> Int[np.ndarray, " k"]:
    """Whole numbers that sum to `n`, less than one from `n weights`, and on average over `begin`
    (uniform from 0 to 1) just these: systematic sampling."""
    ends = np.floor(n * np.cumsum(weights) + begin).astype(np.int64)
    ends[-1] = n
    return np.diff(ends, prepend=0)


def _moments(
    points: Float[np.ndarray, "n dim"],
    law: GaussianMixture,
    log_ratio: Float[np.ndarray, " n"],
    kl: float,
    khat: float,
) -> Moments:
    """Of weighted draws against the same draws without weights."""
    n, dim = points.shape
    steps = (points - law.mean) / law.std
    weights, _ = smoothed_weights(log_ratio)
    errors = errors_of(steps, weights, np.zeros(n), np)
    by_luck = 0.5 * math.sqrt(2 * math.log(2 * dim))
    mean_at, off, se = worst_of(errors.mean, errors.mean_se, by_luck, np)
    sd_at, log_sd, sd_se = worst_of(errors.log_sd, errors.log_sd_se, by_luck, np)
    far = (law.whiten(points) ** 2).sum(1) > reach(dim) ** 2
    return Moments(
        khat=khat,
        kl=kl,
        mean_off=float(off),
        mean_se=float(se),
        mean_at=int(mean_at),
        sd_ratio=float(np.exp(log_sd)),
        sd_se=float(sd_se),
        sd_at=int(sd_at),
        tail_share=float(weights @ far),
    )
