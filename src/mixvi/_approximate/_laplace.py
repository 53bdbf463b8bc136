"""The mode, the exact curvature there, its root, and the evidence.

w* = argmax log p~(w),   P = -H(w*),   Sigma_LA = P^-1 = R R^T
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from .._arrays._triangular import inverse_of_lower
from .._density._protocol import Density
from .._density._structure import Structure, listed
from .._errors import Code
from ._newton import Place, newton
from ._newton_cg import newton_cg

POLICIES = ("raise", "absolute", "damp")

Vector = Float[np.ndarray, " dim"]
Square = Float[np.ndarray, "dim dim"]


@dataclasses.dataclass(frozen=True)
class Laplace:
    """`code` says what went wrong; the root is one of NaNs where there is none. `n_damped`: steps
    of Newton's method that were not its own. `path`: places that the search came by."""

    mode: Vector
    log_density: float
    gradient: Vector
    precision: Square
    root: Square
    log_det_root: float
    n_repaired: int
    n_steps: int
    n_damped: int
    code: Code
    path: tuple[Place, ...]

    @property
    def found(self) -> bool:
        return self.code is Code.OK

    @property
    def log_evidence(self) -> float:
        """`log p~(w*) + (D/2) log 2 pi + log|det R|`."""
        return self.log_density + 0.5 * self.mode.size * math.log(2 * math.pi) + self.log_det_root


@dataclasses.dataclass(frozen=True)
class CurvatureReport:
    """What the Hessian at the mode looked like, before any repair.

    `min_eig`: smallest eigenvalue of the negative Hessian. `condition`: its condition number
    after scaling to unit diagonal (free of the parameters' units). `gradient_norm`: at the mode,
    in posterior standard deviations. `n_repaired`: eigenvalues that a repair policy changed.
    """

    min_eig: float
    condition: float
    gradient_norm: float
    n_repaired: int


def laplace(
    density: Density,
    start: Vector,
    on_indefinite: str = "raise",
    max_steps: int = 300,
    mode_tol: float | None = None,
) -> Laplace:
    tol = max(density.mode_tol if mode_tol is None else mode_tol, 100 * density.resolution)
    near, n_before = start, 0
    if start.size > density.dense_newton:
        near, n_before = newton_cg(density, start, tol, max_steps)
    search = newton(density, density.approached(near), tol, max_steps)
    place, code = search.place, search.code
    root, log_det, n_repaired = covariance_root(place.precision, on_indefinite, density.resolution)
    if code is Code.OK and not math.isfinite(log_det):
        code = Code.INDEFINITE
    return Laplace(
        mode=place.point,
        log_density=place.value,
        gradient=place.gradient,
        precision=place.precision,
        root=root,
        log_det_root=log_det,
        n_repaired=n_repaired,
        n_steps=n_before + search.n_steps,
        n_damped=search.n_damped,
        code=code,
        path=search.path,
    )


# --- roots ------------------------------------------------------------------------------------


def covariance_root(
    precision: Square, on_indefinite: str, rounding: float = float(np.finfo(np.float64).eps)
) -> tuple[Square, float, int]:
    """A root of `P^-1`, the log of its determinant, and the number of eigenvalues repaired; not
    numbers where there is none.

    With `s = sqrt|diag P|` and `P = s P^ s`, definiteness is judged on `P^ = L L^T`, which does
    not know the parameters' units, and the root is `s^-1 L^-T`.
    """
    scaled, scales = unit_diagonal(precision)
    inverse_factor, n_repaired = _inverse_factor(scaled, rounding), 0
    if inverse_factor is None and on_indefinite != "raise" and np.isfinite(precision).all():
        mended, n_repaired = _repaired(scaled, on_indefinite)
        inverse_factor = _inverse_factor(mended, 0.0)
    if inverse_factor is None:
        return np.full_like(precision, np.nan), math.nan, n_repaired
    log_det = float(np.log(np.diagonal(inverse_factor)).sum() - np.log(scales).sum())
    return inverse_factor.T / scales[:, None], log_det, n_repaired


def _inverse_factor(scaled: Square, rounding: float) -> Square | None:
    """`L^-1` of `P^ = L L^T`, where `P^` is definite beyond rounding."""
    if not np.isfinite(scaled).all():
        return None
    try:
        inverse = inverse_of_lower(np.linalg.cholesky(scaled))
    except np.linalg.LinAlgError:
        return None
    # 1 / tr(P^^-1) lies between lambda_min / D and lambda_min, and lambda_max is at most D.
    smallest = 1 / (inverse**2).sum()
    return inverse if smallest > len(scaled) * rounding else None


def _repaired(scaled: Square, policy: str) -> tuple[Square, int]:
    """`absolute`: |eigenvalue|, and no smaller than 1e-6 of the largest. `damp`: all eigenvalues
    raised by one number, until the smallest is 1e-3 of the largest."""
    values, vectors = np.linalg.eigh(scaled)
    largest = np.abs(values).max()
    if policy == "absolute":
        mended = np.maximum(np.abs(values), 1e-6 * largest)
        n_repaired = int((mended != values).sum())
    else:
        mended = values + max(1e-3 * largest - values[0], 0.0)
        n_repaired = values.size
    return (vectors * mended) @ vectors.T, n_repaired


