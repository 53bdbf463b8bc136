"""Warm time of `laplace` and `fit` against the same mathematics jitted by hand, in one run.

The hand-written Laplace is Newton to the same precision, the Hessian at the end, and its inverse;
the hand-written pass is the value and gradient of the bound of one family over the same draws.
"""

import argparse

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

import mixvi
from problems import interleaved, logistic, machine, raetsch, synthetic


def hand_newton(with_inverse: bool):
    def loss(w, data):
        return -logistic(w, data)

    @jax.jit
    def run(w, data):
        def body(carry):
            w, _, n = carry
            gradient, hessian = jax.grad(loss)(w, data), jax.hessian(loss)(w, data)
            step = jsl.cho_solve((jnp.linalg.cholesky(hessian), True), gradient)
            return w - step, gradient @ step, n + 1

        start = (w, jnp.inf, 0)
        w, *_ = jax.lax.while_loop(lambda c: (c[1] > 1e-14) & (c[2] < 50), body, start)
        hessian = jax.hessian(loss)(w, data)
        if not with_inverse:
            return w, hessian
        return w, jsl.cho_solve((jnp.linalg.cholesky(hessian), True), jnp.eye(w.size))

    return run


@jax.jit
def hand_pass(params, mode, root, z, data):
    """Value and gradient of the eig bound."""

    def loss(params):
        m, rho = jnp.split(params, 2)
        points = mode + (m + jnp.exp(rho) * z) @ root.T
        return -jax.vmap(lambda w: logistic(w, data))(points).mean() - rho.sum()

    return jax.value_and_grad(loss)(params)


def measure(name: str, data, draws: int, repeats: int) -> None:
    dim = data[0].shape[1]
    w0 = np.zeros(dim)
    post = mixvi.fit(logistic, w0, family="eig", data=data, draws=draws, diagnostics=False)
    z = mixvi.Matched(draws).make(0, dim)
    with jax.enable_x64(True):
        newton, newton_inverse = hand_newton(False), hand_newton(True)

        def scoped(function, *arguments):
            with jax.enable_x64(True):
                jax.block_until_ready(function(*arguments))

        params = np.zeros(2 * dim)
        times = interleaved(
            {
                "Newton + Hessian": lambda: scoped(newton, w0, data),
                "Newton + inverse Hessian": lambda: scoped(newton_inverse, w0, data),
                "laplace": lambda: mixvi.laplace(logistic, w0, data=data, diagnostics=False),
                "one pass": lambda: scoped(hand_pass, params, post.mode, post.root, z, data),
                "fit eig": lambda: mixvi.fit(
                    logistic, w0, family="eig", data=data, draws=draws, diagnostics=False
                ),
                "laplace, judged": lambda: mixvi.laplace(logistic, w0, data=data),
                "fit eig, judged": lambda: mixvi.fit(
                    logistic, w0, family="eig", data=data, draws=draws
                ),
                "fit eig, all defaults": lambda: mixvi.fit(logistic, w0, family="eig", data=data),
            },
            repeats,
        )
    passes = post.stats.passes
    allowed = times["laplace"] + 1.3 * passes * times["one pass"]
    ms = {key: 1e3 * value for key, value in times.items()}
    laplace_adds = ms["laplace, judged"] - ms["laplace"]
    fit_adds = ms["fit eig, judged"] - ms["fit eig"]
    print(
        f"| {name} | {draws} | {ms['Newton + Hessian']:.2f} | {ms['Newton + inverse Hessian']:.2f} "
        f"| {ms['laplace']:.2f} | {times['laplace'] / times['Newton + Hessian']:.2f} | {passes} "
        f"| {ms['one pass']:.2f} | {ms['fit eig']:.1f} | {times['fit eig'] / allowed:.2f} "
        f"| {laplace_adds:.1f} | {fit_adds:.1f} | {ms['fit eig, all defaults']:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    repeats = parser.parse_args().repeats
    print(f"{machine()}; medians of {repeats} interleaved repeats, milliseconds\n")
    print(
        "| problem (N=400, D=31) | S | Newton + Hessian | + inverse | laplace | ratio (<= 1.5) "
        "| passes (<= 15) | one pass | fit eig | fit / (laplace + 1.3 passes) (<= 1) "
        "| diagnostics add: laplace | fit eig | fit eig, all defaults |"
    )
    print("|---|" + "---|" * 12)
    for draws in (200, 1000):
        measure("synthetic", synthetic(), draws, repeats)
        measure("banana, 30 bumps", raetsch("banana"), draws, repeats)


if __name__ == "__main__":
    main()
