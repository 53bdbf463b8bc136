"""Posteriors for ArviZ, with whichever line of it is installed."""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi.interop._labelled import Labelled
from mixvi.interop.arviz import to_arviz

with warnings.catch_warnings():
    # ArviZ 0.2x speaks of its future once a day.
    warnings.simplefilter("ignore")
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("arviz")
    arviz_stats = pytest.importorskip("arviz_stats")


def skewed(w):
    """`s` is Gamma(4, 1), `beta` standard normal."""
    return -0.5 * (w["beta"] ** 2).sum() + 3 * jnp.log(w["s"]) - w["s"]


@pytest.fixture(scope="module")
def post():
    start = {"beta": np.zeros(2), "s": 1.0}
    return mixvi.laplace(skewed, start, constraints={"s": "positive"})


Y = np.random.default_rng(0).normal(1.0, 2.0, 30)


def normal_mean(mu, y):
    return (-0.5 * ((y - mu) / 2) ** 2).sum() - 0.5 * (mu / 3) ** 2


def test_draws_are_those_of_sample_under_their_names_and_labels(post):
    data = to_arviz(post, 50, 7, dims={"beta": ["column"]}, coords={"column": ["age", "dose"]})
    its, draws = data.posterior, post.sample(7, 50)
    assert its["beta"].dims == ("chain", "draw", "column")
    assert list(its["column"].values) == ["age", "dose"]
    np.testing.assert_array_equal(its["beta"].values[0], draws["beta"])
    np.testing.assert_array_equal(its["s"].values[0], draws["s"])
    log_q = post.unconstrained.log_prob(post.unconstrained.sample(7, 50))
    np.testing.assert_allclose(data.sample_stats["log_q"].values[0], log_q)
    assert "log_p" not in data.sample_stats


def test_attributes_say_what_the_posterior_says(post):
    data = to_arviz(post)
    for attrs in (data.attrs, data.posterior.attrs):
        assert attrs["inference_library"] == "mixvi"
        assert attrs["inference_library_version"] == mixvi.__version__
        assert attrs["family"] == "laplace"
        assert (attrs["verdict"], attrs["trust"]) == (post.verdict, post.trust)
        assert (attrs["khat"], attrs["elbo"]) == (post.khat, post.elbo.value)


def test_the_log_density_is_that_of_the_unbounded_parameters(post):
    data = to_arviz(post, 40, 3, log_density=skewed, unconstrained=True)
    beta, u = (data.unconstrained_posterior[name].values[0] for name in ("beta", "log s"))
    expected = -0.5 * (beta**2).sum(-1) + 4 * u - np.exp(u)  # one u is the log-Jacobian
    np.testing.assert_allclose(data.sample_stats["log_p"].values[0], expected)


def test_without_a_number_the_draws_are_those_that_judged_it(post):
    data = to_arviz(post, None)
    np.testing.assert_array_equal(data.sample_stats["log_p"].values[0], post.judged.log_p)
    s = np.exp(post.law.colour(post.judged.z)[:, 2])
    np.testing.assert_allclose(data.posterior["s"].values[0], s)


def test_leave_one_out_of_an_approximate_posterior():
    """Of a normal mean everything is known: y_i given the others is normal."""
    post = mixvi.laplace(normal_mean, 0.0, data=Y)

    def log_likelihood(mu):
        return {"y": -0.5 * ((Y - mu) / 2) ** 2 - np.log(2 * np.sqrt(2 * np.pi))}

    data = to_arviz(
        post, 4000, log_density=normal_mean, data=Y, log_likelihood=log_likelihood,
        observed_data={"y": Y},
    )  # fmt: skip
    stats = data.sample_stats
    found = arviz_stats.loo_approximate_posterior(data, stats["log_p"], stats["log_q"])
    precision = 1 / 9 + (len(Y) - 1) / 4
    mean, var = (Y.sum() - Y) / 4 / precision, 1 / precision + 4
    exact = (-0.5 * (Y - mean) ** 2 / var - 0.5 * np.log(2 * np.pi * var)).sum()
    assert found.elpd == pytest.approx(exact, abs=0.05)
    assert data.observed_data["y"].dims == ("y_dim_0",)


