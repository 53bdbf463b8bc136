"""Where a mixture of Gaussians lacks a component: what fresh draws of it, and of wider ones, miss.

The draws come from every component of q, and from q with all components widened. With their weights
they stand for the posterior, and `max(p~/Z - q, 0)` for the mass that is missing. Two places are
proposed for a further component:

    heavy ... around the draw that stands for most of the missing mass
    split ... the component that is furthest from the posterior, in two halves along the direction
              in which `log p~ - log q` changes most
"""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._draws import MIXED, generator_of, key_words
from .._density._protocol import Density
from ._mixture import Components, MixtureShape, log_mixture

# Of a new component around heavy draws: its width, in that of the nearest one; its least and most
# weight.
NARROWER, LEAST_WEIGHT, MOST_WEIGHT = 0.7, 0.02, 0.3
# Of two halves: how far they move, and how wide they stay along that direction.
HALF_AWAY, HALF_WIDE = 0.7, 0.7

Vector = Float[np.ndarray, " n"]
Points = Float[np.ndarray, "n dim"]


@dataclasses.dataclass(frozen=True)
class Look:
    """Fresh draws, `each` of every component, then as many of the widened mixture as one component
    has, and what they say. `parts`: `pi_k h` at the draws of every component, which add up to the
    bound; `kl`: nats from the posterior."""

    at: Components
    points: Points
    log_p: Vector
    log_q: Vector
    log_drawn: Vector  # the density that the points were drawn from
    parts: Float[np.ndarray, "components each"]
    kl: float

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.parts).all())

    @property
    def elbo(self) -> float:
        return float(self.parts.mean(1).sum()) if self.is_finite else -math.inf

    @property
    def se(self) -> float:
        return _error(self.parts)

    def gains(self, before: "Look", least: float) -> bool:
        """More than its noise, and more than `least` nats. The same standard normal draws serve the
        components of both, so that most of the noise is in neither difference."""
        if not self.is_finite:
            return False
        n = min(len(self.parts), len(before.parts))
        shared = self.parts[:n] - before.parts[:n]
        rest = [shared, self.parts[n:], before.parts[n:]]
        noise = math.sqrt(sum(_error(one) ** 2 for one in rest))
        return self.elbo - before.elbo > max(least, 2 * noise)


def _error(parts: Float[np.ndarray, "some each"]) -> float:
    """Of the sum of their means."""
    return math.sqrt(float(parts.var(1).sum()) / parts.shape[1])


def look(density: Density, at: Components, key: Any, each: int) -> Look:
    """At fresh draws."""
    dim, wider = at.means.shape[1], 1 + 1 / math.sqrt(at.means.shape[1])
    words, n_own = key_words(key), len(at) * each
    rngs = [generator_of((*words, k), MIXED) for k in range(len(at))]
    z = np.stack([rng.standard_normal((each, dim)) for rng in rngs])
    own = (at.means[:, None] + z @ at.roots.transpose(0, 2, 1)).reshape(-1, dim)
    rng = generator_of((*words, len(at)), MIXED)
    which, z = rng.choice(len(at), each, p=at.weights), rng.standard_normal((each, dim))
    out = at.means[which] + wider * (at.roots[which] @ z[..., None])[..., 0]
    points = np.concatenate([own, out])
    log_p, log_q = density.values(points), log_mixture(at, points)[0]
    ratio = (log_p - log_q)[:n_own].reshape(len(at), each)
    parts = at.weights[:, None] * ratio
    mass = np.logaddexp.reduce((ratio + at.log_weights[:, None]).ravel()) - math.log(each)
    log_wide = log_mixture(dataclasses.replace(at, roots=wider * at.roots), points)[0]
    # Own draws are as many of every component, whatever its weight.
    even = dataclasses.replace(at, log_weights=np.full(len(at), -math.log(len(at))))
    log_drawn = np.logaddexp(
        log_mixture(even, points)[0] + math.log(n_own / len(points)),
        log_wide + math.log(each / len(points)),
    )
    kl = max(float(mass - parts.mean(1).sum()), 0.0)
    return Look(at, points, log_p, log_q, log_drawn, parts, kl)


def proposals(seen: Look, shape: MixtureShape) -> list[Components]:
    """With one component more."""
    made = [_around_heavy(seen), _split(seen.at, shape)]
    return [one for one in made if one is not None]


def _around_heavy(seen: Look) -> Components | None:
    at, dim = seen.at, seen.points.shape[1]
    log_weight = np.where(np.isfinite(seen.log_p), seen.log_p - seen.log_drawn, -np.inf)
    log_total = np.logaddexp.reduce(log_weight) - math.log(len(log_weight))
    # p~/Z - q where that is positive, over what the points were drawn from
    beyond = np.exp(log_weight - log_total) - np.exp(seen.log_q - seen.log_drawn)
    missing = np.maximum(beyond, 0.0) / len(log_weight)
    if not missing.sum() > 0:
        return None
    centre = seen.points[int(np.argmax(missing))]
    inverse = np.linalg.inv(at.roots)
    nearest = int(
        np.argmin([np.linalg.norm(inverse[k] @ (centre - m)) for k, m in enumerate(at.means)])
    )
    steps = (seen.points - centre) @ inverse[nearest].T
    share = missing * np.exp(-(steps**2).sum(1) / max(1.0, 0.5 * dim))
    mean = share @ seen.points / share.sum()
    weight = float(np.clip(share.sum(), LEAST_WEIGHT, MOST_WEIGHT))
    return at.and_also(weight, mean, NARROWER * at.roots[nearest])


def _split(at: Components, shape: MixtureShape) -> Components:
    worst = int(np.argmax(at.weights * shape.log_ratio.var(1)))
    _, vectors = np.linalg.eigh(shape.steep[worst])
    along, root = vectors[:, -1], at.roots[worst]
    narrow = root - (1 - HALF_WIDE) * np.outer(root @ along, along)
    away = HALF_AWAY * root @ along
    half = at.log_weights[worst] - math.log(2)
    logs = np.append(at.log_weights, half)
    logs[worst] = half
    means = np.concatenate([at.means, (at.means[worst] + away)[None]])
    means[worst] -= away
    roots = np.concatenate([at.roots, narrow[None]])
    roots[worst] = narrow
    return Components(logs, means, roots)
