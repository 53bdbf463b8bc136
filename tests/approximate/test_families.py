"""A(phi): what each family says of itself must agree, and its bound with one written by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._approximate._climb import Anchor, FamilyBound, _rungs, climb, nearest
from mixvi._approximate._laplace import eigen_root, laplace
from mixvi._approximate._search import Stop
from targets import counts, density_of, logistic, logistic_data, points

DIM = 5
FAMILIES = [
    mixvi.MeanOnly(),
    mixvi.EigenScale(),
    mixvi.LowRank(),
    mixvi.LowRank(rank=3),
    mixvi.FullRank(),
    mixvi.MeanField(),
    mixvi.MeanField(start="small"),
]
EYE = np.eye(DIM)


def anchor_of(density) -> Anchor:
    found = laplace(density, np.zeros(density.dim))
    assert found.found
    return Anchor(found.mode, eigen_root(found.root), found.log_evidence)


def bound_of(family, log_density=counts, data=None, n=64, dim=DIM, memory=2**30) -> FamilyBound:
    density = density_of(log_density, dim, data, memory)
    return FamilyBound(density, anchor_of(density), family, points(n, dim))


def some_params(family, bound=None, seed=0):
    bound = bound or bound_of(family)
    n = bound.dim
    phi = family.starts(bound.root, np.eye(n), 0.3 * np.ones((n, n)), bound.anchor.root)[-1]
    noise = np.random.default_rng(seed).standard_normal(n + phi.size)
    return np.concatenate([np.zeros(n), phi]) + 0.1 * noise


def by_hand(family, bound, params):
    """The bound in jax.numpy, from the families' definitions alone."""
    centre, laplace_root, dim = bound.anchor.centre, bound.anchor.root, bound.dim
    m, phi = params[:dim], params[dim:]
    if family.name == "mu":
        root = laplace_root
    elif family.name == "eig":
        root = laplace_root @ jnp.diag(jnp.exp(phi / math.sqrt(2)))
    elif family.name == "lr":
        u, v = phi.reshape(2, dim, family.rank)
        root = laplace_root @ (jnp.eye(dim) + u @ v.T)
    elif family.name == "full":
        below = jnp.zeros((dim, dim)).at[jnp.tril_indices(dim, -1)].set(phi[dim:])
        root = laplace_root @ (below + jnp.diag(jnp.exp(phi[:dim] / math.sqrt(2))))
    else:
        precision = jnp.linalg.inv(laplace_root @ laplace_root.T)
        root = jnp.diag(jnp.exp(phi / math.sqrt(2)) / jnp.sqrt(jnp.diagonal(precision)))
    at = centre + laplace_root @ m + bound.rule.z @ root.T
    entropy = jnp.linalg.slogdet(root)[1] + 0.5 * dim * math.log(2 * math.pi * math.e)
    return jax.vmap(counts)(at).mean() + entropy


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_products_and_log_det_are_of_one_matrix(family):
    phi = some_params(family)[DIM:]
    a = family.right_multiply(EYE, phi)
    left = np.random.default_rng(1).standard_normal((DIM, DIM))
    np.testing.assert_allclose(family.right_multiply(left, phi), left @ a, atol=1e-12)
    assert family.log_det(phi, DIM) == pytest.approx(np.linalg.slogdet(a)[1])
    if isinstance(family, mixvi.EigenScale | mixvi.MeanField):
        scales = np.linspace(1, 2, DIM)
        of_vector = family.right_multiply(scales, phi)
        np.testing.assert_allclose(np.diag(of_vector), np.diag(scales) @ a, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_pull_back_against_automatic_differentiation(family):
    bound, params = bound_of(family), some_params(family)
    value, gradient = bound(params)
    with jax.enable_x64(True):
        exact = jax.value_and_grad(lambda p: by_hand(family, bound, p))(jnp.asarray(params))
    assert value == pytest.approx(float(exact[0]), rel=1e-12)
    np.testing.assert_allclose(gradient, exact[1], rtol=1e-10, atol=1e-10)
    # The gradient vanishes nowhere, so that nothing is compared with zero.
    assert np.abs(gradient).min() > 1e-6


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_pull_back_against_finite_differences(family):
    bound, params = bound_of(family), some_params(family)
    value, gradient = bound(params)
    assert value == pytest.approx(bound.value(params), rel=1e-12)
    h = 1e-5
    differences = [
        (bound.value(params + e) - bound.value(params - e)) / (2 * h)
        for e in h * np.eye(params.size)
    ]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_pull_back_is_the_gradient_of_what_it_says(family):
    """Of `<N, A(phi)> + log|det A(phi)|` at any N, not only at one that a density has made."""
    phi, h = some_params(family)[DIM:], 1e-5
    n = np.random.default_rng(4).standard_normal((DIM, DIM))

    def held(phi):
        return (n * family.right_multiply(EYE, phi)).sum() + family.log_det(phi, DIM)

    units = h * np.eye(phi.size)
    differences = np.array([(held(phi + e) - held(phi - e)) / (2 * h) for e in units])
    np.testing.assert_allclose(family.pull_back(n, phi), differences, rtol=1e-6, atol=1e-6)
    if isinstance(family, mixvi.EigenScale | mixvi.MeanField):
        only_diagonal = family.pull_back(np.diagonal(n), phi)
        np.testing.assert_allclose(only_diagonal, family.pull_back(n, phi), rtol=1e-12)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.poorer], ids=str)
