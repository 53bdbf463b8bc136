"""Log densities that are not JAX: a NumPy function with its gradient, called on the host.

Second derivatives are the user's or central differences of the gradient; third ones are not there.
"""

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PyTree

from .._errors import InputError
from ._protocol import Density
from ._structure import Structure, listed

# Points in one call of a function that takes many.
AT_ONCE = 4096

HYPER_REFUSED = (
    "from_numpy: hyper= needs derivatives in the hyperparameters and third derivatives in "
    "the parameters, which a NumPy function does not have: leave hyper= out (pass fixed "
    "ones through data=), or write the log density with jax.numpy."
)


def from_numpy(fun_and_grad: Any, hessian: Any = None, *, batched: bool = False) -> "NumpyFunction":
    """A log density that is written in NumPy (or calls something that is), with its gradient.

    **Arguments:**

    - `fun_and_grad`: `fun_and_grad(w)`, or `fun_and_grad(w, data)` where `data=` is given, returns
      the log density and its gradient. `w` has the form of `init` with NumPy float64 arrays in it,
      and the gradient must have the form of `w` (with anything in the places of constants). Return
      `-inf` (and any finite gradient) where the density is zero.
      The gradient is held against differences of the value at one point, once per fit.
    - `hessian`: `hessian(w)` or `hessian(w, data)`, the matrix of second derivatives of the log
      density in the order of `post.names`. Left out, differences of the gradient are taken, with
      steps of 6e-6 times `max(1, |w|)`: parameters should be of order one.
    - `batched`: whether `fun_and_grad` takes many points at once, which saves most of the time of
      a cheap function. Every array in `w` then has a leading axis of length n, and n values and n
      gradients, with that axis first, come back. `hessian` is always asked for one point, without
      that axis.

    **Returns:** what `fit`, `laplace` and `fit_many` take as a log density, also with
    `constraints=` (a Hessian is then that of the bounded parameters, in the order of `init`). It
    cannot be called inside a function written with `jax.numpy`. `hyper=` needs third derivatives
    and is refused.

    >>> import numpy as np
    >>> import mixvi
    >>> def fun_and_grad(w, y):  # y ~ N(w, 1) with a prior N(0, 1)
    ...     return -0.5 * ((y - w) ** 2).sum() - 0.5 * w @ w, (y - w).sum(0) - w
    >>> post = mixvi.fit(mixvi.from_numpy(fun_and_grad), np.zeros(2), data=np.ones((3, 2)))
    >>> post.mean.round(6).tolist(), post.std.round(6).tolist()
    ([0.75, 0.75], [0.5, 0.5])

    Many points at once:

    >>> def many(w):  # N(3, 1) in both entries; w is (n, 2)
    ...     return -0.5 * ((w - 3) ** 2).sum(1), 3 - w
    >>> mixvi.laplace(mixvi.from_numpy(many, batched=True), np.zeros(2)).mean.round(6).tolist()
    [3.0, 3.0]
    """
    for name, given in (("fun_and_grad", fun_and_grad), ("hessian", hessian)):
        if not callable(given) and (name == "fun_and_grad" or given is not None):
            raise InputError(
                f"from_numpy: {name} must be a function of the parameters, not "
                f"{type(given).__name__}."
            )
    return NumpyFunction(fun_and_grad, hessian, batched)


@dataclasses.dataclass(frozen=True)
class NumpyFunction:
    """What `from_numpy` was given."""

    fun_and_grad: Callable
    hessian: Callable | None = None
    batched: bool = False

    def __call__(self, *arguments: Any) -> NoReturn:
        del arguments
        raise InputError(
            "from_numpy: a NumPy function cannot be called inside one written with jax.numpy: pass "
            "from_numpy(...) itself to fit, and write the whole log density and its gradient with "
            "NumPy, or all of it with jax.numpy."
        )


