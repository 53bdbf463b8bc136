"""Everything a user can set but the problem itself, checked in one place."""

import dataclasses
import numbers
from typing import Any

import jax
import numpy as np

from .._approximate._families import EigenScale, FullRank, named
from .._approximate._laplace import POLICIES
from .._draws import FIXED, Draws, Matched, Quadrature, default_draws, key_words
from .._errors import InputError
from .._target import FLOAT_TYPES, Target

AUTO = "auto"
OPTIMISERS = (AUTO, "bfgs", "lbfgs", "scg", "stein")
ANCHORS = (AUTO, "mode", "average")
N_FRESH = 1000


@dataclasses.dataclass(frozen=True)
class Options:
    """Checked once, shared by one fit or many."""

    family: Any  # a Family or None; the richest, where `climbs`
    climbs: bool  # from Laplace up, as far as it pays
    anchor: str
    n_restarts: int
    draws: Draws | Quadrature | None
    optimiser: str
    key: Any
    tol: Any  # a number; None where the gain left is the test
    max_steps: int
    diagnostics: int  # fresh draws for the verdict; 0 for none
    on_indefinite: str
    memory: int
    dtype: np.dtype
    hyper_steps: int
    # Where many problems run at once, rescue operations wait for a second try.
    hasty: bool = False

    @property
    def family_name(self) -> str:
        if self.climbs:
            return AUTO
        return "laplace" if self.family is None else self.family.name

    @property
    def by_stein(self) -> bool:
        """Whether the whole covariance is found by Stein steps."""
        whole = self.family is not None and self.family.name == FullRank.name
        return whole and self.optimiser in (AUTO, "stein")

    @property
    def n_fresh(self) -> int:
        """Fresh draws also decide whether the fixed ones are enough, diagnostics or not."""
        return self.diagnostics or N_FRESH

    @property
    def mode_search(self) -> dict[str, Any]:
        names = ("on_indefinite", "memory", "hyper_steps")
        return {name: getattr(self, name) for name in names} | {"tune": self.hyper_steps > 0}

    @property
    def other_modes(self) -> dict[str, Any]:
        """Of further mode searches: nothing is repaired and hyperparameters stay."""
        return self.mode_search | {"on_indefinite": "raise", "tune": False}

    @property
    def bound_search(self) -> dict[str, Any]:
        names = ("optimiser", "tol", "max_steps", "memory")
        return {name: getattr(self, name) for name in names}

    def within_reach(self, dim: int) -> "Options":
        """Climbing ends at "eig" where more draws than dimensions do not fit into memory."""
        if self.climbs and self.draws is None and 8 * 4 * dim**2 > self.memory // 4:
            return dataclasses.replace(self, family=EigenScale())
        return self

    def rule_for(self, target: Target) -> Draws | Quadrature | None:
        """How expectations are taken for this problem: quadrature where it applies, otherwise
        draws; refused with a reason where it cannot work."""
        dim = target.structure.size
        if self.family is None:
            return None
        if (reason := self.family.refusal(dim)) is not None:
            raise InputError(reason)
        if self.draws is None and target.n_predictors:
            return fewest_nodes(target.n_predictors)
        if isinstance(self.draws, Quadrature):
            if not target.n_predictors:
                raise InputError(
                    "quadrature needs linear predictors: write the log density as a "
                    "mixvi.LinearPredictor, or leave draws= out."
                )
            self.points(self.draws, target)  # refused here where it cannot be had
            return self.draws
        return self.draws_for(dim)

    def draws_for(self, dim: int) -> Draws:
        assert self.family is not None
        root = self.family.updates_root
        draws = self.draws if isinstance(self.draws, Draws) else None
        draws = draws or default_draws(dim, root, self.memory)
        if (reason := draws.refusal(dim, root)) is not None:
            raise InputError(reason)
        return draws

    def points(self, rule: Draws | Quadrature, target: Target) -> Any:
        """The draws or nodes themselves: the same object for all problems."""
        if isinstance(rule, Quadrature):
            return rule.make(self.dtype, target.n_predictors)
        return rule.make(self.key, target.structure.size, FIXED, self.dtype)


