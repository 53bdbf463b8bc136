"""A sum over pieces of data: whatever is asked is asked of every piece, and added up.

    log p~(w | theta) = log p(w | theta) + sum over pieces of sum over rows of l(row; w, theta)

All questions are linear in the log density, so values, gradients, Hessians and expectations of the
whole are sums of those of the pieces. The prior comes with the first piece.
"""

import collections
import concurrent.futures
import copy
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._arrays._draws import Nodes
from .._errors import InputError
from ._additive import Additive
from ._jax import JaxDensity
from ._linear_predictor import LinearPredictor
from ._memory import n_cores
from ._pieces import Piece, Pieces
from ._protocol import Density, EvidenceSlopes, Expectation, Matrix, Rule
from ._quadrature import PredictorDensity
from ._target import Target

# Answers of so many pieces are made at the same time, at most, each in its share of the memory.
AT_ONCE = 16


class Part(Protocol):
    """A density that can be taken on any piece: what this adds; the first one adds the prior."""

    def on(self, piece: Piece, /) -> Density: ...


class Piecewise(Density):
    """`part`: the density of one piece, which gives those of all."""

    is_checked = True
    in_pieces = True

    def __init__(self, pieces: Pieces, part: Any):
        self.pieces, self.part = pieces, part
        self.dim, self.n_hyper, self.resolution = part.dim, part.n_hyper, part.resolution
        self.n_predictors, self.log_concave = part.n_predictors, part.log_concave
        self.mode_tol, self.dense_newton = part.mode_tol, part.dense_newton
        self.values_at_once = part.values_at_once

    def prepare(self) -> None:
        self.part.prepare()

    def at(self, theta: Float[np.ndarray, " hyper"]) -> "Piecewise":
        other = copy.copy(self)
        other.part = self.part.at(theta)
        return other

    # --- the questions ------------------------------------------------------------------------

    def values(self, points):
        return self._sum(lambda one: (one.values(points),))[0]

    def gradients(self, points):
        return self._sum(lambda one: one.gradients(points))

    def joint_gradients(self, points):
        return self._sum(lambda one: one.joint_gradients(points))

    def expect(self, mean: np.ndarray, root: Matrix, rule: Rule) -> Expectation:
        if not isinstance(rule, Nodes) and not self.part.expects_over_draws(root):
            return super().expect(mean, root, rule)
        value, *others = self._sum(lambda one: one.expect(mean, root, rule))
        return Expectation(float(value), *others)

    def expects_over_draws(self, root: Matrix) -> bool:
        return self.part.expects_over_draws(root)

    def expected_by_row(self, mean: np.ndarray, root: Matrix, rule: Nodes) -> np.ndarray:
        def answer(piece: Piece) -> np.ndarray:
            return self.part.on(piece).expected_by_row(mean, root, rule)[: piece.n]

        return np.concatenate(list(self.each(answer)))

    def curvature(self, point):
        value, gradient, hessian = self._sum(lambda one: one.curvature(point))
        return float(value), gradient, hessian

    def product(self, point, vector):
        value, gradient, product = self._sum(lambda one: one.product(point, vector))
        return float(value), gradient, product

    def evidence_slopes(self, mode, root):
        return EvidenceSlopes(*self._sum(lambda one: one.evidence_slopes(mode, root)))

    # --- pieces -------------------------------------------------------------------------------

    def _sum(self, ask: Callable[[Any], Any]) -> tuple[Any, ...]:
        return summed(self.each(lambda piece: tuple(ask(self.part.on(piece)))))

    def each(self, answer: Callable[[Piece], Any]) -> Iterator[Any]:
        """Answers in the order of the pieces. A few pieces are in memory at a time."""
        at_once = min(n_cores(), AT_ONCE)
        pending: collections.deque[concurrent.futures.Future] = collections.deque()
        read = self.pieces.read()
        try:
            for piece in read:
                if len(pending) > at_once:
                    yield pending.popleft().result()
                pending.append(_threads().submit(answer, piece))
            while pending:
                yield pending.popleft().result()
        finally:
            for one in pending:
                one.cancel()
            read.close()


def summed(answers: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """In pairs, pairs of pairs and so on: rounding grows with the logarithm of their number, and
    the order is always the same."""
    partial: list[tuple[int, tuple[Any, ...]]] = []
    for answer in answers:
        size, total = 1, answer
        while partial and partial[-1][0] == size:
            _, before = partial.pop()
            size, total = 2 * size, _added(before, total)
        partial.append((size, total))
    total = partial.pop()[1]
    while partial:
        total = _added(partial.pop()[1], total)
    return total


def _added(some: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one + other for one, other in zip(some, others, strict=True))


@functools.cache
def _threads() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(min(n_cores(), AT_ONCE), "mixvi-pieces")


if hasattr(os, "register_at_fork"):
    # Threads do not live on in a child.
    os.register_at_fork(after_in_child=_threads.cache_clear)


# --- functions written with JAX ---------------------------------------------------------------


@functools.partial(
    jtu.register_dataclass,
    data_fields=("arrays", "data", "theta"),
    meta_fields=("function", "has_data", "structure", "hyper_structure", "constraints"),
)
@dataclasses.dataclass(frozen=True)
class PieceTarget(Target):
    """What one piece adds to the log density: its `data` are a `Piece`."""

    @property
    def rows(self) -> Any:
        return self.data.rows

    @property
    def share_of_prior(self) -> Any:
        return jnp.where(self.data.is_first, 1.0, 0.0)

    def counted(self, rows: Float[Array, " n"]) -> Float[Array, " n"]:
        size = jtu.tree_leaves(self.data.rows)[0].shape[0]
        if rows.shape != (size,):
            raise InputError(
                f"data=Pieces: a piece has {size} rows, but the log likelihood is of shape "
                f"{rows.shape}: make the design from the data, a function of the rows of a piece."
            )
        return jnp.where(jnp.arange(size) < self.data.n, rows, 0.0)

    def __call__(self, flat: Float[Array, " dim"]) -> Float[Array, ""]:
        def prior(flat: Any) -> Any:
            value = self.asked(self.callable.prior, "log_prior", self.parameters(flat))
            bound = self.constraints
            return (value if bound is None else value + bound.log_det(flat)).astype(flat.dtype)

        def nothing(flat: Any) -> Any:
            return jnp.zeros((), flat.dtype)

        rows = self.asked(self.callable.by_row, "log_likelihood", self.parameters(flat))
        likelihood = self.counted(rows).sum().astype(flat.dtype)
        # A branch: the other pieces do not compute the prior.
        return likelihood + lax.cond(self.data.is_first, prior, nothing, flat)


def target_of_pieces(target: Target, pieces: Pieces) -> PieceTarget:
    """Of the first one."""
    if not isinstance(target.callable, Additive | LinearPredictor):
        raise InputError(
            "data=Pieces: what pieces say is summed, so the log density must come apart: "
            "mixvi.Additive(log_prior, log_likelihood), or a mixvi.LinearPredictor."
        )
    fields = {one.name: getattr(target, one.name) for one in dataclasses.fields(target)}
    return PieceTarget(**fields | {"data": pieces.first(), "has_data": True})


def density_in_pieces(
    target: PieceTarget, pieces: Pieces, dtype: np.dtype, memory: int
) -> Piecewise:
    kind = PredictorDensity if target.n_predictors else JaxDensity
    return Piecewise(pieces, kind(target, dtype, memory // AT_ONCE))
