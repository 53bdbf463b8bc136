"""Ten small models such as an applied scientist writes: what `nuts.py` runs over.

Each is `log_density(w, data)` on unbounded parameters with the start that a user would write, and
the same posterior as a NumPyro model of `data`. A parameter `log_x` is the log of the model's site
`x`, and `logit_x` its logit; the others have the site's own name.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special as jsp

from posteriors import bernoulli, half_normal, normal, student_t


@dataclasses.dataclass(frozen=True)
class SmallModel:
    name: str
    about: str
    log_density: Callable
    init: Any
    data: Any
    numpyro_model: Callable


MODELS: dict[str, Callable[[], SmallModel]] = {}


def model(about: str) -> Callable:
    def named(make: Callable) -> Callable:
        def built() -> SmallModel:
            return SmallModel(make.__name__, about, *make())

        MODELS[make.__name__] = built
        return built

    return named


def numpyro_parts() -> tuple[Callable, Any]:
    """`sample` and the distributions; NumPyro is needed for nothing else here."""
    import numpyro

    return numpyro.sample, numpyro.distributions


def unbounded(sites: dict[str, Any], init: dict[str, Any]) -> dict[str, Any]:
    """The parameters of `log_density`, named as in `init`, from values of NumPyro's sites."""

    def one(name: str) -> Any:
        if name in sites:
            return sites[name]
        scale, _, site = name.partition("_")
        return {"log": jnp.log, "logit": jsp.logit}[scale](sites[site])

    return {name: one(name) for name in init}


def gamma(log_x, shape, rate):
    """Of `x = exp(log_x)`, with the Jacobian, up to a constant."""
    return (shape * log_x - rate * jnp.exp(log_x)).sum()


# --- regressions ------------------------------------------------------------------------------


@model("linear regression, noise unknown")
def linear_regression():
    rng = np.random.default_rng(101)
    x = rng.standard_normal((60, 3))
    y = 1.0 + x @ [0.8, -0.5, 0.0] + 0.7 * rng.standard_normal(60)

    def log_density(w, data):
        mean = w["alpha"] + data["x"] @ w["beta"]
        prior = normal(w["alpha"], 0.0, 5.0) + normal(w["beta"], 0.0, 2.0)
        prior = prior + half_normal(w["log_sigma"], 2.0)
        return prior + normal(data["y"], mean, jnp.exp(w["log_sigma"]))

    def numpyro_model(data):
        sample, dist = numpyro_parts()
        alpha = sample("alpha", dist.Normal(0.0, 5.0))
        beta = sample("beta", dist.Normal(0.0, 2.0).expand([3]))
        sigma = sample("sigma", dist.HalfNormal(2.0))
        sample("y", dist.Normal(alpha + data["x"] @ beta, sigma), obs=data["y"])

    init = {"alpha": 0.0, "beta": np.zeros(3), "log_sigma": 0.0}
    return log_density, init, {"x": x, "y": y}, numpyro_model


@model("logistic regression, nine features")
def logistic_regression():
    rng = np.random.default_rng(102)
    x = rng.standard_normal((150, 9))
    logit = -0.5 + x @ np.array([1.0, -0.8, 0.5, 0.3, 0.0, 0.0, -0.2, 0.0, 0.6])
    y = (rng.uniform(size=150) < 1 / (1 + np.exp(-logit))).astype(float)

    def log_density(w, data):
        prior = normal(w["alpha"], 0.0, 2.5) + normal(w["beta"])
        return prior + bernoulli(data["y"], w["alpha"] + data["x"] @ w["beta"])

    def numpyro_model(data):
        sample, dist = numpyro_parts()
        alpha = sample("alpha", dist.Normal(0.0, 2.5))
        beta = sample("beta", dist.Normal(0.0, 1.0).expand([9]))
        sample("y", dist.Bernoulli(logits=alpha + data["x"] @ beta), obs=data["y"])

    return log_density, {"alpha": 0.0, "beta": np.zeros(9)}, {"x": x, "y": y}, numpyro_model


