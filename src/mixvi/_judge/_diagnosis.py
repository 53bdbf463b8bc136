"""The numbers that a verdict is made of."""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

# Vehtari et al. (2024): importance sampling works below the first; moments of the Gaussian itself
# need no correction below the second.
WEIGHTS_WORK, AS_IT_IS = 0.7, 0.5
# Standard errors of nats from the posterior and of a tail's share, as shares of themselves: rough
# ones.
KL_ERROR, TAIL_ERROR = 0.1, 0.3
# Of an exponential: beyond it a float overflows.
LARGEST = 700.0
# A share of the mass not worth speaking of.
NO_MASS = 1e-3


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its standard error.

    >>> import mixvi
    >>> print(mixvi.Estimate(-89.02, 0.004))
    -89.0200 ± 0.0040
    """

    value: float
    se: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.se:.4f}"


@dataclasses.dataclass(frozen=True)
class Moments:
    """How far weighted draws put the moments from the Gaussian's own, beyond what is luck: the
    largest error of a mean (in standard deviations) and of a standard deviation (as a ratio, above
    one), their standard errors (of the log, for the ratio), and at which parameters. `khat`:
    whether the weights can be believed. `kl`: nats from the posterior. `tail_share`: of the mass,
    where the Gaussian has less than 0.1%."""

    khat: float
    kl: float
    mean_off: float
    mean_se: float
    mean_at: int
    sd_ratio: float
    sd_se: float
    sd_at: int
    tail_share: float

    def shifted(self, by: float, n: int) -> "Moments":
        """All by so many standard errors, of `n` draws. That of k-hat is as of a Pareto tail."""
        n_tail = min(n / 5, 3 * math.sqrt(n))
        return dataclasses.replace(
            self,
            khat=self.khat + by * (1 + max(self.khat, 0.0)) / math.sqrt(n_tail),
            kl=self.kl * math.exp(by * KL_ERROR),
            mean_off=max(0.0, self.mean_off + by * self.mean_se),
            sd_ratio=max(1.0, self.sd_ratio * math.exp(min(by * self.sd_se, LARGEST))),
            tail_share=self.tail_share * math.exp(by * TAIL_ERROR),
        )

    def __str__(self) -> str:
        return f"means to {self.mean_off:.2f} sd and sds to {self.sd_ratio - 1:.0%}"


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """All that draws say. `elbo`, `khat`, `ess`: fresh draws of the Gaussian itself; `kl`: an
    estimate of KL(q || p). `moments`: draws from a mixture of the Gaussian and wider ones, which
    reach further out: k-hat knows the shape of the tail of the weights but not how much hangs on
    it. `n_mixed`: how many these
    are; `looked_far`: some of them far out."""

    elbo: Estimate
    khat: float
    kl: float
    ess: float
    n_non_finite: int
    n_draws: int
    moments: Moments | None = None
    n_mixed: int = 0
    looked_far: bool = False

    @property
    def khat_limit(self) -> float:
        """Above it, importance sampling with so many draws cannot be believed."""
        return min(1 - 1 / math.log10(self.n_draws), WEIGHTS_WORK)


@dataclasses.dataclass(frozen=True, eq=False)
class OtherMode:
    """A mode that the Gaussian does not cover: how far (in posterior sds), its share of the mass,
    where (flat and unbounded) and how high. `is_image`: as high and as curved as this one;
    `relation`: the kinds of symmetry that lead there."""

    distance: float
    share: float
    point: Float[np.ndarray, " dim"] | None = None
    log_density: float = math.nan
    is_image: bool = False
    relation: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class SymmetrySeen:
    """One that the density has (or nearly has: not `exact`), the parameters that it changes, and
    how it may be broken."""

    kind: str
    names: tuple[str, ...]
    remedy: str
    exact: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class Elsewhere:
    """What the Gaussian does not reach. `modes`: other modes, not all where they are many;
    `n_modes`: how many have mass to speak of; `share`: of the mass, that they have together.
    `tail_share`: of the mass, where far probes see it without a mode. `point`, `log_density`: of
    the Gaussian's own mode."""

    modes: tuple[OtherMode, ...] = ()
    n_modes: int = 0
    share: float = 0.0
    tail_share: float = 0.0
    log_density: float = math.nan
    point: Float[np.ndarray, " dim"] | None = None
    symmetries: tuple[SymmetrySeen, ...] = ()

    @property
    def all_images(self) -> bool:
        """All other modes with mass to speak of are images of this one."""
        with_mass = [mode for mode in self.modes if mode.share > NO_MASS]
        return bool(with_mass) and all(mode.is_image for mode in with_mass)
