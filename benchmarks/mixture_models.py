"""Cheap posteriors with exact moments, which join the `SHAPES` of `mixture_shapes.py`: hierarchies
of few groups, by quadrature over `log tau`, and models of two parameters, on a grid."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mixture_shapes import SHAPES, add  # noqa: F401  (for those who want all)
from mixtures import Shape

# --- hierarchies of few groups ----------------------------------------------------------------


def of_scale(log_tau, d):
    """Half-Cauchy, with the Jacobian; `mu` is N(0, 5^2)."""
    return log_tau - jnp.log1p(jnp.exp(2 * log_tau) / d["scale"] ** 2)


def centred(w, d):
    mu, log_tau, theta = w[0], w[1], w[2:]
    groups = -0.5 * ((theta - mu) * jnp.exp(-log_tau)) ** 2 - log_tau
    data = -0.5 * ((d["y"] - theta) / d["se"]) ** 2
    return of_scale(log_tau, d) - 0.5 * (mu / 5) ** 2 + (groups + data).sum()


def non_centred(w, d):
    mu, log_tau, eta = w[0], w[1], w[2:]
    data = -0.5 * ((d["y"] - mu - jnp.exp(log_tau) * eta) / d["se"]) ** 2
    return of_scale(log_tau, d) - 0.5 * (mu / 5) ** 2 + (data - 0.5 * eta**2).sum()


def hierarchy_of(y: tuple, se: tuple, scale: float, is_centred: bool) -> Shape:
    """Given `log tau` all else is Gaussian, so that its mass and moments are known."""
    y, se, n = np.array(y), np.array(se), len(y)
    grid = np.linspace(-30, 15, 9001)
    log_mass, means, squares = [], [], []
    for log_tau in grid:
        tau = math.exp(log_tau)
        # Rows of a least-squares problem in (mu, groups).
        prior, data = np.zeros((n, 1 + n)), np.zeros((n, 1 + n))
        if is_centred:
            prior[:, 0], prior[:, 1:] = -1 / tau, np.eye(n) / tau
            data[:, 1:] = np.diag(1 / se)
        else:
            prior[:, 1:] = np.eye(n)
            data[:, 0], data[:, 1:] = 1 / se, np.diag(tau / se)
        rows = np.concatenate([[[0.2, *np.zeros(n)]], prior, data])
        told = np.concatenate([np.zeros(1 + n), y / se])
        # By QR: the precision itself has 1/tau^2 in it.
        q, r = np.linalg.qr(rows)
        mean, root = np.linalg.solve(r, q.T @ told), np.linalg.inv(r)
        misfit = 0.5 * ((told - rows @ mean) ** 2).sum()
        log_det = np.log(np.abs(np.diag(r))).sum() + n * log_tau * is_centred
        log_prior = log_tau - np.log1p(math.exp(2 * log_tau) / scale**2)
        log_mass.append(log_prior - misfit - log_det)
        means.append(mean)
        squares.append(mean**2 + (root**2).sum(1))
    share = np.exp(np.array(log_mass) - max(log_mass))
    share /= share.sum()
    mean, square = share @ np.array(means), share @ np.array(squares)
    of_tau = share @ grid, share @ grid**2
    mean, square = np.insert(mean, 1, of_tau[0]), np.insert(square, 1, of_tau[1])
    log_density = centred if is_centred else non_centred
    data = {"y": y, "se": se, "scale": np.array(scale)}
    return Shape(log_density, np.zeros(2 + n), data, None, mean, np.sqrt(square - mean**2))


for y, se, scale in (
    ((2.0, -1.0, 0.5), (1.0, 1.0, 1.0), 1.0),
    ((6.0, -4.0, 1.0), (1.0, 1.5, 1.0), 2.0),
    ((0.3, 0.1, -0.2, 0.4), (0.5, 0.5, 0.5, 0.5), 1.0),
    ((3.0, 1.0, -2.0, 0.0), (2.0, 1.0, 2.0, 3.0), 3.0),
    ((5.0, 2.0), (1.0, 1.0), 2.0),
    ((28.0, 8.0, -3.0, 7.0), (15.0, 10.0, 16.0, 11.0), 5.0),
):
    for way in (True, False):
        said = f"{2 + len(y)}-D, {'' if way else 'non-'}centred, y {y}, se {se}"
        add("hierarchy", said, lambda y=y, s=se, p=scale, c=way: hierarchy_of(y, s, p, c))


# --- models of two parameters, on a grid ------------------------------------------------------


def by_grid(log_density: Callable, data: dict, box: tuple, init=(0.0, 0.0), n=1501) -> Shape:
    a, b = (np.linspace(*side, n) for side in box)
    first, second = np.meshgrid(a, b, indexing="ij")
    points = np.stack([first.ravel(), second.ravel()], 1)
    with jax.enable_x64(True):
        each = jax.jit(jax.vmap(lambda w: log_density(w, jax.tree.map(jnp.asarray, data))))
        value = np.asarray(each(points)).reshape(n, n)
    edges = max(value[[0, -1]].max(), value[:, [0, -1]].max())
    assert edges < value.max() - 18, edges - value.max()
    share = np.exp(value.ravel() - value.max())
    mean = share @ points / share.sum()
    sd = np.sqrt(share @ (points - mean) ** 2 / share.sum())
    return Shape(log_density, np.array(init), data, None, mean, sd)


def normal_sample(w, d):
    """Mean and log sd."""
    z = (d["y"] - w[0]) * jnp.exp(-w[1])
    return -0.5 * (w[0] / 10) ** 2 - 0.5 * (w[1] / 2) ** 2 - (0.5 * z**2 + w[1]).sum()


def student_sample(w, d):
    z = (d["y"] - w[0]) * jnp.exp(-w[1])
    return -0.5 * (w[0] / 10) ** 2 - 0.5 * (w[1] / 2) ** 2 - (2 * jnp.log1p(z**2 / 3) + w[1]).sum()


def gamma_sample(w, d):
    """Log shape and log rate."""
    a = jnp.exp(w[0])
    each = a * w[1] - jax.scipy.special.gammaln(a) + (a - 1) * jnp.log(d["y"])
    each = each - jnp.exp(w[1]) * d["y"]
    return each.sum() - 0.5 * ((w / 2) ** 2).sum()


def doses(w, d):
    eta = w[0] + w[1] * d["x"]
    each = d["k"] * jax.nn.log_sigmoid(eta) + (d["n"] - d["k"]) * jax.nn.log_sigmoid(-eta)
    return each.sum() - 0.5 * ((w / 10) ** 2).sum()


def decay(w, d):
    fitted = jnp.exp(w[0] - jnp.exp(w[1]) * d["x"])
    return -0.5 * (((d["y"] - fitted) / d["sd"]) ** 2).sum() - 0.5 * ((w / 2) ** 2).sum()


def saturation(w, d):
    fitted = jnp.exp(w[0]) * d["x"] / (jnp.exp(w[1]) + d["x"])
    return -0.5 * (((d["y"] - fitted) / d["sd"]) ** 2).sum() - 0.5 * ((w / 2) ** 2).sum()


def beta_binomial(w, d):
    """Logit of the mean and log of the size of a beta that many shares come from: rising factorials
    `a (a+1) ... (a+k-1)`, which large sizes do not cancel."""
    log_a, log_b = w[1] + jax.nn.log_sigmoid(w[0]), w[1] + jax.nn.log_sigmoid(-w[0])
    steps = jnp.log(jnp.arange(TRIALS))

    def rising(log_x, k):
        each = jnp.logaddexp(log_x, steps)
        return jnp.where(jnp.arange(TRIALS) < k[:, None], each, 0.0).sum()

    of_size = rising(w[1], jnp.full_like(d["k"], TRIALS))
    each = rising(log_a, d["k"]) + rising(log_b, TRIALS - d["k"])
    return each - of_size - 0.5 * ((w / 3) ** 2).sum()


def product(w, d):
    return -0.5 * ((d["y"] - w[0] * w[1]) / d["sd"]) ** 2 - 0.5 * (w**2).sum()


def poisson_slope(w, d):
    eta = w[0] + w[1] * d["x"]
    return (d["y"] * eta - jnp.exp(eta)).sum() - 0.5 * ((w / 3) ** 2).sum()


TRIALS = 10
X = np.array([0.5, 1.0, 2.0, 4.0])
BIO = {
    "x": np.array([-0.86, -0.3, -0.05, 0.73]),
    "n": np.full(4, 5.0),
    "k": np.array([0.0, 1.0, 3.0, 5.0]),
}
FEW = np.array([0.2, 1.5, -0.7])
WIDE, SOME = ((-60.0, 60.0), (-14.0, 14.0)), ((-15.0, 15.0), (-15.0, 15.0))
TWO: dict[str, tuple] = {
    "three normal numbers": (normal_sample, {"y": FEW}, WIDE),
    "two normal numbers": (normal_sample, {"y": FEW[:2]}, WIDE),
    "five normal numbers": (normal_sample, {"y": np.array([0.2, 1.5, -0.7, 0.4, 0.1])}, WIDE),
    "four numbers, Student's t": (student_sample, {"y": np.array([0.0, 0.3, -0.4, 6.0])}, WIDE),
    "four numbers far apart, Student's t": (
        student_sample,
        {"y": np.array([-3.0, -2.8, 3.0, 3.3])},
        WIDE,
    ),
    "three gamma numbers": (gamma_sample, {"y": np.array([0.3, 1.1, 2.5])}, SOME),
    "two gamma numbers": (gamma_sample, {"y": np.array([1.0, 1.1])}, SOME),
    "doses": (doses, BIO, ((-20.0, 25.0), (-30.0, 70.0))),
    "doses, separated": (
        doses,
        {**BIO, "k": np.array([0.0, 0.0, 5.0, 5.0])},
        ((-60.0, 60.0), (-60.0, 80.0)),
    ),
    "decay": (decay, {"x": X, "y": np.array([0.7, 0.4, 0.3, 0.0]), "sd": np.array(0.2)}, SOME),
    "decay, little known": (
        decay,
        {"x": X, "y": np.array([0.7, 0.2, 0.5, 0.1]), "sd": np.array(0.5)},
        SOME,
    ),
    "saturation": (
        saturation,
        {"x": X, "y": np.array([0.3, 0.5, 0.9, 1.2]), "sd": np.array(0.15)},
        SOME,
    ),
    "saturation, little known": (
        saturation,
        {"x": X, "y": np.array([0.2, 0.5, 0.6, 0.7]), "sd": np.array(0.3)},
        SOME,
    ),
    "five shares": (
        beta_binomial,
        {"k": np.array([0.0, 2.0, 1.0, 5.0, 3.0])},
        ((-18.0, 18.0), (-18.0, 18.0)),
    ),
    "five shares, alike": (
        beta_binomial,
        {"k": np.array([2.0, 2.0, 1.0, 3.0, 2.0])},
        ((-18.0, 18.0), (-18.0, 25.0)),
    ),
    "a product": (product, {"y": np.array(1.0), "sd": np.array(0.3)}, ((-8.0, 8.0), (-8.0, 8.0))),
    "a product, known well": (
        product,
        {"y": np.array(1.5), "sd": np.array(0.1)},
        ((-8.0, 8.0), (-8.0, 8.0)),
    ),
    "counts, none of them": (
        poisson_slope,
        {"x": np.array([-1.0, 0.0, 1.0]), "y": np.zeros(3)},
        ((-25.0, 15.0), (-25.0, 25.0)),
    ),
    "few counts": (
        poisson_slope,
        {"x": np.array([-1.0, 0.0, 1.0]), "y": np.array([0.0, 1.0, 1.0])},
        ((-25.0, 15.0), (-25.0, 25.0)),
    ),
}
for name, given in TWO.items():
    init = (0.5, 0.2) if name.startswith("a product") else (0.0, 0.0)
    add("two parameters", name, lambda g=given, i=init: by_grid(*g, init=i))
