"""What fresh draws say of a Gaussian: the bound, Pareto smoothing, a verdict. On arrays."""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

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


LEARNT = Thresholds()
# Log ratios that differ by less than this are the same: a Gaussian target.
CONSTANT = 1e-6


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
    beyond: float = 0.0

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
        if self.beyond > 0.02:
            return (
                f"heavy tails: about {self.beyond:.0%} of the mass or more lies where this "
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
        return not self.n_non_finite and self.kl < 2 * LEARNT.far

    @property
    def wider_agree(self) -> bool:
        """Draws from further out see the same Gaussian."""
        wider = self.wider
        return wider is not None and wider.khat < AS_IT_IS and wider.within(*LEARNT.weigh)


def wider_by(dim: int) -> float:
    """How much wider that Gaussian is: as much as its weights can bear."""
    return 1 + 1 / math.sqrt(dim)


def moments(
    z: Float[np.ndarray, "n dim"],
    weights: Float[np.ndarray, " n"],
    khat: float,
    root: Float[np.ndarray, "dim dim"] | Float[np.ndarray, " dim"],
    own: Float[np.ndarray, " n"],
) -> Moments:
    """Of the weighted points `root z`, against mean 0 and covariance `root root^T`. With weights
    `own` the points stand for that Gaussian itself: what their moments miss then is luck, and is
    taken off."""
    steps = z * root if root.ndim == 1 else z @ root.T
    steps = steps / (np.abs(root) if root.ndim == 1 else np.sqrt((root**2).sum(1)))
    shift = weights @ steps
    square = weights @ (steps - shift) ** 2
    luck = own @ steps
    square = np.maximum(square - (own @ (steps - luck) ** 2 - 1), 1e-4)
    shift, ratio = shift - luck, np.sqrt(square)
    return Moments(khat, float(np.abs(shift).max()), float(np.maximum(ratio, 1 / ratio).max()))


def wider_moments(
    z: Float[np.ndarray, "n dim"],
    log_p: Float[np.ndarray, " n"],
    root: Float[np.ndarray, "dim dim"] | Float[np.ndarray, " dim"],
) -> Moments:
    """Of draws `root z` of the wider Gaussian, `z` of standard deviation `wider_by`."""
    half = 0.5 * (z**2).sum(1)
    log_ratio = log_p + half / wider_by(z.shape[1]) ** 2
    if not np.isfinite(log_ratio).all():
        return UNKNOWN
    own = np.exp(half / wider_by(z.shape[1]) ** 2 - half)
    return moments(z, *psis(log_ratio), root, own / own.sum())


def diagnose(
    log_p: Float[np.ndarray, " n"],
    log_q: Float[np.ndarray, " n"],
    z: Float[np.ndarray, "n dim"],
    root: Float[np.ndarray, "dim dim"] | Float[np.ndarray, " dim"],
) -> Diagnosis:
    """ELBO = mean(log p~ - log q): on a Gaussian target this has no noise at all."""
    log_ratio = log_p - log_q
    n = len(log_ratio)
    n_bad = int((~np.isfinite(log_ratio)).sum())
    if n_bad:
        lost = Estimate(-math.inf, math.nan)
        return Diagnosis(lost, math.inf, math.inf, 0.0, UNKNOWN, n_bad, n)
    elbo = Estimate(float(log_ratio.mean()), float(log_ratio.std(ddof=1) / math.sqrt(n)))
    weights, khat = psis(log_ratio)
    peak = log_ratio.max()
    evidence = peak + math.log(np.exp(log_ratio - peak).mean())
    kl = max(0.0, float(evidence - elbo.value))
    seen = moments(z, weights, khat, root, np.full(n, 1 / n))
    return Diagnosis(elbo, khat, kl, float(1 / (weights**2).sum()), seen, 0, n)


def psis(log_ratio: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], float]:
    """Pareto-smoothed importance weights (normalised) and the shape k-hat (Vehtari et al. 2024).

    k-hat is 0 when the weights do not vary.
    """
    n = len(log_ratio)
    shifted = np.asarray(log_ratio, dtype=np.float64) - np.max(log_ratio)
    khat = 0.0
    if np.ptp(shifted) > CONSTANT:
        n_tail = int(min(n / 5, 3 * math.sqrt(n)))
        order = np.argsort(shifted, kind="stable")
        tail = order[-n_tail:]
        cutoff = max(shifted[order[-n_tail - 1]], math.log(np.finfo(np.float64).tiny))
        over = np.exp(shifted[tail]) - math.exp(cutoff)
        # A quarter of the tail no larger than the cut-off: one or few weights hold everything.
        if n_tail <= 4 or not over[n_tail // 4] > 0:
            khat = math.inf
        else:
            khat, scale = _generalised_pareto(over)
            if math.isfinite(khat):
                quantiles = (np.arange(n_tail) + 0.5) / n_tail
                smooth = _pareto_quantile(quantiles, khat, scale) + math.exp(cutoff)
                # No smoothed weight is larger than the largest raw one.
                shifted[tail] = np.minimum(np.log(smooth), 0.0)
    weights = np.exp(shifted)
    return weights / weights.sum(), khat


@np.errstate(all="ignore")
def _generalised_pareto(over: Float[np.ndarray, " tail"]) -> tuple[float, float]:
    """Shape and scale of exceedances in ascending order (Zhang and Stephens 2009), the shape
    drawn towards 1/2 with the weight of ten observations; infinite where one exceedance is all
    there is."""
    n = len(over)
    n_grid = 30 + math.isqrt(n)
    grid = 1 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
    grid = grid / (3 * over[int(n / 4 + 0.5) - 1]) + 1 / over[-1]
    shapes = np.log1p(-grid[:, None] * over).mean(1)
    log_likelihood = n * (np.log(-(grid / shapes)) - shapes - 1)
    weights = np.exp(log_likelihood - np.logaddexp.reduce(log_likelihood))
    keep = weights >= 10 * np.finfo(float).eps
    weights, grid = weights[keep] / weights[keep].sum(), grid[keep]
    theta = float(grid @ weights)
    if theta == 0 or not math.isfinite(theta):
        return math.inf, math.nan
    shape = float(np.log1p(-theta * over).mean())
    scale = -shape / theta
    return (n * shape + 10 * 0.5) / (n + 10), scale


def _pareto_quantile(
    p: Float[np.ndarray, " tail"], shape: float, scale: float
) -> Float[np.ndarray, " tail"]:
    if abs(shape) < np.finfo(float).eps:
        return -scale * np.log1p(-p)
    with np.errstate(over="ignore"):  # a shape of hundreds: all weight on one draw
        return scale * np.expm1(-shape * np.log1p(-p)) / shape


def verdict(
    dim: int,
    converged: bool,
    diagnosis: Diagnosis | None,
    elbo_fixed: float | None,
    elsewhere: Elsewhere,
    limits: Thresholds = LEARNT,
) -> str:
    """One sentence: trust it, weigh it, or leave it; and why."""
    if not converged:
        return "Do not trust: the search over the bound stopped before it converged (see status)."
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
    told = [m for m in (d.moments, d.wider) if m is not None and m.khat < limit]
    near = f"k-hat {d.khat:.2f}, about {d.kl:.2g} nat from the posterior"
    if not all(m.within(*limits.leave) for m in told):
        worst = max(told, key=lambda m: m.sd_ratio + m.mean_off)
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
    if not all(m.within(*limits.weigh) for m in told) or (d.khat > AS_IT_IS and not cleared):
        return f"Use with importance weights: close, but not in the tails ({near})."
    if d.khat > AS_IT_IS and d.wider is not None:
        return f"Trust: {near}, but little hangs on the tails: wider draws agree on {d.wider}."
    return f"Trust: fresh draws agree with the Gaussian ({near})."
