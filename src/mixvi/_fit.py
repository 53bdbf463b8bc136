"""Room 8. `fit` and `laplace`: the compiled cores in order, and a shell that speaks and raises."""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from . import _engine
from ._diagnostics import OtherMode, diagnose, verdict
from ._draws import FIXED, FRESH, PROBES, Draws, Matched, default_draws, generator, key_words
from ._engine import OPTIMISERS, Adapted, AdaptedNumbers
from ._errors import (
    Code,
    IndefiniteHessianError,
    InputError,
    MixviError,
    NoModeError,
    NonFiniteError,
    NotConvergedWarning,
)
from ._families import Family, MeanOnly, named
from ._laplace import POLICIES, Laplace, LaplaceNumbers, explain_indefinite, explain_no_mode
from ._posterior import Judged, Posterior, log_normal
from ._target import FLOAT_TYPES, Target, explain_non_finite, precision_scope, prepare

N_FRESH = 1000
N_PROBES, MOST_CLIMBS, MOST_PROBED = 128, 4, 100
# Draws are doubled while the bound on fresh draws is lower by more than this (in nats) and by
# more than its noise.
GAP, MOST_DOUBLINGS = 0.01, 4


@dataclasses.dataclass(frozen=True)
class Options:
    """Everything but the problem: checked once, shared by one fit or many."""

    family: Family | None
    draws: Draws | None
    optimiser: str = "bfgs"
    key: Any = 0
    tol: float = 1e-5
    max_steps: int = 1000
    diagnostics: int = N_FRESH
    on_indefinite: str = "raise"
    memory: int = 2**30
    dtype: np.dtype = FLOAT_TYPES["float64"]

    @property
    def search(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _engine.SEARCH}

    def in_dimension(self, dim: int) -> Draws | None:
        """The draws for a problem of this size, refused with a reason where they cannot work."""
        if self.family is None:
            return None
        root = self.family.updates_root
        draws = self.draws or default_draws(dim, root, self.memory)
        if (reason := draws.refusal(dim, root)) is not None:
            raise InputError(reason)
        rank = getattr(self.family, "rank", 1)
        if rank > dim:
            raise InputError(f"LowRank: rank {rank} exceeds the {dim} dimensions of the problem.")
        return draws


def laplace(
    log_density: Callable,
    init: PyTree,
    data: PyTree = None,
    *,
    key: Any = 0,
    diagnostics: bool | int = True,
    on_indefinite: str = "raise",
    memory: int | str = "1GiB",
    throw: bool = True,
    dtype: str = "float64",
) -> Posterior:
    """The Laplace approximation: the mode, and the exact Hessian there.

    The arguments are those of `fit`.
    """
    return fit(
        log_density,
        init,
        "laplace",
        data,
        key=key,
        diagnostics=diagnostics,
        on_indefinite=on_indefinite,
        memory=memory,
        throw=throw,
        dtype=dtype,
    )


