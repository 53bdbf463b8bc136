"""Everything a user can set but the problem itself, checked in one place."""

import dataclasses
import difflib
import functools
import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, cast

import jax
import numpy as np

from .._approximate._families import NAMES, EigenScale, Family, FullRank, named
from .._approximate._laplace import POLICIES
from .._approximate._mixture import Mixture, asked_for
from .._arrays._draws import FIXED, Draws, Matched, Quadrature, default_draws, key_words
from .._density._target import FLOAT_TYPES, Target
from .._errors import InputError

AUTO = "auto"
OPTIMISERS = (AUTO, "bfgs", "lbfgs", "scg", "stein")
ANCHORS = (AUTO, "mode", "average")
SYMMETRIC = ("report", "accept")
DENSE, SPARSE, LOW_RANK, DIAGONAL = "dense", "sparse", "low_rank", "diagonal"
STRUCTURES = (AUTO, DENSE, SPARSE, LOW_RANK, DIAGONAL)
N_FRESH = 1000

F = TypeVar("F", bound=Callable)


class LaplaceOptions(TypedDict, total=False):
    """What `laplace` takes by keyword."""

    key: Any
    diagnostics: bool | int
    on_indefinite: str
    hyper_steps: int
    hyper_posterior: bool
    hyper_prior: Callable | None
    memory: int | str | None
    dtype: str
    symmetric: str
    structure: str


class FitOptions(LaplaceOptions, total=False):
    """What `fit` takes by keyword."""

    family: str | Family | Mixture
    draws: int | Draws | Quadrature | None
    optimiser: str
    anchor: str
    n_restarts: int
    tol: float | None
    max_steps: int


_DEFAULTS = FitOptions(
    family=AUTO,
    draws=None,
    key=0,
    optimiser=AUTO,
    anchor=AUTO,
    n_restarts=0,
    tol=None,
    max_steps=1000,
    diagnostics=True,
    on_indefinite="raise",
    hyper_steps=200,
    hyper_posterior=False,
    hyper_prior=None,
    memory=None,
    dtype="float64",
    symmetric="report",
    structure=AUTO,
)
DEFAULTS: dict[str, Any] = {**_DEFAULTS}


def with_options(kind: type) -> Callable[[F], F]:
    """For a function of `**options`: its signature shows them with their defaults, and it refuses
    others."""
    names = [name for name in DEFAULTS if name in kind.__annotations__]

    def decorated(function: F) -> F:
        own = inspect.signature(function)
        *before, _ = own.parameters.values()
        shown = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=DEFAULTS[name],
                annotation=kind.__annotations__[name],
            )
            for name in names
        ]
        taken = {parameter.name for parameter in before} | set(names)

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in taken:
                    close = difflib.get_close_matches(name, taken, 1)
                    meant = f"; did you mean {close[0]!r}?" if close else ""
                    raise TypeError(f"{function.__name__}() has no option {name!r}{meant}")
            return function(*args, **given)

        signature = own.replace(parameters=[*before, *shown])
        call.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
        return cast(F, call)

    return decorated


@dataclasses.dataclass(frozen=True)
class Options:
    """Checked once, shared by one fit or many."""

    richest: Any  # the family to fit, with `is_auto` the last to try; None for Laplace alone
    is_auto: bool  # from Laplace up, as far as it pays
    draws: Draws | Quadrature | None
    key: Any
    optimiser: str
    anchor: str
    n_restarts: int
    tol: Any  # a number, or None: the gain left is the test
    max_steps: int
    diagnostics: int  # fresh draws for the verdict; 0 for none
    may_use_fewer: bool  # where fewer tell as much; not where the user gives a number
    on_indefinite: str
    hyper_steps: int
    hyper_posterior: bool
    hyper_prior: Callable | None
    memory: int
    dtype: np.dtype
    symmetric: str
    structure: str
    mixture: Mixture | None = None  # what the best Gaussian of "auto" is the beginning of

    @property
    def family_name(self) -> str:
        if self.mixture is not None:
            return self.mixture.name
        if self.is_auto:
            return AUTO
        return "laplace" if self.richest is None else self.richest.name

    @property
    def by_stein(self) -> bool:
        """Whether the whole covariance is found by Stein steps."""
        whole = self.richest is not None and self.richest.name == FullRank.name
        return whole and self.optimiser in (AUTO, "stein")

    @property
    def n_fresh(self) -> int:
        """Fresh draws also decide whether the fixed ones are enough, diagnostics or not."""
        return self.diagnostics or N_FRESH

    def within_reach(self, dim: int) -> "Options":
        """ "auto" ends at "eig" where more draws than dimensions do not fit into memory."""
        if self.is_auto and self.draws is None and 8 * 4 * dim**2 > self.memory // 4:
            return dataclasses.replace(self, richest=EigenScale())
        return self

    def rule_for(self, target: Target) -> Draws | Quadrature | None:
        """How expectations are taken for this problem: quadrature where it applies, otherwise
        draws; refused with a reason where it cannot work."""
        dim = target.structure.size
        if self.richest is None:
            return None
        if (reason := self.richest.refusal(dim)) is not None:
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
        assert self.richest is not None
        root = self.richest.updates_root
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


