"""Fits from mini-batches: what exact passes find, with the noise in the report."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi import models
from mixvi._errors import InputError, NotConvergedWarning

DIM, N = 4, 20_000
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, DIM))
TRUE = np.array([1.0, -0.5, 0.3, 0.0])
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ TRUE))).astype(np.int8)
ROWS = {"x": X, "y": Y}


def logistic(w, rows):
    return jax.nn.log_sigmoid((2 * rows["y"] - 1) * (rows["x"] @ w))


MODEL = mixvi.Additive(lambda w: -0.5 * (w**2).sum(), logistic)
PREDICTOR = mixvi.LinearPredictor(
    lambda rows: rows["x"],
    lambda eta, rows: jax.nn.log_sigmoid((2 * rows["y"] - 1) * eta),
    1.0,
)


def fitted(model=MODEL, data=None, minibatch: int | None = 256, init=None, **options):
    data = mixvi.Pieces.arrays(ROWS) if data is None else data
    init = jnp.zeros(DIM) if init is None else init
    return mixvi.fit(model, init, data=data, minibatch=minibatch, **options)


def closed(likelihood, minibatch: int | None = 256, rows=None, **options):
    pieces = mixvi.Pieces.arrays(ROWS if rows is None else rows)
    density = models.Model(models.Linear(), likelihood).density(pieces, "y")
    return mixvi.fit(density, density.init, minibatch=minibatch, **options)


def nats_apart(one, other):
    """KL(one || other)."""
    to = np.linalg.solve(other.root, one.root)
    away = np.linalg.solve(other.root, one.flat_mean - other.flat_mean)
    log_det = np.linalg.slogdet(to)[1]
    return 0.5 * ((to**2).sum() - one.dim + away @ away) - log_det


@pytest.fixture(scope="module")
def exact():
    return {name: fitted(minibatch=None, family=name) for name in ("laplace", "mu", "full")}


# --- the same posterior -----------------------------------------------------------------------


def test_a_gaussian_posterior_is_found_exactly():
    """Conjugate: precision X^T X / s^2 + I. Batches add no noise at all."""
    sd = 0.3
    y = X @ TRUE + sd * RNG.standard_normal(N)
    model = mixvi.Additive(
        lambda w: -0.5 * (w**2).sum(),
        lambda w, rows: -0.5 * ((rows["y"] - rows["x"] @ w) / sd) ** 2,
    )
    post = fitted(model, mixvi.Pieces.arrays({"x": X, "y": y}), minibatch=64, family="full")
    precision = X.T @ X / sd**2 + np.eye(DIM)
    mean = np.linalg.solve(precision, X.T @ y / sd**2)
    np.testing.assert_allclose(post.flat_mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(post.cov, np.linalg.inv(precision), rtol=1e-6, atol=1e-12)
    assert post.stats.exact_passes <= 2
    assert post.stats.row_noise < 1e-6
    assert post.trust == "trust"


@pytest.mark.parametrize("family", ["laplace", "mu", "full"])
def test_a_logistic_posterior_is_that_of_exact_passes(family, exact):
    post, whole = fitted(family=family), exact[family]
    assert post.converged
    assert post.family == family
    assert nats_apart(post, whole) < 5e-3
    assert abs(post.elbo.value - whole.elbo.value) < 4 * np.hypot(post.elbo.se, whole.elbo.se)
    assert post.log_evidence == pytest.approx(whole.log_evidence, abs=0.05)
    assert post.log_evidence_laplace == pytest.approx(whole.log_evidence_laplace, abs=0.05)
    assert post.trust == "trust"


def test_predictors_by_quadrature():
    post, whole = fitted(PREDICTOR, family="full"), fitted(PREDICTOR, minibatch=None, family="full")
    assert post.stats.draws_kind == "quadrature"
    assert nats_apart(post, whole) < 5e-3
    assert abs(post.elbo_fixed - whole.elbo_fixed) < 0.05


def test_models_in_closed_form():
    for likelihood in (models.Bernoulli(), models.Poisson()):
        post, whole = closed(likelihood, family="full"), closed(likelihood, None, family="full")
        assert nats_apart(post, whole) < 5e-3
        assert "Other modes" not in post.verdict  # it is known to have one


def test_several_predictors_in_closed_form():
    three = {"x": X, "y": (np.arange(N) * 7) % 3}
    likelihood = models.Softmax(3)
    post = closed(likelihood, 512, three)
    assert nats_apart(post, closed(likelihood, None, three)) < 0.02


def test_auto_takes_laplace_where_little_is_to_be_gained_and_more_where_it_pays():
    assert fitted().family == "laplace"
    x = np.c_[X[:600, :-1], np.ones(600)]
    few = {"x": x, "y": np.r_[np.ones(3), np.zeros(597)]}  # three cases
    prior = mixvi.Additive(lambda w: -0.5 * (w**2).sum() / 100, logistic)
    post = fitted(prior, mixvi.Pieces.arrays(few), minibatch=64)
    whole = fitted(prior, mixvi.Pieces.arrays(few), minibatch=None, family="full")
    assert post.family == "full"
    assert "has to change" in post.status
    assert nats_apart(post, whole) < 0.02


def test_bounds_and_a_prior_that_is_not_gaussian():
    y = X @ TRUE + 0.7 * RNG.standard_t(4, N)
    model = mixvi.Additive(
        lambda w: -2 * jnp.log1p(w["b"] ** 2).sum() - w["sigma"],
        lambda w, rows: jax.scipy.stats.t.logpdf(rows["y"], 4.0, rows["x"] @ w["b"], w["sigma"]),
    )
    given = {
        "init": {"b": jnp.zeros(DIM), "sigma": 1.0},
        "constraints": {"sigma": "positive"},
        "family": "full",
    }
    pieces = mixvi.Pieces.arrays({"x": X, "y": y})
    post = fitted(model, pieces, **given)
    whole = fitted(model, pieces, minibatch=None, **given)
    assert nats_apart(post, whole) < 0.01
    assert post.mean["sigma"] == pytest.approx(0.7, abs=0.03)
    assert "Other modes were not looked for." in post.verdict


def test_rows_in_order_in_a_file_that_is_read_again(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    order = np.argsort(Y + 0.1 * X[:, 0])
    columns = {f"x{j}": X[order, j] for j in range(DIM)} | {"y": Y[order]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=1000)
    names = {"x": [f"x{j}" for j in range(DIM)], "y": "y"}
    read_again = mixvi.Pieces.parquet(tmp_path / "rows.parquet", names, memory=0)
    arrays = mixvi.Pieces.arrays({"x": X[order], "y": Y[order].astype(np.int64)})
    one, other = fitted(data=read_again, family="full"), fitted(data=arrays, family="full")
    np.testing.assert_allclose(one.flat_mean, other.flat_mean, rtol=1e-12)
    np.testing.assert_allclose(one.cov, other.cov, rtol=1e-10)
    assert nats_apart(one, fitted(minibatch=None, family="full")) < 5e-3


# --- repeatable, and honest about noise -------------------------------------------------------


def test_bit_equal_from_run_to_run_and_other_rows_for_another_key():
    one, again, other = (fitted(PREDICTOR, family="full", key=key) for key in (0, 0, 1))
    assert (one.flat_mean == again.flat_mean).all()
    assert (one.root == again.root).all()
    assert one.elbo == again.elbo
    assert one.status == again.status
    assert (one.flat_mean != other.flat_mean).any()
    assert nats_apart(one, other) < 5e-3


def test_the_noise_in_the_report_is_the_noise_there_is():
    """The bound of every fit's own Gaussian, by exact passes over the same fresh draws."""
    pieces = mixvi.Pieces.arrays(ROWS)
    whole = models.Model(models.Linear(), models.Bernoulli()).density(pieces, "y")
    off = []
    for key in range(24):
        post = mixvi.fit(whole, whole.init, minibatch=32, key=key, family="laplace")
        z = post.judged.z
        exact = whole.values(post.flat_mean + z @ post.root.T)
        off.append((post.judged.log_p - exact).mean() / post.stats.row_noise)
    # A mean square of t-distributed numbers: near one where the noise is as it is said to be.
    assert 0.4 < np.mean(np.square(off)) < 2.5
    assert abs(np.mean(off)) < 4 / np.sqrt(len(off))


