"""Fixed draws: what they promise, and when they are refused."""

import jax
import numpy as np
import pytest
from scipy import special

import mixvi
from mixvi._arrays._draws import FRESH, default_draws, generator, key_words
from mixvi._arrays._sobol import MOST_DIMS, normal_quantile, sobol


@pytest.mark.parametrize("dim", [1, 2, 31, 60])
def test_matched_draws_have_exact_moments(dim):
    z = mixvi.Matched(200).make(0, dim)
    assert z.shape == (200, dim)
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-14)
    np.testing.assert_allclose(z.T @ z / 200, np.eye(dim), atol=1e-12)
    np.testing.assert_array_equal(z[:100], -z[100:])


@pytest.mark.parametrize("kind", [mixvi.IID, mixvi.Matched, mixvi.Sobol])
def test_draws_depend_on_the_key_alone(kind):
    first = kind(64).make(3, 4).copy()
    other = kind(64).make(4, 4)
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(first, kind(64).make(3, 4))


@pytest.mark.parametrize("kind", [mixvi.IID, mixvi.Matched, mixvi.Sobol])
def test_draws_are_normal(kind):
    """Moments to four standard errors of independent draws; far better where that is the point."""
    z = kind(4096).make(0, 3)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        error = 4 * np.sqrt(variance / z.size)
        if kind is mixvi.Matched and power < 4:
            error = 1e-10  # matched, and odd moments of pairs
        if kind is mixvi.Sobol:
            error *= 0.25
        assert (z**power).mean() == pytest.approx(moment, abs=error)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (-1, "must not be negative, got -1"),
        (0.5, "not float"),
        (True, "not bool"),
        ("0", "not str"),
    ],
)
def test_other_keys_are_refused(key, sentence):
    with pytest.raises(mixvi.InputError, match=sentence):
        key_words(key)


def test_jax_keys_and_integers():
    typed, raw = jax.random.key(7), jax.random.PRNGKey(7)
    np.testing.assert_array_equal(mixvi.IID(8).make(typed, 2), mixvi.IID(8).make(raw, 2))
    assert not np.array_equal(mixvi.IID(8).make(typed, 2), mixvi.IID(8).make(8, 2))


def test_judges_are_not_the_draws_that_were_fitted():
    fixed, fresh = mixvi.IID(8).make(0, 2), generator(0, FRESH).standard_normal((8, 2))
    assert not np.isclose(fixed, fresh).any()


@pytest.mark.parametrize(
    ("draws", "root", "reason"),
    [
        (mixvi.Matched(41), False, "odd"),
        (mixvi.Matched(40), False, "at least 42"),
        (mixvi.IID(21), True, "no maximum"),
        (mixvi.Sobol(21), True, "no maximum"),
        (mixvi.IID(21), False, None),
        (mixvi.IID(22), True, None),
        (mixvi.Matched(42), True, None),
    ],
)
def test_refusals_give_a_reason(draws, root, reason):
    said = draws.refusal(20, root)
    assert said is None if reason is None else reason in said


def test_the_bound_is_unbounded_with_too_few_draws():
    """Why they are refused: 20 iid draws in 20 dimensions miss a direction, and widening the root
    along it raises log|det A| while no draw moves."""
    z = mixvi.IID(20).make(0, 20)
    centred = z - z.mean(0)
    v = np.linalg.svd(centred)[2][-1]
    for t in (1.0, 1e3, 1e6):
        a = np.eye(20) + t * np.outer(v, v)
        np.testing.assert_allclose(centred @ a.T, centred, atol=1e-8)
        assert np.linalg.slogdet(a)[1] == pytest.approx(np.log1p(t))


def test_defaults():
    assert default_draws(10, True, 2**30) == mixvi.Matched(256)
    assert default_draws(100, False, 2**30) == mixvi.Matched(400)
    assert default_draws(20_000, False, 2**30) == mixvi.Sobol(1024)
    with pytest.raises(mixvi.InputError, match="GiB"):
        default_draws(20_000, True, 2**30)


def test_no_stream_is_a_generator_that_users_make():
    """NumPy ignores zeros at the end of a seed: `default_rng([key, 0])` is `default_rng(key)`."""
    for key in range(5):
        theirs = np.random.default_rng(key).standard_normal(8)
        for stream in range(8):
            assert not np.array_equal(generator(key, stream).standard_normal(8), theirs)
        np.testing.assert_array_equal(np.random.default_rng([key, 0]).standard_normal(8), theirs)
        assert not np.array_equal(mixvi.IID(8).make(key, 1)[:, 0], theirs)


@pytest.mark.parametrize("n", [64, 100, 256])
def test_sobol_points_are_a_net_in_every_dimension(n):
    """As many intervals as points (a power of two): one point in each."""
    points = sobol(np.random.default_rng(n), n, MOST_DIMS)
    assert points.shape == (n, MOST_DIMS)
    assert ((points > 0) & (points < 1)).all()
    whole = 2 ** int(np.log2(n))
    for column in points[:whole].T:
        assert len(np.unique((column * whole).astype(int))) == whole


def test_sobol_points_integrate_better_than_independent_ones():
    """E log(1 + e^(z_1 + z_2)), by quadrature over z_1 + z_2 ~ N(0, 2)."""
    t = np.linspace(-9, 9, 4001)
    weights = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()
    exact = weights @ np.logaddexp(0, np.sqrt(2) * t)

    def error(kind):
        made = [kind(256).make(key, 2) for key in range(20)]
        return np.std([np.logaddexp(0, z.sum(1)).mean() - exact for z in made])

    assert error(mixvi.Sobol) < 0.2 * error(mixvi.IID)


def test_the_normal_quantile():
    u = np.array([1e-9, 0.025, 0.5, 0.975])
    np.testing.assert_allclose(normal_quantile(u), special.ndtri(u), rtol=1e-12, atol=1e-15)
