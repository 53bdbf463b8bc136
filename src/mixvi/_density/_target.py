"""A user's function becomes a flat log density with names."""

import dataclasses
import functools
import numbers
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._errors import InputError
from ._captured import joined, split
from ._data import cast_leaves
from ._linear_predictor import LinearPredictor
from ._structure import Structure, flatten, listed, path_name

T = TypeVar("T")
UNBOUNDED = (
    'say which parameters are bounded, with constraints={"sigma": "positive"} for example, or '
    "write them on an unbounded scale (log of a scale, logit of a share)"
)
FLOAT_TYPES = {"float64": np.dtype(np.float64), "float32": np.dtype(np.float32)}


def precision_scope(dtype: np.dtype):
    """Float64 inside, whatever the user's JAX flag is, and that flag as it was outside."""
    return jax.enable_x64(dtype == np.float64)


def traced_in(
    dtype: np.dtype,
    tracer: Callable[[Callable], Callable],
    function: Callable,
    arguments: Sequence[Any],
    use: Callable[[Any], T],
) -> T:
    """`use` of what `tracer(function)(*arguments)` gives under this precision: a closed jaxpr, or
    what holds one.

    JAX keeps the constant that it made of a NumPy array which a function captured for as long as
    anybody holds it, and finds it again under another precision (seen in 0.10): what was traced in
    float32 before would be rounded here, or refused, and what the user traces afterwards would
    break on our float64. So `use` copies what it keeps, and the rest is let go; where a constant is
    held all the same JAX forgets what it traced, which costs a compilation of what is used again.
    """
    outside = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    differs = outside != (dtype == np.float64)

    def once() -> Any:
        # A function of its own: JAX holds what it traced as long as the function lives.
        return tracer(lambda *given: function(*given))(*arguments)

    with precision_scope(dtype):
        try:
            made = once()
        except TypeError:
            if not differs:
                raise
            made = None
        if differs and (made is None or _has_narrow(made, dtype)):
            del made
            jax.clear_caches()
            made = once()
        held = [weakref.ref(one) for one in _captured(made)]
        used = use(made)
    del made
    if differs and any(one() is not None for one in held):
        jax.clear_caches()
    return used


def _has_narrow(made: Any, dtype: np.dtype) -> bool:
    return any(one.dtype.itemsize < dtype.itemsize for one in _captured(made))


def _captured(made: Any) -> list[np.ndarray]:
    """Arrays of NumPy, of numbers, among the constants."""
    its = (one for closed in closed_jaxprs(made) for one in closed.consts)
    return [one for one in its if isinstance(one, np.ndarray) and one.dtype.kind in "fiuc"]


def closed_jaxprs(made: Any) -> Iterator[Any]:
    """A closed jaxpr, and those inside: of functions that a user has jitted, say."""
    closed = made if hasattr(made, "consts") else made.jaxpr
    yield closed
    for equation in closed.jaxpr.eqns:
        for param in equation.params.values():
            for one in param if isinstance(param, tuple | list) else (param,):
                if hasattr(one, "consts") and hasattr(one, "jaxpr"):
                    yield from closed_jaxprs(one)


def with_own_constants(closed: Any) -> tuple[Any, list]:
    """The jaxpr, and its constants: copies, since a device may share what it is given. What is
    inside holds copies, too."""
    for one in closed_jaxprs(closed):
        one.consts[:] = [np.array(c) if isinstance(c, np.ndarray) else c for c in one.consts]
    return closed.jaxpr, closed.consts


@functools.partial(
    jtu.register_dataclass,
    data_fields=("arrays", "data", "theta"),
    meta_fields=("function", "has_data", "structure", "hyper_structure", "constraints"),
)
@dataclasses.dataclass(frozen=True)
class Target:
    """`log p~(w | theta)` on flat vectors: the user's function with hyperparameters and data bound.

    A pytree whose arrays are data and hyperparameters `theta` (a vector, empty where there are
    none), so that new ones of the same shape reuse compiled code; the function and the structures
    are static and compared by identity and equality.
    """

    arrays: PyTree
    data: PyTree
    theta: Any
    function: tuple[tuple, Any]
    has_data: bool
    structure: Structure
    hyper_structure: Structure | None
    # Where parameters are bounded, how the flat vector becomes them (`_constraints.Constraints`).
    constraints: Any = None

    @property
    def callable(self) -> Any:
        return joined(self.arrays, self.function)

    @property
    def n_predictors(self) -> int:
        """Expectations are integrals over so many dimensions; 0 where nothing is known of them."""
        if not isinstance(self.callable, LinearPredictor):
            return getattr(self.callable, "n_predictors", 0)
        shape = self.structure.shapes[0]
        return shape[0] if len(shape) == 2 else 1

    def at(self, theta: Float[Any, "*batch hyper"]) -> "Target":
        return dataclasses.replace(self, theta=theta)

    @property
    def extra(self) -> tuple:
        """What the user's function gets after the parameters."""
        hyper = self.hyper_structure
        return (
            *((hyper.unravel(self.theta),) if hyper is not None else ()),
            *((self.rows,) if self.has_data else ()),
        )

    @property
    def rows(self) -> PyTree:
        """The data as the user's function gets them."""
        return self.data

    @property
    def share_of_prior(self) -> Any:
        """Of several pieces of data one has it."""
        return 1.0

    def counted(self, rows: Float[Array, " n"]) -> Float[Array, " n"]:
        """What all rows say, zero for those that do not count."""
        return rows

    def parameters(self, flat: Float[Array, " dim"]) -> Any:
        """As the user's function gets them."""
        bound = self.constraints
        return self.structure.unravel(flat) if bound is None else bound.constrain(flat)

    def __call__(self, flat: Float[Array, " dim"]) -> Float[Array, ""]:
        value = self.asked(self.callable, "log_density", self.parameters(flat))
        value = checked_number(value, flat.dtype, "log_density")
        return value if self.constraints is None else value + self.constraints.log_det(flat)

    def asked(self, function: Callable, name: str, w: Any) -> Any:
        """What the user's function says of these parameters; what it raises, in a sentence."""
        arguments = (w, *self.extra)
        try:
            return function(*arguments)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as err:
            raise InputError(
                f"{name} cannot be traced by JAX: write it with jax.numpy instead of numpy, "
                "and with jnp.where instead of `if` on parameters or data. JAX says: "
                + str(err).splitlines()[0]
            ) from err
        except (
            TypeError,
            ValueError,
            IndexError,
            KeyError,
            AttributeError,
            ZeroDivisionError,
        ) as err:
            if isinstance(err, InputError):
                raise
            reason = str(err).splitlines()[0] if str(err) else repr(err)
            raise InputError(
                f"{name} raised {type(err).__name__} when called with "
                f"{self._described(arguments)}: {reason}"
            ) from err

    def shown(self, flat: Float[np.ndarray, " dim"]) -> list[str]:
        """Names and values as the user knows them: `sigma=1.5`."""
        structure, values = self.structure, flat
        if (bound := self.constraints) is not None:
            structure = bound.user
            values = structure.ravel(bound.constrained(flat), "w")
        return [f"{n}={v:.4g}" for n, v in zip(structure.names, values, strict=True)]

    def _described(self, arguments: tuple) -> str:
        shapes = [jtu.tree_map(_shape, tree) for tree in arguments]
        given = ("hyperparameters", self.hyper_structure is not None), ("data", self.has_data)
        what = ["parameters", *(name for name, there in given if there)]
        return " and ".join(
            f"{name} of shapes {tree}" for name, tree in zip(what, shapes, strict=True)
        )


