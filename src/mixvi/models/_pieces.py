"""A model whose table comes in pieces: the closed forms of every piece, added up.

Nothing is compiled, so nothing is filled up: a piece is its own rows.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.tree_util as jtu
import numpy as np

from .._density._pieces import Piece, Pieces
from .._density._piecewise import Piecewise
from .._density._sources import named
from .._errors import InputError
from ._basis import LEAST_ROWS, ROWS_PER_CENTRE, Linear
from ._density import MOST_AT_ONCE, ModelDensity
from ._likelihoods import Hyper, Likelihood
from ._one import approached

if TYPE_CHECKING:
    from ._model import Model


class Some(NamedTuple):
    """Rows that count: the table, targets, weights, and offsets where there are any."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    offset: np.ndarray | None


class Table:
    """What of the rows is what: `names` of the target, the weight and the offset."""

    def __init__(self, pieces: Pieces, names: dict[str, Any]):
        self.places = {what: name for what, name in names.items() if name is not None}
        tree = pieces.first().rows
        keys = pieces.layout.form.keys
        if keys is None:
            raise InputError(
                "a model of pieces needs rows by name (a dict of arrays, or files), or a tuple of "
                f"arrays, not {type(tree).__name__}."
            )
        for what, name in self.places.items():
            if not isinstance(name, str | int) or name not in keys:
                raise InputError(
                    f"{what}={_shown(name)}: of data in pieces it is one of the names "
                    f"{', '.join(map(repr, keys))}."
                )
        taken = list(self.places.values())
        self.keys = [key for key in keys if key not in taken]
        if len(set(taken)) < len(taken) or not self.keys:
            raise InputError(
                f"of the data {', '.join(map(repr, keys))} some must be left for the table when "
                f"{', '.join(map(repr, taken))} are taken, each once."
            )
        self.columns = tuple(
            f"{key}[{j}]" if tree[key].ndim > 1 else str(key)
            for key in self.keys
            for j in range(tree[key][:1].size)
        )

    def of(self, piece: Piece) -> Some:
        n, rows = int(piece.n), piece.rows
        parts = [rows[key][:n].reshape(n, -1) for key in self.keys]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        own = {what: _real(rows[name][:n]) for what, name in self.places.items()}
        weight = own.get("weight", np.ones(n))
        return Some(_real(whole), own["y"], weight, own.get("offset"))


class ModelPart:
    """The density of one piece: `template` with other rows."""

    def __init__(self, model: "Model", table: Table, template: ModelDensity):
        self.model, self.table, self.template = model, table, template

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "template":
            raise AttributeError(name)
        return getattr(self.template, name)

    def at(self, theta: np.ndarray) -> "ModelPart":
        return ModelPart(self.model, self.table, self.template.at(theta))

    def on(self, piece: Piece) -> ModelDensity:
        its = self.table.of(piece)
        rows = self.template.basis.rows(its.x, self.template.shared)
        weight = its.weight * float(piece.weight)
        return self.template.with_rows(rows, its.y, weight, its.offset, bool(piece.is_first))


@dataclasses.dataclass(frozen=True)
class Given:
    """A recipe that holds what it makes."""

    part: ModelPart

    def __call__(self) -> ModelPart:
        return self.part


class ModelInPieces(Piecewise):
    """What `Model.density` makes of pieces. `columns`: names of those that the table has, in the
    order in which the basis gets them."""

    def __init__(self, pieces: Pieces, part: ModelPart):
        super().__init__(pieces, part, Given(part))
        self.n_rows, self.columns = pieces.n_rows, part.table.columns
        self.values_at_once = max(1, MOST_AT_ONCE // (self.n_rows * self.n_predictors))

    @property
    def shared(self) -> dict[str, Any]:
        return self.part.shared

    @property
    def hyper(self) -> Hyper:
        return self.part.hyper

    @property
    def init(self) -> np.ndarray:
        """Zero weights: where the search for the mode begins."""
        return self.part.init

    def approached(self, point):
        if self.log_concave or self.n_predictors > 1 or self.part.minorant(point) is None:
            return point
        return approached(lambda point: self._sum("minorant", point), point)


def in_pieces(
    model: "Model",
    pieces: Pieces,
    names: dict[str, Any],
    prior_precision: Any,
    hyper: Hyper | None,
    shared: dict[str, Any] | None,
    seed: int,
) -> ModelInPieces:
    if model.basis.has_amplitude:
        raise InputError(
            f"{model.basis.name}: columns of a kernel depend on all rows, so that they cannot come "
            "in pieces: take models.RBF or models.Linear."
        )
    table = Table(pieces, names)
    first, sample = table.of(pieces.first()), _looked_at(model, pieces, table, seed)
    if shared is None:
        shared = model.basis.fit_shared(sample[0], seed, sample[1])
    at, rows = model.taken_at(hyper, shared), model.basis.rows(first.x, shared)
    template = model.density_of(
        rows, shared, first.y, first.weight, at, first.offset, prior_precision
    )
    return ModelInPieces(pieces, ModelPart(model, table, template))


def _looked_at(
    model: "Model", pieces: Pieces, table: Table, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Refuses rows that cannot be, and gathers those from which a basis learns what it keeps: as
    many, and the same, as it takes of a table in memory."""
    most = max(LEAST_ROWS, ROWS_PER_CENTRE * getattr(model.basis, "n_centres", 1))
    n = pieces.n_rows
    taken = np.arange(min(n, most))
    if n > most and not isinstance(model.basis, Linear):
        taken = np.sort(np.random.default_rng([seed, n]).choice(n, most, replace=False))
    look = functools.partial(_looked_into, model.likelihood, table, taken)
    x, weight = (np.concatenate(parts) for parts in zip(*pieces.each(look), strict=True))
    return x, weight


def _looked_into(
    likelihood: Likelihood, table: Table, taken: np.ndarray, piece: Piece, before: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and weights of those that are taken."""
    _refuse(likelihood, table, piece, before)
    its = table.of(piece)
    mine = taken[(taken >= before) & (taken < before + len(its.y))] - before
    return its.x[mine], its.weight[mine]


def _refuse(likelihood: Likelihood, table: Table, piece: Piece, before: int) -> None:
    n = int(piece.n)
    where = f"rows {before} to {before + n - 1}"
    for path, leaf in jtu.tree_flatten_with_path(piece.rows)[0]:
        if leaf.dtype.kind == "f" and not np.isfinite(leaf[:n]).all():
            raise InputError(f"a model needs finite numbers: {named(path)} is infinite in {where}.")
    _, y, weight, _ = table.of(piece)
    if y.ndim != 1:
        raise InputError(f"y={table.places['y']!r}: targets must be one number for every row.")
    if (weight < 0).any() or weight.ndim != 1:
        raise InputError(f"weight must be numbers that are not negative; it is not in {where}.")
    try:
        likelihood.check(y)
    except InputError as err:
        raise InputError(f"{str(err).rstrip('.')}; they are not in {where}.") from None


def _real(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64, copy=False)


def _shown(name: Any) -> str:
    return repr(name) if isinstance(name, str | int) else type(name).__name__