@model("Poisson regression with exposures")
def poisson_regression():
    rng = np.random.default_rng(103)
    x, exposure = rng.standard_normal((80, 3)), rng.uniform(0.5, 5.0, 80)
    y = rng.poisson(exposure * np.exp(0.3 + x @ [0.5, -0.3, 0.1])).astype(float)

    def log_density(w, data):
        log_mean = jnp.log(data["exposure"]) + w["alpha"] + data["x"] @ w["beta"]
        prior = normal(w["alpha"], 0.0, 5.0) + normal(w["beta"])
        return prior + (data["y"] * log_mean - jnp.exp(log_mean)).sum()

    def numpyro_model(data):
        sample, dist = numpyro_parts()
        alpha = sample("alpha", dist.Normal(0.0, 5.0))
        beta = sample("beta", dist.Normal(0.0, 1.0).expand([3]))
        mean = data["exposure"] * jnp.exp(alpha + data["x"] @ beta)
        sample("y", dist.Poisson(mean), obs=data["y"])

    init = {"alpha": 0.0, "beta": np.zeros(3)}
    return log_density, init, {"x": x, "exposure": exposure, "y": y}, numpyro_model


@model("negative binomial regression, dispersion unknown")
def dispersed_counts():
    rng = np.random.default_rng(104)
    x = rng.standard_normal((70, 2))
    mean = np.exp(1.0 + x @ [0.6, -0.4])
    y = rng.poisson(mean * rng.gamma(2.0, 1 / 2.0, 70)).astype(float)

    def log_density(w, data):
        y, eta, shape = data["y"], w["alpha"] + data["x"] @ w["beta"], jnp.exp(w["log_shape"])
        log_p = jsp.gammaln(y + shape) - jsp.gammaln(shape) + shape * w["log_shape"] + y * eta
        log_p = log_p - (y + shape) * jnp.logaddexp(w["log_shape"], eta)
        prior = normal(w["alpha"], 0.0, 5.0) + normal(w["beta"]) + gamma(w["log_shape"], 2.0, 0.5)
        return prior + log_p.sum()

    def numpyro_model(data):
        sample, dist = numpyro_parts()
        alpha = sample("alpha", dist.Normal(0.0, 5.0))
        beta = sample("beta", dist.Normal(0.0, 1.0).expand([2]))
        shape = sample("shape", dist.Gamma(2.0, 0.5))
        mean = jnp.exp(alpha + data["x"] @ beta)
        sample("y", dist.NegativeBinomial2(mean, shape), obs=data["y"])

    init = {"alpha": 0.0, "beta": np.zeros(2), "log_shape": 0.0}
    return log_density, init, {"x": x, "y": y}, numpyro_model


@model("Student-t regression, degrees of freedom unknown")
def robust_regression():
    rng = np.random.default_rng(105)
    x = rng.standard_normal((80, 3))
    y = -0.5 + x @ [1.0, 0.4, -0.7] + 0.5 * rng.standard_t(3, 80)

    def log_density(w, data):
        sigma, nu = jnp.exp(w["log_sigma"]), jnp.exp(w["log_nu"])
        residual = (data["y"] - w["alpha"] - data["x"] @ w["beta"]) / sigma
        prior = normal(w["alpha"], 0.0, 5.0) + normal(w["beta"], 0.0, 2.0)
        prior = prior + half_normal(w["log_sigma"], 2.0) + gamma(w["log_nu"], 2.0, 0.1)
        return prior + student_t(residual, nu) - len(data["y"]) * w["log_sigma"]

    def numpyro_model(data):
        sample, dist = numpyro_parts()
        alpha = sample("alpha", dist.Normal(0.0, 5.0))
        beta = sample("beta", dist.Normal(0.0, 2.0).expand([3]))
        sigma = sample("sigma", dist.HalfNormal(2.0))
        nu = sample("nu", dist.Gamma(2.0, 0.1))
        sample("y", dist.StudentT(nu, alpha + data["x"] @ beta, sigma), obs=data["y"])

    init = {"alpha": 0.0, "beta": np.zeros(3), "log_sigma": 0.0, "log_nu": 0.0}
    return log_density, init, {"x": x, "y": y}, numpyro_model


