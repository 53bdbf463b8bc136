"""A family around an anchor: its search on the first draws, then on as many as it needs."""

import numpy as np

from .._approximate._climb import FamilyBound, FamilyState, climb, nearest, resume
from .._approximate._families import Family
from .._arrays._draws import Draws, Quadrature
from ._case import Case, Fitted, Spec
from ._enough import Searching, enough_draws, enough_nodes
from ._posterior import Posterior


def around(case: Case, family: Family, first: Spec, warm: Posterior | None) -> Fitted:
    return refined(case, family, first, searched(case, family, first, warm))


def searched(
    case: Case, family: Family, first: Spec, warm: Posterior | None, poorer_first: bool = True
) -> FamilyState:
    """The family on the first draws or nodes."""
    density, anchor, stop = case.density, case.anchor, case.stop
    rule, optimiser = case.problem.rule(first), case.options.optimiser
    tilt = case.tilt(family.root(anchor.root), rule)
    # A search that could not leave its first start is better begun from the Laplace Gaussian.
    if warm is not None and not family.start_is_stationary:
        params = nearest(anchor, family, warm.flat_mean, warm.root, tilt.start)
        own = nearest(anchor, family, anchor.centre, anchor.root, tilt.start)
        bound = FamilyBound(density, anchor, family, rule, tilt)
        # With other data an earlier Gaussian may be far worse than Laplace's.
        if np.isfinite(params).all() and bound.value(params) > bound.value(own):
            return resume(density, anchor, family, rule, params, stop, optimiser, tilt)
    return climb(density, anchor, family, rule, stop, optimiser, tilt, poorer_first)


def refined(case: Case, family: Family, first: Spec, state: FamilyState) -> Fitted:
    """Goes on with more draws or nodes (each time from where the last fit ended) while there are
    too few. A number that the user chose is left as it is."""
    searching, spec, events, fresh = Searching(case, family, state), first, case.events, None
    if isinstance(spec, Quadrature):
        searching, spec, more = enough_nodes(searching, spec)
        events += more
    if isinstance(spec, Draws) and case.options.draws is None:
        searching, spec, fresh = enough_draws(searching, spec)
    return Fitted(family.name, searching.state, spec, judged=fresh, events=events)
