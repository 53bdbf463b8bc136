"""Importance weights: draws of the Gaussian that stand for the posterior."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, PyTree

from .._arrays._draws import FRESH, WEIGHED, generator
from .._density._constraints import constrained
from .._density._make import density_of, prepared
from .._density._protocol import Density
from .._errors import InputError
from .._judge._joint import pair_log_density, pairs_drawn
from .._judge._psis import psis
from ._options import N_FRESH, checked


class ImportanceWeights(NamedTuple):
    """Draws from the Gaussian and the weights that make them stand for the posterior."""

    draws: PyTree
    weights: Float[np.ndarray, " n"]
    khat: float
    ess: float


def importance_weights(
    post: Any, n: int | None, log_density: Callable | Density | None, data: PyTree, key: Any
) -> ImportanceWeights:
    """Of the fresh draws that judged it or, with a log density, of new ones."""
    if not post.law.is_sound:
        raise InputError(f"importance_weights: this fit failed. {post.status}")
    if log_density is not None:
        points, log_p, log_q = _asked(post, N_FRESH if n is None else n, log_density, data, key)
    elif n is not None or data is not None or key is not None:
        raise InputError(
            "importance_weights: new draws need the log density, which a posterior does not keep: "
            "importance_weights(n, log_density, data)."
        )
    elif post.judged is None:
        raise InputError(
            "importance_weights: fit with diagnostics=True, which makes the draws, or make new "
            "ones: importance_weights(n, log_density, data)."
        )
    else:
        points = post.law.colour(judging(post))
        log_p, log_q = post.judged.log_p, post.judged.log_q
    if n_bad := int((~np.isfinite(log_p)).sum()):
        raise InputError(
            f"importance_weights: the log density is not finite at {n_bad} of the draws, so they "
            "have no weights."
        )
    weights, khat = psis(log_p - log_q)
    return ImportanceWeights(post._tree(points), weights, khat, float(1 / (weights**2).sum()))


def judging(post: Any) -> Float[np.ndarray, "n dim"]:
    """The fresh draws; those of many parameters are not kept, and made again."""
    judged = post.judged
    if len(judged.z) == len(judged.log_p):
        return judged.z
    return generator(_key(post), FRESH).standard_normal((len(judged.log_p), post.dim))


def _asked(
    post: Any, n: int, log_density: Callable | Density, data: PyTree, key: Any
) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """New draws, and the log densities there: the posterior's, at the hyperparameters that were
    learnt, and the law's."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"importance_weights: n must be a positive integer, got {n!r}.")
    rng = generator(_key(post) if key is None else key, WEIGHED)
    if post.hyper_posterior is not None:
        return _pairs(post, rng, n, _density(post, log_density, data))
    points, log_q = post.law.drawn(rng, n)
    return points, log_density_at(post, points, log_density, data), log_q


def _pairs(
    post: Any, rng: np.random.Generator, n: int, density: Density
) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Where hyperparameters are integrated: of the points and the parameters together."""
    hyper = post.hyper_posterior
    points, own, log_q = pairs_drawn(post.law, rng, n)
    densities = [density.at(theta) for theta in hyper.points]
    with np.errstate(all="ignore"):
        log_p = pair_log_density(densities, hyper.log_mass + hyper.log_prior, points, own)
    return points, log_p, log_q


def log_density_at(
    post: Any, points: Float[np.ndarray, "n dim"], log_density: Callable | Density, data: PyTree
) -> Float[np.ndarray, " n"]:
    """Over the unbounded parameters, log-Jacobian included."""
    if post.hyper_posterior is not None:
        raise InputError(
            "hyperparameters were integrated: there is no log density of the parameters alone."
        )
    with np.errstate(all="ignore"):
        return _density(post, log_density, data).values(points.astype(np.float64))


def _density(post: Any, log_density: Callable | Density, data: PyTree) -> Density:
    options = checked({"dtype": post.stats.dtype})
    target, start = prepared(log_density, post.start, data, options.dtype, post.hyper)
    target, _ = constrained(target, start, None, (post.constraints, post.flat_start))
    return density_of(log_density, target, options.dtype, options.memory, data)


def _key(post: Any) -> Any:
    """The fit's own; of a JAX key its text is what is known."""
    key = post.stats.key
    return key if isinstance(key, int) else np.frombuffer(key.encode(), np.uint8)