def checked_number(value: Any, dtype: np.dtype, name: str) -> Float[Array, ""]:
    """What a function named so returned, if it is one real number."""
    if not hasattr(value, "shape") and not isinstance(value, numbers.Real):
        raise InputError(
            f"{name} returned {type(value).__name__}; it must return one real number. "
            + _remedy(value)
        )
    value = jnp.asarray(value)
    if value.shape != ():
        raise InputError(
            f"{name} returned an array of shape {value.shape}; it must return one number. "
            "Sum over observations, for example with .sum()."
        )
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise InputError(f"{name} returned a complex number; it must return a real one.")
    return value.astype(dtype)


def _remedy(returned: Any) -> str:
    """For a log density that returned something other than a number."""
    if isinstance(returned, tuple | list) and len(returned) > 1:
        return (
            f"Return the first of the {len(returned)} alone, if that is the log density (a value "
            "with its gradient, both in NumPy, goes through mixvi.from_numpy)."
        )
    if isinstance(returned, Mapping):
        keys = listed([repr(key) for key in returned])
        return f"Return the entry that is the log density alone, one of {keys}."
    return "Is a `return` missing?"


def _shape(leaf: Any) -> Any:
    """Of what has one; a constant as it is."""
    return leaf if getattr(leaf, "shape", None) is None else tuple(leaf.shape)


# --- from the user's arguments to a Target ----------------------------------------------------


def prepare(
    log_density: Callable, init: PyTree, data: PyTree, dtype: np.dtype, hyper: PyTree = None
) -> tuple[Target, np.ndarray]:
    """The checked target and the flat start, both in `dtype`."""
    if not callable(log_density):
        raise InputError(
            f"log_density must be a function of the parameters, not {type(log_density).__name__}."
        )
    structure, start = flatten(init, dtype)
    hyper_structure, theta = (None, np.zeros(0, dtype))
    if hyper is not None:
        hyper_structure, theta = flatten(hyper, dtype, "hyper")
    with precision_scope(dtype):
        arrays, function = split(log_density)
        target = Target(
            arrays=cast_leaves(arrays, dtype, "log_density"),
            data=cast_leaves(data, dtype, "data"),
            theta=theta,
            function=function,
            has_data=data is not None,
            structure=structure,
            hyper_structure=hyper_structure,
        )
    return target, start


def explain_non_finite(
    target: Target, start: np.ndarray, value: float, gradient: np.ndarray
) -> str:
    """Why the log density cannot be used at the start: names data, then parameters."""
    for path, leaf in jtu.tree_flatten_with_path(target.rows)[0]:
        array = np.asarray(leaf)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            count = int((~np.isfinite(array)).sum())
            name = path_name(path, "data", rooted=True)
            return (
                f"the log density is {value} at the start because {name} has {count} non-finite "
                f"number{'s' * (count > 1)}, the first at {list(where)}: drop or fill those rows."
            )
    if not np.isfinite(value):
        shown = target.shown(start)
        if (hyper := target.hyper_structure) is not None:
            pairs = zip(hyper.names, np.asarray(target.theta), strict=True)
            shown = [*shown, *(f"{name}={number:.4g}" for name, number in pairs)]
        return (
            f"the log density is {value} at the start ({listed(shown, 4)}): start where it is "
            f"finite, and {UNBOUNDED}."
        )
    bad = [target.structure.names[i] for i in np.flatnonzero(~np.isfinite(gradient))]
    return (
        f"the gradient of the log density is not finite at the start, in {listed(bad)}: "
        "look there for sqrt, log or a division at zero, or move the start."
    )
