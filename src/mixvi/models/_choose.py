"""How many basis functions, and whether a width for each feature pays: by leave-one-out.

Every candidate learns its hyperparameters by Laplace's evidence, takes a few steps to a better
Gaussian, and is judged by the log predictive density of rows left out. Of few sizes the best is
taken; more basis functions, or a width for each feature, must gain more than one standard error,
the luck of the rows. Of many rows some are enough to choose.
"""

import copy
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._approximate._evidence import (
    Tuned,
    evidence_scale,
    highest_evidence,
    is_usable,
    tuned_laplace,
)
from .._approximate._laplace import Laplace
from .._approximate._search import Stop, Summit
from .._approximate._stein import stein
from .._arrays._draws import Quadrature
from .._errors import Code, InputError
from ._basis import RBF, square_distances
from ._density import ModelDensity
from ._likelihoods import Hyper, Likelihood
from ._loo import LeaveOneOut, equal_rows, leave_one_out
from ._model import Model
from ._noise import is_gaussian

FIRST_SIZE, ALWAYS, MOST_CHOSEN = 10, 40, 640
# Weights that are tried without being asked for, and predictors of the rows that choose.
MOST_WEIGHTS, MOST_PREDICTORS = 500, 2000
# Evaluations of the evidence from every start, and from the best one on.
SCREENING_STEPS, STEPS, STEPS_WITH_WIDTHS = 6, 60, 12
# Nats of evidence that a candidate may leave to the fit that follows.
GAIN = 1e-3
# The same of a density that answers its evidence itself, at little cost; and of its screening.
LITTLE = 1e-4
SCREENING_GAIN = 0.01
# Of many rows such a part screens the starts, and no fewer than this; ends as far apart as this, on
# the log scale, are two.
SCREENED, LEAST_SCREENED, APART = 3, 60, 0.5
# Nats in all that sizes beyond `ALWAYS` must gain: one small gain at every row has no luck in it.
LEAST_GAIN = 0.5
# On the log scale, how much narrower a width must be to be worth a start of its own.
MUCH = 0.5
# Steps to a Gaussian that is good enough to be judged.
ROUGH = Stop(gain=0.02, max_steps=12, last_step=False)
FLOAT64 = np.dtype(np.float64)


class NoCandidateError(InputError):
    """Nowhere has the model a mode; others may."""


@dataclasses.dataclass(frozen=True)
class Data:
    """A table on the scale of one. `same`: a number for each row, the same for equal rows."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    same: np.ndarray | None = None

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> "Data":
        return cls(x, y, weight, equal_rows(x, y))

    @property
    def n_distinct(self) -> int:
        return len(self.y) if self.same is None else int(self.same.max()) + 1

    def some(self, n: int, seed: int) -> "Data":
        """At most `n` rows."""
        if len(self.y) <= n:
            return self
        taken = np.sort(np.random.default_rng([seed, n]).choice(len(self.y), n, replace=False))
        return Data.of(self.x[taken], self.y[taken], self.weight[taken])


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A model at the hyperparameters with the highest evidence; `density` is taken there. `same`:
    as in `Data`."""

    model: Model
    density: ModelDensity
    found: Laplace
    same: np.ndarray | None

    @functools.cached_property
    def loo(self) -> LeaveOneOut:
        """Of a rough Gaussian. Where there is nothing to choose from, nobody asks."""
        mean, root, at_mode = improved(self.density, self.found)
        return leave_one_out(self.density, mean, root, at_mode, self.same, refit_several=False)

    @property
    def size(self) -> int:
        return self.density.n_weights - 1

    @property
    def per_feature(self) -> bool:
        return bool(getattr(self.model.basis, "per_feature", False))


@dataclasses.dataclass(frozen=True)
class Choice:
    """The best candidate, and all that were tried."""

    best: Candidate
    tried: tuple[Candidate, ...]


def tuned(
    density: ModelDensity,
    starts: Sequence[Hyper],
    near: np.ndarray | None = None,
    steps: int = STEPS,
) -> tuple[ModelDensity, Laplace]:
    """Laplace at the hyperparameters with the highest evidence: a few steps from every start, then
    on from the best."""
    near = density.init.ravel() if near is None else near
    ends = []
    for start in starts:
        theta = density.flat(density.hyper | start)
        few = steps if len(starts) == 1 else SCREENING_STEPS
        ends.append(_search(density, near, theta, few))
    usable = [end for end in ends if is_usable(end[0])]
    if not usable:
        raise _no_candidate(ends[0][0])
    found, at = max(usable, key=lambda end: end[0].log_evidence)
    if len(starts) > 1 and at.code is not Code.OK:
        found, at = _search(density, found.mode, at.theta, steps)
    return density.at(at.theta), found


