"""Which data sets the paper uses: what is known of each before it is seen (data_sets.toml)."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from mixvi import MixviError


class DataError(MixviError):
    """A data set is not here, cannot be had, or is not what it should be."""


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """`rows` are distinct rows for binary sets, as their published splits name the same row many
    times; the splits have `n_train + n_test`."""

    name: str
    kind: str  # "binary", "multiclass" or "regression"
    file: str
    rows: int
    features: int
    n_train: int
    n_test: int
    checksum: str
    n_splits: int = 100
    class_names: tuple[str, ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()  # addresses of files that together hold the set
    sha256: str | None = None  # of the bytes of a source's single file
    columns: Any = None  # of a text file: features (from, up to), label, header
    package: str | None = None  # comes with this installed package
    generated: bool = False

    @property
    def published(self) -> bool:
        """Whether the splits are part of the data; otherwise they are drawn."""
        return self.kind == "binary"

    @property
    def n_classes(self) -> int:
        return 2 if self.published else len(self.class_names)


def training_size(rows: int) -> int:
    """70% of the rows, rounded up, in whole numbers: 0.7 is not a binary fraction."""
    return -(-7 * rows // 10)


def _record(kind: str, name: str, entry: dict[str, Any]) -> Record:
    if kind == "binary":
        usual = {"file": f"raetsch_{name}.npz"} | _USUAL[kind]
    else:
        n_train = training_size(entry["rows"])
        usual = {"file": f"{name}.npz", "n_train": n_train, "n_test": entry["rows"] - n_train}
    return Record(name, kind, **usual | entry)


_SETS = tomllib.loads((Path(__file__).parent / "data_sets.toml").read_text("utf-8"))
_USUAL = _SETS.pop("usual")
BINARY, MULTICLASS, REGRESSION = map(tuple, _SETS.values())
REGISTRY = {
    name: _record(kind, name, entry) for kind, sets in _SETS.items() for name, entry in sets.items()
}
NAMES = tuple(REGISTRY)
