"""Small tables, likelihoods and bases for the tests of models, and central differences."""

import numpy as np

from mixvi import models

N, FEATURES = 11, 3
# The noise is as wide as the targets: differences of a sharp Cauchy are less exact.
SCALES = {"log_sigma": -0.2, "log_gamma": -0.3}


def likelihoods():
    rng = np.random.default_rng(1)
    real = 0.7 * rng.standard_normal(N)
    return {
        "bernoulli": (models.Bernoulli(), (rng.random(N) < 0.5).astype(float)),
        "student_t": (models.StudentT(), real),
        "student_t, df learnt": (models.StudentT(None), real),
        "cauchy": (models.Cauchy(), real),
        "gaussian": (models.Gaussian(), real),
        "poisson": (models.Poisson(), rng.poisson(2, N).astype(float)),
        "softmax": (models.Softmax(4), rng.integers(0, 4, N).astype(float)),
    }


LIKELIHOODS = likelihoods()
BASES = {
    "linear": models.Linear(),
    "rbf": models.RBF(4),
    "rbf per feature": models.RBF(4, per_feature=True),
    "gp rbf": models.GaussianProcess("rbf", 5),
    "gp matern12": models.GaussianProcess("matern12"),
    "gp matern32": models.GaussianProcess("matern32", 5, per_feature=True),
    "gp matern52": models.GaussianProcess("matern52"),
}


def table(n=N, features=FEATURES, seed=0):
    return np.random.default_rng(seed).standard_normal((n, features))


# The constant has a prior precision of its own.
OWN_CONSTANT = {"linear, own constant": 0.3, "rbf, own constant": 0.2}


def density_of(basis, likelihood, seed=2, **options):
    """Weights, an offset and hyperparameters that are nothing special."""
    rng = np.random.default_rng(seed)
    own, (likelihood, y) = OWN_CONSTANT.get(basis), LIKELIHOODS[likelihood]
    model = models.Model(BASES[basis.removesuffix(", own constant")], likelihood, True, own)
    outputs = model.likelihood.n_outputs
    given = {
        "weight": rng.uniform(0.5, 2, N),
        "offset": 0.3 * rng.standard_normal((N, outputs) if outputs > 1 else N),
    }
    density = model.density(table(), y, **given | options)
    known = {name: value for name, value in SCALES.items() if name in density.hyper}
    theta = density.flat(density.hyper | known)
    return density.at(theta + 0.1 * rng.standard_normal(density.n_hyper))


def differences(function, point, step=1e-5):
    """Of a function of a vector, central: the derivatives on the first axis."""
    point = np.asarray(point, dtype=np.float64)
    found = []
    for i in range(len(point)):
        shift = np.zeros_like(point)
        shift[i] = step
        found.append((function(point + shift) - function(point - shift)) / (2 * step))
    return np.array(found)