def _no_candidate(first: Laplace) -> NoCandidateError:
    said = first.code.name.lower().replace("_", " ")
    return NoCandidateError(
        f"no hyperparameters were found at which the model has a mode: the first start says {said}."
    )


def _search(
    density: ModelDensity, near: np.ndarray, theta: np.ndarray, steps: int
) -> tuple[Laplace, Tuned]:
    return tuned_laplace(density, near, theta, "raise", steps, look_beyond=False, gain=GAIN)


def candidate(
    model: Model,
    data: Data,
    starts: Sequence[Hyper] | None,
    seed: int,
    like: Any = None,
    steps: int = STEPS,
) -> Candidate:
    """`like`: a candidate that has the same centres, and nearly the same mode."""
    shared = None if like is None else like.density.shared
    density = model.density(data.x, data.y, weight=data.weight, shared=shared, seed=seed)
    if starts is None:
        starts = spread_starts(model, density.shared)
    elif like is None:
        starts = [*starts, *_narrower(starts[0], density.shared)]
    near = None if like is None else like.found.mode
    if density.has_own_evidence:
        density, found = tuned_itself(density, starts, near, steps, _screening(model, data, seed))
    else:
        density, found = tuned(density, starts, near, steps)
    return Candidate(model, density, found, data.same)


