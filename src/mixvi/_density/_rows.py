"""Linear predictors of many parameters, row by row: nothing dim x dim, and designs may be sparse.

    log p~(w | theta) = sum_n l(y_n, eta_n; theta) + log N(w | 0, Lambda(theta)^-1) + log p(theta)

What JAX compiles are functions of the predictors alone, n numbers in and n out; the design and the
prior precision stay NumPy's and SciPy's. A prior precision that is a function may be any: its
derivatives in the hyperparameters are central differences.
"""

import copy
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Float

from .._arrays._draws import Nodes
from .._arrays._sparse import Cholesky, cholesky
from .._errors import InputError
from .._watch import COMPILING, stage
from ._captured import _Captured
from ._linear_predictor import LinearPredictor, checked_rows, refuse_not_symmetric
from ._protocol import STEP, Density
from ._structure import Structure
from ._target import Target, precision_scope, traced_in, with_own_constants

LOG_2PI = math.log(2 * math.pi)
FLOAT = np.dtype(np.float64)
TRACES_KEPT = 16
# Predictors at all points that are made at once.
PREDICTORS = 2**24

Vector = Float[np.ndarray, " dim"]
PerRow = Float[np.ndarray, " n"]
Theta = Float[np.ndarray, " hyper"]


class Slopes(NamedTuple):
    """Of `l` in every row's predictor: value and the first three derivatives."""

    value: PerRow
    first: PerRow
    second: PerRow
    third: PerRow


class ExpectedRows(NamedTuple):
    """Under `eta_n ~ N(mean_n, sd_n^2)`: `E l`, and its derivatives in the mean and in the standard
    deviation."""

    value: PerRow
    in_mean: PerRow
    in_sd: PerRow


class _Traced:
    """A log likelihood of so many rows, and the programs made of it."""

    def __init__(
        self, function: Callable, hyper: Structure | None, tree: Any, shapes: tuple, n: int
    ):
        def rows(eta: Any, theta: Any, *leaves: Any) -> Any:
            extra = () if hyper is None else (hyper.unravel(theta),)
            return _called(function, eta, (*extra, *jtu.tree_unflatten(tree, leaves)))

        size = 0 if hyper is None else hyper.size
        arguments = [jax.ShapeDtypeStruct(shape, FLOAT) for shape in ((n,), (size,))]
        arguments += [jax.ShapeDtypeStruct(*one) for one in shapes]
        with stage(COMPILING):
            self.jaxpr, self.consts = traced_in(FLOAT, jax.make_jaxpr, rows, arguments, _on_device)
        self.programs: dict[Callable, Callable] = {}

    def program(self, question: Callable) -> Callable:
        def asked(consts: list, operands: list, eta: Any, theta: Any, *more: Any) -> Any:
            whole = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, consts))
            return question(lambda eta, theta: whole(eta, theta, *operands)[0], eta, theta, *more)

        return self.programs.setdefault(question, jax.jit(asked))


_traced = functools.lru_cache(maxsize=TRACES_KEPT)(_Traced)


class RowLikelihood:
    """`l(eta_n; theta)` and what is derived of it, compiled for one number of rows; found again for
    the same function (with what it captures) and data of the same shapes."""

    def __init__(self, target: Target, n: int):
        data = (target.data,) if target.has_data else ()
        self.operands, tree = jtu.tree_flatten(data)
        function = target.callable.log_likelihood
        function = _Captured.of(function) if inspect.isfunction(function) else function
        shapes = tuple((np.shape(one), np.result_type(one)) for one in self.operands)
        given = (function, target.hyper_structure, tree, shapes, n)
        try:
            self.traced = _traced(*given)
        except TypeError:  # something of it cannot be hashed
            self.traced = _Traced(*given)

    def _asked(self, question: Callable, eta: PerRow, theta: Theta, *more: Any) -> Any:
        traced = self.traced
        with precision_scope(FLOAT):
            answer = traced.program(question)(traced.consts, self.operands, eta, theta, *more)
            return jtu.tree_map(lambda one: np.asarray(one, dtype=np.float64), answer)

    def value(self, eta: PerRow, theta: Theta) -> PerRow:
        return self._asked(_value, eta, theta)

    def slopes(self, eta: PerRow, theta: Theta) -> Slopes:
        return Slopes(*self._asked(_slopes, eta, theta))

    def in_theta(
        self, eta: PerRow, theta: Theta
    ) -> tuple[Float[np.ndarray, "hyper n"], Float[np.ndarray, "hyper n"], np.ndarray]:
        """Derivatives in the hyperparameters of `l`, `l'` and `l''`."""
        return self._asked(_in_theta, eta, theta)

    def expected(self, eta: PerRow, sd: PerRow, theta: Theta, rule: Nodes) -> ExpectedRows:
        return ExpectedRows(*self._asked(_expected, eta, theta, sd, rule.z, rule.weights))

    def expected_in_theta(self, eta: PerRow, sd: PerRow, theta: Theta, rule: Nodes) -> Theta:
        """The derivative of `sum_n E l`."""
        return self._asked(_expected_in_theta, eta, theta, sd, rule.z, rule.weights)


