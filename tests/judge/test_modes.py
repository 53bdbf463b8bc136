"""Other modes: symmetries, searches, their shares, and nothing where there is one mode."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mixvi
from mixvi._density._constraints import parsed
from mixvi._density._structure import flatten
from mixvi._fit import _restarts
from mixvi._judge._modes import Mode, weighed
from mixvi._judge._probes import along
from mixvi._judge._symmetry import LABELS, PERIOD, SIGN, leaves_of, orbit, symmetries
from targets import density_of

F8 = np.dtype(np.float64)


def images_of(init, constraints=None):
    """Flat images of `init` (the user's numbers), with their kinds."""
    structure, x = flatten(init, F8)
    bound = None if constraints is None else parsed(constraints, structure)
    some = symmetries(leaves_of(structure, bound))
    return some, x, some.images(x, len(some))


def has(images, wanted):
    return bool((np.abs(images - np.asarray(wanted, float)).max(1) < 1e-12).any())


def test_entries_that_share_an_axis_trade_places_together():
    some, _, images = images_of({"m": np.array([1.0, 2.0, 3.0]), "s": np.array([4.0, 5.0, 6.0])})
    assert has(images, [2, 1, 3, 5, 4, 6])
    assert has(images, [3, 2, 1, 6, 5, 4])
    assert has(images, [2, 1, 3, 4, 5, 6])
    assert some.some[0].kind == LABELS
    assert some.some[0].names == ("m", "s")


def test_a_square_array_has_its_rows_and_columns_permuted_together():
    """As the transitions of a hidden Markov model with two states."""
    _, _, images = images_of({"a": np.array([[1.0, 2.0], [3.0, 4.0]]), "m": np.array([5.0, 6.0])})
    assert has(images, [4, 3, 2, 1, 6, 5])


def test_arrays_whose_names_differ_in_one_part_trade_places():
    given = {"m1": 1.0, "m2": 2.0, "s1": 3.0, "s2": 4.0, "p": 0.3}
    _, _, images = images_of(given, {"p": "unit"})
    # In the order m1, m2, p, s1, s2; the share of one becomes that of the other.
    assert has(images, [2, 1, 0.7, 4, 3])


def test_hidden_units_change_sign_with_all_that_belongs_to_them():
    given = {"b": np.array([1.0, 2.0]), "v": np.array([3.0, 4.0]), "w": np.array([[5.0], [6.0]])}
    _, _, images = images_of(given)
    assert has(images, [-1, 2, -3, 4, -5, 6])


def test_factors_change_sign_in_pairs():
    given = {"eta": np.array([1.0, 2.0, 3.0]), "lam": np.array([4.0, 5.0])}
    _, _, images = images_of(given)
    assert has(images, [-1, -2, -3, -4, -5])


def test_bounded_numbers_keep_their_bounds():
    """What is positive has no sign, what is ordered no labels."""
    given = {"c": np.array([1.0, 2.0]), "s": np.array([3.0, 4.0])}
    _, _, images = images_of(given, {"c": "ordered", "s": "positive"})
    assert (images[:, 2:] > 0).all()
    assert (np.diff(images[:, :2], axis=1) > 0).all()


def test_a_wave_with_its_phase():
    some, x, images = images_of({"amplitude": 2.0, "phase": 0.3})
    assert has(images, [2.0, 0.3 + 2 * math.pi])
    assert has(images, [-2.0, 0.3 + math.pi])
    kinds = {one.kind for one, image in zip(some.some, images, strict=True) if image[1] != x[1]}
    assert PERIOD in kinds


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_orbit_of_labels_has_k_factorial_points(k):
    x = np.arange(1.0, k + 1)
    leaves = leaves_of(flatten(x, F8)[0], None)
    some = symmetries(leaves).some
    labels = [one for one in some if one.kind == LABELS and (one.sign > 0).all()]
    assert len(orbit(x, labels, 1000)) == math.factorial(k)
    signs = [one for one in symmetries(leaves).some if one.kind == SIGN]
    assert len(orbit(x, [*labels, *signs], 1000)) == math.factorial(k) * 2**k


def test_one_symmetry_after_another():
    structure, x = flatten({"a": np.array([1.0, 2.0]), "p": 0.3}, F8)
    bound = parsed({"p": "unit"}, structure)
    some = symmetries(leaves_of(structure, bound)).some
    for one in some[:5]:
        for other in some[:5]:
            np.testing.assert_allclose(one.then(other)(x), other(one(x)))


# --- posteriors -------------------------------------------------------------------------------


def mixture_data(n=60, places=(-3.0, 3.0)):
    rng = np.random.default_rng(1)
    return np.concatenate([rng.normal(place, 1.0, n // len(places)) for place in places])


def mixture(w, y):
    """Equal weights and widths."""
    each = -0.5 * (y[:, None] - w) ** 2 - 0.5 * jnp.log(2 * jnp.pi) - jnp.log(len(w))
    return jax.nn.logsumexp(each, axis=1).sum() - 0.5 * (w**2).sum() / 25


def test_labels_that_switch():
    post = mixvi.fit(mixture, np.array([-1.0, 1.0]), mixture_data())
    assert post.trust == "reject"
    (reason,) = post.reasons
    assert (reason.test, reason.value) == ("modes", pytest.approx(0.5))
    assert 'constraints={"w": "ordered"}' in post.verdict
    own, other = post.modes
    np.testing.assert_allclose(other.point, own.point[::-1], atol=1e-6)
    assert other.log_density == pytest.approx(own.log_density)
    assert (own.share, other.share) == (pytest.approx(0.5), pytest.approx(0.5))
    assert other.is_image
    assert other.relation == ("labels",)


def test_the_remedies_remedy():
    """In order there is one mode; accepted, one of two is judged alone. Both say the same of it."""
    y, start = mixture_data(), np.array([-1.0, 1.0])
    ordered = mixvi.fit(mixture, start, y, constraints={"w": "ordered"})
    assert ordered.trust == "trust"
    assert len(ordered.modes) == 1
    accepted = mixvi.fit(mixture, start, y, symmetric="accept")
    assert accepted.trust == "trust"
    assert "one of 2 that are images of each other" in accepted.verdict
    np.testing.assert_allclose(accepted.mean, ordered.mean, atol=0.01)
    np.testing.assert_allclose(accepted.std, ordered.std, rtol=0.05)


def test_six_modes_of_three_labels():
    y = mixture_data(90, (-6.0, 0.0, 6.0))
    post = mixvi.fit(mixture, np.array([-1.0, 0.0, 1.0]), y)
    assert len(post.modes) == 6
    assert post.elsewhere.share == pytest.approx(5 / 6)
    assert {tuple(np.argsort(mode.point)) for mode in post.modes} == {
        (i, j, k) for i in range(3) for j in range(3) for k in range(3) if len({i, j, k}) == 3
    }


def test_labels_told_apart_by_a_prior():
    """Not exact images: the shares are the ratio of two integrals, by quadrature on a grid."""

    def log_density(w, y):
        return mixture(w, y) - 0.5 * ((w[0] + 3) / 8) ** 2

    y = mixture_data(20)
    grid = np.linspace(-7, 7, 281)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    log_p = np.array(jax.vmap(lambda w: log_density(w, y))(np.stack([a.ravel(), b.ravel()], 1)))
    p = np.exp(log_p - log_p.max()).reshape(a.shape)
    post = mixvi.fit(log_density, np.array([-1.0, 1.0]), y)
    own = a < b if post.mean[0] < post.mean[1] else a > b
    assert post.elsewhere.share == pytest.approx(float(p[~own].sum() / p.sum()), abs=0.02)
    assert not post.modes[1].is_image
    assert "Labels switch" in post.verdict
    assert mixvi.fit(log_density, np.array([-1.0, 1.0]), y, symmetric="accept").trust == "reject"


def test_a_sign_that_flips():
    rng = np.random.default_rng(2)
    y = rng.standard_normal((40, 1)) * np.array([1.5, -1.0, 2.0]) + 0.5 * rng.standard_normal(
        (40, 3)
    )
    moment = y.T @ y

    def log_density(w):  # one factor, scores integrated out
        cov = jnp.outer(w, w) + 0.25 * jnp.eye(3)
        fit = -0.5 * jnp.trace(jnp.linalg.solve(cov, moment))
        return fit - 20 * jnp.linalg.slogdet(cov)[1] - 0.5 * w @ w

    post = mixvi.fit(log_density, np.array([1.0, -0.5, 1.0]))
    assert post.trust == "reject"
    np.testing.assert_allclose(post.modes[1].point, -post.modes[0].point, atol=1e-6)
    assert post.modes[1].relation == ("sign",)
    assert "A sign flips (w)" in post.verdict


def test_scores_and_loadings_have_two_modes_wherever_the_mode_is():
    """With fifty scores the mode is many standard deviations from the mean: not a third one."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal((50, 1)) * np.array([1.0, -0.8, 1.2])
    y += 0.5 * rng.standard_normal((50, 3))

    def log_density(w, y):
        away = y - jnp.outer(w["score"], w["loading"])
        prior = w["score"] @ w["score"] + w["loading"] @ w["loading"]
        return -2 * (away**2).sum() - 0.5 * prior

    start = {"loading": np.array([1.0, -0.5, 1.0]), "score": np.full(50, 0.1)}
    post = mixvi.fit(log_density, start, y)
    assert len(post.modes) == 2
    assert post.elsewhere.share == pytest.approx(0.5)


@pytest.mark.parametrize("dim", [2, 10, 20, 50])
def test_far_modes_in_many_dimensions(dim):
    """Eight sds apart along a diagonal: in fifty dimensions 1.1 sd in each of them."""
    other = np.full(dim, 8 / math.sqrt(dim))

    def log_density(w):
        away = jnp.log(0.4) - 0.5 * ((w - other) ** 2).sum()
        return jnp.logaddexp(jnp.log(0.6) - 0.5 * (w**2).sum(), away)

    post = mixvi.fit(log_density, np.zeros(dim))
    assert post.trust == "reject"
    assert post.elsewhere.share == pytest.approx(0.4, abs=0.01)
    np.testing.assert_allclose(post.modes[1].point, other, atol=0.01)
    assert post.modes[1].distance == pytest.approx(8, abs=0.01)


def test_weights_on_a_simplex_trade_places_with_means():
    """The log density over unbounded shares is not symmetric; that of the shares is."""
    rng = np.random.default_rng(3)
    y = np.concatenate([rng.normal(-4, 1, 60), rng.normal(0, 1, 30), rng.normal(4, 1, 30)])

    def log_density(w, y):
        each = jnp.log(w["p"]) - 0.5 * (y[:, None] - w["m"]) ** 2
        return jax.nn.logsumexp(each, axis=1).sum() - 0.5 * (w["m"] ** 2).sum() / 25

    start = {"m": np.array([-2.0, 0.0, 2.0]), "p": np.full(3, 1 / 3)}
    post = mixvi.fit(log_density, start, y, constraints={"p": "simplex"})
    assert len(post.modes) == 6
    assert all(mode.is_image for mode in post.modes)
    for mode in post.modes:
        heavy = int(np.argmax(mode.point["p"]))
        assert mode.point["m"][heavy] == pytest.approx(-4, abs=0.5)


def test_a_mode_unlike_the_bulk_is_not_another_mode():
    """A non-centred hierarchy: the mode is far from the mean, and the only one."""
    rng = np.random.default_rng(4)
    y = rng.normal(0.3, 1.1, 20)

    def log_density(w, y):
        tau = jnp.exp(w["log_tau"])
        theta = w["mu"] + tau * w["z"]
        prior = -0.5 * (w["mu"] ** 2 + w["log_tau"] ** 2 / 4 + (w["z"] ** 2).sum())
        return prior - 0.5 * ((y - theta) ** 2).sum()

    for key in range(3):
        start = {"mu": 0.0, "log_tau": 0.0, "z": np.zeros(20)}
        post = mixvi.fit(log_density, start, y, key=key)
        assert len(post.modes) == 1
        assert post.elsewhere.share == 0


@pytest.mark.parametrize("dim", [1, 3, 30])
def test_a_gaussian_that_every_sign_leaves_alone_has_one_mode(dim):
    for shift in (0.0, 2.0):
        post = mixvi.fit(lambda w, shift: -0.5 * ((w - shift) ** 2).sum(), np.zeros(dim), shift)
        assert len(post.modes) == 1
        assert post.trust == "trust"


def test_what_is_not_a_number_on_a_ray_is_a_dip():
    way = along(2, np.array([-1.0, np.nan, -1.0, 0.0, -1.0, -2.0, -3.0, -4.0]), 0.0)
    assert way.dip[0] == np.inf
    assert way.rises.tolist() == [True, False]
    assert way.concave.tolist() == [False, True]


def test_a_mode_is_weighed_by_draws_or_is_none():
    """A Gaussian's mass is exact; where draws see nothing of the height claimed there is none."""
    density = density_of(lambda w: -0.5 * (w**2).sum() + 3.0, 2)
    mass = 3.0 + math.log(2 * math.pi)
    mode = weighed(density, Mode(np.zeros(2), np.eye(2), 3.0, mass), 0)
    assert mode.log_mass == pytest.approx(mass, abs=1e-12)
    assert weighed(density, Mode(np.zeros(2), np.eye(2), 40.0, 37.0 + mass), 0) is None


def test_components_within_one_vector():
    """A mixture of two regressions, eight numbers in one vector: four pairs trade places."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, 150)
    y = np.where(rng.random(150) < 0.4, 1 + 2 * x, -1 - 1.5 * x) + 0.4 * rng.standard_normal(150)

    def log_density(w, data):
        x, y = data
        away = (y[:, None] - w[:2] - w[2:4] * x[:, None]) / jnp.exp(w[4:6])
        each = jax.nn.log_softmax(w[6:]) - 0.5 * away**2 - w[4:6]
        return jax.nn.logsumexp(each, axis=1).sum() - 0.5 * (w**2).sum() / 9

    start = np.array([0.5, -0.5, 0.5, -0.5, 0, 0, 0, 0])
    post = mixvi.fit(log_density, start, (x, y))
    assert post.elsewhere.share == pytest.approx(0.5)
    assert "ordered" not in post.verdict


def test_a_density_that_is_not_a_number_on_the_way():
    """An axis: the vector and its negative, with nothing at the origin."""
    rng = np.random.default_rng(1002)
    x = rng.standard_normal((20, 3)) * 0.3 + [1.0, 0.5, 0]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x *= rng.choice([-1, 1], (20, 1))

    def log_density(w, x):
        length = jnp.sqrt(w @ w)
        return (5 * (x @ w / length) ** 2).sum() - 50 * (length - 1) ** 2

    post = mixvi.fit(log_density, np.array([1.0, 0, 0]), x)
    assert post.elsewhere.share == pytest.approx(0.5)


@pytest.mark.parametrize("n_restarts", [5, 20])
def test_restarts_and_searches_see_the_same_modes(n_restarts):
    post = mixvi.fit(
        mixture,
        np.array([-1.0, 0.0, 1.0]),
        mixture_data(90, (-6.0, 0.0, 6.0)),
        n_restarts=n_restarts,
    )
    assert post.trust == "reject"
    assert len(post.modes) == 6
    assert post.stats.modes == 6


def test_images_are_accepted_where_other_modes_have_no_mass():
    """Two components on three groups: other modes have a share of 1e-5."""
    rng = np.random.default_rng(302)
    y = np.concatenate([place + rng.standard_normal(30) for place in (-6, 0, 6)])

    def log_density(w, y):
        each = jax.nn.log_softmax(w["logit"]) - w["log_sd"]
        each -= 0.5 * ((y[:, None] - w["m"]) / jnp.exp(w["log_sd"])) ** 2
        prior = (w["m"] ** 2).sum() / 100 + (w["log_sd"] ** 2).sum() + (w["logit"] ** 2).sum()
        return jax.nn.logsumexp(each, axis=1).sum() - 0.5 * prior

    start = {"m": np.array([-6.0, 3.0]), "log_sd": np.zeros(2), "logit": np.zeros(2)}
    assert mixvi.fit(log_density, start, y, symmetric="accept").trust == "trust"


def test_modes_of_restarts_are_in_the_verdict(monkeypatch):
    """30% of the mass in a mode too narrow for anything but a start beside it."""

    def log_density(w):
        narrow = jnp.log(0.3 / 0.01) - 0.5 * ((w - 40.0) / 0.01) ** 2
        return jnp.logaddexp(jnp.log(0.7) - 0.5 * w**2, narrow)

    assert mixvi.fit(log_density, 0.0).trust == "trust"
    monkeypatch.setattr(_restarts, "spread_starts", lambda problem, n: [np.array([40.0])])
    post = mixvi.fit(log_density, 0.0, n_restarts=1)
    assert post.trust == "reject"
    own = 0.7 if abs(float(post.mean)) < 1 else 0.3
    assert post.elsewhere.share == pytest.approx(1 - own, abs=0.01)
    assert post.stats.modes == 2


def test_modes_live_in_files(tmp_path):
    post = mixvi.fit(mixture, np.array([-1.0, 1.0]), mixture_data())
    again = mixvi.load(post.save(tmp_path / "post"))
    assert again.trust == post.trust
    assert again.reasons == post.reasons
    assert again.verdict == post.verdict
    for one, other in zip(again.modes, post.modes, strict=True):
        np.testing.assert_array_equal(one.point, other.point)
        assert (one.share, one.is_image, one.relation) == (
            other.share,
            other.is_image,
            other.relation,
        )


def test_many_posteriors_with_labels_that_switch():
    ys = np.stack([mixture_data(60, (-3.0, 3.0)), mixture_data(60, (-4.0, 4.0))])
    posts = mixvi.fit_many(mixture, np.array([-1.0, 1.0]), ys)
    assert [post.trust for post in posts] == ["reject", "reject"]
    assert [len(post.modes) for post in posts] == [2, 2]


def test_a_mode_about_a_turn_away_is_not_taken_for_a_period():
    """Two normals, of another height, 6 apart, which is nearly 2 pi."""

    def log_density(w):
        return jnp.logaddexp(jnp.log(0.9) - 0.5 * w**2, jnp.log(0.1) - 0.5 * (w - 6) ** 2)

    post = mixvi.fit(log_density, 0.1)
    assert post.trust == "reject"
    assert "eriod" not in post.verdict
    assert [one.relation for one in post.modes[1:]] == [()]
