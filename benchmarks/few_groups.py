"""Twelve groups of few rows, with a noise that is not known: how often is a Gaussian trusted whose
spread of log tau is wrong?

    y_ij ~ N(clinic_i + effect t_ij, sigma^2),  clinic_i ~ N(mean, tau^2),
    sigma ~ |N(0, 2^2)|,  tau ~ |N(0, 1)| or gamma(2, 2)

The clinics are parameters ("centred") or integrated out. Four parameters are then left, whose
posterior is judged by importance sampling from a Student-t around its Gaussian.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import mixvi

K, N_SETS, N_DRAWS = 12, 6, 40_000
PRIORS: dict[str, Callable] = {
    "half-normal": lambda tau: norm.logpdf(tau),
    "gamma(2, 2)": lambda tau: jnp.log(tau) - 2 * tau,
}
START = {"mean": 0.0, "effect": 0.0, "tau": 1.0, "sigma": 1.0}
BOUNDS = {"tau": "positive", "sigma": "positive"}
BAD = 1.5  # an sd off by such a factor, as in verdicts.py


def densities(prior: Callable, tau: float, most: int, seed: int) -> tuple[Callable, Callable]:
    rng = np.random.default_rng(seed)
    clinic = np.repeat(np.arange(K), rng.integers(2, most + 1, K))
    treated = rng.integers(0, 2, len(clinic)).astype(float)
    y = 5 + 1.2 * treated + rng.normal(0, tau, K)[clinic] + rng.normal(0, 1.0, len(clinic))
    size = np.bincount(clinic, minlength=K)

    def common(w):
        of_means = norm.logpdf(w["mean"], 0, 10) + norm.logpdf(w["effect"], 0, 5)
        return of_means + norm.logpdf(w["sigma"], 0, 2) + prior(w["tau"])

    def centred(w):
        fitted = w["clinic"][clinic] + w["effect"] * treated
        clinics = norm.logpdf(w["clinic"], w["mean"], w["tau"]).sum()
        return common(w) + clinics + norm.logpdf(y, fitted, w["sigma"]).sum()

    def integrated(w):
        residual = y - w["mean"] - w["effect"] * treated
        total = jnp.zeros(K).at[clinic].add(residual)
        shared = w["sigma"] ** 2 + size * w["tau"] ** 2
        clinics = jnp.log(w["sigma"] ** 2 / shared) + (w["tau"] * total / w["sigma"]) ** 2 / shared
        return common(w) + norm.logpdf(residual, 0, w["sigma"]).sum() + 0.5 * clinics.sum()

    return centred, integrated


def exact(integrated: Callable, post: mixvi.Posterior) -> tuple[float, float]:
    """Mean and standard deviation of log tau, from draws three degrees of freedom wide."""
    rng, names = np.random.default_rng(1), post.names
    z = rng.standard_normal((N_DRAWS, 4)) / np.sqrt(rng.chisquare(3, (N_DRAWS, 1)) / 3)
    at = post.flat_mean + 1.2 * z @ post.root.T

    def log_p(u):
        w = dict(zip(names, u, strict=True))
        sigma, tau = jnp.exp(w["log sigma"]), jnp.exp(w["log tau"])
        both = {"mean": w["mean"], "effect": w["effect"], "sigma": sigma, "tau": tau}
        return integrated(both) + w["log sigma"] + w["log tau"]

    with jax.enable_x64(True):
        values = np.asarray(jax.jit(jax.vmap(log_p))(jnp.asarray(at)))
    log_weight = values + 3.5 * np.log1p((z**2).sum(1) / 3)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    log_tau = at[:, names.index("log tau")]
    mean = float(weight @ log_tau)
    return mean, float(np.sqrt(weight @ (log_tau - mean) ** 2))


def main() -> None:
    print(
        f"{K} clinics, {N_SETS} data sets each. Wrong: the standard deviation of log tau is off by "
        f"more than {BAD} times, or its mean by more than half of one.\n\n"
        "| prior of tau | tau | rows a clinic | centred: trusted | trusted, but wrong | worst sd "
        "of those trusted, times | integrated: trusted | trusted, but wrong |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for name, prior in PRIORS.items():
        for tau in (0.6, 1.0):
            for most in (4, 8):
                trusted, wrong, worst = [0, 0], [0, 0], 1.0
                for seed in range(N_SETS):
                    centred, integrated = densities(prior, tau, most, seed)
                    wide = {**START, "clinic": np.zeros(K)}
                    first = mixvi.fit(centred, wide, constraints=BOUNDS)
                    second = mixvi.fit(integrated, START, constraints=BOUNDS)
                    mean, sd = exact(integrated, second)
                    for k, post in enumerate((first, second)):
                        if post.trust != "trust":
                            continue
                        j = post.names.index("log tau")
                        times = post.flat_std[j] / sd
                        times = max(times, 1 / times)
                        trusted[k] += 1
                        wrong[k] += times > BAD or abs(post.flat_mean[j] - mean) > 0.5 * sd
                        worst = max(worst, times) if k == 0 else worst
                print(
                    f"| {name} | {tau} | 2 to {most} | {trusted[0]} | {wrong[0]} | {worst:.2f} | "
                    f"{trusted[1]} | {wrong[1]} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
