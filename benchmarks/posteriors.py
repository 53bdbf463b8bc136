"""Posteriors on which Gaussians are hard to find, or easy: what `hard.py` runs over.

Each is `log_density(w, data)` on unbounded parameters, normalised up to a constant, with the start
that a user would write. Data are drawn from the model with a fixed seed, so nothing is downloaded.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special as jsp

SCHOOLS = {
    "effect": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    "se": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
}
HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A posterior under its short name; `about` says what makes it worth having.

    `judge` is how a long run of NUTS gets at it where it would not from `init`: the same posterior
    in other parameters, a start among those, and the way back.
    """

    name: str
    about: str
    log_density: Callable
    init: Any
    data: Any
    judge: tuple[Callable, Any, Callable] | None = None


PROBLEMS: dict[str, Callable[[], Problem]] = {}


def problem(about: str) -> Callable:
    def named(make: Callable) -> Callable:
        def built() -> Problem:
            return Problem(make.__name__, about, *make())

        PROBLEMS[make.__name__] = built
        return built

    return named


def normal(x, mean=0.0, sd=1.0):
    return (-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - HALF_LOG_2PI).sum()


def half_normal(log_x, sd):
    """Of `x = exp(log_x)`, with the Jacobian."""
    return normal(jnp.exp(log_x), 0.0, sd) + jnp.sum(log_x)


def half_cauchy(log_x, scale=1.0):
    return (log_x - jnp.log1p((jnp.exp(log_x) / scale) ** 2)).sum()


def bernoulli(y, logit):
    return (y * logit - jax.nn.softplus(logit)).sum()


def student_t(x, nu):
    half = 0.5 * (nu + 1)
    norm = jsp.gammaln(half) - jsp.gammaln(0.5 * nu) - 0.5 * jnp.log(nu * jnp.pi)
    return (norm - half * jnp.log1p(x**2 / nu)).sum()


def root_of_kernel(x, log_width, log_scale, jitter=1e-6):
    square = (x[:, None] - x) ** 2
    kernel = jnp.exp(2 * log_scale - 0.5 * square * jnp.exp(-2 * log_width))
    return jnp.linalg.cholesky(kernel + jitter * jnp.eye(len(x)))


# --- hierarchies ------------------------------------------------------------------------------


def effects(w):
    return w["mu"] + jnp.exp(w["log_tau"]) * w["z"]


def schools_log_density(w, data):
    prior = normal(w["mu"], 0.0, 5.0) + half_cauchy(w["log_tau"], 5.0) + normal(w["z"])
    return prior + normal(data["effect"], effects(w), data["se"])


@problem("eight schools, non-centred")
def schools():
    return schools_log_density, {"mu": 0.0, "log_tau": 0.0, "z": np.zeros(8)}, SCHOOLS


@problem("eight schools, centred: the density has no mode")
def schools_centred():
    def log_density(w, data):
        prior = normal(w["mu"], 0.0, 5.0) + half_cauchy(w["log_tau"], 5.0)
        groups = normal(w["theta"], w["mu"], jnp.exp(w["log_tau"]))
        return prior + groups + normal(data["effect"], w["theta"], data["se"])

    def back(w):
        return {"mu": w["mu"], "log_tau": w["log_tau"], "theta": effects(w)}

    judge = schools_log_density, {"mu": 0.0, "log_tau": 0.0, "z": np.zeros(8)}, back
    return log_density, {"mu": 0.0, "log_tau": 0.0, "theta": np.zeros(8)}, SCHOOLS, judge


@problem("group means with 40 rows a group, centred: the data fix the scale")
def groups_centred():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(30), 40)
    y = 1.5 + 0.7 * rng.standard_normal(30)[group] + rng.standard_normal(len(group))

    def log_density(w, data):
        prior = normal(w["mu"], 0.0, 5.0) + half_normal(w["log_tau"], 2.0)
        prior = prior + half_normal(w["log_sigma"], 2.0)
        groups = normal(w["theta"], w["mu"], jnp.exp(w["log_tau"]))
        mean = w["theta"][data["group"]]
        return prior + groups + normal(data["y"], mean, jnp.exp(w["log_sigma"]))

    init = {"mu": 0.0, "log_tau": 0.0, "log_sigma": 0.0, "theta": np.zeros(30)}
    return log_density, init, {"y": y, "group": group}


