"""Centred or not? Hierarchies from one to fifty rows a group, against the exact posterior of tau.

    y_ij ~ N(theta_j, 1),  theta_j ~ N(mu, tau^2),  mu ~ N(0, 3^2)

and a log-normal prior of tau, log tau ~ N(0, 1), or a half-normal one, tau ~ |N(0, 1)|, which lets
tau come near zero. Given tau everything is Gaussian, so that the posterior of log tau is an
integral over one number.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

import mixvi

ROWS, N_GROUPS, TAU = (1, 2, 5, 10, 20, 50), 10, 0.5
N_SETS = 10
# Log densities of log tau.
PRIORS: dict[str, Callable] = {
    "log-normal": lambda log_tau: -0.5 * log_tau**2,
    "half-normal": lambda log_tau: log_tau - 0.5 * jnp.exp(2 * log_tau),
}


def exact(means: np.ndarray, n: int, prior: Callable) -> tuple[float, float]:
    """Mean and standard deviation of log tau, by the trapezium rule over log tau."""
    log_tau = np.linspace(-12, 3, 6001)
    variance = np.exp(2 * log_tau)[:, None] + 1 / n
    # mu is integrated out: the group means are N(0, variance I + 9 1 1^T).
    weight = 1 / variance
    precision = weight * len(means)
    fit = (weight * means**2).sum(1) - (weight * means).sum(1) ** 2 / (precision[:, 0] + 1 / 9)
    log_det = len(means) * np.log(variance[:, 0]) + np.log(1 + 9 * precision[:, 0])
    log_p = -0.5 * (fit + log_det) + np.asarray(prior(log_tau))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = float(p @ log_tau)
    return mean, float(np.sqrt(p @ (log_tau - mean) ** 2))


def forms(prior: Callable) -> tuple[Callable, Callable]:
    """The log density, centred and non-centred."""

    def common(w):
        return -0.5 * (w["mu"] / 3) ** 2 + prior(w["log_tau"])

    def centred(w, data):
        means, n = data
        tau = jnp.exp(w["log_tau"])
        groups = (-0.5 * ((w["theta"] - w["mu"]) / tau) ** 2 - w["log_tau"]).sum()
        return common(w) + groups - 0.5 * n * ((means - w["theta"]) ** 2).sum()

    def non_centred(w, data):
        means, n = data
        theta = w["mu"] + jnp.exp(w["log_tau"]) * w["z"]
        return common(w) - 0.5 * (w["z"] ** 2).sum() - 0.5 * n * ((means - theta) ** 2).sum()

    return centred, non_centred


def fits(written: tuple[Callable, Callable], means: np.ndarray, n: int) -> dict:
    start, zeros = {"mu": 0.0, "log_tau": 0.0}, np.zeros(N_GROUPS)
    data = (means, np.array(float(n)))
    return {
        "centred": mixvi.fit(written[0], {**start, "theta": zeros}, data),
        "non-centred": mixvi.fit(written[1], {**start, "z": zeros}, data),
    }


def main() -> None:
    print(f"{N_GROUPS} groups, tau = {TAU}, {N_SETS} data sets each; medians, and how often.")
    for name, prior in PRIORS.items():
        print(f"\nA {name} prior of tau:\n")
        table(prior)


def table(prior: Callable) -> None:
    rng, written = np.random.default_rng(20), forms(prior)
    print(
        "| rows a group | the bound prefers centred | sd of log tau, centred / exact | "
        "non-centred / exact | mean off, sd: centred | non-centred | centred trusted | "
        "non-centred trusted | worst sd of those trusted, times: centred | non-centred |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for n in ROWS:
        prefers, ratio, off, trusted, worst = 0, [], [], np.zeros(2, int), [1.0, 1.0]
        for _ in range(N_SETS):
            theta = rng.normal(1, TAU, N_GROUPS)
            means = theta + rng.standard_normal(N_GROUPS) / np.sqrt(n)
            mean, sd = exact(means, n, prior)
            posts = fits(written, means, n)
            prefers += mixvi.compare(posts).best == "centred"
            ratio.append([float(post.std["log_tau"]) / sd for post in posts.values()])
            off.append([abs(float(post.mean["log_tau"]) - mean) / sd for post in posts.values()])
            for form, post in enumerate(posts.values()):
                if post.trust == "trust":
                    trusted[form] += 1
                    times = ratio[-1][form]
                    worst[form] = max(worst[form], times, 1 / times)
        r, o = np.median(ratio, axis=0), np.median(off, axis=0)
        shown = [f"{w:.2f}" if t else "" for w, t in zip(worst, trusted, strict=True)]
        print(
            f"| {n} | {prefers} of {N_SETS} | {r[0]:.2f} | {r[1]:.2f} | {o[0]:.2f} | {o[1]:.2f} | "
            f"{trusted[0]} | {trusted[1]} | {shown[0]} | {shown[1]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
