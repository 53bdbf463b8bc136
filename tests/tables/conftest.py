import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from table_cases import FEATURES, only, people, written

# `mixvi` is imported in the fixtures: pytest loads this file first where it is told this folder
# alone, before jaxtyping has its hook in place.


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """What is written goes away."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A file for each target, `did.csv` and so on, and one without any."""
    folder, table = tmp_path_factory.mktemp("tables"), people()
    for target in ("did", "spent", "visits", "plan"):
        written(folder / f"{target}.csv", only(table, *FEATURES, target))
    written(folder / "new.csv", only(people(20, seed=1), *FEATURES))
    return folder


@pytest.fixture(scope="session")
def fitted(data):
    """A model of each target, straight lines, for tests that look at one thing."""
    from mixvi import tables

    return {
        target: tables.fit_table(data / f"{target}.csv", tables.Asked(target, basis="linear"))
        for target in ("did", "spent", "visits")
    }


@pytest.fixture(scope="session")
def saved(fitted, data):
    from mixvi import tables

    for target, one in fitted.items():
        tables.save(one.model, data / f"{target}.mvi")
    return data