@pytest.mark.parametrize("how", [True, "without"])
def test_resampled_draws_stand_for_the_posterior(post, how):
    data = to_arviz(post, 4000, log_density=skewed, resampled=how)
    plain = to_arviz(post, 4000).posterior["s"].values
    s = data.posterior["s"].values[0]
    assert s.shape == (4000,)
    assert abs(plain.mean() - 4) > 0.3  # the Laplace Gaussian of log s is that wrong
    assert s.mean() == pytest.approx(4, abs=0.15)
    assert "log_q" not in data.sample_stats
    assert data.attrs["resampled"] == ("with" if how is True else how)
    assert (len(np.unique(s)) == 4000) == (how == "without")


def test_with_replacement_a_draw_comes_as_often_as_it_weighs(post):
    data, weighed = to_arviz(post, None, resampled="with"), post.importance_weights()
    n = len(weighed.weights)
    counts = np.array([(data.posterior["s"].values == one).sum() for one in weighed.draws["s"]])
    assert counts.sum() == n
    assert (np.abs(counts - n * weighed.weights) < 1).all()


def test_what_an_adaptor_knows_comes_through(post):
    class OfModel:
        def __init__(self):
            self.post = post

        def labelled(self, n, key=0):
            draws = {"theta": np.arange(2.0 * n).reshape(n, 2), "s": np.ones(n)}
            return Labelled(
                draws,
                log_q=np.zeros(n),
                log_p=np.ones(n),
                dims={"theta": ("school",), "y": ("school",)},
                coords={"school": ["A", "B"]},
                log_likelihood={"y": np.zeros((n, 2))},
                observed_data={"y": np.array([1.0, 2.0])},
                constant_data={"x": np.array([3.0])},
            )

    data = to_arviz(OfModel(), 10)
    assert data.posterior["theta"].dims == ("chain", "draw", "school")
    assert data.log_likelihood["y"].dims == ("chain", "draw", "school")
    assert data.observed_data["y"].dims == ("school",)
    assert list(data.observed_data["school"].values) == ["A", "B"]
    assert float(data.constant_data["x"][0]) == 3.0
    with pytest.raises(mixvi.InputError, match="log_density is for a plain Posterior"):
        to_arviz(OfModel(), log_density=skewed)


def test_names_of_what_is_no_dict():
    post = mixvi.laplace(lambda w: -0.5 * (w @ w), np.zeros(3))
    assert to_arviz(post, 5).posterior["w"].dims == ("chain", "draw", "w_dim_0")


def test_it_goes_into_a_file_and_back(post, tmp_path):
    pytest.importorskip("h5netcdf")
    data = to_arviz(post, 5)
    path = tmp_path / "posterior.nc"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_netcdf(str(path), engine="h5netcdf")
        again = xarray.open_dataset(path, group="posterior", engine="h5netcdf")
        np.testing.assert_array_equal(again["s"].values, data.posterior["s"].values)
    assert again.attrs["verdict"] == post.verdict


def test_what_is_wrong_gets_a_sentence(post):
    for given, words in [
        ({"resampled": "sometimes"}, "resampled must be False"),
        ({"resampled": True}, "weights need the log density"),
        ({"dims": {"gamma": ["a"]}}, "dims names 'gamma', which is not there. There are beta, s"),
        ({"dims": {"beta": ["a", "b"]}}, "2 names, .* but it has 1 axes"),
        ({"dims": {"beta": ["a"]}, "coords": {"a": [1]}}, "coords has 1 labels for a"),
        ({"n": 0}, "n must be a positive integer"),
        ({"log_likelihood": np.zeros(1000)}, "must be dicts of arrays"),
        ({"log_likelihood": {"y": np.zeros(3)}}, "y has shape .3,.; the first axis"),
    ]:
        with pytest.raises(mixvi.InputError, match=words):
            to_arviz(post, **given)
    with pytest.raises(mixvi.InputError, match="post must be a Posterior or"):
        to_arviz("posterior")  # pyright: ignore
    unjudged = dataclasses.replace(post, judged=None)
    with pytest.raises(mixvi.InputError, match="diagnostics=True"):
        to_arviz(unjudged, None)
