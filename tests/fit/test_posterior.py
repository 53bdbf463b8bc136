"""What comes back: shapes, names, densities, draws, and files."""

import json
import pickle
from typing import NamedTuple
from xml.etree import ElementTree

import equinox as eqx
import jax
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
    table = lines[lines.index("") :]
    assert max(map(len, table)) <= 80
    assert table[-10].split() == ["parameter", "mean", "std", "5%", "50%", "95%"]
    low, high = 1 - 2 * 1.6448536, 1 + 2 * 1.6448536
    assert table[-2].split() == ["layer.w[1,1]", "1", "2", f"{low:.4g}", "1", f"{high:.4g}"]
    assert "k-hat" in text
    assert "... and 4 more" in post.summary(most=6)
    assert "verdict" in repr(post)


def test_a_notebook_shows_the_same_and_runs_nothing():
    name = "<script>alert(1)</script>"
    post = mixvi.laplace(lambda w: -0.5 * (w[name] ** 2 + w["b&c"] ** 2), {name: 1.0, "b&c": 1.0})
    html = post._repr_html_()
    assert f"<b>{post.verdict}</b>" in html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "b&amp;c" in html
    assert "http" not in html
    tree = ElementTree.fromstring(html)  # well formed
    last = [cell.text for cell in tree.findall("table")[-1].findall("tr")[-1]]
    assert last == post.summary().splitlines()[-1].split()
    wide = mixvi.laplace(lambda w: -0.5 * (w @ w), np.ones(30), diagnostics=False)
    assert "... and 19 more" in wide._repr_html_()


def test_a_notebook_shows_many():
    def bad_ones_too(w, c):
        return jnp.where(c < 0, 0.0, -0.5 * (w - c) ** 2)

    posts = mixvi.fit_many(bad_ones_too, 0.0, np.array([1.0, -1.0, 2.0]))
    tree = ElementTree.fromstring(posts._repr_html_())
    assert tree.find("p/b").text == "3 posteriors of 1 parameters"
    rows = [[cell.text for cell in row] for row in tree.find("table")]
    assert ["2", "Trust"] in rows
    assert ["[1]", posts[1].verdict] in rows


def test_quantiles_of_free_parameters_are_those_of_the_gaussian(post):
    probs = [0.001, 0.3, 0.95]
    found = post.quantiles(probs)
    assert found["layer"]["w"].shape == (3, 2, 2)
    expected = stats.norm.ppf(probs, post.mean["layer"]["w"][0, 1], post.std["layer"]["w"][0, 1])
    np.testing.assert_allclose(found["layer"]["w"][:, 0, 1], expected, rtol=1e-12)
    # One number has no axis of its own.
    assert post.quantiles(0.3)["layer"]["w"].shape == (2, 2)
    assert post.quantiles(0.3)["tau"] == found["tau"][1]
    assert post.quantiles(np.array([0.5]))["tau"].shape == (1,)


@pytest.mark.parametrize("probs", [0, 1.0, [0.5, 1.2], [[0.5]], "0.5", None, [np.nan], [-0.1]])
def test_quantiles_need_probabilities(post, probs):
    with pytest.raises(mixvi.InputError, match="between 0 and 1"):
        post.quantiles(probs)


def test_quantiles_of_bounded_parameters():
    def total(w):
        free = -0.5 * ((w["a"] - 1) ** 2).sum() - 2 * jnp.log(w["s"]) ** 2 - jnp.log(w["s"]).sum()
        rest = -0.5 * jnp.log(3 - w["below"]) ** 2 - jnp.log(3 - w["below"])
        share = jnp.log((w["p"] + 1) / (1 - w["p"]))
        stretched = -0.5 * share**2 - jnp.log((w["p"] + 1) * (1 - w["p"]))
        return free + rest + stretched

    bounds = {"s": "positive", "below": mixvi.Interval(-np.inf, 3.0), "p": mixvi.Interval(-1, 1)}
    init = {"a": np.zeros(2), "s": 1.5, "below": 1.0, "p": 0.2}
    post = mixvi.laplace(total, init, constraints=bounds)
    probs = np.array([0.02, 0.5, 0.9])
    z = stats.norm.ppf(probs)
    found = post.quantiles(probs)
    # log s ~ N(0, 1/4), log(3 - below) ~ N(0, 1), logit of the way ~ N(0, 1).
    np.testing.assert_allclose(found["s"], np.exp(0.5 * z), rtol=1e-6)
    np.testing.assert_allclose(found["below"], 3 - np.exp(-z), rtol=1e-6)
    np.testing.assert_allclose(found["p"], 2 / (1 + np.exp(-z)) - 1, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["a"], (1 + z)[:, None] * np.ones(2), rtol=1e-6)
    assert all((np.diff(leaf, axis=0) > 0).all() for leaf in found.values())


def test_quantiles_of_simplexes_and_ordered_vectors_are_those_of_draws():
    def total(w):
        on_simplex = (jnp.array([4.0, 2.0, 3.0]) * jnp.log(w["pi"])).sum()
        return on_simplex - 0.5 * ((w["cuts"] - jnp.arange(4.0)) ** 2).sum()

    init = {"pi": np.full((2, 3), 1 / 3), "cuts": np.arange(4.0)}
    post = mixvi.fit(total, init, constraints={"pi": "simplex", "cuts": "ordered"}, family="eig")
    draws, probs = post.sample(0, 200_000), [0.05, 0.5, 0.95]
    found = post.quantiles(probs)
    assert found["pi"].shape == (3, 2, 3)
    for name, leaf in found.items():
        np.testing.assert_allclose(leaf, np.quantile(draws[name], probs, axis=0), atol=0.01)
    first = post.flat_mean[0] + stats.norm.ppf(probs) * post.flat_std[0]
    np.testing.assert_allclose(found["cuts"][:, 0], first, rtol=1e-12)
    np.testing.assert_array_equal(found["pi"], post.quantiles(probs)["pi"])


