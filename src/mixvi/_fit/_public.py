"""`fit` and `laplace`: public entry points; failures become exceptions here."""

import dataclasses
import time
import warnings
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
from jaxtyping import PyTree

from .._density._constraints import constrained
from .._density._counted import Counted
from .._density._make import density_of, prepared, refuse_hyper, refuse_wrong_gradient
from .._density._recorded import recorded
from .._density._target import Target
from .._density._with_prior import HyperPrior, WithPrior
from .._errors import InputError, NotConvergedWarning
from .._watch import Step, Watch
from ._attended import Attended
from ._case import Problem
from ._interrupted import given_back
from ._matrix_free import solved_by_products
from ._minibatch import refuse_minibatch, solve_by_batches
from ._nested import integrated, refuse_integrating
from ._options import (
    DENSE,
    FitOptions,
    LaplaceOptions,
    Options,
    checked,
    refuse_family_as_data,
    with_options,
)
from ._outcome import Outcome
from ._posterior import Posterior
from ._restarts import solve
from ._structure import chosen, densified
from ._structured import solved_by_rows


@with_options(LaplaceOptions)
def laplace(
    log_density: Callable,
    init: PyTree,
    data: PyTree = None,
    *,
    hyper: PyTree = None,
    constraints: Any = None,
    throw: bool = True,
    progress: bool | None = None,
    callback: Callable[[Step], Any] | None = None,
    on_interrupt: str = "raise",
    checkpoint: Any = None,
    **options: Unpack[LaplaceOptions],
) -> Posterior:
    """The Laplace approximation: the mode, and the exact Hessian there.

    The arguments are those of `fit`. Hyperparameters maximise Laplace's evidence. With
    `constraints=` the mode is that of the unbounded parameters.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import mixvi
    >>> post = mixvi.laplace(lambda w: -0.5 * ((w - 3.0) / 2.0) ** 2, 0.0)
    >>> float(post.mean), float(post.std)
    (3.0, 2.0)
    >>> post = mixvi.laplace(lambda x: 3 * jnp.log(x) - x, 1.0, constraints={"w": "positive"})
    >>> post.names, round(float(np.exp(post.flat_mean[0])), 6)
    (('log w',), 4.0)
    """
    attended = Attended("laplace", progress, callback, on_interrupt)
    asked: FitOptions = {"family": "laplace", **options}
    given = log_density, init, data, hyper, constraints
    return _solved(*given, throw, attended, checkpoint, asked)