def refuse_family_as_data(data: Any) -> None:
    """The third argument of 0.1.0 was the family."""
    if isinstance(data, str | Family | Mixture) or (
        isinstance(data, type) and issubclass(data, Family)
    ):
        if isinstance(data, str) and data not in (AUTO, "laplace", *NAMES, Mixture.name):
            raise InputError(f"data must be arrays, not the text {data!r}.")
        said = f'"{data}"' if isinstance(data, str) else "..."
        raise InputError(f"a family goes by keyword: family={said}. What follows init is data.")


def fewest_nodes(n_predictors: int) -> Quadrature:
    """Where a search begins. Of many predictors few nodes are so rough that steps go astray."""
    if n_predictors == 1:
        return Quadrature(32)
    by_pairs = 2 ** math.ceil(math.log2(2 * n_predictors**2))
    return Quadrature(max(64, min(by_pairs, 256), 4 * n_predictors))


def checked(given: FitOptions) -> Options:
    """With defaults for what is left out; a sentence for what cannot be."""
    asked: dict[str, Any] = {**DEFAULTS, **given}
    one_of("optimiser", asked["optimiser"], OPTIMISERS)
    one_of("on_indefinite", asked["on_indefinite"], POLICIES)
    one_of("anchor", asked["anchor"], ANCHORS)
    one_of("dtype", asked["dtype"], tuple(FLOAT_TYPES))
    one_of("symmetric", asked["symmetric"], SYMMETRIC)
    one_of("structure", asked["structure"], STRUCTURES)
    key_words(asked["key"])
    family = asked["family"]
    mixture = asked_for(family)
    is_auto = mixture is not None or (isinstance(family, str) and family == AUTO)
    richest = FullRank() if is_auto else named(family)
    if asked["optimiser"] == "stein" and not isinstance(richest, FullRank):
        raise InputError('optimiser="stein" finds a whole covariance: use it with family="full".')
    return Options(
        richest=richest,
        is_auto=is_auto,
        draws=_draws(asked["draws"]),
        key=asked["key"],
        optimiser=asked["optimiser"],
        anchor=asked["anchor"],
        n_restarts=_count("n_restarts", asked["n_restarts"], least=0),
        tol=_tolerance(asked["tol"]),
        max_steps=_count("max_steps", asked["max_steps"], least=1),
        diagnostics=_fresh_draws(asked["diagnostics"]),
        may_use_fewer=isinstance(asked["diagnostics"], bool),
        on_indefinite=asked["on_indefinite"],
        hyper_steps=_count("hyper_steps", asked["hyper_steps"], least=0),
        hyper_posterior=_flag("hyper_posterior", asked["hyper_posterior"]),
        hyper_prior=_prior(asked["hyper_prior"]),
        memory=_bytes(asked["memory"]),
        dtype=FLOAT_TYPES[asked["dtype"]],
        symmetric=asked["symmetric"],
        structure=asked["structure"],
        mixture=mixture,
    )


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(f'"{choice}"' for choice in choices)
        raise InputError(f"{name} must be one of {known}, got {value!r}.")


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def _prior(given: Any) -> Callable | None:
    if given is not None and not callable(given):
        raise InputError(
            "hyper_prior must be a function of the hyperparameters that gives a log density, not "
            f"{type(given).__name__}."
        )
    return given


def _is_integer(value: Any, and_bool: bool = False) -> bool:
    return isinstance(value, int | np.integer) and (and_bool or not isinstance(value, bool))


def _count(name: str, value: Any, least: int) -> int:
    if not _is_integer(value) or value < least:
        kind = "positive" if least else "non-negative"
        raise InputError(f"{name} must be a {kind} integer, got {value!r}.")
    return int(value)


def _tolerance(tol: Any) -> float | None:
    if tol is None:
        return None
    real = isinstance(tol, numbers.Real) and not isinstance(tol, bool)
    if not real or not 0 < float(tol) < 1:
        raise InputError(
            f"tol must be between 0 and 1 (posterior standard deviations), got {tol!r}."
        )
    return float(tol)


def _fresh_draws(diagnostics: Any) -> int:
    if not _is_integer(diagnostics, and_bool=True) or 1 < diagnostics < 100 or diagnostics < 0:
        raise InputError(
            "diagnostics must be True, False or a number of fresh draws of at least 100, "
            f"got {diagnostics!r}."
        )
    return N_FRESH if diagnostics == 1 else int(diagnostics)


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
