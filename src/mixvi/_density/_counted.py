"""A density that counts what it is asked, and remembers its last answers.

An inspection, the first step of a search and the last look of it ask about the same Gaussian over
the same draws: one pass serves all of them.
"""

import collections
import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from .._arrays._draws import Nodes
from .._errors import InputError, MixviError
from ._protocol import (
    NOTHING,
    BestGaussian,
    Density,
    EvidenceSlopes,
    Expectation,
    Matrix,
    OwnEvidence,
    Rule,
)

EXPECTATIONS_KEPT = 6
HYPERS_KEPT = 4


def _count(name: str) -> property:
    return property(lambda self: self.counts[name])


class Counted(Density):
    """`n_values`, `n_gradients`: at points (a node of a rule is one); `n_hessians`, `n_products`;
    `n_passes`: over draws or nodes."""

    def __init__(self, inner: Density):
        self.inner, self.dim, self.resolution = inner, inner.dim, inner.resolution
        self.resolution_over_draws = inner.resolution_over_draws
        self.values_at_once, self.n_hyper = inner.values_at_once, inner.n_hyper
        self.n_predictors, self.log_concave = inner.n_predictors, inner.log_concave
        self.n_rows, self.dense_newton = inner.n_rows, inner.dense_newton
        self.mode_tol, self.has_own_evidence = inner.mode_tol, inner.has_own_evidence
        self.has_best_gaussian, self.in_pieces = inner.has_best_gaussian, inner.in_pieces
        self.counts: collections.Counter[str] = collections.Counter()
        # Shared by all that are bound to other hyperparameters.
        self._bound: collections.deque[tuple[np.ndarray, Counted]] = collections.deque(
            maxlen=HYPERS_KEPT
        )
        self._remember_nothing()

    def _remember_nothing(self) -> None:
        self._points: np.ndarray | None = None
        self._gradients: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self._expected: collections.deque[tuple] = collections.deque(maxlen=EXPECTATIONS_KEPT)

    def prepare(self) -> None:
        self.inner.prepare()

    def values(self, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        self.counts["values"] += len(points)
        return self.inner.values(points)

    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        return self.joint_gradients(points)[:2]

    def joint_gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"], Float[np.ndarray, " hyper"]]:
        known = self._points is not None and np.array_equal(points, self._points)
        if self._gradients is None or not known:
            self.counts["gradients"] += len(points)
            self.counts["passes"] += 1
            self._points, self._gradients = points, self._asked_for(points)
        return self._gradients

    def _asked_for(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Copies: a density may use its arrays again."""
        name, n = self.inner.called, len(points)
        try:
            if self.n_hyper:
                values, gradients, slope = self.inner.joint_gradients(points)
            else:
                (values, gradients), slope = self.inner.gradients(points), NOTHING
            values, gradients = np.array(values, float), np.array(gradients, float)
        except (TypeError, ValueError) as err:
            if isinstance(err, MixviError):
                raise
            raise InputError(f"{name}.gradients must return two arrays: {err}") from err
        if values.shape != (n,) or gradients.shape != (n, self.dim):
            raise InputError(
                f"{name}.gradients returned arrays of shapes {values.shape} and {gradients.shape} "
                f"for {n} points; they must be ({n},) and ({n}, {self.dim})."
            )
        return values, gradients, slope

    def expect(self, mean: Float[np.ndarray, " dim"], root: Matrix, rule: Rule) -> Expectation:
        for known, answer in self._expected:
            if rule.z is known[2].z and _equal(known[:2], (mean, root)):
                return answer
        answer = self._expectation(mean, root, rule)
        self._expected.append(((mean, root, rule), answer))
        return answer

    def _expectation(self, mean: np.ndarray, root: Matrix, rule: Rule) -> Expectation:
        if not isinstance(rule, Nodes) and not self.inner.expects_over_draws(root):
            return Density.expect(self, mean, root, rule)
        self.counts["gradients"] += len(rule.weights) if isinstance(rule, Nodes) else len(rule.z)
        self.counts["passes"] += 1
        return self.inner.expect(mean, root, rule)

    def expected_by_row(
        self, mean: Float[np.ndarray, " dim"], root: Matrix, rule: Nodes
    ) -> Float[np.ndarray, " rows"]:
        return self.inner.expected_by_row(mean, root, rule)

    def curvature(
        self, point: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        self.counts["hessians"] += 1
        if type(self.inner).curvature is not Density.curvature:
            return self.inner.curvature(point)
        with self._uncounted():
            return super().curvature(point)

    def approached(self, point: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " dim"]:
        return self.inner.approached(point)

    def product(
        self, point: Float[np.ndarray, " dim"], vector: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
        self.counts["products"] += 1
        if type(self.inner).product is not Density.product:
            return self.inner.product(point, vector)
        with self._uncounted():
            return super().product(point, vector)

    @contextlib.contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Differences of gradients are counted as what they stand for."""
        counts = self.counts.copy()
        yield
        self.counts["passes"], self.counts["gradients"] = counts["passes"], counts["gradients"]

    def at(self, theta: Float[np.ndarray, " hyper"]) -> "Counted":
        """Counted together with this one; the last ones are remembered with their answers."""
        for known, one in self._bound:
            if np.array_equal(theta, known):
                return one
        other = copy.copy(self)
        other.inner = self.inner.at(theta)
        other._remember_nothing()
        self._bound.append((theta.copy(), other))
        return other

    def evidence_slopes(
        self, mode: Float[np.ndarray, " dim"], root: Float[np.ndarray, "dim dim"]
    ) -> EvidenceSlopes:
        self.counts["evidence_slopes"] += 1
        return self.inner.evidence_slopes(mode, root)

    def own_evidence(self, near: Any, tol: float) -> OwnEvidence | None:
        self.counts["evidences"] += 1
        return self.inner.own_evidence(near, tol)

    def best_gaussian(
        self, mean: Float[np.ndarray, " dim"], root: Matrix, rule: Nodes, gain: float
    ) -> BestGaussian | None:
        found = self.inner.best_gaussian(mean, root, rule, gain)
        if found is not None:
            self.counts["gradients"] += found.n_passes * len(rule.weights)
            self.counts["passes"] += found.n_passes
        return found

    n_values = _count("values")
    n_gradients = _count("gradients")
    n_hessians = _count("hessians")
    n_products = _count("products")
    n_passes = _count("passes")

    @property
    def cost(self) -> int:
        """In gradients: a Hessian is as many as there are dimensions."""
        return self.n_gradients + self.n_products + self.dim * self.n_hessians


def _equal(some: tuple, others: tuple) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(some, others, strict=True))