@with_options(FitOptions)
def fit(
    log_density: Callable,
    init: PyTree,
    data: PyTree = None,
    *,
    hyper: PyTree = None,
    constraints: Any = None,
    throw: bool = True,
    progress: bool | None = None,
    callback: Callable[[Step], Any] | None = None,
    on_interrupt: str = "raise",
    checkpoint: Any = None,
    **options: Unpack[FitOptions],
) -> Posterior:
    """The Laplace Gaussian of a log density, adapted by a variational bound over fixed draws.

    **Arguments:**

    - `log_density`: `log_density(w)`, `log_density(w, data)`, `log_density(w, hyper)` or
      `log_density(w, hyper, data)`: the unnormalised log posterior, one number, written with
      `jax.numpy` (or a NumPy function and its gradient: `mixvi.from_numpy`). A
      `mixvi.LinearPredictor` is integrated by quadrature.
    - `init`: where to start; any pytree, also an equinox module or a registered dataclass. Real
      numbers are the parameters; functions, text, booleans and other objects are constants, which
      come back in their places. Integers are parameters where nothing is real (`init=0`) and beside
      real numbers where they stand alone in dicts, lists and tuples (`{"a": 0, "b": 0.5}`); arrays
      of them, and those in fields of a class, are then constants. A `Posterior` is a warm start.
    - `data`: passed on as the last argument: any pytree of arrays. A data frame (pandas, polars) is
      a dict of its columns, `data["x"]`. New data of the same shape reuse compiled code. Of more
      rows than memory holds: `mixvi.Pieces`, with a `mixvi.Additive` as log density.
    - `family`: what may adapt: "auto" (as much as pays: Laplace where that leaves less than 0.002
      nat to gain, otherwise the poorest of "mu", "eig" and "full" that does), "laplace" (nothing),
      "mu", "eig", "lr", "full", "diag", or an instance such as `mixvi.LowRank(rank=2)`; "mixture"
      or `mixvi.Mixture(n_components)`: several Gaussians, as many as pay.
    - `hyper`: a start for hyperparameters to be learnt, any pytree of real numbers on unbounded
      scales (write `log_alpha`, not `alpha`). The log density must then be normalised as a function
      of them: `log p(data | w, hyper) + log p(w | hyper)`. Laplace's evidence is maximised first,
      then the bound over the Gaussian and the hyperparameters together.
    - `constraints`: bounds by name, `{"sigma": "positive", "p": "unit", "rho":
      mixvi.Interval(-1, 1), "weights": "simplex", "cuts": "ordered"}`. `init` and the log density
      are those of the bounded parameters; the Gaussian is over unbounded ones and the log-Jacobian
      is added here. The mode is that of the unbounded ones.
    - `draws`: how many (matched) draws, or `mixvi.IID(n)`, `mixvi.Matched(n)`, `mixvi.Sobol(n)`.
      Left out: max(256, 4 D) matched ones, doubled while the bound on fresh draws differs; for
      a `LinearPredictor` `mixvi.Quadrature(32)`, doubled until the integrals stand still (256 or
      more for several predictors per observation).
    - `optimiser`: "auto" ("stein" for the whole covariance, otherwise "bfgs"), "bfgs" (L-BFGS
      above 2000 free numbers), "lbfgs", "scg", or "stein" (for `family="full"`).
    - `anchor`: the Gaussian that a family adapts: "mode" (Laplace's, as in the paper), "average"
      (one that Stein steps find from gradients averaged over draws), or "auto": the mode's, unless
      there is none, its Hessian is indefinite or its Gaussian falls far short of its evidence.
    - `n_restarts`: searches for other modes, from so many starts spread around `init`.
    - `key`: an integer or a JAX key. The same inputs and key give the same numbers.
    - `tol`: largest gradient and step at the end, in posterior standard deviations. Left out, a
      search ends where less than 1e-4 nat is left to gain, which fresh draws could not see.
    - `max_steps`: passes over the draws in one search.
    - `diagnostics`: judge the result on fresh draws: 1000, or 128 where these tell as much; a
      number is the number used.
    - `on_indefinite`: "raise", or repair the Hessian by "absolute" or "damp".
    - `hyper_steps`: most evaluations of Laplace's evidence; 0 leaves its hyperparameters alone.
    - `hyper_posterior`: integrates the hyperparameters over their posterior, explored from its mode
      on a grid (up to two, or three that are far from normal) or a central composite design; the
      answer is a mixture of Gaussians, and `post.hyper_posterior` tells of the hyperparameters.
    - `hyper_prior`: a function of the hyperparameters that gives their log prior density, which is
      added to `log_density`. Left out, it is whatever the log density says of them, else flat.
    - `memory`: bytes that a pass over the draws may take, such as "2GiB"; 1 GiB when left out
      (an eighth of an accelerator's).
    - `structure`: of the root of the covariance: "dense", or for many parameters "sparse" (a
      `LinearPredictor` with a sparse design or prior precision), "low_rank" (few rows, or any log
      density: a diagonal and a few directions) or "diagonal", with which nothing of D x D numbers
      is formed. "auto": dense up to 2000 parameters (5000 of other log densities), otherwise what
      the log density is known to be, and `status` says so.
    - `minibatch`: with `data=mixvi.Pieces...`, rows of a mini-batch: after one exact pass or a few,
      all else is estimated from rows drawn at random, and the noise is part of the report. Worth it
      where passes over all rows are what takes long; left out, every pass is exact.
    - `symmetric`: where all modes seen are images of each other (labels switch, signs flip):
      "report" them in the verdict, or "accept" one of equals and judge it alone.
    - `throw`: raise on failure; otherwise a Posterior of NaNs comes back with its status.
    - `dtype`: "float64", or "float32" on request.
    - `progress`: a line on stderr that says what a fit of more than three seconds is doing; by
      default when that is a terminal.
    - `callback`: a function that is called with a `mixvi.Step` (stage, passes, bound, gain left,
      seconds) at every pass and Newton step. What it raises ends the fit.
    - `on_interrupt`: what Ctrl-C does: "raise" KeyboardInterrupt, or "return" the best Gaussian
      until then, not converged and not to be trusted, as its status says; where there is not even
      a mode, it is raised all the same.
    - `checkpoint`: a file that keeps what took long to compute. A fit that was killed goes on from
      there when it is called again, and ends with the same numbers. A fit that has converged
      removes it. Worth it where one pass over the data takes a second or more.

    **Returns:** a `Posterior`.

    >>> import jax.numpy as jnp
    >>> import mixvi
    >>> def log_density(w, data):  # counts with a log-normal rate
    ...     return (data * w - jnp.exp(w)).sum() - 0.5 * w**2
    >>> post = mixvi.fit(log_density, 0.0, data=jnp.array([4.0, 7.0, 3.0, 6.0]))
    >>> post.converged, post.verdict[:5]
    (True, 'Trust')
    """
    attended = Attended("fit", progress, callback, on_interrupt)
    given = log_density, init, data, hyper, constraints
    return _solved(*given, throw, attended, checkpoint, options)


def _solved(
    log_density: Callable,
    init: PyTree,
    data: PyTree,
    hyper: PyTree,
    constraints: Any,
    throw: bool,
    attended: Attended,
    checkpoint: Any,
    given: FitOptions,
) -> Posterior:
    began = time.perf_counter()
    refuse_family_as_data(data)
    options = checked(given)
    with attended.watching() as watch:
        problem = log_density, init, data, hyper, constraints, options
        post, error = _outcome(*problem, watch, checkpoint)
    stats = dataclasses.replace(post.stats, seconds=time.perf_counter() - began)
    post = dataclasses.replace(post, stats=stats)
    if error is not None and throw:
        raise error
    if error is None and not post.converged:
        warnings.warn(post.status, NotConvergedWarning, stacklevel=4)
    return post


