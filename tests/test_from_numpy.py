"""Models that are not JAX give what the same models in JAX give."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import mixvi
from targets import GaussianTarget, logistic, logistic_data

DIM = 4


def fun_and_grad(w, data):
    assert isinstance(w, np.ndarray)
    assert w.dtype == np.float64
    x, sign = data
    assert isinstance(x, np.ndarray)
    along = sign * (x @ w)
    value = -np.logaddexp(0.0, -along).sum() - 0.5 * w @ w
    return value, x.T @ (sign * special.expit(-along)) - w


def hessian(w, data):
    x, sign = data
    share = special.expit(sign * (x @ w))
    return -(x.T * (share * (1 - share))) @ x - np.eye(len(w))


@pytest.fixture(scope="module")
def data():
    return logistic_data(dim=DIM)


@pytest.mark.parametrize("family", ["laplace", "mu", "eig", "full"])
def test_the_same_as_in_jax(family, data):
    reference = mixvi.fit(logistic, np.zeros(DIM), family, data)
    plain = mixvi.fit(mixvi.from_numpy(fun_and_grad), np.zeros(DIM), family, data)
    np.testing.assert_allclose(plain.flat_mean, reference.flat_mean, atol=1e-7)
    np.testing.assert_allclose(plain.cov, reference.cov, atol=1e-7)
    assert plain.elbo.value == pytest.approx(reference.elbo.value, abs=1e-7)
    assert plain.verdict == reference.verdict
    exact = mixvi.fit(mixvi.from_numpy(fun_and_grad, hessian), np.zeros(DIM), family, data)
    np.testing.assert_allclose(exact.flat_mean, reference.flat_mean, atol=1e-10)
    np.testing.assert_allclose(exact.cov, reference.cov, atol=1e-10)


def test_optimisers_that_take_hessian_products(data):
    reference = mixvi.fit(logistic, np.zeros(DIM), data=data, optimiser="scg")
    plain = mixvi.fit(mixvi.from_numpy(fun_and_grad), np.zeros(DIM), data=data, optimiser="scg")
    assert plain.stats["products"] > 0
    np.testing.assert_allclose(plain.flat_mean, reference.flat_mean, atol=1e-6)


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_a_quadratic_target_exactly(shift):
    target = GaussianTarget.make(3, 100.0)
    centre = target.mean + shift

    def quadratic(w):
        away = target.precision @ (w - centre)
        return target.data[2] - 0.5 * (w - centre) @ away, -away

    post = mixvi.laplace(mixvi.from_numpy(quadratic), np.zeros(3))
    np.testing.assert_allclose(post.mean, centre, atol=1e-6)
    np.testing.assert_allclose(post.cov, target.cov, rtol=1e-6, atol=1e-6)
    assert post.log_evidence == pytest.approx(target.log_z, abs=1e-6)


def test_derivatives(data):
    """Value, gradient and Hessian, batched and not, against automatic differentiation."""
    plain = mixvi.from_numpy(fun_and_grad)
    with jax.enable_x64(True):
        points = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, DIM)))
        for make in (lambda f: f, jax.grad, lambda f: jax.jacfwd(jax.grad(f))):
            ours, theirs = (
                jax.jit(jax.vmap(jax.vmap(make(lambda w, f=f: f(w, data)))))(points)
                for f in (plain, logistic)
            )
            np.testing.assert_allclose(ours, theirs, atol=2e-8)


def test_pytrees_and_scalars():
    def pair(w):
        assert set(w) == {"a", "b"}
        value = -0.5 * ((w["a"] - 1) ** 2).sum() - 0.5 * (w["b"] / 2) ** 2
        return value, {"a": 1 - w["a"], "b": -w["b"] / 4}

    post = mixvi.fit(mixvi.from_numpy(pair), {"a": np.zeros((2, 2)), "b": 1.0})
    np.testing.assert_allclose(post.mean["a"], 1.0, atol=1e-7)
    assert float(post.std["b"]) == pytest.approx(2.0, abs=1e-7)

    def one(w):
        return -0.5 * (w - 3.0) ** 2, [3.0 - w][0]

    assert float(mixvi.laplace(mixvi.from_numpy(one), 0.0).mean) == pytest.approx(3.0)


def test_inside_another_function_and_with_constraints():
    """An exponential of rate 2 in NumPy and a prior in JAX: gamma(3, 3) in closed form."""
    rate = mixvi.from_numpy(lambda x: (-2.0 * x.sum(), np.full(x.shape, -2.0)))

    def log_density(x):
        return rate(x) + (2 * jnp.log(x) - x).sum()

    post = mixvi.laplace(log_density, np.ones(2), constraints={"w": "positive"})
    np.testing.assert_allclose(post.flat_mean, 0.0, atol=1e-8)  # x = 3 / 3
    np.testing.assert_allclose(post.cov, np.eye(2) / 3, atol=1e-8)


@pytest.mark.parametrize("strategy", ["loop", "map", "vmap"])
def test_many(strategy):
    centres = np.array([[0.0, 1.0], [5.0, 2.0], [9.0, 9.0]])
    normal = mixvi.from_numpy(lambda w, c: (-0.5 * ((w - c) ** 2).sum(), c - w))
    posts = mixvi.fit_many(normal, np.zeros(2), data=centres, strategy=strategy)
    np.testing.assert_allclose(posts.mean, centres, atol=1e-7)


def test_float32(data):
    function = mixvi.from_numpy(fun_and_grad)
    post = mixvi.fit(function, np.zeros(DIM), "eig", data, dtype="float32")
    reference = mixvi.fit(logistic, np.zeros(DIM), "eig", data)
    assert post.flat_mean.dtype == np.float32
    np.testing.assert_allclose(post.flat_mean, reference.flat_mean, atol=1e-3)


def test_integers_and_the_flag_of_jax():
    """64-bit integers and floats arrive whole, whatever the flag is where the callback runs."""
    big = 2**40 + 1

    def counted(w, data):
        assert data["n"].dtype == np.int64
        assert data["n"].item() == big
        assert data["x"].item() == 1 + 2**-50
        return -0.5 * w @ w, -w

    mixvi.laplace(mixvi.from_numpy(counted), np.ones(1), {"n": np.array(big), "x": 1 + 2**-50})
    assert not jax.config.jax_enable_x64


def test_the_same_functions_do_not_compile_anew(data):
    from mixvi import _engine

    mixvi.laplace(mixvi.from_numpy(fun_and_grad), np.zeros(DIM), data, diagnostics=False)
    before = _engine.LAPLACE.one._cache_size()
    mixvi.laplace(mixvi.from_numpy(fun_and_grad), np.ones(DIM), data, diagnostics=False)
    assert _engine.LAPLACE.one._cache_size() == before


# --- sentences --------------------------------------------------------------------------------


def returns(value=0.0, gradient=None):
    return mixvi.from_numpy(lambda w: (value, np.zeros(2) if gradient is None else gradient))


def normal(w):
    return -0.5 * w @ w, -w


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mixvi.from_numpy(3.0), "fun_and_grad must be a function of the parameters"),
        (lambda: mixvi.from_numpy(normal, np.eye(2)), "hessian must be a function"),
        (lambda: mixvi.from_numpy(lambda w: 0.0), "must return two things"),
        (lambda: returns(value=None), "the value is NoneType at w = [0, 0]"),
        (lambda: returns(value="no"), "the value is str"),
        (lambda: returns(value=np.zeros(3)), "the value has shape (3,) at w = [0, 0]; it must be"),
        (lambda: returns(gradient=np.zeros(3)), "gradient has shape (3,) and the parameters (2,)"),
        (lambda: returns(gradient=np.array(["a", "b"])), "the gradient is <U1 at w = [0, 0]"),
        (lambda: mixvi.from_numpy(normal, lambda w: np.eye(3)), "the Hessian has shape (3, 3)"),
    ],
)
def test_sentences(call, words):
    with pytest.raises(mixvi.InputError) as said:
        mixvi.fit(call(), np.zeros(2))
    assert words in str(said.value)


def test_a_gradient_of_another_form():
    def pair(w):
        return -0.5 * w["a"] ** 2, {"b": -w["a"]}

    with pytest.raises(mixvi.InputError, match="does not have the form of the parameters"):
        mixvi.fit(mixvi.from_numpy(pair), {"a": 0.0})


@dataclasses.dataclass(frozen=True)
class Fails:
    """Raises from its n-th call on; counts them."""

    n: int
    calls: list = dataclasses.field(default_factory=list, compare=False)

    def __call__(self, w):
        self.calls.append(w.copy())
        if len(self.calls) >= self.n:
            raise np.linalg.LinAlgError("not positive definite")
        return normal(w)


@pytest.mark.parametrize("n", [1, 4, 300])
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_the_function_raises_reaches_the_user(n, wrapped, capfd):
    fails = Fails(n)
    density = inner = mixvi.from_numpy(fails)
    if wrapped:

        def density(w):
            return inner(w) - w[0] ** 2

    said = r"fun_and_grad raised LinAlgError at w = \[.*\]: not positive definite"
    with pytest.raises(mixvi.InputError, match=said) as caught:
        mixvi.fit(density, np.ones(2), throw=False)
    assert isinstance(caught.value.__cause__, np.linalg.LinAlgError)
    assert f"{fails.calls[-1][0]:.6g}" in str(caught.value)
    assert len(fails.calls) == n  # not called again
    assert capfd.readouterr().err == ""
    # The next fit knows nothing of it.
    assert mixvi.laplace(mixvi.from_numpy(normal), np.ones(2)).converged


def test_not_a_number_at_the_start():
    with pytest.raises(mixvi.NonFiniteError, match=r"log density is nan at the start \(w\[0\]=0"):
        mixvi.fit(returns(value=np.nan), np.zeros(2))
    with pytest.raises(mixvi.NonFiniteError, match=r"gradient .* not finite at the start, in w\[1"):
        mixvi.fit(returns(gradient=np.array([0.0, np.nan])), np.zeros(2))


def test_no_density_beyond_a_wall_is_said_like_that_of_any_other():
    def half(w):
        return normal(w) if w[0] > -1 else (-np.inf, np.zeros(1))

    post = mixvi.laplace(mixvi.from_numpy(half), np.ones(1))
    assert post.verdict.startswith("Do not trust")
    assert post.judged.diagnosis.n_non_finite > 0


def test_hyperparameters_are_refused():
    scaled = mixvi.from_numpy(lambda w, h: (-0.5 * np.exp(h) * w @ w, -np.exp(h) * w))
    with pytest.raises(mixvi.InputError, match="leave hyper= out"):
        mixvi.fit(scaled, np.ones(2), hyper=0.0)
    inner = mixvi.from_numpy(normal)
    with pytest.raises(mixvi.InputError, match="third derivatives"):
        mixvi.laplace(lambda w, h: inner(jnp.exp(h) * w) + 2 * h - h**2, np.ones(2), hyper=0.0)