def _screening(model: Model, data: Data, seed: int) -> ModelDensity | None:
    """Of a part of the rows, where that is a small part of the work; None for all of them."""
    n = max(LEAST_SCREENED, len(data.y) // SCREENED)
    if len(data.y) < 2 * n:
        return None
    few = data.some(n, seed)
    return model.density(few.x, few.y, weight=few.weight, seed=seed)


def tuned_itself(
    density: ModelDensity,
    starts: Sequence[Hyper],
    near: np.ndarray | None,
    steps: int,
    few: ModelDensity | None,
) -> tuple[ModelDensity, Laplace]:
    """The same of a density that answers its evidence itself. `few`: of some of the rows, on which
    the starts are followed to their ends; the best of these on all rows goes on there, and with the
    curvature of the few the search knows its scale."""
    near = density.init.ravel() if near is None else near
    thetas, first = [density.flat(density.hyper | start) for start in starts], None
    if len(thetas) > 1:
        of, most = (density, SCREENING_STEPS) if few is None else (few, STEPS)
        ends = [highest_evidence(of, theta, most, SCREENING_GAIN) for theta in thetas]
        theta = _best(density, [end for end in ends if np.isfinite(end.value)], few is None)
        thetas = thetas if theta is None else [theta]
        first = evidence_scale(of, thetas[0], of.weight.sum() / density.weight.sum())
    found, at = tuned_laplace(
        density, near, thetas[0], "raise", steps, look_beyond=False, gain=LITTLE, first=first
    )
    if not is_usable(found):
        raise _no_candidate(found)
    return density.at(at.theta), found


def _best(density: ModelDensity, ends: Sequence[Summit], known: bool) -> np.ndarray | None:
    """Of ends of searches, by the evidence of all rows; `known`: that is theirs."""
    ends = sorted(ends, key=lambda end: -end.value)
    far = [
        end
        for i, end in enumerate(ends)
        if all(np.abs(end.point - other.point).max() > APART for other in ends[:i])
    ]
    if len(far) < 2 or known:
        return ends[0].point if ends else None
    return max(far, key=lambda end: highest_evidence(density, end.point, 1, GAIN).value).point


def improved(density: ModelDensity, found: Laplace) -> tuple[np.ndarray, np.ndarray, bool]:
    """A Gaussian a few steps on from Laplace's."""
    if is_gaussian(density.likelihood):
        return found.mode, found.root, True
    k = density.n_predictors
    rule = Quadrature(32 if k == 1 else max(64, 4 * k)).make(FLOAT64, k)
    if k > 1 and not density.basis.has_amplitude:
        # So few nodes would be fitted closely by rows, and few basis functions gain most by that.
        density = copy.copy(density)
        density.has_best_gaussian = False
    state = stein(density, found.mode, found.root, rule, ROUGH)
    sound = state.code in (Code.OK, Code.BOUND_OUT_OF_STEPS) and np.isfinite(state.root).all()
    return (state.mean, state.root, False) if sound else (found.mode, found.root, True)


def spread_starts(model: Model, shared: Any) -> list[Hyper]:
    """A few starts spread over what is plausible for standardised inputs; nothing is random."""
    base = model.hyper(shared)
    if "log_width" not in base:
        return [base]
    alpha = {"log_alpha": np.float64(-1.0)} if "log_alpha" in base else {}
    return [base | alpha | {"log_width": base["log_width"] + shift} for shift in (-0.7, 0.0, 0.7)]


def _narrower(hyper: Hyper, shared: Any) -> list[Hyper]:
    """With the width at which neighbouring centres meet, where that is far less: few centres may
    have taken for noise what more of them can follow."""
    if "log_width" not in hyper or len(shared["centres"]) < 2:
        return []
    square = square_distances(shared["centres"], shared["centres"])
    np.fill_diagonal(square, np.inf)
    nearest = 0.5 * np.log(np.median(square.min(1)))
    shift = nearest - float(np.min(hyper["log_width"]))
    return [hyper | {"log_width": hyper["log_width"] + shift}] if shift < -MUCH else []


def chosen(
    likelihood: Likelihood,
    data: Data,
    sizes: Sequence[int] | None,
    per_feature: bool | None,
    weak_prior: bool,
    seed: int,
) -> Choice:
    """Of radial basis functions. `sizes`: those to choose from, None for as many as pay;
    `per_feature`: None for where it pays."""
    few = data.some(max(200, MOST_PREDICTORS // likelihood.n_outputs), seed)
    tried: list[Candidate] = []

    def made(basis: RBF, starts: Sequence[Hyper] | None, like: Any = None) -> Candidate:
        # The fit that follows goes on with the hyperparameters.
        steps = STEPS_WITH_WIDTHS if basis.per_feature else STEPS
        model = Model(basis, likelihood, weak_prior)
        tried.append(candidate(model, few, starts, seed, like, steps))
        return tried[-1]

    all_sizes, asked = _sizes(likelihood, few, sizes), sizes is not None
    first = all_sizes if asked else [size for size in all_sizes if size <= ALWAYS]
    best = _best_size(made, bool(per_feature), first, asked, None)
    if per_feature is None and few.x.shape[1] > 1 and _affords_widths(few):
        best = _with_widths(made, best, few)
    if not asked:
        known = {one.size for one in tried if one.per_feature == best.per_feature}
        more = [size for size in all_sizes if size > best.size and size not in known]
        best = _best_size(made, best.per_feature, more, asked, best)
    return Choice(best, tuple(tried))


def _sizes(likelihood: Likelihood, data: Data, sizes: Sequence[int] | None) -> list[int]:
    if sizes is not None:
        return list(sizes)
    # Of distinct rows: a row that is repeated is one that weighs more.
    most = min(MOST_CHOSEN, MOST_WEIGHTS // likelihood.n_outputs - 1, data.n_distinct // 2)
    doubled = [FIRST_SIZE]
    while 2 * doubled[-1] <= most:
        doubled.append(2 * doubled[-1])
    return doubled


def _best_size(
    made: Any, per_feature: bool, sizes: Iterable[int], all_of_them: bool, best: Candidate | None
) -> Candidate:
    """The one with the highest leave-one-out density; sizes beyond a few that were not asked for
    are tried while they gain more than the luck of the rows."""
    for size in sizes:
        starts = None if best is None else [best.density.hyper]
        try:
            one = made(RBF(size, per_feature), starts)
        except NoCandidateError:
            if best is None:
                raise
            break  # what was found before stands
        gain, se = (np.inf, 0.0) if best is None else one.loo.gain_over(best.loo)
        luck = 0.0 if all_of_them or size <= ALWAYS else max(se, LEAST_GAIN)
        best = one if gain > luck else best
        if not all_of_them and size >= ALWAYS and not gain > luck:
            break
        if one.size < size:
            break  # no more distinct rows
    assert best is not None
    return best


def _affords_widths(data: Data) -> bool:
    """A width for each feature is that many hyperparameters more."""
    return bool(data.weight.sum() >= 10 * data.x.shape[1])


def _with_widths(made: Any, best: Candidate, data: Data) -> Candidate:
    """With a width for each feature, where these gain more than the luck of the rows."""
    hyper = dict(best.density.hyper)
    hyper["log_width"] = np.full(data.x.shape[1], float(hyper["log_width"]))
    try:
        widths = made(RBF(best.size, True), [hyper], like=best)
    except NoCandidateError:
        return best
    gain, se = widths.loo.gain_over(best.loo)
    # Rows that are left out had their part in every width: on average it is worth a nat, as in
    # Akaike's criterion.
    return widths if gain - (data.x.shape[1] - 1) > se else best
