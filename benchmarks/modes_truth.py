"""Where the modes of a posterior are and how much of the mass each has; nothing here is mixvi's.

Many climbs from wide starts find the modes. Importance sampling around one mode of each orbit of
exact images gives its mass. The answers are kept in `references/several_modes.json`;
`taskset -c 0 python benchmarks/modes_truth.py --again` computes them anew in half an hour (on one
core, since batches of Cholesky factors within JAX can wait for each other for ever on two).

A data set with several modes is clear where 95% of the climbs from importance draws, and from the
ends of Hamiltonian chains, around every mode that matters end in that mode; no other mode is within
4 standard deviations, or without a dip of a nat on the straight line to it; and no mode has over
90% of the mass. A data set with one mode is clear where all climbs that converge end in the same
place. One that is not clear is moved to the next seed.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

import modes_collection
import modes_collection_more  # noqa: F401  (registers its half)
import one_mode_collection
from modes_collection import TRUTH, Case

N_STARTS, N_DRAWS, NU = 64, 4096, 8
MATTERS = 0.02  # a share of the mass
MOST_MODES = 60
MOST_MOVES = 40

# --- bounded parameters, as docs/constraints.md defines them ----------------------------------


def sticks_to(u):
    k = u.shape[-1]
    t = u - np.log(np.arange(k, 0, -1))
    left = jnp.cumsum(jax.nn.log_sigmoid(-t), -1)
    none = jnp.zeros_like(u[..., :1])
    before = jnp.concatenate([none, left], -1)
    taken = jnp.concatenate([jax.nn.log_sigmoid(t), none], -1)
    return jnp.exp(before + taken)


def sticks_from(x):
    after = np.cumsum(x[..., ::-1], -1)[..., ::-1][..., 1:]
    return np.log(x[..., :-1] / after) + np.log(np.arange(x.shape[-1] - 1, 0, -1))


def steps_to(u):
    return jnp.cumsum(jnp.concatenate([u[..., :1], jnp.exp(u[..., 1:])], -1), -1)


def steps_from(x):
    return np.concatenate([x[..., :1], np.log(np.diff(x, axis=-1))], -1)


# To the bounded numbers, the log-Jacobian (for a simplex the product of all entries), and back.
BOUNDS: dict[str, tuple[Callable, Callable, Callable]] = {
    "positive": (jnp.exp, lambda u: u.sum(), np.log),
    "unit": (
        jax.nn.sigmoid,
        lambda u: (jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u)).sum(),
        lambda x: np.log(x) - np.log1p(-x),
    ),
    "simplex": (sticks_to, lambda u: jnp.log(sticks_to(u)).sum(), sticks_from),
    "ordered": (steps_to, lambda u: u[..., 1:].sum(), steps_from),
    "free": (lambda u: u, lambda u: 0.0, lambda x: x),
}


class Flat:
    """The log density of a case on flat, unbounded points."""

    def __init__(self, case: Case):
        self.case = case
        named, self.tree = jtu.tree_flatten_with_path(case.init)
        bounds = case.constraints or {}
        names = [str(getattr(path[0], "key", "")) if path else "w" for path, _ in named]
        self.bounds = [BOUNDS[bounds.get(name, "free")] for name in names]
        leaves = self._unbound([np.asarray(leaf, float) for _, leaf in named])
        self.shapes = [leaf.shape for leaf in leaves]
        self.ends = np.cumsum([leaf.size for leaf in leaves])
        self.start = np.concatenate([leaf.ravel() for leaf in leaves])

    def _unbound(self, leaves: list[np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(back(x)) for (_, _, back), x in zip(self.bounds, leaves, strict=True)]

    def _leaves(self, u: Any) -> list:
        parts = zip(self.ends, self.shapes, strict=True)
        return [u[e - int(np.prod(shape)) : e].reshape(shape) for e, shape in parts]

    def tree_of(self, u: Any) -> Any:
        each = zip(self.bounds, self._leaves(u), strict=True)
        return jtu.tree_unflatten(self.tree, [to(leaf) for (to, _, _), leaf in each])

    def flat_of(self, tree: Any) -> np.ndarray:
        leaves = self._unbound([np.asarray(leaf, float) for leaf in jtu.tree_leaves(tree)])
        return np.concatenate([leaf.ravel() for leaf in leaves])

    def __call__(self, u: Any) -> Any:
        each = zip(self.bounds, self._leaves(u), strict=True)
        jacobian = sum(log_det(leaf) for (_, log_det, _), leaf in each)
        return self.case.log_density(self.tree_of(u), *self.case.arguments) + jacobian

    def images(self, u: np.ndarray) -> np.ndarray:
        if self.case.images is None:
            return u[None]
        tree = jtu.tree_map(np.asarray, self.tree_of(jnp.asarray(u)))
        return np.stack([self.flat_of(one) for one in self.case.images(tree)])

    @functools.cached_property
    def values(self) -> Callable:
        return jax.jit(jax.vmap(self))

    @functools.cached_property
    def bends(self) -> Callable:
        """Values, gradients and Hessians at many points."""

        def one(u):
            return self(u), jax.grad(self)(u), jax.hessian(self)(u)

        return jax.jit(jax.vmap(one))


# --- climbs -----------------------------------------------------------------------------------


def climbed(
    flat: Flat, x: np.ndarray, root: np.ndarray | None = None, radius: float = 1.0, most: int = 300
) -> tuple[np.ndarray, np.ndarray]:
    """Newton steps with the curvatures' absolute values, each within a radius that shrinks where
    the density does not rise; and which ended at a maximum. Lengths are those of `root^-1 x`."""
    n, dim = x.shape
    root = np.eye(dim) if root is None else root
    reach, limit = np.full(n, radius), 4 * radius
    done = np.zeros(n, bool)

    def look(at):
        f, g, h = (np.array(part) for part in flat.bends(at))
        bad = ~(np.isfinite(f) & np.isfinite(g).all(1) & np.isfinite(h).all((1, 2)))
        f[bad], g[bad], h[bad] = -np.inf, 0.0, -np.eye(dim)
        lam, turn = np.linalg.eigh(-root.T @ h @ root)
        return f, np.einsum("nij,ni->nj", turn, g @ root), lam, turn

    f, slope, lam, turn = look(x)
    for _ in range(most):
        bend = np.maximum(np.abs(lam), 1e-10 * np.abs(lam).max(1, keepdims=True) + 1e-12)
        step = slope / bend
        at_maximum = (lam[:, 0] > 1e-7 * lam[:, -1]) & ((slope * step).sum(1) < 1e-14)
        done = at_maximum & np.isfinite(f)
        if (done | (reach < 1e-9)).all():
            break
        size = np.linalg.norm(step, axis=1)
        step *= np.minimum(1.0, reach / np.maximum(size, 1e-300))[:, None]
        new = x + np.einsum("nij,nj->ni", turn, step) @ root.T
        f2, slope2, lam2, turn2 = look(new)
        better = (f2 > f - 1e-13 * np.abs(f)) & ~done
        worse = ~better & ~done
        reach[better & (size > reach)] *= 2
        reach = np.minimum(reach, limit)
        reach[worse] = 0.25 * np.minimum(reach, size)[worse]
        x = np.where(better[:, None], new, x)
        f = np.where(better, f2, f)
        slope = np.where(better[:, None], slope2, slope)
        lam = np.where(better[:, None], lam2, lam)
        turn = np.where(better[:, None, None], turn2, turn)
    return x, done


def root_at(flat: Flat, mode: np.ndarray) -> np.ndarray:
    """Of Laplace's covariance."""
    lam, turn = np.linalg.eigh(-np.array(flat.bends(mode[None])[2][0]))
    return turn / np.sqrt(lam)


