"""What holds whatever surrounds a fit: flags, precision, threads, memory, a full disk."""

import json
import pathlib
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._law import _store
from targets import logistic, logistic_data

HERE = pathlib.Path(__file__).parent


def in_a_process(code: str, **flags: str) -> dict:
    """What `code` prints last, as JSON, in a process with these environment variables."""
    import os

    env = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_ENABLE_X64")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env | flags, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("x64", ["0", "1"])
def test_a_users_flags_stay_as_they_are(x64):
    """Several devices, flags for XLA, either precision outside: the same answer in float64."""
    told = in_a_process(
        "import json, os, jax, numpy as np, mixvi, jax.numpy as jnp\\n"
        "post = mixvi.fit(lambda w: -jnp.cosh(w - 1.0).sum(), np.zeros(2))\\n"
        "print(json.dumps({'std': post.std.tolist(), 'x64': jax.config.jax_enable_x64,"
        " 'type': str(jnp.ones(1).dtype), 'n': len(jax.devices()),"
        " 'flags': os.environ['XLA_FLAGS'], 'own': post.std.dtype.name}))".replace("\\n", "\n"),
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
        JAX_ENABLE_X64=x64,
    )
    assert told["x64"] == (x64 == "1")
    assert told["type"] == ("float64" if x64 == "1" else "float32")
    assert (told["n"], told["own"]) == (2, "float64")
    assert told["flags"] == "--xla_force_host_platform_device_count=2"
    here = mixvi.fit(lambda w: -jnp.cosh(w - 1.0).sum(), np.zeros(2))
    np.testing.assert_allclose(told["std"], here.std, rtol=1e-6)


@pytest.mark.slow
def test_peak_memory_stays_within_what_is_allowed():
    """200,000 rows and 512 draws: gradients of all at once would take gigabytes."""
    told = in_a_process(
        "import json, resource, numpy as np, mixvi, jax.numpy as jnp\\n"
        "x = np.random.default_rng(0).standard_normal((200_000, 4))\\n"
        "y = np.where(x @ np.ones(4) > 0, 1.0, -1.0)\\n"
        "def f(w, data):\\n"
        "    return -jnp.logaddexp(0.0, -data[1] * (data[0] @ w)).sum() / 100 - 0.5 * w @ w\\n"
        "import jax; jax.block_until_ready(jax.jit(jax.grad(f))(np.zeros(4), (x, y)))\\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\\n"
        "mixvi.fit(f, np.zeros(4), (x, y), family='eig', draws=512, memory='128MiB',"
        " diagnostics=False)\\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\\n"
        "print(json.dumps({'grown_mib': (after - before) / 1024}))".replace("\\n", "\n")
    )
    # All at once: 512 x 200,000 x 8 bytes, several times over.
    assert told["grown_mib"] < 400


def test_float32_of_auto_of_hyperparameters_and_of_many():
    x, sign = logistic_data(n=100, dim=3)
    exact = mixvi.fit(logistic, np.zeros(3), (x, sign))
    single = mixvi.fit(logistic, np.zeros(3), (x, sign), dtype="float32")
    assert single.mean.dtype == np.float32
    np.testing.assert_allclose(single.mean, exact.mean, atol=0.01)
    np.testing.assert_allclose(single.std, exact.std, rtol=0.02)
    for strategy in ("map", "vmap"):
        many = mixvi.fit_many(
            logistic, np.zeros(3), (x[None], sign[None]), dtype="float32", strategy=strategy
        )
        np.testing.assert_allclose(many.mean[0], exact.mean, atol=0.01)
        np.testing.assert_allclose(many.std[0], exact.std, rtol=0.02)

    def shrunk(w, log_alpha, y):
        prior = 0.5 * (log_alpha - jnp.exp(log_alpha) * w**2)
        return (prior - 0.5 * (y - w) ** 2).sum()

    y = np.array([2.0, -1.5, 3.0, 0.5, -2.2])
    post = mixvi.fit(shrunk, np.zeros(5), y, hyper=0.0, dtype="float32")
    assert float(post.hyper) == pytest.approx(-np.log((y**2).mean() - 1), abs=0.02)