def test_the_report_tells_of_batches(exact, tmp_path):
    post = fitted(family="full")
    stats = post.stats
    assert (stats.batch_rows, stats.exact_passes >= 1) == (256, True)
    assert stats.batches >= 24
    assert post.elbo.se >= stats.row_noise > 0
    assert f"{stats.batches} mini-batches of 256 rows" in post.status
    assert "for the choice of rows" in post.verdict
    summary = post.summary()
    assert f"mini-batches  {stats.batches} of 256 rows, {stats.exact_passes} exact pass" in summary
    again = mixvi.load(post.save(tmp_path / "post"))
    assert again.stats == stats
    assert again.summary() == summary
    plain = exact["full"]
    assert plain.stats.batches is None
    assert "mini-batch" not in plain.summary()
    weights = post.importance_weights(log_density=MODEL, data=ROWS, n=200)
    assert weights.khat < 0.7


def test_noise_that_batches_cannot_take_away_is_told():
    """A few batches of few rows, and no more allowed."""
    rng = np.random.default_rng(5)
    x = rng.standard_t(2.2, (2000, DIM))  # some rows weigh far more than others
    y = (rng.random(2000) < 1 / (1 + np.exp(-x @ TRUE))).astype(np.int8)
    pieces = mixvi.Pieces.arrays({"x": x, "y": y})
    with pytest.warns(NotConvergedWarning, match="max_steps"):
        post = fitted(MODEL, pieces, minibatch=32, family="full", max_steps=8)
    assert not post.converged
    assert post.trust == "reject"
    assert "where noise costs" in post.status
    assert post.stats.row_noise > 0


