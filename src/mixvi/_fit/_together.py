"""Many problems side by side on an accelerator, as far as they keep to the road.

    modes ........ Newton's own steps for all; those that have arrived are masked
    kinds ........ what may change of each: by the family asked for, or as "auto" decides
    the bound .... plain Stein steps, over more draws for those that need them
    judged ....... fresh draws, wider draws and probes of all, in one call each

The algebra is that of `_approximate._batch`. Whoever leaves the road (no mode, a Laplace Gaussian
that is poor, a probe worth a search of its own) is marked, and goes alone.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._approximate import _batch as steps
from .._approximate._batch import MEAN, WHOLE, WIDTHS, side_by_side
from .._approximate._bound import Inspection, Shape
from .._approximate._climb import FamilyState
from .._approximate._laplace import Laplace
from .._approximate._stein import Past, SteinState
from .._approximate._tilt import Learnt
from .._arrays._draws import Draws, Matched
from .._density._batch import BatchDensity
from .._density._counted import Counted
from .._density._protocol import Density
from .._density._target import precision_scope
from .._errors import Code
from .._judge._diagnosis import AS_IT_IS, WEIGHTS_WORK, Diagnosis, Elsewhere
from .._judge._elsewhere import Setting
from .._judge._elsewhere_many import Many, need_a_search
from .._judge._fresh import FEWEST, FIRST_LOOK, GAP, KNOWN, Judged, fresh_draws
from .._judge._mixture import log_wider, wider_draws
from .._judge._probes import MOST_PROBED
from .._judge._scalars import FreshScalars, MixedScalars, fresh_scalars, mixed_scalars, wider_by
from .._judge._verdict import DEFAULT_THRESHOLDS, NEAR_A_LIMIT, Subject, is_sure
from .._law._gaussian import normal_logpdf
from ._auto import GAIN, far_short
from ._batch import KINDS, Batch, Index
from ._case import Case, Fitted, Problem
from ._enough import DRAW_LOSS, MOST_DRAWS, STAGE, more_draws
from ._events import Event, LaplaceLeaves, OnlyPart, WholeChanges
from ._options import AUTO
from ._outcome import Outcome, finish

LAPLACE = -1  # beside the kinds of `_approximate._batch`
NAMES = {LAPLACE: "laplace", MEAN: "mu", WIDTHS: "eig", WHOLE: "full"}
# Newton's steps to a mode, and passes over the draws: who needs more has left the road.
MOST_NEWTON, MOST_PASSES = 40, 25

Means = Float[Any, "asked dim"]
RootsOf = Float[Any, "asked dim dim"]


@side_by_side
def _fresh_of(values, root, log_q):
    log_det = jnp.linalg.slogdet(root)[1]
    return fresh_scalars(values, log_q - log_det, jnp)


@side_by_side
def _mixed_of(fresh, wider, root, elbo, z, log_mixture):
    log_det = jnp.linalg.slogdet(root)[1]
    log_p = jnp.concatenate([fresh, wider])
    return mixed_scalars(z, log_p, log_mixture, root, elbo, log_det, jnp)


class Asked(Density):
    """In the place of a problem's density, once its questions have been answered with others'."""

    def __init__(self, dim: int, resolution: float):
        self.dim, self.resolution = dim, resolution

    def gradients(self, points: Any) -> Any:
        raise NotImplementedError("asked together with others")


class Together:
    """One batch on its way. Arrays have the problems on their first axis."""

    def __init__(self, batch: Batch):
        self.batch, self.options, n = batch, batch.options, len(batch)
        self.dim = batch.target.structure.size
        dtype, memory = self.options.dtype, self.options.memory
        self.density = BatchDensity(batch.target, batch.part(0), dtype, memory)
        self.on_road: Bool[np.ndarray, " problems"] = np.ones(n, bool)
        self.kind: Int[np.ndarray, " problems"] = np.full(n, LAPLACE)
        self.choice: list[Event | None] = [None] * n
        self.spec: list[Any] = [batch.fixed] * n
        self.elsewhere: dict[int, Elsewhere] = {}
        # What fresh draws said: how many, log densities, numbers; and with wider ones.
        self.n_fresh: Int[np.ndarray, " problems"] = np.zeros(n, int)
        self.log_p: dict[int, np.ndarray] = {}
        self.scalars = FreshScalars(*np.full((len(FreshScalars._fields), n), np.nan))
        self.mixed = MixedScalars(*np.full((len(MixedScalars._fields), n), np.nan))

    def run(self) -> None:
        self.find_modes()
        self.choose_kinds()
        self.adapt()
        self.judge()

    def those(self, wanted: Bool[np.ndarray, " problems"]) -> Index:
        """Their numbers. So that few lengths are compiled, they are repeated up to a half, a
        quarter, ... of the batch: what is written twice is the same."""
        numbers, size = np.flatnonzero(wanted), len(wanted)
        while 0 < 2 * len(numbers) <= size:
            size = math.ceil(size / 2)
        return np.resize(numbers, size) if len(numbers) else numbers

    @property
    def going(self) -> Index:
        return self.those(self.on_road)

    # --- modes --------------------------------------------------------------------------------

    def find_modes(self) -> None:
        density, rounding, start = self.density, self.density.resolution, self.batch.starts
        everyone, tol = np.arange(len(start)), max(Density.mode_tol, 100 * density.resolution)
        state = steps.newton_begun(start, *density.curvature(everyone, start))
        for _ in range(MOST_NEWTON):
            if not np.asarray(state.going).any():
                break
            answers = density.curvature(everyone, state.trial)
            state = steps.newton_stepped(state, *answers, tol=tol, rounding=rounding)
        roots = steps.laplace_roots(state.precision, rounding=rounding)
        self.newton, self.roots = jax.device_get((state, roots))
        arrived = ~(self.newton.going | self.newton.lost)
        self.on_road &= arrived & np.isfinite(self.roots.log_det)
        volume = 0.5 * self.dim * math.log(2 * math.pi) + self.roots.log_det
        self.log_evidence = np.asarray(self.newton.value + volume, float)
        self.mean, self.root = self.newton.point.copy(), self.roots.root.copy()

    # --- what may change ----------------------------------------------------------------------

    def choose_kinds(self) -> None:
        options, going = self.options, self.going
        if options.richest is None or len(going) == 0:
            return
        if not options.is_auto:
            self.kind[:] = KINDS[type(options.richest)]
            if options.anchor == AUTO:
                self.on_road &= ~self._is_poor()
            return
        # As `_auto.climbing`: Laplace where fresh draws cannot tell it from the posterior,
        # otherwise what the first pass says.
        near = self.on_road.copy()
        for n in (FIRST_LOOK, options.n_fresh):
            away = 0.5 * self._fresh_moments(near, n)[1]
            near &= away < 0.5 * GAIN
        for i in np.flatnonzero(near):
            self.choice[i] = LaplaceLeaves(float(away[i]))
        rest = self.those(self.on_road & ~near)
        if len(rest) == 0:
            return
        at = (self.newton.point[rest], self.roots.axes[rest])
        inspection = jax.device_get(
            self._begun(rest, np.full(len(rest), WHOLE), *at, self.batch.fixed)
        )
        gain = inspection.gain_mean + inspection.gain_root
        poor = inspection.lost | far_short(self.log_evidence[rest] - inspection.elbo, self.dim)
        self.on_road[rest[poor]] = False
        self.kind[rest] = np.select(
            [
                gain < GAIN,
                inspection.gain_root < GAIN,
                inspection.gain_root - inspection.gain_widths < GAIN,
            ],
            [LAPLACE, MEAN, WIDTHS],
            WHOLE,
        )
        for i, nats in zip(rest, gain, strict=True):
            if self.kind[i] == LAPLACE:
                self.choice[i] = LaplaceLeaves(float(nats))
            elif self.kind[i] == WHOLE:
                self.choice[i] = WholeChanges(float(nats), at_once=True)

    # --- the bound ----------------------------------------------------------------------------

    def adapt(self) -> None:
        """Over the first draws; then over more, for whole roots to which these cost too much."""
        n, going = len(self.batch), self.those(self.on_road & (self.kind != LAPLACE))
        self.elbo, self.gain_left, self.gradient, self.draw_loss = np.full((4, n), np.nan)
        self.mean_se, self.n_passes = np.full((n, self.dim), np.nan), np.zeros(n, int)
        spec, first = self.batch.fixed, True
        self.mean[going], self.root[going] = self.newton.point[going], self.roots.axes[going]
        while len(going):
            assert isinstance(spec, Draws)
            if 4 * 8 * len(going) * spec.n * self.dim > self.options.memory:
                self.on_road[going] = False
                return
            state = self._begun(going, self.kind[going], self.mean[going], self.root[going], spec)
            self._keep(going, self._richer(going, self._stepped(going, state, spec), spec), spec)
            if self.options.draws is not None:
                return
            dear = self.draw_loss >= (1.0 if first else 1.2) * DRAW_LOSS
            going = self.those(self.on_road & (self.kind == WHOLE) & dear)
            most = min(MOST_DRAWS, STAGE * spec.n, self.options.memory // 4 // (8 * self.dim))
            more = more_draws(spec, self.draw_loss[going].max(initial=0.0), DRAW_LOSS, most)
            if more.n == spec.n:
                return
            spec, first = more, False

    def _begun(self, going: Index, kind: Any, mean: Any, root: Any, spec: Any) -> Any:
        z, paired = self._draws(spec), isinstance(spec, Matched)
        answers = self.density.gradients(going, mean, root, z)
        return steps.stein_begun(kind, mean, root, *answers, z=z, paired=paired)

    def _stepped(self, going: Index, state: Any, spec: Draws) -> Any:
        options, rounding, z = self.options, self.density.resolution, self._draws(spec)
        # A gradient of `tol` leaves a quarter of its square or more.
        gain = 1e-4 if options.tol is None else 0.25 * options.tol**2
        state = state._replace(going=state.going & ~state.settled(gain, rounding))
        for _ in range(min(MOST_PASSES, options.max_steps - 1)):
            if not np.asarray(state.going).any():
                break
            at = steps.stein_proposed(state)
            answers = self.density.gradients(going, *at, z)
            how = {"paired": isinstance(spec, Matched), "gain": gain, "rounding": rounding}
            state = steps.stein_stepped(state, *at, *answers, z=z, **how)
        return state

    def _richer(self, going: Index, state: Any, spec: Draws) -> Any:
        """With "auto": on to the whole covariance where that turns out to pay."""
        if not self.options.is_auto:
            return state
        gain, ended = jax.device_get((state.gain, ~(state.lost | state.going)))
        pays = (self.kind[going] < WHOLE) & (gain >= GAIN) & ended
        for i, nats, goes_on in zip(going, gain, pays, strict=True):
            if goes_on:
                self.kind[i], self.choice[i] = WHOLE, WholeChanges(float(nats))
            elif self.kind[i] < WHOLE:
                self.choice[i] = OnlyPart(NAMES[int(self.kind[i])], float(nats))
        if not pays.any():
            return state
        richer = state._replace(kind=self.kind[going], going=pays, share=np.ones(len(going)))
        return self._stepped(going, richer, spec)

    def _keep(self, going: Index, state: Any, spec: Draws) -> None:
        mean, root = state.mean, state.root
        if self.options.tol is None:
            mean, root = steps.stein_ended(state)
        kept = (mean, root, state.elbo, state.gain_left, state.gradient, state.draw_loss)
        kept = jax.device_get((*kept, state.mean_se, state.n_passes))
        own = (self.mean, self.root, self.elbo, self.gain_left, self.gradient, self.draw_loss)
        for one, its in zip((*own, self.mean_se), kept, strict=False):
            one[going] = its
        self.n_passes[going] += kept[-1]
        left = np.asarray(state.lost | state.going)
        self.on_road[going[left]] = False
        for i in going:
            self.spec[i] = spec

    def _draws(self, spec: Draws) -> np.ndarray:
        return spec.make(self.options.key, self.dim, dtype=self.options.dtype)

    # --- judged -------------------------------------------------------------------------------

    def judge(self) -> None:
        """Fresh draws and as many wider ones; where few of both do not tell enough, many."""
        options = self.options
        checks_gap = options.draws is None and bool((self.kind != LAPLACE).any())
        if not (options.diagnostics or checks_gap):
            return
        n_fresh, few = options.n_fresh, min(FEWEST, options.n_fresh)
        if options.may_use_fewer:
            self._ask_afresh(self.on_road, few)
        self._ask_afresh(self.on_road & ~self._is_known(), n_fresh)
        if checks_gap:
            self.on_road &= ~self._wants_more_draws()
        if not options.diagnostics:
            return
        self._probe(self.going)
        self._ask_wider(self.on_road)
        unsure = self.on_road & ~self._is_sure()
        self._ask_afresh(unsure & (self.n_fresh < n_fresh), n_fresh)
        self._ask_wider(unsure)
        # Who takes draws of other kinds goes alone.
        self.on_road &= self._is_sure()

    def _ask_afresh(self, wanted: Bool[np.ndarray, " problems"], n: int) -> None:
        asked = self.those(wanted)
        if len(asked) == 0:
            return
        root, z = self.root[asked], self._fresh_draws(n)[0]
        values = self.density.values(asked, self.mean[asked], root, z)
        scalars = _fresh_of(values, root, log_q=normal_logpdf(z, 0.0))
        log_p, scalars = jax.device_get((values, scalars))
        self.n_fresh[asked] = n
        for one, its in zip(self.scalars, scalars, strict=True):
            one[asked] = its
        for i, its in zip(asked, log_p, strict=True):
            self.log_p[i] = np.asarray(its, float)

    def _ask_wider(self, wanted: Bool[np.ndarray, " problems"]) -> None:
        """As many wider draws as there are fresh ones."""
        wanted = wanted & (self.scalars.n_non_finite == 0)
        for n in np.unique(self.n_fresh[wanted]):
            asked = self.those(wanted & (self.n_fresh == n))
            root, z = self.root[asked], wider_draws(self.options.key, int(n), self.dim)
            wider = self.density.values(asked, self.mean[asked], root, z)
            fresh = np.stack([self.log_p[i] for i in asked])
            both = np.concatenate([self._fresh_draws(int(n))[0], z])
            parts = [normal_logpdf(both, 0.0), log_wider(both, wider_by(self.dim))]
            log_mixture = np.logaddexp(*parts) - math.log(2)
            at = (fresh, wider, root, self.scalars.elbo[asked])
            mixed = jax.device_get(_mixed_of(*at, z=both, log_mixture=log_mixture))
            for one, its in zip(self.mixed, mixed, strict=True):
                one[asked] = its

    def _is_sure(self) -> Bool[np.ndarray, " problems"]:
        """As `_verdict.is_sure`; of those that are plainly good without asking."""
        m, limits = self.mixed, DEFAULT_THRESHOLDS
        by = 2 * NEAR_A_LIMIT
        sure = (m.khat < 0.5 * AS_IT_IS) & (m.kl < 0.5 * limits.far)
        # These draws do not look along single parameters.
        sure &= self.scalars.khat < AS_IT_IS
        sure &= m.mean_off + by * m.mean_se < limits.weigh[0]
        sure &= m.sd_ratio * np.exp(by * m.sd_se) < limits.weigh[1]
        for i in np.flatnonzero(self.on_road & ~sure):
            sure[i] = is_sure(self._diagnosis(int(i)), self.subject, Elsewhere())
            sure[i] &= bool(self.scalars.khat[i] < WEIGHTS_WORK)
        return sure & self.on_road

    @functools.cached_property
    def subject(self) -> Subject:
        return Subject(self.batch.target.structure.names, AUTO)

    def _is_known(self) -> Bool[np.ndarray, " problems"]:
        """As `_fresh._known`."""
        limit = min(1 - 1 / math.log10(FEWEST), AS_IT_IS)
        return (self.scalars.se < KNOWN) & (self.scalars.khat < limit) & (self.n_fresh > 0)

    def _wants_more_draws(self) -> Bool[np.ndarray, " problems"]:
        """As `_fresh.wants_more_draws`: of families, whose draws do not stand for fresh ones."""
        family = (self.kind == MEAN) | (self.kind == WIDTHS)
        n_fixed = np.array([1 if spec is None else spec.n for spec in self.spec])
        noise = self.scalars.se * np.sqrt(1 + self.n_fresh / n_fixed)
        return family & (np.abs(self.elbo - self.scalars.elbo) > np.maximum(GAP, 2 * noise))

    def _probe(self, going: Index) -> None:
        """Who may have another mode, or mass in a tail, goes alone."""
        if self.dim > MOST_PROBED or len(going) == 0:
            return
        whole = (self.kind[going] == WHOLE)[:, None]
        place = np.where(whole, self.mean[going], self.newton.point[going])
        root = np.where(whole[..., None], self.root[going], self.roots.root[going])
        height = self.newton.value[going]
        if whole.any():
            height = np.asarray(self.density.values_at(going, place[:, None]), float)[:, 0]
        gaussian = (self.mean[going], self.root[going], self.scalars.elbo[going])
        many = Many(*(np.asarray(one, float) for one in (place, root, height, *gaussian)))
        target, starts = self.batch.target, self.batch.starts[going].astype(float)
        setting = Setting(target.structure, target.constraints, starts[0])

        def values_at(some: Index, points: Any) -> np.ndarray:
            return np.asarray(self.density.values_at(going[some], points), float)

        def values_from_home(z: Any) -> np.ndarray:
            return np.asarray(self.density.values(going, place, root, z), float)

        at = (values_at, values_from_home, self.options.key, self.density.resolution)
        self.on_road[going[need_a_search(many, setting, starts, *at)]] = False
        for i, value in zip(going, many.height, strict=True):
            self.elsewhere[int(i)] = Elsewhere(log_density=float(value))

    def _is_poor(self) -> Bool[np.ndarray, " problems"]:
        """Laplace's Gaussian, as a few fresh draws tell or, where these are not sure, as many."""
        elbo, variance = self._fresh_moments(self.on_road, FIRST_LOOK)
        noise = 4 * np.sqrt(variance / FIRST_LOOK)
        low, high = (
            far_short(self.log_evidence - elbo + sign * noise, self.dim) for sign in (-1, 1)
        )
        unsure = self.on_road & (low != high)
        sure_elbo, _ = self._fresh_moments(unsure, self.options.n_fresh)
        return np.where(unsure, far_short(self.log_evidence - sure_elbo, self.dim), low)

    def _fresh_moments(
        self, wanted: Bool[np.ndarray, " problems"], n: int
    ) -> tuple[Float[np.ndarray, " problems"], Float[np.ndarray, " problems"]]:
        """Mean and variance of `log p~ - log q` at the first of the fresh draws of Laplace's
        Gaussians; not numbers where a density is not finite or nobody asked."""
        asked, out = self.those(wanted), np.full((2, len(wanted)), np.nan)
        if len(asked):
            z = fresh_draws(self.options.key, self.options.n_fresh, self.dim)[:n]
            at = (self.newton.point[asked], self.roots.root[asked])
            ratio = self.density.values(asked, *at, z) - jnp.asarray(normal_logpdf(z, 0.0))
            mean, variance = jax.device_get((ratio.mean(1), ratio.var(1)))
            out[:, asked] = mean + self.roots.log_det[asked], variance
        return out[0], out[1]

    # --- what each of them comes to -----------------------------------------------------------

    def outcome(self, i: int) -> Outcome:
        """As `solved` would have scalars it."""
        density = Counted(Asked(self.dim, self.density.resolution))
        density.counts["hessians"] = 1 + int(self.newton.n_steps[i])
        start = self.batch.starts[i].astype(np.float64)
        problem = Problem(density, self.batch.target, start, self.options, self.batch.fixed)
        case, fitted = Case(problem, self._laplace(i)), Fitted("laplace", choice=self.choice[i])
        if self.kind[i] != LAPLACE:
            fitted = self._fitted(i, density)
        if self.n_fresh[i]:
            fitted = dataclasses.replace(fitted, judged=self._judged(i))
            density.counts["values"] = int(self.n_fresh[i]) * (2 if self.options.diagnostics else 1)
        return finish(case, fitted, self.elsewhere.get(i, Elsewhere()))

    def _laplace(self, i: int) -> Laplace:
        newton, roots = self.newton, self.roots
        arrays = (newton.gradient[i], newton.precision[i], roots.root[i])
        return Laplace(
            np.asarray(newton.point[i], float),
            float(newton.value[i]),
            *(np.asarray(one, float) for one in arrays),
            log_det_root=float(roots.log_det[i]),
            n_repaired=0,
            n_steps=int(newton.n_steps[i]),
            n_damped=0,
            code=Code.OK,
            path=(),
        )

    def _fitted(self, i: int, density: Counted) -> Fitted:
        spec, n_passes = self.spec[i], int(self.n_passes[i])
        density.counts["passes"], density.counts["gradients"] = n_passes, n_passes * spec.n
        mean, root = np.asarray(self.mean[i], float), np.asarray(self.root[i], float)
        elbo, gain, gradient = (float(one[i]) for one in (self.elbo, self.gain_left, self.gradient))
        learnt, inspection = Learnt.nothing(self.dim), None
        if self.kind[i] == WHOLE or self.options.is_auto:
            loss = float(self.draw_loss[i])
            inspection = Inspection(elbo, gain, 0.0, 0.0, loss, np.asarray(self.mean_se[i], float))
        if self.kind[i] == WHOLE:
            shape = Shape(elbo, np.full(self.dim, gradient), np.eye(self.dim))
            at = (density, learnt, mean, root, (mean, root))
            state: Any = SteinState(*at, shape, Past(), gain, n_passes, Code.OK)
        else:
            at = (density, learnt, np.zeros(0), mean, root)
            state = FamilyState(*at, elbo, gradient, gain, n_passes, Code.OK)
        name = NAMES[int(self.kind[i])]
        return Fitted(name, state, spec, inspection=inspection, choice=self.choice[i])

    def _judged(self, i: int) -> Judged:
        z, log_q = self._fresh_draws(int(self.n_fresh[i]))
        log_det = float(np.linalg.slogdet(self.root[i])[1])
        return Judged(self._diagnosis(i), z, self.log_p[i], log_q - log_det)

    def _diagnosis(self, i: int) -> Diagnosis:
        n = int(self.n_fresh[i])
        diagnosis = FreshScalars(*(one[i] for one in self.scalars)).diagnosis(n)
        mixed = MixedScalars(*(one[i] for one in self.mixed))
        if np.isnan(mixed.mean_off):
            return diagnosis
        return dataclasses.replace(diagnosis, moments=mixed.moments, n_mixed=2 * n)

    @functools.cache  # noqa: B019
    def _fresh_draws(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """And their log densities under a standard normal."""
        z = fresh_draws(self.options.key, self.options.n_fresh, self.dim)[:n]
        return z, normal_logpdf(z, 0.0)


def solved_together(batch: Batch) -> Together:
    """The batch, with all done that can be done together; the others are not `on_road`."""
    together = Together(batch)
    with precision_scope(batch.options.dtype):
        together.run()
    return together
