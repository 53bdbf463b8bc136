"""Bounded parameters: held to the same models written unbounded by hand, and to closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import mixvi
from mixvi._density._constraints import parsed
from mixvi._density._kinds import NAMED, Ordered, Simplex
from mixvi._density._structure import flatten

INF = np.inf
KINDS = {
    "positive": (NAMED["positive"], 1.7),
    "above": (mixvi.Interval(2, INF), 2.3),
    "below": (mixvi.Interval(-INF, -1), -4.0),
    "negative": (mixvi.Interval(-INF, 0), -0.2),
    "unit": (NAMED["unit"], np.array([0.3, 0.9])),
    "interval": (mixvi.Interval(-1, 3), np.array([[-0.9, 0.0], [1.0, 2.99]])),
    "simplex": (Simplex(), np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])),
    "ordered": (Ordered(), np.array([[-2.0, 0.5, 0.6], [1.0, 2.0, 9.0]])),
}


def bound(name):
    """Constraints of one leaf, and its numbers."""
    kind, x = KINDS[name]
    structure, flat = flatten(x, np.dtype(np.float64))
    return parsed({"w": kind}, structure), flat


# --- the maps ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_round_trips(name):
    constraints, x = bound(name)
    u = constraints.unconstrain(x)
    assert u.shape == (constraints.free.size,)
    np.testing.assert_allclose(np.ravel(constraints.constrained(u)), x, rtol=1e-14)
    stack = np.stack([u, u + 0.5, u - 3])
    back = constraints.unconstrain(constraints.constrained(stack).reshape(3, -1))
    np.testing.assert_allclose(back, stack, atol=1e-11)


@pytest.mark.parametrize("name", KINDS)
def test_log_jacobian_is_that_of_automatic_differentiation(name):
    constraints, x = bound(name)
    u = constraints.unconstrain(x)
    with jax.enable_x64(True):

        def free_part(flat):  # over a simplex all entries but the last
            made = constraints.constrain(flat)
            return (made[..., :-1] if name == "simplex" else made).reshape(-1)

        for at in (u, u + 1.3, -2 * u):
            _, exact = jnp.linalg.slogdet(jax.jacfwd(free_part)(jnp.asarray(at)))
            assert float(constraints.log_det(jnp.asarray(at))) == pytest.approx(
                float(exact), abs=1e-10
            )
    both = np.stack([u, u + 1])
    one = [constraints.log_dets(row) for row in both]
    np.testing.assert_allclose(constraints.log_dets(both), one, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", KINDS)
def test_far_out_all_is_finite_and_inside(name, dtype):
    constraints, _ = bound(name)
    with jax.enable_x64(dtype == "float64"):
        for far in (-1e4, -800.0, -50.0, 50.0, 800.0, 1e4):
            # Increasing numbers that differ by less than rounding are equal: no map can help that.
            u = jnp.full(constraints.free.size, max(far, -3.0) if name == "ordered" else far, dtype)
            made = np.ravel(constraints.constrain(u))
            assert np.isfinite(made).all()
            slopes = jax.jacfwd(lambda v: constraints.constrain(v).reshape(-1))(u)
            assert np.isfinite(slopes).all()
            assert np.isfinite(jax.grad(constraints.log_det)(u)).all()
            if name not in ("simplex", "ordered"):
                assert constraints.hold(made.astype(dtype))
            if name == "simplex":
                assert (made > 0).all()


def test_zero_is_the_uniform_simplex():
    constraints, _ = bound("simplex")
    np.testing.assert_allclose(constraints.constrained(np.zeros(6)), 0.25, rtol=1e-15)


# --- the same models written by hand ----------------------------------------------------------

COUNTS = np.array([3.0, 5.0, 8.0])


def sticks(u):
    """Stick-breaking in its plain form."""
    first = 1 / (1 + jnp.exp(-(u[0] - jnp.log(2.0))))
    second = 1 / (1 + jnp.exp(-u[1]))
    rest = (1 - first) * (1 - second)
    log_det = jnp.log(first * (1 - first)) + jnp.log(second * (1 - second)) + jnp.log(1 - first)
    return jnp.stack([first, (1 - first) * second, rest]), log_det


def logistic(u):
    p = 1 / (1 + jnp.exp(-u))
    return p, jnp.log(p) + jnp.log(1 - p)


def rising(u):
    x = jnp.stack([u[0], u[0] + jnp.exp(u[1]), u[0] + jnp.exp(u[1]) + jnp.exp(u[2])])
    return x, u[1] + u[2]


def gamma(x):
    return 2 * jnp.log(x) - 3 * x


# Kind, log density, start, the map by hand, the start there.
BY_HAND = {
    "positive": ("positive", gamma, 1.0, lambda u: (jnp.exp(u), u), 0.0),
    "above": (
        mixvi.Interval(2, INF), lambda x: gamma(x - 2), 3.0, lambda u: (2 + jnp.exp(u), u), 0.0
    ),
    "below": (
        mixvi.Interval(-INF, 1), lambda x: gamma(1 - x), 0.0, lambda u: (1 - jnp.exp(u), u), 0.0
    ),
    "unit": (
        "unit", lambda p: 3 * jnp.log(p) + 2 * jnp.log1p(-p), 0.5, logistic, 0.0
    ),
    "interval": (
        mixvi.Interval(-1, 1),
        lambda r: 2 * jnp.log1p(-r) + 4 * jnp.log1p(r),
        0.0,
        lambda u: (2 * logistic(u)[0] - 1, logistic(u)[1] + jnp.log(2.0)),
        0.0,
    ),
    "simplex": (
        "simplex", lambda w: (COUNTS * jnp.log(w)).sum(), np.full(3, 1 / 3), sticks, np.zeros(2)
    ),
    "ordered": (
        "ordered",
        lambda c: -0.5 * ((c - COUNTS) ** 2).sum(),
        np.array([0.0, 1.0, 2.0]),
        rising,
        np.zeros(3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_the_same_as_by_hand(name):
    kind, log_density, start, by_hand, free_start = BY_HAND[name]

    def written_out(u):
        x, log_det = by_hand(u)
        return log_density(x) + log_det

    post = mixvi.fit(
        log_density, start, family="full", constraints={"w": kind}, tol=1e-9, draws=512
    )
    hand = mixvi.fit(written_out, free_start, family="full", tol=1e-9, draws=512)
    np.testing.assert_allclose(post.mode, hand.mode, atol=1e-8)
    assert post.log_evidence_laplace == pytest.approx(hand.log_evidence_laplace, abs=1e-8)
    np.testing.assert_allclose(post.flat_mean, hand.flat_mean, atol=1e-8)
    np.testing.assert_allclose(post.cov, hand.cov, atol=1e-8)
    assert post.elbo.value == pytest.approx(hand.elbo.value, abs=1e-8)
    assert post.log_evidence == pytest.approx(hand.log_evidence, abs=1e-8)
    assert post.verdict == hand.verdict
    # In the user's space: draws of the one are mapped draws of the other.
    draws, free = post.sample(0, 50), hand.sample(0, 50)
    with jax.enable_x64(True):
        mapped, log_dets = map(np.asarray, jax.vmap(by_hand)(jnp.asarray(free)))
    np.testing.assert_allclose(draws, mapped, atol=1e-7)
    np.testing.assert_allclose(post.log_prob(draws), hand.log_prob(free) - log_dets, atol=1e-6)
    np.testing.assert_allclose(post.whiten(draws), hand.whiten(free), atol=1e-6)


def test_a_pytree_with_some_leaves_bound():
    def log_density(w, data):
        rest = -0.5 * (w["layer"]["w"] ** 2).sum() - 0.5 * w["mu"] ** 2
        scale = w["layer"]["sigma"]
        return -0.5 * (((data - w["mu"]) / scale) ** 2).sum() - data.size * jnp.log(scale) + rest

    data = np.random.default_rng(0).normal(1.0, 2.0, 40)
    init = {"mu": 0.0, "layer": {"w": np.zeros((2, 2)), "sigma": 1.0}}
    post = mixvi.fit(log_density, init, data=data, constraints={"layer.sigma": "positive"})
    assert post.names[0] == "log layer.sigma"
    assert post.mean["layer"]["w"].shape == (2, 2)
    assert float(post.mean["layer"]["sigma"]) == pytest.approx(data.std(), rel=0.1)
    # Free leaves are what they are in the Gaussian.
    np.testing.assert_array_equal(post.mean["mu"], post.unconstrained.mean["mu"])
    np.testing.assert_array_equal(post.std["layer"]["w"], post.unconstrained.std["layer"]["w"])
    text = post.summary()
    assert "\nlayer.sigma " in text
    assert "log layer.sigma" not in text
    assert "log layer.sigma" in post.unconstrained.summary()
    assert post.unconstrained.unconstrained is post.unconstrained


# --- closed forms -----------------------------------------------------------------------------


def exponential(x):
    return -x


def test_exponential_in_closed_form():
    """The density of u = log x is exp(u - e^u): mode 0, Hessian -1, so x is log-normal(0, 1)."""
    post = mixvi.laplace(exponential, 3.0, constraints={"w": "positive"})
    assert post.flat_mean[0] == pytest.approx(0.0, abs=1e-9)
    assert post.cov[0, 0] == pytest.approx(1.0, abs=1e-9)
    assert post.names == ("log w",)
    assert float(post.mean) == pytest.approx(np.exp(0.5), rel=1e-9)
    assert float(post.std) == pytest.approx(np.sqrt((np.e - 1) * np.e), rel=1e-9)
    x = np.array([0.1, 1.0, 4.0])
    np.testing.assert_allclose(post.log_prob(x), stats.lognorm(1.0).logpdf(x), atol=1e-8)


def quadrature(function, u_mean, u_sd):
    def integrand(u):
        return function(u) * stats.norm(u_mean, u_sd).pdf(u)

    ends = (u_mean - 9 * u_sd, u_mean + 9 * u_sd)
    inner = [p for p in np.linspace(-30, 30, 13) if ends[0] < p < ends[1]]
    return integrate.quad(integrand, *ends, points=inner, epsabs=1e-13, epsrel=1e-12, limit=2000)[0]


@pytest.mark.parametrize("mean", [-12.0, -0.7, 3.0])
@pytest.mark.parametrize("sd", [1e-3, 0.5, 4.0, 60.0])
def test_moments_of_a_share(mean, sd):
    """A Gaussian in the logit, by adaptive quadrature."""

    def logit_gaussian(p):  # minus the log-Jacobian that is added
        u = jnp.log(p) - jnp.log1p(-p)
        return -0.5 * ((u - mean) / sd) ** 2 - jnp.log(p) - jnp.log1p(-p)

    start = special.expit(mean)
    post = mixvi.laplace(logit_gaussian, start, constraints={"w": "unit"}, diagnostics=False)
    u_mean, u_sd = post.flat_mean[0], post.flat_std[0]
    assert (u_mean, u_sd) == (pytest.approx(mean, abs=1e-3), pytest.approx(sd, rel=1e-3))
    exact = quadrature(special.expit, u_mean, u_sd)
    square = quadrature(lambda u: (special.expit(u) - exact) ** 2, u_mean, u_sd)
    assert float(post.mean) == pytest.approx(exact, abs=1e-8)
    assert float(post.std) == pytest.approx(np.sqrt(square), abs=1e-8)


@pytest.mark.parametrize("family", ["full", "diag"])
@pytest.mark.parametrize("name", ["simplex", "ordered", "interval", "below"])
def test_moments_are_those_of_the_draws(name, family):
    kind, log_density, start, *_ = BY_HAND[name]
    options = {"constraints": {"w": kind}, "draws": 512, "diagnostics": False}
    post = mixvi.fit(log_density, start, family=family, **options)
    draws = post.sample(1, 200_000)
    sd = draws.std(0)
    assert (np.abs(post.mean - draws.mean(0)) / sd).max() < 0.01
    np.testing.assert_allclose(post.std, sd, rtol=0.02)
    if name == "simplex":
        assert post.mean.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", ["positive", "unit", "interval", "below"])
def test_the_density_integrates_to_one(name):
    kind, log_density, start, *_ = BY_HAND[name]
    post = mixvi.laplace(log_density, start, constraints={"w": kind}, diagnostics=False)
    low, high = {"positive": (0, 40), "unit": (0, 1), "interval": (-1, 1), "below": (-40, 1)}[name]
    edges = np.linspace(low, high, 4001)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * np.diff(edges)[:, None]
    x = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes
    mass = (half * weights * np.exp(post.log_prob(x.ravel())).reshape(x.shape)).sum()
    assert mass == pytest.approx(1.0, abs=1e-6)
    outside = {"positive": (-1, 0), "unit": (0, 1, 2), "interval": (-2, 1), "below": (1, 2)}[name]
    assert (post.log_prob(np.array(outside, float)) == -INF).all()
    assert post.log_prob(float(outside[0])) == -INF


def test_densities_of_vectors_outside():
    kind, log_density, start, *_ = BY_HAND["simplex"]
    post = mixvi.laplace(log_density, start, constraints={"w": kind}, diagnostics=False)
    points = np.array([[0.2, 0.3, 0.5], [0.2, 0.3, 0.6], [-0.1, 0.6, 0.5]])
    assert np.isfinite(post.log_prob(points)).tolist() == [True, False, False]
    assert post.log_prob(points[1]) == -INF
    with pytest.raises(mixvi.InputError, match=r"shape \(2,\), expected \(n,\) \+ \(3,\)"):
        post.log_prob(np.zeros(2))


# --- what comes with it -----------------------------------------------------------------------

MIXED = {
    "sigma": "positive", "p": "unit", "rho": mixvi.Interval(-1, 1), "s": "simplex", "c": "ordered"
}  # fmt: skip
MIXED_INIT = {
    "sigma": 1.0,
    "p": 0.3,
    "rho": 0.1,
    "s": np.full(3, 1 / 3),
    "c": np.array([-1.0, 0.0, 1.0]),
    "b": 0.5,
}


def mixed(w):
    shares = (
        (jnp.array([3.0, 5.0, 8.0]) * jnp.log(w["s"])).sum()
        + 2 * jnp.log(w["p"])
        + jnp.log1p(-w["p"])
    )
    rest = 3 * jnp.log1p(-(w["rho"] ** 2)) - 0.5 * (w["c"] ** 2).sum() - 0.5 * w["b"] ** 2
    return gamma(w["sigma"]) + shares + rest


@pytest.fixture(scope="module")
def post():
    return mixvi.fit(mixed, MIXED_INIT, family="full", constraints=MIXED, draws=512, tol=1e-5)


def test_save_and_load(post, tmp_path):
    again = mixvi.load(post.save(tmp_path / "bound"))
    assert again.constraints == post.constraints
    assert again.names == post.names
    assert again.summary() == post.summary()
    np.testing.assert_array_equal(again.sample(3, 5)["s"], post.sample(3, 5)["s"])
    assert again.log_prob(post.mean) == post.log_prob(post.mean)
    free = mixvi.load(post.unconstrained.save(tmp_path / "free"))
    assert free.constraints is None
    assert free.names == post.names
    np.testing.assert_array_equal(free.mean["s"], post.unconstrained.mean["s"])


def test_weighted_draws_are_the_users(post):
    drawn = post.importance_weights().draws
    assert drawn["s"].shape == (1000, 3)
    np.testing.assert_allclose(drawn["s"].sum(-1), 1, atol=1e-12)
    assert (drawn["sigma"] > 0).all()


def test_a_warm_start_keeps_its_constraints(post):
    warm = mixvi.fit(mixed, post, family="full", draws=512, tol=1e-5)
    assert warm.constraints == post.constraints
    assert warm.stats.passes <= 2
    np.testing.assert_allclose(warm.flat_mean, post.flat_mean, atol=1e-3)
    with pytest.raises(mixvi.InputError, match="a warm start keeps those of its Posterior"):
        mixvi.fit(mixed, post, constraints=MIXED)
    np.testing.assert_allclose(post.start["s"].sum(), 1, atol=1e-12)


def test_no_constraints_are_none():
    post = mixvi.laplace(lambda w: -0.5 * w**2, 1.0, constraints={})
    assert post.constraints is None
    assert post.unconstrained is post


@pytest.mark.parametrize("strategy", ["loop", "map", "vmap"])
def test_many(strategy):
    """Exponentials of rate r have mean 1 / r, and their logarithm's mode is there."""
    rates = np.array([0.5, 2.0, 7.0])
    posts = mixvi.fit_many(
        lambda w, rate: -rate * w["x"],
        {"x": 1.0},
        family="laplace",
        data=rates,
        constraints={"x": "positive"},
        strategy=strategy,
    )
    np.testing.assert_allclose(posts.mean["x"], np.exp(0.5) / rates, rtol=1e-8)
    np.testing.assert_allclose(posts[1].flat_mean, -np.log(2), atol=1e-8)
    assert posts.sample(0, 4)["x"].shape == (3, 4)
    with pytest.raises(mixvi.InputError, match=r"fit_many, problem 2: init: x is -1, which is not"):
        mixvi.fit_many(
            lambda w, rate: -rate * w["x"],
            {"x": np.array([1.0, 2.0, -1.0])},
            data=rates,
            init_batched=True,
            constraints={"x": "positive"},
            strategy=strategy,
        )


