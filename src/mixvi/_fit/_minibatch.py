"""One problem of very many rows, from mini-batches, from start to Posterior.

the reference .. the mode of a few batches alone
an exact pass .. value, gradient and Hessian of all rows there
the mode ....... from fresh batches, as they differ from that parabola; where noise is in the way
                 another exact pass, nearer to the mode; where they find none, exact passes alone
the family ..... rounds of fresh batches (`_noisy_stein.py`)
judged ......... by fresh draws and fresh batches, whose noise goes into the report, or by all rows
                 where so many batches would be no less work
"""

import dataclasses
import math
from typing import Any

import numpy as np

from .._approximate._bound import Shape, lost_to_rule
from .._approximate._laplace import Laplace, eigen_root, laplace
from .._approximate._noisy_stein import FIRST, GROWTH, Asker, NoisyState, Round, noisy_stein
from .._arrays._draws import OTHER_NODES, Draws, Matched, Quadrature
from .._density._batches import Batch, Batches, BatchSource, Parabola
from .._density._pieces import Pieces
from .._density._piecewise import Piecewise
from .._density._protocol import Density
from .._density._random_rows import RandomRows
from .._errors import Code, InputError
from .._judge._diagnosis import Elsewhere
from .._judge._fresh import KNOWN, Judged, judged
from .._judge._mixture import with_moments
from .._judge._rows import judged_by_rows, row_noise, with_noise
from .._judge._verdict import is_sure
from .._watch import FAMILY, MODE, VERDICT, keep, stage
from ._auto import GAIN
from ._case import NOTHING_FOUND, Case, Fitted, Problem, Spec
from ._enough import DRAW_LOSS, MOST_NODES, MOST_POINTS
from ._events import Event, LaplaceLeaves, QuadratureCosts, WholeChanges
from ._options import AUTO, Options
from ._outcome import Outcome, failure, finish, subject_of
from ._posterior import Posterior

# Nats that noise may cost a Gaussian, and that a search may leave.
TOL = 1e-3
# How near to the mode of some rows the search for a reference ends, in posterior sds.
ROUGH = 0.1
# A reference so near (in posterior sds) is not improved; exact passes at most.
NEAR, MOST_EXACT = 0.3, 5
FAMILIES = ("auto", "laplace", "mu", "full")


def refuse_minibatch(log_density: Any, data: Any, hyper: Any, options: Options) -> None:
    """What does not go with mini-batches, and what to do instead."""
    pieces = _pieces(log_density, data)
    asked: list[tuple[bool, str]] = [
        (hyper is not None, "hyper= is learnt from exact passes: leave minibatch= out, or fix it"),
        (options.n_restarts > 0, "n_restarts= is for exact passes: give other starts as init"),
        (options.tol is not None, "tol= is for exact passes: noise decides where a search ends"),
        (options.anchor == "average", 'anchor="average" is for exact passes'),
        (options.dtype != np.float64, 'sums of very many rows take dtype="float64"'),
        (
            options.optimiser not in (AUTO, "stein"),
            f'optimiser="{options.optimiser}" is for exact passes: leave it out',
        ),
        (
            options.family_name not in FAMILIES,
            f'family="{options.family_name}" is for exact passes; with mini-batches there are '
            + ", ".join(f'"{one}"' for one in FAMILIES),
        ),
        (
            isinstance(options.draws, Draws) and not isinstance(options.draws, Matched),
            "draws must be matched, which integrate a parabola exactly: draws=mixvi.Matched(n)",
        ),
        (not pieces.gives_rows, "rows are drawn on this machine, not on the workers of a cluster"),
    ]
    for refused, why in asked:
        if refused:
            raise InputError(f"minibatch=: {why}.")
    rows, n = options.minibatch or 0, pieces.n_rows
    if FIRST * rows > n:
        raise InputError(
            f"minibatch={rows} is too large for {n:,} rows: {FIRST} batches, the fewest that tell "
            "their noise, would be all of them. Leave it out: exact passes are cheaper then."
        )


def _pieces(log_density: Any, data: Any) -> Pieces:
    if isinstance(data, Pieces):
        return data
    if isinstance(log_density, Piecewise):
        return log_density.pieces
    what = "a density that holds its own data" if isinstance(log_density, Density) else "these data"
    raise InputError(
        f"minibatch= draws rows from data in pieces, not from {what}: give "
        "data=mixvi.Pieces.arrays(...) with a mixvi.Additive or a mixvi.LinearPredictor, or "
        "mixvi.models.Model(...).density(pieces, ...)."
    )


def solve_by_batches(problem: Problem, warm: Posterior | None = None) -> Outcome:
    with np.errstate(all="ignore"):
        source = _source(problem)
        case = _mode(problem, source, warm)
        if not case.found.found:
            return failure(case)
        keep(case)
        fitted, last = _family(case, source)
        if fitted.found_nothing:
            return failure(case, fitted)
        keep(case, fitted)
        fresh, noise = _judged(case, fitted, source, last)
        fitted = dataclasses.replace(fitted, judged=fresh)
        return _finished(case, fitted, source, last, noise)


