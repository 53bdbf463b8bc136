"""What fresh draws say of a Gaussian: the bound, Pareto smoothing, a verdict. On arrays."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._arrays._roots import colour, sds

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


# --- on arrays --------------------------------------------------------------------------------
# Functions of one problem's arrays over a namespace `xp`: NumPy for one problem; `jax.numpy` under
# `vmap` and `jit` for many. What is not a number stays one, and is put into words later.


class Told(NamedTuple):
    """What fresh draws tell, as numbers: the fields of `Diagnosis`."""

    elbo: Any
    se: Any
    khat: Any
    kl: Any
    ess: Any
    mean_off: Any
    sd_ratio: Any
    n_non_finite: Any

    def in_words(self, n_draws: int) -> Diagnosis:
        if self.n_non_finite:
            lost = Estimate(-math.inf, math.nan)
            n_bad = int(self.n_non_finite)
            return Diagnosis(lost, math.inf, math.inf, 0.0, UNKNOWN, n_bad, n_draws)
        elbo, se, khat, kl, ess, mean_off, sd_ratio, _ = (float(one) for one in self)
        seen = Moments(khat, mean_off, sd_ratio)
        return Diagnosis(Estimate(elbo, se), khat, kl, ess, seen, 0, n_draws)


def diagnose(
    log_p: Float[np.ndarray, " n"],
    log_q: Float[np.ndarray, " n"],
    z: Float[np.ndarray, "n dim"],
    root: Any,
) -> Diagnosis:
    """What draws `root z` around the mean say of the Gaussian."""
    return fresh_told(log_p, log_q, z, root).in_words(len(z))


def fresh_told(
    log_p: Float[Any, " n"],
    log_q: Float[Any, " n"],
    z: Float[Any, "n dim"],
    root: Any,
    xp: Any = np,
) -> Told:
    """ELBO = mean(log p~ - log q): on a Gaussian target this has no noise at all."""
    log_ratio = log_p - log_q
    n = len(log_ratio)
    n_bad = (~xp.isfinite(log_ratio)).sum()
    # What is not finite is told by `n_bad` alone.
    log_ratio = xp.where(n_bad > 0, 0.0, log_ratio)
    elbo, se = log_ratio.mean(), log_ratio.std(ddof=1) / math.sqrt(n)
    weights, khat = smoothed_weights(log_ratio, xp)
    peak = log_ratio.max()
    kl = xp.maximum(peak + xp.log(xp.exp(log_ratio - peak).mean()) - elbo, 0.0)
    mean_off, sd_ratio = moments_off(z, weights, root, xp.full(n, 1 / n), xp)
    return Told(elbo, se, khat, kl, 1 / (weights**2).sum(), mean_off, sd_ratio, n_bad)


def wider_told(
    z: Float[Any, "n dim"], log_p: Float[Any, " n"], root: Any, xp: Any = np
) -> tuple[Any, Any, Any]:
    """k-hat and errors of the moments, from draws `root z` of the wider Gaussian, `z` of standard
    deviation `wider_by`; infinite where a density is not finite."""
    half = 0.5 * (z**2).sum(1)
    narrowed = half / wider_by(z.shape[1]) ** 2
    log_ratio = log_p + narrowed
    finite = xp.isfinite(log_ratio).all()
    own = xp.exp(narrowed - half)
    weights, khat = smoothed_weights(xp.where(finite, log_ratio, 0.0), xp)
    told = (khat, *moments_off(z, weights, root, own / own.sum(), xp))
    khat, mean_off, sd_ratio = (xp.where(finite, one, math.inf) for one in told)
    return khat, mean_off, sd_ratio


def moments_off(
    z: Float[Any, "n dim"], weights: Float[Any, " n"], root: Any, own: Float[Any, " n"], xp: Any
) -> tuple[Any, Any]:
    """The largest error of a mean (in sds) and of a standard deviation (as a ratio) of the weighted
    points `root z`, against mean 0 and covariance `root root^T`. With weights `own` the points
    stand for that Gaussian itself: what their moments miss then is luck, and is taken off."""
    steps = colour(root, z) / sds(root)
    shift, luck = weights @ steps, own @ steps
    square = weights @ (steps - shift) ** 2
    square = xp.maximum(square - (own @ (steps - luck) ** 2 - 1), 1e-4)
    ratio = xp.sqrt(square)
    return xp.abs(shift - luck).max(), xp.maximum(ratio, 1 / ratio).max()


def psis(log_ratio: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], float]:
    """Pareto-smoothed importance weights (normalised) and the shape k-hat (Vehtari et al. 2024).

    k-hat is 0 when the weights do not vary.
    """
    weights, khat = smoothed_weights(np.asarray(log_ratio, dtype=np.float64))
    return weights, float(khat)


def smoothed_weights(log_ratio: Float[Any, " n"], xp: Any = np) -> tuple[Float[Any, " n"], Any]:
    """`psis` of one problem or, under `vmap`, of many."""
    n = len(log_ratio)
    n_tail = int(min(n / 5, 3 * math.sqrt(n)))
    shifted = log_ratio - xp.max(log_ratio)
    varies = shifted.min() < -CONSTANT
    if n_tail <= 4:
        weights = xp.exp(shifted)
        return weights / weights.sum(), xp.where(varies, math.inf, 0.0)
    order = xp.argsort(shifted, kind="stable") if xp is np else xp.argsort(shifted)
    ranked = shifted[order]
    body, tail = ranked[:-n_tail], ranked[-n_tail:]
    cutoff = xp.exp(xp.maximum(body[-1], math.log(np.finfo(np.float64).tiny)))
    over = xp.exp(tail) - cutoff
    with np.errstate(all="ignore"):
        khat, scale = _generalised_pareto(over, xp)
        # A quarter of the tail no larger than the cut-off: one or few weights hold everything.
        khat = xp.where((over[n_tail // 4] > 0) & xp.isfinite(khat), khat, math.inf)
        khat = xp.where(varies, khat, 0.0)
        quantiles = (xp.arange(n_tail) + 0.5) / n_tail
        smooth = xp.log(_pareto_quantile(quantiles, khat, scale, xp) + cutoff)
        # No smoothed weight is larger than the largest raw one.
        smooth = xp.minimum(smooth, 0.0)
    tail = xp.where(varies & xp.isfinite(khat), smooth, tail)
    weights = xp.exp(xp.concatenate([body, tail])[xp.argsort(order)])
    return weights / weights.sum(), khat


def _generalised_pareto(over: Float[Any, " tail"], xp: Any) -> tuple[Any, Any]:
    """Shape and scale of exceedances in ascending order (Zhang and Stephens 2009), the shape
    drawn towards 1/2 with the weight of ten observations; infinite where one exceedance is all
    there is."""
    n = len(over)
    n_grid = 30 + math.isqrt(n)
    grid = 1 - xp.sqrt(n_grid / (xp.arange(1, n_grid + 1) - 0.5))
    grid = grid / (3 * over[int(n / 4 + 0.5) - 1]) + 1 / over[-1]
    shapes = xp.log1p(-grid[:, None] * over).mean(1)
    log_likelihood = n * (xp.log(-(grid / shapes)) - shapes - 1)
    weights = xp.exp(log_likelihood - log_likelihood.max())
    weights = weights / weights.sum()
    weights = xp.where(weights >= 10 * np.finfo(float).eps, weights, 0.0)
    theta = (grid * weights).sum() / weights.sum()
    shape = xp.log1p(-theta * over).mean()
    khat = (n * shape + 10 * 0.5) / (n + 10)
    return xp.where((theta == 0) | ~xp.isfinite(theta), math.inf, khat), -shape / theta


def _pareto_quantile(
    p: Float[Any, " tail"], shape: Any, scale: Any, xp: Any
) -> Float[Any, " tail"]:
    straight = xp.abs(shape) < np.finfo(float).eps
    safe = xp.where(straight, 1.0, shape)
    bent = scale * xp.expm1(-safe * xp.log1p(-p)) / safe
    return xp.where(straight, -scale * xp.log1p(-p), bent)


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