@problem("logistic regression with intercepts and slopes of 100 groups")
def hierarchical_logistic():
    rng = np.random.default_rng(2)
    n_groups, rows = 100, 12
    group = np.repeat(np.arange(n_groups), rows)
    x = rng.standard_normal((len(group), 2))
    level = 0.5 + 0.8 * rng.standard_normal(n_groups)
    slope = -1.0 + 0.5 * rng.standard_normal(n_groups)
    logit = level[group] + slope[group] * x[:, 0] + 0.4 * x[:, 1]
    y = (rng.uniform(size=len(group)) < 1 / (1 + np.exp(-logit))).astype(float)

    def log_density(w, data):
        level = w["beta"][0] + jnp.exp(w["log_sd"][0]) * w["z"][0]
        slope = w["beta"][1] + jnp.exp(w["log_sd"][1]) * w["z"][1]
        x, group = data["x"], data["group"]
        logit = level[group] + slope[group] * x[:, 0] + w["beta"][2] * x[:, 1]
        prior = normal(w["beta"], 0.0, 2.0) + half_normal(w["log_sd"], 1.0) + normal(w["z"])
        return prior + bernoulli(data["y"], logit)

    init = {"beta": np.zeros(3), "log_sd": np.zeros(2), "z": np.zeros((2, n_groups))}
    return log_density, init, {"x": x, "y": y, "group": group}


@problem("sparse regression with a horseshoe prior, non-centred")
def horseshoe():
    rng = np.random.default_rng(3)
    n, p = 100, 60
    x = rng.standard_normal((n, p))
    beta = np.zeros(p)
    beta[:5] = [3.0, -2.0, 1.5, 1.0, -0.7]
    y = x @ beta + rng.standard_normal(n)

    def log_density(w, data):
        scale = jnp.exp(w["log_tau"] + w["log_lambda"])
        prior = half_cauchy(w["log_tau"], 0.1) + half_cauchy(w["log_lambda"])
        prior = prior + half_normal(w["log_sigma"], 2.0) + normal(w["z"])
        fitted = data["x"] @ (scale * w["z"])
        return prior + normal(data["y"], fitted, jnp.exp(w["log_sigma"]))

    init = {"log_tau": 0.0, "log_sigma": 0.0, "log_lambda": np.zeros(p), "z": np.zeros(p)}
    return log_density, init, {"x": x, "y": y}


