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
    grid = plots.pairs(post, level=0.5)
    assert grid.shape == (3, 3)
    assert [grid[2, j].get_xlabel() for j in range(3)] == ["a", "b[0]", "b[1]"]
    x, density = drawn(grid[1, 1]).T
    np.testing.assert_allclose(density, stats.norm.pdf(x, 2, np.sqrt(5)), rtol=1e-3)
    assert x[0] < 2 - 3 * np.sqrt(5)
    edge = drawn(grid[1, 0])
    inside = np.sqrt(2 * np.log(2))  # of half the mass
    whitened = np.linalg.solve(np.linalg.cholesky(post.cov[:2, :2]), (edge - [1, 2]).T)
    np.testing.assert_allclose(np.linalg.norm(whitened, axis=0), inside, rtol=1e-6)
    assert area(edge) == pytest.approx(np.pi * inside**2, rel=1e-3)  # the determinant is one
    assert grid[1, 0].lines[1].get_xydata().round(6).tolist() == [[1.0, 2.0]]


def test_a_parameter_has_one_scale_down_its_column_and_along_its_row():
    grid = plots.pairs(mixvi.laplace(correlated, {"a": 0.0, "b": np.zeros(2)}), draws=500)
    for k in range(3):
        limits = {axes.get_xlim() for axes in grid[k:, k]} | {
            axes.get_ylim() for axes in grid[k, :k]
        }
        assert len(limits) == 1


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
    grid = plots.pairs(of_bounded, names)
    assert [grid[4, j].get_xlabel() for j in range(5)] == names
    x, density = drawn(grid[4, 4]).T
    assert x.min() > 0
    sd = np.sqrt(1.25)
    np.testing.assert_allclose(density, stats.lognorm.pdf(x, sd), rtol=0.02)
    # The ellipse of (a, log s), mapped; its share of the mass is that asked for.
    edge = drawn(grid[4, 0])
    assert edge[:, 1].min() > 0
    draws = of_bounded.sample(1, 20_000)
    region = matplotlib.path.Path(edge)
    share = region.contains_points(np.stack([draws["a"], draws["s"]], 1)).mean()
    assert share == pytest.approx(0.7, abs=0.02)
    # The cross is where the table says the mean is.
    cross = grid[4, 0].lines[1].get_xydata()[0]
    np.testing.assert_allclose(cross, [of_bounded.mean["a"], of_bounded.mean["s"]])


def test_a_simplex_is_shown_by_draws(of_bounded):
    grid = plots.pairs(of_bounded, ["pi[0]", "pi[2]", "a"])
    points = drawn(grid[1, 0])
    assert len(points) == 2000
    assert (points > 0).all()
    assert (points.sum(1) < 1).all()
    expected = [of_bounded.mean["pi"][0], of_bounded.mean["pi"][2]]
    np.testing.assert_allclose(points.mean(0), expected, atol=0.02)
    (bars,) = grid[0, 0].patches
    heights = bars.get_xy()
    assert 0 <= heights[:, 0].min() < expected[0] < heights[:, 0].max() <= 1
    assert heights[:, 1].max() > 1
    assert len(drawn(grid[2, 1])) == 2000


def test_the_gaussian_itself_is_shown_by_its_own_names(of_bounded):
    grid = plots.pairs(of_bounded.unconstrained, ["a", "log s"])
    x = drawn(grid[1, 1])[:, 0]
    assert x.min() < -3


def test_a_mean_field_and_a_picture_that_is_not_empty(tmp_path):
    post = mixvi.fit(correlated, {"a": 0.0, "b": np.zeros(2)}, family="diag")
    grid = plots.pairs(post)
    grid[0, 0].figure.savefig(tmp_path / "pairs.png", dpi=50)
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


def test_dots_are_draws_and_weighted_ones_have_their_weights_as_areas():
    post = mixvi.fit(skewed, {"a": 0.0, "b": np.zeros(2)}, family="mu")
    grid = plots.pairs(post, ["b[0]", "a"], draws=300, weighted=True)
    plain, heavy = grid[1, 0].collections
    drawn_ones = post.sample(0, 300)
    expected = np.stack([drawn_ones["b"][:, 0], drawn_ones["a"]], 1)
    np.testing.assert_allclose(plain.get_offsets(), expected)
    found = post.importance_weights()
    np.testing.assert_allclose(heavy.get_offsets()[:, 1], found.draws["a"])
    areas = heavy.get_sizes()
    np.testing.assert_allclose(areas / areas.sum(), found.weights)
    # The histogram beside the density is that of the weighted draws.
    (bars,) = grid[1, 1].patches
    x, height = bars.get_xy()[1:-1].T
    edges, level = x[::2], height[::2]
    mean = (0.5 * (edges[1:] + edges[:-1]) * level[:-1] * np.diff(edges)).sum()
    assert mean == pytest.approx(found.weights @ found.draws["a"], abs=0.05)
    assert abs(found.weights @ found.draws["a"] - post.mean["a"]) < 0.2
    (legend,) = grid[0, 0].figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said[0] == "300 draws"
    assert said[1].startswith(f"{len(found.weights)} weighted draws")


def skewed(w):
    return correlated(w) + 0.3 * jnp.tanh(w["a"])


