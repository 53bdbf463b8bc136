"""The verdict: reasons, the level that they add up to, and one sentence made of them."""

import dataclasses
import math
from collections.abc import Sequence

from .._density._structure import listed
from ._diagnosis import AS_IT_IS, WEIGHTS_WORK, Diagnosis, Elsewhere, Moments
from ._probes import MOST_PROBED

TRUST, WEIGH, REJECT = "trust", "weigh", "reject"
SEVERITY = (TRUST, WEIGH, REJECT)
# What may be wrong with points over which hyperparameters are integrated.
OF_DESIGN = (
    *("hyper_ended", "hyper_lost", "hyper_coarse"),
    *("hyper_rough", "hyper_uneven", "hyper_steep"),
)
# Probes that see this much of the mass are worth a closer look.
TAIL_SUSPECTED = 0.005
# Parameters up to which mixtures are a remedy for a shape.
MOST_MIXED = 50
# Standard errors within which a limit is near.
NEAR_A_LIMIT = 1.5


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """Where trust ends. Set on fits whose errors long NUTS runs know, leaving one posterior out at
    a time (`benchmarks/verdicts.py`): weighted draws see less of an error than there is.

    `weigh`, `reject`: a mean off by so many standard deviations, a standard deviation by such a
    factor. `far`, `far_per_dimension`: nats from the posterior (in all, and per dimension where
    there are many) that are not close. `tail`: shares of the mass that the Gaussian does not
    reach. `modes`: that other modes have.
    """

    weigh: tuple[float, float] = (0.25, 1.25)
    reject: tuple[float, float] = (0.5, 1.3)
    far: float = 0.5
    far_per_dimension: float = 0.02
    tail: tuple[float, float] = (0.03, 0.1)
    modes: float = 0.01


DEFAULT_THRESHOLDS = Thresholds()
# A mixture has been fitted until draws near it find little: of what is left they see less still.
# Learnt from other posteriors, limits were no better (`benchmarks/mixture_verdicts.py`).
MIXTURE_THRESHOLDS = Thresholds(weigh=(0.2, 1.15), reject=(0.4, 1.25))


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a Gaussian is not to be trusted as it is.

    `test`: "converged", "finite", "modes", "mean", "sd", "khat", "distance", "tails", "draws",
    "hyper", "hyper_ended", "hyper_lost", "hyper_coarse", "hyper_rough", "hyper_uneven",
    "hyper_steep" (points over which hyperparameters were integrated), or "failed" where there is no
    Gaussian. `level`: "weigh" or "reject". `parameter`: the one that is worst, by its name; None
    where it is none's alone. `value` and the `limit` that it is beyond. `sentence`: in words.

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> def two(w):
    ...     return jnp.logaddexp(-0.5 * w["a"] ** 2, -0.5 * (w["a"] - 9.0) ** 2)
    >>> reason = mixvi.fit(two, {"a": 0.0}).reasons[0]
    >>> reason.test, reason.level, round(reason.value, 1), reason.limit
    ('modes', 'reject', 0.5, 0.01)
    """

    test: str
    level: str
    parameter: str | None
    value: float
    limit: float
    sentence: str


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is judged: names of the parameters, what the search says of itself, and what may still
    be tried."""

    names: Sequence[str]
    family: str
    converged: bool = True
    elbo_fixed: float | None = None
    ran_off: tuple[str, ...] = ()
    accepts_images: bool = False
    n_components: int = 1
    may_have_more: bool = False  # components, than the user has allowed
    of_design: "tuple[Reason, ...]" = ()  # of points over which hyperparameters are integrated

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def remedy(self) -> str:
        """What a user may try where the shape is missed."""
        if self.family == "mixture" and self.may_have_more:
            more = 2 * self.n_components
            return (
                f"allow more components, family=mixvi.Mixture({more}), or write it in other "
                "parameters"
            )
        if self.family == "mixture":
            return "more components did not come closer: write it in other parameters"
        if self.family not in ("full", "auto"):
            return 'try family="full", or write it in other parameters'
        if self.family != "mixture" and self.n_components > 1:  # hyperparameters are integrated
            return "write it in other parameters, or make the hyperparameters parameters"
        # In many dimensions a few more Gaussians do not change a shape.
        mixed = ', or try family="mixture"' if self.dim <= MOST_MIXED else ""
        return f"no Gaussian is much closer: write it in other parameters{mixed}"

    @property
    def limits(self) -> Thresholds:
        return DEFAULT_THRESHOLDS if self.n_components == 1 else MIXTURE_THRESHOLDS

    @property
    def what(self) -> str:
        """What is judged, in a word."""
        return "Gaussian" if self.n_components == 1 else "mixture"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`level`: "trust", "weigh" or "reject"; None where nothing was judged."""

    level: str | None
    reasons: tuple[Reason, ...]
    sentence: str


def judge(
    subject: Subject,
    diagnosis: Diagnosis | None,
    elsewhere: Elsewhere,
    limits: Thresholds | None = None,
) -> Verdict:
    """`limits`: others than the subject's own."""
    limits = subject.limits if limits is None else limits
    reasons = list(of_the_search(subject))
    if diagnosis is not None:
        reasons += _of_modes(subject, elsewhere, limits)
        reasons += of_draws(subject, diagnosis, limits)
        reasons += of_fixed_draws(subject, diagnosis)
    reasons += [*of_hyperparameters(subject), *subject.of_design]
    reasons.sort(key=lambda one: -SEVERITY.index(one.level))
    if diagnosis is None and not reasons:
        return Verdict(None, (), "Not judged: diagnostics were switched off.")
    level = reasons[0].level if reasons else TRUST
    return Verdict(level, tuple(reasons), _sentence(level, reasons, subject, diagnosis, elsewhere))


