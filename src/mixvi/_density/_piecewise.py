"""A sum over pieces of data: whatever is asked is asked of every piece, and added up.

    log p~(w | theta) = log p(w | theta) + sum over pieces of sum over rows of l(row; w, theta)

All questions are linear in the log density, so values, gradients, Hessians and expectations of the
whole are sums of those of the pieces. The prior comes with the first piece.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._arrays._draws import Nodes
from .._errors import InputError
from ._additive import Additive
from ._asked import AT_ONCE, Asked, summed
from ._jax import JaxDensity
from ._linear_predictor import LinearPredictor
from ._pieces import Piece, Pieces
from ._protocol import Density, EvidenceSlopes, Expectation, Matrix, Rule
from ._quadrature import PredictorDensity
from ._target import Target


class Part(Protocol):
    """A density that can be taken on any piece: what this adds; the first one adds the prior."""

    def on(self, piece: Piece, /) -> Density: ...


class Piecewise(Density):
    """`part`: the density of one piece, which gives those of all; `recipe` makes it where that is
    not at hand."""

    is_checked = True
    in_pieces = True

    theta: np.ndarray | None = None

    def __init__(self, pieces: Pieces, part: Any, recipe: Callable[[], Any]):
        self.pieces, self.part, self.recipe = pieces, part, recipe
        self.dim, self.n_hyper, self.resolution = part.dim, part.n_hyper, part.resolution
        self.n_predictors, self.log_concave = part.n_predictors, part.log_concave
        self.mode_tol, self.dense_newton = part.mode_tol, part.dense_newton
        self.values_at_once = part.values_at_once

    def prepare(self) -> None:
        self.part.prepare()

    def at(self, theta: Float[np.ndarray, " hyper"]) -> "Piecewise":
        other = copy.copy(self)
        other.part, other.theta = self.part.at(theta), theta
        return other

    def part_for(self, piece: Piece) -> Any:
        """What gives the densities of pieces with as many rows as this one."""
        del piece
        return self.part

    # --- the questions ------------------------------------------------------------------------

    def values(self, points):
        return self._sum("values", points)[0]

    def gradients(self, points):
        return self._sum("gradients", points)

    def joint_gradients(self, points):
        return self._sum("joint_gradients", points)

    def expect(self, mean: np.ndarray, root: Matrix, rule: Rule) -> Expectation:
        if not isinstance(rule, Nodes) and not self.part.expects_over_draws(root):
            return super().expect(mean, root, rule)
        value, *others = self._sum("expect", mean, root, rule)
        return Expectation(float(value), *others)

    def expects_over_draws(self, root: Matrix) -> bool:
        return self.part.expects_over_draws(root)

    def expected_by_row(self, mean: np.ndarray, root: Matrix, rule: Nodes) -> np.ndarray:
        asked = self._asked("expected_by_row", (mean, root, rule))
        return np.concatenate(list(self.pieces.by_row(asked)))

    def curvature(self, point):
        value, gradient, hessian = self._sum("curvature", point)
        return float(value), gradient, hessian

    def product(self, point, vector):
        value, gradient, product = self._sum("product", point, vector)
        return float(value), gradient, product

    def evidence_slopes(self, mode, root):
        return EvidenceSlopes(*self._sum("evidence_slopes", mode, root))

    # --- pieces -------------------------------------------------------------------------------

    def _sum(self, question: str, *arguments: Any) -> tuple[Any, ...]:
        return summed(self.pieces.answers(self._asked(question, arguments)))

    def _asked(self, question: str, arguments: tuple) -> Asked:
        return Asked(self.part, self.recipe, self.theta, question, arguments)


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
        counted = jnp.where(jnp.arange(size) < self.data.n, rows, 0.0)
        return self.data.weight * counted

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


class TracedPieces(Piecewise):
    """Of a function written with JAX, whose programs are for one number of rows."""

    def __init__(self, pieces: Pieces, target: PieceTarget, kind: Callable, *limits: Any):
        recipe = functools.partial(kind, target, *limits)
        super().__init__(pieces, recipe(), recipe)
        self._part_of = lambda piece: kind(dataclasses.replace(target, data=piece), *limits)

    def part_for(self, piece):
        return self._part_of(piece)


def density_in_pieces(
    target: PieceTarget, pieces: Pieces, dtype: np.dtype, memory: int
) -> Piecewise:
    kind = PredictorDensity if target.n_predictors else JaxDensity
    return TracedPieces(pieces, target, kind, dtype, memory // AT_ONCE)