def test_weights_of_new_draws_are_shown():
    start = {"a": 0.0, "b": np.zeros(2)}
    post = mixvi.laplace(skewed, start)
    found = post.importance_weights(123, skewed)
    (dots,) = plots.pairs(post, ["a", "b[1]"], weighted=found)[1, 0].collections
    assert len(dots.get_offsets()) == 123


def moments(line) -> tuple[float, float, float]:
    """Of a density that is drawn: its integral, mean and standard deviation."""
    x, density = line.get_data()
    total = abs(np.trapezoid(density, x))
    mean = np.trapezoid(x * density, x) / np.trapezoid(density, x)
    return total, mean, np.sqrt(abs(np.trapezoid((x - mean) ** 2 * density, x)) / total)


def ends(w):
    """Every kind of interval."""
    away = jnp.array([w["s"], 3 - w["top"], w["p"], 1 - w["p"], (w["rho"] + 1) / 2])
    return (jnp.array([6.0, 5.0, 4.0, 3.0, 2.0]) * jnp.log(away)).sum() - w["s"] + w["top"]


def test_marginals_are_densities_with_the_moments_of_the_summary():
    bounds = {"s": "positive", "top": mixvi.Interval(-np.inf, 3), "p": "unit"}
    bounds |= {"rho": mixvi.Interval(-1, 1)}
    init = {"free": 0.3, "p": 0.4, "rho": 0.1, "s": 1.0, "top": 1.0}

    def density(w):
        return ends(w) + 2 * jnp.log1p(-w["rho"]) - 0.5 * (w["free"] - w["s"]) ** 2

    post = mixvi.fit(density, init, constraints=bounds)
    beside = mixvi.laplace(density, init, constraints=bounds)
    panels = plots.marginals(post, beside=beside)
    assert [axes.get_xlabel() for axes in panels] == ["free", "p", "rho", "s", "top"]
    for axes in panels:
        assert len(axes.lines) == 2
        name = axes.get_xlabel()
        for line, one in zip(axes.lines, (post, beside), strict=True):
            total, mean, sd = moments(line)
            assert total == pytest.approx(1, abs=2e-3)
            assert mean == pytest.approx(one.mean[name], abs=0.02 * one.std[name])
            assert sd == pytest.approx(one.std[name], rel=0.02)
        low, high = axes.get_xlim()
        assert low < post.quantiles(0.01)[name] < post.quantiles(0.99)[name] < high
    said = [text.get_text() for text in panels[0].get_legend().get_texts()]
    assert said == [post.family, "laplace"]


def test_marginals_look_at_the_posterior_not_at_what_is_beside_it():
    """A neighbour a hundred times as wide does not push it to the edge."""
    near = mixvi.laplace(lambda w: -0.5 * w**2, 0.0)
    far = mixvi.laplace(lambda w: -0.5 * (w / 100) ** 2, 0.0)
    (axes,) = plots.marginals(near, beside=far)
    np.testing.assert_allclose(axes.get_xlim(), [-8, 8])
    (axes,) = plots.marginals(far, beside=near)
    np.testing.assert_allclose(axes.get_xlim(), [-400, 400])


def test_marginals_of_a_simplex_are_histograms(of_bounded):
    (axes,) = plots.marginals(of_bounded, ["pi[1]"])
    (bars,) = axes.patches
    assert bars.get_xy()[:, 1].max() > 1
    with pytest.raises(mixvi.InputError, match="marginals, beside: give one to eight of w, got"):
        plots.marginals(of_bounded, ["a"], beside=mixvi.laplace(lambda w: -(w**2), 0.0))


def test_a_path_is_the_bound_over_passes():
    steps = []
    post = mixvi.fit(
        lambda w: -jnp.cosh(w).sum() + (w[0] + w[1]), np.zeros(2), family="full", draws=256,
        callback=steps.append,
    )  # fmt: skip
    axes = plots.path(steps)
    passes, bound = np.concatenate([line.get_xydata() for line in axes.lines]).T
    assert bound[-1] == pytest.approx(post.elbo_fixed)
    assert passes.tolist() == list(range(1, post.stats.passes + 1))
    # Shaded: what the pass foresaw to be had still.
    told = [one for one in steps if one.stage == "family" and one.bound is not None]
    top = axes.collections[0].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(max(one.bound + one.gain_left for one in told))


def step(stage: str, passes: int, bound: float | None, gain_left: float = 0.5) -> mixvi.Step:
    return mixvi.Step(stage, passes, bound, None if bound is None else gain_left, 0.0)


def test_a_path_begins_anew_where_draws_are_added():
    steps = [step("mode", 1, None), step("mode", 2, -99.0), step("family", 0, None)]
    steps += [step("family", 1, -5.0), step("family", 2, -4.0), step("family", 2, -3.0)]
    steps += [step("draws", 2, -3.0), step("draws", 3, -3.5, 0.1), step("verdict", 3, -3.5)]
    _, given = plt.subplots()
    axes = plots.path(steps, given)
    assert axes is given
    first, more = axes.lines
    assert first.get_xydata().tolist() == [[1, -5], [2, -3]]
    assert more.get_xydata().tolist() == [[3, -3.5]]
    with pytest.raises(mixvi.InputError, match="none of these 2 steps tells a bound"):
        plots.path(steps[:2])