def test_without_diagnostics_and_from_an_earlier_fit():
    post = fitted(family="full", diagnostics=False)
    assert post.elbo is None
    assert post.stats.row_noise > 0
    warm = fitted(init=post, family="full")
    assert warm.stats.exact_passes == 1
    assert nats_apart(warm, post) < 5e-3


def test_laplace_takes_batches_too(exact):
    post = mixvi.laplace(MODEL, jnp.zeros(DIM), mixvi.Pieces.arrays(ROWS), minibatch=256)
    assert nats_apart(post, exact["laplace"]) < 5e-3


# --- interrupted, resumed ---------------------------------------------------------------------


def test_an_interruption_gives_what_there_is():
    def stop(step):
        if step.stage == "verdict":
            raise KeyboardInterrupt

    with pytest.warns(NotConvergedWarning):
        post = fitted(family="full", callback=stop, on_interrupt="return")
    assert post.status.startswith("Interrupted")
    assert np.isfinite(post.flat_mean).all()


def test_a_checkpoint_keeps_the_exact_passes(tmp_path):
    path, calls = tmp_path / "point", []

    def stop(step):
        calls.append(step)
        if step.stage == "family":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(family="full", callback=stop, checkpoint=path)
    assert path.exists()
    post = fitted(family="full", checkpoint=path)
    np.testing.assert_array_equal(post.flat_mean, fitted(family="full").flat_mean)
    assert not path.exists()


# --- what cannot be ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"minibatch": 0}, "number of rows of a batch, 4096"),
        ({"minibatch": True}, "number of rows of a batch"),
        ({"minibatch": 4.5}, "got 4.5"),
        ({"minibatch": 5000}, "5000 is too large for 20,000 rows: 8 batches"),
        ({"family": "eig"}, '"eig" is for exact passes.*"mu", "full"'),
        ({"family": mixvi.LowRank(rank=2)}, "is for exact passes"),
        ({"n_restarts": 2}, "other starts as init"),
        ({"tol": 1e-5}, "noise decides"),
        ({"anchor": "average"}, "exact passes"),
        ({"optimiser": "bfgs"}, "leave it out"),
        ({"dtype": "float32"}, "float64"),
        ({"draws": mixvi.IID(500)}, "must be matched"),
    ],
)
def test_options_that_do_not_go_together(options, match):
    with pytest.raises(InputError, match=match):
        fitted(**options)


def test_data_that_cannot_be_drawn_from():
    with pytest.raises(InputError, match=r"Pieces\.arrays"):
        fitted(data=ROWS)
    density = models.Model(models.Linear(), models.Bernoulli()).density(X, Y)
    with pytest.raises(InputError, match="holds its own data"):
        mixvi.fit(density, density.init, minibatch=64)
    with pytest.raises(InputError, match="must come apart"):
        fitted(lambda w, rows: logistic(w, rows).sum())
    many = {name: np.stack([one, one]) for name, one in ROWS.items()}
    with pytest.raises(InputError, match="fit_many"):
        mixvi.fit_many(MODEL, jnp.zeros(DIM), many, minibatch=64)


def test_hyperparameters_are_learnt_from_exact_passes_alone():
    model = mixvi.Additive(
        lambda w, h: -0.5 * (w**2).sum() * jnp.exp(h) + DIM * h / 2,
        lambda w, h, rows: logistic(w, rows),
    )
    with pytest.raises(InputError, match="hyper= is learnt from exact passes"):
        mixvi.fit(model, jnp.zeros(DIM), mixvi.Pieces.arrays(ROWS), hyper=0.0, minibatch=256)


def test_no_mode_and_data_that_are_not_finite_say_so():
    flat = mixvi.Additive(lambda w: 0.0 * w.sum(), lambda w, rows: 0.0 * rows["x"] @ w)
    with pytest.raises(mixvi.IndefiniteHessianError, match="proper prior"):
        fitted(flat)
    bad = {"x": X.copy(), "y": Y}
    bad["x"][17_001, 2] = np.inf
    with pytest.raises(mixvi.NonFiniteError):
        fitted(data=mixvi.Pieces.arrays(bad))