def test_first_start_is_the_poorer_family_exactly(family):
    """The same matrix, so the same bound on the same draws: nesting is exact."""
    poorer, bound = family.poorer, bound_of(family)
    params = some_params(poorer)
    a = poorer.right_multiply(EYE, params[DIM:])
    phi = family.starts(bound.root, a, np.zeros_like(a), bound.anchor.root)[0]
    np.testing.assert_allclose(family.right_multiply(EYE, phi), a, atol=1e-14)
    here = bound.value(np.concatenate([params[:DIM], phi]))
    assert here == pytest.approx(bound_of(poorer).value(params), abs=1e-10)


def test_starts_of_the_mean_field():
    """The paper's two, and the conditional standard deviations."""
    family = mixvi.MeanField(start="small")
    bound = bound_of(family)
    root, laplace_root = bound.root, bound.anchor.root
    phi = family.starts(root, EYE, EYE, laplace_root)[0]
    np.testing.assert_allclose(family.right_multiply(root, phi), 1e-2 * np.ones(DIM))
    wide = mixvi.MeanField()
    phis = wide.starts(root, EYE, EYE, laplace_root)
    np.testing.assert_allclose(wide.right_multiply(root, phis[0]), root)
    covariance = laplace_root @ laplace_root.T
    marginal = wide.right_multiply(root, phis[-1])
    np.testing.assert_allclose(marginal, np.sqrt(np.diag(covariance)), rtol=1e-12)
    np.testing.assert_allclose(root, np.diag(np.linalg.inv(covariance)) ** -0.5, rtol=1e-10)


