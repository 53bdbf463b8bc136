"""Where a search may begin when there is no good mode: around the user's start, along the way that
the search for a mode took, and along those from other starts.

A path to a mode that does not exist, or that is unlike the bulk, passes by the bulk. Each place on
it has a Hessian already; the bound of the Gaussian there, on a few draws, says which to take.
"""

import math

import numpy as np
from jaxtyping import Float

from .._approximate._bound import highest_bound
from .._approximate._laplace import covariance_root
from .._approximate._newton import PATH_KEPT, Place, newton
from .._arrays._draws import RESTARTS, generator
from .._density._protocol import Density, Points, Rule
from ._case import Case, Problem

Vector = Float[np.ndarray, " dim"]
Gaussian = tuple[Vector, Float[np.ndarray, "dim dim"]]

# Starts lie so many units around `init` (one, or its own size where that is larger).
SPREADS = (0.5, 1.0, 2.0, 4.0)
# Further starts where there is no mode, besides those that the user asks for.
WITHOUT_MODE = 3
# Widths to try, in units of the curvature and of the parameters.
WIDTHS, PLAIN_WIDTHS = (1.0, 0.3, 0.1), (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3)
# Of one path: places looked at, and draws for it.
MOST_PLACES, FEW_DRAWS = 25, 32


def spread_starts(problem: Problem, n: int) -> list[Vector]:
    """Further starts around the user's."""
    rng = generator(problem.options.key, RESTARTS)
    start = problem.start
    unit = np.maximum(1.0, np.abs(start))
    return [
        start + SPREADS[k % len(SPREADS)] * unit * rng.standard_normal(len(start)) for k in range(n)
    ]


def starts_elsewhere(case: Case, rule: Rule) -> list[Gaussian]:
    """The best Gaussian of every path; of the user's own start always one."""
    density, few = case.density, _few(rule)
    n = case.options.n_restarts + (0 if case.found.found else WITHOUT_MODE)
    made = [_best(density, [*_along(case.found.path), *_plain(case.problem.start)], few)]
    for start in spread_starts(case.problem, n):
        path = newton(density, start, tol=1e-3, max_steps=PATH_KEPT).path
        made.append(_best(density, _along(path), few))
    first = np.eye(case.problem.dim)
    found = [one for one in made if one is not None]
    return found or [(case.problem.start, first)]


def _few(rule: Rule) -> Rule:
    if not isinstance(rule, Points):
        return rule
    n, half = len(rule.z), FEW_DRAWS // 2
    if not rule.paired or n <= FEW_DRAWS:
        return Points(rule.z[:FEW_DRAWS], False)
    return Points(np.concatenate([rule.z[:half], rule.z[n // 2 : n // 2 + half]]), False)


def _along(path: tuple[Place, ...]) -> list[Gaussian]:
    """As wide as the curvature says, by several factors; more places early on the way."""
    some = np.unique(np.geomspace(1, len(path), min(len(path), MOST_PLACES)).astype(int) - 1)
    made: list[Gaussian] = []
    for place in (path[i] for i in some):
        root, log_det, _ = covariance_root(place.precision, "absolute")
        if place.finite and math.isfinite(log_det):
            made += [(place.point, width * root) for width in WIDTHS]
    return made


def _plain(start: Vector) -> list[Gaussian]:
    """Equally wide in all directions."""
    return [(start, width * np.eye(len(start))) for width in PLAIN_WIDTHS]


def _best(density: Density, some: list[Gaussian], rule: Rule) -> Gaussian | None:
    if not some:
        return None
    bound, (mean, root) = highest_bound(density, some, rule)
    return (mean, root) if math.isfinite(bound) else None
