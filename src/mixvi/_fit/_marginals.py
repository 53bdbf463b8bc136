"""`post.marginal`: the distribution of one parameter, in the user's own units."""

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._density._kinds import Free, Interval, Kind
from .._density._structure import listed
from .._errors import InputError
from .._judge._tilted import Weights, believed, log_tilt, tilt_at
from .._law._curve import Marginal
from .._law._mixture import Law
from ._weights import ImportanceWeights

# Of every component: points, and how many standard deviations they reach.
N_POINTS, REACH = 161, 5.5
# Points of a component that are nearer to others' than this share of its own steps are left out.
TOO_NEAR = 0.2
# Of what hangs together (a simplex, an order) quantiles of draws are known.
SHARES = np.concatenate([[1e-4, 1e-3], np.linspace(0.005, 0.995, 199), [0.999, 0.9999]])
# Roundings of the log density of which log ratios may be made; standard errors by which the moments
# of draws may differ from their law's.
ROUNDINGS, STRANGE = 4.0, 8.0


class Place(NamedTuple):
    """Where a parameter stands among the unbounded numbers, and how it is made of its own; None
    where it is made of several."""

    at: int | None
    kind: Kind


def marginal_of(post: Any, name: str, weighted: Any) -> Marginal:
    names = post._shown.names
    if name not in names:
        hyper = post.hyper_posterior
        if hyper is not None and name in hyper.names:
            return hyper.marginal(name)
        more = "" if hyper is None else f", and of hyperparameters {listed(list(hyper.names), 3)}"
        raise InputError(
            f"marginal: there is no parameter {name!r}; names are such as "
            f"{listed(list(names), 3)}{more}."
        )
    if not post.law.is_sound:
        raise InputError(f"marginal: this fit failed. {post.status}")
    index = names.index(name)
    place = place_of(post, index)
    known = _weighted(post, weighted)
    if place.at is None:
        made = _of_draws(post, name, index)
    else:
        law = post.law.marginal(np.array([place.at]))
        made = _made(name, law, place.kind, None if known is None else known.tilt(law, place.at))
    if made.corrected:
        return made
    mean, sd = (float(one[index]) for one in post._moments)
    return dataclasses.replace(made, moments=(mean, sd))


def corrected(post: Any, indices: Iterable[int]) -> dict[int, Marginal]:
    """Of these parameters, those that weights of the fresh draws correct."""
    found: dict[int, Marginal] = {}
    if not post.law.is_sound or (known := _weighted(post, True)) is None:
        return found
    for index in indices:
        place = place_of(post, index)
        if place.at is None:
            continue
        law = post.law.marginal(np.array([place.at]))
        if (tilt := known.tilt(law, place.at)) is not None:
            found[index] = _made(post._shown.names[index], law, place.kind, tilt)
    return found


def _made(name: str, law: Law, kind: Kind, tilt: Float[np.ndarray, " degree"] | None) -> Marginal:
    grid = _grid(law)
    densities = np.exp(law.log_prob(grid[:, None]))
    if tilt is None:
        made = Marginal(name, grid, densities, below(law, grid))
    else:
        densities = densities * tilt_at(_normal_score(law, grid), tilt)
        made = Marginal.of_density(name, grid, densities, corrected=True)
    return made if isinstance(kind, Free) else _mapped(made, kind)


def place_of(post: Any, index: int) -> Place:
    """Of one of the user's parameters."""
    if (bound := post.constraints) is None:
        return Place(index, Free())
    ends = np.cumsum(bound.user.sizes)
    leaf = int(np.searchsorted(ends, index, side="right"))
    kind = bound.kinds[leaf]
    if not isinstance(kind, Free | Interval):
        return Place(None, kind)
    return Place(int(np.cumsum(bound.free.sizes)[leaf]) + index - int(ends[leaf]), kind)


class Weighted(NamedTuple):
    """Draws of the law, unbounded, and weights that make them the posterior's."""

    points: Float[np.ndarray, "n dim"]
    weights: Weights

    def tilt(self, law: Law, at: int) -> Float[np.ndarray, " degree"] | None:
        """What they ask for of one parameter, of which `law` is the marginal."""
        u = _normal_score(law, self.points[:, at].astype(np.float64))
        return log_tilt(u, self.weights, among=self.points.shape[1])


def _weighted(post: Any, given: Any) -> Weighted | None:
    """None where there are none, or none that can be believed."""
    if isinstance(given, bool):
        judged = post.judged
        if not given or judged is None or len(judged.z) != len(judged.log_p):
            return None
        points = post.law.colour(judged.z)
        weights = believed(judged.log_p - judged.log_q, _rounding(post, points))
        return None if weights is None else Weighted(points, weights)
    if isinstance(given, ImportanceWeights):
        points = _own_draws(post, given)
        with np.errstate(divide="ignore"):
            weights = believed(np.log(given.weights), _rounding(post, points))
        return None if weights is None else Weighted(points, weights)
    raise InputError(
        "marginal: weighted must be True, False or what post.importance_weights(...) gave, "
        f"not {type(given).__name__}."
    )