def _source(problem: Problem) -> BatchSource:
    whole: Any = problem.density.inner
    while not isinstance(whole, Piecewise):  # a checkpoint is around it
        whole = whole.inner
    assert problem.options.minibatch is not None
    rows = RandomRows(whole.pieces, problem.options.minibatch, problem.options.key)
    return BatchSource(problem.density, rows, whole.part_for)


# --- the mode ---------------------------------------------------------------------------------


@stage(MODE)
def _mode(problem: Problem, source: BatchSource, warm: Posterior | None) -> Case:
    policy, point = problem.options.on_indefinite, problem.start
    if warm is None:
        rough = laplace(source.fresh(FIRST), point, policy, mode_tol=ROUGH)
        if not rough.found:
            return Case(problem, _exact(problem, source, point))
        point = rough.mode
    n, most = FIRST, _most(problem.options, source)
    source.refer_to(point)
    while True:
        batches = source.fresh(n)
        found = laplace(batches, point, policy)
        if not found.found:
            return Case(problem, _exact(problem, source, point))
        seen = _round_at(batches, found)
        wanted = math.ceil(n * max(seen.noise / TOL, (seen.elbo_se / KNOWN) ** 2))
        if wanted <= n:
            return Case(problem, found)
        away = np.linalg.norm(np.linalg.solve(found.root, found.mode - point))
        dearer = 2 * wanted * source.rows.rows > source.n_rows
        if dearer and away > NEAR and source.n_exact < MOST_EXACT:
            point, n = found.mode, FIRST
            source.refer_to(point)
        elif n >= most or dearer:
            return Case(problem, _exact(problem, source, found.mode))
        else:
            n = min(wanted, GROWTH * n, most)