def fewest_nodes(n_predictors: int) -> Quadrature:
    """Where a search begins."""
    return Quadrature(32) if n_predictors == 1 else Quadrature(max(256, 4 * n_predictors))


def checked(
    *,
    family: Any,
    draws: Any = None,
    optimiser: Any = AUTO,
    anchor: Any = AUTO,
    n_restarts: Any = 0,
    key: Any = 0,
    tol: Any = None,
    max_steps: Any = 1000,
    diagnostics: Any = True,
    on_indefinite: Any = "raise",
    memory: Any = None,
    dtype: Any = "float64",
    hyper_steps: Any = 200,
) -> Options:
    one_of("optimiser", optimiser, OPTIMISERS)
    one_of("on_indefinite", on_indefinite, POLICIES)
    one_of("anchor", anchor, ANCHORS)
    one_of("dtype", dtype, tuple(FLOAT_TYPES))
    if not _is_integer(diagnostics, and_bool=True) or 1 < diagnostics < 100 or diagnostics < 0:
        raise InputError(
            "diagnostics must be True, False or a number of fresh draws of at least 100, "
            f"got {diagnostics!r}."
        )
    real = isinstance(tol, numbers.Real) and not isinstance(tol, bool)
    if tol is not None and (not real or not 0 < float(tol) < 1):
        raise InputError(
            f"tol must be between 0 and 1 (posterior standard deviations), got {tol!r}."
        )
    if not _is_integer(max_steps) or max_steps < 1:
        raise InputError(f"max_steps must be a positive integer, got {max_steps!r}.")
    if not _is_integer(hyper_steps) or hyper_steps < 0:
        raise InputError(f"hyper_steps must be a non-negative integer, got {hyper_steps!r}.")
    if not _is_integer(n_restarts) or n_restarts < 0:
        raise InputError(f"n_restarts must be a non-negative integer, got {n_restarts!r}.")
    key_words(key)
    climbs = isinstance(family, str) and family == AUTO
    richest = FullRank() if climbs else named(family)
    if optimiser == "stein" and not isinstance(richest, FullRank):
        raise InputError('optimiser="stein" finds a whole covariance: use it with family="full".')
    return Options(
        family=richest,
        climbs=climbs,
        anchor=anchor,
        n_restarts=int(n_restarts),
        draws=_draws(draws),
        optimiser=optimiser,
        key=key,
        tol=None if tol is None else float(tol),
        max_steps=int(max_steps),
        diagnostics=N_FRESH if diagnostics == 1 else int(diagnostics),
        on_indefinite=on_indefinite,
        memory=_bytes(memory),
        dtype=FLOAT_TYPES[dtype],
        hyper_steps=int(hyper_steps),
    )


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(f'"{choice}"' for choice in choices)
        raise InputError(f"{name} must be one of {known}, got {value!r}.")


def _is_integer(value: Any, and_bool: bool = False) -> bool:
    return isinstance(value, int | np.integer) and (and_bool or not isinstance(value, bool))


def _draws(draws: Any) -> Draws | Quadrature | None:
    if draws is None or isinstance(draws, Draws | Quadrature):
        return draws
    if not _is_integer(draws):
        raise InputError(
            "draws must be a number of draws or mixvi.IID(n), mixvi.Matched(n), mixvi.Sobol(n), "
            f"mixvi.Quadrature(n), not {draws!r}."
        )
    return Matched(int(draws))


def _bytes(memory: Any) -> int:
    """1 GiB, or an eighth of an accelerator's own memory, when nothing is said."""
    if memory is None:
        device = jax.local_devices()[0]
        own = None if device.platform == "cpu" else device.memory_stats()
        return max(2**30, own["bytes_limit"] // 8) if own else 2**30
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    try:
        if isinstance(memory, str):
            amount = float(memory.strip()[:-3]) * units[memory.strip()[-3:]]
        else:
            amount = float(memory)
        if not 2**20 <= amount < 2**60:
            raise ValueError
    except (KeyError, ValueError, TypeError) as err:
        raise InputError(
            'memory must be a number of bytes or text such as "512MiB" or "2GiB", at least '
            f'"1MiB", got {memory!r}.'
        ) from err
    return int(amount)
