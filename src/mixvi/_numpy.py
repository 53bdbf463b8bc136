"""Room 2. Log densities that are not JAX: a NumPy function with its gradient becomes one that is.

    d value = gradient . dw        d gradient = H dw,   H dw by central differences of the gradient

Third derivatives are not there. The function runs on the host, one call for every point.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, PyTree

from ._errors import InputError
from ._target import listed

# The step of central differences that balances truncation and rounding.
STEP = float(np.finfo(np.float64).eps) ** (1 / 3)


def from_numpy(fun_and_grad: Any, hessian: Any = None) -> "NumpyDensity":
    """A log density that is written in NumPy (or calls something that is), with its gradient.

    **Arguments:**

    - `fun_and_grad`: `fun_and_grad(w)`, or `fun_and_grad(w, data)` where `data=` is given, returns
      the log density and its gradient. `w` has the form of `init` with NumPy float64 arrays in it,
      and the gradient must have the form of `w`. Return `-inf` (and any finite gradient) where the
      density is zero.
    - `hessian`: `hessian(w)` or `hessian(w, data)`, the matrix of second derivatives of the log
      density in the order of `post.names`. Left out, differences of the gradient are taken, with
      steps of 6e-6 times `max(1, |w|)`: parameters should be of order one.

    **Returns:** what `fit`, `laplace` and `fit_many` take as a log density; also with
    `constraints=`, and inside another function written with `jax.numpy`. `hyper=` needs third
    derivatives and is refused.

    >>> import numpy as np
    >>> import mixvi
    >>> def fun_and_grad(w, y):  # y ~ N(w, 1) with a prior N(0, 1)
    ...     return -0.5 * ((y - w) ** 2).sum() - 0.5 * w @ w, (y - w).sum(0) - w
    >>> post = mixvi.fit(mixvi.from_numpy(fun_and_grad), np.zeros(2), data=np.ones((3, 2)))
    >>> post.mean.round(6).tolist(), post.std.round(6).tolist()
    ([0.75, 0.75], [0.5, 0.5])
    """
    for name, given in (("fun_and_grad", fun_and_grad), ("hessian", hessian)):
        if not callable(given) and (name == "fun_and_grad" or given is not None):
            raise InputError(
                f"from_numpy: {name} must be a function of the parameters, not "
                f"{type(given).__name__}."
            )
    return NumpyDensity(fun_and_grad, hessian)


@dataclasses.dataclass(frozen=True)
class NumpyDensity:
    """Equal where its functions are, so that the same ones do not compile anew."""

    fun_and_grad: Callable
    hessian: Callable | None = None

    def __call__(self, w: PyTree, *extra: Any) -> Float[Array, ""]:
        leaves, treedef = jtu.tree_flatten(w)
        leaves = [jnp.asarray(leaf) for leaf in leaves]
        host = _Host(self, treedef, tuple(leaf.shape for leaf in leaves))
        return _value(host, jnp.concatenate([leaf.reshape(-1) for leaf in leaves]), extra)


# --- derivatives ------------------------------------------------------------------------------
#
# `host` is static; `extra`, what comes after the parameters, has no derivatives.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(host: "_Host", w: Array, extra: tuple) -> Array:
    return _value_and_gradient(host, w, extra)[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value_and_gradient(host: "_Host", w: Array, extra: tuple) -> tuple[Array, Array]:
    shapes = [jax.ShapeDtypeStruct(shape, w.dtype) for shape in ((), w.shape)]
    value, gradient = _on_host(host.value_and_gradient, shapes, w, extra)
    return value, gradient


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _product(host: "_Host", w: Array, v: Array, extra: tuple) -> Array:
    """The Hessian times `v`."""
    if host.density.hessian is not None:
        square = jax.ShapeDtypeStruct((w.size, w.size), w.dtype)
        return _on_host(host.hessian, [square], w, extra)[0] @ v
    return _on_host(host.difference, [jax.ShapeDtypeStruct(w.shape, w.dtype)], w, v, extra)[0]


@functools.partial(_value.defjvp, symbolic_zeros=True)
def _value_jvp(host: "_Host", primals: tuple, tangents: tuple) -> tuple:
    (w, extra), (dw, d_extra) = primals, tangents
    _refuse_if_moving(d_extra)
    value, gradient = _value_and_gradient(host, w, extra)
    return value, gradient @ _filled(dw, w)


@functools.partial(_value_and_gradient.defjvp, symbolic_zeros=True)
def _gradient_jvp(host: "_Host", primals: tuple, tangents: tuple) -> tuple:
    (w, extra), (dw, d_extra) = primals, tangents
    _refuse_if_moving(d_extra)
    value, gradient = _value_and_gradient(host, w, extra)
    dw = _filled(dw, w)
    return (value, gradient), (gradient @ dw, _product(host, w, dw, extra))


@functools.partial(_product.defjvp, symbolic_zeros=True)
def _product_jvp(host: "_Host", primals: tuple, tangents: tuple) -> tuple:
    (w, v, extra), (dw, dv, d_extra) = primals, tangents
    _refuse_if_moving((dw, d_extra))
    return _product(host, w, v, extra), _product(host, w, _filled(dv, v), extra)


def _filled(tangent: Any, like: Array) -> Array:
    return jnp.zeros_like(like) if isinstance(tangent, SymbolicZero) else tangent


def _refuse_if_moving(tangents: Any) -> None:
    if not all(map(_is_zero, jtu.tree_leaves(tangents, is_leaf=_is_zero))):
        raise InputError(
            "from_numpy: hyper= needs derivatives in the hyperparameters and third derivatives in "
            "the parameters, which a NumPy function does not have: leave hyper= out (pass fixed "
            "ones through data=), or write the log density with jax.numpy."
        )


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _on_host(function: Callable, shapes: list, *arguments: PyTree) -> tuple[Array, ...]:
    """`function` for one point; a batch of them comes in one call and is gone through here, ten
    times faster than one call for each."""
    operands, treedef = jtu.tree_flatten(arguments)
    operands = [jnp.asarray(leaf) for leaf in operands]
    kinds, n_axes = [leaf.dtype for leaf in operands], [leaf.ndim for leaf in operands]

    def batched(*words: Any) -> tuple[np.ndarray, ...]:
        leaves = [_from_words(word, kind) for word, kind in zip(words, kinds, strict=True)]
        leads = [a.shape[: a.ndim - n] for a, n in zip(leaves, n_axes, strict=True)]
        lead = np.broadcast_shapes(*leads)
        made = tuple(np.empty(lead + one.shape, one.dtype) for one in shapes)
        for index in np.ndindex(lead):
            each = [
                leaf[tuple(i if n > 1 else 0 for i, n in zip(index, its, strict=True))]
                for leaf, its in zip(leaves, leads, strict=True)
            ]
            returned = function(*jtu.tree_unflatten(treedef, each))
            for whole, part in zip(made, returned, strict=True):
                whole[index] = part
        return tuple(map(_host_words, made))

    answers = jax.pure_callback(
        batched,
        tuple(jax.eval_shape(_to_words, one) for one in shapes),
        *map(_to_words, operands),
        vmap_method="expand_dims",
    )
    return tuple(
        lax.bitcast_convert_type(words, one.dtype) if one.dtype.itemsize == 8 else words
        for words, one in zip(answers, shapes, strict=True)
    )


# Callbacks run in threads of the runtime, where JAX's flag is the user's: with float64 off, what
# goes in and out would be rounded to float32 on the way. Numbers of 64 bits travel as two words.


def _to_words(array: Array) -> Array:
    return lax.bitcast_convert_type(array, jnp.uint32) if array.dtype.itemsize == 8 else array


def _from_words(words: Any, dtype: np.dtype) -> np.ndarray:
    words = np.ascontiguousarray(words)
    return words.view(dtype)[..., 0] if dtype.itemsize == 8 else words


def _host_words(array: np.ndarray) -> np.ndarray:
    return array[..., None].view(np.uint32) if array.dtype.itemsize == 8 else array


# --- on the host ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Host:
    """Calls the user's functions and reads what they return, in float64."""

    density: NumpyDensity
    treedef: Any
    shapes: tuple[tuple[int, ...], ...]

    def _tree(self, flat: np.ndarray) -> PyTree:
        sizes = [math.prod(shape) for shape in self.shapes]
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        # Copies, so that a function that writes into its argument spoils nothing.
        leaves = [np.array(p.reshape(s)) for p, s in zip(parts, self.shapes, strict=True)]
        return jtu.tree_unflatten(self.treedef, leaves)

    def value_and_gradient(
        self, flat: np.ndarray, extra: tuple
    ) -> tuple[float | np.ndarray, np.ndarray]:
        nothing = (np.nan, np.full(flat.shape, np.nan))
        return self._called(self.density.fun_and_grad, self._read, flat, extra, nothing)

    def difference(self, flat: np.ndarray, v: np.ndarray, extra: tuple) -> tuple[np.ndarray]:
        """Central differences: no parameter moves by more than `STEP max(1, |w_i|)`."""
        flat, v = flat.astype(np.float64), v.astype(np.float64)
        furthest = np.abs(v / np.maximum(1.0, np.abs(flat))).max(initial=0.0)
        if furthest == 0 or not np.isfinite(furthest):
            return (0 * v,)
        h = STEP / furthest
        ahead, behind = (self.value_and_gradient(flat + s * h * v, extra)[1] for s in (1, -1))
        return ((ahead - behind) / (2 * h),)

    def hessian(self, flat: np.ndarray, extra: tuple) -> tuple[np.ndarray]:
        assert self.density.hessian is not None
        nothing = np.full((flat.size, flat.size), np.nan)
        return (self._called(self.density.hessian, self._read_matrix, flat, extra, nothing),)

    def _called(
        self, function: Callable, read: Callable, flat: np.ndarray, extra: tuple, nothing: Any
    ) -> Any:
        """Inside a fit an error waits for its end, with numbers that stop the searches."""
        flat, key = flat.astype(np.float64), self.density
        if any(scope.error is not None for scope in _concerned(key)):
            return nothing
        try:
            try:
                returned = function(self._tree(flat), *extra)
            except Exception as err:
                name = "hessian" if function is self.density.hessian else "fun_and_grad"
                raise InputError(
                    f"from_numpy: {name} raised {type(err).__name__} at w = {_shown(flat)}: {err}. "
                    "Return -inf where the density is zero."
                ) from err
            return read(returned, flat)
        except InputError as error:
            scopes = _concerned(key)
            if not scopes:
                raise
            for scope in scopes:
                scope.error = scope.error or error
            return nothing

    def _read(self, returned: Any, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise InputError(
                "from_numpy: fun_and_grad must return two things, the log density and its "
                f"gradient; it returned {type(returned).__name__} at w = {_shown(flat)}."
            )
        value = _real(returned[0], "the value", flat)
        if value.shape != ():
            raise InputError(
                f"from_numpy: the value has shape {value.shape} at w = {_shown(flat)}; it must be "
                "one number. Sum over observations."
            )
        try:
            leaves = self.treedef.flatten_up_to(returned[1])
        except (ValueError, TypeError) as err:
            raise InputError(
                f"from_numpy: the gradient does not have the form of the parameters: {err}"
            ) from err
        leaves = [_real(leaf, "the gradient", flat) for leaf in leaves]
        shapes = tuple(leaf.shape for leaf in leaves)
        if shapes != self.shapes:
            had, wanted = (s[0] if len(s) == 1 else s for s in (shapes, self.shapes))
            raise InputError(
                f"from_numpy: the gradient has shape {had} and the parameters {wanted}; they must "
                "be the same."
            )
        return value, np.concatenate([leaf.reshape(-1) for leaf in leaves])

    def _read_matrix(self, returned: Any, flat: np.ndarray) -> np.ndarray:
        matrix = _real(returned, "the Hessian", flat)
        if matrix.shape != (flat.size, flat.size):
            raise InputError(
                f"from_numpy: the Hessian has shape {matrix.shape}, expected "
                f"{(flat.size, flat.size)}: second derivatives in the order of post.names."
            )
        return matrix


def _real(given: Any, what: str, flat: np.ndarray) -> np.ndarray:
    array = None if given is None else np.asarray(given)
    if array is None or array.dtype.kind not in "fiu":
        kind = type(given).__name__ if array is None or array.ndim == 0 else array.dtype
        raise InputError(
            f"from_numpy: {what} is {kind} at w = {_shown(flat)}; it must be real numbers."
        )
    return array.astype(np.float64)


def _shown(flat: np.ndarray) -> str:
    return "[" + listed([f"{value:.6g}" for value in flat], 8) + "]"


# --- errors of the user's function ------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class _Scope:
    """A fit that is going on, and the first error of its function."""

    density: NumpyDensity | None
    error: InputError | None = None


_scopes: list[_Scope] = []


def _concerned(density: NumpyDensity) -> list[_Scope]:
    """The fits whose function this is, or may be inside another one."""
    return [scope for scope in tuple(_scopes) if scope.density in (None, density)]


@contextlib.contextmanager
def relayed(log_density: Any) -> Iterator[None]:
    """Errors that a NumPy function raises in compiled code are raised at the end. (Raised there,
    they would come back as an error of the runtime, with pages of trace on the terminal.)"""
    scope = _Scope(log_density if isinstance(log_density, NumpyDensity) else None)
    _scopes.append(scope)
    try:
        yield
    finally:
        _scopes.remove(scope)
        if scope.error is not None:
            raise scope.error
