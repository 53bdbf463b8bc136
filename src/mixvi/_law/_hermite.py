"""A smooth function through values and slopes at scattered points.

    s(x) = sum_i a_i phi(|x - x_i|) - sum_i b_i . grad phi(|x - x_i|) + p(x),    phi(r) = r^5

with `p` a polynomial of degree two, to which `a` and `b` are orthogonal: quadratics come back
exactly. Of all functions through these data it bends least (the natural spline of more than one
dimension).
"""

import numpy as np
from jaxtyping import Float

# Rows of a table of distances at a time.
BLOCK = 4000

Points = Float[np.ndarray, "n k"]


class Hermite:
    """`values` and `slopes` at `points`, no two of which coincide."""

    def __init__(self, points: Points, values: Float[np.ndarray, " n"], slopes: Points):
        n, k = points.shape
        self.points = points
        apart = points[:, None] - points
        r = np.sqrt((apart**2).sum(-1))
        kernel = np.empty((1 + k, n, 1 + k, n))
        kernel[0, :, 0] = r**5
        first, second = 5 * r**3, 15 * r  # of phi: phi'/r and (phi'/r)'/r
        for j in range(k):
            kernel[0, :, 1 + j] = -first * apart[..., j]
            kernel[1 + j, :, 0] = first * apart[..., j]
            for i in range(k):
                mixed = second * apart[..., j] * apart[..., i]
                kernel[1 + j, :, 1 + i] = -mixed - (first if i == j else 0.0)
        whole = kernel.reshape((1 + k) * n, -1)
        smooth = np.concatenate([_monomials(points), *_slopes_of_monomials(points)])
        m = smooth.shape[1]
        system = np.block([[whole, smooth], [smooth.T, np.zeros((m, m))]])
        data = np.concatenate([values, slopes.T.ravel(), np.zeros(m)])
        found = np.linalg.solve(system, data)
        self.weights, self.of_smooth = found[:-m].reshape(1 + k, n), found[-m:]

    def __call__(self, x: Float[np.ndarray, "m k"]) -> Float[np.ndarray, " m"]:
        return np.concatenate(
            [self._of(x[begin : begin + BLOCK]) for begin in range(0, len(x), BLOCK)]
        )

    def _of(self, x: Float[np.ndarray, "m k"]) -> Float[np.ndarray, " m"]:
        square = ((x**2).sum(1)[:, None] + (self.points**2).sum(1)) - 2 * x @ self.points.T
        square = np.maximum(square, 0.0)
        r = np.sqrt(square)
        # (x - x_i) . b_i, without a table of three dimensions
        turned = x @ self.weights[1:] - (self.points.T * self.weights[1:]).sum(0)
        made = (square * r) * (square * self.weights[0] - 5 * turned)
        return made.sum(1) + _monomials(x) @ self.of_smooth


def _monomials(x: Points) -> Float[np.ndarray, "n monomials"]:
    first, second = np.triu_indices(x.shape[1])
    return np.concatenate([np.ones((len(x), 1)), x, x[:, first] * x[:, second]], axis=1)


def _slopes_of_monomials(x: Points) -> list[Float[np.ndarray, "n monomials"]]:
    n, k = x.shape
    first, second = np.triu_indices(k)
    made = []
    for j in range(k):
        own = np.zeros((n, 1 + k + len(first)))
        own[:, 1 + j] = 1.0
        own[:, 1 + k :] = (first == j) * x[:, second] + (second == j) * x[:, first]
        made.append(own)
    return made
