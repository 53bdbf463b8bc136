"""PyMC, pymc-extras, Gaussian score matching, batch and match, and NUTS, for `peers.py`."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from peer_tools import STEPS, Draws, Fit, Gaussian, flat, gaussian, tool

N_DRAWS = 4000
# With batches of two, the package's default, score matching jumps about.
GSM_STEPS, GSM_BATCH = 1000, 16
# As in its authors' experiments.
BAM_STEPS, BAM_BATCH = 1000, 32
CHAINS = 4

# --- PyMC: a Potential around the JAX function ----------------------------------------------------


def pymc_model(problem: Any) -> tuple[Any, np.ndarray]:
    """Of the shift from the start: `fit_dadvi` begins at zero, and the others do by default."""
    import pymc as pm
    from pytensor import wrap_jax

    log_density, start = flat(problem)
    with pm.Model() as model:
        shift = pm.Flat("shift", shape=start.size)
        pm.Potential("log_density", wrap_jax(lambda v: log_density(start + v))(shift))
    return model, start


def by_pymc(run: Callable, judged: Callable) -> Callable[[Any], Fit]:
    def make(problem: Any) -> Fit:
        import pymc  # noqa: F401
        import pymc_extras.inference  # noqa: F401

        made: list = []

        def fit():
            made or made.append(pymc_model(problem))
            return run(made[0][0])

        return fit, lambda found: judged(found, made[0][1])

    return make


def advi(method: str) -> Callable[[Any], Any]:
    """With the default number of steps, and Adam, with which their examples leave the default."""

    def run(model):
        import pymc as pm

        adam = pm.adam(learning_rate=0.01)
        return pm.fit(
            STEPS, method, model=model, random_seed=0, progressbar=False, obj_optimizer=adam
        )

    return run


def of_advi(approx: Any, start: np.ndarray) -> Gaussian:
    return gaussian(start + approx.mean.eval(), approx.cov.eval())


def fit_laplace(model: Any) -> Any:
    from pymc_extras.inference import fit_laplace

    return fit_laplace(model=model, gradient_backend="jax", progressbar=False, random_seed=0)


def fit_dadvi(model: Any) -> Any:
    from pymc_extras.inference import fit_dadvi

    return fit_dadvi(model=model, gradient_backend="jax", progressbar=False, random_seed=0)


def fit_pathfinder(model: Any) -> Any:
    """In one process, and with more draws than by default: their covariance is judged."""
    from pymc_extras.inference import fit_pathfinder

    return fit_pathfinder(
        model=model,
        num_draws=N_DRAWS,
        num_draws_per_path=N_DRAWS,
        concurrent=None,
        random_seed=0,
        progressbar=False,
        display_summary=False,
    )


def of_laplace(found: Any, start: np.ndarray) -> Gaussian:
    cov = found.fit["covariance_matrix"].values
    return gaussian(start + found.fit["mean_vector"].values, cov)


def of_dadvi(found: Any, start: np.ndarray) -> Gaussian:
    mean, log_sd = np.split(found.optimizer_result["x"].values, 2)
    return Gaussian(start + mean, np.exp(log_sd))


def of_draws(found: Any, start: np.ndarray) -> Draws:
    points = found.posterior["shift"].values
    return Draws(start + points.reshape(-1, start.size))


tool("PyMC ADVI")(by_pymc(advi("advi"), of_advi))
tool("PyMC full-rank ADVI")(by_pymc(advi("fullrank_advi"), of_advi))
tool("pymc-extras fit_laplace")(by_pymc(fit_laplace, of_laplace))
tool("pymc-extras pathfinder")(by_pymc(fit_pathfinder, of_draws))
tool("pymc-extras dadvi")(by_pymc(fit_dadvi, of_dadvi))


# --- matching scores ------------------------------------------------------------------------------


@tool("GSM")
def gsm(problem: Any) -> Fit:
    """The package `gsmvi`, from its own start by L-BFGS."""
    import jax
    from gsmvi.gsm import GSM
    from gsmvi.initializers import lbfgs_init

    made: list = []

    def fit():
        if not made:
            log_density, start = flat(problem)
            value, slope = jax.jit(log_density), jax.jit(jax.grad(log_density))
            many = jax.jit(jax.vmap(jax.grad(log_density)))
            made.append((value, slope, start, GSM(D=start.size, lp=value, lp_g=many)))
        value, slope, start, matching = made[0]
        mean, cov, _ = lbfgs_init(start, value, slope)
        key = jax.random.PRNGKey(0)
        settings = {"batch_size": GSM_BATCH, "niter": GSM_STEPS, "verbose": False}
        return matching.fit(key, mean=mean, cov=cov, **settings)

    return fit, lambda found: gaussian(*found)


@tool("BaM")
def bam(problem: Any) -> Fit:
    """Batch and match (Cai and others 2024), written here in ten lines since no package index has
    it: `S U S + S = V` solved in the coordinates of a root of V. Weight B D / (t + 1), as in the
    paper; a covariance of one at the start."""
    import jax

    made: list = []

    def fit():
        if not made:
            log_density, start = flat(problem)
            made.append((jax.jit(jax.vmap(jax.grad(log_density))), start))
        slopes, start = made[0]
        rng = np.random.default_rng(0)
        mean, cov = start, np.eye(start.size)
        for t in range(BAM_STEPS):
            root = np.linalg.cholesky(cov)
            points = mean + rng.standard_normal((BAM_BATCH, start.size)) @ root.T
            weight = BAM_BATCH * start.size / (t + 1)
            # Their program, too, leaves out an update that gives no covariance.
            with contextlib.suppress(np.linalg.LinAlgError):
                new = matched(points, np.asarray(slopes(points)), mean, cov, weight)
                np.linalg.cholesky(new[1])
                mean, cov = new
        return mean, cov

    return fit, lambda found: gaussian(*found)


def matched(points: np.ndarray, slopes: np.ndarray, mean: np.ndarray, cov: np.ndarray, weight):
    centre, slope = points.mean(0), slopes.mean(0)
    share = weight / (1 + weight)
    u = weight * np.cov(slopes.T, bias=True) + share * np.outer(slope, slope)
    away = mean - centre
    v = cov + weight * np.cov(points.T, bias=True) + share * np.outer(away, away)
    root = np.linalg.cholesky(v)
    values, axes = np.linalg.eigh(root.T @ u @ root)
    scaled = root @ axes * np.sqrt(2 / (1 + np.sqrt(1 + 4 * np.maximum(values, 0))))
    new = scaled @ scaled.T
    return (1 - share) * mean + share * (new @ slope + centre), new


# --- the price of exactness ----------------------------------------------------------------------


@tool("nutpie (NUTS)")
def nutpie_nuts(problem: Any) -> Fit:
    """Four chains of its default length, one after the other."""
    import jax
    import nutpie

    made: list = []

    def fit():
        if not made:
            log_density, start = flat(problem)
            both = jax.jit(jax.value_and_grad(log_density))

            def value_and_slope(w):
                value, slope = both(w)
                return float(value), np.asarray(slope)

            def near(seed):
                return start + 0.1 * np.random.default_rng(seed).standard_normal(start.size)

            made.append(
                nutpie.compiled_pyfunc.from_pyfunc(
                    ndim=start.size,
                    make_logp_fn=lambda: value_and_slope,
                    make_expand_fn=lambda *_: lambda w: {"w": w},
                    expanded_dtypes=[np.dtype("float64")],
                    expanded_shapes=[(start.size,)],
                    expanded_names=["w"],
                    make_initial_point_fn=near,
                )
            )
        return nutpie.sample(made[0], chains=CHAINS, cores=1, seed=0, progress_bar=False)

    def judged(trace):
        points = np.asarray(trace.posterior["w"])
        return Draws(points.reshape(-1, points.shape[-1]), exact=True)

    return fit, judged
