"""Hyperparameters that are learnt together with a Gaussian, in the coordinates of that search.

    theta = theta_0 + T tau,        mean = ... + drift tau,        drift = (dw*/dtheta) T

The mean follows as the mode would: the same family, but hyperparameters and mean then hardly pull
at each other. With the bound's gradient `E g` in the mean and `E dl/dtheta`,

    d/dtau = T^T E dl/dtheta + drift^T E g
"""

import dataclasses

import numpy as np
from jaxtyping import Float

from .._density._protocol import Density, Expectation, Matrix, Rule

Vector = Float[np.ndarray, " dim"]
Tau = Float[np.ndarray, " tau"]
Hyper = Float[np.ndarray, " hyper"]
# Of hyperparameters, for the difference of two gradients; their scale is one, or less.
DIFFERENCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Tilt:
    """`tau` has no numbers where nothing is learnt."""

    theta: Hyper
    scale: Float[np.ndarray, "hyper tau"]
    drift: Float[np.ndarray, "dim tau"]

    @classmethod
    def none(cls, dim: int) -> "Tilt":
        return cls(np.zeros(0), np.zeros((0, 0)), np.zeros((dim, 0)))

    @property
    def size(self) -> int:
        return self.scale.shape[1]

    @property
    def start(self) -> Tau:
        return np.zeros(self.size)

    def at(self, tau: Tau) -> Hyper:
        return self.theta + self.scale @ tau

    def bind(self, density: Density, tau: Tau) -> Density:
        """The density at the hyperparameters `tau`."""
        return density.at(self.at(tau)) if self.size else density

    def slope(self, expected: Expectation) -> Tau:
        """The gradient of the bound in `tau`."""
        if not self.size:
            return self.start
        return self.scale.T @ expected.hyper + self.drift.T @ expected.gradient


@dataclasses.dataclass(frozen=True)
class Learnt:
    """Where hyperparameters have come to. `gradient`: of the bound in `tau`."""

    tilt: Tilt
    tau: Tau
    gradient: Tau

    @classmethod
    def nothing(cls, dim: int) -> "Learnt":
        return cls(Tilt.none(dim), np.zeros(0), np.zeros(0))

    @classmethod
    def at(cls, theta: Hyper, drift: Float[np.ndarray, "dim hyper"], gradient: Hyper) -> "Learnt":
        """In coordinates that begin there."""
        return cls(Tilt(theta, np.eye(len(theta)), drift), np.zeros_like(theta), gradient)

    @property
    def theta(self) -> Hyper:
        return self.tilt.at(self.tau)

    @property
    def theta_gradient(self) -> Hyper:
        """Of the bound in the hyperparameters themselves, the mean following."""
        return np.linalg.solve(self.tilt.scale.T, self.gradient)


def tilted(
    density: Density,
    theta: Hyper,
    drift: Float[np.ndarray, "dim hyper"],
    mean: Vector,
    root: Matrix,
    rule: Rule,
) -> Tilt:
    """Coordinates in which the bound of `N(mean, root root^T)` curves by one; no unit of them is
    more than one of the user's own."""
    plain = Tilt(theta, np.eye(len(theta)), drift)

    def slope(tau: Tau) -> Tau:
        return plain.slope(plain.bind(density, tau).expect(mean + drift @ tau, root, rule))

    here, steps = slope(plain.start), DIFFERENCE * np.eye(len(theta))
    block = np.stack([(here - slope(step)) / DIFFERENCE for step in steps])
    if not np.isfinite(block).all():
        return plain
    values, vectors = np.linalg.eigh(0.5 * (block + block.T))
    scale = vectors / np.sqrt(np.maximum(np.abs(values), 1.0))
    return Tilt(theta, scale, drift @ scale)
