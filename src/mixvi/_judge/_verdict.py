"""The verdict: one sentence on whether to trust a Gaussian, and the numbers that decide it."""

import dataclasses
import math

# Vehtari et al. (2024): importance sampling works below the first; moments of the Gaussian itself
# need no correction below the second.
WEIGHTS_WORK, AS_IT_IS = 0.7, 0.5


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """Where trust ends. Set on fits whose errors long NUTS runs know, leaving one posterior out at
    a time (`benchmarks/verdicts.py`): weighted draws see less of an error than there is.

    `weigh`, `leave`: a mean off by so many standard deviations, a standard deviation by such a
    factor, for "use with importance weights" and for "do not trust". `far`, `far_per_dimension`:
    nats from the posterior (in all, and per dimension where there are many) that are not close.
    """

    weigh: tuple[float, float] = (0.25, 1.25)
    leave: tuple[float, float] = (0.6, 1.4)
    far: float = 0.5
    far_per_dimension: float = 0.02


DEFAULT_THRESHOLDS = Thresholds()


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its standard error."""

    value: float
    se: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.se:.4f}"


@dataclasses.dataclass(frozen=True)
class OtherMode:
    """A mode that the Gaussian does not cover: how far (in posterior sds) and its share of mass."""

    distance: float
    share: float


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """What the Gaussian does not reach: other modes, and the share of mass that far probes see."""

    modes: tuple[OtherMode, ...] = ()
    tail_share: float = 0.0

    @property
    def reason(self) -> str | None:
        share = sum(mode.share for mode in self.modes)
        if share > 0.01:
            far = max(self.modes, key=lambda mode: mode.share)
            return (
                f"{len(self.modes)} other mode{'s' * (len(self.modes) > 1)} seen, with about "
                f"{share:.0%} of the mass (the largest {far.distance:.0f} standard deviations "
                "away); this Gaussian covers one mode only."
            )
        if self.tail_share > 0.02:
            return (
                f"heavy tails: about {self.tail_share:.0%} of the mass or more lies where this "
                "Gaussian has less than 0.1%."
            )
        return None


@dataclasses.dataclass(frozen=True)
class Moments:
    """How far weighted draws put the moments from the Gaussian's own: the largest error of a mean
    (in standard deviations) and of a standard deviation (as a ratio, above one). `khat` says
    whether the weights can be believed."""

    khat: float
    mean_off: float
    sd_ratio: float

    def within(self, mean_off: float, sd_ratio: float) -> bool:
        return self.mean_off < mean_off and self.sd_ratio < sd_ratio

    def __str__(self) -> str:
        return f"means to {self.mean_off:.2f} sd and sds to {self.sd_ratio - 1:.0%}"


UNKNOWN = Moments(math.inf, math.inf, math.inf)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """All that fresh draws say. `kl` estimates KL(q || p), where the weights allow it. `wider` is
    what draws from a wider Gaussian say: k-hat knows the shape of the tail of the weights but not
    how much hangs on it, and draws that reach further out settle that."""

    elbo: Estimate
    khat: float
    kl: float
    ess: float
    moments: Moments
    n_non_finite: int
    n_draws: int
    wider: Moments | None = None

    @property
    def khat_limit(self) -> float:
        """Above it, importance sampling with so many draws cannot be believed."""
        return min(1 - 1 / math.log10(self.n_draws), WEIGHTS_WORK)

    @property
    def wants_wider(self) -> bool:
        return not self.n_non_finite and self.kl < 2 * DEFAULT_THRESHOLDS.far

    @property
    def wider_agree(self) -> bool:
        """Draws from further out see the same Gaussian."""
        wider = self.wider
        return (
            wider is not None and wider.khat < AS_IT_IS and wider.within(*DEFAULT_THRESHOLDS.weigh)
        )


def verdict(
    dim: int,
    converged: bool,
    diagnosis: Diagnosis | None,
    elbo_fixed: float | None,
    elsewhere: Elsewhere,
    limits: Thresholds = DEFAULT_THRESHOLDS,
) -> str:
    """One sentence: trust it, weigh it, or leave it; and why."""
    if not converged:
        return "Do not trust: the search stopped before it converged (see status)."
    if diagnosis is None:
        return "Not judged: diagnostics were switched off."
    d = diagnosis
    if d.n_non_finite:
        return (
            f"Do not trust: {d.n_non_finite} of {d.n_draws} fresh draws fall where the log density "
            "is not finite; write constrained parameters on an unbounded scale."
        )
    if (reason := elsewhere.reason) is not None:
        return f"Do not trust: {reason}"
    limit = d.khat_limit
    # Believe the moments of those draws whose weights can be believed.
    believed = [m for m in (d.moments, d.wider) if m is not None and m.khat < limit]
    near = f"k-hat {d.khat:.2f}, about {d.kl:.2g} nat from the posterior"
    if not all(m.within(*limits.leave) for m in believed):
        worst = max(believed, key=lambda m: m.sd_ratio + m.mean_off)
        return f"Do not trust: weighted draws agree with the Gaussian only on {worst} ({near})."
    cleared = d.wider is not None and d.wider.khat < AS_IT_IS
    if d.khat > limit and not cleared:
        return (
            f"Do not trust: k-hat is {d.khat:.2f} (limit {limit:.2f}), so the posterior has a "
            "shape or tails that this Gaussian misses; try a richer family or other parameters."
        )
    # A Gaussian whose mean is off by x standard deviations is x^2/2 nats away.
    if d.kl > max(limits.far, limits.far_per_dimension * dim):
        return (
            f"Do not trust: {near}, as far as a mean off by {math.sqrt(2 * d.kl):.1f} standard "
            "deviations; try a richer family or other parameters."
        )
    gap = 0.0 if elbo_fixed is None else elbo_fixed - d.elbo.value
    if gap > max(0.1, 3 * d.elbo.se):
        return (
            f"Use with importance weights: fitted too closely to its draws (the bound is {gap:.2f} "
            f"nat lower on fresh ones; {near}); more draws would mend that."
        )
    if not all(m.within(*limits.weigh) for m in believed) or (d.khat > AS_IT_IS and not cleared):
        return f"Use with importance weights: close, but not in the tails ({near})."
    if d.khat > AS_IT_IS and d.wider is not None:
        return f"Trust: {near}, but little hangs on the tails: wider draws agree on {d.wider}."
    return f"Trust: fresh draws agree with the Gaussian ({near})."
