"""Scrambled Sobol points in up to 50 dimensions, and the normal quantile.

SciPy has both, but `scipy.stats` takes longer to import than a small fit takes to run.

A dimension has a primitive polynomial over the integers modulo 2 and free odd numbers to begin
with (Sobol 1967); the recurrence of Bratley and Fox (1988) makes the direction numbers. They are
scrambled by a random lower triangular matrix and a random digital shift (Matousek 1998).
"""

import functools
import math
from statistics import NormalDist

import numpy as np

BITS = 30
MOST_DIMS = 50
# The free numbers of all dimensions come from this seed: of 150 tried, the one whose pairs of
# dimensions fill the boxes of equal area most evenly (256 points, the first 24 dimensions).
FREE_NUMBERS = 35


def sobol(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    """The first `n` points (n, dim) in the open unit cube."""
    scrambled = _scrambled(rng, _directions()[:dim])
    shift = rng.integers(0, 2**BITS, dim, dtype=np.int64)
    bits = (np.arange(n)[:, None] >> np.arange(max(1, math.ceil(math.log2(max(n, 2)))))) & 1
    points = np.broadcast_to(shift, (n, dim)).copy()
    for k in range(bits.shape[1]):
        points ^= bits[:, k : k + 1] * scrambled[:, k]
    return (points + 0.5) / 2**BITS


def sobol_normal(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    return normal_quantile(sobol(rng, n, dim))


def normal_quantile(u: np.ndarray) -> np.ndarray:
    quantile = NormalDist().inv_cdf
    return np.fromiter(map(quantile, u.ravel().tolist()), float, u.size).reshape(u.shape)


@functools.cache
def _directions() -> np.ndarray:
    """Direction numbers (MOST_DIMS, BITS) as integers of `BITS` bits."""
    rng = np.random.default_rng(FREE_NUMBERS)
    rows = [[1 << (BITS - 1 - k) for k in range(BITS)]]
    for polynomial in _primitive_polynomials():
        degree = polynomial.bit_length() - 1
        m = [2 * int(rng.integers(2**k)) + 1 for k in range(degree)]
        v = [m[k] << (BITS - 1 - k) for k in range(degree)]
        for k in range(degree, BITS):
            new = v[k - degree] ^ (v[k - degree] >> degree)
            for j in range(1, degree):
                if polynomial >> (degree - j) & 1:
                    new ^= v[k - j]
            v.append(new)
        rows.append(v)
    return np.array(rows[:MOST_DIMS], dtype=np.int64)


def _primitive_polynomials() -> list[int]:
    """Those over GF(2) of degree 1 to 8, by degree: 52 of them. Bit k is the coefficient of x^k."""
    return [
        polynomial
        for degree in range(1, 9)
        for polynomial in range(2**degree + 1, 2 ** (degree + 1), 2)
        if _order_of_x(polynomial, degree) == 2**degree - 1
    ]


def _order_of_x(polynomial: int, degree: int) -> int:
    """The least k with `x^k = 1` modulo the polynomial."""
    power, k = 1, 0
    while True:
        power, k = power << 1, k + 1
        if power >> degree & 1:
            power ^= polynomial
        if power == 1 or k > 2**degree:
            return k


def _scrambled(rng: np.random.Generator, directions: np.ndarray) -> np.ndarray:
    """Every direction number times a random lower triangular matrix with unit diagonal: digit i of
    the product is the parity of `row_i AND number`, the first digit being the highest bit."""
    dim = len(directions)
    place = 1 << (BITS - 1 - np.arange(BITS))
    rows = rng.integers(0, 2**BITS, (dim, BITS), dtype=np.int64)
    # Digits before the i-th are free, the i-th is one, later ones are zero.
    rows = (rows & ~(2 * place - 1)) | place
    scrambled = np.zeros_like(directions)
    for i in range(BITS):
        parity = np.bitwise_count(rows[:, i : i + 1] & directions).astype(np.int64) & 1
        scrambled |= parity << (BITS - 1 - i)
    return scrambled
