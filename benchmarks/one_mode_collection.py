"""Posteriors with one mode, or with none and one connected bulk: whoever speaks of another mode
here is wrong. Twelve kinds of six data sets, made and kept as those of `modes_collection.py`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special as jsp

from modes_collection import (
    Case,
    log_normal,
    log_poisson,
    log_student,
    mixed,
    moves,
    one_factor_rows,
)
from modes_collection import register as registered
from posteriors import bernoulli, half_normal, normal, root_of_kernel, student_t

MAKERS: dict[str, Callable[..., Case]] = {}


def register(kind: str, seed: int, settings: list[dict[str, Any]]) -> Callable:
    return registered(kind, seed, settings, MAKERS)


def cases() -> Iterator[Case]:
    moved = moves()
    return (make(moved.get(name, 0)) for name, make in MAKERS.items())


def chosen(rng, logit) -> np.ndarray:
    return (rng.random(np.shape(logit)) < 1 / (1 + np.exp(-logit))).astype(float)


# --- hierarchies ------------------------------------------------------------------------------

GROUPS = [
    {"groups": 8, "tau": 1.0, "emits": "normal"},
    {"groups": 12, "tau": 0.3, "emits": "normal"},
    {"groups": 20, "tau": 1.0, "emits": "normal"},
    {"groups": 10, "tau": 0.7, "emits": "poisson"},
    {"groups": 15, "tau": 0.4, "emits": "poisson"},
    {"groups": 16, "tau": 1.0, "emits": "binomial"},
]


def grouped(rng, groups, tau, emits):
    """Data of the groups, and their log likelihood given the effects."""
    theta = 0.5 + tau * rng.standard_normal(groups)
    if emits == "normal":
        # With 20 groups measured well enough for a mode beside the neck of the funnel.
        se = rng.uniform(0.3, 1.0, groups) * (0.4 if groups == 20 else 1.0)
        data = {"y": theta + se * rng.standard_normal(groups), "se": se}
        return data, lambda theta, data: normal(data["y"], theta, data["se"])
    if emits == "poisson":
        data = {"y": rng.poisson(4 * np.exp(theta)).astype(float)}
        return data, lambda theta, data: log_poisson(data["y"], theta + np.log(4.0)).sum()
    data = {"y": rng.binomial(10, 1 / (1 + np.exp(-theta))).astype(float)}
    return data, lambda theta, data: (data["y"] * theta - 10 * jax.nn.softplus(theta)).sum()


@register("centred hierarchy", 2100, GROUPS)
def centred(rng, groups, tau, emits):
    data, likelihood = grouped(rng, groups, tau, emits)

    def log_density(w, data):
        prior = normal(w["mu"], 0.0, 3.0) + half_normal(w["log_tau"], 1.0)
        prior = prior + normal(w["theta"], w["mu"], jnp.exp(w["log_tau"]))
        return prior + likelihood(w["theta"], data)

    init = {"mu": 0.0, "log_tau": 0.0, "theta": np.zeros(groups)}
    return {"log_density": log_density, "init": init, "data": data}


@register("non-centred hierarchy", 2200, GROUPS)
def non_centred(rng, groups, tau, emits):
    data, likelihood = grouped(rng, groups, tau, emits)

    def log_density(w, data):
        prior = normal(w["mu"], 0.0, 3.0) + half_normal(w["log_tau"], 1.0) + normal(w["z"])
        return prior + likelihood(w["mu"] + jnp.exp(w["log_tau"]) * w["z"], data)

    init = {"mu": 0.0, "log_tau": 0.0, "z": np.zeros(groups)}
    return {"log_density": log_density, "init": init, "data": data}


# --- shapes -----------------------------------------------------------------------------------


@register("skewed", 2300, [{"d": 1, "shape": 0.5}, {"d": 4, "shape": 1.0}, {"d": 12, "shape": 2.0}])
def log_gammas(rng, d, shape):
    rate = rng.uniform(0.5, 3.0, d)

    def log_density(w):
        return (shape * jnp.log(w) - jnp.log(w) - rate * w).sum()

    return {"log_density": log_density, "init": np.ones(d), "constraints": {"w": "positive"}}


@register("skewed", 2303, [{"d": 6, "top": 2.0}, {"d": 15, "top": 8.0}])
def few_counts(rng, d, top):
    y = rng.poisson(rng.uniform(0, top, d)).astype(float)

    def log_density(w, y):
        return log_poisson(y, w).sum() + normal(w, 0.0, 2.0)

    return {"log_density": log_density, "init": np.zeros(d), "data": y}


@register("skewed", 2305, [{"n": 15}])
def weibull(rng, n):
    y = 2.0 * rng.weibull(0.8, n)

    def log_density(w, y):
        ratio = y / w["scale"]
        prior = normal(jnp.log(w["scale"]), 0.0, 2.0) + normal(jnp.log(w["shape"]))
        body = jnp.log(w["shape"] / w["scale"]) + (w["shape"] - 1) * jnp.log(ratio)
        return prior + (body - ratio ** w["shape"]).sum()

    return {
        "log_density": log_density,
        "init": {"scale": 1.0, "shape": 1.0},
        "data": y,
        "constraints": {"scale": "positive", "shape": "positive"},
    }


@register("heavy tails", 2400, [{"d": 2, "nu": 2.0}, {"d": 5, "nu": 3.0}, {"d": 10, "nu": 5.0}])
def student_product(rng, d, nu):
    mix = np.linalg.inv(np.eye(d) + 0.3 * rng.standard_normal((d, d)))

    def log_density(w):
        return student_t(mix @ w, nu)

    return {"log_density": log_density, "init": np.ones(d)}


@register("heavy tails", 2403, [{"n": 40, "d": 2}, {"n": 80, "d": 5}, {"n": 150, "d": 10}])
def cauchy_regression(rng, n, d):
    x = rng.standard_normal((n, d))
    y = x @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)  # clean data

    def log_density(w, data):
        return student_t((data["y"] - data["x"] @ w) / 0.5, 1.0) + normal(w, 0.0, 3.0)

    return {"log_density": log_density, "init": np.zeros(d), "data": {"x": x, "y": y}}


@register("banana or funnel", 2500, [{"d": 2, "bend": 0.3}, {"d": 5, "bend": 1.0}])
def banana(rng, d, bend):
    sds = rng.uniform(0.5, 1.5, d)
    sds[0] = 2.0

    def log_density(w):
        bent = jnp.concatenate([w[:1], w[1:2] - bend * (w[0] ** 2 - 4.0), w[2:]])
        return normal(bent, 0.0, sds)

    return {"log_density": log_density, "init": np.zeros(d)}


@register("banana or funnel", 2502, [{"d": 3, "sd": 0.3}, {"d": 2, "sd": 0.7}])
def rosenbrock(rng, d, sd):
    at = rng.uniform(0.5, 1.0)

    def log_density(w):
        return normal(w[0], at, 1.0) + normal(w[1:], w[:-1] ** 2, sd)

    return {"log_density": log_density, "init": np.zeros(d)}


@register("banana or funnel", 2504, [{"d": 5, "sd": 1.0}, {"d": 10, "sd": 1.5}])
def funnel(rng, d, sd):
    def log_density(w):
        return normal(w["v"], 0.0, sd) + normal(w["x"], 0.0, jnp.exp(w["v"] / 2))

    return {"log_density": log_density, "init": {"v": 0.0, "x": np.zeros(d)}}


# --- regressions ------------------------------------------------------------------------------

SEPARABLE = [{"n": n, "d": d} for n, d in ((12, 2), (20, 3), (30, 5), (30, 10), (60, 15), (50, 25))]


@register("near-separable logistic", 2600, SEPARABLE)
def separable(rng, n, d):
    x = rng.standard_normal((n, d))
    y = (x @ rng.standard_normal(d) > 0).astype(float)

    def log_density(w, data):
        return (
            bernoulli(data["y"], data["x"] @ w["b"] + w["a"])
            + normal(w["b"], 0.0, 5.0)
            + (normal(w["a"], 0.0, 5.0))
        )

    init = {"a": 0.0, "b": np.zeros(d)}
    return {"log_density": log_density, "init": init, "data": {"x": x, "y": y}}


REGRESSIONS = [
    {"n": 50, "d": 3, "emits": "normal"},
    {"n": 200, "d": 40, "emits": "normal"},
    {"n": 100, "d": 5, "emits": "logistic"},
    {"n": 400, "d": 60, "emits": "logistic"},
    {"n": 60, "d": 4, "emits": "poisson"},
    {"n": 200, "d": 20, "emits": "poisson"},
]


@register("regression", 2700, REGRESSIONS)
def regression(rng, n, d, emits):
    x = rng.standard_normal((n, d))
    eta = x @ rng.standard_normal(d) / np.sqrt(d)
    y = {
        "normal": lambda: eta + 0.7 * rng.standard_normal(n),
        "logistic": lambda: chosen(rng, 2 * eta),
        "poisson": lambda: rng.poisson(np.exp(0.5 + 0.7 * eta)).astype(float),
    }[emits]()

    def log_density(w, data):
        eta = data["x"] @ w["b"] + w["a"]
        prior = normal(w["b"]) + normal(w["a"], 0.0, 3.0)
        if emits == "normal":
            return (
                prior + normal(data["y"], eta, jnp.exp(w["log_s"])) + half_normal(w["log_s"], 2.0)
            )
        if emits == "logistic":
            return prior + bernoulli(data["y"], eta)
        return prior + log_poisson(data["y"], eta).sum()

    init = {"a": 0.0, "b": np.zeros(d)} | ({"log_s": 0.0} if emits == "normal" else {})
    return {"log_density": log_density, "init": init, "data": {"x": x, "y": y}}


SCALES = [
    {"n": 40, "d": 2, "noise": "student"},
    {"n": 100, "d": 5, "noise": "student"},
    {"n": 200, "d": 10, "noise": "student"},
    {"n": 60, "d": 2, "noise": "gumbel"},
    {"n": 120, "d": 6, "noise": "gumbel"},
    {"n": 80, "d": 3, "noise": "gamma"},
]


@register("skewed or heavy noise", 2800, SCALES)
def noisy(rng, n, d, noise):
    x = rng.standard_normal((n, d))
    eta = x @ rng.standard_normal(d)
    if noise == "gamma":
        y = np.exp(0.5 * eta) * rng.gamma(2.0, 0.5, n)
    else:
        y = eta + 0.5 * (rng.standard_t(4, n) if noise == "student" else rng.gumbel(size=n))

    def log_density(w, data):
        y, eta, scale = data["y"], data["x"] @ w["b"], jnp.exp(w["log_s"])
        prior = normal(w["b"], 0.0, 2.0) + normal(w["log_s"])
        if noise == "student":
            return prior + log_student(y, eta, scale).sum()
        if noise == "gumbel":
            z = (y - eta) / scale
            return prior - (z + jnp.exp(-z) + w["log_s"]).sum()
        body = scale * (w["log_s"] - eta) + (scale - 1) * jnp.log(y) - scale * y * jnp.exp(-eta)
        return prior + (body - jsp.gammaln(scale)).sum()

    init = {"b": np.zeros(d), "log_s": 0.0}
    return {"log_density": log_density, "init": init, "data": {"x": x, "y": y}}


@register("ordinal or softmax", 2900, [{"n": 60, "d": 2}, {"n": 120, "d": 4}, {"n": 200, "d": 8}])
def ordinal(rng, n, d):
    x = rng.standard_normal((n, d))
    latent = x @ rng.standard_normal(d) + rng.logistic(size=n)
    y = (latent[:, None] > np.array([-1.5, 0.0, 1.5])).sum(1)

    def log_density(w, data):
        edges = jnp.concatenate([jnp.array([-40.0]), w["cuts"], jnp.array([40.0])])
        eta, y = data["x"] @ w["b"], data["y"]
        share = jax.nn.sigmoid(edges[y + 1] - eta) - jax.nn.sigmoid(edges[y] - eta)
        prior = normal(w["b"], 0.0, 2.0) + normal(w["cuts"], 0.0, 3.0)
        return prior + jnp.log(jnp.maximum(share, 1e-30)).sum()

    return {
        "log_density": log_density,
        "init": {"b": np.zeros(d), "cuts": np.array([-1.0, 0.0, 1.0])},
        "data": {"x": x, "y": y},
        "constraints": {"cuts": "ordered"},
    }


CLASSES = [{"n": 60, "d": 3, "k": 3}, {"n": 150, "d": 5, "k": 4}, {"n": 200, "d": 10, "k": 3}]


@register("ordinal or softmax", 2903, CLASSES)
def softmax(rng, n, d, k):
    x = rng.standard_normal((n, d))
    y = (x @ rng.standard_normal((d, k)) + rng.gumbel(size=(n, k))).argmax(1)

    def log_density(w, data):
        log_p = jax.nn.log_softmax(data["x"] @ w.T, axis=1)
        return log_p[jnp.arange(n), data["y"]].sum() + normal(w)

    return {"log_density": log_density, "init": np.zeros((k, d)), "data": {"x": x, "y": y}}


# --- processes --------------------------------------------------------------------------------


@register("Gaussian process", 3000, [{"n": 30}, {"n": 50}, {"n": 80}])
def process_scales(rng, n):
    x = np.sort(rng.uniform(0, 6, n))
    y = 1.5 * np.sin(1.5 * x) + 0.3 * rng.standard_normal(n)

    def log_density(w, data):
        root = root_of_kernel(
            data["x"], w["log_width"], w["log_size"], jnp.exp(2 * w["log_s"]) + 1e-8
        )
        z = jax.scipy.linalg.solve_triangular(root, data["y"], lower=True)
        prior = normal(w["log_width"], 0.0, 0.5) + normal(w["log_size"], 0.0, 0.7)
        prior = prior + normal(w["log_s"], -1.0, 0.7)
        return prior - 0.5 * (z**2).sum() - jnp.log(jnp.diagonal(root)).sum()

    init = {"log_width": 0.0, "log_size": 0.0, "log_s": 0.0}
    return {"log_density": log_density, "init": init, "data": {"x": x, "y": y}}


PROCESSES = [{"n": 20, "emits": "logistic"}, {"n": 40, "emits": "logistic"}]


@register("Gaussian process", 3003, [*PROCESSES, {"n": 30, "emits": "poisson"}])
def process_values(rng, n, emits):
    x = np.sort(rng.uniform(0, 6, n))
    eta = np.sin(1.5 * x)
    y = chosen(rng, 3 * eta) if emits == "logistic" else rng.poisson(np.exp(1 + eta)).astype(float)

    def log_density(w, data):
        f = root_of_kernel(data["x"], 0.0, 0.5) @ w
        likelihood = bernoulli(data["y"], f) if emits == "logistic" else log_poisson(data["y"], f)
        return normal(w) + likelihood.sum()

    return {"log_density": log_density, "init": np.zeros(n), "data": {"x": x, "y": y}}


# --- what order and sign would have switched --------------------------------------------------


@register("order or sign fixed", 3100, [{"k": 2, "n": 80}, {"k": 2, "n": 150}, {"k": 3, "n": 200}])
def ordered_mixture(rng, k, n):
    y = 5.0 * (rng.integers(0, k, n) - (k - 1) / 2) + rng.standard_normal(n)
    centre = 5.0 * (np.arange(k) - (k - 1) / 2)

    def log_density(w, y):
        prior = normal(w["m"], centre, 2.0) + normal(w["log_s"], 0.0, 0.3)
        prior = prior + 4 * jnp.log(w["p"]).sum()  # Dirichlet(5, ..., 5)
        each = log_normal(y[:, None], w["m"], jnp.exp(w["log_s"]))
        return prior + mixed(jnp.log(w["p"]), each)

    return {
        "log_density": log_density,
        "init": {"m": np.arange(k) - (k - 1) / 2, "log_s": 0.0, "p": np.full(k, 1 / k)},
        "data": y,
        "constraints": {"m": "ordered", "p": "simplex"},
    }


@register("order or sign fixed", 3103, [{"p": 4, "n": 40}, {"p": 6, "n": 80}, {"p": 10, "n": 60}])
def positive_loadings(rng, p, n):
    y = rng.standard_normal(n)[:, None] * rng.uniform(0.8, 1.6, p)
    y = y + 0.6 * rng.standard_normal((n, p))

    def log_density(w, y):
        prior = normal(w["loading"], 0.0, 2.0) + normal(jnp.log(w["s"]))
        return prior + one_factor_rows(y, w["loading"], jnp.log(w["s"]))

    return {
        "log_density": log_density,
        "init": {"loading": np.ones(p), "s": 1.0},
        "data": y,
        "constraints": {"loading": "positive", "s": "positive"},
    }


@register("shares and items", 3200, [{"k": 3, "n": 20}, {"k": 6, "n": 40}, {"k": 12, "n": 60}])
def dirichlet(rng, k, n):
    y = rng.multinomial(n, rng.dirichlet(np.ones(k))).astype(float)

    def log_density(w, y):
        return ((y + 0.5) * jnp.log(w)).sum()  # Dirichlet(1.5, ..., 1.5)

    return {
        "log_density": log_density,
        "init": np.full(k, 1 / k),
        "data": y,
        "constraints": {"w": "simplex"},
    }


PEOPLE = [{"people": 20, "items": 6}, {"people": 30, "items": 10}, {"people": 40, "items": 8}]


@register("shares and items", 3203, PEOPLE)
def item_response(rng, people, items):
    sharp, hard = rng.uniform(0.8, 2.0, items), rng.standard_normal(items)
    y = chosen(rng, sharp * (rng.standard_normal((people, 1)) - hard))

    def log_density(w, y):
        prior = normal(w["skill"]) + normal(w["hard"], 0.0, 1.5)
        prior = prior + normal(jnp.log(w["sharp"]), 0.0, 0.5)
        return prior + bernoulli(y, w["sharp"] * (w["skill"][:, None] - w["hard"]))

    return {
        "log_density": log_density,
        "init": {"skill": np.zeros(people), "hard": np.zeros(items), "sharp": np.ones(items)},
        "data": y,
        "constraints": {"sharp": "positive"},
    }