def away(root: np.ndarray, centre: np.ndarray, points: np.ndarray) -> np.ndarray:
    """In standard deviations of the Gaussian at `centre`."""
    return np.linalg.norm(np.linalg.solve(root, (points - centre).T), axis=0)


def modes_of(flat: Flat, rng, n_starts: int) -> tuple[list[np.ndarray], int]:
    """One mode of each orbit of images, the highest first, and how many climbs converged."""
    wide = flat.case.wide
    spread = np.where(np.arange(n_starts) % 3 == 2, wide / 3, wide)[:, None]
    starts = flat.start + spread * rng.standard_normal((n_starts, len(flat.start)))
    starts[0] = flat.start
    ends, done = climbed(flat, starts)
    ends = ends[done]
    heights = np.array(flat.values(ends)) if len(ends) else np.zeros(0)
    found: list[np.ndarray] = []
    taken: list[tuple[np.ndarray, np.ndarray]] = []
    for end in ends[np.argsort(-heights)]:
        if any((away(root, end, images) < 1e-2).any() for root, images in taken):
            continue
        found.append(end)
        taken.append((root_at(flat, end), flat.images(end)))
        if len(found) == MOST_MODES:
            break
    return found, len(ends)


# --- masses -----------------------------------------------------------------------------------


def mass_at(flat: Flat, mode: np.ndarray, rng) -> tuple[float, float, np.ndarray, np.ndarray]:
    """The log mass around a mode by importance sampling from a Student-t, the effective number of
    draws, draws that stand for that mass, and the root of Laplace's covariance."""
    dim, root = len(mode), root_at(flat, mode)
    z = rng.standard_normal((N_DRAWS, dim)) / np.sqrt(rng.chisquare(NU, (N_DRAWS, 1)) / NU)
    draws = mode + z @ root.T
    log_q = -0.5 * (NU + dim) * np.log1p((z**2).sum(1) / NU) - np.linalg.slogdet(root)[1]
    log_p = np.concatenate([np.array(flat.values(part)) for part in np.split(draws, 8)])
    # Draws nearer to another mode's height than this one's count all the same; climbs settle it.
    log_r = np.where(np.isfinite(log_p), log_p, -np.inf) - log_q
    weights = np.exp(log_r - log_r.max())
    some = rng.choice(N_DRAWS, N_STARTS, p=weights / weights.sum())
    ess = weights.sum() ** 2 / (weights**2).sum()
    half = 0.5 * (NU + dim)
    unit = jax.scipy.special.gammaln(half) - jax.scipy.special.gammaln(NU / 2)
    constant = float(unit) - 0.5 * dim * np.log(NU * np.pi)  # of the Student-t
    log_mass = log_r.max() + np.log(weights.mean()) - constant
    return float(log_mass), float(ess), draws[some], root


