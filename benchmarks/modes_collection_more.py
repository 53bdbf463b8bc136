"""The other half of the posteriors with several modes: networks, phases, places, far bumps, and
labels that the prior tells apart. Importing it completes `modes_collection.MAKERS`."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from modes_collection import (
    forward,
    log_normal,
    log_poisson,
    mixed,
    one_factor_rows,
    quantiles,
    register,
)
from posteriors import bernoulli, normal

# --- 7: networks ------------------------------------------------------------------------------


@register(
    "neural network",
    700,
    [
        {"h": 2, "d": 1, "n": 60, "noise": "normal"},
        {"h": 2, "d": 2, "n": 120, "noise": "normal"},
        {"h": 3, "d": 1, "n": 150, "noise": "normal"},
        {"h": 3, "d": 2, "n": 250, "noise": "normal"},
        {"h": 4, "d": 2, "n": 400, "noise": "normal"},
        {"h": 2, "d": 2, "n": 500, "noise": "bernoulli"},
    ],
)
def network(rng, h, d, n, noise):
    # Units that turn at different places, so that each is needed.
    slope = 2.5 * rng.choice([-1, 1], (h, d)) * rng.uniform(0.6, 1.2, (h, d))
    shift = 3.0 * np.linspace(-1, 1, h) * rng.choice([-1, 1], h)
    out = rng.uniform(1.0, 2.0, h) * rng.choice([-1, 1], h)
    x = rng.uniform(-2, 2, (n, d))
    clean = np.tanh(x @ slope.T + shift) @ out
    if noise == "normal":
        y = clean + 0.15 * rng.standard_normal(n)
    else:
        y = (rng.random(n) < 1 / (1 + np.exp(-3 * clean))).astype(float)

    def log_density(w, data):
        f = jnp.tanh(data["x"] @ w["w1"].T + w["b1"]) @ w["w2"] + w["b2"]
        prior = normal(w["w1"], 0.0, 2.0) + normal(w["b1"], 0.0, 2.0)
        prior = prior + normal(w["w2"], 0.0, 3.0) + normal(w["b2"])
        if noise == "normal":
            return prior + normal(data["y"], f, 0.15)
        return prior + bernoulli(data["y"], f)

    def images(w):
        def one(order, signs):
            turned = {name: w[name][list(order)] for name in ("w1", "b1", "w2")}
            s = np.array(signs)
            return {
                "w1": s[:, None] * turned["w1"],
                "b1": s * turned["b1"],
                "w2": s * turned["w2"],
                "b2": w["b2"],
            }

        return [
            one(order, signs)
            for order in itertools.permutations(range(h))
            for signs in itertools.product((1, -1), repeat=h)
        ]

    small = 0.5 * rng.standard_normal((h, d + 2))
    init = {"w1": small[:, :d], "b1": small[:, d], "w2": small[:, d + 1], "b2": 0.0}
    data = {"x": x, "y": y}
    return {"log_density": log_density, "init": init, "data": data, "images": images}


# --- 8: phases and frequencies ----------------------------------------------------------------


@register("phase", 800, [{"n": 20, "wide": 2}, {"n": 40, "wide": 3}, {"n": 80, "wide": 5}])
def sine_phase(rng, n, wide):
    t = np.sort(rng.uniform(0, 10, n))
    y = 1.5 * np.sin(1.3 * t + rng.uniform(-1, 1)) + 0.7 * rng.standard_normal(n)

    def log_density(w, data):
        prior = normal(w["size"], 0.0, 2.0) + normal(w["phase"], 0.0, wide) + normal(w["log_s"])
        mean = w["size"] * jnp.sin(1.3 * data["t"] + w["phase"])
        return prior + normal(data["y"], mean, jnp.exp(w["log_s"]))

    # No size, no slope in the phase.
    init = {"size": 1.0, "phase": 0.0, "log_s": 0.0}
    return {
        "log_density": log_density,
        "init": init,
        "data": {"t": t, "y": y},
        "wide": 2.0 * wide,
    }


@register("phase", 803, [{"n": 15, "at": 2.0}, {"n": 25, "at": 1.0}, {"n": 40, "at": 2.5}])
def aliased_frequency(rng, n, at):
    t = np.arange(n) - (n - 1) / 2  # equal steps: a frequency and its aliases fit alike
    y = 1.2 * np.cos(at * t) + 0.8 * np.sin(at * t) + 0.7 * rng.standard_normal(n)

    def log_density(w, data):
        angle = w["omega"] * data["t"]
        mean = w["a"] * jnp.cos(angle) + w["b"] * jnp.sin(angle)
        prior = normal(w["a"], 0.0, 2.0) + normal(w["b"], 0.0, 2.0) + normal(w["omega"], 2.0, 3.0)
        return prior + normal(data["y"], mean, 0.7)

    init = {"a": 1.0, "b": 1.0, "omega": 1.0}
    return {
        "log_density": log_density,
        "init": init,
        "data": {"t": t, "y": y},
        "wide": 6.0,
    }


# --- 9: changepoints --------------------------------------------------------------------------


@register(
    "changepoint",
    900,
    [
        {"n": 30, "emits": "normal"},
        {"n": 50, "emits": "normal"},
        {"n": 80, "emits": "normal"},
        {"n": 40, "emits": "poisson"},
        {"n": 60, "emits": "poisson"},
        {"n": 40, "emits": "slope"},
    ],
)
def changepoint(rng, n, emits):
    # Up and down again, or a slope that turns twice: a model with one change has two places for it.
    t = np.linspace(0, 10, n)
    inside = ((t > 3) & (t < 7)).astype(float)
    if emits == "normal":
        y = 2.5 * inside + 0.8 * rng.standard_normal(n)
    elif emits == "poisson":
        y = rng.poisson(np.exp(1.0 + 1.3 * inside)).astype(float)
    else:
        y = np.clip(t - 3, 0, 4) + 0.8 * rng.standard_normal(n)
    # Most of the noise is mirrored, or one of the places would nearly always win by far.
    front = np.flatnonzero(rng.random(n // 2) < 0.85)
    y[n - 1 - front] = 4 - y[front] if emits == "slope" else y[front]

    def log_density(w, data):
        # Wider than the steps between the times, which would be places of their own.
        away = (data["t"] - w["place"]) / 0.4
        jump = jax.nn.sigmoid(away) if emits != "slope" else 0.4 * jax.nn.softplus(away)
        eta = w["a"] + w["b"] * jump
        prior = normal(w["a"], 0.0, 3.0) + normal(w["b"], 0.0, 2.0) + normal(w["place"], 5.0, 3.0)
        if emits == "poisson":
            return prior + log_poisson(data["y"], eta).sum()
        if emits == "slope":
            prior, eta = prior + normal(w["c"], 0.0, 2.0), eta + w["c"] * data["t"]
        return prior + normal(data["y"], eta, 0.8)

    init = {"a": 0.0, "b": 0.0, "place": 5.0} | ({"c": 0.0} if emits == "slope" else {})
    data = {"t": t, "y": y}
    return {"log_density": log_density, "init": init, "data": data, "wide": 2.0}


# --- 10: far bumps ----------------------------------------------------------------------------


@register(
    "far bumps",
    1700,
    [
        {"d": 2, "apart": 6, "second": 0.5, "third": 0.0, "wider": 1.0},
        {"d": 5, "apart": 8, "second": 0.3, "third": 0.0, "wider": 1.5},
        {"d": 10, "apart": 10, "second": 0.15, "third": 0.0, "wider": 1.2},
        {"d": 20, "apart": 7, "second": 0.4, "third": 0.2, "wider": 1.1},
        {"d": 35, "apart": 12, "second": 0.25, "third": 0.0, "wider": 1.0},
        {"d": 50, "apart": 9, "second": 0.3, "third": 0.2, "wider": 1.05},
    ],
)
def far_bumps(rng, d, apart, second, third, wider):
    shares = np.array([s for s in (1 - second - third, second, third) if s > 0])
    places, roots = [], []
    for at in range(len(shares)):
        turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
        sds = rng.uniform(0.7, 1.4, d) * wider**at
        roots.append(turn * sds)
        if at == 0:
            # A user's zeros are near one of them, not on it.
            places.append(roots[0] @ rng.standard_normal(d) / np.sqrt(d))
            continue
        way = rng.standard_normal(d)
        places.append(places[0] + apart * (roots[0] @ way) / np.linalg.norm(way))
    inverses = np.stack([np.linalg.inv(root) for root in roots])
    heights = np.log(shares) + np.linalg.slogdet(inverses)[1]
    centres = np.stack(places)

    def log_density(w):
        z = jnp.einsum("kij,kj->ki", inverses, w - centres)
        return jax.scipy.special.logsumexp(heights - 0.5 * (z**2).sum(1))

    return {"log_density": log_density, "init": np.zeros(d), "known": (centres, shares)}


# --- 11: labels that the prior tells apart ----------------------------------------------------


LEANING = [{"k": 2, "n": 40, "lean": 2.0}, {"k": 2, "n": 100, "lean": 0.4}]


@register("unequal labels", 1100, [*LEANING, {"k": 3, "n": 90, "lean": 1.0}])
def unequal_mixture(rng, k, n, lean):
    z = rng.integers(0, k, n)
    y = 4.5 * (z - (k - 1) / 2) + rng.standard_normal(n)
    centre = lean * (np.arange(k) - (k - 1) / 2)

    def log_density(w, y):
        prior = normal(w["m"], centre, 3.0) + normal(w["log_s"], 0.0, 0.5)
        each = log_normal(y[:, None], w["m"], jnp.exp(w["log_s"]))
        return prior + mixed(-np.log(k), each)

    init = {"m": quantiles(y, k), "log_s": np.zeros(k)}
    return {"log_density": log_density, "init": init, "data": y}


@register("unequal labels", 1103, [{"n": 80}])
def unequal_counts(rng, n):
    y = rng.poisson(np.where(rng.random(n) < 0.5, 3.0, 12.0)).astype(float)

    def log_density(w, y):
        prior = normal(w["log_rate"], np.array([1.5, 2.0]), 1.5)
        prior = prior + jnp.log(w["p"]) + 1.2 * jnp.log1p(-w["p"])  # Beta(2, 2.2)
        log_w = jnp.stack([jnp.log(w["p"]), jnp.log1p(-w["p"])])
        return prior + mixed(log_w, log_poisson(y[:, None], w["log_rate"]))

    init = {"log_rate": np.log(quantiles(y, 2) + 0.5), "p": 0.5}
    return {
        "log_density": log_density,
        "init": init,
        "data": y,
        "constraints": {"p": "unit"},
    }


@register("unequal labels", 1104, [{"p": 6, "n": 50}])
def leaning_factor(rng, p, n):
    loading = rng.uniform(0.8, 1.6, p) * rng.choice([-1, 1], p)
    y = rng.standard_normal(n)[:, None] * loading + 0.6 * rng.standard_normal((n, p))

    def log_density(w, y):
        prior = normal(w["loading"], 0.3, 2.0) + normal(w["log_s"])
        return prior + one_factor_rows(y, w["loading"], w["log_s"])

    init = {"loading": np.ones(p), "log_s": 0.0}
    return {"log_density": log_density, "init": init, "data": y}


@register("unequal labels", 1105, [{"n": 120}])
def sticky_states(rng, n):
    state = [0]
    for _ in range(n - 1):
        stay = rng.random() < (0.9, 0.8)[state[-1]]
        state.append(state[-1] if stay else 1 - state[-1])
    y = 2.5 * np.array(state) + 0.8 * rng.standard_normal(n)

    def log_density(w, y):
        # The first state is thought to be the stickier one.
        prior = normal(w["stay"], np.array([1.6, 1.2]), 1.0) + normal(w["m"], 1.0, 3.0)
        stay = w["stay"]
        log_rows = jnp.stack(
            [
                jnp.stack([jax.nn.log_sigmoid(stay[0]), jax.nn.log_sigmoid(-stay[0])]),
                jnp.stack([jax.nn.log_sigmoid(-stay[1]), jax.nn.log_sigmoid(stay[1])]),
            ]
        )
        each = log_normal(y[:, None], w["m"], jnp.exp(w["log_s"]))
        return prior + normal(w["log_s"], 0.0, 0.5) + forward(log_rows, each)

    init = {"m": quantiles(y, 2), "stay": np.zeros(2), "log_s": 0.0}
    return {"log_density": log_density, "init": init, "data": y}