def fit(
    log_density: Callable,
    init: PyTree,
    family: str | Family = "eig",
    data: PyTree = None,
    draws: int | Draws | None = None,
    optimiser: str = "bfgs",
    key: Any = 0,
    *,
    tol: float = 1e-5,
    max_steps: int = 1000,
    diagnostics: bool | int = True,
    on_indefinite: str = "raise",
    memory: int | str = "1GiB",
    throw: bool = True,
    dtype: str = "float64",
) -> Posterior:
    """The Laplace Gaussian of a log density, adapted by a variational bound over fixed draws.

    **Arguments:**

    - `log_density`: `log_density(w)` or, with data, `log_density(w, data)`: the unnormalised log
      posterior, one number, written with `jax.numpy`.
    - `init`: where to start; any pytree of real arrays. A `Posterior` is a warm start.
    - `family`: what may adapt: "laplace" (nothing), "mu", "eig", "lr", "full", "diag", or an
      instance such as `mixvi.LowRank(rank=2)`.
    - `data`: passed on as the last argument. New data of the same shape reuse compiled code.
    - `draws`: how many (matched) draws, or `mixvi.IID(n)`, `mixvi.Matched(n)`, `mixvi.Sobol(n)`.
      Left out: max(200, 4 D) matched ones, doubled while the bound on fresh draws is lower.
    - `optimiser`: "bfgs" (L-BFGS above 2000 free numbers), "lbfgs" or "scg".
    - `key`: an integer or a JAX key. The same inputs and key give the same numbers.
    - `tol`: largest gradient and step at the end, in posterior standard deviations.
    - `max_steps`: passes over the draws in one search.
    - `diagnostics`: judge the result on fresh draws (1000, or the number given).
    - `on_indefinite`: "raise", or repair the Hessian by "absolute" or "damp".
    - `memory`: bytes that a pass over the draws may take, such as "1GiB".
    - `throw`: raise on failure; otherwise a Posterior of NaNs comes back with its status.
    - `dtype`: "float64", or "float32" on request.

    **Returns:** a `Posterior`.
    """
    began = time.perf_counter()
    options = checked_options(
        family, draws, optimiser, key, tol, max_steps, diagnostics, on_indefinite, memory, dtype
    )
    warm = init if isinstance(init, Posterior) else None
    if warm is not None:
        init = warm.structure.unravel(warm.mode if np.isfinite(warm.mode).all() else warm.flat_mean)
    target, start = prepare(log_density, init, data, options.dtype)
    fixed = options.in_dimension(target.structure.size)
    post, error = solve(target, start, options, fixed, warm)
    post.stats["seconds"] = time.perf_counter() - began
    if error is not None and throw:
        raise error
    if error is None and not post.converged:
        warnings.warn(post.status, NotConvergedWarning, stacklevel=2)
    return post


def solve(
    target: Target,
    start: np.ndarray,
    options: Options,
    fixed: Draws | None,
    warm: Posterior | None = None,
) -> tuple[Posterior, MixviError | None]:
    """One problem, from start to verdict. Never raises for what the data did."""
    with precision_scope(options.dtype):
        found, numbers = _engine.laplace_one(
            target, start, on_indefinite=options.on_indefinite, memory=options.memory
        )
        numbers = LaplaceNumbers.fetched(numbers)
        if numbers.code is not Code.OK:
            return failure(target, start, options, found, numbers)
        if options.family is None or fixed is None:
            return finish(target, options, found, numbers)
        adapted, fixed, judged = _adapt(target, found, options, fixed, warm)
    return finish(target, options, found, numbers, adapted, fixed, judged)


def _adapt(
    target: Target, found: Laplace, options: Options, fixed: Draws, warm: Posterior | None
) -> tuple[Adapted, Draws, Judged | None]:
    """Fits, and doubles the draws (each time from where the last fit ended) while they are too few
    to stand for fresh ones. Draws that the user chose are left as they are."""
    dim = target.structure.size
    z = fixed.make(options.key, dim, FIXED).astype(options.dtype, copy=False)
    if warm is not None:
        params = _engine.nearest_one(
            found, options.family, warm.flat_mean.astype(options.dtype), warm.root.astype(options.dtype)
        )
        adapted = _engine.resume_one(target, found, z, options.family, params, **options.search)
    else:
        adapted = _engine.climb_one(target, found, z, options.family, **options.search)
    for _ in range(MOST_DOUBLINGS):
        if options.draws is not None:
            break
        numbers = AdaptedNumbers.fetched(adapted.numbers)
        if numbers.code is not Code.OK:
            break
        judged = judge(target, adapted.mean, adapted.root, options)
        affordable = 16 * fixed.n * dim <= options.memory // 4
        if not wants_more_draws(numbers.elbo, judged) or not affordable:
            return adapted, fixed, judged
        more = fixed.doubled()
        z = more.make(options.key, dim, FIXED).astype(options.dtype, copy=False)
        again = _engine.resume_one(target, found, z, options.family, adapted.params, **options.search)
        if AdaptedNumbers.fetched(again.numbers).code is Code.NON_FINITE_DRAWS:
            return adapted, fixed, judged
        adapted, fixed = again, more
    return adapted, fixed, None


