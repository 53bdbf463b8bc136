"""Cheap shapes of 2 to 6 parameters with exact means and standard deviations: in closed form, or by
quadrature over the one or two parameters that the others are Gaussian given.

Seven families, each of several strengths; `mixture_models.py` has two more.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy import special

from mixtures import Shape

SHAPES: dict[str, tuple[str, Callable[[], Shape]]] = {}


def add(kind: str, name: str, make: Callable[[], Shape]) -> None:
    SHAPES[f"{kind}: {name}"] = kind, make


def spun(dim: int, shear: float = 0.0) -> np.ndarray:
    """A shear, then a rotation by half a radian in every plane of two neighbours; or nothing."""
    whole = np.eye(dim)
    if shear:
        whole += shear * np.tri(dim, k=-1)
        for i in range(dim - 1):
            turn = np.eye(dim)
            turn[i : i + 2, i : i + 2] = [
                [np.cos(0.5), -np.sin(0.5)],
                [np.sin(0.5), np.cos(0.5)],
            ]
            whole = turn @ whole
    return whole


def of(log_density: Callable, mean, cov, data: dict, shear: float = 0.0, **more) -> Shape:
    """Of `w = spun(dim, shear) u`, where `u` has these moments; the log density takes `u`'s way."""
    mean, cov = np.asarray(mean, float), np.asarray(cov, float)
    matrix = spun(len(mean), shear)
    data = {**data, "back": np.linalg.inv(matrix)}
    mean, sd = matrix @ mean, np.sqrt(np.diag(matrix @ cov @ matrix.T))
    return Shape(log_density, np.full(len(mean), 0.1), data, None, mean, sd, **more)


# --- bent, funnels, twisted -------------------------------------------------------------------


def banana(w, d):
    u = d["back"] @ w
    bent = d["bend"] * (u[0] ** 2 - 1)
    return -0.5 * u[0] ** 2 - 0.5 * (((u[1:] - bent) / d["width"]) ** 2).sum()


def banana_of(bend: tuple, width: tuple, shear: float) -> Shape:
    bend, width = np.array(bend), np.array(width)
    cov = np.eye(1 + len(bend))
    cov[1:, 1:] = 2 * np.outer(bend, bend) + np.diag(width**2)
    data = {"bend": bend, "width": width}
    return of(banana, np.zeros(len(cov)), cov, data, shear)


for bends, widths, shear in (
    ((0.2,), (0.7,), 0.0),
    ((0.5,), (0.7,), 0.0),
    ((0.5,), (0.3,), 0.0),
    ((1.0,), (0.5,), 0.7),
    ((1.0,), (0.15,), 0.0),
    ((1.5,), (0.4,), 0.7),
    ((2.0,), (0.8,), 0.0),
    ((0.5, -0.5), (0.5, 0.3), 0.7),
    ((1.0, 0.6), (0.4, 0.4), 0.0),
    ((0.5, 0.3, 0.0), (0.5, 0.3, 1.0), 0.7),
    ((1.0, -0.7, 0.4, 0.0, 0.2), (0.5, 0.5, 0.5, 0.5, 0.5), 0.0),
    ((1.5, 1.0, 0.5), (0.3, 0.3, 0.3), 0.0),
    ((1.5, -1.0, 0.7, 0.3), (0.4, 0.4, 0.4, 0.4), 0.7),
    ((2.0, 1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 1.0, 1.0, 1.0), 0.0),
    ((0.7, 0.7, 0.7, 0.7, 0.7), (0.5, 0.5, 0.5, 0.5, 0.5), 0.7),
):
    said = f"{1 + len(bends)}-D, bends {bends}, widths {widths}, shear {shear}"
    add("banana", said, lambda b=bends, w=widths, s=shear: banana_of(b, w, s))


def chain(w, d):
    u = d["back"] @ w
    bent = d["bend"] * (u[:-1] ** 2 - 1)
    return -0.5 * u[0] ** 2 - 0.5 * (((u[1:] - bent) / d["width"]) ** 2).sum()