# --- groups -----------------------------------------------------------------------------------


@model("means of six groups with 8 rows each, non-centred")
def six_groups():
    rng = np.random.default_rng(106)
    group = np.repeat(np.arange(6), 8)
    y = 2.0 + 0.8 * rng.standard_normal(6)[group] + rng.standard_normal(len(group))

    def log_density(w, data):
        theta = w["mu"] + jnp.exp(w["log_tau"]) * w["z"]
        prior = normal(w["mu"], 0.0, 5.0) + half_normal(w["log_tau"], 2.0) + normal(w["z"])
        prior = prior + half_normal(w["log_sigma"], 2.0)
        return prior + normal(data["y"], theta[data["group"]], jnp.exp(w["log_sigma"]))

    def numpyro_model(data):
        sample, dist = numpyro_parts()
        mu = sample("mu", dist.Normal(0.0, 5.0))
        tau = sample("tau", dist.HalfNormal(2.0))
        sigma = sample("sigma", dist.HalfNormal(2.0))
        z = sample("z", dist.Normal(0.0, 1.0).expand([6]))
        sample("y", dist.Normal((mu + tau * z)[data["group"]], sigma), obs=data["y"])

    init = {"mu": 0.0, "log_tau": 0.0, "log_sigma": 0.0, "z": np.zeros(6)}
    return log_density, init, {"y": y, "group": group}, numpyro_model


@model("rates of four dose groups, litters beta-binomial")
def litter_rates():
    rng = np.random.default_rng(107)
    dose, n = np.repeat(np.arange(4), 10), rng.integers(5, 15, 40)
    rate = np.array([0.1, 0.2, 0.45, 0.7])[dose]
    y = rng.binomial(n, rng.beta(8 * rate, 8 * (1 - rate))).astype(float)

    def log_density(w, data):
        y, n, size = data["y"], data["n"], jnp.exp(w["log_size"])
        rate = jax.nn.sigmoid(w["logit_rate"])
        a, b = (size * rate)[data["dose"]], (size * (1 - rate))[data["dose"]]
        uniform = -(jax.nn.softplus(w["logit_rate"]) + jax.nn.softplus(-w["logit_rate"])).sum()
        prior = uniform + gamma(w["log_size"], 2.0, 0.1)
        return prior + (jsp.betaln(y + a, n - y + b) - jsp.betaln(a, b)).sum()

    def numpyro_model(data):
        sample, dist = numpyro_parts()
        rate = sample("rate", dist.Beta(1.0, 1.0).expand([4]))
        size = sample("size", dist.Gamma(2.0, 0.1))
        a, b = (size * rate)[data["dose"]], (size * (1 - rate))[data["dose"]]
        sample("y", dist.BetaBinomial(a, b, data["n"]), obs=data["y"])

    init = {"logit_rate": np.zeros(4), "log_size": 0.0}
    return log_density, init, {"y": y, "n": n, "dose": dose}, numpyro_model


# --- time -------------------------------------------------------------------------------------


