"""The mode, the exact curvature there, its root, and the evidence.

    w* = argmax log p~(w),   P = -H(w*),   Sigma_LA = P^-1 = R R^T,   R = Q diag(r_LA)

Everything here compiles and batches; what went wrong is a code, and `explain_*` turns it into a
sentence on the host.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._density._memory import bytes_of, each
from .._errors import Code
from .._target import Target
from ._optimise import newton, newton_cg

# Above this dimension the way to the mode is found without Hessians.
DENSE_NEWTON = 300
MODE_TOL = 1e-7


class Root(eqx.Module):
    """A matrix `R` with `R R^T` the covariance; a vector stands for a diagonal matrix.

    Where `R` is diagonal, `whitener` is the dense root in whose coordinates the mean is free: the
    mean of a Gaussian without correlations still moves in a posterior that has them.
    """

    matrix: Float[Array, "dim dim"] | Float[Array, " dim"]
    log_det: Float[Array, ""]
    whitener: Float[Array, "dim dim"] | None = None

    def apply(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return self.matrix * v if self.matrix.ndim == 1 else self.matrix @ v

    def shift(self, m: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """How far from the mode a mean at `m` is."""
        return self.apply(m) if self.whitener is None else self.whitener @ m

    def unshift(self, away: Float[Array, " dim"]) -> Float[Array, " dim"]:
        matrix = self.matrix if self.whitener is None else self.whitener
        return jnp.linalg.solve(matrix, away)


class Laplace(eqx.Module):
    mode: Float[Array, " dim"]
    log_density: Float[Array, ""]
    gradient: Float[Array, " dim"]
    precision: Float[Array, "dim dim"]
    root: Root
    n_repaired: Int[Array, ""]
    n_steps: Int[Array, ""]
    n_damped: Int[Array, ""]
    code: Int[Array, ""]

    @property
    def log_evidence(self) -> Float[Array, ""]:
        """`log p~(w*) + (D/2) log 2 pi + log|det R|`."""
        return self.log_density + 0.5 * self.mode.size * math.log(2 * math.pi) + self.root.log_det

    def numbers(self) -> Float[Array, " 6"]:
        """The scalars in one array: fetched at once, they cost one trip to the device."""
        counts = (self.n_repaired, self.n_steps, self.n_damped, self.code)
        parts = (self.log_density, self.log_evidence, *counts)
        return jnp.stack([jnp.asarray(part, self.mode.dtype) for part in parts])


class LaplaceNumbers(NamedTuple):
    """`Laplace.numbers()` on the host."""

    log_density: float
    log_evidence: float
    n_repaired: int
    n_steps: int
    n_damped: int  # steps of Newton's method that were not its own
    code: Code

    @classmethod
    def fetched(cls, numbers: Float[Any, " 6"]) -> "LaplaceNumbers":
        log_density, log_evidence, *counts = np.asarray(numbers).tolist()
        n_repaired, n_steps, n_damped, code = map(int, counts)
        return cls(log_density, log_evidence, n_repaired, n_steps, n_damped, Code(code))


# --- compiled ---------------------------------------------------------------------------------


def laplace(
    target: Target,
    start: Float[Array, " dim"],
    on_indefinite: str = "raise",
    max_steps: int = 300,
    memory: int = 2**30,
    patient: bool = True,
) -> Laplace:
    """`patient=False` leaves out the costly ways around saddles (see `newton`)."""

    def value_and_grad(w: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(lambda u: -target(u))(w)

    def product(w: Array, v: Array) -> Array:
        return jax.jvp(lambda u: value_and_grad(u)[1], (w,), (v,))[1]

    def second_order(w: Array) -> tuple[Array, Array, Array]:
        return *value_and_grad(w), dense_hessian(product, w, memory)

    tol = max(MODE_TOL, 100 * float(jnp.finfo(start.dtype).eps))
    near, n_before = start, jnp.array(0)
    if start.size > DENSE_NEWTON:
        near, n_before = newton_cg(value_and_grad, product, start, tol, max_steps)
    found = newton(second_order, near, tol, max_steps, patient)
    here = found.here
    root, n_repaired, definite = covariance_root(here.hessian, on_indefinite)
    code = jnp.where((found.code == int(Code.OK)) & ~definite, int(Code.INDEFINITE), found.code)
    return Laplace(
        mode=here.point,
        log_density=-here.value,
        gradient=-here.gradient,
        precision=here.hessian,
        root=root,
        n_repaired=n_repaired,
        n_steps=n_before + found.n_steps,
        n_damped=found.n_damped,
        code=code,
    )


def dense_hessian(product, w: Float[Array, " dim"], memory: int) -> Float[Array, "dim dim"]:
    """Hessian-vector products with the unit vectors, as many at a time as the budget allows."""
    eye = jnp.eye(w.size, dtype=w.dtype)
    hessian = each(lambda v: product(w, v), eye, memory // bytes_of(product, w, w))
    return 0.5 * (hessian + hessian.T)


def covariance_root(
    precision: Float[Array, "dim dim"], on_indefinite: str
) -> tuple[Root, Int[Array, ""], Bool[Array, ""]]:
    """A root of `P^-1`, the number of eigenvalues repaired, and whether a root was found at all.

    With `s = sqrt|diag P|` and `P = s P^ s`, definiteness is judged on `P^ = L L^T`, which does
    not know the parameters' units, and the root is `s^-1 L^-T`.
    """
    eye = jnp.eye(precision.shape[0], dtype=precision.dtype)
    diagonal = jnp.abs(jnp.diagonal(precision))
    scales = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
    scaled = precision / scales / scales[:, None]
    inverse_factor, definite = _inverse_factor(scaled)
    n_repaired = jnp.array(0)
    if on_indefinite != "raise":
        inverse_factor, n_repaired = lax.cond(
            definite,
            lambda: (inverse_factor, n_repaired),
            lambda: _repaired_inverse_factor(scaled, on_indefinite),
        )
        definite = jnp.isfinite(inverse_factor).all()
    inverse_factor = jnp.where(definite, inverse_factor, eye)
    log_det = jnp.log(jnp.diagonal(inverse_factor)).sum() - jnp.log(scales).sum()
    matrix = jnp.where(definite, inverse_factor.T / scales[:, None], jnp.nan)
    return Root(matrix, jnp.where(definite, log_det, jnp.nan)), n_repaired, definite


def eigen_root(root: Root) -> Root:
    """The same Gaussian's root `R = Q diag(r)`, which families adapt.

    Any rotation `R0 W` of an exact root is one too, and with `W` the eigenvectors of `R0^T R0` its
    columns are those of `Q diag(r)`, the widest last. The eigenvalues of `P` itself would lose the
    small ones to rounding.
    """
    # Eigenvectors of equal eigenvalues, and the signs of all of them, are accidents of rounding,
    # and others meet other draws. Numbers that no model has set a breath of difference between
    # the coordinates, and the side to which all vectors point.
    odd = jnp.cos(jnp.arange(root.matrix.shape[0], dtype=root.matrix.dtype) ** 2 + 1)
    uneven = 1 + jnp.sqrt(jnp.finfo(root.matrix.dtype).eps) * odd
    _, rotation = jnp.linalg.eigh(root.matrix.T @ (root.matrix * uneven[:, None]))
    columns = root.matrix @ rotation
    scale = jnp.sqrt((columns**2).sum(1))
    return Root(columns * jnp.where((odd / scale) @ columns < 0, -1.0, 1.0), root.log_det)


def _inverse_factor(scaled: Array) -> tuple[Array, Bool[Array, ""]]:
    """`L^-1` of `P^ = L L^T`, and whether `P^` is definite beyond rounding."""
    dim = scaled.shape[0]
    factor = jnp.linalg.cholesky(scaled)
    inverse = jsl.solve_triangular(factor, jnp.eye(dim, dtype=scaled.dtype), lower=True)
    # 1 / tr(P^^-1) lies between lambda_min / D and lambda_min, and lambda_max is at most D.
    smallest = 1 / (inverse**2).sum()
    return inverse, smallest > dim * jnp.finfo(scaled.dtype).eps  # false for not-a-number


def _repaired_inverse_factor(scaled: Array, policy: str) -> tuple[Array, Array]:
    """`absolute`: |eigenvalue|, and no smaller than 1e-6 of the largest. `damp`: all eigenvalues
    raised by one number, until the smallest is 1e-3 of the largest."""
    values, vectors = jnp.linalg.eigh(scaled)
    largest = jnp.abs(values).max()
    if policy == "absolute":
        mended = jnp.maximum(jnp.abs(values), 1e-6 * largest)
        n_repaired = (mended != values).sum()
    else:
        mended = values + jnp.maximum(1e-3 * largest - values[0], 0.0)
        n_repaired = jnp.array(values.size)
    return _inverse_factor((vectors * mended) @ vectors.T)[0], n_repaired
