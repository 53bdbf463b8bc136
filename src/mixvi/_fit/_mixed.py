"""Family "mixture": from the best Gaussian to as many components as pay.

    modes ....... those that were seen become components
    growing ..... a component more where mass is missing, all improved together; kept where fresh
                  draws gain more than `GAIN` nats and more than their noise
    draws ....... twice as many where the fixed ones promise more than fresh ones hold

It never ends below the Gaussian on fresh draws: nothing is kept that these do not confirm.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from .._approximate._laplace import covariance_root
from .._approximate._missing import Look, look, proposals
from .._approximate._mixture import (
    NO_WEIGHT,
    Components,
    MixtureShape,
    MixtureState,
    draws_for,
    improved,
)
from .._arrays._draws import Draws, Matched
from .._arrays._roots import dense
from .._density._protocol import Density
from .._errors import Code
from .._judge._diagnosis import NO_MASS, Elsewhere
from .._judge._elsewhere import Setting, searched_elsewhere
from .._judge._fresh import judged, judged_mixture
from .._judge._modes import Mode, climbed, distinct, weighed
from .._law._gaussian import Gaussian
from .._law._mixture import GaussianMixture
from .._watch import FAMILY, stage
from ._case import Case, Fitted
from ._events import Event, Mixed, NothingToGrow, OneIsEnough, OneWasAsked, TooManyForMore
from ._posterior import Posterior

# Nats: what is not worth another component, and how near to the posterior is near enough.
GAIN, NEAR_ENOUGH = 0.005, 0.01
# Fresh draws of a component that decide; fixed ones of it, at most.
N_LOOK, MOST_DRAWS = 500, 4096
# Steps of a new component alone, which tell which proposal is the better one; of all together, then
# and at the end.
FIRST_STEPS, GROWING_STEPS, LAST_STEPS = 10, 12, 150
# Nats over a few steps, while growing and at the end.
ROUGH, FINE = 0.003, 5e-4
# Nats by which a mixture may be less dense at a mode than the posterior and still cover it.
COVERED = 3.0
# Draws between modes, how much wider than these together; nats by which a draw must be denser than
# the mixture has it, and climbs from such.
N_BETWEEN, BETWEEN, SURPRISE, MOST_CLIMBS = 2000, 1.3, 10.0, 6
# Modes that become components at most.
MOST_MODES = 24
# Parameters up to which a shape is worth more components: a Gaussian more bends it along one
# direction, of many.
MOST_PARAMETERS = 100


@dataclasses.dataclass(frozen=True)
class Growing:
    """Components that fresh draws have confirmed, over so many fixed draws of each."""

    case: Case
    density: Density
    state: MixtureState
    seen: Look
    spec: Draws

    @property
    def at(self) -> Components:
        return self.state.at

    @property
    def promises(self) -> float:
        """Nats that the fixed draws claim beyond fresh ones, and beyond their noise."""
        return abs(self.state.elbo - self.seen.elbo) - 2 * self.seen.se

    def with_components(
        self,
        at: Components,
        spec: Draws,
        gain: float,
        steps: int,
        before: MixtureShape | None = None,
    ) -> "Growing":
        """Improved together, and looked at afresh."""
        key, dim = self.case.options.key, self.case.problem.dim
        state = improved(self.density, at, draws_for(key, len(at), spec, dim), gain, steps, before)
        kept = state.at.weights > NO_WEIGHT
        if not kept.all():
            at = state.at.those(kept)
            state = improved(self.density, at, draws_for(key, len(at), spec, dim), gain, steps)
        seen = looked(self.case, self.density, state.at)
        return Growing(self.case, self.density, state, seen, spec)

    def more_draws(self) -> "Growing":
        return self.with_components(self.at, self.spec.doubled(), ROUGH, GROWING_STEPS)

    @property
    def may_double(self) -> bool:
        dim, memory = self.case.problem.dim, self.case.options.memory
        n = 2 * self.spec.n
        fits = n <= MOST_DRAWS and 16 * n * len(self.at) * dim <= memory // 4
        return fits and not self.case.problem.draws_given


def looked(case: Case, density: Density, at: Components) -> Look:
    return look(density, at, case.options.key, N_LOOK)


@stage(FAMILY)
def mixed(
    case: Case,
    fitted: Fitted,
    elsewhere: Elsewhere,
    modes: Sequence[Mode],
    warm: Posterior | None = None,
) -> tuple[Fitted, Elsewhere]:
    """The mixture, and what it does not reach; as they were where one Gaussian is enough."""
    density, asked = fitted.density(case), case.options.mixture
    assert asked is not None
    mean, root = fitted.gaussian(case.found)
    one = Components.of(np.ones(1), [(mean, dense(root))])
    given = case.options.draws
    spec = given if isinstance(given, Draws) else Matched(max(256, 4 * case.problem.dim))
    if asked.n_components == 1:
        return _one(fitted, OneWasAsked()), elsewhere
    if _is_near(fitted, elsewhere):
        return _one(fitted, OneIsEnough()), elsewhere
    state = improved(density, one, draws_for(case.options.key, 1, spec, case.problem.dim), 1.0, 0)
    first = Growing(case, density, state, looked(case, density, one), spec)
    if not first.seen.is_finite:
        return _one(fitted, NothingToGrow()), elsewhere
    modes = _all_modes(case, density, fitted, elsewhere, modes)
    grown = _with_modes(first, modes, asked.n_components)
    grown = _from_warm(grown, warm, asked.n_components)
    may_grow = case.problem.dim <= MOST_PARAMETERS
    grown = _grown(grown, asked.n_components) if may_grow else grown
    if len(grown.at) == 1:
        told = OneIsEnough() if may_grow else TooManyForMore(MOST_PARAMETERS)
        return _one(fitted, told), elsewhere
    grown = _finished(grown)
    return _told(fitted, first, grown), _not_reached(grown, elsewhere, modes)


def _is_near(fitted: Fitted, elsewhere: Elsewhere) -> bool:
    """The Gaussian is as good as the posterior, as its fresh draws tell."""
    if fitted.judged is None:
        return False
    said = fitted.judged.diagnosis
    return said.kl < NEAR_ENOUGH and said.khat < said.khat_limit and elsewhere.share < NO_MASS


def _one(fitted: Fitted, event: Event) -> Fitted:
    return dataclasses.replace(fitted, events=(*fitted.events, event))


# --- modes ------------------------------------------------------------------------------------


def _all_modes(
    case: Case, density: Density, fitted: Fitted, elsewhere: Elsewhere, modes: Sequence[Mode]
) -> list[Mode]:
    """Those that were seen, images of them, and those that a look around each of them finds."""
    one_of_equals = case.options.symmetric == "accept" and elsewhere.all_images
    if one_of_equals or not (modes or elsewhere.modes):
        return []
    found = [_image(density, one.point) for one in elsewhere.modes if one.share > NO_MASS]
    found = distinct([*modes, *(one for one in found if one is not None)])
    target, key, options = case.problem.target, case.options.key, case.options
    setting = Setting(target.structure, target.constraints, case.problem.start, True)
    mean, root = fitted.gaussian(case.found)
    own = Mode(
        mean,
        dense(root),
        -math.inf,
        fitted.judged.diagnosis.elbo.value if fitted.judged else -math.inf,
    )
    if elsewhere.symmetries:
        return found[:MOST_MODES]
    done = 0
    while done < len(found) < MOST_MODES:
        there = found[done]
        fresh = judged(density, there.place, there.root, key, options.n_fresh)
        if not fresh.diagnosis.n_non_finite:
            at = (density, None, there.place, there.root, fresh, setting, key)
            known = [own, *found]
            _, others = searched_elsewhere(*at, around_mean=True, seen=known, goes_on=True)
            found = distinct([own, *found, *others])[1:]
        done += 1
    return found[:MOST_MODES]


def _image(density: Density, point: np.ndarray | None) -> Mode | None:
    if point is None:
        return None
    value, _, hessian = density.curvature(point)
    root, log_det, _ = covariance_root(-hessian, "raise", density.resolution)
    if not math.isfinite(log_det):
        return None
    mass = value + 0.5 * len(point) * math.log(2 * math.pi) + log_det
    return Mode(point, root, value, mass)


def _with_modes(one: Growing, modes: Sequence[Mode], most: int) -> Growing:
    if not modes:
        return one
    ranked = sorted(modes, key=lambda mode: -mode.log_mass)[: most - 1]
    own = (one.at.means[0], one.at.roots[0])
    logs = np.array([one.seen.elbo + min(one.seen.kl, 1.0), *(mode.log_mass for mode in ranked)])
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    at = Components.of(weights, [own, *((mode.place, mode.root) for mode in ranked)])
    more = one.with_components(at.those(weights > 1e-6), one.spec, ROUGH, LAST_STEPS)
    if not more.seen.gains(one.seen, 0.0):
        return one
    known = [Mode(own[0], own[1], -math.inf, -math.inf), *ranked]
    while len(known) < min(most, MOST_MODES) and (new := _between(more, known)):
        known = [*known, *new][: min(most, MOST_MODES)]
        at = more.at
        for mode in known[len(known) - len(new) :]:
            share = 1 / (1 + math.exp(min(more.seen.elbo - mode.log_mass, 30.0)))
            at = at.and_also(share, mode.place, mode.root)
        again = more.with_components(at, more.spec, ROUGH, LAST_STEPS)
        if not again.seen.gains(more.seen, 0.0):
            break
        more = again
    return more


def _between(now: Growing, known: Sequence[Mode]) -> list[Mode]:
    """Modes that a Gaussian as wide as all known ones together sees: what is far from each of them
    is not far from all."""
    law, key = now.at.law, now.case.options.key
    if not isinstance(law, GaussianMixture):
        return []
    around = law.moments
    wide = Gaussian(around.mean, BETWEEN * dense(around.root))
    points = wide.sample(key, N_BETWEEN)
    log_p = now.density.values(points)
    missed = log_p - now.seen.elbo - law.log_prob(points)
    found: list[Mode] = []
    best_first = np.argsort(-np.where(missed > SURPRISE, log_p, -np.inf))
    for place in best_first[: min(MOST_CLIMBS, int((missed > SURPRISE).sum()))]:
        mode = climbed(now.density, points[place], [*known[1:], *found])
        mode = mode and weighed(now.density, mode, key)
        if mode is None or mode.log_mass < now.seen.elbo - 10 or known[0].apart(mode) < 1:
            continue
        found.append(mode)
    return found


def _from_warm(grown: Growing, warm: Posterior | None, most: int) -> Growing:
    """The components of an earlier fit, where they are better here."""
    if warm is None or not isinstance(warm.law, GaussianMixture) or len(warm.law.weights) > most:
        return grown
    pairs = [(one.mean.astype(float), dense(one.root).astype(float)) for one in warm.law.components]
    again = Components.of(warm.law.weights, pairs)
    found = grown.with_components(again, grown.spec, ROUGH, GROWING_STEPS)
    return found if found.seen.gains(grown.seen, 0.0) else grown


# --- growing ----------------------------------------------------------------------------------


def _grown(now: Growing, most: int) -> Growing:
    while len(now.at) < most and now.seen.kl > NEAR_ENOUGH:
        more = _one_more(now)
        if more is None and now.promises > GAIN and now.may_double:
            now = now.more_draws()
            more = _one_more(now)
        if more is None:
            break
        now = more
    return now


def _one_more(now: Growing) -> Growing | None:
    """With the component that gains most; None where none gains enough."""
    key, dim = now.case.options.key, now.case.problem.dim
    z = draws_for(key, len(now.at) + 1, now.spec, dim)
    before, begun = now.state.shape, []
    for at in proposals(now.seen, before):
        is_new = ~before.holds(at, now.spec.n)
        begun.append(improved(now.density, at, z, ROUGH, FIRST_STEPS, before, is_new))
    begun = [one for one in begun if math.isfinite(one.elbo)]
    for one in sorted(begun, key=lambda one: -one.elbo):
        found = now.with_components(one.at, now.spec, ROUGH, GROWING_STEPS, one.shape)
        if found.promises > 2 * GAIN and now.may_double:
            found = found.more_draws()
        if found.seen.gains(now.seen, GAIN):
            return found
    return None


def _finished(grown: Growing) -> Growing:
    """To the end of the search, over as many draws as hold what they promise."""
    found = grown.with_components(grown.at, grown.spec, FINE, LAST_STEPS)
    while found.promises > GAIN and found.may_double:
        found = found.with_components(found.at, found.spec.doubled(), FINE, LAST_STEPS)
    # Longer searches fit the draws more closely: not at the cost of fresh ones.
    better = found.seen.elbo > grown.seen.elbo - 2 * math.hypot(found.seen.se, grown.seen.se)
    best = found if better else grown
    # What fresh draws cannot see is no reason to go on.
    is_settled = not better or best.state.gain_left < GAIN
    code = Code.OK if is_settled else best.state.code
    return dataclasses.replace(best, state=dataclasses.replace(best.state, code=code))


# --- what came of it --------------------------------------------------------------------------


def _told(fitted: Fitted, first: Growing, grown: Growing) -> Fitted:
    options = grown.case.options
    law = grown.at.law
    assert isinstance(law, GaussianMixture)
    event = Mixed(len(grown.at), grown.seen.elbo - first.seen.elbo)
    fresh = judged_mixture(grown.density, law, options.key, options.n_fresh)
    state = dataclasses.replace(
        grown.state, learnt=getattr(fitted.state, "learnt", grown.case.learnt)
    )
    return dataclasses.replace(
        fitted,
        name="mixture",
        state=state,
        spec=grown.spec,
        judged=fresh,
        inspection=None,
        events=(*fitted.events, event),
        choice=None,
    )


def _not_reached(grown: Growing, elsewhere: Elsewhere, modes: Sequence[Mode]) -> Elsewhere:
    """Modes that the mixture does not cover. Of many images all count, and some are listed."""
    law, bound = grown.at.law, grown.seen.elbo

    def is_covered(point: np.ndarray | None, height: float) -> bool:
        return point is not None and float(law.log_prob(point)) > height - bound - COVERED

    listed = [one for one in elsewhere.modes if not is_covered(one.point, one.log_density)]
    covered = [one for one in elsewhere.modes if is_covered(one.point, one.log_density)]
    n_covered = sum(one.share > NO_MASS for one in covered)
    share = max(elsewhere.share - sum(one.share for one in covered), 0.0)
    left = elsewhere.n_modes - n_covered
    if left <= 0 or not (share > 0 or listed):
        return dataclasses.replace(elsewhere, modes=(), n_modes=0, share=0.0, symmetries=())
    return dataclasses.replace(elsewhere, modes=tuple(listed), n_modes=left, share=share)
