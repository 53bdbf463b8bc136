"""A mixture in pictures, in ArviZ, as data frames, and as a start for NUTS."""

import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

import mixvi
import mixvi.estimators
from mixvi import plots
from mixvi.interop import nuts
from mixvi.interop import pandas as frames


def two(w):
    """On the log scale of `s`: modes at 0 and 4 with a third and two thirds of the mass."""
    u = jnp.log(w["s"])
    apart = jnp.logaddexp(-0.5 * u**2, jnp.log(2.0) - 0.5 * (u - 9.0) ** 2)
    return apart - u - 0.5 * w["a"] ** 2


@pytest.fixture(scope="module")
def post():
    start = {"a": 0.0, "s": 1.0}
    return mixvi.fit(two, start, constraints={"s": "positive"}, family="mixture")


def test_the_density_that_is_drawn_has_both_modes(post):
    (axes,) = plots.marginals(post.unconstrained, ["log s"])
    x, y = axes.lines[0].get_data()
    inside = (y[1:-1] > y[:-2]) & (y[1:-1] > y[2:])
    np.testing.assert_allclose(x[1:-1][inside], [0, 9], atol=0.1)
    one_third = np.exp(-0.5 * 0**2) / np.sqrt(2 * np.pi) / 3
    assert y[1:-1][inside][0] == pytest.approx(one_third, rel=0.01)
    plt.close("all")


def test_regions_of_pairs_are_contours(post, tmp_path):
    grid = plots.pairs(post.unconstrained)
    (contour,) = (one for one in grid[1, 0].collections if hasattr(one, "levels"))
    segments = contour.get_paths()[0].to_polygons(closed_only=False)
    assert len(segments) == 2  # an island for every mode
    grid[0, 0].figure.savefig(tmp_path / "pairs.png")
    plots.pairs(post, weighted=True, draws=50)
    plt.close("all")


def test_data_frames_and_arviz(post):
    frame = frames.draws(post, 2000)
    assert (np.log(frame["s"]) > 4.5).mean() == pytest.approx(2 / 3, abs=0.05)
    assert frames.summary(post).loc["a", "std"] == pytest.approx(1, rel=0.01)
    arviz = pytest.importorskip("mixvi.interop.arviz")
    pytest.importorskip("xarray")
    made = arviz.to_arviz(post, 500)
    assert float((np.log(made["posterior"]["s"]) > 4.5).mean()) == pytest.approx(2 / 3, abs=0.1)


def test_nuts_gets_its_covariance_and_draws(post):
    given = nuts.blackjax(post)
    np.testing.assert_allclose(given["inverse_mass_matrix"], post.cov)
    starts = nuts.starts(post, 4000)
    assert (starts["s"] > 4.5).mean() == pytest.approx(2 / 3, abs=0.05)


def test_estimators_say_that_it_is_not_theirs():
    x = np.random.default_rng(0).standard_normal((30, 2))
    with pytest.raises(mixvi.InputError, match="one Gaussian"):
        mixvi.estimators.MVIClassifier(family="mixture").fit(x, x[:, 0] > 0)
