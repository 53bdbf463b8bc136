"""Several starts: which modes there are, and the Gaussian that has the highest bound."""

import dataclasses

import numpy as np

from .._judge._modes import Mode, distinct
from ._case import Problem
from ._events import ModesSeen
from ._outcome import Outcome
from ._posterior import Posterior
from ._solve import mode_of, solved
from ._starts import spread_starts

MOST_FITS = 3


def solve(problem: Problem, warm: Posterior | None = None) -> Outcome:
    """`solved` from `start`, or from the best of several starts."""
    # What overflows or divides by zero is looked at where it matters.
    with np.errstate(all="ignore"):
        return _solve(problem, warm)


def _solve(problem: Problem, warm: Posterior | None) -> Outcome:
    if not problem.options.n_restarts:
        return solved(problem, warm)
    modes = _modes(problem)
    # Modes at other hyperparameters are no modes of one posterior.
    learns = problem.target.hyper_structure is not None
    seen = () if learns else modes
    first = solved(problem, warm, seen)
    # The first start has led to one of them already.
    several = () if problem.options.mixture is not None else modes[:MOST_FITS]
    new = [mode for mode in several if not np.allclose(mode.place, first[0].mode, 1e-4)]
    starts = [dataclasses.replace(problem, start=one.place) for one in new]
    post, error = max([first, *(solved(one, None, seen) for one in starts)], key=_bound)
    if error is not None or not modes or post.stats.components:
        return post, error  # the modes of a mixture are its components
    share = _share(post, modes) if learns else 1 - post.elsewhere.share
    n_modes = max(len(modes), 1 + post.elsewhere.n_modes)
    event = ModesSeen(n_modes, 1 + problem.options.n_restarts, share)
    stats = dataclasses.replace(post.stats, modes=event.n_modes, share=event.share)
    return dataclasses.replace(post, status=f"{post.status} {event.sentence}", stats=stats), None


def _bound(outcome: Outcome) -> float:
    """On fresh draws where there are any."""
    post, error = outcome
    if error is not None:
        return -np.inf
    bound = post.log_evidence if post.elbo is None else post.elbo.value
    return bound if np.isfinite(bound) else -np.inf


def _modes(problem: Problem) -> list[Mode]:
    """The distinct modes that Newton's method finds from a spread of starts, the one with most
    evidence first."""
    found = []
    for start in [problem.start, *spread_starts(problem, problem.options.n_restarts)]:
        one = mode_of(dataclasses.replace(problem, start=start)).found
        if one.found and np.isfinite(one.log_evidence):
            found.append(Mode(one.mode, one.root, one.log_density, one.log_evidence))
    return distinct(sorted(found, key=lambda mode: -mode.log_mass))


def _share(post: Posterior, modes: list[Mode]) -> float:
    """By evidence, of the mode that is nearest."""
    evidence = np.array([mode.log_mass for mode in modes])
    share = np.exp(evidence - np.logaddexp.reduce(evidence))
    return float(share[int(np.argmin([_away(post, mode) for mode in modes]))])


def _away(post: Posterior, mode: Mode) -> float:
    return float(np.linalg.norm(post.unconstrained.whiten(post.structure.unravel(mode.place))))
