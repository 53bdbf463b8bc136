"""Many parameters: fits with structured roots against dense ones and exact answers."""

import functools
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.scipy.special import gammaln

import mixvi
from mixvi._arrays._structured import LowRankRoot, SparseRoot

GROUPS, EACH, FIXED = 200, 6, 3


def mixed_data(kind, groups=GROUPS, seed=0):
    rng = np.random.default_rng(seed)
    n = groups * EACH
    of, x = np.repeat(np.arange(groups), EACH), rng.normal(size=(n, FIXED))
    x[:, 0] = 1.0
    own = sp.csr_array((np.ones(n), (np.arange(n), of)), shape=(n, groups))
    eta = x @ np.array([-0.5, 0.8, -0.4]) + rng.normal(size=groups)[of]
    design = sp.hstack([sp.csr_array(x), own]).tocsr()
    if kind == "gaussian":
        return design, eta + 0.7 * rng.normal(size=n)
    if kind == "poisson":
        return design, rng.poisson(np.exp(eta)).astype(float)
    return design, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)


def gaussian(eta, y):
    return -0.5 * ((y - eta) / 0.7) ** 2 - np.log(0.7) - 0.5 * np.log(2 * np.pi)


def poisson(eta, y):
    return y * eta - jnp.exp(eta) - gammaln(y + 1)


def logistic(eta, y):
    return jax.nn.log_sigmoid((2 * y - 1) * eta)


KINDS = {"gaussian": gaussian, "poisson": poisson, "logistic": logistic}


@functools.cache
def mixed(kind, dense=False, groups=GROUPS):
    design, y = mixed_data(kind, groups)
    function = KINDS[kind]
    prior = np.concatenate([np.full(FIXED, 0.1), np.ones(groups)])
    design = design.toarray() if dense else design
    model = mixvi.LinearPredictor(design, lambda eta: function(eta, y), prior)
    return model, np.zeros(FIXED + groups)


@functools.cache
def dense_fit(kind, family):
    tol = None if family == "laplace" else 1e-7
    return mixvi.fit(*mixed(kind, dense=True), family=family, structure="dense", tol=tol)


@pytest.mark.parametrize("structure", ["sparse", "low_rank"])
def test_a_gaussian_posterior_is_exact(structure):
    design, y = mixed_data("gaussian")
    model, start = mixed("gaussian")
    post = mixvi.fit(model, start, structure=structure)
    phi = design.toarray()
    prior = np.concatenate([np.full(FIXED, 0.1), np.ones(GROUPS)])
    precision = np.diag(prior) + phi.T @ phi / 0.49
    covariance = np.linalg.inv(precision)
    mean = covariance @ (phi.T @ y) / 0.49
    marginal = phi @ (phi.T / prior[:, None]) + 0.49 * np.eye(len(y))
    evidence = -0.5 * y @ np.linalg.solve(marginal, y)
    evidence -= 0.5 * np.linalg.slogdet(2 * np.pi * marginal)[1]
    np.testing.assert_allclose(post.flat_mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(post.flat_std, np.sqrt(np.diagonal(covariance)), rtol=1e-8)
    assert post.log_evidence == pytest.approx(evidence, abs=1e-6)
    assert post.elbo.value == pytest.approx(evidence, abs=1e-6)
    assert post.law.log_det_root == pytest.approx(-0.5 * np.linalg.slogdet(precision)[1], rel=1e-9)
    np.testing.assert_allclose(post.cov, covariance, rtol=1e-7, atol=1e-11)
    assert post.trust == "trust"
    assert isinstance(post.root, SparseRoot if structure == "sparse" else LowRankRoot)


@pytest.mark.parametrize("structure", ["sparse", "low_rank"])
@pytest.mark.parametrize(
    ("kind", "family"), [("poisson", "laplace"), ("poisson", "mu"), ("logistic", "full")]
)
def test_as_a_dense_fit(structure, kind, family):
    post = mixvi.fit(*mixed(kind), family=family, structure=structure, tol=1e-7)
    dense = dense_fit(kind, family)
    np.testing.assert_allclose(post.flat_mean, dense.flat_mean, atol=1e-6)
    np.testing.assert_allclose(post.flat_std, dense.flat_std, rtol=1e-6)
    assert post.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)
    assert post.log_evidence_laplace == pytest.approx(dense.log_evidence_laplace, abs=1e-6)
    # The same fresh draws, coloured by other roots.
    assert post.elbo.value == pytest.approx(dense.elbo.value, abs=4 * dense.elbo.se + 0.05)
    assert post.converged
    assert f'Structure "{structure}" (asked for)' in post.status