def _own_draws(post: Any, given: ImportanceWeights) -> Float[np.ndarray, "n dim"]:
    """The draws, unbounded; refused where they cannot be of this law. Whitened by it a draw has
    mean 0 and variance 1, whatever the law, and of a Gaussian a mean square of 1 +- sqrt(2/n)."""
    remedy = "Give what importance_weights of this very posterior returned."
    try:
        post._shown.ravel(given.draws, "its draws", batch=1)
    except InputError as err:
        raise InputError(f"marginal: weighted is of another posterior: {err} {remedy}") from err
    points = post._flat(given.draws)
    n = len(given.weights)
    if len(points) != n:
        raise InputError(f"marginal: weighted has {len(points)} draws and {n} weights. {remedy}")
    z = post.law.whiten(points)
    # At the very ends of an interval a draw has no unbounded number.
    if not np.isfinite(z).all():
        return points
    off = np.sqrt(n) * np.abs(z.mean(0))
    if len(post.law.components) == 1:
        off = np.maximum(off, np.sqrt(n / 2) * np.abs((z**2).mean(0) - 1))
    if (off > STRANGE).any():
        raise InputError(
            "marginal: weighted is of another posterior: its draws are not of this one's law, from "
            f"whose mean or spread they are {off.max():.0f} standard errors away. {remedy}"
        )
    return points


def _rounding(post: Any, points: Float[np.ndarray, "n dim"]) -> float:
    """How far log ratios may lie apart by rounding alone: of the log density, which has as many
    digits as the fit, and of the points at which it is asked for."""
    eps = float(np.finfo(post.flat_mean.dtype).eps)
    signs = np.random.default_rng(0).choice([-eps, eps], points.shape)
    with np.errstate(all="ignore"):
        moved = post.law.log_prob(points * (1 + signs)) - post.law.log_prob(points)
    log_p = np.zeros(1) if post.judged is None else np.abs(post.judged.log_p)
    found = ROUNDINGS * (eps * log_p.max() + np.ptp(moved))
    return float(found) if np.isfinite(found) else 0.0


# --- the law's own ------------------------------------------------------------------------------


def below(law: Law, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The share of its mass, of one parameter."""
    return _below(law, values, 1.0)


def _below(law: Law, values: Float[np.ndarray, " n"], sign: float) -> Float[np.ndarray, " n"]:
    from scipy.special import ndtr  # takes 0.1 s, and few need it

    z = [sign * (values - one.mean[0]) / one.std[0] for one in law.components]
    return law.weights @ ndtr(np.stack(z))


def _normal_score(law: Law, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """`Phi^-1(F(x))`, from the nearer end."""
    from scipy.special import ndtri

    low, high = _below(law, values, 1.0), _below(law, values, -1.0)
    tiny = np.finfo(np.float64).tiny
    return np.where(low < 0.5, ndtri(np.maximum(low, tiny)), -ndtri(np.maximum(high, tiny)))


def _grid(law: Law) -> Float[np.ndarray, " points"]:
    """Fine where any component is."""
    z = np.linspace(-REACH, REACH, N_POINTS)
    sds = np.array([one.std[0] for one in law.components], dtype=np.float64)
    each = [one.mean[0] + sd * z for one, sd in zip(law.components, sds, strict=True)]
    points = np.sort(np.concatenate(each).astype(np.float64))
    step = TOO_NEAR * 2 * REACH * sds.min() / (N_POINTS - 1)
    if len(sds) == 1:
        return points
    # Of those between two multiples of the least step the first.
    return points[np.unique(np.floor((points - points[0]) / step), return_index=True)[1]]


def _mapped(made: Marginal, kind: Kind) -> Marginal:
    x = np.asarray(kind.constrain(made.grid, np))
    with np.errstate(all="ignore"):
        densities = made.densities * np.exp(-kind.log_det(made.grid, np))
    densities = np.where(np.isfinite(densities), densities, 0.0)
    shares = made.shares
    if x[-1] < x[0]:
        x, densities, shares = x[::-1], densities[::-1], 1 - shares[::-1]
    rising = np.concatenate([[True], np.diff(x) > 0])
    return Marginal(made.name, x[rising], densities[rising], shares[rising], made.corrected)


def _of_draws(post: Any, name: str, index: int) -> Marginal:
    from scipy.interpolate import PchipInterpolator

    x = post._quantiles(SHARES)[:, index].astype(np.float64)
    rising = np.concatenate([[True], np.diff(x) > 0])
    smooth = PchipInterpolator(x[rising], SHARES[rising])
    grid = np.linspace(x[0], x[-1], 4 * N_POINTS)
    shares = (smooth(grid) - SHARES[0]) / (SHARES[-1] - SHARES[0])
    return Marginal(name, grid, smooth(grid, 1), shares)