def test_two_threads_find_what_one_finds():
    found: dict[str, mixvi.Posterior] = {}

    def run(name: str, seed: int) -> None:
        found[name] = mixvi.fit(logistic, np.zeros(3), logistic_data(n=80, dim=3, seed=seed))

    threads = [threading.Thread(target=run, args=(f"thread {k}", k)) for k in (0, 1, 0, 1)]
    for k in (0, 1):
        run(f"alone {k}", k)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    for k in (0, 1):
        np.testing.assert_array_equal(found[f"thread {k}"].mean, found[f"alone {k}"].mean)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    post = mixvi.laplace(lambda w: -0.5 * (w - 1.0) ** 2, 0.0)
    other = mixvi.laplace(lambda w: -0.5 * (w - 7.0) ** 2, 0.0)
    path = post.save(tmp_path / "kept.npz")

    def half(file, **arrays):
        pathlib.Path(getattr(file, "name", file)).write_bytes(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(_store.np, "savez", half)
    monkeypatch.setattr(_store.np, "savez_compressed", half)
    with pytest.raises(OSError, match="no space"):
        other.save(path)
    assert [one.name for one in tmp_path.iterdir()] == ["kept.npz"]
    assert float(mixvi.load(path).mean) == 1.0


def test_files_of_version_0_1_0_load():
    post = mixvi.load(HERE / "written_by_0_1_0.npz")
    assert post.family == "eig"
    assert post.names == ("b[0]", "b[1]", "b[2]", "log s")
    assert sorted(post.mean) == ["b", "s"]
    # y ~ N(b, 1), b ~ N(0, 1/alpha), alpha learnt: 1/alpha = mean y^2 - 1
    y = np.array([1.0, -2.0, 3.0])
    variance = (y**2).mean() - 1
    assert float(post.hyper) == pytest.approx(-np.log(variance), abs=1e-3)
    np.testing.assert_allclose(post.mean["b"], y * variance / (1 + variance), atol=1e-3)
    assert post.stats.draws == 64
    assert post.verdict.startswith("Trust")
    assert np.isfinite(post.log_prob(post.mean))
    assert "log evidence" in post.summary()


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_captured_arrays_have_the_precision_of_who_asks(jitted, before, monkeypatch):
    """JAX keeps the constant that it made of a captured array under another precision; nothing that
    the user has compiled is thrown away for that."""
    forgotten = []
    clear = jax.clear_caches
    monkeypatch.setattr(jax, "clear_caches", lambda: forgotten.append(clear()))
    y = np.random.default_rng(4).standard_normal(50)

    def plain(w):
        return -0.5 * ((y - w) ** 2).sum()

    log_density = jax.jit(plain) if jitted else plain
    with jax.enable_x64(False):
        if before:
            assert jax.jit(log_density)(1.0).dtype == np.float32
        post = mixvi.fit(log_density, 0.0, diagnostics=False)
        assert float(post.mean) == pytest.approx(y.mean(), abs=1e-12)
        assert jax.jit(log_density)(1.0).dtype == np.float32
        assert jax.grad(log_density)(1.0).dtype == np.float32
    assert len(forgotten) <= before


def test_data_that_a_float32_program_holds_are_not_rounded():
    """JAX has one float32 version of an array that a program captured, also as an argument."""
    y = np.random.default_rng(4).standard_normal(50)

    def log_density(w, data):
        return -0.5 * ((data - w) ** 2).sum()

    with jax.enable_x64(False):
        held = jax.jit(lambda: (jnp.asarray(y) * y).sum())
        held()
        post = mixvi.fit(log_density, 0.0, y, diagnostics=False)
        assert float(post.mean) == pytest.approx(y.mean(), abs=1e-12)
        posts = mixvi.fit_many(log_density, 0.0, y[None], diagnostics=False)
        assert float(posts.mean[0]) == pytest.approx(y.mean(), abs=1e-12)
        held()
