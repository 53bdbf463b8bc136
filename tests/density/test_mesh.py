"""Data laid out over several devices, of one process and of two: the same posterior."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

PROBLEM = """
import json, os, sys
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import mixvi

rng = np.random.default_rng(0)
x = rng.standard_normal((480, 4))
y = (rng.random(480) < 1 / (1 + np.exp(-x @ np.ones(4)))).astype(float)


def learnt(w, hyper, data):
    eta = data["x"] @ w
    prior = 2 * hyper - 0.5 * jnp.exp(hyper) * (w @ w) - 0.5 * (hyper / 3) ** 2
    return (data["y"] * eta - jnp.logaddexp(0.0, eta)).sum() + prior


def logistic(w, data):
    return learnt(w, 0.0, data)


def factorised(w, data):  # with a Cholesky factor: such a density goes point by point
    shared = jnp.linalg.cholesky(jnp.eye(4) + 0.1 * jnp.exp(0.1 * w[0]) * jnp.ones((4, 4)))
    return logistic(w, data) - jnp.log(jnp.diagonal(shared)).sum()


def rows_over(devices):
    return NamedSharding(Mesh(np.array(devices), ("rows",)), PartitionSpec("rows"))


def numbers(post):
    hyper = [] if post.hyper is None else np.ravel(post.hyper).tolist()
    return [post.flat_mean.tolist(), post.cov.tolist(), post.elbo.value, hyper, post.verdict]


def fits(data):
    return [
        numbers(mixvi.fit(logistic, np.zeros(4), data)),
        numbers(mixvi.fit(logistic, np.zeros(4), data, family="full", optimiser="bfgs")),
        numbers(mixvi.fit(learnt, np.zeros(4), data, hyper=0.0, family="eig")),
        numbers(mixvi.fit(factorised, np.zeros(4), data)),
    ]
"""

ONE_PROCESS = """
jax.config.update("jax_enable_x64", {x64})
laid_out = {{"x": jax.device_put(x, rows_over(jax.devices())),
            "y": jax.device_put(y, rows_over(jax.devices()))}}
whole = {{name: np.asarray(one) for name, one in laid_out.items()}}
print(json.dumps([len(jax.devices()), len(laid_out["x"].addressable_shards), fits(laid_out),
                  fits(whole)]))
"""

TWO_PROCESSES = """
number, port = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
jax.config.update("jax_enable_x64", True)
own, laid_out = slice(240 * number, 240 * (number + 1)), rows_over(jax.devices())
data = {name: jax.make_array_from_process_local_data(laid_out, one[own])
        for name, one in {"x": x, "y": y}.items()}
print(json.dumps([len(jax.devices()), len(data["x"].addressable_shards), fits(data)]))
"""


def told(code: str, processes: list[list[str]], **flags: str) -> list:
    """What each of the processes prints. Both are read while both run: one that waits for a reader
    keeps the other one waiting."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | flags

    def ran(arguments: list[str]) -> list:
        command = [sys.executable, "-c", PROBLEM + code, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
        assert ended.returncode == 0, ended.stderr[-3000:]
        return json.loads(ended.stdout.splitlines()[-1])

    with ThreadPoolExecutor(len(processes)) as side_by_side:
        return list(side_by_side.map(ran, processes))


def assert_same(some: list, others: list, tol: float) -> None:
    for one, other in zip(some, others, strict=True):
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_allclose(a, b, rtol=tol, atol=tol)
        assert one[4] == other[4]


@pytest.mark.slow
@pytest.mark.parametrize("x64", [True, False])
def test_four_devices_say_what_one_says(x64):
    flag = "--xla_force_host_platform_device_count=4"
    [(n, n_shards, laid_out, whole)] = told(ONE_PROCESS.format(x64=x64), [[]], XLA_FLAGS=flag)
    assert (n, n_shards) == (4, 4)
    assert_same(laid_out, whole, 1e-10)


@pytest.mark.slow
def test_two_processes_say_what_one_says():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    first, second = told(TWO_PROCESSES, [["0", port], ["1", port]])
    assert first == second  # to the last bit
    assert first[:2] == [2, 1]  # each holds half of the rows
    print_one = "print(json.dumps(fits({'x': x, 'y': y})))"
    assert_same(first[2], told(print_one, [[]])[0], 1e-10)