def test_hyperparameters_beside_constraints():
    """y_i ~ N(0, v_i), v_i ~ Gamma(2, rate beta): learnt as in the model written by hand."""
    y = np.array([0.5, -1.0, 2.0, 0.1, 3.0, -0.7])

    def bounded(v, log_beta, y):
        prior = (2 * log_beta + jnp.log(v) - jnp.exp(log_beta) * v).sum()
        return prior - 0.5 * (y**2 / v + jnp.log(v)).sum()

    def by_hand(u, log_beta, y):
        return bounded(jnp.exp(u), log_beta, y) + u.sum()

    a = mixvi.laplace(bounded, np.ones(6), data=y, hyper=0.0, constraints={"w": "positive"})
    b = mixvi.laplace(by_hand, np.zeros(6), data=y, hyper=0.0)
    assert float(a.hyper) == pytest.approx(float(b.hyper), abs=1e-6)
    np.testing.assert_allclose(a.flat_mean, b.flat_mean, atol=1e-6)


def test_float32(post):
    options = {"draws": 512, "dtype": "float32", "diagnostics": False}
    single = mixvi.fit(mixed, MIXED_INIT, family="full", constraints=MIXED, **options)
    assert single.mean["s"].dtype == np.float32
    assert single.sample(0, 3)["sigma"].dtype == np.float32
    np.testing.assert_allclose(single.mean["s"], post.mean["s"], atol=0.01)


