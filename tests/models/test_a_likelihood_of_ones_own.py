"""A likelihood or a basis added from outside, in one class: derivatives come from JAX.

Laplace noise, `p(y) ~ exp(-|y - eta| / b)`, and waves whose frequency is learnt.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi import models
from mixvi.estimators import MVIRegressor
from model_cases import differences


class DoubleExponential(models.RealLikelihood):
    """The kink at zero is rounded off: `sqrt(r^2 + 1e-4)` for `|r|`."""

    name = "double_exponential"

    def start(self):
        return {"log_b": -1.0}

    def log_prior(self, hyper):
        return -0.5 * (hyper["log_b"] + 1.0) ** 2 / 4

    def log_prob(self, y, eta, hyper):
        scaled = (y - eta) * jnp.exp(-hyper["log_b"])
        return -jnp.sqrt(scaled**2 + 1e-4) - hyper["log_b"] - np.log(2)

    def cdf(self, y, eta, hyper):
        scaled = (y - eta) * jnp.exp(-hyper["log_b"])
        tail = 0.5 * jnp.exp(-jnp.abs(scaled))
        return jnp.where(scaled < 0, tail, 1 - tail)

    def spread(self, hyper):
        return jnp.exp(hyper["log_b"])


def test_it_is_learnt_predicts_and_is_scored():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (120, 1))
    noise = 0.2
    y = 1.5 * x[:, 0] + rng.laplace(0, noise, 120)
    options = {"basis": "linear", "diagnostics": False}
    model = MVIRegressor("eig", noise=DoubleExponential(), **options).fit(x, y)
    scale = float(np.exp(model.hyper_["log_b"])) * y.std()
    assert abs(scale / noise - 1) < 0.3
    np.testing.assert_allclose(model.predict(x), 1.5 * x[:, 0], atol=0.15)
    low, high = model.predict_quantiles(x, (0.05, 0.95)).T
    assert 0.8 < ((low < y) & (y < high)).mean() < 0.98
    gaussian = MVIRegressor("eig", noise="gaussian", **options).fit(x, y)
    scores = [m.log_predictive_density(x, y, pointwise=True).sum() for m in (model, gaussian)]
    assert scores[0] > scores[1]


def check_derivatives(density, w):
    """Gradient, Hessian and slopes in the hyperparameters, against differences."""
    _, gradient, hessian = density.curvature(w)
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(
        gradient, differences(lambda w: density.values(w[None])[0], w), **close
    )
    expected = differences(lambda w: density.gradients(w[None])[1][0], w)
    np.testing.assert_allclose(hessian, expected, **close)
    joint = density.joint_gradients(w[None])[2]
    found = differences(lambda theta: density.at(theta).values(w[None])[0], density.theta)
    np.testing.assert_allclose(joint, found, **close)


def test_its_density_has_the_derivatives():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((15, 2)), rng.standard_normal(15)
    density = models.Model(models.RBF(4), DoubleExponential()).density(x, y)
    w = 0.3 * rng.standard_normal(density.dim)
    check_derivatives(density, w)


class Counts(models.Likelihood):
    """Three outcomes from two predictors: of none of the house's forms."""

    name = "two of three"
    log_concave = True

    @property
    def n_outputs(self):
        return 2

    def log_prob(self, y, eta, hyper):
        both = jnp.concatenate([eta, jnp.zeros_like(eta[..., :1])], -1)
        chosen = jnp.take_along_axis(both, jnp.asarray(y, int)[..., None], -1)[..., 0]
        return chosen - jax.scipy.special.logsumexp(both, axis=-1)

    def mean(self, eta, hyper):
        return jax.nn.softmax(jnp.concatenate([eta, jnp.zeros_like(eta[..., :1])], -1), -1)


def test_one_of_several_predictors():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((60, 1))
    y = np.digitize(x[:, 0] + 0.4 * rng.standard_normal(60), [-0.5, 0.5]).astype(float)
    model = models.Model(models.Linear(), Counts())
    density = model.density(x, y)
    w = 0.3 * rng.standard_normal(density.dim)
    expected = differences(lambda w: density.gradients(w[None])[1][0], w)
    np.testing.assert_allclose(density.curvature(w)[2], expected, atol=1e-7)
    slopes = density.evidence_slopes(w, 0.3 * np.eye(4))
    bent = differences(lambda w: 0.5 * 0.09 * np.trace(density.curvature(w)[2]), w)
    np.testing.assert_allclose(slopes.in_w, bent, atol=1e-7)
    post = mixvi.fit(density, density.init, hyper=density.hyper)
    shares = models.Predictive.of(model, density.shared, post).expectation(density.rows)
    assert (shares.argmax(1) == y).mean() > 0.75
    np.testing.assert_allclose(shares.sum(1), 1)


