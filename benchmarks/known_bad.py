"""Targets that no Gaussian fits, or that have no mode: what the user gets to see.

Every line is either an error with its sentence or a verdict; none may be a silent wrong answer.
"""

import warnings

import jax.numpy as jnp
import numpy as np

import mixvi

SCHOOLS = {
    "effect": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    "se": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
}


def funnel(w):
    return -(w["v"] ** 2) / 18 - 4.5 * w["v"] - 0.5 * jnp.exp(-w["v"]) * (w["x"] ** 2).sum()


def two_far_modes(w):
    left = -0.5 * ((w + 10) ** 2).sum()
    right = -0.5 * ((w - 10) ** 2).sum()
    return jnp.logaddexp(left, right)


def banana(w):
    return -0.5 * w[0] ** 2 / 4 - 0.5 * ((w[1] - w[0] ** 2) / 0.3) ** 2


def eight_schools_centred(w, data):
    tau = jnp.exp(w["log_tau"])
    prior = -0.5 * (w["mu"] / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + w["log_tau"]
    groups = (-0.5 * ((w["theta"] - w["mu"]) / tau) ** 2 - jnp.log(tau)).sum()
    return prior + groups - 0.5 * (((data["effect"] - w["theta"]) / data["se"]) ** 2).sum()


def saddle(w):
    """Modes at x = +-2; the start (0, 0) is a saddle between them."""
    return -(w["x"] ** 4) / 4 + 2 * w["x"] ** 2 - 0.5 * w["y"] ** 2


def ridge(w):
    """A Gaussian with variance 1e6 along (1, 1) and 1 across."""
    along, across = (w["a"] + w["b"]) / jnp.sqrt(2), (w["a"] - w["b"]) / jnp.sqrt(2)
    return -0.5 * along**2 / 1e6 - 0.5 * across**2


def separable_logistic(w):
    x = jnp.array([-2.0, -1.0, 1.0, 2.0])
    return -jnp.log1p(jnp.exp(-jnp.abs(x) * w["slope"])).sum()


def flat_direction(w):
    return -0.5 * (w["a"] + w["b"] - 1) ** 2


def student(w):
    return -1.5 * jnp.log1p(w**2).sum()


def bounded(w):
    """An exponential distribution on x > 0 with its mode pulled inside: -inf outside."""
    return jnp.where(w["x"] > 0, 2 * jnp.log(w["x"]) - w["x"], -jnp.inf)


CASES = {
    "funnel (10 dimensions)": (funnel, {"v": 0.0, "x": np.ones(9)}, None),
    "two far modes": (two_far_modes, np.full(2, 9.0), None),
    "banana shape": (banana, np.array([1.0, 1.0]), None),
    "centred eight schools": (
        eight_schools_centred,
        {"mu": 0.0, "log_tau": 0.0, "theta": np.zeros(8)},
        SCHOOLS,
    ),
    "saddle start": (saddle, {"x": 0.0, "y": 0.0}, None),
    "ridge, variance 1e6": (ridge, {"a": 50.0, "b": -20.0}, None),
    "separable logistic, no prior": (separable_logistic, {"slope": 0.0}, None),
    "flat direction": (flat_direction, {"a": 0.0, "b": 0.0}, None),
    "heavy tails (Student, 2 df)": (student, np.full(2, 0.5), None),
    "support x > 0, untransformed": (bounded, {"x": 1.0}, None),
}


def seen(name: str, family: str) -> str:
    function, init, data = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mixvi.NotConvergedWarning)
        try:
            post = mixvi.fit(function, init, family=family, data=data)
        except mixvi.MixviError as error:
            return f"{type(error).__name__}: {error}"
    return post.verdict


def main() -> None:
    print("| target | family | what the user sees |\n|---|---|---|")
    for name in CASES:
        for family in ("laplace", "eig", "full", "auto"):
            print(f"| {name} | {family} | {seen(name, family)} |")


if __name__ == "__main__":
    main()