def wants_more_draws(elbo_fixed: float, judged: Judged) -> bool:
    elbo = judged.diagnosis.elbo
    return math.isfinite(elbo.value) and elbo_fixed - elbo.value > max(GAP, 2 * elbo.se)


def judge(target: Target, mean: Any, root: Any, options: Options) -> Judged:
    """`log p~` and `log q` of fresh iid draws; their number is a multiple of what is asked."""
    n = options.diagnostics or N_FRESH
    z = generator(options.key, FRESH).standard_normal((n, target.structure.size))
    log_p = _engine.log_densities_one(
        target, mean, root, z.astype(options.dtype, copy=False), memory=options.memory
    )
    return judged_from(z, np.asarray(log_p, dtype=np.float64), np.asarray(root))


def judged_from(z: np.ndarray, log_p: np.ndarray, root: np.ndarray) -> Judged:
    log_det = np.log(np.abs(root)).sum() if root.ndim == 1 else np.linalg.slogdet(root)[1]
    log_q = log_normal(z, float(log_det))
    return Judged(diagnose(log_p, log_q), z, log_p, log_q)


# --- the end: a Posterior ---------------------------------------------------------------------


def finish(
    target: Target,
    options: Options,
    found: Laplace,
    numbers: LaplaceNumbers,
    adapted: Adapted | None = None,
    fixed: Draws | None = None,
    judged: Judged | None = None,
) -> tuple[Posterior, MixviError | None]:
    """From arrays on the device to what the user holds."""
    search = None if adapted is None else AdaptedNumbers.fetched(adapted.numbers)
    if search is not None and search.code is Code.NON_FINITE_DRAWS:
        return failure(target, np.asarray(found.mode), options, found, numbers, search)
    mode = np.asarray(found.mode)
    mean = mode if adapted is None else np.asarray(adapted.mean)
    root = np.asarray(found.root.matrix if adapted is None else adapted.root)
    others: tuple[OtherMode, ...] = ()
    if not options.diagnostics:
        judged = None
    else:
        with precision_scope(options.dtype):
            judged = judged or judge(target, mean, root, options)
            others = look_around(target, mode, np.asarray(found.root.matrix), numbers, options)
    converged = search is None or search.code is Code.OK
    elbo_fixed = None if search is None else search.elbo
    post = Posterior(
        structure=target.structure,
        family="laplace" if options.family is None else options.family.name,
        flat_mean=mean,
        root=root,
        mode=mode,
        log_evidence_laplace=numbers.log_evidence,
        elbo_fixed=elbo_fixed,
        judged=judged,
        other_modes=others,
        converged=converged,
        status=_status(numbers, search, fixed),
        verdict=verdict(mode.size, converged, judged and judged.diagnosis, elbo_fixed, others),
        stats=_stats(options, numbers, search, fixed),
        hessian=(found.precision, found.gradient, numbers.n_repaired),
    )
    return post, None