@model("AR(2) on 100 steps, given the first two")
def ar2():
    rng = np.random.default_rng(108)
    y = np.zeros(200)
    for t in range(2, 200):
        y[t] = 0.5 + 0.6 * y[t - 1] - 0.3 * y[t - 2] + 0.8 * rng.standard_normal()

    def log_density(w, y):
        mean = w["alpha"] + w["phi"][0] * y[1:-1] + w["phi"][1] * y[:-2]
        prior = normal(w["alpha"], 0.0, 2.0) + normal(w["phi"], 0.0, 0.5)
        prior = prior + half_normal(w["log_sigma"], 2.0)
        return prior + normal(y[2:], mean, jnp.exp(w["log_sigma"]))

    def numpyro_model(y):
        sample, dist = numpyro_parts()
        alpha = sample("alpha", dist.Normal(0.0, 2.0))
        phi = sample("phi", dist.Normal(0.0, 0.5).expand([2]))
        sigma = sample("sigma", dist.HalfNormal(2.0))
        mean = alpha + phi[0] * y[1:-1] + phi[1] * y[:-2]
        sample("y", dist.Normal(mean, sigma), obs=y[2:])

    init = {"alpha": 0.0, "phi": np.zeros(2), "log_sigma": 0.0}
    return log_density, init, y[100:], numpyro_model


@model("Weibull survival times with censoring")
def survival():
    rng = np.random.default_rng(109)
    x = rng.standard_normal((90, 3))
    died = np.exp(1.0 + x @ [0.5, -0.4, 0.0]) * rng.weibull(1.5, 90)
    left = rng.uniform(1.0, 8.0, 90)
    data = {"x": x, "time": np.minimum(died, left), "event": (died <= left).astype(float)}

    def log_density(w, data):
        shape = jnp.exp(w["log_shape"])
        log_time = shape * (jnp.log(data["time"]) - w["alpha"] - data["x"] @ w["beta"])
        log_hazard = w["log_shape"] + log_time - jnp.log(data["time"])
        prior = normal(w["alpha"], 0.0, 2.0) + normal(w["beta"]) + half_normal(w["log_shape"], 2.0)
        return prior + (data["event"] * log_hazard - jnp.exp(log_time)).sum()

    def numpyro_model(data):
        import numpyro

        sample, dist = numpyro_parts()
        alpha = sample("alpha", dist.Normal(0.0, 2.0))
        beta = sample("beta", dist.Normal(0.0, 1.0).expand([3]))
        shape = sample("shape", dist.HalfNormal(2.0))
        time, seen = data["time"], data["event"] == 1
        scale = jnp.exp(alpha + data["x"] @ beta)
        sample("time", dist.Weibull(scale, shape).mask(seen), obs=time)
        numpyro.factor("censored", jnp.where(seen, 0.0, -((time / scale) ** shape)))

    return log_density, {"alpha": 0.0, "beta": np.zeros(3), "log_shape": 0.0}, data, numpyro_model


# --- curves -----------------------------------------------------------------------------------


@model("enzyme kinetics (Michaelis and Menten), 24 measurements")
def michaelis_menten():
    rng = np.random.default_rng(110)
    substrate = np.tile([0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 6.0, 8.0], 3)
    rate = 3.0 * substrate / (1.5 + substrate) + 0.15 * rng.standard_normal(24)

    def log_density(w, data):
        top, half = jnp.exp(w["log_top"]), jnp.exp(w["log_half"])
        mean = top * data["substrate"] / (half + data["substrate"])
        prior = normal(w["log_top"], 0.0, 2.0) + normal(w["log_half"], 0.0, 2.0)
        prior = prior + half_normal(w["log_sigma"], 1.0)
        return prior + normal(data["rate"], mean, jnp.exp(w["log_sigma"]))

    def numpyro_model(data):
        sample, dist = numpyro_parts()
        top = sample("top", dist.LogNormal(0.0, 2.0))
        half = sample("half", dist.LogNormal(0.0, 2.0))
        sigma = sample("sigma", dist.HalfNormal(1.0))
        mean = top * data["substrate"] / (half + data["substrate"])
        sample("rate", dist.Normal(mean, sigma), obs=data["rate"])

    init = {"log_top": 0.0, "log_half": 0.0, "log_sigma": 0.0}
    return log_density, init, {"substrate": substrate, "rate": rate}, numpyro_model