def test_a_fit_that_failed_has_no_weights():
    failed = mixvi.laplace(lambda w: 0.0 * w, 1.0, throw=False)
    with pytest.raises(mixvi.InputError, match="importance_weights: this fit failed"):
        failed.importance_weights(100, log_density=lambda w: -(w**2))


def test_a_fit_that_failed_has_no_quantiles():
    post = mixvi.laplace(lambda w: 0.0 * w, 1.0, constraints={"w": "positive"}, throw=False)
    assert np.isnan(post.quantiles([0.1, 0.9])).all()
    free = mixvi.laplace(lambda w: 0.0 * w, 1.0, throw=False)
    assert np.isnan(free.quantiles(0.1))


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
    assert len(post.importance_weights(log_density=logistic, data=logistic_data()).weights) == 1000


def skewed(w, y):  # counts with a log-normal rate
    return (y * w["log_rate"] - jnp.exp(w["log_rate"])).sum() - 0.5 * w["log_rate"] ** 2


COUNTS = np.array([1.0, 0.0, 2.0])


@pytest.fixture(scope="module")
def of_counts():
    return mixvi.laplace(skewed, {"log_rate": 0.0}, COUNTS)


def true_mean() -> float:
    grid = np.linspace(-8, 5, 20001)
    log_p = COUNTS.sum() * grid - 3 * np.exp(grid) - 0.5 * grid**2
    p = np.exp(log_p - log_p.max())
    return float((grid * p).sum() / p.sum())


def test_weights_of_new_draws_correct_the_mean(of_counts):
    draws, weights, khat, ess = of_counts.importance_weights(20_000, skewed, COUNTS)
    assert draws["log_rate"].shape == weights.shape == (20_000,)
    assert abs(float(of_counts.mean["log_rate"]) - true_mean()) > 0.05
    assert weights @ draws["log_rate"] == pytest.approx(true_mean(), abs=0.02)
    assert khat < 0.7
    assert 1000 < ess < 20_000


def test_weights_of_new_draws_are_the_same_every_time(of_counts, tmp_path):
    first = of_counts.importance_weights(50, skewed, COUNTS)
    again = mixvi.load(of_counts.save(tmp_path / "counts"))
    for other in (of_counts, again, pickle.loads(pickle.dumps(of_counts))):
        same = other.importance_weights(50, skewed, COUNTS)
        np.testing.assert_array_equal(same.draws["log_rate"], first.draws["log_rate"])
        np.testing.assert_allclose(same.weights, first.weights, rtol=1e-12)
    another = of_counts.importance_weights(50, skewed, COUNTS, key=3)
    drawn = first.draws["log_rate"]
    # A stream of its own: not another key's, not those of samples, not those of the verdict.
    for others in (another.draws, of_counts.sample(0, 50), of_counts.importance_weights().draws):
        assert not np.isin(drawn, others["log_rate"]).any()
    keyed = mixvi.laplace(skewed, {"log_rate": 0.0}, COUNTS, key=jax.random.key(5))
    one, two = (keyed.importance_weights(5, skewed, COUNTS).draws["log_rate"] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_new_draws_need_the_log_density(of_counts):
    with pytest.raises(mixvi.InputError, match=r"importance_weights\(n, log_density, data\)"):
        of_counts.importance_weights(100)
    with pytest.raises(mixvi.InputError, match="n must be a positive integer, got 0"):
        of_counts.importance_weights(0, skewed, COUNTS)
    with pytest.raises(mixvi.InputError, match="not finite at"):
        of_counts.importance_weights(100, lambda w: jnp.log(w["log_rate"]))


def test_new_draws_with_bounds_hyperparameters_and_other_densities():
    def scale(w, y):
        return (-0.5 * (y / w["s"]) ** 2 - jnp.log(w["s"])).sum()

    y = np.array([1.0, -2.0, 0.5])
    bounded = mixvi.fit(scale, {"s": 1.0}, y, constraints={"s": "positive"}, diagnostics=2000)
    new = bounded.importance_weights(2000, scale, y)
    assert new.draws["s"].min() > 0
    old = bounded.importance_weights()
    assert new.weights @ np.log(new.draws["s"]) == pytest.approx(
        old.weights @ np.log(old.draws["s"]), abs=0.1
    )

    def shrunk(w, log_alpha, y):
        prior = 0.5 * (log_alpha - jnp.exp(log_alpha) * w**2)
        return (prior - 0.5 * (y - w) ** 2).sum()

    learnt = mixvi.laplace(shrunk, np.zeros(3), 3 * y, hyper=0.0)
    # A Gaussian target: all weights are the same.
    even = learnt.importance_weights(500, shrunk, 3 * y)
    assert (even.khat, round(even.ess)) == (0.0, 500)
    numpy = mixvi.from_numpy(lambda w: (-0.5 * w @ w, -w))
    assert mixvi.laplace(numpy, np.ones(2)).importance_weights(500, numpy).khat == 0.0
    x, sign = logistic_data(n=40, dim=3)
    linear = mixvi.LinearPredictor(x, lambda eta: -jnp.logaddexp(0.0, -sign * eta), 1.0)
    by_nodes = mixvi.fit(linear, np.zeros(3))
    assert by_nodes.importance_weights(500, linear).khat < 0.7
