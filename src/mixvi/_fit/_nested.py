"""Hyperparameters integrated: the mixture of the Gaussians at points of their posterior.

    p(w | y) = int p(w | theta, y) pi(theta | y) dtheta,    pi(theta | y) ~ exp E(theta)

with `E` Laplace's evidence or, where a family was fitted, its bound with the Gaussian fitted anew
at every theta. Over the pairs (point, parameters) the mixture has a bound of its own, which is
highest for weights in proportion to `mass_i exp E_i`: then it is the log of their sum.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from .._approximate._evidence import Evidence, EvidenceItself
from .._approximate._explore import MOST_POINTS, Ask, Explored, Place, explored
from .._approximate._families import FullRank, named
from .._approximate._laplace import Laplace, laplace
from .._arrays._draws import Matched, Quadrature
from .._arrays._roots import dense
from .._density._with_prior import WithPrior
from .._errors import InputError
from .._judge._joint import judged_together
from .._judge._verdict import REJECT, WEIGH, Reason, Subject, judge
from .._law._gaussian import Gaussian
from .._law._mixture import GaussianMixture
from .._law._surface import Surface
from .._watch import HYPER, stage
from ._case import Case, Problem
from ._hyper_posterior import NEARLY_ALL, ROUGH, STEEP, UNEVEN, HyperPosterior
from ._options import AUTO
from ._posterior import Posterior
from ._solve import with_mode

LAPLACE = "laplace"
MOST_HYPER = 12
# Passes at one point: far from the mode of the hyperparameters a search may be long, and little
# hangs on it. Points that were cut short may have this share of the mass.
MOST_PASSES, MOST_UNSETTLED = 100, 0.05
Hyper = np.ndarray


def refuse_integrating(problem: Problem) -> None:
    """What cannot be integrated, in a sentence."""
    structure = problem.target.hyper_structure
    if structure is None:
        raise InputError(
            "hyper_posterior=True integrates hyperparameters: give their start, hyper=..., and "
            "write log_density(w, hyper)."
        )
    if structure.size > MOST_HYPER:
        raise InputError(
            f"hyper_posterior=True is for at most {MOST_HYPER} hyperparameters, not "
            f"{structure.size}: make some of them parameters (log_density of all of them)."
        )
    if problem.options.mixture is not None:
        raise InputError(
            'family="mixture" does not go with hyper_posterior=True, which gives a mixture over '
            "the hyperparameters: leave one out."
        )
    if problem.options.hyper_steps == 0:
        raise InputError(
            "hyper_posterior=True begins from the mode of the hyperparameters, which hyper_steps=0 "
            "does not seek: leave hyper_steps= out."
        )


@stage(HYPER)
def integrated(problem: Problem, post: Posterior) -> Posterior:
    """`post`: at the mode of the hyperparameters, from which they are explored."""
    structure = problem.target.hyper_structure
    assert structure is not None
    with np.errstate(all="ignore"):
        theta = structure.ravel(post.hyper, "hyper").astype(np.float64)
        fitting = Fitting.of(problem, post)
        found = explored(fitting.ask, theta)
        if found is None:
            said = "Not integrated: at the mode itself there is no evidence."
            return dataclasses.replace(post, status=f"{post.status} {said}", converged=False)
        return _together(problem, post, fitting, found)


# --- the Gaussian at one of the points ----------------------------------------------------------


class At(NamedTuple):
    """What a fit at fixed hyperparameters found."""

    mean: np.ndarray
    root: Any


class Fitting:
    """Asks for the evidence, or a family's bound, at fixed hyperparameters."""

    ask: Ask

    def __init__(self, problem: Problem, post: Posterior):
        self.problem, self.post = problem, post

    @classmethod
    def of(cls, problem: Problem, post: Posterior) -> "Fitting":
        if post.family != LAPLACE:
            return ByFamily(problem, post)
        return (
            ByItself(problem, post)
            if problem.density.has_own_evidence
            else ByLaplace(problem, post)
        )

    def gaussian(self, place: Place) -> At:
        return At(place.found.mean, place.found.root)

    def is_settled(self, place: Place) -> bool:
        del place
        return True


class ByLaplace(Fitting):
    def __init__(self, problem: Problem, post: Posterior):
        super().__init__(problem, post)
        start, how = post.flat_start.astype(np.float64), problem.options.on_indefinite
        self.evidence = Evidence(problem.density, start, how)

    def ask(self, theta: Hyper, near: Place | None) -> Place | None:
        if near is not None:
            self.evidence.last = near.found
        found = self.evidence.at(theta)
        return found and Place(theta, found.evidence, found.gradient, found)

    def gaussian(self, place: Place) -> At:
        return At(place.found.found.mode, place.found.found.root)


