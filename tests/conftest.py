import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Every executable holds memory maps, and a process may have only so many: compiling hundreds
    of small problems in one process ends in a crash of the compiler."""
    yield
    jax.clear_caches()