def _called(function: Callable, eta: Any, extra: tuple) -> Any:
    try:
        return checked_rows(function, eta, extra)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as err:
        raise InputError(
            "LinearPredictor: log_likelihood cannot be traced by JAX: write it with jax.numpy "
            "instead of numpy, and with jnp.where instead of `if`. JAX says: "
            + str(err).splitlines()[0]
        ) from err
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as err:
        if isinstance(err, InputError):
            raise
        raise InputError(
            f"LinearPredictor: log_likelihood raised {type(err).__name__} when called with "
            f"predictors of shape {eta.shape}: {(str(err) or repr(err)).splitlines()[0]}"
        ) from err


def _on_device(closed: Any) -> tuple[Any, list]:
    jaxpr, consts = with_own_constants(closed)
    return jaxpr, jax.device_put(consts)


# Rows do not know of each other: the derivative along ones is every row's own.


def _along(rows: Callable, eta: Any) -> tuple[Any, Any]:
    return jax.jvp(rows, (eta,), (jnp.ones_like(eta),))


def _value(rows: Callable, eta: Any, theta: Any) -> Any:
    return rows(eta, theta)


def _derivatives(rows: Callable, eta: Any, theta: Any) -> tuple[Any, Any, Any]:
    def first(eta: Any) -> Any:
        return _along(lambda eta: rows(eta, theta), eta)[1]

    slope, bend = _along(first, eta)
    return rows(eta, theta), slope, bend


def _slopes(rows: Callable, eta: Any, theta: Any) -> tuple[Any, ...]:
    ones = (jnp.ones_like(eta),)
    (value, first, second), (*_, third) = jax.jvp(
        lambda eta: _derivatives(rows, eta, theta), (eta,), ones
    )
    return value, first, second, third


def _in_theta(rows: Callable, eta: Any, theta: Any) -> Any:
    def along(direction: Any) -> Any:
        return jax.jvp(lambda theta: _derivatives(rows, eta, theta), (theta,), (direction,))[1]

    return lax.map(along, jnp.eye(theta.size, dtype=theta.dtype))


def _expected(rows: Callable, eta: Any, theta: Any, sd: Any, z: Any, weights: Any) -> Any:
    def add(total: tuple, node: tuple) -> tuple:
        its_z, weight = node
        value, slope = _along(lambda eta: rows(eta, theta), eta + its_z * sd)
        parts = value, slope, its_z * slope
        return tuple(a + weight * b for a, b in zip(total, parts, strict=True)), None

    return lax.scan(add, (jnp.zeros_like(eta),) * 3, (z, weights))[0]


def _expected_in_theta(rows: Callable, eta: Any, theta: Any, sd: Any, z: Any, weights: Any) -> Any:
    def add(total: Any, node: tuple) -> tuple:
        its_z, weight = node
        slope = jax.grad(lambda theta: rows(eta + its_z * sd, theta).sum())(theta)
        return total + weight * slope, None

    return lax.scan(add, jnp.zeros_like(theta), (z, weights))[0]


# --- the prior --------------------------------------------------------------------------------