def look_around(
    target: Target,
    mode: np.ndarray,
    matrix: np.ndarray,
    numbers: LaplaceNumbers,
    options: Options,
) -> tuple[OtherMode, ...]:
    """Other modes that a search from far out ends in.

    Probes are Laplace draws stretched 2 to 50 times. Where the density is far above what the
    Gaussian has out there, the search for a mode is run again, from the densest such probes. This
    finds far modes in few dimensions; in many, random probes would find nothing and are not sent.
    """
    dim = target.structure.size
    if dim > MOST_PROBED:
        return ()
    rng = generator(options.key, PROBES)
    stretch = np.exp(rng.uniform(math.log(2), math.log(50), (N_PROBES, 1)))
    z = (stretch * rng.standard_normal((N_PROBES, dim))).astype(options.dtype)
    log_p = np.asarray(
        _engine.log_densities_one(target, mode, matrix, z, memory=options.memory), dtype=np.float64
    )
    r2 = (z.astype(np.float64) ** 2).sum(1)
    surprise = log_p - (numbers.log_density - 0.5 * r2)
    surprising = np.isfinite(log_p) & (surprise > 10) & (r2 > dim + 20)
    seen = [(mode, numbers.log_evidence)]
    best_first = np.argsort(-np.where(surprising, log_p, -np.inf), kind="stable")
    for i in best_first[: min(MOST_CLIMBS, surprising.sum())]:
        other, its_numbers = _engine.laplace_one(
            target, mode + matrix @ z[i], on_indefinite="raise", memory=options.memory
        )
        its_numbers = LaplaceNumbers.fetched(its_numbers)
        if its_numbers.code is not Code.OK:
            continue
        place, its_matrix = np.asarray(other.mode), np.asarray(other.root.matrix)
        apart = [
            min(np.linalg.norm(np.linalg.solve(root, place - m)) for root in (matrix, its_matrix))
            for m, _ in seen
        ]
        if min(apart) > 1.0:
            seen.append((place, its_numbers.log_evidence))
    evidence = np.array([log_evidence for _, log_evidence in seen])
    share = np.exp(evidence - np.logaddexp.reduce(evidence))
    distance = [float(np.linalg.norm(np.linalg.solve(matrix, place - mode))) for place, _ in seen]
    return tuple(OtherMode(d, float(s)) for d, s in zip(distance[1:], share[1:], strict=True))


def failure(
    target: Target,
    start: np.ndarray,
    options: Options,
    found: Laplace,
    numbers: LaplaceNumbers,
    search: AdaptedNumbers | None = None,
) -> tuple[Posterior, MixviError]:
    """A Posterior of NaNs whose status is the sentence of the error that goes with it."""
    error = _error(target, start, options, jax.device_get(found), numbers, search)
    dim = target.structure.size
    status = str(error)[0].upper() + str(error)[1:]
    post = Posterior(
        structure=target.structure,
        family="laplace" if options.family is None else options.family.name,
        flat_mean=np.full(dim, np.nan),
        root=np.full((dim, dim), np.nan),
        mode=np.asarray(found.mode),
        log_evidence_laplace=math.nan,
        elbo_fixed=None if options.family is None else math.nan,
        judged=None,
        other_modes=(),
        converged=False,
        status=status,
        verdict=f"No Gaussian: {status}",
        stats=_stats(options, numbers, None, None),
        hessian=(found.precision, found.gradient, numbers.n_repaired),
    )
    return post, error


def _error(
    target: Target,
    start: np.ndarray,
    options: Options,
    found: Laplace,
    numbers: LaplaceNumbers,
    search: AdaptedNumbers | None,
) -> MixviError:
    structure = target.structure
    if search is not None:
        whose = (
            'at draws of the Laplace Gaussian, whose width the family "mu" cannot change'
            if options.family == MeanOnly()
            else "at some of the fixed draws, however narrow the Gaussian is made"
        )
        return NonFiniteError(
            f"the log density is not finite {whose}: write constrained parameters on an unbounded "
            'scale (log of a scale, logit of a share), or use family="eig".'
        )
    if numbers.code is Code.INDEFINITE:
        return IndefiniteHessianError(explain_indefinite(structure, found.precision))
    if numbers.code is Code.NON_FINITE_START:
        return NonFiniteError(
            explain_non_finite(
                structure, start, numbers.log_density, found.gradient, target.data
            )
        )
    with precision_scope(options.dtype):
        before = float(jax.jit(Target.__call__)(target, start))
    return NoModeError(
        explain_no_mode(structure, start, found.mode, found.gradient, numbers, before)
    )