@pytest.mark.parametrize("family", ["laplace", "full"])
def test_hyperparameters_as_in_a_dense_fit(family):
    design, y = mixed_data("logistic")

    def model(phi):
        def prior(log_precision):
            return jnp.concatenate(
                [jnp.full(FIXED, 0.1), jnp.exp(log_precision) * jnp.ones(GROUPS)]
            )

        return mixvi.LinearPredictor(phi, lambda eta, _: logistic(eta, y), prior)

    start = np.zeros(FIXED + GROUPS)
    asked = {"hyper": 1.0, "family": family, "diagnostics": False}
    post = mixvi.fit(model(design), start, structure="sparse", **asked)
    dense = mixvi.fit(model(design.toarray()), start, structure="dense", tol=1e-6, **asked)
    assert post.hyper == pytest.approx(float(dense.hyper), abs=1e-4)
    assert post.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)
    np.testing.assert_allclose(post.flat_mean, dense.flat_mean, atol=1e-4)
    assert post.hyper_report.converged
    assert post.hyper_report.ran_off == ()


def random_walk(theta):
    """A sparse precision whose scale is learnt."""
    n = 60
    steps = sp.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
    return float(np.exp(theta["log_precision"])) * (steps.T @ steps) + 0.1 * sp.eye_array(n)


