import os
import pathlib
import signal
import subprocess
import sys

import pytest

# Compiled code is kept: workers, processes that tests start, and the next run find it again. Said
# before JAX is imported, which reads it then.
kept = pathlib.Path(__file__).resolve().parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(kept))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def set_flags_of_xla() -> None:
    """Tests compile far longer than they compute. XLA ends the process at a flag that it does not
    know, and they come and go: hence a trial."""
    quick = ("--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true")
    all_of_them = " ".join((*quick, "--xla_cpu_use_fusion_emitters=false"))
    trial = [sys.executable, "-c", "import jax; jax.devices('cpu')"]
    env = os.environ | {"XLA_FLAGS": all_of_them}
    fails = subprocess.run(trial, env=env, capture_output=True).returncode
    os.environ["XLA_FLAGS"] = " ".join(quick) if fails else all_of_them


if "XLA_FLAGS" not in os.environ:  # workers have them from the process that starts them
    set_flags_of_xla()


# Whoever starts us in the background may have us ignore Ctrl-C, and tests interrupt themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """The slow ones first, so that no worker is left with them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Every executable holds memory maps, and a process may have only so many: compiling hundreds
    of small problems in one process ends in a crash of the compiler."""
    import jax

    yield
    jax.clear_caches()
    if (density := sys.modules.get("mixvi._density._jax")) is not None:
        density.forget()


@pytest.fixture
def nothing_from_outside(monkeypatch, tmp_path):
    """No folder of the user's and an empty cache."""
    monkeypatch.delenv("MIXVI_DATA", raising=False)
    monkeypatch.setenv("MIXVI_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tiny(monkeypatch):
    """A small data set among the published ones."""
    from data_sets import tiny_record
    from reproduction import registry

    record = tiny_record()
    monkeypatch.setitem(registry.REGISTRY, "tiny", record)
    return record


@pytest.fixture(autouse=True)
def jax_precision():
    """Loading PyTensor's JAX backend switches 64 bits on, for good: other tests would not notice
    if we did the same."""
    import jax

    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)
