"""Pictures: what is drawn is the posterior, by the names and on the scales of its summary."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mixvi

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from mixvi import plots  # noqa: E402


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def axes_of(figure, i: int, j: int, n: int):
    return figure.axes[i * n + j]


def drawn(axes) -> np.ndarray:
    """The points of the first line, one a row."""
    return np.stack(axes.lines[0].get_data(), 1)


def area(edge: np.ndarray) -> float:
    x, y = edge.T
    return 0.5 * abs((x * np.roll(y, 1) - y * np.roll(x, 1)).sum())


def correlated(w):
    return -0.5 * ((w["a"] - 1) ** 2 + (w["b"][0] - 2 * w["a"]) ** 2 + w["b"][1] ** 2 / 9)


def test_free_parameters_are_ellipses_and_normal_densities():
    post = mixvi.laplace(correlated, {"a": 0.0, "b": np.zeros(2)})
    figure = plots.pairs(post, level=0.5)
    assert len(figure.axes) == 9
    assert [axes_of(figure, 2, j, 3).get_xlabel() for j in range(3)] == ["a", "b[0]", "b[1]"]
    x, density = drawn(axes_of(figure, 1, 1, 3)).T
    np.testing.assert_allclose(density, stats.norm.pdf(x, 2, np.sqrt(5)), rtol=1e-3)
    assert x[0] < 2 - 3 * np.sqrt(5)
    edge = drawn(axes_of(figure, 1, 0, 3))
    inside = np.sqrt(2 * np.log(2))  # of half the mass
    whitened = np.linalg.solve(np.linalg.cholesky(post.cov[:2, :2]), (edge - [1, 2]).T)
    np.testing.assert_allclose(np.linalg.norm(whitened, axis=0), inside, rtol=1e-6)
    assert area(edge) == pytest.approx(np.pi * inside**2, rel=1e-3)  # the determinant is one
    assert axes_of(figure, 1, 0, 3).lines[1].get_xydata().round(6).tolist() == [[1.0, 2.0]]


def bounded(w):
    scale = -0.5 * (jnp.log(w["s"]) - w["a"]) ** 2 - jnp.log(w["s"])
    shares = (jnp.array([5.0, 3.0, 4.0]) * jnp.log(w["pi"])).sum()
    return scale - 2 * w["a"] ** 2 + shares


@pytest.fixture(scope="module")
def of_bounded():
    init = {"a": 0.1, "s": 1.0, "pi": np.full(3, 1 / 3)}
    return mixvi.laplace(bounded, init, constraints={"s": "positive", "pi": "simplex"})


def test_bounded_parameters_are_on_their_own_scale(of_bounded):
    names = [line.split()[0] for line in of_bounded.summary().splitlines()[-5:]]
    assert names == ["a", "pi[0]", "pi[1]", "pi[2]", "s"]
    figure = plots.pairs(of_bounded, names)
    assert [axes_of(figure, 4, j, 5).get_xlabel() for j in range(5)] == names
    x, density = drawn(axes_of(figure, 4, 4, 5)).T
    assert x.min() > 0
    sd = np.sqrt(1.25)
    np.testing.assert_allclose(density, stats.lognorm.pdf(x, sd), rtol=0.02)
    # The ellipse of (a, log s), mapped; its share of the mass is that asked for.
    edge = drawn(axes_of(figure, 4, 0, 5))
    assert edge[:, 1].min() > 0
    draws = of_bounded.sample(1, 20_000)
    region = matplotlib.path.Path(edge)
    share = region.contains_points(np.stack([draws["a"], draws["s"]], 1)).mean()
    assert share == pytest.approx(0.7, abs=0.02)
    # The cross is where the table says the mean is.
    cross = axes_of(figure, 4, 0, 5).lines[1].get_xydata()[0]
    np.testing.assert_allclose(cross, [of_bounded.mean["a"], of_bounded.mean["s"]])


def test_a_simplex_is_shown_by_draws(of_bounded):
    figure = plots.pairs(of_bounded, ["pi[0]", "pi[2]", "a"])
    points = drawn(axes_of(figure, 1, 0, 3))
    assert len(points) == 2000
    assert (points > 0).all()
    assert (points.sum(1) < 1).all()
    expected = [of_bounded.mean["pi"][0], of_bounded.mean["pi"][2]]
    np.testing.assert_allclose(points.mean(0), expected, atol=0.02)
    (bars,) = axes_of(figure, 0, 0, 3).patches
    heights = bars.get_xy()
    assert 0 <= heights[:, 0].min() < expected[0] < heights[:, 0].max() <= 1
    assert heights[:, 1].max() > 1
    assert len(drawn(axes_of(figure, 2, 1, 3))) == 2000


def test_the_gaussian_itself_is_shown_by_its_own_names(of_bounded):
    figure = plots.pairs(of_bounded.unconstrained, ["a", "log s"])
    x = drawn(axes_of(figure, 1, 1, 2))[:, 0]
    assert x.min() < -3


def test_a_mean_field_and_a_picture_that_is_not_empty(tmp_path):
    post = mixvi.fit(correlated, {"a": 0.0, "b": np.zeros(2)}, family="diag")
    figure = plots.pairs(post)
    figure.savefig(tmp_path / "pairs.png", dpi=50)
    picture = plt.imread(tmp_path / "pairs.png")[..., :3]
    blue = (picture[..., 2] > picture[..., 0] + 0.3).sum()
    assert blue > 300


def test_names_that_are_not_there_and_fits_that_failed(of_bounded):
    with pytest.raises(mixvi.InputError, match=r"give one to eight of a, pi\[0\], .* s, got"):
        plots.pairs(of_bounded, ["log s"])
    with pytest.raises(mixvi.InputError, match="one to eight"):
        plots.pairs(of_bounded, [])
    failed = mixvi.laplace(lambda w: 0.0 * w, 1.0, throw=False)
    with pytest.raises(mixvi.InputError, match="no Gaussian to show"):
        plots.pairs(failed)
    assert not plt.get_fignums()
