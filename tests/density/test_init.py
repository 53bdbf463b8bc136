"""What `init` may hold: real numbers vary, all else is a constant in its place."""

import dataclasses
import pickle
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi import metrics
from mixvi._density._structure import parameters

X = np.linspace(-1, 1, 20)
Y = 0.5 + 2 * X


class Line(eqx.Module):
    """With one of everything that is not a parameter."""

    slope: jax.Array
    offset: jax.Array
    index: Any
    activation: Any
    power: int = 1
    name: str = "line"
    active: bool = True
    nothing: Any = None
    scale: float = eqx.field(static=True, default=1.0)

    def __call__(self, x):
        assert self.name == "line"
        assert self.active is True
        assert self.nothing is None
        return self.activation(self.slope[self.index].sum() * x**self.power + self.offset)


def line(index=(1,), activation=lambda x: x):
    return Line(jnp.zeros(2), jnp.zeros(()), np.array(index), activation)


def log_density(w, data):
    residuals = data["y"] - w(data["x"])
    return -0.5 * (residuals**2).sum() - 0.5e-6 * (w.slope @ w.slope)


DATA = {"x": X, "y": Y}


def test_a_module_with_constants():
    init = line()
    post = mixvi.fit(log_density, init, DATA, family="laplace")
    assert post.names == ("slope[0]", "slope[1]", "offset")
    np.testing.assert_allclose(post.mean.slope, [0, 2], atol=1e-5)
    np.testing.assert_allclose(post.mean.offset, 0.5, atol=1e-5)
    draws = post.sample(0, 7)
    assert draws.slope.shape == (7, 2)
    for tree in (post.mean, post.std, draws, post.importance_weights().draws):
        assert isinstance(tree, Line)
        assert tree.activation is init.activation
        assert (tree.power, tree.name, tree.active, tree.nothing) == (1, "line", True, None)
        np.testing.assert_array_equal(tree.index, [1])
    assert post.log_prob(draws).shape == (7,)
    np.testing.assert_allclose(post.whiten(post.mean), 0, atol=1e-12)


def test_a_network_of_equinox():
    def fits(network, data):
        leaves = jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array))
        predicted = jax.vmap(network)(data["x"][:, None])[:, 0]
        prior = sum((leaf**2).sum() for leaf in leaves)
        return -5 * ((data["y"] - predicted) ** 2).sum() - 0.5 * prior

    network = eqx.nn.MLP(1, 1, 2, 1, activation=jnp.tanh, key=jax.random.key(0))
    post = mixvi.laplace(fits, network, DATA)
    assert post.names[0] == "layers[0].weight[0,0]"
    assert post.mean.activation is jnp.tanh
    value = jax.vmap(post.mean)(X[:, None])[:, 0]
    assert np.abs(value - Y).max() < 0.4


def test_no_constant_is_stale():
    """Compiled code holds constants; other ones are other code."""

    def slopes(index, activation=lambda x: x):
        return (
            mixvi.laplace(log_density, line(index, activation), DATA).mean.slope.round(3).tolist()
        )

    assert slopes([1]) == [0, 2]
    assert slopes([0]) == [2, 0]
    assert slopes([1]) == [0, 2]
    assert slopes([0, 0]) == [1, 0]
    index = np.array([1, 1])
    init = eqx.tree_at(lambda w: w.index, line(), index)
    before = mixvi.laplace(log_density, init, DATA)
    assert before.mean.slope.round(3).tolist() == [0, 1]
    index[:] = 0  # in place
    np.testing.assert_array_equal(before.mean.index, [1, 1])
    assert mixvi.laplace(log_density, init, DATA).mean.slope.round(3).tolist() == [1, 0]
    assert slopes([1, 1]) == [0, 1]
    factor = 1.0

    def times(x):
        return factor * x

    assert slopes([1], times) == [0, 2]
    factor = 2.0
    assert slopes([1], times) == [0, 1]
    held = {"a": 0.0, "s": {1}}  # a set cannot be hashed

    def of_set(w):
        return -((w["a"] - len(w["s"])) ** 2)

    assert round(float(mixvi.laplace(of_set, held).mean["a"]), 6) == 1
    held["s"].add(2)
    assert round(float(mixvi.laplace(of_set, held).mean["a"]), 6) == 2


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_an_array_in_a_static_field():
    """Such modules cannot be compared."""

    class Shifted(eqx.Module):
        w: jax.Array
        shift: np.ndarray = eqx.field(static=True)

    def log_density(w):
        return -((w.w - w.shift) ** 2).sum()

    for shift in (1.0, 2.0, 1.0):
        post = mixvi.laplace(log_density, Shifted(jnp.zeros(2), np.full(2, shift)))
        np.testing.assert_allclose(post.mean.w, shift)