def is_sure(
    diagnosis: Diagnosis,
    subject: Subject,
    elsewhere: Elsewhere,
    limits: Thresholds | None = None,
) -> bool:
    """No limit is so near that other draws might say another word."""
    limits = subject.limits if limits is None else limits
    if diagnosis.n_non_finite or diagnosis.moments is None:
        return True
    if of_the_search(subject) or _of_modes(subject, elsewhere, limits):
        return True  # no draws would change that
    if elsewhere.tail_share > TAIL_SUSPECTED and not diagnosis.looked_far:
        return False
    can_look_farther = not diagnosis.looked_far and subject.dim <= MOST_PROBED
    levels = set()
    for by in (-NEAR_A_LIMIT, NEAR_A_LIMIT):
        moments = diagnosis.moments.shifted(by, diagnosis.n_mixed)
        reasons = of_draws(subject, dataclasses.replace(diagnosis, moments=moments), limits)
        if can_look_farther and {one.test for one in reasons if one.level == REJECT} == {"khat"}:
            return False
        levels.add(max((one.level for one in reasons), key=SEVERITY.index, default=TRUST))
    return len(levels) == 1


# --- reasons ----------------------------------------------------------------------------------


def of_the_search(subject: Subject) -> list[Reason]:
    if subject.converged:
        return []
    said = "the search stopped before it converged (see status)"
    return [Reason("converged", REJECT, None, 0.0, 1.0, said)]


def _of_modes(subject: Subject, elsewhere: Elsewhere, limits: Thresholds) -> list[Reason]:
    accepted = subject.accepts_images and elsewhere.all_images
    if elsewhere.share <= limits.modes or accepted:
        return []
    said = explain_modes(elsewhere, subject.what)
    return [Reason("modes", REJECT, None, elsewhere.share, limits.modes, said)]


def of_draws(subject: Subject, d: Diagnosis, limits: Thresholds) -> list[Reason]:
    """What fresh draws and those around them say."""
    if d.n_non_finite:
        said = (
            f"{d.n_non_finite} of {d.n_draws} fresh draws fall where the log density is not "
            "finite; write constrained parameters on an unbounded scale"
        )
        return [Reason("finite", REJECT, None, float(d.n_non_finite), 0.0, said)]
    m = d.moments
    if m is None:
        return []
    reasons = [*_of_moments(subject, m, limits)]
    if m.khat > WEIGHTS_WORK:
        reasons.append(_of_weights(subject, m, d.looked_far))
    # A Gaussian whose mean is off by x standard deviations is x^2/2 nats away.
    if m.kl > (far := max(limits.far, limits.far_per_dimension * subject.dim)):
        said = (
            f"it is about {m.kl:.2g} nat from the posterior (limit {far:.2g}), as far as a mean "
            f"off by {math.sqrt(2 * m.kl):.1f} standard deviations; {subject.remedy}"
        )
        reasons.append(Reason("distance", REJECT, None, m.kl, far, said))
    if d.looked_far and m.tail_share > limits.tail[0]:
        level = REJECT if m.tail_share > limits.tail[1] else WEIGH
        limit = limits.tail[level == REJECT]
        said = (
            f"heavy tails: about {m.tail_share:.0%} of the mass lies where this {subject.what} has "
            "less than 0.1%"
        )
        reasons.append(Reason("tails", level, None, m.tail_share, limit, said))
    return reasons


def _of_weights(subject: Subject, m: Moments, looked_far: bool) -> Reason:
    """Draws that look far know what hangs on a heavy tail; others do not."""
    vary = f"the weights of draws vary too much (k-hat {m.khat:.2f}, limit {WEIGHTS_WORK})"
    if looked_far:
        said = f"{vary}, so tails are heavy, but little hangs on them"
        return Reason("khat", WEIGH, None, m.khat, WEIGHTS_WORK, said)
    said = (
        f"{vary} to check it, so the posterior has a shape or tails that this {subject.what} "
        f"misses; {subject.remedy}"
    )
    return Reason("khat", REJECT, None, m.khat, WEIGHTS_WORK, said)


