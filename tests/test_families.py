"""A(phi): what each family says of itself must agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._first._elbo import Bound, expectation
from mixvi._first._engine import ladder
from mixvi._laplace import laplace
from mixvi._target import prepare
from targets import logistic, logistic_data, no_tilt

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


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def bound_of(family, data=None, memory=2**30, n=64):
    data = data or logistic_data(60, DIM)
    target, start = prepare(logistic, np.zeros(DIM), data, np.dtype(np.float64))
    found = laplace(target, jnp.asarray(start))
    z = jnp.asarray(mixvi.Matched(n).make(0, DIM))
    return make_bound(target, found, z, family, memory)


def make_bound(target, found, z, family, memory=2**30):
    over = expectation(target, z, memory)
    return Bound(target, found.mode, family.root(found), no_tilt(z.shape[1]), over, family)


def some_params(family, seed=0):
    bound = bound_of(family)
    phi = family.starts(bound.root, jnp.eye(DIM), 0.3 * jnp.ones((DIM, DIM)))[-1]
    rng = np.random.default_rng(seed)
    return jnp.concatenate([jnp.zeros(DIM), phi]) + 0.1 * rng.standard_normal(DIM + phi.size)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_apply_after_and_log_det_are_of_one_matrix(family):
    phi = some_params(family)[DIM:]
    columns = jax.vmap(lambda e: family.apply(phi, e))(jnp.eye(DIM)).T
    np.testing.assert_allclose(family.after(jnp.eye(DIM), phi), columns, atol=1e-12)
    left = jnp.asarray(np.random.default_rng(1).standard_normal((DIM, DIM)))
    np.testing.assert_allclose(family.after(left, phi), left @ columns, atol=1e-12)
    assert float(family.log_det(phi, DIM)) == pytest.approx(np.linalg.slogdet(columns)[1])


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.poorer], ids=str)
def test_first_start_is_the_poorer_family_exactly(family):
    """The same matrix, so the same bound on the same draws: nesting is exact."""
    poorer = ladder(family)[-2]
    params = some_params(poorer)
    a = poorer.after(jnp.eye(DIM), params[DIM:])
    bound = bound_of(family)
    phi = family.starts(bound.root, a, jnp.zeros_like(a))[0]
    np.testing.assert_allclose(family.after(jnp.eye(DIM), phi), a, atol=1e-14)
    here = bound.elbo(jnp.concatenate([params[:DIM], phi]))
    assert float(here) == pytest.approx(float(bound_of(poorer).elbo(params)), abs=1e-10)


def test_paper_starts_of_the_mean_field():
    family = mixvi.MeanField(start="small")
    bound = bound_of(family)
    phi = family.starts(bound.root, jnp.eye(DIM), jnp.eye(DIM))[0]
    np.testing.assert_allclose(family.after(bound.root.matrix, phi), 1e-2 * np.ones(DIM))
    wide = mixvi.MeanField()
    phi = wide.starts(bound.root, jnp.eye(DIM), jnp.eye(DIM))[0]
    np.testing.assert_allclose(wide.after(bound.root.matrix, phi), bound.root.matrix)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_gradient_and_product_against_finite_differences(family):
    bound, params = bound_of(family), some_params(family)
    value, gradient = bound.loss_and_grad(params)
    assert float(value) == pytest.approx(-float(bound.elbo(params)), rel=1e-12)
    rng = np.random.default_rng(2)
    for _ in range(3):
        v = jnp.asarray(rng.standard_normal(params.size))
        h = 1e-5
        up, down = bound.loss_and_grad(params + h * v), bound.loss_and_grad(params - h * v)
        assert float(gradient @ v) == pytest.approx(float(up[0] - down[0]) / (2 * h), rel=1e-6)
        np.testing.assert_allclose(
            bound.loss_product(params, v), (up[1] - down[1]) / (2 * h), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("family", [mixvi.EigenScale(), mixvi.FullRank()], ids=str)
def test_chunks_change_nothing(family):
    whole, params = bound_of(family), some_params(family)
    for memory in (1, 200_000):
        parts = bound_of(family, memory=memory)
        assert parts.over.z.shape[0] > 1
        for a, b in zip(whole.loss_and_grad(params), parts.loss_and_grad(params), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
        assert float(whole.elbo(params)) == pytest.approx(float(parts.elbo(params)), rel=1e-12)


def test_fisher_information_of_phi_is_the_identity_at_the_start():
    """On a standard normal target the Hessian of the loss at A = I is I in every coordinate."""
    target, start = prepare(lambda w: -0.5 * w @ w, np.zeros(3), None, np.dtype(np.float64))
    found = laplace(target, jnp.asarray(start))
    z = jnp.asarray(mixvi.Matched(400).make(0, 3))
    for family in (mixvi.MeanOnly(), mixvi.EigenScale(), mixvi.FullRank(), mixvi.MeanField()):
        bound = make_bound(target, found, z, family)
        n_phi = family.starts(bound.root, jnp.eye(3), jnp.eye(3)).shape[1]
        hessian = jax.hessian(lambda p: -bound.elbo(p))(jnp.zeros(3 + n_phi))  # noqa: B023
        np.testing.assert_allclose(hessian, np.eye(3 + n_phi), atol=1e-9)


def test_root_gradient_against_finite_differences():
    bound = bound_of(mixvi.FullRank())
    a = jnp.eye(DIM) + 0.1 * jnp.asarray(np.random.default_rng(5).standard_normal((DIM, DIM)))
    m = 0.2 * jnp.ones(DIM)
    z = mixvi.Matched(64).make(0, DIM)

    def elbo(a):
        points = bound.anchor + (m + z @ a.T) @ bound.root.matrix.T
        return jax.vmap(bound.target)(points).mean() + jnp.linalg.slogdet(a)[1]

    found = bound.root_gradient(m, a, jnp.zeros(0))
    np.testing.assert_allclose(found, jax.grad(elbo)(a), rtol=1e-9, atol=1e-9)


def test_ladder():
    assert [f.name for f in ladder(mixvi.FullRank())] == ["mu", "eig", "full"]
    assert [f.name for f in ladder(mixvi.LowRank())] == ["mu", "lr"]
    assert [f.name for f in ladder(mixvi.MeanField())] == ["diag"]