def doubled(x):
    return jnp.multiply(x, 2)


def test_pickled():
    init = {"a": 1.0, "f": doubled, "n": np.arange(3)}
    post = mixvi.laplace(lambda w: -(w["f"](w["a"]) ** 2), init)
    again = pickle.loads(pickle.dumps(post))
    assert again.structure == post.structure
    assert again.mean["f"] is doubled


def test_true_is_not_one():
    def log_density(w):
        return -((w["a"] - (3.0 if w["b"] is True else 1.0)) ** 2)

    class Box(eqx.Module):
        a: float
        b: Any

        def __getitem__(self, name):
            return getattr(self, name)

    found = [mixvi.laplace(log_density, Box(0.0, b)).mean.a for b in (1, True, 1)]
    np.testing.assert_allclose(found, [1, 3, 1])


@pytest.mark.parametrize("leaf", [jax.random.key(3), np.datetime64("2020-01-01"), object(), print])
def test_any_object_is_a_constant(leaf):
    post = mixvi.laplace(lambda w: -(w["a"] ** 2) + 0.0 * (w["b"] is None), {"a": 1.0, "b": leaf})
    assert post.names == ("a",)
    assert post.mean["b"] is leaf


def test_numpy_functions_get_constants_too():
    def fun_and_grad(w):
        w["a"] *= w["times"](2)
        return -0.5 * w["a"] @ w["a"], {"a": -2 * w["a"], "n": None, "times": None}

    init = {"a": np.ones(2), "n": np.arange(3), "times": lambda x: x}
    post = mixvi.laplace(mixvi.from_numpy(fun_and_grad), init)
    np.testing.assert_allclose(post.std["a"], 0.5, rtol=1e-6)
    np.testing.assert_array_equal(post.mean["n"], [0, 1, 2])


def test_constraints_by_name():
    def log_density(w):
        return w["n"] * jnp.log(w["rate"]) - w["rate"] - 0.5 * w["b"] ** 2

    init = {"n": np.array([3]), "rate": np.array([1.0]), "b": 0.0, "call": jnp.sum}
    constraints = {"rate": "positive"}
    post = mixvi.laplace(lambda w: log_density(w).sum(), init, constraints=constraints)
    assert post.names == ("b", "log rate[0]")
    np.testing.assert_allclose(np.exp(post.flat_mean[1]), 4.0)
    draws = post.sample(0, 5)
    assert draws["rate"].shape == (5, 1)
    assert draws["call"] is jnp.sum
    assert post.log_prob(draws).shape == (5,)
    with pytest.raises(mixvi.InputError, match=r"n is a constant"):
        mixvi.laplace(lambda w: log_density(w).sum(), init, constraints={"n": "positive"})


def test_warm_starts_files_and_many(tmp_path):
    init = line()
    post = mixvi.laplace(log_density, init, DATA)
    assert "0 Newton steps" in mixvi.laplace(log_density, post, DATA).status
    batch = {"x": np.stack([X, X]), "y": np.stack([Y, -Y])}
    posts = mixvi.fit_many(log_density, init, batch, family="laplace")
    np.testing.assert_allclose(posts.mean.slope[:, 1], [2, -2], atol=1e-5)
    assert posts.sample(0, 3).slope.shape == (2, 3, 2)
    assert posts.mean.activation is init.activation
    np.testing.assert_array_equal(posts.mean.index, [1])
    own = eqx.tree_at(lambda w: (w.slope, w.offset), init, (np.ones((2, 2)), np.ones(2)))
    again = mixvi.fit_many(log_density, own, batch, family="laplace", init_batched=True)
    np.testing.assert_allclose(again.mean.slope, posts.mean.slope, atol=1e-6)
    np.testing.assert_array_equal(again.mean.index, [1])
    loaded = mixvi.load(post.save(tmp_path / "module"))
    assert list(loaded.mean) == ["slope", "offset"]
    simple = mixvi.laplace(lambda w: -(w["a"] ** 2), {"a": 1.0, "f": [print, "text"]})
    loaded = mixvi.load(simple.save(tmp_path / "dict"))
    assert loaded.mean["f"] == [None, None]
    assert loaded.sample(0, 3)["a"].shape == (3,)