def chain_of(dim: int, bend: float, width: float, shear: float) -> Shape:
    """Each bent by the one before: polynomials in normals, which nodes integrate exactly."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(2**dim // 2 + 4)
    z = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * dim, indexing="ij")])
    share = np.ones(1)
    for _ in range(dim):
        share = np.outer(share, weights / weights.sum()).ravel()
    u = [z[0]]
    for one in z[1:]:
        u.append(bend * (u[-1] ** 2 - 1) + width * one)
    mean = np.array(u) @ share
    cov = (np.array(u) * share) @ np.array(u).T - np.outer(mean, mean)
    data = {"bend": np.array(bend), "width": np.array(width)}
    return of(chain, mean, cov, data, shear)


for case in ((3, 0.5, 0.5, 0.0), (3, 0.8, 0.4, 0.7), (4, 0.3, 0.5, 0.0), (4, 0.5, 0.5, 0.7)):
    add("banana", f"chain, {case[0]}-D, {case[1:]}", lambda c=case: chain_of(*c))


def funnel(w, d):
    u = d["back"] @ w
    x = u[1:]
    widths = 0.5 * (x**2).sum() * jnp.exp(-u[0]) + 0.5 * len(x) * u[0]
    return -0.5 * (u[0] / d["width"]) ** 2 - widths


def funnel_of(dim: int, width: float, shear: float) -> Shape:
    cov = np.diag([width**2, *[math.exp(width**2 / 2)] * (dim - 1)])
    return of(funnel, np.zeros(dim), cov, {"width": np.array(width)}, shear)


for dim, width, shear in (
    *((2, width, 0.0) for width in (0.6, 1.0, 1.4, 1.8, 2.4)),
    *((3, width, 0.0) for width in (0.8, 1.2, 1.6, 2.0)),
    *((5, width, 0.0) for width in (0.6, 1.0, 1.5)),
    (3, 1.0, 0.7),
    (3, 1.6, 0.7),
    (4, 1.4, 0.7),
    (5, 2.0, 0.0),
    (6, 1.2, 0.0),
):
    said = f"{dim}-D, width {width}, shear {shear}"
    add("funnel", said, lambda d=dim, w=width, s=shear: funnel_of(d, w, s))


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(100)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def twisted(w, d):
    u = d["back"] @ w
    wave = d["wave"] * jnp.sin(d["often"] * u[0])
    first = -0.5 * u[0] ** 2 - 0.5 * ((u[1] - wave) / d["width"]) ** 2
    grows = d["grows"] * u[0]
    rest = (u[2:] - d["cross"] * u[0] * u[1]) * jnp.exp(-grows)
    return first - 0.5 * (rest**2).sum() - (len(u) - 2) * grows


def twisted_of(dim: int, wave, often, width, cross, grows, shear) -> Shape:
    """Given the first two the others are Gaussian: a sum over nodes of both."""
    first, z = (axis.ravel() for axis in np.meshgrid(NODES, NODES, indexing="ij"))
    share = np.outer(WEIGHTS, WEIGHTS).ravel()
    second = wave * np.sin(often * first) + width * z
    means = np.stack([first, second, *[cross * first * second] * (dim - 2)])
    mean = means @ share
    cov = (means * share) @ means.T - np.outer(mean, mean)
    cov[2:, 2:] += share @ np.exp(2 * grows * first) * np.eye(dim - 2)
    names = ("wave", "often", "width", "cross", "grows")
    given = zip(names, (wave, often, width, cross, grows), strict=True)
    return of(twisted, mean, cov, {name: np.array(one) for name, one in given}, shear)


for case in (
    (3, 1.0, 1.0, 0.5, 0.3, 0.0, 0.0),
    (3, 1.0, 2.0, 0.3, 0.0, 0.3, 0.7),
    (3, 2.0, 1.5, 0.3, 0.5, 0.3, 0.0),
    (4, 0.5, 1.5, 0.5, 0.5, 0.5, 0.7),
    (4, 1.0, 1.0, 0.7, 0.3, 0.7, 0.0),
    (5, 1.0, 2.0, 0.4, 0.3, 0.3, 0.0),
    (6, 0.5, 1.0, 0.6, 0.2, 0.4, 0.7),
    (4, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0),
):
    add("twist", f"{case[0]}-D, {case[1:]}", lambda c=case: twisted_of(*c))


# --- skewed, heavy ----------------------------------------------------------------------------


def log_gammas(w, d):
    u = d["back"] @ w
    return (d["shape"] * u - jnp.exp(u)).sum()


def log_gammas_of(shape: tuple, shear: float) -> Shape:
    shape = np.array(shape)
    cov = np.diag(special.polygamma(1, shape))
    return of(log_gammas, special.digamma(shape), cov, {"shape": shape}, shear)


for shapes, shear in (
    ((0.2, 0.2), 0.7),
    ((0.4, 1.0), 0.0),
    ((1.0, 1.0, 1.0), 0.7),
    ((0.3, 1.0, 3.0), 0.7),
    ((0.3, 0.3, 0.3), 0.0),
    ((0.5, 0.5, 0.5, 0.5), 0.7),
    ((0.5, 1.0, 2.0, 4.0, 8.0), 0.7),
    ((0.5, 0.5, 0.5, 0.5, 0.5, 0.5), 0.0),
):
    said = f"{len(shapes)}-D, logs of gammas {shapes}, shear {shear}"
    add("skewed", said, lambda a=shapes, s=shear: log_gammas_of(a, s))


def skew_normals(w, d):
    u = d["back"] @ w
    return (-0.5 * u**2 + norm.logcdf(d["skew"] * u)).sum()


def skew_normals_of(skew: tuple, shear: float) -> Shape:
    skew = np.array(skew)
    mean = skew / np.sqrt(1 + skew**2) * math.sqrt(2 / math.pi)
    return of(skew_normals, mean, np.diag(1 - mean**2), {"skew": skew}, shear)


for skews, shear in (
    ((3.0, 8.0), 0.0),
    ((8.0, 8.0, 8.0), 0.7),
    ((20.0, 20.0), 0.0),
    ((4.0, -4.0, 4.0, 10.0), 0.7),
):
    said = f"{len(skews)}-D, normals skewed by {skews}, shear {shear}"
    add("skewed", said, lambda a=skews, s=shear: skew_normals_of(a, s))


def student(w, d):
    u = d["back"] @ w
    return -0.5 * ((d["nu"] + 1) * jnp.log1p(u**2 / d["nu"])).sum()


def student_of(nu: tuple, shear: float) -> Shape:
    nu = np.array(nu)
    return of(student, np.zeros(len(nu)), np.diag(nu / (nu - 2)), {"nu": nu}, shear)


def ellipse(w, d):
    u = d["back"] @ w
    return -0.5 * (d["nu"] + len(u)) * jnp.log1p((u**2).sum() / d["nu"])


def ellipse_of(dim: int, nu: float, shear: float) -> Shape:
    cov = nu / (nu - 2) * np.eye(dim)
    return of(ellipse, np.zeros(dim), cov, {"nu": np.array(nu)}, shear)


for nus, shear in (
    ((2.5, 2.5), 0.0),
    ((3.0, 3.0), 0.7),
    ((4.0, 8.0), 0.0),
    ((3.0, 5.0, 8.0), 0.7),
    ((5.0, 5.0, 5.0, 5.0), 0.7),
    ((3.0, 3.0, 3.0, 3.0, 3.0), 0.0),
):
    said = f"{len(nus)}-D, Student's t {nus}, shear {shear}"
    add("heavy", said, lambda n=nus, s=shear: student_of(n, s))
for dim, nu in ((2, 2.5), (2, 4.0), (3, 3.0), (4, 5.0), (6, 4.0)):
    said = f"{dim}-D, Student's t {nu} of all together"
    add("heavy", said, lambda d=dim, n=nu: ellipse_of(d, n, 0.7))


# --- rings, modes -----------------------------------------------------------------------------


def ring(w, d):
    u = d["back"] @ w
    radius = jnp.sqrt((u**2).sum() + 1e-12)
    along = d["lean"] * u[0] / radius
    return -0.5 * ((radius - d["radius"]) / d["width"]) ** 2 + along


def ring_of(dim: int, radius: float, width: float, lean: float, shear: float) -> Shape:
    """The direction is uniform, or in two dimensions leans to one side as von Mises has it."""
    assert dim == 2 or lean == 0
    r = np.linspace(0, radius + 10 * width, 100_001)
    mass = r ** (dim - 1) * np.exp(-0.5 * ((r - radius) / width) ** 2)
    first, second = mass @ r / mass.sum(), mass @ r**2 / mass.sum()
    mean, squares = np.zeros(dim), np.full(dim, 1 / dim)
    if lean:
        mean[0] = special.ive(1, lean) / special.ive(0, lean)
        more = 0.5 * special.ive(2, lean) / special.ive(0, lean)
        squares = np.array([0.5 + more, 0.5 - more])
    mean = first * mean
    data = {"radius": np.array(radius), "width": np.array(width), "lean": np.array(lean)}
    return of(ring, mean, np.diag(second * squares - mean**2), data, shear)


for case in (
    (2, 3.0, 0.5, 0.0, 0.0),
    (2, 3.0, 0.15, 0.0, 0.0),
    (2, 4.0, 0.3, 0.0, 0.7),
    (2, 2.0, 0.7, 0.0, 0.0),
    (2, 3.0, 0.3, 1.0, 0.0),
    (2, 3.0, 0.3, 3.0, 0.7),
    (2, 4.0, 0.2, 2.0, 0.0),
    (3, 2.0, 0.5, 0.0, 0.0),
    (3, 3.0, 0.3, 0.0, 0.0),
    (4, 2.0, 0.5, 0.0, 0.0),
    (4, 3.0, 0.3, 0.0, 0.7),
    (5, 2.0, 0.4, 0.0, 0.0),
    (6, 2.5, 0.5, 0.0, 0.0),
):
    add("ring", f"{case[0]}-D, {case[1:]}", lambda c=case: ring_of(*c))


def modes(w, d):
    away = w - d["centres"]
    z = jnp.einsum("kij,kj->ki", d["inverse_roots"], away)
    return jnp.logaddexp.reduce(d["log_mass"] - 0.5 * (z**2).sum(1))


def modes_of(dim: int, masses: tuple, apart: float, widths: tuple) -> Shape:
    """Normals on a line, the second with correlations, at multiples of `apart` from the first."""
    k = np.arange(len(masses))
    line = np.array([1.0, -0.6, 0.4, 0.3, -0.2, 0.1])[:dim]
    centres = apart * k[:, None] * line / np.linalg.norm(line)
    centres[2:, 0] = -centres[2:, 0]
    roots = [width * spun(dim, 0.5 * (i == 1)) for i, width in enumerate(widths)]
    mass, mean = np.array(masses), np.array(masses) @ centres
    cov = sum(
        m * (root @ root.T + np.outer(c - mean, c - mean))
        for m, root, c in zip(mass, roots, centres, strict=True)
    )
    log_mass = np.log(mass) - [np.linalg.slogdet(root)[1] for root in roots]
    data = {"centres": centres, "log_mass": log_mass, "inverse_roots": np.linalg.inv(roots)}
    options = {"n_restarts": 10} if apart > 5 else {}
    return Shape(modes, centres[0] + 0.1, data, None, mean, np.sqrt(np.diag(cov)), options=options)


for case in (
    (2, (0.7, 0.3), 2.0, (1.0, 0.5)),
    (2, (0.5, 0.5), 4.0, (1.0, 1.0)),
    (2, (0.9, 0.1), 6.0, (1.0, 0.5)),
    (3, (0.4, 0.6), 3.0, (1.0, 0.3)),
    (3, (0.3, 0.7), 12.0, (1.0, 0.5)),
    (4, (0.8, 0.2), 3.0, (0.5, 1.5)),
    (6, (0.5, 0.5), 4.0, (1.0, 0.7)),
    (6, (0.2, 0.8), 20.0, (1.0, 1.0)),
    (2, (0.5, 0.3, 0.2), 3.0, (1.0, 0.5, 0.7)),
    (3, (0.6, 0.3, 0.1), 8.0, (1.0, 1.5, 0.5)),
    (5, (0.2, 0.3, 0.5), 4.0, (1.0, 0.7, 1.3)),
    (2, (0.95, 0.05), 3.0, (1.0, 3.0)),
    (4, (0.9, 0.1), 1.0, (0.5, 2.5)),
):
    add("modes", f"{case[0]}-D, {case[1:]}", lambda c=case: modes_of(*c))
