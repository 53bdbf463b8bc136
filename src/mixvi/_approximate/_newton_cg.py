"""The way to a mode without Hessians: trust-region Newton by conjugate gradients (Steihaug 1983).

For dimensions in which a dense Hessian at every step would dominate. It brings the search near the
mode; `newton` finishes it. Signs are those of a minimiser: `loss = -log p~`.
"""

import math

import numpy as np
from jaxtyping import Float

from .._density._protocol import Density
from .._watch import tell_newton

Vector = Float[np.ndarray, " dim"]
MOST_REFUSALS = 20


def newton_cg(
    density: Density, start: Vector, tol: float, max_steps: int = 300
) -> tuple[Vector, int]:
    """The best point found and the number of steps; stops when the decrement of an interior step
    is below `tol`."""
    point, (loss, gradient) = start, _loss_and_gradient(density, start)
    radius, refused = 1.0 + float(np.linalg.norm(start)), 0
    for n_steps in range(max_steps):
        if not math.isfinite(loss) or refused >= MOST_REFUSALS or not gradient.any():
            return point, n_steps
        step, product, on_boundary = _steihaug(density, point, gradient, radius)
        predicted = -float(gradient @ step) - 0.5 * float(product @ step)
        there, (new_loss, new_gradient) = point + step, _loss_and_gradient(density, point + step)
        tell_newton()
        noise = 8 * density.resolution * abs(loss)
        finite = math.isfinite(new_loss) and bool(np.isfinite(new_gradient).all())
        ratio = (loss - new_loss + noise) / (predicted + noise) if finite else -math.inf
        decrement = math.inf if on_boundary else math.sqrt(max(-float(gradient @ step), 0.0))
        if ratio < 0.25:
            radius = 0.25 * float(np.linalg.norm(step))
        elif ratio > 0.75 and on_boundary:
            radius *= 2
        refused += 1
        if ratio > 1e-4:
            point, loss, gradient, refused = there, new_loss, new_gradient, 0
        if decrement <= tol:
            return point, n_steps + 1
    return point, max_steps


def _loss_and_gradient(density: Density, point: Vector) -> tuple[float, Vector]:
    value, gradient, _ = density.product(point, np.zeros_like(point))
    return -value, -gradient


def _steihaug(
    density: Density, point: Vector, gradient: Vector, radius: float
) -> tuple[Vector, Vector, bool]:
    """Minimises `g^T p + p^T H p / 2` over `|p| <= radius`, the more precisely the smaller |g|:
    `p`, `H p`, and whether `p` lies on the boundary."""
    size = float(np.linalg.norm(gradient))
    enough = min(0.1, math.sqrt(size)) * size
    step, product = np.zeros_like(gradient), np.zeros_like(gradient)
    residual, direction = gradient, -gradient
    for _ in range(10 * gradient.size):
        along = -density.product(point, direction)[2]
        curvature, square = float(direction @ along), float(residual @ residual)
        alpha = square / curvature if curvature > 0 else math.inf
        trial = step + alpha * direction if math.isfinite(alpha) else step
        if not math.isfinite(alpha) or float(trial @ trial) >= radius**2:
            to_edge = _to_boundary(step, direction, radius)
            return step + to_edge * direction, product + to_edge * along, True
        step, product = trial, product + alpha * along
        residual = residual + alpha * along
        if float(np.linalg.norm(residual)) <= enough:
            break
        direction = -residual + float(residual @ residual) / square * direction
    return step, product, False


def _to_boundary(step: Vector, direction: Vector, radius: float) -> float:
    """The positive root of `|step + t direction| = radius`."""
    a, b, c = direction @ direction, step @ direction, step @ step - radius**2
    return float((-b + math.sqrt(max(b**2 - a * c, 0.0))) / (a if a > 0 else 1.0))