def _most(options: Options, source: BatchSource) -> int:
    """Batches that are held at a time."""
    each = source.rows.rows * source.rows.pieces.layout.row_bytes
    return max(FIRST, min(options.max_steps, options.memory // each))


def _exact(problem: Problem, source: BatchSource, point: np.ndarray) -> Laplace:
    """The mode by all rows. Far from a reference a parabola may be wrong in sign, and its noise
    without end; and what is wrong with the log density itself, all rows must say."""
    found = laplace(problem.density, point, problem.options.on_indefinite)
    source.n_exact += found.n_steps + 1
    if found.found:
        known = found.log_density, found.gradient, -found.precision
        source.reference = Parabola(found.mode, *known)
    return found


def _round_at(batches: Batches, found: Laplace) -> Round:
    """What single batches say of Laplace's Gaussian, by gradient and Hessian at the mode."""
    root = found.root

    def shape(batch: Batch) -> Shape:
        value, gradient, hessian = batch.curvature(found.mode)
        return Shape(value, root.T @ gradient, -root.T @ hessian @ root)

    return Round(found.mode, root, tuple(batches.asked(shape)))


# --- the family -------------------------------------------------------------------------------


@stage(FAMILY)
def _family(case: Case, source: BatchSource) -> tuple[Fitted, Round | None]:
    """And the last round, where there was one."""
    options, spec = case.options, case.problem.fixed
    if options.richest is None or spec is None:
        return Fitted("laplace"), None
    mean_only = options.family_name == "mu"
    at = case.found.mode, eigen_root(case.found.root)
    asker = _asker(case, source, spec)
    first, events = asker.round(*at, FIRST, mean_only), ()
    settled = first.noise <= TOL and case.found.n_repaired == 0
    if options.is_auto and settled and not first.stands_out(GAIN):
        return Fitted("laplace", choice=LaplaceLeaves(max(first.gain, 0.0))), first
    gain = first.gain if math.isfinite(first.gain) else None
    asked: Round | None = first
    n_batches = 0
    while True:
        most = max(FIRST, options.max_steps - n_batches)
        ended = noisy_stein(asker, *at, TOL, most, mean_only, asked)
        n_batches += ended.n_batches
        more, loss = _more_nodes(case, source, ended, spec)
        if more is None:
            break
        if more == spec:
            events = (QuadratureCosts(spec.n, loss),)
            break
        spec, at, asked = more, (ended.state.mean, ended.state.root), None
        asker = _asker(case, source, spec)
    name = "mu" if mean_only else "full"
    choice: Event | None = WholeChanges(gain, at_once=True) if options.is_auto else None
    state = dataclasses.replace(ended.state, n_passes=n_batches)
    return Fitted(name, state, spec, events=events, choice=choice), ended.last


def _asker(case: Case, source: BatchSource, spec: Spec) -> Asker:
    if isinstance(spec, Quadrature):
        nodes = spec.make(np.dtype(np.float64), case.problem.target.n_predictors)
        return Asker(source, nodes, case.options.key)
    return Asker(source, spec, case.options.key)


def _more_nodes(
    case: Case, source: BatchSource, ended: NoisyState, spec: Spec
) -> tuple[Quadrature | None, float]:
    """Twice as many, where these cost too much, and what they cost; None where they are enough; the
    same where there may be no more."""
    if not isinstance(spec, Quadrature) or ended.state.code in NOTHING_FOUND:
        return None, 0.0
    n_predictors = case.problem.target.n_predictors or case.density.n_predictors
    kind, at = np.dtype(np.float64), (ended.state.mean, ended.state.root)
    one, most, allowed = case.problem.rule(spec), MOST_NODES, TOL
    other = case.problem.rule(spec.doubled())
    if n_predictors > 1:
        other, most, allowed = spec.make(kind, n_predictors, OTHER_NODES), MOST_POINTS, DRAW_LOSS
    batches = source.fresh(1)
    loss = lost_to_rule(batches, *at, one, other)
    if n_predictors == 1:
        values = [batches.expect(*at, rule).value for rule in (one, other)]
        loss = max(loss, abs(values[0] - values[1]))
    if loss <= allowed:
        return None, loss
    fixed = case.options.draws is not None or 2 * spec.n > most
    return (spec if fixed else spec.doubled()), loss


# --- the verdict and the end ------------------------------------------------------------------


@stage(VERDICT)
def _judged(
    case: Case, fitted: Fitted, source: BatchSource, last: Round | None
) -> tuple[Judged | None, float]:
    """And the noise that the choice of rows leaves in the bound."""
    options, at = case.options, fitted.gaussian(case.found)
    if not options.diagnostics:
        return None, math.nan if last is None else last.elbo_se
    n, key = options.n_fresh, options.key
    over, noise = _to_judge_by(case, source, at)
    fresh = judged(over, *at, key, n, all_of_them=not options.may_use_fewer)
    if not fresh.diagnosis.n_non_finite:
        subject, elsewhere = subject_of(case, fitted), _elsewhere(case)
        most_fresh = None if options.may_use_fewer else n
        fresh = with_moments(
            over,
            *at,
            key,
            fresh,
            most_fresh,
            lambda said: is_sure(said, subject, elsewhere),
        )
    return with_noise(fresh, noise), noise


def _to_judge_by(
    case: Case, source: BatchSource, at: tuple[np.ndarray, Any]
) -> tuple[Density, float]:
    """As many batches as it takes, or all rows, and the noise of the bound."""
    options, n_batches = case.options, FIRST
    most = _most(options, source)
    while True:
        batches = source.fresh(n_batches)
        noise = row_noise(batches, *at, options.key, options.n_fresh)
        if not noise > KNOWN or n_batches >= most:
            return batches, noise
        wanted = math.ceil(n_batches * (noise / KNOWN) ** 2)
        if wanted * source.rows.rows > source.n_rows:
            source.n_exact += 1
            return case.problem.density, 0.0
        n_batches = min(wanted, GROWTH * n_batches, most)


def _elsewhere(case: Case) -> Elsewhere:
    return Elsewhere(log_density=case.found.log_density, point=case.found.mode)


def _finished(
    case: Case, fitted: Fitted, source: BatchSource, last: Round | None, noise: float
) -> Outcome:
    post, error = finish(case, fitted, _elsewhere(case))
    rows = source.rows.rows
    gain_left = None if last is None else max(last.gain, 0.0)
    stats = dataclasses.replace(
        post.stats,
        passes=getattr(fitted.state, "n_passes", None),
        gain_left=gain_left if fitted.state is None else fitted.state.gain_left,
        batch_rows=rows,
        batches=source.n_batches,
        exact_passes=source.n_exact,
        row_noise=noise if math.isfinite(noise) else None,
    )
    told = judged_by_rows(post.judgement, noise, case.density.log_concave)
    status = _status(fitted, source, last)
    return dataclasses.replace(post, stats=stats, judgement=told, status=status), error


def _status(fitted: Fitted, source: BatchSource, last: Round | None) -> str:
    n_exact, state, spec = source.n_exact, fitted.state, fitted.spec
    from_what = (
        f"{source.n_batches} mini-batches of {source.rows.rows:,} rows and {n_exact} exact "
        f"pass{'es' * (n_exact > 1)}"
    )
    told = [*fitted.events, *([fitted.choice] if fitted.choice else [])]
    note = "".join(f" {event.sentence}" for event in told)
    if state is None or spec is None or last is None:
        return f"Mode found from {from_what}.{note}"
    ended = {
        Code.OK: "Converged",
        Code.BOUND_OUT_OF_STEPS: "Stopped by max_steps, not converged",
        Code.BOUND_STUCK: "Stuck (no step raises the bound: is the log density smooth?)",
    }[state.code]
    over = f"{spec.n} {spec.kind} {'nodes' if isinstance(spec, Quadrature) else 'draws each'}"
    left = f"about {max(state.gain_left, 1e-12):.1g} nat left"
    if state.code is not Code.OK:
        left += f", where noise costs {last.noise:.1g}"
    return f"{ended} with {from_what}, the last {last.n} over {over}; {left}.{note}"
