"""Points and masses that stand for a normal in k dimensions: a central composite design.

The centre, 2k stars on the axes and corners `(+-f0, ..., +-f0)`, all but the centre on the sphere
of radius `f0 sqrt(k)`. With masses `1/f0^2` shared by the sphere and `1 - 1/f0^2` at the centre,
`1`, `z` and `z z^T` have their exact normal means. Of the corners a fraction is taken in which no
product of four or fewer coordinates is constant (resolution V), so that products of pairs are not
confounded either.
"""

import itertools

import numpy as np
from jaxtyping import Float

# The sphere's radius over sqrt(k): a little further out than a normal's own.
F0 = 1.1


def central_composite(
    k: int, f0: float = F0
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
    """The points, the centre first, and their masses, which sum to one."""
    stars = f0 * np.sqrt(k) * np.concatenate([np.eye(k), -np.eye(k)])
    sphere = np.concatenate([stars, f0 * corners(k)])
    points = np.concatenate([np.zeros((1, k)), sphere])
    masses = np.full(len(points), 1 / (f0**2 * len(sphere)))
    masses[0] = 1 - 1 / f0**2
    return points, masses


def corners(k: int) -> Float[np.ndarray, "n k"]:
    """Signs of a fraction of the corners of a cube. Column j is `(-1)^(bits shared by the row's
    number and c_j)`; the numbers `c_j` are the smallest of which no four or fewer cancel (XOR)."""
    chosen: list[int] = []
    sums = {0}  # of two or fewer of them
    number = 0
    while len(chosen) < k:
        number += 1
        # Cancelled by three others if it is the sum of three: of one and a sum of two.
        if not any(number ^ one in sums for one in [0, *chosen]):
            chosen.append(number)
            pairs = itertools.combinations(chosen, 2)
            sums = {0, *chosen, *(one ^ other for one, other in pairs)}
    rows = np.arange(2 ** chosen[-1].bit_length())
    shared = rows[:, None] & np.array(chosen)
    parity = np.zeros_like(shared)
    while shared.any():
        parity ^= shared & 1
        shared = shared >> 1
    return 1.0 - 2.0 * parity