@pytest.mark.parametrize("family", [mixvi.EigenScale(), mixvi.FullRank()], ids=str)
def test_chunks_change_nothing(family):
    data = logistic_data(60, DIM)
    whole = bound_of(family, logistic, data)
    params = some_params(family, whole)
    for memory in (1, 200_000):
        parts = bound_of(family, logistic, data, memory=memory)
        assert parts.density.inner.chunk < 64
        for a, b in zip(whole(params), parts(params), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
        assert whole.value(params) == pytest.approx(parts.value(params), rel=1e-12)


def test_fisher_information_of_phi_is_the_identity_at_the_start():
    """On a standard normal target the Hessian of the loss at A = I is I in every coordinate."""
    h = 2e-3
    for family in (mixvi.MeanOnly(), mixvi.EigenScale(), mixvi.FullRank(), mixvi.MeanField()):
        bound = bound_of(family, lambda w: -0.5 * w @ w, n=400, dim=3)
        phi = family.starts(bound.root, np.eye(3), np.eye(3), bound.anchor.root)[0]
        start = np.concatenate([np.zeros(3), phi])

        # Differences of fourth order.
        units = h * np.eye(start.size)
        once, twice = (
            np.array([bound(start + e)[1] - bound(start - e)[1] for e in n * units]) for n in (1, 2)
        )
        hessian = (8 * once - twice) / (12 * h)
        np.testing.assert_allclose(hessian, -np.eye(start.size), atol=1e-9)


def test_the_first_curvature_is_that_of_a_gaussian_target():
    """Seen from a root that is not the target's own: `-d2 ELBO / d phi2` at A = I is the bend."""
    scales = np.array([0.5, 1.0, 3.0])
    bound = bound_of(mixvi.EigenScale(), lambda w: -0.5 * ((w / scales) ** 2).sum(), dim=3)
    bend, h = np.diag([4.0, 1.0, 0.7]), 1e-4
    around = Anchor(np.zeros(3), np.diag(scales * np.sqrt(np.diag(bend))), 0.0)
    bound = FamilyBound(bound.density, around, mixvi.EigenScale(), bound.rule)
    units = h * np.eye(6)[3:]
    found = [-(bound(e)[1] - bound(-e)[1]) @ e / (2 * h**2) for e in units]
    np.testing.assert_allclose(mixvi.EigenScale().first_curvature(bend), found, rtol=1e-6)


def test_root_gradient_against_automatic_differentiation():
    bound = bound_of(mixvi.FullRank())
    a = EYE + 0.1 * np.random.default_rng(5).standard_normal((DIM, DIM))
    m, z = 0.2 * np.ones(DIM), bound.rule.z

    def elbo(a):
        at = bound.anchor.centre + (m + z @ a.T) @ bound.anchor.root.T
        return jax.vmap(counts)(at).mean() + jnp.linalg.slogdet(a)[1]

    with jax.enable_x64(True):
        exact = jax.grad(elbo)(jnp.asarray(a))
    np.testing.assert_allclose(bound.root_gradient(m, a), exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_nearest_parameters_to_a_member_are_its_own(family):
    bound = bound_of(family)
    params = some_params(family)
    if family == mixvi.MeanField(start="small"):
        return  # begins small whatever was before
    mean, root = bound.gaussian(params)
    found = nearest(bound.anchor, family, mean, root)
    near_mean, near_root = bound.gaussian(found)
    np.testing.assert_allclose(near_mean, mean, atol=1e-12)
    root, near_root = (np.diag(one) if one.ndim == 1 else one for one in (root, near_root))
    np.testing.assert_allclose(near_root @ near_root.T, root @ root.T, atol=1e-10)


def test_rungs():
    assert [f.name for f in _rungs(mixvi.FullRank())] == ["mu", "eig", "full"]
    assert [f.name for f in _rungs(mixvi.LowRank())] == ["mu", "lr"]
    assert [f.name for f in _rungs(mixvi.MeanField())] == ["diag"]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_search_ends_where_little_is_left_to_gain(family):
    """Against one that goes to rounding. The last step, which is not looked at, loses nothing."""
    bound = bound_of(family)
    around = (bound.density, bound.anchor, family, bound.rule)
    soon, late = (climb(*around, stop, "bfgs") for stop in (Stop(), Stop(tol=1e-9)))
    assert soon.n_passes < late.n_passes
    # Small U and V hide how far there is to go: their product is what matters.
    left = 1e-3 if family.name == "lr" else 1e-4
    assert late.elbo - 1e-3 < soon.elbo <= late.elbo + 1e-9
    ends = FamilyBound(*around).value(soon.params)
    assert max(soon.elbo, late.elbo - left) - 1e-12 <= ends <= late.elbo + 1e-9