class WithScale(Counts):
    def start(self):
        return {"log_scale": 0.0}


def test_several_predictors_without_hyperparameters_of_their_own():
    model = models.Model(models.Linear(), WithScale())
    with pytest.raises(mixvi.InputError, match="cannot have hyperparameters of its own"):
        model.density(np.zeros((3, 1)), np.zeros(3))


# --- a basis ----------------------------------------------------------------------------------


class Waves(models.Basis):
    """`sin` and `cos` of `k f x`, `k = 1, ..., n`, with a frequency `f` that is learnt."""

    name = "waves"
    n = 2

    def start(self, shared):
        return {"log_frequency": np.float64(0.2)}

    def log_prior(self, hyper, shared):
        return -0.5 * hyper["log_frequency"] ** 2

    def fit_shared(self, x, seed, weight=None):
        return {"n_columns": 2 * self.n * x.shape[1]}

    def rows(self, x, shared):
        return {"x": x}

    def columns(self, rows, shared, hyper):
        phase = jnp.exp(hyper["log_frequency"]) * rows["x"]
        parts = [f(k * phase) for k in range(1, self.n + 1) for f in (jnp.sin, jnp.cos)]
        return jnp.concatenate(parts, axis=1)


@pytest.mark.parametrize("likelihood", [models.Gaussian(), models.Softmax(3)])
def test_a_basis_in_jax(likelihood):
    """In float64, whatever the JAX flag is: it is off here."""
    assert not jax.config.jax_enable_x64
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-2, 2, (30, 2)), rng.integers(0, 3, 30).astype(float)
    density = models.Model(Waves(), likelihood).density(x, y)
    assert all(block.phi.dtype == np.float64 for block in density.blocks())
    w, root = 0.3 * rng.standard_normal(density.dim), 0.2 * np.eye(density.dim)
    slope = density.joint_gradients(w[None])[2]
    expected = differences(lambda theta: density.at(theta).values(w[None])[0], density.theta)
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-6)
    slopes = density.evidence_slopes(w, root)
    mixed = differences(lambda t: density.at(t).gradients(w[None])[1][0], density.theta).T
    np.testing.assert_allclose(slopes.mixed, mixed, rtol=1e-6, atol=1e-6)


def test_its_frequency_is_learnt():
    rng = np.random.default_rng(4)
    x = rng.uniform(-3, 3, (80, 1))
    y = np.sin(1.6 * x[:, 0]) + 0.1 * rng.standard_normal(80)
    model = models.Model(Waves(), models.Gaussian())
    density = model.density(x, y)
    post = mixvi.fit(density, density.init, hyper=density.hyper)
    assert float(np.exp(post.hyper["log_frequency"])) == pytest.approx(1.6, rel=0.02)
    fresh = rng.uniform(-3, 3, (50, 1))
    predictive = models.Predictive.of(model, density.shared, post)
    found = predictive.expectation(model.basis.rows(fresh, density.shared))
    np.testing.assert_allclose(found, np.sin(1.6 * fresh[:, 0]), atol=0.1)


# --- subclasses of those of the house ---------------------------------------------------------


class Tempered(models.StudentT):
    """Half of Student's log density, and a squared term: its values alone are told."""

    def log_prob(self, y, eta, hyper):
        return 0.5 * super().log_prob(y, eta, hyper) - 0.1 * (y - eta) ** 2 * jnp.exp(
            hyper["log_sigma"]
        )


class ByDerivatives(models.StudentT):
    """The same by its derivatives: the values are the first of them."""

    def derivatives(self, y, eta, hyper, order):
        away, by = y - eta, 0.1 * np.exp(1) ** hyper["log_sigma"]
        added = [-by * away**2, 2 * by * away, -2 * by + 0 * away, 0 * away]
        known = super().derivatives(y, eta, hyper, order)
        return [0.5 * one + other for one, other in zip(known, added, strict=False)]


class Shifted(models.Poisson):
    """Of a rate with something added: not log-concave."""

    def log_prob(self, y, eta, hyper):
        rate = jnp.exp(eta) + 0.5
        return y * jnp.log(rate) - rate - jax.scipy.special.gammaln(y + 1)


class Cooler(models.Softmax):
    def log_prob(self, y, eta, hyper):
        return 0.3 * super().log_prob(y, eta, hyper)


class Mixin:
    def log_prob(self, y, eta, hyper):
        return 2 * super().log_prob(y, eta, hyper)


class Mixed(Mixin, models.Bernoulli):
    pass


class Again(Tempered):
    """A parent that is itself a subclass, and asked."""

    def log_prob(self, y, eta, hyper):
        return 3 * super().log_prob(y, eta, hyper)


