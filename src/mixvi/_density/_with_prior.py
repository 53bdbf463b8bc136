"""A density with a prior of its hyperparameters added: `log p~(w | theta) + log p(theta)`.

At fixed hyperparameters that is a constant, which only the evidence and the slopes in them see.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arrays._draws import Nodes
from .._errors import InputError
from ._protocol import (
    BestGaussian,
    Density,
    EvidenceSlopes,
    Expectation,
    Matrix,
    OwnEvidence,
    Rule,
)
from ._structure import Structure
from ._target import checked_number, precision_scope

Hyper = Float[np.ndarray, " hyper"]
Point = Float[np.ndarray, " dim"]
DOUBLE = np.dtype(np.float64)


class HyperPrior:
    """The user's function of the hyperparameters, its value and its slope."""

    def __init__(self, function: Callable, structure: Structure):
        self.function, self.structure = function, structure

        def flat(theta: Float[Array, " hyper"]) -> Float[Array, ""]:
            value = function(structure.unravel(theta))
            return checked_number(value, theta.dtype, "hyper_prior")

        self._compiled = jax.jit(jax.value_and_grad(flat))

    def __call__(self, theta: Hyper) -> tuple[float, Hyper]:
        with precision_scope(DOUBLE):
            value, slope = self._compiled(jnp.asarray(theta, DOUBLE))
        value, slope = float(value), np.asarray(slope)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            shown = zip(self.structure.names, theta, strict=True)
            at = ", ".join(f"{name}={number:.4g}" for name, number in shown)
            raise InputError(f"hyper_prior is not finite at {at}: it must be, with its gradient.")
        return value, slope


class WithPrior(Density):
    """`inner` with the prior at `theta` added."""

    def __init__(self, inner: Density, prior: HyperPrior, theta: Hyper):
        self.inner, self.prior = inner, prior
        self.added, self.slope = prior(theta)
        for name in (
            *("dim", "resolution", "resolution_over_draws", "values_at_once", "n_hyper"),
            *("n_predictors", "log_concave", "n_rows", "dense_newton", "mode_tol"),
            *("has_own_evidence", "has_best_gaussian", "in_pieces", "is_checked"),
        ):
            setattr(self, name, getattr(inner, name))

    @property
    def called(self) -> str:
        return self.inner.called

    def prepare(self) -> None:
        self.inner.prepare()

    def at(self, theta: Hyper) -> "WithPrior":
        return WithPrior(self.inner.at(theta), self.prior, theta)

    def values(self, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        return self.inner.values(points) + self.added

    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        values, gradients = self.inner.gradients(points)
        return values + self.added, gradients

    def joint_gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"], Hyper]:
        values, gradients, slope = self.inner.joint_gradients(points)
        return values + self.added, gradients, slope + self.slope

    def expect(self, mean: Point, root: Matrix, rule: Rule) -> Expectation:
        found = self.inner.expect(mean, root, rule)
        return found._replace(value=found.value + self.added, hyper=found.hyper + self.slope)

    def expects_over_draws(self, root: Matrix) -> bool:
        return self.inner.expects_over_draws(root)

    def expected_by_row(self, mean: Point, root: Matrix, rule: Nodes) -> Float[np.ndarray, " rows"]:
        return self.inner.expected_by_row(mean, root, rule)

    def curvature(self, point: Point) -> tuple[float, Point, Float[np.ndarray, "dim dim"]]:
        value, gradient, hessian = self.inner.curvature(point)
        return value + self.added, gradient, hessian

    def product(self, point: Point, vector: Point) -> tuple[float, Point, Point]:
        value, gradient, along = self.inner.product(point, vector)
        return value + self.added, gradient, along

    def approached(self, point: Point) -> Point:
        return self.inner.approached(point)

    def evidence_slopes(self, mode: Point, root: Float[np.ndarray, "dim dim"]) -> EvidenceSlopes:
        slopes = self.inner.evidence_slopes(mode, root)
        return slopes._replace(direct=slopes.direct + self.slope)

    def own_evidence(self, near: Any, tol: float) -> OwnEvidence | None:
        found = self.inner.own_evidence(near, tol)
        if found is None:
            return None
        gradient = found.gradient + self.slope
        return found._replace(value=found.value + self.added, gradient=gradient)

    def best_gaussian(
        self, mean: Point, root: Matrix, rule: Nodes, gain: float
    ) -> BestGaussian | None:
        found = self.inner.best_gaussian(mean, root, rule, gain)
        return None if found is None else found._replace(elbo=found.elbo + self.added)