def _outcome(
    log_density: Callable,
    init: PyTree,
    data: PyTree,
    hyper: PyTree,
    constraints: Any,
    options: Options,
    watch: Watch | None,
    checkpoint: Any,
) -> Outcome:
    warm = init if isinstance(init, Posterior) else None
    if warm is not None:
        init, hyper = warm.start, warm.hyper if hyper is None else hyper
    given = (init, data, options.dtype, hyper)
    target, start = prepared(log_density, *given)
    bounds = constraints or (None if warm is None else warm.constraints)
    choice = chosen(log_density, target, options, bounds)
    if options.hyper_prior is not None and target.hyper_structure is None:
        raise InputError("hyper_prior= is a prior of hyperparameters: give their start, hyper=...")
    if choice.name != DENSE:
        _refuse_dense_only(options, choice.name)
        if checkpoint is not None:
            raise InputError(
                f'checkpoint= is for dense roots; this fit has structure="{choice.name}".'
            )
        if choice.by_rows:
            return solved_by_rows(target, start, options, choice)
        inner = density_of(log_density, target, options.dtype, options.memory, data).inner
        return solved_by_products(target, inner, start.astype(np.float64), options, choice)
    if options.minibatch is not None:
        refuse_minibatch(log_density, data, hyper, options)
    if (dense := densified(log_density)) is not log_density:
        log_density, (target, start) = dense, prepared(dense, *given)
    problem = _problem(log_density, target, start, data, hyper, constraints, options, warm)
    if options.hyper_posterior:
        refuse_integrating(problem)
    if checkpoint is None:
        return _attended(problem, warm, watch)
    if options.hyper_posterior:
        raise InputError("checkpoint= does not go with hyper_posterior=True yet: leave one out.")
    return _recorded(problem, warm, watch, checkpoint)


def _refuse_dense_only(options: Options, structure: str) -> None:
    for name in ("hyper_posterior", "hyper_prior"):
        if getattr(options, name):
            raise InputError(
                f'{name}= goes with dense roots alone; this fit has structure="{structure}".'
            )


def _recorded(problem: Problem, warm: Posterior | None, watch: Watch | None, path: Any) -> Outcome:
    """With a checkpoint, which a fit that has converged does not need any more."""
    target = problem.target
    given = target.structure.names, problem.start, np.asarray(target.theta)
    with recorded(problem.density.inner, path, *given) as (density, remove):
        problem = dataclasses.replace(problem, density=Counted(density))
        post, error = _attended(problem, warm, watch)
        if error is None and post.converged:
            remove()
    return post, error


def _problem(
    log_density: Callable,
    target: Target,
    start: np.ndarray,
    data: PyTree,
    hyper: PyTree,
    constraints: Any,
    options: Options,
    warm: Posterior | None,
) -> Problem:
    """Whose programs compile in the background. `warm`: the posterior that it starts from."""
    kept = None if warm is None else (warm.constraints, warm.flat_start)
    target, start = constrained(target, start, constraints, kept)
    options = options.within_reach(target.structure.size)
    fixed = options.rule_for(target)
    if hyper is not None:
        refuse_hyper(log_density)
    density = density_of(log_density, target, options.dtype, options.memory, data)
    if options.hyper_prior is not None:
        density = _with_prior(density, target, options)
    problem = Problem(density, target, start.astype(np.float64), options, fixed)
    refuse_wrong_gradient(log_density, density, target, problem.start)
    if options.richest is not None and options.minibatch is None:
        density.prepare()
    return problem


def _with_prior(density: Counted, target: Target, options: Options) -> Counted:
    assert options.hyper_prior is not None
    assert target.hyper_structure is not None
    prior = HyperPrior(options.hyper_prior, target.hyper_structure)
    theta = np.asarray(target.theta, dtype=np.float64)
    return Counted(WithPrior(density.inner, prior, theta))


def _attended(problem: Problem, warm: Posterior | None, watch: Watch | None) -> Outcome:
    if watch is not None:
        watch.counts = problem.density.counts
    try:
        with problem.blas_threads:
            if problem.options.minibatch is not None:
                return solve_by_batches(problem, warm)
            post, error = solve(problem, warm)
            if error is None and problem.options.hyper_posterior:
                return _integrated(problem, post, watch), None
            return post, error
    except KeyboardInterrupt:
        outcome = None if watch is None or not watch.keeps else given_back(problem, watch)
        if outcome is None:
            raise
        return outcome


def _integrated(problem: Problem, post: Posterior, watch: Watch | None) -> Posterior:
    try:
        return integrated(problem, post)
    except KeyboardInterrupt:
        if watch is None or not watch.keeps:
            raise
        said = "Interrupted before the hyperparameters were integrated: this is at their mode."
        return dataclasses.replace(post, status=f"{said} {post.status}", converged=False)