def wandered(flat: Flat, mode: np.ndarray, root: np.ndarray, rng) -> np.ndarray:
    """The ends of Hamiltonian chains from a mode: where its mass is, and across low passes."""
    slopes = jax.vmap(jax.grad(lambda z: flat(mode + root @ z)))
    heights = jax.vmap(lambda z: flat(mode + root @ z))
    size = 0.7 / len(mode) ** 0.25

    def move(state, key):
        z, height = state
        one, two, three = jax.random.split(key, 3)
        p = jax.random.normal(one, z.shape)
        step = size * jax.random.uniform(three, (len(z), 1), minval=0.3, maxval=1.0)

        def leap(both, _):
            z, p = both
            p = p + 0.5 * step * slopes(z)
            z = z + step * p
            return (z, p + 0.5 * step * slopes(z)), None

        (new, q), _ = jax.lax.scan(leap, (z, p), None, length=6)
        gain = heights(new) - height - 0.5 * (q**2).sum(1) + 0.5 * (p**2).sum(1)
        taken = jnp.log(jax.random.uniform(two, gain.shape)) < gain  # not where it is not a number
        return (jnp.where(taken[:, None], new, z), jnp.where(taken, heights(new), height)), None

    z = 0.3 * rng.standard_normal((N_STARTS, len(mode)))
    keys = jax.random.split(jax.random.key(0), 150)
    (z, _), _ = jax.jit(lambda z: jax.lax.scan(move, (z, heights(z)), keys))(jnp.asarray(z))
    return mode + np.array(z) @ root.T


def dip(flat: Flat, one: np.ndarray, two: np.ndarray) -> float:
    """By how many nats the density falls below both ends on the straight line between them."""
    line = np.array(flat.values(one + np.linspace(0, 1, 41)[:, None] * (two - one)))
    return float(min(line[0], line[-1]) - np.nanmin(line))


def returned(flat: Flat, mode: np.ndarray, root: np.ndarray, points: np.ndarray) -> float:
    """The share of points from which short steps uphill end in the mode."""
    ends, _ = climbed(flat, points, root, radius=0.25)
    return float(np.mean(away(root, mode, ends) < 0.1))