class ByItself(Fitting):
    """Where the density answers the evidence itself; the modes are sought when they are wanted."""

    def __init__(self, problem: Problem, post: Posterior):
        super().__init__(problem, post)
        start, how = post.flat_start.astype(np.float64), problem.options.on_indefinite
        self.evidence = EvidenceItself(problem.density, start, how)

    def ask(self, theta: Hyper, near: Place | None) -> Place | None:
        if near is not None:
            self.evidence.last = near.theta, near.found
        value, gradient = self.evidence(theta)
        if not math.isfinite(value):
            return None
        assert self.evidence.last is not None
        return Place(theta, value, gradient, self.evidence.last[1])

    def gaussian(self, place: Place) -> At:
        found = self.evidence.solved(place.theta, place.found.mode())
        return At(found.mode, found.root)


class ByFamily(Fitting):
    """The family that was chosen at the mode, over the same draws or nodes everywhere."""

    def __init__(self, problem: Problem, post: Posterior):
        super().__init__(problem, post)
        options = problem.options
        family = named(post.family) if options.is_auto else options.richest
        spec = options.draws
        if spec is None:
            kind = Quadrature if post.stats.draws_kind == Quadrature.kind else Matched
            spec = kind(post.stats.draws or 0)
        # The neighbour's Gaussian is a better start than any from elsewhere.
        anchor = "mode" if isinstance(family, FullRank) else options.anchor
        options = dataclasses.replace(
            options, richest=family, is_auto=False, draws=spec, anchor=anchor
        )
        most = min(options.max_steps, MOST_PASSES)
        options = dataclasses.replace(options, max_steps=most)
        self.problem = dataclasses.replace(problem, options=options, fixed=spec)

    def ask(self, theta: Hyper, near: Place | None) -> Place | None:
        density, options = self.problem.density.at(theta), self.problem.options
        start = self.post.flat_start.astype(np.float64) if near is None else near.found.mode
        laplace_there: Laplace = laplace(density, start, options.on_indefinite)
        if not laplace_there.found:
            return None
        target = self.problem.target.at(theta)
        there = dataclasses.replace(self.problem, density=density, target=target)
        warm = self.post
        if near is not None:
            law = Gaussian(near.found.mean, dense(near.found.root))
            warm = dataclasses.replace(warm, law=law)
        fitted = with_mode(Case(there, laplace_there), warm)
        if fitted.state is None or fitted.found_nothing or fitted.spec is None:
            return None
        mean, root = fitted.gaussian(laplace_there)
        # Where the Gaussian is the best one, the bound changes with theta alone.
        slope = density.expect(mean, root, self.problem.rule(fitted.spec)).hyper
        found = FamilyAt(mean, root, laplace_there.mode, fitted.converged)
        return Place(theta, fitted.state.elbo, slope, found)

    def is_settled(self, place: Place) -> bool:
        return place.found.is_settled


class FamilyAt(NamedTuple):
    mean: np.ndarray
    root: Any
    mode: np.ndarray
    is_settled: bool


# --- all of them --------------------------------------------------------------------------------


def _together(problem: Problem, post: Posterior, fitting: Fitting, found: Explored) -> Posterior:
    options, structure = problem.options, problem.target.hyper_structure
    assert structure is not None
    kept = found.kept
    places = [one for one, is_kept in zip(found.places, kept, strict=True) if is_kept]
    gaussians = [fitting.gaussian(one) for one in places]
    weights = found.weights[kept] / found.weights[kept].sum()
    law = GaussianMixture(weights, tuple(Gaussian(at.mean, dense(at.root)) for at in gaussians))
    frame = found.frame
    hyper = HyperPosterior(
        structure=structure,
        surface=Surface(
            *(structure.names, frame.centre, frame.basis, frame.scales),
            *(found.z, found.values, found.slopes, found.step or 0.0),
        ),
        points=np.stack([one.theta for one in places]),
        weights=weights,
        log_evidence=np.array([one.value for one in places]),
        log_mass=found.log_mass[kept],
        log_prior=np.array([_log_prior(problem, one.theta) for one in places]),
        open_names=_open_names(structure.names, found),
        n_lost=found.n_lost,
        n_evaluations=found.n_asked,
        largest_ratio=found.ratio,
        halves_differ=found.uneven,
        steepness=found.steep,
        ended_early=found.ended_early,
    )
    by_laplace = post.family == LAPLACE
    settled = np.array([fitting.is_settled(one) for one in places])
    converged = post.converged and bool(weights[~settled].sum() <= MOST_UNSETTLED)
    judged = None
    if options.diagnostics:
        densities = [problem.density.at(one.theta) for one in places]
        judged = judged_together(densities, law, hyper.log_mass, options.key, options.n_fresh)
    elbo_fixed = None if by_laplace else found.log_integral
    subject = _subject(problem, post, hyper, elbo_fixed, converged)
    stats = dataclasses.replace(
        post.stats, gradients=problem.density.cost, values=problem.density.n_values
    )
    return dataclasses.replace(
        post,
        law=_cast(law, options.dtype),
        log_evidence_laplace=found.log_integral if by_laplace else post.log_evidence_laplace,
        elbo_fixed=elbo_fixed,
        flat_mean_se=None,
        converged=converged,
        judged=judged,
        status=f"{post.status} {_status(problem, hyper, converged)}",
        judgement=judge(subject, judged and judged.diagnosis, post.elsewhere),
        stats=stats,
        hyper_posterior=hyper,
    )


