"""Bad inputs and the sentence each of them gets; run as a script it prints them."""

import dataclasses
import json
import sys
import warnings

import jax.numpy as jnp
import numpy as np

import mixvi


def normal(w):
    return -0.5 * (w**2).sum()


def regression(w, data):
    return -0.5 * ((data["y"] - data["x"] @ w) ** 2).sum() - 0.5 * w @ w


def table(x=None, y=None):
    x = np.ones((5, 2)) if x is None else x
    return {"x": x, "y": np.zeros(5) if y is None else y}


def with_nan():
    x = np.ones((5, 2))
    x[3, 1] = np.nan
    return table(x)


def uses_numpy(w):
    return -0.5 * np.sum(np.asarray(w) ** 2)


def branches(w):
    return -0.5 * w[0] ** 2 if w[0] > 0 else -(w[0] ** 2)


class Column(list):
    def to_numpy(self):
        return np.array(self)


class Frame:
    """As little of a data frame as there can be."""

    def __init__(self, columns):
        self.columns, self._columns = list(columns), columns

    def __getitem__(self, name):
        return Column(self._columns[name])

    def to_numpy(self):
        return np.array([self._columns[name] for name in self.columns]).T


@dataclasses.dataclass
class Plain:
    a: float


W = np.zeros(2)

