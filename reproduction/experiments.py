"""What there is to run: the experiments, the methods, and the two protocols.

Another experiment is one more entry of EXPERIMENTS, with its printed numbers in printed.csv, and
what `fitting` does for its name. Tables, counts and pages take it from here.
"""

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixvi import InputError

from . import registry

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("laplace", "mu", "eig", "lr", "diag")  # the paper's
BESIDE = ("full", "auto")  # the whole covariance, and what `fit` chooses
ALL_METHODS = METHODS + BESIDE
LABELS = {
    "laplace": "Laplace",
    "mu": "MVI_mu",
    "eig": "MVI_eig",
    "lr": "MVI_lr",
    "diag": "VI_diag",
    "full": "full",
    "auto": "auto",
}
N_PREDICT = 10_000


@dataclasses.dataclass(frozen=True)
class Experiment:
    """`metrics` are those of its tables ("lpd", "error" or "mse"); an experiment without is no
    table. `n_splits`: None where the data sets say how many they have. `in_print`: whether it is
    part of the paper as printed, and so of its counts and claims. `guesses`: what had to be filled
    in, in words."""

    name: str
    title: str
    about: str
    sets: tuple[str, ...]
    metrics: tuple[str, ...] = ("lpd", "error")
    n_splits: int | None = None
    decimals: int = 2
    methods: tuple[str, ...] = ALL_METHODS
    protocols: tuple[str, ...] = ("best", "paper")
    in_print: bool = True
    guesses: str = ""

    @property
    def per_point(self) -> bool:
        """Whether its log densities are divided by the number of test points."""
        return "mse" in self.metrics

    @property
    def second(self) -> str:
        """Where classifiers have an error rate, a regression has a mean squared error."""
        return "mse" if "mse" in self.metrics else "error"

    def splits_of(self, name: str) -> int:
        """How many there are."""
        return self.n_splits or registry.REGISTRY[name].n_splits


_TOY = Experiment(
    "toy", "Two-dimensional posterior", "the 2-D example, Figure 1", ("mixture",), (), n_splits=1
)
_CAUCHY = Experiment(
    "cauchy",
    "Cauchy regression",
    "robust regression, 100 data sets, Figure 2",
    ("cauchy",),
    ("lpd", "mse"),
    n_splits=100,
    decimals=3,
)
_BINARY = Experiment(
    "binary",
    "Logistic regression",
    "logistic regression, 13 sets with published splits",
    registry.BINARY,
)
_MULTICLASS = Experiment(
    "multiclass",
    "Multiclass logistic regression",
    "softmax regression, 8 sets, 100 splits",
    registry.MULTICLASS,
)
_ROBUST_GP = Experiment(
    "robust_gp",
    "Robust Gaussian processes (in the paper's source, not printed)",
    "Student-t regression with a Gaussian process, 2 sets",
    registry.REGRESSION,
    ("lpd", "mse"),
    n_splits=20,
    methods=("laplace", "mu", "eig", "lr"),
    protocols=("best",),
    in_print=False,
    guesses=(
        "The paper's source holds a table of these log densities that the paper does not print. "
        "How they were made had to be guessed: a Student-t likelihood with 4 degrees of freedom; a "
        "squared exponential kernel with one width; every training row as an "
        "inducing point; inputs and targets standardised by the training rows, and scores in those "
        "units; random splits, 70% for training and 30% for testing; and an LPD that is joint over "
        "the test points, by 10,000 draws, divided by their number. A difference from the table "
        "may come from any of them, so its cells do not count among the paper's 110. The source "
        "has no mean squared errors: ours stand alone."
    ),
)
EXPERIMENTS = {one.name: one for one in (_TOY, _CAUCHY, _BINARY, _MULTICLASS, _ROBUST_GP)}


def tables() -> tuple[str, ...]:
    """Experiments that have tables."""
    return tuple(name for name, one in EXPERIMENTS.items() if one.metrics)


def in_print() -> tuple[str, ...]:
    """Those whose tables the paper prints."""
    return tuple(name for name in tables() if EXPERIMENTS[name].in_print)


