"""A problem with its mode, and what came of it."""

import contextlib
import dataclasses
import functools
from typing import Any

import numpy as np
from jaxtyping import Float

from .._approximate._bound import Inspection
from .._approximate._climb import Anchor, FamilyState
from .._approximate._evidence import Tuned
from .._approximate._laplace import Laplace, eigen_root
from .._approximate._mixture import MixtureState
from .._approximate._search import Stop
from .._approximate._stein import SteinState
from .._approximate._tilt import Learnt, Tilt, tilted
from .._arrays._draws import FIXED, Draws, Matched, Quadrature
from .._density._counted import Counted
from .._density._protocol import Density, Matrix, Points, Rule
from .._density._target import Target
from .._errors import Code
from .._judge._fresh import Judged
from .._law._gaussian import Gaussian
from .._law._mixture import GaussianMixture, Law
from ._events import Event, Interrupted
from ._options import Options
from ._threads import blas_for, one_blas_thread

# Along the ridges of hyperparameters a search foresees less than there is to gain.
GAIN_LEARNING = 1e-5

Vector = Float[np.ndarray, " dim"]
Spec = Draws | Quadrature
# Ends of a search that leave no Gaussian.
NOTHING_FOUND = (Code.RAN_OFF, Code.NON_FINITE_DRAWS)


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is to be approximated, from where, and how; `fixed` are the first draws or nodes."""

    density: Counted
    target: Target
    start: Vector
    options: Options
    fixed: Spec | None

    @property
    def dim(self) -> int:
        return self.density.dim

    @property
    def blas_threads(self) -> contextlib.AbstractContextManager[None]:
        if self.density.in_pieces:  # each core has pieces of its own
            return one_blas_thread(0)
        rows = self.density.n_rows
        return blas_for(rows, self.dim) if rows else one_blas_thread(self.dim)

    @property
    def draws_given(self) -> bool:
        """Draws (not nodes) of the user's own choice, which may not grow."""
        return isinstance(self.options.draws, Draws)

    def rule(self, spec: Spec) -> Rule:
        """The draws or nodes themselves."""
        if isinstance(spec, Quadrature):
            return spec.make(np.dtype(np.float64), self.target.n_predictors)
        return Points(spec.make(self.options.key, self.dim, FIXED), isinstance(spec, Matched))


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem with the mode found for it. `tuned`: how Laplace's evidence put the
    hyperparameters that are learnt; the problem's density and target have them bound.
    `other_anchor`: the Gaussian that families adapt, where it is not Laplace's."""

    problem: Problem
    found: Laplace
    tuned: Tuned | None = None
    other_anchor: Anchor | None = None
    events: tuple[Event, ...] = ()

    @property
    def density(self) -> Counted:
        return self.problem.density

    @property
    def options(self) -> Options:
        return self.problem.options

    @property
    def learns(self) -> bool:
        return self.tuned is not None

    @property
    def is_settled(self) -> bool:
        """Hyperparameters that Laplace's evidence did not settle are left to a family's bound."""
        if self.tuned is None:
            return True
        return self.tuned.code is Code.OK and self.options.hyper_steps > 0

    def tilt(self, root: Matrix, rule: Rule) -> Tilt:
        """The coordinates in which the hyperparameters are learnt with the Gaussian."""
        if self.tuned is None:
            return Tilt.none(self.problem.dim)
        theta, drift = self.tuned.theta, self.tuned.drift
        return tilted(self.density, theta, drift, self.anchor.centre, root, rule)

    @property
    def learnt(self) -> Learnt:
        """Where Laplace's evidence has put the hyperparameters."""
        if self.tuned is None:
            return Learnt.nothing(self.problem.dim)
        return Learnt.at(self.tuned.theta, self.tuned.drift, self.tuned.gradient)

    @functools.cached_property
    def anchor(self) -> Anchor:
        if self.other_anchor is not None:
            return self.other_anchor
        return Anchor(self.found.mode, eigen_root(self.found.root), self.found.log_evidence)

    @property
    def stop(self) -> Stop:
        stop = Stop(tol=self.options.tol, max_steps=self.options.max_steps)
        return dataclasses.replace(stop, gain=GAIN_LEARNING) if self.learns else stop


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What came of a case: the family that was fitted, over which draws or nodes, what was seen of
    it; what happened on the way, what "auto" chose, and what cut it short."""

    name: str
    state: FamilyState | SteinState | MixtureState | None = None
    spec: Spec | None = None
    judged: Judged | None = None
    inspection: Inspection | None = None
    events: tuple[Event, ...] = ()
    choice: Event | None = None
    interrupted: Interrupted | None = None

    def density(self, case: Case) -> Density:
        """With the hyperparameters that were reached."""
        return case.density if self.state is None else self.state.density

    def gaussian(self, found: Laplace) -> tuple[Vector, Any]:
        if self.state is None:
            return found.mode, found.root
        return self.state.mean, self.state.root

    def law(self, found: Laplace, dtype: np.dtype) -> Law:
        if isinstance(self.state, MixtureState):
            at = self.state.at
            pairs = zip(at.means.astype(dtype), at.roots.astype(dtype), strict=True)
            return GaussianMixture(at.weights, tuple(Gaussian(*pair) for pair in pairs))
        mean, root = self.gaussian(found)
        return Gaussian(mean.astype(dtype), root.astype(dtype))

    @property
    def found_nothing(self) -> bool:
        return self.state is not None and self.state.code in NOTHING_FOUND

    @property
    def converged(self) -> bool:
        return self.interrupted is None and (self.state is None or self.state.code is Code.OK)