def several(case: Case) -> dict[str, Any]:
    """The modes, one for each orbit, with the share of a single one; and what is unclear."""
    flat, rng = Flat(case), np.random.default_rng(0)
    if case.known is not None:
        modes, shares = case.known
        return {"modes": modes.tolist(), "shares": shares.tolist(), "unclear": ""}
    modes, _ = modes_of(flat, rng, N_STARTS * (2 if case.images is None else 1))
    if not modes:
        return {"modes": [], "shares": [], "unclear": "no mode"}
    parts = [mass_at(flat, mode, rng) for mode in modes]
    images = [flat.images(mode) for mode in modes]
    everywhere = np.concatenate(images)
    sizes = np.array([len(one) for one in images])
    most = max(part[0] + np.log(size) for part, size in zip(parts, sizes, strict=True))
    back, stays, near, dips = [], [], [], []
    for mode, (log_mass, _, draws, root), size in zip(modes, parts, sizes, strict=True):
        tiny = log_mass + np.log(size) < most + np.log(MATTERS) - 3
        back.append(1.0 if tiny else returned(flat, mode, root, draws))
        chains = None if tiny else wandered(flat, mode, root, rng)
        stays.append(1.0 if chains is None else returned(flat, mode, root, chains))
        distances = away(root, mode, everywhere)
        others = distances > 1e-2
        near.append(float(distances[others].min()) if others.any() else np.inf)
        first = everywhere[others][np.argsort(distances[others])[:6]]
        dips.append(min((dip(flat, mode, other) for other in first), default=np.inf))
    # What climbs elsewhere is another mode's mass.
    log_mass = np.array([part[0] for part in parts]) + np.log(np.maximum(back, 1e-9))
    mass = np.exp(log_mass - log_mass.max())
    shares = mass / (sizes * mass).sum()
    major = shares * sizes > MATTERS
    least = {
        name: float(np.array(each)[major].min())
        for name, each in {
            "back": back,
            "stays": stays,
            "sd_to_next": near,
            "dip": dips,
            "ess": [part[1] for part in parts],
        }.items()
    }
    checks = {
        "runs together": min(least["back"], least["stays"]) < 0.95,
        "near": least["sd_to_next"] < 4,
        "no dip": least["dip"] < 1,
        "one mode has it all": shares.max() > 0.9,
    }
    return {
        "modes": np.round(np.stack(modes), 6).tolist(),
        "shares": shares.tolist(),
        "images": int(sizes[0]),
        **{name: round(value, 3) for name, value in least.items()},
        "unclear": ", ".join(name for name, fails in checks.items() if fails),
    }


def one(case: Case) -> dict[str, Any]:
    found, converged = modes_of(Flat(case), np.random.default_rng(0), N_STARTS)
    unclear = "several modes" if len(found) > 1 else ""
    return {"n_modes": len(found), "converged": converged, "unclear": unclear}


# --- the answer for a fit ---------------------------------------------------------------------


def elsewhere(case: Case, kept: dict[str, Any], post: Any) -> dict[str, float]:
    """The share of the mass not in the mode nearest to the fitted Gaussian, and how many of its
    standard deviations that mode is away; all of the mass where that is none of those known."""
    flat, root, centre = Flat(case), np.linalg.cholesky(post.cov), np.asarray(post.flat_mean)
    with jax.enable_x64(True):
        images = [flat.images(np.array(mode)) for mode in kept["modes"]]
        each = [away(root, centre, one) for one in images]
        at = int(np.argmin([one.min() for one in each]))
        share, distance = kept["shares"][at], float(each[at].min())
        if distance > 3:
            # In many dimensions the bulk may be far from its mode, which is then the one uphill.
            end = climbed(flat, centre[None], root, radius=0.25)[0][0]
            uphill = np.array([away(root, end, one).min() for one in images])
            share = kept["shares"][int(uphill.argmin())] if uphill.min() < 0.1 else 0.0
    within = int(sum((one < 3).sum() for one in each))
    return {"elsewhere": 1 - share, "distance": distance, "within_3_sd": within}


def truth() -> dict[str, Any]:
    return json.loads(TRUTH.read_text(encoding="utf-8"))


def write(kept: dict[str, Any]) -> None:
    """A line for every data set."""
    lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in kept.items())
    TRUTH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def settled(make: Callable[[int], Case], judge: Callable[[Case], dict[str, Any]]) -> dict[str, Any]:
    """The first seed that is clear."""
    for moved in range(MOST_MOVES):
        found = judge(make(moved))
        if not found["unclear"]:
            break
        print(f"    seed {moved}: {found['unclear']}", flush=True)
    return {"moves": moved, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="also what is kept already")
    parser.add_argument("--kind")
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after so many")
    options = parser.parse_args()
    kept = truth() if TRUTH.exists() else {}
    began = time.monotonic()
    groups = ((modes_collection.MAKERS, several), (one_mode_collection.MAKERS, one))
    for makers, judge in groups:
        for name, make in makers.items():
            left_out = options.kind and options.kind != make(0).kind
            if left_out or (name in kept and not options.again):
                continue
            if time.monotonic() - began > options.seconds:
                return
            now = time.monotonic()
            with jax.enable_x64(True):
                kept[name] = settled(make, judge)
            shown = {key: value for key, value in kept[name].items() if key != "modes"}
            if "shares" in shown:
                shown["shares"] = [round(share, 3) for share in shown["shares"][:8]]
            print(f"{name} ({time.monotonic() - now:.0f} s): {shown}", flush=True)
            write(kept)


if __name__ == "__main__":
    main()