def eigen_root(root: Square) -> Square:
    """The same Gaussian's root `R = Q diag(r)`, which families adapt.

    Any rotation `R0 W` of an exact root is one too, and with `W` the eigenvectors of `R0^T R0` its
    columns are those of `Q diag(r)`, the widest last. The eigenvalues of `P` itself would lose the
    small ones to rounding.
    """
    # Eigenvectors of equal eigenvalues, and the signs of all of them, are accidents of rounding,
    # and others meet other draws: the coordinates are perturbed by sqrt(eps) of numbers that no
    # model has, which fixes the order of equal eigenvalues, and the sign of every column.
    odd = np.cos(np.arange(len(root), dtype=np.float64) ** 2 + 1)
    uneven = 1 + math.sqrt(np.finfo(np.float64).eps) * odd
    _, rotation = np.linalg.eigh(root.T @ (root * uneven[:, None]))
    columns = root @ rotation
    scale = np.sqrt((columns**2).sum(1))
    return columns * np.where((odd / scale) @ columns < 0, -1.0, 1.0)


def unit_diagonal(precision: Square) -> tuple[Square, Vector]:
    diagonal = np.abs(np.diagonal(precision))
    scales = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    return precision / scales / scales[:, None], scales


# --- in words ---------------------------------------------------------------------------------


def curvature_report(
    precision: np.ndarray, gradient: np.ndarray, n_repaired: int
) -> CurvatureReport:
    if not np.isfinite(precision).all():
        return CurvatureReport(math.nan, math.nan, math.nan, n_repaired)
    values, vectors = np.linalg.eigh(precision)
    scaled = np.linalg.eigvalsh(unit_diagonal(precision)[0])
    condition = scaled[-1] / scaled[0] if scaled[0] > 0 else math.inf
    # A flat direction has no standard deviation to measure a gradient in.
    curved = np.abs(values) > len(values) * np.finfo(float).eps * np.abs(values).max()
    in_sds = (vectors.T @ gradient)[curved] / np.sqrt(np.abs(values[curved]))
    return CurvatureReport(
        min_eig=float(values[0]),
        condition=float(condition),
        gradient_norm=float(np.linalg.norm(in_sds)),
        n_repaired=n_repaired,
    )


def explain_sign(hessian: np.ndarray) -> str:
    """Asks for the sign where the log density curves upwards in every direction at the start, as
    minus a log density does; nothing otherwise."""
    scaled, _ = unit_diagonal(hessian)
    if _inverse_factor(scaled, float(np.finfo(np.float64).eps)) is None:
        return ""
    return (
        " At the start it curves upwards in every direction: did you pass a potential energy? "
        "mixvi wants the log density, its negative."
    )


def explain_indefinite(structure: Structure, precision: np.ndarray) -> str:
    """Names the eigenvalue and the parameters that carry its direction."""
    if not np.isfinite(precision).all():
        rows = np.flatnonzero(~np.isfinite(precision).all(1))
        return (
            "the Hessian at the mode is not finite, in "
            f"{listed([structure.names[i] for i in rows])}: look there for a kink, or for "
            "sqrt, log or a division at zero."
        )
    scaled, scales = unit_diagonal(precision)
    values, vectors = np.linalg.eigh(scaled)
    direction = vectors[:, 0] / scales
    weight = np.abs(vectors[:, 0])
    carriers = [i for i in np.argsort(-weight)[:5] if weight[i] > 0.1 * weight.max()]
    shown = ", ".join(f"{structure.names[i]} ({direction[i]:+.3g})" for i in carriers)
    flat = abs(values[0]) <= 1e-8 * values[-1]
    nature = (
        "does not change along a direction (nothing in the density fixes it)"
        if flat
        else "curves upwards along a direction"
    )
    return (
        f"the log density {nature} at the point where its gradient vanishes: the negative Hessian, "
        f"scaled to unit diagonal, has smallest eigenvalue {values[0]:.3g} (largest "
        f"{values[-1]:.3g}), carried by {shown}. Give these parameters a proper prior or drop one "
        'of them, or choose a repair: on_indefinite="absolute" or "damp".'
    )


def explain_no_mode(
    structure: Structure,
    start: np.ndarray,
    mode: np.ndarray,
    gradient: np.ndarray,
    stuck: bool,
    n_steps: int,
    log_densities: tuple[float, float],
) -> str:
    """Which parameter went where, and what the log density did meanwhile."""
    moved = np.abs(mode - start) / (1 + np.abs(start))
    worst = int(np.argmax(np.where(np.isfinite(moved), moved, np.inf)))
    slope, (before, after) = float(np.abs(gradient).max()), log_densities
    how = "got stuck" if stuck else "was still going"
    facts = (
        f"the search for a mode {how} after {n_steps} steps: {structure.names[worst]} went "
        f"from {start[worst]:.4g} to {mode[worst]:.4g} while the log density went from "
        f"{before:.6g} to {after:.6g} (largest gradient now {slope:.3g}). "
    )
    if moved[worst] > 20:
        return facts + (
            "The density keeps rising in that direction, so it has no mode: give that parameter a "
            "proper prior; in a hierarchical model with few rows a group write the group effects "
            "non-centred (effect = mean + scale * standard_normal)."
        )
    return facts + (
        "Try another start, rescale the parameters, or look for kinks and discontinuities in the "
        "log density."
    )
