"""Tables as data: a dict of columns."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from bad_inputs import Frame
from mixvi import metrics
from mixvi._density._data import unframed

RNG = np.random.default_rng(0)
X = RNG.standard_normal(40)
N = RNG.poisson(np.exp(0.5 * X))


def log_density(w, data):
    eta = w["slope"] * data["x"]
    return (data["n"] * eta - jnp.exp(eta)).sum() - 0.5 * w["slope"] ** 2


def pandas():
    pytest.importorskip("pandas")
    import pandas

    return pandas


def frames():
    return {"fake": Frame, "pandas": lambda columns: pandas().DataFrame(columns)}


@pytest.mark.parametrize("kind", ["fake", "pandas"])
def test_a_frame_is_a_dict_of_columns(kind):
    frame = frames()[kind]({"n": N, "x": X})
    plain = mixvi.laplace(log_density, {"slope": 0.0}, {"n": N, "x": X})
    assert mixvi.laplace(log_density, {"slope": 0.0}, frame).mean == plain.mean
    nested = mixvi.laplace(
        lambda w, d: log_density(w, d["table"]), {"slope": 0.0}, {"table": frame}
    )
    assert nested.mean == plain.mean


def test_series_and_kinds_of_columns():
    pd = pandas()
    frame = pd.DataFrame(
        {"x": X, "n": pd.array(N, dtype="Int64"), "flag": X > 0, "level": pd.Categorical(N)}
    )
    made = unframed({"frame": frame, "series": frame["x"], "array": X}, "data")
    kinds = {name: array.dtype.kind for name, array in made["frame"].items()}
    assert kinds == {"x": "f", "n": "i", "flag": "b", "level": "i"}
    assert made["series"].dtype == np.float64
    assert made["array"] is X
    assert list(unframed(pd.DataFrame(np.ones((3, 2))), "data")) == [0, 1]


def test_numpy_functions_and_many_and_scores():
    pd = pandas()
    frame = pd.DataFrame({"n": N, "x": X})

    def fun_and_grad(w, data):
        rate = np.exp(w["slope"] * data["x"])
        value = (data["n"] * w["slope"] * data["x"] - rate).sum() - 0.5 * w["slope"] ** 2
        return value, {"slope": (data["x"] * (data["n"] - rate)).sum() - w["slope"]}

    plain = mixvi.laplace(log_density, {"slope": 0.0}, frame)
    by_numpy = mixvi.laplace(mixvi.from_numpy(fun_and_grad), {"slope": 0.0}, frame)
    np.testing.assert_allclose(by_numpy.mean["slope"], plain.mean["slope"], rtol=1e-6)
    centres = pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 3.0]})
    posts = mixvi.fit_many(
        lambda w, d: -((w[0] - d["a"]) ** 2) - (w[1] - d["b"]) ** 2, np.zeros(2), centres
    )
    np.testing.assert_allclose(posts.mean, centres.to_numpy(), atol=1e-9)
    scores = metrics.log_predictive_density(
        lambda w, d: d["x"] * w["slope"], plain.sample(0, 10), frame
    )
    assert scores.pointwise.shape == (40,)

    def with_hyper(w, log_alpha, data):
        prior = -0.5 * jnp.exp(log_alpha) * w["slope"] ** 2 + 0.5 * log_alpha
        return log_density(w, data) + prior

    found = mixvi.screen(with_hyper, {"slope": 0.0}, [-1.0, 1.0], frame, steps=3)
    assert np.isfinite(found.scores).all()


def test_refused():
    pd = pandas()
    frame = pd.DataFrame({"x": X, "city": ["a"] * 40, "day": pd.Timestamp(0), "n": N})
    with pytest.raises(mixvi.InputError, match=r"data: .*columns 'city', 'day': encode text"):
        mixvi.fit(log_density, {"slope": 0.0}, frame)
    with pytest.raises(mixvi.InputError, match=r"data\.table: .*'city'"):
        mixvi.fit(log_density, {"slope": 0.0}, {"table": frame})
    with pytest.raises(mixvi.InputError, match="more than one column 'x'"):
        unframed(pd.DataFrame(np.ones((2, 2)), columns=["x", "x"]), "data")
    with pytest.raises(mixvi.InputError, match="name all by text"):
        unframed(pd.DataFrame(np.ones((2, 2)), columns=["x", 1]), "data")
    missing = pd.DataFrame({"x": [np.nan, 1.0], "n": [1, 2]})
    with pytest.raises(mixvi.NonFiniteError, match=r"data\.x has 1 non-finite number"):
        mixvi.fit(log_density, {"slope": 0.0}, missing)


def test_nothing_is_imported_for_them():
    code = "import sys, mixvi; mixvi.laplace(lambda w: -w**2, 0.0); print('pandas' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