def test_a_failed_fit_has_no_numbers():
    post = mixvi.laplace(lambda w: 0.0 * w, 1.0, constraints={"w": "positive"}, throw=False)
    assert np.isnan(post.mean)
    assert np.isnan(post.std)
    assert np.isnan(post.log_prob(1.0))
    assert "No Gaussian" in post.summary()


# --- sentences --------------------------------------------------------------------------------


def fit_with(constraints, init=None, log_density=mixed):
    return mixvi.fit(log_density, MIXED_INIT | (init or {}), constraints=constraints)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit_with({"tau": "positive"}), "no parameter 'tau'. The parameters are b, c, p"),
        (
            lambda: fit_with({"p": "probability"}),
            "p is given 'probability'; known are \"positive\"",
        ),
        (lambda: fit_with({"p": (0, 1)}), "mixvi.Interval(low, high)"),
        (lambda: fit_with(["p"]), 'such as {"sigma": "positive"}, not list'),
        (lambda: fit_with(MIXED, {"sigma": -1.0}), "sigma is -1, which is not inside (0, inf)"),
        (lambda: fit_with(MIXED, {"sigma": 0.0}), "sigma is 0, which is not inside (0, inf)"),
        (lambda: fit_with(MIXED, {"p": 1.0}), "p is 1, which is not inside (0, 1)"),
        (lambda: fit_with({"c": "unit"}), "c[0] is -1, which is not inside (0, 1)"),
        (lambda: fit_with(MIXED, {"s": np.ones(3)}), "s is [1, 1, 1], with sum 3"),
        (lambda: fit_with(MIXED, {"c": np.zeros(3)}), "c is [0, 0, 0], which does not increase"),
        (lambda: fit_with({"b": "simplex"}), "b has shape (), but a simplex needs at least two"),
        (lambda: fit_with({"s": "simplex"}, {"s": np.ones(1)}), "shape (1,), but a simplex"),
        (lambda: fit_with({"b": "ordered"}), "b is one number"),
        (lambda: mixvi.Interval(1, 1), "low must be below high, got low=1 and high=1"),
        (lambda: mixvi.Interval(0, np.nan), "low must be below high"),
        (lambda: mixvi.Interval(-INF, INF), "no end is finite"),
        (lambda: mixvi.Interval("a", 1), "must be two numbers, got 'a'"),
    ],
)
def test_sentences(call, words):
    with pytest.raises(mixvi.InputError) as said:
        call()
    assert words in str(said.value)


def test_stacks_name_the_row():
    with pytest.raises(mixvi.InputError, match=r"init: w\[1\] is \[0.5, 0.6\], with sum 1.1"):
        mixvi.laplace(
            lambda w: jnp.log(w).sum(),
            np.array([[0.5, 0.5], [0.5, 0.6]]),
            constraints={"w": "simplex"},
        )


def test_linear_predictors_are_refused():
    model = mixvi.LinearPredictor(np.eye(2), lambda eta: -(eta**2), 1.0)
    with pytest.raises(mixvi.InputError, match="LinearPredictor has a Gaussian prior"):
        mixvi.fit(model, np.ones(2), constraints={"w": "positive"})


def test_a_bad_start_shows_the_users_values():
    def log_density(w):
        return jnp.log(w["sigma"] - 5) + 0 * w["s"].sum()

    with pytest.raises(mixvi.NonFiniteError, match=r"s\[0\]=0.3333, .*sigma=2\)"):
        mixvi.laplace(
            log_density,
            {"sigma": 2.0, "s": np.full(3, 1 / 3)},
            constraints={"sigma": "positive", "s": "simplex"},
        )