class Prior:
    """`N(0, Lambda^-1)`: `matrix` is its diagonal (a vector) or sparse."""

    def __init__(self, given: Any, dim: int):
        self.dim = dim
        if hasattr(given, "tocsc"):
            from scipy.sparse import csc_array

            self.matrix: Any = csc_array(given, dtype=np.float64)
            self.matrix.sum_duplicates()  # and sorts
            shape = self.matrix.shape
        else:
            array = np.asarray(given, dtype=np.float64)
            self.matrix, shape = array, array.shape
            if shape in ((), (dim,)):
                self.matrix = np.broadcast_to(array, (dim,))
            elif shape == (dim, dim):
                from scipy.sparse import csc_array

                self.matrix = csc_array(array)
        if shape not in ((), (dim,), (dim, dim)):
            raise InputError(
                f"LinearPredictor: prior_precision has shape {shape}; it must be a number, a "
                f"vector of length {dim} or a (sparse) matrix of shape {(dim, dim)}."
            )

    @property
    def is_diagonal(self) -> bool:
        return not hasattr(self.matrix, "tocsc")

    def has_places_of(self, other: "Prior") -> bool:
        if self.is_diagonal or other.is_diagonal:
            return self.is_diagonal and other.is_diagonal
        mine, its = self.matrix, other.matrix
        same = np.array_equal(mine.indptr, its.indptr)
        return same and np.array_equal(mine.indices, its.indices)

    @property
    def data(self) -> np.ndarray:
        return self.matrix if self.is_diagonal else self.matrix.data

    @functools.cached_property
    def factor(self) -> Cholesky | None:
        return None if self.is_diagonal else cholesky(self.matrix)

    @functools.cached_property
    def log_det(self) -> float:
        """Not a number where the prior is not definite."""
        if self.is_diagonal:
            return float(np.log(self.matrix).sum()) if (self.matrix > 0).all() else math.nan
        return math.nan if self.factor is None else self.factor.log_det

    def times(self, x: np.ndarray) -> np.ndarray:
        """`Lambda x` for every row `x`."""
        return self.matrix * x if self.is_diagonal else (self.matrix @ x.T).T

    def diagonal(self) -> Vector:
        return np.asarray(self.matrix if self.is_diagonal else self.matrix.diagonal())

    @functools.cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of `data`."""
        if self.is_diagonal:
            return np.arange(self.dim), np.arange(self.dim)
        columns = np.arange(self.dim).repeat(np.diff(self.matrix.indptr))
        return self.matrix.indices.astype(np.int64), columns

    @functools.cached_property
    def inverse(self) -> np.ndarray:
        """`Lambda^-1` at its places."""
        if self.is_diagonal:
            return 1 / self.matrix
        assert self.factor is not None
        return self.factor.inverse_at(*self.places)

    def form(self, data: np.ndarray, x: Vector) -> float:
        """`x^T M x` of a matrix with these numbers at its places."""
        rows, columns = self.places
        return float((data * x[rows]) @ x[columns])


# --- the density ------------------------------------------------------------------------------


class RowsDensity(Density):
    """A `LinearPredictor` of one predictor per row."""

    n_predictors = 1
    is_checked = True

    def __init__(self, target: Target):
        self.target, self.dim = target, target.structure.size
        self.n_hyper = target.theta.size
        self.theta = np.asarray(target.theta, dtype=np.float64)
        model: LinearPredictor = target.callable
        self.design = _design(model, target)
        if self.design.shape[1] != self.dim:
            raise InputError(
                f"LinearPredictor: the design has shape {self.design.shape} and init has "
                f"{self.dim} numbers; the design must be (n, dim)."
            )
        self.n_rows = self.design.shape[0]
        self.rows = RowLikelihood(target, self.n_rows)
        self._model, self._first = model, None
        self._first = self.prior_at(self.theta)
        if not self._first.is_diagonal:
            refuse_not_symmetric(self._first.matrix)
        self._bind()

    def _bind(self) -> None:
        self.prior = self.prior_at(self.theta)
        self.log_hyper_prior = self._log_hyper_prior(self.theta)

    def at(self, theta):
        other = copy.copy(self)
        other.theta = np.asarray(theta, dtype=np.float64)
        for name in ("prior_slopes", "hyper_prior_slopes"):
            vars(other).pop(name, None)
        other._bind()
        return other

    def _extra(self, theta: Theta) -> tuple:
        return self.target.at(theta).extra

    def prior_at(self, theta: Theta) -> Prior:
        given = self._model.prior_precision
        if callable(given):
            with precision_scope(FLOAT):
                given = given(*self._extra(theta))
        made = Prior(given, self.dim)
        if self._first is not None and not made.has_places_of(self._first):
            raise InputError(
                "LinearPredictor: the prior_precision has other nonzeros at other hyperparameters: "
                "give it the same pattern everywhere, with explicit zeros where it needs them."
            )
        return made

    def _log_hyper_prior(self, theta: Theta) -> float:
        if self._model.log_hyper_prior is None:
            return 0.0
        with precision_scope(FLOAT):
            return float(self._model.log_hyper_prior(*self._extra(theta)))

    @functools.cached_property
    def prior_slopes(self) -> Float[np.ndarray, "hyper places"]:
        """d Lambda / d theta, at the prior's places."""
        return self._differences(self._data_at)

    def _data_at(self, theta: Theta) -> np.ndarray:
        return self.prior_at(theta).data

    @functools.cached_property
    def hyper_prior_slopes(self) -> Theta:
        return self._differences(lambda theta: np.array(self._log_hyper_prior(theta)))

    def _differences(self, function: Callable[[Theta], np.ndarray]) -> np.ndarray:
        if not callable(self._model.prior_precision) and self._model.log_hyper_prior is None:
            return np.zeros((self.n_hyper, *np.shape(function(self.theta))))
        steps = STEP * np.maximum(1.0, np.abs(self.theta))
        found = [
            (function(self.theta + one) - function(self.theta - one)) / (2 * one.max())
            for one in np.diag(steps)
        ]
        return np.stack(found) if found else np.zeros((0, *np.shape(function(self.theta))))

    def log_prior(self, points: np.ndarray) -> Any:
        """At one point, or at many."""
        # A sum, not a product: of vectors BLAS's threads cost more than they give.
        return self.prior_constant - 0.5 * (points * self.prior.times(points)).sum(-1)

    @property
    def prior_constant(self) -> float:
        return 0.5 * (self.prior.log_det - self.dim * LOG_2PI) + self.log_hyper_prior

    def pulled(self, in_rows: PerRow) -> Vector:
        """`Phi^T x`."""
        return np.asarray(self.design.T @ in_rows)

    def predictors(self, point: Vector) -> PerRow:
        return np.asarray(self.design @ point)

    def values(self, points):
        found, some = np.empty(len(points)), max(1, PREDICTORS // max(1, self.n_rows))
        for first in range(0, len(points), some):
            part = points[first : first + some]
            etas = np.ascontiguousarray((self.design @ part.T).T)
            found[first : first + some] = [self.rows.value(e, self.theta).sum() for e in etas]
        return found + self.log_prior(points)

    def gradients(self, points):
        values, gradients = np.empty(len(points)), np.empty(points.shape)
        for i, one in enumerate(points):
            found = self.rows.slopes(self.predictors(one), self.theta)
            values[i] = found.value.sum() + self.log_prior(one)
            gradients[i] = self.pulled(found.first) - self.prior.times(one)
        return values, gradients

    def product(self, point, vector):
        found = self.rows.slopes(self.predictors(point), self.theta)
        gradient = self.pulled(found.first) - self.prior.times(point)
        bent = self.pulled(found.second * self.predictors(vector)) - self.prior.times(vector)
        return float(found.value.sum() + self.log_prior(point)), gradient, bent


def _design(model: LinearPredictor, target: Target) -> Any:
    given = model.design
    if callable(given) and not hasattr(given, "shape"):
        if target.hyper_structure is not None:
            raise InputError(
                "LinearPredictor: a design that is a function of hyperparameters needs "
                'structure="dense"; give an array, and let prior_precision or log_likelihood '
                "depend on them."
            )
        with precision_scope(FLOAT):
            given = given(*target.extra)
    if hasattr(given, "tocsr"):
        from scipy.sparse import csr_array

        made = csr_array(given, dtype=np.float64)
        made.sum_duplicates()
        finite = np.isfinite(made.data).all()
    else:
        made = np.asarray(given, dtype=np.float64)
        finite = np.isfinite(made).all()
    if made.ndim != 2:
        raise InputError(
            f"LinearPredictor: the design has shape {made.shape}; it must be (n, dim)."
        )
    if not finite:
        raise InputError("LinearPredictor: the design holds numbers that are not finite.")
    return made
