"""NumPyro's guides and BlackJAX's Gaussians, for `peers.py`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from peer_tools import FALL, RATE, STEPS, Draws, Fit, Flow, Gaussian, flat, gaussian, tool

# Paths of the several-path Pathfinder, and how far from the start they begin.
PATHS, SPREAD, N_DRAWS = 8, 2.0, 4000
# A flow takes a quarter of a minute to compile with few dimensions, and longer with more.
FLOW_DIM = 10

# --- NumPyro: `factor` over one improper site ----------------------------------------------------


def numpyro_guide(problem: Any, kind: str, **settings: Any) -> tuple:
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import autoguide, init_to_value

    log_density, start = flat(problem)

    def model():
        support = dist.constraints.real_vector
        w = numpyro.sample("w", dist.ImproperUniform(support, (), (start.size,)))
        numpyro.factor("log_density", log_density(w))

    where = init_to_value(values={"w": start})
    return model, getattr(autoguide, kind)(model, init_loc_fn=where, **settings)


def falling_adam() -> Any:
    import optax

    return optax.adam(optax.exponential_decay(RATE, STEPS, FALL))


def by_svi(kind: str, judged: Callable) -> Callable[[Any], Fit]:
    def make(problem: Any) -> Fit:
        import jax
        import optax  # noqa: F401
        from numpyro.infer import SVI, Trace_ELBO

        made: dict[str, Any] = {}

        def fit():
            if not made:
                model, guide = numpyro_guide(problem, kind)
                svi = SVI(model, guide, falling_adam(), Trace_ELBO())
                key = jax.random.key(0)

                # One program for all steps, so that a warm call compiles nothing.
                def run(state):
                    return svi.run(key, STEPS, progress_bar=False, init_state=state).params

                made.update(guide=guide, state=svi.init(key), run=jax.jit(run))
            return jax.block_until_ready(made["run"](made["state"]))

        return fit, lambda params: judged(made["guide"], params)

    return make


def of_sites(guide: Any, params: Any) -> Gaussian:
    return Gaussian(np.asarray(params["w_auto_loc"]), np.asarray(params["w_auto_scale"]))


def of_posterior(guide: Any, params: Any) -> Gaussian:
    found = guide.get_posterior(params)
    return gaussian(found.mean, found.covariance_matrix)


def of_flow(guide: Any, params: Any) -> Flow:
    import jax
    import jax.numpy as jnp

    transform = guide.get_transform(params)
    dim = guide.latent_dim

    def one(z):
        w = transform(z)
        log_normal = -0.5 * (z @ z) - 0.5 * dim * jnp.log(2 * jnp.pi)
        return w, log_normal - transform.log_abs_det_jacobian(z, w)

    z = jax.random.normal(jax.random.key(1), (2**15, dim))
    points, log_q = jax.lax.map(one, z, batch_size=2**10)
    return Flow(np.asarray(points), np.asarray(log_q))


tool("NumPyro AutoNormal")(by_svi("AutoNormal", of_sites))
tool("NumPyro AutoMultivariateNormal")(by_svi("AutoMultivariateNormal", of_posterior))
tool("NumPyro AutoLowRankMVN")(by_svi("AutoLowRankMultivariateNormal", of_posterior))


@tool("NumPyro AutoBNAFNormal")
def numpyro_bnaf(problem: Any) -> Fit:
    _, start = flat(problem)
    if start.size > FLOW_DIM:
        raise NotImplementedError(f"left out above {FLOW_DIM} dimensions")
    return by_svi("AutoBNAFNormal", of_flow)(problem)


@tool("NumPyro AutoLaplace")
def numpyro_laplace(problem: Any) -> Fit:
    """With `optim.Minimize` (BFGS), as in its docstring."""
    import jax
    from numpyro import optim
    from numpyro.infer import SVI, Trace_ELBO

    made: dict[str, Any] = {}

    def fit():
        if not made:
            model, guide = numpyro_guide(problem, "AutoLaplaceApproximation")
            svi = SVI(model, guide, optim.Minimize(), Trace_ELBO())
            state = svi.init(jax.random.key(0))
            mode = jax.jit(lambda state: svi.get_params(svi.update(state)[0]))
            root = jax.jit(lambda params: guide.get_transform(params).scale_tril)
            made.update(state=state, mode=mode, root=root)
        params = made["mode"](made["state"])
        return jax.block_until_ready((params["auto_loc"], made["root"](params)))

    def judged(found):
        mean, root = map(np.asarray, found)
        return Gaussian(mean, root if np.diagonal(root).all() else None)

    return fit, judged


# --- BlackJAX -----------------------------------------------------------------------------------


@tool("BlackJAX pathfinder")
def blackjax_pathfinder(problem: Any) -> Fit:
    """With its defaults: the Gaussian that it samples from."""
    import jax
    from blackjax.vi import pathfinder

    made: list = []

    def fit():
        if not made:
            log_density, start = flat(problem)
            made.append(jax.jit(lambda key: pathfinder.approximate(key, log_density, start)[0]))
        return jax.block_until_ready(made[0](jax.random.key(0)))

    return fit, of_pathfinder


def of_pathfinder(state: Any) -> Gaussian:
    """By its own draws: they are an affine image of normal ones, which least squares finds."""
    import jax
    from blackjax.vi import pathfinder

    key, dim = jax.random.key(2), state.position.size
    n = 2 * dim + 8
    draws = np.asarray(pathfinder.sample(key, state, n)[0])
    normal = np.asarray(jax.random.normal(key, (n, dim, 1)))[..., 0]
    solved = np.linalg.lstsq(np.column_stack([np.ones(n), normal]), draws, rcond=None)[0]
    assert np.allclose(np.column_stack([np.ones(n), normal]) @ solved, draws)
    return Gaussian(solved[0], solved[1:].T)


@tool("BlackJAX multi-path pathfinder")
def blackjax_multipath(problem: Any) -> Fit:
    """Eight paths from around the start, resampled by Pareto-smoothed weights."""
    import jax
    from blackjax.vi import multipathfinder

    made: list = []

    def fit():
        if not made:
            log_density, start = flat(problem)
            tops = multipathfinder.as_top_level_api(log_density)
            key = jax.random.key(3)
            around = jax.random.uniform(key, (PATHS, start.size), minval=-SPREAD, maxval=SPREAD)

            def run(key):
                state, _ = tops.init(key, start + around, num_samples=N_DRAWS // PATHS)
                return tops.sample(key, state, N_DRAWS)

            made.append(jax.jit(run))
        return jax.block_until_ready(made[0](jax.random.key(0)))

    return fit, lambda draws: Draws(np.asarray(draws))


@tool("BlackJAX full rank")
def blackjax_fullrank(problem: Any) -> Fit:
    """Half the steps of the others with eight draws each; sticking the landing, its default."""
    import jax
    import jax.numpy as jnp
    import optax  # noqa: F401
    from blackjax.vi import fullrank_vi

    made: list = []

    def fit():
        if not made:
            log_density, start = flat(problem)  # it starts at zero: hence the shift
            tops = fullrank_vi.as_top_level_api(
                lambda v: log_density(start + v), falling_adam(), num_samples=8
            )

            def run(key):
                def step(state, key):
                    return tops.step(key, state)[0], None

                keys = jax.random.split(key, STEPS // 2)
                return jax.lax.scan(step, tops.init(jnp.zeros(start.size)), keys)[0]

            made.append((jax.jit(run), start))
        return jax.block_until_ready(made[0][0](jax.random.key(0)))

    def judged(state):
        start = made[0][1]
        lower = np.zeros((start.size, start.size))
        params = np.asarray(state.chol_params)
        lower[np.tril_indices(start.size, -1)] = params[start.size :]
        root = lower + np.diag(np.exp(params[: start.size]))
        return Gaussian(start + np.asarray(state.mu), root)

    return fit, judged