def _status(numbers: LaplaceNumbers, search: AdaptedNumbers | None, fixed: Draws | None) -> str:
    repaired = numbers.n_repaired
    note = f" The Hessian was repaired ({repaired} eigenvalues)." if repaired else ""
    if search is None or fixed is None:
        return f"Mode found in {numbers.n_steps} Newton steps.{note}"
    ended = {
        Code.OK: "Converged",
        Code.BOUND_OUT_OF_STEPS: "Stopped by max_steps, not converged,",
        Code.BOUND_STUCK: "Stuck (no step raises the bound; is the log density smooth?)",
    }[search.code]
    return (
        f"{ended} after {search.n_passes} passes over {fixed.n} {fixed.kind} draws; largest "
        f"gradient {search.gradient:.1e} per standard deviation.{note}"
    )


def _stats(
    options: Options, numbers: LaplaceNumbers, search: AdaptedNumbers | None, fixed: Draws | None
) -> dict[str, Any]:
    key = options.key if isinstance(options.key, int) else str(options.key)
    stats = {"mode_steps": numbers.n_steps, "key": key, "dtype": options.dtype.name}
    if search is None or fixed is None:
        return stats
    return stats | {
        "draws": fixed.n,
        "draws_kind": fixed.kind,
        "optimiser": options.optimiser,
        "passes": search.n_passes,
        "values": search.n_values,
        "products": search.n_products,
        "gradient": search.gradient,
    }


# --- options ----------------------------------------------------------------------------------


def checked_options(
    family: Any,
    draws: Any,
    optimiser: Any,
    key: Any,
    tol: Any,
    max_steps: Any,
    diagnostics: Any,
    on_indefinite: Any,
    memory: Any,
    dtype: Any,
) -> Options:
    _one_of("optimiser", optimiser, OPTIMISERS)
    _one_of("on_indefinite", on_indefinite, POLICIES)
    _one_of("dtype", dtype, tuple(FLOAT_TYPES))
    if draws is not None and not isinstance(draws, Draws):
        if isinstance(draws, bool) or not isinstance(draws, int | np.integer):
            raise InputError(
                f"draws must be a number of draws or mixvi.IID(n), mixvi.Matched(n), mixvi.Sobol(n), "
                f"not {draws!r}."
            )
        draws = Matched(int(draws))
    if isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 < tol < 1:
        raise InputError(f"tol must be between 0 and 1 (posterior standard deviations), got {tol!r}.")
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise InputError(f"max_steps must be a positive integer, got {max_steps!r}.")
    if not isinstance(diagnostics, int | np.integer) or (diagnostics > 1 and diagnostics < 100):
        raise InputError(
            f"diagnostics must be True, False or a number of fresh draws of at least 100, "
            f"got {diagnostics!r}."
        )
    key_words(key)
    return Options(
        family=named(family),
        draws=draws,
        optimiser=optimiser,
        key=key,
        tol=float(tol),
        max_steps=max_steps,
        diagnostics=N_FRESH if diagnostics is True or diagnostics == 1 else int(diagnostics),
        on_indefinite=on_indefinite,
        memory=_bytes(memory),
        dtype=FLOAT_TYPES[dtype],
    )


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(f'"{choice}"' for choice in choices)
        raise InputError(f"{name} must be one of {known}, got {value!r}.")


def _bytes(memory: Any) -> int:
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    try:
        if isinstance(memory, str):
            unit = memory.strip()[-3:]
            amount = float(memory.strip()[:-3]) * units[unit]
        else:
            amount = float(memory)
        if not 2**20 <= amount < 2**60:
            raise ValueError
    except (KeyError, ValueError, TypeError) as err:
        raise InputError(
            f'memory must be a number of bytes or text such as "512MiB" or "2GiB", at least '
            f'"1MiB", got {memory!r}.'
        ) from err
    return int(amount)
