"""Several starts: which modes there are, and the Gaussian that has the highest bound."""

import dataclasses

import numpy as np

from .._draws import RESTARTS, generator
from .._errors import Code
from .._posterior import Posterior
from .._target import Target, precision_scope
from ._flow import alone, forget_if_many
from ._judge import Mode, distinct
from ._options import FirstOptions
from ._outcome import Outcome, Rule
from ._solve import mode_of, solved

# Starts lie so many units around `init` (one, or its own size where that is larger).
SPREADS = (0.5, 1.0, 2.0, 4.0)
MOST_FITS = 3


def solve(
    target: Target,
    start: np.ndarray,
    options: FirstOptions,
    fixed: Rule | None,
    warm: Posterior | None = None,
) -> Outcome:
    """One problem, from start to verdict, at once."""
    forget_if_many()
    with precision_scope(options.dtype):
        return alone(flow(target, start, options, fixed, warm))


async def flow(
    target: Target,
    start: np.ndarray,
    options: FirstOptions,
    fixed: Rule | None,
    warm: Posterior | None = None,
) -> Outcome:
    """`solved` from `start`, or from the best of several starts."""
    first = await solved(target, start, options, fixed, warm)
    if not options.n_restarts:
        return first
    modes = await _modes(target, start, options)
    # The first start has led to one of them already.
    new = [mode for mode in modes[:MOST_FITS] if not np.allclose(mode.place, first[0].mode, 1e-4)]
    outcomes = [first] + [await solved(target, mode.place, options, fixed) for mode in new]
    post, error = max(outcomes, key=_bound)
    if error is not None or not modes:
        return post, error
    evidence = np.array([mode.log_evidence for mode in modes])
    share = np.exp(evidence - np.logaddexp.reduce(evidence))
    own = int(np.argmin([_away(post, mode) for mode in modes]))
    several = f"{len(modes)} modes were" if len(modes) > 1 else "One mode was"
    status = (
        f"{post.status} {several} seen from {1 + options.n_restarts} starts; the one nearest to "
        f"this Gaussian has {share[own]:.0%} of their mass (by evidence)."
    )
    stats = post.stats | {"modes": len(modes), "share": float(share[own])}
    return dataclasses.replace(post, status=status, stats=stats), None


def _bound(outcome: Outcome) -> float:
    """On fresh draws where there are any."""
    post, error = outcome
    if error is not None:
        return -np.inf
    bound = post.log_evidence if post.elbo is None else post.elbo.value
    return bound if np.isfinite(bound) else -np.inf


async def _modes(target: Target, start: np.ndarray, options: FirstOptions) -> list[Mode]:
    """The distinct modes that Newton's method finds from a spread of starts, the one with most
    evidence first."""
    rng = generator(options.key, RESTARTS)
    unit = np.maximum(1.0, np.abs(start))
    starts = [start]
    for k in range(options.n_restarts):
        away = SPREADS[k % len(SPREADS)] * unit * rng.standard_normal(len(start))
        starts.append((start + away).astype(options.dtype))
    found = []
    for one in starts:
        mode, _, numbers = await mode_of(target, one, options)
        if numbers.code is Code.OK and np.isfinite(numbers.log_evidence):
            place, root = np.asarray(mode.mode), np.asarray(mode.root.matrix)
            found.append(Mode(place, root, numbers.log_evidence))
    return distinct(sorted(found, key=lambda mode: -mode.log_evidence))


def _away(post: Posterior, mode: Mode) -> float:
    return float(np.linalg.norm(post.unconstrained.whiten(post.structure.unravel(mode.place))))
