import os
import pathlib

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Every executable holds memory maps, and a process may have only so many: compiling hundreds
    of small problems in one process ends in a crash of the compiler."""
    yield
    jax.clear_caches()


def data_folder() -> pathlib.Path | None:
    """`MIXVI_DATA`, then the folder beside the checkout."""
    beside = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    for folder in (os.environ.get("MIXVI_DATA"), beside):
        if folder and pathlib.Path(folder).is_dir():
            return pathlib.Path(folder)
    return None


@pytest.fixture
def raetsch():
    folder = data_folder()
    if folder is None:
        pytest.skip("the data sets are not here: set MIXVI_DATA to their folder")
    return folder