def _cast(law: GaussianMixture, dtype: np.dtype) -> GaussianMixture:
    each = ((one.mean.astype(dtype), dense(one.root).astype(dtype)) for one in law.components)
    return GaussianMixture(law.weights, tuple(Gaussian(*one) for one in each))


def _log_prior(problem: Problem, theta: Hyper) -> float:
    there = problem.density.at(theta).inner
    return there.added if isinstance(there, WithPrior) else 0.0


def _open_names(names: tuple[str, ...], found: Explored) -> tuple[str, ...]:
    """The hyperparameter that changes most along each such axis."""
    spread = np.linalg.norm(found.frame.basis, axis=1)[:, None]
    along = np.abs(found.frame.basis) / spread
    return tuple(dict.fromkeys(names[int(along[:, j].argmax())] for j in found.open_axes))


def _subject(
    problem: Problem,
    post: Posterior,
    hyper: HyperPosterior,
    elbo_fixed: float | None,
    converged: bool,
) -> Subject:
    options = problem.options
    reasons = []
    said = dict(zip(_signs(hyper), hyper.warnings, strict=True))
    for sign, (level, name, value, limit) in _signs(hyper).items():
        reasons.append(Reason(sign, level, name, value, limit, said[sign]))
    return Subject(
        names=post._shown.names,
        family=AUTO if options.is_auto else post.family,
        converged=converged,
        elbo_fixed=elbo_fixed,
        accepts_images=options.symmetric == "accept",
        of_design=tuple(reasons),
        n_components=len(hyper.points),
    )


def _signs(hyper: HyperPosterior) -> dict[str, tuple[str, str | None, float, float]]:
    """In the order of `HyperPosterior.warnings`."""
    signs: dict[str, tuple[str, str | None, float, float]] = {}
    if hyper.open_names:
        signs["hyper"] = (REJECT, hyper.open_names[0], math.inf, math.inf)
    if hyper.ended_early:
        n = float(len(hyper.surface.z))
        signs["hyper_ended"] = (REJECT, None, n, float(MOST_POINTS))
    if hyper.n_lost:
        signs["hyper_lost"] = (WEIGH, None, float(hyper.n_lost), 0.0)
    if hyper.is_coarse:
        signs["hyper_coarse"] = (WEIGH, None, hyper.largest_weight, NEARLY_ALL)
    if hyper.is_rough:
        signs["hyper_rough"] = _beyond(hyper.largest_ratio, ROUGH)
    if hyper.is_uneven:
        signs["hyper_uneven"] = _beyond(hyper.halves_differ, UNEVEN)
    if hyper.is_steep:
        signs["hyper_steep"] = _beyond(hyper.steepness, STEEP)
    return signs


def _beyond(value: float, limits: tuple[float, float]) -> tuple[str, None, float, float]:
    level, limit = (REJECT, limits[1]) if value > limits[1] else (WEIGH, limits[0])
    return level, None, value, limit


def _status(problem: Problem, hyper: HyperPosterior, converged: bool) -> str:
    design = "a grid" if hyper.design == "grid" else "a central composite design"
    prior = (
        "with hyper_prior"
        if problem.options.hyper_prior is not None
        else "under what the log density says of them (flat where it says nothing)"
    )
    told = "".join(f" {one[0].upper()}{one[1:]}." for one in hyper.warnings)
    told += "" if converged else " At points of weight a search stopped before it converged."
    return (
        f"Integrated over {len(hyper.points)} points of {design}, {prior}, in "
        f"{hyper.n_evaluations} fits.{told}"
    )
