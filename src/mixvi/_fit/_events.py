"""What happened during a fit, as values; `status` puts them into words here and nowhere else."""

import abc
import dataclasses

from .._errors import Code
from .._watch import COMPILING, DRAWS, FAMILY, MODE, VERDICT


class Event(abc.ABC):
    @property
    @abc.abstractmethod
    def sentence(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class HessianRepaired(Event):
    n_eigenvalues: int

    @property
    def sentence(self) -> str:
        return f"The Hessian was repaired ({self.n_eigenvalues} eigenvalues)."


@dataclasses.dataclass(frozen=True)
class Interrupted(Event):
    """`stage`: as `callback=` is told; `family`: of the Gaussian that there is, after so many
    passes."""

    stage: str
    family: str
    n_passes: int

    @property
    def sentence(self) -> str:
        where = {
            COMPILING: "while compiling",
            MODE: "on the way to a mode",
            FAMILY: "in the search over the bound",
            DRAWS: "in the search over more draws",
            VERDICT: "before the verdict",
        }[self.stage]
        passes = f", after {self.n_passes} passes" if self.n_passes else ""
        best = "Laplace's own" if self.family == "laplace" else f'of family "{self.family}"'
        return f"Interrupted {where}{passes}: the best Gaussian until then, {best}."


@dataclasses.dataclass(frozen=True)
class Structured(Event):
    """`name`: of the structure of the root; `why` it was chosen."""

    name: str
    dim: int
    why: str

    @property
    def sentence(self) -> str:
        what = {
            "sparse": "a sparse precision",
            "low_rank": "a diagonal and a few directions that the data know",
            "diagonal": "no correlations",
        }[self.name]
        return (
            f'Structure "{self.name}" ({self.why}): {what}; nothing of {self.dim} x {self.dim} '
            "numbers is formed."
        )


@dataclasses.dataclass(frozen=True)
class DirectionsLeaveOut(Event):
    """`n` of `dim` directions have curvatures of their own; `nats`: that the others cost."""

    n: int
    dim: int
    nats: float

    @property
    def sentence(self) -> str:
        if self.nats < 0.01:
            return f"{self.n} directions leave out less than 0.01 nat of the Hessian."
        more = ""
        if self.nats > max(0.5, 0.002 * self.dim):
            more = (
                "; a mixvi.Additive tells its prior apart, a mixvi.LinearPredictor is exact, and "
                "memory= allows more directions"
            )
        return f"{self.n} directions leave out about {self.nats:.2g} nat of the Hessian{more}."


# --- where the search began -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class NoMode(Event):
    code: Code

    @property
    def sentence(self) -> str:
        why = {
            Code.INDEFINITE: "The Hessian at the mode is singular or indefinite",
            Code.STUCK: "No smooth mode was found",
        }.get(self.code, "There is no mode")
        return f"{why}: started from several places around init instead."


@dataclasses.dataclass(frozen=True)
class StartedElsewhere(Event):
    @property
    def sentence(self) -> str:
        return "Started away from the mode, which leads to a lower bound."


@dataclasses.dataclass(frozen=True)
class ReAnchored(Event):
    @property
    def sentence(self) -> str:
        return "Anchored at a Gaussian that Stein steps found, not at a mode."


@dataclasses.dataclass(frozen=True)
class HigherModeFound(Event):
    @property
    def sentence(self) -> str:
        return "Probes found this mode, higher than the first one."


@dataclasses.dataclass(frozen=True)
class ModesSeen(Event):
    n_modes: int
    n_starts: int
    share: float

    @property
    def sentence(self) -> str:
        several = f"{self.n_modes} modes were" if self.n_modes > 1 else "One mode was"
        return (
            f"{several} seen from {self.n_starts} starts; the one nearest to this Gaussian has "
            f"{self.share:.0%} of their mass (by evidence)."
        )


@dataclasses.dataclass(frozen=True)
class Mixed(Event):
    """`nats`: that fresh draws gain over the best single Gaussian."""

    n_components: int
    nats: float

    @property
    def sentence(self) -> str:
        return f"{self.n_components} components, {self.nats:.2g} nat better than one Gaussian."


@dataclasses.dataclass(frozen=True)
class OneIsEnough(Event):
    @property
    def sentence(self) -> str:
        return "A mixture was asked for: one Gaussian is as good, as fresh draws tell."


@dataclasses.dataclass(frozen=True)
class OneWasAsked(Event):
    @property
    def sentence(self) -> str:
        return "A mixture of one component was asked for: that is one Gaussian."


@dataclasses.dataclass(frozen=True)
class NothingToGrow(Event):
    @property
    def sentence(self) -> str:
        return (
            "A mixture was asked for, and none was tried: the log density is not finite at fresh "
            "draws of the one Gaussian that it would begin with."
        )


@dataclasses.dataclass(frozen=True)
class TooManyForMore(Event):
    n_parameters: int

    @property
    def sentence(self) -> str:
        return (
            f"A mixture was asked for: above {self.n_parameters} parameters only other modes "
            "become components, and none was seen."
        )


# --- draws and nodes --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class QuadratureOff(Event):
    error: float

    @property
    def sentence(self) -> str:
        return f"Quadrature is off by {self.error:.0e} per observation."


@dataclasses.dataclass(frozen=True)
class QuadratureCosts(Event):
    n_nodes: int
    nats: float

    @property
    def sentence(self) -> str:
        return f"Quadrature over {self.n_nodes} nodes costs about {self.nats:.1g} nat."


@dataclasses.dataclass(frozen=True)
class BackToDraws(Event):
    n_nodes: int
    error: float

    @property
    def sentence(self) -> str:
        return (
            f"Draws were used: quadrature with {self.n_nodes} nodes does not settle (off by "
            f"{self.error:.0e} per observation)."
        )


# --- what "auto" chose ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LaplaceLeaves(Event):
    nats: float

    @property
    def sentence(self) -> str:
        return f"Laplace leaves about {max(self.nats, 1e-4):.1g} nat to gain."


@dataclasses.dataclass(frozen=True)
class OnlyLaplace(Event):
    """On draws of the user's own."""

    @property
    def sentence(self) -> str:
        return "Laplace: the draws given are too few for more."


@dataclasses.dataclass(frozen=True)
class OnlyPart(Event):
    """`family`: "mu" or "eig". `left`: nats that more would gain; `too_few_draws`: to tell."""

    family: str
    left: float | None = None
    too_few_draws: bool = False

    @property
    def sentence(self) -> str:
        what = {"mu": "means move", "eig": "means and widths change"}[self.family]
        if self.too_few_draws:
            return f"Only {what}: the draws given are too few for more."
        if self.left is None:
            return f"Only {what}."
        return f"Only {what}: more would gain about {self.left:.1g} nat."


@dataclasses.dataclass(frozen=True)
class WholeChanges(Event):
    """`nats` to gain, where known; `at_once`: seen before anything poorer was fitted."""

    nats: float | None = None
    at_once: bool = False

    @property
    def sentence(self) -> str:
        over = "" if self.nats is None else f", {self.nats:.2g} nat"
        verb = "has to change" if self.at_once else "changes"
        return f"The whole covariance {verb}{over}."
