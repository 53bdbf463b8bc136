"""Posteriors with several modes: label switching, signs, phases, places, far bumps.

Eleven kinds of six data sets. Each is a log density with the start that a new user would write. A
seed belongs to a data set once and for all; where the modes of a data set run into each other, or
one of them has over 90% of the mass, `modes_truth.py` moves it to the next seed that is clear (the
number of moves is kept in `references/several_modes.json`), whatever any fit says.
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special as jsp

from posteriors import HALF_LOG_2PI, normal

TRUTH = pathlib.Path(__file__).resolve().parent / "references" / "several_modes.json"


@dataclasses.dataclass(frozen=True)
class Case:
    """`images(w)` are the points with exactly the density of `w`, itself the first. `known` are the
    modes and their shares where these are part of the definition. `wide`: spread of the starts
    from which the modes are looked for."""

    name: str
    kind: str
    log_density: Callable
    init: Any
    data: Any = None
    constraints: dict[str, Any] | None = None
    images: Callable[[Any], list] | None = None
    known: tuple[np.ndarray, np.ndarray] | None = None
    wide: float = 3.0

    @property
    def arguments(self) -> tuple:
        return () if self.data is None else (self.data,)


MAKERS: dict[str, Callable[..., Case]] = {}


def moves() -> dict[str, int]:
    """How many seeds on each data set was moved."""
    kept = json.loads(TRUTH.read_text(encoding="utf-8")) if TRUTH.exists() else {}
    return {name: one["moves"] for name, one in kept.items() if one["moves"]}


def register(
    kind: str, seed: int, settings: list[dict[str, Any]], makers: dict[str, Callable] = MAKERS
) -> Callable:
    """Registers `make(rng, **setting)` once for every setting; seeds count up from `seed`."""

    def named(make: Callable) -> Callable:
        for at, setting in enumerate(settings):
            said = "_".join(f"{key}{value}" for key, value in setting.items())
            name = f"{make.__name__}_{said}"

            def built(moved: int = 0, name=name, setting=setting, first=seed + at) -> Case:
                made = make(np.random.default_rng(first + 1000 * moved), **setting)
                return Case(name=name, kind=kind, **made)

            makers[name] = built
        return make

    return named


def cases() -> Iterator[Case]:
    moved = moves()
    return (make(moved.get(name, 0)) for name, make in MAKERS.items())


# --- pieces -----------------------------------------------------------------------------------


def log_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - HALF_LOG_2PI


def log_poisson(y, log_rate):
    return y * log_rate - jnp.exp(log_rate) - jsp.gammaln(y + 1)


def log_student(x, mean, sd, nu=4.0):
    return -0.5 * (nu + 1) * jnp.log1p(((x - mean) / sd) ** 2 / nu) - jnp.log(sd)


def mixed(log_weights, log_each):
    """The log likelihood of rows, by components on the last axis."""
    return jsp.logsumexp(log_weights + log_each, axis=-1).sum()


def quantiles(y, k: int) -> np.ndarray:
    return np.quantile(y, (np.arange(k) + 0.5) / k)


def relabelled(k: int, twice: tuple[str, ...] = ()) -> Callable:
    """All orders of the components: the first axis of every leaf, and of `twice` the second, too.
    What has no axis is common to the components."""

    def images(w):
        def one(order):
            moved = {name: v[order] if np.ndim(v) else v for name, v in w.items()}
            return moved | {name: moved[name][:, order] for name in twice}

        return [one(list(order)) for order in itertools.permutations(range(k))]

    return images


def labels(rng, n: int, k: int, sizes=None) -> np.ndarray:
    """A component for every row; no component is empty."""
    sizes = np.full(k, 1 / k) if sizes is None else np.asarray(sizes)
    return np.concatenate([np.arange(k), rng.choice(k, n - k, p=sizes)])


def weights_of(k: int, weights: str) -> tuple[Callable, dict, dict]:
    """Log weights with their log prior, the start and the constraint."""
    if weights == "simplex":  # Dirichlet(2, ..., 2)
        return (
            lambda w: (jnp.log(w["p"]), jnp.log(w["p"]).sum()),
            {"p": np.full(k, 1 / k)},
            {"p": "simplex"},
        )
    return lambda w: (jax.nn.log_softmax(w["a"]), normal(w["a"])), {"a": np.zeros(k)}, {}


# --- 1 to 3: mixtures -------------------------------------------------------------------------


@register(
    "Gaussian mixture",
    100,
    [
        {"k": 2, "n": 60, "weights": "logits", "apart": 3.0},
        {"k": 2, "n": 150, "weights": "simplex", "apart": 4.5},
        {"k": 3, "n": 120, "weights": "logits", "apart": 3.5},
        {"k": 3, "n": 200, "weights": "simplex", "apart": 4.5},
        {"k": 4, "n": 240, "weights": "logits", "apart": 4.0},
    ],
)
def gaussian_mixture(rng, k, n, weights, apart):
    z = labels(rng, n, k)
    y = apart * (z - (k - 1) / 2) + rng.uniform(0.7, 1.2, k)[z] * rng.standard_normal(n)
    shares, start, bound = weights_of(k, weights)

    def log_density(w, y):
        log_w, prior = shares(w)
        prior = prior + normal(w["m"], 0.0, 5.0) + normal(w["log_s"], 0.0, 0.5)
        return prior + mixed(log_w, log_normal(y[:, None], w["m"], jnp.exp(w["log_s"])))

    init = {"m": quantiles(y, k), "log_s": np.zeros(k), **start}
    return {
        "log_density": log_density,
        "init": init,
        "data": y,
        "constraints": bound or None,
        "images": relabelled(k),
    }


@register("Gaussian mixture", 105, [{"n": 80}])
def scalar_mixture(rng, n):
    z = rng.random(n) < 0.4
    y = np.where(z, -2.0 + 0.8 * rng.standard_normal(n), 2.5 + 1.1 * rng.standard_normal(n))

    def log_density(w, y):
        prior = normal(w["m1"], 0.0, 5.0) + normal(w["m2"], 0.0, 5.0) - w["s1"] - w["s2"]
        one = jnp.log(w["p"]) + log_normal(y, w["m1"], w["s1"])
        two = jnp.log1p(-w["p"]) + log_normal(y, w["m2"], w["s2"])
        return prior + jnp.logaddexp(one, two).sum()

    def images(w):
        swapped = {"m1": w["m2"], "m2": w["m1"], "s1": w["s2"], "s2": w["s1"], "p": 1 - w["p"]}
        return [w, swapped]

    init = {"m1": -1.0, "m2": 1.0, "s1": 1.0, "s2": 1.0, "p": 0.5}
    bound = {"s1": "positive", "s2": "positive", "p": "unit"}
    return {
        "log_density": log_density,
        "init": init,
        "data": y,
        "constraints": bound,
        "images": images,
    }


@register(
    "Poisson mixture",
    200,
    [
        {"k": 2, "n": 50, "weights": "logits", "times": 4},
        {"k": 2, "n": 100, "weights": "simplex", "times": 5},
        {"k": 2, "n": 200, "weights": "logits", "times": 3},
        {"k": 3, "n": 150, "weights": "logits", "times": 3},
        {"k": 3, "n": 250, "weights": "simplex", "times": 4},
        {"k": 4, "n": 400, "weights": "logits", "times": 3},
    ],
)
def poisson_mixture(rng, k, n, weights, times):
    y = rng.poisson(2.0 * float(times) ** labels(rng, n, k)).astype(float)
    shares, start, bound = weights_of(k, weights)

    def log_density(w, y):
        log_w, prior = shares(w)
        prior = prior + normal(w["log_rate"], 2.0, 1.5)
        return prior + mixed(log_w, log_poisson(y[:, None], w["log_rate"]))

    return {
        "log_density": log_density,
        "init": {"log_rate": np.log(quantiles(y, k) + 0.5), **start},
        "data": y,
        "constraints": bound or None,
        "images": relabelled(k),
    }


@register("other mixture", 300, [{"k": 2, "n": 80}, {"k": 3, "n": 150}])
def student_mixture(rng, k, n):
    y = (6.0 * np.arange(k) - 3.0 * (k - 1))[labels(rng, n, k)] + rng.standard_t(4, n)
    shares, start, _ = weights_of(k, "logits")

    def log_density(w, y):
        log_w, prior = shares(w)
        prior = prior + normal(w["m"], 0.0, 6.0) + normal(w["log_s"], 0.0, 0.5)
        return prior + mixed(log_w, log_student(y[:, None], w["m"], jnp.exp(w["log_s"])))

    init = {"m": quantiles(y, k), "log_s": 0.0, **start}
    return {"log_density": log_density, "init": init, "data": y, "images": relabelled(k)}


@register("other mixture", 302, [{"k": 2, "n": 60}, {"k": 3, "n": 150}])
def binomial_mixture(rng, k, n):
    y = rng.binomial(20, np.linspace(0.15, 0.85, k)[labels(rng, n, k)]).astype(float)

    def log_density(w, y):
        each = y[:, None] * w["logit"] - 20 * jax.nn.softplus(w["logit"])
        prior = normal(w["logit"], 0.0, 2.0) + jnp.log(w["p"]).sum()
        return prior + mixed(jnp.log(w["p"]), each)

    share = np.clip(quantiles(y, k) / 20, 0.05, 0.95)
    return {
        "log_density": log_density,
        "init": {"logit": np.log(share / (1 - share)), "p": np.full(k, 1 / k)},
        "data": y,
        "constraints": {"p": "simplex"},
        "images": relabelled(k),
    }


@register("other mixture", 304, [{"k": 2, "n": 100, "items": 6}, {"k": 2, "n": 200, "items": 9}])
def latent_classes(rng, k, n, items):
    rate = np.where(rng.random((k, items)) < 0.5, 0.15, 0.85)
    rate[1] = 1 - rate[0]
    y = (rng.random((n, items)) < rate[labels(rng, n, k)]).astype(float)
    shares, start, _ = weights_of(k, "logits")

    def log_density(w, y):
        log_w, prior = shares(w)
        each = y @ w["logit"].T - jax.nn.softplus(w["logit"]).sum(1)
        return prior + normal(w["logit"], 0.0, 1.5) + mixed(log_w, each)

    # Zeros are a saddle: all classes alike.
    init = {"logit": 0.5 * rng.standard_normal((k, items)), **start}
    return {"log_density": log_density, "init": init, "data": y, "images": relabelled(k)}


# --- 4: factors -------------------------------------------------------------------------------


def flipped(*names: str) -> Callable:
    """The sign of these leaves, all at once."""
    return lambda w: [w, w | {name: -w[name] for name in names}]


@register("factor model", 400, [{"p": 4, "n": 15}, {"p": 6, "n": 30}])
def one_factor_scores(rng, p, n):
    loading = rng.uniform(0.8, 1.8, p) * rng.choice([-1, 1], p)
    y = rng.standard_normal(n)[:, None] * loading + 0.6 * rng.standard_normal((n, p))

    def log_density(w, y):
        prior = normal(w["loading"], 0.0, 2.0) + normal(w["score"]) + normal(w["log_s"])
        return prior + normal(y, w["score"][:, None] * w["loading"], jnp.exp(w["log_s"]))

    init = {"loading": np.ones(p), "score": 0.1 * rng.standard_normal(n), "log_s": 0.0}
    return {
        "log_density": log_density,
        "init": init,
        "data": y,
        "images": flipped("loading", "score"),
    }


def factor_rows(y, loadings, log_s):
    """Rows with the scores of two factors integrated out, by the lemmas for a covariance
    `L L^T + s^2 I` that has few columns."""
    n, p = y.shape
    (a, b), (_, d) = jnp.eye(2) + loadings.T @ loadings * jnp.exp(-2 * log_s)
    one, two = (y @ loadings).T
    det = a * d - b**2
    explained = (d * one**2 - 2 * b * one * two + a * two**2).sum() / det * jnp.exp(-2 * log_s)
    square = ((y**2).sum() - explained) * jnp.exp(-2 * log_s)
    return -0.5 * square - n * (p * log_s + 0.5 * jnp.log(det))


def one_factor_rows(y, loading, log_s):
    return factor_rows(y, jnp.stack([loading, jnp.zeros_like(loading)], 1), log_s)


@register("factor model", 402, [{"p": 5, "n": 80}, {"p": 8, "n": 60}])
def one_factor(rng, p, n):
    loading = rng.uniform(0.8, 1.8, p) * rng.choice([-1, 1], p)
    y = rng.standard_normal(n)[:, None] * loading + 0.6 * rng.standard_normal((n, p))

    def log_density(w, y):
        prior = normal(w["loading"], 0.0, 2.0) + normal(w["log_s"])
        return prior + one_factor_rows(y, w["loading"], w["log_s"])

    init = {"loading": np.ones(p), "log_s": 0.0}
    return {"log_density": log_density, "init": init, "data": y, "images": flipped("loading")}


@register("factor model", 404, [{"p": 6, "n": 150}, {"p": 8, "n": 120}])
def two_factors(rng, p, n):
    loadings = np.column_stack(
        [rng.uniform(0.8, 1.6, p), np.append(0.0, rng.uniform(0.8, 1.6, p - 1))]
    ) * rng.choice([-1, 1], (p, 2))
    y = rng.standard_normal((n, 2)) @ loadings.T + 0.6 * rng.standard_normal((n, p))

    def log_density(w, y):
        second = jnp.concatenate([jnp.zeros(1), w["second"]])
        prior = normal(w["first"], 0.0, 2.0) + normal(w["second"], 0.0, 2.0) + normal(w["log_s"])
        return prior + factor_rows(y, jnp.stack([w["first"], second], 1), w["log_s"])

    def images(w):
        return [
            w | {"first": a * w["first"], "second": b * w["second"]}
            for a, b in itertools.product((1, -1), repeat=2)
        ]

    init = {"first": np.ones(p), "second": np.full(p - 1, 0.5), "log_s": 0.0}
    return {"log_density": log_density, "init": init, "data": y, "images": images}


# --- 5: hidden Markov models ------------------------------------------------------------------


def forward(log_rows, log_each):
    """The log likelihood of a chain from its log transitions and the log density of every step."""

    def step(before, here):
        return jsp.logsumexp(before[:, None] + log_rows, axis=0) + here, None

    last, _ = jax.lax.scan(step, log_each[0] - jnp.log(len(log_rows)), log_each[1:])
    return jsp.logsumexp(last)


@register(
    "hidden Markov model",
    500,
    [
        {"k": 2, "n": 100, "rows": "logits", "emits": "normal", "apart": 2.0},
        {"k": 2, "n": 200, "rows": "simplex", "emits": "normal", "apart": 3.0},
        {"k": 2, "n": 120, "rows": "logits", "emits": "poisson", "apart": 3},
        {"k": 3, "n": 200, "rows": "logits", "emits": "normal", "apart": 2.5},
        {"k": 3, "n": 250, "rows": "simplex", "emits": "normal", "apart": 3.0},
        {"k": 3, "n": 200, "rows": "simplex", "emits": "poisson", "apart": 4},
    ],
)
def markov(rng, k, n, rows, emits, apart):
    state = [0]
    for _ in range(n - 1):
        stay = rng.random() < 0.85
        state.append(state[-1] if stay else int((state[-1] + rng.integers(1, k)) % k))
    counts = emits == "poisson"
    if counts:
        y = rng.poisson(2.0 * float(apart) ** np.array(state)).astype(float)
    else:
        y = apart * (np.array(state) - (k - 1) / 2) + 0.8 * rng.standard_normal(n)

    def log_density(w, y):
        if rows == "simplex":  # Dirichlet(2, ..., 2)
            log_rows, prior = jnp.log(w["rows"]), jnp.log(w["rows"]).sum()
        else:
            log_rows, prior = jax.nn.log_softmax(w["rows"], axis=1), normal(w["rows"], 0.0, 1.5)
        if counts:
            each = log_poisson(y[:, None], w["m"])
            return prior + normal(w["m"], 2.0, 1.5) + forward(log_rows, each)
        each = log_normal(y[:, None], w["m"], jnp.exp(w["log_s"]))
        prior = prior + normal(w["m"], 0.0, 4.0) + normal(w["log_s"], 0.0, 0.5)
        return prior + forward(log_rows, each)

    centre = quantiles(y, k)
    init = {"m": np.log(centre + 0.5) if counts else centre}
    init |= {} if counts else {"log_s": 0.0}
    init["rows"] = np.full((k, k), 1 / k) if rows == "simplex" else np.zeros((k, k))
    return {
        "log_density": log_density,
        "init": init,
        "data": y,
        "constraints": {"rows": "simplex"} if rows == "simplex" else None,
        "images": relabelled(k, twice=("rows",)),
    }


# --- 6: products ------------------------------------------------------------------------------


@register(
    "matrix factorisation",
    600,
    [
        {"n": 6, "m": 5, "k": 1, "seen": 1.0},
        {"n": 12, "m": 8, "k": 1, "seen": 0.8},
        {"n": 6, "m": 5, "k": 2, "seen": 1.0},
        {"n": 10, "m": 6, "k": 2, "seen": 1.0},
        {"n": 12, "m": 8, "k": 2, "seen": 0.9},
        {"n": 8, "m": 6, "k": 3, "seen": 1.0},
    ],
)
def factorisation(rng, n, m, k, seen):
    # Columns with prior scales of their own: what is left to choose are their signs.
    scale = np.array([3.0, 0.5, 0.15])[:k]
    size = np.array([3.0, 1.5, 0.8])[:k]
    y = (rng.standard_normal((n, k)) * size) @ rng.standard_normal((m, k)).T
    y = y + 0.3 * rng.standard_normal((n, m))
    mask = (rng.random((n, m)) < seen).astype(float)

    def log_density(w, data):
        miss = data["mask"] * (data["y"] - w["u"] @ w["v"].T) / 0.3
        return normal(w["u"], 0.0, scale) + normal(w["v"]) - 0.5 * (miss**2).sum()

    def images(w):
        signs = (np.array(s) for s in itertools.product((1, -1), repeat=k))
        return [{"u": w["u"] * s, "v": w["v"] * s} for s in signs]

    # Zeros are a saddle.
    init = {"u": 0.1 * rng.standard_normal((n, k)), "v": 0.1 * rng.standard_normal((m, k))}
    data = {"y": y, "mask": mask}
    return {"log_density": log_density, "init": init, "data": data, "images": images}
