"""Models that are not JAX give what the same models in JAX give."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from test_bounds_numpy import nothing_traced_or_compiled

import mixvi
from mixvi._density._numpy import AT_ONCE, HYPER_REFUSED, NumpyDensity
from mixvi._density._structure import flatten
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


def many_at_once(w, data):
    x, sign = data
    along = sign * (w @ x.T)
    values = -np.logaddexp(0.0, -along).sum(1) - 0.5 * (w**2).sum(1)
    return values, (sign * special.expit(-along)) @ x - w


@pytest.fixture(scope="module")
def data():
    return logistic_data(dim=DIM)


def density_of(function, init, data=None):
    structure, _ = flatten(init, np.dtype(np.float64))
    return NumpyDensity(function, structure, data, data is not None)


def points(n=7, dim=DIM):
    return np.random.default_rng(0).standard_normal((n, dim))


# --- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["laplace", "mu", "eig", "full"])
def test_the_same_as_in_jax(family, data):
    reference = mixvi.fit(logistic, np.zeros(DIM), family=family, data=data)
    plain = mixvi.fit(mixvi.from_numpy(fun_and_grad), np.zeros(DIM), family=family, data=data)
    np.testing.assert_allclose(plain.flat_mean, reference.flat_mean, atol=1e-7)
    np.testing.assert_allclose(plain.cov, reference.cov, atol=1e-7)
    assert plain.elbo.value == pytest.approx(reference.elbo.value, abs=1e-7)
    assert plain.verdict == reference.verdict
    exact = mixvi.fit(
        mixvi.from_numpy(fun_and_grad, hessian), np.zeros(DIM), family=family, data=data
    )
    np.testing.assert_allclose(exact.flat_mean, reference.flat_mean, atol=1e-10)
    np.testing.assert_allclose(exact.cov, reference.cov, atol=1e-10)


def test_optimisers_that_take_differences_of_gradients(data):
    reference = mixvi.fit(logistic, np.zeros(DIM), data=data, optimiser="scg")
    plain = mixvi.fit(mixvi.from_numpy(fun_and_grad), np.zeros(DIM), data=data, optimiser="scg")
    assert plain.stats.optimiser == "scg"
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


@pytest.mark.parametrize("given", [(fun_and_grad,), (fun_and_grad, hessian)])
def test_derivatives(given, data):
    """Value, gradient, Hessian and products against automatic differentiation."""
    density = density_of(mixvi.from_numpy(*given), np.zeros(DIM), data)
    at, v = points(), np.array([1.0, -2.0, 0.0, 3.0])

    def traced(w):
        return logistic(w, data)

    with jax.enable_x64(True):
        every = jax.vmap(lambda w: (traced(w), jax.grad(traced)(w), jax.hessian(traced)(w)))
        exact = [np.asarray(one) for one in jax.jit(every)(at)]
    values, gradients = density.gradients(at)
    np.testing.assert_allclose(values, exact[0], rtol=1e-13)
    np.testing.assert_array_equal(density.values(at), values)
    np.testing.assert_allclose(gradients, exact[1], atol=1e-12)
    tol = 1e-12 if len(given) == 2 else 2e-8
    for w, value, gradient, curved in zip(at, *exact, strict=True):
        for answer, wanted in (
            (density.curvature(w), curved),
            (density.product(w, v), curved @ v),
        ):
            assert answer[0] == pytest.approx(float(value), rel=1e-13)
            np.testing.assert_allclose(answer[1], gradient, atol=1e-12)
            np.testing.assert_allclose(answer[2], wanted, atol=tol)


def test_a_hessian_is_made_symmetric():
    function = mixvi.from_numpy(normal, lambda w: np.array([[-1.0, 0.2], [0.0, -1.0]]))
    _, _, curved = density_of(function, np.zeros(2)).curvature(np.zeros(2))
    np.testing.assert_array_equal(curved, [[-1.0, 0.1], [0.1, -1.0]])


@pytest.mark.parametrize("family", ["laplace", "eig", "full"])
def test_many_at_once_are_as_one_by_one(family, data):
    one, many = mixvi.from_numpy(fun_and_grad), mixvi.from_numpy(many_at_once, batched=True)
    at = points(2 * AT_ONCE + 5)
    for ours, theirs in zip(
        density_of(many, np.zeros(DIM), data).gradients(at),
        density_of(one, np.zeros(DIM), data).gradients(at),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    a, b = (
        mixvi.fit(function, np.zeros(DIM), family=family, data=data) for function in (one, many)
    )
    np.testing.assert_allclose(a.flat_mean, b.flat_mean, atol=1e-9)
    np.testing.assert_allclose(a.cov, b.cov, atol=1e-9)


def pair(w):
    assert set(w) == {"a", "b"}
    value = -0.5 * ((w["a"] - 1) ** 2).sum() - 0.5 * (w["b"] / 2) ** 2
    return value, {"a": 1 - w["a"], "b": -w["b"] / 4}


def test_how_many_go_into_one_call():
    shapes = []

    def pairs(w):
        shapes.append((w["a"].shape, w["b"].shape))
        values = -0.5 * ((w["a"] - 1) ** 2).sum((1, 2)) - 0.5 * (w["b"] / 2) ** 2
        return values, {"a": 1 - w["a"], "b": -w["b"] / 4}

    init = {"a": np.zeros((2, 2)), "b": 1.0}
    many = density_of(mixvi.from_numpy(pairs, batched=True), init)
    at = points(AT_ONCE + 3, 5)
    values, gradients = many.gradients(at)
    assert shapes == [((n, 2, 2), (n,)) for n in (AT_ONCE, 3)]
    one = density_of(mixvi.from_numpy(pair), init).gradients(at[-4:])
    np.testing.assert_allclose(values[-4:], one[0], rtol=1e-14)
    np.testing.assert_array_equal(gradients[-4:], one[1])
    assert many.curvature(at[0])[2] == pytest.approx(np.diag([-1.0] * 4 + [-0.25]), abs=1e-9)
    assert many.gradients(at[:0])[1].shape == (0, 5)


def test_the_hessian_of_one_point_beside_many_gradients(data):
    def one_point(w, data):
        assert w.shape == (DIM,)
        return hessian(w, data)

    function = mixvi.from_numpy(many_at_once, one_point, batched=True)
    ours = density_of(function, np.zeros(DIM), data).curvature(points()[0])
    exact = density_of(mixvi.from_numpy(fun_and_grad, hessian), np.zeros(DIM), data)
    for one, other in zip(ours, exact.curvature(points()[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_pytrees_and_scalars():
    post = mixvi.fit(mixvi.from_numpy(pair), {"a": np.zeros((2, 2)), "b": 1.0})
    np.testing.assert_allclose(post.mean["a"], 1.0, atol=1e-7)
    assert float(post.std["b"]) == pytest.approx(2.0, abs=1e-7)

    def one(w):
        return -0.5 * (w - 3.0) ** 2, [3.0 - w][0]

    assert float(mixvi.laplace(mixvi.from_numpy(one), 0.0).mean) == pytest.approx(3.0)


@pytest.mark.parametrize("given", [(), (lambda x: np.diag(-2 / x**2),)])
def test_with_constraints(given):
    """Gamma(3, 3): in `u = log x` the mode is 0 and the curvature -3."""
    gamma = mixvi.from_numpy(lambda x: ((2 * np.log(x) - 3 * x).sum(), 2 / x - 3), *given)
    post = mixvi.laplace(gamma, np.full(2, 3.0), constraints={"w": "positive"})
    np.testing.assert_allclose(post.flat_mean, 0.0, atol=1e-8)  # x = 3 / 3
    np.testing.assert_allclose(post.cov, np.eye(2) / 3, atol=1e-8)
    np.testing.assert_allclose(post.mean, np.exp(1 / 6), atol=1e-8)


@pytest.mark.parametrize("strategy", ["loop", "map", "vmap"])
def test_many(strategy):
    centres = np.array([[0.0, 1.0], [5.0, 2.0], [9.0, 9.0]])
    normal = mixvi.from_numpy(lambda w, c: (-0.5 * ((w - c) ** 2).sum(), c - w))
    posts = mixvi.fit_many(normal, np.zeros(2), data=centres, strategy=strategy)
    np.testing.assert_allclose(posts.mean, centres, atol=1e-7)


def test_float32(data):
    function = mixvi.from_numpy(fun_and_grad)
    post = mixvi.fit(function, np.zeros(DIM), family="eig", data=data, dtype="float32")
    reference = mixvi.fit(logistic, np.zeros(DIM), family="eig", data=data)
    assert post.flat_mean.dtype == np.float32
    np.testing.assert_allclose(post.flat_mean, reference.flat_mean, atol=1e-3)


def test_integers_and_the_flag_of_jax():
    """64-bit integers and floats arrive whole, whatever the flag is."""
    big = 2**40 + 1

    def counted(w, data):
        assert w.dtype == np.float64
        assert data["n"].dtype == np.int64
        assert data["n"].item() == big
        assert data["x"].item() == 1 + 2**-50
        return -0.5 * w @ w, -w

    mixvi.laplace(mixvi.from_numpy(counted), np.ones(1), data={"n": np.array(big), "x": 1 + 2**-50})
    assert not jax.config.jax_enable_x64


def test_data_of_jax_come_as_numpy():
    seen = []

    def summed(w, data):
        seen.append(data)
        return -0.5 * w @ w, -w

    given = {"x": jnp.arange(3), "y": (np.ones(2), "text", 2.0), "z": None}
    density = density_of(mixvi.from_numpy(summed), np.ones(1), given)
    density.gradients(np.ones((2, 1)))
    assert all(isinstance(one["x"], np.ndarray) for one in seen)
    assert seen[0]["x"] is seen[1]["x"]  # taken over once
    assert seen[0]["y"][0] is given["y"][0]
    assert seen[0]["y"][1] == "text"
    assert seen[0]["z"] is None


@pytest.mark.parametrize("batched", [False, True])
def test_what_is_written_into_the_argument_spoils_nothing(batched):
    def careless(w):
        answer = -0.5 * (w**2).sum(-1), -w
        w += 1
        return answer

    density = density_of(mixvi.from_numpy(careless, batched=batched), np.zeros(2))
    at = points(3, 2)
    before = at.copy()
    _, gradients = density.gradients(at)
    np.testing.assert_array_equal(at, before)
    np.testing.assert_array_equal(gradients, -before)


# --- no compiler ------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [False, True])
def test_nothing_is_compiled(bound, data, monkeypatch):
    """From the start to draws: neither tracing nor compiling."""

    def refuse(*_, **__):
        raise AssertionError("jax.jit was called")

    monkeypatch.setattr(jax, "jit", refuse)
    jax.clear_caches()
    options = {"constraints": {"w": mixvi.Interval(-50, 50)}} if bound else {}
    with nothing_traced_or_compiled():
        post = mixvi.fit(
            mixvi.from_numpy(fun_and_grad), np.zeros(DIM), family="eig", data=data, **options
        )
        post.mean, post.std, post.sample(0, 10), post.log_prob(post.mean), post.summary()


def test_what_is_captured_may_change():
    centre = [0.0]
    function = mixvi.from_numpy(lambda w: (-0.5 * (w - centre[0]) ** 2, centre[0] - w))
    for centre[0] in (1.0, 5.0):
        assert float(mixvi.laplace(function, 0.0).mean) == pytest.approx(centre[0], abs=1e-9)


# --- sentences --------------------------------------------------------------------------------


def returns(value=0.0, gradient=None):
    return mixvi.from_numpy(lambda w: (value, np.zeros(2) if gradient is None else gradient))


def many_return(value=None, gradient=None):
    def returned(w):
        return np.zeros(len(w)) if value is None else value, -w if gradient is None else gradient

    return mixvi.from_numpy(returned, batched=True)


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
        (lambda: many_return(np.zeros(3)), "the value has shape (3,) at w = [0, 0] (the first of"),
        (lambda: many_return(0.0), "with batched=True it must be ("),
        (lambda: many_return(gradient=np.zeros(2)), "gradient has shape (2,) and the parameters ("),
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


@pytest.mark.parametrize("n", [1, 4, 100])
@pytest.mark.parametrize("bound", [False, True])
def test_what_the_function_raises_reaches_the_user(n, bound, capfd):
    fails = Fails(n)
    options = {"constraints": {"w": mixvi.Interval(-50, 50)}} if bound else {}
    said = r"fun_and_grad raised LinAlgError at w = \[.*\]: not positive definite"
    with pytest.raises(mixvi.InputError, match=said) as caught:
        mixvi.fit(mixvi.from_numpy(fails), np.ones(2), throw=False, **options)
    assert isinstance(caught.value.__cause__, np.linalg.LinAlgError)
    assert f"{fails.calls[-1][0]:.6g}" in str(caught.value)
    # Not called again, but where the gradient is looked at: beside the start and at it.
    assert len(fails.calls) - n in (0, 2)
    assert capfd.readouterr().err == ""
    # The next fit knows nothing of it.
    assert mixvi.laplace(mixvi.from_numpy(normal), np.ones(2)).converged


def test_what_is_raised_for_many_points_or_by_the_hessian():
    def fails(w):
        raise KeyError("no")

    many = density_of(mixvi.from_numpy(fails, batched=True), np.ones(2))
    said = r"fun_and_grad raised KeyError at w = \[1, 1\] \(the first of 3 points\): 'no'"
    with pytest.raises(mixvi.InputError, match=said):
        many.gradients(np.ones((3, 2)))
    curved = density_of(mixvi.from_numpy(normal, fails), np.ones(2))
    with pytest.raises(mixvi.InputError, match=r"hessian raised KeyError at w = \[1, 1\]"):
        curved.curvature(np.ones(2))


def test_the_users_interrupt_passes():
    def interrupted(w):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mixvi.fit(mixvi.from_numpy(interrupted), np.ones(2))


def test_inside_a_function_of_jax_it_is_refused():
    inner = mixvi.from_numpy(normal)
    with pytest.raises(mixvi.InputError, match=r"inside one written with jax.numpy: pass from_num"):
        mixvi.fit(lambda w: inner(w) - w[0] ** 2, np.ones(2))


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
    with pytest.raises(mixvi.InputError, match="leave hyper= out") as said:
        mixvi.fit(scaled, np.ones(2), hyper=0.0)
    assert str(said.value) == HYPER_REFUSED
