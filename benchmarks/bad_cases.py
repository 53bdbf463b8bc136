"""What cases of things that go wrong are made of: see bad_pieces.py."""

import contextlib
import resource
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import mixvi

N = 800
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 3))
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(float)
W = np.zeros(3)


def log_likelihood(w, rows):
    eta = rows["x"] @ w
    return rows["y"] * eta - jnp.logaddexp(0.0, eta)


MODEL = mixvi.Additive(lambda w: -0.5 * (w @ w), log_likelihood)
# Enough questions that something can happen between them.
LONG = {"family": "full", "optimiser": "bfgs"}


class Found(NamedTuple):
    """`words` of the error or warning; `kept`: what was compared, and how that came out."""

    words: str
    kept: str = ""
    is_sound: bool = True


class Case(NamedTuple):
    run: Callable[..., Found]
    expected: str


CASES: dict[str, Case] = {}


def case(name: str, expected: str) -> Callable:
    """`expected`: a pattern that must be in the words."""

    def known(run: Callable) -> Callable:
        CASES[name] = Case(run, expected)
        return run

    return known


def said(call: Callable) -> str:
    """The words of what it raises, or else of what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as err:
            is_ours = isinstance(err, mixvi.MixviError)
            return f"{'' if is_ours else type(err).__name__ + ': '}{err}"
    ours = [str(one.message) for one in caught if "mixvi" in str(one.filename)]
    return ours[0] if ours else "nothing is said"


def alike(what: str, one: Any, other: Any) -> tuple[str, bool]:
    if isinstance(one, mixvi.Posterior):
        pairs = [(one.flat_mean, other.flat_mean), (one.cov, other.cov)]
    else:
        pairs = [(getattr(one, name), getattr(other, name)) for name in ("mean", "std", "status")]
    is_same = all(np.array_equal(a, b) for a, b in pairs)
    return f"{what}: {'the same' if is_same else 'NOT the same'}", is_same


def part(k: int, rows: int = 100, names: tuple[str, str] = ("x", "y")) -> dict[str, np.ndarray]:
    own = slice(k * rows, (k + 1) * rows)
    return dict(zip(names, (X[own], Y[own]), strict=True))


def spoilt(k: int, at: int = 7) -> dict[str, np.ndarray]:
    rows = part(k)
    if k == at:
        rows["x"] = rows["x"].copy()
        rows["x"][42, 1] = np.nan
    return rows


def once(happen: Callable[[], object], after: int = 3) -> Callable[[Any], None]:
    """A callback that does something at one step."""
    steps: list[int] = []

    def at_step(step: Any) -> None:
        steps.append(step.passes)
        if len(steps) == after:
            happen()

    return at_step


@contextlib.contextmanager
def disk_full_at(n_bytes: int) -> Iterator[None]:
    """Files of this process cannot grow beyond."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