SUBCLASSES = {
    "values": (Tempered(), 0),
    "derivatives": (ByDerivatives(), 0),
    "of a subclass": (Again(), 0),
    "of counts": (Shifted(), 2),
    "of classes": (Cooler(3), 2),
    "mixed in": (Mixed(), 1),
    "df learnt": (Tempered(None), 0),
}


@pytest.mark.parametrize("name", SUBCLASSES)
def test_a_subclass_has_the_derivatives_of_its_own_values(name):
    likelihood, most = SUBCLASSES[name]
    rng = np.random.default_rng(5)
    x = rng.standard_normal((15, 2))
    y = rng.integers(0, most + 1, 15).astype(float) if most else rng.standard_normal(15)
    density = models.Model(models.RBF(4), likelihood).density(x, y)
    w = 0.3 * rng.standard_normal(density.dim)
    (block,) = density.blocks()
    eta = (block.phi @ w.reshape(density.n_predictors, -1).T).squeeze()
    with jax.enable_x64(True):
        rows = np.asarray(likelihood.log_prob(y, eta, density.hyper))
    twice = density.values(w[None])[0]
    density.weight = 2 * density.weight
    twice = density.values(w[None])[0] - twice
    assert twice == pytest.approx(rows.sum(), abs=1e-9)
    check_derivatives(density, w)


def test_a_subclass_is_integrated_by_its_own_values():
    """And is not taken for concave because its parent is."""
    assert not Shifted().log_concave
    assert models.Poisson().log_concave
    y, mean, sd = np.array([0.0, 3.0]), np.array([-1.0, 1.0]), np.array([0.5, 1.0])
    z = np.linspace(-9, 9, 4001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    cases = [(Shifted(), {}), (Tempered(), {"log_sigma": -1.0})]
    for likelihood, hyper in cases:
        with jax.enable_x64(True):
            values = likelihood.log_prob(y[:, None], mean[:, None] + sd[:, None] * z, hyper)
            found = likelihood.predictive_log_prob(y, mean, sd, hyper)
        np.testing.assert_allclose(found, np.log(np.exp(np.asarray(values)) @ weights), atol=1e-8)


class Prior(models.Cauchy):
    """Another prior on its scale, and nothing else."""

    def log_prior(self, hyper):
        return -2.0 * (hyper["log_gamma"] + 3.0) ** 2


class WidePrior(models.RBF):
    def log_prior(self, hyper, shared):
        return -0.1 * (hyper["log_width"] - 1.0) ** 2


class Ridges(models.RBF):
    """Other columns of the same distances."""

    def columns(self, rows, shared, hyper):
        return 1 / (1 + rows["square"] * jnp.exp(-2 * hyper["log_width"]))


@pytest.mark.parametrize(
    ("basis", "likelihood"),
    [
        (models.RBF(4), Prior()),
        (WidePrior(4), models.Cauchy()),
        (Ridges(4), models.Gaussian()),
        (Ridges(4), models.Softmax(3)),
    ],
)
def test_other_priors_and_columns_have_their_own_slopes(basis, likelihood):
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((15, 2)), rng.integers(0, 3, 15).astype(float)
    density = models.Model(basis, likelihood).density(x, y)
    w = 0.3 * rng.standard_normal(density.dim)
    joint = density.joint_gradients(w[None])[2]
    found = differences(lambda theta: density.at(theta).values(w[None])[0], density.theta)
    np.testing.assert_allclose(joint, found, rtol=1e-5, atol=1e-5)
    slopes = density.evidence_slopes(w, 0.2 * np.eye(density.dim))
    mixed = differences(lambda t: density.at(t).gradients(w[None])[1][0], density.theta).T
    np.testing.assert_allclose(slopes.mixed, mixed, rtol=1e-5, atol=1e-5)


def test_those_of_the_house_keep_their_own():
    """Nothing is taken from JAX for a class that says everything itself."""
    for kind in (models.Gaussian, models.StudentT, models.Cauchy, models.Poisson, models.Bernoulli):
        for name in ("derivatives", "hyper_slopes", "log_prior_slopes"):
            general = getattr(models.Likelihood, name)
            if name != "log_prior_slopes" or kind().start():
                assert getattr(kind, name) is not general
    assert models.Cauchy.predictive_cdf is models.StudentT.predictive_cdf
    assert models.Softmax.several is not models.Likelihood.several

    class Renamed(models.StudentT):
        name = "mine"

    assert Renamed.derivatives is models.StudentT.derivatives


def test_a_likelihood_that_says_nothing():
    class Silent(models.Likelihood):
        name = "silent"

        def mean(self, eta, hyper):
            return eta

    density = models.Model(models.Linear(), Silent()).density(np.zeros((3, 1)), np.zeros(3))
    with pytest.raises(mixvi.InputError, match="must have log_prob or derivatives"):
        density.values(np.zeros((1, 2)))
