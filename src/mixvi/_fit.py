"""Room 10. `fit` and `laplace`: the compiled cores in order, and a shell that speaks and raises."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import PyTree

from . import _engine, _judge
from ._diagnostics import Elsewhere
from ._draws import Draws, Quadrature
from ._engine import Adapted, AdaptedNumbers
from ._errors import Code, NotConvergedWarning
from ._evidence import Tuned
from ._families import Family
from ._judge import Mode
from ._laplace import Laplace, LaplaceNumbers
from ._options import Options, checked
from ._outcome import Outcome, Rule, failure, finish
from ._posterior import Judged, Posterior
from ._target import Target, precision_scope, prepare

MOST_DOUBLINGS = 4


def laplace(
    log_density: Callable,
    init: PyTree,
    data: PyTree = None,
    hyper: PyTree = None,
    *,
    key: Any = 0,
    diagnostics: bool | int = True,
    on_indefinite: str = "raise",
    hyper_steps: int = 200,
    memory: int | str | None = None,
    throw: bool = True,
    dtype: str = "float64",
) -> Posterior:
    """The Laplace approximation: the mode, and the exact Hessian there.

    The arguments are those of `fit`. Hyperparameters maximise Laplace's evidence.

    >>> import mixvi
    >>> post = mixvi.laplace(lambda w: -0.5 * ((w - 3.0) / 2.0) ** 2, 0.0)
    >>> float(post.mean), float(post.std)
    (3.0, 2.0)
    """
    return fit(
        log_density,
        init,
        "laplace",
        data,
        hyper,
        key=key,
        diagnostics=diagnostics,
        on_indefinite=on_indefinite,
        hyper_steps=hyper_steps,
        memory=memory,
        throw=throw,
        dtype=dtype,
    )


def fit(
    log_density: Callable,
    init: PyTree,
    family: str | Family = "eig",
    data: PyTree = None,
    hyper: PyTree = None,
    *,
    draws: int | Draws | Quadrature | None = None,
    optimiser: str = "bfgs",
    key: Any = 0,
    tol: float = 1e-5,
    max_steps: int = 1000,
    diagnostics: bool | int = True,
    on_indefinite: str = "raise",
    hyper_steps: int = 200,
    memory: int | str | None = None,
    throw: bool = True,
    dtype: str = "float64",
) -> Posterior:
    """The Laplace Gaussian of a log density, adapted by a variational bound over fixed draws.

    **Arguments:**

    - `log_density`: `log_density(w)`, `log_density(w, data)`, `log_density(w, hyper)` or
      `log_density(w, hyper, data)`: the unnormalised log posterior, one number, written with
      `jax.numpy`. A `mixvi.LinearPredictor` is integrated by quadrature.
    - `init`: where to start; any pytree of real arrays. A `Posterior` is a warm start.
    - `family`: what may adapt: "laplace" (nothing), "mu", "eig", "lr", "full", "diag", or an
      instance such as `mixvi.LowRank(rank=2)`.
    - `data`: passed on as the last argument. New data of the same shape reuse compiled code.
    - `hyper`: a start for hyperparameters to be learnt, any pytree of real numbers on unbounded
      scales (write `log_alpha`, not `alpha`). The log density must then be normalised as a function
      of them: `log p(data | w, hyper) + log p(w | hyper)`. Laplace's evidence is maximised first,
      then the bound over the Gaussian and the hyperparameters together.
    - `draws`: how many (matched) draws, or `mixvi.IID(n)`, `mixvi.Matched(n)`, `mixvi.Sobol(n)`.
      Left out: max(256, 4 D) matched ones, doubled while the bound on fresh draws differs; for
      a `LinearPredictor` `mixvi.Quadrature(32)`, doubled until the integrals stand still.
    - `optimiser`: "bfgs" (L-BFGS above 2000 free numbers), "lbfgs" or "scg".
    - `key`: an integer or a JAX key. The same inputs and key give the same numbers.
    - `tol`: largest gradient and step at the end, in posterior standard deviations.
    - `max_steps`: passes over the draws in one search.
    - `diagnostics`: judge the result on fresh draws (1000, or the number given).
    - `on_indefinite`: "raise", or repair the Hessian by "absolute" or "damp".
    - `hyper_steps`: most evaluations of Laplace's evidence; 0 leaves its hyperparameters alone.
    - `memory`: bytes that a pass over the draws may take, such as "2GiB"; 1 GiB when left out
      (an eighth of an accelerator's).
    - `throw`: raise on failure; otherwise a Posterior of NaNs comes back with its status.
    - `dtype`: "float64", or "float32" on request.

    **Returns:** a `Posterior`.

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> def log_density(w, data):  # counts with a log-normal rate
    ...     return (data * w - jnp.exp(w)).sum() - 0.5 * w**2
    >>> post = mixvi.fit(log_density, 0.0, data=jnp.array([4.0, 7.0, 3.0, 6.0]))
    >>> post.converged, post.verdict[:5]
    (True, 'Trust')
    """
    began = time.perf_counter()
    options = checked(
        family=family,
        draws=draws,
        optimiser=optimiser,
        key=key,
        tol=tol,
        max_steps=max_steps,
        diagnostics=diagnostics,
        on_indefinite=on_indefinite,
        memory=memory,
        dtype=dtype,
        hyper_steps=hyper_steps,
    )
    warm = init if isinstance(init, Posterior) else None
    if warm is not None:
        init, hyper = warm.start, warm.hyper if hyper is None else hyper
    target, start = prepare(log_density, init, data, options.dtype, hyper)
    fixed = options.rule_for(target)
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
    fixed: Rule | None,
    warm: Posterior | None = None,
) -> Outcome:
    """One problem, from start to verdict. Never raises for what the data did."""
    _engine.forget_if_many()
    with precision_scope(options.dtype):
        found, tuned, numbers = _engine.laplace_one(target, start, **options.mode_search)
        numbers = LaplaceNumbers.fetched(numbers)
        target = target.at(tuned.theta)
        if numbers.code is not Code.OK:
            return failure(target, start, options, found, numbers)
        adapted, seen, elsewhere, note = None, None, Elsewhere(), ""
        if options.family is not None and fixed is not None:
            adapted, fixed, seen, note = _adapt(
                target, found, tuned, options, options.family, fixed, warm
            )
        if options.diagnostics:
            fitted, mean, root = target, found.mode, found.root.matrix
            if adapted is not None:
                fitted, mean, root = target.at(adapted.theta), adapted.mean, adapted.root
            seen = seen or _judge_one(fitted, mean, root, options)
            if seen.diagnosis.wants_wider:
                seen = _look_wider(fitted, mean, root, seen, options)
            elsewhere = _look_around(target, found, numbers, mean, root, seen, options)
    return finish(target, options, found, tuned, numbers, adapted, fixed, seen, elsewhere, note)


def _adapt(
    target: Target,
    found: Laplace,
    tuned: Tuned,
    options: Options,
    family: Family,
    fixed: Rule,
    warm: Posterior | None,
) -> tuple[Adapted, Rule, Judged | None, str]:
    """Fits, and goes on with more draws or nodes (each time from where the last fit ended) while
    there are too few. A number that the user chose is left as it is."""
    dim = target.structure.size
    points = options.points(fixed, dim)
    tilt, params = None, None
    # A search that could not leave its first start is better begun from the Laplace Gaussian.
    if warm is not None and not family.start_is_stationary:
        mean, root = warm.flat_mean.astype(options.dtype), warm.root.astype(options.dtype)
        tilt, params, is_better = _engine.warm_one(
            target, found, tuned, points, family, mean, root, options.memory
        )
        params = params if bool(is_better) else None
    if params is None:
        adapted = _engine.climb_one(target, found, tuned, points, family, **options.bound_search)
    else:
        adapted = _engine.resume_one(
            target, found, tilt, points, family, params, **options.bound_search
        )
    if isinstance(fixed, Quadrature):
        return _enough_nodes(target, found, tuned, adapted, options, family, fixed)
    if options.draws is not None:
        return adapted, fixed, None, ""
    return *_enough_draws(target, found, adapted, options, family, fixed), ""


def _enough_draws(
    target: Target,
    found: Laplace,
    adapted: Adapted,
    options: Options,
    family: Family,
    fixed: Draws,
) -> tuple[Adapted, Draws, Judged | None]:
    """Doubles the draws while they do not stand for fresh ones."""
    dim = target.structure.size
    for _ in range(MOST_DOUBLINGS):
        numbers = AdaptedNumbers.fetched(adapted.numbers)
        if numbers.code is not Code.OK:
            break
        seen = _judge_one(target.at(adapted.theta), adapted.mean, adapted.root, options)
        affordable = 16 * fixed.n * dim <= options.memory // 4
        if not (affordable and _judge.wants_more_draws(numbers.elbo, fixed.n, seen)):
            return adapted, fixed, seen
        more = fixed.doubled()
        again = _again(target, found, adapted, options, family, more)
        if AdaptedNumbers.fetched(again.numbers).code is Code.NON_FINITE_DRAWS:
            return adapted, fixed, seen
        adapted, fixed = again, more
    return adapted, fixed, None


def _enough_nodes(
    target: Target,
    found: Laplace,
    tuned: Tuned,
    adapted: Adapted,
    options: Options,
    family: Family,
    fixed: Quadrature,
) -> tuple[Adapted, Rule, Judged | None, str]:
    """Takes as many nodes as the integrals need where the fit ended; draws where none suffice."""

    def error(rule: Quadrature) -> float:
        fitted = target.at(adapted.theta)
        rules = (one.make(options.dtype) for one in (rule, rule.doubled()))
        return float(_engine.nodes_error_one(fitted, adapted.mean, adapted.root, *rules))

    if options.draws is not None:
        return adapted, fixed, None, _judge.nodes_note(error(fixed))
    while not (now := error(fixed)) <= _judge.NODES_TOL:
        enough = _judge.enough_nodes(fixed, error)
        if enough is None or AdaptedNumbers.fetched(adapted.numbers).code is not Code.OK:
            draws = options.draws_for(target.structure.size)
            points = options.points(draws, target.structure.size)
            again = _engine.climb_one(target, found, tuned, points, family, **options.bound_search)
            rest = _enough_draws(target, found, again, options, family, draws)
            return *rest, _judge.back_to_draws(now)
        adapted, fixed = _again(target, found, adapted, options, family, enough), enough
    return adapted, fixed, None, ""


def _again(
    target: Target,
    found: Laplace,
    adapted: Adapted,
    options: Options,
    family: Family,
    rule: Rule,
) -> Adapted:
    points = options.points(rule, target.structure.size)
    return _engine.resume_one(
        target, found, adapted.tilt, points, family, adapted.params, **options.bound_search
    )


def _judge_one(target: Target, mean: Any, root: Any, options: Options) -> Judged:
    z = _judge.fresh_draws(options, target.structure.size)
    log_p = _engine.log_densities_one(target, mean, root, z, memory=options.memory)
    return _judge.judged(z, np.asarray(log_p), np.asarray(root))


def _look_wider(target: Target, mean: Any, root: Any, seen: Judged, options: Options) -> Judged:
    z = _judge.wider_draws(options, target.structure.size)
    log_p = _engine.log_densities_one(target, mean, root, z, memory=options.memory)
    return _judge.with_wider(seen, z, np.asarray(log_p), np.asarray(root))


def _look_around(
    target: Target,
    found: Laplace,
    numbers: LaplaceNumbers,
    mean: Any,
    root: Any,
    seen: Judged,
    options: Options,
) -> Elsewhere:
    """Mass and modes that the Gaussian `(mean, root)` does not reach."""
    z = _judge.probes(options, target.structure.size)
    if z is None or seen.diagnosis.n_non_finite:
        return Elsewhere()
    mode, matrix = np.asarray(found.mode), np.asarray(found.root.matrix)

    def log_p(at: np.ndarray) -> np.ndarray:
        values = _engine.log_densities_one(target, mode, matrix, at, memory=options.memory)
        return np.asarray(values, dtype=np.float64)

    at_probes = log_p(z)
    far = _judge.surprising(z, at_probes, numbers)
    if len(far) == 0:
        return Elsewhere()
    # Always as many rays, so that they are compiled once.
    filled = np.resize(far, (_judge.MOST_CLIMBS, far.shape[1]))
    along = log_p(_judge.rays(filled))[: len(far) * len(_judge.FRACTIONS)]
    modes = [Mode(mode, matrix, numbers.log_evidence)]
    for probe in _judge.worth_climbing(far, along, numbers):
        other, _, its_numbers = _engine.laplace_one(
            target, mode + matrix @ probe, **options.other_modes
        )
        its_numbers = LaplaceNumbers.fetched(its_numbers)
        if its_numbers.code is Code.OK:
            place, its_root = np.asarray(other.mode), np.asarray(other.root.matrix)
            modes.append(Mode(place, its_root, its_numbers.log_evidence))
    # A bound at other hyperparameters is not this target's.
    evidence = seen.diagnosis.elbo.value if target.theta.size == 0 else numbers.log_evidence
    return _judge.elsewhere(z, at_probes, modes, evidence, np.asarray(mean), np.asarray(root))
