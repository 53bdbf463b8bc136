"""A wrong gradient is named, a right one never."""

import numpy as np
import pytest

import mixvi
from mixvi._density._differences import check_gradient

RNG = np.random.default_rng(0)


class Given(mixvi.Density):
    def __init__(self, value, gradient, dim):
        self.value, self.gradient, self.dim = value, gradient, dim
        self.n_values = 0

    def gradients(self, points):
        self.n_values += len(points)
        values = np.array([self.value(point) for point in points], float)
        return values, np.array([self.gradient(point) for point in points], float)


def checked(value, gradient, start):
    start = np.asarray(start, float)
    names = tuple(f"w[{i}]" for i in range(start.size))
    density = Given(value, gradient, start.size)
    check_gradient(density, start, names, "from_numpy")
    return density


def logistic(dim, n=50):
    x = RNG.standard_normal((n, dim))
    y = RNG.random(n) < 0.5

    def value(w):
        eta = x @ w
        return (y * eta - np.logaddexp(0, eta)).sum() - 0.5 * w @ w

    def gradient(w):
        return x.T @ (y - 1 / (1 + np.exp(-x @ w))) - w

    return value, gradient


@pytest.mark.parametrize("dim", [1, 3, 20, 21, 300])
def test_one_wrong_entry_is_named(dim):
    value, gradient = logistic(dim)
    right = checked(value, gradient, np.zeros(dim))
    assert right.n_values <= max(2 * min(dim, 20) + 1, 11)
    for place in {0, dim // 2, dim - 1}:

        def wrong(w, place=place):
            made = gradient(w)
            made[place] *= -1
            made[place] += 3
            return made

        with pytest.raises(mixvi.InputError, match=rf"In w\[{place}\] it is"):
            checked(value, wrong, np.zeros(dim))


def test_sign_and_factors():
    value, gradient = logistic(3)
    with pytest.raises(mixvi.InputError, match="the opposite"):
        checked(value, lambda w: -gradient(w), np.zeros(3))
    with pytest.raises(mixvi.InputError, match="not that of the log density"):
        checked(value, lambda w: 1.05 * gradient(w), np.zeros(3))
    # At the start both are zero.
    with pytest.raises(mixvi.InputError, match="not that of the log density"):
        checked(lambda w: -0.5 * w @ w, lambda w: -2 * w, np.zeros(2))


def single(function):
    def rounded(w):
        return function(w.astype(np.float32)).astype(np.float32)

    return rounded


T = np.linspace(0, 1, 7)
RIGHT = {
    "a quadratic": (lambda w: -0.5 * w @ w, lambda w: -w, np.zeros(3)),
    "narrow": (lambda w: -0.5e12 * w @ w, lambda w: -1e12 * w, np.zeros(3)),
    "wide": (lambda w: -0.5e-12 * w @ w, lambda w: -1e-12 * w, np.zeros(3)),
    "far away": (lambda w: -0.5 * ((w - 1e6) ** 2).sum(), lambda w: 1e6 - w, np.full(3, 1e6)),
    "a big constant": (lambda w: 1e15 - 0.5 * w @ w, lambda w: -w, np.ones(3)),
    "single precision": (single(lambda w: -0.5 * w @ w), single(lambda w: -w), np.ones(3)),
    "single precision, a big constant": (
        single(lambda w: np.float32(1e7) - w @ w / 2),
        single(lambda w: -w),
        np.ones(3),
    ),
    "differences of big numbers in single precision": (
        single(lambda w: (np.float32(1e7) - w @ w / 2) - np.float32(1e7)),
        single(lambda w: -w),
        np.ones(3),
    ),
    "a kink at the start alone": (
        lambda w: -np.maximum(w, 0).sum() if np.abs(w).max() < 0.03 else np.nan,
        lambda w: -(w > 0).astype(float),
        np.zeros(2),
    ),
    "Laplace's distribution": (lambda w: -np.abs(w).sum(), lambda w: -np.sign(w), np.zeros(3)),
    "waves": (lambda w: np.sin(300 * w).sum(), lambda w: 300 * np.cos(300 * w), np.zeros(3)),
    "quick waves": (lambda w: np.sin(1e4 * w).sum(), lambda w: 1e4 * np.cos(1e4 * w), np.zeros(3)),
    "steep": (lambda w: -np.exp(30 * w).sum(), lambda w: -30 * np.exp(30 * w), np.zeros(3)),
    "a Poisson": (lambda w: (w - np.exp(w)).sum(), lambda w: 1 - np.exp(w), np.full(3, 5.0)),
    "never finite": (lambda w: -np.inf, lambda w: 0 * w, np.zeros(3)),
    "no gradient": (lambda w: -0.5 * w @ w, lambda w: np.nan * w, np.zeros(3)),
    "noise": (lambda w: -0.5 * w @ w + RNG.standard_normal() * 0.1, lambda w: -w, np.ones(3)),
    "a scale that is not zero": (
        lambda w: -0.5 * (T @ T) / w[0] ** 2 - 7 * np.log(w[0]),
        lambda w: (T @ T) / w**3 - 7 / w,
        np.array([0.01]),
    ),
    "many, cancelling": (
        single(lambda w: -0.5 * w @ w + 1e3 * (w[::2].sum() - w[1::2].sum())),
        single(lambda w: -w + np.where(np.arange(w.size) % 2, -1e3, 1e3).astype(np.float32)),
        np.zeros(60),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_gradient_is_never_refused(name):
    value, gradient, start = RIGHT[name]
    for shift in np.linspace(0, 1, 25):
        checked(value, gradient, start * (1 + shift))


def test_functions_that_raise_are_left_to_the_fit():
    def value(w):
        if w[0] > 0.01:
            raise ValueError("out of bounds")
        return -0.5 * w @ w

    checked(value, lambda w: -w, np.zeros(2))
    with pytest.raises(mixvi.InputError, match=r"In w\[0\]"):  # at the start itself
        checked(lambda w: value(w) - w[0], lambda w: -w, np.zeros(2))


def test_in_fits():
    def wrong(w, y):
        return -0.5 * ((y - w["a"]) ** 2).sum() - w["s"], {"a": (w["a"] - y).sum(0), "s": -1.0}

    init, y = {"a": np.zeros(2), "s": 1.0}, np.ones((3, 2))
    says = r"from_numpy: the gradient is not that of the log density. In a\[.\] it is"
    function = mixvi.from_numpy(wrong)
    with pytest.raises(mixvi.InputError, match=says):
        mixvi.laplace(function, init, y, throw=False)
    with pytest.raises(mixvi.InputError, match=says):
        mixvi.fit(function, init, y, constraints={"s": "positive"})
    with pytest.raises(mixvi.InputError, match=says):
        mixvi.fit_many(function, init, y[None])
    with pytest.raises(mixvi.InputError, match=r"In log s it is"):
        mixvi.fit(
            mixvi.from_numpy(lambda w: (-w["s"], {"s": 1.0})),
            {"s": 1.0},
            constraints={"s": "positive"},
        )
    with pytest.raises(mixvi.InputError, match=r"Given.gradients: the gradient"):
        mixvi.laplace(Given(lambda w: -0.5 * w @ w, lambda w: w, 2), np.zeros(2))
