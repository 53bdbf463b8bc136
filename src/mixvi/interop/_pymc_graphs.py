"""Graphs of a PyMC model made into functions: by JAX, or by PyTensor's own compiler."""

import abc
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from .._density._protocol import Density
from .._density._target import FLOAT_TYPES, precision_scope
from .._errors import InputError
from ._pymc_model import Reading

DOUBLE = FLOAT_TYPES["float64"]
# PyTensor's rewrite for `pm.Model(check_bounds=False)`.
CHECKS_REMOVED = "local_remove_check_parameter"
BACKENDS = ("auto", "jax", "pytensor")


class Graphs(abc.ABC):
    """The log density of a model, and what else it names, as functions of unbounded parameters."""

    name: str

    @property
    @abc.abstractmethod
    def log_density(self) -> Callable | Density:
        """What `mixvi.fit` takes."""

    @abc.abstractmethod
    def evaluated(
        self, what: str, graphs: dict[str, Any], points: "OrderedDict[str, np.ndarray]"
    ) -> dict[str, np.ndarray]:
        """Of many points, on the first axis. `what`: under which the function is kept."""


class ByJax(Graphs):
    name = "jax"

    def __init__(self, reading: Reading):
        log_p = reading.model.logp()
        reading.refuse_random(log_p)
        self.inputs, self.checks = reading.values, reading.model.check_bounds
        function = self._function([log_p])
        self._log_density = lambda w: function(*w.values())[0]
        self._kept: dict[str, Callable] = {}

    @property
    def log_density(self) -> Callable:
        return self._log_density

    def _function(self, graphs: Sequence[Any]) -> Callable:
        # PyTensor switches JAX to 64 bits when this is imported, as its samplers need it: putting
        # the flag back would have `pm.sample` by NumPyro run in single precision later on.
        # (`pymc.sampling.jax` would ask for a hundred devices besides.)
        from pytensor.compile.mode import get_mode
        from pytensor.graph.fg import FunctionGraph
        from pytensor.link.jax.dispatch.basic import jax_funcify

        check = "local_check_parameter_to_ninf_switch" if self.checks else CHECKS_REMOVED
        graph = FunctionGraph(inputs=self.inputs, outputs=_constant_data(graphs), clone=True)
        mode: Any = get_mode("JAX")
        mode.including(check).optimizer.rewrite(graph)
        with precision_scope(DOUBLE):
            return jax_funcify(graph)

    def evaluated(
        self, what: str, graphs: dict[str, Any], points: "OrderedDict[str, np.ndarray]"
    ) -> dict[str, np.ndarray]:
        if what not in self._kept:
            function = self._function(list(graphs.values()))
            # One by one: factorisations under `vmap` may hang on a CPU.
            self._kept[what] = jax.jit(lambda w: jax.lax.map(lambda w: function(*w.values()), w))
        with precision_scope(DOUBLE):
            made = self._kept[what](points)
            return {name: np.asarray(one) for name, one in zip(graphs, made, strict=True)}


def _constant_data(graphs: Sequence[Any]) -> list[Any]:
    """Shared variables as the constants that they are now."""
    from pytensor.graph.replace import clone_replace
    from pytensor.tensor.basic import constant

    # Of the type of the variable, whose static shape may be less than known.
    known = {one: one.type.filter_variable(constant(one.get_value())) for one in _shared(graphs)}
    return clone_replace(list(graphs), replace=known)


def _shared(graphs: Sequence[Any]) -> list[Any]:
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.traversal import graph_inputs

    return [one for one in graph_inputs(graphs) if isinstance(one, SharedVariable)]


class ByPytensor(Graphs, Density):
    """The compiled function of one point, in a loop; second derivatives are differences."""

    name = "pytensor"
    is_checked = True  # PyTensor differentiates

    def __init__(self, reading: Reading, start: "OrderedDict[str, np.ndarray]"):
        self.dim = sum(one.size for one in start.values())
        self.inputs, self.model = reading.values, weakref.ref(reading.model)
        log_p = reading.model.logp()
        reading.refuse_random(log_p)
        point = dict(zip((one.name for one in reading.values), start.values(), strict=True))
        function = reading.model.logp_dlogp_function(
            grad_vars=reading.values, initial_point=point, ravel_inputs=True
        )
        function.set_extra_values({})
        self._function = function._pytensor_function
        self._function.trust_input = True
        self._kept: dict[str, Callable] = {}

    @property
    def log_density(self) -> Density:
        return self

    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        values, gradients = np.empty(len(points)), np.empty(points.shape)
        for i, point in enumerate(np.array(points, np.float64)):
            try:
                values[i], gradients[i] = self._function(point)
            except (ArithmeticError, ValueError, np.linalg.LinAlgError):  # a factor that is none
                values[i], gradients[i] = -np.inf, 0.0
        return values, gradients

    def evaluated(
        self, what: str, graphs: dict[str, Any], points: "OrderedDict[str, np.ndarray]"
    ) -> dict[str, np.ndarray]:
        if what not in self._kept:
            model = self.model()
            assert model is not None
            self._kept[what] = model.compile_fn(
                list(graphs.values()),
                inputs=self.inputs,
                point_fn=False,
                on_unused_input="ignore",
            )
        function = self._kept[what]
        each = [function(*one) for one in zip(*points.values(), strict=True)]
        return {
            name: np.stack(its) for name, its in zip(graphs, zip(*each, strict=True), strict=True)
        }


# --- one for a model --------------------------------------------------------------------------

_known: "weakref.WeakKeyDictionary[Any, dict[str, tuple[Any, Graphs]]]" = (
    weakref.WeakKeyDictionary()
)


def graphs_of(reading: Reading, start: "OrderedDict[str, np.ndarray]", backend: str) -> Graphs:
    """Kept as long as the model, so that another fit compiles nothing; made anew where variables
    or data have changed."""
    if backend not in BACKENDS:
        raise InputError(f"backend must be one of {BACKENDS}, got {backend!r}.")
    kept = _known.setdefault(reading.model, {})
    state = _state(reading, start)
    if backend in kept and kept[backend][0] == state:
        return kept[backend][1]
    made = _made(reading, start, backend)
    kept[backend] = state, made
    return made


def _made(reading: Reading, start: "OrderedDict[str, np.ndarray]", backend: str) -> Graphs:
    if backend == "pytensor":
        return ByPytensor(reading, start)
    try:
        made = ByJax(reading)
        with precision_scope(DOUBLE):
            jax.eval_shape(made.log_density, start)
    except InputError:
        raise
    except Exception as err:  # whatever an operation that JAX does not know may raise
        if backend == "auto":
            return ByPytensor(reading, start)
        raise InputError(
            f"the model cannot be given to JAX: {type(err).__name__}: {str(err).splitlines()[0]} "
            'Use backend="pytensor".'
        ) from err
    return made


def _state(reading: Reading, start: "OrderedDict[str, np.ndarray]") -> Any:
    model = reading.model
    variables = [*model.basic_RVs, *model.deterministics, *model.potentials]
    variables += list(model.rvs_to_values.values())
    shared = [(id(one), _content(one.get_value(borrow=True))) for one in _shared(variables)]
    shapes = [one.shape for one in start.values()]
    return [id(one) for one in variables], shared, shapes, model.check_bounds


def _content(value: Any) -> Any:
    """Of random generators nothing: a log density that uses one is refused."""
    if not isinstance(value, np.ndarray | np.generic):
        return None
    return value.shape, hash(np.ascontiguousarray(value).tobytes())