@functools.cache
def printed() -> "pd.DataFrame":
    """The paper's numbers by table, set, metric and method: `value`, `best` (bold) and
    `significant` (a bullet). The table `robust_gp` is in the paper's source, which does not print
    it."""
    import pandas as pd  # only reports need it

    found = pd.read_csv(Path(__file__).parent / "printed.csv")
    found = found.rename(columns={"table": "experiment", "dataset": "set"})
    found = found.astype({"best": bool, "significant": bool})
    return found.set_index(["experiment", "set", "metric", "method"])


# --- protocols --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Everything that is a matter of choice.

    `sizes`: numbers of basis functions to choose from, once for all splits of a set. `n_starts`:
    random pairs of hyperparameters for each (None: a few spread ones). `scale_by`: which rows
    standardise the inputs ("published": as the files are, and what they leave raw over all rows).
    """

    name: str
    sizes: tuple[int, ...]
    n_starts: int | None
    weak_prior: bool
    scale_by: str
    optimiser: str
    iid_draws: int | None  # None: quadrature
    diag_starts: tuple[str, ...] = ("laplace", "small")
    hyper_steps: int = 200  # most evaluations of Laplace's evidence
    choose_by: str = "loo"  # the number of basis functions; or by "evidence"
    hold_mean_field: bool = True  # at Laplace's hyperparameters
    methods: tuple[str, ...] = ALL_METHODS  # unless others are asked for


BEST = Protocol("best", (10, 20, 40), None, True, "training", "bfgs", None)
PAPER = Protocol(
    "paper",
    (10, 20, 30),
    10,
    False,
    "published",
    "scg",
    1000,
    hyper_steps=1000,
    choose_by="evidence",
    hold_mean_field=False,
    methods=METHODS,
)
PROTOCOLS = {one.name: one for one in (BEST, PAPER)}
# One start where two nearly always end at the same bound, and nothing to choose.
QUICK = dataclasses.replace(BEST, sizes=(20,), diag_starts=("laplace",))


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides the numbers of a row, beside its own name."""

    protocol: Protocol
    n_draws: int | None = None  # S; None: the protocol's own
    n_predict: int = N_PREDICT  # S'
    seed: int = 0
    n_basis: int | None = None  # M; None: the protocol's own, or its choice among several

    def __post_init__(self):
        least = 1000
        if self.n_predict < least or self.n_predict % least:
            raise InputError(
                f"the number of draws for predictions must be a multiple of {least}, got "
                f"{self.n_predict}."
            )
        if self.n_draws is not None and self.n_draws < 2:
            raise InputError(f"the number of draws must be at least 2, got {self.n_draws}.")
        if self.seed < 0:
            raise InputError(f"the seed must not be negative, got {self.seed}.")
        if self.n_basis is not None and self.n_basis < 1:
            raise InputError(f"there must be at least one basis function, got {self.n_basis}.")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of basis functions to choose from."""
        return (self.n_basis,) if self.n_basis else self.protocol.sizes


# --- a piece of work --------------------------------------------------------------------------

Key = tuple[str, str, str, int, str]
KEY = ("protocol", "experiment", "set", "split", "method")


@dataclasses.dataclass(frozen=True)
class Task:
    """Some splits of one set, with some methods: what `fitting` makes rows of."""

    experiment: str
    set: str
    splits: tuple[int, ...]
    methods: tuple[str, ...]
    settings: Settings
    run: str
    trend: bool = True
    size: int | None = None  # basis functions, where an earlier session has chosen them

    @property
    def name(self) -> tuple[str, str, str]:
        return self.settings.protocol.name, self.experiment, self.set

    def key(self, split: int, method: str) -> Key:
        return *self.name, split, method

    def row_keys(self) -> list[Key]:
        return [self.key(split, method) for split in self.splits for method in self.methods]

    def row(self, split: int, method: str, failed: str | None = None) -> dict[str, Any]:
        """Its name, and why it failed, if it did."""
        names = dict(zip(KEY, self.key(split, method), strict=True))
        return names | {"run": self.run, "failed": failed}
