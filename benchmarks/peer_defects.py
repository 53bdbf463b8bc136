"""Minimal cases of what is wrong in peers, for `peers.py --defects`: each has a known answer.

A case gives a sentence with the numbers seen, and whether the defect is there in the version that
is installed.
"""

from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

CASES: dict[tuple[str, str], Callable[[], tuple[str, bool]]] = {}


def case(library: str, title: str) -> Callable:
    def named(seen: Callable) -> Callable:
        CASES[library, title] = seen
        return seen

    return named


def shown() -> list[dict[str, Any]]:
    """A row for each case."""
    rows = []
    for (library, title), seen in CASES.items():
        try:
            said, holds = seen()
        except Exception as error:
            said, holds = f"{type(error).__name__}: {str(error)[:160]}", True
        version = f"{library} {metadata.version(library)}"
        told = {"title": title, "said": said, "holds": bool(holds)}
        rows.append({"name": "defect", "tool": version} | told)
    return rows


@case("blackjax", "Pathfinder's Gaussian is centred on the wrong side of its point")
def pathfinder_centre() -> tuple[str, bool]:
    """A normal target of mean 3: from any point of the path, a Newton step ends at 3."""
    import jax
    import jax.numpy as jnp
    from blackjax.vi import pathfinder

    sd = jnp.array([1.0, 4.0])

    def log_density(w):
        return -0.5 * (((w - 3) / sd) ** 2).sum()

    key = jax.random.key(0)
    path = pathfinder.approximate(key, log_density, jnp.zeros(2), maxiter=3)[1].path
    # The second point of the path, with the curvature seen until then.
    state = jax.tree.map(lambda leaf: leaf[1], path)
    centre = np.asarray(pathfinder.sample(jax.random.key(1), state, 100_000)[0]).mean(0)
    inverse = jnp.diag(state.alpha) + state.beta @ state.gamma @ state.beta.T
    # `grad_position` is the gradient of minus the log density: a step goes against it.
    right = np.asarray(state.position - inverse @ state.grad_position)
    said = f"draws centred at {np.round(centre, 2)}, a step by its own curvature ends at "
    return said + f"{np.round(right, 2)}", bool(np.abs(centre - right).max() > 0.1)


@case("blackjax", "`fullrank_vi.init` ignores the position that it is given")
def fullrank_start() -> tuple[str, bool]:
    import jax.numpy as jnp
    import optax
    from blackjax.vi import fullrank_vi

    mean = np.asarray(fullrank_vi.init(jnp.array([5.0, 5.0]), optax.adam(0.1)).mu)
    return f"init([5, 5]) has mean {mean}", not np.allclose(mean, 5)


@case("blackjax", "`FRVIInfo.elbo` is minus the bound")
def fullrank_sign() -> tuple[str, bool]:
    """The standard normal times e^3, from the standard normal: every draw gives 3."""
    import jax
    import jax.numpy as jnp
    import optax
    from blackjax.vi import fullrank_vi

    def log_density(w):
        return 3 - 0.5 * (w @ w) - jnp.log(2 * jnp.pi)

    tops = fullrank_vi.as_top_level_api(log_density, optax.sgd(0.0))
    elbo = float(tops.step(jax.random.key(0), tops.init(jnp.zeros(2)))[1].elbo)
    return f"{elbo:.2f} where the bound is 3", abs(elbo - 3) > 1e-3


@case("numpyro", "AutoLaplaceApproximation at an indefinite Hessian gives constant draws")
def laplace_at_a_saddle() -> tuple[str, bool]:
    """Two modes, and a start between them, where the gradient is zero."""
    import warnings

    import jax
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, init_to_value
    from numpyro.infer.autoguide import AutoLaplaceApproximation

    def model():
        w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.factor("log_density", 2 * w**2 - w**4)

    guide = AutoLaplaceApproximation(model, init_loc_fn=init_to_value(values={"w": 0.0}))
    svi = SVI(model, guide, numpyro.optim.Minimize(), Trace_ELBO())
    params = svi.get_params(svi.update(svi.init(jax.random.key(0)))[0])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(1000,))["w"]
    with warnings.catch_warnings(record=True) as warned_by_jit:
        warnings.simplefilter("always")
        jax.jit(lambda key: guide.sample_posterior(key, params, sample_shape=(9,)))(
            jax.random.key(2)
        )
    told = [any("singular" in str(w.message) for w in some) for some in (warned, warned_by_jit)]
    sd = float(draws.std())
    said = f"sd of 1000 draws {sd:.3g}; a warning: {told[0]}, under jit: {told[1]}"
    return said, sd == 0


@case("pymc-extras", "`fit_laplace` leaves out the log-Jacobian of bounded parameters")
def laplace_jacobian() -> tuple[str, bool]:
    """A scale with a HalfNormal(2) prior and eight observations."""
    import pymc as pm
    import scipy.optimize
    from pymc_extras.inference import fit_laplace

    y = np.array([-1.9, -1.2, -0.7, -0.3, 0.4, 0.9, 1.5, 2.2])
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 2.0)
        pm.Normal("y", 0.0, scale, observed=y)
    found = fit_laplace(
        optimize_method="L-BFGS-B", model=model, progressbar=False, random_seed=0, draws=10
    )
    seen = float(found.fit["mean_vector"].values[0])

    def loss(log_scale, jacobian):
        s = np.exp(log_scale[0])
        log_p = -0.5 * (y**2).sum() / s**2 - len(y) * log_scale[0] - 0.5 * (s / 2) ** 2
        return -(log_p + jacobian * log_scale[0])

    right, without = (scipy.optimize.minimize(loss, [0.0], (j,)).x[0] for j in (1, 0))
    said = (
        f"log scale {seen:.3f}; the density's mode {right:.3f}, without the Jacobian {without:.3f}"
    )
    return said, abs(seen - right) > 0.01


@case("pymc-extras", "`fit_laplace` takes the optimiser's guess for the covariance")
def laplace_covariance() -> tuple[str, bool]:
    """A normal target of variance 5000, from its mode: BFGS, the default, never learns of it."""
    import pymc as pm
    from pymc_extras.inference import fit_laplace

    with pm.Model() as model:
        w = pm.Flat("w")
        pm.Potential("log_density", -0.5 * w**2 / 5000)
    found = fit_laplace(model=model, progressbar=False, random_seed=0, draws=10, jitter_rvs=[])
    seen = float(found.fit["covariance_matrix"].values[0, 0])
    return f"variance {seen:.4g} where it is 5000", abs(seen / 5000 - 1) > 0.01