class NumpyDensity(Density):
    """Calls the user's functions and reads what they return, in float64."""

    def __init__(self, function: NumpyFunction, structure: Structure, data: PyTree, has_data: bool):
        self.function, self.structure, self.dim = function, structure, structure.size
        self.extra = (jtu.tree_map(_host, data),) if has_data else ()
        self.values_at_once = AT_ONCE if function.batched else 1

    @property
    def has_hessian(self) -> bool:
        """Of its own, not by differences."""
        return self.function.hessian is not None

    def gradients(
        self, points: Float[np.ndarray, "n dim"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n dim"]]:
        values, gradients = np.empty(len(points)), np.empty(points.shape)
        step = AT_ONCE if self.function.batched else 1
        for start in range(0, len(points), step):
            # Without the flag a point has no axis before its own.
            at = slice(start, start + step) if self.function.batched else start
            values[at], gradients[at] = self._read(
                self._called(self.function.fun_and_grad, "fun_and_grad", points[at]), points[at]
            )
        return values, gradients

    def curvature(
        self, point: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
        if not self.has_hessian:
            return super().curvature(point)
        values, gradients = self.gradients(point[None])
        return float(values[0]), gradients[0], self._hessian(point)

    def product(
        self, point: Float[np.ndarray, " dim"], vector: Float[np.ndarray, " dim"]
    ) -> tuple[float, Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
        if not self.has_hessian:
            return super().product(point, vector)
        value, gradient, hessian = self.curvature(point)
        return value, gradient, hessian @ vector

    def _hessian(self, point: Float[np.ndarray, " dim"]) -> Float[np.ndarray, "dim dim"]:
        assert self.function.hessian is not None
        matrix = _real(self._called(self.function.hessian, "hessian", point), "the Hessian", point)
        if matrix.shape != (self.dim, self.dim):
            raise InputError(
                f"from_numpy: the Hessian has shape {matrix.shape}, expected "
                f"{(self.dim, self.dim)}: second derivatives in the order of post.names."
            )
        return 0.5 * (matrix + matrix.T)

    def _called(self, function: Callable, name: str, flat: Float[np.ndarray, "*n dim"]) -> Any:
        """`flat`: one point, or many of them at once."""
        # Copies, so that a function that writes into its argument spoils nothing.
        copies = [np.array(leaf, np.float64) for leaf in self.structure.leaves(flat)]
        try:
            return function(self.structure.tree(copies), *self.extra)
        except Exception as err:
            raise InputError(
                f"from_numpy: {name} raised {type(err).__name__} {_place(flat)}: {err}. "
                "Return -inf where the density is zero."
            ) from err

    def _read(
        self, returned: Any, flat: Float[np.ndarray, "*n dim"]
    ) -> tuple[Float[np.ndarray, "*n"], Float[np.ndarray, "*n dim"]]:
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise InputError(
                "from_numpy: fun_and_grad must return two things, the log density and its "
                f"gradient; it returned {type(returned).__name__} {_place(flat)}."
            )
        lead = flat.shape[:-1]
        value = _real(returned[0], "the value", flat)
        if value.shape != lead:
            remedy = (
                f"with batched=True it must be {lead}, one number for each point."
                if lead
                else "it must be one number. Sum over observations."
            )
            raise InputError(
                f"from_numpy: the value has shape {value.shape} {_place(flat)}; {remedy}"
            )
        try:
            leaves = self.structure.treedef.flatten_up_to(returned[1])
        except (ValueError, TypeError) as err:
            raise InputError(
                f"from_numpy: the gradient does not have the form of the parameters: {err}"
            ) from err
        leaves = [_real(leaf, "the gradient", flat) for leaf in self.structure.varying(leaves)]
        shapes = tuple(leaf.shape for leaf in leaves)
        due = tuple(lead + shape for shape in self.structure.shapes)
        if shapes != due:
            had, wanted = (s[0] if len(s) == 1 else s for s in (shapes, due))
            raise InputError(
                f"from_numpy: the gradient has shape {had} and the parameters {wanted}; they must "
                "be the same."
            )
        return value, np.concatenate([leaf.reshape((*lead, -1)) for leaf in leaves], -1)


def _host(leaf: Any) -> Any:
    """Arrays of JAX and plain numbers as NumPy arrays, all else as it is."""
    return np.asarray(leaf) if isinstance(leaf, jax.Array | numbers.Number) else leaf


def _real(given: Any, what: str, flat: Float[np.ndarray, "*n dim"]) -> Float[np.ndarray, "..."]:
    array = None if given is None else np.asarray(given)
    if array is None or array.dtype.kind not in "fiu":
        kind = type(given).__name__ if array is None or array.ndim == 0 else array.dtype
        raise InputError(f"from_numpy: {what} is {kind} {_place(flat)}; it must be real numbers.")
    return array.astype(np.float64)


def _place(flat: Float[np.ndarray, "*n dim"]) -> str:
    """Where the function was called: `at w = [0, 1]`."""
    first = flat if flat.ndim == 1 else flat[0]
    shown = "[" + listed([f"{value:.6g}" for value in first], 8) + "]"
    return f"at w = {shown}" + (f" (the first of {len(flat)} points)" if flat.ndim > 1 else "")
