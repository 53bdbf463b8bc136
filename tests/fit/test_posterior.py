"""What comes back: shapes, names, densities, draws, and files."""

import json
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mixvi
from targets import GaussianTarget, logistic, logistic_data

INIT = {"layer": {"w": np.zeros((2, 2)), "b": np.zeros(2)}, "tau": 0.0, "group": [np.zeros(1), 0.5]}
NAMES = (
    "group[0][0]", "group[1]", "layer.b[0]", "layer.b[1]",
    "layer.w[0,0]", "layer.w[0,1]", "layer.w[1,0]", "layer.w[1,1]", "tau",
)  # fmt: skip


def nested(w):
    """Independent normals: sd 2 for the weights, 1 elsewhere, means 1."""
    one = -0.5 * ((w["layer"]["w"] - 1) ** 2).sum() / 4 - 0.5 * ((w["layer"]["b"] - 1) ** 2).sum()
    rest = (w["tau"] - 1) ** 2 + (w["group"][0][0] - 1) ** 2 + (w["group"][1] - 1) ** 2
    return one - 0.5 * rest


@pytest.fixture(scope="module")
def post():
    return mixvi.fit(nested, INIT, family="full")


def test_shapes_and_names(post):
    assert post.names == NAMES
    assert post.mean["layer"]["w"].shape == (2, 2)
    np.testing.assert_allclose(post.mean["layer"]["w"], 1, atol=1e-6)
    np.testing.assert_allclose(post.std["layer"]["w"], 2, atol=1e-6)
    np.testing.assert_allclose(post.std["tau"], 1, atol=1e-6)
    assert post.cov.shape == (9, 9)
    assert post.hyper is None
    assert post.flat_mean.dtype == np.float64
    assert isinstance(post.mean["tau"], np.ndarray | np.generic)


def test_names_of_other_pytrees():
    class Pair(NamedTuple):
        a: float
        b: np.ndarray

    class Net(eqx.Module):
        weight: jnp.ndarray

    def total(w):
        return -0.5 * (w.a**2 + (w.b**2).sum())

    assert mixvi.laplace(total, Pair(1.0, np.ones(2))).names == ("a", "b[0]", "b[1]")
    net = mixvi.laplace(lambda w: -0.5 * (w.weight**2).sum(), Net(jnp.ones(2)))
    assert net.names == ("weight[0]", "weight[1]")
    assert isinstance(net.mean, Net)
    assert mixvi.laplace(lambda w: -0.5 * w**2, 1.0).names == ("w",)
    assert mixvi.laplace(lambda w: -0.5 * (w @ w), np.ones(1)).names == ("w[0]",)


@pytest.mark.parametrize("family", ["laplace", "full", "diag"])
def test_log_prob_and_sample_are_of_the_same_gaussian(family):
    target = GaussianTarget.make(4, 30.0, diagonal=family == "diag")
    post = mixvi.fit(target.log_density, np.zeros(4), family=family, data=target.data)
    known = stats.multivariate_normal(target.mean, target.cov)
    draws = post.sample(0, 5000)
    assert draws.shape == (5000, 4)
    np.testing.assert_allclose(post.log_prob(draws), known.logpdf(draws), atol=1e-5)
    assert post.log_prob(draws[0]) == pytest.approx(known.logpdf(draws[0]), abs=1e-5)
    in_sds = (draws.mean(0) - target.mean) / np.sqrt(np.diag(target.cov))
    assert np.abs(in_sds).max() < 0.06
    np.testing.assert_allclose(post.whiten(draws).std(0), 1, atol=0.05)


def test_sample_shapes_keys_and_counts(post):
    draws = post.sample(3, 7)
    assert draws["layer"]["w"].shape == (7, 2, 2)
    assert draws["tau"].shape == (7,)
    np.testing.assert_array_equal(draws["tau"], post.sample(3, 7)["tau"])
    assert not np.array_equal(draws["tau"], post.sample(4, 7)["tau"])
    assert post.sample(3, 0)["tau"].shape == (0,)
    assert post.log_prob(draws).shape == (7,)
    assert post.log_prob(post.sample(3, 0)).shape == (0,)


def test_summary_fits_a_screen_and_says_everything(post):
    text = post.summary()
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 150
    assert lines[0] == post.verdict
    assert "layer.w[0,1]" in text
    assert "k-hat" in text
    assert "... and 4 more" in post.summary(most=6)
    assert "verdict" in repr(post)


def test_save_and_load(post, tmp_path):
    path = post.save(tmp_path / "post")
    assert path.suffix == ".npz"
    again = mixvi.load(path)
    assert again.names == post.names
    np.testing.assert_array_equal(again.mean["layer"]["w"], post.mean["layer"]["w"])
    np.testing.assert_array_equal(again.cov, post.cov)
    np.testing.assert_array_equal(again.sample(5, 3)["tau"], post.sample(5, 3)["tau"])
    assert again.summary() == post.summary()
    assert again.elbo == post.elbo
    assert again.gap == post.gap
    assert again.curvature == post.curvature
    assert again.log_prob(post.mean) == post.log_prob(post.mean)
    np.testing.assert_array_equal(
        again.importance_weights().weights, post.importance_weights().weights
    )
    assert mixvi.load(tmp_path / "post").names == post.names
    # A loaded posterior is a start like any other.
    warm = mixvi.fit(nested, again, family="full")
    np.testing.assert_allclose(warm.flat_mean, post.flat_mean, atol=1e-6)


def test_containers_that_json_cannot_rebuild_keep_their_names(tmp_path):
    class Pair(NamedTuple):
        z: float
        a: np.ndarray

    def total(w):
        return -0.5 * ((w.z - 3) ** 2 + ((w.a - 1) ** 2).sum())

    post = mixvi.laplace(total, Pair(0.0, np.zeros(2)))
    again = mixvi.load(post.save(tmp_path / "pair.npz"))
    assert again.names == ("z", "a[0]", "a[1]")
    assert float(again.mean["z"]) == pytest.approx(3)
    np.testing.assert_allclose(again.mean["a"], 1)


def test_failed_fits_can_be_kept_too(tmp_path):
    post = mixvi.laplace(lambda w: -0.5 * (w[0] + w[1]) ** 2, np.zeros(2), throw=False)
    again = mixvi.load(post.save(tmp_path / "bad.npz"))
    assert again.status == post.status
    assert np.isnan(again.flat_mean).all()
    assert np.isnan(again.log_prob(np.zeros(2)))


def test_load_refuses_what_it_cannot_read(tmp_path, post):
    with pytest.raises(mixvi.InputError, match="no file"):
        mixvi.load(tmp_path / "nothing.npz")
    (tmp_path / "text.npz").write_text("not a zip file")
    with pytest.raises(mixvi.InputError, match="not a posterior"):
        mixvi.load(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(mixvi.InputError, match="not a posterior"):
        mixvi.load(tmp_path / "other.npz")
    path = post.save(tmp_path / "future.npz")
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    header["schema"] = 99
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(mixvi.InputError, match="schema 99"):
        mixvi.load(path)


def test_no_half_a_file_is_left_behind(tmp_path, post):
    post.save(tmp_path / "a.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_importance_weights_need_diagnostics():
    post = mixvi.fit(logistic, np.zeros(8), data=logistic_data(), diagnostics=False)
    with pytest.raises(mixvi.InputError, match="diagnostics"):
        post.importance_weights()
    assert post.elbo is None
    assert post.verdict.startswith("Not judged")
