"""Problems that several benchmarks share."""

import os
import pathlib
import platform
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from reproduction import data


def logistic(w, data):
    """RBF logistic regression, prior N(0, I / alpha)."""
    design, sign, alpha = data
    return -jnp.logaddexp(0.0, -sign * (design @ w)).sum() - 0.5 * alpha * w @ w


def data_set(name: str) -> data.Dataset:
    """From MIXVI_DATA, or a folder beside the checkout, or where the package finds it."""
    beside = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    there = "MIXVI_DATA" not in os.environ and beside.is_dir()
    return data.load(name, beside if there else None)


def splits(name: str, n: int) -> list[data.Split]:
    return data.splits(data_set(name), range(n))


def raetsch(name: str, n_basis: int = 30, alpha: float = 0.1, width: float = 1.0, split: int = 0):
    """One published split with `n_basis` Gaussian bumps on training points and a constant."""
    (one,) = data.splits(data_set(name), [split])
    x, t = one.x, one.y
    x = (x - x.mean(0)) / x.std(0)
    centres = x[np.random.default_rng(0).choice(len(x), n_basis, replace=False)]
    width2 = width**2 * x.shape[1] / 2
    basis = np.exp(-((x[:, None] - centres) ** 2).sum(-1) / (2 * width2))
    design = np.concatenate([basis, np.ones((len(x), 1))], axis=1)
    return design, np.where(t == 1, 1.0, -1.0), np.float64(alpha)


def synthetic(n: int = 400, dim: int = 31, seed: int = 0):
    """Logistic data from the model itself, prior precision 1."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.standard_normal((n, dim - 1)), np.ones((n, 1))], axis=1)
    share = 1 / (1 + np.exp(-x @ rng.standard_normal(dim)))
    return x, np.where(rng.random(n) < share, 1.0, -1.0), np.float64(1.0)


def interleaved(functions: dict[str, Callable], repeats: int) -> dict[str, float]:
    """Median seconds of each function, called in turn so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(3):
        for function in functions.values():
            function()
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - began)
    return {name: float(np.median(values)) for name, values in times.items()}


def machine() -> str:
    device = jax.devices()[0]
    return (
        f"{os.cpu_count()} CPU cores, {device.device_kind}, Python {platform.python_version()}, "
        f"jax {jax.__version__}"
    )