# What is wrong: (call, exception, words that must be in the sentence).
CASES = {
    "log density is not a function": (lambda: mixvi.fit(3.0, W), "InputError", "must be a function"),
    "log density returns a vector": (lambda: mixvi.fit(lambda w: -(w**2), W), "InputError", "shape (2,)"),
    "log density returns nothing": (lambda: mixvi.fit(lambda w: None, W), "InputError", "`return` missing"),
    "log density returns text": (lambda: mixvi.fit(lambda w: "no", W), "InputError", "returned str"),
    "log density returns a value and a trace": (
        lambda: mixvi.fit(lambda w: (normal(w), {"eta": w}), W),
        "InputError",
        "returned tuple; it must return one real number. Return the first of the 2 alone",
    ),
    "log density returns a dict": (
        lambda: mixvi.fit(lambda w: {"log_p": normal(w), "eta": w}, W),
        "InputError",
        "Return the entry that is the log density alone, one of 'log_p', 'eta'",
    ),
    "log density returns a complex number": (
        lambda: mixvi.fit(lambda w: normal(w) + 1j, W),
        "InputError",
        "complex",
    ),
    "log density written with numpy": (lambda: mixvi.fit(uses_numpy, W), "InputError", "jax.numpy"),
    "log density branches on a parameter": (lambda: mixvi.fit(branches, W), "InputError", "jnp.where"),
    "log density wants data, none given": (
        lambda: mixvi.fit(regression, W),
        "InputError",
        "raised TypeError",
    ),
    "shapes of parameters and data differ": (
        lambda: mixvi.fit(regression, np.zeros(3), data=table()),
        "InputError",
        "(3,)",
    ),
    "a key of the data is missing": (
        lambda: mixvi.fit(regression, W, data={"x": np.ones((5, 2))}),
        "InputError",
        "raised KeyError",
    ),
    "NaN in the data": (
        lambda: mixvi.fit(regression, W, data=with_nan()),
        "NonFiniteError",
        "data.x has 1 non-finite number, the first at [3, 1]",
    ),
    "text in the data": (
        lambda: mixvi.fit(regression, W, data=table(y=np.array(list("abcde")))),
        "InputError",
        "data.y is ndarray",
    ),
    "a column of text in a data frame": (
        lambda: mixvi.fit(regression, W, data=Frame({"x": np.ones(3), "city": np.array(list("abc"))})),
        "InputError",
        "not numbers in the column 'city'",
    ),
    "empty init": (lambda: mixvi.fit(normal, {}), "InputError", "no parameters"),
    "init of empty arrays": (lambda: mixvi.fit(normal, np.zeros(0)), "InputError", "every leaf is empty"),
    "no real numbers": (
        lambda: mixvi.fit(lambda w: -1.0 * w["n"], {"n": True}),
        "InputError",
        "n is bool",
    ),
    "a dataclass that JAX does not know": (
        lambda: mixvi.fit(lambda w: -(w.a**2), Plain(0.0)),
        "InputError",
        "@jax.tree_util.register_dataclass",
    ),
    "constraint on a constant": (
        lambda: mixvi.fit(normal, {"a": 0.0, "n": np.arange(3)}, constraints={"n": "positive"}),
        "InputError",
        "n is a constant",
    ),
    "complex parameters": (lambda: mixvi.fit(normal, W + 1j), "InputError", "complex128"),
    "text as init": (lambda: mixvi.fit(normal, "zero"), "InputError", "w is str"),
    "NaN in init": (
        lambda: mixvi.fit(lambda w: normal(w["b"]), {"b": np.array([0.0, np.nan])}),
        "NonFiniteError",
        "b[1]",
    ),
    "-inf at the start": (
        lambda: mixvi.fit(lambda w: jnp.log(w["rate"]) - w["rate"], {"rate": 0.0}),
        "NonFiniteError",
        "log of a scale",
    ),
    "infinite gradient at the start": (
        lambda: mixvi.fit(lambda w: -jnp.sqrt(w["a"]) - w["b"] ** 2, {"a": 0.0, "b": 1.0}),
        "NonFiniteError",
        "in a",
    ),
    "a family in the place of the data": (
        lambda: mixvi.fit(regression, W, "eig"),
        "InputError",
        'family="eig"',
    ),
    "a masked array": (
        lambda: mixvi.fit(regression, W, data=table(y=np.ma.masked_equal(np.zeros(5), 0))),
        "InputError",
        "masked",
    ),
    "dict keys of two types": (lambda: mixvi.fit(normal, {"a": 0.0, 1: 1.0}), "InputError", "pytree"),
    "a folder that is not there": (
        lambda: mixvi.laplace(normal, W).save("nowhere/post"),
        "InputError",
        "no folder",
    ),
    "unknown family": (lambda: mixvi.fit(normal, W, family="eigen"), "InputError", '"eig"'),
    "rank of zero": (lambda: mixvi.LowRank(rank=0), "InputError", "positive integer"),
    "rank above the dimension": (
        lambda: mixvi.fit(normal, W, family=mixvi.LowRank(rank=3)),
        "InputError",
        "exceeds the 2 dimensions",
    ),
    "unknown mean-field start": (lambda: mixvi.MeanField(start="wide"), "InputError", '"small"'),
    "too few matched draws": (
        lambda: mixvi.fit(normal, np.zeros(30), draws=40),
        "InputError",
        "at least 62",
    ),
    "an odd number of matched draws": (lambda: mixvi.fit(normal, W, draws=201), "InputError", "take 202"),
    "too few draws for a root update": (
        lambda: mixvi.fit(normal, np.zeros(30), family="full", draws=mixvi.IID(20)),
        "InputError",
        "no maximum",
    ),
    "one draw": (lambda: mixvi.IID(1), "InputError", "at least 2"),
    "draws that are not a number": (lambda: mixvi.fit(normal, W, draws="many"), "InputError", "'many'"),
    "unknown optimiser": (lambda: mixvi.fit(normal, W, optimiser="adam"), "InputError", '"scg"'),
    "negative key": (lambda: mixvi.fit(normal, W, key=-1), "InputError", "negative"),
    "key of the wrong type": (lambda: mixvi.fit(normal, W, key="seed"), "InputError", "JAX key"),
    "tolerance of zero": (lambda: mixvi.fit(normal, W, tol=0), "InputError", "between 0 and 1"),
    "no steps": (lambda: mixvi.fit(normal, W, max_steps=0), "InputError", "positive integer"),
    "memory without a unit": (lambda: mixvi.fit(normal, W, memory="lots"), "InputError", "512MiB"),
    "too few fresh draws": (lambda: mixvi.fit(normal, W, diagnostics=10), "InputError", "at least 100"),
    "unknown repair": (lambda: mixvi.fit(normal, W, on_indefinite="fix"), "InputError", '"absolute"'),
    "unknown dtype": (lambda: mixvi.fit(normal, W, dtype="float16"), "InputError", '"float32"'),
    "a direction that nothing fixes": (
        lambda: mixvi.fit(lambda w: -((w["a"] - w["b"]) ** 2), {"a": 0.0, "b": 0.0}),
        "IndefiniteHessianError",
        "carried by a",
    ),
    "a constant log density": (lambda: mixvi.fit(lambda w: 0.0 * w.sum(), W), "IndefiniteHessianError", "w[0]"),
    "an unbounded log density": (lambda: mixvi.fit(lambda w: w["a"], {"a": 0.0}), "NoModeError", "a went from"),
    "a potential energy": (
        lambda: mixvi.fit(lambda w: -regression(w, table(np.eye(5)[:, :2])), np.ones(2)),
        "NoModeError",
        "did you pass a potential energy?",
    ),
    "a potential energy at its minimum": (
        lambda: mixvi.fit(lambda w: -normal(w), W, anchor="mode"),
        "NoModeError",
        "did you pass a potential energy?",
    ),
    "point of the wrong shape in log_prob": (
        lambda: mixvi.laplace(normal, W).log_prob(np.zeros(5)),
        "InputError",
        "(5,)",
    ),
    "a negative number of samples": (lambda: mixvi.laplace(normal, W).sample(0, -1), "InputError", "-1"),
    "a file that is not there": (lambda: mixvi.load("nowhere.npz"), "InputError", "no file"),
    "constraint on a name that is not there": (
        lambda: mixvi.fit(normal, W, constraints={"sigma": "positive"}),
        "InputError",
        "The parameters are w",
    ),
    "unknown constraint": (
        lambda: mixvi.fit(normal, W, constraints={"w": "nonnegative"}),
        "InputError",
        '"positive"',
    ),
    "start out of bounds": (
        lambda: mixvi.fit(normal, W, constraints={"w": "positive"}),
        "InputError",
        "w[0] is 0, which is not inside (0, inf)",
    ),
    "a simplex that does not sum to one": (
        lambda: mixvi.fit(normal, np.ones(2), constraints={"w": "simplex"}),
        "InputError",
        "with sum 2",
    ),
    "an interval upside down": (lambda: mixvi.Interval(1, 0), "InputError", "low must be below high"),
    "a NumPy function without a gradient": (
        lambda: mixvi.fit(mixvi.from_numpy(lambda w: -0.5 * w @ w), W),
        "InputError",
        "must return two things",
    ),
    "a gradient with the wrong sign": (
        lambda: mixvi.fit(mixvi.from_numpy(lambda w: (-0.5 * w @ w, w)), W),
        "InputError",
        "the opposite",
    ),
    "a gradient that lacks a term": (
        lambda: mixvi.fit(mixvi.from_numpy(lambda w: (-0.5 * w @ w - 2 * (w[1] - 1) ** 2, -w)), W),
        "InputError",
        "In w[1] it is",
    ),
    "a NumPy function that raises": (
        lambda: mixvi.fit(mixvi.from_numpy(lambda w: 1 / 0), W),
        "InputError",
        "raised ZeroDivisionError at w = [0, 0]",
    ),
    "a batch of uneven length": (
        lambda: mixvi.fit_many(regression, W, data={"x": np.ones((3, 5, 2)), "y": np.ones((4, 5))}),
        "InputError",
        "same number of problems",
    ),
}  # fmt: skip


def sentence(name: str) -> tuple[str, str]:
    """The exception's name and its words."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            result = CASES[name][0]()
        except mixvi.MixviError as error:
            return type(error).__name__, str(error)
    return "no error", repr(result)


def main() -> None:
    if "--json" in sys.argv:
        print(json.dumps({name: sentence(name) for name in CASES}))
        return
    print("| input | error | sentence |\n|---|---|---|")
    for name in CASES:
        kind, words = sentence(name)
        print(f"| {name} | {kind} | {words} |")


if __name__ == "__main__":
    main()