def test_screens_and_scores():
    def log_density(w, log_alpha, y):
        prior = -0.5 * jnp.exp(log_alpha) * w["w"] ** 2 + 0.5 * log_alpha
        return (w["f"](-0.5 * (y - w["w"]) ** 2) + prior).sum()

    y = np.array([2.0, -1.0, 3.0, 0.5])
    init = {"w": np.zeros(4), "f": lambda x: x}
    found = mixvi.screen(log_density, init, [-6, 0, 6], y, steps=30)
    assert abs(np.exp(-found.hyper) - ((y**2).mean() - 1)) < 1e-3
    assert found.mode["f"] is init["f"]
    post = mixvi.laplace(lambda w: -0.5 * w["f"](w["w"] ** 2).sum(), init)
    draws = post.sample(0, 500)
    scores = metrics.log_predictive_density(lambda w, y: w["f"](y * 0 + w["w"][0]), draws, y)
    plain = metrics.log_predictive_density(lambda w, y: y * 0 + w[0], draws["w"], y)
    assert scores.joint == plain.joint


# --- integers -----------------------------------------------------------------------------------


class Pair(NamedTuple):
    a: Any
    b: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Fields:
    a: Any
    b: Any

    def __post_init__(self):
        assert not isinstance(self.a, str)


@pytest.mark.parametrize(
    ("init", "vary"),
    [
        (0, [True]),
        (np.zeros(3, int), [True]),
        ({"a": 0, "b": [0, 0]}, [True, True, True]),
        ({"a": 0, "b": np.arange(3)}, [True, True]),
        ({"a": 0, "b": True}, [True, False]),
        (Fields(0, 1), [True, True]),
        ({"a": 0, "b": 0.5}, [True, True]),
        ({"a": [0, 0], "b": 0.5}, [True, True, True]),
        (Pair(0, 0.5), [True, True]),
        (Pair(np.int64(0), np.array(0.5)), [True, True]),
        ({"a": np.arange(3), "b": 0.5}, [False, True]),
        ({"a": jnp.arange(3), "b": 0.5}, [False, True]),
        ({"a": np.array([True]), "b": 0.5, "c": False}, [False, True, False]),
        (Fields(0, 0.5), [False, True]),
        (Fields([0, 0], 0.5), [False, False, True]),
        ({"a": jnp.zeros(2, jnp.bfloat16), "b": np.arange(2)}, [True, False]),
    ],
)
def test_which_integers_are_parameters(init, vary):
    assert [array is not None for array in parameters(init)] == vary


def test_integers_start_a_fit():
    def log_density(w):
        return -0.5 * (w["a"] - 0.5) ** 2 - 0.5 * ((jnp.stack(w["b"]) - 2.5) ** 2).sum()

    post = mixvi.fit(log_density, {"a": 0, "b": [0, 0]})
    assert post.names == ("a", "b[0]", "b[1]")
    np.testing.assert_allclose(post.flat_mean, [0.5, 2.5, 2.5])
    np.testing.assert_allclose(mixvi.fit(lambda w: -((w - 0.5) ** 2), 0).mean, 0.5)
    learnt = mixvi.laplace(lambda w, h: -((w - 0.5) ** 2) - (h - 2.5) ** 2, 0, hyper=1)
    np.testing.assert_allclose(learnt.hyper, 2.5, rtol=1e-4)


def test_batched_integers():
    centres = np.array([[0.5, 1.5], [2.5, 3.5]])
    posts = mixvi.fit_many(
        lambda w, c: -((w - c) ** 2).sum(), np.ones((2, 2), int), centres, init_batched=True
    )
    np.testing.assert_allclose(posts.mean, centres)


# --- what is refused ----------------------------------------------------------------------------


@dataclasses.dataclass
class Unknown:
    a: float


@pytest.mark.parametrize(
    ("init", "says"),
    [
        (Unknown(0.0), "decorate Unknown with @jax.tree_util.register_dataclass"),
        ({"a": 1.0, "b": Unknown(0.0)}, "b is a dataclass that JAX does not know"),
        (True, "init must be real numbers, or a pytree that holds some; w is bool"),
        ({"a": "text", "b": print}, "a is str, b is builtin_function_or_method"),
        ({"a": 0.0, "b": 1j}, "b has type complex128"),
        ({"a": 0.0, "b": np.array([1, None])}, "b is ndarray .array type object., not numbers"),
        ({"a": 0.0, "b": np.ma.masked_equal([0, 1], 0)}, "b is a masked array"),
    ],
)
def test_refused(init, says):
    with pytest.raises(mixvi.InputError, match=says):
        mixvi.laplace(lambda w: 0.0, init)


def test_hyperparameters_are_all_numbers():
    with pytest.raises(mixvi.InputError, match="hyper must be real numbers; b is str"):
        mixvi.laplace(lambda w, h: -(w**2), 0.0, hyper={"a": 0.0, "b": "text"})
