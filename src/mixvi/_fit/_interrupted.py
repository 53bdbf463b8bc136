"""What an interrupted fit gives back: the best Gaussian until then."""

from .._approximate._laplace import Laplace
from .._judge._diagnosis import Elsewhere
from .._watch import Watch
from ._case import Case, Fitted, Problem
from ._events import Interrupted
from ._outcome import Outcome, finish
from ._solve import tuned_case


def given_back(problem: Problem, watch: Watch) -> Outcome | None:
    """None where there is no Gaussian yet. A start that was searched to its end goes before one
    that was not."""
    case, fitted = _best(problem, watch)
    if case is None or not (case.found.found or fitted.state is not None):
        return None
    at = Interrupted(watch.stage, fitted.name, problem.density.n_passes)
    made = Fitted(fitted.name, fitted.state, events=fitted.events, interrupted=at)
    return finish(case, made, Elsewhere())


def _best(problem: Problem, watch: Watch) -> tuple[Case | None, Fitted]:
    if watch.finished:
        return max(watch.finished, key=_bound)
    reached = watch.reached
    if reached is None:
        return watch.case, Fitted("laplace")
    if isinstance(reached[0], Laplace):
        # Hyperparameters on their way, with the mode at each.
        return tuned_case(problem, *reached), Fitted("laplace")
    return watch.case, Fitted(*reached)


def _bound(one: tuple[Case, Fitted]) -> float:
    case, fitted = one
    state = fitted.state
    return case.found.log_evidence if state is None else state.elbo
