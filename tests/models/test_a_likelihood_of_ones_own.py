"""A likelihood added from outside, in one class: Laplace noise, `p(y) ~ exp(-|y - eta| / b)`."""

import jax.numpy as jnp
import numpy as np

from mixvi import models
from mixvi.estimators import MVIRegressor


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