@problem("30 people answer 25 questions (two-parameter item response)")
def item_response():
    rng = np.random.default_rng(4)
    n_people, n_items = 30, 25
    ability = rng.standard_normal(n_people)
    hardness, slope = rng.standard_normal(n_items), np.exp(0.4 * rng.standard_normal(n_items))
    logit = slope * (ability[:, None] - hardness)
    y = (rng.uniform(size=logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)

    def log_density(w, data):
        hardness = w["mean"] + jnp.exp(w["log_sd"]) * w["hardness"]
        slope = jnp.exp(0.5 * w["log_slope"])
        prior = normal(w["ability"]) + normal(w["hardness"]) + normal(w["log_slope"])
        prior = prior + normal(w["mean"], 0.0, 2.0) + half_normal(w["log_sd"], 2.0)
        return prior + bernoulli(data, slope * (w["ability"][:, None] - hardness))

    init = {
        "ability": np.zeros(n_people),
        "hardness": np.zeros(n_items),
        "log_slope": np.zeros(n_items),
        "mean": 0.0,
        "log_sd": 0.0,
    }
    return log_density, init, y


# --- Gaussian processes -----------------------------------------------------------------------


@problem("Poisson counts with a Gaussian-process log rate and its two hyperparameters")
def poisson_gp():
    rng = np.random.default_rng(5)
    x = np.linspace(-3, 3, 30)
    y = rng.poisson(np.exp(0.8 + np.sin(2 * x))).astype(float)

    def log_density(w, data):
        x, y = data
        prior = normal(w["log_width"], 0.0, 0.7) + half_normal(w["log_scale"], 2.0)
        prior = prior + normal(w["z"]) + normal(w["mean"], 0.0, 2.0)
        rate = w["mean"] + root_of_kernel(x, w["log_width"], w["log_scale"]) @ w["z"]
        return prior + (y * rate - jnp.exp(rate)).sum()

    init = {"log_width": 0.0, "log_scale": 0.0, "mean": 0.0, "z": np.zeros(len(x))}
    return log_density, init, (x, y)


@problem("Poisson counts, few, with the latent values themselves as parameters")
def poisson_gp_centred():
    rng = np.random.default_rng(6)
    x = np.linspace(-3, 3, 20)
    y = rng.poisson(np.exp(0.3 + 0.8 * np.sin(2 * x))).astype(float)

    def root(w):
        return root_of_kernel(x, w["log_width"], w["log_scale"], jitter=1e-2)

    def whitened(w, data):
        _, y = data
        prior = normal(w["log_width"], 0.0, 0.7) + half_normal(w["log_scale"], 2.0)
        f = root(w) @ w["z"]
        return prior + normal(w["z"]) + (y * f - jnp.exp(f)).sum()

    def log_density(w, data):
        z = jax.scipy.linalg.solve_triangular(root(w), w["f"], lower=True)
        return whitened(w | {"z": z}, data) - jnp.log(jnp.diagonal(root(w))).sum()

    def back(w):
        return {"log_width": w["log_width"], "log_scale": w["log_scale"], "f": root(w) @ w["z"]}

    init = {"log_width": 0.0, "log_scale": 0.0, "f": np.zeros(len(x))}
    start = {"log_width": 0.0, "log_scale": 0.0, "z": np.zeros(len(x))}
    return log_density, init, (x, y), (whitened, start, back)


@problem("a Gaussian process for the mean, another one for the log noise")
def two_latent_gp():
    rng = np.random.default_rng(7)
    x = np.linspace(-2, 2, 30)
    y = np.sin(2 * x) + np.exp(-1.0 + 0.8 * x) * rng.standard_normal(len(x))

    def log_density(w, data):
        x, y = data
        prior = normal(w["log_width"], 0.0, 0.7) + half_normal(w["log_scale"], 1.0)
        prior = prior + normal(w["z"]) + normal(w["level"])
        roots = [root_of_kernel(x, w["log_width"][k], w["log_scale"][k]) for k in range(2)]
        mean = w["level"][0] + roots[0] @ w["z"][0]
        log_noise = w["level"][1] + roots[1] @ w["z"][1]
        return prior + normal(y, mean, jnp.exp(log_noise))

    init = {
        "log_width": np.zeros(2),
        "log_scale": np.zeros(2),
        "level": np.zeros(2),
        "z": np.zeros((2, len(x))),
    }
    return log_density, init, (x, y)


# --- regressions ------------------------------------------------------------------------------


@problem("linear regression in raw units: years, incomes, grams")
def raw_units():
    rng = np.random.default_rng(8)
    n = 80
    year, income = rng.uniform(1960, 2020, n), np.exp(rng.normal(10.5, 0.6, n))
    grams = rng.normal(3e-4, 1e-4, n)
    y = -900 + 0.5 * year + 2e-4 * income - 3e4 * grams + 4 * rng.standard_normal(n)
    x = np.stack([np.ones(n), year, income, grams], 1)

    def log_density(w, data):
        x, y = data
        prior = normal(w["beta"], 0.0, jnp.array([1e4, 1e2, 1.0, 1e6]))
        return (
            prior
            + half_normal(w["log_sigma"], 50.0)
            + normal(y, x @ w["beta"], jnp.exp(w["log_sigma"]))
        )

    # NUTS sees the coefficients of orthogonal columns: a linear change of parameters.
    q, r = np.linalg.qr(x)
    way_back = np.linalg.inv(r)

    def back(w):
        return {"beta": way_back @ w["b"], "log_sigma": w["log_sigma"]}

    judge = lambda w, data: log_density(back(w), data), {"b": q.T @ y, "log_sigma": 1.4}, back
    return log_density, {"beta": np.zeros(4), "log_sigma": 0.0}, (x, y), judge


@problem("softmax regression, 5 classes, 50 features")
def softmax():
    rng = np.random.default_rng(9)
    x = rng.standard_normal((500, 50)) / np.sqrt(5)
    logits = x @ rng.standard_normal((50, 5))
    y = np.argmax(logits + rng.gumbel(size=logits.shape), 1)

    def log_density(w, data):
        x, y = data
        logits = x @ w
        picked = jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
        return (picked - jsp.logsumexp(logits, axis=1)).sum() + normal(w)

    return log_density, np.zeros((50, 5)), (x, y)


@problem("logistic regression, 10,000 rows, 100 features")
def logistic():
    rng = np.random.default_rng(10)
    x = rng.standard_normal((10_000, 100)) / 10
    y = (rng.uniform(size=10_000) < 1 / (1 + np.exp(-x @ rng.standard_normal(100)))).astype(float)

    def log_density(w, data):
        x, y = data
        return bernoulli(y, x @ w) + normal(w)

    return log_density, np.zeros(100), (x, y)


@problem("logistic regression, 20,000 rows, 8 features: Laplace is right")
def large_logistic():
    rng = np.random.default_rng(16)
    x = rng.standard_normal((20_000, 8))
    logit = x @ np.linspace(-1, 1, 8)
    y = (rng.uniform(size=20_000) < 1 / (1 + np.exp(-logit))).astype(float)

    def log_density(w, data):
        x, y = data
        return bernoulli(y, x @ w) + normal(w, 0.0, 2.0)

    return log_density, np.zeros(8), (x, y)


@problem("linear regression with known noise: exactly Gaussian")
def known_noise():
    rng = np.random.default_rng(17)
    x = rng.standard_normal((200, 20))
    y = x @ rng.standard_normal(20) + rng.standard_normal(200)

    def log_density(w, data):
        x, y = data
        return normal(w, 0.0, 2.0) + normal(y, x @ w, 1.0)

    return log_density, np.zeros(20), (x, y)


@problem("Student-t regression with outliers and unknown degrees of freedom")
def heavy_tails():
    rng = np.random.default_rng(11)
    x = np.column_stack([np.ones(60), rng.standard_normal((60, 5))])
    y = x @ np.array([1.0, 2.0, -1.0, 0.0, 0.5, 0.0]) + rng.standard_t(2, 60)

    def log_density(w, data):
        x, y = data
        sigma, nu = jnp.exp(w["log_sigma"]), 1 + jnp.exp(w["log_nu"])
        prior = normal(w["beta"], 0.0, 5.0) + half_normal(w["log_sigma"], 2.0)
        prior = prior + normal(w["log_nu"], 1.5, 1.0)
        return prior + student_t((y - x @ w["beta"]) / sigma, nu) - len(y) * w["log_sigma"]

    return log_density, {"beta": np.zeros(6), "log_sigma": 0.0, "log_nu": 0.0}, (x, y)


@problem("counts with a negative binomial, few rows")
def negative_binomial():
    rng = np.random.default_rng(12)
    x = np.column_stack([np.ones(25), rng.standard_normal((25, 3))])
    mean = np.exp(x @ np.array([0.5, 0.8, -0.5, 0.0]))
    y = rng.poisson(mean * rng.gamma(1.5, 1 / 1.5, 25)).astype(float)

    def log_density(w, data):
        x, y = data
        eta, shape = x @ w["beta"], jnp.exp(w["log_shape"])
        log_p = (
            jsp.gammaln(y + shape)
            - jsp.gammaln(shape)
            - (y + shape) * jnp.logaddexp(jnp.log(shape), eta)
            + shape * jnp.log(shape)
            + y * eta
        )
        return log_p.sum() + normal(w["beta"], 0.0, 2.0) + normal(w["log_shape"], 0.0, 1.5)

    return log_density, {"beta": np.zeros(4), "log_shape": 0.0}, (x, y)


# --- time -------------------------------------------------------------------------------------


@problem("GARCH(1, 1) on 300 returns")
def garch():
    rng = np.random.default_rng(13)
    y, variance = np.zeros(300), 1.0
    for t in range(300):
        y[t] = np.sqrt(variance) * rng.standard_normal()
        variance = 0.2 + 0.25 * y[t] ** 2 + 0.55 * variance

    def log_density(w, y):
        a = jax.nn.sigmoid(w["logit_a"])
        b = (1 - a) * jax.nn.sigmoid(w["logit_b"])
        jacobian = (
            a * (1 - a) * (1 - a) * jax.nn.sigmoid(w["logit_b"]) * jax.nn.sigmoid(-w["logit_b"])
        )
        omega, mu = jnp.exp(w["log_omega"]), w["mu"]

        def step(variance, value):
            following = omega + a * (value - mu) ** 2 + b * variance
            return following, -0.5 * (value - mu) ** 2 / variance - 0.5 * jnp.log(variance)

        log_p = jax.lax.scan(step, jnp.var(y), y)[1].sum()
        return log_p + normal(mu) + half_normal(w["log_omega"], 1.0) + jnp.log(jacobian)

    return log_density, {"mu": 0.0, "log_omega": 0.0, "logit_a": 0.0, "logit_b": 0.0}, y


@problem("AR(5) on 120 steps")
def ar5():
    rng = np.random.default_rng(14)
    y = np.zeros(320)
    for t in range(5, 320):
        y[t] = 0.3 + y[t - 5 : t][::-1] @ [0.6, -0.2, 0.15, 0.1, -0.1] + rng.standard_normal()
    y = y[200:]

    def log_density(w, y):
        lags = jnp.stack([y[5 - k : len(y) - k] for k in range(1, 6)], 1)
        mean = w["alpha"] + lags @ w["beta"]
        prior = normal(w["alpha"], 0.0, 10.0) + normal(w["beta"], 0.0, 10.0)
        return (
            prior + half_cauchy(w["log_sigma"], 2.5) + normal(y[5:], mean, jnp.exp(w["log_sigma"]))
        )

    return log_density, {"alpha": 0.0, "beta": np.zeros(5), "log_sigma": 0.0}, y


@problem("hares and lynxes (Lotka and Volterra's equations), from the mean of a vague prior")
def predator_prey():
    rng = np.random.default_rng(15)
    times, inner = 20, 10
    truth = np.log(np.array([0.55, 0.028, 0.80, 0.024, 30.0, 5.0]))

    def path(log_rates):
        a, b, c, d, u0, v0 = jnp.exp(log_rates)

        def slope(state):
            u, v = jnp.exp(state)  # log populations stay positive
            return jnp.array([a - b * v, d * u - c])

        def one(state, _):
            h = 1.0 / inner
            k1 = slope(state)
            k2 = slope(state + 0.5 * h * k1)
            k3 = slope(state + 0.5 * h * k2)
            k4 = slope(state + h * k3)
            return state + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6, state

        states = jax.lax.scan(one, jnp.log(jnp.array([u0, v0])), None, length=times * inner)[1]
        return states[::inner]

    with jax.enable_x64(True):
        y = np.asarray(path(jnp.asarray(truth))) + 0.25 * rng.standard_normal((times, 2))

    def log_density(w, y):
        prior = normal(w["log_rates"], jnp.array([0.0, -3.0, 0.0, -3.0, 2.3, 2.3]), 1.0)
        prior = prior + normal(w["log_sigma"], -1.0, 1.0)
        return prior + normal(y, path(w["log_rates"]), jnp.exp(w["log_sigma"]))

    init = {"log_rates": np.array([0.0, -3.0, 0.0, -3.0, 2.3, 2.3]), "log_sigma": -1.0}
    # The truth lies in the highest mode; a spread of starts found no other of any mass.
    judge = log_density, {"log_rates": truth, "log_sigma": -1.4}, lambda w: w
    return log_density, init, y, judge