def _of_moments(subject: Subject, m: Moments, limits: Thresholds) -> list[Reason]:
    reasons = []
    for level, (mean_limit, sd_limit) in ((REJECT, limits.reject), (WEIGH, limits.weigh)):
        tests = {reason.test for reason in reasons}
        if m.sd_ratio > sd_limit and "sd" not in tests:
            name = subject.names[m.sd_at]
            said = (
                f"the standard deviation of {name} is off by a factor of {m.sd_ratio:.3g} (limit "
                f"{sd_limit})"
            )
            reasons.append(Reason("sd", level, name, m.sd_ratio, sd_limit, said))
        if m.mean_off > mean_limit and "mean" not in tests:
            name = subject.names[m.mean_at]
            said = (
                f"the mean of {name} is off by {m.mean_off:.3g} standard deviations (limit "
                f"{mean_limit})"
            )
            reasons.append(Reason("mean", level, name, m.mean_off, mean_limit, said))
    return reasons


def of_fixed_draws(subject: Subject, d: Diagnosis) -> list[Reason]:
    if subject.elbo_fixed is None or d.n_non_finite:
        return []
    gap, limit = subject.elbo_fixed - d.elbo.value, max(0.1, 3 * d.elbo.se)
    if not gap > limit:
        return []
    said = (
        f"fitted too closely to its draws (the bound is {gap:.2f} nat lower on fresh ones); more "
        "draws would mend that"
    )
    return [Reason("draws", WEIGH, None, gap, limit, said)]


def of_hyperparameters(subject: Subject) -> list[Reason]:
    names = listed(list(subject.ran_off))
    said = f"{names} ran off, for want of data or of a prior (see status)"
    return [Reason("hyper", WEIGH, names, math.inf, math.inf, said)] if subject.ran_off else []


# --- words ------------------------------------------------------------------------------------


def explain_modes(elsewhere: Elsewhere, what: str = "Gaussian") -> str:
    """How many, how much of the mass, and what to do."""
    n, share = elsewhere.n_modes, elsewhere.share
    several = n > 1
    said = f"{n} other mode{'s' * several} seen, with about {share:.0%} of the mass"
    # Of many images some are listed; a mixture may cover these and leave others out.
    if elsewhere.modes:
        near, far = (f"{end(one.distance for one in elsewhere.modes):.0f}" for end in (min, max))
        where = f"{near} to {far}" if several and near != far else far
        said += f", {where} standard deviations away"
    said += "; "
    if what != "Gaussian":
        return f"{said}this {what} does not reach {'them' if several else 'it'}."
    said += "this Gaussian covers one mode only"
    return f"{said}. {remedy_for_modes(elsewhere)}"


def remedy_for_modes(elsewhere: Elsewhere) -> str:
    """How symmetries may be broken, one of each kind; otherwise another start, or a mixture."""
    by_kind = {one.kind: one.remedy for one in reversed(elsewhere.symmetries)}
    if not by_kind:
        own = 1 - elsewhere.share
        better = [k for k, mode in enumerate(elsewhere.modes, 1) if mode.share > own]
        fit = "fit each of them (init=post.modes[k].point) and mix the fits by their shares."
        both = 'family="mixture" covers them together; or'
        if not better:
            return f"{both} {fit}"
        return f"{both} start from the better one (init=post.modes[{better[0]}].point), or {fit}"
    ways = "; ".join(by_kind.values())
    if elsewhere.all_images:
        ways += '. Or take one of equals as it is, symmetric="accept"'
    return f"{ways[0].upper()}{ways[1:]}."


def _sentence(
    level: str,
    reasons: list[Reason],
    subject: Subject,
    d: Diagnosis | None,
    elsewhere: Elsewhere,
) -> str:
    alone = ""
    if subject.accepts_images and elsewhere.all_images:
        n = elsewhere.n_modes + 1
        alone = f" (this mode alone, one of {n} that are images of each other)"
    if level == TRUST:
        assert d is not None
        which = "fresh draws" if d.khat <= AS_IT_IS else "fresh and wider draws"
        return f"Trust{alone}: {which} agree with the {subject.what} ({_near(d)})."
    worst = [one for one in reasons if one.level == level]
    said = worst[0].sentence
    if len(worst) > 1 and worst[0].test != "finite":
        said = f"{said.rstrip('.')}; also, {worst[1].sentence}"
    if level == REJECT and {one.test for one in worst[:2]} <= {"mean", "sd", "tails"}:
        said = f"{said}; {subject.remedy}"
    if level == REJECT:
        return f"Do not trust{alone}: {said.rstrip('.')}."
    beyond_weights = ("draws", "hyper", "khat", "tails", *OF_DESIGN)
    helps = d is not None and d.khat < WEIGHTS_WORK and worst[0].test not in beyond_weights
    word = "Use with importance weights" if helps else "Use with care"
    near = "" if d is None else f" ({_near(d)})"
    return f"{word}{alone}: {said.rstrip('.')}{near}."


def _near(d: Diagnosis) -> str:
    kl = d.kl if d.moments is None else d.moments.kl
    tails = ", but little hangs on the tails" if d.khat > AS_IT_IS else ""
    near = f"k-hat {d.khat:.2f}{tails}, about {kl:.2g} nat from the posterior"
    return near if d.moments is None else f"{near}, {d.moments}"
