"""Scrambled Sobol points in up to 50 dimensions, and the normal quantile.

SciPy has both, but `scipy.stats` takes longer to import than a small fit takes to run.

A dimension has a primitive polynomial over the integers modulo 2 and free odd numbers to begin
with (Sobol 1967); the recurrence of Bratley and Fox (1988) makes the direction numbers. They are
scrambled by a random lower triangular matrix and a random digital shift (Matousek 1998).
"""

import functools
import math

import numpy as np

BITS = 30
MOST_DIMS = 50
# The free numbers of all dimensions come from this seed: of 150 tried, the one whose pairs of
# dimensions fill the boxes of equal area most evenly (256 points, the first 24 dimensions).
FREE_NUMBERS = 35
# Of the normal quantile: numerators and denominators, the highest power first.
CENTRE = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
MIDDLE = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
TAIL = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)


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
    """By rational functions, three regions of them (Wichura 1988, algorithm AS 241)."""
    q = u - 0.5
    found = q * _ratio(CENTRE, 0.180625 - q * q)
    outer = np.abs(q) > 0.425
    r = np.sqrt(-np.log(np.minimum(u[outer], 1 - u[outer])))
    tail = np.where(r <= 5, _ratio(MIDDLE, r - 1.6), _ratio(TAIL, r - 5))
    found[outer] = np.copysign(tail, q[outer])
    return found


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: np.ndarray) -> np.ndarray:
    above, below = (np.full_like(x, one[0]) for one in coefficients)
    for made, powers in zip((above, below), coefficients, strict=True):
        for coefficient in powers[1:]:
            made *= x
            made += coefficient
    above /= below
    return above


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
    parity = np.bitwise_count(rows.T[:, :, None] & directions).astype(np.int64) & 1
    return (parity * place[:, None, None]).sum(0)
