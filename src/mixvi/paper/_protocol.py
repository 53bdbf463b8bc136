"""How an experiment is run: the paper's way, or ours, chosen by validation inside training sets.

Both make the same rows, so that a reader sees what each change buys.
"""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from .._approximate._families import LowRank, MeanField
from .._arrays._draws import IID, Draws, Matched
from .._errors import InputError
from .._fit._options import one_of

METHODS = ("laplace", "mu", "eig", "lr", "diag", "full", "auto")
N_PREDICT = 10_000


@dataclasses.dataclass(frozen=True)
class LowRankFromNoise(LowRank):
    """MVI_lr from the paper's start: U, V ~ N(0, 0.01 I) in `L = C + U V^T`, so `U <- R^-1 U`."""

    seed: int = 0

    start_is_stationary: ClassVar[bool] = False

    @property
    def poorer(self):
        return None

    def starts(self, root, a, gradient, laplace_root):
        del gradient, laplace_root
        u, v = np.random.default_rng(self.seed).normal(0.0, 0.1, (2, a.shape[0]))
        return np.concatenate([np.linalg.solve(root, u), v])[None]


@dataclasses.dataclass(frozen=True)
class MeanFieldFromMarginal(MeanField):
    """VI_diag from the paper's first start: the variances of the Laplace covariance."""

    def starts(self, root, a, gradient, laplace_root):
        del a, gradient
        return self.marginal(root, laplace_root)[None]


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Everything that is a matter of choice.

    `sizes`: numbers of basis functions to choose from, once for all splits of a set. `n_starts`:
    random pairs of hyperparameters for each (None: six spread ones). `scale_by`: which rows
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

    def draws(self, n_outputs: int, n: int | None) -> Draws | None:
        """The fixed draws, `n` of them if that is said. None in our protocol: as `fit` does by
        default, by quadrature over linear predictors (always, where there is one)."""
        if self.iid_draws is not None:
            return IID(n or self.iid_draws)
        return None if n is None or n_outputs == 1 else Matched(n)

    def families(self, method: str, seed: int) -> dict[str, Any]:
        """What to fit for a method, by the name of its start; VI_diag has two."""
        if method == "diag":
            its = {start: MeanField(start) for start in self.diag_starts}
            return its | {"laplace": MeanFieldFromMarginal()} if self.name == "paper" else its
        if method == "lr" and self.name == "paper":
            return {"random": LowRankFromNoise(seed=seed)}
        return {"": method}

    def search(self, family: Any) -> dict[str, Any]:
        """How `fit` goes about it: the paper's families around the mode; "auto" as it likes."""
        if family == "auto":
            return {"optimiser": "auto", "anchor": "auto"}
        return {"optimiser": self.optimiser, "anchor": "mode"}


BEST = Protocol("best", (30,), None, True, "training", "bfgs", None)
PAPER = Protocol("paper", (10, 20, 30), 10, False, "published", "scg", 1000, hyper_steps=1000)
# One start where two nearly always end at the same bound.
QUICK = dataclasses.replace(BEST, diag_starts=("laplace",))
PROTOCOLS = {one.name: one for one in (BEST, PAPER)}


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

    def families(self, method: str) -> dict[str, Any]:
        return self.protocol.families(method, self.seed)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def protocol(name: str) -> Protocol:
    one_of("protocol", name, tuple(PROTOCOLS))
    return PROTOCOLS[name]