def test_a_sparse_prior_whose_scale_is_learnt():
    """With the evidence's gradient by the selected inverse, against the closed form's maximum."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(3)
    y = np.cumsum(0.3 * rng.normal(size=60)) + rng.normal(size=60)

    def rows(eta, theta):
        sd = jnp.exp(theta["log_sd"])
        return -0.5 * ((y - eta) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)

    def minus_evidence(x):
        prior = random_walk({"log_precision": x[0]}).toarray()
        marginal = np.linalg.inv(prior) + np.exp(2 * x[1]) * np.eye(60)
        whole = np.linalg.slogdet(2 * np.pi * marginal)[1]
        return 0.5 * (y @ np.linalg.solve(marginal, y) + whole)

    model = mixvi.LinearPredictor(sp.eye_array(60).tocsr(), rows, random_walk)
    hyper = {"log_precision": 0.0, "log_sd": 0.0}
    post = mixvi.laplace(model, np.zeros(60), hyper=hyper)
    best = minimize(minus_evidence, [0.0, 0.0], options={"gtol": 1e-8})
    assert post.log_evidence == pytest.approx(-best.fun, abs=1e-6)
    found = [float(post.hyper["log_precision"]), float(post.hyper["log_sd"])]
    np.testing.assert_allclose(found, best.x, atol=1e-3)
    assert 'Structure "sparse"' in post.status  # a function that makes a sparse matrix


def test_more_features_than_rows_as_dense():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 300))
    y = (rng.random(60) < 1 / (1 + np.exp(-x[:, 0]))).astype(float)
    model = mixvi.LinearPredictor(x, lambda eta: logistic(eta, y), np.full(300, 5.0))
    post = mixvi.fit(model, np.zeros(300), family="full", structure="low_rank", tol=1e-7)
    dense = mixvi.fit(model, np.zeros(300), family="full", structure="dense", tol=1e-7)
    np.testing.assert_allclose(post.flat_mean, dense.flat_mean, atol=1e-6)
    np.testing.assert_allclose(post.flat_std, dense.flat_std, rtol=1e-6)
    assert post.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)
    # Neither is near: a hundred effective draws must not say that they agree.
    assert dense.trust == "reject"
    assert post.trust != "trust"


def test_independent_parameters_are_the_best_of_these():
    post = mixvi.fit(*mixed("poisson"), structure="diagonal", tol=1e-6)
    dense = mixvi.fit(
        *mixed("poisson", dense=True), structure="dense", family="diag", tol=1e-7, diagnostics=False
    )
    assert post.family == "diag"
    assert post.log_evidence == pytest.approx(dense.log_evidence, abs=1e-4)
    np.testing.assert_allclose(post.flat_std, dense.flat_std, rtol=1e-3)


def test_auto_chooses_by_size_and_says_so():
    small = mixvi.fit(*mixed("gaussian"), diagnostics=False)
    assert small.root.ndim == 2
    assert "Structure" not in small.status
    model, start = mixed("gaussian", groups=2500)
    post = mixvi.fit(model, start, diagnostics=False)
    said = 'Structure "sparse" (a sparse design or prior precision)'
    assert said in post.status
    assert "nothing of 2503 x 2503 numbers is formed" in post.status
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3000)), np.arange(40) % 2
    wide = mixvi.LinearPredictor(x, lambda eta: logistic(eta, y), 100.0)
    post = mixvi.laplace(wide, np.zeros(3000), diagnostics=False)
    assert 'Structure "low_rank" (40 rows and 3000 parameters)' in post.status


@pytest.mark.parametrize("structure", ["sparse", "low_rank", "diagonal"])
def test_saved_and_loaded(structure, tmp_path):
    post = mixvi.fit(*mixed("poisson"), structure=structure)
    again = mixvi.load(post.save(tmp_path / "post"))
    for one in ("flat_mean", "flat_std"):
        np.testing.assert_array_equal(getattr(again, one), getattr(post, one))
    np.testing.assert_array_equal(again.sample(1, 5), post.sample(1, 5))
    draws = post.sample(2, 4)
    np.testing.assert_array_equal(again.log_prob(draws), post.log_prob(draws))
    assert again.summary() == post.summary()
    assert again.verdict == post.verdict
    some = ["w[0]", "w[100]"]
    np.testing.assert_array_equal(again.cov_of(some), post.cov_of(some))


def test_what_a_posterior_answers():
    post = mixvi.fit(*mixed("poisson"), structure="sparse")
    dense = np.asarray(post.cov)
    np.testing.assert_allclose(post.cov_of(["w[3]", "w[0]"]), dense[np.ix_([3, 0], [3, 0])])
    np.testing.assert_allclose(post.cov_of("w"), dense)
    with pytest.raises(mixvi.InputError, match=r"there is no parameter 'u'; names are such as w"):
        post.cov_of("u")
    draws = post.sample(0, 4000)
    np.testing.assert_allclose(draws.std(0), post.std, rtol=0.1)
    whitened = post.whiten(draws[:3])
    expected = -0.5 * (whitened**2).sum(1) - 0.5 * post.dim * np.log(2 * np.pi)
    np.testing.assert_allclose(post.log_prob(draws[:3]), expected - post.law.log_det_root)
    low, high = post.quantiles([0.1, 0.9])
    assert (low < post.mean).all()
    assert (high > post.mean).all()
    assert len(post.summary().splitlines()) < 30
    weighed = post.importance_weights()
    assert weighed.draws.shape == (len(weighed.weights), post.dim)
    # They are the draws that judged it.
    model, _ = mixed("poisson")
    values = np.array([float(model(jnp.asarray(one))) for one in weighed.draws[:2]])
    np.testing.assert_allclose(values, post.judged.log_p[:2], rtol=1e-5)
    means = weighed.weights @ weighed.draws
    assert abs((means - post.mean) / post.std).max() < 0.5


def test_a_warm_start_and_new_data():
    design, y = mixed_data("poisson")
    model = mixvi.LinearPredictor(design, poisson, 1.0)
    first = mixvi.fit(model, np.zeros(design.shape[1]), y, structure="sparse")
    again = mixvi.fit(model, first, y, structure="sparse")
    np.testing.assert_allclose(again.flat_mean, first.flat_mean, atol=1e-4)
    assert again.stats.mode_steps <= 1
    other = mixvi.fit(model, first, y + 1, structure="sparse")
    assert (design @ other.flat_mean > design @ first.flat_mean).mean() > 0.9


def test_other_modes_are_not_looked_for_unless_there_is_one():
    post = mixvi.fit(*mixed("poisson"), structure="sparse")
    assert "Other modes" not in post.verdict
    design, y = mixed_data("gaussian")
    cauchy = mixvi.LinearPredictor(design, lambda eta: -jnp.log1p((y - eta) ** 2 / 0.2), 1.0)
    post = mixvi.fit(cauchy, np.zeros(design.shape[1]), structure="sparse")
    assert post.verdict.endswith("Other modes were not looked for.")
    dense = mixvi.LinearPredictor(design.toarray(), cauchy.log_likelihood, 1.0)
    best = mixvi.fit(dense, post.flat_mean, family="full", diagnostics=False)
    assert post.log_evidence == pytest.approx(best.log_evidence, abs=1e-2)


def test_a_hyperparameter_that_runs_off_is_named():
    design, _ = mixed_data("logistic")
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, design.shape[0])  # groups differ by luck alone

    def prior(log_precision):
        return jnp.concatenate([jnp.full(FIXED, 0.1), jnp.exp(log_precision) * jnp.ones(GROUPS)])

    model = mixvi.LinearPredictor(design, lambda eta, _: logistic(eta, y), prior)
    post = mixvi.laplace(model, np.zeros(design.shape[1]), hyper=1.0, structure="sparse")
    if float(post.hyper) > 3:
        assert post.hyper_report.ran_off == ("theta",)
        assert "Ran off: theta" in post.status


BAD = {
    "constraints": (dict(constraints={"w": "positive"}), "constraints= go with dense roots alone"),
    "float32": (dict(dtype="float32"), 'dtype="float32" goes with dense roots alone'),
    "family": (
        dict(family="eig"),
        'family="eig" needs a dense root; with this structure there are',
    ),
    "mixture": (dict(family="mixture"), 'family="mixture" needs a dense root'),
    "minibatch": (dict(minibatch=100), "minibatch= goes with dense roots alone"),
    "draws": (dict(draws=100), "expectations are by quadrature: leave draws= out"),
    "restarts": (dict(n_restarts=2), "n_restarts= goes with dense roots alone"),
    "repair": (dict(on_indefinite="damp"), "on_indefinite= repairs dense Hessians alone"),
    "anchor": (dict(anchor="average"), 'anchor="average" goes with dense roots alone'),
    "optimiser": (dict(optimiser="bfgs"), 'optimiser="bfgs" goes with dense roots alone'),
    "unknown": (dict(structure="sparce"), "structure must be one of"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_go_is_said(name):
    options, said = BAD[name]
    with pytest.raises(mixvi.InputError, match=said.replace("(", r"\(")):
        mixvi.fit(*mixed("gaussian"), **{"structure": "sparse", **options})


def test_other_bad_cases_are_said():
    model, start = mixed("gaussian")
    with pytest.raises(mixvi.InputError, match=r"design has shape \(1200, 203\) and init has 5"):
        mixvi.fit(model, np.zeros(5), structure="sparse")
    with pytest.raises(mixvi.InputError, match="one predictor per observation"):
        mixvi.fit(model, np.zeros((2, 203)), structure="sparse")
    with pytest.raises(mixvi.InputError, match=r"needs a mixvi.LinearPredictor"):
        mixvi.fit(lambda w: -(w**2).sum(), np.zeros(3), structure="sparse")
    design = model.design.copy()
    design.data[7] = np.nan
    broken = mixvi.LinearPredictor(design, model.log_likelihood, 1.0)
    with pytest.raises(mixvi.InputError, match="design holds numbers that are not finite"):
        mixvi.fit(broken, start, structure="sparse")
    matrix = sp.csc_array(np.eye(203) + 2 * np.eye(203, k=1) + 2 * np.eye(203, k=-1))
    for prior in (matrix, -sp.eye_array(203).tocsc(), lambda: matrix):
        with pytest.raises(mixvi.InputError, match=r"prior_precision must be positive"):
            mixvi.fit(
                mixvi.LinearPredictor(model.design, model.log_likelihood, prior),
                start,
                structure="sparse",
            )
    lopsided = (sp.eye_array(203) * 3 + sp.eye_array(203, k=1)).tocsc()
    for prior in (lopsided, lambda: lopsided):
        with pytest.raises(
            mixvi.InputError, match=r"not symmetric: \[0, 1\] is 1 and \[1, 0\] is 0"
        ):
            mixvi.fit(
                mixvi.LinearPredictor(model.design, model.log_likelihood, prior),
                start,
                structure="sparse",
            )
    both = mixvi.LinearPredictor(model.design, model.log_likelihood, sp.eye_array(203))
    with pytest.raises(mixvi.InputError, match=r"low_rank.*the diagonal"):
        mixvi.fit(both, start, structure="low_rank")
    total = mixvi.LinearPredictor(model.design, lambda eta: -(eta**2).sum(), 1.0)
    with pytest.raises(mixvi.InputError, match="one number per observation, not their sum"):
        mixvi.fit(total, start, structure="sparse")
    by_numpy = mixvi.LinearPredictor(model.design, lambda eta: -(np.asarray(eta) ** 2), 1.0)
    with pytest.raises(mixvi.InputError, match=r"cannot be traced by JAX: write it with jax.numpy"):
        mixvi.fit(by_numpy, start, structure="sparse")
    wrong = mixvi.LinearPredictor(model.design, lambda eta: eta[:5] - np.ones(7), 1.0)
    with pytest.raises(mixvi.InputError, match="log_likelihood raised TypeError"):
        mixvi.fit(wrong, start, structure="sparse")
    with pytest.raises(mixvi.InputError, match="for one problem of many parameters"):
        mixvi.fit_many(lambda w, y: -((w - y) ** 2), 0.0, np.zeros(3), structure="sparse")


def test_a_pattern_that_changes_with_the_hyperparameters_is_refused():
    """As many nonzeros, but elsewhere."""
    model, start = mixed("gaussian")

    def prior(theta):
        other = sp.eye_array(203).tolil()
        k = 1 + int(theta > 0.1)
        other[0, k] = other[k, 0] = 0.1
        return other.tocsc()

    moving = mixvi.LinearPredictor(model.design, lambda eta, _: model.log_likelihood(eta), prior)
    with pytest.raises(mixvi.InputError, match="other nonzeros at other hyperparameters"):
        mixvi.fit(moving, start, hyper=0.1, structure="sparse")


FAILURES = {
    "no mode": (lambda eta: 5 * eta**2, mixvi.IndefiniteHessianError, "proper|tighter"),
    "not finite": (lambda eta: jnp.log(eta), mixvi.NonFiniteError, "at the start"),
    "saddle": (lambda eta: 2 * jnp.cosh(eta / 50) + eta**2, mixvi.MixviError, "upwards"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("structure", ["sparse", "low_rank"])
def test_failures_are_said_and_small(name, structure):
    function, kind, said = FAILURES[name]
    model, start = mixed("gaussian")
    bad = mixvi.LinearPredictor(model.design, function, 1.0)
    with pytest.raises(kind, match=said):
        mixvi.fit(bad, start, structure=structure)
    post = mixvi.fit(bad, start, structure=structure, throw=False)
    assert not post.converged
    assert np.isnan(post.std).all()
    assert post.root.ndim == 1
    assert post.trust == "reject"
    assert post.summary()


def test_a_covariance_too_large_is_refused_with_a_way_out():
    model, start = mixed("gaussian", groups=6000)
    post = mixvi.laplace(model, start, diagnostics=False)
    with pytest.raises(mixvi.InputError, match=r"6003 parameters would be 0.3 GiB.*post.cov_of"):
        _ = post.cov
    assert post.cov_of(["w[0]", "w[5]"]).shape == (2, 2)


MEMORY = """
import resource
import jax.numpy as jnp, numpy as np, mixvi
from fit.test_many_parameters import mixed, logistic
dim = 20_000
model, start = mixed("poisson", groups=dim - 3)
bad = mixvi.LinearPredictor(model.design, lambda eta: 5 * eta**2, 1.0)
nothing = mixvi.LinearPredictor(model.design, lambda eta: jnp.log(eta), 1.0)
x = np.random.default_rng(0).normal(size=(50, dim))
wide = mixvi.LinearPredictor(x, lambda eta: logistic(eta, np.arange(50) % 2), dim / 20)
for one, structure in [(model, "sparse"), (wide, "low_rank"), (model, "diagonal")]:
    post = mixvi.fit(one, start, structure=structure)
    post.summary(), post.sample(0, 10), post.log_prob(start), post.std
for one in (bad, nothing):
    assert not mixvi.fit(one, start, throw=False).converged
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
assert peak < 8 * dim**2 / 2, peak
print("peak", peak)
"""


@pytest.mark.slow
def test_nothing_dim_x_dim_is_formed():
    """At 20,000 parameters a matrix of them is 3.2 GB; half of that the process never has."""
    from pathlib import Path

    tests = Path(__file__).resolve().parents[1]
    code = f"import sys; sys.path.insert(0, {str(tests)!r})\n" + textwrap.dedent(MEMORY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "peak" in done.stdout
